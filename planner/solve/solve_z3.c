/* Z3 behind solve.h. Two questions are asked.
 *
 * First, whether the user's limits can hold together, over integers: one Boolean per configuration, the
 * cores it takes per class, its queue depth and the context as integers, memory and time as reals. Each limit
 * of the user's is one named assumption, so a contradiction comes back as a core, which is then made
 * minimal by dropping one name after the other. Layers do not appear: what a configuration needs is known
 * exactly (solve_bound), and the question stays small however many layers there are.
 *
 * Second, for each configuration that can still win, the linear programme over all layers and batch sizes at
 * once, on exact rationals: one real between 0 and 1 for each hull segment, one inequality for the memory of each
 * batch size and two for its time. No one-hot choices per layer: they do not scale (measured on a 2-core Zen 5: 16
 * layers of one-hot choices did not end).
 *
 * Determinism: fixed seed, one thread, a resource limit instead of a clock. Errors of the library come as codes,
 * never as a jump: no handler is installed. */
#include "planner/solve/solve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <z3.h>

struct z {
    Z3_context c;
    Z3_sort real, integer;
    int starved;        /* it lacked memory once */
};

void solve_z3_version(char *out, size_t len)
{
    unsigned major, minor, build, revision;
    Z3_get_version(&major, &minor, &build, &revision);
    snprintf(out, len, "z3 %u.%u.%u", major, minor, build);
}

static struct z z_new(uint64_t seed)
{
    Z3_config cfg = Z3_mk_config();
    Z3_set_param_value(cfg, "auto_config", "false");
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)(seed & 0x7fffffff));
    Z3_global_param_set("smt.random_seed", text);
    Z3_global_param_set("sat.random_seed", text);
    Z3_global_param_set("parallel.enable", "false");
    struct z z = { .c = Z3_mk_context(cfg) };
    Z3_del_config(cfg);
    Z3_set_error_handler(z.c, NULL);
    z.real = Z3_mk_real_sort(z.c);
    z.integer = Z3_mk_int_sort(z.c);
    return z;
}

/* --- terms --- */

static Z3_ast num(struct z *z, int64_t v)
{
    return Z3_mk_int64(z->c, v, z->real);
}

static Z3_ast inum(struct z *z, int64_t v)
{
    return Z3_mk_int64(z->c, v, z->integer);
}

static Z3_ast var(struct z *z, Z3_sort sort, const char *name, int a, int b)
{
    char text[64];
    snprintf(text, sizeof text, "%s_%d_%d", name, a, b);
    return Z3_mk_const(z->c, Z3_mk_string_symbol(z->c, text), sort);
}

static Z3_ast mul(struct z *z, int64_t k, Z3_ast v)
{
    Z3_ast args[2] = { num(z, k), v };
    return Z3_mk_mul(z->c, 2, args);
}

static Z3_ast add2(struct z *z, Z3_ast a, Z3_ast b)
{
    Z3_ast args[2] = { a, b };
    return Z3_mk_add(z->c, 2, args);
}

static Z3_ast sub2(struct z *z, Z3_ast a, Z3_ast b)
{
    Z3_ast args[2] = { a, b };
    return Z3_mk_sub(z->c, 2, args);
}

/* --- the first question: limits that contradict each other --- */

struct facts {
    Z3_solver s;
    Z3_ast cores[HW_MAX_CLASSES], depth, context, memory, time;
};

static void fact(struct z *z, struct facts *f, Z3_ast guard, Z3_ast then)
{
    Z3_solver_assert(z->c, f->s, Z3_mk_implies(z->c, guard, then));
}

/* The memory that `bytes` at the user's context become at the context variable: KV grows with it. */
static Z3_ast at_context(struct z *z, const struct facts *f, const struct solve_problem *p,
                         const struct solve_config *c, int64_t bytes)
{
    Z3_ast more = sub2(z, Z3_mk_int2real(z->c, f->context), num(z, p->context));
    return add2(z, num(z, bytes), mul(z, c->context_bytes, more));
}

