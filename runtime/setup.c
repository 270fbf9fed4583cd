/* A plan says what was best on the machine that it was made for; this one may have less. First the limit gives way (the largest
 * that fits), then what the limit says (common/plan/plan_fit.h); the same inputs always give the same outcome. */
#include "runtime/schemas.h"
#include "runtime/setup_impl.h"

#include "common/base/cpu.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/kernels/kernels.h"
#include "common/plan/plan_fit.h"

#include "runtime/inputs.h"
#include "common/base/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const act_names[] = { "f32", "q8", NULL };
static const char *const io_names[] = { "auto", "io_uring", "pread", NULL };
static const char *const ahead_names[] = { "off", "on", NULL };
static const char *const mode_names[] = { "exact", "dense", "predicted", NULL };

#define ARGUMENTS_BYTES (64u << 10) /* of the command line and the environment, what PROCESS has room for */
#define KEYS_BYTES (32u << 10) /* of an ordinary file, at most */
#define RECALL 0.99 /* where predicted mode is asked for beside the plan */

void setup_args_init(struct setup_args *a)
{
    *a = (struct setup_args){ .cpu = "auto", .kv = -1, .act = -1, .io = -1, .mode = -1, .ahead = -1 };
}

int setup_options(struct opt *rows, struct setup_args *a)
{
    const struct opt all[] = {
        { .name = "model", .type = OPT_STRING, .dest = &a->model, .arg = "FILE", .file = OPT_READ, .required = 1,
          .help = "Packed model, from thermo-pack." },
        { .name = "plan", .type = OPT_STRING, .dest = &a->plan, .arg = "FILE", .file = OPT_READ, .required = 1,
          .help = "Plan made for it, from thermo-plan." },
        { .name = "memory", .type = OPT_SIZE, .dest = &a->memory, .arg = "SIZE",
          .help = "Ceiling for everything: weights, KV cache, code. The plan's largest limit that fits is used.",
          .def = "the plan's largest limit" },
        { .name = "threads", .short_name = 't', .type = OPT_INT, .dest = &a->threads, .arg = "N", .min = 1,
          .max = BUDGET_MAX_THREADS, .help = "Compute threads.", .def = "the plan's" },
        { .name = "context", .short_name = 'c', .type = OPT_INT, .dest = &a->context, .arg = "N", .min = 1,
          .max = MODEL_MAX_CONTEXT, .help = "Positions of the KV cache.", .def = "the plan's" },
        { .name = "prefill-chunk", .type = OPT_INT, .dest = &a->chunk, .arg = "N", .min = 1, .max = BUDGET_MAX_CHUNK,
          .help = "Prompt tokens of one pass. Any value gives the same text.", .def = "the plan's" },
        { .name = "kv", .type = OPT_CHOICE, .dest = &a->kv, .arg = "TYPE", .choices = kv_type_names,
          .help = "Elements of the KV cache: numbers, or blocks of 32 of a head's (docs/kv-cache.md).", .def = "the plan's" },
        { .name = "act", .type = OPT_CHOICE, .dest = &a->act, .arg = "TYPE", .choices = act_names,
          .help = "Activations: f32, or q8 (8-bit where weights allow: faster, slightly rounded).",
          .def = "the plan's" },
        { .name = "io", .type = OPT_CHOICE, .dest = &a->io, .arg = "BACKEND", .choices = io_names,
          .help = "Read backend: auto, io_uring or pread.", .def = "the plan's" },
        { .name = "mode", .type = OPT_CHOICE, .dest = &a->mode, .arg = "MODE", .choices = mode_names,
          .help = "exact skips neurons whose gate is closed (the same logits), dense skips nothing, predicted computes, "
                  "after the prompt, only neurons that the pack's predictors predict to be active (fewer bytes, nearly the "
                  "same text).",
          .def = "the plan's" },
        { .name = "recall", .type = OPT_DOUBLE, .dest = &a->recall, .arg = "R", .min = 0.5, .max = 1,
          .help = "Predicted mode: recall of the predictors, the share of the active neurons that they predict.",
          .def = "the plan's, or 0.99" },
        { .name = "cpu", .type = OPT_STRING, .dest = &a->cpu, .arg = "TIER",
          .help = "Instruction set: auto, scalar, avx2, avxvnni, avx512, amx, neon, dotprod, i8mm.", .def = "auto" },
        { .name = "no-warm-start", .type = OPT_FLAG, .dest = &a->no_warm_start,
          .help = "Leave the cache of neurons empty at start: loads faster, and the first tokens are slower." },
        { .name = "no-mlock", .type = OPT_FLAG, .dest = &a->no_mlock, .help = "Do not lock memory." },
        { .name = "experts-ahead", .type = OPT_CHOICE, .dest = &a->ahead, .arg = "WHEN", .choices = ahead_names,
          .help = "Experts that a layer will probably use are read before its router has chosen: on, or off. No bit of any result "
                  "depends on it.",
          .def = "the plan's; on where it says nothing" },
        { .name = "no-prefetch", .type = OPT_FLAG, .dest = &a->no_prefetch,
          .help = "Start no reads before attention, nor of experts ahead of their router; for measurements." },
        { .name = "no-verify-reads", .type = OPT_FLAG, .dest = &a->no_verify,
          .help = "Do not compare reads with their checksums while the model runs; for measurements. A damaged "
                  "file then gives wrong text without a message." },
    };
    int n = (int)(sizeof all / sizeof all[0]);
    memcpy(rows, all, sizeof all);
    return n + setup_accel_options(rows + n, &a->accel);
}

