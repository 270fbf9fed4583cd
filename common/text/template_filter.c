/* Filters and tests. */
#include "common/text/template_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef const struct value *filter_fn(struct run *r, const struct value *v, const struct call *c);

static const struct call none;

static bool is_true(const struct value *v)
{
    return v && template_truth(v);
}

/* A method of the value as a string. */
static const struct value *as_string(struct run *r, const struct value *v, const char *method, const struct call *c)
{
    const struct value *s = template_string(r, v);
    return r->failed ? s : template_method(r, s, (struct text){ method, strlen(method) }, c);
}

static const struct value *f_trim(struct run *r, const struct value *v, const struct call *c)
{
    return as_string(r, v, "strip", c);
}

static const struct value *f_upper(struct run *r, const struct value *v, const struct call *c)
{
    return as_string(r, v, "upper", c);
}

static const struct value *f_lower(struct run *r, const struct value *v, const struct call *c)
{
    return as_string(r, v, "lower", c);
}

static const struct value *f_title(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    return template_titled(r, template_string(r, v));
}

static const struct value *f_capitalize(struct run *r, const struct value *v, const struct call *c)
{
    return as_string(r, v, "capitalize", c);
}

static const struct value *f_replace(struct run *r, const struct value *v, const struct call *c)
{
    struct call k = { .arg = { template_arg(c, 0, "old"), template_arg(c, 1, "new"), template_arg(c, 2, "count") }, .n = 3 };
    if (!k.arg[0] || !k.arg[1])
        return template_fail(r, ERR_FORMAT, "replace without what, or by what");
    k.n -= !k.arg[2] || k.arg[2]->kind == V_NONE;
    c = &k;
    return as_string(r, v, "replace", c);
}

static const struct value *f_length(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    return template_int(r, (int64_t)template_length(r, v));
}

static const struct value *f_string(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    return template_string(r, v);
}

static const struct value *f_safe(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    return template_safe(r, template_string(r, v));
}

static const struct value *f_list(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *in = template_elements(r, v), *out = template_list(r, false);
    (void)c;
    for (size_t i = 0; !r->failed && i < in->u.l->n; i++)
        template_append(r, out, in->u.l->v[i]);
    return out;
}

static const struct value *f_items(struct run *r, const struct value *v, const struct call *c)
{
    if (v->kind == V_UNDEFINED)
        return template_list(r, false);
    if (v->kind != V_DICT)
        return template_fail(r, ERR_FORMAT, "items of %s", template_kind_name(v));
    return template_method(r, v, (struct text){ "items", 5 }, c);
}

static const struct value *f_default(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *other = template_arg(c, 0, "default_value"), *falsy = template_arg(c, 1, "boolean");
    if (v->kind != V_UNDEFINED && !(is_true(falsy) && !template_truth(v)))
        return v;
    return other ? other : template_str(r, "", 0);
}

/* The attribute that an argument names, a path with points. */
static const struct value *part(struct run *r, const struct value *v, const struct value *name, const struct value *other)
{
    if (name->kind != V_STR) {
        v = template_item(r, v, name);
        return v->kind == V_UNDEFINED && other ? other : v;
    }
    struct text s = name->u.s;
    while (!r->failed) {
        const char *dot = memchr(s.s, '.', s.n);
        size_t n = dot ? (size_t)(dot - s.s) : s.n;
        v = template_item(r, v, template_str(r, s.s, n));
        v = v->kind == V_UNDEFINED && other ? other : v;
        if (!dot)
            break;
        s = (struct text){ dot + 1, s.n - n - 1 };
    }
    return v;
}

static const struct value *f_join(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *by = template_arg(c, 0, "d"), *attribute = template_arg(c, 1, "attribute");
    const struct value *in = template_elements(r, v), *sep = by ? template_string(r, by) : NULL;
    struct sink s = { 0 };
    for (size_t i = 0; !r->failed && i < in->u.l->n; i++) {
        if (i && sep)
            template_put(r, &s, sep->u.s.s, sep->u.s.n);
        template_print(r, &s, attribute ? part(r, in->u.l->v[i], attribute, NULL) : in->u.l->v[i]);
    }
    return template_taken(r, &s);
}

static struct call rest(const struct call *c, size_t from)
{
    struct call k = { .n_named = c->n_named };
    memcpy(k.name, c->name, sizeof k.name);
    memcpy(k.named, c->named, sizeof k.named);
    for (size_t i = from; i < c->n; i++)
        k.arg[k.n++] = c->arg[i];
    return k;
}

