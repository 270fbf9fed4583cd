/* Read into a tree, by recursive descent, for a grammar is built from its end. */
#include "runtime/mask/pattern.h"

#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define PARTS  2048   /* of a tree */
#define RANGES 128    /* of a set */
#define DEPTH  32
#define TIMES  10000

enum kind { EMPTY, CHARS, CAT, ALT, TIMES_OF };

struct part {
    enum kind kind;
    int a, b;             /* CAT, ALT: parts; TIMES_OF: of a */
    int min, max;
    struct shapes_range *ranges; /* CHARS: [n_ranges] */
    int n_ranges, may_be_empty;
};

struct reader {
    struct shapes *s;
    const char *text, *at;
    struct part parts[PARTS];
    int n, depth;
};

static int stop(struct reader *r, int code, const char *what)
{
    grammar_fail(r->s->g, code, "pattern '%.80s': %s, at byte %zu", r->text, what, (size_t)(r->at - r->text) + 1);
    return 0;
}

static int add(struct reader *r, struct part p)
{
    if (r->n == PARTS)
        return stop(r, ERR_LIMIT, "more parts than the limit of 2048");
    r->parts[r->n] = p;
    return r->n++;
}

/* ---- sets ---- */

struct set {
    struct shapes_range v[RANGES];
    int n;
};

static void put(struct reader *r, struct set *s, uint32_t from, uint32_t to)
{
    if (s->n == RANGES) {
        stop(r, ERR_LIMIT, "a set of more than the limit of 128 ranges");
        return;
    }
    s->v[s->n++] = (struct shapes_range){ from, to };
}

