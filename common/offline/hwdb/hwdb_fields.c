/* The tables of a hardware database as rows, and access to what they describe. The rows are made from the schema's text at build time. */
#include "common/offline/hwdb/hwdb_parts.h"
#include "common/offline/hwdb/hwdb_impl.h"

#include <stdio.h>
#include <string.h>

#include "hwdb_fields.inc"

/* Of each table the newest run that has rows in it counts. */
#define NEWEST(table, which)                                                                                                        \
    "(SELECT max(r.id) FROM run r WHERE r.device_id = ?1 AND EXISTS (SELECT 1 FROM " table " WHERE run_id = r.id" which "))"
#define N(a) (a), (int)(sizeof(a) / sizeof *(a))

static const struct hwdb_table tables[HWDB_KINDS] = {
    [HWDB_DEVICE] = { "device", N(device_fields), 1, sizeof(struct hw), " FROM device p WHERE id = ?1", NULL },
    [HWDB_CORE_CLASS] = { "core_class", N(core_class_fields), HW_MAX_CLASSES, sizeof(struct hw_class),
                          " FROM core_class p WHERE device_id = ?1 ORDER BY rank, name", NULL },
    [HWDB_COMPUTE] = { "compute", N(compute_fields), HW_MAX_POINTS, sizeof(struct hw_compute),
                       " FROM compute p LEFT JOIN core_class c ON c.id = core_class_id WHERE run_id = " NEWEST("compute", "")
                       " ORDER BY kernel, ifnull(c.rank, -1), c.name, pattern, resident, threads, batch, row_len", "ns/row" },
    /* Of the processor's own bandwidth, and of accelerators' alone and with it, each the newest. */
    [HWDB_MEMORY] = { "memory", N(memory_fields), HW_MAX_POINTS, sizeof(struct hw_memory),
                      " FROM memory p WHERE run_id = CASE engines WHEN 'cpu' THEN " NEWEST("memory", " AND engines = 'cpu'") " ELSE "
                      NEWEST("memory", " AND engines <> 'cpu'") " END ORDER BY engines, pattern, threads, row_bytes", "B/s" },
    [HWDB_STORAGE] = { "storage", N(storage_fields), HW_MAX_POINTS, sizeof(struct hw_storage),
                       " FROM storage p LEFT JOIN core_class c ON c.id = core_class_id WHERE run_id = " NEWEST("storage", "")
                       " ORDER BY backend, pattern, lanes, ifnull(c.rank, -1), c.name, range_bytes, queue_depth, block_bytes", "B/s" },
    [HWDB_ACCELERATOR] = { "accelerator", N(accelerator_fields), HWDB_MAX_ACCELS, sizeof(struct hw_accel),
                           " FROM accelerator p WHERE run_id = " NEWEST("accelerator", "") " ORDER BY engine", NULL },
    [HWDB_ACCELERATOR_POINT] = { "accelerator_point", N(accelerator_point_fields), HW_MAX_POINTS, sizeof(struct hw_accel_point),
                                 " FROM accelerator_point p WHERE run_id = " NEWEST("accelerator", "")
                                 " ORDER BY (SELECT engine FROM accelerator a WHERE a.id = accelerator_id), op, batch, rows, cols", "ns" },
    [HWDB_JOINT] = { "joint", N(joint_fields), HW_MAX_JOINT, sizeof(struct hw_joint),
                     " FROM joint p WHERE run_id = " NEWEST("joint", "")
                     " ORDER BY backend, threads, block_bytes, queue_depth, load_percent", "B/s" },
    /* The row of the run that a table's points are from. An import that brings no conditions has none. */
    [HWDB_CONDITIONS] = { "conditions", N(conditions_fields), HW_TABLES, sizeof(struct hw_conditions),
                          " FROM conditions p WHERE run_id = CASE table_name WHEN 'compute' THEN " NEWEST("compute", "")
                          " WHEN 'memory' THEN " NEWEST("memory", " AND engines = 'cpu'") " WHEN 'storage' THEN " NEWEST("storage", "")
                          " WHEN 'joint' THEN " NEWEST("joint", "")
                          " ELSE " NEWEST("accelerator", "") " END", NULL },
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

const void *hwdb_items(const struct hw *h, enum hwdb_kind k, int *n)
{
    switch (k) {
    case HWDB_CORE_CLASS:        *n = h->n_classes; return h->classes;
    case HWDB_COMPUTE:           *n = h->n_compute; return h->compute;
    case HWDB_MEMORY:            *n = h->n_memory; return h->memory;
    case HWDB_STORAGE:           *n = h->n_storage; return h->storage_points;
    case HWDB_ACCELERATOR:       *n = h->n_accels; return h->accels;
    case HWDB_ACCELERATOR_POINT: *n = h->n_accel_points; return h->accel_points;
    case HWDB_JOINT:             *n = h->n_joint; return h->joint;
    case HWDB_CONDITIONS:        *n = HW_TABLES; return h->conditions;
    default:                     *n = 1; return h;
    }
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
