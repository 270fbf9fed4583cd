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
 * which tokens share a pass. Neurons before `always computed` count always. Ranges whose neurons an accelerator computes are not scored. */
#include "runtime/pipeline/scheduler_impl.h"

#include <assert.h>
#include <string.h>

#define HIDDEN_BYTES (64u << 10) /* of fc1's rows: no job is smaller */
#define CLUSTER_MAX  4096        /* neurons (common/plan/layout.h) */

size_t prediction_row_bytes(const struct pipeline_config *c)
{
    return c->choice.predictors.rank ? (size_t)schedule_bits_bytes((uint64_t)c->shapes->n_ff) : 0;
}

void prediction_take_memory(struct scheduler *s)
{
    const struct pipeline_config *c = s->c;
    struct prediction *d = &s->now;
    size_t tokens = (size_t)c->scratch.tokens, rank = (size_t)c->choice.predictors.rank;
    d->prefetch = read_queue_predictors(s->q);
    if (!rank)
        return;
    d->row_bytes = prediction_row_bytes(c);
    d->work.score_floats = tokens * SCHEDULE_SCORE_ROWS;
    uint8_t *m = c->memory.predict, *end = m + c->scratch.predict;
    d->work.hidden = (float *)(void *)m;
    m += (tokens * rank * 4 + 63) / 64 * 64;
    d->work.scores = (float *)(void *)m;
    m += (size_t)c->choice.threads * d->work.score_floats * 4;
    d->bits = m;
    m += (size_t)c->scratch.rows * d->row_bytes;
    d->work.prepared = m; /* in either form */
    assert(m + tokens * kernels_act_bytes(KERNELS_ACT_F32, (int)rank) <= end &&
           m + tokens * kernels_act_bytes(KERNELS_ACT_Q8, (int)rank) <= end);
    (void)end;
}

/* What streamed predictors have by now, for those who take jobs. */
static void see_ready(struct scheduler *s)
{
    struct prediction *d = &s->now;
    const struct predicted *q = &d->work.of->pred;
    uint32_t rows, ranges;
    predictor_prefetch_ready(d->prefetch, &rows, &ranges);
    rows = rows < (uint32_t)q->q->rank ? rows : (uint32_t)q->q->rank;
    ranges = ranges < q->n_ranges ? ranges : q->n_ranges;
    if (rows == d->rows && ranges == d->ranges)
        return;
    pthread_mutex_lock(&s->lock);
    d->rows = rows;
    d->ranges = ranges;
    scheduler_changed(s);
    scheduler_unlock(s);
}

int prediction_feed(struct scheduler *s, int ahead, struct err *e)
{
    struct prediction *d = &s->now;
    if (!d->prefetch || !s->predicted)
        return 0;
    pthread_mutex_lock(&s->lock);
    predictor_prefetch_reclaim(d->prefetch);
    pthread_mutex_unlock(&s->lock);
    int r = predictor_prefetch_issue(d->prefetch, ahead, e);
    if (r == 0 && d->work.of && d->streamed)
        see_ready(s);
    return r;
}

/* Ranges that are the accelerator's, whole. Of streamed predictors the last is scored in any case, so that all pieces are used. */
static uint32_t ranges_beside(const struct block *b, int streamed)
{
    const struct predicted *d = &b->pred;
    uint32_t beside = b->beside > d->always ? b->beside - d->always : 0;
    uint32_t n = b->beside == (uint32_t)b->shape->n_ff ? d->n_ranges : beside / d->range;
    return streamed && n && n == d->n_ranges ? n - 1 : n;
}

void prediction_reset(struct pass *p)
{
    const struct pipeline_config *c = p->b.c;
    struct predicted *d = &p->b.pred;
    uint32_t n_ff = (uint32_t)p->b.shape->n_ff;
    d->on = p->s->predicted && c->predictors && c->predictor[p->b.layer] >= 0;
    p->begun = !d->on;
    p->listed = 0;
    if (!d->on)
        return;
    d->q = &c->predictors[config_block(c, p->b.layer, p->b.block)];
    d->always = c->always ? c->always[p->b.layer] : 0;
    d->range = predict_range(c->shapes->l.cluster_neurons);
    d->n_ranges = (n_ff - d->always + d->range - 1) / d->range;
    p->listed = d->first = ranges_beside(&p->b, config_streams(c, p->b.layer));
    memset(p->b.active, 0, n_ff); /* of neurons that are never listed */
}

static void mark_always(uint8_t *bits, uint32_t n)
{
    memset(bits, 0xff, n / 8);
    if (n % 8)
        bits[n / 8] = (uint8_t)((1u << n % 8) - 1);
}

