/* The FFN of one (layer, block), as README.md draws it. Two lists hold what has to be computed, in
 * pack order: gate entries (units of a part that holds only gates) and neuron entries (units, or
 * hot clusters, whose Down rows count). The coordinator, worker 0, owns the cache, the read
 * buffers and the growth of the lists; between its rounds it computes like everybody. Workers take
 * ready entries in any order and write h[t][position]; Down is summed by column tiles, each a strict walk
 * through the neuron list up to the frontier, the first entry whose h is not there yet. So the bits
 * of every column depend on the pack's order alone.
 *
 *      gates ──► active? ──► resolve (pack order): hot │ cached │ missing ──► read
 *                                     │        │            │
 *                                     ▼        ▼            ▼ arrives, in any order
 *                               [ready: up, h] ...................   any worker
 *                                     │ done
 *                     frontier ───────┴──►  tile 0 │ tile 1 │ ...    walk in order
 *                     retired  = slowest tile: unpin, free the buffer
 *
 * Why it cannot lock up: reads of neuron entries start in list order and an entry keeps its buffer only
 * until it is retired; so when no buffer is free, either a gate (which frees its buffer once computed)
 * or an entry at the frontier holds one, and both move without further reads.
 *
 * Experts of a layer are passes of their own that run together: each has its lists, tiles and output; workers, cache and
 * buffers are common. */
#include "runtime/pipeline/pipeline_impl.h"

#include "common/base/progress.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_LOOKS 2000

/* ---- creation ---- */

static int new_passes(struct pipeline *p)
{
    int d_model = p->c.d_model, per = (d_model / p->n_threads + 31) / 32 * 32; /* blocks of weights */
    p->n_tiles = (d_model + per - 1) / per;
    p->most = p->c.scratch.blocks;
    p->pass = calloc((size_t)p->most, sizeof *p->pass);
    for (int i = 0; p->pass && i < p->most; i++) {
        struct pass *s = &p->pass[i];
        s->pipe = p;
        s->c = &p->c;
        if (!(s->tiles = calloc((size_t)p->n_tiles, sizeof *s->tiles)))
            return 0;
        for (int k = 0; k < p->n_tiles; k++) {
            s->tiles[k].col0 = k * per;
            s->tiles[k].n_cols = k * per + per > d_model ? d_model - k * per : per;
        }
    }
    return p->pass != NULL;
}

struct pipeline *pipeline_new(const struct pipeline_config *c, struct err *e)
{
    _Static_assert(sizeof(struct buffer) + sizeof(uint32_t) <= BUDGET_READ_BYTES, "read state");
    _Static_assert(sizeof(struct entry) + sizeof(uint32_t) <= BUDGET_ENTRY_BYTES * 2 / 3, "entries");
    struct pipeline *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(e, ERR_NOMEM, "out of memory for the pipeline");
        return NULL;
    }
    p->c = *c;
    p->n_threads = pool_threads(c->pool);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    if (!new_passes(p)) {
        pipeline_free(p);
        err_set(e, ERR_NOMEM, "out of memory for the pipeline");
        return NULL;
    }
    long cpus = 0;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        cpus = CPU_COUNT(&mask);
    int lanes = strcmp(c->io->backend->name, "pread") ? 0 : c->choice.io_lanes;
    p->spin = p->n_threads + lanes <= cpus;
    p->n_buffers = (uint32_t)c->choice.queue_depth;
    p->buffer_bytes = (uint32_t)budget_read_bytes(&c->shape, c->choice.read_bytes);
    uint8_t *m = c->memory.reads;
    p->buffers = (struct buffer *)m;
    p->free_buffers = (uint32_t *)(m + p->n_buffers * sizeof *p->buffers);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        p->buffers[i].req.buf = c->staging + (size_t)i * p->buffer_bytes;
        p->buffers[i].req.tag = i;
        p->free_buffers[p->n_free++] = p->n_buffers - 1 - i;
    }
    for (int i = 0; i < p->most; i++)
        pipeline_take_lists(&p->pass[i]);
    prediction_take_memory(p);
    if (prediction_new(p, e) < 0) {
        pipeline_free(p);
        return NULL;
    }
    return p;
}

void pipeline_free(struct pipeline *p)
{
    if (!p)
        return;
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    predictor_prefetch_free(p->now.predictor_prefetch);
    for (int i = 0; p->pass && i < p->most; i++)
        free(p->pass[i].tiles);
    free(p->pass);
    free(p);
}

/* ---- taking and finishing jobs; lock held ---- */

