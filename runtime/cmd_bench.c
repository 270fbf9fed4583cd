/* thermo-run bench: speed of prompt processing (pp) and text generation (tg), named and averaged as
 * users of llama-bench know it, with what a budgeted engine has to say beside it. */
#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"

#include "runtime/bench.h"
#include "runtime/cmd.h"
#include "runtime/prompt.h"
#include "runtime/report.h"
#include "runtime/session/session.h"
#include "runtime/setup.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPEATS 1000
#define MAX_LIST 16 /* numbers of an option */
#define MAX_SEQUENCES 1024
#define OWN_BYTES (16u << 10) /* of tests, for which the process's own part of the account has room */
#define USUAL_PP 512
#define USUAL_TG 128 /* tokens of a generation test */

static const struct opt_usage usage = {
    "thermo-run bench", "",
    "Measure tokens per second: ppN, a prompt of N tokens; tgN, N generated tokens; ppN+tgM, one behind the other; '@ dN', each "
    "behind N positions that are filled before and not timed. Time includes all that a pass waits for. Generation starts from a text "
    "(by default the beginning-of-text token) and samples at temperature 0.8, so that the neurons that fire are those "
    "of text and not of noise; the seed is 1 for the warm-up, then 2, 3, ..., so that no text comes twice. Mean and "
    "standard deviation over the repetitions, after one warm-up. With --text the generation test decodes that text, "
    "token by token, whatever the model would say: a test goes on where the last one ended, in text and context, and "
    "begins a new sequence where the context is full. That is how to compare runs with a plan that was made from such "
    "text. With --sequences several texts are generated together, and tgN@M is the speed of M of them in all; all have the "
    "same beginning, but with --text each begins at a place of its own. Ctrl-C ends it after the "
    "token in hand and prints what was measured until then (exit status 130).",
    "  thermo-run bench --model m.thermo --plan p.json\n"
    "  thermo-run bench --model m.thermo --plan p.json --memory 2GiB -p 512,1024 -n 64,128 -d 0,4096 -r 3 -o jsonl\n"
    "  thermo-run bench --model m.thermo --plan p.json -p 0 -n 64 --sequences 1,2,4,8\n",
    NULL
};

static const char *const outputs[] = { "md", "json", "jsonl", "csv", "sql", NULL }; /* enum bench_form */

/* Numbers of an option, of which a pair may have two; n 0: it was not given. */
struct list {
    const char *given;
    int n, v[MAX_LIST][2];
};

struct args {
    struct setup_args setup;
    int repeats, output, no_warmup, json;
    const char *prompt_file, *text_file;
    struct list pp, tg, pg, depth, sequences;
};

struct bench {
    const struct args *a;
    struct setup *s;
    struct engine *g;
    struct sequence {
        struct session session;
        int32_t id;                /* sampled last */
        int word;                  /* of --text, the next one */
    } *seqs;                       /* [n_seqs], all of one text each */
    struct session_part *parts;    /* [n_seqs] */
    int n_seqs;
    int32_t *text;                 /* ids to take prompts from */
    int n_text;
    int32_t *words;                /* --text: what generation decodes; else NULL */
    int n_words;
    struct bench_test *tests;      /* [most_tests] */
    int n_tests, interrupted;
    int made;                      /* tokens of the repetition that runs */
};

/* "64", "64,128"; of pairs "512,128", several with ';' between them. */
static int parse_list(const char *option, struct list *l, int of_pair, int least, int most, struct err *e)
{
    for (const char *p = l->given; p; l->n++) {
        for (int i = 0; i < of_pair; i++) {
            char *end;
            long n = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : -1;
            if (n < least || n > most || (*end && *end != ',' && *end != ';') || (i + 1 < of_pair && *end != ','))
                return err_set(e, ERR_USAGE, "--%s '%s': %s from %d to %d are needed, as %s", option, l->given,
                               of_pair > 1 ? "pairs of numbers" : "numbers", least, most,
                               of_pair > 1 ? "512,128 or '512,128;64,16'" : "64 or 64,128");
            if (l->n == MAX_LIST)
                return err_set(e, ERR_USAGE, "--%s '%s': more than the limit of %d", option, l->given, MAX_LIST);
            l->v[l->n][i] = (int)n;
            p = *end ? end + 1 : i + 1 < of_pair ? end : NULL;
        }
    }
    return 0;
}

