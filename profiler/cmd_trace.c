/* thermo-profile trace: options, checks of space, and what is said before and after; the run itself is
 * tracing.c. */
#include "common/base/cpu.h"
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"
#include "common/kernels/kernels.h"
#include "common/offline/floor/floor.h"
#include "common/offline/trace/trace.h"
#include "profiler/cmd.h"
#include "profiler/trace/recorder.h"
#include "profiler/trace/cold.h"
#include "profiler/trace/thresholds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct opt_usage usage = {
    "thermo-profile trace", "",
    "Run a model densely over prompts and write which neurons fired: counts for the neuron order and the hot sets, "
    "activation maps for replaying the cache, samples of FFN inputs for training predictors. Each row of the CSV "
    "is one "
    "sequence (beginning-of-sequence token, then the text); a row longer than --ctx is cut into several. Weights "
    "are read "
    "layer by layer, so the model may be larger than memory. With --memory, a limit that no plan can keep is refused before anything is "
    "traced. With --silence a gated SiLU or GELU model gets thresholds of its neurons "
    "first, and what is traced, and later packed and run, is the model with these. An interrupted run leaves OUT.partial; --resume "
    "continues it. Several machines share a corpus with --shard; 'thermo-profile merge' merges their traces.",
    "  thermo-profile trace --model m.gguf --prompts prompts.csv --out m.h5\n"
    "  thermo-profile trace --model m.gguf --prompts prompts.csv --out m.0.h5 --shard 0/4\n"
    "  thermo-profile trace --model m.gguf --prompts prompts.csv --out m.h5 --dry-run --json\n",
    NULL
};

static const char *const act_names[] = { "silu", "relu", "drelu", NULL };
static const char *const act_types[] = { "q8", "f32", NULL };
enum { ACT_TYPE_Q8, ACT_TYPE_F32 };
static const char *const gating_names[] = { "softmax", "sigmoid", NULL };
static const enum model_router gating_routers[] = { MODEL_ROUTER_SOFTMAX_TOPK, MODEL_ROUTER_SIGMOID_TOPK };

struct options {
    const char *model, *prompts, *out, *column, *shard, *cpu, *silence, *pre;
    uint64_t max_tokens, n_ctx, window, samples, silence_tokens;
    double share;                /* of neurons to be silent; 0: no thresholds */
    uint64_t memory, floor;      /* of the plan to come: a limit, or 0; the least that any has */
    int context, purpose;
    int act, act_type, gating, threads, gzip, dry_run, resume, json, shard_i, shard_n, cold;
};

static int parse_shard(struct options *o, struct err *e)
{
    char tail;
    o->shard_i = 0, o->shard_n = 1;
    if (!o->shard)
        return 0;
    if (strlen(o->shard) > 12 || sscanf(o->shard, "%d/%d%c", &o->shard_i, &o->shard_n, &tail) != 2 || o->shard_n < 1 ||
        o->shard_n > 65536 || o->shard_i < 0 || o->shard_i >= o->shard_n)
        return err_set(e, ERR_USAGE, "--shard '%s': I/N with 0 <= I < N <= 65536 is needed, such as 0/4", o->shard);
    return 0;
}

