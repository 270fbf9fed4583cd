/* A layer's constants at one choice and batch: attention, router, shared expert, predictors, and the FFN's neurons as they are
 * computed, whatever of them is in memory; and the head. Reads are cost.c's. */
#include "planner/cost/cost_impl.h"

#include <stdlib.h>
#include <string.h>

static double matrix_flops(const struct inputs_matrix *m, int batch)
{
    return 2.0 * m->rows * m->cols * batch;
}

/* What a step reads and computes of K and V in a layer. */
struct kv {
    double bytes, flops, attend_ns; /* (M8), (M9), (M17) */
};

static struct kv kv_of(const struct model_hparams *h, const struct cost_choice *c, const struct cost_rates *r, int layer,
                       int batch)
{
    double positions = cost_positions(h, layer, c->context);
    struct op_need need;
    ops_mixer(h, layer, &need);
    int times = c->tokens == COST_DRAFTS ? cost_kv_times(batch) : c->tokens == COST_PROMPT && need.states ? 1 : batch;
    struct kv k = { cost_kv_bytes(&need, times, positions, c->kv_type), cost_kv_flops(&need, batch, positions), 0 };
    if (c->tokens == COST_DRAFTS && need.states) {
        k.bytes = cost_states_bytes(batch, (double)need.state, (double)need.moves);
        k.flops = cost_states_flops(batch, (double)need.state_flops);
    }
    if (r->attend_ns > 0 && need.heads)
        k.attend_ns = cost_attend_ns(positions, need.heads, r->attend_ns, k.bytes, r->threads, batch);
    else if (r->f_cpu > 0)
        k.attend_ns = 1e9 * k.flops / r->f_cpu;
    return k;
}

/* max(compute, memory) of resident matrices and, for attention, of the KV cache. */
static double dense_part_ns(const struct hw *hw, const struct cost_choice *c, const struct cost_rates *r,
                            const struct inputs_matrix *m, int n, const struct kv *kv, int batch, struct notes *notes)
{
    double flops = kv->flops, bytes = kv->bytes, compute = kv->attend_ns, row_ns = 0;
    const struct inputs_matrix *before = NULL; /* mostly as long and of the same type: a look-up is dear */
    for (int i = 0; i < n; i++) {
        if (m[i].rows == 0)
            continue;
        flops += matrix_flops(&m[i], batch);
        bytes += (double)m[i].bytes;
        if (!before || before->type != m[i].type || before->cols != m[i].cols)
            row_ns = cost_product_ns(hw, c, m[i].type, HW_SEQ, m[i].cols, batch, notes);
        compute += cost_rows_ns(m[i].rows, row_ns);
        before = &m[i];
    }
    if (c->model == PLAN_COST_PAPER)
        return cost_dense_ns(flops, 0, r->f_cpu);
    return larger(compute, cost_memory_ns(bytes, r->seq_bw, 0, 0));
}

enum plan_mode cost_mode_at(const struct cost_choice *c, int layer)
{
    return c->mode == PLAN_PREDICTED && c->predicted->input[layer] < 0 ? PLAN_EXACT : c->mode;
}

