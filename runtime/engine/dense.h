#ifndef RUNTIME_ENGINE_DENSE_H
#define RUNTIME_ENGINE_DENSE_H

/* The dense work of a forward pass: embeddings, RMS norms, attention over the KV cache, routers, the output head. The engine calls
 * nothing else for it, so an accelerator is another table of these functions; the FFN's neurons are the pipeline's
 * (runtime/pipeline) and stay with the processor. Equations: common/model/nn.h.
 *
 * Every array of the interface is f32 in host memory, a row per token, because the pipeline reads and writes the same ones; an
 * implementation with memory of its own copies d_model floats of a token in and out. The KV cache belongs to the
 * implementation. All work of a call is done when it returns.
 *
 * One thread calls, which is the pool's worker 0. Functions return 0, or ERR_* with its message; then the pass has failed and the
 * next one begins with embed again. Calls are per layer or per pass, never per row.
 *
 * Determinism: a token's results have the same bits however tokens are grouped in calls. Other implementations may give other
 * bits than this one, as another processor tier does. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/kernels/acts.h"
#include "common/kernels/kernels.h"
#include "common/model/graph.h"
#include "common/model/model.h"
#include "common/model/model_fold.h"

#include "runtime/engine/kv_pages.h"
#include "runtime/engine/token.h"

#include <stddef.h>
#include <stdint.h>

struct dense_matrix {           /* [n_rows][n_cols]; of one for each head or input n_rows are the first's */
    const uint8_t *data;
    size_t row_bytes;
    uint32_t type;
    int n_rows, n_cols;
    enum kernels_act form;      /* of its input */
    struct model_fold fold;     /* how it is folded; of a table of embeddings, its rows */
};

/* The tensors that stay in memory, by role: of each layer a row, then one of the model's own. Of vectors, which are float32, data is all
 * that is filled in; a tensor that a layer lacks has no data. */
struct dense_weights {
    struct dense_matrix *rows;  /* [depth + 1][n_slots] */
    int depth, n_slots;
    uint8_t slot[MODEL_ROLES];  /* in a row; 0, which is empty, of roles that the model lacks */
    float *rope_freqs;          /* f32[2][n_rot / 2]: of layers without a window and with one */
};

/* layer -1: the model's own. */
static inline struct dense_matrix *dense_at(const struct dense_weights *w, enum model_role r, int layer)
{
    return &w->rows[(size_t)(layer < 0 ? w->depth : layer) * (size_t)w->n_slots + w->slot[r]];
}

static inline const float *dense_vector(const struct dense_weights *w, enum model_role r, int layer)
{
    return (const float *)(const void *)dense_at(w, r, layer)->data;
}

/* Memory of the account, in the sizes of struct budget_scratch and BUDGET_KV; act is shared with whoever prepares activations
 * between calls. */
struct dense_memory {
    uint8_t *kv;                /* [layer with keys][K, V][kv.rows] rows, then states (struct budget_kv) */
    float *q, *k, *v;           /* f32[tokens][rows of the matrix], of most layers' most; v begins where k ends, and attention uses both as
                                 * scratch once they are in the cache */
    float *attn;                /* f32[tokens][n_heads][head_dim]; latent attention: kv_rank for each head, and then
                                 * [tokens][n_heads][value_dim] */
    float *latent, *made;       /* as budget_scratch has them; or NULL. latent: [tokens][n_heads][nope_dim + n_rot], [tokens][q_rank] */
    float *scores;              /* f32[threads][heads at once][context] */
    float *layered;             /* f32[tokens][layer_embd_all]: what layers see of a pass's embeddings of their own; or NULL */
    float *joined;              /* of a layer that predicts further tokens: f32[tokens][2 d_model]; or NULL */
    float *normed;              /* f32[tokens][d_model]: only head() writes to it */
    float *shared;              /* f32[2][tokens][the wider of n_ff_shared and n_ff_lead]; NULL where there are none */
    void *act;                  /* int8 activations of [tokens] inputs */
};

