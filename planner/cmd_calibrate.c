/* thermo-plan calibrate: where prediction and measurement part, and corrections for the hardware database. */
#include "planner/cmd.h"

#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "planner/args.h"
#include "planner/check/calibrate.h"
#include "planner/check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct opt_usage usage = {
    "thermo-plan calibrate", "[MORE.jsonl...]",
    "Compare what thermo-run measured with what a plan predicts, per memory limit and per term: attention, predictor, "
    "FFN, waiting for storage, output head, bytes read, hit rate, speed; medians over the runs. With --store, write "
    "the factors between measured and predicted times into the hardware database as rows of their own; "
    "thermo-plan solve --corrections applies them. Use runs of 100 tokens and more: the cold cache of a "
    "shorter one has not warmed up. docs/cost-model.md explains each factor.",
    "  thermo-run generate --model m.thermo --plan plan.json --prompt 'Once' -n 200 --json > run.jsonl\n"
    "  thermo-plan calibrate --plan plan.json --hardware hw.sqlite --traces t.h5 --telemetry run.jsonl\n"
    "  thermo-plan calibrate --plan plan.json --hardware hw.sqlite --traces t.h5 --store --telemetry runs/*.jsonl\n", "r"
};

struct options {
    const char *plan, *traces, *hardware, *device;
    struct opt_list telemetry;
    int store, reprice, json;
    double wait;
};

static double shown(int term, double v)
{
    return term < CALIBRATE_TIMES ? v / 1e6 : v;
}

static void text_terms(const struct calibrate_limit *l)
{
    for (int t = 0; t < CALIBRATE_TERMS; t++) {
        const char *unit = t < CALIBRATE_TIMES ? "ms" : t == CALIBRATE_BYTES ? "bytes" : "";
        double p = shown(t, l->predicted[t]), m = shown(t, l->measured[t].p50);
        if (l->n[t] == 0 || (p == 0 && m == 0))
            continue;
        print("  %-20s %12.4g %12.4g", calibrate_term_labels[t], p, m);
        if (p > 0)
            print(" %8.3f", m / p);
        else
            print(" %8s", "");
        print("  %s\n", unit);
    }
    double p = 1e9 / l->predicted[CALIBRATE_STEP], m = 1e9 / l->measured[CALIBRATE_STEP].p50;
    print("  %-20s %12.4g %12.4g %8.3f  tokens/s\n", "Speed", p, m, m / p);
}

static void print_text(const struct plan *p, const struct hw *hw, const struct calibrate *c)
{
    char size[32];
    print("%s on %s: %d run%s compared, %d skipped\n", p->model_name, p->device, c->runs, c->runs == 1 ? "" : "s",
           c->skipped);
    for (int i = 0; i < c->why.n; i++)
        print("skipped: %s\n", c->why.text[i]);
    for (int i = 0; i < c->n_limits; i++) {
        const struct calibrate_limit *l = &c->limits[i];
        if (l->runs == 0)
            continue;
        print("\n%s, %d run%s: medians per token\n  %-20s %12s %12s %8s\n",
               size_format(l->limit->memory_bytes, size, sizeof size), l->runs, l->runs == 1 ? "" : "s", "",
               "predicted", "measured", "ratio");
        text_terms(l);
    }
    print("\nMeasured over predicted, all runs%*s median      p10      p90  runs\n", 3, "");
    for (int t = 0; t < CALIBRATE_TERMS; t++)
        if (c->ratio_n[t])
            print("  %-32s %8.3f %8.3f %8.3f %5d\n", calibrate_term_labels[t], c->ratio[t].p50, c->ratio[t].p10,
                   c->ratio[t].p90, c->ratio_n[t]);
    print("Factors on predicted times%s\n", hw->calibration ? ", over figures without corrections" : "");
    for (int t = 0; t < HW_TERMS; t++)
        if (c->factor_n[t])
            print("  %-32s %8.3f %8.3f %8.3f %5d\n", hw_term_name((enum hw_term)t), c->factor[t].p50,
                   c->factor[t].p10, c->factor[t].p90, c->factor_n[t]);
        else
            print("  %-32s does not follow from these runs\n", hw_term_name((enum hw_term)t));
}

static struct js *json_dist(const char *name, const struct hw_dist *d, int n)
{
    struct js *o = js_object();
    js_put(o, JS_STR("term", name), JS_NUM("median", d->p50), JS_NUM("p10", d->p10), JS_NUM("p90", d->p90), JS_INT("runs", n));
    return o;
}

