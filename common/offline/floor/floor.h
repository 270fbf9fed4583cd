#ifndef COMMON_OFFLINE_FLOOR_FLOOR_H
#define COMMON_OFFLINE_FLOOR_FLOOR_H

/* The floor: the least memory of any plan, from the header of a model's file, and what is said where a limit is below it. Asked before
 * an hour of tracing, by thermo-profile trace and thermo-plan solve. One owner thread. */
#include "common/model/model.h"
#include "common/offline/floor/layouts.h"
#include "common/plan/budget.h"
#include "common/plan/plan.h"

/* What a model's header tells: the account's facts, and layouts. source.h points into `budget`. */
struct floor_model {
    struct budget_model budget; /* its shapes are filled per layout */
    struct layouts_source source;
};

/* given: what the trace will be stated of the model; silenced: that neurons will have thresholds, whatever they are; then g is good
 * for nothing else. ERR_UNSUPPORTED, ERR_LIMIT, ERR_NOMEM, or an error of model_open. */
int floor_model_of(struct gguf *g, const struct model_given *given, int silenced, struct floor_model *out, struct err *e);

struct floor_ask {
    uint64_t memory_bytes;      /* 0: no limit */
    int context, max_batch, kv_type;
    int chunk;                  /* tokens of a prompt at once that are asked for; 0: none are */
    enum plan_purpose purpose;
};

/* The context that is meant: the one asked for, or with 0 the model's, at most 4096, whatever the memory. */
int floor_context(const struct model_hparams *h, int asked);

/* Least memory of any layout that the options allow, without predictors: one thread, one read in flight, one token a pass, nothing
 * resident; *bytes is filled in either case. ERR_INFEASIBLE where it is more than the ask's limit. */
int floor_ask(const struct floor_model *m, const struct layouts_options *w, const struct floor_ask *a, uint64_t *bytes, struct err *e);

/* What would do in place of what was asked for; 0: none would. */
struct floor_near {
    uint64_t memory_bytes, memory_bytes_at_batch_1; /* the second: where more sequences were asked for */
    int context;
};

/* The refusal, ERR_INFEASIBLE, where `least` says the floor of an ask, and is more than its limit. An error of `least` as it is. */
typedef int floor_least(const void *of, const struct floor_ask *a, uint64_t *bytes, struct err *e);
int floor_refuse(const struct floor_ask *a, floor_least *least, const void *of, struct floor_near *out, struct err *e);

#endif
