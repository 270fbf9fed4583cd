/* Answers of chat/completions and completions. A stream is events of its tokens, put as they come; a whole answer gathers its text, already
 * escaped, and is put together at the end. The sink runs in the stepping thread and never waits: where the client's buffer is full or no
 * memory is left it pauses the request, which the library ends after a while.
 *
 * An answer is held by its submitter and by the library until its end. A client that leaves is told to `left` by HTTP's threads, under
 * their lock, which touches `number` and `gone` alone. */
#include "server/answer.h"

#include "common/base/print.h"
#include "common/base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define JSON   "application/json"
#define EVENTS "text/event-stream"

struct answer {
    struct server *s;
    struct call *call;
    struct answer *next, *previous;  /* guarded by the server's lock: among the open ones, */
    int n_tokens;                    /* so far */
    char id[40];
    int64_t created, asked_ns, first_ns;
    enum ask_form form;
    int stream, usage;
    atomic_int holders, gone, ended;
    atomic_ullong number;            /* the library's; 0: not submitted */
    pthread_mutex_t begins;
    int begun;                       /* the stream; guarded by begins */
    /* the stepping thread's */
    int too_long;
    struct buffer text;              /* of a whole answer, escaped */
};

static void release(struct answer *a)
{
    if (atomic_fetch_sub(&a->holders, 1) > 1)
        return;
    call_release(a->call);
    buffer_drop(&a->text);
    pthread_mutex_destroy(&a->begins);
    free(a);
}

/* The client closed its connection. */
static void left(void *ctx)
{
    struct answer *a = ctx;
    atomic_store(&a->gone, 1);
    uint64_t number = atomic_load(&a->number);
    if (number)
        thermo_cancel(a->s->t, number);
}

/* ---- pieces ---- */

static const char *object_of(const struct answer *a)
{
    return a->form == ASK_TEXT ? "text_completion" : a->stream ? "chat.completion.chunk" : "chat.completion";
}

static void put_head(const struct answer *a, struct buffer *b)
{
    buffer_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":\"", a->id, object_of(a), (long long)a->created);
    buffer_escape(b, a->s->name, strlen(a->s->name), 1);
    buffer_printf(b, "\",\"choices\":[");
}

static void put_usage(const struct thermo_event *ev, struct buffer *b)
{
    buffer_printf(b, "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,\"prompt_tokens_details\":"
                  "{\"cached_tokens\":%d}}", ev->prompt_tokens, ev->n_tokens, ev->prompt_tokens + ev->n_tokens, ev->shared_tokens);
}

static const char *reason_of(const struct thermo_event *ev)
{
    return !strcmp(ev->stop, "length") || !strcmp(ev->stop, "context") ? "length" : "stop";
}

/* An event of a stream with a piece of text; role: the first of a chat. reason: the last, or NULL. */
static void put_event(const struct answer *a, struct buffer *b, const char *text, size_t n, int role, const char *reason)
{
    buffer_printf(b, "data: ");
    put_head(a, b);
    if (a->form == ASK_TEXT)
        buffer_printf(b, "{\"index\":0,\"text\":\"");
    else
        buffer_printf(b, "{\"index\":0,\"delta\":{%s%s", role ? "\"role\":\"assistant\"," : "", reason ? "" : "\"content\":\"");
    buffer_escape(b, text, n, 1);
    buffer_printf(b, "%s%s,\"logprobs\":null,\"finish_reason\":",
                  a->form == ASK_TEXT || !reason ? "\"" : "", a->form == ASK_TEXT ? "" : "}");
    buffer_printf(b, reason ? "\"%s\"" : "null", reason);
    buffer_printf(b, "}]%s}\n\n", a->usage ? ",\"usage\":null" : "");
}

/* The stream begins, and a chat's with who speaks; by whoever comes first, submitter or sink. */
static void begin(struct answer *a)
{
    pthread_mutex_lock(&a->begins);
    if (!a->begun && a->stream) {
        struct buffer b = { 0 };
        if (a->form == ASK_CHAT)
            put_event(a, &b, "", 0, 1, NULL);
        call_set(a->call, "Cache-Control", "no-cache");
        call_set(a->call, "X-Accel-Buffering", "no");
        call_begin(a->call, 200, EVENTS);
        call_put(a->call, b.at, b.len, 1);
        buffer_drop(&b);
    }
    a->begun = 1;
    pthread_mutex_unlock(&a->begins);
}

/* ---- the sink ---- */

