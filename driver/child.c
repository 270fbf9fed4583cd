/* A child has two pipes: one for all that it prints, one for how far it is (common/base/progress.h). It dies with us (PDEATHSIG), as
 * far as a signal can say so, and holds the lock of the folder that it works in until it has ended: its descriptor is inherited. */
#include "driver/child.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/print.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 100
#define MOST_OUTPUT ((size_t)64 << 20) /* of child_read */

void words_add(struct words *a, const char *word)
{
    if (a->n + 2 > a->room) {
        int room = a->room ? 2 * a->room : 32;
        char **w = realloc(a->w, (size_t)room * sizeof *w);
        if (!w) {
            a->starved = 1;
            return;
        }
        a->w = w, a->room = room;
    }
    if (!(a->w[a->n] = strdup(word)))
        a->starved = 1;
    else
        a->w[++a->n] = NULL;
}

void words_add2(struct words *a, const char *option, const char *value)
{
    if (!value)
        return;
    words_add(a, option);
    words_add(a, value);
}

void words_add_split(struct words *a, const char *text)
{
    for (const char *at = text; at && *(at += strspn(at, " \t\n"));) {
        char *word = strndup(at, strcspn(at, " \t\n"));
        at += strcspn(at, " \t\n");
        if (word)
            words_add(a, word);
        else
            a->starved = 1;
        free(word);
    }
}

void words_done(struct words *a)
{
    for (int i = 0; i < a->n; i++)
        free(a->w[i]);
    free(a->w);
    *a = (struct words){ 0 };
}

char *words_quoted_one(const char *word, char *out, size_t cap)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=,+%-";
    size_t n = 0;
    if (*word && !word[strspn(word, plain)]) {
        snprintf(out, cap, "%s", word);
        return out;
    }
    n += (size_t)snprintf(out, cap, "'");
    for (const char *p = word; *p && n < cap; p++)
        n += (size_t)(*p == '\'' ? snprintf(out + n, cap - n, "'\\''") : snprintf(out + n, cap - n, "%c", *p));
    if (n < cap)
        snprintf(out + n, cap - n, "'");
    return out;
}

char *words_quoted(const struct words *a, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < a->n && n + 2 < cap; i++) {
        n += (size_t)snprintf(out + n, cap - n, "%s", i ? " " : "");
        words_quoted_one(a->w[i], out + n, cap - n);
        n += strlen(out + n);
    }
    return out;
}

/* ---- starting ---- */

struct child {
    pid_t pid;
    int out, says, how_far; /* pipes to read from; says -1: with out */
};

static int start_failed(const struct words *a, struct err *e)
{
    return err_sys(e, ERR_SYS, "cannot start '%s'", a->n ? a->w[0] : "");
}

static void in_child(const struct words *a, pid_t parent, int out, int says, int how_far, const sigset_t *mask)
{
    static const int ours[] = { SIGINT, SIGTERM, SIGHUP };
    char text[16];
    int null = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        signal(ours[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(says, 2) < 0)
        _exit(1);
    snprintf(text, sizeof text, "%d", how_far);
    setenv(PROGRESS_FD, text, 1);
    fcntl(how_far, F_SETFD, 0);
    execvp(a->w[0], a->w);
    print_to(stderr, "thermocline: error: cannot start '%s': %s\n", a->w[0], strerror(errno));
    fflush(stderr);
    _exit(127);
}

static int start(const struct words *a, int apart, struct child *c, struct err *e)
{
    int p[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } }, r = 0;
    sigset_t all, mask;
    if (a->starved || !a->n)
        return err_set(e, ERR_NOMEM, "a command line");
    for (int i = 0; i < 3 && r == 0; i++)
        if ((i != 1 || apart) && pipe2(p[i], O_CLOEXEC) < 0)
            r = err_sys(e, ERR_SYS, "pipe");
    fflush(stdout);
    fflush(stderr);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask); /* none is lost between fork and exec */
    pid_t parent = getpid();
    if (r == 0 && (c->pid = fork()) == 0)
        in_child(a, parent, p[0][1], apart ? p[1][1] : p[0][1], p[2][1], &mask);
    if (r == 0 && c->pid < 0)
        r = start_failed(a, e);
    if (r == 0)
        setpgid(c->pid, c->pid);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    for (int i = 0; i < 3; i++) {
        if (p[i][1] >= 0)
            close(p[i][1]);
        if (r < 0 && p[i][0] >= 0)
            close(p[i][0]);
    }
    c->out = p[0][0], c->says = p[1][0], c->how_far = p[2][0];
    return r;
}

/* ---- listening ---- */

/* Lines from a pipe, one at a time; a longer one comes in pieces. */
struct lines {
    char text[4096];
    size_t n;
};

struct heard {
    struct bar *bar;
    struct lines how_far, said;
    char *tail;         /* the last lines that were said, where they were not shown */
    size_t n_tail;
    char *out;          /* child_read's */
    size_t n_out;
    int starved;
};

static void show(struct heard *h, const char *line)
{
    if (h->bar)
        bar_clear(h->bar);
    print_to(stderr, "%s\n", line);
}

