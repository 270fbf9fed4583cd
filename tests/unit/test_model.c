#include "common/base/file.h"
#include "common/model/model.h"
#include "common/ops/ops.h"
#include "tests/test.h"
#include "tests/tiny_gguf.h"

#include <math.h>

static struct err e;

static int says(const char *text)
{
    if (strstr(e.msg, text))
        return 1;
    printf("# message is: %s\n", e.msg);
    return 0;
}

/* Hyper-parameters of the tiny model with up to two edits. */
static int hparams_given(const struct tiny_edit *ed, const struct model_given *given, struct model_hparams *h)
{
    size_t len;
    uint8_t *b = tiny_header(ed, QUANT_F16, NULL, 0, &len);
    struct gguf *g;
    tiny_check(gguf_parse(b, len, 1 << 20, "tiny", &g, &e), &e);
    int r = model_hparams_read(g, given, h, &e);
    gguf_close(g);
    free(b);
    return r;
}

static int hparams(const struct tiny_edit *ed, int override, struct model_hparams *h)
{
    const struct model_given given = { override, MODEL_ROUTER_NONE, NULL, 0 };
    return hparams_given(ed, &given, h);
}

static int edited(const char *key, char kind, double number, const char *text, struct model_hparams *h)
{
    struct tiny_edit ed[2] = { { key, kind, number, text }, { 0 } };
    return hparams(ed, -1, h);
}

/* An edit that is refused with that code and a message that names the key. */
static int refused(const char *key, char kind, double number, const char *text, int code)
{
    struct model_hparams h;
    int r = edited(key, kind, number, text, &h);
    if (r != code)
        printf("# '%s' gives %d\n", key, r);
    return r == code && says(key) && says("tiny");
}

static void defaults(void)
{
    struct model_hparams h;
    CHECK(hparams(NULL, -1, &h) == 0);
    CHECK(!strcmp(h.arch, "llama") && h.n_layers == 2 && h.d_model == 64 && h.n_ff == 96);
    CHECK(h.n_heads == 4 && h.n_kv_heads == 2 && h.head_dim == 16 && h.n_rot == 16);
    CHECK(h.n_vocab == TINY_VOCAB && h.n_ctx_train == 32 && h.n_experts == 0 && h.router == MODEL_ROUTER_NONE);
    CHECK(h.rope_theta == 10000 && h.rope_scale == 1 && h.rms_eps == 1e-5f && h.rope == MODEL_ROPE_NORM);
    CHECK(h.act == MODEL_ACT_SILU && h.tied_output == 1 && model_ffn_blocks(&h) == 1);
    CHECK(hparams(NULL, MODEL_ACT_RELU, &h) == 0 && h.act == MODEL_ACT_RELU);
}

static void values(void)
{
    struct model_hparams h;
    CHECK(edited("llama.hidden_act", 's', 0, "relu", &h) == 0 && h.act == MODEL_ACT_RELU);
    CHECK(edited("llama.hidden_act", 's', 0, "drelu", &h) == 0 && h.act == MODEL_ACT_DRELU);
    CHECK(edited("llama.hidden_activation", 's', 0, "silu", &h) == 0 && h.act == MODEL_ACT_SILU);
    CHECK(edited("llama.rope.freq_base", 'f', 500000, NULL, &h) == 0 && h.rope_theta == 500000);
    CHECK(edited("llama.rope.dimension_count", 'u', 8, NULL, &h) == 0 && h.n_rot == 8);
    CHECK(edited("llama.attention.head_count_kv", '-', 0, NULL, &h) == 0 && h.n_kv_heads == 4);
    CHECK(edited("llama.attention.sliding_window", 'u', 32, NULL, &h) == 0);
    CHECK(edited("llama.attention.key_length", 'u', 16, NULL, &h) == 0);
    CHECK(edited("llama.rope.scaling.type", 's', 0, "none", &h) == 0 && h.rope_scale == 1);
    const struct tiny_edit linear[] = { { "llama.rope.scaling.type", 's', 0, "linear" },
                                        { "llama.rope.scaling.factor", 'f', 4, NULL }, { 0 } };
    CHECK(hparams(linear, -1, &h) == 0 && h.rope_scale == 0.25f);
    const struct tiny_edit yarn[] = { { "llama.rope.scaling.type", 's', 0, "yarn" }, { "llama.rope.scaling.factor", 'f', 4, NULL },
                                      { "llama.rope.scaling.original_context_length", 'u', 8, NULL },
                                      { "llama.rope.scaling.yarn_attn_factor", 'f', 1.1386, NULL }, { 0 } };
    CHECK(hparams(yarn, -1, &h) == 0 && h.rope_scale == 0.25f && h.yarn_context == 8 && fabsf(h.rope_mscale - 1.138629f) < 1e-5f);
    CHECK(h.yarn_fast == 32 && h.yarn_slow == 1);
    const struct tiny_edit experts[] = { { "llama.expert_count", 'u', 4, NULL },
                                         { "llama.expert_used_count", 'u', 2, NULL }, { 0 } };
    CHECK(hparams(experts, -1, &h) == 0 && h.n_experts == 4 && h.n_experts_used == 2);
    CHECK(h.router == MODEL_ROUTER_SOFTMAX_TOPK && model_ffn_blocks(&h) == 4);
    CHECK(edited("general.name", 's', 0, "A name", &h) == 0 && !strcmp(h.name, "A name"));
}

static void refusals(void)
{
    struct model_hparams h;
    CHECK(refused("general.architecture", 's', 0, "qwen9", ERR_UNSUPPORTED) && says("qwen9") && says("qwen3moe"));
    CHECK(refused("general.architecture", '-', 0, NULL, ERR_FORMAT));
    CHECK(refused("general.architecture", 'u', 1, NULL, ERR_FORMAT));
    CHECK(refused("prism.signs", 's', 0, "x", ERR_UNSUPPORTED) && refused("x.hadamard", 'b', 0, NULL, ERR_UNSUPPORTED));
    CHECK(edited("prisms.size", 'u', 1, NULL, &h) == 0); /* who else writes keys says nothing of weights */
    CHECK(refused("llama.block_count", '-', 0, NULL, ERR_FORMAT));
    CHECK(refused("llama.block_count", 'u', 0, NULL, ERR_FORMAT));
    CHECK(refused("llama.block_count", 'u', MODEL_MAX_LAYERS + 1, NULL, ERR_LIMIT));
    CHECK(refused("llama.embedding_length", 'u', 4e9, NULL, ERR_LIMIT));
    CHECK(refused("llama.attention.layer_norm_rms_epsilon", '-', 0, NULL, ERR_FORMAT));
    CHECK(refused("llama.attention.layer_norm_rms_epsilon", 'f', -1, NULL, ERR_FORMAT));
    CHECK(refused("llama.attention.key_length", 'u', 32, NULL, ERR_UNSUPPORTED));
    CHECK(refused("llama.attention.sliding_window", 'u', 31, NULL, ERR_UNSUPPORTED));
    CHECK(refused("llama.attention.causal", 'b', 0, NULL, ERR_UNSUPPORTED));
    CHECK(refused("llama.attention.scale", 'f', 0.1, NULL, ERR_UNSUPPORTED));
    CHECK(refused("llama.rope.dimension_count", 'u', 18, NULL, ERR_FORMAT));
    CHECK(refused("llama.rope.dimension_count", 'u', 7, NULL, ERR_FORMAT));
    CHECK(refused("llama.rope.freq_base", 'f', INFINITY, NULL, ERR_FORMAT));
    CHECK(refused("llama.rope.scaling.type", 's', 0, "longrope", ERR_UNSUPPORTED) && says("yarn"));
    CHECK(edited("llama.rope.scaling.type", 's', 0, "yarn", &h) == ERR_FORMAT && says("llama.rope.scaling.factor"));
    static const struct tiny_edit attn_factor[] = { { "llama.rope.scaling.type", 's', 0, "yarn" },
                                                    { "llama.rope.scaling.factor", 'f', 4, NULL },
                                                    { "llama.rope.scaling.yarn_attn_factor", 'f', 2, NULL }, { 0 } };
    CHECK(hparams(attn_factor, -1, &h) == ERR_UNSUPPORTED && says("yarn_attn_factor' is 2"));
    CHECK(refused("llama.rope.scaling.factor", 'f', 2, NULL, ERR_UNSUPPORTED));
    CHECK(refused("llama.hidden_act", 's', 0, "gelu", ERR_UNSUPPORTED) && says("gelu"));
    CHECK(refused("llama.expert_used_count", 'u', 2, NULL, ERR_UNSUPPORTED));
    CHECK(refused("llama.vocab_size", 'u', 8, NULL, ERR_UNSUPPORTED));
    CHECK(refused("llama.logit_scale", 'f', 2, NULL, ERR_UNSUPPORTED));
    CHECK(refused("tokenizer.ggml.tokens", 'u', 2, NULL, ERR_FORMAT));
    CHECK(edited("llama.attention.head_count", 'u', 3, NULL, &h) == ERR_FORMAT && says("3 heads"));
    CHECK(edited("llama.attention.head_count_kv", 'u', 3, NULL, &h) == ERR_FORMAT && says("3 kv heads"));
    static const struct { const char *key; char kind; double v; } moe[] = {
        { "llama.expert_used_count", 'u', 5 }, { "llama.expert_gating_func", 'u', 2 },
        { "llama.expert_shared_count", 'u', 1 }, { "llama.expert_weights_norm", 'b', 0 },
        { "llama.expert_weights_scale", 'f', 2 }, { "llama.expert_feed_forward_length", 'u', 32 },
    };
    for (size_t i = 0; i < sizeof moe / sizeof moe[0]; i++) {
        struct tiny_edit ed[4] = { { "llama.expert_count", 'u', 4, NULL },
                                   { moe[i].key, moe[i].kind, moe[i].v, NULL } };
        if (i > 0)
            ed[2] = (struct tiny_edit){ "llama.expert_used_count", 'u', 2, NULL };
        CHECK(hparams(ed, -1, &h) < 0 && says(moe[i].key));
    }
}