static int parse(struct options *o, int argc, char **argv, struct err *e)
{
    *o = (struct options){ .column = "text", .cpu = "auto", .window = 2048, .samples = 4096, .act = -1, .gating = -1, .gzip = 1,
                            .silence_tokens = THRESHOLDS_TOKENS };
    const char *purposes[PLAN_PURPOSES + 1] = { NULL };
    for (int i = 0; i < PLAN_PURPOSES; i++)
        purposes[i] = plan_purpose_name((enum plan_purpose)i);
    const struct opt opts[] = {
        { "model", 'm', OPT_STRING, &o->model, "FILE", "model, GGUF; of a split one the first file.",
          .required = 1, .file = OPT_READ },
        { "prompts", 'p', OPT_STRING, &o->prompts, "FILE", "CSV with a header row.", .required = 1, .file = OPT_READ },
        { "out", 'o', OPT_STRING, &o->out, "FILE", "trace to write (HDF5).", .required = 1, .file = OPT_WRITE,
          .beside = ".partial" },
        { "column", 0, OPT_STRING, &o->column, "NAME", "which column holds the text.", .def = "text" },
        { "max-tokens", 0, OPT_U64, &o->max_tokens, "N", "stop the corpus after N tokens.", .def = "all", .min = 1,
          .max = 1e12 },
        { "ctx", 'c', OPT_U64, &o->n_ctx, "N", "longest sequence, in tokens.",
          .def = "512, or the model's own if less", .min = 2, .max = MODEL_MAX_CONTEXT },
        { "shard", 0, OPT_STRING, &o->shard, "I/N", "do the I-th (from 0) of N parts of the corpus.",
          .def = "0/1" },
        { "window-tokens", 0, OPT_U64, &o->window, "N",
          "keep activation maps of the first sequences of the corpus, N tokens "
          "at most (but one sequence at least); 0: none.",
          .def = "2048", .min = 0, .max = 1e12 },
        { "samples", 0, OPT_U64, &o->samples, "N",
          "keep the FFN inputs of N tokens spread evenly over the corpus; 0: none.", .def = "4096", .min = 0,
          .max = 1e12 },
        { "act", 0, OPT_CHOICE, &o->act, "NAME", "activation function, for files that do not state it.",
          .def = "what the file says", .choices = act_names },
        { "act-type", 0, OPT_CHOICE, &o->act_type, "TYPE",
          "activations in products: q8, 8-bit where the weights allow it, as plans ask for by default, or f32: float "
          "throughout, and several times as slow.", .def = "q8", .choices = act_types },
        { "expert-gating", 0, OPT_CHOICE, &o->gating, "NAME",
          "how routers weight the chosen experts, for files that do not state it (smallthinker's may not: see "
          "moe_primary_router_apply_softmax in the model's config.json). The trace records it for all later steps.",
          .def = "what the file says", .choices = gating_names },
        { "pre", 0, OPT_STRING, &o->pre, "NAME", "how words are cut for BPE (tokenizer.ggml.pre; 'thermo-profile models' lists the "
          "names), for files that do not state it, or state another. The trace records it for all later steps.",
          .def = "what the file says, else what the architecture's models do" },
        { "silence", 0, OPT_STRING, &o->silence, "SHARE",
          "make neurons silent whose gates are small, this share of them for a token (40%), by a threshold for each: a model whose "
          "activation gives no zeros is then planned and run as a sparse one, at a loss that 'thermo-profile silence' states.",
          .def = "none" },
        { "cold-thresholds", 0, OPT_FLAG, &o->cold, NULL,
          "of a model with ReLU: a threshold for each neuron, and what leaving those that are not in memory out below them saves and "
          "loses, for 'thermo-plan solve --mode exact --max-kl'.", .def = NULL },
        { "silence-tokens", 0, OPT_U64, &o->silence_tokens, "N", "thresholds follow from the corpus's first N tokens.", .def = "4096",
          .min = 1, .max = 1e9 },
        { "memory", 0, OPT_SIZE, &o->memory, "SIZE", "the limit that is planned for: where it is below the floor, which the model's "
          "header tells, nothing is traced, the exit status is 4, and a limit and a context that would do are named.",
          .def = "none: the floor is said", .min = 1, .max = 9e18 },
        { "context", 0, OPT_INT, &o->context, "N", "the context that is planned for: prompt and answer together.",
          .def = "the model's, at most 4096", .min = 1, .max = MODEL_MAX_CONTEXT },
        { "for", 0, OPT_CHOICE, &o->purpose, "COMMAND", "what is planned for: chat, serve and thermo-serve take memory beside the model.",
          .def = "generate", .choices = purposes },
        { "threads", 't', OPT_INT, &o->threads, "N", "compute threads.", .def = "one per CPU", .min = 1,
          .max = POOL_MAX_THREADS },
        { "cpu", 0, OPT_STRING, &o->cpu, "TIER", "instructions to use: auto, scalar, avx2, avxvnni, avx512, amx, neon, dotprod, i8mm.",
          .def = "auto" },
        { "h5-gzip", 0, OPT_INT, &o->gzip, "N", "compression of the trace, 0 (none) to 9; 1 leaves sampled vectors as they are, which "
          "hardly shrink.", .def = "1", .min = 0,
          .max = 9 },
        { "dry-run", 'n', OPT_FLAG, &o->dry_run, NULL, "only print what the run needs: sizes, time, disk space.",
          .def = NULL },
        { "resume", 0, OPT_FLAG, &o->resume, NULL, "continue an interrupted run from OUT.partial.", .def = NULL },
        { "json", 0, OPT_FLAG, &o->json, NULL, "summary as JSON on standard output.", .def = NULL },
        { 0 },
    };
    int n_pos, r = opt_parse(opts, &usage, argc, argv, &n_pos, e);
    if (r)
        return r;
    if (n_pos)
        return err_set(e, ERR_USAGE, "'%s' is not an option; prompts are given with --prompts FILE", argv[1]);
    if (o->silence && o->cold)
        return err_set(e, ERR_USAGE, "--silence is for models whose activation gives no zeros, --cold-thresholds for "
                                     "those with ReLU: give one");
    if (o->silence && (r = thresholds_share(o->silence, "--silence", &o->share, e)) < 0)
        return r;
    return parse_shard(o, e);
}

