/* An entry of a list is the distance from the one before, in groups of seven bits, the lowest first; the top bit says that
 * another follows. Lists ascend and lie dense at their beginning, so most distances are one byte. */
#include "planner/inputs/list_cache.h"

#include "common/base/grow.h"
#include "planner/inputs/inputs_steps.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST 5 /* bytes of a 32-bit distance */

struct list_cache_lists {
    struct hash128 key;
    int n_steps;
    uint32_t *start;            /* [n_steps + 1]: as of inputs_steps */
    uint8_t *packed;
    size_t bytes;               /* of all this */
};

struct list_cache {
    size_t most, used;
    int n, cap;
    struct list_cache_lists *lists;
};

struct list_cache *list_cache_new(size_t most_bytes)
{
    struct list_cache *k = malloc(sizeof *k);
    if (k)
        *k = (struct list_cache){ .most = most_bytes };
    return k;
}

static void drop(struct list_cache *k, struct list_cache_lists *l)
{
    k->used -= l->bytes;
    free(l->start);
    free(l->packed);
    *l = k->lists[--k->n];
}

void list_cache_free(struct list_cache *k)
{
    if (!k)
        return;
    while (k->n > 0)
        drop(k, &k->lists[k->n - 1]);
    free(k->lists);
    free(k);
}

static struct list_cache_lists *find(const struct list_cache *k, struct hash128 key)
{
    for (int i = 0; i < k->n; i++)
        if (hash_equal(k->lists[i].key, key))
            return &k->lists[i];
    return NULL;
}

static size_t pack(const struct inputs_steps *s, uint8_t *out)
{
    uint8_t *p = out;
    for (int t = 0; t < s->n_steps; t++) {
        uint32_t last = 0;
        for (uint32_t i = s->start[t]; i < s->start[t + 1]; i++) {
            uint32_t d = s->at[i] - last;
            last = s->at[i];
            for (; d >= 0x80; d >>= 7)
                *p++ = (uint8_t)(d | 0x80);
            *p++ = (uint8_t)d;
        }
    }
    return (size_t)(p - out);
}

static void unpack(const uint8_t *p, int n_steps, const uint32_t *start, uint32_t *at)
{
    for (int t = 0; t < n_steps; t++) {
        uint32_t last = 0;
        for (uint32_t i = start[t]; i < start[t + 1]; i++) {
            uint32_t d = *p++;
            if (d >= 0x80) {
                d &= 0x7f;
                for (int shift = 7;; shift += 7) {
                    uint32_t more = *p++;
                    d |= (more & 0x7f) << shift;
                    if (more < 0x80)
                        break;
                }
            }
            at[i] = last += d;
        }
    }
}

void list_cache_add(struct list_cache *k, struct hash128 key, const struct inputs_steps *s)
{
    struct list_cache_lists *old = k ? find(k, key) : NULL;
    if (!k || (old && old->n_steps >= s->n_steps))
        return;
    size_t n = s->start[s->n_steps], starts = ((size_t)s->n_steps + 1) * sizeof *s->start;
    size_t left = k->most - k->used + (old ? old->bytes : 0);
    if (starts + n > left || n > SIZE_MAX / LONGEST - 1 || !grow_room(k->lists, k->n, k->cap))
        return;
    old = find(k, key);
    struct list_cache_lists l = { key, s->n_steps, malloc(starts), malloc(n * LONGEST + 1), starts };
    size_t packed = l.start && l.packed ? pack(s, l.packed) : 0;
    if (!l.start || !l.packed || starts + packed > left) {
        free(l.start);
        free(l.packed);
        return;
    }
    memcpy(l.start, s->start, starts);
    uint8_t *less = realloc(l.packed, packed + 1);
    l.packed = less ? less : l.packed;
    l.bytes += packed;
    if (old)
        drop(k, old);
    k->lists[k->n++] = l;
    k->used += l.bytes;
}

int list_cache_get(const struct list_cache *k, struct hash128 key, uint64_t n_steps, struct inputs_steps *out, struct err *e)
{
    const struct list_cache_lists *l = k ? find(k, key) : NULL;
    if (!l || (uint64_t)l->n_steps < n_steps)
        return 0;
    size_t starts = ((size_t)n_steps + 1) * sizeof *l->start;
    struct inputs_steps s = { .n_steps = (int)n_steps, .start = malloc(starts),
                              .at = malloc(((size_t)l->start[n_steps] + 1) * sizeof *s.at) };
    if (!s.start || !s.at) {
        inputs_steps_done(&s);
        return err_set(e, ERR_NOMEM, "out of memory for activation lists");
    }
    memcpy(s.start, l->start, starts);
    unpack(l->packed, s.n_steps, s.start, s.at);
    *out = s;
    return 1;
}
