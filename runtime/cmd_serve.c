/* thermo-run serve --stdio: a model that stays loaded, and requests as lines of JSON: the first client of the library. One thread reads,
 * makes a step, writes; a line is looked at between two steps, so a cancellation takes no longer than one. Where all places are taken,
 * lines with requests wait in the buffer, and cancellations behind them are taken out of it. */
#include "common/base/fields.h"
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/base/size.h"

#include "runtime/cmd.h"
#include "runtime/generate.h"
#include "runtime/report.h"
#include "runtime/thermo.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ID_BYTES 64
#define IDLE_MS 200   /* how often a signal is looked for while there is nothing to do */
#define BEHIND  4096  /* bytes of lines that are looked at behind the longest one that waits */

static const struct opt_usage usage = {
    "thermo-run serve", "--stdio",
    "Answer requests without loading the model again. Each line of standard input is a JSON object: a request with \"id\" and \"prompt\" "
    "(or \"tokens\"), and what differs from the options here: \"n\", \"temp\", \"top_k\", \"top_p\", \"min_p\", \"repeat_penalty\", "
    "\"repeat_last_n\", \"presence_penalty\", \"frequency_penalty\", \"logit_bias\", \"logprobs\", \"seed\", \"stop\", "
    "\"ignore_eos\"; or {\"cancel\": ID}, or {\"memory\": SIZE} (--elastic). With --chat the prompt is a user's message, or "
    "\"messages\" are a conversation. Each line of standard output is an object with \"type\": ready, token, done, error, memory, summary. "
    "Requests are made together, as many at once as there are sequences, and each gives what it gives alone. At the end of the input "
    "those that are open are finished. docs/batches.md has the fields.",
    "  echo '{\"id\": 1, \"prompt\": \"Once upon a time\", \"n\": 20}' | thermo-run serve --stdio --model m.thermo --plan p.json\n",
    NULL
};


/* A request that is open, by the id that its sender gave it. */
struct asked {
    struct serve *v;
    char id[ID_BYTES + 1];
    uint64_t number;            /* the library's; 0: none is open */
    int choices, left;          /* continuations that it asks for, and those that have not ended */
};

struct serve {
    struct thermo *t;
    struct asked *asked;        /* [n] */
    int n, n_open;
    char *buf;                  /* [cap]: what has been read and not used, */
    size_t cap, len, waits;     /* of which the first so many bytes are lines that wait for a place */
    size_t line_bytes;          /* a line's, at most, */
    size_t json_bytes;          /* and of memory that is made of it */
    int at_end, skipping;       /* of the input; of a line that is too long */
    uint64_t n_lines;
};

/* The command line without --stdio: the library's. */
static int parse(int argc, char **argv, struct err *e)
{
    struct generate_args a;
    struct opt o[GENERATE_SERVE_OPTIONS + 2] = { 0 };
    int stdio = 0, n_pos = 0;
    const struct opt own = { .name = "stdio", .type = OPT_FLAG, .dest = &stdio,
                             .help = "Requests come on standard input, answers go to standard output." };
    char **copy = malloc(((size_t)argc + 1) * sizeof *copy);
    if (!copy)
        return err_set(e, ERR_NOMEM, "out of memory for options");
    memcpy(copy, argv, ((size_t)argc + 1) * sizeof *copy);
    generate_args_init(&a);
    o[generate_serve_options(o, &a)] = own;
    int r = opt_parse(o, &usage, argc, copy, &n_pos, e);
    if (r == 0 && n_pos)
        r = err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run serve --help", copy[1]);
    if (r == 0 && !stdio)
        r = err_set(e, ERR_USAGE, "serve needs --stdio: requests on standard input are all that it knows");
    generate_args_done(&a);
    free(copy);
    return r;
}

/* ---- answers ---- */

static void say_id(const char *id)
{
    fputs("\"id\":", stdout);
    if (*id)
        report_string(stdout, id, strlen(id));
    else
        fputs("null", stdout); /* none was given, or the line is not understood */
}

static void say_choice(const struct asked *q, const struct thermo_event *ev)
{
    if (q && q->choices > 1)
        print(",\"choice\":%d", ev->choice);
}

static void end_line(void)
{
    fputs("}\n", stdout);
    fflush(stdout);
}

static void say_error_of(const struct asked *q, const char *id, int code, const char *message, const struct thermo_event *ev)
{
    fputs("{\"type\":\"error\",", stdout);
    say_id(id);
    say_choice(q, ev);
    fputs(",\"error\":", stdout);
    report_string(stdout, message, strlen(message));
    print(",\"status\":%d", thermo_exit_status(code));
    end_line();
}

static void say_error(const char *id, int code, const char *message)
{
    say_error_of(NULL, id, code, message, NULL);
}

