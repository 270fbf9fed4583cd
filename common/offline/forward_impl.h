#ifndef OFFLINE_FORWARD_IMPL_H
#define OFFLINE_FORWARD_IMPL_H

/* What the files of the dense pass share: forward.c has set-up, products and order, forward_ffn.c FFNs, experts and routers,
 * forward_attention.c attention, forward_delta.c and forward_wkv.c what other layers have in its place. */
#include "common/offline/forward.h"

#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/offline/weights.h"
#include "common/ops/ops.h"

enum { FORWARD_ROW_BLOCK_BYTES = 128 << 10 };

/* Most tokens that go through a matrix together: unpacking its rows is then a small part of the products. */
enum { FORWARD_BATCH = 512 };

/* A worker's memory. */
struct scratch {
    float *norm, *out;         /* [FORWARD_TILE][d_model], of recurrent layers and routers */
    float *scores;             /* [NN_ATTN_HEADS][max_len] */
    void *act;                 /* [FORWARD_TILE] activations in int8, of recurrent layers */
    float *made, *state;       /* recurrent layers: [FORWARD_TILE][op_need.made]; a sequence's state */
    float *folded;             /* [FORWARD_TILE][the longest input], of folded matrices */
};

/* What all workers share of a batch of tokens; NULL where the model has no use for it. [FORWARD_BATCH] each, but for k and v. */
struct batch {
    float *norm, *out;         /* [d_model] */
    float *gate, *up;          /* [the widest FFN] */
    float *q, *att;            /* [q_len], [op_need.attn]; latent attention: b.att is followed by what the output matrix sees */
    float *k, *v;              /* [max_len or FORWARD_BATCH][kv_len]: of all positions so far of the batch's sequences */
    float *made;               /* [op_need.latent], queries as they are made, then of q_rank; or [op_need.made], queries with gates */
    float *logits;             /* [n_experts]: of routers */
    void *act;                 /* activations in int8, of the matrix with the longest rows */
    float *folded;             /* [the longest input], of folded matrices */
};

/* What a recurrent layer makes of n tokens, at most FORWARD_TILE, of a sequence: from s->norm, into s->out; s->state goes on from tile to
 * tile. first: the first of them in the run; begins: and in its sequence. */
typedef void forward_tile(const struct forward *f, struct scratch *s, size_t first, int n, int begins);

struct forward {
    const struct model *m;     /* constant after forward_new */
    const struct model_hparams *h;
    struct model_hparams own;  /* of the layer of the sweep */
    struct pool *pool;
    int max_len;
    struct op_need cached, recurrent; /* of layers with keys and values, of others */
    size_t d, n_ff, n_shared, q_len, kv_len, k; /* n_ff: of the layer of the sweep */
    size_t row_bytes;          /* of bits, padded */
    float *freqs;              /* [2][n_rot / 2], of layers without a window and with one */
    float *global[MODEL_ROLES]; /* the model's own vectors */
    void *mix;                 /* the matrix of layers' embeddings, likewise */
    void *head;                /* the output matrix, read when asked for */
    struct weights *weights;
    struct scratch *scratch;   /* [threads] */
    struct batch b;

    float *x;                  /* [n_tokens][d]: of the run */
    float *normed;             /* [n_tokens][d]: what the FFN sees, where there are experts, attention goes beside it or it shifts */
    float *values;             /* [n_tokens][d]: RWKV's of the first layer */
    float *layered;            /* [n_tokens][layer_embd_all]: what layers see of embeddings of their own */
    float *kept;               /* [2][2][cap_tokens][kv_len]: keys and values that later layers attend to, without a window and with one */
    float *sum;                /* the same: where what experts give is normed before it is added */
    size_t n_tokens, cap_tokens, cap_bits, cap_samples;
    uint8_t *active, *open;
    uint16_t *blocks;          /* [n_tokens][k] */
    float *route_w;            /* [n_tokens][k] */
    float *before;             /* [n_tokens][d], where experts are foreseen and observed: the stream before the FFN of the layer before, at
                                * first as embedded */
    uint16_t *foreseen;        /* [n_tokens][k] */
    uint32_t *expert_tokens;   /* [n_tokens]: of the expert being computed: token * k + slot */
    uint32_t *pos;             /* [n_tokens]: in its sequence */
    int32_t *sample_of;        /* [n_tokens]: -1, or which sample */
    uint16_t *block_input, *ffn_input;
    float *ffn_rms;
    const struct forward_run *run;
    int act_q8;                /* of the last run */

