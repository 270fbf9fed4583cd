#ifndef PROFILER_TRACE_COLD_H
#define PROFILER_TRACE_COLD_H

/* Thresholds for neurons of a gated FFN with ReLU that are not in memory. A neuron that fires adds g u times its column of Down to the
 * output; the gate g is known before Up and Down are read. Leaving it out is taken to cost
 *
 *   g^2 E[u^2 | it fires] |down|^2 c  nats,   c: nats per energy of the layer
 *
 * so it is below a bound b where g < sqrt(b) t, with t = 1 / sqrt(E[u^2 | it fires] |down|^2 c). c is measured: each of up to eight groups
 * of layers in turn leaves out the firings of least energy, and the divergence of the output is divided by the energy that it lost.
 * One bound then is the same price for every neuron of the model. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/model/model.h"
#include "profiler/trace/corpus.h"

#include <stdint.h>

/* Tokens on which c is measured at most. */
#define COLD_QUALITY_TOKENS 1024

struct cold {
    float *thresholds; /* [n_layers][n_ff], 0 beyond a narrow layer's */
    float *curves;     /* [n_layers][n_ff][2][TRACE_COLD_LEVELS]: as trace_cold gives them */
};

/* The model, which has no thresholds, runs densely: twice over c, and side by side over `few`, of which the divergence is measured.
 * ERR_UNSUPPORTED where its neurons can have none (model.h). Memory: a dense pass and 8 bytes for each token of c and neuron of a layer. */
int cold_new(const struct model *m, const struct corpus *c, const struct corpus *few, struct pool *pool, struct cold *out,
             struct err *e);
void cold_done(struct cold *c); /* accepts a zeroed one */

#endif
