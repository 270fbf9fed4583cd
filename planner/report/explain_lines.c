/* The equations with their numbers, printed from the tables of terms.h. A line that is a sum names its terms, and a term that has a line of
 * its own goes by the name that this begins with, so everything adds up to the time of a token (tests/explain_sums.py). */
#include "planner/report/explain.h"

#include "common/kernels/quant.h"
#include "planner/search/equations.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void explain_row(const struct terms *t, const struct term_equation *q, const double *v, struct explain_line *lines, int *n)
{
    struct formula f;
    char name[FORMULA_NAME], text[TERM_TEXT];
    const int at = terms_value(t, q->value), is = terms_text(q, &f, text);
    int minus, i = 0;
    while (i < *n && strcmp(lines[i].formula, text) != 0)
        i++;
    if (isnan(v[at]) || i == EXPLAIN_LINES)
        return;
    struct explain_line *o = &lines[i];
    *n += i == *n;
    *o = (struct explain_line){ .value = v[at], .unit = t->value[at].unit };
    snprintf(o->id, sizeof o->id, "(%.5s)", q->id);
    memcpy(o->formula, text, sizeof text);
    int sums = is && formula_term(&f, 0, &minus) && v[at] != 0;
    for (i = 0; terms_input(q, is ? &f : NULL, i, name); i++) {
        const char *term = sums ? formula_term(&f, i, &minus) : NULL;
        const double value = v[terms_value(t, name)];
        if (term && !isnan(value) && fabs(value) > 1e-12 * fabs(o->value) && o->n_terms < EXPLAIN_TERMS) {
            struct explain_number *to = &o->term[o->n_terms++];
            snprintf(to->name, sizeof to->name, "%s%s", minus ? "-" : "", name);
            to->value = minus ? -value : value;
        } else if (!term && !isnan(value) && o->n < EXPLAIN_OPERANDS) {
            struct explain_number *to = &o->operand[o->n++];
            snprintf(to->name, sizeof to->name, "%s", name);
            to->value = value;
        }
    }
}

static void put_all(const struct terms *t, const double *v, struct explain_line *lines, int *n)
{
    for (int i = 0; i < t->n_equations; i++)
        explain_row(t, &t->equation[i], v, lines, n);
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
    double v[TERM_PAPER_VALUES];
    paper_sums(pr, &c, rates, residencies, &s);
    free(rates);
    double head = cost_head_ns(pr->space.hw, pr->space.in, &c, &r, 1, NULL);
    v[P_f_cpu] = r.f_cpu, v[P_n] = v[P_n_k] = c.threads, v[P_N_k_max] = hw_cores(pr->space.hw, -1);
    v[P_F_attn] = (s.attn_ns + head) * r.f_cpu / 1e9, v[P_F_pred] = s.pred_ns * r.f_cpu / 1e9, v[P_F_ffn] = s.f_ffn;
    v[P_a] = s.f_ffn > 0 ? s.ffn_ns * r.f_cpu / 1e9 / s.f_ffn : 0, v[P_mu] = s.active_bytes > 0 ? s.io_bytes / s.active_bytes : 0;
    v[P_a_io] = s.w_ffn > 0 ? s.active_bytes / s.w_ffn : 0, v[P_W_ffn] = s.w_ffn, v[P_W_pred] = s.w_pred;
    v[P_W_attn] = s.w_attn + (double)pr->space.in->head.bytes;
    v[P_t_dense] = cost_dense_ns(v[P_F_attn], v[P_F_pred], r.f_cpu), v[P_t_ffn] = cost_ffn_ns(v[P_a], s.f_ffn, r.f_cpu);
    v[P_V_units] = cost_v_io(v[P_a_io], v[P_mu], s.w_ffn), v[P_V_gates] = s.gates_read, v[P_V_io] = v[P_V_units] + s.gates_read;
    v[P_B_io] = r.b_io, v[P_t_io] = cost_io_ns(v[P_V_io], r.b_io);
    v[P_t_compute] = cost_compute_ns(v[P_t_dense], v[P_t_ffn], v[P_t_io]), v[P_t_decode] = cost_decode_ns(v[P_t_compute]);
    v[P_s] = cost_speed(v[P_t_decode]), v[P_s_min] = l->min_tokens_per_s;
    v[P_m] = (double)l->account_bytes, v[P_M_max] = (double)l->memory_bytes;
    v[P_B_mem] = r.b_mem, v[P_t_mem] = cost_mem_ns(v[P_W_attn], s.w_pred, v[P_a_io], s.w_ffn, r.b_mem);
    put_all(&terms_paper, v, x->paper, &x->n_paper);
    return 0;
}

