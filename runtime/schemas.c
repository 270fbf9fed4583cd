#include "runtime/schemas.h"

#include "common/base/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define COMPILING (512u << 10) /* bytes that a schema takes while it becomes a mask */

struct place {
    struct hash128 hash;      /* of the schema's text, or of a call's tools and name */
    struct mask *mask;
    int texts;                /* that have it; 0: its mask may be another's */
};

struct schemas {
    const struct tokenizer *tokenizer;
    struct mask_words *words;
    const int32_t *eog;
    int n_eog, n_vocab, n;
    uint64_t *bits;
    pthread_mutex_t lock;     /* of places */
    struct place places[];
};

static const char *piece(const void *ctx, int32_t id, size_t *n, int *control)
{
    const char *s = tokenizer_piece(ctx, id, n);
    *control = *n == 0;
    return *control ? tokenizer_text(ctx, id, n) : s;
}

static int is_control(const void *ctx, const char *name)
{
    size_t n = 1;
    int32_t id = tokenizer_find(ctx, name);
    if (id >= 0)
        tokenizer_piece(ctx, id, &n);
    return n == 0;
}

static size_t bits_bytes(int n_vocab)
{
    return ((size_t)n_vocab + 63) / 64 * sizeof(uint64_t);
}

uint64_t schemas_bytes(const struct tokenizer *t, int n_vocab, int n)
{
    size_t text = 0, len;
    for (int32_t id = 0; id < n_vocab; id++) {
        int control;
        piece(t, id, &len, &control);
        text += len <= MASK_TOKEN ? len + 1 : 0;
    }
    size_t words = mask_words_bound(n_vocab, text);
    return sizeof(struct schemas) + (uint64_t)n * (sizeof(struct place) + mask_bytes(n_vocab)) + words + (size_t)n_vocab * 16 +
           bits_bytes(n_vocab) + COMPILING;
}

int schemas_new(const struct tokenizer *t, int n_vocab, const int32_t *eog, int n_eog, int n, struct schemas **out, struct err *e)
{
    struct schemas *s = calloc(1, sizeof *s + (size_t)n * sizeof s->places[0]);
    if (!s)
        return err_set(e, ERR_NOMEM, "out of memory for schemas");
    pthread_mutex_init(&s->lock, NULL);
    s->tokenizer = t;
    s->eog = eog;
    s->n_eog = n_eog;
    s->n_vocab = n_vocab;
    s->n = n;
    s->bits = malloc(bits_bytes(n_vocab));
    int r = s->bits ? mask_words_new(piece, t, n_vocab, &s->words, e) : err_set(e, ERR_NOMEM, "out of memory for schemas");
    if (r < 0)
        schemas_free(s);
    else
        *out = s;
    return r;
}

void schemas_free(struct schemas *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++)
        mask_free(s->places[i].mask);
    mask_words_free(s->words);
    pthread_mutex_destroy(&s->lock);
    free(s->bits);
    free(s);
}

/* The place of that schema, or one that is free: its texts are one more. NULL: there is none. */
static struct place *reserve(struct schemas *s, struct hash128 hash)
{
    struct place *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n; i++) {
        struct place *p = &s->places[i];
        if (p->mask && hash_equal(p->hash, hash)) {
            found = p;
            break;
        }
        if (p->texts == 0 && (!found || !p->mask))
            found = p;
    }
    if (found)
        found->texts++;
    pthread_mutex_unlock(&s->lock);
    return found;
}

static int hash_of(const struct js *j, const char *name, struct hash128 *out)
{
    struct hash *h = hash_new();
    char *text = j ? js_text(j, 0, 0) : NULL;
    if (h && (text || !j)) {
        hash_update_str(h, text ? text : "");
        hash_update_str(h, name);
        *out = hash_final128(h);
    }
    int r = h && (text || !j) ? 0 : ERR_NOMEM;
    free(text);
    hash_free(h);
    return r;
}

static int make(const struct schemas *s, const struct js *schema, const struct forced *call, struct mask **out, struct err *e)
{
    struct grammar *g;
    if (!call)
        return mask_new(schema, s->words, out, e);
    struct forced f = *call;
    f.is_control = is_control;
    f.ctx = s->tokenizer;
    int r = forced_grammar(&f, &g, e);
    return r < 0 ? r : mask_of(g, s->words, out, e);
}

static int take(struct schemas *s, const struct js *schema, const struct forced *call, struct schemas_text *out, struct err *e)
{
    struct hash128 hash;
    if (hash_of(call ? call->tools : schema, !call ? "" : call->name ? call->name : " any", &hash) < 0)
        return err_set(e, ERR_NOMEM, "out of memory for a schema");
    struct place *p = reserve(s, hash);
    struct mask *made = NULL;
    int r = p ? 0 : err_set(e, ERR_FULL, "all %d places for different schemas are taken", s->n);
    if (p && !(p->mask && hash_equal(p->hash, hash))) {
        mask_free(p->mask);
        p->mask = NULL;
        r = make(s, schema, call, &made, e);
        pthread_mutex_lock(&s->lock);
        p->mask = made;
        p->hash = hash;
        p->texts -= r < 0;
        pthread_mutex_unlock(&s->lock);
    }
    if (r == 0)
        *out = (struct schemas_text){ .of = s, .place = (int)(p - s->places) };
    return r;
}

int schemas_take(struct schemas *s, const struct js *schema, struct schemas_text *out, struct err *e)
{
    return take(s, schema, NULL, out, e);
}

int schemas_take_call(struct schemas *s, const struct forced *call, struct schemas_text *out, struct err *e)
{
    return take(s, NULL, call, out, e);
}

void schemas_share(const struct schemas_text *of, struct schemas_text *out)
{
    *out = (struct schemas_text){ .of = of->of, .place = of->place };
    if (!of->of)
        return;
    pthread_mutex_lock(&of->of->lock);
    of->of->places[of->place].texts++;
    pthread_mutex_unlock(&of->of->lock);
}

void schemas_give(struct schemas_text *t)
{
    struct schemas *s = t->of;
    if (!s)
        return;
    if (t->begun)
        mask_end(&t->text);
    pthread_mutex_lock(&s->lock);
    s->places[t->place].texts--;
    pthread_mutex_unlock(&s->lock);
    *t = (struct schemas_text){ 0 };
}

static void allow(struct schemas *s, int32_t id, int *n)
{
    s->bits[id / 64] |= (uint64_t)1 << id % 64;
    ++*n;
}

const uint64_t *schemas_allowed(struct schemas_text *t, int ends, int32_t also, struct err *e)
{
    struct schemas *s = t->of;
    int may_end = 0, n = 0;
    if (!t->begun && mask_begin(s->places[t->place].mask, &t->text, e) < 0)
        return NULL;
    t->begun = t->on = 1;
    if ((n = mask_allowed(&t->text, s->bits, &may_end, e)) < 0)
        return NULL;
    for (int i = 0; i < s->n_eog && may_end && ends; i++)
        allow(s, s->eog[i], &n);
    if (also >= 0)
        allow(s, also, &n);
    if (n == 0 && !may_end)
        err_set(e, ERR_UNSUPPORTED, "no token of this vocabulary goes on with a text of the schema");
    return n ? s->bits : NULL;
}

const uint64_t *schemas_any(struct schemas_text *t)
{
    t->on = 0;
    memset(t->of->bits, 0xff, bits_bytes(t->of->n_vocab));
    return t->of->bits;
}

int schemas_accept(struct schemas_text *t, int32_t id, struct err *e)
{
    int r = mask_accept(&t->text, id, e);
    t->on = 0;
    return r < 0 ? r : 0;
}
