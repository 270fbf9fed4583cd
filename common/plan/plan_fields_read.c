/* Strict reading of plans, through jansson, by the rows of plan_fields.c: each key must be there that is not optional and no other may be,
 * each number has a range. The cursor keeps the path ("decisions.limits[1].batches[0].hot[3]") and the first error sticks, so that the
 * readers below are straight lines. What the values mean together is plan_check's to judge, at the end. */
#include "common/plan/plan_fields.h"

#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/kernels/quant.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rd {
    const char *name;
    struct err *e;
    struct plan *p;
    json_t *ignored;            /* paths of keys that may be left alone; NULL: none */
    int code;                   /* 0, or the first error's */
    size_t len;
    char path[160];
};

static void fail(struct rd *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct rd *r, const char *fmt, ...)
{
    if (r->code < 0)
        return;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    r->code = err_set(r->e, ERR_FORMAT, "plan '%s': %s%s%s", r->name, r->path, r->len ? " " : "", text);
}

/* Step into a member or an element; leave() goes back to the length that enter() returned. */
static size_t enter(struct rd *r, const char *key)
{
    size_t was = r->len;
    int n = snprintf(r->path + r->len, sizeof r->path - r->len, "%s%s", r->len ? "." : "", key);
    if (n > 0)
        r->len = (r->len + (size_t)n < sizeof r->path) ? r->len + (size_t)n : sizeof r->path - 1;
    return was;
}

static size_t enter_at(struct rd *r, size_t i)
{
    size_t was = r->len;
    int n = snprintf(r->path + r->len, sizeof r->path - r->len, "[%zu]", i);
    if (n > 0)
        r->len = (r->len + (size_t)n < sizeof r->path) ? r->len + (size_t)n : sizeof r->path - 1;
    return was;
}

static void leave(struct rd *r, size_t was)
{
    r->len = was;
    r->path[was] = '\0';
}

static uint64_t as_u64(struct rd *r, json_t *j, uint64_t min, uint64_t max)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0) {
        fail(r, "is not a whole number of 0 or more");
        return min;
    }
    uint64_t v = (uint64_t)json_integer_value(j);
    if (v < min || v > max) {
        fail(r, "is %llu; %llu..%llu is allowed", (unsigned long long)v, (unsigned long long)min,
             (unsigned long long)max);
        return min;
    }
    return v;
}

static double as_real(struct rd *r, json_t *j, double max)
{
    double v = json_is_number(j) ? json_number_value(j) : -1;
    if (!(v >= 0 && v <= max)) {
        fail(r, "is not a number from 0 to %g", max);
        return 0;
    }
    return v;
}

/* ---- values ---- */

static void store(const struct plan_field *f, void *to, int64_t v)
{
    const int32_t of_4 = (int32_t)v; /* its bits */
    if (f->size == 1)
        *(signed char *)to = (signed char)v;
    else if (f->size == 4)
        memcpy(to, &of_4, 4);
    else
        memcpy(to, &v, 8);
}

static void read_bool(struct rd *r, json_t *j, const struct plan_field *f, void *to)
{
    if (!json_is_boolean(j))
        fail(r, "is not true or false");
    store(f, to, (int64_t)f->least + json_is_true(j));
}

static void read_name(struct rd *r, json_t *j, const struct plan_field *f, void *to)
{
    const char *s = json_string_value(j);
    char known[128] = "";
    for (int v = (int)f->least; v <= (int)f->most; v++) {
        if (s && !strcmp(s, f->names(v))) {
            store(f, to, v);
            return;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "", f->names(v));
    }
    fail(r, "is %s%.40s%s; known: %s", s ? "'" : "", s ? s : "not a string", s ? "'" : "", known);
}

static void read_text(struct rd *r, json_t *j, const struct plan_field *f, char *to)
{
    const char *s = json_string_value(j);
    if (!s)
        fail(r, "is not a string");
    else if (strlen(s) >= f->size)
        fail(r, "is longer than the limit of %zu bytes", f->size - 1);
    else if (!s[0] && f->when == PLAN_OPTIONAL)
        fail(r, "is empty");
    else
        memcpy(to, s, strlen(s) + 1);
}

