/* The accelerator beside the processor: what its part of an FFN takes, from measured products and FFNs, and what both take together. */
#include "planner/cost/cost.h"

#include "common/kernels/quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double op_ns(const struct hw *hw, int accel, const char *op, uint32_t type, int rows, int cols, int tokens, enum hw_stat stat)
{
    char name[HW_NAME];
    hw_op_name(op, type, NULL, name, sizeof name);
    return hw_accel_ns(hw, accel, name, rows, cols, tokens, stat);
}

/* A product by itself; of a type that was not measured by that of four bits, as published, others by their bytes. 0: not known. */
static double product_ns(const struct hw *hw, int accel, uint32_t type, int rows, int cols, int tokens, enum hw_stat stat)
{
    double ns = op_ns(hw, accel, "matmul", type, rows, cols, tokens, stat);
    if (ns > 0)
        return ns;
    ns = hw_accel_ns(hw, accel, "matmul/q4", rows, cols, tokens, stat);
    double size = larger(1, (double)quant_row_bytes(type, 256) / (double)quant_row_bytes(QUANT_Q4_0, 256));
    return ns > 0 ? cost_engine_ns(hw->accels[accel].launch_ns, size, ns) : 0;
}

/* (M25): an FFN of so many neurons; roles whose type was not measured as that of an FFN count by products. 0: not known. */
static double ffn_ns(const struct hw *hw, const struct cost_choice *c, int accel, const uint32_t *type, int neurons, int d, int tokens)
{
    enum hw_stat stat = cost_stat(c->stat);
    double launch = hw->accels[accel].launch_ns, sum = 0;
    for (int role = 0; role < LAYOUT_ROLES; role++) {
        double ns = op_ns(hw, accel, "ffn", type[role], neurons, d, tokens, stat);
        if (ns <= 0) {
            ns = product_ns(hw, accel, type[role], neurons, d, tokens, stat);
            ns = ns > 0 ? cost_engine_ns(launch, 3, ns) : 0;
        }
        if (ns <= 0)
            return 0;
        sum += ns / LAYOUT_ROLES;
    }
    return sum;
}

/* Were products of this operation measured with so many tokens? */
static int has_tokens(const struct hw *hw, int accel, const char *op, int tokens)
{
    for (int i = 0; i < hw->n_accel_points; i++)
        if (hw->accel_points[i].accel == accel && hw->accel_points[i].batch >= tokens && !strcmp(hw->accel_points[i].op, op))
            return 1;
    return 0;
}

int cost_engine_measured(const struct hw *hw, const char *engine, const struct layout_shape *s, int d_model, int tokens)
{
    static const char *const ops[] = { "ffn", "matmul" };
    int accel = hw_accel_of(hw, engine), all = accel >= 0;
    for (int role = 0; role < LAYOUT_ROLES && all; role++) {
        char name[HW_NAME] = "matmul/q4";
        for (int i = 1; i >= 0; i--) /* what ffn_ns takes first */
            if (op_ns(hw, accel, ops[i], s->type[role], s->n_ff, d_model, 1, HW_TYPICAL) > 0)
                hw_op_name(ops[i], s->type[role], NULL, name, sizeof name);
        all = has_tokens(hw, accel, name, tokens);
    }
    return all;
}

/* --- other products, (M34) --- */

static double products_ns(const struct hw *hw, int accel, const struct inputs_matrix *const m[], int n, int tokens, enum hw_stat stat)
{
    double launch = hw->accels[accel].launch_ns, sum = 0;
    for (int i = 0; i < n; i++)
        if (m[i]->rows)
            sum += larger(0, product_ns(hw, accel, m[i]->type, m[i]->rows, m[i]->cols, tokens, stat) - launch);
    return launch + sum;
}

double cost_engine_products_ns(const struct hw *hw, const struct cost_choice *c, const struct inputs_matrix *const m[], int n, int tokens)
{
    int accel = hw_accel_of(hw, c->engine), whole = tokens / SCHEDULE_ENGINE_TOKENS, rest = tokens % SCHEDULE_ENGINE_TOKENS;
    double ns = 0;
    if (whole)
        ns += whole * products_ns(hw, accel, m, n, SCHEDULE_ENGINE_TOKENS, cost_stat(c->stat));
    if (rest)
        ns += products_ns(hw, accel, m, n, rest, cost_stat(c->stat));
    return ns;
}

/* Was a product of such a matrix measured, with so many tokens or more? */
static int knows_product(const struct hw *hw, int accel, const struct inputs_matrix *m, int tokens)
{
    char name[HW_NAME];
    hw_op_name("matmul", m->type, NULL, name, sizeof name);
    return m->rows == 0 || has_tokens(hw, accel, name, tokens) || has_tokens(hw, accel, "matmul/q4", tokens);
}

enum plan_work cost_work_known(const struct hw *hw, const struct inputs *in, const char *engine, int tokens)
{
    int accel = hw_accel_of(hw, engine);
    if (accel < 0)
        return PLAN_WORK_FFN;
    int all = !model_has_states(&in->h), head = knows_product(hw, accel, &in->head, tokens);
    for (int l = 0; l < model_depth(&in->h) && all; l++) {
        const struct inputs_layer *il = &in->layers[l];
        for (int i = 0; i < il->n && all; i++)
            all = il->product[i].of->host || knows_product(hw, accel, &il->product[i], tokens);
    }
    return (enum plan_work)((all ? PLAN_WORK_ATTENTION : 0) | (head ? PLAN_WORK_HEAD : 0));
}

