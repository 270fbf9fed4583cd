#ifndef COMMON_OFFLINE_TRACE_TRACE_INFO_H
#define COMMON_OFFLINE_TRACE_TRACE_INFO_H

/* What a trace says of itself (schemas/trace.md): model, corpus, batches, tensor table. Plain data, the same for reader and
 * writer. */
#include "common/base/hash.h"
#include "common/model/model.h"

#include <stdint.h>

#define TRACE_COLD_LEVELS 16 /* of trace_cold_loss */

#define TRACE_BATCH_SIZES 7 /* 1 2 3 4 8 16 32 */
#define TRACE_GROUP       32 /* sequences per group: batches never reach across groups */
extern const int trace_batch_sizes[TRACE_BATCH_SIZES];

enum trace_batch_kind {
    TRACE_BATCH_SEQUENCES,   /* tokens at the same position of different sequences: batched decode */
    TRACE_BATCH_CONSECUTIVE, /* consecutive tokens of one sequence: prefill, speculative decode */
    TRACE_BATCH_KINDS
};

struct trace_tensor {
    char *name;
    enum model_role role;
    int layer;               /* -1: per model */
    uint32_t type;
    int n_dims;
    uint64_t dims[4], bytes; /* unused dims are 1 */
    struct hash128 hash;
};

/* The whole corpus, of which a shard holds a part; and how it was made from the prompts. */
struct trace_corpus {
    char prompts[128];              /* file name without folders */
    struct hash128 prompts_hash;    /* of the file's bytes */
    char column[64];
    uint64_t n_ctx, max_tokens;     /* longest sequence; 0: no limit */
    struct hash128 hash;            /* of all sequences, see schemas/trace.md */
    uint64_t n_tokens, n_sequences;
    uint64_t window_wanted, window_sequences, window_tokens;
    uint64_t samples_wanted, n_samples;
};

struct trace_info {
    char *path;
    char tool[64], tier[32];        /* "thermo-profile 0.1.0", "avx512" */
    struct model_hparams h;
    struct hash128 model_hash;
    struct hash128 content_hash;    /* of the counts, maps, routing and token ids, group by group; adding predictors or
                                     * merging shards in any order does not depend on file layout */
    char pre[64];                   /* tokenizer.ggml.pre, where the file's own was not what cut words; else "" */
    uint64_t vocab_text_bytes, n_merges, meta_bytes; /* for the budget; see budget.h */
    uint64_t n_tokens, n_sequences;
    uint64_t window_sequences;      /* the first sequences of the file have activation maps: */
    uint64_t window_tokens;         /* its first tokens */
    uint64_t n_samples;             /* FFN input samples per layer */
    int act_q8;                     /* 1: int8 activations decided what fired, in matrices whose type has such products; 0: float32 */
    int foreseen;                   /* 1: layers have `foreseen`: the experts that routers choose one layer early */
    uint64_t n_batches[TRACE_BATCH_KINDS][TRACE_BATCH_SIZES];
    int shard, n_shards;            /* 0, 1 for a whole or merged trace */
    struct trace_corpus corpus;
    int n_tensors;
    struct trace_tensor *tensors;
};

/* FFN blocks a token uses: max(1, n_experts_used). */
static inline int trace_slots(const struct model_hparams *h)
{
    return h->n_experts > 0 ? h->n_experts_used : 1;
}

/* Bytes of one bit-packed row of neurons. */
static inline uint64_t trace_row_bytes(const struct model_hparams *h)
{
    return ((uint64_t)h->n_ff + 7) / 8;
}

/* First tensor of that role and layer, or NULL. */
const struct trace_tensor *trace_tensor_find(const struct trace_info *info, enum model_role role, int layer);

#endif
