/* The library: requests from several threads give the tokens that they give alone, whatever is cancelled, paused or submitted meanwhile;
 * cancellations, full places, sinks that never take, interrupts and wrong calls do what thermo.h says. */
#include "runtime/thermo.h"

#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "tests/engine_sample.h"
#include "tests/plan_for_pack.h"
#include "tests/test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { KINDS = 8, CONTEXT = 160, TOKENS = CONTEXT, CLIENTS = 5 };

static char pack_path[] = "/tmp/thermo-library-XXXXXX", plan_path[64], template_path[64];
static const char *const fields[KINDS] = {
    "{\"tokens\": [1, 5, 9], \"n\": 20, \"temp\": 0, \"ignore_eos\": true}",
    "{\"tokens\": [1, 7, 7, 8, 20, 21, 22, 23, 24, 3, 2], \"n\": 12, \"seed\": 3, \"ignore_eos\": true}",
    "{\"tokens\": [1], \"n\": 30, \"seed\": 9, \"temp\": 1.2, \"ignore_eos\": true}",
    "{\"tokens\": [2, 3], \"n\": 1, \"seed\": 9}",
    "{\"tokens\": [4, 3, 6], \"n\": 0}",
    "{\"tokens\": [1, 7, 7, 8, 20, 21, 22, 23, 24, 3, 5], \"n\": 25, \"seed\": 4, \"temp\": 0.7, \"ignore_eos\": true}",
    "{\"tokens\": [1, 9, 4], \"n\": -1, \"seed\": 5, \"temp\": 1.4, \"ignore_eos\": true}",
    "{\"tokens\": [1, 9, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], \"n\": -1, \"seed\": 6, \"temp\": 0.9, \"frequency_penalty\": 1}",
};

struct answer {
    int32_t tokens[TOKENS];
    int n, ended, pauses, offered; /* pauses: of each token this often first */
    int shared;
    char stop[16];
    struct thermo_error error;
    atomic_int over;
    struct thermo *submits;        /* from its own end: another request, once */
    struct answer *next;
};

static int take(void *ctx, const struct thermo_event *ev)
{
    struct answer *a = ctx;
    if (ev->type == THERMO_TOKEN) {
        if (a->offered++ < a->pauses)
            return THERMO_PAUSE;
        a->offered = 0;
        if (a->n < TOKENS)
            a->tokens[a->n] = ev->token;
        a->n++;
        return ev->n_tokens == a->n ? 0 : 7; /* any other value takes it, too */
    }
    snprintf(a->stop, sizeof a->stop, "%s", ev->stop);
    a->error = ev->error;
    a->shared = ev->shared_tokens;
    a->ended++;
    if (a->submits) {
        const struct thermo_request q = { .size = sizeof q, .fields = fields[0], .fields_bytes = strlen(fields[0]) };
        uint64_t id;
        a->next->ended = thermo_submit(a->submits, &q, take, a->next, &id, NULL) < 0 ? -1 : 0;
    }
    atomic_store(&a->over, 1);
    return 0;
}

static int submit(struct thermo *t, int kind, struct answer *a, uint64_t *id, struct thermo_error *e)
{
    const struct thermo_request q = { .size = sizeof q, .fields = fields[kind], .fields_bytes = strlen(fields[kind]) };
    return thermo_submit(t, &q, take, a, id, e);
}

/* more: instead of the usual options, or NULL. */
static struct thermo *open_with(int sequences, int pause_ms, const char *const *more)
{
    static const char *const usual[] = { "-q", "--no-mlock", NULL };
    const struct thermo_options o = { .size = sizeof o, .model = pack_path, .plan = plan_path, .sequences = sequences,
                                      .more = more ? more : usual, .pause_ms = pause_ms };
    struct thermo *t = NULL;
    struct thermo_error e = { 0 };
    CHECK_MSG(thermo_open(&o, &t, &e) == 0, "%d %s", e.code, e.message);
    if (!t)
        exit(test_done());
    return t;
}

static struct thermo *open_one(int sequences, int pause_ms)
{
    return open_with(sequences, pause_ms, NULL);
}

static void drain(struct thermo *t)
{
    struct thermo_error e;
    while (thermo_step(t, 0, &e) > 0)
        continue;
}

static struct answer alone[KINDS];

static int same(const struct answer *a, int kind, int whole)
{
    const struct answer *b = &alone[kind];
    int n = a->n < TOKENS ? a->n : TOKENS;
    return a->n <= b->n && (!whole || a->n == b->n) && !memcmp(a->tokens, b->tokens, (size_t)n * sizeof *a->tokens);
}

static void each_alone(void)
{
    struct thermo *t = open_one(1, 0);
    for (int k = 0; k < KINDS; k++) {
        uint64_t id = 0;
        struct thermo_error e = { 0 };
        CHECK_MSG(submit(t, k, &alone[k], &id, &e) == 0 && id == (uint64_t)k + 1, "%s", e.message);
        drain(t);
        CHECK(alone[k].ended == 1 && !alone[k].error.code && thermo_cancel(t, id) == THERMO_E_USAGE);
    }
    CHECK(alone[0].n == 20 && alone[2].n == 30 && alone[4].n == 0 && !strcmp(alone[0].stop, "length"));
    CHECK(alone[6].n > 150 && !strcmp(alone[6].stop, "context"));
    CHECK(memcmp(alone[1].tokens, alone[5].tokens, 12 * sizeof(int32_t)));
    CHECK(thermo_step(t, 20, NULL) == 0);
    thermo_close(t);
}

/* ---- many at once ---- */

struct client {
    struct thermo *t;
    unsigned seed;
    int rounds, bad, cancelled, full;
    pthread_t thread;
};

static unsigned draw(unsigned *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 16;
}

