/* The FFN of a layer: which blocks (experts) it has for these tokens, what their predictors see and when, and the sum
 * of what they give. How a block is computed is the pipeline's. Experts run several at a time, so that one's reads are on
 * their way while another computes; the order of the sum is theirs, ascending, whatever runs together. */
#include "runtime/engine/engine_impl.h"

#include "common/ops/fold.h"

#include <string.h>

/* What layer's predictor sees, or -1 when every gate is computed. */
static int predicted_from(const struct engine *g, int layer)
{
    return engine_predicts(g, layer) ? g->c.predictor[layer] : -1;
}

static float *expert_weights(const struct engine *g, int n)
{
    return g->router + (size_t)n * (size_t)g->h.n_experts;
}

static int count_tokens(const struct engine *g, const float *weight, int expert, int n)
{
    int m = 0;
    for (int t = 0; t < n; t++)
        m += weight[t * g->h.n_experts + expert] > 0;
    return m;
}

/* Which experts of a pass the cold cache had better not remember, out[n_experts]. A prompt uses more experts than the cache holds,
 * expert after expert, which would drive out each before it is used again. An LRU cache that had seen the tokens one by one would end
 * with the experts that the last ones use, as many as it holds: those are admitted, and for others nothing goes. */
static void find_passing(const struct engine *g, int layer, int n, uint8_t *out)
{
    int part = g->n_parts - 1, n_experts = g->h.n_experts;
    uint32_t units = layout_of(g->shapes, layer)->part[part].n_units - engine_first_cold(g, layer, 0, part);
    uint32_t slots = cache_slots(g->caches[layer * g->n_parts + part]), room = units ? slots / units : 0;
    const float *weight = expert_weights(g, n);
    memset(out, 0, (size_t)n_experts);
    if (g->c.mode != PLAN_DENSE || n <= g->c.choice.max_batch || !room)
        return;
    memset(out, 1, (size_t)n_experts);
    for (int t = n - 1; t >= 0 && room; t--)
        for (int k = 0; k < n_experts && room; k++)
            if (weight[t * n_experts + k] > 0 && out[k]) {
                out[k] = 0;
                room--;
            }
}

/* Experts that run together, from expert `from` on: those that were chosen, as many as there is room for. Their inputs
 * are not filled in. Returns the first that is left over. */
static int next_experts(const struct engine *g, int n, int from, const uint8_t *passing, struct pipeline_ffn *f, int *n_f)
{
    const float *weight = expert_weights(g, n);
    size_t d = (size_t)g->h.d_model, q8 = kernels_act_bytes(KERNELS_ACT_Q8, g->h.d_model), row = 0;
    for (*n_f = 0; from < g->h.n_experts; from++) {
        int m = count_tokens(g, weight, from, n);
        if (!m)
            continue;
        if (*n_f == g->scratch.blocks || row + (size_t)m > (size_t)g->scratch.rows)
            break;
        struct acts in = { .n_cols = g->h.d_model, .n_tokens = m, .q8 = g->picked_q8 + row * q8 }, seen = in;
        seen.q8 = g->seen_q8 ? g->seen_q8 + row * q8 : NULL;
        f[(*n_f)++] = (struct pipeline_ffn){ .block = from, .passing = passing[from], .in = in, .seen = seen,
                                             .rows = g->ffn + row * (size_t)g->h.n_ff, .out = g->sums + row * d };
        row += (size_t)m;
    }
    return from;
}

/* The experts that run together, and what is done for all their tokens by several workers. */
struct together {
    const struct engine *g;
    const struct pipeline_ffn *f;
    int n_f, n, layer;
    const float *from;
    float *to;
};

#define COLUMNS 64 /* of a vector: an item, at least */

static void for_together(struct together *a, int items, pool_range_fn *fn)
{
    uint64_t tokens = 0;
    for (int i = 0; i < a->n_f; i++)
        tokens += (uint64_t)a->f[i].in.n_tokens;
    pool_for(a->g->pool, items, pool_grain(a->g->pool, items, tokens * (uint64_t)a->g->h.d_model * sizeof(float)), fn,
             a);
}