static int on_token(struct answer *a, const struct thermo_event *ev)
{
    struct server *s = a->s;
    int full = 0;
    if (a->stream && ev->text_bytes) {
        s->line.len = s->line.from = 0;
        put_event(a, &s->line, ev->text, ev->text_bytes, 0, NULL);
        full = call_put(a->call, s->line.at, s->line.len, 0) == CALL_FULL;
    } else if (ev->text_bytes && a->text.len + ev->text_bytes > s->body_max) {
        a->too_long = 1;
        thermo_cancel(s->t, ev->id);
    } else if (ev->text_bytes) {
        full = buffer_escape(&a->text, ev->text, ev->text_bytes, 0) < 0;
    }
    if (full)
        return THERMO_PAUSE;
    if (ev->n_tokens == 1)
        a->first_ns = progress_now_ns();
    pthread_mutex_lock(&s->lock);
    a->n_tokens = ev->n_tokens;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

/* What is wrong with an answer that began; 0: nothing. */
static int fault(const struct answer *a, const struct thermo_event *ev, const char **message)
{
    *message = ev->error.code ? ev->error.message : a->too_long ? "the answer is longer than --max-body; ask for a stream"
             : "the client did not read its answer, or there was no memory for it, for too long";
    return ev->error.code || a->too_long || !strcmp(ev->stop, "interrupted") ? 500 : 0;
}

static void end_stream(struct answer *a, const struct thermo_event *ev)
{
    struct buffer *b = &a->s->line;
    const char *message;
    int status = fault(a, ev, &message);
    b->len = b->from = 0;
    if (ev->text_bytes && !status)
        put_event(a, b, ev->text, ev->text_bytes, 0, NULL);
    if (status) {
        buffer_printf(b, "data: ");
        server_error_text(b, status, NULL, NULL, message);
        buffer_printf(b, "\n\n");
    } else {
        put_event(a, b, "", 0, 0, reason_of(ev));
    }
    if (a->usage && !status) {
        buffer_printf(b, "data: ");
        put_head(a, b);
        buffer_printf(b, "],");
        put_usage(ev, b);
        buffer_printf(b, "}\n\n");
    }
    buffer_printf(b, "data: [DONE]\n\n");
    call_put(a->call, b->at, b->len, 1);
    call_end(a->call);
}

static void end_whole(struct answer *a, const struct thermo_event *ev)
{
    struct buffer b = { .pool = &a->s->pool };
    const char *message;
    int status = fault(a, ev, &message);
    if (status) {
        server_error(a->s, a->call, status, NULL, NULL, message);
        return;
    }
    put_head(a, &b);
    buffer_printf(&b, a->form == ASK_TEXT ? "{\"index\":0,\"text\":\"" : "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"");
    buffer_put(&b, a->text.at ? a->text.at + a->text.from : "", a->text.len, 1);
    buffer_escape(&b, ev->text, ev->text_bytes, 1);
    buffer_printf(&b, "\"%s,\"logprobs\":null,\"finish_reason\":\"%s\"}],", a->form == ASK_TEXT ? "" : ",\"refusal\":null}", reason_of(ev));
    put_usage(ev, &b);
    buffer_printf(&b, "}\n");
    call_reply_buffer(a->call, 200, JSON, &b);
}

static void count_end(struct answer *a, const struct thermo_event *ev)
{
    struct server *s = a->s;
    struct counts *n = &s->counts;
    double took = (double)(progress_now_ns() - a->asked_ns) / 1e9;
    pthread_mutex_lock(&s->lock);
    if (a->previous)
        a->previous->next = a->next;
    else
        s->answers = a->next;
    if (a->next)
        a->next->previous = a->previous;
    if (ev->error.code || a->too_long)
        n->failed++;
    else if (!strcmp(ev->stop, "interrupted"))
        n->cancelled++;
    else
        n->answered++;
    n->prompt_tokens += (uint64_t)ev->prompt_tokens;
    n->cached_tokens += (uint64_t)ev->shared_tokens;
    n->tokens += (uint64_t)ev->n_tokens;
    n->total_s += took;
    n->first_s += a->first_ns ? (double)(a->first_ns - a->asked_ns) / 1e9 : 0;
    n->n_first += a->first_ns != 0;
    s->mean_s += (took - s->mean_s) / 8;
    pthread_mutex_unlock(&s->lock);
}

static int sink(void *ctx, const struct thermo_event *ev)
{
    struct answer *a = ctx;
    int gone = atomic_load(&a->gone);
    if (ev->type == THERMO_TOKEN && gone)
        return 0;
    if (!gone)
        begin(a);
    if (ev->type == THERMO_TOKEN)
        return on_token(a, ev);
    count_end(a, ev);
    call_on_gone(a->call, NULL, NULL);
    if (gone)
        call_end(a->call);
    else if (a->stream)
        end_stream(a, ev);
    else
        end_whole(a, ev);
    release(a);
    return 0;
}

/* ---- submitting ---- */

static struct answer *new_answer(struct server *s, struct call *c, const struct ask *of)
{
    struct answer *a = calloc(1, sizeof *a);
    unsigned char random[12];
    if (!a)
        return NULL;
    *a = (struct answer){ .s = s, .call = c, .form = of->form, .stream = of->stream, .usage = of->usage, .created = (int64_t)time(NULL),
                          .asked_ns = progress_now_ns(), .text.pool = &s->pool };
    atomic_init(&a->holders, 2);
    pthread_mutex_init(&a->begins, NULL);
    int n = snprintf(a->id, sizeof a->id, "%s-", of->form == ASK_CHAT ? "chatcmpl" : "cmpl");
    if (getrandom(random, sizeof random, 0) != sizeof random)
        memset(random, 0, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        n += snprintf(a->id + n, sizeof a->id - (size_t)n, "%02x", random[i]);
    call_hold(c);
    return a;
}

static void list(struct server *s, struct answer *a)
{
    pthread_mutex_lock(&s->lock);
    a->next = s->answers;
    if (a->next)
        a->next->previous = a;
    s->answers = a;
    s->counts.asked++;
    pthread_mutex_unlock(&s->lock);
}

static void unlist(struct server *s, struct answer *a)
{
    pthread_mutex_lock(&s->lock);
    if (a->previous)
        a->previous->next = a->next;
    else
        s->answers = a->next;
    if (a->next)
        a->next->previous = a->previous;
    s->counts.refused++;
    pthread_mutex_unlock(&s->lock);
}

static void refuse(struct server *s, struct call *c, enum ask_form form, const struct thermo_error *e)
{
    char param[ASK_NAME];
    ask_param(form, e->message, 1, param);
    int asked = e->code == THERMO_E_FORMAT || e->code == THERMO_E_LIMIT || e->code == THERMO_E_UNSUPPORTED || e->code == THERMO_E_USAGE;
    int status = e->code == THERMO_E_FULL ? 429 : e->code == THERMO_E_MEMORY ? 503 : asked ? 400 : 500;
    const char *code = status == 429 ? "queue_full" : strstr(e->message, " context of ") ? "context_length_exceeded" : NULL;
    server_error(s, c, status, *param ? param : NULL, code, e->message);
}

void answer_begin(struct server *s, struct call *c, const struct ask *of)
{
    struct answer *a = new_answer(s, c, of);
    struct thermo_error e = { 0 };
    const struct thermo_request q = { .size = sizeof q, .fields = of->fields.at, .fields_bytes = of->fields.len };
    uint64_t number = 0;
    if (!a) {
        server_error(s, c, 503, NULL, NULL, "out of memory for an answer");
        return;
    }
    list(s, a);
    call_on_gone(c, left, a);
    int r = thermo_submit(s->t, &q, sink, a, &number, &e);
    if (r < 0) {
        call_on_gone(c, NULL, NULL);
        unlist(s, a);
        refuse(s, c, of->form, &e);
        release(a);
    } else {
        atomic_store(&a->number, number);
        if (atomic_load(&a->gone))
            thermo_cancel(s->t, number);
        begin(a);
        call_keep_alive(c, JSON, a->stream ? ": \n\n" : " ");
    }
    release(a);
}

void answer_slots(struct server *s, struct buffer *b)
{
    int i = 0;
    pthread_mutex_lock(&s->lock);
    for (const struct answer *a = s->answers; a; a = a->next, i++)
        buffer_printf(b, "%s{\"id\":%d,\"id_task\":\"%s\",\"n_ctx\":%d,\"is_processing\":true,\"n_decoded\":%d}", i ? "," : "", i, a->id,
                      s->context, a->n_tokens);
    pthread_mutex_unlock(&s->lock);
    for (; i < s->sequences; i++)
        buffer_printf(b, "%s{\"id\":%d,\"n_ctx\":%d,\"is_processing\":false}", i ? "," : "", i, s->context);
}
