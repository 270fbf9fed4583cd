#ifndef RUNTIME_PIPELINE_IMPL_H
#define RUNTIME_PIPELINE_IMPL_H

/* What pipeline.c (lists, cache, reads, who does what) and pipeline_work.c (arithmetic) share. */
#include "runtime/internal.h"

#include <pthread.h>
#include <stdatomic.h>

#define JOB_ENTRIES 32
#define JOB_BYTES   (128u << 10) /* of records that a worker takes at a time */
#define DOWN_ROWS   512          /* before a worker looks for something better */
#define ROWS_MIN    8            /* neighbouring rows from which the contiguous kernel is used */

/* ADMITTED: in the cache, but read in this pass. STAGED: used from the read buffer. */
enum kind { KIND_HOT, KIND_CACHED, KIND_ADMITTED, KIND_STAGED, KIND_MISSING, KIND_READING };
enum list_id { LIST_GATE, LIST_NEURON, LISTS };
enum { DO_GATE = 1, DO_UP = 2 };

struct entry {
    const uint8_t *base;  /* its records, when there */
    uint32_t pos0;        /* pack position of the first neuron */
    uint32_t unit;        /* in its part */
    uint32_t where;       /* cache slot or read buffer */
    uint16_t n;           /* neurons */
    uint8_t kind, done;   /* done: guarded by lock */
};

struct list {
    int part;
    uint8_t work;         /* DO_ bits of its entries */
    struct entry *e;
    uint32_t cap, n;      /* n: owned by the coordinator */
    uint32_t issue;       /* first entry whose read may not have started; coordinator */
    /* guarded by lock */
    uint32_t *ring, ring_head, ring_n; /* ready entries */
};

struct buffer {
    struct io_request req;
    uint32_t refs;        /* entries that use its bytes */
    uint32_t list, first, n; /* whose read it is */
    uint64_t start;       /* file offset of its first byte */
};

struct tile {
    int col0, n_cols, busy;
    uint32_t done;        /* neuron entries summed */
};

enum job_kind { JOB_NONE, JOB_ENTRIES_READY, JOB_TILE };

struct job {
    enum job_kind kind;
    int list, n, tile;
    uint32_t idx[JOB_ENTRIES], from, to;
};

struct counts {
    uint64_t active_hot, active_cold, active_read;
};

struct pipeline {
    struct engine *g;
    /* constant after new */
    int n_threads, n_tiles, spin;
    uint32_t buffer_bytes, n_buffers;
    /* of a pass: written by the coordinator before workers start */
    int layer, block, n_tokens, prepared;
    uint32_t hot[LAYOUT_MAX_PARTS];
    const uint8_t *hot_base[LAYOUT_MAX_PARTS];
    uint32_t fused;       /* hot clusters whose every part is resident */
    const void *x[KERNELS_ACT_FORMS];
    size_t x_stride[KERNELS_ACT_FORMS];
    float *rows, *out;    /* f32[n_tokens][n_ff] gate, then h; f32[n_tokens][d_model] */
    uint8_t *gather;      /* per worker */
    uint8_t *active;      /* [n_ff]; a cluster's part is written by its gate job, read when that is done */
    /* owned by the coordinator */
    struct list list[LISTS];
    struct buffer *buffers;
    uint32_t *free_buffers, n_free, resolved, retired[LISTS];
    uint32_t new_ready[LISTS][JOB_ENTRIES];
    uint32_t n_new[LISTS];
    uint64_t stall_ns;
    struct err *err;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint32_t *gate_left;  /* [n_clusters] neurons whose gate is not there */
    uint32_t gate_frontier; /* first cluster with such */
    uint32_t published;   /* neuron entries that exist for workers */
    uint32_t frontier;    /* first of them without h */
    struct tile *tiles;
    int busy, waiters, all_resolved, finished, failed, pressure;
    int hold;             /* no_overlap: nobody takes a job; 2 when somebody wanted to */
    struct counts counts;
    atomic_uint version;  /* changes when there may be something to do */
};

void pipeline_work_entries(struct pipeline *p, const struct job *j, int worker, struct counts *c);
void pipeline_work_tile(struct pipeline *p, const struct job *j, int worker);

#endif
