#ifndef PROFILER_PREDICTORS_PREDICTOR_IMPL_H
#define PROFILER_PREDICTORS_PREDICTOR_IMPL_H

/* What predictor_base.c and predictor_columns.c make and predictor_start reads. */
#include "profiler/predictors/predictor.h"

enum { PREDICTOR_COLUMNS = 32 }; /* inputs that are chosen together: a block of the quantised types */

struct predictor_base {
    int d, n_ff, max_rank;
    float *mean_x;         /* [d] */
    float *scale_x;        /* [d] 1 / standard deviation */
    float *fc1;            /* [max_rank][d] V^T L^-1, or the chosen inputs; on x */
    float *fc2;            /* [n_ff][max_rank] W B V, or the gates' columns */
    float *mean_z;         /* [n_ff] of the scaled gates */
    const float *edges;    /* [n_ff][PREDICTOR_EDGES] of the scaled gates, the caller's; NULL: without */
    int selects;             /* a row of fc1 has one number that is not 0 */
    float *left;           /* [max_rank / PREDICTOR_COLUMNS][n_ff] standard deviation of what so many columns do not
                            * explain; NULL: what fc2 leaves of 1 */
};

#endif
