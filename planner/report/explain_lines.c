/* The equations with their numbers: the same functions as the planner's, called with their operands kept. A line that is a
 * sum names its terms, and a term that has a line of its own goes by the name that this begins with, so everything adds up
 * to the time of a token (tests/explain_sums.py). */
#include "planner/report/explain.h"

#include "common/kernels/quant.h"
#include "planner/planning/planning.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

/* One line; operands follow as name, value pairs, ended by NULL. */
static struct explain_line *put(struct explain_line *lines, int *n, const char *id, const char *formula, double value,
                                const char *unit, ...)
{
    struct explain_line *o = &lines[(*n)++];
    *o = (struct explain_line){ .id = id, .formula = formula, .unit = unit, .value = value };
    va_list ap;
    va_start(ap, unit);
    for (const char *name; o->n < EXPLAIN_OPERANDS && (name = va_arg(ap, const char *)); o->n++)
        o->operand[o->n] = (struct explain_number){ name, va_arg(ap, double) };
    va_end(ap);
    return o;
}

/* Its terms, likewise; those that are nothing but rounding are left out. */
static void terms(struct explain_line *o, ...)
{
    va_list ap;
    va_start(ap, o);
    for (const char *name; o->n_terms < EXPLAIN_TERMS && (name = va_arg(ap, const char *));) {
        double value = va_arg(ap, double);
        if (fabs(value) > 1e-12 * fabs(o->value))
            o->term[o->n_terms++] = (struct explain_number){ name, value };
    }
    va_end(ap);
}

/* --- the paper's --- */

/* Sums over layers that the paper's equations speak of. */
struct sums {
    double attn_ns, pred_ns, ffn_ns, f_ffn, w_ffn, w_pred, w_attn, gates_read, io_bytes, active_bytes;
};

static void paper_sums(const struct problem *pr, const struct cost_choice *c, const struct cost_rates *rates,
                       const struct cost_residency *residencies, struct sums *s)
{
    const struct inputs *in = pr->space.in;
    *s = (struct sums){ 0 };
    for (int l = 0; l < in->n_layers; l++) {
        const struct layout_shape *shape = layout_of(&pr->space.shapes, l);
        const struct cost_rates *r = &rates[pr->space.shapes.l.kind[l]];
        double gate = (double)quant_row_bytes(shape->type[LAYOUT_GATE], (uint64_t)in->h.d_model);
        struct cost_layer cl;
        enum plan_mode mode = cost_mode_at(c, l);
        cost_layer_of(pr->space.hw, in, shape, c, r, 0, l, &cl, NULL);
        struct cost_flow f = cost_flow_of(in, shape, c, 0, l, miss_tables_at(&pr->tables, c->variant, 0, l), &residencies[l]);
        s->attn_ns += cl.attention_ns;
        s->pred_ns += cl.predict_ns;
        s->ffn_ns += cl.compute_ns;
        s->f_ffn += 2.0 * in->h.d_model * inputs_gates(in, 0, l) * (mode == PLAN_EXACT ? 2 : 3);
        s->w_ffn += cl.ffn_bytes;
        s->active_bytes += cl.density * cl.ffn_bytes;
        s->io_bytes += cost_v_io(cl.density, f.mu, cl.ffn_bytes);
        s->gates_read += f.predictor_bytes + (mode == PLAN_DENSE ? 0 : f.stream_bytes + f.single_reads * r->single_bytes);
        s->w_pred += mode == PLAN_EXACT ? inputs_gates(in, 0, l) * gate :
                     mode == PLAN_PREDICTED ? cost_predictor_bytes(in, c->predicted, 0, l) : 0;
        s->w_attn += inputs_resident_bytes(in, l);
    }
}

