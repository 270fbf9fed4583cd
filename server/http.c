/* Threads: libmicrohttpd's polls, reads and writes sockets; the worker hands whole requests on; the watcher polls the sockets of open calls
 * for their clients' end, of which libmicrohttpd hears nothing while a connection is suspended, and gives signs of life.
 *
 * One lock guards all calls. libmicrohttpd is called under it (suspend, resume) and never calls us with a lock of its own but the
 * response's, which nobody else takes. A call is held by libmicrohttpd from its first line to the end of its answer, by the worker, and by
 * who writes the answer. */
#include "server/http.h"

#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FULL_BYTES   16384        /* of an answer that wait to be sent */
#define MEMORY       16384        /* of a connection, libmicrohttpd's: headers, what is on its way */
#define SPARE        8            /* connections beyond the limit, which are told so */
#define SWALLOW      (64u << 20)  /* of a body that is refused, so that its sender reads why */
#define HEADERS      8
#define HEADER_BYTES 320
#define PATH_BYTES   256
#define TICK_MS      500
#define HEADERS_S    10           /* for the first request's headers */
#define DESCRIPTORS  32           /* beside connections: files of the model, pipes, the library's */

struct header { char name[32], value[HEADER_BYTES]; };

struct call {
    struct http *h;
    struct MHD_Connection *conn;
    struct call *next, *previous; /* of those that are open */
    struct call *queued;          /* after it, for the worker */
    uint64_t serial;
    int holders, fd;
    char method[12], path[PATH_BYTES];
    char host[PATH_BYTES];        /* of a target that names it, which counts in place of the header; "" */
    uint64_t swallowed;
    int refused;                  /* the status; 0: not */
    const char *why;
    int given, again;             /* to the worker, or answered; to the worker by call_again */
    int status, streamed, ended, failed, answered; /* status 0: the answer has not begun; answered: libmicrohttpd has it */
    int suspended, was_full, gone_away;
    char type[64];
    struct header headers[HEADERS];
    int n_headers;
    const char *alive, *alive_type;
    int64_t last_ns;              /* of what was put, or sent as a sign of life; */
    int64_t read_ns;              /* of what was taken to be sent, or put where nothing waited */
    void (*gone)(void *ctx);
    void *gone_ctx;
    struct buffer body, out;
};

struct http {
    struct http_config config;
    struct MHD_Daemon *daemon;
    int fd, port, pipe[2];
    pthread_t worker, watcher;
    int n_threads;
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* guarded by lock */
    struct call *open, *first, *last;
    int n_open, n_connections, draining, closing;
    uint64_t serial;
};

size_t http_bytes(const struct http_config *c)
{
    size_t each = MEMORY + sizeof(struct call) + 4096; /* libmicrohttpd's own, the end of an answer */
    return (size_t)(c->connections + SPARE) * each + (512u << 10);
}

/* ---- calls ---- */

static void wake_watcher(struct http *h)
{
    if (write(h->pipe[1], "", 1) < 0) /* full: it wakes anyway */
        return;
}

static void resume(struct call *c)
{
    if (c->suspended) {
        c->suspended = 0;
        MHD_resume_connection(c->conn);
    }
}

static void release(struct call *c)
{
    if (--c->holders)
        return;
    buffer_drop(&c->body);
    buffer_drop(&c->out);
    free(c);
}

void call_hold(struct call *c)
{
    pthread_mutex_lock(&c->h->lock);
    c->holders++;
    pthread_mutex_unlock(&c->h->lock);
}

void call_release(struct call *c)
{
    struct http *h = c->h;
    pthread_mutex_lock(&h->lock);
    release(c);
    pthread_mutex_unlock(&h->lock);
}

const char *call_method(const struct call *c)
{
    return c->method;
}

const char *call_path(const struct call *c)
{
    return c->path;
}

const char *call_body(struct call *c, size_t *len)
{
    *len = c->body.len;
    return c->body.len ? c->body.at + c->body.from : "";
}

void call_drop_body(struct call *c)
{
    buffer_drop(&c->body);
}

const char *call_header(struct call *c, const char *name)
{
    if (c->host[0] && !strcasecmp(name, "Host"))
        return c->host;
    return MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, name);
}

void call_set(struct call *c, const char *name, const char *value)
{
    if (c->n_headers == HEADERS)
        return;
    struct header *to = &c->headers[c->n_headers++];
    snprintf(to->name, sizeof to->name, "%s", name);
    snprintf(to->value, sizeof to->value, "%s", value);
}

