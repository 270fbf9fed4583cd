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
#include "runtime/pipeline/scheduler_impl.h"

#include "common/base/futex.h"
#include "common/base/progress.h"
#include "common/plan/rest.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>

#define SPIN_LOOKS   200 /* 3 to 10 us, about what sleeping and being woken costs: who looks for longer loses more than it saves */
#define TILE_ELEMS   32
#define JOB_LEAST    (128u << 10) /* of records for a worker, up to SCHEDULE_JOB_BYTES, and so many for each read in flight: */
#define JOB_PER_READ (16u << 10)  /* what is computed in one go should not take longer than those, for reads start and are
                                   * looked after between jobs */
#define JOB_PRESSED   (64u << 10) /* likewise, where reads wait for buffers: what is computed frees them when handed in; but for each */
#define JOB_PER_TOKEN (16u << 10)  /* token so many: Down of many is computed by fours */

/* ---- creation ---- */

/* Elements that a tile of Down is a multiple of: whole cache lines of floats, and whole quant blocks whatever the layer, if they
 * lie along a neuron's row. */
static int tile_grain(const struct layout_shapes *s)
{
    int most = TILE_ELEMS;
    if (s->l.form == LAYOUT_TILES)
        return most;
    for (int k = 0; k < s->l.n_kinds; k++) {
        int block = quant_traits(s->l.type[k][LAYOUT_DOWN])->block_elems;
        most = block > most ? block : most;
    }
    for (int k = 0; k < s->l.n_kinds; k++)
        assert(most % quant_traits(s->l.type[k][LAYOUT_DOWN])->block_elems == 0);
    return most;
}

/* Columns of a tile: a share for each thread. Fewer threads have no more tiles. */
static int tile_columns(const struct scheduler *s)
{
    int grain = tile_grain(s->c->shapes);
    return (s->c->d_model / s->n_threads + grain - 1) / grain * grain;
}

static int new_passes(struct scheduler *s)
{
    int d_model = s->c->d_model, per = tile_columns(s);
    s->n_tiles = (d_model + per - 1) / per;
    s->most = s->c->scratch.blocks;
    s->pass = calloc((size_t)s->most, sizeof *s->pass);
    s->lists = calloc((size_t)s->most * LISTS, sizeof *s->lists);
    for (int i = 0; s->pass && s->lists && i < s->most; i++) {
        struct pass *p = &s->pass[i];
        p->s = s;
        p->b.c = s->c;
        for (int l = 0; l < LISTS; l++)
            s->lists[i * LISTS + l] = &p->b.list[l];
        if (!(p->tiles = calloc((size_t)s->n_tiles, sizeof *p->tiles)))
            return 0;
    }
    return s->pass && s->lists;
}

static void set_tiles(struct scheduler *s)
{
    int d_model = s->c->d_model, per = tile_columns(s);
    s->n_tiles = (d_model + per - 1) / per;
    for (int i = 0; i < s->most; i++)
        for (int k = 0; k < s->n_tiles; k++) {
            s->pass[i].tiles[k].col0 = k * per;
            s->pass[i].tiles[k].n_cols = k * per + per > d_model ? d_model - k * per : per;
        }
}

static void set_spin(struct scheduler *s)
{
    long cpus = 0;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        cpus = CPU_COUNT(&mask);
    int lanes = strcmp(s->c->io->backend->name, "pread") ? 0 : s->c->choice.io_lanes;
    s->spin = s->n_threads + lanes <= cpus;
}

void scheduler_use(struct scheduler *s, int threads)
{
    s->n_threads = threads;
    set_tiles(s);
    set_spin(s);
}

/* It is held for less time than sleeping for it takes: who finds it taken looks again for a while, where the C library can. */
static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
#ifdef __GLIBC__
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(lock, &a);
    pthread_mutexattr_destroy(&a);
}

struct scheduler *scheduler_new(const struct pipeline_config *c, struct read_queue *q, struct err *e)
{
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s) {
        err_set(e, ERR_NOMEM, "out of memory for the scheduler");
        return NULL;
    }
    s->c = c;
    s->q = q;
    s->n_threads = c->choice.threads;
    init_lock(&s->lock);
    if (!new_passes(s)) {
        scheduler_free(s);
        err_set(e, ERR_NOMEM, "out of memory for the scheduler");
        return NULL;
    }
    set_tiles(s);
    set_spin(s);
    for (int i = 0; i < s->most; i++)
        pass_take_lists(&s->pass[i]);
    prediction_take_memory(s);
    return s;
}

