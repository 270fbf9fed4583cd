/* Work and volumes do not depend on the device, and the cost model tells them as times: at 10^9 FLOP/s and 10^9 bytes/s a ns is
 * a FLOP, or a byte. So they are the same sums, of the same functions, as the times that a plan predicts. */
#include "planner/search/paper_problem.h"

#include "common/kernels/quant.h"
#include "planner/search/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t sixteenths(double v)
{
    return v > 0 ? (int64_t)(v * PAPER_BYTE + 0.5) : 0;
}

/* --- a variant's work and volumes --- */

/* Work of one layer, the least of the group's variants where they differ. */
static void add_layer(const struct space *s, const struct cost_choice *c, const struct cost_rates *unit, int b, int layer,
                      double w[8])
{
    const struct space_group *g = &s->group[c->group];
    const struct inputs *in = s->in;
    double gates = inputs_gates(in, b, layer), pred = INFINITY, active = INFINITY, bytes = INFINITY;
    const struct layout_shape *shape = layout_of(&s->shapes, layer);
    double gate = (double)quant_row_bytes(shape->type[LAYOUT_GATE], (uint64_t)in->h.d_model);
    enum plan_mode mode = PLAN_DENSE;
    double own = INFINITY, ffn_bytes = 0;
    for (int i = g->first; i < g->first + g->n; i++) {
        struct cost_choice x = *c;
        struct cost_layer l;
        x.variant = i;
        x.predicted = s->predicted[i];
        mode = cost_mode_at(&x, layer);
        cost_layer_of(s->hw, in, shape, &x, unit, b, layer, &l, NULL);
        double weights = mode == PLAN_EXACT ? gates * gate : mode == PLAN_PREDICTED ? cost_predictor_bytes(in, x.predicted, b, layer) : 0;
        if (i == g->first)
            w[0] += l.attention_ns;
        ffn_bytes = l.ffn_bytes;
        pred = fmin(pred, l.predict_ns);
        active = fmin(active, l.compute_ns);
        bytes = fmin(bytes, l.density * l.ffn_bytes);
        own = fmin(own, weights);
    }
    w[1] += pred;
    w[2] += 2.0 * in->h.d_model * gates * inputs_batch_sizes[b] * (mode == PLAN_EXACT ? 2 : 3);
    w[3] += active;
    w[4] += inputs_resident_bytes(in, layer);
    w[5] += own;
    w[6] += ffn_bytes;
    w[7] += bytes;
}

static int fill_work(const struct space *s, const struct cost_choice *c, int b, struct paper_work *out, struct err *e)
{
    double w[8] = { 0 };
    struct cost_rates unit;
    int batch = inputs_batch_sizes[b], r = cost_rates_of(s->hw, s->in, &s->shapes.kind[0], c, batch, &unit, NULL, e);
    if (r < 0)
        return r;
    unit.f_cpu = unit.b_io = unit.b_mem = 1e9;
    w[0] = cost_head_ns(s->hw, s->in, c, &unit, batch, NULL);
    w[4] = (double)s->in->head.bytes;
    for (int l = 0; l < s->in->n_layers; l++)
        add_layer(s, c, &unit, b, l, w);
    int64_t *to[8] = { &out->f_attn, &out->f_pred, &out->f_ffn, &out->f_active, &out->w_attn, &out->w_pred, &out->w_ffn, &out->w_active };
    for (int i = 0; i < 8; i++)
        *to[i] = sixteenths(w[i]);
    return 0;
}

static int fill_way(struct paper_problem *o, const struct problem *p, const struct cost_choice *c, int variant, struct err *e)
{
    const struct space *s = &p->space;
    struct paper_variant *w = &o->paper.variant[variant];
    int r = price_volumes(s, &p->residencies, c, &o->volumes[variant], e);
    snprintf(w->name, sizeof w->name, "%s mode", plan_mode_name(c->mode));
    for (int b = 0; b < o->paper.n_batches && r == 0; b++) {
        w->work[b].layer = &o->volumes[variant].curves[(size_t)b * (size_t)o->paper.n_layers];
        r = fill_work(s, c, b, &w->work[b], e);
    }
    return r;
}

/* --- the device's tables --- */

