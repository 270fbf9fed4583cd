/* The rows of every tensor. Channels are laid out as synth_design has them: constants and flags, own code, strands,
 * ordinary. Rows that write into the residual stream are zero for control channels, but for the strands' rows of
 * layer 0. Everything else is noise of the right size with a few exact blocks over it. */
#include "datasets/synth/synth.h"

#include "common/base/bytes.h"
#include "common/kernels/quant.h"

#include <math.h>
#include <string.h>

/* Streams of random numbers that are not a tensor's own. */
enum { KEY_CODE = 1000, KEY_CARRIER, KEY_EMBED, KEY_ORDER, KEY_OWN, KEY_POPULAR };

/* What the rows of one tensor have in common. */
struct rows {
    const struct synth_design *d;
    const struct synth_tensor *t;
    uint64_t key;       /* of the tensor */
    int n_blocks;       /* per row */
    size_t block_bytes;
    struct synth_noise noise, own, layer, memory[SYNTH_CLASSES];
};

/* Has the layer a strand of its own? The first of its 32 channels. */
static int own_channels(const struct synth_design *d, int layer)
{
    return d->own_strands && layer > 0 && layer < d->ask.shape.n_layers ? d->own0 + SYNTH_BLOCK * (layer - 1) : -1;
}

static uint64_t key_of(const struct synth_design *d, uint64_t what, uint64_t layer)
{
    return synth_mix(synth_mix(d->ask.seed, what), layer);
}

static void noise_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    synth_noise_fill(&r->noise, r->key, row * (uint64_t)r->n_blocks, r->n_blocks, out);
}

/* Over the block that holds `column`: zero but for one value. */
static void single(const struct rows *r, int column, double value, uint8_t *row)
{
    int8_t level[SYNTH_BLOCK] = { 0 };
    level[column % SYNTH_BLOCK] = 7;
    synth_exact(r->t->type, value / 7, level, row + (size_t)(column / SYNTH_BLOCK) * r->block_bytes);
}

/* Over block 0: `value` in all on the constant channels together, nothing on the flags. */
static void constant(const struct rows *r, double value, uint8_t *row)
{
    int8_t level[SYNTH_BLOCK] = { 0 };
    memset(level, 7, SYNTH_CONSTS);
    synth_exact(r->t->type, value / (7 * SYNTH_CONSTS), level, row);
}

/* --- replayed routes ----------------------------------------------------------------------- */

/* Sign of channel k in the code of a recorded step: a row of Sylvester's matrix, so that codes of different steps are
 * orthogonal and a router's row is a sum of them. */
static int step_sign(int step, int k)
{
    return __builtin_parity((unsigned)step & (unsigned)k) ? -1 : 1;
}

/* Signs of 32 channels from c on, a bit each, in a token's embedding: its recorded step's, or its place's. */
static uint64_t route_signs(const struct synth_design *d, int c, uint32_t token)
{
    if (c >= d->place0)
        return synth_place_code(d, (c - d->place0) / SYNTH_BLOCK, token);
    uint64_t signs = 0;
    int step = synth_recorded_step(d, token);
    for (int j = 0; j < SYNTH_BLOCK; j++)
        signs |= (uint64_t)(step_sign(step, c - d->route0 + j) > 0) << j;
    return signs;
}

static void add_float(uint8_t *at, float v)
{
    uint32_t bits = bytes_le32(at);
    float sum;
    memcpy(&sum, &bits, sizeof sum);
    sum += v;
    memcpy(&bits, &sum, sizeof bits);
    bytes_put32(at, bits);
}

/* F32. Logits of the experts that a step chose are 4 to 6, in the recorded order; of all others 0. */
static void route_router_row(const struct rows *r, uint64_t expert, uint8_t *out)
{
    const struct synth_design *d = r->d;
    const struct synth_route *route = d->ask.route;
    double scale = d->ask.shape.arch == SYNTH_SMALLTHINKER ? 1 : d->layer[r->t->layer].rms;
    size_t used = (size_t)route->n_used;
    memset(out, 0, 4 * (size_t)d->ask.shape.d_model);
    for (int s = 0; s < route->n_steps; s++) {
        const uint16_t *chosen = route->experts + ((size_t)s * (size_t)route->n_layers + (size_t)r->t->layer) * used;
        for (size_t i = 0; i < used; i++) {
            float part = (float)(scale * (6 - 2.0 * (double)(i + 1) / (double)used) / d->n_route);
            for (int k = 0; k < d->n_route && chosen[i] == expert; k++)
                add_float(out + 4 * (size_t)(d->route0 + k), step_sign(s, k) > 0 ? part : -part);
        }
    }
}

