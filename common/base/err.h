#ifndef COMMON_BASE_ERR_H
#define COMMON_BASE_ERR_H

/* Error codes are negative so that they can share a return value with counts.
 * Callers branch on few codes; details are in the message. Each code has one exit status
 * (err_exit_status), so a program's exit code follows from where the error arose. */
enum {
    ERR_SYS         = -1,  /* a system call failed; errno is in err.sys            exit 1 */
    ERR_NOMEM       = -2,  /* out of memory                                        exit 1 */
    ERR_FORMAT      = -3,  /* the file contradicts its own format                  exit 3 */
    ERR_UNSUPPORTED = -4,  /* valid, but this build does not know it               exit 3 */
    ERR_LIMIT       = -5,  /* valid, but larger than this build accepts            exit 3 */
    ERR_INPUT       = -6,  /* an input cannot be opened or read                    exit 3 */
    ERR_USAGE       = -7,  /* the command line is wrong                            exit 2 */
    ERR_INFEASIBLE  = -8,  /* no plan, or the budget is below the floor            exit 4 */
    ERR_MISMATCH    = -9,  /* files that do not belong together                    exit 5 */
    ERR_IO          = -10, /* I/O failed while running                             exit 6 */
    ERR_INTR        = -11, /* interrupted; what was done is kept                   exit 130 */
    ERR_FULL        = -12, /* no room now: the same again, later                   exit 1 */
};

/* One error, with its message. Lives on the caller's stack; never allocates. */
struct err {
    int  code;      /* 0, or one of ERR_* */
    int  sys;       /* errno where a system call failed, else 0 */
    char msg[512];
};

/* Fill e (which may be NULL) and return code, so that callers can `return err_set(...)`.
 * The message names the file, the field, the value and the limit. */
int err_set(struct err *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set, for a failed system call: appends ": strerror(errno)" and keeps errno in e->sys.
 * code is ERR_SYS for outputs and the environment, ERR_INPUT for an input file, ERR_IO while running. */
int err_sys(struct err *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepend "context: " to the message and return the code already in e. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The process exit status for an error code: 0 for 0, else as listed above. */
int err_exit_status(int code);

#endif
