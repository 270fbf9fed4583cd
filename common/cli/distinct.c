/* Each name becomes an identity when it is added: device and inode of a regular file, or of the folder that a new file
 * would come into, with its name. The comparison is of every pair; a command line has few. */
#include "common/cli/distinct.h"

#include "common/base/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SHARDS = 512 };  /* as common/model/gguf.h */

struct distinct_file {
    char *label, *path;     /* owned */
    char *in_place;         /* owned; NULL or as in struct distinct_name */
    char *part;             /* owned; NULL: the path itself, else the file that comes with it */
    char *name;             /* owned; NULL: the file is there; else its name in the folder dev, ino */
    int descriptor;         /* 1: it is written through a descriptor that is open already */
    dev_t dev;
    ino_t ino;
    enum distinct_use use;
    int group;
};

/* ---- identity ---- */

/* The folder of path, and the name in it. 0 where path ends in a slash or is too long. */
static int split(const char *path, char dir[PATH_MAX], const char **name)
{
    const char *slash = strrchr(path, '/');
    size_t len = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    *name = slash ? slash + 1 : path;
    if (len >= PATH_MAX || !**name)
        return 0;
    memcpy(dir, slash ? path : ".", slash ? len : 1);
    dir[slash ? len : 1] = '\0';
    return 1;
}

/* 1 with the identity; 0 for what is not compared; ERR_NOMEM. */
static int identify(const char *path, struct distinct_file *f, struct err *e)
{
    struct stat st;
    char dir[PATH_MAX];
    const char *name;
    f->descriptor = f->use == DISTINCT_WRITTEN && file_descriptor_of(path) >= 0;
    if (stat(path, &st) == 0) {
        f->dev = st.st_dev;
        f->ino = st.st_ino;
        return S_ISREG(st.st_mode);
    }
    if (errno != ENOENT || !split(path, dir, &name) || stat(dir, &st) < 0)
        return 0; /* whoever opens it says why it cannot */
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->name = strdup(name);
    return f->name ? 1 : err_set(e, ERR_NOMEM, "out of memory comparing file names");
}

static int same(const struct distinct_file *a, const struct distinct_file *b)
{
    return a->dev == b->dev && a->ino == b->ino && !a->name == !b->name && (!a->name || !strcmp(a->name, b->name));
}

/* ---- adding ---- */

static void forget(struct distinct_file *f)
{
    free(f->label);
    free(f->in_place);
    free(f->path);
    free(f->part);
    free(f->name);
}

/* Takes f's identity over; part: the file that is meant where it is not n->path. */
static int keep(struct distinct *d, const struct distinct_name *n, const char *part, struct distinct_file f, struct err *e)
{
    struct distinct_file *grown = realloc(d->files, (size_t)(d->n + 1) * sizeof *grown);
    d->files = grown ? grown : d->files;
    f.label = strdup(n->label);
    f.in_place = n->in_place ? strdup(n->in_place) : NULL;
    f.path = strdup(n->path);
    f.part = part ? strdup(part) : NULL;
    f.group = n->group;
    if (!grown || !f.label || !f.path || (part && !f.part) || (n->in_place && !f.in_place)) {
        forget(&f);
        return err_set(e, ERR_NOMEM, "out of memory comparing file names");
    }
    d->files[d->n++] = f;
    return 0;
}

static int add(struct distinct *d, const struct distinct_name *n, const char *part, enum distinct_use use, struct err *e)
{
    struct distinct_file f = { .use = use };
    if (use == DISTINCT_WRITTEN && !*n->path)
        return err_set(e, ERR_USAGE, "%s is empty: the name of the file to write is needed", n->label);
    int r = identify(part ? part : n->path, &f, e);
    return r > 0 ? keep(d, n, part, f, e) : r;
}

/* ".../model-00002-of-00003.gguf": the number of shards, and the length of what precedes "-00002-of-"; else 0. */
static int shards(const char *path, int *stem)
{
    char again[32];
    size_t len = strlen(path), n = strlen("-00002-of-00003.gguf");
    if (len < n || len >= PATH_MAX)
        return 0;
    int i = atoi(path + len - n + 1), of = atoi(path + len - n + 10);
    snprintf(again, sizeof again, "-%05d-of-%05d.gguf", i, of);
    *stem = (int)(len - n);
    return strcmp(again, path + *stem) || of > MAX_SHARDS ? 0 : of;
}

