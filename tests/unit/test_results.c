/* Results that an interrupted run left: whatever became of the file, the finished one is that of a run without interruption, or the run is
 * refused. No result is missing, none is there twice. */
#include "runtime/results.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINES = 30, THERE = 17 }; /* in all; when it was interrupted */

static char path[256], partial[300];
static struct err e;
static const struct results_of of = { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } };

static int save(const char *name, const char *data, size_t n)
{
    FILE *f = fopen(name, "wb");
    size_t k = f ? fwrite(data, 1, n, f) : 0;
    return f && !fclose(f) && k == n;
}

static int lines(struct results *r, uint64_t first, uint64_t end, uint64_t record)
{
    int code = 0;
    for (uint64_t i = first; i < end && code == 0; i++) {
        fprintf(r->file, "{\"type\":\"result\",\"index\":%llu,\"text\":\"%.*s\"}\n", (unsigned long long)i, (int)(i % 7) * 5,
                "somebody went to the sea one day");
        code = results_flush(r, &e);
        if (code == 0 && record && i % record == record - 1)
            code = results_sync(r, &e);
    }
    return code;
}

/* 0: the file is written, by a run that goes on; else why not. */
static int go_on(uint64_t *there)
{
    struct results r = { 0 };
    uint64_t seed = UINT64_MAX - 2;
    int code = results_open(&r, path, 1, &of, &seed, &e);
    *there = r.n;
    code = code < 0 ? code : lines(&r, r.n, LINES, 0);
    code = code < 0 ? code : results_commit(&r, &e);
    results_close(&r);
    return code;
}

static char *whole, *state;
static size_t whole_len, state_len;

/* 1: of a state with these bytes the run makes the whole file, or refuses it with the status of damage or of another run; and says so. */
static int holds(const char *bytes, size_t n, const char *what, size_t at)
{
    char *got = NULL;
    size_t len = 0;
    uint64_t there = 0;
    unlink(path);
    unlink(partial);
    int code = save(partial, bytes, n) ? go_on(&there) : 1;
    int r = code == 0 ? file_slurp(path, 1 << 20, &got, &len, &e) == 0 && len == whole_len && !memcmp(got, whole, len) &&
                        access(partial, F_OK) < 0 && there <= THERE
                      : (code == ERR_FORMAT || code == ERR_MISMATCH) && access(path, F_OK) < 0;
    if (!r)
        printf("# %s at %zu: %d, %llu there, %zu bytes: %s\n", what, at, code, (unsigned long long)there, len, e.msg);
    free(got);
    return r;
}

static void damages(void)
{
    char *copy = malloc(3 * state_len);
    size_t few = test_short() ? 23 : 5;
    int ok = copy != NULL;
    for (size_t cut = 0; ok && cut <= state_len; cut += few)
        ok = holds(state, cut, "cut", cut);
    CHECK(ok);
    for (size_t at = 0; ok && at < state_len; at += few) {
        memcpy(copy, state, state_len);
        copy[at] ^= (char)(1 << at % 8);
        ok = holds(copy, state_len, "flipped", at);
    }
    CHECK(ok);
    static const size_t blocks[] = { 1, 64, 300, 512 };
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks && ok; b++)
        for (size_t at = 0; ok && at + blocks[b] <= state_len; at += 9 * few) {
            memcpy(copy, state, state_len);
            memset(copy + at, 0, blocks[b]);
            ok = holds(copy, state_len, "zeroed", at);
            memcpy(copy + at, state + at + blocks[b], state_len - at - blocks[b]); /* lost: what follows moves up */
            ok = ok && holds(copy, state_len - blocks[b], "lost", at);
            memcpy(copy, state, state_len);
            memcpy(copy + at + blocks[b], state + at, state_len - at); /* twice */
            ok = ok && holds(copy, state_len + blocks[b], "doubled", at);
        }
    CHECK(ok);
    free(copy);
}

