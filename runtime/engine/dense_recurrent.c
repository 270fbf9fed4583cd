/* Recurrent layers of the processor's dense work: gated delta nets, short convolutions, Mamba2 and RWKV's time mixing. Products as
 * everywhere, states by heads or channels: the tokens of a sequence in order, by one worker. */
#include "runtime/engine/dense_impl.h"

#include "common/ops/conv.h"
#include "common/ops/delta.h"
#include "common/ops/ssm.h"
#include "common/ops/wkv.h"

#include <string.h>

/* A pass of one layer: which sequences have tokens in it, and memory [tokens] of what is made of them. */
struct recurrent {
    const struct cpu *cpu;
    const struct engine_token *tokens;
    int layer, n, n_seqs;
    int seqs[BUDGET_MAX_BATCH], n_of[BUDGET_MAX_BATCH]; /* and how many */
    float *channels, *z, *out, *low, *gates;
    /* What moves a state on by token t: its convolution's channels [from, to), which come first; a head's matrix, of head_floats. */
    int n_channels, heads;
    size_t head_floats;
    void (*convolve)(const struct recurrent *r, size_t t, float *state, int from, int to);
    void (*head)(const struct recurrent *r, size_t t, float *s, int head);
    /* Beside the convolution's inputs, what a head of the token needs for that, to kept[n_channels] on. */
    void (*keep)(const struct recurrent *r, size_t t, float *kept, int head);
};

static void find_sequences(struct recurrent *s)
{
    for (int t = 0, i; t < s->n; t++) {
        for (i = 0; i < s->n_seqs && s->seqs[i] != s->tokens[t].seq; i++)
            continue;
        if (i == s->n_seqs)
            s->seqs[s->n_seqs++] = s->tokens[t].seq;
        s->n_of[i]++;
    }
}

static float *state_of(const struct cpu *c, int layer, int seq)
{
    size_t at = (size_t)seq * c->n_states + (size_t)c->places[layer];
    return (float *)(void *)(c->c.memory.kv + c->c.kv.states + at * c->c.kv.state_bytes);
}

/* ---- tokens that may be taken back ---- */

void cpu_keep_moves(struct dense *d, const struct dense_moves *m)
{
    cpu_of(d)->moves = *m;
}

/* Of a sequence in a layer, token number k of those that are kept. */
static float *moves_of(const struct cpu *c, int layer, int seq, int k)
{
    const struct dense_moves *m = &c->moves;
    return m->tokens + (((size_t)seq * c->n_states + (size_t)c->places[layer]) * (size_t)m->most + (size_t)k) * m->token;
}

/* Where token k of the pass's i-th sequence is kept; NULL: it is not. */
static float *kept(const struct recurrent *r, int i, int k)
{
    const struct cpu *c = r->cpu;
    return k > 0 && r->n_of[i] <= c->moves.most + 1 ? moves_of(c, r->layer, r->seqs[i], k - 1) : NULL;
}

static float *held(const struct cpu *c, int worker)
{
    return c->moves.of_worker + (size_t)worker * c->moves.held;
}

/* Some channels of a convolution's inputs are held by a worker, or come back. */
static void hold_inputs(float *to_hold, float *state, size_t channels, int from, int to, int width, int back)
{
    size_t bytes = (size_t)(to - from) * sizeof *state;
    for (size_t k = 0; k + 1 < (size_t)width; k++) {
        float *at = state + k * channels + from, *has = to_hold + k * CONV_CHANNELS;
        memcpy(back ? at : has, back ? has : at, bytes);
    }
}

/* ---- convolutions and heads ---- */

static int pieces_of(int channels)
{
    return (channels + CONV_CHANNELS - 1) / CONV_CHANNELS;
}

