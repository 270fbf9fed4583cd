/* The state file of an interrupted run: whole records survive, whatever was cut off or damaged behind them does not. */
#include "common/base/journal.h"

#include "common/base/file.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[256];
static struct err e;
static const struct hash128 config = { 1, 2 };

static int save(const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    size_t k = f ? fwrite(data, 1, n, f) : 0;
    return f && !fclose(f) && k == n;
}

/* Record i: i + 1 groups, 100 * (i + 1) bytes of value i. */
static int append(struct journal *j, int i)
{
    char data[1000];
    size_t n = 100 * (size_t)(i + 1);
    memset(data, i, n);
    return journal_begin(j, journal_next(j), (uint64_t)i + 1, n, &e) < 0 || journal_write(j, data, n / 2, &e) < 0 ||
                   journal_write(j, data + n / 2, n - n / 2, &e) < 0
               ? -1
               : journal_end(j, &e);
}

/* How many records there are, or -1 when one is not what was written. */
static int intact(struct journal *j)
{
    size_t n;
    const struct journal_record *r = journal_records(j, &n);
    uint64_t next = 0;
    for (size_t i = 0; i < n; i++) {
        char data[1000];
        if (r[i].first != next || r[i].n != i + 1 || r[i].bytes != 100 * (i + 1) ||
            journal_read(j, &r[i], 0, data, (size_t)r[i].bytes, &e) < 0)
            return -1;
        for (uint64_t k = 0; k < r[i].bytes; k++)
            if (data[k] != (char)i)
                return -1;
        next += r[i].n;
    }
    return journal_next(j) == next ? (int)n : -1;
}

static int resume(void)
{
    struct journal *j;
    if (journal_open(path, config, "what", 1, &j, &e) < 0)
        return -2;
    int n = intact(j);
    /* What comes next continues it. */
    if (n >= 0 && (append(j, n) < 0 || intact(j) != n + 1))
        n = -3;
    journal_close(j, 0);
    return n;
}

static int64_t file_size(void)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* What leads elsewhere is not followed, be it for an empty file that a run would take for its own. */
static void links(void)
{
    char other[300];
    struct journal *j;
    snprintf(other, sizeof other, "%s.other", path);
    CHECK(save("", 0) && rename(path, other) == 0 && symlink(other, path) == 0);
    CHECK(journal_open(path, config, "what", 1, &j, &e) == ERR_INPUT && strstr(e.msg, "symbolic link") && file_size() == 0);
    CHECK(unlink(other) == 0);
    CHECK(journal_open(path, config, "what", 1, &j, &e) == ERR_INPUT && access(other, F_OK) != 0); /* a link to nowhere makes nothing */
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK(journal_open(path, config, "what", 1, &j, &e) == ERR_INPUT && strstr(e.msg, "no regular file"));
}

