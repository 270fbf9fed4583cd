/* Values as text: as Python's str(), repr() and json.dumps() write them. */
#include "common/text/template_impl.h"

#include "common/base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(struct run *r, struct sink *s, const char *text)
{
    template_put(r, s, text, strlen(text));
}

/* The shortest digits that give the number again, as Python places the point. */
static void put_float(struct run *r, struct sink *s, double d, bool json)
{
    char digits[40], out[64];
    if (!isfinite(d)) {
        put(r, s, isnan(d) ? (json ? "NaN" : "nan") : d < 0 ? (json ? "-Infinity" : "-inf") : json ? "Infinity" : "inf");
        return;
    }
    for (int n = 1; n <= 17; n++) {
        snprintf(digits, sizeof digits, "%.*e", n - 1, d);
        if (strtod(digits, NULL) == d)
            break;
    }
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1), n = 0;
    for (char *c = digits; c < e; c++)
        n += *c >= '0' && *c <= '9';
    if (exponent < -4 || exponent >= 16)
        snprintf(out, sizeof out, "%.*se%c%02d", (int)(e - digits), digits, exponent < 0 ? '-' : '+', abs(exponent));
    else
        snprintf(out, sizeof out, "%.*f", n - 1 - exponent > 1 ? n - 1 - exponent : 1, d);
    put(r, s, out);
}

static void put_int(struct run *r, struct sink *s, int64_t i)
{
    char out[24];
    snprintf(out, sizeof out, "%" PRId64, i);
    put(r, s, out);
}

void template_print(struct run *r, struct sink *s, const struct value *v)
{
    if (v->kind == V_STR)
        template_put(r, s, v->u.s.s, v->u.s.n);
    else if (v->kind != V_UNDEFINED)
        template_repr(r, s, v, 0);
}

/* Characters that repr() escapes beside those of ASCII: controls, formats, separators, private use. Those that are not assigned are
 * printed: which they are depends on the version of Unicode. */
static bool escaped(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        { 0x7f, 0xa0 }, { 0xad, 0xad }, { 0x600, 0x605 }, { 0x61c, 0x61c }, { 0x6dd, 0x6dd }, { 0x70f, 0x70f }, { 0x890, 0x891 },
        { 0x8e2, 0x8e2 },
        { 0x1680, 0x1680 }, { 0x180e, 0x180e }, { 0x2000, 0x200f }, { 0x2028, 0x202f }, { 0x205f, 0x2064 }, { 0x2066, 0x206f },
        { 0x3000, 0x3000 }, { 0xe000, 0xf8ff }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0x110bd, 0x110bd }, { 0x110cd, 0x110cd },
        { 0x13430, 0x1343f }, { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a }, { 0xe0001, 0xe0001 }, { 0xe0020, 0xe007f }, { 0xf0000, 0x10ffff },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

