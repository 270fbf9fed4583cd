#include "runtime/said.h"

#include "runtime/request.h"

#include <stdlib.h>
#include <string.h>

/* A call, and a head that is as long, may come out of what is held back at once. */
size_t said_most(int calls, int context)
{
    return SAID_BYTES + (calls ? 2 * request_call_bytes(context) : 0);
}

struct said *said_new(size_t most)
{
    struct said *s = malloc(sizeof *s + 2 * most + 1);
    if (!s)
        return NULL;
    *s = (struct said){ .most = most, .part = s->text + most + 1 };
    return s;
}

void said_copy(struct said *to, const struct said *of)
{
    to->n = of->n;
    to->taken = of->taken;
    memcpy(to->text, of->text, of->n);
    memcpy(to->part, of->part, of->n);
}

void said_put(struct said *to, const char *text, size_t len, int part)
{
    size_t room = to->most - to->n;
    len = len < room ? len : room;
    memcpy(to->text + to->n, text, len);
    memset(to->part + to->n, part, len);
    to->n += len;
}

int said_has(const struct said *s, int part)
{
    return s->n && memchr(s->part, part, s->n);
}
