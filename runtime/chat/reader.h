#ifndef RUNTIME_CHAT_READER_H
#define RUNTIME_CHAT_READER_H

/* Which part of an answer is thought: what is between <think> and </think>, or other such marks, in Gemma's thought channel, in every
 * channel of gpt-oss but the final one. A mark is one token, or, where the vocabulary has none of that text, a text that may be spelled
 * in several: the first text of an answer that begins a thought, and within it what ends it. Single-threaded. */
#include "common/model/tokenizer.h"

/* CHAT_HEADER: the name of a channel, and whom a message is to, belong to neither; CHAT_SILENT: the text of marks and of control tokens. */
enum chat_part { CHAT_ANSWER, CHAT_THOUGHT, CHAT_HEADER, CHAT_SILENT };

#define CHAT_MARK_MAX 32           /* bytes of a mark, at most */

struct chat_reader {
    const struct tokenizer *tokenizer;
    enum chat_part part, shown;    /* shown: of what was printed last */
    char header[32], held[CHAT_MARK_MAX];
    int n_header, n_held, channels;
    int fresh, blank;              /* nothing of the part has come; nothing but white space */
    int pair;                      /* of marks that is open, in a thought; -1: not known */
    unsigned spelled_begin, spelled_end; /* marks that are no tokens, by pairs */
};

/* Text of a part, perhaps several times for a token. Not 0: enough, nothing more is given of this token. */
typedef int chat_sink(void *ctx, enum chat_part part, const char *text, size_t len);

/* thinks: what chat_tokens says. */
void chat_reader_init(struct chat_reader *r, const struct tokenizer *t, int thinks);

/* The token's text, and what was held back before it; newlines at the beginning of a part are left out, and what may be the beginning
 * of a mark is held back. Gives what the sink gave. */
int chat_reader_token(struct chat_reader *r, int32_t id, chat_sink *sink, void *ctx);
int chat_reader_end(struct chat_reader *r, chat_sink *sink, void *ctx); /* the end: what is held comes out */

/* Does a prompt end with a mark that begins a thought? 0: no; else what chat_reader_init wants to know. */
int chat_reader_thinks(const char *text, size_t len);

/* What is printed before text of a part: "<think>" and "</think>" where thought begins and ends, whatever the model's own marks. */
const char *chat_reader_mark(struct chat_reader *r, enum chat_part part);

#endif
