#ifndef RUNTIME_SESSION_BATCH_H
#define RUNTIME_SESSION_BATCH_H

/* Continuous batching: texts that an engine makes together. Each step decodes one token of every text that has read its prompt
 * and, with what is left of a chunk, reads prompts of others; texts join and leave at any step. A text that waits begins when a
 * place is free and the KV cache has room for its prompt and a page more, in the order in which they were added. Where pages run out the
 * text that began last gives its place and its pages up, waits, and is read again: its prompt exactly, its tokens as they were decoded, so
 * that it goes on as if nothing had been. One that is alone and fills the cache ends as one that fills its context.
 *
 *     batch_init(&b, &config, e);
 *     batch_add(&b, &text);             any number, at any time between steps
 *     while ((r = batch_step(&b, e)) > 0) ...
 *     batch_done(&b);
 *
 * Each text has the tokens that it has alone with its seed (session.h). With `prefixes` a prompt takes what it begins with from pages of
 * the KV cache that hold it, whoever has read it, as long as they are there (kv_prefix.h): prompts, and, where decoding gives the same,
 * what was made. With a watcher, or where layers have states, pages alone are not enough: there it begins with what a text that is open has
 * read, or goes on with the session of one that has ended, which stays as long as nobody needs its place or its pages. `siblings` of a text
 * share its whole prompt.
 *
 * Guesses (guess.h): in steps that read no prompt each text may have its next tokens guessed, and the pass holds them, too. A
 * guess counts where it is what the text's sampler draws, so texts are those without guesses. A source whose own numbers are none
 * (ERR_FORMAT, ERR_LIMIT) is not asked again, and texts go on without.
 *
 * Nothing here allocates but batch_init: a text is the caller's, and in a list while it waits. One thread. */
#include "runtime/session/guess.h"
#include "runtime/session/pace.h"
#include "runtime/session/session.h"

enum batch_end { BATCH_LENGTH, BATCH_EOS, BATCH_STOP, BATCH_CONTEXT, BATCH_CANCELLED, BATCH_FAILED };
extern const char *const batch_end_names[]; /* "length" "eos" "stop" "context" "interrupted" "error" */

#define BATCH_TOP 20
#define BATCH_STATES 512 /* tokens between states that are kept; whole pages */

struct batch_text {
    /* the caller's, constant from batch_add until the text has ended */
    const int32_t *prompt;       /* [n_prompt], 1 <= n_prompt <= context */
    int n_prompt;
    int n_before;                /* tokens before what may come to be another one next time, as a conversation's last message; or 0 */
    int n;                       /* tokens to make, at most; >= 0 */
    int ignore_eos;
    int logprobs;                /* alternatives that each token has, BATCH_TOP at most */
    struct sample_params sampling; /* whose n_prompt the batch sets */
    const int32_t *made;         /* where the caller keeps its tokens: `token` has put each there when it returns */
    struct batch_text *siblings; /* the first of n_siblings others with the same prompt, which is read once; each points to the
                                  * next by its own `siblings`. They are not added by themselves */
    int n_siblings;
    const struct cancel *cancel; /* or NULL; where it is asked of all texts of a pass, the pass is given up before its next layer, and they
                                  * end as cancelled. Else it does nothing: see batch_cancel */
    int scores;                  /* 1: the caller hears of each token of the prompt (`scored`), which is read whole, whoever has read it */
    int masked;                  /* the caller says before each token which may come (`allowed`) */
    void *owner;
    /* what became of it */
    int n_made, n_drawn;         /* tokens of the text; with the one that ended it */
    int n_shared;                /* tokens of the prompt that had been read */
    double logprob;              /* sum over those drawn */
    /* Of the last one: natural logarithms of probabilities before bias, penalties, tokens that are not drawn and temperature; of it and of
     * the likeliest there were */
    double token_logprob, top_logprob[BATCH_TOP];
    int32_t top[BATCH_TOP];
    int n_top;
    /* the batch's */
    struct session session;
    struct sampler sampler;      /* of one that gave its place up */
    int state, n_read, n_scored, paused, finding; /* finding: more of what it begins with may be in a folder */
    int32_t last;
    struct guess_class guesses[GUESS_CLASSES];
    int class;                   /* of those in its part */
    int32_t ids[GUESS_MOST + 1]; /* its part: last, and what is guessed to follow */
    struct batch_text *after;
};

