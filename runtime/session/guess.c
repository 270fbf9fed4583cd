/* The session holds every token but the last one drawn, so a pass begins with that one and guesses what follows. Accepted tokens are
 * handed out one by one before the next pass. */
#include "runtime/session/guess.h"

#include "common/base/progress.h"

#include <assert.h>
#include <math.h>

#define PRIOR      2.0  /* guesses that count half true before any was tried */
#define MORE_FIRST 0.25 /* x before it was measured */
#define LOOKUP     8    /* the longest run that is told from longer ones */
#define PAUSE      16   /* passes without guesses after they did not pay; doubled each time, up to: */
#define PAUSE_MOST 1024
#define REFRESHED  0.5  /* the weight of what t1 was before a pass that tells what it is now */

void guess_init(struct guess *g, const struct guess_config *c, struct session *s)
{
    assert(c->most >= 0 && c->most <= GUESS_MOST);
    *g = (struct guess){ .c = *c, .s = s, .more = MORE_FIRST };
    g->lasts[1] = 1;
    if (c->plan && c->plan->n)
        g->each = c->guess_ns / plan_pass_ns(c->plan, 1);
}

void guess_begin(struct guess *g)
{
    g->n = g->at = g->begun = 0;
}

/* ---- prompt lookup ---- */

/* Length of the run that ends both before `end`, where it is followed by last, and at the end of ids[n]. */
static int run_before(const int32_t *ids, int n, int end)
{
    int k = 0;
    while (k + 1 < LOOKUP && k < end && ids[end - 1 - k] == ids[n - 1 - k])
        k++;
    return k;
}

int guess_lookup(void *ctx, const struct session *s, int32_t last, int32_t *out, int most, int *class, struct err *e)
{
    const int32_t *ids = session_ids(s);
    int n = session_n_pos(s), best = 0, at = 0;
    (void)ctx, (void)e;
    for (int i = n - 1; i >= 0 && best < LOOKUP; i--) {
        if (ids[i] != last)
            continue;
        int length = 1 + run_before(ids, n, i);
        if (length > best) {
            best = length;
            at = i + 1;
        }
    }
    if (!best)
        return 0;
    *class = best == 1 ? 0 : best == 2 ? 1 : best <= 4 ? 2 : 3;
    for (int i = 0; i < most; i++) /* what it does not hold yet is what was guessed */
        out[i] = at + i < n ? ids[at + i] : at + i == n ? last : out[at + i - n - 1];
    return most;
}

/* ---- how many ---- */

double guess_class_share(const struct guess_class *k)
{
    return (k->accepted + PRIOR / 2) / (k->tried + PRIOR);
}

/* By how much the plan's time of n tokens, against one token's, is too short: as measured, or between those that were measured; beyond
 * them as of the nearest. */
static double correction(const struct guess *g, int n)
{
    int below = n, above = n;
    while (g->lasts[below] <= 0) /* one token's is known */
        below--;
    while (above <= GUESS_MOST + 1 && g->lasts[above] <= 0)
        above++;
    double first = plan_pass_ns(g->c.plan, 1), low = g->lasts[below] * first / plan_pass_ns(g->c.plan, below);
    if (above > GUESS_MOST + 1 || above == below)
        return low;
    double high = g->lasts[above] * first / plan_pass_ns(g->c.plan, above);
    return low + (high - low) * (n - below) / (above - below);
}

/* A pass over n guesses, in parts of t1. */
static double lasts(const struct guess *g, int n)
{
    const struct plan_guesses *p = g->c.plan;
    if (!p || !p->n)
        return 1 + n * g->more;
    return fmax(1, correction(g, n + 1) * plan_pass_ns(p, n + 1) / plan_pass_ns(p, 1));
}

int guess_paying(const struct guess *g, int class)
{
    double a = guess_class_share(&g->of[class]), tokens = 1, term = 1, best = 1;
    int paying = 0;
    for (int k = 1; k <= g->c.most; k++) {
        term *= a;
        tokens += term;
        double rate = tokens / (lasts(g, k) + k * g->each);
        if (rate > best) {
            best = rate;
            paying = k;
        }
    }
    return paying;
}

void guess_class_learn(struct guess_class *k, int n, int accepted)
{
    k->accepted = GUESS_MEMORY * k->accepted + accepted;
    k->tried = GUESS_MEMORY * k->tried + accepted + (accepted < n); /* nothing is known of those behind the first that is wrong */
    if (accepted == n)
        k->wait = k->pause = 0;
}

