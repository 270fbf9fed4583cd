/* One row per attribute that is a plain value of struct trace_info. The limits are the reader's:
 * what passes them can be multiplied in 64 bits without overflow. */
#include "common/offline/trace/trace_fields.h"

#define AT(field) offsetof(struct trace_info, field)
#define LEN(field) sizeof(((struct trace_info *)0)->field)
#define COUNT_MAX (1ull << 40)

const struct trace_field trace_fields[] = {
    { "/", "tool", TRACE_FIELD_TEXT, AT(tool), LEN(tool), 0, 0 },
    { "/", "cpu", TRACE_FIELD_TEXT, AT(tier), LEN(tier), 0, 0 },
    { "/", "n_tokens", TRACE_FIELD_U64, AT(n_tokens), 0, 1, COUNT_MAX },
    { "/", "n_sequences", TRACE_FIELD_U64, AT(n_sequences), 0, 1, COUNT_MAX },
    { "/", "window_sequences", TRACE_FIELD_U64, AT(window_sequences), 0, 0, COUNT_MAX },
    { "/", "window_tokens", TRACE_FIELD_U64, AT(window_tokens), 0, 0, COUNT_MAX },
    { "/", "n_samples", TRACE_FIELD_U64, AT(n_samples), 0, 0, COUNT_MAX },
    { "/", "shard", TRACE_FIELD_INT, AT(shard), 0, 0, 65535 },
    { "/", "n_shards", TRACE_FIELD_INT, AT(n_shards), 0, 1, 65536 },
    { "/", "act_q8", TRACE_FIELD_OPT_INT, AT(act_q8), 0, 0, 1 },
    { "/", "foreseen", TRACE_FIELD_OPT_INT, AT(foreseen), 0, 0, 1 },

    { "/corpus", "prompts", TRACE_FIELD_TEXT, AT(corpus.prompts), LEN(corpus.prompts), 0, 0 },
    { "/corpus", "prompts_hash", TRACE_FIELD_HASH, AT(corpus.prompts_hash), 0, 0, 0 },
    { "/corpus", "column", TRACE_FIELD_TEXT, AT(corpus.column), LEN(corpus.column), 0, 0 },
    { "/corpus", "context", TRACE_FIELD_U64, AT(corpus.n_ctx), 0, 1, MODEL_MAX_CONTEXT },
    { "/corpus", "max_tokens", TRACE_FIELD_U64, AT(corpus.max_tokens), 0, 0, UINT64_MAX },
    { "/corpus", "hash", TRACE_FIELD_HASH, AT(corpus.hash), 0, 0, 0 },
    { "/corpus", "n_tokens", TRACE_FIELD_U64, AT(corpus.n_tokens), 0, 1, COUNT_MAX },
    { "/corpus", "n_sequences", TRACE_FIELD_U64, AT(corpus.n_sequences), 0, 1, COUNT_MAX },
    { "/corpus", "window_wanted", TRACE_FIELD_U64, AT(corpus.window_wanted), 0, 0, UINT64_MAX },
    { "/corpus", "window_sequences", TRACE_FIELD_U64, AT(corpus.window_sequences), 0, 0, COUNT_MAX },
    { "/corpus", "window_tokens", TRACE_FIELD_U64, AT(corpus.window_tokens), 0, 0, COUNT_MAX },
    { "/corpus", "samples_wanted", TRACE_FIELD_U64, AT(corpus.samples_wanted), 0, 0, UINT64_MAX },
    { "/corpus", "n_samples", TRACE_FIELD_U64, AT(corpus.n_samples), 0, 0, COUNT_MAX },

    { "/model", "hash", TRACE_FIELD_HASH, AT(model_hash), 0, 0, 0 },
    { "/model", "arch", TRACE_FIELD_TEXT, AT(h.arch), LEN(h.arch), 0, 0 },
    { "/model", "name", TRACE_FIELD_TEXT, AT(h.name), LEN(h.name), 0, 0 },
    { "/model", "n_layers", TRACE_FIELD_INT, AT(h.n_layers), 0, 1, MODEL_MAX_LAYERS },
    { "/model", "d_model", TRACE_FIELD_INT, AT(h.d_model), 0, 1, MODEL_MAX_DIM },
    { "/model", "n_heads", TRACE_FIELD_INT, AT(h.n_heads), 0, 1, MODEL_MAX_DIM },
    { "/model", "n_kv_heads", TRACE_FIELD_INT, AT(h.n_kv_heads), 0, 1, MODEL_MAX_DIM },
    { "/model", "head_dim", TRACE_FIELD_INT, AT(h.head_dim), 0, 1, MODEL_MAX_DIM },
    { "/model", "n_ff", TRACE_FIELD_INT, AT(h.n_ff), 0, 1, MODEL_MAX_DIM },
    { "/model", "n_vocab", TRACE_FIELD_INT, AT(h.n_vocab), 0, 1, MODEL_MAX_VOCAB },
    { "/model", "n_ctx_train", TRACE_FIELD_INT, AT(h.n_ctx_train), 0, 1, MODEL_MAX_CONTEXT },
    { "/model", "n_experts", TRACE_FIELD_INT, AT(h.n_experts), 0, 0, MODEL_MAX_EXPERTS },
    { "/model", "n_experts_used", TRACE_FIELD_INT, AT(h.n_experts_used), 0, 0, MODEL_MAX_EXPERTS },
    { "/model", "n_ff_shared", TRACE_FIELD_OPT_INT, AT(h.n_ff_shared), 0, 1, MODEL_MAX_DIM },
    { "/model", "n_lead", TRACE_FIELD_OPT_INT, AT(h.n_lead), 0, 1, MODEL_MAX_LAYERS - 1 },
    { "/model", "n_ff_lead", TRACE_FIELD_OPT_INT, AT(h.n_ff_lead), 0, 1, MODEL_MAX_DIM },
    { "/model", "n_rot", TRACE_FIELD_INT, AT(h.n_rot), 0, 0, MODEL_MAX_DIM },
    { "/model", "head_dim_window", TRACE_FIELD_OPT_INT, AT(h.head_dim_window), 0, 1, MODEL_MAX_DIM },
    { "/model", "n_kv_window", TRACE_FIELD_OPT_INT, AT(h.n_kv_window), 0, 1, MODEL_MAX_DIM },
    { "/model", "n_rot_window", TRACE_FIELD_OPT_INT, AT(h.n_rot_window), 0, 1, MODEL_MAX_DIM },
    { "/model", "kv_rank", TRACE_FIELD_OPT_INT, AT(h.kv_rank), 0, 1, MODEL_MAX_DIM },
    { "/model", "q_rank", TRACE_FIELD_OPT_INT, AT(h.q_rank), 0, 1, MODEL_MAX_DIM },
    { "/model", "nope_dim", TRACE_FIELD_OPT_INT, AT(h.nope_dim), 0, 1, MODEL_MAX_DIM },
    { "/model", "value_dim", TRACE_FIELD_OPT_INT, AT(h.value_dim), 0, 1, MODEL_MAX_DIM },
    { "/model", "full_period", TRACE_FIELD_OPT_INT, AT(h.full_period), 0, 1, MODEL_MAX_LAYERS },
    { "/model", "conv_width", TRACE_FIELD_OPT_INT, AT(h.conv_width), 0, 2, MODEL_MAX_CONV },
    { "/model", "delta_dim", TRACE_FIELD_OPT_INT, AT(h.delta_dim), 0, 1, MODEL_MAX_DELTA },
    { "/model", "delta_k_heads", TRACE_FIELD_OPT_INT, AT(h.delta_k_heads), 0, 1, MODEL_MAX_DIM },
    { "/model", "delta_v_heads", TRACE_FIELD_OPT_INT, AT(h.delta_v_heads), 0, 1, MODEL_MAX_DIM },
    { "/model", "wkv_dim", TRACE_FIELD_OPT_INT, AT(h.wkv_dim), 0, 1, MODEL_MAX_DELTA },
    { "/model", "decay_rank", TRACE_FIELD_OPT_INT, AT(h.decay_rank), 0, 1, MODEL_MAX_DIM },
    { "/model", "rate_rank", TRACE_FIELD_OPT_INT, AT(h.rate_rank), 0, 1, MODEL_MAX_DIM },
    { "/model", "value_rank", TRACE_FIELD_OPT_INT, AT(h.value_rank), 0, 1, MODEL_MAX_DIM },
    { "/model", "gate_rank", TRACE_FIELD_OPT_INT, AT(h.gate_rank), 0, 1, MODEL_MAX_DIM },
    { "/model", "mix_rank", TRACE_FIELD_OPT_INT, AT(h.mix_rank), 0, 1, MODEL_MAX_DIM },
    { "/model", "halve_period", TRACE_FIELD_OPT_INT, AT(h.halve_period), 0, 1, INT32_MAX },
    { "/model", "out_gate", TRACE_FIELD_OPT_INT, AT(h.out_gate), 0, 0, 1 },
    { "/model", "rope_theta", TRACE_FIELD_F32, AT(h.rope_theta), 0, 0, 0 },
    { "/model", "rope_scale", TRACE_FIELD_F32, AT(h.rope_scale), 0, 0, 0 },
    { "/model", "rms_eps", TRACE_FIELD_F32, AT(h.rms_eps), 0, 0, 0 },
    { "/model", "early_router", TRACE_FIELD_OPT_INT, AT(h.early_router), 0, 0, 1 },
    { "/model", "window", TRACE_FIELD_OPT_INT, AT(h.window), 0, 1, INT32_MAX },
    { "/model", "window_period", TRACE_FIELD_OPT_INT, AT(h.window_period), 0, 1, MODEL_MAX_LAYERS },
    { "/model", "nope_period", TRACE_FIELD_OPT_INT, AT(h.nope_period), 0, 1, MODEL_MAX_LAYERS },
    { "/model", "period_offset", TRACE_FIELD_OPT_INT, AT(h.period_offset), 0, 1, MODEL_MAX_LAYERS },
    { "/model", "down_by_neuron", TRACE_FIELD_OPT_INT, AT(h.down_by_neuron), 0, 0, 1 },
    { "/model", "thresholds", TRACE_FIELD_OPT_INT, AT(h.thresholds), 0, 0, 1 },
    { "/model", "tied_output", TRACE_FIELD_INT, AT(h.tied_output), 0, 0, 1 },
    { "/model", "pre", TRACE_FIELD_OPT_TEXT, AT(pre), LEN(pre), 0, 0 },
    { "/model", "vocab_text_bytes", TRACE_FIELD_U64, AT(vocab_text_bytes), 0, 0, COUNT_MAX },
    { "/model", "n_merges", TRACE_FIELD_U64, AT(n_merges), 0, 0, COUNT_MAX },
    { "/model", "meta_bytes", TRACE_FIELD_U64, AT(meta_bytes), 0, 0, COUNT_MAX },
};
const int trace_n_fields = sizeof trace_fields / sizeof trace_fields[0];

const char *trace_active_text(const struct model_hparams *h)
{
    if (h->thresholds)
        return "|act(gate)| >= the neuron's threshold";
    switch (h->act) {
    case MODEL_ACT_RELU:
    case MODEL_ACT_RELU_UNGATED: return "gate > 0";
    case MODEL_ACT_DRELU: return "gate > 0 and up > 0";
    default: return "always: this activation function gives no exact zeros";
    }
}