/* --- ours --- */

/* Rows of layer l's neurons, summed over layers: of layers that run exactly or densely, or with predictors. height: of each FFN, what the
 * accelerator has. */
static void count_rows(const struct problem *pr, const struct cost_choice *c, const struct cost_rates *r, int l, uint32_t height, double *v)
{
    const struct predicted *f = c->predicted;
    const struct inputs *in = pr->space.in;
    double whole = inputs_gates(in, 0, l), gates = height ? whole - whole / inputs_n_ff(in, l) * height : whole;
    if (cost_mode_at(c, l) == PLAN_PREDICTED) {
        double all = predicted_neurons(f, 0, l, height), beyond = predicted_neurons(f, 0, l, height > f->always[l] ? height : f->always[l]);
        double active = predicted_active(f, in, 0, l, height);
        v[V_always] = all - beyond, v[V_predicted] = beyond, v[V_fired] = active;
        v[V_opened] = active * in->loads[l], v[V_predicted_gates] = gates;
        return;
    }
    double active = c->mode == PLAN_DENSE ? gates : inputs_active(in, 0, l, height);
    double open = c->mode == PLAN_DENSE ? gates : active * in->loads[l];
    v[V_gates] = gates, v[V_active] = active, v[V_open] = open;
    v[V_t_gates] = r->ffn_factor * cost_rows_ns(gates, r->gate_ns), v[V_t_up] = r->ffn_factor * cost_rows_ns(open, r->up_ns);
    v[V_t_down] = r->ffn_factor * cost_rows_ns(active, r->down_ns);
}

/* Layer by layer: sums of what adds up, of the rest the first. */
static void add_values(double *to, const double *v)
{
    for (int i = 0; i < TERM_VALUES; i++)
        if (isnan(to[i]))
            to[i] = v[i];
        else if (terms_measured.value[i].source == SUMMED && !isnan(v[i]))
            to[i] += v[i];
}

static void add_layer(const struct problem *pr, const struct cost_choice *c, const struct cost_rates *rates, const struct plan_figures *f,
                      const struct cost_residency *residencies, int l, double *v)
{
    const struct plan_layer_figures *k = &f->layers[l];
    const struct layout_shape *shape = layout_of(&pr->space.shapes, l);
    const struct cost_rates *r = &rates[pr->space.shapes.l.kind[l]];
    struct cost_flow w = cost_flow_of(pr->space.in, shape, c, 0, l, miss_tables_at(&pr->tables, c->variant, 0, l), &residencies[l]);
    struct equations_layer x;
    equations_layer(&pr->space, c, r, 0, l, &residencies[l], &w, &x);
    double *own = x.v;
    own[V_t_attention] = k->attention_ns, own[V_t_predict] = k->predict_ns, own[V_t_compute] = k->ffn_compute_ns; /* as the plan says */
    own[V_t_memory] = k->ffn_memory_ns, own[V_t_both] = k->ffn_engine_ns, own[V_t_io] = k->io_ns, own[V_t_exposed] = k->exposed_ns;
    own[V_t_layers] = k->total_ns, own[V_t_cpu] = fmax(k->ffn_compute_ns, k->ffn_memory_ns);
    own[V_t_ffn] = cost_longest_ns(k->ffn_compute_ns, k->ffn_memory_ns, k->ffn_engine_ns);
    if (x.layer.lookahead)
        own[V_t_layer_ahead] = cost_lookahead_ns(k), own[V_t_layer] = cost_layer_ns(k),
        own[V_t_saved] = own[V_t_layer] - own[V_t_layer_ahead];
    if (residencies[l].streamed)
        own[V_layers_fed] = 1;
    count_rows(pr, c, r, l, cost_height(shape, c, &residencies[l]), own);
    add_values(v, own);
}

