/* Fuzz entry: any bytes as the state of an interrupted run, of a trace's and of results. The first byte says how they get there: 0, they
 * are the file; else they are records with right checksums, each a byte of how many things it says it has and a u16 of how long it is. What
 * is taken up can be read, is without gaps, and goes on; of results, the file that comes of it has each of them once. */
#include "common/base/file.h"
#include "common/base/journal.h"
#include "common/base/log.h"
#include "runtime/results.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GO_ON = 3, MOST = 1 << 16 };

static const struct hash128 config = { 1, 2 };
static const struct results_of of = { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } };
static char path[64], partial[80];
static struct err e;

static void put(const uint8_t *data, size_t size)
{
    FILE *f = fopen(partial, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f))
        abort();
}

/* The records, one after the other; how many. */
static size_t read_all(struct journal *j)
{
    size_t n = 0;
    const struct journal_record *r = journal_records(j, &n);
    uint64_t next = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t some[256];
        if (r[i].first != next || !r[i].n)
            abort();
        next += r[i].n;
        if (r[i].bytes && journal_read(j, &r[i], r[i].bytes - 1, some, 1, &e) < 0)
            abort();
        if (journal_read(j, &r[i], r[i].bytes, some, 1, &e) == 0)
            abort();
    }
    if (next != journal_next(j))
        abort();
    return n;
}

static void as_journal(void)
{
    struct journal *j, *k;
    if (journal_open(partial, config, "all", 1, &j, &e) < 0)
        return;
    size_t n = read_all(j);
    if (journal_next(j) < UINT64_MAX && (journal_begin(j, journal_next(j), 1, 1, &e) < 0 || journal_write(j, "x", 1, &e) < 0 ||
                                         journal_end(j, &e) < 0 || ++n != read_all(j)))
        abort();
    journal_close(j, 0);
    if (n && (journal_open(partial, config, "all", 1, &k, &e) < 0 || read_all(k) != n))
        abort();
    if (n)
        journal_close(k, 1);
}

static int line(struct results *r)
{
    fprintf(r->file, "{\"type\":\"result\",\"index\":%llu,\"id\":\"\"}\n", (unsigned long long)(r->made + r->waiting));
    return results_flush(r, &e);
}

static void check_file(uint64_t lines)
{
    char *text, begin[64];
    size_t len;
    if (file_slurp(path, 1 << 24, &text, &len, &e) < 0)
        abort();
    const char *at = strchr(text, '\n');
    for (uint64_t i = 0; i < lines; i++) {
        int n = snprintf(begin, sizeof begin, "\n{\"type\":\"result\",\"index\":%llu,", (unsigned long long)i);
        if (!at || strncmp(at, begin, (size_t)n))
            abort();
        at = strchr(at + 1, '\n');
    }
    if (!at || at + 1 != text + len)
        abort();
    free(text);
}

static void as_results(void)
{
    struct results r = { 0 };
    uint64_t seed = UINT64_MAX;
    int code = results_open(&r, path, 1, &of, &seed, &e);
    for (int i = 0; i < GO_ON && code == 0; i++)
        code = line(&r);
    if (code == 0 && (results_commit(&r, &e) < 0 || access(partial, F_OK) == 0))
        abort();
    if (code == 0)
        check_file(r.made);
    results_close(&r);
}

/* A state that begins as one of results does, or as a trace's, and has these records. */
static void make(const uint8_t *data, size_t size, int results)
{
    struct results r = { 0 };
    struct journal *j = NULL;
    uint64_t seed = 1;
    if (results ? results_open(&r, path, 0, &of, &seed, &e) : journal_open(partial, config, "all", 0, &j, &e))
        abort();
    if (results)
        j = r.journal;
    while (size >= 3) {
        size_t n = (size_t)data[1] | (size_t)data[2] << 8;
        n = n < size - 3 ? n : size - 3;
        if (data[0] && (journal_begin(j, journal_next(j), data[0], n, &e) < 0 || journal_write(j, data + 3, n, &e) < 0 ||
                        journal_end(j, &e) < 0))
            abort();
        data += 3 + n;
        size -= 3 + n;
    }
    if (results)
        results_close(&r);
    else
        journal_close(j, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!*path) {
        log_set_level(LOG_ERROR);
        snprintf(path, sizeof path, "%s/thermo-fuzz-journal-%ld", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (long)getpid());
        snprintf(partial, sizeof partial, "%s.partial", path);
    }
    if (!size || size > MOST)
        return 0;
    for (int results = 0; results < 2; results++) {
        unlink(partial);
        if (data[0])
            make(data + 1, size - 1, results);
        else
            put(data + 1, size - 1);
        if (results)
            as_results();
        else
            as_journal();
    }
    unlink(partial);
    unlink(path);
    return 0;
}
