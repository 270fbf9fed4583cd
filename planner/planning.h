#ifndef PLANNER_PLANNING_H
#define PLANNER_PLANNING_H

/* From a request to a plan: chooses layout, fills one problem per memory limit, solves, rounds, accounts and
 * predicts; or says which of the user's limits contradict each other and what would do. One owner thread. */
#include "common/plan.h"

#include "planner/inputs.h"
#include "planner/notes.h"
#include "planner/problem.h"

struct advice;

#define PLANNING_SEED   1
#define PLANNING_RLIMIT 200000000u

struct planning_request {
    int n_memory;
    uint64_t memory[PLAN_MAX_LIMITS];   /* ascending */
    double min_tokens_per_s;            /* 0: none */
    int cores[HW_MAX_CLASSES];          /* -1: all */
    int context;                        /* 0: the planner's choice: the model's, at most 4096, less where memory is
                                         * short */
    int max_batch;
    enum plan_cost cost;
    enum plan_stat stat;                /* which of the device's figures */
    int mode;                           /* a plan_mode, or -1: exact where the activation gives zeros, else dense;
                                         * see max_kl */
    int form;                           /* a layout_form, or -1: the better of split and bundle */
    double recall;                      /* predicted mode: of every predictor; 0: that they were made for */
    double max_kl;                      /* most mean KL against exact mode, nats; < 0: none given. Mode -1 then tries
                                         * predicted mode too, where it is measured to keep this */
    int predictor;                      /* predicted mode: an enum predict_input, or -1: the better */
    int packed;                         /* 0, 1: whether units are padded to blocks; -1: the faster */
    int kv_f16, act_q8;
    int down_type;                      /* a quant_type, or -1 */
    uint32_t cluster_neurons;           /* 0: the layout's default */
    int policy;                         /* a cache_policy, or -1: by replay */
    uint64_t rlimit;
    const struct layout *for_pack;      /* NULL: free; else the layout of a pack, taken as it is */
    struct advice *advice;              /* NULL, or what ERR_INFEASIBLE fills: its message in numbers (planner/advice.h) */
};

void planning_request_init(struct planning_request *q);

/* 0; ERR_INFEASIBLE with a message in the user's words (which limits, and the nearest value of each that would
 * do); or another error. A mode that the activation forbids is ERR_USAGE. */
int planning_make(const struct planning_request *q, const struct inputs *in, const struct hw *hw, struct notes *notes,
                  struct plan *out, struct err *e);

/* The context that a request means when memory allows it. */
int planning_context(const struct planning_request *q, const struct inputs *in);

/* Least memory that any plan for the request needs: the smaller floor of its candidate layouts, at the context
 * asked for or the least one that planning_make would fall back to. */
int planning_floor(const struct planning_request *q, const struct inputs *in, const struct hw *hw, uint64_t *bytes,
                   struct err *e);

/* The problem that a plan limit was solved in, without the other ways that were tried: for check and explain. Free
 * with problem_done. ERR_UNSUPPORTED when the inputs lack a predictor that the plan uses. */
int planning_problem(const struct plan *p, const struct plan_limit *l, const struct inputs *in, const struct hw *hw,
                     struct notes *notes, struct problem *out, struct err *e);

/* A plan limit's rule for reading missing units. */
void planning_joins(const struct plan_limit *l, struct joins *out);

/* Would planning_problem prepare the same for both? */
int planning_same_problem(const struct plan *p, const struct plan_limit *a, const struct plan_limit *b);

/* A plan limit's choices as the cost model takes them, and a batch's residencies (keeps[n_layers]). Where blocks of a
 * layer differ in their prefix, block 0 speaks for all. */
void planning_choice(const struct plan *p, const struct plan_limit *l, struct cost_choice *out);
void planning_limits(const struct plan *p, const struct plan_limit *l, struct problem_limits *out);
void planning_keeps(const struct plan *p, const struct plan_batch *b, struct cost_keep *keeps);

/* The account of a plan limit: that of its dearest batch size. */
int planning_account(const struct problem *p, const struct plan_limit *l, struct budget *out, struct err *e);

#endif
