/* server/http.h without a model: signs of life, clients that leave, do not read, send too much or all at once. */
#include "server/http.h"

#include "common/base/progress.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define JSON "application/json"

static struct http *http;
static struct pool pool = { .most = 1 << 20 };
static atomic_int left, woken, held;
static struct call *_Atomic kept;

static void nap(int ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static int look(void *ctx, struct call *c, const char **message)
{
    (void)ctx;
    const char *key = call_header(c, "x-key");
    *message = "no";
    return key && !strcmp(key, "bad") ? 401 : 0;
}

static void gone(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&left, 1);
}

static void wake(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&woken, 1);
}

static void fail(void *ctx, struct call *c, int status, const char *message)
{
    (void)ctx;
    call_reply(c, status, JSON, message, strlen(message));
}

static void handle(void *ctx, struct call *c)
{
    size_t n;
    const char *body = call_body(c, &n), *path = call_path(c);
    (void)ctx;
    if (!strcmp(path, "/echo")) {
        call_reply(c, 200, "text/plain", body, n);
    } else if (!strcmp(path, "/slow") || !strcmp(path, "/stream")) {
        call_hold(c);
        call_on_gone(c, gone, NULL);
        if (path[2] == 't')
            call_begin(c, 200, "text/event-stream");
        call_keep_alive(c, JSON, path[2] == 't' ? ": \n\n" : " ");
        atomic_store(&kept, c);
        atomic_store(&held, 1);
    } else {
        call_reply(c, 404, JSON, "none", 4);
    }
}

static struct call *taken(void)
{
    for (int i = 0; i < 2000 && !atomic_load(&held); i++)
        nap(5);
    atomic_store(&held, 0);
    return atomic_exchange(&kept, NULL);
}

static int dial(const char *request, size_t n)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)http_port(http)) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)(void *)&a, sizeof a) < 0 || write(fd, request, n) != (ssize_t)n)
        return -1;
    return fd;
}

