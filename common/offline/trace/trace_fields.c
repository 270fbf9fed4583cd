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
#define STATED(name, least, most) { "/model", #name, TRACE_FIELD_INT, AT(h.name), 0, least, most },
#define SPARE(name, least, most) { "/model", #name, TRACE_FIELD_OPT_INT, AT(h.name), 0, least, most },
#define REAL(name) { "/model", #name, TRACE_FIELD_F32, AT(h.name), 0, 0, 0 },
#define LETTERS(name) { "/model", #name, TRACE_FIELD_OPT_TEXT, AT(h.name), LEN(h.name), 0, 0 },
#define BY_LAYER(name, least, most) { "/model", #name, TRACE_FIELD_BY_LAYER, AT(h.name), 0, least, most },
#include "common/model/hparams.def"
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
