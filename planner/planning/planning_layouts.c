/* A plan has one layout for all its memory limits, because a model is packed once: each candidate layout is
 * solved for all limits and the one with the best product of speeds wins. Everything that depends
 * on the layout alone (replay) is done once per candidate; limits differ only in problem_fill.
 *
 * Replay is most of the work, so a candidate has to show first that it may win:
 *   whole    with all of the FFN in memory nothing is read, and no replay is needed to know the speed: if that does not
 *            beat the best plan so far, nothing of the layout does (proven);
 *   estimate every SUBSAMPLE_EVERY-th layer is replayed and represents those after it, for the best plan's layout as well: a
 *            layout whose estimate is not SUBSAMPLE_GAIN faster than that one's is left out, and the plan's notes say so (an
 *            estimate; both estimates leave out the same layers, so what these have of their own mostly cancels).
 *
 * What the common layout costs a limit is known by a plan for that limit alone. These searches differ from the first one in their limits,
 * and what was replayed for a layout then is copied.
 */
#include "planner/planning/planning.h"

#include "common/base/log.h"
#include "common/base/progress.h"
#include "planner/planning/diagnosis.h"
#include "planner/planning/figures.h"
#include "planner/planning/planning_chunk.h"
#include "planner/planning/planning_parts.h"
#include "planner/planning/variants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EQUAL_SPEED   0.002 /* layouts within this share of each other's speed: the smaller file wins */
#define SUBSAMPLE_EVERY  4
#define SUBSAMPLE_LAYERS 16    /* no estimate of fewer: there is little to save */
#define SUBSAMPLE_GAIN   0.01  /* of log speed, each limit */

/* Candidates, and where several searches share them what was replayed: of each layout, and of each sample of layers. */
struct candidates {
    struct layout of[VARIANTS_LAYOUTS];
    int n, shared;
    struct problem whole[VARIANTS_LAYOUTS], sample[VARIANTS_LAYOUTS];
};

/* What was found so far. */
struct search {
    const struct request *q;
    const struct inputs *in;
    const struct hw *hw;
    struct notes *notes;
    struct candidates *c;
    int at;                     /* which of them is tried */
    struct plan best;
    struct planning_bound bounds[PLAN_MAX_LIMITS]; /* of its limits; with request.prove the least bound of any layout at that context */
    double score, subsampled;     /* its sum of log speeds; that of its layout's estimate, NAN: not made */
    uint64_t bytes;             /* of its FFN in the file */
    int found;
    struct planning_chunks chunks;
    struct problem last;        /* padded and packed follow each other and mostly replay the same: the last that was replayed, */
    struct problem subsample;      /* and the last subsampled estimate */
    int last_at, subsample_at, best_at; /* which candidates they are of */
    struct err why;             /* why it is infeasible under the layout for which the least memory would do, */
    struct diagnosis numbers;   /* in numbers */
};

/* What a search is done with, and the next one may copy from. */
static void leave(const struct search *s, struct problem *p, struct problem *kept)
{
    if (s->c->shared && p->space.in && !kept->space.in) {
        configs_done(&p->configs);
        curve_memo_done(&p->memo);
        *kept = *p;
    } else {
        problem_done(p);
    }
    *p = (struct problem){ .configs = { .choices = NULL } };
}

static int is_better(const struct search *s, double score, uint64_t bytes)
{
    double near = EQUAL_SPEED * s->q->n_memory;
    return !s->found || score > s->score + near || (score > s->score - near && bytes < s->bytes);
}

/* A score that a layout with a file so large has to reach to be better. */
static double least_score(const struct search *s, uint64_t bytes)
{
    double near = EQUAL_SPEED * s->q->n_memory;
    return !s->found ? -INFINITY : bytes < s->bytes ? s->score - near : s->score + near;
}

/* The logarithm of what the mean speed over batch sizes cannot exceed under a limit, added to the score. Each has its own configuration,
 * but by the paper's equations. */
