/* Hyper-parameters of a llama-shaped model. An architecture is a row of a table (model_arch.h), which says what the file does not
 * say and which keys it may have; any other key of the architecture is refused. */
#include "common/model/model.h"

#include "common/base/bytes.h"
#include "common/base/print.h"
#include "common/model/model_arch.h"
#include "common/model/model_fold.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const act_names[MODEL_ACTS] = { "silu", "relu", "drelu", "swiglu_oai", "gelu", "gelu_ungated", "relu_ungated" };
static const char *const router_names[MODEL_ROUTERS] = { "none", "softmax_topk", "sigmoid_topk", "softmax_all" };

int model_act_by_name(const char *name)
{
    if (!strcmp(name, "swish"))
        return MODEL_ACT_SILU;
    for (int i = 0; i < MODEL_ACTS; i++)
        if (!strcmp(act_names[i], name))
            return i;
    return -1;
}

const char *model_act_name(enum model_act a)
{
    return a < MODEL_ACTS ? act_names[a] : "?";
}

int model_router_by_name(const char *name)
{
    for (int i = 0; i < MODEL_ROUTERS; i++)
        if (!strcmp(router_names[i], name))
            return i;
    return -1;
}

const char *model_router_name(enum model_router r)
{
    return r < MODEL_ROUTERS ? router_names[r] : "?";
}

/* What every reading function needs; the first error sticks and later reads do nothing. */
struct reader {
    const struct gguf *g;
    const struct model_arch *a;
    const char *arch;
    char key[128];
    int folds;                   /* there are keys of folded weights */
    int r;
    struct err *e;
};

static const char *arch_key(struct reader *rd, const char *name)
{
    snprintf(rd->key, sizeof rd->key, "%s.%s", rd->arch, name);
    return rd->key;
}

static int refuse(struct reader *rd, const char *name, const char *value, const char *why)
{
    arch_key(rd, name);
    return rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key '%s' is %s: %s", gguf_name(rd->g), rd->key,
                           value, why);
}

/* An integer of [min, max]; def < 0: the key must be there. */
static int read_int(struct reader *rd, const char *name, int min, int max, int def)
{
    uint32_t v;
    if (rd->r < 0)
        return 0;
    int r = gguf_get_u32(rd->g, arch_key(rd, name), &v, rd->e);
    if (r < 0) {
        rd->r = r;
        return 0;
    }
    if (r == 0 && def >= 0)
        return def;
    if (r == 0)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s' is absent", gguf_name(rd->g), rd->key);
    else if (v < (uint32_t)min || v > (uint32_t)max)
        rd->r = err_set(rd->e, v < (uint32_t)min ? ERR_FORMAT : ERR_LIMIT, "'%s': key '%s' is %" PRIu32
                        ", outside %d to %d", gguf_name(rd->g), rd->key, v, min, max);
    return rd->r < 0 ? 0 : (int)v;
}

/* A positive number; def 0: the key must be there. */
static float read_float(struct reader *rd, const char *name, float def)
{
    float v = def;
    if (rd->r < 0)
        return 1;
    int r = gguf_get_f32(rd->g, arch_key(rd, name), &v, rd->e);
    if (r < 0)
        rd->r = r;
    else if (r == 0 && def == 0)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s' is absent", gguf_name(rd->g), rd->key);
    else if (v <= 0)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s' is %g, not positive", gguf_name(rd->g), rd->key,
                        (double)v);
    return rd->r < 0 ? 1 : v;
}

/* A factor that may be absent: 0 then. */
static float read_factor(struct reader *rd, const char *name)
{
    return rd->r == 0 && gguf_find(rd->g, arch_key(rd, name)) ? read_float(rd, name, 0) : 0;
}

static char *read_str(struct reader *rd, const char *key)
{
    char *s = NULL;
    if (rd->r == 0) {
        int r = gguf_get_str(rd->g, key, &s, rd->e);
        if (r < 0)
            rd->r = r;
    }
    return s;
}

/* A key that may be there with one value only. */
static void only_bool(struct reader *rd, const char *name, int value, const char *why)
{
    int v = value;
    if (rd->r == 0 && (rd->r = gguf_get_bool(rd->g, arch_key(rd, name), &v, rd->e)) >= 0)
        rd->r = 0;
    if (rd->r == 0 && v != value)
        refuse(rd, name, v ? "true" : "false", why);
}

static void only_int(struct reader *rd, const char *name, int value, const char *why)
{
    int v = read_int(rd, name, 0, INT32_MAX, value);
    char text[16];
    snprintf(text, sizeof text, "%d", v);
    if (rd->r == 0 && v != value)
        refuse(rd, name, text, why);
}

static void only_one(struct reader *rd, const char *name, const char *why)
{
    float v = read_float(rd, name, 1);
    char text[32];
    print_into(text, sizeof text, "%g", (double)v);
    if (rd->r == 0 && v != 1)
        refuse(rd, name, text, why);
}

static void check_known_keys(struct reader *rd)
{
    size_t stem = strlen(rd->arch);
    for (uint64_t i = 0; rd->r == 0 && i < rd->g->n_keys; i++) {
        const char *name = rd->g->keys[i].name;
        /* what weights are to be multiplied by: without it a model talks nonsense, whatever the type of its tensors */
        rd->folds |= model_fold_is_key(name);
        if (model_fold_is_key(name) && !model_fold_knows(name))
            rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key '%s': the model's weights are transformed in a way that this version "
                            "does not know", gguf_name(rd->g), name);
        if (strncmp(name, rd->arch, stem) || name[stem] != '.')
            continue;
        if (!model_arch_knows(rd->a, name + stem + 1))
            rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key '%s' is not known for the architecture "
                            "'%s'", gguf_name(rd->g), name, rd->arch);
    }
}

/* Layers with neurons, those before them, and those that are left out. */
static void read_layers(struct reader *rd, struct model_hparams *h)
{
    h->n_layers = read_int(rd, "block_count", 1, MODEL_MAX_LAYERS, -1);
    if (rd->a->delta && rd->r == 0) {
        h->n_nextn = read_int(rd, "nextn_predict_layers", 0, h->n_layers - 1, 0);
        h->n_layers -= h->n_nextn;
    }
    if (!rd->a->lead || rd->r < 0)
        return;
    h->n_nextn = read_int(rd, "nextn_predict_layers", 0, h->n_layers - 1, 0);
    h->n_lead = read_int(rd, "leading_dense_block_count", 0, h->n_layers - h->n_nextn - 1, 0);
    h->n_layers -= h->n_nextn + h->n_lead;
}

