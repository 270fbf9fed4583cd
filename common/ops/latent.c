/* Multi-head latent attention, absorbed: one vector of head_dim elements a position, of which keys and values of all heads are made. */
#include "common/ops/ops.h"

#include "common/model/nn.h"

void latent_need(const struct model_hparams *h, struct op_need *out)
{
    out->q = (uint64_t)h->n_heads * (uint64_t)h->head_dim;
    out->attn = out->q + (uint64_t)model_out_dim(h);
    out->latent = (uint64_t)model_q_dim(h) + (uint64_t)h->q_rank;
    out->row = (uint64_t)h->head_dim;
    out->kv = out->row;
    out->planes = 1;
    out->heads = h->n_heads, out->head_dim = h->head_dim;
    out->rotates = 1;
    out->score_rows = (uint64_t)(h->n_heads < NN_ATTN_HEADS ? h->n_heads : NN_ATTN_HEADS);
}
