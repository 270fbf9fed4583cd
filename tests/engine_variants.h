#ifndef TESTS_ENGINE_VARIANTS_H
#define TESTS_ENGINE_VARIANTS_H

/* Ways to run one of engine_sample.h's models that may not change a bit of its logits, drawn at random. One in four reads past the
 * page cache: each such read goes to the device, which takes most of a run. */
#include "runtime/engine/engine.h"
#include "tests/engine_sample.h"
#include "tests/io_delay.h"

static char path[256];
static int32_t ids[ES_SEQ];
static uint32_t seed = 5;

static inline uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

struct variant {
    int threads, chunk, depth, lanes, hot, cold, prefetch, apart, empty, dense, act_q8, kv_type, buffered, coalesce;
    enum cache_policy policy;
    const struct io_backend *backend;
    const struct es_predict *predict; /* predicted mode: at the recall of its threshold */
    int variants;                         /* another way before every pass, of so many; 0: there is one */
    int streamed, buffers;            /* of its layers, a bit each: predictors are streamed; through so many buffers more
                                       * than the least */
};

static struct reads_coalesce coalesce[READS_MAX_COALESCE];
static uint32_t hot[64], cold[16], always[ES_LAYERS];
static signed char predictor[ES_LAYERS];
static unsigned char streamed[ES_LAYERS];

static inline void predict(struct engine_config *c, const struct pack *p, const struct variant *v)
{
    const struct es_predict *x = v->predict;
    int any = 0;
    c->mode = PLAN_PREDICTED;
    c->predictor = predictor;
    c->always = always;
    c->streamed = streamed;
    c->recall = x->threshold > 0.05 ? 0.7 : x->threshold > -0.05 ? 0.9 : 0.99;
    for (int l = 0; l < ES_LAYERS; l++) {
        predictor[l] = (signed char)x->input[l];
        always[l] = (uint32_t)x->always[l];
        streamed[l] = predictor[l] >= 0 && (v->streamed >> l & 1);
        any |= streamed[l];
        for (int b = 0; b < model_ffn_blocks(&p->h) && predictor[l] >= 0; b++) {
            const struct pack_predictor *q = pack_predictor_find(p, (enum predict_input)predictor[l], l, b);
            budget_add_predictor(&c->choice.predictors, &p->shapes.kind[0], q->rank, q->bytes, predict_row1_bytes(q->type1, ES_D),
                                 quant_row_bytes(q->type2, (uint64_t)q->rank), q->two_sided);
            c->choice.predictor_bytes += streamed[l] ? 0 : budget_dense_tensor(q->bytes);
        }
    }
    c->choice.predictor_buffers = any ? c->choice.predictors.least + v->buffers % 5 : 0;
}

/* Reads through gaps: windows that double, each of them paying from a share of its units on, n of them. */
static inline void join(struct engine_config *c, const struct pack *p, int n)
{
    const struct layout_part *lp = &layout_largest(&p->shapes)->part[p->shapes.n_parts - 1];
    uint32_t block = p->shapes.kind[0].block_bytes;
    double share = (1 + rnd(3)) / 4.0;
    for (int i = 0; i < n; i++) {
        uint64_t bytes = lp->read_bytes + ((2u << i) - 1) * lp->stride_bytes;
        coalesce[i] = (struct reads_coalesce){ (uint32_t)((bytes + block - 1) / block * block), 1 + (2u << i) * share };
    }
    c->coalesce = coalesce;
    c->n_coalesce = n;
    c->choice.read_bytes = n ? coalesce[n - 1].bytes : 0;
}

#define MOST_WAYS 4
static struct engine_way variants[MOST_WAYS];

static inline void take_variants(struct engine_config *c, const struct variant *v)
{
    for (int i = 0; i < v->variants; i++)
        variants[i] = (struct engine_way){ rnd(2) ? PLAN_IO_PREAD : PLAN_IO_URING, 1 + (int)rnd((uint32_t)v->threads),
                                       1 + (int)rnd((uint32_t)v->depth), 1 + (int)rnd((uint32_t)v->lanes), rnd(2), rnd(2) };
    c->variants = variants;
    c->n_variants = v->variants;
    c->backend = v->variants && rnd(2) ? NULL : c->backend;
}