static const char mtp_key[] = "thermocline.mtp";

/* The first layer that predicts further tokens, with experts as the last of the others has. */
static void take_mtp(struct reader *rd, int given, struct model_hparams *h)
{
    int there = given;
    if (rd->r == 0 && !given && rd->g->n_tensors == 0 && (rd->r = gguf_get_bool(rd->g, mtp_key, &there, rd->e)) > 0)
        rd->r = 0;
    if (rd->r < 0 || !there)
        return;
    if (rd->a->ssm)
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': layers that predict further tokens are not supported for the architecture "
                        "'%s', whose recurrent layers cannot take wrong guesses back", gguf_name(rd->g), rd->arch);
    else if (h->n_nextn == 0)
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': it has no layer that predicts further tokens: key '%s' is absent or 0",
                        gguf_name(rd->g), arch_key(rd, "nextn_predict_layers"));
    h->mtp = model_depth(h);
    h->n_layers = 1;
    h->n_lead = h->n_nextn = 0;
}

/* Element i of a key that has one value, or one for each layer. */
static int read_each(struct reader *rd, const char *name, int i, int max, int def)
{
    static const uint8_t width[] = { [GGUF_BOOL] = 1, [GGUF_U8] = 1, [GGUF_I8] = 1, [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_U64] = 0 };
    const struct gguf_key *k = gguf_find(rd->g, arch_key(rd, name));
    if (rd->r < 0 || !k || k->type != GGUF_ARRAY)
        return read_int(rd, name, 0, max, def);
    size_t w = (size_t)k->elem_type < sizeof width ? width[k->elem_type] : 0;
    uint32_t v = 0;
    if (!w || k->n <= (uint64_t)i)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s' is an array of %" PRIu64 " that has no integer for layer %d", gguf_name(rd->g),
                        rd->key, k->n, i);
    else
        v = w == 1 ? ((const uint8_t *)k->data)[i] : bytes_le32((const uint8_t *)k->data + 4 * (size_t)i);
    if (rd->r == 0 && v > (uint32_t)max)
        rd->r = err_set(rd->e, ERR_LIMIT, "'%s': key '%s' is %" PRIu32 " for layer %d, more than the limit of %d", gguf_name(rd->g),
                        rd->key, v, i, max);
    return rd->r < 0 ? 0 : (int)v;
}

static void read_ssm(struct reader *rd, struct model_hparams *h)
{
    h->ssm_inner = read_int(rd, "ssm.inner_size", 1, MODEL_MAX_DIM / 4, -1);
    h->ssm_state = read_int(rd, "ssm.state_size", 1, MODEL_MAX_DELTA, -1);
    h->ssm_heads = read_int(rd, "ssm.time_step_rank", 1, MODEL_MAX_DIM / 4, -1);
    h->ssm_groups = read_int(rd, "ssm.group_count", 1, MODEL_MAX_DELTA, -1);
    if (rd->r == 0 && (h->ssm_inner % h->ssm_heads != 0 || h->ssm_heads % h->ssm_groups != 0))
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': '%s.ssm.inner_size' %d, '%s.ssm.time_step_rank' %d and '%s.ssm.group_count' %d: each "
                        "must be a multiple of the next", gguf_name(rd->g), rd->arch, h->ssm_inner, rd->arch, h->ssm_heads, rd->arch,
                        h->ssm_groups);
}

/* The FFN of one more layer. Widths stay where they differ. */
static void take_width(struct reader *rd, struct model_hparams *h, int *n, int ff)
{
    if (*n == MODEL_MAX_BLOCKS || ff < 1) {
        char text[48];
        snprintf(text, sizeof text, ff < 1 ? "0" : "of more than %d layers", MODEL_MAX_BLOCKS);
        refuse(rd, "feed_forward_length", text, "FFNs of several widths are not supported then");
        return;
    }
    h->widths[(*n)++] = ff;
    h->n_ff = ff > h->n_ff ? ff : h->n_ff;
}

static void keep_widths(struct model_hparams *h, int n)
{
    int i = 0;
    while (i < n && h->widths[i] == h->n_ff)
        i++;
    if (i == n)
        memset(h->widths, 0, sizeof h->widths);
}

/* A letter for each block: those that have no kv heads are short convolutions or Mamba2. Returns the others' kv heads. */
static int read_blocks(struct reader *rd, struct model_hparams *h)
{
    int kv = 0, n = model_depth(h), n_ffs = 0;
    char text[16];
    h->conv_width = read_int(rd, rd->a->ssm ? "ssm.conv_kernel" : "shortconv.l_cache", 2, MODEL_MAX_CONV, -1);
    if (rd->r == 0 && n >= MODEL_MAX_BLOCKS)
        rd->r = err_set(rd->e, ERR_LIMIT, "'%s': %d layers of several kinds, more than the limit of %d", gguf_name(rd->g), n,
                        MODEL_MAX_BLOCKS - 1);
    for (int i = 0; i < n && rd->r == 0; i++) {
        int heads = read_each(rd, "attention.head_count_kv", i, h->n_heads, h->n_heads);
        int ff = rd->a->ssm == 2 ? read_each(rd, "feed_forward_length", i, MODEL_MAX_DIM, -1) : 0;
        if (ff > 0) {
            take_width(rd, h, &n_ffs, ff);
            h->blocks[i] = 'F';
            continue;
        }
        snprintf(text, sizeof text, "%d", heads);
        if (heads > 0 && kv > 0 && heads != kv)
            refuse(rd, "attention.head_count_kv", text, "layers with attention must have one number");
        kv = heads > 0 ? heads : kv;
        h->blocks[i] = (heads > 0 ? "aaA" : "cmM")[rd->a->ssm];
    }
    keep_widths(h, n_ffs);
    h->n_lead = rd->a->ssm == 2 ? model_count_alone(h) : h->n_lead;
    h->n_layers = n - h->n_lead;
    if (rd->r == 0 && h->n_layers < 1)
        refuse(rd, "feed_forward_length", "0 everywhere", "some block must be a FFN");
    if (rd->r == 0 && rd->a->ssm && strpbrk(h->blocks, "mM"))
        read_ssm(rd, h);
    return kv > 0 ? kv : 1;
}

