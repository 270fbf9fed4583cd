/* One layout under all of a request's memory limits, and what a plan says back. Which layout it is, is chosen in
 * planning_layouts.c. */
#include "planner/planning/planning.h"

#include "common/base/version.h"
#include "common/kernels/quant.h"
#include "common/offline/floor/floor.h"
#include "common/plan/plan_fit.h"
#include "common/plan/rest.h"
#include "common/plan/room.h"
#include "planner/cost/cost_prompt.h"
#include "planner/cost/cost_rest.h"
#include "planner/planning/diagnosis.h"
#include "planner/planning/planning_account.h"
#include "planner/planning/planning_alternatives.h"
#include "planner/planning/planning_batches.h"
#include "planner/planning/planning_chunk.h"
#include "planner/planning/planning_measured.h"
#include "planner/planning/planning_paper.h"
#include "planner/planning/planning_parts.h"
#include "planner/planning/planning_quality.h"
#include "planner/planning/variants.h"
#include "planner/solve/solve_z3.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_READ      (256u << 10)
#define EQUAL_PART      100 /* of an objective, that it may be more to count as equal */
#define PROMPT_PART     33  /* likewise, for the sake of prompts */

/* --- one limit --- */

/* What log speeds, of a limit and of `rest` more like it but for the memory, must add up to. */
struct incumbent {
    double score;
    int rest;
};

static int takes_incumbent(const struct problem *p, const struct incumbent *h)
{
    return p->space.in->n_batches > 1 ||
           log(planning_speed_bound(p, 0)) + (h->rest ? h->rest * log(planning_speed_bound(p, 1)) : 0) >= h->score;
}

/* By its own measure, whatever the least speed. */
static int choose_chunk(struct problem *p, const struct request *q, int by_speed, struct limits *lim, struct err *e)
{
    struct cost_choice least;
    double least_speed = lim->min_tokens_per_s;
    int r = account_least(&p->space, lim, &least, e);
    lim->min_tokens_per_s = by_speed ? least_speed : 0;
    if (r == 0)
        r = planning_chunk(p, lim, &least, q->prompt_weight, e);
    lim->min_tokens_per_s = least_speed;
    return r;
}

/* Is there memory for any configuration, however slow? */
static int has_memory(const struct problem *p)
{
    int fits = 0;
    for (int i = 0; i < p->configs.sp.n_configs && !fits; i++)
        fits = p->configs.sp.configs[i].bound != SOLVE_NEVER && solve_cores_ok(&p->configs.sp, &p->configs.sp.configs[i]);
    return fits;
}

/* *chunk: see planning_chunks. 1: solved, feasible or not; 0: it cannot take the incumbent. */
static int solve_one(struct problem *p, const struct request *q, const struct incumbent *h, int *chunk, int by_speed,
                     struct limits *lim, struct solve_result *res, struct err *e)
{
    int given = lim->prefill_chunk > 0;
    int r = given ? 0 : choose_chunk(p, q, by_speed, lim, e);
    for (;; lim->prefill_chunk /= 2) {
        if (r < 0 || (r = problem_fill(p, lim, e)) < 0)
            return r;
        if (!takes_incumbent(p, h))
            return 0;
        r = q->cost == PLAN_COST_PAPER ? planning_paper(p, q, lim, res, e) :
                                         planning_measured(p, &p->configs.sp, q, res, e);
        if (r < 0)
            return r;
        int fits = has_memory(p);
        if (res->feasible || (fits && !by_speed))
            *chunk = lim->prefill_chunk;
        if (res->feasible || given || (fits && !by_speed) || lim->prefill_chunk == 1 || !(res->core & SOLVE_MEMORY))
            return 1;
        solve_result_done(res);
    }
}

static void say_limit(const struct problem *p, const struct limits *lim, struct certificate *c)
{
    char text[320];
    const struct solve_problem *sp = &p->configs.sp;
    snprintf(text, sizeof text, "\n%s layout, units %s, %llu bytes of memory, context %d, prompts in chunks of %d\n"
             "%d layers, batch size%s%d, %d configurations; x: units of %d bytes, t: 1/%d ns",
             layout_form_name(p->space.shapes.l.form), p->space.shapes.l.packed ? "packed" : "padded to blocks",
             (unsigned long long)lim->memory_bytes, lim->context, lim->prefill_chunk, sp->n_layers, sp->n_batches > 1 ? "s: " : " ",
             sp->n_batches > 1 ? sp->n_batches : inputs_batch_sizes[p->configs.first_batch], sp->n_configs,
             SOLVE_BYTE_UNIT, SOLVE_TICKS_PER_NS);
    certificate_say(c, text);
}

/* Z3 may have proven more than what the configurations' multipliers refute. */
static int64_t provable_bound(const struct problem *p, int64_t bound)
{
    for (int i = 0; i < p->configs.sp.n_configs; i++) {
        const struct solve_config *c = &p->configs.sp.configs[i];
        if (solve_cores_ok(&p->configs.sp, c) && c->bound < bound)
            bound = c->bound;
    }
    return bound;
}

/* The proof of one limit under one layout. Where several batch sizes have a configuration each, it is in planning_batches.h, but that
 * nothing fits one sequence alone is a proof for all. */
static int certify(struct problem *p, const struct request *q, const struct limits *lim, struct solve_result *res, struct err *e)
{
    if (res->feasible && (q->cost == PLAN_COST_PAPER ? q->certificate != NULL : q->prove)) /* with or without the file, the same plan */
        res->bound = provable_bound(p, res->bound);
    if (!q->certificate || (lim->only_batch && res->feasible))
        return 0;
    say_limit(p, lim, q->certificate);
    certificate_claim(q->certificate, lim->memory_bytes, lim->context, res->feasible ? res->bound : SOLVE_NEVER);
    int r = configs_certify(&p->configs, &p->space, &p->residencies, q->certificate, e);
    if (r > 0)
        certificate_say(q->certificate, "not all of these are refuted: the claim is not proven");
    if (r >= 0 && res->feasible)
        certificate_result(q->certificate, &p->configs.sp, res);
    return r < 0 ? r : 0;
}

/* Does a step of the solution read neurons, in reads so small that many have to be on their way? Large ones, of tiles, keep the disk
 * busy by twos and threes, and each has a large buffer. */
