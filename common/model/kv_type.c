/* A row for each type of the KV cache. */
#include "common/model/kv_type.h"

const char *const kv_type_names[KV_TYPES + 1] = { [KV_F32] = "f32", [KV_F16] = "f16", [KV_Q8_0] = "q8_0", [KV_Q4_0] = "q4_0" };

static const uint32_t quants[KV_TYPES] = { [KV_F32] = QUANT_F32, [KV_F16] = QUANT_F16, [KV_Q8_0] = QUANT_Q8_0, [KV_Q4_0] = QUANT_Q4_0 };

const char *kv_type_name(int type)
{
    return (unsigned)type < KV_TYPES ? kv_type_names[type] : "?";
}

uint32_t kv_type_quant(int type)
{
    return quants[type];
}

int kv_type_block(int type)
{
    return quant_traits(quants[type])->block_elems;
}

uint64_t kv_type_bytes(int type, uint64_t elems)
{
    return quant_row_bytes(quants[type], elems);
}

double kv_type_width(int type)
{
    const struct quant_traits *q = quant_traits(quants[type]);
    return (double)q->block_bytes / q->block_elems;
}

static int whole(int type, const char *what, int n, struct err *e)
{
    int block = kv_type_block(type);
    return n % block == 0 ? 0 : err_set(e, ERR_USAGE, "a KV cache in %s has blocks of %d elements of a head; this model's %s of %d "
                                        "elements is not whole blocks: --kv f16", kv_type_names[type], block, what, n);
}

int kv_type_check(int type, const struct model_hparams *h, struct err *e)
{
    int r = whole(type, "attention head", h->head_dim, e);
    if (r == 0)
        r = whole(type, "attention head of layers with a window", h->head_dim_window, e);
    return r < 0 ? r : whole(type, "latent value", h->kv_rank, e);
}
