/* list, show, remove, du: what the cache holds. A model's folder is one with records of ours in it; nothing else is shown or removed, and
 * no link is followed. */
#include "driver/cmd.h"

#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/size.h"
#include "common/cli/opt.h"
#include "driver/store.h"

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

struct entry {
    char name[NAME_MAX + 1], file[PATH_MAX], used[32];
    uint64_t bytes;
    int packed, n_plans;
};

struct cache {
    char root[DRIVE_PATH], models[DRIVE_PATH];
    struct entry *all;
    size_t n, room;
    uint64_t machine_bytes;
};

/* Of all files below a folder, as they lie on the disk. */
static uint64_t bytes_below(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *all = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *f;
    struct stat st;
    uint64_t bytes = 0;
    if (!all && fd >= 0)
        close(fd);
    while (all && (f = readdir(all))) {
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..") || fstatat(dirfd(all), f->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        bytes += S_ISDIR(st.st_mode) ? bytes_below(dirfd(all), f->d_name) : (uint64_t)st.st_blocks * 512;
    }
    if (all)
        closedir(all);
    return bytes;
}

static void in_entry(struct drive *d, const struct cache *c, const char *name)
{
    struct err ignored;
    if (drive_path(d->dir, &ignored, "%s/%s", c->models, name) < 0 || drive_path(d->state, &ignored, "%s/.thermocline", d->dir) < 0)
        d->dir[0] = d->state[0] = '\0';
}

static int is_plan(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && !strncmp(name, "plan", 4) && !strcmp(name + n - 5, ".json");
}

