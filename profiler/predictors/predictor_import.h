#ifndef PROFILER_PREDICTORS_PREDICTOR_IMPORT_H
#define PROFILER_PREDICTORS_PREDICTOR_IMPORT_H

/* Predictors that a PowerInfer GGUF brings along (blk.N.fc1, blk.N.fc2: score = fc2 relu(fc1 x), x the residual before
 * ffn_norm, active above powerinfer.sparse_threshold) into a trace. Weights are kept as they are; what they do is
 * measured on the trace's samples, all of which are new to them. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/model/model.h"
#include "common/offline/trace/trace_predict.h"

#include <stdint.h>

/* Does the model have any? */
int predictor_import_there(const struct model *m);

/* Write trace_path once more with them, in place of those it holds, to `out`, whole or not at all (out may be
 * trace_path). The operating point of each is the file's threshold, 0 where it does not say. recall: what
 * trace_predict_info records as asked for. samples: 0 all, else that many at most. ERR_INPUT when the model has none, or
 * not in all layers, or the trace too few samples; ERR_MISMATCH when the weights are not those that were traced. */
int predictor_import(const char *trace_path, const char *out, struct trace *t, const struct model *m, double recall,
                     uint64_t samples, const char *tier, struct pool *pool, struct err *e);

#endif