/* a and mu are the means that (8) and (10) ask for, over the layers' work and bytes. */
int explain_paper(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *choice,
                  const struct cost_residency *residencies, struct explain *x, struct err *e)
{
    struct cost_choice c = *choice;
    struct cost_rates *rates;
    struct sums s;
    c.model = PLAN_COST_PAPER;
    int ok = cost_rates_new(pr->space.hw, pr->space.in, &pr->space.shapes, &c, 1, &rates, NULL, e);
    if (ok < 0)
        return ok;
    const struct cost_rates r = rates[0];
    paper_sums(pr, &c, rates, residencies, &s);
    free(rates);
    double head = cost_head_ns(pr->space.hw, pr->space.in, &c, &r, 1, NULL);
    double f_attn = (s.attn_ns + head) * r.f_cpu / 1e9, f_pred = s.pred_ns * r.f_cpu / 1e9;
    double a = s.f_ffn > 0 ? s.ffn_ns * r.f_cpu / 1e9 / s.f_ffn : 0, mu = s.active_bytes > 0 ? s.io_bytes / s.active_bytes : 0;
    double a_io = s.w_ffn > 0 ? s.active_bytes / s.w_ffn : 0, w_attn = s.w_attn + (double)pr->space.in->head.bytes;
    double dense = cost_dense_ns(f_attn, f_pred, r.f_cpu), ffn = cost_ffn_ns(a, s.f_ffn, r.f_cpu);
    double v = cost_v_io(a_io, mu, s.w_ffn) + s.gates_read, io = cost_io_ns(v, r.b_io), t = cost_compute_ns(dense, ffn, io);
    struct explain_line *p = x->paper;
    int *n = &x->n_paper;
    put(p, n, "(1)", "s = 1 / t_decode", cost_speed(cost_decode_ns(t)), "tokens/s", "t_decode", cost_decode_ns(t),
        NULL);
    put(p, n, "(2)", "t_decode = t_compute", cost_decode_ns(t), "ns", "t_compute", t, NULL);
    put(p, n, "(3)", "n_k <= N_k^max", c.threads, "cores", "N_max", (double)r.cores, NULL);
    put(p, n, "(4)", "m <= M_max", (double)l->account_bytes, "bytes", "M_max", (double)l->memory_bytes, NULL);
    put(p, n, "(5)", "s >= s_min", cost_speed(t), "tokens/s", "s_min", l->min_tokens_per_s, NULL);
    terms(put(p, n, "(6)", "t_compute = t_dense + max(t_ffn, t_io)", t, "ns", "t_io", io, NULL),
          "t_dense", dense, "t_ffn", ffn, "what t_io takes longer", t - dense - ffn, NULL);
    put(p, n, "(7)", "t_dense = (F_attn + F_pred) / f_cpu", dense, "ns", "F_attn", f_attn, "F_pred", f_pred,
        "f_cpu", r.f_cpu, NULL);
    put(p, n, "(8)", "t_ffn = a * F_ffn / f_cpu", ffn, "ns", "a", a, "F_ffn", s.f_ffn, "f_cpu", r.f_cpu, NULL);
    put(p, n, "(9)", "f_cpu = sum n_k * f_k", r.f_cpu, "FLOP/s", "n", (double)c.threads, NULL);
    put(p, n, "(10)", "V_io = a * mu * W_ffn, and gates and predictors that are not resident; t_io = V_io / B_io", v,
        "bytes", "a", a_io, "mu", mu, "W_ffn", s.w_ffn, "V_gates", s.gates_read, "B_io", r.b_io, NULL);
    put(p, n, "(11)", "t_mem = (W_attn + W_pred + a * W_ffn) / B_mem (not in (2))", cost_mem_ns(w_attn, s.w_pred, a_io,
                                                                                                s.w_ffn, r.b_mem), "ns",
        "W_attn", w_attn, "W_pred", s.w_pred, "a", a_io, "W_ffn", s.w_ffn, "B_mem", r.b_mem, NULL);
    return 0;
}

/* --- ours --- */

