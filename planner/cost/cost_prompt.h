#ifndef PLANNER_COST_COST_PROMPT_H
#define PLANNER_COST_COST_PROMPT_H

/* How long a prompt takes until its first token. A prompt goes through the layers in passes of at most `chunk` tokens,
 * exactly where decoding is predicted. Of a pass of n tokens, the mean position p:
 *
 * (M27) is its attention, (M9) and (M15) to (M17) of n tokens at p; its FFNs, (M1) and (M2) of n tokens with (M5), (M14), (M15), (M22)
 * and (M31); and waiting for storage, (M28). All gates; in exact mode Up of neurons that fire for any of n tokens, sum of
 * 1 - (1 - a_i)^n, and Down of as many tokens at a time as the kernel adds rows for (KERNELS_AXPY_TOKENS), where any of these needs it; of
 * experts those that any token is routed to, sum of 1 - (1 - p_k)^n, each with the n k / that many tokens that it then has. Where the pass
 * has a height h, these are the processor's neurons alone, c, and t_ffn = (M26) of c and of (M25) for the h hottest neurons of each FFN,
 * with as many tokens and a launch for each group of experts.
 *
 * (M28): Down is summed in order, so neurons that are read, V bytes, are computed after those in memory, and each buffer of neurons is one
 * thread's work and one of D buffers from the beginning of its read to the end of its sum. The first D buffers are read before, while
 * neurons in memory are computed and, where the FFN's blocks are known by then, in attention. Experts run in groups; the first buffers of
 * one are read while the one before is computed. Where the accelerator takes longer than c, it hides so much of the wait. (M36), where the
 * pass leaves it the neurons that are not in memory, is in place of their (M1) and of (M28): cost_rest.h.
 *
 * Rows of embeddings that are not in memory, (M37) of n tokens, are waited for as if nothing hid their reads. */
#include "planner/cost/cost.h"

struct cost_prompt {
    double attention_ns, ffn_ns, wait_ns, read_bytes;
    double processor_ns, beyond_ns, shared_ns, rest_ns; /* add up to ffn_ns: c; what (M25) takes longer; what both lose by sharing; (M36) */
    double engine_ns;               /* (M25), and the pieces of (M36) */
};

/* What the accelerator has in passes of a whole chunk, and in the last, smaller one. */
struct cost_prompt_heights {
    struct plan_share chunk, rest;
};

#define COST_PROMPT_BATCH 64 /* tokens that a device's row products must have been measured with, at least */

/* Do the device's figures tell how long many tokens take? */
int cost_prompt_known(const struct hw *hw);

/* Do they tell it of this accelerator, for all kinds of layers? */
int cost_prompt_engine_known(const struct hw *hw, const char *engine, const struct layout_shapes *s, int d_model);

/* (M27) of a prompt of `tokens` tokens, whole, without the head. residencies: [n_layers]. c: its height and work are decoding's, and count
 * for nothing; its engine is that of the heights. ERR_NOMEM, or an error of cost_rates_of or cost_engine_rates_of. */
int cost_prompt_of(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *c,
                   const struct cost_residency *residencies, int chunk, int tokens, struct cost_prompt_heights heights,
                   struct cost_prompt *out, struct err *e);

/* Expected number of things that any of n tokens needs, each with probability p: 1 - (1 - p)^n. */
double cost_any(double p, double n);

/* (M28), and what of it is a wait: beyond hot_ns + cold_ns. ahead_ns: time before hot_ns in which reads are under way. */
double cost_prompt_wait_ns(double hot_ns, double cold_ns, double ahead_ns, double bytes, double bw, double buffer_bytes, int depth,
                           int threads, double down_share);

#endif
