/* thermo-plan check: verify a plan field by field, with no solver or by solving again, and compare it with an older one. */
#include "planner/cmd.h"

#include "common/base/js.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "planner/args.h"
#include "planner/check/again.h"
#include "planner/check/check.h"
#include "planner/check/proof.h"
#include "planner/planning/planning_cold.h"
#include "planner/planning/planning_guesses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-plan check", "PLAN.json",
    "Verify a plan from the equations alone. By itself: format, ranges, layout. With --traces (or --description): that "
    "it is for this model, and the memory account to the byte. With --hardware as well: cores, every predicted "
    "figure, and that no more whole layers in memory refute the gap. With --solve: solves again and compares every field; give the "
    "request's options as they were given to solve. What is not verified is listed, with the reason. With --against: what changed "
    "since an older plan; exit status 1 when a promise (speed, floor, context, a limit or batch size that is planned for) got worse "
    "by more than --tolerance. With --certificate: the proof of its gap; exit status 5 where there is none.",
    "  thermo-plan check plan.json --traces t.h5 --hardware hw.sqlite\n  thermo-plan check plan.json --against "
    "old.json --tolerance 2\n", "r"
};

struct lines {
    struct js *list;
};

static void print_line(void *ctx, int worse, const char *text)
{
    struct lines *l = ctx;
    if (l->list) {
        js_append(l->list, js_made(JS_BOOL("worse", worse), JS_STR("text", text)));
    } else {
        print("%s %s\n", worse ? "worse:  " : "changed:", text);
    }
}

struct options {
    const char *plan, *against, *certificate;
    struct args request;        /* where the plan came from; with solve, what was asked for: as below where nothing is said */
    struct args_guesser guesser; /* with solve; as the plan has it where nothing is said */
    double tolerance;
    int solve, prove, json;
};

/* Of what a plan itself has: take the plan's. */
static void init_request(struct args *a)
{
    args_init(a);
    a->cost = a->stat = a->kv = a->act = a->max_batch = a->purpose = -1;
    a->min_speed = -1;
    a->rlimit = UINT64_MAX;
}

/* What was found of a plan, and what it rests on. */
struct findings {
    unsigned basis, asked;
    struct check_fields fields;
    int claims;
};

static int load_and_check(const struct options *w, struct plan *p, struct findings *f, struct err *e)
{
    struct inputs in = { 0 };
    struct hw hw = { 0 };
    struct notes notes = { 0 };
    const struct args *a = &w->request;
    int r = plan_read(w->plan, p, e), model = a->traces || a->description;
    if (r < 0)
        return r;
    if (a->hardware)
        r = args_load_hw_of(a->hardware, a->device, p, &hw, e);
    if (r == 0 && model)
        r = args_load_model_of(a->traces, a->description, p, &in, e);
    if (r == 0)
        r = check_plan_fields(p, w->plan, model ? &in : NULL, a->hardware ? &hw : NULL, &notes, &f->fields, e);
    f->basis = (model ? CHECK_MODEL : 0) | (a->hardware ? CHECK_HARDWARE : 0);
    inputs_done(&in);
    hw_free(&hw);
    if (r < 0)
        plan_done(p);
    return r;
}

