/* thermo-run serve --stdio: a model that stays loaded, and requests as lines of JSON. One thread reads, runs a step, writes; a line is
 * looked at between two steps, so a cancellation takes no longer than one. */
#include "common/base/fields.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"

#include "runtime/cmd.h"
#include "runtime/generate.h"
#include "runtime/report.h"
#include "runtime/sampling.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define IN_FLIGHT 4     /* requests per sequence that run or wait */
#define IDLE_MS   200   /* how often a signal is looked for while there is nothing to do */

static const struct opt_usage usage = {
    "thermo-run serve", "--stdio",
    "Answer requests without loading the model again. Each line of standard input is a JSON object: a request with \"id\" and \"prompt\" "
    "(or \"tokens\"), and what differs from the options here: \"n\", \"temp\", \"top_k\", \"top_p\", \"min_p\", \"repeat_penalty\", "
    "\"repeat_last_n\", \"seed\", \"stop\", \"ignore_eos\"; or {\"cancel\": ID}. With --chat the prompt is a user's message, or "
    "\"messages\" are a conversation. Each line of standard output is an object with \"type\": ready, token, done, error, summary. "
    "Requests are made together, as many at once as there are sequences, and each gives what it gives alone. At the end of the input "
    "those that are open are finished. docs/batches.md has the fields.",
    "  echo '{\"id\": 1, \"prompt\": \"Once upon a time\", \"n\": 20}' | thermo-run serve --stdio --model m.thermo --plan p.json\n",
    NULL
};

struct serve {
    struct generate_args a;
    struct generate_set set;
    int stdio;
    char *buf;                  /* [cap]: what has been read and not used */
    size_t cap, len;
    int at_end, skipping;       /* of the input; of a line that is too long */
    uint64_t n_lines, n_requests, n_tokens;
    char text[8192];            /* what the current token let out */
    size_t text_len;
};

static int parse(struct serve *v, int argc, char **argv, struct err *e)
{
    struct generate_args *a = &v->a;
    struct opt o[SETUP_OPTIONS + SAMPLING_OPTIONS + GENERATE_GUESS_OPTIONS + 12] = { 0 };
    int k = setup_options(o, &a->setup), n_pos = 0;
    const struct opt own[] = {
        { .name = "stdio", .type = OPT_FLAG, .dest = &v->stdio, .help = "Requests come on standard input, answers go to standard output." },
        { .name = "sequences", .type = OPT_INT, .dest = &a->setup.batch, .arg = "N", .min = 1, .max = GENERATE_MAX_BATCH,
          .help = "How many requests are made at once; no more than the plan is for.", .def = "the plan's" },
        { .name = "kv-positions", .type = OPT_INT, .dest = &a->setup.kv_positions, .arg = "N", .min = 1, .max = 1 << 30,
          .help = "Positions of the KV cache for all sequences together; requests wait until there is room.",
          .def = "the context for each" },
        { .name = "chat", .type = OPT_FLAG, .dest = &a->chat,
          .help = "Prompts are messages, and the model's own template is put around them." },
        { .name = "system", .type = OPT_STRING, .dest = &a->system, .arg = "TEXT", .help = "With --chat: a system message before them." },
        { .name = "chat-template", .type = OPT_STRING, .dest = &a->template, .arg = "FILE", .file = OPT_READ,
          .help = "With --chat: a template instead of the model's own." },
        { .name = "thinking", .type = OPT_CHOICE, .dest = &a->thinking, .choices = chat_thinking_names,
          .help = "With --chat: show, hide, or off, which tells the template that the model shall not think.", .def = "show" },
        { .name = "predict", .short_name = 'n', .type = OPT_INT, .dest = &a->n, .arg = "N", .min = -1, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens to make for a request that does not say; -1: until the model ends the text or the context is full.",
          .def = "128" },
        { .name = "seed", .short_name = 's', .type = OPT_U64, .dest = &a->seed, .arg = "N",
          .help = "Seed of the first request that has none; the next one's is greater by one.", .def = "random, reported" },
    };
    memcpy(o + k, own, sizeof own);
    k += (int)(sizeof own / sizeof own[0]);
    k += generate_guess_options(o + k, a);
    sampling_options(o + k, &a->sampling);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run serve --help", argv[1]);
    if (r == 0 && !v->stdio)
        return err_set(e, ERR_USAGE, "serve needs --stdio: requests on standard input are all that it knows");
    if (r == 0 && !a->chat && (a->system || a->template || a->thinking))
        return err_set(e, ERR_USAGE, "%s belongs to --chat", a->system ? "--system" : a->template ? "--chat-template" : "--thinking");
    return r < 0 || r > 0 ? r : generate_check_guess(a, e);
}

/* ---- answers ---- */

static void end_line(void)
{
    fputs("}\n", stdout);
    fflush(stdout);
}

static void say_error(const char *id, const struct err *why)
{
    fputs("{\"type\":\"error\",", stdout);
    request_print_id(stdout, id);
    request_print_error(stdout, why);
    end_line();
}