int distinct_add(struct distinct *d, const struct distinct_name *n, enum distinct_use use, struct err *e)
{
    int stem = 0, of = use == DISTINCT_READ ? shards(n->path, &stem) : 0, r = add(d, n, NULL, use, e);
    char part[PATH_MAX + 32];
    for (int i = 1; i <= of && r == 0; i++) {
        snprintf(part, sizeof part, "%.*s-%05d-of-%05d.gguf", stem, n->path, i, of);
        if (strcmp(part, n->path))
            r = add(d, n, part, use, e);
    }
    return r;
}

int distinct_add_beside(struct distinct *d, const struct distinct_name *n, const char *suffix, enum distinct_use use,
                        struct err *e)
{
    char part[PATH_MAX + 32];
    int len = snprintf(part, sizeof part, "%s%s", n->path, suffix);
    return len < 0 || (size_t)len >= sizeof part ? 0 : add(d, n, part, use, e);
}

/* SQLite names the companions after the file that a symbolic link leads to. */
int distinct_add_database(struct distinct *d, const struct distinct_name *n, enum distinct_use use, struct err *e)
{
    static const char *const suffixes[] = { "-journal", "-wal", "-shm" };
    char *real = realpath(n->path, NULL);
    const struct distinct_name there = { n->label, real ? real : n->path, n->group, n->in_place };
    int r = add(d, n, NULL, use, e);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && r == 0; i++)
        r = distinct_add_beside(d, &there, suffixes[i], use, e);
    free(real);
    return r;
}

int distinct_add_stdout(struct distinct *d, int group, struct err *e)
{
    struct stat st;
    if (fstat(STDOUT_FILENO, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    const struct distinct_name n = { "standard output", "", group, NULL };
    const struct distinct_file f = { .dev = st.st_dev, .ino = st.st_ino, .use = DISTINCT_WRITTEN, .descriptor = 1 };
    return keep(d, &n, NULL, f, e);
}

/* ---- comparing ---- */

static void describe(const struct distinct_file *f, char *out, size_t len)
{
    if (!*f->path)
        snprintf(out, len, "%s", f->label);
    else if (f->part)
        snprintf(out, len, "'%s', which comes with %s '%s',", f->part, f->label, f->path);
    else
        snprintf(out, len, "%s '%s'", f->label, f->path);
}

int distinct_check(const struct distinct *d, struct err *e)
{
    for (int i = 0; i < d->n; i++)
        for (int k = i + 1; k < d->n; k++) {
            const struct distinct_file *a = &d->files[i], *b = &d->files[k];
            if (a->group == b->group || (a->use == DISTINCT_READ && b->use == DISTINCT_READ) || (a->descriptor && b->descriptor) ||
                !same(a, b))
                continue;
            const struct distinct_file *w = b->use == DISTINCT_WRITTEN ? b : a, *o = w == a ? b : a;
            char wt[200], ot[200];
            describe(w, wt, sizeof wt);
            describe(o, ot, sizeof ot);
            int left_out = w->in_place && !strcmp(w->in_place, o->label);
            return err_set(e, ERR_USAGE, "%s and %s are the same file, which would be %s; nothing was touched: give what is "
                           "written a name of its own%s%s%s", wt, ot, o->use == DISTINCT_READ ? "overwritten" : "written twice",
                           left_out ? ", or leave " : "", left_out ? w->label : "", left_out ? " out to change the file in place" : "");
        }
    return 0;
}

int distinct_keep(const struct distinct *d, struct err *e)
{
    int r = 0;
    for (int i = 0; i < d->n && r == 0; i++) {
        const struct distinct_file *f = &d->files[i];
        const struct stat st = { .st_dev = f->dev, .st_ino = f->ino };
        char label[200];
        describe(f, label, sizeof label);
        if (f->use == DISTINCT_READ && !f->name)
            r = file_keep(&st, label, e);
    }
    return r;
}

void distinct_done(struct distinct *d)
{
    for (int i = 0; i < d->n; i++)
        forget(&d->files[i]);
    free(d->files);
    *d = (struct distinct){ 0 };
}
