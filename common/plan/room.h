#ifndef COMMON_PLAN_ROOM_H
#define COMMON_PLAN_ROOM_H

/* What chat, serve and thermo-serve take of the memory limit beside the model: what a plan for them keeps free (solve --for), and the
 * runtime, which takes it (chat.h, messages.h, request.h, schemas.h), and the server (server/main.c), with options as if nothing is said,
 * hold themselves to. Guesses by another model or layer are not in it. */
#include "common/plan/budget.h"
#include "common/plan/plan.h"

#define ROOM_CHAT                ((3u << 19) + 13 * 8192 + (128u << 10)) /* a conversation, what a message is read from, a request; */
#define ROOM_CHAT_PER_TOKEN      (256 + 13 * 8 + 12)                    /* for each position of the context */
#define ROOM_SERVE               (5u << 19)                             /* a template, and what a line is read from; */
#define ROOM_SERVE_PER_TOKEN     (256 + 8 * 90 + 128)                   /* for each position of the context; */
#define ROOM_SERVE_PER_SEQUENCE  (68u << 10)                            /* requests that are made or wait, and what of them is not taken; */
#define ROOM_SERVE_PER_PLACE     (16 + 6 + 64)                          /* for each position of each sequence: tokens of prompts, what finds
                                                                         * prefixes, calls */

#define ROOM_SERVER              (43u << 19)                            /* connections, bodies, their JSON, answers, two schemas; */
#define ROOM_SERVER_PER_TOKEN    (ROOM_SERVE_PER_TOKEN + 16)            /* calls in answers */
#define ROOM_SERVER_PER_SEQUENCE (ROOM_SERVE_PER_SEQUENCE + (4u << 10))
#define ROOM_SERVER_PER_WORD     40                                     /* for each token of the vocabulary, beside its text */

/* Bytes, a multiple of 64. */
static inline uint64_t room_bytes(enum plan_purpose purpose, int context, int sequences, const struct budget_model *m)
{
    uint64_t tokens = (uint64_t)context, n = (uint64_t)sequences, bytes = 0;
    if (purpose == PLAN_FOR_CHAT)
        bytes = ROOM_CHAT + tokens * ROOM_CHAT_PER_TOKEN;
    else if (purpose == PLAN_FOR_SERVE)
        bytes = ROOM_SERVE + tokens * ROOM_SERVE_PER_TOKEN + n * (ROOM_SERVE_PER_SEQUENCE + tokens * ROOM_SERVE_PER_PLACE);
    else if (purpose == PLAN_FOR_SERVER)
        bytes = ROOM_SERVER + tokens * ROOM_SERVER_PER_TOKEN + n * (ROOM_SERVER_PER_SEQUENCE + tokens * ROOM_SERVE_PER_PLACE) +
                m->vocab_text_bytes + (uint64_t)m->h.n_vocab * ROOM_SERVER_PER_WORD;
    return (bytes + 63) & ~(uint64_t)63;
}

#endif
