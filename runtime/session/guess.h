#ifndef RUNTIME_SESSION_GUESS_H
#define RUNTIME_SESSION_GUESS_H

/* Speculative decoding (Leviathan et al. 2023, arXiv:2211.17192): somebody guesses the next tokens cheaply, and one pass of the model
 * says how many of them it would have drawn. A pass over k + 1 tokens reads each weight once, so it takes less than k + 1 passes.
 *
 *     guess_init(&g, &config, &session);        the session holds the prompt
 *     while (...) id = guess_next(&g, room, e); tokens in order, as session_sample and session_feed give them
 *
 * The text is the one without guesses, token for token, whatever is guessed: a guess counts only where it is the token that the
 * session's sampler draws there, with the number that it would have drawn with (session_draw). Guesses of a source that names one
 * token a place are accepted with the probability that the model gives it, which is what rejection sampling does with such guesses.
 *
 * How many: as many as pay, by what passes have taken and how often guesses came true, in classes that the source tells apart.
 * A pass over n tokens is taken to last t1 (1 + (n - 1) x), or, where a plan says how long passes last, t1 c t(n) / t(1), where c is what
 * measured ones of n tokens, or the next lengths, lasted in place of that, 1 to begin with; and each guess y t1; all are averages of
 * the last passes. With a share a of guesses that come true, k
 * guesses give 1 + a + ... + a^k tokens. Where no number pays, a class is tried again ever more rarely, so that guessing in vain costs
 * a few hundredths. Times decide how tokens are grouped and nothing else.
 *
 * No allocation. One thread. */
#include "common/plan/plan.h"

#include "runtime/session/session.h"

#define GUESS_MOST    15 /* guesses of a pass */
#define GUESS_USUAL   8  /* of a pass, where the command line does not say */
#define GUESS_CLASSES 4

/* Writes at most `most` guesses of what follows tokens ids[n] and then last; *class, 0 to GUESS_CLASSES - 1: guesses that are as good
 * as each other. How many, 0 or more; ERR_*. */
typedef int guess_source(void *ctx, const struct session *s, int32_t last, int32_t *out, int most, int *class, struct err *e);

/* Brings a source up to date with what passes that it was not asked for have added; before it is asked. ERR_*. */
typedef int guess_ready(void *ctx, const struct session *s, struct err *e);

/* Prompt lookup: the longest run of tokens at the end that stands somewhere before, its last such place, and what followed there. Classes
 * are its lengths: 1, 2, 3 or 4, more. ctx is not used. */
guess_source guess_lookup;

struct guess_config {
    int most;                    /* guesses of a pass, 0 to GUESS_MOST; 0: a token at a time */
    guess_source *source;
    guess_ready *ready;          /* or NULL; its time is no part of what a guess takes */
    void *ctx;
    int costly;                  /* 1: guesses take time, and all are of class 0: the source is asked for those alone that pay */
    const int32_t *never;        /* [n_never]: tokens that are not drawn; they outlive the guesses */
    int n_never;
    enum session_mode mode;      /* of all passes */
    const struct plan_guesses *plan; /* what passes take, to begin with; it outlives the guesses. NULL or without lengths: not known */
    double guess_ns;             /* what a guess takes by that plan, until one was made; 0: not known, taken as nothing */
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

struct guess {
    struct guess_config c;
    struct session *s;
    struct guess_stats stats;
    double pass_ns, more, each;  /* t1, 0 before it is known; x; y */
    int measured;                /* 1: y was, and is no longer the plan's */
    double lasts[GUESS_MOST + 2]; /* passes over so many tokens, in parts of t1; 0: none was measured */
    struct guess_class of[GUESS_CLASSES];
    int since;                   /* passes with guesses since the last one without */
    int32_t drawn[GUESS_MOST + 1];
    int n, at, begun;            /* tokens drawn, of which `at` were handed out */
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

/* ---- one text ---- */

void guess_init(struct guess *g, const struct guess_config *c, struct session *s);

/* A new text begins, after tokens that the session holds; what was learned stays. */
void guess_begin(struct guess *g);

/* The next token, or ERR_*. room: how many tokens are wanted, this one included; >= 1. Before the second token and later ones the
 * context has to have room for one more (guess_full). */
int32_t guess_next(struct guess *g, int room, struct err *e);

/* 1: the context is full and all tokens were handed out. */
int guess_full(const struct guess *g);

/* Guesses that pay for a class: 0 to most. */
int guess_paying(const struct guess *g, int class);

#endif
