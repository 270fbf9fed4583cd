/* Small files written in one go, and standard output. What is no regular file cannot be replaced: a device or a pipe is
 * written as it is, and a path that names an open descriptor is that descriptor, wherever it leads. */
#include "common/base/file.h"

#include "common/base/print.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_descriptor_of(const char *path)
{
    static const char *const folders[] = { "/dev/fd/", "/proc/self/fd/" };
    if (!strcmp(path, "/dev/stdout"))
        return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr"))
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *n = path + strlen(folders[i]);
        if (!strncmp(path, folders[i], strlen(folders[i])) && isdigit((unsigned char)*n) && strlen(n) < 6)
            return atoi(n);
    }
    return -1;
}

static int write_all(int fd, const char *path, const char *p, size_t len, struct err *e)
{
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, ERR_SYS, "writing '%s'", path);
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* A terminal gets what print_data gives one. */
static int write_terminal(int fd, const char *path, const char *p, size_t len, struct err *e)
{
    char text[4096];
    size_t n = 0;
    int r = 0;
    for (size_t i = 0; i < len && r == 0;) {
        i += print_terminal_piece(p + i, len - i, text + n);
        n += strlen(text + n);
        if (n > sizeof text - PRINT_PIECE || i == len) {
            r = write_all(fd, path, text, n, e);
            n = 0;
        }
    }
    return r;
}

int file_open_in_place(const char *path, struct err *e)
{
    struct stat st;
    int named = file_descriptor_of(path);
    int fd = named >= 0 ? fcntl(named, F_DUPFD_CLOEXEC, 0) : open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, ERR_SYS, "cannot write '%s'", path);
    int r = fstat(fd, &st) < 0 ? err_sys(e, ERR_SYS, "cannot write '%s'", path) : file_may_write(&st, path, e);
    if (r < 0)
        close(fd);
    return r < 0 ? r : fd;
}

static int write_as_is(const char *path, const void *data, size_t len, struct err *e)
{
    int r = file_descriptor_of(path) == STDOUT_FILENO ? file_stdout(e) : 0;
    if (r < 0)
        return r;
    int fd = file_open_in_place(path, e);
    if (fd < 0)
        return fd;
    r = (isatty(fd) ? write_terminal : write_all)(fd, path, data, len, e);
    if (close(fd) < 0 && r == 0)
        r = err_sys(e, ERR_SYS, "closing '%s'", path);
    return r;
}

int file_in_place(const char *path)
{
    struct stat st;
    return file_descriptor_of(path) >= 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

int file_replace(const char *path, const void *data, size_t len, struct err *e)
{
    struct file_out o;
    if (file_in_place(path))
        return write_as_is(path, data, len, e);
    int r = file_out_open(&o, path, e);
    if (r < 0)
        return r;
    if ((r = file_out_write(&o, data, len, e)) == 0)
        return file_out_commit(&o, e);
    file_out_abort(&o);
    return r;
}

/* stdio forgets why an earlier write failed. It will most likely fail again in the same way: so it is asked with a line end,
 * which does not matter any more where part of what came before is lost. */
int file_stdout(struct err *e)
{
    static int failed;
    errno = 0;
    int bad = fflush(stdout) != 0;
    if (!failed && (bad || ferror(stdout))) {
        if (!bad) {
            errno = 0;
            bad = fputc('\n', stdout) == EOF || fflush(stdout) != 0;
        }
        failed = bad && errno ? errno : EIO;
    }
    if (!failed)
        return 0;
    errno = failed;
    return err_sys(e, ERR_SYS, "writing to standard output");
}

void file_standard(void)
{
    static const int modes[] = { O_WRONLY, O_RDONLY, O_WRONLY }; /* so that whoever uses one is told */
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) != fd)
            break; /* the lowest that is free is taken: fd, but where there is no /dev/null */
}