/* A configuration takes these cores and this depth, this much memory at least, and is this fast at best. */
static void assert_config(struct z *z, struct facts *f, const struct solve_problem *p, const struct solve_config *c,
                          Z3_ast g)
{
    for (int k = 0; k < p->n_classes; k++)
        fact(z, f, g, Z3_mk_eq(z->c, f->cores[k], inum(z, c->n[k])));
    fact(z, f, g, Z3_mk_eq(z->c, f->depth, inum(z, c->depth)));
    fact(z, f, g, Z3_mk_ge(z->c, f->memory, at_context(z, f, p, c, c->fixed_bytes)));
    fact(z, f, g, Z3_mk_ge(z->c, f->time, num(z, c->best_ticks)));
    if (p->max_ticks != SOLVE_NEVER && c->need_bytes != SOLVE_NEVER) {
        Z3_ast fast[2] = { g, Z3_mk_le(z->c, f->time, num(z, p->max_ticks)) };
        fact(z, f, Z3_mk_and(z->c, 2, fast), Z3_mk_ge(z->c, f->memory, at_context(z, f, p, c, c->need_bytes)));
    }
}

/* n_k <= N_k for every class. */
static Z3_ast cores_within(struct z *z, const struct facts *f, const struct solve_problem *p)
{
    Z3_ast each[HW_MAX_CLASSES];
    for (int k = 0; k < p->n_classes; k++)
        each[k] = Z3_mk_le(z->c, f->cores[k], inum(z, p->cores[k]));
    return Z3_mk_and(z->c, (unsigned)p->n_classes, each);
}

/* Check under the named limits in `mask`. 1: contradiction, 0: none, -1: unknown. *core: the names involved. */
static int contradiction(struct z *z, struct facts *f, const Z3_ast *names, unsigned mask, unsigned *core)
{
    Z3_ast use[4];
    unsigned n = 0;
    for (unsigned i = 0; i < 4; i++)
        if (mask >> i & 1)
            use[n++] = names[i];
    Z3_lbool r = Z3_solver_check_assumptions(z->c, f->s, n, use);
    if (r != Z3_L_FALSE)
        return r == Z3_L_TRUE ? 0 : -1;
    Z3_ast_vector v = Z3_solver_get_unsat_core(z->c, f->s);
    Z3_ast_vector_inc_ref(z->c, v);
    *core = 0;
    for (unsigned i = 0; i < Z3_ast_vector_size(z->c, v); i++)
        for (unsigned k = 0; k < 4; k++)
            if (Z3_is_eq_ast(z->c, Z3_ast_vector_get(z->c, v, i), names[k]))
                *core |= 1u << k;
    Z3_ast_vector_dec_ref(z->c, v);
    return 1;
}

static int find_core(struct z *z, const struct solve_problem *p, unsigned *core, struct err *e)
{
    struct facts f = { .s = Z3_mk_simple_solver(z->c) };
    Z3_solver_inc_ref(z->c, f.s);
    for (int k = 0; k < p->n_classes; k++)
        f.cores[k] = var(z, z->integer, "cores", k, 0);
    f.depth = var(z, z->integer, "depth", 0, 0);
    f.context = var(z, z->integer, "context", 0, 0);
    f.memory = var(z, z->real, "memory", 0, 0);
    f.time = var(z, z->real, "time", 0, 0);
    Z3_ast *g = malloc((size_t)p->n_configs * sizeof *g);
    if (!g) {
        Z3_solver_dec_ref(z->c, f.s);
        return err_set(e, ERR_NOMEM, "out of memory for the solver");
    }
    for (int i = 0; i < p->n_configs; i++) {
        g[i] = var(z, Z3_mk_bool_sort(z->c), "config", i, 0);
        assert_config(z, &f, p, &p->configs[i], g[i]);
    }
    Z3_solver_assert(z->c, f.s, Z3_mk_or(z->c, (unsigned)p->n_configs, g));
    Z3_solver_assert(z->c, f.s, Z3_mk_ge(z->c, f.context, inum(z, 1)));
    Z3_ast limits[4] = { Z3_mk_le(z->c, f.memory, num(z, p->memory)),
                         p->max_ticks == SOLVE_NEVER ? Z3_mk_true(z->c) : Z3_mk_le(z->c, f.time,
                                                                                   num(z, p->max_ticks)),
                         cores_within(z, &f, p), Z3_mk_ge(z->c, f.context, inum(z, p->context)) };
    Z3_ast names[4];
    for (int i = 0; i < 4; i++) {
        static const char *const text[4] = { "memory limit", "min speed", "core limit", "context wanted" };
        names[i] = var(z, Z3_mk_bool_sort(z->c), text[i], 0, 0);
        fact(z, &f, names[i], limits[i]);
    }
    unsigned found = 0, smaller;
    int r = contradiction(z, &f, names, 15, &found);
    for (unsigned i = 0; i < 4 && r == 1; i++) /* drop what it does not need, in a fixed order */
        if (found >> i & 1 && contradiction(z, &f, names, found & ~(1u << i), &smaller) == 1)
            found = smaller;
    free(g);
    Z3_solver_dec_ref(z->c, f.s);
    *core = r == 1 ? found : 0;
    return 0;
}