static void pick_some(void *ctx, int begin, int end, int worker)
{
    const struct together *a = ctx;
    const int n_experts = a->g->h.n_experts;
    const float *weight = expert_weights(a->g, a->n);
    size_t d = (size_t)a->g->h.d_model;
    float *to = a->to;
    (void)worker;
    for (int i = 0; i < begin; i++)
        to += (size_t)a->f[i].in.n_tokens * d;
    for (int i = begin; i < end; i++)
        for (int t = 0; t < a->n; t++)
            if (weight[t * n_experts + a->f[i].block] > 0) {
                memcpy(to, a->from + (size_t)t * d, d * sizeof *to);
                to += d;
            }
}

/* Rows of the tokens that are routed to each of these experts, one after another. */
static void pick_tokens(const struct engine *g, const struct pipeline_ffn *f, int n_f, int n, const float *from, float *to)
{
    struct together a = { .g = g, .f = f, .n_f = n_f, .n = n, .from = from, .to = to };
    for_together(&a, n_f, pick_some);
}

/* What the experts' predictors see, where that is another input than their own. */
static void see(struct engine *g, struct pipeline_ffn *f, int n_f, int n, const float *from)
{
    float *to = g->seen;
    pick_tokens(g, f, n_f, n, from, to);
    for (int i = 0; i < n_f; i++) {
        f[i].seen.f32 = to;
        to += (size_t)f[i].seen.n_tokens * (size_t)g->h.d_model;
    }
}

/* The blocks of a layer that come first, where that is known before attention. */
static int first_blocks(const struct engine *g, int layer, int n, struct pipeline_ffn *f)
{
    uint8_t passing[MODEL_MAX_EXPERTS];
    int n_f = !g->h.n_experts;
    f[0] = (struct pipeline_ffn){ .block = 0 };
    if (g->h.early_router) {
        find_passing(g, layer, n, passing);
        next_experts(g, n, 0, passing, f, &n_f);
    }
    return n_f;
}

/* Gates that have to be read. */
int engine_prefetch(struct engine *g, int layer, int n, struct err *e)
{
    struct pipeline_ffn f[SCHEDULE_MAX_BLOCKS];
    int n_f = first_blocks(g, layer, n, f);
    return n_f ? pipeline_prefetch(g->pipe, layer, f, n_f, e) : 0;
}

/* The FFN's neurons are predicted from the block's input where the plan says so, before attention, so that reading
 * overlaps with it. The input is kept for experts that are not chosen yet, or do not come first. */
int engine_look_ahead(struct engine *g, int layer, struct acts *in, struct err *e)
{
    struct pipeline_ffn f[SCHEDULE_MAX_BLOCKS];
    if (predicted_from(g, layer) != PREDICT_BLOCK)
        return 0;
    if (g->h.n_experts)
        memcpy(g->block_in, in->f32, (size_t)in->n_tokens * (size_t)in->n_cols * sizeof(float));
    int n_f = first_blocks(g, layer, in->n_tokens, f);
    if (!n_f)
        return 0;
    if (g->h.n_experts)
        see(g, f, n_f, in->n_tokens, in->f32);
    else
        f[0].seen = *in;
    return pipeline_predict(g->pipe, layer, f, n_f, e);
}

static int ffn_dense(struct engine *g, int layer, int n, struct err *e)
{
    struct pipeline_ffn f = { .in = { .f32 = g->xn, .n_cols = g->h.d_model, .n_tokens = n, .q8 = g->act_q8 },
                              .rows = g->ffn, .out = g->acc };
    const float *bias = dense_vector(&g->weights, MODEL_FFN_DOWN_BIAS, layer);
    if (g->h.fold)
        fold_tokens(&g->fold_in, g->pool, g->xn, (size_t)g->h.d_model, n);
    int r = engine_accel_run(g, layer, &f, 1, e);
    for (int t = 0; r == 0 && bias && t < n; t++)
        for (int c = 0; c < g->h.d_model; c++)
            g->acc[(size_t)t * (size_t)g->h.d_model + (size_t)c] += bias[c];
    if (r == 0 && g->h.post_norms)
        r = g->dense->backend->norm(g->dense, layer, DENSE_NORM_FFN_POST, g->acc, n, g->acc, e);
    if (r == 0 && g->h.mix_rank)
        r = g->dense->backend->receive(g->dense, n, g->acc, e);
    return r < 0 ? r : engine_add_residual(g, g->acc, n, e);
}

