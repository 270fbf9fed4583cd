#ifndef COMMON_MODEL_HPARAMS_H
#define COMMON_MODEL_HPARAMS_H

/* A model's hyper-parameters: plain data, which model.h reads from a file. */

#include <stddef.h>
#include <string.h>

#define MODEL_MAX_LAYERS  1024
#define MODEL_MAX_EXPERTS 1024
#define MODEL_MAX_DIM     (1 << 20)
#define MODEL_MAX_VOCAB   (1 << 22)
#define MODEL_MAX_CONTEXT (1 << 24)
#define MODEL_MAX_DELTA   512 /* delta_dim */
#define MODEL_MAX_CONV    64  /* conv_width */
#define MODEL_MAX_BLOCKS  256 /* model_hparams.blocks and its end; layers of several widths */
#define MODEL_FIRST_POSITION 2 /* OPT's first two rows of positions are no position's */

enum model_act { MODEL_ACT_SILU, MODEL_ACT_RELU, MODEL_ACT_DRELU, MODEL_ACT_SWIGLU_OAI, MODEL_ACT_GELU,
                 MODEL_ACT_GELU_UNGATED, MODEL_ACT_RELU_UNGATED, MODEL_ACTS };
enum model_rope { MODEL_ROPE_NORM, MODEL_ROPE_NEOX };
/* How the weights of the chosen experts follow from the router's logits; nn_route has the formulas. */
enum model_router { MODEL_ROUTER_NONE, MODEL_ROUTER_SOFTMAX_TOPK, MODEL_ROUTER_SIGMOID_TOPK, MODEL_ROUTER_SOFTMAX_ALL, MODEL_ROUTERS };
/* RMS norms of queries and keys before rotation: of each head by itself, all with one vector of weights, or of whole rows. */
enum model_qk_norm { MODEL_QK_NORM_NONE, MODEL_QK_NORM_HEAD, MODEL_QK_NORM_ROW };

/* What the file's ffn_up holds: Up; Gate's rows and then Up's; or Up of a FFN without a gate, h = act(up), which is computed as
 * relu(up) * up where act is ReLU^2. */
enum model_ffn_up { MODEL_FFN_UP_ALONE, MODEL_FFN_UP_FUSED, MODEL_FFN_UP_UNGATED };

