#ifndef COMMON_MODEL_TOKENIZER_H
#define COMMON_MODEL_TOKENIZER_H

/* Text <-> token ids from GGUF metadata. SentencePiece ("llama": merge the adjacent pair with the highest
 * score, the leftmost on ties, byte fallback), byte-level BPE ("gpt2", with the pre-tokenizer patterns
 * that tokenizer.ggml.pre names: tokenizer_pre.c has the table), BPE of characters ("gemma4"), RWKV's longest match of
 * bytes ("rwkv") and SentencePiece unigram ("t5": the pieces of normalised text whose scores add up to the most). Other
 * models and patterns are ERR_UNSUPPORTED.
 * White space is Unicode's; letters, digits, marks and punctuation are those of PCRE2's Unicode version.
 * Constant after opening; thread-safe. The gguf is not needed after opening. */
#include "common/base/err.h"
#include "common/model/gguf.h"

#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* The i-th value of tokenizer.ggml.model that is understood, and what it is; NULL behind the last. */
struct tokenizer_model {
    const char *name, *what;
};
const struct tokenizer_model *tokenizer_model(int i);

/* The i-th name of tokenizer.ggml.pre, or NULL behind the last. */
const char *tokenizer_pre_name(int i);

/* Before tokenizer_open, of a file that may not say how BPE cuts words: what a user states (--pre; NULL: nothing), or the family's own way
 * where the file says nothing, becomes the file's key tokenizer.ggml.pre (gguf_state_str), and what there is to warn of is written to
 * said[cap], "" where it is nothing. ERR_USAGE: a name that is none, for a file without such words, or nothing is stated and the family has
 * several. */
#define TOKENIZER_PRE_KEY "tokenizer.ggml.pre"
int tokenizer_state_pre(struct gguf *g, const char *pre, char *said, size_t cap, struct err *e);

int tokenizer_open(const struct gguf *g, struct tokenizer **out, struct err *e);
void tokenizer_close(struct tokenizer *t);

/* Ids of text[0..len); BOS first when bos is set and the model wants it. Strings of control tokens in the
 * text are plain text unless parse_special (user-defined tokens are always found). *out is malloc'd, never
 * NULL on success. Invalid UTF-8 falls back to bytes; a byte for which a BPE vocabulary has no token is left
 * out. Time O(n log n), of RWKV O(n times the longest token), and about 80 bytes of heap for each byte of text meanwhile. A unigram model
 * makes unknown tokens of what it has no pieces for, and takes time O(n times the longest token) and 17 bytes for each byte of
 * normalised text; a text that normalisation makes more than 16 times as long is ERR_LIMIT, and one that leads out of a broken table of
 * normalisation ERR_FORMAT. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int bos,
                     int parse_special, int32_t **out, int *n, struct err *e);

/* The same with parse_special, of a text in which a control token that goes over one of the places plain[0..n_plain), which rise, is
 * text. bos -1: it goes on where another ended, as tokenizer_encode_more. */
int tokenizer_encode_but(const struct tokenizer *t, const char *text, size_t len, int bos, const uint32_t *plain, size_t n_plain,
                         int32_t **out, int *n, struct err *e);

/* Where in text[from..len) the first control token is spelled, and in how many bytes; len: none is. */
size_t tokenizer_next_control(const struct tokenizer *t, const char *text, size_t len, size_t from, size_t *bytes);

/* The same of a text that goes on where another ended, at a place of tokenizer_cut: neither BOS nor a space before it. */
int tokenizer_encode_more(const struct tokenizer *t, const char *text, size_t len, int parse_special, int32_t **out, int *n, struct err *e);

/* The last place within text[0..len) at which it can be cut: the ids of what is before it and those of what follows, by
 * tokenizer_encode_more, are those of the whole, whatever follows text[len]. 0: there is none. */
size_t tokenizer_cut(const struct tokenizer *t, const char *text, size_t len);

/* Bytes of one token, borrowed; *len may be 0 (control tokens, an id that is none). The text of a sequence is the
 * concatenation, less one leading space when the tokenizer adds one (tokenizer_adds_space). A
 * character may span tokens. */
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *len);
int tokenizer_adds_space(const struct tokenizer *t);

int32_t tokenizer_bos(const struct tokenizer *t);  /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);
int32_t tokenizer_find(const struct tokenizer *t, const char *text); /* the control or user-defined token of that text, or -1 */
int tokenizer_has(const struct tokenizer *t, const char *text);      /* is that the text of one token, of any type? */

/* Text of any token, of a control token too, borrowed; *len is 0 for an id that is none. */
const char *tokenizer_text(const struct tokenizer *t, int32_t id, size_t *len);

/* Tokens that count as control tokens though the file types them as text, as some converters do with marks of chats: those whose text
 * is framed like <|im_start|>, known names that no merge makes, and what a key names (bos_token_id ...) if its text is in brackets. How
 * many, and the names of the first, separated by commas, into out. */
int tokenizer_retyped(const struct tokenizer *t, char *out, size_t cap);

/* What stands before the text before a gap, before the text behind it, and before what fills it: 0; -1: the vocabulary has no such tokens,
 * by keys or by known names. */
int tokenizer_infill(const struct tokenizer *t, int32_t ids[3]);

/* End of sequence, turn or text: what the keys name, and control tokens of known names. */
int tokenizer_is_eog(const struct tokenizer *t, int32_t id);

/* Heap bytes the tokenizer holds, and an upper bound known without opening it, which the budget
 * charges: text_bytes is the summed length of all token strings and of what a unigram model has beside them
 * (tokenizer_beside_bytes, 0 for others), n_merges of BPE, 0 for others (tokenizer_measure counts them). Opening
 * itself takes a few KiB more. */
size_t tokenizer_heap_bytes(const struct tokenizer *t);
uint64_t tokenizer_heap_bound(uint64_t n_vocab, uint64_t text_bytes, uint64_t n_merges);
uint64_t tokenizer_beside_bytes(const struct gguf *g);
int tokenizer_measure(const struct gguf *g, uint64_t *n_vocab, uint64_t *text_bytes, uint64_t *n_merges,
                      struct err *e);

#endif
