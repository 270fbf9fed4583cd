/* Tokens are sorted by their bytes, so that those with the same beginning are neighbours: a walk over them runs the grammar over each
 * beginning once, and a stack has the state behind each byte. Two lists: tokens that are text of a string, character by character, and all
 * others. In a string that may go on, which is where most tokens may come, the first list is known to be allowed as a whole. Where a
 * character of some kinds leads on whichever it is, as within [^@]{1,9}, words of these kinds are told by their length alone. */
#include "runtime/mask/mask.h"

#include "common/base/utf8.h"
#include "runtime/mask/schema.h"
#include "runtime/mask/states.h"

#include <stdlib.h>
#include <string.h>

#define STATES_BYTES (512u << 10)
#define WORK 20000000u      /* places of states that a mask may look at: a second or so */
#define KEPT 32            /* masks, of states that come again */

struct word {
    int32_t id;
    uint8_t same, n, chars, kinds; /* bytes that the word before begins with, too; of it; characters, and their kinds, of a plain one */
};

/* Kinds of characters; those of several bytes, of which all that begin with one of these bytes are valid: the rest is OTHER. */
enum { OTHER = 7, KINDS };
static const struct kind {
    int n;                  /* bytes of a character */
    unsigned char from[4], to[4]; /* of its first one; ends at 0 */
} kinds[OTHER] = {
    { 1, { 'a' }, { 'z' } }, { 1, { 'A' }, { 'Z' } }, { 1, { '0' }, { '9' } }, { 1, { ' ' }, { ' ' } },
    { 1, { '!', ':', '[', '{' }, { '/', '@', '`', 0x7f } }, { 2, { 0xc3 }, { 0xdf } }, { 3, { 0xe4 }, { 0xec } },
};

/* Where words with a first byte begin, and their bytes. */
struct place {
    int32_t word;
    uint32_t bytes;
};

struct list {
    struct word *words;     /* [n] */
    unsigned char *bytes;   /* of each word, those that are not the same */
    int n;
    uint32_t n_bytes;
    struct place first[257];
};

struct mask_words {
    struct list plain, other;
    uint64_t *plain_bits;
    int n_vocab, n_bits;    /* words in plain_bits */
    mask_piece *piece;
    const void *ctx;
};

struct kept {
    int state;
    uint64_t used;
    int n, may_end;
    uint64_t *bits;
};

struct mask {
    const struct mask_words *w;
    struct grammar *g;
    struct states *s;
    uint64_t most_work;     /* of the mask under way */
    struct mask_text *texts;
    struct kept kept[KEPT];
    uint64_t clock;
};

/* ---- words ---- */

struct sorted {
    const char *s;
    int32_t id;
    uint8_t n, control;     /* of s; GRAMMAR_MARK comes before it */
};

static unsigned char byte_of(const struct sorted *w, int i)
{
    return w->control ? (i == 0 ? GRAMMAR_MARK : (unsigned char)w->s[i - 1]) : (unsigned char)w->s[i];
}

/* Control tokens are the last. */
static int by_bytes(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    int c = x->control != y->control ? x->control - y->control : memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return c ? c : x->n != y->n ? (x->n < y->n ? -1 : 1) : x->id < y->id ? -1 : x->id > y->id;
}

/* Whole characters that a string has as they are: how many; 0: it is something else. */
static uint8_t plain_chars(const char *s, size_t n)
{
    uint8_t chars = 0;
    for (size_t i = 0, k; i < n; i += k, chars++) {
        uint32_t c;
        if ((k = utf8_decode(s + i, n - i, &c)) == 0 || c < 0x20 || c == '"' || c == '\\')
            return 0;
    }
    return chars;
}

static uint8_t kinds_of(const char *s, size_t n)
{
    uint8_t all = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        int at = c >= 0x80 && c < 0xc0 ? KINDS : OTHER;
        for (int k = 0; k < OTHER && at == OTHER; k++)
            for (int r = 0; r < 4 && kinds[k].from[r]; r++)
                at = c >= kinds[k].from[r] && c <= kinds[k].to[r] ? k : at;
        all |= at < KINDS ? (uint8_t)(1 << at) : 0;
    }
    return all;
}

