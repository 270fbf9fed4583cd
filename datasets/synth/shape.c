/* From a request to a design: which channels do what, which heads of layer 0 carry memory, and the figures of
 * every layer. Small shapes get fewer strands and a shorter code, never past half of the channels. */
#include "datasets/synth/synth.h"

#include "common/kernels/quant.h"
#include "common/model/mix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layers, width, heads, kv heads, FFN, vocabulary, context, experts and how many are used, rotary base,
 * the architecture, channels of a head where they are not the width divided by heads. */
const struct synth_shape synth_shapes[] = {
    { "mistral-7b", 32, 4096, 32, 8, 14336, 32000, 32768, 0, 0, 1e4, 0, 0 },
    { "mixtral-47b", 32, 4096, 32, 8, 14336, 32000, 32768, 8, 2, 1e6, 0, 0 },
    { "smallthinker-4b", 32, 1536, 12, 2, 768, 151936, 32768, 32, 4, 1.5e6, SYNTH_SMALLTHINKER, 0 },
    { "qwen3-30b", 48, 2048, 32, 4, 768, 151936, 32768, 128, 8, 1e6, 0, 128 },
    { "gpt-oss-20b", 24, 2880, 64, 8, 2880, 201088, 32768, 32, 4, 1.5e5, 0, 64 },
    { "llama-1b", 22, 2048, 32, 4, 5632, 32000, 2048, 0, 0, 1e4, 0, 0 },
    { "qwen3.8-27b", 64, 5120, 24, 4, 17408, 248320, 262144, 0, 0, 1e7, SYNTH_QWEN35, 256 },
    { "small", 4, 1024, 8, 2, 3584, 8000, 4096, 0, 0, 1e4, 0, 0 },
    { "tiny", 3, 256, 8, 2, 1024, 1024, 4096, 0, 0, 1e4, 0, 0 },
    { 0 }
};

const char *const synth_archs[] = { "llama", "smallthinker", "qwen3moe", "glm4moe", "qwen35", NULL };

/* Rate, skew, layer spread, memory, the routers' memory and skew, noise, layers' own share; sources in --help and on the page. */
const struct synth_setting synth_settings[] = {
    { "published", 0, 0.10, 0.65, 0.3, { { 0.24, 8 }, { 0.56, 32 } }, 0, 0, 0.005, 0 },
    { "published", 1, 0.15, 1.0, 0.3, { { 0.2, 8 }, { 0.7, 32 } }, 0.6, 0, 0.005, 0 },
    { "trained", 0, 0.10, 0.65, 0.3, { { 0.46, 1.5 }, { 0.085, 28 } }, 0, 0, 0.085, 0.075 },
    { "trained", 1, 0.15, 1.0, 0.3, { { 0.2, 8 }, { 0.7, 32 } }, 0.6, 0, 0.085, 0.075 },
    { "hard", 0, 0.10, 0.3, 0, { { 0, 8 }, { 0, 32 } }, 0, 0, 0.005, 0 },
    { "hard", 1, 0.15, 0.3, 0, { { 0, 8 }, { 0, 32 } }, 0, 0, 0.005, 0 },
    { 0 }
};

#define UP_OPEN 0.8 /* dReLU: P(up > 0), whatever the gate does */
#define SLOPE   6   /* two carriers half a period apart: weights e^6 to 1 */

static int head_dim(const struct synth_shape *s)
{
    return s->head_dim ? s->head_dim : s->d_model / s->n_heads;
}

