/* A choice's account is that of its group: rank, buffers and pieces of the group's largest predictors. */
#include "planner/search/account.h"

#include "common/plan/plan_fit.h"
#include "common/plan/room.h"

#include <stdlib.h>
#include <string.h>

static void add_matrix(const struct inputs_matrix *m, uint64_t *rows, uint64_t *widest)
{
    *rows += (uint64_t)m->rows;
    *widest = m->rows && (uint64_t)m->cols > *widest ? (uint64_t)m->cols : *widest;
}

/* As engine_accel_need (runtime/engine) has it: all matrices of a layer together. */
static void add_products(const struct inputs *in, enum plan_work work, struct budget_engine *out)
{
    uint64_t rows = 0, most = 0, head = 0, widest = 0;
    if (work & PLAN_WORK_HEAD)
        add_matrix(&in->head, &head, &widest);
    for (int l = 0; l < model_depth(&in->h) && work; l++) {
        const struct inputs_layer *il = &in->layers[l];
        rows = 0;
        for (int i = 0; i < il->n; i++)
            add_matrix(&il->product[i], &rows, &widest);
        most = (work & PLAN_WORK_ATTENTION) && rows > most ? rows : most;
    }
    out->widest = widest;
    out->rows = most;
    out->head = head;
}

struct budget_engine account_engine(const struct hw *hw, const struct inputs *in, const char *name, enum plan_work work)
{
    int i = hw_accel_of(hw, name);
    if (i < 0)
        return (struct budget_engine){ .on = 0 };
    struct budget_engine b = { .on = 1, .driver_bytes = hw->accels[i].driver_bytes, .shares_memory = hw->accels[i].shares_memory };
    add_products(in, work, &b);
    return b;
}

#define NEVER_BYTES ((uint64_t)1 << 60)

/* Has the group of a limit no room for a choice? */
static int beyond(const struct plan_elastic *x, const struct cost_choice *c)
{
    return x->group && (c->threads > x->threads || c->depth > x->queue_depth || c->lanes > x->io_lanes || c->read_bytes > x->read_bytes);
}

int account_of(const struct space *s, const struct cost_choice *c, const struct limits *lim,
               const struct cost_residency *residencies, struct budget *out, struct err *e)
{
    size_t layers = (size_t)s->in->n_layers, blocks = (size_t)s->in->n_blocks, parts = (size_t)s->shapes.n_parts;
    uint32_t *hot = calloc(layers * blocks * parts, sizeof *hot), *cold = calloc(layers * parts, sizeof *cold);
    int r = 0;
    if (!hot || !cold)
        r = err_set(e, ERR_NOMEM, "out of memory for the account");
    for (size_t l = 0; residencies && r == 0 && l < layers; l++) {
        for (size_t i = 0; i < blocks * parts; i++)
            hot[l * blocks * parts + i] = residencies[l].hot[i % parts];
        cold[l * parts + parts - 1] = residencies[l].slots;
    }
    struct budget_choice b = { .context = c->context, .kv_type = c->kv_type, .max_batch = lim->max_batch,
                               .prefill_chunk = lim->prefill_chunk, .threads = c->threads, .io_lanes = c->lanes,
                               .queue_depth = c->depth, .read_bytes = c->read_bytes, .area_bytes = lim->area_bytes,
                               .stream_tables = lim->stream_tables,
                               .room_bytes = room_bytes(lim->purpose, c->context, lim->max_batch, &s->budget), .hot = hot, .cold = cold };
    plan_fit_widen(&b, &lim->elastic);
    if (lim->reserved)
        b.engine = account_engine(s->hw, s->in, lim->engine, (enum plan_work)((unsigned)c->work | (unsigned)lim->prompt_work));
    else if (cost_has_engine(c))
        b.engine = account_engine(s->hw, s->in, c->engine, c->work);
    if (c->predicted) {
        b.predictors = s->group[c->group].predictors;
        b.predictor_bytes = b.predictors.bytes;
        b.predictor_buffers = s->group[c->group].buffers;
    }
    if (r == 0)
        r = budget_compute(&s->budget, &b, out, e);
    if (r == 0 && beyond(&lim->elastic, c))
        out->total = NEVER_BYTES;
    free(hot);
    free(cold);
    return r;
}

struct cost_choice account_choice(const struct space *s, int group, const struct limits *lim)
{
    int v = s->group[group].first;
    return (struct cost_choice){ .mode = s->modes[v], .variant = v, .group = group, .predicted = s->predicted[v],
                                 .model = lim->model, .stat = lim->stat, .buffers = (int)s->group[group].buffers,
                                 .act_q8 = lim->act_q8, .kv_type = lim->kv_type, .context = lim->context,
                                 .stream_tables = lim->stream_tables,
                                 .only_batch = lim->only_batch };
}

int account_least(const struct space *s, const struct limits *lim, struct cost_choice *out, struct err *e)
{
    struct limits one = *lim;
    uint64_t least = UINT64_MAX;
    one.prefill_chunk = 1;
    for (int i = 0; i < s->n_groups; i++) {
        struct cost_choice c = account_choice(s, i, lim);
        struct budget b;
        c.n_classes = c.n[0] = c.threads = c.depth = c.lanes = 1;
        c.backend = HW_ANY_BACKEND;
        int r = account_of(s, &c, &one, NULL, &b, e);
        if (r < 0)
            return r;
        if (b.total < least) {
            least = b.total;
            *out = c;
        }
    }
    return 0;
}
