#ifndef RUNTIME_REQUEST_H
#define RUNTIME_REQUEST_H

/* A text that somebody asks for in a line of JSON or a row of a table: its fields, its prompt in tokens, and what is made of it. Field
 * by field checked, for lines come from outside. Memory: request_init allocates a request's own; reading one takes no more than
 * REQUEST_BYTES_PER_BYTE bytes for each byte of a line and REQUEST_JSON_BYTES per value, for the time of the call. */
#include "common/base/js.h"
#include "common/cli/opt.h"

#include "runtime/chat/chat.h"
#include "runtime/output.h"
#include "runtime/replay.h"
#include "runtime/schemas.h"
#include "runtime/session/batch.h"
#include "runtime/setup.h"

#include <stdio.h>

#define REQUEST_ID    64   /* bytes of an id, */
#define REQUEST_STOPS 8    /* stop strings of a request, */
#define REQUEST_STOP  64   /* and bytes of each, at most */
#define REQUEST_BIASES 300 /* tokens of "logit_bias" */

/* A line: request_line_bytes(context). Beside it, per byte: JSON's copy, the tokenizer's 80, a token. */
#define REQUEST_LINE           8192
#define REQUEST_LINE_PER_TOKEN 8
#define REQUEST_BYTES_PER_BYTE 90
#define REQUEST_VALUES         1024 /* values of a line beside tokens that there is memory for; tokens are no more than the context */
#define REQUEST_JSON_BYTES     128

/* What requests have in common, and what those have that do not say otherwise. */
struct request_shared {
    const struct setup *s;
    struct chat *chat;         /* what messages are given to; NULL: */
    struct err no_chat;        /* why there is none */
    int prompt_is_message;     /* to it; 0: prompts are text */
    const char *system;        /* before them, or NULL */
    int thinking;              /* enum chat_thinking */
    int n, ignore_eos;         /* n -1: to the end of the context */
    struct sample_params sampling;
    const struct opt_list *stops;
    struct schemas *schemas;   /* that requests may have; NULL: none */
    struct replay *replay;     /* answers that conversations may have in them; NULL: none are kept */
    int calls;                 /* answers to requests with tools are looked through for calls of them */
};

struct request {
    struct batch_text text;
    const struct request_shared *shared;
    char id[REQUEST_ID + 1];
    int n_prompt, n_made;
    int special;               /* control tokens are found in the prompt */
    int choices, choice;       /* continuations of the prompt that are asked for; which one this is */
    int32_t *ids;              /* [context + 1]: the prompt's, then those made */
    const char *const *stops;  /* [n_stops]: the shared ones, or own */
    const char *own[REQUEST_STOPS];
    char stop_text[REQUEST_STOPS][REQUEST_STOP + 1];
    int n_stops;
    struct sample_bias bias[REQUEST_BIASES]; /* text.sampling points to them */
    struct output output;
    struct calls *calls;       /* of them, or NULL: where text goes on to `output`, its owner sets `call` */
    struct schemas_text schema; /* what its answer has to be */
    int schema_whole;          /* it says what thoughts and headers are, too */
    struct err bad;            /* what went wrong with it */
    int is_chat, thinking, thinks; /* its tokens are an answer, which may begin with a thought; enum chat_thinking */
    struct replay_prompt replay; /* of an answer */
    int n_thought;             /* of n_made, those of thoughts, with their marks */
    int busy, ended;           /* the caller's: it is one that was read; it has an outcome */
    enum batch_end end;
    struct err why;            /* of BATCH_FAILED */
};

/* Bytes of a request for each position of the context and beside them; of reading requests, likewise. */
#define REQUEST_PER_TOKEN sizeof(int32_t)
#define REQUEST_CALL_PER_TOKEN 4 /* bytes of a call for each position, at most, and */
static inline size_t request_call_bytes(int context)
{
    return 1024 + (size_t)context * REQUEST_CALL_PER_TOKEN;
}
#define REQUEST_FIXED     (sizeof(struct request) + 512)
#define REQUEST_READING   (REQUEST_LINE * REQUEST_BYTES_PER_BYTE + REQUEST_VALUES * REQUEST_JSON_BYTES)
#define REQUEST_READING_PER_TOKEN (REQUEST_LINE_PER_TOKEN * REQUEST_BYTES_PER_BYTE + REQUEST_JSON_BYTES)

size_t request_line_bytes(int context);

int request_init(struct request *q, const struct request_shared *shared, struct err *e);
void request_done(struct request *q); /* accepts a zeroed one */

/* A request begins: the shared values, no prompt. What it was is gone. */
void request_begin(struct request *q, const char *id);

/* Fields of an object, which may be NULL: id (a string or an integer), prompt (a string; with suffix, what is behind the gap that is
 * filled), tokens (an array of ids) or messages (an array of objects, chat/message.h), and n, choices, temp, top_k, top_p, min_p,
 * repeat_penalty, repeat_last_n, presence_penalty, frequency_penalty, logit_bias (an object: a token's id, what is added), logprobs,
 * seed, stop (a string or an array), ignore_eos, parse_special, thinking, tools and template_args (of messages; chat.h), tool_choice
 * ("none": the model does not hear of tools; "auto"; "required" and {"name": ...}: the answer is one call, of any or of that tool,
 * forced.h), schema (an object: mask/schema.h), json (true: any object). Others are accepted without effect or refused, by the table in
 * request.c. text[len], or NULL: a prompt in place of these. ERR_FORMAT, ERR_LIMIT, ERR_UNSUPPORTED, ERR_USAGE: what is wrong, by name;
 * the id is there, if there is one. */
int request_read(struct request *q, const struct js *j, const char *text, size_t len, struct err *e);

/* The i-th continuation of what another asks for, with a seed of its own. ERR_NOMEM. */
int request_sibling(struct request *q, const struct request *of, int i, struct err *e);

/* The conversation of such an object, which has messages, as the template writes it; *text is malloc'd. */
int request_render(const struct request_shared *s, const struct js *j, char **text, size_t *len, struct err *e);
int request_count(const struct request_shared *s, const struct js *j, size_t *n, struct err *e); /* its tokens */

/* Bytes that JSON of a line may take (js_parse_within). */
size_t request_json_bytes(int context);

/* What was made so far, as text: pushed through `output`, token by token. request_text begins it anew with another sink; NULL: none. */
int request_put(struct request *q, int32_t id); /* 1: a stop string is complete */
int request_text(struct request *q, stream_sink *sink, void *ctx, struct err *e);

/* For batch_config: tokens are kept in ids and pushed; owner is the request. */
int request_token(void *ctx, struct batch_text *t, int32_t id);

/* For batch_config.allowed. A thought is not masked, nor is the mark that begins one before anything else. */
const uint64_t *request_allowed(void *ctx, struct batch_text *t, struct err *why);
/* No more tokens are drawn: its schema may be another's. By the thread that draws. */
void request_drawn(struct request *q);

/* An answer that the model has ended may come back in a conversation: it is kept. */
void request_keep_answer(const struct request *q, enum batch_end end);

/* Mean of the log-probabilities of the tokens drawn; 0 of none. */
double request_logprob(const struct batch_text *t);

#endif
