#ifndef COMMON_BUDGET_H
#define COMMON_BUDGET_H

/* The account of every byte that the runtime may use, computed by this one module for planner and
 * runtime alike, so that they agree on it to the byte. The runtime takes its memory in the sizes
 * listed here and from nowhere else: what the account says is what it gets.
 *
 * Items that are facts of process and library (code, libc, malloc during start) are constants
 * measured with a margin, and the runtime's own tests hold them (VmHWM <= budget under a cgroup). */
#include "common/err.h"
#include "common/layout.h"
#include "common/model.h"

#include <stdint.h>

/* Facts of the model, the same whether they come from a trace's tensor table or from a pack. */
struct budget_model {
    struct model_hparams h;
    struct layout_shape shape;
    uint64_t dense_bytes;       /* sum of budget_dense_tensor() over the tensors that are not gate, up, down */
    uint64_t n_tensors;         /* entries in the pack's table: its tables are held in memory */
    uint64_t vocab_text_bytes, n_merges;
    uint64_t meta_bytes;        /* GGUF key-value section kept in the pack */
};

/* Choices of the plan (one memory limit) or of the runtime's command line. */
struct budget_choice {
    int context;                /* KV positions per sequence */
    int kv_f16;
    int max_batch;              /* sequences */
    int prefill_chunk;          /* tokens per forward pass, >= 1 */
    int threads;                /* compute workers, the main thread included */
    int io_lanes;               /* I/O threads */
    int queue_depth;            /* reads in flight: one staging buffer each */
    const uint32_t *hot;        /* [layer][block][part] neurons of the resident prefix, or NULL: all zero */
    const uint32_t *cold;       /* [layer][part] slots, or NULL: all zero */
};

enum budget_item {
    BUDGET_PROCESS,   /* code, libraries, libc, page tables, main stack */
    BUDGET_STACKS,    /* worker and I/O thread stacks */
    BUDGET_META,      /* tokenizer, hyper-parameters, tables of the pack, plan */
    BUDGET_DENSE,     /* attention, norms, embeddings, head, routers */
    BUDGET_PREDICTOR,
    BUDGET_KV,
    BUDGET_SCRATCH,   /* activations, logits, pipeline tables */
    BUDGET_STAGING,   /* read buffers */
    BUDGET_INDEX,     /* of hot and cold regions */
    BUDGET_HOT,
    BUDGET_COLD,
    BUDGET_ITEMS
};

struct budget {
    uint64_t item[BUDGET_ITEMS];
    uint64_t total;
    uint64_t floor;   /* total with no hot and no cold region: below it nothing runs */
};

const char *budget_item_name(enum budget_item i); /* "kv" */

/* Bytes that a dense tensor occupies in memory. */
uint64_t budget_dense_tensor(uint64_t bytes);

/* Bytes of a layer's hot prefix of n neurons in a part, and of one cold slot; both multiples of 64. */
uint64_t budget_hot_bytes(const struct layout_shape *s, int part, uint32_t neurons);
uint64_t budget_slot_bytes(const struct layout_shape *s, int part);

/* ERR_LIMIT when a sum overflows or a choice is out of range. */
int budget_compute(const struct budget_model *m, const struct budget_choice *c, struct budget *out, struct err *e);

#endif
