#ifndef COMMON_KERNELS_KERNELS_K_IMPL_H
#define COMMON_KERNELS_KERNELS_K_IMPL_H

/* What the tiers' primitives for kernels_simd_k_impl.h are written with. A tier's file includes its vectors, this, has its primitives,
 * and includes the loops. */
#if defined(KERNELS_VN)

#include "common/base/inline.h"
#include "common/kernels/kernels_impl.h"

#include <stddef.h>
#include <string.h>

struct f16x { /* sixteen floats */
    VF v[16 / KERNELS_VN];
};
_Static_assert(sizeof(struct f16x) == 64, "sixteen floats");

enum { K_TABLE = 128 }; /* offset of types whose bytes may be negative: there is none, and no bound below 128 */

INLINE uint32_t k_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE uint64_t k_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE uint64_t k_join(uint32_t lo, uint32_t hi)
{
    return (uint64_t)hi << 32 | lo;
}

#define K_AT(type, p, field) ((p) + offsetof(struct quant_##type, field))

#endif
#endif