/* Everything that lines over measured curves speak of, summed over layers. */
struct totals {
    struct cost_rates *rates;   /* by kind of layer */
    struct cost_rates r;        /* of the first kind */
    struct cost_choice c;
    const struct plan_figures *figures;
    struct cost_terms t;
    double attention, products, jobs, serial_work, predict, compute, memory, ffn, io, exposed, layers;
    double engine, work, launch, both, processor, sizes; /* (M25), less launches, launches, (M26), c, neurons by layers */
    double gates, open, active;                     /* of layers that run exactly or densely: rows */
    double always, predicted, predicted_open, predicted_active, predicted_gates; /* of layers with predictors: rows */
    double gates_ns, open_ns, active_ns, always_ns, predicted_ns, predicted_open_ns, predicted_active_ns; /* by (M1) */
    double predicted_rows;                               /* what these take, ns */
    double ahead, serial, n_ahead;                  /* layers that look ahead: their time, by (M13) and (M7) */
    double stream_bytes, single_reads, lookups, missed, copied, n_jobs;
    double foreseen, wasted, late, n_early;         /* (M32): units; the others that are missed; layers that are foreseen */
    double single_bytes, missed_bytes, gap_bytes, cpu_ns;
    double feed_bytes, n_fed;                       /* streamed predictors */
    struct cost_cold cold;
};

/* height: of each FFN, what the accelerator has. */
static void count_rows(const struct problem *pr, const struct cost_choice *c, int l, uint32_t height, struct totals *s)
{
    const struct predicted *f = c->predicted;
    const struct inputs *in = pr->space.in;
    const struct cost_rates *r = &s->rates[pr->space.shapes.l.kind[l]];
    double whole = inputs_gates(in, 0, l), gates = height ? whole - whole / in->h.n_ff * height : whole;
    if (cost_mode_at(c, l) == PLAN_PREDICTED) {
        double all = predicted_neurons(f, 0, l, height), beyond = predicted_neurons(f, 0, l, height > f->always[l] ? height : f->always[l]);
        double active = predicted_active(f, in, 0, l, height);
        s->always += all - beyond, s->predicted += beyond, s->predicted_active += active;
        s->predicted_open += active * in->loads[l], s->predicted_gates += gates;
        s->always_ns += cost_rows_ns(all - beyond, r->gate_ns), s->predicted_ns += cost_rows_ns(beyond, r->scattered_ns);
        s->predicted_open_ns += cost_rows_ns(active * in->loads[l], r->up_ns);
        s->predicted_active_ns += cost_rows_ns(active, r->down_ns);
        return;
    }
    double active = c->mode == PLAN_DENSE ? gates : inputs_active(in, 0, l, height);
    double open = c->mode == PLAN_DENSE ? gates : active * in->loads[l];
    s->gates += gates, s->active += active, s->open += open;
    s->gates_ns += cost_rows_ns(gates, r->gate_ns), s->open_ns += cost_rows_ns(open, r->up_ns);
    s->active_ns += cost_rows_ns(active, r->down_ns);
}

static void add_terms(struct cost_terms *to, const struct cost_terms *t)
{
    to->rows += t->rows, to->start += t->start, to->contention += t->contention, to->io_cpu += t->io_cpu;
    to->submission += t->submission, to->cache_overhead += t->cache_overhead, to->verify += t->verify;
    to->stream += t->stream, to->single += t->single, to->hidden += t->hidden, to->first += t->first;
    to->cold += t->cold, to->turn += t->turn, to->last += t->last, to->lane += t->lane, to->scores += t->scores;
    to->guess += t->guess, to->early += t->early, to->feed += t->feed, to->overlap += t->overlap;
}

