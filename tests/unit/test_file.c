#include "common/base/file.h"
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[256], path[300];
static struct err e;

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static int holds(const char *want)
{
    char *text;
    size_t len;
    if (file_slurp(path, 1 << 20, &text, &len, &e) < 0)
        return 0;
    int same = len == strlen(want) && memcmp(text, want, len + 1) == 0;
    free(text);
    return same;
}

/* Entries of the directory, without . and .. */
static int entries(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void test_read(void)
{
    struct file f = { 0 };
    char buf[8];
    char *text;
    size_t len;
    file_close(&f); /* a zeroed one: stdin must stay open */
    CHECK(fcntl(0, F_GETFD) >= 0);
    put("0123456789");
    CHECK(file_open(&f, path, &e) == 0 && f.size == 10);
    CHECK(file_pread(&f, buf, 4, 6, &e) == 0 && memcmp(buf, "6789", 4) == 0);
    CHECK(file_pread(&f, buf, 5, 6, &e) == ERR_FORMAT && strstr(e.msg, "ends at byte 10") && strstr(e.msg, path));
    CHECK(file_pread(&f, buf, 1, UINT64_MAX, &e) == ERR_FORMAT);
    file_close(&f);
    file_close(&f);
    CHECK(f.fd == -1);
    CHECK(file_slurp(path, 10, &text, &len, &e) == 0 && len == 10 && text[10] == '\0');
    free(text);
    CHECK(file_slurp(path, 9, &text, &len, &e) == ERR_LIMIT && strstr(e.msg, "10 bytes"));
    put("");
    CHECK(file_open(&f, path, &e) == 0 && f.size == 0);
    file_close(&f);
    CHECK(file_open(&f, dir, &e) == ERR_INPUT && strstr(e.msg, "directory"));
    CHECK(file_open(&f, "/no/such", &e) == ERR_INPUT && strstr(e.msg, "/no/such") && e.sys != 0);
    unlink(path);
    CHECK(mkfifo(path, 0600) == 0 && file_open(&f, path, &e) == ERR_INPUT);
    unlink(path);
}

static void test_write(void)
{
    struct file_out o;
    struct stat st;
    umask(022);
    CHECK(file_out_open(&o, path, &e) == 0 && access(path, F_OK) < 0 && entries() == 1);
    CHECK(file_out_write(&o, "abc", 3, &e) == 0 && file_out_zeros(&o, 5, &e) == 0 && o.pos == 5);
    CHECK(file_out_write(&o, "de", 2, &e) == 0 && file_out_pwrite(&o, "XY", 2, 3, &e) == 0 && o.pos == 7);
    CHECK(file_out_commit(&o, &e) == 0 && holds("abcXYde") && entries() == 1);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0644);
    file_out_abort(&o);
    CHECK(file_out_open(&o, path, &e) == 0 && file_out_write(&o, "new", 3, &e) == 0);
    file_out_abort(&o);
    file_out_abort(&o);
    CHECK(holds("abcXYde") && entries() == 1);

    /* A link stays a link; its target changes. */
    char link_path[400];
    snprintf(link_path, sizeof link_path, "%s/link", dir);
    CHECK(symlink(path, link_path) == 0 && file_out_open(&o, link_path, &e) == 0);
    CHECK(file_out_write(&o, "via", 3, &e) == 0 && file_out_commit(&o, &e) == 0 && holds("via"));
    CHECK(lstat(link_path, &st) == 0 && S_ISLNK(st.st_mode));
    unlink(link_path);

    CHECK(file_out_open(&o, "/dev/null", &e) == ERR_USAGE && file_out_open(&o, dir, &e) == ERR_USAGE);
    CHECK(file_out_open(&o, "/no/such/dir/x", &e) == ERR_SYS && strstr(e.msg, "/no/such/dir/x"));

    struct file_out many[FILE_OUT_MAX + 1];
    int open_n = 0;
    while (open_n <= FILE_OUT_MAX && file_out_open(&many[open_n], path, &e) == 0)
        open_n++;
    CHECK(open_n == FILE_OUT_MAX && e.code == ERR_LIMIT && entries() == FILE_OUT_MAX + 1);
    for (int i = 0; i < open_n; i++)
        file_out_abort(&many[i]);
    CHECK(entries() == 1 && holds("via"));
}

/* Past the page cache or not, the bytes are those that were appended, whatever the pieces. */
static void test_direct(void)
{
    enum { N = (9 << 20) + 123 };
    struct file_out o;
    char *all = malloc(N), *back;
    size_t len;
    for (size_t i = 0; i < N; i++)
        all[i] = (char)(i * 2654435761u >> 13);
    for (int pwrites = 0; pwrites < 2; pwrites++) {
        int r = file_out_open(&o, path, &e);
        file_out_direct(&o);
        for (size_t at = 0, n = 1; r == 0 && at < N; at += n, n = n * 3 % 1000003) {
            n = n < N - at ? n : N - at;
            r = file_out_write(&o, all + at, n, &e);
            if (pwrites && r == 0 && at < (6 << 20) && at + n >= (6 << 20))
                r = file_out_pwrite(&o, all + 7, 5, 7, &e);
        }
        CHECK(r == 0 && o.pos == N && file_out_commit(&o, &e) == 0);
        CHECK(file_slurp(path, N, &back, &len, &e) == 0 && len == N && memcmp(back, all, N) == 0);
        free(back);
    }
    CHECK(file_out_open(&o, path, &e) == 0);
    file_out_direct(&o);
    CHECK(file_out_write(&o, all, N, &e) == 0);
    file_out_abort(&o);
    CHECK(entries() == 1);
    free(all);
    put("via");
}

