#include "common/cli/distinct.h"
#include "tests/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct err e;

/* A point with the message that came with it. */
#define POINT(x, ...) CHECK_MSG(x, "wanted: " __VA_ARGS__)

/* What comes of writing a and reading (or also writing) b. */
static int compare(const char *a, const char *b, enum distinct_use use)
{
    struct distinct d = { 0 };
    const struct distinct_name na = { "--out", a, 1, "--in" }, nb = { "--in", b, 2, NULL };
    memset(&e, 0, sizeof e);
    int r = distinct_add(&d, &na, DISTINCT_WRITTEN, &e);
    if (r == 0 && (r = distinct_add(&d, &nb, use, &e)) == 0)
        r = distinct_check(&d, &e);
    distinct_done(&d);
    return r;
}

static void make(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

static void regular_files_only(void)
{
    POINT(compare("/dev/null", "/dev/null", DISTINCT_READ) == 0, "a device may be read and written");
    POINT(compare("/dev/null", "/dev/null", DISTINCT_WRITTEN) == 0, "and written twice");
    POINT(compare("/dev/stdout", "/dev/stdout", DISTINCT_WRITTEN) == 0, "so may standard output, by name");
    POINT(mkfifo("pipe", 0600) == 0 && compare("pipe", "./pipe", DISTINCT_READ) == 0, "and a pipe");
    POINT(compare(".", "./", DISTINCT_READ) == 0, "folders are for whoever opens them to refuse");
    POINT(compare("nowhere/x", "nowhere/x", DISTINCT_READ) == 0, "so is what cannot be there");
    POINT(symlink("loop", "loop") == 0 && compare("loop", "loop", DISTINCT_READ) == 0, "and a loop of links");
}

static void same_and_not(void)
{
    make("a");
    make("b");
    POINT(compare("a", "b", DISTINCT_READ) == 0 && compare("x", "y", DISTINCT_WRITTEN) == 0, "two files are two");
    POINT(compare("a", "./a", DISTINCT_READ) == ERR_USAGE && strstr(e.msg, "--out 'a'") && strstr(e.msg, "--in './a'") &&
           strstr(e.msg, "leave --out out"), "one file is refused, with both names and how it is changed in place: %s", e.msg);
    POINT(compare("new", "./new", DISTINCT_WRITTEN) == ERR_USAGE && strstr(e.msg, "twice"), "a new one too: %s", e.msg);
    POINT(compare("m-00002-of-00002.gguf", "m-00001-of-00002.gguf", DISTINCT_READ) == ERR_USAGE &&
           strstr(e.msg, "comes with --in"), "a shard: %s", e.msg);
    POINT(compare("m-00002-of-00003.gguf", "m-00001-of-00002.gguf", DISTINCT_READ) == 0 &&
           compare("m-00002-of-99999.gguf", "m-00001-of-99999.gguf", DISTINCT_READ) == 0,
       "another set's shard is none, nor is one of more shards than there can be");
    POINT(mkdir("sub", 0700) == 0 && compare("sub/new", "new", DISTINCT_READ) == 0, "the same name in another folder is another");
}

static void groups(void)
{
    struct distinct d = { 0 };
    const struct distinct_name db = { "--db", "hw.sqlite", 1, NULL }, csv = { "--csv", "hw.sqlite-wal", 2, NULL };
    POINT(distinct_add_database(&d, &db, DISTINCT_WRITTEN, &e) == 0 && distinct_check(&d, &e) == 0,
       "a database goes with its own companions");
    POINT(distinct_add(&d, &csv, DISTINCT_READ, &e) == 0 && distinct_check(&d, &e) == ERR_USAGE,
       "which are nobody else's: %s", e.msg);
    distinct_done(&d);
}

int main(void)
{
    char dir[4096], clean[4200];
    test_path(dir, sizeof dir, "thermo-distinct-XXXXXX");
    if (!mkdtemp(dir) || chdir(dir) < 0)
        return 1;
    same_and_not();
    regular_files_only();
    groups();
    snprintf(clean, sizeof clean, "rm -rf '%s'", dir);
    return chdir("/") < 0 || system(clean) ? 1 : test_done();
}
