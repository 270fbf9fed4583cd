/* A prompt's passes by the curves of decode steps, at as many tokens as a pass has. What differs: attention's positions, which neurons and
 * experts are needed at all, and reads that are used once, through the read buffers. */
#include "planner/cost/cost_prompt.h"

#include "planner/cost/cost_rest.h"

#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/plan/budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int cost_prompt_known(const struct hw *hw)
{
    for (int i = 0; i < hw->n_compute; i++)
        if (!strncmp(hw->compute[i].kernel, "rows/", 5) && hw->compute[i].batch >= COST_PROMPT_BATCH)
            return 1;
    return 0;
}

int cost_prompt_engine_known(const struct hw *hw, const char *engine, const struct layout_shapes *s, int d_model)
{
    int known = engine != NULL;
    for (int k = 0; k < s->l.n_kinds && known; k++)
        known = cost_engine_measured(hw, engine, &s->kind[k], d_model, COST_PROMPT_BATCH);
    return known;
}

double cost_any(double p, double n)
{
    return p >= 1 ? 1 : p <= 0 ? 0 : -expm1(n * log1p(-p));
}

double cost_prompt_wait_ns(double hot_ns, double cold_ns, double ahead_ns, double bytes, double bw, double buffer_bytes, int depth,
                           int threads, double down_share)
{
    if (bytes <= 0 || bw <= 0)
        return 0;
    double read_ns = 1e9 * bytes / bw, first_ns = fmin(read_ns, 1e9 * depth * buffer_bytes / bw);
    double before_ns = fmin(first_ns, ahead_ns + hot_ns), left_ns = read_ns - before_ns; /* what is read beside cold_ns */
    return cost_wait_ns(left_ns, cost_drain_ns(cold_ns, bytes / buffer_bytes, threads, depth, down_share), cold_ns);
}

#define RUN 32 /* neurons, a part of every cluster */

/* One pass. */
struct pass {
    const struct hw *hw;
    const struct inputs *in;
    const struct cost_choice *c; /* its context is twice the mean position, its height the pass's */
    double n;                    /* tokens */
    int rest;                    /* 1: neurons that are not resident are the accelerator's, too */
};

/* What a pass needs of a layer's FFN, but for the accelerator's neurons. */
struct need {
    uint32_t height, end;       /* of each FFN, these; and those from `end` on */
    double blocks, tokens;      /* that are reached, and tokens of each */
    double gates, neurons;      /* rows: of gates; of Up, and those of Down that are touched */
    double added;               /* rows of Down, each as often as it is added for some of the tokens, in parts of all of them */
    double beyond;              /* of the neurons, beyond the prefix of the last part */
};

static struct need need_of(const struct pass *p, int layer, uint32_t hot, uint32_t height, uint32_t end_of)
{
    const struct inputs *in = p->in;
    int n_ff = (int)end_of, sparse = p->c->mode != PLAN_DENSE;
    struct need o = { .height = height, .end = end_of };
    double routed = 0;
    for (int k = 0; k < in->n_blocks; k++) {
        const struct inputs_curve *v = inputs_curve_at(in, 0, layer, k);
        double reached = cost_any(v->routed, p->n), each = reached > 0 ? v->routed * p->n / reached : 0;
        double together = fmin(KERNELS_AXPY_TOKENS, each);
        routed += v->routed * p->n;
        o.blocks += reached;
        for (int i = (int)height, end; sparse && i < n_ff; i = end) { /* neighbours fire about as often */
            end = n_ff - i < RUN ? n_ff : i + RUN;
            double sum = v->cum[end] - v->cum[i], fires = (end - i) * cost_any(sum / (end - i) * in->loads[layer], p->n);
            o.neurons += fires;
            o.added += reached * (end - i) * cost_any(sum / (end - i) / fmax(v->routed, 1e-9), together);
            o.beyond += (uint32_t)i >= hot ? fires : 0;
        }
    }
    o.tokens = in->n_blocks == 1 ? p->n : fmax(1, routed / fmax(o.blocks, 1e-9));
    o.gates = o.blocks * (n_ff - (double)height);
    if (!sparse) {
        o.neurons = o.gates;
        o.added = o.gates;
        o.beyond = o.blocks * fmax(0, n_ff - (double)hot);
    }
    return o;
}

