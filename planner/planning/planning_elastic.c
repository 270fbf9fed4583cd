/* Each limit was solved for itself: that is what a group costs it, and what its shared part is taken from. Room for threads, reads in
 * flight and long reads is small beside scratch, which grows with the chunk, so of these the most are taken, and one chunk is chosen. */
#include "planner/planning/planning_parts.h"

#include "common/plan/plan_fit.h"
#include "planner/planning/planning_account.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A group that is tried: the plan's limits from `first` on. */
struct attempt {
    int first;
    double score;               /* sum of log speeds */
    struct plan_limit limit[PLAN_MAX_LIMITS];
    struct planning_bound bound[PLAN_MAX_LIMITS];
};

static void attempt_done(struct attempt *a)
{
    for (int i = 0; i < PLAN_MAX_LIMITS; i++)
        plan_limit_done(&a->limit[i]);
}

static struct plan_elastic most_of(const struct plan_limit *l, int n)
{
    struct plan_elastic x = { .group = 1 };
    for (int i = 0; i < n; i++) {
        struct budget_choice c = { .threads = l[i].threads, .io_lanes = l[i].io_lanes, .queue_depth = l[i].queue_depth,
                                   .read_bytes = plan_read_bytes(&l[i]) };
        plan_fit_widen(&c, &x);
        x = (struct plan_elastic){ .group = 1, .threads = c.threads, .io_lanes = c.io_lanes, .queue_depth = c.queue_depth,
                                   .read_bytes = c.read_bytes };
    }
    return x;
}

static double speed_of(const struct plan *plan, const struct plan_limit *l)
{
    int weight[PLAN_MAX_BATCHES];
    for (int b = 0; b < l->n_batches; b++)
        weight[b] = plan->request.n_weights ? plan->request.weight[b] : 1;
    return planning_mean_speed(l, weight);
}

static double lost(double now, double before)
{
    return now < before ? 1 - now / before : 0;
}

/* A limit of the plan within the group. 1: solved; 0: there is no room. */
static int solve_within(struct problem *p, const struct request *q, const struct plan *plan, int i,
                        const struct plan_elastic *x, int chunk, struct attempt *a, struct err *e)
{
    struct limits lim;
    planning_limits(plan, &plan->limits[i], &lim);
    memcpy(lim.cores, q->cores, sizeof lim.cores);
    lim.prefill_chunk = chunk;
    lim.own_chunk = 1;
    lim.elastic = *x;
    lim.stream_tables = plan->limits[a->first].stream_tables; /* of the least, for all */
    plan_limit_done(&a->limit[i]);
    a->limit[i] = (struct plan_limit){ .n_batches = 0 };
    return planning_within(p, q, &lim, plan, &a->bound[i], &a->limit[i], e);
}

/* The largest of the limits' chunks that costs the least limit little, or the least of them. 1: *chunk; 0: it has no room. */
static int choose_chunk(struct problem *p, const struct request *q, const struct plan *plan,
                        const struct plan_elastic *x, struct attempt *a, int *chunk, struct err *e)
{
    const struct plan_limit *own = &plan->limits[a->first];
    int r = 0, least = own->prefill_chunk;
    *chunk = 0;
    for (int i = a->first; i < plan->n_limits; i++) {
        *chunk = plan->limits[i].prefill_chunk > *chunk ? plan->limits[i].prefill_chunk : *chunk;
        least = plan->limits[i].prefill_chunk < least ? plan->limits[i].prefill_chunk : least;
    }
    for (;; *chunk = *chunk / 2 > least ? *chunk / 2 : least) {
        r = solve_within(p, q, plan, a->first, x, *chunk, a, e);
        if (r < 0 || *chunk == least ||
            (r == 1 && lost(speed_of(plan, &a->limit[a->first]), speed_of(plan, own)) <= 1.0 / PLANNING_ELASTIC_PART))
            return r;
    }
}

