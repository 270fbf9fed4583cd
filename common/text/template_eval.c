/* Rendering: a walk over the nodes. A frame holds the names that one scope has set: the template's own, a loop's body, a macro's.
 * A macro sees the names of the place where it was defined, as they are when it is called. */
#include "common/text/template_impl.h"

#include "common/base/print.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors and limits ---- */

const struct value *template_fail(struct run *r, int code, const char *fmt, ...)
{
    va_list ap;
    char what[300];
    if (r->failed)
        return &template_undefined;
    r->failed = true;
    va_start(ap, fmt);
    print_into_va(what, sizeof what, fmt, ap);
    va_end(ap);
    err_set(r->e, code, "%s, line %d: %s", r->t->name, r->line, what);
    return &template_undefined;
}

bool template_step(struct run *r, size_t bytes)
{
    r->steps += 1 + bytes / 64;
    if (r->steps > TEMPLATE_MAX_STEPS && !r->failed)
        template_fail(r, ERR_LIMIT, "more than %u steps", TEMPLATE_MAX_STEPS);
    return !r->failed;
}

void template_put(struct run *r, struct sink *s, const char *text, size_t n)
{
    if (r->failed || n == 0)
        return;
    if (n > TEMPLATE_MAX_OUTPUT - s->n) {
        template_fail(r, ERR_LIMIT, "more than %u bytes of output", TEMPLATE_MAX_OUTPUT);
        return;
    }
    if (s->n + n + 1 > s->cap) {
        size_t cap = 2 * (s->n + n) + 256;
        if (cap > r->heap.most - r->heap.used) { /* both are there while it grows */
            template_fail(r, ERR_LIMIT, "more than %zu bytes of values and text", r->heap.most);
            return;
        }
        char *grown = realloc(s->s, cap);
        if (!grown) {
            template_fail(r, ERR_NOMEM, "%zu bytes of output", cap);
            return;
        }
        r->heap.used += cap - s->cap;
        s->s = grown;
        s->cap = cap;
    }
    memcpy(s->s + s->n, text, n);
    s->n += n;
    s->s[s->n] = '\0';
    template_step(r, n);
}

static bool enter(struct run *r)
{
    if (r->depth++ >= TEMPLATE_MAX_DEPTH)
        template_fail(r, ERR_LIMIT, "nested more than %d deep", TEMPLATE_MAX_DEPTH);
    return template_step(r, 0);
}

/* ---- names ---- */

void template_bind(struct run *r, struct frame *f, struct text name, const struct value *v)
{
    for (struct binding *b = f->first; b; b = b->next)
        if (text_equal(b->name, name)) {
            b->value = v;
            return;
        }
    struct binding *b = template_take(r, sizeof *b);
    if (!b)
        return;
    *b = (struct binding){ name, v, f->first };
    f->first = b;
}

static struct value *named(struct run *r, enum kind kind, struct text name)
{
    struct value *v = template_take(r, sizeof *v);
    if (v) {
        v->kind = kind;
        v->u.s = name;
    }
    return v;
}

static const struct value *unknown(struct run *r, struct text name)
{
    const struct value *v = named(r, V_UNDEFINED, name);
    return v ? v : &template_undefined;
}

static const struct value *look_up(struct run *r, struct text name)
{
    for (const struct frame *f = r->frame; f; f = f->parent)
        for (const struct binding *b = f->first; b; b = b->next)
            if (text_equal(b->name, name))
                return b->value;
    if (text_is(name, "varargs") || text_is(name, "kwargs") || text_is(name, "caller"))
        return template_fail(r, ERR_UNSUPPORTED, "'%.*s' is not known", (int)name.n, name.s);
    const struct value *v = template_function_known(name) ? named(r, V_FUNCTION, name) : NULL;
    return v ? v : unknown(r, name);
}

static const struct value *undefined_used(struct run *r, const struct value *v)
{
    struct text name = v->u.s;
    return template_fail(r, ERR_FORMAT, "'%.*s' is undefined", name.n > 60 ? 60 : (int)name.n, name.s ? name.s : "");
}

