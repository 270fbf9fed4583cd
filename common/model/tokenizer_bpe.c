/* BPE. A pattern cuts the text into words; in each word bytes (or characters, with SentencePiece's space) are merged
 * pairwise, the pair of lowest rank first, the leftmost on ties. Merges are pairs of token ids in a table by pair,
 * 16 bytes or so each, instead of the strings of the file. A vocabulary of tiktoken's kind has none: there a token's id is its rank. */
#include "common/model/tokenizer_impl.h"

#include "common/base/file.h"
#include "common/base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* GPT-2 writes each byte as a printable character: itself where it is one in Latin-1, else the next
 * free code point from 256 on. */
static int byte_of(uint32_t code)
{
    if ((code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xac) || (code >= 0xae && code <= 0xff))
        return (int)code;
    if (code < 256 || code > 256 + 67)
        return -1;
    uint32_t k = code - 256; /* the k-th byte that is not printable */
    if (k <= 0x20)
        return (int)k;
    if (k <= 0x20 + 34)      /* 0x7f..0xa0 */
        return (int)(k - 0x21 + 0x7f);
    return 0xad;
}

long tokenizer_bpe_bytes(const char *text, size_t len, char *out)
{
    long n = 0;
    for (size_t i = 0, k; i < len; i += k) {
        uint32_t code;
        k = utf8_decode(text + i, len - i, &code);
        int b = k ? byte_of(code) : -1;
        if (b < 0)
            return -1;
        out[n++] = (char)b;
    }
    return n;
}

static uint32_t pair_slot(const struct tokenizer *t, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) & t->merge_mask;
}

/* Rank of the merge of two tokens; -1 when there is none. */
static int64_t find_merge(const struct tokenizer *t, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return -1;
    for (uint32_t s = pair_slot(t, (uint32_t)left, (uint32_t)right);; s = (s + 1) & t->merge_mask) {
        if (t->merge_table[s] == 0)
            return -1;
        const uint32_t *m = t->merge + 2 * (size_t)(t->merge_table[s] - 1);
        if (m[0] == (uint32_t)left && m[1] == (uint32_t)right)
            return t->merge_table[s] - 1;
    }
}

/* A vocabulary's text as it stands in plain text, into out[len]; -1 where no text has it. */
long tokenizer_bpe_text(const struct tokenizer *t, const char *text, size_t len, char *out)
{
    bool opaque = false;
    if (!t->of_characters)
        return tokenizer_bpe_bytes(text, len, out);
    size_t n = tokenizer_spm_text(text, len, out, &opaque);
    return opaque ? -1 : (long)n;
}

/* One merge, "LEFT RIGHT": both sides and their concatenation are tokens, else its effect could not
 * be told by ids. One with a control token in it makes nothing. scratch holds len bytes. */
static int read_merge(struct tokenizer *t, uint32_t rank, const char *s, size_t len, char *scratch,
                      struct err *e)
{
    const char *space = len > 1 ? memchr(s + 1, ' ', len - 1) : NULL;
    size_t left_len = space ? (size_t)(space - s) : 0;
    long n1 = space ? tokenizer_bpe_text(t, s, left_len, scratch) : -1;
    long n2 = n1 > 0 ? tokenizer_bpe_text(t, space + 1, len - left_len - 1, scratch + n1) : -1;
    if (n2 <= 0)
        return err_set(e, ERR_FORMAT, "key 'tokenizer.ggml.merges': element %" PRIu32 " ('%.*s') is not two "
                       "texts with a space between", rank, len > 64 ? 64 : (int)len, s);
    int32_t left = tokenizer_lookup(t, scratch, (size_t)n1, false);
    int32_t right = tokenizer_lookup(t, scratch + n1, (size_t)n2, false);
    int32_t both = tokenizer_lookup(t, scratch, (size_t)(n1 + n2), false);
    if ((left < 0 && tokenizer_lookup(t, scratch, (size_t)n1, true) >= 0) ||
        (right < 0 && tokenizer_lookup(t, scratch + n1, (size_t)n2, true) >= 0) ||
        (both < 0 && tokenizer_lookup(t, scratch, (size_t)(n1 + n2), true) >= 0))
        return 0;
    if (left < 0 || right < 0 || both < 0)
        return err_set(e, ERR_UNSUPPORTED, "key 'tokenizer.ggml.merges': element %" PRIu32 " ('%.*s'): %s not a "
                       "token", rank, len > 64 ? 64 : (int)len, s,
                       left < 0 ? "the left side is" : right < 0 ? "the right side is" : "the merged text is");
    t->merge[2 * (size_t)rank] = (uint32_t)left;
    t->merge[2 * (size_t)rank + 1] = (uint32_t)right;
    if (find_merge(t, left, right) >= 0)
        return 0; /* said twice: the first counts */
    uint32_t slot = pair_slot(t, (uint32_t)left, (uint32_t)right);
    while (t->merge_table[slot] != 0)
        slot = (slot + 1) & t->merge_mask;
    t->merge_table[slot] = rank + 1;
    return 0;
}

int tokenizer_bpe_merges(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    if (t->by_ids)
        return 0;
    const struct gguf_key *k = gguf_find(g, "tokenizer.ggml.merges");
    const char *s;
    uint64_t len;
    size_t pos = 0;
    char *scratch = NULL;
    size_t cap = 0;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < t->n_merges && gguf_array_str(k, &pos, &s, &len); i++) {
        if (len > cap) {
            char *grown = realloc(scratch, (size_t)len * 2);
            if (!grown) {
                r = err_set(e, ERR_NOMEM, "merge of %" PRIu64 " bytes", len);
                break;
            }
            scratch = grown;
            cap = (size_t)len * 2;
        }
        r = read_merge(t, i, s, (size_t)len, scratch, e);
    }
    free(scratch);
    return r;
}

