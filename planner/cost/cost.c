/* Looks the equations' operands up in traces and device curves, and puts them together. Nothing here decides anything: the solvers, check
 * and explain all call the same code, so a plan's figures can be derived again by anyone from the same inputs. */
#include "planner/cost/cost_impl.h"

#include "common/base/inline.h"
#include "common/kernels/kernels.h"
#include "common/kernels/quant.h"
#include "common/plan/budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_NS 1e12 /* a device without storage figures, as in (M3): any read makes a plan useless */

double cost_f_cpu(const int *n_k, const double *f_k, int n)
{
    double f = 0;
    for (int k = 0; k < n; k++)
        f += n_k[k] * f_k[k];
    return f;
}

double cost_reads_ns(const struct cost_reads *c, double reads)
{
    if (reads <= 0)
        return 0;
    if (c->n < 2)
        return UNKNOWN_NS;
    int last = c->n - 1, i = 0;
    if (reads >= c->count[last])
        return c->ns[last] + (reads - c->count[last]) * c->each_ns;
    while (c->count[i + 1] <= reads)
        i++;
    double f = (reads - c->count[i]) / (c->count[i + 1] - c->count[i]);
    return c->ns[i] + f * (c->ns[i + 1] - c->ns[i]);
}

double cost_joined_ns(const struct cost_reads *curves, const struct replay_reads *how, double missed)
{
    double n = missed * (double)how->reads, sum = 0;
    for (int k = 0; k < REPLAY_LENGTHS && n > 0; k++)
        if (how->at[k] > 0)
            sum += (double)how->at[k] * cost_reads_ns(&curves[k], n);
    return n > 0 ? sum / (double)how->reads : 0;
}

/* Of the FFN's neurons, without reading: c, or (M26). */
static inline double cost_work_ns(const struct plan_layer_figures *f)
{
    return cost_longest_ns(f->ffn_compute_ns, f->ffn_memory_ns, f->ffn_engine_ns);
}

double cost_layer_ns(const struct plan_layer_figures *f)
{
    return cost_in_turn_ns(f->attention_ns, f->predict_ns, cost_work_ns(f), f->io_ns, f->exposed_ns);
}

double cost_lookahead_ns(const struct plan_layer_figures *f)
{
    return cost_overlapped_ns(f->attention_ns, f->predict_ns, cost_work_ns(f), f->io_ns, f->exposed_ns);
}

double cost_step_ns(double head_ns, const struct plan_layer_figures *f, int n_layers)
{
    double sum = head_ns;
    for (int i = 0; i < n_layers; i++)
        sum += f[i].total_ns;
    return sum;
}

/* --- operands from device curves --- */

/* ns per row with the chosen cores together: their rates add, as in (9). 0: unknown. */
static double threads_row_ns(const struct hw *hw, const struct cost_choice *c, const char *kernel,
                             enum hw_pattern pattern, int dram, int row_len, int batch)
{
    struct hw_rows q = { .kernel = kernel, .pattern = pattern, .dram = dram, .row_len = row_len, .batch = batch };
    double rate = 0;
    int known = 1;
    for (int k = 0; k < c->n_classes; k++) {
        if (c->n[k] == 0)
            continue;
        q.core_class = k;
        q.threads = c->n[k];
        double ns = hw_row_ns(hw, &q, cost_stat(c->stat));
        known &= ns > 0;
        rate += ns > 0 ? 1 / ns : 0;
    }
    if (known && rate > 0)
        return 1 / rate;
    q.core_class = -1;
    q.threads = c->threads;
    double ns = hw_row_ns(hw, &q, cost_stat(c->stat));
    return ns > 0 ? ns : rate > 0 ? 1 / rate : 0;
}

/* (M1)'s tau. The paper's f_k are rates in cache. */
static double kernel_row_ns(const struct hw *hw, const struct cost_choice *c, const char *kernel,
                            enum hw_pattern pattern, int row_len, int batch)
{
    double cached = threads_row_ns(hw, c, kernel, pattern, 0, row_len, batch);
    double fetched = threads_row_ns(hw, c, kernel, pattern, 1, row_len, 1);
    int n = hw_fetched_tokens(hw, kernel, pattern, row_len, batch);
    fetched = n > 1 ? larger(fetched, threads_row_ns(hw, c, kernel, pattern, 1, row_len, n)) : fetched;
    return c->model == PLAN_COST_PAPER ? cached : cost_row_ns(cached, fetched);
}

/* The type whose figures stand for those of a type that was not measured: one of about its bytes. */
static uint32_t stand_in(uint32_t type)
{
    return quant_row_bytes(type, 256) <= quant_row_bytes(QUANT_Q5_K, 256) ? QUANT_Q4_0 : QUANT_Q8_0;
}

