/* Thin wrapper over libxxhash: one place where its types are seen. */
#include "common/base/hash.h"

#include "common/base/bytes.h"

#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the size of its state */
#include <xxhash.h>

/* libxxhash for x86-64 has the same functions for the widest registers that the processor has, three times as fast; but not
 * everywhere, and not in its static form. */
#if defined(__x86_64__)
XXH64_hash_t XXH3_64bits_dispatch(const void *data, size_t len) __attribute__((weak));
XXH64_hash_t XXH3_64bits_withSeed_dispatch(const void *data, size_t len, XXH64_hash_t seed) __attribute__((weak));
XXH128_hash_t XXH3_128bits_dispatch(const void *data, size_t len) __attribute__((weak));
XXH_errorcode XXH3_128bits_update_dispatch(XXH3_state_t *state, const void *data, size_t len) __attribute__((weak));
#define WIDEST(f) (f##_dispatch ? f##_dispatch : (f))
#else
#define WIDEST(f) (f)
#endif


uint64_t hash_64(const void *data, size_t len)
{
    return WIDEST(XXH3_64bits)(data, len);
}

uint64_t hash_64_seeded(const void *data, size_t len, uint64_t seed)
{
    return WIDEST(XXH3_64bits_withSeed)(data, len, seed);
}

struct hash128 hash_128(const void *data, size_t len)
{
    XXH128_hash_t h = WIDEST(XXH3_128bits)(data, len);
    return (struct hash128){ h.low64, h.high64 };
}

struct hash *hash_new(void)
{
    XXH3_state_t *s = XXH3_createState();
    if (s)
        XXH3_128bits_reset(s);
    return (struct hash *)s;
}

struct hash *hash_new_in(struct hash_room *room)
{
    XXH3_state_t *s = (XXH3_state_t *)room->bytes;
    _Static_assert(sizeof *s <= sizeof room->bytes && _Alignof(XXH3_state_t) <= 64, "room for the library's state");
    memset(s, 0, sizeof *s);
    XXH3_128bits_reset(s);
    return (struct hash *)s;
}

void hash_free(struct hash *h)
{
    XXH3_freeState((XXH3_state_t *)h);
}

void hash_seed(struct hash *h, uint64_t seed)
{
    XXH3_64bits_reset_withSeed((XXH3_state_t *)h, seed);
}

void hash_update(struct hash *h, const void *data, size_t len)
{
    WIDEST(XXH3_128bits_update)((XXH3_state_t *)h, data, len);
}

void hash_update_u32(struct hash *h, uint32_t v)
{
    uint8_t b[4];
    bytes_put32(b, v);
    hash_update(h, b, sizeof b);
}

void hash_update_u64(struct hash *h, uint64_t v)
{
    uint8_t b[8];
    bytes_put64(b, v);
    hash_update(h, b, sizeof b);
}

void hash_update_str(struct hash *h, const char *s)
{
    size_t n = strlen(s);
    hash_update_u32(h, (uint32_t)n);
    hash_update(h, s, n);
}

struct hash128 hash_final128(const struct hash *h)
{
    XXH128_hash_t v = XXH3_128bits_digest((const XXH3_state_t *)h);
    return (struct hash128){ v.low64, v.high64 };
}

uint64_t hash_final64(const struct hash *h)
{
    return XXH3_64bits_digest((const XXH3_state_t *)h);
}

void hash_text(struct hash128 h, char out[HASH_TEXT])
{
    snprintf(out, HASH_TEXT, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

int hash_parse(const char *s, struct hash128 *out)
{
    uint64_t w[2] = { 0, 0 };
    if (!s)
        return -1;
    for (int i = 0; i < 32; i++) {
        int c = s[i], v;
        if (c >= '0' && c <= '9')
            v = c - '0';
        else if (c >= 'a' && c <= 'f')
            v = c - 'a' + 10;
        else
            return -1;
        w[i / 16] = w[i / 16] << 4 | (uint64_t)v;
    }
    if (s[32])
        return -1;
    *out = (struct hash128){ .hi = w[0], .lo = w[1] };
    return 0;
}