/* What select, map and their kind go through: nothing where there is nothing, none too. */
static const struct value *elements(struct run *r, const struct value *v)
{
    return template_truth(v) ? template_elements(r, v) : template_list(r, false);
}

/* select(test, args), selectattr(attribute, test, args), and what they reject. */
static const struct value *selected(struct run *r, const struct value *v, const struct call *c, bool attribute, bool want)
{
    const struct value *in = elements(r, v), *out = template_list(r, false);
    size_t at = attribute ? 1 : 0;
    if (c->n < at || (c->n > at && c->arg[at]->kind != V_STR))
        return template_fail(r, ERR_FORMAT, "a selection without the name of an attribute or a test");
    const struct call k = rest(c, at + 1);
    for (size_t i = 0; !r->failed && i < in->u.l->n; i++) {
        const struct value *x = attribute ? part(r, in->u.l->v[i], c->arg[0], NULL) : in->u.l->v[i];
        if ((c->n > at ? template_test(r, c->arg[at]->u.s, x, &k) : template_truth(x)) == want)
            template_append(r, out, in->u.l->v[i]);
    }
    return out;
}

static const struct value *f_select(struct run *r, const struct value *v, const struct call *c)
{
    return selected(r, v, c, false, true);
}

static const struct value *f_reject(struct run *r, const struct value *v, const struct call *c)
{
    return selected(r, v, c, false, false);
}

static const struct value *f_selectattr(struct run *r, const struct value *v, const struct call *c)
{
    return selected(r, v, c, true, true);
}

static const struct value *f_rejectattr(struct run *r, const struct value *v, const struct call *c)
{
    return selected(r, v, c, true, false);
}

static const struct value *f_map(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *in = elements(r, v), *out = template_list(r, false);
    const struct value *attribute = template_arg(c, SIZE_MAX, "attribute"), *other = template_arg(c, SIZE_MAX, "default");
    const struct call k = rest(c, 1);
    if (!attribute && (c->n == 0 || c->arg[0]->kind != V_STR))
        return template_fail(r, ERR_FORMAT, "map without the name of a filter");
    for (size_t i = 0; !r->failed && i < in->u.l->n; i++) {
        const struct value *x = in->u.l->v[i];
        x = attribute ? part(r, x, attribute, other) : template_filter(r, c->arg[0]->u.s, x, &k);
        template_append(r, out, x);
    }
    return out;
}

static const struct value *end_of(struct run *r, const struct value *v, bool last)
{
    const struct value *in = template_elements(r, v);
    size_t n = r->failed ? 0 : in->u.l->n;
    return n ? in->u.l->v[last ? n - 1 : 0] : &template_undefined;
}

static const struct value *f_first(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    return end_of(r, v, false);
}

static const struct value *f_last(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    return end_of(r, v, true);
}

static const struct value *or_default(struct run *r, const struct value *other)
{
    return other ? other : template_int(r, 0);
}

static const struct value *not_read(struct run *r, enum number why)
{
    return why == NUMBER_TOO_LARGE ? template_fail(r, ERR_LIMIT, "a number past 64 bits")
                                   : template_fail(r, ERR_UNSUPPORTED, "a number in digits that are not ASCII");
}

static const struct value *f_int(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *other = template_arg(c, 0, "default"), *base = template_arg(c, 1, "base");
    int64_t i, of = base && base->kind == V_INT ? base->u.i : 10;
    double d = v->kind == V_FLOAT ? v->u.d : 0;
    if (v->kind == V_INT || v->kind == V_BOOL)
        return template_int(r, v->u.i);
    if (base && v->kind == V_STR && (base->kind != V_INT || of < 0 || of > 36 || of == 1))
        return template_fail(r, ERR_UNSUPPORTED, "int with a base that is not 0 or from 2 to 36");
    if (v->kind == V_STR) {
        struct text s = template_stripped(v->u.s);
        enum number is = template_read_int(s, of, &i);
        if (is == NUMBER_FOUND)
            return template_int(r, i);
        if (is == NUMBER_NONE)
            is = template_read_float(s, &d);
        if (is != NUMBER_FOUND || !isfinite(d))
            return is == NUMBER_FOUND || is == NUMBER_NONE ? or_default(r, other) : not_read(r, is);
    } else if (v->kind != V_FLOAT) {
        return v->kind == V_UNDEFINED ? template_fail(r, ERR_FORMAT, "int of what is undefined") : or_default(r, other);
    }
    if (!isfinite(d))
        return isnan(d) ? or_default(r, other) : template_fail(r, ERR_FORMAT, "int of a number that is not finite");
    return fabs(d) < 0x1p63 ? template_int(r, (int64_t)d) : not_read(r, NUMBER_TOO_LARGE);
}

