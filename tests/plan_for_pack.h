#ifndef TESTS_PLAN_FOR_PACK_H
#define TESTS_PLAN_FOR_PACK_H

/* A plan for a sample of engine_sample.h: half of each FFN in memory, some slots of cold cache, two threads, four sequences. */
#include "common/model/kv_type.h"
#include "common/pack/pack.h"
#include "common/plan/plan.h"

#include <stdlib.h>
#include <string.h>

static inline int plan_for_pack(const char *pack_file, const char *plan_file, int context, struct err *e)
{
    struct pack *k = NULL;
    struct plan p = { .tool = "test", .solver = "none", .seed = 1, .cost = PLAN_COST_MEASURED, .model_name = "sample", .device = "none",
                      .request = { .mode = -1, .form = -1, .packed = -1, .policy = -1, .predictor = -1, .max_kl = -1,
                                   .prompt_weight = PLAN_PROMPT_WEIGHT } };
    int r = pack_open(pack_file, &k, e);
    if (r < 0)
        return r;
    p.n_layers = k->h.n_layers;
    p.n_blocks = k->h.n_experts > 0 ? k->h.n_experts : 1;
    p.n_ff = k->h.n_ff;
    p.d_model = k->h.d_model;
    p.model_hash = k->model_hash;
    p.order_hash = k->order_hash;
    p.layout = k->shapes.l;
    p.layout_hash = k->layout_hash;
    p.n_parts = k->shapes.n_parts;
    p.limits = calloc(1, sizeof *p.limits);
    p.n_limits = p.limits != NULL;
    struct plan_limit *l = p.limits;
    if (!l)
        abort();
    *l = (struct plan_limit){ .memory_bytes = 64 << 20, .account_bytes = 64 << 20, .floor_bytes = 1 << 20, .context = context,
                              .kv_type = KV_F16,
                              .max_batch = 4, .prefill_chunk = 8, .mode = PLAN_EXACT, .threads = 2, .n_classes = 1, .io = PLAN_IO_PREAD,
                              .io_lanes = 2, .queue_depth = 4, .policy = CACHE_LRU, .optimal = 1 };
    strcpy(l->classes[0].name, "cpu");
    l->classes[0].n = 2;
    r = plan_limit_init(&p, l, 2, e);
    for (int n = 0; n < 2 && r == 0; n++) {
        struct plan_batch *b = &l->batches[n];
        uint32_t cluster = p.layout.cluster_neurons;
        b->batch = n ? l->max_batch : 1;
        b->threads = 2;
        b->n_classes = 1;
        b->classes[0] = l->classes[0];
        b->queue_depth = 4;
        for (int i = 0; i < p.n_layers * p.n_blocks * p.n_parts; i++)
            b->hot[i] = (uint32_t)p.n_ff / 2 / cluster * cluster;
        for (int i = 0; i < p.n_layers * p.n_parts; i++)
            b->cold[i] = i % p.n_parts == p.n_parts - 1 ? 8 : 0;
        b->predicted.tokens_per_s = 1;
        b->predicted.step_ns = 1e9;
    }
    if (r == 0)
        r = plan_write(&p, plan_file, e);
    plan_done(&p);
    pack_close(k);
    return r;
}

#endif
