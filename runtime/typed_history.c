#include "runtime/typed_history.h"

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILE (64u << 10)
#define MOST_LINE 1024
#define PATH      4096

/* Folders of a path are made where they are missing, for the user alone. */
static int make_folders(char *path)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        int r = mkdir(path, 0700);
        *at = '/';
        if (r < 0 && errno != EEXIST)
            return -1;
    }
    return 0;
}

static int place(char path[PATH])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = state && *state == '/' ? snprintf(path, PATH, "%s/thermocline/chat-history", state)
          : home && *home == '/' ? snprintf(path, PATH, "%s/.local/state/thermocline/chat-history", home) : -1;
    return n > 0 && n < PATH ? 0 : -1;
}

/* A regular file of this user's that no other name leads to, and that is no input; for him alone from here on. */
static int check(int fd, const char *path, struct stat *st, struct err *e)
{
    if (fstat(fd, st) < 0 || (st->st_mode & 077 && fchmod(fd, 0600) < 0))
        return err_sys(e, ERR_SYS, "'%s'", path);
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || st->st_nlink > 1)
        return err_set(e, ERR_USAGE, "'%s' is no file of this user's alone", path);
    return file_may_write(st, path, e);
}

static int open_at(const char *path, struct stat *st, struct err *e)
{
    for (int i = 0; i < 10; i++) {
        int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0)
            return err_sys(e, ERR_SYS, "cannot open '%s'", path);
        if (check(fd, path, st, e) < 0 || flock(fd, LOCK_SH) < 0) {
            close(fd);
            return e->code ? e->code : err_sys(e, ERR_SYS, "'%s'", path);
        }
        if (fstat(fd, st) == 0 && st->st_nlink == 1)
            return fd;
        close(fd); /* another run has put a shorter one in its place */
    }
    return err_set(e, ERR_SYS, "'%s' does not stay", path);
}

/* The last bytes of it, from the beginning of a line on; NULL: none. */
static char *tail(int fd, size_t size, size_t most, size_t *len)
{
    size_t n = size < most ? size : most, got = 0;
    char *text = malloc(n + 1);
    for (ssize_t k; text && got < n && (k = pread(fd, text + got, n - got, (off_t)(size - n + got))) > 0; got += (size_t)k)
        ;
    char *first = text && size > n ? memchr(text, '\n', got) : NULL;
    if (!text || (size > n && !first)) {
        free(text);
        return NULL;
    }
    if (first)
        memmove(text, first + 1, got -= (size_t)(first + 1 - text));
    text[got] = '\0';
    *len = got;
    return text;
}

/* A shorter file in its place, where no other run has it open. */
static void shorten(const char *path, int fd, const char *text, size_t len)
{
    struct err e = { 0 };
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && file_replace(path, text, len, &e) < 0)
        log_warn("%s", e.msg);
}

static void each(char *text, int most, void (*line)(void *ctx, const char *line), void *ctx)
{
    char *from = text + strlen(text);
    int n = 0;
    while (from > text && n <= most) { /* so many from the end */
        from--;
        n += *from == '\n';
    }
    from += n > most;
    for (char *l; (l = strsep(&from, "\n"));)
        if (*l && strlen(l) <= MOST_LINE && utf8_is_printable(l, strlen(l)))
            line(ctx, l);
}

void typed_history_open(struct typed_history *h, int most, void (*line)(void *ctx, const char *line), void *ctx)
{
    char path[PATH];
    struct err e = { 0 };
    struct stat st;
    size_t len = 0;
    h->fd = -1;
    if (place(path) < 0)
        return;
    h->fd = make_folders(path) < 0 ? err_sys(&e, ERR_SYS, "the folder of '%s'", path) : open_at(path, &st, &e);
    if (h->fd < 0) {
        log_warn("no history of what is typed is kept: %s; --no-history does without", e.msg);
        h->fd = -1;
        return;
    }
    char *text = tail(h->fd, (size_t)st.st_size, MOST_FILE / 2, &len);
    if (text && (size_t)st.st_size > MOST_FILE) {
        shorten(path, h->fd, text, len);
        close(h->fd);
        h->fd = open_at(path, &st, &e);
    }
    if (text)
        each(text, most, line, ctx);
    free(text);
}

void typed_history_add(struct typed_history *h, const char *line, size_t len)
{
    char text[MOST_LINE + 1];
    if (h->fd < 0 || len > MOST_LINE || !utf8_is_printable(line, len))
        return;
    memcpy(text, line, len);
    text[len] = '\n';
    if (write(h->fd, text, len + 1) != (ssize_t)(len + 1)) {
        log_warn("what is typed cannot be kept in the history any more: %s", strerror(errno));
        typed_history_close(h);
    }
}

void typed_history_close(struct typed_history *h)
{
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
}
