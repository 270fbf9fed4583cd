#ifndef COMMON_OFFLINE_TRACE_TRACE_PREDICT_IMPL_H
#define COMMON_OFFLINE_TRACE_TRACE_PREDICT_IMPL_H

/* The table of what predictors cost in quality, within the group of a trace that holds them. Internal to
 * trace_predict.c, which hands it out. */
#include "common/offline/trace/trace_h5.h"
#include "common/offline/trace/trace_predict.h"

/* Read it, in ascending order of input and target; *n is 0 when the trace holds none. corpus: of
 * TRACE_PREDICT_CORPUS bytes. losses: of a model of so many layers; their rows are the caller's, to free. ERR_FORMAT names what cannot
 * be. */
int trace_predict_quality_read(struct trace_h5_file *f, int n_layers, struct trace_predict_quality rows[TRACE_PREDICT_QUALITY], int *n,
                               char *corpus, struct trace_predict_losses *losses, struct err *e);

/* Put it in place of the one that is there; 0 rows remove it. */
int trace_predict_quality_write(struct trace_h5_file *f, const struct trace_predict_quality *rows, int n, const char *corpus,
                                const struct trace_predict_losses *losses, struct err *e);

#endif