static void say_done(const struct asked *q, const char *id, const struct thermo_event *ev)
{
    fputs("{\"type\":\"done\",", stdout);
    say_id(id);
    say_choice(q, ev);
    print_json_to(stdout, ",\"stop\":\"%s\",\"prompt_tokens\":%d,\"shared_tokens\":%d,\"tokens\":%d,\"thought_tokens\":%d,"
                  "\"logprob\":%.9g%s,\"text\":", ev->stop, ev->prompt_tokens, ev->shared_tokens, ev->n_tokens, ev->n_thought_tokens,
                  ev->logprob, ev->part == THERMO_THOUGHT ? ",\"part\":\"thought\"" : "");
    report_string(stdout, ev->text, ev->text_bytes);
    end_line();
}

static int answer(void *ctx, const struct thermo_event *ev)
{
    struct asked *q = ctx;
    if (ev->type != THERMO_END) {
        print("{\"type\":\"%s\",", ev->type == THERMO_PROMPT ? "prompt" : "token");
        say_id(q->id);
        say_choice(q, ev);
        if (ev->token >= 0)
            print_json_to(stdout, ",\"n\":%d,\"token\":%d,\"logprob\":%.9g", ev->n_tokens, ev->token, ev->token_logprob);
        for (int i = 0; i < ev->n_top; i++)
            print_json_to(stdout, "%s{\"id\":%d,\"logprob\":%.9g}%s", i ? "," : ",\"top\":[", ev->top[i].id, ev->top[i].logprob,
                          i + 1 < ev->n_top ? "" : "]");
        if (ev->part == THERMO_CALL) {
            print_json_to(stdout, ",\"call\":{\"index\":%d,\"id\":\"%s\",\"name\":", ev->call_index, ev->call_id);
            report_string(stdout, ev->call_name, strlen(ev->call_name));
            fputs(",\"arguments\":", stdout);
        } else {
            print("%s,\"text\":", ev->part == THERMO_THOUGHT ? ",\"part\":\"thought\"" : "");
        }
        report_string(stdout, ev->text, ev->text_bytes);
        if (ev->part == THERMO_CALL)
            fputs("}", stdout);
        end_line();
        return 0;
    }
    if (--q->left == 0) {
        q->number = 0;
        q->v->n_open--;
    }
    if (ev->error.code)
        say_error_of(q, q->id, ev->error.code, ev->error.message, ev);
    else
        say_done(q, q->id, ev);
    return 0;
}

/* An object with the library's description, and what is ours. */
static void say_state(const struct serve *v, const char *type, const char *id, double ms)
{
    char *text = thermo_describe(v->t);
    print("{\"type\":\"%s\",", type);
    if (*id) {
        say_id(id);
        print(",");
    }
    if (text)
        print_data(text + 1, strlen(text) - 2);
    if (ms >= 0)
        print_json_to(stdout, ",\"ms\":%.3f", ms);
    end_line();
    thermo_free(text);
}

/* ---- requests ---- */

static struct asked *find(struct serve *v, const char *id)
{
    for (int i = 0; i < v->n; i++)
        if (v->asked[i].number && !strcmp(v->asked[i].id, id))
            return &v->asked[i];
    return NULL;
}

/* A string or an integer, as text; 0: neither, or too long. */
static int id_of(const struct js *j, char id[ID_BYTES + 1])
{
    int64_t n;
    const char *s = js_str(j);
    *id = 0;
    if (js_int(j, &n))
        snprintf(id, ID_BYTES + 1, "%lld", (long long)n);
    else if (s && strlen(s) <= ID_BYTES)
        snprintf(id, ID_BYTES + 1, "%s", s);
    return *id != 0;
}

/* The line at `at` goes. */
static void drop_line(struct serve *v, size_t at, size_t n)
{
    memmove(v->buf + at, v->buf + at + n, v->len - at - n);
    v->len -= n;
}

/* A request whose line still waits ends there. */
static int cancel_waiting(struct serve *v, const char *id)
{
    for (size_t at = 0, n; at < v->waits; at += n) {
        struct err e = { 0 };
        char other[ID_BYTES + 1];
        n = (size_t)((char *)memchr(v->buf + at, '\n', v->waits - at) - (v->buf + at)) + 1;
        struct js *j = js_parse(v->buf + at, n - 1, "a line", &e);
        int same = id_of(js_get(j, "id"), other) && !strcmp(id, other);
        js_free(j);
        if (same) {
            drop_line(v, at, n);
            v->waits -= n;
            say_done(NULL, id, &(struct thermo_event){ .stop = "interrupted", .text = "" });
            return 1;
        }
    }
    return 0;
}