/* ---- what is said ---- */

static struct js *describe(const struct trace_info *i, const struct options *o, const struct recorder_sizes *s)
{
    struct js *j = js_object();
    js_put(j, JS_STR("model", i->h.name), JS_STR("act", model_act_name(i->h.act)), JS_BOOL("thresholds", i->h.thresholds),
           JS_U64("floor_bytes", o->floor), JS_INT("context_tokens", o->context), JS_STR("cpu", i->tier),
           JS_STR("act_type", act_types[i->act_q8 ? ACT_TYPE_Q8 : ACT_TYPE_F32]), JS_INT("shard", i->shard),
           JS_INT("n_shards", i->n_shards), JS_U64("sequences", i->n_sequences), JS_U64("tokens", i->n_tokens),
           JS_U64("corpus_tokens", i->corpus.n_tokens), JS_U64("window_tokens", i->window_tokens), JS_U64("samples", i->n_samples),
           JS_U64("chunks", s->n_chunks), JS_U64("memory_bytes", s->memory_bytes), JS_U64("partial_bytes", s->partial_bytes),
           JS_U64("trace_bytes_max", s->trace_bytes), JS_U64("weight_bytes_per_chunk", s->weight_bytes));
    return j;
}

static int print_json(struct js *j, struct err *e)
{
    int r = js_print(stdout, j, 2, 0, e);
    js_free(j);
    return r;
}

static void say_corpus(FILE *f, const struct trace_info *i)
{
    print_to(f, "model    %s: %d layers, FFN of %s%d", i->h.name, i->h.n_layers, i->h.widths[0] ? "up to " : "", i->h.n_ff);
    if (i->h.n_experts)
        print_to(f, " x %d experts, %d used", i->h.n_experts, i->h.n_experts_used);
    print_to(f, ", %s%s\ncorpus   %llu tokens in %llu sequences", model_act_name(i->h.act), i->h.thresholds ? " with thresholds" : "",
            (unsigned long long)i->n_tokens, (unsigned long long)i->n_sequences);
    if (i->n_shards > 1)
        print_to(f, " (shard %d of %d, of %llu tokens)", i->shard, i->n_shards, (unsigned long long)i->corpus.n_tokens);
    print_to(f, "\nkept     maps of %llu tokens, FFN inputs of %llu\n", (unsigned long long)i->window_tokens,
            (unsigned long long)i->n_samples);
}