static void nap(long us)
{
    nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

static void *client(void *ctx)
{
    struct client *c = ctx;
    for (int i = 0; i < c->rounds; i++) {
        struct answer a = { .pauses = draw(&c->seed) % 4 == 0 ? (int)(draw(&c->seed) % 3) : 0 };
        struct thermo_error e = { 0 };
        uint64_t id;
        int kind = (int)(draw(&c->seed) % KINDS), ends = draw(&c->seed) % 3 == 0, r;
        while ((r = submit(c->t, kind, &a, &id, &e)) == THERMO_E_FULL) {
            c->full++;
            nap(300);
        }
        c->bad += r != 0;
        if (ends) {
            nap((long)(draw(&c->seed) % 2000));
            thermo_cancel(c->t, id);
        }
        while (r == 0 && !atomic_load(&a.over)) {
            thermo_wake(c->t);
            nap(100);
        }
        int cut = !strcmp(a.stop, "interrupted");
        c->cancelled += cut;
        c->bad += !same(&a, kind, !cut) || (cut && !ends) || a.ended != 1 || a.error.code;
        char *text = thermo_describe(c->t);
        c->bad += !text || *text != '{' || !strstr(text, "\"requests\":");
        thermo_free(text);
    }
    return NULL;
}

struct stepper {
    struct thermo *t;
    atomic_int stop;
    int failed;
};

static void *step(void *ctx)
{
    struct stepper *s = ctx;
    while (!atomic_load(&s->stop))
        s->failed |= thermo_step(s->t, 50, NULL) < 0;
    return NULL;
}

static int counted(struct thermo *t, const char *name)
{
    char *text = thermo_describe(t), *at = text ? strstr(text, name) : NULL;
    int n = at ? atoi(at + strlen(name)) : -1;
    thermo_free(text);
    return n;
}

/* more: with a KV cache in which texts give way. */
static void many(const char *const *more)
{
    struct thermo *t = open_with(more ? 4 : 3, 0, more);
    struct client c[CLIENTS];
    struct stepper s = { .t = t };
    pthread_t thread;
    int bad = 0, cancelled = 0, full = 0;
    CHECK(pthread_create(&thread, NULL, step, &s) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (struct client){ .t = t, .seed = (unsigned)i * 77 + 5, .rounds = test_cases(60) };
        CHECK(pthread_create(&c[i].thread, NULL, client, &c[i]) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(c[i].thread, NULL);
        bad += c[i].bad;
        cancelled += c[i].cancelled;
        full += c[i].full;
    }
    atomic_store(&s.stop, 1);
    thermo_wake(t);
    pthread_join(thread, NULL);
    CHECK_MSG(bad == 0 && !s.failed, "%d answers are not those of the same requests alone", bad);
    int gave_way = counted(t, "\"gave_way\":");
    CHECK_MSG(more || gave_way == 0, "%d", gave_way);
    printf("# %d requests, %d cancelled, %d times full, %d gave way\n", CLIENTS * c[0].rounds, cancelled, full, gave_way);
    thermo_close(t);
}

static void refused(struct thermo *t, const char *text, int code, const char *words)
{
    struct answer a = { .n = 0 };
    struct thermo_error e = { 0 };
    uint64_t id = 77;
    const struct thermo_request q = { .size = sizeof q, .fields = text, .fields_bytes = strlen(text) };
    int r = thermo_submit(t, &q, take, &a, &id, &e);
    CHECK_MSG(r == code && e.code == code && strstr(e.message, words) && id == 77 && !a.ended, "%d %s", r, e.message);
}

/* Four texts that come to hold five pages each, of the six that there are. */
static void give_way(void)
{
    static const char *const more[] = { "-q", "--no-mlock", "--kv-positions", "192", NULL };
    struct thermo *t = open_with(4, 0, more);
    struct answer a[4] = { { .n = 0 } };
    struct thermo_error e = { 0 };
    uint64_t id;
    for (int i = 0; i < 4; i++)
        CHECK(submit(t, 6, &a[i], &id, &e) == 0);
    drain(t);
    for (int i = 0; i < 4; i++)
        CHECK_MSG(a[i].ended == 1 && same(&a[i], 6, 1), "%d of %d tokens", a[i].n, alone[6].n);
    CHECK_MSG(counted(t, "\"gave_way\":") > 1, "%d", counted(t, "\"gave_way\":"));
    thermo_close(t);
}

struct worth {
    double of[CONTEXT];
    int n, made, ended, wrong;
};

static int weigh(void *ctx, const struct thermo_event *ev)
{
    struct worth *w = (struct worth *)ctx + ev->choice;
    w->ended += ev->type == THERMO_END;
    w->made += ev->type == THERMO_TOKEN;
    if (ev->type != THERMO_PROMPT)
        return 0;
    w->wrong += ev->n_tokens != w->n || w->made || w->n == CONTEXT || ev->token != (w->n % 5) + 3 || ev->n_top != (w->n ? 2 : 0) ||
                (w->n ? !(ev->token_logprob < 0) : !isnan(ev->token_logprob));
    w->of[w->n++ % CONTEXT] = ev->token_logprob;
    return 0;
}

/* What tokens of prompts are worth is told once, in their order, whoever reads the same and gives way. */
static void worths(void)
{
    enum { PROMPT = 70 };
    static const char *const more[] = { "-q", "--no-mlock", "--kv-positions", "192", NULL };
    struct thermo *t = open_with(4, 0, more);
    static struct worth w[4][2];
    char text[512] = "{\"tokens\": [3";
    uint64_t id;
    struct thermo_error e = { 0 };
    for (int i = 1; i < PROMPT; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ",%d", i % 5 + 3);
    const size_t n = strlen(text);
    for (int i = 0; i < 4; i++) {
        snprintf(text + n, sizeof text - n, "], \"n\": 80, \"ignore_eos\": true, \"logprobs\": 2, \"prompt_logprobs\": true, "
                 "\"choices\": %d}", 1 + i / 3);
        const struct thermo_request q = { .size = sizeof q, .fields = text, .fields_bytes = strlen(text) };
        CHECK_MSG(thermo_submit(t, &q, weigh, w[i], &id, &e) == 0, "%s", e.message);
    }
    drain(t);
    for (int i = 0; i < 5; i++) {
        const struct worth *x = i < 4 ? &w[i][0] : &w[3][1];
        CHECK_MSG(x->n == PROMPT && x->made == 80 && x->ended == 1 && !x->wrong, "%d: %d %d %d %d", i, x->n, x->made, x->ended, x->wrong);
        CHECK(!memcmp(x->of + 1, w[0][0].of + 1, (PROMPT - 1) * sizeof(double)));
    }
    CHECK(counted(t, "\"gave_way\":") > 0);
    thermo_close(t);
}

/* A KV cache smaller than a context: who fills it ends as if it were the context, whoever waits comes after, and a prompt that it cannot
 * hold is refused. */
static void fills(void)
{
    static const char *const more[] = { "-q", "--no-mlock", "--kv-positions", "64", NULL };
    struct thermo *t = open_with(2, 0, more);
    struct answer a[3] = { { .n = 0 } };
    struct thermo_error e = { 0 };
    uint64_t id;
    CHECK(submit(t, 6, &a[0], &id, &e) == 0 && submit(t, 6, &a[1], &id, &e) == 0 && submit(t, 0, &a[2], &id, &e) == 0);
    drain(t);
    for (int i = 0; i < 2; i++)
        CHECK_MSG(a[i].ended == 1 && !strcmp(a[i].stop, "context") && a[i].n == 64 - 3 + 1 && same(&a[i], 6, 0), "%d tokens", a[i].n);
    CHECK(same(&a[2], 0, 1));
    static char text[512] = "{\"n\": 1, \"tokens\": [1";
    for (int i = 0; i < 64; i++)
        strcat(text, ",5");
    strcat(text, "]}");
    refused(t, text, THERMO_E_LIMIT, "pages of the KV cache");
    thermo_close(t);
}

/* ---- places, pauses, ends ---- */

static void places(void)
{
    struct thermo *t = open_one(1, 0);
    struct answer a[5] = { { .n = 0 } };
    uint64_t id[5];
    struct thermo_error e = { 0 };
    for (int i = 0; i < 4; i++)
        CHECK(submit(t, i, &a[i], &id[i], &e) == 0);
    CHECK(submit(t, 0, &a[4], &id[4], &e) == THERMO_E_FULL && e.code == THERMO_E_FULL && strstr(e.message, "4 places"));
    CHECK(thermo_cancel(t, id[2]) == 0 && thermo_cancel(t, 99) == THERMO_E_USAGE && thermo_cancel(t, 0) == THERMO_E_USAGE);
    CHECK(thermo_step(t, 0, &e) == 1 && a[2].ended == 1 && !strcmp(a[2].stop, "interrupted") && a[2].n == 0); /* though it waited */
    CHECK(submit(t, 0, &a[4], &id[4], &e) == 0);
    drain(t);
    CHECK(same(&a[0], 0, 1) && same(&a[1], 1, 1) && same(&a[3], 3, 1) && same(&a[4], 0, 1));
    thermo_close(t);
    t = open_one(1, 0);
    CHECK(submit(t, 0, &a[0], &id[0], &e) == 0 && thermo_step(t, 0, &e) == 1);
    thermo_close(t); /* with a request that is open */
}

static void pauses(void)
{
    struct thermo *t = open_one(2, 0);
    struct answer slow = { .pauses = 3 }, other = { .n = 0 };
    uint64_t id;
    CHECK(submit(t, 2, &slow, &id, NULL) == 0 && submit(t, 5, &other, &id, NULL) == 0);
    drain(t);
    CHECK_MSG(same(&other, 5, 1) && other.ended == 1, "%d tokens", other.n);
    while (thermo_step(t, 100, NULL) > 0)
        continue;
    CHECK_MSG(same(&slow, 2, 1) && slow.ended == 1, "%d tokens", slow.n);
    thermo_close(t);
    t = open_one(1, 30); /* never takes any */
    struct answer never = { .pauses = 1 << 30 }, next = { .n = 0 };
    CHECK(submit(t, 2, &never, &id, NULL) == 0 && submit(t, 0, &next, &id, NULL) == 0);
    while (!next.ended && thermo_step(t, 1000, NULL) >= 0)
        continue;
    CHECK(never.ended == 1 && !strcmp(never.stop, "interrupted") && never.n == 0 && same(&next, 0, 1));
    thermo_close(t);
    t = open_one(1, 0); /* each end waits for its sink: no more tokens are held than there are places for */
    struct answer ends[4] = { { .pauses = 2 }, { .pauses = 3 }, { .pauses = 1 }, { .pauses = 2 } };
    for (int i = 0; i < 4; i++)
        CHECK(submit(t, 3, &ends[i], &id, NULL) == 0);
    while (thermo_step(t, 100, NULL) > 0)
        continue;
    for (int i = 0; i < 4; i++)
        CHECK_MSG(ends[i].ended == 1 && !ends[i].error.code && same(&ends[i], 3, 1), "%d: %d '%s'", i, ends[i].n, ends[i].stop);
    thermo_close(t);
}

/* ---- choices ---- */

struct choices {
    struct answer a[3];
    int ended, wrong;
};

static int take_choice(void *ctx, const struct thermo_event *ev)
{
    struct choices *c = ctx;
    if (ev->choice < 0 || ev->choice > 2) {
        c->wrong++;
        return 0;
    }
    c->ended += ev->type == THERMO_END;
    return take(&c->a[ev->choice], ev);
}

static int ask_choices(struct thermo *t, int n, struct choices *c, uint64_t *id, struct thermo_error *e)
{
    char text[160];
    snprintf(text, sizeof text, "{\"choices\": %d, %s", n, fields[2] + 1);
    const struct thermo_request q = { .size = sizeof q, .fields = text, .fields_bytes = strlen(text) };
    return thermo_submit(t, &q, take_choice, c, id, e);
}

/* Each is the request with its seed; they go on where others pause, and end together where they are cancelled. */
static void choices(void)
{
    struct thermo *t = open_one(3, 0);
    struct answer one[3] = { { .n = 0 } };
    struct choices c = { .a[1].pauses = 2 }, waits = { .ended = 0 }, gone = { .ended = 0 };
    struct thermo_error e = { 0 };
    uint64_t id, last;
    for (int i = 0; i < 3; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"tokens\": [1], \"n\": 30, \"seed\": %d, \"temp\": 1.2, \"ignore_eos\": true}", 9 + i);
        const struct thermo_request q = { .size = sizeof q, .fields = text, .fields_bytes = strlen(text) };
        CHECK(thermo_submit(t, &q, take, &one[i], &id, &e) == 0);
        drain(t);
    }
    CHECK(ask_choices(t, 3, &c, &id, &e) == 0 && ask_choices(t, 3, &waits, &last, &e) == 0 && last == id + 1);
    for (int i = 0; i < 200 && waits.ended < 3; i++)
        thermo_step(t, 100, NULL);
    CHECK_MSG(c.ended == 3 && waits.ended == 3 && !c.wrong, "%d and %d of 3 ended, %d wrong", c.ended, waits.ended, c.wrong);
    for (int i = 0; i < 3; i++)
        CHECK(c.a[i].n == 30 && !memcmp(c.a[i].tokens, one[i].tokens, sizeof one[i].tokens) &&
              !memcmp(waits.a[i].tokens, one[i].tokens, sizeof one[i].tokens));
    CHECK(memcmp(c.a[0].tokens, c.a[1].tokens, 30 * sizeof(int32_t)) && thermo_cancel(t, id) == THERMO_E_USAGE);
    /* Cancelled while it waits, and while one pauses. */
    c = waits = (struct choices){ .a[2].pauses = 1 << 30 };
    CHECK(ask_choices(t, 3, &c, &id, &e) == 0 && ask_choices(t, 2, &waits, &last, &e) == 0 && thermo_cancel(t, last) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(thermo_step(t, 0, NULL) == 1);
    CHECK(waits.ended == 2 && !strcmp(waits.a[1].stop, "interrupted") && c.a[0].n > 2 && c.a[2].n == 0);
    CHECK(thermo_cancel(t, id) == 0 && thermo_step(t, 0, NULL) == 0 && c.ended == 3 && !strcmp(c.a[2].stop, "interrupted"));
    /* Three of twelve places a time. */
    CHECK(ask_choices(t, 4, &gone, &id, &e) == THERMO_E_LIMIT && strstr(e.message, "3 sequences"));
    for (int i = 0; i < 4; i++)
        CHECK(ask_choices(t, 3 - (i == 3), &c, &id, &e) == 0);
    CHECK(ask_choices(t, 2, &gone, &last, &e) == THERMO_E_FULL && !gone.ended && ask_choices(t, 1, &gone, &last, &e) == 0);
    thermo_interrupt(t);
    CHECK(thermo_step(t, 0, NULL) == THERMO_E_INTERRUPTED && gone.ended == 1);
    thermo_close(t);
}

static void from_a_sink(void)
{
    struct thermo *t = open_one(1, 0);
    struct answer second = { .n = 0 }, first = { .submits = t, .next = &second };
    uint64_t id;
    CHECK(submit(t, 3, &first, &id, NULL) == 0);
    drain(t);
    CHECK(first.ended == 1 && second.ended == 1 && same(&second, 0, 1));
    thermo_close(t);
}

static void interrupts(void)
{
    struct thermo *t = open_one(2, 0);
    struct answer a[2] = { { .n = 0 } };
    uint64_t id;
    struct thermo_error e = { 0 };
    CHECK(submit(t, 2, &a[0], &id, NULL) == 0 && submit(t, 1, &a[1], &id, NULL) == 0 && thermo_step(t, 0, NULL) == 1);
    thermo_interrupt(t);
    CHECK(thermo_step(t, -1, &e) == THERMO_E_INTERRUPTED && e.code == THERMO_E_INTERRUPTED && thermo_exit_status(e.code) == 130);
    CHECK(a[0].ended == 1 && a[1].ended == 1 && !strcmp(a[0].stop, "interrupted") && same(&a[0], 2, 0));
    thermo_close(t);
    int cancel = 1;
    const char *const more[] = { "-q", NULL };
    const struct thermo_options o = { .size = sizeof o, .model = pack_path, .plan = plan_path, .more = more, .cancel = &cancel };
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_INTERRUPTED);
}

/* ---- requests that are known beforehand ---- */

struct known {
    struct answer a[2];
    uint64_t id[2], counts[8];
    int n, code, tokens, wrong;
    size_t room;
};

/* What passes without prompts took only grows, and the first token is from before any. */
static int counts(void *ctx, const struct thermo_event *ev)
{
    struct known *k = ctx;
    const uint64_t now[] = { ev->decode_ns, ev->stall_ns, ev->reads, ev->read_bytes, ev->lookups, ev->hits, ev->active };
    for (int i = 0; i < 7; i++) {
        k->wrong += now[i] < k->counts[i];
        k->counts[i] = now[i];
    }
    k->wrong += ev->type == THERMO_TOKEN && (k->tokens++ == 0 ? now[0] + now[6] != 0 : !now[0] || !now[6]);
    return take(&k->a[0], ev);
}

static int before(void *ctx, struct thermo *t, size_t room, struct thermo_error *e)
{
    struct known *k = ctx;
    const struct thermo_request q = { .size = sizeof q, .fields = fields[0], .fields_bytes = strlen(fields[0]) };
    k->room = room;
    int r = thermo_submit(t, &q, counts, k, &k->id[0], e);
    return r < 0 || k->n == 1 ? (k->code ? k->code : r) : submit(t, 5, &k->a[1], &k->id[1], e);
}

static void known_before(void)
{
    static const char *const more[] = { "-q", "--no-mlock", NULL };
    struct known k = { .n = 1 };
    struct thermo_options o = { .size = sizeof o, .model = pack_path, .plan = plan_path, .more = more, .requests = 1, .before = before,
                                .before_ctx = &k };
    struct thermo_error e = { 0 };
    struct thermo *t = NULL;
    struct answer late = { .n = 0 };
    uint64_t id;
    CHECK_MSG(thermo_open(&o, &t, &e) == 0 && k.room > 0, "%s", e.message);
    if (!t)
        return;
    CHECK(submit(t, 0, &late, &id, &e) == THERMO_E_USAGE && strstr(e.message, "options.before"));
    char *text = thermo_describe(t);
    CHECK(text && strstr(text, "\"prompt\":{\"tokens\":0,") && strstr(text, "\"run_hash\":\""));
    thermo_free(text);
    drain(t);
    CHECK(k.a[0].ended == 1 && same(&k.a[0], 0, 1) && k.tokens == 20 && !k.wrong);
    text = thermo_describe(t);
    CHECK(text && strstr(text, "\"prompt\":{\"tokens\":3,") && strstr(text, "\"decode\":{\"tokens\":19,\"passes\":19,"));
    thermo_free(text);
    thermo_close(t);
    t = NULL;
    k = (struct known){ .n = 1, .code = THERMO_E_INPUT };
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_INPUT && !t);
    k = (struct known){ .n = 2 };
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_FULL && !t);
    o.requests = 2;
    k = (struct known){ .n = 2 };
    CHECK(thermo_open(&o, &t, &e) == 0);
    drain(t);
    CHECK(k.a[1].ended == 1 && same(&k.a[0], 0, 1) && same(&k.a[1], 5, 1));
    thermo_close(t);
}

