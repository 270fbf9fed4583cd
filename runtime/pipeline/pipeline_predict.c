/* Which neurons a predicted pass asks for. A low-rank map (common/model/predict.h) gives every neuron a score: its hidden
 * layer is divided by rows among the workers, then neurons by ranges of whole clusters. Ranges are scored in any
 * order; the coordinator lists them in pack order, up to the first that is missing, while later ones are
 * still being scored and neurons that are there are computed already:
 *
 * Where fc1 picks inputs there is nothing to divide: the job that prepares the hidden layer picks it first.
 *
 *      hidden rows ──► prepare ──► range 0 │ range 1 │ range 2 ...   any worker
 *                                     │         │
 *                          frontier ──┴─────────┴──►  hot: ready │ cached: pin, ready │ missing: read
 *
 * A neuron counts for the tokens for which it is predicted and for no other, so that the outcome does not depend on
 * which tokens share a pass. Neurons before `always computed` count always. */
#include "runtime/pipeline/pipeline_impl.h"

#include "common/base/progress.h"

#include <assert.h>
#include <string.h>

#define HIDDEN_BYTES (64u << 10) /* of fc1's rows: no job is smaller */
#define CLUSTER_MAX  4096        /* neurons (common/plan/layout.h) */

size_t prediction_row_bytes(const struct pipeline_config *c)
{
    return c->choice.predictors.rank ? ((size_t)c->shape.n_ff + 511) / 512 * 64 : 0;
}

void prediction_take_memory(struct pipeline *p)
{
    const struct pipeline_config *c = &p->c;
    struct prediction_state *d = &p->now;
    size_t tokens = (size_t)c->scratch.tokens, rank = (size_t)c->choice.predictors.rank;
    if (!rank)
        return;
    d->row_bytes = prediction_row_bytes(c);
    d->score_floats = tokens * BUDGET_SCORE_ROWS;
    uint8_t *m = c->memory.predict, *end = m + c->scratch.predict;
    d->hidden = (float *)m;
    m += (tokens * rank * 4 + 63) / 64 * 64;
    d->scores = (float *)m;
    m += (size_t)p->n_threads * d->score_floats * 4;
    d->bits = m;
    m += (size_t)c->scratch.rows * d->row_bytes;
    d->prepared = m; /* in either form */
    assert(m + tokens * kernels_act_bytes(KERNELS_ACT_F32, (int)rank) <= end &&
           m + tokens * kernels_act_bytes(KERNELS_ACT_Q8, (int)rank) <= end);
    (void)end;
}

int prediction_new(struct pipeline *p, struct err *e)
{
    const struct pipeline_config *c = &p->c;
    if (!c->choice.predictor_buffers)
        return 0;
    p->now.predictor_prefetch = predictor_prefetch_new(c, c->staging + (size_t)p->n_buffers * p->buffer_bytes, p->n_buffers, e);
    return p->now.predictor_prefetch ? 0 : e->code;
}

/* What streamed predictors have by now, for those who take jobs. */
static void see_ready(struct pipeline *p)
{
    struct prediction_state *d = &p->now;
    const struct prediction *q = &d->of->pred;
    uint32_t rows, ranges;
    predictor_prefetch_ready(d->predictor_prefetch, &rows, &ranges);
    rows = rows < (uint32_t)q->q->rank ? rows : (uint32_t)q->q->rank;
    ranges = ranges < q->n_ranges ? ranges : q->n_ranges;
    if (rows == d->rows && ranges == d->ranges)
        return;
    pthread_mutex_lock(&p->lock);
    d->rows = rows;
    d->ranges = ranges;
    pipeline_changed(p);
    pthread_mutex_unlock(&p->lock);
}

int prediction_feed(struct pipeline *p, int ahead)
{
    struct prediction_state *d = &p->now;
    if (!d->predictor_prefetch || !p->predicted)
        return 0;
    pthread_mutex_lock(&p->lock);
    predictor_prefetch_reclaim(d->predictor_prefetch);
    pthread_mutex_unlock(&p->lock);
    int r = predictor_prefetch_issue(d->predictor_prefetch, ahead, p->err);
    if (r == 0 && d->of && d->streamed)
        see_ready(p);
    return r;
}

