/* The seam of dense work: another implementation (one that counts calls, fails when told, and keeps what it is given in memory of
 * its own) takes the place of the processor's, and the engine gives the same bits through it; calls are per layer or per pass; an
 * error of any of them ends the pass; logits of many tokens in one call have the bits of one by one. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "runtime/engine/dense.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <unistd.h>

enum { EMBED, NORM, ATTENTION, ROUTE, ADD, HEAD, OPEN, CALLS };

static struct {
    int calls[CALLS], closed;
    int fail, at;         /* the at-th call of that kind, from 1 */
} seen;

struct copying {
    struct dense dense;
    struct dense *cpu;
    int d_model, tokens;
    float *in, *out;      /* f32[tokens][d_model] */
};

static float first[ES_SEQ * ES_VOCAB], other[ES_SEQ * ES_VOCAB];

static int called(int kind, struct err *e)
{
    seen.calls[kind]++;
    return seen.fail == kind && seen.calls[kind] == seen.at ? err_set(e, ERR_SYS, "the accelerator is gone") : 0;
}

static size_t size_of(const struct copying *c, int n)
{
    return (size_t)n * (size_t)c->d_model * sizeof(float);
}

static void copying_close(struct dense *d)
{
    struct copying *c = (struct copying *)d;
    c->cpu->backend->close(c->cpu);
    free(c->in);
    free(c->out);
    free(c);
    seen.closed++;
}

static int copying_embed(struct dense *d, const struct engine_token *tokens, int n, float *x, struct err *e)
{
    struct copying *c = (struct copying *)d;
    int r = called(EMBED, e);
    if (r == 0 && (r = c->cpu->backend->embed(c->cpu, tokens, n, c->out, e)) == 0)
        memcpy(x, c->out, size_of(c, n));
    return r;
}

static int copying_norm(struct dense *d, int layer, enum dense_norm which, const float *x, int n, float *out, struct err *e)
{
    struct copying *c = (struct copying *)d;
    int r = called(NORM, e);
    memcpy(c->in, x, size_of(c, n));
    if (r == 0 && (r = c->cpu->backend->norm(c->cpu, layer, which, c->in, n, c->out, e)) == 0)
        memcpy(out, c->out, size_of(c, n));
    return r;
}

static int copying_attention(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens,
                             const struct dense_reads *reads, float *out, struct err *e)
{
    struct copying *c = (struct copying *)d;
    struct acts mine = *in;
    int r = called(ATTENTION, e);
    memcpy(c->in, in->f32, size_of(c, in->n_tokens));
    mine.f32 = c->in;
    mine.has_q8 = 0;
    if (r == 0 && (r = c->cpu->backend->attention(c->cpu, layer, &mine, tokens, reads, c->out, e)) == 0)
        memcpy(out, c->out, size_of(c, in->n_tokens));
    return r;
}

static int copying_route(struct dense *d, int layer, struct acts *in, float *logits, struct err *e)
{
    struct copying *c = (struct copying *)d;
    int r = called(ROUTE, e);
    return r < 0 ? r : c->cpu->backend->route(c->cpu, layer, in, logits, e);
}

static int copying_add(struct dense *d, float *x, const float *v, int n, struct err *e)
{
    struct copying *c = (struct copying *)d;
    int r = called(ADD, e);
    return r < 0 ? r : c->cpu->backend->add(c->cpu, x, v, n, e);
}

static int copying_copy_page(struct dense *d, int from, int to, int n, struct err *e)
{
    struct copying *c = (struct copying *)d;
    return c->cpu->backend->copy_page(c->cpu, from, to, n, e);
}

static int copying_move_page(struct dense *d, int page, void *memory, int in, struct err *e)
{
    struct copying *c = (struct copying *)d;
    return c->cpu->backend->move_page(c->cpu, page, memory, in, e);
}

static int copying_head(struct dense *d, const float *hidden, int n, float *logits, struct err *e)
{
    struct copying *c = (struct copying *)d;
    int r = called(HEAD, e);
    memcpy(c->in, hidden, size_of(c, n));
    return r < 0 ? r : c->cpu->backend->head(c->cpu, c->in, n, logits, e);
}

static const struct dense_backend copying;

static int copying_open(const struct dense_config *config_of, struct dense **out, struct err *e)
{
    int r = called(OPEN, e);
    if (r < 0)
        return r;
    struct copying *c = calloc(1, sizeof *c);
    c->dense.backend = &copying;
    c->d_model = config_of->h->d_model;
    c->in = malloc(size_of(c, config_of->tokens));
    c->out = malloc(size_of(c, config_of->tokens));
    *out = &c->dense;
    return dense_cpu_backend.open(config_of, &c->cpu, e);
}

static const struct dense_backend copying = {
    .name = "copying", .open = copying_open, .close = copying_close, .embed = copying_embed, .norm = copying_norm,
    .attention = copying_attention, .copy_page = copying_copy_page, .move_page = copying_move_page,
    .route = copying_route, .add = copying_add, .head = copying_head,
};

static struct engine_sample sample(int experts)
{
    return (struct engine_sample){ .form = LAYOUT_SPLIT, .types = { QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0 }, .cluster = 16,
                                   .block = 512, .act = MODEL_ACT_RELU, .n_ff = 200, .experts = experts,
                                   .used = experts ? 2 : 0 };
}

