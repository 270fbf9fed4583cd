#ifndef COMMON_MODEL_MODEL_ARCH_H
#define COMMON_MODEL_MODEL_ARCH_H

/* The table of architectures: what a model's files do not say, and which keys they may have. */
#include "common/model/hparams.h"

#include <stddef.h>

/* A row of the table of architectures, for people. */
struct model_family {
    const char *arch;            /* "general.architecture" */
    const char *what, *notes;
};
const struct model_family *model_family(int i); /* NULL: there are i */

/* A row of the table: what files do not say. */
struct model_arch {
    struct model_family family;
    enum model_rope rope;
    enum model_act act;          /* of a file that does not say */
    int router;                  /* of a file that does not say; -1: it must */
    int sigmoid;                 /* expert_gating_func may be 2 */
    int stated_norm;             /* weights of experts are normalised exactly where expert_weights_norm says so */
    int lead;                    /* keys of layers before the experts' and of layers left out, groups of experts, a scale of weights */
    int select_bias;             /* as model_hparams.select_bias */
    int latent;                  /* attention of DeepSeek-V2; 2: sparse beyond attention.indexer.top_k positions */
    enum model_ffn_up ffn_up;
    int kinds;                   /* Gemma 4: layers with a window have other heads; values are normed; experts' norms are their own */
    int early_router, experts;   /* experts: there must be some */
    int expert_width;            /* the key expert_feed_forward_length has it; otherwise feed_forward_length */
    int shared_expert;           /* 1 with a sigmoid; 2 without one, where the key says how wide it is; 3 as wide as
                                  * expert_shared_count experts; 4 as feed_forward_length says; 5 as the key says */
    enum model_qk_norm qk_norm;
    int qk_norm_after, qk_norm_optional;
    int qkv_bias, output_bias;
    int expert_bias, sinks, ffn_norm_named_post;
    int act_only;                /* what the user states cannot replace the activation */
    int window_period;           /* default of sliding_window_pattern; 0: windows are not supported */
    int period_offset;
    int nope_period;             /* where there is a window */
    int nope;                    /* nope_period holds without a window too */
    int window;                  /* of a file that does not say */
    int longrope;                /* where rope.scaling.attn_factor is there */
    int rope_window_plain;       /* layers with a window do not scale positions */
    float rope_theta_window;     /* of layers with a window, where the file does not say; 0: as others */
    int layer_norm, parallel;
    int positions;               /* learned; queries and keys do not rotate where nope_period is 1 */
    int gated;                   /* Muse: embeddings are normed, attention's gates are a matrix, post norms have an eps of their own, and
                                  * logit_scale multiplies */
    int delta;                   /* recurrent layers, queries with gates; 1: value heads in groups, betas and alphas in one matrix;
                                  * 2: tiled, in two. Layers that predict further tokens are left out */
    int wkv;                     /* 6, 7: RWKV of that version: time mixing in place of attention, no key but those of more_keys */
    int short_conv;              /* layers without kv heads are short convolutions; the output's norm is token_embd_norm */
    int ssm;                     /* 1: layers without kv heads are Mamba2; 2: so are blocks of one sublayer without FFN, whose widths are an
                                  * array */
    int no_width;                /* feed_forward_length may be absent: the experts' is taken */
    int no_pre_norms, post_norms, scaled_embd; /* embeddings are multiplied by sqrt(d_model) */
    int wide_layers;             /* a model of so many layers scales queries by sqrt(d_model / heads) */
    const char *const *more_keys; /* that no other knows; NULL: none */
};

/* Has its FFN no gate, so that one matrix is Gate and Up (MODEL_FFN_UP_UNGATED)? 0 where there is no such architecture. */
int model_arch_is_ungated(const char *name);

/* NULL: there is no such architecture. */
const struct model_arch *model_arch_find(const char *name);

/* May files have the key "ARCH.key"? */
int model_arch_knows(const struct model_arch *a, const char *key);

/* All names, comma-separated, cut to len. */
void model_arch_names(char *out, size_t len);

#endif
