/* Lines are formatted into a local buffer and leave in one write(2), so that lines of several threads do not
 * mix and nothing is buffered when the process dies. A line stands after what was printed before it, never in the
 * middle of a line of it. The level is atomic only to keep thread checkers quiet: it is set before threads start. */
#include "common/base/log.h"

#include "common/base/print.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char name[64] = "thermo";
static atomic_int level = LOG_INFO;
static int colour;

static const struct {
    const char *word, *colour;
} labels[] = {
    [LOG_ERROR] = { "error: ", "\033[1;31m" },
    [LOG_WARN] = { "warning: ", "\033[1;33m" },
    [LOG_INFO] = { "", "" },
    [LOG_DEBUG] = { "debug: ", "\033[2m" },
};

void log_init(const char *program, enum log_level l)
{
    const char *no_colour = getenv("NO_COLOR");
    snprintf(name, sizeof name, "%s", program);
    atomic_store(&level, (int)l);
    colour = isatty(STDERR_FILENO) && !(no_colour && *no_colour);
}

void log_set_level(enum log_level l)
{
    atomic_store(&level, (int)l);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load_explicit(&level, memory_order_relaxed);
}

static void put(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nowhere left to complain */
        text += n;
        len -= (size_t)n;
    }
}

__attribute__((format(printf, 2, 0))) static void emit(enum log_level l, const char *fmt, va_list ap)
{
    char text[2048], line[4096];
    int saved = errno;
    if (l > log_get_level())
        return;
    const char *on = colour ? labels[l].colour : "", *off = *on ? "\033[0m" : "";
    int n = snprintf(line, sizeof line, "%s%s: %s%s%s", print_yields() ? "\n" : "", name, on, labels[l].word, off);
    size_t len = (size_t)n;
    if (print_into_va(text, sizeof text, fmt, ap) > 0)
        len += print_escape(line + len, sizeof line - len - 1, text, strlen(text));
    line[len++] = '\n';
    put(line, len);
    errno = saved;
}

#define LOG_FUNCTION(fn, l)          \
    void fn(const char *fmt, ...)    \
    {                                \
        va_list ap;                  \
        va_start(ap, fmt);           \
        emit(l, fmt, ap);            \
        va_end(ap);                  \
    }

LOG_FUNCTION(log_error, LOG_ERROR)
LOG_FUNCTION(log_warn, LOG_WARN)
LOG_FUNCTION(log_info, LOG_INFO)
LOG_FUNCTION(log_debug, LOG_DEBUG)
