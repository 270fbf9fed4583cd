/* Answers, of any form. A stream is events of its tokens, put as they come; a whole answer gathers its text, already
 * escaped, and is put together at the end. The sink runs in the stepping thread and never waits: where the client's buffer is full or no
 * memory is left it pauses the request, which the library ends after a while.
 *
 * Of several prompts each is a request of the library (struct part), and the answer begins once all of them have been taken: until then
 * no token is, and what ends have to say waits. Where one is not, those before it are cancelled, and the client hears that alone.
 *
 * An answer is held by its submitter and by each part until its end. A client that leaves is told to `left` by HTTP's threads, under
 * their lock, which touches numbers and `gone` alone. */
#include "server/answer.h"

#include "server/form.h"
#include "server/models.h"

#include "common/base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define JSON   "application/json"
#define EVENTS "text/event-stream"

/* A prompt, and its choices, which are the answer's from `first` on. */
struct part {
    struct answer *a;
    int first, n_ended;              /* n_ended: the stepping thread's */
    atomic_ullong number;            /* the library's; 0: not submitted */
};

struct answer {
    struct server *s;
    struct call *call;
    struct answer *next, *previous;  /* guarded by the server's lock: among the open ones */
    int64_t asked_ns, first_ns;
    struct form form;
    int n, n_parts;                  /* choices, of all of them */
    struct part *parts;              /* [n_parts], behind choices */
    atomic_int holders, gone, taken, refused; /* taken: all parts; refused: one was not */
    pthread_mutex_t begins;
    int begun;                       /* the stream; guarded by begins, as is */
    struct buffer early;             /* what it has to say before it has begun */
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
    buffer_drop(&a->early);
    pthread_mutex_destroy(&a->begins);
    free(a);
}

static void cancel(struct answer *a)
{
    for (int i = 0; i < a->n_parts; i++) {
        uint64_t number = atomic_load(&a->parts[i].number);
        if (number)
            thermo_cancel(a->s->t, number);
    }
}