static int reads_neurons(const struct problem *p, const struct solve_result *res)
{
    const struct layout_shapes *s = &p->space.shapes;
    int last = s->n_parts - 1;
    for (int l = 0; l < p->space.in->n_layers && s->kind[0].largest_read < LARGE_READ; l++) {
        const struct cost_residency k = problem_chosen(p, res, 0, l);
        uint32_t units = layout_of(s, l)->part[last].n_units * (uint32_t)p->space.in->n_blocks;
        for (int i = 0; i <= last; i++)
            if (k.hot[i] < (uint32_t)layout_of(s, l)->n_ff && (i < last || k.slots < units))
                return 1;
    }
    return 0;
}

/* A solution of one configuration in place of res: what was proven of all stays. */
static void take_instead(struct solve_result *now, struct solve_result *res)
{
    now->bound = res->bound;
    now->finished = res->finished;
    now->core = 0;
    solve_result_done(res);
    *res = *now;
}

/* Decoding may be bound by I/O, then threads make no difference to it; prompts are bound by compute. Of configurations
 * whose rounded solution costs at most 1 % more, take the one with most threads, of equals the fastest. Where neurons are
 * read, completions are looked at only between products: a queue that holds what is read meanwhile keeps the disk busy,
 * which (M4) and (M13) take for granted. There, of equal threads, the deepest queue is taken. The bound stays that of all
 * configurations, so the gap holds what this gives away. */
static int prefer_equals(struct problem *p, struct solve_result *res, struct err *e)
{
    int64_t most = res->objective + res->objective / EQUAL_PART;
    int r = 0, reads = reads_neurons(p, res);
    for (int i = 0; i < p->configs.sp.n_configs && r == 0; i++) {
        struct solve_problem one = p->configs.sp;
        struct solve_result now;
        const struct cost_choice *c = &p->configs.choices[i], *best = &p->configs.choices[res->config];
        int deeper = reads ? (c->depth > best->depth) - (c->depth < best->depth) : 0;
        if (!p->configs.sp.configs[i].curves || p->configs.sp.configs[i].bound > most || c->threads < best->threads ||
            i == res->config || (c->threads == best->threads && (deeper < 0 || c->lanes > best->lanes)))
            continue;
        one.configs = &p->configs.sp.configs[i];
        one.n_configs = 1;
        if ((r = solve_greedy(&one, &now, e)) < 0)
            break;
        if (now.feasible && now.objective <= most &&
            (c->threads > best->threads || deeper > 0 || now.objective < res->objective)) {
            now.config = i;
            take_instead(&now, res);
        } else {
            solve_result_done(&now);
        }
    }
    return r;
}

/* What a token of a prompt counts at a solution, in ticks, (M27). */
static int prompt_ticks(const struct problem *p, const struct limits *lim, double weight, const struct solve_result *res, double *out,
                        struct err *e)
{
    const struct space *s = &p->space;
    const struct cost_choice *c = &p->configs.choices[res->config];
    int tokens = lim->context < PLAN_PROMPT_TOKENS ? lim->context : PLAN_PROMPT_TOKENS;
    struct cost_residency *residencies = malloc((size_t)s->in->n_layers * sizeof *residencies);
    struct cost_prompt t;
    if (!residencies)
        return err_set(e, ERR_NOMEM, "out of memory for predictions");
    for (int l = 0; l < s->in->n_layers; l++)
        residencies[l] = problem_chosen(p, res, 0, l);
    int r = cost_prompt_of(s->hw, s->in, &s->shapes, c, residencies, lim->prefill_chunk, tokens, (struct cost_prompt_heights){ 0 }, &t, e);
    if (r == 0)
        *out = weight * SOLVE_TICKS_PER_NS * (t.attention_ns + t.ffn_ns + t.wait_ns) / tokens;
    free(residencies);
    return r;
}

/* Where the device's figures tell the time of prompts: of configurations whose rounded solution costs at most 1 / PROMPT_PART more,
 * the one with the least time of a decoded token and `weight` tokens of prompts. Where decoding waits for the disk a thread or a read
 * buffer less costs it nothing, and a prompt much. */
static int prefer_for_prompts(struct problem *p, const struct limits *lim, double weight, struct solve_result *res, struct err *e)
{
    int64_t most = res->objective + res->objective / PROMPT_PART;
    double best, ticks;
    int r = prompt_ticks(p, lim, weight, res, &best, e);
    best += (double)res->objective;
    for (int i = 0; i < p->configs.sp.n_configs && r == 0; i++) {
        struct solve_problem one = p->configs.sp;
        struct solve_result now;
        if (!p->configs.sp.configs[i].curves || p->configs.sp.configs[i].bound > most || (double)p->configs.sp.configs[i].bound >= best ||
            i == res->config || cost_has_engine(&p->configs.choices[i]))
            continue;
        one.configs = &p->configs.sp.configs[i];
        one.n_configs = 1;
        if ((r = solve_greedy(&one, &now, e)) < 0)
            break;
        now.config = i;
        if (!now.feasible || now.objective > most) {
            solve_result_done(&now);
            continue;
        }
        r = prompt_ticks(p, lim, weight, &now, &ticks, e);
        if (r == 0 && (double)now.objective + ticks < best) {
            best = (double)now.objective + ticks;
            take_instead(&now, res);
        } else {
            solve_result_done(&now);
        }
    }
    return r;
}

/* The same, and Z3 is asked about the residencies of what is taken instead. */
static int prefer_and_refine(struct problem *p, const struct request *q, const struct limits *lim, struct solve_result *res, struct err *e)
{
    const int found = res->config;
    int r = prefer_equals(p, res, e);
    if (r == 0 && q->cost == PLAN_COST_MEASURED && q->prompt_weight > 0 && p->configs.first_batch == 0 &&
        !cost_has_engine(&p->configs.choices[res->config]) && cost_prompt_known(p->space.hw))
        r = prefer_for_prompts(p, lim, q->prompt_weight, res, e);
    return r == 0 && res->config != found && q->cost == PLAN_COST_MEASURED ? planning_refine(p, q, res, e) : r;
}

/* One batch size of several by itself, in the closed form: where to begin. */
static int solve_alone(struct problem *p, struct solve_result *res, struct err *e)
{
    int r = solve_greedy(&p->configs.sp, res, e);
    if (r == 0 && res->feasible && (r = prefer_equals(p, res, e)) < 0)
        solve_result_done(res);
    return r;
}

