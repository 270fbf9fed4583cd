/* Mamba2 in the dense pass, token by token. */
#include "common/offline/forward_impl.h"

#include "common/ops/ssm.h"

static void ssm(const struct forward *f, struct scratch *s, size_t first, int n, int begins)
{
    const struct model_hparams *h = f->h;
    const struct ssm_weights w = { f->w[MODEL_SSM_DT], f->w[MODEL_SSM_A], f->w[MODEL_SSM_D] };
    size_t rows = (size_t)model_ssm_rows(h), channels = (size_t)model_ssm_channels(h), inner = (size_t)h->ssm_inner;
    size_t dim = inner / (size_t)h->ssm_heads, state = dim * (size_t)h->ssm_state;
    float *y = s->made + FORWARD_TILE * rows, *heads = s->state + (size_t)(h->conv_width - 1) * channels;
    (void)first, (void)begins;
    forward_matrix(f, s, MODEL_SSM_IN, s->made, s->norm, n);
    for (size_t i = 0; i < (size_t)n; i++) {
        float *z = s->made + i * rows, *made = z + inner;
        ssm_conv(made, s->state, f->w[MODEL_SSM_CONV], f->w[MODEL_SSM_CONV_BIAS], 0, (int)channels, h);
        for (size_t k = 0; k < (size_t)h->ssm_heads; k++)
            ssm_head(y + i * inner + k * dim, heads + k * state, made, made + channels, &w, (int)k, h);
        ssm_out(y + i * inner, z, f->w[MODEL_SSM_NORM], h);
    }
    forward_matrix(f, s, MODEL_SSM_OUT, s->out, y, n);
}

void forward_ssm(struct forward *f)
{
    forward_sequences(f, ssm);
}
