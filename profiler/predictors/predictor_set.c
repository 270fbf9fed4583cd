/* Order of work: layer, block, input. What a layer needs in memory: the samples' vectors in float, its matrices in
 * float, statistics of d x d, the targets in bytes, and the trainer's state. A journal record is a layer. */
#include "profiler/predictors/predictor_set.h"

#include "common/base/file.h"
#include "common/base/journal.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/version.h"
#include "profiler/predictors/predictor.h"
#include "profiler/predictors/predictor_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, LEAST_TRAIN = 512, UNIT = 1000, SCAN_UNIT = 150, BLENDS = 4 }; /* of progress, per layer */
#define LEARNING_RATE 2e-3

static const double curve_recalls[] = { 0.80, 0.90, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999 };
enum { CURVE = sizeof curve_recalls / sizeof *curve_recalls };
_Static_assert(CURVE <= TRACE_PREDICT_POINTS, "curve");

/* Densities of training-free predictors: [input][rank]; what a scan keeps of a layer. */
struct scan {
    double density[PREDICT_INPUTS][PREDICTOR_SET_RANKS];
};

struct predictor_set {
    struct trace *trace;
    const struct trace_info *info;
    const struct model *model;
    struct predictor_set_options o;
    struct pool *pool;
    struct predictor_samples samples;
    int n_layers, *layer;        /* those to be made, ascending; below, a layer is its place here */
    int n_blocks, n_ranks, ranks[PREDICTOR_SET_RANKS];
    struct scan *scans;          /* [n_layers] */
    int *rank;                   /* [PREDICT_INPUTS][n_layers] */
    struct trace_predictor *list; /* by input, layer, block */
    int n_list;
    struct journal *journal;
    uint64_t *payload;           /* [n_list] offset of its weights in the journal's record of its layer */
    uint64_t resumed;
    struct progress progress;
};

/* ---- one block ---- */

struct block {
    struct predictor_set *p;
    int block, n_ff;
    struct predictor_block data;
    float *gate, *up;            /* up: NULL when the gate alone decides */
    float *bias[2];              /* theirs; NULL: none */
    float *edges;                /* of neurons with thresholds; NULL: none */
    float *shift;                /* of scores; NULL: none */
    uint8_t *held;               /* targets of held-out tokens */
    uint8_t *train;              /* of training tokens; NULL until needed */
};

static int n_layers(const struct predictor_set *p)
{
    return p->n_layers;
}

static uint32_t fc1_type(const struct predictor_set *p)
{
    return p->o.columns ? PREDICT_PICK : p->o.type;
}

/* Of a predictor of one block; at: the layer's place, or -1: of the widest. */
static uint64_t rank_bytes(const struct predictor_set *p, int at, int rank)
{
    const int n_ff = at < 0 ? p->info->h.n_ff : model_n_ff(&p->info->h, p->layer[at]);
    return predict_bytes(p->info->h.d_model, rank, n_ff, fc1_type(p), p->o.type,
                         predict_numbers(1, p->info->h.thresholds));
}

static struct predictor_data data_of(const struct block *b, int input)
{
    const struct model_hparams *h = &b->p->info->h;
    return (struct predictor_data){ .d = h->d_model, .n_ff = b->n_ff, .n = b->data.n, .n_train = b->data.n_train,
                                    .f = b->data.input[PREDICT_FFN], .x = b->data.input[input],
                                    .bias = { b->bias[0], b->bias[1] }, .edges = b->edges };
}

static int targets(const struct block *b, size_t first, size_t n, uint8_t **out, struct err *e)
{
    const struct model_hparams *h = &b->p->info->h;
    *out = malloc(n * (size_t)b->n_ff + 1);
    if (!*out)
        return err_set(e, ERR_NOMEM, "targets of %zu tokens", n);
    return predictor_targets(b->gate, b->up, b->bias, b->edges, h->d_model, b->n_ff,
                             b->data.input[PREDICT_FFN] + first * (size_t)h->d_model, n, b->p->pool, *out, e);
}

static int measure(const struct block *b, int input, const struct predict *p, struct predictor_counts *c, struct err *e)
{
    struct predictor_data d = data_of(b, input);
    return predictor_count(p, &d, d.n_train, d.n - d.n_train, b->held, b->p->pool, c, e);
}

/* Density at the wanted recall of weights as they would be stored. */
static int measure_rank(const struct block *b, int input, const struct predictor_base *base, int rank,
                        struct predictor_counts *c, struct err *e)
{
    struct predictor_weights w;
    struct predictor_packed q;
    int r = predictor_start(base, rank, &w, e);
    if (r < 0)
        return r;
    if ((r = predictor_quantise(&w, base, b->shift, b->p->o.type, &q, e)) == 0) {
        r = measure(b, input, &q.p, c, e);
        predictor_packed_free(&q);
    }
    predictor_weights_free(&w);
    return r;
}

/* ---- passes over a layer's blocks ---- */

struct pass;
typedef int block_fn(struct pass *s, struct block *b, int input, struct predictor_base *base, struct err *e);

