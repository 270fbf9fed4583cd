#ifndef RUNTIME_ENGINE_ENGINE_IMPL_H
#define RUNTIME_ENGINE_ENGINE_IMPL_H

/* What the files of the engine share. */
#include "common/base/pool.h"
#include "common/kernels/acts.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/plan/expert_ahead.h"

#include "runtime/engine/arena.h"
#include "runtime/engine/dense.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/row_reads.h"
#include "runtime/io/verify.h"
#include "runtime/pipeline/pipeline.h"

struct engine {
    /* constant after open */
    struct engine_config c;
    struct model_hparams h;
    const struct layout_shapes *shapes; /* of the pack */
    struct budget budget;
    struct budget_scratch scratch;
    struct arena arena;
    struct pool *pool;
    struct io *io;
    struct row_reads *rows;        /* of tables that are not in memory; NULL: there are none */
    struct dense_weights weights;
    struct model_fold fold_in, fold_ff; /* of Gate and Up, of Down, where the model has folded FFNs */
    struct graph_layer *graph;     /* [layer] */
    struct pipeline_bias *biases;  /* [layer] */
    struct dense *dense;
    int n_blocks, n_parts, dense_mode;
    struct predict *predictors;    /* [layer][block], or NULL; without weights where they are streamed */
    struct predict_pieces *pieces; /* [layer][block], of those */
    uint64_t *hot_at;              /* [layer][block][part]: offset in the hot region */
    uint64_t *cold_at;             /* [layer][part]: offset in the cold region */
    struct cache **caches;         /* [layer][part] */
    struct verifier verifier;
    int n_row_checks;              /* streamed predictors whose checksums are there */
    uint8_t *hot, *cold, *staging, *area, *kv; /* area: of FFNs' rest, in staging; NULL: there is none */
    struct budget_kv kv_shape;
    struct kv_pages pages;
    void *prefixes;                /* what kv_prefix.h needs; owned */
    struct kv_store *store;        /* or NULL */
    struct kv_slot *slots;         /* [n]: states that are kept, owned; their bytes: */
    uint8_t *states;
    uint8_t *load_at;              /* buffers of loading */
    uint32_t load_piece, load_depth;
    struct engine_loading loading;
    /* scratch of a pass */
    float *x, *xn, *acc, *mix, *picked, *block_in, *logits, *ffn, *router;
    float *sums, *seen;            /* experts: their outputs; what their predictors see */
    struct kernels_q8_block *act_q8;
    uint8_t *picked_q8, *seen_q8;
    struct pipeline *pipe;
    struct pipeline_memory pipe_memory;
    float *sampler;
    int32_t *token_memory;
    int *taken;                    /* [max_batch]: sequences that somebody has */
    int *state_pos;                /* [max_batch]: positions that the state of recurrent layers has taken in; -1: lost, a pass failed */
    int *state_sure;               /* [max_batch]: of those the first, which it cannot give back; what the others moved is kept, */
    int *moves_pos;                /* [max_batch]: the first of them at this position; */
    float *moves;                  /* NULL: nothing is */
    int most_moves;
    uint64_t *misfits;                /* [max_batch]: struct dense_config.misfits */
    const struct cancel *watched;  /* engine_watch; while it is opened, the configuration's */
    int (*stop)(const void *ctx);  /* engine_stop_when */
    const void *stop_ctx;
    int way;                       /* index in c.variants */
    int by;                        /* who computes this pass: index in c.batches, n_batches: the choice; -1: not set */
    const float *after, *after_norm; /* of this pass of a layer that predicts further tokens: what its tokens follow, and its norm */
    int predicted;                 /* this pass computes only what is predicted */
    uint16_t expected[EXPERT_AHEAD_TOKENS * MODEL_MAX_EXPERTS]; /* experts that the layer expected_of is expected to use, token by token */
    int expected_of, n_expected;   /* n_expected 0: none are */
    uint64_t pass;                 /* passes begun */
    int broken, lost;              /* a pass failed: renew first; reads never came back: there is no more reading */
    int unloaded;                  /* a resize failed: what is resident is not there, and loaded first */
    struct engine_accel *accel;    /* or NULL */
    struct engine_stats stats, base; /* base: what reset subtracts (counters of caches, io and pipeline) */
};

/* The states of a sequence have taken in so many positions, for good. */
static inline void engine_set_state(struct engine *g, int seq, int n)
{
    g->state_pos[seq] = g->state_sure[seq] = n;
}

/* And of those that can be taken back, these first n. */
static inline void engine_move_on(struct engine *g, int seq, int n)
{
    if (n <= g->state_sure[seq] || !g->moves)
        return;
    g->dense->backend->move_on(g->dense, seq, g->state_sure[seq] - g->moves_pos[seq], n - g->moves_pos[seq]);
    g->state_sure[seq] = n;
}