/* The largest group whose choice of variants is the problem's one. */
static int try_group(struct problem *p, const struct request *q, const struct plan *plan, struct attempt *a,
                     struct err *e)
{
    struct plan_elastic x = { 0 };
    int n = plan->n_limits, chunk, r = 0;
    for (a->first = 0; a->first < n - 1 && r == 0; a->first += r == 0) {
        x = most_of(plan->limits + a->first, n - a->first);
        r = choose_chunk(p, q, plan, &x, a, &chunk, e);
    }
    for (int i = a->first + 1; i < n && r == 1; i++)
        r = solve_within(p, q, plan, i, &x, chunk, a, e);
    if (r != 1)
        return r;
    x = most_of(a->limit + a->first, n - a->first);
    for (int i = a->first; i < n && r >= 0; i++) {
        struct plan_limit *l = &a->limit[i];
        struct budget b;
        double was = plan_prompt_tokens_per_s(&plan->limits[i].prompt), prompts = plan_prompt_tokens_per_s(&l->prompt);
        l->elastic = x;
        l->n_alternatives = l->n_alternative_times = 0; /* the group has the room */
        l->elastic.token_cost = lost(speed_of(plan, l), speed_of(plan, &plan->limits[i]));
        l->elastic.prompt_cost = was > 0 && prompts > 0 ? lost(prompts, was) : 0;
        a->score += log(speed_of(plan, l));
        if ((r = planning_account(p, l, NULL, &b, e)) == 0) {
            l->account_bytes = b.total;
            l->floor_bytes = b.floor;
        }
    }
    return r < 0 ? r : 1;
}

/* With the variant of a limit alone. */
static int try_variant(struct problem *p, const struct request *q, const struct plan *plan,
                       const struct plan_limit *l, struct attempt *a, struct err *e)
{
    struct space_variant variant = { l->mode, l->recall, plan_recalls(l), l->predictor, l->always, 0, 0 };
    struct problem_request one = { .space.variants = &variant, .space.n_variants = 1, .policy = q->policy, .like = p };
    struct problem alone;
    if (p->space.n_variants == 1)
        return try_group(p, q, plan, a, e);
    int r = problem_prepare(&alone, p->space.in, p->space.hw, &plan->layout, &one, NULL, e);
    if (r < 0)
        return r;
    r = try_group(&alone, q, plan, a, e);
    problem_done(&alone);
    return r;
}

static int take(const struct attempt *a, struct plan *plan, struct planning_bound *bounds)
{
    for (int i = a->first; i < plan->n_limits; i++) {
        plan_limit_done(&plan->limits[i]);
        plan->limits[i] = a->limit[i];
        bounds[i].objective = a->bound[i].objective;
        bounds[i].bound = a->bound[i].bound < bounds[i].bound ? a->bound[i].bound : bounds[i].bound; /* its chunk may be another */
        if (bounds[i].objective > 0)
            plan->limits[i].gap = 1 - (double)bounds[i].bound / (double)bounds[i].objective;
    }
    return a->first;
}

int planning_elastic(struct problem *p, const struct request *q, struct plan *plan, struct planning_bound *bounds, struct err *e)
{
    struct attempt *a = calloc(2, sizeof *a);
    int n = plan->n_limits, r, other = 0, alone = n;
    if (!a)
        return err_set(e, ERR_NOMEM, "out of memory for limits");
    r = n > 1 ? try_variant(p, q, plan, &plan->limits[0], &a[0], e) : 0;
    int found = r == 1 ? 1 : 0;
    if (r >= 0 && n > 1 && p->space.n_variants > 1 && !planning_same_problem(plan, &plan->limits[0], &plan->limits[n - 1]) &&
        (r = try_variant(p, q, plan, &plan->limits[n - 1], &a[1], e)) == 1) {
        other = !found || a[1].first < a[0].first || (a[1].first == a[0].first && a[1].score > a[0].score);
        found = 1;
    }
    if (r >= 0 && found) {
        alone = take(&a[other], plan, bounds);
        memset(a[other].limit, 0, sizeof a[other].limit);
    }
    for (int i = 0; i < alone && r >= 0 && n > 1; i++)
        r = plan_note(plan, e, "memory %llu: it is in no elastic group: there is no room in it for what larger limits need",
                      (unsigned long long)plan->limits[i].memory_bytes);
    attempt_done(&a[0]);
    attempt_done(&a[1]);
    free(a);
    return r < 0 ? r : 0;
}
