#ifndef TESTS_TRACE_SAMPLE_H
#define TESTS_TRACE_SAMPLE_H

/* A small invented trace, whole or any shard of it. What a token does follows from its place in the corpus, so shards
 * and the whole agree, as those of a real run do; counts are made from that by definition, slowly. */
#include "common/offline/trace/trace_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_LAYERS = 2, SAMPLE_SEQS = 75, SAMPLE_D = 24, SAMPLE_FF = 70, SAMPLE_MAX_LEN = 9 };

struct trace_sample {
    struct trace_info info;
    struct trace_tensor tensors[16];
    char names[16][32];
    uint64_t all_starts[SAMPLE_SEQS + 1]; /* of the corpus */
    uint64_t starts[SAMPLE_SEQS + 1], index[SAMPLE_SEQS];
    uint32_t rows[SAMPLE_SEQS];
    uint64_t samples[SAMPLE_SEQS * SAMPLE_MAX_LEN]; /* tokens of this file */
    uint64_t global[SAMPLE_SEQS * SAMPLE_MAX_LEN];  /* of the corpus, by token of this file */
};

static uint32_t sample_mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c * 0x165667b19e3779f9u + 1;
    x ^= x >> 29, x *= 0xbf58476d1ce4e5b9u, x ^= x >> 32;
    return (uint32_t)x;
}

static inline uint16_t sample_block(const struct trace_info *i, int layer, uint64_t global, int slot)
{
    int n = i->h.n_experts;
    return n ? (uint16_t)((sample_mix(7, (uint64_t)layer, global) + (uint32_t)slot) % (uint32_t)n) : 0;
}

/* What is foreseen of it: mostly the same, the slots of each fifth token are another's. */
static inline uint16_t sample_foreseen(const struct trace_info *i, int layer, uint64_t global, int slot)
{
    return sample_block(i, layer, global + (global % 5 == 0), slot);
}

/* Neuron j of that slot: 2 fires (and its gate is open), 1 gate open only, 0 neither. */
static inline int sample_fires(int layer, uint64_t global, int slot, int j)
{
    uint32_t v = sample_mix((uint64_t)layer * 4 + (uint64_t)slot, global, (uint64_t)j) % 100;
    return (int)v < j ? 2 : (int)v < j + 10 ? 1 : 0;
}

static void sample_tensor(struct trace_sample *s, const char *name, enum model_role role, int layer, uint64_t a,
                          uint64_t b, uint64_t c)
{
    struct trace_tensor *t = &s->tensors[s->info.n_tensors];
    char *text = s->names[s->info.n_tensors++];
    snprintf(text, 32, name, layer);
    *t = (struct trace_tensor){ .name = text,
                                .role = role,
                                .layer = layer,
                                .type = QUANT_F32,
                                .n_dims = c > 1   ? 3
                                          : b > 1 ? 2
                                                  : 1,
                                .dims = { a, b, c, 1 },
                                .bytes = a * b * c * 4,
                                .hash = { 17 + a, 99 + b } };
}

static inline float sample_threshold(int layer, int j)
{
    return (float)(layer * SAMPLE_FF + j) / 128;
}