static struct frame *new_frame(struct run *r, struct frame *parent)
{
    struct frame *f = template_take(r, sizeof *f);
    if (f)
        f->parent = parent;
    return f;
}

static void assign(struct run *r, const struct node *target, const struct value *v)
{
    if (r->failed)
        return;
    if (target->kind == N_NAME) {
        template_bind(r, r->frame, target->name, v);
    } else if (target->kind == N_ATTR) {
        const struct value *of = look_up(r, target->a->name);
        if (of->kind != V_NAMESPACE)
            template_fail(r, ERR_FORMAT, "'%.*s' is no namespace", (int)target->a->name.n, target->a->name.s);
        else
            template_set(r, of, template_str(r, target->name.s, target->name.n), v);
    } else {
        const struct value *parts = template_elements(r, v);
        size_t i = 0;
        const struct node *n = target->args;
        for (; n && parts->kind == V_LIST && i < parts->u.l->n; n = n->next)
            template_bind(r, r->frame, n->name, parts->u.l->v[i++]);
        if (!r->failed && (n || i < parts->u.l->n))
            template_fail(r, ERR_FORMAT, "%zu values for another number of names", parts->u.l->n);
    }
}

/* ---- parts of values ---- */

static const struct value *method_of(struct run *r, const struct value *v, struct text name)
{
    if (!template_method_known(v, name))
        return NULL;
    struct value *m = template_take(r, sizeof *m);
    if (m)
        *m = (struct value){ .kind = V_METHOD, .u.method = { v, name } };
    return m ? m : &template_undefined;
}

const struct value *template_attr(struct run *r, const struct value *v, struct text name)
{
    if (v->kind == V_UNDEFINED)
        return undefined_used(r, v);
    const struct value *found = method_of(r, v, name);
    if (!found && (v->kind == V_DICT || v->kind == V_NAMESPACE))
        found = template_get(v, name.s, name.n);
    return found ? found : unknown(r, name);
}

const struct value *template_item(struct run *r, const struct value *v, const struct value *key)
{
    if (v->kind == V_UNDEFINED)
        return undefined_used(r, v);
    if (v->kind == V_DICT)
        for (size_t i = 0; i < v->u.l->n && template_step(r, 0); i += 2)
            if (template_equal(r, v->u.l->v[i], key))
                return v->u.l->v[i + 1];
    if (key->kind == V_STR)
        return template_attr(r, v, key->u.s);
    if ((v->kind != V_LIST && v->kind != V_STR) || (key->kind != V_INT && key->kind != V_BOOL))
        return unknown(r, (struct text){ "an element", 10 });
    int64_t n = (int64_t)template_length(r, v), i = key->u.i < 0 ? key->u.i + n : key->u.i;
    if (i < 0 || i >= n)
        return unknown(r, (struct text){ "an element past the end", 23 });
    if (v->kind == V_LIST)
        return v->u.l->v[i];
    struct text c = template_sub(v->u.s, (size_t)i, (size_t)i + 1);
    return template_str(r, c.s, c.n);
}

static int64_t bound(const struct value *v, int64_t none, int64_t len, bool back)
{
    int64_t low = back ? -1 : 0, high = back ? len - 1 : len;
    if (v->kind == V_NONE)
        return none;
    int64_t i = v->u.i < 0 ? v->u.i + len : v->u.i;
    return i < low ? low : i > high ? high : i;
}

