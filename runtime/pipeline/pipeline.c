/* Binds the three parts together: what the scheduler hands out, workers verify and compute; between its jobs the coordinator,
 * worker 0, looks after lists and reads. */
#include "runtime/pipeline/pipeline.h"

#include "common/base/progress.h"

#include "runtime/pipeline/compute.h"
#include "runtime/pipeline/expert_prefetch.h"
#include "runtime/pipeline/predictor_prefetch.h"
#include "runtime/pipeline/read_queue.h"
#include "runtime/pipeline/rest_reads.h"
#include "runtime/pipeline/scheduler.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pipeline {
    /* constant after new */
    struct pipeline_config c;
    struct read_queue *q;
    struct scheduler *s;
    /* owned by the coordinator */
    int threads;             /* that take part */
    uint32_t depth;          /* reads in flight */
    int predicted, prepared; /* this pass; blocks of a layer have begun, and pipeline_run has not been called */
    pipeline_fn *at_start;   /* of the next pipeline_run, with its context; NULL: nothing */
    void *at_start_ctx;
    struct pipeline_stats stats; /* of the pipeline's own; others are counted by the parts */
};

struct pipeline *pipeline_new(const struct pipeline_config *c, struct err *e)
{
    struct pipeline *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(e, ERR_NOMEM, "out of memory for the pipeline");
        return NULL;
    }
    p->c = *c;
    p->threads = c->choice.threads;
    p->depth = (uint32_t)c->choice.queue_depth;
    p->q = read_queue_new(&p->c, e);
    p->s = p->q ? scheduler_new(&p->c, p->q, e) : NULL;
    if (!p->s) {
        pipeline_free(p);
        return NULL;
    }
    return p;
}

void pipeline_free(struct pipeline *p)
{
    if (!p)
        return;
    scheduler_free(p->s);
    read_queue_free(p->q);
    free(p);
}

void pipeline_use(struct pipeline *p, int threads, int depth)
{
    p->threads = threads;
    p->depth = (uint32_t)(depth < p->c.choice.queue_depth ? depth : p->c.choice.queue_depth);
    scheduler_use(p->s, threads);
    read_queue_use(p->q, (uint32_t)depth);
}

void pipeline_beside(struct pipeline *p, const uint32_t *beside)
{
    p->c.beside = beside;
}

/* ---- a worker ---- */

static int hidden_rows(const struct job *j, struct counts *c, struct err *e)
{
    const uint8_t *rows = NULL;
    int r = j->predictors ? predictor_prefetch_rows(j->predictors, j->from, j->to, &rows, &c->verified, e) : 0;
    if (r == 0)
        compute_hidden(j->prediction, j->from, j->to, rows);
    return r;
}

static int scores(const struct job *j, int worker, struct counts *c, struct err *e)
{
    const uint8_t *rows = NULL;
    const float *bias = NULL;
    int r = j->predictors ? predictor_prefetch_range(j->predictors, j->from, &rows, &bias, &c->verified, e) : 0;
    if (r == 0)
        c->scored += compute_scores(j->prediction, j->from, rows, bias, worker);
    return r;
}

static int predict(struct job *j, int worker, struct counts *c, struct err *e)
{
    int r = 0;
    int64_t start = progress_now_ns();
    if (j->kind == JOB_HIDDEN) {
        r = hidden_rows(j, c, e);
    } else if (j->kind == JOB_PREPARE) {
        if (j->selects)
            compute_hidden(j->prediction, 0, (uint32_t)j->prediction->of->pred.q->rank, NULL);
        compute_prepare(j->prediction);
    } else {
        r = scores(j, worker, c, e);
    }
    j->ns = (uint64_t)(progress_now_ns() - start);
    return r;
}

static int do_job(struct job *j, int worker, struct counts *c, struct err *e)
{
    if (j->kind >= JOB_HIDDEN)
        return predict(j, worker, c, e);
    if (j->kind == JOB_TILE) {
        compute_down(j->block, j->from, j->to, j->col0, j->n_cols, worker);
        return 0;
    }
    int r = read_queue_verify(&j->block->list[j->list], j->idx, j->n, &c->verified, e);
    if (r == 0)
        compute_entries(j->block, j->list, j->idx, j->n, worker, c);
    return r;
}