static int parse_lists(struct args *a, struct err *e)
{
    int r = parse_list("n-prompt", &a->pp, 1, 0, MODEL_MAX_CONTEXT, e);
    r = r ? r : parse_list("n-gen", &a->tg, 1, 0, MODEL_MAX_CONTEXT, e);
    r = r ? r : parse_list("prompt-gen", &a->pg, 2, 1, MODEL_MAX_CONTEXT, e);
    r = r ? r : parse_list("n-depth", &a->depth, 1, 0, MODEL_MAX_CONTEXT, e);
    r = r ? r : parse_list("sequences", &a->sequences, 1, 1, MAX_SEQUENCES, e);
    if (r == 0 && !a->depth.n)
        a->depth.n = 1; /* 0 */
    if (r == 0 && !a->sequences.n)
        a->sequences.v[a->sequences.n++][0] = 1;
    return r;
}

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    struct opt o[SETUP_OPTIONS + 13] = { 0 };
    int k = setup_options(o, &a->setup), n_pos = 0;
    const struct opt own[] = {
        { .name = "n-prompt", .short_name = 'p', .type = OPT_STRING, .dest = &a->pp.given, .arg = "LIST",
          .help = "Tokens of the prompt tests: a number or several, as 512,1024; 0: none.", .def = "512, or the context" },
        { .name = "n-gen", .short_name = 'n', .type = OPT_STRING, .dest = &a->tg.given, .arg = "LIST",
          .help = "Tokens of the generation tests; 0: none.", .def = "128, or the context" },
        { .name = "prompt-gen", .type = OPT_STRING, .dest = &a->pg.given, .arg = "P,N",
          .help = "A prompt of P tokens and N generated ones in one test; several with ';' between them. -pg is the same." },
        { .name = "n-depth", .short_name = 'd', .type = OPT_STRING, .dest = &a->depth.given, .arg = "LIST", .def = "0",
          .help = "Positions that are filled before each test, without being timed." },
        { .name = "repetitions", .short_name = 'r', .type = OPT_INT, .dest = &a->repeats, .arg = "N",
          .min = 1, .max = MAX_REPEATS, .help = "Repetitions of each test.", .def = "5" },
        { .name = "prompt-file", .short_name = 'f', .type = OPT_STRING, .dest = &a->prompt_file, .arg = "FILE", .file = OPT_READ,
          .help = "Text for prompts; repeated where it is too short.", .def = "pseudo-random token ids" },
        { .name = "text", .type = OPT_STRING, .dest = &a->text_file, .arg = "FILE", .file = OPT_READ,
          .help = "Text that the generation test decodes; repeated where it is too short.", .def = "what it samples" },
        { .name = "sequences", .type = OPT_STRING, .dest = &a->sequences.given, .arg = "LIST", .def = "1",
          .help = "Texts that are generated together: a number or several, as 1,2,4,8; no more than the plan is for." },
        { .name = "no-warmup", .type = OPT_FLAG, .dest = &a->no_warmup,
          .help = "Do not run each test once before measuring." },
        { .name = "no-overlap", .type = OPT_FLAG, .dest = &a->setup.no_overlap,
          .help = "Compute only while no read is in flight; for measurements." },
        { .name = "no-cache", .type = OPT_FLAG, .dest = &a->setup.no_cache,
          .help = "Keep no cold neuron from one token to the next; for measurements." },
        { .name = "output", .short_name = 'o', .type = OPT_CHOICE, .dest = &a->output, .arg = "FORM",
          .choices = outputs, .help = "Form of the results; all but md have llama-bench's columns, and more.", .def = "md" },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json,
          .help = "One JSON object in place of that: the run's configuration, and of each test times by term (ffn contains stall) and "
                  "neurons." },
    };
    memcpy(o + k, own, sizeof own);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run bench --help", argv[1]);
    return r ? r : parse_lists(a, e);
}

static int most_sequences(const struct args *a)
{
    int most = 1;
    for (int i = 0; i < a->sequences.n; i++)
        most = a->sequences.v[i][0] > most ? a->sequences.v[i][0] : most;
    return most;
}

static int most_tests(const struct args *a)
{
    return a->depth.n * ((a->pp.n ? a->pp.n : 1) + a->sequences.n * (a->tg.n ? a->tg.n : 1) + a->pg.n);
}

