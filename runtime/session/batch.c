/* A text waits, then reads its prompt, then decodes; `texts` holds those of the latter two. Admission counts pages: a text begins
 * when what it has to read and a page more have room beside what others have and want so. What they make may need more: before each step
 * its pages are counted, and the text that began last gives way until they are there; so a pass never finds the KV cache full. The first
 * of all never gives way, so each text ends. With the usual cache, context times places, there are pages for any texts.
 *
 * Guesses go behind a text's last token in its part; what the model would have drawn there is drawn after the pass, row by row, and the
 * session forgets those that are something else. A text never has more of them than it may still make, so its pages suffice. */
#include "runtime/session/batch.h"

#include "common/base/progress.h"
#include "common/model/logits.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WAITS, FOLLOWS, READS, DECODES, ENDED }; /* FOLLOWS: a sibling, until the prompt has been read */

#define FIRST   3  /* steps without guesses: what else is there to compare with */
#define FIND_NS (20 * INT64_C(1000000)) /* of a step, for what a folder has */
#define REFRESH 32 /* steps with guesses before one without */

const char *const batch_end_names[] = { "length", "eos", "stop", "context", "interrupted", "error", NULL };

static const struct budget_choice *choice_of(const struct batch *b)
{
    return &engine_configuration(b->c.engine)->choice;
}

static int pages_of(int positions)
{
    return (positions + SCHEDULE_KV_PAGE - 1) / SCHEDULE_KV_PAGE;
}

/* Siblings that have no session yet. */
static int followers(const struct batch_text *t)
{
    return t->n_made > 0 ? 0 : t->n_siblings;
}

/* Pages of a text with so many tokens made, without its siblings: what it holds then, and one more, where it may come to fill it. */
static int pages_wanted(const struct batch *b, const struct batch_text *t, int made)
{
    int context = choice_of(b)->context, most = pages_of(t->n < context - t->n_prompt ? t->n_prompt + t->n : context);
    int wanted = pages_of(t->n_prompt + made) + 1;
    wanted = wanted < most ? wanted : most;
    return wanted < b->pages || !made ? wanted : b->pages; /* it has been there before */
}

static int pages_wanted_in_all(const struct batch *b, const struct batch_text *t, int made)
{
    int n = pages_wanted(b, t, made);
    for (const struct batch_text *x = followers(t) ? t->siblings : NULL; x; x = x->siblings) /* these begin in its last page */
        n += pages_wanted(b, x, 0) - t->n_prompt / SCHEDULE_KV_PAGE;
    return n;
}

/* Pages that nobody has. Who looks on may hold what texts share several times (mtp.h): then nothing counts as shared. */
static int pages_free(const struct batch *b)
{
    int held = 0;
    if (!b->guess.watcher)
        return engine_free_positions(b->c.engine) / SCHEDULE_KV_PAGE;
    for (int i = 0; i < b->n_texts; i++)
        held += pages_of(session_n_pos(&b->texts[i]->session));
    for (int i = 0; i < b->n_parked; i++)
        held += pages_of(session_n_pos(&b->parked[i]));
    return b->pages - held;
}

/* Of these, what texts that are open want and have not taken. */
static int pages_promised(const struct batch *b)
{
    int n = 0;
    for (int i = 0; i < b->n_texts; i++) {
        const struct batch_text *t = b->texts[i];
        int more = pages_wanted_in_all(b, t, t->n_made) - pages_of(session_n_pos(&t->session));
        n += more > 0 ? more : 0;
    }
    return n;
}

uint64_t batch_bytes(int sequences, int guesses)
{
    uint64_t of_guesses = guesses ? sizeof(struct guess_ask) + sizeof(struct guess_want) : 0;
    return (uint64_t)sequences * (sizeof(struct batch_text *) + sizeof(struct session_part) + sizeof(struct session) + of_guesses) + 64;
}