void scheduler_free(struct scheduler *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    for (int i = 0; s->pass && i < s->most; i++)
        free(s->pass[i].tiles);
    free(s->pass);
    free(s->lists);
    free(s);
}

/* ---- taking and finishing jobs; lock held ---- */

/* Gates tell which reads are needed. Other entries may take their time where nothing is read, or by those who do not read, unless reads
 * wait for the buffers that they hold and the drive will soon have none to go on with. */
static uint32_t job_bytes(const struct pass *p, enum list_id list, int worker)
{
    struct scheduler *s = p->s;
    uint32_t reads = read_queue_reads(s->q), bytes = reads * JOB_PER_READ, tokens = (uint32_t)p->b.n_tokens * JOB_PER_TOKEN;
    if (s->pressure && reads < (uint32_t)s->c->choice.queue_depth / 2)
        return tokens < JOB_PRESSED ? JOB_PRESSED : tokens < SCHEDULE_JOB_BYTES ? tokens : SCHEDULE_JOB_BYTES;
    if (list == LIST_NEURON && (!reads || worker > 0))
        return SCHEDULE_JOB_BYTES;
    return bytes < JOB_LEAST ? JOB_LEAST : bytes < SCHEDULE_JOB_BYTES ? bytes : SCHEDULE_JOB_BYTES;
}

static int take_ready(struct pass *p, enum list_id list, int worker, struct job *j)
{
    const struct list *l = &p->b.list[list];
    struct ring *g = &p->ring[list];
    uint32_t threads = (uint32_t)p->s->n_threads, most = job_bytes(p, list, worker);
    if (!g->n)
        return 0;
    uint32_t bytes = 0, share = (g->n + threads - 1) / threads;
    j->kind = JOB_ENTRIES_READY;
    j->block = &p->b;
    j->list = list;
    j->n = 0;
    while (g->n && j->n < JOB_ENTRIES && (uint32_t)j->n < share && bytes < most) {
        uint32_t i = g->e[g->head];
        g->head = g->head + 1 == l->cap ? 0 : g->head + 1;
        g->n--;
        j->idx[j->n++] = i;
        g->rows -= block_rows_of(&l->e[i]);
        bytes += layout_bytes(&p->b.shape->part[l->part], block_rows_of(&l->e[i]));
    }
    return 1;
}

static void start_tiles(struct pass *p, int i, int n, struct job *j)
{
    const struct tile *t = &p->tiles[i], *last = &p->tiles[i + n - 1];
    const struct entry *e = p->b.list[LIST_NEURON].e;
    *j = (struct job){ .kind = JOB_TILE, .block = &p->b, .tile = i, .n_tiles = n, .from = t->done, .to = p->frontier,
                       .rows = t->rows, .col0 = t->col0, .n_cols = last->col0 + last->n_cols - t->col0 };
    for (uint32_t q = j->from; q < j->to; q++)
        if ((j->rows += block_rows_of(&e[q])) - t->rows >= SCHEDULE_DOWN_ROWS)
            j->to = q + 1;
    for (int k = 0; k < n; k++)
        p->tiles[i + k].busy = 1;
}

static int take_tile(struct pass *p, int worker, struct job *j)
{
    for (int k = 0; k < p->s->n_tiles; k++) {
        int i = (worker + k) % p->s->n_tiles;
        if (p->tiles[i].busy || p->tiles[i].done == p->frontier)
            continue;
        start_tiles(p, i, 1, j);
        return 1;
    }
    return 0;
}

/* Ready neurons of all passes, or of one. */
static uint32_t ready_rows(const struct scheduler *s, const struct pass *only)
{
    uint32_t rows = 0;
    for (const struct pass *p = s->pass; p < s->pass + s->n_passes; p++)
        rows += !only || p == only ? p->ring[LIST_NEURON].rows : 0;
    return rows;
}

/* Rows that are read by halves come at five sixths of the rate of whole ones, so two neighbouring tiles go to one worker
 * while there is as much to compute for each of the rest. own: the worker has computed these neurons itself, and sums them
 * while the processor still knows their pages. */
