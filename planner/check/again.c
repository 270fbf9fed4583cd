/* Both are compared as the JSON that is written, so that no field is forgotten. */
#include "planner/check/again.h"

#include "common/base/js.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH 256

/* Where two documents differ. */
struct difference {
    char path[PATH];
    const struct js *a, *b;     /* NULL: is not there */
};

static int find_difference(const struct js *a, const struct js *b, struct difference *d);

/* The same one step deeper. */
static int find_below(const struct js *a, const struct js *b, struct difference *d, const char *step)
{
    size_t at = strlen(d->path);
    snprintf(d->path + at, PATH - at, "%s", step);
    if (find_difference(a, b, d))
        return 1;
    d->path[at] = '\0';
    return 0;
}

static int find_in_objects(const struct js *a, const struct js *b, struct difference *d)
{
    const char *key;
    char step[PATH];
    for (size_t i = 0; (key = js_key(a, i)); i++) {
        snprintf(step, sizeof step, "%s%s", d->path[0] ? "." : "", key);
        if (find_below(js_get(a, key), js_get(b, key), d, step))
            return 1;
    }
    for (size_t i = 0; (key = js_key(b, i)); i++) {
        snprintf(step, sizeof step, "%s%s", d->path[0] ? "." : "", key);
        if (!js_get(a, key) && find_below(NULL, js_get(b, key), d, step))
            return 1;
    }
    return 0;
}

static int find_in_arrays(const struct js *a, const struct js *b, struct difference *d)
{
    size_t n = js_len(a) > js_len(b) ? js_len(a) : js_len(b);
    char step[32];
    for (size_t i = 0; i < n; i++) {
        snprintf(step, sizeof step, "[%zu]", i);
        if (find_below(js_at(a, i), js_at(b, i), d, step))
            return 1;
    }
    return 0;
}

/* A value as a message shows it. */
static void value_text(const struct js *j, char out[PATH])
{
    double v;
    int64_t i;
    if (!j)
        snprintf(out, PATH, "absent");
    else if (js_is_object(j) || js_is_array(j))
        snprintf(out, PATH, "there");
    else if (js_str(j))
        snprintf(out, PATH, "\"%.80s\"", js_str(j));
    else if (js_int(j, &i))
        snprintf(out, PATH, "%lld", (long long)i);
    else if (js_num(j, &v))
        snprintf(out, PATH, "%.6g", v);
    else
        snprintf(out, PATH, "%s", js_bool(j) == 1 ? "true" : "false");
}

static int find_difference(const struct js *a, const struct js *b, struct difference *d)
{
    char x[PATH], y[PATH];
    if (a && b && js_is_object(a) && js_is_object(b))
        return find_in_objects(a, b, d);
    if (a && b && js_is_array(a) && js_is_array(b))
        return find_in_arrays(a, b, d);
    value_text(a, x);
    value_text(b, y);
    int texts = a && b && js_str(a) && js_str(b);
    if (texts ? !strcmp(js_str(a), js_str(b)) : !strcmp(x, y))
        return 0;
    d->a = a;
    d->b = b;
    return 1;
}

static int parse(const struct plan *p, const char *name, struct js **out, struct err *e)
{
    char *text;
    size_t len;
    int r = plan_text(p, &text, &len, e);
    if (r < 0)
        return r;
    *out = js_parse(text, len, name, e);
    free(text);
    return *out ? 0 : e->code;
}

int again_compare(const struct plan *p, const char *name, const struct plan *again, struct err *e)
{
    struct js *a = NULL, *b = NULL;
    struct difference d = { .path = "" };
    int r = parse(p, name, &a, e);
    if (r == 0 && (r = parse(again, name, &b, e)) == 0 && find_difference(a, b, &d)) {
        char x[PATH], y[PATH];
        value_text(d.a, x);
        value_text(d.b, y);
        r = err_set(e, ERR_MISMATCH, "plan '%s': %s is %.100s; solved again, with these options, it is %.100s", name, d.path, x, y);
    }
    js_free(a);
    js_free(b);
    return r;
}
