/* A folder of records: what is put is got again, by this store and by others; what is not believed is not got, and is removed where it is
 * ours; the bound holds, and the ends of beginnings go first. */
#include "runtime/engine/kv_store.h"

#include "common/base/log.h"
#include "common/plan/schedule.h"
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 4, CONTEXT = PAGES * SCHEDULE_KV_PAGE, BYTES = 1000 };

static char folder[64], path[256];
static int32_t ids[CONTEXT];
static struct err e;
static const struct kv_store_key key = { { 1, 2 }, { 3, 4 } };

static struct kv_store *opened_as(uint64_t most, struct kv_store_key k)
{
    struct kv_store *s = NULL;
    const struct kv_store_config c = { .dir = folder, .most = most, .key = k, .context = CONTEXT, .payload = BYTES };
    return kv_store_open(&c, &s, &e) < 0 ? NULL : s;
}

static struct kv_store *opened(void)
{
    return opened_as(1 << 20, key);
}

static struct hash128 name(const int32_t *of, int page)
{
    struct hash128 h = kv_store_root(&key);
    for (int i = 0; i <= page; i++)
        h = kv_store_next(h, of + i * SCHEDULE_KV_PAGE);
    return h;
}

static void put(struct kv_store *s, enum kv_store_kind kind, const int32_t *of, int page)
{
    int n = (page + 1) * SCHEDULE_KV_PAGE;
    int32_t *room;
    while (!(room = kv_store_room(s)))
        poll(NULL, 0, 1);
    memcpy(room, of, (size_t)n * sizeof *room);
    memset(kv_store_payload(room, n), page + 1, BYTES);
    kv_store_put(s, kind, name(of, page), n, BYTES);
    while (!kv_store_room(s))
        poll(NULL, 0, 1);
}

static int got(struct kv_store *s, enum kv_store_kind kind, const int32_t *of, int page)
{
    const uint8_t *p = kv_store_get(s, kind, name(of, page), of, (page + 1) * SCHEDULE_KV_PAGE, BYTES);
    for (int i = 0; p && i < BYTES; i++)
        if (p[i] != page + 1)
            return -1;
    return p != NULL;
}

static const char *path_of(int page)
{
    char hex[HASH_TEXT];
    hash_text(name(ids, page), hex);
    snprintf(path, sizeof path, "%s/%s.kv", folder, hex);
    return path;
}

static int write_file(const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    int right = f && fwrite(data, 1, len, f) == len;
    return f && !fclose(f) && right;
}

static uint64_t size_of_folder(int *files)
{
    uint64_t all = 0;
    DIR *d = opendir(folder);
    *files = 0;
    for (struct dirent *i; d && (i = readdir(d));) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%.100s", folder, i->d_name);
        if (strstr(i->d_name, ".kv") && stat(path, &st) == 0) {
            all += (uint64_t)st.st_size;
            ++*files;
        }
    }
    closedir(d);
    return all;
}

static void empty(void)
{
    DIR *d = opendir(folder);
    for (struct dirent *i; d && (i = readdir(d));) {
        snprintf(path, sizeof path, "%s/%.100s", folder, i->d_name);
        unlink(path);
    }
    closedir(d);
}

static void test_found(void)
{
    struct kv_store *s = opened(), *other = opened(), *foreign = opened_as(1 << 20, (struct kv_store_key){ { 1, 2 }, { 3, 5 } });
    int32_t changed[CONTEXT];
    CHECK(s && other && foreign);
    memcpy(changed, ids, sizeof changed);
    changed[3]++;
    for (int i = 0; i < PAGES; i++)
        CHECK(got(s, KV_STORE_PAGE, ids, i) == 0);
    for (int i = 0; i < PAGES; i++)
        put(s, KV_STORE_PAGE, ids, i);
    put(s, KV_STORE_STATE, ids, 2);
    for (int i = 0; i < PAGES; i++)
        CHECK(got(s, KV_STORE_PAGE, ids, i) == 1 && got(other, KV_STORE_PAGE, ids, i) == 1 && got(s, KV_STORE_PAGE, changed, i) == 0);
    CHECK(got(s, KV_STORE_STATE, ids, 2) == 1 && got(s, KV_STORE_STATE, ids, 1) == 0);
    /* Under the name of others: the tokens say that it is not. It is removed. */
    CHECK(!kv_store_get(s, KV_STORE_PAGE, name(ids, 2), changed, 3 * SCHEDULE_KV_PAGE, BYTES) && got(other, KV_STORE_PAGE, ids, 2) == 0);
    put(other, KV_STORE_PAGE, ids, 2);
    CHECK(!kv_store_get(foreign, KV_STORE_PAGE, name(ids, 2), ids, 3 * SCHEDULE_KV_PAGE, BYTES));
    kv_store_close(s);
    kv_store_close(foreign);
    s = opened();
    CHECK(s && got(s, KV_STORE_PAGE, ids, 0) == 1);
    kv_store_close(s);
    kv_store_close(other);
}

