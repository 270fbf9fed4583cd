#ifndef SERVER_FORM_H
#define SERVER_FORM_H

/* The forms of answers, in JSON: whole objects, and events of streams. form.c has chat/completions and completions, form_messages.c
 * and form_responses.c the others. */
#include "runtime/thermo.h"

#include "server/ask.h"

#define FORM_ID 48

struct form_ops;

struct form {
    const struct form_ops *ops;
    enum ask_form kind;
    int stream, usage, logprobs; /* usage: of a stream. logprobs: of each token */
    int opaque;                  /* as of struct ask */
    char id[FORM_ID];
    int64_t created;
    const char *model;
    struct thermo *t;            /* pieces of tokens */
    struct buffer echo;          /* as of struct ask, and */
    int each;                    /* choices of each prompt */
};

/* One of an answer's texts: what is known of it, and what is gathered of it where that is needed. */
struct form_choice {
    struct buffer text, thought; /* escaped; messages and responses: all of it in text, as blocks of JSON */
    struct buffer calls;         /* objects of tool_calls */
    struct buffer tokens;        /* log-probabilities, of chats: objects; responses: of the item that is open, and in `numbers` those behind
                                  * its last text; of completions: tokens, */
    struct buffer numbers, tops, offsets; /* and these */
    size_t n_text;               /* characters of the tokens so far, for offsets */
    int prompts;                 /* 1: what is gathered of log-probabilities is a prompt's, which a stream has not sent yet */
    int n_calls;
    const char *stop, *stop_text; /* it has ended: as thermo_event's, while its end is handled */
    int n_tokens;                /* so far; guarded by the server's lock */
    /* blocks of messages, items of responses */
    int begun, open, n_blocks;   /* open: the part that is, and 1; 0: none. n_blocks: those before it */
    size_t open_at;              /* where its content is in text */
    int n_events;
};

struct form_usage { int prompt, cached, made, thought; };

struct form_ops {
    const char *id;              /* what ids begin with */
    const char *alive;           /* what a stream sends where there is nothing to say */
    int gathers;                 /* streams, too, gather their text: they say it again at their end */
    /* What a stream begins with before there is a token, of each choice; NULL: nothing. */
    void (*first)(const struct form *f, struct buffer *b, int choice);
    /* Events of a token, or of the text that comes with the end; the choice does not know of it yet. */
    void (*token)(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *ev);
    /* It has been sent. */
    void (*take)(const struct form *f, struct form_choice *c, const struct thermo_event *ev);
    /* It is part of a whole answer: 0; -1: no memory, and nothing was added. */
    int (*gather)(const struct form *f, struct form_choice *c, const struct thermo_event *ev);
    /* The text has ended (c->stop). b: NULL where the answer is whole. */
    void (*last)(const struct form *f, struct form_choice *c, struct buffer *b, const struct thermo_event *ev);
    /* All have. ok: none failed. */
    void (*end)(const struct form *f, const struct form_choice *c, struct buffer *b, const struct form_usage *u, int ok);
    void (*fail)(const struct form *f, const struct form_choice *c, struct buffer *b, const char *message);
    void (*whole)(const struct form *f, const struct form_choice *c, int n, struct buffer *b, const struct form_usage *u);
};

const struct form_ops *form_ops(enum ask_form kind);
extern const struct form_ops form_messages_ops, form_responses_ops;

void form_choice_init(struct form_choice *c, struct pool *pool);
void form_choice_done(struct form_choice *c);
size_t form_choice_bytes(const struct form_choice *c);

/* Of this token log-probabilities are wanted; an object of chat/completions' logprobs.content. */
int form_has_logprob(const struct form *f, const struct thermo_event *ev);
void form_put_logprob(const struct form *f, struct buffer *b, const struct thermo_event *ev);

/* A token of the prompt (THERMO_PROMPT) of completions, which stands before what is made. */
void form_prompt(const struct form *f, struct form_choice *c, const struct thermo_event *ev);

/* A buffer's bytes behind those of another. */
void form_append(struct buffer *b, const struct buffer *from);
/* Room for what an event adds to c->text, at most: 0; -1: no memory. */
int form_room(struct form_choice *c, const struct thermo_event *ev, size_t more);

#endif
