#ifndef PLANNER_PLANNING_REQUEST_H
#define PLANNER_PLANNING_REQUEST_H

/* What the user asks for, as plain numbers. */
#include "common/offline/hwdb/hwdb.h"
#include "common/plan/layout.h"
#include "common/plan/plan.h"

#include <stdint.h>

#define REQUEST_SEED   1
#define REQUEST_RLIMIT 200000000u

struct request {
    int n_memory;
    uint64_t memory[PLAN_MAX_LIMITS];   /* ascending */
    double min_tokens_per_s;            /* 0: none */
    int cores[HW_MAX_CLASSES];          /* -1: all */
    int context;                        /* 0: the model's, at most 4096, whatever the memory */
    int max_batch;
    enum plan_purpose purpose;          /* chat and serve: the account keeps room for them */
    int chunk;                          /* tokens of a prompt at once; 0: left to the planner (planning_chunk.h) */
    int weight[PLAN_MAX_BATCHES];       /* of each batch size up to max_batch: tokens made at it, in proportion; [0] 0: as
                                         * request_weights says */
    double prompt_weight;               /* tokens of prompts for each decoded token: what a prompt's time counts (planning_chunk.h) */
    char engine[HW_NAME];               /* accelerator that may have neurons: its name, "none", or "" for the first that thermo-run knows */
    enum plan_cost cost;
    enum plan_stat stat;                /* which of the device's figures */
    int mode;                           /* a plan_mode, or -1: exact where the activation gives zeros, else dense;
                                         * see max_kl */
    int form;                           /* a layout_form, or -1: the fastest */
    double recall;                      /* predicted mode: of every predictor; 0: that they were made for */
    double max_kl;                      /* most mean KL against exact mode, nats; < 0: none given. Mode -1 then tries
                                         * predicted mode too, where it is measured to keep this */
    int predictor;                      /* predicted mode: an enum predict_input, or -1: the better */
    int always_resident;                /* predicted mode: hot prefixes are computed without a prediction */
    int packed;                         /* 0, 1: whether units are padded to blocks; -1: the faster */
    int kv_type, act_q8;
    int down_type, gate_type;           /* a quant_type, or -1 */
    uint32_t cluster_neurons;           /* 0: the layout's default */
    int policy;                         /* a cache_policy, or -1: by replay */
    uint64_t rlimit;
    const struct layout *for_pack;      /* NULL: free; else the layout of a pack, taken as it is */
    int elastic;                        /* limits are in elastic groups where that is possible (planning_parts.h) */
    int prove;                          /* no layout is left out: each is planned whole, and the gap is against the best bound of any */
    struct certificate *certificate;    /* NULL, or where the proof is written; goes with prove */
    struct diagnosis *diagnosis;        /* NULL, or what ERR_INFEASIBLE fills: its message in numbers
                                         * (planner/planning/diagnosis.h) */
};

/* Nothing asked for. */
void request_init(struct request *q);

/* Weights of n batch sizes. Where none were asked for, one sequence alone counts as much as all others together: n - 1, and 1 each. */
void request_weights(const struct request *q, int n, int out[PLAN_MAX_BATCHES]);

/* The accelerator of a device that plans for a request may use, as the device names it, whose figures tell; NULL: none, or by the paper's
 * equations. */
const char *request_engine(const struct request *q, const struct hw *hw);

/* What a plan for n batch sizes keeps of a request. */
void request_record(const struct request *q, const struct hw *hw, int n, struct plan_request *out);

/* The request that planning_make answers with this limit, under the plan's layout, the limit's context and its chunk: for solving
 * again with more memory or another device. A plan that does not record its request is taken to have asked for what it has, with
 * all cores. out borrows the layout from the plan. */
void request_again(const struct plan *p, const struct plan_limit *l, const struct hw *hw, struct request *out);

#endif
