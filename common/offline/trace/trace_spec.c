/* What is in a trace, without HDF5: the table of datasets, their shapes, and the definition of the
 * content hash. Every dataset is hashed as its elements in row-major order, little-endian, so that
 * neither chunking, compression nor the order of writing matters. */
#include "common/offline/trace/trace_spec.h"

#include "common/base/version.h"

#include <stdio.h>
#include <stdlib.h>

const int trace_batch_sizes[TRACE_BATCH_SIZES] = { 1, 2, 3, 4, 8, 16, 32 };

const struct trace_set_spec trace_set_specs[TRACE_SETS] = {
    [TRACE_SET_TOKENS]        = { "tokens", TRACE_PART_CORPUS, TRACE_U32, 1 },
    [TRACE_SET_STARTS]        = { "sequence_starts", TRACE_PART_CORPUS, TRACE_U64, 1 },
    [TRACE_SET_INDEX]         = { "sequence_index", TRACE_PART_CORPUS, TRACE_U64, 1 },
    [TRACE_SET_ROWS]          = { "sequence_rows", TRACE_PART_CORPUS, TRACE_U32, 0 },
    [TRACE_SET_SAMPLE_TOKENS] = { "sample_tokens", TRACE_PART_CORPUS, TRACE_U64, 0 },
    [TRACE_SET_SIZES]         = { "sizes", TRACE_PART_BATCHES, TRACE_U32, 1 },
    [TRACE_SET_N_BATCHES]     = { "n_batches", TRACE_PART_BATCHES, TRACE_U64, 1 },
    [TRACE_SET_COUNTS]        = { "counts", TRACE_PART_LAYER, TRACE_U64, 1 },
    [TRACE_SET_GATE_COUNTS]   = { "gate_counts", TRACE_PART_LAYER, TRACE_U64, 1 },
    [TRACE_SET_BATCH_SEQ]     = { "batch_sequences", TRACE_PART_LAYER, TRACE_U64, 1 },
    [TRACE_SET_BATCH_CONS]    = { "batch_consecutive", TRACE_PART_LAYER, TRACE_U64, 1 },
    [TRACE_SET_ROUTED]        = { "routed", TRACE_PART_LAYER, TRACE_U64, 1 },
    [TRACE_SET_ROUTED_SEQ]    = { "routed_sequences", TRACE_PART_LAYER, TRACE_U64, 1 },
    [TRACE_SET_ROUTED_CONS]   = { "routed_consecutive", TRACE_PART_LAYER, TRACE_U64, 1 },
    [TRACE_SET_MAPS]          = { "maps", TRACE_PART_LAYER, TRACE_U8, 1 },
    [TRACE_SET_ROUTING]       = { "routing", TRACE_PART_LAYER, TRACE_U16, 1 },
    [TRACE_SET_BLOCK_INPUT]   = { "block_input", TRACE_PART_LAYER, TRACE_F16, 0 },
    [TRACE_SET_FFN_INPUT]     = { "ffn_input", TRACE_PART_LAYER, TRACE_F16, 0 },
    [TRACE_SET_FFN_RMS]       = { "ffn_rms", TRACE_PART_LAYER, TRACE_F32, 0 },
    [TRACE_SET_GATE_SIGNS]    = { "gate_signs", TRACE_PART_LAYER, TRACE_U8, 0 },
    [TRACE_SET_THRESHOLDS]    = { "thresholds", TRACE_PART_LAYER, TRACE_F32, 1 },
    [TRACE_SET_COLD]          = { "cold", TRACE_PART_LAYER, TRACE_F32, 1 },
    [TRACE_SET_FORESEEN]      = { "foreseen", TRACE_PART_LAYER, TRACE_U16, 0 },
};

size_t trace_type_bytes(enum trace_type t)
{
    static const size_t bytes[TRACE_TYPES] = { 1, 2, 4, 8, 2, 4, 0 };
    return bytes[t];
}

void trace_part_path(enum trace_part part, int layer, char out[32])
{
    if (part == TRACE_PART_LAYER)
        snprintf(out, 32, "/layers/%04d", layer);
    else
        snprintf(out, 32, "%s", part == TRACE_PART_CORPUS ? "/corpus" : "/batches");
}

