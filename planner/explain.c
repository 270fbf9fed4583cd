/* The same functions as the planner's, called with their operands kept. Gains are found by asking the quick solver
 * again with one thing changed: a limit, or a copy of the device's figures. */
#include "planner/explain.h"

#include "common/quant.h"
#include "planner/planning.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *explain_binds(const struct plan_layer_figures *f)
{
    if (f->io_ns >= f->ffn_compute_ns && f->io_ns >= f->ffn_memory_ns)
        return f->io_ns > 0 ? "io" : "compute";
    return f->ffn_compute_ns >= f->ffn_memory_ns ? "compute" : "memory";
}

/* One line; operands follow as name, value pairs, ended by NULL. */
static void put(struct explain_line *lines, int *n, const char *id, const char *formula, double value,
                const char *unit, ...)
{
    struct explain_line *o = &lines[(*n)++];
    *o = (struct explain_line){ .id = id, .formula = formula, .unit = unit, .value = value };
    va_list ap;
    va_start(ap, unit);
    for (const char *name; o->n < EXPLAIN_OPERANDS && (name = va_arg(ap, const char *)); o->n++) {
        o->operand[o->n].name = name;
        o->operand[o->n].value = va_arg(ap, double);
    }
    va_end(ap);
}

/* Sums over layers that the paper's equations speak of. */
struct sums {
    double attn_ns, pred_ns, active, gates, w_ffn, w_gate, w_attn, stream, weighted_mu;
};

static void paper_sums(const struct problem *pr, const struct cost_choice *c, const struct cost_rates *r,
                       const struct cost_keep *keeps, struct sums *s)
{
    const struct inputs *in = pr->in;
    double gate = (double)quant_row_bytes(pr->layout.type[LAYOUT_GATE], (uint64_t)in->h.d_model);
    *s = (struct sums){ 0 };
    for (int l = 0; l < in->n_layers; l++) {
        struct cost_layer cl;
        cost_layer_of(pr->hw, in, &pr->shape, c, r, 0, l, &cl, NULL);
        struct cost_flow f = cost_flow_of(in, &pr->shape, c, 0, l, problem_table(pr, c->way, 0, l), &keeps[l]);
        double gates = inputs_gates(in, 0, l);
        s->attn_ns += cl.attention_ns;
        s->pred_ns += cl.predict_ns;
        s->active += cl.active;
        s->gates += gates;
        s->w_ffn += cl.ffn_bytes;
        s->w_gate += c->mode == PLAN_DENSE ? 0 : gates * gate;
        s->stream += c->mode == PLAN_DENSE ? 0 : f.stream_bytes + f.single_reads * r->single_bytes;
        s->weighted_mu += f.mu * cl.active;
        for (int a = 0; a < INPUTS_ATTN; a++)
            s->w_attn += (double)in->layers[l].attn[a].bytes;
    }
}