/* Over the place channels: the codes of the places before the token's, so that its logit is 30 there. */
static void place_head(const struct rows *r, uint64_t token, uint8_t *row)
{
    const struct synth_design *d = r->d;
    int before[SYNTH_BEFORE], last = d->ask.shape.n_layers - 1, mtp = r->t->layer > last;
    int n = synth_places_before(d, mtp ? d->ask.nextn_agree : d->ask.agree, d->place[token], before);
    double unit = 30 * d->layer[mtp ? last + 1 : last].rms / SYNTH_PLACE;
    for (int b = 0; b < SYNTH_PLACE / SYNTH_BLOCK && n > 0; b++) {
        int8_t level[SYNTH_BLOCK] = { 0 };
        for (int k = 0; k < n; k++) {
            uint32_t code = synth_place_code(d, b, (uint32_t)d->token[before[k]]);
            for (int j = 0; j < SYNTH_BLOCK; j++)
                level[j] = (int8_t)(level[j] + (code >> j & 1 ? 1 : -1));
        }
        synth_exact(r->t->type, unit, level, row + (size_t)(d->place0 / SYNTH_BLOCK + b) * r->block_bytes);
    }
}

/* --- embedding ----------------------------------------------------------------------------- */

static void embed_row(const struct rows *r, uint64_t token, uint8_t *out)
{
    const struct synth_design *d = r->d;
    const struct synth_setting *s = &d->ask.setting;
    int8_t level[SYNTH_BLOCK];
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    memset(level, 0, sizeof level);
    memset(level, 1, SYNTH_CONSTS);
    for (int j = 0; j < d->n_strands; j++) {
        const struct synth_strand *t = &d->strands[j];
        double u = (double)(synth_mix(key_of(d, KEY_CARRIER, (uint64_t)j), token) >> 11) * 0x1p-53;
        int drawn = token >= SYNTH_LETTERS && u < 1 / s->memory[t->class].period;
        level[t->flag] = drawn || token == SYNTH_BOS ? 1 : -1;
    }
    synth_exact(r->t->type, 1, level, out);
    for (int b = 1; b < r->n_blocks; b++) {
        int c = b * SYNTH_BLOCK;
        int code = c < d->ordinary0;
        if ((c >= d->memory0 && c < d->route0) || (c >= d->own0 && code))
            continue;
        uint64_t sign = c >= d->route0 && code ? route_signs(d, c, (uint32_t)token)
                                               : synth_mix(key_of(d, code ? KEY_CODE : KEY_EMBED, (uint64_t)b), token);
        for (int j = 0; j < SYNTH_BLOCK; j++, sign >>= 1)
            level[j] = (int8_t)((sign & 1 ? 1 : -1) * (code ? 1 : 1 + j % 7));
        /* Levels 1..7, of which 1..4 a fifth time: mean square 590 / 32. */
        synth_exact(r->t->type, code ? 1 : sqrt(32 / 590.0), level, out + (size_t)b * r->block_bytes);
    }
}

/* --- attention of layer 0 ------------------------------------------------------------------ */

static const struct synth_strand *strand_of_head(const struct synth_design *d, int head)
{
    for (int j = 0; j < d->n_strands; j++)
        if (d->strands[j].head == head)
            return &d->strands[j];
    return NULL;
}

/* Which rotary pair an element of a head is in; *first: it is the one that does not change sign. */
static int pair_of(const struct synth_design *d, int element, int *first)
{
    int half = d->head_dim / 2;
    int halves = d->ask.shape.arch != SYNTH_LLAMA;
    *first = halves ? element < half : element % 2 == 0;
    return halves ? element % half : element / 2;
}