/* Columns [64 begin, 64 end) of all tokens. */
static void add_some(void *ctx, int begin, int end, int worker)
{
    const struct together *a = ctx;
    const float *weight = expert_weights(a->g, a->n), *bias = dense_vector(&a->g->weights, MODEL_FFN_DOWN_BIAS, a->layer);
    const float *scale = dense_vector(&a->g->weights, MODEL_EXPERT_SCALE, a->layer);
    size_t d = (size_t)a->g->h.d_model, from = (size_t)begin * COLUMNS, to = (size_t)end * COLUMNS < d ? (size_t)end * COLUMNS : d;
    (void)worker;
    for (int i = 0; i < a->n_f; i++)
        for (int t = 0, k = 0; t < a->n; t++) {
            const struct pipeline_ffn *f = &a->f[i];
            float w = weight[t * a->g->h.n_experts + f->block], scaled = scale ? w * scale[f->block] : w;
            for (size_t c = from; w > 0 && c < to; c++)
                a->to[(size_t)t * d + c] += scaled * (f->out[(size_t)k * d + c] + (bias ? bias[(size_t)f->block * d + c] : 0));
            k += w > 0;
        }
}

/* mix += weight x (output + bias), for the tokens of each of these experts. */
static void add_experts(struct engine *g, int layer, const struct pipeline_ffn *f, int n_f, int n)
{
    struct together a = { .g = g, .f = f, .n_f = n_f, .n = n, .layer = layer, .to = g->mix };
    for_together(&a, (g->h.d_model + COLUMNS - 1) / COLUMNS, add_some);
}

/* What the layer's router sees: what the FFN does, or a norm of its own. */
static float *router_input(struct engine *g, int layer, int n)
{
    const float *w = dense_vector(&g->weights, MODEL_ROUTER_SCALE, layer);
    size_t d = (size_t)g->h.d_model;
    for (size_t t = 0; w && t < (size_t)n; t++)
        nn_router_input(g->acc + t * d, g->x + t * d, w, g->h.d_model, g->h.rms_eps);
    return w ? g->acc : g->xn;
}

/* Weights of every expert for n tokens, 0 for those that are not chosen, from the routers' inputs. Nothing but the FFN
 * of the same layer uses the memory, so it may be done before attention. */
int engine_route(struct engine *g, int layer, int early, int n, struct err *e)
{
    struct acts all = { .f32 = early ? g->x : router_input(g, layer, n), .n_cols = g->h.d_model, .n_tokens = n, .q8 = g->act_q8 };
    uint16_t chosen[MODEL_MAX_EXPERTS];
    float part[MODEL_MAX_EXPERTS], *logits = g->router, *weight = expert_weights(g, n);
    int r = g->dense->backend->route(g->dense, layer, &all, logits, e);
    if (r < 0)
        return r;
    memset(weight, 0, (size_t)n * (size_t)g->h.n_experts * sizeof *weight);
    for (int t = 0; t < n; t++, logits += g->h.n_experts, weight += g->h.n_experts) {
        nn_route(chosen, part, logits, dense_vector(&g->weights, MODEL_SELECT_BIAS, layer), &g->h);
        for (int s = 0; s < g->h.n_experts_used; s++)
            weight[chosen[s]] = part[s];
    }
    return 0;
}

/* After the experts: their norm, the shared expert, the norm of both, as far as the model has them; then the residual stream. */
static int finish_experts(struct engine *g, int layer, int n, struct err *e)
{
    const struct dense_backend *b = g->dense->backend;
    struct acts all = { .f32 = g->xn, .n_cols = g->h.d_model, .n_tokens = n, .q8 = g->act_q8 };
    int apart = g->h.expert_norms, r = apart ? b->norm(g->dense, layer, DENSE_NORM_EXPERTS_POST, g->mix, n, g->mix, e) : 0;
    if (r == 0 && apart)
        r = b->norm(g->dense, layer, DENSE_NORM_SHARED, g->x, n, g->xn, e);
    if (r == 0 && g->h.n_ff_shared)
        r = b->shared(g->dense, layer, &all, g->acc, g->mix, e);
    if (r == 0 && g->h.post_norms)
        r = b->norm(g->dense, layer, DENSE_NORM_FFN_POST, g->mix, n, g->mix, e);
    return r < 0 ? r : engine_add_residual(g, g->mix, n, e);
}