/* Keys of a smallthinker model: the tiny one's, renamed, and its experts. */
static const struct tiny_edit small_edits[] = {
    { "general.architecture", 's', 0, "smallthinker" }, { "smallthinker.block_count", 'u', 6, NULL },
    { "smallthinker.context_length", 'u', 64, NULL }, { "smallthinker.embedding_length", 'u', 64, NULL },
    { "smallthinker.feed_forward_length", 'u', 96, NULL }, { "smallthinker.attention.head_count", 'u', 4, NULL },
    { "smallthinker.attention.layer_norm_rms_epsilon", 'f', 1e-6, NULL }, { "smallthinker.expert_count", 'u', 8, NULL },
    { "smallthinker.expert_used_count", 'u', 3, NULL }, { "smallthinker.expert_feed_forward_length", 'u', 96, NULL },
    { 0 }
};

static int small(const char *key, char kind, double number, enum model_router router, struct model_hparams *h)
{
    struct tiny_edit ed[16] = { { key, kind, number, NULL } };
    const struct model_given given = { -1, router, NULL, 0 };
    memcpy(ed + 1, small_edits, sizeof small_edits);
    return hparams_given(ed, &given, h);
}

static void smallthinker(void)
{
    struct model_hparams h;
    /* Who does not say sigmoid or softmax is asked. */
    CHECK(hparams_given(small_edits, NULL, &h) == ERR_USAGE && says("--expert-gating") &&
          says("smallthinker.expert_gating_func"));
    CHECK(hparams_given(small_edits, &(struct model_given){ -1, MODEL_ROUTER_SOFTMAX_TOPK, NULL, 0 }, &h) == 0);
    CHECK(h.router == MODEL_ROUTER_SOFTMAX_TOPK && h.early_router && h.n_experts == 8 && h.n_experts_used == 3);
    CHECK(h.act == MODEL_ACT_RELU && h.rope == MODEL_ROPE_NEOX && !h.window && !h.nope_period);
    CHECK(model_attends_from(&h, 1, 60) == 0 && model_rotates(&h, 0));
    CHECK(small("smallthinker.expert_gating_func", 'u', 1, MODEL_ROUTER_NONE, &h) == 0 &&
          h.router == MODEL_ROUTER_SOFTMAX_TOPK);
    CHECK(small("smallthinker.expert_gating_func", 'u', 2, MODEL_ROUTER_NONE, &h) == 0 &&
          h.router == MODEL_ROUTER_SIGMOID_TOPK);
    CHECK(small("smallthinker.expert_gating_func", 'u', 2, MODEL_ROUTER_SOFTMAX_TOPK, &h) == ERR_MISMATCH &&
          says("contradicts softmax_topk"));
    CHECK(small("smallthinker.expert_gating_func", 'u', 3, MODEL_ROUTER_NONE, &h) == ERR_UNSUPPORTED);
    CHECK(small("smallthinker.attention.sliding_window", 'u', 16, MODEL_ROUTER_SIGMOID_TOPK, &h) == 0);
    CHECK(h.window == 16 && h.window_period == 4 && h.nope_period == 4);
    CHECK(model_attends_from(&h, 4, 60) == 0 && model_attends_from(&h, 3, 60) == 45);
    CHECK(model_attends_from(&h, 3, 15) == 0 && model_attends_from(&h, 3, 16) == 1);
    CHECK(!model_rotates(&h, 0) && model_rotates(&h, 1) && model_rotates(&h, 3) && !model_rotates(&h, 4));
    CHECK(small("smallthinker.attention.sliding_window_pattern", 'u', 2, MODEL_ROUTER_SIGMOID_TOPK, &h) ==
          ERR_UNSUPPORTED);
    /* Heads need not add up to the width. */
    CHECK(small("smallthinker.attention.key_length", 'u', 32, MODEL_ROUTER_SIGMOID_TOPK, &h) == ERR_UNSUPPORTED);
    struct tiny_edit wide[16] = { { "smallthinker.attention.key_length", 'u', 32, NULL },
                                  { "smallthinker.attention.value_length", 'u', 32, NULL } };
    memcpy(wide + 2, small_edits, sizeof small_edits);
    CHECK(hparams_given(wide, &(struct model_given){ -1, MODEL_ROUTER_SIGMOID_TOPK, NULL, 0 }, &h) == 0 && h.head_dim == 32);
    CHECK(h.n_rot == 32);
    CHECK(hparams_given(NULL, &(struct model_given){ -1, MODEL_ROUTER_SIGMOID_TOPK, NULL, 0 }, &h) == ERR_USAGE &&
          says("no experts"));
    for (int r = 0; r < MODEL_ROUTERS; r++)
        CHECK(model_router_by_name(model_router_name((enum model_router)r)) == r);
    CHECK(model_router_by_name("top1") == -1);
}

/* Hyper-parameters of n keys, one of them edited, left out or added. */
static int with_edit(const struct tiny_edit *all, size_t n, const char *key, char kind, double number, struct model_hparams *h)
{
    struct tiny_edit ed[32] = { { 0 } };
    size_t k = 0;
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        int this = key && !strcmp(all[i].key, key);
        found |= this;
        if (!this || kind != '-')
            ed[k++] = this ? (struct tiny_edit){ key, kind, number, NULL } : all[i];
    }
    if (key && !found)
        ed[k++] = (struct tiny_edit){ key, kind, number, NULL };
    return hparams_given(ed, NULL, h);
}

/* The keys of GLM-4.5, as small as the others, with up to two edits. */
static const struct tiny_edit glm_edits[] = {
    { "general.architecture", 's', 0, "glm4moe" }, { "glm4moe.context_length", 'u', 64, NULL },
    { "glm4moe.embedding_length", 'u', 64, NULL },
    { "glm4moe.block_count", 'u', 6, NULL }, { "glm4moe.feed_forward_length", 'u', 256, NULL },
    { "glm4moe.attention.head_count", 'u', 4, NULL }, { "glm4moe.attention.head_count_kv", 'u', 2, NULL },
    { "glm4moe.attention.layer_norm_rms_epsilon", 'f', 1e-5, NULL }, { "glm4moe.rope.dimension_count", 'u', 8, NULL },
    { "glm4moe.expert_count", 'u', 8, NULL }, { "glm4moe.expert_used_count", 'u', 3, NULL },
    { "glm4moe.expert_shared_count", 'u', 1, NULL }, { "glm4moe.expert_feed_forward_length", 'u', 32, NULL },
    { "glm4moe.leading_dense_block_count", 'u', 2, NULL }, { "glm4moe.nextn_predict_layers", 'u', 1, NULL },
    { "glm4moe.expert_gating_func", 'u', 2, NULL }, { "glm4moe.expert_weights_norm", 'b', 1, NULL },
    { "glm4moe.expert_weights_scale", 'f', 2.5, NULL }, { "glm4moe.expert_group_count", 'u', 4, NULL },
    { "glm4moe.expert_group_used_count", 'u', 2, NULL }, { 0 },
};

static int glm(const char *key, char kind, double number, struct model_hparams *h)
{
    return with_edit(glm_edits, sizeof glm_edits / sizeof glm_edits[0] - 1, key, kind, number, h);
}

static void lead_names(const struct model_hparams *h)
{
    char name[64];
    uint64_t d[4];
    CHECK(model_tensor_name(h, MODEL_ATTN_Q, 0, name, sizeof name) == 0 && !strcmp(name, "blk.2.attn_q.weight"));
    CHECK(model_tensor_name(h, MODEL_LEAD_UP, 4, name, sizeof name) == 0 && !strcmp(name, "blk.1.ffn_up.weight"));
    CHECK(model_layer_at(h, 0) == 3 && model_layer_at(h, 1) == 4 && model_layer_at(h, 2) == 0 && model_is_lead(h, 4));
    CHECK(model_role_at(h, MODEL_LEAD_UP, 4) == MODEL_REQUIRED && model_role_at(h, MODEL_LEAD_UP, 2) == MODEL_ABSENT);
    CHECK(model_role_at(h, MODEL_FFN_UP, 4) == MODEL_ABSENT && model_role_at(h, MODEL_FFN_UP, 2) == MODEL_REQUIRED);
    CHECK(model_role_at(h, MODEL_SHARED_UP, 3) == MODEL_ABSENT && model_role_at(h, MODEL_SELECT_BIAS, 3) == MODEL_ABSENT);
    CHECK(model_role_at(h, MODEL_ATTN_K_NORM, 3) == MODEL_OPTIONAL && model_role_at(h, MODEL_SELECT_BIAS, 0) == MODEL_REQUIRED);
    CHECK(model_tensor_shape(h, MODEL_LEAD_DOWN, d) == 2 && d[0] == 256 && d[1] == 64);
    CHECK(model_leaves_out(h, "blk.5.attn_q.weight") && !model_leaves_out(h, "blk.4.attn_q.weight"));
    CHECK(!model_leaves_out(h, "blk.6.attn_q.weight"));
}

