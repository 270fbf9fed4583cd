#include "common/base/fields.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static int is_null(const struct js *j)
{
    double v;
    return !js_str(j) && js_bool(j) < 0 && !js_num(j, &v) && !js_is_array(j) && !js_is_object(j);
}

int fields_given(const struct js *j)
{
    return j && !is_null(j);
}

static int is_empty(const struct js *j)
{
    double v;
    const char *s = js_str(j);
    if (js_is_object(j))
        return !js_key(j, 0);
    return js_is_array(j) ? js_len(j) == 0 : s ? !*s : js_num(j, &v) ? v == 0 : js_bool(j) != 1;
}

/* Letters to change, add, leave out or swap with the next, at most; LONG where it is more than a name has. */
enum { LONG = 24 };

static int distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b), row[3][LONG + 1];
    if (n > LONG || m > LONG)
        return LONG;
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
            int least = i == 0 ? j : j == 0 ? i : last[j - 1] + (a[i - 1] != b[j - 1]);
            if (i && j && last[j] + 1 < least)
                least = last[j] + 1;
            if (i && j && now[j - 1] + 1 < least)
                least = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < least)
                least = before[j - 2] + 1;
            now[j] = least;
        }
    return row[n % 3][m];
}

static const struct fields *next(const struct fields *f, size_t row_bytes)
{
    return (const struct fields *)(const void *)((const char *)f + row_bytes);
}

static const char *nearest(const char *key, const struct fields *table, size_t row_bytes)
{
    const char *best = NULL;
    int least = LONG;
    for (; table->name; table = next(table, row_bytes)) {
        int d = strcasecmp(key, table->name) ? distance(key, table->name) : 0;
        if (table->how == FIELDS_TAKEN && d < least && d <= 1 + (int)strlen(table->name) / 4) {
            least = d;
            best = table->name;
        }
    }
    return best;
}

static int check(const char *key, const struct js *v, const struct fields *table, size_t row_bytes, const char *of, struct err *e)
{
    const struct fields *f = table;
    while (f->name && strcmp(f->name, key))
        f = next(f, row_bytes);
    if (!f->name) {
        const char *near = nearest(key, table, row_bytes);
        return err_set(e, ERR_FORMAT, "%s: there is no field \"%.40s\"%s%s%s", of, key, near ? "; the nearest is \"" : "", near ? near : "",
                       near ? "\"" : "");
    }
    if (f->how == FIELDS_REFUSED || (f->how == FIELDS_IF_EMPTY && !is_empty(v)))
        return err_set(e, ERR_UNSUPPORTED, "%s: field \"%s\" is not supported: %s", of, key, f->why);
    return 0;
}

int fields_check(const struct js *j, const struct fields *table, size_t row_bytes, const char *of, struct err *e)
{
    const char *key;
    int r = 0;
    if (!js_is_object(j))
        return err_set(e, ERR_FORMAT, "%s is no JSON object", of);
    for (size_t i = 0; r == 0 && (key = js_key(j, i)); i++)
        r = check(key, js_get(j, key), table, row_bytes, of, e);
    return r;
}