int call_has(const struct call *c, const char *name)
{
    for (int i = 0; i < c->n_headers; i++)
        if (!strcmp(c->headers[i].name, name))
            return 1;
    return 0;
}

static void begin(struct call *c, int status, const char *type, int streamed)
{
    c->status = status;
    c->streamed = streamed;
    snprintf(c->type, sizeof c->type, "%s", type);
}

void call_reply_buffer(struct call *c, int status, const char *type, struct buffer *b)
{
    pthread_mutex_lock(&c->h->lock);
    if (!c->status) {
        begin(c, status, type, 0);
        buffer_drop(&c->out);
        c->read_ns = progress_now_ns();
        c->out = *b;
        c->failed |= c->out.failed;
        *b = (struct buffer){ .pool = b->pool };
    } else {
        c->read_ns = c->out.len ? c->read_ns : progress_now_ns();
        c->failed |= b->failed || buffer_put(&c->out, b->at + b->from, b->len, 1) < 0;
        buffer_drop(b);
    }
    c->ended = 1;
    resume(c);
    pthread_mutex_unlock(&c->h->lock);
}

void call_reply(struct call *c, int status, const char *type, const char *text, size_t len)
{
    pthread_mutex_lock(&c->h->lock);
    if (!c->status)
        begin(c, status, type, 0);
    c->failed |= buffer_put(&c->out, text, len, 1) < 0;
    c->read_ns = progress_now_ns();
    c->ended = 1;
    resume(c);
    pthread_mutex_unlock(&c->h->lock);
}

void call_begin(struct call *c, int status, const char *type)
{
    pthread_mutex_lock(&c->h->lock);
    begin(c, status, type, 1);
    c->last_ns = progress_now_ns();
    resume(c);
    pthread_mutex_unlock(&c->h->lock);
}

int call_put(struct call *c, const void *data, size_t len, int force)
{
    int full = 0;
    pthread_mutex_lock(&c->h->lock);
    c->read_ns = c->out.len ? c->read_ns : progress_now_ns();
    if (c->out.len >= FULL_BYTES && !force)
        full = c->was_full = 1;
    else if (buffer_put(&c->out, data, len, force) < 0)
        full = 1;
    c->failed |= full && force;
    c->last_ns = progress_now_ns();
    resume(c);
    pthread_mutex_unlock(&c->h->lock);
    return full ? CALL_FULL : 0;
}

void call_end(struct call *c)
{
    pthread_mutex_lock(&c->h->lock);
    c->ended = 1;
    resume(c);
    pthread_mutex_unlock(&c->h->lock);
}

void call_fail(struct call *c)
{
    pthread_mutex_lock(&c->h->lock);
    c->failed = 1;
    resume(c);
    pthread_mutex_unlock(&c->h->lock);
}

void call_keep_alive(struct call *c, const char *type, const char *text)
{
    pthread_mutex_lock(&c->h->lock);
    c->alive_type = type;
    c->alive = text;
    c->last_ns = progress_now_ns();
    pthread_mutex_unlock(&c->h->lock);
}

const char *call_begun(struct call *c)
{
    pthread_mutex_lock(&c->h->lock);
    c->alive = NULL;
    const char *type = c->status ? c->type : NULL;
    pthread_mutex_unlock(&c->h->lock);
    return type;
}

/* At the end of the worker's queue; with the lock. */
static void push(struct call *c)
{
    struct http *h = c->h;
    c->queued = NULL;
    if (h->last)
        h->last->queued = c;
    else
        h->first = c;
    h->last = c;
    pthread_cond_signal(&h->work);
}

void call_again(struct call *c)
{
    struct http *h = c->h;
    pthread_mutex_lock(&h->lock);
    c->again = 1;
    push(c);
    pthread_mutex_unlock(&h->lock);
}

int call_on_gone(struct call *c, void (*gone)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&c->h->lock);
    c->gone = gone;
    c->gone_ctx = ctx;
    int already = c->gone_away;
    pthread_mutex_unlock(&c->h->lock);
    return already;
}

/* ---- libmicrohttpd's thread ---- */

static void leave(struct call *c)
{
    c->gone_away = 1;
    if (c->gone) {
        c->gone(c->gone_ctx);
        c->gone = NULL;
    }
}

