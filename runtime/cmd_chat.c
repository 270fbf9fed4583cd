/* thermo-run chat: a conversation. A client of the library (thermo.h): each turn is a request with all messages, of which the library reads
 * what it has not read before. */
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/cli/opt.h"

#include "runtime/chat/messages.h"
#include "runtime/cmd.h"
#include "runtime/generate.h"
#include "runtime/kept.h"
#include "runtime/lines.h"
#include "runtime/summary.h"
#include "runtime/thermo.h"
#include "runtime/typed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct opt_usage usage = {
    "thermo-run chat", "",
    "Talk with a model that has a chat template. One line is a message; a line that ends with \\ goes on in the next, and \"\"\" on a "
    "line of its own begins and ends a message of several. At a terminal lines are edited (Up and Ctrl-R find earlier ones), and a text "
    "that is pasted is a part of the message, with all of its lines. /help lists commands: /save FILE, /load FILE, /reset, /system TEXT, "
    "/thinking HOW, /quit. They are taken from a terminal, or with --commands. Ctrl-C ends an answer and not the program. The conversation "
    "stays in memory, so that only what is new is read by the model. Without a terminal every line is a message as well; with --json a "
    "line is an object with \"content\" (and \"role\"), and the answer to each user message is an object on a line of stdout.",
    "  thermo-run chat --model m.thermo --plan p.json --system 'Answer in one sentence.'\n"
    "  echo '{\"content\": \"Hello\"}' | thermo-run chat --model m.thermo --plan p.json --json\n",
    NULL
};

struct args {
    struct generate_args g;
    int commands, no_history;
    const char *session;
    char *pages;                   /* the folder beside it, or NULL */
};

struct talk {
    const struct args *a;
    struct thermo *t;
    struct cancel *asked;          /* of everything */
    struct messages chat;
    struct lines lines;            /* of standard input; */
    struct typed *typed;           /* or what is typed there */
    struct kept typed_line;
    char *line;                    /* the last one: */
    size_t n_line;
    int pasted;                    /* it holds a text that was pasted */
    size_t line_bytes;             /* of a request, at most */
    int64_t seed;
    struct kept answer, thought;
    const char *system;
    char *own_system;              /* of /system */
    int thinking, terminal, plain; /* plain: the message was one line, and in no block */
    int forgotten;                 /* messages, for want of room */
    pthread_t stopper;
    /* the answer under way */
    atomic_ullong id;              /* 0: there is none */
    struct err why;                /* it had no room in memory */
    struct thermo_error failed;
    int part, ended, n_prompt, n_reused, n_tokens;
    char stop[16];
};

/* The library's options, but for what each turn says. */
static void hand_on(const struct opt *own, int argc, char **argv, const char **more)
{
    static const char *const said[] = { "system", "thinking", "predict" };
    struct generate_args theirs;
    struct opt library[GENERATE_SERVE_OPTIONS + 1] = { 0 };
    generate_args_init(&theirs);
    int n = generate_serve_options(library, &theirs), kept = 0;
    for (int i = 0; i < n; i++) {
        int has = 1;
        for (size_t k = 0; k < sizeof said / sizeof *said; k++)
            has = has && strcmp(library[i].name, said[k]) != 0;
        if (has)
            library[kept++] = library[i];
    }
    library[kept] = (struct opt){ 0 };
    opt_hand_on(own, library, argc, argv, more);
    generate_args_done(&theirs);
}

