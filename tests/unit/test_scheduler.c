/* The scheduler without an engine and without arithmetic: which jobs there are, in what order and when, whoever does them and in
 * whatever order they end. Jobs are pretended to: a gate opens for every third neuron or so. */
#include "runtime/pipeline/scheduler_impl.h"

#include "common/kernels/acts.h"
#include "common/plan/schedule.h"
#include "tests/pipeline_sample.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RANK = 64, HELD = 4 };

static struct pipeline_sample s;
static struct read_queue *q;
static struct scheduler *sc;
static struct predict predictors[PS_LAYERS * PS_BLOCKS];
static float x[PS_D];

/* What is seen of each block. */
static struct seen {
    uint8_t gate[PS_FF], up[PS_FF];   /* how often */
    uint32_t summed[PS_D];            /* of a column: neuron entries */
    uint32_t hidden, prepared, scored; /* rows; times; neurons */
} seen[PS_BLOCKS];
static atomic_int wrong;              /* bytes that are not there; work out of order */
static int n_jobs[JOB_SCORES + 1];

static int opens(uint32_t neuron)
{
    return neuron * 7 % 22 < 7;
}

static int wanted(uint32_t neuron)
{
    return neuron < 32 || neuron / 40 % 3 == 1;
}

static void begin(struct pipeline_sample wanted_sample, int rank)
{
    static const signed char input[PS_LAYERS] = { PREDICT_FFN, PREDICT_FFN };
    static const uint32_t always[PS_LAYERS] = { 32, 32 };
    s = wanted_sample;
    s.tokens = 1;
    ps_open(&s);
    struct pipeline_config *c = &s.c;
    if (rank) {
        const struct budget_model b = { .h = s.pack.h, .shapes = s.pack.shapes };
        c->choice.predictors.rank = rank;
        if (budget_scratch(&b, &c->choice, &c->scratch, &s.e) < 0)
            exit(1);
        c->memory.predict = calloc(1, c->scratch.predict);
        for (int i = 0; i < PS_LAYERS * PS_BLOCKS; i++)
            predictors[i] = (struct predict){ .d_model = PS_D, .rank = rank, .n_ff = PS_FF, .type1 = QUANT_F32,
                                              .type2 = QUANT_F32, .row1 = PS_D * 4, .row2 = (size_t)rank * 4 };
        c->predictors = predictors, c->predictor = input, c->always = always;
    }
    q = read_queue_new(c, &s.e);
    sc = scheduler_new(c, q, &s.e);
    memset(seen, 0, sizeof seen);
    memset(n_jobs, 0, sizeof n_jobs);
    wrong = 0;
}

static void end(void)
{
    scheduler_free(sc);
    read_queue_free(q);
    free(s.c.memory.predict);
    ps_close(&s);
}

static void start(int n, int predicted)
{
    const int blocks[] = { 0, 1 };
    static struct acts acts; /* predictions look at it until scheduler_end */
    struct acts *in[] = { &acts, &acts };
    acts = (struct acts){ .f32 = x, .n_cols = PS_D, .n_tokens = 1 };
    scheduler_begin(sc, 1, blocks, n, predicted);
    scheduler_inputs(sc, in);
    scheduler_start(sc, 0);
}

/* ---- what a job is pretended to do ---- */

static void see_entries(const struct job *j)
{
    struct block *b = j->block;
    struct seen *v = &seen[b->block];
    const struct layout_shape *sh = &s.c.shapes->kind[0];
    const struct list *l = &b->list[j->list];
    for (int i = 0; i < j->n; i++) {
        struct entry *e = &l->e[j->idx[i]];
        int fused = j->list == LIST_NEURON && e->pos0 < b->fused * sh->cluster_neurons;
        uint32_t count = 0;
        wrong += e->done || memcmp(e->base, ps_record(&s, 1, b->block, l->part, e->pos0), sh->part[l->part].record_bytes);
        for (uint32_t k = e->pos0; k < e->pos0 + e->n; k++) {
            if (fused || l->work & DO_GATE) {
                v->gate[k]++;
                b->active[k] = (uint8_t)(opens(k) && (!b->pred.on || wanted(k)));
            }
            if (fused || l->work & DO_UP) {
                wrong += v->gate[k] == 0 && b->active[k];
                v->up[k] = (uint8_t)(v->up[k] + b->active[k]);
                count += b->active[k];
            }
        }
        if (e->kind == KIND_HOT && (fused || l->work & DO_UP))
            e->where = count;
    }
}