static void read_attention(struct reader *rd, struct model_hparams *h)
{
    h->n_heads = read_int(rd, "attention.head_count", 1, MODEL_MAX_DIM, -1);
    int several = rd->a->short_conv || rd->a->ssm;
    h->n_kv_heads = several ? read_blocks(rd, h) : read_int(rd, "attention.head_count_kv", 1, MODEL_MAX_DIM, h->n_heads);
    if (rd->r < 0)
        return;
    if (h->n_heads % h->n_kv_heads != 0) {
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': %d heads are no multiple of %d kv heads", gguf_name(rd->g),
                        h->n_heads, h->n_kv_heads);
        return;
    }
    int even = h->d_model % h->n_heads == 0;
    if (!even && !gguf_find(rd->g, arch_key(rd, "attention.key_length"))) {
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': an embedding length of %d and %d heads do not divide each other, and "
                        "key '%s' is absent", gguf_name(rd->g), h->d_model, h->n_heads, rd->key);
        return;
    }
    h->head_dim = read_int(rd, "attention.key_length", 1, MODEL_MAX_DIM, even ? h->d_model / h->n_heads : -1);
    int value = read_int(rd, "attention.value_length", 1, MODEL_MAX_DIM, even ? h->d_model / h->n_heads : -1);
    if (rd->r == 0 && (value != h->head_dim || h->head_dim > MODEL_MAX_DIM / h->n_heads))
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': '%s.attention.key_length' is %d and 'attention.value_length' %d: "
                        "only equal ones, up to %d / head_count, are supported", gguf_name(rd->g), rd->arch,
                        h->head_dim, value, MODEL_MAX_DIM);
    only_bool(rd, "attention.causal", 1, "only causal attention is supported");
    only_bool(rd, "use_parallel_residual", 0, "parallel residuals are not supported");
}

/* Which layers have a window: the first that has none says after how many another follows. */
static void read_pattern(struct reader *rd, struct model_hparams *h)
{
    static const char key[] = "attention.sliding_window_pattern";
    int period = 1;
    h->window = read_int(rd, "attention.sliding_window", 1, INT32_MAX, -1);
    while (rd->r == 0 && period <= h->n_layers && read_each(rd, key, period - 1, 1, -1))
        period++;
    h->window_period = period;
    h->period_offset = 1;
    for (int l = 0; rd->r == 0 && l < h->n_layers; l++)
        if ((period > h->n_layers || read_each(rd, key, l, 1, -1) != model_has_window(h, l)) && rd->r == 0)
            refuse(rd, key, "without a period", "every so many layers must be one without a window");
}

static void check_heads(struct reader *rd, const struct model_hparams *h, int n_kv, int dim)
{
    if (rd->r == 0 && (h->n_heads % n_kv != 0 || dim > MODEL_MAX_DIM / h->n_heads))
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': %d heads of %d elements with %d kv heads are not possible", gguf_name(rd->g), h->n_heads,
                        dim, n_kv);
}

/* A width for all layers, or one for each. */
static void read_widths(struct reader *rd, struct model_hparams *h)
{
    static const char key[] = "feed_forward_length";
    const struct gguf_key *k = gguf_find(rd->g, arch_key(rd, key));
    int n = 0;
    if (!k || k->type != GGUF_ARRAY)
        h->n_ff = read_int(rd, key, 1, MODEL_MAX_DIM, -1);
    for (int l = 0; k && k->type == GGUF_ARRAY && l < h->n_layers && rd->r == 0; l++)
        take_width(rd, h, &n, read_each(rd, key, l, MODEL_MAX_DIM, -1));
    keep_widths(h, n);
}

/* Layers with a window have heads of other lengths, and other numbers of kv heads. */
static void read_kinds(struct reader *rd, struct model_hparams *h)
{
    read_pattern(rd, h);
    h->n_heads = read_int(rd, "attention.head_count", 1, MODEL_MAX_DIM, -1);
    h->head_dim = read_int(rd, "attention.key_length", 1, MODEL_MAX_DIM, -1);
    h->head_dim_window = read_int(rd, "attention.key_length_swa", 1, MODEL_MAX_DIM, -1);
    only_int(rd, "attention.value_length", h->head_dim, "it must equal key_length");
    only_int(rd, "attention.value_length_swa", h->head_dim_window, "it must equal key_length_swa");
    int all = read_int(rd, "rope.dimension_count", 2, MODEL_MAX_DIM, h->head_dim);
    h->n_rot_window = read_int(rd, "rope.dimension_count_swa", 2, MODEL_MAX_DIM, h->head_dim_window);
    if (rd->r == 0 && (h->n_rot_window > all || h->n_rot_window > h->head_dim_window || h->n_rot_window % 2))
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s.rope.dimension_count_swa' is %d, not an even number up to %d", gguf_name(rd->g),
                        rd->arch, h->n_rot_window, all < h->head_dim_window ? all : h->head_dim_window);
    for (int l = 0; rd->r == 0 && l < h->n_layers; l++) {
        int n = read_each(rd, "attention.head_count_kv", l, h->n_heads, h->n_heads);
        int *kv = model_has_window(h, l) ? &h->n_kv_window : &h->n_kv_heads;
        char text[16];
        snprintf(text, sizeof text, "%d", n);
        if (rd->r == 0 && (n < 1 || (*kv && *kv != n)))
            refuse(rd, "attention.head_count_kv", text, "layers of one kind must have one number, not 0");
        *kv = n;
    }
    h->n_kv_window = h->n_kv_window ? h->n_kv_window : h->n_kv_heads;
    check_heads(rd, h, h->n_kv_heads, h->head_dim);
    check_heads(rd, h, h->n_kv_window, h->head_dim_window);
    if (rd->r < 0)
        return;
    h->shared_kv = read_int(rd, "attention.shared_kv_layers", 0, h->n_layers - 1, 0);
    if (rd->r == 0 && h->shared_kv > 0 && h->shared_kv + h->window_period > h->n_layers)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s.attention.shared_kv_layers' is %d: of the %d layers before them %d must have "
                        "keys and values, with a window and without", gguf_name(rd->g), rd->arch, h->shared_kv, h->n_layers - h->shared_kv,
                        h->window_period);
    h->layer_embd = read_int(rd, "embedding_length_per_layer_input", 0, MODEL_MAX_DIM / h->n_layers, 0);
    read_widths(rd, h);
    h->value_norm = h->values_optional = h->expert_norms = h->out_scale = 1;
}

