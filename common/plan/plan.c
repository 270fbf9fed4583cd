/* Plans in memory: names, allocation, and the rules that a plan obeys by itself. Text is the business of
 * plan_fields_read.c (strict, through jansson) and plan_fields_write.c (canonical).
 *
 * Figures per layer are columns in the text ("io_ns": [..]), not objects per layer: a third of the size,
 * and of the memory that a runtime with a small budget needs while it parses. plan_columns ties each
 * key to its field for reader, writer and reports alike. */
#include "common/plan/plan.h"

#include "common/base/names.h"
#include "common/base/print.h"
#include "common/plan/budget.h"
#include "common/plan/rest.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

NAMES(plan_mode_name, enum plan_mode, "exact", "dense", "predicted")
NAMES(plan_work_name, enum plan_work, "ffn", "head", "attention", "all")
NAMES(plan_io_name, enum plan_io, "auto", "io_uring", "pread")
NAMES(plan_cost_name, enum plan_cost, "measured", "paper")
NAMES(plan_stat_name, enum plan_stat, "typical", "sustained")
NAMES(plan_purpose_name, enum plan_purpose, "generate", "chat", "serve", "thermo-serve")

/* Sorted by key, as the text has them. */
const struct plan_column plan_columns[PLAN_COLUMNS] = {
    { "active", offsetof(struct plan_layer_figures, active) },
    { "attention_ns", offsetof(struct plan_layer_figures, attention_ns) },
    { "exposed_ns", offsetof(struct plan_layer_figures, exposed_ns) },
    { "ffn_compute_ns", offsetof(struct plan_layer_figures, ffn_compute_ns) },
    { "ffn_engine_ns", offsetof(struct plan_layer_figures, ffn_engine_ns) },
    { "ffn_memory_ns", offsetof(struct plan_layer_figures, ffn_memory_ns) },
    { "hit_rate", offsetof(struct plan_layer_figures, hit_rate) },
    { "io_ns", offsetof(struct plan_layer_figures, io_ns) },
    { "predict_ns", offsetof(struct plan_layer_figures, predict_ns) },
    { "read_bytes", offsetof(struct plan_layer_figures, read_bytes) },
    { "total_ns", offsetof(struct plan_layer_figures, total_ns) },
};

int plan_has_column(const struct plan_batch *b, int column)
{
    return b->engine_neurons || plan_columns[column].at != offsetof(struct plan_layer_figures, ffn_engine_ns);
}

/* --- memory --- */

static size_t hot_len(const struct plan *p)
{
    return (size_t)p->n_layers * (size_t)p->n_blocks * (size_t)p->n_parts;
}

static size_t cold_len(const struct plan *p)
{
    return (size_t)p->n_layers * (size_t)p->n_parts;
}

void plan_limit_done(struct plan_limit *l)
{
    for (int i = 0; i < l->n_batches; i++) {
        free(l->batches[i].hot);
        free(l->batches[i].cold);
        free(l->batches[i].streamed);
        free(l->batches[i].predicted.layers);
    }
    free(l->batches);
    free(l->predictor);
    free(l->always);
    free(l->recalls);
    l->batches = NULL;
    l->predictor = NULL;
    l->always = NULL;
    l->recalls = NULL;
    l->n_batches = 0;
}

int plan_limit_init(const struct plan *p, struct plan_limit *l, int n_batches, struct err *e)
{
    l->n_batches = 0;
    l->batches = calloc((size_t)n_batches, sizeof *l->batches);
    l->predictor = malloc((size_t)p->n_layers);
    l->always = calloc((size_t)p->n_layers, sizeof *l->always);
    l->recalls = calloc((size_t)p->n_layers, sizeof *l->recalls);
    if (!l->batches || !l->predictor || !l->always || !l->recalls) {
        plan_limit_done(l);
        return err_set(e, ERR_NOMEM, "out of memory for a plan");
    }
    memset(l->predictor, -1, (size_t)p->n_layers);
    l->n_batches = n_batches;
    for (int i = 0; i < n_batches; i++) {
        struct plan_batch *b = &l->batches[i];
        b->hot = calloc(hot_len(p), sizeof *b->hot);
        b->cold = calloc(cold_len(p), sizeof *b->cold);
        b->streamed = calloc((size_t)p->n_layers, 1);
        b->predicted.layers = calloc((size_t)p->n_layers, sizeof *b->predicted.layers);
        if (!b->hot || !b->cold || !b->streamed || !b->predicted.layers) {
            plan_limit_done(l);
            return err_set(e, ERR_NOMEM, "out of memory for a plan");
        }
    }
    return 0;
}

