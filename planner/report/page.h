#ifndef PLANNER_REPORT_PAGE_H
#define PLANNER_REPORT_PAGE_H

/* Text that grows: markup as it is written, and strings from anywhere, escaped for HTML, SVG and their attributes.
 * A failed allocation sticks and is reported at the end. One owner thread. */
#include "common/base/err.h"

#include <stddef.h>

struct page {
    char *at;
    size_t n, cap;
    int failed;
};

/* Markup. Its %s take constants of the program only; what comes from files goes through page_text. */
void page_put(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Text: < > & " ' become references, bytes that are no UTF-8 and what print_acts names U+FFFD. NULL is nothing. */
void page_text(struct page *p, const char *text);
void page_textf(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* at most 500 bytes */

/* All of it to a file, atomically. */
int page_write(const struct page *p, const char *path, struct err *e);
void page_done(struct page *p); /* accepts a zeroed one */

#endif