/* ---- do the files belong together ---- */

static int compare(const struct setup_args *a, const char *what, struct hash128 plan, struct hash128 pack,
                   struct err *e)
{
    char hp[HASH_TEXT], hm[HASH_TEXT];
    if (hash_equal(plan, pack))
        return 0;
    hash_text(plan, hp);
    hash_text(pack, hm);
    return err_set(e, ERR_MISMATCH,
                   "plan '%s' and packed model '%s' do not belong together: %s is %s in the plan, %s in the model",
                   a->plan, a->model, what, hp, hm);
}

/* Of one model and one order: a plan for the pack's layout is what is missing. */
static int other_layout(const struct setup_args *a, const struct plan *p, struct err *e)
{
    char memory[24];
    return err_set(e, ERR_MISMATCH, "plan '%s' and packed model '%s' do not belong together: they have different layouts, of the same "
                   "model. A plan for this pack: thermo-plan solve --traces TRACE --hardware DATABASE --memory %s --for-pack '%s' "
                   "--out '%s'",
                   a->plan, a->model, size_exact(a->memory ? a->memory : p->limits[p->n_limits - 1].memory_bytes, memory, sizeof memory),
                   a->model, a->plan);
}

static int check_pair(const struct setup_args *a, const struct plan *p, const struct pack *m, struct err *e)
{
    int r = compare(a, "the model's hash", p->model_hash, m->model_hash, e);
    int tiles = (p->layout.form == LAYOUT_TILES) != (m->shapes.l.form == LAYOUT_TILES); /* have an order of their own */
    if (r == 0 && !tiles)
        r = compare(a, "the neuron order's hash", p->order_hash, m->order_hash, e);
    if (r < 0)
        return r;
    if (!hash_equal(p->layout_hash, m->layout_hash))
        return other_layout(a, p, e);
    if (p->n_layers != m->h.n_layers || p->n_blocks != model_ffn_blocks(&m->h) || p->n_ff != m->h.n_ff ||
        p->n_parts != m->shapes.n_parts)
        return err_set(e, ERR_MISMATCH,
                       "plan '%s' is for %d layers of %d x %d neurons in %d parts, packed model '%s' has %d of "
                       "%d x %d in %d",
                       a->plan, p->n_layers, p->n_blocks, p->n_ff, p->n_parts, a->model, m->h.n_layers,
                       model_ffn_blocks(&m->h), m->h.n_ff, m->shapes.n_parts);
    if (!plan_widths_are(p, &m->h))
        return err_set(e, ERR_MISMATCH, "plan '%s': model.widths are not those of packed model '%s'", a->plan, a->model);
    return 0;
}

/* ---- the limit ---- */

#define PAGE_SLACK 65535 /* a cgroup rounds its limit down to pages, of 64 KiB at most */

static const struct plan_limit *choose_limit(const struct plan *p, struct setup *s)
{
    char have[24], want[24];
    uint64_t there = machine_available_bytes();
    const struct plan_limit *l = plan_pick(p, s->args.memory);
    if (!l)
        l = &p->limits[0]; /* smaller than every limit: this one, scaled down */
    s->memory_bytes = s->args.memory ? s->args.memory : l->memory_bytes;
    if (!there || s->memory_bytes <= there + PAGE_SLACK)
        return l;
    size_format(s->memory_bytes, want, sizeof want);
    size_format(there, have, sizeof have);
    if (s->args.memory) {
        log_warn("--memory %s, but only %s are available here", want, have);
        return l;
    }
    log_warn("the plan's limit is %s, but only %s are available here: using what is available", want, have);
    l = plan_pick(p, there);
    s->memory_bytes = l ? l->memory_bytes : there;
    return l ? l : &p->limits[0];
}