static int dry_run(const struct recorder *t, struct pool *pool, const struct options *o, uint64_t free_bytes,
                   struct err *e)
{
    struct recorder_sizes s;
    recorder_sizes(t, &s);
    double flops = recorder_measure(t, pool), seconds = flops > 0 ? s.flop / flops : 0;
    if (o->json) {
        struct js *j = describe(recorder_info(t), o, &s);
        js_put(j, JS_U64("free_bytes", free_bytes), JS_NUM("flop", s.flop), JS_NUM("measured_flop_per_s", flops),
               JS_NUM("estimated_seconds", seconds));
        return print_json(j, e);
    }
    char a[24], b[24], c[24], d[24];
    say_corpus(stdout, recorder_info(t));
    print("memory   %s\n", size_format(s.memory_bytes, a, sizeof a));
    print("disk     %s while running (%s.partial), %s at most for the trace; %s free\n",
           size_format(s.partial_bytes, a, sizeof a), o->out, size_format(s.trace_bytes, b, sizeof b),
           size_format(free_bytes, c, sizeof c));
    print("time     about %.0f s of arithmetic at the %.1f GFLOP/s measured now, %d threads;\n"
           "         the weights (%s) are read once to identify the model and %llu times to run it\n",
           seconds, flops / 1e9, pool_threads(pool), size_format(s.weight_bytes, d, sizeof d),
           (unsigned long long)s.n_chunks);
    return 0;
}

static int check_space(const struct recorder *t, const struct options *o, struct err *e)
{
    struct recorder_sizes s;
    recorder_sizes(t, &s);
    uint64_t partial = 0, need = s.partial_bytes + s.trace_bytes + (1 << 20);
    struct file f;
    char name[4096];
    snprintf(name, sizeof name, "%s.partial", o->out);
    if (o->resume && file_open(&f, name, e) == 0) {
        partial = f.size; /* is there already */
        file_close(&f);
    }
    int r = file_enough_space(o->out, need - (partial < need ? partial : need), e);
    return r < 0 ? err_wrap(e, "fewer --samples or --window-tokens need less") : 0;
}

static int say_done(const struct recorder *t, const struct options *o, double seconds, uint64_t resumed,
                    struct hash128 content, struct err *e)
{
    const struct trace_info *i = recorder_info(t);
    char text[HASH_TEXT], model[HASH_TEXT], size[24];
    struct file f;
    struct recorder_sizes s;
    int r = file_open(&f, o->out, e);
    if (r < 0)
        return r;
    uint64_t bytes = f.size;
    file_close(&f);
    hash_text(content, text);
    hash_text(i->model_hash, model);
    double rate = seconds > 0 ? (double)(i->n_tokens - resumed) / seconds : 0;
    if (o->json) {
        recorder_sizes(t, &s);
        struct js *j = describe(i, o, &s);
        js_put(j, JS_STR("out", o->out), JS_U64("bytes", bytes), JS_STR("model_hash", model), JS_STR("content_hash", text),
               JS_U64("resumed_tokens", resumed), JS_NUM("seconds", seconds), JS_NUM("tokens_per_s", rate));
        return print_json(j, e);
    }
    say_corpus(stdout, i);
    print("wrote    %s, %s, in %.1f s (%.0f tokens/s)\n         content %s\n", o->out,
           size_format(bytes, size, sizeof size), seconds, rate, text);
    return 0;
}

/* ---- the command ---- */

/* --resume where nothing is left to do: OUT is whole and of this run. 1 when so. */
static int already_done(const struct recorder *t, const struct options *o, struct err *e)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.partial", o->out);
    if (!o->resume || access(name, F_OK) == 0 || access(o->out, F_OK) < 0)
        return 0;
    struct trace *old;
    int r = trace_open(o->out, &old, e);
    if (r < 0)
        return err_wrap(e, "--resume found no '%s', only a complete file", name);
    const struct trace_info *a = trace_info(old), *b = recorder_info(t);
    r = hash_equal(a->model_hash, b->model_hash) && hash_equal(a->corpus.hash, b->corpus.hash) &&
        a->shard == b->shard && a->n_shards == b->n_shards && a->h.act == b->h.act && a->act_q8 == b->act_q8 &&
        a->h.router == b->h.router && a->window_tokens == b->window_tokens && a->n_samples == b->n_samples;
    if (r)
        log_info("'%s' is complete already; there is nothing to resume", o->out);
    else
        r = err_set(e, ERR_MISMATCH, "--resume: there is no '%s', and '%s' is the trace of another run", name, o->out);
    trace_close(old);
    return r;
}

