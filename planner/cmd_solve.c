/* thermo-plan solve: the plan for one model, device and set of memory limits. What is written has passed check. */
#include "planner/cmd.h"

#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/model/nn.h"
#include "planner/args.h"
#include "planner/check/check.h"
#include "planner/check/proof.h"
#include "planner/planning/diagnosis.h"
#include "planner/planning/figures.h"
#include "planner/planning/planning.h"
#include "planner/planning/planning_cold.h"
#include "planner/planning/planning_guesses.h"
#include "planner/report/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct opt_usage usage = {
    "thermo-plan solve", "",
    "Find the fastest configuration of a model on a device within a memory limit: which neurons of each layer stay "
    "resident, which are cached, how many cores compute, how deep reads queue, how the pack is laid out. "
    "Everything is derived from the trace (or, without one, a description of the model by published figures) and the "
    "hardware database; the same inputs give the same plan, byte for "
    "byte. Where the limits contradict each other the exit status is 4 and the message says which, and the nearest "
    "value of each that would do; with --json standard output has them as numbers. A plan of several limits has one layout for all of "
    "them, as a pack has, and says what that costs each; --layout-per-limit makes a plan for each instead. With --model in place of "
    "--traces it only says whether there is a plan at all, before an hour of tracing.",
    "  thermo-plan solve --model m.gguf --memory 18MiB --context 512\n"
    "  thermo-plan solve --traces t.h5 --hardware hw.sqlite --memory 18MiB --out plan.json\n"
    "  thermo-plan solve --traces t.h5 --hardware hw.sqlite --device phone --memory 2GiB,4GiB --min-speed 5 "
    "--cores big=1,mid=3 --out plan.json\n"
    "  thermo-plan solve --description datasets/descriptions/bamboo-7b.json --hardware phones.sqlite --memory 3GiB "
    "--out plan.json\n",
    NULL
};

static void print_guesses(const struct plan_guesses *g)
{
    if (g->n)
        print("  guesses");
    if (g->n && g->source)
        print(" by %s, %.4g ms each", plan_source_name(g->source), g->guess_ns / 1e6);
    for (int i = 0; i < PLAN_ACCEPTANCES && g->n; i++)
        print("%s%g true %d a pass, %.3g times as fast", i ? "; of " : ": of ", g->acceptance[i], g->best[i], g->speedup[i]);
    if (g->n)
        print("\n");
}

static void print_limit(const struct plan *p, const struct plan_limit *l)
{
    char a[32], b[32], c[32], text[EXPLAIN_OWN];
    print("%s%s%s: %s mode, %d thread%s, depth %d%s, context %d, %s; takes %s (floor %s)\n",
           size_format(l->memory_bytes, a, sizeof a), l->purpose ? ", for " : "", l->purpose ? plan_purpose_name(l->purpose) : "",
           plan_mode_name(l->mode), l->threads,
           l->threads > 1 ? "s" : "", l->queue_depth, l->ahead == PLAN_AHEAD_ON ? ", experts read ahead" : "", l->context,
           cache_policy_name(l->policy),
           size_format(l->account_bytes, b, sizeof b), size_format(l->floor_bytes, c, sizeof c));
    for (int i = 0; i < l->n_batches; i++) {
        const struct plan_figures *f = &l->batches[i].predicted;
        double hot = 0, all = 0;
        for (int k = 0; k < p->n_layers; k++)
            for (int j = 0; j < p->n_blocks; j++)
                for (int q = 0; q < p->n_parts; q++) {
                    hot += plan_hot(p, &l->batches[i], k, j, q);
                    all += plan_n_ff(p, k);
                }
        print("  batch %d: %.4g tokens/s; %.0f %% of rows resident, cold hit rate %.1f %%, %s read a step",
               l->batches[i].batch, f->tokens_per_s, 100 * hot / all, 100 * f->hit_rate,
               size_format((uint64_t)f->read_bytes, a, sizeof a));
        if (l->n_batches > 1)
            print("; %d thread%s, depth %d", l->batches[i].threads, l->batches[i].threads > 1 ? "s" : "", l->batches[i].queue_depth);
        if (l->batches[i].engine_neurons || l->batches[i].engine_work)
            print("; %u neurons of each FFN%s on %s", l->batches[i].engine_neurons, explain_work(l->batches[i].engine_work), p->engine);
        print("\n");
    }
    int longest = l->prompt.n ? l->prompt.tokens[l->prompt.n - 1] : 0;
    if (longest)
        print("  prompts: %.4g tokens/s in chunks of %d; of %d tokens, the first token after %.4g s",
               plan_prompt_tokens_per_s(&l->prompt), l->prefill_chunk, longest, plan_prompt_ns(&l->prompt, longest) / 1e9);
    int last = l->prompt.n - 1;
    if (longest && (l->prompt.engine_neurons[last] || l->prompt.engine_work[last] || l->prompt.rest_from))
        print("; %u neurons of each FFN%s%s on %s", l->prompt.engine_neurons[last], explain_rest(l->prompt.rest_from > 0),
               explain_work(l->prompt.engine_work[last]), p->engine);
    if (longest)
        print("\n");
    print_guesses(&l->guesses);
    print("  proven within %.2f %% of the best %s%s\n", 100 * l->gap, explain_gap_of(l),
           l->optimal ? "" : " (solver stopped at its limit: best verified plan so far)");
    if (l->elastic.group)
        print("  elastic group %d, which costs it %.2g %% of decoding's speed and %.2g %% of prompts'\n", l->elastic.group,
              100 * l->elastic.token_cost, 100 * l->elastic.prompt_cost);
    explain_own(l, text, sizeof text);
    if (text[0])
        print("  %s\n", text);
}