static void read_value(struct rd *r, json_t *j, const struct plan_field *f, void *to)
{
    const char *s = json_string_value(j);
    double v;
    switch (f->kind) {
    case PLAN_WHOLE: store(f, to, (int64_t)as_u64(r, j, f->least, f->most)); break;
    case PLAN_REAL:
    case PLAN_EXACT_REAL: v = as_real(r, j, f->up_to), memcpy(to, &v, sizeof v); break;
    case PLAN_BOOL: read_bool(r, j, f, to); break;
    case PLAN_NAME: read_name(r, j, f, to); break;
    case PLAN_TEXT: read_text(r, j, f, to); break;
    default:
        if (!s || hash_parse(s, to) < 0)
            fail(r, "is not a hash of 32 lower-case hex digits");
    }
}

/* What stands for an absent key. */
static void leave_out(const struct plan_field *f, void *object)
{
    char *at = (char *)object + f->at;
    double v = (double)f->none;
    if (f->many == PLAN_ONE && (f->kind == PLAN_REAL || f->kind == PLAN_EXACT_REAL))
        memcpy(at, &v, sizeof v);
    else if (f->many == PLAN_ONE && (f->kind == PLAN_WHOLE || f->kind == PLAN_BOOL || f->kind == PLAN_NAME))
        store(f, at, f->none);
}

/* ---- arrays of values ---- */

/* Array of exactly n elements; NULL (and an error) when it is anything else. */
static json_t *as_array(struct rd *r, json_t *j, size_t n)
{
    if (json_is_array(j) && json_array_size(j) == n)
        return j;
    if (json_is_array(j))
        fail(r, "has %zu elements; %zu are needed", json_array_size(j), n);
    else
        fail(r, "is not an array");
    return NULL;
}

static void read_values(struct rd *r, json_t *j, const struct plan_field *f, const int *dims, int n_dims, char **to)
{
    if (n_dims == 0) {
        read_value(r, j, f, *to);
        *to += f->size;
        return;
    }
    json_t *a = as_array(r, j, (size_t)dims[0]);
    for (int i = 0; a && i < dims[0] && r->code == 0; i++) {
        size_t at = enter_at(r, (size_t)i);
        read_values(r, json_array_get(a, (size_t)i), f, dims + 1, n_dims - 1, to);
        leave(r, at);
    }
}

/* An array of `fewest` to `longest` elements; how many, 0 with an error. */
static int count_of(struct rd *r, json_t *j, int fewest, int longest, const char *what)
{
    size_t n = json_array_size(j);
    if (json_is_array(j) && n >= (size_t)fewest && n <= (size_t)longest)
        return (int)n;
    fail(r, "is not an array of %d to %d %s", fewest, longest, what);
    return 0;
}

/* An array that says how many there are of others. */
static void read_counted(struct rd *r, json_t *j, const struct plan_field *f, char *object)
{
    int n = count_of(r, j, f->fewest, f->longest, "numbers");
    struct plan_field one = *f;
    for (int i = 0; i < n && r->code == 0; i++) {
        char *to = object + f->at + (size_t)i * f->size;
        size_t at = enter_at(r, (size_t)i);
        read_value(r, json_array_get(j, (size_t)i), &one, to);
        one.least = f->many == PLAN_ASCENDING ? (uint64_t)plan_whole(f, to) + 1 : f->least;
        leave(r, at);
    }
    *(int *)(void *)(object + f->count_at) = r->code == 0 ? n : 0;
}

/* Ascending layers, at least one, whose bytes are set. */
static void read_layers(struct rd *r, json_t *j, unsigned char *set)
{
    int n = count_of(r, j, 1, r->p->n_layers, "layers");
    uint64_t least = 0;
    for (int i = 0; i < n && r->code == 0; i++) {
        size_t at = enter_at(r, (size_t)i);
        uint64_t layer = as_u64(r, json_array_get(j, (size_t)i), least, (uint64_t)r->p->n_layers - 1);
        if (r->code == 0)
            set[layer] = 1;
        least = layer + 1;
        leave(r, at);
    }
}

/* ---- keys with code of their own ---- */

