/* The library on top of the runtime: generate_set has the model and the batch, this has the threads and the callers.
 *
 *     submit (any thread)      prepares a request under `preparing`, then queues it under `lock`
 *     cancel (any thread)      sets a flag under `lock`
 *     resize (any thread)      between passes: it claims the engine's lock, which a step gives up after each
 *     step (one thread)        takes what is queued, ends what is cancelled, offers paused tokens again, makes a pass
 *
 * The batch and all that is below it belong to the stepping thread. A place (struct place) is FREE, PREPARING (its submitter's), QUEUED or
 * OPEN (the stepping thread's); its state and the flag are guarded by `lock`. What others read of the stepping thread's work is a copy that
 * each step makes under `lock`. A step that waits does so in poll() on a pipe, which whoever has something for it writes to; so may a
 * signal handler. */
#include "runtime/thermo.h"

#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/base/version.h"
#include "common/plan/room.h"

#include "runtime/engine/kv_prefix.h"
#include "runtime/fair_lock.h"
#include "runtime/follow.h"
#include "runtime/generate.h"
#include "runtime/identity.h"
#include "runtime/inputs.h"
#include "runtime/report.h"
#include "runtime/said.h"
#include "runtime/thermo_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IN_FLIGHT  4        /* requests per sequence that are made or wait */
#define PAUSE_MS   10000
#define OFFER_MS   10       /* how often a paused token is offered by a step that waits */

#define SAME(theirs, ours) _Static_assert((int)THERMO_E_##theirs == (int)ERR_##ours, "codes are those of err.h")
SAME(SYSTEM, SYS);
SAME(MEMORY, NOMEM);
SAME(FORMAT, FORMAT);
SAME(UNSUPPORTED, UNSUPPORTED);
SAME(LIMIT, LIMIT);
SAME(INPUT, INPUT);
SAME(USAGE, USAGE);
SAME(INFEASIBLE, INFEASIBLE);
SAME(MISMATCH, MISMATCH);
SAME(IO, IO);
SAME(INTERRUPTED, INTR);
SAME(FULL, FULL);
#undef SAME
_Static_assert(sizeof(struct cancel) == sizeof(int), "options.cancel is an int");

enum state { FREE, PREPARING, QUEUED, OPEN };

#define HEAD (THERMO_CALL + 1) /* before a call's arguments: index, id and name, each with a NUL */

struct place {
    struct request *q;
    enum state state;       /* guarded by lock, */
    struct cancel cancel;
    uint64_t id;
    struct place *after;    /* in the queue */
    thermo_sink *sink;      /* constant while QUEUED and OPEN */
    void *ctx;
    /* the stepping thread's */
    struct said *held;      /* what the sink did not take of a token; NULL: nothing waits */
    int32_t token;          /* -1: once it has */
    int part;               /* of the token, where it has no text */
    int64_t since_ns;
    int flushed;            /* its text has come out to its end */
    int ended;              /* while its last token waits: the end comes after it, as */
    enum batch_end end;
    struct err why;
};

struct thermo {
    struct generate_args args;
    struct generate_set set;
    struct place *places;   /* [set.n] */
    char *words;            /* options and their text, which args points into */
    int pause_ms, max_batch;
    char pack_hash[HASH_TEXT], run_hash[HASH_TEXT]; /* runtime/identity.h */
    int known, started;     /* requests are known beforehand; the model is loaded */
    size_t room;            /* for one of these */
    struct cancel own, *cancel;
    int pipe[2];
    struct follow *follow;  /* or NULL */
    struct fair_lock engine_lock; /* of who uses the engine; taken before: */
    pthread_mutex_t lock, preparing;
    /* guarded by lock */
    struct place *first, *last;
    uint64_t last_id, n_requests, n_tokens;
    struct engine_stats stats;
    struct report copied;   /* of work */
    uint64_t gave_way;      /* of the batch */
    struct adapting adapting;
    /* the stepping thread's */
    struct report work;
    struct engine_stats before; /* the step under way, and */
    int64_t step_ns;        /* its beginning; 0: none is */
    uint64_t n_made;        /* tokens */
    int pages_left;         /* that the folder lacks, after the last pass */
    atomic_int unwritten;   /* others ask: of what the folder is to have */
    struct said *said;
    const struct output *from; /* whose text `said` is */
    struct thermo_top top[BATCH_TOP];
    struct said *held[BUDGET_MAX_BATCH]; /* [max_batch]: buffers that no place has */
    int n_held, n_paused;
};

static int fail(struct thermo_error *out, const struct err *e)
{
    if (out) {
        out->code = e->code;
        snprintf(out->message, sizeof out->message, "%s", e->msg);
    }
    return e->code;
}

const char *thermo_version(void)
{
    return THERMO_VERSION;
}

int thermo_exit_status(int code)
{
    return code > 0 ? 1 : err_exit_status(code);
}

void thermo_free(void *p)
{
    free(p);
}

/* ---- opening ---- */