/* --- the second: the linear programme of one configuration --- */

/* The share of each segment that is taken, 0..1: bounds of variables, which cost the simplex method no row, unlike an
 * inequality for every segment. Convexity makes an optimum take them in order.
 *
 * The simplex method takes longer than in proportion to the segments, and an optimum is decided by few of them: those
 * about as steep as the last one taken. So a programme keeps of each curve the segments about where the relaxation
 * ends, and the outermost of those go on in straight lines to the curve's ends: a curve that is nowhere above the
 * whole one, and is the same where segments were kept.
 *
 *      \                      An optimum within what was kept is one of the whole programme; one outside proves
 *      .\_                    nothing but a bound, and the programme is asked again with more segments. Where the
 *      . .`-.._               relaxation says that the optimum lies does not enter the proof.
 *      . [kept]`` - . _
 *      .    .          ` .    dotted: the whole curve, above the lines
 */
struct span {
    int from, to;       /* segments; segment i lies between points i - 1 and i of the hull. None: from > to */
};

struct lp {
    Z3_optimize o;
    struct span *span;  /* [n_batches][n_layers] */
    Z3_ast *share;      /* of the spans' segments in turn */
    Z3_ast *terms;      /* one more: scratch for sums */
    Z3_ast objective;
};

#define KEPT_SEGMENTS 3 /* on either side of the one where the relaxation ends; then four times as many, and so on */

static const struct solve_point *hull_at(const struct solve_curve *k, int i)
{
    return &k->point[k->hull[i]];
}

/* Segments about x. */
static struct span span_about(const struct solve_curve *k, int64_t x, int reach)
{
    int at = 1;
    while (at < k->n_hull - 1 && hull_at(k, at)->bytes < x)
        at++;
    struct span s = { at - reach, at + reach };
    s.from = s.from > 1 ? s.from : 1;
    s.to = s.to < k->n_hull - 1 ? s.to : k->n_hull - 1;
    return s;
}

static int span_count(const struct span *s)
{
    return s->to >= s->from ? s->to - s->from + 1 : 0;
}

/* The first point of what is kept. */
static const struct solve_point *span_first(const struct solve_curve *k, const struct span *s)
{
    return hull_at(k, span_count(s) ? s->from - 1 : 0);
}

static int64_t width_of(const struct solve_curve *k, int segment)
{
    return hull_at(k, segment)->bytes - hull_at(k, segment - 1)->bytes;
}

/* How often the segment goes into the bytes between two points, rounded up. */
static int64_t repeats(const struct solve_curve *k, int segment, int from, int to)
{
    int64_t width = width_of(k, segment);
    return (hull_at(k, to)->bytes - hull_at(k, from)->bytes + width - 1) / width;
}

/* 0 <= share <= 1, or as far beyond as the curve goes at the ends of its span. */
static size_t assert_shares(struct z *z, struct lp *lp, const struct solve_curve *k, const struct span *s, size_t n)
{
    for (int i = s->from; i <= s->to; i++, n++) {
        int64_t least = i == s->from ? -repeats(k, i, 0, i - 1) : 0;
        int64_t most = i == s->to ? 1 + repeats(k, i, i, k->n_hull - 1) : 1;
        lp->share[n] = var(z, z->real, "share", (int)n, 0);
        Z3_optimize_assert(z->c, lp->o, Z3_mk_ge(z->c, lp->share[n], num(z, least)));
        Z3_optimize_assert(z->c, lp->o, Z3_mk_le(z->c, lp->share[n], num(z, most)));
    }
    return n;
}