/* Columns of figures by layer: those of an accelerator where the batch size gives it neurons. */
static void read_columns(struct rd *r, json_t *j, struct plan_batch *b)
{
    int n = 0;
    for (int c = 0; c < PLAN_COLUMNS && r->code == 0; c++) {
        if (!plan_has_column(b, c))
            continue;
        json_t *a = json_object_get(j, plan_columns[c].key);
        if (!a)
            fail(r, "has no '%s'", plan_columns[c].key);
        size_t at = enter(r, plan_columns[c].key);
        a = as_array(r, a, (size_t)r->p->n_layers);
        for (int i = 0; a && i < r->p->n_layers; i++) {
            size_t at_i = enter_at(r, (size_t)i);
            *plan_column_at(&b->predicted.layers[i], c) = as_real(r, json_array_get(a, (size_t)i), 1e18);
            leave(r, at_i);
        }
        leave(r, at);
        n++;
    }
    if (json_object_size(j) != (size_t)n)
        fail(r, "has an unknown key");
}

static int read_type(struct rd *r, json_t *o, int role)
{
    const char *s = json_string_value(json_object_get(o, layout_role_name(role)));
    int type = s ? quant_by_name(s) : -1;
    size_t at = enter(r, layout_role_name(role));
    if (type < 0)
        fail(r, "is '%.15s', which is not a known type", s ? s : "");
    leave(r, at);
    return type < 0 ? 0 : type;
}

/* Layers that have other types than the rest, in roles that are named; of another exception they may not be. */
static void read_exception(struct rd *r, json_t *o, const uint32_t usual[LAYOUT_ROLES], unsigned char *taken,
                           uint32_t (*type)[LAYOUT_ROLES])
{
    unsigned char own[MODEL_MAX_LAYERS] = { 0 };
    uint32_t of[LAYOUT_ROLES];
    size_t named = 0;
    for (int role = 0; role < LAYOUT_ROLES; role++) {
        int is = json_object_get(o, layout_role_name(role)) != NULL;
        of[role] = is ? (uint32_t)read_type(r, o, role) : usual[role];
        named += (size_t)is;
    }
    if (!named)
        fail(r, "names no type");
    if (json_object_size(o) != named + (json_object_get(o, "layers") != NULL))
        fail(r, "has an unknown key");
    size_t at = enter(r, "layers");
    read_layers(r, json_object_get(o, "layers"), own);
    for (int l = 0; l < r->p->n_layers && r->code == 0; l++) {
        if (own[l] && taken[l])
            fail(r, "has %d, which is a layer of another exception", l);
        if (own[l])
            memcpy(type[l], of, sizeof of);
        taken[l] |= own[l];
    }
    leave(r, at);
}

static void read_types(struct rd *r, json_t *j, struct layout *l)
{
    uint32_t type[MODEL_MAX_LAYERS][LAYOUT_ROLES], usual[LAYOUT_ROLES];
    unsigned char taken[MODEL_MAX_LAYERS] = { 0 };
    json_t *exceptions = json_object_get(j, "exceptions");
    struct err why = { 0 };
    for (int role = 0; role < LAYOUT_ROLES; role++)
        usual[role] = (uint32_t)read_type(r, j, role);
    if (json_object_size(j) != LAYOUT_ROLES + (exceptions != NULL))
        fail(r, "has an unknown key");
    for (int i = 0; i < r->p->n_layers; i++)
        memcpy(type[i], usual, sizeof type[i]);
    size_t at = enter(r, "exceptions");
    int n = exceptions ? count_of(r, exceptions, 1, LAYOUT_MAX_KINDS - 1, "objects") : 0;
    for (int i = 0; i < n && r->code == 0; i++) {
        size_t at_i = enter_at(r, (size_t)i);
        read_exception(r, json_array_get(exceptions, (size_t)i), usual, taken, type);
        leave(r, at_i);
    }
    leave(r, at);
    if (r->code == 0 && layout_set_types(l, (const uint32_t(*)[LAYOUT_ROLES])type, r->p->n_layers, &why) < 0)
        fail(r, "%.200s", why.msg);
    if (r->code == 0 && layout_set_widths(l, r->p->widths, r->p->n_layers, &why) < 0)
        fail(r, "%.200s", why.msg);
}

