/* Strict reading of plans, through jansson: every object lists its keys, each must be there and no
 * other may be, each number has a range. The cursor keeps the path ("limits[1].batches[0].hot[3]")
 * and the first error sticks, so that the readers below are straight lines. What the values mean
 * together is plan_check's to judge, at the end. */
#include "common/plan/plan.h"

#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/kernels/quant.h"
#include "common/model/predict.h"
#include "common/plan/budget.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const char *name_fn(int value);

/* Names of enums by their numbers. */
#define NAMED(name, of, type) static const char *name(int v) { return of((type)v); }
NAMED(form_name, layout_form_name, enum layout_form)
NAMED(mode_name, plan_mode_name, enum plan_mode)
NAMED(work_name, plan_work_name, enum plan_work)
NAMED(io_name, plan_io_name, enum plan_io)
NAMED(cost_name, plan_cost_name, enum plan_cost)
NAMED(stat_name, plan_stat_name, enum plan_stat)
NAMED(policy_name, cache_policy_name, enum cache_policy)
NAMED(input_name, predict_input_name, enum predict_input)
NAMED(purpose_name, plan_purpose_name, enum plan_purpose)

static const char *work_name_beyond(int v)
{
    return work_name(v + 1);
}

static const char *act_name(int v)
{
    return v ? "q8" : "f32";
}

static const char *kv_name(int v)
{
    return v ? "f16" : "f32";
}

