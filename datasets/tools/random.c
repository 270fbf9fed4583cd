/* gguf-make random: a model of a given shape whose weights are noise, scaled so that activations stay near 1 and
 * logits are of the order of a trained model's: matrices have the deviation 1 / sqrt(row length), those that write into
 * the residual stream another 1 / sqrt(2 layers), the head 2 / sqrt(d_model). Every value follows from (seed,
 * tensor, row, column) by integer arithmetic and exact scaling, so the file is the same everywhere.
 * The vocabulary is copied from another model or made up: bytes, then strings of letters that merging can
 * reach. */
#include "common/base/bytes.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/splitmix.h"
#include "common/cli/opt.h"
#include "common/kernels/quant.h"
#include "common/model/mix.h"
#include "common/model/model.h"
#include "datasets/tools/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct family families[] = {
    { .arch = "llama", .own_keys = 1 },
    { .arch = "smallthinker", .own_keys = 1, .experts = 1, .expert_width = 1, .window = 1 },
    { .arch = "qwen2" },
    { .arch = "qwen2moe", .experts = 1, .expert_width = 1, .shared = 1, .untied = 1 },
    { .arch = "qwen3", .key_length = 1 },
    { .arch = "qwen3moe", .key_length = 1, .experts = 1, .expert_width = 1 },
    { .arch = "olmoe", .experts = 1, .untied = 1 },
    { .arch = "gpt-oss", .key_length = 1, .experts = 1, .expert_width = 1, .untied = 1, .window = 1 },
    { .arch = "mistral3", .key_length = 1, .temperature = 1 },
    { .arch = "seed_oss", .key_length = 1 },
    { .arch = "gemma", .key_length = 1 },
    { .arch = "gemma2", .key_length = 1, .window = 1, .softcaps = 1 },
    { .arch = "gemma3", .key_length = 1, .window = 1 },
    { .arch = "gemma4", .expert_width = 1, .window = 1, .kinds = 1 },
    { .arch = "olmo2", .untied = 1, .window = 2 },
    { .arch = "exaone4", .key_length = 1, .window = 2 },
    { .arch = "glm4", .untied = 1, .rope_share = 2, .fused = 2 },
    { .arch = "hunyuan-moe", .experts = 1, .expert_width = 1, .shared = 1 },
    { .arch = "minimax-m2", .key_length = 1, .experts = 1, .expert_width = 1, .untied = 1, .lead = 4, .rope_share = 2, .sigmoid = 1 },
    { .arch = "bailingmoe2", .experts = 1, .expert_width = 1, .shared = 1, .untied = 1, .lead = 1, .rope_share = 2, .joined = 1,
      .sigmoid = 1 },
    { .arch = "jais2", .rope_share = 1, .ungated = 1, .untied = 1, .layer_norm = 1, .biased = 1 },
    { .arch = "muse-glimmer", .key_length = 1, .untied = 1, .window = 2, .capped = 1 },
    { .arch = "smollm3" },
    { .arch = "granite", .scales = 1 },
    { .arch = "granitemoe", .experts = 1, .shared = 1, .scales = 1 },
    { .arch = "granitehybrid", .shared = 1, .scales = 1, .ssm = 1 },
    { .arch = "glm4moe", .key_length = 1, .experts = 1, .expert_width = 1, .untied = 1, .lead = 1, .rope_share = 2, .sigmoid = 1 },
    { .arch = "deepseek2", .experts = 1, .expert_width = 1, .untied = 1, .lead = 1, .latent = 1 },
    { .arch = "glm-dsa", .experts = 1, .expert_width = 1, .untied = 1, .lead = 1, .latent = 2, .sigmoid = 1 },
    { .arch = "phi3", .rope_share = 1, .fused = 1, .untied = 1, .window = 1 },
    { .arch = "arcee", .rope_share = 1, .ungated = 1 },
    { .arch = "qwen3next", .key_length = 1, .experts = 1, .expert_width = 1, .shared = 1, .untied = 1, .rope_share = 4, .delta = 1 },
    { .arch = "qwen35", .key_length = 1, .rope_share = 4, .delta = 2 },
    { .arch = "qwen35moe", .key_length = 1, .experts = 1, .expert_width = 1, .shared = 1, .untied = 1, .rope_share = 4, .delta = 2 },
    { .arch = "lfm2", .conv = 1 },
    { .arch = "lfm2moe", .experts = 1, .expert_width = 1, .lead = 2, .sigmoid = 1, .conv = 1 },
    { .arch = "nemotron", .rope_share = 2, .ungated = 1, .untied = 1, .layer_norm = 1 },
    { .arch = "nemotron_h", .key_length = 1, .ungated = 1, .untied = 1, .ssm = 2 },
    { .arch = "nemotron_h_moe", .key_length = 1, .experts = 1, .expert_width = 1, .shared = 1, .untied = 1, .lead = 3, .ungated = 1,
      .sigmoid = 1, .ssm = 2 },
    { .arch = "falcon", .ungated = 1, .layer_norm = 1, .joined = 1 },
    { .arch = "opt", .ungated = 1, .positions = 1 },
    { .arch = "rwkv7", .ungated = 1, .untied = 1, .wkv = 7 },
    { .arch = "rwkv6", .ungated = 1, .untied = 1, .wkv = 6 },
};

