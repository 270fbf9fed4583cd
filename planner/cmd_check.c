/* thermo-plan check: verify a plan with no solver, and compare it with an older one. */
#include "planner/cmd.h"

#include "common/base/js.h"
#include "common/cli/opt.h"
#include "planner/args.h"
#include "planner/check/check.h"
#include "planner/check/proof.h"

#include <stdio.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-plan check", "PLAN.json",
    "Verify a plan from the equations alone. By itself: format, ranges, layout. With --traces (or --description): that "
    "it is for this model, and the memory account to the byte. With --hardware as well: cores and every predicted "
    "figure. With --against: what changed since an older plan; exit status 1 when a promise (speed, floor, context, a "
    "limit or batch size that is planned for) got worse by more than --tolerance. With --certificate: the proof of its gap; "
    "exit status 5 where there is none.",
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
        struct js *o = js_object();
        js_set_bool(o, "worse", worse);
        js_set_str(o, "text", text);
        js_append(l->list, o);
    } else {
        printf("%s %s\n", worse ? "worse:  " : "changed:", text);
    }
}

struct wish {
    const char *plan, *against, *certificate;
    struct args_origin from;
    double tolerance;
    int json;
};

static int load_and_check(const struct wish *w, struct plan *p, struct err *e)
{
    struct inputs in = { 0 };
    struct hw hw = { 0 };
    struct notes notes = { 0 };
    int r = plan_read(w->plan, p, e), model = w->from.traces || w->from.description;
    if (r < 0)
        return r;
    if (w->from.hardware)
        r = args_load_hw_of(w->from.hardware, w->from.device, p, &hw, e);
    if (r == 0 && model)
        r = args_load_model(w->from.traces, w->from.description, plan_max_batch(p), &in, NULL, e);
    if (r == 0)
        r = check_plan(p, w->plan, model ? &in : NULL, w->from.hardware ? &hw : NULL, &notes, e);
    inputs_done(&in);
    hw_free(&hw);
    if (r < 0)
        plan_done(p);
    return r;
}

static int run(const struct wish *w, int *worse, struct err *e)
{
    struct plan p, old = { 0 };
    struct lines lines = { w->json ? js_array() : NULL };
    static const char alone[] = "format and ranges are right; --traces or --description, and --hardware check more";
    int model = w->from.traces || w->from.description;
    const char *how = model && w->from.hardware ? "account, cores and every figure follow from the inputs" :
                      model ? "the account follows from the model" : alone;
    int r = load_and_check(w, &p, e);
    if (r < 0) {
        js_free(lines.list);
        return r;
    }
    if (!w->json)
        printf("%s: %s\n", w->plan, how);
    for (int i = 0; i < p.n_limits && !w->json; i++) {
        char text[CHECK_INPUTS_TEXT];
        check_inputs_text(&p, &p.limits[i], text);
        if (text[0])
            printf("memory %llu: %s\n", (unsigned long long)p.limits[i].memory_bytes, text);
    }
    if (w->against && (r = plan_read(w->against, &old, e)) == 0) {
        *worse = check_against(&p, &old, w->tolerance / 100, print_line, &lines);
        if (!w->json)
            printf("%d promise%s got worse since %s\n", *worse, *worse == 1 ? "" : "s", w->against);
    }
    int claims = 0;
    if (r == 0 && w->certificate && (r = proof_check(&p, w->certificate, &claims, e)) == 0 && !w->json)
        printf("%s: Z3 refutes all %d claims: no plan within these choices is faster by more than the gap\n", w->certificate, claims);
    if (r == 0 && w->json) {
        struct js *o = js_object();
        if (w->certificate)
            js_set_int(o, "claims_refuted", claims);
        js_set_str(o, "plan", w->plan);
        js_set_bool(o, "account_checked", model);
        js_set_bool(o, "figures_checked", model && w->from.hardware);
        js_set_int(o, "worse", *worse);
        js_set(o, "changes", lines.list);
        lines.list = NULL;
        r = js_print(stdout, o, 2, 6, e);
        js_free(o);
    }
    js_free(lines.list);
    plan_done(&p);
    plan_done(&old);
    return r;
}

int cmd_check(int argc, char **argv)
{
    struct wish w = { .tolerance = 0.1 };
    int n_pos, r, worse = 0;
    struct err e = { 0 };
    struct opt opts[ARGS_ORIGIN_ROWS + 5] = { 0 };
    const struct opt own[] = {
        { .name = "against", .type = OPT_STRING, .dest = &w.against, .arg = "OLD.json", .file = OPT_READ,
          .help = "An older plan to compare with." },
        { .name = "certificate", .type = OPT_STRING, .dest = &w.certificate, .arg = "FILE", .file = OPT_READ,
          .help = "The proof that 'solve --certificate' wrote: it must be of this plan, and Z3 must refute every claim in it." },
        { .name = "tolerance", .type = OPT_DOUBLE, .dest = &w.tolerance, .arg = "PERCENT", .min = 0, .max = 100,
          .help = "With --against: how much less speed, or more memory at least needed, is not yet worse.",
          .def = "0.1" },
        { .name = "json", .type = OPT_FLAG, .dest = &w.json, .help = "Print the result as JSON." },
        { 0 },
    };
    args_origin_rows(&w.from, 0, opts);
    memcpy(opts + ARGS_ORIGIN_ROWS, own, sizeof own);
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n_pos != 1)
        err_set(&e, ERR_USAGE, "check takes one plan; %d were given", n_pos);
    else if (w.from.hardware && !w.from.traces && !w.from.description)
        err_set(&e, ERR_USAGE, "--hardware alone checks no figure: give --traces or --description too");
    if (e.code)
        return opt_fail(&e);
    w.plan = argv[1];
    return run(&w, &worse, &e) < 0 ? opt_fail(&e) : worse ? 1 : 0;
}