static const struct value *slice(struct run *r, const struct node *n)
{
    const struct value *v = template_eval(r, n->a), *part[3];
    const struct node *const of[3] = { n->b, n->c, n->other };
    bool whole = v->kind == V_LIST || v->kind == V_STR;
    for (int i = 0; i < 3; i++) {
        part[i] = of[i] ? template_eval(r, of[i]) : &template_none;
        whole &= part[i]->kind == V_NONE || part[i]->kind == V_INT || part[i]->kind == V_BOOL;
    }
    if (v->kind == V_UNDEFINED)
        return undefined_used(r, v);
    if (!whole) /* undefined in Jinja where it is constant, else an error */
        return template_fail(r, ERR_UNSUPPORTED, "a slice of %s, or with such bounds", template_kind_name(v));
    if (r->failed)
        return v;
    int64_t by = part[2]->kind == V_NONE ? 1 : part[2]->u.i, len = (int64_t)template_length(r, v);
    if (by == 0)
        return template_fail(r, ERR_FORMAT, "a slice in steps of 0");
    int64_t from = bound(part[0], by < 0 ? len - 1 : 0, len, by < 0), to = bound(part[1], by < 0 ? -1 : len, len, by < 0);
    if (v->kind == V_STR && by == 1) {
        struct text s = template_sub(v->u.s, (size_t)from, (size_t)(to > from ? to : from));
        return template_str(r, s.s, s.n);
    }
    const struct value *in = template_elements(r, v), *out = template_list(r, v->tuple);
    by = by > len ? len + 1 : by < -len ? -len - 1 : by;
    for (int64_t i = from; !r->failed && (by > 0 ? i < to : i > to); i += by)
        template_append(r, out, in->u.l->v[i]);
    if (v->kind == V_LIST || r->failed)
        return out;
    struct sink s = { 0 };
    for (size_t i = 0; i < out->u.l->n; i++)
        template_print(r, &s, out->u.l->v[i]);
    return template_taken(r, &s);
}

/* ---- operators ---- */

static bool is_whole(const struct value *v)
{
    return v->kind == V_INT || v->kind == V_BOOL;
}

static const struct value *repeat(struct run *r, const struct value *v, int64_t times)
{
    struct sink s = { 0 };
    if (v->kind == V_STR) {
        for (int64_t i = 0; i < times && !r->failed && v->u.s.n; i++)
            template_put(r, &s, v->u.s.s, v->u.s.n);
        return template_taken(r, &s);
    }
    const struct value *out = template_list(r, v->tuple);
    for (int64_t i = 0; i < times && v->u.l->n; i++)
        for (size_t k = 0; k < v->u.l->n && template_step(r, 0); k++)
            template_append(r, out, v->u.l->v[k]);
    return out;
}

static const struct value *added(struct run *r, const struct value *a, const struct value *b)
{
    struct sink s = { 0 };
    if (r->failed)
        return &template_undefined;
    if (a->kind == V_STR) {
        template_put(r, &s, a->u.s.s, a->u.s.n);
        template_put(r, &s, b->u.s.s, b->u.s.n);
        return template_taken(r, &s);
    }
    const struct value *out = template_list(r, a->tuple);
    for (int k = 0; k < 2; k++) {
        const struct list *l = (k ? b : a)->u.l;
        for (size_t i = 0; i < l->n && template_step(r, 0); i++)
            template_append(r, out, l->v[i]);
    }
    return out;
}

static void put_escaped(struct run *r, struct sink *s, const struct value *v)
{
    static const struct { char c; const char *as; } signs[] = { { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '\'', "&#39;" },
                                                                { '"', "&#34;" } };
    for (size_t i = 0; i < v->u.s.n; i++) {
        size_t k = 0;
        while (k < sizeof signs / sizeof *signs && (v->safe || signs[k].c != v->u.s.s[i]))
            k++;
        if (k < sizeof signs / sizeof *signs)
            template_put(r, s, signs[k].as, strlen(signs[k].as));
        else
            template_put(r, s, v->u.s.s + i, 1);
    }
}

const struct value *template_safe(struct run *r, const struct value *s)
{
    struct value *out = template_take(r, sizeof *out);
    if (!out)
        return &template_undefined;
    *out = *s;
    out->safe = s->kind == V_STR;
    return out;
}

static const struct value *added_safe(struct run *r, const struct value *a, const struct value *b)
{
    struct sink s = { 0 };
    if (r->failed)
        return &template_undefined;
    put_escaped(r, &s, a);
    put_escaped(r, &s, b);
    return template_safe(r, template_taken(r, &s));
}

