#ifndef TESTS_PLANNING_SAMPLE_H
#define TESTS_PLANNING_SAMPLE_H

/* A small synthetic model and device for the planner's tests: no files. */
#include "common/kernels/quant.h"
#include "common/offline/hwdb/hwdb.h"
#include "planner/inputs/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t sample_state = 1;
static inline double sample_uniform(void)
{
    sample_state = sample_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(sample_state >> 11) / 9007199254740992.0;
}

/* Probability that the neuron at a pack position fires; falls with the position. */
static inline double sample_rate(int layer, int pos, int n_ff)
{
    return 0.02 + (0.25 + 0.1 * (layer % 3)) * exp(-3.0 * pos / n_ff);
}

static inline int inputs_layout(const struct inputs *in, enum layout_form form, uint32_t cluster_neurons, int down_type,
                                struct layout *out, struct err *e)
{
    struct layouts_source m;
    inputs_source(in, &m);
    return layouts_one(&m, form, cluster_neurons, down_type, out, e);
}

static inline int sample_steps(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out,
                               struct err *e)
{
    uint64_t saved = sample_state;
    int n = (int)(in->window_tokens < max_steps ? in->window_tokens : max_steps), n_ff = in->h.n_ff;
    struct inputs_steps s = { .n_steps = n };
    (void)e;
    s.start = malloc(((size_t)n + 1) * sizeof *s.start);
    s.at = malloc((size_t)n * (size_t)n_ff * (size_t)in->n_used * sizeof *s.at);
    uint32_t m = 0;
    sample_state = 77 + (uint64_t)layer;
    for (int t = 0; t < n; t++) {
        s.start[t] = m;
        int first = (int)(sample_uniform() * (in->n_blocks - in->n_used + 1));
        for (int k = 0; k < in->n_used; k++)
            for (int p = 0; p < n_ff; p++)
                if (sample_uniform() < sample_rate(layer, p, n_ff))
                    s.at[m++] = (uint32_t)((first + k) * n_ff + p);
    }
    s.start[n] = m;
    sample_state = saved;
    *out = s;
    return 0;
}

static inline struct inputs sample_inputs(int layers, int d, int n_ff, int blocks, int max_batch)
{
    struct inputs in = { .name = "synthetic", .n_layers = layers, .n_blocks = blocks, .n_used = blocks > 1 ? 2 : 1,
                         .n_batches = inputs_count_batches(max_batch), .n_tokens = 10000, .window_tokens = 256,
                         .steps = sample_steps };
    struct err e;
    in.h = (struct model_hparams){ .arch = "llama", .n_layers = layers, .d_model = d, .n_heads = 4, .n_kv_heads = 2,
                                   .head_dim = d / 4, .n_ff = n_ff, .n_vocab = 500, .n_ctx_train = 256,
                                   .n_experts = blocks > 1 ? blocks : 0, .n_experts_used = blocks > 1 ? 2 : 0,
                                   .n_rot = d / 4, .act = MODEL_ACT_RELU };
    in.model_hash = hash_128("model", 5);
    in.trace_hash = hash_128("trace", 5);
    in.order_hash = hash_128("order", 5);
    if (inputs_alloc(&in, &e) < 0)
        abort();
    for (int i = 0; i < layers * LAYOUT_ROLES; i++)
        in.layers[i / LAYOUT_ROLES].ffn_type[i % LAYOUT_ROLES] = QUANT_F16;
    for (int b = 0; b < in.n_batches; b++)
        for (int l = 0; l < layers; l++)
            for (int k = 0; k < blocks; k++) {
                struct inputs_curve *c = &in.curves[((size_t)b * (size_t)layers + (size_t)l) * (size_t)blocks +
                                                    (size_t)k];
                c->routed = blocks > 1 ? 1 - pow(1 - 2.0 / blocks, inputs_batch_sizes[b]) : 1;
                for (int p = 0; p < n_ff; p++)
                    c->cum[p + 1] = c->cum[p] + 1 - pow(1 - sample_rate(l, p, n_ff) * (blocks > 1 ? 2.0 / blocks :
                                                                                       1), inputs_batch_sizes[b]);
            }
    uint64_t row = (uint64_t)d * 2;
    for (int l = 0; l < layers; l++) {
        struct inputs_matrix whole = { .type = QUANT_F16, .rows = d, .cols = d, .bytes = row * (uint64_t)d }, half = whole;
        half.rows /= 2, half.bytes /= 2;
        for (int i = 0; i < graph_n_roles; i++)
            if (graph_roles[i].role >= MODEL_ATTN_Q && graph_roles[i].role <= MODEL_ATTN_OUTPUT)
                inputs_add_product(&in.layers[l], &graph_roles[i],
                                   graph_roles[i].role == MODEL_ATTN_K || graph_roles[i].role == MODEL_ATTN_V ? half : whole);
    }
    in.head = (struct inputs_matrix){ .type = QUANT_F16, .rows = 500, .cols = d, .bytes = row * 500 };
    in.embd_row_bytes = row;
    in.budget = (struct budget_model){ .h = in.h, .dense_bytes = row * 500 + (uint64_t)layers * row * (uint64_t)d *
                                       3, .n_tensors = 4, .vocab_text_bytes = 4000 };
    return in;
}

