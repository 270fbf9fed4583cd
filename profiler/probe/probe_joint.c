/* Reading and computing at once, as the engine does it: threads multiply rows of weights in memory by its kernels, in jobs of
 * SCHEDULE_OWN_ROWS, and what was read before resident rows; a buffer is used again when its rows were multiplied. With io_uring the
 * first thread submits and reaps between its jobs, with pread there are threads that read. A sample is four phases: rows alone, reads
 * alone, both, rows alone; its two ratios are of phases that followed each other, and a point's are the middle ones of all passes, so that
 * what else a machine does falls on both sides. Reads come into memory as the engine's is mapped (pages_map). The memory has a bound,
 * whatever is asked for. */
#include "profiler/probe/probe.h"
#include "profiler/probe/probe_file.h"

#include "common/base/pages.h"
#include "common/kernels/kernels.h"
#include "common/kernels/quant.h"
#include "common/plan/schedule.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef NO_URING
#include <liburing.h>
#endif

#define BUFFER_BYTES  (16ull << 20)  /* in flight, at most */
#define WEIGHTS_BYTES (256ull << 20) /* at most, and a sixteenth of the machine's memory */
#define GIVE_UP_NS    (20ll * 1000000000) /* without a single read */
#define RANGE_BYTES   (256ull << 20) /* of the test file, at most: of the rates only their ratio is kept */

enum { REPS = 5, /* quick ones too, which are shorter: a middle of fewer is no protection */
       MAX_DEPTH = 128,
       PREAD_DEPTH = 8,
       ROW_BYTES = 4096, /* at most: no more than the smallest block */
       PACED_READS = 4,
       MAX_POINTS = 3 * 4 * 8, /* threads, sizes, depths and loads */
       PHASES = 3 /* the two of rows alone are half as long */ };

struct point {
    enum hw_backend backend;
    uint64_t block;
    int depth, threads, load;
    double kept[REPS], rows[REPS], alone; /* ratios; bytes/s of reads alone, of the last sample */
};

struct joint_probe {
    struct probe base;
    struct probe_cpus cpus;
    struct probe_file file;
    struct point *points;
    uint32_t type;
    enum kernels_act act;
    int row_len;
    size_t row_bytes, len; /* of the weights */
    char *weights, *buffers;
    float *x;              /* activations, as the kernel takes them */
    uint64_t page_bytes;   /* pages_size() of the buffers */
};

/* One phase of a sample. */
struct phase {
    const struct joint_probe *j;
    const struct point *p;
    int computes, reads;        /* threads that compute; 1: reads too */
    double bytes_per_s;         /* of reads, at most; 0: no bound */
    int64_t start, end, latest; /* end: no earlier, for there are `least` reads to be made; latest: no later */
    uint64_t least;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t freed;
    int free[MAX_DEPTH], n_free, arrived[MAX_DEPTH], n_arrived, sys; /* sys: errno, or -1: a short read */
    uint64_t issued, done;
    int64_t last;               /* when the last read ended */
    /* owned by the threads */
    double rows_per_s[POOL_MAX_THREADS];
    atomic_int over;
};

static void lock(struct phase *f)
{
    pthread_mutex_lock(&f->lock);
}

static void unlock(struct phase *f)
{
    pthread_mutex_unlock(&f->lock);
}

/* Ends the phase for all when it is time. */
static int is_over(struct phase *f)
{
    int64_t now = progress_now_ns();
    if (!atomic_load(&f->over) && now >= f->end) {
        lock(f);
        if (!f->reads || f->done >= f->least || f->sys || now >= f->latest + (f->done ? 0 : GIVE_UP_NS)) {
            atomic_store(&f->over, 1);
            pthread_cond_broadcast(&f->freed);
        }
        unlock(f);
    }
    return atomic_load(&f->over);
}

/* A buffer to read into, if there is one and the rate allows it; -1. Locked. */
static int next_read(struct phase *f)
{
    double allowed = f->bytes_per_s * (double)(progress_now_ns() - f->start) / 1e9;
    if (!f->n_free || (f->bytes_per_s > 0 && (double)(f->issued * f->p->block) > allowed))
        return -1;
    f->issued++;
    return f->free[--f->n_free];
}