/* What a pass reads of a layer: what is beyond the prefixes, but for what the cache's slots hold. */
struct brings {
    double bytes, lookups, units; /* of the last part */
};

static struct brings brings_of(const struct layout_shape *s, const struct need *w, const struct cost_residency *k)
{
    int last = s->n_parts - 1;
    struct brings o = { 0 };
    for (int i = 0; i <= last; i++) {
        const struct layout_part *lp = &s->part[i];
        double units = w->blocks * ceil((s->n_ff - (double)k->hot[i]) / lp->neurons_per_unit);
        if (i == last && last > 0)
            units = fmin(units, w->beyond);
        if (i == last) {
            o.lookups = units;
            units = o.units = fmax(0, units - (double)k->slots);
        }
        o.bytes += units * (double)lp->stride_bytes;
    }
    return o;
}

/* Of the neurons that a pass computes. */
static double ffn_bytes(const struct inputs *in, const struct layout_shape *s, const struct need *w)
{
    double row[LAYOUT_ROLES];
    for (int i = 0; i < LAYOUT_ROLES; i++)
        row[i] = layout_role_bytes(&s->part[0], i, in->h.d_model);
    return w->gates * row[LAYOUT_GATE] + w->neurons * (row[LAYOUT_UP] + row[LAYOUT_DOWN]);
}

/* (M26), and what is left of a wait: the accelerator goes on meanwhile. */
static void add_both(int n_ff, const struct cost_rates *r, const struct need *w, double groups, double own_ns, double wait_ns,
                     struct cost_prompt *o)
{
    double launch = groups * r->launch_ns, engine = 0, both = own_ns, longest = own_ns;
    if (w->height) {
        engine = launch + w->blocks * fmax(0, cost_engine_ffn_ns(r, n_ff, w->height) - r->launch_ns);
        both = cost_both_ns(own_ns, 0, r->threads, engine, launch, r->sigma);
        longest = fmax(own_ns, engine);
    }
    o->ffn_ns += both;
    o->processor_ns += own_ns;
    o->beyond_ns += longest - own_ns;
    o->shared_ns += both - longest;
    o->engine_ns += engine;
    o->wait_ns += fmax(0, wait_ns - (longest - own_ns));
}

static void add_ffn(const struct pass *p, const struct layout_shape *s, const struct cost_rates *r, const struct need *w,
                    const struct cost_residency *k, double attention_ns, struct cost_prompt *o)
{
    const struct inputs *in = p->in;
    struct brings b = brings_of(s, w, k);
    double all = ffn_bytes(in, s, w), bytes = b.bytes, down_ns = cost_rows_ns(w->added, r->down_ns);
    double rows_ns = cost_rows_ns(w->gates, r->gate_ns) + cost_rows_ns(w->neurons, r->up_ns) + down_ns;
    double compute_ns = fmax(rows_ns, cost_memory_ns(all, r->seq_bw, 0, 0)), cold = all > 0 ? compute_ns * fmin(1, bytes / all) : 0;
    int together = in->n_used < SCHEDULE_MAX_BLOCKS ? in->n_used : SCHEDULE_MAX_BLOCKS;
    double groups = in->n_blocks == 1 ? 1 : fmax(1, w->blocks / together);
    double ahead_ns = in->n_blocks == 1 || in->h.early_router ? attention_ns / groups : 0;
    ahead_ns += in->n_blocks > 1 ? compute_ns / groups : 0; /* the group before, or attention where all experts are needed */
    double sift_ns = p->c->mode != PLAN_DENSE ? cost_sift_ns(w->neurons, w->tokens, r->act_ns, r->sift_ns, r->threads) : 0;
    double own_ns = compute_ns + sift_ns + cost_start_ns(groups, r->start_ns) + cost_verify_ns(bytes, r->verify_ns_per_byte, r->threads) +
                    cost_lost_ns(bytes / r->stream_block, r->stream_beside.lost_ns) +
                    cost_cache_overhead_ns(b.lookups, r->lookup_ns, k->slots && !p->in->h.n_experts ? b.units : 0, r->admit_ns, r->threads);
    double wait_ns = groups * cost_prompt_wait_ns((compute_ns - cold) / groups, cold / groups, ahead_ns, bytes / groups, r->stream_bw,
                                                  r->stream_block, p->c->depth, r->threads, rows_ns > 0 ? down_ns / rows_ns : 0);
    add_both(s->n_ff, r, w, groups, own_ns, wait_ns, o);
    o->read_bytes += bytes;
}

