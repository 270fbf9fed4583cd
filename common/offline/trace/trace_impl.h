#ifndef COMMON_OFFLINE_TRACE_TRACE_IMPL_H
#define COMMON_OFFLINE_TRACE_TRACE_IMPL_H

/* Datasets of an open trace by their row of trace_spec.h. Internal to trace*.c. */
#include "common/offline/trace/trace.h"
#include "common/offline/trace/trace_spec.h"

/* Read a box, or rows [first, first+n), of a dataset. */
int trace_read(struct trace *t, enum trace_set s, int layer, const uint64_t *first, const uint64_t *count, void *buf,
               struct err *e);
int trace_read_rows(struct trace *t, enum trace_set s, int layer, uint64_t first, uint64_t n, void *buf, struct err *e);

/* A stored content hash: of a part, or of the trace when path is "/". */
int trace_stored_hash(struct trace *t, const char *path, struct hash128 *out, struct err *e);

#endif