/* Reads of the layer's FFN may be under way during attention: an implementation calls this now and then, from the thread that
 * called it, and gives up with what it returns below 0. */
struct dense_reads {
    int (*poll)(void *ctx, struct err *e);
    void *ctx;
};

/* Products that something else makes: of n matrices with the same input, out[i] = f32[n_tokens][m[i]->n_rows]. 1: they are there; 0: it
 * does not take these. */
struct dense_elsewhere {
    int (*products)(void *ctx, const struct dense_matrix *const m[], float *const out[], int n, const struct acts *in,
                    const struct dense_reads *reads, struct err *e);
    void *ctx;
};

/* A key or value that is no finite number, in the cache alone or by itself. */
#define DENSE_FITS UINT64_MAX
#define DENSE_MISFIT(pos, layer, itself) ((uint64_t)(pos) << 32 | (uint64_t)(layer) << 1 | (uint64_t)(itself))
static inline int dense_misfit_pos(uint64_t misfit)
{
    return (int)(misfit >> 32);
}

struct row_reads;

/* All that it points to outlives the implementation. */
struct dense_config {
    const struct model_hparams *h;
    const struct dense_weights *w; /* constant */
    struct pool *pool;
    int context, kv_type;
    struct budget_kv kv;
    const struct kv_pages *pages; /* where positions lie; the engine changes it between calls */
    uint64_t *misfits;          /* [max_batch]: DENSE_MISFIT of each sequence's first position whose key or value the KV cache does not
                                 * hold, DENSE_FITS where there is none. Several threads write it. NULL: nobody asks */
    int tokens;                 /* of a call, at most */
    const struct dense_elsewhere *elsewhere; /* or NULL */
    struct row_reads *rows;     /* who has rows of tables without data; or NULL */
    struct dense_memory memory;
};

/* What tokens give that a sequence may take back, and by which its states move on later: of a pass that has 2 to most + 1 of a sequence all
 * but the first. Its states have taken in the first alone when the pass is over. */
struct dense_moves {
    int most;
    size_t token, held;         /* floats: op_need.moves, op_need.held */
    float *tokens;              /* [sequence][layer with a state][most][token] */
    float *of_worker;           /* [thread][held] */
};

enum dense_norm { DENSE_NORM_ATTENTION, DENSE_NORM_FFN, DENSE_NORM_FFN_POST, DENSE_NORM_SHARED, DENSE_NORM_EXPERTS_POST };

/* First member of every implementation's own struct. */
struct dense {
    const struct dense_backend *backend;
};

struct dense_backend {
    const char *name;           /* "cpu" */
    int (*open)(const struct dense_config *c, struct dense **out, struct err *e);
    void (*close)(struct dense *d);

    /* x[t] = row tokens[t].id of the embedding, scaled where the model does so. x: f32[n][d_model]. What layers see of embeddings of their
     * own is made, and kept for layer_embd(). */
    int (*embed)(struct dense *d, const struct engine_token *tokens, int n, float *x, struct err *e);

    /* A layer that predicts further tokens (DeepSeek-V3, arXiv:2412.19437, equation 21):
     * x[t] = mtp_proj . [norm(x[t], mtp_enorm); norm(norm(hidden[t], w), mtp_hnorm)]
     * with x[t] the token's embedding, hidden[t] what the layer before it gave for the token before, and w that layer's output norm,
     * f32[d_model]. hidden: f32[n][d_model], not x. Only for such layers. */
    int (*join)(struct dense *d, const float *hidden, const float *w, int n, float *x, struct err *e);

    /* out[t] = the model's norm of x[t] with the weights of one of the layer's norms. f32[n][d_model]; out may be x. */
    int (*norm)(struct dense *d, int layer, enum dense_norm which, const float *x, int n, float *out, struct err *e);

