/* thermo-run bench: speed of prompt processing (pp) and text generation (tg), named and averaged as
 * users of llama-bench know it, with what a budgeted engine has to say beside it. */
#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"

#include "runtime/cmd.h"
#include "runtime/machine.h"
#include "runtime/prompt.h"
#include "runtime/report.h"
#include "runtime/session/session.h"
#include "runtime/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPEATS 1000

static const struct opt_usage usage = {
    "thermo-run bench", "",
    "Measure tokens per second: ppN, a prompt of N tokens; tgN, N generated tokens. Generation starts from a text "
    "(by default the beginning-of-text token) and samples at temperature 0.8, so that the neurons that fire are those "
    "of text and not of noise; the seed is 1 for the warm-up, then 2, 3, ..., so that no text comes twice. Mean and "
    "standard deviation over the repetitions, after one warm-up. With --text the generation test decodes that text, "
    "token by token, whatever the model would say: a test goes on where the last one ended, in text and context, and "
    "begins a new sequence where the context is full. That is how to compare runs with a plan that was made from such "
    "text. Ctrl-C ends it after the token in hand and prints what was measured until then (exit status 130).",
    "  thermo-run bench --model m.thermo --plan p.json\n"
    "  thermo-run bench --model m.thermo --plan p.json --memory 2GiB -p 0 -n 64 -r 3 --output json\n",
    NULL
};

enum { OUT_MD, OUT_JSON, OUT_CSV };
static const char *const outputs[] = { "md", "json", "csv", NULL };

struct args {
    struct setup_args setup;
    int pp, tg, repeats, output, no_warmup;
    const char *prompt_file, *text_file;
};

struct test {
    char name[32];
    int n, done;                   /* tokens; repetitions that were finished */
    double rate[MAX_REPEATS];      /* tokens per second */
    uint64_t ns, ttft_ns, at;      /* sums over repetitions; at: positions of the first token */
    struct engine_stats s;
};