int batch_init(struct batch *b, const struct batch_config *c, struct err *e)
{
    *b = (struct batch){ .c = *c, .pace = { .most_ns = c->most_ns } };
    size_t n = (size_t)choice_of(b)->max_batch;
    b->texts = calloc(n, sizeof *b->texts);
    b->parts = calloc(n, sizeof *b->parts);
    int positions = choice_of(b)->kv_positions, guesses = c->guesses != NULL;
    b->pages = positions ? pages_of(positions) : (int)n * pages_of(choice_of(b)->context);
    if (guesses) {
        b->guess = *c->guesses;
        b->each_ns = b->guess.guess_ns;
        b->times = (struct guess_times){ .batches = b->guess.batches, .n_batches = b->guess.n_batches, .plan = b->guess.plan };
        b->asks = calloc(n, sizeof *b->asks);
        b->wants = calloc(n, sizeof *b->wants);
    }
    int kept = c->prefixes && !b->guess.watcher ? engine_keep_prefixes(c->engine, c->states, e) : 0;
    if (kept < 0)
        return kept;
    const struct engine_config *g = engine_configuration(c->engine);
    b->whole = !engine_approximates(g) && !g->accel.accel;
    b->finds = !kept ? 0 : b->whole ? 2 : 1;
    b->saves_states = kept && model_has_states(&g->pack->h);
    if (c->prefixes && (!kept || b->saves_states) && !(b->parked = calloc(n, sizeof *b->parked)))
        return err_set(e, ERR_NOMEM, "out of memory for a batch of %zu sequences", n);
    int got = b->texts && b->parts && (!guesses || (b->asks && b->wants));
    return got ? 0 : err_set(e, ERR_NOMEM, "out of memory for a batch of %zu sequences", n);
}

void batch_done(struct batch *b)
{
    for (int i = 0; i < b->n_texts; i++)
        session_done(&b->texts[i]->session);
    for (int i = 0; i < b->n_parked; i++)
        session_done(&b->parked[i]);
    free(b->parked);
    free(b->texts);
    free(b->parts);
    free(b->asks);
    free(b->wants);
    *b = (struct batch){ 0 };
}

int batch_check(const struct batch *b, const struct batch_text *t, struct err *e)
{
    const struct budget_choice *c = choice_of(b);
    if (t->n_prompt > c->context)
        return err_set(e, ERR_LIMIT, "the prompt has %d tokens; the context holds %d", t->n_prompt, c->context);
    if (t->n_siblings >= c->max_batch)
        return err_set(e, ERR_LIMIT, "%d texts from one prompt; the memory holds %d sequences", t->n_siblings + 1, c->max_batch);
    int pages = pages_wanted_in_all(b, t, 0);
    return pages <= b->pages ? 0 : err_set(e, ERR_LIMIT, "a prompt of %d tokens and room for what follows take %d pages of the KV cache, "
                                           "which has %d of %d positions", t->n_prompt, pages, b->pages, SCHEDULE_KV_PAGE);
}

void batch_pause(struct batch_text *t, int paused)
{
    t->paused = paused;
}

static void begin_to_wait(struct batch_text *t, int state)
{
    t->state = state;
    t->paused = 0;
    t->after = NULL;
    t->n_made = t->n_drawn = t->n_read = t->n_scored = t->n_shared = 0;
    t->logprob = 0;
    memset(t->guesses, 0, sizeof t->guesses);
}

int batch_add(struct batch *b, struct batch_text *t, struct err *e)
{
    t->n_made = 0;
    int r = batch_check(b, t, e);
    if (r < 0)
        return r;
    begin_to_wait(t, WAITS);
    for (struct batch_text *x = t->siblings; x; x = x->siblings)
        begin_to_wait(x, FOLLOWS);
    if (b->last)
        b->last->after = t;
    else
        b->first = t;
    b->last = t;
    b->n_waiting++;
    return 0;
}

/* ---- ends ---- */

static void unlink_waiting(struct batch *b, const struct batch_text *t)
{
    struct batch_text *before = NULL;
    for (struct batch_text *i = b->first; i != t; i = i->after)
        before = i;
    if (before)
        before->after = t->after;
    else
        b->first = t->after;
    if (b->last == t)
        b->last = before;
    b->n_waiting--;
}

static void end_text(struct batch *b, struct batch_text *t, enum batch_end end, const struct err *why)
{
    t->state = ENDED;
    b->c.end(b->c.ctx, t, end, why);
}

static void drop_parked(struct batch *b, int i)
{
    session_done(&b->parked[i]);
    memmove(b->parked + i, b->parked + i + 1, (size_t)(--b->n_parked - i) * sizeof *b->parked);
}

/* Parked sessions go, the oldest first, until so many more places and pages are free; the last `stay` of them do not. */
static void unpark(struct batch *b, int places, int pages, int stay)
{
    while (b->n_parked > stay && (b->n_texts + b->n_parked + places > choice_of(b)->max_batch || pages > pages_free(b)))
        drop_parked(b, 0);
}

/* The session stays where it is, with what a prompt's pass would have made. 1: it does. */
static int park(struct batch *b, struct batch_text *t)
{
    struct session *s = &t->session;
    int n = session_n_pos(s);
    n = b->whole || n < t->n_prompt ? n : t->n_prompt;
    if (!b->parked || n < SCHEDULE_KV_PAGE || session_can_keep(s, n) < n)
        return 0;
    session_rewind(s, n);
    b->parked[b->n_parked++] = *s;
    *s = (struct session){ 0 };
    return 1;
}