static void sample_init(struct trace_sample *s, int n_experts, int shard, int n_shards)
{
    memset(s, 0, sizeof *s);
    struct trace_info *i = &s->info;
    i->tensors = s->tensors;
    snprintf(i->tool, sizeof i->tool, "sample 1");
    snprintf(i->tier, sizeof i->tier, "scalar");
    i->h = (struct model_hparams){ .arch = "llama",
                                   .name = "sample",
                                   .n_layers = SAMPLE_LAYERS,
                                   .d_model = SAMPLE_D,
                                   .n_heads = 2,
                                   .n_kv_heads = 1,
                                   .head_dim = 12,
                                   .n_ff = SAMPLE_FF,
                                   .n_vocab = 50,
                                   .n_ctx_train = 64,
                                   .n_experts = n_experts,
                                   .n_experts_used = n_experts ? 2 : 0,
                                   .n_rot = 12,
                                   .rope_theta = 10000,
                                   .rope_scale = 1,
                                   .rms_eps = 1e-5f,
                                   .act = MODEL_ACT_DRELU,
                                   .router = n_experts ? MODEL_ROUTER_SOFTMAX_TOPK : MODEL_ROUTER_NONE,
                                   .tied_output = 1 };
    i->model_hash = (struct hash128){ 0x1234, 0x5678 };
    i->vocab_text_bytes = 300, i->meta_bytes = 2000;
    i->shard = shard, i->n_shards = n_shards;
    struct trace_corpus *c = &i->corpus;
    snprintf(c->prompts, sizeof c->prompts, "sample.csv");
    snprintf(c->column, sizeof c->column, "text");
    c->n_ctx = 16, c->hash = (struct hash128){ 5, 6 }, c->window_wanted = 200, c->samples_wanted = 50;
    for (int q = 0; q < SAMPLE_SEQS; q++)
        s->all_starts[q + 1] = s->all_starts[q] + 3 + sample_mix(1, (uint64_t)q, 0) % (SAMPLE_MAX_LEN - 2);
    c->n_sequences = SAMPLE_SEQS, c->n_tokens = s->all_starts[SAMPLE_SEQS];
    trace_window(s->all_starts, SAMPLE_SEQS, c->window_wanted, &c->window_sequences, &c->window_tokens);
    c->n_samples = 50;
    for (uint64_t q = 0, at = 0; q < SAMPLE_SEQS; q++) {
        if (trace_shard_of(q, n_shards) != shard)
            continue;
        for (uint64_t t = s->all_starts[q]; t < s->all_starts[q + 1]; t++) {
            for (uint64_t k = 0; k < c->n_samples; k++)
                if (trace_sample_token(k, c->n_samples, c->n_tokens) == t)
                    s->samples[i->n_samples++] = at;
            s->global[at++] = t;
        }
        s->index[i->n_sequences] = q;
        s->rows[i->n_sequences++] = (uint32_t)(q / 2);
        s->starts[i->n_sequences] = at;
        i->n_tokens = at;
        if (q < c->window_sequences)
            i->window_sequences++, i->window_tokens = at;
    }
    uint64_t e = (uint64_t)model_ffn_blocks(&i->h);
    sample_tensor(s, "token_embd.weight", MODEL_TOKEN_EMBD, -1, SAMPLE_D, 50, 1);
    sample_tensor(s, "output_norm.weight", MODEL_OUTPUT_NORM, -1, SAMPLE_D, 1, 1);
    for (int l = 0; l < SAMPLE_LAYERS; l++) {
        sample_tensor(s, "blk.%d.attn_norm.weight", MODEL_ATTN_NORM, l, SAMPLE_D, 1, 1);
        sample_tensor(s, "blk.%d.ffn_gate.weight", MODEL_FFN_GATE, l, SAMPLE_D, SAMPLE_FF, e);
        sample_tensor(s, "blk.%d.ffn_up.weight", MODEL_FFN_UP, l, SAMPLE_D, SAMPLE_FF, e);
        sample_tensor(s, "blk.%d.ffn_down.weight", MODEL_FFN_DOWN, l, SAMPLE_FF, SAMPLE_D, e);
    }
}

/* A dense one becomes one of neurons with thresholds. */
static inline void sample_add_thresholds(struct trace_sample *s)
{
    s->info.h.act = MODEL_ACT_SILU;
    s->info.h.thresholds = 1;
    for (int l = 0; l < SAMPLE_LAYERS; l++)
        sample_tensor(s, "blk.%d.ffn_gate.threshold", MODEL_FFN_THRESHOLD, l, SAMPLE_FF, 1, 1);
}

