#ifndef COMMON_KERNELS_ACTS_H
#define COMMON_KERNELS_ACTS_H

/* Activations of the tokens of a pass in the forms that matrices ask for (enum kernels_act). f32 is given; the q8 form is made
 * from it when it is first asked for, into memory of the caller's. A copy of the struct made before that does not know of
 * it and makes it again. One thread at a time. */
#include "common/base/pool.h"
#include "common/kernels/kernels.h"

#include <stddef.h>

struct acts {
    const float *f32;       /* [n_tokens][n_cols] */
    int n_cols, n_tokens;
    int has_q8;             /* q8 holds them */
    void *q8;               /* [n_tokens] of kernels_act_bytes(KERNELS_ACT_Q8, n_cols); not NULL where that form is asked for */
};

/* In a matrix's form; *stride is what separates tokens, in bytes. pool: many tokens are divided among its workers, and the caller may run
 * jobs on it; NULL: the caller makes them all. */
const void *acts_in_form(struct acts *a, enum kernels_act form, struct pool *pool, size_t *stride);

#endif
