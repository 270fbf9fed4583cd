/* Printing a hardware database. For people: a summary, then each table folded over its innermost dimension, so that
 * a curve is one line (compute: row length; memory: row size) or a matrix (storage: block by depth). For programs:
 * every point with the units in its keys, as the database names them. */
#include "profiler/show/show.h"

#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "common/hwdb/hwdb_parts.h"
#include "common/offline/hwdb/hwdb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 16 };

/* Imported figures show what they rest on. */
static const char *mark(enum hw_origin o)
{
    return o == HW_ESTIMATED ? "~" : "";
}

static const char *class_of(const struct hw *h, int core_class)
{
    return core_class >= 0 && core_class < h->n_classes ? h->classes[core_class].name : "all";
}

static char *size_text(uint64_t bytes, char out[32])
{
    if (bytes >= 1024 && bytes % 1024 == 0 && bytes < 1 << 20)
        snprintf(out, 32, "%lluK", (unsigned long long)(bytes >> 10));
    else if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        snprintf(out, 32, "%lluM", (unsigned long long)(bytes >> 20));
    else
        snprintf(out, 32, "%llu", (unsigned long long)bytes);
    return out;
}

/* ---- tables ---- */

/* When tables were measured, and where that was not clean. */
static void print_conditions(const struct hw *h)
{
    const char *head = "measured";
    char bytes[32];
    for (int t = 0; t < HW_TABLES; t++) {
        const struct hw_conditions *c = &h->conditions[t];
        char words[400];
        if (!c->measured_at[0])
            continue;
        hw_marks_words(c, words, sizeof words);
        print("  %-13s%-8s %s%s%s\n", head, hw_table_name((enum hw_table)t), c->measured_at, words[0] ? ", not clean: " : "", words);
        head = "";
    }
    uint64_t page = hw_storage_page_bytes(h);
    if (page)
        print("  %-13spages of %s\n", "reads into", size_format(page, bytes, sizeof bytes));
}

static void print_head(const struct hw *h)
{
    char memory[32], limit[32], available[32], hash[HASH_TEXT];
    hash_text(h->hash, hash);
    print("%s\n", h->name);
    const char *const lines[][2] = { { "description", h->description }, { "SoC", h->soc }, { "CPU", h->cpu_model },
                                     { "system", h->os }, { "storage", h->storage }, { "filesystem", h->filesystem },
                                     { "source", h->source } };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i][1][0])
            print("  %-13s%s\n", lines[i][0], lines[i][1]);
    if (h->memory_bytes)
        print("  %-13s%s%s%s%s%s\n", "memory", size_format(h->memory_bytes, memory, sizeof memory),
               h->app_memory_limit_bytes ? ", one program at most " : "",
               h->app_memory_limit_bytes ? size_format(h->app_memory_limit_bytes, limit, sizeof limit) : "",
               h->available_bytes ? ", available when it was measured " : "",
               h->available_bytes ? size_format(h->available_bytes, available, sizeof available) : "");
    for (int k = 0; k < h->n_classes; k++) {
        print("  %-13s%d x %s", k ? "" : "cores", h->classes[k].n_cores, h->classes[k].name);
        print(h->classes[k].max_hz ? ", %.2f GHz\n" : "\n", (double)h->classes[k].max_hz / 1e9);
    }
    print("  %-13s%s\n", "hash", hash);
    print_conditions(h);
}

static int has_kernel(const struct hw *h, const char *kernel)
{
    for (int i = 0; i < h->n_compute; i++)
        if (strcmp(h->compute[i].kernel, kernel) == 0)
            return 1;
    return 0;
}