/* Count over batches straight from the definition. n = 1 of consecutive: the tokens. */
static void sample_count(const struct trace_sample *s, int layer, int kind, int n, int need, uint64_t *counts,
                         uint64_t *routed, uint64_t *n_batches)
{
    const struct trace_info *i = &s->info;
    int k = trace_slots(&i->h), blocks = model_ffn_blocks(&i->h);
    for (uint64_t q = 0; q < i->n_sequences; q += kind == TRACE_BATCH_SEQUENCES ? (uint64_t)n : 1) {
        uint64_t group_end = (q / TRACE_GROUP + 1) * TRACE_GROUP;
        group_end = group_end < i->n_sequences ? group_end : i->n_sequences;
        if (kind == TRACE_BATCH_SEQUENCES && q + (uint64_t)n > group_end) {
            q = group_end - (uint64_t)n; /* the next group comes next */
            continue;
        }
        for (uint64_t p = 0; p < SAMPLE_MAX_LEN; p += kind == TRACE_BATCH_SEQUENCES ? 1 : (uint64_t)n) {
            uint64_t token[32];
            int whole = 1;
            for (int b = 0; b < n; b++) {
                uint64_t seq = kind == TRACE_BATCH_SEQUENCES ? q + (uint64_t)b : q,
                         pos = kind == TRACE_BATCH_SEQUENCES ? p : p + (uint64_t)b;
                whole &= s->starts[seq] + pos < s->starts[seq + 1];
                token[b] = s->global[s->starts[seq] + pos < i->n_tokens ? s->starts[seq] + pos : 0];
            }
            if (!whole)
                continue;
            ++*n_batches;
            for (int e = 0; e < blocks; e++) {
                int used = 0;
                for (int j = 0; j < SAMPLE_FF; j++) {
                    int on = 0;
                    for (int b = 0; b < n; b++)
                        for (int o = 0; o < k; o++)
                            if (sample_block(i, layer, token[b], o) == e) {
                                used = 1;
                                on |= sample_fires(layer, token[b], o, j) >= need;
                            }
                    counts[e * SAMPLE_FF + j] += (uint64_t)on;
                }
                routed[e] += (uint64_t)used;
            }
        }
    }
}

static int sample_bits(const struct trace_sample *s, struct trace_writer *w, enum trace_set set, int layer,
                       const uint64_t *tokens, uint64_t n, int need, struct err *e)
{
    int k = trace_slots(&s->info.h), r = 0;
    for (uint64_t t = 0; t < n && !r; t++) {
        uint8_t row[4 * ((SAMPLE_FF + 7) / 8)] = { 0 };
        for (int o = 0; o < k; o++)
            for (int j = 0; j < SAMPLE_FF; j++)
                if (sample_fires(layer, s->global[tokens ? tokens[t] : t], o, j) >= need)
                    row[o * ((SAMPLE_FF + 7) / 8) + j / 8] |= (uint8_t)(1 << j % 8);
        r = trace_writer_append(w, set, layer, 1, row, e);
    }
    return r;
}

