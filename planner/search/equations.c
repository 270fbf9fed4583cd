/* See equations.h. A residency's time is one term: the equations' functions applied to its figures. Figures that are sums over the
 * device's curves (row products, bursts of reads) are numbers, ns; those that are a count times a rate are written so. */
#include "planner/search/equations.h"

#include "planner/search/price.h"

#include <stdlib.h>

static const char functions_text[] =
    "; ---------------------------------------------------------------- the equations of docs/cost-model.md\n"
    "; ns, bytes, bytes/s. k_ffn, k_io: factors of a calibration.\n\n"
    "(define-fun largest ((a Real) (b Real)) Real (ite (>= a b) a b))\n"
    "(define-fun least ((a Real) (b Real)) Real (ite (>= a b) b a))\n"
    "; (M1), (M12), (M18): t_compute = rows * tau + ..., and what is added to it\n"
    "(define-fun M1 ((t_rows Real) (t_start Real) (t_turns Real) (t_cpu Real) (t_submission Real) (t_overhead Real) (t_verify Real)) Real\n"
    "    (+ t_rows t_start t_turns t_cpu t_submission t_overhead t_verify))\n"
    "; (M3) t_stream = V / B_io\n"
    "(define-fun M3 ((V Real) (B Real) (k_io Real)) Real (ite (= V 0.0) 0.0 (* k_io (/ (* 1000000000.0 V) B))))\n"
    "; (M14) t_overhead = (lookups * tau_lookup + n * tau_admit) / threads\n"
    "(define-fun M14 ((lookups Real) (tau_lookup Real) (n Real) (tau_admit Real) (threads Real) (k_ffn Real)) Real\n"
    "    (* k_ffn (/ (+ (* lookups tau_lookup) (* n tau_admit)) threads)))\n"
    "; (M19) t_turns = 2 * jobs * tau_turn / threads\n"
    "(define-fun M19 ((jobs Real) (tau_turn Real) (threads Real) (k_ffn Real)) Real (* k_ffn (/ (* 2.0 jobs tau_turn) threads)))\n"
    "; (M22) t_verify = V_read * tau_verify / threads\n"
    "(define-fun M22 ((V_read Real) (tau_verify Real) (threads Real) (k_ffn Real)) Real (* k_ffn (/ (* V_read tau_verify) threads)))\n"
    "; (M9), (M15), (M16): t_attention = products and K, V (M8, M17) + jobs + one thread's work\n"
    "(define-fun M9 ((t_products Real) (t_jobs Real) (t_alone Real)) Real (+ t_products t_jobs t_alone))\n"
    "; (M3)-(M7), (M21), (M29), (M33): t_io = t_stream - t_hidden + t_first + t_reads - t_last + t_turn + t_lanes\n"
    "(define-fun M4 ((t_stream Real) (t_single Real) (t_hidden Real) (t_first Real) (t_reads Real) (t_last Real) (t_turn Real)"
    " (t_lanes Real)) Real\n"
    "    (+ (- (+ t_stream t_single) t_hidden) t_first (- t_reads t_last) t_turn t_lanes))\n"
    "; (M7) t_layer = t_attention + t_predict + max(t_compute, t_memory, t_io) + t_exposed\n"
    "(define-fun M7 ((t_attention Real) (t_predict Real) (t_compute Real) (t_memory Real) (t_io Real) (t_exposed Real)) Real\n"
    "    (+ t_attention t_predict (largest (largest t_compute t_memory) t_io) t_exposed))\n"
    "; (M13) t_layer = t_predict + max(t_attention + max(t_compute, t_memory), t_io) + t_exposed\n"
    "(define-fun M13 ((t_attention Real) (t_predict Real) (t_compute Real) (t_memory Real) (t_io Real) (t_exposed Real)) Real\n"
    "    (+ t_predict (largest (+ t_attention (largest t_compute t_memory)) t_io) t_exposed))\n"
    "; (M20) t_layer = max(t_layer, t_predict + t_io + V_pred / B_io + t_exposed), or, where that is faster, with the longer t_predict\n"
    "(define-fun M20 ((t_layer Real) (t_predict Real) (t_io Real) (t_pred Real) (t_exposed Real) (t_longer Real)) Real\n"
    "    (least (largest t_layer (+ t_predict t_io t_pred t_exposed)) t_longer))\n";

