/* thermo-profile silence: thresholds of some shares, and what each costs on another text. */
#include "common/base/cpu.h"
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/kernels/kernels.h"
#include "profiler/cmd.h"
#include "profiler/trace/thresholds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-profile silence", "",
    "State what 'trace --silence' would cost a gated SiLU or GELU model: thresholds of its neurons are made from one text, and the model "
    "runs another with and without them. Printed for each share: neurons that fire (density), the Kullback-Leibler divergence of the "
    "next-token distributions, how often the likeliest token is the same, perplexity. Nothing is written.",
    "  thermo-profile silence --model m.gguf --prompts prompts.csv --held-out other.csv\n"
    "  thermo-profile silence --model m.gguf --prompts prompts.csv --held-out other.csv --shares 40%,60% --json\n",
    NULL
};

struct options {
    const char *model, *prompts, *held_out, *column, *shares, *cpu, *pre;
    uint64_t n_ctx, tokens, held_tokens;
    int threads, json, n;
    double share[THRESHOLDS_MOST];
};

static int parse_shares(struct options *o, struct err *e)
{
    char one[32];
    const char *at = o->shares;
    for (o->n = 0; *at; at += *at == ',') {
        size_t len = strcspn(at, ",");
        if (o->n == THRESHOLDS_MOST)
            return err_set(e, ERR_USAGE, "--shares has more than the limit of %d", THRESHOLDS_MOST);
        snprintf(one, sizeof one, "%.*s", (int)(len < sizeof one ? len : sizeof one), at);
        int r = thresholds_share(one, "--shares", &o->share[o->n++], e);
        if (r < 0)
            return r;
        at += len;
    }
    return o->n ? 0 : err_set(e, ERR_USAGE, "--shares is empty");
}

static int parse(struct options *o, int argc, char **argv, struct err *e)
{
    *o = (struct options){ .column = "text", .cpu = "auto", .shares = "30%,40%,50%", .tokens = THRESHOLDS_TOKENS, .held_tokens = 4096 };
    const struct opt opts[] = {
        { "model", 'm', OPT_STRING, &o->model, "FILE", "model, GGUF; of a split one the first file.", .required = 1, .file = OPT_READ },
        { "prompts", 'p', OPT_STRING, &o->prompts, "FILE", "CSV with a header row: the text that thresholds follow from.", .required = 1,
          .file = OPT_READ },
        { "held-out", 0, OPT_STRING, &o->held_out, "FILE", "CSV with a header row: the text that they are measured on.", .required = 1,
          .file = OPT_READ },
        { "column", 0, OPT_STRING, &o->column, "NAME", "which column holds the text, in both.", .def = "text" },
        { "shares", 0, OPT_STRING, &o->shares, "LIST", "shares of the neurons to be silent.", .def = "30%,40%,50%" },
        { "ctx", 'c', OPT_U64, &o->n_ctx, "N", "longest sequence, in tokens.", .def = "512, or the model's own if less", .min = 2,
          .max = MODEL_MAX_CONTEXT },
        { "silence-tokens", 0, OPT_U64, &o->tokens, "N", "thresholds follow from the first N tokens.",
          .def = "4096", .min = 1, .max = 1e9 },
        { "held-out-tokens", 0, OPT_U64, &o->held_tokens, "N", "tokens of the other text.", .def = "4096", .min = 2, .max = 1e9 },
        { "pre", 0, OPT_STRING, &o->pre, "NAME", "how words are cut for BPE, for files that do not state it (as of 'trace').",
          .def = "what the file says, else what the architecture's models do" },
        { "threads", 't', OPT_INT, &o->threads, "N", "compute threads.", .def = "one per CPU", .min = 1, .max = POOL_MAX_THREADS },
        { "cpu", 0, OPT_STRING, &o->cpu, "TIER",
          "instructions to use: auto, scalar, avx2, avxvnni, avx512, amx, neon, dotprod, i8mm.", .def = "auto" },
        { "json", 0, OPT_FLAG, &o->json, NULL, "the table as JSON on standard output.", .def = NULL },
        { 0 },
    };
    int n_pos, r = opt_parse(opts, &usage, argc, argv, &n_pos, e);
    if (r)
        return r;
    if (n_pos)
        return err_set(e, ERR_USAGE, "'%s' is not an option", argv[1]);
    return parse_shares(o, e);
}

