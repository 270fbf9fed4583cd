/* SentencePiece's merging: start from characters, and again and again merge the adjacent pair whose
 * merged text is the token of highest score, the leftmost on ties. Candidates wait in a binary heap;
 * one that a later merge has made stale is recognised when it comes up, because the two pieces no
 * longer have its size. What is left and is no token becomes the tokens of its bytes. A space of
 * the text is the character U+2581 of the vocabulary: the vocabulary has been translated to plain
 * spaces at open, so U+2581 in a text is translated as well. */
#include "common/model/tokenizer_impl.h"

#include "common/base/file.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

size_t tokenizer_spm_text(const char *s, size_t len, char *out, bool *opaque)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        if (len - i >= 3 && !memcmp(s + i, "\xe2\x96\x81", 3)) {
            out[n++] = ' ';
            i += 3;
        } else {
            *opaque |= s[i] == ' ';
            out[n++] = s[i++];
        }
    }
    return n;
}

struct work {
    const struct tokenizer *t;
    char *text;
    struct node *nodes;
    struct candidate *heap;
    size_t n_heap;
};

static void add_candidate(struct work *w, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    uint32_t size = w->nodes[left].len + w->nodes[right].len;
    if (size > w->t->max_len)
        return;
    int32_t id = tokenizer_lookup(w->t, w->text + w->nodes[left].start, size, false);
    if (id >= 0)
        tokenizer_heap_push(w->heap, &w->n_heap,
                            (struct candidate){ -w->t->score[id], (uint32_t)left, size });
}

static int merge_all(struct work *w, struct err *e)
{
    int r = 0;
    for (uint64_t step = 0; w->n_heap > 0 && (r = file_go_on_at(step, e)) == 0; step++) {
        struct candidate c = tokenizer_heap_pop(w->heap, &w->n_heap);
        struct node *left = &w->nodes[c.left];
        if (left->len == 0 || left->next < 0)
            continue;
        struct node *right = &w->nodes[left->next];
        if (left->len + right->len != c.size)
            continue;
        left->len = c.size;
        right->len = 0;
        left->next = right->next;
        if (left->next >= 0)
            w->nodes[left->next].prev = (int32_t)c.left;
        add_candidate(w, left->prev, (int32_t)c.left);
        add_candidate(w, (int32_t)c.left, left->next);
    }
    return r;
}

static int push_bytes(const struct tokenizer *t, const char *text, size_t len, struct ids *out, struct err *e)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < len; i++) {
        int32_t id = t->byte_id[(uint8_t)text[i]];
        r = tokenizer_push(out, id >= 0 ? id : t->unk, e);
    }
    return r;
}

static int push_piece(const struct tokenizer *t, const char *text, size_t len, struct ids *out, struct err *e)
{
    int32_t id = tokenizer_lookup(t, text, len, false);
    if (id >= 0)
        return tokenizer_push(out, id, e);
    if (len == 1 && text[0] == ' ') /* a vocabulary without U+2581: its bytes */
        return push_bytes(t, "\xe2\x96\x81", 3, out, e);
    return push_bytes(t, text, len, out, e);
}

/* Copies the text with its spaces normalised and cuts it into characters. */
static int32_t split(struct work *w, const char *text, size_t len, bool space)
{
    uint32_t at = 0;
    int32_t n = 0;
    if (space) {
        w->text[at++] = ' ';
        w->nodes[n++] = (struct node){ .start = 0, .len = 1 };
    }
    for (size_t i = 0, k; i < len; i += k) {
        uint32_t code;
        k = utf8_decode(text + i, len - i, &code);
        uint32_t size = k ? (uint32_t)k : 1;
        if (k == 0)
            k = 1;
        else if (code == 0x2581)
            size = 1;
        memcpy(w->text + at, size == k ? text + i : " ", size);
        w->nodes[n++] = (struct node){ .start = at, .len = size };
        at += size;
    }
    for (int32_t i = 0; i < n; i++) {
        w->nodes[i].prev = i - 1;
        w->nodes[i].next = i + 1 < n ? i + 1 : -1;
    }
    return n;
}

int tokenizer_spm_encode(const struct tokenizer *t, const char *text, size_t len, bool space,
                         struct ids *out, struct err *e)
{
    /* One candidate per pair at first; a merge takes one and adds at most two: below 2 per node. */
    size_t n_max = len + 1;
    struct work w = { .t = t };
    w.text = malloc(n_max);
    w.nodes = malloc(n_max * sizeof *w.nodes);
    w.heap = malloc(2 * n_max * sizeof *w.heap);
    int r = 0;
    if (!w.text || !w.nodes || !w.heap) {
        r = err_set(e, ERR_NOMEM, "encoding a text of %zu bytes", len);
    } else {
        int32_t n = split(&w, text, len, space);
        for (int32_t i = 0; i + 1 < n; i++)
            add_candidate(&w, i, i + 1);
        r = merge_all(&w, e);
        for (int32_t i = n ? 0 : -1; r == 0 && i >= 0; i = w.nodes[i].next)
            r = push_piece(t, w.text + w.nodes[i].start, w.nodes[i].len, out, e);
    }
    free(w.heap);
    free(w.nodes);
    free(w.text);
    return r;
}