static int take_limit(struct setup *s, const struct plan *p, const struct plan_limit *l, struct err *e)
{
    size_t layers = (size_t)p->n_layers;
    size_t cold = (size_t)p->n_layers * (size_t)p->n_parts, hot = cold * (size_t)p->n_blocks;
    const struct plan_batch *b = &l->batches[0];
    double terms[PLAN_TERMS];
    s->hot = malloc(hot * sizeof *s->hot);
    s->cold = malloc(cold * sizeof *s->cold);
    s->always = malloc(layers * sizeof *s->always);
    s->recalls = malloc(layers * sizeof *s->recalls);
    s->predictor = malloc(layers);
    s->streamed = malloc(layers);
    s->predictor_bytes = calloc(layers, sizeof *s->predictor_bytes);
    if (!s->hot || !s->cold || !s->always || !s->recalls || !s->predictor || !s->streamed || !s->predictor_bytes)
        return err_set(e, ERR_NOMEM, "out of memory for a plan");
    memcpy(s->hot, b->hot, hot * sizeof *s->hot);
    if (s->args.no_cache)
        memset(s->cold, 0, cold * sizeof *s->cold);
    else
        memcpy(s->cold, b->cold, cold * sizeof *s->cold);
    memcpy(s->always, l->always, layers * sizeof *s->always);
    memcpy(s->recalls, l->recalls, layers * sizeof *s->recalls);
    memcpy(s->predictor, l->predictor, layers);
    memcpy(s->streamed, b->streamed, layers);
    memcpy(s->planned_engine, p->engine, sizeof s->planned_engine);
    plan_terms(p->cost, l->mode, &b->predicted, p->n_layers, terms);
    setup_take_limit(s, l, terms);
    return 0;
}

void setup_take_limit(struct setup *s, const struct plan_limit *l, const double terms[PLAN_TERMS])
{
    s->n_planned = l->n_batches;
    for (int i = 0; i < l->n_batches; i++) {
        plan_batch_choice(&s->planned[i], &l->batches[i]);
        s->planned[i].predicted = l->batches[i].predicted;
        s->planned[i].predicted.layers = NULL;
    }
    s->limit = *l;
    s->limit.batches = NULL;
    s->limit.n_batches = 0;
    s->limit.predictor = s->predictor;
    s->limit.always = s->always;
    s->limit.recalls = s->recalls;
    s->predicted = s->planned[0].predicted;
    memcpy(s->terms, terms, sizeof s->terms);
}

static int or_plan(int given, int none, int planned)
{
    return given == none ? planned : given;
}

static int fill_config(struct setup *s, struct err *e)
{
    const struct setup_args *a = &s->args;
    struct plan_limit *l = &s->limit;
    l->n_alternatives = s->elastic || s->memory_bytes < l->memory_bytes ? 0 : l->n_alternatives; /* neurons come first */
    const struct plan_most most = plan_most(l);
    struct engine_config *c = &s->config;
    int cpus = machine_cpus(), threads = or_plan(a->threads, 0, l->threads);
    *c = (struct engine_config){ .pack = s->pack,
                                 .mode = (enum plan_mode)or_plan(a->mode, -1, (int)l->mode),
                                 .act_q8 = or_plan(a->act, -1, l->act_q8),
                                 .policy = l->policy,
                                 .cancel = a->cancel,
                                 .mlock = !a->no_mlock,
                                 .no_prefetch = a->no_prefetch,
                                 .no_warm_start = a->no_warm_start,
                                 .no_overlap = a->no_overlap,
                                 .no_verify = a->no_verify,
                                 .choice = { .context = or_plan(a->context, 0, l->context),
                                             .kv_type = or_plan(a->kv, -1, l->kv_type),
                                             .max_batch = a->batch ? a->batch : a->sequences > l->max_batch ? a->sequences
                                                                                                            : l->max_batch,
                                             .kv_positions = a->kv_positions,
                                             .prefill_chunk = or_plan(a->chunk, 0, l->prefill_chunk),
                                             .threads = or_plan(a->threads, 0, most.threads),
                                             .io_lanes = most.lanes,
                                             .queue_depth = most.depth,
                                             .read_bytes = plan_read_bytes(l),
                                             .stream_tables = l->stream_tables,
                                             .hot = s->hot,
                                             .cold = s->cold } };
    if (s->elastic)
        plan_fit_widen(&c->choice, &l->elastic);
    if (a->threads)
        c->choice.threads = a->threads;
    if (!a->threads && threads > cpus) {
        log_warn("the plan is for %d threads, but %d processors are available here: using %d", l->threads, cpus, cpus);
        threads = cpus;
    }
    if (!a->threads && c->choice.threads > cpus)
        c->choice.threads = cpus;
    s->variants[0] = (struct engine_way){ c->io, threads, l->queue_depth, l->io_lanes, 0, c->no_ahead };
    c->variants = s->variants;
    c->n_variants = 1;
    if (model_ends(&s->pack->h) && c->choice.context > s->pack->h.n_ctx_train)
        return err_set(e, ERR_USAGE, "a context of %d, but the model has %d positions%s (--context)", c->choice.context,
                       s->pack->h.n_ctx_train, s->pack->h.sparse ? " with full attention; sparse attention is not supported" : "");
    if (c->choice.context > s->pack->h.n_ctx_train)
        log_warn("a context of %d, but the model was trained with %d", c->choice.context, s->pack->h.n_ctx_train);
    return 0;
}

/* ---- predicted mode ---- */