double cost_product_ns(const struct hw *hw, const struct cost_choice *c, uint32_t type, enum hw_pattern pattern, int row_len, int batch,
                       struct notes *notes)
{
    char name[64], plain[64];
    int q8 = kernels_act_form(type, c->act_q8) == KERNELS_ACT_Q8;
    hw_op_name("rows", type, q8 ? "q8" : "f32", name, sizeof name);
    double ns = kernel_row_ns(hw, c, name, pattern, row_len, batch);
    if (ns > 0)
        return ns;
    hw_op_name("rows", type, "f32", plain, sizeof plain);
    ns = q8 ? kernel_row_ns(hw, c, plain, pattern, row_len, batch) : 0;
    if (ns > 0)
        notes_add(notes, "%s: no figure for kernel %s; %s taken instead", hw->name, name, plain);
    if (ns > 0)
        return ns;
    if (quant_traits(type) && quant_traits(type)->block_elems > 1 && type != stand_in(type)) {
        hw_op_name("rows", stand_in(type), q8 ? "q8" : "f32", plain, sizeof plain);
        ns = kernel_row_ns(hw, c, plain, pattern, row_len, batch);
    }
    if (ns > 0)
        notes_add(notes, "%s: no figure for kernel %s; %s taken instead", hw->name, name, plain);
    else
        notes_add(notes, "%s: no figure for kernel %s; its compute time is left out", hw->name, name);
    return ns;
}

static double axpy_ns(const struct hw *hw, const struct cost_choice *c, uint32_t type, int row_len, int batch,
                      struct notes *notes)
{
    char name[64];
    hw_op_name("axpy", type, NULL, name, sizeof name);
    double ns = kernel_row_ns(hw, c, name, HW_RANDOM, row_len, batch);
    if (ns > 0)
        return ns;
    struct cost_choice plain = *c;
    plain.act_q8 = 0;
    ns = cost_product_ns(hw, &plain, type, HW_RANDOM, row_len, batch, notes);
    if (ns > 0)
        notes_add(notes, "%s: no figure for kernel %s; row products of the type taken instead", hw->name, name);
    return ns;
}

static double memory_bw(const struct hw *hw, const struct cost_choice *c, enum hw_pattern pattern, uint64_t row_bytes,
                        struct notes *notes)
{
    double bw = hw_memory_bytes_per_s(hw, "cpu", pattern, row_bytes, c->threads, cost_stat(c->stat));
    if (bw > 0)
        return bw;
    bw = hw_mem_bytes_per_s(hw, cost_stat(c->stat));
    if (bw > 0)
        notes_add(notes, "%s: no memory bandwidth for %d threads; the device's largest taken instead", hw->name,
                  c->threads);
    else
        notes_add(notes, "%s: no memory bandwidth; memory time is left out", hw->name);
    return bw;
}

/* What the row kernel of a type was measured to read from memory; 0: unknown. A loop that only reads is no bound for a kernel
 * that keeps more lines on their way. */
static double kernel_bw(const struct hw *hw, const struct cost_choice *c, uint32_t type, enum hw_pattern pattern, int row_len)
{
    char name[64];
    int q8 = kernels_act_form(type, c->act_q8) == KERNELS_ACT_Q8, measured = 0;
    hw_op_name("rows", type, q8 ? "q8" : "f32", name, sizeof name);
    for (int i = 0; i < hw->n_compute && !measured; i++)
        measured = hw->compute[i].dram && hw->compute[i].pattern == pattern && !strcmp(hw->compute[i].kernel, name);
    double ns = measured ? threads_row_ns(hw, c, name, pattern, 1, row_len, 1) : 0;
    return ns > 0 ? 1e9 * (double)quant_row_bytes(type, (uint64_t)row_len) / ns : 0;
}

/* Sum over chosen cores of their rate in float row products of the gates' type, (9). */
static double f_cpu_of(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c)
{
    double f_k[HW_MAX_CLASSES], f = 0;
    char name[64];
    uint32_t type = s->type[LAYOUT_GATE];
    int q8 = kernels_act_form(type, c->act_q8) == KERNELS_ACT_Q8;
    for (int i = 0; i < 3 && f <= 0; i++) { /* in cost_product_ns's order */
        hw_op_name("rows", i < 2 ? type : stand_in(type), q8 && i != 1 ? "q8" : "f32", name, sizeof name);
        for (int k = 0; k < c->n_classes; k++)
            f_k[k] = hw_class_flops_per_s(hw, k, name, cost_stat(c->stat));
        if ((f = cost_f_cpu(c->n, f_k, c->n_classes)) <= 0)
            f = c->threads * hw_class_flops_per_s(hw, -1, name, cost_stat(c->stat));
    }
    return f;
}

