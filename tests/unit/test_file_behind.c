/* Writing behind: what is on disk is what was given, wherever stretches begin and end; an error comes back, and the file keeps its name's
 * former content. */
#include "common/base/file_behind.h"
#include "tests/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char path[300];

enum { SIZE = 21 << 20 };

static uint8_t *noise(uint64_t seed, size_t n)
{
    uint8_t *p = malloc(n);
    for (size_t i = 0; p && i < n; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        p[i] = (uint8_t)(seed >> 56);
    }
    return p;
}

/* Two stretches that grow by turns, in pieces of odd sizes; the second begins at `second`. */
static void stretches(size_t second)
{
    struct err e = { 0 };
    struct file_out o;
    struct file_behind *b = NULL;
    uint8_t *want = noise(second, SIZE);
    size_t at[2] = { 0, second }, end[2] = { second, SIZE }, step = 1;
    char *got = NULL;
    size_t len = 0;
    CHECK_MSG(!file_out_open(&o, path, &e) && !file_behind_new(&o, &b, &e), "%s", e.msg);
    for (int i = 0; at[0] < end[0] || at[1] < end[1]; i ^= 1) {
        size_t n = end[i] - at[i] < step ? end[i] - at[i] : step;
        CHECK_MSG(!file_behind_write(b, want + at[i], n, at[i], &e), "%s", e.msg);
        at[i] += n;
        step = step * 3 % 5000011 + 1;
    }
    CHECK_MSG(!file_behind_flush(b, &e), "%s", e.msg);
    file_behind_free(b);
    CHECK_MSG(!file_out_commit(&o, &e) && !file_slurp(path, 64 << 20, &got, &len, &e), "%s", e.msg);
    CHECK(len == SIZE && !memcmp(got, want, SIZE));
    free(got);
    free(want);
}

static void no_room(void)
{
    struct err e = { 0 };
    struct file_out o;
    struct file_behind *b = NULL;
    struct rlimit old, least = { 3 << 20, 0 };
    uint8_t *data = noise(1, SIZE);
    char nowhere[] = "/no/such/folder";
    char *got = NULL;
    size_t len = 0;
    int r = 0;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(!getrlimit(RLIMIT_FSIZE, &old));
    least.rlim_max = old.rlim_max;
    CHECK(!setrlimit(RLIMIT_FSIZE, &least));
    CHECK_MSG(!file_out_open(&o, path, &e) && !file_behind_new(&o, &b, &e), "%s", e.msg);
    for (size_t at = 0; at < SIZE && r == 0; at += 1 << 20)
        r = file_behind_write(b, data + at, 1 << 20, at, &e);
    CHECK(r == 0 || r == ERR_SYS);
    e = (struct err){ 0 };
    CHECK(file_behind_flush(b, &e) == ERR_SYS && strstr(e.msg, "writing '") && strstr(e.msg, path));
    CHECK(file_behind_write(b, data, SIZE, 0, &e) == ERR_SYS);
    file_behind_free(b);
    file_out_abort(&o);
    CHECK(!setrlimit(RLIMIT_FSIZE, &old));
    CHECK(!file_slurp(path, 64 << 20, &got, &len, &e) && len == SIZE && memcmp(got, data, SIZE));
    CHECK(file_behind_new(&(struct file_out){ .fd = -1, .tmp = nowhere, .path = nowhere }, &b, &e) == 0);
    CHECK(file_behind_write(b, data, 10, 0, &e) == 0 && file_behind_flush(b, &e) == ERR_SYS);
    file_behind_free(b);
    free(got);
    free(data);
}

int main(void)
{
    test_path(path, sizeof path, "test-file-behind-%d", (int)getpid());
    stretches(8 << 20);
    stretches((8 << 20) + 1234);
    stretches(4095);
    no_room();
    unlink(path);
    return test_done();
}
