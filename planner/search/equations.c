/* See equations.h. A residency's time is one term: the table's equations applied to its figures. A value is written by its equation where
 * this gives it, else as a number: sums over the device's curves (row products, bursts of reads), and what has a calibration's factor. */
#include "planner/search/equations.h"

#include "planner/search/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- values --- */

static void attention_values(const struct space *s, const struct cost_choice *c, const struct cost_rates *r, int batch, int layer,
                             const struct cost_layer *l, double *v)
{
    const struct model_hparams *h = &s->in->h;
    struct op_need need;
    const double positions = cost_positions(h, layer, c->context);
    const int times = 1 + (layer == 0 ? model_depth(h) - h->n_layers : 0); /* layers before the experts' count with the first */
    ops_mixer(h, layer, &need);
    v[V_batch] = batch, v[V_d] = h->d_model;
    v[V_t_attention] = l->attention_ns, v[V_t_products] = l->products_ns, v[V_t_jobs] = l->jobs_ns, v[V_t_alone] = l->serial_ns;
    v[V_tau_start] = r->start_ns, v[V_jobs] = r->start_ns > 0 ? l->jobs_ns / r->start_ns / hw_correction(s->hw, HW_ATTENTION) : NAN;
    v[V_tau_norm] = r->norm_ns, v[V_norms] = 2 * times;
    v[V_tau_rope] = r->rope_ns, v[V_rotated] = cost_rotated(h, layer) * times;
    v[V_positions] = need.heads ? positions : 0, v[V_heads] = need.heads ? need.heads : NAN;
    v[V_head_dim] = need.heads ? need.head_dim : NAN, v[V_kv_floats] = need.planes ? (double)(need.planes * need.row) : NAN;
    v[V_width] = kv_type_width(c->kv_type);
    v[V_state_floats] = (double)need.state, v[V_state_flops] = (double)need.state_flops;
    v[V_V_kv] = cost_kv_bytes(&need, batch, positions, c->kv_type), v[V_F_kv] = cost_kv_flops(&need, batch, positions);
    v[V_t_attend] = r->f_cpu > 0 ? 1e9 * v[V_F_kv] / r->f_cpu : 0;
    if (r->attend_ns <= 0 || !need.heads)
        return;
    v[V_tau_attend] = r->attend_ns, v[V_pieces] = floor(v[V_V_kv] / SCHEDULE_PIECE_BYTES);
    v[V_t_attend] = cost_attend_ns(positions, need.heads, r->attend_ns, v[V_V_kv], r->threads, batch);
}

void equations_layer(const struct space *s, const struct cost_choice *c, const struct cost_rates *r, int batch_index, int layer,
                     const struct cost_residency *k, const struct cost_flow *flow, struct equations_layer *out)
{
    const struct layout_shape *shape = layout_of(&s->shapes, layer);
    struct equations_layer x;
    double *v = x.v;
    cost_layer_of(s->hw, s->in, shape, c, r, batch_index, layer, &x.layer, NULL);
    uint32_t height = cost_height(shape, c, k);
    cost_layer_beside(s->hw, s->in, shape, c, r, batch_index, layer, height, &x.layer);
    x.f = cost_figures_of(c, r, &x.layer, flow, v);
    attention_values(s, c, r, inputs_batch_sizes[batch_index], layer, &x.layer, v);
    v[V_ffns] = inputs_gates(s->in, batch_index, layer) / inputs_n_ff(s->in, layer);
    v[V_t_predicted] = cost_mode_at(c, layer) == PLAN_PREDICTED ? v[V_t_rows] : 0, v[V_t_rows] -= v[V_t_predicted];
    v[V_height] = height ? height : NAN;
    *out = x;
}

/* --- text --- */

/* Values that a layer's time is made of, in the table. */
static void reach(char *is)
{
    static const char *const layers[] = { "t_layer", "t_layer_ahead", "t_layer_fed", "t_layer_least" };
    const struct terms *t = &terms_measured;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        is[terms_value(t, layers[i])] = 1;
    for (int more = 1; more;) {
        more = 0;
        for (int i = 0; i < t->n_equations; i++) {
            struct formula f;
            if (!is[terms_value(t, t->equation[i].value)] || !formula_read(&f, t->equation[i].formula))
                continue;
            for (int k = 0; formula_input(&f, k); k++) {
                char *in = &is[terms_value(t, formula_input(&f, k))];
                more |= !*in;
                *in = 1;
            }
        }
    }
}