static int mean_bound(struct problem *p, struct limits *lim, enum plan_cost cost, double *score, struct err *e)
{
    const int *sizes = inputs_batch_sizes;
    int n = p->space.in->n_batches, joint = cost == PLAN_COST_PAPER, r = 0;
    double time = 0, all = 0;
    for (int b = 0; b < n; b++)
        all += (double)configs_weight(lim, n, b) * sizes[b];
    for (int b = joint ? n - 1 : 0; b < n && r == 0; b++) {
        int64_t least = SOLVE_NEVER;
        lim->only_batch = joint ? 0 : b + 1;
        r = problem_fill(p, lim, e);
        for (int i = 0; i < p->configs.sp.n_configs && r == 0; i++) {
            const struct solve_config *c = &p->configs.sp.configs[i];
            if (solve_cores_ok(&p->configs.sp, c) && c->bound < least)
                least = c->bound;
        }
        time += (double)least * (joint ? 1 : (double)configs_weight(lim, n, b));
    }
    *score += log(all * 1e9 * SOLVE_TICKS_PER_NS / time);
    return r;
}

/* The score that a problem cannot exceed under the best plan's limits and contexts; with any_memory, whatever the memory. */
static int bound_score(const struct search *s, struct problem *p, int any_memory, double *score, struct err *e)
{
    int r = 0;
    *score = 0;
    for (int i = 0; i < s->best.n_limits && r == 0; i++) {
        struct limits lim;
        planning_limits(&s->best, &s->best.limits[i], &lim);
        memcpy(lim.cores, s->q->cores, sizeof lim.cores);
        planning_offer(s->q, p, &lim);
        if (any_memory)
            lim.memory_bytes = UINT64_MAX / 2;
        if (s->in->n_batches > 1)
            r = mean_bound(p, &lim, s->q->cost, score, e);
        else if ((r = problem_fill(p, &lim, e)) == 0)
            *score += log(planning_speed_bound(p, any_memory));
    }
    return r;
}

/* What has most in common with a layout: what an earlier search replayed of it, or what this one did of another. */
static const struct problem *like_of(const struct search *s, const struct layout *l)
{
    if (s->c->whole[s->at].space.in || s->c->sample[s->at].space.in)
        return s->c->whole[s->at].space.in ? &s->c->whole[s->at] : &s->c->sample[s->at];
    return s->subsample.space.in && s->subsample.space.shapes.l.form == l->form ? &s->subsample : &s->last;
}

/* Subsampled estimate of a layout's score. like: whose tables are copied where they are the same. *out: the caller's. */
static int subsampled_score(const struct search *s, const struct layout *l, const struct variants *variants, const struct problem *like,
                        struct problem *out, double *score, struct err *e)
{
    struct problem_request q = { .space.variants = variants->variant, .space.n_variants = variants->n,
                                 .policy = (int)s->best.limits[0].policy, .like = like,
                                 .space.every = SUBSAMPLE_EVERY };
    int r = problem_prepare(out, s->in, s->hw, l, &q, NULL, e);
    if (r == 0 && (r = bound_score(s, out, 0, score, e)) < 0)
        problem_done(out);
    return r;
}

/* The same for the best plan's layout. */
static int subsample_best(struct search *s, struct err *e)
{
    struct variants variants;
    struct problem p;
    int r = variants_new(s->q, s->in, &s->best.layout, &variants, e);
    if (r < 0)
        return r;
    const struct problem *like = s->c->whole[s->best_at].space.in ? &s->c->whole[s->best_at] : &s->last;
    if ((r = subsampled_score(s, &s->best.layout, &variants, like, &p, &s->subsampled, e)) == 0)
        problem_done(&p);
    variants_done(&variants);
    return r;
}

/* 1: the layout's subsampled estimate is faster than that of the best plan's. */
static int subsample_is_better(struct search *s, const struct layout *l, const struct variants *variants, struct err *e)
{
    struct problem p;
    double score;
    int r = isnan(s->subsampled) ? subsample_best(s, e) : 0;
    if (r < 0 || (r = subsampled_score(s, l, variants, like_of(s, l), &p, &score, e)) < 0)
        return r;
    leave(s, &s->subsample, &s->c->sample[s->subsample_at]);
    s->subsample = p;
    s->subsample_at = s->at;
    if (score >= s->subsampled + SUBSAMPLE_GAIN * s->q->n_memory)
        return 1;
    notes_add(s->notes, "%s layouts are left out: by every %dth layer they are no faster (--form %s plans one)",
              layout_form_name(l->form), SUBSAMPLE_EVERY, layout_form_name(l->form));
    return 0;
}