static int fill(struct list *l, const struct sorted *v, int n, struct err *e)
{
    uint32_t bytes = 0;
    int first = -1;
    l->words = malloc(((size_t)n + 1) * sizeof *l->words);
    for (int i = 0; i < n && l->words; i++) {
        uint8_t same = 0;
        int len = v[i].n + v[i].control;
        while (i && same < len && same < v[i - 1].n + v[i - 1].control && byte_of(&v[i], same) == byte_of(&v[i - 1], same))
            same++;
        l->words[i] = (struct word){ v[i].id, same, (uint8_t)len, v[i].control ? 0 : plain_chars(v[i].s, v[i].n),
                                     kinds_of(v[i].s, v[i].n) };
        bytes += (uint32_t)len - same;
    }
    l->bytes = malloc(bytes + 1u);
    if (!l->words || !l->bytes)
        return err_set(e, ERR_NOMEM, "out of memory for masks of a vocabulary");
    l->n = n;
    for (int i = 0; i < n; i++) {
        struct word w = l->words[i];
        while (first < byte_of(&v[i], 0))
            l->first[++first] = (struct place){ i, l->n_bytes };
        for (int k = w.same; k < w.n; k++)
            l->bytes[l->n_bytes++] = byte_of(&v[i], k);
    }
    while (first < 256)
        l->first[++first] = (struct place){ n, l->n_bytes };
    return 0;
}

/* Of a token, what may be drawn; *n 0: nothing. */
static const char *word_of(mask_piece *piece, const void *ctx, int32_t id, size_t *n, int *control)
{
    *control = 0;
    const char *s = piece(ctx, id, n, control);
    if (*n + (size_t)*control > MASK_TOKEN || memchr(s, GRAMMAR_MARK, *n))
        *n = 0;
    return s;
}

int mask_words_new(mask_piece *piece, const void *ctx, int n_vocab, struct mask_words **out, struct err *e)
{
    struct mask_words *w = calloc(1, sizeof *w);
    struct sorted *v = malloc((size_t)n_vocab * sizeof *v);
    int n_plain = 0, n_other = 0, r = ERR_NOMEM;
    if (!w || !v || !(w->plain_bits = calloc((size_t)(n_vocab + 63) / 64, sizeof(uint64_t)))) {
        err_set(e, ERR_NOMEM, "out of memory for masks of a vocabulary");
        goto done;
    }
    w->n_vocab = n_vocab;
    w->piece = piece;
    w->ctx = ctx;
    for (int32_t id = 0; id < n_vocab; id++) { /* plain ones in front, others from the end */
        size_t n;
        int control;
        const char *s = word_of(piece, ctx, id, &n, &control);
        if (n == 0)
            continue;
        int plain = !control && plain_chars(s, n) > 0;
        v[plain ? n_plain++ : n_vocab - ++n_other] = (struct sorted){ s, id, (uint8_t)n, (uint8_t)control };
        if (plain)
            w->plain_bits[id / 64] |= (uint64_t)1 << id % 64;
    }
    w->n_bits = n_plain;
    qsort(v, (size_t)n_plain, sizeof *v, by_bytes);
    qsort(v + n_vocab - n_other, (size_t)n_other, sizeof *v, by_bytes);
    if ((r = fill(&w->plain, v, n_plain, e)) == 0)
        r = fill(&w->other, v + n_vocab - n_other, n_other, e);
done:
    free(v);
    if (r < 0)
        mask_words_free(w);
    else
        *out = w;
    return r;
}

void mask_words_free(struct mask_words *w)
{
    if (!w)
        return;
    free(w->plain.words);
    free(w->plain.bytes);
    free(w->other.words);
    free(w->other.bytes);
    free(w->plain_bits);
    free(w);
}

size_t mask_words_bytes(const struct mask_words *w)
{
    return sizeof *w + (size_t)(w->plain.n + w->other.n + 2) * sizeof(struct word) + w->plain.n_bytes + w->other.n_bytes + 2 +
           (size_t)(w->n_vocab + 63) / 64 * sizeof(uint64_t);
}

