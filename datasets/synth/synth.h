#ifndef DATASETS_SYNTH_H
#define DATASETS_SYNTH_H

/* gguf-synth: models whose FFN neurons fire as asked for. docs/synthetic-models.md has the mathematics; names here are
 * its symbols. A `synth_request` is what the user wants, a `synth_design` everything that follows from it, and the
 * rows of every tensor are functions of the design, the seed and their own number alone: they can be made in any
 * order and by any thread. */
#include "common/base/err.h"
#include "common/model/gguf.h"
#include "common/model/model.h"

#include <stddef.h>
#include <stdint.h>

#define SYNTH_BLOCK   32 /* channels per quantised block; control channels come in whole blocks */
#define SYNTH_CONSTS  16 /* constant channels, the first half of block 0; the flags are the other half */
#define SYNTH_FLAGS   16
#define SYNTH_CLASSES 2  /* periods of memory: short, long */
#define SYNTH_OWN_PERIOD 8 /* mean tokens between carriers of a layer's own strand: three of its code channels are +1 */
#define SYNTH_PLACE   160 /* channels that say where in a replayed route a token is */
#define SYNTH_MAX_RECORDED 8192 /* steps of a recorded route */
#define SYNTH_MAX_PLACES   8192 /* steps of a replayed one */

/* --- what is asked for (shape.c) ----------------------------------------------------------- */

enum synth_arch { SYNTH_LLAMA, SYNTH_SMALLTHINKER, SYNTH_QWEN3MOE, SYNTH_GLM4MOE, SYNTH_QWEN35 };

extern const char *const synth_archs[]; /* their names; ends with NULL */
#define SYNTH_FULL   4   /* of qwen35, layers l where it divides l + 1 have attention */
#define SYNTH_Q4_K_M 0x10000u /* a type that is a mixture: Q4_K, and Q6_K where llama-quantize takes it */

struct synth_shape {
    const char *name;
    int n_layers, d_model, n_heads, n_kv_heads, n_ff, n_vocab, n_ctx, n_experts, n_experts_used;
    double rope_base;
    int arch;            /* enum synth_arch */
    int head_dim;        /* 0: d_model / n_heads */
};

struct synth_class {
    double share;  /* of the gates' variance */
    double period; /* mean tokens between carriers */
};

/* One for dense FFNs, one for experts. */
struct synth_setting {
    const char *name;
    int experts;
    double rate;         /* mean firing probability of a neuron (of a routed expert) */
    double skew;         /* s */
    double layer_spread; /* s_layer */
    struct synth_class memory[SYNTH_CLASSES];
    double route_memory; /* share of memory in the routers' variance */
    double route_skew;   /* deviation of what an expert's logit always has, in deviations of the rest: popularity */
    double noise;        /* eta */
    double layer_share;  /* of the gates' variance: what the layer's own attention brings */
};

extern const struct synth_shape synth_shapes[];     /* ends with name NULL */
extern const struct synth_setting synth_settings[];

/* Experts that a mixture chose, by step and layer; largest router logit first. */
struct synth_route {
    int n_steps, n_prompt;    /* n_prompt: of the prompt, the first of them */
    int n_layers, n_used;
    int n_experts;            /* the largest number among them, plus 1 */
    uint16_t *experts;        /* [n_steps][n_layers][n_used] */
};

struct synth_request {
    struct synth_shape shape;
    struct synth_setting setting;
    enum model_act act;
    enum model_router router; /* smallthinker: softmax or sigmoid */
    uint32_t type;            /* or SYNTH_Q4_K_M: blocks from pools but for embeddings and head (SiLU alone, no memory) */
    uint32_t ffn_type;        /* of Gate, Up and Down; another than `type`: blocks from a pool, and no thresholds (SiLU alone) */
    const char *pre;          /* pre-tokenizer of a BPE vocabulary; NULL: SentencePiece's */
    uint64_t seed;
    const struct synth_route *route; /* replayed; NULL: routers of random rows */
    int splice, segment;      /* steps to replay, made of pieces of `segment` recorded ones; splice 0: as recorded */
    int cycle;                /* without a route: tokens of the text that the head goes round; 0: a random head */
    double agree;             /* share of them after which it does; 1 but for drafts */
    int nextn;                /* 1: with a layer for multi-token prediction, layer n_layers */
    double nextn_agree;       /* the same share for it */
    int nextn_only;           /* 1: without the layers before it */
};