static void read_notes(struct rd *r, json_t *j)
{
    int n = count_of(r, j, 0, PLAN_MAX_NOTES, "notes");
    for (int i = 0; i < n && r->code == 0; i++) {
        const char *s = json_string_value(json_array_get(j, (size_t)i));
        int had = r->p->n_notes;
        if (!s || strlen(s) > 400)
            fail(r, "holds something that is not a text of at most 400 bytes");
        else
            r->code = plan_note(r->p, r->e, "%s", s);
        if (r->code == 0 && r->p->n_notes == had)
            fail(r, "says the same twice");
    }
}

/* Features of later revisions: this build has none, and may ignore what says that it may be. */
static void read_features(struct rd *r, json_t *j)
{
    json_t *refuse = json_object_get(j, "refuse"), *ignore = json_object_get(j, "ignore"), *v;
    size_t i;
    if (!json_is_object(j) || json_object_size(j) != (size_t)((refuse != NULL) + (ignore != NULL)) || (refuse && !json_is_array(refuse)) ||
        (ignore && !json_is_array(ignore)))
        fail(r, "is not an object of the arrays 'ignore' and 'refuse'");
    json_array_foreach(refuse, i, v)
        if (r->code == 0)
            r->code = err_set(r->e, ERR_UNSUPPORTED, "plan '%s' needs the feature '%.60s', which this build does not know", r->name,
                              json_is_string(v) ? json_string_value(v) : "");
    r->ignored = ignore;
}

/* ---- objects ---- */

/* Does the plan say of the key below the cursor that it may be ignored? Indices are [] in such paths. */
static int is_ignored(struct rd *r, const char *key)
{
    char path[sizeof r->path];
    size_t n = 0, i, at = enter(r, key);
    json_t *v;
    for (const char *s = r->path; *s; s++)
        if (*s < '0' || *s > '9' || s == r->path || (s[-1] != '[' && path[n - 1] != '['))
            path[n++] = *s;
    path[n] = '\0';
    leave(r, at);
    json_array_foreach(r->ignored, i, v)
        if (json_is_string(v) && !strcmp(json_string_value(v), path))
            return 1;
    return 0;
}

static void read_object(struct rd *r, json_t *j, const struct plan_object *of, char *object, void *outer);

static void read_objects(struct rd *r, json_t *j, const struct plan_field *f, char *object)
{
    int *count = (int *)(void *)(object + f->count_at), of_before = *count;
    int n = count_of(r, j, f->fewest, f->longest, f->key);
    if (!f->on_line && !f->start && r->code == 0 && n != of_before)
        fail(r, "has %d elements; the decisions have %d", n, of_before);
    if (f->start && r->code == 0)
        r->code = f->start(r->p, object, n, r->e);
    if (r->code < 0)
        return;
    *count = n;
    char *at = plan_place(f, object);
    for (int i = 0; i < n && r->code == 0; i++) {
        size_t was = enter_at(r, (size_t)i);
        read_object(r, json_array_get(j, (size_t)i), f->of, at + (size_t)i * f->of->size, object);
        leave(r, was);
    }
}

static void read_field(struct rd *r, json_t *j, const struct plan_field *f, char *object, void *outer)
{
    int dims[3];
    char *to = object + f->at;
    switch (f->kind) {
    case PLAN_FORMAT_NAME:
    case PLAN_FORMAT_REVISION:
    case PLAN_FEATURES: return; /* were read first */
    case PLAN_NOTES: read_notes(r, j); return;
    case PLAN_TYPES: read_types(r, j, (struct layout *)(void *)to); return;
    case PLAN_LAYER_COLUMNS: read_columns(r, j, (struct plan_batch *)(void *)object); return;
    case PLAN_OBJECT: read_object(r, j, f->of, to, outer); return;
    case PLAN_OBJECTS: read_objects(r, j, f, object); return;
    default: break;
    }
    if (f->many == PLAN_COUNTED || f->many == PLAN_ASCENDING)
        read_counted(r, j, f, object);
    else if (f->many == PLAN_SET)
        read_layers(r, j, plan_place(f, object));
    else {
        to = plan_place(f, object);
        read_values(r, j, f, dims, plan_dims(f, r->p, object, dims), &to);
    }
    if (f->flag_at)
        *(int *)(void *)(object + f->flag_at) = 1;
}

