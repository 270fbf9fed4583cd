/* Storage as the engine reads it. A file of incompressible bytes (probe_file.c) is read at every combination of block size, queue depth,
 * lanes, range and backend. Where O_DIRECT is refused, reads go through the page cache and pages are dropped behind them, as the
 * engine would do, and points say so.
 *
 * A lane is one submitting thread. With io_uring it keeps queue_depth reads in flight itself; with pread it is
 * queue_depth threads. Rates count completions while the queue is full, so neither filling nor draining it is in them.
 *
 * A lane's buffers are used again and again, so that a drive which is a processor's copying (a paravirtual one) writes to its caches. The
 * engine's slots are not: some points are measured once more with reads that go to one place after the other of all the memory. */
#include "profiler/probe/probe.h"
#include "profiler/probe/probe_file.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/pages.h"
#include "common/base/uring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifndef NO_URING
#include <liburing.h>
#endif

#define MAX_IN_FLIGHT_BYTES (64ull << 20) /* of one point: buffers are part of what is measured */

enum { REPS = 5,
       QUICK_REPS = 3,
       MAX_DEPTH = 128, /* of the grids below, */
       MAX_DEPTHS = 7,  /* and of these */
       OCTAVES = 40,
       STEPS = 16,
       MIN_READS = 8,
       MAX_LANES = 2 };

/* What one sample gives beside its rate. */
struct reads {
    uint32_t histogram[OCTAVES * STEPS]; /* of latency, 16 steps an octave */
    double cpu_ns;
    uint64_t n;
    double found, squares; /* reads found ended, of whole queues; sums of their squares, by call */
};

struct point {
    enum hw_backend backend;
    enum hw_pattern pattern;
    uint64_t block, range;
    int depth, lanes, core_class;
    int slots; /* the point before, whose reads go to other places each */
    struct reads of[REPS];
};

struct storage_probe {
    struct probe base;
    struct probe_cpus cpus;
    struct point *points;
    int cap;
    struct probe_file file;
    char *buf; /* MAX_IN_FLIGHT_BYTES, shared out among lanes */
    uint64_t page_bytes; /* pages_size() of it */
};

/* ---- one sample ---- */

struct lane {
    const struct storage_probe *s;
    const struct point *p;
    char *buf;
    uint64_t first_block, n_blocks, next, random; /* where seq reads run; state of random ones */
    uint64_t place;                               /* of the next read, of a point with slots */
    int64_t deadline, t_first, t_last;
    uint64_t counted, reads;
    int over;
    double cpu_ns, found, squares; /* as in struct reads */
    uint32_t histogram[OCTAVES * STEPS];
    int sys; /* errno, or -1: short read */
};

struct sample_work {
    struct lane *lanes;
    double seconds;
};

static int bucket(int64_t ns)
{
    double v = ns > 1 ? (double)ns : 1;
    int b = (int)(log2(v) * STEPS);
    return b < OCTAVES * STEPS ? b : OCTAVES * STEPS - 1;
}

static uint64_t next_offset(struct lane *l)
{
    uint64_t k;
    if (l->p->pattern == HW_RANDOM) {
        l->random = splitmix_at(l->random);
        k = l->random % (l->p->range / l->p->block);
    } else {
        k = l->first_block + l->next++ % l->n_blocks;
    }
    return k * l->p->block;
}

/* Counts from when the queue has been full once until the time is over, by the queue: some drives finish all of it at about
 * the same moment. What follows drains it. Returns whether the lane goes on. */
static int completed(struct lane *l, int64_t issued, int64_t now, uint64_t offset)
{
    uint64_t full = l->p->backend == HW_URING ? (uint64_t)l->p->depth : 1;
    l->reads++;
    l->histogram[bucket(now - issued)]++;
    if (!l->s->file.direct)
        posix_fadvise(l->s->file.fd, (off_t)offset, (off_t)l->p->block, POSIX_FADV_DONTNEED);
    if (l->over || l->reads < full)
        return !l->over;
    if (!l->t_first)
        l->t_first = now;
    else
        l->counted++;
    l->t_last = now;
    l->over = now >= l->deadline && l->counted >= MIN_READS && l->counted % full == 0 && l->t_last > l->t_first;
    return !l->over;
}

