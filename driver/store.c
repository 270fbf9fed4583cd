/* Records are small, and written by a rename behind a result that is whole; so a moment at which all stops leaves a result without a
 * record, which is made again, and never a record without its result. */
#include "driver/store.h"

#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/model/gguf.h"
#include "common/model/gguf_consumed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_RECORD (1u << 20)

int store_root(const char *asked, char out[DRIVE_PATH], struct err *e)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (asked)
        return drive_path(out, e, "%s", asked);
    if (xdg && *xdg == '/')
        return drive_path(out, e, "%s/thermocline", xdg);
    if (home && *home == '/')
        return drive_path(out, e, "%s/.cache/thermocline", home);
    return err_set(e, ERR_USAGE, "neither XDG_CACHE_HOME nor HOME is set: name a folder with --cache DIR");
}

int store_mkdir(const char *path, struct err *e)
{
    char at[DRIVE_PATH];
    int r = drive_path(at, e, "%s", path);
    for (char *p = at + 1; r == 0; p++) {
        char c = *p;
        if (c && c != '/')
            continue;
        *p = '\0';
        if (mkdir(at, 0777) < 0 && errno != EEXIST && errno != EISDIR)
            r = err_sys(e, ERR_SYS, "cannot make the folder '%s'", at);
        if (!(*p = c))
            break;
    }
    return r;
}

/* ---- the model ---- */

/* Of header and sizes, and of a few bytes of some tensors: files of one header and other weights differ there. */
static int quick(const struct gguf *g, struct hash128 *out, struct err *e)
{
    enum { LOOKS = 64, BYTES = 4096 };
    struct hash *h = hash_new();
    uint8_t bytes[BYTES];
    int r = h ? 0 : err_set(e, ERR_NOMEM, "a hash");
    if (r < 0)
        return r;
    hash_update_u64(h, g->kv_len);
    hash_update(h, g->kv_data, g->kv_len);
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        hash_update_str(h, t->name);
        hash_update_u32(h, t->type);
        for (int k = 0; k < 4; k++)
            hash_update_u64(h, t->dims[k]);
    }
    uint64_t step = g->n_tensors / LOOKS + 1;
    for (uint64_t i = 0; i < g->n_tensors && r == 0; i += step) {
        size_t n = g->tensors[i].bytes < BYTES ? (size_t)g->tensors[i].bytes : BYTES;
        if ((r = gguf_read_ahead(g, &g->tensors[i], bytes, n, e)) == 0)
            hash_update(h, bytes, n);
    }
    *out = hash_final128(h);
    hash_free(h);
    return r;
}

static void name_of(const char *path, char out[DRIVE_NAME])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    if (n > 5 && !strcmp(base + n - 5, ".gguf"))
        n -= 5;
    n = n < 120 ? n : 120;
    while (n > 0 && n < strlen(base) && ((unsigned char)base[n] & 0xc0) == 0x80) /* whole characters */
        n--;
    snprintf(out, DRIVE_NAME, "%.*s", (int)n, base);
    if (out[0] == '.' || !out[0])
        memcpy(out, "model", 6);
}

/* May they be consumed? Asked before anything is done. */
static int may_consume(const struct drive *d, struct err *e)
{
    int r = 0, fd;
    for (int i = 0; i < d->shards.n && r == 0; i++)
        if ((r = gguf_consumed_open(d->shards.w[i], &fd, e)) == 0)
            close(fd);
    return r;
}

int store_model(struct drive *d, struct err *e)
{
    struct gguf *g;
    int r = gguf_open_consumed(d->model, d->consumed, &g, e);
    if (r < 0)
        return r;
    name_of(d->model, d->name);
    for (int i = 0; i < g->n_shards; i++) {
        d->model_bytes += g->shards[i].size;
        words_add(&d->shards, g->shards[i].path);
    }
    d->has_template = gguf_find(g, "tokenizer.chat_template") != NULL;
    if (d->shards.starved || !(d->stats = store_stats(d->shards.w, d->shards.n, e)))
        r = d->shards.starved ? err_set(e, ERR_NOMEM, "names of files") : e->code;
    else if (!*d->consumed) /* else its folder says */
        r = quick(g, &d->quick, e);
    gguf_close(g);
    return r == 0 && d->consume ? may_consume(d, e) : r;
}