/* ---- wrong calls ---- */


static void wrong(void)
{
    struct thermo *t = NULL, *kept = open_one(1, 0);
    struct thermo_error e = { 0 };
    struct answer a = { .n = 0 };
    uint64_t id;
    const char *const bad[] = { "--frob", NULL }, *const help[] = { "--help", NULL }, *const stray[] = { "-q", "x", NULL };
    struct thermo_options o = { .size = sizeof o, .model = pack_path, .plan = plan_path, .more = bad };
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_USAGE && strstr(e.message, "--frob") && !t);
    o.more = help;
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_USAGE && strstr(e.message, "--help"));
    o.more = stray;
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_USAGE && strstr(e.message, "'x'"));
    o.more = NULL;
    o.size = 8;
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_USAGE && strstr(e.message, "options.size is 8"));
    o.size = sizeof o;
    o.plan = NULL;
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_USAGE && strstr(e.message, "--plan"));
    o.plan = "/none";
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_INPUT && strstr(e.message, "/none") && thermo_exit_status(e.code) == 3);
    o.plan = plan_path;
    o.memory_bytes = 4096;
    CHECK(thermo_open(&o, &t, NULL) == THERMO_E_INFEASIBLE && thermo_exit_status(THERMO_E_INFEASIBLE) == 4);
    CHECK(thermo_open(NULL, &t, &e) == THERMO_E_USAGE && !t);
    refused(kept, "{\"n\": 3}", THERMO_E_FORMAT, "one of");
    refused(kept, "{\"tokens\": [1], \"nn\": 3}", THERMO_E_FORMAT, "nn");
    refused(kept, "{\"tokens\": [1", THERMO_E_FORMAT, "JSON");
    refused(kept, "{\"tokens\": [4000]}", THERMO_E_FORMAT, "token id");
    refused(kept, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", THERMO_E_USAGE, "--chat");
    struct thermo_request q = { .size = sizeof q, .prompt = "a" };
    CHECK(thermo_submit(kept, &q, NULL, NULL, &id, &e) == THERMO_E_USAGE && strstr(e.message, "sink"));
    q.prompt_bytes = 1 << 30;
    CHECK(thermo_submit(kept, &q, take, &a, &id, &e) == THERMO_E_LIMIT && strstr(e.message, "at most"));
    q.size = 3;
    CHECK(thermo_submit(kept, &q, take, &a, &id, &e) == THERMO_E_USAGE && strstr(e.message, "request.size"));
    for (int i = 0; i < 9; i++) /* a request that is refused keeps no place */
        refused(kept, "{}", THERMO_E_FORMAT, "one of");
    CHECK(submit(kept, 0, &a, &id, &e) == 0);
    drain(kept);
    CHECK(same(&a, 0, 1));
    int32_t *ids = NULL;
    size_t n = 0, bytes = 9;
    CHECK(thermo_tokenize(kept, "ab", 2, 0, &ids, &n, &e) == 0 && ids);
    thermo_free(ids);
    thermo_piece(kept, -1, &bytes);
    CHECK(bytes == 0 && strlen(thermo_version()) > 2);
    thermo_close(kept);
    thermo_close(NULL);
}