/* The keys of Qwen3.6-35B-A3B, as small as the others, with up to one edit. */
static int qwen35(const char *key, char kind, double number, struct model_hparams *h)
{
    static const struct tiny_edit all[] = {
        { "general.architecture", 's', 0, "qwen35moe" }, { "qwen35moe.context_length", 'u', 64, NULL },
        { "qwen35moe.embedding_length", 'u', 64, NULL }, { "qwen35moe.block_count", 'u', 9, NULL },
        { "qwen35moe.attention.head_count", 'u', 4, NULL }, { "qwen35moe.attention.head_count_kv", 'u', 2, NULL },
        { "qwen35moe.attention.key_length", 'u', 32, NULL }, { "qwen35moe.attention.value_length", 'u', 32, NULL },
        { "qwen35moe.attention.layer_norm_rms_epsilon", 'f', 1e-5, NULL }, { "qwen35moe.rope.dimension_count", 'u', 8, NULL },
        { "qwen35moe.expert_count", 'u', 8, NULL }, { "qwen35moe.expert_used_count", 'u', 3, NULL },
        { "qwen35moe.expert_feed_forward_length", 'u', 32, NULL }, { "qwen35moe.expert_shared_feed_forward_length", 'u', 48, NULL },
        { "qwen35moe.nextn_predict_layers", 'u', 1, NULL }, { "qwen35moe.full_attention_interval", 'u', 4, NULL },
        { "qwen35moe.ssm.conv_kernel", 'u', 4, NULL }, { "qwen35moe.ssm.state_size", 'u', 16, NULL },
        { "qwen35moe.ssm.group_count", 'u', 2, NULL }, { "qwen35moe.ssm.time_step_rank", 'u', 6, NULL },
        { "qwen35moe.ssm.inner_size", 'u', 96, NULL },
    };
    return with_edit(all, sizeof all / sizeof all[0], key, kind, number, h);
}

/* The keys of RWKV-7, as small as the others, with up to one edit. */
static int rwkv7(const char *key, char kind, double number, struct model_hparams *h)
{
    static const struct tiny_edit all[] = {
        { "general.architecture", 's', 0, "rwkv7" }, { "rwkv7.context_length", 'u', 64, NULL },
        { "rwkv7.embedding_length", 'u', 64, NULL }, { "rwkv7.block_count", 'u', 3, NULL },
        { "rwkv7.feed_forward_length", 'u', 96, NULL }, { "rwkv7.attention.head_count", 'u', 0, NULL },
        { "rwkv7.attention.layer_norm_epsilon", 'f', 1e-5, NULL }, { "rwkv7.wkv.head_size", 'u', 16, NULL },
        { "rwkv7.attention.decay_lora_rank", 'u', 24, NULL }, { "rwkv7.attention.iclr_lora_rank", 'u', 20, NULL },
        { "rwkv7.attention.value_residual_mix_lora_rank", 'u', 8, NULL }, { "rwkv7.attention.gate_lora_rank", 'u', 40, NULL },
    };
    return with_edit(all, sizeof all / sizeof all[0], key, kind, number, h);
}

static void wkv_roles(const struct model_hparams *h)
{
    uint64_t d[4];
    char name[64];
    CHECK(model_role_presence(h, MODEL_ATTN_Q) == MODEL_ABSENT && model_role_presence(h, MODEL_ATTN_OUTPUT) == MODEL_ABSENT);
    CHECK(model_role_presence(h, MODEL_ROPE_FREQS) == MODEL_ABSENT && model_role_presence(h, MODEL_FFN_UP_BIAS) == MODEL_ABSENT);
    CHECK(model_role_at(h, MODEL_EMBD_NORM_BIAS, -1) == MODEL_REQUIRED && model_role_at(h, MODEL_FFN_LERP, 2) == MODEL_REQUIRED);
    CHECK(model_role_at(h, MODEL_WKV_VALUE_A, 0) == MODEL_ABSENT && model_role_at(h, MODEL_WKV_VALUE_A, 1) == MODEL_REQUIRED);
    CHECK(model_tensor_shape(h, MODEL_WKV_LERP, d) == 4 && d[0] == 64 && d[1] == 1 && d[2] == 1 && d[3] == 6);
    CHECK(model_role_is_vector(MODEL_WKV_LERP) && !model_role_is_vector(MODEL_WKV_R));
    CHECK(model_tensor_shape(h, MODEL_WKV_RATE_B, d) == 2 && d[0] == 20 && d[1] == 64);
    CHECK(model_tensor_shape(h, MODEL_WKV_GATE_A, d) == 2 && d[0] == 64 && d[1] == 40);
    CHECK(model_tensor_name(h, MODEL_FFN_NORM_BIAS, 1, name, sizeof name) == 0 && !strcmp(name, "blk.1.attn_norm_2.bias"));
    CHECK(model_tensor_name(h, MODEL_FFN_DOWN, 2, name, sizeof name) == 0 && !strcmp(name, "blk.2.channel_mix_value.weight"));
    CHECK(model_leaves_out(h, "blk.0.time_mix_v1.weight") && !model_leaves_out(h, "blk.1.time_mix_v1.weight"));
}

static void wkv(void)
{
    struct model_hparams h;
    int ok = rwkv7(NULL, 0, 0, &h) == 0;
    CHECK_MSG(ok, "%s", e.msg);
    if (!ok)
        return;
    CHECK(h.wkv_dim == 16 && h.n_heads == 4 && h.n_kv_heads == 4 && h.head_dim == 16 && h.decay_rank == 24 && h.rate_rank == 20 &&
          h.value_rank == 8 && h.gate_rank == 40 && h.layer_norm && h.n_rot == 0);
    CHECK(h.act == MODEL_ACT_RELU && h.ffn_up == MODEL_FFN_UP_UNGATED);
    wkv_roles(&h);
    CHECK(rwkv7("rwkv7.wkv.head_size", 'u', 24, &h) == ERR_FORMAT && says("wkv.head_size") && says("64"));
    CHECK(rwkv7("rwkv7.wkv.head_size", 'u', 0, &h) == ERR_FORMAT && says("wkv.head_size"));
    CHECK(rwkv7("rwkv7.wkv.head_size", 'u', 1024, &h) == ERR_LIMIT && says("wkv.head_size"));
    CHECK(rwkv7("rwkv7.attention.gate_lora_rank", 'u', 0, &h) == ERR_FORMAT && says("gate_lora_rank"));
    CHECK(rwkv7("rwkv7.attention.gate_lora_rank", 'u', 1u << 30, &h) == ERR_LIMIT && says("gate_lora_rank"));
    CHECK(rwkv7("rwkv7.attention.decay_lora_rank", '-', 0, &h) == ERR_FORMAT && says("decay_lora_rank"));
    CHECK(rwkv7("rwkv7.token_shift_count", 'u', 1, &h) == ERR_UNSUPPORTED && says("token_shift_count"));
    CHECK(rwkv7("rwkv7.token_shift_count", 'u', 2, &h) == 0);
    CHECK(rwkv7("rwkv7.attention.head_count", 'u', 4, &h) == ERR_UNSUPPORTED && says("head_count"));
    CHECK(rwkv7("rwkv7.rope.freq_base", 'f', 10000, &h) == ERR_UNSUPPORTED && says("rope.freq_base"));
}

/* The same of RWKV-6. */
static int rwkv6(const char *key, char kind, double number, struct model_hparams *h)
{
    static const struct tiny_edit all[] = {
        { "general.architecture", 's', 0, "rwkv6" }, { "rwkv6.context_length", 'u', 64, NULL },
        { "rwkv6.embedding_length", 'u', 64, NULL }, { "rwkv6.block_count", 'u', 3, NULL },
        { "rwkv6.feed_forward_length", 'u', 96, NULL }, { "rwkv6.attention.head_count", 'u', 0, NULL },
        { "rwkv6.attention.layer_norm_epsilon", 'f', 1e-5, NULL }, { "rwkv6.wkv.head_size", 'u', 16, NULL },
        { "rwkv6.time_mix_extra_dim", 'u', 12, NULL }, { "rwkv6.time_decay_extra_dim", 'u', 24, NULL },
        { "rwkv6.rescale_every_n_layers", 'u', 2, NULL },
    };
    return with_edit(all, sizeof all / sizeof all[0], key, kind, number, h);
}

static void wkv_6(void)
{
    struct model_hparams h;
    uint64_t d[4];
    char name[64];
    int ok = rwkv6(NULL, 0, 0, &h) == 0;
    CHECK_MSG(ok, "%s", e.msg);
    if (!ok)
        return;
    CHECK(h.wkv_dim == 16 && h.n_heads == 4 && h.mix_rank == 12 && h.decay_rank == 24 && h.halve_period == 2 && h.rate_rank == 0 &&
          h.act == MODEL_ACT_RELU && h.ffn_up == MODEL_FFN_UP_UNGATED && h.layer_norm);
    CHECK(model_role_at(&h, MODEL_WKV_RATE_A, 1) == MODEL_ABSENT && model_role_at(&h, MODEL_WKV_VALUE_A, 1) == MODEL_ABSENT &&
          model_role_at(&h, MODEL_WKV_K_K, 1) == MODEL_ABSENT && model_role_at(&h, MODEL_FFN_R, 0) == MODEL_REQUIRED);
    CHECK(model_tensor_shape(&h, MODEL_WKV_LERP, d) == 4 && d[0] == 64 && d[1] == 1 && d[2] == 1 && d[3] == 5);
    CHECK(model_tensor_shape(&h, MODEL_WKV_MIX_A, d) == 2 && d[0] == 64 && d[1] == 60);
    CHECK(model_tensor_shape(&h, MODEL_WKV_MIX_B, d) == 3 && d[0] == 12 && d[1] == 64 && d[2] == 5);
    CHECK(model_tensor_shape(&h, MODEL_WKV_R_K, d) == 2 && d[0] == 16 && d[1] == 4 && model_role_is_vector(MODEL_WKV_R_K));
    CHECK(model_tensor_name(&h, MODEL_WKV_DECAY_A, 1, name, sizeof name) == 0 && !strcmp(name, "blk.1.time_mix_decay_w1.weight"));
    CHECK(model_tensor_name(&h, MODEL_WKV_MIX_B, 1, name, sizeof name) == 0 && !strcmp(name, "blk.1.time_mix_w2.weight"));
    CHECK(!model_leaves_out(&h, "blk.0.time_mix_v1.weight"));
    CHECK(rwkv6("rwkv6.rescale_every_n_layers", '-', 0, &h) == 0 && h.halve_period == 0);
    CHECK(rwkv6("rwkv6.rescale_every_n_layers", 'u', 0, &h) == 0 && h.halve_period == 0);
    CHECK(rwkv6("rwkv6.time_mix_extra_dim", 'u', 0, &h) == ERR_FORMAT && says("time_mix_extra_dim"));
    CHECK(rwkv6("rwkv6.time_mix_extra_dim", 'u', 1u << 30, &h) == ERR_LIMIT && says("time_mix_extra_dim"));
    CHECK(rwkv6("rwkv6.time_decay_extra_dim", '-', 0, &h) == ERR_FORMAT && says("time_decay_extra_dim"));
    CHECK(rwkv6("rwkv6.token_shift_count", 'u', 1, &h) == ERR_UNSUPPORTED && says("token_shift_count"));
    CHECK(rwkv6("rwkv6.attention.gate_lora_rank", 'u', 8, &h) == ERR_UNSUPPORTED && says("gate_lora_rank"));
}