void prediction_reset(struct pass *p)
{
    const struct pipeline_config *c = p->c;
    struct prediction *d = &p->pred;
    uint32_t cluster = c->shape.l.cluster_neurons, n_ff = (uint32_t)c->shape.n_ff;
    d->on = p->pipe->predicted && c->predictors && c->predictor[p->layer] >= 0;
    d->begun = !d->on;
    if (!d->on)
        return;
    d->q = &c->predictors[config_block(c, p->layer, p->block)];
    d->always = c->always ? c->always[p->layer] : 0;
    d->range = predict_range(cluster);
    d->n_ranges = (n_ff - d->always + d->range - 1) / d->range;
    d->listed = 0;
    memset(p->active, 0, n_ff); /* of neurons that are never listed */
}

static void mark_always(uint8_t *bits, uint32_t n)
{
    memset(bits, 0xff, n / 8);
    if (n % 8)
        bits[n / 8] = (uint8_t)((1u << n % 8) - 1);
}

void prediction_input(struct pass *p, struct acts *in, uint8_t *bits)
{
    struct prediction *d = &p->pred;
    d->in = in;
    d->bits = bits;
    d->want = in->n_tokens == 1 ? d->bits : d->any;
    for (int t = 0; t < in->n_tokens; t++)
        mark_always(d->bits + (size_t)t * d->row_bytes, d->always);
    if (in->n_tokens > 1)
        mark_always(d->any, d->always);
}

static struct pass *next_pass(struct pipeline *p)
{
    for (int i = 0; i < p->n_passes; i++) {
        struct prediction *d = &p->pass[i].pred;
        if (!d->begun) {
            d->begun = 1;
            if (d->n_ranges) /* else every neuron is always computed */
                return &p->pass[i];
        }
    }
    return NULL;
}

static void show(struct pipeline *p, enum stage stage, int complete)
{
    pthread_mutex_lock(&p->lock);
    p->now.stage = stage;
    p->now.complete = complete;
    pipeline_changed(p);
    pthread_mutex_unlock(&p->lock);
}

/* Nobody works on the prediction before: all of its ranges are listed. */
void prediction_begin(struct pipeline *p)
{
    struct prediction_state *d = &p->now;
    show(p, STAGE_NONE, 0);
    d->of = next_pass(p);
    if (!d->of) {
        show(p, STAGE_NONE, d->alone);
        return;
    }
    struct pass *s = d->of;
    const struct predict *q = s->pred.q;
    uint32_t pieces = (uint32_t)p->n_threads * 4, least = (uint32_t)(HIDDEN_BYTES / q->row1) + 1;
    d->x = acts_in_form(s->pred.in, q->form1, &d->x_stride);
    d->prepared_stride = predict_hidden_bytes(q);
    d->grain = ((uint32_t)q->rank + pieces - 1) / pieces;
    d->grain = ((d->grain > least ? d->grain : least) + 3) / 4 * 4;
    memset(d->scored, 0, s->pred.n_ranges);
    d->next = d->frontier = 0;
    d->left = d->rows = (uint32_t)q->rank;
    d->ranges = s->pred.n_ranges;
    d->streamed = config_streams(&p->c, s->layer);
    d->picks = q->type1 == PREDICT_PICK && !d->streamed;
    if (d->streamed) {
        d->rows = d->ranges = 0;
        predictor_prefetch_begin(d->predictor_prefetch, s->layer, s->block);
        see_ready(p);
    }
    show(p, d->picks ? STAGE_PREPARE : STAGE_HIDDEN, 0);
}

/* ---- jobs ---- */

int prediction_take(struct pipeline *p, struct job *j)
{
    struct prediction_state *d = &p->now;
    if (d->stage == STAGE_NONE || d->stage == STAGE_PREPARING)
        return 0;
    if (d->stage == STAGE_PREPARE) {
        d->stage = STAGE_PREPARING;
        j->kind = JOB_PREPARE;
        return 1;
    }
    int hidden = d->stage == STAGE_HIDDEN;
    uint32_t n = hidden ? d->rows : d->ranges, grain = hidden ? d->grain : 1, together;
    if (d->next >= n)
        return 0;
    if (hidden && d->streamed) {
        predictor_prefetch_rows(d->predictor_prefetch, d->next, &together);
        grain = grain < together ? grain : together;
    }
    j->kind = hidden ? JOB_HIDDEN : JOB_SCORES;
    j->from = d->next;
    j->to = n - d->next < grain ? n : d->next + grain;
    d->next = j->to;
    return 1;
}

