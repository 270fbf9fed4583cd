/* Interpolation between measured points: the questions a planner asks of a device. Points are few (hundreds) and grids may be ragged or
 * hand-made, so nothing need be sorted: the points that belong to the curve asked for are picked (of a loaded device, among those of the
 * kernel or of the kind of reads), and each dimension finds its bracketing values by one scan over those that agree in the dimensions
 * outside it. That makes answers independent of the order of points, needs no heap, and cannot fail. Scales are logarithmic throughout,
 * since block sizes, depths and rates all span decades and their curves are close to power laws in between. */
#include "common/hwdb/hwdb_query.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS = 3 };

/* Points as a curve in DIMS coordinates: get returns 0 for a point that does not belong. Coordinates and values
 * are positive. In a dimension with its bit in `proportional` values grow with the coordinate beyond the end. */
struct curve {
    const struct hw *h;
    int first, n; /* points from first to n */
    int (*get)(const struct hw *h, int i, const void *filter, double x[DIMS], double *y);
    const void *filter;
    double at[DIMS];
    unsigned proportional;
};

/* The curve's value where the coordinates before dim equal fixed[]; 0 when there is no such point. */
static double nested(const struct curve *c, int dim, double fixed[DIMS])
{
    double lo = 0, hi = 0, x[DIMS], y;
    for (int i = c->first; i < c->n; i++) {
        if (!c->get(c->h, i, c->filter, x, &y))
            continue;
        int same = 1;
        for (int d = 0; d < dim; d++)
            same &= x[d] == fixed[d];
        if (!same)
            continue;
        if (dim == DIMS)
            return y;
        if (x[dim] <= c->at[dim] && (lo == 0 || x[dim] > lo))
            lo = x[dim];
        if (x[dim] >= c->at[dim] && (hi == 0 || x[dim] < hi))
            hi = x[dim];
    }
    if (dim == DIMS || (lo == 0 && hi == 0))
        return 0;
    if (lo == hi || lo == 0 || hi == 0) {
        fixed[dim] = lo != 0 ? lo : hi;
        double v = nested(c, dim + 1, fixed);
        return hi == 0 && c->proportional & 1u << dim ? v * (c->at[dim] / lo) : v;
    }
    fixed[dim] = lo;
    double a = nested(c, dim + 1, fixed);
    fixed[dim] = hi;
    double b = nested(c, dim + 1, fixed);
    double t = (log(c->at[dim]) - log(lo)) / (log(hi) - log(lo));
    return exp(log(a) + t * (log(b) - log(a)));
}

/* The points of a curve that belong to it, picked once: mostly few of many, and nested() goes over them again and again. */
enum { PICKED = 128 };

struct picked {
    int n;
    double x[PICKED][DIMS], y[PICKED];
};

static int picked_get(const struct hw *h, int i, const void *filter, double x[DIMS], double *y)
{
    const struct picked *p = filter;
    (void)h;
    memcpy(x, p->x[i], sizeof p->x[i]);
    *y = p->y[i];
    return 1;
}

/* 0: there are more than fit. */
static int pick(const struct curve *c, struct picked *out)
{
    double x[DIMS], y;
    out->n = 0;
    for (int i = c->first; i < c->n; i++) {
        if (!c->get(c->h, i, c->filter, x, &y))
            continue;
        if (out->n == PICKED)
            return 0;
        memcpy(out->x[out->n], x, sizeof x);
        out->y[out->n++] = y;
    }
    return 1;
}

/* The same curve over those of the device's points that it consists of, so that they are looked for once. few: memory for them. */
static struct curve nearer(const struct curve *c, struct picked *few)
{
    struct curve near = *c;
    if (pick(c, few)) {
        near.first = 0;
        near.n = few->n;
        near.get = picked_get;
        near.filter = few;
    }
    return near;
}

/* Of a curve as nearer() returns it. */
static double value_near(const struct curve *near)
{
    double fixed[DIMS] = { 0 };
    for (int d = 0; d < DIMS; d++)
        if (!(near->at[d] > 0) || !isfinite(near->at[d]))
            return 0;
    return nested(near, 0, fixed);
}