/* more: what is the library's. */
static int parse(struct args *a, int argc, char **argv, const char **more, struct err *e)
{
    enum { GUESS_MTP = 2 };
    struct generate_args *g = &a->g;
    struct opt o[SETUP_OPTIONS + SAMPLING_OPTIONS + GENERATE_PREFIX_OPTIONS + GENERATE_ELASTIC_OPTIONS + GENERATE_ADAPT_OPTIONS +
                 13] = { 0 };
    int k = setup_options(o, &g->setup), n_pos = 0;
    static const char *const guess_names[] = { "none", "lookup", "mtp", NULL };
    const struct opt own[] = {
        { .name = "system", .type = OPT_STRING, .dest = &g->system, .arg = "TEXT", .help = "A system message at the beginning." },
        { .name = "chat-template", .type = OPT_STRING, .dest = &g->template, .arg = "FILE", .file = OPT_READ,
          .help = "A template instead of the model's own." },
        { .name = "thinking", .type = OPT_CHOICE, .dest = &g->thinking, .choices = chat_thinking_names,
          .help = "What a model thinks before it answers: show, hide, or off, which tells the template that it shall not think.",
          .def = "show" },
        { .name = "predict", .short_name = 'n', .type = OPT_INT, .dest = &g->n, .arg = "N", .min = -1, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens of an answer at most; -1: until the model ends it or the context is full.", .def = "-1" },
        { .name = "seed", .short_name = 's', .type = OPT_U64, .dest = &g->seed, .arg = "N",
          .help = "Seed of the first answer; the next one's is greater by one. The same seed gives the same answers.",
          .def = "random, reported" },
        { .name = "json", .type = OPT_FLAG, .dest = &g->json, .help = "JSON lines in and out." },
        { .name = "commands", .type = OPT_FLAG, .dest = &a->commands,
          .help = "Take commands (/save, /load, ...) from what is no terminal, too. Whoever writes those lines can read and write files as "
                  "you can; without it a line that begins with / is a message there." },
        { .name = "session", .type = OPT_STRING, .dest = &a->session, .arg = "FILE", .file = OPT_WRITE, .beside = ".kv",
          .help = "Go on with the conversation of this file, where it is there, and keep it there after each answer, as /save does; "
                  "what the model has read of it is in the folder FILE.kv (--prefix-cache, where another is not given). --system is for "
                  "a new one." },
        { .name = "no-history", .type = OPT_FLAG, .dest = &a->no_history,
          .help = "Keep no file of what is typed at a terminal. Else a line is kept, for Up and Ctrl-R in later runs, in "
                  "~/.local/state/thermocline/chat-history, which nobody else may read, at most 64 KiB; not if a space begins it, and not "
                  "what was pasted." },
        { .name = "guess", .type = OPT_CHOICE, .dest = &g->guess, .choices = guess_names,
          .help = "Guess tokens and have one pass say how many are right: lookup takes what followed the same tokens before in the "
                  "conversation, mtp asks the model's own layer for multi-token prediction. Answers stay what they are without.",
          .def = "none" },
        { .name = "mtp", .type = OPT_STRING, .dest = &g->mtp, .arg = "FILE", .file = OPT_READ,
          .help = "With --guess mtp: the packed layer, from thermo-pack mtp. It stays in memory; what it takes is a part of --memory." },
    };
    memcpy(o + k, own, sizeof own);
    k += (int)(sizeof own / sizeof own[0]);
    k += generate_prefix_options(o + k, g);
    k += generate_elastic_options(o + k, g);
    k += generate_adapt_options(o + k, g);
    sampling_options(o + k, &g->sampling);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run chat --help", argv[1]);
    if (r == 0 && a->commands && g->json)
        return err_set(e, ERR_USAGE, "--commands is for lines of text; with --json there are none");
    if (r == 0 && (g->guess == GUESS_MTP) != (g->mtp != NULL))
        return err_set(e, ERR_USAGE, g->mtp ? "--mtp belongs to --guess mtp" : "--guess mtp belongs to --mtp");
    if (r == 0)
        hand_on(o, argc, argv, more);
    return r == 0 && a->session && !g->prefix_cache && !g->mtp ? kept_pages(a->session, more, &a->pages, e) : r;
}

/* ---- Ctrl-C ---- */

/* The step under way is told by a thread of its own, which the handler wakes: it may not call what ends one text. */
static volatile sig_atomic_t stop_asked;
static int stop_pipe[2] = { -1, -1 };

static void on_interrupt(int signal)
{
    int was = errno;
    (void)signal;
    stop_asked = 1;
    if (write(stop_pipe[1], "", 1) < 0) /* full: it wakes anyway */
        errno = was;
    errno = was;
}

static void *stop(void *ctx)
{
    struct talk *t = ctx;
    for (char c; read(stop_pipe[0], &c, 1) == 1 && c == '\0';) {
        uint64_t id = atomic_load(&t->id);
        if (id && stop_asked)
            thermo_cancel(t->t, id);
    }
    return NULL;
}

static int begin_stopper(struct talk *t, struct err *e)
{
    sigset_t all, was;
    pthread_attr_t small;
    if (pipe2(stop_pipe, O_CLOEXEC) < 0)
        return err_sys(e, ERR_SYS, "a pipe");
    sigfillset(&all);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64u << 10);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    int failed = pthread_create(&t->stopper, &small, stop, t);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    pthread_attr_destroy(&small);
    return failed ? err_set(e, ERR_SYS, "a thread cannot be started") : 0;
}

