#include "planner/planning/planning_batches.h"

#include "planner/search/joint.h"
#include "planner/search/price.h"
#include "planner/solve/solve_z3.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 4        /* of residencies, then configurations */
#define LEAST_GAIN 0.01 /* of a batch size's time, for which its configuration changes: solutions within that prefer threads and depth */

void planning_chosen_done(struct planning_chosen *c)
{
    free(c->residencies);
    *c = (struct planning_chosen){ 0 };
}

/* A batch size by itself: the configurations that were tried, each with a bound on its step's time, and the best of them. */
struct alone {
    struct cost_choice *choice;
    int64_t *bound;
    int n;
    struct cost_choice best;
};

/* What is solved for. */
struct together {
    struct problem *p;
    const struct limits *lim;
    int n;                                  /* batch sizes */
    int64_t weight[SOLVE_MAX_BATCHES];
    struct alone alone[SOLVE_MAX_BATCHES];
    struct plan_layer_figures *figures;     /* [n_layers]: room */
};

/* A configuration of each batch size, and residencies for all. */
struct solution {
    struct cost_choice choice[SOLVE_MAX_BATCHES];
    struct cost_residency *residencies;     /* [n_layers] */
    int64_t region;                         /* what they take, units of SOLVE_BYTE_UNIT */
    int64_t ticks[SOLVE_MAX_BATCHES], objective;
};

static int begin(struct together *t, struct problem *p, const struct limits *lim, struct err *e)
{
    *t = (struct together){ .p = p, .lim = lim, .n = p->space.in->n_batches };
    for (int b = 0; b < t->n; b++)
        t->weight[b] = configs_weight(lim, t->n, b);
    t->figures = calloc((size_t)p->space.in->n_layers, sizeof *t->figures);
    return t->figures ? 0 : err_set(e, ERR_NOMEM, "out of memory for batch sizes");
}

static void end(struct together *t)
{
    for (int b = 0; b < t->n; b++) {
        free(t->alone[b].choice);
        free(t->alone[b].bound);
    }
    free(t->figures);
}

static int new_solution(const struct together *t, struct solution *s, struct err *e)
{
    *s = (struct solution){ .objective = SOLVE_NEVER, .residencies = malloc((size_t)t->p->space.in->n_layers * sizeof *s->residencies) };
    return s->residencies ? 0 : err_set(e, ERR_NOMEM, "out of memory for batch sizes");
}

static void copy_solution(const struct together *t, struct solution *to, const struct solution *from)
{
    struct cost_residency *own = to->residencies;
    memcpy(own, from->residencies, (size_t)t->p->space.in->n_layers * sizeof *own);
    *to = *from;
    to->residencies = own;
}

struct cost_choice planning_largest(const struct cost_choice *c, int n)
{
    struct cost_choice most = c[0];
    for (int b = 1; b < n; b++) {
        if (c[b].threads > most.threads) {
            most.threads = c[b].threads;
            memcpy(most.n, c[b].n, sizeof most.n);
        }
        most.depth = c[b].depth > most.depth ? c[b].depth : most.depth;
        most.lanes = c[b].lanes > most.lanes ? c[b].lanes : most.lanes;
        if (cost_has_engine(&c[b])) { /* any height at all takes the same memory */
            most.height = c[b].height > most.height ? c[b].height : most.height;
            most.work = (enum plan_work)((unsigned)most.work | (unsigned)c[b].work);
            most.engine = c[b].engine;
        }
    }
    return most;
}

static int fixed_bytes(const struct together *t, const struct cost_choice *choice, int64_t *out, struct err *e)
{
    struct cost_choice most = planning_largest(choice, t->n);
    struct budget b;
    int r = account_of(&t->p->space, &most, t->lim, NULL, &b, e);
    *out = r < 0 ? 0 : (int64_t)(b.total / SOLVE_BYTE_UNIT);
    return r;
}

/* --- times at given residencies --- */