void prediction_input(struct pass *p, struct acts *in, uint8_t *bits)
{
    struct predicted *d = &p->b.pred;
    p->in = in;
    d->bits = bits;
    d->want = in->n_tokens == 1 ? d->bits : d->any;
    for (int t = 0; t < in->n_tokens; t++)
        mark_always(d->bits + (size_t)t * d->row_bytes, d->always);
    if (in->n_tokens > 1)
        mark_always(d->any, d->always);
}

static struct pass *next_pass(struct scheduler *s)
{
    for (int i = 0; i < s->n_passes; i++) {
        struct pass *p = &s->pass[i];
        if (!p->begun) {
            p->begun = 1;
            if (p->b.pred.n_ranges > p->b.pred.first) /* else no neuron is predicted */
                return p;
        }
    }
    return NULL;
}

static void show(struct scheduler *s, enum stage stage, int complete)
{
    pthread_mutex_lock(&s->lock);
    s->now.stage = stage;
    s->now.complete = complete;
    scheduler_changed(s);
    scheduler_unlock(s);
}

/* Nobody works on the prediction before: all of its ranges are listed. */
void prediction_begin(struct scheduler *s)
{
    struct prediction *d = &s->now;
    show(s, STAGE_NONE, 0);
    struct pass *p = next_pass(s);
    d->work.of = p ? &p->b : NULL;
    if (!p) {
        show(s, STAGE_NONE, d->alone);
        return;
    }
    const struct predict *q = p->b.pred.q;
    uint32_t pieces = (uint32_t)s->n_threads * 4, least = (uint32_t)(HIDDEN_BYTES / q->row1) + 1;
    d->work.x = acts_in_form(p->in, q->form1, NULL, &d->work.x_stride);
    d->work.prepared_stride = predict_hidden_bytes(q);
    d->grain = ((uint32_t)q->rank + pieces - 1) / pieces;
    d->grain = ((d->grain > least ? d->grain : least) + 3) / 4 * 4;
    memset(d->scored, 0, p->b.pred.n_ranges);
    d->next = 0;
    d->frontier = p->b.pred.first;
    d->left = d->rows = (uint32_t)q->rank;
    d->ranges = p->b.pred.n_ranges;
    d->streamed = config_streams(s->c, p->b.layer);
    d->selects = q->type1 == PREDICT_PICK && !d->streamed;
    if (d->streamed) {
        d->rows = d->ranges = 0;
        predictor_prefetch_begin(d->prefetch, p->b.layer, p->b.block);
        see_ready(s);
    }
    show(s, d->selects ? STAGE_PREPARE : STAGE_HIDDEN, 0);
}

/* ---- jobs ---- */

static void fill(const struct prediction *d, enum job_kind kind, struct job *j)
{
    j->kind = kind;
    j->prediction = &d->work;
    j->predictors = d->streamed ? d->prefetch : NULL;
    j->selects = d->selects;
}

/* Ranges that need no scores; their weights, where they are streamed, make room as they come. */
static void pass_over(struct prediction *d)
{
    for (; d->next < d->work.of->pred.first && d->next < d->ranges; d->next++)
        if (d->streamed)
            predictor_prefetch_used(d->prefetch, 0, d->next, 1);
}

int prediction_waits(const struct scheduler *s)
{
    const struct prediction *d = &s->now;
    return d->stage == STAGE_PREPARE || (d->stage == STAGE_HIDDEN && d->next < d->rows) ||
           (d->stage == STAGE_SCORES && d->next < d->ranges);
}

int prediction_take(struct scheduler *s, struct job *j)
{
    struct prediction *d = &s->now;
    if (d->stage == STAGE_NONE || d->stage == STAGE_PREPARING)
        return 0;
    if (d->stage == STAGE_SCORES)
        pass_over(d);
    if (d->stage == STAGE_PREPARE) {
        d->stage = STAGE_PREPARING;
        fill(d, JOB_PREPARE, j);
        return 1;
    }
    int hidden = d->stage == STAGE_HIDDEN;
    uint32_t n = hidden ? d->rows : d->ranges, grain = hidden ? d->grain : 1;
    if (d->next >= n)
        return 0;
    if (hidden && d->streamed) {
        uint32_t together = predictor_prefetch_together(d->prefetch, d->next);
        grain = grain < together ? grain : together;
    }
    fill(d, hidden ? JOB_HIDDEN : JOB_SCORES, j);
    j->from = d->next;
    j->to = n - d->next < grain ? n : d->next + grain;
    d->next = j->to;
    return 1;
}