void plan_done(struct plan *p)
{
    for (int i = 0; i < p->n_limits; i++)
        plan_limit_done(&p->limits[i]);
    free(p->limits);
    for (int i = 0; i < p->n_notes; i++)
        free(p->notes[i]);
    free(p->notes);
    *p = (struct plan){ 0 };
}

int plan_note(struct plan *p, struct err *e, const char *fmt, ...)
{
    char text[401];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    for (int i = 0; i < p->n_notes; i++)
        if (!strcmp(p->notes[i], text))
            return 0;
    if (p->n_notes == PLAN_MAX_NOTES)
        return 0; /* the first 64 are enough */
    char **grown = realloc(p->notes, (size_t)(p->n_notes + 1) * sizeof *grown);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory for a plan");
    p->notes = grown;
    p->notes[p->n_notes] = strdup(text);
    if (!p->notes[p->n_notes])
        return err_set(e, ERR_NOMEM, "out of memory for a plan");
    p->n_notes++;
    return 0;
}

const struct plan_limit *plan_pick(const struct plan *p, uint64_t memory)
{
    const struct plan_limit *best = NULL;
    for (int i = 0; i < p->n_limits; i++) /* ascending: the last that fits is the largest, an exact match included */
        if (memory == 0 || p->limits[i].memory_bytes <= memory)
            best = &p->limits[i];
    return best;
}

/* --- rules that need no other file; plan_fields_read.c checks types and lengths, this the meaning --- */

static int rule(const char *name, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int rule(const char *name, struct err *e, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_FORMAT, "plan '%s': %s", name, text);
}

static int check_batch(const struct plan *p, const struct layout_shapes *s, const struct plan_batch *b, int li,
                       int bi, const char *name, struct err *e)
{
    uint32_t cluster = p->layout.cluster_neurons;
    const struct plan_limit *l = &p->limits[li];
    int sum = 0;
    for (int i = 0; i < b->n_classes; i++)
        sum += b->classes[i].n;
    if (sum != b->threads || b->threads > l->threads || b->queue_depth > l->queue_depth)
        return rule(name, e, "limits[%d].batches[%d].configuration has %d threads, whose classes sum to %d, and queue_depth %d; the limit "
                    "has %d and %d", li, bi, b->threads, sum, b->queue_depth, l->threads, l->queue_depth);
    if (b->engine_neurons && !p->engine[0])
        return rule(name, e, "limits[%d].batches[%d].engine_neurons is %u; the plan names no engine", li, bi, b->engine_neurons);
    if (b->engine_work && !p->engine[0])
        return rule(name, e, "limits[%d].batches[%d].engine_work is '%s'; the plan names no engine", li, bi,
                    plan_work_name(b->engine_work));
    if (b->engine_neurons > (uint32_t)p->n_ff || (b->engine_neurons % cluster && b->engine_neurons != (uint32_t)p->n_ff))
        return rule(name, e, "limits[%d].batches[%d].engine_neurons is %u; whole clusters of %u, or all %d neurons, are needed", li, bi,
                    b->engine_neurons, cluster, p->n_ff);
    for (int layer = 0; layer < p->n_layers; layer++)
        if (b->streamed[layer] && (l->mode != PLAN_PREDICTED || l->predictor[layer] < 0 || !l->predictor_buffers))
            return rule(name, e, "limits[%d].batches[%d].streamed has layer %d, which %s", li, bi, layer,
                        l->mode != PLAN_PREDICTED || l->predictor[layer] < 0 ? "has no predictors" :
                                                                               "predictor_buffers leaves no room for");
    for (int layer = 0; layer < p->n_layers; layer++)
        for (int part = 0; part < p->n_parts; part++) {
            for (int k = 0; k < p->n_blocks; k++) {
                uint32_t hot = plan_hot(p, b, layer, k, part), n_ff = (uint32_t)layout_of(s, layer)->n_ff;
                if (hot > n_ff || (hot % cluster && hot != n_ff))
                    return rule(name, e,
                                "limits[%d].batches[%d].hot[%d][%d][%d] is %u; whole clusters of %u, or all %u "
                                "neurons, are needed", li, bi, layer, k, part, hot, cluster, n_ff);
            }
            uint64_t units = (uint64_t)layout_of(s, layer)->part[part].n_units * (uint64_t)p->n_blocks;
            if (plan_cold(p, b, layer, part) > units)
                return rule(name, e, "limits[%d].batches[%d].cold[%d][%d] is %u slots; the layer has %llu units", li,
                            bi, layer, part, plan_cold(p, b, layer, part), (unsigned long long)units);
        }
    return 0;
}