/* (M36): nothing of what is not resident is the processor's. */
static void add_whole(const struct pass *p, const struct layout_shape *s, const struct cost_rates *r, const struct need *w,
                      const struct cost_residency *k, double attention_ns, struct cost_prompt *o)
{
    const struct cost_rest x = cost_rest_of(s, k->hot, p->c->area_bytes, r, cost_rest_copy_ns(p->hw, p->c));
    double rows_ns = cost_rows_ns(w->gates, r->gate_ns) + cost_rows_ns(w->neurons, r->up_ns) + cost_rows_ns(w->added, r->down_ns);
    double compute_ns = fmax(rows_ns, cost_memory_ns(ffn_bytes(p->in, s, w), r->seq_bw, 0, 0));
    double sift_ns = p->c->mode != PLAN_DENSE ? cost_sift_ns(w->neurons, w->tokens, r->act_ns, r->sift_ns, r->threads) : 0;
    double verify_ns = cost_verify_ns(x.bytes, r->verify_ns_per_byte, r->threads) + cost_start_ns(x.pieces, r->start_ns) +
                       cost_lost_ns(x.bytes / REST_READ_BYTES, r->stream_beside.lost_ns);
    double before_ns = o->ffn_ns, rest_ns = cost_rest_ns(&x, verify_ns, r->sigma);
    add_both(s->n_ff, r, w, 1, compute_ns + sift_ns + cost_start_ns(1, r->start_ns), 0, o);
    before_ns = o->ffn_ns - before_ns;
    o->ffn_ns += rest_ns;
    o->rest_ns += rest_ns;
    o->engine_ns += x.engine_ns;
    o->wait_ns += cost_rest_wait_ns(&x, cost_rest_bytes_per_s(p->hw, s, p->c), (double)p->c->area_bytes, attention_ns + before_ns, rest_ns);
    o->read_bytes += x.bytes;
}

static double attention_ns(const struct pass *p, const struct cost_rates *r, int layer)
{
    const struct model_hparams *h = &p->in->h;
    struct cost_layer l = { 0 };
    struct cost_rates many = *r;
    many.attend_ns = p->n >= NN_ATTN_TOKENS && r->attend_many_ns > 0 ? r->attend_many_ns : r->attend_ns;
    int layers = 1 + (layer == 0 ? model_depth(h) - h->n_layers : 0); /* those before the experts' are counted with the first */
    cost_resident_of(p->hw, p->in, p->c, &many, (int)p->n, layer, &l, NULL);
    return l.products_ns + l.jobs_ns + layers * (cost_serial_ns((int)p->n, 2, r->norm_ns, 0, 0) +
                                                 cost_serial_ns((int)p->n, 0, 0, cost_rotated(h, layer), r->rope_ns) / r->threads);
}

/* Layers mostly differ in nothing that attention's time depends on. Where padding alone differs the time is computed once more. */
static int same_attention(const struct inputs *in, int a, int b)
{
    return a > 0 && model_is_recurrent(&in->h, a) == model_is_recurrent(&in->h, b) &&
           model_has_window(&in->h, a) == model_has_window(&in->h, b) &&
           !memcmp(&in->layers[a], &in->layers[b], sizeof in->layers[a]); /* NOLINT(bugprone-suspicious-memory-comparison) */
}

