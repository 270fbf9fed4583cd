#ifndef COMMON_MODEL_GGUF_IMPL_H
#define COMMON_MODEL_GGUF_IMPL_H

/* What the files of the GGUF reader share. */
#include "common/model/gguf.h"

struct gguf_known;

struct gguf_priv {
    uint8_t *header;                          /* owned copy, NULL when the caller keeps the bytes */
    char *file;                               /* what messages call it */
    char *names;
    const struct gguf_key **keys_by_name;
    const struct gguf_tensor **tensors_by_name;
    struct gguf **sub;                        /* the other shards: they own their tensors' names */
    int n_sub;
    char *part_names;                         /* of parts of fused tensors */
    char *stated;                             /* name and value of a stated key */
    char *added_names;                        /* of added tensors, and their values */
    uint8_t *added;
    struct gguf_known *known;                 /* what has been read before (gguf_content.c), or NULL */
};

/* What has been read of the tensors is no longer known: their table changes, or goes. */
void gguf_forget(struct gguf *g);

/* The table becomes one of n tensors, more than before, which begins as it was. -1: there is no memory. */
int gguf_know_more(struct gguf *g, uint64_t n);

#endif
