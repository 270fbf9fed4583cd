#ifndef COMMON_BASE_CKMATH_H
#define COMMON_BASE_CKMATH_H

/* Checked size arithmetic: true when the result fits and was stored, false on overflow.
 * Every product or sum of numbers that came from a file goes through these before it is used. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool ck_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool ck_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool ck_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool ck_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Round a up to a multiple of align (a power of two). */
static inline bool ck_align_u64(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t t;
    if (__builtin_add_overflow(a, align - 1, &t))
        return false;
    *out = t & ~(align - 1);
    return true;
}

/* [off, off+len) lies within [0, size). */
static inline bool ck_range(uint64_t off, uint64_t len, uint64_t size)
{
    return off <= size && len <= size - off;
}

#endif
