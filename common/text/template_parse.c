/* From text to nodes: a cursor over the source that reads either text between tags or tokens within one, and a recursive parser. */
#include "common/text/template_impl.h"

#include "common/base/print.h"
#include "common/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum token_kind { T_END, T_NAME, T_STR, T_INT, T_FLOAT, T_OP }; /* T_END: of the tag */

struct token {
    enum token_kind kind;
    struct text text;   /* name, operator, decoded string */
    int64_t i;
    double d;
};

struct parser {
    struct template *t;
    struct err *e;
    const char *s;
    size_t n, at, counted;
    int line, depth, nested; /* nested: open brackets within a tag */
    char tag;           /* '%', '{' within such a tag */
    bool line_start;    /* the text that follows begins a line */
    bool failed;
    struct token tok;
    struct node nothing; /* what is built after a failure: nobody reads it */
};

static int line_of(struct parser *p)
{
    for (; p->counted < p->at && p->counted < p->n; p->counted++)
        p->line += p->s[p->counted] == '\n';
    return p->line;
}

static void fail(struct parser *p, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct parser *p, int code, const char *fmt, ...)
{
    va_list ap;
    char what[200];
    if (p->failed)
        return;
    p->failed = true;
    va_start(ap, fmt);
    print_into_va(what, sizeof what, fmt, ap);
    va_end(ap);
    err_set(p->e, code, "%s, line %d: %s", p->t->name, line_of(p), what);
}

static void *take(struct parser *p, size_t n)
{
    void *at = template_alloc(&p->t->heap, n);
    if (!at)
        fail(p, template_no_room(&p->t->heap, n), "a template that takes more than %zu bytes", p->t->heap.most);
    return at;
}

static struct node *node(struct parser *p, enum node_kind kind)
{
    struct node *n = p->failed ? NULL : take(p, sizeof *n);
    if (!n)
        return &p->nothing;
    n->kind = kind;
    n->line = line_of(p);
    return n;
}

/* ---- tokens ---- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_space(struct parser *p)
{
    while (p->at < p->n && is_space(p->s[p->at]))
        p->at++;
}

static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) || (!first && c >= '0' && c <= '9');
}

static bool ahead(const struct parser *p, const char *what)
{
    size_t n = strlen(what);
    return p->n - p->at >= n && !memcmp(p->s + p->at, what, n);
}

/* An escape at p->at, which is behind the backslash; its bytes. Unknown ones keep the backslash, as Python's do. */
static size_t escape(struct parser *p, char *out)
{
    static const char from[] = "nrtbfv0a\\'\"", to[] = "\n\r\t\b\f\v\0\a\\'\"";
    char c = p->s[p->at++];
    const char *known = memchr(from, c, sizeof from - 1);
    if (known) {
        out[0] = to[known - from];
        return 1;
    }
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == '\n')
        return 0;
    if (!digits) {
        out[0] = '\\';
        out[1] = c;
        return 2;
    }
    char hex[9] = { 0 }, *end;
    size_t n = digits < p->n - p->at ? digits : p->n - p->at;
    memcpy(hex, p->s + p->at, n);
    unsigned long code = strtoul(hex, &end, 16);
    if (*end || n < digits || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        fail(p, ERR_FORMAT, "'\\%c%s' is no character", c, hex);
    p->at += n;
    return p->failed ? 0 : utf8_encode(out, (uint32_t)code);
}

static void string_token(struct parser *p)
{
    char quote = p->s[p->at++];
    size_t most = 0;
    for (size_t i = p->at; i < p->n && p->s[i] != quote; i += p->s[i] == '\\' ? 2 : 1)
        most += 2;
    char *out = take(p, most + 8);
    size_t n = 0;
    while (out && !p->failed && p->at < p->n && p->s[p->at] != quote) {
        char c = p->s[p->at++];
        if (c == '\\' && p->at < p->n)
            n += escape(p, out + n);
        else
            out[n++] = c;
    }
    if (p->at++ >= p->n)
        fail(p, ERR_FORMAT, "a string without its end");
    p->tok = (struct token){ .kind = T_STR, .text = { out, n } };
}