static void on_scored(void *ctx, struct batch_text *b, int at);
static int on_token(void *ctx, struct batch_text *b, int32_t id);
static void on_end(void *ctx, struct batch_text *b, enum batch_end end, const struct err *why);

static int open_pipe(struct thermo *t, struct err *e)
{
    if (pipe(t->pipe) < 0) {
        t->pipe[0] = t->pipe[1] = -1;
        return err_sys(e, ERR_SYS, "a pipe");
    }
    for (int i = 0; i < 2; i++)
        if (fcntl(t->pipe[i], F_SETFL, O_NONBLOCK) < 0 || fcntl(t->pipe[i], F_SETFD, FD_CLOEXEC) < 0)
            return err_sys(e, ERR_SYS, "a pipe");
    return 0;
}

static int context_of(const struct thermo *t)
{
    return t->set.setup.config.choice.context;
}

/* That JSON of a request may take. */
static size_t json_bytes(const struct thermo *t)
{
    return t->args.conversation ? messages_json_bytes(context_of(t)) : request_json_bytes(context_of(t));
}

static int open_places(struct thermo *t, struct err *e)
{
    t->max_batch = t->set.setup.config.choice.max_batch;
    t->places = calloc((size_t)t->set.n, sizeof *t->places);
    int most = t->max_batch < t->set.n ? t->max_batch : t->set.n;
    for (; t->n_held < most && t->places; t->n_held++)
        if (!(t->held[t->n_held] = said_new(said_most(t->args.calls, context_of(t)))))
            break;
    t->said = said_new(said_most(t->args.calls, context_of(t)));
    if (t->n_held < most || !t->said)
        return err_set(e, ERR_NOMEM, "out of memory for %d requests", t->set.n);
    for (int i = 0; i < t->set.n; i++)
        t->places[i].q = &t->set.requests[i];
    return 0;
}

/* Requests that are known beforehand. */
static int ask_before(struct thermo *t, const struct thermo_options *o, struct err *e)
{
    struct thermo_error why = { 0 };
    if (!o->before)
        return 0;
    t->room = setup_room(&t->set.setup);
    int r = o->before(o->before_ctx, t, t->room, &why);
    t->room = 0;
    generate_set_read(&t->set);
    return r < 0 ? err_set(e, r, "%s", why.message) : r > 0 ? err_set(e, ERR_USAGE, "options.before gave %d", r) : 0;
}

/* Those, now that the batch is there. */
static int check_known(struct thermo *t, struct err *e)
{
    int r = 0;
    for (struct place *p = t->first; p && r == 0; p = p->after)
        r = batch_check(&t->set.batch, &p->q->text, e);
    return r;
}

static void wake_up(void *t)
{
    thermo_wake(t);
}

/* Reads files, then loads the model. */
static int open_all(struct thermo *t, const struct thermo_options *o, struct err *e)
{
    struct hash128 pack, how;
    int r;
    t->args.wake = wake_up;
    t->args.wake_ctx = t;
    if ((r = generate_set_open(&t->set, &t->args, IN_FLIGHT, e)) < 0 || (r = identity_of(&t->set.setup, &pack, &how, e)) < 0)
        return r;
    hash_text(pack, t->pack_hash);
    hash_text(how, t->run_hash);
    if ((r = open_places(t, e)) < 0 || (r = ask_before(t, o, e)) < 0)
        return r;
    int64_t start = progress_now_ns();
    if ((r = generate_set_start(&t->set, on_scored, on_end, on_token, t, e)) < 0)
        return r;
    t->work = (struct report){ .load_ns = (uint64_t)(progress_now_ns() - start), .guessing = t->args.guess,
                               .guess_most = t->set.batch.guess.most, .guess_ns = t->set.batch.guess.guess_ns };
    int compares = !setup_differs(&t->set.setup) && !t->args.guess;
    if ((r = adapting_init(&t->adapting, &t->set.setup, t->set.engine, t->args.adapt, compares, e)) < 0)
        return r;
    t->work.adapting = &t->adapting;
    t->copied = t->work;
    t->stats = engine_stats(t->set.engine);
    t->started = 1;
    return check_known(t, e);
}

/* What a plan for serve keeps; 1 KiB each of it is for the tables of a batch. */
_Static_assert(REQUEST_READING + CHAT_BYTES + REPLAY_FIXED + 1024 <= ROOM_SERVE &&
               REQUEST_READING_PER_TOKEN + CHAT_BYTES_PER_TOKEN <= ROOM_SERVE_PER_TOKEN &&
               IN_FLIGHT * REQUEST_PER_TOKEN + KV_PREFIX_PER_TOKEN + (3 * IN_FLIGHT + 4) * REQUEST_CALL_PER_TOKEN <= ROOM_SERVE_PER_PLACE &&
               sizeof(struct said) + IN_FLIGHT * (sizeof(struct place) + REQUEST_FIXED) + sizeof(struct batch_text) + 1024 <=
                   ROOM_SERVE_PER_SEQUENCE, "a plan for serve keeps as much");

