/* thermo-plan explain: a plan's figures laid open, as text or JSON. */
#include "planner/cmd.h"

#include "common/base/js.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "planner/args.h"
#include "planner/check/check.h"
#include "planner/report/explain.h"
#include "planner/report/gains.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-plan explain", "PLAN.json",
    "Show what stands behind a plan: the memory account, every equation with its numbers, times per layer and what "
    "binds them, the cold cache beside the best that any policy could do, and what one more MiB, GiB or core, or "
    "storage twice as fast, would buy: for each the plan is made again, which takes as long as solve. The plan is checked first.",
    "  thermo-plan explain plan.json --traces t.h5 --hardware hw.sqlite\n  thermo-plan explain plan.json --traces "
    "t.h5 --hardware hw.sqlite --memory 18MiB --json\n", "r"
};

struct options {
    const char *plan;
    struct args_origin from;
    uint64_t memory;
    int json, no_gains;
};

/* ns as text for people. */
static const char *time_text(double ns, char *out, size_t len)
{
    if (ns < 1e3)
        snprintf(out, len, "%.3g ns", ns);
    else if (ns < 1e6)
        snprintf(out, len, "%.4g us", ns / 1e3);
    else
        snprintf(out, len, "%.4g ms", ns / 1e6);
    return out;
}

static void text_value(const struct explain_line *l, double value)
{
    char t[32];
    if (!strcmp(l->unit, "ns"))
        print("%s", time_text(value, t, sizeof t));
    else
        print("%.6g %s", value, l->unit);
}

static void text_lines(const char *title, const struct explain_line *lines, int n)
{
    char bases[EXPLAIN_BASES_TEXT];
    if (n)
        print("\n%s; what no other basis is named of is derived\n", title);
    for (int i = 0; i < n; i++) {
        const struct explain_line *l = &lines[i];
        print("  %-6s %s\n         = ", l->id, l->formula);
        text_value(l, l->value);
        for (int k = 0; k < l->n_terms; k++) {
            const char *name = l->term[k].name;
            int minus = name[0] == '-';
            print("%s ", minus ? " -" : k ? " +" : "   =");
            text_value(l, minus ? -l->term[k].value : l->term[k].value);
            print(" %s", name + minus);
        }
        for (int k = 0; k < l->n; k++)
            print("%s %s %.6g", k ? "," : "   with", l->operand[k].name, l->operand[k].value);
        explain_bases_text(l, bases, sizeof bases);
        print(bases[0] ? "\n         [%s]\n" : "\n", bases);
    }
}

static void text_layers(const struct plan *p, const struct plan_limit *l, const struct explain *x)
{
    const struct plan_figures *f = &l->batches[0].predicted;
    int engine = l->batches[0].engine_neurons > 0;
    print("\nPer layer at batch 1 (times in us); attention, predict, the longe%s of compute%s memory%s%s, io and exposed, less what\n"
           "overlaps, are the total\n"
           "  layer      hot     cold   active  attention  predict  compute   memory%s       io  exposed  overlap    total  binds     "
           "hits   best possible\n", engine ? "st" : "r", engine ? "," : " and", engine ? " and both (with the accelerator)" : "",
           p->cost == PLAN_COST_PAPER ? " (the paper's equations: compute)" : "", engine ? "     both" : "");
    for (int i = 0; i < p->n_layers; i++) {
        const struct plan_layer_figures *g = &f->layers[i];
        char hot[32];
        if (p->n_parts > 1)
            snprintf(hot, sizeof hot, "%u+%u", plan_hot(p, &l->batches[0], i, 0, 0), plan_hot(p, &l->batches[0], i,
                                                                                              0, 1));
        else
            snprintf(hot, sizeof hot, "%u", plan_hot(p, &l->batches[0], i, 0, 0));
        print("  %5d %8s %8u %8.1f %10.1f %8.1f %8.1f %8.1f", i, hot, plan_cold(p, &l->batches[0], i, p->n_parts - 1), g->active,
               g->attention_ns / 1e3, g->predict_ns / 1e3, g->ffn_compute_ns / 1e3, g->ffn_memory_ns / 1e3);
        if (engine)
            print(" %8.1f", g->ffn_engine_ns / 1e3);
        print(" %8.1f %8.1f %8.1f %8.1f  %-8s", g->io_ns / 1e3, g->exposed_ns / 1e3,
               explain_overlap_ns(p->cost, g) / 1e3, g->total_ns / 1e3,
               explain_bound_names[explain_binds(g)]);
        print(" %5.1f %% %5.1f %%\n", 100 * g->hit_rate, 100 * x->best_hit_rate[i]);
    }
}

