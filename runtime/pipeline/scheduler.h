#ifndef RUNTIME_PIPELINE_SCHEDULER_H
#define RUNTIME_PIPELINE_SCHEDULER_H

/* Which cluster goes where when (the paper's "Neuron-Cluster-Level Pipeline"). For the blocks of a layer that run together it
 * keeps the lists of what has to be computed, says what is to be read, hands out jobs whose data is there, and knows when
 * everything is summed. It multiplies nothing and reads nothing itself: jobs are for compute.h, reads for read_queue.h.
 *
 * The life of a layer, on the coordinator (worker 0) unless said otherwise:
 *
 *      scheduler_begin       what is known before the activations are: hot clusters, units whose gates are needed
 *      scheduler_read        start reads; scheduler_collect takes in what has arrived (both optional, between other work)
 *      scheduler_inputs      what predictors see, tokens of each block
 *      scheduler_start       from here on workers may take jobs
 *      every worker:         take a job, do it, finish it; the coordinator calls scheduler_coordinate before each
 *      scheduler_end         when all workers have left: outcome, unpin, free buffers
 *
 * scheduler_start with `alone` set is for predictions before an attention: it is over when everything predicted is listed,
 * and scheduler_inputs and scheduler_start come once more.
 *
 * Ownership: the scheduler has lists, sums and marks of up to scratch.blocks blocks; the caller fills in, of each struct block,
 * x, x_stride, rows and out before scheduler_start.
 *
 * Threads: one lock, which guards the rings of ready entries, gates that are missing, done marks, frontiers, tiles and flags, and
 * is never held while computing, reading, copying or calling the cache. Rules 1 to 12 and 20 of runtime/README.md. */
#include "common/base/err.h"
#include "common/kernels/acts.h"

#include "runtime/pipeline/block.h"
#include "runtime/pipeline/compute.h"
#include "runtime/pipeline/read_queue.h"

struct scheduler;

#define JOB_ENTRIES 256

/* JOB_ENTRIES_READY: compute_entries. JOB_TILE: compute_down. The others, of predictions: compute_hidden, compute_prepare,
 * compute_scores. */
enum job_kind { JOB_NONE, JOB_ENTRIES_READY, JOB_TILE, JOB_HIDDEN, JOB_PREPARE, JOB_SCORES };

struct job {
    enum job_kind kind;
    struct block *block;                 /* entries, tiles */
    enum list_id list;                   /* entries: idx[n] of it */
    int n;
    uint32_t idx[JOB_ENTRIES];
    uint32_t from, to;                   /* tiles: entries; rows of the hidden layer; or a range of scores */
    int col0, n_cols;                    /* tiles */
    const struct compute_prediction *prediction;
    struct predictor_prefetch *predictors; /* where its rows are; NULL: in memory */
    int selects;                           /* JOB_PREPARE: make the hidden layer first, as one */
    uint64_t ns;                         /* predictions: what it took, by who did it */
    /* the scheduler's */
    int tile, n_tiles;
    uint32_t rows;                       /* tiles: neurons summed when it is done */
};

/* c and q outlive it. Memory of c.memory.entries and predict; tables of tiles by malloc. NULL: ERR_NOMEM. */
struct scheduler *scheduler_new(const struct pipeline_config *c, struct read_queue *q, struct err *e);
void scheduler_free(struct scheduler *s); /* accepts NULL */

/* Work is shared by so many threads from now on, at most those of the configuration. Between passes. */
void scheduler_use(struct scheduler *s, int threads);

/* ---- the coordinator ---- */

/* blocks[n] of a layer come next, 1 <= n <= scratch.blocks. predicted: those that have predictors compute only what these
 * predict. */
void scheduler_begin(struct scheduler *s, int layer, const int *blocks, int n, int predicted);
/* Whether the rest of FFNs is left out from the next scheduler_begin on. */
void scheduler_leave_rest(struct scheduler *s, int leave);
struct block *scheduler_block(struct scheduler *s, int i);
int scheduler_blocks(const struct scheduler *s);

/* Start reads until `most` are in flight; ahead: of streamed predictors, those of later layers too. */
int scheduler_read(struct scheduler *s, uint32_t most, int ahead, struct err *e);
/* The same before a layer's lists are made: of what follows (read_queue_follow). */
int scheduler_follow(struct scheduler *s, struct err *e);
/* What has arrived becomes ready; wait: for one read at least, where one is in flight. */
int scheduler_collect(struct scheduler *s, int wait, struct err *e);

/* in[i]: what the predictor of block i sees, as many tokens as the block computes. Its bytes are not needed after the prediction. */
void scheduler_inputs(struct scheduler *s, struct acts *const *in);
void scheduler_start(struct scheduler *s, int alone);

/* Between jobs: collect, list what is predicted and what gates tell, retire, read. */
int scheduler_coordinate(struct scheduler *s, struct err *e);
/* The coordinator got no job: look after reads and others, or sleep until a read arrives. That time is the stall. */
int scheduler_idle(struct scheduler *s, unsigned seen, struct err *e);

/* All workers have left: 0, or the first failure and its message; after a failure nothing else may be called but scheduler_free. */
int scheduler_end(struct scheduler *s, struct err *e);

/* Found by the jobs since scheduler_begin; ns of predictions, of all workers; ns in which nobody could compute, since new. */
struct counts scheduler_counts(const struct scheduler *s);
uint64_t scheduler_predicted_ns(const struct scheduler *s);
uint64_t scheduler_stall_ns(const struct scheduler *s);

/* ---- every worker ---- */

/* Changes when there may be something to do: to be looked at before scheduler_take (rule 11). */
unsigned scheduler_version(struct scheduler *s);
enum scheduler_taken { SCHEDULER_NOTHING, SCHEDULER_JOB, SCHEDULER_OVER };
enum scheduler_taken scheduler_take(struct scheduler *s, int worker, struct job *j);
/* The job is done, with what it found; failed: it is not, and that is why; else NULL. */
void scheduler_finish(struct scheduler *s, const struct job *j, const struct counts *c, const struct err *failed);
/* No job, not the coordinator: until the version is another. */
void scheduler_wait(struct scheduler *s, int worker, unsigned seen);
/* Outside of a job. The first failure is the one that is reported. */
void scheduler_fail(struct scheduler *s, const struct err *why);

#endif
