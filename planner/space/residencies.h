#ifndef PLANNER_SPACE_RESIDENCIES_H
#define PLANNER_SPACE_RESIDENCIES_H

/* The residencies of each layer that are worth pricing: which prefixes stay in memory and how many slots the cold cache has,
 * with the bytes they take and what a step then moves. They depend on model and layout only. One owner thread. */
#include "planner/cost/cost.h"
#include "planner/space/miss_tables.h"
#include "planner/space/space.h"

struct residencies_point {      /* a residency of one layer; no other beats it in both bytes and flow at every batch size */
    struct cost_residency residency;
    struct cost_flow flow;
    int64_t bytes;              /* of the account, units of SOLVE_BYTE_UNIT */
    int cold;                   /* which prefix and slots of the last part: equal ones read it equally */
};

struct residencies_list {       /* of a variant, batch size and layer; ascending in bytes. The residencies of a variant and layer are
                                 * the same for all batch sizes, only their flows differ */
    int n, n_cold;              /* cold < n_cold */
    struct residencies_point *point;
};

struct residencies {
    int n_variants, n_batches, n_layers;
    struct residencies_list *list; /* [n_variants][n_batches][n_layers]; empty where an earlier variant is equivalent */
};

/* From the tables, which flows borrow from then on. ERR_NOMEM. */
int residencies_init(struct residencies *r, const struct space *s, const struct miss_tables *t, struct err *e);
void residencies_done(struct residencies *r); /* accepts a zeroed one */

/* How missing units are read by each of the space's rules, into the tables: at the points that residencies read, or, with all,
 * at every point. */
void residencies_read_rules(const struct residencies *r, const struct space *s, struct miss_tables *t, int all);

/* Bytes that a residency of one layer adds to the account, units of SOLVE_BYTE_UNIT, by the account itself. */
int residencies_bytes(const struct space *s, int layer, const struct cost_residency *k, int64_t *out, struct err *e);

/* Of a variant that is the first of its equivalents in this layer (space_equivalent). */
static inline struct residencies_list *residencies_at(const struct residencies *r, int variant, int batch_index, int layer)
{
    return &r->list[((size_t)variant * (size_t)r->n_batches + (size_t)batch_index) * (size_t)r->n_layers + (size_t)layer];
}

#endif