static void text_inputs(const struct plan *p, const struct plan_limit *l, const struct explain *x)
{
    const struct plan_figures *f = &l->batches[0].predicted;
    char text[CHECK_INPUTS_TEXT];
    double saved = 0, hidden = 0;
    check_inputs_text(p, l, text);
    print("\nWhat predictors see, per layer at batch 1 (times in us); other inputs with the bytes that the layer has\n"
           "  layer  input     predictor  computed   read bytes    total   hidden");
    for (int i = 0; i < PREDICT_INPUTS; i++)
        print("  %8s", predict_input_name((enum predict_input)i));
    print("    saved\n");
    for (int k = 0; k < p->n_layers; k++) {
        const struct explain_input *o = &x->inputs[k];
        double total = f->layers[k].total_ns, less = explain_saved_ns(o, total);
        print("  %5d  %-8s %10llu %7.1f %% %12.0f %8.1f %8.1f", k,
               o->input < 0 ? "none" : predict_input_name((enum predict_input)o->input),
               (unsigned long long)o->predictor_bytes, 100 * o->density, f->layers[k].read_bytes, total / 1e3,
               o->hidden_ns / 1e3);
        for (int i = 0; i < PREDICT_INPUTS; i++)
            if (i == o->input)
                print("  %8.1f", total / 1e3);
            else if (o->rival[i].known)
                print("  %8.1f", o->rival[i].total_ns / 1e3);
            else
                print("  %8s", "-");
        if (isnan(less))
            print("        -%s\n", o->streamed ? "  streamed" : "");
        else
            print(" %8.1f%s\n", less / 1e3, o->streamed ? "  streamed" : "");
        saved += isnan(less) ? 0 : less;
        hidden += o->hidden_ns;
    }
    print("  %s; reads behind attention hide %.4g us, the inputs chosen save %.4g us against the other ones\n", text,
           hidden / 1e3, saved / 1e3);
}

static void text_gains(const struct plan_limit *l, const struct gains *g)
{
    double now = l->batches[0].predicted.tokens_per_s;
    if (g->n)
        print("What more would buy, solved again with the plan's layout, context and chunk (%.4g tokens/s as it is)\n", now);
    for (int i = 0; i < g->n; i++)
        print("  %-40s %.4g tokens/s (%+.1f %%)\n", g->gain[i].what, g->gain[i].tokens_per_s,
               100 * (g->gain[i].tokens_per_s / now - 1));
    if (g->n && !gains_same(g, l))
        print("note: solved again with nothing changed it is %.4g tokens/s: another build made this plan\n", g->again);
}

static void text_engine(const struct explain *x)
{
    if (x->engine)
        print("\nAccelerator %s beside the processor, at the plan's residencies, cores and queue\n", x->engine);
    for (int i = 0; i < x->n_heights; i++) {
        const struct explain_height *h = &x->height[i];
        if (h->neurons || h->work)
            print("  batch %d: it computes %u neurons of each FFN that are in memory%s: %.4g tokens/s; without it %.4g (%+.1f %%)\n",
                   h->batch, h->neurons, explain_work(h->work), h->tokens_per_s, h->without, 100 * (h->tokens_per_s / h->without - 1));
        else if (h->best)
            print("  batch %d: it gets no neurons: %.4g tokens/s; the best it makes, with %u of each FFN%s, is %.4g (%+.1f %%)\n",
                   h->batch, h->without, h->best, explain_work(h->best_work), h->at_best, 100 * (h->at_best / h->without - 1));
    }
    for (int i = 0; i < x->n_prompt_heights; i++) {
        const struct explain_prompt_height *h = &x->prompt[i];
        if (h->neurons || h->work || h->rest)
            print("  prompt of %d tokens: it computes %u neurons of each FFN that are in memory%s%s: first token after %.4g ms; "
                   "without it %.4g (%+.1f %%)\n", h->tokens, h->neurons, explain_rest(h->rest), explain_work(h->work), h->first_ns / 1e6,
                   h->without_ns / 1e6, 100 * (h->first_ns / h->without_ns - 1));
        else if (h->best)
            print("  prompt of %d tokens: it gets no neurons: first token after %.4g ms; the best it makes, with %u of each FFN%s, is "
                   "%.4g (%+.1f %%)\n", h->tokens, h->without_ns / 1e6, h->best, explain_work(h->best_work), h->best_ns / 1e6,
                   100 * (h->best_ns / h->without_ns - 1));
    }
}