/* What an interrupted run leaves: nothing, unless a chunk was whole. */
static void say_left(const struct options *o, struct err *e)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.partial", o->out);
    if (access(name, F_OK) == 0)
        err_wrap(e, "'%s' is not complete; the same command with --resume goes on from '%s'", o->out, name);
    else
        err_wrap(e, "'%s' was not made, and nothing of it was kept", o->out);
}

static int run(const struct options *o, const struct model *m, const struct corpus *c, const float *cold, const char *tier, struct err *e)
{
    struct recorder *t = NULL;
    struct pool *pool = NULL;
    struct hash128 content = { 0, 0 };
    uint64_t free_bytes = 0, resumed = 0;
    int r;
    if ((r = pool_new_any(o->threads, &pool, e)) < 0 ||
        (r = recorder_new(m, c, tier, pool_threads(pool), o->act_type == ACT_TYPE_Q8, &t, e)) < 0 ||
        (r = file_free_bytes(o->out, &free_bytes, e)) < 0)
        goto out;
    recorder_cold(t, cold);
    if (o->dry_run) {
        r = dry_run(t, pool, o, free_bytes, e);
        goto out;
    }
    int64_t start = progress_now_ns();
    if ((r = check_space(t, o, e)) < 0 || (r = recorder_identify(t, e)) < 0)
        goto out;
    if ((r = already_done(t, o, e)) != 0) {
        r = r < 0 ? r : 0;
        goto out;
    }
    r = recorder_run(t, pool, o->out, o->resume, o->gzip, &resumed, &content, e);
    if (r == ERR_INTR)
        say_left(o, e);
    if (!r)
        r = say_done(t, o, (double)(progress_now_ns() - start) / 1e9, resumed, content, e);
out:
    recorder_free(t);
    pool_free(pool);
    return r;
}

/* The model again, with thresholds: from the first tokens of the whole corpus, so that all shards have the same. */
static int silence(const struct options *o, const struct corpus_options *corpus, const struct tokenizer *tok, struct gguf *g,
                   struct model **m, struct cold *cold, struct err *e)
{
    struct corpus_options co = *corpus;
    struct corpus *c = NULL, *few = NULL;
    struct thresholds *t = NULL;
    struct pool *pool = NULL;
    size_t n = (size_t)(*m)->h.n_layers * (size_t)(*m)->h.n_ff;
    float *at = calloc(n, sizeof *at);
    co.max_tokens = co.max_tokens && co.max_tokens < o->silence_tokens ? co.max_tokens : o->silence_tokens;
    co.window = co.samples = 0, co.shard = 0, co.n_shards = 1;
    int r = at ? 0 : err_set(e, ERR_NOMEM, "thresholds");
    if (r == 0 && !o->dry_run && (r = corpus_read(&co, tok, (*m)->h.n_vocab, &c, e)) == 0 &&
        (r = pool_new_any(o->threads, &pool, e)) == 0 && (r = gguf_expect(g, NULL, NULL, e)) == 0 && /* what will be hashed */
        !o->cold && (r = thresholds_new(*m, c, pool, &t, e)) == 0)
        thresholds_at(t, o->share, at);
    co.max_tokens = co.max_tokens < COLD_QUALITY_TOKENS ? co.max_tokens : COLD_QUALITY_TOKENS;
    if (r == 0 && o->cold && !o->dry_run && (r = corpus_read(&co, tok, (*m)->h.n_vocab, &few, e)) == 0 &&
        (r = cold_new(*m, c, few, pool, cold, e)) == 0)
        memcpy(at, cold->thresholds, n * sizeof *at);
    if (r == 0) {
        struct model_given given = model_as(&(*m)->h);
        given.thresholds = at;
        model_close(*m);
        *m = NULL;
        r = model_open(g, &given, m, e);
        if (r == 0 && !(o->cold ? (*m)->h.cold_thresholds : (*m)->h.thresholds)) /* of a dry run, which makes none */
            r = err_set(e, ERR_UNSUPPORTED, "'%s': thresholds of %s", o->model,
                        o->cold ? "cold neurons: they need a gate with ReLU" : "neurons: its activation gives exact zeros already");
    }
    thresholds_free(t);
    pool_free(pool);
    corpus_free(c);
    corpus_free(few);
    free(at);
    return r;
}