/* And one for chat: the request that a turn is, the table of a batch and that of pages. */
_Static_assert(2 * (sizeof(struct said) + 2 * SAID_BYTES + 1) + sizeof(struct place) + REQUEST_FIXED + 2 * GENERATE_STOP + 8192 +
               CHAT_BYTES + MESSAGES_READING <= ROOM_CHAT &&
               REQUEST_PER_TOKEN + KV_PREFIX_PER_TOKEN + CHAT_BYTES_PER_TOKEN + MESSAGES_READING_PER_TOKEN <= ROOM_CHAT_PER_TOKEN,
               "a plan for chat keeps as much");

/* A conversation is one request at a time. */
static int check_conversation(const struct thermo_options *o, const struct generate_args *a, struct err *e)
{
    const char *what = a->setup.batch > 1 ? "sequences" : o->requests > 1 ? "requests" : o->before ? "before" : o->calls ? "calls" : NULL;
    return o->conversation && what ? err_set(e, ERR_USAGE, "options.conversation is for one request at a time; options.%s does not go with "
                                             "it", what) : 0;
}

static uint64_t limit_now(void *ctx)
{
    struct thermo *t = ctx;
    pthread_mutex_lock(&t->lock);
    uint64_t bytes = t->set.setup.memory_bytes;
    pthread_mutex_unlock(&t->lock);
    return bytes;
}

static int resize(void *ctx, uint64_t bytes, struct err *e)
{
    struct thermo_error why = { 0 };
    return thermo_resize(ctx, bytes, &why) < 0 ? err_set(e, why.code, "%s", why.message) : 0;
}

/* Loads the model, between the two halves of who follows. */
static int open_followed(struct thermo *t, const struct thermo_options *o, struct err *e)
{
    struct generate_args *a = &t->args;
    struct follow_config c = { a->memory_file, a->pressure, a->setup.elastic, limit_now, resize, t };
    int r, follows = a->memory_file || a->pressure;
    a->reserved += follows ? FOLLOW_BYTES : 0;
    if ((follows && (r = follow_new(&c, &t->follow, e)) < 0) || (r = open_all(t, o, e)) < 0)
        return r;
    return follows ? follow_start(t->follow, t->set.setup.memory_bytes, e) : 0;
}

int thermo_open(const struct thermo_options *given, struct thermo **out, struct thermo_error *error)
{
    struct err e = { 0 };
    struct thermo_options o;
    int r = thermo_take(&o, sizeof o, given, sizeof o, "options", &e);
    if (r == 0 && o.sequences < 0)
        r = err_set(&e, ERR_USAGE, "options.sequences is %d", o.sequences);
    if (r < 0)
        return fail(error, &e);
    struct thermo *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(&e, ERR_NOMEM, "out of memory");
        return fail(error, &e);
    }
    t->pipe[0] = t->pipe[1] = -1;
    t->pause_ms = o.pause_ms > 0 ? o.pause_ms : PAUSE_MS;
    t->cancel = o.cancel ? (struct cancel *)(void *)o.cancel : &t->own;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->preparing, NULL);
    fair_lock_init(&t->engine_lock);
    generate_args_init(&t->args);
    t->args.messages = o.messages;
    t->args.reserved = o.reserved_bytes;
    t->args.reserved_per_token = o.reserved_per_token;
    t->args.requests = o.requests;
    t->args.known = t->known = o.before != NULL;
    t->args.chat = t->args.conversation = o.conversation;
    if ((r = thermo_args(&o, &t->args, &t->words, &e)) == 0 && (r = check_conversation(&o, &t->args, &e)) == 0) {
        if (o.conversation)
            t->args.setup.batch = t->args.requests = 1;
        t->args.setup.cancel = t->cancel;
        t->args.calls = o.calls && (t->args.chat || t->args.messages);
        t->args.setup.schemas = o.schemas ? o.schemas : t->args.setup.schemas;
        t->args.per_sequence = sizeof(struct said) + 2 * said_most(t->args.calls, 0) + 1;
        t->args.per_request = sizeof(struct place);
        r = open_pipe(t, &e);
    }
    if (r < 0 || (r = open_followed(t, &o, &e)) < 0) {
        thermo_close(t);
        return fail(error, &e);
    }
    *out = t;
    return 0;
}

void thermo_close(struct thermo *t)
{
    if (!t)
        return;
    follow_free(t->follow);
    generate_set_close(&t->set);
    for (int i = 0; t->places && i < t->set.n; i++)
        free(t->places[i].held);
    for (int i = 0; i < t->n_held; i++)
        free(t->held[i]);
    for (int i = 0; i < 2; i++)
        if (t->pipe[i] >= 0)
            close(t->pipe[i]);
    free(t->said);
    free(t->places);
    generate_args_done(&t->args);
    free(t->words);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->preparing);
    fair_lock_done(&t->engine_lock);
    free(t);
}

/* ---- from any thread ---- */

void thermo_wake(struct thermo *t)
{
    int was = errno;
    if (write(t->pipe[1], "", 1) < 0) /* full: it wakes anyway */
        errno = was;
}