/* Its place and its pages are free. sound: what these hold is worth keeping; ends: and they stay as long as nobody needs them. */
static void leave(struct batch *b, struct batch_text *t, int sound, int ends)
{
    int i = 0;
    while (b->texts[i] != t)
        i++;
    memmove(b->texts + i, b->texts + i + 1, (size_t)(--b->n_texts - i) * sizeof *b->texts);
    if (b->finds == 2 && sound)
        session_publish(&t->session, session_n_pos(&t->session));
    if (ends && sound && park(b, t))
        return;
    session_done(&t->session);
}

/* It goes on later from where it is, before all that wait. */
static void give_way(struct batch *b, struct batch_text *t)
{
    assert(t->made || t->n_made < 2);
    t->sampler = t->session.sampler;
    leave(b, t, 1, 0);
    t->state = WAITS;
    t->n_read = 0;
    t->after = b->first;
    b->first = t;
    b->last = b->last ? b->last : t;
    b->n_waiting++;
    b->gave_way++;
}

/* Siblings of a text whose prompt nobody has read to its end have no session, and end with it. */
static void end(struct batch *b, struct batch_text *t, enum batch_end how, const struct err *why)
{
    struct batch_text *sibling = t->state == DECODES || !followers(t) ? NULL : t->siblings;
    struct err copy = { 0 };
    if (why)
        copy = *why;
    if (t->state == WAITS)
        unlink_waiting(b, t);
    else
        leave(b, t, how != BATCH_FAILED, 1);
    while (sibling) { /* which is the caller's again once it has ended */
        struct batch_text *x = sibling;
        sibling = x->siblings;
        end_text(b, x, how, why ? &copy : NULL);
    }
    end_text(b, t, how, why ? &copy : NULL);
}

void batch_cancel(struct batch *b, struct batch_text *t)
{
    if (t->state != FOLLOWS)
        end(b, t, BATCH_CANCELLED, NULL);
}

/* ---- beginnings ---- */

/* The text that has read most of what this one's prompt begins with, at least a page; *n: how much. */
static const struct batch_text *same_beginning(const struct batch *b, const struct batch_text *t, int *n)
{
    const struct batch_text *best = NULL;
    *n = SCHEDULE_KV_PAGE - 1;
    for (int i = 0; i < b->n_texts; i++) {
        const struct batch_text *x = b->texts[i];
        int same = 0, most = x->n_read < x->n_prompt ? x->n_read : x->n_prompt; /* what it read exactly */
        most = most < t->n_prompt - 1 ? most : t->n_prompt - 1;
        while (same < most && x->prompt[same] == t->prompt[same])
            same++;
        if (same > *n && session_can_keep(&x->session, same) == same) {
            best = x;
            *n = same;
        }
    }
    return best;
}

static struct session_config config_of(const struct batch *b, const struct batch_text *t, int n_prompt)
{
    struct session_config c = { .sampling = t->sampling, .watcher = b->guess.watcher, .watcher_ctx = b->guess.ctx };
    c.sampling.n_prompt = n_prompt;
    return c;
}

/* What its prompt's tokens are worth has to be computed still. */
static int scores(const struct batch_text *t)
{
    return t->scores && t->n_scored < t->n_prompt;
}

/* The parked session that holds most of what a prompt begins with, at least a page: 1, it is the last of them now; *n: how much. */
static int find_parked(struct batch *b, const struct batch_text *t, int *n)
{
    int best = -1;
    *n = SCHEDULE_KV_PAGE - 1;
    for (int i = 0; i < b->n_parked; i++) {
        const struct session *s = &b->parked[i];
        const int32_t *ids = session_ids(s);
        int same = 0, most = session_n_pos(s) < t->n_prompt - 1 ? session_n_pos(s) : t->n_prompt - 1;
        while (same < most && ids[same] == t->prompt[same])
            same++;
        if (same > *n && session_can_keep(s, same) == same) {
            best = i;
            *n = same;
        }
    }
    if (best < 0)
        return 0;
    struct session s = b->parked[best];
    memmove(b->parked + best, b->parked + best + 1, (size_t)(b->n_parked - 1 - best) * sizeof s);
    b->parked[b->n_parked - 1] = s;
    return 1;
}

/* A text has a session, which holds the first of its prompt: how many tokens, or ERR_*. Of a parked session all goes on; or, where a place
 * is free beside it, what is the same. */