static double thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void read_pread(struct lane *l)
{
    int go = 1;
    while (go && !l->sys) {
        uint64_t offset = next_offset(l);
        int64_t issued = progress_now_ns();
        ssize_t n = pread(l->s->file.fd, l->buf, (size_t)l->p->block, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)l->p->block)
            l->sys = n < 0 ? errno : -1;
        else
            go = completed(l, issued, progress_now_ns(), offset);
    }
}

#ifndef NO_URING
struct slot {
    uint64_t offset;
    int64_t issued;
};

static void issue(struct lane *l, struct io_uring *ring, struct slot *slots, unsigned i)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring); /* never NULL: the ring has a place per slot */
    uint64_t at = l->p->slots ? l->place++ % (MAX_IN_FLIGHT_BYTES / l->p->block) : i;
    slots[i] = (struct slot){ next_offset(l), progress_now_ns() };
    io_uring_prep_read(sqe, l->s->file.fd, l->buf + at * l->p->block, (unsigned)l->p->block, slots[i].offset);
    io_uring_sqe_set_data64(sqe, i);
}

static void read_uring(struct lane *l)
{
    struct io_uring ring;
    struct slot slots[MAX_DEPTH];
    int in_flight = 0, go = 1;
    int r = probe_uring_init(l->p->depth, &ring);
    if (r < 0) {
        l->sys = -r;
        return;
    }
    for (; in_flight < l->p->depth; in_flight++)
        issue(l, &ring, slots, (unsigned)in_flight);
    while (in_flight > 0) {
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;
        r = io_uring_submit_and_wait(&ring, 1);
        if (r < 0 && r != -EINTR && r != -EAGAIN) {
            l->sys = -r; /* closing the ring cancels what is in flight */
            break;
        }
        int64_t now = progress_now_ns();
        io_uring_for_each_cqe(&ring, head, cqe)
        {
            unsigned i = (unsigned)io_uring_cqe_get_data64(cqe);
            seen++;
            in_flight--;
            if (cqe->res != (int)l->p->block)
                l->sys = cqe->res < 0 ? -cqe->res : -1;
            else
                go = completed(l, slots[i].issued, now, slots[i].offset) && go;
            if (go && !l->sys) {
                issue(l, &ring, slots, i);
                in_flight++;
            }
        }
        io_uring_cq_advance(&ring, seen);
        l->found += l->over ? 0 : seen; /* the queue was full */
        l->squares += l->over ? 0 : (double)seen * seen;
    }
    io_uring_queue_exit(&ring);
}
#endif

static void read_lane(void *ctx, int worker, int n_threads)
{
    struct sample_work *w = ctx;
    struct lane *l = &w->lanes[worker];
    (void)n_threads;
    double cpu = thread_cpu_ns();
    l->deadline = progress_now_ns() + (int64_t)(w->seconds * 1e9);
#ifndef NO_URING
    if (l->p->backend == HW_URING)
        read_uring(l);
    else
#endif
        read_pread(l);
    l->cpu_ns = thread_cpu_ns() - cpu;
}

static int gather(struct point *p, struct reads *reads, const struct lane *lanes, int n, double *value, struct err *e)
{
    double rate = 0;
    memset(reads, 0, sizeof *reads);
    for (int i = 0; i < n; i++) {
        const struct lane *l = &lanes[i];
        if (l->sys) {
            errno = l->sys > 0 ? l->sys : EIO;
            return err_sys(e, ERR_IO, "reading the test file with %s, block %llu, depth %d%s", hw_backend_name(p->backend),
                           (unsigned long long)p->block, p->depth, l->sys < 0 ? ": a short read" : "");
        }
        if (l->t_last > l->t_first)
            rate += (double)l->counted * (double)p->block * 1e9 / (double)(l->t_last - l->t_first);
        for (int k = 0; k < OCTAVES * STEPS; k++)
            reads->histogram[k] += l->histogram[k];
        reads->cpu_ns += l->cpu_ns;
        reads->n += l->reads;
        reads->found += l->found;
        reads->squares += l->squares;
    }
    *value = rate;
    return 0;
}