static int paper_lines(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *choice,
                       const struct cost_keep *keeps, struct explain *x, struct err *e)
{
    struct cost_choice c = *choice;
    struct cost_rates r;
    struct sums s;
    c.model = PLAN_COST_PAPER;
    int ok = cost_rates_of(pr->hw, pr->in, &pr->shape, &c, 1, &r, NULL, e);
    if (ok < 0)
        return ok;
    paper_sums(pr, &c, &r, keeps, &s);
    double head = cost_head_ns(pr->hw, pr->in, &c, &r, 1, NULL), a = s.gates > 0 ? s.active / s.gates : 0;
    double mu = s.active > 0 ? s.weighted_mu / s.active : 0;
    double f_attn = (s.attn_ns + head) * r.f_cpu / 1e9, f_pred = s.pred_ns * r.f_cpu / 1e9;
    double f_ffn = 2.0 * pr->in->h.d_model * s.gates * (c.mode == PLAN_DENSE ? 3 : 2);
    double dense = cost_dense_ns(f_attn, f_pred, r.f_cpu), ffn = cost_ffn_ns(a, f_ffn, r.f_cpu);
    double v = cost_v_io(a, mu, s.w_ffn), io = cost_io_ns(v + s.stream, r.b_io), t = cost_compute_ns(dense, ffn, io);
    double w_attn = s.w_attn + (double)pr->in->head.bytes;
    struct explain_line *p = x->paper;
    int *n = &x->n_paper;
    put(p, n, "(1)", "s = 1 / t_decode", cost_speed(cost_decode_ns(t)), "tokens/s", "t_decode", cost_decode_ns(t),
        NULL);
    put(p, n, "(2)", "t_decode = t_compute", cost_decode_ns(t), "ns", "t_compute", t, NULL);
    put(p, n, "(3)", "n_k <= N_k^max", c.threads, "cores", "N_max", (double)r.cores, NULL);
    put(p, n, "(4)", "m <= M_max", (double)l->account_bytes, "bytes", "M_max", (double)l->memory_bytes, NULL);
    put(p, n, "(5)", "s >= s_min", cost_speed(t), "tokens/s", "s_min", l->min_tokens_per_s, NULL);
    put(p, n, "(6)", "t_compute = t_dense + max(t_ffn, t_io)", t, "ns", "t_dense", dense, "t_ffn", ffn, "t_io", io,
        NULL);
    put(p, n, "(7)", "t_dense = (F_attn + F_pred) / f_cpu", dense, "ns", "F_attn", f_attn, "F_pred", f_pred,
        "f_cpu", r.f_cpu, NULL);
    put(p, n, "(8)", "t_ffn = a * F_ffn / f_cpu", ffn, "ns", "a", a, "F_ffn", f_ffn, "f_cpu", r.f_cpu, NULL);
    put(p, n, "(9)", "f_cpu = sum n_k * f_k", r.f_cpu, "FLOP/s", "n", (double)c.threads, NULL);
    put(p, n, "(10)", "V_io = a * mu * W_ffn, and gates that are not resident; t_io = V_io / B_io", v + s.stream,
        "bytes", "a", a, "mu", mu, "W_ffn", s.w_ffn, "V_gates", s.stream, "B_io", r.b_io, NULL);
    put(p, n, "(11)", "t_mem = (W_attn + W_pred + a * W_ffn) / B_mem (not in (2))", cost_mem_ns(w_attn, s.w_gate, a,
                                                                                                s.w_ffn, r.b_mem), "ns",
        "W_attn", w_attn, "W_pred", s.w_gate, "a", a, "W_ffn", s.w_ffn, "B_mem", r.b_mem, NULL);
    return 0;
}

/* What predictors add. */
static void foretold_lines(const struct problem *pr, const struct plan_figures *g, const struct cost_choice *c,
                           const struct cost_rates *r, struct explain *x)
{
    const struct foretell *f = c->foretell;
    double told = 0, beyond = 0, gates = 0, predict = 0, compute = 0, ahead = 0, serial = 0, n_ahead = 0;
    for (int l = 0; l < pr->in->n_layers; l++) {
        const struct plan_layer_figures *k = &g->layers[l];
        if (f->input[l] < 0)
            continue;
        predict += k->predict_ns, compute += k->ffn_compute_ns;
        told += foretell_neurons(f, 0, l, 0), beyond += foretell_neurons(f, 0, l, f->exempt[l]);
        gates += inputs_gates(pr->in, 0, l);
        if (f->input[l] == PREDICT_BLOCK)
            ahead += cost_lookahead_ns(k), serial += cost_layer_ns(k), n_ahead++;
    }
    struct explain_line *m = x->measured;
    int *n = &x->n_measured;
    put(m, n, "(M11)",
        "t_predict = max(rank * tau_1 + (n_ff - exempt) * tau_2, V_pred / B_seq), sum over layers", predict,
        "ns", "V_pred", (double)f->predictors.bytes, "largest rank", (double)f->predictors.rank, "B_seq", r->seq_bw, NULL);
    put(m, n, "(M12)", "t_compute = exempt * tau_gate + foretold * tau_scattered + open * tau_up + active * tau_down",
        compute, "ns", "exempt", told - beyond, "foretold", beyond, "density", gates > 0 ? told / gates : 0, "recall",
        f->recall, "tau_scattered", r->scattered_ns, NULL);
    put(m, n, "(M13)", "t_layer = t_predict + max(t_attention + max(t_compute, t_memory), t_io) + t_exposed, of layers "
        "that look ahead", ahead, "ns", "layers", n_ahead, "by (M7)", serial, NULL);
}