static int check(const struct synth_request *q, struct err *e)
{
    const struct synth_shape *s = &q->shape;
    if (s->d_model % SYNTH_BLOCK != 0 || s->d_model < 4 * SYNTH_BLOCK)
        return err_set(e, ERR_USAGE, "--d-model %d is not a multiple of %d from %d on", s->d_model, SYNTH_BLOCK,
                       4 * SYNTH_BLOCK);
    if (s->n_ff % SYNTH_BLOCK != 0)
        return err_set(e, ERR_USAGE, "--ff %d is not a multiple of %d", s->n_ff, SYNTH_BLOCK);
    if (s->head_dim == 0 && (s->d_model % s->n_heads != 0 || s->d_model / s->n_heads % SYNTH_BLOCK != 0))
        return err_set(e, ERR_USAGE, "--d-model %d / --heads %d is not a multiple of %d", s->d_model, s->n_heads,
                       SYNTH_BLOCK);
    if (s->head_dim % SYNTH_BLOCK != 0)
        return err_set(e, ERR_USAGE, "--head-dim %d is not a multiple of %d", s->head_dim, SYNTH_BLOCK);
    if (s->n_heads % s->n_kv_heads != 0)
        return err_set(e, ERR_USAGE, "--heads %d is not a multiple of --kv-heads %d", s->n_heads, s->n_kv_heads);
    if (q->type == SYNTH_Q4_K_M && (q->act != MODEL_ACT_SILU || q->setting.memory[0].share + q->setting.memory[1].share > 0 ||
                                    q->setting.layer_share > 0))
        return err_set(e, ERR_USAGE, "--type q4_k_m goes with --act silu and --setting hard: thresholds and memory need blocks of 32");
    if (q->type == SYNTH_Q4_K_M && (s->d_model % 256 != 0 || s->n_ff % 256 != 0 || s->n_heads * head_dim(s) % 256 != 0))
        return err_set(e, ERR_USAGE, "--type q4_k_m: --d-model %d, --ff %d and heads of %d in all have to be multiples of 256",
                       s->d_model, s->n_ff, s->n_heads * head_dim(s));
    if (q->ffn_type != q->type) {
        int block = quant_traits(q->ffn_type)->block_elems;
        if (q->act != MODEL_ACT_SILU)
            return err_set(e, ERR_USAGE, "--ffn-type goes with --act silu: thresholds of gates need blocks of --type");
        if (s->d_model % block != 0 || s->n_ff % block != 0)
            return err_set(e, ERR_USAGE, "--ffn-type %s: --d-model %d and --ff %d have to be multiples of %d",
                           quant_traits(q->ffn_type)->name, s->d_model, s->n_ff, block);
    }
    if (s->n_experts > 0 && (s->n_experts_used < 1 || s->n_experts_used > s->n_experts))
        return err_set(e, ERR_USAGE, "--experts-used %d is outside 1 to --experts %d", s->n_experts_used, s->n_experts);
    if (s->n_experts == 0 && s->n_experts_used > 0)
        return err_set(e, ERR_USAGE, "--experts-used %d without --experts", s->n_experts_used);
    if (s->arch != SYNTH_LLAMA && s->arch != SYNTH_QWEN35 && s->n_experts == 0)
        return err_set(e, ERR_USAGE, "--arch %s needs --experts and --experts-used", synth_archs[s->arch]);
    if (s->arch == SYNTH_QWEN35 && (s->n_experts > 0 || s->n_layers % SYNTH_FULL != 0 || head_dim(s) % 16 != 0))
        return err_set(e, ERR_USAGE, "--arch qwen35 has no --experts, %d --layers or a multiple, and heads of a multiple of 16",
                       SYNTH_FULL);
    if (q->nextn && ((s->arch != SYNTH_GLM4MOE && s->arch != SYNTH_QWEN35) || q->cycle == 0))
        return err_set(e, ERR_USAGE, "--nextn-agree needs --arch glm4moe or qwen35, and --cycle");
    if (q->nextn_only && !q->nextn)
        return err_set(e, ERR_USAGE, "--nextn-only belongs to --nextn-agree");
    double memory = q->setting.memory[0].share + q->setting.memory[1].share;
    if (memory + q->setting.layer_share > 1)
        return err_set(e, ERR_USAGE, "--short-share %g, --long-share %g and --layer-share %g add up to more than 1",
                       q->setting.memory[0].share, q->setting.memory[1].share, q->setting.layer_share);
    if (q->setting.route_memory > 0 && memory == 0)
        return err_set(e, ERR_USAGE, "--route-persistence %g needs gates that persist (--short-share, --long-share)",
                       q->setting.route_memory);
    if ((s->arch == SYNTH_QWEN3MOE || s->arch == SYNTH_QWEN35) && (q->act != MODEL_ACT_SILU || memory + q->setting.layer_share > 0))
        return err_set(e, ERR_USAGE, "--arch %s goes with --act silu and --setting hard: its norms of queries and keys leave no room "
                       "for scores of a stated size", synth_archs[s->arch]);
    if (q->act == MODEL_ACT_DRELU && q->setting.rate >= UP_OPEN)
        return err_set(e, ERR_USAGE, "--rate %g: drelu reaches less than %g", q->setting.rate, UP_OPEN);
    return 0;
}

