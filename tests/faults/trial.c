/* A tracer's loop. The seccomp filter stops the program at the calls of calls.c alone; there its registers say what it
 * wants, and number -1 with a result in place of it is a call that failed without being made. */
#include "tests/faults/trial.h"

#include "tests/faults/calls.h"
#include "tests/faults/power.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t running; /* for the alarm's handler */
static volatile sig_atomic_t rang;

static void on_alarm(int sig)
{
    (void)sig;
    rang = 1;
    if (running > 0)
        kill(running, SIGKILL);
}

static void set_alarm(unsigned seconds)
{
    struct sigaction a = { .sa_handler = on_alarm };
    sigemptyset(&a.sa_mask);
    sigaction(SIGALRM, &a, NULL);
    rang = 0;
    alarm(seconds);
}

static int filter_calls(void)
{
    struct sock_filter f[160];
    int list[128];
    unsigned short n = 0;
    size_t calls = calls_list(list, sizeof list / sizeof *list);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < calls; i++)
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)list[i], (unsigned char)(calls - i), 0);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog p = { n, f };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) < 0 ? -1 : 0;
}

static void __attribute__((noreturn)) start(const struct trial *t, bool traced)
{
    struct rlimit none = { 0, 0 };
    setrlimit(RLIMIT_CORE, &none);
    int in = open("/dev/null", O_RDONLY);
    if (in < 0 || chdir(t->dir) < 0 || dup2(in, 0) < 0 || dup2(t->out, 1) < 0 || dup2(t->err, 2) < 0)
        _exit(126);
    if (in > 2)
        close(in);
    if (traced && (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0 || raise(SIGSTOP) != 0 || filter_calls() < 0))
        _exit(125);
    execve(t->argv[0], (char *const *)(uintptr_t)t->argv, (char *const *)(uintptr_t)t->env);
    _exit(127);
}

#ifdef __x86_64__

struct tracer {
    struct trial *t;
    pid_t pid;
    uint64_t entry;
    long entry_word;
    bool armed;
    int64_t calls[512]; /* of each number since then */
    pid_t changed;      /* the thread whose arguments were changed for one call; 0: none */
    uint64_t rdi, rdx;  /* what they were: a program may go on using them */
};

static void describe(struct tracer *tr, pid_t tid, const struct user_regs_struct *r)
{
    struct trial *t = tr->t;
    char path[80] = "", link[40];
    if (calls_has_fd((int)r->orig_rax)) {
        snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)tr->pid, (int)r->rdi);
        ssize_t n = readlink(link, path, sizeof path - 1);
        path[n > 0 ? n : 0] = '\0';
    } else if (r->orig_rax != SYS_mmap && r->orig_rax != SYS_brk) {
        bool at = r->orig_rax == SYS_openat || r->orig_rax == SYS_newfstatat || r->orig_rax == SYS_statx;
        struct iovec to = { path, sizeof path - 1 }, from = { (void *)(at ? r->rsi : r->rdi), sizeof path - 1 };
        if (process_vm_readv(tid, &to, 1, &from, 1, 0) < 0)
            path[0] = '\0';
    }
    const char *slash = strlen(path) > 40 ? strrchr(path, '/') : path;
    snprintf(t->what, sizeof t->what, "%s(%d, %s, %llu)", trial_call_name((int)r->orig_rax), (int)r->rdi, slash,
             (unsigned long long)r->rdx);
}

static bool changes(const struct user_regs_struct *r)
{
    if (r->orig_rax == SYS_openat)
        return r->rdx & O_CREAT;
    if (r->orig_rax == SYS_open)
        return r->rsi & O_CREAT;
    return calls_changes((int)r->orig_rax) && !(calls_has_fd((int)r->orig_rax) && (int)r->rdi <= 2);
}

static void keep_record(struct trial *t, const struct user_regs_struct *r, int64_t at)
{
    int nr = (int)r->orig_rax;
    if (t->record_n == t->record_max)
        return;
    t->record[t->record_n++] = (struct trial_call){
        .nr = nr, .at = at, .fd = calls_has_fd(nr) ? (int)r->rdi : -1,
        .len = trial_is_read(nr) || trial_is_write(nr) ? r->rdx : 0, .changes = changes(r),
        .anonymous = nr == SYS_mmap && r->r10 & MAP_ANONYMOUS,
    };
}

