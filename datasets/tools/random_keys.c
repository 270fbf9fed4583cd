/* Keys and vocabulary of gguf-make random's models: what each architecture's converters write. */
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/model/mix.h"
#include "datasets/tools/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- vocabulary -------------------------------------------------------------------------- */

static int copy_tokenizer(struct make *m, const char *path, int *n_vocab, struct err *e)
{
    struct gguf *g;
    int r = gguf_open(path, &g, e);
    if (r < 0)
        return r;
    const struct gguf_key *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->n > MODEL_MAX_VOCAB)
        r = err_set(e, ERR_FORMAT, "'%s': it has no array 'tokenizer.ggml.tokens'", path);
    else if (*n_vocab >= 0 && (uint64_t)*n_vocab != tokens->n)
        r = err_set(e, ERR_USAGE, "--vocab %d, but the tokenizer of '%s' has %d tokens", *n_vocab, path,
                    (int)tokens->n);
    else
        *n_vocab = (int)tokens->n;
    for (uint64_t i = 0; r == 0 && i < g->n_keys; i++)
        if (!strncmp(g->keys[i].name, "tokenizer.", 10))
            r = gguf_writer_kv_raw(m->w, &g->keys[i], e);
    gguf_close(g);
    return r;
}

/* --- the model --------------------------------------------------------------------------- */

static int put_u32(struct make *m, const char *arch, const char *key, int v, struct err *e)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    return gguf_writer_u32(m->w, name, (uint32_t)v, e);
}

static int put_f32(struct make *m, const char *arch, const char *key, double v, struct err *e)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    return gguf_writer_f32(m->w, name, (float)v, e);
}

static int put_str(struct make *m, const char *arch, const char *key, const char *v, struct err *e)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    return gguf_writer_str(m->w, name, v, e);
}

static int put_bool(struct make *m, const char *arch, const char *key, int v, struct err *e)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    return gguf_writer_bool(m->w, name, v, e);
}

/* Of DeepSeek and those that follow it. */
static int put_lead(struct make *m, const struct shape *s, struct err *e)
{
    const char *a = s->family->arch;
    int r;
    if (s->family->lead == 4)
        return 0;
    if (s->family->lead == 3) {
        if ((r = put_u32(m, a, "expert_shared_count", 1, e)) < 0 || (r = put_bool(m, a, "expert_weights_norm", 1, e)) < 0 ||
            (r = put_f32(m, a, "expert_weights_scale", 2.5, e)) < 0)
            return r;
        return put_u32(m, a, "expert_group_count", 1, e);
    }
    if (s->family->lead == 2)
        return put_u32(m, a, "leading_dense_block_count", s->lead, e);
    if ((r = put_u32(m, a, "expert_shared_count", 1, e)) < 0 || (r = put_u32(m, a, "leading_dense_block_count", s->lead, e)) < 0 ||
        (r = put_f32(m, a, "expert_weights_scale", s->gating == SIGMOID ? 2.5 : 1, e)) < 0 ||
        (s->gating == SIGMOID && (r = put_bool(m, a, "expert_weights_norm", 1, e)) < 0) ||
        (r = put_u32(m, a, "expert_group_count", s->groups, e)) < 0 ||
        (r = put_u32(m, a, "expert_group_used_count", (s->groups + 1) / 2, e)) < 0)
        return r;
    return s->nextn ? put_u32(m, a, "nextn_predict_layers", s->nextn, e) : 0;
}

