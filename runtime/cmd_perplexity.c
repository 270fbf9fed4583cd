/* thermo-run perplexity: exp of the mean negative log-likelihood over windows of a text. */
#include "common/file.h"
#include "common/opt.h"
#include "common/progress.h"

#include "runtime/cmd.h"
#include "runtime/prompt.h"
#include "runtime/report.h"
#include "runtime/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-run perplexity", "",
    "Perplexity of a text, or of a file of 16-bit little-endian token ids. The tokens are cut into windows of "
    "--ctx, each with an empty KV cache; an incomplete window at the end is dropped. Protocol full scores positions "
    "1 to ctx-1 of each window; half replaces the first id by the model's beginning-of-text token and scores the "
    "second half, positions ctx/2+1 to ctx-1, as llama.cpp does.",
    "  thermo-run perplexity --model m.thermo --plan p.json --file wiki.txt\n"
    "  thermo-run perplexity --model m.thermo --plan p.json --ids heldout.bin --ctx 256 --protocol full --json\n"
};

enum { PROTOCOL_FULL, PROTOCOL_HALF };
static const char *const protocols[] = { "full", "half", NULL };

struct args {
    struct setup_args setup;
    const char *file, *ids;
    int ctx, protocol, json, max_windows;
};

struct sum {
    double nll;
    uint64_t scored;
    int windows;
};

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    struct opt o[SETUP_OPTIONS + 8] = { 0 };
    int k = setup_options(o, &a->setup), n_pos = 0;
    const struct opt own[] = {
        { .name = "file", .short_name = 'f', .type = OPT_STRING, .dest = &a->file, .arg = "FILE",
          .help = "Text; - is standard input." },
        { .name = "ids", .type = OPT_STRING, .dest = &a->ids, .arg = "FILE",
          .help = "Token ids, u16 little-endian, instead of a text." },
        { .name = "ctx", .type = OPT_INT, .dest = &a->ctx, .arg = "N", .min = 4, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens of a window.", .def = "the context" },
        { .name = "protocol", .type = OPT_CHOICE, .dest = &a->protocol, .arg = "P", .choices = protocols,
          .help = "full or half.", .def = "full" },
        { .name = "windows", .type = OPT_INT, .dest = &a->max_windows, .arg = "N", .min = 1, .max = 1e9,
          .help = "Only the first N windows.", .def = "all" },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json, .help = "One JSON object on stdout." },
    };
    memcpy(o + k, own, sizeof own);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run perplexity --help", argv[1]);
    if (r == 0 && !a->file == !a->ids)
        return err_set(e, ERR_USAGE, "one of --file and --ids is needed");
    return r;
}

static int get_ids(const struct args *a, const struct setup *s, int32_t **ids, int *n, struct err *e)
{
    char *text;
    size_t len;
    int r;
    if (a->ids)
        return prompt_ids_file(a->ids, s->pack->h.n_vocab, ids, n, e);
    if ((r = prompt_text(NULL, a->file, &text, &len, e)) < 0)
        return r;
    r = tokenizer_encode(s->tokenizer, text, len, 1, 0, ids, n, e);
    free(text);
    return r;
}

/* -log softmax(logits)[id] */
static double nll_of(const float *logits, int n, int32_t id)
{
    double top = (double)logits[0], sum = 0;
    for (int i = 1; i < n; i++)
        top = (double)logits[i] > top ? (double)logits[i] : top;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return log(sum) + top - (double)logits[id];
}

