#include "runtime/mask/shapes.h"

#include <stdio.h>
#include <string.h>

#define SPACES 32

static int hex(struct shapes *s, int next)
{
    struct grammar_bytes b = { 0 };
    grammar_add(&b, '0', '9');
    grammar_add(&b, 'a', 'f');
    grammar_add(&b, 'A', 'F');
    return grammar_set(s->g, &b, next);
}

static int one_of(struct shapes *s, const char *bytes, int next)
{
    struct grammar_bytes b = { 0 };
    for (; *bytes; bytes++)
        grammar_add(&b, (unsigned char)*bytes, (unsigned char)*bytes);
    return grammar_set(s->g, &b, next);
}

/* Behind a backslash: no NUL and no lone surrogate, which readers refuse. */
static int escapes(struct shapes *s, int next)
{
    struct grammar *g = s->g;
    int h1 = hex(s, next), h2 = hex(s, h1), h3 = hex(s, h2);
    int zero = grammar_split(g, one_of(s, "123456789abcdefABCDEF", h2), /* 0x.. */
                             grammar_byte(g, '0', grammar_split(g, one_of(s, "123456789abcdefABCDEF", h1),
                                                                grammar_byte(g, '0', one_of(s, "123456789abcdefABCDEF", next)))));
    int low = grammar_text(g, "\\u", 2, one_of(s, "dD", one_of(s, "cdefCDEF", h2)));
    int d = grammar_split(g, grammar_range(g, '0', '7', h2), one_of(s, "89abAB", hex(s, hex(s, low))));
    int u = grammar_split(g, one_of(s, "123456789abcefABCEF", h3), grammar_split(g, grammar_byte(g, '0', zero), one_of(s, "dD", d)));
    return grammar_split(g, one_of(s, "\"\\/bfnrt", next), grammar_byte(g, 'u', u));
}

static int continues(struct shapes *s, int n, int next)
{
    while (n-- > 0)
        next = grammar_range(s->g, 0x80, 0xbf, next);
    return next;
}

static int beyond_ascii(struct shapes *s, int next)
{
    struct grammar *g = s->g;
    int one = continues(s, 1, next), two = continues(s, 2, next), three = continues(s, 3, next);
    struct grammar_bytes b = { 0 };
    grammar_add(&b, 0xe1, 0xec);
    grammar_add(&b, 0xee, 0xef);
    int a = grammar_split(g, grammar_range(g, 0xc2, 0xdf, one), grammar_set(g, &b, two));
    a = grammar_split(g, a, grammar_byte(g, 0xe0, grammar_range(g, 0xa0, 0xbf, one)));
    a = grammar_split(g, a, grammar_byte(g, 0xed, grammar_range(g, 0x80, 0x9f, one)));
    a = grammar_split(g, a, grammar_byte(g, 0xf0, grammar_range(g, 0x90, 0xbf, two)));
    a = grammar_split(g, a, grammar_range(g, 0xf1, 0xf3, three));
    return grammar_split(g, a, grammar_byte(g, 0xf4, grammar_range(g, 0x80, 0x8f, two)));
}

void shapes_init(struct shapes *s, struct grammar *g)
{
    struct grammar_bytes plain = { 0 };
    *s = (struct shapes){ .g = g, .space = -1, .any = -1, .number = -1, .integer = -1 };
    grammar_add(&plain, 0x20, 0x7f);
    plain.bits[0] &= ~((uint64_t)1 << '"');
    plain.bits[1] &= ~((uint64_t)1 << ('\\' - 64));
    g->plain = grammar_set(g, &plain, GRAMMAR_RETURN);
    s->chars = grammar_split(g, beyond_ascii(s, GRAMMAR_RETURN), grammar_byte(g, '\\', escapes(s, GRAMMAR_RETURN)));
    s->chars = grammar_split(g, g->plain, s->chars);
}

int shapes_raw(struct shapes *s, const char *other, int next)
{
    struct grammar_bytes ascii = { 0 };
    grammar_add(&ascii, 0x20, 0x7e);
    grammar_add(&ascii, '\t', '\n');
    grammar_add(&ascii, '\r', '\r');
    for (; *other; other++)
        ascii.bits[(unsigned char)*other / 64] &= ~((uint64_t)1 << (unsigned char)*other % 64);
    return grammar_split(s->g, grammar_set(s->g, &ascii, next), beyond_ascii(s, next));
}

/* ---- characters ---- */