/* Every sixth layer has no window, heads twice as long, half as many kv heads. */
static int put_kinds(struct make *m, const struct shape *s, struct err *e)
{
    const struct { const char *key; int value; } keys[] = {
        { "attention.key_length", 2 * s->head_dim }, { "attention.value_length", 2 * s->head_dim },
        { "attention.key_length_swa", s->head_dim }, { "attention.value_length_swa", s->head_dim },
        { "rope.dimension_count", 2 * s->head_dim }, { "rope.dimension_count_swa", s->head_dim },
        { "attention.shared_kv_layers", s->shared_kv }, { "embedding_length_per_layer_input", s->layer_embd },
    };
    const char *a = s->family->arch;
    uint8_t kv[4 * MODEL_MAX_LAYERS], window[MODEL_MAX_LAYERS];
    char name[96];
    int r = put_f32(m, a, "rope.freq_base_swa", 10000, e);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && r == 0; i++)
        r = put_u32(m, a, keys[i].key, keys[i].value, e);
    for (int l = 0; l < s->layers; l++) {
        window[l] = (l + 1) % 6 != 0;
        bytes_put32(kv + 4 * (size_t)l, (uint32_t)(window[l] ? s->kv_heads : s->full_kv_heads));
    }
    snprintf(name, sizeof name, "%s.attention.head_count_kv", a);
    if (r < 0 || (r = make_array(m, name, GGUF_I32, s->layers, kv, 4 * (size_t)s->layers, e)) < 0)
        return r;
    snprintf(name, sizeof name, "%s.attention.sliding_window_pattern", a);
    if ((r = make_array(m, name, GGUF_BOOL, s->layers, window, (size_t)s->layers, e)) < 0 || !s->narrow)
        return r;
    for (int l = 0; l < s->layers; l++)
        bytes_put32(kv + 4 * (size_t)l, (uint32_t)(l < s->layers - s->shared_kv ? s->narrow : s->wide));
    snprintf(name, sizeof name, "%s.feed_forward_length", a);
    return make_array(m, name, GGUF_I32, s->layers, kv, 4 * (size_t)s->layers, e);
}

/* Of recurrent layers; there are twice as many heads of values as of keys. */
static int put_delta(struct make *m, const struct shape *s, struct err *e)
{
    const struct { const char *key; int value; } keys[] = {
        { "ssm.conv_kernel", 4 }, { "ssm.state_size", s->delta_dim }, { "ssm.group_count", s->delta_heads },
        { "ssm.time_step_rank", 2 * s->delta_heads }, { "ssm.inner_size", 2 * s->delta_heads * s->delta_dim },
        { "full_attention_interval", 4 },
    };
    const char *a = s->family->arch;
    uint8_t recurrent[MODEL_MAX_LAYERS + 8] = { 0 }, sections[16] = { 0 };
    char name[96];
    int r = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && r == 0; i++)
        r = put_u32(m, a, keys[i].key, keys[i].value, e);
    for (int l = 0; l < s->layers; l++)
        recurrent[l] = (l + 1) % 4 != 0;
    for (int i = 0, left = s->head_dim / 8; i < 3; left -= left / (3 - i), i++) /* of pairs that rotate: height, width, time */
        bytes_put32(sections + 4 * i, (uint32_t)(left / (3 - i)));
    snprintf(name, sizeof name, "%s.attention.recurrent_layers", a);
    if (r == 0 && s->nextn > 0)
        r = put_u32(m, a, "nextn_predict_layers", s->nextn, e);
    if (r < 0 || (r = make_array(m, name, GGUF_BOOL, s->layers + s->nextn, recurrent, (size_t)(s->layers + s->nextn), e)) < 0)
        return r;
    snprintf(name, sizeof name, "%s.rope.dimension_sections", a);
    return s->family->delta == 2 ? make_array(m, name, GGUF_I32, 4, sections, sizeof sections, e) : 0;
}

