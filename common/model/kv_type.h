#ifndef COMMON_MODEL_KV_TYPE_H
#define COMMON_MODEL_KV_TYPE_H

/* Types of keys and values in the KV cache. Blocks are along a head's dimension: each head of a position is whole blocks. */
#include "common/model/model.h"

enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_Q4_0, KV_TYPES };

extern const char *const kv_type_names[KV_TYPES + 1]; /* "f32" ..., then NULL: choices of an option */

const char *kv_type_name(int type);
uint32_t kv_type_quant(int type); /* QUANT_F16 */
int kv_type_block(int type);      /* elements of a block: 1 of numbers by themselves */

/* Bytes of so many elements, whole blocks; and of one, on average. */
uint64_t kv_type_bytes(int type, uint64_t elems);
double kv_type_width(int type);

/* ERR_USAGE where heads of a layer are no whole blocks of the type. */
int kv_type_check(int type, const struct model_hparams *h, struct err *e);

#endif