int guess_class_due(struct guess_class *k)
{
    if (k->pause-- > 0)
        return 0;
    k->wait = k->wait ? k->wait * 2 : PAUSE;
    k->wait = k->wait < PAUSE_MOST ? k->wait : PAUSE_MOST;
    k->pause = k->wait;
    return 1;
}

/* Of n guesses, those that are tried. */
static int take(struct guess *g, int class, int n)
{
    if (g->c.always)
        return n;
    if (g->pass_ns <= 0 || g->since >= GUESS_REFRESH) /* the first pass, too, tells what one takes */
        return 0;
    int paying = guess_paying(g, class);
    if (paying)
        return n < paying ? n : paying;
    if (!guess_class_due(&g->of[class]))
        return 0;
    return n < GUESS_TRIED ? n : GUESS_TRIED;
}

/* A pass over n guesses, of which `accepted` came true, took so long. */
static void learn(struct guess *g, int class, int n, int accepted, double ns)
{
    g->stats.n_by[n + 1]++;
    g->stats.ns_by[n + 1] += (uint64_t)ns;
    if (n == 0) {
        double before = g->pass_ns <= 0 ? 0 : g->since >= GUESS_REFRESH ? REFRESHED : GUESS_MEMORY;
        g->pass_ns = before * g->pass_ns + (1 - before) * ns;
        g->since = 0;
        return;
    }
    g->since++;
    g->stats.passes++;
    g->stats.guessed += (uint64_t)n;
    g->stats.accepted += (uint64_t)accepted;
    g->stats.tried += (uint64_t)(accepted + (accepted < n));
    guess_class_learn(&g->of[class], n, accepted);
    if (g->pass_ns > 0) {
        double now = ns / g->pass_ns, *was = &g->lasts[n + 1];
        g->more = GUESS_MEMORY * g->more + (1 - GUESS_MEMORY) * fmax(0, (now - 1) / n);
        *was = *was > 0 ? GUESS_MEMORY * *was + (1 - GUESS_MEMORY) * now : now;
    }
}

static void took_to_guess(struct guess *g, int n, double ns)
{
    g->stats.source_ns += (uint64_t)ns;
    if (n > 0 && g->pass_ns > 0) {
        double each = ns / g->pass_ns / n;
        g->each = g->measured ? GUESS_MEMORY * g->each + (1 - GUESS_MEMORY) * each : each;
        g->measured = 1;
    }
}

/* ---- passes ---- */

/* The last token and what is guessed to follow it. */
static int pass(struct guess *g, int room, struct err *e)
{
    int32_t ids[GUESS_MOST + 1] = { g->drawn[g->n - 1] };
    int most = g->c.most, class = 0, n = 0;
    int context = engine_configuration(g->s->engine)->choice.context - session_n_pos(g->s) - 1, chunk = session_most(g->s) - 1;
    most = most < room - 1 ? most : room - 1;
    most = most < context ? most : context;
    most = most < chunk ? most : chunk;
    if (most > 0 && g->c.costly)
        most = take(g, 0, most);
    int64_t start = progress_now_ns(), asked;
    if (most > 0 && g->c.ready) {
        if ((n = g->c.ready(g->c.ctx, g->s, e)) < 0)
            return n;
        asked = progress_now_ns();
        g->stats.source_ns += (uint64_t)(asked - start);
        start = asked;
    }
    asked = start;
    if (most > 0) {
        n = g->c.source(g->c.ctx, g->s, ids[0], ids + 1, most, &class, e);
        if (n < 0)
            return n;
        asked = progress_now_ns();
        took_to_guess(g, n, (double)(asked - start));
        n = n > 0 && !g->c.costly ? take(g, class, n) : n;
    }
    g->n = session_draw(g->s, ids, n + 1, g->c.mode, g->c.never, g->c.n_never, g->drawn, e);
    if (g->n > 0)
        learn(g, class, n, g->n - 1, (double)(progress_now_ns() - asked));
    return g->n;
}

int32_t guess_next(struct guess *g, int room, struct err *e)
{
    int r;
    if (!g->begun) {
        int32_t id = session_sample_but(g->s, g->c.never, g->c.n_never, e);
        g->begun = id >= 0;
        g->drawn[0] = id;
        g->n = g->at = 1;
        return id;
    }
    if (g->at == g->n) {
        if ((r = pass(g, room, e)) < 0)
            return r;
        g->at = 0;
    }
    return g->drawn[g->at++];
}

int guess_full(const struct guess *g)
{
    return g->at == g->n && session_n_pos(g->s) == engine_configuration(g->s->engine)->choice.context;
}