    /* out[t] = o . Attention(q . in[t], K, V), after k . in[t] and v . in[t] of all tokens of the call, rotated where the layer
     * rotates, were written to the KV cache at (seq, pos), whose page is the sequence's alone. in: the layer's normed input,
     * f32[n_tokens][d_model]; tokens: [n_tokens]; out: f32[n_tokens][d_model], not in; normed where the layer has weights for
     * that. Latent attention (model_hparams.kv_rank) caches what k and v are made of, in one plane. A recurrent layer has the state of
     * each sequence instead (RWKV too), which its tokens, in order and without a gap, move on; position 0 begins with zeros. */
    int (*attention)(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens,
                     const struct dense_reads *reads, float *out, struct err *e);

    /* RWKV: out[t] = what the layer's FFN sees, x[t], its norm, mixed with that of the token before it in the sequence, which is part of
     * the state. f32[n][d_model]; out is not x. Only for models that have such layers, after attention of the same tokens. Their attention
     * keeps the first layer's values of a pass for the others. RWKV-6: it keeps as well what receive() weights with. */
    int (*shift)(struct dense *d, int layer, const struct engine_token *tokens, const float *x, int n, float *out, struct err *e);

    /* RWKV-6: out[t], what the layer's FFN gives, is weighted as the last call of shift(), of the same tokens, found. f32[n][d_model]. */
    int (*receive)(struct dense *d, int n, float *out, struct err *e);

    /* The first n positions of page `from` are those of page `to` from here on, in every layer. */
    int (*copy_page)(struct dense *d, int from, int to, int n, struct err *e);

    /* All positions of a page in every layer, or the state of a sequence in every recurrent layer, to memory of budget_kv_page or
     * budget_kv_state bytes; in: from there. */
    int (*move_page)(struct dense *d, int page, void *memory, int in, struct err *e);
    int (*move_state)(struct dense *d, int seq, void *memory, int in, struct err *e);

    /* Tokens of a sequence can be taken back (struct dense_moves): from here on. Only for models whose states allow it (ops_take_back). */
    void (*keep_moves)(struct dense *d, const struct dense_moves *m);

    /* The state of a sequence in every recurrent layer takes in tokens [from, to) of those that are kept; those before them it has. */
    void (*move_on)(struct dense *d, int seq, int from, int to);

    /* The state of sequence `from` in every recurrent layer is that of `to`, too. Only for models that have such layers. */
    int (*copy_state)(struct dense *d, int from, int to, struct err *e);

    /* logits[t][k] = row k of the layer's router . in[t]. f32[n_tokens][n_experts]. */
    int (*route)(struct dense *d, int layer, struct acts *in, float *logits, struct err *e);

    /* out[t] += w_t FFN(in[t]) with the layer's shared expert, w_t = sigmoid(shared_router . in[t]), or 1
     * without one; what it gives is normed where the layer has weights for that.
     * f32[n_tokens][d_model]; tmp: the same size, written to. Only where there is one. */
    int (*shared)(struct dense *d, int layer, struct acts *in, float *tmp, float *out, struct err *e);

    /* out[t] = what the layer makes of its embedding of the token and of x[t], normed (common/ops/layer_embd.h). f32[n][d_model];
     * out is not x. Only for models that have such embeddings, of the tokens of the last embed(). */
    int (*layer_embd)(struct dense *d, int layer, const float *x, int n, float *out, struct err *e);

    /* x[i] += v[i], or the model's residual_scale of it. f32[n][d_model]. */
    int (*add)(struct dense *d, float *x, const float *v, int n, struct err *e);

    /* logits[t] = output . norm(hidden[t]), scaled and capped as the model has it. hidden:
     * f32[n][d_model], logits: f32[n][n_vocab]; the head's rows are read once
     * for all n. */
    int (*head)(struct dense *d, const float *hidden, int n, float *logits, struct err *e);
};

extern const struct dense_backend dense_cpu_backend;

#endif