/* Joins ascend, are whole blocks of more than one unit, and none claims to take longer than reading its units one by one. */
static int check_coalesce(const struct plan *p, const struct layout_shapes *s, int li, const char *name, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    const struct layout_part *part = &layout_largest(s)->part[p->n_parts - 1];
    for (int i = 0; i < l->n_coalesce; i++) {
        const struct reads_coalesce *j = &l->coalesce[i];
        if (j->bytes % p->layout.block_bytes || j->bytes < part->read_bytes + part->stride_bytes || j->bytes > READS_MAX_BYTES)
            return rule(name, e, "limits[%d].io.joins[%d].bytes is %u; whole blocks of %u are needed, for two units at least "
                        "(%llu), %u at most", li, i, j->bytes, p->layout.block_bytes,
                        (unsigned long long)(part->read_bytes + part->stride_bytes), READS_MAX_BYTES);
        if (!(j->weight > 1 && j->weight <= READS_MAX_UNITS))
            return rule(name, e, "limits[%d].io.joins[%d].weight is %g; more than 1 and at most %d are possible", li, i,
                        j->weight, READS_MAX_UNITS);
        if (i && (j->bytes <= j[-1].bytes || j->weight < j[-1].weight))
            return rule(name, e, "limits[%d].io.joins[%d] is not above the one before it", li, i);
    }
    return 0;
}

/* Heights of prompts are stated for passes; a pass that a batch size holds has that one's. */
static int check_heights(const struct plan *p, int li, const char *name, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    const struct plan_prompt *q = &l->prompt;
    uint32_t cluster = p->layout.cluster_neurons;
    for (int i = 0; i < q->n && !q->with_engine; i++)
        if (q->engine_work[i])
            return rule(name, e, "limits[%d].prompt has engine_work without engine_neurons", li);
    if (q->with_engine && !p->engine[0])
        return rule(name, e, "limits[%d].prompt has engine_neurons; the plan names no engine", li);
    for (int i = 0; i < q->n && q->with_engine; i++) {
        uint32_t h = q->engine_neurons[i];
        int pass = q->tokens[i] < l->prefill_chunk ? q->tokens[i] : l->prefill_chunk;
        if (h > (uint32_t)p->n_ff || (h % cluster && h != (uint32_t)p->n_ff))
            return rule(name, e, "limits[%d].prompt.engine_neurons[%d] is %u; whole clusters of %u, or all %d neurons, are needed", li, i,
                        h, cluster, p->n_ff);
        struct plan_share share = plan_pass_share(l, pass);
        if (h != share.neurons)
            return rule(name, e, "limits[%d].prompt.engine_neurons[%d] is %u; passes of %d tokens have %u, by batches, prompt.tokens and "
                        "prefill_chunk", li, i, h, pass, share.neurons);
        if (q->engine_work[i] != share.work)
            return rule(name, e, "limits[%d].prompt.engine_work[%d] is '%s'; passes of %d tokens have '%s', by batches, prompt.tokens and "
                        "prefill_chunk", li, i, plan_work_name(q->engine_work[i]), pass, plan_work_name(share.work));
    }
    return 0;
}

/* The area holds a cluster in each of its slots, and a length says from where on it is used. */
static int check_rest(const struct plan *p, const struct layout_shapes *shapes, int li, const char *name, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    const struct plan_prompt *q = &l->prompt;
    uint64_t least = rest_least_area(shapes);
    int i = 0;
    if (!q->rest_from)
        return 0;
    if (!q->with_engine)
        return rule(name, e, "limits[%d].prompt has engine_rest without engine_neurons", li);
    if (p->n_blocks > 1)
        return rule(name, e, "limits[%d].prompt.engine_rest: the model has %d experts a layer; one FFN is needed", li, p->n_blocks);
    while (i < q->n && q->tokens[i] != q->rest_from)
        i++;
    if (i == q->n || q->rest_from <= l->max_batch || q->rest_from > l->prefill_chunk)
        return rule(name, e, "limits[%d].prompt.engine_rest.from_tokens is %d; one of prompt.tokens above max_batch and up to "
                    "prefill_chunk is needed", li, q->rest_from);
    if (q->area_bytes < least || q->area_bytes % (REST_SLOTS * REST_PAGE))
        return rule(name, e, "limits[%d].prompt.engine_rest.area_bytes is %llu; a multiple of %u, and at least %llu, are needed", li,
                    (unsigned long long)q->area_bytes, REST_SLOTS * REST_PAGE, (unsigned long long)least);
    return 0;
}