static int ask(const char *path, const char *more)
{
    char line[256];
    int n = snprintf(line, sizeof line, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", path, more);
    return dial(line, (size_t)n);
}

/* All that comes until the end, NUL-terminated; how many bytes. */
static size_t all(int fd, char *to, size_t most)
{
    size_t n = 0;
    for (ssize_t some; n < most && (some = read(fd, to + n, most - n)) > 0;)
        n += (size_t)some;
    to[n] = 0;
    close(fd);
    return n;
}

static void test_plain(void)
{
    char text[4096];
    const char *post = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    all(dial(post, strlen(post)), text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 200") == text && strstr(text, "\r\n\r\nhello"));
    all(ask("/none", ""), text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 404") == text);
    all(ask("/echo", "x-key: bad\r\n"), text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 401") == text);
}

/* Nothing comes for a while: white space with status 200 before a whole answer, comments in a stream. */
static void test_life(void)
{
    char text[4096];
    int fd = ask("/slow", "");
    struct call *c = taken();
    nap(700);
    call_on_gone(c, NULL, NULL);
    call_reply(c, 500, JSON, "{}", 2);
    call_release(c);
    all(fd, text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 200") == text && strstr(text, "chunked") && strstr(text, "{}") && strstr(text, "1\r\n \r\n"));
    fd = ask("/slow", "");
    c = taken();
    call_on_gone(c, NULL, NULL);
    call_reply(c, 500, JSON, "{}", 2);
    call_release(c);
    all(fd, text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 500") == text && strstr(text, "Content-Length: 2")); /* soon enough: its own status */
    fd = ask("/stream", "");
    c = taken();
    call_put(c, "data: a\n\n", 9, 0);
    nap(700);
    call_on_gone(c, NULL, NULL);
    call_put(c, "data: b\n\n", 9, 1);
    call_end(c);
    call_release(c);
    all(fd, text, sizeof text - 1);
    const char *a = strstr(text, "data: a"), *life = a ? strstr(a, ": \n\n") : NULL;
    CHECK(life && strstr(life, "data: b"));
}

static void test_gone(void)
{
    const char *paths[] = { "/slow", "/stream" };
    for (int i = 0; i < 2; i++) {
        int before = atomic_load(&left), fd = ask(paths[i], "");
        struct call *c = taken();
        nap(20);
        int64_t since = progress_now_ns();
        close(fd);
        while (atomic_load(&left) == before && progress_now_ns() - since < 5000000000)
            nap(1);
        CHECK_MSG(progress_now_ns() - since < 100000000, "%lld ns", (long long)(progress_now_ns() - since));
        CHECK(call_on_gone(c, gone, NULL) == 1);
        call_on_gone(c, NULL, NULL);
        call_end(c);
        call_release(c);
    }
}

/* A client that does not read: the buffer is full, neither waits nor grows; when it reads, it is woken and has all in order. */
static void test_full(void)
{
    static char text[8 << 20], piece[1000];
    const char *plain = "GET /stream HTTP/1.0\r\n\r\n"; /* its answer comes as it is put */
    int fd = dial(plain, strlen(plain)), full = 0, n = 0;
    struct call *c = taken();
    for (; full < 200 && n < 6000; n += !full) {
        memset(piece, 'a' + n % 26, sizeof piece);
        full = call_put(c, piece, sizeof piece, 0) == CALL_FULL ? full + 1 : 0;
        if (full)
            nap(1);
    }
    CHECK(full == 200 && n < 6000 && atomic_load(&pool.used) < 65536);
    call_on_gone(c, NULL, NULL);
    int before = atomic_load(&woken);
    char *at = text;
    for (int i = 0; i < 20000 && atomic_load(&woken) == before; i++) {
        ssize_t got = recv(fd, at, 1000, MSG_DONTWAIT);
        at += got > 0 ? got : 0;
        if (got < 0)
            nap(1);
    }
    CHECK(atomic_load(&woken) > before);
    CHECK(call_put(c, "z", 1, 0) == 0);
    call_end(c);
    call_release(c);
    size_t len = (size_t)(at - text) + all(fd, at, sizeof text - (size_t)(at - text) - 1);
    const char *body = strstr(text, "\r\n\r\n") + 4;
    int order = len - (size_t)(body - text) == (size_t)n * 1000 + 1;
    for (int i = 0; i < n * 1000 && order; i++)
        order = body[i] == 'a' + i / 1000 % 26;
    CHECK_MSG(order && body[n * 1000] == 'z', "%zu of %d", len, n);
    CHECK(atomic_load(&pool.used) == 0);
}

/* A client that reads nothing of a whole answer, which is longer than what systems keep for it, is cut off. */
static void test_unread(void)
{
    static char big[12 << 20];
    const char *get = "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)http_port(http)) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), little = 2048;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    CHECK(connect(fd, (struct sockaddr *)(void *)&a, sizeof a) == 0 && write(fd, get, strlen(get)) > 0);
    struct call *c = taken();
    int64_t since = progress_now_ns();
    memset(big, 'x', sizeof big);
    call_on_gone(c, NULL, NULL);
    call_reply(c, 200, JSON, big, sizeof big);
    call_release(c);
    for (int i = 0; i < 30000 && atomic_load(&pool.used); i++)
        nap(1);
    CHECK(atomic_load(&pool.used) == 0 && progress_now_ns() - since > 2900000000);
    close(fd);
}

/* Two lengths of one body: what a proxy before the server takes for another request is none. */
static void test_lengths(void)
{
    static char text[4096];
    const char *both[] = { "Content-Length: 40\r\nContent-Length: 5", "Content-Length: 5\r\nTransfer-Encoding: chunked" };
    for (int i = 0; i < 2; i++) {
        char post[400];
        int n = snprintf(post, sizeof post, "POST /echo HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", both[i],
                         i ? "0\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n" : "helloGET /echo HTTP/1.1\r\nHost: x\r\n\r\n        ");
        all(dial(post, (size_t)n), text, sizeof text - 1); /* to its end, which is at once */
        const char *first = strstr(text, "HTTP/1.1 ");
        CHECK_MSG(strstr(text, "HTTP/1.1 400") == text && !strstr(first + 1, "HTTP/1.1 "), "%.200s", text);
    }
}

static void test_limits(void)
{
    static char text[4096], big[70000];
    int n = snprintf(big, sizeof big, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 65000\r\nConnection: close\r\n\r\n");
    memset(big + n, 'x', 65000);
    all(dial(big, (size_t)n + 65000), text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 413") == text);
    n = snprintf(big, sizeof big, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nfde8\r\n");
    memset(big + n, 'x', 65000);
    memcpy(big + n + 65000, "\r\n0\r\n\r\n", 7);
    all(dial(big, (size_t)n + 65007), text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 413") == text);
    atomic_fetch_add(&pool.used, pool.most);
    const char *post = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    all(dial(post, strlen(post)), text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 503") == text && strstr(text, "Retry-After: "));
    atomic_fetch_sub(&pool.used, pool.most);
    memset(big, 'p', 600);
    big[0] = '/';
    big[200 + 100] = 0;
    char path[400];
    snprintf(path, sizeof path, "GET %.300s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", big);
    all(dial(path, strlen(path)), text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 414") == text);
    int fds[6];
    struct call *calls[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = ask("/slow", "");
        calls[i] = taken();
    }
    all(ask("/echo", ""), text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 503") == text && strstr(text, "Retry-After: 1"));
    for (int i = 0; i < 4; i++) {
        call_on_gone(calls[i], NULL, NULL);
        call_reply(calls[i], 200, JSON, "{}", 2);
        call_release(calls[i]);
        all(fds[i], text, sizeof text - 1);
    }
    CHECK(strstr(text, "HTTP/1.1 200") == text);
}

/* At the end what is open goes on, nothing new comes in; then it is idle. */
static void test_end(void)
{
    char text[4096];
    int fd = ask("/stream", "");
    struct call *c = taken();
    const char *keep = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    int other = dial(keep, strlen(keep));
    CHECK(read(other, text, sizeof text) > 0);
    const char *half = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe"; /* and nothing more: nobody waits for it */
    int never = dial(half, strlen(half));
    nap(50);
    http_drain(http);
    CHECK(write(other, keep, strlen(keep)) == (ssize_t)strlen(keep));
    all(other, text, sizeof text - 1);
    CHECK(strstr(text, "HTTP/1.1 503") == text);
    CHECK(ask("/echo", "") < 0 && !http_idle(http));
    call_on_gone(c, NULL, NULL);
    call_put(c, "last", 4, 1);
    call_end(c);
    call_release(c);
    all(fd, text, sizeof text - 1);
    CHECK(strstr(text, "last") != NULL);
    for (int i = 0; i < 2000 && !http_idle(http); i++)
        nap(1);
    CHECK(http_idle(http));
    close(never);
}

int main(void)
{
    struct err e;
    struct http_config c = { .fd = -1, .connections = 4, .body_max = 60000, .pool = &pool, .idle_s = 30, .patience_ms = 150,
                             .unread_ms = 3000, .door = look, .handle = handle, .wake = wake, .error = fail };
    if (http_open(&c, &http, &e) < 0) {
        printf("Bail out! %s\n", e.msg);
        return 1;
    }
    test_plain();
    test_life();
    test_gone();
    test_full();
    test_unread();
    test_lengths();
    test_limits();
    test_end();
    http_close(http);
    c.unread_ms = c.patience_ms; /* a second sign of life is not taken for one that nobody read */
    CHECK(http_open(&c, &http, &e) == 0);
    test_life();
    http_close(http);
    CHECK(atomic_load(&pool.used) == 0);
    return test_done();
}