static inline size_t engine_hot_index(const struct engine *g, int layer, int block, int part)
{
    return ((size_t)layer * (size_t)g->n_blocks + (size_t)block) * (size_t)g->n_parts + (size_t)part;
}

static inline uint32_t engine_hot_neurons(const struct engine *g, int layer, int block, int part)
{
    return g->c.choice.hot ? g->c.choice.hot[engine_hot_index(g, layer, block, part)] : 0;
}

/* The first unit that is not in the resident prefix. */
static inline uint32_t engine_first_cold(const struct engine *g, int layer, int block, int part)
{
    uint32_t per = layout_of(g->shapes, layer)->part[part].neurons_per_unit;
    return (engine_hot_neurons(g, layer, block, part) + per - 1) / per;
}

/* Does this pass predict the neurons of a layer? */
static inline int engine_predicts(const struct engine *g, int layer)
{
    return g->predicted && g->predictors && g->c.predictor[layer] >= 0;
}

/* Are the predictors of a layer read whenever they are used? */
static inline int engine_streams(const struct engine *g, int layer)
{
    return g->c.streamed && g->c.streamed[layer] && g->c.predictor[layer] >= 0;
}

/* How passes are made: threads and depth of those that no batch size holds. */
static inline struct engine_way engine_way_of(const struct engine *g, int way)
{
    const struct budget_choice *c = &g->c.choice;
    return way ? g->c.variants[way] : (struct engine_way){ g->c.io, c->threads, c->queue_depth, c->io_lanes, 0, g->c.no_ahead };
}

/* ---- engine.c ---- */
void engine_index(struct engine *g); /* fills hot_at, cold_at and checks_at in, for the choice */

/* ---- load.c ---- */
int load_begin(struct engine *g, struct err *e); /* opens a read backend for what follows, into g->io */
void load_drain(struct engine *g); /* after an error: waits for reads that point to what the caller will free */
int load_dense(struct engine *g, struct err *e);
int load_checks(struct engine *g, struct err *e);
/* ---- load_predictors.c ---- */
int load_predictors(struct engine *g, struct err *e);
/* ---- load_neurons.c ---- */
int load_neurons_hot(struct engine *g, const uint32_t *had, struct err *e); /* had: as choice.hot, of what is there; NULL: nothing */
int load_neurons_cold(struct engine *g, struct err *e);

/* ---- engine_reading.c ---- */
int engine_open_io(struct engine *g, uint8_t *region, size_t bytes, int depth, struct err *e);
int engine_open_rows(struct engine *g, struct err *e); /* when all is loaded */
int engine_open_reading(struct engine *g, struct err *e);
int engine_stop_reading(struct engine *g, struct err *e); /* waits for reads; counters are kept */
void engine_empty_caches(struct engine *g);
int engine_renew(struct engine *g, struct err *e);

/* ---- engine_resize.c ---- */
int engine_reload(struct engine *g, const uint32_t *had, struct err *e); /* after engine_stop_reading: checksums, and neurons beyond had */

/* ---- engine_accel.c ---- */
int engine_accel_open(struct engine *g, struct err *e);   /* when all weights are there */
int engine_accel_close(struct engine *g);                 /* 1: memory is still in use */
void engine_accel_use(struct engine *g, int n);           /* a pass of n tokens begins */
const uint32_t *engine_accel_beside(const struct engine *g); /* struct pipeline_config.beside, or NULL */
const struct dense_elsewhere *engine_accel_products(struct engine *g); /* struct dense_config.elsewhere, or NULL */
/* pipeline_run, with the accelerator's share of it. */
int engine_accel_run(struct engine *g, int layer, struct pipeline_ffn *f, int n, struct err *e);

/* ---- engine_forward.c ---- */
int engine_add_residual(struct engine *g, const float *v, int n, struct err *e);

/* ---- engine_ffn.c ---- */
int engine_route(struct engine *g, int layer, int early, int n, struct err *e);
/* The layer after this one in the order of passes, or -1 where that is one that stays in memory; the first of all after -1. far: those that
 * stay in memory are left out. */
int engine_layer_after(const struct engine *g, int layer, int far);

int engine_prefetch(struct engine *g, int layer, int n, struct err *e);   /* gates that have to be read */
int engine_look_ahead(struct engine *g, int layer, struct acts *in, struct err *e); /* in: what attention sees */
/* Where the layer after this one is the first with experts, and the one before it has none: begins to read those that its router would
 * choose now. -1: before the first layer, when the tokens are embedded. */
int engine_expect(struct engine *g, int layer, int n, struct err *e);
int engine_predict_residual(struct engine *g, int layer, int n, struct err *e); /* where that is what the layer's predictor sees */
int engine_ffn(struct engine *g, int layer, int n, struct err *e); /* x += the FFN of what is in xn */

#endif