static void cancel(struct serve *v, const struct js *line)
{
    static const struct fields only[] = { { "cancel", FIELDS_TAKEN, NULL }, { NULL, FIELDS_TAKEN, NULL } };
    struct err e = { 0 };
    char id[ID_BYTES + 1];
    const struct js *j = js_get(line, "cancel");
    struct asked *q = id_of(j, id) ? find(v, id) : NULL;
    if (fields_check(line, only, sizeof *only, "a cancellation", &e) < 0)
        say_error(*id ? id : "", e.code, e.msg);
    else if (q)
        thermo_cancel(v->t, q->number);
    else if (!*id || !cancel_waiting(v, id))
        say_error(*id ? id : js_str(j) ? js_str(j) : "", THERMO_E_USAGE, "\"cancel\": no request with this id is open");
}

/* Another limit, as --memory or in bytes; the answer says that it holds. */
static void resize(struct serve *v, const struct js *line)
{
    static const struct fields only[] = { { "memory", FIELDS_TAKEN, NULL }, { "id", FIELDS_TAKEN, NULL }, { NULL, FIELDS_TAKEN, NULL } };
    struct err e = { 0 };
    struct thermo_error why = { 0 };
    char id[ID_BYTES + 1];
    const struct js *j = js_get(line, "memory");
    const char *text = js_str(j);
    int64_t n = 0, start = progress_now_ns();
    uint64_t bytes = 0;
    int r = fields_check(line, only, sizeof *only, "a memory limit", &e), named = id_of(js_get(line, "id"), id);
    if (r == 0 && text)
        r = size_parse(text, &bytes, &e);
    else if (r == 0 && js_int(j, &n) && n > 0)
        bytes = (uint64_t)n;
    else if (r == 0)
        r = err_set(&e, ERR_FORMAT, "\"memory\": a size is needed, as \"18MiB\", or a number of bytes");
    if (r == 0 && thermo_resize(v->t, bytes, &why) < 0)
        r = err_set(&e, why.code, "\"memory\": %s", why.message);
    if (r < 0)
        say_error(named ? id : "", e.code, e.msg);
    else
        say_state(v, "memory", id, (double)(progress_now_ns() - start) / 1e6);
}

/* A request of its own, which has an id that no other has. 1: it has to wait. */
static int submit(struct serve *v, const char *id, int64_t choices, const char *line, size_t len)
{
    struct asked *q = NULL;
    struct thermo_error e = { 0 };
    for (int i = 0; i < v->n && !q; i++)
        q = v->asked[i].number ? NULL : &v->asked[i];
    if (!q)
        return 1;
    const struct thermo_request r = { .size = sizeof r, .fields = line, .fields_bytes = len };
    snprintf(q->id, sizeof q->id, "%s", id);
    q->v = v;
    q->choices = q->left = choices < BUDGET_MAX_BATCH ? (int)choices : BUDGET_MAX_BATCH;
    int code = *id && find(v, id) ? THERMO_E_USAGE : thermo_submit(v->t, &r, answer, q, &q->number, &e);
    if (code == THERMO_E_FULL)
        return 1;
    if (code < 0)
        say_error(id, code, *e.message ? e.message : "a request with this id is open");
    v->n_open += code == 0;
    return 0;
}

/* 0: the line was dealt with; 1: it has to wait, for there is room for no more requests. */
static int take_line(struct serve *v, const char *line, size_t len, int full)
{
    struct err e = { 0 };
    char name[48], id[ID_BYTES + 1] = "";
    int waits = 0;
    int64_t choices = 1;
    snprintf(name, sizeof name, "line %llu", (unsigned long long)v->n_lines + 1);
    struct js *j = js_parse_within(line, len, v->json_bytes, name, &e);
    const struct js *ends = js_get(j, "cancel"), *memory = js_get(j, "memory");
    int named = id_of(js_get(j, "id"), id) || !js_is_object(j) || js_get(j, "id"); /* what is wrong with one, the library says */
    if (!j)
        say_error("", e.code, e.msg);
    else if (ends)
        cancel(v, j);
    else if (memory)
        resize(v, j);
    else if (!named)
        say_error("", THERMO_E_FORMAT, "a request has an \"id\"");
    js_int(js_get(j, "choices"), &choices); /* the library says what is wrong with it */
    js_free(j);
    if (j && !ends && !memory && named)
        waits = full || submit(v, id, choices, line, len);
    v->n_lines += !waits;
    return waits;
}

/* Lines that are whole. Where all places are taken, requests wait where they are, and cancellations go past them. A line that is longer
 * than the buffer is dropped to its end. */