#define ROUNDED 2e-5 /* two reals of six digits */

/* As it is written: what was read and is written again is the same then, and as right. */
static double as_written(double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", v);
    return strtod(text, NULL);
}

static struct plan_guesses guesses_as_written(const struct plan_guesses *g)
{
    struct plan_guesses o = *g;
    for (int i = 0; i < g->n; i++)
        o.pass_ns[i] = as_written(g->pass_ns[i]);
    for (int i = 0; i < PLAN_ACCEPTANCES; i++) {
        o.acceptance[i] = as_written(g->acceptance[i]);
        o.speedup[i] = as_written(g->speedup[i]);
    }
    o.guess_ns = as_written(g->guess_ns);
    return o;
}

/* What guesses bring follows from passes. */
static int check_best(const struct plan_guesses *g, int i, int li, const char *name, struct err *e)
{
    double most, a = g->acceptance[i];
    int best = plan_best_guesses(g, a, g->guess_ns, PLAN_GUESSES, &most), last = g->tokens[g->n - 1] - 1;
    if (!(a > (i ? g->acceptance[i - 1] : 0) && a < 1))
        return rule(name, e, "limits[%d].guesses.acceptance[%d] is %g; shares are above 0 and below 1, and ascend", li, i, a);
    if (g->best[i] > PLAN_GUESSES || g->best[i] > last)
        return rule(name, e, "limits[%d].guesses.best[%d] is %d; %d guesses of a pass are the most", li, i, g->best[i],
                    last < PLAN_GUESSES ? last : PLAN_GUESSES);
    double own = plan_guesses_speedup(g, a, g->guess_ns, g->best[i]);
    if (own < most * (1 - ROUNDED))
        return rule(name, e, "limits[%d].guesses.best[%d] is %d; with %d guesses a pass it is %g times as fast, not %g", li, i, g->best[i],
                    best, most, own);
    if (!(fabs(g->speedup[i] - own) <= ROUNDED * own))
        return rule(name, e, "limits[%d].guesses.speedup[%d] is %g; its passes give %g", li, i, g->speedup[i], own);
    return 0;
}

/* Passes take longer for more tokens. */
static int check_guesses(const struct plan *p, int li, const char *name, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    const struct plan_guesses g = guesses_as_written(&l->guesses);
    double step_ns = as_written(l->batches[0].predicted.step_ns);
    int r = 0;
    if (g.n && g.tokens[0] != 1)
        return rule(name, e, "limits[%d].guesses.tokens[0] is %d; 1 is needed", li, g.tokens[0]);
    if (g.n && !(g.pass_ns[0] > 0 && fabs(g.pass_ns[0] - step_ns) <= ROUNDED * step_ns))
        return rule(name, e, "limits[%d].guesses.pass_ns[0] is %g; a step of batch 1 takes %g", li, g.pass_ns[0], step_ns);
    for (int i = 1; i < g.n; i++)
        if (g.pass_ns[i] < g.pass_ns[i - 1])
            return rule(name, e, "limits[%d].guesses.pass_ns[%d] is %g, less than of %d tokens", li, i, g.pass_ns[i], g.tokens[i - 1]);
    if ((g.source == PLAN_SOURCE_FREE) != !(g.guess_ns > 0))
        return rule(name, e, "limits[%d].guesses.source.guess_ns is %g; guesses of a draft and of a layer take time", li, g.guess_ns);
    for (int i = 0; i < PLAN_ACCEPTANCES && g.n && r == 0; i++)
        r = check_best(&g, i, li, name, e);
    return r;
}

int plan_same_recall(const struct plan *p, const struct plan_limit *a, const struct plan_limit *b)
{
    return !(a->recall < b->recall) && !(a->recall > b->recall) && a->by_layer == b->by_layer &&
           (!a->by_layer || !memcmp(a->recalls, b->recalls, (size_t)p->n_layers * sizeof *a->recalls));
}

