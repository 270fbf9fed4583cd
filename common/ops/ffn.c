/* The FFN, experts, a shared expert, layers before the experts'. Neurons and what they need are the pipeline's: batch, chunk and reads
 * decide it (common/plan/budget.h), not the layer. */
#include "common/ops/ops.h"

void ffn_need(const struct model_hparams *h, int layer, struct op_need *out)
{
    out->shared = 2 * (uint64_t)(model_is_lead(h, layer) ? h->n_ff_lead : h->n_ff_shared);
}
