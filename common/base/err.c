/* The error object: a code to branch on and a message to read. Explicit beats thread-local: a
 * worker's error travels inside its job, and the first one wins after the join. */
#include "common/base/err.h"

#include "common/base/print.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        print_into_va(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        e->code = code;
        e->sys = 0;
    }
    return code;
}

int err_sys(struct err *e, int code, const char *fmt, ...)
{
    int saved = errno;
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        int n = print_into_va(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof e->msg)
            snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", strerror(saved));
        e->code = code;
        e->sys = saved;
    }
    return code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e)
        return ERR_SYS;
    char head[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = print_into_va(head, sizeof head - 2, fmt, ap);
    va_end(ap);
    if (n < 0)
        return e->code;
    size_t len = strlen(head);
    memcpy(head + len, ": ", 2);
    len += 2;
    size_t rest = strnlen(e->msg, sizeof e->msg - 1);
    if (rest > sizeof e->msg - 1 - len)
        rest = sizeof e->msg - 1 - len; /* the innermost detail is cut, the context stays */
    memmove(e->msg + len, e->msg, rest);
    memcpy(e->msg, head, len);
    e->msg[len + rest] = '\0';
    return e->code;
}

int err_exit_status(int code)
{
    switch (code) {
    case 0:               return 0;
    case ERR_USAGE:       return 2;
    case ERR_FORMAT:
    case ERR_UNSUPPORTED:
    case ERR_LIMIT:
    case ERR_INPUT:       return 3;
    case ERR_INFEASIBLE:  return 4;
    case ERR_MISMATCH:    return 5;
    case ERR_IO:          return 6;
    case ERR_INTR:        return 130;
    default:              return 1;
    }
}