int cost_rates_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                  const struct cost_choice *c, int batch, struct cost_rates *out, struct notes *notes, struct err *e)
{
    const uint32_t *type = s->type;
    int d = in->h.d_model;
    enum hw_pattern pattern = c->mode != PLAN_DENSE ? HW_RANDOM : HW_SEQ;
    struct cost_rates r = { .threads = c->threads, .depth = c->depth, .ends = c->depth,
                            .ffn_factor = hw_correction(hw, HW_FFN), .io_factor = hw_correction(hw, HW_IO) };
    r.gate_ns = cost_product_ns(hw, c, type[LAYOUT_GATE], HW_SEQ, d, batch, notes);
    r.scattered_ns = c->mode == PLAN_PREDICTED ? cost_product_ns(hw, c, type[LAYOUT_GATE], HW_RANDOM, d, batch, notes) : 0;
    r.up_ns = s->ungated ? 0 : cost_product_ns(hw, c, type[LAYOUT_UP], pattern, d, batch, notes);
    int parts = schedule_row_parts(c->threads), tile = (int)s->part[0].record_neurons;
    r.down_ns = tile > 1 ? cost_tile_down_ns(cost_product_ns(hw, c, type[LAYOUT_DOWN], HW_SEQ, tile, batch, notes), tile, d) :
                           axpy_ns(hw, c, type[LAYOUT_DOWN], d, batch, notes);
    if (c->model != PLAN_COST_PAPER && parts > 1 && tile <= 1)
        r.down_ns = cost_tile_row_ns(r.down_ns, axpy_ns(hw, c, type[LAYOUT_DOWN], d / parts, batch, notes), parts);
    r.seq_bw = memory_bw(hw, c, HW_SEQ, 1u << 20, notes);
    r.rand_bw = memory_bw(hw, c, HW_RANDOM, s->part[s->n_parts - 1].record_bytes, notes);
    if (c->model != PLAN_COST_PAPER) {
        r.seq_bw = larger(r.seq_bw, kernel_bw(hw, c, type[LAYOUT_GATE], HW_SEQ, d));
        r.rand_bw = larger(r.rand_bw, kernel_bw(hw, c, type[LAYOUT_GATE], HW_RANDOM, d));
    }
    r.f_cpu = f_cpu_of(hw, s, c);
    r.b_mem = hw_mem_bytes_per_s(hw, cost_stat(c->stat));
    if (c->model != PLAN_COST_PAPER)
        cost_work_rates(hw, in, s, c, &r);
    cost_storage_rates(hw, s, c, &r, notes);
    if (r.gate_ns <= 0 && r.seq_bw <= 0)
        return err_set(e, ERR_UNSUPPORTED, "device '%s' has neither compute nor memory figures: nothing to predict a speed from; run "
                                           "thermo-profile hardware, or import them", hw->name);
    if (c->model == PLAN_COST_PAPER && r.f_cpu <= 0)
        return err_set(e, ERR_UNSUPPORTED, "device '%s' has no compute rate, which --cost paper needs", hw->name);
    if (c->height && c->engine) {
        int ok = cost_engine_rates(hw, in, s, c, batch, &r, notes, e);
        if (ok < 0)
            return ok;
    }
    *out = r;
    return 0;
}

int cost_rates_new(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *c, int batch,
                   struct cost_rates **out, struct notes *notes, struct err *e)
{
    struct cost_rates *rates = malloc((size_t)s->l.n_kinds * sizeof *rates);
    int r = rates ? 0 : err_set(e, ERR_NOMEM, "out of memory for the device's rates");
    for (int k = 0; k < s->l.n_kinds && r == 0; k++) {
        if ((r = cost_rates_of(hw, in, &s->kind[k], c, batch, &rates[k], notes, e)) < 0)
            break;
        rates[k].f_cpu = rates[0].f_cpu;
        rates[k].b_io = rates[0].b_io;
    }
    if (r < 0) {
        free(rates);
        rates = NULL;
    }
    *out = rates;
    return r;
}

/* --- what residency changes --- */

static double units_beyond(const struct layout_shape *s, int part, uint32_t hot)
{
    uint32_t left = hot < (uint32_t)s->n_ff ? (uint32_t)s->n_ff - hot : 0, npu = s->part[part].neurons_per_unit;
    return (left + npu - 1) / npu;
}

/* Predicted mode: units that hold a predicted neuron. Of several parts the first is read where a neuron is predicted,
 * the last where its gate is open besides. */
static struct cost_flow predicted_flow(const struct inputs *in, const struct layout_shape *s,
                                      const struct cost_choice *c, int batch_index, int layer,
                                      const struct replay_table *t, const struct cost_residency *k)
{
    struct cost_flow f = { 0 };
    int last = s->n_parts - 1, two_phase = s->n_parts > s->n_segments;
    double loads = last > 0 ? in->loads[layer] : 1, all, beyond;
    if (last > 0) {
        double units = predicted_units(c->predicted, s, batch_index, layer, k->hot[0]);
        if (two_phase)
            f.single_reads = units;
        else
            f.stream_bytes = units * (double)s->part[0].stride_bytes;
        all = t ? replay_lookups(t, 0) : predicted_active(c->predicted, in, batch_index, layer, 0);
        beyond = t ? replay_lookups(t, k->hot[last]) : predicted_active(c->predicted, in, batch_index, layer,
                                                                       k->hot[last]);
    } else {
        all = t ? replay_lookups(t, 0) : predicted_units(c->predicted, s, batch_index, layer, 0);
        beyond = t ? replay_lookups(t, k->hot[0]) : predicted_units(c->predicted, s, batch_index, layer, k->hot[0]);
    }
    if (k->hot[last] < (uint32_t)s->n_ff) {
        f.lookups = beyond * loads;
        f.reads = t ? replay_misses(t, k->hot[last], k->slots) * loads : f.lookups;
        f.how = t ? replay_how(t, k->hot[last], k->slots) : NULL;
    }
    f.mu = all > 0 ? f.reads / (all * loads) : 0;
    return f;
}