/* What is no sum, or is only told where there is such a thing. */
static void finish(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *c, const struct cost_rates *r, double *v)
{
    const struct layout_shapes *s = &pr->space.shapes;
    const struct plan_prompt *q = &l->prompt;
    const struct plan_guesses *g = &l->guesses;
    const struct predicted *f = c->predicted;
    const int longest = q->n - 1;
    v[V_t_head] = l->batches[0].predicted.head_ns, v[V_t_step] = v[V_t_head] + v[V_t_layers], v[V_s] = cost_speed(v[V_t_step]);
    const struct cost_lookups rows = cost_lookups_of(pr->space.hw, pr->space.in, c, 1);
    if (rows.reads > 0)
        v[V_t_lookup] = rows.ns, v[V_lookup_reads] = rows.reads, v[V_t_row_read] = rows.ns / rows.reads, v[V_V_lookup] = rows.bytes;
    if (s->l.form == LAYOUT_TILES)
        v[V_tau_tiles] = r->down_ns, v[V_t] = s->kind[0].part[0].record_neurons;
    else
        v[V_parts] = schedule_row_parts(r->threads);
    if (!(v[V_io_reads] > 0))
        v[V_t_lost] = v[V_t_slowed] = NAN;
    if (!(v[V_layers_ahead] > 0))
        v[V_t_early] = v[V_t_guess] = NAN;
    if (isnan(v[V_t_engine]))
        v[V_t_both] = NAN;
    if (!(v[V_gates] > 0))
        v[V_t_rows] = NAN;
    if (v[V_predicted_gates] > 0)
        v[V_density] = (v[V_always] + v[V_predicted]) / v[V_predicted_gates], v[V_recall] = f->recall;
    else
        v[V_t_predicted] = NAN;
    if (f)
        v[V_V_pred] = (double)f->predictors.bytes, v[V_rank] = f->predictors.rank, v[V_buffers] = c->buffers;
    else
        v[V_t_predict] = NAN;
    if (!(v[V_layers_fed] > 0))
        v[V_t_feed] = NAN;
    if (q->n) {
        v[V_t_to_first] = plan_prompt_ns(q, q->tokens[longest]), v[V_prompt_speed] = plan_prompt_tokens_per_s(q);
        v[V_prompt_tokens] = q->tokens[longest], v[V_chunk] = l->prefill_chunk, v[V_V_prompt] = q->read_bytes[longest];
        v[V_t_prompt_attention] = q->attention_ns[longest], v[V_t_prompt_wait] = q->wait_ns[longest], v[V_t_prompt_head] = q->head_ns;
        v[V_t_prompt_ffn] = v[V_t_prompt_processor] = q->ffn_ns[longest]; /* without an accelerator */
    }
    if (g->n)
        v[V_t_pass] = g->pass_ns[g->n - 1], v[V_pass_tokens] = g->tokens[g->n - 1], v[V_V_pass] = g->read_bytes[g->n - 1],
        v[V_t_pass_1] = g->pass_ns[0];
}

int explain_measured(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *choice,
                     const struct cost_residency *residencies, struct explain *x, struct err *e)
{
    const struct hw *hw = pr->space.hw;
    struct cost_choice c = *choice;
    struct cost_rates *rates;
    double v[TERM_VALUES];
    c.model = PLAN_COST_MEASURED;
    int ok = cost_rates_new(hw, pr->space.in, &pr->space.shapes, &c, 1, &rates, NULL, e);
    if (ok < 0)
        return ok;
    for (int i = 0; i < TERM_VALUES; i++)
        v[i] = NAN;
    for (int i = 0; i < pr->space.in->n_layers; i++)
        add_layer(pr, &c, rates, &l->batches[0].predicted, residencies, i, v);
    finish(pr, l, &c, &rates[0], v);
    free(rates);
    put_all(&terms_measured, v, x->measured, &x->n_measured);
    if (hw->calibration && x->n_measured < EXPLAIN_LINES) {
        struct explain_line *o = &x->measured[x->n_measured++];
        *o = (struct explain_line){ .id = "(C)", .formula = "factors of a calibration, which the times above have in them: its number",
                                    .unit = "", .value = (double)hw->calibration, .n = HW_TERMS };
        for (int k = 0; k < HW_TERMS; k++) {
            snprintf(o->operand[k].name, sizeof o->operand[k].name, "%s", hw_term_name((enum hw_term)k));
            o->operand[k].value = hw_correction(hw, (enum hw_term)k);
        }
    }
    return 0;
}
