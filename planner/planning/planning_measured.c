#include "planner/planning/planning_measured.h"

#include "common/base/print.h"
#include "planner/search/equations.h"
#include "planner/solve/solve_z3.h"

#include <inttypes.h>

int planning_measured(struct problem *p, const struct solve_problem *sp, const struct request *q, struct solve_result *out, struct err *e)
{
    struct equations equations;
    struct solve_problem o = *sp;
    equations_init(&equations, p);
    o.equations = &equations.solve;
    int r = solve_z3(&o, q->rlimit, REQUEST_SEED, out, e);
    equations_done(&equations);
    return r;
}

int planning_refine(struct problem *p, const struct request *q, struct solve_result *res, struct err *e)
{
    struct solve_problem one = p->configs.sp;
    struct solve_result now;
    one.configs += res->config;
    one.n_configs = 1;
    int r = planning_measured(p, &one, q, &now, e);
    if (r < 0)
        return r;
    if (!now.feasible || now.objective >= res->objective) {
        solve_result_done(&now);
        return 0;
    }
    now.config = res->config;
    now.bound = res->bound;
    now.finished = res->finished;
    now.core = res->core;
    solve_result_done(res);
    *res = now;
    return 0;
}

static void write_head(const struct plan *plan, const struct plan_limit *l, FILE *out)
{
    print_to(out, "; The planner's problem over measured curves, by equations (M1)-(M36) of docs/cost-model.md.\n;\n"
                 "; %s on %s, %s%s layout, at most %" PRIu64 " bytes, context %d, prompts in chunks of %d; %s, %s.\n"
                 "; Units: ns, bytes. Anyone's Z3 can check it: each (check-sat) has its answer beside it.\n\n"
                 "(set-option :smt.arith.solver 2)\n\n", plan->model_name, plan->device, plan->layout.packed ? "packed " : "",
            layout_form_name(plan->layout.form), l->memory_bytes, l->context, l->prefill_chunk, plan->tool, plan->solver);
}

int planning_measured_write(struct problem *p, const struct request *q, const struct plan *plan, const struct limits *lim, FILE *out,
                            struct err *e)
{
    int r = problem_fill(p, lim, e);
    if (r < 0)
        return r;
    struct equations equations;
    struct solve_problem o = p->configs.sp;
    equations_init(&equations, p);
    o.equations = &equations.solve;
    write_head(plan, &plan->limits[0], out);
    r = solve_z3_text(&o, q->rlimit, REQUEST_SEED, out, e);
    equations_done(&equations);
    return r;
}