static int no_predictor(const struct setup *s, int layer, int block, struct err *e)
{
    int has_any = s->pack->n_predictors > 0;
    const char *input = predict_input_name((enum predict_input)s->predictor[layer]);
    return err_set(e, ERR_MISMATCH,
                   "predicted mode needs the predictor '%s' of layer %d, expert %d, and '%s' has %s: make predictors with "
                   "'thermo-profile predictors%s' and pack the model again with that trace, or pass --mode exact",
                   input, layer, block, s->args.model, has_any ? "others but not this one" : "none",
                   s->predictor[layer] == PREDICT_BLOCK ? " --input both" : "");
}

/* The predictors that the plan names, or the FFN's own of all layers; what they take goes into the account. */
static int take_predictors(struct setup *s, struct err *e)
{
    struct engine_config *c = &s->config;
    s->other = c->mode != s->limit.mode;
    if (c->mode == PLAN_EXACT && s->limit.mode == PLAN_EXACT && s->limit.cold_bound > 0) {
        if (!s->pack->h.cold_thresholds)
            return err_set(e, ERR_MISMATCH, "plan '%s' leaves cold neurons out by their thresholds, and '%s' has none", s->args.plan,
                           s->args.model);
        c->cold_bound = s->limit.cold_bound;
        c->always = s->always;
    }
    if (c->mode != PLAN_PREDICTED)
        return s->args.recall > 0 ? err_set(e, ERR_USAGE, "--recall belongs to predicted mode; this is %s mode",
                                            plan_mode_name(c->mode))
                                  : 0;
    if (s->limit.mode != PLAN_PREDICTED) {
        memset(s->predictor, PREDICT_FFN, (size_t)s->pack->h.n_layers);
        memset(s->always, 0, (size_t)s->pack->h.n_layers * sizeof *s->always);
        memset(s->streamed, 0, (size_t)s->pack->h.n_layers);
    }
    c->predictor = s->predictor;
    c->streamed = s->streamed;
    c->choice.predictor_buffers = s->limit.mode == PLAN_PREDICTED ? (uint32_t)s->limit.predictor_buffers : 0;
    c->always = s->always;
    c->recall = s->args.recall > 0 ? s->args.recall : s->limit.mode == PLAN_PREDICTED ? s->limit.recall : RECALL;
    c->recalls = !(s->args.recall > 0) && s->limit.mode == PLAN_PREDICTED ? plan_recalls(&s->limit) : NULL;
    for (int l = 0; l < s->pack->h.n_layers; l++)
        for (int b = 0; b < model_ffn_blocks(&s->pack->h) && s->predictor[l] >= 0; b++) {
            const struct pack_predictor *x =
                pack_predictor_find(s->pack, (enum predict_input)s->predictor[l], l, b);
            if (!x)
                return no_predictor(s, l, b, e);
            budget_add_predictor(&c->choice.predictors, layout_of(&s->pack->shapes, l), x->rank, x->bytes,
                                 predict_row1_bytes(x->type1, s->pack->h.d_model),
                                 predict_row2_bytes(x->type2, x->rank), x->two_sided);
            s->predictor_bytes[l] += budget_dense_tensor(x->bytes);
            c->choice.predictor_bytes += s->streamed[l] ? 0 : budget_dense_tensor(x->bytes);
        }
    return 0;
}

/* Processors of the core classes that the plan names, fastest first; possible where this machine has as many classes, with enough
 * cores in each. 1: out[threads] is filled. */
static int place_threads(const struct plan_class *classes, int n_classes, int *out)
{
    static int cpus[CPU_SETSIZE], class_of[CPU_SETSIZE];
    uint64_t max_hz[CPU_MAX_CLASSES];
    int n = cpu_allowed(cpus, CPU_SETSIZE), placed = 0;
    if (cpu_classes(cpus, n, class_of, max_hz) != n_classes) {
        log_info("the plan places threads on %d classes of cores; this machine has others: they are not pinned", n_classes);
        return 0;
    }
    for (int k = 0; k < n_classes; k++) {
        int left = classes[k].n;
        for (int i = 0; i < n && left > 0; i++)
            if (class_of[i] == k) {
                out[placed++] = cpus[i];
                left--;
            }
        if (left > 0) {
            log_info("the plan wants %d cores of class %s; this machine has fewer: threads are not pinned", classes[k].n, classes[k].name);
            return 0;
        }
    }
    return 1;
}

/* The limit's own threads, and those of each batch size; with --threads there is one number for all. */
static void take_threads(struct setup *s)
{
    const struct plan_limit *l = &s->limit;
    struct engine_config *c = &s->config;
    int most = c->choice.threads, depth = c->choice.queue_depth, threads = s->args.threads || l->threads > most ? most : l->threads;
    int placed = l->n_classes > 1 && threads == l->threads && place_threads(l->classes, l->n_classes, s->cpus);
    c->rest = (struct engine_batch){ 0, threads, l->queue_depth < depth ? l->queue_depth : depth, placed ? s->cpus : NULL };
    c->cpus = threads == most ? c->rest.cpus : NULL;
    c->n_batches = s->args.threads || s->n_planned < 2 ? 0 : s->n_planned;
    c->batches = c->n_batches ? s->batches : NULL;
    for (int i = 0; i < c->n_batches; i++) {
        const struct plan_batch *b = &s->planned[i];
        struct engine_batch *to = &s->batches[i];
        *to = (struct engine_batch){ b->batch, b->threads < most ? b->threads : most, b->queue_depth < depth ? b->queue_depth : depth,
                                     NULL };
        if (placed && place_threads(b->classes, b->n_classes, s->batch_cpus[i]))
            to->cpus = s->batch_cpus[i];
    }
}