const char *plan_elastic_differs(const struct plan *p, const struct plan_limit *a, const struct plan_limit *b)
{
    size_t n = (size_t)p->n_layers;
    return a->mode != b->mode ? "mode" : !plan_same_recall(p, a, b) ? "recall" :
           a->cold_bound < b->cold_bound || a->cold_bound > b->cold_bound ? "cold_bound" :
           memcmp(a->predictor, b->predictor, n) ? "predictors" : memcmp(a->always, b->always, n * sizeof *a->always) ? "exempt" :
           a->act_q8 != b->act_q8 ? "act" : a->context != b->context ? "context" : a->kv_type != b->kv_type ? "kv" :
           a->purpose != b->purpose ? "for" : a->max_batch != b->max_batch ? "max_batch" :
           a->stream_tables != b->stream_tables ? "tables" : a->prefill_chunk != b->prefill_chunk ? "prefill_chunk" : NULL;
}

/* What is shared in a group, and what the accounts of its limits have room for. */
static int check_elastic(const struct plan *p, int li, const char *name, struct err *e)
{
    const struct plan_elastic *x = &p->limits[li].elastic;
    struct plan_elastic most = { 0 };
    for (int i = 0; i < p->n_limits && x->group; i++) {
        const struct plan_limit *l = &p->limits[i];
        if (l->elastic.group != x->group)
            continue;
        const char *what = plan_elastic_differs(p, l, &p->limits[li]);
        if (what)
            return rule(name, e, "limits[%d] and limits[%d] are in elastic.group %d; %s is not the same", i, li, x->group, what);
        most.threads = l->threads > most.threads ? l->threads : most.threads;
        most.io_lanes = l->io_lanes > most.io_lanes ? l->io_lanes : most.io_lanes;
        most.queue_depth = l->queue_depth > most.queue_depth ? l->queue_depth : most.queue_depth;
        most.read_bytes = plan_read_bytes(l) > most.read_bytes ? plan_read_bytes(l) : most.read_bytes;
    }
    if (x->group && plan_uses_engine(&p->limits[li]))
        return rule(name, e, "limits[%d] is in elastic.group %d; a limit whose engine computes is in none", li, x->group);
    if (x->threads == most.threads && x->io_lanes == most.io_lanes && x->queue_depth == most.queue_depth &&
        x->read_bytes == most.read_bytes)
        return 0;
    return rule(name, e, "limits[%d].elastic has %d threads, %d lanes, queue_depth %d and read_bytes %u; the most of its group are %d, %d, "
                "%d and %u", li, x->threads, x->io_lanes, x->queue_depth, x->read_bytes, most.threads, most.io_lanes, most.queue_depth,
                most.read_bytes);
}

int plan_lanes(enum plan_io io, int depth)
{
    return io != PLAN_IO_PREAD ? 1 : depth < BUDGET_MAX_LANES ? depth : BUDGET_MAX_LANES;
}

struct plan_most plan_most(const struct plan_limit *l)
{
    struct plan_most m = { l->threads, l->io_lanes, l->queue_depth };
    for (int i = 0; i < l->n_alternatives; i++) {
        const struct plan_alternative *a = &l->alternatives[i];
        int lanes = plan_lanes(a->io, a->queue_depth);
        m.threads = a->threads > m.threads ? a->threads : m.threads;
        m.lanes = lanes > m.lanes ? lanes : m.lanes;
        m.depth = a->queue_depth > m.depth ? a->queue_depth : m.depth;
    }
    return m;
}

/* Each is another than the others and than what the limit has for one sequence. */
static int check_alternatives(const struct plan *p, int li, const char *name, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    const struct plan_batch *b = &l->batches[0];
    const int ahead = l->ahead != PLAN_AHEAD_OFF;
    if (l->n_alternatives != l->n_alternative_times)
        return rule(name, e, "limits[%d].alternatives has %d elements among the predictions; the decisions have %d", li,
                    l->n_alternative_times, l->n_alternatives);
    for (int i = 0; i < l->n_alternatives; i++) {
        const struct plan_alternative *a = &l->alternatives[i];
        int same = a->threads == b->threads && a->queue_depth == b->queue_depth && a->io == l->io && a->ahead == ahead &&
                   a->coalesced == (l->n_coalesce > 0);
        for (int k = 0; k < i && !same; k++) {
            const struct plan_alternative *o = &l->alternatives[k];
            same = a->threads == o->threads && a->queue_depth == o->queue_depth && a->io == o->io && a->ahead == o->ahead &&
                   a->coalesced == o->coalesced;
        }
        if (same)
            return rule(name, e, "limits[%d].alternatives[%d] says the same as another, or as the limit", li, i);
        if (a->coalesced && !l->n_coalesce)
            return rule(name, e, "limits[%d].alternatives[%d].joins is true, and the limit's io has none", li, i);
        if (!a->ahead && l->ahead == PLAN_AHEAD_UNSTATED)
            return rule(name, e, "limits[%d].alternatives[%d].experts_ahead is false, and the limit does not state io.experts_ahead", li,
                        i);
    }
    return 0;
}