static struct pack *open_pack(int experts)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    const struct engine_sample s = sample(experts);
    CHECK_MSG(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0, "%s", e.msg);
    return p;
}

static int pass(struct engine *g, int at, int n, struct err *e)
{
    struct engine_token t[ES_SEQ];
    for (int i = 0; i < n; i++)
        t[i] = (struct engine_token){ ids[at + i], 0, at + i };
    return engine_forward(g, t, n, e);
}

/* The whole sequence in passes of n tokens, logits one by one. */
static int sequence(const struct engine_config *c, int n, float *out, struct err *e)
{
    struct engine *g = NULL;
    int r = engine_open(c, &g, e);
    for (int at = 0; at < ES_SEQ && r == 0; at += n) {
        r = pass(g, at, n, e);
        for (int i = 0; i < n && r == 0; i++) {
            const float *v = engine_logits(g, i, 0, e);
            if (v)
                memcpy(out + (at + i) * ES_VOCAB, v, ES_VOCAB * sizeof *v);
            else
                r = e->code;
        }
    }
    engine_close(g);
    return r;
}

static void test_seam(int experts, int act_q8)
{
    struct err e = { 0 };
    struct pack *p = open_pack(experts);
    struct variant v = { .threads = 2, .chunk = 4, .depth = 3, .lanes = 1, .hot = 3, .cold = 2, .prefetch = 1, .act_q8 = act_q8,
                         .backend = &io_pread_backend };
    struct engine_config c = config(p, &v);
    const int passes = ES_SEQ / 4, layers = passes * ES_LAYERS;
    CHECK_MSG(sequence(&c, 4, first, &e) == 0, "%s", e.msg);
    c.dense = &copying;
    memset(&seen, 0, sizeof seen);
    CHECK_MSG(sequence(&c, 4, other, &e) == 0 && !memcmp(first, other, sizeof first), "%s", e.msg);
    CHECK(seen.calls[OPEN] == 1 && seen.closed == 1 && seen.calls[EMBED] == passes && seen.calls[NORM] == 2 * layers &&
          seen.calls[ATTENTION] == layers && seen.calls[ADD] == 2 * layers && seen.calls[HEAD] == ES_SEQ);
    CHECK(seen.calls[ROUTE] == (experts ? layers : 0));
    for (int kind = EMBED; kind < CALLS; kind++)
        for (int at = 1; at <= 2 && !(kind == ROUTE && !experts) && !(kind == OPEN && at > 1); at++) {
            memset(&seen, 0, sizeof seen);
            seen.fail = kind;
            seen.at = at;
            e.msg[0] = 0;
            CHECK_MSG(sequence(&c, 4, other, &e) == ERR_SYS && strstr(e.msg, "gone"), "kind %d: '%s'", kind, e.msg);
            CHECK(seen.calls[kind] == at && seen.closed == (kind != OPEN));
        }
    pack_close(p);
    unlink(path);
}

/* Every number of tokens, from every one on. */
static void test_head(int act_q8)
{
    struct err e = { 0 };
    struct pack *p = open_pack(0);
    struct engine *g = NULL;
    struct variant v = { .threads = 3, .chunk = 9, .depth = 3, .lanes = 1, .hot = 10, .act_q8 = act_q8, .backend = &io_pread_backend };
    struct engine_config c = config(p, &v);
    int rows = 0, same = 1;
    c.dense = &copying;
    CHECK_MSG(engine_open(&c, &g, &e) == 0 && pass(g, 0, 9, &e) == 0, "%s", e.msg);
    for (int i = 0; i < 9; i++)
        memcpy(first + i * ES_VOCAB, engine_logits(g, i, i % 2, &e), ES_VOCAB * sizeof *first);
    float *many = engine_logits_memory(g, &rows);
    CHECK(rows == 9); /* n_ff floats of a token are more than n_vocab */
    memset(&seen, 0, sizeof seen);
    int calls = 0;
    for (int i = 0; i < 9; i++)
        for (int n = 1; n <= 9 - i; n++, calls++)
            same &= engine_head(g, engine_hidden(g, i), n, many, &e) == 0 &&
                    !memcmp(many, first + i * ES_VOCAB, (size_t)n * ES_VOCAB * sizeof *first);
    CHECK(same && seen.calls[HEAD] == calls);
    CHECK(engine_head(g, engine_hidden(g, 0), 10, many, &e) == ERR_LIMIT && engine_head(g, engine_hidden(g, 0), 0, many, &e) == ERR_LIMIT);
    CHECK(pass(g, 9, 9, &e) == 0 && memcmp(first, engine_logits(g, 0, 0, &e), ES_VOCAB * sizeof *first)); /* nothing of it stays */
    engine_close(g);
    pack_close(p);
    unlink(path);
}

int main(void)
{
    kernels_init(cpu_detect());
    test_path(path, sizeof path, "thermo-dense-%ld.thermo", (long)getpid());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = (i * 7 + 3) % ES_VOCAB;
    test_seam(0, 0);
    test_seam(5, 1);
    test_head(0);
    test_head(1);
    return test_done();
}