static int may_win(struct search *s, const struct layout *l, const struct variants *variants, struct err *e)
{
    struct problem whole;
    struct problem_request q = { .space.variants = variants->variant, .space.n_variants = variants->n, .policy = s->q->policy,
                                 .like = like_of(s, l), .space.every = SPACE_WHOLE_LAYERS };
    double score;
    if (!s->found || s->q->prove)
        return 1;
    int r = problem_prepare(&whole, s->in, s->hw, l, &q, NULL, e);
    if (r < 0)
        return r;
    r = bound_score(s, &whole, 1, &score, e);
    int replays = space_looks_up_any(&whole.space) && !s->in->equivalent &&
                  s->in->n_layers >= SUBSAMPLE_LAYERS && l->form != s->last.space.shapes.l.form;
    problem_done(&whole);
    if (r < 0 || score < least_score(s, variants_file_bytes(s->in, l)))
        return r;
    return replays ? subsample_is_better(s, l, variants, e) : 1;
}

/* The less of a limit's bound under two layouts, where they plan for the same context: what no layout can beat. */
static void merge_bounds(const struct request *q, const struct planning_bound *other, struct planning_bound *to)
{
    for (int i = 0; i < q->n_memory; i++)
        if (other[i].context == to[i].context && other[i].bound < to[i].bound)
            to[i].bound = other[i].bound;
}

static void say_layout(const struct search *s, const struct layout *l, const char *what, int64_t start_ns)
{
    log_debug("%s layout%s, clusters of %u: %s, %.2f s", layout_form_name(l->form), l->packed ? ", packed" : "", l->cluster_neurons, what,
              (double)(progress_now_ns() - start_ns) / 1e9);
    if (s->found)
        log_debug("so far the best: %s%s, %.4g tokens/s on average", layout_form_name(s->best.layout.form),
                  s->best.layout.packed ? ", packed" : "", exp(s->score / s->q->n_memory));
}

/* Solve a layout and keep what is best. */
static int search_layout(struct search *s, const struct layout *l, const struct variants *variants, struct err *e)
{
    struct problem p;
    struct plan plan;
    struct err now = { 0 };
    const struct problem *like = s->c->whole[s->at].space.in ? &s->c->whole[s->at] : &s->last;
    struct problem_request q = { .space.variants = variants->variant, .space.n_variants = variants->n,
                                 .policy = s->q->policy, .like = like };
    uint64_t bytes = variants_file_bytes(s->in, l);
    double score = 0;
    struct planning_bound bounds[PLAN_MAX_LIMITS];
    int r = problem_prepare(&p, s->in, s->hw, l, &q, s->notes, e);
    if (r < 0)
        return r;
    struct diagnosis numbers = { 0 };
    struct request mine = *s->q;
    mine.diagnosis = &numbers;
    r = planning_layout(&p, &mine, &s->chunks, s->q->prove ? -INFINITY : least_score(s, bytes), &plan, bounds, &score, &now);
    leave(s, &s->last, &s->c->whole[s->last_at]);
    s->last = p;
    s->last_at = s->at;
    if (r == ERR_INFEASIBLE) {
        if (s->why.code == 0 || (numbers.near_memory_bytes && numbers.near_memory_bytes < s->numbers.near_memory_bytes)) {
            s->why = now;
            s->numbers = numbers;
        }
        return 0;
    }
    if (r < 0)
        *e = now;
    if (r <= 0)
        return r;
    if (!is_better(s, score, bytes)) {
        merge_bounds(s->q, bounds, s->bounds);
        plan_done(&plan);
        return 0;
    }
    r = s->q->elastic ? planning_elastic(&s->last, s->q, &plan, bounds, e) : 0;
    if (r < 0 || (r = planning_notes(&s->last, s->q, &plan, e)) < 0) {
        plan_done(&plan);
        return r;
    }
    if (s->found)
        merge_bounds(s->q, s->bounds, bounds);
    plan_done(&s->best);
    s->best = plan;
    memcpy(s->bounds, bounds, sizeof bounds);
    s->score = score;
    s->subsampled = NAN;
    s->bytes = bytes;
    s->best_at = s->at;
    s->found = 1;
    return 0;
}

/* Which choices a gap says nothing of. */
static void note_gap(const struct search *s, int n_layouts)
{
    int reads = s->last.tables.table[0] != NULL && s->q->policy < 0;
    const char *other = n_layouts > 1 && reads ? "other layouts, and the eviction policy, which a sample of layers decides" :
                        n_layouts > 1 ? "other layouts" : "the eviction policy, which a sample of layers decides";
    if (s->found && s->best.layout.form == LAYOUT_TILES && s->q->form < 0 && !s->q->for_pack && n_layouts <= 2)
        notes_add(s->notes, "tiles keep the model's own bytes; layouts that store Down by neuron, in another type, were not "
                  "compared (--form bundle plans one)");
    if (!s->q->prove && (n_layouts > 1 || reads))
        notes_add(s->notes, "the gap leaves out %s; --prove plans and proves them too", other);
}

