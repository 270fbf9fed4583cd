#ifndef RUNTIME_CHAT_MESSAGE_H
#define RUNTIME_CHAT_MESSAGE_H

/* A message of a conversation as an object of JSON, wherever it comes from: a request, a line of chat --json, a file that /load reads.
 *
 * Taken, and given to the template: role, content (a text, or an array of {"type": "text", "text": ...}, whose texts are put together with
 * newlines; null or absent where there are tool_calls: then it is ""), reasoning_content (or thinking, or reasoning: the
 * template gets the first two), name, tool_calls (an array of objects, as they are), tool_call_id.
 * Accepted without effect: cache_control. Accepted where they say nothing: refusal, annotations, audio, function_call.
 * Anything else is refused by name. */
#include "common/base/js.h"

/* What was read of a message. role, content, thought and more are malloc'd. */
struct message {
    char *role, *content;
    char *thought;       /* what was thought before it, or NULL */
    char *more;          /* the other fields, as a JSON object in which role, content and thought have their places; NULL: none */
};

/* where: for messages of errors. role: of one that does not say, or NULL: it has to. */
int message_read(const struct js *j, const char *where, const char *role, struct message *out, struct err *e);
void message_free(struct message *m);

/* The message as an object; NULL: no memory. For a template its thought has both names, and with `objects` arguments of calls that are text
 * of a JSON object, as OpenAI's clients send them, are given as that object. */
struct js *message_object(const struct message *m);
struct js *message_for_template(const struct message *m, int objects);

/* JSON values in `more`, at most. */
size_t message_values(const struct message *m);

#endif