int trace_set_dims(const struct trace_info *info, enum trace_set s, uint64_t dims[3], uint64_t *row_bytes)
{
    const struct model_hparams *h = &info->h;
    uint64_t blocks = (uint64_t)model_ffn_blocks(h), n_ff = (uint64_t)h->n_ff;
    uint64_t k = (uint64_t)trace_slots(h), bits = trace_row_bytes(h);
    uint64_t d[3] = { 0, 1, 1 };
    int n = 1;
    switch (s) {
    case TRACE_SET_TOKENS: d[0] = info->n_tokens; break;
    case TRACE_SET_STARTS: d[0] = info->n_sequences + 1; break;
    case TRACE_SET_INDEX:
    case TRACE_SET_ROWS: d[0] = info->n_sequences; break;
    case TRACE_SET_SAMPLE_TOKENS:
    case TRACE_SET_FFN_RMS: d[0] = info->n_samples; break;
    case TRACE_SET_SIZES: d[0] = TRACE_BATCH_SIZES; break;
    case TRACE_SET_N_BATCHES: d[0] = TRACE_BATCH_KINDS, d[1] = TRACE_BATCH_SIZES, n = 2; break;
    case TRACE_SET_COUNTS:
    case TRACE_SET_GATE_COUNTS: d[0] = blocks, d[1] = n_ff, n = 2; break;
    case TRACE_SET_BATCH_SEQ:
    case TRACE_SET_BATCH_CONS: d[0] = TRACE_BATCH_SIZES, d[1] = blocks, d[2] = n_ff, n = 3; break;
    case TRACE_SET_ROUTED: d[0] = blocks; break;
    case TRACE_SET_ROUTED_SEQ:
    case TRACE_SET_ROUTED_CONS: d[0] = TRACE_BATCH_SIZES, d[1] = blocks, n = 2; break;
    case TRACE_SET_MAPS: d[0] = info->window_tokens, d[1] = k, d[2] = bits, n = 3; break;
    case TRACE_SET_ROUTING: d[0] = h->n_experts > 0 ? info->n_tokens : 0, d[1] = k, n = 2; break;
    case TRACE_SET_BLOCK_INPUT:
    case TRACE_SET_FFN_INPUT: d[0] = info->n_samples, d[1] = (uint64_t)h->d_model, n = 2; break;
    case TRACE_SET_GATE_SIGNS: d[0] = info->n_samples, d[1] = k, d[2] = bits, n = 3; break;
    case TRACE_SET_THRESHOLDS: d[0] = h->thresholds || h->cold_thresholds ? n_ff : 0; break;
    case TRACE_SET_COLD: d[0] = h->cold_thresholds ? n_ff : 0, d[1] = 2, d[2] = TRACE_COLD_LEVELS, n = 3; break;
    case TRACE_SET_FORESEEN: d[0] = info->foreseen ? info->n_tokens : 0, d[1] = k, n = 2; break;
    case TRACE_SETS: break;
    }
    for (int i = 0; i < 3; i++)
        dims[i] = d[i];
    *row_bytes = d[1] * d[2] * trace_type_bytes(trace_set_specs[s].type);
    return d[0] ? n : 0;
}

struct hash128 trace_part_hash(const struct trace_info *info, enum trace_part part, const struct hash128 *set_hash)
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    for (int s = 0; s < TRACE_SETS; s++) {
        uint64_t dims[3], row;
        int n = trace_set_dims(info, s, dims, &row);
        if (trace_set_specs[s].part != part || !trace_set_specs[s].hashed || !n)
            continue;
        hash_update_str(h, trace_set_specs[s].name);
        hash_update_u32(h, (uint32_t)n);
        for (int i = 0; i < n; i++)
            hash_update_u64(h, dims[i]);
        hash_update_u64(h, set_hash[s].lo);
        hash_update_u64(h, set_hash[s].hi);
    }
    return hash_final128(h);
}

static void add_part(struct hash *h, enum trace_part part, int layer, struct hash128 v)
{
    char path[32];
    trace_part_path(part, layer, path);
    hash_update_str(h, path);
    hash_update_u64(h, v.lo);
    hash_update_u64(h, v.hi);
}

struct hash128 trace_content_hash(const struct trace_info *info, struct hash128 corpus, struct hash128 batches,
                                  const struct hash128 *layers)
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    hash_update_str(h, TRACE_FORMAT);
    hash_update_u32(h, TRACE_REVISION);
    hash_update_u64(h, info->model_hash.lo);
    hash_update_u64(h, info->model_hash.hi);
    hash_update_str(h, model_act_name(info->h.act));
    hash_update_u32(h, (uint32_t)info->h.n_layers + 2);
    add_part(h, TRACE_PART_CORPUS, 0, corpus);
    add_part(h, TRACE_PART_BATCHES, 0, batches);
    for (int l = 0; l < info->h.n_layers; l++)
        add_part(h, TRACE_PART_LAYER, l, layers[l]);
    return hash_final128(h);
}

const char *trace_rope_name(enum model_rope r)
{
    return r == MODEL_ROPE_NEOX ? "neox" : "norm";
}
