/* Methods of strings and dictionaries, and the functions that a template can call. */
#include "common/text/template_impl.h"

#include "common/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct value *str(struct run *r, struct text t)
{
    return template_str(r, t.s, t.n);
}

/* A string argument; fails where it is another thing. Not given: none. */
static struct text text_arg(struct run *r, const struct call *c, size_t at, const char *name, struct text none)
{
    const struct value *v = template_arg(c, at, name);
    if (!v)
        return none;
    if (v->kind != V_STR)
        template_fail(r, ERR_FORMAT, "%s where a string is expected", template_kind_name(v));
    return v->kind == V_STR ? v->u.s : none;
}

static int64_t int_arg(struct run *r, const struct call *c, size_t at, const char *name, int64_t none)
{
    const struct value *v = template_arg(c, at, name);
    if (!v)
        return none;
    if (v->kind != V_INT && v->kind != V_BOOL)
        template_fail(r, ERR_FORMAT, "%s where an integer is expected", template_kind_name(v));
    return v->kind == V_INT || v->kind == V_BOOL ? v->u.i : none;
}

/* ---- white space and characters to strip ---- */

static bool white(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool strips(struct text chars, const char *s, size_t n)
{
    uint32_t code = 0;
    if (!chars.s)
        return utf8_decode(s, n, &code) == n && white(code);
    for (size_t i = 0, k; i < chars.n; i += k) {
        k = utf8_decode(chars.s + i, chars.n - i, &code);
        k = k ? k : 1;
        if (k == n && !memcmp(chars.s + i, s, n))
            return true;
    }
    return false;
}

static struct text stripped(struct text s, struct text chars, bool left, bool right)
{
    uint32_t code;
    for (size_t k; left && s.n; s.s += k, s.n -= k) {
        k = utf8_decode(s.s, s.n, &code);
        k = k ? k : 1;
        if (!strips(chars, s.s, k))
            break;
    }
    while (right && s.n) {
        size_t k = 1;
        while (k < s.n && k < 4 && (s.s[s.n - k] & 0xc0) == 0x80)
            k++;
        if (!strips(chars, s.s + s.n - k, k))
            break;
        s.n -= k;
    }
    return s;
}

struct text template_stripped(struct text s)
{
    return stripped(s, (struct text){ 0 }, true, true);
}

/* ---- splitting and replacing ---- */

static const struct value *split_white(struct run *r, struct text s, int64_t most)
{
    const struct value *out = template_list(r, false);
    for (s = stripped(s, (struct text){ 0 }, true, most < 0); s.n && template_step(r, 0); most--) {
        size_t n = 0, k;
        uint32_t code = 0;
        for (; n < s.n && (most != 0); n += k) {
            k = utf8_decode(s.s + n, s.n - n, &code);
            if (k && white(code))
                break;
            k = k ? k : 1;
        }
        n = most == 0 ? s.n : n;
        template_append(r, out, template_str(r, s.s, n));
        s = stripped((struct text){ s.s + n, s.n - n }, (struct text){ 0 }, true, false);
    }
    return out;
}

static const struct value *split(struct run *r, struct text s, const struct call *c)
{
    const struct value *separator = template_arg(c, 0, "sep");
    int64_t most = int_arg(r, c, 1, "maxsplit", -1);
    if (!separator || separator->kind == V_NONE)
        return split_white(r, s, most);
    struct text by = text_arg(r, c, 0, "sep", (struct text){ 0 });
    if (by.n == 0)
        return template_fail(r, ERR_FORMAT, "a string split by nothing");
    const struct value *out = template_list(r, false);
    const char *at;
    for (; most != 0 && template_step(r, s.n) && (at = memmem(s.s, s.n, by.s, by.n)); most--) {
        size_t n = (size_t)(at - s.s);
        template_append(r, out, template_str(r, s.s, n));
        s = (struct text){ s.s + n + by.n, s.n - n - by.n };
    }
    template_append(r, out, str(r, s));
    return out;
}

static size_t last_of(struct text s, struct text by)
{
    for (size_t i = s.n >= by.n ? s.n - by.n + 1 : 0; i-- > 0;)
        if (!memcmp(s.s + i, by.s, by.n))
            return i;
    return SIZE_MAX;
}

static const struct value *rsplit(struct run *r, struct text s, const struct call *c)
{
    struct text by = text_arg(r, c, 0, "sep", (struct text){ 0 });
    int64_t most = int_arg(r, c, 1, "maxsplit", -1);
    if (by.n == 0)
        return template_fail(r, ERR_UNSUPPORTED, "rsplit without a separator");
    const struct value *back = template_list(r, false), *out = template_list(r, false);
    for (size_t at; most != 0 && template_step(r, s.n) && (at = last_of(s, by)) != SIZE_MAX; most--) {
        template_append(r, back, template_str(r, s.s + at + by.n, s.n - at - by.n));
        s.n = at;
    }
    template_append(r, out, str(r, s));
    for (size_t i = r->failed ? 0 : back->u.l->n; i-- > 0;)
        template_append(r, out, back->u.l->v[i]);
    return out;
}

/* Bytes of the line end at s, of Python's: \n \r \r\n \v \f, U+001C to U+001E, U+0085, U+2028, U+2029; 0: none. */
static size_t line_end(struct text s)
{
    uint32_t code;
    size_t k = utf8_decode(s.s, s.n, &code);
    if (s.n > 1 && s.s[0] == '\r' && s.s[1] == '\n')
        return 2;
    if (!k)
        return 0;
    return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 || code == 0x2029 ? k : 0;
}

const struct value *template_lines(struct run *r, struct text s, bool keep_ends)
{
    const struct value *out = template_list(r, false);
    while (s.n && template_step(r, 0)) {
        size_t n = 0, end = 0;
        while (n < s.n && !(end = line_end((struct text){ s.s + n, s.n - n })))
            n++;
        template_append(r, out, template_str(r, s.s, n + (keep_ends ? end : 0)));
        s = (struct text){ s.s + n + end, s.n - n - end };
    }
    return out;
}

static const struct value *replaced(struct run *r, struct text s, const struct call *c)
{
    struct text old = text_arg(r, c, 0, "old", (struct text){ "", 0 }), new = text_arg(r, c, 1, "new", (struct text){ "", 0 });
    int64_t most = int_arg(r, c, 2, "count", -1);
    struct sink out = { 0 };
    if (old.n == 0)
        return template_fail(r, ERR_UNSUPPORTED, "replacing nothing in a string");
    const char *at;
    for (; most != 0 && template_step(r, s.n) && (at = memmem(s.s, s.n, old.s, old.n)); most--) {
        size_t n = (size_t)(at - s.s);
        template_put(r, &out, s.s, n);
        template_put(r, &out, new.s, new.n);
        s = (struct text){ s.s + n + old.n, s.n - n - old.n };
    }
    template_put(r, &out, s.s, s.n);
    return template_taken(r, &out);
}

/* ---- case ---- */

/* how: u(pper), l(ower), c(apitalize), t(itle): a word begins behind what is no letter. */
static const struct value *recased(struct run *r, struct text s, char how)
{
    struct sink out = { 0 };
    bool inside = false;
    for (size_t i = 0; i < s.n && !r->failed; i++) {
        char c = s.s[i];
        bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z', letter = upper || lower || c & 0x80;
        bool want = how == 'u' || (how != 'l' && !inside);
        c = want && lower ? (char)(c - 32) : !want && upper ? (char)(c + 32) : c;
        inside = how == 'c' || letter;
        template_put(r, &out, &c, 1);
    }
    return template_taken(r, &out);
}

const struct value *template_titled(struct run *r, const struct value *v)
{
    struct sink out = { 0 };
    bool inside = false;
    for (size_t i = 0, k; v->kind == V_STR && i < v->u.s.n && !r->failed; i += k) {
        const char *s = v->u.s.s + i;
        char c = *s;
        uint32_t code = 0;
        k = utf8_decode(s, v->u.s.n - i, &code);
        k = k ? k : 1;
        c = !inside && c >= 'a' && c <= 'z' ? (char)(c - 32) : inside && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
        inside = !(white(code) || (c && strchr("-({[<", c)));
        template_put(r, &out, k == 1 ? &c : s, k);
    }
    return template_taken(r, &out);
}

/* is...(): every character is of that kind and there is one; for isupper and islower, every letter. What other characters are is not
 * known. */
static bool all_of(struct run *r, struct text s, const char *what)
{
    bool any = false, of_letters = !strcmp(what, "isupper") || !strcmp(what, "islower");
    if (!strcmp(what, "isspace")) {
        any = s.n > 0;
        return any && template_stripped(s).n == 0;
    }
    for (size_t i = 0; i < s.n; i++) {
        char c = s.s[i];
        if (c & 0x80) {
            template_fail(r, ERR_UNSUPPORTED, "'%s' of a character that is not ASCII", what);
            return false;
        }
        bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        bool is = !strcmp(what, "isdigit") ? digit : !strcmp(what, "isalpha") ? upper || lower
                : !strcmp(what, "isalnum") ? digit || upper || lower : !strcmp(what, "isupper") ? upper : lower;
        if (!is && (!of_letters || upper || lower))
            return false;
        any |= is;
    }
    return any;
}

/* ---- one of several, format ---- */

static bool ends(struct text s, struct text part, bool at_end)
{
    return part.n <= s.n && !memcmp(at_end ? s.s + s.n - part.n : s.s, part.s, part.n);
}

static const struct value *begins_or_ends(struct run *r, struct text s, const struct call *c, bool at_end)
{
    const struct value *v = template_arg(c, 0, "prefix");
    if (c->n != 1 || (v->kind != V_STR && !(v->kind == V_LIST && v->tuple)))
        return template_fail(r, ERR_FORMAT, "begins and ends are a string, or a tuple of them");
    if (v->kind == V_STR)
        return template_bool(ends(s, v->u.s, at_end));
    for (size_t i = 0; i < v->u.l->n; i++) {
        if (v->u.l->v[i]->kind != V_STR)
            return template_fail(r, ERR_FORMAT, "%s where a string is expected", template_kind_name(v->u.l->v[i]));
        if (ends(s, v->u.l->v[i]->u.s, at_end))
            return &template_true;
    }
    return &template_false;
}

static const struct value *joined(struct run *r, struct text by, const struct value *in)
{
    struct sink out = { 0 };
    const struct value *parts = template_elements(r, in);
    for (size_t i = 0; !r->failed && i < parts->u.l->n; i++) {
        if (i)
            template_put(r, &out, by.s, by.n);
        if (parts->u.l->v[i]->kind != V_STR)
            template_fail(r, ERR_FORMAT, "join of %s, element %zu", template_kind_name(parts->u.l->v[i]), i);
        template_print(r, &out, parts->u.l->v[i]);
    }
    return template_taken(r, &out);
}

/* "{} {1} {name}" without specifications; fields are counted or numbered. */
static const struct value *formatted(struct run *r, struct text s, const struct call *c)
{
    struct sink out = { 0 };
    size_t turn = 0;
    bool numbered = false;
    for (size_t i = 0; i < s.n && !r->failed; i++) {
        if ((s.s[i] == '{' || s.s[i] == '}') && i + 1 < s.n && s.s[i + 1] == s.s[i]) {
            template_put(r, &out, s.s + i++, 1);
            continue;
        }
        if (s.s[i] == '}') {
            template_fail(r, ERR_FORMAT, "a '}' alone in a format");
            break;
        }
        if (s.s[i] != '{') {
            template_put(r, &out, s.s + i, 1);
            continue;
        }
        char field[64];
        size_t n = 0;
        while (++i < s.n && s.s[i] != '}' && n < sizeof field - 1)
            field[n++] = s.s[i];
        field[n] = '\0';
        bool digits = n && strspn(field, "0123456789") == n;
        if (i >= s.n || s.s[i] != '}' || (digits && turn) || (n == 0 && numbered)) {
            template_fail(r, n == sizeof field - 1 ? ERR_UNSUPPORTED : ERR_FORMAT,
                          "a format with '{' alone, or of fields counted and numbered");
            break;
        }
        numbered |= digits;
        const struct value *v = template_arg(c, n == 0 ? turn++ : digits ? (size_t)atoi(field) : SIZE_MAX, field);
        if (!v)
            template_fail(r, strpbrk(field, ":!.[") ? ERR_UNSUPPORTED : ERR_FORMAT, "the field '{%s}' of format", field);
        else
            template_print(r, &out, v);
    }
    return template_taken(r, &out);
}

static const struct value *of_string(struct run *r, struct text s, const char *name, const struct call *c)
{
    struct text first = { 0 };
    const struct value *v = template_arg(c, 0, "chars");
    if (v && v->kind == V_STR)
        first = v->u.s;
    if (!strcmp(name, "strip"))
        return str(r, stripped(s, first, true, true));
    if (!strcmp(name, "lstrip") || !strcmp(name, "rstrip"))
        return str(r, stripped(s, first, *name == 'l', *name == 'r'));
    if (!strcmp(name, "split"))
        return split(r, s, c);
    if (!strcmp(name, "rsplit"))
        return rsplit(r, s, c);
    if (!strcmp(name, "splitlines"))
        return template_lines(r, s, template_arg(c, 0, "keepends") && template_truth(template_arg(c, 0, "keepends")));
    if (!strcmp(name, "replace"))
        return replaced(r, s, c);
    if (!strcmp(name, "startswith") || !strcmp(name, "endswith"))
        return begins_or_ends(r, s, c, *name == 'e');
    if (!strcmp(name, "upper") || !strcmp(name, "lower") || !strcmp(name, "title") || !strcmp(name, "capitalize"))
        return recased(r, s, *name);
    if (!strcmp(name, "removeprefix"))
        return str(r, first.n && ends(s, first, false) ? (struct text){ s.s + first.n, s.n - first.n } : s);
    if (!strcmp(name, "removesuffix"))
        return str(r, first.n && ends(s, first, true) ? (struct text){ s.s, s.n - first.n } : s);
    if (!strcmp(name, "join"))
        return v ? joined(r, s, v) : template_fail(r, ERR_FORMAT, "join of nothing");
    if (!strcmp(name, "format"))
        return formatted(r, s, c);
    if (!strncmp(name, "is", 2))
        return template_bool(all_of(r, s, name));
    size_t at = !first.s ? SIZE_MAX : *name == 'r' ? last_of(s, first) : SIZE_MAX;
    const char *found = first.s && *name != 'r' ? memmem(s.s, s.n, first.s, first.n) : NULL;
    if (!strcmp(name, "count")) {
        int64_t n = 0;
        if (found && !first.n)
            n = (int64_t)template_chars(s) + 1;
        for (; found && first.n && template_step(r, s.n); n++, found = memmem(s.s, s.n, first.s, first.n))
            s = (struct text){ found + first.n, s.n - (size_t)(found - s.s) - first.n };
        return template_int(r, n);
    }
    at = found ? (size_t)(found - s.s) : at;
    return template_int(r, at == SIZE_MAX ? -1 : (int64_t)template_chars((struct text){ s.s, at }));
}

/* ---- dictionaries ---- */

static const struct value *of_dict(struct run *r, const struct value *v, const char *name, const struct call *c)
{
    const struct list *l = v->u.l;
    if (!strcmp(name, "get")) {
        const struct value *key = template_arg(c, 0, "key"), *none = template_arg(c, 1, "default");
        if (!key || !template_hashable(key))
            return template_fail(r, ERR_FORMAT, "get of %s", key ? template_kind_name(key) : "nothing");
        for (size_t i = 0; key && i < l->n && template_step(r, 0); i += 2)
            if (template_equal(r, l->v[i], key))
                return l->v[i + 1];
        return none ? none : &template_none;
    }
    if (!strcmp(name, "copy"))
        return v;
    const struct value *out = template_list(r, false);
    for (size_t i = 0; i < l->n && template_step(r, 0); i += 2) {
        const struct value *pair = template_list(r, true);
        template_append(r, pair, l->v[i]);
        template_append(r, pair, l->v[i + 1]);
        template_append(r, out, *name == 'i' ? pair : l->v[*name == 'k' ? i : i + 1]);
    }
    return out;
}

static const struct value *of_list(struct run *r, const struct value *v, const char *name, const struct call *c)
{
    const struct list *l = v->u.l;
    const struct value *what = template_arg(c, 0, "x");
    int64_t n = 0;
    for (size_t i = 0; what && i < l->n && template_step(r, 0); i++) {
        bool same = template_equal(r, l->v[i], what);
        if (same && *name == 'i')
            return template_int(r, (int64_t)i);
        n += same;
    }
    return *name == 'i' ? template_fail(r, ERR_FORMAT, "index of what is not in the list") : template_int(r, n);
}

/* Methods that change what they belong to are known, and refused. */
static const char *const string_methods[] = { "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "replace", "startswith",
    "endswith", "upper", "lower", "title", "capitalize", "removeprefix", "removesuffix", "join", "format", "isdigit", "isalpha",
    "isalnum", "isspace", "isupper", "islower", "find", "rfind", "count", NULL };
static const char *const dict_methods[] = { "get", "items", "keys", "values", "copy", "update", "pop", "popitem", "clear", "setdefault",
                                            NULL };
static const char *const list_methods[] = { "index", "count", "append", "extend", "insert", "pop", "remove", "sort", "reverse", "clear",
                                            NULL };
static const char *const loop_methods[] = { "cycle", "changed", NULL };

static const char *method_name(const struct value *v, struct text name)
{
    const char *const *all = v->kind == V_STR ? string_methods : v->kind == V_DICT ? dict_methods : v->kind == V_LIST ? list_methods
                           : v->kind == V_NAMESPACE && template_get(v, "revindex0", 9) ? loop_methods : NULL;
    for (; all && *all; all++)
        if (text_is(name, *all))
            return *all;
    return NULL;
}

bool template_method_known(const struct value *self, struct text name)
{
    return method_name(self, name) != NULL;
}

const struct value *template_method(struct run *r, const struct value *self, struct text of, const struct call *c)
{
    const char *name = method_name(self, of);
    bool takes_names = self->kind == V_STR && (strstr(name, "split") || !strcmp(name, "format"));
    if (c->n_named && !takes_names && self->kind != V_NAMESPACE)
        return template_fail(r, ERR_FORMAT, "method '%s' of %s takes no named arguments", name, template_kind_name(self));
    if (self->kind == V_STR)
        return of_string(r, self->u.s, name, c);
    if (self->kind == V_DICT && (!strcmp(name, "get") || !strcmp(name, "items") || !strcmp(name, "keys") || !strcmp(name, "values") ||
                                 !strcmp(name, "copy")))
        return of_dict(r, self, name, c);
    if (self->kind == V_LIST && (!strcmp(name, "index") || !strcmp(name, "count")))
        return of_list(r, self, name, c);
    if (self->kind == V_NAMESPACE && !strcmp(name, "cycle") && c->n) {
        const struct value *i = template_get(self, "index0", 6);
        return c->arg[(size_t)i->u.i % c->n];
    }
    return template_fail(r, ERR_UNSUPPORTED, "method '%s' of %s: templates change nothing", name, template_kind_name(self));
}

/* ---- functions ---- */

static const struct value *range(struct run *r, const struct call *c)
{
    int64_t from = c->n > 1 ? int_arg(r, c, 0, "start", 0) : 0, to = int_arg(r, c, c->n > 1 ? 1 : 0, "stop", 0);
    int64_t by = int_arg(r, c, 2, "step", 1);
    const struct value *out = template_list(r, false);
    if (by == 0)
        return template_fail(r, ERR_FORMAT, "a range in steps of 0");
    for (int64_t i = from; (by > 0 ? i < to : i > to) && template_step(r, 0);) {
        template_append(r, out, template_int(r, i));
        if (__builtin_add_overflow(i, by, &i))
            break;
    }
    return out;
}

static const struct value *collected(struct run *r, const struct call *c, bool is_namespace)
{
    const struct value *out = template_dict(r, is_namespace), *from = c->n ? c->arg[0] : NULL;
    if (from && from->kind != V_DICT)
        return template_fail(r, ERR_UNSUPPORTED, "%s made a dictionary", template_kind_name(from));
    for (size_t i = 0; from && i < from->u.l->n; i += 2)
        template_set(r, out, from->u.l->v[i], from->u.l->v[i + 1]);
    for (size_t i = 0; i < c->n_named; i++)
        template_set(r, out, str(r, c->name[i]), c->named[i]);
    return out;
}

static const struct value *now(struct run *r, const struct call *c)
{
    struct text f = text_arg(r, c, 0, "format", (struct text){ "", 0 });
    char format[128], out[512];
    struct tm tm;
    if (f.n >= sizeof format)
        return template_fail(r, ERR_LIMIT, "a format of the time of %zu bytes", f.n);
    memcpy(format, f.s, f.n);
    format[f.n] = '\0';
    localtime_r(&r->now, &tm);
    return template_str(r, out, f.n ? strftime(out, sizeof out, format, &tm) : 0);
}

bool template_function_known(struct text name)
{
    return text_is(name, "range") || text_is(name, "dict") || text_is(name, "namespace") || text_is(name, "raise_exception") ||
           text_is(name, "strftime_now");
}

const struct value *template_function(struct run *r, struct text name, const struct call *c)
{
    if (text_is(name, "range"))
        return range(r, c);
    if (text_is(name, "strftime_now"))
        return now(r, c);
    if (!text_is(name, "raise_exception"))
        return collected(r, c, text_is(name, "namespace"));
    struct text why = text_arg(r, c, 0, "message", (struct text){ "", 0 });
    return template_fail(r, ERR_USAGE, "the template refuses: %.*s", why.n > 200 ? 200 : (int)why.n, why.s);
}
