#include "planner/terms/formula.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

struct reader {
    struct formula *f;
    const char *at;
    int bad;
};

static int add(struct reader *r, char op, int a, int b, int c)
{
    if (r->f->n == FORMULA_NODES) {
        r->bad = 1;
        return 0;
    }
    r->f->node[r->f->n] = (struct formula_node){ .op = op, .a = a, .b = b, .c = c };
    return r->f->n++;
}

static int take(struct reader *r, const char *what)
{
    r->at += strspn(r->at, " ");
    size_t n = strlen(what);
    if (strncmp(r->at, what, n))
        return 0;
    r->at += n;
    return 1;
}

static int expect(struct reader *r, const char *what)
{
    int found = take(r, what);
    r->bad |= !found;
    return found;
}

static int choice(struct reader *r);

static int primary(struct reader *r)
{
    char *end;
    if (take(r, "(")) {
        int i = choice(r);
        expect(r, ")");
        return i;
    }
    if (take(r, "larger(") || take(r, "smaller(")) {
        char op = r->at[-2] == 'r' && r->at[-7] == 'l' ? 'M' : 'm';
        int a = choice(r);
        expect(r, ",");
        int b = choice(r);
        expect(r, ")");
        return add(r, op, a, b, 0);
    }
    size_t n = strspn(r->at, NAME_BYTES);
    int i = add(r, *r->at >= '0' && *r->at <= '9' ? '#' : 'n', 0, 0, 0);
    struct formula_node *x = &r->f->node[i];
    if (x->op == '#') {
        x->number = strtod(r->at, &end);
        r->at = end;
        return i;
    }
    r->bad |= n == 0 || n >= FORMULA_NAME;
    if (!r->bad)
        memcpy(x->name, r->at, n);
    r->at += r->bad ? 0 : n;
    return i;
}

/* a OP b OP c of these two signs, from the left. */
static int chain(struct reader *r, const char *one, const char *other, int (*part)(struct reader *r))
{
    int a = part(r);
    while (!r->bad) {
        char op = take(r, one) ? *one : take(r, other) ? *other : 0;
        if (!op)
            break;
        int b = part(r);
        a = add(r, op, a, b, 0);
    }
    return a;
}

static int product(struct reader *r)
{
    return chain(r, "*", "/", primary);
}

static int sum(struct reader *r)
{
    return chain(r, "+", "-", product);
}

static int choice(struct reader *r)
{
    int a = sum(r);
    char op = take(r, "<=") ? 'l' : take(r, ">=") ? 'g' : take(r, "<") ? '<' : take(r, ">") ? '>' : 0;
    if (!op || r->bad)
        return a;
    int b = sum(r), test = add(r, op, a, b, 0);
    if (!take(r, "?"))
        return test;
    int yes = choice(r);
    expect(r, ":");
    int no = choice(r);
    return add(r, '?', test, yes, no);
}

int formula_read(struct formula *f, const char *text)
{
    struct reader r = { f, text, 0 };
    *f = (struct formula){ 0 };
    f->root = choice(&r);
    r.at += strspn(r.at, " ");
    return !r.bad && !*r.at;
}

const char *formula_input(const struct formula *f, int i)
{
    for (int k = 0; k < f->n; k++) {
        int first = f->node[k].op == 'n';
        for (int j = 0; j < k && first; j++)
            first = f->node[j].op != 'n' || strcmp(f->node[j].name, f->node[k].name) != 0;
        if (first && i-- == 0)
            return f->node[k].name;
    }
    return NULL;
}

const char *formula_term(const struct formula *f, int i, int *minus)
{
    int at = f->root, n = 0;
    for (; f->node[at].op == '+' || f->node[at].op == '-'; at = f->node[at].a, n++)
        if (f->node[f->node[at].b].op != 'n')
            return NULL;
    if (!n || f->node[at].op != 'n' || i > n)
        return NULL;
    *minus = 0;
    if (i == 0)
        return f->node[at].name;
    for (at = f->root; n > i; n--)
        at = f->node[at].a;
    *minus = f->node[at].op == '-';
    return f->node[f->node[at].b].name;
}

static int is_number(const struct formula *f, int i, double v)
{
    return f->node[i].op == '#' && fabs(f->node[i].number - v) <= 0;
}

/* What a guard guards; i itself where it is none: its condition compares with 0. */
static int guarded(const struct formula *f, int i)
{
    while (f->node[i].op == '?' && is_number(f, f->node[f->node[i].a].b, 0))
        i = f->node[f->node[i].b].op == '#' ? f->node[i].c : f->node[i].b;
    return i;
}

struct text {
    char *out;
    size_t at;
};

static void put(struct text *t, const char *what)
{
    t->at += t->at < FORMULA_TEXT ? (size_t)snprintf(t->out + t->at, FORMULA_TEXT - t->at, "%s", what) : 0;
}

static const char *sign_of(char op)
{
    static const struct {
        char op;
        const char *text;
    } signs[] = { { '+', " + " }, { '-', " - " }, { '*', " * " }, { '/', " / " }, { '<', " < " }, { '>', " > " }, { 'l', " <= " },
                  { 'g', " >= " } };
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (signs[i].op == op)
            return signs[i].text;
    return NULL;
}

