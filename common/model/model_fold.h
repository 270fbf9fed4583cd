#ifndef COMMON_MODEL_MODEL_FOLD_H
#define COMMON_MODEL_MODEL_FOLD_H

/* Folded weights: a file may hold a matrix W of n inputs as W S H, with S a diagonal of signs and H the normalised Walsh-Hadamard transform
 * of each `block` inputs that follow each other. It is multiplied with H S x, which gives W x; a row of a folded table of embeddings z
 * stands for S H z. H is symmetric and its own inverse: H[i][j] = (-1)^popcount(i & j) / sqrt(block). Which tensors are folded, the block
 * and the signs of each width are in the file's keys "prism.hadamard.*" (PrismML's Bonsai 2), whatever the tensors' types; a file with keys
 * of that kind that are not known here is refused. The transform itself: common/ops/fold.h. */
#include "common/model/gguf.h"
#include "common/model/hparams.h"

#include <stdint.h>

struct model_fold {
    int block;                   /* of inputs; 0: not folded */
    const uint8_t *signs;        /* i32[inputs], little-endian, -1 or 1; NULL: all are 1. The gguf's */
};

/* A key that says something of folds, and whether it is known. */
int model_fold_is_key(const char *name);
int model_fold_knows(const char *name);

/* Checks the keys, and that the tensors that they name are there and can be folded: h->fold, h->fold_grouped. layers: of the file that
 * mixes and FFNs may be folded in. ERR_FORMAT or ERR_UNSUPPORTED names the key and the value. */
int model_fold_read(const struct gguf *g, int layers, struct model_hparams *h, struct err *e);

/* How a tensor of rows of `inputs` elements is folded, by its name in the file. ERR_FORMAT: the block does not divide them, or there are no
 * signs for so many. */
int model_fold_of(const struct gguf *g, const char *tensor, uint64_t inputs, struct model_fold *out, struct err *e);

#endif
