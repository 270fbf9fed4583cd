#ifndef RUNTIME_SESSION_GUESS_H
#define RUNTIME_SESSION_GUESS_H

/* Speculative decoding (Leviathan et al. 2023, arXiv:2211.17192): somebody guesses the next tokens cheaply, and one pass of the model
 * says how many of them it would have drawn. A pass over k + 1 tokens reads each weight once, so it takes less than k + 1 passes.
 *
 * The text is the one without guesses, token for token, whatever is guessed: a guess counts only where it is the token that the
 * session's sampler draws there, with the number that it would have drawn with. Guesses of a source that names one token a place are
 * accepted with the probability that the model gives it, which is what rejection sampling does with such guesses.
 *
 * How many, for several texts in one pass (batch.h): a pass over n tokens, the last one of each text and guesses behind them, takes
 * t(n), and each guess y for its source. A text whose guesses come true with share a makes 1 + a + ... + a^k tokens with k of them. Of
 * all ways to give so many guesses to texts the one that makes most tokens gives each next guess to the text where it most likely
 * counts, a^(k + 1); of all numbers the one with most tokens in t(n) + guesses y is taken, none where that is not a twentieth more than
 * without guesses. Shares are each text's own, so one that guesses in vain stops, whatever the others do; where none pay for it, it is
 * tried again ever more rarely (guess_class_due).
 *
 * t(n) is what passes of n tokens took, or, where none was made, the plan's time of n sequences, or, of a plan for one, of one over n
 * tokens, corrected as for the next numbers that were measured; a plan's last number is gone beyond by its last slope. Without a plan each
 * token beyond the first is taken to cost a quarter of it.
 *
 * Times decide how tokens are grouped and nothing else. One thread; no allocation. */
#include "common/plan/plan.h"

#include "runtime/session/session.h"

#define GUESS_MOST    15 /* guesses of a pass */
#define GUESS_USUAL   8  /* of a pass, where the command line does not say */
#define GUESS_CLASSES 4

/* A text and what is guessed to follow it. */
struct guess_ask {
    const struct session *s;     /* holds all but `last` */
    int32_t last;
    const int32_t *never;        /* [n_never]: tokens that are not drawn */
    int n_never;
    int most;                    /* guesses, at most */
    int32_t *out;                /* [most] */
    int n, class;                /* how many there are, and of which class, 0 to GUESS_CLASSES - 1: guesses that are as good as each other.
                                  * 0 to begin with */
};

/* Guesses for asks[n]; those whose most is 0 get none. ERR_*. */
typedef int guess_many(void *ctx, struct guess_ask *asks, int n, struct err *e);

/* Prompt lookup: the longest run of tokens at the end that stands somewhere before, its last such place, and what followed there. Classes
 * are its lengths: 1, 2, 3 or 4, more. ctx is not used. */
guess_many guess_lookup_many;

struct guess_many_config {
    int most;                    /* guesses of a text in a pass, 1 to GUESS_MOST */
    guess_many *source;
    guess_many *ready;           /* or NULL: brings it up to date with what asks' texts have taken in; no part of what a guess takes */
    const struct session_watcher *watcher; /* of each text's session, or NULL; outlives the guesses */
    void *ctx;                   /* of all three */
    int costly;                  /* 1: guesses take time, and all are of class 0: the source is asked for those alone that pay */
    double guess_ns;             /* of a guess of one text by the plan, until some were made; 0: not known */
    const struct plan_batch *batches; /* [n_batches], of the mode that runs; they outlive the guesses. n_batches 0: not known */
    int n_batches;
    const struct plan_guesses *plan; /* likewise, of one text over several tokens: counts where there are no several batch sizes; or NULL */
    int always;                  /* for tests and measurements: all that the source says, whether it pays or not */
};

struct guess_stats {
    uint64_t passes;             /* that had guesses */
    uint64_t guessed, accepted;  /* tokens in them; of those, the ones that came true */
    uint64_t tried;              /* of the guesses those that something is known of: up to the first that is wrong, in each pass */
    uint64_t source_ns;          /* what the source took */
    uint64_t n_by[GUESS_MOST + 2], ns_by[GUESS_MOST + 2]; /* passes over so many tokens, the last drawn one included, and their time */
};

struct guess_class {
    double accepted, tried;      /* of the last guesses, older ones weigh less */
    int pause, wait;             /* passes until the next try; how long the next pause is */
};

/* ---- a class, for whoever decides by it ---- */

/* The share of its guesses that come true, a half before any was tried. */
double guess_class_share(const struct guess_class *k);

/* A pass had n >= 1 guesses of it, of which the first `accepted` came true. */
void guess_class_learn(struct guess_class *k, int n, int accepted);

/* Where none pay: 1, it is to be tried again, with GUESS_TRIED of them; to be asked once a pass. */
int guess_class_due(struct guess_class *k);

#define GUESS_TRIED   2  /* guesses of a try */
#define GUESS_REFRESH 64 /* passes with guesses before one without, which tells what that takes now */
#define GUESS_MEMORY  0.9 /* weight of what was seen before, at each pass */

/* ---- how many ---- */

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
