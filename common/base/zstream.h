#ifndef COMMON_BASE_ZSTREAM_H
#define COMMON_BASE_ZSTREAM_H

/* zstd as a stream with a small window, both ways in bounded memory. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef int zstream_sink(void *ctx, const void *data, size_t len, struct err *e);
typedef int zstream_source(void *ctx, void *buf, size_t len, struct err *e); /* exactly len bytes, in order */

/* Compressor with window 2^window_log and checksum off (sections have their own); pieces in, sink out. */
struct zstream;
int zstream_new(int level, int window_log, zstream_sink *sink, void *ctx, struct zstream **out, struct err *e);
int zstream_write(struct zstream *z, const void *data, size_t len, struct err *e);
int zstream_finish(struct zstream *z, struct err *e);
void zstream_free(struct zstream *z);

/* Decompress stored_bytes from source into out[bytes]; anything but exactly that many bytes, or a larger
 * window, is ERR_FORMAT naming what. */
int zstream_expand(zstream_source *source, void *ctx, uint64_t stored_bytes, void *out, uint64_t bytes,
                   int window_log, const char *what, struct err *e);

#endif
