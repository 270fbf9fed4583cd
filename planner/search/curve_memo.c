#include "planner/search/curve_memo.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTHS = 8 };

static int same_curves(const struct limits *a, const struct limits *b)
{
    return a->context == b->context && a->max_batch == b->max_batch && a->only_batch == b->only_batch &&
           a->kv_type == b->kv_type && a->act_q8 == b->act_q8 && a->model == b->model && a->stat == b->stat &&
           a->engine == b->engine && a->stream_tables == b->stream_tables;
}

void curve_memo_done(struct curve_memo *m)
{
    for (int i = 0; i < m->most * DEPTHS; i++)
        if (m->kept[i]) {
            solve_config_done(&m->shape, m->kept[i]);
            free(m->kept[i]);
        }
    free(m->kept);
    *m = (struct curve_memo){ 0 };
}

int curve_memo_begin(struct curve_memo *m, const struct solve_problem *shape, const struct limits *lim, int most, struct err *e)
{
    if (m->most == most && same_curves(&m->of, lim))
        return 0;
    curve_memo_done(m);
    m->kept = calloc((size_t)most * DEPTHS + 1, sizeof *m->kept);
    if (!m->kept)
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    m->most = most;
    m->of = *lim;
    m->shape = (struct solve_problem){ .n_layers = shape->n_layers, .n_batches = shape->n_batches };
    return 0;
}

static struct solve_config **slot(const struct curve_memo *m, int config, int least_depth)
{
    return &m->kept[config * DEPTHS + __builtin_ctz((unsigned)least_depth)];
}

static uint64_t bytes_of(const struct solve_curve *c, size_t n)
{
    uint64_t bytes = c ? n * sizeof *c : 0;
    for (size_t i = 0; c && i < n; i++)
        bytes += (uint64_t)c[i].n * sizeof *c[i].point + (uint64_t)c[i].n_hull * sizeof *c[i].hull;
    return bytes;
}

/* A copy of n curves, NULL for none; a curve without points is copied as it is. */
static int copy_curves(struct solve_curve **out, const struct solve_curve *from, size_t n, struct err *e)
{
    int r = 0;
    *out = NULL;
    if (!from)
        return 0;
    if (!(*out = calloc(n + 1, sizeof **out)))
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    for (size_t i = 0; i < n && r == 0; i++)
        if (from[i].n)
            r = solve_curve_copy(&(*out)[i], &from[i], e);
    return r;
}

/* What price_curves fills. On an error out's curves are to be freed all the same. */
static int copy_config(const struct curve_memo *m, struct solve_config *out, const struct solve_config *from, struct err *e)
{
    size_t n = (size_t)m->shape.n_layers * (size_t)m->shape.n_batches;
    memcpy(out->fixed_ticks, from->fixed_ticks, sizeof out->fixed_ticks);
    memcpy(out->floor_ticks, from->floor_ticks, sizeof out->floor_ticks);
    out->n_kinds = from->n_kinds;
    out->kinds = NULL;
    int r = copy_curves(&out->curves, from->curves, n, e);
    return r < 0 ? r : copy_curves(&out->kinds, from->kinds, n * (size_t)from->n_kinds, e);
}

int curve_memo_get(const struct curve_memo *m, int config, int least_depth, struct solve_config *out, struct err *e)
{
    const struct solve_config *from = *slot(m, config, least_depth);
    int r = from ? copy_config(m, out, from, e) : 0;
    return r < 0 ? r : from != NULL;
}

int curve_memo_put(struct curve_memo *m, int config, int least_depth, const struct solve_config *from, struct err *e)
{
    size_t n = (size_t)m->shape.n_layers * (size_t)m->shape.n_batches;
    uint64_t bytes = sizeof *from + bytes_of(from->curves, n) + bytes_of(from->kinds, n * (size_t)from->n_kinds);
    if (bytes > CURVE_MEMO_BYTES - m->bytes)
        return 0;
    struct solve_config *copy = calloc(1, sizeof *copy);
    if (!copy)
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    int r = copy_config(m, copy, from, e);
    if (r < 0) {
        solve_config_done(&m->shape, copy);
        free(copy);
        return r;
    }
    m->bytes += bytes;
    *slot(m, config, least_depth) = copy;
    return 0;
}
