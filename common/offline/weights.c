/* Double-buffered reading of layers. The reader thread owns the buffer it fills; ownership passes
 * at `state` under the lock. A read error travels in the buffer and is reported when that layer is
 * asked for. */
#include "common/offline/weights.h"

#include <pthread.h>
#include <stdlib.h>

enum { IDLE, WANTED, READY };

struct buffer {
    int layer, state;       /* guarded by lock */
    uint8_t *mem;           /* owned by the reader while WANTED, by the caller else */
    const void *data[MODEL_ROLES];
    int result;
    struct err err;
};

struct weights {
    const struct model *m;  /* constant */
    pthread_t thread;
    int started, quit;      /* quit: guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct buffer b[2];
};

static uint64_t aligned(uint64_t n)
{
    return (n + 63) & ~63ull;
}

/* Predictors take no part in the pass. */
static const struct gguf_tensor *wanted(const struct model *m, int layer, int role)
{
    return model_role_is_predictor((enum model_role)role) ? NULL : m->layer[layer][role];
}

static uint64_t layer_bytes(const struct model *m, int l)
{
    uint64_t n = 0;
    for (int r = 0; r < MODEL_ROLES; r++)
        if (wanted(m, l, r))
            n += aligned(m->layer[l][r]->bytes);
    return n;
}

static uint64_t largest(const struct model *m)
{
    uint64_t most = 64;
    for (int l = 0; l < model_depth(&m->h); l++)
        if (layer_bytes(m, l) > most)
            most = layer_bytes(m, l);
    return most;
}

uint64_t weights_bytes(const struct model *m)
{
    return 2 * largest(m);
}

uint64_t weights_total(const struct model *m)
{
    uint64_t n = 0;
    for (int l = 0; l < model_depth(&m->h); l++)
        n += layer_bytes(m, l);
    return n;
}

static void fill(const struct model *m, struct buffer *b)
{
    uint64_t at = 0;
    b->result = 0;
    for (int r = 0; r < MODEL_ROLES && !b->result; r++) {
        const struct gguf_tensor *t = wanted(m, b->layer, r);
        b->data[r] = t ? b->mem + at : NULL;
        if (!t)
            continue;
        b->result = gguf_read(m->gguf, t, 0, b->mem + at, (size_t)t->bytes, &b->err);
        at += aligned(t->bytes);
    }
}

static void *reader(void *ctx)
{
    struct weights *w = ctx;
    pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        struct buffer *b = w->b[0].state == WANTED ? &w->b[0] : w->b[1].state == WANTED ? &w->b[1] : NULL;
        if (!b) {
            pthread_cond_wait(&w->change, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        fill(w->m, b);
        pthread_mutex_lock(&w->lock);
        b->state = READY;
        pthread_cond_broadcast(&w->change);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int weights_new(const struct model *m, struct weights **out, struct err *e)
{
    struct weights *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "weights");
    w->m = m;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->change, NULL);
    for (int i = 0; i < 2; i++)
        if (!(w->b[i].mem = aligned_alloc(64, (size_t)largest(m)))) {
            weights_free(w);
            return err_set(e, ERR_NOMEM, "two buffers of %llu bytes for a layer's weights",
                           (unsigned long long)largest(m));
        }
    if (pthread_create(&w->thread, NULL, reader, w)) {
        weights_free(w);
        return err_sys(e, ERR_SYS, "starting the thread that reads weights");
    }
    w->started = 1;
    *out = w;
    return 0;
}

void weights_free(struct weights *w)
{
    if (!w)
        return;
    if (w->started) {
        pthread_mutex_lock(&w->lock);
        w->quit = 1;
        pthread_cond_broadcast(&w->change);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    free(w->b[0].mem);
    free(w->b[1].mem);
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Under the lock: ask for a layer, unless a buffer has it. */
static struct buffer *want(struct weights *w, int layer, const struct buffer *keep)
{
    for (int i = 0; i < 2; i++)
        if (w->b[i].state != IDLE && w->b[i].layer == layer)
            return &w->b[i];
    for (int i = 0; i < 2; i++) {
        struct buffer *b = &w->b[i];
        if (b == keep)
            continue;
        while (b->state == WANTED)
            pthread_cond_wait(&w->change, &w->lock);
        b->layer = layer;
        b->state = WANTED;
        pthread_cond_broadcast(&w->change);
        return b;
    }
    return NULL;
}

int weights_layer(struct weights *w, int layer, const void *const **data, struct err *e)
{
    pthread_mutex_lock(&w->lock);
    struct buffer *b = want(w, layer, NULL);
    while (b->state == WANTED)
        pthread_cond_wait(&w->change, &w->lock);
    if (!b->result)
        want(w, (layer + 1) % model_depth(&w->m->h), b);
    else
        b->state = IDLE;
    pthread_mutex_unlock(&w->lock);
    if (b->result) {
        *e = b->err;
        return b->result;
    }
    *data = b->data;
    return 0;
}