/* Sizes and types of files that people download; gguf-make takes what their keys say. */
static const struct published {
    const char *name, *arch, *type, *more, *embd, *expert;
    int layers, d_model, heads, kv_heads, full_kv_heads, head_dim, ff, wide, vocab, context, experts, experts_used, untied, window;
    int rope_freqs;
    double rope_base, yarn, eps;
} published[] = {
    { "llama-3.1-8b-q4_k_m", "llama", "q4_k", "q6_k", NULL, NULL,
      32, 4096, 32, 8, 0, 0, 14336, 0, 128256, 131072, 0, 0, 1, 0, 1, 5e5, 0, 1e-5 },
    { "qwen3-8b-q4_k_m", "qwen3", "q4_k", "q6_k", NULL, NULL,
      36, 4096, 32, 8, 0, 128, 12288, 0, 151936, 40960, 0, 0, 1, 0, 0, 1e6, 0, 1e-6 },
    { "qwen3-30b-a3b-q4_k_m", "qwen3moe", "q4_k", "q6_k", NULL, NULL,
      48, 2048, 32, 4, 0, 128, 768, 6144, 151936, 40960, 128, 8, 1, 0, 0, 1e6, 0, 1e-6 },
    { "gpt-oss-20b-mxfp4", "gpt-oss", "q8_0", NULL, NULL, "mxfp4",
      24, 2880, 64, 8, 0, 64, 2880, 2880, 201088, 131072, 32, 4, 1, 128, 0, 1.5e5, 32, 1e-5 },
    { "gemma-4-26b-a4b-q4_0", "gemma4", "q4_0", NULL, "q6_k", NULL,
      30, 2816, 16, 8, 2, 256, 704, 2112, 262144, 262144, 128, 8, 0, 1024, 0, 1e6, 0, 1e-6 },
    { 0 }
};

/* --- weights ----------------------------------------------------------------------------- */

/* The sum of four uniform 16-bit numbers: near enough to a normal distribution, and exact. */
static float noise(uint64_t bits)
{
    int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) + (int32_t)(bits >> 32 & 0xffff) +
                  (int32_t)(bits >> 48);
    return (float)(sum - 2 * 0xffff) * (1.7320508f / 65536); /* variance 1 */
}

static int random_row(const struct make_tensor *t, uint64_t row, float *out, struct err *e)
{
    (void)e;
    uint64_t start = splitmix_at(t->stream ^ splitmix_at(row));
    for (uint64_t i = 0; i < t->dims[0]; i++)
        out[i] = t->mean + t->deviation * noise(splitmix_at(start + i));
    return 0;
}

/* Layers whose FFN is as wide as the widest: all, mostly. */
static int widest_layers(const struct model_hparams *h)
{
    int n = 0;
    for (int l = 0; l < h->n_layers; l++)
        n += model_n_ff(h, l) == h->n_ff;
    return n;
}

/* Norms are near 1 and biases near 0. Divisors of rotation are Llama 3's in size. */
static void distribution(const struct model_hparams *h, enum model_role r, struct make_tensor *t)
{
    double fan_in = 1 / sqrt((double)t->dims[0]);
    int writes = r == MODEL_ATTN_OUTPUT || r == MODEL_FFN_DOWN || r == MODEL_SHARED_DOWN || r == MODEL_LEAD_DOWN ||
                 r == MODEL_DELTA_OUT || r == MODEL_CONV_OUT || r == MODEL_SSM_OUT || r == MODEL_WKV_OUTPUT || r == MODEL_LAYER_OUT;
    t->mean = 0;
    t->deviation = (float)(writes ? fan_in / sqrt(2.0 * widest_layers(h)) : fan_in);
    if (r == MODEL_TOKEN_EMBD || r == MODEL_OUTPUT)
        t->deviation = (float)(2 * fan_in);
    if (r == MODEL_ROPE_FREQS || r == MODEL_ROPE_LONG)
        t->mean = 4, t->deviation = 1;
    else if (r == MODEL_DELTA_A) /* decays between a half and nearly one */
        t->mean = -0.4f, t->deviation = 0.15f;
    else if (r == MODEL_SSM_A) /* always below 0 */
        t->mean = -0.8f, t->deviation = 0.2f;
    else if (r == MODEL_SSM_D || r == MODEL_SSM_NORM)
        t->mean = 1, t->deviation = 0.1f;
    else if (r == MODEL_WKV_LERP || r == MODEL_FFN_LERP || r == MODEL_WKV_LERP_X || r == MODEL_FFN_LERP_R)
        t->mean = 0.5f, t->deviation = 0.25f;
    else if (r == MODEL_WKV_DECAY) /* as of trained ones: most states last for tens of tokens */
        t->mean = -2, t->deviation = 1.5f;
    else if (r == MODEL_WKV_RATE || r == MODEL_WKV_VALUE)
        t->deviation = 1;
    else if (r == MODEL_WKV_R_K)
        t->deviation = 0.2f;
    else if (r == MODEL_FFN_THRESHOLD) /* noise stays within 3.5 deviations */
        t->mean = 0.3f, t->deviation = 0.08f;
    else if (strstr(t->name, ".bias"))
        t->deviation = 0.2f;
    else if (r == MODEL_ATTN_SINKS)
        t->deviation = 1;
    else if (t->n_dims == 1 && r != MODEL_SHARED_ROUTER)
        t->mean = 1, t->deviation = 0.1f;
}

/* Biases only where the architecture must have them. */
static int is_wanted(const struct model_hparams *h, const struct shape *s, enum model_role role, int layer)
{
    if (role == MODEL_ATTN_NORM_2 || role == MODEL_ATTN_NORM_2_BIAS)
        return s->two_norms && model_role_presence(h, role) != MODEL_ABSENT;
    if (role == MODEL_ATTN_Q_NORM || role == MODEL_ATTN_K_NORM)
        return model_role_at(h, role, layer) == MODEL_REQUIRED || (s->qk_norms && model_role_at(h, role, layer) == MODEL_OPTIONAL);
    if (role == MODEL_FFN_GATE_BIAS || role == MODEL_FFN_UP_BIAS || role == MODEL_FFN_DOWN_BIAS)
        return model_role_at(h, role, layer) == MODEL_REQUIRED ||
               ((s->ffn_biases || s->family->positions || s->family->biased) && model_role_at(h, role, layer) == MODEL_OPTIONAL);
    if (s->family->biased && (role == MODEL_ATTN_OUTPUT_BIAS || (role >= MODEL_ATTN_Q_BIAS && role <= MODEL_ATTN_V_BIAS)))
        return 1;
    if (role == MODEL_ROPE_FREQS)
        return s->rope_freqs || s->family->kinds;
    if (s->family->kinds && role == MODEL_ATTN_V)
        return (model_has_window(h, layer) || h->layer_embd) && model_role_at(h, role, layer) != MODEL_ABSENT;
    if (role == MODEL_OUT_SCALE)
        return model_role_at(h, role, layer) != MODEL_ABSENT;
    if (role == MODEL_OUTPUT)
        return !h->tied_output;
    return model_role_at(h, role, layer) == MODEL_REQUIRED;
}