static void see_tile(const struct job *j)
{
    struct seen *v = &seen[j->block->block];
    const struct entry *e = j->block->list[LIST_NEURON].e;
    for (uint32_t i = j->from; i < j->to; i++)
        for (uint32_t k = e[i].pos0; k < e[i].pos0 + e[i].n; k++)
            wrong += j->block->active[k] && !v->up[k];
    for (int c = j->col0; c < j->col0 + j->n_cols; c++) {
        wrong += v->summed[c] != j->from;
        v->summed[c] = j->to;
    }
}

static void see_prediction(const struct job *j)
{
    struct block *b = j->prediction->of;
    struct seen *v = &seen[b->block];
    uint32_t last, first;
    if (j->kind == JOB_HIDDEN) {
        wrong += v->prepared > 0;
        v->hidden += j->to - j->from;
    } else if (j->kind == JOB_PREPARE) {
        wrong += v->hidden != RANK;
        v->prepared++;
    } else {
        first = block_range(b, j->from, &last);
        wrong += v->prepared != 1 || j->to != j->from + 1;
        v->scored += last - first;
        for (uint32_t k = first; k < last; k++)
            if (wanted(k))
                b->pred.bits[k / 8] |= (uint8_t)(1 << k % 8);
    }
}

static void pretend(const struct job *j)
{
    if (j->kind == JOB_ENTRIES_READY)
        see_entries(j);
    else if (j->kind == JOB_TILE)
        see_tile(j);
    else
        see_prediction(j);
}

static int clear_bits(int n)
{
    for (int i = 0; i < n; i++)
        if (scheduler_block(sc, i)->pred.on)
            memset(scheduler_block(sc, i)->pred.bits + 4, 0, PS_ROW_BYTES - 4); /* but for the 32 neurons that always count */
    return n;
}

/* One thread that is every worker: holds up to `held` jobs, and ends them in another order than it took them. */
static int drive(int n_workers, int held)
{
    static struct job job[HELD];
    const struct counts none = { 0 };
    struct err e = { 0 };
    int n = 0, idle = 0;
    for (uint32_t step = 0; idle < 1000; step++) {
        unsigned version = scheduler_version(sc);
        int worker = (int)step % n_workers;
        if (worker == 0 && scheduler_coordinate(sc, &e) < 0)
            scheduler_fail(sc, &e);
        enum scheduler_taken got = n < held ? scheduler_take(sc, worker, &job[n]) : SCHEDULER_NOTHING;
        if (got == SCHEDULER_OVER && n == 0)
            return scheduler_end(sc, &s.e);
        if (got == SCHEDULER_JOB) {
            n_jobs[job[n++].kind]++;
            if (n < held)
                continue;
        }
        if (n == 0) {
            if (worker == 0 && scheduler_idle(sc, version, &e) < 0)
                scheduler_fail(sc, &e);
            idle++;
            continue;
        }
        int i = (int)(step * 5) % n;
        pretend(&job[i]);
        scheduler_finish(sc, &job[i], &none, NULL);
        job[i] = job[--n];
        idle = 0;
    }
    return -1;
}

/* Every gate that counts is computed once, every neuron that is active once, and every column is summed to the end. */
static int complete(int n, int predicted)
{
    int bad = wrong;
    for (int b = 0; b < n; b++) {
        const struct seen *v = &seen[b];
        for (uint32_t i = 0; i < PS_FF; i++) {
            int counts = !predicted || wanted(i), alone = s.form != LAYOUT_SPLIT; /* split: gates come in whole units */
            bad += counts ? v->gate[i] != 1 : alone && i >= s.hot_neurons[0] && v->gate[i] != 0;
            bad += v->up[i] != (counts && opens(i));
        }
        for (int c = 0; c < PS_D; c++)
            bad += v->summed[c] != scheduler_block(sc, b)->list[LIST_NEURON].n;
    }
    return bad == 0;
}