static int fill_classes(const struct problem *p, const struct cost_choice *c, struct plan_class *out)
{
    int n = 0;
    for (int k = 0; k < c->n_classes && k < PLAN_MAX_CLASSES; k++) {
        snprintf(out[k].name, sizeof out[k].name, "%.31s", p->space.hw->n_classes ? p->space.hw->classes[k].name : "cpu");
        out[k].n = c->n[k];
        n = k + 1;
    }
    return n;
}

static int fill_batch(const struct problem *p, const struct planning_chosen *x, const struct plan *plan, int bi,
                      struct plan_batch *b, struct err *e)
{
    const struct cost_residency *residencies = x->residencies;
    const struct cost_choice *c = &x->choice[bi];
    size_t parts = (size_t)plan->n_parts, blocks = (size_t)plan->n_blocks;
    b->batch = inputs_batch_sizes[bi];
    b->threads = c->threads;
    b->queue_depth = c->depth;
    b->engine_neurons = c->height;
    b->engine_work = c->work;
    b->n_classes = fill_classes(p, c, b->classes);
    for (int l = 0; l < plan->n_layers; l++) {
        b->streamed[l] = (unsigned char)residencies[l].streamed;
        for (size_t i = 0; i < blocks * parts; i++)
            b->hot[(size_t)l * blocks * parts + i] = residencies[l].hot[i % parts];
        b->cold[(size_t)l * parts + parts - 1] = residencies[l].slots;
    }
    return problem_predict(p, c, bi, residencies, &b->predicted, e);
}

/* Areas for what is not in memory, ascending, that are tried: the larger, the more is read during attention, and the less is in memory. */
#define AREAS 2
static uint64_t area_of(const struct problem *p, int i)
{
    static const uint64_t parts[AREAS] = { 16, 4 };
    const struct layout_shapes *s = &p->space.shapes;
    uint64_t grain = (s->l.block_bytes > REST_PAGE ? s->l.block_bytes : REST_PAGE) * REST_SLOTS, least = rest_least_area(s);
    uint64_t area = rest_most_area(s) / parts[i] / grain * grain;
    return area < least ? least : area;
}

/* Does the accelerator fit beside the plan if prompts give it such work, and have such an area? */
static int fits_with(const struct problem *p, const struct limits *lim, const struct plan_limit *l, enum plan_work work, uint64_t area,
                     int *fits, struct err *e)
{
    struct plan_limit with = *l;
    struct budget b;
    with.prompt = (struct plan_prompt){ .n = 1, .with_engine = 1, .engine_work = { work }, .area_bytes = area };
    int r = planning_account(p, &with, lim->engine, &b, e);
    *fits = r == 0 && cost_memory_ok(b.total, lim->memory_bytes);
    return r;
}

/* Heights of prompts, where decoding has paid for the accelerator's memory or it fits beside what is planned, and their times. */
static int prompt_of(const struct problem *p, const struct limits *lim, const struct cost_choice *most,
                     const struct cost_residency *residencies, struct plan_limit *l, struct err *e)
{
    struct cost_choice c = *most;
    int fits = 0, r = 0;
    c.height = 0;
    c.engine = lim->engine;
    c.work = lim->prompt_work;
    if (c.engine && (r = fits_with(p, lim, l, c.work, 0, &fits, e)) == 0 && !fits && c.work) {
        c.work = PLAN_WORK_FFN;
        r = fits_with(p, lim, l, c.work, 0, &fits, e);
    }
    for (int i = AREAS - 1, room = 0; i >= 0 && r == 0 && fits && !room; i--) {
        r = fits_with(p, lim, l, c.work, area_of(p, i), &room, e);
        c.area_bytes = r == 0 && room ? area_of(p, i) : 0;
    }
    if (r == 0 && fits)
        r = problem_prompt_heights(p, &c, residencies, l, e);
    else if (r == 0 && c.engine && cost_prompt_engine_known(p->space.hw, c.engine, &p->space.shapes, p->space.in->h.d_model))
        notes_add(p->space.notes, "memory %llu: prompts have no neurons on accelerator '%.40s': its buffers do not fit beside the plan, "
                                  "and cost decoding more than they may bring", (unsigned long long)lim->memory_bytes, c.engine);
    return r < 0 ? r : problem_prompt(p, &c, residencies, l, &l->prompt, e);
}

double planning_load_rate(const struct hw *hw, enum plan_io io, enum plan_stat stat)
{
    const struct hw_read q = { .backend = io == PLAN_IO_URING ? HW_URING : io == PLAN_IO_PREAD ? HW_PREAD : HW_ANY_BACKEND,
                               .pattern = HW_SEQ, .block_bytes = PLAN_LOAD_PIECE, .queue_depth = PLAN_LOAD_DEPTH, .lanes = 1,
                               .core_class = -1 };
    return hw_storage_bytes_per_s(hw, &q, cost_stat(stat));
}

