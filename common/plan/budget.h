#ifndef COMMON_PLAN_BUDGET_H
#define COMMON_PLAN_BUDGET_H

/* The account of every byte that the runtime may use, computed by this one module for planner and
 * runtime alike, so that they agree on it to the byte. The runtime takes its memory in the sizes
 * listed here and from nowhere else: what the account says is what it gets.
 *
 * Items that are facts of process and library (code, libc, malloc during start) are constants
 * measured with a margin, and the runtime's own tests hold them (VmHWM <= budget under a cgroup). */
#include "common/base/err.h"
#include "common/model/kv_type.h"
#include "common/model/model.h"
#include "common/model/predict.h"
#include "common/plan/layout.h"
#include "common/plan/schedule.h"

#include <stdint.h>

/* A table of which a token needs a row and no more: it stays in memory, or its rows are read when tokens are known. */
#define BUDGET_TABLES 2
struct budget_table {
    enum model_role role;
    uint64_t rows, row_bytes;
};

/* Facts of the model, the same whether they come from a trace's tensor table or from a pack. */
struct budget_model {
    struct model_hparams h;
    struct layout_shapes shapes;
    uint64_t dense_bytes;       /* sum of budget_dense_tensor() over the tensors that are not gate, up, down */
    int n_tables;               /* of these tensors */
    struct budget_table table[BUDGET_TABLES];
    uint64_t n_tensors;         /* entries in the pack's table: its tables are held in memory */
    uint64_t vocab_text_bytes, n_merges;
    uint64_t meta_bytes;        /* GGUF key-value section kept in the pack */
};

/* Predicted mode: facts of the predictors in use. Those that do not stay in memory are read from the pack, piece by piece,
 * whenever they are used, through buffers that all of them share. */
struct budget_predictors {
    int rank;                   /* the largest; 0: there is no predictor, and no scratch for one */
    uint64_t bytes;             /* sum of budget_dense_tensor() over all of them */
    uint64_t buffer_bytes;      /* holds any piece */
    uint32_t least, most;       /* buffers: without which none can be streamed; that hold the largest whole */
    uint32_t n, ranges;         /* predictors; ranges of neurons of one, at most */
};

/* An accelerator beside the processor: what its driver takes of the process's memory, and of which it needs buffers for every pass. */
struct budget_engine {
    int on;                     /* 0: there is none, and nothing below counts */
    uint64_t driver_bytes;
    int shares_memory;          /* all of its buffers are in the processor's memory, not those of outputs alone */
    uint64_t widest, rows, head; /* of products other than FFNs': longest input; rows of a layer's, and of the head, that it makes; or 0 */
};

/* Choices of the plan (one memory limit) or of the runtime's command line. */
struct budget_choice {
    int context;                /* KV positions per sequence */
    int kv_type;                /* enum kv_type */
    int max_batch;              /* sequences */
    int kv_positions;           /* of the KV cache, for all sequences; 0: context of each */
    int prefill_chunk;          /* tokens per forward pass, >= 1 */
    int threads;                /* compute workers, the main thread included */
    int io_lanes;               /* I/O threads */
    int queue_depth;            /* reads in flight: one staging buffer each */
    uint32_t read_bytes;        /* of the longest read through gaps (plan_read_bytes); 0: there is none */
    struct budget_predictors predictors; /* predicted mode: those in use; else all 0 */
    uint64_t predictor_bytes;   /* sum of budget_dense_tensor() over those of them that stay in memory */
    uint32_t predictor_buffers; /* read buffers for the others, which are streamed; 0: there are none */
    uint64_t area_bytes;        /* of the rest of FFNs, that an accelerator computes in large passes (rest.h); 0: there is none */
    int stream_tables;          /* 1: tables that are larger than what reading their rows takes are not in memory */
    uint64_t room_bytes;        /* of plans: what chat or serve takes beside the model (room.h); the runtime takes it off its limit */
    struct budget_engine engine; /* of plans; the runtime looks at the open device instead */
    const uint32_t *hot;        /* [layer][block][part] neurons of the resident prefix, or NULL: all zero */
    const uint32_t *cold;       /* [layer][part] slots, or NULL: all zero */
};

/* Floats of inputs and outputs that products other than FFNs' have at a time, at most, in passes of so many tokens: of a call. */
static inline void budget_engine_products(int tokens, uint64_t widest, uint64_t rows, uint64_t head, uint64_t *inputs, uint64_t *outputs)
{
    uint64_t many = tokens < SCHEDULE_ENGINE_TOKENS ? (uint64_t)tokens : SCHEDULE_ENGINE_TOKENS;
    uint64_t few = tokens < SCHEDULE_ENGINE_FEW ? (uint64_t)tokens : SCHEDULE_ENGINE_FEW;
    *inputs = (rows ? many : head ? few : 0) * widest;
    *outputs = many * rows > few * head ? many * rows : few * head;
}

