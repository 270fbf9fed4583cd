#ifndef RUNTIME_PROMPT_H
#define RUNTIME_PROMPT_H

/* Text and token ids from the command line and files, before anything is loaded. */
#include "common/base/err.h"
#include "common/model/tokenizer.h"

#include <stdint.h>

/* --prompt TEXT or --prompt-file FILE ("-": standard input): exactly one. *text is malloc'd, with a zero behind it. room: memory for it
 * and for its tokens (setup_room); ERR_LIMIT: it is longer. */
int prompt_text(const char *text_arg, const char *file_arg, size_t room, char **text, size_t *len, struct err *e);

/* The first tokens of a file's text ("-": standard input), at most `most`: no more of it is read than they need, in pieces. The ids are
 * those of the whole text. *ids is malloc'd, [*n]. ERR_LIMIT: they, or a stretch of text that cannot be cut, need more than room. */
int prompt_tokens(const struct tokenizer *t, const char *path, int bos, size_t most, size_t room, int32_t **ids, int *n, struct err *e);

/* "1,2,3"; ids 0..n_vocab-1. *ids is malloc'd. */
int prompt_ids(const char *list, int n_vocab, int32_t **ids, int *n, struct err *e);

/* Little-endian u16 ids: the first `most` of a file. */
int prompt_ids_file(const char *path, int n_vocab, size_t most, size_t room, int32_t **ids, int *n, struct err *e);

/* Refuse what the context cannot hold; room: positions that must be left after it. */
int prompt_check(int n, int context, int room, struct err *e);

#endif
