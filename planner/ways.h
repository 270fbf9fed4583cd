#ifndef PLANNER_WAYS_H
#define PLANNER_WAYS_H

/* The ways to run that a request allows under a layout: its modes, and in predicted mode which predictor each layer
 * uses and which neurons it leaves out. */
#include "planner/planning.h"

struct ways {
    int n;
    struct problem_way way[PROBLEM_MAX_WAYS];
    signed char *input;         /* behind them: [PROBLEM_MAX_WAYS][n_layers] */
    uint32_t *exempt;
};

/* ERR_USAGE, ERR_UNSUPPORTED when the request asks for what the model or its trace does not allow. n may be 0: the
 * request has nothing to try with this layout. */
int ways_new(const struct planning_request *q, const struct inputs *in, const struct layout *l, struct ways *out,
             struct err *e);
void ways_done(struct ways *w); /* accepts a zeroed one */

/* The row of the quality table that speaks for a target recall: the largest target that is not above it; NULL: none. */
const struct inputs_quality *ways_quality(const struct inputs *in, int input, double recall);

/* What is promised of a plan whose layers see any of these inputs, all at one recall: the sum of what each costs when all
 * layers use it (mean KL). That holds as far as what layers do to the logits adds up, the share of any set of layers
 * being at most the whole: docs/predictors.md. INFINITY: not measured. */
double ways_mixed_kl(const struct inputs *in, const int *inputs, int n, double recall);

/* What the FFNs take in a pack with this layout. */
uint64_t ways_file_bytes(const struct inputs *in, const struct layout *l);

/* Layouts worth comparing for a request; at most WAYS_LAYOUTS. */
#define WAYS_LAYOUTS 8
#define WAYS_RECALL  0.99 /* where neither request nor predictors say one */
int ways_layouts(const struct planning_request *q, const struct inputs *in, struct layout out[WAYS_LAYOUTS], int *n,
                 struct err *e);

#endif
