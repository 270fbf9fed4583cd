#ifndef PLANNER_SPACE_SPACE_H
#define PLANNER_SPACE_SPACE_H

/* The search space of one layout: the variants that are tried, which of them are solved as one group, and which layers stand
 * for others. It depends on model, device and layout, not on a memory limit. Constant after space_init; one owner thread. */
#include "common/offline/hwdb/hwdb.h"
#include "common/plan/budget.h"
#include "common/plan/layout.h"
#include "common/plan/plan.h"

#include "planner/cost/coalesce.h"
#include "planner/inputs/inputs.h"
#include "planner/inputs/notes.h"
#include "planner/predict/predicted.h"

/* A way to run: a mode and, in predicted mode, what predictors do. */
struct space_variant {
    enum plan_mode mode;
    double recall;                      /* predicted mode: see struct predicted; the next three also: [n_layers], borrowed */
    const double *recalls;
    const signed char *input;
    const uint32_t *always;
    int mix;                            /* adjacent variants with the same number > 0, of one mode and recall: each layer
                                         * takes one of them, and they share a cache policy. 0: a variant by itself */
    int policy;                         /* a cache_policy + 1, the same in all of a mix; 0: the request's */
};
#define SPACE_MAX_VARIANTS 16

/* What is solved as one: variants that the layers may mix. */
struct space_group {
    int first, n;                       /* variants */
    uint32_t buffers;                   /* of streamed predictors; 0: all stay in memory */
    struct budget_predictors predictors; /* rank and pieces: the largest of any; bytes: where each layer takes its smallest */
};
#define SPACE_MAX_GROUPS (6 * SPACE_MAX_VARIANTS) /* each with all predictors in memory, through many buffers, through few */

#define SPACE_WHOLE_LAYERS (-1)

struct space {
    const struct inputs *in;            /* borrowed, as hw and notes */
    const struct hw *hw;                /* NULL: no rules beyond the given one */
    struct notes *notes;
    struct layout_shapes shapes;
    struct budget_model budget;
    int every;                          /* of the request */
    int n_variants, n_groups, n_rules;
    struct space_group group[SPACE_MAX_GROUPS];
    int mix[SPACE_MAX_VARIANTS], policy[SPACE_MAX_VARIANTS];
    enum plan_mode modes[SPACE_MAX_VARIANTS];
    struct predicted *predicted[SPACE_MAX_VARIANTS]; /* NULL but in predicted mode */
    struct coalesce rules[REPLAY_RULES]; /* how missing units may be read */
};

struct space_request {
    const struct space_variant *variants; /* a mode that the model's activation forbids is an error of the caller */
    int n_variants;
    const struct coalesce *coalesce;    /* the only rule by which missing units are read; NULL: those that may pay on the device */
    int every;                          /* 0 and 1: each layer is worked out; n: each n-th, which represents the n - 1 after it
                                         * (subsampled estimate); SPACE_WHOLE_LAYERS: no layer is replayed, whole layers are the
                                         * only residency */
};

/* like: an earlier space of the same inputs, from which predictions that are the same are copied; may be NULL.
 * ERR_UNSUPPORTED where a layer has no predictor for its input, ERR_NOMEM, or an error of the layout. */
int space_init(struct space *s, const struct inputs *in, const struct hw *hw, const struct layout *l,
               const struct space_request *q, const struct space *like, struct notes *notes, struct err *e);
void space_done(struct space *s); /* accepts a zeroed one */

/* The layer that is worked out for this one, mostly itself: the first where all are equivalent; in a subsampled estimate its
 * representative. Layers with other types are of another kind, which has a representative of its own. */
int space_representative(const struct space *s, int layer);

/* The first variant of the same mix that is the same in this layer: it has the tables and residencies. */
int space_equivalent(const struct space *s, int variant, int layer);

/* One past the last variant of the mix that begins at `first`. */
int space_mix_end(const struct space *s, int first);

/* Does a variant look units of this layer up in a cold cache? In any layer? Any variant? */
int space_looks_up(const struct space *s, int variant, int layer);
int space_variant_looks_up(const struct space *s, int variant);
int space_looks_up_any(const struct space *s);

/* Can experts be read before their router has chosen, and is it known which ones that would be? */
int space_foresees(const struct space *s, enum plan_mode mode);

/* Is it known what a step looks up: by a window of activation maps, or in dense mode by routes? */
int space_has_lists(const struct inputs *in, enum plan_mode mode);

/* Do all layers of two spaces of one model have units of as many neurons in a part? */
int space_same_units(const struct space *a, const struct space *b, int part);

/* Bytes of the account that a variant's predictors of a layer take; and the least of any variant of a group. */
uint64_t space_predictor_bytes(const struct space *s, int variant, int layer);
uint64_t space_least_predictor_bytes(const struct space *s, const struct space_group *g, int layer);

#endif
