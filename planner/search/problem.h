#ifndef PLANNER_SEARCH_PROBLEM_H
#define PLANNER_SEARCH_PROBLEM_H

/* From inputs, device and layout to the integer problem of solve.h, and back to predictions. Two steps:
 * problem_prepare does what depends on model and layout only (replay, the residencies worth
 * considering); problem_fill adds one memory limit and the device's curves. One owner thread. */
#include "common/plan/budget.h"
#include "common/plan/plan.h"

#include "planner/cost/coalesce.h"
#include "planner/cost/cost.h"
#include "planner/inputs/inputs.h"
#include "planner/inputs/notes.h"
#include "planner/replay/replay.h"
#include "planner/search/solve.h"

struct problem_residency {           /* a residency of one layer that no other beats in both bytes and flow */
    struct cost_residency residency;
    struct cost_flow flow;
    int64_t bytes;              /* of the account, units of 64 */
    int cold;                   /* which prefix and slots of the last part: those alike read it alike */
};

struct problem_residencies {
    int n, n_cold;              /* cold < n_cold */
    struct problem_residency *residency;
};

/* Limits and wishes, in plain numbers. */
struct problem_limits {
    uint64_t memory_bytes;
    double min_tokens_per_s;            /* 0: none */
    int cores[HW_MAX_CLASSES];          /* most of each class; -1: all the device has */
    int context, max_batch, prefill_chunk;
    int kv_f16, act_q8;
    enum plan_cost model;
    enum plan_stat stat;
};

/* A way to run: a mode, and in predicted mode what predictors do. Solved side by side, the fastest wins. */
struct problem_variant {
    enum plan_mode mode;
    double recall;                      /* predicted mode: see struct predict */
    const signed char *input;
    const uint32_t *always;
    int mix;                            /* ways next to each other with the same number > 0, of one mode and recall: each
                                         * layer takes one of them. They share a cache policy. 0: by itself */
};
#define PROBLEM_MAX_VARIANTS 8

/* What is solved as one: ways whose layers may be mixed. */
struct problem_group {
    int first, n;                       /* ways */
    uint32_t buffers;                   /* of streamed predictors; 0: all stay in memory */
    struct budget_predictors predictors; /* rank and pieces: the largest of any; bytes: where each layer takes its smallest */
};
#define PROBLEM_MAX_GROUPS (6 * PROBLEM_MAX_VARIANTS) /* each with all predictors in memory, through many buffers, through few */

/* How far problem_prepare goes: every layer by itself; or a sketch, in which a layer speaks for those after it. */
struct problem_request {
    const struct problem_variant *variants;     /* to consider: a mode that the model's activation forbids is an error of the caller */
    int n_variants;
    int policy;                         /* -1: for each way the one that misses less in replay */
    const struct coalesce *coalesce;          /* the only rule by which missing units are read; NULL: one of those that may pay on
                                         * the device */
    const struct problem *like;         /* an earlier problem of the same inputs, from which is copied what the same predictors
                                         * predict and, where layouts replay alike, asked with the same policy, the tables;
                                         * may be NULL */
    int every;                          /* 0 and 1: each layer is worked out; n: each n-th, and speaks for the n - 1 after it;
                                         * PROBLEM_WHOLE: no layer is replayed, whole layers are the only residency */
};
#define PROBLEM_WHOLE (-1)

struct problem {
    const struct inputs *in;            /* borrowed */
    const struct hw *hw;
    struct notes *notes;
    struct layout layout;
    struct layout_shape shape;
    struct budget_model budget;
    int every;                          /* of the request */
    int n_variants, n_groups;
    struct problem_group group[PROBLEM_MAX_GROUPS];
    int mix[PROBLEM_MAX_VARIANTS];
    enum cache_policy policy[PROBLEM_MAX_VARIANTS];
    enum plan_mode modes[PROBLEM_MAX_VARIANTS];
    struct predicted *predicted[PROBLEM_MAX_VARIANTS]; /* NULL but in predicted mode */
    struct replay_table *tables[PROBLEM_MAX_VARIANTS]; /* [n_batches][n_layers]; NULL: no cold cache */
    struct replay_samples *samples[PROBLEM_MAX_VARIANTS]; /* the same, of distinct layers */
    int n_rules;
    struct coalesce rules[REPLAY_RULES];   /* how missing units may be read */
    struct problem_residencies *residencies;        /* [n_variants][n_batches][n_layers] */
    /* of the last problem_fill: */
    struct solve_problem sp;
    struct cost_choice *choices;        /* by solve_config.id */
};

