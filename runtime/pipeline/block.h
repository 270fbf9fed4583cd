#ifndef RUNTIME_PIPELINE_BLOCK_H
#define RUNTIME_PIPELINE_BLOCK_H

/* A block (an expert of a layer, or its only FFN) at work: the plain data that read queue, scheduler and compute have in
 * common. What has to be computed stands in two lists in pack order. Gate entries are units of a part that holds only gates;
 * neuron entries are hot clusters, or units, whose Down rows count. An entry is a neuron cluster of the paper, or the
 * part of one that a read brings.
 *
 * Who writes what when is said with each field. The coordinator is worker 0; "the lock" is the scheduler's. */
#include "common/kernels/kernels.h"
#include "common/model/predict.h"
#include "common/plan/layout.h"
#include "common/plan/reads.h"

#include "runtime/io/verify.h"
#include "runtime/pipeline/config.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* HOT: resident. CACHED: in the cache before this pass. ADMITTED: in the cache, but read in this pass. STAGED: used from the
 * read buffer. MISSING: to be read. READING: asked for. */
enum kind { KIND_HOT, KIND_CACHED, KIND_ADMITTED, KIND_STAGED, KIND_MISSING, KIND_READING };
enum list_id { LIST_GATE, LIST_NEURON, LISTS };
enum { DO_GATE = 1, DO_UP = 2 };

struct entry {
    uint8_t *base;        /* its records, when there */
    uint32_t pos0;        /* pack position of the first neuron */
    uint32_t unit;        /* in its part */
    uint32_t where;       /* cache slot or read buffer; hot: how many of its neurons count, once done the active ones */
    uint16_t n;           /* neurons */
    uint8_t kind, done;   /* done: guarded by the lock */
};

struct list {
    /* constant */
    struct block *of;
    int part;
    uint8_t work;           /* DO_ bits of its entries */
    struct entry *e;
    uint32_t cap;
    /* the coordinator's */
    struct reads_rule rule; /* which missing units one read brings in this layer */
    int direct;           /* slots and units are whole blocks: what is read alone is read into its slot */
    uint32_t n;
    uint32_t issue;       /* first entry whose read may not have started */
    uint32_t known_to;    /* the first unit that may still be appended */
};

/* Entries [first, first + n) of a list came with one read: those of them that are ADMITTED or STAGED. Others are of another
 * kind, and were there before. */
struct read_arrival {
    struct list *list;
    uint32_t first, n;
};

/* Which neurons of a block are predicted. Written before workers start, but for the bits (scheduler_predict.c). */
struct predicted {
    int on;                 /* this pass predicts; else every gate is computed, and nothing below counts */
    const struct predict *q;
    uint8_t *bits, *any;    /* a bit per neuron, [tokens][row_bytes]; [row_bytes], for any of several tokens */
    const uint8_t *want;    /* any, or the only token's bits */
    size_t row_bytes;
    uint32_t always, range, n_ranges; /* ranges begin at always, the first neuron that is predicted */
    uint32_t first;         /* range that is scored: those before are the accelerator's, whole */
};

struct block {
    const struct pipeline_config *c;
    /* written by the coordinator before workers start */
    int layer, block, n_tokens;
    int passing;          /* what it needs is not wanted again soon: nothing goes from the cache for it */
    const struct layout_shape *shape;    /* of the layer */
    uint32_t hot[LAYOUT_MAX_PARTS];      /* neurons of the resident prefixes, and where these are */
    uint8_t *hot_base[LAYOUT_MAX_PARTS];
    uint32_t fused;       /* hot clusters whose every part is resident: the first so many */
    uint32_t beside;      /* of these, the first, which are not computed here: neurons */
    uint32_t rest;        /* nor are neurons from here on, none of which is in a fused cluster; n_ff: they are */
    const void *x[KERNELS_ACT_FORMS];    /* [n_tokens][d_model] in the forms that gate and up ask for */
    size_t x_stride[KERNELS_ACT_FORMS];
    float *rows, *out;    /* f32[n_tokens][n_ff] gate, then h; f32[n_tokens][d_model] */
    struct predicted pred;
    float cold_scale;       /* of the config, where this pass has it; else 0 */
    uint32_t cold_from;     /* first neuron that it bears on */
    struct list list[LISTS];
    uint8_t *active;      /* [n_ff]; a cluster's part is written by its gate job, read when that is done */
};

/* What a job found; the scheduler adds them up. */
struct counts {
    uint64_t active_hot, active_cold, active_read, computed; /* computed: gates, in predicted passes */
    uint64_t scored;      /* by predictors */
    struct verify_counts verified;
};

/* Neurons of an entry that cost something. */
static inline uint32_t block_rows_of(const struct entry *e)
{
    return e->kind == KIND_HOT ? e->where : e->n;
}

/* Neurons of a range of predicted ones: the first, and in *end the first that follows. */
static inline uint32_t block_range(const struct block *b, uint32_t range, uint32_t *end)
{
    uint32_t first = b->pred.always + range * b->pred.range, n_ff = (uint32_t)b->shape->n_ff;
    *end = n_ff - first < b->pred.range ? n_ff : first + b->pred.range;
    return first;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bits are looked for eight bytes at a time");

/* Bits i to i + n - 1, n from 1 to 64, the first the least significant. Reads no byte beyond that of the last. */
static inline uint64_t block_bits_at(const uint8_t *bits, uint32_t i, uint32_t n)
{
    const uint8_t *b = bits + i / 8;
    uint32_t skip = i % 8, n_bytes = (skip + n + 7) / 8;
    uint64_t w = 0;
    if (n_bytes >= 8)
        memcpy(&w, b, 8);
    else
        for (uint32_t k = 0; k < n_bytes; k++)
            w |= (uint64_t)b[k] << 8 * k;
    w >>= skip;
    if (n_bytes == 9)
        w |= (uint64_t)b[8] << (64 - skip);
    return w & UINT64_MAX >> (64 - n);
}

#endif