static int take_pair(struct pass *p, int own, struct job *j)
{
    _Static_assert(SCHEDULE_TILES == 2, "a pair");
    uint32_t least = own ? SCHEDULE_OWN_ROWS : SCHEDULE_DOWN_ROWS;
    if (ready_rows(p->s, own ? NULL : p) < (uint32_t)(p->s->n_threads - 1) * SCHEDULE_DOWN_ROWS)
        return 0;
    for (int i = 0; i + 1 < p->s->n_tiles; i += SCHEDULE_TILES) {
        const struct tile *t = &p->tiles[i];
        if (t[0].busy || t[1].busy || t[0].done != t[1].done || p->frontier_rows - t->rows < least)
            continue;
        start_tiles(p, i, SCHEDULE_TILES, j);
        return 1;
    }
    return 0;
}

enum wanted { GATES = LIST_GATE, NEURONS = LIST_NEURON, TILE, PAIR };

/* Of the oldest pass that has such work; where there are as many passes as workers, each begins with one of its own. */
static int take_any(struct scheduler *s, enum wanted what, int worker, struct job *j)
{
    int got = 0, apart = s->n_passes >= s->n_threads;
    for (int i = 0; i < s->n_passes && !got; i++) {
        struct pass *p = &s->pass[apart ? (worker + i) % s->n_passes : i];
        if (what == TILE)
            got = take_tile(p, worker, j);
        else
            got = what == PAIR ? take_pair(p, apart && i == 0, j) : take_ready(p, (enum list_id)what, worker, j);
    }
    return got;
}

/* What frees buffers: sums of Down, and neurons that are ready for them. */
static int take_freeing(struct scheduler *s, int worker, struct job *j)
{
    return take_any(s, TILE, worker, j) || take_any(s, NEURONS, worker, j);
}

/* What tells which reads are needed comes first: predicting, then gates. But when reads wait for buffers more of them need not be
 * known, and what frees buffers comes before. Down comes last, but for what pairs of tiles can do beside the neurons. */
static int take(struct scheduler *s, int worker, struct job *j)
{
    j->kind = JOB_NONE;
    if (s->failed || !s->unfinished)
        return 0;
    if (s->hold) {
        s->hold = 2;
        return 0;
    }
    if (s->now.alone)
        return prediction_take(s, j);
    return (s->pressure && take_freeing(s, worker, j)) || prediction_take(s, j) || take_any(s, GATES, worker, j) ||
           take_any(s, PAIR, worker, j) || take_any(s, NEURONS, worker, j) || take_any(s, TILE, worker, j);
}

enum scheduler_taken scheduler_take(struct scheduler *s, int worker, struct job *j)
{
    pthread_mutex_lock(&s->lock);
    int got = take(s, worker, j), over = !s->unfinished || s->failed || s->now.complete;
    s->busy += got;
    pthread_mutex_unlock(&s->lock);
    return over ? SCHEDULER_OVER : got ? SCHEDULER_JOB : SCHEDULER_NOTHING;
}

/* Neurons of a pass that there is work for: their gates, Up, or sums of Down. */
static uint64_t rows_to_take(const struct pass *p)
{
    const int n = p->s->n_tiles;
    uint64_t rows = (uint64_t)p->ring[LIST_GATE].rows + p->ring[LIST_NEURON].rows, down = 0;
    for (const struct tile *t = p->tiles; t < p->tiles + n; t++)
        down += t->busy ? 0 : p->frontier_rows - t->rows;
    return rows + down / (uint64_t)n;
}

/* Workers that are worth waking, of those that sleep. Whoever changed something takes work itself next, so that what is less than a piece
 * waits for nobody. */
static int worth_waking(const struct scheduler *s)
{
    const int sleep = s->waiters - s->called;
    uint64_t bytes = 0;
    if (!s->unfinished || s->failed || s->now.complete || prediction_waits(s))
        return sleep;
    for (const struct pass *p = s->pass; p < s->pass + s->n_passes && !s->hold; p++)
        bytes += layout_bytes(&p->b.shape->part[p->b.list[LIST_NEURON].part], (uint32_t)rows_to_take(p)) * (uint64_t)p->b.n_tokens;
    return bytes / SCHEDULE_PIECE_BYTES < (uint64_t)sleep ? (int)(bytes / SCHEDULE_PIECE_BYTES) : sleep;
}

void scheduler_changed(struct scheduler *s)
{
    atomic_fetch_add(&s->version, 1);
    s->wakes_coordinator = s->coordinator_waits;
    if (s->waiters > s->called) {
        const int n = worth_waking(s);
        s->wakes = n > s->wakes ? n : s->wakes;
    }
}