static int copy_notes(const struct notes *n, struct plan *p, struct err *e)
{
    int r = 0;
    for (int i = 0; i < n->n && r == 0; i++)
        r = plan_note(p, e, "%s", n->text[i]);
    return r;
}

static int search_layouts(struct search *s, struct err *e)
{
    int r = 0;
    for (s->at = 0; s->at < s->c->n && r == 0; s->at++) {
        const struct layout *l = &s->c->of[s->at];
        struct variants variants;
        int64_t start_ns = progress_now_ns();
        if ((r = variants_new(s->q, s->in, l, &variants, e)) < 0)
            break;
        int tried = r = may_win(s, l, &variants, e);
        if (r > 0)
            r = search_layout(s, l, &variants, e);
        if (r >= 0)
            say_layout(s, l, tried ? "solved" : "cannot win", start_ns);
        variants_done(&variants);
    }
    return r;
}

/* The best plan over the candidates, for all limits of a request. */
static int make_of(struct candidates *c, const struct request *q, const struct inputs *in, const struct hw *hw, struct notes *notes,
                   struct plan *out, struct err *e)
{
    struct search s = { .q = q, .in = in, .hw = hw, .notes = notes, .c = c, .score = -INFINITY, .subsampled = NAN };
    int r = search_layouts(&s, e);
    if (r == 0 && !s.found && q->min_tokens_per_s > 0 && !q->chunk) { /* a smaller chunk may be fast enough */
        s.chunks = (struct planning_chunks){ .by_speed = 1 };
        s.why.code = 0;
        r = search_layouts(&s, e);
    }
    note_gap(&s, c->n);
    leave(&s, &s.last, &c->whole[s.last_at]);
    leave(&s, &s.subsample, &c->sample[s.subsample_at]);
    if (r == 0 && !s.found) {
        *e = s.why;
        if (q->diagnosis)
            *q->diagnosis = s.numbers;
        return s.why.code;
    }
    for (int i = 0; i < s.best.n_limits && r == 0 && q->prove; i++) {
        s.best.limits[i].gap = s.bounds[i].objective > 0 ? 1 - (double)s.bounds[i].bound / (double)s.bounds[i].objective : 0;
        s.best.limits[i].gap_of_layouts = 1;
    }
    if (r == 0) {
        figures_measured(hw, notes);
        r = figures_doubts(hw, &s.best, notes, e);
    }
    if (r == 0)
        r = copy_notes(notes, &s.best, e);
    if (r < 0) {
        plan_done(&s.best);
        return r;
    }
    *out = s.best;
    return 0;
}

static void candidates_done(struct candidates *c)
{
    for (int i = 0; i < VARIANTS_LAYOUTS; i++) {
        problem_done(&c->whole[i]);
        problem_done(&c->sample[i]);
    }
}

/* A request for its i-th limit alone. */
static int make_alone(struct candidates *c, const struct request *q, int i, const struct inputs *in, const struct hw *hw,
                      struct notes *notes, struct plan *out, struct err *e)
{
    struct request one = *q;
    one.n_memory = 1;
    one.memory[0] = q->memory[i];
    return make_of(c, &one, in, hw, notes, out, e);
}

/* What each limit would have under a layout of its own. */
static int compare_own(struct candidates *c, const struct request *q, const struct inputs *in, const struct hw *hw, struct plan *p,
                       struct err *e)
{
    struct request plain = *q;
    int weight[PLAN_MAX_BATCHES], r = 0;
    plain.certificate = NULL;
    plain.diagnosis = NULL;
    request_weights(q, in->n_batches, weight);
    for (int i = 0; i < p->n_limits && r == 0; i++) {
        struct notes ignored = { 0 };
        struct plan alone = { 0 };
        if ((r = make_alone(c, &plain, i, in, hw, &ignored, &alone, e)) < 0) {
            r = r == ERR_INFEASIBLE ? 0 : r; /* then nothing is said */
            continue;
        }
        struct plan_own *own = &p->limits[i].own;
        *own = (struct plan_own){ alone.layout.form, alone.layout.packed, planning_mean_speed(&alone.limits[0], weight), 0 };
        double here = planning_mean_speed(&p->limits[i], weight) / (1 - p->limits[i].elastic.token_cost); /* without its group */
        own->cost = here < own->tokens_per_s ? 1 - here / own->tokens_per_s : 0; /* of equals the smaller file was taken */
        plan_done(&alone);
    }
    return r;
}