/* Item i: some channels of a sequence, all its tokens. What is kept of one is its input, the newest that the state has. */
static void convolve(void *ctx, int begin, int end, int worker)
{
    const struct recurrent *r = ctx;
    const int width = r->cpu->c.h->conv_width, pieces = pieces_of(r->n_channels);
    size_t channels = (size_t)r->n_channels;
    for (int i = begin; i < end; i++) {
        int seq = r->seqs[i / pieces], from = i % pieces * CONV_CHANNELS, k = 0;
        int to = from + CONV_CHANNELS < r->n_channels ? from + CONV_CHANNELS : r->n_channels;
        float *state = state_of(r->cpu, r->layer, seq), *to_keep = NULL;
        size_t bytes = (size_t)(to - from) * sizeof *state;
        for (int t = 0; t < r->n; t++) {
            if (r->tokens[t].seq != seq)
                continue;
            to_keep = kept(r, i / pieces, k);
            if (to_keep && k == 1)
                hold_inputs(held(r->cpu, worker), state, channels, from, to, width, 0);
            k++;
            for (int j = 0; r->tokens[t].pos == 0 && j + 1 < width; j++)
                memset(state + (size_t)j * channels + from, 0, bytes);
            r->convolve(r, (size_t)t, state, from, to);
            if (to_keep)
                memcpy(to_keep + from, state + (size_t)(width - 2) * channels + from, bytes);
        }
        if (to_keep)
            hold_inputs(held(r->cpu, worker), state, channels, from, to, width, 1);
    }
}

/* Item i: a head of a sequence, all its tokens. */
static void move_heads(void *ctx, int begin, int end, int worker)
{
    const struct recurrent *r = ctx;
    size_t first = (size_t)(r->cpu->c.h->conv_width - 1) * (size_t)r->n_channels;
    for (int i = begin; i < end; i++) {
        int seq = r->seqs[i / r->heads], head = i % r->heads, k = 0;
        float *s = state_of(r->cpu, r->layer, seq) + first + (size_t)head * r->head_floats, *to_keep = NULL;
        for (int t = 0; t < r->n; t++) {
            if (r->tokens[t].seq != seq)
                continue;
            to_keep = kept(r, i / r->heads, k);
            if (to_keep && k == 1)
                memcpy(held(r->cpu, worker), s, r->head_floats * sizeof *s);
            if (to_keep)
                r->keep(r, (size_t)t, to_keep + r->n_channels, head);
            k++;
            if (r->tokens[t].pos == 0)
                memset(s, 0, r->head_floats * sizeof *s);
            r->head(r, (size_t)t, s, head);
        }
        if (to_keep)
            memcpy(s, held(r->cpu, worker), r->head_floats * sizeof *s);
    }
}

static void run_convolutions(const struct cpu *c, struct recurrent *s)
{
    int items = s->n_seqs * pieces_of(s->n_channels);
    uint64_t work = (uint64_t)s->n * (uint64_t)s->n_channels * 4 * (uint64_t)c->c.h->conv_width;
    pool_for(c->c.pool, items, cpu_piece_of(c, items, work), convolve, s);
}

static void run_heads(const struct cpu *c, struct recurrent *s)
{
    int items = s->n_seqs * s->heads;
    pool_for(c->c.pool, items, cpu_piece_of(c, items, (uint64_t)s->n * (uint64_t)s->heads * s->head_floats * 4), move_heads, s);
}

/* ---- gated delta nets ---- */

static void delta_inputs(const struct recurrent *r, size_t t, float *state, int from, int to)
{
    const struct model_hparams *h = r->cpu->c.h;
    delta_conv(r->channels + t * (size_t)r->n_channels, state, cpu_vector(r->cpu, r->layer, MODEL_DELTA_CONV), from, to, h);
}

static void gate_tokens(void *ctx, int begin, int end, int worker)
{
    const struct recurrent *r = ctx;
    const struct model_hparams *h = r->cpu->c.h;
    size_t channels = (size_t)model_delta_channels(h), heads = (size_t)h->delta_v_heads;
    const float *alphas = h->delta_joined ? NULL : r->low + (size_t)r->n * heads;
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++) {
        delta_units(r->channels + t * channels, h);
        delta_gates(r->gates + t * 2 * heads, r->low + t * heads * (alphas ? 1 : 2), alphas ? alphas + t * heads : NULL,
                       cpu_vector(r->cpu, r->layer, MODEL_DELTA_DT), cpu_vector(r->cpu, r->layer, MODEL_DELTA_A), h);
    }
}