struct pass {
    struct predictor_set *p;
    int at, layer;               /* its place, and its number in the model */
    int max_rank[PREDICT_INPUTS];
    block_fn *fn;
    double done, share;          /* of this layer, for progress */
    uint64_t progress_base, unit;
    struct predictor_counts *counts; /* scan: [PREDICT_INPUTS][n_ranks] */
    uint64_t written;            /* make: bytes of the record */
};

static void show(void *ctx, double part)
{
    struct pass *s = ctx;
    double done = s->done + s->share * part;
    progress_set(&s->p->progress, s->progress_base + (uint64_t)((double)s->unit * done));
}

static int n_inputs(const struct predictor_set *p)
{
    int n = 0;
    for (int i = 0; i < PREDICT_INPUTS; i++)
        n += p->o.inputs >> i & 1;
    return n;
}

static int one_block(struct pass *s, struct block *b, struct err *e)
{
    struct predictor_set *p = s->p;
    int r = 0;
    for (int i = 0; i < PREDICT_INPUTS && !r; i++) {
        if (!(p->o.inputs >> i & 1))
            continue;
        struct predictor_base *base = NULL;
        struct predictor_data d = data_of(b, i);
        r = (p->o.columns ? predictor_columns_new : predictor_base_new)(&d, b->gate, b->up, s->max_rank[i], p->pool,
                                                                        &base, e);
        if (!r && !b->held)
            r = targets(b, d.n_train, d.n - d.n_train, &b->held, e);
        if (!r)
            r = s->fn(s, b, i, base, e);
        predictor_base_free(base);
        s->done += s->share;
        show(s, 0);
        if (!r && file_interrupted())
            r = err_set(e, ERR_INTR, "interrupted");
    }
    return r;
}

static int read_norm(const struct predictor_set *p, enum model_role role, int layer, float *out, struct err *e)
{
    const struct gguf_tensor *t = p->model->layer[layer][role];
    return gguf_read(p->model->gguf, t, 0, out, t->bytes, e); /* F32 of d_model elements: model_open saw to it */
}

/* A layer's matrices, read block by block. */
struct tensors {
    struct predictor_tensor gate, up, down;
    int two, loss_weighting;              /* up decides as well; up and down say what a miss costs */
};

static int read_shift(const struct pass *s, struct block *b, struct tensors *t, struct err *e)
{
    const struct predictor_set *p = s->p;
    size_t n_ff = (size_t)b->n_ff, size = n_ff * (size_t)p->info->h.d_model * sizeof(float);
    const struct predictor_data d = data_of(b, PREDICT_FFN);
    float *up = t->two ? b->up : malloc(size), *down = malloc(size);
    b->shift = malloc(n_ff * sizeof *b->shift);
    int r = up && down && b->shift ? 0 : err_set(e, ERR_NOMEM, "matrices of %zu neurons", n_ff);
    if (!r && (t->two || (r = predictor_tensor_next(&t->up, p->n_blocks, up, e)) == 0) &&
        (r = predictor_tensor_next(&t->down, p->n_blocks, down, e)) == 0)
        r = predictor_shift(&d, b->gate, up, down, p->info->h.down_by_neuron, p->o.loss_weighting, p->pool, b->shift, e);
    if (!t->two)
        free(up);
    free(down);
    return r;
}

static int all_blocks(struct pass *s, const struct predictor_layer *l, struct tensors *t, struct err *e)
{
    struct predictor_set *p = s->p;
    const int n_ff = model_n_ff(&p->info->h, s->layer);
    size_t size = (size_t)n_ff * (size_t)p->info->h.d_model * sizeof(float);
    int r = 0, stand_ins = 0;
    s->share = 1.0 / (p->n_blocks * n_inputs(p));
    for (int k = 0; k < p->n_blocks && !r; k++) {
        struct block b = {
            .p = p, .block = k, .n_ff = n_ff, .gate = malloc(size), .up = t->two ? malloc(size) : NULL
        };
        if (!b.gate || (t->two && !b.up))
            r = err_set(e, ERR_NOMEM, "matrices of %d neurons", n_ff);
        if (!r && (r = predictor_tensor_next(&t->gate, p->n_blocks, b.gate, e)) == 0 &&
            (!t->two || (r = predictor_tensor_next(&t->up, p->n_blocks, b.up, e)) == 0) &&
            (r = predictor_biases(p->model, s->layer, k, b.bias, e)) == 0 &&
            (r = predictor_layer_edges(p->model, s->layer, &b.edges, e)) == 0 &&
            (r = predictor_block_gather(&p->samples, l, k, LEAST_TRAIN, &b.data, e)) == 0 &&
            (!t->loss_weighting || (r = read_shift(s, &b, t, e)) == 0)) {
            stand_ins += b.data.stand_in;
            r = one_block(s, &b, e);
        }
        predictor_block_free(&b.data);
        free(b.gate), free(b.up), free(b.bias[0]), free(b.bias[1]), free(b.edges), free(b.shift), free(b.held), free(b.train);
    }
    if (stand_ins && !s->counts && !r)
        log_info("layer %d: %d of %d experts were used by few of the sampled tokens; tokens of the whole layer stand in for "
                 "theirs (a trace with more --samples helps)", s->layer, stand_ins, p->n_blocks);
    return r;
}