static const struct value *whole(struct run *r, enum op op, int64_t a, int64_t b)
{
    int64_t c = 0, rest;
    bool over = false, down;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &c); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &c); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &c); break;
    case OP_POW:
        for (c = 1; b > 0 && !over && template_step(r, 0); b--)
            over = __builtin_mul_overflow(c, a, &c);
        break;
    default:
        if (b == 0)
            return template_fail(r, ERR_FORMAT, "division by zero");
        if (b == -1 && a == INT64_MIN) {
            over = true;
            break;
        }
        rest = a % b;
        down = rest && (rest < 0) != (b < 0);
        c = op == OP_MOD ? rest + (down ? b : 0) : a / b - down;
    }
    return over ? template_fail(r, ERR_LIMIT, "a number past 64 bits") : template_int(r, c);
}

static const struct value *binary(struct run *r, const struct node *n)
{
    const struct value *a = template_eval(r, n->a), *b = template_eval(r, n->b);
    if (r->failed)
        return a;
    if (n->op == OP_JOIN)
        return added(r, template_string(r, a), template_string(r, b));
    if (n->op == OP_MOD && a->kind == V_STR)
        return template_fail(r, ERR_UNSUPPORTED, "formatting of a string with %%");
    if (a->kind == V_UNDEFINED || b->kind == V_UNDEFINED)
        return undefined_used(r, a->kind == V_UNDEFINED ? a : b);
    if (n->op == OP_ADD && a->kind == b->kind && (a->kind == V_STR || (a->kind == V_LIST && a->tuple == b->tuple)))
        return a->kind == V_STR && (a->safe || b->safe) ? added_safe(r, a, b) : added(r, a, b);
    if (n->op == OP_MUL && (a->kind == V_STR || a->kind == V_LIST) && is_whole(b))
        return repeat(r, a, b->u.i);
    if (n->op == OP_MUL && (b->kind == V_STR || b->kind == V_LIST) && is_whole(a))
        return repeat(r, b, a->u.i);
    if (n->op == OP_DIV && is_whole(a) && is_whole(b) && (llabs(a->u.i) > 1ll << 53 || llabs(b->u.i) > 1ll << 53))
        return template_fail(r, ERR_LIMIT, "a division of numbers past 53 bits");
    if (is_whole(a) && is_whole(b) && n->op != OP_DIV && !(n->op == OP_POW && b->u.i < 0))
        return whole(r, n->op, a->u.i, b->u.i);
    if ((is_whole(a) || a->kind == V_FLOAT) && (is_whole(b) || b->kind == V_FLOAT))
        return template_real(r, n->op, is_whole(a) ? (double)a->u.i : a->u.d, is_whole(b) ? (double)b->u.i : b->u.d);
    static const char *const signs[] = { "+", "-", "*", "/", "//", "%", "**" };
    return template_fail(r, ERR_FORMAT, "%s %s %s is not possible here", template_kind_name(a), signs[n->op], template_kind_name(b));
}

static bool compares(struct run *r, enum op op, const struct value *a, const struct value *b)
{
    switch (op) {
    case OP_EQ: return template_equal(r, a, b);
    case OP_NE: return !template_equal(r, a, b);
    case OP_IN: return template_contains(r, b, a);
    case OP_NOT_IN: return !template_contains(r, b, a);
    default: break;
    }
    if (a->kind == V_UNDEFINED || b->kind == V_UNDEFINED) {
        undefined_used(r, a->kind == V_UNDEFINED ? a : b);
        return false;
    }
    int c = template_order(r, a, b);
    return op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0;
}

static const struct value *comparison(struct run *r, const struct node *n)
{
    const struct value *left = template_eval(r, n->a);
    for (const struct node *k = n->args; k && !r->failed; k = k->next) {
        const struct value *right = template_eval(r, k->a);
        if (r->failed || !compares(r, k->op, left, right))
            return &template_false;
        left = right;
    }
    return &template_true;
}

static const struct value *negative(struct run *r, const struct node *n)
{
    const struct value *v = template_eval(r, n->a);
    if (v->kind == V_FLOAT)
        return n->kind == N_NEG ? template_float(r, -v->u.d) : v;
    if (!is_whole(v))
        return template_fail(r, ERR_FORMAT, "a sign before %s", template_kind_name(v));
    return n->kind == N_NEG ? whole(r, OP_SUB, 0, v->u.i) : template_int(r, v->u.i);
}