static void delta_head(const struct recurrent *r, size_t t, float *s, int head)
{
    const struct model_hparams *h = r->cpu->c.h;
    size_t inner = (size_t)model_delta_inner(h), dim = (size_t)h->delta_dim;
    delta_step(r->out + t * inner + (size_t)delta_place(head, h) * dim, s, r->channels + t * (size_t)r->n_channels,
               r->gates + t * 2 * (size_t)r->heads, head, h);
}

static void delta_keep(const struct recurrent *r, size_t t, float *to_keep, int head)
{
    const float *gates = r->gates + t * 2 * (size_t)r->heads;
    to_keep[head] = gates[head];
    to_keep[r->heads + head] = gates[r->heads + head];
}

static void norm_tokens(void *ctx, int begin, int end, int worker)
{
    const struct recurrent *r = ctx;
    const struct model_hparams *h = r->cpu->c.h;
    size_t inner = (size_t)model_delta_inner(h);
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        delta_out(r->out + t * inner, r->z + t * inner, cpu_vector(r->cpu, r->layer, MODEL_DELTA_NORM), h);
}

int dense_delta(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens,
                const struct dense_reads *reads, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams *h = c->c.h;
    size_t n = (size_t)in->n_tokens, channels = (size_t)model_delta_channels(h), inner = (size_t)model_delta_inner(h);
    size_t heads = (size_t)h->delta_v_heads;
    struct recurrent s = { .cpu = c, .tokens = tokens, .layer = layer, .n = in->n_tokens, .channels = c->c.memory.made,
                           .n_channels = (int)channels, .heads = (int)heads, .head_floats = (size_t)h->delta_dim * (size_t)h->delta_dim,
                           .convolve = delta_inputs, .head = delta_head, .keep = delta_keep };
    struct products first = { .reads = reads, .e = e }, last = { .reads = reads, .e = e };
    s.z = s.channels + n * channels;
    s.out = s.z + n * inner;
    s.low = s.out + n * inner;
    s.gates = s.low + n * 2 * heads;
    find_sequences(&s);
    cpu_add_product(c, &first, cpu_matrix(c, layer, MODEL_DELTA_QKV), in, s.channels);
    cpu_add_product(c, &first, cpu_matrix(c, layer, MODEL_DELTA_Z), in, s.z);
    cpu_add_product(c, &first, cpu_matrix(c, layer, h->delta_joined ? MODEL_DELTA_BETA_ALPHA : MODEL_DELTA_BETA), in, s.low);
    if (!h->delta_joined)
        cpu_add_product(c, &first, cpu_matrix(c, layer, MODEL_DELTA_ALPHA), in, s.low + n * heads);
    int r = cpu_run_products(c, &first);
    if (r < 0)
        return r;
    run_convolutions(c, &s);
    pool_for(c->c.pool, s.n, cpu_piece_of(c, s.n, n * channels * 4), gate_tokens, &s);
    run_heads(c, &s);
    pool_for(c->c.pool, s.n, cpu_piece_of(c, s.n, n * inner * 8), norm_tokens, &s);
    struct acts values = { .f32 = s.out, .n_cols = (int)inner, .n_tokens = s.n, .q8 = c->c.memory.act };
    cpu_add_product(c, &last, cpu_matrix(c, layer, MODEL_DELTA_OUT), &values, out);
    return cpu_run_products(c, &last);
}

/* ---- short convolutions ---- */

static void mixed_inputs(const struct recurrent *r, size_t t, float *state, int from, int to)
{
    size_t d = (size_t)r->n_channels;
    conv_mix(r->out + t * d, r->channels + t * 3 * d, state, cpu_vector(r->cpu, r->layer, MODEL_CONV_WEIGHT), from, to, r->cpu->c.h);
}