struct model_hparams {
    char arch[32];               /* "llama", "smallthinker" */
    char name[96];               /* general.name, cut */
#define STATED(name, least, most) int name;
#define SPARE(name, least, most) int name;
#define REAL(name) float name;
#define LETTERS(name) char name[MODEL_MAX_BLOCKS];
#define BY_LAYER(name, least, most) int name[MODEL_MAX_BLOCKS];
#include "common/model/hparams.def"
    int n_nextn;                 /* layers at the file's end that predict further tokens: left out */
    int mtp;                     /* 0, or this is the first of those by itself, the file's blk.mtp: one layer, whose input is
                                  * made of a token's embedding and what the model's last layer gave (MODEL_MTP_*) */
    int shared_gated;            /* the expert that every token uses is weighted by a sigmoid */
    int n_groups, n_groups_used; /* of experts: those of so many groups, by the sum of a group's two best, can be chosen */
    float expert_scale;          /* of the chosen experts' weights; 0: 1 */
    int select_bias;             /* 1: experts are chosen by score + bias, weighted by it (sigmoid alone); 2: in layers with biases */
    int delta_tiled;             /* value head i belongs to key head i % delta_k_heads; else to i / (delta_v_heads / delta_k_heads) */
    int delta_joined;            /* one matrix gives betas and alphas, of each key head's value heads in turn */
    int fold_grouped;            /* what a gated delta net's folded output matrix sees has value heads in the order of key heads:
                                  * delta_place */
    float rope_theta_window;     /* 0, or of layers with a window, whose positions are not scaled */
    float rope_mscale;           /* of rotated queries and keys: 1, but for yarn and longrope */
    int long_context;            /* 0, or longrope's original context: one beyond it divides frequencies by ROPE_LONG, others by
                                  * ROPE_SHORT */
    int yarn_context;            /* 0, or yarn's original context: frequencies that turn */
    float yarn_fast, yarn_slow;  /* more than `fast` times in it are not scaled, fewer than `slow` times are in full */
    float embd_scale, residual_scale, logit_scale; /* factors of embeddings, of what attention and FFN add, of logits; 0: none */
    int embd_normed;             /* embeddings are normed, without weights */
    float post_eps;              /* of the norms of what attention and FFN give; 0: rms_eps */
    float attn_scale;            /* of the products of queries and keys; 0: 1 / sqrt(head_dim) */
    float temperature;           /* 0, or queries at position p are multiplied by 1 + temperature * ln(1 + floor(p / yarn_context)) */
    float attn_softcap, final_softcap; /* 0, or products of queries and keys, logits z become c tanh(z / c) */
    enum model_rope rope;
    enum model_act act;
    enum model_ffn_up ffn_up;
    enum model_router router;
    enum model_qk_norm qk_norm;
    int qk_norm_after;           /* they are normed when they have been rotated */
    int qk_norm_optional;        /* layers without the norms' weights do without */
    int qkv_bias, output_bias;   /* queries, keys and values, attention's output must have biases; otherwise they may */
    int expert_bias;             /* routers and the experts' three matrices have biases */
    int sinks;                   /* each head has a logit that takes its share of attention and brings no value */
    int value_norm;              /* values of each head are normed, without weights */
    int values_optional;         /* layers without a matrix for values have those of keys as they are before norm and rotation */
    int expert_norms;            /* experts and shared expert have norms before and after, routers one; experts' outputs a scale */
    int out_scale;               /* what leaves a layer may have a factor */
    int layer_norm;              /* norms subtract the mean and have biases: LayerNorm (arXiv:1607.06450) */
    int parallel;                /* attention and FFN see the same residual, and both are added to it; their norms may be one */
    int no_pre_norms;            /* attention and FFN see the residual as it is */
    int post_norms;              /* what attention and FFN give is normed before it is added */
    int ffn_norm_named_post;     /* the file calls the FFN's norm post_attention_norm */
    int output_norm_named_embd;  /* the file calls the output's norm token_embd_norm */
    int sparse;                  /* attention to more than n_ctx_train positions would be sparse (DeepSeek's, by an indexer, whose tensors
                                  * nobody reads): contexts end there */
    int n_positions;             /* 0, or rows of learned positions: that of position p, row p + MODEL_FIRST_POSITION, is added to its
                                  * embedding, and there are n_ctx_train of them */
};

/* Is there nothing beyond n_ctx_train positions? */
static inline int model_ends(const struct model_hparams *h)
{
    return h->n_positions > 0 || h->sparse;
}

/* Layers that a token passes. */
static inline int model_depth(const struct model_hparams *h)
{
    return h->n_layers + h->n_lead;
}

/* Is it one of those before the experts' layers? */
static inline int model_is_lead(const struct model_hparams *h, int layer)
{
    return layer >= h->n_layers;
}

/* Are there blocks of one sublayer? Those without a FFN are numbered after the others, as layers before the experts' are. */
static inline int model_has_alone(const struct model_hparams *h)
{
    return strpbrk(h->blocks, "AMF") != NULL;
}

static inline int model_letter_is_alone(char letter)
{
    return letter == 'A' || letter == 'M';
}

/* The i-th layer that a token passes. */
static inline int model_layer_at(const struct model_hparams *h, int i)
{
    int alone = 0;
    if (!model_has_alone(h))
        return i < h->n_lead ? h->n_layers + i : i - h->n_lead;
    for (int k = 0; k < i; k++)
        alone += model_letter_is_alone(h->blocks[k]);
    return model_letter_is_alone(h->blocks[i]) ? h->n_layers + alone : i - alone;
}