static int check_limit(const struct plan *p, const struct layout_shapes *s, int li, const char *name, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    if (li && l->memory_bytes <= p->limits[li - 1].memory_bytes)
        return rule(name, e, "limits[%d].memory_bytes is not above the one before it", li);
    if (l->account_bytes > l->memory_bytes)
        return rule(name, e, "limits[%d].account_bytes is %llu, above memory_bytes %llu", li,
                    (unsigned long long)l->account_bytes, (unsigned long long)l->memory_bytes);
    if (l->floor_bytes > l->account_bytes)
        return rule(name, e, "limits[%d].floor_bytes is %llu, above account_bytes %llu", li,
                    (unsigned long long)l->floor_bytes, (unsigned long long)l->account_bytes);
    if (l->mode != PLAN_PREDICTED && l->recall != 0)
        return rule(name, e, "limits[%d].recall is %g in %s mode; it belongs to predicted mode", li, l->recall,
                    plan_mode_name(l->mode));
    if (l->cold_bound > 0 && l->mode != PLAN_EXACT)
        return rule(name, e, "limits[%d].cold_bound is %g in %s mode; it belongs to exact mode", li, l->cold_bound,
                    plan_mode_name(l->mode));
    if (l->mode == PLAN_PREDICTED && !(l->recall > 0 && l->recall <= 1))
        return rule(name, e, "limits[%d].recall is %g; predicted mode needs a share above 0, at most 1", li,
                    l->recall);
    double least = 1;
    for (int i = 0; i < p->n_layers && l->by_layer; i++) {
        if (!(l->recalls[i] > 0))
            return rule(name, e, "limits[%d].recalls[%d] is %g; a share above 0, at most 1, is needed", li, i, l->recalls[i]);
        least = l->recalls[i] < least ? l->recalls[i] : least;
    }
    if (l->by_layer && (least < l->recall || least > l->recall))
        return rule(name, e, "limits[%d].recall is %g; the least of its recalls is %g", li, l->recall, least);
    if (l->predictor_buffers && l->mode != PLAN_PREDICTED)
        return rule(name, e, "limits[%d].predictor_buffers is %d in %s mode; it belongs to predicted mode", li,
                    l->predictor_buffers, plan_mode_name(l->mode));
    for (int i = 0; i < p->n_layers; i++) {
        uint32_t n_ff = (uint32_t)layout_of(s, i)->n_ff;
        if (l->always[i] > n_ff || (l->always[i] % p->layout.cluster_neurons && l->always[i] != n_ff))
            return rule(name, e, "limits[%d].exempt[%d] is %u; whole clusters of %u, or all %u neurons, are needed",
                        li, i, l->always[i], p->layout.cluster_neurons, n_ff);
    }
    if (l->ahead != PLAN_AHEAD_UNSTATED && (l->mode != PLAN_DENSE || p->n_blocks < 2))
        return rule(name, e, "limits[%d].io.experts_ahead is there, which goes with experts and the mode dense", li);
    int coalesce = check_coalesce(p, s, li, name, e), sum = 0;
    if (coalesce < 0)
        return coalesce;
    for (int i = 0; i < l->n_classes; i++)
        sum += l->classes[i].n;
    if (sum != l->threads)
        return rule(name, e, "limits[%d].threads is %d, but its classes sum to %d", li, l->threads, sum);
    if (l->n_batches < 1 || l->batches[0].batch != 1)
        return rule(name, e, "limits[%d].batches must begin with batch 1", li);
    for (int i = 1; i < l->n_batches; i++)
        if (l->batches[i].batch <= l->batches[i - 1].batch)
            return rule(name, e, "limits[%d].batches[%d].batch is not above the one before it", li, i);
    if (l->batches[l->n_batches - 1].batch != l->max_batch)
        return rule(name, e, "limits[%d].max_batch is %d, but its last batch is %d", li, l->max_batch,
                    l->batches[l->n_batches - 1].batch);
    int threads = 0, depth = 0;
    for (int i = 0; i < l->n_batches; i++) {
        int r = check_batch(p, s, &l->batches[i], li, i, name, e);
        if (r < 0)
            return r;
        threads = l->batches[i].threads > threads ? l->batches[i].threads : threads;
        depth = l->batches[i].queue_depth > depth ? l->batches[i].queue_depth : depth;
    }
    if (threads != l->threads || depth != l->queue_depth)
        return rule(name, e, "limits[%d] has %d threads and queue_depth %d; its batch sizes have %d and %d at most", li, l->threads,
                    l->queue_depth, threads, depth);
    int ok = check_elastic(p, li, name, e);
    ok = ok < 0 ? ok : check_heights(p, li, name, e);
    ok = ok < 0 ? ok : check_rest(p, s, li, name, e);
    ok = ok < 0 ? ok : check_alternatives(p, li, name, e);
    return ok < 0 ? ok : check_guesses(p, li, name, e);
}