/* The limit itself has the most threads and the deepest queue of its batch sizes. */
static int fill_limit(const struct problem *p, const struct limits *lim, const struct planning_chosen *x,
                      const struct plan *plan, struct plan_limit *l, struct err *e)
{
    const struct cost_choice most = planning_largest(x->choice, x->n_batches), *c = &most;
    *l = (struct plan_limit){ .memory_bytes = lim->memory_bytes, .min_tokens_per_s = lim->min_tokens_per_s,
                              .context = c->context, .kv_type = c->kv_type, .purpose = lim->purpose,
                              .max_batch = inputs_batch_sizes[p->space.in->n_batches - 1],
                              .prefill_chunk = lim->prefill_chunk, .mode = c->mode, .act_q8 = c->act_q8,
                              .stream_tables = lim->stream_tables, .threads = c->threads, .io_lanes = c->lanes, .queue_depth = c->depth,
                              .policy = p->tables.policy[c->variant], .optimal = x->finished };
    l->n_coalesce = p->space.rules[c->rule].n;
    memcpy(l->coalesce, p->space.rules[c->rule].at, sizeof l->coalesce);
    if (c->model != PLAN_COST_PAPER && space_foresees(&p->space, c->mode))
        l->ahead = c->ahead ? PLAN_AHEAD_ON : PLAN_AHEAD_OFF;
    l->io = c->backend == HW_URING ? PLAN_IO_URING : c->backend == HW_PREAD ? PLAN_IO_PREAD : PLAN_IO_AUTO;
    l->load_bytes_per_s = planning_load_rate(p->space.hw, l->io, c->stat);
    l->gap = x->objective > 0 ? 1 - (double)x->bound / (double)x->objective : 0;
    l->n_classes = fill_classes(p, c, l->classes);
    int r = plan_limit_init(plan, l, p->space.in->n_batches, e);
    if (r == 0 && c->mode == PLAN_PREDICTED) {
        l->recall = c->predicted->recall;
        l->by_layer = c->predicted->recalls != NULL;
        for (int k = 0; k < plan->n_layers; k++) {
            const struct predicted *f = p->space.predicted[x->residencies[k].variant];
            l->recalls[k] = l->by_layer ? f->recalls[k] : 0;
            l->predictor[k] = f->input[k];
            l->always[k] = f->always[k];
        }
    }
    for (int b = 0; b < p->space.in->n_batches && r == 0; b++)
        r = fill_batch(p, x, plan, b, &l->batches[b], e);
    for (int b = 0; b < p->space.in->n_batches && r == 0; b++)
        if (memchr(l->batches[b].streamed, 1, (size_t)plan->n_layers))
            l->predictor_buffers = c->buffers;
    struct budget account;
    if (r == 0)
        r = prompt_of(p, lim, c, x->residencies, l, e);
    int cores = p->space.hw->n_classes ? p->space.hw->classes[0].n_cores : 1;
    cores = lim->cores[0] >= 0 && lim->cores[0] < cores ? lim->cores[0] : cores;
    if (r == 0)
        r = planning_alternatives(p, plan->cost, &x->choice[0], cores, x->residencies, l, e);
    if (r == 0)
        r = planning_account(p, l, plan_uses_engine(l) ? lim->engine : NULL, &account, e);
    if (r == 0) {
        l->account_bytes = account.total;
        l->floor_bytes = account.floor;
    }
    return r;
}

/* 1: planned; 0: it cannot take the incumbent. Over measured curves several batch sizes have a configuration each. */
static int solve_limit(struct problem *p, const struct request *q, const struct incumbent *h, int *chunk, int by_speed, struct limits *lim,
                       struct planning_chosen *x, struct err *e)
{
    struct solve_result res;
    int several = p->space.in->n_batches > 1 && q->cost == PLAN_COST_MEASURED;
    lim->only_batch = several;
    int r = solve_one(p, q, h, chunk, by_speed, lim, &res, e);
    if (r != 1)
        return r;
    if ((r = certify(p, q, lim, &res, e)) == 0 && !res.feasible)
        r = diagnosis_infeasible(p, lim, res.core, q->diagnosis, e);
    else if (r == 0 && (r = prefer_and_refine(p, q, lim, &res, e)) == 0)
        r = several ? planning_batches(p, q, lim, &res, solve_alone, x, e) : planning_chosen_of(p, lim, &res, x, e);
    if (r == 0)
        r = diagnosis_infeasible(p, lim, SOLVE_MEMORY | SOLVE_SPEED, q->diagnosis, e); /* fast enough for one sequence alone */
    solve_result_done(&res);
    return r;
}

/* --- memory for an accelerator of prompts --- */

static int uses_engine(const struct planning_chosen *x)
{
    const struct cost_choice c = planning_largest(x->choice, x->n_batches);
    return cost_has_engine(&c);
}

/* Would prompts have neurons on the accelerator if its memory were there, which no batch size pays for? */
static int prompts_want(const struct problem *p, const struct request *q, const struct limits *lim, const struct planning_chosen *x)
{
    return lim->engine && q->cost == PLAN_COST_MEASURED && q->prompt_weight > 0 && !uses_engine(x) &&
           cost_prompt_known(p->space.hw) &&
           cost_prompt_engine_known(p->space.hw, lim->engine, &p->space.shapes, p->space.in->h.d_model);
}

/* The account of what was chosen, with the accelerator. */
static int fits_beside(const struct problem *p, const struct limits *lim, const struct planning_chosen *x, int *fits, struct err *e)
{
    const struct cost_choice c = planning_largest(x->choice, x->n_batches);
    struct limits with = *lim;
    struct budget b;
    with.reserved = 1;
    int r = account_of(&p->space, &c, &with, x->residencies, &b, e);
    *fits = r == 0 && cost_memory_ok(b.total, lim->memory_bytes);
    return r;
}

/* The limit again, the accelerator's memory set aside. 1: planned; 0: nothing fits, or is as fast as asked for. */
static int solve_reserved(struct problem *p, const struct request *q, const struct limits *lim, struct planning_chosen *x, struct err *e)
{
    const struct incumbent any = { -INFINITY, 0 };
    struct request quiet = *q;
    struct limits with = *lim;
    struct solve_result res;
    int chunk = lim->prefill_chunk;
    quiet.certificate = NULL;
    with.reserved = 1;
    int r = solve_one(p, &quiet, &any, &chunk, 0, &with, &res, e);
    if (r != 1)
        return r;
    r = res.feasible ? prefer_and_refine(p, &quiet, &with, &res, e) : 0;
    if (r == 0 && res.feasible)
        r = with.only_batch ? planning_batches(p, &quiet, &with, &res, solve_alone, x, e) : planning_chosen_of(p, &with, &res, x, e);
    solve_result_done(&res);
    return r;
}

/* Ticks of a decoded token, by the weights of batch sizes, and of `weight` tokens of prompts in passes of the chunk, (M27), with the
 * accelerator or without. */
static int both_ticks(const struct problem *p, const struct limits *lim, double weight, const struct planning_chosen *x, int with,
                      double *out, struct err *e)
{
    int most = lim->context < PLAN_PROMPT_TOKENS ? lim->context : PLAN_PROMPT_TOKENS, n = p->space.in->n_batches;
    int tokens = lim->prefill_chunk < most ? lim->prefill_chunk : most;
    struct cost_choice c = planning_largest(x->choice, x->n_batches);
    struct problem_heights at;
    double all = 0;
    c.engine = lim->engine;
    c.work = lim->prompt_work;
    c.area_bytes = lim->area_bytes;
    for (int b = 0; b < n; b++)
        all += (double)configs_weight(lim, n, b) * inputs_batch_sizes[b];
    int r = problem_pass(p, &c, x->residencies, tokens, &at, e);
    if (r == 0)
        *out = (double)x->objective / all +
               weight * SOLVE_TICKS_PER_NS * (with ? fmin(at.ns[at.best], at.rest_ns) : at.without_ns) / tokens;
    return r;
}

