#ifndef TESTS_LAYOUT_SAMPLE_H
#define TESTS_LAYOUT_SAMPLE_H

/* Layouts of tests: what is derived for the only kind of layers, or for layers whose types alternate. */
#include "common/plan/layout.h"

static inline int layout_derive_one(const struct layout *l, int d_model, int n_ff, struct layout_shape *out, struct err *e)
{
    struct layout_shapes s;
    int r = layout_derive(l, d_model, n_ff, &s, e);
    if (r == 0)
        *out = s.kind[0];
    return r;
}

/* Even layers have the types that l has, odd ones these. */
static inline int layout_alternate(struct layout *l, const uint32_t odd[LAYOUT_ROLES], int n_layers, struct err *e)
{
    uint32_t type[MODEL_MAX_LAYERS][LAYOUT_ROLES];
    for (int i = 0; i < n_layers * LAYOUT_ROLES; i++)
        type[i / LAYOUT_ROLES][i % LAYOUT_ROLES] = i / LAYOUT_ROLES % 2 ? odd[i % LAYOUT_ROLES] : l->type[0][i % LAYOUT_ROLES];
    return layout_set_types(l, (const uint32_t(*)[LAYOUT_ROLES])type, n_layers, e);
}

#endif
