/* Each form is made once for all the matrices that are multiplied with the same input. */
#include "common/kernels/acts.h"

const void *acts_in_form(struct acts *a, enum kernels_act form, size_t *stride)
{
    *stride = kernels_act_bytes(form, a->n_cols);
    if (form == KERNELS_ACT_F32)
        return a->f32;
    for (int t = 0; t < a->n_tokens && !a->has_q8; t++)
        kernels_act_prepare((uint8_t *)a->q8 + (size_t)t * *stride, form, a->f32 + (size_t)t * (size_t)a->n_cols,
                            a->n_cols);
    a->has_q8 = 1;
    return a->q8;
}
