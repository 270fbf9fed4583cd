#include "runtime/kept.h"

#include <stdlib.h>
#include <string.h>

int kept_add(struct kept *k, const char *text, size_t len, struct err *e)
{
    if (k->len + len + 1 > k->cap) {
        size_t cap = k->cap + k->cap / 2 > k->len + len + 64 ? k->cap + k->cap / 2 : k->len + len + 64;
        char *grown = realloc(k->s, cap);
        if (!grown)
            return err_set(e, ERR_NOMEM, "out of memory for a text");
        k->s = grown;
        k->cap = cap;
    }
    memcpy(k->s + k->len, text, len);
    k->len += len;
    k->s[k->len] = '\0';
    return 0;
}

void kept_free(struct kept *k)
{
    free(k->s);
    *k = (struct kept){ 0 };
}