static struct js *json_limit(const struct calibrate_limit *l)
{
    struct js *o = js_object(), *terms = js_array();
    js_put(o, JS_U64("memory_bytes", l->limit->memory_bytes), JS_INT("runs", l->runs));
    for (int t = 0; t < CALIBRATE_TERMS; t++) {
        if (l->n[t] == 0)
            continue;
        struct js *j = json_dist(calibrate_term_names[t], &l->measured[t], l->n[t]);
        js_set_str(j, "unit", t < CALIBRATE_TIMES ? "ns" : t == CALIBRATE_BYTES ? "bytes" : "share");
        js_set_num(j, "predicted", l->predicted[t]);
        js_append(terms, j);
    }
    js_put(o, JS_VALUE("terms", terms), JS_NUM("predicted_tokens_per_s", 1e9 / l->predicted[CALIBRATE_STEP]),
           JS_NUM("measured_tokens_per_s", 1e9 / l->measured[CALIBRATE_STEP].p50));
    return o;
}

static int print_json(const struct plan *p, const struct calibrate *c, int stored, struct err *e)
{
    struct js *o = js_object(), *limits = js_array(), *ratios = js_array(), *factors = js_array(), *why = js_array();
    js_put(o, JS_STR("model", p->model_name), JS_STR("device", p->device), JS_INT("runs", c->runs), JS_INT("skipped", c->skipped));
    for (int i = 0; i < c->why.n; i++)
        js_append_str(why, c->why.text[i]);
    js_set(o, "skipped_because", why);
    for (int i = 0; i < c->n_limits; i++)
        if (c->limits[i].runs)
            js_append(limits, json_limit(&c->limits[i]));
    js_set(o, "limits", limits);
    for (int t = 0; t < CALIBRATE_TERMS; t++)
        if (c->ratio_n[t])
            js_append(ratios, json_dist(calibrate_term_names[t], &c->ratio[t], c->ratio_n[t]));
    js_set(o, "ratios", ratios);
    for (int t = 0; t < HW_TERMS; t++)
        if (c->factor_n[t])
            js_append(factors, json_dist(hw_term_name((enum hw_term)t), &c->factor[t], c->factor_n[t]));
    js_put(o, JS_VALUE("factors", factors), JS_BOOL("stored", stored));
    int r = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return r;
}

/* The hash of the figures without corrections: those that factors are for. */
static int figures_hash(const struct options *w, const struct hw *hw, struct hash128 *out, struct err *e)
{
    struct hw raw = { 0 };
    *out = hw->hash;
    if (!hw->calibration)
        return 0;
    int r = args_load_hw(w->hardware, hw->name, &raw, e);
    if (r == 0)
        *out = raw.hash;
    hw_free(&raw);
    return r;
}

static int store(const struct options *w, struct hwdb *db, const struct plan *p, const struct hw *hw, const struct calibrate *c,
                 struct err *e)
{
    struct hwdb_calibration o = { .device = hw->name, .tool_version = "thermo-plan " THERMO_VERSION,
                                  .model = p->model_name, .runs = c->runs };
    char now[32], *text;
    size_t len;
    time_t t = time(NULL);
    struct tm utc;
    int known = 0, r;
    for (int i = 0; i < HW_TERMS; i++) {
        o.term_runs[i] = c->factor_n[i];
        o.factor[i] = c->factor[i];
        known |= c->factor_n[i] > 0;
    }
    if (!known)
        return err_set(e, ERR_USAGE, "--store: no factor follows from these runs: they have no times per term, as thermo-run generate "
                                     "--json gives them");
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
    o.created_at = now;
    if ((r = figures_hash(w, hw, &o.hardware_hash, e)) < 0 || (r = plan_text(p, &text, &len, e)) < 0)
        return r;
    o.plan_hash = hash_128(text, len);
    free(text);
    hwdb_wait(db, w->wait);
    return hwdb_add_calibration(db, &o, e);
}

/* The plan, priced with figures of another time. What it promised before says which runs belong to it. */
static int reprice(const struct options *w, struct plan *p, struct hw *hw, const struct inputs *in,
                   const struct telemetry *t, double *promised, struct err *e)
{
    struct notes notes = { 0 };
    uint8_t wanted[PLAN_MAX_LIMITS] = { 0 };
    for (int i = 0; i < t->n; i++) {
        const struct plan_limit *l = plan_pick(p, t->run[i].memory_bytes);
        if (l)
            wanted[l - p->limits] = 1;
    }
    for (int i = 0; i < p->n_limits; i++)
        promised[i] = p->limits[i].batches[0].predicted.tokens_per_s;
    int r = args_load_hw(w->hardware, w->device ? w->device : p->device, hw, e);
    return r < 0 ? r : check_reprice(p, w->plan, in, hw, wanted, &notes, e);
}