/* Words change under the lock: who has read one there and does not sleep yet will not. Who is woken while the lock is held goes to sleep
 * again, for the lock. */
void scheduler_unlock(struct scheduler *s)
{
    const int n = s->wakes, coordinator = s->wakes_coordinator;
    s->wakes = s->wakes_coordinator = 0;
    s->called += n;
    s->coordinator_waits &= !coordinator;
    atomic_fetch_add(&s->wake, n > 0);
    atomic_fetch_add(&s->wake_coordinator, coordinator);
    pthread_mutex_unlock(&s->lock);
    if (coordinator)
        futex_wake(&s->wake_coordinator, 1);
    if (n)
        futex_wake(&s->wake, n);
}

void scheduler_check_finished(struct pass *p)
{
    if (!p->all_resolved || p->finished)
        return;
    for (int i = 0; i < p->s->n_tiles; i++)
        if (p->tiles[i].done < p->published)
            return;
    p->finished = 1;
    p->s->unfinished--;
}

static void finish_entries(struct pass *p, const struct job *j)
{
    struct list *l = &p->b.list[j->list];
    const struct entry *neurons = p->b.list[LIST_NEURON].e;
    const struct layout_shape *s = p->b.shape;
    for (int i = 0; i < j->n; i++) {
        struct entry *e = &l->e[j->idx[i]];
        e->done = 1;
        if (j->list == LIST_GATE)
            p->gate_left[e->pos0 / s->cluster_neurons] -= e->n;
    }
    while (p->gate_frontier < s->n_clusters && !p->gate_left[p->gate_frontier])
        p->gate_frontier++;
    while (p->frontier < p->published && neurons[p->frontier].done)
        p->frontier_rows += block_rows_of(&neurons[p->frontier++]);
}

static void add_counts(struct counts *to, const struct counts *c)
{
    to->active_hot += c->active_hot;
    to->active_cold += c->active_cold;
    to->active_read += c->active_read;
    to->scored += c->scored;
    to->computed += c->computed;
    to->verified.bytes += c->verified.bytes;
    to->verified.ns += c->verified.ns;
    to->verified.repaired += c->verified.repaired;
}

/* Lock held. The first failure is the one that is reported. */
static void fail(struct scheduler *s, const struct err *why)
{
    if (!s->failed)
        s->first_error = *why;
    s->failed = 1;
    scheduler_changed(s);
}

void scheduler_fail(struct scheduler *s, const struct err *why)
{
    pthread_mutex_lock(&s->lock);
    fail(s, why);
    scheduler_unlock(s);
}

static void finish(struct scheduler *s, const struct job *j, const struct counts *c)
{
    add_counts(&s->counts, c);
    if (j->kind >= JOB_HIDDEN) {
        prediction_finish(s, j);
    } else if (j->kind == JOB_TILE) {
        struct pass *p = pass_of(j->block);
        for (struct tile *t = &p->tiles[j->tile]; t < &p->tiles[j->tile + j->n_tiles]; t++)
            t->busy = 0, t->done = j->to, t->rows = j->rows;
        scheduler_check_finished(p);
    } else {
        finish_entries(pass_of(j->block), j);
    }
    scheduler_changed(s);
}

void scheduler_finish(struct scheduler *s, const struct job *j, const struct counts *c, const struct err *failed)
{
    pthread_mutex_lock(&s->lock);
    s->busy--;
    if (failed)
        fail(s, failed);
    else
        finish(s, j, c);
    scheduler_unlock(s);
}

/* ---- the coordinator ---- */

static int collect(struct scheduler *s, int wait, int *more, struct err *e)
{
    struct read_arrival came[READ_QUEUE_BATCH];
    int n = read_queue_collect(s->q, wait, came, more, e);
    for (int i = 0; i < n; i++) {
        const struct list *l = came[i].list;
        for (uint32_t k = came[i].first; k < came[i].first + came[i].n; k++)
            if (l->e[k].kind == KIND_ADMITTED || l->e[k].kind == KIND_STAGED)
                pass_ready(pass_of(l->of), (enum list_id)(l - l->of->list), k);
    }
    for (int i = 0; i < s->n_passes && n > 0; i++)
        pass_flush(&s->pass[i]);
    return n < 0 ? n : 0;
}

int scheduler_collect(struct scheduler *s, int wait, struct err *e)
{
    int more;
    return collect(s, wait, &more, e);
}

