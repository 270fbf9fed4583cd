#ifndef TESTS_FAULTS_TRIAL_H
#define TESTS_FAULTS_TRIAL_H

/* One run of a program with one fault in it. System calls are reached by ptrace and a seccomp filter, so those that libc and
 * other libraries make themselves are among them; counting starts at the program's entry point, after the loader. */
#include "tests/faults/shim.h"

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

enum trial_kind {
    TRIAL_NONE,   /* traced where `record` is set, nothing fails */
    TRIAL_ALLOC,  /* the allocation `at` fails */
    TRIAL_CALL,   /* the system call `at` fails with `error` */
    TRIAL_SHORT,  /* the read or write `at` moves half of the bytes, one at least */
    TRIAL_KILL,   /* SIGKILL before the system call `at` */
    TRIAL_POWER,  /* the same, and what was not synced is lost: files hold what they held at their last fsync */
};

/* What a fault-free run did. */
struct trial_call {
    int nr;         /* SYS_... */
    int64_t at;     /* how many of that number were before it */
    int fd;         /* -1: the call has none */
    uint64_t len;   /* of reads and writes */
    bool changes;   /* it changes files: a moment to be killed at */
    bool anonymous; /* mmap of no file */
};

struct trial {
    /* what to run: descriptors are given over as 1 and 2, `dir` is where it runs */
    const char *const *argv;
    const char *const *env;
    const char *dir;
    int out, err;
    /* what to break */
    enum trial_kind kind;
    int64_t at;         /* from 0; of system calls: of those with number `want` */
    int want;
    int error;
    bool on; /* from then on: later calls of the same number fail too, but those that write to descriptor 2 */
    /* a fault-free run is recorded here: room for record_max, record_n filled */
    struct trial_call *record;
    size_t record_max, record_n;
    /* what came of it */
    int status;         /* as of waitpid */
    bool late;          /* killed after TRIAL_SECONDS */
    bool fired;         /* system calls: the call was reached */
    int nr, fd;         /* of that call */
    char what[256];     /* in words */
};

enum { TRIAL_SECONDS = 100 }; /* the runtime gives a silent drive 60 */

/* 0, or -1 where tracing is not allowed here or the program cannot be started; t->what says why. */
int trial_run(struct trial *t);

/* Name of a system call that is traced; NULL for any other. */
const char *trial_call_name(int nr);
bool trial_is_read(int nr);
bool trial_is_write(int nr);

/* The errors that a call is given, zero at the end. */
const int *trial_errors(const struct trial_call *c);

#endif