static void text_guesses(const struct plan_guesses *g)
{
    char bytes[32], from[80] = "from a source that takes no time";
    if (g->source)
        snprintf(from, sizeof from, "by %s, which takes %.4g ms for each guess", plan_source_name(g->source), g->guess_ns / 1e6);
    if (g->n)
        print("\nGuesses (thermo-run generate --guess): passes over tokens that follow each other, (M30)\n");
    for (int i = 0; i < g->n; i++)
        print("  %2d token%s %.4g ms, %s read\n", g->tokens[i], i ? "s:" : ": ", g->pass_ns[i] / 1e6,
               size_format((uint64_t)g->read_bytes[i], bytes, sizeof bytes));
    for (int i = 0; i < PLAN_ACCEPTANCES && g->n; i++)
        print("  where a share of %g comes true, %s: %d guesses a pass, %.4g times as fast\n", g->acceptance[i], from, g->best[i],
               g->speedup[i]);
}

static void print_text(const struct plan *p, const struct plan_limit *l, const struct explain *x, const struct gains *g)
{
    char a[32], b[32], own[EXPLAIN_OWN];
    int count[EXPLAIN_BOUNDS];
    print("%s on %s (%s figures), %s cost model, %s%s layout, limit %s\n", p->model_name, p->device,
           plan_stat_name(p->stat), plan_cost_name(p->cost),
           p->layout.packed ? "packed " : "", layout_form_name(p->layout.form),
           size_format(l->memory_bytes, a, sizeof a));
    print("%s mode, %d threads, queue depth %d%s, context %d, KV cache in %s, cold cache %s: %.4g tokens/s, proven within %.2f %% "
           "of the best %s\n", plan_mode_name(l->mode), l->threads, l->queue_depth,
           l->ahead == PLAN_AHEAD_ON ? ", experts read ahead" : l->ahead == PLAN_AHEAD_OFF ? ", no experts read ahead" : "", l->context,
           kv_type_name(l->kv_type), cache_policy_name(l->policy), l->batches[0].predicted.tokens_per_s, 100 * l->gap, explain_gap_of(l));
    explain_own(l, own, sizeof own);
    if (own[0])
        print("%s\n", own);
    print("\nMemory account\n");
    for (int i = 0; i < BUDGET_ITEMS; i++)
        if (x->account.item[i])
            print("  %-10s %12llu  %s\n", budget_item_name((enum budget_item)i),
                   (unsigned long long)x->account.item[i], size_format(x->account.item[i], b, sizeof b));
    print("  %-10s %12llu  %s of %s; floor %llu\n", "total", (unsigned long long)x->account.total,
           size_format(x->account.total, b, sizeof b), a, (unsigned long long)x->account.floor);
    if (x->exact_floor)
        print("  floor in exact mode, with the same choices: %llu; predictors add %llu\n",
               (unsigned long long)x->exact_floor, (unsigned long long)(x->account.floor - x->exact_floor));
    text_lines("The paper's equations, whole model, batch 1", x->paper, x->n_paper);
    text_lines("Measured cost model, batch 1, sums over layers", x->measured, x->n_measured);
    text_layers(p, l, x);
    if (x->inputs)
        text_inputs(p, l, x);
    text_engine(x);
    text_guesses(&l->guesses);
    explain_count(p, l, count);
    print("\nWhat binds: compute in %d layers, memory in %d, io in %d\n", count[EXPLAIN_COMPUTE], count[EXPLAIN_MEMORY],
           count[EXPLAIN_IO]);
    text_gains(l, g);
    for (int i = 0; i < p->n_notes; i++)
        print("note: %s\n", p->notes[i]);
}