static void end_stopper(struct talk *t)
{
    signal(SIGINT, SIG_IGN); /* nobody writes to the pipe any more */
    if (write(stop_pipe[1], "q", 1) == 1)
        pthread_join(t->stopper, NULL);
    close(stop_pipe[0]);
    close(stop_pipe[1]);
}

static void catch_interrupt(void)
{
    struct sigaction s = { .sa_handler = on_interrupt }; /* no SA_RESTART: reading a line ends as well */
    sigemptyset(&s.sa_mask);
    sigaction(SIGINT, &s, NULL);
}

/* ---- an answer ---- */

/* What is shown of it, and what is kept. */
static void take_text(struct talk *t, const struct thermo_event *ev)
{
    int thought = ev->part == THERMO_THOUGHT;
    if (!ev->text_bytes || t->why.code)
        return;
    kept_add(thought ? &t->thought : &t->answer, ev->text, ev->text_bytes, &t->why);
    if (t->a->g.json || (thought && t->thinking == CHAT_THINKING_HIDE))
        return;
    const char *mark = ev->part == t->part ? "" : thought ? "<think>\n" : "\n</think>\n\n";
    t->part = ev->part;
    print_data(mark, strlen(mark));
    print_data(ev->text, ev->text_bytes);
    fflush(stdout);
}

static int take(void *ctx, const struct thermo_event *ev)
{
    struct talk *t = ctx;
    take_text(t, ev);
    if (ev->type != THERMO_END)
        return 0;
    t->ended = 1;
    atomic_store(&t->id, 0);
    t->failed = ev->error;
    t->n_prompt = ev->prompt_tokens;
    t->n_reused = ev->shared_tokens;
    t->n_tokens = ev->n_tokens;
    snprintf(t->stop, sizeof t->stop, "%s", ev->stop);
    return 0;
}

/* The conversation, as fields of a request. */
static char *request(const struct talk *t)
{
    struct js *j = js_object(), *all = messages_json(&t->chat);
    js_put(j, JS_VALUE("messages", all), JS_INT("n", t->a->g.n));
    js_set_str(j, "thinking", t->thinking == CHAT_THINKING_OFF ? "off" : "show"); /* what is hidden is a part of the conversation */
    char *text = all ? js_text(j, 0, 0) : NULL;
    js_free(j);
    return text;
}

static int submit(struct talk *t, struct err *e)
{
    struct thermo_error why = { 0 };
    char *text = request(t);
    struct thermo_request q = { .size = sizeof q, .fields = text, .fields_bytes = text ? strlen(text) : 0 };
    uint64_t id = 0;
    int r = !text ? err_set(e, ERR_NOMEM, "out of memory for a conversation") : 0;
    t->answer.len = t->thought.len = 0;
    t->why = (struct err){ 0 };
    t->part = THERMO_TEXT;
    t->ended = 0;
    if (r == 0 && q.fields_bytes > t->line_bytes)
        r = err_set(e, ERR_LIMIT, "the conversation has %zu bytes as JSON, and the context has room for %zu: /reset begins anew, --context "
                    "N gives more room", q.fields_bytes, t->line_bytes);
    else if (r == 0 && (r = thermo_submit(t->t, &q, take, t, &id, &why)) < 0)
        err_set(e, r, "%s", why.message);
    if (r == 0)
        atomic_store(&t->id, id);
    free(text);
    return r;
}

/* To the answer's end. */
static int step(struct talk *t, struct err *e)
{
    struct thermo_error why = { 0 };
    for (int r = 0, ends = 0; !t->ended && r != THERMO_E_INTERRUPTED;) {
        if ((stop_asked || t->why.code) && !ends) {
            thermo_cancel(t->t, atomic_load(&t->id));
            ends = 1;
        }
        r = thermo_step(t->t, 0, &why);
        if (ferror(stdout))
            return file_stdout(e);
    }
    if (t->why.code)
        *e = t->why;
    else if (t->failed.code || why.code == THERMO_E_INTERRUPTED)
        err_set(e, t->failed.code ? t->failed.code : why.code, "%s", t->failed.code ? t->failed.message : why.message);
    else
        return 0;
    return e->code;
}