/* Which tensors recurrent layers have, and which the others. */
static void recurrent_roles(const struct model_hparams *h)
{
    uint64_t d[4];
    char name[64];
    CHECK(model_role_at(h, MODEL_ATTN_Q, 0) == MODEL_ABSENT && model_role_at(h, MODEL_ATTN_Q, 3) == MODEL_REQUIRED);
    CHECK(model_role_at(h, MODEL_DELTA_OUT, 0) == MODEL_REQUIRED && model_role_at(h, MODEL_DELTA_OUT, 3) == MODEL_ABSENT);
    CHECK(model_role_at(h, MODEL_DELTA_BETA, 1) == MODEL_REQUIRED && model_role_at(h, MODEL_DELTA_BETA_ALPHA, 1) == MODEL_ABSENT);
    CHECK(model_role_at(h, MODEL_ATTN_NORM, 0) == MODEL_REQUIRED && model_role_at(h, MODEL_SHARED_UP, 0) == MODEL_REQUIRED);
    CHECK(model_tensor_shape_at(h, MODEL_ATTN_Q, 3, d) == 2 && d[0] == 64 && d[1] == 256); /* queries and gates */
    CHECK(model_tensor_shape_at(h, MODEL_ATTN_OUTPUT, 3, d) == 2 && d[0] == 128);
    CHECK(model_tensor_shape_at(h, MODEL_DELTA_QKV, 0, d) == 2 && d[0] == 64 && d[1] == 160);
    CHECK(model_tensor_shape_at(h, MODEL_DELTA_CONV, 0, d) == 2 && d[0] == 4 && d[1] == 160 && model_role_is_vector(MODEL_DELTA_CONV));
    CHECK(model_tensor_name(h, MODEL_DELTA_A, 2, name, sizeof name) == 0 && !strcmp(name, "blk.2.ssm_a"));
    CHECK(model_leaves_out(h, "blk.8.attn_q.weight") && !model_leaves_out(h, "blk.7.attn_q.weight"));
}

static void recurrent(void)
{
    struct model_hparams h;
    struct op_need need;
    int ok = qwen35(NULL, 0, 0, &h) == 0;
    CHECK_MSG(ok, "%s", e.msg);
    if (!ok)
        return;
    CHECK(h.n_layers == 8 && h.n_nextn == 1 && h.full_period == 4 && h.conv_width == 4 && h.delta_dim == 16 && h.delta_k_heads == 2 &&
          h.delta_v_heads == 6 && h.delta_tiled && !h.delta_joined && h.out_gate && h.n_ff == 32 && h.n_ff_shared == 48);
    ops_most(&h, OPS_ALL, &need);
    CHECK(need.state == 3 * 160 + 96 * 16 && need.states == 6 && need.planes == 4);
    recurrent_roles(&h);
    CHECK(qwen35("qwen35moe.ssm.time_step_rank", 'u', 5, &h) == ERR_FORMAT && says("time_step_rank"));
    CHECK(qwen35("qwen35moe.ssm.inner_size", 'u', 64, &h) == ERR_UNSUPPORTED && says("inner_size"));
    CHECK(qwen35("qwen35moe.ssm.state_size", 'u', 1024, &h) == ERR_LIMIT && says("state_size"));
    CHECK(qwen35("qwen35moe.ssm.conv_kernel", 'u', 1, &h) == ERR_FORMAT && says("conv_kernel"));
    CHECK(qwen35("qwen35moe.full_attention_interval", 'u', 0, &h) == ERR_FORMAT && says("full_attention_interval"));
    CHECK(qwen35("qwen35moe.nextn_predict_layers", 'u', 9, &h) == ERR_LIMIT && says("nextn_predict_layers"));
    CHECK(qwen35("qwen35moe.ssm.group_count", '-', 0, &h) == ERR_FORMAT && says("group_count"));
    CHECK(qwen35("qwen35moe.attention.recurrent_layers", 'u', 0, &h) == ERR_UNSUPPORTED && says("recurrent_layers"));
}

/* A layer that predicts further tokens by itself. */
static void mtp(void)
{
    const struct tiny_edit *ed = glm_edits;
    const struct model_given given = { .act = -1, .mtp = 1 };
    struct model_hparams h;
    char name[64];
    uint64_t d[4];
    CHECK_MSG(hparams_given(ed, &given, &h) == 0, "%s", e.msg);
    CHECK(h.mtp == 5 && h.n_layers == 1 && h.n_lead == 0 && h.n_nextn == 0 && model_depth(&h) == 1 &&
          h.n_ff_lead == 0 && h.n_experts == 8);
    CHECK(model_tensor_name(&h, MODEL_ATTN_Q, 0, name, sizeof name) == 0 && !strcmp(name, "blk.5.attn_q.weight"));
    CHECK(model_tensor_name(&h, MODEL_FFN_UP, 0, name, sizeof name) == 0 && !strcmp(name, "blk.5.ffn_up_exps.weight"));
    CHECK(model_tensor_name(&h, MODEL_MTP_PROJ, -1, name, sizeof name) == 0 && !strcmp(name, "blk.5.nextn.eh_proj.weight"));
    CHECK(model_tensor_name(&h, MODEL_OUTPUT, -1, name, sizeof name) == 0 && !strcmp(name, "blk.5.nextn.shared_head_head.weight"));
    CHECK(model_tensor_name(&h, MODEL_TOKEN_EMBD, -1, name, sizeof name) == 0 && !strcmp(name, "blk.5.nextn.embed_tokens.weight"));
    CHECK(model_tensor_name(&h, MODEL_OUTPUT_NORM, -1, name, sizeof name) == 0 && !strcmp(name, "blk.5.nextn.shared_head_norm.weight"));
    CHECK(model_tensor_name(&h, MODEL_ROPE_FREQS, -1, name, sizeof name) == 0 && !strcmp(name, "rope_freqs.weight"));
    CHECK(model_tensor_shape(&h, MODEL_MTP_PROJ, d) == 2 && d[0] == 128 && d[1] == 64);
    CHECK(model_tensor_shape(&h, MODEL_MTP_HNORM, d) == 1 && d[0] == 64 && model_role_is_vector(MODEL_MTP_HNORM));
    CHECK(model_role_presence(&h, MODEL_MTP_ENORM) == MODEL_REQUIRED && model_role_presence(&h, MODEL_TOKEN_EMBD) == MODEL_OPTIONAL &&
          model_role_presence(&h, MODEL_OUTPUT_NORM) == MODEL_REQUIRED && model_role_at(&h, MODEL_SHARED_UP, 0) == MODEL_REQUIRED);
    CHECK(model_leaves_out(&h, "blk.4.attn_q.weight") && model_leaves_out(&h, "token_embd.weight"));
    CHECK(model_leaves_out(&h, "blk.6.attn_q.weight"));
    CHECK(!model_leaves_out(&h, "blk.5.attn_q.weight") && !model_leaves_out(&h, "rope_freqs.weight"));
    CHECK(glm(NULL, 0, 0, &h) == 0 && h.mtp == 0 && model_role_presence(&h, MODEL_MTP_PROJ) == MODEL_ABSENT &&
          model_role_presence(&h, MODEL_TOKEN_EMBD) == MODEL_REQUIRED);
    CHECK(hparams_given(NULL, &given, &h) == ERR_UNSUPPORTED && says("llama.nextn_predict_layers' is absent or 0"));
}

/* Layers before the experts', groups, biases for choosing, layers that are left out. */
static void lead(void)
{
    struct model_hparams h;
    int ok = glm(NULL, 0, 0, &h) == 0;
    CHECK_MSG(ok, "%s", e.msg);
    if (!ok)
        return;
    CHECK(h.n_layers == 3 && h.n_lead == 2 && h.n_nextn == 1 && model_depth(&h) == 5 && h.n_ff == 32 && h.n_ff_lead == 256);
    CHECK(h.router == MODEL_ROUTER_SIGMOID_TOPK && h.n_groups == 4 && h.n_groups_used == 2 && h.expert_scale == 2.5f);
    CHECK(h.n_ff_shared == 32 && !h.shared_gated && h.n_rot == 8 && h.select_bias == 1);
    lead_names(&h);
    CHECK(glm("glm4moe.leading_dense_block_count", 'u', 5, &h) == ERR_LIMIT && says("leading_dense_block_count"));
    CHECK(glm("glm4moe.nextn_predict_layers", 'u', 6, &h) == ERR_LIMIT && says("nextn_predict_layers"));
    CHECK(glm("glm4moe.expert_weights_norm", '-', 0, &h) == ERR_UNSUPPORTED && says("expert_weights_norm"));
    CHECK(glm("glm4moe.expert_gating_func", 'u', 1, &h) == ERR_UNSUPPORTED && says("expert_group_count' is 4"));
    CHECK(glm("glm4moe.expert_gating_func", 'u', 3, &h) == ERR_UNSUPPORTED && says("expert_gating_func' is 3"));
    CHECK(glm("glm4moe.expert_group_count", 'u', 3, &h) == ERR_FORMAT && says("of 3 groups"));
    CHECK(glm("glm4moe.expert_group_used_count", 'u', 1, &h) == ERR_FORMAT && says("1 of 4 groups"));
    CHECK(glm("glm4moe.expert_shared_count", 'u', 1e6, &h) == ERR_LIMIT && says("expert_shared_count"));
    CHECK(glm("glm4moe.rope.dimension_sections", 'u', 1, &h) == ERR_UNSUPPORTED && says("rope.dimension_sections"));
    CHECK(glm("glm4moe.expert_gating_func", '-', 0, &h) == 0 && h.router == MODEL_ROUTER_SIGMOID_TOPK);
    CHECK(glm("glm4moe.leading_dense_block_count", '-', 0, &h) == 0 && h.n_lead == 0 && h.n_ff_lead == 0);
}