/* The client closed its connection. */
static void left(void *ctx)
{
    struct answer *a = ctx;
    atomic_store(&a->gone, 1);
    cancel(a);
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
        form_append(&b, &a->early);
        call_put(a->call, b.len ? b.at : "", b.len, 1);
        if (b.failed)
            call_fail(a->call);
        buffer_drop(&b);
        buffer_drop(&a->early);
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
    pthread_mutex_lock(&a->begins);
    const int early = !a->begun;
    if (early)
        form_append(&a->early, &s->line);
    pthread_mutex_unlock(&a->begins);
    if (early)
        return 0;
    if (!s->line.failed)
        return call_put(a->call, s->line.at, s->line.len, force);
    call_fail(a->call);
    cancel(a);
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
        cancel(a);
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

/* What it is worth is gathered, for it comes many at a time. */
static void on_prompt(struct answer *a, const struct thermo_event *ev)
{
    if (a->too_long)
        return;
    form_prompt(&a->form, &a->choices[ev->choice], ev);
    if (gathered(a) <= a->s->body_max && atomic_load(&a->s->pool.used) <= a->s->pool.most)
        return;
    a->too_long = 2;
    cancel(a);
}

static const char *fault_of(const struct answer *a, const struct thermo_event *ev)
{
    return ev->error.code ? ev->error.message
         : a->too_long == 2 ? "the log-probabilities of the prompt are longer than --max-body, or there is no memory for them"
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
    if (ev->choice % a->form.each == 0) { /* the prompt's first */
        a->usage.prompt += ev->prompt_tokens;
        a->usage.cached += ev->shared_tokens;
    }
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
}

static int sink(void *ctx, const struct thermo_event *of)
{
    struct part *p = ctx;
    struct answer *a = p->a;
    struct thermo_event ev = *of;
    int gone = atomic_load(&a->gone), taken = atomic_load(&a->taken), is_token = ev.type == THERMO_TOKEN;
    ev.choice += p->first;
    if (ev.type == THERMO_PROMPT) {
        if (!gone)
            on_prompt(a, &ev);
        return 0;
    }
    if (is_token && (gone || !taken))
        return gone ? 0 : THERMO_PAUSE;
    if (!gone && taken)
        begin(a);
    if (is_token)
        return on_token(a, &ev);
    if (!atomic_load(&a->refused))
        on_end(a, &ev, gone);
    if (++p->n_ended == a->form.each) {
        models_leave(a->s->models, 1);
        release(a);
    }
    return 0;
}

/* ---- submitting ---- */

static struct answer *new_answer(struct server *s, struct call *c, struct ask *of)
{
    const size_t n = (size_t)of->n * (size_t)of->n_prompts;
    struct answer *a = calloc(1, sizeof *a + n * sizeof a->choices[0] + (size_t)of->n_prompts * sizeof *a->parts);
    unsigned char random[12] = { 0 };
    if (!a)
        return NULL;
    a->s = s;
    a->call = c;
    a->n = (int)n;
    a->n_parts = of->n_prompts;
    a->parts = (struct part *)(void *)(a->choices + n);
    for (int i = 0; i < a->n_parts; i++)
        a->parts[i] = (struct part){ .a = a, .first = i * of->n };
    a->asked_ns = progress_now_ns();
    a->form = (struct form){ .ops = form_ops(of->form), .kind = of->form, .stream = of->stream, .usage = of->usage,
                             .logprobs = of->logprobs, .opaque = of->opaque, .created = (int64_t)time(NULL), .model = s->name, .t = s->t,
                             .echo = of->echo, .each = of->n };
    of->echo = (struct buffer){ .pool = of->echo.pool };
    for (int i = 0; i < a->n; i++)
        form_choice_init(&a->choices[i], &s->pool);
    atomic_init(&a->holders, 1);
    atomic_init(&a->taken, a->n_parts == 1);
    pthread_mutex_init(&a->begins, NULL);
    int at = snprintf(a->form.id, FORM_ID, "%s", a->form.ops->id);
    if (getrandom(random, sizeof random, 0) != sizeof random)
        memcpy(random, &a->asked_ns, sizeof a->asked_ns);
    for (size_t i = 0; i < sizeof random; i++)
        at += snprintf(a->form.id + at, FORM_ID - (size_t)at, "%02x", random[i]);
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

static int submit(struct answer *a, struct ask *of, int i, struct thermo_error *e)
{
    struct err why;
    uint64_t number = 0;
    if (ask_turn(of, i, &why) < 0) {
        *e = (struct thermo_error){ .code = THERMO_E_MEMORY, .message = "out of memory for a request" };
        return THERMO_E_MEMORY;
    }
    const struct thermo_request q = { .size = sizeof q, .fields = of->fields.at, .fields_bytes = of->fields.len };
    models_hold(a->s->models); /* until it ends */
    atomic_fetch_add(&a->holders, 1);
    int r = thermo_submit(a->s->t, &q, sink, &a->parts[i], &number, e);
    if (r < 0) {
        models_leave(a->s->models, 1);
        atomic_fetch_sub(&a->holders, 1); /* the caller has one */
        return r;
    }
    atomic_store(&a->parts[i].number, number);
    if (atomic_load(&a->gone))
        thermo_cancel(a->s->t, number);
    return 0;
}

void answer_begin(struct server *s, struct call *c, struct ask *of)
{
    struct answer *a = new_answer(s, c, of);
    struct thermo_error e = { 0 };
    int r = 0;
    if (!a) {
        server_error(s, c, 503, NULL, NULL, "out of memory for an answer");
        return;
    }
    list(s, a);
    if (call_on_gone(c, left, a))
        atomic_store(&a->gone, 1);
    for (int i = 0; i < a->n_parts && r == 0; i++)
        r = submit(a, of, i, &e);
    if (r < 0) {
        call_on_gone(c, NULL, NULL);
        atomic_store(&a->refused, 1);
        atomic_store(&a->gone, 1);
        cancel(a);
        unlist(s, a);
        refuse(s, c, of->form, &e);
    } else {
        atomic_store(&a->taken, 1);
        if (a->n_parts > 1)
            thermo_wake(s->t);
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