double cost_predictor_bytes(const struct inputs *in, const struct predicted *f, int batch_index, int layer)
{
    double sum = 0;
    for (int k = 0; k < in->n_blocks && f->always[layer] < (uint32_t)inputs_n_ff(in, layer); k++) {
        const struct inputs_predictor *x = inputs_predictor_at(in, f->input[layer], layer, k);
        sum += inputs_curve_at(in, batch_index, layer, k)->routed *
               ((double)x->bytes - (double)f->always[layer] * (double)predict_row2_bytes(x->type2, x->rank));
    }
    return sum;
}

/* What residency alone moves: the neurons. */
static struct cost_flow neurons_flow(const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                                     int batch_index, int layer, const struct replay_table *t, const struct cost_residency *k)
{
    struct cost_flow f = { .ahead = in->n_blocks == 1 || in->h.early_router };
    enum plan_mode mode = cost_mode_at(c, layer);
    if (mode == PLAN_PREDICTED)
        return predicted_flow(in, s, c, batch_index, layer, t, k);
    double blocks = inputs_gates(in, batch_index, layer) / inputs_n_ff(in, layer);
    int last = s->n_parts - 1, two_phase = s->n_parts > s->n_segments;
    if (mode == PLAN_DENSE && t && t->n_blocks > 0) {
        f.lookups = replay_lookups(t, k->hot[0]);
        f.reads = replay_misses(t, k->hot[0], k->slots);
        f.how = replay_how(t, k->hot[0], k->slots);
        f.mu = replay_lookups(t, 0) > 0 ? f.reads / replay_lookups(t, 0) : 0;
        f.at_once = 1;
        f.tiles = replay_lookups(t, 0);
        f.steps = replay_steps_at(t, k->hot[0], k->slots);
        f.foresees = replay_ahead_of(t, k->hot[0], k->slots, f.early) && s->n_parts == 1 && budget_reads_into_slots(s, 0);
        return f;
    }
    if (mode == PLAN_DENSE) {
        double all = 0;
        for (int p = 0; p < s->n_parts; p++) {
            /* Alternating pages: the gap between units of a part is the other part's. */
            double stride = (double)(two_phase ? s->part[p].unit_bytes : s->part[p].stride_bytes);
            f.stream_bytes += blocks * units_beyond(s, p, k->hot[p]) * stride;
            all += blocks * units_beyond(s, p, 0) * stride;
        }
        f.mu = all > 0 ? f.stream_bytes / all : 0;
        return f;
    }
    if (two_phase)
        f.single_reads = blocks * units_beyond(s, 0, k->hot[0]);
    else
        f.stream_bytes = blocks * units_beyond(s, 0, k->hot[0]) * (double)s->part[0].stride_bytes;
    if (s->n_parts > 1 && k->hot[last] < (uint32_t)s->n_ff) {
        f.lookups = t ? replay_lookups(t, k->hot[last]) * in->loads[layer] :
                        inputs_active(in, batch_index, layer, k->hot[last]) * in->loads[layer];
        f.reads = t ? replay_misses(t, k->hot[last], k->slots) * in->loads[layer] : f.lookups;
        f.how = t ? replay_how(t, k->hot[last], k->slots) : NULL;
    }
    f.beyond = blocks * units_beyond(s, last, k->hot[last]) * s->part[last].neurons_per_unit;
    double all = t ? replay_lookups(t, 0) * in->loads[layer] : inputs_active(in, batch_index, layer,
                                                                             0) * in->loads[layer];
    f.mu = all > 0 ? f.reads / all : 0;
    return f;
}

struct cost_flow cost_flow_of(const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                              int batch_index, int layer, const struct replay_table *t, const struct cost_residency *k)
{
    struct cost_flow f = neurons_flow(in, s, c, batch_index, layer, t, k);
    if (k->streamed)
        f.predictor_bytes = cost_predictor_bytes(in, c->predicted, batch_index, layer);
    f.copied = cost_copied_share(k->slots, f.lookups, f.reads);
    return f;
}

static double paper_io_ns(const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f,
                          enum plan_mode mode)
{
    double gates = mode == PLAN_DENSE ? 0 : f->stream_bytes + f->single_reads * r->single_bytes;
    return cost_io_ns(cost_v_io(l->density, f->mu, l->ffn_bytes) + f->predictor_bytes + gates, r->b_io);
}