int thermo_unwritten(struct thermo *t)
{
    return t->unwritten;
}

void thermo_interrupt(struct thermo *t)
{
    cancel_ask(t->cancel);
    thermo_wake(t);
}

int thermo_cancel(struct thermo *t, uint64_t id)
{
    int found = 0;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->set.n; i++) { /* each choice has one */
        struct place *p = &t->places[i];
        int is = p->id == id && (p->state == QUEUED || p->state == OPEN);
        if (is)
            cancel_ask(&p->cancel);
        found |= is;
    }
    pthread_mutex_unlock(&t->lock);
    thermo_wake(t);
    return found ? 0 : THERMO_E_USAGE;
}

static int check_request(const struct thermo *t, const struct thermo_request *q, thermo_sink *sink, struct err *e)
{
    size_t most = t->room ? inputs_text_bytes(t->room) : request_line_bytes(context_of(t));
    if (!sink)
        return err_set(e, ERR_USAGE, "a request has no sink");
    if (t->known && t->started)
        return err_set(e, ERR_USAGE, "with options.before requests are submitted there");
    if (q->prompt_bytes >= most || q->fields_bytes >= most - q->prompt_bytes)
        return err_set(e, ERR_LIMIT, "a request of %zu and %zu bytes; of a context of %d tokens it has at most %zu", q->prompt_bytes,
                       q->fields_bytes, context_of(t), most - 1);
    if (!q->prompt && !q->fields)
        return err_set(e, ERR_USAGE, "a request has neither a prompt nor fields");
    return 0;
}

/* Tokens and fields, in the submitter's thread. Templates and JSON take memory that the account has once. */
static int prepare(struct thermo *t, struct request *q, const struct thermo_request *of, struct err *e)
{
    struct js *j = NULL;
    char *text = of->prompt ? malloc(of->prompt_bytes + 1) : NULL; /* templates take it to its NUL */
    int r = of->prompt && !text ? err_set(e, ERR_NOMEM, "out of memory for a request") : 0;
    if (text) {
        memcpy(text, of->prompt, of->prompt_bytes);
        text[of->prompt_bytes] = 0;
    }
    if (r == 0 && of->fields && !(j = js_parse_within(of->fields, of->fields_bytes, json_bytes(t), "a request", e)))
        r = e->code;
    if (r == 0)
        r = request_read(q, j, text, of->prompt_bytes, e);
    js_free(j);
    free(text);
    q->text.prompt = q->ids;
    q->text.n_prompt = q->n_prompt;
    q->text.made = q->ids + q->n_prompt;
    q->text.n_siblings = q->choices - 1;
    return r < 0 || !t->started ? r : batch_check(&t->set.batch, &q->text, e);
}

static int no_place(const struct thermo *t, struct err *e)
{
    return err_set(e, ERR_FULL, "all %d places for requests are taken", t->set.n);
}

static struct place *take_place(struct thermo *t)
{
    struct place *p = NULL;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->set.n && !p; i++)
        if (t->places[i].state == FREE)
            p = &t->places[i];
    if (p)
        p->state = PREPARING;
    pthread_mutex_unlock(&t->lock);
    return p;
}

/* A place of its own for each other choice. */
static int take_siblings(struct thermo *t, struct request *q, struct err *e)
{
    struct request *last = q;
    for (int i = 1; i < q->choices; i++, last = last->text.siblings->owner) {
        struct place *p = take_place(t);
        if (!p)
            return no_place(t, e);
        int r = request_sibling(p->q, q, i, e);
        last->text.siblings = &p->q->text;
        if (r < 0)
            return r;
    }
    return t->started ? batch_check(&t->set.batch, &q->text, e) : 0; /* of all of them */
}

static void to_text(void *ctx, const char *text, size_t len)
{
    struct thermo *t = ctx;
    said_put(t->said, text, len, t->from->now == CHAT_THOUGHT ? THERMO_THOUGHT : THERMO_TEXT);
}

static int to_call(void *ctx, const struct calls_out *out)
{
    struct thermo *t = ctx;
    char index[16];
    snprintf(index, sizeof index, "%d", out->index);
    said_put(t->said, index, strlen(index) + 1, HEAD);
    said_put(t->said, out->id, strlen(out->id) + 1, HEAD);
    said_put(t->said, out->name, strlen(out->name) + 1, HEAD);
    said_put(t->said, out->text, out->n, THERMO_CALL);
    return 0;
}

static struct place *place_of(struct thermo *t, const struct request *q)
{
    return &t->places[q - t->set.requests];
}

/* The place behind one in the list of a request's choices, or NULL. */
static struct place *next_choice(struct thermo *t, const struct place *p)
{
    return p->q->text.siblings ? place_of(t, p->q->text.siblings->owner) : NULL;
}