static int issue(struct scheduler *s, uint32_t most, struct err *e)
{
    int pressure, r = read_queue_issue(s->q, s->lists, s->n_passes * LISTS, most, &pressure, e);
    if (pressure != s->pressure) {
        pthread_mutex_lock(&s->lock);
        s->pressure = pressure;
        scheduler_changed(s);
        scheduler_unlock(s);
    }
    return r;
}

int scheduler_follow(struct scheduler *s, struct err *e)
{
    int pressure;
    return read_queue_issue(s->q, NULL, 0, UINT32_MAX, &pressure, e);
}

int scheduler_read(struct scheduler *s, uint32_t most, int ahead, struct err *e)
{
    int r = issue(s, most, e);
    return r < 0 ? r : prediction_feed(s, ahead, e);
}

/* What has arrived, what that tells, and reads in place of it. more: there may be other arrivals. */
static int follow_arrivals(struct scheduler *s, int *more, struct err *e)
{
    int r = collect(s, 0, more, e);
    if (r < 0)
        return r;
    prediction_list(s);
    for (int i = 0; i < s->n_passes; i++) {
        pass_resolve(&s->pass[i]);
        pass_retire(&s->pass[i]);
    }
    if (s->now.alone && s->c->no_prefetch)
        return prediction_feed(s, 0, e);
    return scheduler_read(s, s->now.alone ? SCHEDULE_READS_AHEAD : UINT32_MAX, !s->c->no_prefetch, e);
}

/* A drive may end all of its reads at once (a paravirtual one raises its interrupt when its queue is empty): it has new ones, and
 * workers have work, before everything that came is taken in. */
static int coordinate(struct scheduler *s, struct err *e)
{
    int more = 1, r = 0;
    while (r == 0 && more)
        r = follow_arrivals(s, &more, e);
    return r;
}

/* With no_overlap: jobs are withheld until every read that can be made has arrived. */
static int coordinate_apart(struct scheduler *s, struct err *e)
{
    pthread_mutex_lock(&s->lock);
    s->hold = s->hold ? s->hold : 1;
    pthread_mutex_unlock(&s->lock);
    int r = coordinate(s, e);
    int64_t t = progress_now_ns();
    while (r == 0 && read_queue_in_flight(s->q))
        if ((r = scheduler_collect(s, 1, e)) == 0)
            r = scheduler_read(s, UINT32_MAX, 0, e);
    s->stall_ns += (uint64_t)(progress_now_ns() - t);
    pthread_mutex_lock(&s->lock);
    if (s->hold == 2)
        scheduler_changed(s);
    s->hold = 0;
    scheduler_unlock(s);
    return r;
}

int scheduler_coordinate(struct scheduler *s, struct err *e)
{
    return s->c->no_overlap ? coordinate_apart(s, e) : coordinate(s, e);
}

/* ---- waiting ---- */

unsigned scheduler_version(struct scheduler *s)
{
    return atomic_load(&s->version);
}

void scheduler_wait(struct scheduler *s, int worker, unsigned seen)
{
    for (int i = 0; s->spin && i < SPIN_LOOKS; i++) {
        if (atomic_load(&s->version) != seen)
            return;
        pool_relax();
    }
    atomic_uint *word = worker ? &s->wake : &s->wake_coordinator;
    pthread_mutex_lock(&s->lock);
    s->waiters += worker > 0;
    while (atomic_load(&s->version) == seen) {
        const unsigned before = atomic_load(word);
        s->coordinator_waits |= !worker;
        pthread_mutex_unlock(&s->lock);
        futex_sleep(word, before);
        pthread_mutex_lock(&s->lock);
    }
    if (worker) {
        s->waiters--;
        s->called -= s->called > 0;
    } else {
        s->coordinator_waits = 0;
    }
    pthread_mutex_unlock(&s->lock);
    pool_woke(s->c->pool, worker);
}

/* Nothing to compute for the coordinator. Reads in flight while others compute: look at both. Reads alone: sleep
 * until one arrives; that is the stall of telemetry. */