static void set_positive(struct js *o, const char *key, double v)
{
    if (v > 0)
        js_set_num(o, key, v);
}

static void set_bytes(struct js *o, const char *key, uint64_t v)
{
    if (v > 0)
        js_set_u64(o, key, v);
}

/* A refusal as an object: its message, which limits contradict each other, what they were, and what would do. */
static int print_refusal(const struct diagnosis *a, const struct err *why)
{
    struct js *o = js_object(), *limits = js_array(), *asked = js_object(), *nearest = js_object();
    struct err e = { 0 };
    js_put(o, JS_BOOL("feasible", 0), JS_INT("exit_status", err_exit_status(why->code)), JS_STR("message", why->msg));
    static const struct {
        unsigned bit;
        const char *name;
    } bits[] = { { SOLVE_MEMORY, "memory" }, { SOLVE_SPEED, "min_speed" }, { SOLVE_CORES, "cores" }, { SOLVE_CONTEXT, "context" } };
    for (int i = 0; i < 4; i++)
        if (a->core & bits[i].bit)
            js_append_str(limits, bits[i].name);
    if (a->near_memory_bytes_at_batch_1)
        js_append_str(limits, "max_batch");
    if (a->max_kl > 0 || a->near_max_kl > 0)
        js_append_str(limits, "max_kl");
    set_bytes(asked, "memory_bytes", a->memory_bytes);
    set_bytes(asked, "context_tokens", (uint64_t)a->context);
    set_bytes(asked, "max_batch", (uint64_t)a->max_batch);
    set_positive(asked, "min_speed_tokens_per_s", a->min_tokens_per_s);
    set_positive(asked, "max_kl_nats", a->max_kl);
    set_bytes(nearest, "memory_bytes", a->near_memory_bytes);
    set_bytes(nearest, "memory_bytes_at_max_batch_1", a->near_memory_bytes_at_batch_1);
    set_bytes(nearest, "context_tokens", (uint64_t)a->near_context);
    set_positive(nearest, "min_speed_tokens_per_s", a->near_speed);
    set_positive(nearest, "min_speed_tokens_per_s_all_resident", a->near_speed_resident);
    set_positive(nearest, "min_speed_tokens_per_s_all_cores", a->near_speed_all_cores);
    set_positive(nearest, "max_kl_nats", a->near_max_kl);
    set_positive(nearest, "max_kl_at_recall", a->near_max_kl_recall);
    set_bytes(nearest, "cores", (uint64_t)a->near_cores);
    js_put(o, JS_VALUE("contradict", limits), JS_VALUE("asked", asked), JS_VALUE("nearest", nearest));
    int r = js_print(stdout, o, 2, 0, &e);
    js_free(o);
    return r;
}

/* What the plan says of its figures that asks for care, and how old they are, goes to standard error too. */
static int warn_of_figures(const struct hw *hw, const struct plan *p, struct err *e)
{
    struct notes doubts = { 0 };
    int r = figures_doubts(hw, p, &doubts, e);
    figures_age(hw, (int64_t)time(NULL), &doubts);
    for (int i = 0; i < doubts.n; i++)
        log_warn("%s", doubts.text[i]);
    return r;
}