/* Of the matrices alone. */
static uint32_t type_of(const struct model_hparams *h, const struct shape *s, enum model_role role, int layer)
{
    int more = (role == MODEL_ATTN_V || role == MODEL_FFN_DOWN) && layer >= 0 && mix_more_bits(layer, h->n_layers);
    if (model_role_is_vector(role) || role == MODEL_FFN_ROUTER)
        return QUANT_F32;
    if (role == MODEL_WKV_MIX_A || role == MODEL_WKV_MIX_B)
        return QUANT_F32;
    if (role >= MODEL_WKV_DECAY_A && role <= MODEL_WKV_GATE_B) /* as converters and llama-quantize leave them */
        return role <= MODEL_WKV_DECAY_B ? QUANT_F32 : quant_traits(s->type)->block_elems > 1 ? QUANT_F16 : s->type;
    if (role == MODEL_TOKEN_EMBD)
        return s->embd;
    if (model_role_is_ffn(role) && h->n_experts > 0 && s->expert_name)
        return s->expert;
    return role == MODEL_OUTPUT || more ? s->more : s->type;
}

/* A type that this build reads; those that it does not write (IQ1 to IQ3) are made of random bytes. */
static int random_type(const char *name, uint32_t *out, struct err *e)
{
    int t = quant_by_name(name);
    if (t < 0 || quant_traits((uint32_t)t)->quant || !quant_traits((uint32_t)t)->dequant)
        return make_type(name, out, e);
    *out = (uint32_t)t;
    return 0;
}

/* A block's scale: a half, or in IQ1_M the highest bits of four others. */
static void put_scale(const struct quant_traits *q, uint8_t *block, uint16_t half)
{
    for (int i = 0; i < 4 && q == quant_traits(QUANT_IQ1_M); i++)
        block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
    if (q->n_halves)
        bytes_put16(block + q->half_at[0], half);
}

/* A block of a type that is read and not written (IQ1 to IQ3): any bytes are one, and its scale gives it the tensor's deviation. */
static void any_block(const struct quant_traits *q, const struct make_tensor *t, uint64_t b, uint8_t *out)
{
    float values[256];
    double sum = 0;
    for (int i = 0; i < q->block_bytes; i++)
        out[i] = (uint8_t)splitmix_at(t->stream + b * 256 + (uint64_t)i);
    put_scale(q, out, quant_f32_to_f16(1));
    q->dequant(values, out, (size_t)q->block_elems);
    for (int i = 0; i < q->block_elems; i++)
        sum += (double)values[i] * (double)values[i];
    put_scale(q, out, quant_f32_to_f16(t->deviation / (float)sqrt(sum / q->block_elems)));
}

/* Blocks of a tensor's distribution and type: one pool for all tensors that share both. */
static int pool_of(struct make *m, struct make_tensor *t, struct err *e)
{
    const struct quant_traits *q = quant_traits(t->type);
    float values[256];
    uint8_t *pool;
    if (q->block_elems < 2 || q->block_elems > 256)
        return 0;
    for (int i = 0; i < m->n_tensors; i++) {
        const struct make_tensor *o = &m->tensors[i];
        if (o->pool && o->type == t->type && o->mean >= t->mean && o->mean <= t->mean && o->deviation >= t->deviation &&
            o->deviation <= t->deviation) {
            t->pool = o->pool;
            return 0;
        }
    }
    if (m->n_pools == MAKE_POOLS || !(pool = malloc((size_t)MAKE_POOL * q->block_bytes)))
        return err_set(e, ERR_NOMEM, "tensor '%s': a pool of blocks, the %d-th", t->name, m->n_pools + 1);
    m->pools[m->n_pools++] = pool;
    for (uint64_t b = 0; b < MAKE_POOL; b++) {
        for (int i = 0; i < q->block_elems && q->quant; i++)
            values[i] = t->mean + t->deviation * noise(splitmix_at(t->stream + b * 256 + (uint64_t)i));
        if (q->quant)
            q->quant(pool + b * q->block_bytes, values, (size_t)q->block_elems);
        else
            any_block(q, t, b, pool + b * q->block_bytes);
    }
    t->pool = pool;
    return 0;
}

static int add_named(struct make *m, const struct shape *s, struct make_tensor *t, struct err *e)
{
    t->stream = splitmix_at(s->seed ^ hash_64(t->name, strlen(t->name)));
    int r = s->pooled || !quant_traits(t->type)->quant ? pool_of(m, t, e) : 0;
    return r < 0 ? r : make_add(m, t, e);
}

/* Parts of a fused tensor: the last part stands for all. 0: the tensor is not there by itself. */
static int fuse(const struct model_hparams *h, const struct family *f, enum model_role role, struct make_tensor *t)
{
    if (((f->fused == 1 || f->joined) && (role == MODEL_ATTN_Q || role == MODEL_ATTN_K)) ||
        ((f->fused || f->ungated) && (role == MODEL_FFN_GATE || role == MODEL_FFN_GATE_BIAS)))
        return 0;
    if (f->wkv && role == MODEL_FFN_UP) {
        char *end = strstr(t->name, "ffn_up.");
        snprintf(end, sizeof t->name - (size_t)(end - t->name), "channel_mix_key.weight");
    }
    if (f->fused && role == MODEL_FFN_UP)
        t->dims[1] *= 2;
    if ((f->fused == 1 || f->joined) && role == MODEL_ATTN_V) {
        char *end = strstr(t->name, "attn_v.");
        snprintf(end, sizeof t->name - (size_t)(end - t->name), "attn_qkv.weight");
        t->dims[1] = (uint64_t)(model_q_dim(h) + 2 * h->n_kv_heads * h->head_dim);
    }
    if (f->kinds && h->n_experts > 0 && role == MODEL_FFN_GATE)
        return 0;
    if (f->kinds && h->n_experts > 0 && role == MODEL_FFN_UP) {
        char *end = strstr(t->name, "ffn_up_");
        snprintf(end, sizeof t->name - (size_t)(end - t->name), "ffn_gate_up_exps.weight");
        t->dims[1] *= 2;
    }
    return 1;
}

