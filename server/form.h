#ifndef SERVER_FORM_H
#define SERVER_FORM_H

/* The forms of answers: objects and events of chat/completions and completions, in JSON. */
#include "runtime/thermo.h"

#include "server/ask.h"

#define FORM_ID 48

struct form {
    enum ask_form kind;
    int stream, usage, logprobs; /* usage: of a stream. logprobs: of each token */
    char id[FORM_ID];
    int64_t created;
    const char *model;
    struct thermo *t;            /* pieces of tokens */
};

/* What a whole answer gathers of one choice: escaped text, thoughts, log-probabilities of tokens. */
struct form_choice {
    struct buffer text, thought;
    struct buffer calls;         /* objects of tool_calls */
    struct buffer tokens;        /* chat: objects; completions: tokens, */
    struct buffer numbers, tops, offsets; /* and these */
    size_t n_text;               /* characters of the tokens so far, for offsets */
    int n_calls;
};

void form_choice_init(struct form_choice *c, struct pool *pool);
void form_choice_done(struct form_choice *c);
size_t form_choice_bytes(const struct form_choice *c);

/* A token's text and probabilities, into a choice: 0; -1: no memory, and nothing was added. */
int form_gather(const struct form *f, struct form_choice *c, const struct thermo_event *ev);

/* "data: {...}\n\n": the first of a choice; one with a token; the last. */
void form_first(const struct form *f, struct buffer *b, int choice);
void form_token(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *ev);
void form_count(const struct form *f, struct form_choice *c, const struct thermo_event *ev); /* once it has been sent */
void form_last(const struct form *f, struct buffer *b, const struct thermo_event *ev, int calls);

struct form_usage { int prompt, cached, made, thought; };
void form_counts(const struct form *f, struct buffer *b, const struct form_usage *u); /* the event with the counts */

/* A whole answer: form_head, form_put_choice of each, form_tail. */
void form_head(const struct form *f, struct buffer *b);
void form_put_choice(const struct form *f, struct buffer *b, const struct form_choice *c, int index, const char *reason);
void form_tail(struct buffer *b, const struct form_usage *u);

/* OpenAI's word for how a text ended; calls: how many there are in it. */
const char *form_reason(const char *stop, int calls);

#endif