/* One that differs in this part is refused by name. */
static int refused(size_t part, const char *name)
{
    struct results r = { 0 };
    struct results_of other = of;
    uint64_t seed = UINT64_MAX;
    ((struct hash128 *)(void *)&other)[part].hi++;
    int code = save(partial, state, state_len) ? results_open(&r, path, 1, &other, &seed, &e) : 0;
    results_close(&r);
    return code == ERR_MISMATCH && strstr(e.msg, name) != NULL;
}

static void others(void)
{
    static const char *const names[] = { "other pack", "other plan", "other prompts", "other options" };
    struct results r = { 0 }, again = { 0 };
    struct stat st;
    uint64_t seed = 7;
    for (size_t i = 0; i < 4; i++)
        CHECK_MSG(refused(i, names[i]), "%s: %s", names[i], e.msg);
    CHECK(results_open(&r, path, 1, &of, &seed, &e) == ERR_MISMATCH && strstr(e.msg, "--seed 18446744073709551613"));
    results_close(&r);
    seed = UINT64_MAX;
    CHECK(results_open(&r, path, 1, &of, &seed, &e) == 0 && seed == UINT64_MAX - 2 && r.n == THERE);
    CHECK(results_open(&again, path, 1, &of, &seed, &e) == ERR_INPUT && strstr(e.msg, "in use"));
    results_close(&again);
    CHECK(results_open(&again, path, 0, &of, &seed, &e) == ERR_USAGE && strstr(e.msg, "--resume continues it"));
    results_close(&again);
    results_close(&r);
    CHECK(unlink(partial) == 0 && save(path, "private", 7) && chmod(path, 0600) == 0);
    CHECK(results_open(&r, path, 1, &of, &seed, &e) == ERR_INPUT); /* nothing to go on from */
    results_close(&r);
    CHECK(results_open(&r, path, 0, &of, &seed, &e) == 0 && lines(&r, 0, 2, 0) == 0);
    CHECK(stat(partial, &st) == 0 && (st.st_mode & 0777) == 0600 && results_commit(&r, &e) == 0);
    results_close(&r);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
}

/* What nobody synced by name is kept after 64 KiB or a second. */
static void by_itself(void)
{
    struct results r = { 0 };
    uint64_t seed = 1;
    unlink(partial);
    CHECK(results_open(&r, path, 0, &of, &seed, &e) == 0 && lines(&r, 0, 2000, 0) == 0);
    CHECK(r.made > 1000 && r.made < 2000);
    sleep(1);
    CHECK(lines(&r, 2000, 2001, 0) == 0 && r.made == 2001);
    results_close(&r);
    CHECK(results_open(&r, path, 1, &of, &seed, &e) == 0 && r.n == 2001);
    results_close(&r);
}

int main(void)
{
    struct results r = { 0 };
    uint64_t seed = UINT64_MAX - 2;
    log_set_level(LOG_WARN);
    test_path(path, sizeof path, "thermo-results-%d", (int)getpid());
    snprintf(partial, sizeof partial, "%s.partial", path);
    CHECK(results_open(&r, path, 0, &of, &seed, &e) == 0 && lines(&r, 0, LINES, 0) == 0 && results_commit(&r, &e) == 0);
    results_close(&r);
    CHECK(file_slurp(path, 1 << 20, &whole, &whole_len, &e) == 0 && strstr(whole, "\"seed\":18446744073709551613}\n{\"type\":\"result\","));
    CHECK(results_open(&r, path, 0, &of, &seed, &e) == 0 && lines(&r, 0, THERE, 5) == 0 && results_sync(&r, &e) == 0);
    results_close(&r);
    CHECK(file_slurp(partial, 1 << 20, &state, &state_len, &e) == 0);
    CHECK(holds(state, state_len, "nothing", 0));
    if (whole && state) {
        damages();
        others();
        by_itself();
    }
    free(whole);
    free(state);
    unlink(path);
    unlink(partial);
    return test_done();
}