/* What a target has behind the host, if it names one: "http://host/path". */
static const char *path_of(struct call *c, const char *target)
{
    const size_t scheme = strncasecmp(target, "http://", 7) ? 0 : 7, n = scheme ? strcspn(target + scheme, "/") : 0;
    if (!scheme)
        return target;
    if (n >= sizeof c->host)
        c->refused = 414, c->why = "the target's host is longer than any name";
    else
        snprintf(c->host, sizeof c->host, "%.*s", (int)n, target + scheme);
    return target[scheme + n] ? target + scheme + n : "/";
}

static struct call *new_call(struct http *h, struct MHD_Connection *conn, const char *method, const char *path)
{
    struct call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    *c = (struct call){ .h = h, .conn = conn, .holders = 1, .fd = fd ? fd->connect_fd : -1, .body.pool = h->config.pool,
                        .out.pool = h->config.pool };
    path = path_of(c, path);
    int long_path = strlen(path) >= sizeof c->path, long_method = strlen(method) >= sizeof c->method;
    snprintf(c->method, sizeof c->method, "%s", method);
    snprintf(c->path, sizeof c->path, "%s", path);
    if (long_path && !c->refused)
        c->refused = 414, c->why = "the path is longer than any that there is";
    else if (long_method)
        c->refused = 405, c->why = "there is no such method";
    MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)h->config.idle_s);
    pthread_mutex_lock(&h->lock);
    c->serial = ++h->serial;
    c->next = h->open;
    if (c->next)
        c->next->previous = c;
    h->open = c;
    h->n_open++;
    int full = h->n_connections > h->config.connections, draining = h->draining;
    pthread_mutex_unlock(&h->lock);
    if (!c->refused && (draining || full)) {
        c->refused = 503;
        c->why = draining ? "the server is about to end" : "as many connections are open as the server takes; try again later";
        call_set(c, "Retry-After", draining ? "10" : "1");
    }
    if (!c->refused)
        c->refused = h->config.door(h->config.ctx, c, &c->why);
    return c;
}

static enum MHD_Result count_lengths(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
    int *n = ctx;
    (void)kind;
    (void)value;
    *n += !strcasecmp(name, "Content-Length") || !strcasecmp(name, "Transfer-Encoding");
    return MHD_YES;
}

/* What its headers say of a body. Of two lengths, also that of pieces, which a proxy may read otherwise, none is right. */
static void look_at_length(struct call *c)
{
    const char *text = call_header(c, "Content-Length");
    unsigned long long n = text ? strtoull(text, NULL, 10) : 0;
    int lengths = 0;
    MHD_get_connection_values(c->conn, MHD_HEADER_KIND, count_lengths, &lengths);
    if (lengths > 1) {
        c->refused = 400;
        c->why = "the length of the body is said twice";
        call_set(c, "Connection", "close");
    } else if (!c->refused && n > c->h->config.body_max) {
        c->refused = 413;
        c->why = "the body is larger than --max-body";
    }
}

static int take_body(struct call *c, const char *data, size_t n)
{
    size_t most = c->h->config.body_max;
    if (!c->refused && n > most - c->body.len) {
        c->refused = 413;
        c->why = "the body is larger than --max-body";
    } else if (!c->refused && buffer_put(&c->body, data, n, 0) < 0) {
        c->refused = 503;
        c->why = "there is no memory for the body just now; try again later";
        call_set(c, "Retry-After", "1");
    }
    if (c->refused) {
        buffer_drop(&c->body);
        c->swallowed += n;
    }
    return c->swallowed > SWALLOW ? MHD_NO : MHD_YES;
}

/* To the worker, or refused. */
static void give(struct call *c)
{
    struct http *h = c->h;
    if (c->refused && !c->status)
        h->config.error(h->config.ctx, c, c->refused, c->why);
    pthread_mutex_lock(&h->lock);
    c->given = 1;
    if (!c->refused) {
        c->holders++;
        push(c);
    }
    pthread_mutex_unlock(&h->lock);
    wake_watcher(h);
}