void prediction_finish(struct pipeline *p, const struct job *j)
{
    struct prediction_state *d = &p->now;
    d->ns += j->ns;
    if (d->streamed && j->kind != JOB_PREPARE)
        predictor_prefetch_used(d->predictor_prefetch, j->kind == JOB_HIDDEN, j->from, j->to - j->from);
    if (j->kind == JOB_PREPARE) {
        d->stage = STAGE_SCORES;
        d->next = 0;
    } else if (j->kind == JOB_HIDDEN) {
        d->left -= j->to - j->from;
        if (!d->left)
            d->stage = STAGE_PREPARE;
    } else {
        d->scored[j->from] = 1;
        while (d->frontier < d->of->pred.n_ranges && d->scored[d->frontier])
            d->frontier++;
    }
}

/* Neurons of a range. */
static uint32_t range_at(const struct pass *p, uint32_t range, uint32_t *end)
{
    const struct prediction *d = &p->pred;
    uint32_t first = d->always + range * d->range, n_ff = (uint32_t)p->c->shape.n_ff;
    *end = n_ff - first < d->range ? n_ff : first + d->range;
    return first;
}

static int score_range(struct pipeline *p, uint32_t range, int worker, struct counts *c, struct err *e)
{
    const struct prediction_state *d = &p->now;
    const struct pass *s = d->of;
    const struct prediction *of = &s->pred;
    float *score = d->scores + (size_t)worker * d->score_floats;
    uint32_t end, first = range_at(s, range, &end), from = 0;
    struct predict q = *of->q;
    if (d->streamed) {
        float *bias;
        uint8_t *rows = predictor_prefetch_range(d->predictor_prefetch, range, &bias);
        int64_t start = progress_now_ns();
        int r = verify_range(p->c.verifier, s->layer, s->block, range, rows, (uint8_t *)bias, &c->verified, e);
        if (r < 0)
            return r;
        c->verified.ns += (uint64_t)(progress_now_ns() - start);
        from = first;
        q.fc2 = rows;
        q.bias = bias;
    }
    for (uint32_t at = first; at < end; at += BUDGET_SCORE_ROWS) {
        int n = (int)(end - at < BUDGET_SCORE_ROWS ? end - at : BUDGET_SCORE_ROWS);
        predict_scores(&q, (int)(at - from), n, d->prepared, d->prepared_stride, s->n_tokens, score, BUDGET_SCORE_ROWS);
        for (int t = 0; t < s->n_tokens; t++)
            predict_decide(of->q, score + (size_t)t * BUDGET_SCORE_ROWS, n,
                           of->bits + (size_t)t * d->row_bytes + at / 8);
    }
    if (s->n_tokens == 1)
        return 0;
    for (uint32_t b = first / 8; b < (end + 7) / 8; b++) {
        uint8_t any = 0;
        for (int t = 0; t < s->n_tokens; t++)
            any |= of->bits[(size_t)t * d->row_bytes + b];
        of->any[b] = any;
    }
    return 0;
}

static int hidden_rows(struct pipeline *p, uint32_t from, uint32_t to, struct counts *c, struct err *e)
{
    const struct prediction_state *d = &p->now;
    size_t rank = (size_t)d->of->pred.q->rank;
    struct predict q = *d->of->pred.q;
    uint32_t first = 0, n;
    if (d->streamed) {
        uint8_t *rows = predictor_prefetch_rows(d->predictor_prefetch, from, &n);
        int64_t start = progress_now_ns();
        int r = verify_rows(p->c.verifier, d->of->layer, d->of->block, from, to, rows, &c->verified, e);
        if (r < 0)
            return r;
        c->verified.ns += (uint64_t)(progress_now_ns() - start);
        q.fc1 = rows;
        first = from;
    }
    predict_hidden(&q, (int)(from - first), (int)(to - first), d->x, d->x_stride, d->of->n_tokens, d->hidden + first, rank);
    return 0;
}

