/* Short convolutions of the dense pass, token by token. */
#include "common/offline/forward_impl.h"

#include "common/ops/conv.h"

static void short_conv(const struct forward *f, struct scratch *s, size_t first, int n, int begins)
{
    float *out = s->made + FORWARD_TILE * 3 * f->d;
    (void)first, (void)begins;
    forward_matrix(f, s, MODEL_CONV_IN, s->made, s->norm, n);
    for (size_t i = 0; i < (size_t)n; i++)
        conv_mix(out + i * f->d, s->made + i * 3 * f->d, s->state, f->w[MODEL_CONV_WEIGHT], 0, (int)f->d, f->h);
    forward_matrix(f, s, MODEL_CONV_OUT, s->out, out, n);
}

void forward_conv(struct forward *f)
{
    forward_sequences(f, short_conv);
}