static struct js *json_lines(const struct explain_line *lines, int n)
{
    struct js *a = js_array();
    for (int i = 0; i < n; i++) {
        struct js *o = js_object(), *with = js_object(), *basis = js_object();
        js_put(o, JS_STR("id", lines[i].id), JS_STR("formula", lines[i].formula), JS_NUM("value", lines[i].value),
               JS_STR("unit", lines[i].unit));
        for (int k = 0; k < lines[i].n; k++)
            js_set_num(with, lines[i].operand[k].name, lines[i].operand[k].value);
        js_set(o, "with", with);
        js_set_str(basis, "value", explain_basis_names[EXPLAIN_DERIVED]);
        for (int k = 0; k < lines[i].n; k++)
            js_set_str(basis, lines[i].operand[k].name, explain_basis_names[lines[i].basis[k]]);
        js_set(o, "basis", basis);
        if (lines[i].n_terms) {
            struct js *terms = js_object();
            for (int k = 0; k < lines[i].n_terms; k++)
                js_set_num(terms, lines[i].term[k].name, lines[i].term[k].value);
            js_set(o, "terms", terms);
        }
        js_append(a, o);
    }
    return a;
}

static void json_input(struct js *to, const struct explain_input *x, double total_ns)
{
    struct js *o = js_object(), *others = js_object();
    double saved = explain_saved_ns(x, total_ns);
    js_put(o, JS_STR("sees", x->input < 0 ? "none" : predict_input_name((enum predict_input)x->input)),
           JS_U64("bytes", x->predictor_bytes), JS_BOOL("streamed", x->streamed), JS_NUM("density", x->density),
           JS_NUM("hidden_ns", x->hidden_ns));
    if (!isnan(saved))
        js_set_num(o, "saved_ns", saved);
    for (int i = 0; i < PREDICT_INPUTS; i++)
        if (x->rival[i].known)
            js_set(others, predict_input_name((enum predict_input)i), js_made(JS_U64("bytes", x->rival[i].predictor_bytes),
                                                                              JS_NUM("read_bytes", x->rival[i].read_bytes),
                                                                              JS_NUM("total_ns", x->rival[i].total_ns)));
    js_set(o, "others", others);
    js_set(to, "predictor", o);
}

static void json_gains(struct js *to, const struct gains *g)
{
    static const char *const of[] = { [GAIN_MIB] = "memory", [GAIN_GIB] = "memory", [GAIN_CORE] = "core", [GAIN_STORAGE] = "storage" };
    struct js *gains = js_array();
    for (int i = 0; i < g->n; i++) {
        struct js *j = js_object();
        js_put(j, JS_STR("what", g->gain[i].what), JS_STR("of", of[g->gain[i].of]),
               JS_U64("memory_bytes", g->gain[i].memory_bytes));
        if (g->gain[i].of == GAIN_CORE)
            js_set_int(j, "core_class", g->gain[i].core_class);
        js_set_num(j, "tokens_per_s", g->gain[i].tokens_per_s);
        js_append(gains, j);
    }
    if (g->n)
        js_set_num(to, "solved_again_tokens_per_s", g->again);
    js_set(to, "gains", gains);
}

static struct js *json_prompts(const struct explain *x)
{
    struct js *list = js_array();
    for (int i = 0; i < x->n_prompt_heights; i++) {
        const struct explain_prompt_height *h = &x->prompt[i];
        struct js *j = js_object(), *tried = js_array();
        js_put(j, JS_INT("tokens", h->tokens), JS_INT("neurons", (int)h->neurons), JS_STR("work", plan_work_name(h->work)),
               JS_BOOL("rest", h->rest), JS_NUM("first_token_ns", h->first_ns), JS_NUM("without_first_token_ns", h->without_ns),
               JS_INT("best_neurons", (int)h->best), JS_STR("best_work", plan_work_name(h->best_work)),
               JS_BOOL("best_rest", h->best_rest), JS_NUM("best_first_token_ns", h->best_ns));
        for (int k = 0; k < h->n_tried; k++)
            js_append(tried, js_made(JS_INT("neurons", (int)h->tried[k]), JS_NUM("first_token_ns", h->at_ns[k])));
        js_set(j, "heights", tried);
        js_append(list, j);
    }
    return list;
}