/* hot and cold: tenths of a layer; 11: a different share everywhere. */
static inline struct engine_config config(const struct pack *p, const struct variant *v)
{
    int blocks = model_ffn_blocks(&p->h), parts = p->shapes.kind[0].n_parts, n_ff = p->h.n_ff;
    for (int i = 0; i < ES_LAYERS * blocks * parts; i++) {
        uint32_t n = v->hot == 11 ? rnd((uint32_t)n_ff + 1) : (uint32_t)(n_ff * v->hot / 10);
        hot[i] = n == (uint32_t)n_ff ? n : n / p->shapes.kind[0].cluster_neurons * p->shapes.kind[0].cluster_neurons;
    }
    for (int i = 0; i < ES_LAYERS * parts; i++) {
        uint32_t units = layout_of(&p->shapes, i / parts)->part[i % parts].n_units * (uint32_t)blocks;
        cold[i] = v->cold == 11 ? rnd(units + 1) : units * (uint32_t)v->cold / 10;
    }
    io_delay_max_us = 60, io_delay_seed = 3 + rnd(1000);
    struct engine_config c = { .pack = p,
                                   .mode = v->dense || p->shapes.l.form == LAYOUT_TILES ? PLAN_DENSE : PLAN_EXACT,
                                   .act_q8 = v->act_q8,
                                   .policy = v->policy,
                                   .no_prefetch = !v->prefetch,
                                   .no_overlap = v->apart,
                                   .no_warm_start = v->empty,
                                   .backend = v->backend,
                                   .buffered = v->buffered,
                                   .choice = { .context = ES_CTX,
                                               .kv_type = v->kv_type,
                                               .max_batch = 2,
                                               .prefill_chunk = v->chunk,
                                               .threads = v->threads,
                                               .io_lanes = v->lanes,
                                               .queue_depth = v->depth,
                                               .hot = hot,
                                               .cold = cold } };
    join(&c, p, v->coalesce);
    take_variants(&c, v);
    if (v->predict)
        predict(&c, p, v);
    return c;
}

/* Logits after every token of the sequence; f32[ES_SEQ][ES_VOCAB]. */
static inline int run(const struct pack *p, const struct variant *v, float *out, struct engine_stats *st, struct err *e)
{
    struct engine_config c = config(p, v);
    struct engine *g = NULL;
    int r = engine_open(&c, &g, e);
    for (int at = 0; at < ES_SEQ && r == 0; at += v->chunk) {
        struct engine_token t[ES_SEQ];
        int n = ES_SEQ - at < v->chunk ? ES_SEQ - at : v->chunk;
        for (int i = 0; i < n; i++)
            t[i] = (struct engine_token){ ids[at + i], 1, at + i };
        if (v->variants && (r = engine_use_way(g, (int)rnd((uint32_t)v->variants), e)) == ERR_UNSUPPORTED)
            r = 0;
        r = r < 0 ? r : engine_forward(g, t, n, e);
        for (int i = 0; i < n && r == 0; i++)
            memcpy(out + (at + i) * ES_VOCAB, engine_logits(g, i, 0, e), ES_VOCAB * sizeof *out);
    }
    if (g && st)
        *st = engine_stats(g);
    engine_close(g);
    return r;
}

/* ids[n] as sequence 0, in chunks, every gate computed. */
static inline int run_exact(struct engine *g, const int32_t *tokens, int n, int chunk, struct err *e)
{
    int r = 0;
    for (int at = 0; at < n && r == 0; at += chunk) {
        struct engine_token t[ES_SEQ];
        int m = n - at < chunk ? n - at : chunk;
        for (int i = 0; i < m; i++)
            t[i] = (struct engine_token){ tokens[at + i], 0, at + i };
        r = engine_forward_exact(g, t, m, e);
    }
    return r;
}

static inline double worst_difference(const float *a, const double *b)
{
    double worst = 0;
    for (int i = 0; i < ES_SEQ * ES_VOCAB; i++)
        worst = fmax(worst, fabs((double)a[i] - b[i]));
    return worst;
}

static inline const struct io_backend *any_backend(void)
{
    static const struct io_backend *const all[] = { &io_pread_backend, &io_delay_backend, &io_uring_backend };
    const struct io_backend *b = all[rnd(3)];
    return b;
}

static inline struct variant any_variant(void)
{
    return (struct variant){ .threads = 1 + (int)rnd(3),
                             .chunk = 1 + (int)rnd(ES_SEQ),
                             .depth = 1 + (int)rnd(rnd(2) ? 3 : 20),
                             .lanes = 1 + (int)rnd(2),
                             .hot = rnd(3) ? 11 : (int)rnd(11),
                             .cold = rnd(3) ? 11 : (int)rnd(3) * 5,
                             .prefetch = (int)rnd(2),
                             .apart = rnd(4) == 0,
                             .empty = (int)rnd(2),
                             .dense = rnd(4) == 0,
                             .policy = (enum cache_policy)rnd(CACHE_POLICIES),
                             .coalesce = rnd(2) ? (int)rnd(5) : 0,
                             .backend = any_backend(),
                             .buffered = rnd(4) != 0,
                             .variants = rnd(3) ? 0 : 2 + (int)rnd(MOST_WAYS - 1),
                             .streamed = (int)rnd(1 << ES_LAYERS),
                             .buffers = (int)rnd(5) };
}

#endif
