/* One or two for each thing that may be otherwise: the other back end, fewer threads or more, another queue, experts ahead or not; each
 * with the best of the rest by the cost model. What fewer threads cost is more than chance, and they are what is left on a busy machine: so
 * an alternative may take FAR times as long as what was chosen. */
#include "planner/planning/planning_alternatives.h"

#include "planner/planning/planning_account.h"

#include <stdlib.h>

#define FAR       2.5
#define MAX_DEPTH 128

static enum hw_backend backend_of(enum plan_io io)
{
    return io == PLAN_IO_URING ? HW_URING : io == PLAN_IO_PREAD ? HW_PREAD : HW_ANY_BACKEND;
}

int planning_alternative_times(const struct problem *p, enum plan_cost cost, const struct plan_limit *l, const struct cost_choice *own,
                               const struct plan_alternative *a, const struct cost_residency *residencies, double ns[PLAN_TERMS],
                               struct err *e)
{
    struct problem quiet = *p; /* what other ways lack is not said of this plan */
    struct cost_choice c = *own;
    struct plan_figures f = { .layers = malloc((size_t)p->space.in->n_layers * sizeof *f.layers) };
    int left = a->threads;
    if (!f.layers)
        return err_set(e, ERR_NOMEM, "out of memory for alternatives");
    quiet.space.notes = NULL;
    for (int k = 0; k < c.n_classes; k++) {
        c.n[k] = own->n[k] < left ? own->n[k] : left;
        left -= c.n[k];
    }
    c.n[0] += left;
    c.threads = a->threads;
    c.depth = a->queue_depth;
    c.backend = backend_of(a->io);
    c.ahead = a->ahead && l->ahead != PLAN_AHEAD_UNSTATED;
    if (!a->coalesced && own->rule) {
        c.rule = 0;
        c.read_bytes = 0;
    }
    configs_set_lanes(&c);
    int r = problem_predict(&quiet, &c, 0, residencies, &f, e);
    if (r == 0)
        plan_terms(cost, l->mode, &f, p->space.in->n_layers, ns);
    free(f.layers);
    return r;
}

/* What is chosen from. */
struct choosing {
    const struct problem *p;
    const struct cost_choice *own;
    const struct cost_residency *residencies;
    enum plan_cost cost;
    struct plan_limit *l;
    enum plan_io io[2];
    int n_io;
    double own_ns;
};

static double sum(const double ns[PLAN_TERMS])
{
    double all = 0;
    for (int t = 0; t < PLAN_TERMS; t++)
        all += ns[t];
    return all;
}

static int backends_of(const struct hw *hw, enum plan_io out[2])
{
    int has[2] = { 0, 0 }, n = 0;
    for (int i = 0; i < hw->n_storage; i++)
        has[hw->storage_points[i].backend == HW_PREAD] = 1;
    if (has[0])
        out[n++] = PLAN_IO_URING;
    if (has[1])
        out[n++] = PLAN_IO_PREAD;
    return n;
}

static int fits(const struct choosing *x, const struct plan_alternative *a, int *yes, struct err *e)
{
    struct plan_limit with = *x->l;
    struct budget b;
    with.alternatives[with.n_alternatives++] = *a;
    int r = planning_account(x->p, &with, NULL, &b, e);
    *yes = r == 0 && cost_memory_ok(b.total, x->l->memory_bytes);
    return r;
}

static int is_there(const struct choosing *x, const struct plan_alternative *a)
{
    const struct plan_limit *l = x->l;
    int there = a->threads == x->own->threads && a->queue_depth == x->own->depth && a->io == l->io &&
                a->ahead == (l->ahead != PLAN_AHEAD_OFF) && a->coalesced == (l->n_coalesce > 0);
    for (int i = 0; i < l->n_alternatives && !there; i++) {
        const struct plan_alternative *b = &l->alternatives[i];
        there = a->threads == b->threads && a->queue_depth == b->queue_depth && a->io == b->io && a->ahead == b->ahead &&
                a->coalesced == b->coalesced;
    }
    return there;
}

