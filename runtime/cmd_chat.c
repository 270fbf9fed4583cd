/* thermo-run chat: a conversation. What the model has read stays in the KV cache: of each turn the tokens are fed from the first on
 * that differs from what is there. */
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/plan/room.h"

#include "runtime/chat/chat.h"
#include "runtime/cmd.h"
#include "runtime/lines.h"
#include "runtime/mtp.h"
#include "runtime/output.h"
#include "runtime/report.h"
#include "runtime/sampling.h"
#include "runtime/session/guess.h"
#include "runtime/setup.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const struct opt_usage usage = {
    "thermo-run chat", "",
    "Talk with a model that has a chat template. One line is a message; a line that ends with \\ goes on in the next, and \"\"\" on a "
    "line of its own begins and ends a message of several. /help lists commands: /save FILE, /load FILE, /reset, /system TEXT, "
    "/thinking HOW, /quit. They are taken from a terminal, or with --commands. Ctrl-C ends an answer and not the program. The conversation "
    "stays in memory, so that only what is new is read by the model. Without a terminal every line is a message as well; with --json a "
    "line is an object with \"content\" (and \"role\"), and the answer to each user message is an object on a line of stdout.",
    "  thermo-run chat --model m.thermo --plan p.json --system 'Answer in one sentence.'\n"
    "  echo '{\"content\": \"Hello\"}' | thermo-run chat --model m.thermo --plan p.json --json\n",
    NULL
};

enum { GUESS_NONE, GUESS_LOOKUP, GUESS_MTP }; /* --guess */

struct args {
    struct setup_args setup;
    const char *system, *template, *mtp;
    int n, json, commands, thinking, guess;
    uint64_t seed;
    struct sample_params sampling;
};

struct text {
    char *s;
    size_t n, cap;
};

struct talk {
    const struct args *a;
    struct setup *s;
    struct chat *chat;
    struct session session;
    struct guess guess;
    struct mtp mtp;                /* with --guess mtp */
    struct output output;
    struct lines lines;            /* of standard input */
    struct err why;                /* of kept, */
    int kept;                      /* ERR_* where an answer had no room in memory */
    struct text answer, thought;
    const char *system, *stop;
    char *own_system;              /* of /system */
    int thinking, n_prompt, n_reused, n_tokens, terminal, plain; /* plain: the message was one line, and in no block */
};

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    struct opt o[SETUP_OPTIONS + SAMPLING_OPTIONS + 11] = { 0 };
    int k = setup_options(o, &a->setup), n_pos = 0;
    static const char *const guess_names[] = { "none", "lookup", "mtp", NULL };
    const struct opt own[] = {
        { .name = "system", .type = OPT_STRING, .dest = &a->system, .arg = "TEXT", .help = "A system message at the beginning." },
        { .name = "chat-template", .type = OPT_STRING, .dest = &a->template, .arg = "FILE", .file = OPT_READ,
          .help = "A template instead of the model's own." },
        { .name = "thinking", .type = OPT_CHOICE, .dest = &a->thinking, .choices = chat_thinking_names,
          .help = "What a model thinks before it answers: show, hide, or off, which tells the template that it shall not think.",
          .def = "show" },
        { .name = "predict", .short_name = 'n', .type = OPT_INT, .dest = &a->n, .arg = "N", .min = -1, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens of an answer at most; -1: until the model ends it or the context is full.", .def = "-1" },
        { .name = "seed", .short_name = 's', .type = OPT_U64, .dest = &a->seed, .arg = "N",
          .help = "Seed of the draws; the same seed gives the same answers.", .def = "random, reported" },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json, .help = "JSON lines in and out." },
        { .name = "commands", .type = OPT_FLAG, .dest = &a->commands,
          .help = "Take commands (/save, /load, ...) from what is no terminal, too. Whoever writes those lines can read and write files as "
                  "you can; without it a line that begins with / is a message there." },
        { .name = "guess", .type = OPT_CHOICE, .dest = &a->guess, .choices = guess_names,
          .help = "Guess tokens and have one pass say how many are right: lookup takes what followed the same tokens before in the "
                  "conversation, mtp asks the model's own layer for multi-token prediction. Answers stay what they are without.",
          .def = "none" },
        { .name = "mtp", .type = OPT_STRING, .dest = &a->mtp, .arg = "FILE", .file = OPT_READ,
          .help = "With --guess mtp: the packed layer, from thermo-pack mtp. It stays in memory; what it takes is a part of --memory." },
    };
    memcpy(o + k, own, sizeof own);
    sampling_options(o + k + sizeof own / sizeof own[0], &a->sampling);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run chat --help", argv[1]);
    if (r == 0 && a->commands && a->json)
        return err_set(e, ERR_USAGE, "--commands is for lines of text; with --json there are none");
    if (r == 0 && (a->guess == GUESS_MTP) != (a->mtp != NULL))
        return err_set(e, ERR_USAGE, a->mtp ? "--mtp belongs to --guess mtp" : "--guess mtp belongs to --mtp");
    return r;
}

