#ifndef COMMON_OFFLINE_TRACE_TRACE_WRITE_H
#define COMMON_OFFLINE_TRACE_TRACE_WRITE_H

/* Writing traces. The file appears under its name, whole, at trace_writer_commit, and not before;
 * the same content gives the same bytes. */
#include "common/offline/trace/trace_spec.h"

struct trace_writer;

/* Everything that is not a dataset of trace_set_specs is taken from info, which must stay valid;
 * info->path and info->content_hash are not used. gzip: 0..9. */
int trace_writer_open(const char *path, const struct trace_info *info, int gzip, struct trace_writer **out,
                      struct err *e);

/* The next n rows (indices of the first dimension) of a dataset; layer is ignored where the set is
 * not of a layer. Datasets come in any order, one after the other: a dataset is complete before the next begins,
 * and absent ones (trace_set_dims gives 0) are passed over. */
int trace_writer_append(struct trace_writer *w, enum trace_set s, int layer, uint64_t n, const void *rows,
                        struct err *e);

/* Every dataset must have been written. content may be NULL. */
int trace_writer_commit(struct trace_writer *w, struct hash128 *content, struct err *e);
void trace_writer_abort(struct trace_writer *w); /* frees w; also after commit; accepts NULL */

/* Rules of the corpus, shared by trace and merge (schemas/trace.md).
 * The window: how many of the first sequences fit in `wanted` tokens (at least one unless wanted is 0). */
void trace_window(const uint64_t *starts, uint64_t n_sequences, uint64_t wanted, uint64_t *sequences, uint64_t *tokens);
/* Sample s of n, spread evenly over n_tokens >= n: a token of the whole corpus. */
uint64_t trace_sample_token(uint64_t s, uint64_t n, uint64_t n_tokens);
/* Which shard has a sequence. */
static inline int trace_shard_of(uint64_t sequence, int n_shards)
{
    return (int)(sequence / TRACE_GROUP % (uint64_t)n_shards);
}

#endif