static off_t next_offset(const struct phase *f)
{
    return (off_t)(splitmix_at(f->issued * 2654435761u + (uint64_t)f->start) % (f->j->file.bytes / f->p->block) * f->p->block);
}

static char *buffer(const struct phase *f, int i)
{
    return f->j->buffers + (size_t)i * f->p->block;
}

/* A read has ended: its rows are to be multiplied, where somebody computes. Locked. */
static void ended(struct phase *f, int i, ssize_t got, int error)
{
    if (got != (ssize_t)f->p->block)
        f->sys = got < 0 ? error : -1;
    if (f->computes)
        f->arrived[f->n_arrived++] = i;
    else
        f->free[f->n_free++] = i;
    f->done++;
    f->last = progress_now_ns();
}

/* ---- who reads ---- */

static void read_pread(struct phase *f)
{
    while (!is_over(f)) {
        int i;
        lock(f);
        while ((i = next_read(f)) < 0 && f->n_free == 0 && !atomic_load(&f->over))
            pthread_cond_wait(&f->freed, &f->lock);
        off_t at = next_offset(f);
        unlock(f);
        if (i < 0) {
            nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL); /* the rate */
            continue;
        }
        ssize_t n = pread(f->j->file.fd, buffer(f, i), (size_t)f->p->block, at);
        int error = errno;
        if (!f->j->file.direct)
            posix_fadvise(f->j->file.fd, at, (off_t)f->p->block, POSIX_FADV_DONTNEED);
        lock(f);
        ended(f, i, n, error);
        unlock(f);
    }
}

#ifndef NO_URING
/* Takes in what has ended, and asks for as much as there are buffers for. wait: sleeps where nothing has ended. */
static void poll_uring(struct phase *f, struct io_uring *ring, int *in_flight, int wait, int more)
{
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    int new = 0, i;
    lock(f);
    io_uring_for_each_cqe(ring, head, cqe)
    {
        ended(f, (int)io_uring_cqe_get_data64(cqe), cqe->res, cqe->res < 0 ? -cqe->res : 0);
        seen++;
    }
    io_uring_cq_advance(ring, seen);
    *in_flight -= (int)seen;
    for (; more && !f->sys && (i = next_read(f)) >= 0; new++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring); /* never NULL: the ring has a place per buffer */
        io_uring_prep_read(sqe, f->j->file.fd, buffer(f, i), (unsigned)f->p->block, (uint64_t)next_offset(f));
        io_uring_sqe_set_data64(sqe, (uint64_t)i);
    }
    unlock(f);
    *in_flight += new;
    if (wait && !seen && *in_flight)
        io_uring_submit_and_wait(ring, 1);
    else if (new)
        io_uring_submit(ring);
}
#endif

/* ---- who computes ---- */

static int take_arrived(struct phase *f)
{
    lock(f);
    int i = f->n_arrived ? f->arrived[--f->n_arrived] : -1;
    unlock(f);
    return i;
}

static void give_back(struct phase *f, int i)
{
    lock(f);
    f->free[f->n_free++] = i;
    pthread_cond_signal(&f->freed);
    unlock(f);
}

static void multiply(const struct joint_probe *j, const char *rows, size_t n)
{
    float out[SCHEDULE_OWN_ROWS];
    for (size_t done = 0; done < n; done += SCHEDULE_OWN_ROWS)
        kernels->rows[j->act][j->type](out, SCHEDULE_OWN_ROWS, rows + done * j->row_bytes, j->row_bytes,
                                       (int)(n - done < SCHEDULE_OWN_ROWS ? n - done : SCHEDULE_OWN_ROWS), j->x,
                                       kernels_act_bytes(j->act, j->row_len), 1, j->row_len);
}

