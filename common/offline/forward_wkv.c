/* RWKV's layers of the dense pass: time mixing of one sequence at a time, token by token, from a state of zeros; the FFN's token shift. */
#include "common/offline/forward_impl.h"

#include "common/model/nn_wkv.h"

#include <string.h>

static struct nn_wkv_weights weights_of(const struct forward *f)
{
    return (struct nn_wkv_weights){ f->w[MODEL_WKV_LERP], f->w[MODEL_WKV_DECAY], f->w[MODEL_WKV_RATE], f->w[MODEL_WKV_VALUE],
                                    f->w[MODEL_WKV_K_K], f->w[MODEL_WKV_K_A], f->w[MODEL_WKV_R_K], f->w[MODEL_WKV_NORM],
                                    f->w[MODEL_WKV_NORM_BIAS], f->w[MODEL_WKV_LERP_X] };
}

/* Inputs of n tokens, s->norm, mixed into out, where `more` is added to the lerps: NULL or [n][d_model]. */
static void mix(const struct forward *f, const struct scratch *s, float *out, const float *before, const float *lerp, const float *more,
                int n)
{
    for (size_t k = 0; k < (size_t)n; k++)
        nn_wkv_mix(out + k * f->d, s->norm + k * f->d, k ? s->norm + (k - 1) * f->d : before, lerp, more ? more + k * f->d : NULL, f->h);
}

/* RWKV-6: what the mix of an input is made of, cut from `all` of the five into `few`, gives what is added to its lerps. */
static void make_more(const struct forward *f, struct scratch *s, float *out, float *few, const float *all, int place, int n)
{
    size_t rank = (size_t)f->h->mix_rank;
    for (size_t k = 0; k < (size_t)n; k++)
        memcpy(few + k * rank, all + (k * 5 + (size_t)place) * rank, rank * sizeof *few);
    const struct forward_product p = { forward_tensor(f, MODEL_WKV_MIX_B), f->w[MODEL_WKV_MIX_B], place, out, f->d };
    forward_tile_product(f, s, &p, few, rank, n);
}

/* What time mixing makes of n tokens, s->norm, whose first comes after `before`. s->wkv: [FORWARD_TILE][d] of mixed inputs, then r, k, v,
 * w, a, g, then [FORWARD_TILE] of the few elements. */
static void make(const struct forward *f, struct scratch *s, const struct nn_wkv_token *t, const float *before, int n)
{
    float *mixed = s->wkv, *few = s->wkv + 7 * FORWARD_TILE * f->d;
    float *const to[NN_WKV_INPUTS] = { t->r, t->w, t->k, t->v, t->a, t->g };
    const float *lerp = f->w[MODEL_WKV_LERP], *all = few;
    if (f->h->mix_rank) {
        mix(f, s, mixed, before, f->w[MODEL_WKV_LERP_X], NULL, n);
        forward_matrix(f, s, MODEL_WKV_MIX_A, few, mixed, n);
        few += (size_t)n * 5 * (size_t)f->h->mix_rank;
        nn_wkv_low(s->wkv + 7 * FORWARD_TILE * f->d, (size_t)n * 5 * (size_t)f->h->mix_rank, NN_WKV_W);
    }
    for (int i = 0; i < NN_WKV_INPUTS; i++) {
        enum nn_wkv_input in = nn_wkv_made[i].in;
        enum model_role whole = nn_wkv_made[i].whole, low = nn_wkv_made[i].low, low_2 = (enum model_role)(low + 1);
        int place = nn_wkv_place(in, f->h);
        if (place < 0)
            continue;
        if (f->h->mix_rank)
            make_more(f, s, mixed, few, all, place, n);
        mix(f, s, mixed, before, lerp + (size_t)place * f->d, f->h->mix_rank ? mixed : NULL, n);
        if (whole && forward_tensor(f, whole))
            forward_matrix(f, s, whole, to[in], mixed, n);
        if (!low || !forward_tensor(f, low))
            continue;
        forward_matrix(f, s, low, few, mixed, n);
        nn_wkv_low(few, (size_t)n * (size_t)forward_tensor(f, low)->dims[1], in);
        forward_matrix(f, s, low_2, in == NN_WKV_V ? mixed : to[in], few, n); /* values, mixed last, have their own */
    }
}

void forward_wkv(const struct forward *f, struct scratch *s, size_t first, size_t len)
{
    const struct model_hparams *h = f->h;
    const struct nn_wkv_weights w = weights_of(f);
    const size_t part = FORWARD_TILE * f->d, dim = (size_t)h->wkv_dim;
    float *before = s->state, *states = s->state + model_wkv_shifts(h);
    struct nn_wkv_token all = { .r = s->wkv + part, .k = s->wkv + 2 * part, .v = s->wkv + 3 * part, .w = s->wkv + 4 * part,
                                .a = s->wkv + 5 * part, .g = s->wkv + 6 * part };
    memset(s->state, 0, model_state_floats(h) * sizeof *s->state);
    for (size_t t = 0; t < len; t += FORWARD_TILE) {
        int n = (int)(len - t < FORWARD_TILE ? len - t : FORWARD_TILE);
        float *x = f->x + (first + t) * f->d;
        forward_norm(f, s->norm, x, f->w[MODEL_ATTN_NORM], f->w[MODEL_ATTN_NORM_BIAS], n);
        forward_probe_input(f, PREDICT_BLOCK, first + t, n, s->norm);
        make(f, s, &all, t ? before : NULL, n);
        memcpy(before, s->norm + (size_t)(n - 1) * f->d, f->d * sizeof *before);
        for (size_t i = 0; i < (size_t)n; i++) {
            float *mixed = s->wkv + i * f->d;
            const struct nn_wkv_token own = { all.r + i * f->d, all.k + i * f->d, all.v + i * f->d,
                                              all.w + i * f->d, all.a + i * f->d, all.g + i * f->d };
            nn_wkv_gates(&own, f->values + (first + t + i) * f->d, mixed, &w, h);
            for (int k = 0; k < h->n_heads; k++)
                nn_wkv_head(mixed + (size_t)k * dim, states + (size_t)k * dim * dim, &own, &w, k, h);
        }
        forward_matrix(f, s, MODEL_WKV_OUTPUT, s->out, s->wkv, n);
        forward_add_residual(f, x, s->out, NULL, n);
    }
}

/* Is a token of the run the first of its sequence? */
static int is_first(const struct forward_run *run, size_t token)
{
    size_t from = 0, to = run->n_sequences;
    while (to - from > 1) {
        size_t mid = from + (to - from) / 2;
        if (run->starts[mid] <= token)
            from = mid;
        else
            to = mid;
    }
    return run->starts[from] == token;
}

static void shift(const struct forward *f, float *out, enum model_role lerp, size_t first, int n)
{
    for (size_t t = first; t < first + (size_t)n; t++)
        nn_wkv_mix(out + (t - first) * f->d, f->normed + t * f->d, is_first(f->run, t) ? NULL : f->normed + (t - 1) * f->d,
                   f->w[lerp], NULL, f->h);
}

void forward_shift(const struct forward *f, float *out, size_t first, int n)
{
    shift(f, out, MODEL_FFN_LERP, first, n);
}

void forward_receive(const struct forward *f, struct scratch *s, float *out, size_t first, int n)
{
    float *r = s->wkv + FORWARD_TILE * f->d;
    shift(f, s->wkv, MODEL_FFN_LERP_R, first, n);
    forward_matrix(f, s, MODEL_FFN_R, r, s->wkv, n);
    nn_wkv_receive(out, r, (size_t)n * f->d);
}
