/* The system calls that faults are put into, and the errors that each may give. Not among them: waiting (futex, poll,
 * nanosleep), signals, and what cannot fail for a reason outside of the program. */
#include "tests/faults/trial.h"

#include "tests/faults/calls.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

static const int of_open[] = { EACCES, EMFILE, ENOMEM, EIO, EINTR, 0 };
static const int of_read[] = { EIO, EINTR, ENOMEM, 0 };
static const int of_write[] = { ENOSPC, EIO, EINTR, 0 };
static const int of_sync[] = { EIO, ENOSPC, 0 };
static const int of_name[] = { EIO, EACCES, ENOSPC, 0 };
static const int of_look[] = { EIO, EACCES, ENOMEM, 0 };
static const int of_map[] = { ENOMEM, 0 };
static const int of_map_file[] = { ENOMEM, EACCES, 0 };
static const int of_lock[] = { ENOLCK, EINTR, 0 };
static const int of_thread[] = { EAGAIN, 0 };
static const int of_ring[] = { EPERM, ENOMEM, ENOSYS, 0 };
static const int of_enter[] = { EIO, EINTR, EAGAIN, 0 };
static const int of_other[] = { EPERM, ENOMEM, 0 };
static const int of_close[] = { EIO, EINTR, 0 };

#define CALL(n, e, f) { SYS_##n, #n, e, f }
enum { FD = 1, READS = 2, WRITES = 4, CHANGES = 8 };

static const struct call {
    int nr;
    const char *name;
    const int *errors;
    int flags;
} calls[] = {
#ifdef __x86_64__
    CALL(open, of_open, 0), CALL(creat, of_open, CHANGES), CALL(stat, of_look, 0), CALL(lstat, of_look, 0),
    CALL(access, of_look, 0), CALL(rename, of_name, CHANGES), CALL(unlink, of_name, CHANGES), CALL(link, of_name, CHANGES),
    CALL(mkdir, of_name, CHANGES), CALL(rmdir, of_name, CHANGES), CALL(readlink, of_look, 0),
#endif
    CALL(openat, of_open, 0), CALL(read, of_read, FD | READS), CALL(pread64, of_read, FD | READS),
    CALL(readv, of_read, FD), CALL(preadv, of_read, FD), CALL(write, of_write, FD | WRITES | CHANGES),
    CALL(pwrite64, of_write, FD | WRITES | CHANGES), CALL(writev, of_write, FD | CHANGES),
    CALL(pwritev, of_write, FD | CHANGES), CALL(fsync, of_sync, FD | CHANGES), CALL(fdatasync, of_sync, FD | CHANGES),
    CALL(ftruncate, of_write, FD | CHANGES), CALL(fallocate, of_write, FD | CHANGES), CALL(renameat, of_name, CHANGES),
    CALL(renameat2, of_name, CHANGES), CALL(unlinkat, of_name, CHANGES), CALL(linkat, of_name, CHANGES),
    CALL(mkdirat, of_name, CHANGES), CALL(fchmod, of_name, FD), CALL(fchown, of_name, FD), CALL(fstat, of_look, FD),
    CALL(newfstatat, of_look, 0), CALL(statx, of_look, 0), CALL(statfs, of_look, 0), CALL(fstatfs, of_look, FD),
    CALL(faccessat, of_look, 0), CALL(faccessat2, of_look, 0), CALL(readlinkat, of_look, 0), CALL(getcwd, of_look, 0),
    CALL(getdents64, of_read, FD), CALL(lseek, of_look, FD), CALL(fcntl, of_lock, FD), CALL(flock, of_lock, FD),
    CALL(close, of_close, FD), CALL(dup, of_open, FD), CALL(dup3, of_open, FD), CALL(pipe2, of_open, 0),
    CALL(mmap, of_map, 0), CALL(mremap, of_map, 0), CALL(brk, of_map, 0), CALL(madvise, of_other, 0),
    CALL(mprotect, of_map, 0), CALL(mlock, of_other, 0), CALL(fadvise64, of_other, FD), CALL(clone3, of_thread, 0),
    CALL(clone, of_thread, 0), CALL(sched_getaffinity, of_other, 0), CALL(sched_setaffinity, of_other, 0),
    CALL(ioctl, of_other, FD), CALL(sysinfo, of_other, 0), CALL(uname, of_other, 0), CALL(prctl, of_other, 0),
    CALL(io_uring_setup, of_ring, 0), CALL(io_uring_register, of_ring, FD), CALL(io_uring_enter, of_enter, FD),
};

static const struct call *find(int nr)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].nr == nr)
            return &calls[i];
    return NULL;
}

size_t calls_list(int *out, size_t max)
{
    size_t n = sizeof calls / sizeof *calls;
    for (size_t i = 0; i < n && i < max; i++)
        out[i] = calls[i].nr;
    return n < max ? n : max;
}

const char *trial_call_name(int nr)
{
    const struct call *c = find(nr);
    return c ? c->name : NULL;
}

bool trial_is_read(int nr)
{
    const struct call *c = find(nr);
    return c && c->flags & READS;
}

bool trial_is_write(int nr)
{
    const struct call *c = find(nr);
    return c && c->flags & WRITES;
}

bool calls_has_fd(int nr)
{
    const struct call *c = find(nr);
    return c && c->flags & FD;
}

bool calls_changes(int nr)
{
    const struct call *c = find(nr);
    return c && c->flags & CHANGES;
}

const int *trial_errors(const struct trial_call *c)
{
    if (c->nr == SYS_mmap && !c->anonymous)
        return of_map_file;
    return find(c->nr)->errors;
}