static int measured_lines(const struct problem *pr, const struct plan *p, const struct plan_limit *l,
                          const struct cost_choice *choice, const struct cost_keep *keeps, struct explain *x,
                          struct err *e)
{
    const struct plan_figures *g = &l->batches[0].predicted;
    struct cost_choice c = *choice;
    struct cost_rates r;
    double att = 0, pred = 0, comp = 0, mem = 0, io = 0, exposed = 0, layers = 0;
    double stream = 0, reads = 0, cold = 0, lookups = 0, gates = 0, active = 0, reads_ns = 0;
    struct cost_cold all = { 0 };
    c.model = PLAN_COST_MEASURED;
    int ok = cost_rates_of(pr->hw, pr->in, &pr->shape, &c, 1, &r, NULL, e);
    if (ok < 0)
        return ok;
    for (int i = 0; i < p->n_layers; i++) {
        const struct plan_layer_figures *f = &g->layers[i];
        struct cost_flow w = cost_flow_of(pr->in, &pr->shape, &c, 0, i, problem_table(pr, c.way, 0, i), &keeps[i]);
        att += f->attention_ns, pred += f->predict_ns, comp += f->ffn_compute_ns, mem += f->ffn_memory_ns,
            io += f->io_ns;
        exposed += f->exposed_ns, layers += f->total_ns, stream += w.stream_bytes, reads += w.single_reads;
        cold += w.reads, lookups += w.lookups;
        reads_ns += cost_reads_ns(&r.single, w.single_reads);
        struct cost_cold one;
        cost_cold_of(&c, &r, &w, &one);
        all.reads += one.reads, all.units += one.units, all.bytes += one.bytes, all.cpu_ns += one.cpu_ns, all.ns += one.ns;
        gates += inputs_gates(pr->in, 0, i);
        active += f->active;
    }
    const struct model_hparams *h = &pr->in->h;
    double positions = 0, row = (double)pr->shape.part[pr->shape.n_parts - 1].record_bytes;
    for (int i = 0; i < p->n_layers; i++)
        positions += cost_positions(h, i, l->context) / p->n_layers;
    double cpu_ns = stream / r.stream_block * r.stream_cpu_ns + reads * r.cold_cpu_ns + all.cpu_ns;
    double stream_ns = r.io_factor * cost_stream_ns(stream, r.stream_bw),
           tax_ns = cost_tax_ns(1, cpu_ns, r.threads, r.cores);
    double kv_bytes = cost_kv_bytes(h, 1, positions, c.kv_f16), kv_flops = cost_kv_flops(h, 1, positions);
    struct explain_line *m = x->measured;
    int *n = &x->n_measured;
    put(m, n, "(M1)",
        "t_compute = gates * tau_gate + active * (tau_up + tau_down) + (M5) + (M14) + (M15) + (M19), sum over layers",
        comp, "ns", "gates", gates, "active", active, "tau_gate", r.gate_ns, "tau_up", r.up_ns, "tau_down",
        r.down_ns, NULL);
    put(m, n, "(M2)", "t_memory = V_seq / B_seq + V_rand / B_rand, sum over layers", mem, "ns", "B_seq", r.seq_bw,
        "B_rand", r.rand_bw, "row", row, NULL);
    put(m, n, "(M3)", "t_stream = V / B_io(seq, block, depth)", stream_ns, "ns", "V",
        stream, "block", r.stream_block, "depth", (double)c.depth, "B_io", r.stream_bw, NULL);
    put(m, n, "(M4)", "t_reads = reads of R bytes, the last D of a layer at depths D .. 1, sum over layers", r.io_factor * (reads_ns + all.ns), "ns",
        "reads", reads + all.reads, "R", r.cold_bytes, "D", (double)c.depth, "t_reads(1)", cost_reads_ns(&r.cold, 1), NULL);
    put(m, n, "(M21)", "of which reads bring several units: sum over lengths of n_len * t_len(N) / N", r.io_factor * all.ns, "ns",
        "missed units", cold, "reads", all.reads, "bytes", all.bytes, "bytes in gaps", fmax(0, all.units - cold) * r.stride_bytes,
        "longest read", (double)c.read_bytes, NULL);
    put(m, n, "(M5)", "CPU time of I/O is taken from compute where no core is spare", tax_ns, "ns",
        "cpu_ns", cpu_ns, "threads", (double)r.threads, "lanes", (double)r.lanes, "cores", (double)r.cores, NULL);
    put(m, n, "(M6)", "t_exposed = min(1, n) * t_reads(1), sum over layers", exposed, "ns", NULL);
    put(m, n, "(M14)", "(lookups * tau_lookup + reads * tau_admit(R)) / threads, sum over layers",
        cost_keeping_ns(lookups, r.lookup_ns, cold, r.admit_ns, r.threads), "ns", "lookups", lookups,
        "tau_lookup", r.lookup_ns, "reads", cold, "tau_admit", r.admit_ns, "threads", (double)r.threads,
        NULL);
    put(m, n, "(M15)", "a job that threads share is started and waited for: tau_start", r.start_ns, "ns",
        "per layer in attention", (double)COST_ATTENTION_JOBS, NULL);
    put(m, n, "(M16)", "t_alone = 2 * tau_norm(d) + (heads + kv_heads) * tau_rope(head_dim), per layer",
        cost_alone_ns(1, 2, r.norm_ns, h->n_heads + h->n_kv_heads, r.rope_ns), "ns", "tau_norm", r.norm_ns,
        "tau_rope", r.rope_ns, NULL);
    put(m, n, "(M17)", "t_attend = p * heads * tau_attend(head_dim) / n_t, per layer",
        cost_attend_ns(positions, h->n_heads, r.attend_ns, kv_bytes, r.threads, 1), "ns", "tau_attend", r.attend_ns,
        NULL);
    put(m, n, "(M18)", "tau_down(d) = parts * tau_axpy(d / parts): columns are divided", r.down_ns, "ns",
        "parts", (double)cost_row_parts(r.threads), NULL);
    put(m, n, "(M19)", "t_turns = 2 * jobs * tau_turn / threads; tau_turn", r.turn_ns, "ns", NULL);
    put(m, n, "(M7)", "t_layer = t_attention + t_predict + max(t_compute, t_memory, t_io) + t_exposed, sum over "
                      "layers", layers, "ns", "t_attention", att,
        "t_predict", pred, "t_compute", comp, "t_memory", mem, "t_io", io, "t_exposed", exposed, NULL);
    if (c.foretell)
        foretold_lines(pr, g, &c, &r, x);
    put(m, n, "(M7)", "t_io = t_stream less what attention hides + t_reads, sum over layers", io, "ns", "t_stream",
        stream_ns, "t_reads", r.io_factor * reads_ns, NULL);
    put(m, n, "(M8)", "K and V read per layer and step = 2 * positions * kv_dim * width", kv_bytes, "bytes",
        "positions", positions, "kv_dim", (double)h->n_kv_heads * h->head_dim, "width", c.kv_f16 ? 2.0 : 4.0, NULL);
    put(m, n, "(M9)", "attention over them per layer = 4 * positions * heads * head_dim", kv_flops, "FLOP",
        "positions", positions,
        "heads", (double)h->n_heads, "head_dim", (double)h->head_dim, NULL);
    put(m, n, "(M10)", "t_step = t_head + sum of t_layer", g->head_ns + layers, "ns", "t_head", g->head_ns,
        "layers", layers, NULL);
    put(m, n, "(1)", "s = 1 / t_step", cost_speed(g->head_ns + layers), "tokens/s", NULL);
    if (pr->hw->calibration)
        put(m, n, "(C)", "factors of a calibration, which the times above have in them", (double)pr->hw->calibration,
            "is its number", "attention", hw_correction(pr->hw, HW_ATTENTION), "predict",
            hw_correction(pr->hw, HW_PREDICT), "ffn", hw_correction(pr->hw, HW_FFN), "io",
            hw_correction(pr->hw, HW_IO), "head", hw_correction(pr->hw, HW_HEAD), NULL);
    return 0;
}