static int add_tensor(struct make *m, const struct model_hparams *h, const struct shape *s, enum model_role role,
                      int layer, struct err *e)
{
    struct make_tensor t = { .row = random_row };
    if (!is_wanted(h, s, role, layer))
        return 0;
    t.n_dims = model_tensor_shape_at(h, role, layer, t.dims);
    if (t.n_dims < 0 || model_tensor_name(h, role, layer, t.name, sizeof t.name) < 0)
        return 0;
    if (!fuse(h, s->family, role, &t))
        return 0;
    t.type = type_of(h, s, role, layer);
    distribution(h, role, &t);
    return add_named(m, s, &t, e);
}

/* Layers that predict further tokens: an experts' layer and what joins it to the others. */
static int add_nextn(struct make *m, const struct model_hparams *h, const struct shape *s, int blk, struct err *e)
{
    static const char *const own[] = { "eh_proj", "enorm", "hnorm", "shared_head_norm" };
    static const enum model_role tables[] = { MODEL_TOKEN_EMBD, MODEL_OUTPUT };
    static const char *const names[] = { "embed_tokens", "shared_head_head" };
    uint64_t d = (uint64_t)h->d_model;
    struct model_hparams last = *h;
    int r = 0;
    last.n_lead = blk; /* layer 0 is the file's blk then */
    last.full_period = 0; /* attention */
    for (int role = 0; r == 0 && role < MODEL_ROLES; role++)
        if (model_role_is_per_layer((enum model_role)role))
            r = add_tensor(m, &last, s, (enum model_role)role, 0, e);
    for (size_t i = 0; r == 0 && i < sizeof own / sizeof own[0]; i++) {
        struct make_tensor t = { .row = random_row, .type = i ? QUANT_F32 : s->type, .n_dims = i ? 1 : 2,
                                 .dims = { i ? d : 2 * d, i ? 1 : d, 1, 1 } };
        snprintf(t.name, sizeof t.name, "blk.%d.nextn.%s.weight", blk, own[i]);
        distribution(h, MODEL_ATTN_NORM, &t);
        r = add_named(m, s, &t, e);
    }
    for (int i = 0; r == 0 && s->nextn_own && i < 2; i++) {
        struct make_tensor t = { .row = random_row, .type = type_of(h, s, tables[i], -1), .n_dims = 2,
                                 .dims = { d, (uint64_t)h->n_vocab, 1, 1 } };
        snprintf(t.name, sizeof t.name, "blk.%d.nextn.%s.weight", blk, names[i]);
        distribution(h, tables[i], &t);
        r = add_named(m, s, &t, e);
    }
    return r;
}

/* RWKV's first layer mixes no values, but files have what would do it. */
static int add_unused(struct make *m, const struct model_hparams *h, const struct shape *s, struct err *e)
{
    uint64_t d = (uint64_t)h->d_model, rank = (uint64_t)h->rate_rank; /* converters copy the learning rates' */
    const uint64_t dims[3][2] = { { d, 1 }, { d, rank }, { rank, d } };
    int r = 0;
    for (int i = 0; r == 0 && i < 3; i++) {
        struct make_tensor t = { .row = random_row, .type = i ? type_of(h, s, MODEL_WKV_RATE_A, 0) : QUANT_F32, .n_dims = i ? 2 : 1,
                                 .dims = { dims[i][0], dims[i][1], 1, 1 } };
        snprintf(t.name, sizeof t.name, "blk.0.time_mix_v%d.weight", i);
        distribution(h, i ? MODEL_WKV_RATE_A : MODEL_WKV_RATE, &t);
        r = add_named(m, s, &t, e);
    }
    return r;
}

/* What chooses the positions that sparse attention sees, in its first layer and every fourth from there. */
static int add_indexer(struct make *m, const struct shape *s, int blk, struct err *e)
{
    const uint64_t dim = RANDOM_INDEXER, rank = (uint64_t)s->q_rank, d = (uint64_t)s->d_model;
    const struct { const char *name; uint64_t dims[2]; } own[] = {
        { "attn_k.weight", { d, dim } }, { "attn_q_b.weight", { rank, 2 * dim } }, { "proj.weight", { d, 2 } },
        { "k_norm.weight", { dim, 1 } }, { "k_norm.bias", { dim, 1 } },
    };
    int r = 0;
    for (size_t i = 0; r == 0 && random_indexes(s, blk) && i < sizeof own / sizeof own[0]; i++) {
        struct make_tensor t = { .row = random_row, .type = i < 2 ? s->type : QUANT_F32, .n_dims = i < 3 ? 2 : 1, .mean = i == 3,
                                 .deviation = 0.1f, .dims = { own[i].dims[0], own[i].dims[1], 1, 1 } };
        snprintf(t.name, sizeof t.name, "blk.%d.indexer.%s", blk, own[i].name);
        r = add_named(m, s, &t, e);
    }
    return r;
}

static int add_tensors(struct make *m, const struct model_hparams *h, const struct shape *s, struct err *e)
{
    int r = 0;
    for (int role = 0; r == 0 && role < MODEL_ROLES; role++)
        if (!model_role_is_per_layer((enum model_role)role))
            r = add_tensor(m, h, s, (enum model_role)role, -1, e);
    for (int i = 0; r == 0 && !s->nextn_only && i < model_depth(h); i++)
        for (int role = 0; r == 0 && role < MODEL_ROLES; role++)
            if (model_role_is_per_layer((enum model_role)role))
                r = add_tensor(m, h, s, (enum model_role)role, model_layer_at(h, i), e);
    if (r == 0 && h->wkv_dim && !h->mix_rank)
        r = add_unused(m, h, s, e);
    for (int i = 0; r == 0 && i < s->layers; i++)
        r = add_indexer(m, s, i, e);
    for (int i = 0; r == 0 && i < h->n_nextn; i++)
        r = add_nextn(m, h, s, model_depth(h) + i, e);
    return r;
}