/* ---- messages ---- */

struct parts {
    int n, thoughts, events, bytes[2], mixed, ended, at_end;
};

static int take_parts(void *ctx, const struct thermo_event *ev)
{
    struct parts *p = ctx;
    p->bytes[ev->part] += (int)ev->text_bytes;
    p->mixed |= strlen(ev->text) != ev->text_bytes || (ev->part != THERMO_TEXT && ev->part != THERMO_THOUGHT);
    if (ev->type == THERMO_END) {
        p->ended++;
        p->at_end = ev->n_thought_tokens;
        p->n = ev->n_tokens;
        return 0;
    }
    p->events++;
    p->thoughts += ev->token >= 0 && ev->part == THERMO_THOUGHT;
    return 0;
}

static struct parts parts_of(struct thermo *t, const char *text)
{
    struct parts p = { .n = 0 };
    struct thermo_error e = { 0 };
    uint64_t id;
    const struct thermo_request q = { .size = sizeof q, .fields = text, .fields_bytes = strlen(text) };
    int r = thermo_submit(t, &q, take_parts, &p, &id, &e);
    CHECK_MSG(r == 0, "%s", e.message);
    drain(t);
    CHECK(p.ended == 1 && !p.mixed && p.thoughts == p.at_end);
    return p;
}

