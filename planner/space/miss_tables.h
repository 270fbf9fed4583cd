#ifndef PLANNER_SPACE_MISS_TABLES_H
#define PLANNER_SPACE_MISS_TABLES_H

/* Misses of the cold cache, of every variant, batch size and layer of a space: replay's tables (planner/replay/replay.h) and
 * the policy each variant was replayed with. Layers are replayed side by side on the machine's cores. One owner thread. */
#include "planner/replay/replay.h"
#include "planner/space/space.h"

struct miss_tables {
    int n_variants, n_batches, n_layers;
    enum cache_policy policy[SPACE_MAX_VARIANTS];
    struct replay_table *table[SPACE_MAX_VARIANTS];     /* [n_batches][n_layers]; NULL: no cold cache */
    struct replay_samples *samples[SPACE_MAX_VARIANTS]; /* the same, of the layers that were replayed; NULL with table */
};

/* No tables yet; policy: of the variants that name none, or -1: the first. */
void miss_tables_init(struct miss_tables *t, const struct space *s, int policy);
void miss_tables_done(struct miss_tables *t); /* accepts a zeroed one */

/* Replay every variant, with its policy, or, where it names none and policy is negative, with the one that misses less. */
int miss_tables_replay(struct miss_tables *t, const struct space *s, int policy, struct err *e);

/* Do two spaces replay the same lists over the same units? Then tables made under the same policy may be copied. */
int miss_tables_equivalent(const struct space *a, const struct space *b);
int miss_tables_copy(struct miss_tables *t, const struct space *s, const struct miss_tables *from, struct err *e);

/* Room for the tables of one variant, zeroed, where there is none: for figures that come from elsewhere. ERR_NOMEM. */
int miss_tables_reserve(struct miss_tables *t, int variant, struct err *e);

/* How missing units of a layer are read, by each of n rules. points: of the table that are filled in; NULL: all. A layer that
 * another represents gets what that one has, so representatives come first. */
void miss_tables_rules(struct miss_tables *t, const struct space *s, int variant, int batch_index, int layer,
                       const struct reads_rule *rules, int n, const struct replay_asked *points);

/* NULL: the variant has no cold cache. */
static inline struct replay_table *miss_tables_at(const struct miss_tables *t, int variant, int batch_index, int layer)
{
    struct replay_table *table = t->table[variant];
    return table ? &table[(size_t)batch_index * (size_t)t->n_layers + (size_t)layer] : NULL;
}

#endif