static int begin_session(struct batch *b, struct batch_text *t, int parked, int same, struct err *e)
{
    const struct session_config c = config_of(b, t, t->n_prompt);
    int open = 0, r;
    t->finding = 0;
    const struct batch_text *like = b->finds || scores(t) ? NULL : same_beginning(b, t, &open);
    struct session *s = parked && (!like || same >= open) ? &b->parked[b->n_parked - 1] : NULL;
    if (s && (same == session_n_pos(s) || b->n_texts + b->n_parked >= choice_of(b)->max_batch)) {
        t->session = *s;
        b->n_parked--;
        session_rewind(&t->session, same);
        session_sampling(&t->session, &c.sampling);
        return same;
    }
    unpark(b, 1, 0, s != NULL);
    const struct session *from = s ? s : like ? &like->session : NULL;
    int n = s ? same : like ? open : 0;
    r = from ? session_fork(&t->session, from, n, &c, e) : session_init(&t->session, b->c.engine, &c, e);
    if (r < 0 || from || !b->finds || scores(t))
        return r < 0 ? r : n;
    return session_find(&t->session, t->prompt, t->n_prompt - 1, 0, &t->finding);
}

/* What texts begin with is taken where it is there. 1: some has been, or may be. */
static int find_more(struct batch *b)
{
    int any = 0;
    for (int i = 0; i < b->n_texts; i++) {
        struct batch_text *t = b->texts[i];
        if (!t->finding || t->paused)
            continue;
        t->n_read = session_find(&t->session, t->prompt, t->n_prompt - 1, FIND_NS, &t->finding);
        t->n_shared = t->n_made ? t->n_shared : t->n_read;
        any |= t->finding;
    }
    return any;
}

static void enter(struct batch *b, struct batch_text *t, int state)
{
    t->state = state;
    b->texts[b->n_texts++] = t;
}

/* The first that waits, where there is room for it. 1: it has begun. */
static int begin_next(struct batch *b, struct err *e)
{
    struct batch_text *t = b->first;
    int same = 0, n;
    if (!t || b->n_texts + b->kept + 1 + followers(t) > choice_of(b)->max_batch)
        return 0;
    for (int i = 0; i < b->n_texts; i++) /* their places are promised */
        if (b->texts[i]->state == READS && followers(b->texts[i]))
            return 0;
    int parked = !scores(t) && find_parked(b, t, &same), wanted = pages_promised(b) + pages_wanted_in_all(b, t, t->n_made);
    unpark(b, followers(t) + !parked, wanted, parked);
    if (b->n_texts > 0 && pages_promised(b) + pages_wanted_in_all(b, t, t->n_made) > pages_free(b))
        return 0;
    if ((n = begin_session(b, t, parked, same, e)) < 0)
        return n;
    unlink_waiting(b, t);
    t->n_read = n;
    if (t->n_made)
        t->session.sampler = t->sampler;
    else
        t->n_shared = t->n_read;
    enter(b, t, READS);
    return 1;
}

/* Others go on from a prompt that has been read: how many, into began[max_batch]. */
static int begin_siblings(struct batch *b, struct batch_text *t, struct batch_text **began)
{
    int n = 0;
    t->state = DECODES;
    unpark(b, t->n_siblings, 0, 0);
    for (struct batch_text *x = t->siblings, *next; x; x = next) {
        struct err why = { 0 };
        next = x->siblings;
        const struct session_config c = config_of(b, x, t->n_prompt);
        x->n_read = x->n_scored = x->n_shared = t->n_prompt;
        if (session_fork(&x->session, &t->session, t->n_prompt, &c, &why) < 0) {
            end_text(b, x, BATCH_FAILED, &why);
            continue;
        }
        enter(b, x, DECODES);
        began[n++] = x;
    }
    return n;
}

/* ---- tokens ---- */

static int is_eog(const struct batch *b, int32_t id)
{
    for (int i = 0; i < b->c.n_eog; i++)
        if (b->c.eog[i] == id)
            return 1;
    return 0;
}

/* Before the logits are changed. The sum of their exponentials, as a logarithm. */
static double look_at(struct batch_text *t, const float *logits, int n_vocab)
{
    double sum = logits_log_sum_near(logits, n_vocab);
    t->n_top = logits_best(logits, n_vocab, t->logprobs, t->top);
    for (int i = 0; i < t->n_top; i++)
        t->top_logprob[i] = (double)logits[t->top[i]] - sum;
    return sum;
}

/* Draws what follows the session's first `held` tokens, from their logits, or, where these are NULL, from the session's own. 1: the
 * text goes on with it; else how it ended is in *how. */