/* first + sum over layers and segments of share * (bytes or ticks of the segment). share: of the batch size's first. */
static Z3_ast sum_of(struct z *z, const struct lp *lp, const struct solve_problem *p, const struct solve_config *c,
                     int batch, const Z3_ast *share, int ticks)
{
    unsigned n = 1;
    int64_t first = 0;
    for (int l = 0; l < p->n_layers; l++) {
        size_t at = (size_t)batch * (size_t)p->n_layers + (size_t)l;
        const struct solve_curve *k = &c->curves[at];
        const struct span *s = &lp->span[at];
        first += ticks ? span_first(k, s)->ticks : span_first(k, s)->bytes;
        for (int i = s->from; i <= s->to; i++)
            lp->terms[n++] = mul(z, ticks ? hull_at(k, i)->ticks - hull_at(k, i - 1)->ticks : width_of(k, i), *share++);
    }
    lp->terms[0] = num(z, first);
    return Z3_mk_add(z->c, n, lp->terms);
}

/* sum over layers of x <= memory - fixed. */
static void assert_memory(struct z *z, struct lp *lp, const struct solve_problem *p, const struct solve_config *c,
                          int batch, const Z3_ast *share)
{
    Z3_ast sum = sum_of(z, lp, p, c, batch, share, 0);
    Z3_optimize_assert(z->c, lp->o, Z3_mk_le(z->c, sum, num(z, p->memory - c->fixed_bytes)));
}

/* T_b >= fixed + floor, T_b >= fixed + sum of t; T_1 <= max. */
static Z3_ast assert_time(struct z *z, struct lp *lp, const struct solve_problem *p, const struct solve_config *c,
                          int batch, const Z3_ast *share)
{
    Z3_ast total = var(z, z->real, "T", batch, 0), sum = sum_of(z, lp, p, c, batch, share, 1);
    Z3_ast fixed = num(z, c->fixed_ticks[batch]);
    Z3_optimize_assert(z->c, lp->o, Z3_mk_ge(z->c, total, add2(z, fixed, sum)));
    Z3_optimize_assert(z->c, lp->o, Z3_mk_ge(z->c, total, add2(z, fixed, num(z, c->floor_ticks[batch]))));
    if (batch == 0 && p->max_ticks != SOLVE_NEVER)
        Z3_optimize_assert(z->c, lp->o, Z3_mk_le(z->c, total, num(z, p->max_ticks)));
    return total;
}

static void set_limits(struct z *z, struct lp *lp, uint64_t rlimit)
{
    Z3_params params = Z3_mk_params(z->c);
    Z3_params_inc_ref(z->c, params);
    if (rlimit)
        Z3_params_set_uint(z->c, params, Z3_mk_string_symbol(z->c, "rlimit"), rlimit > UINT32_MAX ? UINT32_MAX :
                           (unsigned)rlimit);
    Z3_optimize_set_params(z->c, lp->o, params);
    Z3_params_dec_ref(z->c, params);
}

static int64_t floor_of(struct z *z, Z3_model m, Z3_ast v, int *bad)
{
    Z3_ast out;
    int64_t n = 0;
    if (!Z3_model_eval(z->c, m, Z3_mk_real2int(z->c, v), true, &out) || !Z3_get_numeral_int64(z->c, out, &n))
        *bad = 1;
    return n;
}

static int holds(struct z *z, Z3_model m, Z3_ast claim, int *bad)
{
    Z3_ast out;
    if (!Z3_model_eval(z->c, m, claim, true, &out) || Z3_get_bool_value(z->c, out) == Z3_L_UNDEF)
        *bad = 1;
    return !*bad && Z3_get_bool_value(z->c, out) == Z3_L_TRUE;
}

/* x of all curves, rounded down, from a solution's shares. Returns whether it lies within all spans. */
static int read_bytes(struct z *z, Z3_model m, const struct lp *lp, const struct solve_config *c, size_t n, int64_t *x,
                      int *bad)
{
    const Z3_ast *share = lp->share;
    int within = 1;
    for (size_t i = 0; i < n; i++) {
        const struct solve_curve *k = &c->curves[i];
        const struct span *s = &lp->span[i];
        int kept = span_count(s);
        unsigned terms = 1;
        if (kept && s->from > 1)
            within &= holds(z, m, Z3_mk_ge(z->c, share[0], num(z, 0)), bad);
        if (kept && s->to < k->n_hull - 1)
            within &= holds(z, m, Z3_mk_le(z->c, share[kept - 1], num(z, 1)), bad);
        lp->terms[0] = num(z, span_first(k, s)->bytes);
        for (int j = s->from; j <= s->to; j++)
            lp->terms[terms++] = mul(z, width_of(k, j), *share++);
        x[i] = floor_of(z, m, Z3_mk_add(z->c, terms, lp->terms), bad);
    }
    return within;
}