/* ring: of who reads, too; else NULL. */
static void compute(struct phase *f, int worker, void *ring, int *in_flight)
{
    const struct joint_probe *j = f->j;
    size_t part = j->len / (size_t)f->computes / j->row_bytes, at = 0, of_read = f->p->block / j->row_bytes;
    const char *mine = j->weights + part * (size_t)worker * j->row_bytes;
    uint64_t rows = 0;
    int64_t start = progress_now_ns();
    do {
#ifndef NO_URING
        if (ring)
            poll_uring(f, ring, in_flight, 0, 1);
#endif
        int i = f->reads ? take_arrived(f) : -1;
        multiply(j, i >= 0 ? buffer(f, i) : mine + at * j->row_bytes, i >= 0 ? of_read : SCHEDULE_OWN_ROWS);
        rows += i >= 0 ? of_read : SCHEDULE_OWN_ROWS;
        if (i >= 0)
            give_back(f, i);
        else
            at = at + 2 * SCHEDULE_OWN_ROWS <= part ? at + SCHEDULE_OWN_ROWS : 0;
    } while (!is_over(f));
    (void)ring, (void)in_flight;
    f->rows_per_s[worker] = (double)rows * 1e9 / (double)(progress_now_ns() - start);
}

static void work(void *ctx, int worker, int n_threads)
{
    struct phase *f = ctx;
    int in_flight = 0;
    (void)n_threads;
#ifndef NO_URING
    struct io_uring ring;
    if (worker == 0 && f->reads && f->p->backend == HW_URING) {
        int r = probe_uring_init(f->p->depth, &ring);
        if (r < 0) {
            lock(f);
            f->sys = -r;
            unlock(f);
        }
        if (r == 0 && f->computes)
            compute(f, worker, &ring, &in_flight);
        while (r == 0 && !f->computes && !is_over(f))
            poll_uring(f, &ring, &in_flight, 1, 1);
        while (r == 0 && in_flight && !f->sys)
            poll_uring(f, &ring, &in_flight, 1, 0);
        if (r == 0)
            io_uring_queue_exit(&ring); /* cancels what is in flight after an error */
        return;
    }
#endif
    if (worker < f->computes)
        compute(f, worker, NULL, &in_flight);
    else
        read_pread(f);
}

/* ---- a sample ---- */

/* Rows and bytes a second. */
struct rates {
    double rows, bytes;
};

static int run(const struct joint_probe *j, const struct point *p, int computes, int reads, double bytes_per_s, double seconds,
               struct rates *out, struct err *e)
{
    int cpus[POOL_MAX_THREADS], lanes = reads && p->backend == HW_PREAD ? p->depth : 0, n = computes + lanes;
    struct phase f = { .j = j, .p = p, .computes = computes, .reads = reads, .bytes_per_s = bytes_per_s, .n_free = p->depth,
                       .least = bytes_per_s > 0 ? PACED_READS : 2 * (uint64_t)p->depth };
    n = n ? n : 1;
    for (int i = probe_cpus_pick(&j->cpus, -1, computes, cpus); i < n; i++)
        cpus[i] = -1;
    for (int i = 0; i < p->depth; i++)
        f.free[i] = i;
    pthread_mutex_init(&f.lock, NULL);
    pthread_cond_init(&f.freed, NULL);
    f.start = progress_now_ns();
    f.end = f.start + (int64_t)(seconds * 1e9);
    f.latest = f.end + (int64_t)(20 * seconds * 1e9) + 100000000;
    int r = probe_threads(n, cpus, work, &f, e);
    pthread_cond_destroy(&f.freed);
    pthread_mutex_destroy(&f.lock);
    if (r == 0 && f.sys) {
        errno = f.sys > 0 ? f.sys : EIO;
        r = err_sys(e, ERR_IO, "reading the test file with %s beside computing, block %llu, depth %d%s", hw_backend_name(p->backend),
                    (unsigned long long)p->block, p->depth, f.sys < 0 ? ": a short read" : "");
    }
    *out = (struct rates){ 0, f.last > f.start ? (double)(f.done * p->block) * 1e9 / (double)(f.last - f.start) : 0 };
    for (int i = 0; i < computes; i++)
        out->rows += f.rows_per_s[i];
    return r;
}