static char *memory_of(const struct plan *p)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    for (int i = 0; f && i < p->n_limits; i++)
        print_to(f, "%s%llu", i ? "," : "", (unsigned long long)p->limits[i].memory_bytes);
    if (f && fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* What the plan says in place of what the request does not; which of these the request does: CHECK_ASKED_ bits. */
static unsigned take_from_plan(const struct plan *p, const char *memory, struct args *a)
{
    const struct plan_limit *l = &p->limits[0];
    unsigned asked = (a->memory ? CHECK_ASKED_MEMORY : 0) | (a->min_speed >= 0 ? CHECK_ASKED_SPEED : 0) |
                     (a->rlimit != UINT64_MAX ? CHECK_ASKED_RLIMIT : 0) | (a->act >= 0 ? CHECK_ASKED_ACT : 0) |
                     (a->stat >= 0 ? CHECK_ASKED_STAT : 0);
    a->memory = a->memory ? a->memory : memory;
    a->device = a->device ? a->device : p->device;
    a->min_speed = a->min_speed >= 0 ? a->min_speed : l->min_tokens_per_s;
    a->rlimit = a->rlimit != UINT64_MAX ? a->rlimit : p->rlimit;
    a->cost = a->cost >= 0 ? a->cost : (int)p->cost;
    a->stat = a->stat >= 0 ? a->stat : (int)p->stat;
    a->kv = a->kv >= 0 ? a->kv : l->kv_type;
    a->act = a->act >= 0 ? a->act : l->act_q8;
    a->order = a->order ? a->order : 1 + (int)p->sort;
    a->purpose = a->purpose >= 0 ? a->purpose : (int)l->purpose;
    a->max_batch = a->max_batch >= 0 ? a->max_batch : plan_max_batch(p);
    return asked;
}

/* Is the device, as measured, not that of the plan? It then has corrections in it. */
static int is_corrected(const struct args *a, const struct plan *p, int *corrected, struct err *e)
{
    struct hw hw;
    int r = args_load_hw(a->hardware, a->device, &hw, e);
    if (r < 0)
        return r;
    *corrected = !hash_equal(hw.hash, p->hardware_hash);
    hw_free(&hw);
    return 0;
}

/* Plans may say nothing of guesses; then solving again says nothing either. */
static int states_guesses(const struct plan *p)
{
    int any = 0;
    for (int i = 0; i < p->n_limits; i++)
        any |= p->limits[i].guesses.n > 0;
    return any;
}

/* The plan is what its request gives, in every field. */
static int solve_again(const struct options *w, const struct plan *p, struct findings *f, struct err *e)
{
    struct args a = w->request;
    struct args_inputs in = { 0 };
    struct plan again = { 0 };
    struct proof proof = { .path = w->certificate };
    struct guesser who = planning_guesser_of(p);
    char *memory = memory_of(p);
    if (!memory)
        return err_set(e, ERR_NOMEM, "out of memory for a check");
    f->asked = take_from_plan(p, memory, &a);
    int r = is_corrected(&a, p, &a.corrections, e);
    if (r == 0)
        r = args_load(&a, 1, &in, e);
    free(memory);
    if (r < 0 || (r = args_guesser_of(&w->guesser, &in, &who, e)) < 0) {
        args_done(&in);
        return r;
    }
    f->asked |= w->guesser.draft_plan || w->guesser.mtp ? CHECK_ASKED_GUESSER : 0;
    in.request.prove = w->prove;
    if ((r = proof_begin(&proof, &in.request, e)) < 0 || (r = planning_cold_make(&in.request, &in.in, &in.hw, &in.notes, &again, e)) < 0)
        err_wrap(e, "plan '%s', solved again", w->plan);
    else if (states_guesses(p) && (r = planning_guesses(&again, &in.in, &in.hw, &who, e)) < 0)
        err_wrap(e, "plan '%s', solved again", w->plan);
    for (int i = 0; i < p->n_limits && i < again.n_limits && r == 0; i++)
        again.limits[i].quality = p->limits[i].quality; /* measured since */
    if (r == 0 && (r = again_compare(p, w->plan, &again, e)) == 0)
        r = proof_compare(&proof, &again, e);
    f->basis |= CHECK_SOLVED;
    proof_done(&proof);
    plan_done(&again);
    args_done(&in);
    return r;
}

static void print_findings(const struct options *w, const struct plan *p, const struct findings *f)
{
    int verified = 0;
    for (int i = 0; i < f->fields.n; i++)
        verified += !f->fields.at[i].why;
    print("%s: %s; %d fields verified\n", w->plan,
           f->basis & CHECK_SOLVED ? "solved again, it is the same" :
           f->basis & CHECK_HARDWARE ? "account, cores and every figure follow from the inputs" :
           f->basis & CHECK_MODEL ? "the account follows from the model" :
           "format and ranges are right; --traces or --description, and --hardware check more", verified);
    for (int i = 0; i < f->fields.n && f->basis & CHECK_MODEL; i++)
        if (f->fields.at[i].why)
            print("unverified: %s: %s\n", f->fields.at[i].name, f->fields.at[i].why);
    for (int i = 0; i < p->n_limits; i++) {
        char text[CHECK_INPUTS_TEXT];
        check_inputs_text(p, &p->limits[i], text);
        if (text[0])
            print("memory %llu: %s\n", (unsigned long long)p->limits[i].memory_bytes, text);
    }
    if (w->certificate)
        print("%s: Z3 refutes all %d claims: no plan within these choices is faster by more than the gap%s\n", w->certificate,
               f->claims, w->solve ? "; every price in it follows from the inputs" : "");
}

static void set_fields(struct js *o, const struct check_fields *f)
{
    struct js *verified = js_array(), *unverified = js_array();
    for (int i = 0; i < f->n; i++)
        if (f->at[i].why) {
            js_append(unverified, js_made(JS_STR("field", f->at[i].name), JS_STR("why", f->at[i].why)));
        } else {
            js_append_str(verified, f->at[i].name);
        }
    js_put(o, JS_VALUE("verified", verified), JS_VALUE("unverified", unverified));
}

/* Takes the lines. */
static int print_json(const struct options *w, const struct findings *f, int worse, struct lines *lines, struct err *e)
{
    struct js *o = js_object();
    if (w->certificate)
        js_set_int(o, "claims_refuted", f->claims);
    if (w->certificate)
        js_set_bool(o, "prices_checked", w->solve);
    js_put(o, JS_STR("plan", w->plan), JS_BOOL("account_checked", (f->basis & CHECK_MODEL) != 0),
           JS_BOOL("figures_checked", (f->basis & CHECK_HARDWARE) != 0), JS_BOOL("solved_again", (f->basis & CHECK_SOLVED) != 0));
    set_fields(o, &f->fields);
    js_put(o, JS_INT("worse", worse), JS_VALUE("changes", lines->list));
    lines->list = NULL;
    int r = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return r;
}

/* Whatever is asked for beside the equations. */
static int verify(const struct options *w, const struct plan *p, struct findings *f, struct err *e)
{
    int r = w->solve ? solve_again(w, p, f, e) : 0;
    if (r == 0 && w->certificate && (r = proof_check(p, w->certificate, &f->claims, e)) == 0)
        f->basis |= CHECK_PROOF;
    return r == 0 ? check_fields_list(&f->fields, f->basis, f->asked, e) : r;
}

static int run(const struct options *w, int *worse, struct err *e)
{
    struct plan p, old = { 0 };
    struct lines lines = { NULL };
    struct findings f = { 0 };
    int r = load_and_check(w, &p, &f, e);
    if (r < 0) {
        check_fields_done(&f.fields);
        return r;
    }
    lines.list = w->json ? js_array() : NULL;
    if ((r = verify(w, &p, &f, e)) == 0 && !w->json)
        print_findings(w, &p, &f);
    if (r == 0 && w->against && (r = plan_read(w->against, &old, e)) == 0) {
        *worse = check_against(&p, &old, w->tolerance / 100, print_line, &lines);
        if (!w->json)
            print("%d promise%s got worse since %s\n", *worse, *worse == 1 ? "" : "s", w->against);
    }
    if (r == 0 && w->json)
        r = print_json(w, &f, *worse, &lines, e);
    js_free(lines.list);
    check_fields_done(&f.fields);
    plan_done(&p);
    plan_done(&old);
    return r;
}

/* Does the request say more than where the plan came from? */
static int says_more(const struct args *a)
{
    return a->memory || a->cores || a->for_pack || a->down_type || a->gate_type || a->cost >= 0 || a->stat >= 0 || a->mode || a->form ||
           a->packed || a->predictor || a->kv >= 0 || a->act >= 0 || a->policy || a->order || a->context || a->max_batch >= 0 ||
           a->cluster_neurons ||
           a->corrections || a->min_speed >= 0 || a->recall > 0 || a->max_kl >= 0 ||
           a->prompt_weight >= 0 || a->batch_weights || a->elastic || a->always_resident || a->chunk || a->rlimit != UINT64_MAX;
}

int cmd_check(int argc, char **argv)
{
    struct options w = { .tolerance = 0.1 };
    int n_pos, r, worse = 0;
    struct err e = { 0 };
    struct opt opts[ARGS_ROWS + ARGS_GUESSER_ROWS + 8] = { 0 };
    const struct opt own[8] = {
        { .name = "against", .type = OPT_STRING, .dest = &w.against, .arg = "OLD.json", .file = OPT_READ,
          .help = "An older plan to compare with." },
        { .name = "certificate", .type = OPT_STRING, .dest = &w.certificate, .arg = "FILE", .file = OPT_READ,
          .help = "The proof that 'solve --certificate' wrote: it must be of this plan, and Z3 must refute every claim in it. With "
                  "--solve, every price in it is derived again." },
        { .name = "tolerance", .type = OPT_DOUBLE, .dest = &w.tolerance, .arg = "PERCENT", .min = 0, .max = 100,
          .help = "With --against: how much less speed, or more memory at least needed, is not yet worse.",
          .def = "0.1" },
        { .name = "solve", .type = OPT_FLAG, .dest = &w.solve,
          .help = "Solve again and compare every field. What the plan says of the request is taken from it; other options of the "
                  "request have to be given as they were to solve." },
        { .name = "rlimit", .type = OPT_U64, .dest = &w.request.rlimit, .arg = "N", .min = 0, .max = 4294967295.0,
          .help = "With --solve: Z3's resource limit for each programme.", .def = "the plan's" },
        { .name = "prove", .type = OPT_FLAG, .dest = &w.prove, .help = "With --solve: the plan was made with --prove (or --certificate)." },
        { .name = "json", .type = OPT_FLAG, .dest = &w.json, .help = "Print the result as JSON, with each field's verdict." },
        { 0 },
    };
    init_request(&w.request);
    args_rows(&w.request, opts);
    for (int i = 0; i < ARGS_ROWS; i++)
        opts[i].required = 0;
    args_guesser_rows(&w.guesser, opts + ARGS_ROWS);
    memcpy(opts + ARGS_ROWS + ARGS_GUESSER_ROWS, own, sizeof own);
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n_pos != 1)
        err_set(&e, ERR_USAGE, "check takes one plan; %d were given", n_pos);
    else if (w.request.hardware && !w.request.traces && !w.request.description)
        err_set(&e, ERR_USAGE, "--hardware alone checks no figure: give --traces or --description too");
    else if (w.solve && !w.request.hardware)
        err_set(&e, ERR_USAGE, "--solve needs --hardware, and --traces or --description");
    else if (!w.solve && (w.prove || w.guesser.draft_plan || w.guesser.mtp || w.guesser.draft_memory || says_more(&w.request)))
        err_set(&e, ERR_USAGE, "--prove and the options of a request go with --solve, which solves it again");
    if (e.code)
        return opt_fail(&e);
    w.plan = argv[1];
    return run(&w, &worse, &e) < 0 ? opt_fail(&e) : worse ? 1 : 0;
}
