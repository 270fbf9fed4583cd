#ifndef PLANNER_SEARCH_PRICE_H
#define PLANNER_SEARCH_PRICE_H

/* From a configuration of the device to the solver's curves: bytes and ticks of every layer at every residency. */
#include "planner/cost/cost.h"
#include "planner/solve/solve.h"
#include "planner/space/residencies.h"
#include "planner/space/space.h"

/* What a point of a curve stands for: the residency of a variant's list, its predictors in memory or streamed. */
struct price_id {
    int residency, variant, streamed;
};
static inline uint32_t price_id(struct price_id x)
{
    return (uint32_t)((x.residency * 2 + x.streamed) * SPACE_MAX_VARIANTS + x.variant);
}
static inline struct price_id price_id_of(uint32_t id)
{
    uint32_t rest = id / SPACE_MAX_VARIANTS;
    return (struct price_id){ (int)(rest / 2), (int)(id % SPACE_MAX_VARIANTS), (int)(rest % 2) };
}

/* Curves, kinds, fixed and floor ticks of a configuration, from the device's figures at a choice; free the curves with
 * solve_config_done, on failure too. least_depth: c->depth for the choice itself; a smaller power of two: no depth from there to
 * c->depth is faster than the curves in any point. ERR_NOMEM, or an error of cost_rates_of. */
int price_curves(const struct space *s, const struct residencies *residencies, const struct cost_choice *c, int least_depth,
                 struct solve_config *out, struct err *e);

/* The paper's model: as price_curves, but a point has V_io of (10), a byte for a ns, in place of the time that it takes. */
int price_volumes(const struct space *s, const struct residencies *residencies, const struct cost_choice *c,
                  struct solve_config *out, struct err *e);

/* Curves of the sum over the first n batch sizes, where all share their residencies: a point's ticks are the sum of weight[b] times
 * its ticks at batch size b under choices[b], as are fixed and floor ticks, those of batch size 0 in *out. The choices differ in cores
 * and depth alone. Errors, and what to free, as of price_curves. */
int price_together(const struct space *s, const struct residencies *residencies, const struct cost_choice *choices, int n,
                   const int64_t *weight, struct solve_config *out, struct err *e);

/* The time of every residency of every layer at one batch size, one by one, with all that the layer takes: for sums over batch sizes, and
 * the least of several configurations. */
struct price_steps {
    int64_t fixed_ticks;                /* beside the layers */
    size_t *from;                       /* [n_layers]: a layer's first point; that of its representative, where it costs the same */
    int *n;                             /* [n_layers]: points of the layer */
    int64_t *ticks;
    struct solve_point *at;             /* the points themselves; the same, in the same order, whatever the batch size and the choice,
                                         * but for their ticks and for what `from` shares */
};

/* As price_curves; free with price_steps_done, on failure too. The choice's only_batch is not looked at. */
int price_steps(const struct space *s, const struct residencies *residencies, const struct cost_choice *c, int least_depth,
                int batch_index, struct price_steps *out, struct err *e);
void price_steps_done(struct price_steps *x); /* accepts a zeroed one */

#endif