/* The coordinator's: lists and reads first, for they take no time; then, once, what its caller wants to begin beside the others' work. */
static void coordinate(struct pipeline *p)
{
    struct err e;
    pipeline_fn *fn = p->at_start;
    if (scheduler_coordinate(p->s, &e) < 0)
        scheduler_fail(p->s, &e);
    p->at_start = NULL;
    if (fn)
        fn(p->at_start_ctx);
}

static void work(void *ctx, int worker, int n_threads)
{
    struct pipeline *p = ctx;
    struct scheduler *s = p->s;
    struct job j;
    struct err e;
    (void)n_threads;
    for (;;) {
        unsigned seen = scheduler_version(s);
        if (worker == 0)
            coordinate(p);
        enum scheduler_taken got = scheduler_take(s, worker, &j);
        if (got == SCHEDULER_OVER)
            return;
        if (got == SCHEDULER_NOTHING) {
            if (worker > 0)
                scheduler_wait(s, worker, seen);
            else if (scheduler_idle(s, seen, &e) < 0)
                scheduler_fail(s, &e);
            continue;
        }
        struct counts c = { 0 };
        int r = do_job(&j, worker, &c, &e);
        scheduler_finish(s, &j, &c, r < 0 ? &e : NULL);
    }
}

/* ---- a layer ---- */

void pipeline_at_start(struct pipeline *p, pipeline_fn *fn, void *ctx)
{
    p->at_start = fn;
    p->at_start_ctx = ctx;
}

void pipeline_begin(struct pipeline *p, int predicted)
{
    p->predicted = predicted;
}

int pipeline_prefetch(struct pipeline *p, int layer, const struct pipeline_ffn *f, int n, struct err *e)
{
    int blocks[SCHEDULE_MAX_BLOCKS] = { 0 };
    assert(n <= SCHEDULE_MAX_BLOCKS);
    for (int i = 0; i < n; i++)
        blocks[i] = f[i].block;
    scheduler_begin(p->s, layer, blocks, n, p->predicted);
    for (int i = 0; i < n; i++)
        scheduler_block(p->s, i)->passing = f[i].passing;
    p->prepared = 1;
    return p->c.no_prefetch ? 0 : scheduler_read(p->s, SCHEDULE_READS_AHEAD, 1, e);
}

int pipeline_expects(struct pipeline *p, int layer)
{
    return expert_prefetch_wants(read_queue_experts(p->q), layer);
}

void pipeline_expect(struct pipeline *p, int layer, const uint16_t *blocks, int n)
{
    expert_prefetch_begin(read_queue_experts(p->q), layer, blocks, n);
}

void pipeline_follow(struct pipeline *p, int layer, const uint16_t *blocks, int n)
{
    read_queue_follow(p->q, layer, blocks, n);
}

int pipeline_quiet(const struct pipeline *p)
{
    return !p->prepared && !read_queue_in_flight(p->q) && !expert_prefetch_busy(read_queue_experts(p->q)) && !read_queue_follows(p->q) &&
           !rest_reads_busy(read_queue_rest(p->q));
}

int pipeline_drain(struct pipeline *p, struct err *e)
{
    struct expert_prefetch *f = read_queue_experts(p->q);
    int r = 0;
    assert(!p->prepared);
    expert_prefetch_begin(f, 0, NULL, 0);
    while (r >= 0 && expert_prefetch_in_flight(f))
        r = scheduler_collect(p->s, 1, e);
    return r;
}

int pipeline_poll(struct pipeline *p, struct err *e)
{
    struct expert_prefetch *f = read_queue_experts(p->q);
    int r;
    if (!(p->prepared && read_queue_in_flight(p->q)) && !expert_prefetch_busy(f) && !read_queue_follows(p->q) &&
        (p->c.no_prefetch || !rest_reads_busy(read_queue_rest(p->q))))
        return 0;
    if ((r = scheduler_collect(p->s, 0, e)) < 0 || (!p->prepared && (r = scheduler_follow(p->s, e)) < 0))
        return r;
    return p->prepared ? scheduler_read(p->s, UINT32_MAX, 1, e) : expert_prefetch_issue(f, p->depth, e);
}