/* A limit under what was asked for. */
static int check_request(const struct plan *p, int li, const char *name, struct err *e)
{
    const struct plan_request *q = &p->request;
    const struct plan_limit *l = &p->limits[li];
    const char *what = q->mode >= 0 && q->mode != (int)l->mode ? "mode" : q->policy >= 0 && q->policy != (int)l->policy ? "cold_policy" :
                       q->context > 0 && q->context != l->context ? "context" :
                       q->prefill_chunk > 0 && q->prefill_chunk != l->prefill_chunk ? "prefill_chunk" :
                       q->n_weights > 0 && q->n_weights != l->n_batches ? "batches (by batch_weights)" : NULL;
    for (int i = 0; i < p->n_layers && q->predictor >= 0 && l->mode == PLAN_PREDICTED; i++)
        if (l->predictor[i] >= 0 && l->predictor[i] != q->predictor)
            what = "predictors";
    for (int i = 0; i < q->n_cores; i++)
        for (int k = 0; k < l->n_classes; k++)
            if (!strcmp(q->cores[i].name, l->classes[k].name) && l->classes[k].n > q->cores[i].n)
                what = "classes";
    for (int i = 0; i < q->n_cores * l->n_batches; i++) {
        const struct plan_batch *b = &l->batches[i / q->n_cores];
        for (int k = 0; k < b->n_classes; k++)
            if (!strcmp(q->cores[i % q->n_cores].name, b->classes[k].name) && b->classes[k].n > q->cores[i % q->n_cores].n)
                what = what ? what : "batches[].configuration.classes";
    }
    return what ? rule(name, e, "limits[%d].%s is not what 'request' asks for", li, what) : 0;
}

static int check_layout(const struct plan *p, const char *name, struct layout_shapes *shapes, struct err *e)
{
    struct err why = { 0 };
    int widest = 0, narrowest = p->n_ff;
    for (int i = 0; i < p->n_layers && p->widths[0]; i++) {
        widest = p->widths[i] > widest ? p->widths[i] : widest;
        narrowest = p->widths[i] < narrowest ? p->widths[i] : narrowest;
    }
    if (p->widths[0] && (widest != p->n_ff || narrowest < 1 || narrowest == widest))
        return rule(name, e, "model.widths: they differ, and n_ff, %d, is the greatest", p->n_ff);
    if (layout_derive(&p->layout, p->d_model, p->n_ff, shapes, &why) < 0)
        return rule(name, e, "layout: %.380s", why.msg);
    if (p->layout.n_kinds > 1 && p->layout.n_layers != p->n_layers)
        return rule(name, e, "layout has types for %d layers, the model has %d", p->layout.n_layers, p->n_layers);
    if (!hash_equal(p->layout_hash, layout_hash(&p->layout))) {
        char want[HASH_TEXT];
        hash_text(layout_hash(&p->layout), want);
        return rule(name, e, "layout.hash does not belong to this layout, whose hash is %s", want);
    }
    return 0;
}

/* Names of accelerators are printable. */
static int check_engine(const char *engine, const char *key, const char *name, struct err *e)
{
    for (const char *s = engine; *s; s++)
        if (*s < 0x21 || *s > 0x7e)
            return rule(name, e, "%s is not a name of 1 to 63 printable characters", key);
    return 0;
}