/* --- the model --------------------------------------------------------------------------- */

/* Experts and what the architecture asks of them. */
static int check_experts(struct shape *s, struct err *e)
{
    if (s->family->sigmoid && s->gating == UNSTATED)
        s->gating = SIGMOID;
    const char *arch = s->family->arch;
    int small = !strcmp(arch, "smallthinker");
    if (s->experts > 0 && (s->experts_used < 1 || s->experts_used > s->experts))
        return err_set(e, ERR_USAGE, "--experts-used %d is outside 1 to --experts %d", s->experts_used, s->experts);
    if (s->experts == 0 && s->experts_used > 0)
        return err_set(e, ERR_USAGE, "--experts-used %d without --experts", s->experts_used);
    if (s->experts == 0 && s->gating != UNSTATED)
        return err_set(e, ERR_USAGE, "--gating without --experts");
    if (s->family->experts && s->experts == 0)
        return err_set(e, ERR_USAGE, "--arch %s needs --experts and --experts-used", arch);
    if (!small && !s->family->lead && s->gating == SIGMOID)
        return err_set(e, ERR_USAGE, "--gating sigmoid is not known for --arch %s", arch);
    if (!s->family->lead && (s->lead > 0 || (s->nextn > 0 && !s->family->delta) || s->groups > 1))
        return err_set(e, ERR_USAGE, "--lead, --nextn and --groups are not known for --arch %s", arch);
    if ((s->nextn_own || s->nextn_only) && s->nextn == 0)
        return err_set(e, ERR_USAGE, "--nextn-%s without --nextn", s->nextn_own ? "own" : "only");
    if (s->lead >= s->layers)
        return err_set(e, ERR_USAGE, "--lead %d of --layers %d; some must have experts", s->lead, s->layers);
    if (s->two_norms && !s->family->joined)
        return err_set(e, ERR_USAGE, "--two-norms is not known for --arch %s", arch);
    if (s->family->positions && (s->kv_heads != s->heads || s->context < 4))
        return err_set(e, ERR_USAGE, "--arch %s has as many --kv-heads as --heads, and a --context of 4 or more", arch);
    if (!s->family->window && s->window > 0)
        return err_set(e, ERR_USAGE, "--window is not known for --arch %s", arch);
    return 0;
}

/* What the option table cannot say. */
static int check(struct shape *s, struct err *e)
{
    if (s->kv_heads == 0)
        s->kv_heads = s->family->latent ? 1 : s->heads;
    if (s->head_dim == 0 && (s->d_model % s->heads != 0 || s->d_model / s->heads % 2 != 0))
        return err_set(e, ERR_USAGE, "--d-model %d is not an even multiple of --heads %d", s->d_model, s->heads);
    s->head_dim = s->head_dim ? s->head_dim : s->d_model / s->heads;
    if (s->head_dim % (s->family->latent ? 4 : 2) != 0)
        return err_set(e, ERR_USAGE, s->family->latent ? "--head-dim %d is no multiple of 4" : "--head-dim %d is odd", s->head_dim);
    if (!s->family->latent && (s->kv_rank > 0 || s->q_rank > 0))
        return err_set(e, ERR_USAGE, "--kv-rank and --q-rank are not known for --arch %s", s->family->arch);
    if (s->family->latent == 2 && s->q_rank == 0)
        return err_set(e, ERR_USAGE, "--arch %s needs --q-rank", s->family->arch);
    if (s->family->kinds && (s->layers < 6 || s->window == 0))
        return err_set(e, ERR_USAGE, "--arch %s needs --window and 6 --layers or more", s->family->arch);
    if (!s->family->kinds && (s->layer_embd || s->shared_kv || (s->narrow && s->family->ssm != 2)))
        return err_set(e, ERR_USAGE, "--layer-embd, --shared-kv and --narrow are not known for --arch %s", s->family->arch);
    if (s->narrow && ((s->family->kinds && (s->shared_kv == 0 || s->wide == 0)) || s->experts > 0))
        return err_set(e, ERR_USAGE, "--narrow needs --shared-kv and --wide with --arch gemma4, and no --experts");
    if (!s->family->delta && !s->family->ssm && (s->delta_heads > 0 || s->delta_dim > 0))
        return err_set(e, ERR_USAGE, "--delta-heads and --delta-dim are not known for --arch %s", s->family->arch);
    s->delta_heads = s->delta_heads ? s->delta_heads : s->kv_heads;
    s->delta_dim = s->delta_dim ? s->delta_dim : s->head_dim;
    if (s->family->ssm && (2 * s->d_model % s->delta_heads != 0 || s->delta_heads % 2 != 0))
        return err_set(e, ERR_USAGE, "--delta-heads %d is odd, or twice --d-model %d is no multiple of it", s->delta_heads, s->d_model);
    s->kv_rank = s->family->latent && s->kv_rank == 0 ? 4 * s->head_dim : s->kv_rank;
    if (s->family->wkv && (s->kv_heads != s->heads || s->head_dim * s->heads != s->d_model))
        return err_set(e, ERR_USAGE, "--arch %s has --heads of --d-model / --heads elements, and no --kv-heads", s->family->arch);
    if (s->family->wkv && (s->act >= 0 || s->experts > 0 || s->thresholds || s->ffn_biases || s->qk_norms || s->rope_freqs ||
                           s->rope_scaling))
        return err_set(e, ERR_USAGE, "--arch %s has no --act, --experts, --thresholds, --ffn-biases, --qk-norms and no rotation",
                       s->family->arch);
    if ((s->family->wkv != 7 && (s->rate_rank || s->value_rank || s->gate_rank)) || (!s->family->wkv && s->decay_rank))
        return err_set(e, ERR_USAGE, "--decay-rank, --rate-rank, --value-rank and --gate-rank are not known for --arch %s%s",
                       s->family->arch, s->family->wkv ? ", but for the first" : "");
    if (s->family->wkv != 6 && (s->mix_rank || s->halve_period))
        return err_set(e, ERR_USAGE, "--mix-rank and --halve-period are not known for --arch %s", s->family->arch);
    if (s->heads % s->kv_heads != 0)
        return err_set(e, ERR_USAGE, "--heads %d is not a multiple of --kv-heads %d", s->heads, s->kv_heads);
    int r = check_experts(s, e);
    if (r < 0)
        return r;
    s->untied |= s->family->untied;
    s->full_kv_heads = s->full_kv_heads ? s->full_kv_heads : s->kv_heads == 1 ? 1 : s->kv_heads / 2;
    if (s->heads % s->full_kv_heads != 0)
        return err_set(e, ERR_USAGE, "--heads %d is not a multiple of --full-kv-heads %d", s->heads, s->full_kv_heads);
    if (s->act < 0 && s->family->own_keys && !s->published)
        s->act = strcmp(s->family->arch, "smallthinker") ? MODEL_ACT_SILU : MODEL_ACT_RELU;
    if ((r = random_type(s->type_name, &s->type, e)) < 0 ||
        (r = random_type(s->more_name ? s->more_name : s->type_name, &s->more, e)) < 0 ||
        (r = random_type(s->embd_name ? s->embd_name : s->type_name, &s->embd, e)) < 0)
        return r;
    return random_type(s->expert_name ? s->expert_name : s->type_name, &s->expert, e);
}