/* Must the key be there, given what was read? 1; may it: 0; must it not: -1. */
static int presence(const struct plan_field *f, const char *object, const void *outer)
{
    return f->when == PLAN_AS_DECIDED ? f->has(object + f->at, outer) ? 1 : -1 : f->when == PLAN_ALWAYS;
}

static const struct plan_field *find(const struct plan_object *of, const char *key)
{
    for (int i = 0; i < of->n; i++)
        if (!strcmp(of->field[i].key, key))
            return &of->field[i];
    return NULL;
}

static void read_object(struct rd *r, json_t *j, const struct plan_object *of, char *object, void *outer)
{
    const char *key;
    json_t *value;
    if (!json_is_object(j)) {
        fail(r, "is not an object");
        return;
    }
    json_object_foreach(j, key, value) {
        const struct plan_field *f = find(of, key);
        if (f ? presence(f, object, outer) < 0 : !is_ignored(r, key))
            fail(r, "has an unknown key '%.60s'", key);
    }
    for (int i = 0; i < of->n; i++)
        if (presence(&of->field[i], object, outer) > 0 && !json_object_get(j, of->field[i].key))
            fail(r, "has no '%s'", of->field[i].key);
    for (int i = 0; i < 2 * of->n && r->code == 0; i++) {
        const struct plan_field *f = &of->field[i % of->n];
        if (f->last != i / of->n)
            continue;
        value = json_object_get(j, f->key);
        size_t at = enter(r, f->key);
        if (value)
            read_field(r, value, f, object, outer);
        else
            leave_out(f, object);
        leave(r, at);
    }
}

static void read_plan(struct rd *r, json_t *j)
{
    const char *format = json_string_value(json_object_get(j, "format"));
    if (format && !strcmp(format, "thermo-plan")) {
        r->code = err_set(r->e, ERR_UNSUPPORTED, "plan '%s' was made by a version before 0.2.0; make it again with 'thermo-plan solve'",
                          r->name);
        return;
    }
    if (!format || strcmp(format, PLAN_FORMAT)) {
        fail(r, "is not a plan: it has no \"format\": \"%s\"", PLAN_FORMAT);
        return;
    }
    json_t *revision = json_object_get(j, "revision"), *features = json_object_get(j, "features");
    if (!json_is_integer(revision) || json_integer_value(revision) != PLAN_REVISION) {
        r->code = err_set(r->e, ERR_UNSUPPORTED, "plan '%s' has revision %lld; this build reads revision %d", r->name,
                          (long long)json_integer_value(revision), PLAN_REVISION);
        return;
    }
    size_t at = enter(r, "features");
    if (features)
        read_features(r, features);
    leave(r, at);
    read_object(r, j, &plan_root, (char *)r->p, NULL);
}

/* Takes j. */
static int take_plan(json_t *j, const char *name, struct plan *out, struct err *e)
{
    struct plan p = { 0 };
    struct rd r = { .name = name, .e = e, .p = &p };
    read_plan(&r, j);
    json_decref(j);
    if (js_starved())
        r.code = err_set(e, ERR_NOMEM, "plan '%s': out of memory", name);
    if (r.code == 0)
        r.code = plan_check(&p, name, e);
    if (r.code < 0) {
        plan_done(&p);
        return r.code;
    }
    *out = p;
    return 0;
}

int plan_parse(const char *json, size_t len, const char *name, struct plan *out, struct err *e)
{
    if (len > PLAN_MAX_BYTES)
        return err_set(e, ERR_LIMIT, "plan '%s' has %zu bytes, more than the limit of %u", name, len, PLAN_MAX_BYTES);
    json_t *j = (json_t *)js_parse(json, len, name, e); /* a value of jansson by another name (js.h) */
    return j ? take_plan(j, name, out, e) : e->code;
}

int plan_read_within(const char *path, size_t most, struct plan *out, struct err *e)
{
    json_t *j = (json_t *)js_read(path, PLAN_MAX_BYTES, most, e);
    return j ? take_plan(j, path, out, e) : e->code;
}

int plan_read(const char *path, struct plan *out, struct err *e)
{
    return plan_read_within(path, JS_MAX_BYTES, out, e);
}
