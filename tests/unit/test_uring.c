/* Whether io_uring may be tried: yes here; no where a filter of system calls kills for it, and whoever asks lives on. */
#include "common/base/uring.h"
#include "tests/test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIVES = 3, NO_FILTER = 77 };

/* In a process of its own, for filters stay. action: of the filter for io_uring_setup. Its answer + LIVES. */
static int ask_behind(unsigned action)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 425, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, action),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog all = { sizeof code / sizeof *code, code };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) < 0)
            _exit(NO_FILTER);
        _exit(LIVES + uring_may_be_tried());
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
    int killed = ask_behind(SECCOMP_RET_KILL_PROCESS);
    if (killed == NO_FILTER)
        return 77;
    CHECK_MSG(killed == LIVES, "%d", killed);
    CHECK(ask_behind(SECCOMP_RET_TRAP) == LIVES);
    CHECK(ask_behind(SECCOMP_RET_ERRNO | EPERM) == LIVES + 1);
    CHECK(ask_behind(SECCOMP_RET_ALLOW) == LIVES + 1);
    return test_done();
}