int dense_conv(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens, const struct dense_reads *reads, float *out,
               struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams *h = c->c.h;
    size_t all = (size_t)in->n_tokens * (size_t)h->d_model;
    struct recurrent s = { .cpu = c, .tokens = tokens, .layer = layer, .n = in->n_tokens, .channels = c->c.memory.made,
                           .out = c->c.memory.made + 3 * all, .n_channels = h->d_model, .convolve = mixed_inputs };
    struct products first = { .reads = reads, .e = e }, last = { .reads = reads, .e = e };
    find_sequences(&s);
    cpu_add_product(c, &first, cpu_matrix(c, layer, MODEL_CONV_IN), in, s.channels);
    int r = cpu_run_products(c, &first);
    if (r < 0)
        return r;
    run_convolutions(c, &s);
    struct acts values = { .f32 = s.out, .n_cols = h->d_model, .n_tokens = s.n, .q8 = c->c.memory.act };
    cpu_add_product(c, &last, cpu_matrix(c, layer, MODEL_CONV_OUT), &values, out);
    return cpu_run_products(c, &last);
}

/* ---- Mamba2 ---- */

/* x, B and C of a token, then its dt. */
static float *ssm_made(const struct recurrent *r, size_t t)
{
    const struct model_hparams *h = r->cpu->c.h;
    return r->channels + t * (size_t)model_ssm_rows(h) + h->ssm_inner;
}

static void ssm_inputs(const struct recurrent *r, size_t t, float *state, int from, int to)
{
    ssm_conv(ssm_made(r, t), state, cpu_vector(r->cpu, r->layer, MODEL_SSM_CONV), cpu_vector(r->cpu, r->layer, MODEL_SSM_CONV_BIAS), from,
             to, r->cpu->c.h);
}

static struct ssm_weights ssm_weights_of(const struct cpu *c, int layer)
{
    return (struct ssm_weights){ cpu_vector(c, layer, MODEL_SSM_DT), cpu_vector(c, layer, MODEL_SSM_A), cpu_vector(c, layer, MODEL_SSM_D) };
}

static void ssm_step(const struct recurrent *r, size_t t, float *s, int head)
{
    const struct model_hparams *h = r->cpu->c.h;
    const struct ssm_weights w = ssm_weights_of(r->cpu, r->layer);
    size_t inner = (size_t)h->ssm_inner, dim = inner / (size_t)h->ssm_heads;
    const float *made = ssm_made(r, t);
    ssm_head(r->out + t * inner + (size_t)head * dim, s, made, made + r->n_channels, &w, head, h);
}

static void ssm_keep(const struct recurrent *r, size_t t, float *to_keep, int head)
{
    to_keep[head] = ssm_made(r, t)[r->n_channels + head];
}

static void norm_ssm(void *ctx, int begin, int end, int worker)
{
    const struct recurrent *r = ctx;
    const struct model_hparams *h = r->cpu->c.h;
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        ssm_out(r->out + t * (size_t)h->ssm_inner, r->channels + t * (size_t)model_ssm_rows(h),
                cpu_vector(r->cpu, r->layer, MODEL_SSM_NORM), h);
}

int dense_ssm(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens, const struct dense_reads *reads, float *out,
              struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams *h = c->c.h;
    size_t n = (size_t)in->n_tokens, inner = (size_t)h->ssm_inner;
    struct recurrent s = { .cpu = c, .tokens = tokens, .layer = layer, .n = in->n_tokens, .channels = c->c.memory.made,
                           .out = c->c.memory.made + n * (size_t)model_ssm_rows(h), .n_channels = model_ssm_channels(h),
                           .heads = h->ssm_heads, .head_floats = inner / (size_t)h->ssm_heads * (size_t)h->ssm_state,
                           .convolve = ssm_inputs, .head = ssm_step, .keep = ssm_keep };
    struct products first = { .reads = reads, .e = e }, last = { .reads = reads, .e = e };
    find_sequences(&s);
    cpu_add_product(c, &first, cpu_matrix(c, layer, MODEL_SSM_IN), in, s.channels);
    int r = cpu_run_products(c, &first);
    if (r < 0)
        return r;
    run_convolutions(c, &s);
    run_heads(c, &s);
    pool_for(c->c.pool, s.n, cpu_piece_of(c, s.n, n * inner * 8), norm_ssm, &s);
    struct acts values = { .f32 = s.out, .n_cols = (int)inner, .n_tokens = s.n, .q8 = c->c.memory.act };
    cpu_add_product(c, &last, cpu_matrix(c, layer, MODEL_SSM_OUT), &values, out);
    return cpu_run_products(c, &last);
}