static void json_engine(struct js *to, const struct explain *x)
{
    struct js *o = js_object(), *list = js_array();
    for (int i = 0; i < x->n_heights; i++) {
        struct js *j = js_object();
        js_put(j, JS_INT("batch", x->height[i].batch), JS_INT("neurons", (int)x->height[i].neurons),
               JS_STR("work", plan_work_name(x->height[i].work)), JS_NUM("tokens_per_s", x->height[i].tokens_per_s),
               JS_NUM("without_tokens_per_s", x->height[i].without), JS_INT("best_neurons", (int)x->height[i].best),
               JS_STR("best_work", plan_work_name(x->height[i].best_work)), JS_NUM("best_tokens_per_s", x->height[i].at_best));
        struct js *tried = js_array();
        for (int k = 0; k < x->height[i].n_tried; k++)
            js_append(tried, js_made(JS_INT("neurons", (int)x->height[i].tried[k]), JS_NUM("tokens_per_s", x->height[i].at[k])));
        js_set(j, "heights", tried);
        js_append(list, j);
    }
    if (!x->engine) {
        js_free(o);
        js_free(list);
        return;
    }
    js_put(o, JS_STR("name", x->engine), JS_VALUE("batches", list), JS_VALUE("prompts", json_prompts(x)));
    js_set(to, "engine", o);
}

static void json_guesses(struct js *to, const struct plan_guesses *g)
{
    struct js *o, *passes, *shares;
    if (!g->n)
        return;
    o = js_object(), passes = js_array(), shares = js_array();
    for (int i = 0; i < g->n; i++)
        js_append(passes, js_made(JS_INT("tokens", g->tokens[i]), JS_NUM("pass_ns", g->pass_ns[i]),
                                  JS_NUM("read_bytes", g->read_bytes[i])));
    for (int i = 0; i < PLAN_ACCEPTANCES; i++)
        js_append(shares, js_made(JS_NUM("acceptance", g->acceptance[i]), JS_INT("best", g->best[i]),
                                  JS_NUM("speedup", g->speedup[i])));
    js_put(o, JS_VALUE("passes", passes), JS_VALUE("acceptances", shares));
    if (g->source) {
        js_put(o, JS_STR("source", plan_source_name(g->source)), JS_NUM("guess_ns", g->guess_ns));
    }
    js_set(to, "guesses", o);
}

static int print_json(const struct plan *p, const struct plan_limit *l, const struct explain *x, const struct gains *g, struct err *e)
{
    struct js *o = js_object(), *account = js_object(), *layers = js_array(), *binds = js_object();
    int count[EXPLAIN_BOUNDS];
    js_put(o, JS_STR("model", p->model_name), JS_STR("device", p->device), JS_STR("figures", plan_stat_name(p->stat)),
           JS_U64("memory_bytes", l->memory_bytes), JS_NUM("tokens_per_s", l->batches[0].predicted.tokens_per_s),
           JS_NUM("gap", l->gap), JS_STR("gap_of", l->gap_of_layouts ? "layouts" : "layout"));
    if (l->own.tokens_per_s > 0) {
        struct js *own = js_object();
        js_put(own, JS_NUM("cost", l->own.cost), JS_STR("form", layout_form_name(l->own.form)), JS_BOOL("packed", l->own.packed),
               JS_NUM("tokens_per_s", l->own.tokens_per_s));
        js_set(o, "own_layout", own);
    }
    for (int i = 0; i < BUDGET_ITEMS; i++)
        if ((i != BUDGET_ENGINE && i != BUDGET_ROOM) || x->account.item[i])
            js_set_u64(account, budget_item_name((enum budget_item)i), x->account.item[i]);
    js_put(account, JS_U64("total", x->account.total), JS_U64("floor", x->account.floor));
    js_set(o, "account", account);
    if (x->exact_floor)
        js_set_u64(o, "exact_floor", x->exact_floor);
    js_put(o, JS_VALUE("paper", json_lines(x->paper, x->n_paper)), JS_VALUE("measured", json_lines(x->measured, x->n_measured)));
    for (int i = 0; i < p->n_layers; i++) {
        struct js *j = js_object();
        for (int c = 0; c < PLAN_COLUMNS; c++)
            if (plan_columns[c].at != offsetof(struct plan_layer_figures, ffn_engine_ns) || l->batches[0].engine_neurons)
                js_set_num(j, plan_columns[c].key, *plan_column_at(&l->batches[0].predicted.layers[i], c));
        js_set_num(j, "overlap_ns", explain_overlap_ns(p->cost, &l->batches[0].predicted.layers[i]));
        js_set_str(j, "binds", explain_bound_names[explain_binds(&l->batches[0].predicted.layers[i])]);
        js_set_num(j, "best_hit_rate", x->best_hit_rate[i]);
        if (x->inputs)
            json_input(j, &x->inputs[i], l->batches[0].predicted.layers[i].total_ns);
        js_append(layers, j);
    }
    js_set(o, "layers", layers);
    explain_count(p, l, count);
    for (int i = 0; i < EXPLAIN_BOUNDS; i++)
        js_set_int(binds, explain_bound_names[i], count[i]);
    js_set(o, "binds", binds);
    json_engine(o, x);
    json_guesses(o, &l->guesses);
    json_gains(o, g);
    int r = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return r;
}

