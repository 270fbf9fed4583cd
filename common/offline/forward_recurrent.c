/* Recurrent layers of the dense pass: one sequence at a time, token by token, from a state of zeros. */
#include "common/offline/forward_impl.h"

#include "common/model/nn_delta.h"

#include <string.h>

/* Channels, z and gates of n tokens from s->norm. */
static void make(const struct forward *f, struct scratch *s, int n)
{
    const struct model_hparams *h = f->h;
    size_t heads = (size_t)h->delta_v_heads;
    float *low = s->betas, *gates = low + 2 * heads * FORWARD_TILE, *alphas = low + heads * FORWARD_TILE;
    forward_matrix(f, s, MODEL_DELTA_QKV, s->channels, s->norm, n);
    forward_matrix(f, s, MODEL_DELTA_Z, s->z, s->norm, n);
    if (h->delta_joined) {
        forward_matrix(f, s, MODEL_DELTA_BETA_ALPHA, low, s->norm, n);
    } else {
        forward_matrix(f, s, MODEL_DELTA_BETA, low, s->norm, n);
        forward_matrix(f, s, MODEL_DELTA_ALPHA, alphas, s->norm, n);
    }
    for (size_t t = 0; t < (size_t)n; t++)
        nn_delta_gates(gates + t * 2 * heads, low + t * heads * (h->delta_joined ? 2 : 1), h->delta_joined ? NULL : alphas + t * heads,
                       f->w[MODEL_DELTA_DT], f->w[MODEL_DELTA_A], h);
}

void forward_recurrent(const struct forward *f, struct scratch *s, size_t first, size_t len)
{
    const struct model_hparams *h = f->h;
    size_t channels = (size_t)model_delta_channels(h), inner = (size_t)model_delta_inner(h), heads = (size_t)h->delta_v_heads;
    size_t dim = (size_t)h->delta_dim;
    float *out = s->z + inner * FORWARD_TILE, *delta = s->state + model_conv_floats(h);
    const float *gates = s->betas + 2 * heads * FORWARD_TILE;
    memset(s->state, 0, model_state_floats(h) * sizeof *s->state);
    for (size_t t = 0; t < len; t += FORWARD_TILE) {
        int n = (int)(len - t < FORWARD_TILE ? len - t : FORWARD_TILE);
        float *x = f->x + (first + t) * f->d;
        forward_norm(f, s->norm, x, f->w[MODEL_ATTN_NORM], NULL, n);
        forward_probe_input(f, PREDICT_BLOCK, first + t, n, s->norm);
        make(f, s, n);
        for (size_t i = 0; i < (size_t)n; i++) {
            float *c = s->channels + i * channels;
            nn_delta_conv(c, s->state, f->w[MODEL_DELTA_CONV], 0, (int)channels, h);
            nn_delta_units(c, h);
            for (size_t k = 0; k < heads; k++)
                nn_delta_step(out + i * inner + k * dim, delta + k * dim * dim, c, gates + i * 2 * heads, (int)k, h);
            nn_delta_out(out + i * inner, s->z + i * inner, f->w[MODEL_DELTA_NORM], h);
        }
        forward_matrix(f, s, MODEL_DELTA_OUT, s->out, out, n);
        forward_add_residual(f, x, s->out, NULL, n);
    }
}