static void follow_changes(struct tracer *tr, const struct user_regs_struct *r)
{
    int nr = (int)r->orig_rax, fd = (int)r->rdi;
    if (nr == SYS_fsync || nr == SYS_fdatasync)
        power_synced(tr->pid, fd);
    else if (calls_has_fd(nr) && changes(r))
        power_before_change(tr->pid, fd);
    /* O_TRUNC is not followed: no writer of ours opens what exists with it. */
}

static void change_arguments(struct tracer *tr, pid_t tid, struct user_regs_struct *r, uint64_t rdi, uint64_t rdx)
{
    tr->changed = tid;
    tr->rdi = r->rdi;
    tr->rdx = r->rdx;
    r->rdi = rdi;
    r->rdx = rdx;
    ptrace(PTRACE_SETREGS, tid, 0, r);
}

/* At the end of that call. */
static void restore_arguments(struct tracer *tr, pid_t tid)
{
    struct user_regs_struct r;
    if (tid != tr->changed || ptrace(PTRACE_GETREGS, tid, 0, &r) < 0)
        return;
    r.rdi = tr->rdi;
    r.rdx = tr->rdx;
    ptrace(PTRACE_SETREGS, tid, 0, &r);
    tr->changed = 0;
}

static void refuse(struct tracer *tr, pid_t tid, struct user_regs_struct *r)
{
    if (r->orig_rax == SYS_brk) { /* it gives no error, but the end that the heap has */
        change_arguments(tr, tid, r, 0, r->rdx);
        return;
    }
    r->orig_rax = (unsigned long long)-1;
    r->rax = (unsigned long long)-(long)tr->t->error;
    ptrace(PTRACE_SETREGS, tid, 0, r);
}

static void at_call(struct tracer *tr, pid_t tid)
{
    struct trial *t = tr->t;
    struct user_regs_struct r;
    if (!tr->armed || ptrace(PTRACE_GETREGS, tid, 0, &r) < 0)
        return;
    int nr = (int)r.orig_rax;
    int64_t call = tr->calls[nr & 511]++;
    if (t->record)
        keep_record(t, &r, call);
    if (t->kind == TRIAL_NONE || t->kind == TRIAL_ALLOC)
        return;
    if (nr == t->want && call == t->at) {
        t->fired = true;
        t->nr = nr;
        t->fd = calls_has_fd(t->nr) ? (int)r.rdi : -1;
        describe(tr, tid, &r);
        if (t->kind == TRIAL_KILL || t->kind == TRIAL_POWER) {
            kill(tr->pid, SIGKILL);
        } else if (t->kind == TRIAL_SHORT) {
            change_arguments(tr, tid, &r, r.rdi, r.rdx / 2);
        } else {
            refuse(tr, tid, &r);
        }
        return;
    }
    if (t->kind == TRIAL_POWER && !t->fired)
        follow_changes(tr, &r);
    else if (t->kind == TRIAL_CALL && t->on && t->fired && nr == t->nr &&
             !(trial_is_write(t->nr) && (int)r.rdi == 2))
        refuse(tr, tid, &r);
}

/* A breakpoint at the entry point. */
static void at_exec(struct tracer *tr)
{
    char path[40];
    Elf64_auxv_t v;
    snprintf(path, sizeof path, "/proc/%d/auxv", (int)tr->pid);
    FILE *f = fopen(path, "rb");
    while (f && fread(&v, sizeof v, 1, f) == 1)
        if (v.a_type == AT_ENTRY)
            tr->entry = v.a_un.a_val;
    if (f)
        fclose(f);
    tr->entry_word = ptrace(PTRACE_PEEKTEXT, tr->pid, tr->entry, 0);
    ptrace(PTRACE_POKETEXT, tr->pid, tr->entry, (tr->entry_word & ~0xffl) | 0xcc);
}

