/* The accelerator of a command line: its options, which back ends there are, its memory. */
#include "runtime/setup_impl.h"

#include "common/base/log.h"
#include "common/engines/engines.h"
#include "common/plan/rest.h"

#include "common/base/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const work_names[] = { "plan", "ffn", "head", "attention", "all", NULL };
static const char *const fail_names[] = { "cpu", "exit", NULL };

int setup_accel_options(struct opt *rows, struct setup_accel_args *a)
{
    const struct opt all[] = {
        { .name = "engine", .type = OPT_STRING, .dest = &a->engine, .arg = "NAME",
          .help = "Accelerator beside the processor: none, opencl (the first GPU, or else the first device) or opencl:N, as 'thermo-run "
                  "engines' lists them, or plan, the one that the plan names. It computes the hottest neurons of each FFN in 32-bit "
                  "floating point, while the processor computes the others. Its driver is code that is loaded: a plan alone loads none.",
          .def = "none" },
        { .name = "engine-height", .type = OPT_STRING, .dest = &a->height, .arg = "LIST",
          .help = "How many of the hottest neurons of each FFN the accelerator has, of those in memory: N or P%; for passes of up to T "
                  "tokens T:N or T:P%, separated by commas, and the last for all larger ones: 1:50%,4:70%,100%. With a + behind it, as in "
                  "1:50%,100%+, it has all neurons that are not in memory, too, in passes that predict none: they are read for it, layer "
                  "by layer, through --engine-area. Not for models with experts.",
          .def = "the plan's, or 100%" },
        { .name = "engine-area", .type = OPT_SIZE, .dest = &a->area, .arg = "SIZE", .min = 1, .max = 1LL << 40,
          .help = "Memory that neurons are read to for heights with a +, a part of --memory: what it holds is read while attention and "
                  "other neurons are computed.", .def = "a sixteenth of the memory, or two layers' neurons" },
        { .name = "engine-work", .type = OPT_CHOICE, .dest = &a->work, .arg = "WHAT", .choices = work_names,
          .help = "What else it computes: ffn nothing, head the output head, attention the products of attention, shared experts and "
                  "layers before the experts', all both; plan what the plan says, and nothing without one or with --engine-height.",
          .def = "plan" },
        { .name = "engine-cache", .type = OPT_STRING, .dest = &a->cache, .arg = "DIR",
          .help = "Folder that keeps the accelerator's programs, which are built otherwise at every start. It holds code: nobody else "
                  "should be able to write there." },
        { .name = "engine-fail", .type = OPT_CHOICE, .dest = &a->fail, .arg = "WHAT", .choices = fail_names,
          .help = "When the accelerator fails: cpu, the processor goes on alone, with a warning; exit, the run ends with exit status 6.",
          .def = "cpu" },
    };
    memcpy(rows, all, sizeof all);
    return (int)(sizeof all / sizeof all[0]);
}

/* ---- heights ---- */

static int bad_height(const char *text, struct err *e)
{
    return err_set(e, ERR_USAGE,
                   "--engine-height '%s': [T:]N or [T:]P%%, a + behind it or not, separated by commas, with T ascending and none for the "
                   "last; at most %d",
                   text, ENGINE_MAX_HEIGHTS);
}

/* A number without a sign; *end is behind it. */
static int parse_number(const char *at, char **end, double *v)
{
    errno = 0;
    *v = strtod(at, end);
    return *end != at && !errno && *at != '-' && *at != '+' && *at != ' ';
}