char *store_stats(char *const *paths, int n, struct err *e)
{
    size_t room = (size_t)n * 160 + 1, at = 0;
    char *out = malloc(room);
    if (!out) {
        err_set(e, ERR_NOMEM, "names of files");
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        struct stat s;
        if (stat(paths[i], &s) < 0) {
            err_sys(e, ERR_INPUT, "cannot read '%s'", paths[i]);
            free(out);
            return NULL;
        }
        at += (size_t)snprintf(out + at, room - at, "%s%llu:%llu:%llu:%lld.%09ld:%lld.%09ld", i ? ";" : "", (unsigned long long)s.st_dev,
                               (unsigned long long)s.st_ino, (unsigned long long)s.st_size, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                               (long long)s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
    }
    return out;
}

static int at_rest(char *const *paths, int n)
{
    for (int i = 0; i < n; i++) {
        struct stat s;
        if (stat(paths[i], &s) < 0 || s.st_ctim.tv_sec >= time(NULL) - 2)
            return 0;
    }
    return 1;
}

/* ---- records ---- */

static int record_path(const struct drive *d, const char *name, char out[DRIVE_PATH], struct err *e)
{
    return strchr(name, '/') ? drive_path(out, e, "%s", name) : drive_path(out, e, "%s/%s.json", d->state, name);
}

struct js *store_read(const struct drive *d, const char *name)
{
    struct err ignored = { 0 };
    char path[DRIVE_PATH], *text;
    size_t len;
    struct stat st;
    if (record_path(d, name, path, &ignored) < 0 || lstat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
        file_slurp(path, MOST_RECORD, &text, &len, &ignored) < 0)
        return NULL;
    struct js *j = js_parse(text, len, path, &ignored);
    free(text);
    return j;
}

/* What has that name is replaced; a link of that name is not followed. */
int store_write(const struct drive *d, const char *name, const struct js *record, struct err *e)
{
    char path[DRIVE_PATH];
    struct stat st;
    int r = record_path(d, name, path, e);
    if (r < 0)
        return r;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        unlink(path);
    char *text = js_text(record, 2, 0);
    r = text ? file_replace(path, text, strlen(text), e) : err_set(e, ERR_NOMEM, "a record");
    free(text);
    return r;
}

void store_forget(const struct drive *d, const char *name)
{
    struct err ignored = { 0 };
    char path[DRIVE_PATH];
    if (record_path(d, name, path, &ignored) == 0)
        unlink(path);
}

const char *store_field(const struct js *record, const char *key)
{
    const char *s = record ? js_str(js_get(record, key)) : NULL;
    return s ? s : "";
}

char *store_differs(const struct js *record, const struct js *key, char *out, size_t cap)
{
    size_t n = 0;
    const char *name;
    if (!record) {
        snprintf(out, cap, "it was not made yet");
        return out;
    }
    out[0] = '\0';
    for (size_t i = 0; (name = js_key(key, i)) && n < cap; i++) {
        const char *old = js_str(js_get(record, name)), *now = store_field(key, name);
        if (old && !strcmp(old, now))
            continue;
        if (old && !strncmp(name, "--", 2))
            n += (size_t)snprintf(out + n, cap - n, "%s%s (was %s)", n ? ", " : "", name, *old ? old : "not given");
        else
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", name);
    }
    if (n && n < cap)
        snprintf(out + n, cap - n, " changed");
    return out;
}

/* ---- the folder ---- */

static int take_lock(struct drive *d, struct err *e)
{
    char path[DRIVE_PATH];
    struct stat st;
    int r = drive_path(path, e, "%s/lock", d->state);
    if (r < 0)
        return r;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        unlink(path);
    if ((d->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666)) < 0) /* inherited: who works here holds it */
        return err_sys(e, ERR_SYS, "cannot write in '%s'; name another folder with %s", d->dir, d->out ? "--out" : "--cache");
    if (flock(d->lock, LOCK_EX | LOCK_NB) < 0) {
        log_warn("another one works in '%s'; waiting until it has ended", d->dir);
        while (flock(d->lock, LOCK_EX) < 0)
            if (errno != EINTR || file_interrupted())
                return file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : err_sys(e, ERR_SYS, "cannot lock '%s'", path);
    }
    if (lstat(path, &st) < 0) { /* it was removed meanwhile, with its folder */
        close(d->lock);
        return (r = store_mkdir(d->state, e)) < 0 ? r : take_lock(d, e);
    }
    futimens(d->lock, NULL); /* when it was used */
    return 0;
}