struct batch_config {
    struct engine *engine;
    const int32_t *eog;          /* [n_eog]: tokens that end a text */
    int n_eog;
    const struct guess_many_config *guesses; /* copied; NULL: none are made */
    double most_ns;              /* of a step that reads a prompt while other texts are open, as far as chunks can see to it; 0: any time */
    int64_t (*now_ns)(void *ctx); /* NULL: progress_now_ns; for tests */
    int prefixes;                /* 1: what texts began with is kept for others, in memory that the engine takes (engine_keep_prefixes), */
    int states;                  /* with so many states of recurrent layers */
    const struct cancel *cancel; /* of everything: batch_step is ERR_INTR, and texts have ended as cancelled */
    /* A token of a text, which its end is no part of. 1: the text ends here. */
    int (*token)(void *ctx, struct batch_text *t, int32_t id);
    /* Of a text that is masked, the tokens that may be next (session_allow). NULL: none may, and it ends as by a token that ends it;
     * or, with why->code, it has failed. */
    const uint64_t *(*allowed)(void *ctx, struct batch_text *t, struct err *why);
    /* Of a text that scores: token_logprob, and top, are those of the prompt's token there; of the first NAN, and none. NULL: none does. */
    void (*scored)(void *ctx, struct batch_text *t, int at);
    /* The text is the caller's again. why: of BATCH_FAILED, else NULL. No text is added or cancelled from here. */
    void (*end)(void *ctx, struct batch_text *t, enum batch_end end, const struct err *why);
    void *ctx;
};

struct batch {
    struct batch_config c;
    struct batch_text **texts;   /* [max_batch]: those that have a session, in the order in which they began */
    struct session_part *parts;  /* [max_batch] */
    int n_texts, n_waiting, pages;
    int kept;                    /* the caller's: places of texts that have ended which no other takes yet */
    struct pace pace;
    struct session *parked;      /* [n_parked], of texts that have ended, the latest last; NULL: none stay */
    int saves_states;            /* of recurrent layers: after each BATCH_STATES tokens, before t->n_before, and where a prompt ends */
    int n_parked, whole;         /* whole: decoding gives what a prompt's pass gives */
    int finds;                   /* what texts began with is found: 2, of those that have ended, all of it; 1, their prompts */
    struct batch_text *first, *last;
    /* guesses */
    struct guess_many_config guess; /* most 0: none are made */
    struct guess_ask *asks;      /* [max_batch], and */
    struct guess_want *wants;    /* [max_batch], where they are */
    struct guess_times times;
    struct err no_guesses;       /* why none are made any more: what guesses makes no numbers; code 0: they are */
    double each_ns;              /* of a guess, for its source; 0: not known */
    int measured;                /* 1: that was, and is no longer the plan's */
    int since;                   /* steps with guesses since the last one without */
    struct guess_stats guessed;  /* passes: steps; times by tokens: of steps with one text */
    uint64_t decoded;            /* steps that read no prompt, with guesses or without */
    /* what steps did */
    uint64_t n_read, n_drawn;    /* tokens of prompts, and those that were drawn, ends of texts included */
    uint64_t gave_way;           /* times that a text gave its place up */
    int reads, most;             /* 1: the last step reads prompts, or does so now; texts of a step, at most */
};

/* Bytes that it allocates for so many sequences, with guesses or without. */
uint64_t batch_bytes(int sequences, int guesses);

int batch_init(struct batch *b, const struct batch_config *c, struct err *e);
void batch_done(struct batch *b); /* texts that have not ended are dropped without a word; accepts a zeroed one */

/* ERR_LIMIT: more than the engine's places, or a prompt that its KV cache can never hold. batch_check says that alone; from any thread,
 * once the batch is there. */
int batch_add(struct batch *b, struct batch_text *t, struct err *e);
int batch_check(const struct batch *b, const struct batch_text *t, struct err *e);

/* A text that has no part in steps until this is taken back, its place and its tokens kept; also from the token callback. */
void batch_pause(struct batch_text *t, int paused);
/* One that has not ended. As long as a text with siblings reads its prompt, it takes them along, and cancelling a sibling does nothing. */
void batch_cancel(struct batch *b, struct batch_text *t);

/* 1: something was done; 0: there is nothing to do; ERR_*: of a pass, and the texts that took part have ended. */
int batch_step(struct batch *b, struct err *e);

/* Positions that open texts hold, in the mean. */
int batch_position(const struct batch *b);

/* Texts that have not ended. */
static inline int batch_open(const struct batch *b)
{
    return b->n_texts + b->n_waiting;
}

#endif
