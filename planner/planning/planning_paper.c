/* Z3's optimum is one of the relaxation, in which layers may lie between two residencies. Its configuration is rounded like any
 * other; of equals the closed form's stays, whose order among equals does not depend on Z3. */
#include "planner/planning/planning_paper.h"

#include "common/base/print.h"
#include "planner/search/paper_problem.h"
#include "planner/search/price.h"
#include "planner/solve/paper_z3.h"
#include "planner/solve/solve_z3.h"

#include <inttypes.h>

/* The curves of a configuration that so far was known by its bound alone. */
static int price(struct problem *p, int config, struct err *e)
{
    struct solve_config *c = &p->configs.sp.configs[config];
    int r;
    if (c->curves)
        return 0;
    r = price_curves(&p->space, &p->residencies, &p->configs.choices[config], c->depth, c, e);
    return r < 0 ? r : solve_bound(&p->configs.sp, c, e);
}

/* Z3's configuration in whole units, from the programme over its layers, where that beats *best. */
static int consider(struct problem *p, const struct request *q, int config, struct solve_result *best, struct err *e)
{
    struct solve_problem one = p->configs.sp;
    struct solve_result now;
    int r = price(p, config, e);
    one.configs += config;
    one.n_configs = 1;
    if (r < 0 || (r = solve_z3(&one, q->rlimit, REQUEST_SEED, &now, e)) < 0)
        return r;
    if (!now.feasible || (best->feasible && now.objective >= best->objective)) {
        solve_result_done(&now);
        return 0;
    }
    solve_result_done(best);
    now.config = config;
    now.bound = best->bound;
    *best = now;
    return 0;
}

/* The proven bound and Z3's configuration, into *best. */
static int optimise(struct problem *p, const struct request *q, const struct limits *lim, struct solve_result *best, struct err *e)
{
    struct paper_problem x;
    struct paper_answer a;
    int r = paper_problem_init(&x, p, lim, e);
    if (r < 0)
        return r;
    r = paper_z3(&x.paper, q->rlimit, REQUEST_SEED, &a, e);
    if (r == 0 && a.feasible) {
        int config = paper_problem_config(&x, p, &a.best);
        best->bound = a.best.ticks > best->bound ? a.best.ticks : best->bound;
        r = config < 0 ? 0 : consider(p, q, config, best, e);
    }
    best->finished = a.finished;
    paper_problem_done(&x);
    return r;
}

int planning_paper(struct problem *p, const struct request *q, const struct limits *lim, struct solve_result *out, struct err *e)
{
    struct solve_result best = { .bound = SOLVE_NEVER };
    unsigned core = 0;
    int r = solve_greedy(&p->configs.sp, &best, e);
    if (r < 0)
        return r;
    if ((r = solve_z3_core(&p->configs.sp, REQUEST_SEED, &core, e)) == 0 && core == 0)
        r = optimise(p, q, lim, &best, e);
    if (core)
        best.feasible = 0;
    else if (r == 0 && !best.feasible) /* only just too slow, to within rounding */
        core = SOLVE_MEMORY | SOLVE_SPEED;
    if (r < 0 || !best.feasible)
        solve_result_done(&best);
    if (r < 0)
        return r;
    best.core = core;
    best.bound = best.bound < best.objective ? best.bound : best.objective;
    *out = best;
    return 0;
}

/* --- the text --- */

static void write_head(const struct plan *plan, const struct plan_limit *l, FILE *out)
{
    print_to(out, "; The planner's problem by the paper's equations: PowerInfer-2 (arXiv:2406.06282 v1), section 5.\n"
                 "; The roles and operands of Equations 1-11 are the paper's, the algebra is a reconstruction.\n;\n"
                 "; %s on %s, %s%s layout, %s mode, at most %" PRIu64 " bytes; %s, %s.\n"
                 "; Units: ns, bytes, FLOP, tokens/s. Anyone's Z3 can check it: each (check-sat) has its answer beside it.\n\n"
                 "(set-option :produce-unsat-cores true)\n\n", plan->model_name, plan->device, plan->layout.packed ? "packed " : "",
            layout_form_name(plan->layout.form), plan_mode_name(l->mode), l->memory_bytes, plan->tool, plan->solver);
}

int planning_paper_write(struct problem *p, const struct request *q, const struct plan *plan, const struct limits *lim, FILE *out,
                         struct err *e)
{
    const struct plan_limit *l = &plan->limits[0];
    struct paper_problem x = { .volumes = NULL };
    struct paper_answer a;
    int r = problem_fill(p, lim, e);
    if (r == 0 && (r = paper_problem_init(&x, p, lim, e)) == 0)
        r = paper_z3(&x.paper, q->rlimit, REQUEST_SEED, &a, e);
    if (r == 0 && !a.finished)
        r = err_set(e, ERR_SYS, "Z3 stopped at its limit of %" PRIu64 " before it had proven the optimum; there is nothing to "
                                  "state (--rlimit 0 sets none)", q->rlimit);
    if (r == 0) {
        write_head(plan, l, out);
        paper_text(&x.paper, 0, 0, out);
        if (a.feasible)
            paper_text_claims(&x.paper, &a.best, out);
        else
            paper_text_contradiction(a.core, out);
    }
    paper_problem_done(&x);
    return r;
}