/* ---- tokens that were kept ---- */

/* Of one layer: [from, to) of a sequence. */
struct moving {
    const struct cpu *cpu;
    enum op_kind mixer;
    int layer, seq, from, to, n_channels, heads;
    size_t head_floats;
};

static struct moving moving_of(const struct cpu *c, int layer, int seq, int from, int to)
{
    const struct model_hparams *h = c->c.h;
    struct moving m = { c, graph_mixer(h, layer), layer, seq, from, to, h->d_model, 0, 0 };
    if (m.mixer == OP_DELTA)
        m.n_channels = model_delta_channels(h), m.heads = h->delta_v_heads, m.head_floats = (size_t)h->delta_dim * (size_t)h->delta_dim;
    else if (m.mixer == OP_SSM)
        m.n_channels = model_ssm_channels(h), m.heads = h->ssm_heads,
        m.head_floats = (size_t)(h->ssm_inner / h->ssm_heads) * (size_t)h->ssm_state;
    return m;
}

/* Item i: some channels. */
static void convolve_kept(void *ctx, int begin, int end, int worker)
{
    const struct moving *m = ctx;
    const struct model_hparams *h = m->cpu->c.h;
    float *state = state_of(m->cpu, m->layer, m->seq);
    const float *w = cpu_vector(m->cpu, m->layer, m->mixer == OP_DELTA ? MODEL_DELTA_CONV : m->mixer == OP_SSM ? MODEL_SSM_CONV :
                                                                                                               MODEL_CONV_WEIGHT);
    (void)worker;
    for (int i = begin; i < end; i++) {
        int from = i * CONV_CHANNELS, to = from + CONV_CHANNELS < m->n_channels ? from + CONV_CHANNELS : m->n_channels;
        for (int k = m->from; k < m->to; k++) {
            float *x = moves_of(m->cpu, m->layer, m->seq, k);
            if (m->mixer == OP_DELTA)
                delta_conv(x, state, w, from, to, h);
            else if (m->mixer == OP_SSM)
                ssm_conv(x, state, w, cpu_vector(m->cpu, m->layer, MODEL_SSM_CONV_BIAS), from, to, h);
            else
                conv_step(x, state, w, (size_t)m->n_channels, from, to, h);
        }
    }
}

/* Item i: a head, whose output nobody needs. */
static void move_kept(void *ctx, int begin, int end, int worker)
{
    const struct moving *m = ctx;
    const struct model_hparams *h = m->cpu->c.h;
    const struct ssm_weights w = ssm_weights_of(m->cpu, m->layer);
    float *out = held(m->cpu, worker), *first = state_of(m->cpu, m->layer, m->seq) + (size_t)(h->conv_width - 1) * (size_t)m->n_channels;
    for (int head = begin; head < end; head++)
        for (int k = m->from; k < m->to; k++) {
            const float *x = moves_of(m->cpu, m->layer, m->seq, k);
            if (m->mixer == OP_DELTA)
                delta_step(out, first + (size_t)head * m->head_floats, x, x + m->n_channels, head, h);
            else
                ssm_head(out, first + (size_t)head * m->head_floats, x, x + m->n_channels, &w, head, h);
        }
}

void cpu_move_on(struct dense *d, int seq, int from, int to)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams *h = c->c.h;
    uint64_t n = (uint64_t)(to - from);
    for (int l = 0; l < model_depth(h); l++) {
        if (!model_is_recurrent(h, l))
            continue;
        struct moving m = moving_of(c, l, seq, from, to);
        int pieces = pieces_of(m.n_channels);
        pool_for(c->c.pool, pieces, cpu_piece_of(c, pieces, n * (uint64_t)m.n_channels * 4 * (uint64_t)h->conv_width), convolve_kept, &m);
        for (int k = from; m.mixer == OP_DELTA && k < to; k++)
            delta_units(moves_of(c, l, seq, k), h);
        if (m.heads)
            pool_for(c->c.pool, m.heads, cpu_piece_of(c, m.heads, n * (uint64_t)m.heads * m.head_floats * 4), move_kept, &m);
    }
}

