#include "runtime/session/guess.h"

#include <assert.h>
#include <math.h>

#define PRIOR      2.0  /* guesses that count half true before any was tried */
#define LOOKUP     8    /* the longest run that is told from longer ones */
#define PAUSE      16   /* passes without guesses after they did not pay; doubled each time, up to: */
#define PAUSE_MOST 1024
#define AVERAGED   10   /* passes: older ones weigh less */
#define PAYS       1.05 /* times the rate of no guesses that some have to promise, for times are not that certain */
#define MORE_FIRST 0.25 /* of a pass over one token, for each further one, where no plan says */

/* ---- prompt lookup ---- */

/* Length of the run that ends both before `end`, where it is followed by last, and at the end of ids[n]. */
static int run_before(const int32_t *ids, int n, int end)
{
    int k = 0;
    while (k + 1 < LOOKUP && k < end && ids[end - 1 - k] == ids[n - 1 - k])
        k++;
    return k;
}

static void lookup(struct guess_ask *a)
{
    const int32_t *ids = session_ids(a->s);
    int n = session_n_pos(a->s), best = 0, at = 0;
    for (int i = n - 1; i >= 0 && best < LOOKUP; i--) {
        if (ids[i] != a->last)
            continue;
        int length = 1 + run_before(ids, n, i);
        if (length > best) {
            best = length;
            at = i + 1;
        }
    }
    if (!best)
        return;
    a->class = best == 1 ? 0 : best == 2 ? 1 : best <= 4 ? 2 : 3;
    for (int i = 0; i < a->most; i++) /* what it does not hold yet is what was guessed */
        a->out[i] = at + i < n ? ids[at + i] : at + i == n ? a->last : a->out[at + i - n - 1];
    a->n = a->most;
}

int guess_lookup_many(void *ctx, struct guess_ask *asks, int n, struct err *e)
{
    (void)ctx, (void)e;
    for (int i = 0; i < n; i++)
        if (asks[i].most > 0)
            lookup(&asks[i]);
    return 0;
}

/* ---- a class ---- */

double guess_class_share(const struct guess_class *k)
{
    return (k->accepted + PRIOR / 2) / (k->tried + PRIOR);
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

/* ---- times ---- */

static double step_ns(const struct plan_batch *b)
{
    return b->batch * 1e9 / b->predicted.tokens_per_s;
}

/* A pass of so many tokens without what was measured: only its course counts. */
static double course(const struct guess_times *t, int tokens)
{
    int i = 1;
    if (t->n_batches < 2 && t->plan && t->plan->n >= 2)
        return fmax(1, plan_pass_ns(t->plan, tokens));
    if (t->n_batches < 2)
        return 1 + MORE_FIRST * (tokens - 1);
    while (i + 1 < t->n_batches && t->batches[i].batch < tokens)
        i++;
    const struct plan_batch *a = &t->batches[i - 1], *b = &t->batches[i];
    double slope = (step_ns(b) - step_ns(a)) / (b->batch - a->batch);
    double ns = step_ns(a) + (slope > 0 ? slope : 0) * (tokens - a->batch);
    return ns > 0 ? ns : 1;
}

double guess_times_ns(const struct guess_times *t, int tokens)
{
    int below = tokens, above = tokens;
    if (!t->measured)
        return 0;
    while (below > 0 && t->ns[below] <= 0)
        below--;
    while (above <= SESSION_MOST && t->ns[above] <= 0)
        above++;
    int low = below > 0 ? below : above, high = above <= SESSION_MOST ? above : low;
    double x = t->ns[low] / course(t, low), y = t->ns[high] / course(t, high);
    return course(t, tokens) * (high > low ? x + (y - x) * (tokens - low) / (high - low) : x);
}

void guess_times_took(struct guess_times *t, int tokens, double ns)
{
    assert(tokens >= 1 && tokens <= SESSION_MOST);
    double *was = &t->ns[tokens];
    t->measured += *was <= 0;
    t->n[tokens] += t->n[tokens] < AVERAGED;
    *was += (ns - *was) / t->n[tokens];
}

/* ---- how many ---- */

/* The text whose next guess most likely counts, or -1; *gain: how likely. */
static int next(const struct guess_want *w, int n, double *gain)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        double a = w[i].share;
        if (w[i].k >= w[i].most)
            continue;
        for (int k = 0; k < w[i].k; k++)
            a *= w[i].share;
        if (best < 0 || a > *gain) {
            best = i;
            *gain = a;
        }
    }
    return best;
}

/* Gives so many guesses out, or as many as there can be; *best: with how many of them most tokens are made in a time. */
static void give(const struct guess_times *t, struct guess_want *w, int n, int most, double each_ns, int *best)
{
    double tokens = n, rate = n / guess_times_ns(t, n) * PAYS, gain = 0;
    int given = 0;
    for (int i = 0; i < n; i++)
        w[i].k = 0;
    *best = 0;
    for (int i; given < most && (i = next(w, n, &gain)) >= 0;) {
        w[i].k++;
        given++;
        tokens += gain;
        double ns = guess_times_ns(t, n + given), least = guess_times_ns(t, n);
        double now = tokens / ((ns > least ? ns : least) + given * each_ns);
        if (now > rate) {
            rate = now;
            *best = given;
        }
    }
}

void guess_share_out(const struct guess_times *t, struct guess_want *wants, int n, int room, double each_ns)
{
    int best, all = SESSION_MOST - n;
    give(t, wants, n, room < all ? room : all, each_ns, &best);
    give(t, wants, n, best, each_ns, &best);
}