size_t mask_words_bound(int n_vocab, size_t text_bytes)
{
    return sizeof(struct mask_words) + ((size_t)n_vocab + 2) * sizeof(struct word) + text_bytes + 2 +
           (size_t)(n_vocab + 63) / 64 * sizeof(uint64_t);
}

/* ---- masks ---- */

static size_t mask_words_of(int n_vocab)
{
    return (size_t)(n_vocab + 63) / 64;
}

size_t mask_bytes(int n_vocab)
{
    size_t grammar = GRAMMAR_NODES * sizeof(struct grammar_node) + GRAMMAR_SETS * sizeof(struct grammar_bytes);
    grammar += GRAMMAR_RULES * sizeof(int32_t);
    return sizeof(struct mask) + grammar + 2 * STATES_BYTES + KEPT * mask_words_of(n_vocab) * sizeof(uint64_t);
}

int mask_new(const struct js *schema, const struct mask_words *w, struct mask **out, struct err *e)
{
    struct grammar *g;
    int r = schema_grammar(schema, &g, e);
    return r < 0 ? r : mask_of(g, w, out, e);
}

int mask_of(struct grammar *g, const struct mask_words *w, struct mask **out, struct err *e)
{
    struct mask *m = calloc(1, sizeof *m);
    int r = m ? 0 : err_set(e, ERR_NOMEM, "out of memory for a schema");
    if (m)
        m->g = g;
    else
        grammar_free(g);
    if (r == 0 && !(m->s = states_new(m->g, STATES_BYTES)))
        r = err_set(e, ERR_NOMEM, "out of memory for a schema");
    for (int i = 0; i < KEPT && r == 0; i++)
        if (!(m->kept[i].bits = malloc(mask_words_of(w->n_vocab) * sizeof(uint64_t))))
            r = err_set(e, ERR_NOMEM, "out of memory for a schema");
    if (r < 0) {
        mask_free(m);
        return r;
    }
    m->w = w;
    *out = m;
    return 0;
}

void mask_free(struct mask *m)
{
    if (!m)
        return;
    for (int i = 0; i < KEPT; i++)
        free(m->kept[i].bits);
    states_free(m->s);
    grammar_free(m->g);
    free(m);
}

/* Memory for states is full: those of texts and stack[0..n) are kept. */
static int forget(struct mask *m, int *stack, int n, struct err *e)
{
    int texts = 0, k = 0;
    for (const struct mask_text *t = m->texts; t; t = t->after)
        texts++;
    int **keep = malloc((size_t)(texts + n + 1) * sizeof *keep);
    if (!keep)
        return err_set(e, ERR_NOMEM, "out of memory for a schema");
    for (struct mask_text *t = m->texts; t; t = t->after)
        keep[k++] = &t->state;
    for (int i = 0; i < n; i++)
        keep[k++] = &stack[i];
    int r = states_forget(m->s, keep, k);
    free(keep);
    for (int i = 0; i < KEPT; i++)
        m->kept[i].state = 0;
    return r < 0 ? err_set(e, r, "a schema whose texts need more than the limit of memory, %u bytes", STATES_BYTES) : 0;
}

int mask_begin(struct mask *m, struct mask_text *t, struct err *e)
{
    int state = states_first(m->s), r = 0;
    if (state == STATES_FULL && (r = forget(m, NULL, 0, e)) == 0)
        state = states_first(m->s);
    if (r < 0 || state == STATES_FULL)
        return r < 0 ? r : err_set(e, ERR_LIMIT, "a schema of more places at once than the limit of memory");
    *t = (struct mask_text){ .state = state, .mask = m, .after = m->texts };
    if (m->texts)
        m->texts->before = t;
    m->texts = t;
    return 0;
}

void mask_end(struct mask_text *t)
{
    if (!t->mask)
        return;
    if (t->before)
        t->before->after = t->after;
    else
        t->mask->texts = t->after;
    if (t->after)
        t->after->before = t->before;
    *t = (struct mask_text){ 0 };
}

