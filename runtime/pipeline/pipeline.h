#ifndef RUNTIME_PIPELINE_PIPELINE_H
#define RUNTIME_PIPELINE_PIPELINE_H

/* The FFN of a block, or of several blocks of a layer together, from neurons that are resident, cached or still in the file:
 * PowerInfer-2's neuron cluster pipeline (arXiv:2406.06282, section 4.3). runtime/README.md has its picture and the rules
 * of pins, buffers and locks by number.
 *
 * One thread, which is the pool's worker 0 and the coordinator, calls everything here. After an error a pipeline can only be
 * freed. */
#include "common/base/err.h"
#include "common/kernels/acts.h"

#include "runtime/pipeline/config.h"
#include "runtime/pipeline/rest_reads.h"

#include <stdint.h>

struct pipeline;

/* Running totals since pipeline_new; times in ns. */
struct pipeline_stats {
    uint64_t gate_lookups, gate_hits;         /* of the cold cache, in parts that hold gates */
    uint64_t neurons_hot, neurons_cold, neurons_read; /* active ones, by where they were found */
    uint64_t neurons_possible;                /* blocks that ran x n_ff */
    uint64_t neurons_computed;                /* of those, whose gates were: all but for predicted passes */
    uint64_t neurons_scored;                  /* by predictors: neither always computed nor an accelerator's */
    uint64_t predict_ns;                      /* predictions; where they overlap with other work, their share */
    uint64_t predict_stall_ns;                /* of stall_ns, before attention, for predictors that are streamed */
    uint64_t stall_ns;                        /* nobody could compute: waiting for reads; of FFNs' rest, waiting for a piece */
    struct verify_counts verified;            /* ns: sum over threads, a part of the times above */
    uint64_t predictor_bytes;                 /* of streamed predictors, read */
    uint64_t prefetched, prefetches_used;     /* units of the cold cache that were read ahead, and those of them that were needed */
};

/* Takes its memory from the configuration, and from malloc a table of tiles per block. NULL: ERR_NOMEM, ERR_IO. */
struct pipeline *pipeline_new(const struct pipeline_config *c, struct err *e);
void pipeline_free(struct pipeline *p); /* after the backend is closed; accepts NULL */

/* From the next pass on so many of the pool's threads take part (pool_use), and so many reads are in flight; no more of either than
 * the configuration has. Between passes. */
void pipeline_use(struct pipeline *p, int threads, int depth);

/* From the next layer on, the config's `beside`. Between layers. */
void pipeline_beside(struct pipeline *p, const uint32_t *beside);

/* From the next layer on FFNs are left out beyond what is resident of them, of these layers, in this order, and of none where n is 0: their
 * rests are read instead, ahead of the layers, one piece after another. Only with an area, and one FFN a layer; layers outlives that. */
void pipeline_leave_rest(struct pipeline *p, const int *layers, int n);

/* A forward pass begins. predicted: layers that have predictors compute only what those predict. */
void pipeline_begin(struct pipeline *p, int predicted);

/* The FFN of one block of a layer. Those that are given together run together: what a later one reads is on its way
 * while an earlier one computes. */
struct pipeline_ffn {
    int block;
    int passing;                /* 1: for it nothing goes from the cold cache, and what it finds there is the first to go: see block.h */
    struct acts in;             /* [n_tokens][d_model] */
    struct acts seen;           /* what its predictor sees, as many tokens; f32 NULL: in */
    float *rows, *out;          /* scratch f32[n_tokens][n_ff]; f32[n_tokens][d_model] */
};

/* These blocks of a layer come next: look their gates up and start reading what is missing of them. Optional;
 * pipeline_run does it otherwise. 1 <= n <= scratch.blocks here and below, tokens together at most scratch.rows. */
int pipeline_prefetch(struct pipeline *p, int layer, const struct pipeline_ffn *f, int n, struct err *e);

/* Where the pass predicts the layer's neurons from another input than the FFN's: do it now, from `seen`, and
 * start reading what is missing. The bytes of `seen` are not needed afterwards. pipeline_run of the same blocks comes next. */
int pipeline_predict(struct pipeline *p, int layer, struct pipeline_ffn *f, int n, struct err *e);

/* Can anything of a layer be read before its blocks are chosen? To be asked once a pass, before pipeline_expect. */
int pipeline_expects(struct pipeline *p, int layer);

/* These blocks of a later layer will probably come next, likeliest first: what is missing of them is read when nothing else is
 * (expert_prefetch.h). Replaces what was expected before. */
void pipeline_expect(struct pipeline *p, int layer, const uint16_t *blocks, int n);

/* These blocks come after those of the next pipeline_run, surely or very likely: what is missing of them is read into buffers that are
 * free when all of that is on its way (read_queue_follow). Replaces what followed before; n 0: nothing. */
void pipeline_follow(struct pipeline *p, int layer, const uint16_t *blocks, int n);

/* The next piece of a layer's rest, verified: 1, in *out, which it stays until pipeline_rest_done; 0: all were given. Waits for reads.
 * After pipeline_run of that layer. pipeline_rest_poll, meanwhile: take what has arrived, start more reads. */
int pipeline_rest_next(struct pipeline *p, int layer, struct rest_data *out, struct err *e);
int pipeline_rest_poll(struct pipeline *p, struct err *e);
int pipeline_rest_done(struct pipeline *p, struct err *e);

/* Between layers: is nothing on its way, so that another pass may begin here? */
int pipeline_quiet(const struct pipeline *p);

/* Between passes, before pipeline_free where caches stay: waits for what is on its way, and nothing in them is held. */
int pipeline_drain(struct pipeline *p, struct err *e);

/* Between the parts of an attention: take what has arrived and start more reads. */
int pipeline_poll(struct pipeline *p, struct err *e);

/* The next pipeline_run calls fn(ctx) once, on the calling thread, as its first act when the other threads may work: for what has them wait
 * otherwise. Where it fails before, nobody calls it. */
typedef void pipeline_fn(void *ctx);
void pipeline_at_start(struct pipeline *p, pipeline_fn *fn, void *ctx);

/* f[i].out = FFN of (layer, f[i].block) on f[i].in. */
int pipeline_run(struct pipeline *p, int layer, struct pipeline_ffn *f, int n, struct err *e);

struct pipeline_stats pipeline_stats(const struct pipeline *p);

#endif
