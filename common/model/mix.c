/* The rule of mix.h as a table: a row is a name, a kind of tensor, a condition and a type; the first row that applies counts. What holds
 * of several names, and of the output, are the few lines of by_rule. */
#include "common/model/mix.h"

#include "common/base/bytes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct mix mixes[] = {
    { "Q4_0", QUANT_Q4_0, 2, "Q4_0" }, { "Q4_1", QUANT_Q4_1, 3, NULL }, { "Q5_0", QUANT_Q5_0, 8, "Q5_0" },
    { "Q5_1", QUANT_Q5_1, 9, NULL }, { "Q8_0", QUANT_Q8_0, 7, NULL },
    { "Q2_K", QUANT_Q2_K, 10, "Q2_K" }, { "Q2_K_S", QUANT_Q2_K, 21, "Q2_K_S" },
    { "Q3_K_S", QUANT_Q3_K, 11, "Q3_K_S" }, { "Q3_K_M", QUANT_Q3_K, 12, "Q3_K_M" }, { "Q3_K_L", QUANT_Q3_K, 13, "Q3_K_L" },
    { "Q4_K_S", QUANT_Q4_K, 14, "Q4_K_S" }, { "Q4_K_M", QUANT_Q4_K, 15, "Q4_K_M" },
    { "Q5_K_S", QUANT_Q5_K, 16, NULL }, { "Q5_K_M", QUANT_Q5_K, 17, "Q5_K_M" }, { "Q6_K", QUANT_Q6_K, 18, NULL },
    { "IQ4_NL", QUANT_IQ4_NL, 25, "IQ4" }, { "IQ4_XS", QUANT_IQ4_XS, 30, "IQ4" },
    { "MXFP4_MOE", QUANT_MXFP4, 38, "MXFP4_MOE" }, { "MXFP4", QUANT_MXFP4, 38, NULL },
    { "F16", QUANT_F16, 1, NULL }, { "BF16", QUANT_BF16, 32, NULL }, { "F32", QUANT_F32, 0, NULL },
    /* short for a mixture */
    { "Q3_K", QUANT_Q3_K, 12, "Q3_K_M" }, { "Q4_K", QUANT_Q4_K, 15, "Q4_K_M" }, { "Q5_K", QUANT_Q5_K, 17, "Q5_K_M" },
};

enum kind { OTHER, OUTPUT, EMBEDDING, ATTN_V, ATTN_K, ATTN_OUTPUT, FFN_DOWN };

enum when { ALWAYS, FEW_KV_HEADS, FIRST_TWO, FIRST_FOUR, FIRST_EIGHTH, FIRST_SIXTEENTH, MORE_BITS, EIGHTH_IMATRIX, EIGHTH_PLAIN };

static const struct {
    const char *rule;
    enum kind kind;
    enum when when;
    uint32_t type;
} rows[] = {
    { "Q2_K", ATTN_V, FEW_KV_HEADS, QUANT_Q4_K },
    { "Q2_K", ATTN_V, ALWAYS, QUANT_Q3_K },
    { "Q2_K", FFN_DOWN, ALWAYS, QUANT_Q3_K },
    { "Q2_K", ATTN_OUTPUT, ALWAYS, QUANT_Q3_K },
    { "Q2_K_S", ATTN_V, FEW_KV_HEADS, QUANT_Q4_K },
    { "Q2_K_S", FFN_DOWN, FIRST_EIGHTH, QUANT_Q4_K },
    { "Q3_K_M", ATTN_V, FIRST_TWO, QUANT_Q5_K },
    { "Q3_K_M", ATTN_V, ALWAYS, QUANT_Q4_K },
    { "Q3_K_M", FFN_DOWN, FIRST_SIXTEENTH, QUANT_Q5_K },
    { "Q3_K_M", FFN_DOWN, ALWAYS, QUANT_Q4_K },
    { "Q3_K_M", ATTN_OUTPUT, ALWAYS, QUANT_Q4_K },
    { "Q3_K_L", ATTN_V, ALWAYS, QUANT_Q5_K },
    { "Q3_K_L", FFN_DOWN, ALWAYS, QUANT_Q5_K },
    { "Q3_K_L", ATTN_OUTPUT, ALWAYS, QUANT_Q5_K },
    { "Q4_K_S", ATTN_V, FIRST_FOUR, QUANT_Q5_K },
    { "Q4_K_S", FFN_DOWN, FIRST_EIGHTH, QUANT_Q5_K },
    { "Q4_K_M", ATTN_V, MORE_BITS, QUANT_Q6_K },
    { "Q4_K_M", FFN_DOWN, MORE_BITS, QUANT_Q6_K },
    { "Q5_K_M", ATTN_V, MORE_BITS, QUANT_Q6_K },
    { "Q5_K_M", FFN_DOWN, MORE_BITS, QUANT_Q6_K },
    { "IQ4", ATTN_V, FEW_KV_HEADS, QUANT_Q5_K },
    { "IQ4", FFN_DOWN, EIGHTH_PLAIN, QUANT_Q5_K },
    { "Q4_0", FFN_DOWN, EIGHTH_IMATRIX, QUANT_Q4_1 },
    { "Q5_0", FFN_DOWN, EIGHTH_IMATRIX, QUANT_Q5_1 },
};