    int layer;                 /* of the sweep */
    void (*mixer)(struct forward *f); /* its attention's run */
    forward_tile *tile;
    const void *const *w;      /* by role */

    forward_substitute *substitute; /* matrices of somebody else */
    void *substitute_ctx;
    const void *mixed[MODEL_ROLES]; /* w, with them in place */
    struct gguf_tensor other[MODEL_ROLES];
    int replaced[MODEL_ROLES];
    uint8_t *down;             /* a layer's Down in rows, of a file that has it by neuron */
};

/* ---- forward.c ---- */

/* The layer's tensor of a role; NULL: it has none. Its data is f->w[r]. */
const struct gguf_tensor *forward_tensor(const struct forward *f, enum model_role r);

/* A matrix of the model's own, read whole into *data unless it is there. */
int forward_load(const struct forward *f, const struct gguf_tensor *t, void **data, struct err *e);

/* The form of activations that a matrix of this type is multiplied with. */
enum kernels_act forward_form(const struct forward *f, uint32_t type);

/* A product of a batch: out[t * stride + r] = row r . x_t for all rows of a matrix, or of one expert's share of it. */
struct forward_product {
    const struct gguf_tensor *t;
    const void *data;
    int expert;
    float *out;
    size_t stride;
};

/* Several of the same n_tokens inputs, at most FORWARD_BATCH, of x_stride floats: by all workers, on the owner thread. */
enum { FORWARD_PRODUCTS = 4 };
void forward_products(struct forward *f, const struct forward_product *p, int n_products, const float *x, size_t x_stride, int n_tokens);

/* One, of a role's matrix which is not of experts; out's stride is its rows. */
void forward_batch_matrix(struct forward *f, enum model_role r, float *out, const float *x, int n);

/* The same by one worker alone, for at most FORWARD_TILE tokens. */
void forward_matrix(const struct forward *f, struct scratch *s, enum model_role r, float *out, const float *x, int n);

/* x += what a recurrent layer makes of all sequences of the run, each by one worker, from a state of zeros. */
void forward_sequences(struct forward *f, forward_tile *tile);

/* A matrix of experts likewise. */
void forward_tile_product(const struct forward *f, struct scratch *s, const struct forward_product *p, const float *x, size_t x_stride,
                          int n);

/* The model's norm of n tokens, with weights w and bias, f32[d_model], NULL where the model has none; out may be x. */
void forward_norm(const struct forward *f, float *out, const float *x, const float *w, const float *bias, int n);

/* x += out of n tokens, normed before where there are weights w for that. */
void forward_add_residual(const struct forward *f, float *x, float *out, const float *w, int n);

float forward_residual_scale(const struct forward *f);
void forward_add_bias(float *x, const float *bias, size_t n);
void forward_probe_input(const struct forward *f, enum predict_input which, size_t first, int n, const float *x);

/* Samples saturate: an infinity would spoil whatever is fitted to them. */
void forward_sample_f16(uint16_t *out, const float *x, size_t n);

/* ---- forward_ffn.c ---- */

/* The experts of all tokens, from f->x: route sees what it sees (h->early_router: the stream before attention). */
void forward_route(struct forward *f);

/* f->foreseen, from f->before. */
void forward_foresee(struct forward *f);

/* x += the layer's FFN, of all tokens of the run: of one block, of a layer before the experts', of experts. */
void forward_ffn(struct forward *f);

/* f->normed of all tokens, where there are experts, attention goes beside the FFN or the FFN sees the token before. */
void forward_norm_all(struct forward *f);

/* ---- forward_layer_embd.c ---- */

/* f->layered of the run's tokens, from f->x as embedded. */
int forward_layer_inputs(struct forward *f, struct err *e);

/* x += what the layer makes of its embeddings. */
void forward_layer_embd(struct forward *f);

/* ---- forward_NAME.c ---- */

/* x += the layer's attention, or what it has in its place, of all sequences of the run. */
#define MIXER(kind, name, here) void forward_##name(struct forward *f);
#include "common/model/operations.def"

/* ---- forward_wkv.c ---- */

/* What the FFN sees of n tokens of the run from `first` on: f->normed of each mixed with that of the token before it. */
void forward_shift(const struct forward *f, float *out, size_t first, int n);

/* RWKV-6: out, what the FFN gives n tokens, f32[n][d_model], is weighted by its receptance. */
void forward_receive(const struct forward *f, struct scratch *s, float *out, size_t first, int n);

#endif