/* --- what follows (shape.c) ---------------------------------------------------------------- */

struct synth_strand {
    int class, head, kv_head, slice; /* query head of layer 0 and its group; which 32 code channels it copies */
    int flag, flag_pair;             /* flag channel; rotary pair of its key */
    int pair, n_pairs;               /* recency pairs: pair .. pair + n_pairs - 1 */
    double slope, carrier;           /* S and kappa: attention scores */
};

struct synth_layer {
    double mean, rate; /* m_l; of gates */
    double rms;        /* of the stream before ffn_norm */
    double attn_rms;   /* before attn_norm */
};

struct synth_design {
    struct synth_request ask;
    int head_dim, group;             /* group: query heads per kv head */
    int n_code, n_strands;           /* T, S */
    int n_route;                     /* channels of the recorded step; 0: no route */
    int code0, memory0, route0;      /* first channels of own code, strands, recorded step, */
    int place0, own0, ordinary0;     /* place in the replayed route, strands of layers' own (1, 2, ...), ordinary part */
    int own_strands;                 /* 1: there are such */
    struct synth_strand strands[SYNTH_FLAGS];
    struct synth_strand own;         /* of every layer but the first: only pairs and scores */
    double gate_rate;                /* P(gate > 0): the rate, or rate / 0.8 for dReLU */
    double up_bias;                  /* mean of Up before its activation, in deviations */
    double embed_rms;                /* norm of every embedding row */
    struct synth_layer *layer;       /* [n_layers + 1]: the last of the layer for multi-token prediction */
    int n_places;                    /* steps of the replayed route, or tokens of the cycle; 0: neither */
    int *recorded, *token;           /* [n_places]: recorded step (NULL without a route), token */
    int *place;                      /* [n_vocab]: of a token, or -1 */
    uint8_t *pool[MODEL_ROLES][2];   /* [SYNTH_POOL] blocks of a role, [1] where it has more bits; NULL: rows are made otherwise */
};

int synth_design(const struct synth_request *ask, struct synth_design *out, struct err *e);

/* Type of a role's tensor, by the rules of the mixture if there is one; is it a mixture's with more bits? */
uint32_t synth_type_of(const struct synth_request *q, enum model_role role, int layer, int *more);
void synth_design_done(struct synth_design *d);

/* --- replayed routes (routes.c) and the text that their head goes round (places.c) ------------ */

/* A table with the columns phase (prompt, then decode), step, layer, e0, e1, ...: every layer of every step, ascending. A row
 * without experts gets another step's in that layer.
 * ERR_FORMAT names file, line, column and value. */
int synth_route_read(const char *path, struct synth_route *out, struct err *e);
void synth_route_done(struct synth_route *r);

/* The least width of a model with a route and so many control channels: they take at most three quarters. */
int synth_route_width(int channels);

/* Of a design: channels first, then places. synth_design calls them; it frees what they made when they fail. */
int synth_route_channels(struct synth_design *d, struct err *e);
int synth_places(struct synth_design *d, struct err *e);
int synth_route_steps(struct synth_design *d, struct err *e);

/* The recorded step whose experts a token gets: its place's, and any one for tokens that have no place. */
int synth_recorded_step(const struct synth_design *d, uint32_t token);

/* Places after which a head with this share of right ones gives this place's token: how many, at most SYNTH_BEFORE, into before[]. */
#define SYNTH_BEFORE 4
int synth_places_before(const struct synth_design *d, double agree, int place, int before[SYNTH_BEFORE]);

