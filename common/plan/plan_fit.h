#ifndef COMMON_PLAN_PLAN_FIT_H
#define COMMON_PLAN_PLAN_FIT_H

/* Lowers a plan's choices to the memory that there is. A plan says what was best on the machine that it was made for; where
 * another has less, gives way in this order: embeddings that are looked up by row; reads through gaps, whose buffers are
 * large, where not even the floor fits; predictors in memory, the last layers' first; neurons outside the parts with gates, all
 * evenly; those of gates. The same inputs give the same outcome. One owner thread. */
#include "common/base/err.h"
#include "common/plan/budget.h"
#include "common/plan/plan.h"

#include <stdint.h>

struct plan_fit {
    /* Given; the arrays are the caller's and are lowered in place: */
    const struct budget_model *model;
    uint64_t memory_bytes;              /* the account must not exceed it */
    struct budget_choice choice;        /* as planned; hot and cold are ignored, the arrays below count */
    uint32_t *hot, *cold;               /* [n_layers][blocks][parts] neurons; [n_layers][parts] slots */
    const uint64_t *predictors;         /* [n_layers]: bytes of a layer's predictors, 0 where it runs exactly; NULL: none */
    unsigned char *streamed;            /* [n_layers], with predictors: those that are read whenever they are used */
    int fixed;                          /* 1: nothing but hot and cold gives way */
    int lower_chunk;                    /* 1: choice.prefill_chunk gives way first, by halves, where the floor does not fit with it */
    /* Filled: */
    struct budget budget;               /* of the lowered choice */
    int scaled;                         /* fewer neurons, or predictors, stay in memory than planned */
    int uncoalesced;                    /* reads go through no gaps: choice.read_bytes is 0 now */
};

/* With room for what any limit of a group needs; a limit in none changes nothing. */
static inline void plan_fit_widen(struct budget_choice *c, const struct plan_elastic *x)
{
    c->threads = c->threads > x->threads ? c->threads : x->threads;
    c->io_lanes = c->io_lanes > x->io_lanes ? c->io_lanes : x->io_lanes;
    c->queue_depth = c->queue_depth > x->queue_depth ? c->queue_depth : x->queue_depth;
    c->read_bytes = c->read_bytes > x->read_bytes ? c->read_bytes : x->read_bytes;
}

/* Bytes of the predictors that stay in memory: choice.predictor_bytes. */
uint64_t plan_fit_predictor_bytes(const struct plan_fit *f);

/* ERR_INFEASIBLE when the memory is below the floor, with what would lower it; ERR_NOMEM; ERR_LIMIT of the account. */
int plan_fit(struct plan_fit *f, struct err *e);

#endif