/* The problem of a plan as text, malloc'd. */
static int problem_text_of(const struct args_inputs *in, const struct plan *p, char **text, size_t *len, struct err *e)
{
    FILE *f = open_memstream(text, len);
    if (!f)
        return err_set(e, ERR_NOMEM, "out of memory for --smt2");
    struct limits lim;
    planning_limits(p, &p->limits[0], &lim);
    memcpy(lim.cores, in->request.cores, sizeof lim.cores);
    int r = planning_text(&in->request, &in->in, &in->hw, p, &lim, f, e);
    int bad = ferror(f);
    if ((fclose(f) || bad) && r == 0)
        r = err_set(e, ERR_NOMEM, "out of memory for --smt2");
    return r;
}

/* What is asked for beside the plan. */
struct options {
    const char *out, *certificate, *smt2, *model, *trace_flags;
    struct args_guesser guesser;
    int prove, json, each;
};

static int check_options(const struct options *w, const struct args_inputs *in, struct err *e)
{
    const struct request *q = &in->request;
    if (q->always_resident && (w->prove || w->certificate || w->smt2))
        return err_set(e, ERR_USAGE, "--always-resident does not go with --prove, --certificate and --smt2: what is always computed is "
                                     "known when the plan is solved, and no proof has it");
    if (w->smt2 && (q->n_memory > 1 || q->max_batch > 1))
        return err_set(e, ERR_USAGE, "--smt2 writes the problem of one plan: it goes with one limit of --memory and with --max-batch 1");
    if (q->elastic && (w->certificate || w->each))
        return err_set(e, ERR_USAGE, "--elastic does not go with %s: limits of a group are not chosen each for itself",
                       w->certificate ? "--certificate" : "--layout-per-limit");
    if (w->each && (w->certificate || w->smt2))
        return err_set(e, ERR_USAGE, "--layout-per-limit makes several plans, and --certificate and --smt2 are of one: solve each limit by "
                                     "itself");
    if (w->each && q->for_pack)
        return err_set(e, ERR_USAGE, "--layout-per-limit chooses layouts, and --for-pack takes that of the pack: give one of them");
    return 0;
}

/* Where nothing is predicted of guesses, a source changes nothing. */
static void warn_of_guesses(const struct plan *p, const struct guesser *who)
{
    for (int i = 0; i < p->n_limits && who->source; i++)
        if (!p->limits[i].guesses.n) {
            log_warn("what guesses bring is not predicted here (docs/cost-model.md), nor what their source takes");
            return;
        }
}

/* PLAN-18MiB.json of PLAN.json. */
static int name_of_limit(const char *out, uint64_t bytes, char *name, size_t len, struct err *e)
{
    char size[24];
    const char *dot = strrchr(out, '.'), *slash = strrchr(out, '/');
    size_t stem = dot && dot > out && (!slash || dot > slash + 1) ? (size_t)(dot - out) : strlen(out);
    int n = snprintf(name, len, "%.*s-%s%s", (int)stem, out, size_exact(bytes, size, sizeof size), out + stem);
    return n > 0 && (size_t)n < len ? 0 : err_set(e, ERR_USAGE, "--out: a name of more than %zu bytes", len - 32);
}

/* A plan as it is written: checked, with what guesses bring. */
static int finish(struct plan *p, const char *name, const struct args_inputs *in, const struct guesser *who, struct err *e)
{
    struct notes ignored = { 0 };
    int r = check_plan(p, name, &in->in, &in->hw, &ignored, e);
    return r < 0 ? r : planning_guesses(p, &in->in, &in->hw, who, e);
}

static int print_plan(const struct plan *p, const char *name, struct err *e)
{
    char *text;
    size_t len;
    int r = name ? 0 : plan_text(p, &text, &len, e);
    if (r == 0 && !name) {
        print_data(text, len);
        free(text);
    } else if (r == 0) {
        print("wrote %s: %s%s layout%s on %s, %s\n", name, p->layout.packed ? "packed " : "", layout_form_name(p->layout.form),
              p->sort == LAYOUT_TOGETHER ? " ordered by firing together" : "", p->device, p->solver);
        for (int i = 0; i < p->n_limits; i++)
            print_limit(p, &p->limits[i]);
        for (int i = 0; i < p->n_notes; i++)
            print("note: %s\n", p->notes[i]);
    }
    return r;
}

