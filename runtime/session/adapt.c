/* Ratios to the baseline make passes of any size and position comparable; sums of terms say whether, the terms why. */
#include "runtime/session/adapt.h"

#include <math.h>
#include <string.h>

#define KNOWN    4      /* passes that make a baseline */
#define RATE     16     /* of how many passes it is the mean */
#define UP       0.1    /* a pass moves it by this share of it at most, and more where passes differ more */
#define DOWN     0.3
#define SKIPPED  2      /* passes after a change that do not count: caches of the processor, reads that were opened again */
#define TRIAL    8      /* passes of a trial, up to ADAPT_TRIAL where they say that it is better but not yet clearly */
#define EARLY    2      /* of which so many decide where they are clearly worse, by */
#define WORSE    1.2
#define SLOWER   0.15   /* mean of a window over the baseline, less 1: something may be wrong, and is where the next window says so, too */
#define CARRIED  3      /* passes of the first window that begin the next one */
#define BETTER   0.06   /* than what is kept: taken, if the difference is also SURE standard errors */
#define SURE     1.8
#define AS_GOOD  0.03   /* margin for the plan's own way */
#define HOPE     1.25   /* times the level: what the plan has for a way, in its own terms, that may still be faster now */
#define PROMISE  1.2    /* times the plan's time: asked once */
#define FIRST    16     /* passes before that */
#define REST     64
#define REST_MAX 2048
#define HOLD     32
#define HOLD_MAX 512
#define CALM     256    /* passes without trouble, after which rests are short again */
#define NEVER    1e30   /* of a way that is not to be had */
#define FASTER   0.8    /* than when it was taken: the trouble may be over */

const char *const adapt_why_names[] = { "slower", "plan", "over" };

static double sum(const double ns[PLAN_TERMS])
{
    double all = 0;
    for (int t = 0; t < PLAN_TERMS; t++)
        all += ns[t];
    return all;
}

static double base_sum(const float ns[PLAN_TERMS])
{
    double all = 0;
    for (int t = 0; t < PLAN_TERMS; t++)
        all += (double)ns[t];
    return all;
}

static double max_of(double a, double b)
{
    return a > b ? a : b;
}

void adapt_init(struct adapt *a, const struct adapt_way *variants, int n)
{
    *a = (struct adapt){ .n = n < ADAPT_VARIANTS ? n : ADAPT_VARIANTS, .level = 1, .taken = 1, .rest = REST, .hold = HOLD, .noise = 0.05 };
    memcpy(a->way, variants, (size_t)a->n * sizeof *variants);
}

static int log_class(int v, int most)
{
    int k = 0;
    while (k < most && (1 << k) < v)
        k++;
    return k;
}

/* The mean without the longest, and its standard error. */
static double level_of(const struct adapt *a, double *se)
{
    double all = 0, squares = 0, most = 0;
    int n = a->filled - (a->filled > 2);
    for (int i = 0; i < a->filled; i++)
        most = max_of(most, a->ratio[i]);
    for (int i = 0; i < a->filled; i++) {
        all += a->ratio[i];
        squares += a->ratio[i] * a->ratio[i];
    }
    if (a->filled > 2) {
        all -= most;
        squares -= most * most;
    }
    *se = n > 1 ? sqrt(max_of(squares - all * all / n, 0) / (n - 1) / n) : 0;
    return all / n;
}

/* ---- the baseline ---- */

/* Towards what this pass took; of one that is far off only a part counts, so that trouble is not what passes take. */
static void learn(const struct adapt *a, float *base, int *n, const double ns[PLAN_TERMS])
{
    double ratio = *n ? sum(ns) / a->taken / base_sum(base) : 1, up = max_of(UP, 2 * a->noise), down = max_of(DOWN, 2 * a->noise);
    double off = fmin(fmax(ratio - 1, -down), up), part = *n < RATE || fabs(ratio - 1) < 1e-9 ? 1 : off / (ratio - 1);
    for (int t = 0; t < PLAN_TERMS; t++)
        base[t] += (float)(part / (*n < RATE ? *n + 1 : RATE) * (ns[t] / a->taken - (double)base[t]));
    *n += *n < RATE;
}