/* What a published file has, into s, before the options are read, which go before it. */
static int start_from(struct shape *s, int *arch, int argc, char **argv, struct err *e)
{
    const struct published *p = published;
    const char *name = NULL;
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--published=", 12))
            name = argv[i] + 12;
        else if (!strcmp(argv[i], "--published") && i + 1 < argc)
            name = argv[i + 1];
    if (!name)
        return 0;
    while (p->name && strcmp(p->name, name))
        p++;
    if (!p->name)
        return err_set(e, ERR_USAGE, "--published %s is not known (see --help)", name);
    for (*arch = 0; strcmp(families[*arch].arch, p->arch); ++*arch)
        ;
    *s = (struct shape){ .layers = p->layers, .d_model = p->d_model, .heads = p->heads, .kv_heads = p->kv_heads, .head_dim = p->head_dim,
                         .full_kv_heads = p->full_kv_heads, .ff = p->ff, .wide = p->wide, .vocab = p->vocab,
                         .context = p->context, .experts = p->experts, .experts_used = p->experts_used, .untied = p->untied,
                         .window = p->window, .rope_freqs = p->rope_freqs, .rope_scaling = p->yarn > 0 ? YARN : PLAIN,
                         .rope_factor = p->yarn, .rope_base = p->rope_base, .eps = p->eps, .type_name = p->type, .more_name = p->more,
                         .embd_name = p->embd, .expert_name = p->expert, .name = p->name, .published = p->name, .act = -1, .groups = 1,
                         .seed = 1, .pooled = 1 };
    return 0;
}

/* What the keys say to the reader, which is what the tensors follow from. */
static int read_back(struct shape *s, struct model_hparams *h, struct err *e)
{
    struct make m = { 0 };
    struct gguf *g = NULL;
    uint8_t *head = NULL;
    size_t len;
    int r = make_new(&m, e);
    if (r == 0 && (r = random_keys(&m, s, e)) == 0 && (r = gguf_writer_bool(m.w, "thermocline.tied_output", !s->untied, e)) == 0 &&
        (r = gguf_writer_blob(m.w, &head, &len, e)) == 0 && (r = gguf_parse(head, len, len, "keys", &g, e)) == 0) {
        const struct model_given given = { -1, m.router_unstated ? MODEL_ROUTER_SOFTMAX_TOPK : MODEL_ROUTER_NONE, NULL, 0 };
        r = model_hparams_read(g, &given, h, e);
    }
    gguf_close(g);
    free(head);
    make_free(&m);
    return r;
}

static int make_random(struct shape *s, const char *out, struct err *e)
{
    struct make m = { 0 };
    struct model_hparams h;
    int r = read_back(s, &h, e);
    if (r < 0 || (r = make_new(&m, e)) < 0)
        return r;
    m.nextn_only = s->nextn_only;
    if ((r = random_keys(&m, s, e)) == 0 && (r = add_tensors(&m, &h, s, e)) == 0)
        r = make_save(&m, out, e);
    make_free(&m);
    return r;
}