/* The solution within these limits, where it takes no more ticks than `most` and is better than *best, ticks with prompts: 1. */
static int try_reserved(struct problem *p, const struct request *q, const struct limits *with, int64_t most, struct planning_chosen *x,
                        double *best, struct err *e)
{
    struct planning_chosen now = { 0 };
    double after;
    int r = solve_reserved(p, q, with, &now, e);
    if (r == 1 && (r = both_ticks(p, with, q->prompt_weight, &now, 1, &after, e)) == 0 && now.objective <= most && after < *best) {
        now.bound = x->bound;
        now.finished = x->finished;
        *best = after;
        planning_chosen_done(x);
        *x = now;
        return 1;
    }
    planning_chosen_done(&now);
    return r < 0 ? r : 0;
}

/* Where decoding gives the accelerator nothing and its memory is not there, neurons may give way to it for the sake of prompts: if a
 * decoded token takes at most 1 / PROMPT_PART more, and with `weight` tokens of prompts less. The bound stays that of all plans. */
static int reserve_engine(struct problem *p, const struct request *q, const struct limits *lim, struct planning_chosen *x, struct err *e)
{
    double before;
    int fits = 0, r = 0;
    if (!prompts_want(p, q, lim, x) || (r = fits_beside(p, lim, x, &fits, e)) < 0 || fits ||
        (r = both_ticks(p, lim, q->prompt_weight, x, 0, &before, e)) < 0)
        return r;
    r = try_reserved(p, q, lim, x->objective + x->objective / PROMPT_PART, x, &before, e);
    return r < 0 ? r : 0;
}

/* Likewise for an area that what is not in memory is read through for the accelerator, where that makes prompts faster by more than
 * decoding loses, which is no more ticks than `most`. An area that fits beside the plan as it is costs nothing. */
static int wants_area(const struct problem *p, const struct request *q, const struct limits *lim, const struct planning_chosen *x,
                      int *there, struct err *e)
{
    struct limits with = *lim;
    int fits = 0, r;
    if (!lim->engine || q->cost != PLAN_COST_MEASURED || q->prompt_weight <= 0 || lim->prefill_chunk < COST_PROMPT_BATCH ||
        !cost_prompt_known(p->space.hw) || !cost_rest_known(p->space.hw, p->space.in, lim->engine) ||
        !cost_prompt_engine_known(p->space.hw, lim->engine, &p->space.shapes, p->space.in->h.d_model))
        return 0;
    with.area_bytes = area_of(p, 0);
    if ((r = fits_beside(p, lim, x, there, e)) < 0 || (r = fits_beside(p, &with, x, &fits, e)) < 0)
        return r;
    *there |= uses_engine(x);
    return !fits;
}

static int reserve_area(struct problem *p, const struct request *q, const struct limits *lim, int64_t most, struct planning_chosen *x,
                        struct err *e)
{
    struct limits with = *lim;
    double best = 0;
    int there = 0, got = 1, r = wants_area(p, q, lim, x, &there, e);
    if (r <= 0 || (r = both_ticks(p, lim, q->prompt_weight, x, there, &best, e)) < 0)
        return r;
    for (int i = 0; i < AREAS && got > 0; i++) {
        with.area_bytes = area_of(p, i);
        got = try_reserved(p, q, &with, most, x, &best, e);
    }
    return got < 0 ? got : 0;
}

/* --- one layout --- */

static void fill_head(const struct problem *p, const struct request *q, struct plan *plan)
{
    const struct inputs *in = p->space.in;
    *plan = (struct plan){ .tool = "thermo-plan " THERMO_VERSION, .seed = REQUEST_SEED,
                           .rlimit = q->rlimit, .cost = q->cost, .stat = q->stat, .model_hash = in->model_hash,
                           .trace_hash = in->trace_hash,
                           .order_hash = inputs_order_hash(in, p->space.shapes.l.form),
                           .sort = p->space.shapes.l.form == LAYOUT_TILES ? LAYOUT_HEAT : in->sort,
                           .layout_hash = layout_hash(&p->space.shapes.l), .hardware_hash = p->space.hw->hash,
                           .n_layers = in->n_layers, .n_blocks = in->n_blocks, .n_ff = in->h.n_ff,
                           .d_model = in->h.d_model, .layout = p->space.shapes.l, .n_parts = p->space.shapes.n_parts };
    for (int l = 0; l < in->n_layers && in->h.widths[0]; l++)
        plan->widths[l] = in->h.widths[l];
    request_record(q, p->space.hw, in->n_batches, &plan->request);
    solve_z3_version(plan->solver, sizeof plan->solver);
    snprintf(plan->model_name, sizeof plan->model_name, "%s", in->name);
    snprintf(plan->device, sizeof plan->device, "%.63s", p->space.hw->name);
}

/* What is quantised anew, by pairs of types: Down, for it is stored by neuron, and Gate where a type was given. What that costs only the
 * weights can say. */
static int note_requantised(const struct inputs *in, int role, struct plan *plan, struct err *e)
{
    uint8_t seen[MODEL_MAX_LAYERS] = { 0 };
    int r = 0, gate = role == LAYOUT_GATE;
    int kept = (in->h.down_by_neuron && !gate) || plan->layout.form == LAYOUT_TILES;
    for (int first = 0; first < in->n_layers && r == 0 && !kept; first++) {
        const uint32_t *kind = plan->layout.type[plan->layout.kind[first]];
        uint32_t from = in->layers[first].ffn_type[role], to = kind[role];
        int n = 0;
        if (seen[first] || quant_traits(to)->block_elems == 1 || (gate && from == to))
            continue;
        for (int l = first; l < in->n_layers; l++)
            if (in->layers[l].ffn_type[role] == from && plan->layout.type[plan->layout.kind[l]][role] == to) {
                seen[l] = 1;
                n++;
            }
        r = plan_note(plan, e, "%s: quantised anew from %s to %s in %d of %d layers; thermo-pack measures what "
                               "that costs, %s chooses another type", gate ? "Gate" : "Down is stored by neuron", quant_traits(from)->name,
                      quant_traits(to)->name, n, in->n_layers, gate ? "--gate-type" : "--down-type");
    }
    return r;
}

int planning_context(const struct request *q, const struct inputs *in)
{
    return floor_context(&in->h, q->context);
}

