/* The planner's conscience: a plan is written only when this accepts it, and CI runs it on plans it did not
 * make. It shares the equations (cost.c) and the account (budget.c) with the planner, and nothing of
 * the solvers. */
#include "planner/check/check.h"

#include "common/base/print.h"
#include "planner/check/alternatives.h"
#include "planner/check/compare.h"
#include "planner/check/operating_points.h"
#include "planner/planning/planning_cold.h"
#include "planner/planning/planning.h"
#include "planner/planning/planning_account.h"
#include "planner/planning/planning_alternatives.h"
#include "planner/planning/planning_guesses.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int same_hash(const char *name, const char *what, const char *field, struct hash128 plan, struct hash128 file, struct err *e)
{
    char a[HASH_TEXT], b[HASH_TEXT];
    if (hash_equal(plan, file))
        return 0;
    hash_text(plan, a);
    hash_text(file, b);
    return err_set(e, ERR_MISMATCH, "plan '%s' is for %s %s, not %s (%s)", name, what, a, b, field);
}

static int check_shape(const struct plan *p, const char *name, const struct inputs *in, struct err *e)
{
    int r;
    if ((r = same_hash(name, "the model", "model.hash", p->model_hash, in->model_hash, e)) < 0 ||
        (r = same_hash(name, "the trace", "model.trace_hash", p->trace_hash, in->trace_hash, e)) < 0 ||
        (r = same_hash(name, "the neuron order", "model.order_hash", p->order_hash,
                       inputs_order_hash(in, p->layout.form), e)) < 0)
        return r;
    if (p->sort != (p->layout.form == LAYOUT_TILES ? LAYOUT_HEAT : in->sort))
        return err_set(e, ERR_MISMATCH, "plan '%s': model.order is %s, which is not its order_hash's", name, layout_sort_name(p->sort));
    if (p->n_layers != in->n_layers || p->n_blocks != in->n_blocks || p->n_ff != in->h.n_ff ||
        p->d_model != in->h.d_model)
        return err_set(e, ERR_MISMATCH, "plan '%s': model has layers %d, blocks %d, n_ff %d and d_model %d; the trace's model has %d, %d, "
                       "%d and %d", name, p->n_layers, p->n_blocks, p->n_ff, p->d_model, in->n_layers, in->n_blocks, in->h.n_ff,
                       in->h.d_model);
    if (!plan_widths_are(p, &in->h))
        return err_set(e, ERR_MISMATCH, "plan '%s': model.widths are not those of the trace's model", name);
    return 0;
}

/* Names stand for people beside hashes; a plan is not to say another. */
static int check_names(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw, struct err *e)
{
    if (in && strcmp(p->model_name, in->name))
        return err_set(e, ERR_MISMATCH, "plan '%s': model.name is '%s', the model's is '%s'", name, p->model_name, in->name);
    if (hw && strncmp(p->device, hw->name, sizeof p->device - 1))
        return err_set(e, ERR_MISMATCH, "plan '%s': device.name is '%s', the device's is '%s'", name, p->device, hw->name);
    const int tiles = p->layout.form == LAYOUT_TILES; /* else Gate and Down may have types of their own, or what stands in Gate's place */
    for (int l = 0; in && l < in->n_layers; l++)
        for (int r = tiles ? LAYOUT_GATE : p->layout.ungated ? LAYOUT_DOWN : LAYOUT_UP; r <= (tiles ? LAYOUT_DOWN : LAYOUT_UP); r++)
            if (p->layout.type[p->layout.kind[l]][r] != in->layers[l].ffn_type[r])
                return err_set(e, ERR_MISMATCH, "plan '%s': layout.types.%s of layer %d is not the model's", name, layout_role_name(r), l);
    return 0;
}

/* Blocks of a layer have the same prefix, and the last part alone is cached: figures are for these. */
static int check_regions(const struct plan *p, const struct plan_batch *b, const char *name, int li, int bi, struct err *e)
{
    for (int k = 0; k < p->n_layers; k++)
        for (int q = 0; q < p->n_parts; q++) {
            uint32_t first = plan_hot(p, b, k, 0, q), slots = plan_cold(p, b, k, q);
            for (int j = 1; j < p->n_blocks; j++)
                if (plan_hot(p, b, k, j, q) != first)
                    return err_set(e, ERR_UNSUPPORTED, "plan '%s': limits[%d].batches[%d].hot[%d][%d][%d] is %u, and %u in the first "
                                   "block: that cannot be checked", name, li, bi, k, j, q, plan_hot(p, b, k, j, q), first);
            if (q < p->n_parts - 1 && slots)
                return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].batches[%d].cold[%d][%d] is %u slots of a part that has none",
                               name, li, bi, k, q, slots);
        }
    return 0;
}