static int draw(struct batch *b, struct batch_text *t, int held, float *logits, enum batch_end *how, struct err *why)
{
    const struct engine_config *c = engine_configuration(b->c.engine);
    int n_never = t->ignore_eos ? b->c.n_eog : 0;
    *how = BATCH_LENGTH;
    if (t->n == 0)
        return 0;
    *how = BATCH_FAILED;
    if (logits ? session_check_logits(&t->session, logits, held, why) < 0 : !(logits = session_logits(&t->session, why)))
        return 0;
    const uint64_t *allowed = t->masked ? b->c.allowed(b->c.ctx, t, why) : NULL;
    if (t->masked && !allowed) {
        *how = why->code ? BATCH_FAILED : BATCH_EOS;
        return 0;
    }
    double sum = look_at(t, logits, c->pack->h.n_vocab);
    session_allow(&t->session, allowed);
    t->last = session_sample_at(&t->session, held, logits, b->c.eog, n_never);
    session_allow(&t->session, NULL);
    t->n_drawn++;
    b->n_drawn++;
    t->token_logprob = (double)logits[t->last] - sum;
    t->logprob += t->token_logprob;
    *how = BATCH_EOS;
    if (!t->ignore_eos && is_eog(b, t->last))
        return 0;
    t->n_made++;
    *how = BATCH_STOP;
    if (b->c.token(b->c.ctx, t, t->last))
        return 0;
    *how = t->n_made == t->n ? BATCH_LENGTH : BATCH_CONTEXT;
    return t->n_made < t->n && held < c->choice.context;
}

/* Tokens of a prompt behind those of the part, by the logits after these. 0; -1: *why. */
static int score(struct batch *b, struct batch_text *t, const struct session_part *p, struct err *why)
{
    const struct model_hparams *h = &engine_configuration(b->c.engine)->pack->h;
    struct session *s = &t->session;
    int most = t->n_prompt - 1 - t->n_read, rows = p->n < most ? p->n : most;
    if (!t->n_scored) {
        t->n_top = 0;
        t->token_logprob = NAN;
        b->c.scored(b->c.ctx, t, t->n_scored++);
    }
    for (int i = 0, n; i < rows; i += n) {
        float *logits = session_logits_memory(s, &n);
        n = n < rows - i ? n : rows - i;
        if (session_head(s, session_hidden(s) + (size_t)i * (size_t)h->d_model, n, logits, why) < 0)
            return -1;
        for (int k = 0; k < n; k++, logits += h->n_vocab) {
            const int at = t->n_read + i + k + 1;
            if (at < t->n_scored) /* it gave its place up, and was told of */
                continue;
            t->token_logprob = (double)logits[t->prompt[at]] - look_at(t, logits, h->n_vocab);
            t->n_scored = at + 1;
            b->c.scored(b->c.ctx, t, at);
        }
    }
    return 0;
}

static void draw_or_end(struct batch *b, struct batch_text *t)
{
    enum batch_end how;
    struct err why = { 0 };
    if (!draw(b, t, session_n_pos(&t->session), NULL, &how, &why))
        end(b, t, how, how == BATCH_FAILED ? &why : NULL);
}

/* ---- guesses ---- */

/* Logits of the step's rows, several at a time: the head's weights are read once for them. */
struct rows {
    float *v;           /* of rows [from, to) of the pass */
    int from, to, all;  /* all: of the pass */
};

static float *row_of(struct rows *w, struct session *s, int row, struct err *e)
{
    const struct engine_config *c = engine_configuration(s->engine);
    int n;
    if (row < w->from || row >= w->to) {
        w->v = session_logits_memory(s, &n);
        n = n < w->all - row ? n : w->all - row;
        w->from = w->to = row;
        if (session_head(s, session_hidden(s) + (size_t)(row - s->first) * (size_t)c->pack->h.d_model, n, w->v, e) < 0)
            return NULL;
        w->to = row + n;
    }
    return w->v + (size_t)(row - w->from) * (size_t)c->pack->h.n_vocab;
}

/* Of n guesses the first `accepted` came true; of those behind the first wrong one, and behind a text's end, nothing is known. */
static void learn(struct batch *b, struct batch_text *t, int n, int accepted)
{
    b->guessed.accepted += (uint64_t)accepted;
    b->guessed.tried += (uint64_t)(accepted + (accepted < n));
    if (n > 0)
        guess_class_learn(&t->guesses[t->class], n, accepted);
}

