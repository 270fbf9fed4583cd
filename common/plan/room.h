#ifndef COMMON_PLAN_ROOM_H
#define COMMON_PLAN_ROOM_H

/* What chat and serve take of the memory limit beside the model: what a plan for them keeps free (solve --for), and the runtime, which
 * takes it (chat.h, messages.h, request.h), holds itself to. Guesses by another model or layer are not in it. */
#include "common/plan/plan.h"

#define ROOM_CHAT                ((3u << 19) + 13 * 8192 + (128u << 10)) /* a conversation, what a message is read from, a request; */
#define ROOM_CHAT_PER_TOKEN      (256 + 13 * 8 + 12)                    /* for each position of the context */
#define ROOM_SERVE               (5u << 19)                             /* a template, and what a line is read from; */
#define ROOM_SERVE_PER_TOKEN     (256 + 8 * 90 + 128)                   /* for each position of the context; */
#define ROOM_SERVE_PER_SEQUENCE  (68u << 10)                            /* requests that are made or wait, and what of them is not taken; */
#define ROOM_SERVE_PER_PLACE     (16 + 6 + 64)                          /* for each position of each sequence: tokens of prompts, what finds
                                                                         * prefixes, calls */

/* Bytes, a multiple of 64. */
static inline uint64_t room_bytes(enum plan_purpose purpose, int context, int sequences)
{
    uint64_t tokens = (uint64_t)context, n = (uint64_t)sequences, bytes = 0;
    if (purpose == PLAN_FOR_CHAT)
        bytes = ROOM_CHAT + tokens * ROOM_CHAT_PER_TOKEN;
    else if (purpose == PLAN_FOR_SERVE)
        bytes = ROOM_SERVE + tokens * ROOM_SERVE_PER_TOKEN + n * (ROOM_SERVE_PER_SEQUENCE + tokens * ROOM_SERVE_PER_PLACE);
    return (bytes + 63) & ~(uint64_t)63;
}

#endif