/* One plan for all limits. */
static int make_one(const struct options *w, struct args_inputs *in, const struct guesser *who, struct err *e)
{
    char *stated = NULL;
    size_t stated_len = 0;
    struct proof proof = { .path = w->certificate };
    struct plan p = { 0 };
    int r;
    if ((r = proof_begin(&proof, &in->request, e)) == 0 &&
        (r = planning_cold_make(&in->request, &in->in, &in->hw, &in->notes, &p, e)) == 0 && (r = finish(&p, w->out, in, who, e)) == 0 &&
        (r = w->smt2 ? problem_text_of(in, &p, &stated, &stated_len, e) : 0) == 0 && (r = proof_write(&proof, &p, e)) == 0 &&
        (r = plan_write(&p, w->out, e)) == 0 && w->smt2)
        r = file_replace(w->smt2, stated, stated_len, e);
    proof_done(&proof);
    free(stated);
    if (r == 0)
        r = warn_of_figures(&in->hw, &p, e);
    if (r == 0)
        warn_of_guesses(&p, who);
    if (r == 0)
        r = print_plan(&p, w->json ? NULL : w->out, e);
    if (r == 0 && !w->json && w->certificate)
        print("wrote %s: %d claims to refute; 'thermo-plan check --certificate' does it, and so does any z3\n",
               w->certificate, proof.checks);
    plan_done(&p);
    return r;
}

/* A plan for each limit; nothing is written before all are made. */
static int make_each(const struct options *w, struct args_inputs *in, const struct guesser *who, struct err *e)
{
    const struct request *q = &in->request;
    struct plan *all = calloc((size_t)q->n_memory, sizeof *all);
    char name[4096];
    int r = all ? planning_make_each(q, &in->in, &in->hw, &in->notes, all, e) : err_set(e, ERR_NOMEM, "out of memory for plans");
    for (int i = 0; i < q->n_memory && r == 0; i++)
        if ((r = name_of_limit(w->out, q->memory[i], name, sizeof name, e)) == 0)
            r = finish(&all[i], name, in, who, e);
    for (int i = 0; i < q->n_memory && r == 0; i++) {
        name_of_limit(w->out, q->memory[i], name, sizeof name, e);
        if ((r = plan_write(&all[i], name, e)) < 0)
            break;
        if (w->json)
            print(i ? ",\n" : "[\n");
        r = print_plan(&all[i], w->json ? NULL : name, e);
    }
    if (r == 0 && w->json)
        print("]\n");
    if (r == 0)
        r = warn_of_figures(&in->hw, &all[0], e);
    if (r == 0)
        warn_of_guesses(&all[0], who);
    for (int i = 0; all && i < q->n_memory; i++)
        plan_done(&all[i]);
    free(all);
    return r;
}

/* Before there is a trace: is there a plan at all? */
static int ask(const struct args *a, const struct options *w, struct err *e)
{
    struct args_inputs in = { 0 };
    struct diagnosis diagnosis = { 0 };
    uint64_t least;
    char floor[24], memory[24];
    int r = args_load_untraced(a, w->model, w->trace_flags, &in, e);
    if (r < 0)
        return r;
    in.request.diagnosis = &diagnosis;
    r = planning_ask(&in.request, &in.in, NULL, &least, e);
    int context = planning_context(&in.request, &in.in);
    if (r == 0 && w->json) {
        struct js *o = js_object();
        js_put(o, JS_BOOL("feasible", 1), JS_U64("floor_bytes", least), JS_U64("memory_bytes", in.request.memory[0]),
               JS_INT("context_tokens", context), JS_BOOL("zeros", nn_is_sparse(&in.in.h)), JS_INT("experts", in.in.h.n_experts));
        r = js_print(stdout, o, 2, 0, e);
        js_free(o);
    } else if (r == 0) {
        print("%s with context %d%s%s needs %s (%llu bytes) at least; %s is enough. More is faster: the trace tells how much.\n",
              in.in.name, context, in.request.purpose ? ", for " : "", in.request.purpose ? plan_purpose_name(in.request.purpose) : "",
              size_format(least, floor, sizeof floor), (unsigned long long)least, size_format(in.request.memory[0], memory, sizeof memory));
    } else if (r == ERR_INFEASIBLE && w->json && diagnosis.filled && print_refusal(&diagnosis, e) < 0) {
        r = err_set(e, ERR_SYS, "writing to standard output failed");
    }
    args_done(&in);
    return r;
}