static int append(struct text *t, const char *s, size_t n, struct err *e)
{
    if (t->n + n + 1 > t->cap) {
        size_t cap = 2 * (t->n + n) + 256;
        char *grown = realloc(t->s, cap);
        if (!grown)
            return err_set(e, ERR_NOMEM, "out of memory for a text");
        t->s = grown;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
    return 0;
}

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t stop_asked;

static void on_interrupt(int signal)
{
    (void)signal;
    stop_asked = 1;
}

static void catch_interrupt(void)
{
    struct sigaction s = { .sa_handler = on_interrupt }; /* no SA_RESTART: reading a line ends as well */
    sigemptyset(&s.sa_mask);
    sigaction(SIGINT, &s, NULL);
}

/* ---- an answer ---- */

static void to_stdout(void *ctx, const char *text, size_t len)
{
    const struct talk *t = ctx;
    if (t->a->json)
        return;
    print_data(text, len);
    fflush(stdout);
}

static int feed(struct talk *t, const int32_t *ids, int n, struct err *e)
{
    const int32_t *there = session_ids(&t->session);
    int same = 0, most = session_most(&t->session), done;
    while (same < n - 1 && same < session_n_pos(&t->session) && there[same] == ids[same])
        same++;
    same = session_can_keep(&t->session, same);
    session_rewind(&t->session, same);
    t->n_prompt = n;
    t->n_reused = same;
    for (int at = same; at < n && !stop_asked; at += most) {
        int r = session_feed(&t->session, ids + at, n - at < most ? n - at : most, SESSION_EXACT, &done, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Gives 1 where there is no memory for it. */
static int keep(void *ctx, enum chat_part part, const char *text, size_t len)
{
    struct talk *t = ctx;
    t->kept = append(part == CHAT_ANSWER ? &t->answer : &t->thought, text, len, &t->why);
    return t->kept < 0;
}

static int put(struct talk *t, int32_t id, struct err *e)
{
    if (output_token(&t->output, id) && t->kept < 0)
        *e = t->why;
    return t->kept;
}

static int decode(struct talk *t, struct err *e)
{
    int context = t->s->config.choice.context, r;
    int32_t id;
    t->stop = "length";
    guess_begin(&t->guess);
    for (t->n_tokens = 0; t->a->n < 0 || t->n_tokens < t->a->n; t->n_tokens++) {
        if (stop_asked) {
            t->stop = "interrupted";
            return 0;
        }
        if (t->n_prompt + t->n_tokens == context) {
            t->stop = "context";
            return 0;
        }
        if ((id = guess_next(&t->guess, t->a->n < 0 ? context : t->a->n - t->n_tokens, e)) < 0)
            return id;
        if (tokenizer_is_eog(t->s->tokenizer, id)) {
            t->stop = "eos";
            return 0;
        }
        if ((r = put(t, id, e)) < 0)
            return r;
        if (ferror(stdout))
            return file_stdout(e);
    }
    return 0;
}

static void print_json(const struct talk *t)
{
    struct err e;
    struct js *j = js_object();
    js_set_str(j, "type", "answer");
    js_set_str(j, "content", t->answer.s ? t->answer.s : "");
    if (t->thought.n && t->thinking != CHAT_THINKING_HIDE)
        js_set_str(j, "reasoning_content", t->thought.s);
    js_set_str(j, "stop", t->stop);
    js_set_int(j, "prompt_tokens", t->n_prompt);
    js_set_int(j, "reused_tokens", t->n_reused);
    js_set_int(j, "tokens", t->n_tokens);
    js_print(stdout, j, 0, 0, &e);
    fflush(stdout);
    js_free(j);
}

static int say(struct talk *t, struct err *e)
{
    t->answer.n = t->thought.n = 0;
    t->kept = 0;
    int r = decode(t, e);
    output_end(&t->output);
    if (r == 0 && t->kept < 0) {
        *e = t->why;
        r = t->kept;
    }
    if (t->a->json)
        print_json(t);
    else
        print("\n");
    fflush(stdout);
    if (r == 0 && ferror(stdout))
        r = file_stdout(e);
    if (r == 0 && (t->answer.n || t->thought.n))
        r = chat_add(t->chat, "assistant", t->answer.n ? t->answer.s : "", t->thought.n ? t->thought.s : NULL, e);
    return r;
}

/* The user's message, which is in the chat, is answered. What only the message is to blame for is said, and the message
 * forgotten: the talk goes on. */
static int answer(struct talk *t, struct err *e)
{
    int32_t *ids = NULL;
    int n = 0, thinks, context = t->s->config.choice.context, r;
    stop_asked = 0;
    r = chat_tokens(t->chat, t->thinking == CHAT_THINKING_OFF, &ids, &n, &thinks, e);
    if (r == 0 && n >= context)
        r = err_set(e, ERR_USAGE, "the conversation has %d tokens, and a context of %d holds %d: /reset begins anew, --context N gives "
                    "more room", n, context, context - 1);
    if (r == ERR_USAGE) {
        log_warn("%s", e->msg);
        chat_drop(t->chat, chat_count(t->chat) - 1);
        free(ids);
        return t->terminal ? 0 : r;
    }
    if (r == 0)
        r = feed(t, ids, n, e);
    session_prompted(&t->session);
    free(ids);
    if (r < 0 || stop_asked)
        return r;
    output_begin(&t->output, t->s->tokenizer, 1, thinks, t->thinking == CHAT_THINKING_HIDE);
    return say(t, e);
}

/* ---- commands ---- */

static int begin(struct talk *t, struct err *e)
{
    chat_drop(t->chat, 0);
    return t->system ? chat_add(t->chat, "system", t->system, NULL, e) : 0;
}

static int set_system(struct talk *t, const char *text, struct err *e)
{
    char *copy = strdup(text);
    if (!copy)
        return err_set(e, ERR_NOMEM, "out of memory for a text");
    free(t->own_system);
    t->own_system = copy;
    t->system = *copy ? copy : NULL;
    return begin(t, e);
}

static void set_thinking(struct talk *t, const char *how)
{
    for (int i = 0; chat_thinking_names[i]; i++)
        if (!strcmp(how, chat_thinking_names[i])) {
            t->thinking = i;
            return;
        }
    log_warn("/thinking is show, hide or off, not '%s'", how);
}

/* 1: the end. What a file is to blame for is said where somebody is there to do better. */
static int command(struct talk *t, char *line, struct err *e)
{
    char *arg = line + strcspn(line, " ");
    int r = 0;
    if (*arg)
        *arg++ = '\0';
    arg += strspn(arg, " ");
    if (!strcmp(line, "/quit") || !strcmp(line, "/exit"))
        return 1;
    if (!strcmp(line, "/help"))
        log_info("%s", "/save FILE, /load FILE: the conversation as JSON; /save replaces a saved conversation and no other file, /save! "
                 "any file that is not in use; /reset: forget it; /system TEXT: begin anew with that system message; /thinking "
                 "show|hide|off; /quit. A line that ends with \\ goes on in the next; \"\"\" on a line of its own begins and ends a "
                 "message of several. Ctrl-C ends an answer.");
    else if (!strcmp(line, "/reset"))
        r = begin(t, e);
    else if (!strcmp(line, "/system"))
        r = set_system(t, arg, e);
    else if (!strcmp(line, "/thinking"))
        set_thinking(t, arg);
    else if ((!strcmp(line, "/save") || !strcmp(line, "/save!")) && *arg)
        r = chat_save(t->chat, arg, line[5] == '!', e);
    else if (!strcmp(line, "/load") && *arg)
        r = chat_load(t->chat, arg, e);
    else
        r = err_set(e, ERR_USAGE, "'%s' is no command, or lacks its argument; /help lists them", line);
    if (r < 0 && r != ERR_NOMEM && t->terminal) {
        log_warn("%s", e->msg);
        r = 0;
    }
    return r;
}

/* ---- messages ---- */

/* The next line; 0: the end; ERR_*. After Ctrl-C the line is empty. */
static int read_line(struct talk *t, const char *prompt, struct err *e)
{
    if (t->terminal && !t->a->json)
        print_to(stderr, "%s", prompt);
    int r = lines_next(&t->lines, e);
    if (r != ERR_INTR)
        return r;
    stop_asked = 0;
    fputs("\n", stderr);
    log_info("/quit or Ctrl-D ends the program");
    t->lines.text[0] = '\0';
    return 1;
}

/* A message of one line or several in *message; 0: the end. Of one that is too long all is read before that is said, lest its end were
 * taken for the next. */
static int read_message(struct talk *t, struct text *message, struct err *e)
{
    int block = 0, more = 1, over = 0, r = 0;
    const char *line = t->lines.text;
    message->n = 0;
    t->plain = 1;
    if ((r = append(message, "", 0, e)) < 0)
        return r;
    for (int i = 0; more && ((r = read_line(t, i ? "… " : "> ", e)) > 0 || r == ERR_LIMIT); i++) {
        size_t n = r < 0 ? 0 : t->lines.len;
        over |= r < 0;
        if (!t->a->json && n && !strcmp(line, "\"\"\"")) {
            more = block = !block;
            t->plain = 0;
            continue;
        }
        more = block || (!t->a->json && n > 0 && line[n - 1] == '\\');
        t->plain &= !more;
        n -= more && !block;
        if (!over && message->n + n + 1 >= t->lines.cap)
            over = err_set(e, ERR_LIMIT, "a message is longer than %zu bytes, for which the context has room", t->lines.cap - 1) < 0;
        if (over)
            continue;
        if ((message->n && (r = append(message, "\n", 1, e)) < 0) || (r = append(message, line, n, e)) < 0)
            return r;
    }
    return r < 0 && r != ERR_LIMIT ? r : over ? ERR_LIMIT : message->n > 0 || !more;
}

/* An object with "content" and perhaps "role": a user's message is answered, others wait. */
static int json_message(struct talk *t, const struct text *m, struct err *e)
{
    struct js *j = js_parse_within(m->s, m->n, chat_json_bytes(t->s->config.choice.context), "standard input", e);
    if (!j)
        return e->code;
    const char *role = js_str(js_get(j, "role"));
    int user = !role || !strcmp(role, "user"), r = chat_add_object(t->chat, j, "a line of standard input", "user", e);
    js_free(j);
    return r < 0 || !user ? r : answer(t, e);
}

static int converse(struct talk *t, struct err *e)
{
    struct text message = { 0 };
    int r = lines_open(&t->lines, stdin, chat_line_bytes(t->s->config.choice.context), e);
    r = r < 0 ? r : begin(t, e);
    while (r == 0 && !cancel_asked(t->a->setup.cancel) && ((r = read_message(t, &message, e)) > 0 || r == ERR_LIMIT)) {
        int over = r < 0;
        r = over ? r : 0;
        if (message.n == 0 && !over)
            continue;
        if (over)
            ;
        else if (t->a->json)
            r = json_message(t, &message, e);
        else if (message.s[0] == '/' && t->plain && (t->terminal || t->a->commands))
            r = command(t, message.s, e);
        else if ((r = chat_add(t->chat, "user", message.s, NULL, e)) == 0)
            r = answer(t, e);
        if (r == ERR_LIMIT && t->terminal) {
            log_warn("%s", e->msg);
            r = 0;
        }
    }
    if (t->terminal && r == 0)
        print_to(stderr, "\n");
    lines_close(&t->lines);
    free(message.s);
    return r < 0 ? r : cancel_asked(t->a->setup.cancel) ? err_set(e, ERR_INTR, "interrupted") : 0;
}

static int run_engine(struct talk *t, struct err *e)
{
    struct engine *g;
    int mtp = t->a->guess == GUESS_MTP, r = setup_engine(t->s, &g, e);
    if (r < 0)
        return r;
    const struct session_config q = { .sampling = t->a->sampling, .watcher = mtp ? &mtp_watcher : NULL, .watcher_ctx = &t->mtp };
    catch_interrupt();
    const struct guess_config guesses = { .most = !t->a->guess ? 0 : mtp ? GUESS_USUAL : GUESS_MOST, .mode = SESSION_PREDICTED,
                                          .source = mtp ? mtp_guess : guess_lookup, .ready = mtp ? mtp_ready : NULL,
                                          .ctx = &t->mtp, .costly = mtp, .plan = setup_guesses(t->s),
                                          .guess_ns = mtp ? setup_guess_ns(t->s, PLAN_SOURCE_MTP) : 0 };
    guess_init(&t->guess, &guesses, &t->session);
    if ((!mtp || (r = mtp_start(&t->mtp, t->s, g, e)) == 0) && (r = session_init(&t->session, g, &q, e)) == 0)
        r = converse(t, e);
    session_done(&t->session);
    mtp_close(&t->mtp);
    report_accel_lost(g);
    engine_close(g);
    return r;
}

/* What the conversation takes, and who guesses. */
static int count_beside(struct args *a, struct mtp *m, struct err *e)
{
    a->setup.beside = ROOM_CHAT;
    a->setup.beside_per_token = ROOM_CHAT_PER_TOKEN;
    a->setup.beside_what = "the conversation";
    a->setup.purpose = PLAN_FOR_CHAT;
    if (a->guess != GUESS_MTP)
        return 0;
    a->setup.beside_what = "the layer for multi-token prediction, and the conversation,";
    a->setup.beside_of = mtp_beside;
    a->setup.beside_ctx = m;
    return mtp_open(m, a->mtp, &a->setup, e);
}

static int talk(struct args *a, struct err *e)
{
    struct setup s = { 0 };
    struct talk t = { .a = a, .s = &s, .system = a->system, .thinking = a->thinking, .terminal = isatty(STDIN_FILENO) };
    int r;
    if (a->seed == UINT64_MAX && getrandom(&a->seed, 4, 0) == 4)
        a->seed &= UINT32_MAX; /* short enough to type again */
    a->sampling.seed = a->seed;
    r = output_init(&t.output, NULL, 0, to_stdout, &t, e);
    t.output.part = keep;
    t.output.part_ctx = &t;
    if (r == 0 && (r = count_beside(a, &t.mtp, e)) == 0 &&
        (r = setup_open(&a->setup, &s, e)) == 0 && (!a->guess || (r = setup_can_guess(&s, e)) == 0) &&
        (a->guess != GUESS_MTP || (r = mtp_check(&t.mtp, &s, e)) == 0) &&
        (r = chat_new(s.pack->meta, s.tokenizer, a->template, s.config.choice.context, &t.chat, e)) == 0)
        r = run_engine(&t, e);
    if (r == 0)
        log_info("seed:   %llu", (unsigned long long)a->seed);
    chat_free(t.chat);
    free(t.answer.s);
    free(t.thought.s);
    free(t.own_system);
    output_done(&t.output);
    mtp_close(&t.mtp);
    setup_close(&s);
    return r;
}

int cmd_chat(int argc, char **argv)
{
    struct args a = { .n = -1, .seed = UINT64_MAX };
    struct err e = { 0 };
    setup_args_init(&a.setup);
    sampling_init(&a.sampling);
    int r = parse(&a, argc, argv, &e);
    if (r == 0) {
        a.setup.cancel = file_catch_interrupt();
        r = talk(&a, &e);
    }
    if (r == ERR_INTR)
        return err_exit_status(r);
    return r < 0 ? opt_fail(&e) : 0;
}