/* A predictor that sees `input` in every layer and block: two operating points. */
static inline void sample_predictors(struct inputs *in, int input, int rank, double false_positives)
{
    struct err e = { 0 };
    if (!in->predictors && inputs_alloc_predictors(in, &e) < 0)
        abort();
    in->recall = 0.95;
    for (int l = 0; l < in->n_layers; l++)
        for (int k = 0; k < in->n_blocks; k++) {
            const struct inputs_curve *c = inputs_curve_at(in, 0, l, k);
            double share = c->cum[in->h.n_ff] / c->routed / in->h.n_ff;
            struct inputs_predictor *x = inputs_predictor_at(in, input, l, k);
            *x = (struct inputs_predictor){ .rank = rank, .type1 = QUANT_F16, .type2 = QUANT_F16, .n_points = 2,
                                            .bytes = 4096, .true_density = share };
            x->point[0] = (struct inputs_point){ 0.95, share * (0.95 + false_positives) };
            x->point[1] = (struct inputs_point){ 0.8, share * (0.8 + false_positives / 2) };
        }
}

/* n_classes classes; storage of `iops` random 4 KiB reads/s at depth 32. */
static inline struct hw sample_hw(int n_classes, int cores, double iops)
{
    struct hw h = { .name = "bench", .n_classes = n_classes };
    static const char *const names[] = { "rows/f16/f32", "axpy/f16", "rows/q8_0/q8", "axpy/q8_0" };
    h.hash = hash_128("bench", 5);
    h.compute = calloc(256, sizeof *h.compute);
    h.memory = calloc(64, sizeof *h.memory);
    h.storage_points = calloc(256, sizeof *h.storage_points);
    for (int k = 0; k < n_classes; k++) {
        h.classes[k] = (struct hw_class){ .n_cores = cores, .max_hz = 3000000000u };
        snprintf(h.classes[k].name, sizeof h.classes[k].name, "class%d", k);
        for (int i = 0; i < 4; i++)
            for (int t = 1; t <= cores; t++) {
                struct hw_compute *c = &h.compute[h.n_compute++];
                double ns = 30.0 * (k + 1) / t * (i == 1 ? 1.5 : 1);
                *c = (struct hw_compute){ .core_class = k, .pattern = HW_SEQ, .threads = t, .row_len = 256,
                                          .rows = 64, .batch = 1, .ns_per_row = { ns, ns, ns },
                                          .flops_per_s = 512e9 / ns };
                strcpy(c->kernel, names[i]);
            }
    }
    for (int t = 1; t <= cores * n_classes; t++)
        for (int p = 0; p < 2; p++) {
            double bw = (p ? 8e9 : 20e9) * (t > 2 ? 2 : t);
            h.memory[h.n_memory++] = (struct hw_memory){ .engines = "cpu", .pattern = p ? HW_RANDOM : HW_SEQ,
                                                         .row_bytes = 4096, .threads = t,
                                                         .bytes_per_s = { bw, bw, bw } };
        }
    for (int d = 1; d <= 32 && iops > 0; d *= 2)
        for (int s = 0; s < 2; s++)
            for (int z = 4096; z <= 1 << 20; z *= 16) {
                double t = (double)z / 2e9 + 1 / (iops * d / 32), bw = fmin(2e9, z / t * (s ? 1.2 : 1));
                h.storage_points[h.n_storage++] = (struct hw_storage){ .backend = HW_URING, .direct = 1,
                                                                       .pattern = s ? HW_SEQ : HW_RANDOM,
                    .block_bytes = (uint64_t)z, .queue_depth = d, .lanes = 1, .range_bytes = 1u << 28,
                    .core_class = -1, .bytes_per_s = { bw, bw, bw }, .cpu_ns_per_read = 5000 };
            }
    return h;
}

/* The same with rows of 64 tokens, which take half as long for each. */
static inline void sample_many_tokens(struct hw *h)
{
    for (int i = 0, n = h->n_compute; i < n; i++)
        if (!strcmp(h->compute[i].kernel, "rows/f16/f32") && h->compute[i].batch == 1) {
            struct hw_compute *c = &h->compute[h->n_compute++];
            *c = h->compute[i];
            c->batch = 64;
            c->ns_per_row = (struct hw_dist){ 32 * c->ns_per_row.p10, 32 * c->ns_per_row.p50, 32 * c->ns_per_row.p90 };
        }
}

/* Accelerator opencl:0: FFNs of F16, a launch and so many ns for a neuron, whatever the tokens, with up to 8, and with 64 and more (0: that
 * was not measured). */
static inline void sample_accel(struct hw *h, double launch_ns, double few_ns, double many_ns)
{
    h->accels = calloc(1, sizeof *h->accels);
    h->accel_points = calloc(32, sizeof *h->accel_points);
    h->n_accels = 1;
    h->accels[0] = (struct hw_accel){ .engine = "opencl:0", .launch_ns = launch_ns, .shares_memory = 1, .driver_bytes = 4096 };
    for (int b = 1; b <= (many_ns > 0 ? 512 : 8); b *= 8)
        for (int n = 64; n <= 4096; n *= 2) {
            double ns = launch_ns + n * (b > 8 ? many_ns : few_ns);
            h->accel_points[h->n_accel_points++] = (struct hw_accel_point){ .op = "ffn/f16", .rows = n, .cols = 256, .batch = b,
                                                                           .ns = { ns, ns, ns } };
        }
}

/* Products of F16 by sample_accel's, with up to 128 tokens: a launch, and so many ns for a row, whatever the tokens. */
static inline void sample_products(struct hw *h, double row_ns)
{
    double launch_ns = h->accels[0].launch_ns;
    h->accel_points = realloc(h->accel_points, ((size_t)h->n_accel_points + 32) * sizeof *h->accel_points);
    for (int b = 1; b <= 128; b *= 128)
        for (int n = 64; n <= 4096; n *= 2) {
            double ns = launch_ns + n * row_ns;
            h->accel_points[h->n_accel_points++] = (struct hw_accel_point){ .op = "matmul/f16", .rows = n, .cols = 256, .batch = b,
                                                                           .ns = { ns, ns, ns } };
        }
}

#endif