static double curve_value(const struct curve *c)
{
    struct picked few;
    struct curve near = nearer(c, &few);
    return value_near(&near);
}

static double rate_stat(const struct hw_dist *d, enum hw_stat stat)
{
    return stat == HW_SUSTAINED && d->p10 > 0 ? d->p10 : d->p50;
}

static double time_stat(const struct hw_dist *d, enum hw_stat stat)
{
    return stat == HW_SUSTAINED && d->p90 > 0 ? d->p90 : d->p50;
}

/* ---- storage: range, then depth, then block ---- */

enum storage_what { RATE, CPU_NS, TOGETHER, SLOTS };

struct storage_filter {
    enum storage_what what;
    enum hw_backend backend;
    enum hw_pattern pattern;
    enum hw_stat stat;
    int lanes, core_class; /* lanes 0: any */
};

static double storage_value(const struct hw_storage *p, enum storage_what what, enum hw_stat stat)
{
    switch (what) {
    case CPU_NS:
        return p->cpu_ns_per_read;
    case TOGETHER:
        return p->batch_completion_share;
    case SLOTS:
        return p->uncached_destination_ratio;
    case RATE:
        break;
    }
    return rate_stat(&p->bytes_per_s, stat);
}

static int storage_get(const struct hw *h, int i, const void *filter, double x[DIMS], double *y)
{
    const struct storage_filter *f = filter;
    const struct hw_storage *p = &h->storage_points[i];
    if (p->backend != f->backend || p->pattern != f->pattern || p->core_class != f->core_class ||
        (f->lanes && p->lanes != f->lanes))
        return 0;
    x[0] = (double)p->range_bytes;
    x[1] = p->queue_depth;
    x[2] = (double)p->block_bytes;
    *y = storage_value(p, f->what, f->stat);
    return *y > 0;
}

/* The points among which those are that a filter admits. */
static void read_points(const struct hw *h, const struct storage_filter *f, int *first, int *n)
{
    int end = h->reads_end[f->backend][f->pattern];
    *first = h->reads_first[f->backend][f->pattern];
    *n = end && end < h->n_storage ? end : h->n_storage;
}

static double distance(double a, double b)
{
    return fabs(log(a) - log(b));
}

/* The number of lanes measured that is nearest to the one asked for, among points that f admits. */
static int nearest_lanes(const struct hw *h, const struct storage_filter *f, int lanes)
{
    struct storage_filter any = *f;
    int best = 0, first, n;
    any.lanes = 0;
    read_points(h, f, &first, &n);
    for (int i = first; i < n; i++) {
        double x[DIMS], y;
        if (!storage_get(h, i, &any, x, &y))
            continue;
        int l = h->storage_points[i].lanes;
        if (l == best)
            continue;
        double d = distance(l, lanes), old = best ? distance(best, lanes) : INFINITY;
        if (d < old || (d == old && l < best))
            best = l;
    }
    return best;
}

static double storage_at(const struct hw *h, const struct storage_filter *f, double range, double depth,
                         double block)
{
    struct curve c = { .h = h, .get = storage_get, .filter = f, .at = { range, depth, block } };
    read_points(h, f, &c.first, &c.n);
    return curve_value(&c);
}

/* The class whose points form the main grid: unpinned ones, else the class with most points. */
static int storage_base_class(const struct hw *h, const struct storage_filter *f)
{
    int count[HW_MAX_CLASSES + 1] = { 0 }, best = 0, first, n;
    read_points(h, f, &first, &n);
    for (int i = first; i < n; i++) {
        struct storage_filter one = *f;
        double x[DIMS], y;
        one.lanes = 0;
        one.core_class = h->storage_points[i].core_class;
        if (one.core_class >= -1 && one.core_class < HW_MAX_CLASSES && storage_get(h, i, &one, x, &y))
            count[one.core_class + 1]++;
    }
    for (int c = 1; c <= HW_MAX_CLASSES; c++)
        if (count[c] > count[best] && !count[0])
            best = c;
    return best - 1;
}