/* The runtime keeps the neurons of the first batch size in memory, whatever the batch. */
static int check_shared(const struct plan *p, const struct plan_limit *l, const char *name, int li, int bi, struct err *e)
{
    const struct plan_batch *a = &l->batches[0], *b = &l->batches[bi];
    size_t cold = (size_t)p->n_layers * (size_t)p->n_parts, hot = cold * (size_t)p->n_blocks;
    const char *what = memcmp(a->hot, b->hot, hot * sizeof *a->hot) ? "hot" : memcmp(a->cold, b->cold, cold * sizeof *a->cold) ? "cold" :
                       memcmp(a->streamed, b->streamed, (size_t)p->n_layers) ? "streamed" : NULL;
    return what ? err_set(e, ERR_FORMAT, "plan '%s': limits[%d].batches[%d].%s is not that of batches[0], which stays in memory", name,
                          li, bi, what) : 0;
}

/* One batch size for each of those up to the largest, as plans have them. */
static int check_batches(const struct plan *p, const char *name, int li, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    int r = 0;
    for (int i = 0; i < l->n_batches && r == 0; i++)
        if (i >= INPUTS_MAX_BATCHES || l->batches[i].batch != inputs_batch_sizes[i])
            r = err_set(e, ERR_UNSUPPORTED, "plan '%s': limits[%d].batches[%d].batch is %d, which cannot be checked: plans are for 1, "
                        "2, 4, 8, 16 and 32, none left out", name, li, i, l->batches[i].batch);
        else if ((r = check_regions(p, &l->batches[i], name, li, i, e)) == 0)
            r = check_shared(p, l, name, li, i, e);
    return r;
}

/* How reads are coalesced is one of the device's rules. */
static int check_coalesce(const struct problem *pr, const struct plan_limit *l, const char *name, int li, struct err *e)
{
    for (int i = 0; i < pr->space.n_rules; i++) {
        const struct coalesce *rule = &pr->space.rules[i];
        int same = rule->n == l->n_coalesce;
        for (int k = 0; k < rule->n && same; k++)
            same = rule->at[k].bytes == l->coalesce[k].bytes && !compare_differs(rule->at[k].weight, l->coalesce[k].weight);
        if (same)
            return 0;
    }
    return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].io.joins is none of the rules that follow from the device's figures", name, li);
}

/* What is read ahead is the trace's to say, for plans by measured curves. */
static int check_ahead(const struct problem *pr, const struct plan *p, const struct plan_limit *l, const char *name, int li, struct err *e)
{
    if (l->ahead != PLAN_AHEAD_ON || (p->cost != PLAN_COST_PAPER && space_foresees(&pr->space, l->mode)))
        return 0;
    return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].io.experts_ahead is true, and the trace does not say which experts are foreseen",
                   name, li);
}

/* (3): no more cores than the device has. */
static int check_classes(const struct plan_class *classes, int n, const char *name, int li, const char *of, const struct hw *hw,
                         struct err *e)
{
    for (int k = 0; k < n; k++) {
        int has = k < hw->n_classes ? hw->classes[k].n_cores : 0;
        if (hw->n_classes == 0 && (k > 0 || strcmp(classes[k].name, "cpu")))
            return err_set(e, ERR_MISMATCH, "plan '%s': limits[%d]%s.classes[%d].name is '%s'; of device '%s' no core classes are known",
                           name, li, of, k, classes[k].name, hw->name);
        if (hw->n_classes > 0 && (k >= hw->n_classes || strncmp(classes[k].name, hw->classes[k].name, 31)))
            return err_set(e, ERR_MISMATCH, "plan '%s': limits[%d]%s names core class '%s' (classes[%d].name), which device '%s' does "
                                            "not have there",
                           name, li, of, classes[k].name, k, hw->name);
        if (hw->n_classes > 0 && !cost_cores_ok(classes[k].n, has))
            return err_set(e, ERR_INFEASIBLE, "plan '%s': limits[%d]%s takes %d cores of class '%s'; there are %d",
                           name, li, of, classes[k].n, classes[k].name, has);
    }
    return 0;
}