/* The largest numbers of strands per class (3, 2, 1) and code channels that fit. */
static int channels(struct synth_design *d, struct err *e)
{
    const struct synth_shape *s = &d->ask.shape;
    int classes = 0, room = s->d_model / 2 - SYNTH_BLOCK, r;
    if (d->ask.route && (r = synth_route_channels(d, e)) < 0)
        return r;
    int places = d->n_route || d->ask.cycle > 0 ? SYNTH_PLACE : 0;
    if (places)
        room = s->d_model * 3 / 4 - SYNTH_BLOCK - d->n_route - places;
    for (int k = 0; k < SYNTH_CLASSES; k++)
        classes += d->ask.setting.memory[k].share > 0;
    d->own_strands = d->ask.setting.layer_share > 0;
    int own = d->own_strands ? SYNTH_BLOCK * (s->n_layers - 1) : 0;
    if (room < SYNTH_BLOCK)
        return err_set(e, ERR_USAGE, "--d-model %d: a text needs %d", s->d_model,
                       synth_route_width(d->n_route + places + 2 * SYNTH_BLOCK));
    if (own > room - SYNTH_BLOCK * (classes + 1))
        return err_set(e, ERR_USAGE, "--layer-share needs 32 channels in each of %d layers: --d-model %d is too narrow",
                       s->n_layers - 1, s->d_model);
    room -= own;
    d->n_strands = 3 * classes;
    while (d->n_strands > 0 && (d->n_strands > s->n_heads || SYNTH_BLOCK * (d->n_strands + 1) > room))
        d->n_strands -= classes;
    if (classes > 0 && d->n_strands == 0)
        return err_set(e, ERR_USAGE, "memory needs --heads of %d or more and --d-model of %d or more", classes,
                       places ? synth_route_width(SYNTH_BLOCK * (classes + 2) + d->n_route + places)
                                  : 2 * SYNTH_BLOCK * (classes + 2));
    room -= SYNTH_BLOCK * d->n_strands;
    int most = classes > 0 ? 2 * SYNTH_BLOCK : 8 * SYNTH_BLOCK; /* the same rank with memory and without */
    d->n_code = room < most ? room / SYNTH_BLOCK * SYNTH_BLOCK : most;
    d->code0 = SYNTH_BLOCK;
    d->memory0 = d->code0 + d->n_code;
    d->route0 = d->memory0 + SYNTH_BLOCK * d->n_strands;
    d->place0 = d->route0 + d->n_route;
    d->own0 = d->place0 + places;
    d->ordinary0 = d->own0 + own;
    return 0;
}

static double frequency(const struct synth_design *d, int pair)
{
    return pow(d->ask.shape.rope_base, -2.0 * pair / d->head_dim);
}

static double recency(const struct synth_design *d, const struct synth_strand *s, double distance)
{
    double sum = 0;
    for (int i = 0; i < s->n_pairs; i++)
        sum += cos(frequency(d, s->pair + i) * distance);
    return sum / s->n_pairs;
}

/* Pairs and scores of one strand, as the page on synthetic models has them. */
static int attend(struct synth_design *d, struct synth_strand *s, double period, int flags_in_group, struct err *e)
{
    double lowest = 1;
    int pairs = d->head_dim / 2 - flags_in_group;
    if (pairs < 1)
        return err_set(e, ERR_USAGE, "heads of %d channels have no room for the keys of %d strands", d->head_dim,
                       flags_in_group);
    while (s->pair < pairs - 1 && frequency(d, s->pair) > 1 / (3 * period))
        s->pair++;
    s->n_pairs = pairs - s->pair < 3 ? pairs - s->pair : 3;
    s->slope = SLOPE / (1 - recency(d, s, fmax(1, period / 2)));
    for (int distance = 1; distance < 64 * period; distance++)
        lowest = fmin(lowest, recency(d, s, distance));
    s->carrier = (s->slope * (1 - lowest) + 12) / 2;
    return 0;
}

