/* Blocking reads by a few lane threads, in the order submitted. One lock guards two rings: requests
 * waiting and requests finished; both have room for queue_depth, and no more are ever in flight, so
 * neither can overflow. Works everywhere, and is what unrooted phones get. */
#include "runtime/io/io.h"

#include "common/base/progress.h"
#include "common/plan/budget.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct ring {
    struct io_request **at;
    unsigned head, n;
};

struct io_pread {
    struct io io;
    /* constant after start */
    pthread_t threads[BUDGET_MAX_LANES];
    int n_threads;
    unsigned depth;
    int locks_ready;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct ring waiting, finished;
    int quit, reaper_sleeps, busy; /* busy: lanes in a read */
};

static void push(struct io_pread *p, struct ring *r, struct io_request *q)
{
    r->at[(r->head + r->n++) % p->depth] = q;
}

static struct io_request *pop(struct io_pread *p, struct ring *r)
{
    struct io_request *q = r->at[r->head];
    r->head = (r->head + 1) % p->depth;
    r->n--;
    return q;
}

static void read_one(struct io *io, struct io_request *r)
{
    for (;;) {
        ssize_t n = pread(io->fd, r->buf + r->done, r->len - r->done, (off_t)(r->offset + r->done));
        if (io_advance(io, r, n < 0 ? -errno : (int)n))
            return;
    }
}

static void *lane(void *arg)
{
    struct io_pread *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->waiting.n && !p->quit)
            pthread_cond_wait(&p->work, &p->lock);
        if (!p->waiting.n)
            break;
        struct io_request *r = pop(p, &p->waiting);
        p->busy++;
        pthread_mutex_unlock(&p->lock);
        read_one(&p->io, r);
        pthread_mutex_lock(&p->lock);
        p->busy--;
        push(p, &p->finished, r);
        if (p->reaper_sleeps)
            pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int start_lanes(struct io_pread *p, struct err *e)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int r = 0;
    pthread_attr_init(&attr);
    /* Thread-local data of a sanitizer or a preloaded library lies on the stack too; what is not touched costs nothing. */
    long least = sysconf(_SC_THREAD_STACK_MIN);
    size_t extra = least > 16384 ? (size_t)least - 16384 : 0;
    pthread_attr_setstacksize(&attr, BUDGET_IO_STACK_BYTES + extra);
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; i < p->io.config.lanes && r == 0; i++)
        if ((r = pthread_create(&p->threads[i], &attr, lane, p)) == 0)
            p->n_threads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (r == 0)
        return 0;
    errno = r;
    return err_sys(e, ERR_SYS, "cannot start %d I/O threads", p->io.config.lanes);
}

static int pread_start(struct io *io, struct err *e)
{
    struct io_pread *p = (struct io_pread *)io;
    p->depth = (unsigned)io->config.queue_depth;
    if (io->config.lanes < 1 || io->config.lanes > BUDGET_MAX_LANES || io->config.queue_depth < 1)
        return err_set(e, ERR_LIMIT, "%d I/O lanes; 1 to %d are possible", io->config.lanes, BUDGET_MAX_LANES);
    p->waiting.at = calloc(p->depth, sizeof *p->waiting.at);
    p->finished.at = calloc(p->depth, sizeof *p->finished.at);
    if (!p->waiting.at || !p->finished.at)
        return err_set(e, ERR_NOMEM, "out of memory for %u reads in flight", p->depth);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->done, &clock);
    pthread_condattr_destroy(&clock);
    p->locks_ready = 1;
    return start_lanes(p, e);
}

static int pread_submit(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    struct io_pread *p = (struct io_pread *)io;
    (void)e;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < n; i++)
        push(p, &p->waiting, r[i]);
    if (n > 1)
        pthread_cond_broadcast(&p->work);
    else
        pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

/* Lock held: until something has finished, or for a moment. */
static void sleep_a_moment(struct io_pread *p)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += IO_LOOK_MS * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    p->reaper_sleeps = 1;
    pthread_cond_timedwait(&p->done, &p->lock, &t);
    p->reaper_sleeps = 0;
}

static int pread_reap(struct io *io, struct io_request **out, int max, int wait, struct err *e)
{
    struct io_pread *p = (struct io_pread *)io;
    struct io_patience patience = { 0, 0 };
    int n = 0, r = 0;
    pthread_mutex_lock(&p->lock);
    if (wait && !p->finished.n)
        patience = io_patience(io, 0);
    while (wait && !p->finished.n && r == 0) {
        sleep_a_moment(p);
        r = p->finished.n ? 0 : io_impatient(io, &patience, "no read has come back", e);
    }
    while (n < max && p->finished.n)
        out[n++] = pop(p, &p->finished);
    pthread_mutex_unlock(&p->lock);
    return r < 0 ? r : n;
}

/* Lanes finish the reads that they are in; those that wait are dropped. 1: some lane does not come back. */
static int stop_lanes(struct io_pread *p)
{
    struct io_patience patience = io_patience(&p->io, 0);
    patience.limit_ns = IO_HURRY_MS * (int64_t)1000000;
    struct err ignored;
    p->io.gave_up = 1; /* lanes that try again give up */
    pthread_mutex_lock(&p->lock);
    p->quit = 1;
    p->waiting.n = 0;
    pthread_cond_broadcast(&p->work);
    for (int before = p->busy; p->busy && io_impatient(&p->io, &patience, "", &ignored) == 0; before = p->busy) {
        sleep_a_moment(p);
        if (p->busy < before)
            patience.start_ns = progress_now_ns();
    }
    int left = p->busy;
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; left && i < p->n_threads; i++)
        pthread_detach(p->threads[i]);
    return left > 0;
}

static int pread_stop(struct io *io)
{
    struct io_pread *p = (struct io_pread *)io;
    if (p->locks_ready) {
        if (stop_lanes(p))
            return 1;
        for (int i = 0; i < p->n_threads; i++)
            pthread_join(p->threads[i], NULL);
        pthread_mutex_destroy(&p->lock);
        pthread_cond_destroy(&p->work);
        pthread_cond_destroy(&p->done);
    }
    free(p->waiting.at);
    free(p->finished.at);
    return 0;
}

const struct io_backend io_pread_backend = {
    .name = "pread", .bytes = sizeof(struct io_pread), .threads = 1, .start = pread_start, .submit = pread_submit,
    .reap = pread_reap, .stop = pread_stop,
};