static ssize_t read_out(void *ctx, uint64_t pos, char *to, size_t most)
{
    struct call *c = ctx;
    struct http *h = c->h;
    (void)pos;
    pthread_mutex_lock(&h->lock);
    ssize_t n = (ssize_t)buffer_take(&c->out, to, most);
    c->read_ns = n ? progress_now_ns() : c->read_ns;
    int wake = c->was_full && c->out.len < FULL_BYTES / 2;
    if (wake)
        c->was_full = 0;
    if (n == 0 && (c->failed || c->gone_away || h->closing)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n == 0 && c->ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (n == 0) {
        c->suspended = 1;
        MHD_suspend_connection(c->conn);
    }
    pthread_mutex_unlock(&h->lock);
    if (wake)
        h->config.wake(h->config.ctx);
    return n;
}

static void response_done(void *ctx)
{
    struct call *c = ctx;
    call_release(c);
}

/* Called with the lock, which it gives back. */
static int answer(struct call *c)
{
    uint64_t size = c->streamed || !c->ended ? MHD_SIZE_UNKNOWN : c->out.len;
    struct MHD_Response *r = MHD_create_response_from_callback(size, 4096, read_out, c, response_done);
    if (!r) { /* no memory: the connection is closed */
        pthread_mutex_unlock(&c->h->lock);
        return MHD_NO;
    }
    c->holders++;
    c->answered = 1;
    MHD_add_response_header(r, "Content-Type", c->type);
    for (int i = 0; i < c->n_headers; i++)
        MHD_add_response_header(r, c->headers[i].name, c->headers[i].value);
    if (c->h->draining)
        MHD_add_response_header(r, "Connection", "close");
    int status = c->status;
    struct MHD_Connection *conn = c->conn;
    pthread_mutex_unlock(&c->h->lock); /* a reading of the response's begins here */
    int ok = MHD_queue_response(conn, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

/* The request is whole: it is given on; once its answer begins, that is. */
static int on_whole(struct call *c)
{
    struct http *h = c->h;
    if (!c->given)
        give(c);
    pthread_mutex_lock(&h->lock);
    if (c->failed || c->gone_away || (h->closing && !c->status)) {
        pthread_mutex_unlock(&h->lock);
        return MHD_NO;
    }
    if (c->status)
        return answer(c);
    c->suspended = 1;
    MHD_suspend_connection(c->conn);
    pthread_mutex_unlock(&h->lock);
    return MHD_YES;
}

/* The client sends no body before it hears that it may. */
static int waits(struct call *c)
{
    const char *expects = call_header(c, "Expect");
    return expects && !strcasecmp(expects, "100-continue");
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *conn, const char *path, const char *method, const char *version,
                                  const char *data, size_t *size, void **state)
{
    struct http *h = ctx;
    struct call *c = *state;
    (void)version;
    if (!c) {
        if (!(*state = c = new_call(h, conn, method, path)))
            return MHD_NO;
        look_at_length(c);
        return c->refused && waits(c) ? on_whole(c) : MHD_YES;
    }
    if (*size == 0)
        return on_whole(c) ? MHD_YES : MHD_NO;
    int ok = take_body(c, data, *size);
    *size = 0;
    return ok ? MHD_YES : MHD_NO;
}

static void on_completed(void *ctx, struct MHD_Connection *conn, void **state, enum MHD_RequestTerminationCode how)
{
    struct http *h = ctx;
    struct call *c = *state;
    (void)conn;
    (void)how;
    if (!c)
        return;
    *state = NULL;
    pthread_mutex_lock(&h->lock);
    if (!c->ended || how != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        leave(c);
    if (c->previous)
        c->previous->next = c->next;
    else
        h->open = c->next;
    if (c->next)
        c->next->previous = c->previous;
    h->n_open--;
    c->suspended = 0;
    c->fd = -1;
    release(c);
    pthread_mutex_unlock(&h->lock);
}

static void on_connection(void *ctx, struct MHD_Connection *conn, void **state, enum MHD_ConnectionNotificationCode what)
{
    struct http *h = ctx;
    (void)state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED && h->config.idle_s > HEADERS_S)
        MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)HEADERS_S);
    pthread_mutex_lock(&h->lock);
    h->n_connections += what == MHD_CONNECTION_NOTIFY_STARTED ? 1 : -1;
    pthread_mutex_unlock(&h->lock);
}

/* ---- the worker ---- */

static void *work(void *ctx)
{
    struct http *h = ctx;
    pthread_mutex_lock(&h->lock);
    while (!h->closing) {
        struct call *c = h->first;
        if (!c) {
            pthread_cond_wait(&h->work, &h->lock);
            continue;
        }
        h->first = c->queued;
        if (!h->first)
            h->last = NULL;
        int gone = c->gone_away && !c->again;
        pthread_mutex_unlock(&h->lock);
        if (!gone)
            h->config.handle(h->config.ctx, c);
        call_release(c);
        pthread_mutex_lock(&h->lock);
    }
    for (struct call *c; (c = h->first);) {
        h->first = c->queued;
        release(c);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- the watcher ---- */

struct watched { uint64_t serial; };

/* Those whose clients wait for an answer. */
static int gather(struct http *h, struct pollfd *p, struct watched *w, int most)
{
    int n = 0;
    for (struct call *c = h->open; c && n < most; c = c->next)
        if (c->given && !c->gone_away && c->fd >= 0) {
            p[n] = (struct pollfd){ .fd = c->fd, .events = POLLRDHUP };
            w[n++].serial = c->serial;
        }
    return n;
}

static struct call *find(const struct http *h, uint64_t serial)
{
    struct call *c = h->open;
    while (c && c->serial != serial)
        c = c->next;
    return c;
}

/* A client that reads nothing of its answer has left. */
static void unread(struct call *c, int64_t now)
{
    if (!c->answered || c->gone_away || !c->out.len || now - c->read_ns < (int64_t)c->h->config.unread_ms * 1000000)
        return;
    leave(c);
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_RDWR);
    resume(c);
}

/* A sign of life, where an answer says nothing for so long and nothing waits to be sent. */
static void tick(struct call *c, int64_t now)
{
    if (!c->alive || !c->given || c->ended || c->out.len || now - c->last_ns < (int64_t)c->h->config.patience_ms * 1000000)
        return;
    if (!c->status)
        begin(c, 200, c->alive_type, 1);
    buffer_put(&c->out, c->alive, strlen(c->alive), 1);
    c->last_ns = c->read_ns = now; /* nothing waited */
    resume(c);
}

static void *watch(void *ctx)
{
    struct http *h = ctx;
    int most = h->config.connections + SPARE;
    struct pollfd *p = calloc((size_t)most + 1, sizeof *p);
    struct watched *w = calloc((size_t)most, sizeof *w);
    char drained[64];
    pthread_mutex_lock(&h->lock);
    while (p && w && !h->closing) {
        int n = gather(h, p, w, most);
        p[n] = (struct pollfd){ .fd = h->pipe[0], .events = POLLIN };
        pthread_mutex_unlock(&h->lock);
        int any = poll(p, (nfds_t)n + 1, n ? TICK_MS : -1);
        while (any > 0 && (p[n].revents & POLLIN) && read(h->pipe[0], drained, sizeof drained) > 0)
            continue;
        pthread_mutex_lock(&h->lock);
        int64_t now = progress_now_ns();
        for (int i = 0; i < n && any > 0; i++) {
            struct call *c = p[i].revents & (POLLRDHUP | POLLHUP | POLLERR) ? find(h, w[i].serial) : NULL;
            if (c && !c->gone_away) {
                leave(c);
                resume(c);
            }
        }
        for (struct call *c = h->open; c; c = c->next) {
            tick(c, now);
            unread(c, now);
        }
    }
    pthread_mutex_unlock(&h->lock);
    free(p);
    free(w);
    return NULL;
}

/* ---- opening and closing ---- */

static int listen_at(struct http *h, struct err *e)
{
    const char *host = h->config.host ? h->config.host : "127.0.0.1";
    struct sockaddr_in six4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)h->config.port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)h->config.port) };
    int is6 = inet_pton(AF_INET6, host, &six.sin6_addr) == 1, on = 1;
    if (!is6 && inet_pton(AF_INET, host, &six4.sin_addr) != 1)
        return err_set(e, ERR_USAGE, "--host '%s' is no address, as 127.0.0.1, 0.0.0.0 or ::1", host);
    h->fd = socket(is6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (h->fd < 0)
        return err_sys(e, ERR_SYS, "a socket");
    setsockopt(h->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const struct sockaddr *at = is6 ? (struct sockaddr *)(void *)&six : (struct sockaddr *)(void *)&six4;
    if (bind(h->fd, at, is6 ? sizeof six : sizeof six4) < 0 || listen(h->fd, 64) < 0)
        return err_sys(e, ERR_SYS, "listening at %s, port %d", host, h->config.port);
    return 0;
}

static void find_port(struct http *h)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(h->fd, (struct sockaddr *)(void *)&a, &n) < 0)
        return;
    if (a.ss_family == AF_INET)
        h->port = ntohs(((struct sockaddr_in *)(void *)&a)->sin_port);
    else if (a.ss_family == AF_INET6)
        h->port = ntohs(((struct sockaddr_in6 *)(void *)&a)->sin6_port);
}