/* Gates tell which reads are needed. Other entries may take their time where nothing is read, or by those who do not read. */
static uint32_t job_bytes(const struct pipeline *p, int list, int worker)
{
    uint32_t reads = atomic_load_explicit(&p->in_flight, memory_order_relaxed), bytes = reads * JOB_PER_READ;
    if (list == LIST_NEURON && (!reads || worker > 0))
        return BUDGET_JOB_BYTES;
    return bytes < JOB_LEAST ? JOB_LEAST : bytes < BUDGET_JOB_BYTES ? bytes : BUDGET_JOB_BYTES;
}

static int take_ready(struct pass *p, int list, int worker, struct job *j)
{
    struct list *l = &p->list[list];
    uint32_t threads = (uint32_t)p->pipe->n_threads, most = job_bytes(p->pipe, list, worker);
    if (!l->ring_n)
        return 0;
    uint32_t bytes = 0, share = (l->ring_n + threads - 1) / threads;
    j->kind = JOB_ENTRIES_READY;
    j->pass = p;
    j->list = list;
    j->n = 0;
    while (l->ring_n && j->n < JOB_ENTRIES && (uint32_t)j->n < share && bytes < most) {
        uint32_t i = l->ring[l->ring_head];
        l->ring_head = l->ring_head + 1 == l->cap ? 0 : l->ring_head + 1;
        l->ring_n--;
        j->idx[j->n++] = i;
        l->ring_rows -= rows_of(&l->e[i]);
        bytes += rows_of(&l->e[i]) * p->c->shape.part[l->part].record_bytes;
    }
    return 1;
}

static void start_tiles(struct pass *p, int i, int n, struct job *j)
{
    const struct tile *t = &p->tiles[i];
    *j = (struct job){ .kind = JOB_TILE, .pass = p, .tile = i, .n_tiles = n, .from = t->done, .to = p->frontier, .rows = t->rows };
    for (uint32_t q = j->from; q < j->to; q++)
        if ((j->rows += rows_of(&p->list[LIST_NEURON].e[q])) - t->rows >= BUDGET_DOWN_ROWS)
            j->to = q + 1;
    for (int k = 0; k < n; k++)
        p->tiles[i + k].busy = 1;
}

static int take_tile(struct pass *p, int worker, struct job *j)
{
    for (int k = 0; k < p->pipe->n_tiles; k++) {
        int i = (worker + k) % p->pipe->n_tiles;
        if (p->tiles[i].busy || p->tiles[i].done == p->frontier)
            continue;
        start_tiles(p, i, 1, j);
        return 1;
    }
    return 0;
}

/* Ready neurons of all passes, or of one. */
static uint32_t ready_rows(const struct pipeline *p, const struct pass *only)
{
    uint32_t rows = 0;
    for (const struct pass *s = p->pass; s < p->pass + p->n_passes; s++)
        rows += !only || s == only ? s->list[LIST_NEURON].ring_rows : 0;
    return rows;
}

/* Rows that are read by halves come at five sixths of the rate of whole ones, so two neighbouring tiles go to one worker
 * while there is as much to compute for each of the rest. own: the worker has computed these neurons itself, and sums them
 * while the processor still knows their pages. */
static int take_pair(struct pass *p, int own, struct job *j)
{
    uint32_t least = own ? BUDGET_OWN_ROWS : BUDGET_DOWN_ROWS;
    if (ready_rows(p->pipe, own ? NULL : p) < (uint32_t)(p->pipe->n_threads - 1) * BUDGET_DOWN_ROWS)
        return 0;
    for (int i = 0; i + 1 < p->pipe->n_tiles; i += 2) {
        const struct tile *t = &p->tiles[i];
        if (t[0].busy || t[1].busy || t[0].done != t[1].done || p->frontier_rows - t->rows < least)
            continue;
        start_tiles(p, i, 2, j);
        return 1;
    }
    return 0;
}

enum wanted { GATES = LIST_GATE, NEURONS = LIST_NEURON, TILE, PAIR };

/* Of the oldest pass that has such work; where there are as many passes as workers, each begins with one of its own. */
static int take_any(struct pipeline *p, enum wanted what, int worker, struct job *j)
{
    int got = 0, apart = p->n_passes >= p->n_threads;
    for (int i = 0; i < p->n_passes && !got; i++) {
        struct pass *s = &p->pass[apart ? (worker + i) % p->n_passes : i];
        if (what == TILE)
            got = take_tile(s, worker, j);
        else
            got = what == PAIR ? take_pair(s, apart && i == 0, j) : take_ready(s, (int)what, worker, j);
    }
    return got;
}

/* What tells which reads are needed comes first: predicting, then gates. When reads wait for buffers, what frees
 * buffers comes before. Down comes last, but for what pairs of tiles can do beside the neurons. */