/* Places of a request that was prepared: the first waits for the stepping thread. */
static uint64_t queue(struct thermo *t, struct place *p, thermo_sink *sink, void *ctx)
{
    uint64_t id = ++t->last_id;
    for (struct place *i = p; i; i = next_choice(t, i)) {
        i->state = QUEUED;
        i->flushed = 0;
        atomic_store(&i->cancel.asked, 0);
        i->q->text.cancel = &i->cancel;
        i->sink = sink;
        i->ctx = ctx;
        i->after = NULL;
        i->id = id;
    }
    t->n_requests++;
    if (t->last)
        t->last->after = p;
    else
        t->first = p;
    t->last = p;
    return id;
}

int thermo_submit(struct thermo *t, const struct thermo_request *given, thermo_sink *sink, void *ctx, uint64_t *id,
                  struct thermo_error *error)
{
    struct err e = { 0 };
    struct thermo_request q;
    int r = thermo_take(&q, sizeof q, given, sizeof q, "request", &e);
    r = r < 0 ? r : check_request(t, &q, sink, &e);
    struct place *p = r < 0 ? NULL : take_place(t);
    if (r < 0)
        return fail(error, &e);
    if (!p) {
        no_place(t, &e);
        return fail(error, &e);
    }
    pthread_mutex_lock(&t->preparing);
    request_begin(p->q, "");
    p->q->text.sampling.seed = t->args.seed + t->n_requests; /* n_requests: changed under both locks */
    if ((r = prepare(t, p->q, &q, &e)) == 0)
        r = take_siblings(t, p->q, &e);
    for (struct place *i = p; i && r == 0; i = next_choice(t, i)) {
        r = request_text(i->q, to_text, t, &e);
        i->q->output.parts = 1;
        i->q->output.call = to_call;
        i->q->output.call_ctx = t;
    }
    pthread_mutex_lock(&t->lock);
    if (r == 0)
        *id = queue(t, p, sink, ctx);
    for (struct place *i = r < 0 ? p : NULL; i; i = next_choice(t, i)) {
        request_drawn(i->q); /* nothing has been */
        i->state = FREE;
    }
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_unlock(&t->preparing);
    if (r < 0)
        return fail(error, &e);
    thermo_wake(t);
    return 0;
}

char *thermo_describe(struct thermo *t)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    fputc('{', f);
    pthread_mutex_lock(&t->lock);
    report_configuration(f, &t->set.setup, t->set.engine);
    print_json_to(f, ",\"pack_hash\":\"%s\",\"run_hash\":\"%s\",\"template\":%s,\"calls\":\"%s\",\"schemas\":%d", t->pack_hash,
                  t->run_hash, t->set.shared.chat ? "true" : "false",
                  calls_form_names[t->set.shared.chat && t->args.calls ? chat_form(t->set.shared.chat) : CALLS_NONE],
                  t->args.setup.schemas);
    fprintf(f, ",\"sequences\":%d,\"requests\":%d,\"line_bytes\":%zu,\"json_bytes\":%zu,\"seed\":%llu,\"answered\":%llu,\"tokens\":%llu,"
            "\"gave_way\":%llu,\"passes\":%llu,\"reads\":%llu,\"read_bytes\":%llu", t->max_batch, t->set.n,
            request_line_bytes(context_of(t)) - 1, json_bytes(t),
            (unsigned long long)t->args.seed, (unsigned long long)t->n_requests, (unsigned long long)t->n_tokens,
            (unsigned long long)t->gave_way, (unsigned long long)t->stats.passes, (unsigned long long)t->stats.reads,
            (unsigned long long)t->stats.read_bytes);
    report_batches(f, t->set.engine, &t->stats);
    report_store(f, t->set.store);
    report_work(f, &t->set.setup, t->set.engine, &t->copied);
    pthread_mutex_unlock(&t->lock);
    fputc('}', f);
    int bad = ferror(f);
    if (fclose(f) || bad) {
        free(text);
        return NULL;
    }
    return text;
}

int thermo_tokenize(struct thermo *t, const char *text, size_t bytes, int special, int32_t **ids, size_t *n,
                    struct thermo_error *error)
{
    struct err e = { 0 };
    int count = 0;
    size_t most = request_line_bytes(context_of(t));
    int r = bytes < most ? 0 : err_set(&e, ERR_LIMIT, "a text of %zu bytes; of a context of %d tokens it has at most %zu", bytes,
                                       context_of(t), most - 1);
    pthread_mutex_lock(&t->preparing);
    if (r == 0)
        r = tokenizer_encode(t->set.setup.tokenizer, text, bytes, 1, special, ids, &count, &e);
    pthread_mutex_unlock(&t->preparing);
    *n = (size_t)count;
    return r < 0 ? fail(error, &e) : 0;
}

/* text: NULL for a count of tokens. */
static int converse(struct thermo *t, const char *fields, size_t bytes, char **text, size_t *n, struct thermo_error *error)
{
    struct err e = { 0 };
    struct js *j = NULL;
    size_t most = request_line_bytes(context_of(t));
    int r = bytes < most ? 0 : err_set(&e, ERR_LIMIT, "fields of %zu bytes; of a context of %d tokens they have at most %zu", bytes,
                                       context_of(t), most - 1);
    pthread_mutex_lock(&t->preparing);
    if (r == 0 && !(j = js_parse_within(fields, bytes, json_bytes(t), "a request", &e)))
        r = e.code;
    if (r == 0)
        r = text ? request_render(&t->set.shared, j, text, n, &e) : request_count(&t->set.shared, j, n, &e);
    js_free(j);
    pthread_mutex_unlock(&t->preparing);
    return r < 0 ? fail(error, &e) : 0;
}

