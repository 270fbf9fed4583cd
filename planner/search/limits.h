#ifndef PLANNER_SEARCH_LIMITS_H
#define PLANNER_SEARCH_LIMITS_H

/* One memory limit and what the user asks for within it, in plain numbers. */
#include "common/offline/hwdb/hwdb.h"
#include "common/plan/plan.h"

#include <stdint.h>

struct limits {
    uint64_t memory_bytes;
    double min_tokens_per_s;            /* 0: none */
    int cores[HW_MAX_CLASSES];          /* most of each class; -1: all the device has */
    int context, max_batch, prefill_chunk;
    enum plan_purpose purpose;          /* whose room every account has */
    int weight[PLAN_MAX_BATCHES];       /* of each batch size: tokens made at it, in proportion; 0: 1 */
    int own_chunk;                      /* 1: prefill_chunk is what the user asks for */
    int only_batch;                     /* the one batch size that is solved for, its index in inputs_batch_sizes + 1; 0: all */
    int kv_type, act_q8;
    const char *engine;                 /* the device's accelerator that may have neurons; NULL: none. Borrowed of the device */
    struct plan_elastic elastic;        /* its group's: no choice is beyond it, and every account has it; group 0: none */
    int stream_tables;                  /* 1: embeddings that are looked up by row are read, not in memory */
    int reserved;                       /* 1: every account has it, also where no batch size gives it anything */
    enum plan_work prompt_work;         /* what prompts may give it beside neurons */
    uint64_t area_bytes;                /* every account has such an area, for neurons that are not in memory; 0: none */
    enum plan_cost model;
    enum plan_stat stat;
};

#endif