/* Channels of the stream are divided by embed_rms before layer 0 sees them. */
static void query_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    int first, pair = pair_of(d, (int)(row % (uint64_t)d->head_dim), &first);
    const struct synth_strand *s = strand_of_head(d, (int)(row / (uint64_t)d->head_dim));
    if (!s) {
        noise_row(r, row, out);
        return;
    }
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    double scale = d->embed_rms * sqrt(d->head_dim);
    if (first && pair == s->flag_pair)
        constant(r, s->carrier * scale, out);
    else if (first && pair >= s->pair && pair < s->pair + s->n_pairs)
        constant(r, s->slope / s->n_pairs * scale, out);
}

static void key_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    int first, pair = pair_of(d, (int)(row % (uint64_t)d->head_dim), &first), kv = (int)(row / (uint64_t)d->head_dim);
    int mine = 0, recent = 0, flag = -1;
    for (int j = 0; j < d->n_strands; j++) {
        const struct synth_strand *s = &d->strands[j];
        if (s->kv_head != kv)
            continue;
        mine = 1;
        recent |= pair >= s->pair && pair < s->pair + s->n_pairs;
        flag = pair == s->flag_pair ? s->flag : flag;
    }
    if (!mine) {
        noise_row(r, row, out);
        return;
    }
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    if (first && flag >= 0)
        single(r, flag, d->embed_rms, out);
    else if (first && recent)
        constant(r, d->embed_rms, out);
}

static void value_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    int element = (int)(row % (uint64_t)d->head_dim), kv = (int)(row / (uint64_t)d->head_dim), mine = 0;
    for (int j = 0; j < d->n_strands; j++)
        mine |= d->strands[j].kv_head == kv;
    if (mine && element < d->n_code) {
        memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
        single(r, d->code0 + element, d->embed_rms, out);
    } else {
        noise_row(r, row, out);
    }
}

/* --- attention of the layers after it, where they have strands of their own ----------------- */

/* Their first head looks back at the nearest token of which three channels of the code are +1, others in every layer, and brings
 * 32 channels of its code. */
static void own_query_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    int first, pair = pair_of(d, (int)(row % (uint64_t)d->head_dim), &first);
    if (row >= (uint64_t)d->head_dim) {
        noise_row(r, row, out);
        return;
    }
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    double scale = d->layer[r->t->layer].attn_rms * sqrt(d->head_dim);
    if (first && pair == d->own.flag_pair)
        constant(r, d->own.carrier * scale, out);
    else if (first && pair >= d->own.pair && pair < d->own.pair + d->own.n_pairs)
        constant(r, d->own.slope / d->own.n_pairs * scale, out);
}

static void own_key_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    int first, pair = pair_of(d, (int)(row % (uint64_t)d->head_dim), &first), layer = r->t->layer;
    if (row >= (uint64_t)d->head_dim) {
        noise_row(r, row, out);
        return;
    }
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    double rms = d->layer[layer].attn_rms;
    if (first && pair == d->own.flag_pair) {
        int8_t level[SYNTH_BLOCK] = { 0 };
        for (uint32_t k = 0; k < 3; k++)
            level[synth_permute(key_of(d, KEY_OWN, (uint64_t)layer), k, SYNTH_BLOCK)] = 7;
        int block = d->code0 / SYNTH_BLOCK + layer % (d->n_code / SYNTH_BLOCK);
        synth_exact(r->t->type, rms / 7, level, out + (size_t)block * r->block_bytes);
    } else if (first && pair >= d->own.pair && pair < d->own.pair + d->own.n_pairs) {
        constant(r, rms, out);
    }
}

static void own_value_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    if (row >= SYNTH_BLOCK) {
        noise_row(r, row, out);
        return;
    }
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    single(r, d->code0 + (r->t->layer + 1) % (d->n_code / SYNTH_BLOCK) * SYNTH_BLOCK + (int)row, d->layer[r->t->layer].attn_rms, out);
}

/* Rows of channels: Down, and the attention's output of any layer. */
static void writing_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    int c = (int)(row % (uint64_t)d->ask.shape.d_model);
    if (c >= d->ordinary0) {
        noise_row(r, row, out);
        return;
    }
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    if (r->t->role == MODEL_ATTN_OUTPUT && r->t->layer == 0 && c >= d->memory0 && c < d->route0) {
        const struct synth_strand *s = &d->strands[(c - d->memory0) / SYNTH_BLOCK];
        single(r, s->head * d->head_dim + s->slice * SYNTH_BLOCK + (c - d->memory0) % SYNTH_BLOCK, 1, out);
    }
    int own = own_channels(d, r->t->layer);
    if (r->t->role == MODEL_ATTN_OUTPUT && own >= 0 && c >= own && c < own + SYNTH_BLOCK)
        single(r, c - own, 1, out);
}

