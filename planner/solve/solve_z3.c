/* Z3 behind solve.h. Two questions are asked.
 *
 * First, where no choice within the user's limits is known, whether they can hold together, over integers: one Boolean per
 * configuration, the cores it takes per class, its queue depth and the context as integers, memory and time as reals. Each limit
 * of the user's is one named assumption, so a contradiction comes back as a core, which is then made
 * minimal by dropping one name after the other. Layers do not appear: what a configuration needs is known
 * exactly (solve_bound), and the question stays small however many layers there are.
 *
 * Second, whether a choice beats the incumbent: the text of solve_text.h. Z3 first proves that nothing lies below the relaxation,
 * then answers for targets between that and the incumbent. What it finds is the next incumbent; what it denies is proven. A
 * configuration that it answers with and whose residencies are not stated yet is opened, and the question asked again. All
 * residencies at once do not scale (16 layers of one-hot choices did not end): only those are stated that a choice below the target
 * can have, a few for each layer, and questions have a limit of work.
 *
 * Determinism: fixed seed, one thread, a resource limit instead of a clock. Errors of the library come as codes,
 * never as a jump: no handler is installed. */
#include "planner/solve/solve_z3.h"

#include "planner/solve/solve_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <z3.h>

struct z {
    Z3_context c;
    Z3_sort real, integer;
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

/* --- the second: a choice that beats the incumbent --- */

#define MOST_OPEN 8             /* configurations whose residencies are stated */
#define QUESTION_WORK 100000    /* of rlimit: what a question about residencies may take, and */
#define ALL_WORK 200000         /* all of a problem's */

struct search {
    const struct solve_problem *p;
    uint64_t rlimit, seed, work;    /* work: what is left of ALL_WORK */
    int open[MOST_OPEN], n_open;
    int64_t lower;                  /* proven: nothing is below */
    struct solve_result *best;
};

/* What Z3 says to a question: 1, 0 for no, -1 for no end. */
struct answer {
    int sat, config;
    uint64_t work;
};

static Z3_solver solver_of(struct z *z, uint64_t rlimit)
{
    Z3_solver s = Z3_mk_simple_solver(z->c);
    Z3_solver_inc_ref(z->c, s);
    Z3_params params = Z3_mk_params(z->c);
    Z3_params_inc_ref(z->c, params);
    if (rlimit)
        Z3_params_set_uint(z->c, params, Z3_mk_string_symbol(z->c, "rlimit"), rlimit < UINT32_MAX ? (unsigned)rlimit : UINT32_MAX);
    Z3_params_set_uint(z->c, params, Z3_mk_string_symbol(z->c, "arith.solver"), 2);
    Z3_solver_set_params(z->c, s, params);
    Z3_params_dec_ref(z->c, params);
    return s;
}

static uint64_t work_of(struct z *z, Z3_solver s)
{
    Z3_stats stats = Z3_solver_get_statistics(z->c, s);
    uint64_t work = 0;
    Z3_stats_inc_ref(z->c, stats);
    for (unsigned i = 0; i < Z3_stats_size(z->c, stats); i++)
        if (!strcmp(Z3_stats_get_key(z->c, stats, i), "rlimit count") && Z3_stats_is_uint(z->c, stats, i))
            work = Z3_stats_get_uint_value(z->c, stats, i);
    Z3_stats_dec_ref(z->c, stats);
    return work;
}

/* An integer of the model, or 1 and 0 of a Boolean. */
static int value_of(struct z *z, Z3_model m, const char *name, int is_bool, int *bad)
{
    Z3_ast v = Z3_mk_const(z->c, Z3_mk_string_symbol(z->c, name), is_bool ? Z3_mk_bool_sort(z->c) : z->integer), out;
    int64_t n = 0;
    if (!Z3_model_eval(z->c, m, v, true, &out))
        *bad = 1;
    else if (is_bool)
        n = Z3_get_bool_value(z->c, out) == Z3_L_TRUE;
    else
        *bad |= !Z3_get_numeral_int64(z->c, out, &n) || n < 0 || n > INT32_MAX;
    return (int)n;
}

/* Deals the candidates that a group's layers take to these layers, by kind, which is the same number of layers in every batch size. */
static void deal(struct z *z, Z3_model m, const struct solve_problem *p, const struct solve_open *o, int batch, int g,
                 struct solve_result *to, int *bad)
{
    const int at = batch * o->n_groups + g, n = o->first[at + 1] - o->first[at], of = o->count[g];
    const struct solve_candidate *x = &o->candidate[o->first[at]];
    int taken[SOLVE_MOST_CANDIDATES], rest = of, layer = 0;
    char name[SOLVE_NAME];
    for (int j = 1; j < n; j++)
        rest -= taken[j] = value_of(z, m, solve_unknown(o, batch, g, j, name), of == 1, bad);
    taken[0] = rest;
    *bad |= rest < 0;
    for (int kind = 0, most = p->configs[o->config].n_kinds; (kind == 0 || kind < most) && !*bad; kind++)
        for (int j = 0; j < n; j++)
            for (int i = 0; x[j].kind == kind && i < taken[j]; i++, layer++) {
                while (layer < p->n_layers && o->group[layer] != g)
                    layer++;
                if (layer == p->n_layers) {
                    *bad = 1;
                    return;
                }
                to->choice[(size_t)batch * (size_t)p->n_layers + (size_t)layer] = x[j].point;
                to->kind[layer] = kind;
            }
}

/* The choice in ticks: 1: within the limits; 0: not, by rounding. */
static int add_up(const struct solve_problem *p, struct solve_result *r)
{
    const struct solve_config *c = &p->configs[r->config];
    r->objective = 0;
    for (int b = 0; b < p->n_batches; b++) {
        int64_t bytes = c->fixed_bytes, ticks = 0;
        for (int l = 0; l < p->n_layers; l++) {
            const struct solve_point *x = &solve_curve_of(p, r, b, l)->point[r->choice[(size_t)b * (size_t)p->n_layers + (size_t)l]];
            bytes += x->bytes;
            ticks += x->ticks;
        }
        if (bytes > p->memory)
            return 0;
        r->ticks[b] = solve_total(c, b, ticks);
        r->objective += p->weight[b] * r->ticks[b];
    }
    return r->ticks[0] <= p->max_ticks;
}

static void take(struct solve_result *now, struct solve_result *best)
{
    struct solve_result swap = *best;
    *best = *now;
    *now = swap;
    best->feasible = 1;
    best->finished = swap.finished;
    best->core = swap.core;
}

/* The model's choice, where its configuration is open; taken where it beats the best. *answer: the configuration. */
static int read_choice(struct z *z, Z3_solver s, const struct search *w, const struct solve_open *open, struct answer *answer,
                       struct err *e)
{
    Z3_model m = Z3_solver_get_model(z->c, s);
    struct solve_result now;
    int bad = 0, r = solve_result_new(w->p, &now, e);
    if (r < 0)
        return r;
    Z3_model_inc_ref(z->c, m);
    now.config = answer->config = value_of(z, m, "config", 0, &bad);
    for (int i = 0; i < w->n_open; i++)
        for (int b = 0; b < w->p->n_batches && open[i].config == now.config; b++)
            for (int g = 0; g < open[i].n_groups; g++)
                deal(z, m, w->p, &open[i], b, g, &now, &bad);
    for (int i = 0; i < w->n_open; i++)
        if (open[i].config == now.config && !bad && add_up(w->p, &now) &&
            (!w->best->feasible || now.objective < w->best->objective))
            take(&now, w->best);
    Z3_model_dec_ref(z->c, m);
    solve_result_done(&now);
    answer->sat = bad ? -1 : 1;
    return 0;
}

static void assert_text(struct z *z, Z3_solver s, const char *text)
{
    Z3_ast_vector v = Z3_parse_smtlib2_string(z->c, text, 0, NULL, NULL, 0, NULL, NULL);
    if (Z3_get_error_code(z->c) != Z3_OK)
        return;
    Z3_ast_vector_inc_ref(z->c, v);
    for (unsigned i = 0; i < Z3_ast_vector_size(z->c, v); i++)
        Z3_solver_assert(z->c, s, Z3_ast_vector_get(z->c, v, i));
    Z3_ast_vector_dec_ref(z->c, v);
}

static int ask(const struct search *w, const struct solve_question *q, const char *text, uint64_t rlimit, struct answer *answer,
               struct err *e)
{
    struct z z = z_new(w->seed);
    int r = 0;
    if (!z.c)
        return err_set(e, ERR_NOMEM, "Z3 did not start");
    Z3_solver s = solver_of(&z, rlimit);
    assert_text(&z, s, text);
    Z3_error_code code = Z3_get_error_code(z.c);
    if (code != Z3_OK)
        r = code == Z3_MEMOUT_FAIL ? err_set(e, ERR_NOMEM, "out of memory in the solver") :
            err_set(e, ERR_FORMAT, "Z3 does not take the problem: %.200s", Z3_get_error_msg(z.c, code));
    Z3_lbool found = r == 0 ? Z3_solver_check(z.c, s) : Z3_L_UNDEF;
    if (r == 0 && (Z3_get_error_code(z.c) == Z3_MEMOUT_FAIL ||
                   (found == Z3_L_UNDEF && strstr(Z3_solver_get_reason_unknown(z.c, s), "mem"))))
        r = err_set(e, ERR_NOMEM, "out of memory in the solver"); /* what it stopped at is no plan that another run would make */
    *answer = (struct answer){ .sat = found == Z3_L_TRUE ? 1 : found == Z3_L_FALSE ? 0 : -1, .config = -1, .work = work_of(&z, s) };
    if (r == 0 && found == Z3_L_TRUE)
        r = read_choice(&z, s, w, q->open, answer, e);
    Z3_solver_dec_ref(z.c, s);
    Z3_del_context(z.c);
    return r;
}

/* Is there a choice below the target? Open configurations that cannot be are left out. */
static int question(struct search *w, int64_t target, int all, uint64_t rlimit, struct answer *answer, struct err *e)
{
    struct solve_open open[MOST_OPEN] = { { 0 } };
    struct solve_question q = { .p = w->p, .target = target, .all = all, .open = open };
    char *text = NULL;
    size_t len;
    int r = 1;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return err_set(e, ERR_NOMEM, "out of memory for the solver");
    for (int i = 0; i < w->n_open && r >= 0; i++)
        if (w->p->configs[w->open[i]].bound < target && (r = solve_open_init(&open[q.n_open], w->p, w->open[i], target, NULL, e)) == 1)
            q.n_open++;
    if (r >= 0)
        r = solve_text(&q, f, e);
    int bad = ferror(f);
    if ((fclose(f) || bad) && r == 0)
        r = err_set(e, ERR_NOMEM, "out of memory for the solver");
    if (r == 0)
        r = ask(w, &q, text, rlimit, answer, e);
    for (int i = 0; i < q.n_open; i++)
        solve_open_done(&open[i]);
    free(text);
    return r;
}

/* 1: its residencies are stated from now on; 0: they cannot be. One that was known by its bound alone gets its curves. */
static int open_config(struct search *w, int config, struct err *e)
{
    const struct solve_equations *eq = w->p->equations;
    struct solve_config *c = &w->p->configs[config];
    int r = 1;
    for (int i = 0; i < w->n_open; i++)
        if (w->open[i] == config)
            return 0;
    if (w->n_open == MOST_OPEN || (!c->curves && !eq))
        return 0;
    if (!c->curves && (r = eq->curves(eq->ctx, c->id, c, e)) == 0)
        r = solve_bound(w->p, c, e);
    w->open[w->n_open++] = config;
    return r < 0 ? r : 1;
}

/* Where the next target lies between what is proven and the incumbent: a part of the way, for what is closer is answered sooner. No
 * closer to the incumbent than the text is to ticks. */
static int64_t next_target(const struct search *w, int part, int64_t slack)
{
    if (!w->best->feasible)
        return SOLVE_NEVER;
    int64_t gap = w->best->objective - slack - w->lower, step = gap / part;
    return w->lower + (step > 1 ? step : 1);
}

/* Questions until nothing beats the incumbent, or until Z3 stops. */
static int improve(struct search *w, struct err *e)
{
    int64_t slack = solve_text_slack(w->p);
    int r = 0, part = 8;
    while (r >= 0 && w->work > 0 && (!w->best->feasible || w->best->objective - w->lower > 2 * slack)) {
        int64_t target = next_target(w, part, slack), before = w->best->feasible ? w->best->objective : SOLVE_NEVER;
        uint64_t most = w->work < QUESTION_WORK ? w->work : QUESTION_WORK;
        struct answer a;
        r = question(w, target, 0, w->rlimit && w->rlimit < most ? w->rlimit : most, &a, e);
        w->work -= a.work < w->work ? a.work : w->work;
        if (r < 0 || a.sat < 0)
            break;
        if (a.sat == 0) {
            w->lower = target - slack > w->lower ? target - slack : w->lower;
            if (!w->best->feasible)
                break;
            part = part > 1 ? part / 2 : 1;
        } else if ((r = open_config(w, a.config, e)) == 0 && (!w->best->feasible || w->best->objective >= before)) {
            break; /* a line is all that is known of it, or only rounding makes the difference */
        }
    }
    return r < 0 ? r : 0;
}

/* The least bound of any configuration that the user allows. */
static int64_t least_bound(const struct solve_problem *p)
{
    int64_t least = SOLVE_NEVER;
    for (int i = 0; i < p->n_configs; i++)
        if (solve_cores_ok(p, &p->configs[i]) && p->configs[i].bound < least)
            least = p->configs[i].bound;
    return least;
}

static int optimise(struct search *w, struct err *e)
{
    struct answer a;
    w->lower = least_bound(w->p);
    if (w->lower == SOLVE_NEVER)
        return 0;
    int r = question(w, w->lower, 1, w->rlimit, &a, e);
    w->best->finished = r == 0 && a.sat == 0;
    if (r == 0 && w->best->feasible)
        r = open_config(w, w->best->config, e);
    if (r >= 0 && w->best->finished)
        r = improve(w, e);
    w->best->bound = w->best->feasible && w->best->objective < w->lower ? w->best->objective : w->lower;
    return r < 0 ? r : 0;
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

/* The plan, and what is known then. w->best: where it is feasible, the caller's. */
static int search(struct search *w, struct err *e)
{
    struct solve_result *best = w->best;
    int r = solve_greedy(w->p, best, e);
    if (r < 0)
        return r;
    best->core = 0;
    if (!best->feasible) /* a choice within all limits is the proof that they hold together */
        r = solve_z3_core(w->p, w->seed, &best->core, e);
    if (r == 0 && best->core == 0) {
        if (!best->feasible) /* relaxed limits hold; whether whole units fit, rounding tells */
            r = solve_result_new(w->p, best, e);
        if (r == 0)
            r = optimise(w, e);
        if (r == 0 && !best->feasible) /* only just too slow, to within rounding */
            best->core = SOLVE_MEMORY | SOLVE_SPEED;
    } else {
        best->feasible = 0;
    }
    if (r < 0 || !best->feasible)
        solve_result_done(best);
    return r;
}

int solve_z3(const struct solve_problem *p, uint64_t rlimit, uint64_t seed, struct solve_result *out, struct err *e)
{
    struct solve_result best = { 0 };
    struct search w = { .p = p, .rlimit = rlimit, .seed = seed, .work = ALL_WORK, .best = &best };
    int r = search(&w, e);
    if (r == 0)
        *out = best;
    return r;
}

int solve_z3_text(const struct solve_problem *p, uint64_t rlimit, uint64_t seed, FILE *out, struct err *e)
{
    struct solve_result best = { 0 };
    struct search w = { .p = p, .rlimit = rlimit, .seed = seed, .work = ALL_WORK, .best = &best };
    struct solve_open open[MOST_OPEN] = { { 0 } };
    struct solve_question q = { .p = p, .all = 1, .states = 1, .open = open };
    int r = search(&w, e);
    if (r == 0 && !best.finished) {
        solve_result_done(&best);
        return err_set(e, ERR_SYS, "Z3 stopped at its limit of %llu before it had proven anything; there is nothing to state (--rlimit 0 "
                                   "sets none)", (unsigned long long)rlimit);
    }
    q.target = best.feasible ? best.bound : SOLVE_NEVER;
    for (int i = 0; i < w.n_open && r == 0 && best.feasible; i++)
        if ((p->configs[w.open[i]].bound < q.target || w.open[i] == best.config) &&
            (r = solve_open_init(&open[q.n_open], p, w.open[i], q.target, &best, e)) == 1) {
            q.n_open++;
            r = 0;
        }
    if (r == 0)
        r = solve_text(&q, out, e);
    if (r == 0 && best.feasible)
        solve_text_claims(&q, &best, out);
    else if (r == 0)
        fprintf(out, "\n; No choice is within the limits.\n");
    for (int i = 0; i < q.n_open; i++)
        solve_open_done(&open[i]);
    solve_result_done(&best);
    return r;
}