int thermo_render(struct thermo *t, const char *fields, size_t bytes, char **text, size_t *n, struct thermo_error *error)
{
    return converse(t, fields, bytes, text, n, error);
}

int thermo_count(struct thermo *t, const char *fields, size_t bytes, size_t *n, struct thermo_error *error)
{
    return converse(t, fields, bytes, NULL, n, error);
}

const char *thermo_piece(struct thermo *t, int32_t id, size_t *bytes)
{
    return tokenizer_piece(t->set.setup.tokenizer, id, bytes);
}

/* ---- the stepping thread ---- */

static void tell(struct thermo *t, const struct place *p)
{
    t->said->n = t->said->taken = 0;
    t->from = &p->q->output;
}

/* What a step has added until now. */
static void add_step(const struct thermo *t, struct report_phase *p)
{
    const struct engine_stats now = engine_stats(t->set.engine);
    uint64_t sum[sizeof now / sizeof(uint64_t)], a[sizeof now / sizeof(uint64_t)], b[sizeof now / sizeof(uint64_t)];
    _Static_assert(sizeof now % sizeof(uint64_t) == 0, "struct engine_stats is counts, each a uint64_t");
    memcpy(sum, &p->stats, sizeof sum);
    memcpy(a, &t->before, sizeof a);
    memcpy(b, &now, sizeof b);
    for (size_t i = 0; i < sizeof sum / sizeof *sum; i++)
        sum[i] += b[i] - a[i];
    memcpy(&p->stats, sum, sizeof sum);
    p->ns += (uint64_t)(progress_now_ns() - t->step_ns);
}

static void tell_counts(const struct thermo *t, struct thermo_event *ev)
{
    struct report_phase p = t->work.decode;
    if (t->step_ns && !t->set.batch.reads)
        add_step(t, &p);
    const struct engine_stats *s = &p.stats;
    ev->decode_ns = p.ns;
    ev->stall_ns = s->stall_ns;
    ev->reads = s->reads;
    ev->read_bytes = s->read_bytes;
    ev->lookups = s->lookups;
    ev->hits = s->hits;
    ev->active = s->neurons_hot + s->neurons_cold + s->neurons_read;
}

/* Bytes of the head of a call that comes next; 0: it is text. */
static size_t head_of(const struct said *of, struct thermo_event *ev)
{
    const char *at = of->text + of->taken;
    ev->call_index = 0;
    ev->call_id = ev->call_name = NULL;
    if (of->taken == of->n || of->part[of->taken] != HEAD)
        return 0;
    ev->call_index = atoi(at);
    ev->call_id = at + strlen(at) + 1;
    ev->call_name = ev->call_id + strlen(ev->call_id) + 1;
    return (size_t)(ev->call_name + strlen(ev->call_name) + 1 - at);
}

static void tell_top(struct thermo *t, const struct batch_text *b)
{
    for (int i = 0; i < b->n_top; i++)
        t->top[i] = (struct thermo_top){ b->top[i], b->top_logprob[i] };
}

/* A token of a prompt, to each of those that go on from it. */
static void on_scored(void *ctx, struct batch_text *b, int at)
{
    struct thermo *t = ctx;
    tell_top(t, b);
    for (struct place *p = place_of(t, b->owner); p; p = next_choice(t, p)) {
        struct thermo_event ev = { .size = sizeof ev, .type = THERMO_PROMPT, .id = p->id, .text = "", .token = b->prompt[at],
                                   .n_tokens = at, .token_logprob = b->token_logprob, .top = t->top, .n_top = b->n_top,
                                   .choice = p->q->choice,
                                   .prompt_tokens = p->q->n_prompt };
        p->sink(p->ctx, &ev);
    }
}

/* 1: the sink took all of it, event by event. */
static int offer(struct thermo *t, struct place *p, struct said *of)
{
    const struct batch_text *b = &p->q->text;
    struct thermo_event ev = { .size = sizeof ev, .type = THERMO_TOKEN, .id = p->id, .n_tokens = p->q->n_made, .choice = p->q->choice,
                               .prompt_tokens = p->q->n_prompt, .shared_tokens = b->n_shared, .top = t->top };
    tell_top(t, b);
    tell_counts(t, &ev);
    do {
        size_t n = 0, head = head_of(of, &ev), left = of->n - of->taken - head;
        char *text = of->text + of->taken + head, *part = of->part + of->taken + head;
        while (n < left && part[n] == *part)
            n++;
        const char after = text[n];
        text[n] = 0;
        ev.text = text;
        ev.text_bytes = n;
        ev.part = n ? *part : p->part;
        ev.token = p->token;
        ev.token_logprob = p->token < 0 ? 0 : b->token_logprob;
        ev.n_top = p->token < 0 ? 0 : b->n_top;
        int taken = p->sink(p->ctx, &ev) != THERMO_PAUSE;
        text[n] = after;
        if (!taken)
            return 0;
        of->taken += head + n;
        p->token = -1;
    } while (of->taken < of->n);
    return 1;
}