/* Rows, bytes and flops of the predictors that a step runs in a layer, whose first `height` neurons need none. */
static double predictors_ns(const struct hw *hw, const struct inputs *in, const struct cost_choice *c,
                            const struct cost_rates *r, int batch_index, int layer, uint32_t height, struct notes *notes)
{
    const struct predicted *f = c->predicted;
    int batch = inputs_batch_sizes[batch_index], d = in->h.d_model;
    uint32_t known = height > f->always[layer] ? height : f->always[layer];
    double sum = 0, flops = 0;
    struct cost_choice q8 = *c;
    q8.act_q8 = 1; /* as predictors run, whatever the plan says of other activations */
    for (int k = 0; k < in->n_blocks; k++) {
        const struct inputs_predictor *x = inputs_predictor_at(in, f->input[layer], layer, k);
        double reached = inputs_curve_at(in, batch_index, layer, k)->routed, scores = inputs_n_ff(in, layer) - known;
        int selected = x->type1 == PREDICT_PICK; /* a load each, in the time of a job that runs anyway */
        double tau_1 = selected ? 0 : cost_product_ns(hw, &q8, x->type1, HW_SEQ, d, batch, notes);
        double tau_2 = cost_product_ns(hw, &q8, x->type2, HW_SEQ, x->rank, batch, notes);
        double bytes = (double)predict_row1_bytes(x->type1, d) * x->rank + (double)predict_row2_bytes(x->type2, x->rank) * scores;
        sum += reached * cost_predict_ns(x->rank, tau_1, scores, tau_2, bytes, r->seq_bw);
        flops += reached * 2.0 * batch * ((selected ? 0 : (double)x->rank * d) + scores * x->rank);
    }
    if (known == (uint32_t)inputs_n_ff(in, layer)) /* nothing is left to predict */
        return 0;
    if (f->input[layer] != PREDICT_FFN)
        sum += cost_start_ns(inputs_gates(in, batch_index, layer) / inputs_n_ff(in, layer), r->start_ns);
    return c->model == PLAN_COST_PAPER ? cost_dense_ns(0, flops, r->f_cpu) : sum;
}

/* (M11), (M12): the FFN of a layer whose predictor says what to compute. In the paper's model a is the share of
 * neurons computed, W_ffn and F_ffn all three matrices. */
static void predicted_layer(const struct inputs *in, const struct cost_choice *c, const struct cost_rates *r, const double *row,
                            int batch_index, int layer, uint32_t height, struct cost_layer *l)
{
    const struct predicted *f = c->predicted;
    double gates = inputs_gates(in, batch_index, layer), all = predicted_neurons(f, batch_index, layer, height);
    double beyond = predicted_neurons(f, batch_index, layer, height > f->always[layer] ? height : f->always[layer]), always = all - beyond;
    double active = predicted_active(f, in, batch_index, layer, height), open = active * in->loads[layer],
           summed = predicted_active(f, in, cost_down_index(batch_index), layer, height);
    l->active = active;
    l->lookahead = f->input[layer] == PREDICT_BLOCK && c->model != PLAN_COST_PAPER;
    l->density = gates > 0 ? all / gates : 0;
    l->ffn_bytes = gates * (row[LAYOUT_GATE] + row[LAYOUT_UP] + row[LAYOUT_DOWN]);
    if (c->model == PLAN_COST_PAPER) {
        l->compute_ns = cost_ffn_ns(l->density, 6.0 * in->h.d_model * gates * inputs_batch_sizes[batch_index],
                                    r->f_cpu);
        l->memory_ns = cost_mem_ns(0, 0, l->density, l->ffn_bytes, r->b_mem);
        return;
    }
    l->jobs = cost_jobs(all, row[LAYOUT_GATE] + row[LAYOUT_UP] + row[LAYOUT_DOWN], schedule_row_parts(c->threads), c->threads);
    l->compute_ns = cost_predicted_ns(always, r->gate_ns, beyond, r->scattered_ns, open, r->up_ns, summed, r->down_ns);
    l->memory_ns = cost_memory_ns(always * row[LAYOUT_GATE], r->seq_bw, beyond * row[LAYOUT_GATE] +
                                  open * row[LAYOUT_UP] + active * row[LAYOUT_DOWN], r->rand_bw);
}