/* ---- time mixing of RWKV ---- */

struct wkv {
    struct recurrent r;          /* whose memory is not used */
    const float *x;              /* f32[n][d_model]: inputs */
    const float *lerp, *more;    /* more: f32[n][d_model] that is added to it, or NULL */
    int part;                    /* of the state's last inputs: 0 of time mixing, 1 of the FFN */
    float *first;                /* f32[tokens][d_model]: values of the first layer, kept from layer to layer of a pass */
    float *mixed;                /* f32[n][d_model]: one mixed input; the mix of values; what the output matrix sees */
    float *few;                  /* f32[n][rank] */
    struct wkv_token all;     /* f32[n][d_model] each */
    struct wkv_weights w;
};

/* Inputs of tokens mixed with those of the tokens before them in their sequences. */
static void mix_tokens(void *ctx, int begin, int end, int worker)
{
    const struct wkv *s = ctx;
    const struct recurrent *r = &s->r;
    const struct model_hparams *h = r->cpu->c.h;
    size_t d = (size_t)h->d_model;
    (void)worker;
    for (int t = begin; t < end; t++) {
        int i = t - 1;
        while (i >= 0 && r->tokens[i].seq != r->tokens[t].seq)
            i--;
        const float *before = r->tokens[t].pos == 0 ? NULL
                              : i >= 0 ? s->x + (size_t)i * d
                                       : state_of(r->cpu, r->layer, r->tokens[t].seq) + (size_t)s->part * d;
        wkv_mix(s->mixed + (size_t)t * d, s->x + (size_t)t * d, before, s->lerp, s->more ? s->more + (size_t)t * d : NULL, h);
    }
}

/* The states have the inputs of all tokens; nothing asks for those before any more. */
static void keep_inputs(const struct wkv *s)
{
    const struct recurrent *r = &s->r;
    size_t d = (size_t)r->cpu->c.h->d_model;
    for (int t = 0; t < r->n; t++)
        memcpy(state_of(r->cpu, r->layer, r->tokens[t].seq) + (size_t)s->part * d, s->x + (size_t)t * d, d * sizeof(float));
}

static struct wkv_token token_of(const struct wkv *s, size_t t)
{
    size_t at = t * (size_t)s->r.cpu->c.h->d_model;
    return (struct wkv_token){ s->all.r + at, s->all.k + at, s->all.v + at, s->all.w + at, s->all.a + at, s->all.g + at };
}

static void gate_wkv(void *ctx, int begin, int end, int worker)
{
    const struct wkv *s = ctx;
    const struct model_hparams *h = s->r.cpu->c.h;
    size_t d = (size_t)h->d_model;
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++) {
        const struct wkv_token own = token_of(s, t);
        wkv_gates(&own, s->first + t * d, s->mixed + t * d, &s->w, h);
    }
}

/* Item i: a head of a sequence, all its tokens. */
static void move_wkv(void *ctx, int begin, int end, int worker)
{
    const struct wkv *s = ctx;
    const struct recurrent *r = &s->r;
    const struct model_hparams *h = r->cpu->c.h;
    size_t d = (size_t)h->d_model, dim = (size_t)h->wkv_dim;
    (void)worker;
    for (int i = begin; i < end; i++) {
        int seq = r->seqs[i / h->n_heads], head = i % h->n_heads;
        float *state = state_of(r->cpu, r->layer, seq) + model_wkv_shifts(h) + (size_t)head * dim * dim;
        for (size_t t = 0; t < (size_t)r->n; t++) {
            if (r->tokens[t].seq != seq)
                continue;
            if (r->tokens[t].pos == 0)
                memset(state, 0, dim * dim * sizeof *state);
            const struct wkv_token own = token_of(s, t);
            wkv_head(s->mixed + t * d + (size_t)head * dim, state, &own, &s->w, head, h);
        }
    }
}