/* One of them; *at moves behind it. */
static int parse_height(const char **at, struct engine_height *out)
{
    char *end;
    double v;
    if (!parse_number(*at, &end, &v))
        return 0;
    *out = (struct engine_height){ .tokens = 0 };
    if (*end == ':') {
        if (!(v >= 1 && v <= BUDGET_MAX_CHUNK) || v != (int)v)
            return 0;
        out->tokens = (int)v;
        if (!parse_number(end + 1, &end, &v))
            return 0;
    }
    if (*end == '%') {
        if (!(v >= 0 && v <= 100))
            return 0;
        out->neurons = 0;
        out->share = v / 100;
        end++;
    } else {
        if (!(v >= 0 && v <= MODEL_MAX_DIM) || v != (uint32_t)v)
            return 0;
        out->neurons = (uint32_t)v;
        out->share = 0;
    }
    out->rest = *end == '+';
    *at = end + out->rest;
    return 1;
}

static int parse_heights(const char *text, struct engine_accel_config *c, struct err *e)
{
    const char *at = text;
    for (c->n_heights = 0;; at++) {
        if (c->n_heights == ENGINE_MAX_HEIGHTS)
            return bad_height(text, e);
        struct engine_height *h = &c->heights[c->n_heights++];
        if (!parse_height(&at, h) || (*at != ',' && *at) || (!*at != !h->tokens) ||
            (c->n_heights > 1 && h->tokens && h->tokens <= h[-1].tokens))
            return bad_height(text, e);
        if (!*at)
            return 0;
    }
}

/* ---- opening ---- */

static int add_type(uint32_t type, uint32_t *types, int n)
{
    for (int i = 0; i < n; i++)
        if (types[i] == type)
            return n;
    types[n] = type;
    return n + 1;
}

/* Types of what it may be asked for: neurons, and matrices beside them. */
static int types_of(const struct setup *s, uint32_t *types)
{
    const struct layout *l = &s->pack->shapes.l;
    int n = 0, work = (int)s->config.accel.work;
    for (int i = 0; i < l->n_kinds * LAYOUT_ROLES; i++)
        n = add_type(l->type[i / LAYOUT_ROLES][i % LAYOUT_ROLES], types, n);
    for (int i = 0; i < s->pack->n_dense; i++) {
        const struct pack_dense *d = &s->pack->dense[i];
        int head = d->role == MODEL_OUTPUT || d->role == MODEL_TOKEN_EMBD;
        if (d->dims[1] > 1 && (work & (head ? PLAN_WORK_HEAD : PLAN_WORK_ATTENTION)))
            n = add_type(d->type, types, n);
    }
    return n;
}

static int failed(const struct setup *s, const struct err *why, struct err *e)
{
    if (s->args.accel.fail)
        return err_set(e, ERR_IO, "%s", why->msg);
    log_warn("%s: the processor works alone", why->msg);
    return 0;
}

/* What the limit's batch sizes and prompts give an accelerator. 1: the plan has one. */
static int planned_heights(struct setup *s, struct engine_accel_config *c)
{
    struct plan_height heights[ENGINE_MAX_HEIGHTS];
    struct plan_limit l = s->limit;
    l.batches = s->planned;
    l.n_batches = s->n_planned;
    c->n_heights = plan_heights(&l, heights, ENGINE_MAX_HEIGHTS);
    for (int i = 0; i < c->n_heights; i++)
        c->heights[i] = (struct engine_height){ .tokens = heights[i].tokens, .neurons = heights[i].share.neurons,
                                                .work = heights[i].share.work, .rest = heights[i].share.rest };
    return plan_uses_engine(&l);
}

/* What --engine names, "plan" the plan's; *b NULL: none. planned: the plan has heights. A driver is code, and a plan may be a stranger's:
 * so one is loaded where the command line says so, and nowhere else. */
static int choose_engine(struct setup *s, int planned, const struct accel_backend **b, int *device, struct err *e)
{
    const struct setup_accel_args *a = &s->args.accel;
    struct err why = { 0 };
    int by_plan = a->engine && !strcmp(a->engine, "plan");
    if (!by_plan && (a->engine || !planned))
        return engines_parse("--engine", a->engine, b, device, e);
    *b = NULL;
    if (!by_plan)
        log_warn("the plan gives work to accelerator '%s'; a driver is loaded only where --engine plan or --engine NAME says so: the "
                 "processor works alone", s->planned_engine);
    if (!by_plan || !planned)
        return 0;
    if (engines_find(s->planned_engine, b, device) == 0)
        return 0;
    err_set(&why, ERR_INPUT, "the plan gives work to accelerator '%s', which this program cannot drive", s->planned_engine);
    return failed(s, &why, e);
}