/* Strands go to different groups as long as there are any: keys and values belong to a group. */
static int strands(struct synth_design *d, struct err *e)
{
    const struct synth_shape *s = &d->ask.shape;
    int classes = 0, class[SYNTH_CLASSES], r = 0;
    for (int k = 0; k < SYNTH_CLASSES; k++)
        if (d->ask.setting.memory[k].share > 0)
            class[classes++] = k;
    int slices = (d->n_code < d->head_dim ? d->n_code : d->head_dim) / SYNTH_BLOCK;
    for (int j = 0; r == 0 && j < d->n_strands; j++) {
        int kv = j % s->n_kv_heads, in_group = j / s->n_kv_heads;
        int others = (d->n_strands - kv + s->n_kv_heads - 1) / s->n_kv_heads;
        d->strands[j] = (struct synth_strand){
            .class = class[j % classes], .kv_head = kv, .head = kv * d->group + in_group, .slice = j % slices,
            .flag = SYNTH_CONSTS + j, .flag_pair = d->head_dim / 2 - 1 - in_group,
        };
        r = attend(d, &d->strands[j], d->ask.setting.memory[class[j % classes]].period, others, e);
    }
    if (r == 0 && d->own_strands) {
        d->own = (struct synth_strand){ .flag_pair = d->head_dim / 2 - 1 };
        r = attend(d, &d->own, SYNTH_OWN_PERIOD, 1, e);
    }
    return r;
}

/* m_l: M + s_layer * normal quantiles in random order, M such that the mean over layers is the rate. */
static void layer_rates(struct synth_design *d)
{
    const struct synth_setting *s = &d->ask.setting;
    int n = d->ask.shape.n_layers;
    double low = -20, high = 20, sum, m = 0;
    for (int step = 0; step < 100; step++) {
        m = (low + high) / 2;
        sum = 0;
        for (int l = 0; l < n; l++) {
            uint32_t rank = synth_permute(synth_mix(d->ask.seed, 77), (uint32_t)l, (uint32_t)n);
            d->layer[l].mean = m + s->layer_spread * synth_quantile((rank + 0.5) / n);
            d->layer[l].rate = synth_cdf(-d->layer[l].mean / sqrt(1 + s->skew * s->skew));
            sum += d->layer[l].rate;
        }
        if (sum > d->gate_rate * n)
            low = m;
        else
            high = m;
    }
}

uint32_t synth_type_of(const struct synth_request *q, enum model_role role, int layer, int *more)
{
    *more = 0;
    if (model_role_is_vector(role) || role == MODEL_FFN_ROUTER)
        return QUANT_F32;
    if (model_role_is_ffn(role) && q->ffn_type != q->type)
        return q->ffn_type;
    if (q->type != SYNTH_Q4_K_M)
        return q->type;
    *more = role == MODEL_OUTPUT ||
            ((role == MODEL_ATTN_V || role == MODEL_FFN_DOWN) && mix_more_bits(layer, q->shape.n_layers));
    return *more ? QUANT_Q6_K : QUANT_Q4_K;
}

/* Gate and Up of unit variance; E[silu(x)^2 y^2] = 0.3558 for x, y ~ N(0, 1); all layers together add 3. Attention as rows have it. */
static double pool_deviation(const struct synth_shape *s, enum model_role role)
{
    switch (role) {
    case MODEL_FFN_DOWN:    return sqrt(3 / (0.3558 * s->n_layers * s->n_ff));
    case MODEL_ATTN_Q:
    case MODEL_ATTN_K:      return sqrt(2.0 / s->d_model);
    case MODEL_ATTN_OUTPUT: return 1 / sqrt((double)s->n_heads * head_dim(s) * s->n_layers);
    case MODEL_DELTA_OUT:   return 1 / sqrt(1.2 * s->d_model * s->n_layers);
    default:                return 1 / sqrt(s->d_model);
    }
}

