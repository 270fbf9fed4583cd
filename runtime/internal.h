#ifndef RUNTIME_INTERNAL_H
#define RUNTIME_INTERNAL_H

/* What engine.c, engine_forward.c, load.c and pipeline.c share. */
#include "common/kernels.h"
#include "common/nn.h"
#include "common/pool.h"

#include "runtime/arena.h"
#include "runtime/engine.h"

struct matrix {                 /* dense weights, [n_rows][n_cols] */
    const uint8_t *data;
    uint32_t type;
    int n_rows, n_cols;
    size_t row_bytes;
    enum kernels_act form;      /* of its input */
};

struct layer {
    struct matrix q, k, v, o, router;
    const float *attn_norm, *ffn_norm, *q_bias, *k_bias, *v_bias;
};

/* Activations of the tokens of a pass in the forms that matrices ask for; the q8 form is made when first asked for. */
struct acts {
    const float *f32;
    int n_cols, n_tokens, has_q8;
};

struct pipeline;

struct engine {
    /* constant after open */
    struct engine_config c;
    struct model_hparams h;
    struct layout_shape shape;
    struct budget budget;
    struct budget_scratch scratch;
    struct arena arena;
    struct pool *pool;
    struct io *io;
    struct layer *layers;
    struct matrix embd, output;
    const float *output_norm;
    float *rope_freqs, attn_scale;
    int n_blocks, n_parts, dense_mode;
    struct predict *predictors;    /* [layer][block], or NULL; without weights where they are streamed */
    struct predict_pieces *pieces; /* [layer][block], of those */
    uint64_t *hot_at;              /* [layer][block][part]: offset in the hot region */
    uint64_t *cold_at;             /* [layer][part]: offset in the cold region */
    struct cache **caches;         /* [layer][part] */
    uint8_t *hot, *cold, *staging, *kv;
    uint8_t *load_at;              /* buffers of loading */
    uint32_t load_piece, load_depth;
    size_t kv_row_bytes, kv_one_bytes; /* of a position; of K or V of a layer of a sequence */
    /* scratch of a pass */
    float *x, *xn, *acc, *mix, *picked, *block_in, *q, *k, *v, *attn, *scores, *logits, *ffn, *router;
    struct kernels_q8_block *act_q8;
    struct pipeline *pipe;
    float *sampler;
    int32_t *token_memory;
    int *n_pos;                    /* [max_batch] */
    int n_tokens;                  /* of the last pass */
    int predicted;                 /* this pass computes only what is foretold */
    struct engine_stats stats, base; /* base: what reset subtracts (counters of caches and io) */
};

static inline size_t engine_hot_index(const struct engine *g, int layer, int block, int part)
{
    return ((size_t)layer * (size_t)g->n_blocks + (size_t)block) * (size_t)g->n_parts + (size_t)part;
}

static inline uint32_t engine_hot_neurons(const struct engine *g, int layer, int block, int part)
{
    return g->c.choice.hot ? g->c.choice.hot[engine_hot_index(g, layer, block, part)] : 0;
}

/* Does this pass foretell the neurons of a layer? */
static inline int engine_predicts(const struct engine *g, int layer)
{
    return g->predicted && g->predictors && g->c.predictor[layer] >= 0;
}

/* Are the predictors of a layer read whenever they are used? */
static inline int engine_streams(const struct engine *g, int layer)
{
    return g->c.streamed && g->c.streamed[layer] && g->c.predictor[layer] >= 0;
}

/* ---- load.c ---- */
int load_begin(struct engine *g, struct err *e); /* opens a read backend for what follows, into g->io */
void load_drain(struct engine *g); /* after an error: waits for reads that point to what the caller will free */
int load_dense(struct engine *g, struct err *e);
int load_predictors(struct engine *g, struct err *e);
/* ---- load_neurons.c ---- */
int load_neurons_hot(struct engine *g, struct err *e);
int load_neurons_cold(struct engine *g, struct err *e);

/* ---- engine.c ---- */
int engine_open_io(struct engine *g, uint8_t *region, size_t bytes, int depth, struct err *e);

/* ---- engine_forward.c ---- */
/* Activations in a matrix's form; *stride is what separates tokens. */
const void *engine_acts(struct engine *g, struct acts *a, enum kernels_act form, size_t *stride);

/* ---- pipeline.c ---- */
struct pipeline *pipeline_new(struct engine *g, struct err *e);
void pipeline_free(struct pipeline *p);

/* The FFN of one (layer, block) comes next: look its gates up and start reading what is missing of them. Optional;
 * pipeline_run does it otherwise. */
int pipeline_prefetch(struct pipeline *p, int layer, int block, struct err *e);

/* Where the pass foretells the layer's neurons from another input than the FFN's: do it now, from `in`, and start reading
 * what is missing. The bytes of `in` are not needed afterwards. */
int pipeline_predict(struct pipeline *p, int layer, int block, struct acts *in, struct err *e);

/* Between the parts of an attention: take what has arrived and start more reads. */
int pipeline_poll(struct pipeline *p, struct err *e);

/* Bytes of streamed predictors read so far. */
uint64_t pipeline_predictor_bytes(const struct pipeline *p);

/* out[t][d_model] = FFN of (layer, block) on n_tokens activations. rows: scratch f32[n_tokens][n_ff]. */
int pipeline_run(struct pipeline *p, int layer, int block, struct acts *in, float *rows, float *out, struct err *e);

#endif
