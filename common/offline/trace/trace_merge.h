#ifndef COMMON_OFFLINE_TRACE_TRACE_MERGE_H
#define COMMON_OFFLINE_TRACE_TRACE_MERGE_H

#include "common/base/err.h"
#include "common/base/hash.h"

/* Shards of one run -> the trace that an unsharded run would have written, to the byte. Every shard 0..n-1
 * exactly once, in any order. ERR_MISMATCH names both files and what differs. Predictors are measured on the samples of one
 * shard and do not hold for all: a shard that has some is ERR_USAGE, or they are left out when drop_predictors is not 0.
 * on_layer (may be NULL) is called with layers done. content may be NULL. */
int trace_merge(const char *const *paths, int n, const char *out, int gzip, int drop_predictors,
                void (*on_layer)(void *ctx, int done, int of), void *ctx, struct hash128 *content, struct err *e);

#endif