static int sample(struct probe *base, int i, int rep, double *value, struct err *e)
{
    struct joint_probe *j = (struct joint_probe *)base;
    struct point *p = &j->points[i];
    struct rates before, alone = { 0, p->alone }, both = { 0, 0 }, after;
    double s = base->seconds / PHASES;
    int r = run(j, p, p->threads, 0, 0, s / 2, &before, e), first = rep % 2 && p->alone > 0; /* both phases first, by turns */
    for (int k = 0; k < 2 && r == 0; k++) {
        if (k == first)
            r = run(j, p, 0, 1, 0, s, &alone, e);
        else
            r = run(j, p, p->threads, 1, p->load < 100 ? alone.bytes * p->load / 100 : 0, s, &both, e);
    }
    if (r < 0 || (r = run(j, p, p->threads, 0, 0, s / 2, &after, e)) < 0)
        return r;
    if (!(alone.bytes > 0 && both.bytes > 0))
        return err_set(e, ERR_IO, "measuring reads beside computing: nothing was read within %.0f s", GIVE_UP_NS / 1e9);
    p->alone = alone.bytes;
    p->kept[rep] = both.bytes / alone.bytes;
    p->rows[rep] = 2 * both.rows / (before.rows + after.rows);
    *value = both.bytes;
    return 0;
}

static int prepare(struct probe *base, struct err *e)
{
    struct joint_probe *j = (struct joint_probe *)base;
    j->buffers = pages_map(BUFFER_BYTES);
    j->weights = j->buffers ? pages_map(j->len) : NULL;
    if (!j->weights || posix_memalign((void **)&j->x, 64, kernels_act_bytes(KERNELS_ACT_F32, j->row_len) * 2) != 0) {
        j->x = NULL;
        return err_sys(e, ERR_NOMEM, "measuring reads beside computing: %zu bytes", j->len + (size_t)BUFFER_BYTES);
    }
    float *x = (float *)(void *)j->weights; /* for now */
    for (int i = 0; i < j->row_len; i++)
        x[i] = (float)(splitmix_at((uint64_t)i) % 2000) / 1000 - 1;
    kernels_act_prepare(j->x, j->act, x, j->row_len);
    uint64_t *v = (uint64_t *)(void *)j->weights; /* numbers of every type, as in probe_cpu.c */
    for (size_t i = 0; i < j->len / sizeof *v; i++)
        v[i] = 0x2020202020202020u | (splitmix_at(i) & 0x0f0f0f0f0f0f0f0fu);
    memset(j->buffers, 1, BUFFER_BYTES);
    j->page_bytes = pages_size(j->buffers, BUFFER_BYTES);
    return probe_file_make(&j->file, j->buffers, e);
}

static int store(struct probe *base, struct hwdb_record *record, struct err *e)
{
    struct joint_probe *j = (struct joint_probe *)base;
    int r = 0, n = base->reps_done;
    for (int i = 0; i < base->n_points && r == 0; i++) {
        struct point *p = &j->points[i];
        struct hw_joint row = { .backend = p->backend, .block_bytes = p->block, .queue_depth = p->depth, .threads = p->threads,
                                .load_percent = p->load, .bytes_per_s = probe_dist(base, i), .origin = HW_MEASURED,
                                .read_rate_ratio = fmin(1, hw_dist_of(p->kept, n).p50), .page_bytes = j->page_bytes,
                                .row_rate_ratio = fmin(1, hw_dist_of(p->rows, n).p50) };
        r = probe_record(base, i, HWDB_JOINT, &row, record, e);
    }
    return r;
}

static void release(struct probe *base)
{
    struct joint_probe *j = (struct joint_probe *)base;
    if (j->buffers)
        munmap(j->buffers, BUFFER_BYTES);
    if (j->weights)
        munmap(j->weights, j->len);
    free(j->x);
    j->buffers = j->weights = NULL;
    j->x = NULL;
    probe_file_close(&j->file);
}