static int sample(struct probe *base, int i, int rep, double *value, struct err *e)
{
    struct storage_probe *s = (struct storage_probe *)base;
    struct point *p = &s->points[i];
    int threads = p->backend == HW_PREAD ? p->lanes * p->depth : p->lanes, cpus[POOL_MAX_THREADS];
    int per_thread = p->backend == HW_PREAD ? 1 : p->depth;
    int have = probe_cpus_pick(&s->cpus, p->core_class, s->cpus.n, cpus);
    struct lane *lanes = calloc((size_t)threads, sizeof *lanes);
    if (!lanes)
        return err_set(e, ERR_NOMEM, "measuring storage: out of memory");
    for (int t = threads - 1; t >= 0; t--) { /* more threads than cores share them; one class needs no pinning */
        cpus[t] = p->core_class < 0 ? -1 : cpus[t % have];
        uint64_t blocks = p->range / p->block, part = blocks / (uint64_t)threads;
        lanes[t] = (struct lane){ .s = s, .p = p, .buf = s->buf + (size_t)t * (size_t)per_thread * p->block,
                                  .first_block = part * (uint64_t)t, .n_blocks = part,
                                  .random = splitmix_at((uint64_t)progress_now_ns() + (uint64_t)t) };
    }
    if (!s->file.direct) /* what earlier samples left in the page cache */
        posix_fadvise(s->file.fd, 0, 0, POSIX_FADV_DONTNEED);
    struct sample_work w = { lanes, base->seconds };
    int r = probe_threads(threads, cpus, read_lane, &w, e);
    if (r == 0)
        r = gather(p, &p->of[rep], lanes, threads, value, e);
    free(lanes);
    return r;
}

static int prepare(struct probe *base, struct err *e)
{
    struct storage_probe *s = (struct storage_probe *)base;
    s->buf = pages_map(MAX_IN_FLIGHT_BYTES); /* as the engine's memory */
    if (!s->buf)
        return err_sys(e, ERR_NOMEM, "measuring storage: %llu bytes for buffers", MAX_IN_FLIGHT_BYTES);
    memset(s->buf, 1, MAX_IN_FLIGHT_BYTES);
    s->page_bytes = pages_size(s->buf, MAX_IN_FLIGHT_BYTES);
    int r = probe_file_make(&s->file, s->buf, e);
    if (r < 0)
        return r;
    base->direct_verified = s->file.direct;
    if (s->file.notes[0]) {
        base->notes = s->file.notes;
        log_warn("'%s': %s", s->file.dir, s->file.notes);
    }
    return 0;
}

/* ---- results ---- */

/* The point's samples of whole passes as one. */
static struct reads all_reads(const struct point *p, int reps)
{
    struct reads all = { .n = 0 };
    for (int rep = 0; rep < reps; rep++) {
        for (int i = 0; i < OCTAVES * STEPS; i++)
            all.histogram[i] += p->of[rep].histogram[i];
        all.cpu_ns += p->of[rep].cpu_ns;
        all.n += p->of[rep].n;
        all.found += p->of[rep].found;
        all.squares += p->of[rep].squares;
    }
    return all;
}

static double latency(const struct reads *reads, double quantile)
{
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < OCTAVES * STEPS; i++)
        total += reads->histogram[i];
    for (int i = 0; i < OCTAVES * STEPS; i++) {
        seen += reads->histogram[i];
        if (total && (double)seen >= quantile * (double)total)
            return exp2((i + 0.5) / STEPS);
    }
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rate into other places each by rate into buffers: the middle one of all depths of this block and all passes, in which the two were
 * measured one after the other. More than 1 is noise. */
static double slots_share(const struct storage_probe *s, uint64_t block)
{
    double ratio[MAX_DEPTHS * REPS];
    int n = 0, reps = s->base.reps;
    for (int i = 1; i < s->base.n_points; i++)
        for (int rep = 0; rep < s->base.reps_done && s->points[i].slots && s->points[i].block == block && n < MAX_DEPTHS * REPS; rep++) {
            double to_buffers = s->base.samples[(i - 1) * reps + rep].value, to_slots = s->base.samples[i * reps + rep].value;
            if (to_buffers > 0 && to_slots > 0)
                ratio[n++] = to_slots / to_buffers;
        }
    qsort(ratio, (size_t)n, sizeof *ratio, by_size);
    return n ? fmin(1, ratio[n / 2]) : 0;
}