static int take(struct pipeline *p, int worker, struct job *j)
{
    j->kind = JOB_NONE;
    if (p->failed || !p->unfinished)
        return 0;
    if (p->hold) {
        p->hold = 2;
        return 0;
    }
    if (p->now.alone)
        return prediction_take(p, j);
    return (p->pressure && take_any(p, TILE, worker, j)) || prediction_take(p, j) || take_any(p, GATES, worker, j) ||
           take_any(p, PAIR, worker, j) || take_any(p, NEURONS, worker, j) || take_any(p, TILE, worker, j);
}

void pipeline_changed(struct pipeline *p)
{
    atomic_fetch_add(&p->version, 1);
    if (p->waiters)
        pthread_cond_broadcast(&p->wake);
}

void pipeline_check_finished(struct pass *p)
{
    if (!p->all_resolved || p->finished)
        return;
    for (int i = 0; i < p->pipe->n_tiles; i++)
        if (p->tiles[i].done < p->published)
            return;
    p->finished = 1;
    p->pipe->unfinished--;
}

static void finish_entries(struct pass *p, const struct job *j)
{
    struct list *l = &p->list[j->list];
    uint32_t cluster = p->c->shape.l.cluster_neurons;
    for (int i = 0; i < j->n; i++) {
        struct entry *e = &l->e[j->idx[i]];
        e->done = 1;
        if (j->list == LIST_GATE)
            p->gate_left[e->pos0 / cluster] -= e->n;
    }
    while (p->gate_frontier < p->c->shape.n_clusters && !p->gate_left[p->gate_frontier])
        p->gate_frontier++;
    while (p->frontier < p->published && p->list[LIST_NEURON].e[p->frontier].done)
        p->frontier_rows += rows_of(&p->list[LIST_NEURON].e[p->frontier++]);
}

static void finish(struct pipeline *p, const struct job *j, const struct counts *c)
{
    p->counts.verified.bytes += c->verified.bytes;
    p->counts.verified.ns += c->verified.ns;
    p->counts.verified.repaired += c->verified.repaired;
    if (j->kind >= JOB_HIDDEN) {
        prediction_finish(p, j);
    } else if (j->kind == JOB_TILE) {
        for (struct tile *t = &j->pass->tiles[j->tile]; t < &j->pass->tiles[j->tile + j->n_tiles]; t++)
            t->busy = 0, t->done = j->to, t->rows = j->rows;
        pipeline_check_finished(j->pass);
    } else {
        finish_entries(j->pass, j);
        p->counts.active_hot += c->active_hot;
        p->counts.active_cold += c->active_cold;
        p->counts.active_read += c->active_read;
        p->counts.computed += c->computed;
    }
    pipeline_changed(p);
}

/* ---- the coordinator ---- */

static int coordinate(struct pipeline *p)
{
    int r = pipeline_collect(p, 0);
    if (r < 0)
        return r;
    prediction_list(p);
    for (int i = 0; i < p->n_passes; i++) {
        pipeline_resolve(&p->pass[i]);
        pipeline_retire(&p->pass[i]);
    }
    if (!(p->now.alone && p->c.no_prefetch) && (r = pipeline_issue(p, p->now.alone ? BUDGET_READS_AHEAD : UINT32_MAX)) < 0)
        return r;
    return prediction_feed(p, !p->c.no_prefetch);
}

/* With no_overlap: jobs are withheld until every read that can be made has arrived. */
static int coordinate_apart(struct pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->hold = p->hold ? p->hold : 1;
    pthread_mutex_unlock(&p->lock);
    int r = coordinate(p);
    int64_t t = progress_now_ns();
    while (r == 0 && p->c.io->in_flight)
        if ((r = pipeline_collect(p, 1)) == 0 && (r = pipeline_issue(p, UINT32_MAX)) == 0)
            r = prediction_feed(p, 0);
    p->stats.stall_ns += (uint64_t)(progress_now_ns() - t);
    pthread_mutex_lock(&p->lock);
    if (p->hold == 2)
        pipeline_changed(p);
    p->hold = 0;
    pthread_mutex_unlock(&p->lock);
    return r;
}

/* ---- the pass ---- */

/* Lock held. The first failure is the one that is reported. */
static void fail(struct pipeline *p, const struct err *story)
{
    if (!p->failed)
        p->story = *story;
    p->failed = 1;
    pipeline_changed(p);
}

static void fail_coordinator(struct pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    fail(p, p->err);
    pthread_mutex_unlock(&p->lock);
}

/* After the workers have left. */
static int outcome(const struct pipeline *p)
{
    if (p->failed)
        *p->err = p->story;
    return p->failed ? p->err->code : 0;
}