static void print_summary(const struct hw *h)
{
    static const char *const kernels[] = { "rows/q4_0/q8", "rows/q8_0/q8", "rows/f16/f32", "flops/int8", "flops/fp32" };
    static const uint64_t blocks[] = { 4096, 65536, 1 << 20 };
    int first = 1;
    for (int k = 0; k < h->n_classes; k++)
        for (int i = 0; i < 5; i++) {
            double f = has_kernel(h, kernels[i]) ? hw_class_flops_per_s(h, k, kernels[i], HW_TYPICAL) : 0;
            if (f > 0)
                print("  %-13s%7.1f GFLOP/s per %s core, %s\n", first ? "compute" : "", f / 1e9, h->classes[k].name,
                       kernels[i]);
            first = first && f == 0;
        }
    double seq = hw_mem_bytes_per_s(h, HW_TYPICAL);
    if (seq > 0)
        print("  %-13s%7.2f GB/s (sustained %.2f)\n", "bandwidth", seq / 1e9, hw_mem_bytes_per_s(h, HW_SUSTAINED) / 1e9);
    for (int i = 0; i < 3; i++) {
        struct hw_read q = { HW_ANY_BACKEND, HW_RANDOM, blocks[i], 0, 32, 1, -1 };
        double v = hw_storage_bytes_per_s(h, &q, HW_TYPICAL);
        char block[32];
        if (v > 0)
            print("  %-13s%7.1f MB/s (sustained %.1f), random reads of %s, 32 in flight\n", i ? "" : "flash", v / 1e6,
                   hw_storage_bytes_per_s(h, &q, HW_SUSTAINED) / 1e6, size_text(blocks[i], block));
    }
    for (int i = 0; i < 3 && h->n_joint; i++) {
        const struct hw_read q = { HW_ANY_BACKEND, HW_RANDOM, blocks[i], 0, 32, 1, -1 };
        const double v = hw_storage_bytes_per_s(h, &q, HW_TYPICAL);
        struct hw_beside b;
        char block[32];
        if (hw_beside_of(h, &q, hw_cores(h, -1), v, &b))
            print("  %-13sreads of %s keep %.0f %% of that beside computing, which loses %.2f us to each\n", i ? "" : "joint",
                   size_text(blocks[i], block), 100 * b.kept, b.lost_ns / 1e3);
    }
    for (int i = 0; i < h->n_accels; i++) {
        char both[HW_NAME + 8];
        const char *engine = h->accels[i].engine;
        snprintf(both, sizeof both, "cpu+%s", engine);
        print("  %-13s%s: launch %.1f us, %.2f GB/s of weights, %.2f together with the processor\n", i ? "" : "accelerator", engine,
               h->accels[i].launch_ns / 1e3, hw_memory_bytes_per_s(h, engine, HW_SEQ, 64 << 10, 1, HW_TYPICAL) / 1e9,
               hw_memory_bytes_per_s(h, both, HW_SEQ, 64 << 10, hw_cores(h, -1), HW_TYPICAL) / 1e9);
    }
}

static int same_curve(const struct hw_compute *a, const struct hw_compute *b)
{
    return strcmp(a->kernel, b->kernel) == 0 && a->core_class == b->core_class && a->pattern == b->pattern &&
           a->dram == b->dram && a->threads == b->threads && a->batch == b->batch;
}

static void print_compute(const struct hw *h)
{
    int lens[MAX_COLUMNS], n = 0;
    for (int i = 0; i < h->n_compute; i++) {
        int at = 0;
        while (at < n && lens[at] < h->compute[i].row_len)
            at++;
        if (n == MAX_COLUMNS || h->compute[i].row_len == 0 || (at < n && lens[at] == h->compute[i].row_len))
            continue;
        memmove(lens + at + 1, lens + at, (size_t)(n - at) * sizeof *lens);
        lens[at] = h->compute[i].row_len;
        n++;
    }
    if (h->n_compute)
        print("\n  compute, ns per row%-21s", n ? " by row length" : "");
    for (int c = 0; c < n; c++)
        print("%9d", lens[c]);
    print(h->n_compute ? "\n" : "");
    for (int i = 0, next; i < h->n_compute; i = next) {
        const struct hw_compute *p = &h->compute[i];
        if (p->row_len == 0) {
            print("  %-14s %-7s x%-3d %34.1f GFLOP/s%s\n", p->kernel, class_of(h, p->core_class), p->threads,
                   p->flops_per_s / 1e9, mark(p->origin));
            next = i + 1;
            continue;
        }
        print("  %-14s %-7s x%-3d %-5s batch %-3d", p->kernel, class_of(h, p->core_class), p->threads,
               !p->dram ? "cache" : p->pattern == HW_SEQ ? "sweep" : "dram", p->batch);
        int c = 0;
        for (next = i; next < h->n_compute && same_curve(p, &h->compute[next]); next++) {
            for (; c < n && lens[c] < h->compute[next].row_len; c++)
                print("%9s", "");
            print("%9.1f", h->compute[next].ns_per_row.p50);
            c++;
        }
        print("%s\n", mark(p->origin));
    }
}

