/* SentencePiece's unigram model: of all ways to cut a normalised text into tokens, the one whose scores add up to the most
 * (Viterbi). Sums are doubles of float scores; a user-defined token counts 0, and a character that no token stands for counts
 * the lowest score less 10. Neighbouring unknown characters become one unknown token. The trie of the tokens is
 * tokenizer_order.c's.
 * Normalisation: the longest sequence at each place that the file's table knows is replaced (the table is a double array whose
 * links are XORs, one u32 a node); then spaces are counted. A space is U+2581 in the vocabulary, one plain space
 * here, and so U+2581 in a text becomes a space too, but one that is no white space to the rules about spaces.
 * User-defined tokens have been cut out before, so that none is normalised. */
#include "common/model/tokenizer_impl.h"

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_GROWTH = 16, /* bytes out of one; U+FDFA becomes 11 times as long */
    MAX_KEY = 256,   /* bytes of a sequence that is replaced: a loop in a broken table ends */
};

/* --- vocabulary -------------------------------------------------------------------------- */

/* Texts of user-defined tokens stand as in the file, and one with a space or U+2581 equals no normalised text. */
static bool matches(const struct tokenizer *t, int32_t id)
{
    enum token_type type = tokenizer_type(t, id);
    const char *text = t->pool + t->offset[id];
    size_t len = tokenizer_text_len(t, (uint32_t)id);
    bool user = type == TOKEN_USER_DEFINED;
    return (type == TOKEN_NORMAL || type == TOKEN_UNUSED || user) && tokenizer_lookup(t, text, len, user) == id &&
           !(user && (memchr(text, ' ', len) || memmem(text, len, "\xe2\x96\x81", 3)));
}

void tokenizer_unigram_sort(struct tokenizer *t)
{
    float least = FLT_MAX;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        enum token_type type = tokenizer_type(t, id);
        if ((type == TOKEN_NORMAL || type == TOKEN_OPAQUE) && t->score[id] < least)
            least = t->score[id];
        if (matches(t, id))
            t->order[t->n_order++] = (uint32_t)id;
    }
    t->unknown_score = least - 10.0f;
    tokenizer_order_sort(t);
}

/* --- normalisation ----------------------------------------------------------------------- */

struct sink { /* of normalised text; it counts only when out is NULL */
    char *out;
    size_t n, fed; /* fed: bytes before spaces were counted */
    uint32_t last; /* the last bytes before U+2581 became a space */
    bool in_word, prefixed;
};

static void put(struct sink *s, char c, uint32_t last)
{
    s->last = last;
    if ((last & 0xffffff) == 0xe29681) {
        s->n -= 2;
        c = ' ';
    }
    if (s->out)
        s->out[s->n] = c;
    s->n++;
}

static void put_text(const struct tokenizer *t, struct sink *s, const char *text, size_t len)
{
    s->fed += len;
    for (size_t i = 0; i < len; i++) {
        bool space = text[i] == ' ';
        if (space ? !t->merge_spaces : !s->in_word && (t->merge_spaces || (t->add_space && !s->prefixed))) {
            put(s, ' ', 0);
            s->prefixed |= !space;
        }
        if (!space)
            put(s, text[i], s->last << 8 | (uint8_t)text[i]);
        s->in_word = !space;
    }
}

static int node(const struct tokenizer *t, uint32_t index, uint32_t *out, struct err *e)
{
    if (index >= t->trie_nodes)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.precompiled_charsmap: a link leads to node %" PRIu32 " of %" PRIu32, index,
                       t->trie_nodes);
    *out = bytes_le32(t->charsmap + 4 + 4 * (size_t)index);
    return 0;
}

static uint32_t base(uint32_t v)
{
    return (v >> 10) << ((v & 1u << 9) >> 6);
}

/* What the table has for the longest sequence it knows at the beginning of text, and how many bytes that sequence has; 0: none. */
static int replace(const struct tokenizer *t, const char *text, size_t len, const char **with, size_t *size, struct err *e)
{
    uint32_t v, at;
    int r;
    *size = 0;
    if (!t->trie_nodes)
        return 0;
    if ((r = node(t, 0, &v, e)) < 0)
        return r;
    at = base(v);
    for (size_t i = 0; i < len && i < MAX_KEY && text[i]; i++) {
        uint8_t c = (uint8_t)text[i];
        at ^= c;
        if ((r = node(t, at, &v, e)) < 0)
            return r;
        if ((v & (1u << 31 | 0xff)) != c) /* no child by that byte */
            break;
        at ^= base(v);
        if (v & 1u << 8) { /* a sequence ends here: its value is beside the children */
            if ((r = node(t, at, &v, e)) < 0)
                return r;
            v &= ~(1u << 31);
            if (v >= t->charsmap_len - t->texts_at)
                return err_set(e, ERR_FORMAT, "tokenizer.ggml.precompiled_charsmap: a text at byte %" PRIu32 " of %zu", v,
                               t->charsmap_len - t->texts_at);
            *with = (const char *)t->charsmap + t->texts_at + v;
            *size = i + 1;
        }
    }
    return 0;
}

