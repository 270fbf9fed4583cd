#ifndef RUNTIME_SESSION_SAMPLE_H
#define RUNTIME_SESSION_SAMPLE_H

/* Choice of the next token. The order is the one users of llama.cpp know:
 *   bias -> repeat penalty -> frequency and presence penalties -> top-k -> top-p -> min-p -> temperature -> draw,
 * so top-p and min-p look at probabilities before temperature. Equal logits rank by ascending id;
 * the same logits, parameters and seed give the same tokens on every machine with the same libm. */
#include <stddef.h>
#include <stdint.h>

struct sample_bias {
    int32_t id;
    float bias;            /* added to its logit */
};

struct sample_params {
    double temp;           /* <= 0: greedy */
    int top_k;             /* 0: all */
    double top_p;          /* 1: all */
    double min_p;          /* 0: all; keep p >= min_p * largest p */
    double repeat_penalty; /* 1: none; logits of recent tokens are divided by it (multiplied when negative) */
    int repeat_last_n;     /* how many recent tokens; 0: none, -1: all */
    /* OpenAI's: a logit loses n * frequency, and presence where n > 0; n: how often the token is in the history behind its first
     * n_prompt tokens. 0: none */
    double frequency_penalty, presence_penalty;
    int n_prompt;
    const struct sample_bias *bias; /* [n_bias], borrowed */
    int n_bias;
    uint64_t seed;
};

struct sampler {
    struct sample_params p;
    const uint64_t *allowed; /* a bit for each token that may be drawn, one at least; NULL: all may */
    uint64_t state[4];     /* xoshiro256**, Blackman & Vigna 2018, seeded through splitmix64 */
};

void sampler_init(struct sampler *s, const struct sample_params *p);

/* logits f32[n_vocab] (unchanged; NaN counts as least); history: the sequence so far, oldest first. mem: 8 * n_vocab
 * bytes of scratch, aligned to 8. Does not allocate. */
int32_t sampler_pick(struct sampler *s, const float *logits, int n_vocab, const int32_t *history, int n_history,
                     void *mem);

double sampler_uniform(struct sampler *s); /* [0, 1) */

#endif
