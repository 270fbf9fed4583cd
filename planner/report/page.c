/* One buffer that doubles. */
#include "planner/report/page.h"

#include "common/base/file.h"
#include "common/base/print.h"
#include "common/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for more bytes and a NUL; 0 when there is none. */
static int room(struct page *p, size_t more)
{
    if (p->failed)
        return 0;
    if (p->n + more + 1 > p->cap) {
        size_t cap = p->cap ? p->cap : 4096;
        while (cap < p->n + more + 1)
            cap *= 2;
        char *grown = realloc(p->at, cap);
        if (!grown) {
            p->failed = 1;
            return 0;
        }
        p->at = grown;
        p->cap = cap;
    }
    return 1;
}

static void append(struct page *p, const char *s, size_t n)
{
    if (!room(p, n))
        return;
    memcpy(p->at + p->n, s, n);
    p->n += n;
    p->at[p->n] = '\0';
}

void page_put(struct page *p, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n >= 0 && room(p, (size_t)n)) {
        vsnprintf(p->at + p->n, (size_t)n + 1, fmt, again);
        p->n += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

void page_text(struct page *p, const char *text)
{
    size_t len = text ? strlen(text) : 0;
    for (size_t i = 0, k; i < len; i += k ? k : 1) {
        uint32_t c = 0;
        k = utf8_decode(text + i, len - i, &c);
        if (k == 0 || print_acts(c))
            append(p, "\xef\xbf\xbd", 3);
        else if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')
            page_put(p, "&#%u;", (unsigned)c);
        else
            append(p, text + i, k);
    }
}

void page_textf(struct page *p, const char *fmt, ...)
{
    char text[501];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    page_text(p, text);
}

int page_write(const struct page *p, const char *path, struct err *e)
{
    if (p->failed)
        return err_set(e, ERR_NOMEM, "out of memory for '%s'", path);
    return file_replace(path, p->at, p->n, e);
}

void page_done(struct page *p)
{
    free(p->at);
    *p = (struct page){ 0 };
}
