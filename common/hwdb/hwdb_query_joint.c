/* What reading and computing cost each other, between measured points. Of a number of threads and a size of reads the share of computing
 * that is lost is a curve over the rate that was read, from nothing at no rate on; the share of their rate that reads lose is one over the
 * depth. Between sizes both are linear in their logarithm, between numbers of threads in their number; beyond the ends they are held.
 * More of a rate, or of threads, costs no less: points that say otherwise are noise, and have the mean of their neighbours. */
#include "common/hwdb/hwdb_query.h"

#include <math.h>

/* Points in order of x. */
struct line {
    int n;
    double x[HW_MAX_JOINT + 1], y[HW_MAX_JOINT + 1];
};

static void put(struct line *l, double x, double y)
{
    int i = l->n++;
    for (; i > 0 && l->x[i - 1] > x; i--)
        l->x[i] = l->x[i - 1], l->y[i] = l->y[i - 1];
    l->x[i] = x, l->y[i] = y;
}

/* The nearest line that does not fall, by pooling neighbours that do (Ayer et al. 1955). */
static void raise(struct line *l)
{
    for (int end = 1; end < l->n; end++) {
        double mean = l->y[end];
        int from = end;
        while (from > 0 && l->y[from - 1] > mean) { /* a pool: points of one value */
            int first = from - 1;
            while (first > 0 && l->y[first - 1] >= l->y[from - 1])
                first--;
            mean = (mean * (end - from + 1) + l->y[from - 1] * (from - first)) / (end - first + 1);
            from = first;
        }
        for (int i = from; i <= end; i++)
            l->y[i] = mean;
    }
}

static double at(const struct line *l, double x)
{
    int i = 0;
    while (i < l->n && l->x[i] <= x)
        i++;
    if (i == 0 || i == l->n)
        return l->y[i ? i - 1 : 0];
    return l->y[i - 1] + (x - l->x[i - 1]) / (l->x[i] - l->x[i - 1]) * (l->y[i] - l->y[i - 1]);
}

struct asked {
    const struct hw *h;
    enum hw_backend backend;
    double block, depth, rate; /* rate > 0: what computing loses beside so much; else what reads lose at this depth */
    int threads;
};

static int is_of(const struct asked *a, const struct hw_joint *p)
{
    return p->backend == a->backend && (a->rate > 0 || p->load_percent == 100);
}

static double at_block(const struct asked *a, int threads, uint64_t block)
{
    struct line l = { .n = 0 };
    if (a->rate > 0)
        put(&l, 0, 0);
    for (int i = 0; i < a->h->n_joint; i++) {
        const struct hw_joint *p = &a->h->joint[i];
        if (is_of(a, p) && p->threads == threads && p->block_bytes == block)
            put(&l, a->rate > 0 ? p->bytes_per_s.p50 : log(p->queue_depth), 1 - (a->rate > 0 ? p->row_rate_ratio : p->read_rate_ratio));
    }
    if (a->rate > 0)
        raise(&l);
    return at(&l, a->rate > 0 ? a->rate : log(a->depth));
}

static double at_threads(const struct asked *a, int threads)
{
    struct line l = { .n = 0 };
    uint64_t was = 0;
    for (int i = 0; i < a->h->n_joint; i++) { /* those of one size follow each other */
        const struct hw_joint *p = &a->h->joint[i];
        if (!is_of(a, p) || p->threads != threads || p->block_bytes == was)
            continue;
        was = p->block_bytes;
        put(&l, log((double)was), at_block(a, threads, was));
    }
    return at(&l, log(a->block));
}

/* 0 to 1; NAN: there are no such points. */
static double lost_share(const struct asked *a)
{
    struct line l = { .n = 0 };
    for (int i = 0, was = 0; i < a->h->n_joint; i++) { /* likewise */
        const struct hw_joint *p = &a->h->joint[i];
        if (!is_of(a, p) || p->threads == was)
            continue;
        was = p->threads;
        put(&l, was, at_threads(a, was));
    }
    raise(&l);
    return l.n ? at(&l, a->threads) : NAN;
}

int hw_beside_of(const struct hw *h, const struct hw_read *q, int threads, double bytes_per_s, struct hw_beside *out)
{
    struct asked a = { .h = h, .backend = q->backend, .block = (double)q->block_bytes, .depth = q->queue_depth, .threads = threads };
    *out = (struct hw_beside){ 0, 1 };
    if (a.backend == HW_ANY_BACKEND)
        a.backend = HW_URING;
    double slowed = bytes_per_s > 0 && q->block_bytes && q->queue_depth > 0 ? lost_share(&a) : NAN;
    if (isnan(slowed))
        return 0;
    out->kept = fmax(1e-3, 1 - slowed);
    a.rate = out->kept * bytes_per_s;
    out->lost_ns = 1e9 * a.block / a.rate * lost_share(&a);
    return 1;
}