/* Device curves of passes, FFNs with so many tokens. */
static int pass_rates(const struct pass *p, const struct layout_shapes *s, double tokens, struct cost_rates **out, struct err *e)
{
    struct cost_choice c = *p->c;
    c.height = 0; /* the accelerator's are those of as many tokens, not of a batch size */
    int r = cost_rates_new(p->hw, p->in, s, &c, (int)lround(tokens), out, NULL, e);
    for (int k = 0; k < s->l.n_kinds && r == 0 && (p->c->height || p->rest); k++)
        r = cost_engine_rates_of(p->hw, p->in, &s->kind[k], p->c, tokens, &(*out)[k], NULL, e);
    return r;
}

static void add_times(const struct cost_prompt *one, double times, struct cost_prompt *o)
{
    o->attention_ns += times * one->attention_ns;
    o->ffn_ns += times * one->ffn_ns;
    o->wait_ns += times * one->wait_ns;
    o->read_bytes += times * one->read_bytes;
    o->processor_ns += times * one->processor_ns;
    o->rest_ns += times * one->rest_ns;
    o->beyond_ns += times * one->beyond_ns;
    o->shared_ns += times * one->shared_ns;
    o->engine_ns += times * one->engine_ns;
}

/* Passes of n tokens each, `times` of them, their mean position half of `context`. */
static int add_passes(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *choice,
                      const struct cost_residency *residencies, int n, double times, int context, struct plan_share share,
                      struct cost_prompt *o, struct err *e)
{
    struct cost_choice c = *choice;
    struct pass p = { hw, in, &c, n, share.rest && choice->area_bytes && choice->engine };
    struct need *need = malloc((size_t)in->n_layers * sizeof *need);
    struct cost_rates *rates = NULL;
    struct cost_prompt one = { 0 };
    double tokens = 0, attention = 0;
    c.context = context;
    c.tokens = COST_PROMPT;
    c.height = share.neurons;
    c.work = share.work;
    if (!need)
        return err_set(e, ERR_NOMEM, "out of memory for predictions");
    for (int l = 0; l < in->n_layers; l++) {
        uint32_t end = p.rest ? rest_first(layout_of(s, l), residencies[l].hot) : (uint32_t)inputs_n_ff(in, l);
        need[l] = need_of(&p, l, residencies[l].hot[s->n_parts - 1], cost_height(layout_of(s, l), &c, &residencies[l]), end);
        tokens += need[l].tokens / in->n_layers;
    }
    int r = pass_rates(&p, s, tokens, &rates, e);
    for (int l = 0; l < in->n_layers && r == 0; l++) {
        const struct cost_rates *rate = &rates[s->l.kind[l]];
        if (l == 0 || !same_attention(in, l - 1, l))
            attention = attention_ns(&p, rate, l);
        one.attention_ns += attention;
        (p.rest ? add_whole : add_ffn)(&p, layout_of(s, l), rate, &need[l], &residencies[l], attention, &one);
    }
    const struct cost_lookups rows = cost_lookups_of(hw, in, &c, n);
    one.wait_ns += rows.ns;
    one.read_bytes += rows.bytes;
    add_times(&one, times, o);
    free(need);
    free(rates);
    return r;
}

int cost_prompt_of(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *choice,
                   const struct cost_residency *residencies, int chunk, int tokens, struct cost_prompt_heights heights,
                   struct cost_prompt *out, struct err *e)
{
    struct cost_prompt o = { 0 };
    struct cost_choice c = *choice;
    int whole = tokens / chunk, rest = tokens % chunk, r = 0;
    c.mode = c.mode == PLAN_PREDICTED ? PLAN_EXACT : c.mode;
    c.predicted = NULL;
    if (whole)
        r = add_passes(hw, in, s, &c, residencies, chunk, whole, whole * chunk, heights.chunk, &o, e);
    if (r == 0 && rest)
        r = add_passes(hw, in, s, &c, residencies, rest, 1, 2 * whole * chunk + rest, heights.rest, &o, e);
    if (r == 0)
        *out = o;
    return r;
}