/* Is there a plan at all? Else an hour of tracing would be for nothing. */
static int ask_floor(struct options *o, const struct model_given *given, struct err *e)
{
    const struct layouts_options any = { LAYOUTS_ANY, LAYOUTS_ANY, LAYOUTS_ANY, LAYOUTS_ANY, LAYOUTS_ANY, 0 };
    struct floor_model *m = malloc(sizeof *m);
    struct gguf *g = NULL;
    char size[24];
    int r = m ? gguf_open(o->model, &g, e) : err_set(e, ERR_NOMEM, "out of memory for the model's facts");
    if (r == 0 && (r = floor_model_of(g, given, o->silence || o->cold, m, e)) == 0) {
        o->context = floor_context(&m->budget.h, o->context);
        const struct floor_ask a = { o->memory, o->context, .max_batch = 1, .kv_type = KV_F16, .purpose = (enum plan_purpose)o->purpose };
        r = floor_ask(m, &any, &a, &o->floor, e);
    }
    if (r == 0 && !o->memory)
        log_info("plans with --context %d%s%s will need %s (%llu bytes) at least; --memory SIZE would compare a limit now", o->context,
                 o->purpose ? ", --for " : "", o->purpose ? plan_purpose_name((enum plan_purpose)o->purpose) : "",
                 size_format(o->floor, size, sizeof size), (unsigned long long)o->floor);
    gguf_close(g);
    free(m);
    return r;
}

int cmd_trace(int argc, char **argv)
{
    struct options o;
    struct err e = { 0 };
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct tokenizer *tok = NULL;
    struct corpus *c = NULL;
    struct cold cold = { 0 };
    char said[512];
    unsigned mask;
    int r = parse(&o, argc, argv, &e);
    if (r > 0)
        return 0;
    if (r < 0 || (r = cpu_parse(o.cpu, &mask, &e)) < 0)
        return opt_fail(&e);
    kernels_init(mask);
    file_catch_interrupt();
    const struct model_given given = { o.act, o.gating >= 0 ? gating_routers[o.gating] : MODEL_ROUTER_NONE, NULL, 0 };
    if ((r = ask_floor(&o, &given, &e)) < 0 || (r = gguf_open(o.model, &g, &e)) < 0 ||
        (r = tokenizer_state_pre(g, o.pre, said, sizeof said, &e)) < 0 ||
        (r = model_open(g, &given, &m, &e)) < 0 ||
        (r = tokenizer_open(g, &tok, &e)) < 0)
        goto out;
    if (*said)
        log_warn("%s", said);
    if (!o.n_ctx)
        o.n_ctx = m->h.n_ctx_train < 512 ? (uint64_t)m->h.n_ctx_train : 512;
    if (model_ends(&m->h) && o.n_ctx > (uint64_t)m->h.n_ctx_train) {
        r = err_set(&e, ERR_USAGE, "--ctx %llu: the model has %d positions%s", (unsigned long long)o.n_ctx, m->h.n_ctx_train,
                    m->h.sparse ? " with full attention; sparse attention is not supported" : "");
        goto out;
    }
    if (o.n_ctx > (uint64_t)m->h.n_ctx_train)
        log_warn("--ctx %llu is more than the %d the model was trained on", (unsigned long long)o.n_ctx,
                 m->h.n_ctx_train);
    const struct corpus_options co = { .prompts = o.prompts,
                                       .column = o.column,
                                       .n_ctx = o.n_ctx,
                                       .max_tokens = o.max_tokens,
                                       .window = o.window,
                                       .samples = o.samples,
                                       .shard = o.shard_i,
                                       .n_shards = o.shard_n };
    if ((o.silence || o.cold) && (r = silence(&o, &co, tok, g, &m, &cold, &e)) < 0)
        goto out;
    if ((r = corpus_read(&co, tok, m->h.n_vocab, &c, &e)) == 0)
        r = run(&o, m, c, cold.curves, kernels->name, &e);
out:
    corpus_free(c);
    cold_done(&cold);
    tokenizer_close(tok);
    model_close(m);
    gguf_close(g);
    return r < 0 ? opt_fail(&e) : 0;
}
