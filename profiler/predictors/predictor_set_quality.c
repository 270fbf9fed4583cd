/* The model runs the same text once per variant: exactly, and with the neurons that the predictors of one input predict
 * at one recall. All variants run side by side (compare.h):
 *
 *   tokens of a run:  exact | ffn 0.90 | ffn 0.95 | ... | block 0.90 | ... | layers 0 | layers 1 ...    each: the same pieces of text
 *
 * The pass hands every token's vectors here before its neurons; the one that the token's variant predicts from is
 * kept, and when the neurons come those that the predictors do not predict become 0. The last variants do so in a few layers
 * alone, at the least recall: what each of these costs the model. An input's variant of the highest recall, which is next to
 * exact, shows what energy would be lost at others. */
#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/offline/forward.h"
#include "profiler/predictors/predictor_samples.h"
#include "profiler/predictors/predictor_set.h"
#include "profiler/trace/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double targets[] = { 0.90, 0.95, 0.98, 0.99, 0.995, 0.999 };
static const float loss_targets[] = { 0.80f, 0.90f, 0.95f, 0.97f, 0.98f, 0.99f, 0.995f, 0.998f, 0.999f };
enum { TARGETS = sizeof targets / sizeof *targets, GROUPS = 8, VARIANTS = 1 + PREDICT_INPUTS * TARGETS + GROUPS, TILE = FORWARD_TILE };
enum { LOSSES = sizeof loss_targets / sizeof *loss_targets, LOSS_OF_GROUPS = 1, PARTS = TRACE_PREDICT_PARTS };
enum { LEAST = 16, LEAST_PIECE = 64, AUTO_LEAST = 128, AUTO_MOST = 4096 };
#define AUTO_ELEMENTS 1.9e12        /* weights times tokens: 256 tokens of a 7B model */
#define RUN_BYTES     (256u << 20)  /* residual streams and inputs of a run */
_Static_assert(PREDICT_INPUTS * TARGETS <= TRACE_PREDICT_QUALITY && LOSSES <= TRACE_PREDICT_POINTS, "rows");

/* A stretch of text: tokens [first, first + n), of which those from `skip` on are compared. */
struct piece {
    uint64_t first;
    uint32_t n, skip;
};

struct variant {                 /* 0: exact */
    enum predict_input input;
    int target;                  /* of targets */
    int group;                   /* of layers, which alone leave neurons out; -1: all do */
};

/* What the neurons did, added up by each worker for itself. */
struct tally {
    uint64_t all, active, predicted, hit;
};

/* A block's predictor with its weights; weights NULL: there is none. */
struct loaded {
    struct predict p;
    void *weights;
    float threshold[TARGETS], loss_threshold[LOSSES];
};

struct quality {
    struct trace_predictors *p;
    const struct trace_info *info;
    struct pool *pool;
    struct variant v[VARIANTS];
    int n_rows, n_groups, n_variants, n_blocks, current; /* current: the layer that is computed */
    struct loaded *layer;        /* [PREDICT_INPUTS][n_blocks] of the layer that is computed */
    size_t run_tokens;           /* of one variant */
    float *in;                   /* [n_variants * run_tokens][d_model] */
    struct tally *tally;         /* [workers][VARIANTS] */
    uint8_t *x, *hidden;         /* of each worker: [TILE] tokens */
    float *h, *scores;
    size_t x_bytes, hidden_bytes, rank;
    struct compare compare;
    struct progress progress;
    /* of losses */
    float *weight;               /* [n_layers][n_blocks][n_ff]: |column of Down|^2 over the layer's largest, */
    double *largest;             /* [n_layers] */
    uint8_t *part;               /* [n_layers][n_blocks][n_ff] */
    double *energy;              /* [workers][PREDICT_INPUTS][n_layers][LOSSES][PARTS], in units of the largest over UNIT */
    uint64_t tokens;             /* that the pass had of a variant */
};

/* Energies are summed in whole units, so that sums do not depend on who adds what first. */
#define UNIT 16777216.0

/* ---- text ---- */