static const char engine_text[] =
    "; (M26) t_both = max(c, t_engine) + sigma * min(c, t_engine - t_launch), c = max(t_compute, t_memory)\n"
    "(define-fun M26 ((c Real) (t_engine Real) (t_work Real) (sigma Real)) Real (+ (largest c t_engine) (* sigma (least c t_work))))\n";

static void functions(void *ctx, FILE *out)
{
    const struct equations *q = ctx;
    int engine = 0;
    for (int i = 0; i < q->p->configs.sp.n_configs; i++)
        engine |= q->p->configs.choices[i].height > 0;
    fputs(functions_text, out);
    if (engine)
        fputs(engine_text, out);
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

static int rates(void *ctx, int config, int batch, FILE *out, struct err *e)
{
    struct equations *q = ctx;
    const struct cost_choice *c = &q->p->configs.choices[config];
    int r = know(q, config, batch, e);
    if (r < 0)
        return r;
    char engine[HW_NAME + 40] = "";
    if (cost_has_engine(c))
        snprintf(engine, sizeof engine, ", %u neurons of each FFN on %s", c->height, c->engine);
    fprintf(out, "\n; Configuration %d, batch %d: %d threads, %s, depth %d, reads by rule %d, inputs %d%s%s.\n", config,
            size_of(q, batch), c->threads, c->backend == HW_URING ? "io_uring" : c->backend == HW_PREAD ? "pread" : "any back end",
            c->depth, c->rule, c->group, engine, c->ahead ? ", experts read ahead" : "");
    for (int k = 0; k < q->p->space.shapes.l.n_kinds; k++) {
        const struct cost_rates *x = &q->rates[k];
        const struct {
            const char *name;
            double value;
        } each[] = { { "threads", x->threads }, { "tau_lookup", x->lookup_ns }, { "tau_admit", x->admit_ns }, { "tau_turn", x->turn_ns },
                     { "tau_verify", x->verify_ns_per_byte }, { "B_stream", x->stream_bw }, { "k_ffn", x->ffn_factor },
                     { "k_io", x->io_factor } };
        for (size_t i = 0; i < sizeof each / sizeof *each; i++)
            fprintf(out, "(define-fun %s_c%d_%d_%d () Real %.9f)\n", each[i].name, config, batch, k, each[i].value);
    }
    return 0;
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

/* A point's figures. */
struct figures {
    struct cost_choice c;
    struct cost_layer layer;
    struct cost_flow flow;
    struct cost_terms t;
    struct plan_layer_figures f;
    const struct cost_rates *rates;
};

static void figures_of(const struct equations *q, int config, int batch, int layer, const struct solve_point *at, struct figures *out)
{
    const struct space *s = &q->p->space;
    const struct price_id id = price_id_of(at->id);
    struct cost_choice c = q->p->configs.choices[config];
    c.variant = id.variant;
    c.predicted = s->predicted[id.variant];
    out->c = c;
    out->rates = &q->rates[s->shapes.l.kind[layer]];
    batch = index_of(q, batch);
    out->flow = residencies_at(&q->p->residencies, id.variant, batch, layer)->point[id.residency].flow;
    if (id.streamed)
        out->flow.predictor_bytes = cost_predictor_bytes(s->in, c.predicted, batch, layer);
    cost_layer_of(s->hw, s->in, layout_of(&s->shapes, layer), &c, out->rates, batch, layer, &out->layer, NULL);
    const struct layout_shape *shape = layout_of(&s->shapes, layer);
    uint32_t height = cost_height(shape, &c, &residencies_at(&q->p->residencies, id.variant, batch, layer)->point[id.residency].residency);
    cost_layer_beside(s->hw, s->in, shape, &c, out->rates, batch, layer, height, &out->layer);
    out->f = cost_figures_of(&c, out->rates, &out->layer, &out->flow, &out->t);
}

/* "(M1 ...)" */
static void compute(const struct figures *x, const char *suffix, FILE *out)
{
    const struct cost_flow *f = &x->flow;
    double misses = cost_misses(&x->c, f);
    double read = f->predictor_bytes + f->stream_bytes + f->single_reads * x->rates->single_bytes + misses * x->rates->unit_bytes;
    fprintf(out, "(M1 %.4f %.4f (M19 %.9f tau_turn%s threads%s k_ffn%s) %.4f %.4f", x->t.rows + x->t.guess, x->t.start,
            x->layer.jobs, suffix, suffix, suffix, x->t.io_cpu, x->t.submission);
    fprintf(out, " (M14 %.9f tau_lookup%s %.9f tau_admit%s threads%s k_ffn%s)", f->lookups, suffix, misses * f->copied, suffix,
            suffix, suffix);
    fprintf(out, " (M22 %.6f tau_verify%s threads%s k_ffn%s))", read, suffix, suffix, suffix);
}

static void io(const struct figures *x, const char *suffix, FILE *out)
{
    fprintf(out, "(M4 (M3 %.6f B_stream%s k_io%s) %.4f %.4f %.4f %.4f %.4f %.4f %.4f)", x->flow.stream_bytes, suffix, suffix, x->t.single,
            x->t.hidden, x->t.first, x->t.cold + x->t.early, x->t.last, x->t.turn, x->t.lane);
}

/* "(M7 ...)" or "(M13 ...)". */
static void layer_time(const struct figures *x, double predict_ns, const char *suffix, FILE *out)
{
    fprintf(out, "(%s (M9 %.4f %.4f %.4f) %.4f ", x->layer.lookahead ? "M13" : "M7", x->layer.products_ns, x->layer.jobs_ns,
            x->layer.serial_ns, predict_ns);
    compute(x, suffix, out);
    if (x->f.ffn_engine_ns > 0) {
        double k = x->rates->ffn_factor, most = x->f.ffn_compute_ns > x->f.ffn_memory_ns ? x->f.ffn_compute_ns : x->f.ffn_memory_ns;
        double work = x->layer.engine_ns > x->layer.launch_ns ? x->layer.engine_ns - x->layer.launch_ns : 0;
        fprintf(out, " (M26 %.4f %.4f %.4f %.9f) ", most, k * x->layer.engine_ns, k * work, x->rates->sigma);
    } else {
        fprintf(out, " %.4f ", x->f.ffn_memory_ns);
    }
    io(x, suffix, out);
    fprintf(out, " %.4f)", x->f.exposed_ns);
}

static int point(void *ctx, int config, int batch, int layer, const struct solve_point *at, FILE *out, struct err *e)
{
    struct equations *q = ctx;
    struct figures x;
    char suffix[64];
    int r = know(q, config, batch, e);
    if (r < 0)
        return r;
    figures_of(q, config, batch, layer, at, &x);
    snprintf(suffix, sizeof suffix, "_c%d_%d_%d", config, batch, q->p->space.shapes.l.kind[layer]);
    if (!x.layer.feeds_ahead || x.flow.predictor_bytes <= 0) {
        layer_time(&x, x.t.scores + x.t.feed, suffix, out);
        return 0;
    }
    fprintf(out, "(M20 ");
    layer_time(&x, x.t.scores, suffix, out);
    fprintf(out, " %.4f ", x.t.scores);
    io(&x, suffix, out);
    fprintf(out, " %.4f %.4f ", x.t.predictor, x.f.exposed_ns);
    layer_time(&x, x.t.scores + x.t.feed, suffix, out);
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
    *q = (struct equations){ .solve = { functions, rates, head, point, curves, q }, .p = p, .config = -1 };
}

void equations_done(struct equations *q)
{
    free(q->rates);
    q->rates = NULL;
}
