#ifndef RUNTIME_ENGINE_KV_STORE_H
#define RUNTIME_ENGINE_KV_STORE_H

/* A folder of pages of the KV cache and of states (schemas/prefix.md): found by their tokens, also by later processes, whoever of them
 * made them. A record is put by the thread that has the cache, and written by one of the store's own. Several processes may use a folder;
 * a lock of it is held while a record is written. What cannot be written is dropped: the folder is a cache.
 *
 * Untrusted: what is believed of a file is kv_store_parse. One thread calls, but for kv_store_parse. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stddef.h>
#include <stdint.h>

enum kv_store_kind { KV_STORE_PAGE = 1, KV_STORE_STATE };

#define KV_STORE_HEADER 80

struct kv_store_key {
    struct hash128 pack, how;    /* runtime/identity.h */
};

struct kv_store_config {
    const char *dir;             /* made where it is missing */
    uint64_t most;               /* bytes of all records in it */
    struct kv_store_key key;
    int context;
    size_t payload;              /* of a record, at most */
    void (*wake)(void *ctx);     /* there is room for a record again; of the store's own thread, and calls nothing
                                  * of it. Or NULL */
    void *wake_ctx;
};

struct kv_store_stats {
    uint64_t written, read, damaged, dropped; /* records */
    uint64_t bytes;              /* of all records there, when the last one was written */
};

struct kv_store;

/* Memory that it takes. */
uint64_t kv_store_bytes(size_t payload, int context);

/* The folder is made, and looked at. ERR_USAGE: it cannot be made or is none, others can write to it, or no record
 * fits; ERR_SYS NOMEM. */
int kv_store_open(const struct kv_store_config *c, struct kv_store **out, struct err *e);

/* What was put is written, unless that takes longer than some seconds. Accepts NULL. */
void kv_store_close(struct kv_store *s);

/* Names: of what stands before the first page; of a page of tokens ids[SCHEDULE_KV_PAGE] behind another. */
struct hash128 kv_store_root(const struct kv_store_key *k);
struct hash128 kv_store_next(struct hash128 before, const int32_t *ids);

/* The payload of a record, of so many bytes: of the page or state with that name of a page and tokens ids[n]. NULL: it is not there. Until
 * the next call. */
const void *kv_store_get(struct kv_store *s, enum kv_store_kind kind, struct hash128 page, const int32_t *ids, int n, size_t bytes);

/* Where the n tokens of a record go, and its payload behind them; NULL: the one before is still being written. Then it is put. */
int32_t *kv_store_room(struct kv_store *s);
static inline void *kv_store_payload(int32_t *ids, int n)
{
    return ids + n;
}
void kv_store_put(struct kv_store *s, enum kv_store_kind kind, struct hash128 page, int n, size_t bytes);

/* A page, or the state at its end, is used. */
void kv_store_touch(struct kv_store *s, struct hash128 page, int n);
void kv_store_touch_state(struct kv_store *s, struct hash128 page, int n);

struct kv_store_stats kv_store_stats(struct kv_store *s);

/* The payload of a file's bytes, or NULL: they are no such record. */
struct kv_store_want {
    enum kv_store_kind kind;
    struct kv_store_key key;
    const int32_t *ids;
    int n;
    size_t bytes;
};
const void *kv_store_parse(const struct kv_store_want *w, const void *file, size_t len);

#endif