static void hold(struct thermo *t, struct place *p)
{
    p->held = t->held[--t->n_held];
    said_copy(p->held, t->said);
    p->since_ns = progress_now_ns();
    t->n_paused++;
}

static int on_token(void *ctx, struct batch_text *b, int32_t id)
{
    struct thermo *t = ctx;
    struct place *p = place_of(t, b->owner);
    int n_thought = p->q->n_thought;
    tell(t, p);
    int stopped = request_token(NULL, b, id);
    p->token = id;
    p->part = p->q->n_thought > n_thought ? THERMO_THOUGHT : THERMO_TEXT;
    t->n_made++;
    if (offer(t, p, t->said))
        return stopped;
    hold(t, p);
    batch_pause(b, 1);
    return stopped;
}

static void release(struct thermo *t, struct place *p)
{
    if (!p->held)
        return;
    t->held[t->n_held++] = p->held;
    p->held = NULL;
    t->n_paused--;
}

/* Its place in the batch is not another's yet: so there are as many buffers for what is held as texts that may hold any. */
static void wait_to_end(struct thermo *t, struct place *p, enum batch_end end, const struct err *why)
{
    t->set.batch.kept++;
    p->ended = 1;
    p->end = end;
    p->why = why ? *why : (struct err){ 0 };
}

static void finish(struct thermo *t, struct place *p, enum batch_end end, const struct err *why)
{
    struct request *q = p->q;
    struct thermo_event ev = { .size = sizeof ev, .type = THERMO_END, .id = p->id, .stop = batch_end_names[end],
                               .prompt_tokens = q->n_prompt, .shared_tokens = q->text.n_shared, .n_tokens = q->n_made,
                               .n_thought_tokens = q->n_thought, .logprob = request_logprob(&q->text), .choice = q->choice,
                               .stop_text = end == BATCH_STOP ? q->output.stream.stop : NULL };
    release(t, p);
    t->set.batch.kept -= p->ended;
    p->ended = 0;
    tell(t, p);
    if (why)
        fail(&ev.error, why);
    else if (end != BATCH_STOP && !p->flushed)
        output_end(&q->output);
    p->flushed = 1;
    p->token = -1;
    if (said_has(t->said, THERMO_CALL)) { /* calls come before the end */
        if (!offer(t, p, t->said) && end != BATCH_CANCELLED) {
            hold(t, p);
            wait_to_end(t, p, end, why);
            return;
        }
        t->said->n = 0;
    }
    t->said->text[t->said->n] = 0;
    ev.text = t->said->text;
    ev.text_bytes = t->said->n;
    ev.part = t->said->n ? t->said->part[0] : THERMO_TEXT;
    tell_counts(t, &ev);
    request_drawn(q);
    request_keep_answer(q, end);
    p->sink(p->ctx, &ev);
    pthread_mutex_lock(&t->lock);
    p->state = FREE;
    p->id = 0;
    pthread_mutex_unlock(&t->lock);
}

/* Where the last token waits for the sink, so does the end; but not that of a request which was cancelled. */
static void on_end(void *ctx, struct batch_text *b, enum batch_end end, const struct err *why)
{
    struct thermo *t = ctx;
    struct request *q = b->owner;
    struct place *p = place_of(t, q);
    if (!p->held || end == BATCH_CANCELLED) {
        finish(t, p, end, why);
        return;
    }
    wait_to_end(t, p, end, why);
}

static void end_cancelled(struct thermo *t, struct place *p)
{
    if (p->ended)
        finish(t, p, BATCH_CANCELLED, NULL);
    else
        batch_cancel(&t->set.batch, &p->q->text);
}

/* What has been submitted and cancelled since. */
static void take_asked(struct thermo *t)
{
    pthread_mutex_lock(&t->lock);
    struct place *p = t->first;
    t->first = t->last = NULL;
    for (struct place *i = p; i; i = i->after)
        for (struct place *k = i; k; k = next_choice(t, k))
            k->state = OPEN;
    pthread_mutex_unlock(&t->lock);
    for (struct err e; p; p = p->after)
        batch_add(&t->set.batch, &p->q->text, &e); /* was checked when it was submitted */
    for (int i = 0; i < t->set.n; i++) {
        pthread_mutex_lock(&t->lock);
        int ends = t->places[i].state == OPEN && cancel_asked(&t->places[i].cancel);
        pthread_mutex_unlock(&t->lock);
        if (ends)
            end_cancelled(t, &t->places[i]);
    }
}

