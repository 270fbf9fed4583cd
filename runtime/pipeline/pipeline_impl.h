#ifndef RUNTIME_PIPELINE_PIPELINE_IMPL_H
#define RUNTIME_PIPELINE_PIPELINE_IMPL_H

/* What pipeline.c (passes, jobs, who does what), pipeline_lists.c (lists, cache, reads), pipeline_predict.c (which
 * neurons are asked for, in predicted passes) and pipeline_work.c (arithmetic) share. */
#include "runtime/pipeline/pipeline.h"
#include "runtime/pipeline/predictor_prefetch.h"

#include "common/kernels/kernels.h"
#include "common/model/nn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define JOB_ENTRIES 256
#define JOB_LEAST   (128u << 10)  /* of records for a worker, up to BUDGET_JOB_BYTES, and so many for each read in flight: */
#define JOB_PER_READ (16u << 10)  /* what is computed in one go should not take longer than those, for reads start and are
                                   * looked after between jobs */
#define ROWS_MIN    8            /* neighbouring rows from which the contiguous kernel is used */

/* ADMITTED: in the cache, but read in this pass. STAGED: used from the read buffer. */
enum kind { KIND_HOT, KIND_CACHED, KIND_ADMITTED, KIND_STAGED, KIND_MISSING, KIND_READING };
enum list_id { LIST_GATE, LIST_NEURON, LISTS };
enum { DO_GATE = 1, DO_UP = 2 };

struct entry {
    uint8_t *base;        /* its records, when there */
    uint32_t pos0;        /* pack position of the first neuron */
    uint32_t unit;        /* in its part */
    uint32_t where;       /* cache slot or read buffer; hot: how many of its neurons count, once done the active ones */
    uint16_t n;           /* neurons */
    uint8_t kind, done;   /* done: guarded by lock */
};

struct list {
    int part;
    uint8_t work;         /* DO_ bits of its entries */
    struct reads_rule rule; /* constant after new */
    struct entry *e;
    uint32_t cap, n;      /* n: owned by the coordinator */
    uint32_t issue;       /* first entry whose read may not have started; coordinator */
    /* guarded by lock */
    uint32_t *ring, ring_head, ring_n, ring_rows; /* ready entries, neurons that cost something in them */
};

struct pass;

struct buffer {
    struct io_request req;
    struct pass *pass;    /* whose read it is */
    uint32_t refs;        /* entries that use its bytes */
    uint32_t list, first, n; /* its list, its entries */
    uint64_t start;       /* file offset of its first byte */
};

struct tile {
    int col0, n_cols, busy;
    uint32_t done, rows;  /* neuron entries summed; neurons of them */
};

enum job_kind { JOB_NONE, JOB_ENTRIES_READY, JOB_TILE, JOB_HIDDEN, JOB_PREPARE, JOB_SCORES };

struct job {
    enum job_kind kind;
    struct pass *pass;
    int list, n, tile, n_tiles;
    uint32_t idx[JOB_ENTRIES], from, to; /* from, to: entries, rows of the hidden layer, or a range of scores */
    uint32_t rows;                       /* tiles: neurons summed when it is done */
    uint64_t ns;                         /* jobs of prediction: what it took */
};

struct counts {
    uint64_t active_hot, active_cold, active_read, computed; /* computed: gates, in predicted passes */
    struct verify_counts verified;
};

/* What is predicted in a pass. */
struct prediction {
    int on, begun;              /* this pass predicts; it has begun to, or need not */
    const struct predict *q;
    struct acts *in;            /* its input */
    uint8_t *bits, *any;        /* a bit per neuron, [tokens][row_bytes]; [row_bytes], for any of several tokens */
    const uint8_t *want;        /* any, or the only token's bits */
    size_t row_bytes;
    uint32_t always, range, n_ranges; /* ranges begin at always computed, the first neuron that is predicted */
    uint32_t listed;            /* ranges; coordinator */
};

/* The FFN of one (layer, block). */
struct pass {
    struct pipeline *pipe;
    const struct pipeline_config *c;
    /* written by the coordinator before workers start */
    int layer, block, n_tokens;
    uint32_t hot[LAYOUT_MAX_PARTS];
    uint8_t *hot_base[LAYOUT_MAX_PARTS];
    uint32_t fused;       /* hot clusters whose every part is resident: the first so many */
    const void *x[KERNELS_ACT_FORMS];
    size_t x_stride[KERNELS_ACT_FORMS];
    float *rows, *out;    /* f32[n_tokens][n_ff] gate, then h; f32[n_tokens][d_model] */
    uint8_t *active;      /* [n_ff]; a cluster's part is written by its gate job, read when that is done */
    struct prediction pred;
    /* owned by the coordinator */
    struct list list[LISTS];
    uint32_t resolved, retired[LISTS];
    uint32_t new_ready[LISTS][JOB_ENTRIES];
    uint32_t n_new[LISTS];
    /* guarded by lock */
    uint32_t *gate_left;  /* [n_clusters] neurons whose gate is not there */
    uint32_t gate_frontier; /* first cluster with such */
    uint32_t published;   /* neuron entries that exist for workers */
    uint32_t frontier, frontier_rows; /* first of them without h; neurons before it */
    struct tile *tiles;
    int all_resolved, finished;
};

/* Where prediction stands. Passes are predicted one after another: one's ranges of neurons are scored in any order;
 * frontier is the first that is not scored yet, and the coordinator lists what is before it, then begins the next. */