static void add_layer(const struct problem *pr, const struct cost_residency *residencies, int l, struct totals *s)
{
    const struct plan_layer_figures *k = &s->figures->layers[l];
    const struct layout_shape *shape = layout_of(&pr->space.shapes, l);
    const struct cost_rates *r = &s->rates[pr->space.shapes.l.kind[l]];
    struct cost_layer cl;
    struct cost_terms t;
    struct cost_cold cold;
    cost_layer_of(pr->space.hw, pr->space.in, shape, &s->c, r, 0, l, &cl, NULL);
    uint32_t height = cost_height(shape, &s->c, &residencies[l]);
    cost_layer_beside(pr->space.hw, pr->space.in, shape, &s->c, r, 0, l, height, &cl);
    struct cost_flow w = cost_flow_of(pr->space.in, shape, &s->c, 0, l,
                                      miss_tables_at(&pr->tables, s->c.variant, 0, l), &residencies[l]);
    cost_figures_of(&s->c, r, &cl, &w, &t);
    add_terms(&s->t, &t);
    s->predicted_rows += cost_mode_at(&s->c, l) == PLAN_PREDICTED ? t.rows : 0;
    count_rows(pr, &s->c, l, height, s);
    s->attention += k->attention_ns, s->products += cl.products_ns, s->jobs += cl.jobs_ns, s->serial_work += cl.serial_ns;
    s->predict += k->predict_ns, s->compute += k->ffn_compute_ns, s->memory += k->ffn_memory_ns;
    s->processor += fmax(k->ffn_compute_ns, k->ffn_memory_ns);
    s->ffn += fmax(fmax(k->ffn_compute_ns, k->ffn_memory_ns), k->ffn_engine_ns);
    s->engine += r->ffn_factor * cl.engine_ns, s->launch += r->ffn_factor * cl.launch_ns, s->both += k->ffn_engine_ns, s->sizes += height;
    s->io += k->io_ns, s->exposed += k->exposed_ns, s->layers += k->total_ns;
    if (cl.lookahead)
        s->ahead += cost_lookahead_ns(k), s->serial += cost_layer_ns(k), s->n_ahead++;
    s->n_jobs += cl.jobs;
    s->stream_bytes += w.stream_bytes, s->single_reads += w.single_reads, s->lookups += w.lookups;
    s->missed += cost_misses(&s->c, &w);
    s->copied += cost_misses(&s->c, &w) * w.copied;
    s->feed_bytes += w.predictor_bytes, s->n_fed += residencies[l].streamed;
    cost_cold_of(&s->c, r, &w, &cold);
    if (s->c.ahead && w.foresees)
        s->foreseen += w.early[REPLAY_AHEAD_FORESEEN], s->wasted += w.early[REPLAY_AHEAD_WASTED], s->n_early++;
    double late = cost_misses(&s->c, &w) - (s->c.ahead && w.foresees ? w.early[REPLAY_AHEAD_FORESEEN] : 0);
    s->late += late;
    s->single_bytes += w.single_reads * r->single_bytes, s->missed_bytes += cost_misses(&s->c, &w) * r->unit_bytes;
    s->gap_bytes += fmax(0, cold.units - late) * r->stride_bytes;
    s->cpu_ns += (w.stream_bytes + w.predictor_bytes) / r->stream_block * r->stream_cpu_ns + w.single_reads * r->cold_cpu_ns + cold.cpu_ns;
    s->cold.reads += cold.reads, s->cold.units += cold.units, s->cold.bytes += cold.bytes, s->cold.cpu_ns += cold.cpu_ns;
}

/* The token, and its layers. */
static void step_lines(const struct totals *s, struct explain_line *m, int *n)
{
    double head = s->figures->head_ns, step = head + s->layers;
    put(m, n, "(1)", "s = 1 / t_step", cost_speed(step), "tokens/s", "t_step", step, NULL);
    terms(put(m, n, "(M10)", "t_step = t_head + t_layers", step, "ns", NULL), "t_head", head, "t_layers", s->layers, NULL);
    terms(put(m, n, "(M7)", "t_layers = t_attention + t_predict + t_ffn + t_io + t_exposed - t_overlap, sums over layers; overlap: "
              "what goes on meanwhile, by (M7), (M13) or (M20)", s->layers, "ns", NULL),
          "t_attention", s->attention, "t_predict", s->predict, "t_ffn", s->ffn, "t_io", s->io, "t_exposed", s->exposed,
          "-t_overlap", -s->t.overlap, NULL);
}

