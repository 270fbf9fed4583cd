/* The bound is found by halving: losses rise with it. */
#include "planner/planning/planning_cold.h"

#include "planner/planning/planning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 6
#define NEAR 0.02       /* another bound that differs by less is the same */
#define LEAST_BOUND 1e-12

static double kl_at(const struct inputs *in, const uint32_t *always, double bound)
{
    double sum = 0;
    for (int l = 0; l < in->n_layers; l++)
        sum += inputs_cold_loss(in, l, always ? always[l] : 0, bound);
    return sum;
}

double planning_cold_kl(const struct inputs *in, const struct plan_limit *l)
{
    return kl_at(in, l->always, l->cold_bound);
}

static double six_digits(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", x);
    return strtod(text, NULL);
}

/* The largest bound whose loss is within max_kl, as six digits have it; 0: there is none. */
static double bound_of(const struct inputs *in, const uint32_t *always, double max_kl)
{
    double low = log(LEAST_BOUND), high = 0;
    for (int i = 0; i < 60; i++) {
        double mid = (low + high) / 2;
        *(kl_at(in, always, exp(mid)) <= max_kl ? &low : &high) = mid;
    }
    return exp(low) > 2 * LEAST_BOUND ? six_digits(exp(low) * (1 - 1e-5)) : 0;
}

static void take_bound(struct plan *p, double bound)
{
    struct plan_limit *l = &p->limits[0];
    l->cold_bound = bound;
    for (int k = 0; k < p->n_layers; k++)
        l->always[k] = plan_hot(p, &l->batches[0], k, 0, p->n_parts - 1);
}

static int note(const struct inputs *in, struct plan *p, struct err *e)
{
    const struct plan_limit *l = &p->limits[0];
    double fire = 0, kept = 0;
    for (int k = 0; k < in->n_layers; k++)
        for (uint32_t i = l->always[k]; i < (uint32_t)inputs_n_ff(in, k); i++) {
            const double *cum = inputs_curve_at(in, 0, k, 0)->cum;
            fire += cum[i + 1] - cum[i];
            kept += (cum[i + 1] - cum[i]) * inputs_cold_kept(in, k, i, l->cold_bound);
        }
    return plan_note(p, e, "memory %llu: of %.4g neurons a token that fire and are not in hot prefixes %.4g are computed, the others "
                     "lose at most %.3g nats each: mean KL %.3g nats from exact mode, by what the trace lost",
                     (unsigned long long)l->memory_bytes, fire, kept, l->cold_bound, planning_cold_kl(in, l));
}

static int check(const struct request *q, const struct inputs *in, struct err *e)
{
    const char *with = q->n_memory > 1 ? "several limits" : q->max_batch > 1 ? "--max-batch above 1" : q->elastic ? "--elastic" :
                       q->prove || q->certificate ? "--prove and --certificate" : NULL;
    if (!in->cold)
        return err_set(e, ERR_MISMATCH, "--max-kl in exact mode leaves cold neurons out by their thresholds, which the trace does not "
                                        "have: 'thermo-profile trace --cold-thresholds' makes them, for models with ReLU");
    if (!in->window_tokens)
        return err_set(e, ERR_MISMATCH, "--max-kl in exact mode needs a trace with activation maps (--window-tokens)");
    return with ? err_set(e, ERR_USAGE, "--max-kl in exact mode does not go with %s", with) : 0;
}

int planning_cold_make(const struct request *q, struct inputs *in, const struct hw *hw, struct notes *notes, struct plan *out,
                       struct err *e)
{
    if (q->mode != PLAN_EXACT || !(q->max_kl > 0))
        return planning_make(q, in, hw, notes, out, e);
    int r = check(q, in, e), found = 0;
    double bound = r < 0 ? 0 : bound_of(in, NULL, q->max_kl), best = 0, low = 0, high = INFINITY; /* bounds that did, and did not */
    struct plan p;
    for (int i = 0; i < ROUNDS && r == 0; i++) {
        if ((r = inputs_use_cold(in, bound, e)) < 0 || (r = planning_make(q, in, hw, notes, &p, e)) < 0)
            break;
        take_bound(&p, bound);
        double speed = p.limits[0].batches[0].predicted.tokens_per_s, next = bound_of(in, p.limits[0].always, q->max_kl);
        int fits = planning_cold_kl(in, &p.limits[0]) <= q->max_kl, better = fits && (!found || speed > best);
        low = fits ? fmax(low, bound) : low;
        high = fits ? high : fmin(high, bound);
        if (better && found)
            plan_done(out);
        if (better)
            *out = p, best = speed, found = 1;
        else
            plan_done(&p);
        if (high < INFINITY && low > 0 && (next <= low || next >= high))
            next = six_digits(sqrt(low * high));
        if (fabs(next - bound) <= NEAR * bound)
            break;
        bound = next;
    }
    if (r == 0 && !found)
        r = err_set(e, ERR_INFEASIBLE, "--max-kl %g: no bound keeps it", q->max_kl);
    if (r == 0 && (r = inputs_use_cold(in, out->limits[0].cold_bound, e)) == 0 && out->limits[0].cold_bound > 0)
        r = note(in, out, e);
    if (r < 0 && found) {
        plan_done(out);
        *out = (struct plan){ .n_limits = 0 };
    }
    return r;
}