/* Sequences of n bytes from those of a to those of b, which differ in the last k alone. */
static int sequences(struct shapes *s, const unsigned char *a, const unsigned char *b, int n, int next)
{
    if (n == 1)
        return grammar_range(s->g, a[0], b[0], next);
    if (a[0] == b[0])
        return grammar_byte(s->g, a[0], sequences(s, a + 1, b + 1, n - 1, next));
    static const unsigned char least[] = { 0x80, 0x80, 0x80 }, most[] = { 0xbf, 0xbf, 0xbf };
    int whole_a = !memcmp(a + 1, least, (size_t)n - 1), whole_b = !memcmp(b + 1, most, (size_t)n - 1), r = -1;
    unsigned from = a[0] + !whole_a, to = b[0] - !whole_b;
    if (!whole_a)
        r = grammar_byte(s->g, a[0], sequences(s, a + 1, most, n - 1, next));
    if (from <= to) {
        int middle = grammar_range(s->g, from, to, sequences(s, least, most, n - 1, next));
        r = r < 0 ? middle : grammar_split(s->g, r, middle);
    }
    if (!whole_b) {
        int last = grammar_byte(s->g, b[0], sequences(s, least, b + 1, n - 1, next));
        r = r < 0 ? last : grammar_split(s->g, r, last);
    }
    return r;
}