/* Of a model that has no keys and values. */
static void state_lines(const struct inputs *in, const struct op_need *need, const struct cost_rates *r, struct explain_line *m, int *n)
{
    put(m, n, "(M8)", "V_kv = 8 * floats of a state, read and written per layer and step", cost_kv_bytes(need, 1, 0, 0), "bytes", "floats",
        (double)need->state, NULL);
    put(m, n, "(M9)", "F_kv = flops that move a state on by a token, per layer; t_attend = F_kv / f_cpu", cost_kv_flops(need, 1, 0), "FLOP",
        "f_cpu", r->f_cpu, NULL);
    put(m, n, "(M16)", "t_alone = 2 * tau_norm(d), per layer", cost_serial_ns(1, 2, r->norm_ns, 0, 0), "ns", "tau_norm", r->norm_ns, NULL);
    put(m, n, "(M15)", "tau_start: a job that threads share is started and waited for", r->start_ns, "ns", "per layer in attention",
        (double)cost_layer_jobs(&in->layers[in->n_layers - 1], 1), NULL);
}

static void attention_lines(const struct problem *pr, const struct totals *s, double positions, struct explain_line *m, int *n)
{
    const struct model_hparams *h = &pr->space.in->h;
    const struct cost_rates *r = &s->r;
    struct op_need need = { 0 }, all;
    attention_need(h, 0, &need);
    double kv_bytes = cost_kv_bytes(&need, 1, positions, s->c.kv_f16), kv_flops = cost_kv_flops(&need, 1, positions);
    double attend_ns = cost_attend_ns(positions, h->n_heads, r->attend_ns, kv_bytes, r->threads, 1);
    terms(put(m, n, "(M9)", "t_attention = max(rows of Q, K, V, output + t_attend, (weights + V_kv) / B_seq) + (M15) + (M16), sum over "
              "layers", s->attention, "ns", "B_seq", r->seq_bw, NULL),
          "products and K, V", s->products, "jobs (M15)", s->jobs, "one thread's work (M16)", s->serial_work, NULL);
    ops_most(h, OPS_ALL, &all);
    if (all.planes == 0) {
        state_lines(pr->space.in, &all, r, m, n);
        return;
    }
    put(m, n, "(M8)", "V_kv = 2 * positions * kv_dim * width, read per layer and step", kv_bytes, "bytes",
        "positions", positions, "kv_dim", (double)(need.planes * need.row) / 2.0, "width", s->c.kv_f16 ? 2.0 : 4.0, NULL);
    put(m, n, "(M9)", "F_kv = 4 * positions * heads * head_dim, per layer", kv_flops, "FLOP", "positions", positions, "heads",
        (double)h->n_heads, "head_dim", (double)h->head_dim, NULL);
    put(m, n, "(M17)", "t_attend = p * heads * tau_attend(head_dim) / n_t, per layer; where tau_attend was not measured, F_kv / f_cpu",
        attend_ns > 0 ? attend_ns : r->f_cpu > 0 ? 1e9 * kv_flops / r->f_cpu : 0, "ns", "tau_attend", r->attend_ns, "f_cpu", r->f_cpu,
        NULL);
    put(m, n, "(M16)", "t_alone = 2 * tau_norm(d) + (heads + kv_heads) * tau_rope(head_dim), per layer",
        cost_serial_ns(1, 2, r->norm_ns, h->n_heads + h->n_kv_heads, r->rope_ns), "ns", "tau_norm", r->norm_ns,
        "tau_rope", r->rope_ns, NULL);
    put(m, n, "(M15)", "tau_start: a job that threads share is started and waited for", r->start_ns, "ns",
        "per layer in attention", (double)cost_layer_jobs(&pr->space.in->layers[pr->space.in->n_layers - 1], 1), NULL);
}