static void to_text(void *ctx, const char *text, size_t len)
{
    struct serve *v = ctx;
    size_t room = sizeof v->text - v->text_len;
    len = len < room ? len : room;
    memcpy(v->text + v->text_len, text, len);
    v->text_len += len;
}

static int on_token(void *ctx, struct batch_text *t, int32_t id)
{
    struct serve *v = ctx;
    struct request *q = t->owner;
    v->text_len = 0;
    int stopped = request_token(NULL, t, id);
    fputs("{\"type\":\"token\",", stdout);
    request_print_id(stdout, q->id);
    print(",\"n\":%d,\"token\":%d,\"text\":", q->n_made, id);
    report_string(stdout, v->text, v->text_len);
    end_line();
    v->n_tokens++;
    return stopped;
}

static void on_end(void *ctx, struct batch_text *t, enum batch_end end, const struct err *why)
{
    struct serve *v = ctx;
    struct request *q = t->owner;
    q->busy = 0;
    if (why) {
        say_error(q->id, why);
        return;
    }
    v->text_len = 0;
    if (end != BATCH_STOP)
        output_end(&q->output);
    fputs("{\"type\":\"done\",", stdout);
    request_print_id(stdout, q->id);
    print_json_to(stdout, ",\"stop\":\"%s\",\"prompt_tokens\":%d,\"shared_tokens\":%d,\"tokens\":%d,\"logprob\":%.9g,\"text\":",
                  batch_end_names[end],
           q->n_prompt, t->n_shared, q->n_made, request_logprob(t));
    report_string(stdout, v->text, v->text_len);
    end_line();
}

static void say_ready(const struct serve *v)
{
    fputs("{\"type\":\"ready\",", stdout);
    report_configuration(stdout, &v->set.setup, v->set.engine);
    print(",\"sequences\":%d,\"requests\":%d,\"line_bytes\":%zu,\"seed\":%llu", v->set.setup.config.choice.max_batch, v->set.n, v->cap - 1,
           (unsigned long long)v->a.seed);
    end_line();
}

static void say_summary(const struct serve *v, uint64_t ns)
{
    const struct engine_stats st = engine_stats(v->set.engine);
    fputs("{\"type\":\"summary\",", stdout);
    report_configuration(stdout, &v->set.setup, v->set.engine);
    print_json_to(stdout, ",\"answered\":%llu,\"tokens\":%llu,\"ms\":%.3f,\"passes\":%llu,\"reads\":%llu,\"read_bytes\":%llu",
           (unsigned long long)v->n_requests, (unsigned long long)v->n_tokens, (double)ns / 1e6, (unsigned long long)st.passes,
           (unsigned long long)st.reads, (unsigned long long)st.read_bytes);
    report_batches(stdout, v->set.engine, &st);
    generate_set_guesses_json(stdout, &v->set);
    end_line();
}

/* ---- requests ---- */

static struct request *find(struct serve *v, const char *id)
{
    for (int i = 0; i < v->set.n; i++)
        if (v->set.requests[i].busy && !strcmp(v->set.requests[i].id, id))
            return &v->set.requests[i];
    return NULL;
}

static struct request *find_free(struct serve *v)
{
    for (int i = 0; i < v->set.n; i++)
        if (!v->set.requests[i].busy)
            return &v->set.requests[i];
    return NULL;
}

static int cancel_request(struct serve *v, const struct js *line, struct err *e)
{
    static const struct fields only[] = { { "cancel", FIELDS_TAKEN, NULL }, { NULL, FIELDS_TAKEN, NULL } };
    int64_t n;
    char id[REQUEST_ID + 1];
    int r = fields_check(line, only, sizeof *only, "a cancellation", e);
    const struct js *j = js_get(line, "cancel");
    const char *s = js_str(j);
    if (r < 0)
        return r;
    if (js_int(j, &n))
        snprintf(id, sizeof id, "%lld", (long long)n);
    else
        snprintf(id, sizeof id, "%s", s ? s : "");
    struct request *q = (s && strlen(s) > REQUEST_ID) ? NULL : find(v, id);
    if (!q)
        return err_set(e, ERR_USAGE, "\"cancel\": no request with this id is open");
    batch_cancel(&v->set.batch, &q->text);
    return 0;
}

/* A request of its own, which has an id that no other has. */
static int begin_request(struct serve *v, struct request *q, const struct js *j, struct err *e)
{
    int r = request_read(q, j, e);
    if (r == 0 && !*q->id)
        r = err_set(e, ERR_FORMAT, "a request has an \"id\"");
    if (r == 0 && find(v, q->id))
        r = err_set(e, ERR_USAGE, "a request with this id is open");
    if (r < 0 || (r = request_text(q, to_text, v, e)) < 0)
        return r;
    q->text.prompt = q->ids;
    q->text.n_prompt = q->n_prompt;
    if ((r = batch_add(&v->set.batch, &q->text, e)) < 0)
        return r;
    q->busy = 1;
    v->n_requests++;
    return 0;
}