/* Behind stack[depth] a byte more. */
static int step(struct mask *m, int *stack, int depth, unsigned char byte, struct err *e)
{
    int next = states_next(m->s, stack[depth], m->g->class[byte]), r;
    if (next != STATES_FULL)
        return next;
    if ((r = forget(m, stack, depth + 1, e)) < 0)
        return r;
    next = states_next(m->s, stack[depth], m->g->class[byte]);
    return next == STATES_FULL ? err_set(e, ERR_LIMIT, "a schema of more places at once than the limit of memory") : next;
}

/* From a state, how many characters of the kinds `on` there may be, whichever they are; and kinds of which none may come before, between
 * or behind them. */
struct run {
    int most, n;            /* chain[i]: behind i of them; from chain[n] on it is the same */
    uint8_t on, off;
    int chain[MASK_TOKEN + 2];
};

/* Every character that begins with this byte: does it lead from a state to `want`? Nothing is forgotten. */
static int leads(struct mask *m, int state, const unsigned char *byte, int n, int want)
{
    int next = states_next(m->s, state, m->g->class[*byte]), last = -1, all = 1;
    if (n == 1 || next <= STATES_DEAD)
        return next == want;
    for (int c = 0x80; c < 0xc0 && all; c++) {
        unsigned char behind = (unsigned char)c;
        if (m->g->class[c] != last)
            all = leads(m, next, &behind, n - 1, want);
        last = m->g->class[c];
    }
    return all;
}

static int kind_leads(struct mask *m, const struct kind *k, int state, int want)
{
    int last = -1;
    for (int r = 0; r < 4 && k->from[r]; r++)
        for (int c = k->from[r]; c <= k->to[r]; c++) {
            unsigned char byte = (unsigned char)c;
            if (m->g->class[c] != last && !leads(m, state, &byte, k->n, want))
                return 0;
            last = m->g->class[c];
        }
    return 1;
}

/* By its bytes a letter stands for all. */
static void find_run(struct mask *m, int state, struct run *out)
{
    int *chain = out->chain, next;
    *out = (struct run){ .chain = { state } };
    while (out->most < MASK_TOKEN && (next = states_next(m->s, chain[out->n], m->g->class['e'])) > STATES_DEAD) {
        chain[out->n + 1] = next;
        out->most = next == chain[out->n] ? MASK_TOKEN : out->most + 1;
        out->n += next != chain[out->n];
    }
    for (int k = 0; k < OTHER && out->most > 1; k++) {
        int on = 1, off = 1;
        for (int i = 0; i <= out->n && i < MASK_TOKEN && (on || off); i++) {
            int want = i < out->n ? chain[i + 1] : out->most == MASK_TOKEN ? chain[i] : STATES_DEAD;
            on = on && kind_leads(m, &kinds[k], chain[i], want);
            off = off && kind_leads(m, &kinds[k], chain[i], STATES_DEAD);
        }
        out->on |= (uint8_t)(on << k);
        out->off |= (uint8_t)((off && !on) << k);
    }
}

/* Words of a list that may come after stack[0]; how many. */
static int walk(struct mask *m, const struct list *l, int *stack, uint64_t *bits, struct err *e)
{
    struct run run = { 0 };
    int n = 0, next;
    const int32_t *known = states_known(m->s);
    const uint8_t *class = m->g->class;
    size_t n_classes = (size_t)m->g->n_classes;
    if (l == &m->w->plain)
        find_run(m, stack[0], &run);
    for (int first = 0; first < 256; first++) {
        int i = l->first[first].word, end = l->first[first + 1].word, live = 0;
        const unsigned char *b = l->bytes + l->first[first].bytes;
        if (states_work(m->s) > m->most_work)
            return err_set(e, ERR_LIMIT, "a schema of so many alternatives that a token takes too long");
        if (i == end || (next = step(m, stack, 0, (unsigned char)first, e)) == STATES_DEAD)
            continue;
        if (next < 0)
            return next;
        for (; i < end; i++) {
            struct word w = l->words[i];
            if (run.on && !(w.kinds & ~(run.on | run.off))) { /* told by kinds and length; of its bytes no more is known than before */
                uint64_t may = !(w.kinds & run.off) && w.chars <= run.most;
                bits[w.id / 64] |= may << w.id % 64;
                n += (int)may;
                live = w.same < live ? w.same : live;
                b += w.n - w.same;
                continue;
            }
            int d = w.same, control = 0;
            const unsigned char *c = b;
            if (w.same > live) { /* behind one that was told so */
                size_t len;
                c = (const unsigned char *)m->w->piece(m->w->ctx, w.id, &len, &control) + (d = live);
            }
            for (; d < w.n; d++, c++) {
                next = known[(size_t)stack[d] * n_classes + class[*c]];
                if (next < 0 && (next = step(m, stack, d, *c, e)) < 0)
                    return next;
                if (next == STATES_DEAD)
                    break;
                stack[d + 1] = next;
            }
            live = d;
            if (d == w.n) {
                bits[w.id / 64] |= (uint64_t)1 << w.id % 64;
                n++;
            }
            for (; d < w.n && i + 1 < end && l->words[i + 1].same > live; w = l->words[++i]) /* so do these begin, of which none may come */
                b += w.n - w.same;
            b += w.n - w.same;
        }
    }
    return n;
}