static void ffn_lines(const struct problem *pr, const struct totals *s, struct explain_line *m, int *n)
{
    const struct cost_rates *r = &s->r;
    const struct cost_terms *t = &s->t;
    double k = r->ffn_factor, row = (double)pr->space.shapes.kind[0].part[pr->space.shapes.n_parts - 1].record_bytes;
    if (s->engine > 0) {
        terms(put(m, n, "(M7)", "t_ffn = t_both, and max(t_compute, t_memory) of layers that are the processor's alone, sum over layers",
                  s->ffn, "ns", NULL),
              "t_compute", s->compute, "where t_memory is longer", s->processor - s->compute, "where the accelerator takes longer, and "
              "both slow each other down", s->ffn - s->processor, NULL);
        put(m, n, "(M26)", "t_both = max(c, t_engine) + sigma * min(c, t_engine - t_launch), c = max(t_compute, t_memory), sum over layers",
            s->both, "ns", "c", s->processor, "sigma", r->sigma, NULL);
        terms(put(m, n, "(M25)", "t_engine = t_launch + FFNs * (t_ffn(h) - t_launch), sum over layers", s->engine, "ns", "neurons of all "
                  "layers", s->sizes, NULL), "launches and copies of nothing", s->launch, "neurons", s->engine - s->launch, NULL);
    } else {
        terms(put(m, n, "(M7)", "t_ffn = max(t_compute, t_memory), sum over layers", s->ffn, "ns", NULL),
              "t_compute", s->compute, "where t_memory is longer", s->ffn - s->compute, NULL);
    }
    terms(put(m, n, "(M1)", "t_compute = t_rows + t_foretold + t_tax + t_keeping + t_verify + t_start + t_turns + t_guess, sum over "
              "layers", s->compute, "ns", NULL),
          "t_rows", t->rows - s->predicted_rows, "t_foretold", s->predicted_rows, "t_tax", t->io_cpu + t->submission,
          "t_keeping", t->cache_overhead, "t_verify", t->verify, "t_start (M15)", t->start, "t_turns", t->contention, "t_guess", t->guess,
          NULL);
    if (s->gates > 0)
        terms(put(m, n, "(M1)", "t_rows = gates * tau_gate + open * tau_up + active * tau_down, sum over layers",
                  t->rows - s->predicted_rows, "ns", "gates", s->gates, "open", s->open, "active", s->active,
                  "tau_gate", r->gate_ns, "tau_up", r->up_ns, "tau_down", r->down_ns, NULL),
              "gates", k * s->gates_ns, "up", k * s->open_ns, "down", k * s->active_ns, NULL);
    if (s->predicted_gates > 0)
        terms(put(m, n, "(M12)", "t_foretold = exempt * tau_gate + foretold * tau_scattered + open * tau_up + active * tau_down, sum over "
                  "layers", s->predicted_rows, "ns", "exempt", s->always, "foretold", s->predicted, "density",
                  (s->always + s->predicted) / s->predicted_gates, "recall", s->c.predicted->recall,
                  "tau_scattered", r->scattered_ns, NULL),
              "exempt", k * s->always_ns, "foretold", k * s->predicted_ns, "up", k * s->predicted_open_ns, "down",
              k * s->predicted_active_ns, NULL);
    if (pr->space.shapes.l.form == LAYOUT_TILES)
        put(m, n, "(M23)", "tau_down(d) = d * tau_rows(t) / t: the source's rows of Down, t elements of each", r->down_ns, "ns",
            "d", (double)pr->space.in->h.d_model, "t", (double)pr->space.shapes.kind[0].part[0].record_neurons, NULL);
    else
        put(m, n, "(M18)", "tau_down(d) = parts * tau_axpy(d / parts): columns are divided", r->down_ns, "ns",
            "parts", (double)schedule_row_parts(r->threads), NULL);
    terms(put(m, n, "(M5)", "t_tax: CPU time of I/O is taken from compute where no core is spare, and what is asked for before "
              "attention is one thread's; sum over layers", t->io_cpu + t->submission, "ns", "cpu_ns",
              s->cpu_ns, "threads", (double)r->threads, "lanes", (double)r->lanes, "cores",
              (double)r->cores, NULL), "taken", t->io_cpu, "asked for before attention", t->submission, NULL);
    put(m, n, "(M14)", "t_keeping = (lookups * tau_lookup + copied * tau_admit(R)) / threads: missed units that get a slot; "
        "sum over layers", t->cache_overhead, "ns", "lookups", s->lookups, "tau_lookup", r->lookup_ns, "copied", s->copied,
        "tau_admit", r->admit_ns, "threads", (double)r->threads, NULL);
    put(m, n, "(M22)", "t_verify = V_read * tau_verify / threads, sum over layers", t->verify, "ns", "V_read",
        s->stream_bytes + s->feed_bytes + s->single_bytes + s->missed_bytes, "ns_per_byte",
        r->verify_ns_per_byte, "threads", (double)r->threads, NULL);
    put(m, n, "(M19)", "t_turns = 2 * jobs * tau_turn / threads, sum over layers", t->contention, "ns", "jobs", s->n_jobs, "tau_turn",
        r->turn_ns, "threads", (double)r->threads, NULL);
    put(m, n, "(M2)", "t_memory = V_seq / B_seq + V_rand / B_rand, sum over layers", s->memory, "ns", "B_seq", r->seq_bw,
        "B_rand", r->rand_bw, "row", row, NULL);
}

