/* A list of a few answers, looked through from its beginning: the text of the prompt is compared by its hash, and then the answer is read
 * again as when it was made, and what comes out with the message. chat_tokens compares the prompt's tokens. */
#include "runtime/replay.h"

#include "runtime/output.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    struct replay_prompt p;
    int32_t *made;
    int n;
    uint64_t used;
};

struct replay {
    pthread_mutex_t lock;
    struct answer all[REPLAY_ANSWERS];
    int n;
    size_t bytes;
    uint64_t clock;
};

_Static_assert(sizeof(struct replay) + REPLAY_BYTES + 32 * REPLAY_ANSWERS <= REPLAY_FIXED, "what is counted");

int replay_new(struct replay **out, struct err *e)
{
    struct replay *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_NOMEM, "out of memory for answers");
    pthread_mutex_init(&r->lock, NULL);
    *out = r;
    return 0;
}

static void drop(struct replay *r, int i)
{
    r->bytes -= (size_t)r->all[i].n * sizeof *r->all[i].made;
    free(r->all[i].made);
    r->all[i] = r->all[--r->n];
}

void replay_free(struct replay *r)
{
    if (!r)
        return;
    while (r->n)
        drop(r, 0);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static int same_prompt(const struct replay_prompt *a, const struct replay_prompt *b)
{
    return hash_equal(a->text, b->text) && hash_equal(a->tokens, b->tokens) && a->n_messages == b->n_messages && a->salt == b->salt;
}

static int oldest(const struct replay *r)
{
    int k = 0;
    for (int i = 1; i < r->n; i++)
        k = r->all[i].used < r->all[k].used ? i : k;
    return k;
}

void replay_put(struct replay *r, const struct replay_prompt *p, const int32_t *made, int n)
{
    size_t bytes = (size_t)n * sizeof *made;
    if (n < 1 || bytes > REPLAY_BYTES / 2)
        return;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->n; i++)
        if (same_prompt(&r->all[i].p, p)) {
            drop(r, i);
            break;
        }
    while (r->n == REPLAY_ANSWERS || r->bytes + bytes > REPLAY_BYTES)
        drop(r, oldest(r));
    int32_t *copy = malloc(bytes);
    if (copy) {
        memcpy(copy, made, bytes);
        r->all[r->n++] = (struct answer){ *p, copy, n, ++r->clock };
        r->bytes += bytes;
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- is it what the message says? ---- */

struct reading {
    struct output output;
    const char *content, *thought;  /* what has not been read yet */
    const struct js *calls;         /* of the message, or NULL */
    size_t n_calls;
    int differs;
};

static void text(void *ctx, const char *s, size_t n)
{
    struct reading *x = ctx;
    const char **at = x->output.now == CHAT_THOUGHT ? &x->thought : &x->content;
    x->differs |= strncmp(*at, s, n) != 0 || memchr(s, 0, n) != NULL;
    *at += x->differs ? 0 : n;
}

static int same_text(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

static int same_arguments(const struct js *sent, const char *made, size_t n)
{
    const char *s = js_str(sent);
    struct err e;
    struct js *a = js_parse(made, n, "arguments", &e), *b = s ? js_parse(s, strlen(s), "arguments", &e) : NULL;
    int same = a && js_is_object(a) && (s ? b && js_equal(a, b) : js_equal(a, sent));
    js_free(a);
    js_free(b);
    return same;
}

static int call(void *ctx, const struct calls_out *out)
{
    struct reading *x = ctx;
    const struct js *c = js_at(x->calls, x->n_calls++), *f = js_get(c, "function");
    x->differs |= !same_text(js_str(js_get(c, "id")), out->id) || !same_text(js_str(js_get(f, "name")), out->name) ||
                  !same_arguments(js_get(f, "arguments"), out->text, out->n);
    return x->differs;
}

/* Its calls, looked for as they were then; *out NULL: there were none to look for. */
static int calls_of(const struct replay_find *f, const struct answer *a, struct calls **out)
{
    struct err e;
    *out = NULL;
    return f->form == CALLS_NONE || !js_len(f->tools) ? 0 : calls_new(f->form, f->tools, f->most, a->p.salt, out, &e);
}

static int says(const struct replay_find *f, const struct answer *a, const struct message *m)
{
    struct err e;
    struct js *more = m->more ? js_parse(m->more, strlen(m->more), "a message", &e) : NULL;
    struct reading x = { .content = m->content, .thought = m->thought ? m->thought : "", .calls = js_get(more, "tool_calls") };
    struct calls *calls = NULL;
    int r = m->more && !more ? -1 : output_init(&x.output, NULL, 0, text, &x, &e);
    if (r == 0 && (r = calls_of(f, a, &calls)) == 0) {
        output_begin(&x.output, f->tokenizer, 1, a->p.thinks, 0);
        x.output.parts = 1;
        x.output.calls = calls;
        x.output.call = call;
        x.output.call_ctx = &x;
        for (int i = 0; i < a->n && !x.differs; i++)
            output_token(&x.output, a->made[i]);
        if (!x.differs)
            output_end(&x.output);
    }
    r = r == 0 && !x.differs && !*x.content && !*x.thought && x.n_calls == js_len(x.calls);
    output_done(&x.output);
    calls_free(calls);
    js_free(more);
    return r;
}

static int is_of(const struct replay_find *f, struct answer *a, const struct messages *m, const char *text, size_t len, size_t from)
{
    const struct replay_prompt *p = &a->p;
    return p->bytes > from && p->bytes < len && p->n_messages < m->n && !strcmp(m->all[p->n_messages].role, "assistant") &&
           hash_equal(hash_128(text, p->bytes), p->text) && says(f, a, &m->all[p->n_messages]);
}

int replay_next(void *find, const struct messages *m, const char *text, size_t len, size_t from, struct chat_known *out)
{
    struct replay_find *f = find;
    struct replay *r = f->of;
    struct answer *best = NULL;
    *out = (struct chat_known){ 0 };
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->n; i++) {
        struct answer *a = &r->all[i];
        int first = !best || a->p.bytes < best->p.bytes || (a->p.bytes == best->p.bytes && a->used > best->used);
        if (first && is_of(f, a, m, text, len, from))
            best = a;
    }
    if (best && (out->made = malloc((size_t)best->n * sizeof *best->made))) {
        memcpy(out->made, best->made, (size_t)best->n * sizeof *best->made);
        out->at = best->p.bytes;
        out->prompt = best->p.tokens;
        out->n_prompt = best->p.n_tokens;
        out->n_made = best->n;
        best->used = ++r->clock;
    }
    pthread_mutex_unlock(&r->lock);
    return out->made != NULL;
}
