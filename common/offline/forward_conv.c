/* Short convolutions of the dense pass: one sequence at a time, token by token, from a state of zeros. */
#include "common/offline/forward_impl.h"

#include "common/ops/conv.h"

#include <string.h>

static void short_conv(const struct forward *f, struct scratch *s, size_t first, size_t len)
{
    float *out = s->made + FORWARD_TILE * 3 * f->d;
    memset(s->state, 0, (size_t)f->recurrent.state * sizeof *s->state);
    for (size_t t = 0; t < len; t += FORWARD_TILE) {
        int n = (int)(len - t < FORWARD_TILE ? len - t : FORWARD_TILE);
        float *x = f->x + (first + t) * f->d;
        forward_norm(f, s->norm, x, f->w[MODEL_ATTN_NORM], NULL, n);
        forward_probe_input(f, PREDICT_BLOCK, first + t, n, s->norm);
        forward_matrix(f, s, MODEL_CONV_IN, s->made, s->norm, n);
        for (size_t i = 0; i < (size_t)n; i++)
            conv_mix(out + i * f->d, s->made + i * 3 * f->d, s->state, f->w[MODEL_CONV_WEIGHT], 0, (int)f->d, f->h);
        forward_matrix(f, s, MODEL_CONV_OUT, s->out, out, n);
        forward_add_residual(f, x, s->out, NULL, n);
    }
}

void forward_conv(struct forward *f)
{
    forward_sequences(f, short_conv);
}