/* Of eight experts attn_output has Q5_K in these. */
static const char *const eight_output[] = { "Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4" };

/* Parts of names of matrices that stay as they are, as llama-quantize lists them. */
static const char *const kept[] = {
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d",
    "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight",
    "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight", "time_mix_a0.weight",
    "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight", "time_mix_g2.weight", "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight", "attn_rel_b.weight", "position_embd", "token_types.weight",
};

const struct mix *mix_by_name(const char *name)
{
    if (!strncasecmp(name, "mostly_", 7))
        name += 7;
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (!strcasecmp(mixes[i].name, name))
            return &mixes[i];
    return NULL;
}

uint32_t mix_file_type(uint32_t type)
{
    static const struct { uint32_t type, file_type; } more[] = { /* of those that are mixtures the usual one, and what is not written */
        { QUANT_Q3_K, 12 }, { QUANT_Q4_K, 15 }, { QUANT_Q5_K, 17 }, { QUANT_IQ2_XXS, 19 }, { QUANT_IQ2_XS, 20 }, { QUANT_IQ3_XXS, 23 },
        { QUANT_IQ3_S, 26 }, { QUANT_IQ2_S, 28 }, { QUANT_Q1_0, 40 }, { QUANT_Q2_0, 41 }, { QUANT_Q2_0_128, 141 },
        { QUANT_IQ1_S, 24 }, { QUANT_IQ1_M, 31 }, { QUANT_PTQ1_0, 143 },
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i].type == type)
            return more[i].file_type;
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (mixes[i].type == type)
            return mixes[i].file_type;
    return 1024;
}

int mix_more_bits(int layer, int n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

/* ---- the model ---- */

/* A number, or the first of a list of them that is not 0: some layers have no attention. */
static int number(const struct gguf *g, const char *arch, const char *name, int *out, struct err *e)
{
    char key[160];
    uint32_t v = 0;
    snprintf(key, sizeof key, "%.100s.%s", arch, name);
    const struct gguf_key *k = gguf_find(g, key);
    if (k && k->type == GGUF_ARRAY && (k->elem_type == GGUF_I32 || k->elem_type == GGUF_U32)) {
        for (uint64_t i = 0; i < k->n && !v; i++)
            v = bytes_le32((const uint8_t *)k->data + 4 * i);
    } else {
        int r = gguf_get_u32(g, key, &v, e);
        if (r < 0)
            return r;
    }
    *out = v < 1u << 24 ? (int)v : 1 << 24;
    return 0;
}

static int layer_of(const struct gguf_tensor *t)
{
    int layer;
    return sscanf(t->name, "blk.%d.", &layer) == 1 && layer >= 0 ? layer : -1;
}

int mix_model(const struct gguf *g, struct mix_model *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, "general.architecture");
    char arch[100];
    struct mix_model m = { 0 };
    int r;
    if (!k || k->type != GGUF_STRING || k->data_len >= sizeof arch)
        return err_set(e, ERR_FORMAT, "'%s': there is no key 'general.architecture': it is no model", gguf_name(g));
    memcpy(arch, k->data, k->data_len);
    arch[k->data_len] = '\0';
    if ((r = number(g, arch, "block_count", &m.n_layers, e)) < 0 || (r = number(g, arch, "attention.head_count", &m.n_heads, e)) < 0 ||
        (r = number(g, arch, "attention.head_count_kv", &m.n_kv_heads, e)) < 0 ||
        (r = number(g, arch, "expert_count", &m.n_experts, e)) < 0)
        return r;
    m.llama = !strcmp(arch, "llama");
    m.falcon = !strcmp(arch, "falcon");
    m.tied = !gguf_tensor(g, "output.weight");
    for (uint64_t i = 0; !m.n_layers && i < g->n_tensors; i++)
        m.n_layers = layer_of(&g->tensors[i]) >= m.n_layers ? layer_of(&g->tensors[i]) + 1 : m.n_layers;
    *out = m;
    return 0;
}

/* ---- the rule ---- */

int mix_leaves(const struct gguf_tensor *t)
{
    size_t n = strlen(t->name);
    if (t->n_dims < 2 || n < 6 || strcmp(t->name + n - 6, "weight"))
        return 1;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(t->name, kept[i]))
            return 1;
    return 0;
}