/* Is it another device than the plan's? */
static int is_another(const struct setup *s, const struct accel_backend *b, int device)
{
    const struct accel_backend *own;
    int own_device;
    return engines_find(s->planned_engine, &own, &own_device) < 0 || own != b || own_device != device;
}

/* --engine-work, or what heights have: 0 is the first of its choices. */
static void add_works(struct engine_accel_config *c, int asked)
{
    unsigned all = 0;
    for (int i = 0; i < c->n_heights; i++) {
        c->heights[i].work = asked ? (enum plan_work)(asked - 1) : c->heights[i].work;
        all |= (unsigned)c->heights[i].work;
    }
    c->work = (enum plan_work)all;
}

/* Bytes that the neurons beyond those in memory are read through, where any height has them; 0: none does. */
static int choose_area(struct setup *s, uint64_t *out, struct err *e)
{
    const struct engine_accel_config *c = &s->config.accel;
    const struct layout_shapes *l = &s->pack->shapes;
    uint64_t asked = s->args.accel.area, least = rest_least_area(l), most = rest_most_area(l);
    int any = 0;
    for (int i = 0; i < c->n_heights; i++)
        any |= c->heights[i].rest;
    *out = 0;
    if (!any)
        return asked ? err_set(e, ERR_USAGE, "--engine-area is for heights with a +; see --engine-height") : 0;
    if (model_ffn_blocks(&s->pack->h) > 1)
        return err_set(e, ERR_USAGE, "--engine-height with a +: '%s' has experts; what is not in memory of them is the processor's",
                       s->args.model);
    if (asked && asked < least)
        return err_set(e, ERR_USAGE, "--engine-area: %llu bytes; one cluster of neurons for each piece needs %llu",
                       (unsigned long long)asked, (unsigned long long)least);
    asked = asked || s->args.accel.height ? asked : s->limit.prompt.area_bytes;
    asked = asked ? asked : s->memory_bytes / 16 < most ? s->memory_bytes / 16 : most;
    asked = asked < least ? least : asked;
    *out = rest_slot_bytes(&l->kind[0], asked) * REST_SLOTS;
    return 0;
}

/* Asked before the driver is loaded, for then it has taken what it takes: does the limit leave what any driver needs beside the floor? */
static int has_room(const struct setup *s, const struct accel_backend *b, struct err *why)
{
    struct budget_model m;
    struct budget_choice c = s->config.choice;
    struct budget account;
    pack_budget_model(s->pack, &m);
    c.hot = c.cold = NULL;
    c.prefill_chunk = s->args.chunk ? s->args.chunk : 1;
    if (budget_compute(&m, &c, &account, why) < 0)
        return 1; /* whatever it is, the account will say so */
    if (account.floor <= s->memory_bytes && b->least_bytes <= s->memory_bytes - account.floor)
        return 1;
    err_set(why, ERR_INFEASIBLE, "of %llu bytes of memory the accelerator takes %llu at least, which the floor of %llu bytes does not "
            "leave: the driver of '%s' is not loaded", (unsigned long long)s->memory_bytes, (unsigned long long)b->least_bytes,
            (unsigned long long)account.floor, b->name);
    return 0;
}

/* Loading the driver cannot be undone, nor bounded from here. */
static void say_above(const struct setup *s, uint64_t peak)
{
    char took[24], limit[24];
    if (peak > s->memory_bytes)
        log_warn("the accelerator's driver took the process to %s while it was opened, above the memory of %s: what it takes is known only "
                 "then",
                 size_format(peak, took, sizeof took), size_format(s->memory_bytes, limit, sizeof limit));
}