/* How this class compares with the base grid, at the point of the class nearest to the one asked for. */
static double class_ratio(const struct hw *h, const struct storage_filter *base, int core_class,
                          const double at[DIMS])
{
    struct storage_filter f = *base;
    double best = INFINITY, ratio = 1;
    int first, n;
    f.core_class = core_class;
    f.lanes = 0;
    read_points(h, &f, &first, &n);
    for (int i = first; i < n; i++) {
        double x[DIMS], y, d = 0;
        if (!storage_get(h, i, &f, x, &y))
            continue;
        for (int k = 0; k < DIMS; k++)
            d += distance(x[k], at[k]);
        double b = d < best ? storage_at(h, base, x[0], x[1], x[2]) : 0;
        if (b > 0) {
            best = d;
            ratio = y / b;
        }
    }
    return ratio;
}

static double storage_one(const struct hw *h, const struct hw_read *q, enum hw_backend backend,
                          enum storage_what what, enum hw_stat stat)
{
    struct storage_filter f = { what, backend, q->pattern, stat, 0, -1 };
    f.core_class = storage_base_class(h, &f);
    f.lanes = nearest_lanes(h, &f, q->lanes > 0 ? q->lanes : 1);
    double range = q->range_bytes ? (double)q->range_bytes : INFINITY;
    if (isinf(range))
        for (int i = 0; i < h->n_storage; i++) {
            double r = (double)h->storage_points[i].range_bytes;
            range = isinf(range) || r > range ? r : range;
        }
    double at[DIMS] = { range, q->queue_depth > 0 ? q->queue_depth : 1, (double)q->block_bytes };
    double v = storage_at(h, &f, at[0], at[1], at[2]);
    if (v > 0 && q->core_class >= 0 && q->core_class != f.core_class)
        v *= class_ratio(h, &f, q->core_class, at);
    return v;
}

static double storage_query(const struct hw *h, const struct hw_read *q, enum storage_what what,
                            enum hw_stat stat)
{
    enum hw_backend backend = q->backend;
    double v = -1;
    if (backend == HW_ANY_BACKEND) {
        double uring = storage_one(h, q, HW_URING, RATE, stat), pread = storage_one(h, q, HW_PREAD, RATE, stat);
        backend = uring >= pread ? HW_URING : HW_PREAD;
        if (what == RATE)
            v = uring >= pread ? uring : pread;
    }
    if (v < 0)
        v = storage_one(h, q, backend, what, stat);
    if (v == 0 && q->pattern == HW_SEQ) { /* reads in order are no slower than reads anywhere */
        struct hw_read r = *q;
        r.pattern = HW_RANDOM;
        v = storage_query(h, &r, what, stat);
    }
    return v;
}

double hw_storage_bytes_per_s(const struct hw *h, const struct hw_read *q, enum hw_stat stat)
{
    return storage_query(h, q, RATE, stat);
}

double hw_storage_cpu_ns_per_read(const struct hw *h, const struct hw_read *q)
{
    return storage_query(h, q, CPU_NS, HW_TYPICAL);
}

double hw_storage_together(const struct hw *h, const struct hw_read *q)
{
    return fmin(1, storage_query(h, q, TOGETHER, HW_TYPICAL));
}

double hw_storage_slots(const struct hw *h, const struct hw_read *q)
{
    double v = storage_query(h, q, SLOTS, HW_TYPICAL);
    return v > 0 ? v : 1;
}

uint64_t hw_storage_page_bytes(const struct hw *h)
{
    uint64_t least = 0;
    for (int i = 0; i < h->n_storage; i++) {
        uint64_t page = h->storage_points[i].page_bytes;
        least = page && (!least || page < least) ? page : least;
    }
    return least;
}

/* ---- memory: threads, then row size ---- */

struct memory_filter {
    const char *engines;
    enum hw_pattern pattern;
    enum hw_stat stat;
};