void setup_take_passes(struct setup *s)
{
    const struct plan_limit *l = &s->limit;
    struct engine_config *c = &s->config;
    c->io = (enum plan_io)or_plan(s->args.io, -1, (int)l->io);
    s->variants[0].io = c->io;
    c->no_ahead = or_plan(s->args.ahead, -1, l->ahead != PLAN_AHEAD_OFF) == 0;
    c->coalesce = l->coalesce;
    c->n_coalesce = plan_read_bytes(l) <= c->choice.read_bytes ? l->n_coalesce : 0;
    take_threads(s);
}

/* Does the command line leave this to the plan, and has the machine what it needs? */
static int may_take(const struct setup *s, const struct plan_alternative *x)
{
    const struct setup_args *a = &s->args;
    const struct plan_limit *l = &s->limit;
    int gaps = l->n_coalesce > 0 && s->config.n_coalesce == 0; /* the memory did not hold them */
    return (!a->threads || x->threads == s->planned[0].threads) && (a->io < 0 || x->io == l->io) &&
           (a->ahead < 0 || x->ahead == (l->ahead != PLAN_AHEAD_OFF)) && (!gaps || x->coalesced) &&
           x->threads <= s->config.choice.threads && x->queue_depth <= s->config.choice.queue_depth && !s->config.accel.accel;
}

/* Other ways to make passes, that the plan has. */
static void take_alternatives(struct setup *s)
{
    const struct plan_limit *l = &s->limit;
    struct engine_config *c = &s->config;
    s->variants[0].depth = s->variants[0].depth < c->choice.queue_depth ? s->variants[0].depth : c->choice.queue_depth;
    s->way_times[0].threads = s->planned[0].threads;
    memcpy(s->way_times[0].ns, s->terms, sizeof s->terms);
    for (int i = 0; i < l->n_alternatives; i++) {
        const struct plan_alternative *x = &l->alternatives[i];
        if (!may_take(s, x))
            continue;
        s->variants[c->n_variants] = (struct engine_way){ s->args.io < 0 ? x->io : c->io, s->args.threads ? s->args.threads : x->threads,
                                                  x->queue_depth, plan_lanes(x->io, x->queue_depth), l->n_coalesce && !x->coalesced,
                                                  s->args.ahead < 0 ? !x->ahead : c->no_ahead };
        s->way_times[c->n_variants].threads = x->threads;
        memcpy(s->way_times[c->n_variants++].ns, x->term_ns, sizeof x->term_ns);
    }
}

/* What is asked for of sequences must be what the plan has room for, and its KV cache must be one of several. */
static int check_batch(const struct setup *s, struct err *e)
{
    const struct setup_args *a = &s->args;
    const struct budget_choice *c = &s->config.choice;
    long long most = (long long)c->max_batch * c->context;
    int size = 1; /* that is planned for: 1, 2, 4, ... */
    while (size < a->batch && size < PLAN_LARGEST_BATCH)
        size *= 2;
    if (a->batch > s->limit.max_batch && s->limit.max_batch < size)
        return err_set(e, ERR_USAGE, "%d sequences at once, but plan '%s' is for %d: plan with 'thermo-plan solve --max-batch %d', or ask "
                       "for fewer", a->batch, a->plan, s->limit.max_batch, size);
    if (a->kv_positions && c->max_batch == 1)
        return err_set(e, ERR_USAGE, "--kv-positions is for several sequences; this is one: see --context");
    if (a->kv_positions > most)
        return err_set(e, ERR_USAGE, "--kv-positions %d, but %d sequences of %d positions need no more than %lld", a->kv_positions,
                       c->max_batch, c->context, most);
    return 0;
}

/* ---- making it fit ---- */

uint64_t setup_taken_beside(const struct setup *s)
{
    const struct budget_choice *c = &s->config.choice;
    uint64_t context = (uint64_t)c->context, sequences = (uint64_t)c->max_batch;
    return setup_accel_bytes(s) + s->args.beside + s->args.beside_per_token * context +
           (s->args.beside_per_sequence + s->args.beside_per_place * context) * sequences;
}

static const char *beside_what(const struct setup *s)
{
    const char *own = s->args.beside_what;
    if (!s->config.accel.accel)
        return own ? own : "what the command line, the environment or the metadata has";
    return own ? "the accelerator, and what else is beside the model," : "the accelerator";
}