enum stage { STAGE_NONE, STAGE_HIDDEN, STAGE_PREPARE, STAGE_PREPARING, STAGE_SCORES };

struct prediction_state {
    /* constant after new */
    float *hidden, *scores;     /* f32[tokens][rank]; [threads][tokens][BUDGET_SCORE_ROWS] */
    uint8_t *prepared, *bits;   /* fc2's activations; bits of all passes, [rows][row_bytes] */
    uint8_t *scored;            /* [n_clusters]: by range */
    size_t row_bytes, score_floats;
    struct predictor_prefetch *predictor_prefetch;      /* of streamed predictors, or NULL */
    int alone;                  /* nothing else is done now (before attention) */
    /* of the pass that is predicted now: written by the coordinator while stage is STAGE_NONE */
    struct pass *of;            /* or NULL */
    const void *x;              /* its input, prepared */
    size_t x_stride, prepared_stride;
    uint32_t grain;
    int streamed;               /* weights come from the predictor prefetch */
    int picks;                  /* the job that prepares the hidden layer makes it, too */
    /* guarded by lock */
    enum stage stage;
    uint32_t rows, ranges;      /* of the hidden layer, and of neurons, whose weights are there */
    uint32_t next, left;        /* hidden rows, then ranges: not taken yet; not done yet */
    uint32_t frontier;
    int complete;               /* alone, and everything is listed */
    uint64_t ns;                /* of all workers */
};

struct pipeline {
    /* constant after new */
    struct pipeline_config c;
    int n_threads, n_tiles, spin, most; /* most: passes */
    uint32_t buffer_bytes, n_buffers;
    /* written by the coordinator before workers start */
    struct pass *pass;    /* [n_passes], oldest first: what is needed first is read first */
    int n_passes, prepared, predicted;
    struct prediction_state now;
    /* owned by the coordinator */
    struct buffer *buffers;
    uint32_t *free_buffers, n_free;
    struct err *err;
    struct pipeline_stats stats;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int busy, waiters, unfinished, failed, pressure; /* unfinished: passes */
    struct err story;     /* of the first failure */
    int hold;             /* no_overlap: nobody takes a job; 2 when somebody wanted to */
    struct counts counts;
    atomic_uint in_flight; /* reads, when the coordinator last looked */
    atomic_uint version;  /* changes when there may be something to do */
};

/* Neurons of an entry that cost something. */
static inline uint32_t rows_of(const struct entry *e)
{
    return e->kind == KIND_HOT ? e->where : e->n;
}

/* ---- pipeline.c ---- */
void pipeline_changed(struct pipeline *p);  /* lock held */
void pipeline_check_finished(struct pass *p); /* lock held */

/* ---- pipeline_lists.c: the coordinator ---- */
void pipeline_take_lists(struct pass *p);   /* memory, from the account */
void pipeline_reset_lists(struct pass *p);
void pipeline_list_known(struct pass *p);   /* what is known before the activations are */
void pipeline_add_hot(struct pass *p, int list, uint32_t pos0, uint32_t n, uint32_t rows);
void pipeline_add_unit(struct pass *p, int list, uint32_t unit);
void pipeline_flush(struct pass *p);        /* entries that are ready become visible */
void pipeline_prefetch_unit(const struct pass *p, int part, uint32_t unit, int stage);
void pipeline_resolve(struct pass *p);      /* what is known by gates becomes entries */
void pipeline_retire(struct pass *p);       /* unpin, free buffers */
int pipeline_issue(struct pipeline *p, uint32_t most); /* start reads, until so many are in flight */
int pipeline_collect(struct pipeline *p, int wait);

/* ---- pipeline_predict.c ---- */
size_t prediction_row_bytes(const struct pipeline_config *c);
void prediction_take_memory(struct pipeline *p);
int prediction_new(struct pipeline *p, struct err *e);               /* before reads */
int prediction_feed(struct pipeline *p, int ahead);                  /* coordinator: read streamed predictors */
void prediction_reset(struct pass *p);
void prediction_input(struct pass *p, struct acts *in, uint8_t *bits); /* what it will see; where its bits will be */
void prediction_begin(struct pipeline *p);                           /* coordinator: the next pass that has not */
int prediction_take(struct pipeline *p, struct job *j);              /* lock held; 1: got one */
int prediction_work(struct pipeline *p, struct job *j, int worker, struct counts *c, struct err *e);
void prediction_finish(struct pipeline *p, const struct job *j);     /* lock held */
void prediction_list(struct pipeline *p);                            /* coordinator */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bits are looked for eight bytes at a time");

/* Bits i to i + n - 1, n from 1 to 64, the first the least significant. Reads no byte beyond that of the last. */
static inline uint64_t bits_at(const uint8_t *bits, uint32_t i, uint32_t n)
{
    const uint8_t *b = bits + i / 8;
    uint32_t skip = i % 8, n_bytes = (skip + n + 7) / 8;
    uint64_t w = 0;
    if (n_bytes >= 8)
        memcpy(&w, b, 8);
    else
        for (uint32_t k = 0; k < n_bytes; k++)
            w |= (uint64_t)b[k] << 8 * k;
    w >>= skip;
    if (n_bytes == 9)
        w |= (uint64_t)b[8] << (64 - skip);
    return w & UINT64_MAX >> (64 - n);
}

int pipeline_work_entries(const struct job *j, int worker, struct counts *c, struct err *e);
void pipeline_work_tile(const struct job *j, int worker);

#endif