/* What follows the last token, and each guess that is what was drawn before it. */
static void draw_part(struct batch *b, struct batch_text *t, const struct session_part *p, struct rows *w)
{
    struct session *s = &t->session;
    int first = session_n_pos(s) - p->n, i = 0, goes_on;
    enum batch_end how = BATCH_FAILED;
    struct err why = { 0 };
    do {
        float *logits = row_of(w, s, s->first + i, &why);
        goes_on = logits && draw(b, t, first + ++i, logits, &how, &why);
    } while (goes_on && !t->paused && i < p->n && t->last == p->ids[i]);
    int accepted = i > 0 ? i - 1 : 0;
    learn(b, t, goes_on && !t->paused ? p->n - 1 : accepted, accepted);
    if (!goes_on)
        end(b, t, how, how == BATCH_FAILED ? &why : NULL);
    else if (i < p->n)
        session_rewind(s, first + i);
}

/* How many guesses each text can have: no more than it may make behind what the step draws anyway, and than has room. */
static int ask(struct batch *b, struct batch_text *const *of, int n)
{
    int context = choice_of(b)->context, left = session_step_most(b->c.engine) - n, any = 0, spare = pages_free(b);
    for (int i = 0; i < n; i++)
        spare -= session_pages_needed(&of[i]->session, 1);
    for (int i = 0; i < n; i++) {
        struct batch_text *t = of[i];
        struct guess_ask *a = &b->asks[i];
        *a = (struct guess_ask){ .s = &t->session, .last = t->last, .never = b->c.eog, .n_never = t->ignore_eos ? b->c.n_eog : 0,
                                 .out = t->ids + 1, .most = b->guess.most };
        int made = t->n - t->n_made - 1, room = context - session_n_pos(&t->session) - 1;
        a->most = a->most < made ? a->most : made;
        a->most = a->most < room ? a->most : room;
        a->most = a->most < left ? a->most : left;
        int pages = session_pages_needed(&t->session, 1 + a->most) - session_pages_needed(&t->session, 1);
        int in_page = SCHEDULE_KV_PAGE - 1 - session_n_pos(&t->session) % SCHEDULE_KV_PAGE;
        if (pages > spare)
            a->most = a->most < in_page ? a->most : in_page;
        else
            spare -= pages;
        any |= a->most > 0;
        t->ids[0] = t->last;
    }
    return any;
}

/* Gives texts guesses of those that they may have, by how good theirs are: into `most` of the asks where they have not been made yet,
 * else into n. */
static void share_out(struct batch *b, struct batch_text *const *of, int n, int made)
{
    int left = session_step_most(b->c.engine) - n;
    for (int i = 0; i < n; i++)
        b->wants[i] = (struct guess_want){ .share = guess_class_share(&of[i]->guesses[b->asks[i].class]),
                                           .most = made ? b->asks[i].n : b->asks[i].most };
    if (!b->guess.always)
        guess_share_out(&b->times, b->wants, n, left, b->each_ns);
    for (int i = 0; i < n; i++) {
        struct guess_want *w = &b->wants[i];
        w->k = b->guess.always ? w->most : w->k;
        left -= w->k;
    }
    for (int i = 0; i < n; i++) {
        struct guess_want *w = &b->wants[i];
        if (w->k == 0 && w->most > 0 && left >= GUESS_TRIED && !b->guess.always && guess_class_due(&of[i]->guesses[b->asks[i].class]))
            left -= w->k = w->most < GUESS_TRIED ? w->most : GUESS_TRIED;
        while (left < 0 && w->k > 0) /* as many as a pass holds */
            left++, w->k--;
        *(made ? &b->asks[i].n : &b->asks[i].most) = w->k;
    }
}

/* What guesses failed: where that is for its numbers, texts go on without it. */
static int no_guesses(struct batch *b, struct err *e)
{
    if (e->code != ERR_FORMAT && e->code != ERR_LIMIT)
        return e->code;
    b->no_guesses = *e;
    return 0;
}

