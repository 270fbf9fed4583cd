/* A bounded list of distinct remarks. */
#include "planner/inputs/notes.h"

#include "common/base/print.h"

#include <stdarg.h>
#include <string.h>

void notes_add(struct notes *n, const char *fmt, ...)
{
    if (!n || n->n == NOTES_MAX)
        return;
    char *to = n->text[n->n];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(to, sizeof n->text[0], fmt, ap);
    va_end(ap);
    for (int i = 0; i < n->n; i++)
        if (!strcmp(n->text[i], to))
            return;
    n->n++;
}