static void number_token(struct parser *p)
{
    char digits[64];
    size_t n = 0, dots = 0;
    bool real = false;
    while (p->at < p->n && n + 2 < sizeof digits) { /* an exponent takes two */
        char c = p->s[p->at];
        bool exponent = (c == 'e' || c == 'E') && p->at + 1 < p->n && strchr("0123456789+-", p->s[p->at + 1]);
        if (c == '.' && (dots++ || p->at + 1 >= p->n || p->s[p->at + 1] < '0' || p->s[p->at + 1] > '9'))
            break;
        if (!(c >= '0' && c <= '9') && c != '_' && c != '.' && !exponent)
            break;
        real |= c == '.' || exponent;
        if (c != '_')
            digits[n++] = c;
        p->at++;
        if (exponent)
            digits[n++] = p->s[p->at++];
    }
    digits[n] = '\0';
    p->tok = (struct token){ .kind = real ? T_FLOAT : T_INT, .text = { "a number", 8 } };
    if (real)
        p->tok.d = strtod(digits, NULL);
    else if (n > 18)
        fail(p, ERR_UNSUPPORTED, "the number %s is too large", digits);
    else
        p->tok.i = strtoll(digits, NULL, 10);
}

static bool end_of_tag(struct parser *p)
{
    const char *end = p->tag == '%' ? "%}" : "}}";
    char sign = p->s[p->at];
    size_t skip = p->nested ? 0 : ahead(p, end) ? 2 : 0;
    if (!p->nested && !skip && (sign == '-' || (sign == '+' && p->tag == '%')) && p->n - p->at >= 3 && !memcmp(p->s + p->at + 1, end, 2))
        skip = 3;
    if (!skip)
        return false;
    p->at += skip;
    p->line_start = false;
    if (skip == 3 && sign == '-') {
        skip_space(p);
        p->line_start = p->at > 0 && p->s[p->at - 1] == '\n';
    } else if (skip == 2 && p->tag == '%' && p->at < p->n && p->s[p->at] == '\n') {
        p->at++;
        p->line_start = true;
    }
    p->tok = (struct token){ .kind = T_END, .text = { "the end of the tag", 18 } };
    return true;
}

static void next(struct parser *p)
{
    static const char *const two[] = { "//", "**", "==", "!=", ">=", "<=" };
    skip_space(p);
    p->tok = (struct token){ .kind = T_END };
    if (p->failed)
        return;
    if (p->at >= p->n) {
        fail(p, ERR_FORMAT, "a tag without its end");
        return;
    }
    char c = p->s[p->at];
    if (end_of_tag(p))
        return;
    size_t begin = p->at;
    if (c == '"' || c == '\'') {
        string_token(p);
    } else if (c >= '0' && c <= '9') {
        number_token(p);
    } else if (is_name(c, true)) {
        while (p->at < p->n && is_name(p->s[p->at], false))
            p->at++;
        p->tok = (struct token){ .kind = T_NAME, .text = { p->s + begin, p->at - begin } };
    } else {
        size_t n = strchr("+-/*%~[](){}<>=.:|,", c) && c ? 1 : 0;
        for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
            n = ahead(p, two[i]) ? 2 : n;
        if (!n)
            fail(p, ERR_FORMAT, "'%c' has no meaning in a tag", c >= 0x20 && c < 0x7f ? c : '?');
        p->nested += n == 1 && strchr("([{", c) ? 1 : n == 1 && strchr(")]}", c) ? -1 : 0;
        p->at += n;
        p->tok = (struct token){ .kind = T_OP, .text = { p->s + begin, n } };
    }
}