/* Which layers have attention follows no period in published files either. */
static int put_blocks(struct make *m, const struct shape *s, struct err *e)
{
    const struct { const char *key; int value; } keys[] = {
        { "ssm.conv_kernel", 4 }, { "ssm.state_size", s->delta_dim }, { "ssm.group_count", 2 }, { "ssm.time_step_rank", s->delta_heads },
        { "ssm.inner_size", 2 * s->d_model },
    };
    const char *a = s->family->arch, alone[] = "MFMAFMMFAF"; /* and again */
    uint8_t kv[4 * MODEL_MAX_LAYERS], ff[4 * MODEL_MAX_LAYERS];
    char name[96];
    for (int l = 0, n_ffs = 0; l < s->layers; l++) {
        int is_ffn = alone[l % 10] == 'F', narrow = is_ffn && s->narrow && n_ffs++ % 2;
        int attends = s->family->ssm == 2 ? alone[l % 10] == 'A' : l % 5 == 2 || l % 5 == 4;
        bytes_put32(kv + 4 * (size_t)l, attends ? (uint32_t)s->kv_heads : 0);
        bytes_put32(ff + 4 * (size_t)l, is_ffn ? (uint32_t)(narrow ? s->narrow : s->ff) : 0);
    }
    snprintf(name, sizeof name, "%s.attention.head_count_kv", a);
    int r = make_array(m, name, GGUF_I32, s->layers, kv, 4 * (size_t)s->layers, e);
    snprintf(name, sizeof name, "%s.feed_forward_length", a);
    if (r == 0 && s->family->ssm == 2)
        r = make_array(m, name, GGUF_I32, s->layers, ff, 4 * (size_t)s->layers, e);
    if (r < 0 || s->family->conv)
        return r < 0 ? r : put_u32(m, a, "shortconv.l_cache", 3, e);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && r == 0; i++)
        r = put_u32(m, a, keys[i].key, keys[i].value, e);
    if (r == 0 && s->family->ssm == 2)
        r = put_f32(m, a, "attention.layer_norm_epsilon", s->eps, e);
    return r < 0 ? r : put_bool(m, a, "rope.scaling.finetuned", 0, e);
}

/* As a model of many layers has it, all but every fourth. */
static int put_pattern(struct make *m, const struct shape *s, struct err *e)
{
    uint8_t window[MODEL_MAX_LAYERS];
    char name[96];
    for (int l = 0; l < s->layers; l++)
        window[l] = (l + 1) % 4 != 0;
    snprintf(name, sizeof name, "%s.attention.sliding_window_pattern", s->family->arch);
    return make_array(m, name, GGUF_BOOL, s->layers, window, (size_t)s->layers, e);
}

static int put_indexer(struct make *m, const struct shape *s, struct err *e)
{
    uint8_t own[MODEL_MAX_LAYERS];
    char name[96];
    const char *a = s->family->arch;
    int r;
    for (int l = 0; l < s->layers; l++)
        own[l] = (uint8_t)random_indexes(s, l);
    snprintf(name, sizeof name, "%s.attention.indexer.types", a);
    if ((r = put_u32(m, a, "attention.indexer.head_count", 2, e)) < 0 ||
        (r = put_u32(m, a, "attention.indexer.key_length", RANDOM_INDEXER, e)) < 0 ||
        (r = put_u32(m, a, "attention.indexer.top_k", s->context / 2, e)) < 0)
        return r;
    return make_array(m, name, GGUF_BOOL, s->layers, own, (size_t)s->layers, e);
}

static int put_latent(struct make *m, const struct shape *s, struct err *e)
{
    const struct { const char *key; int value; } keys[] = {
        { "attention.kv_lora_rank", s->kv_rank }, { "attention.key_length", s->kv_rank + s->head_dim / 2 },
        { "attention.value_length", s->kv_rank }, { "attention.key_length_mla", s->head_dim + s->head_dim / 2 },
        { "attention.value_length_mla", s->head_dim }, { "rope.dimension_count", s->head_dim / 2 }, { "attention.q_lora_rank", s->q_rank },
    };
    int r = 0, n = (int)(sizeof keys / sizeof keys[0]) - (s->q_rank == 0);
    for (int i = 0; i < n && r == 0; i++)
        r = put_u32(m, s->family->arch, keys[i].key, keys[i].value, e);
    return r < 0 || s->family->latent == 1 ? r : put_indexer(m, s, e);
}

static int put_experts(struct make *m, const struct shape *s, struct err *e)
{
    const struct family *f = s->family;
    const char *a = f->arch;
    int r;
    if ((r = put_u32(m, a, "expert_count", s->experts, e)) < 0 || (r = put_u32(m, a, "expert_used_count", s->experts_used, e)) < 0 ||
        ((f->expert_width || f->own_keys) && (r = put_u32(m, a, "expert_feed_forward_length", s->ff, e)) < 0) ||
        (f->shared && (r = put_u32(m, a, "expert_shared_feed_forward_length", 2 * s->ff, e)) < 0) ||
        (f->lead && (r = put_lead(m, s, e)) < 0) ||
        (s->gating != UNSTATED && f->lead != 3 && (r = put_u32(m, a, "expert_gating_func", s->gating == SIGMOID ? 2 : 1, e)) < 0))
        return r;
    return 0;
}