static int described(struct thermo *t, const char *words)
{
    char *text = thermo_describe(t);
    int found = text && strstr(text, words);
    thermo_free(text);
    return found;
}

#define ASKS "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}], \"n\": 12, \"ignore_eos\": true, \"seed\": 3"

/* As thermo-run chat has it: one request at a time, whose messages grow; a turn does not read anew what was read. */
static void conversation(void)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    const char *const more[] = { "-q", "--no-mlock", "--chat-template", template_path, NULL };
    struct thermo_options o = { .size = sizeof o, .model = pack_path, .plan = plan_path, .more = more, .conversation = 1, .calls = 1 };
    struct thermo *t = NULL;
    struct thermo_error e = { 0 };
    struct answer a = { .n = 0 }, b = { .n = 0 };
    char asks[400];
    uint64_t id;
    FILE *f = fopen(template_path, "w");
    CHECK(f && fputs("{% for m in messages %}{{ m.content }}{% endfor %}", f) > 0 && fclose(f) == 0);
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_USAGE && strstr(e.message, "options.calls does not go with it"));
    o.calls = 0;
    o.requests = 2;
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_USAGE && strstr(e.message, "options.requests does not go with it"));
    o.requests = 0;
    o.sequences = 2;
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_USAGE && strstr(e.message, "options.sequences does not go with it"));
    o.sequences = 0;
    CHECK_MSG(thermo_open(&o, &t, &e) == 0, "%s", e.message);
    snprintf(asks, sizeof asks, "{\"n\": 2, \"ignore_eos\": true, \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]}", first);
    const struct thermo_request q = { .size = sizeof q, .fields = asks, .fields_bytes = strlen(asks) };
    CHECK_MSG(thermo_submit(t, &q, take, &a, &id, &e) == 0, "%s", e.message);
    CHECK(thermo_submit(t, &q, take, &b, &id, &e) == THERMO_E_FULL);
    drain(t);
    CHECK(a.ended == 1 && a.shared == 0 && a.n == 2);
    snprintf(asks, sizeof asks, "{\"n\": 2, \"ignore_eos\": true, \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, "
             "{\"role\": \"user\", \"content\": \"xyz\"}]}", first);
    const struct thermo_request next = { .size = sizeof next, .fields = asks, .fields_bytes = strlen(asks) };
    CHECK_MSG(thermo_submit(t, &next, take, &b, &id, &e) == 0, "%s", e.message);
    drain(t);
    CHECK_MSG(b.ended == 1 && b.shared == 32, "%d shared", b.shared);
    thermo_close(t);
}