/* ---- calls ---- */

static bool arguments(struct run *r, const struct node *n, struct call *c)
{
    *c = (struct call){ 0 };
    for (; n && !r->failed; n = n->next) {
        size_t most = sizeof c->arg / sizeof c->arg[0];
        if (c->n == most || c->n_named == most) {
            template_fail(r, ERR_LIMIT, "more than %zu arguments", most);
        } else if (n->kind == N_NAMED) {
            c->name[c->n_named] = n->name;
            c->named[c->n_named++] = template_eval(r, n->a);
        } else {
            c->arg[c->n++] = template_eval(r, n);
        }
    }
    return !r->failed;
}

const struct value *template_arg(const struct call *c, size_t at, const char *name)
{
    for (size_t i = 0; i < c->n_named; i++)
        if (text_is(c->name[i], name))
            return c->named[i];
    return at < c->n ? c->arg[at] : NULL;
}

/* What statements put out, as a string. */
static const struct value *captured(struct run *r, const struct node *body, struct frame *frame)
{
    struct sink s = { 0 }, *out = r->out;
    struct frame *before = r->frame;
    if (!frame)
        return &template_undefined;
    r->out = &s;
    r->frame = frame;
    template_exec(r, body);
    r->frame = before;
    r->out = out;
    return template_taken(r, &s);
}

static const struct value *call_macro(struct run *r, const struct value *m, const struct call *c)
{
    const struct node *n = m->u.macro.node;
    struct frame *f = new_frame(r, m->u.macro.frame), *before = r->frame;
    size_t at = 0, used = 0;
    for (const struct node *p = n->args; p && f && !r->failed; p = p->next, at++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(p->name.n < 63 ? p->name.n : 63), p->name.s);
        const struct value *v = template_arg(c, at, name);
        used += v && at >= c->n;
        r->frame = f;
        v = v ? v : p->a ? template_eval(r, p->a) : unknown(r, p->name);
        r->frame = before;
        template_bind(r, f, p->name, v);
    }
    if (!r->failed && (c->n > at || used < c->n_named))
        template_fail(r, ERR_FORMAT, "macro '%.*s' has no such argument", (int)n->name.n, n->name.s);
    if (r->failed)
        return &template_undefined;
    const struct value *v = captured(r, n->body, f);
    r->breaking = r->continuing = false;
    return v;
}

const struct value *template_call(struct run *r, const struct value *f, const struct call *c)
{
    switch (f->kind) {
    case V_MACRO: return call_macro(r, f, c);
    case V_FUNCTION: return template_function(r, f->u.s, c);
    case V_METHOD: return template_method(r, f->u.method.self, f->u.method.name, c);
    case V_UNDEFINED:
        return template_fail(r, ERR_UNSUPPORTED, "'%.*s' is called and is not known", f->u.s.n > 60 ? 60 : (int)f->u.s.n,
                             f->u.s.s ? f->u.s.s : "");
    default: return template_fail(r, ERR_FORMAT, "%s is called", template_kind_name(f));
    }
}

/* ---- expressions ---- */

static const struct value *collection(struct run *r, const struct node *n)
{
    const struct value *v = n->kind == N_DICT ? template_dict(r, false) : template_list(r, n->kind == N_TUPLE);
    for (const struct node *k = n->args; k && !r->failed; k = k->next) {
        const struct value *first = template_eval(r, k);
        if (n->kind == N_DICT && !template_hashable(first))
            template_fail(r, ERR_FORMAT, "%s as a key", template_kind_name(first));
        if (n->kind == N_DICT && (k = k->next))
            template_set(r, v, first, template_eval(r, k));
        else
            template_append(r, v, first);
        if (!k)
            break;
    }
    return v;
}

static const struct value *applied(struct run *r, const struct node *n)
{
    struct call c;
    const struct value *v = template_eval(r, n->a);
    if (r->failed || !arguments(r, n->args, &c))
        return &template_undefined;
    if (n->kind == N_CALL)
        return template_call(r, v, &c);
    if (n->kind == N_FILTER)
        return template_filter(r, n->name, v, &c);
    return template_bool(template_test(r, n->name, v, &c) != n->negated);
}