int cost_engine_known(const struct hw *hw, const char *engine, const struct layout_shape *s, int d_model)
{
    const struct cost_choice any = { .stat = PLAN_TYPICAL };
    int accel = hw_accel_of(hw, engine);
    return accel >= 0 && ffn_ns(hw, &any, accel, s->type, s->n_ff, d_model, 1) > 0;
}

/* sigma of (M26). Where bandwidths were not measured they are taken not to share. */
static double sharing(const struct hw *hw, const struct cost_choice *c, struct notes *notes)
{
    enum hw_stat stat = cost_stat(c->stat);
    char both[HW_NAME + 8];
    snprintf(both, sizeof both, "cpu+%s", c->engine);
    double cpu = hw_memory_bytes_per_s(hw, "cpu", HW_SEQ, 64u << 10, c->threads, stat);
    double own = hw_memory_bytes_per_s(hw, c->engine, HW_SEQ, 64u << 10, 1, stat);
    double together = hw_memory_bytes_per_s(hw, both, HW_SEQ, 64u << 10, c->threads, stat);
    if (cpu > 0 && own > 0 && together > 0)
        return larger(0, (cpu + own) / together - 1);
    notes_add(notes, "%s: no bandwidth of '%s' together with the processor: they are taken not to slow each other down", hw->name,
              c->engine);
    return 0;
}

/* The same of arithmetic, which passes of many tokens are bound by: both multiplied together, each as much as takes it about as long
 * alone; at most 1. An accelerator that shares the cores is measured with more, for there its threads and the processor's take turns
 * for as long as the measurement lasts; a layer's parts take no longer than one after the other. -1: not measured. */
static double multiplying(const struct hw *hw, int accel, enum hw_stat stat)
{
    static const char both[] = "both/";
    for (int i = 0; i < hw->n_accel_points; i++) {
        const struct hw_accel_point *p = &hw->accel_points[i];
        const char *type = p->op + sizeof both - 1;
        char cpu[HW_NAME], ffn[HW_NAME]; /* as they were measured alone */
        if (p->accel != accel || strncmp(p->op, both, sizeof both - 1) != 0)
            continue;
        snprintf(cpu, sizeof cpu, "cpu/%.32s", type);
        snprintf(ffn, sizeof ffn, "own/%.32s", type);
        double c = hw_accel_ns(hw, accel, cpu, p->rows, p->cols, p->batch, stat);
        double own = hw_accel_ns(hw, accel, ffn, p->cols, p->cols, p->batch, stat);
        double ns = hw_accel_ns(hw, accel, p->op, p->rows, p->cols, p->batch, stat);
        return c > 0 && own > 0 && ns > 0 ? smaller(1, cost_sharing(ns, c, own, hw->accels[accel].launch_ns)) : -1;
    }
    return -1;
}

int cost_engine_rates_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                         double tokens, struct cost_rates *r, struct notes *notes, struct err *e)
{
    int accel = hw_accel_of(hw, c->engine);
    if (accel < 0)
        return err_set(e, ERR_UNSUPPORTED, "device '%s' has no figures of accelerator '%s'", hw->name, c->engine);
    r->launch_ns = hw->accels[accel].launch_ns;
    r->sigma = tokens >= COST_MANY_TOKENS ? multiplying(hw, accel, cost_stat(c->stat)) : -1;
    if (r->sigma < 0)
        r->sigma = sharing(hw, c, notes);
    for (int i = 1; i <= COST_HEIGHTS; i++) {
        int n = (int)((long long)s->n_ff * i / COST_HEIGHTS);
        r->engine_ns[i] = ffn_ns(hw, c, accel, s->type, n > 0 ? n : 1, in->h.d_model, (int)ceil(tokens));
        if (r->engine_ns[i] <= 0)
            return err_set(e, ERR_UNSUPPORTED, "device '%s' has no figures of FFNs of accelerator '%s' for the model's types: run "
                                               "thermo-profile hardware --engine with --types", hw->name, c->engine);
    }
    r->engine_ns[0] = smaller(r->engine_ns[1], larger(r->launch_ns, 2 * r->engine_ns[1] - r->engine_ns[2]));
    return 0;
}

int cost_engine_rates(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c, int batch,
                      struct cost_rates *r, struct notes *notes, struct err *e)
{
    int b = 0;
    while (inputs_batch_sizes[b] != batch && b + 1 < in->n_batches)
        b++;
    double ffns = inputs_gates(in, b, 0) / inputs_n_ff(in, 0);
    double each = in->n_blocks > 1 && ffns > 0 ? larger(1, batch * in->h.n_experts_used / ffns) : batch;
    return cost_engine_rates_of(hw, in, s, c, each, r, notes, e);
}

double cost_engine_ffn_ns(const struct cost_rates *r, int n_ff, uint32_t height)
{
    double at = (double)height * COST_HEIGHTS / n_ff;
    int i = at < COST_HEIGHTS ? (int)at : COST_HEIGHTS - 1;
    return r->engine_ns[i] + (at - i) * (r->engine_ns[i + 1] - r->engine_ns[i]);
}

uint32_t cost_height(const struct layout_shape *s, const struct cost_choice *c, const struct cost_residency *k)
{
    return c->height && c->engine && c->model != PLAN_COST_PAPER ? layout_height(s, k->hot, c->height) : 0;
}