static int same_queue(const struct cost_choice *a, const struct cost_choice *b)
{
    return a->backend == b->backend && a->depth == b->depth;
}

static const char *backend_name(enum hw_backend b)
{
    return b == HW_URING ? "io_uring" : b == HW_PREAD ? "pread" : "any backend";
}

static int add_queue(struct paper *o, const struct problem *p, const struct cost_choice *c, struct err *e)
{
    struct paper_queue *to = &o->queue[o->n_queues++];
    struct cost_rates r;
    int bad = cost_rates_of(p->space.hw, p->space.in, &p->space.shapes.kind[0], c, 1, &r, NULL, e);
    if (bad < 0)
        return bad;
    *to = (struct paper_queue){ .depth = c->depth, .bytes_per_s = r.b_io > 0 ? (int64_t)(r.b_io + 0.5) : 0 };
    snprintf(to->backend, sizeof to->backend, "%s", backend_name(c->backend));
    o->mem_bytes_per_s = r.b_mem > 0 ? (int64_t)(r.b_mem + 0.5) : 0;
    return 0;
}

/* Tables of the cores and queues among the configurations; core[], queue[]: of each configuration. */
static int fill_tables(struct paper *o, const struct problem *p, int *core, int *queue, struct err *e)
{
    const struct configs *c = &p->configs;
    for (int i = 0; i < c->sp.n_configs; i++) {
        const struct cost_choice *x = &c->choices[i];
        int j = 0, k = 0;
        while (k < o->n_cores && memcmp(o->cores[k].n, x->n, sizeof x->n))
            k++;
        if (k == o->n_cores) {
            o->cores[k].threads = x->threads;
            memcpy(o->cores[o->n_cores++].n, x->n, sizeof x->n);
        }
        while (j < i && !same_queue(&c->choices[j], x))
            j++;
        core[i] = k;
        queue[i] = j < i ? queue[j] : o->n_queues;
        int bad = j < i ? 0 : add_queue(o, p, x, e);
        if (bad < 0)
            return bad;
        struct paper_queue *at = &o->queue[queue[i]];
        at->most_threads = x->threads > at->most_threads ? x->threads : at->most_threads;
    }
    return 0;
}

/* f_k: what one core of a class alone comes to. */
static int fill_classes(struct paper *o, const struct problem *p, const struct cost_choice *any, struct err *e)
{
    const struct solve_problem *sp = &p->configs.sp;
    const struct hw *hw = p->space.hw;
    o->n_classes = sp->n_classes;
    for (int k = 0; k < o->n_classes; k++) {
        struct cost_choice one = *any;
        struct cost_rates r;
        memset(one.n, 0, sizeof one.n);
        one.n[k] = one.threads = 1;
        int bad = cost_rates_of(hw, p->space.in, &p->space.shapes.kind[0], &one, 1, &r, NULL, e);
        if (bad < 0)
            return bad;
        snprintf(o->class[k].name, sizeof o->class[k].name, "%.31s", hw->n_classes ? hw->classes[k].name : "cpu");
        o->class[k].most = sp->cores[k];
        o->class[k].flops_per_s = (int64_t)(r.f_cpu + 0.5);
    }
    return 0;
}

/* The account as a sum of a variant's, a thread's and a queue's parts: of the least that any configuration leaves for each, so that
 * no sum is more than the account. */