/* What the memory does not hold of the plan is left out; without reads through gaps its predictions do not hold. */
static int try_fit(struct setup *s, struct err *e)
{
    struct engine_config *c = &s->config;
    struct budget_model m;
    pack_budget_model(s->pack, &m);
    uint64_t beside = setup_taken_beside(s), memory = s->memory_bytes > beside ? s->memory_bytes - beside : 0;
    struct plan_fit f = { .model = &m, .memory_bytes = memory, .choice = c->choice, .hot = s->hot, .cold = s->cold,
                          .streamed = s->streamed, .lower_chunk = !s->args.chunk,
                          .predictors = c->choice.predictors.rank ? s->predictor_bytes : NULL };
    int r = plan_fit(&f, e);
    if (r == ERR_INFEASIBLE && beside) {
        char hint[96] = "";
        if (s->args.purpose && s->args.purpose != s->limit.purpose)
            snprintf(hint, sizeof hint, " ('thermo-plan solve --for %s' keeps room for it)", plan_purpose_name(s->args.purpose));
        return err_wrap(e, "of %llu bytes of memory %s takes %llu; --memory %lluMiB is the least that does%s",
                        (unsigned long long)s->memory_bytes, beside_what(s), (unsigned long long)beside,
                        (unsigned long long)((f.budget.floor + beside + (1u << 20) - 1) >> 20), hint);
    }
    if (r < 0)
        return r;
    c->choice = f.choice;
    s->budget = f.budget;
    s->scaled = f.scaled;
    if (f.uncoalesced) {
        c->n_coalesce = 0;
        s->other = 1;
    }
    return 0;
}

/* Keys of the metadata: of hostile files there may be many, or with long names; what others have is in the account's fixed part. */
static uint64_t keys_bytes(const struct gguf *g)
{
    uint64_t all = g->n_keys * (sizeof *g->keys + 2 * sizeof(void *));
    for (uint64_t i = 0; i < g->n_keys; i++)
        all += strlen(g->keys[i].name) + 1;
    return all > KEYS_BYTES ? all : 0;
}

/* Before the account, for who is counted beside may need it; where it does not fit, nothing does, and the account says so. */
static int open_tokenizer(struct setup *s, struct err *e)
{
    struct budget_model m;
    pack_budget_model(s->pack, &m);
    uint64_t bound = m.h.mtp ? 0 : tokenizer_heap_bound((uint64_t)m.h.n_vocab, m.vocab_text_bytes, m.n_merges);
    return s->tokenizer || bound > inputs_room(s->memory_bytes, s->args.held + pack_held_bytes(s->pack)) ? 0 :
           tokenizer_open(s->pack->meta, &s->tokenizer, e);
}

static int add_beside(struct setup *s, struct err *e)
{
    uint64_t bytes = 0;
    uint64_t arguments = machine_arguments_bytes();
    s->args.beside += s->args.schemas ? schemas_bytes(s->tokenizer, s->pack->h.n_vocab, s->args.schemas) : 0;
    s->args.beside += keys_bytes(s->pack->meta) + (arguments > ARGUMENTS_BYTES ? arguments : 0);
    int r = s->args.beside_of ? s->args.beside_of(s->args.beside_ctx, &s->config, &bytes, e) : 0;
    s->args.beside += bytes;
    return r;
}

/* An accelerator that does not fit is left out, where that may be. */
static int make_fit(struct setup *s, struct err *e)
{
    const struct budget_choice choice = s->config.choice;
    int r = try_fit(s, e);
    if (r != ERR_INFEASIBLE || !s->config.accel.accel)
        return r;
    const struct err why = *e;
    s->config.choice = choice;
    r = setup_accel_drop(s, &why, e);
    return r < 0 ? r : try_fit(s, e);
}

/* ---- life ---- */

static int check_whole(const struct setup *s, struct err *e)
{
    return !s->pack->h.mtp ? 0 : err_set(e, ERR_USAGE, "'%s' is a layer for multi-token prediction, not a model: 'thermo-run generate "
                                         "--guess mtp --mtp' takes it, beside its model", s->args.model);
}

static uint64_t limit_of(const struct setup_args *a)
{
    return inputs_limit(a->limit ? a->limit : a->memory);
}

size_t setup_room(const struct setup *s)
{
    uint64_t held = pack_held_bytes(s->pack) + (s->tokenizer ? tokenizer_heap_bytes(s->tokenizer) : 0);
    return inputs_room(s->memory_bytes, s->args.held + held);
}

static int take_plan(struct setup *s, struct err *e)
{
    struct plan p = { 0 };
    size_t room = inputs_room(limit_of(&s->args), s->args.held + pack_held_bytes(s->pack));
    int r = plan_read_within(s->args.plan, room - room / 8, &p, e); /* the struct that is made of it has 4 bytes of a number's 40 */
    if (r < 0)
        return r;
    r = check_pair(&s->args, &p, s->pack, e);
    if (r == 0) {
        const struct plan_limit *l = choose_limit(&p, s);
        r = s->args.elastic ? setup_elastic_open(s, &p, &l, e) : 0;
        r = r < 0 ? r : take_limit(s, &p, l, e);
    }
    plan_done(&p);
    return r;
}