/* Exact and dense mode: every gate is computed, Up and Down of those that fire, or of all. */
static void known_layer(const struct inputs *in, const struct cost_choice *c, const struct cost_rates *r,
                        const double *row, int batch_index, int layer, uint32_t height, struct cost_layer *l)
{
    int batch = inputs_batch_sizes[batch_index], sparse = c->mode != PLAN_DENSE;
    double whole = inputs_gates(in, batch_index, layer), gates = height ? whole - whole / inputs_n_ff(in, layer) * height : whole,
           active = sparse ? inputs_active(in, batch_index, layer, height) : gates;
    double open = sparse ? active * in->loads[layer] : gates,
           summed = sparse ? inputs_active(in, cost_down_index(batch_index), layer, height) : gates;
    double updown = row[LAYOUT_UP] + row[LAYOUT_DOWN], flops = 2.0 * in->h.d_model * gates * batch;
    l->active = active;
    l->density = gates > 0 ? active / gates : 0;
    l->ffn_bytes = gates * (sparse ? updown : updown + row[LAYOUT_GATE]);
    if (c->model == PLAN_COST_PAPER) {
        l->predict_ns = sparse ? cost_dense_ns(0, flops, r->f_cpu) : 0;
        l->compute_ns = cost_ffn_ns(l->density, sparse ? 2 * flops : 3 * flops, r->f_cpu);
        l->memory_ns = cost_mem_ns(0, sparse ? gates * row[LAYOUT_GATE] : 0, l->density, l->ffn_bytes, r->b_mem);
        return;
    }
    l->jobs = cost_jobs(gates, row[LAYOUT_GATE] + updown, schedule_row_parts(c->threads), c->threads);
    l->gate_bytes = sparse ? row[LAYOUT_GATE] : 0;
    l->compute_ns = cost_rows_ns(gates, r->gate_ns) + cost_rows_ns(open, r->up_ns) + cost_rows_ns(summed, r->down_ns);
    if (sparse)
        l->memory_ns = cost_memory_ns(gates * row[LAYOUT_GATE], r->seq_bw,
                                      open * row[LAYOUT_UP] + active * row[LAYOUT_DOWN], r->rand_bw);
    else
        l->memory_ns = cost_memory_ns(gates * (row[LAYOUT_GATE] + updown), r->seq_bw, 0, 0);
}

/* Calls of the accelerator for what a layer keeps in memory, (M34). */
struct calls {
    int n;
    double ns;
};

static struct calls calls_of(const struct hw *hw, const struct cost_choice *c, const struct inputs_layer *il, int batch)
{
    const struct inputs_matrix *m[GRAPH_PRODUCTS];
    struct calls k = { 0 };
    for (int i = 0, n; i < il->n; i++) {
        const struct graph_role *of = il->product[i].of;
        if (of->host || !inputs_begins_job(il, i))
            continue;
        n = 0;
        for (int j = i; j < il->n; j++)
            if (il->product[j].of->job == of->job)
                m[n++] = &il->product[j];
        k.n++;
        k.ns += cost_engine_products_ns(hw, c, m, n, batch);
    }
    return k;
}

int cost_layer_jobs(const struct inputs_layer *il, int attention)
{
    int n = 1;
    for (int i = 0; i < il->n; i++) {
        const struct graph_role *of = il->product[i].of;
        if (inputs_begins_job(il, i) && (!attention || of->kind <= OP_ADD))
            n += of->times ? of->times : 1;
    }
    return n;
}

/* (M9), (M15), (M16) of what a layer keeps in memory: attention, router, shared expert. Layers before the experts' count with layer 0. */
static void add_resident(const struct hw *hw, const struct inputs *in, const struct cost_choice *c, const struct cost_rates *r,
                         int batch, int layer, struct cost_layer *l, struct notes *notes)
{
    const struct inputs_layer *il = &in->layers[layer];
    struct kv kv = kv_of(&in->h, c, r, layer, batch);
    struct inputs_matrix m[GRAPH_PRODUCTS];
    struct calls elsewhere = { 0 };
    memcpy(m, il->product, (size_t)il->n * sizeof *m);
    if (c->engine && (c->work & PLAN_WORK_ATTENTION)) {
        elsewhere = calls_of(hw, c, il, batch);
        for (int i = 0; i < il->n; i++)
            m[i].rows = m[i].of->host ? m[i].rows : 0;
    }
    l->products_ns += dense_part_ns(hw, c, r, m, il->n, &kv, batch, notes) + elsewhere.ns;
    l->jobs_ns += cost_start_ns(cost_layer_jobs(il, 0) - elsewhere.n, r->start_ns);
    l->serial_ns += cost_serial_ns(batch, 2, r->norm_ns, cost_rotated(&in->h, layer), r->rope_ns);
}

