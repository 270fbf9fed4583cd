/* RWKV's "world" tokenizer: at each place of a text the longest token that begins there, whatever words or characters it
 * cuts. The trie of the tokens' bytes is implicit: ids sorted by text, so that those whose texts share a beginning stand side
 * by side, and a text that is the beginning of others stands before them. A byte more narrows that range by two binary
 * searches. It takes four bytes a token, in the place that scores have in other vocabularies, and no nodes.
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

/* --- order ------------------------------------------------------------------------------- */

static size_t length(const struct tokenizer *t, uint32_t id)
{
    return t->offset[id + 1] - t->offset[id];
}

static bool precedes(const struct tokenizer *t, uint32_t a, uint32_t b)
{
    size_t la = length(t, a), lb = length(t, b);
    int c = memcmp(t->pool + t->offset[a], t->pool + t->offset[b], la < lb ? la : lb);
    return c < 0 || (c == 0 && (la < lb || (la == lb && a < b)));
}

static void sift(const struct tokenizer *t, uint32_t *heap, size_t n, size_t i)
{
    uint32_t id = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && precedes(t, heap[child], heap[child + 1]))
            child++;
        if (!precedes(t, id, heap[child]))
            break;
        heap[i] = heap[child];
    }
    heap[i] = id;
}

void tokenizer_order_sort(struct tokenizer *t)
{
    uint32_t *o = t->order;
    size_t n = t->n_order;
    for (size_t i = n / 2; i-- > 0;)
        sift(t, o, n, i);
    for (size_t k = n; k-- > 1;) {
        uint32_t last = o[k];
        o[k] = o[0];
        o[0] = last;
        sift(t, o, k, 0);
    }
}

void tokenizer_rwkv_sort(struct tokenizer *t)
{
    for (int32_t id = 0; id < t->n_vocab; id++)
        if (tokenizer_type(t, id) == TOKEN_NORMAL &&
            tokenizer_lookup(t, t->pool + t->offset[id], length(t, (uint32_t)id), false) == id)
            t->order[t->n_order++] = (uint32_t)id;
    tokenizer_order_sort(t);
}

/* --- encoding ---------------------------------------------------------------------------- */

/* The first of order[lo..hi) whose byte `depth` is not below c. All of them have that byte. */
static size_t bound(const struct tokenizer *t, size_t lo, size_t hi, size_t depth, unsigned c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)t->pool[t->offset[t->order[mid]] + depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void tokenizer_order_narrow(const struct tokenizer *t, size_t *lo, size_t *hi, size_t depth, unsigned c)
{
    *lo = bound(t, *lo, *hi, depth, c);
    *hi = bound(t, *lo, *hi, depth, c + 1);
}

int32_t tokenizer_rwkv_match(const struct tokenizer *t, const char *text, size_t len, size_t *size)
{
    int32_t best = -1;
    size_t lo = 0, hi = t->n_order;
    for (size_t depth = 0; depth < len && lo < hi; depth++) {
        tokenizer_order_narrow(t, &lo, &hi, depth, (uint8_t)text[depth]);
        if (lo < hi && length(t, t->order[lo]) == depth + 1) { /* the text so far; the others go on */
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
