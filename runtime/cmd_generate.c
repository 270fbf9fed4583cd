/* thermo-run generate: prompt in, text out as it comes. A client of the library (thermo.h), as the others are: options that are the
 * library's are handed on to it. */
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"

#include "runtime/cmd.h"
#include "runtime/generate.h"
#include "runtime/generate_prompts.h"
#include "runtime/kept.h"
#include "runtime/prompt.h"
#include "runtime/report.h"
#include "runtime/summary.h"
#include "runtime/thermo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct opt_usage usage = {
    "thermo-run generate", "",
    "Continue a prompt. The text goes to stdout as it is made, after the prompt itself; what was measured goes to stderr. A "
    "terminal gets control characters of the text escaped. With --json, stdout has one JSON object per token and a summary "
    "instead. Samplers work in this order: repeat penalty, top-k, top-p, min-p, temperature. The first Ctrl-C ends the text and "
    "still prints the summary (exit status 130). With --best-of, several continuations are made together from one reading of the "
    "prompt, and the likeliest is printed. With --prompts, a file of prompts is continued, several at once, a line of JSON for "
    "each in the order of the file.",
    "  thermo-run generate --model m.thermo --plan p.json --prompt 'Once upon a time' -n 100\n"
    "  echo 'Dear reader,' | thermo-run generate --model m.thermo --plan p.json -f - --memory 2GiB --temp 0\n"
    "  thermo-run generate --model m.thermo --plan p.json --prompt 'Once upon a time' --best-of 4\n"
    "  thermo-run generate --model m.thermo --plan p.json --prompts questions.jsonl --output answers.jsonl --resume\n",
    NULL
};

/* Options that do not go together, beside those that the library refuses. */
struct rule {
    int given;
    const char *what, *with;
};