static int load(const struct options *w, struct plan *p, struct hw *hw, struct inputs *in, struct telemetry *t,
                double *promised, struct err *e)
{
    int r;
    for (int i = 0; i < w->telemetry.n; i++)
        if ((r = telemetry_read(w->telemetry.items[i], t, e)) < 0)
            return r;
    if ((r = plan_read(w->plan, p, e)) < 0)
        return r;
    if (w->reprice)
        return (r = args_load_model_of(w->traces, NULL, p, in, e)) < 0 ? r : reprice(w, p, hw, in, t, promised, e);
    if ((r = args_load_hw_of(w->hardware, w->device, p, hw, e)) < 0)
        return r;
    if (w->store && (p->cost == PLAN_COST_PAPER || p->stat != PLAN_TYPICAL))
        return err_set(e, ERR_USAGE, "--store: plan '%s' was made with --cost %s and --figures %s; corrections are for "
                                     "--cost measured over typical figures", w->plan, plan_cost_name(p->cost),
                       plan_stat_name(p->stat));
    if (w->traces)
        r = args_load_model_of(w->traces, NULL, p, in, e);
    /* Whether every figure follows is for thermo-plan check, which replays the trace. */
    return r < 0 ? r : check_belongs(p, w->plan, w->traces ? in : NULL, hw, e);
}

static int run(const struct options *w, struct err *e)
{
    struct plan p = { 0 };
    struct hw hw = { 0 };
    struct inputs in = { 0 };
    struct telemetry t = { 0 };
    struct calibrate c = { 0 };
    double promised[PLAN_MAX_LIMITS];
    struct hwdb *db = NULL;
    int r = w->store ? hwdb_open(w->hardware, &db, e) : 0; /* before it is read: takes back what a writer that died has left */
    if (r == 0)
        r = load(w, &p, &hw, &in, &t, promised, e);
    if (r == 0)
        r = calibrate_compare(&p, w->plan, &hw, w->traces ? &in : NULL, &t, w->reprice ? promised : NULL, &c, e);
    if (r == 0 && w->store)
        r = store(w, db, &p, &hw, &c, e);
    if (r == 0 && w->json) {
        r = print_json(&p, &c, w->store, e);
    } else if (r == 0) {
        print_text(&p, &hw, &c);
        if (w->store)
            print("stored in %s; thermo-plan solve --corrections applies them\n", w->hardware);
    }
    hwdb_close(db);
    calibrate_done(&c);
    telemetry_done(&t);
    inputs_done(&in);
    hw_free(&hw);
    plan_done(&p);
    return r;
}

/* Arguments beside the options are further telemetry, so that a shell's *.jsonl can follow --telemetry. */
static int take_rest(struct opt_list *l, char **rest, int n, struct err *e)
{
    const char **grown = realloc(l->items, (size_t)(l->n + n + 1) * sizeof *grown);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory");
    l->items = grown;
    for (int i = 0; i < n; i++)
        l->items[l->n++] = rest[i];
    return 0;
}

int cmd_calibrate(int argc, char **argv)
{
    struct options w = { .wait = HWDB_WAIT_S };
    int n_pos, r;
    struct err e = { 0 };
    const struct opt opts[] = {
        { .name = "plan", .type = OPT_STRING, .dest = &w.plan, .arg = "PLAN.json", .required = 1, .file = OPT_READ,
          .help = "The plan that ran." },
        { .name = "telemetry", .type = OPT_LIST, .dest = &w.telemetry, .arg = "RUN.jsonl", .required = 1, .file = OPT_READ,
          .help = "What thermo-run generate --json or bench --json printed; repeatable." },
        { .name = "hardware", .type = OPT_STRING, .dest = &w.hardware, .arg = "FILE", .required = 1, .file = OPT_READ_DB,
          .update_if = &w.store,
          .help = "The hardware database that the plan was made from." },
        { .name = "device", .type = OPT_STRING, .dest = &w.device, .arg = "NAME", .help = "Device in the database.",
          .def = "the plan's" },
        { .name = "traces", .type = OPT_STRING, .dest = &w.traces, .arg = "FILE", .file = OPT_READ,
          .help = "The trace it was made from: attention is then predicted for the positions that each run had, "
                  "instead of a context that is half full.", .def = "none" },
        { .name = "reprice", .type = OPT_FLAG, .dest = &w.reprice,
          .help = "FILE holds figures of another time than those that the plan was made from, as a machine drifts: what the plan "
                  "chose is priced anew with them, and held against the runs. Needs --traces, and goes without --store." },
        { .name = "store", .type = OPT_FLAG, .dest = &w.store,
          .help = "Write the factors into the hardware database." },
        { .name = "wait", .type = OPT_DOUBLE, .dest = &w.wait, .arg = "S", .max = 86400,
          .help = "Seconds to wait where another program holds the database locked, before giving up.", .def = "60" },
        { .name = "json", .type = OPT_FLAG, .dest = &w.json, .help = "Print as JSON." },
        { 0 },
    };
    r = opt_parse(opts, &usage, argc, argv, &n_pos, &e);
    if (r == 0 && w.reprice && (w.store || !w.traces))
        r = err_set(&e, ERR_USAGE, w.store ? "--reprice goes without --store: factors are for the figures that a plan was made from"
                                           : "--reprice needs --traces: what is read follows from the trace");
    if (r == 0 && (r = take_rest(&w.telemetry, argv + 1, n_pos, &e)) == 0)
        r = run(&w, &e);
    free(w.telemetry.items);
    return r < 0 ? opt_fail(&e) : 0;
}