static double always_share(const struct plan_limit *l, const struct plan *plan)
{
    double sum = 0;
    for (int k = 0; k < plan->n_layers; k++)
        sum += 100.0 * l->always[k] / plan_n_ff(plan, k) / plan->n_layers;
    return sum;
}

static int note_budget(const struct inputs *in, const struct plan_limit *l, struct plan *plan, struct err *e)
{
    double most = l->recall;
    for (int k = 0; k < plan->n_layers; k++)
        most = l->predictor[k] >= 0 && l->recalls[k] > most ? l->recalls[k] : most;
    return plan_note(plan, e, "memory %llu: predicted mode at recalls of %g to %g by layer, %.3g %% of neurons exempt: mean KL %.3g nats "
                              "from exact mode, by what layers lose, measured on %llu tokens",
                     (unsigned long long)l->memory_bytes, l->recall, most, always_share(l, plan),
                     planning_quality_kl(in, l->predictor, l->always, l->recall, plan_recalls(l)),
                     (unsigned long long)(in->n_quality ? in->quality[0].tokens : 0));
}

/* What a predicted limit costs in quality, as measured where all layers see one input; where they differ, what bounds it. */
static int note_quality(const struct inputs *in, const struct plan_limit *l, struct plan *plan, struct err *e)
{
    const struct inputs_quality *row = NULL;
    int count[PREDICT_INPUTS] = { 0 }, used[PREDICT_INPUTS], n = 0, known = 1;
    unsigned long long memory = l->memory_bytes;
    char text[160] = "";
    if (l->by_layer)
        return note_budget(in, l, plan, e);
    for (int k = 0; k < plan->n_layers; k++)
        if (l->predictor[k] >= 0)
            count[l->predictor[k]]++;
    for (int i = 0; i < PREDICT_INPUTS; i++) {
        if (!count[i])
            continue;
        used[n++] = i;
        row = variants_quality(in, i, l->recall);
        known &= row != NULL;
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s in %d layers (%.3g if in all)", at ? ", " : "",
                 predict_input_name((enum predict_input)i), count[i], row ? row->kl_mean : 0);
    }
    if (!known || !row)
        return plan_note(plan, e, "memory %llu: predicted mode at recall %g; what that costs in quality was not measured",
                         memory, l->recall);
    if (n > 1)
        return plan_note(plan, e, "memory %llu: predicted mode at recall %g, input %s; the mix was not measured: mean KL at "
                                  "most %.3g nats from exact mode, the sum of both, as far as layers' shares add up",
                         memory, l->recall, text, variants_mixed_kl(in, used, n, l->recall));
    return plan_note(plan, e, "memory %llu: predicted mode at recall %g; measured at %g on %llu tokens, no neuron exempt (here %.3g %%): "
                              "mean KL %.3g nats from exact mode, same likeliest token %.2f %%, perplexity x %.4f",
                     memory, l->recall, row->target, (unsigned long long)row->tokens, always_share(l, plan), row->kl_mean, 100 * row->top1,
                     row->ppl_ratio);
}

double planning_mean_speed(const struct plan_limit *l, const int *weight)
{
    double sum = 0;
    int all = 0;
    for (int b = 0; b < l->n_batches; b++) {
        sum += weight[b] / l->batches[b].predicted.tokens_per_s;
        all += weight[b];
    }
    return all / sum;
}

const char *planning_engine(const struct request *q, const struct problem *p)
{
    const char *name = p->space.in->h.fold ? NULL : request_engine(q, p->space.hw);
    for (int k = 0; k < p->space.shapes.l.n_kinds && name; k++)
        if (!cost_engine_known(p->space.hw, name, &p->space.shapes.kind[k], p->space.in->h.d_model))
            return NULL;
    return name;
}

enum plan_work planning_prompt_work(const struct problem *p, const char *engine)
{
    return engine && (cost_work_known(p->space.hw, p->space.in, engine, COST_PROMPT_BATCH) & PLAN_WORK_ATTENTION) ? PLAN_WORK_ATTENTION :
                                                                                                                    PLAN_WORK_FFN;
}

void planning_offer(const struct request *q, const struct problem *p, struct limits *lim)
{
    lim->engine = planning_engine(q, p);
    lim->prompt_work = planning_prompt_work(p, lim->engine);
}

static int known_driver(const struct hw *hw, const char *engine)
{
    int i = hw_accel_of(hw, engine);
    return i >= 0 && hw->accels[i].driver_bytes > 0;
}

/* The plan names the accelerator where any batch size or prompt uses it. */
static int name_engine(const struct problem *p, const struct request *q, struct plan *plan, struct err *e)
{
    const char *engine = request_engine(q, p->space.hw);
    int used = 0;
    for (int i = 0; i < plan->n_limits; i++)
        used |= plan_uses_engine(&plan->limits[i]);
    if (!engine)
        return 0;
    if (p->space.in->h.fold)
        return plan_note(plan, e, "accelerator '%.40s': the model's weights are folded, and the processor alone transforms their inputs: "
                                  "it gets no neurons", engine);
    if (!planning_engine(q, p))
        return plan_note(plan, e, "accelerator '%.40s': its figures do not tell the model's types, so it gets no neurons: thermo-profile "
                                  "hardware --only engine --types measures them", engine);
    if (!used)
        return plan_note(plan, e, "accelerator '%.40s': it makes no batch size faster by its figures%s, and gets no neurons", engine,
                         cost_prompt_engine_known(p->space.hw, engine, &p->space.shapes, p->space.in->h.d_model) ? ", and no prompt" : "");
    snprintf(plan->engine, sizeof plan->engine, "%.63s", engine);
    return known_driver(p->space.hw, engine) ? 0 :
           plan_note(plan, e, "accelerator '%.40s': what its driver takes was not measured and is not in the account, which has its "
                              "buffers; the runtime looks, and keeps so much less of neurons", engine);
}

/* The solution's problem once more, with the one variant of its layers, which computes what is in memory of every neuron of an FFN
 * without a prediction: that is known only now. The residencies stay. A limit on quality is a budget then, where losses are known. */