static int print_table(const struct options *o, const struct model *m, const struct thresholds_quality *q, struct err *e)
{
    if (o->json) {
        struct js *all = js_object(), *list = js_array();
        js_put(all, JS_STR("model", m->h.name), JS_U64("tokens", q->n_tokens), JS_NUM("perplexity_full", q->perplexity_full));
        for (int i = 0; i < o->n; i++)
            js_append(list, js_made(JS_NUM("silence", q[i].share), JS_NUM("density", q[i].density),
                                    JS_NUM("kl_mean_nats", q[i].kl_mean), JS_NUM("kl_max_nats", q[i].kl_max),
                                    JS_NUM("top1_agreement", q[i].top1), JS_NUM("perplexity", q[i].perplexity)));
        js_set(all, "shares", list);
        int r = js_print(stdout, all, 2, 0, e);
        js_free(all);
        return r;
    }
    print("%llu tokens of '%s'; perplexity without thresholds %.4f\n\n", (unsigned long long)q->n_tokens, o->held_out, q->perplexity_full);
    print("%8s %8s %9s %9s %10s %11s %6s\n", "silent", "density", "KL mean", "KL max", "same first", "perplexity", "ratio");
    for (int i = 0; i < o->n; i++)
        print("%7.4g%% %7.2f%% %9.4f %9.3f %9.2f%% %11.4f %6.3f\n", 100 * q[i].share, 100 * q[i].density, q[i].kl_mean, q[i].kl_max,
               100 * q[i].top1, q[i].perplexity, q[i].perplexity / q[i].perplexity_full);
    return 0;
}

static int run(const struct options *o, const struct model *m, const struct tokenizer *tok, struct err *e)
{
    struct corpus *from = NULL, *on = NULL;
    struct thresholds *t = NULL;
    struct pool *pool = NULL;
    struct thresholds_quality q[THRESHOLDS_MOST];
    int r;
    struct corpus_options a = { .prompts = o->prompts, .column = o->column, .n_ctx = o->n_ctx, .max_tokens = o->tokens, .n_shards = 1 };
    struct corpus_options b = { .prompts = o->held_out, .column = o->column, .n_ctx = o->n_ctx,
                                .max_tokens = o->held_tokens, .n_shards = 1 };
    if (!a.n_ctx)
        a.n_ctx = b.n_ctx = (uint64_t)(m->h.n_ctx_train < 512 ? m->h.n_ctx_train : 512);
    if ((r = corpus_read(&a, tok, m->h.n_vocab, &from, e)) == 0 && (r = corpus_read(&b, tok, m->h.n_vocab, &on, e)) == 0 &&
        (r = pool_new_any(o->threads, &pool, e)) == 0 && (r = thresholds_new(m, from, pool, &t, e)) == 0 &&
        (r = thresholds_measure(t, m, on, o->share, o->n, pool, q, e)) == 0)
        r = print_table(o, m, q, e);
    thresholds_free(t);
    pool_free(pool);
    corpus_free(from);
    corpus_free(on);
    return r;
}

int cmd_silence(int argc, char **argv)
{
    struct options o;
    struct err e = { 0 };
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct tokenizer *tok = NULL;
    char said[512];
    unsigned mask;
    int r = parse(&o, argc, argv, &e);
    if (r > 0)
        return 0;
    if (r < 0 || (r = cpu_parse(o.cpu, &mask, &e)) < 0)
        return opt_fail(&e);
    kernels_init(mask);
    file_catch_interrupt();
    if ((r = gguf_open(o.model, &g, &e)) == 0 && (r = tokenizer_state_pre(g, o.pre, said, sizeof said, &e)) == 0 &&
        (r = model_open(g, NULL, &m, &e)) == 0 &&
        (r = gguf_expect(g, NULL, NULL, &e)) == 0 && (r = tokenizer_open(g, &tok, &e)) == 0) {
        if (*said)
            log_warn("%s", said);
        r = run(&o, m, tok, &e);
    }
    tokenizer_close(tok);
    model_close(m);
    gguf_close(g);
    return r < 0 ? opt_fail(&e) : 0;
}