/* Parts of texts that all decode get guesses. 1: some have any. */
static int add_guesses(struct batch *b, struct batch_text *const *of, int n, struct err *e)
{
    const struct guess_many_config *c = &b->guess;
    int r, any = 0, made = 0;
    if (!c->most || b->no_guesses.code || !n || (!c->always && (b->decoded < FIRST || b->since >= REFRESH)) || !ask(b, of, n))
        return 0;
    if (c->costly)
        share_out(b, of, n, 0);
    int64_t start = progress_now_ns(), asked;
    if (c->ready && (r = c->ready(c->ctx, b->asks, n, e)) < 0)
        return no_guesses(b, e);
    asked = progress_now_ns();
    if ((r = c->source(c->ctx, b->asks, n, e)) < 0)
        return no_guesses(b, e);
    double took = (double)(progress_now_ns() - asked);
    for (int i = 0; i < n; i++)
        made += b->asks[i].n;
    if (made) {
        b->each_ns = b->measured ? GUESS_MEMORY * b->each_ns + (1 - GUESS_MEMORY) * took / made : took / made;
        b->measured = 1;
    }
    b->guessed.source_ns += (uint64_t)(progress_now_ns() - start);
    if (!c->costly)
        share_out(b, of, n, 1);
    for (int i = 0; i < n; i++) {
        of[i]->class = b->asks[i].class;
        b->parts[i].ids = of[i]->ids;
        b->parts[i].n = 1 + b->asks[i].n;
        b->guessed.guessed += (uint64_t)b->asks[i].n;
        any |= b->asks[i].n > 0;
    }
    for (int i = 0; i < n; i++)
        b->parts[i].logits = !any;
    b->guessed.passes += (uint64_t)any;
    return any;
}

/* ---- a step ---- */

/* Is the state after so many tokens of a text, as it reads its prompt or decodes, one to keep? */
static int saves_state(const struct batch *b, const struct batch_text *t, int n)
{
    const int page = SCHEDULE_KV_PAGE;
    return b->saves_states && n > 0 && n % page == 0 && (n <= t->n_prompt || b->whole) &&
           (n % BATCH_STATES == 0 || n == (t->n_prompt - 1) / page * page || n == t->n_before / page * page);
}

/* What a text reads next, of a chunk: of its prompt, and, where it had to wait, of what it had made; to where its state is to be kept. */
static struct session_part reading(const struct batch *b, struct batch_text *t, int chunk)
{
    for (int i = 1; i < chunk; i++)
        if (saves_state(b, t, t->n_read + i))
            chunk = i;
    int prompt = t->n_read < t->n_prompt, rest = prompt ? t->n_prompt - t->n_read : t->n_prompt + t->n_made - 1 - t->n_read;
    return (struct session_part){ .s = &t->session, .ids = prompt ? t->prompt + t->n_read : t->made + (t->n_read - t->n_prompt),
                                  .n = rest < chunk ? rest : chunk, .mode = prompt ? SESSION_EXACT : SESSION_PREDICTED,
                                  .logits = prompt && !t->n_made && rest <= chunk };
}

/* A part of each text: the last token, or as much of a prompt as the pass has room for. of[i]: whose part i is; *reads: prompts. */
static int fill_parts(struct batch *b, struct batch_text **of, int *reads)
{
    int left = session_step_most(b->c.engine), chunk = choice_of(b)->prefill_chunk, n = 0, decoding = 0, quick = left;
    for (int i = 0; i < b->n_texts; i++)
        decoding += b->texts[i]->state == DECODES && !b->texts[i]->paused;
    left -= decoding;
    chunk = chunk < left ? chunk : left;
    if (b->n_texts > 1)
        quick = pace_tokens(&b->pace, quick) - decoding;
    chunk = chunk < quick ? chunk : quick > 1 ? quick : chunk > 0;
    *reads = 0;
    for (int i = 0; i < b->n_texts; i++) {
        struct batch_text *t = b->texts[i];
        struct session_part *p = &b->parts[n];
        *p = (struct session_part){ .s = &t->session, .ids = &t->last, .n = 1, .mode = SESSION_PREDICTED, .logits = 1 };
        if (t->paused || t->finding)
            continue;
        if (t->state == READS) {
            *p = reading(b, t, chunk);
            chunk -= p->n;
            *reads = 1;
        }
        if (p->n)
            of[n++] = t;
    }
    return n;
}

/* What the step made of a text. */
static void go_on(struct batch *b, struct batch_text *t, const struct session_part *p, struct rows *w)
{
    if (p->result < 0) {
        end(b, t, p->result == ERR_INTR ? BATCH_CANCELLED : BATCH_FAILED, p->result == ERR_INTR ? NULL : session_error(&t->session));
        return;
    }
    if (t->state == DECODES) {
        if (p->n == 1 && saves_state(b, t, session_n_pos(&t->session))) {
            session_publish(&t->session, session_n_pos(&t->session));
            session_keep_state(&t->session);
        }
        if (p->logits)
            draw_or_end(b, t);
        else
            draw_part(b, t, p, w);
        return;
    }
    struct err why = { 0 };
    if (scores(t) && score(b, t, p, &why) < 0) {
        end(b, t, BATCH_FAILED, &why);
        return;
    }
    t->n_read += p->n;
    b->n_read += (uint64_t)p->n;
    if (b->finds)
        session_publish(&t->session, b->finds == 2 || t->n_read < t->n_prompt ? t->n_read : t->n_prompt);
    if (saves_state(b, t, t->n_read))
        session_keep_state(&t->session);
    if (t->n_read < t->n_prompt + (t->n_made ? t->n_made - 1 : 0))
        return;
    if (t->n_made) {
        t->state = DECODES;
        return;
    }
    struct batch_text *began[BUDGET_MAX_BATCH];
    int n = begin_siblings(b, t, began);
    draw_or_end(b, t); /* the caller may forget it when it ends: not so its siblings */
    for (int i = 0; i < n; i++)
        draw_or_end(b, began[i]);
}