/* Gated delta nets in all layers but every so many, and but one that predicts further tokens. */
static void read_delta(struct reader *rd, struct model_hparams *h)
{
    static const char key[] = "attention.recurrent_layers";
    read_attention(rd, h);
    h->out_gate = 1;
    if (rd->r == 0 && h->head_dim > MODEL_MAX_DIM / 2 / h->n_heads)
        rd->r = err_set(rd->e, ERR_LIMIT, "'%s': %d heads of %d elements and their gates, more than the limit of %d", gguf_name(rd->g),
                        h->n_heads, h->head_dim, MODEL_MAX_DIM);
    if (h->mtp)
        return;
    h->full_period = read_int(rd, "full_attention_interval", 1, MODEL_MAX_LAYERS, 4);
    h->conv_width = read_int(rd, "ssm.conv_kernel", 2, MODEL_MAX_CONV, -1);
    h->delta_dim = read_int(rd, "ssm.state_size", 1, MODEL_MAX_DELTA, -1);
    h->delta_k_heads = read_int(rd, "ssm.group_count", 1, MODEL_MAX_DIM, -1);
    h->delta_v_heads = read_int(rd, "ssm.time_step_rank", 1, MODEL_MAX_DIM, -1);
    h->delta_tiled = rd->a->delta == 2;
    h->delta_joined = rd->a->delta == 1;
    if (rd->r == 0 && (h->delta_v_heads % h->delta_k_heads != 0 || h->delta_v_heads > MODEL_MAX_DIM / 4 / h->delta_dim))
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': '%s.ssm.time_step_rank' is %d, '%s.ssm.group_count' %d and '%s.ssm.state_size' %d: value "
                        "heads must be a multiple of key heads, and their elements %d at most", gguf_name(rd->g), rd->arch,
                        h->delta_v_heads, rd->arch, h->delta_k_heads, rd->arch, h->delta_dim, MODEL_MAX_DIM / 4);
    only_int(rd, "ssm.inner_size", model_delta_inner(h), "it must be time_step_rank * state_size");
    for (int l = 0; rd->r == 0 && l < h->n_layers && gguf_find(rd->g, arch_key(rd, key)); l++)
        if (read_each(rd, key, l, 1, -1) != model_is_recurrent(h, l) && rd->r == 0)
            refuse(rd, key, "without a period", "every full_attention_interval-th layer must be one that is not recurrent");
}

/* Time mixing of RWKV-6 and RWKV-7. Their files have no heads of attention. */
static void read_wkv(struct reader *rd, struct model_hparams *h)
{
    only_int(rd, "attention.head_count", 0, "time mixing's heads follow from wkv.head_size");
    only_int(rd, "token_shift_count", 2, "time mixing and the FFN have one each");
    int dim = read_int(rd, "wkv.head_size", 1, MODEL_MAX_DELTA, -1);
    if (rd->a->wkv == 6) {
        h->mix_rank = read_int(rd, "time_mix_extra_dim", 1, MODEL_MAX_DIM, -1);
        h->decay_rank = read_int(rd, "time_decay_extra_dim", 1, MODEL_MAX_DIM, -1);
        h->halve_period = read_int(rd, "rescale_every_n_layers", 0, INT32_MAX, 0);
    } else {
        h->decay_rank = read_int(rd, "attention.decay_lora_rank", 1, MODEL_MAX_DIM, -1);
        h->rate_rank = read_int(rd, "attention.iclr_lora_rank", 1, MODEL_MAX_DIM, -1);
        h->value_rank = read_int(rd, "attention.value_residual_mix_lora_rank", 1, MODEL_MAX_DIM, -1);
        h->gate_rank = read_int(rd, "attention.gate_lora_rank", 1, MODEL_MAX_DIM, -1);
    }
    if (rd->r < 0)
        return;
    if (h->d_model % dim != 0) {
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s.wkv.head_size' is %d, which does not divide the embedding length, %d",
                        gguf_name(rd->g), rd->arch, dim, h->d_model);
        return;
    }
    h->wkv_dim = h->head_dim = dim;
    h->n_heads = h->n_kv_heads = h->d_model / dim;
}

/* Latent attention: one KV head, of what keys and values are made of. The keys without _mla are those of the cache. */
static void read_latent(struct reader *rd, struct model_hparams *h)
{
    h->n_heads = read_int(rd, "attention.head_count", 1, MODEL_MAX_DIM, -1);
    int key = read_int(rd, "attention.key_length_mla", 2, MODEL_MAX_DIM, -1);
    int rot = read_int(rd, "rope.dimension_count", 2, MODEL_MAX_DIM, -1);
    h->value_dim = read_int(rd, "attention.value_length_mla", 1, MODEL_MAX_DIM, -1);
    h->kv_rank = read_int(rd, "attention.kv_lora_rank", 1, MODEL_MAX_DIM, -1);
    h->q_rank = read_int(rd, "attention.q_lora_rank", 0, MODEL_MAX_DIM, 0);
    h->n_kv_heads = 1;
    only_int(rd, "attention.head_count_kv", 1, "latent attention has one KV head");
    if (rd->a->latent == 2) {
        int full = read_int(rd, "attention.indexer.top_k", 1, MODEL_MAX_CONTEXT, -1);
        h->n_ctx_train = h->n_ctx_train < full ? h->n_ctx_train : full;
        h->sparse = 1;
    }
    if (rd->r < 0)
        return;
    h->head_dim = h->kv_rank + rot;
    h->nope_dim = key - rot;
    h->n_rot = rot;
    int widest = h->head_dim > key ? h->head_dim : key;
    widest = widest > h->value_dim ? widest : h->value_dim;
    if (h->nope_dim < 1 || widest > MODEL_MAX_DIM / h->n_heads)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': %d heads of '%s.attention.key_length_mla' %d, of which %d rotate, "
                        "'attention.value_length_mla' %d and 'attention.kv_lora_rank' %d are not possible", gguf_name(rd->g), h->n_heads,
                        rd->arch, key, rot, h->value_dim, h->kv_rank);
    only_int(rd, "attention.key_length", h->head_dim, "it must be kv_lora_rank + rope.dimension_count");
    only_int(rd, "attention.value_length", h->kv_rank, "it must be kv_lora_rank");
}