static void quoted(struct run *r, struct sink *s, struct text t)
{
    bool twice = memchr(t.s, '\'', t.n) && !memchr(t.s, '"', t.n);
    const char quote = twice ? '"' : '\'';
    char hex[16];
    template_put(r, s, &quote, 1);
    for (size_t i = 0, k; i < t.n && !r->failed; i += k) {
        char c = t.s[i];
        uint32_t code = 0;
        k = utf8_decode(t.s + i, t.n - i, &code);
        k = k ? k : 1;
        const char *known = c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : c == '\\' ? "\\\\" : c == quote ? "\\'" : NULL;
        if (known) {
            put(r, s, known);
        } else if (code ? code < 0x20 || escaped(code) : c == 0) {
            snprintf(hex, sizeof hex, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
            put(r, s, hex);
        } else {
            template_put(r, s, t.s + i, k);
        }
    }
    template_put(r, s, &quote, 1);
}

void template_repr(struct run *r, struct sink *s, const struct value *v, int depth)
{
    if (depth > TEMPLATE_MAX_DEPTH) {
        template_fail(r, ERR_LIMIT, "values nested more than %d deep", TEMPLATE_MAX_DEPTH);
        return;
    }
    bool dict = v->kind == V_DICT;
    switch (v->kind) {
    case V_NONE: put(r, s, "None"); break;
    case V_BOOL: put(r, s, v->u.i ? "True" : "False"); break;
    case V_INT: put_int(r, s, v->u.i); break;
    case V_FLOAT: put_float(r, s, v->u.d, false); break;
    case V_STR: quoted(r, s, v->u.s); break;
    case V_UNDEFINED: put(r, s, "Undefined"); break;
    case V_LIST:
    case V_DICT:
        put(r, s, dict ? "{" : v->tuple ? "(" : "[");
        for (size_t i = 0; i < v->u.l->n && !r->failed; i++) {
            put(r, s, i == 0 ? "" : dict && i % 2 ? ": " : ", ");
            template_repr(r, s, v->u.l->v[i], depth + 1);
        }
        put(r, s, dict ? "}" : !v->tuple ? "]" : v->u.l->n == 1 ? ",)" : ")");
        break;
    default: template_fail(r, ERR_UNSUPPORTED, "%s as text", template_kind_name(v));
    }
}

const struct value *template_taken(struct run *r, struct sink *s)
{
    const struct value *v = r->failed ? &template_undefined : template_str(r, s->s, s->n);
    free(s->s);
    r->heap.used -= s->cap;
    *s = (struct sink){ 0 };
    return v;
}

const struct value *template_string(struct run *r, const struct value *v)
{
    struct sink s = { 0 };
    if (v->kind == V_STR)
        return v;
    template_print(r, &s, v);
    return template_taken(r, &s);
}

/* ---- JSON ---- */

struct json {
    bool lines, ascii, sort;    /* lines: each element has one, behind `indent` for each level */
    struct text indent, comma, colon;
};

static void json_string(struct run *r, struct sink *s, const struct json *j, struct text t)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char hex[16];
    put(r, s, "\"");
    for (size_t i = 0, k; i < t.n && !r->failed; i += k) {
        uint32_t code;
        k = utf8_decode(t.s + i, t.n - i, &code);
        const char *known = k == 1 && code ? strchr(from, (int)code) : NULL;
        if (known) {
            snprintf(hex, sizeof hex, "\\%c", to[known - from]);
            put(r, s, hex);
        } else if (k && (code < 0x20 || (j->ascii && code > 0x7e))) {
            if (code > 0xffff)
                snprintf(hex, sizeof hex, "\\u%04x\\u%04x", 0xd800 + (code - 0x10000) / 0x400, 0xdc00 + (code - 0x10000) % 0x400);
            else
                snprintf(hex, sizeof hex, "\\u%04x", code);
            put(r, s, hex);
        } else {
            k = k ? k : 1;
            template_put(r, s, t.s + i, k);
        }
    }
    put(r, s, "\"");
}

static void json_line(struct run *r, struct sink *s, const struct json *j, int depth)
{
    if (!j->lines)
        return;
    put(r, s, "\n");
    for (int i = 0; i < depth && !r->failed; i++)
        template_put(r, s, j->indent.s, j->indent.n);
}

static void json_value(struct run *r, struct sink *s, const struct json *j, const struct value *v, int depth);
static const struct value *json_key(struct run *r, const struct value *k);

static int by_key(const void *a, const void *b)
{
    const struct value *x = *(const struct value *const *)a, *y = *(const struct value *const *)b;
    size_t n = x->u.s.n < y->u.s.n ? x->u.s.n : y->u.s.n;
    int c = n ? memcmp(x->u.s.s, y->u.s.s, n) : 0;
    return c ? c : (x->u.s.n > y->u.s.n) - (x->u.s.n < y->u.s.n);
}

static void json_many(struct run *r, struct sink *s, const struct json *j, const struct value *v, int depth)
{
    bool dict = v->kind == V_DICT;
    const struct list *l = v->u.l;
    const struct value **sorted = l->v;
    if (dict && j->sort && l->n) {
        if (!(sorted = template_take(r, l->n * sizeof *sorted)))
            return;
        memcpy(sorted, l->v, l->n * sizeof *sorted);
        for (size_t i = 0; i < l->n; i += 2)
            if (sorted[i]->kind != V_STR) {
                template_fail(r, ERR_UNSUPPORTED, "sorting of keys that are no strings");
                return;
            }
        qsort(sorted, l->n / 2, 2 * sizeof *sorted, by_key);
    }
    put(r, s, dict ? "{" : "[");
    for (size_t i = 0; i < l->n && !r->failed; i++) {
        bool value = dict && i % 2;
        if (i && !value)
            template_put(r, s, j->comma.s, j->comma.n);
        if (!value)
            json_line(r, s, j, depth + 1);
        else
            template_put(r, s, j->colon.s, j->colon.n);
        const struct value *key = dict && !value ? json_key(r, sorted[i]) : sorted[i];
        json_value(r, s, j, key, depth + 1);
    }
    if (l->n)
        json_line(r, s, j, depth);
    put(r, s, dict ? "}" : "]");
}

