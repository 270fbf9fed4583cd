/* Each form is made once for all the matrices that are multiplied with the same input. */
#include "common/kernels/acts.h"

static void make_q8(void *ctx, int begin, int end, int worker)
{
    const struct acts *a = ctx;
    const size_t stride = kernels_act_bytes(KERNELS_ACT_Q8, a->n_cols);
    (void)worker;
    for (int t = begin; t < end; t++)
        kernels_act_prepare((uint8_t *)a->q8 + (size_t)t * stride, KERNELS_ACT_Q8, a->f32 + (size_t)t * (size_t)a->n_cols, a->n_cols);
}

const void *acts_in_form(struct acts *a, enum kernels_act form, struct pool *pool, size_t *stride)
{
    *stride = kernels_act_bytes(form, a->n_cols);
    if (form == KERNELS_ACT_F32)
        return a->f32;
    if (!a->has_q8 && pool)
        pool_for(pool, a->n_tokens, pool_grain(pool, a->n_tokens, (uint64_t)a->n_tokens * (uint64_t)a->n_cols * sizeof(float)),
                 make_q8, a);
    else if (!a->has_q8)
        make_q8(a, 0, a->n_tokens, 0);
    a->has_q8 = 1;
    return a->q8;
}
