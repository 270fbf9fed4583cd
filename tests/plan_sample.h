#ifndef TESTS_PLAN_SAMPLE_H
#define TESTS_PLAN_SAMPLE_H

/* A small plan with every field set to something that is not its default. */
#include "common/kernels/quant.h"
#include "common/model/kv_type.h"
#include "common/model/predict.h"
#include "common/plan/plan.h"

#include <stdlib.h>
#include <string.h>

static inline void plan_sample(struct plan *p)
{
    struct err e;
    *p = (struct plan){ .tool = "thermo-plan 0.1.0", .solver = "exhaustive", .seed = 7,
                        .rlimit = 1000000, .cost = PLAN_COST_MEASURED, .stat = PLAN_SUSTAINED, .model_name = "sample \"quoted\" \\ name",
                        .device = "bench", .n_layers = 3, .n_blocks = 2, .n_ff = 200, .d_model = 64 };
    p->model_hash = hash_128("m", 1);
    p->trace_hash = hash_128("t", 1);
    p->order_hash = hash_128("o", 1);
    p->hardware_hash = hash_128("h", 1);
    const uint32_t types[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q4_0, QUANT_Q8_0 };
    layout_default(&p->layout, LAYOUT_SPLIT, types);
    p->layout.cluster_neurons = 64;
    p->layout_hash = layout_hash(&p->layout);
    p->n_parts = 2;
    p->request = (struct plan_request){ .mode = -1, .form = LAYOUT_SPLIT, .packed = 0, .policy = CACHE_LFU, .predictor = -1,
                                        .always_resident = 1, .prompt_weight = 2.5, .prefill_chunk = 64, .n_weights = 2, .weight = { 3, 2 },
                                        .context = 256, .recall = 0.99, .max_kl = 0.12345678901, .n_cores = 1,
                                        .cores = { { "little", 3 } } };
    if (plan_note(p, &e, "flash has no figure for depth %d", 32) < 0)
        abort();
    p->limits = calloc(2, sizeof *p->limits);
    p->n_limits = 2;
    for (int i = 0; i < 2; i++) {
        struct plan_limit *l = &p->limits[i];
        *l = (struct plan_limit){ .memory_bytes = 1000000u * (unsigned)(i + 1), .account_bytes = 900000,
                                  .floor_bytes = 400000, .min_tokens_per_s = 2.5, .context = 256, .kv_type = KV_F16,
                                  .max_batch = 2, .prefill_chunk = 64, .mode = PLAN_EXACT, .act_q8 = 1,
                                  .threads = 3, .n_classes = 2, .io = PLAN_IO_URING, .io_lanes = 1,
                                  .queue_depth = 32, .policy = CACHE_LFU, .gap = 0.0125, .optimal = 1 };
        strcpy(l->classes[0].name, "big");
        l->classes[0].n = 1;
        strcpy(l->classes[1].name, "little");
        l->classes[1].n = 2;
        if (plan_limit_init(p, l, 2, &e) < 0)
            abort();
        if (i == 1) {
            l->stream_tables = 1;
            l->n_coalesce = 2;
            l->coalesce[0] = (struct reads_coalesce){ 65536, 4.75 };
            l->coalesce[1] = (struct reads_coalesce){ 524288, 18.5 };
            l->mode = PLAN_PREDICTED;
            l->recall = 0.9;
            l->by_layer = 1;
            l->recalls[0] = 0.99, l->recalls[1] = 1, l->recalls[2] = 0.9;
            l->always[1] = 64;
            l->quality = (struct plan_quality){ 1000, 256, 0.0078125, 2.5, 0.96875, 1.0625, hash_128("text", 4) };
            l->predictor[0] = PREDICT_FFN;
            l->predictor[2] = PREDICT_BLOCK;
        }
        l->n_alternatives = l->n_alternative_times = i + 1;
        l->alternatives[0] = (struct plan_alternative){ 1, 16, PLAN_IO_PREAD, 0, 1, { 1.5, 2.5, 3.5, 4.5, 5.5 } };
        l->alternatives[1] = (struct plan_alternative){ 4, 64, PLAN_IO_URING, 1, 1, { 0.5, 1.25, 0, 2, 8 } };
        for (int b = 0; b < 2; b++) {
            struct plan_batch *pb = &l->batches[b];
            pb->batch = b + 1;
            pb->threads = b ? l->threads : 2;
            pb->n_classes = l->n_classes;
            memcpy(pb->classes, l->classes, sizeof pb->classes);
            pb->classes[1].n = b ? 2 : 1;
            pb->queue_depth = b ? 16 : l->queue_depth;
            for (int k = 0; k < 3 * 2 * 2; k++)
                pb->hot[k] = k % 3 == 2 ? 200 : 64u * (unsigned)(k % 3);
            for (int k = 0; k < 3 * 2; k++)
                pb->cold[k] = (uint32_t)k;
            pb->predicted.tokens_per_s = 12.345678;
            pb->predicted.step_ns = 81000000.5;
            pb->predicted.head_ns = 1e5;
            pb->predicted.read_bytes = 4096;
            pb->predicted.hit_rate = 0.875;
            for (int k = 0; k < 3; k++)
                for (int c = 0, n = 0; c < PLAN_COLUMNS; c++)
                    if (plan_columns[c].at != offsetof(struct plan_layer_figures, ffn_engine_ns)) /* it has no accelerator */
                        *plan_column_at(&pb->predicted.layers[k], c) = 0.0625 * ++n + k * 0.03125;
        }
    }
}

#endif