static const struct value *evaluated(struct run *r, const struct node *n)
{
    const struct value *v;
    switch (n->kind) {
    case N_CONST: return n->value ? n->value : &template_undefined;
    case N_NAME: return look_up(r, n->name);
    case N_LIST:
    case N_TUPLE:
    case N_DICT: return collection(r, n);
    case N_ATTR: return template_attr(r, template_eval(r, n->a), n->name);
    case N_ITEM:
        v = template_eval(r, n->a);
        return template_item(r, v, template_eval(r, n->b));
    case N_SLICE: return slice(r, n);
    case N_CALL:
    case N_FILTER:
    case N_TEST: return applied(r, n);
    case N_NOT: return template_bool(!template_truth(template_eval(r, n->a)));
    case N_NEG:
    case N_POS: return negative(r, n);
    case N_BINARY: return binary(r, n);
    case N_AND:
        v = template_eval(r, n->a);
        return template_truth(v) ? template_eval(r, n->b) : v;
    case N_OR:
        v = template_eval(r, n->a);
        return template_truth(v) ? v : template_eval(r, n->b);
    case N_COMPARE: return comparison(r, n);
    case N_IF_ELSE:
        if (template_truth(template_eval(r, n->a)))
            return template_eval(r, n->b);
        return n->c ? template_eval(r, n->c) : &template_undefined;
    default: return &template_undefined;
    }
}

const struct value *template_eval(struct run *r, const struct node *n)
{
    if (r->failed || !n)
        return &template_undefined;
    r->line = n->line ? n->line : r->line;
    const struct value *v = enter(r) ? evaluated(r, n) : &template_undefined;
    r->depth--;
    return v;
}

/* ---- statements ---- */

/* What `loop` is in a turn. */
static const struct value *loop_value(struct run *r, const struct list *l, size_t i)
{
    static const char *const names[] = { "index", "index0", "revindex", "revindex0", "length", "first", "last", "depth", "depth0",
                                         "previtem", "nextitem" };
    const struct value *const values[] = {
        template_int(r, (int64_t)i + 1), template_int(r, (int64_t)i), template_int(r, (int64_t)(l->n - i)),
        template_int(r, (int64_t)(l->n - i) - 1), template_int(r, (int64_t)l->n), template_bool(i == 0), template_bool(i + 1 == l->n),
        template_int(r, 1), template_int(r, 0), i > 0 ? l->v[i - 1] : unknown(r, (struct text){ "loop.previtem", 13 }),
        i + 1 < l->n ? l->v[i + 1] : unknown(r, (struct text){ "loop.nextitem", 13 })
    };
    enum { N = sizeof names / sizeof names[0] };
    const struct value *v = template_dict(r, true);
    const struct value **slots = template_take(r, 2 * N * sizeof *slots);
    for (size_t k = 0; k < N && slots && !r->failed; k++) {
        slots[2 * k] = template_str(r, names[k], strlen(names[k]));
        slots[2 * k + 1] = values[k];
    }
    if (!r->failed)
        *v->u.l = (struct list){ slots, 2 * N, 2 * N };
    return v;
}

static const struct value *chosen(struct run *r, const struct node *n, const struct value *in)
{
    if (!n->c || r->failed)
        return in;
    const struct value *out = template_list(r, false);
    struct frame *before = r->frame;
    for (size_t i = 0; i < in->u.l->n && template_step(r, 0); i++) {
        if (!(r->frame = new_frame(r, before)))
            break;
        assign(r, n->a, in->u.l->v[i]);
        if (template_truth(template_eval(r, n->c)))
            template_append(r, out, in->u.l->v[i]);
    }
    r->frame = before;
    return out;
}