/* Which of the file's blocks a layer is. */
static inline int model_block_of(const struct model_hparams *h, int layer)
{
    int i = 0, left = model_is_lead(h, layer) ? layer - h->n_layers : layer;
    if (!model_has_alone(h))
        return model_is_lead(h, layer) ? layer - h->n_layers : layer + h->n_lead;
    while (i + 2 < MODEL_MAX_BLOCKS && (model_letter_is_alone(h->blocks[i]) != model_is_lead(h, layer) || left-- > 0))
        i++;
    return i;
}

/* Neurons of a layer's FFN, or of each of its experts. */
static inline int model_n_ff(const struct model_hparams *h, int layer)
{
    return h->widths[0] && layer >= 0 && layer < h->n_layers ? h->widths[layer] : h->n_ff;
}

/* Has each layer a width, of which n_ff is the greatest, where any has one? */
static inline int model_widths_fit(const struct model_hparams *h)
{
    int most = 0, least = h->n_ff;
    if (!h->widths[0])
        return 1;
    for (int l = 0; l < h->n_layers && l < MODEL_MAX_BLOCKS; l++) {
        most = h->widths[l] > most ? h->widths[l] : most;
        least = h->widths[l] < least ? h->widths[l] : least;
    }
    return h->n_layers <= MODEL_MAX_BLOCKS && !h->n_experts && !h->n_ff_lead && least > 0 && least < most && most == h->n_ff;
}

/* The letter of a layer's block; 0: the model has none. */
static inline char model_letter(const struct model_hparams *h, int layer)
{
    return h->blocks[0] && layer >= 0 ? h->blocks[model_block_of(h, layer)] : '\0';
}

static inline int model_count_alone(const struct model_hparams *h)
{
    int n = 0;
    for (const char *p = h->blocks; *p; p++)
        n += model_letter_is_alone(*p);
    return n;
}

/* Are there as many letters as blocks, and all known? */
static inline int model_blocks_fit(const struct model_hparams *h)
{
    if (!h->blocks[0])
        return 1;
    if (!memchr(h->blocks, '\0', sizeof h->blocks) || strlen(h->blocks) != (size_t)model_depth(h) || h->full_period || h->wkv_dim ||
        h->kv_rank)
        return 0;
    return strspn(h->blocks, "acm") == strlen(h->blocks) ||
           (strspn(h->blocks, "AMF") == strlen(h->blocks) && model_count_alone(h) == h->n_lead);
}

/* Are there layers with a state in place of keys and values? Is it one? */
static inline int model_has_states(const struct model_hparams *h)
{
    return h->full_period > 0 || h->wkv_dim > 0 || h->blocks[0];
}

static inline int model_is_recurrent(const struct model_hparams *h, int layer)
{
    return h->wkv_dim > 0 || (h->full_period > 0 && (layer + 1) % h->full_period != 0) ||
           (h->blocks[0] && strchr("cmM", model_letter(h, layer)));
}

/* Has it keys and values? */
static inline int model_has_kv(const struct model_hparams *h, int layer)
{
    return !model_is_recurrent(h, layer) && model_letter(h, layer) != 'F';
}

/* Is what leaves it halved? */
static inline int model_halves(const struct model_hparams *h, int layer)
{
    return h->halve_period > 0 && (layer + 1) % h->halve_period == 0;
}

/* Recurrent layers: elements of all values; of queries, keys and values; and floats of the convolution's, which come first in a sequence's
 * state in a layer. */
static inline int model_delta_inner(const struct model_hparams *h)
{
    return h->delta_v_heads * h->delta_dim;
}

static inline int model_delta_channels(const struct model_hparams *h)
{
    return 2 * h->delta_k_heads * h->delta_dim + model_delta_inner(h);
}

static inline size_t model_conv_floats(const struct model_hparams *h)
{
    return (size_t)(h->conv_width - 1) * (size_t)model_delta_channels(h);
}