static int put_scales(struct make *m, const struct family *f, struct err *e)
{
    static const struct { const char *key; double value; int scale; } keys[] = {
        { "attention.scale", 0.125, 1 }, { "embedding_scale", 12, 1 }, { "residual_scale", 0.22, 1 }, { "logit_scale", 4, 1 },
        { "attn_logit_softcapping", 2, 0 }, { "final_logit_softcapping", 3, 0 },
    };
    int r = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && r == 0; i++)
        if (keys[i].scale ? f->scales || (f->capped && i == 3) : f->softcaps || ((f->kinds || f->capped) && i == 5))
            r = put_f32(m, f->arch, keys[i].key, keys[i].value, e);
    return r;
}

static int put_rope(struct make *m, const struct shape *s, struct err *e)
{
    const char *a = s->family->arch;
    int r = put_f32(m, a, "rope.freq_base", s->rope_base, e);
    if (r < 0 || s->rope_scaling == PLAIN)
        return r;
    if (s->rope_scaling == LONGROPE)
        return (r = put_f32(m, a, "rope.scaling.attn_factor", sqrt(1 + log(s->rope_factor) / log(s->context / s->rope_factor)), e)) < 0 ? r
               : put_u32(m, a, "rope.scaling.original_context_length", (int)(s->context / s->rope_factor), e);
    if ((r = put_str(m, a, "rope.scaling.type", s->rope_scaling == YARN ? "yarn" : "linear", e)) < 0 ||
        (r = put_f32(m, a, "rope.scaling.factor", s->rope_factor, e)) < 0)
        return r;
    if (s->family->latent && s->rope_scaling == YARN && (r = put_f32(m, a, "rope.scaling.yarn_log_multiplier", 0.0707, e)) < 0)
        return r;
    if (s->family->temperature && ((r = put_f32(m, a, "attention.temperature_scale", 0.1, e)) < 0 ||
                                   (r = put_f32(m, a, "rope.scaling.yarn_log_multiplier", 1, e)) < 0))
        return r;
    return s->rope_scaling == YARN ? put_u32(m, a, "rope.scaling.original_context_length", (int)(s->context / s->rope_factor), e) : 0;
}

/* Small matrices are as wide as converters make them where files do not say it. */
static int wkv_rank(int stated, int d_model, double exponent, double factor)
{
    double blocks = floor(pow(d_model, exponent) * factor / 32 + 0.5);
    return stated ? stated : 32 * (blocks < 1 ? 1 : (int)blocks);
}

/* The sizes of small matrices are those of converters. */
static int put_wkv_6(struct make *m, struct shape *s, struct err *e)
{
    const struct { const char *key; int value; } keys[] = {
        { "attention.head_count", 0 }, { "wkv.head_size", s->head_dim },
        { "time_mix_extra_dim", s->mix_rank ? s->mix_rank : s->d_model == 4096 ? 64 : 32 },
        { "time_decay_extra_dim", s->decay_rank ? s->decay_rank : s->d_model == 4096 ? 128 : 64 },
        { "rescale_every_n_layers", s->halve_period },
    };
    int r = put_f32(m, s->family->arch, "attention.layer_norm_epsilon", s->eps, e);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && r == 0; i++)
        r = put_u32(m, s->family->arch, keys[i].key, keys[i].value, e);
    return r;
}

static int put_wkv(struct make *m, struct shape *s, struct err *e)
{
    const struct { const char *key; int value; } keys[] = {
        { "attention.head_count", 0 }, { "wkv.head_size", s->head_dim },
        { "attention.decay_lora_rank", wkv_rank(s->decay_rank, s->d_model, 0.5, 1.8) },
        { "attention.iclr_lora_rank", wkv_rank(s->rate_rank, s->d_model, 0.5, 1.8) },
        { "attention.value_residual_mix_lora_rank", wkv_rank(s->value_rank, s->d_model, 0.5, 1.3) },
        { "attention.gate_lora_rank", wkv_rank(s->gate_rank, s->d_model, 0.8, 0.6) },
    };
    int r = put_f32(m, s->family->arch, "attention.layer_norm_epsilon", s->eps, e);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && r == 0; i++)
        r = put_u32(m, s->family->arch, keys[i].key, keys[i].value, e);
    return r;
}