static int step_ticks(const struct together *t, const struct cost_choice *c, int batch, const struct cost_residency *residencies,
                      int64_t *ticks, struct err *e)
{
    struct plan_figures f = { .layers = t->figures };
    int r = problem_predict(t->p, c, batch, residencies, &f, e);
    *ticks = r < 0 ? SOLVE_NEVER : solve_ticks(f.step_ns);
    return r;
}

static int time_all(const struct together *t, struct solution *s, struct err *e)
{
    int r = 0;
    s->objective = 0;
    for (int b = 0; b < t->n && r == 0; b++) {
        r = step_ticks(t, &s->choice[b], b, s->residencies, &s->ticks[b], e);
        s->objective += t->weight[b] * s->ticks[b];
    }
    return r;
}

static int is_fast(const struct together *t, const struct solution *s)
{
    double least = t->lim->min_tokens_per_s;
    return least <= 0 || s->ticks[0] <= solve_ticks(1e9 / least);
}

/* --- residencies for all, with a configuration each --- */

/* One problem in place of several: a layer's point takes the sum over batch sizes of its time. */
static int sum_up(const struct together *t, const struct cost_choice *choice, const int64_t *weight, struct solve_config *out,
                  struct err *e)
{
    *out = (struct solve_config){ .depth = planning_largest(choice, t->n).depth };
    int r = price_together(&t->p->space, &t->p->residencies, choice, t->n, weight, out, e);
    return r < 0 ? r : fixed_bytes(t, choice, &out->fixed_bytes, e);
}

static struct solve_problem problem_of(const struct together *t, struct solve_config *config)
{
    const struct solve_problem *sp = &t->p->configs.sp;
    struct solve_problem one = { .n_layers = sp->n_layers, .n_batches = 1, .n_classes = sp->n_classes, .n_configs = 1, .weight = { 1 },
                                 .configs = config, .memory = sp->memory, .max_ticks = SOLVE_NEVER, .context = sp->context };
    memcpy(one.cores, sp->cores, sizeof one.cores);
    return one;
}

static void take(const struct together *t, const struct solve_problem *sp, const struct solve_result *res, const struct cost_choice *choice,
                 struct solution *out)
{
    out->region = 0;
    for (int l = 0; l < sp->n_layers; l++) {
        const struct solve_point *at = &sp->configs->curves[l].point[res->choice[l]];
        struct price_id x = price_id_of(at->id);
        out->residencies[l] = residencies_at(&t->p->residencies, x.variant, 0, l)->point[x.residency].residency;
        out->residencies[l].streamed = x.streamed;
        out->region += at->bytes;
    }
    memcpy(out->choice, choice, (size_t)t->n * sizeof *choice);
}

/* Residencies that are best for the weighed sum. 1: *out is filled; 0: nothing fits. z3: refined by it, and certified. */
static int solve_sum(const struct together *t, const struct cost_choice *choice, const int64_t *weight, const struct request *z3,
                     struct solution *out, struct err *e)
{
    struct solve_config config;
    struct solve_problem sp = problem_of(t, &config);
    struct solve_result res;
    int r = sum_up(t, choice, weight, &config, e);
    if (r == 0 && (r = solve_bound(&sp, &config, e)) == 0) {
        r = z3 ? solve_z3(&sp, z3->rlimit, REQUEST_SEED, &res, e) : solve_greedy(&sp, &res, e);
        if (r == 0 && res.feasible) {
            take(t, &sp, &res, choice, out);
            r = time_all(t, out, e) < 0 ? e->code : 1;
            if (r == 1 && z3 && z3->certificate)
                certificate_result(z3->certificate, &sp, &res);
        }
        if (r >= 0)
            solve_result_done(&res);
    }
    solve_config_done(&sp, &config);
    return r;
}