static int check_cores(const struct plan_limit *l, const char *name, int li, const struct hw *hw, struct err *e)
{
    int r = check_classes(l->classes, l->n_classes, name, li, "", hw, e);
    for (int i = 0; i < l->n_batches && r == 0; i++) {
        char of[24];
        snprintf(of, sizeof of, ".batches[%d]", i);
        r = check_classes(l->batches[i].classes, l->batches[i].n_classes, name, li, of, hw, e);
    }
    return r;
}

/* What large reads give, by the device's figures. */
static int check_load(const struct problem *pr, const struct plan *p, const char *name, int li, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    double large = planning_load_rate(pr->space.hw, l->io, p->stat);
    if (large > 0 && compare_differs(large, l->load_bytes_per_s))
        return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].load_bytes_per_s is %g; the device's figures make it %g", name, li,
                       l->load_bytes_per_s, large);
    return 0;
}

/* (4): the account, to the byte; slots that could never be used are waste. What an accelerator takes is the device's: without its
 * figures the rest must fit beside it. */
static int check_memory(const struct problem *pr, const struct plan *p, const char *name, int li, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    struct budget b;
    const char *engine = planning_limit_engine(p, l);
    int r = planning_account(pr, l, engine, &b, e), known = !engine || pr->space.hw;
    if (r < 0)
        return err_wrap(e, "plan '%s': limits[%d]", name, li);
    if (known ? b.total != l->account_bytes || b.floor != l->floor_bytes : b.total > l->account_bytes || b.floor > l->floor_bytes)
        return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].account_bytes is %llu and floor_bytes %llu; hot, cold, predictors, context, "
                       "kv, prefill_chunk, threads and io make them %llu and %llu", name, li, (unsigned long long)l->account_bytes,
                       (unsigned long long)l->floor_bytes, (unsigned long long)b.total, (unsigned long long)b.floor);
    if (!cost_memory_ok(l->account_bytes, l->memory_bytes))
        return err_set(e, ERR_INFEASIBLE, "plan '%s': limits[%d] takes %llu bytes of %llu", name, li,
                       (unsigned long long)l->account_bytes, (unsigned long long)l->memory_bytes);
    for (int i = 0; i < l->n_batches; i++)
        for (int k = 0; k < p->n_layers; k++)
            for (int q = 0; q < p->n_parts; q++) {
                uint64_t units = 0;
                const struct layout_part *lp = &layout_of(&pr->space.shapes, k)->part[q];
                for (int j = 0; j < p->n_blocks; j++)
                    units += lp->n_units - plan_hot(p, &l->batches[i], k, j, q) / lp->neurons_per_unit;
                if (plan_cold(p, &l->batches[i], k, q) > units)
                    return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].batches[%d].cold[%d][%d] is %u slots for "
                                                  "%llu units beyond "
                                   "the prefix", name, li, i, k, q, plan_cold(p, &l->batches[i], k, q),
                                   (unsigned long long)units);
            }
    return 0;
}

static int check_figures(const struct plan *p, const struct plan_figures *said, const struct plan_figures *is,
                         const char *name, int li, int bi, struct err *e)
{
    struct compare_difference d;
    char text[TERM_TEXT];
    if (!compare_figures(p, said, is, &d))
        return 0;
    terms_figure(d.field, text);
    return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].batches[%d].%s is %g; the equations give %g%s%s", name, li, bi, d.field,
                   d.said, d.is, text[0] ? ", by " : "", text);
}

/* Where new figures go, and which limits are meant. */
struct repricing {
    struct plan *to;
    const uint8_t *wanted;
};

/* Figures of a limit in place of those that its plan states. */
static void take_figures(struct plan_figures *to, const struct plan_figures *from, int n_layers)
{
    struct plan_layer_figures *layers = to->layers;
    memcpy(layers, from->layers, (size_t)n_layers * sizeof *layers);
    *to = *from;
    to->layers = layers;
}