int prediction_work(struct pipeline *p, struct job *j, int worker, struct counts *c, struct err *e)
{
    int r = 0;
    struct prediction_state *d = &p->now;
    const struct predict *q = d->of->pred.q;
    int64_t start = progress_now_ns();
    if (j->kind == JOB_HIDDEN)
        r = hidden_rows(p, j->from, j->to, c, e);
    else if (j->kind == JOB_PREPARE) {
        if (d->picks)
            r = hidden_rows(p, 0, (uint32_t)q->rank, c, e);
        predict_prepare(q, d->hidden, (size_t)q->rank, d->of->n_tokens, d->prepared, d->prepared_stride);
    } else
        r = score_range(p, j->from, worker, c, e);
    j->ns = (uint64_t)(progress_now_ns() - start);
    return r;
}

/* ---- the coordinator: what is predicted becomes entries ---- */

static uint32_t count_bits(const uint8_t *bits, uint32_t i, uint32_t end)
{
    uint32_t n = 0, step;
    for (; i < end; i += step) {
        step = end - i < 64 ? end - i : 64;
        n += (uint32_t)__builtin_popcountll(bits_at(bits, i, step));
    }
    return n;
}

/* The units of [first, end) that hold a predicted neuron. A lookup touches a handful of scattered lines, so those of
 * all are asked for before the first. Returns the neurons of units that hold none. */
static uint32_t list_units(struct pass *p, int list, uint32_t first, uint32_t end)
{
    uint32_t units[CLUSTER_MAX], n = 0, step, skipped = end - first;
    int part = p->list[list].part;
    uint32_t per = p->c->shape.part[part].neurons_per_unit;
    for (uint32_t at = first; at < end; at += step) {
        step = end - at < 64 ? end - at : 64;
        for (uint64_t bits = bits_at(p->pred.want, at, step); bits; bits &= bits - 1) {
            uint32_t unit = (at + (uint32_t)__builtin_ctzll(bits)) / per, left = end - unit * per;
            if (n && units[n - 1] == unit)
                continue;
            units[n++] = unit;
            skipped -= left < per ? left : per;
        }
    }
    for (int stage = 0; stage < 3; stage++)
        for (uint32_t i = 0; i < n; i++)
            pipeline_prefetch_unit(p, part, units[i], stage);
    for (uint32_t i = 0; i < n; i++)
        pipeline_add_unit(p, list, units[i]);
    return skipped;
}

/* Returns the neurons of the cluster whose gates the list of neurons need not wait for. */
static uint32_t list_cluster(struct pass *p, uint32_t c, uint32_t first, uint32_t end)
{
    int one_part = p->c->shape.n_parts == 1;
    if (first >= p->hot[0]) {
        uint32_t skipped = list_units(p, one_part ? LIST_NEURON : LIST_GATE, first, end);
        return one_part ? end - first : skipped;
    }
    int list = c < p->fused ? LIST_NEURON : LIST_GATE;
    uint32_t rows = count_bits(p->pred.want, first, end);
    if (rows)
        pipeline_add_hot(p, list, first, end - first, rows);
    return rows && list == LIST_GATE ? 0 : end - first;
}

static void list_range(struct pass *p, uint32_t range)
{
    uint32_t cluster = p->c->shape.l.cluster_neurons, skipped[BUDGET_SCORE_ROWS / 8];
    uint32_t end, first = range_at(p, range, &end), c0 = first / cluster, n = 0;
    for (uint32_t at = first; at < end; at += cluster, n++)
        skipped[n] = list_cluster(p, c0 + n, at, end - at < cluster ? end : at + cluster);
    pipeline_flush(p);
    pthread_mutex_lock(&p->pipe->lock);
    for (uint32_t i = 0; i < n; i++)
        p->gate_left[c0 + i] -= skipped[i];
    while (p->gate_frontier < p->c->shape.n_clusters && !p->gate_left[p->gate_frontier])
        p->gate_frontier++;
    pipeline_changed(p->pipe);
    pthread_mutex_unlock(&p->pipe->lock);
}

void prediction_list(struct pipeline *p)
{
    struct prediction_state *d = &p->now;
    if (!d->of)
        return;
    pthread_mutex_lock(&p->lock);
    uint32_t to = d->frontier;
    pthread_mutex_unlock(&p->lock);
    for (struct prediction *of = &d->of->pred; of->listed < to; of->listed++)
        list_range(d->of, of->listed);
    if (to == d->of->pred.n_ranges)
        prediction_begin(p);
}