static void mix_inputs(struct wkv *s, const float *lerp, const float *more)
{
    int n = s->r.n;
    s->lerp = lerp;
    s->more = more;
    pool_for(s->r.cpu->c.pool, n, cpu_piece_of(s->r.cpu, n, (uint64_t)n * (uint64_t)s->r.cpu->c.h->d_model * 8), mix_tokens, s);
}

/* RWKV-6: what the mixes of all inputs are made of, at s->few. */
static int begin_mixes(struct wkv *s, const struct dense_reads *reads, struct err *e)
{
    const struct cpu *c = s->r.cpu;
    const struct dense_matrix *mix_a = cpu_matrix(c, s->r.layer, MODEL_WKV_MIX_A);
    struct products p = { .reads = reads, .e = e };
    struct acts in = { .f32 = s->mixed, .n_cols = c->c.h->d_model, .n_tokens = s->r.n, .q8 = c->c.memory.act };
    mix_inputs(s, s->w.lerp_x, NULL);
    cpu_add_product(c, &p, mix_a, &in, s->few);
    int r = cpu_run_products(c, &p);
    wkv_low(s->few, (size_t)s->r.n * (size_t)mix_a->n_rows, WKV_W);
    return r;
}

/* And of one of them, at s->mixed. few: f32[n][mix_rank], written to. */
static int make_mix(struct wkv *s, int place, float *few, const struct dense_reads *reads, struct err *e)
{
    const struct cpu *c = s->r.cpu;
    struct dense_matrix m = *cpu_matrix(c, s->r.layer, MODEL_WKV_MIX_B);
    size_t rank = (size_t)m.n_cols;
    for (size_t t = 0; t < (size_t)s->r.n; t++)
        memcpy(few + t * rank, s->few + (t * 5 + (size_t)place) * rank, rank * sizeof *few);
    m.data += (size_t)place * (size_t)m.n_rows * m.row_bytes;
    struct acts in = { .f32 = few, .n_cols = m.n_cols, .n_tokens = s->r.n, .q8 = c->c.memory.act };
    struct products p = { .reads = reads, .e = e };
    cpu_add_product(c, &p, &m, &in, s->mixed);
    return cpu_run_products(c, &p);
}

/* All that is made of the inputs, one after another; values come last, as their mix needs the memory of mixed inputs. */
static int wkv_products(struct wkv *s, const struct dense_reads *reads, struct err *e)
{
    const struct cpu *c = s->r.cpu;
    float *const to[WKV_INPUTS] = { s->all.r, s->all.w, s->all.k, s->all.v, s->all.a, s->all.g };
    int d = c->c.h->d_model, n = s->r.n, six = c->c.h->mix_rank > 0, r = six ? begin_mixes(s, reads, e) : 0;
    float *low_few = six ? s->few + (size_t)n * (size_t)cpu_matrix(c, s->r.layer, MODEL_WKV_MIX_A)->n_rows : s->few;
    for (int i = 0; i < WKV_INPUTS && r == 0; i++) {
        const struct wkv_made *m = &wkv_made[i];
        enum wkv_input which = m->in;
        const struct dense_matrix *all = m->whole ? cpu_matrix(c, s->r.layer, m->whole) : NULL;
        const struct dense_matrix *low = m->low ? cpu_matrix(c, s->r.layer, m->low) : NULL;
        struct products first = { .reads = reads, .e = e }, then = { .reads = reads, .e = e };
        struct acts in = { .f32 = s->mixed, .n_cols = d, .n_tokens = n, .q8 = c->c.memory.act };
        int place = wkv_place(which, c->c.h);
        if (place < 0 || (six && (r = make_mix(s, place, low_few, reads, e)) < 0))
            continue;
        mix_inputs(s, s->w.lerp + (size_t)place * (size_t)d, six ? s->mixed : NULL);
        if (all && all->data)
            cpu_add_product(c, &first, all, &in, to[which]);
        if (low && low->data)
            cpu_add_product(c, &first, low, &in, low_few);
        r = cpu_run_products(c, &first);
        if (r < 0 || !low || !low->data)
            continue;
        wkv_low(low_few, (size_t)n * (size_t)low->n_rows, which);
        struct acts few = { .f32 = low_few, .n_cols = low->n_rows, .n_tokens = n, .q8 = c->c.memory.act };
        cpu_add_product(c, &then, cpu_matrix(c, s->r.layer, (enum model_role)(m->low + 1)), &few, which == WKV_V ? s->mixed : to[which]);
        r = cpu_run_products(c, &then);
    }
    return r;
}