static void wait_change(struct pipeline *p, unsigned seen)
{
    for (int i = 0; p->spin && i < SPIN_LOOKS; i++) {
        if (atomic_load(&p->version) != seen)
            return;
        pool_relax();
    }
    pthread_mutex_lock(&p->lock);
    p->waiters++;
    while (atomic_load(&p->version) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    p->waiters--;
    pthread_mutex_unlock(&p->lock);
}

/* Nothing to compute for the coordinator. Reads in flight while others compute: look at both. Reads alone: sleep
 * until one arrives; that is the stall of telemetry. */
static int idle(struct pipeline *p, unsigned seen)
{
    pthread_mutex_lock(&p->lock);
    int alone = !p->busy && atomic_load(&p->version) == seen;
    pthread_mutex_unlock(&p->lock);
    if (!p->c.io->in_flight) {
        assert(!alone); /* else nothing would ever change */
        wait_change(p, seen);
        return 0;
    }
    if (!alone) {
        if (p->spin)
            pool_relax();
        else
            sched_yield();
        return 0;
    }
    int64_t t = progress_now_ns();
    int r = pipeline_collect(p, 1);
    p->stats.stall_ns += (uint64_t)(progress_now_ns() - t);
    return r;
}

static void work(void *ctx, int worker, int n_threads)
{
    struct pipeline *p = ctx;
    struct job j;
    (void)n_threads;
    for (;;) {
        unsigned seen = atomic_load(&p->version);
        if (worker == 0 && (p->c.no_overlap ? coordinate_apart : coordinate)(p) < 0)
            fail_coordinator(p);
        pthread_mutex_lock(&p->lock);
        int got = take(p, worker, &j), over = !p->unfinished || p->failed || p->now.complete;
        p->busy += got;
        pthread_mutex_unlock(&p->lock);
        if (over)
            return;
        if (!got) {
            if (worker > 0)
                wait_change(p, seen);
            else if (idle(p, seen) < 0)
                fail_coordinator(p);
            continue;
        }
        struct counts c = { 0 };
        struct err e;
        int r = 0;
        if (j.kind >= JOB_HIDDEN)
            r = prediction_work(p, &j, worker, &c, &e);
        else if (j.kind == JOB_TILE)
            pipeline_work_tile(&j, worker);
        else
            r = pipeline_work_entries(&j, worker, &c, &e);
        pthread_mutex_lock(&p->lock);
        p->busy--;
        if (r < 0)
            fail(p, &e);
        else
            finish(p, &j, &c);
        pthread_mutex_unlock(&p->lock);
    }
}

static void reset_pass(struct pass *p, int layer, int block)
{
    const struct pipeline_config *c = p->c;
    const struct layout_shape *s = &c->shape;
    uint32_t cluster = s->l.cluster_neurons, resident = UINT32_MAX;
    p->layer = layer;
    p->block = block;
    for (int i = 0; i < s->n_parts; i++) {
        p->hot[i] = config_hot_neurons(c, layer, block, i);
        p->hot_base[i] = c->hot + c->hot_at[config_hot(c, layer, block, i)];
        resident = p->hot[i] < resident ? p->hot[i] : resident;
    }
    p->fused = (resident + cluster - 1) / cluster; /* a resident prefix is whole clusters, or everything */
    p->all_resolved = p->finished = 0;
    for (int i = 0; i < p->pipe->n_tiles; i++)
        p->tiles[i].busy = 0, p->tiles[i].done = 0, p->tiles[i].rows = 0;
    pipeline_reset_lists(p);
    prediction_reset(p);
}

static void reset(struct pipeline *p, int layer, const struct pipeline_ffn *f, int n)
{
    assert(n >= 1 && n <= p->most);
    p->n_passes = p->unfinished = n;
    p->busy = p->failed = p->pressure = 0;
    p->hold = p->c.no_overlap;
    p->counts = (struct counts){ 0 };
    p->now.of = NULL;
    p->now.stage = STAGE_NONE;
    p->now.alone = p->now.complete = 0;
    p->now.ns = 0;
    for (int i = 0; i < n; i++)
        reset_pass(&p->pass[i], layer, f[i].block);
    for (int i = 0; i < n; i++)
        pipeline_list_known(&p->pass[i]);
}

void pipeline_begin(struct pipeline *p, int predicted)
{
    p->predicted = predicted;
}

struct pipeline_stats pipeline_stats(const struct pipeline *p)
{
    struct pipeline_stats s = p->stats;
    s.predictor_bytes = p->now.predictor_prefetch ? predictor_prefetch_bytes(p->now.predictor_prefetch) : 0;
    return s;
}

int pipeline_prefetch(struct pipeline *p, int layer, const struct pipeline_ffn *f, int n, struct err *e)
{
    p->err = e;
    reset(p, layer, f, n);
    p->prepared = 1;
    int r = p->c.no_prefetch ? 0 : pipeline_issue(p, BUDGET_READS_AHEAD);
    return r < 0 || p->c.no_prefetch ? r : prediction_feed(p, 1);
}

int pipeline_poll(struct pipeline *p, struct err *e)
{
    if (!p->prepared || !p->c.io->in_flight)
        return 0;
    p->err = e;
    int r = pipeline_collect(p, 0);
    if (r == 0)
        r = pipeline_issue(p, UINT32_MAX);
    return r < 0 ? r : prediction_feed(p, 1);
}

/* Blocks that were prepared are those that come. */
static int prepare(struct pipeline *p, int layer, const struct pipeline_ffn *f, int n, struct err *e)
{
    if (!p->prepared)
        return pipeline_prefetch(p, layer, f, n, e);
    assert(p->n_passes == n);
    for (int i = 0; i < n; i++)
        assert(p->pass[i].layer == layer && p->pass[i].block == f[i].block);
    (void)layer, (void)f, (void)n;
    p->err = e;
    return 0;
}

/* Inputs of prediction, where it has not been done. */
static void see_inputs(struct pipeline *p, struct pipeline_ffn *f)
{
    uint8_t *bits = p->now.bits;
    for (int i = 0; i < p->n_passes; i++) {
        struct pass *s = &p->pass[i];
        struct acts *in = f[i].seen.f32 ? &f[i].seen : &f[i].in;
        s->n_tokens = in->n_tokens;
        if (!s->pred.begun)
            prediction_input(s, in, bits);
        bits += (size_t)s->n_tokens * s->pred.row_bytes;
    }
}

static void add_verified(struct pipeline *p)
{
    p->stats.verified.bytes += p->counts.verified.bytes;
    p->stats.verified.ns += p->counts.verified.ns;
    p->stats.verified.repaired += p->counts.verified.repaired;
    p->counts.verified = (struct verify_counts){ 0 };
}

int pipeline_predict(struct pipeline *p, int layer, struct pipeline_ffn *f, int n, struct err *e)
{
    int64_t start = progress_now_ns();
    uint64_t stalled = p->stats.stall_ns;
    int r = prepare(p, layer, f, n, e);
    if (r < 0)
        return r;
    see_inputs(p, f);
    p->now.alone = 1;
    prediction_begin(p);
    pool_share(p->c.pool, work, p);
    p->now.alone = p->now.complete = 0;
    p->now.ns = 0;
    stalled = p->stats.stall_ns - stalled;
    p->stats.predict_ns += (uint64_t)(progress_now_ns() - start) - stalled;
    p->stats.predict_stall_ns += stalled;
    add_verified(p);
    return outcome(p);
}

static void add_counts(struct pipeline *p)
{
    uint64_t possible = (uint64_t)p->n_passes * (uint64_t)p->c.shape.n_ff;
    add_verified(p);
    p->stats.neurons_hot += p->counts.active_hot;
    p->stats.neurons_cold += p->counts.active_cold;
    p->stats.neurons_read += p->counts.active_read;
    p->stats.neurons_possible += possible;
    p->stats.neurons_computed += p->pass->pred.on ? p->counts.computed : possible;
    p->stats.predict_ns += p->now.ns / (uint64_t)p->n_threads;
}

int pipeline_run(struct pipeline *p, int layer, struct pipeline_ffn *f, int n, struct err *e)
{
    int r = prepare(p, layer, f, n, e);
    if (r < 0)
        return r;
    p->prepared = 0;
    see_inputs(p, f);
    for (int i = 0; i < n; i++) {
        struct pass *s = &p->pass[i];
        s->rows = f[i].rows;
        s->out = f[i].out;
        for (int role = LAYOUT_GATE; role <= LAYOUT_UP; role++) {
            enum kernels_act form = kernels_act_form(p->c.shape.l.type[role], p->c.act_q8);
            s->x[form] = acts_in_form(&f[i].in, form, &s->x_stride[form]);
        }
        memset(s->out, 0, (size_t)s->n_tokens * (size_t)p->c.d_model * sizeof *s->out);
    }
    prediction_begin(p);
    pool_share(p->c.pool, work, p);
    if ((r = outcome(p)) < 0)
        return r;
    for (int i = 0; i < n; i++)
        pipeline_retire(&p->pass[i]);
    add_counts(p);
    return 0;
}