/* The keys of DeepSeek-V2 that no other has; an edit of one. */
static int deepseek(const char *key, char kind, double number, struct model_hparams *h)
{
    static const struct tiny_edit all[] = {
        { "general.architecture", 's', 0, "deepseek2" }, { "deepseek2.context_length", 'u', 64, NULL },
        { "deepseek2.embedding_length", 'u', 64, NULL }, { "deepseek2.block_count", 'u', 4, NULL },
        { "deepseek2.feed_forward_length", 'u', 256, NULL }, { "deepseek2.attention.head_count", 'u', 4, NULL },
        { "deepseek2.attention.head_count_kv", 'u', 1, NULL }, { "deepseek2.attention.layer_norm_rms_epsilon", 'f', 1e-5, NULL },
        { "deepseek2.rope.dimension_count", 'u', 8, NULL }, { "deepseek2.attention.kv_lora_rank", 'u', 40, NULL },
        { "deepseek2.attention.key_length", 'u', 48, NULL }, { "deepseek2.attention.value_length", 'u', 40, NULL },
        { "deepseek2.attention.key_length_mla", 'u', 24, NULL }, { "deepseek2.attention.value_length_mla", 'u', 20, NULL },
        { "deepseek2.expert_count", 'u', 8, NULL }, { "deepseek2.expert_used_count", 'u', 3, NULL },
        { "deepseek2.expert_shared_count", 'u', 2, NULL }, { "deepseek2.expert_feed_forward_length", 'u', 32, NULL },
        { "deepseek2.rope.scaling.type", 's', 0, "yarn" }, { "deepseek2.rope.scaling.factor", 'f', 40, NULL },
        { "deepseek2.rope.scaling.yarn_log_multiplier", 'f', 0.0707, NULL },
    };
    return with_edit(all, sizeof all / sizeof all[0], key, kind, number, h);
}

static void latent(void)
{
    struct model_hparams h;
    uint64_t d[4];
    int ok = deepseek(NULL, 0, 0, &h) == 0;
    CHECK_MSG(ok, "%s", e.msg);
    if (!ok)
        return;
    CHECK(h.kv_rank == 40 && h.q_rank == 0 && h.n_rot == 8 && h.nope_dim == 16 && h.value_dim == 20);
    CHECK(h.head_dim == 48 && h.n_kv_heads == 1);
    CHECK(h.router == MODEL_ROUTER_SOFTMAX_ALL && h.n_ff_shared == 64 && h.rope_mscale == 1);
    double mscale = 1 + 0.0707 * log(40.0);
    CHECK(fabs((double)h.attn_scale - mscale * mscale / sqrt(24.0)) < 1e-6);
    CHECK( model_q_dim(&h) == 96 && model_out_dim(&h) == 80);
    CHECK(model_tensor_shape(&h, MODEL_ATTN_K_B, d) == 3 && d[0] == 16 && d[1] == 40 && d[2] == 4);
    CHECK(model_tensor_shape(&h, MODEL_ATTN_V_B, d) == 3 && d[0] == 40 && d[1] == 20 && d[2] == 4);
    CHECK(model_tensor_shape(&h, MODEL_ATTN_Q, d) == 2 && d[1] == 96 && model_role_presence(&h, MODEL_ATTN_K) == MODEL_ABSENT);
    CHECK(deepseek("deepseek2.attention.q_lora_rank", 'u', 12, &h) == 0 && model_role_presence(&h, MODEL_ATTN_Q) == MODEL_ABSENT);
    CHECK(model_tensor_shape(&h, MODEL_ATTN_Q_B, d) == 2 && d[0] == 12 && d[1] == 96);
    CHECK(deepseek("deepseek2.attention.key_length_mla", '-', 0, &h) == ERR_FORMAT && says("key_length_mla' is absent"));
    CHECK(deepseek("deepseek2.attention.key_length_mla", 'u', 8, &h) == ERR_FORMAT && says("key_length_mla' 8"));
    CHECK(deepseek("deepseek2.attention.key_length", 'u', 24, &h) == ERR_UNSUPPORTED && says("key_length' is 24"));
    CHECK(deepseek("deepseek2.attention.value_length", 'u', 20, &h) == ERR_UNSUPPORTED && says("value_length' is 20"));
    CHECK(deepseek("deepseek2.attention.head_count_kv", 'u', 4, &h) == ERR_UNSUPPORTED && says("head_count_kv' is 4"));
    CHECK(deepseek("deepseek2.attention.head_count", 'u', 1 << 20, &h) == ERR_FORMAT && says("1048576 heads"));
    CHECK(deepseek("deepseek2.rope.scaling.yarn_log_multiplier", '-', 0, &h) == ERR_FORMAT && says("yarn_log_multiplier"));
    CHECK(deepseek("deepseek2.expert_weights_norm", 'b', 1, &h) == 0 && h.router == MODEL_ROUTER_SOFTMAX_TOPK);
    CHECK(deepseek("deepseek2.expert_group_count", 'u', 2, &h) == ERR_UNSUPPORTED && says("expert_group_count' is 2"));
    CHECK(deepseek("deepseek2.leading_dense_block_count", 'u', 4, &h) == ERR_LIMIT);
}

static const uint8_t gemma_windows[7] = { 1, 1, 1, 1, 1, 0, 1 }, gemma_uneven[7] = { 1, 0, 1, 1, 1, 0, 1 };
static const uint32_t gemma_kv[7] = { 8, 8, 8, 8, 8, 2, 8 }, gemma_kv_uneven[7] = { 8, 8, 4, 8, 8, 2, 8 };

/* Hyper-parameters of a small Gemma 4 with these arrays; key: one that is edited. */
static const uint32_t *gemma_ff; /* feed_forward_length of each layer; NULL: one of all */

static int gemma4(const uint8_t windows[7], const uint32_t kv[7], const char *key, uint32_t value, struct model_hparams *h)
{
    static const struct { const char *key; uint32_t value; } keys[] = {
        { "context_length", 64 }, { "embedding_length", 64 }, { "block_count", 7 }, { "feed_forward_length", 96 },
        { "attention.head_count", 8 }, { "attention.key_length", 32 }, { "attention.value_length", 32 }, { "attention.key_length_swa", 16 },
        { "attention.value_length_swa", 16 }, { "rope.dimension_count", 32 }, { "rope.dimension_count_swa", 16 },
        { "attention.sliding_window", 16 }, { "vocab_size", 100 }, { "attention.shared_kv_layers", 0 },
        { "embedding_length_per_layer_input", 0 },
    };
    const struct gguf_key arrays[] = {
        { "gemma4.attention.sliding_window_pattern", GGUF_ARRAY, GGUF_BOOL, 7, windows, 7 },
        { "gemma4.attention.head_count_kv", GGUF_ARRAY, GGUF_U32, 7, kv, 28 },
        { "gemma4.feed_forward_length", GGUF_ARRAY, GGUF_U32, 7, gemma_ff, 28 },
    };
    struct gguf_writer *w;
    struct gguf *g;
    uint8_t *b;
    size_t len;
    char name[96];
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "general.architecture", "gemma4", &e), &e);
    tiny_check(gguf_writer_f32(w, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f, &e), &e);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        snprintf(name, sizeof name, "gemma4.%s", keys[i].key);
        if (gemma_ff && !strcmp(keys[i].key, "feed_forward_length"))
            continue;
        tiny_check(gguf_writer_u32(w, name, key && !strcmp(key, keys[i].key) ? value : keys[i].value, &e), &e);
    }
    for (int i = 0; i < 2 + (gemma_ff != NULL); i++)
        tiny_check(gguf_writer_kv_raw(w, &arrays[i], &e), &e);
    tiny_check(gguf_writer_bool(w, "thermocline.tied_output", 1, &e), &e);
    tiny_check(gguf_writer_blob(w, &b, &len, &e), &e);
    gguf_writer_free(w);
    tiny_check(gguf_parse(b, len, len, "tiny", &g, &e), &e);
    int r = model_hparams_read(g, NULL, h, &e);
    gguf_close(g);
    free(b);
    return r;
}