static void io_lines(const struct totals *s, struct explain_line *m, int *n)
{
    const struct cost_rates *r = &s->r;
    const struct cost_terms *t = &s->t;
    terms(put(m, n, "(M7)", "t_io = t_stream + t_early - t_hidden + t_first + t_reads + t_turn - t_last + t_lanes, sum over layers; "
              "hidden: by attention; first: until the neurons to read are known, beyond these, in dense mode while buffers are full, "
              "(M29); last: is in t_exposed; lanes: CPU time of reads, beyond that",
              s->io, "ns", NULL),
          "t_stream", t->stream, "t_early", t->early, "t_reads", t->single + t->cold, "-t_hidden", -t->hidden, "t_first",
          t->first, "t_turn", t->turn, "-t_last", -t->last, "t_lanes", t->lane, NULL);
    put(m, n, "(M3)", "t_stream = V / B_io(seq, block, depth), sum over layers", t->stream, "ns", "V", s->stream_bytes, "block",
        r->stream_block, "depth", (double)s->c.depth, "B_io", r->stream_bw, NULL);
    terms(put(m, n, "(M4)", "t_reads: of R bytes, the last D of a layer at depths D .. 1, sum over layers", t->single + t->cold, "ns",
              "reads", s->single_reads + s->cold.reads, "R", r->cold_bytes, "D", (double)s->c.depth, "t_reads(1)",
              cost_reads_ns(&r->cold, 1), NULL),
          "of gates by themselves", t->single, "t_missed", t->cold, NULL);
    put(m, n, "(M21)", "t_missed = sum over lengths of n_len * t_len(N) / N: one read may bring several units; sum over layers",
        t->cold, "ns", "missed units", s->late, "reads", s->cold.reads, "bytes", s->cold.bytes, "bytes in gaps",
        s->gap_bytes, "longest read", (double)s->c.read_bytes, NULL);
    if (s->cold.reads > 0)
        put(m, n, "(M33)", "t_turn = (1 - D / n)+ * max(0, beta * t_work - (1 - beta) * t_missed): reads that end together are worked "
            "through before buffers are free; sum over layers", t->turn, "ns", "beta of single units", r->together[0], "of the longest",
            r->together[r->n_lengths - 1], "D", (double)s->c.depth, NULL);
    if (s->n_early > 0) {
        put(m, n, "(M32)", "t_early = t_reads(f + w): f missing experts that are foreseen and w others are read before their router has "
            "chosen, while the layer before computes and attention does, which t_hidden has; sum over layers",
            t->early, "ns", "f", s->foreseen, "w", s->wasted, "missed", s->missed, "layers", s->n_early, "R", r->cold_bytes, NULL);
        put(m, n, "(M32)", "t_guess: the router once more, and a norm, sum over layers", t->guess, "ns", "layers", s->n_early, NULL);
    }
    put(m, n, "(M6)",
        "t_exposed = min(1, n) * t_reads(1), sum over layers; of experts E(max) less max(E), by how many miss; of streams in dense mode 0",
        s->exposed, "ns", NULL);
}