/* The template begins a thought, which this model does not end. */
static void messages(void)
{
    static const char template[] = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<think>' if enable_thinking is not defined }}"
                                   "{{ tools | tojson if tools }}";
    const char *const more[] = { "-q", "--no-mlock", "--chat-template", template_path, NULL }, *const none[] = { "-q", "--no-mlock", NULL };
    struct thermo_options o = { .size = sizeof o, .model = pack_path, .plan = plan_path, .more = more, .messages = 1 };
    struct thermo *t = NULL;
    struct thermo_error e = { 0 };
    char *text = NULL;
    size_t n = 0;
    FILE *f = fopen(template_path, "w");
    CHECK(f && fputs(template, f) > 0 && fclose(f) == 0);
    CHECK_MSG(thermo_open(&o, &t, &e) == 0, "%s", e.message);
    CHECK(described(t, "\"template\":true"));
    struct parts p = parts_of(t, ASKS "}");
    CHECK_MSG(p.n == 12 && p.at_end == 12 && p.bytes[THERMO_THOUGHT] > 0 && p.bytes[THERMO_TEXT] == 0, "%d of %d", p.at_end, p.n);
    p = parts_of(t, ASKS ", \"thinking\": \"hide\"}");
    CHECK(p.n == 12 && p.at_end == 12 && p.bytes[THERMO_THOUGHT] == 0 && p.bytes[THERMO_TEXT] == 0 && p.events == 12);
    p = parts_of(t, ASKS ", \"thinking\": \"off\"}");
    CHECK(p.n == 12 && p.at_end == 0 && p.bytes[THERMO_THOUGHT] == 0 && p.bytes[THERMO_TEXT] > 0);
    p = parts_of(t, "{\"prompt\": \"a<think>\", \"n\": 5, \"ignore_eos\": true}"); /* text */
    CHECK(p.n == 5 && p.at_end == 0 && p.bytes[THERMO_THOUGHT] == 0);
    refused(t, ASKS ", \"thinking\": \"no\"}", THERMO_E_FORMAT, "\"off\"");
    refused(t, "{\"prompt\": \"a\", \"thinking\": \"off\"}", THERMO_E_FORMAT, "\"thinking\" is of \"messages\"");
    CHECK(thermo_render(t, ASKS "}", strlen(ASKS "}"), &text, &n, &e) == 0 && n == 9 && !strcmp(text, "ab<think>"));
    size_t counted = 0, of_text = 0;
    int32_t *ids = NULL;
    CHECK(thermo_tokenize(t, text, n, 1, &ids, &of_text, &e) == 0 && of_text > 0);
    CHECK(thermo_count(t, ASKS "}", strlen(ASKS "}"), &counted, &e) == 0 && counted == of_text);
    thermo_free(ids);
    thermo_free(text);
    CHECK(thermo_count(t, "{\"n\": 3}", 8, &counted, &e) == THERMO_E_FORMAT && strstr(e.message, "messages"));
    CHECK(thermo_render(t, ASKS ", \"thinking\": \"off\"}", strlen(ASKS ", \"thinking\": \"off\"}"), &text, &n, NULL) == 0 && n == 2);
    thermo_free(text);
    static const char tools[] = ASKS ", \"tools\": [{\"type\": \"function\"}], \"template_args\": {\"enable_thinking\": false}}";
    CHECK(thermo_render(t, tools, strlen(tools), &text, &n, NULL) == 0 && !strcmp(text, "ab[{\"type\": \"function\"}]"));
    thermo_free(text);
    CHECK(thermo_render(t, ASKS "}", strlen(ASKS "}"), &text, &n, &e) == 0 && !strcmp(text, "ab<think>")); /* they are that request's */
    thermo_free(text);
    refused(t, "{\"prompt\": \"a\", \"tools\": [{}]}", THERMO_E_FORMAT, "\"tools\" is of \"messages\"");
    refused(t, ASKS ", \"tools\": 1}", THERMO_E_FORMAT, "\"tools\" is not an array");
    CHECK(thermo_render(t, "{\"n\": 3}", 8, &text, &n, &e) == THERMO_E_FORMAT && strstr(e.message, "messages"));
    CHECK(thermo_render(t, "{\"m\": 3}", 8, &text, &n, &e) == THERMO_E_FORMAT);
    CHECK(thermo_render(t, "{", 1, &text, &n, &e) == THERMO_E_FORMAT);
    CHECK(thermo_render(t, "", 1 << 30, &text, &n, &e) == THERMO_E_LIMIT);
    thermo_close(t);
    o.more = none; /* the model has no template: texts go on, messages say so */
    CHECK_MSG(thermo_open(&o, &t, &e) == 0, "%s", e.message);
    CHECK(described(t, "\"template\":false"));
    refused(t, ASKS "}", THERMO_E_UNSUPPORTED, "need a template");
    CHECK(parts_of(t, "{\"prompt\": \"a\", \"n\": 5, \"ignore_eos\": true}").n == 5);
    thermo_close(t);
    o.messages = 0; /* what the caller keeps for itself is not the model's */
    o.memory_bytes = 64 << 20;
    o.reserved_bytes = 63 << 20;
    CHECK(thermo_open(&o, &t, &e) == THERMO_E_INFEASIBLE);
    o.reserved_bytes = 1 << 20;
    CHECK_MSG(thermo_open(&o, &t, &e) == 0, "%s", e.message);
    thermo_close(t);
    unlink(template_path);
}

/* ---- logits ---- */

struct seen {
    int tokens[40], n, wrong, tops;
};