static enum kind kind_of(const char *name)
{
    static const struct { const char *part; enum kind kind; } parts[] = {
        { "attn_qkv.weight", ATTN_V }, { "attn_kv_b.weight", ATTN_V }, { "attn_v.weight", ATTN_V }, { "attn_k.weight", ATTN_K },
        { "attn_output.weight", ATTN_OUTPUT }, { "ffn_down", FFN_DOWN },
    };
    if (!strcmp(name, "output.weight"))
        return OUTPUT;
    if (!strcmp(name, "token_embd.weight") || !strcmp(name, "per_layer_token_embd.weight"))
        return EMBEDDING;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part))
            return parts[i].kind;
    return OTHER;
}

/* Which of the tensors of its kind it is, by layers, and how many there are. */
static int place(const struct gguf *g, const struct gguf_tensor *t, enum kind kind, int *n)
{
    int before = 0;
    *n = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++)
        if (kind_of(g->tensors[i].name) == kind) {
            ++*n;
            before += layer_of(&g->tensors[i]) < layer_of(t);
        }
    return before;
}

static int applies(enum when when, const struct mix_model *m, int at, int n)
{
    switch (when) {
    case ALWAYS:          return 1;
    case FEW_KV_HEADS:    return m->n_kv_heads > 0 && m->n_heads / m->n_kv_heads >= 4;
    case FIRST_TWO:       return at < 2;
    case FIRST_FOUR:      return at < 4;
    case FIRST_EIGHTH:    return at < n / 8;
    case FIRST_SIXTEENTH: return at < n / 16;
    case MORE_BITS:       return mix_more_bits(at, n);
    case EIGHTH_IMATRIX:  return m->imatrix && at < n / 8;
    case EIGHTH_PLAIN:    return !m->imatrix && at < n / 8;
    }
    return 0;
}

static int is_one_of(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, list[i]))
            return 1;
    return 0;
}

static uint32_t by_rule(const struct mix *mix, const struct mix_model *m, const struct gguf *g, const struct gguf_tensor *t)
{
    enum kind kind = kind_of(t->name);
    const char *rule = mix->rule ? mix->rule : "";
    uint32_t type = mix->type;
    int moe = !strcmp(rule, "MXFP4_MOE"), n = m->n_layers, at = layer_of(t);
    if (kind == OUTPUT || (kind == EMBEDDING && m->tied)) {
        int whole = t->dims[0] % (uint64_t)quant_traits(type)->block_elems == 0;
        return moe || m->falcon || !whole || type == QUANT_Q8_0 ? QUANT_Q8_0 : QUANT_Q6_K;
    }
    if (moe)
        return t->dims[2] > 1 ? QUANT_MXFP4 : QUANT_Q8_0;
    if (kind == OTHER || kind == EMBEDDING)
        return type;
    if (kind == ATTN_V)
        at = place(g, t, kind, &n);
    if (m->n_experts == 8 && kind == ATTN_OUTPUT)
        return is_one_of(rule, eight_output, sizeof eight_output / sizeof *eight_output) ? QUANT_Q5_K : type;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == kind && !strcmp(rows[i].rule, rule) && applies(rows[i].when, m, at, n)) {
            type = rows[i].type;
            break;
        }
    if (kind == ATTN_V && m->llama && m->n_layers == 80 && m->n_heads != m->n_kv_heads && (type == QUANT_Q3_K || type == QUANT_Q4_K))
        type = QUANT_Q5_K;
    return m->n_experts == 8 && (kind == ATTN_V || kind == ATTN_K) ? QUANT_Q8_0 : type;
}

uint32_t mix_fallback(uint32_t type, uint64_t n)
{
    static const struct { uint32_t type, in_place; } fallback[] = {
        { QUANT_IQ4_XS, QUANT_IQ4_NL }, { QUANT_Q2_K, QUANT_Q4_0 }, { QUANT_Q3_K, QUANT_Q4_0 }, { QUANT_Q4_K, QUANT_Q5_0 },
        { QUANT_Q5_K, QUANT_Q5_1 }, { QUANT_Q6_K, QUANT_Q8_0 },
    };
    if (quant_row_bytes(type, n))
        return type;
    for (size_t i = 0; i < sizeof fallback / sizeof *fallback; i++)
        if (fallback[i].type == type)
            type = fallback[i].in_place;
    return quant_row_bytes(type, n) ? type : QUANT_F16;
}

uint32_t mix_type_of(const struct mix *m, const struct mix_model *model, const struct gguf *g, const struct gguf_tensor *t, int pure)
{
    int floats = quant_traits(m->type)->block_elems == 1;
    return mix_fallback(pure || floats ? m->type : by_rule(m, model, g, t), t->dims[0]);
}