/* Layers with a window have heads of their own. */
static void kinds(void)
{
    struct model_hparams h;
    struct op_need need;
    uint64_t d[4];
    int ok = gemma4(gemma_windows, gemma_kv, NULL, 0, &h) == 0;
    CHECK_MSG(ok, "%s", e.msg);
    if (!ok)
        return;
    CHECK(h.window == 16 && h.window_period == 6 && model_has_window(&h, 4) && !model_has_window(&h, 5) && h.attn_scale == 1);
    CHECK(h.head_dim == 32 && h.n_kv_heads == 2 && h.head_dim_window == 16 && h.n_kv_window == 8 && h.n_rot_window == 16);
    CHECK(model_tensor_shape_at(&h, MODEL_ATTN_K, 0, d) == 2 && d[1] == 128);
    CHECK(model_tensor_shape_at(&h, MODEL_ATTN_K, 5, d) == 2 && d[1] == 64);
    CHECK(model_tensor_shape_at(&h, MODEL_ATTN_OUTPUT, 0, d) == 2 && d[0] == 128);
    ops_most(&h, OPS_ALL, &need);
    CHECK(need.q == 256 && need.kv == 256);
    CHECK(model_role_at(&h, MODEL_ATTN_V, 5) == MODEL_OPTIONAL && model_role_at(&h, MODEL_EXPERT_NORM, 0) == MODEL_ABSENT);
    CHECK(gemma4(gemma_uneven, gemma_kv, NULL, 0, &h) == ERR_UNSUPPORTED && says("sliding_window_pattern"));
    CHECK(gemma4(gemma_windows, gemma_kv_uneven, NULL, 0, &h) == ERR_UNSUPPORTED && says("head_count_kv' is 4"));
    CHECK(gemma4(gemma_windows, gemma_kv, "block_count", 8, &h) == ERR_FORMAT && says("layer 7"));
    CHECK(gemma4(gemma_windows, gemma_kv, "block_count", 0, &h) == ERR_FORMAT && says("block_count' is 0"));
    CHECK(gemma4(gemma_windows, gemma_kv, "attention.shared_kv_layers", 2, &h) == ERR_FORMAT && says("shared_kv_layers' is 2"));
    CHECK(gemma4(gemma_windows, gemma_kv, "attention.shared_kv_layers", 7, &h) == ERR_LIMIT && says("shared_kv_layers' is 7"));
    CHECK(gemma4(gemma_windows, gemma_kv, "attention.shared_kv_layers", 1, &h) == 0 && h.shared_kv == 1);
    CHECK(model_kv_layer(&h, 6) == 4 && model_kv_layer(&h, 5) == 5 && !model_owns_kv(&h, 6) && model_owns_kv(&h, 4));
    CHECK(model_role_at(&h, MODEL_ATTN_K, 6) == MODEL_ABSENT && model_role_at(&h, MODEL_ATTN_Q, 6) == MODEL_REQUIRED);
    CHECK(model_leaves_out(&h, "blk.6.attn_k.weight") && model_leaves_out(&h, "blk.6.attn_v.weight") &&
          !model_leaves_out(&h, "blk.5.attn_k.weight") && !model_leaves_out(&h, "blk.6.attn_q.weight"));
    CHECK(gemma4(gemma_windows, gemma_kv, "embedding_length_per_layer_input", 256, &h) == 0 && h.layer_embd == 256);
    CHECK(model_tensor_shape_at(&h, MODEL_LAYER_EMBD, -1, d) == 2 && d[0] == 7 * 256);
    CHECK(gemma4(gemma_windows, gemma_kv, "embedding_length_per_layer_input", MODEL_MAX_DIM / 4, &h) == ERR_LIMIT &&
          says("per_layer_input' is"));
    CHECK(gemma4(gemma_windows, gemma_kv, "rope.dimension_count_swa", 32, &h) == ERR_FORMAT && says("dimension_count_swa' is 32"));
    CHECK(gemma4(gemma_windows, gemma_kv, "attention.value_length", 16, &h) == ERR_UNSUPPORTED && says("value_length' is 16"));
}

/* FFNs of several widths are each layer's own; of one width they are as if the key had one value. */
static void widths(void)
{
    static const uint32_t two[7] = { 48, 48, 96, 96, 96, 32, 96 }, same[7] = { 96, 96, 96, 96, 96, 96, 96 }, none[7] = { 96, 0, 96, 96 };
    struct model_hparams h, own;
    uint64_t d[4];
    gemma_ff = two;
    CHECK(gemma4(gemma_windows, gemma_kv, NULL, 0, &h) == 0 && h.n_ff == 96 && h.n_layers == 7 && h.n_lead == 0 && model_widths_fit(&h));
    CHECK(model_n_ff(&h, 0) == 48 && model_n_ff(&h, 5) == 32 && model_n_ff(&h, 6) == 96 && model_n_ff(&h, -1) == 96);
    CHECK(model_tensor_shape_at(&h, MODEL_FFN_GATE, 1, d) == 2 && d[1] == 48);
    CHECK(model_tensor_shape_at(&h, MODEL_FFN_DOWN, 5, d) == 2 && d[0] == 32 && d[1] == 64);
    own = model_of_layer(&h, 5);
    CHECK(own.n_ff == 32 && model_n_ff(&own, 5) == 32);
    own = h, own.widths[3] = 0;
    CHECK(!model_widths_fit(&own));
    own = h, own.n_ff = 128;
    CHECK(!model_widths_fit(&own));
    gemma_ff = same;
    CHECK(gemma4(gemma_windows, gemma_kv, NULL, 0, &h) == 0 && h.n_ff == 96 && !h.widths[0] && model_n_ff(&h, 3) == 96);
    gemma_ff = none;
    CHECK(gemma4(gemma_windows, gemma_kv, NULL, 0, &h) == ERR_UNSUPPORTED && says("feed_forward_length' is 0"));
    gemma_ff = NULL;
}

/* What was stated about a file stays stated in the metadata of its pack. */
static void stated(void)
{
    size_t len, meta_len = 0;
    uint8_t *b = tiny_header(small_edits, QUANT_F16, NULL, 0, &len), *blob = NULL;
    struct gguf *g, *g2;
    struct model_hparams h, h2;
    const struct model_given given = { -1, MODEL_ROUTER_SIGMOID_TOPK, NULL, 0 };
    tiny_check(gguf_parse(b, len, 1 << 20, "tiny", &g, &e), &e);
    CHECK(model_hparams_read(g, &given, &h, &e) == 0 && model_meta_blob(g, &h, NULL, &blob, &meta_len, &e) == 0);
    CHECK(gguf_parse(blob, meta_len, meta_len, "meta", &g2, &e) == 0);
    CHECK(model_hparams_read(g2, NULL, &h2, &e) == 0 && h2.router == MODEL_ROUTER_SIGMOID_TOPK);
    CHECK(model_as(&h2).router == MODEL_ROUTER_SIGMOID_TOPK && model_as(&h2).act == MODEL_ACT_RELU);
    gguf_close(g);
    gguf_close(g2);
    free(b);
    free(blob);
}

/* model_open of the tiny model: type of the matrices, a tensor left out, an extra one. */
static int opens(const struct tiny_edit *ed, uint32_t type, const char *skip, uint64_t experts, const char *extra,
                 uint64_t d0, uint64_t d1, uint32_t extra_type, struct model_hparams *h)
{
    struct gguf_writer *w;
    uint8_t *b;
    size_t len;
    struct gguf *g;
    struct model *m;
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_keys(w, ed);
    tiny_tensors(w, type, skip, experts);
    if (extra)
        tiny_tensor(w, NULL, extra, extra_type, d0, d1, 0);
    tiny_check(gguf_writer_blob(w, &b, &len, &e), &e);
    gguf_writer_free(w);
    tiny_check(gguf_parse(b, len, 1 << 24, "tiny", &g, &e), &e);
    int r = model_open(g, NULL, &m, &e);
    if (r == 0) {
        *h = m->h;
        CHECK(m->global[MODEL_TOKEN_EMBD] == gguf_tensor(g, "token_embd.weight"));
        CHECK(m->layer[1][MODEL_ATTN_K] == gguf_tensor(g, "blk.1.attn_k.weight"));
        CHECK(m->layer[0][MODEL_FFN_DOWN] ==
              gguf_tensor(g, experts ? "blk.0.ffn_down_exps.weight" : "blk.0.ffn_down.weight"));
        CHECK(!m->layer[0][MODEL_FFN_ROUTER] == !experts);
        model_close(m);
    }
    gguf_close(g);
    free(b);
    return r;
}