int planning_make(const struct request *q, const struct inputs *in, const struct hw *hw, struct notes *notes,
                  struct plan *out, struct err *e)
{
    struct candidates *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "out of memory for layouts");
    int r = variants_layouts(q, in, c->of, &c->n, e);
    c->shared = q->n_memory > 1 && c->n > 1;
    if (r == 0 && (r = make_of(c, q, in, hw, notes, out, e)) == 0 && c->shared && (r = compare_own(c, q, in, hw, out, e)) < 0) {
        plan_done(out);
        *out = (struct plan){ .n_limits = 0 };
    }
    candidates_done(c);
    free(c);
    return r;
}

int planning_make_each(const struct request *q, const struct inputs *in, const struct hw *hw, const struct notes *notes,
                       struct plan *out, struct err *e)
{
    struct candidates *c = calloc(1, sizeof *c);
    int r, i;
    if (!c)
        return err_set(e, ERR_NOMEM, "out of memory for layouts");
    r = variants_layouts(q, in, c->of, &c->n, e);
    c->shared = 1;
    for (i = 0; i < q->n_memory && r == 0; i++) {
        struct notes own = *notes;
        r = make_alone(c, q, i, in, hw, &own, &out[i], e);
    }
    for (int k = 0; r < 0 && k < i - 1; k++)
        plan_done(&out[k]);
    candidates_done(c);
    free(c);
    return r;
}

/* The floor under one layout; with refuse, ERR_INFEASIBLE, for there is less memory. */
static int floor_of(const struct request *q, const struct inputs *in, const struct hw *hw, const struct layout *l, int refuse,
                    uint64_t *bytes, struct err *e)
{
    struct problem p;
    struct variants variants;
    struct limits lim = { .memory_bytes = q->memory[0], .context = planning_context(q, in),
                          .max_batch = inputs_batch_sizes[in->n_batches - 1], .purpose = q->purpose, .kv_type = q->kv_type,
                          .prefill_chunk = q->chunk, .own_chunk = q->chunk > 0, .stream_tables = 1 };
    int r = variants_new(q, in, l, &variants, e);
    if (r < 0)
        return r;
    if ((r = problem_shape(&p, in, hw, l, variants.variant, variants.n, NULL, e)) == 0) {
        r = refuse ? diagnosis_infeasible(&p, &lim, SOLVE_MEMORY | SOLVE_CONTEXT, q->diagnosis, e) : diagnosis_floor(&p, &lim, bytes, e);
        problem_done(&p);
    }
    variants_done(&variants);
    return r;
}

static int least_floor(const struct request *q, const struct inputs *in, const struct hw *hw, struct layout *least, uint64_t *bytes,
                       struct err *e)
{
    struct layout layouts[VARIANTS_LAYOUTS];
    int n, r;
    *bytes = UINT64_MAX;
    if ((r = variants_layouts(q, in, layouts, &n, e)) < 0)
        return r;
    for (int i = 0; i < n && r == 0; i++) {
        uint64_t one = UINT64_MAX;
        if ((r = floor_of(q, in, hw, &layouts[i], 0, &one, e)) == 0 && one < *bytes) {
            *bytes = one;
            *least = layouts[i];
        }
    }
    return r;
}

int planning_floor(const struct request *q, const struct inputs *in, const struct hw *hw, uint64_t *bytes,
                   struct err *e)
{
    struct layout least;
    return least_floor(q, in, hw, &least, bytes, e);
}

int planning_ask(const struct request *q, const struct inputs *in, const struct hw *hw, uint64_t *bytes, struct err *e)
{
    struct request plain = *q;
    struct layout least;
    if (q->mode == PLAN_PREDICTED)
        plain.mode = PLAN_EXACT;
    plain.max_kl = -1;
    plain.predictor = -1;
    plain.recall = 0;
    int r = least_floor(&plain, in, hw, &least, bytes, e);
    return r < 0 || q->n_memory == 0 || q->memory[0] >= *bytes ? r : floor_of(&plain, in, hw, &least, 1, bytes, e);
}
