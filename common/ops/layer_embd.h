#ifndef COMMON_OPS_LAYER_EMBD_H
#define COMMON_OPS_LAYER_EMBD_H

/* Embeddings of each layer (Gemma 3n and 4 E): a token has layer_embd elements for each of the file's blocks, a row of one table, mixed
 * with as many that follow from its embedding x:
 *
 *   in_l = (sqrt(layer_embd) row_l + norm(mix_l . x / sqrt(d_model))) / sqrt(2)
 *
 * After its FFN a layer adds norm(out . (gelu(gate . x) in_l)) to the residual. Thread-safe; cannot fail. */
#include "common/model/hparams.h"

#include <stddef.h>
#include <stdint.h>

/* Elements of all blocks. */
static inline size_t layer_embd_all(const struct model_hparams *h)
{
    return (size_t)h->layer_embd * (size_t)model_depth(h);
}

/* in = what blocks see of a token: at first mix . x of all blocks, f32[layer_embd_all]; row: the table's, of a type; norm:
 * f32[layer_embd]. */
void layer_embd_inputs(float *in, const uint8_t *row, uint32_t type, const float *norm, const struct model_hparams *h);

/* gate = gelu(gate) in_l of a layer, f32[layer_embd]; in: of all blocks. */
void layer_embd_gate(float *gate, const float *in, int layer, const struct model_hparams *h);

#endif