/* Every item is a multiple of 64 bytes. HOT and COLD are exact sums of budget_hot_bytes() and budget_slot_bytes(), so
 * the account is linear in them; CHECKS and INDEX are sums over layers too, so the account is additive over layers. */
enum budget_item {
    BUDGET_PROCESS,   /* code, libraries, libc, main stack, kernel memory; page tables of what is below */
    BUDGET_STACKS,    /* worker and I/O thread stacks */
    BUDGET_META,      /* tokenizer, hyper-parameters, tables of the pack, plan */
    BUDGET_ENGINE,    /* an accelerator's driver and buffers */
    BUDGET_ROOM,      /* kept for what runs by the plan */
    BUDGET_DENSE,     /* attention, norms, embeddings, head, routers, shared experts */
    BUDGET_PREDICTOR, /* predicted mode: predictors that stay in memory */
    BUDGET_KV,        /* K and V, and the tables of their pages */
    BUDGET_SCRATCH,   /* activations, logits, pipeline tables */
    BUDGET_STAGING,   /* read buffers; the area of FFNs' rest */
    BUDGET_CHECKS,    /* checksums of the units that are not resident */
    BUDGET_INDEX,     /* of hot and cold regions, and their page tables */
    BUDGET_HOT,
    BUDGET_COLD,
    BUDGET_ITEMS
};

struct budget {
    uint64_t item[BUDGET_ITEMS];
    uint64_t tables;  /* of BUDGET_INDEX: page tables of the regions, which the kernel holds and an arena must not */
    uint64_t total;
    uint64_t floor;   /* total with no hot and no cold region, predictors streamed, and tables: below it nothing runs */
};

const char *budget_item_name(enum budget_item i); /* "kv" */

/* Bytes that a dense tensor occupies in memory. */
uint64_t budget_dense_tensor(uint64_t bytes);

/* Take one into account, after m->h; rows: of so many bytes together; by_row: its bytes are stored so that a row can be read. -1: the sum
 * overflows. */
int budget_add_dense(struct budget_model *m, enum model_role role, uint64_t bytes, uint64_t rows, int by_row);

/* Rows of a table are read into as many buffers of budget_row_buffer() bytes, which hold whole blocks, and have a checksum each. What that
 * takes of BUDGET_DENSE, and of BUDGET_STACKS for all tables; whether the table is not in memory by this choice. */
#define BUDGET_ROW_BUFFERS 32
#define BUDGET_ROW_LANES   4
uint64_t budget_block_bytes(const struct layout_shapes *s);
uint64_t budget_row_buffer(const struct layout_shapes *s, uint64_t row_bytes);
uint64_t budget_table_stream(const struct budget_model *m, const struct budget_table *t);
int budget_streams(const struct budget_model *m, const struct budget_choice *c, const struct budget_table *t);

/* Page tables of that many bytes; never more for a sum than for its terms. */
uint64_t budget_table_bytes(uint64_t bytes);

/* Bytes of a layer's hot prefix of n neurons in a part, and of one cold slot; both multiples of 64. Slots of tiles that are padded are
 * whole blocks, as reads are: at 4096 bytes 1 % more at most for one of 400 KiB. */
uint64_t budget_hot_bytes(const struct layout_shape *s, int part, uint32_t neurons);
uint64_t budget_slot_bytes(const struct layout_shape *s, int part);

/* Are slots and units of a part whole blocks? Then a unit that is read alone is read into its slot, and not copied. */
int budget_reads_into_slots(const struct layout_shape *s, int part);

/* Bytes of the checksums of the units of a part of a block beyond its hot prefix of n neurons. */
uint64_t budget_check_bytes(const struct layout_shape *s, int part, uint32_t neurons);

/* Bytes of one staging buffer: the largest read of any part of any layer and room to coalesce neighbours; a multiple of 4096
 * and of the layout's block. */
uint64_t budget_staging_bytes(const struct layout_shape *s);

/* The same where reads go through gaps: no less than read_bytes. */
uint64_t budget_read_bytes(const struct layout_shape *s, uint32_t read_bytes);

/* Take a predictor into account: rank, bytes of its section, of a row of fc1 and of fc2. */
void budget_add_predictor(struct budget_predictors *p, const struct layout_shape *s, int rank, uint64_t bytes, uint64_t row1,
                          uint64_t row2, int two_sided);