/* Keys of architectures that do not have them were refused before. */
static void read_scales(struct reader *rd, struct model_hparams *h)
{
    float divisor = read_factor(rd, "logit_scale");
    h->attn_scale = read_factor(rd, "attention.scale");
    h->embd_scale = read_factor(rd, "embedding_scale");
    h->residual_scale = read_factor(rd, "residual_scale");
    h->logit_scale = divisor > 0 && !rd->a->gated ? 1 / divisor : divisor;
    h->attn_softcap = read_factor(rd, "attn_logit_softcapping");
    h->final_softcap = read_factor(rd, "final_logit_softcapping");
    if (rd->r == 0 && rd->a->scaled_embd)
        h->embd_scale = sqrtf((float)h->d_model);
    if (rd->r == 0 && h->n_layers == rd->a->wide_layers)
        h->attn_scale = 1 / sqrtf((float)(h->d_model / h->n_heads));
    if (rd->r == 0 && rd->a->gated) {
        h->embd_normed = 1;
        h->out_gate = 2;
        h->post_eps = 1e-8f;
    }
    if (rd->r == 0 && rd->a->kinds)
        h->attn_scale = 1;
    if (rd->r == 0 && h->kv_rank)
        h->attn_scale = 1 / sqrtf((float)(h->nope_dim + h->n_rot));
}

static void read_window(struct reader *rd, struct model_hparams *h)
{
    int window = read_int(rd, "attention.sliding_window", rd->a->gated, INT32_MAX, rd->a->gated ? -1 : rd->a->window);
    const struct gguf_key *pattern = gguf_find(rd->g, arch_key(rd, "attention.sliding_window_pattern"));
    if (rd->r == 0 && rd->a->window_period > 0 && window > 0 && pattern && pattern->type == GGUF_ARRAY) {
        read_pattern(rd, h);
        h->nope_period = rd->a->nope_period ? h->window_period : 0;
        return;
    }
    if (rd->r == 0 && rd->a->ssm && !rd->a->nope) { /* Granite 4: whether queries and keys rotate */
        int rotates = 1, r = gguf_get_bool(rd->g, arch_key(rd, "rope.scaling.finetuned"), &rotates, rd->e);
        rd->r = r < 0 ? r : 0;
        h->nope_period = !rotates;
    }
    if (rd->a->nope) {
        h->nope_period = rd->a->nope_period;
        h->period_offset = rd->a->period_offset;
    }
    if (rd->r == 0 && rd->a->window_period > 0 && window > 0) {
        h->window = window;
        h->window_period = read_int(rd, "attention.sliding_window_pattern", 1, MODEL_MAX_LAYERS, rd->a->window_period);
        h->nope_period = rd->a->nope_period;
        h->period_offset = rd->a->period_offset;
    } else if (rd->r == 0 && window > 0 && window < h->n_ctx_train) {
        char text[16];
        snprintf(text, sizeof text, "%d", window);
        refuse(rd, "attention.sliding_window", text, "a window shorter than the context is not supported");
    } else {
        only_int(rd, "attention.sliding_window_pattern", 1, "there is no window");
    }
}

/* YaRN (arXiv:2309.00071): mscale = 1 + 0.1 ln(factor), divided by 1 + 0.1 m ln(factor) where the file has the multiplier m. */
static void read_yarn(struct reader *rd, struct model_hparams *h)
{
    float factor = read_float(rd, "rope.scaling.factor", 0), grows = 0.1f * logf(factor);
    h->rope_scale = 1 / factor;
    h->yarn_context = read_int(rd, "rope.scaling.original_context_length", 1, MODEL_MAX_CONTEXT, h->n_ctx_train);
    h->yarn_fast = read_float(rd, "rope.scaling.yarn_beta_fast", 32);
    h->yarn_slow = read_float(rd, "rope.scaling.yarn_beta_slow", 1);
    only_one(rd, "rope.scaling.yarn_ext_factor", "only 1 is supported");
    h->rope_mscale = factor > 1 ? 1 + grows : 1;
    float multiplier = 0;
    if (rd->a->latent) { /* mscale and mscale_all_dim are equal; the file has a tenth of them */
        multiplier = 1 + read_float(rd, "rope.scaling.yarn_log_multiplier", 0) * logf(factor);
        h->rope_mscale = 1;
        h->attn_scale *= factor > 1 ? multiplier * multiplier : 1;
    } else if (rd->r == 0 && (rd->r = gguf_get_f32(rd->g, arch_key(rd, "rope.scaling.yarn_log_multiplier"), &multiplier, rd->e)) > 0)
        rd->r = 0;
    if (!rd->a->latent)
        h->rope_mscale /= factor > 1 && multiplier > 0 ? 1 + multiplier * grows : 1;
    float stated = read_float(rd, "rope.scaling.yarn_attn_factor", h->rope_mscale);
    char text[32];
    print_into(text, sizeof text, "%g", (double)stated);
    if (rd->r == 0 && fabsf(stated - h->rope_mscale) > 1e-3f * h->rope_mscale)
        refuse(rd, "rope.scaling.yarn_attn_factor", text, "only what follows from the factor, 1 + 0.1 ln(factor), is supported");
}

static void read_rope(struct reader *rd, struct model_hparams *h)
{
    h->n_rot = read_int(rd, "rope.dimension_count", 2, MODEL_MAX_DIM, h->head_dim);
    if (rd->r == 0 && (h->n_rot > h->head_dim || h->n_rot % 2 != 0))
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s.rope.dimension_count' is %d, not an even number up "
                        "to the head's %d", gguf_name(rd->g), rd->arch, h->n_rot, h->head_dim);
    h->rope_theta = read_float(rd, "rope.freq_base", 10000);
    h->rope_mscale = 1;
    if (rd->a->rope_theta_window > 0 || gguf_find(rd->g, arch_key(rd, "rope.freq_base_swa")))
        h->rope_theta_window = read_float(rd, "rope.freq_base_swa", rd->a->rope_theta_window);
    if (rd->a->rope_window_plain && h->window > 0 && h->rope_theta_window <= 0)
        h->rope_theta_window = h->rope_theta;
    if (rd->a->longrope && gguf_find(rd->g, arch_key(rd, "rope.scaling.attn_factor"))) {
        h->rope_mscale = read_float(rd, "rope.scaling.attn_factor", 0);
        h->long_context = read_int(rd, "rope.scaling.original_context_length", 1, MODEL_MAX_CONTEXT, -1);
    } else {
        only_one(rd, "rope.scaling.attn_factor", "only 1 is supported");
    }
    float factor = read_float(rd, "rope.scale_linear", 1);
    char *type = read_str(rd, arch_key(rd, "rope.scaling.type"));
    if (type && !strcmp(type, "linear"))
        factor = read_float(rd, "rope.scaling.factor", 0);
    else if (type && strcmp(type, "none") && strcmp(type, "yarn"))
        refuse(rd, "rope.scaling.type", type, "only none, linear and yarn are supported");
    else if (!type && rd->r == 0 && gguf_find(rd->g, arch_key(rd, "rope.scaling.factor")))
        only_one(rd, "rope.scaling.factor", "without rope.scaling.type it has no meaning");
    h->rope_scale = 1 / factor;
    if (type && !strcmp(type, "yarn") && rd->r == 0)
        read_yarn(rd, h);
    h->temperature = read_factor(rd, "attention.temperature_scale");
    if (rd->r == 0 && h->temperature > 0 && !h->yarn_context)
        refuse(rd, "attention.temperature_scale", "there", "it needs the original context of yarn");
    free(type);
}