static void done(struct probe *base)
{
    struct joint_probe *j = (struct joint_probe *)base;
    free(j->points);
    free(j);
}

/* ---- the grid ---- */

#define K *1024u

/* Depths end with 0: the queue is kept full at each, and at the last, or as deep as the buffers let it be, it is paced too. */
static int add_depths(struct point *out, struct point p, const int *depths)
{
    static const int loads[] = { 25, 50, 100 };
    int most = (int)(BUFFER_BYTES / p.block), n = 0;
    for (; *depths; depths++) {
        int last = !depths[1] || *depths >= most;
        p.depth = *depths < most ? *depths : most;
        for (int k = last ? 0 : 2; k < 3; k++) {
            p.load = loads[k];
            out[n++] = p;
        }
        if (last)
            break;
    }
    return n;
}

static int add_points(struct point *out, const struct probe_config *c)
{
    static const uint64_t all[] = { 4 K, 16 K, 64 K, 1024 K, 0 }, few[] = { 4 K, 64 K, 1024 K, 0 };
    static const int deep[] = { 8, 32, MAX_DEPTH, 0 }, quick[] = { 8, 64, 0 }, pread[] = { PREAD_DEPTH, 0 };
    int n = 0, cores = c->cpus->n, uring = probe_have_uring();
    for (int threads = 1; threads; threads = threads < cores ? (threads < cores / 2 && !c->quick ? cores / 2 : cores) : 0)
        for (const uint64_t *block = c->quick ? few : all; *block; block++) {
            struct point p = { .backend = HW_URING, .block = *block, .threads = threads };
            if (uring)
                n += add_depths(out + n, p, c->quick ? quick : deep);
            p.backend = HW_PREAD;
            if (!uring || threads < cores) /* threads that read share no core with those that compute where there is another way */
                n += add_depths(out + n, p, pread);
        }
    return n;
}

int probe_joint_new(const struct probe_config *c, struct probe **out, struct err *e)
{
    struct joint_probe *j = calloc(1, sizeof *j);
    struct point *points = calloc(MAX_POINTS, sizeof *points);
    long pages = sysconf(_SC_PHYS_PAGES);
    if (!j || !points) {
        free(j);
        free(points);
        return err_set(e, ERR_NOMEM, "measuring reads beside computing: out of memory");
    }
    probe_file_init(&j->file, c->storage_dir, c->range_bytes < RANGE_BYTES ? c->range_bytes : RANGE_BYTES);
    j->cpus = *c->cpus;
    j->points = points;
    j->type = c->n_types ? c->types[0] : QUANT_Q4_0;
    j->act = kernels->rows[KERNELS_ACT_Q8][j->type] ? KERNELS_ACT_Q8 : KERNELS_ACT_F32;
    j->row_len = ROW_BYTES;
    while (quant_row_bytes(j->type, (uint64_t)j->row_len) > ROW_BYTES)
        j->row_len /= 2;
    j->row_bytes = quant_row_bytes(j->type, (uint64_t)j->row_len);
    j->len = c->memory_range_bytes && c->memory_range_bytes < WEIGHTS_BYTES ? (size_t)c->memory_range_bytes : WEIGHTS_BYTES;
    while (pages > 0 && j->len > (size_t)pages / 16 * 4096)
        j->len /= 2;
    size_t least = 2 * SCHEDULE_OWN_ROWS * j->row_bytes * (size_t)c->cpus->n;
    j->len = j->len < least ? least : j->len;
    j->base = (struct probe){ .table = "joint", .n_points = add_points(points, c), .reps = REPS, .direct_verified = -1,
                              .kernel_helps = 1, .disk_bytes = j->file.bytes, .memory_bytes = j->len + BUFFER_BYTES, .prepare = prepare,
                              .sample = sample, .store = store, .release = release, .done = done };
    j->base.seconds = (c->seconds_per_point > 0 ? c->seconds_per_point : c->quick ? 0.2
                                                                                  : 0.3) / REPS;
    *out = &j->base;
    return 0;
}