struct rd {
    const char *name;
    struct err *e;
    int code;      /* 0, or the first error's */
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

/* j is an object with no other than these keys (NULL-terminated); 0: it is none. */
static int at_most(struct rd *r, json_t *j, const char *const *keys)
{
    if (!json_is_object(j)) {
        fail(r, "is not an object");
        return 0;
    }
    const char *key;
    json_t *value;
    json_object_foreach(j, key, value) {
        int known = 0;
        for (int i = 0; keys[i]; i++)
            known |= !strcmp(keys[i], key);
        if (!known)
            fail(r, "has an unknown key '%.60s'", key);
    }
    return 1;
}

/* j is an object with exactly these keys. */
static void expect(struct rd *r, json_t *j, const char *const *keys)
{
    for (int i = 0; at_most(r, j, keys) && keys[i]; i++)
        if (!json_object_get(j, keys[i]))
            fail(r, "has no '%s'", keys[i]);
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

static uint64_t get_u64(struct rd *r, json_t *o, const char *key, uint64_t min, uint64_t max)
{
    size_t at = enter(r, key);
    uint64_t v = as_u64(r, json_object_get(o, key), min, max);
    leave(r, at);
    return v;
}

static int get_int(struct rd *r, json_t *o, const char *key, int min, int max)
{
    return (int)get_u64(r, o, key, (uint64_t)min, (uint64_t)max);
}

static double get_real(struct rd *r, json_t *o, const char *key, double max)
{
    size_t at = enter(r, key);
    double v = as_real(r, json_object_get(o, key), max);
    leave(r, at);
    return v;
}

static int get_bool(struct rd *r, json_t *o, const char *key)
{
    json_t *j = json_object_get(o, key);
    if (!json_is_boolean(j)) {
        size_t at = enter(r, key);
        fail(r, "is not true or false");
        leave(r, at);
    }
    return json_is_true(j);
}

static void get_str(struct rd *r, json_t *o, const char *key, char *out, size_t len)
{
    const char *s = json_string_value(json_object_get(o, key));
    size_t at = enter(r, key);
    if (!s)
        fail(r, "is not a string");
    else if (strlen(s) >= len)
        fail(r, "is longer than the limit of %zu bytes", len - 1);
    else
        memcpy(out, s, strlen(s) + 1);
    leave(r, at);
}

static struct hash128 get_hash(struct rd *r, json_t *o, const char *key)
{
    struct hash128 h = { 0, 0 };
    const char *s = json_string_value(json_object_get(o, key));
    size_t at = enter(r, key);
    if (!s || hash_parse(s, &h) < 0)
        fail(r, "is not a hash of 32 lower-case hex digits");
    leave(r, at);
    return h;
}

/* Which of n names; -1: none, or s is NULL. */
static int find_name(const char *s, name_fn *names, int n)
{
    for (int i = 0; s && i < n; i++)
        if (!strcmp(s, names(i)))
            return i;
    return -1;
}

static int get_choice(struct rd *r, json_t *o, const char *key, name_fn *names, int n)
{
    const char *s = json_string_value(json_object_get(o, key));
    int found = find_name(s, names, n);
    if (found >= 0)
        return found;
    size_t at = enter(r, key);
    char known[128] = "";
    for (int i = 0; i < n; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", names(i));
    fail(r, "is %s%.40s%s; known: %s", s ? "'" : "", s ? s : "not a string", s ? "'" : "", known);
    leave(r, at);
    return 0;
}

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

static uint32_t read_type(struct rd *r, json_t *o, int role)
{
    char name[16] = "";
    get_str(r, o, layout_role_name(role), name, sizeof name);
    int type = quant_by_name(name);
    size_t at = enter(r, layout_role_name(role));
    if (type < 0)
        fail(r, "is '%s', which is not a known type", name);
    leave(r, at);
    return type < 0 ? 0 : (uint32_t)type;
}

/* The layers of an exception, ascending, none of another exception; their types into type[layer]. */
static void read_exception_layers(struct rd *r, json_t *j, const struct plan *p, const uint32_t own[LAYOUT_ROLES], uint8_t *taken,
                                  uint32_t (*type)[LAYOUT_ROLES])
{
    size_t n = json_array_size(j), at = enter(r, "layers");
    if (!json_is_array(j) || n < 1 || n > (size_t)p->n_layers)
        fail(r, "is not an array of 1 to %d layers", p->n_layers);
    for (size_t i = 0, least = 0; i < n && r->code == 0; i++) {
        size_t at_i = enter_at(r, i);
        uint64_t layer = as_u64(r, json_array_get(j, i), least, (uint64_t)p->n_layers - 1);
        if (r->code == 0 && taken[layer])
            fail(r, "is %llu, which is a layer of another exception", (unsigned long long)layer);
        if (r->code == 0) {
            taken[layer] = 1;
            memcpy(type[layer], own, sizeof type[layer]);
        }
        least = (size_t)layer + 1;
        leave(r, at_i);
    }
    leave(r, at);
}

/* Layers that have other types than the rest: only roles that differ are named. */
static void read_exceptions(struct rd *r, json_t *j, const struct plan *p, const uint32_t usual[LAYOUT_ROLES],
                            uint32_t (*type)[LAYOUT_ROLES])
{
    uint8_t taken[MODEL_MAX_LAYERS] = { 0 };
    size_t n = json_array_size(j), at = enter(r, "exceptions");
    if (!json_is_array(j) || n < 1 || n >= LAYOUT_MAX_KINDS) {
        fail(r, "is not an array of 1 to %d objects", LAYOUT_MAX_KINDS - 1);
        n = 0;
    }
    for (size_t i = 0; i < n && r->code == 0; i++) {
        size_t at_i = enter_at(r, i);
        json_t *o = json_array_get(j, i);
        const char *keys[LAYOUT_ROLES + 2] = { "layers" };
        uint32_t own[LAYOUT_ROLES];
        int n_keys = 1;
        for (int role = 0; role < LAYOUT_ROLES; role++)
            if (json_object_get(o, layout_role_name(role)))
                keys[n_keys++] = layout_role_name(role);
        expect(r, o, keys);
        if (n_keys == 1)
            fail(r, "names no type");
        for (int role = 0; role < LAYOUT_ROLES && r->code == 0; role++)
            own[role] = json_object_get(o, layout_role_name(role)) ? read_type(r, o, role) : usual[role];
        if (r->code == 0)
            read_exception_layers(r, json_object_get(o, "layers"), p, own, taken, type);
        leave(r, at_i);
    }
    leave(r, at);
}

static void read_types(struct rd *r, json_t *j, struct plan *p)
{
    static const char *const keys[] = { "exceptions", "down", "gate", "up", NULL };
    uint32_t type[MODEL_MAX_LAYERS][LAYOUT_ROLES], usual[LAYOUT_ROLES] = { 0 };
    struct err why = { 0 };
    json_t *exceptions = json_object_get(j, "exceptions");
    size_t at = enter(r, "types");
    expect(r, j, keys + !exceptions); /* optional */
    for (int role = 0; role < LAYOUT_ROLES && r->code == 0; role++)
        usual[role] = read_type(r, j, role);
    for (int l = 0; l < p->n_layers; l++)
        memcpy(type[l], usual, sizeof type[l]);
    if (exceptions && r->code == 0)
        read_exceptions(r, exceptions, p, usual, type);
    if (r->code == 0 && layout_set_types(&p->layout, (const uint32_t(*)[LAYOUT_ROLES])type, p->n_layers, &why) < 0)
        fail(r, "%.200s", why.msg);
    leave(r, at);
}

static void read_layout(struct rd *r, json_t *j, struct plan *p)
{
    static const char *const keys[] = { "block_bytes", "cluster_neurons", "form", "hash", "packed", "types", NULL };
    size_t at = enter(r, "layout");
    struct layout *l = &p->layout;
    expect(r, j, keys);
    l->block_bytes = (uint32_t)get_u64(r, j, "block_bytes", 512, 65536);
    l->cluster_neurons = (uint32_t)get_u64(r, j, "cluster_neurons", 8, 4096);
    l->form = (enum layout_form)get_choice(r, j, "form", form_name, LAYOUT_FORMS);
    l->packed = get_bool(r, j, "packed");
    p->layout_hash = get_hash(r, j, "hash");
    read_types(r, json_object_get(j, "types"), p);
    leave(r, at);
    p->n_parts = layout_parts(l->form);
}

static void read_model(struct rd *r, json_t *j, struct plan *p)
{
    static const char *const keys[] = { "blocks", "d_model", "hash", "layers", "n_ff", "name", "order_hash",
                                        "trace_hash", NULL };
    size_t at = enter(r, "model");
    expect(r, j, keys);
    p->n_blocks = get_int(r, j, "blocks", 1, MODEL_MAX_EXPERTS);
    p->d_model = get_int(r, j, "d_model", 1, MODEL_MAX_DIM);
    p->n_layers = get_int(r, j, "layers", 1, MODEL_MAX_LAYERS);
    p->n_ff = get_int(r, j, "n_ff", 1, MODEL_MAX_DIM);
    get_str(r, j, "name", p->model_name, sizeof p->model_name);
    p->model_hash = get_hash(r, j, "hash");
    p->order_hash = get_hash(r, j, "order_hash");
    p->trace_hash = get_hash(r, j, "trace_hash");
    leave(r, at);
}

/* with_engine: of a batch size that gives neurons to the engine. */
static void read_figures(struct rd *r, json_t *j, const struct plan *p, int with_engine, struct plan_figures *f)
{
    static const char *const keys[] = { "head_ns", "hit_rate", "layers", "read_bytes", "step_ns", "tokens_per_s",
                                        NULL };
    size_t at = enter(r, "predicted");
    expect(r, j, keys);
    f->head_ns = get_real(r, j, "head_ns", 1e18);
    f->hit_rate = get_real(r, j, "hit_rate", 1);
    f->read_bytes = get_real(r, j, "read_bytes", 1e18);
    f->step_ns = get_real(r, j, "step_ns", 1e18);
    f->tokens_per_s = get_real(r, j, "tokens_per_s", 1e18);
    const char *cols[PLAN_COLUMNS + 1] = { NULL };
    for (int c = 0, n = 0; c < PLAN_COLUMNS; c++)
        if (with_engine || plan_columns[c].at != offsetof(struct plan_layer_figures, ffn_engine_ns))
            cols[n++] = plan_columns[c].key;
    json_t *layers = json_object_get(j, "layers");
    size_t at_layers = enter(r, "layers");
    expect(r, layers, cols);
    for (int c = 0; c < PLAN_COLUMNS && r->code == 0; c++) {
        if (!with_engine && plan_columns[c].at == offsetof(struct plan_layer_figures, ffn_engine_ns))
            continue;
        size_t at_col = enter(r, plan_columns[c].key);
        json_t *a = as_array(r, json_object_get(layers, plan_columns[c].key), (size_t)p->n_layers);
        for (int i = 0; a && i < p->n_layers; i++) {
            size_t at_i = enter_at(r, (size_t)i);
            *plan_column_at(&f->layers[i], c) = as_real(r, json_array_get(a, (size_t)i), 1e18);
            leave(r, at_i);
        }
        leave(r, at_col);
    }
    leave(r, at_layers);
    leave(r, at);
}

/* A nested array of whole numbers with the given dimensions, flattened. */
static void read_u32s(struct rd *r, json_t *j, const int *dims, int n_dims, uint32_t **out)
{
    if (n_dims == 0) {
        *(*out)++ = (uint32_t)as_u64(r, j, 0, UINT32_MAX - 1);
        return;
    }
    json_t *a = as_array(r, j, (size_t)dims[0]);
    for (int i = 0; a && i < dims[0] && r->code == 0; i++) {
        size_t at = enter_at(r, (size_t)i);
        read_u32s(r, json_array_get(a, (size_t)i), dims + 1, n_dims - 1, out);
        leave(r, at);
    }
}

/* Ascending layers, at least one; absent: none. */
static void read_streamed(struct rd *r, json_t *j, const struct plan *p, struct plan_batch *b)
{
    size_t n = json_array_size(j), at = enter(r, "streamed");
    if (j && (!json_is_array(j) || n < 1 || n > (size_t)p->n_layers))
        fail(r, "is not an array of 1 to %d layers", p->n_layers);
    for (size_t i = 0, least = 0; j && i < n && r->code == 0; i++) {
        size_t at_i = enter_at(r, i);
        uint64_t layer = as_u64(r, json_array_get(j, i), least, (uint64_t)p->n_layers - 1);
        if (r->code == 0)
            b->streamed[layer] = 1;
        least = (size_t)layer + 1;
        leave(r, at_i);
    }
    leave(r, at);
}

static int read_classes(struct rd *r, json_t *j, const char *key, int most, struct plan_class *out);

/* A batch size's own cores and queue depth; where it states none, the limit's. */
static void read_configuration(struct rd *r, json_t *j, const struct plan_limit *l, struct plan_batch *b)
{
    static const char *const keys[] = { "classes", "queue_depth", "threads", NULL };
    b->threads = l->threads;
    b->n_classes = l->n_classes;
    b->queue_depth = l->queue_depth;
    memcpy(b->classes, l->classes, sizeof b->classes);
    if (!j)
        return;
    size_t at = enter(r, "configuration");
    expect(r, j, keys);
    b->threads = get_int(r, j, "threads", 1, BUDGET_MAX_THREADS);
    b->queue_depth = get_int(r, j, "queue_depth", 1, BUDGET_MAX_DEPTH);
    b->n_classes = read_classes(r, json_object_get(j, "classes"), "classes", BUDGET_MAX_THREADS, b->classes);
    leave(r, at);
}

static void read_batch(struct rd *r, json_t *j, const struct plan *p, const struct plan_limit *l, struct plan_batch *b)
{
    static const char *const keys[] = { "streamed", "configuration", "engine_neurons", "engine_work", "batch", "cold", "hot", "predicted",
                                        NULL };
    const char *present[sizeof keys / sizeof *keys];
    int n = 0, with_engine = json_object_get(j, keys[2]) != NULL;
    for (int i = 0; keys[i]; i++)
        if (i > 3 || json_object_get(j, keys[i])) /* the first four are optional */
            present[n++] = keys[i];
    present[n] = NULL;
    expect(r, j, present);
    read_configuration(r, json_object_get(j, "configuration"), l, b);
    b->batch = get_int(r, j, "batch", 1, BUDGET_MAX_BATCH);
    b->engine_neurons = with_engine ? (uint32_t)get_u64(r, j, "engine_neurons", 1, MODEL_MAX_DIM) : 0;
    if (json_object_get(j, keys[3]))
        b->engine_work = (enum plan_work)(get_choice(r, j, "engine_work", work_name_beyond, PLAN_WORKS - 1) + 1);
    const int hot_dims[3] = { p->n_layers, p->n_blocks, p->n_parts }, cold_dims[2] = { p->n_layers, p->n_parts };
    uint32_t *to = b->hot;
    size_t at = enter(r, "hot");
    read_u32s(r, json_object_get(j, "hot"), hot_dims, 3, &to);
    leave(r, at);
    to = b->cold;
    at = enter(r, "cold");
    read_u32s(r, json_object_get(j, "cold"), cold_dims, 2, &to);
    leave(r, at);
    read_streamed(r, json_object_get(j, "streamed"), p, b);
    read_figures(r, json_object_get(j, "predicted"), p, with_engine, &b->predicted);
}

static void read_coalesce(struct rd *r, json_t *j, struct plan_limit *l)
{
    static const char *const keys[] = { "bytes", "weight", NULL };
    size_t n = json_array_size(j), at = enter(r, "joins");
    if (!json_is_array(j) || n < 1 || n > READS_MAX_COALESCE) {
        fail(r, "is not an array of 1 to %d joins", READS_MAX_COALESCE);
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        size_t at_i = enter_at(r, i);
        json_t *o = json_array_get(j, i);
        expect(r, o, keys);
        l->coalesce[i].bytes = (uint32_t)get_u64(r, o, "bytes", 1, READS_MAX_BYTES);
        l->coalesce[i].weight = get_real(r, o, "weight", READS_MAX_UNITS);
        leave(r, at_i);
    }
    l->n_coalesce = (int)n;
    leave(r, at);
}

static void read_io(struct rd *r, json_t *j, struct plan_limit *l)
{
    static const char *const keys[] = { "joins", "experts_ahead", "load_bytes_per_s", "backend", "lanes", "queue_depth", NULL };
    const char *present[sizeof keys / sizeof *keys];
    json_t *coalesce = json_object_get(j, keys[0]), *ahead = json_object_get(j, keys[1]);
    const json_t *optional[] = { coalesce, ahead, json_object_get(j, keys[2]) };
    size_t at = enter(r, "io");
    int k = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (i >= sizeof optional / sizeof *optional || optional[i])
            present[k++] = keys[i];
    expect(r, j, present);
    if (coalesce)
        read_coalesce(r, coalesce, l);
    if (ahead)
        l->ahead = get_bool(r, j, keys[1]) ? PLAN_AHEAD_ON : PLAN_AHEAD_OFF;
    l->load_bytes_per_s = optional[2] ? get_real(r, j, keys[2], 1e18) : 0;
    l->io = (enum plan_io)get_choice(r, j, "backend", io_name, PLAN_IOS);
    l->io_lanes = get_int(r, j, "lanes", 1, BUDGET_MAX_LANES);
    l->queue_depth = get_int(r, j, "queue_depth", 1, BUDGET_MAX_DEPTH);
    leave(r, at);
}

static int read_classes(struct rd *r, json_t *j, const char *key, int most, struct plan_class *out)
{
    static const char *const keys[] = { "n", "name", NULL };
    size_t at = enter(r, key);
    size_t n = json_array_size(j);
    if (!json_is_array(j) || n < 1 || n > PLAN_MAX_CLASSES) {
        fail(r, "is not an array of 1 to %d core classes", PLAN_MAX_CLASSES);
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        size_t at_i = enter_at(r, i);
        json_t *c = json_array_get(j, i);
        expect(r, c, keys);
        out[i].n = get_int(r, c, "n", 0, most);
        get_str(r, c, "name", out[i].name, sizeof out[i].name);
        leave(r, at_i);
    }
    leave(r, at);
    return (int)n;
}

/* What each layer's predictor sees, and the neurons it need not predict; empty but in predicted mode. */
static void read_predictors(struct rd *r, json_t *j, const struct plan *p, struct plan_limit *l)
{
    int n = l->mode == PLAN_PREDICTED ? p->n_layers : 0;
    uint32_t *to = l->always;
    size_t where = enter(r, "exempt");
    read_u32s(r, json_object_get(j, "exempt"), &n, 1, &to);
    leave(r, where);
    where = enter(r, "predictors");
    json_t *a = as_array(r, json_object_get(j, "predictors"), (size_t)n);
    for (int i = 0; a && i < n; i++) {
        const char *s = json_string_value(json_array_get(a, (size_t)i));
        int input = s ? predict_input_by_name(s) : -1;
        size_t at_i = enter_at(r, (size_t)i);
        if (!s || (input < 0 && strcmp(s, "none")))
            fail(r, "is %s%.40s%s; known: ffn, block, residual, none", s ? "'" : "", s ? s : "not a string",
                 s ? "'" : "");
        leave(r, at_i);
        l->predictor[i] = (signed char)input;
    }
    leave(r, where);
}

static void read_reals(struct rd *r, json_t *j, const char *key, int n, double *out)
{
    size_t at = enter(r, key);
    json_t *a = as_array(r, json_object_get(j, key), (size_t)n);
    for (int i = 0; a && i < n && r->code == 0; i++) {
        size_t at_i = enter_at(r, (size_t)i);
        out[i] = as_real(r, json_array_get(a, (size_t)i), 1e18);
        leave(r, at_i);
    }
    leave(r, at);
}

/* `tokens`: least to `most` lengths, ascending; how many, or 0. */
static int read_lengths(struct rd *r, json_t *j, int fewest, int most, int longest, int *out)
{
    json_t *a = json_object_get(j, "tokens");
    size_t n = json_array_size(a), at = enter(r, "tokens");
    if (!json_is_array(a) || n < (size_t)fewest || n > (size_t)most)
        fail(r, "is not an array of %d to %d lengths", fewest, most);
    for (size_t i = 0; i < n && r->code == 0; i++) {
        json_t *v = json_array_get(a, i);
        int least = i ? out[i - 1] + 1 : 1;
        size_t at_i = enter_at(r, i);
        if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > longest)
            fail(r, "is not a whole number from %d to %d", least, longest);
        else
            out[i] = (int)json_integer_value(v);
        leave(r, at_i);
    }
    leave(r, at);
    return r->code == 0 ? (int)n : 0;
}

static void read_heights(struct rd *r, json_t *heights, struct plan_prompt *q)
{
    uint32_t *to = q->engine_neurons;
    size_t at = enter(r, "engine_neurons");
    if (heights)
        read_u32s(r, heights, &q->n, 1, &to);
    leave(r, at);
}

static void read_works(struct rd *r, json_t *works, struct plan_prompt *q)
{
    size_t at = enter(r, "engine_work");
    works = as_array(r, works, (size_t)q->n);
    for (int i = 0; works && i < q->n; i++) {
        int w = find_name(json_string_value(json_array_get(works, (size_t)i)), work_name, PLAN_WORKS);
        size_t at_i = enter_at(r, (size_t)i);
        if (w < 0)
            fail(r, "is none of ffn, head, attention and all");
        else
            q->engine_work[i] = (enum plan_work)w;
        leave(r, at_i);
    }
    leave(r, at);
}

static void read_rest(struct rd *r, json_t *j, struct plan_prompt *q)
{
    static const char *const keys[] = { "area_bytes", "from_tokens", NULL };
    size_t at = enter(r, "engine_rest");
    expect(r, j, keys);
    q->area_bytes = get_u64(r, j, "area_bytes", 1, (uint64_t)1 << 40);
    q->rest_from = (int)get_u64(r, j, "from_tokens", 1, MODEL_MAX_CONTEXT);
    leave(r, at);
}

static void read_prompt(struct rd *r, json_t *j, struct plan_prompt *q)
{
    static const char *const keys[] = { "engine_rest", "engine_work", "engine_neurons", "attention_ns", "ffn_ns", "head_ns",
                                        "read_bytes", "tokens",
                                        "wait_ns", NULL };
    size_t at = enter(r, "prompt");
    json_t *heights = json_object_get(j, "engine_neurons");
    json_t *works = heights ? json_object_get(j, "engine_work") : NULL;
    json_t *rest = heights ? json_object_get(j, "engine_rest") : NULL;
    const char *some[sizeof keys / sizeof keys[0]];
    size_t n = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) /* the first three are optional, two of them beside the third alone */
        if (i > 2 || (i == 0 ? rest : i == 1 ? works : heights))
            some[n++] = keys[i];
    expect(r, j, some);
    q->n = read_lengths(r, j, 1, PLAN_PROMPT_POINTS, MODEL_MAX_CONTEXT, q->tokens);
    q->with_engine = heights != NULL;
    read_heights(r, heights, q);
    if (works)
        read_works(r, works, q);
    if (rest)
        read_rest(r, rest, q);
    read_reals(r, j, "attention_ns", q->n, q->attention_ns);
    read_reals(r, j, "ffn_ns", q->n, q->ffn_ns);
    read_reals(r, j, "wait_ns", q->n, q->wait_ns);
    read_reals(r, j, "read_bytes", q->n, q->read_bytes);
    q->head_ns = get_real(r, j, "head_ns", 1e18);
    leave(r, at);
}

/* What is said of two shares of guesses that come true. */
static void read_acceptances(struct rd *r, json_t *j, struct plan_guesses *g)
{
    json_t *best = json_object_get(j, "best");
    read_reals(r, j, "acceptance", PLAN_ACCEPTANCES, g->acceptance);
    read_reals(r, j, "speedup", PLAN_ACCEPTANCES, g->speedup);
    size_t at = enter(r, "best");
    best = as_array(r, best, PLAN_ACCEPTANCES);
    for (size_t i = 0; best && i < PLAN_ACCEPTANCES && r->code == 0; i++) {
        json_t *v = json_array_get(best, i);
        size_t at_i = enter_at(r, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > PLAN_GUESSES)
            fail(r, "is not a whole number from 0 to %d", PLAN_GUESSES);
        else
            g->best[i] = (int)json_integer_value(v);
        leave(r, at_i);
    }
    leave(r, at);
}

static const char *source_name(int v)
{
    return plan_source_name((enum plan_source)(v + 1));
}

static void read_source(struct rd *r, json_t *j, struct plan_guesses *g)
{
    static const char *const keys[] = { "guess_ns", "kind", NULL };
    size_t at = enter(r, "source");
    expect(r, j, keys);
    g->guess_ns = get_real(r, j, "guess_ns", 1e18);
    g->source = (enum plan_source)(get_choice(r, j, "kind", source_name, PLAN_SOURCES - 1) + 1);
    leave(r, at);
}

static void read_guesses(struct rd *r, json_t *j, struct plan_guesses *g)
{
    static const char *const keys[] = { "source", "acceptance", "best", "pass_ns", "read_bytes", "speedup", "tokens", NULL };
    json_t *source = json_object_get(j, keys[0]);
    size_t at = enter(r, "guesses");
    expect(r, j, keys + !source); /* optional */
    if (source)
        read_source(r, source, g);
    g->n = r->code == 0 ? read_lengths(r, j, 2, PLAN_PASSES, 1 << (PLAN_PASSES - 1), g->tokens) : 0;
    if (g->n && g->tokens[0] != 1)
        fail(r, "has %d for the first of its tokens, not 1", g->tokens[0]);
    read_reals(r, j, "pass_ns", g->n, g->pass_ns);
    read_reals(r, j, "read_bytes", g->n, g->read_bytes);
    read_acceptances(r, j, g);
    leave(r, at);
}

static void read_own(struct rd *r, json_t *j, struct plan_own *o)
{
    static const char *const keys[] = { "cost", "form", "packed", "tokens_per_s", NULL };
    size_t at = enter(r, "own_layout");
    expect(r, j, keys);
    o->cost = get_real(r, j, "cost", 1);
    o->form = (enum layout_form)get_choice(r, j, "form", form_name, LAYOUT_FORMS);
    o->packed = get_bool(r, j, "packed");
    o->tokens_per_s = get_real(r, j, "tokens_per_s", 1e18);
    leave(r, at);
}

static const char *gap_name(int v)
{
    return v ? "layouts" : "layout";
}

static void read_limit(struct rd *r, json_t *j, const struct plan *p, struct plan_limit *l)
{
    static const char *const keys[] = { "prompt", "predictor_buffers", "guesses", "own_layout", "gap_of", "for", "account_bytes", "act",
                                        "batches", "classes", "cold_policy", "context", "exempt", "floor_bytes", "gap", "io", "kv",
                                        "max_batch", "memory_bytes", "min_tokens_per_s", "mode", "optimal", "predictors",
                                        "prefill_chunk", "recall", "threads", NULL };
    const char *present[sizeof keys / sizeof *keys];
    json_t *prompt = json_object_get(j, keys[0]);
    json_t *guesses = json_object_get(j, keys[2]);
    json_t *own = json_object_get(j, keys[3]);
    json_t *gap_of = json_object_get(j, keys[4]);
    json_t *purpose = json_object_get(j, keys[5]);
    const json_t *optional[] = { prompt, json_object_get(j, keys[1]), guesses, own, gap_of, purpose };
    int streams = optional[1] != NULL, k = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (i >= sizeof optional / sizeof *optional || optional[i])
            present[k++] = keys[i];
    expect(r, j, present);
    if (own)
        read_own(r, own, &l->own);
    l->purpose = purpose ? (enum plan_purpose)get_choice(r, j, keys[5], purpose_name, PLAN_PURPOSES) : PLAN_FOR_GENERATE;
    l->gap_of_layouts = gap_of ? get_choice(r, j, keys[4], gap_name, 2) : 0;
    if (prompt)
        read_prompt(r, prompt, &l->prompt);
    if (guesses)
        read_guesses(r, guesses, &l->guesses);
    l->predictor_buffers = streams ? get_int(r, j, "predictor_buffers", 1, BUDGET_MAX_STREAM) : 0;
    l->account_bytes = get_u64(r, j, "account_bytes", 0, INT64_MAX);
    l->floor_bytes = get_u64(r, j, "floor_bytes", 0, INT64_MAX);
    l->memory_bytes = get_u64(r, j, "memory_bytes", 1, INT64_MAX);
    l->min_tokens_per_s = get_real(r, j, "min_tokens_per_s", 1e9);
    l->act_q8 = get_choice(r, j, "act", act_name, 2);
    l->kv_f16 = get_choice(r, j, "kv", kv_name, 2);
    l->mode = (enum plan_mode)get_choice(r, j, "mode", mode_name, PLAN_MODES);
    l->policy = (enum cache_policy)get_choice(r, j, "cold_policy", policy_name, CACHE_POLICIES);
    l->context = get_int(r, j, "context", 1, MODEL_MAX_CONTEXT);
    l->max_batch = get_int(r, j, "max_batch", 1, BUDGET_MAX_BATCH);
    l->prefill_chunk = get_int(r, j, "prefill_chunk", 1, BUDGET_MAX_CHUNK);
    l->threads = get_int(r, j, "threads", 1, BUDGET_MAX_THREADS);
    l->gap = get_real(r, j, "gap", 1);
    l->recall = get_real(r, j, "recall", 1);
    l->optimal = get_bool(r, j, "optimal");
    read_io(r, json_object_get(j, "io"), l);
    l->n_classes = read_classes(r, json_object_get(j, "classes"), "classes", BUDGET_MAX_THREADS, l->classes);
    json_t *a = json_object_get(j, "batches");
    size_t n = json_array_size(a), at = enter(r, "batches");
    if (!json_is_array(a) || n < 1 || n > PLAN_MAX_BATCHES)
        fail(r, "is not an array of 1 to %d batch sizes", PLAN_MAX_BATCHES);
    if (r->code == 0)
        r->code = plan_limit_init(p, l, (int)n, r->e);
    if (r->code == 0)
        read_predictors(r, j, p, l);
    for (size_t i = 0; i < n && r->code == 0; i++) {
        size_t at_i = enter_at(r, i);
        read_batch(r, json_array_get(a, i), p, l, &l->batches[i]);
        leave(r, at_i);
    }
    leave(r, at);
}

static void read_limits(struct rd *r, json_t *j, struct plan *p)
{
    size_t n = json_array_size(j), at = enter(r, "limits");
    if (!json_is_array(j) || n < 1 || n > PLAN_MAX_LIMITS) {
        fail(r, "is not an array of 1 to %d memory limits", PLAN_MAX_LIMITS);
        return;
    }
    p->limits = calloc(n, sizeof *p->limits);
    if (!p->limits) {
        r->code = err_set(r->e, ERR_NOMEM, "out of memory for plan '%s'", r->name);
        return;
    }
    p->n_limits = (int)n;
    for (size_t i = 0; i < n && r->code == 0; i++) {
        size_t at_i = enter_at(r, i);
        read_limit(r, json_array_get(j, i), p, &p->limits[i]);
        leave(r, at_i);
    }
    leave(r, at);
}

static void read_notes(struct rd *r, json_t *j, struct plan *p)
{
    size_t n = json_array_size(j), at = enter(r, "notes");
    if (!json_is_array(j) || n > PLAN_MAX_NOTES)
        fail(r, "is not an array of at most %d notes", PLAN_MAX_NOTES);
    for (size_t i = 0; i < n && r->code == 0; i++) {
        const char *s = json_string_value(json_array_get(j, i));
        if (!s || strlen(s) > 400) {
            fail(r, "holds something that is not a text of at most 400 bytes");
            break;
        }
        int had = p->n_notes;
        r->code = plan_note(p, r->e, "%s", s);
        if (r->code == 0 && p->n_notes == had)
            fail(r, "says the same twice");
    }
    leave(r, at);
}

/* The name of an accelerator: not empty, printable. */
static void get_engine(struct rd *r, json_t *o, char out[64])
{
    get_str(r, o, "engine", out, 64);
    size_t at = enter(r, "engine"), n = r->code == 0 ? strlen(out) : 1;
    int bad = n == 0;
    for (size_t i = 0; i < n && r->code == 0; i++)
        bad |= out[i] < 0x21 || out[i] > 0x7e;
    if (bad)
        fail(r, "is not a name of 1 to 63 printable characters");
    leave(r, at);
}

/* One of the names, or -1 where the key is absent. */
static int get_wish(struct rd *r, json_t *o, const char *key, name_fn *names, int n)
{
    return json_object_get(o, key) ? get_choice(r, o, key, names, n) : -1;
}

/* A whole number for each batch size; how many. */
static int read_weights(struct rd *r, json_t *j, int out[PLAN_MAX_BATCHES])
{
    size_t at = enter(r, "batch_weights"), n = json_array_size(j);
    if (!json_is_array(j) || n < 1 || n > PLAN_MAX_BATCHES) {
        fail(r, "is not an array of 1 to %d numbers", PLAN_MAX_BATCHES);
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        size_t at_i = enter_at(r, i);
        json_t *w = json_array_get(j, i);
        if (!json_is_integer(w) || json_integer_value(w) < 1 || json_integer_value(w) > PLAN_LARGEST_WEIGHT)
            fail(r, "is not a whole number from 1 to %d", PLAN_LARGEST_WEIGHT);
        else
            out[i] = (int)json_integer_value(w);
        leave(r, at_i);
    }
    leave(r, at);
    return (int)n;
}

static void read_request(struct rd *r, json_t *j, struct plan_request *q)
{
    static const char *const keys[] = { "engine", "batch_weights", "cold_policy",   "context",       "cores",  "form", "max_kl", "mode",
                                        "packed", "predictor",     "prefill_chunk", "prompt_weight", "recall", NULL };
    json_t *cores = json_object_get(j, "cores"), *weights = json_object_get(j, "batch_weights");
    size_t at = enter(r, "request");
    at_most(r, j, keys);
    if (json_object_get(j, "engine"))
        get_engine(r, j, q->engine);
    q->policy = get_wish(r, j, "cold_policy", policy_name, CACHE_POLICIES);
    q->form = get_wish(r, j, "form", form_name, LAYOUT_FORMS);
    q->mode = get_wish(r, j, "mode", mode_name, PLAN_MODES);
    q->predictor = get_wish(r, j, "predictor", input_name, PREDICT_INPUTS);
    q->packed = json_object_get(j, "packed") ? get_bool(r, j, "packed") : -1;
    q->context = json_object_get(j, "context") ? get_int(r, j, "context", 1, MODEL_MAX_CONTEXT) : 0;
    q->max_kl = json_object_get(j, "max_kl") ? get_real(r, j, "max_kl", 100) : -1;
    q->recall = json_object_get(j, "recall") ? get_real(r, j, "recall", 1) : 0;
    q->prompt_weight = json_object_get(j, "prompt_weight") ? get_real(r, j, "prompt_weight", 1e6) : PLAN_PROMPT_WEIGHT;
    q->prefill_chunk = json_object_get(j, "prefill_chunk") ? get_int(r, j, "prefill_chunk", 1, BUDGET_MAX_CHUNK) : 0;
    q->n_weights = weights ? read_weights(r, weights, q->weight) : 0;
    q->n_cores = cores ? read_classes(r, cores, "cores", PLAN_MAX_CORES, q->cores) : 0;
    leave(r, at);
}

static void read_plan(struct rd *r, json_t *j, struct plan *p)
{
    static const char *const keys[] = { "engine", "cost", "device", "figures", "format", "layout", "limits", "model", "notes", "request",
                                        "revision", "rlimit",  "seed",   "solver", "tool",   NULL };
    static const char *const device_keys[] = { "hash", "name", NULL };
    const char *format = json_string_value(json_object_get(j, "format"));
    if (format && !strcmp(format, "thermo-plan")) {
        r->code = err_set(r->e, ERR_UNSUPPORTED, "plan '%s' was made by a version before 0.2.0; make it again with 'thermo-plan solve'",
                          r->name);
        return;
    }
    if (!json_is_object(j) || !format || strcmp(format, PLAN_FORMAT)) {
        fail(r, "is not a plan: it has no \"format\": \"%s\"", PLAN_FORMAT);
        return;
    }
    json_t *rev = json_object_get(j, "revision");
    if (json_is_integer(rev) && json_integer_value(rev) != PLAN_REVISION) {
        r->code = err_set(r->e, ERR_UNSUPPORTED, "plan '%s' has revision %lld; this build reads revision %d", r->name,
                          (long long)json_integer_value(rev), PLAN_REVISION);
        return;
    }
    int engine = json_object_get(j, "engine") != NULL; /* optional */
    expect(r, j, keys + !engine);
    get_int(r, j, "revision", 1, PLAN_REVISION);
    if (engine)
        get_engine(r, j, p->engine);
    p->seed = get_u64(r, j, "seed", 0, INT64_MAX);
    p->rlimit = get_u64(r, j, "rlimit", 0, INT64_MAX);
    p->cost = (enum plan_cost)get_choice(r, j, "cost", cost_name, PLAN_COSTS);
    p->stat = (enum plan_stat)get_choice(r, j, "figures", stat_name, PLAN_STATS);
    get_str(r, j, "tool", p->tool, sizeof p->tool);
    get_str(r, j, "solver", p->solver, sizeof p->solver);
    json_t *d = json_object_get(j, "device");
    size_t at = enter(r, "device");
    expect(r, d, device_keys);
    p->hardware_hash = get_hash(r, d, "hash");
    get_str(r, d, "name", p->device, sizeof p->device);
    leave(r, at);
    read_notes(r, json_object_get(j, "notes"), p);
    read_model(r, json_object_get(j, "model"), p);
    read_layout(r, json_object_get(j, "layout"), p);
    read_request(r, json_object_get(j, "request"), &p->request);
    if (r->code == 0)
        read_limits(r, json_object_get(j, "limits"), p);
}

/* Takes j. */
static int take_plan(json_t *j, const char *name, struct plan *out, struct err *e)
{
    struct plan p = { 0 };
    struct rd r = { .name = name, .e = e };
    read_plan(&r, j, &p);
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