/* Blocks that were prepared are those that come. */
static int prepare(struct pipeline *p, int layer, const struct pipeline_ffn *f, int n, struct err *e)
{
    if (!p->prepared)
        return pipeline_prefetch(p, layer, f, n, e);
    assert(scheduler_blocks(p->s) == n);
    for (int i = 0; i < n; i++)
        assert(scheduler_block(p->s, i)->layer == layer && scheduler_block(p->s, i)->block == f[i].block);
    return 0;
}

/* What predictors see; then everybody works until the layer, or its prediction, is done. Where an accelerator has all of it nobody is
 * woken. */
static int run(struct pipeline *p, struct pipeline_ffn *f, int n, int alone, struct err *e)
{
    struct acts *in[SCHEDULE_MAX_BLOCKS];
    int some = alone;
    for (int i = 0; i < n; i++) {
        in[i] = f[i].seen.f32 ? &f[i].seen : &f[i].in;
        some |= scheduler_block(p->s, i)->beside < scheduler_block(p->s, i)->rest;
    }
    scheduler_inputs(p->s, in);
    scheduler_start(p->s, alone);
    if (some)
        pool_share(p->c.pool, work, p);
    else
        work(p, 0, 1);
    return scheduler_end(p->s, e);
}

int pipeline_predict(struct pipeline *p, int layer, struct pipeline_ffn *f, int n, struct err *e)
{
    int64_t start = progress_now_ns();
    uint64_t stalled = scheduler_stall_ns(p->s);
    int r = prepare(p, layer, f, n, e);
    if (r < 0)
        return r;
    r = run(p, f, n, 1, e);
    stalled = scheduler_stall_ns(p->s) - stalled;
    p->stats.predict_ns += (uint64_t)(progress_now_ns() - start) - stalled;
    p->stats.predict_stall_ns += stalled;
    return r;
}

static void add_counts(struct pipeline *p, int n)
{
    const struct counts c = scheduler_counts(p->s);
    uint64_t possible = 0;
    for (int i = 0; i < n; i++)
        possible += (uint64_t)scheduler_block(p->s, i)->rest - scheduler_block(p->s, i)->beside;
    struct pipeline_stats *s = &p->stats;
    s->verified.bytes += c.verified.bytes;
    s->verified.ns += c.verified.ns;
    s->verified.repaired += c.verified.repaired;
    s->neurons_hot += c.active_hot;
    s->neurons_cold += c.active_cold;
    s->neurons_read += c.active_read;
    s->neurons_possible += possible;
    s->neurons_computed += scheduler_block(p->s, 0)->pred.on ? c.computed : possible;
    s->neurons_scored += c.scored;
    s->predict_ns += scheduler_predicted_ns(p->s) / (uint64_t)p->threads;
}

struct outs {
    const struct pipeline_ffn *f;
    size_t d_model;
};

static void clear_some(void *ctx, int begin, int end, int worker)
{
    const struct outs *o = ctx;
    (void)worker;
    for (const struct pipeline_ffn *f = o->f + begin; f < o->f + end; f++)
        memset(f->out, 0, (size_t)f->in.n_tokens * o->d_model * sizeof *f->out);
}

static void clear(struct pipeline *p, const struct pipeline_ffn *f, int n)
{
    struct outs o = { f, (size_t)p->c.d_model };
    uint64_t tokens = 0;
    for (int i = 0; i < n; i++)
        tokens += (uint64_t)f[i].in.n_tokens;
    pool_for(p->c.pool, n, pool_grain(p->c.pool, n, tokens * o.d_model * sizeof *f->out), clear_some, &o);
}