static int count_all(struct mask *m, int state, uint64_t *bits, struct err *e)
{
    int stack[MASK_TOKEN + 2] = { state }, n = 0, r, alone, left = states_text_left(m->s, state, MASK_TOKEN, &alone);
    const struct mask_words *w = m->w;
    memset(bits, 0, mask_words_of(w->n_vocab) * sizeof *bits);
    m->most_work = states_work(m->s) + WORK;
    if (left == MASK_TOKEN) {
        memcpy(bits, w->plain_bits, mask_words_of(w->n_vocab) * sizeof *bits);
        n = w->n_bits;
    } else if (left > 0 && alone) {
        for (int i = 0; i < w->plain.n; i++) {
            struct word v = w->plain.words[i];
            bits[v.id / 64] |= (uint64_t)(v.chars <= left) << v.id % 64;
            n += v.chars <= left;
        }
    } else if ((n = walk(m, &w->plain, stack, bits, e)) < 0) {
        return n;
    }
    r = walk(m, &w->other, stack, bits, e);
    return r < 0 ? r : n + r;
}

int mask_allowed(struct mask_text *t, uint64_t *bits, int *may_end, struct err *e)
{
    struct mask *m = t->mask;
    size_t bytes = mask_words_of(m->w->n_vocab) * sizeof *bits;
    struct kept *oldest = &m->kept[0];
    int state = states_near(m->s, t->state, MASK_TOKEN), r;
    if (state == STATES_FULL && (r = forget(m, NULL, 0, e)) < 0)
        return r;
    if (state == STATES_FULL)
        state = states_near(m->s, t->state, MASK_TOKEN);
    if (state == STATES_FULL)
        state = t->state;
    for (int i = 0; i < KEPT; i++) {
        struct kept *k = &m->kept[i];
        if (k->state == state) {
            k->used = ++m->clock;
            memcpy(bits, k->bits, bytes);
            *may_end = k->may_end;
            return k->n;
        }
        oldest = k->used < oldest->used ? k : oldest;
    }
    *may_end = states_may_end(m->s, state);
    oldest->state = 0;
    int n = count_all(m, state, bits, e);
    if (n >= 0 && (state = states_near(m->s, t->state, MASK_TOKEN)) > 0) { /* its number may have changed */
        *oldest = (struct kept){ state, ++m->clock, n, *may_end, oldest->bits };
        memcpy(oldest->bits, bits, bytes);
    }
    return n;
}

int mask_accept(struct mask_text *t, int32_t id, struct err *e)
{
    int stack[MASK_TOKEN + 2] = { t->state };
    size_t n;
    int control;
    const char *s = word_of(t->mask->w->piece, t->mask->w->ctx, id, &n, &control);
    const struct sorted word = { s, id, (uint8_t)n, (uint8_t)control };
    if (n == 0)
        return 0;
    n += (size_t)control;
    for (size_t i = 0; i < n; i++) {
        int next = step(t->mask, stack, (int)i, byte_of(&word, (int)i), e);
        if (next <= STATES_DEAD)
            return next;
        stack[i + 1] = next;
    }
    t->state = stack[n];
    return 1;
}
