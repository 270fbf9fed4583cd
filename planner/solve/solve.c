/* The relaxation, in C. With one memory constraint per batch size and convex curves the linear
 * programme has a closed solution: take the hulls' segments of all layers, steepest first, until the
 * memory is spent. It gives every configuration a proven bound in microseconds, which decides what
 * Z3 is asked at all, and a solution to fall back on when Z3 hits its limit. */
#include "planner/solve/solve.h"

#include <stdlib.h>
#include <string.h>

void solve_curve_done(struct solve_curve *c)
{
    free(c->point);
    free(c->hull);
    *c = (struct solve_curve){ 0 };
}

static int by_bytes(const void *pa, const void *pb)
{
    const struct solve_point *a = pa, *b = pb;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    if (a->ticks != b->ticks)
        return a->ticks < b->ticks ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* No curve has both: a comes first and is no slower. */
static int beats(const struct solve_point *a, const struct solve_point *b)
{
    return a->ticks <= b->ticks && by_bytes(a, b) <= 0;
}

/* b is on or above the line from a to c. */
static int above(const struct solve_point *a, const struct solve_point *b, const struct solve_point *c)
{
    __int128 rise = (__int128)(b->ticks - a->ticks) * (c->bytes - a->bytes);
    return rise >= (__int128)(c->ticks - a->ticks) * (b->bytes - a->bytes);
}

/* Of points[from, end), in any order, one ascending run's end. */
static int run_end(const struct solve_point *p, int from, int end)
{
    do
        from++;
    while (from < end && by_bytes(&p[from - 1], &p[from]) < 0);
    return from;
}

/* Merge the runs [0, mid) and [mid, n) into out; points that the one before them beats stay behind. Returns how many
 * are left. */
static int merge(const struct solve_point *in, int mid, int n, struct solve_point *out)
{
    int i = 0, j = mid, left = 0;
    while (i < mid || j < n) {
        int first = j == n || (i < mid && by_bytes(&in[i], &in[j]) < 0);
        const struct solve_point *p = first ? &in[i++] : &in[j++];
        if (left == 0 || !beats(&out[left - 1], p))
            out[left++] = *p;
    }
    return left;
}

/* Neighbouring runs are merged until there is one: callers' points are a few ascending lists. */
static int sort_points(struct solve_point **points, struct solve_point **spare, int n)
{
    for (;;) {
        struct solve_point *in = *points, *out = *spare;
        int left = 0, runs = 0;
        for (int from = 0; from < n; runs++) {
            int mid = run_end(in, from, n), end = mid < n ? run_end(in, mid, n) : mid;
            left += merge(in + from, mid - from, end - from, out + left);
            from = end;
        }
        *points = out;
        *spare = in;
        n = left;
        if (runs <= 1)
            return n;
    }
}

int solve_curve_init(struct solve_curve *c, const struct solve_point *points, int n, struct err *e)
{
    struct solve_curve o = { .point = malloc((size_t)n * sizeof *o.point),
                             .hull = malloc((size_t)n * sizeof *o.hull) };
    struct solve_point *spare = malloc((size_t)n * sizeof *spare);
    if (!o.point || !o.hull || !spare) {
        free(spare);
        solve_curve_done(&o);
        return err_set(e, ERR_NOMEM, "out of memory for a curve of %d points", n);
    }
    for (int i = 0; i < n; i++)
        if (o.n == 0 || !beats(&o.point[o.n - 1], &points[i]))
            o.point[o.n++] = points[i];
    o.n = sort_points(&o.point, &spare, o.n);
    free(spare);
    for (int i = 0; i < o.n; i++) {
        while (o.n_hull >= 2 && above(&o.point[o.hull[o.n_hull - 2]], &o.point[o.hull[o.n_hull - 1]], &o.point[i]))
            o.n_hull--;
        o.hull[o.n_hull++] = i;
    }
    *c = o;
    return 0;
}

void solve_config_done(const struct solve_problem *p, struct solve_config *c)
{
    int n = p->n_layers * p->n_batches;
    for (int i = 0; c->curves && i < n; i++)
        solve_curve_done(&c->curves[i]);
    for (int i = 0; c->kinds && i < n * c->n_kinds; i++)
        solve_curve_done(&c->kinds[i]);
    free(c->curves);
    free(c->kinds);
    c->curves = c->kinds = NULL;
}

int solve_curve_copy(struct solve_curve *c, const struct solve_curve *from, struct err *e)
{
    struct solve_curve o = { from->n, from->n_hull, malloc(((size_t)from->n + 1) * sizeof *o.point),
                             malloc(((size_t)from->n_hull + 1) * sizeof *o.hull) };
    if (!o.point || !o.hull) {
        solve_curve_done(&o);
        return err_set(e, ERR_NOMEM, "out of memory for a curve of %d points", from->n);
    }
    memcpy(o.point, from->point, (size_t)o.n * sizeof *o.point);
    memcpy(o.hull, from->hull, (size_t)o.n_hull * sizeof *o.hull);
    *c = o;
    return 0;
}

static const struct solve_curve *curve_at(const struct solve_problem *p, const struct solve_config *c, int batch,
                                          int layer)
{
    return &c->curves[(size_t)batch * (size_t)p->n_layers + (size_t)layer];
}

/* --- the relaxation --- */

struct segment {
    int64_t width, drop; /* bytes, ticks saved */
    int layer, index;    /* index: along the layer's hull, which convexity keeps in order */
};

/* Steepest first: more ticks per byte; ties by layer, then along the hull. */
static int steeper(const void *pa, const void *pb)
{
    const struct segment *a = pa, *b = pb;
    __int128 x = (__int128)a->drop * b->width, y = (__int128)b->drop * a->width;
    if (x != y)
        return x > y ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* All segments of a batch size in order of use, malloc'd; where the sums start from. */
static int segments(const struct solve_problem *p, const struct solve_config *c, int batch, struct segment **out,
                    int *n, int64_t *bytes, int64_t *ticks, struct err *e)
{
    size_t total = 1;
    for (int l = 0; l < p->n_layers; l++)
        total += (size_t)curve_at(p, c, batch, l)->n_hull;
    struct segment *s = malloc(total * sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "out of memory for the relaxation");
    *n = 0;
    *bytes = *ticks = 0;
    for (int l = 0; l < p->n_layers; l++) {
        const struct solve_curve *k = curve_at(p, c, batch, l);
        *bytes += k->point[k->hull[0]].bytes;
        *ticks += k->point[k->hull[0]].ticks;
        for (int i = 1; i < k->n_hull; i++) {
            const struct solve_point *a = &k->point[k->hull[i - 1]], *b = &k->point[k->hull[i]];
            s[(*n)++] = (struct segment){ b->bytes - a->bytes, a->ticks - b->ticks, l, i };
        }
    }
    qsort(s, (size_t)*n, sizeof *s, steeper);
    *out = s;
    return 0;
}

int solve_relax(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t bytes, int64_t *x,
                int64_t *ticks, struct err *e)
{
    struct segment *s;
    int n;
    int64_t used, t;
    int r = segments(p, c, batch, &s, &n, &used, &t, e);
    if (r < 0)
        return r;
    for (int l = 0; l < p->n_layers; l++)
        x[l] = curve_at(p, c, batch, l)->point[0].bytes;
    for (int i = 0; i < n && used <= bytes; i++) {
        int64_t take = s[i].width < bytes - used ? s[i].width : bytes - used;
        x[s[i].layer] += take;
        used += take;
        if (take < s[i].width) {
            t -= (int64_t)(((__int128)s[i].drop * take + s[i].width - 1) / s[i].width); /* the bound is rounded
                                                                                         * down */
            break;
        }
        t -= s[i].drop;
    }
    *ticks = used <= bytes ? t : SOLVE_NEVER;
    free(s);
    return 0;
}

int solve_multiplier(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t bytes, int64_t *slope,
                     int64_t *width, struct err *e)
{
    struct segment *s;
    int n, i = 0;
    int64_t used, t;
    int r = segments(p, c, batch, &s, &n, &used, &t, e);
    if (r < 0)
        return r;
    int fits = used <= bytes;
    while (i < n && used + s[i].width <= bytes)
        used += s[i++].width;
    *slope = !fits ? 1 : i < n ? s[i].drop : 0;
    *width = !fits ? 0 : i < n ? s[i].width : 1;
    free(s);
    return 0;
}

int64_t solve_total(const struct solve_config *c, int batch, int64_t sum)
{
    return c->fixed_ticks[batch] + (sum > c->floor_ticks[batch] ? sum : c->floor_ticks[batch]);
}

int solve_cores_ok(const struct solve_problem *p, const struct solve_config *c)
{
    for (int k = 0; k < p->n_classes; k++)
        if (c->n[k] > p->cores[k])
            return 0;
    return 1;
}

/* Least region bytes for T_1 <= max_ticks. */
static int need_of(const struct solve_problem *p, struct solve_config *c, struct err *e)
{
    struct segment *s;
    int n, i = 0;
    int64_t used, t;
    int r = segments(p, c, 0, &s, &n, &used, &t, e);
    if (r < 0)
        return r;
    int64_t all = t;
    for (int j = 0; j < n; j++)
        all -= s[j].drop;
    c->best_ticks = solve_total(c, 0, all);
    c->need_bytes = SOLVE_NEVER;
    if (c->best_ticks <= p->max_ticks) {
        int64_t limit = p->max_ticks - c->fixed_ticks[0];
        if (p->max_ticks == SOLVE_NEVER)
            limit = SOLVE_NEVER;
        for (; i < n && t > limit; i++) {
            int64_t want = t - limit < s[i].drop ? t - limit : s[i].drop;
            used += (int64_t)(((__int128)s[i].width * want) / s[i].drop);
            t -= want;
        }
        c->need_bytes = c->fixed_bytes + used;
    }
    free(s);
    return 0;
}

int solve_bound(const struct solve_problem *p, struct solve_config *c, struct err *e)
{
    int64_t *x = malloc((size_t)p->n_layers * sizeof *x), sum = 0;
    int r = x ? need_of(p, c, e) : err_set(e, ERR_NOMEM, "out of memory for the relaxation");
    for (int b = 0; b < p->n_batches && r == 0 && sum != SOLVE_NEVER; b++) {
        int64_t t;
        r = solve_relax(p, c, b, p->memory - c->fixed_bytes, x, &t, e);
        if (b == 0 && r == 0)
            c->relaxed_ticks = t == SOLVE_NEVER ? SOLVE_NEVER : solve_total(c, b, t);
        sum = r < 0 || t == SOLVE_NEVER ? SOLVE_NEVER : sum + p->weight[b] * solve_total(c, b, t);
    }
    c->bound = sum;
    free(x);
    return r;
}

/* --- rounding --- */

/* The step up from a point that gains most per byte and fits; -1: none. */
static int best_step(const struct solve_curve *k, int from, int64_t left, int64_t *drop, int64_t *width)
{
    int best = -1;
    for (int i = from + 1; i < k->n && k->point[i].bytes - k->point[from].bytes <= left; i++) {
        int64_t d = k->point[from].ticks - k->point[i].ticks, w = k->point[i].bytes - k->point[from].bytes;
        if (best < 0 || (__int128)d * *width > (__int128)*drop * w) {
            best = i;
            *drop = d;
            *width = w;
        }
    }
    return best;
}

/* Spend what is left; returns what then remains. */
static int64_t spend(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t left,
                     int *choice)
{
    for (;;) {
        int layer = -1, to = 0;
        int64_t drop = 0, width = 1;
        for (int l = 0; l < p->n_layers; l++) {
            int64_t d, w;
            int i = best_step(curve_at(p, c, batch, l), choice[l], left, &d, &w);
            if (i >= 0 && (layer < 0 || (__int128)d * width > (__int128)drop * w)) {
                layer = l;
                to = i;
                drop = d;
                width = w;
            }
        }
        if (layer < 0)
            return left;
        choice[layer] = to;
        left -= width;
    }
}

/* One layer steps down so that another can step up, where that gains: the first such pair, searched from layer
 * *from on, which moves past the layer that stepped. */
static int exchange(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t *left,
                    int *choice, int *from)
{
    int reach = p->n_layers <= 8 ? 256 : 16; /* points down to try; bounds the work of large models */
    for (int n = 0; n < p->n_layers; n++) {
        int l = (*from + n) % p->n_layers;
        const struct solve_curve *k = curve_at(p, c, batch, l);
        for (int down = choice[l] - 1; down >= 0 && down >= choice[l] - reach; down--) {
            int64_t loss = k->point[down].ticks - k->point[choice[l]].ticks;
            int64_t room = *left + k->point[choice[l]].bytes - k->point[down].bytes;
            for (int m = 0; m < p->n_layers; m++) {
                const struct solve_curve *o = curve_at(p, c, batch, m);
                int up = choice[m];
                while (up + 1 < o->n && o->point[up + 1].bytes - o->point[choice[m]].bytes <= room)
                    up++;
                if (m == l || o->point[choice[m]].ticks - o->point[up].ticks <= loss)
                    continue;
                *left = room - (o->point[up].bytes - o->point[choice[m]].bytes);
                choice[l] = down;
                choice[m] = up;
                *from = l + 1;
                return 1;
            }
        }
    }
    return 0;
}

int64_t solve_round(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t bytes,
                    const int64_t *x, int *choice)
{
    int64_t left = bytes, sum = 0;
    for (int l = 0; l < p->n_layers; l++) {
        const struct solve_curve *k = curve_at(p, c, batch, l);
        int i = 0;
        while (i + 1 < k->n && k->point[i + 1].bytes <= x[l])
            i++;
        choice[l] = i;
        left -= k->point[i].bytes;
    }
    left = spend(p, c, batch, left, choice);
    for (int n = 0, from = 0; n < 64 && exchange(p, c, batch, &left, choice, &from); n++)
        left = spend(p, c, batch, left, choice);
    for (int l = 0; l < p->n_layers; l++)
        sum += curve_at(p, c, batch, l)->point[choice[l]].ticks;
    return sum;
}

void solve_result_done(struct solve_result *r)
{
    free(r->choice);
    free(r->kind);
    r->choice = r->kind = NULL;
}

int solve_result_new(const struct solve_problem *p, struct solve_result *out, struct err *e)
{
    *out = (struct solve_result){ .objective = SOLVE_NEVER, .bound = SOLVE_NEVER,
                                  .choice = calloc((size_t)p->n_batches * (size_t)p->n_layers, sizeof *out->choice),
                                  .kind = calloc((size_t)p->n_layers, sizeof *out->kind) };
    if (out->choice && out->kind)
        return 0;
    solve_result_done(out);
    return err_set(e, ERR_NOMEM, "out of memory for the solver");
}

/* Relax and round every batch size of one config; 0: infeasible (memory or speed), 1: filled. */
static int config_greedy(const struct solve_problem *p, int index, int64_t *x, struct solve_result *out,
                         struct err *e)
{
    const struct solve_config *c = &p->configs[index];
    for (int b = 0; b < p->n_batches; b++) {
        int64_t t;
        int r = solve_relax(p, c, b, p->memory - c->fixed_bytes, x + (size_t)b * (size_t)p->n_layers, &t, e);
        if (r < 0)
            return r;
        if (t == SOLVE_NEVER)
            return 0;
    }
    return solve_round_result(p, index, x, out, e);
}

int solve_greedy(const struct solve_problem *p, struct solve_result *out, struct err *e)
{
    struct solve_result best = { 0 }, now = { 0 };
    int64_t *x = malloc((size_t)p->n_batches * (size_t)p->n_layers * sizeof *x);
    int r = x ? 0 : err_set(e, ERR_NOMEM, "out of memory for the solver");
    if (r == 0 && (r = solve_result_new(p, &best, e)) == 0)
        r = solve_result_new(p, &now, e);
    for (int i = 0; i < p->n_configs && r >= 0; i++) {
        const struct solve_config *c = &p->configs[i];
        if (!solve_cores_ok(p, c) || c->bound == SOLVE_NEVER)
            continue;
        best.bound = c->bound < best.bound ? c->bound : best.bound;
        if (!c->curves)
            continue;
        if ((r = config_greedy(p, i, x, &now, e)) == 1 && now.objective < best.objective) {
            struct solve_result swap = best;
            best = now;
            now = swap;
            best.bound = swap.bound;
            best.feasible = 1;
        }
    }
    free(x);
    solve_result_done(&now);
    if (r < 0 || !best.feasible)
        solve_result_done(&best);
    if (r < 0)
        return r;
    *out = best;
    return 0;
}
