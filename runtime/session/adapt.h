#ifndef RUNTIME_SESSION_ADAPT_H
#define RUNTIME_SESSION_ADAPT_H

/* Which of a few ways to make passes is the best one now: the plan's, or one of its alternatives. A state machine that is told what each
 * pass took, term by term, and says how the next one is made. It knows no clock, no engine and no machine: the same samples give the same
 * choices, and tests make up machines.
 *
 * What a pass took is compared with its own baseline: passes of the plan's way, of as many tokens, at about that position, while nothing
 * was wrong. What is compared is always the mean of several without the longest one: a drive that is throttled stops and goes, so that half
 * of the passes may be as fast as ever, and one pass alone says nothing.
 *
 *      WATCH ──► slower than the baseline by a clear margin, for some passes (once also: than the plan says) ──► TRY
 *      TRY       each alternative that could be faster for some passes, one after the other; a bad one is left early. One that is
 *                faster by a margin is kept, and the rest is held against it ──► WATCH
 *      AWAY      from the plan's way, that one is tried again from time to time, less and less often where it is no better, and at once
 *                where all has become faster
 *
 * Trying costs passes, so a round that found nothing is followed by a rest, twice as long each time; after two of them what passes take is
 * the baseline. The margins grow with the spread of passes. */
#include "common/plan/plan.h"

#include <stdint.h>

#define ADAPT_VARIANTS     (1 + PLAN_MAX_ALTERNATIVES)
#define ADAPT_WINDOW   16   /* passes that a mean is of, */
#define ADAPT_TRIAL    32   /* and in a trial that is not decided by fewer */
#define ADAPT_CHANGES  16   /* that are kept, the last ones */
#define ADAPT_SIZES    7    /* of passes: 1, 2, 4, ... 64 tokens, at most */
#define ADAPT_PLACES   12   /* positions: below 64, 128, 256, ... */

/* Of a way, as the plan has it; 0 is the plan's own. */
struct adapt_way {
    int threads;
    double ns[PLAN_TERMS];  /* of a pass of one token; all 0: not known */
};

struct adapt_sample {
    int tokens, position;   /* of the pass; its first token's */
    double ns[PLAN_TERMS];
};

enum adapt_why {
    ADAPT_SLOWER,           /* passes took longer than before, */
    ADAPT_PLAN,             /* or than the plan says: another way is better */
    ADAPT_OVER              /* the plan's is as good as it was, or better than where it was left for */
};
extern const char *const adapt_why_names[]; /* "slower" "plan" "over" */

struct adapt_change {
    uint64_t pass;          /* after so many */
    int from, to;
    enum adapt_why why;
    enum plan_term term;    /* that had become longer by most */
    double was, is;         /* means with `from` and with `to`, in baselines */
};

struct adapt {
    int n;
    struct adapt_way way[ADAPT_VARIANTS];
    struct {
        int n;
        float ns[PLAN_TERMS];
    } base[ADAPT_SIZES][ADAPT_PLACES];
    double noise;           /* distance of passes from their baseline that half of them have */
    int now, used;          /* the way that is kept; that of the next pass, another where it is tried */
    int skip;               /* passes that do not count yet */
    int filled, slow;       /* passes in the window, of this way; windows in a row whose mean was too slow */
    double ratio[ADAPT_TRIAL];
    float excess[ADAPT_TRIAL][PLAN_TERMS];
    double level, level_se; /* of the way that is kept, in baselines, when trying began, and its standard error; */
    double taken, tried;    /* when it was taken; of the last round that found nothing */
    int list[ADAPT_VARIANTS], n_list, at; /* ways that are tried */
    enum adapt_why why;
    enum plan_term term;
    int found;              /* this round has taken one */
    int asked, failed;      /* the plan's promise has been looked at; rounds in a row that found nothing */
    uint64_t passes, calm, next, rest, hold; /* told of; since when nothing is wrong; no trying before; how long a rest is, and until the
                                              * plan's way is tried again */
    uint64_t n_changes, n_tried; /* changes; passes of ways that were tried */
    struct adapt_change change[ADAPT_CHANGES]; /* the i-th at i % ADAPT_CHANGES */
};

void adapt_init(struct adapt *a, const struct adapt_way *variants, int n);

/* A pass was made by a->used. Returns the way of the next one, a->used from then on. */
int adapt_pass(struct adapt *a, const struct adapt_sample *s);

/* The way is not to be had on this machine: never again. Returns as above. */
int adapt_refused(struct adapt *a, int way);

#endif