/* Of programs that were killed. */
static void remove_leftovers(const char *dir)
{
    DIR *all = opendir(dir);
    struct dirent *f;
    while (all && (f = readdir(all)))
        if (strstr(f->d_name, ".tmp-") &&
            (!strncmp(f->d_name, "traces.h5", 9) || !strncmp(f->d_name, "model.thermo", 12) || strstr(f->d_name, ".json.tmp-")))
            unlinkat(dirfd(all), f->d_name, 0);
    if (all)
        closedir(all);
}

static int not_ours(struct drive *d, struct err *e)
{
    const char *const made[] = { d->traces, d->plan, d->pack };
    struct stat st;
    if (stat(d->state, &st) == 0)
        return 0;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (lstat(made[i], &st) == 0)
            return err_set(e, ERR_SYS, "'%s' was not made here and would be replaced: move it, or name another folder with --out", made[i]);
    return 0;
}

/* A model whose weights are in its pack: that lies in its folder. */
static int folder_of_pack(struct drive *d, struct err *e)
{
    char asked[PATH_MAX];
    const char *slash = strrchr(d->consumed, '/');
    if (!slash || strcmp(slash, "/model.thermo") != 0)
        return err_set(e, ERR_MISMATCH, "'%s' was consumed by pack '%s', which was not made here: 'thermo-run chat --model %s' answers "
                       "with it", d->model, d->consumed, d->consumed);
    int r = drive_path(d->dir, e, "%.*s", (int)(slash - d->consumed), d->consumed);
    if (r == 0 && d->out && (!realpath(d->out, asked) || strcmp(asked, d->dir)))
        return err_set(e, ERR_USAGE, "'%s' was consumed by pack '%s': --out must be '%s'", d->model, d->consumed, d->dir);
    if (r == 0 && d->fresh)
        return err_set(e, ERR_USAGE, "'%s' was consumed by pack '%s': nothing can be made again from it by --fresh", d->model, d->consumed);
    return r;
}

int store_paths(struct drive *d, struct err *e)
{
    char hex[HASH_TEXT];
    hash_text(d->quick, hex);
    int r = *d->consumed ? folder_of_pack(d, e) :
            d->out ? drive_path(d->dir, e, "%s", d->out) : drive_path(d->dir, e, "%s/models/%s-%.12s", d->root, d->name, hex);
    if (r == 0)
        r = drive_path(d->state, e, "%s/.thermocline", d->dir);
    if (r == 0)
        r = drive_path(d->traces, e, "%s/traces.h5", d->dir);
    return r == 0 ? drive_path(d->pack, e, "%s/model.thermo", d->dir) : r;
}

int store_open(struct drive *d, struct err *e)
{
    int r;
    if ((d->out && (r = not_ours(d, e)) < 0) || (r = store_mkdir(d->state, e)) < 0 || (r = take_lock(d, e)) < 0)
        return r;
    remove_leftovers(d->dir);
    remove_leftovers(d->state);
    return 0;
}

