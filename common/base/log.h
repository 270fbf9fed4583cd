#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

/* Levelled log to stderr: "thermo-run: warning: ...". stdout is data and is never written here.
 * The level is one of the two process-wide settings (the other is the kernel table); set it
 * before threads start. Thread-safe: one write per line. Colour only on a terminal and only
 * when NO_COLOR is not set. A line is one line: control characters of what it is made from are escaped (print.h). */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_init(const char *program, enum log_level level);
void log_set_level(enum log_level level);
enum log_level log_get_level(void);
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