int cmd_random(int argc, char **argv)
{
    static const struct opt_usage usage = {
        "gguf-make random", "OUT.gguf",
        "Write a model of a given shape with random weights, scaled so that its logits are of ordinary size. The same "
        "options give the same bytes. Other engines read the file too; they ignore hidden_act and use silu (relu for "
        "smallthinker).",
        "  gguf-make random --act silu --layers 4 --d-model 256 --heads 8 --kv-heads 4 --ff 704 --type q8_0 s.gguf\n"
        "  gguf-make random --act relu --experts 4 --experts-used 2 --vocab 300 moe.gguf\n"
        "  gguf-make random --published gpt-oss-20b-mxfp4 --tokenizer-from vocabulary.gguf gpt-oss-20b.gguf\n"
        "  gguf-make random --arch smallthinker --experts 8 --experts-used 2 --gating sigmoid --window 64 small.gguf\n", "w"
    };
    const char *archs[sizeof families / sizeof *families + 1] = { NULL };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        archs[i] = families[i].arch;
    static const char *const tokenizers[] = { "llama", "rwkv", "unigram", NULL }; /* in the order of enum make_tokenizer */
    static const char *const scalings[] = { "none", "linear", "yarn", "longrope", NULL };
    static const char *const gatings[] = { "unstated", "softmax", "sigmoid", NULL };
    static const char *const acts[] = { "silu", "relu", "drelu", NULL }; /* in the order of enum model_act */
    int arch = 0;
    struct shape s = { .layers = 2, .d_model = 128, .heads = 4, .ff = 256, .vocab = -1, .context = 512, .seed = 1,
                       .rope_base = 10000, .rope_factor = 4, .groups = 1, .type_name = "f16", .name = "random", .act = -1, .eps = 1e-5 };
    const struct opt opts[] = {
        { .name = "published", .type = OPT_STRING, .dest = &s.published, .arg = "NAME", .def = "none",
          .help = "Sizes, types and keys of a file that people download, with --pooled: llama-3.1-8b-q4_k_m, qwen3-8b-q4_k_m, "
                  "qwen3-30b-a3b-q4_k_m, gpt-oss-20b-mxfp4, gemma-4-26b-a4b-q4_0. Other options go before it." },
        { .name = "more-bits", .type = OPT_STRING, .dest = &s.more_name, .arg = "TYPE", .def = "--type's",
          .help = "Type of the head, and of attn_v and ffn_down in the layers that llama-quantize's mixtures give more bits." },
        { .name = "embd-type", .type = OPT_STRING, .dest = &s.embd_name, .arg = "TYPE", .def = "--type's",
          .help = "Type of the embeddings." },
        { .name = "expert-type", .type = OPT_STRING, .dest = &s.expert_name, .arg = "TYPE", .def = "that of other matrices",
          .help = "Type of the experts." },
        { .name = "pooled", .type = OPT_FLAG, .dest = &s.pooled,
          .help = "Make rows of 4,096 quantised blocks for each type and deviation, at the speed of the disk." },
        { .name = "wide", .type = OPT_INT, .dest = &s.wide, .min = 1, .max = MODEL_MAX_DIM, .arg = "N",
          .def = "4 * ff with experts of a width of their own, else ff", .help = "feed_forward_length." },
        { .name = "layer-embd", .type = OPT_INT, .dest = &s.layer_embd, .min = 1, .max = MODEL_MAX_DIM, .arg = "N", .def = "none",
          .help = "Elements of a token's embedding for each layer (gemma4's E2B and E4B)." },
        { .name = "shared-kv", .type = OPT_INT, .dest = &s.shared_kv, .min = 1, .max = MODEL_MAX_LAYERS, .arg = "N", .def = "none",
          .help = "The last N layers of gemma4 attend to keys and values of earlier ones." },
        { .name = "narrow", .type = OPT_INT, .dest = &s.narrow, .min = 1, .max = MODEL_MAX_DIM, .arg = "N", .def = "as the others'",
          .help = "feed_forward_length of the layers before those (E2B), or of every second FFN of nemotron_h." },
        { .name = "full-kv-heads", .type = OPT_INT, .dest = &s.full_kv_heads, .min = 1, .max = MODEL_MAX_DIM, .arg = "N",
          .def = "half of kv-heads", .help = "Key and value heads of gemma4's layers without a window." },
        { .name = "arch", .type = OPT_CHOICE, .dest = &arch, .choices = archs,
          .arg = "NAME", .def = "llama", .help = "Architecture." },
        { .name = "act", .type = OPT_CHOICE, .dest = &s.act, .choices = acts,
          .arg = "NAME", .def = "silu; relu for smallthinker",
          .help = "Activation of the gated FFN; files of most architectures do not say it." },
        { .name = "type", .short_name = 't', .type = OPT_STRING, .dest = &s.type_name,
          .arg = "TYPE", .def = "f16", .help = "Type of the matrices, any that can be written: f16, q8_0, q4_0, q4_k, q6_k, mxfp4, ..." },
        { .name = "layers", .type = OPT_INT, .dest = &s.layers, .min = 1, .max = MODEL_MAX_LAYERS,
          .arg = "N", .def = "2", .help = "Layers, those of --lead among them." },
        { .name = "d-model", .type = OPT_INT, .dest = &s.d_model, .min = 2, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "128", .help = "Embedding length." },
        { .name = "heads", .type = OPT_INT, .dest = &s.heads, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "4", .help = "Attention heads." },
        { .name = "kv-heads", .type = OPT_INT, .dest = &s.kv_heads, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "as many as heads", .help = "Key and value heads." },
        { .name = "head-dim", .type = OPT_INT, .dest = &s.head_dim, .min = 2, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "d-model / heads",
          .help = "Length of a head's queries, keys and values; with latent attention without the half as many that rotate." },
        { .name = "kv-rank", .type = OPT_INT, .dest = &s.kv_rank, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "4 * head-dim", .help = "Latent attention: elements that keys and values are made of." },
        { .name = "q-rank", .type = OPT_INT, .dest = &s.q_rank, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "none", .help = "Likewise of queries." },
        { .name = "ff", .type = OPT_INT, .dest = &s.ff, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "256", .help = "FFN neurons, of each expert where there are experts." },
        { .name = "experts", .type = OPT_INT, .dest = &s.experts, .min = 0, .max = MODEL_MAX_EXPERTS,
          .arg = "N", .def = "0", .help = "Experts per layer; 0: one dense FFN." },
        { .name = "experts-used", .type = OPT_INT, .dest = &s.experts_used, .min = 1, .max = MODEL_MAX_EXPERTS,
          .arg = "N", .help = "Experts that each token uses." },
        { .name = "gating", .type = OPT_CHOICE, .dest = &s.gating, .choices = gatings,
          .arg = "NAME", .def = "unstated",
          .help = "How the file says that routers weight experts: not at all, softmax or sigmoid." },
        { .name = "lead", .type = OPT_INT, .dest = &s.lead, .min = 0, .max = MODEL_MAX_LAYERS,
          .arg = "N", .def = "0", .help = "Layers before the first with experts, with one FFN that is four times as wide." },
        { .name = "nextn", .type = OPT_INT, .dest = &s.nextn, .min = 0, .max = 8,
          .arg = "N", .def = "0", .help = "Layers beyond --layers that predict further tokens." },
        { .name = "nextn-own", .type = OPT_FLAG, .dest = &s.nextn_own,
          .help = "With --nextn: they have embeddings and heads of their own." },
        { .name = "nextn-only", .type = OPT_FLAG, .dest = &s.nextn_only,
          .help = "With --nextn: these alone, with embeddings and head, for 'thermo-pack mtp --layer'." },
        { .name = "groups", .type = OPT_INT, .dest = &s.groups, .min = 1, .max = MODEL_MAX_EXPERTS,
          .arg = "N", .def = "1", .help = "Groups of experts, of which half are open to a token." },
        { .name = "qk-norms", .type = OPT_FLAG, .dest = &s.qk_norms,
          .help = "Norms of queries and keys where the architecture may have them." },
        { .name = "ffn-biases", .type = OPT_FLAG, .dest = &s.ffn_biases,
          .help = "Biases of the FFN's three matrices where it may have them." },
        { .name = "thresholds", .type = OPT_FLAG, .dest = &s.thresholds,
          .help = "Thresholds below which neurons of a gated SiLU or GELU FFN are silent; only Thermocline reads them." },
        { .name = "two-norms", .type = OPT_FLAG, .dest = &s.two_norms,
          .help = "A norm of attention's own beside the FFN's (falcon, as in 40B)." },
        { .name = "delta-heads", .type = OPT_INT, .dest = &s.delta_heads, .min = 1, .max = 1024,
          .arg = "N", .def = "as many as kv-heads",
          .help = "Heads of queries and keys of recurrent layers; there are twice as many of values." },
        { .name = "delta-dim", .type = OPT_INT, .dest = &s.delta_dim, .min = 1, .max = MODEL_MAX_DELTA,
          .arg = "N", .def = "as head-dim", .help = "Length of these heads." },
        { .name = "decay-rank", .type = OPT_INT, .dest = &s.decay_rank, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "as converters make it", .help = "rwkv7, rwkv6: elements that decays are made of." },
        { .name = "rate-rank", .type = OPT_INT, .dest = &s.rate_rank, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "likewise", .help = "Likewise of learning rates." },
        { .name = "value-rank", .type = OPT_INT, .dest = &s.value_rank, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "likewise", .help = "Likewise of mixes of values." },
        { .name = "mix-rank", .type = OPT_INT, .dest = &s.mix_rank, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "as converters make it", .help = "rwkv6: elements that each mix of inputs is made of." },
        { .name = "halve-period", .type = OPT_INT, .dest = &s.halve_period, .min = 0, .max = MODEL_MAX_LAYERS,
          .arg = "N", .def = "0", .help = "rwkv6: the residual is halved after every N layers; 0: never." },
        { .name = "gate-rank", .type = OPT_INT, .dest = &s.gate_rank, .min = 1, .max = MODEL_MAX_DIM,
          .arg = "N", .def = "likewise", .help = "Likewise of gates." },
        { .name = "window", .type = OPT_INT, .dest = &s.window, .min = 1, .max = MODEL_MAX_CONTEXT,
          .arg = "N", .def = "none", .help = "Positions that some layers see: of smallthinker 1, 2, 3, 5, 6, 7, ... (0, 4, 8, ... "
          "see all and do not rotate then), of gpt-oss and gemma2 0, 2, 4, ..., "
          "of gemma3 all but 5, 11, 17, ..." },
        { .name = "vocab", .type = OPT_INT, .dest = &s.vocab, .min = 260, .max = MODEL_MAX_VOCAB,
          .arg = "N", .def = "512", .help = "Tokens of the made-up vocabulary." },
        { .name = "tokenizer", .type = OPT_CHOICE, .dest = &s.tokenizer, .choices = tokenizers,
          .arg = "NAME", .def = "llama", .help = "Kind of the made-up vocabulary." },
        { .name = "tokenizer-from", .type = OPT_STRING, .dest = &s.tokenizer_from,
          .arg = "X.gguf", .file = OPT_READ, .help = "Copy the tokenizer of this model instead of making one up." },
        { .name = "context", .type = OPT_INT, .dest = &s.context, .min = 1, .max = MODEL_MAX_CONTEXT,
          .arg = "N", .def = "512", .help = "Context length that the file states." },
        { .name = "rope-base", .type = OPT_DOUBLE, .dest = &s.rope_base, .min = 1, .max = 1e9,
          .arg = "X", .def = "10000", .help = "Base of the rotary embedding." },
        { .name = "rope-scaling", .type = OPT_CHOICE, .dest = &s.rope_scaling, .choices = scalings,
          .arg = "NAME", .def = "none", .help = "Scaling of positions (longrope: phi3); the original context of yarn and longrope "
                                                  "is the context over the factor." },
        { .name = "rope-factor", .type = OPT_DOUBLE, .dest = &s.rope_factor, .min = 1, .max = 1000,
          .arg = "X", .def = "4", .help = "Factor of that scaling." },
        { .name = "rope-freqs", .type = OPT_FLAG, .dest = &s.rope_freqs, .help = "Divisors of the rotation's frequencies (Llama 3)." },
        { .name = "untied", .type = OPT_FLAG, .dest = &s.untied,
          .help = "A head of its own instead of the embeddings." },
        { .name = "seed", .type = OPT_U64, .dest = &s.seed,
          .arg = "N", .def = "1", .help = "Seed of the weights." },
        { .name = "name", .type = OPT_STRING, .dest = &s.name,
          .arg = "TEXT", .def = "random", .help = "general.name." },
        { 0 }
    };
    struct err e = { 0 };
    int n, r = start_from(&s, &arch, argc, argv, &e);
    if (r < 0 || (r = opt_parse(opts, &usage, argc, argv, &n, &e)) < 0)
        return opt_fail(&e);
    if (r > 0)
        return 0;
    s.family = &families[arch];
    if (n != 1) {
        err_set(&e, ERR_USAGE, "one file is needed, OUT.gguf (%d given)", n);
        return opt_fail(&e);
    }
    if (check(&s, &e) < 0 || make_random(&s, argv[1], &e) < 0)
        return opt_fail(&e);
    return 0;
}