/* (M32): the norm before the layer's experts and its router, on another stream. */
static double guess_ns(const struct hw *hw, const struct inputs *in, const struct cost_choice *c, const struct cost_rates *r, int batch,
                       int layer, struct notes *notes)
{
    const struct inputs_layer *il = &in->layers[layer];
    const struct inputs_matrix *router = NULL;
    const struct kv none = { 0 };
    for (int i = 0; c->ahead && i < il->n; i++)
        router = il->product[i].of->kind == OP_ROUTE ? &il->product[i] : router;
    if (!router)
        return 0;
    return dense_part_ns(hw, c, r, router, 1, &none, batch, notes) + cost_start_ns(1, r->start_ns) +
           cost_serial_ns(batch, 1, r->norm_ns, 0, 0);
}

void cost_resident_of(const struct hw *hw, const struct inputs *in, const struct cost_choice *c, const struct cost_rates *r, int batch,
                      int layer, struct cost_layer *l, struct notes *notes)
{
    add_resident(hw, in, c, r, batch, layer, l, notes);
    for (int i = in->h.n_layers; layer == 0 && i < model_depth(&in->h); i++)
        add_resident(hw, in, c, r, batch, i, l, notes);
}

/* The neurons of the FFNs but for the first `height` of each. */
static void neurons_of(const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c, const struct cost_rates *r,
                       int batch_index, int layer, uint32_t height, struct cost_layer *l)
{
    double row[LAYOUT_ROLES];
    for (int i = 0; i < LAYOUT_ROLES; i++)
        row[i] = layout_role_bytes(&s->part[0], i, in->h.d_model);
    if (cost_mode_at(c, layer) == PLAN_PREDICTED)
        predicted_layer(in, c, r, row, batch_index, layer, height, l);
    else
        known_layer(in, c, r, row, batch_index, layer, height, l);
    if (c->model != PLAN_COST_PAPER) {
        l->start_ns = cost_start_ns(inputs_gates(in, batch_index, layer) / inputs_n_ff(in, layer), r->start_ns);
        l->contention_ns = cost_contention_ns(l->jobs, r->turn_ns, r->threads);
        l->compute_ns += l->start_ns + l->contention_ns;
    }
}

void cost_layer_beside(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                       const struct cost_rates *r, int batch_index, int layer, uint32_t height, struct cost_layer *l)
{
    struct cost_layer x = *l;
    if (!height)
        return;
    neurons_of(in, s, c, r, batch_index, layer, height, &x);
    if (cost_mode_at(c, layer) == PLAN_PREDICTED)
        x.predict_ns = hw_correction(hw, HW_PREDICT) * predictors_ns(hw, in, c, r, batch_index, layer, height, NULL);
    double ffns = inputs_gates(in, batch_index, layer) / inputs_n_ff(in, layer);
    x.engine_ns = cost_engine_ns(r->launch_ns, ffns, cost_engine_ffn_ns(r, inputs_n_ff(in, layer), height));
    x.queue_ns = cost_engine_ns(r->launch_ns, ffns, r->engine_ns[0]);
    x.launch_ns = r->launch_ns;
    x.active = l->active; /* of both */
    x.density = l->density;
    *l = x;
}