struct work {
    const struct tokenizer *t;
    const char *word;
    struct ids *out;
    size_t cap;                /* nodes of room */
    struct node *nodes;
    int32_t *id;               /* of each node */
    struct candidate *heap;
    size_t n_heap;
};

/* Of the merge of two neighbours; -1: they do not merge. */
static int64_t rank_of(const struct work *w, int32_t left, int32_t right)
{
    if (!w->t->by_ids)
        return find_merge(w->t, w->id[left], w->id[right]);
    return tokenizer_lookup(w->t, w->word + w->nodes[left].start, (size_t)w->nodes[left].len + w->nodes[right].len, false);
}

static void add_candidate(struct work *w, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    int64_t rank = rank_of(w, left, right);
    if (rank >= 0) /* ranks stay below 2^24: exact in a float */
        tokenizer_heap_push(w->heap, &w->n_heap,
                            (struct candidate){ (float)rank, (uint32_t)left,
                                                w->nodes[left].len + w->nodes[right].len });
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
        /* The same size can be cut differently after other merges: the pair itself must be this rank. */
        if (left->len + right->len != c.size ||
            (float)rank_of(w, (int32_t)c.left, left->next) != c.key)
            continue;
        left->len = c.size;
        right->len = 0;
        left->next = right->next;
        w->id[c.left] = tokenizer_lookup(w->t, w->word + left->start, left->len, false);
        if (left->next >= 0)
            w->nodes[left->next].prev = (int32_t)c.left;
        add_candidate(w, left->prev, (int32_t)c.left);
        add_candidate(w, (int32_t)c.left, left->next);
    }
    return r;
}

static int reserve(struct work *w, size_t n, struct err *e)
{
    if (n <= w->cap)
        return 0;
    free(w->nodes);
    free(w->id);
    free(w->heap);
    w->cap = n < 64 ? 64 : n;
    w->nodes = malloc(w->cap * sizeof *w->nodes);
    w->id = malloc(w->cap * sizeof *w->id);
    w->heap = malloc(2 * w->cap * sizeof *w->heap);
    if (w->nodes && w->id && w->heap)
        return 0;
    w->cap = 0;
    return err_set(e, ERR_NOMEM, "encoding a word of %zu bytes", n);
}

/* The word's bytes or characters as nodes; how many. */
static size_t take_apart(struct work *w, const char *word, size_t len)
{
    const struct tokenizer *t = w->t;
    size_t n = 0;
    for (size_t i = 0, size; i < len; i += size, n++) {
        uint32_t code;
        size = t->of_characters ? utf8_decode(word + i, len - i, &code) : 1;
        size = size ? size : 1;
        w->nodes[n] = (struct node){ .start = (uint32_t)i, .len = (uint32_t)size, .prev = (int32_t)n - 1,
                                     .next = i + size < len ? (int32_t)n + 1 : -1 };
        w->id[n] = t->of_characters ? tokenizer_lookup(t, word + i, size, false) : t->byte_id[(uint8_t)word[i]];
    }
    return n;
}

/* A node that is no token: the tokens of its bytes. A byte without one is left out, as by the tokenizers of the models
 * (StarCoder, Falcon) whose vocabularies lack bytes that their training texts had not. */
static int push_bytes(const struct work *w, const struct node *node, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < node->len; i++) {
        int32_t id = w->t->byte_id[(uint8_t)w->word[node->start + i]];
        r = id >= 0 ? tokenizer_push(w->out, id, e) : 0;
    }
    return r;
}

static int encode_word(void *ctx, const char *word, size_t len, struct err *e)
{
    struct work *w = ctx;
    const struct tokenizer *t = w->t;
    bool newlines = t->of_characters && word[0] == '\n'; /* a run of them: the pattern leaves nothing else in it */
    int32_t whole = t->whole_words || newlines ? tokenizer_lookup(t, word, len, false) : -1;
    if (whole >= 0)
        return tokenizer_push(w->out, whole, e);
    int r = reserve(w, len, e);
    if (r < 0)
        return r;
    w->word = word;
    w->n_heap = 0;
    size_t n = take_apart(w, word, len);
    for (size_t i = 0; i + 1 < n; i++)
        add_candidate(w, (int32_t)i, (int32_t)i + 1);
    r = merge_all(w, e);
    for (int32_t i = 0; r == 0 && i >= 0; i = w->nodes[i].next)
        r = w->id[i] >= 0 ? tokenizer_push(w->out, w->id[i], e) : push_bytes(w, &w->nodes[i], e);
    return r;
}

int tokenizer_bpe_encode(const struct tokenizer *t, const char *text, size_t len, struct ids *out,
                         struct err *e)
{
    struct work w = { .t = t, .out = out };
    char *spaced = NULL;
    bool opaque = false;
    if (t->of_characters && memmem(text, len, "\xe2\x96\x81", 3)) { /* it stands for a space here as well */
        if (!(spaced = malloc(len)))
            return err_set(e, ERR_NOMEM, "encoding a text of %zu bytes", len);
        len = tokenizer_spm_text(text, len, spaced, &opaque);
        text = spaced;
    }
    int r = pre_split(t->pre, text, len, encode_word, &w, e);
    free(spaced);
    free(w.nodes);
    free(w.id);
    free(w.heap);
    return r;
}
