/* RWKV's "world" tokenizer: at each place of a text the longest token that begins there, whatever words or characters it
 * cuts (tokenizer_order.c finds it; ids by text stand in the place that scores have in other vocabularies).
 * Texts in the file are written as Python writes bytes: \t, \n, \r, \xNN, and a backslash before itself and quotes. */
#include "common/model/tokenizer_impl.h"

#include <string.h>

/* --- texts in the file ------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What stands behind a backslash at s[0]: *out, and how many bytes it takes with the backslash; 0 for anything else. */
static size_t escape(const char *s, size_t len, char *out)
{
    static const char letters[] = "tnr\\'\"", meant[] = "\t\n\r\\'\"";
    if (len >= 4 && s[1] == 'x') {
        int high = hex_digit(s[2]), low = hex_digit(s[3]);
        *out = (char)(high * 16 + low);
        return high < 0 || low < 0 ? 0 : 4;
    }
    const char *at = len >= 2 && s[1] ? strchr(letters, s[1]) : NULL;
    if (!at)
        return 0;
    *out = meant[at - letters];
    return 2;
}

long tokenizer_rwkv_text(const char *s, size_t len, char *out)
{
    size_t n = 0, k;
    for (size_t i = 0; i < len; i += k, n++) {
        k = 1;
        if (s[i] != '\\')
            out[n] = s[i];
        else if ((k = escape(s + i, len - i, out + n)) == 0)
            return -1;
    }
    return (long)n;
}

void tokenizer_rwkv_sort(struct tokenizer *t)
{
    for (int32_t id = 0; id < t->n_vocab; id++)
        if (tokenizer_type(t, id) == TOKEN_NORMAL &&
            tokenizer_lookup(t, t->pool + t->offset[id], tokenizer_text_len(t, (uint32_t)id), false) == id)
            t->order[t->n_order++] = (uint32_t)id;
    tokenizer_order_sort(t);
}

/* --- encoding ---------------------------------------------------------------------------- */

int32_t tokenizer_rwkv_match(const struct tokenizer *t, const char *text, size_t len, size_t *size)
{
    int32_t best = -1;
    size_t lo = 0, hi = t->n_order;
    for (size_t depth = 0; depth < len && lo < hi; depth++) {
        tokenizer_order_narrow(t, &lo, &hi, depth, (uint8_t)text[depth]);
        if (lo < hi && tokenizer_text_len(t, t->order[lo]) == depth + 1) { /* the text so far; the others go on */
            best = (int32_t)t->order[lo++];
            *size = depth + 1;
        }
    }
    return best;
}

int tokenizer_rwkv_encode(const struct tokenizer *t, const char *text, size_t len, struct ids *out, struct err *e)
{
    int r = 0;
    for (size_t at = 0, size; r == 0 && at < len; at += size) {
        int32_t id = tokenizer_rwkv_match(t, text + at, len - at, &size);
        if (id < 0) {
            id = t->unk;
            size = 1;
        }
        r = tokenizer_push(out, id, e);
    }
    return r;
}