static int run_pass(struct pass *s, struct err *e)
{
    struct predictor_set *p = s->p;
    const struct model *m = p->model;
    size_t d = (size_t)p->info->h.d_model;
    float *norms = malloc(2 * d * sizeof *norms);
    struct predictor_layer l = { 0 };
    struct tensors t = { .two = p->info->h.act == MODEL_ACT_DRELU, .loss_weighting = p->o.loss_weighting > 0 };
    int r = norms ? 0 : err_set(e, ERR_NOMEM, "norms");
    if (!r && (r = read_norm(p, MODEL_ATTN_NORM, s->layer, norms, e)) == 0 &&
        (r = read_norm(p, MODEL_FFN_NORM, s->layer, norms + d, e)) == 0 &&
        (r = predictor_layer_load(&p->samples, s->layer, p->o.inputs, norms, norms + d, &l, e)) == 0 &&
        (r = predictor_tensor_open(m->gguf, m->layer[s->layer][MODEL_FFN_GATE], &t.gate, e)) == 0 &&
        ((!t.two && !t.loss_weighting) ||
         (r = predictor_tensor_open(m->gguf, m->layer[s->layer][MODEL_FFN_UP], &t.up, e)) == 0) &&
        (!t.loss_weighting || (r = predictor_tensor_open(m->gguf, m->layer[s->layer][MODEL_FFN_DOWN], &t.down, e)) == 0))
        r = all_blocks(s, &l, &t, e);
    predictor_layer_free(&l);
    free(norms);
    return r;
}

/* ---- 1. scan ---- */

static int scan_block(struct pass *s, struct block *b, int input, struct predictor_base *base, struct err *e)
{
    const struct predictor_set *p = s->p;
    int r = 0;
    for (int k = 0; k < p->n_ranks && !r; k++)
        r = measure_rank(b, input, base, p->ranks[k], &s->counts[input * p->n_ranks + k], e);
    return r;
}

static int scan_layer(struct predictor_set *p, int layer, struct scan *out, struct err *e)
{
    int n = PREDICT_INPUTS * p->n_ranks, r = 0;
    struct pass s = { .p = p,
                      .at = layer,
                      .layer = p->layer[layer],
                      .fn = scan_block,
                      .progress_base = (uint64_t)layer * SCAN_UNIT,
                      .unit = SCAN_UNIT,
                      .counts = calloc((size_t)n, sizeof *s.counts) };
    if (!s.counts)
        return err_set(e, ERR_NOMEM, "scores");
    for (int i = 0; i < PREDICT_INPUTS; i++)
        s.max_rank[i] = p->ranks[p->n_ranks - 1];
    for (int i = 0; i < n && !r; i++)
        r = predictor_counts_new(&s.counts[i], e);
    if (!r)
        r = run_pass(&s, e);
    *out = (struct scan){ 0 };
    for (int i = 0; i < n; i++) {
        if (!r)
            out->density[i / p->n_ranks][i % p->n_ranks] = predictor_point_of(&s.counts[i], p->o.recall).density;
        predictor_counts_free(&s.counts[i]);
    }
    free(s.counts);
    return r;
}

/* ---- 2. allocate ---- */

struct step {
    int layer, to;
    double gain; /* density per byte */
};

static struct step best_step(const struct predictor_set *p, int input, const int *at, uint64_t left)
{
    struct step best = { -1, 0, 0 };
    for (int l = 0; l < n_layers(p); l++) {
        const double *d = p->scans[l].density[input];
        uint64_t have = rank_bytes(p, l, p->ranks[at[l]]);
        for (int k = at[l] + 1; k < p->n_ranks; k++) {
            uint64_t more = (rank_bytes(p, l, p->ranks[k]) - have) * (uint64_t)p->n_blocks;
            double gain = (d[at[l]] - d[k]) / (double)more;
            if (more <= left && gain > best.gain)
                best = (struct step){ l, k, gain };
        }
    }
    return best;
}

static int allocate(struct predictor_set *p, int input, struct err *e)
{
    int n = n_layers(p), *at = calloc((size_t)n, sizeof *at);
    uint64_t least = 0, left = p->o.budget_bytes;
    if (!at)
        return err_set(e, ERR_NOMEM, "ranks of %d layers", n);
    for (int l = 0; l < n; l++)
        least += rank_bytes(p, l, p->ranks[0]) * (uint64_t)p->n_blocks;
    if (least > left) {
        free(at);
        return err_set(
            e, ERR_INFEASIBLE,
            "--budget allows %llu bytes; predictors of the smallest rank, %d, take %llu (%.2f %% of "
            "the FFN's bytes)",
            (unsigned long long)left, p->ranks[0], (unsigned long long)least,
            100 * (double)least / (double)predictor_set_ffn_bytes(p->info));
    }
    left -= least;
    for (struct step s; (s = best_step(p, input, at, left)).layer >= 0;) {
        left -= (rank_bytes(p, s.layer, p->ranks[s.to]) - rank_bytes(p, s.layer, p->ranks[at[s.layer]])) * (uint64_t)p->n_blocks;
        at[s.layer] = s.to;
    }
    for (int l = 0; l < n; l++)
        p->rank[input * n + l] = p->ranks[at[l]];
    free(at);
    return 0;
}