static int window(struct engine *g, const struct args *a, const struct setup *s, const int32_t *ids, int32_t first_id,
                  struct sum *sum, struct err *e)
{
    int chunk = s->config.choice.prefill_chunk, first = a->protocol == PROTOCOL_HALF ? a->ctx / 2 + 1 : 1;
    struct engine_token tokens[ENGINE_PREFILL_MAX];
    chunk = chunk < ENGINE_PREFILL_MAX ? chunk : ENGINE_PREFILL_MAX;
    engine_reset(g, 0);
    for (int at = 0; at < a->ctx; at += chunk) {
        int n = a->ctx - at < chunk ? a->ctx - at : chunk, r;
        for (int i = 0; i < n; i++)
            tokens[i] = (struct engine_token){ at + i == 0 ? first_id : ids[at + i], 0, at + i };
        if ((r = engine_forward(g, tokens, n, e)) < 0)
            return r;
        for (int i = 0; i < n; i++) {
            int target = at + i + 1;
            if (target < first || target >= a->ctx)
                continue;
            sum->nll += nll_of(engine_logits(g, i, 0), s->pack->h.n_vocab, ids[target]);
            sum->scored++;
        }
    }
    sum->windows++;
    return file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : 0;
}

static void print(const struct args *a, const struct setup *s, const struct engine *g, const struct sum *t, uint64_t ns)
{
    double nll = t->nll / (double)t->scored;
    struct engine_stats st = engine_stats(g);
    if (!a->json) {
        printf("perplexity %.5f over %llu tokens in %d windows of %d (protocol %s)\n", exp(nll),
               (unsigned long long)t->scored, t->windows, a->ctx, protocols[a->protocol]);
        return;
    }
    printf("{\"ppl\":%.9g,\"nll\":%.9g,\"scored\":%llu,\"windows\":%d,\"ctx\":%d,\"protocol\":\"%s\",", exp(nll), nll,
           (unsigned long long)t->scored, t->windows, a->ctx, protocols[a->protocol]);
    report_configuration(stdout, s, g);
    printf(",\"seconds\":%.3f,\"reads\":%llu,\"read_bytes\":%llu,\"cold_hit_rate\":%.6f}\n", (double)ns / 1e9,
           (unsigned long long)st.reads, (unsigned long long)st.read_bytes, report_hit_rate(&st));
}

static int score(const struct args *a, struct setup *s, const int32_t *ids, int n, struct err *e)
{
    struct engine *g = NULL;
    struct progress bar;
    struct sum sum = { 0 };
    int windows = n / a->ctx, r = setup_engine(s, &g, e);
    if (r < 0)
        return r;
    windows = a->max_windows && a->max_windows < windows ? a->max_windows : windows;
    int64_t start = progress_now_ns();
    progress_init(&bar, "scoring", "windows", (uint64_t)windows);
    int32_t bos = tokenizer_bos(s->tokenizer);
    for (int w = 0; w < windows && r == 0; w++) {
        const int32_t *at = ids + (size_t)w * (size_t)a->ctx;
        r = window(g, a, s, at, a->protocol == PROTOCOL_HALF && bos >= 0 ? bos : at[0], &sum, e);
        progress_set(&bar, (uint64_t)w + 1);
    }
    progress_done(&bar);
    if ((r == 0 || r == ERR_INTR) && sum.scored)
        print(a, s, g, &sum, (uint64_t)(progress_now_ns() - start));
    engine_close(g);
    return r;
}

int cmd_perplexity(int argc, char **argv)
{
    struct args a = { 0 };
    struct setup s = { 0 };
    struct err e = { 0 };
    int32_t *ids = NULL;
    int n = 0;
    setup_args_init(&a.setup);
    int r = parse(&a, argc, argv, &e);
    if (r > 0)
        return 0;
    if (a.ctx && !a.setup.context)
        a.setup.context = a.ctx;
    file_catch_interrupt();
    if (r == 0 && (r = setup_open(&a.setup, &s, &e)) == 0 && (r = get_ids(&a, &s, &ids, &n, &e)) == 0) {
        a.ctx = a.ctx ? a.ctx : s.config.choice.context;
        if (a.ctx > s.config.choice.context)
            r = err_set(&e, ERR_USAGE, "--ctx %d is larger than the context of %d", a.ctx, s.config.choice.context);
        else if (n < a.ctx)
            r = err_set(&e, ERR_USAGE, "the text has %d tokens, less than one window of %d; see --ctx", n, a.ctx);
        else
            r = score(&a, &s, ids, n, &e);
    }
    free(ids);
    setup_close(&s);
    return r < 0 ? opt_fail(&e) : 0;
}
