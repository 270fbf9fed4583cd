#ifndef OFFLINE_FORWARD_H
#define OFFLINE_FORWARD_H

/* The dense pass: the whole model over many sequences at once, layer by layer, so that the weights of
 * a layer are read from the file once for all tokens and the model may be larger than memory. With float32
 * activations every other way of running the model is compared with this one. Results depend
 * neither on the number of threads nor on how sequences are grouped into runs. One owner thread. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/model/graph.h"
#include "common/model/model.h"
#include "common/model/predict.h"

#include <stddef.h>
#include <stdint.h>

struct forward;

/* What one layer's FFN did with the tokens of a run; borrowed, valid during the call. */
struct forward_layer {
    int layer;
    size_t n_tokens;
    int n_slots;              /* k: blocks per token; 1 when dense */
    size_t row_bytes;         /* of a bit row in memory: a multiple of 8, bits beyond the layer's n_ff are 0 */
    const uint8_t *active;    /* [n_tokens][k][row_bytes]: bit i%8 of byte i/8: neuron i fired */
    const uint8_t *open;      /* the same for open gates (nn_is_open); the same pointer as active where the gate decides */
    const uint16_t *blocks;   /* [n_tokens][k]: expert of each slot, best first; 0 when dense */
    const uint16_t *foreseen; /* [n_tokens][k], of models that forward_foresees says: what the layer's router chooses from the stream
                               * before the FFN of the layer before it, of the first layer as embedded, as the runtime reads ahead by */
    size_t n_samples;         /* of the tokens asked for: */
    const uint16_t *block_input; /* F16 [n_samples][d_model], residual entering the block */
    const uint16_t *ffn_input;   /* F16 [n_samples][d_model], after ffn_norm */
    const float *ffn_rms;        /* [n_samples], sqrt(mean(x^2) + eps) of the residual before ffn_norm */
};

/* Can experts be foreseen in a model's layers? Where routers are early, they are known anyway. */
static inline int forward_foresees(const struct model_hparams *h)
{
    return h->n_experts > 0 && !h->early_router && h->n_layers > 1;
}

#define FORWARD_TILE 32 /* most tokens that one call of a probe is about */

/* Looking into a run and taking neurons out of it: what a predictor that misses some costs is judged so. Tokens are
 * numbered as in the run. All but `layer` are called by workers, each for tokens of its own. What is NULL is not called. */
struct forward_probe {
    void *ctx;
    /* On the owner thread before each layer. */
    int (*layer)(void *ctx, int layer, struct err *e);
    /* x[n][d_model] of tokens [first, first + n) as predictors see it: first PREDICT_BLOCK, then PREDICT_RESIDUAL, then
     * PREDICT_FFN, all of them before the token's neurons. */
    void (*input)(void *ctx, enum predict_input which, size_t first, int n, const float *x);
    /* gate[n_ff], up[n_ff], the layer's, of a block's neurons for a token, biases added, before thresholds; both may be changed. */
    void (*gates)(void *ctx, int block, size_t token, float *gate, float *up);
    /* h[n][n_ff]: the activations of a block's neurons for these tokens, before the down matrix; may be changed. */
    void (*neurons)(void *ctx, int worker, int block, const size_t *tokens, int n, float *h);
};

/* The tokens of a run: n_sequences sequences, each from its own position 0. */
struct forward_run {
    const uint32_t *tokens;   /* ids */
    const uint64_t *starts;   /* [n_sequences + 1], from 0 */
    size_t n_sequences;
    int act_q8;               /* 1: activations in int8 where a matrix's type has such products (kernels_act_form), as plans
                               * ask for by default, many times as fast; 0: float32 throughout */
    const uint64_t *samples;  /* token indices to sample, ascending; may be NULL */
    size_t n_samples;
    /* Called after each layer, on the owner thread; NULL: nothing is observed. An error ends the run. */
    int (*on_layer)(void *ctx, const struct forward_layer *l, struct err *e);
    void *ctx;
    const struct forward_probe *probe; /* NULL: none */
    /* Called on the owner thread with the residuals, f32[tokens][d_model], as they enter a layer (op OP_EMBED) and after each operation of
     * its graph that changes them; NULL: not. */
    void (*on_op)(void *ctx, int layer, enum op_kind op, const float *x);
};

/* max_len: longest sequence. Model and pool are borrowed. ERR_UNSUPPORTED names a tensor whose type has no
 * kernel. */
int forward_new(const struct model *m, struct pool *pool, int max_len, struct forward **out, struct err *e);
void forward_free(struct forward *f); /* accepts NULL */

/* Run with other gate, up and down matrices than the file's: what a packed model stores is judged so. fn is asked once
 * per layer and role, on the owner thread, and gives F32 rows (all experts; Down as d_model rows of n_ff, whatever the
 * file has), valid until it is asked again; *rows left NULL keeps the file's own. fn NULL ends it. */
typedef int forward_substitute(void *ctx, int layer, enum model_role role, const float **rows, struct err *e);
void forward_set_substitute(struct forward *f, forward_substitute *fn, void *ctx);

/* ERR_INTR after file_interrupted(), checked between layers. ERR_FORMAT for a token id beyond the vocabulary. */
int forward_run(struct forward *f, const struct forward_run *run, struct err *e);

/* Bytes of memory that a run of this many tokens takes, weights included, for --dry-run. */
uint64_t forward_bytes(const struct model *m, int threads, int max_len, uint64_t n_tokens, int observed);

/* Bytes of weights that one pass over the layers reads. */
uint64_t forward_weight_bytes(const struct model *m);

/* Logits of tokens [first, first+n) of the last run: [n][n_vocab]. */
int forward_logits(struct forward *f, size_t first, size_t n, float *logits, struct err *e);

#endif