static int compute_resident(const struct problem *p, const struct request *q, struct planning_chosen *x, struct problem *out, struct err *e)
{
    const struct space *s = &p->space;
    const struct cost_choice *c = &x->choice[0];
    size_t n = (size_t)s->in->n_layers;
    signed char *input = malloc(n);
    uint32_t *always = malloc(n * sizeof *always), *held = malloc(n * sizeof *held);
    double *recalls = malloc(n * sizeof *recalls);
    struct space_variant one = { PLAN_PREDICTED, c->predicted->recall, NULL, input, always, 0, 0 };
    const struct problem_request again = { .space = { &one, 1, &s->rules[c->rule], s->every }, .policy = (int)p->tables.policy[c->variant],
                                           .like = p };
    int r = input && always && held && recalls ? 0 : err_set(e, ERR_NOMEM, "out of memory for variants");
    for (size_t l = 0; l < n && r == 0; l++) {
        const struct cost_residency *k = &x->residencies[l];
        const struct predicted *f = s->predicted[k->variant];
        uint32_t hot = k->hot[0];
        for (int i = 1; i < s->shapes.n_parts; i++)
            hot = k->hot[i] < hot ? k->hot[i] : hot;
        input[l] = f->input[l];
        always[l] = input[l] >= 0 && hot > f->always[l] ? hot : f->always[l];
        held[l] = hot + k->slots * layout_of(&s->shapes, (int)l)->part[s->shapes.n_parts - 1].neurons_per_unit / (uint32_t)s->in->n_blocks;
        held[l] = held[l] < (uint32_t)inputs_n_ff(s->in, (int)l) ? held[l] : (uint32_t)inputs_n_ff(s->in, (int)l);
    }
    if (r == 0 && q->max_kl >= 0 && q->recall <= 0 &&
        (r = planning_quality_recalls(s->in, &s->shapes, input, always, held, q->max_kl, recalls, e)) == 1) {
        one.recalls = recalls;
        one.recall = 1;
        for (size_t l = 0; l < n; l++)
            one.recall = fmin(one.recall, recalls[l]);
    }
    if (r >= 0)
        r = problem_prepare(out, s->in, s->hw, &s->shapes.l, &again, s->notes, e);
    for (int b = 0; b < x->n_batches && r == 0; b++) {
        x->choice[b].predicted = out->space.predicted[0];
        x->choice[b].variant = x->choice[b].rule = 0;
    }
    for (size_t l = 0; l < n && r == 0; l++)
        x->residencies[l].variant = 0;
    free(input);
    free(always);
    free(held);
    free(recalls);
    return r;
}

/* A limit whose rest is known. 1: planned; 0: it cannot take the incumbent. */
static int plan_limit_of(struct problem *p, const struct request *q, const struct incumbent *h, int *chunk, int by_speed,
                         struct limits *lim, const struct plan *plan, struct planning_bound *bound, struct plan_limit *out, struct err *e)
{
    struct planning_chosen x = { 0 };
    int r = solve_limit(p, q, h, chunk, by_speed, lim, &x, e);
    if (r != 1)
        return r;
    int64_t most = x.objective + x.objective / PROMPT_PART;
    struct problem own = { 0 };
    if ((r = reserve_engine(p, q, lim, &x, e)) == 0 && (r = reserve_area(p, q, lim, most, &x, e)) == 0) {
        int resident = q->always_resident && x.choice[0].mode == PLAN_PREDICTED;
        r = resident ? compute_resident(p, q, &x, &own, e) : 0;
        if (r == 0)
            r = fill_limit(resident ? &own : p, lim, &x, plan, out, e);
    }
    problem_done(&own);
    *bound = (struct planning_bound){ x.bound, x.objective, lim->context };
    planning_chosen_done(&x);
    return r < 0 ? r : 1;
}

int planning_within(struct problem *p, const struct request *q, const struct limits *lim, const struct plan *plan,
                    struct planning_bound *bound, struct plan_limit *out, struct err *e)
{
    const struct incumbent any = { -INFINITY, 0 };
    struct request quiet = *q;
    struct limits own = *lim;
    int chunk = lim->prefill_chunk;
    quiet.certificate = NULL;
    quiet.diagnosis = NULL;
    int r = plan_limit_of(p, &quiet, &any, &chunk, 0, &own, plan, bound, out, e);
    return r == ERR_INFEASIBLE ? 0 : r;
}

/* Embeddings of which tokens look rows up are in memory where all that is in memory with them fits, in the least configuration; else
 * neurons have their place: a row is one read, and what a table has room for saves more. */
static int choose_tables(const struct problem *p, struct limits *lim, struct err *e)
{
    const struct space *s = &p->space;
    struct limits with = *lim;
    struct cost_choice c;
    struct budget all, none, streamed;
    struct cost_residency *residencies = calloc((size_t)s->in->n_layers, sizeof *residencies);
    if (!residencies)
        return err_set(e, ERR_NOMEM, "out of memory for the account");
    for (int l = 0; l < s->in->n_layers; l++)
        for (int i = 0; i < s->shapes.n_parts; i++)
            residencies[l].hot[i] = (uint32_t)layout_of(&s->shapes, l)->n_ff;
    with.prefill_chunk = 1;
    with.stream_tables = 0;
    int r = account_least(s, &with, &c, e);
    r = r < 0 ? r : account_of(s, &c, &with, residencies, &all, e);
    r = r < 0 ? r : account_of(s, &c, &with, NULL, &none, e);
    with.stream_tables = 1;
    r = r < 0 ? r : account_of(s, &c, &with, NULL, &streamed, e);
    free(residencies);
    lim->stream_tables = r == 0 && all.total > lim->memory_bytes && streamed.total < none.total;
    return r;
}

int planning_layout(struct problem *p, const struct request *q, struct planning_chunks *chunks, double least, struct plan *out,
                    struct planning_bound *bounds, double *score, struct err *e)
{
    struct plan plan;
    int r = 1;
    fill_head(p, q, &plan);
    plan.limits = calloc((size_t)q->n_memory, sizeof *plan.limits);
    if (!plan.limits)
        return err_set(e, ERR_NOMEM, "out of memory for a plan");
    *score = 0;
    for (int i = 0; i < q->n_memory && r == 1; i++) {
        struct limits lim = { .memory_bytes = q->memory[i], .min_tokens_per_s = q->min_tokens_per_s, .purpose = q->purpose,
                                      .context = planning_context(q, p->space.in),
                                      .max_batch = inputs_batch_sizes[p->space.in->n_batches - 1],
                                      .prefill_chunk = q->chunk ? q->chunk : chunks->of[i],
                                      .own_chunk = q->chunk > 0, .kv_type = q->kv_type, .act_q8 = q->act_q8,
                                      .model = q->cost, .stat = q->stat };
        memcpy(lim.cores, q->cores, sizeof lim.cores);
        planning_offer(q, p, &lim);
        request_weights(q, p->space.in->n_batches, lim.weight);
        const struct incumbent h = { least - *score, q->n_memory - 1 - i };
        plan.n_limits = i + 1;
        if ((r = choose_tables(p, &lim, e)) < 0)
            break;
        r = plan_limit_of(p, q, &h, &chunks->of[i], chunks->by_speed, &lim, &plan, &bounds[i], &plan.limits[i], e);
        *score += r == 1 ? log(planning_mean_speed(&plan.limits[i], lim.weight)) : 0;
    }
    if (r != 1) {
        plan_done(&plan);
        return r;
    }
    *out = plan;
    return 1;
}