static int memory_get(const struct hw *h, int i, const void *filter, double x[DIMS], double *y)
{
    const struct memory_filter *f = filter;
    const struct hw_memory *p = &h->memory[i];
    if (p->pattern != f->pattern || strcmp(p->engines, f->engines) != 0)
        return 0;
    x[0] = 1;
    x[1] = p->threads > 0 ? p->threads : 1;
    x[2] = (double)p->row_bytes;
    *y = rate_stat(&p->bytes_per_s, f->stat);
    return *y > 0;
}

double hw_memory_bytes_per_s(const struct hw *h, const char *engines, enum hw_pattern pattern,
                             uint64_t row_bytes, int threads, enum hw_stat stat)
{
    struct memory_filter f = { engines, pattern, stat };
    struct curve c = { .h = h,
                       .n = h->n_memory,
                       .get = memory_get,
                       .filter = &f,
                       .at = { 1, threads > 0 ? threads : 1, (double)row_bytes } };
    double v = curve_value(&c);
    if (v == 0 && pattern == HW_RANDOM) {
        f.pattern = HW_SEQ;
        v = curve_value(&c);
    }
    return v;
}

double hw_mem_bytes_per_s(const struct hw *h, enum hw_stat stat)
{
    struct memory_filter f = { "cpu", HW_SEQ, stat };
    double best = 0, x[DIMS], y;
    for (int i = 0; i < h->n_memory; i++)
        if (memory_get(h, i, &f, x, &y) && y > best)
            best = y;
    return best;
}

/* ---- compute: threads, then batch, then row length ---- */

struct compute_filter {
    const char *kernel;
    enum hw_pattern pattern;
    enum hw_stat stat;
    int core_class, dram;
};

static int compute_get(const struct hw *h, int i, const void *filter, double x[DIMS], double *y)
{
    const struct compute_filter *f = filter;
    const struct hw_compute *p = &h->compute[i];
    if (p->core_class != f->core_class || p->pattern != f->pattern || p->dram != f->dram || p->row_len < 1 ||
        strcmp(p->kernel, f->kernel) != 0)
        return 0;
    x[0] = p->threads;
    x[1] = p->batch;
    x[2] = p->row_len;
    *y = time_stat(&p->ns_per_row, f->stat);
    return *y > 0;
}