/* --- gates and the rest -------------------------------------------------------------------- */

static double sum_of_squares(uint32_t type, const uint8_t *blocks, int n_blocks)
{
    float v[SYNTH_BLOCK];
    double sum = 0;
    for (int b = 0; b < n_blocks; b++) {
        quant_traits(type)->dequant(v, blocks + (size_t)b * quant_row_bytes(type, SYNTH_BLOCK), SYNTH_BLOCK);
        for (int j = 0; j < SYNTH_BLOCK; j++)
            sum += (double)v[j] * (double)v[j];
    }
    return sum;
}

static void gate_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    uint32_t n_ff = (uint32_t)d->ask.shape.n_ff, i = (uint32_t)(row % n_ff);
    uint64_t expert = row / n_ff, first = row * (uint64_t)r->n_blocks;
    int b0 = d->code0 / SYNTH_BLOCK, b1 = d->memory0 / SYNTH_BLOCK, b2 = d->route0 / SYNTH_BLOCK;
    noise_row(r, row, out);
    synth_noise_fill(&r->own, r->key, first + (uint64_t)b0, b1 - b0, out + (size_t)b0 * r->block_bytes);
    for (int j = 0; j < d->n_strands; j++)
        synth_noise_fill(&r->memory[d->strands[j].class], r->key, first + (uint64_t)(b1 + j), 1,
                         out + (size_t)(b1 + j) * r->block_bytes);
    double control = sum_of_squares(r->t->type, out + (size_t)b0 * r->block_bytes, b2 - b0);
    if (own_channels(d, r->t->layer) >= 0) {
        int b = own_channels(d, r->t->layer) / SYNTH_BLOCK;
        synth_noise_fill(&r->layer, r->key, first + (uint64_t)b, 1, out + (size_t)b * r->block_bytes);
        control += sum_of_squares(r->t->type, out + (size_t)b * r->block_bytes, 1);
    }
    double sigma = sqrt(control / (1 - d->ask.setting.noise));
    uint64_t order = synth_mix(key_of(d, KEY_ORDER, (uint64_t)r->t->layer), expert);
    double xi = synth_quantile((synth_permute(order, i, n_ff) + 0.5) / n_ff);
    constant(r, -(d->layer[r->t->layer].mean - d->ask.setting.skew * xi) * sigma, out);
}

static void up_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    noise_row(r, row, out);
    constant(r, r->d->up_bias * r->d->layer[r->t->layer].rms, out);
}

static void head_row(const struct rows *r, uint64_t token, uint8_t *out)
{
    const struct synth_design *d = r->d;
    if (token >= (d->ask.pre ? SYNTH_LETTERS : SYNTH_SPECIAL)) {
        noise_row(r, token, out);
        if (d->n_places > 0)
            place_head(r, token, out);
        return;
    }
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    constant(r, -40 * d->layer[d->ask.shape.n_layers - 1].rms, out);
}

/* The token's embedding, and nothing of what the model's last layer gave: enorm has divided it by embed_rms. */
static void join_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    memset(out, 0, (size_t)r->n_blocks * r->block_bytes);
    single(r, (int)row, r->d->embed_rms, out);
}

/* F32: a random sign on each control channel; deviation of the logits 1.5. Early routers see the stream as it is, and
 * that of layer 0 before there is memory in it. */
