/* thermo-run bench: speed of prompt processing (pp) and text generation (tg), named and averaged as
 * users of llama-bench know it, with what a budgeted engine has to say beside it. */
#include "common/base/file.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"

#include "runtime/cmd.h"
#include "runtime/machine.h"
#include "runtime/prompt.h"
#include "runtime/report.h"
#include "runtime/session/session.h"
#include "runtime/setup.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPEATS 1000
#define MAX_SIZES 16 /* numbers of sequences */
#define MAX_SEQUENCES 1024
#define USUAL_TG 128 /* tokens of a generation test */

static const struct opt_usage usage = {
    "thermo-run bench", "",
    "Measure tokens per second: ppN, a prompt of N tokens; tgN, N generated tokens. Generation starts from a text "
    "(by default the beginning-of-text token) and samples at temperature 0.8, so that the neurons that fire are those "
    "of text and not of noise; the seed is 1 for the warm-up, then 2, 3, ..., so that no text comes twice. Mean and "
    "standard deviation over the repetitions, after one warm-up. With --text the generation test decodes that text, "
    "token by token, whatever the model would say: a test goes on where the last one ended, in text and context, and "
    "begins a new sequence where the context is full. That is how to compare runs with a plan that was made from such "
    "text. With --sequences several texts are generated together, and tgN@M is the speed of M of them in all; all have the "
    "same beginning, but with --text each begins at a place of its own. Ctrl-C ends it after the "
    "token in hand and prints what was measured until then (exit status 130).",
    "  thermo-run bench --model m.thermo --plan p.json\n"
    "  thermo-run bench --model m.thermo --plan p.json --memory 2GiB -p 0 -n 64 -r 3 --output json\n"
    "  thermo-run bench --model m.thermo --plan p.json -p 0 -n 64 --sequences 1,2,4,8\n",
    NULL
};

enum { OUT_MD, OUT_JSON, OUT_CSV };
static const char *const outputs[] = { "md", "json", "csv", NULL };

struct args {
    struct setup_args setup;
    int pp, tg, repeats, output, no_warmup;
    const char *prompt_file, *text_file, *sequences;
    int sizes[MAX_SIZES], n_sizes;
};

struct test {
    char name[32];
    int n, done;                   /* tokens of each sequence; repetitions that were finished */
    int sequences;
    double rate[MAX_REPEATS];      /* tokens per second */
    uint64_t ns, ttft_ns, at;      /* sums over repetitions; at: positions of the first token */
    struct engine_stats s;
};

struct bench {
    const struct args *a;
    struct setup *s;
    struct engine *g;
    struct sequence {
        struct session session;
        int32_t id;                /* sampled last */
        int word;                  /* of --text, the next one */
    } *seqs;                       /* [n_seqs], all of one text each; the first alone has prompts */
    struct session_part *parts;    /* [n_seqs] */
    int n_seqs;
    int32_t *text;                 /* ids to take prompts from */
    int n_text;
    int32_t *words;                /* --text: what generation decodes; else NULL */
    int n_words;
    struct test tests[1 + MAX_SIZES];
    int n_tests, interrupted;
    int made;                      /* tokens of the repetition that runs */
};

static int parse_sizes(struct args *a, struct err *e)
{
    const char *p = a->sequences ? a->sequences : "1";
    do {
        char *end;
        long n = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : 0;
        if (n < 1 || n > MAX_SEQUENCES || (*end && *end != ','))
            return err_set(e, ERR_USAGE, "--sequences '%s': numbers from 1 to %d with commas between them are needed", a->sequences,
                           MAX_SEQUENCES);
        if (a->n_sizes == MAX_SIZES)
            return err_set(e, ERR_USAGE, "--sequences '%s': more than the limit of %d numbers", a->sequences, MAX_SIZES);
        a->sizes[a->n_sizes++] = (int)n;
        p = *end ? end + 1 : end;
    } while (*p || p[-1] == ',');
    return 0;
}

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    struct opt o[SETUP_OPTIONS + 10] = { 0 };
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
        { .name = "sequences", .type = OPT_STRING, .dest = &a->sequences, .arg = "LIST", .def = "1",
          .help = "Texts that are generated together: a number or several, as 1,2,4,8; no more than the plan is for." },
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
    return r ? r : parse_sizes(a, e);
}