static void plain(void *ctx, const char *name, FILE *out)
{
    (void)ctx;
    fputs(name, out);
}

static void functions(void *ctx, FILE *out)
{
    const struct terms *t = &terms_measured;
    char text[TERM_TEXT];
    struct formula f;
    char is[TERM_VALUES] = { 0 };
    (void)ctx;
    reach(is);
    fprintf(out, "; ---------------------------------------------------------------- the equations of docs/cost-model.md\n"
                 "; ns, bytes, bytes/s.\n\n"
                 "(define-fun largest ((a Real) (b Real)) Real (ite (>= a b) a b))\n"
                 "(define-fun least ((a Real) (b Real)) Real (ite (>= a b) b a))\n");
    for (int i = 0; i < t->n_equations; i++) {
        const struct term_equation *q = &t->equation[i];
        if (!is[terms_value(t, q->value)] || !terms_text(q, &f, text))
            continue;
        fprintf(out, "; (%s) %s\n(define-fun %s.%s (", q->id, text, q->id, q->value);
        for (int k = 0; formula_input(&f, k); k++)
            fprintf(out, "%s(%s Real)", k ? " " : "", formula_input(&f, k));
        fprintf(out, ") Real ");
        formula_smt(&f, &(struct formula_smt){ .name = plain }, out);
        fprintf(out, ")\n");
    }
}

/* Reads the table. */
static int read_all(struct equations *q, struct err *e)
{
    const struct terms *t = &terms_measured;
    q->read = calloc(TERM_VALUES, sizeof *q->read);
    if (!q->read)
        return err_set(e, ERR_NOMEM, "out of memory for the equations");
    for (int i = t->n_equations - 1; i >= 0; i--) {
        struct equations_read *x = &q->read[terms_value(t, t->equation[i].value)];
        const char *in;
        *x = (struct equations_read){ 0 };
        if (!formula_read(&x->f, t->equation[i].formula))
            continue;
        for (; x->n_in < EQUATIONS_INPUTS && (in = formula_input(&x->f, x->n_in)); x->n_in++)
            x->in[x->n_in] = terms_value(t, in);
        x->of = &t->equation[i];
    }
    return 0;
}

struct known {
    const struct equations_read *x;
    const double *v;
};

/* formula_input names each once, in order of the nodes. */
static double value_of(void *ctx, const char *name)
{
    const struct known *k = ctx;
    for (int i = 0; i < k->x->n_in; i++)
        if (!strcmp(terms_measured.value[k->x->in[i]].name, name))
            return k->v[k->x->in[i]];
    return NAN;
}

#define MOST_DEPTH 8 /* of equations within each other */

static void put_value(const struct equations *q, const double *v, int at, int depth, FILE *out);

/* "(M14.t_cache 12.0 ...)" */
static void apply(const struct equations *q, const double *v, int at, int depth, FILE *out)
{
    const struct equations_read *x = &q->read[at];
    fprintf(out, "(%s.%s", x->of->id, x->of->value);
    for (int k = 0; k < x->n_in; k++) {
        fputc(' ', out);
        put_value(q, v, x->in[k], depth + 1, out);
    }
    fputc(')', out);
}

static void put_value(const struct equations *q, const double *v, int at, int depth, FILE *out)
{
    const struct equations_read *x = &q->read[at];
    struct known k = { x, v };
    int known = x->of && depth < MOST_DEPTH;
    for (int i = 0; i < x->n_in; i++)
        known &= !isnan(v[x->in[i]]);
    if (known && fabs(formula_value(&x->f, value_of, &k) - v[at]) <= 1e-9 * fabs(v[at]) + 1e-6)
        apply(q, v, at, depth, out);
    else
        fprintf(out, v[at] < 0 ? "(- %.*f)" : "%.*f", strncmp(terms_measured.value[at].name, "t_", 2) ? 9 : 4, fabs(v[at]));
}

/* Of a batch size of the problem: its index among all, and how many sequences it has. */
static int index_of(const struct equations *q, int batch)
{
    return q->p->configs.first_batch + batch;
}

static int size_of(const struct equations *q, int batch)
{
    return inputs_batch_sizes[index_of(q, batch)];
}

