#ifndef RUNTIME_PROMPT_H
#define RUNTIME_PROMPT_H

/* Text and token ids from the command line and files, before anything is loaded. */
#include "common/base/err.h"
#include "common/model/tokenizer.h"

#include <stdint.h>

/* --prompt TEXT or --prompt-file FILE ("-": standard input): exactly one. *text is malloc'd. */
int prompt_text(const char *text_arg, const char *file_arg, char **text, size_t *len, struct err *e);

/* "1,2,3"; ids 0..n_vocab-1. *ids is malloc'd. */
int prompt_ids(const char *list, int n_vocab, int32_t **ids, int *n, struct err *e);

/* Little-endian u16 ids. */
int prompt_ids_file(const char *path, int n_vocab, int32_t **ids, int *n, struct err *e);

/* Refuse what the context cannot hold; room: positions that must be left after it. */
int prompt_check(int n, int context, int room, struct err *e);

#endif
