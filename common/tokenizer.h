#ifndef COMMON_TOKENIZER_H
#define COMMON_TOKENIZER_H

/* Text <-> token ids from GGUF metadata. SentencePiece ("llama": merge the adjacent pair with the highest
 * score, byte fallback) and byte-level BPE ("gpt2", with its pre-tokenizer pattern). Constant after
 * opening; thread-safe. */
#include "common/err.h"
#include "common/gguf.h"

#include <stddef.h>
#include <stdint.h>

struct tokenizer;

int tokenizer_open(const struct gguf *g, struct tokenizer **out, struct err *e);
void tokenizer_close(struct tokenizer *t);

/* Ids of text[0..len); BOS first when bos is set and the model wants it. Special-token strings in the text are
 * plain text unless parse_special. *out is malloc'd. Invalid UTF-8 falls back to bytes. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int bos,
                     int parse_special, int32_t **out, int *n, struct err *e);

/* Bytes of one token, borrowed; *len may be 0 (control tokens). The text of a sequence is the
 * concatenation, less one leading space when the tokenizer adds one (tokenizer_adds_space). A
 * character may span tokens. */
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *len);
int tokenizer_adds_space(const struct tokenizer *t);

int tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);  /* -1: none */
int tokenizer_is_eog(const struct tokenizer *t, int32_t id); /* end of sequence, turn or text */

/* Heap bytes the tokenizer holds, and an upper bound known without opening it, which the budget
 * charges: text_bytes is the summed length of all token strings, n_merges of BPE. */
size_t tokenizer_heap_bytes(const struct tokenizer *t);
uint64_t tokenizer_heap_bound(uint64_t n_vocab, uint64_t text_bytes, uint64_t n_merges);

#endif