/* Does a layer read ahead, (M32)? */
static inline int is_early(const struct cost_choice *c, const struct cost_flow *f)
{
    return c->ahead && f->foresees;
}

static inline double missing(const struct cost_choice *c, const struct cost_flow *f)
{
    return is_early(c, f) ? f->early[REPLAY_AHEAD_MISSES] : f->reads;
}

static inline double foreseen(const struct cost_choice *c, const struct cost_flow *f)
{
    return is_early(c, f) ? f->early[REPLAY_AHEAD_FORESEEN] : 0;
}

/* Steps by what they read; n 0: none of them reads. Where it is not known step by step, all read what they do in the mean. */
static struct replay_steps steps_of(const struct cost_choice *c, const struct cost_flow *f)
{
    if (f->steps)
        return is_early(c, f) ? f->steps->ahead : f->steps->plain;
    double late = missing(c, f) - foreseen(c, f), early = is_early(c, f) ? foreseen(c, f) + f->early[REPLAY_AHEAD_WASTED] : 0;
    return (struct replay_steps){ 1, { { 1, (float)late, (float)early, (float)foreseen(c, f) } } };
}

/* Of n missing units that are looked up, and of n that are read ahead. */
static double late_ns(const struct cost_choice *c, const struct cost_rates *r, const struct cost_flow *f, double n)
{
    const struct replay_reads *how = f->how ? &f->how[c->rule] : NULL;
    return how ? cost_joined_ns(r->joined, how, n) : cost_reads_ns(&r->cold, n);
}

/* In the mean over the steps of experts, where each step's are a burst. */
static void burst_reads(const struct cost_choice *c, const struct cost_rates *r, const struct cost_flow *f, struct cost_cold *o)
{
    const struct replay_steps s = steps_of(c, f);
    o->ns = o->early_ns = 0;
    for (int i = 0; i < s.n; i++) {
        o->ns += (double)s.at[i].share * late_ns(c, r, f, (double)s.at[i].late);
        o->early_ns += (double)s.at[i].share * cost_reads_ns(&r->cold, (double)s.at[i].early);
    }
}

void cost_cold_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_flow *f,
                  struct cost_cold *out)
{
    struct cost_cold o = { 0 };
    const struct replay_reads *how = f->how ? &f->how[c->rule] : NULL;
    double late = missing(c, f) - foreseen(c, f), early = is_early(c, f) ? foreseen(c, f) + f->early[REPLAY_AHEAD_WASTED] : 0;
    if (!how) {
        o = (struct cost_cold){ late, late, late * r->cold_bytes, late * r->beside[0].lost_ns, cost_reads_ns(&r->cold, late),
                                cost_exposed_ns(late, cost_reads_ns(&r->cold, 1)), r->beside[0].kept, 0 };
    } else {
        o.reads = late * (double)how->reads;
        o.units = late * (double)how->units;
        for (int k = 0; k < r->n_lengths; k++) {
            o.lost_ns += late * (double)how->at[k] * r->beside[k].lost_ns;
            o.kept += (double)how->at[k] / (double)how->reads * r->beside[k].kept;
        }
        o.bytes = o.reads * r->cold_bytes + (o.units - o.reads) * r->stride_bytes;
        o.ns = cost_joined_ns(r->joined, how, late);
        o.last_ns = cost_exposed_ns(o.reads, cost_joined_ns(r->joined, how, 1 / (double)how->reads));
    }
    o.bytes += early * r->cold_bytes;
    o.lost_ns += early * r->beside[0].lost_ns;
    if (f->at_once)
        burst_reads(c, r, f, &o);
    *out = o;
}

/* What a step of experts waits for, ns: what attention and computing before it do not hide of the reads ahead, the others, and computing
 * what came last. */
struct burst {
    double left, reads, tail;
};

static struct burst burst_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f,
                             const struct replay_group *g, double window_ns)
{
    double early_ns = r->io_factor * cost_reads_ns(&r->cold, (double)g->early), left_ns = cost_left_ns(early_ns, window_ns);
    double waited = cost_late_reads((double)(g->late + g->foreseen), (double)g->foreseen, left_ns, early_ns, r->together);
    return (struct burst){ left_ns, r->io_factor * late_ns(c, r, f, (double)g->late),
                           r->ffn_factor * l->compute_ns * cost_tail_share(waited, f->tiles, r->ends, r->together) };
}

/* (M6) of experts, where work takes work_ns and reads in the mean io_ns; reads keep so much of their rate beside processors that take
 * cpu_ns. */
static double burst_ns(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f,
                       double window_ns, double kept, double cpu_ns, double work_ns, double io_ns)
{
    const struct replay_steps s = steps_of(c, f);
    double mean = s.n ? 0 : work_ns;
    for (int i = 0; i < s.n; i++) {
        const struct burst b = burst_of(c, r, l, f, &s.at[i], window_ns);
        double reads_ns = b.left + b.reads;
        mean += (double)s.at[i].share * larger(work_ns, reads_ns + cost_slowed_ns(cpu_ns, reads_ns, kept) + b.tail);
    }
    return larger(0, mean - larger(work_ns, io_ns));
}

