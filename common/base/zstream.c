/* The only user of zstd.h. The window is small so that the runtime's decompression buffer is part of a
 * budget of a few MiB; weights have no long-range repetition that a larger one would find. */
#include "common/base/zstream.h"

#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define CHUNK (64 * 1024)

struct zstream {
    ZSTD_CCtx *c;
    zstream_sink *sink;
    void *ctx;
    uint8_t buf[CHUNK];
};

int zstream_new(int level, int window_log, zstream_sink *sink, void *ctx, struct zstream **out, struct err *e)
{
    struct zstream *z = calloc(1, sizeof *z);
    if (!z || !(z->c = ZSTD_createCCtx())) {
        free(z);
        return err_set(e, ERR_NOMEM, "zstd compressor");
    }
    ZSTD_CCtx_setParameter(z->c, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(z->c, ZSTD_c_windowLog, window_log);
    z->sink = sink;
    z->ctx = ctx;
    *out = z;
    return 0;
}

static int compress(struct zstream *z, const void *data, size_t len, ZSTD_EndDirective end, struct err *e)
{
    ZSTD_inBuffer in = { data, len, 0 };
    size_t left;
    do {
        ZSTD_outBuffer out = { z->buf, sizeof z->buf, 0 };
        left = ZSTD_compressStream2(z->c, &out, &in, end);
        if (ZSTD_isError(left))
            return err_set(e, ERR_NOMEM, "zstd: %s", ZSTD_getErrorName(left));
        int r = out.pos ? z->sink(z->ctx, z->buf, out.pos, e) : 0;
        if (r < 0)
            return r;
    } while (end == ZSTD_e_end ? left > 0 : in.pos < in.size);
    return 0;
}

int zstream_write(struct zstream *z, const void *data, size_t len, struct err *e)
{
    return compress(z, data, len, ZSTD_e_continue, e);
}

int zstream_finish(struct zstream *z, struct err *e)
{
    return compress(z, NULL, 0, ZSTD_e_end, e);
}

void zstream_free(struct zstream *z)
{
    if (z)
        ZSTD_freeCCtx(z->c);
    free(z);
}

static int expand(ZSTD_DCtx *d, uint8_t *buf, zstream_source *source, void *ctx, uint64_t stored_bytes, void *out,
                  uint64_t bytes, const char *what, struct err *e)
{
    ZSTD_outBuffer o = { out, bytes, 0 };
    size_t left = 1;
    while (stored_bytes > 0) {
        size_t n = stored_bytes < CHUNK ? (size_t)stored_bytes : CHUNK;
        int r = source(ctx, buf, n, e);
        if (r < 0)
            return r;
        stored_bytes -= n;
        ZSTD_inBuffer in = { buf, n, 0 };
        while (in.pos < in.size) {
            size_t in_before = in.pos, out_before = o.pos;
            left = ZSTD_decompressStream(d, &o, &in);
            if (ZSTD_isError(left))
                return err_set(e, ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation ? ERR_NOMEM : ERR_FORMAT,
                               "%s: zstd: %s", what, ZSTD_getErrorName(left));
            if (in.pos == in_before && o.pos == out_before)
                return err_set(e, ERR_FORMAT, "%s: expands beyond the %llu bytes it claims", what,
                               (unsigned long long)bytes);
        }
    }
    if (left != 0 || o.pos != bytes)
        return err_set(e, ERR_FORMAT, "%s: expands to %llu bytes; %llu are claimed", what,
                       (unsigned long long)o.pos, (unsigned long long)bytes);
    return 0;
}

int zstream_expand(zstream_source *source, void *ctx, uint64_t stored_bytes, void *out, uint64_t bytes,
                   int window_log, const char *what, struct err *e)
{
    ZSTD_DCtx *d = ZSTD_createDCtx();
    uint8_t *buf = malloc(CHUNK);
    int r;
    if (!d || !buf)
        r = err_set(e, ERR_NOMEM, "zstd decompressor");
    else {
        ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, window_log);
        r = expand(d, buf, source, ctx, stored_bytes, out, bytes, what, e);
    }
    free(buf);
    ZSTD_freeDCtx(d);
    return r;
}