/* --- gains --- */

static int quick_speed(struct problem *pr, const struct problem_limits *lim, double *out, struct err *e)
{
    struct solve_result res;
    int r;
    if ((r = problem_fill(pr, lim, e)) < 0 || (r = solve_greedy(&pr->sp, &res, e)) < 0)
        return r;
    *out = res.feasible ? 1e9 * SOLVE_TICKS_PER_NS / (double)res.ticks[0] : 0;
    solve_result_done(&res);
    return 0;
}

static void gain(struct explain *x, double speed, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void gain(struct explain *x, double speed, const char *fmt, ...)
{
    struct explain_gain *g = &x->gains[x->n_gains++];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(g->what, sizeof g->what, fmt, ap);
    va_end(ap);
    g->tokens_per_s = speed;
}

/* The device with storage twice as fast: throughput doubled, latency and CPU time per read halved. */
static struct hw_storage *fast_storage(const struct hw *hw)
{
    struct hw_storage *s = malloc(((size_t)hw->n_storage + 1) * sizeof *s);
    for (int i = 0; s && i < hw->n_storage; i++) {
        s[i] = hw->storage_points[i];
        s[i].bytes_per_s.p10 *= 2, s[i].bytes_per_s.p50 *= 2, s[i].bytes_per_s.p90 *= 2;
        s[i].latency_ns_p50 /= 2, s[i].latency_ns_p99 /= 2, s[i].cpu_ns_per_read /= 2;
    }
    return s;
}

static int find_gains(struct problem *pr, const struct problem_limits *lim, struct explain *x, struct err *e)
{
    const struct hw *device = pr->hw;
    struct problem_limits more = *lim;
    struct hw other = *device;
    double speed;
    int r = quick_speed(pr, lim, &x->base_tokens_per_s, e);
    for (int i = 0; i < 2 && r == 0; i++) {
        more.memory_bytes = lim->memory_bytes + (i ? UINT64_C(1) << 30 : UINT64_C(1) << 20);
        if ((r = quick_speed(pr, &more, &speed, e)) == 0)
            gain(x, speed, "one more %s of memory", i ? "GiB" : "MiB");
    }
    for (int k = 0; k < device->n_classes && k < 4 && r == 0; k++) {
        other.classes[k].n_cores++;
        pr->hw = &other;
        if ((r = quick_speed(pr, lim, &speed, e)) == 0)
            gain(x, speed, "one more core of class %.60s", device->classes[k].name);
        other.classes[k].n_cores--;
    }
    other.storage_points = r == 0 ? fast_storage(device) : NULL;
    if (r == 0 && !other.storage_points)
        r = err_set(e, ERR_NOMEM, "out of memory");
    if (r == 0) {
        pr->hw = &other;
        if ((r = quick_speed(pr, lim, &speed, e)) == 0)
            gain(x, speed, "storage twice as fast");
        free(other.storage_points);
    }
    pr->hw = device;
    return r;
}

/* Belady's hit rate per layer at the plan's prefix and slots. */
static int find_best(const struct problem *pr, const struct cost_keep *keeps, struct explain *x, struct err *e)
{
    const struct inputs *in = pr->in;
    int last = pr->shape.n_parts - 1, r = 0;
    x->best_hit_rate = calloc((size_t)in->n_layers, sizeof *x->best_hit_rate);
    if (!x->best_hit_rate)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (int l = 0; pr->tables[0] && l < in->n_layers && r == 0; l++) {
        struct inputs_steps s;
        double misses, lookups = replay_lookups(problem_table(pr, 0, 0, l), keeps[l].hot[last]);
        if (lookups <= 0 || (r = problem_steps(pr, 0, l, problem_window(pr, 0, l), &s, e)) < 0)
            continue;
        r = replay_belady(&s, &pr->shape, last, in->n_blocks, 1, keeps[l].hot[last], keeps[l].slots, &misses, e);
        inputs_steps_done(&s);
        x->best_hit_rate[l] = r == 0 && misses < lookups ? 1 - misses / lookups : 0;
    }
    return r;
}

int explain_limit(struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain *out,
                  struct err *e)
{
    struct explain x = { .n_paper = 0 };
    struct cost_choice c;
    struct problem_limits lim;
    struct cost_keep *keeps = malloc((size_t)p->n_layers * sizeof *keeps);
    if (!keeps)
        return err_set(e, ERR_NOMEM, "out of memory");
    planning_choice(p, l, &c);
    c.foretell = pr->foretell[0];
    planning_limits(p, l, &lim);
    lim.min_tokens_per_s = 0;
    planning_keeps(p, &l->batches[0], keeps);
    int r = planning_account(pr, l, &x.account, e);
    if (r == 0 && l->mode == PLAN_PREDICTED) {
        struct cost_choice exact = c;
        struct budget b;
        exact.mode = PLAN_EXACT;
        exact.foretell = NULL;
        r = problem_account(pr, &exact, &lim, NULL, &b, e);
        x.exact_floor = b.floor;
    }
    if (r == 0)
        r = paper_lines(pr, l, &c, keeps, &x, e);
    if (r == 0 && p->cost == PLAN_COST_MEASURED)
        r = measured_lines(pr, p, l, &c, keeps, &x, e);
    if (r == 0 && l->mode == PLAN_PREDICTED && p->cost == PLAN_COST_MEASURED)
        r = explain_inputs(pr, p, l, &x.inputs, e);
    if (r == 0)
        r = find_best(pr, keeps, &x, e);
    if (r == 0)
        r = find_gains(pr, &lim, &x, e);
    free(keeps);
    if (r < 0) {
        explain_done(&x);
        return r;
    }
    *out = x;
    return 0;
}

void explain_done(struct explain *x)
{
    free(x->best_hit_rate);
    free(x->inputs);
    x->best_hit_rate = NULL;
    x->inputs = NULL;
}