/* All pins are given back: every slot of every cache takes another unit. */
static int unpinned(void)
{
    int ok = 1;
    for (int i = 0; i < PS_LAYERS * s.c.shapes->kind[0].n_parts; i++) {
        struct cache *c = s.caches[i];
        uint32_t evicted, units = s.c.shapes->kind[0].part[i % s.c.shapes->kind[0].n_parts].n_units;
        for (uint32_t k = 0, u = 0; k < s.slots && u < PS_BLOCKS * units; u++) {
            int held = 0;
            for (uint32_t j = 0; j < s.slots; j++)
                held |= cache_unit(c, j) == u;
            if (held)
                continue;
            ok &= cache_admit(c, u, &evicted) != CACHE_NONE;
            k++;
        }
    }
    return ok;
}

static void test_exact(enum layout_form form)
{
    const struct { uint32_t hot0, hot1, slots; int depth, threads, held, blocks; } ways[] = {
        { PS_FF, PS_FF, 0, 2, 1, 1, 1 },  /* all resident */
        { PS_FF, 0, 0, 1, 2, 3, 1 },      /* gates resident, one buffer (rule 5) */
        { 0, 0, 0, 1, 2, 2, 2 },          /* nothing resident, no cache, one buffer, blocks together */
        { 0, 0, 40, 3, 3, 4, 2 },
        { 5 * PS_CLUSTER, 2 * PS_CLUSTER, 200, 16, 2, 4, 2 },
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        uint32_t hot1 = layout_parts(form) == 1 ? 0 : ways[i].hot1;
        begin((struct pipeline_sample){ .form = form, .depth = ways[i].depth, .threads = ways[i].threads,
                                        .slots = ways[i].slots, .hot_neurons = { ways[i].hot0, hot1 } }, 0);
        for (int pass = 0; pass < 2; pass++) {
            memset(seen, 0, sizeof seen);
            start(ways[i].blocks, 0);
            CHECK(drive(ways[i].threads, ways[i].held) == 0);
            CHECK_MSG(complete(ways[i].blocks, 0), "way %zu: %d wrong", i, wrong);
            CHECK(!s.c.io->in_flight && (s.c.io->reads > 0) == (ways[i].hot0 < PS_FF || (hot1 < PS_FF && layout_parts(form) > 1)));
        }
        CHECK(unpinned());
        end();
    }
}

static void test_predicted(enum layout_form form, uint32_t hot, int held)
{
    begin((struct pipeline_sample){ .form = form, .depth = 2, .threads = 2, .slots = 30, .hot_neurons = { hot, hot } }, RANK);
    for (int blocks = 1; blocks <= 2; blocks++) {
        memset(seen, 0, sizeof seen);
        memset(n_jobs, 0, sizeof n_jobs);
        start(blocks, 1);
        clear_bits(blocks);
        CHECK(drive(2, held) == 0);
        CHECK_MSG(complete(blocks, 1), "%d wrong", wrong);
        CHECK(seen[0].scored == PS_FF - 32 && n_jobs[JOB_PREPARE] == blocks && n_jobs[JOB_SCORES] == 2 * blocks);
    }
    /* the same scheduler runs a pass exactly */
    memset(seen, 0, sizeof seen);
    start(2, 0);
    CHECK(drive(2, held) == 0 && complete(2, 0) && seen[0].scored == 0 && unpinned());
    end();
}

/* Alone: only predictions, until all is listed and reads are under way; the same blocks run then, and predict no more. */
static void test_alone(void)
{
    const int blocks[] = { 0, 1 };
    struct acts acts = { .f32 = x, .n_cols = PS_D, .n_tokens = 1 }, *in[] = { &acts, &acts };
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 8, .threads = 2 }, RANK);
    scheduler_begin(sc, 1, blocks, 2, 1);
    scheduler_inputs(sc, in);
    scheduler_start(sc, 1);
    clear_bits(2);
    CHECK(drive(2, 2) == 0 && n_jobs[JOB_SCORES] == 4 && !n_jobs[JOB_ENTRIES_READY] && !n_jobs[JOB_TILE]);
    CHECK(s.c.io->reads > 0 && scheduler_predicted_ns(sc) == 0);
    scheduler_inputs(sc, in);
    scheduler_start(sc, 0);
    CHECK(drive(2, 3) == 0 && complete(2, 1) && n_jobs[JOB_SCORES] == 4);
    end();
}