/* ---- 3. make ---- */

static struct trace_predict_point to_point(struct predictor_point x)
{
    return (struct trace_predict_point){ (float)x.recall, (float)x.threshold, (float)x.density, (float)x.precision };
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a + 0x9e3779b97f4a7c15u * (b + 1);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return z ^ z >> 27;
}

static int train(struct pass *s, struct block *b, int input, struct predictor_base *base, double true_density,
                 struct predictor_weights *w, struct err *e)
{
    struct predictor_set *p = s->p;
    struct predictor_data d = data_of(b, input);
    /* Where one neuron in w is active, the boundary lies where doubt costs both sides alike. */
    double weight = true_density > 0 ? 0.8 / true_density : 32;
    uint64_t seed = mix(mix(mix(p->o.seed, (uint64_t)s->layer), (uint64_t)b->block), (uint64_t)input);
    const struct predictor_options o = { .epochs = p->o.epochs, .batch = BATCH, .lr = LEARNING_RATE, .seed = seed,
                                         .weight = weight < 2    ? 2
                                                   : weight > 32 ? 32
                                                                 : weight };
    int r = b->train ? 0 : targets(b, 0, d.n_train, &b->train, e);
    return r < 0 ? r : predictor_train(w, base, &d, b->train, &o, p->pool, show, s, e);
}

/* A candidate, rounded and measured. */
struct candidate {
    struct predictor_packed q;
    struct predictor_counts c;
    double density;
};

static void candidate_free(struct candidate *x)
{
    predictor_packed_free(&x->q);
    predictor_counts_free(&x->c);
}

static int try_out(const struct block *b, int input, const struct predictor_base *base,
                   const struct predictor_weights *w, struct candidate *out, struct err *e)
{
    struct candidate x = { .q = { .fc1 = NULL } };
    int r = predictor_counts_new(&x.c, e);
    if (!r && (r = predictor_quantise(w, base, b->shift, b->p->o.type, &x.q, e)) == 0 &&
        (r = measure(b, input, &x.q.p, &x.c, e)) == 0)
        x.density = predictor_point_of(&x.c, b->p->o.recall).density;
    if (r < 0)
        candidate_free(&x);
    else
        *out = x;
    return r;
}

/* Few samples are partly learnt by heart. On the way from the start to the trained weights, the point that does best
 * on held-out tokens is taken. *best holds the start. */
static int improve(struct pass *s, struct block *b, int input, struct predictor_base *base,
                   const struct predictor_weights *start, struct predictor_weights *trained, struct candidate *best,
                   struct err *e)
{
    double true_density = (double)best->c.n_active / (double)(best->c.n_active + best->c.n_inactive);
    int r = train(s, b, input, base, true_density, trained, e);
    for (int k = 1; k <= BLENDS && !r; k++) {
        struct predictor_weights w = { 0 };
        struct candidate x;
        if ((r = predictor_blend(start, trained, (float)k / BLENDS, &w, e)) == 0 &&
            (r = try_out(b, input, base, &w, &x, e)) == 0) {
            struct candidate worse = x.density < best->density ? *best : x;
            if (x.density < best->density)
                *best = x;
            candidate_free(&worse);
        }
        predictor_weights_free(&w);
    }
    return r;
}

static int figures(struct pass *s, const struct block *b, const struct predictor_counts *c,
                   struct trace_predictor *x, struct err *e)
{
    struct predictor_set *p = s->p;
    uint64_t *counts = malloc((size_t)p->info->h.n_ff * sizeof *counts);
    int r = counts ? trace_counts(p->trace, s->layer, b->block, counts, NULL, e) : err_set(e, ERR_NOMEM, "counts");
    double hot = 0;
    if (!r && (hot = predictor_hot_density(counts, b->n_ff, b->held, b->data.n - b->data.n_train,
                                           p->o.recall, e)) < 0)
        r = ERR_NOMEM;
    free(counts);
    x->hot_density = hot;
    x->at = to_point(predictor_point_of(c, p->o.recall));
    x->n_points = CURVE;
    for (int i = 0; i < CURVE; i++)
        x->curve[i] = to_point(predictor_point_of(c, curve_recalls[i]));
    x->n_train = b->data.n_train, x->n_held = b->data.n - b->data.n_train;
    return r;
}

/* Its place in the list and in the journal's record. */
static int index_of(const struct predictor_set *p, int input, int layer, int block)
{
    int before = 0;
    for (int i = 0; i < input; i++)
        before += (int)(p->o.inputs >> i & 1);
    return (before * n_layers(p) + layer) * p->n_blocks + block;
}

