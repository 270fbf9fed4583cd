#ifndef COMMON_BASE_BYTES_H
#define COMMON_BASE_BYTES_H

/* Little-endian load and store at any alignment. Cannot fail; the caller has checked the bounds. */
#include <stdint.h>
#include <string.h>

static inline uint16_t bytes_le16(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t bytes_le32(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t bytes_le64(const void *p)
{
    return bytes_le32(p) | (uint64_t)bytes_le32((const uint8_t *)p + 4) << 32;
}

static inline float bytes_lef32(const void *p)
{
    uint32_t u = bytes_le32(p);
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline double bytes_lef64(const void *p)
{
    uint64_t u = bytes_le64(p);
    double f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline void bytes_put16(void *p, uint16_t v)
{
    uint8_t *b = p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

static inline void bytes_put32(void *p, uint32_t v)
{
    bytes_put16(p, (uint16_t)v);
    bytes_put16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

static inline void bytes_put64(void *p, uint64_t v)
{
    bytes_put32(p, (uint32_t)v);
    bytes_put32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

static inline void bytes_putf32(void *p, float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    bytes_put32(p, u);
}

#endif
