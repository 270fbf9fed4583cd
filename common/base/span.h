#ifndef COMMON_BASE_SPAN_H
#define COMMON_BASE_SPAN_H

/* A bounded read cursor with a sticky error: read freely, check span.bad once.
 * Past the end every read gives zero (or NULL) and sets bad; the position no longer moves. */
#include "common/base/bytes.h"
#include "common/base/ckmath.h"

struct span {
    const uint8_t *data;
    size_t len, pos;
    bool bad;
};

static inline struct span span_init(const void *data, size_t len)
{
    return (struct span){ .data = data, .len = len };
}

/* n raw bytes, borrowed from the underlying buffer; NULL when fewer are left. */
static inline const void *span_bytes(struct span *s, uint64_t n)
{
    if (s->bad || n > s->len - s->pos) {
        s->bad = true;
        return NULL;
    }
    const void *p = s->data + s->pos;
    s->pos += (size_t)n;
    return p;
}

static inline uint32_t span_u32(struct span *s)
{
    const void *p = span_bytes(s, 4);
    return p ? bytes_le32(p) : 0;
}

static inline uint64_t span_u64(struct span *s)
{
    const void *p = span_bytes(s, 8);
    return p ? bytes_le64(p) : 0;
}

#endif
