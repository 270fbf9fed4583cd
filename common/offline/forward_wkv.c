/* RWKV's layers of the dense pass: time mixing of one sequence at a time, token by token, from a state of zeros; the FFN's token shift. */
#include "common/offline/forward_impl.h"

#include "common/ops/wkv.h"

#include <string.h>

static struct wkv_weights weights_of(const struct forward *f)
{
    return (struct wkv_weights){ f->w[MODEL_WKV_LERP], f->w[MODEL_WKV_DECAY], f->w[MODEL_WKV_RATE], f->w[MODEL_WKV_VALUE],
                                    f->w[MODEL_WKV_K_K], f->w[MODEL_WKV_K_A], f->w[MODEL_WKV_R_K], f->w[MODEL_WKV_NORM],
                                    f->w[MODEL_WKV_NORM_BIAS], f->w[MODEL_WKV_LERP_X] };
}

/* Inputs of n tokens, s->norm, mixed into out, where `more` is added to the lerps: NULL or [n][d_model]. */
static void mix(const struct forward *f, const struct scratch *s, float *out, const float *before, const float *lerp, const float *more,
                int n)
{
    for (size_t k = 0; k < (size_t)n; k++)
        wkv_mix(out + k * f->d, s->norm + k * f->d, k ? s->norm + (k - 1) * f->d : before, lerp, more ? more + k * f->d : NULL, f->h);
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

/* What time mixing makes of n tokens, s->norm, whose first comes after `before`. s->made: [FORWARD_TILE][d] of mixed inputs, then r, k, v,
 * w, a, g, then [FORWARD_TILE] of the few elements. */
static void make(const struct forward *f, struct scratch *s, const struct wkv_token *t, const float *before, int n)
{
    float *mixed = s->made, *few = s->made + 7 * FORWARD_TILE * f->d;
    float *const to[WKV_INPUTS] = { t->r, t->w, t->k, t->v, t->a, t->g };
    const float *lerp = f->w[MODEL_WKV_LERP], *all = few;
    if (f->h->mix_rank) {
        mix(f, s, mixed, before, f->w[MODEL_WKV_LERP_X], NULL, n);
        forward_matrix(f, s, MODEL_WKV_MIX_A, few, mixed, n);
        few += (size_t)n * 5 * (size_t)f->h->mix_rank;
        wkv_low(s->made + 7 * FORWARD_TILE * f->d, (size_t)n * 5 * (size_t)f->h->mix_rank, WKV_W);
    }
    for (int i = 0; i < WKV_INPUTS; i++) {
        enum wkv_input in = wkv_made[i].in;
        enum model_role whole = wkv_made[i].whole, low = wkv_made[i].low, low_2 = (enum model_role)(low + 1);
        int place = wkv_place(in, f->h);
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
        wkv_low(few, (size_t)n * (size_t)forward_tensor(f, low)->dims[1], in);
        forward_matrix(f, s, low_2, in == WKV_V ? mixed : to[in], few, n); /* values, mixed last, have their own */
    }
}

static void time_mixing(const struct forward *f, struct scratch *s, size_t first, int n, int begins)
{
    const struct model_hparams *h = f->h;
    const struct wkv_weights w = weights_of(f);
    const size_t part = FORWARD_TILE * f->d, dim = (size_t)h->wkv_dim;
    float *before = s->state, *states = s->state + model_wkv_shifts(h);
    struct wkv_token all = { .r = s->made + part, .k = s->made + 2 * part, .v = s->made + 3 * part, .w = s->made + 4 * part,
                                .a = s->made + 5 * part, .g = s->made + 6 * part };
    make(f, s, &all, begins ? NULL : before, n);
    memcpy(before, s->norm + (size_t)(n - 1) * f->d, f->d * sizeof *before);
    for (size_t i = 0; i < (size_t)n; i++) {
        float *mixed = s->made + i * f->d;
        const struct wkv_token own = { all.r + i * f->d, all.k + i * f->d, all.v + i * f->d,
                                       all.w + i * f->d, all.a + i * f->d, all.g + i * f->d };
        wkv_gates(&own, f->values + (first + i) * f->d, mixed, &w, h);
        for (int k = 0; k < h->n_heads; k++)
            wkv_head(mixed + (size_t)k * dim, states + (size_t)k * dim * dim, &own, &w, k, h);
    }
    forward_matrix(f, s, MODEL_WKV_OUTPUT, s->out, s->made, n);
}

void forward_wkv(struct forward *f)
{
    forward_sequences(f, time_mixing);
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
        wkv_mix(out + (t - first) * f->d, f->normed + t * f->d, is_first(f->run, t) ? NULL : f->normed + (t - 1) * f->d,
                   f->w[lerp], NULL, f->h);
}

void forward_shift(const struct forward *f, float *out, size_t first, int n)
{
    shift(f, out, MODEL_FFN_LERP, first, n);
}

void forward_receive(const struct forward *f, struct scratch *s, float *out, size_t first, int n)
{
    float *r = s->made + FORWARD_TILE * f->d;
    shift(f, s->made, MODEL_FFN_LERP_R, first, n);
    forward_matrix(f, s, MODEL_FFN_R, r, s->made, n);
    wkv_receive(out, r, (size_t)n * f->d);
}
