#ifndef PLANNER_PLANNING_PLANNING_QUALITY_H
#define PLANNER_PLANNING_PLANNING_QUALITY_H

/* A budget of quality (docs/predictors.md). What is in memory is computed, and of what is not each layer's predictors leave out
 * neurons whose loss is known: energy by recall and part of the order, and nats per energy. The budget is spent where a nat saves
 * most reads: one price of a nat for all layers. */
#include "planner/planning/request.h"
#include "planner/search/problem.h"

/* Losses of layers that see these inputs and always compute so many first neurons, at these recalls (NULL: one in all): mean KL
 * against exact mode, held against the quality table. NAN: not measured. */
double planning_quality_kl(const struct inputs *in, const signed char *input, const uint32_t *always, double recall, const double *recalls);

/* Recalls by layer that keep the divergence below most_kl and read least, 1 of layers that predict nothing; held: [n_layers] first
 * neurons that are in memory, cached ones too. 1: recalls[n_layers] are filled; 0: no choice keeps it, or losses were not measured.
 * ERR_NOMEM, or as predicted_new. */
int planning_quality_recalls(const struct inputs *in, const struct layout_shapes *s, const signed char *input, const uint32_t *always,
                             const uint32_t *held, double most_kl, double *recalls, struct err *e);

#endif