static bool is_op(const struct parser *p, const char *op)
{
    return !p->failed && p->tok.kind == T_OP && text_is(p->tok.text, op);
}

static bool is_word(const struct parser *p, const char *word)
{
    return !p->failed && p->tok.kind == T_NAME && text_is(p->tok.text, word);
}

static bool accept_op(struct parser *p, const char *op)
{
    bool yes = is_op(p, op);
    if (yes)
        next(p);
    return yes;
}

static bool accept_word(struct parser *p, const char *word)
{
    bool yes = is_word(p, word);
    if (yes)
        next(p);
    return yes;
}

static void unexpected(struct parser *p, const char *wanted)
{
    fail(p, ERR_FORMAT, "'%.*s' where %s is expected", p->tok.text.n > 40 ? 40 : (int)p->tok.text.n, p->tok.text.s ? p->tok.text.s : "",
         wanted);
}

static void expect_op(struct parser *p, const char *op)
{
    if (!accept_op(p, op))
        unexpected(p, op);
}

static struct text expect_name(struct parser *p)
{
    struct text name = p->tok.text;
    if (p->tok.kind != T_NAME)
        unexpected(p, "a name");
    next(p);
    return name;
}

static void expect_end(struct parser *p)
{
    if (p->tok.kind != T_END)
        unexpected(p, "the end of the tag");
}

static bool deeper(struct parser *p)
{
    if (++p->depth > TEMPLATE_MAX_DEPTH)
        fail(p, ERR_LIMIT, "nested more than %d deep", TEMPLATE_MAX_DEPTH);
    return !p->failed;
}

/* ---- expressions ---- */

static struct node *expression(struct parser *p);
static struct node *unary(struct parser *p, bool filters);
static struct node *tuple(struct parser *p, bool inline_if);

static void append(struct node ***tail, struct node *n)
{
    **tail = n;
    *tail = &n->next;
}

static struct node *constant(struct parser *p, const struct value v)
{
    struct node *n = node(p, N_CONST);
    struct value *copy = take(p, sizeof *copy);
    if (copy)
        *copy = v;
    n->value = copy;
    return n;
}

/* Arguments up to the closing parenthesis; the opening one has been read. */
static struct node *arguments(struct parser *p)
{
    struct node *first = NULL, **tail = &first;
    while (!p->failed && !is_op(p, ")")) {
        struct node *arg;
        if (is_op(p, "*") || is_op(p, "**"))
            fail(p, ERR_UNSUPPORTED, "'%.*s' before an argument", (int)p->tok.text.n, p->tok.text.s);
        struct parser before = *p;
        struct text name = p->tok.text;
        bool named = p->tok.kind == T_NAME;
        if (named)
            next(p);
        if (named && is_op(p, "=")) {
            next(p);
            arg = node(p, N_NAMED);
            arg->name = name;
            arg->a = expression(p);
        } else {
            struct err *e = p->e;
            *p = before;
            p->e = e;
            arg = expression(p);
        }
        append(&tail, arg);
        if (!accept_op(p, ","))
            break;
    }
    expect_op(p, ")");
    return first;
}

static struct node *elements(struct parser *p, enum node_kind kind, const char *end)
{
    struct node *n = node(p, kind), **tail = &n->args;
    while (!p->failed && !is_op(p, end)) {
        append(&tail, expression(p));
        if (kind == N_DICT) {
            expect_op(p, ":");
            append(&tail, expression(p));
        }
        if (!accept_op(p, ","))
            break;
    }
    expect_op(p, end);
    return n;
}

static struct node *string_constant(struct parser *p)
{
    struct text s = p->tok.text;
    next(p);
    while (!p->failed && p->tok.kind == T_STR) { /* side by side: one string */
        char *both = take(p, s.n + p->tok.text.n + 1);
        if (!both)
            break;
        memcpy(both, s.s, s.n);
        memcpy(both + s.n, p->tok.text.s, p->tok.text.n);
        s = (struct text){ both, s.n + p->tok.text.n };
        next(p);
    }
    return constant(p, (struct value){ .kind = V_STR, .u.s = s });
}