/* Mamba2: elements that its convolution sees; rows of the matrix that makes them, and what is beside them. */
static inline int model_ssm_channels(const struct model_hparams *h)
{
    return h->ssm_inner + 2 * h->ssm_groups * h->ssm_state;
}

static inline int model_ssm_rows(const struct model_hparams *h)
{
    return h->ssm_inner + model_ssm_channels(h) + h->ssm_heads;
}

/* Of RWKV: what comes before the matrices in a state: the last inputs of time mixing and of the FFN. */
static inline size_t model_wkv_shifts(const struct model_hparams *h)
{
    return 2 * (size_t)h->d_model;
}

/* Elements of the queries of a token as they are made, gates among them, and of what attention's output matrix sees. */
static inline int model_q_dim(const struct model_hparams *h)
{
    return h->n_heads * (h->kv_rank ? h->nope_dim + h->n_rot : h->head_dim << (h->out_gate == 1));
}

/* Elements from a head's gates to the next one's; they stand at the end of it. */
static inline int model_gate_stride(const struct model_hparams *h)
{
    return h->head_dim << (h->out_gate == 1);
}

static inline int model_out_dim(const struct model_hparams *h)
{
    return h->n_heads * (h->kv_rank ? h->value_dim : h->head_dim);
}

static inline int model_has_window(const struct model_hparams *h, int layer)
{
    return h->window > 0 && (model_block_of(h, layer) + h->period_offset) % h->window_period != 0;
}

/* The layer whose keys and values those without any attend to: the last of its kind, with a window or without, that has its own. */
static inline int model_kv_source(const struct model_hparams *h, int windowed)
{
    int block = model_depth(h) - h->shared_kv - 1;
    while (block > 0 && model_has_window(h, model_layer_at(h, block)) != windowed)
        block--;
    return model_layer_at(h, block);
}

/* The layer that has a layer's keys and values: itself, where it is none that shares. */
static inline int model_kv_layer(const struct model_hparams *h, int layer)
{
    int own = !h->shared_kv || model_block_of(h, layer) < model_depth(h) - h->shared_kv;
    return own ? layer : model_kv_source(h, model_has_window(h, layer));
}

/* Has it keys and values of its own? */
static inline int model_owns_kv(const struct model_hparams *h, int layer)
{
    return model_has_kv(h, layer) && model_kv_layer(h, layer) == layer;
}

/* The same for layers of one kind: with a window or without. */
static inline struct model_hparams model_kind(const struct model_hparams *h, int windowed)
{
    struct model_hparams k = *h;
    if (h->head_dim_window > 0 && windowed) {
        k.head_dim = h->head_dim_window;
        k.n_kv_heads = h->n_kv_window;
        k.n_rot = h->n_rot_window;
    }
    if (windowed && h->rope_theta_window > 0)
        k.rope_mscale = 1;
    return k;
}

static inline struct model_hparams model_of_layer(const struct model_hparams *h, int layer)
{
    struct model_hparams own = model_kind(h, model_has_window(h, layer));
    own.n_ff = model_n_ff(h, layer);
    return own;
}

/* First position that a query at pos attends to. */
static inline int model_attends_from(const struct model_hparams *h, int layer, int pos)
{
    return model_has_window(h, layer) && pos >= h->window ? pos - h->window + 1 : 0;
}

/* Row of a token's learned position. */
static inline int model_position_row(int pos)
{
    return pos + MODEL_FIRST_POSITION;
}

/* Do queries and keys of that layer carry their position? */
static inline int model_rotates(const struct model_hparams *h, int layer)
{
    return h->nope_period == 0 || (layer + h->period_offset) % h->nope_period != 0;
}

/* FFN blocks per layer: 1, or n_experts. Every per-FFN array in this project has this dimension. */
static inline int model_ffn_blocks(const struct model_hparams *h)
{
    return h->n_experts > 0 ? h->n_experts : 1;
}

#endif
