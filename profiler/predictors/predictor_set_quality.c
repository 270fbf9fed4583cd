/* The model runs the same text once per variant: exactly, and with the neurons that the predictors of one input predict
 * at one recall. All variants run side by side (compare.h):
 *
 *   tokens of a run:  exact | ffn 0.90 | ffn 0.95 | ... | block 0.90 | ...      each: the same pieces of text
 *
 * The pass hands every token's vectors here before its neurons; the one that the token's variant predicts from is
 * kept, and when the neurons come those that the predictors do not predict become 0. */
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
enum { TARGETS = sizeof targets / sizeof *targets, VARIANTS = 1 + PREDICT_INPUTS * TARGETS, TILE = FORWARD_TILE };
enum { LEAST = 16, LEAST_PIECE = 64, AUTO_LEAST = 128, AUTO_MOST = 4096 };
#define AUTO_ELEMENTS 1.9e12        /* weights times tokens: 256 tokens of a 7B model */
#define RUN_BYTES     (256u << 20)  /* residual streams and inputs of a run */
_Static_assert(PREDICT_INPUTS * TARGETS <= TRACE_PREDICT_QUALITY, "rows");

/* A stretch of text: tokens [first, first + n), of which those from `skip` on are compared. */
struct piece {
    uint64_t first;
    uint32_t n, skip;
};

struct variant {                 /* 0: exact */
    enum predict_input input;
    double target;
};

/* What the neurons did, added up by each worker for itself. */
struct tally {
    uint64_t all, active, predicted, hit;
};

/* A block's predictor with its weights; weights NULL: there is none. */
struct loaded {
    struct predict p;
    void *weights;
    float threshold[TARGETS];
};

struct quality {
    struct trace_predictors *p;
    const struct trace_info *info;
    struct pool *pool;
    struct variant v[VARIANTS];
    int n_variants, n_blocks;
    struct loaded *layer;        /* [PREDICT_INPUTS][n_blocks] of the layer that is computed */
    size_t run_tokens;           /* of one variant */
    float *in;                   /* [n_variants * run_tokens][d_model] */
    struct tally *tally;         /* [workers][VARIANTS] */
    uint8_t *x, *hidden;         /* of each worker: [TILE] tokens */
    float *h, *scores;
    size_t x_bytes, hidden_bytes, rank;
    struct compare compare;
    struct progress progress;
};

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
    size_t a = predict_row1_bytes(x->type1, h->d_model) * (size_t)x->rank,
           b = predict_row2_bytes(x->type2, x->rank) * (size_t)h->n_ff, bias = (a + b + 63) & ~(size_t)63;
    uint8_t *w = malloc(bias + (size_t)h->n_ff * (size_t)predict_numbers(1, x->two_sided) * sizeof(float));
    if (!w)
        return err_set(e, ERR_NOMEM, "a predictor of rank %d", x->rank);
    out->weights = w;
    out->p = (struct predict){ .input = x->input, .relu = x->relu, .d_model = h->d_model, .rank = x->rank, .n_ff = h->n_ff,
                               .two_sided = x->two_sided, .type1 = x->type1, .type2 = x->type2, .fc1 = w, .fc2 = w + a,
                               .bias = (const float *)(const void *)(w + bias) };
    for (int k = 0; k < TARGETS; k++)
        out->threshold[k] = trace_predict_point_for(x, targets[k])->threshold;
    int r = trace_predictors_read(q->p, x, w, w + a, (float *)(void *)(w + bias), e);
    return r < 0 ? r : predict_init(&out->p, e);
}