static int look(struct cache *c, const char *name, struct err *e)
{
    static struct drive d;
    struct stat st;
    struct tm when;
    in_entry(&d, c, name);
    if (!*d.state || lstat(d.state, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    if (c->n == c->room) {
        size_t room = c->room ? 2 * c->room : 16;
        struct entry *more = realloc(c->all, room * sizeof *more);
        if (!more)
            return err_set(e, ERR_NOMEM, "a list of models");
        c->all = more, c->room = room;
    }
    struct entry *x = &c->all[c->n++];
    *x = (struct entry){ .bytes = bytes_below(AT_FDCWD, d.dir) };
    snprintf(x->name, sizeof x->name, "%s", name);
    struct js *model = store_read(&d, "model"), *pack = store_read(&d, "pack");
    snprintf(x->file, sizeof x->file, "%s", store_field(model, "file"));
    x->packed = pack != NULL;
    js_free(model);
    js_free(pack);
    char lock[DRIVE_PATH + 8];
    snprintf(lock, sizeof lock, "%s/lock", d.state);
    if (lstat(lock, &st) == 0 && localtime_r(&st.st_mtime, &when))
        strftime(x->used, sizeof x->used, "%Y-%m-%d %H:%M", &when);
    DIR *all = opendir(d.dir);
    for (struct dirent *f; all && (f = readdir(all));)
        x->n_plans += is_plan(f->d_name);
    if (all)
        closedir(all);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int open_cache(const char *asked, struct cache *c, struct err *e)
{
    int r = store_root(asked, c->root, e);
    if (r < 0 || (r = drive_path(c->models, e, "%s/models", c->root)) < 0)
        return r;
    char machines[DRIVE_PATH + 16];
    snprintf(machines, sizeof machines, "%s/machines", c->root);
    c->machine_bytes = bytes_below(AT_FDCWD, machines);
    DIR *all = opendir(c->models);
    if (!all && errno != ENOENT)
        return err_sys(e, ERR_INPUT, "cannot read '%s'", c->models);
    for (struct dirent *f; all && r == 0 && (f = readdir(all));)
        if (f->d_name[0] != '.')
            r = look(c, f->d_name, e);
    if (all)
        closedir(all);
    if (c->n)
        qsort(c->all, c->n, sizeof *c->all, by_name);
    return r;
}

/* By its folder's name, the beginning of it that no other has, or its file. */
static int find(const struct cache *c, const char *name, const struct entry **out, struct err *e)
{
    char absolute[PATH_MAX];
    const char *file = realpath(name, absolute);
    int n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct entry *x = &c->all[i];
        if (!strcmp(x->name, name)) {
            *out = x;
            return 0;
        }
        if (!strncmp(x->name, name, strlen(name)) || (file && !strcmp(x->file, file)))
            *out = x, n++;
    }
    if (n == 1)
        return 0;
    return n ? err_set(e, ERR_USAGE, "'%s' may be any of %d models; 'thermocline list' has their names", name, n)
             : err_set(e, ERR_INPUT, "'%s' has nothing of a model '%s'; 'thermocline list' has names", c->root, name);
}

static struct js *describe(const struct entry *x)
{
    struct js *j = js_object();
    js_put(j, JS_STR("name", x->name), JS_STR("file", *x->file ? x->file : NULL), JS_U64("bytes", x->bytes),
           JS_BOOL("packed", x->packed), JS_INT("plans", x->n_plans), JS_STR("used", x->used));
    return j;
}

static int print_js(struct js *j, struct err *e)
{
    int r = js_print(stdout, j, 2, 0, e);
    js_free(j);
    return r;
}

/* ---- the commands ---- */

struct args {
    const char *cache;
    int json, all;
};

/* 1: --help was printed. */
static int parse(struct args *a, const char *command, const char *synopsis, const char *about, int argc, char **argv, int *n_pos,
                 struct err *e)
{
    const int removes = !strcmp(command, "thermocline remove");
    const struct opt opts[] = {
        { .name = "cache", .type = OPT_STRING, .dest = &a->cache, .arg = "DIR", .help = "The cache.",
          .def = "$XDG_CACHE_HOME/thermocline, or ~/.cache/thermocline" },
        removes ? (struct opt){ .name = "all", .type = OPT_FLAG, .dest = &a->all, .help = "All models, and what was measured of "
                                "machines." } :
                  (struct opt){ .name = "json", .type = OPT_FLAG, .dest = &a->json, .help = "As JSON." },
        { 0 },
    };
    const struct opt_usage usage = { .program = command, .synopsis = synopsis, .about = about };
    int r = opt_parse(opts, &usage, argc, argv, n_pos, e);
    if (r == 0 && *n_pos && !synopsis[0])
        r = err_set(e, ERR_USAGE, "unexpected argument '%s'", argv[1]);
    return r;
}

static int finish(struct cache *c, int r, const struct err *e)
{
    free(c->all);
    return r < 0 ? opt_fail(e) : 0;
}

int cmd_list(int argc, char **argv)
{
    struct args a = { 0 };
    struct cache c = { .n = 0 };
    struct err e = { 0 };
    char size[24];
    int n_pos, r = parse(&a, "thermocline list", "", "List the models of which the cache holds something.", argc, argv, &n_pos, &e);
    if (r > 0)
        return 0;
    if (r == 0)
        r = open_cache(a.cache, &c, &e);
    if (r == 0 && a.json) {
        struct js *j = js_object(), *models = js_array();
        for (size_t i = 0; i < c.n; i++)
            js_append(models, describe(&c.all[i]));
        js_put(j, JS_STR("cache", c.root), JS_VALUE("models", models));
        r = print_js(j, &e);
    }
    for (size_t i = 0; r == 0 && !a.json && i < c.n; i++) {
        const struct entry *x = &c.all[i];
        print("%-40s %10s  %s  used %s  %s\n", x->name, size_format(x->bytes, size, sizeof size), x->packed ? "ready" : "begun", x->used,
              x->file);
    }
    return finish(&c, r, &e);
}

int cmd_du(int argc, char **argv)
{
    struct args a = { 0 };
    struct cache c = { .n = 0 };
    struct err e = { 0 };
    char size[24];
    uint64_t all = 0;
    int n_pos, r = parse(&a, "thermocline du", "", "How much of the disk the cache takes.", argc, argv, &n_pos, &e);
    if (r > 0)
        return 0;
    if (r == 0)
        r = open_cache(a.cache, &c, &e);
    struct js *j = js_object(), *models = js_object();
    for (size_t i = 0; i < c.n; i++) {
        js_set_u64(models, c.all[i].name, c.all[i].bytes);
        all += c.all[i].bytes;
        if (r == 0 && !a.json)
            print("%10s  %s\n", size_format(c.all[i].bytes, size, sizeof size), c.all[i].name);
    }
    all += c.machine_bytes;
    js_put(j, JS_STR("cache", c.root), JS_VALUE("models", models), JS_U64("machines_bytes", c.machine_bytes), JS_U64("bytes", all));
    if (r == 0 && !a.json) {
        print("%10s  of machines\n", size_format(c.machine_bytes, size, sizeof size));
        print("%10s  all of '%s'\n", size_format(all, size, sizeof size), c.root);
    }
    if (r == 0 && a.json)
        r = print_js(j, &e);
    else
        js_free(j);
    return finish(&c, r, &e);
}

/* A plan's limits, in words and as JSON: bytes, tokens a second. */
static void show_plan(const struct drive *d, const char *name, struct js *out, int json)
{
    struct err ignored = { 0 };
    char path[DRIVE_PATH], memory[24];
    struct js *j = drive_path(path, &ignored, "%s/%s", d->dir, name) < 0 ? NULL : js_read(path, 1u << 30, (size_t)2 << 30, &ignored);
    const struct js *limits = js_get(js_get(j, "decisions"), "limits"), *said = js_get(js_get(j, "predictions"), "limits");
    struct js *plan = js_object(), *all = js_array();
    js_set_str(plan, "plan", name);
    if (!json)
        print("plan     %s%s\n", name, j ? "" : ": it cannot be read");
    for (size_t i = 0; i < js_len(limits); i++) {
        int64_t bytes = 0, context = 0;
        double speed = 0;
        struct js *l = js_object();
        js_int(js_get(js_at(limits, i), "memory_bytes"), &bytes);
        js_int(js_get(js_at(limits, i), "context"), &context);
        js_num(js_get(js_at(js_get(js_at(said, i), "batches"), 0), "tokens_per_s"), &speed);
        js_put(l, JS_INT("memory_bytes", bytes), JS_INT("context", context), JS_NUM("tokens_per_s", speed));
        js_append(all, l);
        if (!json)
            print("         %s, context %lld: %.3g tokens/s\n", size_format(bytes > 0 ? (uint64_t)bytes : 0, memory, sizeof memory),
                  (long long)context, speed);
    }
    js_set(plan, "limits", all);
    js_append(out, plan);
    js_free(j);
}

int cmd_show(int argc, char **argv)
{
    static struct drive d;
    struct args a = { 0 };
    struct cache c = { .n = 0 };
    struct err e = { 0 };
    const struct entry *x = NULL;
    char size[24];
    int n_pos, r = parse(&a, "thermocline show", "NAME", "What the cache holds of a model: by its name in 'thermocline list', the "
                         "beginning of that, or its file.", argc, argv, &n_pos, &e);
    if (r > 0)
        return 0;
    if (r == 0 && n_pos != 1)
        r = err_set(&e, ERR_USAGE, "one NAME is needed; 'thermocline list' has names");
    if (r == 0 && (r = open_cache(a.cache, &c, &e)) == 0)
        r = find(&c, argv[1], &x, &e);
    if (r == 0) {
        struct js *j = describe(x), *plans = js_array();
        in_entry(&d, &c, x->name);
        js_set_str(j, "folder", d.dir);
        if (!a.json)
            print("model    %s\nfile     %s\nfolder   %s\nbytes    %s\nused     %s\npack     %s\n", x->name,
                  *x->file ? x->file : "not seen whole yet", d.dir, size_format(x->bytes, size, sizeof size), x->used,
                  x->packed ? "model.thermo" : "not made yet");
        struct dirent **names = NULL;
        int n = scandir(d.dir, &names, NULL, alphasort);
        for (int i = 0; i < n; i++) {
            if (is_plan(names[i]->d_name))
                show_plan(&d, names[i]->d_name, plans, a.json);
            free(names[i]);
        }
        free(names);
        js_set(j, "plans", plans);
        if (a.json)
            r = print_js(j, &e);
        else
            js_free(j);
    }
    return finish(&c, r, &e);
}

/* A folder with what is in it; links go, and not what they lead to. */
static int remove_below(int at, const char *name, const char *path, struct err *e)
{
    int r = 0, fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *all = fd >= 0 ? fdopendir(fd) : NULL;
    if (!all) {
        r = errno == ENOENT ? 0 : err_sys(e, ERR_SYS, "cannot remove '%s'", path);
        if (fd >= 0)
            close(fd);
        return r;
    }
    for (struct dirent *f; r == 0 && (f = readdir(all));) {
        struct stat st;
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, ".."))
            continue;
        if (fstatat(dirfd(all), f->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            r = remove_below(dirfd(all), f->d_name, path, e);
        else if (unlinkat(dirfd(all), f->d_name, 0) < 0 && errno != ENOENT)
            r = err_sys(e, ERR_SYS, "cannot remove '%s' of '%s'", f->d_name, path);
    }
    closedir(all);
    if (r == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        r = err_sys(e, ERR_SYS, "cannot remove '%s'", path);
    return r;
}

/* Who works there keeps it. */
static int remove_entry(const struct cache *c, const struct entry *x, struct err *e)
{
    static struct drive d;
    char path[DRIVE_PATH], size[24];
    in_entry(&d, c, x->name);
    int r = store_may_remove(&d, e);
    if (r < 0 || (r = drive_path(path, e, "%s/lock", d.state)) < 0)
        return r;
    int lock = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0) {
        close(lock);
        return err_set(e, ERR_SYS, "'%s' is being worked on: nothing of it was removed", x->name);
    }
    r = remove_below(AT_FDCWD, d.dir, d.dir, e);
    if (lock >= 0)
        close(lock);
    if (r == 0)
        log_info("removed %s, %s", x->name, size_format(x->bytes, size, sizeof size));
    return r;
}

int cmd_remove(int argc, char **argv)
{
    struct args a = { 0 };
    struct cache c = { .n = 0 };
    struct err e = { 0 };
    char machines[DRIVE_PATH];
    const struct entry *x = NULL;
    int n_pos, r = parse(&a, "thermocline remove", "NAME...", "Remove what the cache holds of models; their files stay. A name is one of "
                         "'thermocline list', the beginning of one, or a file. What is being worked on stays.", argc, argv, &n_pos, &e);
    if (r > 0)
        return 0;
    if (r == 0 && !a.all == !n_pos)
        r = err_set(&e, ERR_USAGE, "names, or --all: what is to be removed? 'thermocline list' has names");
    if (r == 0)
        r = open_cache(a.cache, &c, &e);
    for (int i = 0; r == 0 && i < n_pos; i++) /* all of them are there, or none is removed */
        r = find(&c, argv[1 + i], &x, &e);
    for (int i = 0; r == 0 && i < n_pos; i++)
        r = find(&c, argv[1 + i], &x, &e) < 0 ? e.code : remove_entry(&c, x, &e);
    for (size_t i = 0; r == 0 && a.all && i < c.n; i++)
        r = remove_entry(&c, &c.all[i], &e);
    if (r == 0 && a.all && (r = drive_path(machines, &e, "%s/machines", c.root)) == 0)
        r = remove_below(AT_FDCWD, machines, machines, &e);
    return finish(&c, r, &e);
}