int scheduler_idle(struct scheduler *s, unsigned seen, struct err *e)
{
    pthread_mutex_lock(&s->lock);
    int alone = !s->busy && atomic_load(&s->version) == seen;
    pthread_mutex_unlock(&s->lock);
    if (!read_queue_in_flight(s->q)) {
        assert(!alone); /* else nothing would ever change */
        scheduler_wait(s, 0, seen);
        return 0;
    }
    if (!alone) {
        if (s->spin)
            pool_relax();
        else
            sched_yield();
        return 0;
    }
    int64_t t = progress_now_ns();
    int r = scheduler_collect(s, 1, e);
    s->stall_ns += (uint64_t)(progress_now_ns() - t);
    pool_woke(s->c->pool, 0);
    return r;
}

/* ---- a layer ---- */

static void reset_pass(struct pass *p, int layer, int block)
{
    const struct pipeline_config *c = p->b.c;
    const struct layout_shape *s = layout_of(c->shapes, layer);
    uint32_t cluster = s->cluster_neurons, resident = UINT32_MAX;
    struct block *b = &p->b;
    b->layer = layer;
    b->block = block;
    b->shape = s;
    for (int i = 0; i < s->n_parts; i++) {
        b->hot[i] = config_hot_neurons(c, layer, block, i);
        b->hot_base[i] = c->hot + c->hot_at[config_hot(c, layer, block, i)];
        resident = b->hot[i] < resident ? b->hot[i] : resident;
    }
    b->beside = c->beside ? c->beside[config_block(c, layer, block)] : 0;
    assert(b->beside <= resident && (b->beside % cluster == 0 || b->beside == (uint32_t)s->n_ff));
    b->fused = (resident + cluster - 1) / cluster; /* a resident prefix is whole clusters, or everything */
    b->cold_scale = p->s->predicted ? c->cold_scale : 0;
    b->cold_from = c->always ? c->always[layer] : 0;
    b->rest = p->s->leaves_rest ? rest_first(s, b->hot) : (uint32_t)s->n_ff;
    p->all_resolved = p->finished = 0;
    for (int i = 0; i < p->s->n_tiles; i++)
        p->tiles[i].busy = 0, p->tiles[i].done = 0, p->tiles[i].rows = 0;
    pass_reset_lists(p);
    prediction_reset(p);
}

void scheduler_leave_rest(struct scheduler *s, int leave)
{
    s->leaves_rest = leave;
}

void scheduler_begin(struct scheduler *s, int layer, const int *blocks, int n, int predicted)
{
    assert(n >= 1 && n <= s->most);
    s->predicted = predicted;
    s->n_passes = s->unfinished = n;
    s->busy = s->failed = s->pressure = 0;
    s->hold = s->c->no_overlap;
    s->counts = (struct counts){ 0 };
    s->now.work.of = NULL;
    s->now.stage = STAGE_NONE;
    s->now.alone = s->now.complete = 0;
    s->now.ns = 0;
    read_queue_begin(s->q, layer);
    for (int i = 0; i < n; i++)
        reset_pass(&s->pass[i], layer, blocks[i]);
    for (int i = 0; i < n; i++)
        pass_list_known(&s->pass[i]);
}

struct block *scheduler_block(struct scheduler *s, int i)
{
    return &s->pass[i].b;
}

int scheduler_blocks(const struct scheduler *s)
{
    return s->n_passes;
}

void scheduler_inputs(struct scheduler *s, struct acts *const *in)
{
    uint8_t *bits = s->now.bits;
    for (int i = 0; i < s->n_passes; i++) {
        struct pass *p = &s->pass[i];
        p->b.n_tokens = in[i]->n_tokens;
        if (!p->begun)
            prediction_input(p, in[i], bits);
        if (bits) /* none where nothing is predicted */
            bits += (size_t)p->b.n_tokens * p->b.pred.row_bytes;
    }
}

void scheduler_start(struct scheduler *s, int alone)
{
    s->now.alone = alone;
    prediction_begin(s);
}

int scheduler_end(struct scheduler *s, struct err *e)
{
    int alone = s->now.alone;
    s->now.alone = s->now.complete = 0;
    s->now.ns = alone ? 0 : s->now.ns; /* the caller knows how long that took */
    if (s->failed) {
        *e = s->first_error;
        return e->code;
    }
    for (int i = 0; i < s->n_passes && !alone; i++)
        pass_retire(&s->pass[i]);
    return 0;
}

struct counts scheduler_counts(const struct scheduler *s)
{
    return s->counts;
}

uint64_t scheduler_predicted_ns(const struct scheduler *s)
{
    return s->now.ns;
}

uint64_t scheduler_stall_ns(const struct scheduler *s)
{
    return s->stall_ns;
}
