/* Runs a fuzz target over its corpus under any compiler: every file as it is, cut short at up to CUTS places, and
 * with single bytes changed at up to FLIPS places, spread evenly over the file and dense at its start, where
 * headers are. What a sanitizer or a signal stops is the failure; the point of a file is that it came through.
 *
 *   fuzz_NAME [FILE...]        default: tests/fuzz/corpus/NAME/ */
#include "tests/fuzz/fuzz.h"
#include "tests/test.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { CUTS = 400, FLIPS = 1200, DENSE = 256, LIMIT = 1 << 22 };

/* Exactly size bytes on the heap, so that a checker sees one byte too far. */
static void feed(const uint8_t *data, size_t size, size_t flip_at, uint8_t mask)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    if (flip_at < size)
        copy[flip_at] ^= mask;
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

/* The i-th of n places in a file of size bytes. */
static size_t place(size_t i, size_t n, size_t size)
{
    if (i < DENSE || size <= n)
        return i;
    return DENSE + (size_t)((double)(i - DENSE) / (double)(n - DENSE) * (double)(size - DENSE));
}

static int replay(const char *path)
{
    static const uint8_t masks[] = { 0x01, 0x80, 0xff };
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(LIMIT);
    if (!f || !data) {
        free(data);
        if (f)
            fclose(f);
        return 0;
    }
    size_t size = fread(data, 1, LIMIT, f);
    fclose(f);
    feed(data, size, size, 0);
    for (size_t i = 0; i < CUTS && place(i, CUTS, size) < size; i++)
        feed(data, place(i, CUTS, size), size, 0);
    for (size_t i = 0; i < FLIPS && place(i, FLIPS, size) < size; i++)
        feed(data, size, place(i, FLIPS, size), masks[i % sizeof masks]);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    char path[1024];
    for (int i = 1; i < argc; i++)
        CHECK_MSG(replay(argv[i]), "%s", argv[i]);
    if (argc == 1) {
        char dir[512];
        snprintf(dir, sizeof dir, "tests/fuzz/corpus/%s", strncmp(name, "fuzz_", 5) == 0 ? name + 5 : name);
        DIR *d = opendir(dir);
        CHECK_MSG(d != NULL, "no corpus in %s", dir);
        for (struct dirent *entry; d && (entry = readdir(d));) {
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
            printf("# %s\n", path);
            fflush(stdout); /* after a crash the log names the file */
            CHECK(replay(path));
        }
        if (d)
            closedir(d);
    }
    return test_done();
}