static void say_scaled(const struct setup *s)
{
    char memory[24], planned[24];
    size_format(s->memory_bytes, memory, sizeof memory);
    size_format(s->limit.memory_bytes, planned, sizeof planned);
    if (s->scaled && setup_taken_beside(s) && s->memory_bytes >= s->limit.memory_bytes)
        log_info("of %s %s takes %s: fewer neurons stay in memory than planned", memory, beside_what(s),
                 size_format(setup_taken_beside(s), planned, sizeof planned));
    else if (s->scaled)
        log_warn("%s are not enough for the plan's limit of %s as it is run here: fewer neurons stay in memory than "
                 "planned",
                 memory, planned);
}

static void say_retyped(const struct setup *s)
{
    char names[256];
    int n = tokenizer_retyped(s->tokenizer, names, sizeof names);
    if (n)
        log_warn("'%s': %d %s typed as text and taken as control %s: %s", s->args.model, n, n == 1 ? "token is" : "tokens are",
                 n == 1 ? "token" : "tokens", names);
}

int setup_open(const struct setup_args *a, struct setup *s, struct err *e)
{
    unsigned mask;
    int r;
    *s = (struct setup){ .args = *a };
    if ((r = cpu_parse(a->cpu, &mask, e)) < 0)
        return r;
    kernels_init(mask);
    if ((r = pack_open_within(a->model, inputs_room(limit_of(a), a->held), &s->pack, e)) < 0 || (r = check_whole(s, e)) < 0 ||
        (r = take_plan(s, e)) < 0)
        goto fail;
    /* Tables and metadata are read: no read-ahead into a cgroup that may be as small as the budget, no copy kept. */
    posix_fadvise(s->pack->file.fd, 0, 0, POSIX_FADV_RANDOM);
    posix_fadvise(s->pack->file.fd, 0, 0, POSIX_FADV_DONTNEED);
    if ((r = fill_config(s, e)) < 0)
        goto fail;
    setup_take_passes(s);
    if ((r = check_batch(s, e)) < 0 || (r = take_predictors(s, e)) < 0 || (r = setup_accel_open(s, e)) < 0 ||
        (r = open_tokenizer(s, e)) < 0 || (r = add_beside(s, e)) < 0 || (r = make_fit(s, e)) < 0 ||
        (s->elastic && (r = setup_elastic_begin(s, e)) < 0) ||
        (!s->tokenizer && (r = tokenizer_open(s->pack->meta, &s->tokenizer, e)) < 0))
        goto fail;
    take_alternatives(s);
    setup_accel_always(s);
    say_scaled(s);
    say_retyped(s);
    return 0;
fail:
    setup_close(s);
    return r;
}

void setup_close(struct setup *s)
{
    if (s->config.accel.accel)
        s->config.accel.accel->backend->close(s->config.accel.accel);
    tokenizer_close(s->tokenizer);
    pack_close(s->pack);
    setup_elastic_close(s);
    free(s->hot);
    free(s->cold);
    free(s->always);
    free(s->recalls);
    free(s->predictor);
    free(s->streamed);
    free(s->predictor_bytes);
    *s = (struct setup){ 0 };
}

/* What was decided: the account item by item, then each layer's share of it. */
static void say_decided(const struct setup *s)
{
    const struct engine_config *c = &s->config;
    const struct layout_shapes *shapes = &s->pack->shapes;
    int blocks = model_ffn_blocks(&s->pack->h), parts = shapes->n_parts;
    char bytes[24];
    log_debug("%s mode, kernels %s, %d threads%s, activations %s, KV cache %s, context %d, prompts in chunks of %d",
              plan_mode_name(c->mode), kernels->name, setup_threads(s), c->cpus ? ", each on its own processor" : "",
              c->act_q8 ? "q8" : "f32", kv_type_name(c->choice.kv_type), c->choice.context, c->choice.prefill_chunk);
    for (int i = 0; i < c->n_batches; i++)
        log_debug("passes of up to %d tokens: %d threads%s, %d reads in flight", c->batches[i].tokens, c->batches[i].threads,
                  c->batches[i].cpus ? ", each on its own processor" : "", c->batches[i].depth);
    for (int i = 1; i < c->n_variants; i++)
        log_debug("or: %d threads, %s, %d reads in flight%s%s", c->variants[i].threads, plan_io_name(c->variants[i].io),
                  c->variants[i].depth, c->variants[i].no_coalesce ? ", none through gaps" : "",
                  c->variants[i].no_ahead ? "" : ", experts ahead");
    for (int i = 0; i < BUDGET_ITEMS; i++)
        if (i != BUDGET_ENGINE && i != BUDGET_ROOM) /* "beside" has them */
            log_debug("account: %-10s %s", budget_item_name((enum budget_item)i),
                      size_format(s->budget.item[i], bytes, sizeof bytes));
    if (setup_taken_beside(s))
        log_debug("account: %-10s %s", "beside", size_format(setup_taken_beside(s), bytes, sizeof bytes));
    for (int l = 0; l < s->pack->h.n_layers; l++) {
        const struct layout_shape *of = layout_of(shapes, l);
        uint64_t hot = 0, slots = 0, units = 0;
        for (int p = 0; p < parts; p++) {
            slots += s->cold[l * parts + p];
            units += (uint64_t)of->part[p].n_units * (uint64_t)blocks;
        }
        for (int i = 0; i < blocks * parts; i++)
            hot += s->hot[l * blocks * parts + i];
        log_debug("layer %d: %.1f %% of rows resident, %llu cold slots for %llu units%s", l,
                  100.0 * (double)hot / ((double)of->n_ff * blocks * parts), (unsigned long long)slots, (unsigned long long)units,
                  c->mode != PLAN_PREDICTED || s->predictor[l] < 0 ? "" :
                  s->streamed[l] ? ", predictor streamed" : ", predictor in memory");
    }
}