static int run(const struct options *w, struct err *e)
{
    struct plan p = { 0 };
    struct inputs in = { 0 };
    struct hw hw = { 0 };
    struct notes notes = { 0 };
    struct problem pr = { 0 };
    struct explain x = { .n_paper = 0 };
    struct gains gains = { 0 };
    const struct plan_limit *l = NULL;
    int r = plan_read(w->plan, &p, e);
    if (r == 0 && !(l = plan_pick(&p, w->memory)))
        r = err_set(e, ERR_USAGE, "--memory: plan '%s' has no limit as small as %llu bytes; its smallest is %llu",
                    w->plan, (unsigned long long)w->memory, (unsigned long long)p.limits[0].memory_bytes);
    if (r == 0)
        r = args_load_hw_of(w->from.hardware, w->from.device, &p, &hw, e);
    if (r == 0)
        r = args_load_model_of(w->from.traces, w->from.description, &p, &in, e);
    if (r == 0)
        r = check_plan(&p, w->plan, &in, &hw, &notes, e);
    if (r == 0)
        r = planning_problem(&p, l, &in, &hw, &notes, &pr, e);
    if (r == 0)
        r = explain_limit(&pr, &p, l, &x, e);
    problem_done(&pr);
    if (r == 0 && !w->no_gains)
        r = gains_find(&p, l, 1, &in, &hw, &gains, e);
    if (r == 0 && w->json)
        r = print_json(&p, l, &x, &gains, e);
    else if (r == 0)
        print_text(&p, l, &x, &gains);
    explain_done(&x);
    inputs_done(&in);
    hw_free(&hw);
    plan_done(&p);
    return r;
}

int cmd_explain(int argc, char **argv)
{
    struct options w = { 0 };
    int n_pos, r;
    struct err e = { 0 };
    struct opt opts[ARGS_ORIGIN_ROWS + 4] = { 0 };
    const struct opt own[] = {
        { .name = "memory", .type = OPT_SIZE, .dest = &w.memory, .arg = "SIZE",
          .help = "Which limit of the plan: the largest that is not above this.", .def = "the plan's largest" },
        { .name = "json", .type = OPT_FLAG, .dest = &w.json, .help = "Print as JSON." },
        { .name = "no-gains", .type = OPT_FLAG, .dest = &w.no_gains, .help = "Leave out what more would buy, and the time it takes." },
        { 0 },
    };
    args_origin_rows(&w.from, 1, opts);
    memcpy(opts + ARGS_ORIGIN_ROWS, own, sizeof own);
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n_pos != 1) {
        err_set(&e, ERR_USAGE, "explain takes one plan; %d were given", n_pos);
        return opt_fail(&e);
    }
    w.plan = argv[1];
    return run(&w, &e) < 0 ? opt_fail(&e) : 0;
}