static void predict_lines(const struct totals *s, struct explain_line *m, int *n)
{
    const struct predicted *f = s->c.predicted;
    const struct cost_rates *r = &s->r;
    terms(put(m, n, "(M11)", "t_predict = max(rank * tau_1 + (n_ff - exempt) * tau_2, V_pred / B_seq), or as long as streaming them "
              "takes, sum over layers", s->predict, "ns", "V_pred", (double)f->predictors.bytes, "largest rank",
              (double)f->predictors.rank, "B_seq", r->seq_bw, NULL),
          "computing", s->t.scores, "where streaming is longer", s->t.feed, NULL);
    put(m, n, "(M13)", "t_ahead = t_predict + max(t_attention + max(t_compute, t_memory), t_io) + t_exposed, sum over layers that look "
        "ahead", s->ahead, "ns", "layers", s->n_ahead, "by (M7)", s->serial, NULL);
    if (s->n_fed > 0)
        put(m, n, "(M20)", "t_feed = V_pred / B_io(seq): predictors that are streamed, sum over layers",
            r->io_factor * cost_stream_ns(s->feed_bytes, r->stream_bw), "ns", "layers", s->n_fed, "V_pred", s->feed_bytes, "B_io",
            r->stream_bw, "buffers", (double)s->c.buffers, NULL);
}

/* A prompt, of the longest length that the plan has. */
static void prompt_line(const struct plan_limit *l, struct explain_line *m, int *n)
{
    const struct plan_prompt *q = &l->prompt;
    int i = q->n - 1;
    if (!q->n)
        return;
    struct explain_line *o = put(m, n, "(M27)", "t_to_first = t_prompt_attention + t_prompt_ffn + t_prompt_wait + t_prompt_head: until a "
                                 "prompt's first token; wait: for storage, (M28)", plan_prompt_ns(q, q->tokens[i]), "ns",
                                 "tokens", (double)q->tokens[i], "chunk", (double)l->prefill_chunk,
                                 "tokens/s", plan_prompt_tokens_per_s(q), "V", q->read_bytes[i], "D", (double)l->queue_depth, NULL);
    terms(o, "t_prompt_attention", q->attention_ns[i], "t_prompt_ffn", q->ffn_ns[i], "t_prompt_wait", q->wait_ns[i],
          "t_prompt_head", q->head_ns, NULL);
}

/* The longest pass over tokens that follow each other. */
static void pass_line(const struct plan_limit *l, struct explain_line *m, int *n)
{
    const struct plan_guesses *g = &l->guesses;
    if (g->n)
        put(m, n, "(M30)", "t_pass(n) = max(t_step(n), t_pass(n / 2)): n tokens of one sequence that follow each other, as guesses are "
                           "held against; t_step: (M10) of as many", g->pass_ns[g->n - 1], "ns", "n", (double)g->tokens[g->n - 1],
            "bytes read", g->read_bytes[g->n - 1], "t_pass(1)", g->pass_ns[0], NULL);
}

int explain_measured(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *choice,
                     const struct cost_residency *residencies, struct explain *x, struct err *e)
{
    const struct hw *hw = pr->space.hw;
    struct totals s = { .c = *choice, .figures = &l->batches[0].predicted };
    int layers = pr->space.in->n_layers, *n = &x->n_measured;
    double positions = 0;
    s.c.model = PLAN_COST_MEASURED;
    int ok = cost_rates_new(hw, pr->space.in, &pr->space.shapes, &s.c, 1, &s.rates, NULL, e);
    if (ok < 0)
        return ok;
    s.r = s.rates[0];
    for (int i = 0; i < layers; i++) {
        add_layer(pr, residencies, i, &s);
        positions += cost_positions(&pr->space.in->h, i, l->context) / layers;
    }
    free(s.rates);
    step_lines(&s, x->measured, n);
    attention_lines(pr, &s, positions, x->measured, n);
    if (s.c.predicted)
        predict_lines(&s, x->measured, n);
    ffn_lines(pr, &s, x->measured, n);
    io_lines(&s, x->measured, n);
    prompt_line(l, x->measured, n);
    pass_line(l, x->measured, n);
    if (hw->calibration)
        put(x->measured, n, "(C)", "factors of a calibration, which the times above have in them", (double)hw->calibration,
            "is its number", "attention", hw_correction(hw, HW_ATTENTION), "predict",
            hw_correction(hw, HW_PREDICT), "ffn", hw_correction(hw, HW_FFN), "io",
            hw_correction(hw, HW_IO), "head", hw_correction(hw, HW_HEAD), NULL);
    return 0;
}