/* Gates come before Up, and Up before Down, while nothing waits for buffers; gates of the older block first. */
static void test_order(void)
{
    static struct job job[3];
    const struct counts none = { 0 };
    begin((struct pipeline_sample){ .form = LAYOUT_SPLIT, .depth = 2, .threads = 3, .hot_neurons = { PS_FF, 0 } }, 0);
    start(2, 0);
    CHECK(scheduler_coordinate(sc, &s.e) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(scheduler_take(sc, i, &job[i]) == SCHEDULER_JOB && job[i].kind == JOB_ENTRIES_READY &&
              job[i].list == LIST_GATE && job[i].block->block == 0);
    /* a share for each worker, none twice */
    CHECK(job[0].n > 0 && job[1].n > 0 && job[0].idx[0] == 0 && (int)job[1].idx[0] == job[0].n);
    for (int i = 0; i < 2; i++) {
        pretend(&job[i]);
        scheduler_finish(sc, &job[i], &none, NULL);
    }
    CHECK(s.c.io->reads == 0 && scheduler_coordinate(sc, &s.e) == 0 && s.c.io->reads > 0);
    CHECK(drive(3, 3) == 0 && complete(2, 0));
    end();
}

/* The first failure ends it for everybody. */
static int broken(void *ctx, const struct io_request *r, int result)
{
    (void)ctx, (void)r, (void)result;
    return -5;
}

static void test_failure(void)
{
    static struct job job;
    struct err first, second;
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 2, .threads = 2, .hot_neurons = { PS_FF, 0 } }, 0);
    start(1, 0);
    CHECK(scheduler_take(sc, 1, &job) == SCHEDULER_JOB);
    err_set(&first, ERR_IO, "first"), err_set(&second, ERR_FORMAT, "second");
    const struct counts none = { 0 };
    scheduler_finish(sc, &job, &none, &first);
    scheduler_fail(sc, &second);
    CHECK(scheduler_take(sc, 0, &job) == SCHEDULER_OVER);
    CHECK(scheduler_end(sc, &s.e) == ERR_IO && !strcmp(s.e.msg, "first"));
    end();
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 2, .threads = 2, .fault = broken }, 0);
    start(1, 0);
    CHECK(drive(2, 2) == ERR_IO);
    end();
}

/* Real threads: what one wrote another reads, with no lock of the test's (for the thread sanitizer). */
static void work(void *ctx, int worker, int n_threads)
{
    struct job j;
    struct err e;
    (void)ctx, (void)n_threads;
    for (;;) {
        unsigned version = scheduler_version(sc);
        if (worker == 0 && scheduler_coordinate(sc, &e) < 0)
            scheduler_fail(sc, &e);
        enum scheduler_taken got = scheduler_take(sc, worker, &j);
        if (got == SCHEDULER_OVER)
            return;
        if (got == SCHEDULER_JOB) {
            const struct counts c = { .computed = 1 };
            pretend(&j);
            scheduler_finish(sc, &j, &c, NULL);
        } else if (worker > 0) {
            scheduler_wait(sc, 1, version);
        } else if (scheduler_idle(sc, version, &e) < 0) {
            scheduler_fail(sc, &e);
        }
    }
}

static void test_threads(void)
{
    begin((struct pipeline_sample){ .form = LAYOUT_TWO_PHASE, .depth = 2, .threads = 4, .slots = 60,
                                    .hot_neurons = { 4 * PS_CLUSTER, PS_CLUSTER } }, 0);
    for (int i = 0; i < 5; i++) {
        memset(seen, 0, sizeof seen);
        start(2, 0);
        pool_share(s.c.pool, work, NULL);
        CHECK(scheduler_end(sc, &s.e) == 0 && complete(2, 0) && scheduler_counts(sc).computed > 8);
    }
    end();
}

