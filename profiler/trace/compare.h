#ifndef PROFILER_TRACE_COMPARE_H
#define PROFILER_TRACE_COMPARE_H

/* Variants of a model on the same text, which run side by side as sequences of one dense pass (common/offline/forward), so that a layer
 * is read from the file once for all of them: token t of variant v is token v * run_tokens + t of the pass. Variant 0 is what the
 * others are held against. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/offline/forward.h"

#include <stddef.h>
#include <stdint.h>

enum { COMPARE_TOKENS = 8 }; /* of one call */

struct compare_variant {         /* sums over tokens */
    double kl, kl_max, nll;      /* KL(variant 0, this one), nats; nll: of the tokens whose successor is known */
    uint64_t same;               /* tokens with variant 0's likeliest successor */
};

struct compare_token;

struct compare {
    struct pool *pool;
    int n_variants, n_vocab;
    struct compare_variant *v;   /* [n_variants] */
    uint64_t tokens, with_next;  /* compared so far; of those, whose successor is known */
    /* its own */
    float *logits;               /* [n_variants][COMPARE_TOKENS][n_vocab] */
    struct compare_token *token; /* [n_variants][COMPARE_TOKENS] */
    const uint32_t *next;
    int n;
};

/* The pool outlives it. ERR_NOMEM; compare_done is needed after that too. */
int compare_init(struct compare *c, struct pool *pool, int n_variants, int n_vocab, struct err *e);
void compare_done(struct compare *c);

/* Tokens [at, at + n) of the pass that f has run, n <= COMPARE_TOKENS; next[n]: the tokens after them, UINT32_MAX where there is none. */
int compare_score(struct compare *c, struct forward *f, size_t run_tokens, size_t at, int n, const uint32_t *next, struct err *e);

#endif
