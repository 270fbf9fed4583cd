#ifndef RUNTIME_CHAT_MESSAGES_H
#define RUNTIME_CHAT_MESSAGES_H

/* The messages of a conversation, no more than a context has room for, and the file that holds them. Single-threaded. */
#include "runtime/chat/message.h"

#include <stddef.h>

struct messages {
    struct message *all;
    int n, cap, context;  /* context: tokens; the caller's, of a zeroed one */
    size_t text, values;  /* bytes in all of them, and values of their JSON */
    size_t given;         /* bytes that count as text beside them */
};

/* Beside the messages, what chat reads one from, and what it hands on: a line, the message that lines make, JSON of one or of a file, of a
 * file the conversation that waits to take the place of the other; then the conversation as JSON, and what is made of that while it becomes
 * a request. */
#define MESSAGES_LINE              8192
#define MESSAGES_LINE_PER_TOKEN    8
#define MESSAGES_READING           (13 * MESSAGES_LINE + (64u << 10))
#define MESSAGES_READING_PER_TOKEN (13 * MESSAGES_LINE_PER_TOKEN)
static inline size_t messages_line_bytes(int context)
{
    return MESSAGES_LINE + (size_t)context * MESSAGES_LINE_PER_TOKEN;
}
static inline size_t messages_json_bytes(int context)
{
    return 8 * messages_line_bytes(context) + (64u << 10);
}

void messages_free(struct messages *c); /* accepts a zeroed one */

/* thought: what the model thought before it, or NULL. Text is copied up to a NUL. ERR_LIMIT: more than a context can hold. */
int messages_add(struct messages *c, const char *role, const char *content, const char *thought, struct err *e);
/* One as an object of JSON (message.h); where: for messages of errors; role: of one that does not say, or NULL: it has to. ERR_FORMAT,
 * ERR_UNSUPPORTED: a field that is wrong, not known or refused, by name. */
int messages_add_object(struct messages *c, const struct js *j, const char *where, const char *role, struct err *e);
int messages_give(struct messages *c, size_t bytes, struct err *e); /* `given`: ERR_LIMIT */
void messages_drop(struct messages *c, int n);                      /* forget all from the n-th on */
/* Forget the oldest turn, a user's message and what came of it, but nothing of the system's before it and not the last message. How many
 * messages that were; 0: there is no such turn. */
int messages_forget(struct messages *c);
struct js *messages_json(const struct messages *c);                 /* an array; NULL: no memory */

/* As a JSON object {"messages": [...]}. messages_load replaces what there is, and leaves it on an error. messages_save replaces no file but
 * one that it wrote, or an empty one: ERR_USAGE; with `any` every file, but for those that are in use (file_keep). */
int messages_save(const struct messages *c, const char *path, int any, struct err *e);
int messages_load(struct messages *c, const char *path, struct err *e);

#endif