static int check(const struct generate_args *a, struct err *e)
{
    int prompts = a->prompts != NULL, best = a->best_of > 0;
    const struct rule needs[] = {
        { a->column && !prompts, "--column", "--prompts" },
        { a->output && !prompts, "--output", "--prompts" },
        { a->resume && !a->output, "--resume", "--output" },
        { a->setup.batch && !prompts, "--sequences", "--prompts" },
        { a->setup.kv_positions && !prompts && !best, "--kv-positions", "--prompts or --best-of" },
    }, excludes[] = {
        { prompts && best, "--best-of", "--prompts" },
        { a->session && prompts, "--session", "--prompts" },
        { a->session && best, "--session", "--best-of" },
        { a->session && a->chat, "--session", "--chat: thermo-run chat has it" },
        { prompts && a->prompt, "--prompt", "--prompts" },
        { prompts && a->prompt_file, "--prompt-file", "--prompts" },
        { prompts && a->json, "--json", "--prompts, whose results are JSON lines" },
        { prompts && a->no_echo, "--no-echo", "--prompts" },
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (needs[i].given)
            return err_set(e, ERR_USAGE, "%s belongs to %s", needs[i].what, needs[i].with);
    for (size_t i = 0; i < sizeof excludes / sizeof *excludes; i++)
        if (excludes[i].given)
            return err_set(e, ERR_USAGE, "%s does not go with %s", excludes[i].what, excludes[i].with);
    return 0;
}

/* more: what is the library's. */
static int parse(struct generate_args *a, int argc, char **argv, const char **more, struct err *e)
{
    struct opt o[SETUP_OPTIONS + SAMPLING_OPTIONS + GENERATE_PREFIX_OPTIONS + GENERATE_ADAPT_OPTIONS + 35] = { 0 };
    int k = setup_options(o, &a->setup), n_pos = 0;
    const struct opt own[] = {
        { .name = "prompt", .short_name = 'p', .type = OPT_STRING, .dest = &a->prompt, .arg = "TEXT",
          .help = "Text to continue." },
        { .name = "prompt-file", .short_name = 'f', .type = OPT_STRING, .dest = &a->prompt_file, .arg = "FILE", .file = OPT_READ,
          .help = "A file with the text; - is standard input." },
        { .name = "chat", .type = OPT_FLAG, .dest = &a->chat,
          .help = "The prompt is a user's message: the model's own template is put around it, and the answer alone is printed." },
        { .name = "system", .type = OPT_STRING, .dest = &a->system, .arg = "TEXT", .help = "With --chat: a system message before it." },
        { .name = "chat-template", .type = OPT_STRING, .dest = &a->template, .arg = "FILE", .file = OPT_READ,
          .help = "With --chat: a template instead of the model's own." },
        { .name = "thinking", .type = OPT_CHOICE, .dest = &a->thinking, .choices = chat_thinking_names,
          .help = "With --chat: show, hide, or off, which tells the template that the model shall not think.", .def = "show" },
        { .name = "predict", .short_name = 'n', .type = OPT_INT, .dest = &a->n, .arg = "N",
          .min = -1, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens to make; -1: until the model ends the text or the context is full.", .def = "128" },
        { .name = "stop", .type = OPT_LIST, .dest = &a->stops, .arg = "TEXT",
          .help = "End before this text; repeatable." },
        { .name = "ignore-eos", .type = OPT_FLAG, .dest = &a->ignore_eos, .help = "Never end the text by itself." },
        { .name = "seed", .short_name = 's', .type = OPT_U64, .dest = &a->seed, .arg = "N",
          .help = "Seed of the draws; the same seed gives the same text.", .def = "random, reported" },
        { .name = "no-echo", .type = OPT_FLAG, .dest = &a->no_echo,
          .help = "Do not print the prompt before the text." },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json,
          .help = "JSON lines on stdout: one per token, then a summary; with --best-of one per continuation." },
        { .name = "best-of", .type = OPT_INT, .dest = &a->best_of, .arg = "N", .min = 1, .max = GENERATE_MAX_BATCH,
          .help = "Make N continuations together, with the seeds from --seed on, and print the one with the highest mean "
                  "log-probability of its tokens." },
        { .name = "prompts", .type = OPT_STRING, .dest = &a->prompts, .arg = "FILE", .file = OPT_READ,
          .help = "Continue the prompts of a file: JSON lines with \"prompt\", or a table (CSV)." },
        { .name = "column", .type = OPT_STRING, .dest = &a->column, .arg = "NAME",
          .help = "With --prompts: the column of a table that has them.", .def = "text" },
        { .name = "output", .short_name = 'o', .type = OPT_STRING, .dest = &a->output, .arg = "FILE", .file = OPT_WRITE,
          .beside = ".partial",
          .help = "With --prompts: where results go; FILE.partial until all are there.", .def = "standard output" },
        { .name = "resume", .type = OPT_FLAG, .dest = &a->resume,
          .help = "With --output: continue an interrupted run from FILE.partial." },
        { .name = "session", .type = OPT_STRING, .dest = &a->session, .arg = "FILE", .file = OPT_WRITE, .beside = ".kv",
          .help = "Go on with the text of this file, where it is there: the prompt, which may be left out then, comes behind it. The text "
                  "and what was made are kept there; what the model has read of it is in the folder FILE.kv (--prefix-cache, where "
                  "another is not given)." },
        { .name = "sequences", .type = OPT_INT, .dest = &a->setup.batch, .arg = "N", .min = 1, .max = GENERATE_MAX_BATCH,
          .help = "With --prompts: how many are made at once; no more than the plan is for.", .def = "the plan's" },
        { .name = "kv-positions", .type = OPT_INT, .dest = &a->setup.kv_positions, .arg = "N", .min = 1, .max = 1 << 30,
          .help = "With --prompts and --best-of: positions of the KV cache for all sequences together.",
          .def = "the context for each" },
    };
    memcpy(o + k, own, sizeof own);
    k += (int)(sizeof own / sizeof own[0]);
    k += generate_guess_options(o + k, a);
    k += generate_prefix_options(o + k, a);
    k += generate_adapt_options(o + k, a);
    sampling_options(o + k, &a->sampling);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run generate --help", argv[1]);
    if (r || (r = check(a, e)) < 0)
        return r;
    struct generate_args theirs;
    struct opt library[GENERATE_SERVE_OPTIONS + 1] = { 0 };
    generate_args_init(&theirs);
    generate_serve_options(library, &theirs);
    opt_hand_on(o, library, argc, argv, more);
    generate_args_done(&theirs);
    return 0;
}

static uint64_t seed_of(const struct generate_args *a, const struct js *about)
{
    int64_t n = 0;
    js_int(js_get(about, "seed"), &n);
    return a->seed != UINT64_MAX ? a->seed : (uint64_t)n;
}

static void say_seed(const struct generate_args *a, const struct js *about)
{
    log_info("seed:   %llu", (unsigned long long)seed_of(a, about));
}

/* ---- what comes ---- */

/* A continuation. */
struct made {
    struct kept text;           /* with --best-of */
    int part, n, ended;         /* of what was printed last; tokens */
    double logprob;
    char stop[16];
    struct thermo_error error;
    uint64_t decode_ns, stall_ns, reads, read_bytes, lookups, hits, active; /* at the last token */
};

struct run {
    const struct generate_args *a;
    struct thermo *t;
    struct made *of;            /* [n] */
    int n, n_prompt;
    int64_t start_ns;
    uint64_t first_ns;          /* until the first token; 0: there is none */
    struct kept_tokens tokens;  /* with --session: all of the text */
    struct err why;             /* of the sink: no memory */
};

/* What is printed where a thought begins or ends. */
static const char *mark_of(struct made *m, const struct thermo_event *ev)
{
    int was = m->part;
    if (!ev->text_bytes)
        return "";
    m->part = ev->part;
    return m->part == was ? "" : m->part == THERMO_THOUGHT ? "<think>\n" : "\n</think>\n\n";
}

static void print_text(const char *mark, const struct thermo_event *ev)
{
    print_data(mark, strlen(mark));
    print_data(ev->text, ev->text_bytes);
    fflush(stdout);
}

static void json_text(const char *mark, const struct thermo_event *ev)
{
    print("\"text\":\"");
    report_chars(stdout, mark, strlen(mark));
    report_chars(stdout, ev->text, ev->text_bytes);
    print("\"");
}

/* A token, with what its step took; or text without one. */
static void json_token(struct made *m, const char *mark, const struct thermo_event *ev)
{
    if (ev->type == THERMO_END || ev->token < 0) {
        if (!ev->text_bytes)
            return;
        print("{\"type\":\"text\",");
        json_text(mark, ev);
    } else {
        print("{\"type\":\"token\",\"n\":%d,\"id\":%d,", ev->n_tokens, ev->token);
        json_text(mark, ev);
        print_json_to(stdout, ",\"ms\":%.4f,\"reads\":%llu,\"read_bytes\":%llu,\"stall_ms\":%.4f,\"lookups\":%llu,\"hits\":%llu,"
                      "\"active\":%llu", (double)(ev->decode_ns - m->decode_ns) / 1e6, (unsigned long long)(ev->reads - m->reads),
                      (unsigned long long)(ev->read_bytes - m->read_bytes), (double)(ev->stall_ns - m->stall_ns) / 1e6,
                      (unsigned long long)(ev->lookups - m->lookups), (unsigned long long)(ev->hits - m->hits),
                      (unsigned long long)(ev->active - m->active));
        m->decode_ns = ev->decode_ns;
        m->stall_ns = ev->stall_ns;
        m->reads = ev->reads;
        m->read_bytes = ev->read_bytes;
        m->lookups = ev->lookups;
        m->hits = ev->hits;
        m->active = ev->active;
    }
    print("}\n");
    fflush(stdout);
}

static int take(void *ctx, const struct thermo_event *ev)
{
    struct run *r = ctx;
    struct made *m = &r->of[ev->choice];
    const char *mark = mark_of(m, ev);
    if (!r->first_ns && (ev->type == THERMO_TOKEN || !strcmp(ev->stop, "eos")))
        r->first_ns = (uint64_t)(progress_now_ns() - r->start_ns);
    m->n = ev->n_tokens;
    if (r->a->session && ev->type == THERMO_TOKEN && ev->token >= 0)
        kept_tokens_add(&r->tokens, ev->token, &r->why);
    if (r->a->best_of) {
        if (kept_add(&m->text, mark, strlen(mark), &r->why) == 0)
            kept_add(&m->text, ev->text, ev->text_bytes, &r->why);
    } else if (r->a->json) {
        json_token(m, mark, ev);
    } else {
        print_text(mark, ev);
    }
    if (ev->type == THERMO_END) {
        m->ended = 1;
        m->error = ev->error;
        m->logprob = ev->logprob;
        r->n_prompt = ev->prompt_tokens;
        snprintf(m->stop, sizeof m->stop, "%s", ev->stop);
    }
    return 0;
}

/* ---- a session ---- */

static const char *piece(void *t, int32_t id, size_t *bytes)
{
    return thermo_piece(t, id, bytes);
}

/* Tokens of the file, and of the prompt behind them, without what a text begins with. */
static int tokens_of(struct run *r, struct thermo *t, const char *prompt, size_t len, size_t room, struct err *e)
{
    struct thermo_error why = { 0 };
    int32_t *first = NULL, *ids = NULL;
    size_t n_first = 0, n = 0;
    int there = access(r->a->session, F_OK) == 0;
    int c = there ? kept_tokens_load(&r->tokens, r->a->session, room / 2, piece, t, e) : 0, goes_on = r->tokens.n > 0;
    if (c == 0 && ((c = thermo_tokenize(t, "", 0, 0, &first, &n_first, &why)) < 0 ||
                   (c = thermo_tokenize(t, prompt, len, 0, &ids, &n, &why)) < 0))
        err_set(e, c, "%s", why.message);
    for (size_t i = goes_on ? n_first : 0; i < n && c == 0; i++)
        c = kept_tokens_add(&r->tokens, ids[i], e);
    thermo_free(first);
    thermo_free(ids);
    return c;
}

static int submit_session(struct run *r, struct thermo *t, const char *prompt, size_t len, size_t room, struct thermo_error *why)
{
    struct err e = { 0 };
    char *fields = NULL;
    uint64_t id;
    int c = tokens_of(r, t, prompt, len, room, &e);
    struct js *j = js_object(), *all = js_array();
    for (int i = 0; i < r->tokens.n; i++)
        js_append_int(all, r->tokens.ids[i]);
    js_set(j, "tokens", all);
    if (c == 0 && !(fields = js_text(j, 0, 0)))
        c = err_set(&e, ERR_NOMEM, "out of memory for a text of %d tokens", r->tokens.n);
    js_free(j);
    const struct thermo_request q = { .size = sizeof q, .fields = fields, .fields_bytes = fields ? strlen(fields) : 0 };
    if (c == 0 && (c = thermo_submit(t, &q, take, r, &id, why)) < 0)
        err_set(&e, c, "'%s': %s", r->a->session, why->message);
    if (c < 0) {
        why->code = c;
        snprintf(why->message, sizeof why->message, "%s", e.msg);
    }
    free(fields);
    return c;
}

/* The prompt, once files are read and before the model is. */
static int ask(void *ctx, struct thermo *t, size_t room, struct thermo_error *why)
{
    struct run *r = ctx;
    const struct generate_args *a = r->a;
    struct err e = { 0 };
    char *text = NULL, fields[40];
    size_t len;
    uint64_t id;
    int none = a->session && !a->prompt && !a->prompt_file && access(a->session, F_OK) == 0;
    int c = prompt_text(none ? "" : a->prompt, a->prompt_file, room, &text, &len, &e);
    if (c < 0) {
        why->code = c;
        snprintf(why->message, sizeof why->message, "%s", e.msg);
        return c;
    }
    snprintf(fields, sizeof fields, "{\"choices\": %d}", r->n);
    const struct thermo_request q = { .size = sizeof q, .prompt = text, .prompt_bytes = len, .fields = fields,
                                      .fields_bytes = strlen(fields) };
    c = a->session ? submit_session(r, t, text, len, room, why) : thermo_submit(t, &q, take, r, &id, why);
    if (c == 0 && !a->json && !a->no_echo && !a->chat) {
        print_data(text, len);
        fflush(stdout);
    }
    free(text);
    return c;
}

static int step(struct run *r, struct err *e)
{
    struct thermo_error why = { 0 };
    int c;
    while ((c = thermo_step(r->t, 0, &why)) > 0 && !ferror(stdout) && !r->why.code)
        continue;
    if (ferror(stdout))
        return file_stdout(e); /* nobody reads the rest */
    if (r->why.code)
        *e = r->why;
    return c < 0 ? err_set(e, c, "%s", why.message) : r->why.code;
}

/* ---- one text ---- */

/* The summary's JSON; the caller frees it. */
static int summary(const struct run *r, const struct made *m, char **out, struct err *e)
{
    size_t len;
    char *about = thermo_describe(r->t);
    FILE *f = about ? open_memstream(out, &len) : NULL;
    if (f) {
        print_json_to(f, "{\"type\":\"summary\",\"stop\":\"%s\",\"generated\":%d,\"ttft_ms\":%.3f,", m->stop, m->n,
                      (double)r->first_ns / 1e6);
        fputs(about + 1, f);
    }
    thermo_free(about);
    return f && fclose(f) == 0 ? 0 : err_set(e, ERR_NOMEM, "out of memory for a summary");
}

static int conclude(const struct run *r, struct err *e)
{
    char *text = NULL;
    int c = summary(r, r->of, &text, e);
    struct js *j = c < 0 ? NULL : js_parse(text, strlen(text), "the summary", e);
    if (c == 0 && r->a->json) {
        print_data(text, strlen(text));
        print("\n");
    } else if (j) {
        print("\n");
        fflush(stdout);
        summary_print(j);
    }
    fflush(stdout);
    if (j)
        say_seed(r->a, j);
    js_free(j);
    free(text);
    return j ? 0 : e->code;
}

static int one_text(struct run *r, struct err *e)
{
    struct err late = { 0 };
    int c = step(r, e);
    if (c == 0 && r->of->error.code)
        c = err_set(e, r->of->error.code, "%s", r->of->error.message);
    if (c < 0 && c != ERR_INTR)
        return c;
    if (r->a->session && kept_tokens_save(&r->tokens, r->a->session, piece, r->t, e) < 0)
        return e->code;
    if (conclude(r, &late) < 0 && c == 0) {
        *e = late;
        return late.code;
    }
    return c;
}

/* ---- the best of several ---- */

/* The likeliest that has an outcome; the first among equals. -1: none has. */
static int likeliest(const struct run *r)
{
    int best = -1;
    for (int i = 0; i < r->n; i++)
        if (!r->of[i].error.code && (best < 0 || r->of[i].logprob > r->of[best].logprob))
            best = i;
    return best;
}

/* The first that has none says why. */
static int say_failed(const struct run *r, struct err *e)
{
    int first = -1, n = 0;
    for (int i = r->n; i-- > 0;)
        if (r->of[i].error.code)
            first = i, n++;
    if (n == 0)
        return 0;
    return err_set(e, r->of[first].error.code, "%d of %d candidates could not be made: %s", n, r->n, r->of[first].error.message);
}

static void best_json(const struct run *r, int best, uint64_t seed, const char *about, double ms)
{
    int made = 0;
    for (int i = 0; i < r->n; i++) {
        const struct made *m = &r->of[i];
        print_json_to(stdout, "{\"type\":\"candidate\",\"n\":%d,\"best\":%s,\"seed\":%llu,\"stop\":\"%s\",\"tokens\":%d,"
                      "\"logprob\":%.9g,\"text\":\"", i, i == best ? "true" : "false", (unsigned long long)(seed + (uint64_t)i),
                      m->stop, m->n, m->logprob);
        report_chars(stdout, m->text.s ? m->text.s : "", m->text.len);
        print("\"");
        if (m->error.code) {
            print(",\"error\":");
            report_string(stdout, m->error.message, strlen(m->error.message));
            print(",\"status\":%d", thermo_exit_status(m->error.code));
        }
        print("}\n");
        made += m->n;
    }
    print_json_to(stdout, "{\"type\":\"summary\",\"best\":%d,\"prompt_tokens\":%d,\"generated\":%d,\"ms\":%.3f,", best, r->n_prompt,
                  made, ms);
    print_data(about + 1, strlen(about) - 1);
    print("\n");
}

static void best_plain(const struct run *r, int best, uint64_t seed)
{
    print_data(r->of[best].text.s ? r->of[best].text.s : "", r->of[best].text.len);
    print("\n");
    for (int i = 0; i < r->n; i++)
        log_info("%s seed %llu: mean log-probability %.4f, %d tokens (%s)", i == best ? "best:" : "     ",
                 (unsigned long long)(seed + (uint64_t)i), r->of[i].logprob, r->of[i].n, r->of[i].stop);
}

static int several(struct run *r, struct err *e)
{
    int c = step(r, e);
    if (c < 0)
        return c;
    double ms = (double)(progress_now_ns() - r->start_ns) / 1e6;
    int best = likeliest(r);
    char *about = thermo_describe(r->t);
    struct js *j = about ? js_parse(about, strlen(about), "the model", e) : NULL;
    if (j && r->a->json)
        best_json(r, best, seed_of(r->a, j), about, ms);
    else if (j && best >= 0)
        best_plain(r, best, seed_of(r->a, j));
    if (j && !r->a->json)
        summary_guesses(j);
    js_free(j);
    thermo_free(about);
    if (!j)
        return err_set(e, ERR_NOMEM, "out of memory for a summary");
    return (c = file_stdout(e)) < 0 ? c : say_failed(r, e);
}

static int generate(const struct generate_args *a, const char *const *more, struct cancel *asked, struct err *e)
{
    struct run r = { .a = a, .n = a->best_of ? a->best_of : 1 };
    struct thermo_error why = { 0 };
    const struct thermo_options o = { .size = sizeof o, .more = more, .cancel = (int *)(void *)asked, .sequences = a->best_of,
                                      .requests = r.n, .before = ask,
                                      .reserved_per_token = a->best_of ? KEPT_PER_TOKEN : a->session ? KEPT_SESSION_PER_TOKEN : 0,
                                      .before_ctx = &r };
    r.of = calloc((size_t)r.n, sizeof *r.of);
    int c = r.of ? 0 : err_set(e, ERR_NOMEM, "out of memory for %d continuations", r.n);
    if (c == 0 && (c = thermo_open(&o, &r.t, &why)) < 0)
        err_set(e, c, "%s", why.message);
    r.start_ns = progress_now_ns();
    if (c == 0)
        c = a->best_of ? several(&r, e) : one_text(&r, e);
    thermo_close(r.t);
    for (int i = 0; r.of && i < r.n; i++)
        kept_free(&r.of[i].text);
    free(r.of);
    kept_tokens_free(&r.tokens);
    return c;
}

int cmd_generate(int argc, char **argv)
{
    struct generate_args a;
    struct err e = { 0 };
    const char **more = calloc((size_t)argc + 3, sizeof *more);
    char *pages = NULL;
    generate_args_init(&a);
    int r = more ? parse(&a, argc, argv, more, &e) : err_set(&e, ERR_NOMEM, "out of memory for options");
    if (r == 0 && a.session && !a.prefix_cache && !a.mtp)
        r = kept_pages(a.session, more, &pages, &e);
    if (r == 0) {
        struct cancel *asked = file_catch_interrupt();
        r = a.prompts ? generate_prompts(&a, more, asked, &e) : generate(&a, more, asked, &e);
    }
    generate_args_done(&a);
    free(pages);
    free(more);
    if (r == ERR_INTR)
        return err_exit_status(r);
    return r < 0 ? opt_fail(&e) : 0;
}