static struct node *primary(struct parser *p)
{
    struct token t = p->tok;
    if (t.kind == T_STR)
        return string_constant(p);
    if (accept_op(p, "[")) {
        return elements(p, N_LIST, "]");
    } else if (accept_op(p, "{")) {
        return elements(p, N_DICT, "}");
    } else if (accept_op(p, "(")) {
        struct node *n = is_op(p, ")") ? node(p, N_TUPLE) : tuple(p, true);
        expect_op(p, ")");
        return n;
    }
    if (t.kind != T_NAME && t.kind != T_INT && t.kind != T_FLOAT) {
        unexpected(p, "an expression");
        return node(p, N_CONST);
    }
    next(p);
    if (t.kind == T_INT)
        return constant(p, (struct value){ .kind = V_INT, .u.i = t.i });
    if (t.kind == T_FLOAT)
        return constant(p, (struct value){ .kind = V_FLOAT, .u.d = t.d });
    if (text_is(t.text, "true") || text_is(t.text, "True"))
        return constant(p, template_true);
    if (text_is(t.text, "false") || text_is(t.text, "False"))
        return constant(p, template_false);
    if (text_is(t.text, "none") || text_is(t.text, "None"))
        return constant(p, template_none);
    struct node *n = node(p, N_NAME);
    n->name = t.text;
    return n;
}

static struct node *subscript(struct parser *p, struct node *of)
{
    struct node *n = node(p, N_ITEM);
    n->a = of;
    if (!is_op(p, ":"))
        n->b = expression(p);
    if (is_op(p, ":")) {
        struct node *part[3] = { n->b };
        for (int i = 1; i < 3 && accept_op(p, ":"); i++)
            part[i] = is_op(p, ":") || is_op(p, "]") ? NULL : expression(p);
        n->kind = N_SLICE;
        n->b = part[0];
        n->c = part[1];
        n->other = part[2];
    }
    expect_op(p, "]");
    return n;
}

static struct node *postfix(struct parser *p, struct node *n)
{
    while (!p->failed) {
        struct node *of = n;
        if (accept_op(p, ".")) {
            n = node(p, N_ATTR);
            n->a = of;
            if (p->tok.kind == T_INT) {
                n->kind = N_ITEM;
                n->b = primary(p);
            } else {
                n->name = expect_name(p);
            }
        } else if (accept_op(p, "[")) {
            n = subscript(p, of);
        } else if (accept_op(p, "(")) {
            n = node(p, N_CALL);
            n->a = of;
            n->args = arguments(p);
        } else {
            break;
        }
    }
    return n;
}

static struct node *filter(struct parser *p, struct node *of)
{
    struct node *n = node(p, N_FILTER);
    n->a = of;
    n->name = expect_name(p);
    if (accept_op(p, "("))
        n->args = arguments(p);
    return n;
}

static struct node *test(struct parser *p, struct node *of)
{
    struct node *n = node(p, N_TEST);
    n->a = of;
    n->negated = accept_word(p, "not");
    n->name = expect_name(p);
    bool value = p->tok.kind == T_STR || p->tok.kind == T_INT || p->tok.kind == T_FLOAT || is_op(p, "[") || is_op(p, "{") ||
                 (p->tok.kind == T_NAME && !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and") && !is_word(p, "is") &&
                  !is_word(p, "if") && !is_word(p, "in") && !is_word(p, "not"));
    if (accept_op(p, "("))
        n->args = arguments(p);
    else if (value)
        n->args = postfix(p, primary(p));
    return n;
}