static uint64_t record_bytes(const struct predictor_set *p, int layer)
{
    uint64_t n = 0;
    for (int i = 0; i < PREDICT_INPUTS; i++)
        if (p->o.inputs >> i & 1)
            n += (sizeof(struct trace_predictor) + rank_bytes(p, layer, p->rank[i * n_layers(p) + layer])) *
                 (uint64_t)p->n_blocks;
    return n;
}

static size_t side_bytes(const struct predictor_set *p, const struct trace_predictor *x)
{
    return (size_t)model_n_ff(&p->info->h, x->layer) * (size_t)predict_numbers(1, x->two_sided) * sizeof(float);
}

static int record(struct pass *s, const struct predictor_packed *q, const struct trace_predictor *x, struct err *e)
{
    struct predictor_set *p = s->p;
    int r;
    if (!s->written && (r = journal_begin(p->journal, (uint64_t)((p->n_ranks ? n_layers(p) : 0) + s->at), 1,
                                          record_bytes(p, s->at), e)) < 0)
        return r;
    int i = index_of(p, x->input, s->at, x->block);
    p->list[i] = *x, p->payload[i] = s->written + sizeof *x;
    s->written += sizeof *x + x->bytes;
    if ((r = journal_write(p->journal, x, sizeof *x, e)) < 0 ||
        (r = journal_write(p->journal, q->fc1, q->p.row1 * (size_t)x->rank, e)) < 0 ||
        (r = journal_write(p->journal, q->fc2, q->p.row2 * (size_t)q->p.n_ff, e)) < 0)
        return r;
    return journal_write(p->journal, q->bias, side_bytes(p, x), e);
}

static int make_block(struct pass *s, struct block *b, int input, struct predictor_base *base, struct err *e)
{
    struct predictor_set *p = s->p;
    struct trace_predictor x = { .input = (enum predict_input)input,
                                 .layer = s->layer,
                                 .block = b->block,
                                 .has_bias = 1,
                                 .two_sided = p->info->h.thresholds != 0,
                                 .type1 = fc1_type(p),
                                 .type2 = p->o.type,
                                 .rank = p->rank[input * n_layers(p) + s->at] };
    struct predictor_weights start = { 0 }, trained = { 0 };
    struct candidate best = { .q = { .fc1 = NULL } };
    x.bytes = rank_bytes(p, s->at, x.rank);
    int r;
    if ((r = predictor_start(base, x.rank, &start, e)) < 0 || (r = try_out(b, input, base, &start, &best, e)) < 0)
        goto out;
    x.true_density = (double)best.c.n_active / (double)(best.c.n_active + best.c.n_inactive);
    x.start_density = p->o.epochs ? best.density : 0;
    if (p->o.epochs && ((r = predictor_start(base, x.rank, &trained, e)) < 0 ||
                        (r = improve(s, b, input, base, &start, &trained, &best, e)) < 0))
        goto out;
    if ((r = figures(s, b, &best.c, &x, e)) == 0)
        r = record(s, &best.q, &x, e);
out:
    predictor_weights_free(&start);
    predictor_weights_free(&trained);
    candidate_free(&best);
    return r;
}

/* Progress when so many layers are made. */
static uint64_t made(const struct predictor_set *p, int layers)
{
    return (p->n_ranks ? (uint64_t)n_layers(p) * SCAN_UNIT : 0) + (uint64_t)layers * UNIT;
}

static int make_layer(struct predictor_set *p, int layer, struct err *e)
{
    struct pass s = { .p = p, .at = layer, .layer = p->layer[layer], .fn = make_block, .unit = UNIT,
                      .progress_base = made(p, layer) };
    for (int i = 0; i < PREDICT_INPUTS; i++)
        s.max_rank[i] = p->rank[i * n_layers(p) + layer];
    int r = run_pass(&s, e);
    return r < 0 ? r : journal_end(p->journal, e);
}

/* ---- the run ---- */

static struct hash128 config_hash(const struct predictor_set *p)
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    const struct predictor_set_options *o = &p->o;
    char text[256];
    snprintf(text, sizeof text, "predictors %s %.17g %.17g %u %llu %d %d %d %llu %llu %u %s", THERMO_VERSION,
             o->recall, o->loss_weighting, o->inputs, (unsigned long long)o->budget_bytes, o->rank, o->epochs, o->columns,
             (unsigned long long)o->seed, (unsigned long long)o->samples, o->type, kernels->name);
    hash_update_str(h, text);
    const struct hash128 ids[2] = { p->info->model_hash, p->info->content_hash };
    for (int i = 0; i < 2; i++)
        hash_update_u64(h, ids[i].lo), hash_update_u64(h, ids[i].hi);
    hash_update_u64(h, p->info->n_samples);
    for (int l = 0; l < n_layers(p); l++)
        hash_update_u64(h, (uint64_t)p->layer[l]);
    return hash_final128(h);
}