struct bench {
    const struct args *a;
    struct setup *s;
    struct engine *g;
    struct session session;
    int32_t *text;                 /* ids to take prompts from */
    int n_text;
    int32_t *words;                /* --text: what generation decodes; else NULL */
    int n_words, word;             /* the next one */
    struct test tests[2];
    int n_tests, interrupted;
    int made;                      /* tokens of the repetition that runs */
};

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    struct opt o[SETUP_OPTIONS + 9] = { 0 };
    int k = setup_options(o, &a->setup), n_pos = 0;
    const struct opt own[] = {
        { .name = "n-prompt", .short_name = 'p', .type = OPT_INT, .dest = &a->pp, .arg = "N",
          .min = 0, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens of the prompt test; 0: leave it out.", .def = "512, or the context" },
        { .name = "n-gen", .short_name = 'n', .type = OPT_INT, .dest = &a->tg, .arg = "N",
          .min = 0, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens of the generation test; 0: leave it out.", .def = "128, or the context" },
        { .name = "repetitions", .short_name = 'r', .type = OPT_INT, .dest = &a->repeats, .arg = "N",
          .min = 1, .max = MAX_REPEATS, .help = "Repetitions of each test.", .def = "5" },
        { .name = "prompt-file", .short_name = 'f', .type = OPT_STRING, .dest = &a->prompt_file, .arg = "FILE", .file = OPT_READ,
          .help = "Text for prompts; repeated where it is too short.", .def = "pseudo-random token ids" },
        { .name = "text", .type = OPT_STRING, .dest = &a->text_file, .arg = "FILE", .file = OPT_READ,
          .help = "Text that the generation test decodes; repeated where it is too short.", .def = "what it samples" },
        { .name = "no-warmup", .type = OPT_FLAG, .dest = &a->no_warmup,
          .help = "Do not run each test once before measuring." },
        { .name = "no-overlap", .type = OPT_FLAG, .dest = &a->setup.no_overlap,
          .help = "Compute only while no read is in flight; for measurements." },
        { .name = "no-cache", .type = OPT_FLAG, .dest = &a->setup.no_cache,
          .help = "Keep no cold neuron from one token to the next; for measurements." },
        { .name = "output", .short_name = 'o', .type = OPT_CHOICE, .dest = &a->output, .arg = "FORM",
          .choices = outputs, .help = "md, json or csv.", .def = "md" },
    };
    memcpy(o + k, own, sizeof own);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run bench --help", argv[1]);
    return r;
}

/* Ids of a file's text. */
static int read_text(const struct bench *b, const char *path, int bos, int32_t **ids, int *n, struct err *e)
{
    char *text;
    size_t len;
    int r = prompt_text(NULL, path, &text, &len, e);
    if (r < 0)
        return r;
    r = tokenizer_encode(b->s->tokenizer, text, len, bos, 0, ids, n, e);
    free(text);
    return r < 0 ? r : *n ? 0 : err_set(e, ERR_USAGE, "'%s' has no text", path);
}

/* Ids of the prompt file, or pseudo-random ones; ids of the text to decode. */
static int get_text(struct bench *b, int need, struct err *e)
{
    int r = b->a->text_file ? read_text(b, b->a->text_file, 0, &b->words, &b->n_words, e) : 0;
    if (r < 0 || b->a->prompt_file)
        return r < 0 ? r : read_text(b, b->a->prompt_file, 1, &b->text, &b->n_text, e);
    uint32_t x = 2463534242u;
    int32_t bos = tokenizer_bos(b->s->tokenizer);
    b->text = malloc((size_t)(need + 1) * sizeof *b->text);
    if (!b->text)
        return err_set(e, ERR_NOMEM, "out of memory for %d tokens", need);
    for (b->n_text = 0; b->n_text < need || !b->n_text; b->n_text++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        b->text[b->n_text] = b->n_text == 0 && bos >= 0 ? bos : (int32_t)(x % (uint32_t)b->s->pack->h.n_vocab);
    }
    return 0;
}

static int feed(struct bench *b, int n, struct err *e)
{
    for (int at = 0; at < n;) {
        int piece = n - at < b->n_text ? n - at : b->n_text, done;
        int r = session_feed(&b->session, b->text, piece, SESSION_EXACT, &done, e);
        if (r < 0)
            return r;
        at += piece;
        b->made += piece;
    }
    return 0;
}

/* The token to decode: of --text, after the beginning of text; else what was sampled. */
static int32_t next_token(struct bench *b, int32_t sampled)
{
    int32_t bos = tokenizer_bos(b->s->tokenizer);
    int pos = session_n_pos(&b->session);
    if (!b->words)
        return pos ? sampled : b->text[0];
    if (pos == 0 && bos >= 0)
        return bos;
    b->word = b->word == b->n_words ? 0 : b->word;
    return b->words[b->word++];
}

static int generate(struct bench *b, int n, uint64_t seed, struct err *e)
{
    const struct sample_params p = {
        .temp = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1, .seed = seed
    };
    int32_t id = 0;
    session_sampling(&b->session, &p);
    for (int i = 0; i < n; i++) {
        int32_t next = next_token(b, id);
        int done, r = session_feed(&b->session, &next, 1, SESSION_PREDICTED, &done, e);
        if (r < 0)
            return r;
        b->made++;
        if ((id = session_sample(&b->session, e)) < 0)
            return id;
        if (cancel_asked(b->a->setup.cancel))
            return err_set(e, ERR_INTR, "interrupted");
    }
    return 0;
}

static void add_stats(struct engine_stats *t, const struct engine_stats *s)
{
    t->reads += s->reads;
    t->read_bytes += s->read_bytes;
    t->lookups += s->lookups;
    t->hits += s->hits;
    t->gate_lookups += s->gate_lookups;
    t->gate_hits += s->gate_hits;
    t->stall_ns += s->stall_ns;
    t->verify_bytes += s->verify_bytes;
    t->verify_ns += s->verify_ns;
    t->attention_ns += s->attention_ns;
    t->predict_ns += s->predict_ns;
    t->ffn_ns += s->ffn_ns;
    t->head_ns += s->head_ns;
    t->neurons_hot += s->neurons_hot;
    t->neurons_cold += s->neurons_cold;
    t->neurons_read += s->neurons_read;
    t->neurons_possible += s->neurons_possible;
    t->neurons_computed += s->neurons_computed;
}

static void name_test(struct test *t, const char *kind, int n)
{
    t->n = n;
    snprintf(t->name, sizeof t->name, "%s%d", kind, n);
}

/* Repetition i of a test; negative ones are warm-ups. Of a first one that is interrupted the tokens it made count. */
static int once(struct bench *b, struct test *t, int i, struct err *e)
{
    int prompt = t->name[0] == 'p';
    if (prompt || !b->words || session_n_pos(&b->session) + t->n > b->s->config.choice.context)
        session_reset(&b->session);
    int at = session_n_pos(&b->session);
    engine_stats_reset(b->g);
    int64_t start = progress_now_ns();
    b->made = 0;
    int r = prompt ? feed(b, t->n, e) : generate(b, t->n, (uint64_t)(i + 2), e);
    int part = r == ERR_INTR && i == 0 && b->made > 0; /* nothing else is known of this test */
    if (r < 0 && !part)
        return r;
    if (part)
        name_test(t, t->name[0] == 'p' ? "pp" : "tg", b->made);
    if (prompt && !part && !session_logits(&b->session, e)) /* the first token follows from here */
        return e->code;
    uint64_t ns = (uint64_t)(progress_now_ns() - start);
    struct engine_stats s = engine_stats(b->g);
    if (i < 0)
        return r;
    t->rate[t->done++] = report_rate((uint64_t)t->n, ns);
    t->ns += ns;
    t->at += (uint64_t)at;
    t->ttft_ns += prompt && !part ? ns : 0;
    add_stats(&t->s, &s);
    return r;
}

static double mean(const struct test *t)
{
    double sum = 0;
    for (int i = 0; i < t->done; i++)
        sum += t->rate[i];
    return sum / t->done;
}

static double deviation(const struct test *t)
{
    double m = mean(t), sum = 0;
    for (int i = 0; i < t->done; i++)
        sum += (t->rate[i] - m) * (t->rate[i] - m);
    return t->done > 1 ? sqrt(sum / (t->done - 1)) : 0;
}

/* Time to the first token of a prompt test by the plan; 0: not predicted. */
static double predicted_ms(const struct bench *b, const struct test *t)
{
    return t->name[0] == 'p' ? report_prompt_ns(b->s, t->n) / 1e6 : 0;
}

static void print_md(const struct bench *b)
{
    char memory[24], peak[24], size[24];
    printf("| model | size | backend | threads | memory | test | t/s | ttft ms | plan's ttft ms | io MiB/token | stall | hit "
           "| rss peak |\n"
           "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        int n = t->done;
        char ttft[32] = "", plans[32] = "";
        if (t->ttft_ns)
            snprintf(ttft, sizeof ttft, "%.1f", (double)t->ttft_ns / 1e6 / n);
        if (predicted_ms(b, t) > 0)
            snprintf(plans, sizeof plans, "%.1f", predicted_ms(b, t));
        printf("| %s | %s | %s%s | %d | %s | %s | %.2f ± %.2f | %s | %s | %.3f | %.1f %% | %.1f %% | %s |\n",
               b->s->pack->h.name, size_format(b->s->pack->file.size, size, sizeof size),
               engine_io(b->g)->backend->name, engine_io(b->g)->direct ? "" : " (page cache)",
               b->s->config.choice.threads, size_format(b->s->memory_bytes, memory, sizeof memory), t->name,
               mean(t), deviation(t), ttft, plans, (double)t->s.read_bytes / 1048576 / ((double)t->n * n),
               100 * report_share(t->s.stall_ns, t->ns), 100 * report_hit_rate(&t->s),
               size_format(machine_peak_bytes(), peak, sizeof peak));
    }
}

/* Where the time of a token went, and which neurons it took. */
static void print_shares(const struct test *t, int n)
{
    double tokens = (double)t->n * n;
    printf(",\"ms_per_token\":{\"attention\":%.6g,\"predict\":%.6g,\"ffn\":%.6g,\"stall\":%.6g,\"head\":%.6g}",
           (double)t->s.attention_ns / 1e6 / tokens, (double)t->s.predict_ns / 1e6 / tokens, (double)t->s.ffn_ns / 1e6 / tokens,
           (double)t->s.stall_ns / 1e6 / tokens, (double)t->s.head_ns / 1e6 / tokens);
    printf(",\"verified_bytes_per_token\":%.6g,\"verify_thread_ms_per_token\":%.6g", (double)t->s.verify_bytes / tokens,
           (double)t->s.verify_ns / 1e6 / tokens);
    printf(",\"neurons_per_token\":{\"hot\":%.6g,\"cold\":%.6g,\"read\":%.6g,\"computed\":%.6g,\"possible\":%.6g}",
           (double)t->s.neurons_hot / tokens, (double)t->s.neurons_cold / tokens, (double)t->s.neurons_read / tokens,
           (double)t->s.neurons_computed / tokens, (double)t->s.neurons_possible / tokens);
    printf(",\"gate_units_read_per_token\":%.6g", (double)(t->s.gate_lookups - t->s.gate_hits) / tokens);
}

static void print_json(const struct bench *b)
{
    fputs("{", stdout);
    report_configuration(stdout, b->s, b->g);
    printf(",\"model_bytes\":%llu,\"predicted_tokens_per_s\":%.6g,\"prediction_valid\":%s,\"interrupted\":%s,\"tests\":[",
           (unsigned long long)b->s->pack->file.size, b->s->predicted.tokens_per_s, setup_differs(b->s) ? "false" : "true",
           b->interrupted ? "true" : "false");
    for (int i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        int n = t->done;
        printf("%s{\"test\":\"%s\",\"tokens\":%d,\"tokens_per_s\":%.6g,\"stddev\":%.6g,\"ttft_ms\":%.6g,\"read_bytes_"
               "per_token\":%.6g"
               ",\"reads_per_token\":%.6g,\"stall_share\":%.6g,\"hit_rate\":%.6g",
               i ? "," : "", t->name, t->n, mean(t), deviation(t), (double)t->ttft_ns / 1e6 / n,
               (double)t->s.read_bytes / ((double)t->n * n), (double)t->s.reads / ((double)t->n * n),
               report_share(t->s.stall_ns, t->ns), report_hit_rate(&t->s));
        if (predicted_ms(b, t) > 0)
            printf(",\"ttft_predicted_ms\":%.6g", predicted_ms(b, t));
        printf(",\"position\":%.6g", (double)t->at / n + t->n / 2.0);
        print_shares(t, n);
        for (int k = 0; k < n; k++)
            printf("%s%.6g", k ? "," : ",\"samples\":[", t->rate[k]);
        fputs("]}", stdout);
    }
    fputs("]}\n", stdout);
}

static void print_csv(const struct bench *b)
{
    puts("model,model_bytes,backend,direct,threads,memory_bytes,test,tokens_per_s,stddev,ttft_ms,"
         "read_bytes_per_token,stall_share,hit_rate,peak_bytes,ttft_predicted_ms");
    for (int i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        int n = t->done;
        putchar('"');
        for (const char *p = b->s->pack->h.name; *p; p++)
            printf(*p == '"' ? "\"\"" : "%c", *p);
        printf("\",%llu,%s,%d,%d,%llu,%s,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%llu,%.6g\n",
               (unsigned long long)b->s->pack->file.size, engine_io(b->g)->backend->name, engine_io(b->g)->direct,
               b->s->config.choice.threads, (unsigned long long)b->s->memory_bytes, t->name, mean(t),
               deviation(t), (double)t->ttft_ns / 1e6 / n, (double)t->s.read_bytes / ((double)t->n * n),
               report_share(t->s.stall_ns, t->ns), report_hit_rate(&t->s), (unsigned long long)machine_peak_bytes(), predicted_ms(b, t));
    }
}

/* After an interruption: tests of which nothing was measured are left out. */
static void keep_finished(struct bench *b)
{
    int n = 0;
    for (int i = 0; i < b->n_tests; i++)
        if (b->tests[i].done)
            b->tests[n++] = b->tests[i];
    b->interrupted = 1;
    b->n_tests = n;
}

static int measure(struct bench *b, struct err *e)
{
    struct progress bar;
    int r = setup_engine(b->s, &b->g, e), steps = 0;
    if (r == 0)
        r = session_init(&b->session, b->g, &(struct session_config){ .cancel = b->a->setup.cancel }, e);
    progress_init(&bar, "measuring", "runs", (uint64_t)(b->n_tests * (b->a->repeats + !b->a->no_warmup)));
    for (int i = 0; i < b->n_tests; i++)
        for (int k = b->a->no_warmup ? 0 : -1; k < b->a->repeats && r == 0; k++) {
            r = once(b, &b->tests[i], k, e);
            progress_set(&bar, (uint64_t)++steps);
        }
    progress_done(&bar);
    if (r == ERR_INTR)
        keep_finished(b);
    if (r == 0 || (r == ERR_INTR && b->g))
        (b->a->output == OUT_MD ? print_md : b->a->output == OUT_JSON ? print_json : print_csv)(b);
    session_done(&b->session);
    report_accel_lost(b->g);
    engine_close(b->g);
    return r;
}

static int add_test(struct bench *b, const char *kind, int asked, int usual, struct err *e)
{
    int context = b->s->config.choice.context, n = asked >= 0 ? asked : usual < context ? usual : context;
    if (n > context)
        return err_set(e, ERR_USAGE, "%s%d needs a context of %d; it is %d: see --context", kind, n, n, context);
    if (!n)
        return 0;
    struct test *t = &b->tests[b->n_tests++];
    name_test(t, kind, n);
    return 0;
}

int cmd_bench(int argc, char **argv)
{
    static struct bench b;
    struct args a = { .pp = -1, .tg = -1, .repeats = 5 };
    struct setup s = { 0 };
    struct err e = { 0 };
    setup_args_init(&a.setup);
    int r = parse(&a, argc, argv, &e);
    if (r > 0)
        return 0;
    b.a = &a;
    b.s = &s;
    a.setup.cancel = file_catch_interrupt();
    if (r == 0 && (r = setup_open(&a.setup, &s, &e)) == 0 && (r = add_test(&b, "pp", a.pp, 512, &e)) == 0 &&
        (r = add_test(&b, "tg", a.tg, 128, &e)) == 0 && (r = get_text(&b, s.config.choice.context, &e)) == 0)
        r = measure(&b, &e);
    free(b.text);
    free(b.words);
    setup_close(&s);
    return r < 0 ? opt_fail(&e) : 0;
}