static struct node *filters_and_tests(struct parser *p, struct node *n)
{
    while (!p->failed) {
        if (accept_op(p, "|")) {
            n = filter(p, n);
        } else if (accept_word(p, "is")) {
            n = test(p, n);
        } else if (accept_op(p, "(")) {
            struct node *of = n;
            n = node(p, N_CALL);
            n->a = of;
            n->args = arguments(p);
        } else {
            break;
        }
    }
    return n;
}

static struct node *unary(struct parser *p, bool filters)
{
    struct node *n;
    if (!deeper(p))
        return node(p, N_CONST);
    if (is_op(p, "-") || is_op(p, "+")) {
        n = node(p, is_op(p, "-") ? N_NEG : N_POS);
        next(p);
        n->a = unary(p, false);
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    p->depth--;
    return filters ? filters_and_tests(p, n) : n;
}

/* Binary operators, weakest first; each level is left-associative. */
static struct node *binary(struct parser *p, int level)
{
    static const struct {
        int level;
        const char *text;
        enum op op;
    } ops[] = { { 0, "+", OP_ADD }, { 0, "-", OP_SUB }, { 1, "~", OP_JOIN }, { 2, "*", OP_MUL },
                { 2, "/", OP_DIV }, { 2, "//", OP_FLOOR }, { 2, "%", OP_MOD }, { 3, "**", OP_POW } };
    if (level == 4)
        return unary(p, true);
    struct node *left = binary(p, level + 1);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0] && !p->failed;) {
        struct node *n = ops[i].level == level && accept_op(p, ops[i].text) ? node(p, N_BINARY) : NULL;
        if (n) {
            n->op = ops[i].op;
            n->a = left;
            n->b = binary(p, level + 1);
            left = n;
        }
        i = n ? 0 : i + 1;
    }
    return left;
}

static bool comparison(struct parser *p, enum op *op)
{
    static const struct {
        const char *text;
        enum op op;
    } ops[] = { { "==", OP_EQ }, { "!=", OP_NE }, { "<", OP_LT }, { "<=", OP_LE }, { ">", OP_GT }, { ">=", OP_GE } };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (accept_op(p, ops[i].text)) {
            *op = ops[i].op;
            return true;
        }
    *op = OP_IN;
    if (accept_word(p, "in"))
        return true;
    *op = OP_NOT_IN;
    if (!is_word(p, "not"))
        return false;
    next(p);
    if (!accept_word(p, "in"))
        unexpected(p, "in");
    return true;
}

/* a < b < c: the operands behind the first are a list with their operators. */
static struct node *compare(struct parser *p)
{
    struct node *left = binary(p, 0), *n = NULL, **tail = NULL;
    enum op op;
    while (!p->failed && comparison(p, &op)) {
        if (!n) {
            n = node(p, N_COMPARE);
            n->a = left;
            tail = &n->args;
        }
        struct node *right = node(p, N_POS);
        right->op = op;
        right->a = binary(p, 0);
        append(&tail, right);
    }
    return n ? n : left;
}

static struct node *negation(struct parser *p)
{
    if (!is_word(p, "not"))
        return compare(p);
    struct node *n = node(p, N_NOT);
    next(p);
    if (deeper(p))
        n->a = negation(p);
    p->depth--;
    return n;
}

static struct node *logic(struct parser *p, bool either)
{
    struct node *left = either ? logic(p, false) : negation(p);
    while (accept_word(p, either ? "or" : "and")) {
        struct node *n = node(p, either ? N_OR : N_AND);
        n->a = left;
        n->b = either ? logic(p, false) : negation(p);
        left = n;
    }
    return left;
}

static struct node *expression(struct parser *p)
{
    if (!deeper(p))
        return node(p, N_CONST);
    struct node *n = logic(p, true);
    while (accept_word(p, "if")) {
        struct node *chosen = node(p, N_IF_ELSE);
        chosen->b = n;
        chosen->a = logic(p, true);
        if (accept_word(p, "else"))
            chosen->c = expression(p);
        n = chosen;
    }
    p->depth--;
    return n;
}

