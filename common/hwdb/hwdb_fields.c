/* The tables of a hardware database as rows, and access to what they describe. The rows are made from the schema's text at build time. */
#include "common/hwdb/hwdb_parts.h"

#include <stdio.h>
#include <string.h>

#include "hwdb_fields.inc"

#define N(a) (a), (int)(sizeof(a) / sizeof *(a))

static const struct hwdb_table tables[HWDB_KINDS] = {
    [HWDB_DEVICE] = { "device", N(device_fields), 1, sizeof(struct hw), NULL, NULL },
    [HWDB_CORE_CLASS] = { "core_class", N(core_class_fields), HW_MAX_CLASSES, sizeof(struct hw_class), NULL, NULL },
    [HWDB_COMPUTE] = { "compute", N(compute_fields), HW_MAX_POINTS, sizeof(struct hw_compute),
                       "kernel core_class_id pattern resident threads batch row_len", "ns/row" },
    [HWDB_MEMORY] = { "memory", N(memory_fields), HW_MAX_POINTS, sizeof(struct hw_memory), "engines pattern threads row_bytes", "B/s" },
    [HWDB_STORAGE] = { "storage", N(storage_fields), HW_MAX_POINTS, sizeof(struct hw_storage),
                       "backend pattern lanes core_class_id range_bytes queue_depth block_bytes", "B/s" },
    [HWDB_ACCELERATOR] = { "accelerator", N(accelerator_fields), HWDB_MAX_ACCELS, sizeof(struct hw_accel), "engine", NULL },
    [HWDB_ACCELERATOR_POINT] = { "accelerator_point", N(accelerator_point_fields), HW_MAX_POINTS, sizeof(struct hw_accel_point),
                                 "accelerator_id op batch rows cols", "ns" },
    [HWDB_JOINT] = { "joint", N(joint_fields), HW_MAX_JOINT, sizeof(struct hw_joint),
                     "backend threads block_bytes queue_depth load_percent", "B/s" },
    [HWDB_CONDITIONS] = { "conditions", N(conditions_fields), HW_TABLES, sizeof(struct hw_conditions), NULL, NULL },
};

const struct hwdb_table *hwdb_table(enum hwdb_kind k)
{
    return &tables[k];
}

int64_t hwdb_get(const struct hwdb_field *f, const void *item)
{
    uint64_t v;
    int i;
    if (f->size == sizeof i) {
        memcpy(&i, hwdb_at(f, item), sizeof i);
        return i;
    }
    memcpy(&v, hwdb_at(f, item), sizeof v);
    return (int64_t)v;
}

void hwdb_set(const struct hwdb_field *f, void *item, int64_t v)
{
    int i = (int)v;
    uint64_t u = (uint64_t)v;
    if (f->size == sizeof i)
        memcpy(hwdb_at(f, item), &i, sizeof i);
    else
        memcpy(hwdb_at(f, item), &u, sizeof u);
}

int hwdb_is_known(const struct hwdb_field *f, const void *item)
{
    switch (f->type) {
    case HWDB_TEXT:  return *(const char *)hwdb_at(f, item) != 0;
    case HWDB_REAL:  return *(const double *)hwdb_at(f, item) > 0;
    case HWDB_MARKS: return ((const struct hw_conditions *)item)->watched;
    case HWDB_CLASS:
    case HWDB_ACCEL: return hwdb_get(f, item) >= 0;
    default:         return f->flags & HWDB_NEED || hwdb_get(f, item) != 0;
    }
}

void **hwdb_array(struct hw *h, enum hwdb_kind k, int **n)
{
    switch (k) {
    case HWDB_COMPUTE:           *n = &h->n_compute; return (void **)&h->compute;
    case HWDB_MEMORY:            *n = &h->n_memory; return (void **)&h->memory;
    case HWDB_STORAGE:           *n = &h->n_storage; return (void **)&h->storage_points;
    case HWDB_ACCELERATOR:       *n = &h->n_accels; return (void **)&h->accels;
    case HWDB_ACCELERATOR_POINT: *n = &h->n_accel_points; return (void **)&h->accel_points;
    case HWDB_JOINT:             *n = &h->n_joint; return (void **)&h->joint;
    default:                     return NULL;
    }
}

const void *hwdb_items(const struct hw *h, enum hwdb_kind k, int *n)
{
    int *count;
    void **a = hwdb_array((struct hw *)h, k, &count);
    *n = a ? *count : k == HWDB_CORE_CLASS ? h->n_classes : k == HWDB_CONDITIONS ? HW_TABLES : 1;
    return a ? *a : k == HWDB_CORE_CLASS ? (const void *)h->classes : k == HWDB_CONDITIONS ? (const void *)h->conditions : h;
}

const char *hwdb_choice(const struct hwdb_field *f, int i, char out[HW_NAME])
{
    const char *p = f->names;
    for (; i > 0 && p; i--)
        p = (p = strchr(p, ' ')) ? p + 1 : NULL;
    snprintf(out, HW_NAME, "%.*s", p ? (int)strcspn(p, " ") : 0, p ? p : "");
    return out;
}

int hwdb_choice_of(const struct hwdb_field *f, const char *name)
{
    char one[HW_NAME];
    for (int i = 0; *hwdb_choice(f, i, one); i++)
        if (strcmp(one, name) == 0)
            return i;
    return -1;
}

static int has_word(const char *column, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = strstr(column, word); p; p = strstr(p + 1, word))
        if ((p == column || p[-1] == '_') && (p[n] == '_' || !p[n]))
            return 1;
    return 0;
}

const char *hwdb_unit(const struct hwdb_field *f)
{
    static const char *const units[][2] = { { "bytes_per_s", "B/s" }, { "bytes", "B" }, { "flops_per_s", "FLOP/s" }, { "hz", "Hz" },
                                            { "ns", "ns" } };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (has_word(f->column, units[i][0]))
            return units[i][1];
    return "";
}