/* (M29) of neurons that are streamed, beyond t_stream - t_hidden. first_ns: what of the first buffers' reads attention does not hide. */
static double held_ns(const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f, double verify_ns, double first_ns)
{
    double row_ns = r->gate_ns + r->up_ns + r->down_ns, rows_ns = smaller(f->mu * l->active * row_ns, l->compute_ns);
    return cost_full_ns(r->ffn_factor * (l->compute_ns - rows_ns), first_ns) +
           cost_drain_ns(r->ffn_factor * (rows_ns + verify_ns), f->stream_bytes / r->stream_block, r->threads, r->depth,
                         row_ns > 0 ? r->down_ns / row_ns : 0);
}

/* What processors do in a layer beside products, ns, without a calibration's factors; and the reads that it is for. */
struct busy {
    double reads, gate_bytes, streams, n; /* n: all reads */
    double lost, cache_overhead, verify, guess;
};

INLINE struct busy busy_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f,
                           const struct cost_cold *cold)
{
    struct busy b = { .reads = missing(c, f), .gate_bytes = f->predictor_bytes + f->stream_bytes + f->single_reads * r->single_bytes,
                      .streams = f->stream_bytes / r->stream_block };
    double streams = b.streams + f->predictor_bytes / r->stream_block;
    b.n = streams + f->single_reads + cold->reads;
    b.lost = cost_lost_ns(streams, r->stream_beside.lost_ns) + cost_lost_ns(f->single_reads, r->beside[0].lost_ns) + cold->lost_ns;
    b.cache_overhead = cost_cache_overhead_ns(f->lookups, r->lookup_ns, b.reads * f->copied, r->admit_ns, r->threads);
    b.verify = cost_verify_ns(b.gate_bytes + b.reads * r->unit_bytes, r->verify_ns_per_byte, r->threads);
    b.guess = is_early(c, f) ? f->early[REPLAY_AHEAD_STEPS] * l->guess_ns : 0;
    return b;
}

/* What of a layer's reads is waited for, and when, ns. */
struct waits {
    double stream, single, last;            /* without a calibration's factors */
    double known, early, left, early_left;  /* before activations are known; what attention does not hide of it */
    double window, first, reads, waited, kept; /* waited: of reads, without what computing takes */
    int in_order;                           /* dense mode, and nothing but streams */
};

/* The same in the mean over steps. */
static void wait_bursts(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f,
                        const struct cost_cold *cold, struct waits *w)
{
    const struct replay_steps s = steps_of(c, f);
    const double work_ns = r->ffn_factor * larger(l->compute_ns, l->memory_ns);
    w->window = l->first_ns > 0 ? l->first_ns : cost_window_ns(l->attention_ns, work_ns, w->early, r->io_factor * cold->ns);
    for (int i = 0; i < s.n; i++) {
        const struct burst b = burst_of(c, r, l, f, &s.at[i], w->window);
        w->early_left += (double)s.at[i].share * b.left;
        w->first += (double)s.at[i].share * b.tail;
    }
}

INLINE struct waits waits_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f,
                             const struct cost_cold *cold, const struct busy *b)
{
    struct waits w = { .stream = cost_stream_ns(f->stream_bytes, r->stream_bw), .single = cost_reads_ns(&r->single, f->single_reads) };
    double buffers_ns = cost_stream_ns(smaller(f->stream_bytes, r->depth * r->stream_block), r->stream_bw) +
                        cost_reads_ns(&r->single, smaller(f->single_reads, r->depth));
    w.first = b->reads > 0 ? r->ffn_factor * cost_first_ns(f->beyond, r->gate_ns, l->gate_bytes, r->threads) : 0;
    w.last = f->at_once ? 0 : cold->last_ns;
    w.known = r->io_factor * (w.stream + w.single);
    w.early = r->io_factor * cold->early_ns;
    w.left = cost_ahead_ns(w.known, r->io_factor * buffers_ns, f->ahead ? l->attention_ns : 0);
    if (f->at_once)
        wait_bursts(c, r, l, f, cold, &w);
    w.in_order = c->mode == PLAN_DENSE && b->reads <= 0 && b->streams > 0;
    if (w.in_order)
        w.first = w.left + held_ns(r, l, f, b->verify, smaller(w.known, r->io_factor * buffers_ns) - (w.known - w.left));
    const double beside = r->io_factor * (cold->ns - w.last), all = w.stream + w.single + cold->ns;
    w.reads = larger(w.left, w.first) + w.early_left + beside;
    w.waited = w.left + w.early_left + beside;
    w.kept = all > 0 ? (w.stream * r->stream_beside.kept + w.single * r->beside[0].kept + cold->ns * cold->kept) / all : cold->kept;
    return w;
}