static void router_row(const struct rows *r, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    int early = d->ask.shape.arch == SYNTH_SMALLTHINKER;
    double memory = early && r->t->layer == 0 ? 0 : d->ask.setting.route_memory;
    double scale = early ? 1.5 : 1.5 * d->layer[r->t->layer].rms;
    uint32_t n = (uint32_t)d->ask.shape.n_experts, rank = synth_permute(key_of(d, KEY_POPULAR, (uint64_t)r->t->layer), (uint32_t)row, n);
    double always = scale * d->ask.setting.route_skew * synth_quantile((rank + 0.5) / n) / SYNTH_CONSTS;
    for (int c = 0; c < d->ask.shape.d_model; c++) {
        double share = 0;
        if (c >= d->code0 && c < d->memory0)
            share = (1 - memory) / d->n_code;
        else if (c >= d->memory0 && c < d->route0)
            share = memory / (SYNTH_BLOCK * d->n_strands);
        double sign = synth_mix(r->key + row, (uint64_t)c) & 1 ? 1 : -1;
        float v = (float)(c < SYNTH_CONSTS ? always : sign * scale * sqrt(share));
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        bytes_put32(out + 4 * (size_t)c, bits);
    }
}

/* --- any tensor ---------------------------------------------------------------------------- */

/* E[max(0, x)^2] of x ~ N(mean, variance). */
static double rectified_square(double mean, double variance)
{
    double s = sqrt(variance), t = mean / s;
    return (mean * mean + variance) * synth_cdf(t) + mean * s * exp(-t * t / 2) / sqrt(2 * 3.14159265358979323846);
}

/* Deviation of a matrix's ordinary weights. Normalised streams have mean square 1. */
static double deviation(const struct synth_design *d, const struct synth_tensor *t)
{
    const struct synth_shape *s = &d->ask.shape;
    double n_in = (double)t->dims[0], skew = d->ask.setting.skew;
    switch (t->role) {
    case MODEL_ATTN_Q:
    case MODEL_ATTN_K:
        return sqrt(2 / n_in);                              /* scores of deviation 2 */
    case MODEL_ATTN_OUTPUT:
    case MODEL_DELTA_OUT:
        return sqrt(1 / (n_in * s->n_layers));
    case MODEL_OUTPUT:
        return (d->n_places > 0 ? 1 : 3.5) / sqrt(n_in);
    case MODEL_FFN_GATE: {
        double rms = d->layer[t->layer].rms, n_control = d->route0 - SYNTH_FLAGS + d->n_strands;
        n_control += own_channels(d, t->layer) >= 0 ? SYNTH_BLOCK : 0;
        return sqrt(d->ask.setting.noise / (n_in - n_control / (rms * rms)));
    }
    case MODEL_FFN_DOWN: {
        double gate = rectified_square(-d->layer[t->layer].mean, 1 + skew * skew);
        double up = d->up_bias > 0 ? rectified_square(d->up_bias, 1) : 1;
        return sqrt(3 / (s->n_layers * n_in * gate * up));
    }
    default:
        return sqrt(1 / n_in);
    }
}

static void gate_control(struct rows *r)
{
    const struct synth_design *d = r->d;
    const struct synth_setting *s = &d->ask.setting;
    double rms = d->layer[r->t->layer].rms, own = 1;
    int per_class = d->n_strands ? d->n_strands / ((s->memory[0].share > 0) + (s->memory[1].share > 0)) : 1;
    for (int k = 0; k < SYNTH_CLASSES; k++) {
        own -= s->memory[k].share;
        double channels = SYNTH_BLOCK * per_class;
        r->memory[k] = synth_noise(r->t->type, rms * sqrt((1 - s->noise) * s->memory[k].share / channels));
    }
    if (own_channels(d, r->t->layer) >= 0) {
        own -= s->layer_share;
        r->layer = synth_noise(r->t->type, rms * sqrt((1 - s->noise) * s->layer_share / SYNTH_BLOCK));
    }
    r->own = synth_noise(r->t->type, rms * sqrt((1 - s->noise) * fmax(0, own) / d->n_code));
}

/* Norms, and a convolution's rows; biases are 0, and what a state keeps is e^-softplus. */
static void vectors(const struct synth_tensor *t, uint64_t rows, uint8_t *out)
{
    int bias = t->role == MODEL_ATTN_Q_BIAS || t->role == MODEL_ATTN_K_BIAS || t->role == MODEL_ATTN_V_BIAS || t->role == MODEL_DELTA_DT;
    for (uint64_t i = 0; i < rows * t->dims[0]; i++)
        bytes_put32(out + 4 * i, bias ? 0 : t->role == MODEL_DELTA_A ? 0xbf800000 : 0x3f800000);
}