/* Rates of a configuration at a batch size, which questions ask for one after the other. */
static int know(struct equations *q, int config, int batch, struct err *e)
{
    const struct space *s = &q->p->space;
    if (q->config == config && q->batch == batch)
        return 0;
    if (!q->read && read_all(q, e) < 0)
        return ERR_NOMEM;
    free(q->rates);
    q->rates = NULL;
    q->config = -1;
    int r = cost_rates_new(s->hw, s->in, &s->shapes, &q->p->configs.choices[config], size_of(q, batch), &q->rates, NULL, e);
    if (r == 0) {
        q->config = config;
        q->batch = batch;
    }
    return r;
}

static int comment(void *ctx, int config, int batch, FILE *out, struct err *e)
{
    struct equations *q = ctx;
    const struct cost_choice *c = &q->p->configs.choices[config];
    char engine[HW_NAME + 40] = "";
    if (cost_has_engine(c))
        snprintf(engine, sizeof engine, ", %u neurons of each FFN on %s", c->height, c->engine);
    fprintf(out, "\n; Configuration %d, batch %d: %d threads, %s, depth %d, reads by rule %d, inputs %d%s%s.\n", config,
            size_of(q, batch), c->threads, c->backend == HW_URING ? "io_uring" : c->backend == HW_PREAD ? "pread" : "any back end",
            c->depth, c->rule, c->group, engine, c->ahead ? ", experts read ahead" : "");
    return know(q, config, batch, e);
}

static int head(void *ctx, int config, int batch, FILE *out, struct err *e)
{
    struct equations *q = ctx;
    const struct space *s = &q->p->space;
    int r = know(q, config, batch, e);
    if (r == 0)
        fprintf(out, "%.4f", cost_head_ns(s->hw, s->in, &q->p->configs.choices[config], q->rates, size_of(q, batch), NULL));
    return r;
}

static int point(void *ctx, int config, int batch, int layer, const struct solve_point *at, FILE *out, struct err *e)
{
    struct equations *q = ctx;
    const struct space *s = &q->p->space;
    const struct price_id id = price_id_of(at->id);
    struct cost_choice c = q->p->configs.choices[config];
    struct equations_layer x;
    int index = index_of(q, batch), r = know(q, config, batch, e);
    if (r < 0)
        return r;
    c.variant = id.variant;
    c.predicted = s->predicted[id.variant];
    const struct residencies_point *point = &residencies_at(&q->p->residencies, id.variant, index, layer)->point[id.residency];
    struct cost_flow flow = point->flow;
    if (id.streamed)
        flow.predictor_bytes = cost_predictor_bytes(s->in, c.predicted, index, layer);
    equations_layer(s, &c, &q->rates[s->shapes.l.kind[layer]], index, layer, &point->residency, &flow, &x);
    const int by = x.layer.lookahead ? V_t_layer_ahead : V_t_layer;
    if (!x.layer.feeds_ahead || flow.predictor_bytes <= 0) {
        apply(q, x.v, by, 0, out);
        return 0;
    }
    double longer = x.v[V_t_predict];
    x.v[V_t_predict] = x.v[V_t_scores];
    fprintf(out, "(M20.t_layer_least (M20.t_layer_fed ");
    apply(q, x.v, by, 0, out);
    fprintf(out, " %.4f ", x.v[V_t_scores]);
    put_value(q, x.v, V_t_io, 1, out);
    fprintf(out, " %.4f %.4f) ", x.v[V_t_feed], x.v[V_t_exposed]);
    x.v[V_t_predict] = longer;
    apply(q, x.v, by, 0, out);
    fprintf(out, ")");
    return 0;
}

static int curves(void *ctx, int config, struct solve_config *out, struct err *e)
{
    struct equations *q = ctx;
    const struct cost_choice *c = &q->p->configs.choices[config];
    return price_curves(&q->p->space, &q->p->residencies, c, c->depth, out, e);
}

void equations_init(struct equations *q, const struct problem *p)
{
    *q = (struct equations){ .solve = { functions, comment, head, point, curves, q }, .p = p, .config = -1 };
}

void equations_done(struct equations *q)
{
    free(q->rates);
    free(q->read);
    q->rates = NULL;
    q->read = NULL;
}
