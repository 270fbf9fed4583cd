/* Nearest feasible values. A floor is the account itself; a speed is what the solver reaches without the
 * lower bound; the memory for a speed starts at the relaxed need of the best configuration and
 * grows by small steps until a rounded plan is fast enough. */
#include "planner/planning/diagnosis.h"

#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/offline/floor/floor.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int diagnosis_floor(const struct problem *p, const struct limits *lim, uint64_t *bytes, struct err *e)
{
    struct limits one = *lim;
    struct cost_choice c;
    struct budget b;
    one.prefill_chunk = lim->own_chunk ? lim->prefill_chunk : 1;
    int r = account_least(&p->space, &one, &c, e);
    if (r == 0)
        r = account_of(&p->space, &c, &one, NULL, &b, e);
    if (r == 0)
        *bytes = b.total;
    return r;
}

struct asked {
    const struct problem *p;
    const struct limits *lim;
};

static int least_of(const void *of, const struct floor_ask *a, uint64_t *bytes, struct err *e)
{
    const struct asked *x = of;
    struct limits at = *x->lim;
    at.context = a->context;
    at.max_batch = a->max_batch;
    return diagnosis_floor(x->p, &at, bytes, e);
}

static int tell_memory(const struct problem *p, const struct limits *lim, struct diagnosis *out, struct err *e)
{
    const struct asked x = { p, lim };
    const struct floor_ask a = { lim->memory_bytes, lim->context, lim->max_batch, lim->kv_type, lim->own_chunk ? lim->prefill_chunk : 0,
                                 lim->purpose };
    struct floor_near near = { 0 };
    int r = floor_refuse(&a, least_of, &x, &near, e);
    out->near_memory_bytes = near.memory_bytes;
    out->near_memory_bytes_at_batch_1 = near.memory_bytes_at_batch_1;
    out->near_context = near.context;
    return r;
}

struct message {
    char text[480];
};

static void say(struct message *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct message *s, const char *fmt, ...)
{
    size_t n = strlen(s->text);
    va_list ap;
    va_start(ap, fmt);
    print_into_va(s->text + n, sizeof s->text - n, fmt, ap);
    va_end(ap);
}

static const char *size_text(uint64_t bytes, char *out, size_t len)
{
    return size_format(bytes, out, len);
}

/* Speed that the solver reaches with these limits and no lower bound on it; 0: no plan at all. */
static int fastest(struct problem *p, struct limits lim, double *tokens_per_s, struct err *e)
{
    struct solve_result res;
    int r;
    lim.min_tokens_per_s = 0;
    if ((r = problem_fill(p, &lim, e)) < 0 || (r = solve_greedy(&p->configs.sp, &res, e)) < 0)
        return r;
    *tokens_per_s = res.feasible ? 1e9 * SOLVE_TICKS_PER_NS / (double)res.ticks[0] : 0;
    solve_result_done(&res);
    return 0;
}

/* Three significant digits, downwards: what is promised must hold. */
static double three_digits(double v)
{
    if (v <= 0)
        return 0;
    double unit = pow(10, floor(log10(v)) - 2);
    return floor(v * (1 - 1e-9) / unit) * unit;
}

static uint64_t round_memory(double bytes)
{
    uint64_t unit = bytes < 256e6 ? 1u << 16 : 1u << 20;
    return ((uint64_t)bytes + unit - 1) / unit * unit;
}

/* Least memory (rounded up) for the wanted speed; 0: none is enough. */
static int memory_for(struct problem *p, struct limits lim, uint64_t *bytes, struct err *e)
{
    int64_t need = SOLVE_NEVER;
    for (int i = 0; i < p->configs.sp.n_configs; i++)
        if (solve_cores_ok(&p->configs.sp, &p->configs.sp.configs[i]) && p->configs.sp.configs[i].need_bytes < need)
            need = p->configs.sp.configs[i].need_bytes;
    *bytes = 0;
    if (need == SOLVE_NEVER)
        return 0;
    double at = (double)need * SOLVE_BYTE_UNIT;
    for (int i = 0; i < 40; i++, at *= i < 20 ? 1.005 : 1.03) {
        struct solve_result res;
        int r;
        lim.memory_bytes = round_memory(at);
        if ((r = problem_fill(p, &lim, e)) < 0 || (r = solve_greedy(&p->configs.sp, &res, e)) < 0)
            return r;
        int ok = res.feasible;
        solve_result_done(&res);
        if (ok) {
            *bytes = lim.memory_bytes;
            return 0;
        }
    }
    return 0;
}

static int tell_speed(struct problem *p, const struct limits *lim, unsigned core, struct diagnosis *out, struct message *s,
                      struct err *e)
{
    char a[32], b[32];
    double here, all;
    uint64_t need;
    struct limits every = *lim, endless = *lim;
    int r;
    if ((r = memory_for(p, *lim, &need, e)) < 0 || (r = fastest(p, *lim, &here, e)) < 0)
        return r;
    out->near_memory_bytes = need;
    out->near_speed = three_digits(here); /* 0: no plan */
    say(s, "--min-speed %g cannot be reached with --memory %s", lim->min_tokens_per_s, size_text(lim->memory_bytes,
                                                                                                 a, sizeof a));
    if (here > 0)
        say(s, ": the fastest plan makes %g tokens/s", out->near_speed);
    if (need > 0) {
        say(s, "; --memory %llu (%s) would do", (unsigned long long)need, size_text(need, b, sizeof b));
        return 0;
    }
    endless.memory_bytes = UINT64_C(1) << 50;
    if ((r = fastest(p, endless, &all, e)) < 0)
        return r;
    out->near_speed_resident = three_digits(all);
    say(s, "; no memory is enough, for with everything resident it is %g", out->near_speed_resident);
    if (core & SOLVE_CORES) {
        for (int k = 0; k < HW_MAX_CLASSES; k++)
            every.cores[k] = -1;
        if ((r = fastest(p, every, &all, e)) < 0)
            return r;
        out->near_speed_all_cores = three_digits(all);
        say(s, "; with all cores of the device it would be %g with this memory", out->near_speed_all_cores);
    }
    return 0;
}

int diagnosis_infeasible(struct problem *p, const struct limits *lim, unsigned core, struct diagnosis *out, struct err *e)
{
    struct message s = { "" };
    struct diagnosis a = { .filled = 1, .core = core, .memory_bytes = lim->memory_bytes, .context = lim->context,
                           .max_batch = lim->max_batch, .min_tokens_per_s = lim->min_tokens_per_s };
    int r;
    if (core & SOLVE_SPEED)
        r = tell_speed(p, lim, core, &a, &s, e);
    else if (core & SOLVE_CORES) {
        r = 0;
        a.near_cores = 1;
        say(&s, "--cores leaves no core to compute with: give at least one core of some class");
    } else
        r = tell_memory(p, lim, &a, e);
    if ((r == 0 || r == ERR_INFEASIBLE) && out)
        *out = a;
    return r < 0 ? r : err_set(e, ERR_INFEASIBLE, "%s", s.text);
}