int pipeline_run(struct pipeline *p, int layer, struct pipeline_ffn *f, int n, struct err *e)
{
    int r = prepare(p, layer, f, n, e);
    if (r < 0) {
        p->at_start = NULL; /* whose context is its caller's, and may be gone */
        return r;
    }
    p->prepared = 0;
    for (int i = 0; i < n; i++) {
        struct block *b = scheduler_block(p->s, i);
        b->rows = f[i].rows;
        b->out = f[i].out;
        for (int role = LAYOUT_GATE; role <= LAYOUT_UP; role++) {
            enum kernels_act form = kernels_act_form(b->shape->type[role], p->c.act_q8);
            b->x[form] = acts_in_form(&f[i].in, form, p->c.pool, &b->x_stride[form]);
        }
    }
    clear(p, f, n);
    if ((r = run(p, f, n, 0, e)) == 0)
        add_counts(p, n);
    return r;
}

/* ---- the rest of FFNs ---- */

void pipeline_leave_rest(struct pipeline *p, const int *layers, int n)
{
    scheduler_leave_rest(p->s, n > 0);
    rest_reads_begin(read_queue_rest(p->q), layers, n);
}

int pipeline_rest_poll(struct pipeline *p, struct err *e)
{
    int r = scheduler_collect(p->s, 0, e);
    return r < 0 ? r : scheduler_follow(p->s, e);
}

int pipeline_rest_done(struct pipeline *p, struct err *e)
{
    rest_reads_done(read_queue_rest(p->q));
    return pipeline_rest_poll(p, e);
}

struct verifying {
    const struct pipeline_config *c;
    const struct rest_data *data;
    pthread_mutex_t lock;
    struct verify_counts counts; /* guarded by lock */
    struct err why;              /* likewise; code 0: none */
};

static void verify_units(void *ctx, int begin, int end, int worker)
{
    struct verifying *v = ctx;
    struct verify_counts c = { 0 };
    struct err e = { 0 };
    int64_t start = progress_now_ns();
    int r = 0;
    (void)worker;
    for (int i = begin; i < end && r == 0; i++)
        r = rest_reads_verify(v->c, v->data, (uint32_t)i, &c, &e);
    pthread_mutex_lock(&v->lock);
    v->counts.bytes += c.bytes;
    v->counts.ns += c.bytes ? (uint64_t)(progress_now_ns() - start) : 0;
    v->counts.repaired += c.repaired;
    if (r < 0 && !v->why.code)
        v->why = e;
    pthread_mutex_unlock(&v->lock);
}

/* By all threads: they have nothing else to do. */
static int verify_rest(struct pipeline *p, const struct rest_data *d, struct err *e)
{
    struct verifying v = { .c = &p->c, .data = d, .lock = PTHREAD_MUTEX_INITIALIZER };
    int n = (int)rest_reads_units(&p->c, d), grain = n / (4 * p->threads);
    if (!p->c.verifier->checks)
        return 0;
    pool_for(p->c.pool, n, grain > 0 ? grain : 1, verify_units, &v);
    p->stats.verified.bytes += v.counts.bytes;
    p->stats.verified.ns += v.counts.ns;
    p->stats.verified.repaired += v.counts.repaired;
    if (v.why.code)
        *e = v.why;
    return v.why.code;
}

int pipeline_rest_next(struct pipeline *p, int layer, struct rest_data *out, struct err *e)
{
    int r = pipeline_rest_poll(p, e), there;
    while (r >= 0 && (there = rest_reads_next(read_queue_rest(p->q), layer, out)) == 2) {
        int64_t t = progress_now_ns();
        if ((r = scheduler_collect(p->s, 1, e)) >= 0)
            r = scheduler_follow(p->s, e);
        p->stats.stall_ns += (uint64_t)(progress_now_ns() - t);
    }
    if (r < 0 || !there)
        return r < 0 ? r : 0;
    r = verify_rest(p, out, e);
    return r < 0 ? r : 1;
}

struct pipeline_stats pipeline_stats(const struct pipeline *p)
{
    struct pipeline_stats s = p->stats;
    const struct predictor_prefetch *f = read_queue_predictors(p->q);
    read_queue_gates(p->q, &s.gate_lookups, &s.gate_hits);
    s.stall_ns += scheduler_stall_ns(p->s);
    const struct expert_prefetch_stats x = expert_prefetch_stats(read_queue_experts(p->q));
    s.prefetched = x.reads;
    s.prefetches_used = x.taken;
    s.predictor_bytes = f ? predictor_prefetch_bytes(f) : 0;
    return s;
}
