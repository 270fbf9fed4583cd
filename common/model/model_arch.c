/* Architectures as rows of a table, and the keys that their files may have. Any other key is refused, because a key that is ignored may
 * change the network. */
#include "common/model/model_arch.h"

#include <stdio.h>
#include <string.h>

static const char *const mistral3_keys[] = { "attention.temperature_scale", NULL };
static const char *const granite_keys[] = { "attention.scale", "embedding_scale", "residual_scale", "logit_scale", NULL };
static const char *const granite_hybrid_keys[] = { "attention.scale", "embedding_scale", "residual_scale", "logit_scale", "ssm.conv_kernel",
                                                    "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count", NULL };
static const char *const nemotron_h_keys[] = { "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
                                               "ssm.group_count", "attention.layer_norm_epsilon", "nextn_predict_layers",
                                               "expert_group_count", "expert_group_used_count", NULL };
static const char *const lead_keys[] = { "leading_dense_block_count", "nextn_predict_layers", "expert_group_count",
                                         "expert_group_used_count", NULL };
static const char *const deepseek2_keys[] = { "leading_dense_block_count", "nextn_predict_layers", "expert_group_count",
                                              "expert_group_used_count", "attention.q_lora_rank", "attention.kv_lora_rank",
                                              "attention.key_length_mla",
                                              "attention.value_length_mla", NULL };
static const char *const dsa_keys[] = { "leading_dense_block_count", "nextn_predict_layers", "expert_group_count",
                                        "expert_group_used_count", "attention.q_lora_rank", "attention.kv_lora_rank",
                                        "attention.key_length_mla", "attention.value_length_mla", "attention.indexer.head_count",
                                        "attention.indexer.key_length", "attention.indexer.top_k", "attention.indexer.types", NULL };
static const char *const gemma_keys[] = { "attn_logit_softcapping", "final_logit_softcapping", "rope.freq_base_swa", NULL };

static const char *const delta_keys[] = { "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count",
                                          "full_attention_interval", "attention.recurrent_layers", "rope.dimension_sections",
                                          "nextn_predict_layers", NULL };
static const char *const rwkv7_keys[] = { "context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size",
                                          "attention.layer_norm_epsilon", "attention.head_count", "token_shift_count", "wkv.head_size",
                                          "attention.decay_lora_rank", "attention.iclr_lora_rank",
                                          "attention.value_residual_mix_lora_rank", "attention.gate_lora_rank", NULL };
static const char *const rwkv6_keys[] = { "context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size",
                                          "attention.layer_norm_epsilon", "attention.head_count", "token_shift_count", "wkv.head_size",
                                          "time_mix_extra_dim", "time_decay_extra_dim", "rescale_every_n_layers", NULL };
static const char *const conv_keys[] = { "shortconv.l_cache", "leading_dense_block_count", NULL };
static const char *const theta_keys[] = { "rope.freq_base_swa", NULL };
static const char *const muse_keys[] = { "final_logit_softcapping", "logit_scale", "rope.freq_base_swa", NULL };
static const char *const layer_norm_keys[] = { "attention.layer_norm_epsilon", NULL };
static const char *const gemma4_keys[] = { "final_logit_softcapping", "rope.freq_base_swa", "rope.dimension_count_swa",
                                           "attention.key_length_swa", "attention.value_length_swa", "attention.shared_kv_layers",
                                           "embedding_length_per_layer_input", NULL };

