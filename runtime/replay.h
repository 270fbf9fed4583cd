#ifndef RUNTIME_REPLAY_H
#define RUNTIME_REPLAY_H

/* Answers as they were sampled, so that a conversation which comes back with one of them, in JSON that the client has written anew, has
 * the same tokens (docs/server.md#answers-that-come-back). An answer is known by what the model read before it, token for token, and by all
 * that the client was given of it: text, thought, and ids, names and arguments of calls. Where anything differs, what the client says
 * counts.
 *
 * Bounded: the ones used longest ago go. Its own lock: any thread. */
#include "runtime/chat/chat.h"

#include <stdio.h>

#define REPLAY_BYTES   (96u << 10) /* of tokens, at most, and */
#define REPLAY_ANSWERS 64
#define REPLAY_FIXED   (REPLAY_BYTES + (16u << 10)) /* all that it takes */

struct replay;

/* What an answer was made of: the prompt as text and tokens, the messages in it; for chat_reader_init and calls_new. */
struct replay_prompt {
    struct hash128 text, tokens;
    size_t bytes;
    int n_tokens, n_messages, thinks;
    uint64_t salt;
};

int replay_new(struct replay **out, struct err *e);
void replay_free(struct replay *r); /* accepts NULL */

/* An answer that has ended where the model ended it; what there is no memory for is left out. */
void replay_put(struct replay *r, const struct replay_prompt *p, const int32_t *made, int n);

/* As a file of a folder of prefixes (schemas/prefix.md): untrusted, and not believed where it is not whole. key: of the packed model and
 * how it is run. Saved where something has changed; what fails is a warning. replay_load is of a new one, before others have it. */
void replay_save(struct replay *r, const char *folder, struct hash128 key);
void replay_load(struct replay *r, const char *folder, struct hash128 key, int n_vocab);

/* That file's bytes. replay_read: 0; -1: something is wrong, and nothing of it is kept. */
int replay_read(struct replay *r, FILE *f, struct hash128 key, int n_vocab);
void replay_write(const struct replay *r, FILE *f, struct hash128 key);

/* For chat_tokens: finds answers of a conversation. form, tools, most: as calls_new; tools: NULL or empty: none are called. */
struct replay_find {
    struct replay *of;
    const struct tokenizer *tokenizer;
    enum calls_form form;
    const struct js *tools;
    size_t most;
};
int replay_next(void *find, const struct messages *m, const char *text, size_t len, size_t from, struct chat_known *out);

#endif