static int by_from(const void *a, const void *b)
{
    const struct shapes_range *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Ascending and apart. */
static void tidy(struct set *s)
{
    int n = 0;
    qsort(s->v, (size_t)s->n, sizeof s->v[0], by_from);
    for (int i = 0; i < s->n; i++) {
        if (n && s->v[i].from <= s->v[n - 1].to + 1)
            s->v[n - 1].to = s->v[i].to > s->v[n - 1].to ? s->v[i].to : s->v[n - 1].to;
        else
            s->v[n++] = s->v[i];
    }
    s->n = n;
}

static void invert(struct reader *r, struct set *s)
{
    struct set out = { .n = 0 };
    uint32_t from = 0;
    tidy(s);
    for (int i = 0; i < s->n; i++) {
        if (s->v[i].from > from)
            put(r, &out, from, s->v[i].from - 1);
        from = s->v[i].to + 1;
    }
    if (from <= 0x10ffff)
        put(r, &out, from, 0x10ffff);
    *s = out;
}

static void put_class(struct reader *r, struct set *to, char c)
{
    struct set s = { .n = 0 };
    switch (c | 32) {
    case 'd': put(r, &s, '0', '9'); break;
    case 'w':
        put(r, &s, '0', '9');
        put(r, &s, 'A', 'Z');
        put(r, &s, '_', '_');
        put(r, &s, 'a', 'z');
        break;
    default: /* white space of ECMA-262 */
        put(r, &s, '\t', '\r');
        put(r, &s, ' ', ' ');
        put(r, &s, 0xa0, 0xa0);
        put(r, &s, 0x1680, 0x1680);
        put(r, &s, 0x2000, 0x200a);
        put(r, &s, 0x2028, 0x2029);
        put(r, &s, 0x202f, 0x202f);
        put(r, &s, 0x205f, 0x205f);
        put(r, &s, 0x3000, 0x3000);
        put(r, &s, 0xfeff, 0xfeff);
    }
    if (c < 'a')
        invert(r, &s);
    for (int i = 0; i < s.n; i++)
        put(r, to, s.v[i].from, s.v[i].to);
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static uint32_t hex_digits(struct reader *r, int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++, r->at++) {
        int d = hex_value(*r->at);
        if (d < 0)
            return (uint32_t)stop(r, ERR_FORMAT, "no hexadecimal digit");
        v = v << 4 | (uint32_t)d;
    }
    if (v >= 0xd800 && v < 0xe000)
        stop(r, ERR_UNSUPPORTED, "a surrogate");
    return v;
}

static uint32_t literal(struct reader *r)
{
    uint32_t c = 0;
    size_t n = utf8_decode(r->at, strlen(r->at), &c);
    r->at += n;
    return n ? c : (uint32_t)stop(r, ERR_FORMAT, "no UTF-8");
}

/* Behind a backslash. 1: a class, which is in *set; 0: a character. */
static int escaped(struct reader *r, struct set *set, uint32_t *c)
{
    static const char names[] = "ntrfv", values[] = "\n\t\r\f\v";
    const char *name = *r->at ? strchr(names, *r->at) : NULL;
    if (*r->at && strchr("dDwWsS", *r->at)) {
        put_class(r, set, *r->at++);
        return 1;
    }
    if (name) {
        *c = (unsigned char)values[name - names];
        r->at++;
    } else if (*r->at == 'x' || *r->at == 'u') {
        *c = hex_digits(r, *r->at++ == 'x' ? 2 : 4);
    } else if ((*r->at | 32) >= 'a' && (*r->at | 32) <= 'z') {
        stop(r, ERR_UNSUPPORTED, "this escape is not known");
    } else if (*r->at >= '0' && *r->at <= '9') {
        stop(r, ERR_UNSUPPORTED, "a back reference");
    } else {
        *c = literal(r);
    }
    return 0;
}

static int chars(struct reader *r, struct set *s)
{
    tidy(s);
    struct shapes_range *v = r->s->g->failed.code ? NULL : malloc((size_t)(s->n + 1) * sizeof *v);
    if (!v) {
        grammar_fail(r->s->g, ERR_NOMEM, "out of memory for a pattern");
        return 0;
    }
    memcpy(v, s->v, (size_t)s->n * sizeof *v);
    int at = add(r, (struct part){ .kind = CHARS, .ranges = v, .n_ranges = s->n });
    if (r->s->g->failed.code)
        free(v);
    return at;
}

static int brackets(struct reader *r)
{
    struct set s = { .n = 0 };
    int inverse = *r->at == '^';
    r->at += inverse;
    while (*r->at != ']' && !r->s->g->failed.code) {
        uint32_t from = 0, to;
        if (!*r->at)
            return stop(r, ERR_FORMAT, "a set without an end");
        if (*r->at == '\\' ? (r->at++, escaped(r, &s, &from)) : (from = literal(r), 0))
            continue;
        to = from;
        if (r->at[0] == '-' && r->at[1] && r->at[1] != ']') {
            struct set other = { .n = 0 };
            r->at++;
            if (*r->at == '\\' ? (r->at++, escaped(r, &other, &to)) : (to = literal(r), 0))
                return stop(r, ERR_FORMAT, "a range that ends in a class");
        }
        if (to < from)
            return stop(r, ERR_FORMAT, "a range whose end is before its beginning");
        put(r, &s, from, to);
    }
    r->at++;
    if (inverse && !r->s->g->failed.code)
        invert(r, &s);
    return chars(r, &s);
}

/* ---- the tree ---- */

static int alternatives(struct reader *r);

static int group(struct reader *r)
{
    if (r->at[0] == '?' && r->at[1] != ':')
        return stop(r, ERR_UNSUPPORTED, "look-around or a named group");
    r->at += r->at[0] == '?' ? 2 : 0;
    if (++r->depth > DEPTH)
        return stop(r, ERR_LIMIT, "groups more than 32 deep");
    int p = alternatives(r);
    r->depth--;
    if (*r->at != ')')
        return stop(r, ERR_FORMAT, "a group without an end");
    r->at++;
    return p;
}

static int atom(struct reader *r)
{
    struct set s = { .n = 0 };
    uint32_t c = 0;
    switch (*r->at) {
    case '(': r->at++; return group(r);
    case '[': r->at++; return brackets(r);
    case '^':
    case '$': return stop(r, ERR_UNSUPPORTED, "^ or $ within it");
    case '*':
    case '+':
    case '?':
    case '{': return stop(r, ERR_FORMAT, "nothing to repeat");
    case '.':
        r->at++;
        put(r, &s, '\n', '\n');
        put(r, &s, '\r', '\r');
        put(r, &s, 0x2028, 0x2029);
        invert(r, &s);
        return chars(r, &s);
    case '\\':
        r->at++;
        if (!escaped(r, &s, &c))
            put(r, &s, c, c);
        return chars(r, &s);
    default:
        c = literal(r);
        put(r, &s, c, c);
        return chars(r, &s);
    }
}

static int number(struct reader *r)
{
    int v = 0;
    if (*r->at < '0' || *r->at > '9')
        return stop(r, ERR_FORMAT, "no number of times");
    for (; *r->at >= '0' && *r->at <= '9'; r->at++)
        if ((v = v * 10 + *r->at - '0') > TIMES)
            return stop(r, ERR_LIMIT, "more times than the limit of 10000");
    return v;
}

static int repeated(struct reader *r)
{
    int a = atom(r), min = 0, max = -1;
    char c = *r->at;
    if (r->s->g->failed.code || !c || !strchr("*+?{", c))
        return a;
    r->at++;
    if (c == '{') {
        min = max = number(r);
        if (*r->at == ',')
            max = *++r->at == '}' ? -1 : number(r);
        if (*r->at != '}' || (max >= 0 && max < min))
            return stop(r, ERR_FORMAT, "a number of times that is none");
        r->at++;
    } else {
        min = c == '+';
        max = c == '?' ? 1 : -1;
    }
    if (*r->at == '?')
        return stop(r, ERR_UNSUPPORTED, "lazy repetition");
    if (*r->at && strchr("*+{", *r->at))
        return stop(r, ERR_FORMAT, "nothing to repeat");
    if (r->parts[a].may_be_empty)
        return stop(r, ERR_UNSUPPORTED, "repetition of what may be empty");
    return add(r, (struct part){ .kind = TIMES_OF, .a = a, .min = min, .max = max, .may_be_empty = min == 0 });
}

static int sequence(struct reader *r)
{
    int a = -1;
    while (*r->at && *r->at != '|' && *r->at != ')' && !(*r->at == '$' && !r->at[1]) && !r->s->g->failed.code) {
        int b = repeated(r);
        int empty = a >= 0 && r->parts[a].may_be_empty && r->parts[b].may_be_empty;
        a = a < 0 ? b : add(r, (struct part){ .kind = CAT, .a = a, .b = b, .may_be_empty = empty });
    }
    return a < 0 ? add(r, (struct part){ .kind = EMPTY, .may_be_empty = 1 }) : a;
}

static int alternatives(struct reader *r)
{
    int a = sequence(r);
    while (*r->at == '|' && !r->s->g->failed.code) {
        r->at++;
        int b = sequence(r);
        a = add(r, (struct part){ .kind = ALT, .a = a, .b = b, .may_be_empty = r->parts[a].may_be_empty || r->parts[b].may_be_empty });
    }
    return a;
}

static int build(struct reader *r, int at, int next)
{
    const struct part *p = &r->parts[at];
    if (r->s->g->failed.code)
        return 0;
    switch (p->kind) {
    case CHARS: return shapes_chars(r->s, p->ranges, p->n_ranges, next);
    case CAT: return build(r, p->a, build(r, p->b, next));
    case ALT: return grammar_split(r->s->g, build(r, p->a, next), build(r, p->b, next));
    case TIMES_OF:
        if (p->min == 0 && p->max == 1)
            return grammar_split(r->s->g, next, build(r, p->a, next));
        return grammar_count(r->s->g, build(r, p->a, GRAMMAR_RETURN), p->min, p->max, next);
    default: return next;
    }
}

/* Alternatives at the top bind less than ^ and $, which each of them may have: that is not known here. */
int pattern_string(struct shapes *s, const char *pattern, int next)
{
    struct reader *r = calloc(1, sizeof *r);
    int out = 0, end = grammar_byte(s->g, '"', next);
    if (!r) {
        grammar_fail(s->g, ERR_NOMEM, "out of memory for a pattern");
        return 0;
    }
    r->s = s;
    r->text = r->at = pattern;
    int begins = *pattern == '^';
    r->at += begins;
    int p = alternatives(r), ends = *r->at == '$';
    r->at += ends;
    if (*r->at)
        stop(r, ERR_FORMAT, "a bracket that nothing opens");
    if ((begins || ends) && r->parts[p].kind == ALT && pattern[begins] && strchr(pattern, '|') && !s->g->failed.code) {
        int depth = 0; /* is the alternative at the top? */
        for (const char *c = pattern + begins; *c && c < r->at; c++) {
            if (*c == '\\' && c[1]) {
                c++;
                continue;
            }
            depth += *c == '(' || *c == '[' ? 1 : *c == ')' || *c == ']' ? -1 : 0;
            if (*c == '|' && depth == 0)
                stop(r, ERR_UNSUPPORTED, "^ or $ with alternatives that are in no group");
        }
    }
    if (!s->g->failed.code) {
        out = build(r, p, ends ? end : shapes_text(s, 0, -1, end));
        out = grammar_byte(s->g, '"', begins ? out : shapes_text(s, 0, -1, out));
    }
    for (int i = 0; i < r->n; i++)
        free(r->parts[i].ranges);
    free(r);
    return s->g->failed.code ? 0 : out;
}
