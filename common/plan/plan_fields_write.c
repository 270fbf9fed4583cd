/* The canonical text of a plan, by the rows of plan_fields.c. People read plans and CI compares them, so the text is made for a
 * line-wise diff: keys sorted, scalars and columns of figures on one line, hot and cold one line per layer. Text is read back before it
 * is handed out: a plan that cannot be read is never written. */
#include "common/plan/plan_fields.h"

#include "common/base/file.h"
#include "common/base/print.h"
#include "common/base/utf8.h"
#include "common/base/version.h"
#include "common/kernels/quant.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *data;
    size_t len, cap;
    int bad, depth;
    int first; /* nothing written yet at this depth */
};

static void put(struct text *t, const char *s, size_t n)
{
    if (t->bad)
        return;
    if (n >= t->cap - t->len) {
        size_t cap = t->cap ? t->cap : 4096;
        while (n >= cap - t->len)
            cap *= 2;
        char *grown = realloc(t->data, cap);
        if (!grown) {
            t->bad = 1;
            return;
        }
        t->data = grown;
        t->cap = cap;
    }
    memcpy(t->data + t->len, s, n);
    t->len += n;
    t->data[t->len] = '\0';
}

static void putf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void putf(struct text *t, const char *fmt, ...)
{
    char s[128];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    put(t, s, (size_t)n);
}

/* A new line within the innermost object or array, after the comma that it needs. */
static void line(struct text *t)
{
    if (!t->first)
        put(t, ",", 1);
    t->first = 0;
    put(t, "\n", 1);
    for (int i = 0; i < t->depth; i++)
        put(t, "  ", 2);
}

static void key(struct text *t, const char *name)
{
    line(t);
    putf(t, "\"%s\": ", name);
}

static void begin(struct text *t, char bracket)
{
    put(t, &bracket, 1);
    t->depth++;
    t->first = 1;
}

static void end(struct text *t, char bracket)
{
    t->depth--;
    int empty = t->first;
    t->first = 1;
    if (!empty)
        line(t);
    put(t, &bracket, 1);
    t->first = 0;
}

static void str(struct text *t, const char *s)
{
    put(t, "\"", 1);
    for (size_t n; *s; s += n) {
        char one[PRINT_PIECE];
        uint32_t c;
        n = print_json_piece(s, strlen(s), one);
        if (utf8_decode(s, strlen(s), &c))
            put(t, one, strlen(one));
        else
            put(t, s, n); /* which reading it back refuses */
    }
    put(t, "\"", 1);
}

/* What is no finite number becomes null, which reading it back refuses by its name. */
static void number(struct text *t, int digits, double v)
{
    char s[PRINT_NUMBER];
    print_json_number(s, digits, v);
    put(t, s, strlen(s));
}

/* As few digits as give the same number back. */
static int exact_digits(double v)
{
    char s[40];
    int digits = 6;
    do
        snprintf(s, sizeof s, "%.*g", digits, v);
    while (strtod(s, NULL) != v && digits++ < 17);
    return digits < 17 ? digits : 17;
}

static void put_value(struct text *t, const struct plan_field *f, const void *value)
{
    char hash[HASH_TEXT];
    struct hash128 h;
    double v;
    switch (f->kind) {
    case PLAN_REAL:
    case PLAN_EXACT_REAL: memcpy(&v, value, sizeof v), number(t, f->kind == PLAN_REAL ? 6 : exact_digits(v), v); break;
    case PLAN_BOOL: putf(t, "%s", plan_whole(f, value) > (int64_t)f->least ? "true" : "false"); break;
    case PLAN_NAME: str(t, f->names((int)plan_whole(f, value))); break;
    case PLAN_TEXT: str(t, value); break;
    case PLAN_HASH: memcpy(&h, value, sizeof h), hash_text(h, hash), str(t, hash); break;
    default: putf(t, "%lld", (long long)plan_whole(f, value));
    }
}