static bool at_entry(struct tracer *tr)
{
    struct user_regs_struct r;
    if (tr->armed || ptrace(PTRACE_GETREGS, tr->pid, 0, &r) < 0 || r.rip != tr->entry + 1)
        return false;
    ptrace(PTRACE_POKETEXT, tr->pid, tr->entry, tr->entry_word);
    r.rip = tr->entry;
    ptrace(PTRACE_SETREGS, tr->pid, 0, &r);
    tr->armed = true;
    return true;
}

/* Where it crashed: the module and the place in its file, for addr2line. */
static void at_crash(struct tracer *tr, pid_t tid)
{
    struct trial *t = tr->t;
    struct user_regs_struct r;
    char path[40], line[512], file[256];
    unsigned long a, b, offset;
    size_t len = strlen(t->what);
    snprintf(path, sizeof path, "/proc/%d/maps", (int)tr->pid);
    FILE *f = ptrace(PTRACE_GETREGS, tid, 0, &r) < 0 ? NULL : fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %255s", &a, &b, &offset, file) == 4 && r.rip >= a && r.rip < b) {
            const char *slash = strrchr(file, '/');
            snprintf(t->what + len, sizeof t->what - len, " crashed in %s+0x%llx", slash ? slash + 1 : file,
                     (unsigned long long)(r.rip - a + offset));
        }
    if (f)
        fclose(f);
}

static void at_stop(struct tracer *tr, pid_t tid, int status)
{
    int sig = WSTOPSIG(status), event = status >> 16;
    if (event == PTRACE_EVENT_SECCOMP)
        at_call(tr, tid);
    else if (event == PTRACE_EVENT_EXEC)
        at_exec(tr);
    if (!event && (sig == SIGSEGV || sig == SIGABRT || sig == SIGBUS || sig == SIGFPE || sig == SIGILL))
        at_crash(tr, tid);
    if (event || sig == SIGSTOP || (sig == SIGTRAP && at_entry(tr)))
        sig = 0;
    if (sig == (SIGTRAP | 0x80)) {
        restore_arguments(tr, tid);
        sig = 0;
    }
    ptrace(tid == tr->changed ? PTRACE_SYSCALL : PTRACE_CONT, tid, 0, sig);
}

static int trace(struct trial *t, pid_t pid)
{
    struct tracer tr = { .t = t, .pid = pid };
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    int status;
    if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status) || ptrace(PTRACE_SETOPTIONS, pid, 0, options) < 0) {
        snprintf(t->what, sizeof t->what, "programs cannot be traced here");
        kill(pid, SIGKILL);
        return -1;
    }
    ptrace(PTRACE_CONT, pid, 0, 0);
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == EINTR)
            continue;
        if (tid < 0)
            return -1;
        if (WIFSTOPPED(status))
            at_stop(&tr, tid, status);
        else if (tid == pid)
            break;
    }
    t->status = status;
    if (!tr.armed) {
        snprintf(t->what, sizeof t->what, "'%s' cannot be started and traced here", t->argv[0]);
        return -1;
    }
    return 0;
}

#else

static int trace(struct trial *t, pid_t pid)
{
    snprintf(t->what, sizeof t->what, "calls are traced on x86_64 alone");
    kill(pid, SIGKILL);
    waitpid(pid, &t->status, 0);
    return -1;
}

#endif

int trial_run(struct trial *t)
{
    bool traced = t->kind > TRIAL_ALLOC || t->record;
#ifdef __x86_64__
    traced |= t->kind == TRIAL_ALLOC; /* to say where it crashed */
#endif
    int r = 0;
    t->fired = t->late = false;
    t->record_n = 0;
    t->what[0] = '\0';
    t->nr = t->fd = -1;
    running = fork();
    if (running < 0)
        return -1;
    if (running == 0)
        start(t, traced);
    set_alarm(TRIAL_SECONDS);
    if (traced)
        r = trace(t, running);
    else
        while ((r = waitpid(running, &t->status, 0) < 0 ? -1 : 0) < 0 && errno == EINTR)
            ;
    alarm(0);
    running = 0;
    t->late = rang;
    if (t->kind == TRIAL_POWER) {
        char out[512];
        snprintf(out, sizeof out, "%s/out", t->dir);
        if (r == 0)
            power_lose(out);
        power_forget();
    }
    return r;
}
