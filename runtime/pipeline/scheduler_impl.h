#ifndef RUNTIME_PIPELINE_SCHEDULER_IMPL_H
#define RUNTIME_PIPELINE_SCHEDULER_IMPL_H

/* What scheduler.c (jobs, who waits for whom), scheduler_lists.c (what there is to compute) and scheduler_predict.c (which
 * neurons are asked for, in predicted passes) share. */
#include "runtime/pipeline/predictor_prefetch.h"
#include "runtime/pipeline/scheduler.h"

#include <pthread.h>
#include <stdatomic.h>

struct ring {             /* guarded by lock */
    uint32_t *e, head, n; /* ready entries */
    uint32_t rows;        /* neurons that cost something in them */
};

struct tile {
    int col0, n_cols, busy;
    uint32_t done, rows;  /* neuron entries summed; neurons of them */
};

/* A block at work, as it is scheduled. */
struct pass {
    struct block b;       /* first */
    struct scheduler *s;
    /* owned by the coordinator */
    uint32_t resolved, retired[LISTS];
    uint32_t new_ready[LISTS][JOB_ENTRIES];
    uint32_t n_new[LISTS];
    int begun;            /* predicting it has begun, or need not */
    struct acts *in;      /* what its predictor sees */
    uint32_t listed;      /* ranges */
    /* guarded by lock */
    struct ring ring[LISTS];
    uint32_t *gate_left;  /* [n_clusters] neurons whose gate is not there */
    uint32_t gate_frontier; /* first cluster with such */
    uint32_t published;   /* neuron entries that exist for workers */
    uint32_t frontier, frontier_rows; /* first of them without h; neurons before it */
    struct tile *tiles;
    int all_resolved, finished;
};

static inline struct pass *pass_of(struct block *b)
{
    _Static_assert(offsetof(struct pass, b) == 0, "a pass begins with its block");
    return (struct pass *)(void *)b;
}

/* Where prediction stands. Passes are predicted one after another: one's ranges of neurons are scored in any order;
 * frontier is the first that is not scored yet, and the coordinator lists what is before it, then begins the next. */
enum stage { STAGE_NONE, STAGE_HIDDEN, STAGE_PREPARE, STAGE_PREPARING, STAGE_SCORES };

struct prediction {
    /* constant after new */
    uint8_t *bits;              /* of all passes, [rows][row_bytes] */
    uint8_t *scored;            /* [n_clusters]: by range */
    size_t row_bytes;
    struct predictor_prefetch *prefetch; /* of streamed predictors, or NULL */
    int alone;                  /* nothing else is done now (before attention) */
    /* written by the coordinator while stage is STAGE_NONE */
    struct compute_prediction work; /* of the pass that is predicted now */
    uint32_t grain;
    int streamed;               /* weights come from the predictor prefetch */
    int selects;                  /* the job that prepares the hidden layer makes it, too */
    /* guarded by lock */
    enum stage stage;
    uint32_t rows, ranges;      /* of the hidden layer, and of neurons, whose weights are there */
    uint32_t next, left;        /* hidden rows, then ranges: not taken yet; not done yet */
    uint32_t frontier;
    int complete;               /* alone, and everything is listed */
    uint64_t ns;                /* of all workers */
};

struct scheduler {
    /* constant after new, but for scheduler_use */
    const struct pipeline_config *c;
    struct read_queue *q;
    int n_threads, n_tiles, spin, most; /* most: passes */
    struct list **lists;  /* [most * LISTS]: of the passes, in their order */
    /* written by the coordinator before workers start */
    struct pass *pass;    /* [n_passes], oldest first: what is needed first is read first */
    int n_passes, predicted, leaves_rest;
    struct prediction now;
    uint64_t stall_ns;    /* owned by the coordinator */
    /* guarded by lock */
    pthread_mutex_t lock;
    atomic_uint wake, wake_coordinator; /* words that workers and the coordinator sleep on */
    int waiters, called, coordinator_waits; /* workers that sleep; of them, woken and not back yet; the coordinator sleeps, not woken yet */
    int wakes, wakes_coordinator;     /* whom scheduler_unlock wakes: so many, and whether */
    int busy, unfinished, failed, pressure; /* unfinished: passes */
    struct err first_error; /* of the first failure */
    int hold;             /* no_overlap: nobody takes a job; 2 when somebody wanted to */
    struct counts counts;
    atomic_uint version;  /* changes when there may be something to do */
};

/* ---- scheduler.c ---- */
void scheduler_changed(struct scheduler *s);   /* lock held, until scheduler_unlock */
void scheduler_unlock(struct scheduler *s);
void scheduler_check_finished(struct pass *p); /* lock held */

/* ---- scheduler_lists.c: the coordinator ---- */
void pass_take_lists(struct pass *p);       /* memory, from the account */
void pass_reset_lists(struct pass *p);
void pass_list_known(struct pass *p);       /* what is known before the activations are */
void pass_add_hot(struct pass *p, enum list_id list, uint32_t pos0, uint32_t n, uint32_t rows);
void pass_add_unit(struct pass *p, enum list_id list, uint32_t unit);
void pass_ready(struct pass *p, enum list_id list, uint32_t i); /* an entry's bytes are there */
void pass_flush(struct pass *p);            /* entries that are ready become visible */
void pass_resolve(struct pass *p);          /* what is known by gates becomes entries */
void pass_retire(struct pass *p);           /* unpin, free buffers */
void pass_know(struct pass *p);             /* how far the lists are known, for those who read */

/* ---- scheduler_predict.c ---- */
size_t prediction_row_bytes(const struct pipeline_config *c);
void prediction_take_memory(struct scheduler *s);
int prediction_feed(struct scheduler *s, int ahead, struct err *e);  /* coordinator: read streamed predictors */
void prediction_reset(struct pass *p);
void prediction_input(struct pass *p, struct acts *in, uint8_t *bits); /* what it will see; where its bits will be */
void prediction_begin(struct scheduler *s);                          /* coordinator: the next pass that has not */
int prediction_waits(const struct scheduler *s);                     /* lock held; 1: there may be jobs */
int prediction_take(struct scheduler *s, struct job *j);             /* lock held; 1: got one */
void prediction_finish(struct scheduler *s, const struct job *j);    /* lock held */
void prediction_list(struct scheduler *s);                           /* coordinator */

#endif