/* A name that is one of several, or leads to another file by the time it is locked. */
static void names(void)
{
    char other[300];
    struct journal *j, *k;
    struct stat st;
    snprintf(other, sizeof other, "%s.other", path);
    CHECK(save("", 0) && link(path, other) == 0);
    CHECK(journal_open(path, config, "what", 1, &j, &e) == ERR_INPUT && strstr(e.msg, "hard links") && file_size() == 0);
    CHECK(unlink(path) == 0 && unlink(other) == 0);
    CHECK(!journal_open(path, config, "what", 0, &j, &e) && stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(rename(path, other) == 0 && save("somebody else's", 15));
    journal_close(j, 1); /* the name is another file's by now */
    CHECK(file_size() == 15 && unlink(path) == 0 && unlink(other) == 0);
    CHECK(!journal_open(path, config, "what", 0, &j, &e) && !append(j, 0) && unlink(path) == 0);
    CHECK(!journal_open(path, config, "what", 1, &k, &e) && !append(k, 0) && intact(k) == 1);
    journal_close(j, 1);
    journal_close(k, 0);
    CHECK(resume() == 1 && unlink(path) == 0);
}

/* Payloads that others write. */
static void taken(void)
{
    struct journal *j;
    CHECK(!journal_open(path, config, "what", 0, &j, &e) && !append(j, 0));
    char data[200];
    memset(data, 1, sizeof data);
    int fd = journal_descriptor(j, &e);
    uint64_t at = journal_place(j);
    CHECK(fd >= 0 && pwrite(fd, data, sizeof data, (off_t)at) == sizeof data);
    CHECK(!journal_take(j, 1, 2, sizeof data, &e) && intact(j) == 2);
    CHECK(pwrite(fd, data, 50, (off_t)(at + 300)) == 50); /* and nobody takes it */
    close(fd);
    journal_close(j, 0);
    CHECK(!journal_open(path, config, "what", 1, &j, &e) && intact(j) == 2 && journal_cut(j) > 0);
    CHECK(!append(j, 2) && intact(j) == 3);
    journal_close(j, 1);
    CHECK(file_size() < 0);
}

int main(void)
{
    struct journal *j, *k;
    char *data = NULL;
    size_t n = 0;
    test_path(path, sizeof path, "thermo-journal-%d.partial", (int)getpid());
    CHECK(!journal_open(path, config, "what", 0, &j, &e));
    CHECK(journal_open(path, config, "what", 1, &k, &e) == ERR_INPUT && strstr(e.msg, "in use"));
    journal_close(j, 0);
    CHECK(access(path, F_OK) != 0); /* nothing was finished: nothing is left */
    CHECK(!journal_open(path, config, "what", 1, &j, &e) && !append(j, 0) && !append(j, 1) && !append(j, 2));
    CHECK(!journal_begin(j, 6, 1, 50, &e) && !journal_write(j, "unfinished", 10, &e));
    CHECK(journal_end(j, &e) == ERR_LIMIT);
    journal_close(j, 0);
    CHECK(journal_open(path, config, "what", 0, &j, &e) == ERR_USAGE && strstr(e.msg, "--resume"));
    CHECK(journal_open(path, (struct hash128){ 1, 3 }, "what", 1, &j, &e) == ERR_MISMATCH &&
          strstr(e.msg, "another run") && strstr(e.msg, "what must be the same"));
    CHECK(!file_slurp(path, 1 << 20, &data, &n, &e) && n == 32 + 3 * 48 + 600);
    CHECK(resume() == 3);
    const size_t end[4] = { 32, 32 + 148, 32 + 148 + 248, 32 + 148 + 248 + 348 };
    int fine = 1;
    for (size_t cut = 0; data && cut <= n; cut += cut % 4 ? 1 : 3) { /* each end, and a byte before it */
        int want = 0;
        while (want < 3 && cut >= end[want + 1])
            want++;
        int got = save(data, cut) ? resume() : -4;
        if (got != want)
            printf("# cut at %zu: %d records, not %d: %s\n", cut, got, want, e.msg), fine = 0;
    }
    CHECK(fine);
    for (size_t at = 32; data && at < n; at += 3) { /* a damaged record and those behind it are lost */
        int want = at < end[1] ? 0 : at < end[2] ? 1 : 2, got;
        data[at] ^= 0x10;
        got = save(data, n) ? resume() : -4;
        data[at] ^= 0x10;
        if (got != want)
            printf("# damaged at %zu: %d records, not %d: %s\n", at, got, want, e.msg), fine = 0;
    }
    CHECK(fine);
    CHECK(save("THRMPART but nothing that follows makes sense ....", 50) && resume() == -2 && e.code == ERR_MISMATCH);
    CHECK(access(path, F_OK) == 0); /* what is not ours is not removed */
    CHECK(save("id,text", 7) && resume() == -2 && e.code == ERR_MISMATCH && file_size() == 7); /* nor a short one */
    free(data);
    links();
    unlink(path);
    names();
    taken();
    return test_done();
}