/* One expression, or several with commas. */
static struct node *tuple(struct parser *p, bool inline_if)
{
    struct node *first = inline_if ? expression(p) : logic(p, true);
    if (!is_op(p, ","))
        return first;
    struct node *n = node(p, N_TUPLE), **tail = &n->args;
    append(&tail, first);
    while (accept_op(p, ",") && !is_op(p, ")") && !is_op(p, "=") && p->tok.kind != T_END)
        append(&tail, inline_if ? expression(p) : logic(p, true));
    return n;
}

/* ---- statements ---- */

static struct node *body(struct parser *p, const char *const *ends, struct text *end);

static struct node *body_until(struct parser *p, const char *end)
{
    const char *const ends[] = { end, NULL };
    struct text found;
    struct node *n = body(p, ends, &found);
    expect_end(p);
    return n;
}

/* Names to assign to: one, several, or an attribute of a namespace. */
static struct node *target(struct parser *p)
{
    bool paren = accept_op(p, "(");
    struct node *n = node(p, N_NAME);
    n->name = expect_name(p);
    if (accept_op(p, ".")) {
        struct node *of = n;
        n = node(p, N_ATTR);
        n->a = of;
        n->name = expect_name(p);
    } else if (is_op(p, ",")) {
        struct node *first = n, **tail;
        n = node(p, N_TUPLE);
        tail = &n->args;
        append(&tail, first);
        while (accept_op(p, ",")) {
            struct node *more = node(p, N_NAME);
            more->name = expect_name(p);
            append(&tail, more);
        }
    }
    if (paren)
        expect_op(p, ")");
    return n;
}

/* What follows a body that ended there: the end of the statement, or its else. */
static struct node *else_part(struct parser *p, struct text end, const char *last)
{
    bool is_else = !p->failed && text_is(end, "else");
    expect_end(p);
    return is_else ? body_until(p, last) : NULL;
}

static struct node *if_statement(struct parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    struct node *first = node(p, N_IF), *n = first;
    struct text end;
    n->a = tuple(p, true);
    for (;;) {
        expect_end(p);
        n->body = body(p, ends, &end);
        if (p->failed || !text_is(end, "elif"))
            break;
        n->other = node(p, N_IF);
        n = n->other;
        n->a = tuple(p, true);
    }
    n->other = else_part(p, end, "endif");
    return first;
}

static struct node *for_statement(struct parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL };
    struct node *n = node(p, N_FOR);
    struct text end;
    n->a = target(p);
    if (!accept_word(p, "in"))
        unexpected(p, "in");
    n->b = tuple(p, false);
    if (accept_word(p, "if"))
        n->c = expression(p);
    if (is_word(p, "recursive"))
        fail(p, ERR_UNSUPPORTED, "'recursive' loops are not known");
    expect_end(p);
    n->body = body(p, ends, &end);
    n->other = else_part(p, end, "endfor");
    return n;
}

/* Filters of a block: a list in the order in which they work. */
static struct node *filters(struct parser *p)
{
    struct node *first = NULL, **tail = &first;
    do
        append(&tail, filter(p, NULL));
    while (accept_op(p, "|"));
    return first;
}

static struct node *set_statement(struct parser *p)
{
    struct node *n = node(p, N_SET);
    n->a = target(p);
    if (accept_op(p, "=")) {
        n->b = tuple(p, true);
        expect_end(p);
        return n;
    }
    n->kind = N_SET_BLOCK;
    if (accept_op(p, "|"))
        n->args = filters(p);
    expect_end(p);
    n->body = body_until(p, "endset");
    return n;
}

static struct node *macro_statement(struct parser *p)
{
    struct node *n = node(p, N_MACRO), **tail = &n->args;
    n->name = expect_name(p);
    expect_op(p, "(");
    while (!p->failed && !is_op(p, ")")) {
        struct node *parameter = node(p, N_NAME);
        parameter->name = expect_name(p);
        if (accept_op(p, "="))
            parameter->a = expression(p);
        append(&tail, parameter);
        if (!accept_op(p, ","))
            break;
    }
    expect_op(p, ")");
    expect_end(p);
    n->body = body_until(p, "endmacro");
    return n;
}