/* Is x what this run makes of the layer? All of it that decides where something is. */
static int is_made_here(const struct predictor_set *p, const struct trace_predictor *x, int layer)
{
    if ((unsigned)x->input >= PREDICT_INPUTS || !(p->o.inputs >> (unsigned)x->input & 1) || x->block < 0 || x->block >= p->n_blocks)
        return 0;
    int rank = p->rank[(int)x->input * n_layers(p) + layer];
    return x->layer == p->layer[layer] && x->rank == rank && x->bytes == rank_bytes(p, layer, rank) && x->type1 == fc1_type(p) &&
           x->type2 == p->o.type && x->has_bias == 1 && x->two_sided == (p->info->h.thresholds != 0) && x->n_points == CURVE;
}

/* The state's records have the sizes and predictors that this run gives them, unless the file was made up. */
static int reload_layer(struct predictor_set *p, const struct journal_record *r, int layer, struct err *e)
{
    uint64_t at = 0;
    if (r->n != 1 || r->bytes != record_bytes(p, layer))
        return err_set(e, ERR_FORMAT, "the state of the interrupted run: layer %d has %llu bytes instead of %llu; remove the file to begin "
                       "anew", p->layer[layer], (unsigned long long)r->bytes, (unsigned long long)record_bytes(p, layer));
    for (int k = 0; k < p->n_blocks * n_inputs(p); k++) {
        struct trace_predictor x;
        int err = journal_read(p->journal, r, at, &x, sizeof x, e);
        if (err < 0)
            return err;
        int i = is_made_here(p, &x, layer) ? index_of(p, x.input, layer, x.block) : -1;
        if (i < 0 || p->payload[i])
            return err_set(e, ERR_FORMAT, "the state of the interrupted run holds a predictor that is not of this run; remove the file to "
                           "begin anew");
        p->list[i] = x;
        p->payload[i] = at + sizeof x;
        at += sizeof x + x.bytes;
    }
    return 0;
}

static int scan_all(struct predictor_set *p, struct err *e)
{
    int r = 0;
    for (int l = 0; l < n_layers(p) && !r; l++) {
        size_t n;
        const struct journal_record *records = journal_records(p->journal, &n);
        if ((size_t)l < n && (records[l].n != 1 || records[l].bytes != sizeof p->scans[l])) {
            r = err_set(e, ERR_FORMAT, "the state of the interrupted run holds a record that is not of this run; remove the file to begin "
                        "anew");
        } else if ((size_t)l < n) {
            r = journal_read(p->journal, &records[l], 0, &p->scans[l], sizeof p->scans[l], e);
        } else if ((r = scan_layer(p, l, &p->scans[l], e)) == 0 &&
                   (r = journal_begin(p->journal, (uint64_t)l, 1, sizeof p->scans[l], e)) == 0 &&
                   (r = journal_write(p->journal, &p->scans[l], sizeof p->scans[l], e)) == 0) {
            r = journal_end(p->journal, e);
        }
    }
    for (int i = 0; i < PREDICT_INPUTS && !r; i++)
        if (p->o.inputs >> i & 1)
            r = allocate(p, i, e);
    return r;
}

int predictor_set_run(struct predictor_set *p, const char *state, int resume, struct err *e)
{
    int n = n_layers(p), r = journal_open(state, config_hash(p), "model, trace and all options but --threads", resume, &p->journal, e);
    if (r < 0)
        return r;
    progress_init(&p->progress, "predictors", "steps", made(p, n));
    if (p->n_ranks)
        r = scan_all(p, e);
    for (int i = 0; i < PREDICT_INPUTS * n && !p->n_ranks; i++)
        p->rank[i] = p->o.rank;
    for (int l = 0; l < n && !r; l++) {
        size_t have, at = (size_t)((p->n_ranks ? n : 0) + l);
        const struct journal_record *records = journal_records(p->journal, &have);
        if (at < have)
            r = reload_layer(p, &records[at], l, e), p->resumed++;
        else
            r = make_layer(p, l, e);
        if (r == 0)
            log_debug("layer %d: %s", l, at < have ? "its predictors were there already" : "its predictors are made");
        progress_set(&p->progress, made(p, l + 1));
    }
    progress_done(&p->progress);
    return r;
}

/* ---- 4. save ---- */

/* What is written: made ones and kept ones, by input, layer, block. */
struct merged {
    const struct trace_predictor *kept; /* NULL: it is made */
    int made;                    /* its place in the list of those */
};

struct fetch {
    struct predictor_set *p;
    struct trace_predictors *old;
    struct merged *list;
    int n;
    unsigned unchanged;          /* inputs of which nothing was made */
    uint8_t *buf;
};