static const struct value *f_float(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *other = template_arg(c, 0, "default");
    double d = v->kind == V_FLOAT ? v->u.d : v->kind == V_INT || v->kind == V_BOOL ? (double)v->u.i : 0;
    if (v->kind == V_UNDEFINED)
        return template_fail(r, ERR_FORMAT, "float of what is undefined");
    enum number is = v->kind == V_STR ? template_read_float(template_stripped(v->u.s), &d)
                   : v->kind == V_FLOAT || v->kind == V_INT || v->kind == V_BOOL ? NUMBER_FOUND : NUMBER_NONE;
    if (is == NUMBER_FOUND)
        return template_float(r, d);
    return is != NUMBER_NONE ? not_read(r, is) : other ? other : template_float(r, 0);
}

static const struct value *f_abs(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    if (v->kind == V_FLOAT)
        return template_float(r, fabs(v->u.d));
    if ((v->kind != V_INT && v->kind != V_BOOL) || v->u.i == INT64_MIN)
        return template_fail(r, ERR_FORMAT, "abs of %s", template_kind_name(v));
    return template_int(r, v->u.i < 0 ? -v->u.i : v->u.i);
}

static const struct value *f_reverse(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *in = template_elements(r, v), *out = template_list(r, false);
    for (size_t i = r->failed ? 0 : in->u.l->n; i-- > 0;)
        template_append(r, out, in->u.l->v[i]);
    if (v->kind != V_STR)
        return out;
    (void)c;
    return f_join(r, out, &none);
}

/* ---- sorting ---- */

struct keyed {
    const struct value *key, *v;
};

static const struct value *lowered(struct run *r, const struct value *v, bool sensitive)
{
    return v->kind == V_STR && !sensitive ? f_lower(r, v, &none) : v;
}

/* Merging, which keeps the order of equals. any_equal: what is equal needs no order, as undefined has none. */
static void merge_sort(struct run *r, struct keyed *a, struct keyed *scratch, size_t n, bool down, bool any_equal)
{
    for (size_t width = 1; width < n && !r->failed; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t mid = at + width < n ? at + width : n, end = at + 2 * width < n ? at + 2 * width : n, i = at, k = mid;
            for (size_t o = at; o < end; o++) {
                bool both = i < mid && k < end && template_step(r, 0) && !(any_equal && template_equal(r, a[k].key, a[i].key));
                int c = both ? template_order(r, a[k].key, a[i].key) : 0;
                bool right = i >= mid || (k < end && (down ? c > 0 : c < 0));
                scratch[o] = right ? a[k++] : a[i++];
            }
        }
        memcpy(a, scratch, n * sizeof *a);
    }
}

static const struct value *sorted(struct run *r, const struct value *in, const struct value *attribute, bool sensitive, bool down,
                                  bool any_equal)
{
    const struct value *out = template_list(r, false);
    size_t n = r->failed ? 0 : in->u.l->n;
    struct keyed *a = template_take(r, (n + 1) * sizeof *a), *scratch = template_take(r, (n + 1) * sizeof *scratch);
    for (size_t i = 0; i < n && !r->failed; i++) {
        const struct value *v = in->u.l->v[i];
        a[i] = (struct keyed){ lowered(r, attribute ? part(r, v, attribute, NULL) : v, sensitive), v };
    }
    if (!r->failed)
        merge_sort(r, a, scratch, n, down, any_equal);
    for (size_t i = 0; i < n && !r->failed; i++)
        template_append(r, out, a[i].v);
    return out;
}

static const struct value *f_sort(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *attribute = template_arg(c, 2, "attribute");
    if (attribute && attribute->kind == V_STR && memchr(attribute->u.s.s, ',', attribute->u.s.n))
        return template_fail(r, ERR_UNSUPPORTED, "sort by several attributes");
    return sorted(r, template_elements(r, v), attribute, is_true(template_arg(c, 1, "case_sensitive")),
                  is_true(template_arg(c, 0, "reverse")), true);
}

