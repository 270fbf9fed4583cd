#include "runtime/follow.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/pool.h"
#include "common/base/progress.h"
#include "common/base/size.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS   100  /* how often the signal's count is looked at */
#define LOOKS     5    /* of these between two looks at the pressure */
#define TEXT_MOST 256
#define STEPS     4
#define MUCH      0.1
#define LITTLE    0.01
#define WAIT_S    10.0
#define WAIT_MOST 640.0

static atomic_uint n_asked; /* SIGUSR1, of the process */

struct follow {
    struct follow_config c;
    unsigned seen;
    uint64_t total_us;          /* of waiting */
    int64_t at_ns;              /* when that was read */
    struct follow_rule rule;
    int pipe[2], started, warned;
    pthread_t thread;
};

/* ---- the rule ---- */

void follow_rule_init(struct follow_rule *r, uint64_t least, uint64_t most)
{
    *r = (struct follow_rule){ .least = least, .most = most, .wait_s = WAIT_S, .since_up_s = WAIT_MOST };
}

uint64_t follow_rule_step(struct follow_rule *r, uint64_t now, double seconds, double share)
{
    uint64_t step = (r->most - r->least + STEPS - 1) / STEPS;
    r->since_up_s += seconds;
    r->quiet_s = share < LITTLE ? r->quiet_s + seconds : 0;
    if (share >= MUCH && now > r->least) {
        if (r->since_up_s < r->wait_s)
            r->wait_s = 2 * r->wait_s < WAIT_MOST ? 2 * r->wait_s : WAIT_MOST;
        return now - r->least > step ? now - step : r->least;
    }
    if (r->quiet_s < r->wait_s || now >= r->most)
        return now;
    if (r->since_up_s >= 2 * r->wait_s)
        r->wait_s = WAIT_S;
    r->quiet_s = r->since_up_s = 0;
    return r->most - now > step ? now + step : r->most;
}

/* ---- files ---- */

static void count_asked(int signal)
{
    (void)signal;
    atomic_fetch_add(&n_asked, 1);
}

/* Of a short text, what stands before white space at its end. */
static int read_text(const char *path, char *text, struct err *e)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return err_sys(e, ERR_INPUT, "'%s'", path);
    size_t n = fread(text, 1, TEXT_MOST, f);
    int bad = ferror(f);
    fclose(f);
    if (bad)
        return err_set(e, ERR_INPUT, "'%s' cannot be read", path);
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    text[n < TEXT_MOST ? n : TEXT_MOST - 1] = 0;
    return 0;
}

static int read_pressure(const struct follow *f, uint64_t *total, struct err *e)
{
    char text[TEXT_MOST];
    int r = read_text(f->c.pressure, text, e);
    unsigned long long v = 0;
    const char *at = r < 0 ? NULL : strstr(text, "total=");
    if (r == 0 && (strncmp(text, "some ", 5) || !at || sscanf(at, "total=%llu", &v) != 1))
        return err_set(e, ERR_FORMAT, "'%s' is no file of pressure, as /proc/pressure/memory or a control group's memory.pressure",
                       f->c.pressure);
    *total = v;
    return r;
}

/* ---- the thread ---- */

static void change(struct follow *f, uint64_t to, const char *why)
{
    struct err e = { 0 };
    char text[24];
    if (f->c.resize(f->c.ctx, to, &e) < 0)
        log_warn("%s: %s", why, e.msg);
    else
        log_info("%s: the memory limit is %s", why, size_exact(to, text, sizeof text));
}

static void reread(struct follow *f)
{
    struct err e = { 0 };
    char text[TEXT_MOST];
    uint64_t bytes = 0;
    int r = read_text(f->c.file, text, &e);
    r = r < 0 ? r : size_parse(text, &bytes, &e);
    if (r < 0)
        log_warn("SIGUSR1: '%s': %s", f->c.file, e.msg);
    else
        change(f, bytes, "SIGUSR1");
}

static void look_at_pressure(struct follow *f)
{
    struct err e = { 0 };
    uint64_t total;
    int64_t at = progress_now_ns();
    if (read_pressure(f, &total, &e) < 0) {
        if (!f->warned++)
            log_warn("--follow-pressure: %s", e.msg);
        return;
    }
    double seconds = (double)(at - f->at_ns) / 1e9, waited = total > f->total_us ? (double)(total - f->total_us) / 1e6 : 0;
    uint64_t now = f->c.now(f->c.ctx), to = follow_rule_step(&f->rule, now, seconds, waited / (seconds + 1e-9));
    f->total_us = total;
    f->at_ns = at;
    if (to != now)
        change(f, to, to < now ? "programs wait for memory" : "no program waits for memory");
}

static void *follow(void *ctx)
{
    struct follow *f = ctx;
    struct pollfd p = { .fd = f->pipe[0], .events = POLLIN };
    for (int i = 1; poll(&p, 1, LOOK_MS) <= 0; i++) {
        unsigned asked = atomic_load(&n_asked);
        if (f->c.file && asked != f->seen) {
            f->seen = asked;
            reread(f);
        }
        if (f->c.pressure && i % LOOKS == 0)
            look_at_pressure(f);
    }
    return NULL;
}

int follow_new(const struct follow_config *c, struct follow **out, struct err *e)
{
    struct sigaction s = { .sa_handler = count_asked, .sa_flags = SA_RESTART };
    struct follow *f = calloc(1, sizeof *f);
    int r = f ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (r < 0)
        return r;
    *f = (struct follow){ .c = *c, .seen = atomic_load(&n_asked), .pipe = { -1, -1 } };
    if (c->pressure)
        r = read_pressure(f, &f->total_us, e);
    sigemptyset(&s.sa_mask);
    if (r == 0 && c->file && sigaction(SIGUSR1, &s, NULL) < 0)
        r = err_sys(e, ERR_SYS, "SIGUSR1");
    if (r < 0)
        follow_free(f);
    else
        *out = f;
    return r;
}

int follow_start(struct follow *f, uint64_t most, struct err *e)
{
    pthread_attr_t small;
    follow_rule_init(&f->rule, f->c.least, most);
    if (pipe(f->pipe) < 0) {
        f->pipe[0] = f->pipe[1] = -1;
        return err_sys(e, ERR_SYS, "a pipe");
    }
    f->at_ns = progress_now_ns();
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, POOL_STACK_BYTES);
    f->started = pthread_create(&f->thread, &small, follow, f) == 0;
    pthread_attr_destroy(&small);
    return f->started ? 0 : err_set(e, ERR_SYS, "a thread cannot be started");
}

void follow_free(struct follow *f)
{
    if (!f)
        return;
    if (f->started) {
        close(f->pipe[1]);
        pthread_join(f->thread, NULL);
    }
    for (int i = 0; i < 2; i++)
        if (f->pipe[i] >= 0 && (i == 0 || !f->started))
            close(f->pipe[i]);
    free(f);
}