static int fetch(void *ctx, int k, struct trace_predictor *x, const void **fc1, const void **fc2,
                 const float **bias, struct err *e)
{
    struct fetch *f = ctx;
    struct predictor_set *p = f->p;
    size_t n;
    int i = f->list[k].made;
    *x = f->list[k].kept ? *f->list[k].kept : p->list[i];
    size_t row1 = predict_row1_bytes(x->type1, p->info->h.d_model), row2 = predict_row2_bytes(x->type2, x->rank);
    size_t a = row1 * (size_t)x->rank, b = row2 * (size_t)model_n_ff(&p->info->h, x->layer), c = side_bytes(p, x);
    free(f->buf);
    if (!(f->buf = malloc(a + b + c + 64)))
        return err_set(e, ERR_NOMEM, "a predictor");
    uint8_t *bias_at = f->buf + ((a + b + 15) & ~(size_t)15);
    *fc1 = f->buf, *fc2 = f->buf + a, *bias = (const float *)(const void *)bias_at;
    if (f->list[k].kept)
        return trace_predictors_read(f->old, f->list[k].kept, f->buf, f->buf + a, (float *)(void *)bias_at, e);
    int layer = i / p->n_blocks % n_layers(p);
    const struct journal_record *rec =
        &journal_records(p->journal, &n)[(size_t)((p->n_ranks ? n_layers(p) : 0) + layer)];
    int r = journal_read(p->journal, rec, p->payload[i], f->buf, a + b, e);
    return r < 0 ? r : journal_read(p->journal, rec, p->payload[i] + a + b, bias_at, c, e);
}

static int before(const struct trace_predictor *a, const struct trace_predictor *b)
{
    return a->input != b->input ? a->input < b->input : a->layer != b->layer ? a->layer < b->layer : a->block < b->block;
}

/* Those of the trace that none was made in place of. Imported ones all give way: they are of another kind, and the trace
 * has one word for how its predictors were made. */
static int merge(struct fetch *f, struct err *e)
{
    const struct predictor_set *p = f->p;
    const struct trace_predictor *old = NULL;
    int n_old = 0, i = 0, j = 0, r = trace_predictors_open(p->trace, &f->old, e);
    if (r < 0)
        return r;
    if (f->old && strcmp(trace_predictors_info(f->old)->method, "imported"))
        old = trace_predictors_list(f->old, &n_old);
    if (!(f->list = calloc((size_t)(p->n_list + n_old), sizeof *f->list)))
        return err_set(e, ERR_NOMEM, "%d predictors", p->n_list + n_old);
    while (i < p->n_list || j < n_old) {
        if (j < n_old && (i == p->n_list || before(&old[j], &p->list[i]))) {
            f->list[f->n++] = (struct merged){ &old[j++], 0 };
            continue;
        }
        j += j < n_old && !before(&p->list[i], &old[j]);
        f->list[f->n++] = (struct merged){ NULL, i++ };
    }
    f->unchanged = n_old ? ~p->o.inputs : 0;
    if (f->n > p->n_list)
        log_info("%d predictors of other inputs or layers stay as they are", f->n - p->n_list);
    return 0;
}

int predictor_set_save(struct predictor_set *p, const char *trace_path, const char *out, const char *tier, struct err *e)
{
    struct trace_predict_info i = { .recall = p->o.recall, .loss_weighting = p->o.loss_weighting, .seed = p->o.seed,
                                    .epochs = (uint64_t)p->o.epochs, .model_hash = p->info->model_hash };
    struct fetch f = { .p = p };
    snprintf(i.tool, sizeof i.tool, "thermo-profile %s", THERMO_VERSION);
    snprintf(i.tier, sizeof i.tier, "%s", tier);
    snprintf(i.method, sizeof i.method, "%s", p->o.epochs ? "trained" : p->o.columns ? "columns" : "svd");
    int r = merge(&f, e);
    if (!r)
        r = trace_predictors_save(trace_path, out, &i, f.unchanged, f.n, fetch, &f, e);
    trace_predictors_close(f.old);
    free(f.list), free(f.buf);
    return r;
}

void predictor_set_finish(struct predictor_set *p)
{
    journal_close(p->journal, 1);
    p->journal = NULL;
}

uint64_t predictor_set_resumed_layers(const struct predictor_set *p)
{
    return p->resumed;
}

/* ---- making and sizes ---- */

uint64_t predictor_set_ffn_bytes(const struct trace_info *t)
{
    uint64_t n = 0;
    for (int i = 0; i < t->n_tensors; i++)
        if (model_role_is_ffn(t->tensors[i].role))
            n += t->tensors[i].bytes;
    return n;
}

/* Ranks worth trying: steps of a block, then of an eighth, up to four times an even share of the budget. */
static void choose_ranks(struct predictor_set *p)
{
    const struct model_hparams *h = &p->info->h;
    int block = quant_traits(p->o.type)->block_elems, step = block > 16 ? block : 16;
    uint64_t share = p->o.budget_bytes / ((uint64_t)n_layers(p) * (uint64_t)p->n_blocks);
    for (int k = step; k <= h->d_model && p->n_ranks < PREDICTOR_SET_RANKS;
         k += k < 8 * step ? step : k / 8 / step * step) {
        if (p->n_ranks && rank_bytes(p, -1, k) > 4 * share)
            break;
        p->ranks[p->n_ranks++] = k;
    }
}