static int store(struct probe *base, struct hwdb_record *to, struct err *e)
{
    struct storage_probe *s = (struct storage_probe *)base;
    int r = 0;
    for (int i = 0; i < base->n_points && r == 0; i++) {
        const struct point *p = &s->points[i];
        if (p->slots) /* with the point before */
            continue;
        struct reads all = all_reads(p, base->reps_done);
        struct hw_storage row = { .backend = p->backend, .direct = s->file.direct, .pattern = p->pattern, .block_bytes = p->block,
                                  .queue_depth = p->depth, .lanes = p->lanes, .range_bytes = p->range,
                                  .core_class = p->core_class, .bytes_per_s = probe_dist(base, i),
                                  .latency_ns_p50 = latency(&all, 0.5), .latency_ns_p99 = latency(&all, 0.99),
                                  .cpu_ns_per_read = all.n ? all.cpu_ns / (double)all.n : 0, .page_bytes = s->page_bytes,
                                  .origin = HW_MEASURED };
        if (all.found > 0) /* a read is found with so many others in the mean */
            row.batch_completion_share = fmin(1, all.squares / all.found / p->depth);
        if (i + 1 < base->n_points && s->points[i + 1].slots)
            row.uncached_destination_ratio = slots_share(s, p->block);
        r = probe_record(base, i, HWDB_STORAGE, &row, to, e);
    }
    return r;
}

static void release(struct probe *base)
{
    struct storage_probe *s = (struct storage_probe *)base;
    if (s->buf)
        munmap(s->buf, MAX_IN_FLIGHT_BYTES);
    probe_file_close(&s->file);
    s->buf = NULL;
}

static void done(struct probe *base)
{
    struct storage_probe *s = (struct storage_probe *)base;
    free(s->points);
    free(s);
}

/* ---- the grid ---- */

/* Lists end with 0. */
struct grid {
    enum hw_backend backend;
    enum hw_pattern pattern;
    uint64_t blocks[10];
    int depths[MAX_DEPTHS], lanes[3];
    int small_range;  /* a quarter of the range too */
    int slower_cores; /* on each slower class, in place of the fastest */
    int slots;        /* one lane's reads over the whole range at depths of 1 to 32 also into other places each */
};

#define K *1024u
static const struct grid full_grids[] = {
    { HW_URING, HW_RANDOM, { 4 K, 8 K, 16 K, 32 K, 64 K, 128 K, 256 K, 512 K, 1024 K }, { 1, 4, 16, 32, 64, 128 }, { 1, 2 }, 1, 0, 1 },
    { HW_URING, HW_SEQ, { 4 K, 16 K, 64 K, 256 K, 512 K, 1024 K }, { 1, 4, 16, 32 }, { 1 }, 0, 0, 0 },
    { HW_PREAD, HW_RANDOM, { 4 K, 8 K, 16 K, 32 K, 64 K, 128 K, 256 K, 512 K, 1024 K }, { 1, 4, 16 }, { 1 }, 1, 0, 0 },
    { HW_PREAD, HW_SEQ, { 4 K, 16 K, 64 K, 256 K, 512 K, 1024 K }, { 1, 4, 16 }, { 1 }, 0, 0, 0 },
    { HW_URING, HW_RANDOM, { 4 K, 64 K }, { 32 }, { 1 }, 0, 1, 0 },
    { HW_PREAD, HW_RANDOM, { 4 K, 64 K }, { 4 }, { 1 }, 0, 1, 0 },
};
static const struct grid quick_grids[] = {
    { HW_URING, HW_RANDOM, { 4 K, 8 K, 16 K, 64 K, 1024 K }, { 1, 8, 32, 64, 128 }, { 1 }, 0, 0, 1 },
    { HW_URING, HW_RANDOM, { 4 K, 64 K }, { 32 }, { 2 }, 0, 0, 0 },
    { HW_URING, HW_SEQ, { 4 K, 64 K, 1024 K }, { 1, 8, 32 }, { 1 }, 0, 0, 0 },
    { HW_PREAD, HW_RANDOM, { 4 K, 8 K, 16 K, 64 K, 1024 K }, { 1, 8 }, { 1 }, 0, 0, 0 }, /* the same sizes: backends are compared */
    { HW_PREAD, HW_SEQ, { 4 K, 64 K, 1024 K }, { 1, 8 }, { 1 }, 0, 0, 0 },
};