static struct node *statement(struct parser *p, struct text word)
{
    if (text_is(word, "if"))
        return if_statement(p);
    if (text_is(word, "for"))
        return for_statement(p);
    if (text_is(word, "set"))
        return set_statement(p);
    if (text_is(word, "macro"))
        return macro_statement(p);
    struct node *n = node(p, N_SCOPE);
    if (text_is(word, "generation")) {
        expect_end(p);
        n->body = body_until(p, "endgeneration");
    } else if (text_is(word, "filter")) {
        n->kind = N_FILTER_BLOCK;
        n->args = filters(p);
        expect_end(p);
        n->body = body_until(p, "endfilter");
    } else if (text_is(word, "break") || text_is(word, "continue")) {
        n->kind = text_is(word, "break") ? N_BREAK : N_CONTINUE;
        expect_end(p);
    } else {
        fail(p, ERR_UNSUPPORTED, "statement '%.*s' is not known here", word.n > 40 ? 40 : (int)word.n, word.s);
    }
    return n;
}

static struct node *text_node(struct parser *p, size_t from, size_t to)
{
    struct node *n = node(p, N_TEXT);
    n->name = (struct text){ p->s + from, to - from };
    return n;
}

/* Behind {# ... #}; what follows it as behind a statement. */
static void comment(struct parser *p)
{
    const char *end = memmem(p->s + p->at, p->n - p->at, "#}", 2);
    if (!end) {
        fail(p, ERR_FORMAT, "a comment without its end");
        return;
    }
    size_t at = (size_t)(end - p->s);
    bool strip = at > p->at && p->s[at - 1] == '-', keep = at > p->at && p->s[at - 1] == '+';
    p->at = at + 2;
    p->line_start = false;
    if (strip)
        skip_space(p);
    if (!strip && !keep && p->at < p->n && p->s[p->at] == '\n')
        p->at++;
    p->line_start = p->s[p->at - 1] == '\n';
}

/* Where the text before a tag ends: lstrip_blocks takes the blanks of its line, if there is nothing else on it. */
static size_t before_tag(const struct parser *p, size_t from, size_t to, bool line_start)
{
    size_t line = to;
    while (line > from && p->s[line - 1] != '\n' && is_space(p->s[line - 1]))
        line--;
    return (line > from ? p->s[line - 1] == '\n' : line_start) ? line : to;
}

/* {% raw %}: text up to its end; the word has been read, p->at is behind it. The tag takes no newline behind it, and no +. */
static struct node *raw(struct parser *p)
{
    skip_space(p);
    bool minus = ahead(p, "-%}");
    if (!minus && !ahead(p, "%}")) {
        fail(p, ERR_FORMAT, "'raw' with something behind it");
        return node(p, N_TEXT);
    }
    p->at += minus ? 3 : 2;
    if (minus)
        skip_space(p);
    size_t from = p->at;
    bool line_start = p->s[from - 1] == '\n';
    while (!p->failed) {
        const char *tag = memmem(p->s + p->at, p->n - p->at, "{%", 2);
        if (!tag) {
            fail(p, ERR_FORMAT, "'raw' without 'endraw'");
            break;
        }
        size_t to = (size_t)(tag - p->s);
        char sign = p->s[to + 2]; /* the source ends with a zero */
        p->at = to + 2 + (sign == '-' || sign == '+');
        skip_space(p);
        if (!ahead(p, "endraw"))
            continue;
        p->tag = '%';
        next(p);
        next(p);
        expect_end(p);
        while (sign == '-' && to > from && is_space(p->s[to - 1]))
            to--;
        return text_node(p, from, sign == '-' || sign == '+' ? to : before_tag(p, from, to, line_start));
    }
    return node(p, N_TEXT);
}