static int run(const struct args *a, const struct options *w, struct err *e)
{
    struct args_inputs in = { 0 };
    struct diagnosis diagnosis = { 0 };
    struct guesser who = { PLAN_SOURCE_FREE, 0 };
    int r = args_load(a, 1, &in, e);
    if (r < 0 || (r = args_guesser_of(&w->guesser, &in, &who, e)) < 0) {
        args_done(&in);
        return r;
    }
    in.request.diagnosis = &diagnosis;
    in.request.prove = w->prove;
    if ((r = file_enough_space(w->out, 1, e)) == 0 && (r = check_options(w, &in, e)) == 0)
        r = w->each ? make_each(w, &in, &who, e) : make_one(w, &in, &who, e);
    if (r == ERR_INFEASIBLE && w->json && diagnosis.filled && print_refusal(&diagnosis, e) < 0)
        r = err_set(e, ERR_SYS, "writing to standard output failed");
    args_done(&in);
    return r;
}

int cmd_solve(int argc, char **argv)
{
    struct args a;
    struct opt opts[ARGS_ROWS + ARGS_GUESSER_ROWS + 10];
    struct options w = { 0 };
    int n_pos, r, asks = 0;
    struct err e = { 0 };
    args_init(&a);
    args_rows(&a, opts);
    const struct opt mine[10] = {
        { .name = "model", .type = OPT_STRING, .dest = &w.model, .arg = "FILE", .file = OPT_READ,
          .help = "Before there is a trace: the GGUF in place of --traces, --hardware and --out. Nothing is planned or written; --memory "
                  "and --context are compared with the floor, which its header tells, and where they are below it the exit status is 4 "
                  "and a limit and a context that would do are named. Other options are as for the plan to come." },
        { .name = "trace-flags", .type = OPT_STRING, .dest = &w.trace_flags, .arg = "TEXT",
          .help = "With --model: what thermo-profile trace will be given; --act, --expert-gating and --silence say what the model is." },
        { .name = "rlimit", .type = OPT_U64, .dest = &a.rlimit, .arg = "N", .min = 0, .max = 4294967295.0,
          .help = "Z3's resource limit for each programme, 0 for none. It counts work, not time, so results repeat.",
          .def = "200000000" },
        { .name = "out", .short_name = 'o', .type = OPT_STRING, .dest = &w.out, .arg = "FILE", .required = 1, .file = OPT_WRITE,
          .help = "Plan to write (JSON; schemas/plan.schema.json)." },
        { .name = "layout-per-limit", .type = OPT_FLAG, .dest = &w.each,
          .help = "A plan for each limit of --memory under a layout of its own, in files named by limit: --out plan.json makes "
                  "plan-18MiB.json, plan-24MiB.json. Each needs a pack of its own." },
        { .name = "prove", .type = OPT_FLAG, .dest = &w.prove,
          .help = "Leave no layout out by an estimate, try both eviction policies, and let the gap hold all of them. Takes longer for 16 "
                  "layers and more." },
        { .name = "certificate", .type = OPT_STRING, .dest = &w.certificate, .arg = "FILE", .file = OPT_WRITE,
          .help = "Write the proof of the gap as SMT-LIB 2, which a stock z3 refutes claim by claim "
                  "(docs/certificates.md). Implies --prove." },
        { .name = "smt2", .type = OPT_STRING, .dest = &w.smt2, .arg = "FILE", .file = OPT_WRITE,
          .help = "Also write the problem in SMT-LIB 2, the equations of docs/cost-model.md by name ((M1)-(M36), or with --cost paper "
                  "Equations 1-11), with claims that any Z3 can check (z3 FILE): that nothing is faster, and that the solution can be "
                  "had." },
        { .name = "json", .type = OPT_FLAG, .dest = &w.json, .help = "Print the plan itself instead of a summary; where there is none, "
                                                                         "the contradicting limits and the nearest values." },
        { 0 },
    };
    args_guesser_rows(&w.guesser, opts + ARGS_ROWS);
    memcpy(opts + ARGS_ROWS + ARGS_GUESSER_ROWS, mine, sizeof mine);
    for (int i = 1; i < argc; i++)
        asks |= !strcmp(argv[i], "--model") || !strncmp(argv[i], "--model=", 8);
    for (int i = 0; asks && opts[i].name; i++)
        opts[i].required = 0;
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n_pos > 0) {
        err_set(&e, ERR_USAGE, "solve takes no arguments beside its options; '%s' is one", argv[1]);
        return opt_fail(&e);
    }
    if (w.model)
        return ask(&a, &w, &e) < 0 ? opt_fail(&e) : 0;
    r = w.trace_flags ? err_set(&e, ERR_USAGE, "--trace-flags belongs to --model") : run(&a, &w, &e);
    return r < 0 ? opt_fail(&e) : 0;
}