static void print_memory(const struct hw *h)
{
    char row[32];
    if (h->n_memory)
        print("\n  memory %9s %6s %8s %12s %15s\n", "engines", "order", "row", "GB/s", "sustained");
    for (int i = 0; i < h->n_memory; i++) {
        const struct hw_memory *p = &h->memory[i];
        char threads[16] = "";
        if (p->threads > 0)
            snprintf(threads, sizeof threads, "x%d", p->threads);
        print("  %8s %-7s %6s %8s %12.2f %15.2f%s\n", p->engines, threads, hw_pattern_name(p->pattern),
               size_text(p->row_bytes, row), p->bytes_per_s.p50 / 1e9,
               (p->bytes_per_s.p10 > 0 ? p->bytes_per_s.p10 : p->bytes_per_s.p50) / 1e9, mark(p->origin));
    }
}

static int same_grid(const struct hw_storage *a, const struct hw_storage *b)
{
    return a->backend == b->backend && a->pattern == b->pattern && a->lanes == b->lanes && a->core_class == b->core_class &&
           a->range_bytes == b->range_bytes;
}

/* Points of one grid, sorted by depth, then block: a line per depth. */
static void print_grid(const struct hw *h, int from, int to)
{
    const struct hw_storage *p = &h->storage_points[from];
    uint64_t blocks[MAX_COLUMNS];
    char range[32], block[32], cores[HW_NAME + 16] = "";
    int n = 0;
    if (p->core_class >= 0)
        snprintf(cores, sizeof cores, ", from %s cores", class_of(h, p->core_class));
    for (int i = from; i < to; i++) {
        int at = 0;
        while (at < n && blocks[at] < h->storage_points[i].block_bytes)
            at++;
        if (n == MAX_COLUMNS || (at < n && blocks[at] == h->storage_points[i].block_bytes))
            continue;
        memmove(blocks + at + 1, blocks + at, (size_t)(n - at) * sizeof *blocks);
        blocks[at] = h->storage_points[i].block_bytes;
        n++;
    }
    print("\n  storage, MB/s: %s, %s%s, %s in %s, %d lane%s\n  %-12s", hw_backend_name(p->backend),
           p->direct ? "direct" : "through the page cache", cores,
           hw_pattern_name(p->pattern), size_text(p->range_bytes, range), p->lanes, p->lanes > 1 ? "s" : "", "depth \\ block");
    for (int c = 0; c < n; c++)
        print("%9s", size_text(blocks[c], block));
    print("\n");
    for (int i = from, next; i < to; i = next) {
        int c = 0;
        print("  %-12d", h->storage_points[i].queue_depth);
        for (next = i; next < to && h->storage_points[next].queue_depth == h->storage_points[i].queue_depth; next++) {
            for (; c < n && blocks[c] < h->storage_points[next].block_bytes; c++)
                print("%9s", "");
            print("%8.1f%s", h->storage_points[next].bytes_per_s.p50 / 1e6,
                   h->storage_points[next].origin == HW_ESTIMATED ? "~" : " ");
            c++;
        }
        print("\n");
    }
}