/* The fastest with these threads and this back end, at least_depth or deeper to most_depth, for which there is room. Added where it is near
 * enough. */
static int add_best(struct choosing *x, int threads, enum plan_io io, int least_depth, int most_depth, int ahead, int coalesced,
                    struct err *e)
{
    struct plan_limit *l = x->l;
    struct plan_alternative best = { 0 };
    double best_ns = FAR * x->own_ns;
    int r = 0, found = 0, room;
    for (int depth = 1; depth <= most_depth && r == 0; depth *= 2) {
        struct plan_alternative a = { .threads = threads, .queue_depth = depth, .io = io, .coalesced = coalesced, .ahead = ahead };
        if (depth < least_depth || is_there(x, &a) || (r = fits(x, &a, &room, e)) < 0 || !room)
            continue;
        r = planning_alternative_times(x->p, x->cost, l, x->own, &a, x->residencies, a.term_ns, e);
        if (r == 0 && sum(a.term_ns) < best_ns) {
            best_ns = sum(a.term_ns);
            best = a;
            found = 1;
        }
    }
    if (r == 0 && found && l->n_alternatives < PLAN_MAX_ALTERNATIVES) {
        l->alternatives[l->n_alternatives++] = best;
        l->n_alternative_times = l->n_alternatives;
    }
    return r;
}

/* Other threads, with each back end. */
static int add_threads(struct choosing *x, int threads, int reads, struct err *e)
{
    const struct plan_limit *l = x->l;
    int r = 0, ahead = l->ahead != PLAN_AHEAD_OFF, coalesced = l->n_coalesce > 0, least = reads ? 1 : x->own->depth;
    if (threads < 1 || threads == x->own->threads)
        return 0;
    for (int i = 0; i < x->n_io && reads && r == 0; i++)
        r = add_best(x, threads, x->io[i], 1, MAX_DEPTH, ahead, coalesced, e);
    return x->n_io && reads ? r : add_best(x, threads, l->io, least, reads ? MAX_DEPTH : x->own->depth, ahead, coalesced, e);
}

static int choose(struct choosing *x, int cores, struct err *e)
{
    const struct plan_limit *l = x->l;
    int ahead = l->ahead != PLAN_AHEAD_OFF, coalesced = l->n_coalesce > 0, reads = l->batches[0].predicted.read_bytes > 0, r = 0;
    int threads = x->own->threads, depth = x->own->depth;
    for (int i = 0; i < x->n_io && reads && r == 0; i++)
        if (x->io[i] != l->io)
            r = add_best(x, threads, x->io[i], 1, MAX_DEPTH, ahead, coalesced, e);
    if (r == 0)
        r = add_threads(x, threads - 1, reads, e);
    if (r == 0 && reads && coalesced)
        r = add_best(x, threads, l->io, depth, depth, ahead, 0, e);
    if (r == 0 && reads && l->ahead != PLAN_AHEAD_UNSTATED)
        r = add_best(x, threads, l->io, depth, depth, !ahead, coalesced, e);
    if (r == 0 && reads)
        r = add_best(x, threads, l->io, 2 * depth, MAX_DEPTH, ahead, coalesced, e);
    if (r == 0 && x->p->space.hw->n_classes == 1 && threads < cores)
        r = add_threads(x, threads + 1, reads, e);
    if (r == 0 && threads > 3)
        r = add_threads(x, threads / 2, reads, e);
    return r;
}

int planning_alternatives(const struct problem *p, enum plan_cost cost, const struct cost_choice *own, int cores,
                          const struct cost_residency *residencies, struct plan_limit *l, struct err *e)
{
    struct choosing x = { .p = p, .own = own, .residencies = residencies, .cost = cost, .l = l, .own_ns = l->batches[0].predicted.step_ns };
    l->n_alternatives = l->n_alternative_times = 0;
    if (cost == PLAN_COST_PAPER || plan_uses_engine(l))
        return 0;
    x.n_io = backends_of(p->space.hw, x.io);
    return choose(&x, cores, e);
}