/* ---- what was seen ---- */

static int hash_whole(struct drive *d, char out[HASH_TEXT], struct err *e)
{
    struct gguf *g;
    struct hash128 h;
    int r = gguf_open(d->model, &g, e);
    if (r < 0)
        return r;
    drive_say(d, "   the file is another one than the last time: comparing its content");
    if ((r = gguf_hash(g, &h, NULL, NULL, NULL, e)) == 0)
        hash_text(h, out);
    gguf_close(g);
    return r;
}

int store_same_model(struct drive *d, struct err *e)
{
    char hex[HASH_TEXT];
    struct js *seen = store_read(d, "model");
    int r = 0;
    hash_text(d->quick, hex);
    d->model_id[0] = '\0';
    if (*d->consumed) {
        snprintf(d->model_id, sizeof d->model_id, "%s", store_field(seen, "hash"));
        hash_parse(store_field(seen, "quick"), &d->quick);
    } else if (seen && !strcmp(store_field(seen, "quick"), hex)) {
        if (!strcmp(store_field(seen, "stats"), d->stats)) {
            snprintf(d->model_id, sizeof d->model_id, "%s", store_field(seen, "hash"));
        } else if ((r = hash_whole(d, d->model_id, e)) == 0) {
            if (strcmp(d->model_id, store_field(seen, "hash")))
                d->model_id[0] = '\0';
            else
                r = store_keep_model(d, e);
        }
    }
    js_free(seen);
    return r < 0 ? r : d->model_id[0] != '\0';
}

int store_keep_model(struct drive *d, struct err *e)
{
    char hex[HASH_TEXT], absolute[PATH_MAX];
    struct js *j = js_object();
    hash_text(d->quick, hex);
    js_put(j, JS_STR("file", realpath(d->model, absolute) ? absolute : d->model), JS_STR("quick", hex), JS_STR("hash", d->model_id),
           JS_STR("stats", at_rest(d->shards.w, d->shards.n) ? d->stats : "too new to say"));
    int r = store_write(d, "model", j, e);
    js_free(j);
    return r;
}

int store_consume(const struct drive *d, struct err *e)
{
    char absolute[PATH_MAX];
    struct js *j = js_object();
    js_set_str(j, "file", realpath(d->model, absolute) ? absolute : d->model);
    int r = store_write(d, "consumed", j, e);
    js_free(j);
    return r;
}

int store_may_remove(const struct drive *d, struct err *e)
{
    struct js *j = store_read(d, "consumed");
    struct gguf *g = NULL;
    struct err ignored = { 0 };
    int r = 0;
    if (j && gguf_open(store_field(j, "file"), &g, &ignored) < 0)
        r = err_set(e, ERR_USAGE, "'%s' has the only weights of '%s', which its pack consumed: nothing of it was removed; remove the "
                    "folder by hand where they are not needed", d->dir, store_field(j, "file"));
    gguf_close(g);
    js_free(j);
    return r;
}

int store_content(struct drive *d, const char *name, char *path, char out[HASH_TEXT], struct err *e)
{
    char *one[] = { path }, *stats = store_stats(one, 1, e), *text;
    struct js *seen = store_read(d, name), *now;
    size_t len;
    int r = stats ? 0 : e->code;
    if (r == 0 && !strcmp(store_field(seen, "stats"), stats) && strlen(store_field(seen, "hash")) + 1 == HASH_TEXT) {
        memcpy(out, store_field(seen, "hash"), HASH_TEXT);
    } else if (r == 0 && (r = file_slurp(path, (uint64_t)4 << 30, &text, &len, e)) == 0) {
        hash_text(hash_128(text, len), out);
        free(text);
        now = js_object();
        js_put(now, JS_STR("stats", stats), JS_STR("hash", out));
        if (at_rest(one, 1))
            r = store_write(d, name, now, e);
        js_free(now);
    }
    js_free(seen);
    free(stats);
    return r;
}
