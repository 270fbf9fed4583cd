#ifndef DATASETS_TOOLS_RANDOM_H
#define DATASETS_TOOLS_RANDOM_H

/* What random.c, which makes the weights, and random_keys.c, which writes the keys, share. */
#include "common/model/model.h"
#include "datasets/tools/make.h"

enum { RANDOM_INDEXER = 128 }; /* elements of a key of a layer's indexer, as published */
enum { UNSTATED, SOFTMAX, SIGMOID };
enum { PLAIN, LINEAR, YARN, LONGROPE };

/* What the files of an architecture have. */
struct family {
    const char *arch;
    int own_keys;               /* hidden_act, rope.dimension_count and vocab_size, which others leave out */
    int key_length;             /* attention.key_length and value_length */
    int experts;                /* there must be some */
    int expert_width;           /* of experts, apart from feed_forward_length */
    int shared;                 /* an expert that every token uses, as wide as it says */
    int untied;                 /* a head of its own */
    int window;                 /* layers that see one; 2: which ones is an array */
    int temperature;            /* and yarn's multiplier */
    int scales, softcaps;       /* factors as Granite's; caps as Gemma 2's */
    int capped;                 /* a factor of logits, and a cap */
    int lead;                   /* layers before the experts', counted shared experts, normalised and scaled weights: DeepSeek's keys;
                                 * 2: that of layers before the experts' alone; 3: neither that nor a function; 4: no key */
    int latent;                 /* attention of DeepSeek-V2: half as many elements rotate as do not, and values are as long as these;
                                 * 2: with an indexer of half the context */
    int rope_share;             /* rope.dimension_count is a head over it */
    int fused;                  /* attn_qkv, and ffn_up has Gate too; 2: that alone */
    int ungated;                /* no Gate */
    int delta;                  /* recurrent layers: twice as many heads of values as of keys; 2: Qwen3.5's keys */
    int layer_norm;             /* the key of its eps */
    int positions;              /* learned ones; neither rotation nor eps nor kv heads are stated, and all biases are there */
    int joined;                 /* attn_qkv */
    int biased;                 /* every matrix of attention and FFN has a bias */
    int kinds;                  /* Gemma 4: other heads in layers with a window, keys as values in the others, fused experts */
    int sigmoid;                /* of a file that states no gating */
    int conv;                   /* two of three layers or so are short convolutions */
    int ssm;                    /* likewise Mamba2: --delta-heads of --delta-dim elements of state; 1: Granite's keys; 2: blocks of
                                 * one sublayer */
    int wkv;                    /* 6, 7: RWKV of that version, its keys alone, and its names */
};

struct shape {
    int layers, d_model, heads, kv_heads, head_dim, ff, vocab, context, experts, experts_used, act, untied, gating, window, rope_freqs,
        rope_scaling, lead, nextn, nextn_own, nextn_only, groups, qk_norms, ffn_biases, thresholds, two_norms, delta_dim,
        delta_heads, kv_rank, q_rank,
        wide, decay_rank, rate_rank, value_rank, gate_rank, mix_rank, halve_period, full_kv_heads, pooled, tokenizer,
        layer_embd, shared_kv, narrow;
    double rope_base, rope_factor, eps;
    uint64_t seed;
    const struct family *family;
    const char *type_name, *more_name, *embd_name, *expert_name, *tokenizer_from, *name, *published;
    uint32_t type, more, embd, expert;     /* more: of what has more bits in a mixture */
};

/* Has a layer an indexer of its own? */
static inline int random_indexes(const struct shape *s, int layer)
{
    return s->family->latent == 2 && layer % 4 == 0;
}

/* The keys that the architecture's converters write, and the vocabulary; s->vocab is its size then. */
int random_keys(struct make *m, struct shape *s, struct err *e);

#endif