/* Bytes of the checksums of one predictor's rows of fc1 and ranges of neurons. */
uint64_t budget_predictor_check_bytes(const struct budget_predictors *p);

/* Bytes of the buffers that streamed predictors are read into, then their state, then the checksums of all predictors. Part
 * of BUDGET_STAGING, after the queue_depth buffers and the area of FFNs' rest; 0 without buffers. */
uint64_t budget_stream_bytes(const struct budget_predictors *p, uint32_t buffers);

/* What BUDGET_SCRATCH is made of; the runtime takes its arrays in these sizes, each a multiple of 64. Experts of a layer
 * run several at a time: as many as a token uses, up to SCHEDULE_MAX_BLOCKS, and as long as their tokens fit in rows. */
struct budget_scratch {
    int tokens;          /* of the largest forward pass: max(prefill_chunk, max_batch) */
    int blocks;          /* FFN blocks at a time; 1 without experts */
    int rows;            /* tokens of those together: max(prefill_chunk, max_batch x experts used) */
    uint64_t hidden;     /* f32[tokens][d_model]: residual, normed, FFN sum: three of them */
    uint64_t act;        /* int8 activations of a pass: [tokens] of the widest input of a row product */
    uint64_t qkv, attn, latent, made, layered, joined, shared; /* f32[tokens][the most of an operation]: struct op_need */
    uint64_t scores;     /* f32[threads][heads at once][context] (nn_attention) */
    uint64_t logits;     /* f32[max_batch][n_vocab] */
    uint64_t ffn;        /* f32[rows][n_ff]: gate, then h */
    uint64_t entries;    /* the pipeline's lists, of one block */
    uint64_t gather;     /* [threads] row pointers, gathered h, up temporaries */
    uint64_t sampler;    /* candidates: [n_vocab] of 8 bytes, twice */
    uint64_t tokens_in;  /* i32[max_batch][context]: token ids of a sequence */
    uint64_t reads;      /* state of each read in flight */
    uint64_t predict;    /* of predictors: hidden layer, f32 and prepared for fc2; scores of a range, [threads]; a bit
                          * per neuron and row. 0 without predictors */
    uint64_t picked;     /* experts: f32[rows][d_model], inputs, likewise sums; once more for inputs of predictors */
    uint64_t picked_act; /* experts: int8 activations of [rows] inputs; likewise */
    uint64_t total;
};

/* What BUDGET_KV is made of: a plane of rows for K and one for V of each layer, and tables that say which sequence has which
 * page of SCHEDULE_KV_PAGE rows. A single sequence has its positions in order, and no table. Recurrent layers have no planes, but a
 * state of each sequence, float32 whatever K and V are: f32[max_batch][layers with one][op_need.state], from `states` on. */
struct budget_kv {
    int per_sequence, n_pages; /* pages that a context fills; of all sequences */
    uint64_t rows;             /* positions of a plane */
    uint64_t row_bytes, plane_bytes, table_bytes, state_bytes, states, total;
};

/* Bytes of a page of all planes, and of all states of a sequence. */
static inline uint64_t budget_kv_page(const struct budget_kv *k)
{
    return k->plane_bytes ? k->states / k->plane_bytes * SCHEDULE_KV_PAGE * k->row_bytes : 0;
}
static inline uint64_t budget_kv_state(const struct budget_kv *k, int sequences)
{
    return (k->total - k->states - k->table_bytes) / (uint64_t)sequences;
}

/* 4.25 MiB: of the item process, without page tables; up to 4.0 were seen in use. Where the arena ends within a page of the system, of up
 * to 64 KiB, is in it: a plan for a device is made on another machine. */
#define BUDGET_PROCESS_BYTES (17u << 18)
#define BUDGET_MAX_THREADS 256
#define BUDGET_MAX_LANES 64
#define BUDGET_MAX_DEPTH 4096
#define BUDGET_MAX_STREAM (1 << 20) /* buffers of streamed predictors */
#define BUDGET_MAX_AREA ((uint64_t)1 << 40)
#define BUDGET_MAX_BATCH 1024
#define BUDGET_MAX_CHUNK 8192
#define BUDGET_IO_STACK_BYTES (64 * 1024) /* of each I/O thread */

/* ERR_LIMIT when a product overflows or a choice is out of range. */
int budget_scratch(const struct budget_model *m, const struct budget_choice *c, struct budget_scratch *out,
                   struct err *e);

/* The same for the KV cache. */
int budget_kv(const struct budget_model *m, const struct budget_choice *c, struct budget_kv *out, struct err *e);

/* ERR_LIMIT when a sum overflows or a choice is out of range. */
int budget_compute(const struct budget_model *m, const struct budget_choice *c, struct budget *out, struct err *e);

#endif