static void print_json(const struct talk *t)
{
    struct err e;
    struct js *j = js_object();
    js_put(j, JS_STR("type", "answer"), JS_STR("content", t->answer.len ? t->answer.s : ""));
    if (t->thought.len && t->thinking != CHAT_THINKING_HIDE)
        js_set_str(j, "reasoning_content", t->thought.s);
    js_put(j, JS_STR("stop", t->stop), JS_INT("prompt_tokens", t->n_prompt), JS_INT("reused_tokens", t->n_reused),
           JS_INT("tokens", t->n_tokens));
    if (t->forgotten)
        js_set_int(j, "forgotten_messages", t->forgotten);
    js_print(stdout, j, 0, 0, &e);
    fflush(stdout);
    js_free(j);
}

/* The oldest turns are forgotten until a quarter of the conversation is, so that there is room for more than one message. 0: there is none
 * to forget. Said once. */
static int make_room(struct talk *t)
{
    int n, any = 0;
    size_t most = t->chat.text - t->chat.text / 4;
    for (; t->chat.text > most && (n = messages_forget(&t->chat)); any += n) {
        if (!t->forgotten)
            log_info("the context of %d tokens is full: the oldest turns are forgotten from here on; --context N gives more room",
                     t->chat.context);
        t->forgotten += n;
    }
    return any;
}

/* Is what failed a matter of room? */
static int lacks_room(int r, const struct err *e)
{
    return r == ERR_LIMIT || (r == ERR_USAGE && strstr(e->msg, " context of "));
}

/* A message of the conversation, which may take the place of the oldest ones. */
static int add(struct talk *t, const char *role, const char *content, const char *thought, struct err *e)
{
    int r;
    while ((r = messages_add(&t->chat, role, content, thought, e)) == ERR_LIMIT && make_room(t))
        ;
    return r;
}

/* The user's message, which is in the chat, is answered. What only the message is to blame for is said, and the message
 * forgotten: the talk goes on. */
static int answer(struct talk *t, struct err *e)
{
    int r;
    stop_asked = 0;
    while ((r = submit(t, e)) < 0 && lacks_room(r, e) && make_room(t))
        ;
    if (r < 0) {
        messages_drop(&t->chat, t->chat.n - 1);
        if (r != ERR_USAGE || !t->terminal)
            return r;
        log_warn("%s", e->msg);
        return 0;
    }
    r = step(t, e);
    if (t->ended && t->a->g.json)
        print_json(t);
    else if (t->ended)
        print("\n");
    fflush(stdout);
    if (t->ended && !t->a->g.json && !strcmp(t->stop, "context"))
        log_info("the answer was cut off: the context of %d tokens is full; --context N gives more room", t->chat.context);
    if (r == 0 && ferror(stdout))
        r = file_stdout(e);
    if (r == 0 && (t->answer.len || t->thought.len))
        r = add(t, "assistant", t->answer.len ? t->answer.s : "", t->thought.len ? t->thought.s : NULL, e);
    return r == 0 && t->a->session ? messages_save(&t->chat, t->a->session, 0, e) : r;
}

/* ---- commands ---- */