/* A child holds an unfinished file; sig arrives, a second time once it has seen the first. Its exit status as waitpid
 * gives it. */
static int child_gets(int sig, int catches, int times)
{
    int ready[2];
    if (pipe(ready) < 0)
        return -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct file_out o;
        if (catches)
            file_catch_interrupt();
        if (file_out_open(&o, path, &e) < 0 || file_out_write(&o, "half", 4, &e) < 0 || write(ready[1], "x", 1) != 1)
            _exit(9);
        for (int i = 0; i < 6000 && !file_interrupted(); i++)
            usleep(10000);
        for (int i = 0; i < 6000 && times == 2 && (i > 0 || write(ready[1], "y", 1) == 1); i++)
            usleep(10000);
        file_out_abort(&o);
        _exit(7);
    }
    char c;
    int status = -1;
    close(ready[1]);
    for (int i = 0; i < times && read(ready[0], &c, 1) == 1; i++)
        kill(pid, sig);
    waitpid(pid, &status, 0);
    close(ready[0]);
    return status;
}

static void test_signals(void)
{
    int s = child_gets(SIGTERM, 0, 1);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGTERM && entries() == 1 && holds("via"));
    s = child_gets(SIGINT, 0, 1);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGINT && entries() == 1);
    s = child_gets(SIGINT, 1, 1);
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 7 && entries() == 1);
    s = child_gets(SIGINT, 1, 2);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGINT && entries() == 1 && holds("via"));
}

static void test_free_bytes(void)
{
    uint64_t n = 0, m = 0;
    char missing[400];
    snprintf(missing, sizeof missing, "%s/missing", dir);
    CHECK(file_free_bytes(dir, &n, &e) == 0 && n > 0);
    CHECK(file_free_bytes(missing, &m, &e) == 0 && m > 0);
    CHECK(file_free_bytes("missing-in-cwd", &m, &e) == 0);
    CHECK(file_free_bytes("/no/such/dir/x", &m, &e) == ERR_SYS);
    CHECK(file_enough_space(missing, 1, &e) == 0 && file_enough_space(missing, UINT64_MAX, &e) == ERR_SYS);
    CHECK_MSG(strstr(e.msg, missing) && strstr(e.msg, "are needed there and"), "%s", e.msg);
}

static unsigned mode_of(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 ? st.st_mode & 0777 : 0xffff;
}

/* A file that is replaced keeps its mode, and the new one is nobody else's before it has it. */
static void test_modes(void)
{
    struct file_out o;
    mode_t mask = umask(027);
    unlink(path);
    CHECK(file_replace(path, "new", 3, &e) == 0 && mode_of(path) == 0640);
    CHECK(chmod(path, 0604) == 0 && file_replace(path, "again", 5, &e) == 0 && mode_of(path) == 0604 && holds("again"));
    CHECK(chmod(path, 0600) == 0 && file_out_open(&o, path, &e) == 0 && mode_of(o.tmp) == 0600);
    CHECK(file_out_write(&o, "x", 1, &e) == 0 && chmod(path, 0606) == 0 && file_out_commit(&o, &e) == 0 && mode_of(path) == 0606);
    if (geteuid() == 0) {
        struct stat st;
        CHECK(chown(path, 1234, 2345) == 0 && file_replace(path, "whose", 5, &e) == 0);
        CHECK(stat(path, &st) == 0 && st.st_uid == 1234 && st.st_gid == 2345 && mode_of(path) == 0606);
    }
    umask(mask);
    unlink(path);
}

/* A file that is kept is written under no name; and one that comes to be it while its successor is written is not replaced. */
static void test_kept(void)
{
    struct file_out o;
    struct stat st;
    char other[400], name[400];
    put("needed");
    CHECK(stat(path, &st) == 0 && file_keep(&st, "--in 'needed'", &e) == 0 && file_keep(&st, "--in 'needed'", &e) == 0);
    snprintf(other, sizeof other, "%s.other", path);
    CHECK(file_replace(path, "x", 1, &e) == ERR_USAGE && strstr(e.msg, "--in 'needed' are the same file"));
    CHECK(link(path, other) == 0 && file_replace(other, "x", 1, &e) == ERR_USAGE && unlink(other) == 0);
    CHECK(symlink(path, other) == 0 && file_replace(other, "x", 1, &e) == ERR_USAGE && unlink(other) == 0);
    snprintf(name, sizeof name, "/proc/self/root%s", path);
    CHECK(file_replace(name, "x", 1, &e) == ERR_USAGE);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    CHECK(fd >= 0 && file_replace(name, "x", 1, &e) == ERR_USAGE && file_out_open(&o, name, &e) == ERR_USAGE);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    CHECK(file_replace(name, "x", 1, &e) == ERR_USAGE && file_open_in_place(name, &e) == ERR_USAGE);
    close(fd);
    CHECK(file_out_open(&o, other, &e) == 0 && file_out_write(&o, "x", 1, &e) == 0 && link(path, other) == 0);
    CHECK(file_out_commit(&o, &e) == ERR_USAGE && unlink(other) == 0 && holds("needed") && entries() == 1);
}

int main(void)
{
    test_path(dir, sizeof dir, "test-file-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/file", dir);
    test_read();
    test_write();
    test_direct();
    test_signals();
    test_free_bytes();
    test_modes();
    test_kept();
    unlink(path);
    rmdir(dir);
    return test_done();
}