static int prompt_differs(const struct plan_prompt *said, const struct plan_prompt *is, const char *name, int li, struct err *e)
{
    if (said->n != is->n)
        return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].prompt has %d lengths; the equations give %d", name, li, said->n, is->n);
    if (said->n && compare_differs(said->head_ns, is->head_ns))
        return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].prompt.head_ns is %g; the equations give %g", name, li, said->head_ns,
                       is->head_ns);
    for (int i = 0; i < said->n; i++) {
        const struct {
            const char *key;
            double said, is;
        } of[] = { { "tokens", said->tokens[i], is->tokens[i] },
                   { "attention_ns", said->attention_ns[i], is->attention_ns[i] },
                   { "ffn_ns", said->ffn_ns[i], is->ffn_ns[i] },
                   { "wait_ns", said->wait_ns[i], is->wait_ns[i] },
                   { "read_bytes", said->read_bytes[i], is->read_bytes[i] } };
        for (size_t k = 0; k < sizeof of / sizeof *of; k++)
            if (compare_differs(of[k].said, of[k].is))
                return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].prompt.%s[%d] is %g; the equations give %g", name, li, of[k].key, i,
                               of[k].said, of[k].is);
    }
    return 0;
}

/* (M27). */
static int check_prompt(const struct problem *pr, const struct plan *p, const char *name, int li, const struct repricing *repricing,
                        struct cost_residency *residencies, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    struct plan_prompt is;
    struct cost_choice c;
    planning_choice(p, l, NULL, &c);
    c.engine = planning_limit_engine(p, l);
    c.predicted = pr->space.predicted[0];
    planning_residencies(p, &l->batches[0], residencies);
    int r = problem_prompt(pr, &c, residencies, l, &is, e);
    if (r == 0 && repricing)
        repricing->to->limits[li].prompt = is;
    else if (r == 0)
        r = prompt_differs(&l->prompt, &is, name, li, e);
    return r;
}

/* (M30). What guesses bring by these passes, plan_check has held against them. Plans may have none. */
static int check_guesses(const struct problem *pr, const struct plan *p, const char *name, int li, struct err *e)
{
    const struct plan_guesses *said = &p->limits[li].guesses;
    struct plan_guesses is = { 0 };
    const struct guesser who = { said->source, said->guess_ns };
    int r = said->n ? planning_limit_guesses(pr, p, &p->limits[li], &who, &is, e) : 0;
    if (r == 0 && said->n != is.n)
        return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].guesses has %d lengths; the equations give %d", name, li, said->n, is.n);
    for (int i = 0; i < said->n && r == 0; i++) {
        const struct {
            const char *key;
            double said, is;
        } of[] = { { "tokens", said->tokens[i], is.tokens[i] },
                   { "pass_ns", said->pass_ns[i], is.pass_ns[i] },
                   { "read_bytes", said->read_bytes[i], is.read_bytes[i] } };
        for (size_t k = 0; k < sizeof of / sizeof *of; k++)
            if (compare_differs(of[k].said, of[k].is))
                return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].guesses.%s[%d] is %g; the equations give %g", name, li, of[k].key, i,
                               of[k].said, of[k].is);
    }
    if (r == 0 && said->n && compare_differs(said->guess_ns, is.guess_ns))
        return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].guesses.source.guess_ns is %g; the equations give %g", name, li,
                       said->guess_ns, is.guess_ns);
    for (int i = 0; i < PLAN_ACCEPTANCES && said->n && r == 0; i++)
        if (compare_differs(said->acceptance[i], is.acceptance[i]))
            return err_set(e, ERR_FORMAT, "plan '%s': limits[%d].guesses.acceptance[%d] is %g, not %g", name, li, i, said->acceptance[i],
                           is.acceptance[i]);
    return r;
}