/* Signs of a token's place code: 32 channels, a bit each. */
uint32_t synth_place_code(const struct synth_design *d, int block, uint32_t token);

/* --- normal distribution and what the design leads one to expect (curve.c) ------------------ */

double synth_cdf(double x);
double synth_quantile(double p);                            /* inverse of it, 0 < p < 1 */
double synth_both(double h, double r);                      /* P(x > h and y > h) at correlation r >= 0 */
double synth_layer_mean(double rate, double skew);          /* m with mean probability `rate` */

struct synth_expect {
    double rate, neurons_for_80, top10, top20, top50;      /* over all layers */
    double layer_neurons_for_80;                            /* within the median layer */
    double correlation, repeat;                             /* of consecutive tokens; P(fires | fired) */
    double hot_1, hot_32;                                   /* neurons with p > 1/2 at batches of 1 and 32 */
    int rank;
};
int synth_expect(const struct synth_design *d, struct synth_expect *out, struct err *e);

/* --- quantised blocks (block.c) ------------------------------------------------------------ */

int synth_type_ok(uint32_t type);

/* Blocks of mean zero and deviation rms. */
struct synth_noise {
    uint32_t type;
    uint16_t d, levels[256]; /* of Q4_0 and Q8_0; of F16 */
};
struct synth_noise synth_noise(uint32_t type, double rms);
/* Blocks number [first, first + n) of the stream `key`. */
void synth_noise_fill(const struct synth_noise *s, uint64_t key, uint64_t first, int n, uint8_t *out);

/* SYNTH_POOL blocks of any type, of normally distributed weights of mean zero and deviation rms, quantised as the type's rules say;
 * the caller's, or NULL. */
#define SYNTH_POOL 4096
uint8_t *synth_pool(uint32_t type, double rms, uint64_t key);

/* One block of unit * level, levels in -7..7; exact but for unit's rounding to F16. */
void synth_exact(uint32_t type, double unit, const int8_t level[SYNTH_BLOCK], uint8_t *out);

uint64_t synth_mix(uint64_t a, uint64_t b);                 /* hash of two numbers */
uint32_t synth_permute(uint64_t key, uint32_t i, uint32_t n); /* a permutation of 0..n-1 */

/* --- tensors (weights.c) ------------------------------------------------------------------- */

struct synth_tensor {
    enum model_role role;
    int layer;
    uint32_t type;
    int n_dims;
    uint64_t dims[4], row_bytes, bytes;
};

/* Rows [first, first + n) of a tensor. Thread-safe. */
void synth_rows(const struct synth_design *d, const struct synth_tensor *t, uint64_t first, uint64_t n, uint8_t *out);

/* --- the file (vocab.c, write.c) ----------------------------------------------------------- */

#define SYNTH_BOS       1
#define SYNTH_SPECIAL   259 /* <unk> <s> </s> and the bytes: never generated */
#define SYNTH_LETTERS   (SYNTH_SPECIAL + 1 + '~' - '!' + 1) /* the first group of letters */
#define SYNTH_MIN_VOCAB 384

/* pre: NULL for SentencePiece merging; "gemma4" for BPE of characters; else BPE of bytes under that pre-tokenizer. Tokens from
 * SYNTH_LETTERS on are the same groups of letters in all three. */
int synth_vocab(struct gguf_writer *w, int n_vocab, const char *pre, struct err *e);

/* Is this token a word by itself: a group of letters with a blank before it? */
int synth_is_word(int token);

/* A CSV of prompts (id, text): words that are one token each, drawn evenly, so that tokens are as independent as
 * the design supposes. With a route, one text: the whole of it, without
 * BOS; with a cycle, this is the first. */
int synth_prompts(const struct synth_design *d, const char *path, int rows, int words, struct err *e);

struct synth_result {
    uint64_t bytes;
    double seconds;
};
uint64_t synth_file_bytes(const struct synth_design *d); /* of the tensors */
int synth_write(const struct synth_design *d, const char *path, int threads, struct synth_result *out, struct err *e);

#endif
