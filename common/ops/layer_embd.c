/* Embeddings of each layer: rows are made to floats a few elements at a time. */
#include "common/ops/layer_embd.h"

#include "common/kernels/quant.h"
#include "common/model/nn.h"
#include "common/ops/ops.h"

#include <math.h>

void layer_embd_inputs(float *in, const uint8_t *row, uint32_t type, const float *norm, const struct model_hparams *h)
{
    enum { PIECE = 256 }; /* of every type's blocks a multiple */
    const float mixed = 1 / sqrtf((float)h->d_model), own = sqrtf((float)h->layer_embd), both = 1 / sqrtf(2);
    const size_t n = layer_embd_all(h);
    float piece[PIECE];
    for (size_t i = 0; i < n; i++)
        in[i] *= mixed;
    for (size_t at = 0; at < n; at += (size_t)h->layer_embd)
        nn_rmsnorm(in + at, in + at, norm, h->layer_embd, h->rms_eps);
    for (size_t at = 0; at < n; at += PIECE) {
        size_t len = n - at < PIECE ? n - at : PIECE;
        quant_traits(type)->dequant(piece, row + quant_row_bytes(type, at), len);
        for (size_t i = 0; i < len; i++)
            in[at + i] = (in[at + i] + piece[i] * own) * both;
    }
}

void layer_embd_gate(float *gate, const float *in, int layer, const struct model_hparams *h)
{
    nn_ffn_act(gate, gate, in + (size_t)model_block_of(h, layer) * (size_t)h->layer_embd, h->layer_embd, MODEL_ACT_GELU);
}

void layer_embd_need(const struct model_hparams *h, int layer, struct op_need *out)
{
    (void)layer;
    out->made = (uint64_t)h->layer_embd;
}