/* 1: a token that was held has been taken, or its request ended. */
static int offer_held(struct thermo *t)
{
    int any = 0;
    int64_t now = progress_now_ns();
    for (int i = 0; i < t->set.n && t->n_paused; i++) {
        struct place *p = &t->places[i];
        if (!p->held)
            continue;
        int taken = offer(t, p, p->held), late = now - p->since_ns > (int64_t)t->pause_ms * 1000000;
        any |= taken || late;
        if (taken && p->ended) {
            finish(t, p, p->end, p->why.code ? &p->why : NULL);
        } else if (taken) {
            release(t, p);
            batch_pause(&p->q->text, 0);
        } else if (late) {
            end_cancelled(t, p);
        }
    }
    return any;
}

static void copy_counts(struct thermo *t)
{
    struct engine_stats s = engine_stats(t->set.engine);
    pthread_mutex_lock(&t->lock);
    t->stats = s;
    t->n_tokens = t->n_made;
    t->work.texts = t->n_requests;
    t->copied = t->work;
    t->gave_way = t->set.batch.gave_way;
    pthread_mutex_unlock(&t->lock);
}

/* The pass that is over may have been the last one of its kind. Others look at what reads. */
static void adapt(struct thermo *t)
{
    struct report_phase p = { 0 };
    add_step(t, &p);
    pthread_mutex_lock(&t->lock);
    adapting_passed(&t->adapting, t->set.engine, &p.stats, batch_position(&t->set.batch));
    pthread_mutex_unlock(&t->lock);
}

/* A pass, and what it took. */
static int pass(struct thermo *t, struct err *e)
{
    struct batch *b = &t->set.batch;
    struct report *w = &t->work;
    uint64_t read = b->n_read, drawn = b->n_drawn;
    t->before = engine_stats(t->set.engine);
    t->step_ns = progress_now_ns();
    int guessed = !b->no_guesses.code, r = batch_step(b, e);
    if (guessed && b->no_guesses.code)
        log_warn("no more guesses are made: %s", b->no_guesses.msg);
    if (r) {
        add_step(t, b->reads ? &w->prompt : &w->decode);
        w->prompt.tokens += b->n_read - read;
        w->decode.tokens += b->reads ? 0 : b->n_drawn - drawn;
        w->guesses = b->guessed;
        w->most = b->most;
    }
    if (r > 0 && !b->reads)
        adapt(t);
    t->step_ns = 0;
    t->pages_left = t->set.store && engine_store_prefixes(t->set.engine);
    if (t->pages_left || (t->set.store && r))
        t->unwritten = 1;
    return r;
}

/* Until somebody wakes it, or so long; with paused tokens a moment. */
static void wait(struct thermo *t, int wait_ms)
{
    struct pollfd p = { .fd = t->pipe[0], .events = POLLIN };
    char drained[64];
    generate_set_idle(&t->set);
    t->unwritten = t->pages_left;
    if (t->n_paused && (wait_ms < 0 || wait_ms > OFFER_MS))
        wait_ms = OFFER_MS;
    if (poll(&p, 1, wait_ms) > 0)
        while (read(t->pipe[0], drained, sizeof drained) > 0)
            continue;
}

/* What is asked for, and a pass, between which others may have the engine. */
static int step(struct thermo *t, int *any, struct err *e)
{
    fair_lock_take(&t->engine_lock);
    take_asked(t);
    *any = offer_held(t);
    int r = pass(t, e);
    copy_counts(t);
    if (r == 0 && cancel_asked(t->cancel))
        r = err_set(e, ERR_INTR, "interrupted");
    for (int i = 0; r == ERR_INTR && i < t->set.n; i++)
        if (t->places[i].ended)
            end_cancelled(t, &t->places[i]);
    fair_lock_give(&t->engine_lock);
    return r;
}

int thermo_step(struct thermo *t, int wait_ms, struct thermo_error *error)
{
    struct err e = { 0 };
    int64_t end = wait_ms < 0 ? INT64_MAX : progress_now_ns() + (int64_t)wait_ms * 1000000;
    for (;;) {
        int any, r = step(t, &any, &e);
        if (r < 0)
            return fail(error, &e);
        int64_t now = progress_now_ns();
        if (r > 0 || any || now >= end)
            return r > 0 || any;
        wait(t, wait_ms < 0 ? -1 : (int)((end - now + 999999) / 1000000));
    }
}

int thermo_resize(struct thermo *t, uint64_t memory_bytes, struct thermo_error *error)
{
    struct err e = { 0 };
    int r = !t->started ? err_set(&e, ERR_USAGE, "the model is not loaded yet") :
            fair_lock_claim(&t->engine_lock) < 0 ? err_set(&e, ERR_USAGE, "a sink cannot change the memory limit: a pass is under way") : 0;
    if (r < 0)
        return fail(error, &e);
    pthread_mutex_lock(&t->lock); /* of those who look at what changes */
    r = setup_resize(&t->set.setup, t->set.engine, memory_bytes, &e);
    pthread_mutex_unlock(&t->lock);
    fair_lock_give(&t->engine_lock);
    return r < 0 ? fail(error, &e) : 0;
}
