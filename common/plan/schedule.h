#ifndef COMMON_PLAN_SCHEDULE_H
#define COMMON_PLAN_SCHEDULE_H

/* Sizes of the runtime's pieces of work. The engine cuts its work by them, the memory account (budget.h) has room for them, and the
 * cost model counts them (docs/cost-model.md): each is stated here, once. */
#include "common/base/pool.h"

#include "common/model/predict.h"

#include <stdint.h>

/* --- jobs: the runtime cuts by these, the cost model counts by them --- */

#define SCHEDULE_JOB_BYTES   (1024u << 10) /* of records that a worker takes at a time, at most: (M7), (M19) */
#define SCHEDULE_DOWN_ROWS   512           /* rows of Down before a worker looks for other work: (M19) */
#define SCHEDULE_OWN_ROWS    128           /* the same, of neurons that the worker computed itself */
#define SCHEDULE_TILES       2             /* neighbouring column tiles of Down that a worker takes at a time: (M18) */
#define SCHEDULE_READS_AHEAD 16            /* in flight when attention begins: the device is busy, and more start between attention's
                                            * products */
#define SCHEDULE_PIECE_BYTES POOL_PIECE_BYTES /* of weights or of K and V that a worker takes of a dense product, at least: (M17) */

/* Parts that a row of Down is summed in by so many threads, one column tile for each: (M18). */
static inline int schedule_row_parts(int threads)
{
    return (threads + SCHEDULE_TILES - 1) / SCHEDULE_TILES;
}

/* --- memory: the account has room for these, the runtime takes them --- */

#define SCHEDULE_MAX_BLOCKS  8             /* FFN blocks of a layer at a time */
#define SCHEDULE_SCORE_ROWS  PREDICT_RANGE /* neurons whose scores a worker computes at a time */
#define SCHEDULE_GATHER_ROWS 256           /* rows that a worker gathers at a time */
#define SCHEDULE_ENTRY_BYTES 48            /* of the pipeline's lists, for each unit */
#define SCHEDULE_KV_PAGE     32            /* positions of a page of the KV cache */
#define SCHEDULE_READ_BYTES  256           /* of state, for each read in flight and each buffer of streamed predictors */

/* Tables beside an accelerator: whole; of an FFN, heights included; of a layer's other matrices. */
#define SCHEDULE_ENGINE_TOKENS 128 /* of its products other than FFNs', at a time: a call; */
#define SCHEDULE_ENGINE_FEW    32  /* of the head's, whose outputs are many */
#define SCHEDULE_ENGINE_TABLES 65536
#define SCHEDULE_ENGINE_FFN    192
#define SCHEDULE_ENGINE_LAYER  512

/* A worker's gathered rows: pointer and position of each, padded to SCHEDULE_GATHER_ROW_BYTES, then two arrays
 * f32[tokens][SCHEDULE_GATHER_ROWS]. tokens <= 2^20. */
#define SCHEDULE_GATHER_ROW_BYTES 16
static inline uint64_t schedule_gather_bytes(uint64_t tokens)
{
    return SCHEDULE_GATHER_ROWS * SCHEDULE_GATHER_ROW_BYTES + tokens * 2 * SCHEDULE_GATHER_ROWS * 4;
}

/* A bit for each neuron of a block, in whole lines of 64 bytes. */
static inline uint64_t schedule_bits_bytes(uint64_t n_ff)
{
    return (n_ff + 511) / 512 * 64;
}

#endif