/* The plan has room for as many sequences as are asked for. */
static int check_sizes(struct bench *b, struct err *e)
{
    const struct args *a = b->a;
    for (int i = 0; i < a->n_sizes; i++) {
        if (a->sizes[i] > b->s->config.choice.max_batch)
            return err_set(e, ERR_USAGE, "--sequences %d, but plan '%s' is for %d: plan with 'thermo-plan solve --max-batch %d'",
                           a->sizes[i], a->setup.plan, b->s->config.choice.max_batch, a->sizes[i]);
        b->n_seqs = a->sizes[i] > b->n_seqs ? a->sizes[i] : b->n_seqs;
    }
    b->seqs = calloc((size_t)b->n_seqs, sizeof *b->seqs);
    b->parts = calloc((size_t)b->n_seqs, sizeof *b->parts);
    return b->seqs && b->parts ? 0 : err_set(e, ERR_NOMEM, "out of memory for %d sequences", b->n_seqs);
}

/* Ids of a file's text, as many as are used. */
static int read_text(const struct bench *b, const char *path, int bos, size_t most, int32_t **ids, int *n, struct err *e)
{
    int r = prompt_tokens(b->s->tokenizer, path, bos, most, setup_room(b->s) / 2, ids, n, e);
    return r < 0 ? r : *n ? 0 : err_set(e, ERR_USAGE, "'%s' has no text", path);
}

/* Tokens of --text that all tests together decode. */
static size_t words_needed(const struct args *a, int context)
{
    int each = a->tg >= 0 ? a->tg : USUAL_TG, all = 1;
    each = each < context ? each : context;
    for (int i = 0; i < a->n_sizes; i++)
        all = a->sizes[i] > all ? a->sizes[i] : all;
    return (size_t)all * (size_t)a->n_sizes * (size_t)(a->repeats + 1) * (size_t)(each ? each : 1);
}

/* Ids of the prompt file, and of the text to decode, which stay in memory: for setup_args.beside_of. */
static int read_texts(void *ctx, const struct engine_config *model, uint64_t *bytes, struct err *e)
{
    struct bench *b = ctx;
    const struct args *a = b->a;
    int context = model->choice.context, r = 0;
    if (a->text_file && b->s->tokenizer)
        r = read_text(b, a->text_file, 0, words_needed(a, context), &b->words, &b->n_words, e);
    if (r == 0 && a->prompt_file && b->s->tokenizer)
        r = read_text(b, a->prompt_file, 1, (size_t)context, &b->text, &b->n_text, e);
    *bytes = (uint64_t)(b->n_words + b->n_text) * sizeof *b->text;
    return r;
}

/* Pseudo-random ids where there is no prompt file. */
static int get_text(struct bench *b, int need, struct err *e)
{
    if (b->text)
        return 0;
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
        int r = session_feed(&b->seqs[0].session, b->text, piece, SESSION_EXACT, &done, e);
        if (r < 0)
            return r;
        at += piece;
        b->made += piece;
    }
    return 0;
}

/* The token to decode: of --text, after the beginning of text; else what was sampled. */
static int32_t next_token(const struct bench *b, struct sequence *q)
{
    int32_t bos = tokenizer_bos(b->s->tokenizer);
    int pos = session_n_pos(&q->session);
    if (!b->words)
        return pos ? q->id : b->text[0];
    if (pos == 0 && bos >= 0)
        return bos;
    q->word = q->word == b->n_words ? 0 : q->word;
    return b->words[q->word++];
}

