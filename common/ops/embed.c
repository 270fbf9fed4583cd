/* Embeddings: what each layer sees of its own is kept for all layers of a pass. */
#include "common/ops/layer_embd.h"
#include "common/ops/ops.h"

void embed_need(const struct model_hparams *h, int layer, struct op_need *out)
{
    (void)layer;
    out->layered = layer_embd_all(h);
}
