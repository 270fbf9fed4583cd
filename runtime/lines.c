#include "runtime/lines.h"

#include "common/base/file.h"

#include <errno.h>
#include <stdlib.h>

int lines_open(struct lines *l, FILE *file, size_t cap, struct err *e)
{
    *l = (struct lines){ .file = file, .text = malloc(cap), .cap = cap };
    return l->text ? 0 : err_set(e, ERR_NOMEM, "out of memory for a line of %zu bytes", cap);
}

void lines_close(struct lines *l)
{
    free(l->text);
    *l = (struct lines){ 0 };
}

int lines_next(struct lines *l, struct err *e)
{
    size_t all = 0, nuls = 0;
    int c;
    errno = 0;
    for (; (c = getc(l->file)) != EOF && c != '\n'; all++) {
        if (file_go_on_at(all, e) < 0)
            return e->code;
        nuls += c == 0;
        if (all < l->cap - 1)
            l->text[all] = (char)c;
    }
    l->len = all < l->cap ? all : l->cap - 1;
    l->text[l->len] = '\0';
    if (c == EOF && ferror(l->file)) {
        int interrupted = errno == EINTR;
        err_sys(e, interrupted ? ERR_INTR : ERR_INPUT, "reading standard input");
        if (interrupted)
            clearerr(l->file);
        return e->code;
    }
    if (c == EOF && all == 0)
        return 0;
    l->n++;
    if (all >= l->cap)
        return err_set(e, ERR_LIMIT, "line %llu of standard input has %zu bytes; the context has room for %zu", (unsigned long long)l->n,
                       all, l->cap - 1);
    return nuls ? err_set(e, ERR_INPUT, "a message holds a NUL byte") : 1;
}