/* Of the FFN, and what is counted beside it. */
static void ffn_values(const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f, const struct busy *b,
                       const struct plan_layer_figures *o, double *v)
{
    const double k = r->ffn_factor;
    v[V_t_compute] = o->ffn_compute_ns, v[V_t_memory] = o->ffn_memory_ns, v[V_t_both] = o->ffn_engine_ns;
    v[V_t_ffn] = cost_work_ns(o), v[V_t_cpu] = larger(o->ffn_compute_ns, o->ffn_memory_ns);
    v[V_t_rows] = k * (l->compute_ns - l->start_ns - l->contention_ns), v[V_t_start] = k * l->start_ns;
    v[V_t_lock] = k * l->contention_ns, v[V_ffn_jobs] = l->jobs, v[V_tau_lock] = r->turn_ns;
    v[V_t_lost] = k * b->lost, v[V_t_guess] = k * b->guess;
    v[V_t_cache] = k * b->cache_overhead, v[V_lookups] = f->lookups, v[V_copied] = b->reads * f->copied;
    v[V_tau_lookup] = r->lookup_ns, v[V_tau_admit] = r->admit_ns;
    v[V_t_verify] = k * b->verify, v[V_tau_verify] = r->verify_ns_per_byte, v[V_V_read] = b->gate_bytes + b->reads * r->unit_bytes;
    v[V_tau_gate] = r->gate_ns, v[V_tau_up] = r->up_ns, v[V_tau_down] = r->down_ns, v[V_tau_scattered] = r->scattered_ns;
    v[V_B_seq] = r->seq_bw, v[V_B_rand] = r->rand_bw, v[V_threads] = r->threads;
    if (l->engine_ns > 0)
        v[V_t_engine] = k * l->engine_ns, v[V_t_queue] = k * l->queue_ns, v[V_t_launch] = k * l->launch_ns, v[V_sigma] = r->sigma;
}

/* Of reads. */
static void io_values(const struct cost_choice *c, const struct cost_rates *r, const struct cost_flow *f, const struct cost_cold *cold,
                      const struct busy *b, const struct waits *w, const struct plan_layer_figures *o, double *v)
{
    const double k = r->io_factor, late = missing(c, f) - foreseen(c, f);
    v[V_t_io] = o->io_ns, v[V_t_exposed] = o->exposed_ns, v[V_t_slowed] = o->io_ns - w->reads;
    v[V_t_waited] = w->waited, v[V_kappa] = w->kept, v[V_t_work] = larger(o->ffn_compute_ns, o->ffn_memory_ns);
    v[V_t_stream] = k * w->stream, v[V_V_stream] = f->stream_bytes, v[V_B_stream] = r->stream_bw, v[V_t_early] = w->early;
    v[V_t_hidden] = w->known - w->left + w->early - w->early_left, v[V_t_first] = larger(0, w->first - w->left);
    v[V_t_single] = k * w->single, v[V_t_missed] = k * cold->ns, v[V_t_last] = k * w->last;
    v[V_t_reads] = v[V_t_single] + v[V_t_missed], v[V_reads] = f->single_reads + cold->reads;
    v[V_R] = r->cold_bytes, v[V_D] = c->depth, v[V_t_one] = cost_reads_ns(&r->cold, 1);
    v[V_missed_units] = late, v[V_joined_reads] = cold->reads, v[V_V_missed] = cold->bytes, v[V_longest] = c->read_bytes;
    v[V_V_gaps] = larger(0, cold->units - late) * r->stride_bytes;
    v[V_beta] = r->together, v[V_io_reads] = b->n, v[V_tau_lost] = b->n > 0 ? b->lost / b->n : 0;
    if (c->ahead && f->foresees)
        v[V_foreseen] = foreseen(c, f), v[V_wasted] = f->early[REPLAY_AHEAD_WASTED], v[V_layers_ahead] = 1;
}

/* By the paper's equations. */
INLINE void paper_figures(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l, const struct cost_flow *f,
                          struct plan_layer_figures *o)
{
    o->read_bytes = f->predictor_bytes + f->stream_bytes + f->single_reads * r->single_bytes + missing(c, f) * r->cold_bytes;
    o->io_ns = paper_io_ns(r, l, f, c->mode);
    o->total_ns = cost_compute_ns(o->attention_ns + o->predict_ns, o->ffn_compute_ns, o->io_ns);
}

/* cold: of cost_cold_of, for this flow. v may be NULL. Inlined where only the time of one is asked for, by the million: what else
 * there is to tell then falls away. */