/* A step, and whether it read prompts. */
static void book(struct batch *b, int texts, int tokens, int guesses, double ns)
{
    if (tokens > 0)
        pace_took(&b->pace, tokens, ns);
    if (b->reads)
        return;
    b->decoded++;
    if (texts == 1 && tokens >= 1 && tokens <= GUESS_MOST + 1) {
        b->guessed.n_by[tokens]++;
        b->guessed.ns_by[tokens] += (uint64_t)ns;
    }
    b->since = guesses ? b->since + 1 : 0;
    if (b->guess.most && tokens > 0)
        guess_times_took(&b->times, tokens, ns);
}

struct passing {
    struct batch_text *const *of;
    int n;
};

static int nobody_wants_it(const void *ctx)
{
    const struct passing *p = ctx;
    for (int i = 0; i < p->n; i++)
        if (!cancel_asked(p->of[i]->cancel))
            return 0;
    return 1;
}

static int64_t now_ns(const struct batch *b)
{
    return b->c.now_ns ? b->c.now_ns(b->c.ctx) : progress_now_ns();
}

/* Parts for which there are pages: others give way, the last that began first; a text that is alone has filled the cache. 1: one did, or
 * one ended. */
static int fill_parts_that_fit(struct batch *b, struct batch_text **of, int *n)
{
    for (int any = 0;; any = 1) {
        int need = 0;
        *n = fill_parts(b, of, &b->reads);
        for (int i = 0; i < *n; i++)
            need += session_pages_needed(&of[i]->session, b->parts[i].n);
        if (need == 0 || need <= pages_free(b))
            return any;
        if (b->n_parked)
            drop_parked(b, 0);
        else if (b->n_texts > 1)
            give_way(b, b->texts[b->n_texts - 1]);
        else
            end(b, b->texts[0], BATCH_CONTEXT, NULL);
    }
}

int batch_position(const struct batch *b)
{
    int64_t sum = 0;
    for (int i = 0; i < b->n_texts; i++)
        sum += session_n_pos(&b->texts[i]->session);
    return b->n_texts ? (int)(sum / b->n_texts) : 0;
}

int batch_step(struct batch *b, struct err *e)
{
    struct batch_text *of[SESSION_MOST];
    struct rows w = { 0 };
    int r = 1, n, changed;
    while (r > 0)
        r = begin_next(b, e);
    if (r < 0 || b->n_texts == 0)
        return r;
    if (cancel_asked(b->c.cancel)) {
        while (b->n_texts)
            end(b, b->texts[0], BATCH_CANCELLED, NULL);
        while (b->first)
            end(b, b->first, BATCH_CANCELLED, NULL);
        return err_set(e, ERR_INTR, "interrupted");
    }
    changed = find_more(b);
    changed |= fill_parts_that_fit(b, of, &n);
    if (n == 0)
        return changed;
    b->most = b->most > n ? b->most : n;
    r = b->reads ? 0 : add_guesses(b, of, n, e);
    if (r < 0) {
        for (int i = 0; i < n; i++)
            end(b, of[i], r == ERR_INTR ? BATCH_CANCELLED : BATCH_FAILED, r == ERR_INTR ? NULL : e);
        return r;
    }
    int guesses = r;
    int64_t start = now_ns(b);
    const struct passing p = { of, n };
    engine_stop_when(b->c.engine, nobody_wants_it, &p);
    r = session_step(b->parts, n, b->c.cancel, e);
    engine_stop_when(b->c.engine, NULL, NULL);
    int given_up = r == ERR_INTR && !cancel_asked(b->c.cancel);
    for (int i = 0; i < n; i++)
        w.all += b->parts[i].result < 0 ? 0 : b->parts[i].n;
    for (int i = 0; i < n; i++)
        go_on(b, of[i], &b->parts[i], &w);
    if (r == 0)
        book(b, n, w.all, guesses, (double)(now_ns(b) - start));
    return r < 0 && !given_up ? r : 1;
}
