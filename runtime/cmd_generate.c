/* thermo-run generate: prompt in, text out as it comes. */
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"

#include "runtime/chat/chat.h"
#include "runtime/cmd.h"
#include "runtime/draft.h"
#include "runtime/generate.h"
#include "runtime/mtp.h"
#include "runtime/prompt.h"
#include "runtime/report.h"
#include "runtime/session/guess.h"
#include "runtime/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

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

struct run {
    const struct generate_args *a;
    struct setup *s;
    struct engine *g;
    struct session session;
    struct guess guess;
    struct draft draft;     /* with --guess draft */
    struct mtp mtp;         /* with --guess mtp */
    struct output output;
    int thinks;             /* with --chat: the answer begins within a thought */
    struct report report;
    int32_t *ids;           /* of the prompt */
    int n_ids;
    int32_t eog[GENERATE_EOG];
    int n_eog;
    char text[8192];        /* what the current token let out; --json */
    size_t text_len;
};

static int parse(struct generate_args *a, int argc, char **argv, struct err *e)
{
    struct opt o[SETUP_OPTIONS + SAMPLING_OPTIONS + 34] = { 0 };
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
        { .name = "sequences", .type = OPT_INT, .dest = &a->setup.batch, .arg = "N", .min = 1, .max = GENERATE_MAX_BATCH,
          .help = "With --prompts: how many are made at once; no more than the plan is for.", .def = "the plan's" },
        { .name = "kv-positions", .type = OPT_INT, .dest = &a->setup.kv_positions, .arg = "N", .min = 1, .max = 1 << 30,
          .help = "With --prompts and --best-of: positions of the KV cache for all sequences together.",
          .def = "the context for each" },
    };
    memcpy(o + k, own, sizeof own);
    k += (int)(sizeof own / sizeof own[0]);
    k += generate_guess_options(o + k, a);
    sampling_options(o + k, &a->sampling);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run generate --help", argv[1]);
    if (r == 0 && !a->chat && (a->system || a->template || a->thinking))
        return err_set(e, ERR_USAGE, "%s belongs to --chat",
                       a->system ? "--system" : a->template ? "--chat-template" : "--thinking");
    return r < 0 || r > 0 ? r : generate_check(a, e);
}

static void to_stdout(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    print_data(text, len);
    fflush(stdout);
}

static void to_record(void *ctx, const char *text, size_t len)
{
    struct run *r = ctx;
    size_t room = sizeof r->text - r->text_len;
    memcpy(r->text + r->text_len, text, len < room ? len : room);
    r->text_len += len < room ? len : room;
}

/* ---- before loading ---- */

static int chat_prompt(struct run *r, const char *text, int32_t **ids, int *n, struct err *e)
{
    const struct generate_args *a = r->a;
    struct chat *c;
    int thinks, k = chat_new(r->s->pack->meta, r->s->tokenizer, a->template, r->s->config.choice.context, &c, e);
    if (k < 0)
        return k;
    if ((!a->system || (k = chat_add(c, "system", a->system, NULL, e)) == 0) && (k = chat_add(c, "user", text, NULL, e)) == 0)
        k = chat_tokens(c, a->thinking == CHAT_THINKING_OFF, ids, n, &thinks, e);
    if (k == 0)
        r->thinks = thinks;
    chat_free(c);
    return k;
}

/* A position is left for what comes after the prompt, unless nothing shall. */
static int encode(struct run *r, const char *text, size_t len, struct err *e)
{
    int32_t *ids = NULL;
    int n = 0;
    int c = r->a->chat ? chat_prompt(r, text, &ids, &n, e) : tokenizer_encode(r->s->tokenizer, text, len, 1, 0, &ids, &n, e);
    if (c < 0 || (c = prompt_check(n, r->s->config.choice.context, r->a->n != 0, e)) < 0) {
        free(ids);
        return c;
    }
    r->ids = ids;
    r->n_ids = n;
    output_begin(&r->output, r->s->tokenizer, r->a->chat, r->thinks, r->a->thinking == CHAT_THINKING_HIDE);
    return 0;
}

static int is_eog(const struct run *r, int32_t id)
{
    for (int i = 0; i < r->n_eog; i++)
        if (r->eog[i] == id)
            return 1;
    return 0;
}