int dense_wkv(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens, const struct dense_reads *reads,
              float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams *h = c->c.h;
    const size_t n = (size_t)in->n_tokens, part = n * (size_t)h->d_model;
    struct wkv s = { .r = { .cpu = c, .tokens = tokens, .layer = layer, .n = in->n_tokens }, .x = in->f32, .first = c->c.memory.made };
    struct products last = { .reads = reads, .e = e };
    s.w = (struct wkv_weights){
        cpu_vector(c, layer, MODEL_WKV_LERP), cpu_vector(c, layer, MODEL_WKV_DECAY), cpu_vector(c, layer, MODEL_WKV_RATE),
        cpu_vector(c, layer, MODEL_WKV_VALUE), cpu_vector(c, layer, MODEL_WKV_K_K), cpu_vector(c, layer, MODEL_WKV_K_A),
        cpu_vector(c, layer, MODEL_WKV_R_K), cpu_vector(c, layer, MODEL_WKV_NORM), cpu_vector(c, layer, MODEL_WKV_NORM_BIAS),
        cpu_vector(c, layer, MODEL_WKV_LERP_X) };
    s.mixed = s.first + (size_t)c->c.tokens * (size_t)h->d_model;
    s.all = (struct wkv_token){ .r = s.mixed + part, .k = s.mixed + 2 * part, .v = s.mixed + 3 * part, .w = s.mixed + 4 * part,
                                   .a = s.mixed + 5 * part, .g = s.mixed + 6 * part };
    s.few = s.mixed + 7 * part;
    find_sequences(&s.r);
    int r = wkv_products(&s, reads, e), items = s.r.n_seqs * h->n_heads;
    if (r < 0)
        return r;
    keep_inputs(&s);
    pool_for(c->c.pool, s.r.n, cpu_piece_of(c, s.r.n, part * 16), gate_wkv, &s);
    pool_for(c->c.pool, items, cpu_piece_of(c, items, part * (uint64_t)h->wkv_dim * 4), move_wkv, &s);
    struct acts values = { .f32 = s.mixed, .n_cols = h->d_model, .n_tokens = s.r.n, .q8 = c->c.memory.act };
    cpu_add_product(c, &last, cpu_matrix(c, layer, MODEL_WKV_OUTPUT), &values, out);
    return cpu_run_products(c, &last);
}

int cpu_shift(struct dense *d, int layer, const struct engine_token *tokens, const float *x, int n, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct dense_matrix *receptance = cpu_matrix(c, layer, MODEL_FFN_R);
    struct wkv s = { .r = { .cpu = c, .tokens = tokens, .layer = layer, .n = n }, .x = x, .part = 1, .mixed = out };
    int r = 0;
    mix_inputs(&s, cpu_vector(c, layer, MODEL_FFN_LERP), NULL);
    if (receptance->data) {
        s.mixed = c->c.memory.made + (size_t)c->c.tokens * (size_t)c->c.h->d_model;
        mix_inputs(&s, cpu_vector(c, layer, MODEL_FFN_LERP_R), NULL);
        struct acts in = { .f32 = s.mixed, .n_cols = c->c.h->d_model, .n_tokens = n, .q8 = c->c.memory.act };
        r = cpu_one_product(c, receptance, &in, c->c.memory.made, e);
    }
    keep_inputs(&s);
    return r;
}

int cpu_receive(struct dense *d, int n, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    (void)e;
    wkv_receive(out, c->c.memory.made, (size_t)n * (size_t)c->c.h->d_model);
    return 0;
}
