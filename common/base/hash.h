#ifndef COMMON_BASE_HASH_H
#define COMMON_BASE_HASH_H

/* XXH3 through libxxhash, the project's only hash: identity of logical content (128 bits) and
 * checksums of segments and clusters (64 bits). Not a defence against forgery. */
#include <stddef.h>
#include <stdint.h>

#define HASH_TEXT 33 /* 32 hex digits and NUL */

struct hash128 {
    uint64_t lo, hi;
};

uint64_t hash_64(const void *data, size_t len);
uint64_t hash_64_seeded(const void *data, size_t len, uint64_t seed);
struct hash128 hash_128(const void *data, size_t len);

/* Streaming form. hash_new returns NULL when out of memory; hash_free accepts NULL. */
struct hash;
struct hash *hash_new(void);
struct hash_room {                                            /* where a caller has room for one: it needs no hash_free */
    _Alignas(64) unsigned char bytes[640];
};
struct hash *hash_new_in(struct hash_room *room);
void hash_free(struct hash *h);
void hash_seed(struct hash *h, uint64_t seed);                 /* begin anew; then hash_final64 alone, as hash_64_seeded */
void hash_update(struct hash *h, const void *data, size_t len);
void hash_update_u32(struct hash *h, uint32_t v);              /* little-endian */
void hash_update_u64(struct hash *h, uint64_t v);              /* little-endian */
void hash_update_str(struct hash *h, const char *s);           /* u32 length, then the bytes */
struct hash128 hash_final128(const struct hash *h);
uint64_t hash_final64(const struct hash *h);

/* Text form: 32 lower-case hex digits, high word first. hash_parse returns 0, or -1 when s is
 * not exactly such a text. */
void hash_text(struct hash128 h, char out[HASH_TEXT]);
int hash_parse(const char *s, struct hash128 *out);
static inline int hash_equal(struct hash128 a, struct hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

#endif