/* ---- the token loop; nothing here allocates ---- */

static int decode(struct run *r, struct err *e)
{
    struct report *p = &r->report;
    int context = r->s->config.choice.context, n = r->a->n < 0 ? context : r->a->n;
    int32_t id = 0;
    p->stop = "length";
    while (p->n_generated < n) {
        struct engine_stats before = engine_stats(r->g), after;
        int64_t start = progress_now_ns();
        if (cancel_asked(r->a->setup.cancel))
            return err_set(e, ERR_INTR, "interrupted");
        if ((id = guess_next(&r->guess, n - p->n_generated, e)) < 0)
            return id;
        if (p->n_generated == 0)
            p->ttft_ns = p->prompt_ns + (uint64_t)(progress_now_ns() - start);
        else
            p->n_decoded++;
        if (!r->a->ignore_eos && is_eog(r, id)) {
            p->stop = "eos";
            return 0;
        }
        p->n_generated++;
        r->text_len = 0;
        int stopped = output_token(&r->output, id);
        after = engine_stats(r->g);
        if (r->a->json)
            report_token(stdout, p->n_generated, id, r->text, r->text_len, (uint64_t)(progress_now_ns() - start),
                         &before, &after);
        if (ferror(stdout))
            return file_stdout(e); /* nobody reads the rest */
        if (stopped) {
            p->stop = "stop";
            return 0;
        }
        if (guess_full(&r->guess) && p->n_generated < n) {
            p->stop = "context";
            return 0;
        }
    }
    return 0;
}

static int prompt(struct run *r, const int32_t *ids, int n, struct err *e)
{
    int done, c;
    int64_t start = progress_now_ns();
    c = session_feed(&r->session, ids, n, SESSION_EXACT, &done, e);
    r->report.prompt_ns = (uint64_t)(progress_now_ns() - start);
    r->report.n_prompt = done;
    r->report.prompt = engine_stats(r->g);
    engine_stats_reset(r->g);
    return c;
}

static int run_loaded(struct run *r, struct err *e)
{
    int c = prompt(r, r->ids, r->n_ids, e);
    free(r->ids);
    r->ids = NULL;
    if (c == 0) {
        int64_t start = progress_now_ns();
        session_prompted(&r->session);
        int drafts = r->a->guess == GENERATE_GUESS_DRAFT, mtp = r->a->guess == GENERATE_GUESS_MTP;
        const struct guess_config q = { .most = !r->a->guess ? 0 : r->a->guess_most ? r->a->guess_most : GUESS_USUAL,
                                        .source = drafts ? draft_guess : mtp ? mtp_guess : guess_lookup, .ready = mtp ? mtp_ready : NULL,
                                        .ctx = mtp ? (void *)&r->mtp : &r->draft, .costly = drafts || mtp, .never = r->eog,
                                        .n_never = r->a->ignore_eos ? r->n_eog : 0, .mode = SESSION_PREDICTED,
                                        .plan = setup_guesses(r->s), .guess_ns = generate_guess_ns(r->a, r->s) };
        r->draft.never = r->mtp.never = q.never;
        r->draft.n_never = r->mtp.n_never = q.n_never;
        guess_init(&r->guess, &q, &r->session);
        c = decode(r, e);
        r->report.guessing = r->a->guess;
        r->report.guess_most = q.most;
        r->report.guesses = r->guess.stats;
        r->report.guess_ns = q.guess_ns;
        r->report.decode_ns = (uint64_t)(progress_now_ns() - start);
        r->report.decode = engine_stats(r->g);
    }
    if (c < 0 && c != ERR_INTR)
        return c;
    if (c == ERR_INTR)
        r->report.stop = "interrupted";
    r->text_len = 0;
    output_end(&r->output);
    if (r->a->json) {
        if (r->text_len) {
            fputs("{\"type\":\"text\",\"text\":", stdout);
            report_string(stdout, r->text, r->text_len);
            fputs("}\n", stdout);
        }
        report_summary_json(stdout, r->s, r->g, &r->report);
    } else {
        print("\n");
        fflush(stdout);
        report_summary_text(r->s, r->g, &r->report);
    }
    return c;
}