void prediction_finish(struct scheduler *s, const struct job *j)
{
    struct prediction *d = &s->now;
    d->ns += j->ns;
    if (d->streamed && j->kind != JOB_PREPARE)
        predictor_prefetch_used(d->prefetch, j->kind == JOB_HIDDEN, j->from, j->to - j->from);
    if (j->kind == JOB_PREPARE) {
        d->stage = STAGE_SCORES;
        d->next = 0;
    } else if (j->kind == JOB_HIDDEN) {
        d->left -= j->to - j->from;
        if (!d->left)
            d->stage = STAGE_PREPARE;
    } else {
        d->scored[j->from] = 1;
        while (d->frontier < d->work.of->pred.n_ranges && d->scored[d->frontier])
            d->frontier++;
    }
}

/* ---- the coordinator: what is predicted becomes entries ---- */

static uint32_t count_bits(const uint8_t *bits, uint32_t i, uint32_t end)
{
    uint32_t n = 0, step;
    for (; i < end; i += step) {
        step = end - i < 64 ? end - i : 64;
        n += (uint32_t)__builtin_popcountll(block_bits_at(bits, i, step));
    }
    return n;
}

/* The units of [first, end) that hold a predicted neuron. A lookup touches a handful of scattered lines, so those of
 * all are asked for before the first. Returns the neurons of units that hold none. */
static uint32_t list_units(struct pass *p, enum list_id list, uint32_t first, uint32_t end)
{
    uint32_t units[CLUSTER_MAX], n = 0, step, skipped = end - first;
    int part = p->b.list[list].part;
    uint32_t per = p->b.shape->part[part].neurons_per_unit;
    for (uint32_t at = first; at < end; at += step) {
        step = end - at < 64 ? end - at : 64;
        for (uint64_t bits = block_bits_at(p->b.pred.want, at, step); bits; bits &= bits - 1) {
            uint32_t unit = (at + (uint32_t)__builtin_ctzll(bits)) / per, left = end - unit * per;
            if (n && units[n - 1] == unit)
                continue;
            units[n++] = unit;
            skipped -= left < per ? left : per;
        }
    }
    for (int stage = 0; stage < 3; stage++)
        for (uint32_t i = 0; i < n; i++)
            read_queue_prefetch(p->s->q, &p->b.list[list], units[i], stage);
    for (uint32_t i = 0; i < n; i++)
        pass_add_unit(p, list, units[i]);
    return skipped;
}

/* Returns the neurons of the cluster whose gates the list of neurons need not wait for. */
static uint32_t list_cluster(struct pass *p, uint32_t c, uint32_t first, uint32_t end)
{
    int one_part = p->b.shape->n_parts == 1;
    if (first < p->b.beside) /* nobody waits for it */
        return 0;
    if (first >= p->b.hot[0]) {
        uint32_t skipped = list_units(p, one_part ? LIST_NEURON : LIST_GATE, first, end);
        return one_part ? end - first : skipped;
    }
    enum list_id list = c < p->b.fused ? LIST_NEURON : LIST_GATE;
    uint32_t rows = count_bits(p->b.pred.want, first, end);
    if (rows)
        pass_add_hot(p, list, first, end - first, rows);
    return rows && list == LIST_GATE ? 0 : end - first;
}

static void list_range(struct pass *p, uint32_t range)
{
    uint32_t cluster = p->b.shape->cluster_neurons, skipped[SCHEDULE_SCORE_ROWS / 8];
    uint32_t end, first = block_range(&p->b, range, &end), c0 = first / cluster, n = 0;
    for (uint32_t at = first; at < end; at += cluster, n++)
        skipped[n] = list_cluster(p, c0 + n, at, end - at < cluster ? end : at + cluster);
    pass_flush(p);
    pthread_mutex_lock(&p->s->lock);
    for (uint32_t i = 0; i < n; i++)
        p->gate_left[c0 + i] -= skipped[i];
    while (p->gate_frontier < p->b.shape->n_clusters && !p->gate_left[p->gate_frontier])
        p->gate_frontier++;
    scheduler_changed(p->s);
    scheduler_unlock(p->s);
}

void prediction_list(struct scheduler *s)
{
    struct prediction *d = &s->now;
    if (!d->work.of)
        return;
    struct pass *p = pass_of(d->work.of);
    pthread_mutex_lock(&s->lock);
    uint32_t to = d->frontier;
    pthread_mutex_unlock(&s->lock);
    for (; p->listed < to; p->listed++)
        list_range(p, p->listed);
    pass_know(p);
    if (to == p->b.pred.n_ranges)
        prediction_begin(s);
}