/* smallthinker: layers 0, 4, 8, ... see everything and do not rotate, the others see a window. */
static const struct model_arch archs[] = {
    { .family = { "llama", "Llama 1 to 3.3, Mistral, Mixtral",
                  "SiLU unless the file says `hidden_act` or you say `--act relu` or `drelu` to `thermo-profile trace`; "
                  "with magic `PWRI` PowerInfer's files: ReLU, Down transposed" },
      .router = MODEL_ROUTER_SOFTMAX_TOPK },
    { .family = { "mistral", "as llama", "" }, .router = MODEL_ROUTER_SOFTMAX_TOPK },
    { .family = { "bamboo", "PowerInfer's Bamboo", "dReLU, Down transposed; predictors: `thermo-profile predictors-import`" },
      .act = MODEL_ACT_DRELU, .router = MODEL_ROUTER_SOFTMAX_TOPK },
    { .family = { "smallthinker", "SmallThinker-4B-A0.6B and 21B-A3B",
                  "ReLU experts; routers see the transformer block's input before attention, softmax or sigmoid; windows and "
                  "layers without rotation. Where the file has no `expert_gating_func`: `thermo-profile trace "
                  "--expert-gating softmax` or `sigmoid`, once" },
      .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_RELU, .router = -1, .sigmoid = 1, .early_router = 1, .experts = 1,
      .window_period = 4, .nope_period = 4 },
    { .family = { "qwen2", "Qwen2, Qwen2.5, QwQ", "" }, .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .qkv_bias = 1 },
    { .family = { "qwen2moe", "Qwen1.5-MoE, Qwen2-57B-A14B", "the shared expert stays in memory" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_ALL, .experts = 1, .expert_width = 1, .shared_expert = 1,
      .qkv_bias = 1 },
    { .family = { "qwen3", "Qwen3", "" }, .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK,
      .qk_norm = MODEL_QK_NORM_HEAD },
    { .family = { "qwen3moe", "Qwen3-30B-A3B, Qwen3-Coder-30B-A3B, Qwen3-235B-A22B", "" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .experts = 1, .expert_width = 1,
      .qk_norm = MODEL_QK_NORM_HEAD },
    { .family = { "olmoe", "OLMoE-1B-7B", "" }, .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_ALL, .experts = 1,
      .qk_norm = MODEL_QK_NORM_ROW },
    { .family = { "gpt-oss", "gpt-oss-20b, gpt-oss-120b", "" },
      .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_SWIGLU_OAI, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .experts = 1,
      .expert_width = 1, .expert_bias = 1, .qkv_bias = 1, .output_bias = 1, .sinks = 1, .ffn_norm_named_post = 1,
      .window_period = 2, .period_offset = 1 },
    { .family = { "mistral3", "Mistral Small 3.2, Ministral 3, Devstral", "" }, .router = MODEL_ROUTER_SOFTMAX_TOPK,
      .more_keys = mistral3_keys },
    { .family = { "seed_oss", "Seed-OSS-36B", "" }, .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .qkv_bias = 1,
      .ffn_norm_named_post = 1 },
    { .family = { "gemma", "Gemma 1", "" }, .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_GELU, .act_only = 1,
      .router = MODEL_ROUTER_SOFTMAX_TOPK, .scaled_embd = 1 },
    { .family = { "gemma2", "Gemma 2", "" },
      .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_GELU, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .window_period = 2,
      .period_offset = 1, .window = 4096, .post_norms = 1, .scaled_embd = 1, .wide_layers = 46, .more_keys = gemma_keys },
    { .family = { "gemma3", "Gemma 3, text", "" },
      .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_GELU, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .qk_norm = MODEL_QK_NORM_HEAD,
      .window_period = 6, .period_offset = 1, .rope_theta_window = 10000, .post_norms = 1, .scaled_embd = 1, .wide_layers = 62,
      .more_keys = gemma_keys },
    { .family = { "gemma4", "Gemma 4, text", "E2B and E4B: rows of layers' embeddings are read" },
      .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_GELU, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .expert_width = 1,
      .shared_expert = 4, .qk_norm = MODEL_QK_NORM_HEAD, .post_norms = 1, .scaled_embd = 1, .kinds = 1, .more_keys = gemma4_keys },
    { .family = { "qwen3next", "Qwen3-Next-80B-A3B, Qwen3-Coder-Next",
                  "gated delta nets, with a state of each sequence in the account's `kv`; the layer for multi-token prediction is packed "
                  "by itself (`thermo-pack mtp`). Files with `ssm_in`, of older converters, have to be converted again" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .experts = 1, .expert_width = 1, .shared_expert = 1,
      .qk_norm = MODEL_QK_NORM_HEAD, .ffn_norm_named_post = 1, .delta = 1, .no_width = 1, .more_keys = delta_keys },
    { .family = { "qwen35", "Qwen3.5 to 3.8, dense, text", "likewise" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .qk_norm = MODEL_QK_NORM_HEAD, .ffn_norm_named_post = 1, .delta = 2,
      .more_keys = delta_keys },
    { .family = { "qwen35moe", "Qwen3.5 and 3.6 35B-A3B, 122B-A10B, 397B-A17B, text", "likewise" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .experts = 1, .expert_width = 1, .shared_expert = 1,
      .qk_norm = MODEL_QK_NORM_HEAD, .ffn_norm_named_post = 1, .delta = 2, .no_width = 1, .more_keys = delta_keys },
    { .family = { "lfm2", "LFM2 and LFM2.5, text",
                  "short convolutions in most layers, with a state of each sequence in the account's `kv`" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .qk_norm = MODEL_QK_NORM_HEAD, .short_conv = 1,
      .more_keys = conv_keys },
    { .family = { "lfm2moe", "LFM2-8B-A1B, LFM2.5-8B-A1B, LFM2-24B-A2B",
                  "likewise; layers before the first with experts stay in memory" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SIGMOID_TOPK, .sigmoid = 1, .experts = 1, .expert_width = 1, .lead = 1,
      .select_bias = 1, .qk_norm = MODEL_QK_NORM_HEAD, .short_conv = 1, .more_keys = conv_keys },
    { .family = { "olmo2", "OLMo 2 and 3", "" }, .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .qk_norm = MODEL_QK_NORM_ROW,
      .no_pre_norms = 1, .post_norms = 1, .window_period = 4, .period_offset = 1, .rope_window_plain = 1, .more_keys = theta_keys },
    { .family = { "exaone4", "EXAONE 4.0", "" }, .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK,
      .qk_norm = MODEL_QK_NORM_HEAD, .no_pre_norms = 1, .post_norms = 1, .window_period = 4, .period_offset = 1, .nope_period = 4 },
    { .family = { "glm4", "GLM-4-0414, 9B and 32B", "" }, .router = MODEL_ROUTER_SOFTMAX_TOPK, .ffn_up = MODEL_FFN_UP_FUSED,
      .post_norms = 1 },
    { .family = { "hunyuan-moe", "Hunyuan-A13B", "" }, .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .experts = 1,
      .expert_width = 1, .shared_expert = 5, .qk_norm = MODEL_QK_NORM_HEAD, .qk_norm_after = 1 },
    { .family = { "minimax-m2", "MiniMax-M2, M2.1", "" }, .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SIGMOID_TOPK, .sigmoid = 1,
      .experts = 1, .expert_width = 1, .lead = 1, .select_bias = 1, .qk_norm = MODEL_QK_NORM_ROW },
    { .family = { "bailingmoe2", "Ling 2.0 and Ring 2.0, mini and flash", "layers before the first with experts stay in memory" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SIGMOID_TOPK, .sigmoid = 1, .stated_norm = 1, .experts = 1, .expert_width = 1,
      .shared_expert = 5, .lead = 1, .select_bias = 2, .qk_norm = MODEL_QK_NORM_HEAD, .more_keys = lead_keys },
    { .family = { "jais2", "Jais 2", "ReLU^2 as in arcee, LayerNorm; no predictors" }, .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_RELU,
      .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .ffn_up = MODEL_FFN_UP_UNGATED, .layer_norm = 1, .more_keys = layer_norm_keys },
    { .family = { "muse-glimmer", "Muse-Glimmer-30B, text", "" }, .router = MODEL_ROUTER_SOFTMAX_TOPK, .qk_norm = MODEL_QK_NORM_HEAD,
      .post_norms = 1, .window_period = 4, .period_offset = 1, .nope_period = 4, .gated = 1, .more_keys = muse_keys },
    { .family = { "smollm3", "SmolLM3", "" }, .router = MODEL_ROUTER_SOFTMAX_TOPK, .nope_period = 4, .period_offset = 1, .nope = 1 },
    { .family = { "granite", "Granite 3", "" }, .router = MODEL_ROUTER_SOFTMAX_TOPK, .more_keys = granite_keys },
    { .family = { "granitemoe", "Granite 3 MoE", "" }, .router = MODEL_ROUTER_SOFTMAX_TOPK, .experts = 1, .shared_expert = 2,
      .more_keys = granite_keys },
    { .family = { "granitehybrid", "Granite 4 H", "Mamba2 in most layers, with a state of each sequence in the account's `kv`" },
      .router = MODEL_ROUTER_SOFTMAX_TOPK, .shared_expert = 2, .ssm = 1, .more_keys = granite_hybrid_keys },
    { .family = { "glm4moe", "GLM-4.5, GLM-4.5-Air, GLM-4.6",
                  "layers before the first with experts stay in memory; the layer for multi-token prediction is packed by itself "
                  "(`thermo-pack mtp`)" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SIGMOID_TOPK, .sigmoid = 1, .stated_norm = 1, .experts = 1, .expert_width = 1,
      .shared_expert = 3, .lead = 1, .select_bias = 1, .qk_norm = MODEL_QK_NORM_HEAD, .qk_norm_optional = 1, .qkv_bias = 1,
      .ffn_norm_named_post = 1, .more_keys = lead_keys },
    { .family = { "deepseek2", "DeepSeek-V2, V2-Lite, V3, R1, Kimi-K2, Moonlight, GLM-4.7-Flash",
                  "latent attention, absorbed: the KV cache has one vector a position. Files without `attention.key_length_mla` "
                  "(before May 2025) have to be converted again" },
      .router = MODEL_ROUTER_SOFTMAX_ALL, .sigmoid = 1, .stated_norm = 1, .experts = 1, .expert_width = 1, .shared_expert = 3, .lead = 1,
      .select_bias = 2, .latent = 1, .more_keys = deepseek2_keys },
    { .family = { "glm-dsa", "GLM-5, 5.1, 5.2",
                  "as deepseek2, up to the context in which its sparse attention is full attention (2,048 positions); a longer one "
                  "is refused" },
      .router = MODEL_ROUTER_SIGMOID_TOPK, .sigmoid = 1, .stated_norm = 1, .experts = 1, .expert_width = 1, .shared_expert = 3, .lead = 1,
      .select_bias = 2, .latent = 2, .more_keys = dsa_keys },
    { .family = { "phi3", "Phi-3, Phi-3.5, Phi-4",
                  "a window in every layer where the file states one; with longrope a context beyond the original one "
                  "has other frequencies: texts differ" },
      .rope = MODEL_ROPE_NEOX, .router = MODEL_ROUTER_SOFTMAX_TOPK, .ffn_up = MODEL_FFN_UP_FUSED, .window_period = MODEL_MAX_LAYERS,
      .period_offset = 1, .longrope = 1 },
    { .family = { "arcee", "AFM-4.5B", "ReLU^2 without a gate: exactly sparse" },
      .act = MODEL_ACT_RELU, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .ffn_up = MODEL_FFN_UP_UNGATED },
    { .family = { "nemotron", "Minitron, Nemotron-4", "ReLU^2 as in arcee, LayerNorm; no predictors" },
      .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_RELU, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK,
      .ffn_up = MODEL_FFN_UP_UNGATED, .layer_norm = 1, .more_keys = layer_norm_keys },
    { .family = { "nemotron_h", "Nemotron-H, Nemotron Nano 2",
                  "blocks of one sublayer, Mamba2, attention or FFN; ReLU^2 as in arcee; a state of each sequence in the account's `kv`; "
                  "no predictors" },
      .act = MODEL_ACT_RELU, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .ffn_up = MODEL_FFN_UP_UNGATED, .ssm = 2, .nope = 1,
      .nope_period = 1, .more_keys = nemotron_h_keys },
    { .family = { "nemotron_h_moe", "Nemotron 3 Nano", "likewise, with experts; not those of Nemotron 3 Super, which see a projection" },
      .act = MODEL_ACT_RELU, .act_only = 1, .router = MODEL_ROUTER_SIGMOID_TOPK, .sigmoid = 1, .stated_norm = 1, .experts = 1,
      .expert_width = 1, .shared_expert = 5, .lead = 1, .select_bias = 1, .ffn_up = MODEL_FFN_UP_UNGATED, .ssm = 2, .nope = 1,
      .nope_period = 1, .more_keys = nemotron_h_keys },
    { .family = { "falcon", "Falcon 7B and 40B", "attention beside the FFN, which has no gate" },
      .rope = MODEL_ROPE_NEOX, .act = MODEL_ACT_GELU_UNGATED, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK,
      .ffn_up = MODEL_FFN_UP_UNGATED, .layer_norm = 1, .parallel = 1, .more_keys = layer_norm_keys },
    { .family = { "opt", "OPT 125M to 66B, but for 350M", "ReLU without a gate: exactly sparse. PowerInfer's files, "
                  "or others with its keys and tensors; no predictors" },
      .act = MODEL_ACT_RELU_UNGATED, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .ffn_up = MODEL_FFN_UP_UNGATED, .layer_norm = 1,
      .positions = 1, .nope = 1, .nope_period = 1, .qkv_bias = 1, .output_bias = 1, .more_keys = layer_norm_keys },
    { .family = { "rwkv7", "RWKV-7 Goose",
                  "recurrent, with a state of each sequence in the account's `kv`; its FFN is ReLU^2 without a gate: exactly sparse; "
                  "no predictors" },
      .act = MODEL_ACT_RELU, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .ffn_up = MODEL_FFN_UP_UNGATED, .layer_norm = 1, .wkv = 7,
      .more_keys = rwkv7_keys },
    { .family = { "rwkv6", "RWKV-6 Finch", "as rwkv7; what its FFN gives is weighted by a matrix that stays in memory" },
      .act = MODEL_ACT_RELU, .act_only = 1, .router = MODEL_ROUTER_SOFTMAX_TOPK, .ffn_up = MODEL_FFN_UP_UNGATED, .layer_norm = 1, .wkv = 6,
      .more_keys = rwkv6_keys },
};

enum { N_ARCHS = sizeof archs / sizeof archs[0] };

const struct model_family *model_family(int i)
{
    return i >= 0 && i < N_ARCHS ? &archs[i].family : NULL;
}

/* Keys under "ARCH." that are read below, or whose value cannot matter to the computation. */
static const char *const known_keys[] = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "attention.key_length",
    "attention.value_length", "attention.sliding_window", "attention.sliding_window_pattern", "attention.causal",
    "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scaling.attn_factor",
    "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier",
    "vocab_size", "expert_count", "expert_used_count", "expert_shared_count", "expert_gating_func",
    "expert_weights_norm", "expert_weights_scale", "expert_feed_forward_length",
    "expert_shared_feed_forward_length", "hidden_act",
    "hidden_activation", "use_parallel_residual", "tensor_data_layout",
};

const struct model_arch *model_arch_find(const char *name)
{
    for (int i = 0; i < N_ARCHS; i++)
        if (!strcmp(name, archs[i].family.arch))
            return &archs[i];
    return NULL;
}

int model_arch_is_ungated(const char *name)
{
    const struct model_arch *a = model_arch_find(name);
    return a && a->ffn_up == MODEL_FFN_UP_UNGATED;
}

int model_arch_knows(const struct model_arch *a, const char *key)
{
    for (size_t i = 0; !a->wkv && i < sizeof known_keys / sizeof known_keys[0]; i++)
        if (!strcmp(known_keys[i], key))
            return 1;
    for (int i = 0; a->more_keys && a->more_keys[i]; i++)
        if (!strcmp(a->more_keys[i], key))
            return 1;
    return 0;
}

void model_arch_names(char *out, size_t len)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < N_ARCHS && at < len; i++)
        at += (size_t)snprintf(out + at, len - at, "%s%s", i ? ", " : "", archs[i].family.arch);
}
