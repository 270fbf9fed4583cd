#ifndef COMMON_OFFLINE_TRACE_TRACE_H
#define COMMON_OFFLINE_TRACE_TRACE_H

/* Activation traces (HDF5; schemas/trace.md): what a model's FFNs did over a corpus, and the model's
 * tensor table, so that planner and packer need no second look at the model. trace_h5.c is the only
 * user of hdf5.h. A trace file appears under its name only when it is whole. One thread at a time
 * per object, and one for all objects of a process (HDF5 has global state). */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/offline/trace/trace_info.h"
#include "common/plan/layout.h"

#include <stdint.h>

struct trace;

/* Read-only. A file that is missing while PATH.partial is there, or such a state file itself, is
 * ERR_INPUT and the message says how to resume; a damaged one is ERR_FORMAT and names the dataset. */
int trace_open(const char *path, struct trace **out, struct err *e);
void trace_close(struct trace *t); /* accepts NULL */
const struct trace_info *trace_info(const struct trace *t);


/* Read everything and compare with the stored hashes: ERR_FORMAT names the group that differs. */
int trace_verify(struct trace *t, struct err *e);

/* From here on g is the model that was traced, or reading a tensor of it is ERR_MISMATCH, and what is read again is what was read
 * before (gguf_read). g has been opened as a model h, with the trace's thresholds. */
int trace_expect(struct trace *t, const struct model_hparams *h, struct gguf *g, struct err *e);

/* Where sequences begin: [n_sequences + 1] token indices, borrowed; and each one's index in the whole corpus. */
const uint64_t *trace_sequence_starts(const struct trace *t);
const uint64_t *trace_sequence_index(const struct trace *t);

/* Thresholds of the neurons, f32[n_layers][n_ff], malloc'd: the traced model is the file's with these (model_given). *out is NULL where it
 * has none. ERR_FORMAT for one that is no number from 0 on. */
int trace_thresholds(struct trace *t, float **out, struct err *e);

/* What is lost where neurons of a layer that are not in memory are left out for tokens of a loss of at most trace_cold_loss(k) nats, by
 * their thresholds: out f32[n_ff][2][TRACE_COLD_LEVELS], of a neuron the shares of its firings that are kept, and the nats of a
 * token that are lost. For traces with cold thresholds. */
double trace_cold_loss(int k);
int trace_cold(struct trace *t, int layer, float *out, struct err *e);

/* Token ids [first, first+n). */
int trace_tokens(struct trace *t, uint64_t first, uint64_t n, uint32_t *ids, struct err *e);

/* Firings of every neuron of (layer, block) over all tokens. counts: [n_ff]. *n_tokens (may be NULL): tokens that
 * were routed to this block (all of them when dense). */
int trace_counts(struct trace *t, int layer, int block, uint64_t *counts, uint64_t *n_tokens, struct err *e);

/* The same for open gates (gate > 0), whatever the activation makes of them: what exact mode must
 * load. Equal to trace_counts for RELU. */
int trace_gate_counts(struct trace *t, int layer, int block, uint64_t *counts, struct err *e);

/* Batches of trace_batch_sizes[size_index] in which at least one token fired the neuron. *n_batches (may be NULL): how
 * many batches there are, whether or not they use the block. */
int trace_batch_counts(struct trace *t, enum trace_batch_kind kind, int size_index, int layer, int block,
                       uint64_t *counts, uint64_t *n_batches, struct err *e);

/* Batches in which at least one token was routed to the block (all of them when dense). */
int trace_batch_routed(struct trace *t, enum trace_batch_kind kind, int size_index, int layer, int block,
                       uint64_t *n_batches, struct err *e);

/* Activation maps of the window's tokens [first, first+n): bit i%8 of byte i/8 is neuron i (original index).
 * maps: [n][k][(n_ff+7)/8] where k = trace_slots(); blocks: [n][k] which expert (all 0 when dense; may be NULL then).
 * The window is whole sequences in corpus order; trace_sequence_starts tells where they begin. */
int trace_maps(struct trace *t, int layer, uint64_t first, uint64_t n, uint8_t *maps, uint16_t *blocks, struct err *e);

/* Experts chosen for tokens [first, first+n), best first: [n][k]. All 0 when dense. */
int trace_routing(struct trace *t, int layer, uint64_t first, uint64_t n, uint16_t *blocks, struct err *e);

/* The same of the experts that the layer's router chooses from the residual stream before the FFN of the layer before it, likeliest
 * first; of layer 0 from what is embedded. Of traces with info.foreseen; ERR_UNSUPPORTED: this has none. */
int trace_foreseen(struct trace *t, int layer, uint64_t first, uint64_t n, uint16_t *blocks, struct err *e);

/* Which tokens were sampled: token index in this file of samples [first, first+n), ascending. */
int trace_sample_tokens(struct trace *t, uint64_t first, uint64_t n, uint64_t *tokens, struct err *e);

/* Samples [first, first+n) of a layer; any output may be NULL.
 * block_input: F16 [n][d_model], the residual stream where it enters the block, before attn_norm.
 * ffn_input:   F16 [n][d_model], after ffn_norm: what Gate and Up are multiplied with.
 * ffn_rms:     F32 [n], sqrt(mean(x^2) + eps) of the residual before ffn_norm, so
 *              residual = ffn_input * ffn_rms / ffn_norm.weight.
 * gate_signs:  [n][k][(n_ff+7)/8], bit set: gate > 0. */
int trace_samples(struct trace *t, int layer, uint64_t first, uint64_t n, uint16_t *block_input,
                  uint16_t *ffn_input, float *ffn_rms, uint8_t *gate_signs, struct err *e);

/* Fill what budget.h needs from the trace alone (shape from `layout`). */
struct budget_model;
struct layout;
int trace_budget_model(const struct trace *t, const struct layout *l, struct budget_model *out, struct err *e);

/* All orders, [layer][block][n_ff], malloc'd, and their hash: layout_order of batch-1 counts, and of those together_order of the window. */
int trace_orders(struct trace *t, enum layout_sort sort, uint32_t **orders, struct hash128 *order_hash, struct err *e);

#endif
