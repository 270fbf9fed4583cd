/* A layer by the whole pipeline, without an engine: what its caller begins first goes on beside the other threads' work, once; and where an
 * accelerator has all of a layer no thread is woken. */
#include "runtime/pipeline/pipeline.h"

#include "common/base/progress.h"
#include "tests/pipeline_sample.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

static struct pipeline_sample s;
static struct kernels counted;
static const struct kernels *plain;
static pthread_t caller;
static atomic_int others; /* products that another thread than the caller began */
static float x[PS_D];

static void count(void)
{
    if (!pthread_equal(pthread_self(), caller))
        atomic_fetch_add(&others, 1);
}

static void rows(float *out, size_t out_stride, const void *at, size_t row_stride, int n_rows, const void *in, size_t x_stride,
                 int n_tokens, int n_cols)
{
    count();
    plain->rows[KERNELS_ACT_F32][QUANT_F32](out, out_stride, at, row_stride, n_rows, in, x_stride, n_tokens, n_cols);
}

static void rows_at(float *out, size_t out_stride, const void *const *at, int n_rows, const void *in, size_t x_stride, int n_tokens,
                    int n_cols)
{
    count();
    plain->rows_at[KERNELS_ACT_F32][QUANT_F32](out, out_stride, at, n_rows, in, x_stride, n_tokens, n_cols);
}

struct start {
    int calls, apart, beside; /* apart: on another thread; beside: another thread computed before it returned */
    int waits;
};

/* A driver that takes its time: until somebody else computes, if anybody does. */
static void start(void *ctx)
{
    struct start *c = ctx;
    c->calls++;
    c->apart += !pthread_equal(pthread_self(), caller);
    for (int64_t end = progress_now_ns() + 20000000000; c->waits && !atomic_load(&others) && progress_now_ns() < end;)
        sched_yield();
    c->beside += atomic_load(&others) > 0;
}

static int run(struct pipeline *p)
{
    struct pipeline_ffn f = { .block = 1, .in = { .f32 = x, .n_cols = PS_D, .n_tokens = 1 }, .rows = s.rows, .out = s.out };
    pipeline_begin(p, 0);
    atomic_store(&others, 0);
    return pipeline_run(p, 1, &f, 1, &s.e);
}

static struct pipeline *begin(int threads, uint32_t hot)
{
    s = (struct pipeline_sample){ .threads = threads, .depth = 2, .tokens = 1, .form = LAYOUT_SPLIT, .hot_neurons = { hot, hot } };
    ps_open(&s);
    plain = kernels;
    counted = *kernels;
    counted.rows[KERNELS_ACT_F32][QUANT_F32] = rows;
    counted.rows_at[KERNELS_ACT_F32][QUANT_F32] = rows_at;
    kernels = &counted;
    caller = pthread_self();
    for (int c = 0; c < PS_D; c++)
        x[c] = ps_input(1, 0, c);
    struct pipeline *p = pipeline_new(&s.c, &s.e);
    CHECK_MSG(p != NULL, "%s", s.e.msg);
    return p;
}

static void end(struct pipeline *p)
{
    pipeline_free(p);
    kernels = plain;
    ps_close(&s);
}

static double worst(void)
{
    double want[PS_D] = { 0 }, far = 0;
    for (uint32_t i = 0; i < PS_FF; i++)
        ps_add_neuron(1, 1, i, 0, want);
    for (int c = 0; c < PS_D; c++)
        far = fmax(far, fabs(want[c] - (double)s.out[c]));
    return far;
}

static void test_start(int threads)
{
    struct pipeline *p = begin(threads, PS_FF);
    struct start first = { .waits = threads > 1 };
    float out[PS_D];
    pipeline_at_start(p, start, &first);
    CHECK(run(p) == 0 && first.calls == 1 && first.apart == 0 && first.beside == (threads > 1));
    CHECK_MSG(worst() < 1e-4, "%g", worst());
    memcpy(out, s.out, sizeof out);
    CHECK(run(p) == 0 && first.calls == 1 && !memcmp(out, s.out, sizeof out)); /* that one alone, and no bit depends on it */
    end(p);
}

/* Reads, but says once that it cannot. */
static struct io_backend lying;
static int lie(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    io->backend = &io_delay_backend;
    int failed = io->backend->submit(io, r, n, e);
    return failed < 0 ? failed : err_set(e, ERR_IO, "as if storage took no read");
}

/* A layer that fails before anybody works takes with it what was to begin: its context may be gone. */
static void test_start_forgotten(void)
{
    struct pipeline *p = begin(2, 16);
    struct start first = { 0 };
    lying = io_delay_backend;
    lying.submit = lie;
    s.c.io->backend = &lying;
    pipeline_at_start(p, start, &first);
    CHECK(run(p) == ERR_IO && first.calls == 0);
    s.c.io->gave_up = 0; /* all of its reads come */
    CHECK_MSG(run(p) == 0 && worst() < 1e-4, "%s, %g", s.e.msg, worst());
    CHECK(first.calls == 0);
    end(p);
}

static void sleeps(void *ctx, int worker, int n_threads)
{
    struct rusage u;
    (void)n_threads;
    if (worker == 1 && getrusage(RUSAGE_THREAD, &u) == 0)
        *(long *)ctx = u.ru_nvcsw;
}

static void test_nothing_left(void)
{
    struct pipeline *p = begin(2, PS_FF);
    struct start first = { 0 };
    const uint32_t all[PS_LAYERS * PS_BLOCKS] = { PS_FF, PS_FF, PS_FF, PS_FF };
    long before = 0, after = 0;
    int bad = 0;
    pipeline_beside(p, all);
    pool_run(s.c.pool, sleeps, &before);
    usleep(5000); /* past its spinning */
    for (int i = 0; i < 10; i++) {
        pipeline_at_start(p, start, &first);
        bad += run(p) != 0;
        for (int c = 0; c < PS_D; c++)
            bad += s.out[c] != 0;
        usleep(2000);
    }
    pool_run(s.c.pool, sleeps, &after);
    CHECK_MSG(bad == 0 && first.calls == 10 && first.apart == 0, "%d wrong, %d calls", bad, first.calls);
    CHECK_MSG(after - before < 5, "a worker slept %ld times in 10 layers that had nothing for it", after - before);
    end(p);
}

int main(void)
{
    test_start(1);
    test_start(2);
    test_start_forgotten();
    test_nothing_left();
    return test_done();
}
