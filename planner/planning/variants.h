#ifndef PLANNER_PLANNING_VARIANTS_H
#define PLANNER_PLANNING_VARIANTS_H

/* The variants that a request allows under a layout: its modes, and in predicted mode which predictor each layer
 * uses and which neurons it leaves out. */
#include "planner/planning/request.h"
#include "planner/search/problem.h"

struct variants {
    int n;
    struct space_variant variant[SPACE_MAX_VARIANTS];
    signed char *input;         /* behind them: [SPACE_MAX_VARIANTS][n_layers] */
    uint32_t *always;
};

/* ERR_USAGE, ERR_UNSUPPORTED when the request asks for what the model or its trace does not allow. n may be 0: the
 * request has nothing to try with this layout. */
int variants_new(const struct request *q, const struct inputs *in, const struct layout *l, struct variants *out,
             struct err *e);
void variants_done(struct variants *w); /* accepts a zeroed one */

/* As a plan's text has it, so that check finds the same operating points. */
double variants_six_digits(double v);

/* The row of the quality table that holds for a target recall: the largest target that is not above it; NULL: none. */
const struct inputs_quality *variants_quality(const struct inputs *in, int input, double recall);

/* What is promised of a plan whose layers see any of these inputs, all at one recall: the sum of what each costs when all
 * layers use it (mean KL). That holds as far as what layers do to the logits adds up, the share of any set of layers
 * being at most the whole: docs/predictors.md. INFINITY: not measured. */
double variants_mixed_kl(const struct inputs *in, const int *inputs, int n, double recall);

/* What the FFNs take in a pack with this layout. */
uint64_t variants_file_bytes(const struct inputs *in, const struct layout *l);

/* Layouts worth comparing for a request; at most VARIANTS_LAYOUTS. */
#define VARIANTS_LAYOUTS LAYOUTS_MOST
#define VARIANTS_RECALL  0.99 /* where neither request nor predictors say one */
int variants_layouts(const struct request *q, const struct inputs *in, struct layout out[VARIANTS_LAYOUTS], int *n,
                 struct err *e);

#endif