static void for_statement(struct run *r, const struct node *n)
{
    struct frame *before = r->frame;
    const struct value *in = chosen(r, n, template_elements(r, template_eval(r, n->b)));
    if (r->failed)
        return;
    size_t n_items = in->u.l->n;
    bool whole_turn = false; /* one came to its end, without break and continue: as Jinja's else has it */
    for (size_t i = 0; i < n_items && template_step(r, 0) && !r->breaking; i++) {
        if (!(r->frame = new_frame(r, before)))
            break;
        assign(r, n->a, in->u.l->v[i]);
        template_bind(r, r->frame, (struct text){ "loop", 4 }, loop_value(r, in->u.l, i));
        template_exec(r, n->body);
        whole_turn |= !r->breaking && !r->continuing;
        r->continuing = false;
    }
    r->breaking = false;
    r->frame = before;
    if (!whole_turn)
        template_exec(r, n->other);
}

static const struct value *filtered(struct run *r, const struct node *filters, const struct value *v)
{
    struct call c;
    for (; filters && arguments(r, filters->args, &c); filters = filters->next)
        v = template_filter(r, filters->name, v, &c);
    return v;
}

static void put_filtered(struct run *r, const struct value *v)
{
    if (v->kind != V_STR)
        template_fail(r, ERR_FORMAT, "a filter block that gives %s", template_kind_name(v));
    template_print(r, r->out, v);
}

static void if_statement(struct run *r, const struct node *n)
{
    while (n && n->kind == N_IF && !r->failed) {
        if (template_truth(template_eval(r, n->a))) {
            template_exec(r, n->body);
            return;
        }
        const struct node *other = n->other;
        if (!other || other->kind != N_IF || other->next || !other->a)
            break;
        n = other;
    }
    if (n && !r->failed)
        template_exec(r, n->other);
}

static void statement(struct run *r, const struct node *n)
{
    struct frame *before = r->frame;
    struct value *m;
    switch (n->kind) {
    case N_TEXT: template_put(r, r->out, n->name.s, n->name.n); break;
    case N_OUT: template_print(r, r->out, template_eval(r, n->a)); break;
    case N_IF: if_statement(r, n); break;
    case N_FOR: for_statement(r, n); break;
    case N_SET: assign(r, n->a, template_eval(r, n->b)); break;
    case N_SET_BLOCK: assign(r, n->a, filtered(r, n->args, captured(r, n->body, new_frame(r, before)))); break;
    case N_MACRO:
        if ((m = named(r, V_MACRO, n->name))) {
            m->u.macro.node = n;
            m->u.macro.frame = before;
            template_bind(r, before, n->name, m);
        }
        break;
    case N_FILTER_BLOCK: put_filtered(r, filtered(r, n->args, captured(r, n->body, new_frame(r, before)))); break;
    case N_BREAK: r->breaking = true; break;
    case N_CONTINUE: r->continuing = true; break;
    case N_SCOPE:
        if ((r->frame = new_frame(r, before)))
            template_exec(r, n->body);
        r->frame = before;
        break;
    default: break;
    }
}

void template_exec(struct run *r, const struct node *n)
{
    for (; n && !r->failed && !r->breaking && !r->continuing; n = n->next) {
        r->line = n->line ? n->line : r->line;
        if (enter(r))
            statement(r, n);
        r->depth--;
    }
}

int template_render(const struct template *t, const struct js *vars, time_t now, size_t most, char **out, size_t *len, struct err *e)
{
    struct sink s = { 0 };
    struct frame top = { 0 };
    struct run r = { .t = t, .frame = &top, .out = &s, .e = e, .now = now };
    r.heap.most = most < TEMPLATE_MAX_MEMORY ? most : TEMPLATE_MAX_MEMORY;
    const char *key;
    for (size_t i = 0; !r.failed && (key = js_key(vars, i)); i++)
        template_bind(&r, &top, (struct text){ key, strlen(key) }, template_from_js(&r, js_get(vars, key), 0));
    template_exec(&r, t->body);
    template_heap_free(&r.heap);
    if (!r.failed && !s.s && !(s.s = calloc(1, 1)))
        template_fail(&r, ERR_NOMEM, "out of memory");
    if (r.failed) {
        free(s.s);
        return e->code;
    }
    *out = s.s;
    *len = s.n;
    return 0;
}