static void take_lines(struct serve *v)
{
    size_t at = v->n_open < v->n ? 0 : v->waits;
    v->waits = 0;
    for (char *end; at < v->len && (end = memchr(v->buf + at, '\n', v->len - at));) {
        size_t n = (size_t)(end - v->buf) - at;
        int whole = !v->skipping && n > strspn(v->buf + at, " \t\r");
        v->skipping = 0;
        if (!whole) {
            drop_line(v, at, n + 1);
            continue;
        }
        v->waits = at;
        int waits = take_line(v, v->buf + at, n, at > 0);
        at = v->waits; /* a cancellation may have taken lines before it */
        if (waits)
            at += n + 1;
        else
            drop_line(v, at, n + 1);
    }
    v->waits = at;
    if (v->len - at > v->line_bytes && !memchr(v->buf + at, '\n', v->len - at)) {
        char why[80];
        snprintf(why, sizeof why, "line %llu is longer than the limit of %zu bytes", (unsigned long long)v->n_lines + 1, v->line_bytes);
        if (!v->skipping) {
            v->n_lines++;
            say_error("", THERMO_E_LIMIT, why);
        }
        v->skipping = 1;
        v->len = at;
    }
}

/* What there is to read, waiting for it where there is nothing else to do. */
static int read_more(struct serve *v, struct err *e)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    if (v->at_end || v->len == v->cap || poll(&p, 1, v->n_open ? 0 : IDLE_MS) <= 0)
        return 0;
    ssize_t n = read(STDIN_FILENO, v->buf + v->len, v->cap - v->len);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return err_sys(e, ERR_INPUT, "reading standard input");
    if (n == 0) {
        v->at_end = 1;
        if (v->len > v->waits && !v->skipping && v->len < v->cap)
            v->buf[v->len++] = '\n'; /* a last line without one */
    }
    v->len += n > 0 ? (size_t)n : 0;
    return 0;
}

static int loop(struct serve *v, const struct cancel *asked, struct err *e)
{
    int r = 0;
    for (int more = 1; more;) {
        struct thermo_error why = { 0 };
        if (cancel_asked(asked) && !v->n_open)
            return err_set(e, ERR_INTR, "interrupted");
        if ((r = read_more(v, e)) < 0)
            return r;
        take_lines(v);
        r = thermo_step(v->t, 0, &why); /* of a failure those that it is of have been told */
        if (r == THERMO_E_INTERRUPTED)
            return err_set(e, ERR_INTR, "%s", why.message);
        if (ferror(stdout))
            return file_stdout(e); /* nobody reads the rest */
        more = !v->at_end || v->n_open || memchr(v->buf, '\n', v->len);
    }
    return 0;
}

/* Limits of the model that is open. */
static int look(struct serve *v, struct err *e)
{
    struct err bad;
    char *text = thermo_describe(v->t);
    struct js *j = text ? js_parse(text, strlen(text), "the model", &bad) : NULL;
    int64_t n = 0, bytes = 0, json = 0;
    js_int(js_get(j, "requests"), &n);
    js_int(js_get(j, "line_bytes"), &bytes);
    js_int(js_get(j, "json_bytes"), &json);
    js_free(j);
    thermo_free(text);
    v->n = (int)n;
    v->line_bytes = (size_t)bytes;
    v->json_bytes = (size_t)json;
    v->cap = v->line_bytes + 1 + BEHIND;
    v->asked = calloc((size_t)v->n, sizeof *v->asked);
    v->buf = malloc(v->cap);
    return n && bytes && v->asked && v->buf ? 0 : err_set(e, ERR_NOMEM, "out of memory for %d requests", v->n);
}

static int run(struct serve *v, char **argv, struct err *e)
{
    struct thermo_error why = { 0 };
    struct cancel *asked = file_catch_interrupt();
    const struct thermo_options o = { .size = sizeof o, .more = (const char *const *)argv, .cancel = (int *)(void *)asked, .calls = 1 };
    if (thermo_open(&o, &v->t, &why) < 0)
        return err_set(e, why.code, "%s", why.message);
    int r = look(v, e);
    if (r < 0)
        return r;
    say_state(v, "ready", "", -1);
    int64_t start = progress_now_ns();
    r = loop(v, asked, e);
    if (r == 0 || r == ERR_INTR)
        say_state(v, "summary", "", (double)(progress_now_ns() - start) / 1e6);
    return r;
}

int cmd_serve(int argc, char **argv)
{
    struct serve v = { 0 };
    struct err e = { 0 };
    int r = parse(argc, argv, &e), n = 0;
    if (r == 0) {
        for (int i = 1; i < argc; i++) /* what is the library's */
            if (strcmp(argv[i], "--stdio"))
                argv[n++] = argv[i];
        argv[n] = NULL;
        r = run(&v, argv, &e);
        thermo_close(v.t);
        free(v.asked);
        free(v.buf);
    }
    if (r == ERR_INTR)
        return err_exit_status(r);
    return r < 0 ? opt_fail(&e) : 0;
}