/* Is it said that weights of experts are normalised? */
static int states_norm(struct reader *rd)
{
    int norm = 0;
    if (rd->r == 0 && (rd->r = gguf_get_bool(rd->g, arch_key(rd, "expert_weights_norm"), &norm, rd->e)) > 0)
        rd->r = 0;
    return norm;
}

/* The routers' function: what was stated before, the file, the user, the architecture; in this order. */
static void read_router(struct reader *rd, enum model_router given, struct model_hparams *h)
{
    static const char key[] = "thermocline.router";
    int router = -1, func = read_int(rd, "expert_gating_func", 0, INT32_MAX, 0);
    char *name = read_str(rd, key), text[16];
    if (name && ((router = model_router_by_name(name)) <= 0))
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key '%s' is '%.32s', which is not known", gguf_name(rd->g), key, name);
    free(name);
    if (rd->r < 0)
        return;
    snprintf(text, sizeof text, "%d", func);
    if (func > (rd->a->sigmoid ? 2 : 1)) {
        refuse(rd, "expert_gating_func", text, rd->a->sigmoid ? "only softmax (1) and sigmoid (2) are supported"
                                                              : "only softmax gating (1) is supported");
        return;
    }
    int all = rd->a->stated_norm ? !states_norm(rd) : rd->a->router == MODEL_ROUTER_SOFTMAX_ALL;
    int softmax = all ? MODEL_ROUTER_SOFTMAX_ALL : MODEL_ROUTER_SOFTMAX_TOPK;
    int own = rd->a->stated_norm && rd->a->router != MODEL_ROUTER_SIGMOID_TOPK ? softmax : rd->a->router;
    int stated = func == 2 ? MODEL_ROUTER_SIGMOID_TOPK : func == 1 ? softmax : -1;
    router = router >= 0 ? router : stated >= 0 ? stated : given != MODEL_ROUTER_NONE ? (int)given : own;
    if (router < 0)
        rd->r = err_set(rd->e, ERR_USAGE, "'%s': key '%s' is absent, which stands for sigmoid or for softmax by who "
                        "converted the model; state it with thermo-profile trace --expert-gating softmax|sigmoid (the "
                        "model's config.json: moe_primary_router_apply_softmax)", gguf_name(rd->g),
                        arch_key(rd, "expert_gating_func"));
    else if (given != MODEL_ROUTER_NONE && given != (enum model_router)router)
        rd->r = err_set(rd->e, ERR_MISMATCH, "'%s': its routers are %s (key '%s'), which contradicts %s", gguf_name(rd->g),
                        router_names[router], arch_key(rd, "expert_gating_func"), router_names[given]);
    else
        h->router = (enum model_router)router;
}

static void check_norm(struct reader *rd, const struct model_hparams *h)
{
    int norm = h->router != MODEL_ROUTER_SOFTMAX_ALL;
    if (!rd->a->stated_norm)
        only_bool(rd, "expert_weights_norm", norm, norm ? "only normalised expert weights are supported"
                                                        : "this architecture does not normalise expert weights");
    else if (h->router == MODEL_ROUTER_SIGMOID_TOPK && !states_norm(rd) && rd->r == 0)
        refuse(rd, "expert_weights_norm", "false or absent", "only normalised weights are supported with sigmoid gating");
}

/* Groups of experts, of which some are open to a token. */
static void read_groups(struct reader *rd, struct model_hparams *h)
{
    int n = read_int(rd, "expert_group_count", 0, h->n_experts, 0), used = read_int(rd, "expert_group_used_count", 0, n, 0);
    char text[64];
    if (rd->r < 0 || n <= 1)
        return;
    snprintf(text, sizeof text, "%d", n);
    if (h->router != MODEL_ROUTER_SIGMOID_TOPK)
        refuse(rd, "expert_group_count", text, "groups are only supported with sigmoid gating");
    else if (h->n_experts % n != 0 || used < 1 || h->n_experts / n * used < h->n_experts_used)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': %d of %d groups of %d experts, of which a token uses %d, are not possible",
                        gguf_name(rd->g), used, n, h->n_experts, h->n_experts_used);
    h->n_groups = n;
    h->n_groups_used = used;
}

static void read_shared(struct reader *rd, struct model_hparams *h)
{
    int kind = rd->a->shared_expert, stated = kind == 3 ? read_int(rd, "expert_shared_count", 0, MODEL_MAX_EXPERTS, -1) : 0;
    h->shared_gated = kind == 1;
    if (kind == 5)
        only_int(rd, "expert_shared_count", 1, "the file says how wide one is");
    else if (kind != 3)
        only_int(rd, "expert_shared_count", 0, "shared experts are not supported");
    if (kind == 4) {
        h->n_ff_shared = h->n_ff;
        return;
    }
    if (kind == 1 || kind == 2 || kind == 5) {
        h->n_ff_shared = read_int(rd, "expert_shared_feed_forward_length", kind == 1, MODEL_MAX_DIM,
                                  kind == 1 ? h->n_ff : kind == 5 ? -1 : 0);
        return;
    }
    if (rd->r == 0 && stated > MODEL_MAX_DIM / h->n_ff)
        rd->r = err_set(rd->e, ERR_LIMIT, "'%s': %d shared experts of %d neurons, more than the limit of %d", gguf_name(rd->g), stated,
                        h->n_ff, MODEL_MAX_DIM);
    h->n_ff_shared = rd->r == 0 ? stated * h->n_ff : 0;
    only_int(rd, "expert_shared_feed_forward_length", h->n_ff_shared,
             kind ? "it must be expert_shared_count * expert_feed_forward_length" : "this architecture has no shared expert");
}