static int begin(struct talk *t, struct err *e)
{
    messages_drop(&t->chat, 0);
    return t->system ? messages_add(&t->chat, "system", t->system, NULL, e) : 0;
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

/* What came of a file is said. */
static int files(const struct talk *t, const char *what, int r, const char *path)
{
    if (r == 0)
        log_info("%d message%s %s '%s'", t->chat.n, t->chat.n == 1 ? "" : "s", what, path);
    return r;
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
        r = files(t, "saved in", messages_save(&t->chat, arg, line[5] == '!', e), arg);
    else if (!strcmp(line, "/load") && *arg)
        r = files(t, "loaded from", messages_load(&t->chat, arg, e), arg);
    else
        r = err_set(e, ERR_USAGE, "'%s' is no command, or lacks its argument; /help lists them", line);
    if (r < 0 && r != ERR_NOMEM && t->terminal) {
        log_warn("%s", e->msg);
        r = 0;
    }
    return r;
}

/* ---- messages ---- */

/* The next line; 0: the end; ERR_*. */
static int read_line(struct talk *t, const char *prompt, struct err *e)
{
    int r;
    if (t->typed) {
        r = typed_next(t->typed, prompt, &t->typed_line, &t->pasted, e);
        t->line = t->typed_line.s;
        t->n_line = t->typed_line.len;
    } else {
        if (t->terminal && !t->a->g.json)
            print_to(stderr, "%s", prompt);
        r = lines_next(&t->lines, e);
        t->line = t->lines.text;
        t->n_line = t->lines.len;
    }
    if (r == ERR_INTR && !cancel_asked(t->asked)) {
        stop_asked = 0;
        fputs("\n", stderr);
        log_info("/quit or Ctrl-D ends the program");
    }
    return r;
}

/* A message of one line or several in *message, empty after Ctrl-C; 0: the end. Of one that is too long all is read before that is said,
 * lest its end were taken for the next. */
static int read_message(struct talk *t, struct kept *message, struct err *e)
{
    int block = 0, more = 1, over = 0, r = 0;
    size_t most = messages_line_bytes(t->chat.context) - 1;
    message->len = 0;
    t->plain = 1;
    if ((r = kept_add(message, "", 0, e)) < 0)
        return r;
    for (int i = 0; more && ((r = read_line(t, i ? "… " : "> ", e)) > 0 || r == ERR_LIMIT); i++) {
        size_t n = r < 0 ? 0 : t->n_line;
        int marks = r > 0 && !t->a->g.json && !t->pasted;
        over |= r < 0;
        t->plain &= !t->pasted;
        if (marks && !strcmp(t->line, "\"\"\"")) {
            more = block = !block;
            t->plain = 0;
            continue;
        }
        more = block || (marks && n > 0 && t->line[n - 1] == '\\');
        t->plain &= !more;
        n -= more && !block;
        if (!over && message->len + n >= most)
            over = err_set(e, ERR_LIMIT, "a message is longer than %zu bytes, for which the context has room", most) < 0;
        if (over)
            continue;
        if ((message->len && (r = kept_add(message, "\n", 1, e)) < 0) || (r = kept_add(message, t->line, n, e)) < 0)
            return r;
    }
    if (r == ERR_INTR) {
        message->len = 0;
        return 1;
    }
    return r < 0 && r != ERR_LIMIT ? r : over ? ERR_LIMIT : message->len > 0 || !more;
}

/* An object with "content" and perhaps "role": a user's message is answered, others wait. */
static int json_message(struct talk *t, const struct kept *m, struct err *e)
{
    struct js *j = js_parse_within(m->s, m->len, messages_json_bytes(t->chat.context), "standard input", e);
    int r;
    if (!j)
        return e->code;
    const char *role = js_str(js_get(j, "role"));
    int user = !role || !strcmp(role, "user");
    while ((r = messages_add_object(&t->chat, j, "a line of standard input", "user", e)) == ERR_LIMIT && make_room(t))
        ;
    js_free(j);
    return r < 0 || !user ? r : answer(t, e);
}

/* A line that is wrong is answered by an object that says so, and the next line is read. */
static int json_error(const struct talk *t, int r, struct err *e)
{
    int theirs = r == ERR_FORMAT || r == ERR_UNSUPPORTED || r == ERR_LIMIT || r == ERR_USAGE || r == ERR_INPUT;
    if (!theirs || ferror(stdin)) /* the line cannot be read, or it is no line that is wrong */
        return r;
    struct js *j = js_object();
    js_put(j, JS_STR("type", "error"), JS_INT("line", (int64_t)t->lines.n), JS_STR("error", e->msg),
           JS_INT("status", err_exit_status(r)));
    r = js_print(stdout, j, 0, 0, e);
    fflush(stdout);
    js_free(j);
    return r < 0 ? r : ferror(stdout) ? file_stdout(e) : 0;
}

/* 1: the end was asked for. */
static int take_message(struct talk *t, struct kept *message, struct err *e)
{
    if (t->a->g.json)
        return json_message(t, message, e);
    if (message->s[0] == '/' && t->plain && (t->terminal || t->a->commands))
        return command(t, message->s, e);
    int r = add(t, "user", message->s, NULL, e);
    return r < 0 ? r : answer(t, e);
}

static int converse(struct talk *t, struct err *e)
{
    struct kept message = { 0 };
    size_t cap = messages_line_bytes(t->chat.context);
    int r = t->terminal && !t->a->g.json ? typed_open(&t->typed, cap, !t->a->no_history, t->asked, e)
                                         : lines_open(&t->lines, stdin, cap, e);
    r = r < 0 ? r : begin(t, e);
    if (r == 0 && t->a->session && access(t->a->session, F_OK) == 0)
        r = files(t, "loaded from", messages_load(&t->chat, t->a->session, e), t->a->session);
    while (r == 0 && !cancel_asked(t->asked) && (r = read_message(t, &message, e)) != 0) {
        r = r < 0 ? r : message.len ? take_message(t, &message, e) : 0;
        if (r < 0 && t->a->g.json) {
            r = json_error(t, r, e);
        } else if (r == ERR_LIMIT && t->terminal) {
            log_warn("%s", e->msg);
            r = 0;
        }
    }
    if (t->terminal && r == 0)
        print_to(stderr, "\n");
    typed_close(t->typed);
    lines_close(&t->lines);
    kept_free(&t->typed_line);
    free(message.s);
    return r < 0 ? r : cancel_asked(t->asked) ? err_set(e, ERR_INTR, "interrupted") : 0;
}

/* Limits of the model that is open. */
static int look(struct talk *t, struct err *e)
{
    char *text = thermo_describe(t->t);
    struct js *j = text ? js_parse(text, strlen(text), "the model", e) : NULL;
    int64_t context = 0, bytes = 0;
    js_int(js_get(j, "context"), &context);
    js_int(js_get(j, "line_bytes"), &bytes);
    js_int(js_get(j, "seed"), &t->seed);
    js_free(j);
    thermo_free(text);
    t->chat.context = (int)context;
    t->line_bytes = (size_t)bytes;
    return context ? 0 : err_set(e, ERR_NOMEM, "out of memory for a conversation");
}

/* For a program that keeps the plan's figures. */
static void note_speed(struct thermo *t)
{
    char *text = getenv(SUMMARY_DIFFERS) ? thermo_describe(t) : NULL;
    if (text)
        summary_note(text);
    thermo_free(text);
}

static int talk(const struct args *a, const char *const *more, struct cancel *asked, struct err *e)
{
    struct talk t = { .a = a, .asked = asked, .system = a->g.system, .thinking = a->g.thinking, .terminal = isatty(STDIN_FILENO) };
    struct thermo_error why = { 0 };
    const struct thermo_options o = { .size = sizeof o, .more = more, .cancel = (int *)(void *)asked, .conversation = 1 };
    int r = thermo_open(&o, &t.t, &why);
    if (r < 0)
        err_set(e, r, "%s", why.message);
    if (r == 0 && (r = look(&t, e)) == 0 && (r = begin_stopper(&t, e)) == 0) {
        catch_interrupt();
        r = converse(&t, e);
        end_stopper(&t);
        note_speed(t.t);
    }
    if (r == 0)
        log_info("seed:   %llu", a->g.seed != UINT64_MAX ? (unsigned long long)a->g.seed : (unsigned long long)t.seed);
    thermo_close(t.t);
    messages_free(&t.chat);
    free(t.answer.s);
    free(t.thought.s);
    free(t.own_system);
    return r;
}

int cmd_chat(int argc, char **argv)
{
    struct args a = { 0 };
    struct err e = { 0 };
    const char **more = calloc((size_t)argc + 3, sizeof *more);
    generate_args_init(&a.g);
    a.g.n = -1;
    int r = more ? parse(&a, argc, argv, more, &e) : err_set(&e, ERR_NOMEM, "out of memory for options");
    if (r == 0)
        r = talk(&a, more, file_catch_interrupt(), &e);
    free(a.pages);
    free(more);
    if (r == ERR_INTR)
        return err_exit_status(r);
    return r < 0 ? opt_fail(&e) : 0;
}
