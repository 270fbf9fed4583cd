/* What a plan keeps of a request, and back. */
#include "planner/planning/request.h"

#include "common/engines/engines.h"
#include "common/model/kv_type.h"

#include <stdio.h>
#include <string.h>

void request_init(struct request *q)
{
    *q = (struct request){ .max_batch = 1, .prompt_weight = PLAN_PROMPT_WEIGHT, .mode = -1, .form = -1, .kv_type = KV_F16,
                                    .down_type = -1, .gate_type = -1, .policy = -1, .predictor = -1, .packed = -1, .max_kl = -1,
                                    .rlimit = REQUEST_RLIMIT };
    for (int k = 0; k < HW_MAX_CLASSES; k++)
        q->cores[k] = -1;
}

void request_weights(const struct request *q, int n, int out[PLAN_MAX_BATCHES])
{
    for (int b = 0; b < n; b++)
        out[b] = q->weight[0] > 0 ? q->weight[b] : b == 0 && n > 1 ? n - 1 : 1;
}

void request_record(const struct request *q, const struct hw *hw, int n, struct plan_request *out)
{
    *out = (struct plan_request){ .mode = q->mode, .form = q->for_pack ? (int)q->for_pack->form : q->form,
                                  .packed = q->for_pack ? q->for_pack->packed : q->packed, .policy = q->policy,
                                  .predictor = q->predictor, .context = q->context, .recall = q->recall, .max_kl = q->max_kl,
                                  .prompt_weight = q->prompt_weight, .prefill_chunk = q->chunk, .n_weights = n > 1 ? n : 0 };
    out->elastic = q->elastic;
    out->always_resident = q->always_resident;
    snprintf(out->engine, sizeof out->engine, "%.63s", q->engine);
    request_weights(q, out->n_weights, out->weight);
    for (int k = 0; k < hw->n_classes && out->n_cores < PLAN_MAX_CLASSES; k++) {
        if (q->cores[k] < 0)
            continue;
        struct plan_class *c = &out->cores[out->n_cores++];
        snprintf(c->name, sizeof c->name, "%.31s", hw->classes[k].name);
        c->n = q->cores[k];
    }
}

static int has_figures(const struct hw *hw, int accel)
{
    int n = 0;
    for (int i = 0; i < hw->n_accel_points; i++)
        n += hw->accel_points[i].accel == accel &&
             (!strncmp(hw->accel_points[i].op, "ffn/", 4) || !strncmp(hw->accel_points[i].op, "matmul/", 7));
    return n > 0;
}

const char *request_engine(const struct request *q, const struct hw *hw)
{
    const struct accel_backend *b;
    int device;
    for (int i = 0; hw && i < hw->n_accels && q->cost == PLAN_COST_MEASURED; i++) {
        const char *name = hw->accels[i].engine;
        int wanted = q->engine[0] ? !strcmp(q->engine, name) : engines_find(name, &b, &device) == 0 && b;
        if (wanted && has_figures(hw, i))
            return name;
    }
    return NULL;
}

/* The most cores of a class that were asked for; -1: all. */
static int cores_of(const struct plan_request *q, const char *name)
{
    for (int i = 0; i < q->n_cores; i++)
        if (!strncmp(q->cores[i].name, name, sizeof q->cores[i].name - 1))
            return q->cores[i].n;
    return -1;
}

void request_again(const struct plan *p, const struct plan_limit *l, const struct hw *hw, struct request *out)
{
    const struct plan_request *asked = &p->request;
    request_init(out);
    out->n_memory = 1;
    out->memory[0] = l->memory_bytes;
    out->min_tokens_per_s = l->min_tokens_per_s;
    out->context = l->context;
    out->max_batch = l->max_batch;
    out->purpose = l->purpose;
    out->cost = p->cost;
    out->stat = p->stat;
    out->kv_type = l->kv_type;
    out->act_q8 = l->act_q8;
    out->rlimit = p->rlimit;
    out->for_pack = &p->layout;
    out->mode = asked->mode;
    out->policy = asked->policy;
    out->recall = asked->recall;
    out->max_kl = asked->max_kl;
    out->predictor = asked->predictor;
    out->always_resident = asked->always_resident;
    out->chunk = l->prefill_chunk;
    snprintf(out->engine, sizeof out->engine, "%.63s", asked->engine);
    for (int b = 0; b < l->n_batches; b++)
        out->weight[b] = asked->n_weights ? asked->weight[b] : 1;
    out->prompt_weight = asked->prompt_weight;
    for (int k = 0; k < hw->n_classes; k++)
        out->cores[k] = cores_of(asked, hw->classes[k].name);
}
