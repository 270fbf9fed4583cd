/* A trace whose data did not reach the disk is never taken for written: each write of HDF5 fails once, with ENOSPC, while a
 * trace is written and while traces are merged. What then ends without an error must be the whole trace. */
#include "common/offline/trace/trace.h"
#include "common/offline/trace/trace_merge.h"
#include "common/offline/trace/trace_write.h"

#include "tests/test.h"
#include "tests/trace_sample.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char dir[256], out[300], shards[2][300];
static struct err e;
static struct trace_sample whole, part;
static long calls, fails_at;

/* HDF5 finds these before libc's. */
ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    if (++calls != fails_at)
        return real(fd, buf, n, at);
    errno = ENOSPC;
    return -1;
}

static int is_whole(const struct hash128 *want)
{
    struct trace *t;
    struct err ignored;
    if (trace_open(out, &t, &ignored) < 0)
        return 0;
    int same = !trace_verify(t, &ignored) && hash_equal(trace_info(t)->content_hash, *want);
    trace_close(t);
    return same;
}

static int write_one(struct hash128 *content) { return sample_write(&whole, out, 3, content, &e); }

static int merge(struct hash128 *content)
{
    const char *in[] = { shards[0], shards[1] };
    return trace_merge(in, 2, out, 3, 0, NULL, NULL, content, &e);
}

/* Every write that `make` comes to fails once. */
static void each_write(const char *what, int (*make)(struct hash128 *), const struct hash128 *want)
{
    struct hash128 content;
    long n, refused = 0, broken = 0, unsaid = 0;
    fails_at = 0, calls = 0;
    CHECK_MSG(!make(&content) && is_whole(want), "%s: %s", what, e.msg);
    n = calls;
    CHECK_MSG(n >= 10, "%s: HDF5 called pwrite %ld times", what, n);
    for (long at = 1; at <= n; at++) {
        unlink(out);
        calls = 0, fails_at = at;
        int r = make(&content);
        fails_at = 0;
        refused += r < 0;
        broken += r == 0 && !is_whole(want);
        unsaid += r < 0 && !strstr(e.msg, strerror(ENOSPC));
        if (r < 0 && access(out, F_OK) == 0)
            CHECK_MSG(0, "%s: write %ld failed and a trace is there", what, at);
    }
    CHECK_MSG(broken == 0, "%s: %ld of %ld failed writes ended in a broken trace without an error", what, broken, n);
    CHECK_MSG(refused > 0 && unsaid == 0, "%s: %ld refused, %ld without the reason, as: %s", what, refused, unsaid, e.msg);
}

int main(void)
{
    struct hash128 want, ignored;
    test_path(dir, sizeof dir, "thermo-trace-write-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(out, sizeof out, "%s/t.h5", dir);
    sample_init(&whole, 0, 0, 1);
    CHECK(!sample_write(&whole, out, 3, &want, &e));
    each_write("trace", write_one, &want);
    for (int i = 0; i < 2; i++) {
        snprintf(shards[i], sizeof shards[i], "%s/%d.h5", dir, i);
        sample_init(&part, 0, i, 2);
        CHECK(!sample_write(&part, shards[i], 3, &ignored, &e));
    }
    each_write("merge", merge, &want);
    unlink(out), unlink(shards[0]), unlink(shards[1]);
    CHECK(rmdir(dir) == 0); /* nothing else was left behind */
    return test_done();
}