/* Of points by kernel, the first whose kernel is not before this one, or (after) is behind it. */
static int kernel_bound(const struct hw *h, const char *kernel, int after)
{
    int lo = 0, hi = h->n_compute;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (strcmp(h->compute[mid].kernel, kernel) < after)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The points among which those of a kernel are. */
static void kernel_points(const struct hw *h, const char *kernel, int *first, int *n)
{
    *first = h->by_kernel ? kernel_bound(h, kernel, 0) : 0;
    *n = h->by_kernel ? kernel_bound(h, kernel, 1) : h->n_compute;
}

/* More threads than the curve's points have: as if they scaled, up to the cores there are. */
static double thread_scale(const struct curve *c, int cores, int threads)
{
    int most = 0;
    double x[DIMS], y;
    for (int i = c->first; i < c->n; i++)
        if (c->get(c->h, i, c->filter, x, &y) && (int)x[0] > most)
            most = (int)x[0];
    int can = threads < cores ? threads : cores;
    return can > most && most > 0 ? (double)most / can : 1;
}

static double measured_row_ns(const struct hw *h, const struct hw_rows *q, enum hw_stat stat)
{
    int first, n;
    kernel_points(h, q->kernel, &first, &n);
    for (int k = 0; k < 4; k++) { /* as asked; the other pattern; the other residence; both other */
        struct compute_filter f = { q->kernel, k & 1 ? (enum hw_pattern) !q->pattern : q->pattern, stat,
                                    q->core_class, k & 2 ? !q->dram : q->dram };
        struct curve c = { .h = h,
                           .first = first,
                           .n = n,
                           .get = compute_get,
                           .filter = &f,
                           .at = { q->threads > 0 ? q->threads : 1, q->batch, q->row_len },
                           .proportional = 6 };
        struct picked few;
        struct curve near = nearer(&c, &few);
        double v = value_near(&near);
        if (v > 0)
            return v * thread_scale(&near, hw_cores(h, f.core_class), q->threads);
    }
    return 0;
}

int hw_fetched_tokens(const struct hw *h, const char *kernel, enum hw_pattern pattern, int row_len, int batch)
{
    int most = 1, first, n;
    kernel_points(h, kernel, &first, &n);
    for (int i = first; i < n && batch > 1; i++) {
        const struct hw_compute *p = &h->compute[i];
        if (p->dram && p->pattern == pattern && p->row_len <= row_len && p->batch > most && p->batch <= batch &&
            strcmp(p->kernel, kernel) == 0)
            most = p->batch;
    }
    return most;
}

double hw_work_ns(const struct hw *h, const char *work, int core_class, int threads, int size, enum hw_stat stat)
{
    int grows = strcmp(work, "work/start") != 0 && strcmp(work, "work/turn") != 0 && strcmp(work, "work/lookup") != 0 &&
                strcmp(work, "work/act") != 0 && strcmp(work, "work/sift") != 0;
    struct compute_filter f = { work, HW_RANDOM, stat, core_class, 1 };
    struct curve c = { .h = h, .get = compute_get, .filter = &f, .at = { threads, 1, size }, .proportional = grows ? 4 : 0 };
    kernel_points(h, work, &c.first, &c.n);
    return curve_value(&c);
}

/* A stated rate: of this class's core, else of one thread of all classes. */
static double stated_flops(const struct hw *h, int core_class, const char *kernel)
{
    double shared = 0;
    int first, n;
    kernel_points(h, kernel, &first, &n);
    for (int i = first; i < n; i++) {
        const struct hw_compute *p = &h->compute[i];
        if (strcmp(p->kernel, kernel) != 0 || p->threads < 1)
            continue;
        if (p->core_class == core_class)
            return p->flops_per_s / p->threads;
        if (p->core_class == -1)
            shared = p->flops_per_s / p->threads;
    }
    return shared;
}

static double fallback_flops(const struct hw *h, int core_class, const char *kernel)
{
    size_t n = kernel ? strlen(kernel) : 0;
    int int8 = n >= 3 && strcmp(kernel + n - 3, "/q8") == 0;
    double v = stated_flops(h, core_class, int8 ? "flops/int8" : "flops/fp32");
    return v > 0 ? v : stated_flops(h, core_class, int8 ? "flops/fp32" : "flops/int8");
}

static double class_row_ns(const struct hw *h, const struct hw_rows *q, enum hw_stat stat)
{
    double v = measured_row_ns(h, q, stat);
    if (v > 0)
        return v;
    double flops = fallback_flops(h, q->core_class, q->kernel);
    int threads = q->threads > 0 ? q->threads : 1;
    return flops > 0 ? 2e9 * q->row_len * q->batch / (flops * threads) : 0;
}

double hw_row_ns(const struct hw *h, const struct hw_rows *q, enum hw_stat stat)
{
    if (!q->kernel || q->row_len < 1 || q->batch < 1)
        return 0;
    if (q->core_class >= 0)
        return class_row_ns(h, q, stat);
    double v = measured_row_ns(h, q, stat), rows_per_ns = 0;
    if (v > 0)
        return v;
    int left = q->threads > 0 ? q->threads : 1; /* no such point: add up single cores, fastest first */
    for (int k = 0; k < h->n_classes && left > 0; k++) {
        struct hw_rows one = *q;
        int n = left < h->classes[k].n_cores ? left : h->classes[k].n_cores;
        one.core_class = k;
        one.threads = 1;
        double ns = class_row_ns(h, &one, stat);
        if (ns > 0) {
            rows_per_ns += n / ns;
            left -= n;
        }
    }
    return rows_per_ns > 0 ? 1 / rows_per_ns : 0;
}

double hw_class_flops_per_s(const struct hw *h, int core_class, const char *kernel, enum hw_stat stat)
{
    struct hw_rows q = {
        .kernel = kernel, .core_class = core_class, .pattern = HW_SEQ, .threads = 1, .batch = 1
    };
    int first = 0, n = 0;
    if (kernel)
        kernel_points(h, kernel, &first, &n);
    for (int i = first; i < n; i++)
        if (h->compute[i].core_class == core_class && h->compute[i].row_len > q.row_len &&
            strcmp(h->compute[i].kernel, kernel) == 0)
            q.row_len = h->compute[i].row_len;
    double ns = q.row_len ? measured_row_ns(h, &q, stat) : 0;
    return ns > 0 ? 2e9 * q.row_len / ns : fallback_flops(h, core_class, kernel);
}

/* ---- accelerators: batch, then rows, then columns ---- */

struct accel_filter {
    int accel;
    const char *op;
    enum hw_stat stat;
};

static int accel_get(const struct hw *h, int i, const void *filter, double x[DIMS], double *y)
{
    const struct accel_filter *f = filter;
    const struct hw_accel_point *p = &h->accel_points[i];
    if (p->accel != f->accel || strcmp(p->op, f->op) != 0)
        return 0;
    x[0] = p->batch;
    x[1] = p->rows;
    x[2] = p->cols;
    *y = time_stat(&p->ns, f->stat);
    return *y > 0;
}

int hw_accel_of(const struct hw *h, const char *name)
{
    for (int i = 0; h && name && i < h->n_accels; i++)
        if (!strcmp(h->accels[i].engine, name))
            return i;
    return -1;
}

/* The smallest and the largest sizes that the operation was measured with; 0: it was not. */
static void sizes_of(const struct hw *h, const struct accel_filter *f, double least[DIMS], double most[DIMS])
{
    double x[DIMS], y;
    memset(least, 0, DIMS * sizeof *least);
    memset(most, 0, DIMS * sizeof *most);
    for (int i = 0; i < h->n_accel_points; i++)
        for (int d = 0, has = accel_get(h, i, f, x, &y); d < DIMS && has; d++) {
            least[d] = least[d] <= 0 || x[d] < least[d] ? x[d] : least[d];
            most[d] = x[d] > most[d] ? x[d] : most[d];
        }
}

/* What a matrix takes however small it is: the least time of the corners, where that is not the time of this one; 0: not known. */
static double fixed_ns(const struct curve *c, const double least[DIMS], double ns)
{
    double fixed = ns;
    for (int corner = 1; corner < 4; corner++) {
        struct curve at = *c;
        for (int d = 1; d < DIMS; d++)
            at.at[d] = corner & d ? least[d] : c->at[d];
        double v = curve_value(&at);
        fixed = v > 0 && v < fixed ? v : fixed;
    }
    return fixed < ns ? fixed : 0;
}

double hw_accel_ns(const struct hw *h, int accel, const char *op, int rows, int cols, int batch,
                   enum hw_stat stat)
{
    struct accel_filter f = { accel, op, stat };
    struct curve c = { .h = h,
                       .n = h->n_accel_points,
                       .get = accel_get,
                       .filter = &f,
                       .at = { batch, rows, cols },
                       .proportional = 7 };
    double share = 1, beyond = 1, least[DIMS], most[DIMS];
    sizes_of(h, &f, least, most);
    for (int d = 1; d < DIMS; d++)
        if (c.at[d] > 0 && c.at[d] < least[d]) {
            share *= c.at[d] / least[d];
            c.at[d] = least[d];
        } else if (most[d] > 0 && c.at[d] > most[d]) {
            beyond *= c.at[d] / most[d];
            c.at[d] = most[d];
        }
    double ns = curve_value(&c), launch = accel >= 0 && accel < h->n_accels ? h->accels[accel].launch_ns : 0;
    double fixed = beyond > 1 ? fixed_ns(&c, least, ns) : 0;
    ns = fixed + beyond * (ns - fixed);
    launch = launch < ns ? launch : ns;
    return launch + share * (ns - launch);
}

/* ---- summaries ---- */