static int see(void *ctx, const struct thermo_event *ev)
{
    struct seen *s = ctx;
    if (ev->type == THERMO_END)
        return 0;
    s->tokens[ev->token]++;
    s->n++;
    s->tops += ev->n_top;
    s->wrong += ev->token_logprob > 0;
    for (int i = 1; i < ev->n_top; i++)
        s->wrong += ev->top[i].logprob > ev->top[i - 1].logprob;
    s->wrong += ev->n_top && ev->token_logprob > ev->top[0].logprob;
    return 0;
}

static struct seen see_all(struct thermo *t, const char *text)
{
    struct seen s = { .n = 0 };
    struct thermo_error e = { 0 };
    uint64_t id;
    const struct thermo_request q = { .size = sizeof q, .fields = text, .fields_bytes = strlen(text) };
    int r = thermo_submit(t, &q, see, &s, &id, &e);
    CHECK_MSG(r == 0, "%s", e.message);
    drain(t);
    CHECK(s.n == 30 && !s.wrong);
    return s;
}

#define THIRTY "{\"tokens\": [1, 5], \"n\": 30, \"ignore_eos\": true, \"temp\": 0"

static void logits(void)
{
    struct thermo *t = open_one(1, 0);
    struct seen s = see_all(t, THIRTY ", \"logit_bias\": {\"9\": 100}}");
    CHECK(s.tokens[9] == 30 && s.tops == 0);
    s = see_all(t, THIRTY ", \"logit_bias\": {\"9\": 100, \"12\": 99.9}, \"presence_penalty\": 0.2, \"logprobs\": 5}");
    CHECK_MSG(s.tokens[9] == 29 && s.tokens[12] == 1 && s.tops == 150, "%d %d", s.tokens[9], s.tokens[12]); /* 100 99.9 99.8 99.7 */
    s = see_all(t, THIRTY ", \"logit_bias\": {\"9\": 100, \"12\": 100}, \"frequency_penalty\": 2, \"logprobs\": 0}");
    CHECK_MSG(s.tokens[9] + s.tokens[12] == 30 && abs(s.tokens[9] - s.tokens[12]) < 10, "%d %d", s.tokens[9], s.tokens[12]);
    static char many[8192];
    size_t at = (size_t)snprintf(many, sizeof many, "%s, \"logit_bias\": {\"0\": 1", THIRTY);
    for (int i = 1; i < 301; i++)
        at += (size_t)snprintf(many + at, sizeof many - at, ", \"%d\": 1", i);
    snprintf(many + at, sizeof many - at, "}}");
    refused(t, many, THERMO_E_FORMAT, "at most 300");
    s = see_all(t, THIRTY ", \"logprobs\": 20}");
    CHECK(s.tops == 600);
    refused(t, THIRTY ", \"logprobs\": 21}", THERMO_E_FORMAT, "from 0 to 20");
    refused(t, THIRTY ", \"presence_penalty\": 2.1}", THERMO_E_FORMAT, "from -2 to 2");
    refused(t, THIRTY ", \"frequency_penalty\": \"1\"}", THERMO_E_FORMAT, "frequency_penalty");
    refused(t, THIRTY ", \"logit_bias\": {\"40\": 1}}", THERMO_E_FORMAT, "token id from 0 to 39");
    refused(t, THIRTY ", \"logit_bias\": {\"1 \": 1}}", THERMO_E_FORMAT, "token id");
    refused(t, THIRTY ", \"logit_bias\": {\"1\": 101}}", THERMO_E_FORMAT, "of token 1 is not a number from -100");
    refused(t, THIRTY ", \"logit_bias\": [1]}", THERMO_E_FORMAT, "not an object");
    thermo_close(t);
}

/* ---- schemas and calls ---- */

struct called {
    int pauses, offered, n, calls, index, ended, other;
    char text[256], call[256], name[16], id[16], stop[16];
};

static int take_call(void *ctx, const struct thermo_event *ev)
{
    struct called *c = ctx;
    if (ev->type == THERMO_END) {
        c->ended++;
        snprintf(c->stop, sizeof c->stop, "%s", ev->stop);
    } else if (c->offered++ < c->pauses) {
        return THERMO_PAUSE;
    }
    c->offered = 0;
    if (ev->part == THERMO_CALL) {
        snprintf(c->call, sizeof c->call, "%s", ev->text);
        snprintf(c->name, sizeof c->name, "%s", ev->call_name);
        snprintf(c->id, sizeof c->id, "%s", ev->call_id);
        c->calls++;
        c->index = ev->call_index;
        c->other |= strlen(ev->text) != ev->text_bytes;
    } else {
        c->other |= ev->call_name != NULL;
        strncat(c->text, ev->text, sizeof c->text - strlen(c->text) - 1);
    }
    return 0;
}

static struct called call_of(struct thermo *t, const char *asked, int pauses)
{
    struct called c = { .pauses = pauses };
    const struct thermo_request q = { .size = sizeof q, .fields = asked, .fields_bytes = strlen(asked) };
    struct thermo_error e = { 0 };
    uint64_t id;
    CHECK_MSG(thermo_submit(t, &q, take_call, &c, &id, &e) == 0, "%s", e.message);
    while (!c.ended && !e.code)
        thermo_step(t, 20, &e);
    return c;
}

