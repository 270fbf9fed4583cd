/* Values: making, comparing, counting. A dictionary is a list of keys and values in their order, looked up from the front: those
 * of chats are short. */
#include "common/text/template_impl.h"

#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

const struct value template_undefined = { .kind = V_UNDEFINED }, template_none = { .kind = V_NONE },
                   template_true = { .kind = V_BOOL, .u.i = 1 }, template_false = { .kind = V_BOOL };

/* ---- memory ---- */

struct block {
    struct block *next;
    size_t n, cap;
    _Alignas(16) char at[];
};

void *template_alloc(struct heap *h, size_t n)
{
    n = (n + 15) & ~(size_t)15;
    if (n > h->most - h->used)
        return NULL;
    struct block *b = h->blocks;
    if (!b || n > b->cap - b->n) {
        size_t cap = n > (32u << 10) ? n : 32u << 10;
        if (!(b = calloc(1, sizeof *b + cap)))
            return NULL;
        b->cap = cap;
        b->next = h->blocks;
        h->blocks = b;
    }
    void *at = b->at + b->n;
    b->n += n;
    h->used += n;
    return at;
}

int template_no_room(const struct heap *h, size_t n)
{
    return n > h->most - h->used ? ERR_LIMIT : ERR_NOMEM;
}

void template_heap_free(struct heap *h)
{
    for (struct block *b = h->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *h = (struct heap){ .most = h->most };
}

void *template_take(struct run *r, size_t n)
{
    void *p = template_alloc(&r->heap, n);
    if (!p)
        template_fail(r, template_no_room(&r->heap, n), "more than %zu bytes of values and text", r->heap.most);
    return p;
}

/* ---- making ---- */

static struct value *make(struct run *r, enum kind kind)
{
    struct value *v = template_take(r, sizeof *v);
    if (v)
        v->kind = kind;
    return v;
}

const struct value *template_bool(bool b)
{
    return b ? &template_true : &template_false;
}

const struct value *template_int(struct run *r, int64_t i)
{
    struct value *v = make(r, V_INT);
    if (!v)
        return &template_undefined;
    v->u.i = i;
    return v;
}

const struct value *template_float(struct run *r, double d)
{
    struct value *v = make(r, V_FLOAT);
    if (!v)
        return &template_undefined;
    v->u.d = d;
    return v;
}

const struct value *template_str(struct run *r, const char *s, size_t n)
{
    struct value *v = make(r, V_STR);
    char *copy = v ? template_take(r, n + 1) : NULL;
    if (!copy)
        return &template_undefined;
    if (n)
        memcpy(copy, s, n);
    v->u.s = (struct text){ copy, n };
    return v;
}

static const struct value *container(struct run *r, enum kind kind, bool tuple)
{
    struct value *v = make(r, kind);
    struct list *l = v ? template_take(r, sizeof *l) : NULL;
    if (!l)
        return &template_undefined;
    v->u.l = l;
    v->tuple = tuple;
    return v;
}

const struct value *template_list(struct run *r, bool tuple)
{
    return container(r, V_LIST, tuple);
}

const struct value *template_dict(struct run *r, bool is_namespace)
{
    return container(r, is_namespace ? V_NAMESPACE : V_DICT, false);
}

static void push(struct run *r, struct list *l, const struct value *v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 8;
        const struct value **grown = template_take(r, cap * sizeof *grown);
        if (!grown)
            return;
        if (l->n)
            memcpy(grown, l->v, l->n * sizeof *grown);
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

void template_append(struct run *r, const struct value *list, const struct value *v)
{
    if (!r->failed && list->kind == V_LIST)
        push(r, list->u.l, v);
}

void template_set(struct run *r, const struct value *dict, const struct value *key, const struct value *v)
{
    if (r->failed || (dict->kind != V_DICT && dict->kind != V_NAMESPACE))
        return;
    struct list *l = dict->u.l;
    for (size_t i = 0; i < l->n && template_step(r, 0); i += 2)
        if (template_equal(r, l->v[i], key)) {
            l->v[i + 1] = v;
            return;
        }
    push(r, l, key);
    push(r, l, v);
}

const struct value *template_get(const struct value *dict, const char *key, size_t n)
{
    const struct list *l = dict->u.l;
    for (size_t i = 0; i < l->n; i += 2)
        if (l->v[i]->kind == V_STR && text_equal(l->v[i]->u.s, (struct text){ key, n }))
            return l->v[i + 1];
    return NULL;
}

static const struct value *object_from_js(struct run *r, const struct js *j, int depth)
{
    const struct value *v = template_dict(r, false);
    const char *key;
    for (size_t i = 0; !r->failed && (key = js_key(j, i)); i++)
        template_set(r, v, template_str(r, key, strlen(key)), template_from_js(r, js_get(j, key), depth + 1));
    return v;
}

const struct value *template_from_js(struct run *r, const struct js *j, int depth)
{
    int64_t i;
    double d;
    const char *s = js_str(j);
    if (depth > TEMPLATE_MAX_DEPTH)
        return template_fail(r, ERR_LIMIT, "values nested more than %d deep", TEMPLATE_MAX_DEPTH);
    if (s)
        return template_str(r, s, strlen(s));
    if (js_bool(j) >= 0)
        return template_bool(js_bool(j));
    if (js_int(j, &i))
        return template_int(r, i);
    if (js_num(j, &d))
        return template_float(r, d);
    if (js_is_object(j))
        return object_from_js(r, j, depth);
    if (!js_is_array(j))
        return &template_none;
    const struct value *v = template_list(r, false);
    for (size_t k = 0; k < js_len(j) && !r->failed; k++)
        template_append(r, v, template_from_js(r, js_at(j, k), depth + 1));
    return v;
}

/* ---- asking ---- */

const char *template_kind_name(const struct value *v)
{
    static const char *const names[] = { "undefined", "none", "a boolean", "an integer", "a float", "a string", "a list",
                                         "a dictionary", "a namespace", "a macro", "a function", "a method" };
    return names[v->kind];
}

bool template_truth(const struct value *v)
{
    switch (v->kind) {
    case V_UNDEFINED:
    case V_NONE: return false;
    case V_BOOL:
    case V_INT: return v->u.i != 0;
    case V_FLOAT: return v->u.d != 0;
    case V_STR: return v->u.s.n > 0;
    case V_LIST:
    case V_DICT: return v->u.l->n > 0;
    default: return true;
    }
}

static bool is_number(const struct value *v)
{
    return v->kind == V_INT || v->kind == V_BOOL || v->kind == V_FLOAT;
}

/* Exact of both: 64 bits at least. */
static long double number(const struct value *v)
{
    return v->kind == V_FLOAT ? (long double)v->u.d : (long double)v->u.i;
}

bool template_hashable(const struct value *v)
{
    bool yes = v->kind != V_DICT && (v->kind != V_LIST || v->tuple);
    for (size_t i = 0; yes && v->kind == V_LIST && i < v->u.l->n; i++)
        yes = template_hashable(v->u.l->v[i]);
    return yes;
}

static bool dicts_equal(struct run *r, const struct list *a, const struct list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i += 2) {
        size_t k = 0;
        while (k < b->n && !r->failed && !template_equal(r, a->v[i], b->v[k]))
            k += 2;
        if (k >= b->n || r->failed || !template_equal(r, a->v[i + 1], b->v[k + 1]))
            return false;
    }
    return true;
}

bool template_equal(struct run *r, const struct value *a, const struct value *b)
{
    if (is_number(a) && is_number(b))
        return a->kind == V_FLOAT || b->kind == V_FLOAT ? number(a) == number(b) : a->u.i == b->u.i;
    if (a->kind != b->kind || (a->kind == V_LIST && a->tuple != b->tuple) || r->depth > TEMPLATE_MAX_DEPTH)
        return false;
    bool same = true;
    r->depth++;
    switch (a->kind) {
    case V_UNDEFINED:
    case V_NONE: break;
    case V_STR:
        same = template_step(r, a->u.s.n) && text_equal(a->u.s, b->u.s);
        break;
    case V_LIST:
        same = a->u.l->n == b->u.l->n;
        for (size_t i = 0; same && i < a->u.l->n; i++)
            same = template_step(r, 0) && template_equal(r, a->u.l->v[i], b->u.l->v[i]);
        break;
    case V_DICT: same = dicts_equal(r, a->u.l, b->u.l); break;
    default: same = a == b;
    }
    r->depth--;
    return same;
}

int template_order(struct run *r, const struct value *a, const struct value *b)
{
    if (is_number(a) && is_number(b)) {
        long double x = number(a), y = number(b);
        return a->kind != V_FLOAT && b->kind != V_FLOAT ? (a->u.i > b->u.i) - (a->u.i < b->u.i) : (x > y) - (x < y);
    }
    if (a->kind == V_STR && b->kind == V_STR) {
        size_t n = a->u.s.n < b->u.s.n ? a->u.s.n : b->u.s.n;
        int c = template_step(r, n) && n ? memcmp(a->u.s.s, b->u.s.s, n) : 0;
        return c ? c : (a->u.s.n > b->u.s.n) - (a->u.s.n < b->u.s.n);
    }
    if (a->kind != V_LIST || b->kind != V_LIST || a->tuple != b->tuple || r->depth > TEMPLATE_MAX_DEPTH) {
        template_fail(r, ERR_FORMAT, "%s and %s have no order", template_kind_name(a), template_kind_name(b));
        return 0;
    }
    r->depth++;
    int c = 0;
    const struct list *x = a->u.l, *y = b->u.l;
    for (size_t i = 0; c == 0 && i < x->n && i < y->n && template_step(r, 0); i++)
        c = template_equal(r, x->v[i], y->v[i]) ? 0 : template_order(r, x->v[i], y->v[i]);
    r->depth--;
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

bool template_contains(struct run *r, const struct value *in, const struct value *v)
{
    if (in->kind == V_STR && v->kind == V_STR)
        return template_step(r, in->u.s.n) && memmem(in->u.s.s, in->u.s.n, v->u.s.s, v->u.s.n);
    if (in->kind == V_UNDEFINED)
        return false;
    if (in->kind != V_LIST && in->kind != V_DICT) {
        template_fail(r, ERR_FORMAT, "'in' looks for %s in %s", template_kind_name(v), template_kind_name(in));
        return false;
    }
    if (in->kind == V_DICT && !template_hashable(v))
        template_fail(r, ERR_FORMAT, "%s as a key", template_kind_name(v));
    for (size_t i = 0; i < in->u.l->n && template_step(r, 0); i += in->kind == V_DICT ? 2 : 1)
        if (template_equal(r, in->u.l->v[i], v))
            return true;
    return false;
}

/* ---- strings by characters ---- */

static size_t char_len(struct text s, size_t at)
{
    uint32_t code;
    size_t k = utf8_decode(s.s + at, s.n - at, &code);
    return k ? k : 1;
}

size_t template_chars(struct text s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i += char_len(s, i))
        n++;
    return n;
}

struct text template_sub(struct text s, size_t from, size_t to)
{
    size_t at = 0, k = 0;
    while (k < from && at < s.n) {
        at += char_len(s, at);
        k++;
    }
    size_t end = at;
    while (k < to && end < s.n) {
        end += char_len(s, end);
        k++;
    }
    return (struct text){ s.s + at, end - at };
}

size_t template_length(struct run *r, const struct value *v)
{
    switch (v->kind) {
    case V_UNDEFINED: return 0;
    case V_STR: return template_step(r, v->u.s.n) ? template_chars(v->u.s) : 0;
    case V_LIST: return v->u.l->n;
    case V_DICT: return v->u.l->n / 2;
    default: template_fail(r, ERR_FORMAT, "%s has no length", template_kind_name(v)); return 0;
    }
}

const struct value *template_elements(struct run *r, const struct value *v)
{
    if (v->kind == V_LIST)
        return v;
    const struct value *out = template_list(r, false);
    if (v->kind == V_DICT)
        for (size_t i = 0; i < v->u.l->n && !r->failed; i += 2)
            template_append(r, out, v->u.l->v[i]);
    else if (v->kind == V_STR)
        for (size_t i = 0, k; i < v->u.s.n && template_step(r, 0); i += k)
            template_append(r, out, template_str(r, v->u.s.s + i, k = char_len(v->u.s, i)));
    else if (v->kind != V_UNDEFINED)
        template_fail(r, ERR_FORMAT, "%s has no elements", template_kind_name(v));
    return out;
}