/* The programme over lp's spans: x (floored, 64-byte units) and the objective, rounded down. 1: solved, 0: no solution
 * or limit hit (*limited tells which). *within: the solution is one over the whole curves. */
static int solve_spans(struct z *z, struct lp *lp, const struct solve_problem *p, const struct solve_config *c,
                       uint64_t rlimit, int64_t *x, int64_t *objective, int *limited, int *within)
{
    size_t n = (size_t)p->n_batches * (size_t)p->n_layers, shares = 0;
    Z3_ast times[SOLVE_MAX_BATCHES], *share = lp->share;
    int r = 0, bad = 0;
    lp->o = Z3_mk_optimize(z->c);
    Z3_optimize_inc_ref(z->c, lp->o);
    set_limits(z, lp, rlimit);
    for (size_t i = 0; i < n; i++)
        shares = assert_shares(z, lp, &c->curves[i], &lp->span[i], shares);
    for (int b = 0; b < p->n_batches; b++) {
        assert_memory(z, lp, p, c, b, share);
        times[b] = mul(z, p->weight[b], assert_time(z, lp, p, c, b, share));
        for (int l = 0; l < p->n_layers; l++)
            share += span_count(&lp->span[(size_t)b * (size_t)p->n_layers + (size_t)l]);
    }
    lp->objective = Z3_mk_add(z->c, (unsigned)p->n_batches, times);
    Z3_optimize_minimize(z->c, lp->o, lp->objective);
    Z3_lbool ok = Z3_optimize_check(z->c, lp->o, 0, NULL);
    *limited = ok == Z3_L_UNDEF;
    if (Z3_get_error_code(z->c) == Z3_MEMOUT_FAIL ||
        (*limited && strstr(Z3_optimize_get_reason_unknown(z->c, lp->o), "mem")))
        z->starved = 1;
    *within = 1;
    if (ok == Z3_L_TRUE) {
        Z3_model m = Z3_optimize_get_model(z->c, lp->o);
        Z3_model_inc_ref(z->c, m);
        *objective = floor_of(z, m, lp->objective, &bad);
        *within = read_bytes(z, m, lp, c, n, x, &bad);
        Z3_model_dec_ref(z->c, m);
        if (bad || Z3_get_error_code(z->c) != Z3_OK)
            *limited = 1; /* no number to trust: as if it had not ended */
        else
            r = 1;
    }
    Z3_optimize_dec_ref(z->c, lp->o);
    return r;
}

/* Solve one config, as solve_spans says, with as many segments as it takes. */
static int solve_lp(struct z *z, const struct solve_problem *p, const struct solve_config *c, uint64_t rlimit,
                    int64_t *x, int64_t *objective, int *limited, struct err *e)
{
    size_t n = (size_t)p->n_batches * (size_t)p->n_layers, segments = 0;
    for (size_t i = 0; i < n; i++)
        segments += (size_t)c->curves[i].n_hull;
    struct lp lp = { .span = malloc(n * sizeof *lp.span), .share = malloc((segments + 1) * sizeof *lp.share),
                     .terms = malloc((segments + 1) * sizeof *lp.terms) };
    int64_t *about = malloc(n * sizeof *about), ticks;
    int r = lp.span && lp.share && lp.terms && about ? 0 : err_set(e, ERR_NOMEM, "out of memory for the solver");
    for (int b = 0; b < p->n_batches && r == 0; b++)
        r = solve_relax(p, c, b, p->memory - c->fixed_bytes, about + (size_t)b * (size_t)p->n_layers, &ticks, e);
    for (int reach = KEPT_SEGMENTS, within = 0; r == 0 && !within && !*limited; reach *= 4) {
        for (size_t i = 0; i < n; i++)
            lp.span[i] = span_about(&c->curves[i], about[i], reach);
        r = solve_spans(z, &lp, p, c, rlimit, x, objective, limited, &within);
        r = within ? r : 0;
    }
    free(lp.span);
    free(lp.share);
    free(lp.terms);
    free(about);
    return r;
}