/* Times of alternatives, with no more cores than the device has. */
static int check_alternatives(const struct problem *pr, const struct plan *p, const char *name, int li, const struct repricing *repricing,
                              struct cost_residency *residencies, struct err *e)
{
    static const char *const keys[PLAN_TERMS] = { "attention_ns", "predict_ns", "ffn_ns", "io_wait_ns", "head_ns" };
    const struct plan_limit *l = &p->limits[li];
    const struct hw *hw = pr->space.hw;
    int cores = hw->n_classes == 1 ? hw->classes[0].n_cores : l->threads, r = 0;
    struct cost_choice c;
    double is[PLAN_TERMS];
    planning_choice(p, l, &l->batches[0], &c);
    c.predicted = pr->space.predicted[0];
    planning_residencies(p, &l->batches[0], residencies);
    for (int i = 0; i < l->n_alternatives && r == 0; i++) {
        const struct plan_alternative *a = &l->alternatives[i];
        if (a->threads > cores)
            return err_set(e, ERR_INFEASIBLE, "plan '%s': limits[%d].alternatives[%d].threads is %d; there are %d cores", name, li, i,
                           a->threads, cores);
        if (!a->coalesced && l->n_coalesce) /* nothing is replayed without gaps */
            continue;
        r = planning_alternative_times(pr, p->cost, l, &c, a, residencies, is, e);
        if (r == 0 && repricing)
            memcpy(repricing->to->limits[li].alternatives[i].term_ns, is, sizeof is);
        for (int t = 0; t < PLAN_TERMS && r == 0 && !repricing; t++)
            if (compare_differs(a->term_ns[t], is[t]))
                r = err_set(e, ERR_FORMAT, "plan '%s': limits[%d].alternatives[%d].%s is %g; the equations give %g", name, li, i, keys[t],
                            a->term_ns[t], is[t]);
    }
    return r;
}

/* (5) and every predicted figure; those of a repricing go there instead. */
static int check_speed(const struct problem *pr, const struct plan *p, const char *name, int li,
                       const struct repricing *repricing, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    struct cost_choice c;
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    struct plan_figures is = { .layers = malloc((size_t)p->n_layers * sizeof *is.layers) };
    int r = residencies && is.layers ? 0 : err_set(e, ERR_NOMEM, "out of memory for a check");
    for (int i = 0; i < l->n_batches && r == 0; i++) {
        int bi = 0;
        planning_choice(p, l, &l->batches[i], &c);
        c.predicted = pr->space.predicted[0];
        while (bi < pr->space.in->n_batches && inputs_batch_sizes[bi] != l->batches[i].batch)
            bi++;
        if (bi == pr->space.in->n_batches) {
            r = err_set(e, ERR_UNSUPPORTED, "plan '%s': limits[%d] has a batch size of %d, which cannot be checked",
                        name, li, l->batches[i].batch);
            break;
        }
        planning_residencies(p, &l->batches[i], residencies);
        r = problem_predict(pr, &c, bi, residencies, &is, e);
        if (r == 0 && repricing)
            take_figures(&repricing->to->limits[li].batches[i].predicted, &is, p->n_layers);
        else if (r == 0)
            r = check_figures(p, &l->batches[i].predicted, &is, name, li, i, e);
    }
    if (r == 0)
        r = check_alternatives(pr, p, name, li, repricing, residencies, e);
    if (r == 0)
        r = check_prompt(pr, p, name, li, repricing, residencies, e);
    if (r == 0 && !repricing)
        r = check_guesses(pr, p, name, li, e);
    if (r == 0 && !repricing && !cost_speed_ok(l->batches[0].predicted.tokens_per_s * (1 + COMPARE_TOLERANCE), l->min_tokens_per_s))
        r = err_set(e, ERR_INFEASIBLE, "plan '%s': limits[%d] predicts %g tokens/s; its min_tokens_per_s is %g",
                    name, li, l->batches[0].predicted.tokens_per_s, l->min_tokens_per_s);
    if (r == 0 && !repricing && l->quality.tokens && p->request.max_kl >= 0 &&
        l->quality.kl_mean > PLAN_QUALITY_FACTOR * p->request.max_kl)
        r = err_set(e, ERR_INFEASIBLE, "plan '%s': limits[%d] was measured to diverge by %g nats on %llu tokens; its max_kl is %g, of "
                    "which %g times are allowed: solve with a smaller --max-kl", name, li, l->quality.kl_mean,
                    (unsigned long long)l->quality.tokens, p->request.max_kl, PLAN_QUALITY_FACTOR);
    free(residencies);
    free(is.layers);
    return r;
}

