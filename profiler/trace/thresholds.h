#ifndef PROFILER_TRACE_THRESHOLDS_H
#define PROFILER_TRACE_THRESHOLDS_H

/* Thresholds of the neurons of a gated FFN whose activation gives no zeros (SiLU, GELU), from what the model does with text. Neuron i of
 * a layer adds act(g_i) u_i times column i of Down to the output. Its score for a token is |act(g_i)| E|u_i| |down_i|: Up is taken at
 * its mean size, for it is not to be computed for those that are left out. A neuron is silent where its score is below tau, so
 * t_i = tau / (E|u_i| |down_i|); this is CHESS's rule (arXiv:2409.01366) with WINA's norms of Down (arXiv:2505.19427). Each layer has
 * the tau that silences the wished share of its (token, neuron) pairs. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/model/model.h"
#include "profiler/trace/compare.h"
#include "profiler/trace/corpus.h"

#include <stdint.h>

/* Tokens that thresholds follow from unless said otherwise. */
#define THRESHOLDS_TOKENS 4096

/* "40%" to 0.4; 0 and 100 % are outside. option names it in the message: ERR_USAGE. */
int thresholds_share(const char *text, const char *option, double *out, struct err *e);

struct thresholds;

/* Runs the model, which has no thresholds, densely over the corpus. ERR_UNSUPPORTED where its neurons can have none (model.h).
 * Memory: that of the dense pass, and 4 bytes for each token and neuron of a layer. Depends neither on threads nor on chance. */
int thresholds_new(const struct model *m, const struct corpus *c, struct pool *pool, struct thresholds **out, struct err *e);
void thresholds_free(struct thresholds *t); /* accepts NULL */

/* out: f32[n_layers][n_ff], with which `share` (0 to 1, exclusive) of the pairs are silent in each layer, as near as a 256th of tau. */
void thresholds_at(const struct thresholds *t, double share, float *out);

/* |down_i| of all neurons of a layer. */
int thresholds_norms(const struct model *m, int layer, float *out, struct err *e);

/* Tokens of the longest sequence. */
int thresholds_longest(const struct corpus *c);

/* ---- thresholds_quality.c ---- */

/* The model on a text, n times side by side (compare.h). change(ctx, layer, v, t, gate, up) is called for each token t of the text and
 * variant v, several at once, and may change the gates of variants from 1 on. out: as of compare_init, also after failure. */
typedef void thresholds_change(void *ctx, int layer, int variant, size_t token, float *gate, const float *up);
int thresholds_compare(const struct model *m, const struct corpus *c, int n, thresholds_change *change, void *ctx, struct pool *pool,
                       struct compare *out, struct err *e);

struct thresholds_quality {
    double share;            /* wished */
    double density;          /* neurons that fire, of all that tokens meet */
    double kl_mean, kl_max;  /* KL(full, with thresholds) of the next-token distributions, nats */
    double top1;             /* share of tokens with the same likeliest next token */
    double perplexity, perplexity_full;
    uint64_t n_tokens;
};

#define THRESHOLDS_MOST 16

/* The model with thresholds of each of n shares (THRESHOLDS_MOST at most) against itself without, over a text. Memory: of a dense pass
 * over n + 1 times as many tokens as the longest sequence has. ERR_INTR after file_interrupted(). */
int thresholds_measure(const struct thresholds *t, const struct model *m, const struct corpus *c, const double *share, int n,
                       struct pool *pool, struct thresholds_quality *out, struct err *e);

#endif