/* With the weights that make a step of one sequence fast enough: the least of some multiples of its own, or it alone. 1, 0: none does. */
static int solve_fast(const struct together *t, const struct cost_choice *choice, struct solution *out, struct err *e)
{
    int64_t weight[SOLVE_MAX_BATCHES];
    int r = 1;
    memcpy(weight, t->weight, sizeof weight);
    for (int i = 0; i < 4 && r == 1; i++, weight[0] *= 4)
        if ((r = solve_sum(t, choice, weight, NULL, out, e)) == 1 && is_fast(t, out))
            return 1;
    if (r != 1)
        return r;
    for (int b = 0; b < t->n; b++)
        weight[b] = b == 0;
    r = solve_sum(t, choice, weight, NULL, out, e);
    return r == 1 ? is_fast(t, out) : r;
}

/* --- configurations, for given residencies --- */

/* Of those tried for this batch size alone, the fastest here that the memory has room for. Bounds leave most of them out. 1: changed. */
static int change_choice(const struct together *t, struct solution *s, int batch, struct err *e)
{
    const struct alone *a = &t->alone[batch];
    int64_t best = s->ticks[batch] - (int64_t)(LEAST_GAIN * (double)s->ticks[batch]);
    int changed = 0;
    for (int i = 0; i < a->n; i++) {
        struct cost_choice was = s->choice[batch];
        int64_t fixed, ticks;
        if (!configs_same_queue(&a->choice[i], &was) || a->bound[i] >= best)
            continue;
        s->choice[batch] = a->choice[i];
        int r = fixed_bytes(t, s->choice, &fixed, e);
        int fits = r == 0 && fixed + s->region <= t->p->configs.sp.memory;
        if (fits)
            r = step_ticks(t, &a->choice[i], batch, s->residencies, &ticks, e);
        if (r < 0)
            return r;
        if (fits && ticks < best) {
            s->objective += t->weight[batch] * (ticks - s->ticks[batch]);
            s->ticks[batch] = best = ticks;
            changed = 1;
        } else {
            s->choice[batch] = was;
        }
    }
    return changed;
}

/* Residencies and configurations in turn; *best is replaced by what beats it. */
static int improve(const struct together *t, const struct cost_choice *from, struct solution *now, struct solution *best, struct err *e)
{
    struct cost_choice choice[SOLVE_MAX_BATCHES];
    int r = 0, changed = 1;
    memcpy(choice, from, (size_t)t->n * sizeof *choice);
    for (int i = 0; i < ROUNDS && changed; i++) {
        if ((r = solve_fast(t, choice, now, e)) != 1)
            return r;
        if (now->objective < best->objective)
            copy_solution(t, best, now);
        changed = 0;
        for (int b = 0; b < t->n; b++) {
            if ((r = change_choice(t, now, b, e)) < 0)
                return r;
            changed |= r;
        }
        if (changed && now->objective < best->objective)
            copy_solution(t, best, now);
        memcpy(choice, now->choice, sizeof choice);
    }
    return 0;
}

/* --- each batch size alone --- */

/* Depths of one queue and cores follow each other in the problem. */
static int keep_runs(const struct configs *c, int batch, struct joint *j, struct err *e)
{
    int r = 0;
    for (int i = 0, next; i < c->sp.n_configs && r == 0; i = next) {
        struct joint_run x = { .least_depth = c->choices[i].depth, .bound = SOLVE_NEVER };
        for (next = i; next < c->sp.n_configs && (next == i || c->choices[next].depth > c->choices[next - 1].depth); next++)
            x.bound = c->sp.configs[next].bound < x.bound ? c->sp.configs[next].bound : x.bound;
        x.deepest = c->choices[next - 1];
        x.deepest.only_batch = 0;
        if (solve_cores_ok(&c->sp, &c->sp.configs[i]))
            r = joint_add(j, batch, &x, e);
    }
    return r;
}

