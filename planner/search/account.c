/* A choice's account is that of its group: rank, buffers and pieces of the group's largest predictors. */
#include "planner/search/account.h"

#include <stdlib.h>
#include <string.h>

struct budget_engine account_engine(const struct hw *hw, const char *name)
{
    for (int i = 0; hw && name && i < hw->n_accels; i++)
        if (!strcmp(hw->accels[i].engine, name))
            return (struct budget_engine){ .on = 1, .driver_bytes = hw->accels[i].driver_bytes,
                                           .shares_memory = hw->accels[i].shares_memory };
    return (struct budget_engine){ .on = 0 };
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
    struct budget_choice b = { .context = c->context, .kv_f16 = c->kv_f16, .max_batch = lim->max_batch,
                               .prefill_chunk = lim->prefill_chunk, .threads = c->threads, .io_lanes = c->lanes,
                               .queue_depth = c->depth, .read_bytes = c->read_bytes, .hot = hot, .cold = cold };
    if (lim->reserved)
        b.engine = account_engine(s->hw, lim->engine);
    else if (c->height && c->engine)
        b.engine = account_engine(s->hw, c->engine);
    if (c->predicted) {
        b.predictors = s->group[c->group].predictors;
        b.predictor_bytes = b.predictors.bytes;
        b.predictor_buffers = s->group[c->group].buffers;
    }
    if (r == 0)
        r = budget_compute(&s->budget, &b, out, e);
    free(hot);
    free(cold);
    return r;
}

struct cost_choice account_choice(const struct space *s, int group, const struct limits *lim)
{
    int v = s->group[group].first;
    return (struct cost_choice){ .mode = s->modes[v], .variant = v, .group = group, .predicted = s->predicted[v],
                                 .model = lim->model, .stat = lim->stat, .buffers = (int)s->group[group].buffers,
                                 .act_q8 = lim->act_q8, .kv_f16 = lim->kv_f16, .context = lim->context,
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
