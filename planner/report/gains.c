/* Replay is most of a run of the planner, so adjacent memory limits of one context and chunk are solved together: those of the
 * plan, each with a MiB and a GiB more. A change of the device is a run of its own, for all of them. */
#include "planner/report/gains.h"

#include "common/base/print.h"
#include "common/base/progress.h"
#include "planner/planning/planning.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB       (UINT64_C(1) << 20)
#define GIB       (UINT64_C(1) << 30)
#define MEMORIES  3     /* as it is, a MiB more, a GiB more */
#define AT_ONCE   (PLAN_MAX_LIMITS / MEMORIES)
#define SAME      1e-5  /* figures are written with six digits */
#define NO_GAIN   1e-3

/* Limits that are solved together. */
struct group {
    const struct plan_limit *limits;
    int n;
    const struct inputs *in;
    struct progress *show;
    struct gains *out;
};

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Speeds of the group's limits with so much more memory: out[n_more][n]. */
static int speeds(const struct group *g, struct request *q, const struct hw *hw, const uint64_t *more, int n_more, double *out,
                  struct err *e)
{
    uint64_t all[PLAN_MAX_LIMITS];
    struct notes notes = { 0 };
    struct plan p;
    int n = 0, r;
    for (int k = 0; k < n_more; k++)
        for (int i = 0; i < g->n; i++)
            all[n++] = g->limits[i].memory_bytes + more[k];
    qsort(all, (size_t)n, sizeof *all, by_size);
    q->n_memory = 0;
    for (int i = 0; i < n; i++)
        if (i == 0 || all[i] > all[i - 1])
            q->memory[q->n_memory++] = all[i];
    if ((r = planning_make(q, g->in, hw, &notes, &p, e)) < 0)
        return err_wrap(e, "solving again for what more would buy");
    for (int k = 0; k < n_more; k++)
        for (int i = 0; i < g->n; i++)
            out[k * g->n + i] = plan_pick(&p, g->limits[i].memory_bytes + more[k])->batches[0].predicted.tokens_per_s;
    plan_done(&p);
    progress_add(g->show, 1);
    return 0;
}

static void add(const struct group *g, enum gain_of of, int core_class, uint64_t more, const double *speed, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
static void add(const struct group *g, enum gain_of of, int core_class, uint64_t more, const double *speed, const char *fmt, ...)
{
    for (int i = 0; i < g->n; i++) {
        struct gain *o = &g->out[i].gain[g->out[i].n++];
        va_list ap;
        *o = (struct gain){ of, core_class, "", g->limits[i].memory_bytes + more, speed[i] };
        va_start(ap, fmt);
        print_into_va(o->what, sizeof o->what, fmt, ap);
        va_end(ap);
    }
}

static int more_memory(const struct group *g, struct request *q, const struct hw *hw, struct err *e)
{
    static const uint64_t more[MEMORIES] = { 0, MIB, GIB };
    double speed[MEMORIES * AT_ONCE];
    int r = speeds(g, q, hw, more, MEMORIES, speed, e);
    if (r < 0)
        return r;
    for (int i = 0; i < g->n; i++)
        g->out[i].again = speed[i];
    add(g, GAIN_MIB, -1, MIB, speed + g->n, "one more MiB of memory");
    add(g, GAIN_GIB, -1, GIB, speed + 2 * g->n, "one more GiB of memory");
    return 0;
}

/* One more core of a class may be one that the request left out. */
static int more_cores(const struct group *g, const struct request *q, const struct hw *hw, int core_class, struct err *e)
{
    static const uint64_t none = 0;
    struct request wider = *q;
    struct hw other = *hw;
    double speed[AT_ONCE];
    int asked = q->cores[core_class];
    if (asked < 0 || asked >= hw->classes[core_class].n_cores)
        other.classes[core_class].n_cores++;
    if (asked >= 0)
        wider.cores[core_class]++;
    int r = speeds(g, &wider, &other, &none, 1, speed, e);
    if (r == 0)
        add(g, GAIN_CORE, core_class, 0, speed, "one more core of class %.60s", hw->classes[core_class].name);
    return r;
}

/* Throughput doubled, latency and CPU time per read halved. */
static int fast_storage(const struct group *g, struct request *q, const struct hw *hw, struct err *e)
{
    static const uint64_t none = 0;
    struct hw other = *hw;
    double speed[AT_ONCE];
    struct hw_storage *s = malloc(((size_t)hw->n_storage + 1) * sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (int i = 0; i < hw->n_storage; i++) {
        s[i] = hw->storage_points[i];
        s[i].bytes_per_s.p10 *= 2, s[i].bytes_per_s.p50 *= 2, s[i].bytes_per_s.p90 *= 2;
        s[i].latency_ns_p50 /= 2, s[i].latency_ns_p99 /= 2, s[i].cpu_ns_per_read /= 2;
    }
    other.storage_points = s;
    int r = speeds(g, q, &other, &none, 1, speed, e);
    if (r == 0)
        add(g, GAIN_STORAGE, -1, 0, speed, "storage twice as fast");
    free(s);
    return r;
}

static int n_classes(const struct hw *hw)
{
    return hw->n_classes < GAINS_CLASSES ? hw->n_classes : GAINS_CLASSES;
}

static int find(const struct group *g, const struct plan *p, const struct hw *hw, struct err *e)
{
    struct request q;
    request_again(p, g->limits, hw, &q);
    int r = more_memory(g, &q, hw, e);
    for (int k = 0; k < n_classes(hw) && r == 0; k++)
        r = more_cores(g, &q, hw, k, e);
    return r < 0 ? r : fast_storage(g, &q, hw, e);
}

/* How many limits, from the first on, are solved together. */
static int group_size(const struct plan_limit *l, int n)
{
    int k = 1;
    while (k < n && k < AT_ONCE && l[k].context == l[0].context && l[k].prefill_chunk == l[0].prefill_chunk)
        k++;
    return k;
}

int gains_find(const struct plan *p, const struct plan_limit *limits, int n, const struct inputs *in, const struct hw *hw,
               struct gains *out, struct err *e)
{
    struct progress show;
    uint64_t groups = 0;
    int r = 0;
    memset(out, 0, (size_t)n * sizeof *out);
    for (int i = 0; i < n; i += group_size(limits + i, n - i))
        groups++;
    progress_init(&show, "solving again for what more would buy", "plans", groups * (uint64_t)(2 + n_classes(hw)));
    for (int i = 0; i < n && r == 0; i += group_size(limits + i, n - i)) {
        struct group g = { limits + i, group_size(limits + i, n - i), in, &show, out + i };
        r = find(&g, p, hw, e);
    }
    progress_done(&show);
    return r;
}

int gains_same(const struct gains *g, const struct plan_limit *l)
{
    double speed = l->batches[0].predicted.tokens_per_s;
    return fabs(g->again - speed) <= SAME * fmax(g->again, speed);
}

const struct gain *gains_best(const struct gains *g, const struct plan_limit *l)
{
    const struct gain *best = NULL;
    double most = l->batches[0].predicted.tokens_per_s * (1 + NO_GAIN);
    for (int i = 0; i < g->n; i++)
        if (g->gain[i].tokens_per_s > most) {
            best = &g->gain[i];
            most = best->tokens_per_s;
        }
    return best;
}