static int keep(struct together *t, int batch, const struct solve_result *res, struct joint *j, struct err *e)
{
    const struct configs *c = &t->p->configs;
    struct alone *a = &t->alone[batch];
    size_t n = (size_t)c->sp.n_configs;
    *a = (struct alone){ .choice = malloc((n + 1) * sizeof *a->choice), .bound = malloc((n + 1) * sizeof *a->bound),
                         .best = c->choices[res->config] };
    if (!a->choice || !a->bound)
        return err_set(e, ERR_NOMEM, "out of memory for batch sizes");
    a->best.only_batch = 0;
    for (int i = 0; i < c->sp.n_configs; i++)
        if (solve_cores_ok(&c->sp, &c->sp.configs[i]) && c->sp.configs[i].bound != SOLVE_NEVER) {
            a->choice[a->n] = c->choices[i];
            a->choice[a->n].only_batch = 0;
            a->bound[a->n++] = c->sp.configs[i].bound;
        }
    return keep_runs(c, batch, j, e);
}

/* The configuration with a queue like `as` that promises most; NULL: there is none. */
static const struct cost_choice *best_like(const struct alone *a, const struct cost_choice *as)
{
    int best = -1;
    if (configs_same_queue(&a->best, as))
        return &a->best;
    for (int i = 0; i < a->n; i++)
        if (configs_same_queue(&a->choice[i], as) && (best < 0 || a->bound[i] < a->bound[best]))
            best = i;
    return best < 0 ? NULL : &a->choice[best];
}

/* Begin with each batch size's best for all, then with the best of each that has such a queue. */
static int search(const struct together *t, struct solution *now, struct solution *best, struct err *e)
{
    int r = 0;
    for (int i = 0; i < 2 * t->n && r >= 0; i++) {
        const struct cost_choice *as = &t->alone[i / 2].best;
        struct cost_choice choice[SOLVE_MAX_BATCHES];
        int there = 1;
        for (int b = 0; b < t->n && there; b++) {
            const struct cost_choice *c = i % 2 ? best_like(&t->alone[b], as) : as;
            there = c != NULL;
            if (there)
                choice[b] = *c;
        }
        if (there)
            r = improve(t, choice, now, best, e);
    }
    return r;
}

static int hand_over(const struct together *t, struct solution *s, struct planning_chosen *out)
{
    *out = (struct planning_chosen){ .n_batches = t->n, .residencies = s->residencies, .objective = s->objective };
    memcpy(out->choice, s->choice, sizeof out->choice);
    s->residencies = NULL;
    return 1;
}

/* --- the bound --- */

struct trying {
    const struct together *t;
    struct solution *now, *best;
};

/* A configuration for each batch size that the bound does not rule out: taken where it gains so much. */
static int try_leaf(void *ctx, const struct cost_choice *choice, int64_t *objective, struct err *e)
{
    struct trying *x = ctx;
    int r = solve_fast(x->t, choice, x->now, e);
    if (r == 1 && x->now->objective < x->best->objective - (int64_t)(LEAST_GAIN * (double)x->best->objective))
        copy_solution(x->t, x->best, x->now);
    *objective = x->best->objective;
    return r < 0 ? r : 0;
}

/* Z3 may find better residencies for the configurations that were found, and the certificate states what it was found from. */
static int refine(const struct together *t, const struct request *q, struct solution *now, struct solution *best, struct err *e)
{
    int r = solve_sum(t, best->choice, t->weight, q, now, e);
    if (r == 1 && is_fast(t, now) && now->objective <= best->objective)
        copy_solution(t, best, now);
    return r;
}

static int certify(struct joint *j, const struct limits *lim, int64_t bound, struct certificate *c, struct err *e)
{
    certificate_say(c, "\nall batch sizes: the same neurons in memory, cores and queue depth of their own");
    certificate_claim(c, lim->memory_bytes, lim->context, bound);
    int r = joint_certify(j, c, e);
    if (r > 0)
        certificate_say(c, "not all of these are refuted: the claim is not proven");
    return r < 0 ? r : 0;
}