static int strength(char op)
{
    static const char *const classes[] = { "?", "<>lg", "+-", "*/" };
    int i = 0;
    while (i < 4 && !strchr(classes[i], op))
        i++;
    return i;
}

/* least: how strongly it has to bind to need no parentheses. */
static void put_node(const struct formula *f, int i, int least, struct text *t)
{
    const struct formula_node *x = &f->node[i = guarded(f, i)];
    char number[32];
    if (x->op == '*' && is_number(f, x->a, 1e9)) {
        put_node(f, x->b, least, t);
        return;
    }
    int own = strength(x->op);
    put(t, own < least ? "(" : "");
    if (x->op == '#') {
        snprintf(number, sizeof number, "%.12g", is_number(f, i, 1e9) ? 1 : x->number);
        put(t, number);
    } else if (x->op == 'n') {
        put(t, x->name);
    } else if (x->op == 'M' || x->op == 'm') {
        put(t, x->op == 'M' ? "max(" : "min(");
        put_node(f, x->a, 0, t);
        put(t, ", ");
        put_node(f, x->b, 0, t);
        put(t, ")");
    } else if (x->op == '?') {
        put_node(f, x->b, 1, t);
        put(t, " where ");
        put_node(f, x->a, 0, t);
        put(t, ", else ");
        put_node(f, x->c, 1, t);
    } else {
        put_node(f, x->a, own, t);
        put(t, sign_of(x->op));
        put_node(f, x->b, own + (x->op == '-' || x->op == '/'), t);
    }
    put(t, own < least ? ")" : "");
}

const char *formula_text(const struct formula *f, char out[FORMULA_TEXT])
{
    struct text t = { out, 0 };
    out[0] = 0;
    put_node(f, f->root, 0, &t);
    return out;
}

static void smt_node(const struct formula *f, int i, const struct formula_smt *how, FILE *out);

/* The operands of a chain, a + b + c. */
static void smt_chain(const struct formula *f, int i, char op, const struct formula_smt *how, FILE *out)
{
    const struct formula_node *x = &f->node[i];
    if (x->op != op) {
        smt_node(f, i, how, out);
        return;
    }
    if (!how->in_seconds || !is_number(f, x->a, 1e9)) {
        smt_chain(f, x->a, op == '/' ? 0 : op, how, out);
        fputc(' ', out);
    }
    smt_node(f, x->b, how, out);
}

static void smt_node(const struct formula *f, int i, const struct formula_smt *how, FILE *out)
{
    const struct formula_node *x = &f->node[i = how->per ? guarded(f, i) : i];
    if (how->in_seconds && x->op == '*' && is_number(f, x->a, 1e9)) {
        smt_node(f, x->b, how, out);
    } else if (x->op == '#') {
        fprintf(out, "%.1f", x->number);
    } else if (x->op == 'n') {
        how->name(how->ctx, x->name, out);
    } else if (how->per && x->op == '/' && !strcmp(f->node[x->b].name, how->per)) {
        struct formula_smt seconds = *how;
        seconds.in_seconds = 1; /* tau is ns */
        fprintf(out, "(* ");
        smt_chain(f, x->a, '*', &seconds, out);
        fprintf(out, " tau)");
    } else if (x->op == 'M' || x->op == 'm') {
        fputs(x->op == 'M' ? "(largest " : "(least ", out);
        smt_node(f, x->a, how, out);
        fputc(' ', out);
        smt_node(f, x->b, how, out);
        fputc(')', out);
    } else if (x->op == '?') {
        fprintf(out, "(ite ");
        smt_node(f, x->a, how, out);
        fputc(' ', out);
        smt_node(f, x->b, how, out);
        fputc(' ', out);
        smt_node(f, x->c, how, out);
        fputc(')', out);
    } else {
        fprintf(out, "(%.*s ", (int)strcspn(sign_of(x->op) + 1, " "), sign_of(x->op) + 1);
        smt_chain(f, i, x->op, how, out);
        fputc(')', out);
    }
}

void formula_smt(const struct formula *f, const struct formula_smt *how, FILE *out)
{
    smt_node(f, f->root, how, out);
}

static double value_of(const struct formula *f, int i, double (*of)(void *ctx, const char *name), void *ctx)
{
    const struct formula_node *x = &f->node[i];
    if (x->op == '#')
        return x->number;
    if (x->op == 'n')
        return of(ctx, x->name);
    double a = value_of(f, x->a, of, ctx);
    if (x->op == '?')
        return a > 0 ? value_of(f, x->b, of, ctx) : value_of(f, x->c, of, ctx);
    double b = value_of(f, x->b, of, ctx);
    switch (x->op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    case 'M': return a > b ? a : b;
    case 'm': return a < b ? a : b;
    case '<': return a < b;
    case '>': return a > b;
    case 'l': return a <= b;
    default: return a >= b;
    }
}

double formula_value(const struct formula *f, double (*of)(void *ctx, const char *name), void *ctx)
{
    return value_of(f, f->root, of, ctx);
}