/* [a, b], or [[a], [b]]; the outermost of several dimensions has a line for each element. */
static const char *put_values(struct text *t, const struct plan_field *f, const int *dims, int n_dims, int outermost, const char *value)
{
    if (n_dims == 0) {
        put_value(t, f, value);
        return value + f->size;
    }
    int lines = outermost && n_dims > 1;
    if (lines)
        begin(t, '[');
    else
        put(t, "[", 1);
    for (int i = 0; i < dims[0]; i++) {
        if (lines)
            line(t);
        else
            put(t, ", ", i ? 2 : 0);
        value = put_values(t, f, dims + 1, n_dims - 1, 0, value);
    }
    if (lines)
        end(t, ']');
    else
        put(t, "]", 1);
    return value;
}

/* ---- keys with code of their own ---- */

static void put_layers(struct text *t, const unsigned char *set, int n, int which)
{
    put(t, "[", 1);
    for (int i = 0, some = 0; i < n; i++)
        if (set[i] == which)
            putf(t, "%s%d", some++ ? ", " : "", i);
    put(t, "]", 1);
}

static void put_columns(struct text *t, const struct plan *p, const struct plan_batch *b)
{
    begin(t, '{');
    for (int c = 0; c < PLAN_COLUMNS; c++) {
        if (!plan_has_column(b, c))
            continue;
        key(t, plan_columns[c].key);
        for (int i = 0; i < p->n_layers; i++)
            putf(t, i ? ", " : "["), number(t, 6, *plan_column_at(&b->predicted.layers[i], c));
        put(t, "]", 1);
    }
    end(t, '}');
}

/* Layers of a kind, on one line, with the types in which they differ from most. */
static void put_exception(struct text *t, const struct layout *l, int kind)
{
    const uint32_t *usual = l->type[layout_usual_kind(l)], *own = l->type[kind];
    line(t);
    put(t, "{ ", 2);
    if (own[LAYOUT_DOWN] != usual[LAYOUT_DOWN])
        putf(t, "\"down\": \"%s\", ", quant_traits(own[LAYOUT_DOWN])->name);
    if (own[LAYOUT_GATE] != usual[LAYOUT_GATE])
        putf(t, "\"gate\": \"%s\", ", quant_traits(own[LAYOUT_GATE])->name);
    put(t, "\"layers\": ", 10);
    unsigned char of[MODEL_MAX_LAYERS];
    for (int i = 0; i < l->n_layers; i++)
        of[i] = (unsigned char)layout_types_of(l, l->kind[i]);
    put_layers(t, of, l->n_layers, kind);
    if (own[LAYOUT_UP] != usual[LAYOUT_UP])
        putf(t, ", \"up\": \"%s\"", quant_traits(own[LAYOUT_UP])->name);
    put(t, " }", 2);
}

static void put_type(struct text *t, const char *name, uint32_t type)
{
    key(t, name);
    str(t, quant_traits(type)->name);
}

static void put_types(struct text *t, const struct layout *l)
{
    int kind = layout_usual_kind(l);
    const uint32_t *usual = l->type[kind];
    begin(t, '{');
    put_type(t, "down", usual[LAYOUT_DOWN]);
    if (layout_types_differ(l)) {
        key(t, "exceptions");
        begin(t, '[');
        for (int k = 0; k < l->n_kinds; k++)
            if (k != kind && layout_types_of(l, k) == k)
                put_exception(t, l, k);
        end(t, ']');
    }
    put_type(t, "gate", usual[LAYOUT_GATE]);
    put_type(t, "up", usual[LAYOUT_UP]);
    end(t, '}');
}

static void put_notes(struct text *t, const struct plan *p)
{
    begin(t, '[');
    for (int i = 0; i < p->n_notes; i++) {
        line(t);
        str(t, p->notes[i]);
    }
    end(t, ']');
}

/* ---- objects ---- */