static void say_accel(const struct setup *s, const struct engine *g)
{
    struct accel_info i;
    const char *lost;
    char driver[24], host[24], own[24];
    if (!engine_accel_info(g, &i, &lost))
        return;
    if (lost)
        log_warn("%s: the processor works alone", lost);
    if (i.note[0])
        log_warn("%s", i.note);
    log_debug("accelerator: '%s' (%s, driver %s), %s; %llu of the neurons in passes of one token, %llu in large ones; %d programs "
              "built, %d cached", i.device.name, i.device.platform, i.device.driver,
                  i.zero_copy ? "weights where they are" : "weights copied",
              (unsigned long long)engine_accel_neurons(g, 1), (unsigned long long)engine_accel_neurons(g, INT32_MAX), i.built, i.cached);
    if (s->config.choice.area_bytes && !engine_accel_takes_rest(g))
        log_warn("the accelerator does not take neurons as '%s' has them packed: what is not in memory is the processor's", s->args.model);
    log_debug("accelerator: memory: driver %s, buffers here %s, on the device %s",
              size_format(s->accel_driver_bytes, driver, sizeof driver), size_format(i.host_bytes, host, sizeof host),
              size_format(i.device_bytes, own, sizeof own));
}

/* Reads overlap with checking them: the time that they alone took is too short, and all of it too long. */
#define FAR      2
#define LOAD_FEW (4u << 20) /* bytes that say nothing of a drive */
static void say_load(const struct setup *s, const struct engine *g)
{
    struct engine_loading l = engine_loading(g);
    double planned = s->limit.load_bytes_per_s, wait = (double)l.wait_ns + 1, all = (double)l.ns + 1;
    double most = 1e9 * (double)l.bytes / wait, least = 1e9 * (double)l.bytes / all;
    char gave[24], figure[24];
    if (planned <= 0 || l.bytes < LOAD_FEW || (most * FAR >= planned && least <= planned * FAR))
        return;
    size_format((uint64_t)(most * FAR < planned ? most : least), gave, sizeof gave);
    size_format((uint64_t)planned, figure, sizeof figure);
    log_warn("'%s' gave %s %s a second while it was loaded, and the plan counts on %s: measure with 'thermo-profile hardware --storage' "
             "where it lies, and plan by that%s", s->args.model, most * FAR < planned ? "at most" : "more than", gave, figure,
             most * FAR < planned ? "; a file that is copied anew may give more" : "");
}

int setup_engine(struct setup *s, struct engine **out, struct err *e)
{
    int why;
    if (s->args.no_verify)
        log_warn("reads are not verified: damage of '%s' would go unnoticed", s->args.model);
    say_decided(s);
    machine_trim();
    int r = engine_open(&s->config, out, e);
    s->config.accel.accel = NULL; /* the engine's, or closed */
    if (r < 0)
        return r;
    say_accel(s, *out);
    say_load(s, *out);
    machine_trim();
    if (s->config.mlock && !engine_locked(*out, &why))
        log_warn("memory is not locked (%s): under pressure it may be swapped; see 'ulimit -l', or pass --no-mlock",
                 strerror(why));
    if ((why = engine_unpinned(*out)) != 0)
        log_warn("the system does not leave threads on the cores that the plan has them on (%s): they run where it puts them, and the "
                 "plan's speed is not promised", why < 0 ? "they are found on others" : strerror(why));
    const struct io *io = engine_io(*out);
    log_debug("reads by %s%s, %d in flight, of %u bytes at most", io->backend->name, io->direct ? " past the page cache" : "",
              setup_depth(s), s->config.choice.read_bytes);
    if (io->note[0])
        log_warn("%s", io->note);
    if (!io->direct)
        log_warn("the page cache holds what is read for a while: the memory ceiling is not claimed");
    return 0;
}
