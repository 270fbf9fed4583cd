#ifndef COMMON_OPS_FOLD_H
#define COMMON_OPS_FOLD_H

/* The transform of folded weights (common/model/model_fold.h): S, a sign for each input, and H, the normalised Walsh-Hadamard transform in
 * Sylvester's order of each fold.block inputs. Sums have the order of the butterflies, whoever makes them. Thread-safe; cannot fail. */
#include "common/base/pool.h"
#include "common/model/model_fold.h"

#include <stddef.h>

/* x = H S x, what a folded matrix is multiplied with; x: inputs [at, at + n), whole blocks. */
void fold_apply(const struct model_fold *f, float *x, size_t at, size_t n);

/* x = S H x: a row of a folded table as it is meant. */
void fold_undo(const struct model_fold *f, float *x, size_t n);

/* fold_apply of n_tokens inputs of n each, divided among the pool's workers. */
void fold_tokens(const struct model_fold *f, struct pool *pool, float *x, size_t n, int n_tokens);

#endif