int plan_check(const struct plan *p, const char *name, struct err *e)
{
    struct layout_shapes shapes;
    int r = check_layout(p, name, &shapes, e);
    if (r < 0 || (r = check_engine(p->engine, "decisions.engine", name, e)) < 0 ||
        (r = check_engine(p->request.engine, "request.engine", name, e)) < 0)
        return r;
    if (p->n_limits < 1)
        return rule(name, e, "limits is empty");
    for (int i = 0; i < p->n_limits && p->layout.form == LAYOUT_TILES; i++)
        if (p->limits[i].mode != PLAN_DENSE)
            return rule(name, e, "limits[%d].mode is '%s'; with layout.form 'tiles' it must be 'dense'", i,
                        plan_mode_name(p->limits[i].mode));
    int used = 0;
    for (int i = 0; i < p->n_limits; i++)
        used |= plan_uses_engine(&p->limits[i]);
    if (p->engine[0] && !used)
        return rule(name, e, "engine is '%s', and no batch size gives work to it, nor a prompt", p->engine);
    for (int i = 0; i < p->n_limits; i++)
        if ((r = check_limit(p, &shapes, i, name, e)) < 0 || (r = check_request(p, i, name, e)) < 0)
            return r;
    if (p->request.form >= 0 && p->request.form != (int)p->layout.form)
        return rule(name, e, "layout.form is '%s'; 'request' asks for '%s'", layout_form_name(p->layout.form),
                    layout_form_name((enum layout_form)p->request.form));
    return 0;
}

int plan_widths_are(const struct plan *p, const struct model_hparams *h)
{
    int i = 0;
    while (i < h->n_layers && i < p->n_layers && plan_n_ff(p, i) == model_n_ff(h, i))
        i++;
    return i == h->n_layers;
}

struct plan_share plan_pass_share(const struct plan_limit *l, int tokens)
{
    const struct plan_prompt *q = &l->prompt;
    struct plan_share share = { 0 };
    for (int i = 0; i < l->n_batches; i++) {
        share = (struct plan_share){ l->batches[i].engine_neurons, l->batches[i].engine_work, 0 };
        if (l->batches[i].batch >= tokens)
            return share;
    }
    if (!q->with_engine)
        return share;
    share = (struct plan_share){ 0 };
    for (int i = 0; i < q->n && q->tokens[i] <= tokens; i++)
        share = (struct plan_share){ q->engine_neurons[i], q->engine_work[i], q->rest_from && q->tokens[i] >= q->rest_from };
    return share;
}

static int add_height(struct plan_height *out, int n, int most, int tokens, struct plan_share share)
{
    struct plan_height *last = n ? &out[n - 1] : NULL;
    if (last && (n == most || (last->share.neurons == share.neurons && last->share.work == share.work &&
                               last->share.rest == share.rest))) {
        last->tokens = tokens;
        last->share.neurons = share.neurons < last->share.neurons ? share.neurons : last->share.neurons;
        last->share.work = (enum plan_work)((unsigned)last->share.work & (unsigned)share.work);
        last->share.rest &= share.rest;
        return n;
    }
    out[n] = (struct plan_height){ tokens, share };
    return n + 1;
}

int plan_heights(const struct plan_limit *l, struct plan_height *out, int most)
{
    const struct plan_prompt *q = &l->prompt;
    int n = 0, from = l->n_batches ? l->batches[l->n_batches - 1].batch + 1 : 1;
    for (int i = 0; i < l->n_batches; i++)
        n = add_height(out, n, most, l->batches[i].batch,
                       (struct plan_share){ l->batches[i].engine_neurons, l->batches[i].engine_work, 0 });
    for (int i = 0; i < q->n && q->with_engine; i++)
        if (q->tokens[i] > from) {
            n = add_height(out, n, most, q->tokens[i] - 1, plan_pass_share(l, from));
            from = q->tokens[i];
        }
    n = add_height(out, n, most, 0, plan_pass_share(l, from));
    return n;
}

double plan_prompt_tokens_per_s(const struct plan_prompt *p)
{
    int i = p->n - 1;
    double ns = p->n ? p->attention_ns[i] + p->ffn_ns[i] + p->wait_ns[i] : 0;
    return ns > 0 ? 1e9 * p->tokens[i] / ns : 0;
}

double plan_prompt_ns(const struct plan_prompt *p, int tokens)
{
    double ns[PLAN_PROMPT_POINTS];
    int i = 0;
    if (!p->n || tokens < 1)
        return 0;
    for (int k = 0; k < p->n; k++)
        ns[k] = p->attention_ns[k] + p->ffn_ns[k] + p->wait_ns[k];
    while (i < p->n && p->tokens[i] < tokens)
        i++;
    if (i == p->n)
        return ns[i - 1] * tokens / p->tokens[i - 1] + p->head_ns;
    double before = i ? ns[i - 1] : ns[i], at = i ? (double)(tokens - p->tokens[i - 1]) / (p->tokens[i] - p->tokens[i - 1]) : 1;
    return before + at * (ns[i] - before) + p->head_ns;
}