static const struct value *f_dictsort(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *by = template_arg(c, 1, "by");
    if (v->kind != V_DICT)
        return template_fail(r, ERR_FORMAT, "dictsort of %s", template_kind_name(v));
    bool value = by && by->kind == V_STR && text_is(by->u.s, "value");
    return sorted(r, f_items(r, v, &none), template_int(r, value), is_true(template_arg(c, 0, "case_sensitive")),
                  is_true(template_arg(c, 2, "reverse")), false);
}

static const struct value *f_unique(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *in = template_elements(r, v), *out = template_list(r, false), *seen = template_list(r, false);
    bool sensitive = is_true(template_arg(c, 0, "case_sensitive"));
    for (size_t i = 0; !r->failed && i < in->u.l->n; i++) {
        const struct value *key = lowered(r, in->u.l->v[i], sensitive);
        if (!template_hashable(key))
            return template_fail(r, ERR_FORMAT, "unique of %s", template_kind_name(key));
        if (template_contains(r, seen, key))
            continue;
        template_append(r, seen, key);
        template_append(r, out, in->u.l->v[i]);
    }
    return out;
}

static const struct value *extreme(struct run *r, const struct value *v, bool down)
{
    const struct value *in = sorted(r, template_elements(r, v), NULL, false, down, false);
    return r->failed || !in->u.l->n ? &template_undefined : in->u.l->v[0];
}

static const struct value *f_min(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    return extreme(r, v, false);
}

static const struct value *f_max(struct run *r, const struct value *v, const struct call *c)
{
    (void)c;
    return extreme(r, v, true);
}

static const struct value *f_indent(struct run *r, const struct value *v, const struct call *c)
{
    const struct value *width = template_arg(c, 0, "width");
    bool first = is_true(template_arg(c, 1, "first")), blank = is_true(template_arg(c, 2, "blank"));
    int64_t n = !width ? 4 : width->kind == V_INT || width->kind == V_BOOL ? width->u.i : 0;
    struct sink with_end = { 0 }, by = { 0 }, out = { 0 };
    if (v->kind != V_STR || (width && width->kind != V_STR && width->kind != V_INT && width->kind != V_BOOL))
        return template_fail(r, ERR_FORMAT, "indent of %s", template_kind_name(v));
    for (int64_t i = 0; i < n && !r->failed; i++)
        template_put(r, &by, " ", 1);
    const struct value *space = width && width->kind == V_STR ? width : template_taken(r, &by);
    template_put(r, &with_end, v->u.s.s, v->u.s.n);
    template_put(r, &with_end, "\n", 1);
    const struct value *whole = template_taken(r, &with_end);
    const struct value *lines = r->failed ? &template_undefined : template_lines(r, whole->u.s, false);
    for (size_t i = 0; !r->failed && i < lines->u.l->n; i++) {
        struct text line = lines->u.l->v[i]->u.s;
        if (i)
            template_put(r, &out, "\n", 1);
        if (i == 0 ? first : blank || line.n)
            template_put(r, &out, space->u.s.s, space->u.s.n);
        template_put(r, &out, line.s, line.n);
    }
    return template_taken(r, &out);
}

static const struct value *f_attr(struct run *r, const struct value *v, const struct call *c)
{
    if (c->n != 1 || c->arg[0]->kind != V_STR)
        return template_fail(r, ERR_FORMAT, "attr without a name");
    if (v->kind == V_DICT && !template_method_known(v, c->arg[0]->u.s))
        return &template_undefined; /* keys are no attributes */
    return template_attr(r, v, c->arg[0]->u.s);
}

static const struct {
    const char *name;
    filter_fn *f;
} filters[] = {
    { "abs", f_abs }, { "attr", f_attr }, { "capitalize", f_capitalize }, { "count", f_length }, { "d", f_default },
    { "default", f_default }, { "dictsort", f_dictsort }, { "first", f_first }, { "float", f_float }, { "indent", f_indent },
    { "int", f_int }, { "items", f_items }, { "join", f_join }, { "last", f_last }, { "length", f_length }, { "list", f_list },
    { "lower", f_lower }, { "map", f_map }, { "max", f_max }, { "min", f_min }, { "reject", f_reject }, { "rejectattr", f_rejectattr },
    { "replace", f_replace }, { "reverse", f_reverse }, { "safe", f_safe }, { "select", f_select }, { "selectattr", f_selectattr },
    { "sort", f_sort }, { "string", f_string }, { "title", f_title }, { "tojson", template_json }, { "trim", f_trim },
    { "unique", f_unique }, { "upper", f_upper },
};