static void read_experts(struct reader *rd, enum model_router given, struct model_hparams *h)
{
    h->n_experts = read_int(rd, "expert_count", rd->a->experts, MODEL_MAX_EXPERTS, rd->a->experts ? -1 : 0);
    h->router = MODEL_ROUTER_NONE;
    if (h->n_experts == 0) {
        only_int(rd, "expert_used_count", 0, "there are no experts");
        if (rd->r == 0 && given != MODEL_ROUTER_NONE)
            rd->r = err_set(rd->e, ERR_USAGE, "'%s': it has no experts, so nothing is known of %s", gguf_name(rd->g),
                            router_names[given]);
        return;
    }
    if (rd->r == 0 && h->widths[0])
        refuse(rd, "feed_forward_length", "of several widths", "with experts one is supported");
    read_router(rd, given, h);
    h->early_router = rd->a->early_router;
    h->expert_bias = rd->a->expert_bias;
    h->n_experts_used = read_int(rd, "expert_used_count", 1, h->n_experts, -1);
    int dense = h->n_ff;
    if (rd->a->shared_expert != 3)
        read_shared(rd, h);
    if (rd->a->expert_width)
        h->n_ff = read_int(rd, "expert_feed_forward_length", 1, MODEL_MAX_DIM, -1);
    else
        only_int(rd, "expert_feed_forward_length", h->n_ff, "it must equal feed_forward_length");
    if (rd->r == 0 && rd->a->shared_expert == 3)
        read_shared(rd, h);
    check_norm(rd, h);
    if (rd->a->lead) {
        h->n_ff_lead = h->n_lead > 0 && !model_has_alone(h) ? dense : 0;
        h->select_bias = h->router == MODEL_ROUTER_SIGMOID_TOPK ? rd->a->select_bias : 0;
        h->expert_scale = read_factor(rd, "expert_weights_scale");
        read_groups(rd, h);
    } else {
        only_one(rd, "expert_weights_scale", "only 1 is supported");
    }
}

static void read_act(struct reader *rd, int override, struct model_hparams *h)
{
    static const char *const arch_names[] = { "hidden_act", "hidden_activation" };
    char key[128] = "thermocline.hidden_act";
    char *name = read_str(rd, key);
    for (int i = 0; rd->r == 0 && !name && i < 2; i++) {
        snprintf(key, sizeof key, "%s", arch_key(rd, arch_names[i]));
        name = read_str(rd, key);
    }
    int act = name ? model_act_by_name(name) : rd->g->is_pwri && rd->a->act == MODEL_ACT_SILU
                                                                   ? MODEL_ACT_RELU
                                                                   : (int)rd->a->act;
    if (override >= 0)
        act = override;
    if (rd->r == 0 && act < 0)
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key '%s' is '%.32s': only silu, relu and drelu are "
                        "supported", gguf_name(rd->g), key, name);
    else if (rd->r == 0 && act != (int)rd->a->act && (rd->a->act_only || act > MODEL_ACT_DRELU))
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': its activation is %s, %s (key '%s') is not supported for the architecture '%s'",
                        gguf_name(rd->g), act_names[rd->a->act], act_names[act], key, rd->arch);
    else if (rd->r == 0)
        h->act = (enum model_act)act;
    free(name);
}

/* context_length is the number of rows. */
static void read_positions(struct reader *rd, struct model_hparams *h)
{
    if (rd->r < 0 || !rd->a->positions)
        return;
    h->n_positions = h->n_ctx_train;
    h->n_ctx_train -= MODEL_FIRST_POSITION;
    if (h->n_ctx_train < 1)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s.context_length' is %d: of so many rows of positions the first %d are none",
                        gguf_name(rd->g), rd->arch, h->n_positions, MODEL_FIRST_POSITION);
}

static void read_vocab(struct reader *rd, struct model_hparams *h)
{
    const struct gguf_key *k = gguf_find(rd->g, "tokenizer.ggml.tokens");
    if (rd->r < 0)
        return;
    if (!k) {
        h->n_vocab = read_int(rd, "vocab_size", 1, MODEL_MAX_VOCAB, -1);
    } else if (k->type != GGUF_ARRAY || k->elem_type != GGUF_STRING) {
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s' is not an array of strings", gguf_name(rd->g), k->name);
    } else if (k->n < 1 || k->n > MODEL_MAX_VOCAB) {
        rd->r = err_set(rd->e, ERR_LIMIT, "'%s': key '%s' has %" PRIu64 " elements, outside 1 to %d",
                        gguf_name(rd->g), k->name, k->n, MODEL_MAX_VOCAB);
    } else {
        h->n_vocab = (int)k->n;
        only_int(rd, "vocab_size", h->n_vocab, "it differs from the number of tokens");
    }
}

static void read_tied(struct reader *rd, struct model_hparams *h)
{
    static const char key[] = "thermocline.tied_output";
    char head[64];
    if (rd->r < 0)
        return;
    if (rd->g->n_tensors > 0) {
        model_tensor_name(h, MODEL_OUTPUT, -1, head, sizeof head);
        h->tied_output = gguf_tensor(rd->g, head) == NULL;
        return;
    }
    int r = gguf_get_bool(rd->g, key, &h->tied_output, rd->e);
    if (r < 0)
        rd->r = r;
    else if (r == 0)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': it has no tensors and no key '%s'", gguf_name(rd->g), key);
}

static void read_thresholds(struct reader *rd, const struct model_given *given, struct model_hparams *h)
{
    static const char key[] = "thermocline.thresholds", cold_key[] = "thermocline.cold_thresholds";
    int there = 0, cold = 0, relu = h->act == MODEL_ACT_RELU, r = rd->r < 0 ? rd->r : gguf_get_bool(rd->g, key, &there, rd->e);
    r = r < 0 ? r : gguf_get_bool(rd->g, cold_key, &cold, rd->e);
    h->thresholds = there || (given->thresholds && !relu);
    h->cold_thresholds = cold || (given->thresholds && relu);
    const char *why = !h->thresholds && !h->cold_thresholds ? NULL
                      : h->n_experts > 0 ? "experts are sparse by themselves: silencing neurons inside them costs more than it saves"
                      : h->ffn_up == MODEL_FFN_UP_UNGATED ? "its FFN has no gate that says what is silent before Up is computed"
                      : h->cold_thresholds ? (relu && !h->thresholds ? NULL : "those of cold neurons alone need a gate with ReLU")
                      : h->act == MODEL_ACT_SILU || h->act == MODEL_ACT_GELU ? NULL : "its activation gives exact zeros already";
    if (r >= 0 && why)
        r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': thresholds of neurons: %s", gguf_name(rd->g), why);
    rd->r = r < 0 ? r : rd->r;
}