static int normalise(const struct tokenizer *t, const char *text, size_t len, char *out, size_t *n, struct err *e)
{
    struct sink s = { .out = out };
    uint64_t step = 0;
    for (size_t i = 0, k; i < len; i += k) {
        const char *with = NULL;
        uint32_t code;
        int r = file_go_on_at(step++, e);
        if (r < 0 || (r = replace(t, text + i, len - i, &with, &k, e)) < 0)
            return r;
        if (k) {
            put_text(t, &s, with, strlen(with));
        } else if ((k = utf8_decode(text + i, len - i, &code))) {
            put_text(t, &s, text + i, k);
        } else {
            put_text(t, &s, "\xef\xbf\xbd", 3);
            k = 1;
        }
        if (s.fed / MAX_GROWTH > len + 4)
            return err_set(e, ERR_LIMIT, "normalisation makes more than %d times as much of a text of %zu bytes", MAX_GROWTH, len);
    }
    *n = s.n;
    return 0;
}

/* --- the best cut ------------------------------------------------------------------------ */

struct best { /* way from the beginning of the text to a place in it */
    double score;
    uint32_t from; /* where its last token begins */
    int32_t id;    /* that token */
};

static size_t character(uint8_t first)
{
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

static void offer(struct best *b, double score, size_t from, int32_t id)
{
    if (score > b->score)
        *b = (struct best){ score, (uint32_t)from, id };
}

static int viterbi(const struct tokenizer *t, const char *text, size_t n, struct best *best, struct err *e)
{
    int r = 0;
    uint64_t step = 0;
    for (size_t i = 1; i <= n; i++)
        best[i] = (struct best){ -DBL_MAX, 0, t->unk };
    best[0] = (struct best){ 0, 0, t->unk };
    for (size_t at = 0, size; at < n && (r = file_go_on_at(step++, e)) == 0; at += size) {
        size_t lo = 0, hi = t->n_order;
        bool whole = false; /* the character is a token */
        size = character((uint8_t)text[at]);
        size = size < n - at ? size : n - at;
        for (size_t depth = 0; depth < n - at && lo < hi; depth++) {
            tokenizer_order_narrow(t, &lo, &hi, depth, (uint8_t)text[at + depth]);
            int32_t id = -1;
            while (lo < hi && tokenizer_text_len(t, t->order[lo]) == depth + 1)
                id = (int32_t)t->order[lo++]; /* of twins the later */
            if (id < 0)
                continue;
            whole |= depth + 1 == size;
            double score = tokenizer_type(t, id) == TOKEN_USER_DEFINED ? 0.0 : (double)t->score[id];
            offer(best + at + depth + 1, best[at].score + score, at, id);
        }
        if (!whole)
            offer(best + at + size, best[at].score + (double)t->unknown_score, at, t->unk);
    }
    return r;
}

/* The tokens of the best way to the end, found from the end. */
static int collect(const struct tokenizer *t, const struct best *best, size_t n, struct ids *out, struct err *e)
{
    int first = out->n, r = 0;
    bool unknown = false;
    for (size_t at = n; r == 0 && at > 0; at = best[at].from) {
        bool next = unknown;
        unknown = best[at].id == t->unk;
        if (!(next && unknown))
            r = tokenizer_push(out, best[at].id, e);
    }
    for (int i = first, j = out->n - 1; i < j; i++, j--) {
        int32_t id = out->id[i];
        out->id[i] = out->id[j];
        out->id[j] = id;
    }
    return r;
}

int tokenizer_unigram_encode(const struct tokenizer *t, const char *text, size_t len, struct ids *out, struct err *e)
{
    size_t n;
    int r = normalise(t, text, len, NULL, &n, e);
    if (r < 0 || n == 0)
        return r;
    char *normal = malloc(n + 2); /* U+2581 takes three bytes before it becomes a space */
    struct best *best = n < UINT32_MAX ? malloc((n + 1) * sizeof *best) : NULL;
    if (!normal || !best) {
        r = err_set(e, ERR_NOMEM, "encoding a text of %zu bytes, %zu of them normalised", len, n);
    } else if ((r = normalise(t, text, len, normal, &n, e)) == 0) {
        if ((r = viterbi(t, normal, n, best, e)) == 0)
            r = collect(t, best, n, out, e);
    }
    free(best);
    free(normal);
    return r;
}