static int sample_layer(struct trace_sample *s, struct trace_writer *w, int layer, struct err *e)
{
    const struct trace_info *i = &s->info;
    enum { MOST = 4 * SAMPLE_FF };
    uint64_t counts[MOST] = { 0 }, gates[MOST] = { 0 }, routed[4] = { 0 }, ignore[4] = { 0 }, n = 0;
    static uint64_t batch[TRACE_BATCH_SIZES * MOST], used[TRACE_BATCH_SIZES * 4];
    uint64_t blocks = (uint64_t)model_ffn_blocks(&i->h);
    sample_count(s, layer, TRACE_BATCH_CONSECUTIVE, 1, 2, counts, routed, &n);
    sample_count(s, layer, TRACE_BATCH_CONSECUTIVE, 1, 1, gates, ignore, &n);
    int r = trace_writer_append(w, TRACE_SET_COUNTS, layer, blocks, counts, e);
    if (!r)
        r = trace_writer_append(w, TRACE_SET_GATE_COUNTS, layer, blocks, gates, e);
    if (!r)
        r = trace_writer_append(w, TRACE_SET_ROUTED, layer, blocks, routed, e);
    for (int k = 0; k < TRACE_BATCH_KINDS && !r; k++) {
        memset(batch, 0, sizeof batch), memset(used, 0, sizeof used);
        for (int z = 0; z < TRACE_BATCH_SIZES; z++)
            sample_count(s, layer, k, trace_batch_sizes[z], 2, batch + (size_t)z * blocks * SAMPLE_FF,
                         used + (size_t)z * blocks, &n);
        r = trace_writer_append(w, k ? TRACE_SET_BATCH_CONS : TRACE_SET_BATCH_SEQ, layer, TRACE_BATCH_SIZES, batch, e);
        if (!r)
            r = trace_writer_append(w, k ? TRACE_SET_ROUTED_CONS : TRACE_SET_ROUTED_SEQ, layer, TRACE_BATCH_SIZES,
                                    used, e);
    }
    if (!r)
        r = sample_bits(s, w, TRACE_SET_MAPS, layer, NULL, i->window_tokens, 2, e);
    if (!r)
        r = sample_bits(s, w, TRACE_SET_GATE_SIGNS, layer, s->samples, i->n_samples, 1, e);
    for (uint64_t t = 0; t < i->n_tokens && !r && i->h.n_experts; t++) {
        uint16_t route[2] = { sample_block(i, layer, s->global[t], 0), sample_block(i, layer, s->global[t], 1) };
        r = trace_writer_append(w, TRACE_SET_ROUTING, layer, 1, route, e);
    }
    for (uint64_t t = 0; t < i->n_tokens && !r && i->foreseen; t++) {
        uint16_t seen[2] = { sample_foreseen(i, layer, s->global[t], 0), sample_foreseen(i, layer, s->global[t], 1) };
        r = trace_writer_append(w, TRACE_SET_FORESEEN, layer, 1, seen, e);
    }
    for (int set = TRACE_SET_BLOCK_INPUT; set <= TRACE_SET_FFN_RMS && !r; set++)
        for (uint64_t t = 0; t < i->n_samples && !r; t++) {
            uint16_t row[SAMPLE_D];
            float rms = (float)s->global[s->samples[t]];
            for (int j = 0; j < SAMPLE_D; j++)
                row[j] = (uint16_t)(sample_mix((uint64_t)set, s->global[s->samples[t]], (uint64_t)j) & 0x3fff);
            r = trace_writer_append(w, (enum trace_set)set, layer, 1, set == TRACE_SET_FFN_RMS ? (void *)&rms : row, e);
        }
    for (int j = 0; j < SAMPLE_FF && !r && i->h.thresholds; j++)
        r = trace_writer_append(w, TRACE_SET_THRESHOLDS, layer, 1, (float[1]){ sample_threshold(layer, j) }, e);
    return r;
}

static int sample_write(struct trace_sample *s, const char *path, int gzip, struct hash128 *content, struct err *e)
{
    struct trace_info *i = &s->info;
    struct trace_writer *w = NULL;
    memset(i->n_batches, 0, sizeof i->n_batches);
    for (int k = 0; k < TRACE_BATCH_KINDS; k++)
        for (int z = 0; z < TRACE_BATCH_SIZES; z++) {
            uint64_t counts[4 * SAMPLE_FF], routed[4];
            sample_count(s, 0, k, trace_batch_sizes[z], 2, counts, routed, &i->n_batches[k][z]);
        }
    uint32_t tokens[SAMPLE_SEQS * SAMPLE_MAX_LEN];
    for (uint64_t t = 0; t < i->n_tokens; t++)
        tokens[t] = sample_mix(3, s->global[t], 0) % 50;
    int r;
    if ((r = trace_writer_open(path, i, gzip, &w, e)) < 0)
        return r;
    if ((r = trace_writer_append(w, TRACE_SET_TOKENS, 0, i->n_tokens, tokens, e)) == 0 &&
        (r = trace_writer_append(w, TRACE_SET_STARTS, 0, i->n_sequences + 1, s->starts, e)) == 0 &&
        (r = trace_writer_append(w, TRACE_SET_INDEX, 0, i->n_sequences, s->index, e)) == 0 &&
        (r = trace_writer_append(w, TRACE_SET_ROWS, 0, i->n_sequences, s->rows, e)) == 0)
        r = trace_writer_append(w, TRACE_SET_SAMPLE_TOKENS, 0, i->n_samples, s->samples, e);
    for (int l = 0; l < SAMPLE_LAYERS && !r; l++)
        r = sample_layer(s, w, l, e);
    if (!r)
        r = trace_writer_commit(w, content, e);
    trace_writer_abort(w);
    return r;
}

#endif
