#ifndef OFFLINE_TRACE_H
#define OFFLINE_TRACE_H

/* Activation traces (HDF5; schemas/trace.md): what a model's FFNs did over a corpus, and the model's
 * tensor table, so that planner and packer need no second look at the model. trace.c and its
 * siblings trace_*.c are the only users of hdf5.h. One thread at a time per object. */
#include "common/err.h"
#include "common/hash.h"
#include "common/model.h"

#include <stdint.h>

#define TRACE_BATCH_SIZES 7 /* 1 2 3 4 8 16 32 */
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
    uint64_t dims[4], bytes;
    struct hash128 hash;
};

struct trace_info {
    char *path;
    char tool[64], tier[32];        /* "thermo-profile 0.1.0", "avx512" */
    struct model_hparams h;
    struct hash128 model_hash;
    struct hash128 content_hash;    /* of the counts, maps, routing and token ids, group by group; adding predictors or
                                     * merging shards in any order does not depend on file layout */
    uint64_t vocab_text_bytes, n_merges, meta_bytes; /* for the budget; see budget.h */
    uint64_t n_tokens, n_sequences;
    uint64_t window_tokens;         /* tokens with bit-packed activation maps */
    uint64_t n_samples;             /* FFN input samples per layer */
    int shard, n_shards;            /* 0, 1 for a whole or merged trace */
    int complete;                   /* 0: interrupted; can be resumed */
    int n_tensors;
    struct trace_tensor *tensors;
};

struct trace;

int trace_open(const char *path, struct trace **out, struct err *e);  /* read-only; refuses incomplete ones (ERR_INPUT, says how to resume) */
void trace_close(struct trace *t);
const struct trace_info *trace_info(const struct trace *t);

/* Firings of every neuron of (layer, block) over all tokens. counts: [n_ff]. *n_tokens (may be NULL): tokens that
 * were routed to this block (all of them when dense). */
int trace_counts(struct trace *t, int layer, int block, uint64_t *counts, uint64_t *n_tokens, struct err *e);

/* Batches of trace_batch_sizes[size_index] in which at least one token fired the neuron. *n_batches: how many batches. */
int trace_batch_counts(struct trace *t, enum trace_batch_kind kind, int size_index, int layer, int block,
                       uint64_t *counts, uint64_t *n_batches, struct err *e);

/* Activation maps of the window's tokens [first, first+n): bit i%8 of byte i/8 is neuron i (original index).
 * maps: [n][k][(n_ff+7)/8] where k = max(1, n_experts_used); blocks: [n][k] which expert (all 0 when dense; may be NULL then).
 * The window is whole sequences in corpus order; trace_sequence_starts tells where they begin. */
int trace_maps(struct trace *t, int layer, uint64_t first, uint64_t n, uint8_t *maps, uint16_t *blocks, struct err *e);

/* Fill what budget.h needs from the trace alone (shape from `layout`). */
struct budget_model;
struct layout;
int trace_budget_model(const struct trace *t, const struct layout *l, struct budget_model *out, struct err *e);

/* All orders, [layer][block][n_ff] (layout_order of batch-1 counts), malloc'd, and their hash. */
int trace_orders(struct trace *t, uint32_t **orders, struct hash128 *order_hash, struct err *e);

#endif
