#ifndef RUNTIME_SESSION_GUESS_TOGETHER_H
#define RUNTIME_SESSION_GUESS_TOGETHER_H

/* Guesses for several texts in one pass (batch.h). A pass over n tokens, the last one of each text and guesses behind them, takes t(n), and
 * each guess y for its source. A text whose guesses come true with share a makes 1 + a + ... + a^k tokens with k of them. Of all ways to
 * give so many guesses to texts the one that makes most tokens gives each next guess to the text where it most likely counts, a^(k + 1);
 * of all numbers the one with most tokens in t(n) + guesses y is taken, none where that is not a twentieth more than without guesses.
 * Shares are each text's own, so one that guesses in vain stops, whatever the others do; where none pay for it, it is tried again ever
 * more rarely (guess_class_due).
 *
 * t(n) is what passes of n tokens took, or, where none was made, the plan's time of n sequences, or, of a plan for one, of one over n
 * tokens, corrected as for the next numbers that were measured; a plan's last number is gone beyond by its last slope. Without a plan each
 * token beyond the first is taken to cost a quarter of it.
 *
 * Times decide how tokens are grouped and nothing else. One thread; no allocation. */
#include "runtime/session/guess.h"

/* A text and what is guessed to follow it. */
struct guess_ask {
    const struct session *s;     /* holds all but `last` */
    int32_t last;
    const int32_t *never;        /* [n_never]: tokens that are not drawn */
    int n_never;
    int most;                    /* guesses, at most */
    int32_t *out;                /* [most] */
    int n, class;                /* how many there are, of which class (guess_source): 0 to begin with */
};

/* Guesses for asks[n]; those whose most is 0 get none. ERR_*. */
typedef int guess_many(void *ctx, struct guess_ask *asks, int n, struct err *e);

guess_many guess_lookup_many; /* guess_lookup for each; ctx is not used */

struct guess_many_config {
    int most;                    /* guesses of a text in a pass, 1 to GUESS_MOST */
    guess_many *source;
    guess_many *ready;           /* or NULL: brings it up to date with what asks' texts have taken in; no part of what a guess takes */
    const struct session_watcher *watcher; /* of each text's session, or NULL; outlives the guesses */
    void *ctx;                   /* of all three */
    int costly;                  /* as in guess_config */
    double guess_ns;             /* of a guess of one text by the plan, until some were made; 0: not known */
    const struct plan_batch *batches; /* [n_batches], of the mode that runs; they outlive the guesses. n_batches 0: not known */
    int n_batches;
    const struct plan_guesses *plan; /* likewise, of one text over several tokens: counts where there are no several batch sizes; or NULL */
    int always;                  /* as in guess_config */
};

/* How long passes of so many tokens take. */
struct guess_times {
    const struct plan_batch *batches;
    const struct plan_guesses *plan;
    int n_batches, measured;     /* lengths that were */
    double ns[SESSION_MOST + 1]; /* averages of the last ones; 0: none was made */
    unsigned char n[SESSION_MOST + 1]; /* how many of them there were, as far as that counts */
};

double guess_times_ns(const struct guess_times *t, int tokens); /* 0: nothing was measured */
void guess_times_took(struct guess_times *t, int tokens, double ns);

/* Of each text: how likely a guess is, how many there can be; k is set. */
struct guess_want {
    double share;
    int most, k;
};

/* k of wants[n], whose sum is at most `room`. each_ns: of a guess, for its source. */
void guess_share_out(const struct guess_times *t, struct guess_want *wants, int n, int room, double each_ns);

#endif