/* Shape, ways and account only: enough for problem_account. problem_done frees it. like: an earlier problem of the same
 * inputs, from which is copied what the same predictors predict; may be NULL. */
int problem_shape(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                  const struct problem_variant *variants, int n_variants, const struct problem *like, struct notes *notes,
                  struct err *e);

int problem_prepare(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                    const struct problem_request *q, struct notes *notes, struct err *e);
void problem_done(struct problem *p); /* accepts a zeroed one */

/* All configurations of the device's cores and queue depths, each with its bounds, the most promising with curves. */
int problem_fill(struct problem *p, const struct problem_limits *lim, struct err *e);

/* The cheapest choice there is, for floors: the group that needs least, one thread, one read in flight. */
int problem_least(const struct problem *p, const struct problem_limits *lim, struct cost_choice *out, struct err *e);

/* Account of a choice with these residencies (keeps[n_layers]; NULL: none), at max_batch. Of a group of several ways, with
 * the predictors that take least. */
int problem_account(const struct problem *p, const struct cost_choice *c, const struct problem_limits *lim,
                    const struct cost_residency *residencies, struct budget *out, struct err *e);

/* Figures of one batch size; keeps name each layer's way. out->layers is the caller's. */
int problem_predict(const struct problem *p, const struct cost_choice *c, int batch_index,
                    const struct cost_residency *residencies, struct plan_figures *out, struct err *e);

/* Bytes that a residency of one layer adds to the account, units of 64: by asking the account itself. */
int problem_residency_bytes(const struct problem *p, const struct cost_residency *k, int64_t *out, struct err *e);

/* The residency behind a result's choice. */
struct cost_residency problem_chosen(const struct problem *p, const struct solve_result *r, int batch_index, int layer);

/* Backends that the device has figures for; one, HW_ANY_BACKEND, when it has none. Returns how many. */
int problem_backends(const struct hw *hw, enum hw_backend out[2]);

/* Take a backend at the choice's depth: io_uring has one lane, pread a thread per read in flight. */
void problem_set_backend(struct cost_choice *c, enum hw_backend b);

/* Does a way look units of this layer up in a cold cache? And how many tokens of the trace's window does replay look
 * at: fewer for larger models and for layers that look much up, so that planning stays quick. What other layers do does
 * not matter, so a plan's layers give the same figures in whatever company. */
int problem_looks_up(const struct problem *p, int variant, int layer);
int problem_looks_up_any(const struct problem *p); /* in any way, in any layer */
uint64_t problem_window(const struct problem *p, int variant, int layer);

/* The first way of the same mix that is the same in this layer: it has the tables and residencies. */
int problem_equivalent(const struct problem *p, int variant, int layer);

/* What a way's predictors of a layer take in the account. */
uint64_t problem_predictor_bytes(const struct problem *p, int variant, int layer);

/* A step's accesses to the last part, as a way makes them: lists for replay, at most max_steps. */
int problem_steps(const struct problem *p, int variant, int layer, uint64_t max_steps, struct inputs_steps *out,
                  struct err *e);

/* Residencies of a layer worth considering, of a way that stands for it (problem_equivalent). */
static inline struct problem_residencies *problem_residencies_of(const struct problem *p, int variant, int batch_index, int layer)
{
    return &p->residencies[((size_t)variant * (size_t)p->in->n_batches + (size_t)batch_index) * (size_t)p->in->n_layers +
                     (size_t)layer];
}

static inline const struct replay_table *problem_table(const struct problem *p, int variant, int batch_index, int layer)
{
    const struct replay_table *t = p->tables[variant];
    return t ? &t[(size_t)batch_index * (size_t)p->in->n_layers + (size_t)layer] : NULL;
}

#endif