int predictor_set_new(struct trace *t, const struct model *m, const struct predictor_set_options *o, struct pool *pool,
                   struct predictor_set **out, struct err *e)
{
    struct predictor_set *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_NOMEM, "predictors");
    p->trace = t, p->info = trace_info(t), p->model = m, p->o = *o, p->pool = pool;
    p->n_blocks = model_ffn_blocks(&p->info->h);
    const struct model_hparams *h = &p->info->h;
    int r = 0, n = 0;
    if (!(p->layer = calloc((size_t)h->n_layers, sizeof *p->layer))) {
        free(p);
        return err_set(e, ERR_NOMEM, "%d layers", h->n_layers);
    }
    for (int l = 0; l < h->n_layers; l++)
        if (!o->layers || o->layers[l])
            p->layer[n++] = l;
    p->n_layers = n, p->o.layers = NULL;
    if (h->thresholds && o->loss_weighting > 0)
        r = err_set(e, ERR_USAGE, "--loss-weighting: '%s': its neurons have thresholds (trace --silence), at which each "
                    "contributes the same", p->info->path);
    else if (!h->thresholds && h->act == MODEL_ACT_SILU)
        r = err_set(e, ERR_UNSUPPORTED,
                    "'%s': with activation silu every neuron is active: there is nothing to predict (trace --silence makes "
                    "thresholds, below which neurons are silent)", p->info->path);
    else if (m->h.layer_norm || m->h.no_pre_norms)
        r = err_set(e, ERR_UNSUPPORTED, "'%s': predictors see what RMSNorm gives, and the norms of the architecture '%s' are others",
                    p->info->path, m->h.arch);
    else if (model_has_alone(h))
        r = err_set(e, ERR_UNSUPPORTED, "'%s': predictors see what enters a layer before attention, and the architecture '%s' has blocks "
                    "of one sublayer", p->info->path, m->h.arch);
    else if (o->rank && (!rank_bytes(p, -1, o->rank) || o->rank > h->d_model))
        r = err_set(e, ERR_USAGE,
                    "--rank %d: a multiple of %d up to the model's width %d is needed for type %s", o->rank,
                    quant_traits(o->type)->block_elems, h->d_model, quant_traits(o->type)->name);
    else if (o->columns && o->rank % 32)
        r = err_set(e, ERR_USAGE, "--rank %d: --method select takes inputs in groups of 32: a multiple of 32 is needed", o->rank);
    else if (!rank_bytes(p, -1, 32))
        r = err_set(e, ERR_UNSUPPORTED, "'%s': rows of %d elements cannot be of type %s", p->info->path, h->d_model,
                    quant_traits(o->type)->name);
    if (!r && !o->rank)
        choose_ranks(p);
    if (!r)
        r = predictor_samples_open(t, o->samples, 0, &p->samples, e);
    p->n_list = n * p->n_blocks * n_inputs(p);
    p->scans = calloc((size_t)n, sizeof *p->scans);
    p->rank = calloc((size_t)n * PREDICT_INPUTS, sizeof *p->rank);
    p->list = calloc((size_t)p->n_list, sizeof *p->list);
    p->payload = calloc((size_t)p->n_list, sizeof *p->payload);
    if (!r && (!p->scans || !p->rank || !p->list || !p->payload))
        r = err_set(e, ERR_NOMEM, "%d predictors", p->n_list);
    if (r < 0)
        predictor_set_free(p);
    else
        *out = p;
    return r;
}

void predictor_set_free(struct predictor_set *p)
{
    if (!p)
        return;
    journal_close(p->journal, 0);
    predictor_samples_close(&p->samples);
    free(p->layer), free(p->scans), free(p->rank), free(p->list), free(p->payload);
    free(p);
}

uint64_t predictor_set_memory(const struct predictor_set *p)
{
    const struct model_hparams *h = &p->info->h;
    uint64_t d = (uint64_t)h->d_model, f = (uint64_t)h->n_ff, n = p->samples.n;
    uint64_t k = (uint64_t)(p->o.rank ? p->o.rank : p->ranks[p->n_ranks - 1]), w = (uint64_t)pool_threads(p->pool);
    uint64_t inputs = (uint64_t)n_inputs(p) + !(p->o.inputs >> PREDICT_FFN & 1);
    uint64_t samples = n * d * 4 * inputs * (p->n_blocks > 1 ? 2 : 1) + n * f;
    uint64_t matrices = f * d * 4 * ((h->act == MODEL_ACT_DRELU ? 3 : 2) + (p->o.loss_weighting > 0 ? 2 : 0)) + d * d * 4 * 10;
    uint64_t training = p->o.epochs ? (d + f) * k * 4 * 7 + (f / 256 + 3) * BATCH * k * 4 : 0;
    uint64_t counts = (uint64_t)p->n_ranks * PREDICT_INPUTS * (1u << 20) + w * ((2u << 20) + 64 * f * 4);
    return samples + matrices + training + (d + f) * k * 8 + counts + gguf_known_bytes(p->model->gguf) + (32u << 20);
}
