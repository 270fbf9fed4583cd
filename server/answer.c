/* Answers, of any form. A stream is events of its tokens, put as they come; a whole answer gathers its text, already
 * escaped, and is put together at the end. The sink runs in the stepping thread and never waits: where the client's buffer is full or no
 * memory is left it pauses the request, which the library ends after a while.
 *
 * An answer is held by its submitter and by the library until its end. A client that leaves is told to `left` by HTTP's threads, under
 * their lock, which touches `number` and `gone` alone. */
#include "server/answer.h"

#include "server/form.h"
#include "server/models.h"

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
    struct answer *next, *previous;  /* guarded by the server's lock: among the open ones */
    int64_t asked_ns, first_ns;
    struct form form;
    int n;                           /* choices */
    atomic_int holders, gone;
    atomic_ullong number;            /* the library's; 0: not submitted */
    pthread_mutex_t begins;
    int begun;                       /* the stream; guarded by begins */
    /* the stepping thread's */
    int n_ended, too_long, failed, interrupted;
    struct form_usage usage;
    struct form_choice choices[];    /* [n] */
};

static void release(struct answer *a)
{
    if (atomic_fetch_sub(&a->holders, 1) > 1)
        return;
    call_release(a->call);
    for (int i = 0; i < a->n; i++)
        form_choice_done(&a->choices[i]);
    buffer_drop(&a->form.echo);
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

/* The stream begins, and a chat's with who speaks; by whoever comes first, submitter or sink. */
static void begin(struct answer *a)
{
    pthread_mutex_lock(&a->begins);
    if (!a->begun && a->form.stream) {
        struct buffer b = { 0 };
        const int waited = call_has(a->call, "Cache-Control"); /* for its model, and has these */
        for (int i = 0; i < a->n && a->form.ops->first; i++)
            a->form.ops->first(&a->form, &b, i);
        if (!waited) {
            call_set(a->call, "Cache-Control", "no-cache");
            call_set(a->call, "X-Accel-Buffering", "no");
        }
        call_begin(a->call, 200, EVENTS);
        call_put(a->call, b.len ? b.at : "", b.len, 1);
        buffer_drop(&b);
    }
    a->begun = 1;
    pthread_mutex_unlock(&a->begins);
}

/* ---- the sink ---- */

static size_t gathered(const struct answer *a)
{
    size_t n = 0;
    for (int i = 0; i < a->n; i++)
        n += form_choice_bytes(&a->choices[i]);
    return n;
}

static void begin_line(struct server *s)
{
    s->line.len = s->line.from = 0;
    s->line.failed = 0;
}

/* The events that the line is. One that lacks something for want of memory ends the answer. */
static int put_line(struct answer *a, int force)
{
    struct server *s = a->s;
    if (!s->line.failed)
        return call_put(a->call, s->line.at, s->line.len, force);
    call_fail(a->call);
    thermo_cancel(s->t, atomic_load(&a->number));
    return 0;
}

/* More than may be gathered. What a stream says again at its end is sent in four forms. */
static int too_long(const struct answer *a, const struct thermo_event *ev)
{
    size_t most = a->s->body_max / (a->form.stream ? 4 : 1);
    return (!a->form.stream || a->form.ops->gathers) && gathered(a) + ev->text_bytes > most;
}

static int put_token(struct answer *a, const struct thermo_event *ev)
{
    const struct form_ops *ops = a->form.ops;
    struct form_choice *c = &a->choices[ev->choice];
    if (ops->gathers && form_room(c, ev, c->text.len - c->open_at) < 0)
        return -1;
    begin_line(a->s);
    ops->token(&a->form, c, &a->s->line, ev);
    if (a->s->line.len && put_line(a, 0) == CALL_FULL)
        return -1;
    ops->take(&a->form, c, ev);
    return 0;
}

static int on_token(struct answer *a, const struct thermo_event *ev)
{
    struct server *s = a->s;
    struct form_choice *c = &a->choices[ev->choice];
    if (too_long(a, ev)) {
        a->too_long = 1;
        thermo_cancel(s->t, ev->id);
    } else if ((a->form.stream ? put_token(a, ev) : a->form.ops->gather(&a->form, c, ev)) < 0) {
        return THERMO_PAUSE;
    }
    if (!a->first_ns)
        a->first_ns = progress_now_ns();
    pthread_mutex_lock(&s->lock);
    c->n_tokens = ev->n_tokens;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static const char *fault_of(const struct answer *a, const struct thermo_event *ev)
{
    return ev->error.code ? ev->error.message
         : a->too_long ? a->form.stream ? "the answer is longer than a quarter of --max-body, and this form says it again at its end"
                                        : "the answer is longer than --max-body; ask for a stream"
         : "the client did not read its answer, or there was no memory for it, for too long";
}

/* A choice has ended, and with the last one the stream. */
static void end_stream(struct answer *a, const struct thermo_event *ev, int bad, int last)
{
    const struct form_ops *ops = a->form.ops;
    struct form_choice *c = &a->choices[ev->choice];
    struct buffer *b = &a->s->line;
    begin_line(a->s);
    if (bad) {
        ops->fail(&a->form, c, b, fault_of(a, ev));
    } else {
        ops->token(&a->form, c, b, ev);
        ops->take(&a->form, c, ev);
        ops->last(&a->form, c, b, ev);
    }
    if (last)
        ops->end(&a->form, a->choices, b, &a->usage, !a->failed && !a->interrupted);
    put_line(a, 1);
    if (ops->gathers)
        buffer_drop(b);
    if (last)
        call_end(a->call);
}

static void end_whole(struct answer *a, const struct thermo_event *ev)
{
    struct buffer b = { .pool = &a->s->pool };
    if (a->failed || a->interrupted) {
        server_error(a->s, a->call, a->too_long ? 400 : 500, NULL, NULL, fault_of(a, ev));
        return;
    }
    for (int i = 0; i < a->n; i++)
        a->form.ops->last(&a->form, &a->choices[i], NULL, ev);
    a->form.ops->whole(&a->form, a->choices, a->n, &b, &a->usage);
    call_reply_buffer(a->call, 200, JSON, &b);
}

static void unlink_answer(struct server *s, struct answer *a)
{
    if (a->previous)
        a->previous->next = a->next;
    else
        s->answers = a->next;
    if (a->next)
        a->next->previous = a->previous;
}

static void count_end(struct answer *a)
{
    struct server *s = a->s;
    struct counts *n = &s->counts;
    double took = (double)(progress_now_ns() - a->asked_ns) / 1e9;
    pthread_mutex_lock(&s->lock);
    unlink_answer(s, a);
    if (a->failed)
        n->failed++;
    else if (a->interrupted)
        n->cancelled++;
    else
        n->answered++;
    n->prompt_tokens += (uint64_t)a->usage.prompt;
    n->cached_tokens += (uint64_t)a->usage.cached;
    n->tokens += (uint64_t)a->usage.made;
    n->total_s += took;
    n->first_s += a->first_ns ? (double)(a->first_ns - a->asked_ns) / 1e9 : 0;
    n->n_first += a->first_ns != 0;
    s->mean_s += (took - s->mean_s) / 8;
    pthread_mutex_unlock(&s->lock);
}

static void on_end(struct answer *a, const struct thermo_event *ev, int gone)
{
    int bad = ev->error.code || a->too_long, cut = !strcmp(ev->stop, "interrupted"), last = ++a->n_ended == a->n;
    a->failed |= bad;
    a->interrupted |= cut;
    a->choices[ev->choice].stop = ev->stop;
    a->choices[ev->choice].stop_text = ev->stop_text;
    a->usage.prompt = ev->prompt_tokens;
    a->usage.cached = ev->choice == 0 ? ev->shared_tokens : a->usage.cached;
    a->usage.made += ev->n_tokens;
    a->usage.thought += ev->n_thought_tokens;
    if (!gone && a->form.stream)
        end_stream(a, ev, bad || cut, last);
    else if (!gone && a->form.ops->gather(&a->form, &a->choices[ev->choice], ev) < 0)
        a->failed = 1;
    if (!last)
        return;
    count_end(a);
    call_on_gone(a->call, NULL, NULL);
    if (gone)
        call_end(a->call);
    else if (!a->form.stream)
        end_whole(a, ev);
    models_leave(a->s->models, 1);
    release(a);
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
    on_end(a, ev, gone);
    return 0;
}

/* ---- submitting ---- */

static struct answer *new_answer(struct server *s, struct call *c, struct ask *of)
{
    struct answer *a = calloc(1, sizeof *a + (size_t)of->n * sizeof a->choices[0]);
    unsigned char random[12] = { 0 };
    if (!a)
        return NULL;
    a->s = s;
    a->call = c;
    a->n = of->n;
    a->asked_ns = progress_now_ns();
    a->form = (struct form){ .ops = form_ops(of->form), .kind = of->form, .stream = of->stream, .usage = of->usage,
                             .logprobs = of->logprobs, .opaque = of->opaque, .created = (int64_t)time(NULL), .model = s->name, .t = s->t,
                             .echo = of->echo };
    of->echo = (struct buffer){ .pool = of->echo.pool };
    for (int i = 0; i < a->n; i++)
        form_choice_init(&a->choices[i], &s->pool);
    atomic_init(&a->holders, 2);
    pthread_mutex_init(&a->begins, NULL);
    int n = snprintf(a->form.id, FORM_ID, "%s", a->form.ops->id);
    if (getrandom(random, sizeof random, 0) != sizeof random)
        memcpy(random, &a->asked_ns, sizeof a->asked_ns);
    for (size_t i = 0; i < sizeof random; i++)
        n += snprintf(a->form.id + n, FORM_ID - (size_t)n, "%02x", random[i]);
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
    unlink_answer(s, a);
    s->counts.refused++;
    pthread_mutex_unlock(&s->lock);
}

static void refuse(struct server *s, struct call *c, enum ask_form form, const struct thermo_error *e)
{
    char param[ASK_NAME];
    ask_param(form, e->message, 1, param);
    int asked = e->code == THERMO_E_FORMAT || e->code == THERMO_E_LIMIT || e->code == THERMO_E_UNSUPPORTED || e->code == THERMO_E_USAGE;
    int status = e->code == THERMO_E_FULL ? 429 : e->code == THERMO_E_MEMORY ? 503 : asked ? 400 : 500;
    int too_long = strstr(e->message, " context of ") != NULL, n = 0;
    const char *code = status == 429 ? "queue_full" : too_long ? "context_length_exceeded" : NULL, *message = e->message;
    struct buffer b = { 0 };
    if (too_long) { /* in words that clients look for */
        int counted = sscanf(message, "the %*s has %d tokens", &n) == 1;
        buffer_printf(&b, counted ? "prompt is too long: %d tokens > %d maximum; " : "prompt is too long; ", n, s->context - 1);
        buffer_printf(&b, "this model's maximum context length is %d tokens (-- --context N)", s->context);
        buffer_put(&b, "", 1, 1);
        message = b.failed ? message : b.at;
        snprintf(param, sizeof param, "%s", form == ASK_TEXT ? "prompt" : form == ASK_RESPONSES ? "input" : "messages");
    }
    server_error(s, c, status, *param ? param : NULL, code, message);
    buffer_drop(&b);
}

void answer_begin(struct server *s, struct call *c, struct ask *of)
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
    models_hold(s->models); /* until it ends */
    if (call_on_gone(c, left, a))
        atomic_store(&a->gone, 1);
    int r = thermo_submit(s->t, &q, sink, a, &number, &e);
    if (r < 0) {
        call_on_gone(c, NULL, NULL);
        unlist(s, a);
        models_leave(s->models, 1);
        refuse(s, c, of->form, &e);
        release(a);
    } else {
        atomic_store(&a->number, number);
        if (atomic_load(&a->gone))
            thermo_cancel(s->t, number);
        begin(a);
        call_keep_alive(c, JSON, a->form.stream ? a->form.ops->alive : " ");
    }
    release(a);
}

int answer_count(const struct server *s)
{
    int n = 0;
    for (const struct answer *a = s->answers; a; a = a->next)
        n += a->n;
    return n;
}

void answer_slots(struct server *s, struct buffer *b)
{
    int i = 0;
    pthread_mutex_lock(&s->lock);
    for (const struct answer *a = s->answers; a; a = a->next)
        for (int k = 0; k < a->n; k++, i++)
            buffer_printf(b, "%s{\"id\":%d,\"n_ctx\":%d,\"is_processing\":true,\"request\":\"%s\",\"choice\":%d,\"n_decoded\":%d}",
                          i ? "," : "", i, s->context, a->form.id, k, a->choices[k].n_tokens);
    pthread_mutex_unlock(&s->lock);
    for (; i < s->sequences; i++)
        buffer_printf(b, "%s{\"id\":%d,\"n_ctx\":%d,\"is_processing\":false}", i ? "," : "", i, s->context);
}