/* 0: the line was dealt with; 1: it has to wait, for there is room for no more requests. */
static int take_line(struct serve *v, const char *line, size_t len)
{
    struct err e = { 0 };
    char name[48];
    struct request *q = find_free(v);
    snprintf(name, sizeof name, "line %llu", (unsigned long long)v->n_lines + 1);
    struct js *j = js_parse_within(line, len, request_json_bytes(v->set.setup.config.choice.context), name, &e);
    int request = j && !js_get(j, "cancel");
    if (request && !q) {
        js_free(j);
        return 1;
    }
    if (!j) {
        say_error("", &e);
    } else if (!request) {
        if (cancel_request(v, j, &e) < 0)
            say_error(js_str(js_get(j, "cancel")) ? js_str(js_get(j, "cancel")) : "", &e);
    } else {
        request_begin(q, "");
        q->text.sampling.seed = v->a.seed + v->n_requests;
        if (begin_request(v, q, j, &e) < 0)
            say_error(q->id, &e);
    }
    js_free(j);
    v->n_lines++;
    return 0;
}

/* Lines that are whole, until one has to wait. A line that is longer than the buffer is dropped to its end. */
static void take_lines(struct serve *v)
{
    size_t at = 0;
    for (char *end; (end = memchr(v->buf + at, '\n', v->len - at)); at = (size_t)(end - v->buf) + 1) {
        size_t n = (size_t)(end - v->buf) - at;
        if (v->skipping)
            v->skipping = 0;
        else if (n > strspn(v->buf + at, " \t\r") && take_line(v, v->buf + at, n))
            break;
    }
    memmove(v->buf, v->buf + at, v->len - at);
    v->len -= at;
    if (v->len == v->cap && !memchr(v->buf, '\n', v->len)) {
        struct err e = { 0 };
        if (!v->skipping)
            err_set(&e, ERR_LIMIT, "line %llu is longer than the limit of %zu bytes", (unsigned long long)++v->n_lines, v->cap - 1);
        if (e.code)
            say_error("", &e);
        v->skipping = 1;
        v->len = 0;
    }
}

/* What there is to read, waiting for it where there is nothing else to do. */
static int read_more(struct serve *v, struct err *e)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    if (v->at_end || v->len == v->cap || poll(&p, 1, batch_open(&v->set.batch) ? 0 : IDLE_MS) <= 0)
        return 0;
    ssize_t n = read(STDIN_FILENO, v->buf + v->len, v->cap - v->len);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return err_sys(e, ERR_INPUT, "reading standard input");
    if (n == 0) {
        v->at_end = 1;
        if (v->len && !v->skipping && v->len < v->cap)
            v->buf[v->len++] = '\n'; /* a last line without one */
    }
    v->len += n > 0 ? (size_t)n : 0;
    return 0;
}

static int loop(struct serve *v, struct err *e)
{
    int r = 0;
    for (int more = 1; more && r >= 0;) {
        if (cancel_asked(v->a.setup.cancel) && !batch_open(&v->set.batch))
            return err_set(e, ERR_INTR, "interrupted");
        if ((r = read_more(v, e)) < 0)
            return r;
        take_lines(v);
        struct err why = { 0 };
        r = batch_step(&v->set.batch, &why);
        if (r == ERR_INTR)
            *e = why;
        else if (r < 0) /* those that it is of have been told */
            r = 0;
        if (r >= 0 && ferror(stdout))
            return file_stdout(e); /* nobody reads the rest */
        more = !v->at_end || batch_open(&v->set.batch) || memchr(v->buf, '\n', v->len);
    }
    return r < 0 ? r : 0;
}

static int run(struct serve *v, struct err *e)
{
    int r = generate_set_open(&v->set, &v->a, IN_FLIGHT, e);
    if (r < 0)
        return r;
    v->cap = request_line_bytes(v->set.setup.config.choice.context);
    v->buf = malloc(v->cap);
    if (!v->buf)
        return err_set(e, ERR_NOMEM, "out of memory for a line of %zu bytes", v->cap);
    if ((r = generate_set_start(&v->set, on_end, on_token, v, e)) < 0)
        return r;
    say_ready(v);
    int64_t start = progress_now_ns();
    r = loop(v, e);
    if (r == 0 || r == ERR_INTR)
        say_summary(v, (uint64_t)(progress_now_ns() - start));
    return r;
}

int cmd_serve(int argc, char **argv)
{
    static struct serve v = { .a = { .n = 128, .seed = UINT64_MAX } };
    struct err e = { 0 };
    setup_args_init(&v.a.setup);
    sampling_init(&v.a.sampling);
    int r = parse(&v, argc, argv, &e);
    if (r == 0) {
        v.a.setup.cancel = file_catch_interrupt();
        if (v.a.seed == UINT64_MAX && getrandom(&v.a.seed, 4, 0) == 4)
            v.a.seed &= UINT32_MAX;
        r = run(&v, &e);
        generate_set_close(&v.set);
        free(v.buf);
    }
    if (r == ERR_INTR)
        return err_exit_status(r);
    return r < 0 ? opt_fail(&e) : 0;
}