/* What trouble made of it is what passes take. */
static void take_as_usual(struct adapt *a, double level)
{
    for (int i = 0; i < ADAPT_SIZES * ADAPT_PLACES; i++)
        for (int t = 0; t < PLAN_TERMS; t++)
            a->base[i / ADAPT_PLACES][i % ADAPT_PLACES].ns[t] *= (float)level;
    a->level = a->taken = a->tried = 1;
    a->failed = 0;
}

/* ---- changes ---- */

static int use(struct adapt *a, int way)
{
    if (way != a->used)
        a->skip = SKIPPED;
    a->filled = a->slow = 0;
    return a->used = way;
}

static void keep(struct adapt *a, int way, double is)
{
    a->change[a->n_changes++ % ADAPT_CHANGES] = (struct adapt_change){ a->passes, a->now, way, way ? a->why : ADAPT_OVER, a->term,
                                                                       a->level, is };
    a->now = way;
    a->level = a->taken = is;
    a->found = 1;
}

/* ---- trying ---- */

/* The term that has grown by most. */
static enum plan_term grown(const struct adapt *a)
{
    int most = 0;
    double of[PLAN_TERMS] = { 0 };
    for (int i = 0; i < a->filled; i++)
        for (int t = 0; t < PLAN_TERMS; t++)
            of[t] += (double)a->excess[i][t];
    for (int t = 1; t < PLAN_TERMS; t++)
        most = of[t] > of[most] ? t : most;
    return (enum plan_term)most;
}

/* Where storage is what has become slower other ways to read come first, and else other threads; of these what the plan has as faster. */
static double order_of(const struct adapt *a, int way)
{
    int threads = a->way[way].threads != a->way[a->now].threads;
    return sum(a->way[way].ns) * (threads == (a->term != PLAN_TERM_WAIT) ? 1 : 1e3);
}

static void list_variants(struct adapt *a, double level)
{
    double most = fmin(HOPE * level * sum(a->way[0].ns), NEVER / 2);
    a->n_list = a->at = 0;
    for (int i = 0; i < a->n; i++) {
        int k = a->n_list;
        if (i == a->now || (i && sum(a->way[i].ns) > most))
            continue;
        for (; k > 0 && order_of(a, a->list[k - 1]) > order_of(a, i); k--)
            a->list[k] = a->list[k - 1];
        a->list[k] = i;
        a->n_list++;
    }
}

static int end_round(struct adapt *a)
{
    a->n_list = a->at = 0;
    if (a->found) {
        a->failed = 0;
    } else if (a->now) {
        a->hold = a->hold < HOLD_MAX ? 2 * a->hold : HOLD_MAX;
        a->taken = a->level;
    } else {
        a->rest = a->rest < REST_MAX ? 2 * a->rest : REST_MAX;
        a->tried = a->level;
        if (++a->failed >= 2)
            take_as_usual(a, a->level);
    }
    a->next = a->passes + (a->now ? a->hold : a->rest);
    return use(a, a->now);
}

static int try_next(struct adapt *a)
{
    while (a->at < a->n_list && a->list[a->at] == a->now)
        a->at++;
    return a->at < a->n_list ? use(a, a->list[a->at++]) : end_round(a);
}

static int begin_round(struct adapt *a, enum adapt_why why)
{
    a->level = level_of(a, &a->level_se);
    a->why = why;
    a->term = grown(a);
    a->found = 0;
    if (why == ADAPT_OVER) {
        a->list[0] = a->at = 0;
        a->n_list = 1;
    } else {
        list_variants(a, a->level);
    }
    return try_next(a);
}

static int trial(struct adapt *a)
{
    double se, is = level_of(a, &se), by_chance = sqrt(se * se + a->level_se * a->level_se) / a->level;
    double margin = max_of(BETTER, SURE * by_chance), own = max_of(AS_GOOD, by_chance);
    int worse = a->filled >= EARLY;
    for (int i = 0; i < a->filled && worse; i++)
        worse = a->ratio[i] > WORSE * a->level;
    if (worse)
        return try_next(a);
    if (a->filled < TRIAL)
        return a->used;
    int usual = is <= 1 + max_of(SLOWER / 2, a->noise) && is <= (1 + own) * a->level;
    if (a->used ? is < (1 - margin) * a->level : usual || is < (1 - own) * a->level)
        keep(a, a->used, is);
    else if (a->used && is < (1 - BETTER) * a->level && a->filled < ADAPT_TRIAL)
        return a->used;
    return try_next(a);
}