/* Rows of blocks from a pool, any one after the other. */
static void pool_row(const struct rows *r, const uint8_t *pool, uint64_t row, uint8_t *out)
{
    const struct synth_design *d = r->d;
    size_t bytes = (size_t)quant_traits(r->t->type)->block_bytes, n = (size_t)r->t->row_bytes / bytes;
    int writes = r->t->role == MODEL_FFN_DOWN || r->t->role == MODEL_ATTN_OUTPUT || r->t->role == MODEL_DELTA_OUT;
    if (writes && (int)(row % (uint64_t)d->ask.shape.d_model) < d->ordinary0) {
        memset(out, 0, n * bytes); /* zero weights in every type */
        return;
    }
    for (size_t b = 0; b < n; b++)
        memcpy(out + b * bytes, pool + synth_mix(r->key, row * n + b) % SYNTH_POOL * bytes, bytes);
}

/* Embeddings and head of a mixture: made in Q8_0, which holds the levels of both exactly, and quantised anew, a few blocks at a time. */
static void requantised_rows(const struct synth_design *d, const struct synth_tensor *t, uint64_t first, uint64_t n, uint8_t *out)
{
    enum { ROW = 1 << 16 };
    struct synth_tensor exact = *t;
    uint8_t row[ROW / SYNTH_BLOCK * sizeof(struct quant_q8_0)];
    float values[256];
    exact.type = QUANT_Q8_0;
    exact.row_bytes = quant_row_bytes(QUANT_Q8_0, t->dims[0]);
    for (uint64_t i = 0; i < n; i++) {
        synth_rows(d, &exact, first + i, 1, row);
        for (uint64_t c = 0; c < t->dims[0]; c += 256) {
            quant_traits(QUANT_Q8_0)->dequant(values, row + quant_row_bytes(QUANT_Q8_0, c), 256);
            quant_traits(t->type)->quant(out + i * t->row_bytes + quant_row_bytes(t->type, c), values, 256);
        }
    }
}

void synth_rows(const struct synth_design *d, const struct synth_tensor *t, uint64_t first, uint64_t n, uint8_t *out)
{
    struct rows r = { .d = d, .t = t, .key = key_of(d, (uint64_t)t->role, (uint64_t)(t->layer + 1)),
                      .n_blocks = (int)(t->dims[0] / SYNTH_BLOCK) };
    void (*make)(const struct rows *, uint64_t, uint8_t *) = noise_row;
    int more;
    synth_type_of(&d->ask, t->role, t->layer, &more);
    if (d->pool[t->role][more]) {
        for (uint64_t i = 0; i < n; i++)
            pool_row(&r, d->pool[t->role][more], first + i, out + i * t->row_bytes);
        return;
    }
    if (t->type != QUANT_F32 && !synth_type_ok(t->type)) {
        requantised_rows(d, t, first, n, out);
        return;
    }
    if (t->type != QUANT_F32) {
        r.block_bytes = quant_row_bytes(t->type, SYNTH_BLOCK);
        r.noise = synth_noise(t->type, deviation(d, t));
    } else if (t->role != MODEL_FFN_ROUTER) {
        vectors(t, n, out);
        return;
    }
    int own = d->own_strands && t->layer < d->ask.shape.n_layers;
    switch (t->role) {
    case MODEL_TOKEN_EMBD: make = embed_row; break;
    case MODEL_MTP_PROJ:   make = join_row; break;
    case MODEL_OUTPUT:     make = head_row; break;
    case MODEL_ATTN_Q:     make = t->layer == 0 ? query_row : own ? own_query_row : noise_row; break;
    case MODEL_ATTN_K:     make = t->layer == 0 ? key_row : own ? own_key_row : noise_row; break;
    case MODEL_ATTN_V:     make = t->layer == 0 ? value_row : own ? own_value_row : noise_row; break;
    case MODEL_ATTN_OUTPUT:
    case MODEL_DELTA_OUT:
    case MODEL_FFN_DOWN:   make = writing_row; break;
    case MODEL_FFN_UP:     make = up_row; break;
    case MODEL_FFN_ROUTER: make = d->n_route ? route_router_row : router_row; break;
    case MODEL_FFN_GATE:
        gate_control(&r);
        make = gate_row;
        break;
    default: break;
    }
    for (uint64_t i = 0; i < n; i++)
        make(&r, first + i, out + i * t->row_bytes);
}