static int run_engine(struct run *r, struct err *e)
{
    int64_t start = progress_now_ns();
    int c = setup_engine(r->s, &r->g, e);
    if (c < 0)
        return c;
    if (r->a->guess == GENERATE_GUESS_DRAFT)
        c = draft_start(&r->draft, e);
    else if (r->a->guess == GENERATE_GUESS_MTP)
        c = mtp_start(&r->mtp, r->s, r->g, e);
    r->report.load_ns = (uint64_t)(progress_now_ns() - start);
    const struct session_config q = { .cancel = r->a->setup.cancel, .sampling = r->a->sampling,
                                      .watcher = r->a->guess == GENERATE_GUESS_MTP ? &mtp_watcher : NULL, .watcher_ctx = &r->mtp };
    if (c == 0 && (c = session_init(&r->session, r->g, &q, e)) == 0)
        c = run_loaded(r, e);
    session_done(&r->session);
    mtp_close(&r->mtp);
    report_accel_lost(r->g);
    engine_close(r->g);
    return c;
}

static int open_mtp(struct generate_args *a, struct mtp *m, struct err *e)
{
    a->setup.beside_what = "the layer for multi-token prediction";
    a->setup.beside_of = mtp_beside;
    a->setup.beside_ctx = m;
    return mtp_open(m, a->mtp, &a->setup, e);
}

/* The memory of who guesses is kept out of the ceiling for the model's own. */
static int open_guesser(struct generate_args *a, struct run *run, struct err *e)
{
    struct draft *d = &run->draft;
    if (a->guess == GENERATE_GUESS_MTP)
        return open_mtp(a, &run->mtp, e);
    if (a->guess != GENERATE_GUESS_DRAFT)
        return 0;
    int r = draft_open(d, &a->setup, a->draft, a->draft_plan, a->draft_memory, 1, e);
    a->setup.beside_what = "the draft model";
    a->setup.beside = r < 0 ? 0 : draft_bytes(d);
    a->setup.held += r < 0 ? 0 : d->setup.budget.item[BUDGET_META];
    return r;
}

static int generate(struct generate_args *a, struct err *e)
{
    struct setup s = { 0 };
    struct run r = { .a = a, .s = &s };
    char *text = NULL;
    size_t len = 0;
    int c;
    if ((c = output_init(&r.output, a->stops.items, a->stops.n, a->json ? to_record : to_stdout, &r, e)) < 0 ||
        (c = open_guesser(a, &r, e)) < 0 || (c = setup_open(&a->setup, &s, e)) < 0 ||
        (a->guess && (c = setup_can_guess(&s, e)) < 0) ||
        (a->guess == GENERATE_GUESS_DRAFT && (c = draft_check(&r.draft, &s, e)) < 0) ||
        (a->guess == GENERATE_GUESS_MTP && (c = mtp_check(&r.mtp, &s, e)) < 0) ||
        (c = prompt_text(a->prompt, a->prompt_file, setup_room(&s), &text, &len, e)) < 0 || (c = encode(&r, text, len, e)) < 0)
        goto out;
    if (a->seed == UINT64_MAX && getrandom(&a->seed, 4, 0) == 4)
        a->seed &= UINT32_MAX; /* short enough to type again */
    a->sampling.seed = r.report.seed = a->seed;
    r.n_eog = generate_eog(&s, r.eog);
    if (!a->json && !a->no_echo && !a->chat)
        to_stdout(NULL, text, len);
    free(text);
    text = NULL;
    c = run_engine(&r, e);
    if (c == 0 || c == ERR_INTR)
        log_info("seed:   %llu", (unsigned long long)a->seed);
out:
    free(text);
    free(r.ids);
    output_done(&r.output);
    draft_close(&r.draft);
    mtp_close(&r.mtp);
    setup_close(&s);
    return c;
}

int cmd_generate(int argc, char **argv)
{
    struct generate_args a;
    struct err e = { 0 };
    generate_args_init(&a);
    int r = parse(&a, argc, argv, &e);
    if (r == 0) {
        a.setup.cancel = file_catch_interrupt();
        r = a.prompts ? generate_prompts(&a, &e) : a.best_of ? generate_best(&a, &e) : generate(&a, &e);
    }
    generate_args_done(&a);
    if (r == ERR_INTR)
        return err_exit_status(r);
    return r < 0 ? opt_fail(&e) : 0;
}