/* ---- watching ---- */

/* The window has its last n passes alone. */
static void forget_all_but(struct adapt *a, int n)
{
    int from = a->filled - n;
    memmove(a->ratio, a->ratio + from, (size_t)n * sizeof *a->ratio);
    memmove(a->excess, a->excess + from, (size_t)n * sizeof *a->excess);
    a->filled = n;
}

static int watch(struct adapt *a)
{
    double se, is = level_of(a, &se), margin = max_of(SLOWER, 2 * a->noise);
    if (a->filled < ADAPT_WINDOW)
        return a->used;
    int slow = is > a->taken * (1 + margin);
    if (slow && !a->slow)
        forget_all_but(a, CARRIED);
    a->slow = slow ? a->slow + 1 : 0;
    if (a->slow)
        a->calm = a->passes;
    if (!a->now && is < a->taken) /* back at what it was */
        a->taken = max_of(is, 1);
    if (a->passes - a->calm >= CALM && !a->now) {
        a->rest = REST;
        a->hold = HOLD;
        a->failed = 0;
    }
    if (a->now && (a->passes >= a->next || is < FASTER * a->taken))
        return begin_round(a, ADAPT_OVER);
    if (a->slow > 1 && (a->now || a->passes >= a->next || is > WORSE * a->tried))
        return begin_round(a, ADAPT_SLOWER);
    return a->used;
}

/* Once: is the plan's own way as fast as the plan says? */
static int broke_promise(struct adapt *a, const struct adapt_sample *s, const float base[PLAN_TERMS])
{
    if (a->asked || a->now || s->tokens != 1 || a->passes < FIRST || a->filled < ADAPT_WINDOW)
        return 0;
    a->asked = 1;
    return sum(a->way[0].ns) > 0 && base_sum(base) > PROMISE * sum(a->way[0].ns);
}

int adapt_pass(struct adapt *a, const struct adapt_sample *s)
{
    int size = log_class(s->tokens, ADAPT_SIZES - 1), place = log_class(s->position / 64 + 1, ADAPT_PLACES - 1);
    float *base = a->base[size][place].ns;
    double all = sum(s->ns), usual = base_sum(base);
    int *n = &a->base[size][place].n, trying = a->used != a->now;
    a->passes++;
    a->n_tried += (uint64_t)trying;
    if (a->n < 2 || !(all > 0) || a->skip > 0) {
        a->skip -= a->skip > 0;
        return a->used;
    }
    if (*n < KNOWN && trying) { /* nothing to compare with: another time */
        a->next = a->passes + a->rest;
        a->n_list = a->at = 0;
        return use(a, a->now);
    }
    if (*n < KNOWN) {
        learn(a, base, n, s->ns);
        return a->used;
    }
    double ratio = all / usual;
    int most = trying ? ADAPT_TRIAL : ADAPT_WINDOW;
    if (a->filled == most)
        forget_all_but(a, most - 1);
    int at = a->filled++;
    a->ratio[at] = ratio;
    for (int t = 0; t < PLAN_TERMS; t++)
        a->excess[at][t] = (float)((s->ns[t] - (double)base[t]) / usual);
    if (trying)
        return trial(a);
    if (!a->now && !a->slow) {
        learn(a, base, n, s->ns);
        a->noise = fmin(fmax(a->noise * (fabs(ratio - 1) > a->noise ? 1.03 : 1 / 1.03), 0.02), 0.5);
    }
    if (broke_promise(a, s, base))
        return begin_round(a, ADAPT_PLAN);
    return watch(a);
}

int adapt_refused(struct adapt *a, int way)
{
    if (way <= 0 || way >= a->n)
        return a->used;
    a->way[way].ns[0] = NEVER;
    if (a->now == way)
        a->now = 0;
    return a->used == way ? try_next(a) : a->used;
}