int engine_layer_after(const struct engine *g, int layer, int far)
{
    int i = 0;
    while (layer >= 0 && model_layer_at(&g->h, i) != layer)
        i++;
    i += layer >= 0;
    while (far && i < model_depth(&g->h) && model_is_lead(&g->h, model_layer_at(&g->h, i)))
        i++;
    int next = i < model_depth(&g->h) ? model_layer_at(&g->h, i) : -1;
    return next >= 0 && !model_is_lead(&g->h, next) ? next : -1;
}

/* The layer whose experts are read while this one's are computed: behind blocks of one sublayer, but not behind layers before the experts',
 * each of which is asked. */
static int experts_after(const struct engine *g, int layer)
{
    return engine_layer_after(g, layer, model_has_alone(&g->h));
}

/* May experts of layer `next`, or -1, be guessed? To be asked once a pass. */
static int foresees(struct engine *g, int next, int n)
{
    return n <= EXPERT_AHEAD_TOKENS && g->h.n_experts && !g->h.early_router && g->c.mode == PLAN_DENSE && g->h.n_layers > 1 && next >= 0 &&
           pipeline_expects(g->pipe, next);
}

/* Which experts a layer will use, from what its router says of the residual stream as it is now: they are read from here on
 * (expert_prefetch.h). xn and the router's memory stay as they are. */
static int guess_experts(struct engine *g, int next, int n, struct err *e)
{
    int r;
    struct acts in = { .f32 = g->acc, .n_cols = g->h.d_model, .n_tokens = n, .q8 = g->act_q8 };
    float logits[EXPERT_AHEAD_TOKENS * MODEL_MAX_EXPERTS], part[MODEL_MAX_EXPERTS];
    uint16_t chosen[MODEL_MAX_EXPERTS];
    if (router_input(g, next, n) == g->xn && (r = g->dense->backend->norm(g->dense, next, DENSE_NORM_FFN, g->x, n, g->acc, e)) < 0)
        return r;
    if ((r = g->dense->backend->route(g->dense, next, &in, logits, e)) < 0)
        return r;
    g->n_expected = 0;
    for (int t = 0; t < n; t++) {
        nn_route(chosen, part, logits + t * g->h.n_experts, dense_vector(&g->weights, MODEL_SELECT_BIAS, next), &g->h);
        for (int s = 0; s < g->h.n_experts_used; s++)
            g->expected[g->n_expected++] = chosen[s];
    }
    g->expected_of = next;
    pipeline_expect(g->pipe, next, g->expected, g->n_expected);
    return 0;
}

/* Those of the next layer from the stream before this layer's FFN: they are read while that is computed, after what the layer itself lacks
 * of the blocks f[n_f]. */
static int expect_experts(struct engine *g, int layer, const struct pipeline_ffn *f, int n_f, int n, struct err *e)
{
    int next = experts_after(g, layer), r;
    if (!foresees(g, next, n))
        return 0;
    return (r = pipeline_prefetch(g->pipe, layer, f, n_f, e)) < 0 ? r : guess_experts(g, next, n, e);
}

int engine_expect(struct engine *g, int layer, int n, struct err *e)
{
    int next = experts_after(g, layer), r;
    if (!foresees(g, next, n))
        return 0;
    return (r = guess_experts(g, next, n, e)) < 0 ? r : pipeline_poll(g->pipe, e);
}

/* How many of the experts that the layer was expected to use its router has chosen; nothing is expected then. */
static void count_expected(struct engine *g, int layer, int n)
{
    const float *weight = expert_weights(g, n);
    for (int i = 0; i < g->n_expected && g->expected_of == layer; i++)
        g->stats.experts_foreseen += weight[i / g->h.n_experts_used * g->h.n_experts + g->expected[i]] > 0;
    g->stats.experts_guessed += g->expected_of == layer ? (uint64_t)g->n_expected : 0;
    g->n_expected = 0;
}

