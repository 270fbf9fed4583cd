#ifndef COMMON_MODEL_MIX_H
#define COMMON_MODEL_MIX_H

/* What names such as Q4_K_M stand for: a type for most matrices, and more bits where errors cost most. The rule is the published one of
 * llama.cpp's llama-quantize (src/llama-quant.cpp), so that a file made here has the types that such a name promises.
 *
 *   name              most      attn_v (attn_qkv, attn_kv_b)            ffn_down                             attn_output
 *   Q2_K              Q2_K      Q4_K, of few KV heads; else Q3_K        Q3_K                                 Q3_K
 *   Q2_K_S            Q2_K      Q4_K, of few KV heads                   Q4_K in the first eighth
 *   Q3_K_S            Q3_K
 *   Q3_K_M (Q3_K)     Q3_K      Q5_K in the first two, else Q4_K        Q5_K in the first sixteenth, Q4_K    Q4_K
 *   Q3_K_L            Q3_K      Q5_K                                    Q5_K                                 Q5_K
 *   Q4_K_S            Q4_K      Q5_K in the first four                  Q5_K in the first eighth
 *   Q4_K_M (Q4_K)     Q4_K      Q6_K in mix_more_bits                   Q6_K in mix_more_bits
 *   Q5_K_S            Q5_K
 *   Q5_K_M (Q5_K)     Q5_K      Q6_K in mix_more_bits                   Q6_K in mix_more_bits
 *   IQ4_NL, IQ4_XS    itself    Q5_K, of few KV heads                   Q5_K in the first eighth, no imatrix
 *   Q4_0, Q5_0        itself                                            Q4_1, Q5_1 in the first eighth, with an imatrix
 *   MXFP4_MOE         Q8_0, and MXFP4 of experts' matrices
 *   Q4_1, Q5_1, Q6_K, Q8_0, MXFP4, F16, BF16, F32: themselves
 *
 * Of all types with blocks: output.weight, or token_embd.weight where that is used for the output, is Q6_K, but Q8_0 of Q8_0, of
 * MXFP4_MOE, and where rows do not divide into the blocks of the type for most. With eight experts attn_v and attn_k are Q8_0, and
 * attn_output is Q5_K of names from Q2_K to Q4_K_M and IQ4. Of a llama of 80 layers with grouped heads attn_v is Q5_K in place of Q3_K and
 * Q4_K. Few KV heads: at least four times as many heads.
 * Vectors, norms, routers and the small matrices that mix_leaves lists stay as they are. Where rows do not divide into blocks of 256:
 * mix_fallback.
 *
 * "First two, first four": of the tensors of that kind. "First eighth": of the layers. */
#include "common/model/gguf.h"

#include <stdint.h>

struct mix {
    const char *name;    /* "Q4_K_M" */
    uint32_t type;       /* of most matrices */
    uint32_t file_type;  /* general.file_type */
    const char *rule;    /* whose rows of the table it has; NULL: none but the output's */
};

/* By name, case-insensitive, with or without "MOSTLY_"; NULL: unknown. */
const struct mix *mix_by_name(const char *name);

/* general.file_type of a file that is mostly of a type; 1024 ("guessed") of those that have none. */
uint32_t mix_file_type(uint32_t type);

/* Has attn_v or ffn_down of layer `layer` of n more bits in Q4_K_M and Q5_K_M? Those of the first and last eighth of the layers have, and
 * of every third between. */
int mix_more_bits(int layer, int n);

/* What the rule asks of a model, once for all of its tensors. */
struct mix_model {
    int n_layers, n_heads, n_kv_heads, n_experts;
    int llama, falcon;
    int tied;            /* no output.weight */
    int imatrix;         /* there is an importance matrix */
};
int mix_model(const struct gguf *g, struct mix_model *out, struct err *e);

/* Does the tensor keep the type that it has? */
int mix_leaves(const struct gguf_tensor *t);

/* The type of a matrix that does not: by the rule, then with what its rows divide into. pure: the type for most, without the rule. */
uint32_t mix_type_of(const struct mix *m, const struct mix_model *model, const struct gguf *g, const struct gguf_tensor *t, int pure);

/* The type in place of `type` for rows of n elements that do not divide into its blocks; type itself where they do. */
uint32_t mix_fallback(uint32_t type, uint64_t n);

#endif
