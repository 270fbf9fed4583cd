/* One record is on its way at a time: the caller fills it, the store's thread adds the header with its checksums and writes it. What waits
 * meanwhile stays in the cache and is asked for again (kv_prefix_unstored), so there is no queue. After a failure, as of a full disk,
 * nothing is written for a while. */
#include "runtime/engine/kv_store.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/plan/schedule.h"

#include "runtime/engine/kv_folder.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REVISION 1
#define STACK_BYTES (64u << 10)
#define REST_NS  (10 * INT64_C(1000000000)) /* after a failure */
#define END_S    5                          /* for what is written at the end */

struct put {
    struct hash128 name;
    enum kv_store_kind kind;
    int n;
    size_t bytes;
};

struct kv_store {
    struct kv_store_config c;
    struct kv_folder folder;
    uint8_t *in, *out;        /* a record that is read; header, then tokens and payload of one that is written */
    size_t most;              /* bytes of a record */
    pthread_t thread;
    int started;
    struct put put;           /* the thread's, while it is busy */
    int warned;               /* the thread's */
    int64_t rests_until;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock, and so is c.wake */
    int busy, stop;
    struct kv_store_stats stats;
};

/* ---- the format ---- */

struct hash128 kv_store_root(const struct kv_store_key *k)
{
    uint8_t both[32];
    bytes_put64(both, k->pack.lo);
    bytes_put64(both + 8, k->pack.hi);
    bytes_put64(both + 16, k->how.lo);
    bytes_put64(both + 24, k->how.hi);
    return hash_128(both, sizeof both);
}

static struct hash128 behind(struct hash128 before, const void *data, size_t len)
{
    uint8_t all[16 + SCHEDULE_KV_PAGE * sizeof(int32_t)];
    bytes_put64(all, before.lo);
    bytes_put64(all + 8, before.hi);
    memcpy(all + 16, data, len);
    return hash_128(all, 16 + len);
}

struct hash128 kv_store_next(struct hash128 before, const int32_t *ids)
{
    return behind(before, ids, SCHEDULE_KV_PAGE * sizeof *ids);
}

static struct hash128 name_of(enum kv_store_kind kind, struct hash128 page)
{
    return kind == KV_STORE_PAGE ? page : behind(page, "state", 5);
}

static void put_header(uint8_t *h, const struct kv_store_want *w, uint64_t check)
{
    memset(h, 0, KV_STORE_HEADER);
    memcpy(h, "THRMKVPG", 8);
    bytes_put32(h + 8, REVISION);
    bytes_put32(h + 12, (uint32_t)w->kind);
    bytes_put64(h + 16, w->key.pack.lo);
    bytes_put64(h + 24, w->key.pack.hi);
    bytes_put64(h + 32, w->key.how.lo);
    bytes_put64(h + 40, w->key.how.hi);
    bytes_put32(h + 48, (uint32_t)w->n);
    bytes_put64(h + 56, w->bytes);
    bytes_put64(h + 64, check);
    bytes_put64(h + 72, hash_64(h, 72));
}

/* Bytes of a record, or 0: there is none so large. */
static size_t record_bytes(int n, size_t payload)
{
    size_t all = KV_STORE_HEADER;
    return n >= 0 && ck_add_size(all, (size_t)n * sizeof(int32_t), &all) && ck_add_size(all, payload, &all) ? all : 0;
}

/* The header is known beforehand, but for the checksum: so it is compared whole. */
const void *kv_store_parse(const struct kv_store_want *w, const void *file, size_t len)
{
    const uint8_t *p = file;
    uint8_t head[KV_STORE_HEADER];
    size_t ids = (size_t)w->n * sizeof *w->ids;
    if (w->n < 1 || len < KV_STORE_HEADER || record_bytes(w->n, w->bytes) != len)
        return NULL;
    put_header(head, w, bytes_le64(p + 64));
    if (memcmp(head, p, sizeof head) || memcmp(p + sizeof head, w->ids, ids) ||
        hash_64(p + sizeof head, len - sizeof head) != bytes_le64(p + 64))
        return NULL;
    return p + sizeof head + ids;
}

/* ---- the thread ---- */

static int rests(struct kv_store *s)
{
    return s->rests_until && progress_now_ns() < s->rests_until;
}

/* 1: it is there now. */
static int write_put(struct kv_store *s)
{
    const struct put *p = &s->put;
    const struct kv_store_want w = { .kind = p->kind, .key = s->c.key, .n = p->n, .bytes = p->bytes };
    size_t len = record_bytes(p->n, p->bytes) - KV_STORE_HEADER;
    struct err e;
    if (rests(s))
        return 0;
    put_header(s->out, &w, hash_64(s->out + KV_STORE_HEADER, len));
    const struct kv_folder_piece pieces[2] = { { s->out, KV_STORE_HEADER }, { s->out + KV_STORE_HEADER, len } };
    int r = kv_folder_write(&s->folder, name_of(p->kind, p->name), p->n, pieces, &e);
    if (r >= 0)
        return 1;
    if (r != ERR_SYS)
        return 0;
    if (!s->warned)
        log_warn("--prefix-cache: %s; what is not written will be read again", e.msg);
    s->warned = 1;
    s->rests_until = progress_now_ns() + REST_NS;
    return 0;
}