/* Text up to the next tag, without what the tag's sign or lstrip_blocks takes; p->at is behind the tag's begin. */
static struct node *text(struct parser *p)
{
    size_t from = p->at, to = from;
    while (to < p->n && !(p->s[to] == '{' && to + 1 < p->n && strchr("{%#", p->s[to + 1]) && p->s[to + 1]))
        to++;
    p->tag = to < p->n ? p->s[to + 1] : 0;
    p->at = to < p->n ? to + 2 : to;
    char sign = p->at < p->n ? p->s[p->at] : 0;
    if (p->tag && (sign == '-' || sign == '+'))
        p->at++;
    if (p->tag && sign == '-') {
        while (to > from && is_space(p->s[to - 1]))
            to--;
    } else if (p->tag && p->tag != '{' && sign != '+') {
        to = before_tag(p, from, to, p->line_start);
    }
    return text_node(p, from, to);
}

static bool is_end(struct text word, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (text_is(word, *ends))
            return true;
    return false;
}

/* Statements up to a tag whose name is one of ends, which is read, or up to the end of the template where there are none. */
static struct node *body(struct parser *p, const char *const *ends, struct text *end)
{
    struct node *first = NULL, **tail = &first;
    *end = (struct text){ "", 0 };
    if (!deeper(p))
        return NULL;
    while (!p->failed) {
        struct node *n = text(p);
        if (n->name.n)
            append(&tail, n);
        if (!p->tag) {
            if (ends)
                fail(p, ERR_FORMAT, "'%s' is missing", ends[0]);
            break;
        }
        if (p->tag == '#') {
            comment(p);
            continue;
        }
        next(p);
        if (p->tag == '{') {
            n = node(p, N_OUT);
            n->a = tuple(p, true);
            expect_end(p);
            append(&tail, n);
            continue;
        }
        struct text word = p->tok.text;
        if (p->tok.kind == T_NAME && text_is(word, "raw")) {
            append(&tail, raw(p));
            continue;
        }
        word = expect_name(p);
        if (is_end(word, ends)) {
            *end = word;
            break;
        }
        append(&tail, statement(p, word));
    }
    p->depth--;
    return first;
}

/* ---- the whole ---- */

/* A copy with \n for \r\n and \r, without one newline at the end, as Jinja reads its sources. */
static int copy_source(struct template *t, const char *text, size_t len, struct parser *p, struct err *e)
{
    char *s = template_alloc(&t->heap, len + 1);
    if (!s)
        return err_set(e, template_no_room(&t->heap, len + 1), "%s takes more than %zu bytes", t->name, t->heap.most);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            continue;
        s[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    n -= n > 0 && s[n - 1] == '\n';
    p->s = s;
    p->n = n;
    return 0;
}

int template_new(const char *text, size_t len, const char *name, size_t most, struct template **out, struct err *e)
{
    if (len > TEMPLATE_MAX_SOURCE)
        return err_set(e, ERR_LIMIT, "%s has %zu bytes, more than the limit of %u", name, len, TEMPLATE_MAX_SOURCE);
    struct template *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "out of memory for a template");
    struct parser p = { .t = t, .e = e, .line = 1, .line_start = true };
    struct text end;
    t->heap.most = most < TEMPLATE_MAX_MEMORY ? most : TEMPLATE_MAX_MEMORY;
    snprintf(t->name, sizeof t->name, "%s", name);
    int r = copy_source(t, text, len, &p, e);
    if (r == 0) {
        t->body = body(&p, NULL, &end);
        r = p.failed ? e->code : 0;
    }
    if (r < 0) {
        template_free(t);
        return r;
    }
    *out = t;
    return 0;
}

void template_free(struct template *t)
{
    if (!t)
        return;
    template_heap_free(&t->heap);
    free(t);
}