static void print_joint(const struct hw *h)
{
    char block[32];
    if (h->n_joint)
        print("\n  joint %9s %7s %6s %8s %6s %10s %10s %10s\n", "reads by", "block", "depth", "threads", "load", "MB/s", "of reads",
              "of rows");
    for (int i = 0; i < h->n_joint; i++) {
        const struct hw_joint *p = &h->joint[i];
        print("  %15s %7s %6d %8d %5d%% %10.1f %9.0f%% %9.0f%%%s\n", hw_backend_name(p->backend), size_text(p->block_bytes, block),
               p->queue_depth, p->threads, p->load_percent, p->bytes_per_s.p50 / 1e6, 100 * p->read_rate_ratio, 100 * p->row_rate_ratio,
               mark(p->origin));
    }
}

static void print_accels(const struct hw *h)
{
    char size[32];
    for (int i = 0; i < h->n_accels; i++) {
        const struct hw_accel *a = &h->accels[i];
        print("\n  accelerator %s%s%s", a->engine, a->description[0] ? ": " : "", a->description);
        if (a->addressable_bytes)
            print(", addresses %s", size_format(a->addressable_bytes, size, sizeof size));
        if (a->launch_ns > 0)
            print(", launch %.1f us", a->launch_ns / 1e3);
        if (a->driver_bytes)
            print(", its driver takes %s", size_format(a->driver_bytes, size, sizeof size));
        print("%s\n", a->shares_memory ? ", shares the CPU's memory" : "");
    }
    for (int i = 0; i < h->n_accel_points; i++) {
        const struct hw_accel_point *p = &h->accel_points[i];
        double flops = strncmp(p->op, "matmul/", 7) == 0 ? 2 : strncmp(p->op, "ffn/", 4) == 0 ? 6 : 0;
        print("  %-10s %-16s %6d x %-6d batch %-4d %10.1f us", h->accels[p->accel].engine, p->op, p->rows, p->cols, p->batch,
               p->ns.p50 / 1e3);
        if (flops > 0)
            print(" %10.1f GFLOP/s", flops * p->rows * p->cols * p->batch / p->ns.p50);
        print("%s\n", mark(p->origin));
    }
}

static void print_device(const struct hw *h)
{
    print_head(h);
    print_summary(h);
    print_compute(h);
    print_memory(h);
    for (int i = 0, next; i < h->n_storage; i = next) {
        for (next = i; next < h->n_storage && same_grid(&h->storage_points[i], &h->storage_points[next]); next++)
            ;
        print_grid(h, i, next);
    }
    print_joint(h);
    print_accels(h);
}

/* ---- JSON ---- */

/* What is known of an item, under its columns' names; indexes of classes as their names. */
static void set_item(struct js *o, const struct hw *h, enum hwdb_kind k, const void *item)
{
    const struct hwdb_table *t = hwdb_table(k);
    char text[HW_NAME];
    for (int i = 0; i < t->n; i++) {
        const struct hwdb_field *f = &t->fields[i];
        const char *name = f->column;
        if (f->type == HWDB_CLASS)
            js_set_str(o, "core_class", hwdb_get(f, item) < 0 ? NULL : class_of(h, (int)hwdb_get(f, item)));
        else if (!hwdb_is_known(f, item) || f->type == HWDB_ACCEL || f->type == HWDB_MARKS)
            continue;
        else if (f->type == HWDB_TEXT)
            js_set_str(o, name, hwdb_at(f, item));
        else if (f->type == HWDB_REAL)
            js_set_num(o, name, *(const double *)hwdb_at(f, item));
        else if (f->type == HWDB_CHOICE)
            js_set_str(o, strcmp(name, "table_name") ? name : "table", hwdb_choice(f, (int)hwdb_get(f, item), text));
        else if (f->max == 1)
            js_set_bool(o, name, hwdb_get(f, item) != 0);
        else
            js_set_u64(o, name, (uint64_t)hwdb_get(f, item));
    }
}