static int encode(unsigned char *out, uint32_t c)
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 63));
    out[0] = (unsigned char)((n == 1 ? 0 : n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

static int either(struct shapes *s, int a, int b)
{
    return a < 0 ? b : grammar_split(s->g, a, b);
}

int shapes_chars(struct shapes *s, const struct shapes_range *ranges, int n, int next)
{
    static const uint32_t parts[][2] = { { 0x80, 0x7ff }, { 0x800, 0xd7ff }, { 0xe000, 0xffff }, { 0x10000, 0x10ffff } };
    static const char named[][2] = { { '"', '"' }, { '\\', '\\' }, { '\n', 'n' }, { '\t', 't' }, { '\r', 'r' } };
    struct grammar_bytes ascii = { 0 };
    char escaped[8] = "";
    int r = -1, n_escaped = 0, any = 0;
    for (int i = 0; i < n; i++) {
        for (uint32_t c = ranges[i].from; c <= ranges[i].to && c < 0x80; c++) {
            size_t k = 0;
            while (k < 5 && (uint32_t)named[k][0] != c)
                k++;
            if (k < 5)
                escaped[n_escaped++] = named[k][1];
            else if (c >= 0x20)
                grammar_add(&ascii, c, c), any = 1;
        }
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
            uint32_t from = ranges[i].from > parts[k][0] ? ranges[i].from : parts[k][0];
            uint32_t to = ranges[i].to < parts[k][1] ? ranges[i].to : parts[k][1];
            unsigned char a[4], b[4];
            if (from <= to) {
                int bytes = encode(a, from);
                encode(b, to);
                r = either(s, r, sequences(s, a, b, bytes, next));
            }
        }
    }
    if (any)
        r = either(s, r, grammar_set(s->g, &ascii, next));
    if (n_escaped)
        r = either(s, r, grammar_byte(s->g, '\\', one_of(s, escaped, next)));
    if (r < 0)
        grammar_fail(s->g, ERR_UNSUPPORTED, "a pattern with a set that no character is in, or control characters alone");
    return r < 0 ? 0 : r;
}

int shapes_text(struct shapes *s, int min, int max, int next)
{
    return grammar_count(s->g, s->chars, min, max, next);
}

int shapes_string(struct shapes *s, int min, int max, int next)
{
    return grammar_byte(s->g, '"', shapes_text(s, min, max, grammar_byte(s->g, '"', next)));
}

/* Behind `depth` bytes that names[from..to) begin with. An escape would be another spelling of one of them. */
static int other_key(struct shapes *s, const char *const *names, int from, int to, size_t depth, int rest, int next)
{
    struct grammar_bytes plain = s->g->sets[s->g->nodes[s->g->plain].alt];
    int r = -1, beyond = 1, ends = 0;
    if (depth > 256)
        grammar_fail(s->g, ERR_LIMIT, "a property's name of more than 256 bytes beside other properties");
    if (s->g->failed.code)
        return 0;
    for (int i = from, k; i < to; i = k) {
        unsigned char c = (unsigned char)names[i][depth];
        for (k = i + 1; k < to && (unsigned char)names[k][depth] == c;)
            k++;
        ends |= c == 0;
        beyond &= c < 0x80;
        if (c == 0 || c >= 0x80 || !grammar_has(&plain, c))
            continue;
        plain.bits[c / 64] &= ~((uint64_t)1 << c % 64);
        r = either(s, r, grammar_byte(s->g, c, other_key(s, names, i, k, depth + 1, rest, next)));
    }
    r = either(s, r, grammar_set(s->g, &plain, rest));
    if (beyond)
        r = either(s, r, beyond_ascii(s, rest));
    return ends ? r : either(s, r, grammar_byte(s->g, '"', next));
}

int shapes_other_key(struct shapes *s, const char *const *names, int n, int next)
{
    int rest = shapes_text(s, 0, -1, grammar_byte(s->g, '"', next));
    return n ? grammar_byte(s->g, '"', other_key(s, names, 0, n, 0, rest, next)) : shapes_string(s, 0, -1, next);
}

int shapes_space(struct shapes *s, int next)
{
    if (s->space < 0) {
        int r = s->space = grammar_rule(s->g), n = GRAMMAR_RETURN;
        for (int i = 0; i < SPACES; i++)
            n = grammar_split(s->g, GRAMMAR_RETURN, grammar_byte(s->g, ' ', n));
        n = grammar_split(s->g, grammar_byte(s->g, ' ', GRAMMAR_RETURN), grammar_byte(s->g, '\n', n));
        if (!s->g->failed.code)
            s->g->rules[r] = grammar_split(s->g, GRAMMAR_RETURN, n);
    }
    return grammar_call(s->g, s->space, next);
}

/* ---- numbers ---- */

static int digits(struct shapes *s, int n, int next)
{
    while (n-- > 0)
        next = grammar_range(s->g, '0', '9', next);
    return next;
}

/* Texts of n digits from those of a to those of b. */
static int between(struct shapes *s, const char *a, const char *b, int n, int next)
{
    char zeros[SHAPES_DIGITS + 1] = "000000000000000", nines[SHAPES_DIGITS + 1] = "999999999999999";
    if (n == 0)
        return next;
    if (!memcmp(a, zeros, (size_t)n) && !memcmp(b, nines, (size_t)n))
        return digits(s, n, next);
    if (*a == *b)
        return grammar_byte(s->g, (unsigned char)*a, between(s, a + 1, b + 1, n - 1, next));
    int r = grammar_byte(s->g, (unsigned char)*a, between(s, a + 1, nines, n - 1, next));
    r = grammar_split(s->g, r, grammar_byte(s->g, (unsigned char)*b, between(s, zeros, b + 1, n - 1, next)));
    if (*b - *a < 2)
        return r;
    return grammar_split(s->g, r, grammar_range(s->g, (unsigned char)*a + 1u, (unsigned char)*b - 1u, digits(s, n - 1, next)));
}

/* from..to, not negative. */
static int whole(struct shapes *s, int64_t from, int64_t to, int next)
{
    int r = -1;
    int64_t least = 0, most = 9;
    for (int n = 1; n <= SHAPES_DIGITS; n++, least = most + 1, most = most * 10 + 9) {
        int64_t a = from > least ? from : least, b = to < most ? to : most;
        char x[24], y[24];
        if (a > b)
            continue;
        snprintf(x, sizeof x, "%lld", (long long)a);
        snprintf(y, sizeof y, "%lld", (long long)b);
        r = either(s, r, between(s, x, y, n, next));
    }
    return r;
}

int shapes_integer(struct shapes *s, int64_t from, int64_t to, int next)
{
    int r = -1;
    if (from == -SHAPES_MOST && to == SHAPES_MOST && s->integer >= 0)
        return grammar_call(s->g, s->integer, next);
    if (from == -SHAPES_MOST && to == SHAPES_MOST) { /* the usual one is there once */
        int all = grammar_rule(s->g), one = whole(s, 1, to, GRAMMAR_RETURN);
        one = grammar_split(s->g, grammar_byte(s->g, '0', GRAMMAR_RETURN), grammar_split(s->g, one, grammar_byte(s->g, '-', one)));
        if (!s->g->failed.code)
            s->g->rules[all] = one;
        return grammar_call(s->g, s->integer = all, next);
    }
    if (to >= 0)
        r = whole(s, from > 0 ? from : 0, to, next);
    if (from < 0)
        r = either(s, r, grammar_byte(s->g, '-', whole(s, to < 0 ? -to : 1, -from, next)));
    return r;
}

static int up_to(struct shapes *s, int n, int next)
{
    int r = next;
    for (int i = 0; i < n; i++)
        r = grammar_split(s->g, next, grammar_range(s->g, '0', '9', r));
    return r;
}

int shapes_number(struct shapes *s, int negative, int next)
{
    struct grammar *g = s->g;
    if (s->number < 0) {
        int r = s->number = grammar_rule(g), end = GRAMMAR_RETURN;
        int power = grammar_range(g, '0', '9', grammar_split(g, end, grammar_range(g, '0', '9', end)));
        int e = one_of(s, "eE", grammar_split(g, power, one_of(s, "+-", power)));
        int tail = grammar_split(g, end, e);
        int point = grammar_byte(g, '.', grammar_range(g, '0', '9', up_to(s, SHAPES_DIGITS - 1, tail)));
        tail = grammar_split(g, tail, point);
        int first = grammar_split(g, grammar_byte(g, '0', tail), grammar_range(g, '1', '9', up_to(s, SHAPES_DIGITS - 1, tail)));
        if (!g->failed.code)
            g->rules[r] = first;
    }
    int n = grammar_call(g, s->number, next);
    return negative ? grammar_split(g, n, grammar_byte(g, '-', n)) : n;
}

/* ---- values ---- */

int shapes_texts(struct shapes *s, const char *const *texts, int n, int next)
{
    struct grammar *g = s->g;
    int r = -1;
    for (int i = 0, k; i < n; i = k) { /* those with one first byte go on together, as far as all do */
        size_t same = strlen(texts[i]), tail;
        for (k = i + 1; k < n && texts[k][0] == texts[i][0]; k++)
            for (tail = 0; tail < same; tail++)
                if (texts[k][tail] != texts[i][tail])
                    same = tail;
        if (k == i + 1) {
            r = either(s, r, grammar_text(g, texts[i], strlen(texts[i]), next));
            continue;
        }
        const char *rest[64];
        int from = 0, more = -1;
        for (int at = i; at < k; at += from) { /* in parts, so that memory is bounded */
            for (from = 0; at + from < k && from < 64; from++)
                rest[from] = texts[at + from] + same;
            int ends = !*rest[0];
            int part = from > ends ? shapes_texts(s, rest + ends, from - ends, next) : -1;
            part = ends ? either(s, part, next) : part;
            more = part < 0 ? more : either(s, more, part);
        }
        r = either(s, r, grammar_text(g, texts[i], same, more));
        if (g->failed.code)
            return 0;
    }
    return r < 0 ? next : r;
}

static int any_rule(struct shapes *s)
{
    struct grammar *g = s->g;
    if (s->any >= 0)
        return s->any;
    int r = s->any = grammar_rule(g);
    static const char *const words[] = { "false", "null", "true" };
    int v = grammar_split(g, shapes_texts(s, words, 3, GRAMMAR_RETURN), shapes_number(s, 1, GRAMMAR_RETURN));
    v = grammar_split(g, v, shapes_string(s, 0, -1, GRAMMAR_RETURN));
    v = grammar_split(g, v, grammar_split(g, shapes_object(s, GRAMMAR_RETURN), shapes_array(s, GRAMMAR_RETURN)));
    if (!g->failed.code)
        g->rules[r] = v;
    return s->any;
}

int shapes_any(struct shapes *s, int next)
{
    return grammar_call(s->g, any_rule(s), next);
}

/* A list of what `round` begins, between brackets. */
static int list(struct shapes *s, unsigned open, unsigned close, int round, int next)
{
    struct grammar *g = s->g;
    int end = grammar_byte(g, close, next), more = grammar_byte(g, ',', shapes_space(s, round));
    int after = grammar_count(g, more, 0, -1, shapes_space(s, end));
    int first = grammar_count(g, round, 1, 1, after);
    return grammar_byte(g, open, shapes_space(s, grammar_split(g, first, end)));
}

int shapes_object(struct shapes *s, int next)
{
    return list(s, '{', '}', shapes_string(s, 0, -1, grammar_byte(s->g, ':', shapes_space(s, shapes_any(s, GRAMMAR_RETURN)))), next);
}

int shapes_array(struct shapes *s, int next)
{
    return list(s, '[', ']', shapes_any(s, GRAMMAR_RETURN), next);
}