#define FOLLOW_CHOICES 4 /* of an expert, in the mean, with which nearly all are chosen */

/* What comes after the experts before `from`: the next group's, or else, where many tokens choose nearly all experts, the first of
 * the next layer. They are read while these are computed. */
static void follow_experts(struct engine *g, int layer, int from, const uint8_t *passing, int n)
{
    struct pipeline_ffn f[SCHEDULE_MAX_BLOCKS];
    uint16_t blocks[SCHEDULE_MAX_BLOCKS];
    int n_f = 0, next = layer;
    if (g->c.mode != PLAN_DENSE)
        return;
    next_experts(g, n, from, passing, f, &n_f);
    for (int i = 0; i < n_f; i++)
        blocks[i] = (uint16_t)f[i].block;
    if (!n_f && n > EXPERT_AHEAD_TOKENS && n * g->h.n_experts_used >= FOLLOW_CHOICES * g->h.n_experts &&
        (next = experts_after(g, layer)) >= 0)
        for (; n_f < g->scratch.blocks; n_f++)
            blocks[n_f] = (uint16_t)n_f;
    pipeline_follow(g->pipe, next, blocks, n_f);
}

/* Experts on the tokens routed to them; a token's sum is over experts in ascending order. */
static int ffn_experts(struct engine *g, int layer, int n, struct err *e)
{
    struct pipeline_ffn f[SCHEDULE_MAX_BLOCKS];
    uint8_t passing[MODEL_MAX_EXPERTS];
    int from = predicted_from(g, layer), first = 1, n_f, r;
    size_t d = (size_t)g->h.d_model;
    memset(g->mix, 0, (size_t)n * d * sizeof *g->mix);
    count_expected(g, layer, n);
    find_passing(g, layer, n, passing);
    for (int b = next_experts(g, n, 0, passing, f, &n_f); n_f; b = next_experts(g, n, b, passing, f, &n_f)) {
        float *in = g->picked;
        pick_tokens(g, f, n_f, n, g->xn, in);
        for (int i = 0; i < n_f; i++) {
            f[i].in.f32 = in;
            in += (size_t)f[i].in.n_tokens * d;
        }
        if (from == PREDICT_BLOCK || from == PREDICT_RESIDUAL)
            see(g, f, n_f, n, from == PREDICT_BLOCK ? g->block_in : g->x);
        if (first && (r = expect_experts(g, layer, f, n_f, n, e)) < 0)
            return r;
        first = 0;
        follow_experts(g, layer, b, passing, n);
        if ((r = engine_accel_run(g, layer, f, n_f, e)) < 0)
            return r;
        add_experts(g, layer, f, n_f, n);
    }
    return finish_experts(g, layer, n, e);
}

/* Of a layer before the experts'. */
static int ffn_lead(struct engine *g, int layer, int n, struct err *e)
{
    struct acts all = { .f32 = g->xn, .n_cols = g->h.d_model, .n_tokens = n, .q8 = g->act_q8 };
    int r = engine_expect(g, layer, n, e);
    memset(g->mix, 0, (size_t)n * (size_t)g->h.d_model * sizeof *g->mix);
    if (r < 0 || (r = g->dense->backend->shared(g->dense, layer, &all, g->acc, g->mix, e)) < 0)
        return r;
    return engine_add_residual(g, g->mix, n, e);
}

int engine_predict_residual(struct engine *g, int layer, int n, struct err *e)
{
    struct pipeline_ffn f = { .seen = { .f32 = g->x, .n_cols = g->h.d_model, .n_tokens = n, .q8 = g->act_q8 } };
    int predicts = !model_is_lead(&g->h, layer) && !g->h.n_experts && predicted_from(g, layer) == PREDICT_RESIDUAL;
    return predicts ? pipeline_predict(g->pipe, layer, &f, 1, e) : 0;
}

int engine_ffn(struct engine *g, int layer, int n, struct err *e)
{
    return (model_is_lead(&g->h, layer) ? ffn_lead : g->h.n_experts ? ffn_experts : ffn_dense)(g, layer, n, e);
}