static void said(struct heard *h, const char *line)
{
    enum { KEPT = 8192 };
    size_t n = strlen(line) + 1;
    if (log_get_level() > LOG_INFO || (log_get_level() == LOG_INFO && strstr(line, ": warning: "))) {
        show(h, line);
        return;
    }
    if (n > KEPT || (!h->tail && !(h->tail = malloc(KEPT))))
        return;
    while (h->n_tail + n > KEPT) {
        size_t first = strlen(h->tail) + 1;
        memmove(h->tail, h->tail + first, h->n_tail -= first);
    }
    memcpy(h->tail + h->n_tail, line, n);
    h->n_tail += n;
}

static void how_far(struct heard *h, const char *line)
{
    if (h->bar)
        bar_set(h->bar, line);
}

static void each_line(struct lines *l, const char *data, size_t n, struct heard *h, void (*line)(struct heard *h, const char *line))
{
    for (size_t i = 0; i < n; i++) {
        int end = data[i] == '\n';
        if (!end)
            l->text[l->n++] = data[i] ? data[i] : ' ';
        if (end || l->n + 1 == sizeof l->text) {
            l->text[l->n] = '\0';
            line(h, l->text);
            l->n = 0;
        }
    }
}

static void keep_output(struct heard *h, const char *data, size_t n)
{
    char *more = h->n_out + n < MOST_OUTPUT ? realloc(h->out, h->n_out + n + 1) : NULL;
    if (!more) {
        h->starved = 1;
        return;
    }
    memcpy(more + h->n_out, data, n);
    h->out = more;
    h->n_out += n;
    more[h->n_out] = '\0';
}

/* 0 at its end. */
static int hear(int *fd, struct heard *h, int which)
{
    char data[16384];
    ssize_t n = read(*fd, data, sizeof data);
    if (n < 0 && errno == EINTR)
        return 1;
    if (n <= 0) {
        close(*fd);
        *fd = -1;
        return 0;
    }
    if (which == 2)
        each_line(&h->how_far, data, (size_t)n, h, how_far);
    else if (which == 0)
        keep_output(h, data, (size_t)n);
    else
        each_line(&h->said, data, (size_t)n, h, said);
    return 1;
}

/* Until it has ended: its pipes may be held longer, by what it started. */
static int listen_to(struct child *c, struct heard *h, int apart, int *status)
{
    int stopped = 0, gone = 0, raw = 0;
    for (;;) {
        struct pollfd p[3] = { { c->out, POLLIN, 0 }, { c->says, POLLIN, 0 }, { c->how_far, POLLIN, 0 } };
        int n = poll(p, 3, gone ? 0 : LOOK_MS);
        if (file_interrupted() && !stopped) {
            kill(-c->pid, SIGINT); /* all of its group: a script's children, too */
            stopped = 1;
        }
        for (int i = 0; i < 3 && n > 0; i++)
            if (p[i].fd >= 0 && p[i].revents)
                hear(i == 0 ? &c->out : i == 1 ? &c->says : &c->how_far, h, i == 0 && !apart ? 1 : i);
        if (h->bar)
            bar_draw(h->bar);
        if (gone && n <= 0)
            break;
        if (!gone && waitpid(c->pid, &raw, WNOHANG) == c->pid)
            gone = 1;
    }
    *status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    int *fds[] = { &c->out, &c->says, &c->how_far };
    for (int i = 0; i < 3; i++)
        if (*fds[i] >= 0)
            close(*fds[i]);
    if (h->said.n) {
        h->said.text[h->said.n] = '\0';
        said(h, h->said.text);
    }
    return stopped;
}

int child_run(const struct words *a, struct bar *bar, int *status, struct err *e)
{
    struct heard h = { .bar = bar };
    struct child c;
    char line[4096];
    int r = start(a, 0, &c, e);
    if (r < 0)
        return r;
    log_debug("%s", words_quoted(a, line, sizeof line));
    int stopped = listen_to(&c, &h, 0, status);
    if (bar)
        bar_clear(bar);
    for (size_t at = 0; (*status || stopped) && at < h.n_tail; at += strlen(h.tail + at) + 1)
        show(&h, h.tail + at);
    free(h.tail);
    return stopped ? err_set(e, ERR_INTR, "interrupted") : 0;
}

int child_read(const struct words *a, char **out, size_t *len, char *says, size_t cap, int *status, struct err *e)
{
    struct heard h = { 0 };
    struct child c;
    enum log_level level = log_get_level();
    int r = start(a, 1, &c, e);
    if (r < 0)
        return r;
    log_set_level(LOG_ERROR); /* nothing is shown */
    int stopped = listen_to(&c, &h, 1, status);
    log_set_level(level);
    if (cap) {
        says[0] = '\0';
        if (h.n_tail)
            snprintf(says, cap, "%s", h.tail);
    }
    free(h.tail);
    if (!stopped && !h.starved && !h.out)
        h.out = calloc(1, 1);
    if (stopped || h.starved || !h.out) {
        free(h.out);
        return stopped ? err_set(e, ERR_INTR, "interrupted") : err_set(e, ERR_NOMEM, "what '%s' says", a->w[0]);
    }
    *out = h.out;
    *len = h.n_out;
    return 0;
}

int child_become(const struct words *a, struct err *e)
{
    if (a->starved)
        return err_set(e, ERR_NOMEM, "a command line");
    fflush(stdout);
    fflush(stderr);
    execvp(a->w[0], a->w);
    return start_failed(a, e);
}