static void say(void *ctx, const char *fmt, va_list ap)
{
    char line[256];
    (void)ctx;
    print_into_va(line, sizeof line, fmt, ap);
    line[strcspn(line, "\n")] = 0;
    log_debug("libmicrohttpd: %s", line);
}

/* The process may have a descriptor for each connection. */
static int raise_descriptors(const struct http_config *c, struct err *e)
{
    struct rlimit l;
    rlim_t need = (rlim_t)c->connections + SPARE + DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= need)
        return 0;
    l.rlim_cur = l.rlim_max < need ? l.rlim_max : need;
    if (l.rlim_cur < need || setrlimit(RLIMIT_NOFILE, &l) < 0)
        return err_set(e, ERR_SYS, "%d connections need %llu descriptors, and the limit (ulimit -n) is %llu: a larger one, or fewer "
                       "--connections", c->connections, (unsigned long long)need, (unsigned long long)l.rlim_max);
    return 0;
}

static int start(struct http *h, struct err *e)
{
    const struct http_config *c = &h->config;
    if (raise_descriptors(c, e) < 0)
        return e->code;
    if (pipe2(h->pipe, O_NONBLOCK | O_CLOEXEC) < 0)
        return err_sys(e, ERR_SYS, "a pipe");
    if (c->fd >= 0)
        h->fd = c->fd;
    else if (listen_at(h, e) < 0)
        return e->code;
    find_port(h);
    sigset_t all, was; /* signals are for the thread that began all this */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &was);
    if (pthread_create(&h->worker, NULL, work, h) == 0)
        h->n_threads++;
    if (h->n_threads == 1 && pthread_create(&h->watcher, NULL, watch, h) == 0)
        h->n_threads++;
    if (h->n_threads == 2)
        h->daemon = MHD_start_daemon(MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                                     on_request, h,
                                     MHD_OPTION_EXTERNAL_LOGGER, say, NULL, MHD_OPTION_LISTEN_SOCKET, h->fd,
                                     MHD_OPTION_CONNECTION_LIMIT, (unsigned)(c->connections + SPARE),
                                     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)c->idle_s,
                                     MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                                     MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return h->daemon ? 0 : err_set(e, ERR_SYS, "HTTP cannot be started: threads, memory or descriptors are exhausted");
}