static int is_there(const struct plan_field *f, const struct plan *p, char *object, const void *outer)
{
    const char *at = object + f->at, *set = f->many == PLAN_SET ? plan_place(f, object) : NULL;
    double v;
    if (f->when == PLAN_ALWAYS)
        return 1;
    if (f->has)
        return f->has(f->kind == PLAN_OBJECT ? at : object, outer);
    if (f->count_at)
        return *(const int *)(const void *)(object + f->count_at) > 0;
    if (set)
        return memchr(set, 1, (size_t)p->n_layers) != NULL;
    if (f->kind == PLAN_TEXT)
        return at[0] != '\0';
    if (f->kind == PLAN_REAL || f->kind == PLAN_EXACT_REAL)
        return memcpy(&v, at, sizeof v), v < (double)f->none || v > (double)f->none;
    return f->kind != PLAN_FEATURES && plan_whole(f, at) != f->none;
}

static void put_object(struct text *t, const struct plan *p, const struct plan_object *of, char *object, const void *outer);

/* On one line. */
static void put_short(struct text *t, const struct plan_object *of, const char *object)
{
    for (int i = 0; i < of->n; i++) {
        putf(t, "%s\"%s\": ", i ? ", " : "{ ", of->field[i].key);
        put_value(t, &of->field[i], object + of->field[i].at);
    }
    put(t, " }", 2);
}

static void put_objects(struct text *t, const struct plan *p, const struct plan_field *f, char *object)
{
    int n = *(int *)(void *)(object + f->count_at);
    char *at = plan_place(f, object);
    begin(t, '[');
    for (int i = 0; i < n; i++, at += f->of->size) {
        line(t);
        if (f->on_line)
            put_short(t, f->of, at);
        else
            put_object(t, p, f->of, at, object);
    }
    end(t, ']');
}

static void put_field(struct text *t, const struct plan *p, const struct plan_field *f, char *object, const void *outer)
{
    int dims[3];
    key(t, f->key);
    switch (f->kind) {
    case PLAN_FORMAT_NAME: str(t, PLAN_FORMAT); return;
    case PLAN_FORMAT_REVISION: putf(t, "%d", PLAN_REVISION); return;
    case PLAN_NOTES: put_notes(t, p); return;
    case PLAN_TYPES: put_types(t, &p->layout); return;
    case PLAN_LAYER_COLUMNS: put_columns(t, p, (const struct plan_batch *)(void *)object); return;
    case PLAN_OBJECT: put_object(t, p, f->of, object + f->at, outer); return;
    case PLAN_OBJECTS: put_objects(t, p, f, object); return;
    default: break;
    }
    if (f->many == PLAN_SET)
        put_layers(t, plan_place(f, object), p->n_layers, 1);
    else
        put_values(t, f, dims, plan_dims(f, p, object, dims), 1, plan_place(f, object));
}

static void put_object(struct text *t, const struct plan *p, const struct plan_object *of, char *object, const void *outer)
{
    begin(t, '{');
    for (int i = 0; i < of->n; i++)
        if (is_there(&of->field[i], p, object, outer))
            put_field(t, p, &of->field[i], object, outer);
    end(t, '}');
}

int plan_text(const struct plan *p, char **out, size_t *len, struct err *e)
{
    int r = plan_check(p, "(being written)", e);
    if (r < 0)
        return r;
    struct text t = { 0 };
    struct plan whole = *p;
    put_object(&t, p, &plan_root, (char *)&whole, NULL);
    put(&t, "\n", 1);
    struct plan back;
    r = t.bad ? err_set(e, ERR_NOMEM, "out of memory for a plan") :
                plan_parse(t.data, t.len, "(being written)", &back, e);
    if (r < 0) {
        free(t.data);
        return r;
    }
    plan_done(&back);
    *out = t.data;
    *len = t.len;
    return 0;
}

int plan_write(const struct plan *p, const char *path, struct err *e)
{
    char *text;
    size_t len;
    int r = plan_text(p, &text, &len, e);
    if (r < 0)
        return r;
    r = file_replace(path, text, len, e);
    free(text);
    return r;
}