static void tensors(void)
{
    struct model_hparams h;
    const struct tiny_edit moe[] = { { "llama.expert_count", 'u', 4, NULL },
                                     { "llama.expert_used_count", 'u', 2, NULL }, { 0 } };
    CHECK(opens(NULL, QUANT_F16, NULL, 0, NULL, 0, 0, 0, &h) == 0 && h.tied_output);
    CHECK(opens(NULL, QUANT_Q8_0, NULL, 0, "output.weight", TINY_D, TINY_VOCAB, QUANT_Q8_0, &h) == 0 && !h.tied_output);
    CHECK(opens(NULL, QUANT_F32, NULL, 0, "rope_freqs.weight", 8, 0, QUANT_F32, &h) == 0);
    CHECK(opens(moe, QUANT_Q4_0, NULL, 4, NULL, 0, 0, 0, &h) == 0 && h.n_experts == 4);
    CHECK(opens(moe, QUANT_Q4_0, NULL, 3, NULL, 0, 0, 0, &h) == ERR_FORMAT && says("64 x 3 x 1 x 1"));
    CHECK(opens(moe, QUANT_Q4_0, NULL, 0, NULL, 0, 0, 0, &h) == ERR_FORMAT && says("ffn_gate_inp.weight' is absent"));
    /* What older converters made says so. */
    const struct tiny_edit v2[] = { { "general.architecture", 's', 0, "deepseek2" }, { 0 } };
    const struct tiny_edit six[] = { { "general.architecture", 's', 0, "rwkv6" }, { 0 } };
    const struct tiny_edit next[] = { { "general.architecture", 's', 0, "qwen3next" }, { 0 } };
    CHECK(opens(moe, QUANT_Q4_0, "blk.0.ffn_gate_exps.weight", 4, "blk.0.ffn_gate.0.weight", TINY_D, TINY_FF, QUANT_Q4_0, &h) ==
          ERR_UNSUPPORTED && says("'blk.0.ffn_gate.0.weight': each expert has") && says("convert the model again"));
    CHECK(opens(v2, QUANT_F16, NULL, 0, NULL, 0, 0, 0, &h) == ERR_UNSUPPORTED &&
          says("key 'deepseek2.attention.key_length_mla' is absent: ") && says("convert the model again"));
    CHECK(opens(six, QUANT_F16, NULL, 0, "blk.0.time_mix_lerp_w.weight", TINY_D, 0, QUANT_F32, &h) == ERR_UNSUPPORTED &&
          says("time_mix_lerp_w") && says("convert the model again"));
    CHECK(opens(next, QUANT_F16, NULL, 0, "blk.0.ssm_in.weight", TINY_D, TINY_D, QUANT_F16, &h) == ERR_UNSUPPORTED &&
          says("ssm_in") && says("convert the model again"));
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.0.ssm_in.weight", TINY_D, TINY_D, QUANT_F16, &h) == ERR_UNSUPPORTED &&
          !says("convert the model again"));
    CHECK(opens(NULL, QUANT_F16, "blk.1.ffn_norm.weight", 0, NULL, 0, 0, 0, &h) == ERR_FORMAT &&
          says("'tiny': tensor 'blk.1.ffn_norm.weight' is absent"));
    CHECK(opens(NULL, QUANT_Q8_1, NULL, 0, NULL, 0, 0, 0, &h) == ERR_UNSUPPORTED && says("Q8_1"));
    CHECK(opens(NULL, QUANT_F16, "output_norm.weight", 0, "output_norm.weight", TINY_D, 0, QUANT_F16, &h) ==
          ERR_UNSUPPORTED && says("only F32"));
    CHECK(opens(NULL, QUANT_F16, "token_embd.weight", 0, "token_embd.weight", TINY_D, 8, QUANT_F16, &h) ==
          ERR_FORMAT && says("token_embd.weight' is of shape 64 x 8"));
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.0.attn_q.bias", TINY_D, 0, QUANT_F32, &h) == 0);
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.0.attn_q.bias", TINY_D, 2, QUANT_F32, &h) == ERR_FORMAT && says("blk.0.attn_q.bias"));
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.0.ffn_gate.bias", TINY_FF, 0, QUANT_F32, &h) == 0);
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.1.ffn_up.bias", TINY_FF + 1, 0, QUANT_F32, &h) == ERR_FORMAT && says("blk.1.ffn_up.bias"));
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.0.ffn_down.bias", TINY_D, 0, QUANT_F16, &h) == ERR_UNSUPPORTED && says("only F32"));
    CHECK(opens(moe, QUANT_Q4_0, NULL, 4, "blk.0.ffn_gate.bias", TINY_FF, 0, QUANT_F32, &h) == ERR_UNSUPPORTED &&
          says("blk.0.ffn_gate.bias"));
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.0.attn_q_norm.weight", TINY_D, 0, QUANT_F32, &h) == ERR_UNSUPPORTED &&
          says("blk.0.attn_q_norm.weight"));
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.2.attn_norm.weight", TINY_D, 0, QUANT_F32, &h) == ERR_UNSUPPORTED &&
          says("blk.2.attn_norm.weight"));
}

/* Thresholds that are given become tensors of the file; which files can have some. */
static void thresholds(void)
{
    static float t[TINY_LAYERS * TINY_FF], other[TINY_LAYERS * TINY_FF], row[TINY_FF];
    for (int i = 0; i < TINY_LAYERS * TINY_FF; i++)
        t[i] = other[i] = (float)i / 7;
    other[TINY_FF + 3]++;
    struct model_given given = { -1, MODEL_ROUTER_NONE, t, 0 };
    struct model_hparams h;
    struct gguf *g;
    struct model *m;
    size_t len, meta_len;
    uint8_t *b = tiny_header(NULL, QUANT_F16, NULL, 0, &len), *blob;
    tiny_check(gguf_parse(b, len, 1 << 20, "tiny", &g, &e), &e);
    uint64_t n = g->n_tensors;
    CHECK_MSG(model_open(g, &given, &m, &e) == 0, "%s", e.msg);
    CHECK(m->h.thresholds && g->n_tensors == n + TINY_LAYERS && g->tensors[n].memory);
    const struct gguf_tensor *x = gguf_tensor(g, "blk.1.ffn_gate.threshold");
    CHECK(x && x == m->layer[1][MODEL_FFN_THRESHOLD] && x->bytes == sizeof row && x->dims[0] == TINY_FF && x->type == QUANT_F32);
    CHECK(x && gguf_read(g, x, 0, row, sizeof row, &e) == 0 && !memcmp(row, t + TINY_FF, sizeof row));
    CHECK(x && gguf_read(g, x, 8, row, 4, &e) == 0 && row[0] == t[TINY_FF + 2]);
    CHECK(model_meta_blob(g, &m->h, NULL, &blob, &meta_len, &e) == 0);
    model_close(m);
    CHECK(model_open(g, &given, &m, &e) == 0 && g->n_tensors == n + TINY_LAYERS); /* the same once more */
    model_close(m);
    given.thresholds = other;
    m = NULL;
    CHECK(model_open(g, &given, &m, &e) == ERR_MISMATCH && says("blk.1.ffn_gate.threshold") && says("other thresholds"));
    gguf_close(g);
    tiny_check(gguf_parse(blob, meta_len, meta_len, "meta", &g, &e), &e); /* as a pack has it */
    CHECK(model_hparams_read(g, NULL, &h, &e) == 0 && h.thresholds);
    gguf_close(g);
    free(blob);
    static const float wrong[] = { -1e-30f, NAN, INFINITY, -INFINITY };
    for (int i = 0; i < 4; i++) {
        memcpy(other, t, sizeof other);
        other[TINY_FF + 5] = wrong[i];
        tiny_check(gguf_parse(b, len, 1 << 20, "tiny", &g, &e), &e);
        CHECK_MSG(model_open(g, &given, &m, &e) == ERR_FORMAT && says("'blk.1.ffn_gate.threshold': the threshold of neuron 5 is"),
                  "%s", e.msg);
        gguf_close(g);
    }
    free(b);
    given.thresholds = t;
    static const struct tiny_edit relu[] = { { "llama.hidden_act", 's', 0, "relu" }, { 0 } };
    static const struct tiny_edit moe[] = { { "llama.expert_count", 'u', 4, NULL }, { "llama.expert_used_count", 'u', 2, NULL }, { 0 } };
    CHECK(hparams_given(NULL, &given, &h) == 0 && h.thresholds);
    CHECK(hparams_given(NULL, NULL, &h) == 0 && !h.thresholds);
    CHECK(hparams_given(relu, &given, &h) == 0 && h.cold_thresholds && !h.thresholds);
    CHECK(hparams_given(moe, &given, &h) == ERR_UNSUPPORTED && says("experts are sparse by themselves"));
    CHECK(model_bad_threshold(t, TINY_FF) == -1 && model_bad_threshold(wrong, 4) == 0 && model_bad_threshold(wrong + 1, 1) == 0);
}

/* Presence and shape by hyper-parameters: what one has, the other gives. */
static void fused(void)
{
    struct model_hparams h;
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.0.attn_qkv.weight", TINY_D, 7, QUANT_F16, &h) == ERR_FORMAT &&
          says("blk.0.attn_qkv.weight") && says("128 rows"));
    CHECK(opens(NULL, QUANT_F16, NULL, 0, "blk.0.attn_qkv.weight", TINY_D, 128, QUANT_F16, &h) == ERR_FORMAT && says("occurs twice"));
}

/* Where attention goes beside the FFN, there is one norm, and there may be another of attention's own. */
static void beside(void)
{
    struct model_hparams h = { .n_layers = 1, .d_model = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .n_ff = 96 };
    CHECK(model_role_at(&h, MODEL_FFN_NORM, 0) == MODEL_REQUIRED && model_role_at(&h, MODEL_ATTN_NORM_2, 0) == MODEL_ABSENT &&
          model_role_at(&h, MODEL_ATTN_NORM_BIAS, 0) == MODEL_ABSENT && model_role_presence(&h, MODEL_OUTPUT_NORM_BIAS) == MODEL_ABSENT);
    h.layer_norm = 1;
    CHECK(model_role_at(&h, MODEL_FFN_NORM_BIAS, 0) == MODEL_REQUIRED && model_role_at(&h, MODEL_ATTN_NORM_BIAS, 0) == MODEL_REQUIRED &&
          model_role_presence(&h, MODEL_OUTPUT_NORM_BIAS) == MODEL_REQUIRED);
    h.parallel = 1;
    CHECK(model_role_at(&h, MODEL_FFN_NORM, 0) == MODEL_ABSENT && model_role_at(&h, MODEL_FFN_NORM_BIAS, 0) == MODEL_ABSENT &&
          model_role_at(&h, MODEL_ATTN_NORM_2, 0) == MODEL_OPTIONAL && model_role_at(&h, MODEL_ATTN_NORM_2_BIAS, 0) == MODEL_OPTIONAL);
}