static void schemas_and_calls(void)
{
#define TOOLS "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"fun\"}}]"
#define FUNCTIONS "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"fun\", \"strict\": true, " \
                  "\"parameters\": {\"properties\": {\"a\": {\"const\": [1]}}, \"required\": [\"a\"]}}}]"
#define MADE "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}], \"n\": 40, \"seed\": 3, "
    static const char template[] = "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}ab{% endif %}"
                                   "{# ipython {\"name\": \"\", \"parameters\": {}} #}";
    static const char call[] = "\"schema\": {\"const\": {\"name\": \"fun\", \"parameters\": {\"a\": [1]}}}}";
    const char *const more[] = { "-q", "--no-mlock", "--chat-template", template_path, NULL };
    struct thermo_options o = { .size = sizeof o, .model = pack_path, .plan = plan_path, .more = more, .messages = 1, .calls = 1,
                                .schemas = 1 };
    struct thermo *t = NULL;
    struct thermo_error e = { 0 };
    FILE *f = fopen(template_path, "w");
    CHECK(f && fputs(template, f) > 0 && fclose(f) == 0);
    CHECK_MSG(thermo_open(&o, &t, &e) == 0, "%s", e.message);
    CHECK(described(t, "\"calls\":\"llama\"") && described(t, "\"schemas\":1"));
    char asked[700], first[16] = "";
    snprintf(asked, sizeof asked, MADE TOOLS ", %s", call);
    for (int pauses = 0; pauses < 3; pauses++) {
        struct called c = call_of(t, asked, pauses);
        CHECK_MSG(c.calls == 1 && c.index == 0 && !c.other && c.ended == 1 && !strcmp(c.stop, "eos"), "%d %s", c.calls, c.stop);
        CHECK(!strcmp(c.call, "{\"a\":[1]}") && !strcmp(c.name, "fun") && !*c.text && strlen(c.id) == 9);
        CHECK(!pauses || !strcmp(first, c.id));
        memcpy(first, c.id, sizeof first);
    }
    snprintf(asked, sizeof asked, MADE "%s", call); /* no tools: text */
    CHECK(!strcmp(call_of(t, asked, 0).text, "{\"name\":\"fun\",\"parameters\":{\"a\":[1]}}"));
    struct called c = call_of(t, MADE "\"ignore_eos\": true, \"schema\": {\"type\": \"integer\", \"minimum\": 10, \"maximum\": 44}}", 1);
    CHECK_MSG(strlen(c.text) == 2 && !strcmp(c.stop, "eos"), "'%s' %s", c.text, c.stop); /* whole, and nothing else may come */
    refused(t, MADE "\"schema\": {\"not\": {}}}", THERMO_E_UNSUPPORTED, "\"not\"");
    refused(t, MADE "\"schema\": {\"type\": \"integer\", \"minimum\": 55, \"maximum\": 54}}", THERMO_E_FORMAT, "no integer");
    /* an answer that has to be a call */
    for (int i = 0; i < 3; i++) {
        static const char *const choices[] = { "\"required\"", "{\"name\": \"fun\"}", "\"required\"" };
        snprintf(asked, sizeof asked, MADE FUNCTIONS ", \"ignore_eos\": %s, \"tool_choice\": %s}", i == 2 ? "true" : "false", choices[i]);
        c = call_of(t, asked, i);
        int made = c.calls == 1 && !c.other && !*c.text && !strcmp(c.name, "fun") && !strcmp(c.call, "{\"a\":[1]}");
        CHECK_MSG(made && !strcmp(c.stop, "eos"), "%d calls, '%s', %s(%s), %s", c.calls, c.text, c.name, c.call, c.stop);
    }
    c = call_of(t, MADE FUNCTIONS ", \"tool_choice\": \"none\", \"schema\": {\"const\": {\"name\":\"fun\",\"parameters\":{}}}}", 0);
    CHECK_MSG(c.calls == 0 && !strcmp(c.text, "{\"name\":\"fun\",\"parameters\":{}}"), "'%s'", c.text);
    c = call_of(t, MADE FUNCTIONS ", \"tool_choice\": \"auto\", \"schema\": {\"const\": {\"name\":\"fun\",\"parameters\":{}}}}", 0);
    CHECK_MSG(c.calls == 1 && !strcmp(c.call, "{}"), "'%s'", c.text); /* parsed, and of no schema of the tool's */
    refused(t, MADE FUNCTIONS ", \"tool_choice\": {\"name\": \"fan\"}}", THERMO_E_FORMAT, "\"tool_choice\": \"tools\" has no \"fan\"");
    refused(t, MADE FUNCTIONS ", \"tool_choice\": {\"nam\": \"fun\"}}", THERMO_E_FORMAT, "\"nam\"");
    refused(t, MADE FUNCTIONS ", \"tool_choice\": \"any\"}", THERMO_E_FORMAT, "\"tool_choice\" is not \"none\"");
    refused(t, MADE "\"tool_choice\": \"required\"}", THERMO_E_FORMAT, "there are no \"tools\"");
    refused(t, MADE FUNCTIONS ", \"tool_choice\": \"required\", \"json\": true}", THERMO_E_FORMAT, "an answer is a call, or");
    refused(t, "{\"prompt\": \"a\", \"tool_choice\": \"required\"}", THERMO_E_FORMAT, "\"tool_choice\" is of \"messages\"");
    c = call_of(t, MADE "\"schema\": {\"const\": 99}}", 0); /* the vocabulary has no 9 */
    CHECK_MSG(!strcmp(c.stop, "error"), "%s", c.stop);
    thermo_close(t);
    o.calls = o.schemas = 0;
    CHECK_MSG(thermo_open(&o, &t, &e) == 0, "%s", e.message);
    refused(t, asked, THERMO_E_UNSUPPORTED, "--schemas");
    refused(t, MADE FUNCTIONS ", \"tool_choice\": \"required\"}", THERMO_E_UNSUPPORTED, "--schemas");
    thermo_close(t);
    unlink(template_path);
}

int main(void)
{
    struct err e = { 0 };
    const struct engine_sample s = { .form = LAYOUT_SPLIT, .types = { QUANT_Q8_0, QUANT_Q8_0, QUANT_F32 }, .cluster = 16, .block = 512,
                                     .act = MODEL_ACT_RELU, .n_ff = 192 };
    int fd = mkstemp(pack_path);
    CHECK(fd >= 0);
    close(fd);
    snprintf(plan_path, sizeof plan_path, "%s.json", pack_path);
    snprintf(template_path, sizeof template_path, "%s.jinja", pack_path);
    CHECK_MSG(es_pack(pack_path, &s, &e) == 0 && plan_for_pack(pack_path, plan_path, CONTEXT, &e) == 0, "%s", e.msg);
    each_alone();
    static const char *const tiny[] = { "-q", "--no-mlock", "--kv-positions", "192", NULL };
    static const char *const guesses[] = { "-q", "--no-mlock", "--kv-positions", "192", "--guess", "lookup", NULL };
    many(NULL);
    many(tiny);
    many(guesses);
    give_way();
    worths();
    fills();
    places();
    pauses();
    choices();
    from_a_sink();
    interrupts();
    known_before();
    wrong();
    conversation();
    messages();
    schemas_and_calls();
    logits();
    unlink(pack_path);
    unlink(plan_path);
    return test_done();
}