int planning_batches(struct problem *p, const struct request *q, const struct limits *lim, const struct solve_result *first,
                     planning_solve_fn *solve, struct planning_chosen *out, struct err *e)
{
    struct together t;
    struct solution now = { 0 }, best = { 0 };
    struct limits one = *lim, all = *lim;
    struct joint joint;
    int r = begin(&t, p, lim, e);
    all.only_batch = 0;
    joint_init(&joint, p, &all, t.weight, t.n);
    if (r == 0)
        r = keep(&t, 0, first, &joint, e);
    for (int b = 1; b < t.n && r == 0; b++) {
        struct solve_result res;
        one.only_batch = b + 1;
        if ((r = problem_fill(p, &one, e)) < 0 || (r = solve(p, &res, e)) < 0)
            break;
        r = res.feasible ? keep(&t, b, &res, &joint, e) :
                           err_set(e, ERR_INFEASIBLE, "batch size %d does not fit where 1 does", inputs_batch_sizes[b]);
        solve_result_done(&res);
    }
    if (r == 0 && (r = new_solution(&t, &now, e)) == 0 && (r = new_solution(&t, &best, e)) == 0)
        r = search(&t, &now, &best, e);
    if (r >= 0 && best.objective != SOLVE_NEVER)
        r = joint_search(&joint, best.objective, try_leaf, &(struct trying){ &t, &now, &best }, e);
    if (r >= 0 && best.objective != SOLVE_NEVER && (r = refine(&t, q, &now, &best, e)) >= 0) {
        int64_t bound = joint.bound < best.objective ? joint.bound : best.objective;
        r = q->certificate ? certify(&joint, lim, bound, q->certificate, e) : 0;
        r = r < 0 ? r : hand_over(&t, &best, out);
        out->bound = bound;
        out->finished = joint.finished;
    }
    joint_done(&joint);
    free(now.residencies);
    free(best.residencies);
    end(&t);
    return r;
}

/* --- one configuration for all --- */

static int64_t point_bytes(const struct problem *p, const struct solve_result *res, int batch, int layer)
{
    const struct solve_problem *sp = &p->configs.sp;
    return solve_curve_of(sp, res, batch, layer)->point[res->choice[(size_t)batch * (size_t)sp->n_layers + (size_t)layer]].bytes;
}

static void take_batch(const struct together *t, const struct solve_result *res, int batch, struct solution *out)
{
    out->region = 0;
    for (int l = 0; l < t->p->space.in->n_layers; l++) {
        out->residencies[l] = problem_chosen(t->p, res, batch, l);
        out->region += point_bytes(t->p, res, batch, l);
    }
}

/* Residencies of each batch size for all, and those of their sum. */
static int share(const struct together *t, const struct solve_result *res, struct solution *now, struct solution *best, struct err *e)
{
    int r = 0, n = t->p->configs.sp.n_batches;
    for (int i = 0; i <= n && r >= 0; i++) {
        if (i == n && n > 1)
            r = solve_sum(t, now->choice, t->weight, NULL, now, e);
        if (i < n) {
            take_batch(t, res, i, now);
            r = time_all(t, now, e);
        }
        if (r >= 0 && is_fast(t, now) && now->objective < best->objective)
            copy_solution(t, best, now);
    }
    return r;
}

int planning_chosen_of(struct problem *p, const struct limits *lim, const struct solve_result *res, struct planning_chosen *out,
                       struct err *e)
{
    struct together t;
    struct solution now = { 0 }, best = { 0 };
    int r = begin(&t, p, lim, e);
    if (r == 0 && (r = new_solution(&t, &now, e)) == 0 && (r = new_solution(&t, &best, e)) == 0) {
        for (int b = 0; b < t.n; b++)
            now.choice[b] = p->configs.choices[res->config];
        if (t.n == 1) {
            take_batch(&t, res, 0, &now);
            now.objective = res->objective;
            copy_solution(&t, &best, &now);
        } else {
            r = share(&t, res, &now, &best, e);
        }
    }
    if (r >= 0 && best.objective != SOLVE_NEVER) {
        r = hand_over(&t, &best, out);
        out->bound = res->bound < out->objective ? res->bound : out->objective;
        out->finished = res->finished;
    }
    free(now.residencies);
    free(best.residencies);
    end(&t);
    return r;
}