/* Round a solution of config i; take it when it beats the incumbent. */
static int consider(const struct solve_problem *p, int i, const int64_t *x, struct solve_result *now,
                    struct solve_result *best, struct err *e)
{
    int r = solve_round_result(p, i, x, now, e);
    if (r != 1 || (best->feasible && now->objective >= best->objective))
        return r;
    struct solve_result swap = *best;
    *best = *now;
    *now = swap;
    best->feasible = 1;
    best->finished = swap.finished;
    best->core = swap.core;
    return r;
}

/* The programmes of all configs that can still win, lowest bound first; the proven bound over all. */
static int optimise(struct z *z, const struct solve_problem *p, uint64_t rlimit, struct solve_result *best,
                    struct err *e)
{
    size_t n = (size_t)p->n_batches * (size_t)p->n_layers;
    int64_t *x = malloc(n * sizeof *x), bound = SOLVE_NEVER;
    char *done = calloc((size_t)p->n_configs, 1);
    struct solve_result now;
    int r = solve_result_new(p, &now, e);
    if (r == 0 && (!x || !done))
        r = err_set(e, ERR_NOMEM, "out of memory for the solver");
    best->finished = 1;
    while (r == 0) {
        int next = -1, limited = 0;
        for (int i = 0; i < p->n_configs; i++)
            if (!done[i] && solve_cores_ok(p, &p->configs[i]) && p->configs[i].bound != SOLVE_NEVER &&
                (next < 0 || p->configs[i].bound < p->configs[next].bound))
                next = i;
        if (next < 0)
            break;
        const struct solve_config *c = &p->configs[next];
        done[next] = 1;
        if (c->bound >= best->objective || !c->curves) {
            bound = c->bound < bound ? c->bound : bound; /* known by its bound; a better one may yet follow */
            continue;
        }
        int64_t value = c->bound;
        r = solve_lp(z, p, c, rlimit, x, &value, &limited, e);
        if (r < 0)
            break;
        best->finished &= !limited;
        if (r == 1 || limited) /* otherwise it cannot be fast enough */
            bound = value < bound ? value : bound;
        if (r == 1)
            r = consider(p, next, x, &now, best, e);
        r = r < 0 ? r : 0;
    }
    best->bound = bound < best->objective ? bound : best->objective;
    free(x);
    free(done);
    solve_result_done(&now);
    return r;
}

int solve_z3_core(const struct solve_problem *p, uint64_t seed, unsigned *core, struct err *e)
{
    struct z z = z_new(seed);
    if (!z.c)
        return err_set(e, ERR_NOMEM, "Z3 did not start");
    int r = find_core(&z, p, core, e);
    Z3_del_context(z.c);
    return r;
}

int solve_z3(const struct solve_problem *p, uint64_t rlimit, uint64_t seed, struct solve_result *out, struct err *e)
{
    struct solve_result best = { 0 };
    int r = solve_greedy(p, &best, e);
    if (r < 0)
        return r;
    struct z z = z_new(seed);
    if (!z.c) {
        solve_result_done(&best);
        return err_set(e, ERR_NOMEM, "Z3 did not start");
    }
    r = find_core(&z, p, &best.core, e);
    if (r == 0 && best.core == 0) {
        if (!best.feasible) /* relaxed limits hold; whether whole units fit, rounding tells */
            r = solve_result_new(p, &best, e);
        if (r == 0)
            r = optimise(&z, p, rlimit, &best, e);
        if (r == 0 && !best.feasible) /* only just too slow, to within rounding */
            best.core = SOLVE_MEMORY | SOLVE_SPEED;
    } else {
        best.feasible = 0;
    }
    if (r == 0 && z.starved) /* what it stopped at is no plan that another run would make */
        r = err_set(e, ERR_NOMEM, "out of memory in the solver");
    Z3_del_context(z.c);
    if (r < 0 || !best.feasible)
        solve_result_done(&best);
    if (r < 0)
        return r;
    *out = best;
    return 0;
}