static void *work(void *ctx)
{
    struct kv_store *s = ctx;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->stop)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->busy)
            break;
        pthread_mutex_unlock(&s->lock);
        int there = write_put(s);
        pthread_mutex_lock(&s->lock);
        s->stats.written += (uint64_t)there;
        s->stats.dropped += (uint64_t)!there;
        s->stats.bytes = s->folder.all;
        s->busy = 0;
        pthread_cond_broadcast(&s->changed);
        if (s->c.wake)
            s->c.wake(s->c.wake_ctx);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the caller ---- */

uint64_t kv_store_bytes(size_t payload, int context)
{
    return 2 * ((uint64_t)payload + (uint64_t)context * sizeof(int32_t) + KV_STORE_HEADER) + STACK_BYTES + sizeof(struct kv_store);
}

static int start(struct kv_store *s, struct err *e)
{
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    errno = pthread_create(&s->thread, &attr, work, s);
    s->started = errno == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return s->started ? 0 : err_sys(e, ERR_SYS, "a thread that writes '%s'", s->c.dir);
}

int kv_store_open(const struct kv_store_config *c, struct kv_store **out, struct err *e)
{
    struct kv_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "out of memory for '%s'", c->dir);
    s->c = *c;
    s->most = record_bytes(c->context, c->payload);
    s->folder.dir = s->folder.lock = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    int r = kv_folder_open(&s->folder, c->dir, c->most, e);
    if (r == 0 && s->most > c->most)
        r = err_set(e, ERR_USAGE, "--prefix-cache-size %llu: a page of this model takes up to %zu bytes", (unsigned long long)c->most,
                    s->most);
    if (r == 0 && (!(s->in = malloc(s->most)) || !(s->out = malloc(s->most))))
        r = err_set(e, ERR_NOMEM, "out of memory for '%s'", c->dir);
    if (r == 0)
        r = start(s, e);
    if (r < 0) {
        kv_store_close(s);
        return r;
    }
    *out = s;
    return 0;
}

void kv_store_close(struct kv_store *s)
{
    if (!s)
        return;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += END_S;
    pthread_mutex_lock(&s->lock);
    s->stop = 1;
    pthread_cond_broadcast(&s->changed);
    int late = 0;
    while (s->busy && s->started && !late)
        late = pthread_cond_timedwait(&s->changed, &s->lock, &end) == ETIMEDOUT;
    s->c.wake = NULL;
    pthread_mutex_unlock(&s->lock);
    if (late) /* a disk that does not answer: what the thread has is left to it */
        return;
    if (s->started)
        pthread_join(s->thread, NULL);
    kv_folder_close(&s->folder);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->in);
    free(s->out);
    free(s);
}

const void *kv_store_get(struct kv_store *s, enum kv_store_kind kind, struct hash128 page, const int32_t *ids, int n, size_t bytes)
{
    const struct kv_store_want w = { .kind = kind, .key = s->c.key, .ids = ids, .n = n, .bytes = bytes };
    size_t len = record_bytes(n, bytes);
    struct hash128 name = name_of(kind, page);
    if (!len || len > s->most || !kv_folder_read(&s->folder, name, s->in, len))
        return NULL;
    const void *payload = kv_store_parse(&w, s->in, len);
    if (!payload)
        kv_folder_remove(&s->folder, name);
    pthread_mutex_lock(&s->lock);
    s->stats.read += payload != NULL;
    s->stats.damaged += payload == NULL;
    pthread_mutex_unlock(&s->lock);
    return payload;
}

int32_t *kv_store_room(struct kv_store *s)
{
    pthread_mutex_lock(&s->lock);
    int busy = s->busy;
    pthread_mutex_unlock(&s->lock);
    return busy ? NULL : (int32_t *)(void *)(s->out + KV_STORE_HEADER);
}

void kv_store_put(struct kv_store *s, enum kv_store_kind kind, struct hash128 page, int n, size_t bytes)
{
    pthread_mutex_lock(&s->lock);
    s->put = (struct put){ page, kind, n, bytes };
    s->busy = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void kv_store_touch(struct kv_store *s, struct hash128 page, int n)
{
    kv_folder_touch(&s->folder, page, n);
}

void kv_store_touch_state(struct kv_store *s, struct hash128 page, int n)
{
    kv_folder_touch(&s->folder, name_of(KV_STORE_STATE, page), n);
}

struct kv_store_stats kv_store_stats(struct kv_store *s)
{
    pthread_mutex_lock(&s->lock);
    struct kv_store_stats now = s->stats;
    pthread_mutex_unlock(&s->lock);
    return now;
}
