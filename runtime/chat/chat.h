#ifndef RUNTIME_CHAT_CHAT_H
#define RUNTIME_CHAT_CHAT_H

/* A conversation: messages, and the tokens that the model's own template (tokenizer.chat_template) makes of them. A file without
 * one is refused, and so is a template that common/text/template.h does not know, by name and line.
 *
 * What the template writes has the control tokens that it spells; what a message says has none: who writes "<|im_end|>" in one has written
 * text. Single-threaded. */
#include "common/base/hash.h"
#include "common/model/tokenizer.h"
#include "runtime/chat/calls.h"
#include "runtime/chat/messages.h"

#include <stddef.h>
#include <stdint.h>

enum chat_thinking { CHAT_THINKING_SHOW, CHAT_THINKING_HIDE, CHAT_THINKING_OFF };
extern const char *const chat_thinking_names[]; /* show, hide, off, NULL */

struct chat;

/* Bytes that a conversation which fills a context takes beside the engine: the template, messages, what they are rendered from and to,
 * tokens. A chat keeps to them: whatever needs more is ERR_LIMIT. */
#define CHAT_BYTES           (3u << 19)
#define CHAT_BYTES_PER_TOKEN 256

/* file: a template instead of the model's own, or NULL. context: tokens. The tokenizer outlives the chat. */
int chat_new(const struct gguf *meta, const struct tokenizer *tokenizer, const char *file, int context, struct chat **out, struct err *e);
void chat_free(struct chat *c);

struct messages *chat_messages(struct chat *c);

/* What the template gets beside messages, until it is given anew: tools, an array of objects; args, an object of further variables, which
 * come before ours. Either may be NULL. Both count as text of the conversation. ERR_FORMAT, ERR_LIMIT. */
int chat_give(struct chat *c, const struct js *tools, const struct js *args, struct err *e);
enum calls_form chat_form(const struct chat *c); /* in which the model writes calls of tools, by its template and architecture */
int chat_variant(const struct chat *c); /* of that form (calls_variant_of) */

/* The conversation and the beginning of an answer as the template writes it; *text is malloc'd. off: as below. */
int chat_render(const struct chat *c, int off, char **text, size_t *len, struct err *e);

/* Ids of the conversation and of the beginning of an answer; *ids is malloc'd. off: the template is told that the model shall not
 * think. thinks: the answer begins within a thought; for chat_reader_init. before: about so many of the tokens come before what the last
 * user message says, 0: not known. text, bytes: what was rendered.
 *
 * known (or NULL) has answers as they were sampled: asked for the next one that begins behind text[from), it gives where, and what the
 * prompt and the answer were. It takes the place of what the template makes of that message up to the token that ends a turn, if the tokens
 * before it are those of that prompt, and if both have the same control tokens; else it is asked for one behind. 0: there is none. */
struct chat_begins {
    int thinks, before;
    struct hash128 text;
    size_t bytes;
};
struct chat_known {
    size_t at;
    struct hash128 prompt;   /* of its tokens, */
    int n_prompt;            /* so many */
    int32_t *made;           /* [n_made], malloc'd */
    int n_made;
};
struct chat_answers {
    int (*next)(void *ctx, const struct messages *m, const char *text, size_t len, size_t from, struct chat_known *out);
    void *ctx;
};
int chat_tokens(const struct chat *c, int off, const struct chat_answers *known, int32_t **ids, int *n, struct chat_begins *begins,
                struct err *e);

#endif