int planning_notes(const struct problem *p, const struct request *q, struct plan *plan, struct err *e)
{
    int r = 0;
    for (int i = 0; i < plan->n_limits && r == 0; i++)
        if (plan->limits[i].mode == PLAN_PREDICTED)
            r = note_quality(p->space.in, &plan->limits[i], plan, e);
    if (r == 0)
        r = name_engine(p, q, plan, e);
    r = r < 0 ? r : note_requantised(p->space.in, LAYOUT_GATE, plan, e);
    return r < 0 ? r : note_requantised(p->space.in, LAYOUT_DOWN, plan, e);
}

/* --- back from a plan --- */

int planning_problem(const struct plan *p, const struct plan_limit *l, const struct inputs *in, const struct hw *hw,
                     struct notes *notes, struct problem *out, struct err *e)
{
    struct space_variant variant = { l->mode, l->recall, plan_recalls(l), l->predictor, l->always, 0, 0 };
    struct coalesce coalesce;
    planning_coalesce(l, &coalesce);
    struct problem_request q = { .space.variants = &variant, .space.n_variants = 1, .policy = (int)l->policy, .space.coalesce = &coalesce };
    return problem_prepare(out, in, hw, &p->layout, &q, notes, e);
}

int planning_text(const struct request *q, const struct inputs *in, const struct hw *hw, const struct plan *plan,
                  const struct limits *lim, FILE *out, struct err *e)
{
    struct variants variants;
    struct problem p;
    if (plan->n_limits != 1 || plan->limits[0].n_batches != 1)
        return err_set(e, ERR_USAGE, "--smt2 writes the problem of one plan: it goes with one limit of --memory and with --max-batch 1");
    int r = variants_new(q, in, &plan->layout, &variants, e);
    if (r < 0)
        return r;
    struct problem_request request = { .space.variants = variants.variant, .space.n_variants = variants.n, .policy = q->policy };
    r = problem_prepare(&p, in, hw, &plan->layout, &request, NULL, e);
    if (r == 0) {
        struct limits own = *lim;
        planning_offer(q, &p, &own);
        r = q->cost == PLAN_COST_PAPER ? planning_paper_write(&p, q, plan, &own, out, e) :
                                        planning_measured_write(&p, q, plan, &own, out, e);
        problem_done(&p);
    }
    variants_done(&variants);
    return r;
}

void planning_coalesce(const struct plan_limit *l, struct coalesce *out)
{
    *out = (struct coalesce){ .n = l->n_coalesce };
    memcpy(out->at, l->coalesce, sizeof out->at);
}

int planning_same_problem(const struct plan *p, const struct plan_limit *a, const struct plan_limit *b)
{
    size_t n = (size_t)p->n_layers;
    return a->mode == b->mode && a->policy == b->policy && plan_same_recall(p, a, b) &&
           plan_same_coalesce(a, b) && !memcmp(a->predictor, b->predictor, n) && !memcmp(a->always, b->always, n * sizeof *a->always);
}

void planning_choice(const struct plan *p, const struct plan_limit *l, const struct plan_batch *b, struct cost_choice *out)
{
    const struct plan_class *classes = b ? b->classes : l->classes;
    int depth = b ? b->queue_depth : l->queue_depth;
    *out = (struct cost_choice){ .mode = l->mode, .model = p->cost, .stat = p->stat, .n_classes = b ? b->n_classes : l->n_classes,
                                 .threads = b ? b->threads : l->threads, .depth = depth,
                                 .lanes = l->io_lanes < depth ? l->io_lanes : depth, .buffers = l->predictor_buffers, .act_q8 = l->act_q8,
                                 .kv_type = l->kv_type, .context = l->context, .stream_tables = l->stream_tables,
                                 .read_bytes = plan_read_bytes(l) };
    if (b && (b->engine_neurons || b->engine_work)) {
        out->engine = p->engine;
        out->height = b->engine_neurons;
        out->work = b->engine_work;
    }
    out->ahead = l->ahead == PLAN_AHEAD_ON;
    out->backend = l->io == PLAN_IO_URING ? HW_URING : l->io == PLAN_IO_PREAD ? HW_PREAD : HW_ANY_BACKEND;
    for (int k = 0; k < out->n_classes; k++)
        out->n[k] = classes[k].n;
}

void planning_limits(const struct plan *p, const struct plan_limit *l, struct limits *out)
{
    *out = (struct limits){ .memory_bytes = l->memory_bytes, .min_tokens_per_s = l->min_tokens_per_s,
                                    .context = l->context, .max_batch = l->max_batch, .purpose = l->purpose,
                                    .prefill_chunk = l->prefill_chunk, .kv_type = l->kv_type, .act_q8 = l->act_q8,
                                    .stream_tables = l->stream_tables, .model = p->cost, .stat = p->stat };
    memcpy(out->weight, p->request.weight, sizeof out->weight);
    for (int k = 0; k < HW_MAX_CLASSES; k++)
        out->cores[k] = -1;
}

void planning_residencies(const struct plan *p, const struct plan_batch *b, struct cost_residency *residencies)
{
    for (int l = 0; l < p->n_layers; l++) {
        residencies[l] = (struct cost_residency){ .slots = plan_cold(p, b, l, p->n_parts - 1), .streamed = b->streamed[l] };
        for (int q = 0; q < p->n_parts; q++)
            residencies[l].hot[q] = plan_hot(p, b, l, 0, q);
    }
}

const char *planning_limit_engine(const struct plan *p, const struct plan_limit *l)
{
    return plan_uses_engine(l) ? p->engine : NULL;
}
