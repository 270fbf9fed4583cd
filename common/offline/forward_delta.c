/* Gated delta nets of the dense pass, token by token. */
#include "common/offline/forward_impl.h"

#include "common/ops/delta.h"

/* [FORWARD_TILE] of each, in s->made: channels, z, what the output matrix sees, betas, alphas, gates. */
struct parts {
    float *channels, *z, *out, *betas, *alphas, *gates;
};

static struct parts parts_of(const struct model_hparams *h, float *made)
{
    const size_t inner = FORWARD_TILE * (size_t)model_delta_inner(h), heads = FORWARD_TILE * (size_t)h->delta_v_heads;
    float *z = made + FORWARD_TILE * (size_t)model_delta_channels(h), *betas = z + 2 * inner;
    return (struct parts){ made, z, z + inner, betas, betas + heads, betas + 2 * heads };
}

/* Channels, z and gates of n tokens from s->norm. */
static void make(const struct forward *f, struct scratch *s, const struct parts *p, int n)
{
    const struct model_hparams *h = f->h;
    size_t heads = (size_t)h->delta_v_heads;
    forward_matrix(f, s, MODEL_DELTA_QKV, p->channels, s->norm, n);
    forward_matrix(f, s, MODEL_DELTA_Z, p->z, s->norm, n);
    if (h->delta_joined) {
        forward_matrix(f, s, MODEL_DELTA_BETA_ALPHA, p->betas, s->norm, n);
    } else {
        forward_matrix(f, s, MODEL_DELTA_BETA, p->betas, s->norm, n);
        forward_matrix(f, s, MODEL_DELTA_ALPHA, p->alphas, s->norm, n);
    }
    for (size_t t = 0; t < (size_t)n; t++)
        delta_gates(p->gates + t * 2 * heads, p->betas + t * heads * (h->delta_joined ? 2 : 1),
                    h->delta_joined ? NULL : p->alphas + t * heads, f->w[MODEL_DELTA_DT], f->w[MODEL_DELTA_A], h);
}

static void delta_net(const struct forward *f, struct scratch *s, size_t first, int n, int begins)
{
    const struct model_hparams *h = f->h;
    const struct parts p = parts_of(h, s->made);
    size_t channels = (size_t)model_delta_channels(h), inner = (size_t)model_delta_inner(h), heads = (size_t)h->delta_v_heads;
    size_t dim = (size_t)h->delta_dim;
    float *delta = s->state + model_conv_floats(h);
    (void)first, (void)begins;
    make(f, s, &p, n);
    for (size_t i = 0; i < (size_t)n; i++) {
        float *c = p.channels + i * channels, *out = p.out + i * inner;
        delta_conv(c, s->state, f->w[MODEL_DELTA_CONV], 0, (int)channels, h);
        delta_units(c, h);
        for (size_t k = 0; k < heads; k++)
            delta_step(out + (size_t)delta_place((int)k, h) * dim, delta + k * dim * dim, c, p.gates + i * 2 * heads, (int)k, h);
        delta_out(out, p.z + i * inner, f->w[MODEL_DELTA_NORM], h);
    }
    forward_matrix(f, s, MODEL_DELTA_OUT, s->out, p.out, n);
}

void forward_delta(struct forward *f)
{
    forward_sequences(f, delta_net);
}