static int load_layer(void *ctx, int layer, struct err *e)
{
    struct quality *q = ctx;
    unload(q);
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

static void take_away(void *ctx, int worker, int block, const size_t *tokens, int n, float *h)
{
    struct quality *q = ctx;
    size_t n_ff = (size_t)q->info->h.n_ff;
    float *s = q->scores + (size_t)worker * TILE * n_ff;
    for (int t = 0, end; t < n; t = end) {
        size_t v = tokens[t] / q->run_tokens;
        for (end = t + 1; end < n; end++) { /* tokens ascend, and variants of an input stand together */
            size_t w = tokens[end] / q->run_tokens;
            if (!v != !w || q->v[v].input != q->v[w].input)
                break;
        }
        const struct loaded *l = &q->layer[(int)q->v[v].input * q->n_blocks + block];
        if (v && l->weights)
            scores(q, &l->p, worker, tokens + t, end - t, s);
        for (int k = t; k < end && v; k++) {
            size_t w = tokens[k] / q->run_tokens;
            struct tally *tally = &q->tally[(size_t)worker * VARIANTS + w];
            if (l->weights)
                drop(h + (size_t)k * n_ff, s + (size_t)(k - t) * n_ff, l->threshold[(w - 1) % TARGETS], n_ff, tally);
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
    q->x = malloc(w * TILE * q->x_bytes), q->hidden = malloc(w * TILE * q->hidden_bytes);
    q->h = malloc(w * TILE * q->rank * sizeof *q->h), q->scores = malloc(w * TILE * n_ff * sizeof *q->scores);
    return q->layer && q->in && q->tally && q->x && q->hidden && q->h && q->scores
               ? 0
               : err_set(e, ERR_NOMEM, "a run of %zu tokens", tokens);
}

static void result(const struct quality *q, struct trace_predict_quality *rows)
{
    for (int v = 1; v < q->n_variants; v++) {
        struct tally t = { 0 };
        for (int w = 0; w < pool_threads(q->pool); w++) {
            const struct tally *x = &q->tally[w * VARIANTS + v];
            t.all += x->all, t.active += x->active, t.predicted += x->predicted, t.hit += x->hit;
        }
        const struct compare *c = &q->compare;
        double n = (double)c->tokens, all = (double)t.all;
        rows[v - 1] = (struct trace_predict_quality){
            .input = q->v[v].input, .target = q->v[v].target,
            .recall = t.active ? (double)t.hit / (double)t.active : 1,
            .density = (double)t.predicted / all, .true_density = (double)t.active / all,
            .kl_mean = c->v[v].kl / n, .kl_max = c->v[v].kl_max, .top1 = (double)c->v[v].same / n,
            .ppl_ratio = c->with_next ? exp((c->v[v].nll - c->v[0].nll) / (double)c->with_next) : 1,
            .tokens = c->tokens };
    }
}

static int measure(struct quality *q, struct trace *text, const struct model *m, const struct piece *pieces, size_t n,
                   struct trace_predict_quality *rows, struct err *e)
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
    if (!r)
        result(q, rows);
    forward_free(f);
    compare_done(&q->compare);
    return r;
}

int predictor_set_quality(struct trace_predictors *p, struct trace *text, int all, const struct model *m, unsigned inputs,
                       uint64_t tokens, struct pool *pool, struct trace_predict_quality rows[TRACE_PREDICT_QUALITY], int *n,
                       struct err *e)
{
    struct quality q = { .p = p, .info = trace_info(text), .pool = pool, .n_variants = 1,
                         .n_blocks = model_ffn_blocks(&m->h) };
    struct piece *pieces = NULL;
    size_t n_pieces = 0;
    uint64_t compared = 0;
    int n_list, r;
    if (!hash_equal(trace_predictors_info(p)->model_hash, q.info->model_hash))
        return err_set(e, ERR_MISMATCH, "'%s' is a trace of another model than the predictors are of", q.info->path);
    const struct trace_predictor *list = trace_predictors_list(p, &n_list);
    for (int i = 0; i < n_list; i++)
        for (int k = 0; k < TARGETS && inputs >> list[i].input & 1 && (!i || list[i].input != list[i - 1].input); k++)
            q.v[q.n_variants++] = (struct variant){ .input = list[i].input, .target = targets[k] };
    if (q.n_variants == 1)
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
    if (!r && (r = measure(&q, text, m, pieces, n_pieces, rows, e)) == 0)
        *n = q.n_variants - 1;
    if (q.layer)
        unload(&q);
    free(q.layer), free(q.in), free(q.tally), free(q.x), free(q.hidden), free(q.h), free(q.scores), free(pieces);
    return r;
}