static int pools(struct synth_design *d, struct err *e)
{
    static const enum model_role roles[] = { MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN, MODEL_ATTN_Q, MODEL_ATTN_K, MODEL_ATTN_V,
                                             MODEL_ATTN_OUTPUT, MODEL_DELTA_QKV, MODEL_DELTA_Z, MODEL_DELTA_OUT };
    const struct synth_request *q = &d->ask;
    size_t n = q->type == SYNTH_Q4_K_M ? sizeof roles / sizeof roles[0] : q->ffn_type != q->type ? 3 : 0;
    for (size_t i = 0; i < n; i++)
        for (int l = 0, more; l < q->shape.n_layers; l++) {
            uint32_t type = synth_type_of(q, roles[i], l, &more);
            uint64_t key = roles[i] == MODEL_FFN_DOWN ? 0x706f6f6du : 0x706f6f6cu;
            uint8_t **pool = &d->pool[roles[i]][more];
            if (!*pool && !(*pool = synth_pool(type, pool_deviation(&q->shape, roles[i]), synth_mix(q->seed, key))))
                return err_set(e, ERR_NOMEM, "%d blocks", SYNTH_POOL);
        }
    return 0;
}

int synth_design(const struct synth_request *ask, struct synth_design *out, struct err *e)
{
    struct synth_design d = { .ask = *ask };
    const struct synth_shape *s = &d.ask.shape;
    int r = check(ask, e);
    if (r < 0)
        return r;
    d.head_dim = head_dim(s);
    d.group = s->n_heads / s->n_kv_heads;
    d.gate_rate = ask->act == MODEL_ACT_DRELU ? ask->setting.rate / UP_OPEN : ask->setting.rate;
    d.up_bias = ask->act == MODEL_ACT_DRELU ? synth_quantile(UP_OPEN) : 0;
    if ((r = channels(&d, e)) < 0 || (r = strands(&d, e)) < 0)
        return r;
    if (!(d.layer = calloc((size_t)s->n_layers + 1, sizeof *d.layer)))
        return err_set(e, ERR_NOMEM, "%d layers", s->n_layers);
    if (((d.n_route || ask->cycle > 0) && (r = synth_places(&d, e)) < 0) || (r = pools(&d, e)) < 0) {
        synth_design_done(&d);
        return r;
    }
    layer_rates(&d);
    /* Channels that are not zero in an embedding, all of mean square 1; then what layers add to the ordinary ones:
     * 3 / layers by each FFN, about half of 1 / layers by each attention. */
    double control = SYNTH_CONSTS + d.n_strands + d.n_code + (d.own0 - d.route0), ordinary = s->d_model - d.ordinary0;
    d.embed_rms = sqrt((control + ordinary) / s->d_model);
    for (int l = 0; l < s->n_layers; l++) {
        double added = (3.0 * l + 0.5 * (l + 1)) / s->n_layers, own = d.own_strands ? SYNTH_BLOCK * l : 0;
        double strands = SYNTH_BLOCK * d.n_strands;
        d.layer[l].rms = sqrt((control + strands + own + ordinary * (1 + added)) / s->d_model);
        d.layer[l].attn_rms = sqrt((control + (l ? strands + own - (d.own_strands ? SYNTH_BLOCK : 0) : 0) +
                                    ordinary * (1 + added - 0.5 / s->n_layers)) / s->d_model);
    }
    /* The layer for multi-token prediction sees an embedding, as the first does, and fires as the last. */
    d.layer[s->n_layers] = d.layer[s->n_layers - 1];
    d.layer[s->n_layers].rms = sqrt((control + ordinary * (1 + 0.5 / s->n_layers)) / s->d_model);
    d.layer[s->n_layers].attn_rms = d.embed_rms;
    *out = d;
    return 0;
}

void synth_design_done(struct synth_design *d)
{
    free(d->layer);
    free(d->recorded);
    free(d->token);
    free(d->place);
    for (int r = 0; r < MODEL_ROLES; r++)
        for (int more = 0; more < 2; more++) {
            free(d->pool[r][more]);
            d->pool[r][more] = NULL;
        }
    d->layer = NULL;
    d->recorded = d->token = d->place = NULL;
}