INLINE struct plan_layer_figures figures_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l,
                                            const struct cost_flow *f, const struct cost_cold *cold, double *v)
{
    struct plan_layer_figures o = { .attention_ns = l->attention_ns, .predict_ns = l->predict_ns,
                                    .ffn_compute_ns = l->compute_ns, .ffn_memory_ns = l->memory_ns,
                                    .active = l->active, .hit_rate = f->lookups > 0 ? larger(0, 1 - missing(c, f) / f->lookups) : 0 };
    if (c->model == PLAN_COST_PAPER) {
        paper_figures(c, r, l, f, &o);
        return o;
    }
    const struct busy b = busy_of(c, r, l, f, cold);
    const struct waits w = waits_of(c, r, l, f, cold, &b);
    o.read_bytes = b.gate_bytes + cold->bytes;
    o.exposed_ns = b.reads > 0 ? w.last : w.in_order ? 0 : cost_exposed_ns(b.streams, cost_stream_ns(r->stream_block, r->stream_bw));
    o.ffn_compute_ns = r->ffn_factor * (l->compute_ns + b.lost + b.cache_overhead + b.verify + b.guess);
    o.ffn_memory_ns *= r->ffn_factor;
    const double cpu_ns = larger(o.ffn_compute_ns, o.ffn_memory_ns);
    o.io_ns = w.reads + cost_slowed_ns(cpu_ns, w.waited, w.kept);
    if (l->engine_ns > 0)
        o.ffn_engine_ns = cost_both_ns(cpu_ns, r->ffn_factor * l->queue_ns, r->threads, r->ffn_factor * l->engine_ns,
                                       r->ffn_factor * l->launch_ns, r->sigma);
    o.exposed_ns *= r->io_factor;
    if (f->at_once)
        o.exposed_ns = burst_ns(c, r, l, f, w.window, w.kept, cpu_ns, cost_work_ns(&o), o.io_ns);
    double resident_ns = l->lookahead ? cost_lookahead_ns(&o) : cost_layer_ns(&o);
    double predictor_ns = r->io_factor * cost_stream_ns(f->predictor_bytes, r->stream_bw);
    double ahead_ns = l->feeds_ahead ? cost_fed_ns(resident_ns, o.predict_ns, o.io_ns, predictor_ns, o.exposed_ns) : INFINITY;
    o.predict_ns = larger(o.predict_ns, predictor_ns);
    o.total_ns = l->lookahead ? cost_lookahead_ns(&o) : cost_layer_ns(&o);
    o.total_ns = smaller(o.total_ns, ahead_ns);
    if (v) {
        ffn_values(r, l, f, &b, &o, v);
        io_values(c, r, f, cold, &b, &w, &o, v);
        v[V_t_predict] = o.predict_ns, v[V_t_scores] = l->predict_ns, v[V_t_waits] = o.predict_ns - l->predict_ns;
        v[V_t_feed] = predictor_ns, v[V_V_feed] = f->predictor_bytes, v[V_t_layers] = o.total_ns;
        v[V_t_overlap] = o.attention_ns + o.predict_ns + cost_work_ns(&o) + o.io_ns + o.exposed_ns - o.total_ns;
    }
    return o;
}

struct plan_layer_figures cost_figures_of(const struct cost_choice *c, const struct cost_rates *r,
                                          const struct cost_layer *l, const struct cost_flow *f, double *v)
{
    struct cost_cold cold;
    for (int i = 0; v && i < TERM_VALUES; i++)
        v[i] = NAN;
    cost_cold_of(c, r, f, &cold);
    return figures_of(c, r, l, f, &cold, v);
}

struct plan_layer_figures cost_figures(const struct cost_choice *c, const struct cost_rates *r,
                                       const struct cost_layer *l, const struct cost_flow *f)
{
    return cost_figures_of(c, r, l, f, NULL);
}

double cost_ffn_part_ns(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l,
                        const struct cost_flow *f, const struct cost_cold *cold)
{
    struct plan_layer_figures o = figures_of(c, r, l, f, cold, NULL);
    return c->model == PLAN_COST_PAPER ? o.io_ns : o.total_ns - o.attention_ns - l->predict_ns;
}

void cost_totals(const struct cost_choice *c, int batch, double head_ns, const struct cost_lookups *rows, const struct cost_flow *flows,
                 int n_layers, struct plan_figures *out)
{
    double dense = head_ns, ffn = 0, io = 0, lookups = 0, reads = 0;
    out->head_ns = head_ns;
    out->read_bytes = rows->bytes;
    for (int i = 0; i < n_layers; i++) {
        const struct plan_layer_figures *f = &out->layers[i];
        dense += f->attention_ns + f->predict_ns;
        ffn += f->ffn_compute_ns;
        io += f->io_ns;
        out->read_bytes += f->read_bytes;
        lookups += flows[i].lookups;
        reads += missing(c, &flows[i]);
    }
    out->hit_rate = lookups > 0 ? larger(0, 1 - reads / lookups) : 0;
    out->step_ns = c->model == PLAN_COST_PAPER ? cost_decode_ns(cost_compute_ns(dense, ffn, io)) :
                                                 cost_step_ns(head_ns, out->layers, n_layers);
    out->tokens_per_s = batch * cost_speed(out->step_ns);
}