static int add_piece(struct piece **list, size_t *n, struct piece p, struct err *e)
{
    if (!(*n & (*n - 1))) {
        struct piece *more = realloc(*list, (*n ? 2 * *n : 1) * sizeof *more);
        if (!more)
            return err_set(e, ERR_NOMEM, "pieces of text");
        *list = more;
    }
    (*list)[(*n)++] = p;
    return 0;
}

static uint64_t taken(struct trace *t, int all, uint64_t sequence, uint64_t length)
{
    const uint64_t *starts = trace_sequence_starts(t);
    uint64_t len = starts[sequence + 1] - starts[sequence];
    return !all && !predictor_samples_held(t, sequence, starts[sequence]) ? 0 : len < length ? len : length;
}

/* Beginnings of sequences, as long as it takes to have enough tokens. */
static int whole_sequences(struct trace *t, int all, uint64_t want, struct piece **list, size_t *n, struct err *e)
{
    const struct trace_info *i = trace_info(t);
    uint64_t length = LEAST_PIECE, sum = 0, before = 1;
    for (; sum < want && sum != before; length *= 2) {
        before = sum, sum = 0;
        for (uint64_t s = 0; s < i->n_sequences; s++)
            sum += taken(t, all, s, length);
    }
    sum = 0;
    for (uint64_t s = 0; s < i->n_sequences && sum < want; s++) {
        uint64_t len = taken(t, all, s, length / 2);
        len = len < want - sum ? len : want - sum;
        sum += len;
        int r = len ? add_piece(list, n, (struct piece){ trace_sequence_starts(t)[s], (uint32_t)len, 0 }, e) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/* Held-out runs of tokens, each after the run before it as context. */
static int runs(struct trace *t, uint64_t want, struct piece **list, size_t *n, struct err *e)
{
    const struct trace_info *i = trace_info(t);
    const uint64_t *starts = trace_sequence_starts(t);
    uint64_t sum = 0;
    for (uint64_t s = 0; s < i->n_sequences; s++)
        for (uint64_t at = starts[s]; at < starts[s + 1] && sum < want;) {
            uint64_t end = (at / PREDICTOR_SAMPLES_RUN + 1) * PREDICTOR_SAMPLES_RUN, from = at;
            end = end < starts[s + 1] ? end : starts[s + 1];
            if (predictor_samples_held(t, s, at)) {
                uint64_t len = end - at < want - sum ? end - at : want - sum;
                from = at - starts[s] > PREDICTOR_SAMPLES_RUN ? at - PREDICTOR_SAMPLES_RUN : starts[s];
                int r = add_piece(list, n, (struct piece){ from, (uint32_t)(at + len - from), (uint32_t)(at - from) }, e);
                if (r < 0)
                    return r;
                sum += len;
            }
            at = end;
        }
    return 0;
}

static uint64_t automatic(const struct trace_info *i)
{
    double elements = 0;
    for (int k = 0; k < i->n_tensors; k++)
        elements += (double)i->tensors[k].dims[0] * (double)i->tensors[k].dims[1] * (double)i->tensors[k].dims[2];
    double n = AUTO_ELEMENTS / (elements > 1 ? elements : 1);
    return n < AUTO_LEAST ? AUTO_LEAST : n > AUTO_MOST ? AUTO_MOST : (uint64_t)n;
}

/* ---- the probe ---- */

static void unload(struct quality *q)
{
    for (int i = 0; i < PREDICT_INPUTS * q->n_blocks; i++)
        free(q->layer[i].weights);
    memset(q->layer, 0, (size_t)(PREDICT_INPUTS * q->n_blocks) * sizeof *q->layer);
}

static int load(struct quality *q, const struct trace_predictor *x, struct loaded *out, struct err *e)
{
    const struct model_hparams *h = &q->info->h;
    const int n_ff = model_n_ff(h, x->layer);
    size_t a = predict_row1_bytes(x->type1, h->d_model) * (size_t)x->rank,
           b = predict_row2_bytes(x->type2, x->rank) * (size_t)n_ff, bias = (a + b + 63) & ~(size_t)63;
    uint8_t *w = malloc(bias + (size_t)n_ff * (size_t)predict_numbers(1, x->two_sided) * sizeof(float));
    if (!w)
        return err_set(e, ERR_NOMEM, "a predictor of rank %d", x->rank);
    out->weights = w;
    out->p = (struct predict){ .input = x->input, .relu = x->relu, .d_model = h->d_model, .rank = x->rank, .n_ff = n_ff,
                               .two_sided = x->two_sided, .type1 = x->type1, .type2 = x->type2, .fc1 = w, .fc2 = w + a,
                               .bias = (const float *)(const void *)(w + bias) };
    for (int k = 0; k < TARGETS; k++)
        out->threshold[k] = trace_predict_point_for(x, targets[k])->threshold;
    for (int k = 0; k < LOSSES; k++)
        out->loss_threshold[k] = trace_predict_point_for(x, (double)loss_targets[k])->threshold;
    int r = trace_predictors_read(q->p, x, w, w + a, (float *)(void *)(w + bias), e);
    return r < 0 ? r : predict_init(&out->p, e);
}

static int load_layer(void *ctx, int layer, struct err *e)
{
    struct quality *q = ctx;
    unload(q);
    q->current = layer;
    progress_add(&q->progress, 1);
    for (int i = 0; i < PREDICT_INPUTS; i++)
        for (int b = 0; b < q->n_blocks; b++) {
            const struct trace_predictor *x = trace_predictors_find(q->p, (enum predict_input)i, layer, b);
            int r = x ? load(q, x, &q->layer[i * q->n_blocks + b], e) : 0;
            if (r < 0)
                return r;
        }
    return 0;
}

static void keep_input(void *ctx, enum predict_input which, size_t first, int n, const float *x)
{
    struct quality *q = ctx;
    size_t d = (size_t)q->info->h.d_model;
    for (size_t t = 0; t < (size_t)n; t++) {
        size_t v = (first + t) / q->run_tokens;
        if (v && q->v[v].input == which)
            memcpy(q->in + (first + t) * d, x + t * d, d * sizeof *x);
    }
}

/* scores[n][n_ff] of tokens that all predict from the same input. */
static void scores(struct quality *q, const struct predict *p, int worker, const size_t *tokens, int n, float *out)
{
    size_t xb = predict_input_bytes(p), hb = predict_hidden_bytes(p), d = (size_t)p->d_model;
    uint8_t *x = q->x + (size_t)worker * TILE * q->x_bytes, *hidden = q->hidden + (size_t)worker * TILE * q->hidden_bytes;
    float *h = q->h + (size_t)worker * TILE * q->rank;
    for (int t = 0; t < n; t++)
        kernels_act_prepare(x + (size_t)t * xb, p->form1, q->in + tokens[t] * d, p->d_model);
    predict_hidden(p, 0, p->rank, x, xb, n, h, (size_t)p->rank);
    predict_prepare(p, h, (size_t)p->rank, n, hidden, hb);
    predict_scores(p, 0, p->n_ff, hidden, hb, n, out, (size_t)p->n_ff);
}

/* What of a token's neurons would be lost at each recall. */
static void lose(const struct quality *q, const struct loaded *l, int worker, int block, const float *h, const float *score)
{
    size_t layers = (size_t)q->info->h.n_layers, n_ff = (size_t)q->info->h.n_ff;
    size_t at = (size_t)q->current * (size_t)q->n_blocks + (size_t)block;
    const float *weight = q->weight + at * n_ff;
    const uint8_t *part = q->part + at * n_ff;
    double *to = q->energy + (((size_t)worker * PREDICT_INPUTS + l->p.input) * layers + (size_t)q->current) * LOSSES * PARTS;
    for (int i = 0; i < l->p.n_ff; i++) {
        if (!(h[i] < 0 || h[i] > 0))
            continue;
        double energy = rint((double)h[i] * (double)h[i] * (double)weight[i] * UNIT);
        for (int k = 0; k < LOSSES; k++)
            to[k * PARTS + part[i]] += score[i] > l->loss_threshold[k] ? 0 : energy;
    }
}

static void drop(float *h, const float *score, float threshold, size_t n, struct tally *t)
{
    for (size_t i = 0; i < n; i++) {
        int active = h[i] != 0, predicted = score[i] > threshold;
        t->active += (uint64_t)active;
        t->predicted += (uint64_t)predicted;
        t->hit += (uint64_t)(active & predicted);
        h[i] = predicted ? h[i] : 0;
    }
    t->all += n;
}

static void whole(const float *h, size_t n, struct tally *t)
{
    uint64_t active = 0;
    for (size_t i = 0; i < n; i++)
        active += h[i] != 0;
    t->all += n, t->predicted += n, t->active += active, t->hit += active;
}

/* Does a variant leave neurons of the current layer out? */
static int leaves_out(const struct quality *q, size_t v)
{
    return v && (q->v[v].group < 0 || q->v[v].group == q->current * q->n_groups / q->info->h.n_layers);
}

static void take_away(void *ctx, int worker, int block, const size_t *tokens, int n, float *h)
{
    struct quality *q = ctx;
    size_t n_ff = (size_t)model_n_ff(&q->info->h, q->current);
    float *s = q->scores + (size_t)worker * TILE * n_ff;
    for (int t = 0, end; t < n; t = end) {
        size_t v = tokens[t] / q->run_tokens;
        for (end = t + 1; end < n; end++) { /* tokens ascend, and variants of an input stand together */
            size_t w = tokens[end] / q->run_tokens;
            if (leaves_out(q, v) != leaves_out(q, w) || q->v[v].input != q->v[w].input)
                break;
        }
        const struct loaded *l = &q->layer[(int)q->v[v].input * q->n_blocks + block];
        if (leaves_out(q, v) && l->weights)
            scores(q, &l->p, worker, tokens + t, end - t, s);
        for (int k = t; k < end && leaves_out(q, v); k++) {
            size_t w = tokens[k] / q->run_tokens;
            struct tally *tally = &q->tally[(size_t)worker * VARIANTS + w];
            if (l->weights && q->v[w].group < 0 && q->v[w].target == TARGETS - 1)
                lose(q, l, worker, block, h + (size_t)k * n_ff, s + (size_t)(k - t) * n_ff);
            if (l->weights)
                drop(h + (size_t)k * n_ff, s + (size_t)(k - t) * n_ff, l->threshold[q->v[w].target], n_ff, tally);
            else
                whole(h + (size_t)k * n_ff, n_ff, tally);
        }
    }
}

/* ---- runs ---- */

static int one_run(struct quality *q, struct forward *f, struct trace *text, const struct piece *pieces, size_t n,
                   struct err *e)
{
    size_t v_n = (size_t)q->n_variants, at = 0;
    q->run_tokens = 0;
    for (size_t i = 0; i < n; i++)
        q->run_tokens += pieces[i].n;
    q->tokens += q->run_tokens;
    uint32_t *ids = malloc(v_n * q->run_tokens * sizeof *ids);
    uint64_t *starts = malloc((v_n * n + 1) * sizeof *starts);
    int r = ids && starts ? 0 : err_set(e, ERR_NOMEM, "%zu tokens", q->run_tokens);
    for (size_t i = 0; i < n && !r; at += pieces[i++].n)
        r = trace_tokens(text, pieces[i].first, pieces[i].n, ids + at, e);
    for (size_t v = 0, to = 0; v < v_n && !r; v++) {
        if (v)
            memcpy(ids + v * q->run_tokens, ids, q->run_tokens * sizeof *ids);
        for (size_t i = 0; i < n; to += pieces[i++].n)
            starts[v * n + i] = to;
    }
    const struct forward_probe probe = { .ctx = q, .layer = load_layer, .input = keep_input, .neurons = take_away };
    if (!r) {
        starts[v_n * n] = v_n * q->run_tokens;
        struct forward_run run = { .tokens = ids, .starts = starts, .n_sequences = v_n * n, .probe = &probe };
        r = forward_run(f, &run, e);
    }
    at = 0;
    for (size_t i = 0; i < n && !r; at += pieces[i++].n)
        for (size_t t = pieces[i].skip; t < pieces[i].n && !r; t += COMPARE_TOKENS) {
            uint32_t next[COMPARE_TOKENS];
            int m = (int)(pieces[i].n - t < COMPARE_TOKENS ? pieces[i].n - t : COMPARE_TOKENS);
            for (int k = 0; k < m; k++)
                next[k] = t + (size_t)k + 1 < pieces[i].n ? ids[at + t + (size_t)k + 1] : UINT32_MAX;
            r = file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : compare_score(&q->compare, f, q->run_tokens, at + t, m, next, e);
        }
    free(ids), free(starts);
    return r;
}

static int reserve(struct quality *q, size_t tokens, struct err *e)
{
    const struct model_hparams *h = &q->info->h;
    size_t w = (size_t)pool_threads(q->pool), n_ff = (size_t)h->n_ff;
    int n;
    const struct trace_predictor *list = trace_predictors_list(q->p, &n);
    for (int i = 0; i < n; i++)
        q->rank = q->rank > (size_t)list[i].rank ? q->rank : (size_t)list[i].rank;
    for (int form = 0; form < KERNELS_ACT_FORMS; form++) {
        size_t x = kernels_act_bytes((enum kernels_act)form, h->d_model),
               hidden = kernels_act_bytes((enum kernels_act)form, (int)q->rank);
        q->x_bytes = q->x_bytes > x ? q->x_bytes : x;
        q->hidden_bytes = q->hidden_bytes > hidden ? q->hidden_bytes : hidden;
    }
    q->layer = calloc((size_t)(PREDICT_INPUTS * q->n_blocks), sizeof *q->layer);
    q->in = malloc((size_t)q->n_variants * tokens * (size_t)h->d_model * sizeof *q->in);
    q->tally = calloc(w * VARIANTS, sizeof *q->tally);
    q->energy = calloc(w * PREDICT_INPUTS * (size_t)h->n_layers * LOSSES * PARTS, sizeof *q->energy);
    q->x = malloc(w * TILE * q->x_bytes), q->hidden = malloc(w * TILE * q->hidden_bytes);
    q->h = malloc(w * TILE * q->rank * sizeof *q->h), q->scores = malloc(w * TILE * n_ff * sizeof *q->scores);
    return q->layer && q->in && q->tally && q->energy && q->x && q->hidden && q->h && q->scores
               ? 0
               : err_set(e, ERR_NOMEM, "a run of %zu tokens", tokens);
}

static void result(const struct quality *q, struct trace_predict_quality *rows)
{
    for (int v = 1; v <= q->n_rows; v++) {
        struct tally t = { 0 };
        for (int w = 0; w < pool_threads(q->pool); w++) {
            const struct tally *x = &q->tally[w * VARIANTS + v];
            t.all += x->all, t.active += x->active, t.predicted += x->predicted, t.hit += x->hit;
        }
        const struct compare *c = &q->compare;
        double n = (double)c->tokens, all = (double)t.all;
        rows[v - 1] = (struct trace_predict_quality){
            .input = q->v[v].input, .target = targets[q->v[v].target],
            .recall = t.active ? (double)t.hit / (double)t.active : 1,
            .density = (double)t.predicted / all, .true_density = (double)t.active / all,
            .kl_mean = c->v[v].kl / n, .kl_max = c->v[v].kl_max, .top1 = (double)c->v[v].same / n,
            .ppl_ratio = c->with_next ? exp((c->v[v].nll - c->v[0].nll) / (double)c->with_next) : 1,
            .tokens = c->tokens };
    }
}

/* ---- losses ---- */

/* Columns of Down of a layer. */
static int output_weights(struct quality *q, const struct model *m, int layer, float *down, struct err *e)
{
    struct predictor_tensor t;
    size_t n_ff = (size_t)model_n_ff(&m->h, layer), d = (size_t)m->h.d_model, blocks = (size_t)q->n_blocks;
    float *weight = q->weight + (size_t)layer * blocks * (size_t)m->h.n_ff, most = 0;
    int r = predictor_tensor_open(m->gguf, m->layer[layer][MODEL_FFN_DOWN], &t, e);
    for (size_t b = 0; b < blocks && r == 0; b++) {
        if ((r = predictor_tensor_next(&t, q->n_blocks, down, e)) < 0)
            break;
        for (size_t i = 0; i < n_ff; i++) {
            double sum = 0;
            for (size_t k = 0; k < d; k++) {
                double x = (double)(m->h.down_by_neuron ? down[i * d + k] : down[k * n_ff + i]);
                sum += x * x;
            }
            weight[b * n_ff + i] = (float)sum;
        }
    }
    for (size_t i = 0; i < blocks * n_ff; i++)
        most = weight[i] > most ? weight[i] : most;
    for (size_t i = 0; i < blocks * n_ff && most > 0; i++)
        weight[i] /= most;
    q->largest[layer] = (double)most;
    return r;
}

/* What a neuron's output weighs, and where it is in the order of the trace that the predictors are in. */
static int all_weights(struct quality *q, struct trace *order, const struct model *m, struct err *e)
{
    size_t n_ff = (size_t)m->h.n_ff, blocks = (size_t)m->h.n_layers * (size_t)q->n_blocks;
    struct hash128 hash;
    uint32_t *at = NULL;
    float *down = malloc(n_ff * (size_t)m->h.d_model * sizeof *down);
    q->weight = malloc(blocks * n_ff * sizeof *q->weight);
    q->largest = malloc((size_t)m->h.n_layers * sizeof *q->largest);
    q->part = malloc(blocks * n_ff);
    int r = down && q->weight && q->largest && q->part ? trace_orders(order, LAYOUT_HEAT, &at, &hash, e) :
                                                              err_set(e, ERR_NOMEM, "weights of neurons");
    for (size_t i = 0; i < blocks * n_ff && r == 0; i++) {
        size_t part = i % n_ff * PARTS / (size_t)model_n_ff(&m->h, (int)(i / n_ff / (size_t)q->n_blocks));
        q->part[i / n_ff * n_ff + at[i]] = (uint8_t)(part < PARTS ? part : PARTS - 1);
    }
    for (int l = 0; l < m->h.n_layers && r == 0; l++)
        r = file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : output_weights(q, m, l, down, e);
    free(down);
    free(at);
    return r;
}

/* Energy per token of an input in a layer at a recall, in parts. */
static void energies(const struct quality *q, int input, int layer, int k, float *out)
{
    size_t layers = (size_t)q->info->h.n_layers;
    for (int i = 0; i < PARTS; i++) {
        double sum = 0;
        for (int w = 0; w < pool_threads(q->pool); w++)
            sum += q->energy[(((size_t)(w * PREDICT_INPUTS + input) * layers + (size_t)layer) * LOSSES + (size_t)k) * PARTS + (size_t)i];
        out[i] = (float)(sum / UNIT * q->largest[layer] / (double)q->tokens);
    }
}

/* A row for each layer of each input that was measured. The groups' variants say what an energy costs; where nothing is lost in one,
 * all of them together do. */
static int lost(const struct quality *q, struct trace_predict_losses *out, struct err *e)
{
    int layers = q->info->h.n_layers;
    double energy[GROUPS] = { 0 }, all = 0, kl = 0;
    struct trace_predict_losses o = { .n_targets = LOSSES, .row = calloc((size_t)(PREDICT_INPUTS * layers), sizeof *o.row) };
    if (!o.row)
        return err_set(e, ERR_NOMEM, "losses");
    memcpy(o.target, loss_targets, sizeof loss_targets);
    for (int v = 1; v <= q->n_rows; v += TARGETS)
        for (int l = 0; l < layers; l++) {
            if (!trace_predictors_find(q->p, q->v[v].input, l, 0))
                continue;
            struct trace_predict_loss *row = &o.row[o.n++];
            *row = (struct trace_predict_loss){ .input = q->v[v].input, .layer = l };
            for (int k = 0; k < LOSSES; k++)
                energies(q, (int)row->input, l, k, row->energy[k]);
            for (int i = 0; i < PARTS && v == 1; i++)
                energy[l * q->n_groups / layers] += (double)row->energy[LOSS_OF_GROUPS][i];
        }
    for (int g = 0; g < q->n_groups; g++)
        all += energy[g], kl += q->compare.v[1 + q->n_rows + g].kl / (double)q->compare.tokens;
    for (int i = 0; i < o.n; i++) {
        int g = o.row[i].layer * q->n_groups / layers;
        o.row[i].kl_per_energy = energy[g] > 0 ? q->compare.v[1 + q->n_rows + g].kl / (double)q->compare.tokens / energy[g] :
                                 all > 0 ? kl / all : 0;
    }
    *out = o;
    return 0;
}

static int measure(struct quality *q, struct trace *text, const struct model *m, const struct piece *pieces, size_t n,
                   struct trace_predict_quality *rows, struct trace_predict_losses *losses, struct err *e)
{
    size_t most = RUN_BYTES / (2 * sizeof(float) * (size_t)m->h.d_model * (size_t)q->n_variants), longest = 1, n_runs = 0;
    struct forward *f = NULL;
    for (size_t i = 0; i < n; i++)
        longest = longest > pieces[i].n ? longest : pieces[i].n;
    most = most > longest ? most : longest;
    int r = compare_init(&q->compare, q->pool, q->n_variants, m->h.n_vocab, e);
    if (!r)
        r = reserve(q, most, e);
    if (!r)
        r = forward_new(m, q->pool, (int)longest, &f, e);
    for (int pass = 0; pass < 2 && !r; pass++) { /* counted, then done */
        if (pass)
            progress_init(&q->progress, "quality", "layers", (uint64_t)n_runs * (uint64_t)m->h.n_layers);
        for (size_t at = 0, end; at < n && !r; at = end) {
            size_t tokens = pieces[at].n;
            for (end = at + 1; end < n && tokens + pieces[end].n <= most; end++)
                tokens += pieces[end].n;
            if (pass)
                r = one_run(q, f, text, pieces + at, end - at, e);
            n_runs += !pass;
        }
    }
    if (n_runs)
        progress_done(&q->progress);
    if (!r && (r = lost(q, losses, e)) == 0)
        result(q, rows);
    forward_free(f);
    compare_done(&q->compare);
    return r;
}

int predictor_set_quality(struct trace_predictors *p, struct trace *own, struct trace *text, int all, const struct model *m,
                          unsigned inputs, uint64_t tokens, struct pool *pool,
                          struct trace_predict_quality rows[TRACE_PREDICT_QUALITY], int *n,
                          struct trace_predict_losses *losses, struct err *e)
{
    struct quality q = { .p = p, .info = trace_info(text), .pool = pool, .n_variants = 1,
                         .n_blocks = model_ffn_blocks(&m->h), .n_groups = m->h.n_layers < GROUPS ? m->h.n_layers : GROUPS };
    struct piece *pieces = NULL;
    size_t n_pieces = 0;
    uint64_t compared = 0;
    int n_list, r;
    if (!hash_equal(trace_predictors_info(p)->model_hash, q.info->model_hash))
        return err_set(e, ERR_MISMATCH, "'%s' is a trace of another model than the predictors are of", q.info->path);
    const struct trace_predictor *list = trace_predictors_list(p, &n_list);
    for (int i = 0; i < n_list; i++)
        for (int k = 0; k < TARGETS && inputs >> list[i].input & 1 && (!i || list[i].input != list[i - 1].input); k++)
            q.v[q.n_variants++] = (struct variant){ .input = list[i].input, .target = k, .group = -1 };
    q.n_rows = q.n_variants - 1;
    for (int g = 0; g < q.n_groups; g++)
        q.v[q.n_variants++] = (struct variant){ .input = q.v[1].input, .group = g };
    if (!q.n_rows)
        return err_set(e, ERR_INPUT, "there are no predictors of that input; 'thermo-profile show' lists those that there are");
    if (tokens == PREDICTOR_SET_AUTO)
        tokens = automatic(q.info);
    r = all || predictor_samples_whole(q.info) ? whole_sequences(text, all, tokens, &pieces, &n_pieces, e)
                                               : runs(text, tokens, &pieces, &n_pieces, e);
    for (size_t i = 0; i < n_pieces; i++)
        compared += pieces[i].n - pieces[i].skip;
    if (!r && compared < LEAST)
        r = err_set(e, ERR_INPUT, "'%s' has %llu %stokens: too few to measure quality on; %d are needed", q.info->path,
                    (unsigned long long)compared, all ? "" : "held-out ", LEAST);
    if (!r && (r = all_weights(&q, own, m, e)) == 0 && (r = measure(&q, text, m, pieces, n_pieces, rows, losses, e)) == 0)
        *n = q.n_rows;
    if (q.layer)
        unload(&q);
    free(q.layer), free(q.in), free(q.tally), free(q.x), free(q.hidden), free(q.h), free(q.scores), free(pieces);
    free(q.weight), free(q.largest), free(q.part), free(q.energy);
    return r;
}