/* Attention, rotation and what the FFN has. */
static int put_attention(struct make *m, struct shape *s, struct err *e)
{
    const struct family *f = s->family;
    const char *a = f->arch;
    int r;
    if ((r = put_u32(m, a, "attention.head_count", s->heads, e)) < 0 ||
        (!f->kinds && !f->positions && !f->conv && !f->ssm && (r = put_u32(m, a, "attention.head_count_kv", s->kv_heads, e)) < 0) ||
        ((f->own_keys || f->rope_share) &&
         (r = put_u32(m, a, "rope.dimension_count", s->head_dim / (f->rope_share ? f->rope_share : 1), e)) < 0) ||
        (!f->positions && (r = put_rope(m, s, e)) < 0) ||
        (!f->positions && (r = put_f32(m, a, f->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", s->eps,
                                       e)) < 0) ||
        (s->act >= 0 && (r = put_str(m, a, "hidden_act", model_act_name((enum model_act)s->act), e)) < 0) ||
        (s->thresholds && (r = gguf_writer_bool(m->w, "thermocline.thresholds", 1, e)) < 0) ||
        (s->experts > 0 && (r = put_experts(m, s, e)) < 0) ||
        (r = put_scales(m, f, e)) < 0 || (s->window > 0 && (r = put_u32(m, a, "attention.sliding_window", s->window, e)) < 0))
        return r;
    if ((f->latent && (r = put_latent(m, s, e)) < 0) || (f->delta && (r = put_delta(m, s, e)) < 0) ||
        ((f->conv || f->ssm) && (r = put_blocks(m, s, e)) < 0) ||
        (f->window == 2 && s->window > 0 && (r = put_pattern(m, s, e)) < 0) || (f->kinds && (r = put_kinds(m, s, e)) < 0))
        return r;
    if (!f->latent && !f->kinds && (f->key_length || s->head_dim * s->heads != s->d_model) &&
        ((r = put_u32(m, a, "attention.key_length", s->head_dim, e)) < 0 ||
         (r = put_u32(m, a, "attention.value_length", s->head_dim, e)) < 0))
        return r;
    return 0;
}

int random_keys(struct make *m, struct shape *s, struct err *e)
{
    const struct family *f = s->family;
    const char *a = f->arch;
    int r, wide = s->wide ? s->wide : f->expert_width && !f->own_keys ? 4 * s->ff : s->ff;
    if ((r = gguf_writer_str(m->w, "general.architecture", a, e)) < 0 ||
        (r = gguf_writer_str(m->w, "general.name", s->name, e)) < 0 ||
        (r = gguf_writer_u32(m->w, "general.file_type", mix_file_type(s->type), e)) < 0 ||
        (r = gguf_writer_u32(m->w, "general.quantization_version", 2, e)) < 0 ||
        (r = put_u32(m, a, "block_count", s->layers + s->nextn, e)) < 0 || (r = put_u32(m, a, "context_length", s->context, e)) < 0 ||
        (r = put_u32(m, a, "embedding_length", s->d_model, e)) < 0 ||
        (f->ssm != 2 && !s->narrow && (r = put_u32(m, a, "feed_forward_length", wide, e)) < 0) ||
        (r = (f->wkv == 6 ? put_wkv_6 : f->wkv ? put_wkv : put_attention)(m, s, e)) < 0)
        return r;
    m->router_unstated = !strcmp(a, "smallthinker") && s->gating == UNSTATED;
    if (s->tokenizer_from)
        r = copy_tokenizer(m, s->tokenizer_from, &s->vocab, e);
    else
        r = make_vocabulary(m, (enum make_tokenizer)s->tokenizer, s->vocab = s->vocab < 0 ? 512 : s->vocab, e);
    return r < 0 || (!f->own_keys && !f->conv && !f->ssm) ? r : put_u32(m, a, "vocab_size", s->vocab, e);
}
