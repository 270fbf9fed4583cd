#ifndef RUNTIME_SETUP_H
#define RUNTIME_SETUP_H

/* From a command line to an engine: the options that every command shares, the plan's limit that fits, what of the
 * plan has to give on this machine (each change is said once, as a warning), and the tokenizer. */
#include "common/cli/opt.h"
#include "common/model/tokenizer.h"
#include "common/pack/pack.h"
#include "common/plan/plan.h"

#include "runtime/engine/engine.h"
#include "runtime/session/adapt.h"

#define SETUP_OPTIONS 24 /* rows that setup_options fills, at most */

struct setup_accel_args {            /* options of an accelerator, as they were given */
    const char *engine, *height, *cache;
    uint64_t area;                   /* 0: as much as seems good */
    int work, fail;
};

struct setup_args {
    const char *model, *plan, *cpu;
    uint64_t memory;                 /* 0: the plan's */
    uint64_t elastic;                /* 0, or the limit may change while the model runs, down to so many bytes */
    uint64_t beside, beside_per_token; /* bytes of it that the command takes itself, and for each position of the context; */
    uint64_t beside_per_sequence, beside_per_place; /* for each sequence, and for each position of each of these */
    int schemas;                     /* different ones that requests may have at once */
    const char *beside_what;         /* "the conversation" */
    enum plan_purpose purpose;       /* whose plans keep room for it */
    /* What of it depends on how the model runs otherwise, added to `beside` when that is known; or NULL. */
    int (*beside_of)(void *ctx, const struct engine_config *model, uint64_t *bytes, struct err *e);
    void *beside_ctx;
    uint64_t limit, held;            /* while files are opened: of the process, 0: memory, or what is there; bytes that are held already */
    int threads, context, chunk;     /* 0: the plan's */
    int kv, act, io, mode, ahead;    /* -1: the plan's */
    double recall;                   /* of predicted mode; 0: the plan's */
    int sequences;                   /* at least so many; 0: the plan's */
    int batch;                       /* so many, and no more than the plan's; 0: the plan's */
    int kv_positions;                /* of all sequences together; 0: the context of each */
    const struct cancel *cancel;     /* of loading, and what the commands give their sessions; or NULL */
    struct setup_accel_args accel;
    int no_warm_start, no_mlock, no_prefetch, no_overlap, no_cache, no_verify;
};

struct setup {
    struct setup_args args;
    struct pack *pack;
    struct tokenizer *tokenizer;
    struct engine_config config;     /* ready for engine_open; hot and cold are owned here */
    struct plan_limit limit;         /* as chosen, without its arrays */
    struct plan_figures predicted;   /* of batch 1; layers is NULL, */
    double terms[PLAN_TERMS];        /* by what takes its time, ns */
    struct setup_elastic *elastic;   /* the plan's limits, or NULL */
    int scaled;                      /* hot or cold is smaller than planned, */
    int other;                       /* or the mode or the accelerator is another: the plan's predictions do not hold */
    uint64_t memory_bytes;           /* the ceiling */
    struct budget budget;
    uint64_t accel_driver_bytes;     /* what the process grew by when the accelerator was opened */
    uint32_t *hot, *cold, *always;   /* config points to these */
    double *recalls;
    signed char *predictor;
    unsigned char *streamed;
    uint64_t *predictor_bytes;       /* [n_layers]: of each layer's predictors in use */
    int cpus[BUDGET_MAX_THREADS];    /* to pin workers to; config.cpus points here, or is NULL */
    struct plan_batch planned[PLAN_MAX_BATCHES]; /* [n_planned]: the plan's batch sizes, without their arrays */
    int n_planned;
    char planned_engine[64];         /* the plan's accelerator, "": none */
    struct engine_batch batches[PLAN_MAX_BATCHES]; /* of these: config.batches points here, or is NULL */
    struct engine_way variants[ADAPT_VARIANTS]; /* config.variants points here: the plan's own, and its alternatives that can be had */
    struct adapt_way way_times[ADAPT_VARIANTS]; /* what the plan says of each */
    int batch_cpus[PLAN_MAX_BATCHES][BUDGET_MAX_THREADS]; /* likewise */
};

static inline int setup_differs(const struct setup *s)
{
    return s->scaled || s->other;
}

/* Rows of options of an accelerator; how many were filled. */
int setup_accel_options(struct opt *rows, struct setup_accel_args *a);

void setup_args_init(struct setup_args *a);
int setup_options(struct opt *rows, struct setup_args *a); /* how many were filled */

/* Everything but the engine: nothing large is loaded. ERR_MISMATCH when pack and plan do not belong together,
 * ERR_INFEASIBLE below the floor. */
int setup_open(const struct setup_args *a, struct setup *s, struct err *e);

/* What an input may take now that the files are open and before the engine is (runtime/inputs.h). */
size_t setup_room(const struct setup *s);

/* Threads and reads in flight of passes that no batch size holds: those of the plan's own way. The account may have more. */
static inline int setup_threads(const struct setup *s)
{
    return s->variants[0].threads;
}

static inline int setup_depth(const struct setup *s)
{
    return s->variants[0].depth;
}

/* What the plan says of passes over guesses, for the mode that runs; NULL: nothing, or another mode. It lives as long as s. */
static inline const struct plan_guesses *setup_guesses(const struct setup *s)
{
    return s->limit.guesses.n && s->config.mode == s->limit.mode ? &s->limit.guesses : NULL;
}

/* What a guess of that source takes by the plan, if it was planned for; 0: that is not known. */
static inline double setup_guess_ns(const struct setup *s, enum plan_source source)
{
    const struct plan_guesses *g = setup_guesses(s);
    return g && g->source == source ? g->guess_ns : 0;
}

/* With --elastic: another limit from here on, between passes. Where it is smaller it holds when this is back. ERR_UNSUPPORTED,
 * ERR_INFEASIBLE, ERR_NOMEM, ERR_LIMIT: nothing has changed. ERR_IO, ERR_FORMAT, ERR_INTR: as of engine_resize. */
int setup_resize(struct setup *s, struct engine *g, uint64_t memory, struct err *e);

void setup_close(struct setup *s); /* after the engine; accepts a zeroed one */

/* Free what only preparation needed, then engine_open. Warns when memory cannot be locked, O_DIRECT is refused or
 * the backend is another than planned. */
int setup_engine(struct setup *s, struct engine **out, struct err *e);

#endif