/* ---- who is woken (rule 11) ---- */

enum { SLEEPERS = 3 };

static struct sleepers {
    pthread_t thread[SLEEPERS + 1];
    atomic_int back, coordinator_back; /* workers that have come back; whether the coordinator has */
    unsigned seen;
} sleepers;

static void *sleep_as(void *arg)
{
    const int worker = (int)(intptr_t)arg;
    scheduler_wait(sc, worker, sleepers.seen);
    atomic_fetch_add(worker ? &sleepers.back : &sleepers.coordinator_back, 1);
    return NULL;
}

static int asleep(void)
{
    pthread_mutex_lock(&sc->lock);
    int n = sc->waiters - sc->called + sc->coordinator_waits;
    pthread_mutex_unlock(&sc->lock);
    return n;
}

/* A coordinator and workers that have found nothing. */
static void send_to_sleep(void)
{
    sleepers.back = sleepers.coordinator_back = 0;
    sleepers.seen = scheduler_version(sc);
    for (intptr_t i = 0; i <= SLEEPERS; i++)
        if (pthread_create(&sleepers.thread[i], NULL, sleep_as, (void *)i))
            exit(1);
    for (int i = 0; i < 5000 && asleep() <= SLEEPERS; i++)
        usleep(1000);
    usleep(50000); /* from the lock into the kernel */
}

/* Neurons are ready, of so many bytes, or the layer is over; how many workers that wakes, when all have had the time for it. */
static int woken_by(uint64_t bytes, int over)
{
    const struct layout_part *lp = &s.c.shapes->kind[0].part[0];
    const int before = sleepers.back;
    pthread_mutex_lock(&sc->lock);
    sc->pass[0].ring[LIST_NEURON].rows = (uint32_t)(bytes / lp->record_bytes);
    sc->unfinished = !over;
    scheduler_changed(sc);
    scheduler_unlock(sc);
    usleep(100000);
    return sleepers.back - before;
}

static void wake_up(void)
{
    woken_by(0, 1);
    for (int i = 0; i <= SLEEPERS; i++)
        pthread_join(sleepers.thread[i], NULL);
    CHECK(asleep() == 0 && sleepers.back == SLEEPERS && sleepers.coordinator_back == 1);
}

/* A worker for each whole piece; the coordinator for anything; everybody when the layer is over. */
static void test_waking(void)
{
    const uint64_t piece = SCHEDULE_PIECE_BYTES + 1024;
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 2, .threads = SLEEPERS + 1 }, 0);
    start(1, 0);
    sc->pass[0].ring[LIST_NEURON].rows = 0;

    send_to_sleep();
    CHECK(woken_by(SCHEDULE_PIECE_BYTES / 2, 0) == 0 && sleepers.coordinator_back == 1);
    CHECK(woken_by(piece, 0) == 1);
    CHECK(woken_by(piece, 0) == 1);
    wake_up();

    send_to_sleep();
    CHECK(woken_by(2 * piece, 0) == 2);
    wake_up();

    send_to_sleep();
    sc->hold = 1; /* jobs are withheld */
    CHECK(woken_by(9 * piece, 0) == 0 && sleepers.coordinator_back == 1);
    sc->hold = 0;
    CHECK(woken_by(9 * piece, 0) == SLEEPERS);
    wake_up();

    send_to_sleep();
    CHECK(woken_by(0, 1) == SLEEPERS && sleepers.coordinator_back == 1);
    wake_up();

    sc->unfinished = 1;
    sc->pass[0].ring[LIST_NEURON].rows = 0;
    CHECK(drive(2, 1) == 0 && complete(1, 0));
    end();
}

int main(void)
{
    for (int f = 0; f < LAYOUT_FORMS; f++) {
        test_exact((enum layout_form)f);
        test_predicted((enum layout_form)f, 0, 1);
        test_predicted((enum layout_form)f, 4 * PS_CLUSTER, 4);
    }
    test_alone();
    test_order();
    test_failure();
    test_threads();
    test_waking();
    return test_done();
}