/* A bound bears on what is not in hot prefixes, and keeps what was asked for. */
static int check_cold(const struct plan *p, const char *name, int li, const struct inputs *in, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    if (!(l->cold_bound > 0))
        return 0;
    if (!in->cold || l->cold_bound < in->cold_bound || l->cold_bound > in->cold_bound)
        return err_set(e, ERR_MISMATCH, "plan '%s': limits[%d].cold_bound is %g, for which the model's losses are not known", name, li,
                       l->cold_bound);
    for (int k = 0; k < p->n_layers; k++) {
        uint32_t hot = plan_hot(p, &l->batches[0], k, 0, p->n_parts - 1);
        if (l->always[k] != hot)
            return err_set(e, ERR_MISMATCH, "plan '%s': limits[%d].exempt[%d] is %u; the hot prefix has %u", name, li, k,
                           l->always[k], hot);
    }
    double kl = planning_cold_kl(in, l);
    return !(p->request.max_kl >= 0) || kl <= p->request.max_kl ? 0 :
           err_set(e, ERR_INFEASIBLE, "plan '%s': limits[%d].cold_bound of %g nats loses %g nats a token; max_kl is %g", name, li,
                   l->cold_bound, kl, p->request.max_kl);
}

/* Limits of one mode, policy and set of predictors share a problem: those that share that of limit `first`, if it is
 * the first of them. Where there is a window to replay, miss figures are those of the plan's own points, each run
 * through common/plan/cache. */
static int check_limits(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw,
                        int first, struct notes *notes, const struct repricing *repricing, struct check_fields *doubts, struct err *e)
{
    const struct plan_limit *f = &p->limits[first], *limits[PLAN_MAX_LIMITS];
    const struct space_variant variant = { f->mode, f->recall, plan_recalls(f), f->predictor, f->always, 0, 0 };
    struct problem pr = { 0 };
    struct points points = { 0 };
    int n = 0, r, replayed = space_has_lists(in, f->mode);
    for (int i = 0; i < first; i++)
        if (planning_same_problem(p, &p->limits[i], f))
            return 0;
    for (int i = first; i < p->n_limits; i++)
        if (planning_same_problem(p, &p->limits[i], f) && (!repricing || repricing->wanted[i]))
            limits[n++] = &p->limits[i];
    if (n == 0)
        return 0;
    r = replayed ? problem_shape(&pr, in, hw, &p->layout, &variant, 1, notes, e) :
                   planning_problem(p, f, in, hw, notes, &pr, e);
    if (r < 0)
        return err_wrap(e, "plan '%s': limits[%d]", name, first);
    for (int i = 0; i < n && r == 0; i++) {
        int at = (int)(limits[i] - p->limits);
        if ((r = check_batches(p, name, at, e)) == 0 && (r = check_cold(p, name, at, in, e)) == 0)
            r = check_memory(&pr, p, name, at, e);
        if (r == 0 && hw && !repricing)
            r = check_load(&pr, p, name, at, e);
        if (r == 0 && hw)
            r = check_cores(limits[i], name, at, hw, e);
        if (r == 0 && hw && replayed && !repricing && (r = check_coalesce(&pr, limits[i], name, at, e)) == 0)
            r = check_ahead(&pr, p, limits[i], name, at, e);
    }
    if (r == 0 && hw && replayed)
        r = operating_points_replay(&points, &pr, p, limits, n, e);
    for (int i = 0; i < n && r == 0 && hw; i++) {
        int at = (int)(limits[i] - p->limits);
        if (!replayed || (r = operating_points_tables(&points, i, &pr, p, limits[i], e)) == 0)
            r = check_speed(&pr, p, name, at, repricing, e);
        if (r == 0 && !repricing && (r = alternatives_refute_gap(&pr, p, name, at, e)) == 0)
            r = alternatives_doubts(&pr, p, at, doubts, e);
    }
    operating_points_done(&points);
    problem_done(&pr);
    return r;
}

int check_belongs(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw, struct err *e)
{
    int r = plan_check(p, name, e);
    if (r == 0 && hw)
        r = same_hash(name, "hardware", "device.hash", p->hardware_hash, hw->hash, e);
    return r == 0 && in ? check_shape(p, name, in, e) : r;
}

static int check_all(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw, struct notes *notes,
                     struct check_fields *doubts, struct err *e)
{
    int r = check_belongs(p, name, in, hw, e);
    for (int i = 0; i < p->n_limits && in && r == 0; i++)
        r = check_limits(p, name, in, hw, i, notes, NULL, doubts, e);
    return r;
}

int check_plan(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw,
               struct notes *notes, struct err *e)
{
    return check_all(p, name, in, hw, notes, NULL, e);
}

int check_plan_fields(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw,
                      struct notes *notes, struct check_fields *doubts, struct err *e)
{
    int r = check_all(p, name, in, hw, notes, doubts, e);
    if (r == 0)
        r = check_names(p, name, in, hw, e);
    if (r == 0 && in && hw && doubts && !doubts->figures_tell)
        r = check_fields_add(doubts, "the device's figures have no spread here", e, "predictions.figures");
    return r;
}