/* The plan has room for as many sequences as are asked for. */
static int check_sizes(struct bench *b, struct err *e)
{
    const struct args *a = b->a;
    b->n_seqs = most_sequences(a);
    if (b->n_seqs > b->s->config.choice.max_batch)
        return err_set(e, ERR_USAGE, "--sequences %d, but plan '%s' is for %d: plan with 'thermo-plan solve --max-batch %d'", b->n_seqs,
                       a->setup.plan, b->s->config.choice.max_batch, b->n_seqs);
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

/* Tokens of --text that all tests together decode, at most. */
static size_t words_needed(const struct args *a, int context)
{
    size_t each = a->tg.n ? 0 : (size_t)(USUAL_TG < context ? USUAL_TG : context);
    for (int i = 0; i < a->tg.n; i++)
        each += (size_t)(a->tg.v[i][0] < context ? a->tg.v[i][0] : context);
    for (int i = 0; i < a->pg.n; i++)
        each += (size_t)(a->pg.v[i][1] < context ? a->pg.v[i][1] : context);
    return (size_t)most_sequences(a) * (size_t)a->sequences.n * (size_t)a->depth.n * (size_t)(a->repeats + 1) * (each ? each : 1);
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

static int feed(struct bench *b, struct sequence *q, int n, struct err *e)
{
    for (int at = 0; at < n;) {
        int piece = n - at < b->n_text ? n - at : b->n_text, done;
        int r = session_feed(&q->session, b->text, piece, SESSION_EXACT, &done, e);
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

static void sampling(struct bench *b, const struct bench_test *t, uint64_t seed)
{
    struct sample_params p = { .temp = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1 };
    for (int i = 0; i < t->sequences; i++) {
        p.seed = seed + (uint64_t)i * (MAX_REPEATS + 1);
        session_sampling(&b->seqs[i].session, &p);
    }
}

/* What stands before a test, then a part of it, of each sequence; the next token is sampled where one is generated then. */
static int fill(struct bench *b, const struct bench_test *t, int n, struct err *e)
{
    for (int i = 0; i < t->sequences && n > 0; i++) {
        struct sequence *q = &b->seqs[i];
        int r = feed(b, q, n, e);
        if (r == 0 && t->tg && (r = session_sample(&q->session, e)) >= 0)
            q->id = r;
        if (r < 0)
            return r;
    }
    return 0;
}

static int generate(struct bench *b, const struct bench_test *t, struct err *e)
{
    for (int i = 0; i < t->tg; i++) {
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

static void name_test(struct bench_test *t)
{
    int len = 0, cap = (int)sizeof t->name;
    if (t->pp)
        len += snprintf(t->name, sizeof t->name, "pp%d", t->pp);
    if (t->tg)
        len += snprintf(t->name + len, (size_t)(cap - len), "%stg%d", t->pp ? "+" : "", t->tg);
    if (t->sequences > 1)
        len += snprintf(t->name + len, (size_t)(cap - len), "@%d", t->sequences);
    if (t->depth)
        snprintf(t->name + len, (size_t)(cap - len), " @ d%d", t->depth);
}

/* All texts of a test begin anew, where they would not fit otherwise; of --text each at a place of its own. */
static void begin(struct bench *b, const struct bench_test *t)
{
    for (int i = 0; i < b->n_seqs; i++) {
        struct sequence *q = &b->seqs[i];
        int used = i < t->sequences;
        if (t->pp || t->depth || !b->words || !used || session_n_pos(&q->session) + t->tg > b->s->config.choice.context)
            session_reset(&q->session);
        if (b->words && used && session_n_pos(&q->session) != session_n_pos(&b->seqs[0].session))
            session_reset(&q->session);
    }
}

/* Repetition i of a test; negative ones are warm-ups. Of a first one that is interrupted the tokens it made count, of prompts or generated
 * ones alone. */
static int once(struct bench *b, struct bench_test *t, int i, struct err *e)
{
    begin(b, t);
    sampling(b, t, (uint64_t)(i + 2));
    int r = fill(b, t, t->depth, e), at = session_n_pos(&b->seqs[0].session);
    if (r < 0)
        return r;
    engine_stats_reset(b->g);
    int64_t start = progress_now_ns(), first = start;
    b->made = 0;
    r = fill(b, t, t->pp, e);
    if (r == 0 && t->pp && !t->tg && !session_logits(&b->seqs[0].session, e)) /* the first token follows from here */
        r = e->code;
    first = progress_now_ns();
    if (r == 0)
        r = generate(b, t, e);
    int part = r == ERR_INTR && i == 0 && b->made > 0 && !(t->pp && t->tg) && t->sequences == 1; /* nothing else is known of this test */
    if (r < 0 && !part)
        return r;
    uint64_t ns = (uint64_t)(progress_now_ns() - start);
    if (part) {
        *(t->pp ? &t->pp : &t->tg) = b->made;
        name_test(t);
    }
    struct engine_stats s = engine_stats(b->g);
    if (i < 0)
        return r;
    t->began = t->done ? t->began : time(NULL);
    t->took[t->done++] = ns;
    t->ns += ns;
    t->at += (uint64_t)at;
    t->ttft_ns += t->pp && !part ? (uint64_t)(first - start) : 0;
    add_stats(&t->s, &s);
    return r;
}

/* After an interruption: tests of which nothing was measured are left out. */
static void keep_finished(struct bench *b)
{
    int n = 0;
    for (int i = 0; i < b->n_tests; i++)
        if (b->tests[i].done)
            b->tests[n++] = b->tests[i];
        else
            free(b->tests[i].took);
    b->interrupted = 1;
    b->n_tests = n;
}

static void print_results(const struct bench *b)
{
    struct bench_results r = { b->s, b->g, b->tests, b->n_tests, b->interrupted };
    if (b->a->json)
        bench_telemetry(&r);
    else
        bench_print(&r, (enum bench_form)b->a->output);
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
        print_results(b);
    for (int i = 0; i < b->n_seqs; i++)
        session_done(&b->seqs[i].session);
    report_accel_lost(b->g);
    engine_close(b->g);
    return r;
}

static int add_test(struct bench *b, int pp, int tg, int depth, int sequences, struct err *e)
{
    int context = b->s->config.choice.context;
    struct bench_test *t = &b->tests[b->n_tests];
    if (pp + tg == 0)
        return 0;
    *t = (struct bench_test){ .pp = pp, .tg = tg, .depth = depth, .sequences = sequences };
    name_test(t);
    if ((long long)pp + tg + depth > context)
        return err_set(e, ERR_USAGE, "%s needs a context of %lld; it is %d: see --context", t->name, (long long)pp + tg + depth, context);
    t->took = calloc((size_t)b->a->repeats, sizeof *t->took);
    if (!t->took)
        return err_set(e, ERR_NOMEM, "out of memory for %d repetitions", b->a->repeats);
    b->n_tests++;
    return 0;
}

/* Those of an option; without it one of the usual size, or of what the context has room for. */
static int add_tests(struct bench *b, const struct list *l, int usual, int prompts, int depth, int sequences, struct err *e)
{
    int room = b->s->config.choice.context - depth, r = 0;
    if (!l->n && room > 0)
        return add_test(b, prompts ? usual < room ? usual : room : 0, prompts ? 0 : usual < room ? usual : room, depth, sequences, e);
    for (int i = 0; i < l->n && r == 0; i++)
        r = add_test(b, prompts ? l->v[i][0] : 0, prompts ? 0 : l->v[i][0], depth, sequences, e);
    return r;
}

static int add_all(struct bench *b, struct err *e)
{
    const struct args *a = b->a;
    int r = 0;
    for (int d = 0; d < a->depth.n && r == 0; d++) {
        int depth = a->depth.v[d][0];
        r = add_tests(b, &a->pp, USUAL_PP, 1, depth, 1, e);
        for (int i = 0; i < a->sequences.n && r == 0; i++)
            r = add_tests(b, &a->tg, USUAL_TG, 0, depth, a->sequences.v[i][0], e);
        for (int i = 0; i < a->pg.n && r == 0; i++)
            r = add_test(b, a->pg.v[i][0], a->pg.v[i][1], depth, 1, e);
    }
    return r;
}

int cmd_bench(int argc, char **argv)
{
    static struct bench b;
    static char prompt_gen[] = "--prompt-gen"; /* llama-bench's -pg is no short option of one letter */
    struct args a = { .repeats = 5 };
    struct setup s = { 0 };
    struct err e = { 0 };
    setup_args_init(&a.setup);
    for (int i = 1; i < argc; i++)
        argv[i] = strcmp(argv[i], "-pg") ? argv[i] : prompt_gen;
    int r = parse(&a, argc, argv, &e);
    if (r > 0)
        return 0;
    b.a = &a;
    b.s = &s;
    a.setup.cancel = file_catch_interrupt();
    int most = most_sequences(&a);
    a.setup.beside = (uint64_t)most_tests(&a) * (sizeof *b.tests + (uint64_t)a.repeats * sizeof *b.tests->took);
    a.setup.beside = a.setup.beside > OWN_BYTES ? a.setup.beside - OWN_BYTES : 0;
    a.setup.beside += most > 1 ? (uint64_t)most * (sizeof *b.seqs + sizeof *b.parts) : 0;
    a.setup.beside_what = a.text_file || a.prompt_file ? "the text" : "the tests";
    a.setup.beside_of = read_texts;
    a.setup.beside_ctx = &b;
    if (r == 0 && !(b.tests = calloc((size_t)most_tests(&a), sizeof *b.tests)))
        r = err_set(&e, ERR_NOMEM, "out of memory for %d tests", most_tests(&a));
    if (r == 0 && (r = setup_open(&a.setup, &s, &e)) == 0 && (r = check_sizes(&b, &e)) == 0 && (r = add_all(&b, &e)) == 0 &&
        (r = get_text(&b, s.config.choice.context, &e)) == 0)
        r = measure(&b, &e);
    for (int i = 0; i < b.n_tests; i++)
        free(b.tests[i].took);
    free(b.tests);
    free(b.text);
    free(b.words);
    free(b.seqs);
    free(b.parts);
    setup_close(&s);
    return r < 0 ? opt_fail(&e) : 0;
}