static int add(struct storage_probe *s, const struct point *p)
{
    assert(p->depth <= MAX_DEPTH);
    if (p->block * (uint64_t)p->depth * (uint64_t)p->lanes > MAX_IN_FLIGHT_BYTES ||
        p->range / p->block < (uint64_t)p->depth * (uint64_t)p->lanes)
        return 0;
    if (s->base.n_points == s->cap) {
        int cap = s->cap ? 2 * s->cap : 64;
        struct point *q = realloc(s->points, (size_t)cap * sizeof *q);
        if (!q)
            return -1;
        s->points = q;
        s->cap = cap;
    }
    s->points[s->base.n_points++] = *p;
    return 0;
}

static int add_grid(struct storage_probe *s, const struct grid *g, int core_class)
{
    for (int small = 0; small <= g->small_range; small++)
        for (const int *lanes = g->lanes; *lanes; lanes++)
            for (const int *depth = g->depths; *depth; depth++)
                for (const uint64_t *block = g->blocks; *block; block++) {
                    struct point p = { .backend = g->backend, .pattern = g->pattern, .block = *block, .depth = *depth,
                                       .lanes = *lanes, .core_class = core_class,
                                       .range = small ? s->file.bytes / 4 : s->file.bytes };
                    int n = s->base.n_points;
                    if (add(s, &p) < 0)
                        return -1;
                    p.slots = g->slots && !small && *lanes == 1 && *depth <= 32;
                    if (p.slots && s->base.n_points > n && add(s, &p) < 0)
                        return -1;
                }
    return 0;
}

#ifndef NO_URING
int probe_uring_init(int depth, void *ring)
{
    int r = -ENOMEM;
    for (int ms = 0; r == -ENOMEM && ms < 1000; ms++) {
        if (ms)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        r = io_uring_queue_init((unsigned)depth, ring, 0);
    }
    return r;
}
#endif

int probe_have_uring(void)
{
#ifndef NO_URING
    struct io_uring ring;
    if (uring_may_be_tried() && io_uring_queue_init(1, &ring, 0) == 0) {
        io_uring_queue_exit(&ring);
        return 1;
    }
#endif
    return 0;
}

int probe_storage_new(const struct probe_config *c, struct probe **out, struct err *e)
{
    const struct grid *grids = c->quick ? quick_grids : full_grids;
    size_t n_grids = c->quick ? sizeof quick_grids / sizeof *grids : sizeof full_grids / sizeof *grids;
    int uring = probe_have_uring(), bad = 0, classes = c->cpus->n_classes;
    struct storage_probe *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "measuring storage: out of memory");
    probe_file_init(&s->file, c->storage_dir, c->range_bytes);
    s->cpus = *c->cpus;
    for (size_t i = 0; i < n_grids && !bad; i++) {
        if (grids[i].backend == HW_URING && !uring)
            continue;
        /* One class: not pinned. More: the grid on the fastest, samples on the others. */
        int from = classes == 1 ? -1 : grids[i].slower_cores ? 1
                                                             : 0;
        int to = classes == 1 ? (grids[i].slower_cores ? -2 : -1) : grids[i].slower_cores ? classes - 1
                                                                                          : 0;
        for (int k = from; k <= to && !bad; k++)
            bad = add_grid(s, &grids[i], k) < 0;
    }
    int n = s->base.n_points;
    s->base = (struct probe){ .table = "storage", .n_points = n, .reps = c->quick ? QUICK_REPS : REPS,
                              .direct_verified = -1, .kernel_helps = 1, .disk_bytes = s->file.bytes,
                              .memory_bytes = MAX_IN_FLIGHT_BYTES, .prepare = prepare, .sample = sample, .store = store,
                              .release = release, .done = done };
    double point = c->seconds_per_point > 0 ? c->seconds_per_point : c->quick ? 0.15
                                                                              : 0.5;
    s->base.seconds = point / s->base.reps;
    if (!uring)
        log_info("io_uring is not available here: storage is measured with pread alone");
    if (bad) {
        probe_free(&s->base);
        return err_set(e, ERR_NOMEM, "measuring storage: out of memory");
    }
    *out = &s->base;
    return 0;
}