static void split_account(struct paper *o, const struct problem *p, const int *core, const int *queue)
{
    const struct configs *c = &p->configs;
    for (int w = 0; w < o->n_variants; w++) {
        int64_t per = 0;
        for (int i = 0, first = -1; i < c->sp.n_configs; i++) {
            if (c->choices[i].group != w || queue[i] != queue[0])
                continue;
            int more = first < 0 ? 0 : c->choices[i].threads - c->choices[first].threads;
            if (more > 0 && per == 0)
                per = (c->sp.configs[i].fixed_bytes - c->sp.configs[first].fixed_bytes) / more;
            first = first < 0 ? i : first;
        }
        o->variant[w].thread_bytes = per > 0 ? per : 0;
    }
    for (int q = 0; q < o->n_queues; q++)
        o->queue[q].bytes = INT64_MAX;
    for (int i = 0; i < c->sp.n_configs; i++) {
        int64_t rest = c->sp.configs[i].fixed_bytes - o->cores[core[i]].threads * o->variant[0].thread_bytes;
        if (c->choices[i].group == 0 && rest < o->queue[queue[i]].bytes)
            o->queue[queue[i]].bytes = rest;
    }
    int64_t least = INT64_MAX;
    for (int q = 0; q < o->n_queues; q++)
        least = o->queue[q].bytes < least ? o->queue[q].bytes : least;
    for (int q = 0; q < o->n_queues; q++)
        o->queue[q].bytes = o->queue[q].bytes < INT64_MAX ? o->queue[q].bytes - least : 0;
    for (int w = 0; w < o->n_variants; w++)
        o->variant[w].bytes = INT64_MAX;
    for (int i = 0; i < c->sp.n_configs; i++) {
        struct paper_variant *w = &o->variant[c->choices[i].group];
        int64_t rest = c->sp.configs[i].fixed_bytes - o->cores[core[i]].threads * w->thread_bytes - o->queue[queue[i]].bytes;
        w->bytes = rest < w->bytes ? rest : w->bytes;
    }
}

int paper_problem_init(struct paper_problem *out, const struct problem *p, const struct limits *lim, struct err *e)
{
    const struct solve_problem *sp = &p->configs.sp;
    size_t n = (size_t)sp->n_configs, variants = (size_t)p->space.n_groups;
    int *core = malloc((n + 1) * sizeof *core), *queue = malloc((n + 1) * sizeof *queue);
    struct paper_problem o = { .volumes = calloc(variants, sizeof *o.volumes) };
    struct paper *a = &o.paper;
    *a = (struct paper){ .n_variants = p->space.n_groups, .n_batches = sp->n_batches, .n_layers = sp->n_layers, .memory = sp->memory,
                         .min_tokens_per_s = lim->min_tokens_per_s, .cores = calloc(n + 1, sizeof *a->cores),
                         .queue = calloc(n + 1, sizeof *a->queue), .variant = calloc(variants, sizeof *a->variant) };
    int r = core && queue && o.volumes && a->cores && a->queue && a->variant ? 0 :
            err_set(e, ERR_NOMEM, "out of memory for the paper's problem");
    for (int b = 0; b < a->n_batches; b++) {
        a->batch[b] = inputs_batch_sizes[b];
        a->weight[b] = sp->weight[b];
    }
    if (r == 0 && (r = fill_tables(a, p, core, queue, e)) == 0 && (r = fill_classes(a, p, &p->configs.choices[0], e)) == 0)
        split_account(a, p, core, queue);
    for (int w = 0; w < a->n_variants && r == 0; w++) {
        struct cost_choice c = account_choice(&p->space, w, lim);
        const struct cost_choice *any = &p->configs.choices[0];
        memcpy(c.n, any->n, sizeof c.n);
        c.n_classes = any->n_classes;
        c.threads = any->threads;
        c.backend = any->backend;
        c.depth = any->depth;
        c.lanes = any->lanes;
        r = fill_way(&o, p, &c, w, e);
    }
    free(core);
    free(queue);
    if (r < 0)
        paper_problem_done(&o);
    *out = o;
    return r;
}

void paper_problem_done(struct paper_problem *p)
{
    const struct solve_problem shape = { .n_layers = p->paper.n_layers, .n_batches = p->paper.n_batches };
    for (int i = 0; i < p->paper.n_variants && p->volumes; i++)
        solve_config_done(&shape, &p->volumes[i]);
    free(p->volumes);
    paper_done(&p->paper);
    *p = (struct paper_problem){ 0 };
}

int paper_problem_config(const struct paper_problem *pp, const struct problem *p, const struct paper_choice *c)
{
    const struct paper_queue *q = &pp->paper.queue[c->queue];
    for (int i = 0; i < p->configs.sp.n_configs; i++) {
        const struct cost_choice *x = &p->configs.choices[i];
        if (x->group == c->variant && x->depth == q->depth && !strcmp(backend_name(x->backend), q->backend) &&
            !memcmp(x->n, pp->paper.cores[c->cores].n, sizeof x->n))
            return i;
    }
    return -1;
}
