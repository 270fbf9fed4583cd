/* A measurement in memory: arrays of a struct hw that grow, samples beside them. Sorting moves both by one list of indexes. */
#include "common/hwdb/hwdb_record.h"

#include "common/hwdb/hwdb_parts.h"

#include <stdlib.h>
#include <string.h>

static int grow(void **a, int n, size_t size)
{
    void *b = n & (n - 1) ? *a : realloc(*a, (size_t)(n ? 2 * n : 1) * size); /* full at powers of two */
    if (b)
        *a = b;
    return b ? 0 : -1;
}

int hwdb_record_add(struct hwdb_record *r, enum hwdb_kind k, const void *item, const struct hwdb_sample *s, int n, struct err *e)
{
    const struct hwdb_table *t = hwdb_table(k);
    int *count = NULL;
    void **a = hwdb_array(&r->hw, k, &count);
    if (k == HWDB_CORE_CLASS && r->hw.n_classes < HW_MAX_CLASSES) {
        r->hw.classes[r->hw.n_classes++] = *(const struct hw_class *)item;
        return 0;
    }
    if (k == HWDB_CONDITIONS) {
        const struct hw_conditions *c = item;
        r->hw.conditions[c->table] = *c;
        return 0;
    }
    if (!a || *count >= t->most)
        return err_set(e, ERR_LIMIT, "table '%s': more than %d rows for one device", t->name, t->most);
    struct hwdb_samples kept = { n > 0 ? malloc((size_t)n * sizeof *s) : NULL, n };
    if ((n > 0 && !kept.s) || grow(a, *count, t->size) < 0 || grow((void **)&r->samples[k], *count, sizeof kept) < 0) {
        free(kept.s);
        return err_set(e, ERR_NOMEM, "table '%s': out of memory", t->name);
    }
    if (n > 0)
        memcpy(kept.s, s, (size_t)n * sizeof *s);
    memcpy((char *)*a + (size_t)*count * t->size, item, t->size);
    r->samples[k][*count] = kept;
    ++*count;
    return 0;
}

/* ---- order ---- */

static int compare_field(const struct hwdb_field *f, const void *a, const void *b)
{
    char x[HW_NAME], y[HW_NAME];
    int64_t i, j;
    if (f->type == HWDB_TEXT)
        return strcmp(hwdb_at(f, a), hwdb_at(f, b));
    i = hwdb_get(f, a), j = hwdb_get(f, b);
    if (f->type == HWDB_CHOICE)
        return strcmp(hwdb_choice(f, (int)i, x), hwdb_choice(f, (int)j, y));
    return (i > j) - (i < j);
}

static int compare(const struct hwdb_table *t, const void *a, const void *b)
{
    int order = 0;
    for (const char *c = t->order; c && *c && order == 0;) {
        size_t n = strcspn(c, " ");
        for (int i = 0; i < t->n; i++)
            if (strlen(t->fields[i].column) == n && strncmp(t->fields[i].column, c, n) == 0)
                order = compare_field(&t->fields[i], a, b);
        c += n + (c[n] == ' ');
    }
    return order;
}

/* Rows are hundreds, and nearly in order: by insertion, a row and its samples at a time. */
static void sort(struct hwdb_record *r, enum hwdb_kind k)
{
    const struct hwdb_table *t = hwdb_table(k);
    int *n = NULL;
    void **a = hwdb_array(&r->hw, k, &n);
    union {
        struct hw_compute compute;
        struct hw_memory memory;
        struct hw_storage storage;
        struct hw_accel accel;
        struct hw_accel_point accel_point;
        struct hw_joint joint;
    } row;
    for (int i = 1; a && i < *n; i++) {
        char *items = *a;
        struct hwdb_samples kept = r->samples[k][i];
        int to = i;
        memcpy(&row, items + (size_t)i * t->size, t->size);
        while (to > 0 && compare(t, items + (size_t)(to - 1) * t->size, &row) > 0)
            to--;
        memmove(items + (size_t)(to + 1) * t->size, items + (size_t)to * t->size, (size_t)(i - to) * t->size);
        memmove(&r->samples[k][to + 1], &r->samples[k][to], (size_t)(i - to) * sizeof kept);
        memcpy(items + (size_t)to * t->size, &row, t->size);
        r->samples[k][to] = kept;
    }
}

void hwdb_record_sort(struct hwdb_record *r)
{
    for (int k = 0; k < HWDB_KINDS; k++)
        sort(r, (enum hwdb_kind)k);
}

void hwdb_record_done(struct hwdb_record *r)
{
    for (int k = 0; k < HWDB_KINDS; k++) {
        int n;
        hwdb_items(&r->hw, (enum hwdb_kind)k, &n);
        for (int i = 0; r->samples[k] && i < n; i++)
            free(r->samples[k][i].s);
        free(r->samples[k]);
    }
    hw_free(&r->hw);
    memset(r, 0, sizeof *r);
}
