/* The child of vfork() makes the one system call and leaves: with a signal where a filter kills for it. */
#include "common/base/uring.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425 /* the same number on all processors */
#endif

int uring_may_be_tried(void)
{
    int status = 0;
    pid_t r, child = vfork();
    if (child == 0) {
        syscall(SYS_io_uring_setup, 0, NULL); /* no entries: EINVAL where it is there */
        _exit(0);
    }
    if (child < 0)
        return 0;
    while ((r = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        continue;
    return r == child && !WIFSIGNALED(status);
}