int check_reprice(struct plan *p, const char *name, const struct inputs *in, const struct hw *hw, const uint8_t *wanted,
                  struct notes *notes, struct err *e)
{
    const struct repricing repricing = { p, wanted };
    int r = check_belongs(p, name, in, NULL, e);
    for (int i = 0; i < p->n_limits && r == 0; i++)
        r = check_limits(p, name, in, hw, i, notes, &repricing, NULL, e);
    return r;
}

void check_inputs_text(const struct plan *p, const struct plan_limit *l, char out[CHECK_INPUTS_TEXT])
{
    int count[PREDICT_INPUTS + 1] = { 0 }; /* the last: none */
    size_t at = 0;
    out[0] = '\0';
    for (int k = 0; l->mode == PLAN_PREDICTED && k < p->n_layers; k++)
        count[l->predictor[k] >= 0 ? l->predictor[k] : PREDICT_INPUTS]++;
    for (int i = 0; i <= PREDICT_INPUTS; i++)
        if (count[i]) {
            int n = snprintf(out + at, CHECK_INPUTS_TEXT - at, "%s%s in %d%s", at ? ", " : "predictors: ",
                             i < PREDICT_INPUTS ? predict_input_name((enum predict_input)i) : "none", count[i],
                             at ? "" : count[i] == 1 ? " layer" : " layers");
            at += n > 0 && (size_t)n < CHECK_INPUTS_TEXT - at ? (size_t)n : 0;
        }
}

/* --- against an older plan --- */

struct teller {
    void (*line)(void *ctx, int worse, const char *text);
    void *ctx;
    double tolerance;
    int worse;
};