static filter_fn *find(struct text name)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (text_is(name, filters[i].name))
            return filters[i].f;
    return NULL;
}

const struct value *template_filter(struct run *r, struct text name, const struct value *v, const struct call *c)
{
    filter_fn *f = find(name);
    if (!f)
        return template_fail(r, ERR_UNSUPPORTED, "filter '%.*s' is not known", name.n > 60 ? 60 : (int)name.n, name.s);
    return template_step(r, 0) ? f(r, v, c) : &template_undefined;
}

/* ---- tests ---- */

static bool of_kind(struct run *r, struct text name, const struct value *v)
{
    enum kind k = v->kind;
    bool number = k == V_INT || k == V_FLOAT || k == V_BOOL;
    const struct {
        const char *name;
        bool is;
    } all[] = { { "defined", k != V_UNDEFINED }, { "undefined", k == V_UNDEFINED }, { "none", k == V_NONE }, { "string", k == V_STR },
                { "number", number }, { "integer", k == V_INT }, { "float", k == V_FLOAT }, { "boolean", k == V_BOOL },
                { "true", k == V_BOOL && v->u.i }, { "false", k == V_BOOL && !v->u.i }, { "mapping", k == V_DICT },
                { "iterable", k == V_STR || k == V_LIST || k == V_DICT || k == V_UNDEFINED },
                { "sequence", k == V_STR || k == V_LIST || k == V_DICT || k == V_UNDEFINED },
                { "callable", k == V_UNDEFINED || k == V_MACRO || k == V_FUNCTION || k == V_METHOD } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (text_is(name, all[i].name))
            return all[i].is;
    template_fail(r, ERR_UNSUPPORTED, "test '%.*s' is not known", name.n > 60 ? 60 : (int)name.n, name.s);
    return false;
}

static bool compares(struct run *r, struct text name, const struct value *v, const struct value *to)
{
    if (text_is(name, "in"))
        return template_contains(r, to, v);
    if (text_is(name, "sameas") && (v->kind == V_BOOL) != (to->kind == V_BOOL))
        return false;
    if (text_is(name, "eq") || text_is(name, "equalto") || text_is(name, "sameas"))
        return template_equal(r, v, to);
    if (text_is(name, "ne"))
        return !template_equal(r, v, to);
    int c = template_order(r, v, to);
    return text_is(name, "lt") || text_is(name, "lessthan") ? c < 0 : text_is(name, "le") ? c <= 0 : text_is(name, "ge") ? c >= 0 : c > 0;
}

bool template_test(struct run *r, struct text name, const struct value *v, const struct call *c)
{
    if (!template_step(r, 0))
        return false;
    if (text_is(name, "lower") || text_is(name, "upper")) {
        const struct value *s = template_string(r, v);
        const char *method = name.s[0] == 'l' ? "islower" : "isupper";
        return !r->failed && template_truth(template_method(r, s, (struct text){ method, 7 }, &none));
    }
    bool divides = text_is(name, "divisibleby");
    if (text_is(name, "odd") || text_is(name, "even") || divides) {
        const struct value *by = divides && c->n ? c->arg[0] : template_int(r, 2);
        bool numbers = (v->kind == V_INT || v->kind == V_BOOL || v->kind == V_FLOAT) && (by->kind == V_INT || by->kind == V_FLOAT) &&
                       template_truth(by) && (!divides || c->n);
        if (!numbers)
            template_fail(r, ERR_FORMAT, "'%.*s' asked of %s", (int)name.n, name.s, template_kind_name(v));
        if (r->failed)
            return false;
        const struct value *rest = template_real(r, OP_MOD, v->kind == V_FLOAT ? v->u.d : (double)v->u.i,
                                                 by->kind == V_FLOAT ? by->u.d : (double)by->u.i);
        if (v->kind != V_FLOAT && by->kind == V_INT)
            return (by->u.i == -1 || v->u.i % by->u.i == 0) != text_is(name, "odd");
        return rest->u.d == (text_is(name, "odd") ? 1 : 0);
    }
    static const char *const two[] = { "in", "eq", "equalto", "ne", "lt", "lessthan", "gt", "greaterthan", "ge", "le", "sameas" };
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
        if (text_is(name, two[i])) {
            if (c->n == 1)
                return compares(r, name, v, c->arg[0]);
            template_fail(r, ERR_FORMAT, "'%s' compares with one value", two[i]);
            return false;
        }
    return of_kind(r, name, v);
}
