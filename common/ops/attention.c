/* Attention over a KV cache: queries, keys and values of heads. */
#include "common/ops/ops.h"

#include "common/model/nn.h"

void attention_need(const struct model_hparams *h, int layer, struct op_need *out)
{
    if (h->kv_rank) {
        latent_need(h, out);
        return;
    }
    out->q = out->attn = (uint64_t)h->n_heads * (uint64_t)h->head_dim;
    out->row = (uint64_t)h->n_kv_heads * (uint64_t)h->head_dim;
    out->kv = 2 * out->row;
    out->planes = 2;
    out->shares = model_kv_layer(h, layer) != layer;
    out->made = h->out_gate ? (uint64_t)model_q_dim(h) : 0; /* queries with gates */
    out->heads = h->n_heads, out->head_dim = h->head_dim;
    out->rotates = 1;
    int group = h->n_heads / h->n_kv_heads;
    out->score_rows = (uint64_t)(group < NN_ATTN_HEADS ? group : NN_ATTN_HEADS);
}