static void tell(struct teller *t, int worse, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void tell(struct teller *t, int worse, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    t->worse += worse;
    if (t->line)
        t->line(t->ctx, worse, text);
}

/* What passes of prompts give the accelerator. */
static void tell_prompts(const struct plan_limit *a, const struct plan_limit *b, unsigned long long m, struct teller *t)
{
    const struct plan_prompt *x = &a->prompt, *y = &b->prompt;
    for (int i = 0; i < x->n && i < y->n && a->prefill_chunk == b->prefill_chunk; i++) {
        if (x->tokens[i] == y->tokens[i] && x->engine_neurons[i] != y->engine_neurons[i])
            tell(t, 0, "memory %llu, prompts of %d tokens: %u neurons of each FFN for the accelerator; were %u", m, x->tokens[i],
                 y->engine_neurons[i], x->engine_neurons[i]);
        if (!i && (x->rest_from != y->rest_from || x->area_bytes != y->area_bytes))
            tell(t, 0, "memory %llu, prompts from %d tokens: neurons that are not in memory for the accelerator, through %llu bytes; "
                 "were from %d, %llu", m, y->rest_from, (unsigned long long)y->area_bytes, x->rest_from, (unsigned long long)x->area_bytes);
        if (x->tokens[i] == y->tokens[i] && x->engine_work[i] != y->engine_work[i])
            tell(t, 0, "memory %llu, prompts of %d tokens: work '%s' for the accelerator; was '%s'", m, x->tokens[i],
                 plan_work_name(y->engine_work[i]), plan_work_name(x->engine_work[i]));
    }
}

static void compare_limit(struct teller *t, const struct plan *old, const struct plan_limit *a, const struct plan *now,
                          const struct plan_limit *b)
{
    unsigned long long m = a->memory_bytes;
    for (int i = 0; i < a->n_batches; i++) {
        const struct plan_batch *x = &a->batches[i], *y = NULL;
        for (int k = 0; k < b->n_batches; k++)
            if (b->batches[k].batch == x->batch)
                y = &b->batches[k];
        if (!y) {
            tell(t, 1, "memory %llu: batch %d is no longer planned", m, x->batch);
            continue;
        }
        double before = x->predicted.tokens_per_s, after = y->predicted.tokens_per_s;
        double percent = before > 0 ? 100 * (after / before - 1) : 0;
        int slower = percent < -100 * t->tolerance;
        if (compare_differs(before, after))
            tell(t, slower, "memory %llu, batch %d: %g tokens/s, was %g (%+.2f %%)", m, x->batch, after, before, percent);
    }
    if (a->floor_bytes != b->floor_bytes)
        tell(t, (double)b->floor_bytes > (double)a->floor_bytes * (1 + t->tolerance), "memory %llu: floor of %llu bytes, was %llu", m,
             (unsigned long long)b->floor_bytes, (unsigned long long)a->floor_bytes);
    if (a->context != b->context)
        tell(t, b->context < a->context, "memory %llu: context %d, was %d", m, b->context, a->context);
    if (a->min_tokens_per_s != b->min_tokens_per_s)
        tell(t, b->min_tokens_per_s < a->min_tokens_per_s, "memory %llu: asked for at least %g tokens/s, was %g", m,
             b->min_tokens_per_s, a->min_tokens_per_s);
    for (int i = 0; i < a->n_batches && i < b->n_batches; i++) {
        const struct plan_batch *x = &a->batches[i], *y = &b->batches[i];
        if (i && x->batch == y->batch && (x->threads != y->threads || x->queue_depth != y->queue_depth))
            tell(t, 0, "memory %llu, batch %d: %d threads, depth %d; was %d threads, depth %d", m, x->batch, y->threads, y->queue_depth,
                 x->threads, x->queue_depth);
        if (x->batch == y->batch && x->engine_neurons != y->engine_neurons)
            tell(t, 0, "memory %llu, batch %d: %u neurons of each FFN for the accelerator; were %u", m, x->batch, y->engine_neurons,
                 x->engine_neurons);
        if (x->batch == y->batch && x->engine_work != y->engine_work)
            tell(t, 0, "memory %llu, batch %d: work '%s' for the accelerator; was '%s'", m, x->batch, plan_work_name(y->engine_work),
                 plan_work_name(x->engine_work));
    }
    tell_prompts(a, b, m, t);
    if (a->threads != b->threads || a->queue_depth != b->queue_depth || a->mode != b->mode || a->policy != b->policy)
        tell(t, 0, "memory %llu: %s, %d threads, depth %d, %s; was %s, %d threads, depth %d, %s", m,
             plan_mode_name(b->mode), b->threads, b->queue_depth, cache_policy_name(b->policy),
             plan_mode_name(a->mode), a->threads, a->queue_depth, cache_policy_name(a->policy));
    char was[CHECK_INPUTS_TEXT], is[CHECK_INPUTS_TEXT];
    check_inputs_text(old, a, was);
    check_inputs_text(now, b, is);
    if (strcmp(was, is) && was[0] && is[0])
        tell(t, 0, "memory %llu: %s; were %s", m, is, was + strlen("predictors: "));
}

int check_against(const struct plan *now, const struct plan *old, double tolerance,
                  void (*line)(void *ctx, int worse, const char *text), void *ctx)
{
    struct teller t = { line, ctx, tolerance, 0 };
    if (!hash_equal(now->model_hash, old->model_hash))
        tell(&t, 0, "another model: '%s', was '%s'", now->model_name, old->model_name);
    if (!hash_equal(now->hardware_hash, old->hardware_hash))
        tell(&t, 0, "other hardware figures: device '%s', was '%s'", now->device, old->device);
    if (now->stat != old->stat)
        tell(&t, 0, "%s figures of the device, were %s", plan_stat_name(now->stat), plan_stat_name(old->stat));
    if (!hash_equal(now->layout_hash, old->layout_hash) || !hash_equal(now->order_hash, old->order_hash))
        tell(&t, 0, "another layout or neuron order: the model has to be packed again");
    for (int i = 0; i < old->n_limits; i++) {
        const struct plan_limit *b = NULL;
        for (int k = 0; k < now->n_limits; k++)
            if (now->limits[k].memory_bytes == old->limits[i].memory_bytes)
                b = &now->limits[k];
        if (b)
            compare_limit(&t, old, &old->limits[i], now, b);
        else
            tell(&t, 1, "memory %llu is no longer planned for", (unsigned long long)old->limits[i].memory_bytes);
    }
    for (int k = 0; k < now->n_limits; k++) {
        int known = 0;
        for (int i = 0; i < old->n_limits; i++)
            known |= now->limits[k].memory_bytes == old->limits[i].memory_bytes;
        if (!known)
            tell(&t, 0, "memory %llu is new", (unsigned long long)now->limits[k].memory_bytes);
    }
    return t.worse;
}