void cost_layer_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                   const struct cost_choice *c, const struct cost_rates *r, int batch_index, int layer,
                   struct cost_layer *out, struct notes *notes)
{
    struct cost_layer l = { .feeds_ahead = in->n_blocks == 1 && c->buffers > COST_LEAST_BUFFERS };
    cost_resident_of(hw, in, c, r, inputs_batch_sizes[batch_index], layer, &l, notes);
    if (cost_mode_at(c, layer) == PLAN_PREDICTED)
        l.predict_ns = predictors_ns(hw, in, c, r, batch_index, layer, 0, notes);
    neurons_of(in, s, c, r, batch_index, layer, 0, &l);
    if (c->model != PLAN_COST_PAPER) {
        l.guess_ns = guess_ns(hw, in, c, r, inputs_batch_sizes[batch_index], layer, notes);
        l.products_ns *= hw_correction(hw, HW_ATTENTION);
        l.jobs_ns *= hw_correction(hw, HW_ATTENTION);
        l.serial_ns *= hw_correction(hw, HW_ATTENTION);
        l.predict_ns *= hw_correction(hw, HW_PREDICT);
    }
    l.attention_ns = l.products_ns + (l.jobs_ns + l.serial_ns);
    l.first_ns = layer ? 0 : l.attention_ns / (1 + model_depth(&in->h) - in->h.n_layers);
    *out = l;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

struct cost_lookups cost_lookups_of(const struct hw *hw, const struct inputs *in, const struct cost_choice *c, int batch)
{
    const struct budget_choice by = { .stream_tables = c->stream_tables };
    const uint64_t block = budget_block_bytes(&in->budget.shapes);
    struct cost_lookups o = { 0 };
    for (int i = 0; i < in->budget.n_tables && c->model != PLAN_COST_PAPER; i++) {
        const struct budget_table *t = &in->budget.table[i];
        if (!budget_streams(&in->budget, &by, t))
            continue;
        double bytes = cost_row_bytes((double)t->row_bytes, (double)block, (double)common_divisor(t->row_bytes, block));
        const struct hw_read q = { .backend = c->backend, .pattern = HW_RANDOM, .lanes = 1, .core_class = -1,
                                   .block_bytes = (uint64_t)bytes, .range_bytes = t->rows * t->row_bytes,
                                   .queue_depth = batch < BUDGET_ROW_BUFFERS ? batch : BUDGET_ROW_BUFFERS };
        double bw = hw_storage_bytes_per_s(hw, &q, cost_stat(c->stat));
        o.reads += batch;
        o.bytes += batch * bytes;
        o.ns += cost_lookup_ns(batch, bw > 0 ? 1e9 * bytes / bw : 0);
    }
    return o;
}

double cost_head_ns(const struct hw *hw, const struct inputs *in, const struct cost_choice *c,
                    const struct cost_rates *r, int batch, struct notes *notes)
{
    const struct kv embedding = { .bytes = (double)in->embd_row_bytes * batch };
    const struct inputs_matrix *const head = &in->head;
    int given = c->engine && (c->work & PLAN_WORK_HEAD);
    double ns = dense_part_ns(hw, c, r, head, !given, &embedding, batch, notes);
    if (c->model == PLAN_COST_PAPER)
        return ns;
    ns += given ? cost_engine_products_ns(hw, c, &head, 1, batch) : cost_start_ns(1, r->start_ns);
    ns += cost_serial_ns(batch, 1, r->norm_ns, 0, 0);
    return ns * hw_correction(hw, HW_HEAD) + cost_lookups_of(hw, in, c, batch).ns;
}

/* Of all layers: what they keep in memory. */
static double resident_ns(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *c,
                          const struct cost_rates *rates, int batch)
{
    double sum = 0;
    for (int l = 0; l < in->n_layers; l++) {
        struct cost_layer x = { 0 };
        cost_resident_of(hw, in, c, &rates[s->l.kind[l]], batch, l, &x, NULL);
        sum += x.products_ns + x.jobs_ns;
    }
    return sum;
}

int cost_best_work(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *c,
                   const char *engine, int batch, enum plan_work *out, struct err *e)
{
    unsigned known = (unsigned)cost_work_known(hw, in, engine, 1), best = 0;
    struct cost_choice without = *c, with = *c;
    struct cost_rates *rates;
    *out = PLAN_WORK_FFN;
    if (!known)
        return 0;
    without.engine = NULL;
    without.height = with.height = 0;
    without.work = PLAN_WORK_FFN;
    with.engine = engine;
    with.work = (enum plan_work)known;
    int r = cost_rates_new(hw, in, s, &without, batch, &rates, NULL, e);
    if (r < 0)
        return r;
    if ((known & PLAN_WORK_ATTENTION) && resident_ns(hw, in, s, &with, rates, batch) < resident_ns(hw, in, s, &without, rates, batch))
        best |= PLAN_WORK_ATTENTION;
    if ((known & PLAN_WORK_HEAD) &&
        cost_head_ns(hw, in, &with, rates, batch, NULL) < cost_head_ns(hw, in, &without, rates, batch, NULL))
        best |= PLAN_WORK_HEAD;
    free(rates);
    *out = (enum plan_work)best;
    return 0;
}