static void roles(void)
{
    struct model_hparams h = { .n_layers = 4, .d_model = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 24, .n_ff = 96,
                               .n_vocab = 500, .n_rot = 24 };
    uint64_t d[4];
    for (int r = 0; r < MODEL_ROLES; r++)
        CHECK((model_tensor_shape(&h, (enum model_role)r, d) == -1) == (model_role_presence(&h, (enum model_role)r) == MODEL_ABSENT));
    CHECK(model_tensor_shape(&h, MODEL_ATTN_K, d) == 2 && d[0] == 64 && d[1] == 48 && d[2] == 1 && d[3] == 1);
    CHECK(model_tensor_shape(&h, MODEL_ATTN_OUTPUT, d) == 2 && d[0] == 96 && d[1] == 64);
    CHECK(model_tensor_shape(&h, MODEL_FFN_DOWN, d) == 2 && d[0] == 96 && d[1] == 64);
    CHECK(model_tensor_shape(&h, MODEL_ROPE_FREQS, d) == 1 && d[0] == 12 && model_role_is_vector(MODEL_ROPE_FREQS));
    CHECK(model_role_presence(&h, MODEL_ROPE_FREQS) == MODEL_OPTIONAL && model_role_presence(&h, MODEL_ATTN_Q) == MODEL_REQUIRED);
    CHECK(model_rope_divisors(&h, 1 << 20) == MODEL_ROPE_FREQS && model_role_presence(&h, MODEL_ROPE_LONG) == MODEL_ABSENT);
    h.long_context = 4096;
    CHECK(model_rope_divisors(&h, 4096) == MODEL_ROPE_SHORT && model_rope_divisors(&h, 4097) == MODEL_ROPE_LONG);
    CHECK(model_role_presence(&h, MODEL_ROPE_LONG) == MODEL_REQUIRED && model_role_presence(&h, MODEL_ROPE_SHORT) == MODEL_REQUIRED);
    h.long_context = 0;
    CHECK(model_role_presence(&h, MODEL_ATTN_Q_BIAS) == MODEL_OPTIONAL && model_role_presence(&h, MODEL_ATTN_Q_NORM) == MODEL_ABSENT);
    h.qkv_bias = 1, h.qk_norm = MODEL_QK_NORM_ROW;
    CHECK(model_role_presence(&h, MODEL_ATTN_Q_BIAS) == MODEL_REQUIRED && model_role_presence(&h, MODEL_ATTN_Q_NORM) == MODEL_REQUIRED);
    CHECK(model_tensor_shape(&h, MODEL_ATTN_K_NORM, d) == 1 && d[0] == (uint64_t)(h.n_kv_heads * h.head_dim));
    CHECK( model_role_presence(&h, MODEL_FFN_ROUTER) == MODEL_ABSENT);
    CHECK(model_role_presence(&h, MODEL_OUTPUT) == MODEL_REQUIRED && model_role_presence(&h, MODEL_PREDICT_FC1) == MODEL_OPTIONAL);
    h.tied_output = h.down_by_neuron = 1;
    CHECK(model_role_presence(&h, MODEL_OUTPUT) == MODEL_OPTIONAL);
    CHECK(model_tensor_shape(&h, MODEL_FFN_DOWN, d) == 2 && d[0] == 64 && d[1] == 96);
    h.down_by_neuron = 0;
    h.n_experts = 6;
    CHECK(model_tensor_shape(&h, MODEL_FFN_GATE, d) == 3 && d[0] == 64 && d[1] == 96 && d[2] == 6);
    CHECK(model_role_presence(&h, MODEL_FFN_ROUTER) == MODEL_REQUIRED && model_role_presence(&h, MODEL_PREDICT_FC2) == MODEL_ABSENT);
}

static void names(void)
{
    struct model_hparams h = { .n_layers = 4 };
    char name[64];
    CHECK(model_tensor_name(&h, MODEL_ATTN_Q, 3, name, sizeof name) == 0 && !strcmp(name, "blk.3.attn_q.weight"));
    CHECK(model_tensor_name(&h, MODEL_OUTPUT, -1, name, sizeof name) == 0 && !strcmp(name, "output.weight"));
    CHECK(model_tensor_name(&h, MODEL_ATTN_Q, 4, name, sizeof name) == -1);
    CHECK(model_tensor_name(&h, MODEL_FFN_ROUTER, 0, name, sizeof name) == -1);
    h.n_experts = 8;
    CHECK(model_tensor_name(&h, MODEL_FFN_UP, 0, name, sizeof name) == 0 && !strcmp(name, "blk.0.ffn_up_exps.weight"));
    CHECK(model_role_is_ffn(MODEL_FFN_DOWN) && !model_role_is_ffn(MODEL_FFN_ROUTER));
    CHECK(model_role_is_per_layer(MODEL_FFN_NORM) && !model_role_is_per_layer(MODEL_OUTPUT_NORM));
    CHECK(!strcmp(model_role_name(MODEL_ATTN_OUTPUT), "attn_output"));
    roles();
    thresholds();
    fused();
    beside();
    CHECK(model_act_by_name("mish") == -1 && model_act_by_name("gelu") == MODEL_ACT_GELU && model_act_by_name("swish") == MODEL_ACT_SILU);
    for (int a = 0; a < MODEL_ACTS; a++)
        CHECK(model_act_by_name(model_act_name((enum model_act)a)) == a);
}

static int skip_template(const char *name)
{
    return !strcmp(name, "tokenizer.chat_template");
}

/* The metadata of a packed model gives the same hyper-parameters as the file. */
static void meta(void)
{
    const struct tiny_edit ed[] = { { "tokenizer.chat_template", 's', 0, "long" }, { "split.count", 'u', 1, NULL },
                                    { "llama.hidden_act", 's', 0, "relu" }, { 0 } };
    size_t len, meta_len;
    uint8_t *b = tiny_header(ed, QUANT_F16, NULL, 0, &len), *blob;
    struct gguf *g, *g2;
    struct model_hparams h, h2;
    memcpy(b, "PWRI", 4);
    tiny_check(gguf_parse(b, len, 1 << 20, "tiny", &g, &e), &e);
    const struct model_given drelu = { MODEL_ACT_DRELU, MODEL_ROUTER_NONE, NULL, 0 };
    CHECK(model_hparams_read(g, &drelu, &h, &e) == 0 && h.act == MODEL_ACT_DRELU);
    CHECK(model_meta_blob(g, &h, skip_template, &blob, &meta_len, &e) == 0);
    CHECK(gguf_parse(blob, meta_len, meta_len, "meta", &g2, &e) == 0 && g2->n_tensors == 0 && g2->is_pwri);
    CHECK(!gguf_find(g2, "tokenizer.chat_template") && !gguf_find(g2, "split.count"));
    CHECK(model_hparams_read(g2, NULL, &h2, &e) == 0 && h2.act == MODEL_ACT_DRELU && h2.tied_output == 1);
    CHECK(h2.n_vocab == h.n_vocab && h2.n_ff == h.n_ff && h2.rms_eps == h.rms_eps);
    gguf_close(g);
    gguf_close(g2);
    free(blob);
    free(b);
    b = tiny_header(NULL, QUANT_LIMIT, NULL, 0, &len);
    tiny_check(gguf_parse(b, len, len, "tiny", &g, &e), &e);
    CHECK(model_hparams_read(g, NULL, &h, &e) == ERR_FORMAT && says("thermocline.tied_output"));
    gguf_close(g);
    free(b);
}

/* PowerInfer's files: what the corpus of the fuzz target has, and what does not fit together. */
static void powerinfer(void)
{
    static const char *const names[] = { "tests/fuzz/corpus/gguf/powerinfer.bin", "tests/fuzz/corpus/gguf/smallthinker.bin" };
    for (int i = 0; i < 2; i++) {
        char *b;
        size_t len;
        struct gguf *g;
        struct model *m;
        tiny_check(file_slurp(names[i], 1 << 20, &b, &len, &e), &e);
        tiny_check(gguf_parse((uint8_t *)b, len, 1 << 24, names[i], &g, &e), &e);
        CHECK_MSG(model_open(g, NULL, &m, &e) == 0, "%s", e.msg);
        if (i == 0) {
            CHECK(m->h.act == MODEL_ACT_DRELU && m->h.down_by_neuron && !strcmp(m->h.arch, "bamboo"));
            CHECK(m->layer[1][MODEL_FFN_DOWN] == gguf_tensor(g, "blk.1.ffn_down_t.weight"));
            CHECK(m->layer[1][MODEL_PREDICT_FC1]->dims[1] == 32 && m->layer[0][MODEL_PREDICT_FC2]->dims[0] == 16);
        } else {
            CHECK(m->h.head_dim == 32 && m->h.router == MODEL_ROUTER_SIGMOID_TOPK && m->h.early_router);
        }
        model_close(m);
        gguf_close(g);
        char *fc2 = memmem(b, len, "blk.1.fc2.weight", 16);
        if (i == 0 && fc2) { /* half of the rank that fc1 has */
            bytes_put64((uint8_t *)fc2 + 16 + 4, 16);
            tiny_check(gguf_parse((uint8_t *)b, len, 1 << 24, names[i], &g, &e), &e);
            CHECK(model_open(g, NULL, &m, &e) == ERR_FORMAT && says("of rank 32, 'blk.1.fc2.weight' of rank 16"));
            gguf_close(g);
        }
        free(b);
    }
    struct model_hparams h;
    const struct tiny_edit relu[] = { { "llama.hidden_act", 's', 0, "relu" }, { 0 } };
    CHECK(opens(relu, QUANT_F16, "blk.0.ffn_down.weight", 0, "blk.0.ffn_down_t.weight", TINY_D, TINY_FF, QUANT_F16, &h) ==
          ERR_FORMAT && says("blk.1.ffn_down_t.weight' is absent"));
    CHECK(opens(relu, QUANT_F16, NULL, 0, "blk.0.fc1.weight", TINY_D, 16, QUANT_F16, &h) == ERR_FORMAT &&
          says("without its other half"));
    CHECK(opens(relu, QUANT_F16, NULL, 0, "blk.0.fc1.weight", TINY_D + 32, 16, QUANT_F16, &h) == ERR_FORMAT &&
          says("fc1.weight' is of shape"));
    CHECK(model_role_is_predictor(MODEL_PREDICT_FC2) && !model_role_is_dense(MODEL_PREDICT_FC1) &&
          !model_role_is_dense(MODEL_FFN_UP) && model_role_is_dense(MODEL_FFN_ROUTER));
}

int main(void)
{
    defaults();
    values();
    refusals();
    tensors();
    names();
    meta();
    smallthinker();
    lead();
    mtp();
    recurrent();
    wkv();
    wkv_6();
    latent();
    kinds();
    widths();
    stated();
    powerinfer();
    return test_done();
}