int setup_accel_open(struct setup *s, struct err *e)
{
    const struct setup_accel_args *a = &s->args.accel;
    const struct accel_backend *b;
    struct engine_accel_config *c = &s->config.accel;
    struct err why = { 0 };
    uint32_t types[QUANT_LIMIT];
    int planned = planned_heights(s, c), device, r = choose_engine(s, planned, &b, &device, e);
    if (r < 0)
        return r;
    s->other |= planned != (b != NULL) || (b && (a->height || a->work || a->area)) || (planned && is_another(s, b, device));
    int by_plan = a->engine && !strcmp(a->engine, "plan"); /* whose cache is for whatever the plan names, if anything */
    if (!b && (a->height || a->work || a->area || (a->cache && !by_plan)))
        return err_set(e, ERR_USAGE, "--engine-height, --engine-work, --engine-area and --engine-cache belong to an accelerator; see "
                       "--engine");
    if (!b)
        return 0;
    if (s->pack->h.fold)
        return err_set(e, ERR_USAGE, "--engine: '%s' has folded weights (docs/models.md), whose inputs the processor alone transforms",
                       s->pack->file.path);
    if ((a->height || !planned) && (r = parse_heights(a->height ? a->height : "100%", c, e)) < 0)
        return r;
    uint64_t area;
    if ((r = choose_area(s, &area, e)) < 0)
        return r;
    add_works(c, a->work);
    c->fail_exit = a->fail;
    const struct accel_config open = { .device = device, .cache = a->cache, .types = types, .n_types = types_of(s, types) };
    uint64_t before = machine_resident_bytes();
    if (!has_room(s, b, &why)) {
        s->other |= planned;
        return failed(s, &why, e);
    }
    if (b->open(&open, &c->accel, &why) < 0) {
        s->other |= planned;
        return failed(s, &why, e);
    }
    s->config.choice.area_bytes = area;
    uint64_t after = machine_peak_bytes(), mib = 1 << 20;
    say_above(s, after);
    s->accel_driver_bytes = (after > before ? after - before + mib - 1 : mib) / mib * mib;
    return 0;
}

int setup_accel_drop(struct setup *s, const struct err *why, struct err *e)
{
    struct accel *a = s->config.accel.accel;
    s->config.accel.accel = NULL;
    s->config.choice.area_bytes = 0;
    s->other |= s->planned_engine[0] != 0;
    s->accel_driver_bytes = 0;
    a->backend->close(a);
    machine_trim();
    return failed(s, why, e);
}

uint64_t setup_accel_bytes(const struct setup *s)
{
    const struct engine_accel_config *c = &s->config.accel;
    struct budget_model m;
    struct budget_scratch b;
    struct err ignored;
    pack_budget_model(s->pack, &m);
    if (!c->accel || budget_scratch(&m, &s->config.choice, &b, &ignored) < 0)
        return 0;
    return s->accel_driver_bytes + engine_accel_bytes(s->pack, &b, c->work, c->accel);
}

void setup_accel_always(struct setup *s)
{
    const struct engine_accel_config *c = &s->config.accel;
    for (int l = 0; l < s->pack->h.n_layers && c->accel && s->config.mode == PLAN_PREDICTED; l++) {
        uint32_t least = UINT32_MAX;
        for (int i = 0; i < c->n_heights && (!i || c->heights[i - 1].tokens < s->config.choice.max_batch); i++)
            for (int b = 0; b < model_ffn_blocks(&s->pack->h); b++) {
                uint32_t n = engine_accel_height(&s->pack->shapes, &s->config.choice, &c->heights[i], model_ffn_blocks(&s->pack->h), l, b);
                least = n < least ? n : least;
            }
        s->always[l] = least > s->always[l] ? least : s->always[l];
    }
}