static struct js *items_json(const struct hw *h, enum hwdb_kind k)
{
    struct js *list = js_array();
    int n;
    const char *items = hwdb_items(h, k, &n);
    for (int i = 0; i < n; i++) {
        struct js *o = js_object();
        set_item(o, h, k, items + (size_t)i * hwdb_table(k)->size);
        js_append(list, o);
    }
    return list;
}

static struct js *accels_json(const struct hw *h)
{
    struct js *list = js_array();
    for (int i = 0; i < h->n_accels; i++) {
        struct js *o = js_object(), *points = js_array();
        set_item(o, h, HWDB_ACCELERATOR, &h->accels[i]);
        for (int k = 0; k < h->n_accel_points; k++)
            if (h->accel_points[k].accel == i) {
                struct js *q = js_object();
                set_item(q, h, HWDB_ACCELERATOR_POINT, &h->accel_points[k]);
                js_append(points, q);
            }
        js_set(o, "points", points);
        js_append(list, o);
    }
    return list;
}

static struct js *conditions_json(const struct hw *h)
{
    struct js *list = js_array();
    for (int t = 0; t < HW_TABLES; t++) {
        const struct hw_conditions *c = &h->conditions[t];
        if (!c->measured_at[0])
            continue;
        struct js *o = js_object(), *marks = js_array();
        set_item(o, h, HWDB_CONDITIONS, c);
        js_set_bool(o, "watched", c->watched);
        for (int m = 0; m < HW_MARKS; m++)
            if (c->marks & 1u << m)
                js_append_str(marks, hw_mark_name((enum hw_mark)m));
        js_set(o, "marks", marks);
        js_append(list, o);
    }
    return list;
}

static struct js *device_json(const struct hw *h)
{
    char hash[HASH_TEXT];
    struct js *o = js_object();
    hash_text(h->hash, hash);
    set_item(o, h, HWDB_DEVICE, h);
    js_put(o, JS_STR("hash", hash), JS_VALUE("conditions", conditions_json(h)),
           JS_VALUE("core_classes", items_json(h, HWDB_CORE_CLASS)), JS_VALUE("compute", items_json(h, HWDB_COMPUTE)),
           JS_VALUE("memory", items_json(h, HWDB_MEMORY)), JS_VALUE("storage_points", items_json(h, HWDB_STORAGE)),
           JS_VALUE("joint", items_json(h, HWDB_JOINT)), JS_VALUE("accelerators", accels_json(h)));
    return o;
}

static int print_json(struct js *devices, struct err *e)
{
    struct js *root = js_object();
    js_put(root, JS_STR("kind", "hardware"), JS_INT("revision", HWDB_REVISION), JS_VALUE("devices", devices));
    int r = js_print(stdout, root, 2, 9, e);
    js_free(root);
    return r;
}

/* ---- entry points ---- */

int show_hw(const struct hw *h, int json, struct err *e)
{
    if (json) {
        struct js *devices = js_array();
        js_append(devices, device_json(h));
        return print_json(devices, e);
    }
    print_head(h);
    print_summary(h);
    return 0;
}

int show_hwdb(const char *path, int json, struct err *e)
{
    char **names = NULL;
    int n = 0, estimated = 0;
    struct js *devices = json ? js_array() : NULL;
    int r = hwdb_list(path, &names, &n, e);
    for (int i = 0; i < n && r == 0; i++) {
        struct hw h = { 0 };
        if ((r = hwdb_load(path, names[i], &h, e)) < 0)
            break;
        if (json) {
            js_append(devices, device_json(&h));
        } else {
            print(i ? "\n" : "");
            print_device(&h);
        }
        for (int k = 0; k < h.n_storage; k++)
            estimated |= h.storage_points[k].origin == HW_ESTIMATED;
        hw_free(&h);
    }
    free(names);
    if (json && r == 0)
        return print_json(devices, e);
    js_free(devices);
    if (estimated)
        print("\n~ estimated; where every imported figure comes from: sqlite3 %s 'SELECT * FROM v_origin'\n", path);
    return r;
}