static void json_value(struct run *r, struct sink *s, const struct json *j, const struct value *v, int depth)
{
    if (depth > TEMPLATE_MAX_DEPTH) {
        template_fail(r, ERR_LIMIT, "values nested more than %d deep", TEMPLATE_MAX_DEPTH);
        return;
    }
    switch (v->kind) {
    case V_NONE: put(r, s, "null"); break;
    case V_BOOL: put(r, s, v->u.i ? "true" : "false"); break;
    case V_INT: put_int(r, s, v->u.i); break;
    case V_FLOAT: put_float(r, s, v->u.d, true); break;
    case V_STR: json_string(r, s, j, v->u.s); break;
    case V_LIST:
    case V_DICT: json_many(r, s, j, v, depth); break;
    default: template_fail(r, ERR_FORMAT, "%s as JSON", template_kind_name(v));
    }
}

/* A key as json.dumps writes it; NULL: it cannot. */
static const struct value *json_key(struct run *r, const struct value *k)
{
    struct sink s = { 0 };
    switch (k->kind) {
    case V_STR: return k;
    case V_NONE: put(r, &s, "null"); break;
    case V_BOOL: put(r, &s, k->u.i ? "true" : "false"); break;
    case V_INT: put_int(r, &s, k->u.i); break;
    case V_FLOAT: put_float(r, &s, k->u.d, true); break;
    default: return template_fail(r, ERR_FORMAT, "%s as a key of JSON", template_kind_name(k));
    }
    return template_taken(r, &s);
}

static const struct value *json_indent(struct run *r, const struct value *v, struct json *j)
{
    struct sink s = { 0 };
    j->lines = v->kind != V_NONE;
    if (v->kind == V_STR)
        return v;
    if (v->kind != V_INT && v->kind != V_BOOL && v->kind != V_NONE)
        return template_fail(r, ERR_UNSUPPORTED, "tojson with an indent that is %s", template_kind_name(v));
    for (int64_t i = 0; v->kind != V_NONE && i < v->u.i && !r->failed; i++)
        put(r, &s, " ");
    return template_taken(r, &s);
}

const struct value *template_json(struct run *r, const struct value *v, const struct call *c)
{
    static const char *const names[] = { "ensure_ascii", "indent", "separators", "sort_keys" };
    const struct value *arg[4];
    size_t found = 0;
    for (size_t i = 0; i < 4; i++) {
        arg[i] = template_arg(c, i, names[i]);
        found += arg[i] != NULL;
    }
    if (found < c->n + c->n_named)
        return template_fail(r, ERR_FORMAT, "tojson with an argument that it does not have");
    struct json j = { .ascii = arg[0] && template_truth(arg[0]), .sort = arg[3] && template_truth(arg[3]), .colon = { ": ", 2 } };
    if (arg[1])
        j.indent = json_indent(r, arg[1], &j)->u.s;
    j.comma = (struct text){ ", ", j.lines ? 1 : 2 };
    if (arg[2] && arg[2]->kind != V_NONE) {
        const struct list *two = arg[2]->kind == V_LIST && arg[2]->u.l->n == 2 ? arg[2]->u.l : NULL;
        if (!two || two->v[0]->kind != V_STR || two->v[1]->kind != V_STR)
            return template_fail(r, ERR_FORMAT, "tojson with separators that are not two strings");
        j.comma = two->v[0]->u.s;
        j.colon = two->v[1]->u.s;
    }
    if (r->failed)
        return &template_undefined;
    struct sink s = { 0 };
    json_value(r, &s, &j, v, 0);
    return template_taken(r, &s);
}