static void test_not_believed(void)
{
    struct kv_store *s = opened();
    size_t len = KV_STORE_HEADER + SCHEDULE_KV_PAGE * sizeof *ids + BYTES, believed = 0;
    uint8_t *right = malloc(len + 1), *data = malloc(len + 1);
    struct stat st;
    put(s, KV_STORE_PAGE, ids, 0);
    FILE *f = fopen(path_of(0), "rb");
    CHECK(right && data && f && fread(right, 1, len + 1, f) == len);
    if (f)
        fclose(f);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    for (size_t i = 0; i < len; i++) {
        memcpy(data, right, len);
        data[i] ^= (uint8_t)(1 << i % 8);
        path_of(0);
        believed += !write_file(data, len) || got(s, KV_STORE_PAGE, ids, 0) || access(path, F_OK) == 0;
    }
    for (size_t i = 0; i <= len + 1; i += i == len - 1 ? 2 : 1) {
        path_of(0);
        right[len] = 0;
        believed += !write_file(right, i) || got(s, KV_STORE_PAGE, ids, 0) || access(path, F_OK) == 0;
    }
    CHECK_MSG(believed == 0, "%zu flipped or cut files are believed, or are still there", believed);
    path_of(0);
    CHECK(write_file(right, len) && got(s, KV_STORE_PAGE, ids, 0) == 1);
    CHECK(chmod(path, 0620) == 0 && got(s, KV_STORE_PAGE, ids, 0) == 0 && chmod(path, 0600) == 0 && got(s, KV_STORE_PAGE, ids, 0) == 1);
    char beside[80];
    snprintf(beside, sizeof beside, "%s/beside", folder);
    CHECK(link(path, beside) == 0 && got(s, KV_STORE_PAGE, ids, 0) == 0 && unlink(path) == 0);
    CHECK(symlink(beside, path) == 0 && got(s, KV_STORE_PAGE, ids, 0) == 0 && unlink(path) == 0);
    CHECK(mkfifo(path, 0600) == 0 && got(s, KV_STORE_PAGE, ids, 0) == 0 && access(path, F_OK) == 0 && unlink(path) == 0);
    CHECK(mkdir(path, 0700) == 0 && got(s, KV_STORE_PAGE, ids, 0) == 0 && rmdir(path) == 0);
    CHECK(access(beside, F_OK) == 0);
    kv_store_close(s);
    free(right);
    free(data);
}

/* Times are in steps of 8 s: 1, all of it was in one. */
static int test_bound(void)
{
    time_t began = time(NULL) / 8;
    struct kv_store *s[2];
    int32_t texts[6][CONTEXT];
    int files;
    uint64_t most = 0;
    empty();
    for (int t = 0; t < 6; t++)
        for (int i = 0; i < CONTEXT; i++)
            texts[t][i] = t * 1000 + i;
    for (int i = 0; i < PAGES; i++)
        most += 2 * (KV_STORE_HEADER + (uint64_t)(i + 1) * SCHEDULE_KV_PAGE * sizeof *ids + BYTES);
    s[0] = opened_as(most, key);
    s[1] = opened_as(most, key);
    int within = s[0] && s[1];
    for (int t = 0; within && t < 6; t++)
        for (int i = 0; i < PAGES; i++) {
            put(s[(t + i) % 2], KV_STORE_PAGE, texts[t], i);
            within &= size_of_folder(&files) <= most;
        }
    CHECK(within && files > PAGES);
    int together = time(NULL) / 8 == began;
    for (int t = 0; together && within && t < 6; t++) /* each has its beginning, if anything */
        for (int i = 1; i < PAGES; i++)
            CHECK(!got(s[0], KV_STORE_PAGE, texts[t], i) || got(s[0], KV_STORE_PAGE, texts[t], i - 1));
    kv_store_close(s[0]);
    kv_store_close(s[1]);
    CHECK(!opened_as(1000, key) && e.code == ERR_USAGE);
    return together;
}

int main(void)
{
    log_set_level(LOG_ERROR);
    snprintf(folder, sizeof folder, "%s/thermo-kv-store-%ld", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (long)getpid());
    for (int i = 0; i < CONTEXT; i++)
        ids[i] = i * 7;
    test_found();
    test_not_believed();
    for (int i = 0; i < 5 && !test_bound(); i++)
        continue;
    CHECK(chmod(folder, 0770) == 0 && !opened() && e.code == ERR_USAGE && chmod(folder, 0700) == 0);
    empty();
    rmdir(folder);
    return test_done();
}