/* Folding mixes neurons before Down: all of them count. */
static void read_fold(struct reader *rd, struct model_hparams *h)
{
    if (rd->r < 0 || !rd->folds)
        return;
    rd->r = model_fold_read(rd->g, h->mtp ? h->mtp : model_depth(h), h, rd->e);
    if (rd->r == 0 && h->fold && (h->thresholds || h->act != MODEL_ACT_SILU))
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': its FFNs are folded (keys 'prism.hadamard.*'), so every neuron counts: %s is not "
                        "supported", gguf_name(rd->g), h->thresholds ? "a threshold" : act_names[h->act]);
}

static const struct model_arch *find_arch(struct reader *rd, struct model_hparams *h)
{
    char *name = read_str(rd, "general.architecture"), list[512];
    const struct model_arch *found = name ? model_arch_find(name) : NULL;
    if (rd->r == 0 && !name) {
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key 'general.architecture' is absent", gguf_name(rd->g));
    } else if (rd->r == 0 && !found) {
        model_arch_names(list, sizeof list);
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key 'general.architecture' is '%.64s': only %s are supported", gguf_name(rd->g),
                        name, list);
    } else if (found) {
        snprintf(h->arch, sizeof h->arch, "%s", found->family.arch);
    }
    free(name);
    return found;
}

int model_hparams_read(const struct gguf *g, const struct model_given *given, struct model_hparams *out, struct err *e)
{
    static const struct model_given nothing = { .act = -1 };
    struct model_hparams h = { 0 };
    struct reader rd = { .g = g, .e = e };
    given = given ? given : &nothing;
    rd.a = find_arch(&rd, &h);
    if (!rd.a)
        return rd.r;
    rd.arch = rd.a->family.arch;
    h.rope = rd.a->rope;
    h.qk_norm = rd.a->qk_norm;
    h.qk_norm_optional = rd.a->qk_norm_optional;
    h.qkv_bias = rd.a->qkv_bias;
    h.output_bias = rd.a->output_bias;
    h.sinks = rd.a->sinks;
    h.ffn_up = rd.a->ffn_up;
    h.layer_norm = rd.a->layer_norm;
    h.parallel = rd.a->parallel;
    h.post_norms = rd.a->post_norms;
    h.no_pre_norms = rd.a->no_pre_norms;
    h.qk_norm_after = rd.a->qk_norm_after;
    h.ffn_norm_named_post = rd.a->ffn_norm_named_post;
    h.output_norm_named_embd = rd.a->short_conv;
    char *name = read_str(&rd, "general.name");
    if (name)
        snprintf(h.name, sizeof h.name, "%s", name);
    free(name);
    check_known_keys(&rd);
    read_layers(&rd, &h);
    take_mtp(&rd, given->mtp, &h);
    h.d_model = read_int(&rd, "embedding_length", 1, MODEL_MAX_DIM, -1);
    if (rd.a->ssm != 2 && !rd.a->kinds) /* which has it for each block */
        h.n_ff = read_int(&rd, "feed_forward_length", rd.a->no_width ? 0 : 1, MODEL_MAX_DIM, rd.a->no_width ? 0 : -1);
    h.n_ctx_train = read_int(&rd, "context_length", 1, MODEL_MAX_CONTEXT, -1);
    int one_eps = rd.a->ssm == 2 && !gguf_find(g, arch_key(&rd, "attention.layer_norm_rms_epsilon"));
    h.rms_eps = read_float(&rd, rd.a->layer_norm || one_eps ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
                         rd.a->positions ? 1e-5f : 0); /* OPT's files do not say it */
    read_positions(&rd, &h);
    (rd.a->latent ? read_latent : rd.a->wkv ? read_wkv : rd.a->kinds ? read_kinds : rd.a->delta ? read_delta : read_attention)(&rd, &h);
    if (!rd.a->kinds && !rd.a->wkv)
        read_window(&rd, &h);
    read_scales(&rd, &h);
    if (rd.r == 0 && rd.a->wkv)
        h.rope_scale = h.rope_mscale = 1;
    else if (rd.r == 0)
        read_rope(&rd, &h);
    if (rd.r == 0)
        read_experts(&rd, given->router, &h);
    read_act(&rd, given->act, &h);
    read_vocab(&rd, &h);
    read_tied(&rd, &h);
    read_thresholds(&rd, given, &h);
    read_fold(&rd, &h);
    h.down_by_neuron = gguf_tensor(g, "blk.0.ffn_down_t.weight") != NULL;
    if (rd.r < 0)
        return rd.r;
    *out = h;
    return 0;
}

int model_meta_blob(const struct gguf *g, const struct model_hparams *h, int (*skip)(const char *name),
                    uint8_t **out, size_t *len, struct err *e)
{
    struct gguf_writer *w;
    int r = gguf_writer_new(&w, e);
    if (r < 0)
        return r;
    char vocab[64];
    snprintf(vocab, sizeof vocab, "%s.vocab_size", h->arch);
    if (g->is_pwri)
        gguf_writer_set_pwri(w);
    for (uint64_t i = 0; r == 0 && i < g->n_keys; i++) {
        const char *name = g->keys[i].name;
        if (!strncmp(name, "split.", 6) || !strncmp(name, "thermocline.", 12) ||
            !strcmp(name, "general.alignment") || (skip && skip(name)) ||
            (h->mtp && (!strncmp(name, "tokenizer.", 10) || !strcmp(name, vocab))))
            continue;
        r = gguf_writer_kv_raw(w, &g->keys[i], e);
    }
    if (r == 0 && h->mtp && (r = gguf_writer_u32(w, vocab, (uint32_t)h->n_vocab, e)) == 0)
        r = gguf_writer_bool(w, mtp_key, 1, e);
    if (r == 0 && h->router != MODEL_ROUTER_NONE)
        r = gguf_writer_str(w, "thermocline.router", model_router_name(h->router), e);
    if (r == 0 && h->thresholds)
        r = gguf_writer_bool(w, "thermocline.thresholds", 1, e);
    if (r == 0 && h->cold_thresholds)
        r = gguf_writer_bool(w, "thermocline.cold_thresholds", 1, e);
    if (r == 0 && (r = gguf_writer_str(w, "thermocline.hidden_act", model_act_name(h->act), e)) == 0 &&
        (r = gguf_writer_bool(w, "thermocline.tied_output", h->tied_output, e)) == 0)
        r = gguf_writer_blob(w, out, len, e);
    gguf_writer_free(w);
    return r;
}
