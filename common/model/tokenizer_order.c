/* The trie of a vocabulary's texts, implicit: ids sorted by text, so that those whose texts share a beginning stand side by side, and a
 * text that is the beginning of others stands before them. A byte more narrows that range by two binary searches. It takes four bytes a
 * token and no nodes; sorting (a heap, in place) takes no memory. */
#include "common/model/tokenizer_impl.h"

#include <string.h>

static bool precedes(const struct tokenizer *t, uint32_t a, uint32_t b)
{
    size_t la = tokenizer_text_len(t, a), lb = tokenizer_text_len(t, b);
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