int http_open(const struct http_config *c, struct http **out, struct err *e)
{
    struct http *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ERR_NOMEM, "out of memory");
    *h = (struct http){ .config = *c, .fd = -1, .pipe = { -1, -1 } };
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->work, NULL);
    int r = start(h, e);
    if (r < 0)
        http_close(h);
    else
        *out = h;
    return r;
}

int http_port(const struct http *h)
{
    return h->port;
}

void http_drain(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    int was = h->draining;
    h->draining = 1;
    pthread_mutex_unlock(&h->lock);
    if (!was && MHD_quiesce_daemon(h->daemon) != MHD_INVALID_SOCKET) {
        close(h->fd);
        h->fd = -1;
    }
}

int http_idle(struct http *h)
{
    int idle = 1;
    pthread_mutex_lock(&h->lock);
    for (const struct call *c = h->open; c && idle; c = c->next)
        idle = !c->given;
    pthread_mutex_unlock(&h->lock);
    return idle;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->closing = 1;
    for (struct call *c = h->open; c; c = c->next)
        resume(c);
    pthread_cond_broadcast(&h->work);
    pthread_mutex_unlock(&h->lock);
    if (h->pipe[1] >= 0)
        wake_watcher(h);
    if (h->n_threads > 0)
        pthread_join(h->worker, NULL);
    if (h->n_threads > 1)
        pthread_join(h->watcher, NULL);
    if (h->daemon)
        MHD_stop_daemon(h->daemon); /* closes the socket where it listens still */
    else if (h->fd >= 0)
        close(h->fd);
    for (int i = 0; i < 2; i++)
        if (h->pipe[i] >= 0)
            close(h->pipe[i]);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->work);
    free(h);
}