/* One token of each of n sequences. */
static int step(struct bench *b, int n, struct err *e)
{
    int32_t ids[MAX_SEQUENCES];
    for (int i = 0; i < n; i++) {
        ids[i] = next_token(b, &b->seqs[i]);
        b->parts[i] = (struct session_part){ &b->seqs[i].session, &ids[i], 1, SESSION_PREDICTED, 1, 0 };
    }
    int r = session_step(b->parts, n, b->a->setup.cancel, e);
    for (int i = 0; i < n && r == 0; i++)
        if (b->parts[i].result < 0) {
            *e = *session_error(&b->seqs[i].session);
            r = b->parts[i].result;
        } else if ((b->seqs[i].id = session_sample(&b->seqs[i].session, e)) < 0) {
            r = b->seqs[i].id;
        }
    return r;
}

static int generate(struct bench *b, const struct test *t, uint64_t seed, struct err *e)
{
    struct sample_params p = { .temp = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1 };
    for (int i = 0; i < t->sequences; i++) {
        p.seed = seed + (uint64_t)i * (MAX_REPEATS + 1);
        session_sampling(&b->seqs[i].session, &p);
    }
    for (int i = 0; i < t->n; i++) {
        int r = step(b, t->sequences, e);
        if (r < 0)
            return r;
        b->made++;
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
    int len = snprintf(t->name, sizeof t->name, "%s%d", kind, n);
    if (t->sequences > 1)
        snprintf(t->name + len, sizeof t->name - (size_t)len, "@%d", t->sequences);
}

/* All texts of a test begin anew, where they would not fit otherwise; of --text each at a place of its own. */
static void begin(struct bench *b, const struct test *t, int prompt)
{
    for (int i = 0; i < b->n_seqs; i++) {
        struct sequence *q = &b->seqs[i];
        int used = i < t->sequences;
        if (prompt || !b->words || !used || session_n_pos(&q->session) + t->n > b->s->config.choice.context)
            session_reset(&q->session);
        if (b->words && used && session_n_pos(&q->session) != session_n_pos(&b->seqs[0].session))
            session_reset(&q->session);
    }
}

/* Repetition i of a test; negative ones are warm-ups. Of a first one that is interrupted the tokens it made count. */
static int once(struct bench *b, struct test *t, int i, struct err *e)
{
    int prompt = t->name[0] == 'p';
    begin(b, t, prompt);
    int at = session_n_pos(&b->seqs[0].session);
    engine_stats_reset(b->g);
    int64_t start = progress_now_ns();
    b->made = 0;
    int r = prompt ? feed(b, t->n, e) : generate(b, t, (uint64_t)(i + 2), e);
    int part = r == ERR_INTR && i == 0 && b->made > 0; /* nothing else is known of this test */
    if (r < 0 && !part)
        return r;
    if (part)
        name_test(t, t->name[0] == 'p' ? "pp" : "tg", b->made);
    if (prompt && !part && !session_logits(&b->seqs[0].session, e)) /* the first token follows from here */
        return e->code;
    uint64_t ns = (uint64_t)(progress_now_ns() - start);
    struct engine_stats s = engine_stats(b->g);
    if (i < 0)
        return r;
    t->rate[t->done++] = report_rate((uint64_t)t->n * (uint64_t)t->sequences, ns);
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

/* Of all repetitions and sequences. */
static double tokens_of(const struct test *t)
{
    return (double)t->n * t->done * t->sequences;
}

/* Speed of a generation test by the plan; 0: it is not for so many sequences, or its predictions do not hold. */
static double predicted_rate(const struct bench *b, const struct test *t)
{
    if (t->name[0] == 'p' || setup_differs(b->s))
        return 0;
    for (int i = 0; i < b->s->n_planned; i++)
        if (b->s->planned[i].batch == t->sequences)
            return b->s->planned[i].predicted.tokens_per_s;
    return 0;
}

/* Time to the first token of a prompt test by the plan; 0: not predicted. */
static double predicted_ms(const struct bench *b, const struct test *t)
{
    return t->name[0] == 'p' ? report_prompt_ns(b->s, t->n) / 1e6 : 0;
}

static void print_md(const struct bench *b)
{
    char memory[24], peak[24], size[24];
    print("| model | size | backend | threads | memory | test | t/s | plan's t/s | ttft ms | plan's ttft ms | io MiB/token | stall | hit "
           "| rss peak |\n"
           "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        int n = t->done;
        char ttft[32] = "", plans[32] = "", rate[32] = "";
        if (predicted_rate(b, t) > 0)
            snprintf(rate, sizeof rate, "%.2f", predicted_rate(b, t));
        if (t->ttft_ns)
            snprintf(ttft, sizeof ttft, "%.1f", (double)t->ttft_ns / 1e6 / n);
        if (predicted_ms(b, t) > 0)
            snprintf(plans, sizeof plans, "%.1f", predicted_ms(b, t));
        print("| %s | %s | %s%s | %d | %s | %s | %.2f ± %.2f | %s | %s | %s | %.3f | %.1f %% | %.1f %% | %s |\n",
               b->s->pack->h.name, size_format(b->s->pack->file.size, size, sizeof size),
               engine_io(b->g)->backend->name, engine_io(b->g)->direct ? "" : " (page cache)",
               b->s->config.choice.threads, size_format(b->s->memory_bytes, memory, sizeof memory), t->name,
               mean(t), deviation(t), rate, ttft, plans, (double)t->s.read_bytes / 1048576 / tokens_of(t),
               100 * report_share(t->s.stall_ns, t->ns), 100 * report_hit_rate(&t->s),
               size_format(machine_peak_bytes(), peak, sizeof peak));
    }
}

/* Where the time of a token went, and which neurons it took. */
static void print_shares(const struct test *t)
{
    double tokens = tokens_of(t);
    print_json_to(stdout, ",\"ms_per_token\":{\"attention\":%.6g,\"predict\":%.6g,\"ffn\":%.6g,\"stall\":%.6g,\"head\":%.6g}",
           (double)t->s.attention_ns / 1e6 / tokens, (double)t->s.predict_ns / 1e6 / tokens, (double)t->s.ffn_ns / 1e6 / tokens,
           (double)t->s.stall_ns / 1e6 / tokens, (double)t->s.head_ns / 1e6 / tokens);
    print_json_to(stdout, ",\"verified_bytes_per_token\":%.6g,\"verify_thread_ms_per_token\":%.6g", (double)t->s.verify_bytes / tokens,
           (double)t->s.verify_ns / 1e6 / tokens);
    print_json_to(stdout, ",\"neurons_per_token\":{\"hot\":%.6g,\"cold\":%.6g,\"read\":%.6g,\"computed\":%.6g,\"possible\":%.6g}",
           (double)t->s.neurons_hot / tokens, (double)t->s.neurons_cold / tokens, (double)t->s.neurons_read / tokens,
           (double)t->s.neurons_computed / tokens, (double)t->s.neurons_possible / tokens);
    print_json_to(stdout, ",\"gate_units_read_per_token\":%.6g", (double)(t->s.gate_lookups - t->s.gate_hits) / tokens);
}

static void print_json(const struct bench *b)
{
    fputs("{", stdout);
    report_configuration(stdout, b->s, b->g);
    print_json_to(stdout, ",\"model_bytes\":%llu,\"predicted_tokens_per_s\":%.6g,\"prediction_valid\":%s,\"interrupted\":%s,\"tests\":[",
           (unsigned long long)b->s->pack->file.size, b->s->predicted.tokens_per_s, setup_differs(b->s) ? "false" : "true",
           b->interrupted ? "true" : "false");
    for (int i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        int n = t->done;
        print_json_to(stdout, "%s{\"test\":\"%s\",\"tokens\":%d,\"tokens_per_s\":%.6g,\"stddev\":%.6g,\"ttft_ms\":%.6g,\"read_bytes_"
               "per_token\":%.6g"
               ",\"reads_per_token\":%.6g,\"stall_share\":%.6g,\"hit_rate\":%.6g",
               i ? "," : "", t->name, t->n, mean(t), deviation(t), (double)t->ttft_ns / 1e6 / n,
               (double)t->s.read_bytes / tokens_of(t), (double)t->s.reads / tokens_of(t),
               report_share(t->s.stall_ns, t->ns), report_hit_rate(&t->s));
        print(",\"sequences\":%d", t->sequences);
        if (predicted_rate(b, t) > 0)
            print_json_to(stdout, ",\"tokens_per_s_predicted\":%.6g", predicted_rate(b, t));
        if (predicted_ms(b, t) > 0)
            print_json_to(stdout, ",\"ttft_predicted_ms\":%.6g", predicted_ms(b, t));
        print_json_to(stdout, ",\"position\":%.6g", (double)t->at / n + t->n / 2.0);
        print_shares(t);
        for (int k = 0; k < n; k++)
            print_json_to(stdout, "%s%.6g", k ? "," : ",\"samples\":[", t->rate[k]);
        fputs("]}", stdout);
    }
    fputs("]}\n", stdout);
}

static void print_csv(const struct bench *b)
{
    puts("model,model_bytes,backend,direct,threads,memory_bytes,test,tokens_per_s,stddev,ttft_ms,"
         "read_bytes_per_token,stall_share,hit_rate,peak_bytes,ttft_predicted_ms,sequences,"
         "tokens_per_s_predicted");
    for (int i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        int n = t->done;
        print("\"");
        for (const char *p = b->s->pack->h.name, *q; *p; p = q + (*q == '"')) {
            q = p + strcspn(p, "\"");
            print("%.*s%s", (int)(q - p), p, *q ? "\"\"" : "");
        }
        print("\",%llu,%s,%d,%d,%llu,%s,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%llu,%.6g,%d,%.6g\n",
               (unsigned long long)b->s->pack->file.size, engine_io(b->g)->backend->name, engine_io(b->g)->direct,
               b->s->config.choice.threads, (unsigned long long)b->s->memory_bytes, t->name, mean(t),
               deviation(t), (double)t->ttft_ns / 1e6 / n, (double)t->s.read_bytes / tokens_of(t),
               report_share(t->s.stall_ns, t->ns), report_hit_rate(&t->s), (unsigned long long)machine_peak_bytes(), predicted_ms(b, t),
               t->sequences, predicted_rate(b, t));
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
    for (int i = 0; i < b->n_seqs && r == 0; i++) {
        r = session_init(&b->seqs[i].session, b->g, &(struct session_config){ .cancel = b->a->setup.cancel }, e);
        b->seqs[i].word = (int)((long long)i * b->n_words / b->n_seqs);
    }
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
    for (int i = 0; i < b->n_seqs; i++)
        session_done(&b->seqs[i].session);
    report_accel_lost(b->g);
    engine_close(b->g);
    return r;
}

static int add_test(struct bench *b, const char *kind, int asked, int usual, int sequences, struct err *e)
{
    int context = b->s->config.choice.context, n = asked >= 0 ? asked : usual < context ? usual : context;
    if (n > context)
        return err_set(e, ERR_USAGE, "%s%d needs a context of %d; it is %d: see --context", kind, n, n, context);
    if (!n)
        return 0;
    struct test *t = &b->tests[b->n_tests++];
    t->sequences = sequences;
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
    int most = 1;
    for (int i = 0; i < a.n_sizes; i++)
        most = a.sizes[i] > most ? a.sizes[i] : most;
    a.setup.beside = most > 1 ? (uint64_t)most * (sizeof *b.seqs + sizeof *b.parts) : 0;
    a.setup.beside_what = a.text_file || a.prompt_file ? "the text" : "--sequences";
    a.setup.beside_of = read_texts;
    a.setup.beside_ctx = &b;
    if (r == 0 && (r = setup_open(&a.setup, &s, &e)) == 0 && (r = check_sizes(&b, &e)) == 0)
        r = add_test(&b, "pp", a.pp, 512, 1, &e);
    for (int i = 0; i < a.n_sizes && r == 0; i++)
        r = add_test(&b, "tg", a.tg, USUAL_TG, a.sizes[i], &e);
    if (r == 0 && (r = get_text(&b, s.config.choice.context, &e)) == 0)
        r = measure(&b, &e);
    free(b.text);
    free(b.words);
    free(b.seqs);
    free(b.parts);
    setup_close(&s);
    return r < 0 ? opt_fail(&e) : 0;
}
