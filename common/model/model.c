/* Hyper-parameters and tensor roles of a llama-shaped model. Both are tables: one of the keys that
 * are understood (any other key of the architecture is refused, because a key that is ignored may
 * change the network), one of the tensor roles with their names and shapes. An architecture is a
 * row of `archs`; what else sets qwen2 and its like apart (biases, norms of q and k) will be columns of it. */
#include "common/model/model.h"

#include "common/kernels/quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const act_names[MODEL_ACTS] = { "silu", "relu", "drelu" };
static const char *const router_names[MODEL_ROUTERS] = { "none", "softmax_topk", "sigmoid_topk" };

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

/* --- hyper-parameters -------------------------------------------------------------------- */

struct arch {
    const char *name;
    enum model_rope rope;
    enum model_act act;          /* of a file that does not say */
    int router;                  /* of a file that does not say; -1: it must */
    int sigmoid;                 /* expert_gating_func may be 2 */
    int early_router, experts;   /* experts: there must be some */
    int window_period;           /* default of sliding_window_pattern; 0: windows are not supported */
    int nope_period;             /* where there is a window */
};

/* smallthinker: layers 0, 4, 8, ... see everything and do not rotate, the others see a window. */
static const struct arch archs[] = {
    { "llama", MODEL_ROPE_NORM, MODEL_ACT_SILU, MODEL_ROUTER_SOFTMAX_TOPK, 0, 0, 0, 0, 0 },
    { "mistral", MODEL_ROPE_NORM, MODEL_ACT_SILU, MODEL_ROUTER_SOFTMAX_TOPK, 0, 0, 0, 0, 0 },
    { "bamboo", MODEL_ROPE_NORM, MODEL_ACT_DRELU, MODEL_ROUTER_SOFTMAX_TOPK, 0, 0, 0, 0, 0 },
    { "smallthinker", MODEL_ROPE_NEOX, MODEL_ACT_RELU, -1, 1, 1, 1, 4, 4 },
};

/* Keys under "ARCH." that are read below, or whose value cannot matter to the computation. */
static const char *const known_keys[] = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "attention.key_length",
    "attention.value_length", "attention.sliding_window", "attention.sliding_window_pattern", "attention.causal",
    "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scaling.attn_factor",
    "vocab_size", "expert_count", "expert_used_count", "expert_shared_count", "expert_gating_func",
    "expert_weights_norm", "expert_weights_scale", "expert_feed_forward_length", "hidden_act",
    "hidden_activation", "use_parallel_residual", "tensor_data_layout",
};

/* What every reading function needs; the first error sticks and later reads do nothing. */
struct reader {
    const struct gguf *g;
    const struct arch *a;
    const char *arch;
    char key[128];
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
    snprintf(text, sizeof text, "%g", (double)v);
    if (rd->r == 0 && v != 1)
        refuse(rd, name, text, why);
}

static void check_known_keys(struct reader *rd)
{
    size_t stem = strlen(rd->arch);
    for (uint64_t i = 0; rd->r == 0 && i < rd->g->n_keys; i++) {
        const char *name = rd->g->keys[i].name;
        if (strncmp(name, rd->arch, stem) || name[stem] != '.')
            continue;
        size_t n = sizeof known_keys / sizeof known_keys[0], k = 0;
        while (k < n && strcmp(known_keys[k], name + stem + 1))
            k++;
        if (k == n)
            rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key '%s' is not known for the architecture "
                            "'%s'", gguf_name(rd->g), name, rd->arch);
    }
}

static void read_attention(struct reader *rd, struct model_hparams *h)
{
    h->n_heads = read_int(rd, "attention.head_count", 1, MODEL_MAX_DIM, -1);
    h->n_kv_heads = read_int(rd, "attention.head_count_kv", 1, MODEL_MAX_DIM, h->n_heads);
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

static void read_window(struct reader *rd, struct model_hparams *h)
{
    int window = read_int(rd, "attention.sliding_window", 0, INT32_MAX, 0);
    if (rd->r == 0 && rd->a->window_period > 0 && window > 0) {
        h->window = window;
        h->window_period = read_int(rd, "attention.sliding_window_pattern", 1, MODEL_MAX_LAYERS, rd->a->window_period);
        h->nope_period = rd->a->nope_period;
    } else if (rd->r == 0 && window > 0 && window < h->n_ctx_train) {
        char text[16];
        snprintf(text, sizeof text, "%d", window);
        refuse(rd, "attention.sliding_window", text, "a window shorter than the context is not supported");
    } else {
        only_int(rd, "attention.sliding_window_pattern", 1, "there is no window");
    }
}

static void read_rope(struct reader *rd, struct model_hparams *h)
{
    h->n_rot = read_int(rd, "rope.dimension_count", 2, MODEL_MAX_DIM, h->head_dim);
    if (rd->r == 0 && (h->n_rot > h->head_dim || h->n_rot % 2 != 0))
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key '%s.rope.dimension_count' is %d, not an even number up "
                        "to the head's %d", gguf_name(rd->g), rd->arch, h->n_rot, h->head_dim);
    h->rope_theta = read_float(rd, "rope.freq_base", 10000);
    only_one(rd, "rope.scaling.attn_factor", "only 1 is supported");
    float factor = read_float(rd, "rope.scale_linear", 1);
    char *type = read_str(rd, arch_key(rd, "rope.scaling.type"));
    if (type && !strcmp(type, "linear"))
        factor = read_float(rd, "rope.scaling.factor", 0);
    else if (type && strcmp(type, "none"))
        refuse(rd, "rope.scaling.type", type, "only none and linear are supported");
    else if (!type && rd->r == 0 && gguf_find(rd->g, arch_key(rd, "rope.scaling.factor")))
        only_one(rd, "rope.scaling.factor", "without rope.scaling.type it has no meaning");
    free(type);
    h->rope_scale = 1 / factor;
}

/* The routers' function: what was stated before, the file, the user, the architecture; in this order. */
static void read_router(struct reader *rd, enum model_router given, struct model_hparams *h)
{
    static const char key[] = "thermocline.router";
    int router = -1, func = read_int(rd, "expert_gating_func", 0, INT32_MAX, 0);
    char *name = read_str(rd, key), text[16];
    if (name && ((router = model_router_by_name(name)) <= 0))
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key '%s' is '%.32s': only %s and %s are supported",
                        gguf_name(rd->g), key, name, router_names[MODEL_ROUTER_SOFTMAX_TOPK],
                        router_names[MODEL_ROUTER_SIGMOID_TOPK]);
    free(name);
    if (rd->r < 0)
        return;
    snprintf(text, sizeof text, "%d", func);
    if (func > (rd->a->sigmoid ? 2 : 1)) {
        refuse(rd, "expert_gating_func", text, rd->a->sigmoid ? "only softmax (1) and sigmoid (2) are supported"
                                                              : "only softmax gating (1) is supported");
        return;
    }
    int stated = func == 2 ? MODEL_ROUTER_SIGMOID_TOPK : func == 1 ? MODEL_ROUTER_SOFTMAX_TOPK : -1;
    router = router >= 0 ? router : stated >= 0 ? stated : given != MODEL_ROUTER_NONE ? (int)given : rd->a->router;
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
    read_router(rd, given, h);
    h->early_router = rd->a->early_router;
    h->n_experts_used = read_int(rd, "expert_used_count", 1, h->n_experts, -1);
    only_int(rd, "expert_shared_count", 0, "shared experts are not supported");
    only_int(rd, "expert_feed_forward_length", h->n_ff, "it must equal feed_forward_length");
    only_bool(rd, "expert_weights_norm", 1, "only normalised expert weights are supported");
    only_one(rd, "expert_weights_scale", "only 1 is supported");
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
    else if (rd->r == 0)
        h->act = (enum model_act)act;
    free(name);
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
    if (rd->r < 0)
        return;
    if (rd->g->n_tensors > 0) {
        h->tied_output = gguf_tensor(rd->g, "output.weight") == NULL;
        return;
    }
    int r = gguf_get_bool(rd->g, key, &h->tied_output, rd->e);
    if (r < 0)
        rd->r = r;
    else if (r == 0)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': it has no tensors and no key '%s'", gguf_name(rd->g), key);
}

static const struct arch *find_arch(struct reader *rd, struct model_hparams *h)
{
    char *name = read_str(rd, "general.architecture");
    const struct arch *found = NULL;
    if (rd->r == 0 && !name)
        rd->r = err_set(rd->e, ERR_FORMAT, "'%s': key 'general.architecture' is absent", gguf_name(rd->g));
    for (size_t i = 0; name && i < sizeof archs / sizeof archs[0]; i++)
        if (!strcmp(name, archs[i].name))
            found = &archs[i];
    if (rd->r == 0 && !found)
        rd->r = err_set(rd->e, ERR_UNSUPPORTED, "'%s': key 'general.architecture' is '%.64s': only llama "
                        "(and mistral), bamboo and smallthinker are supported", gguf_name(rd->g), name);
    if (found)
        snprintf(h->arch, sizeof h->arch, "%s", found->name);
    free(name);
    return found;
}

int model_hparams_read(const struct gguf *g, const struct model_given *given, struct model_hparams *out, struct err *e)
{
    static const struct model_given nothing = { -1, MODEL_ROUTER_NONE };
    struct model_hparams h = { 0 };
    struct reader rd = { .g = g, .e = e };
    given = given ? given : &nothing;
    rd.a = find_arch(&rd, &h);
    if (!rd.a)
        return rd.r;
    rd.arch = rd.a->name;
    h.rope = rd.a->rope;
    char *name = read_str(&rd, "general.name");
    if (name)
        snprintf(h.name, sizeof h.name, "%s", name);
    free(name);
    check_known_keys(&rd);
    h.n_layers = read_int(&rd, "block_count", 1, MODEL_MAX_LAYERS, -1);
    h.d_model = read_int(&rd, "embedding_length", 1, MODEL_MAX_DIM, -1);
    h.n_ff = read_int(&rd, "feed_forward_length", 1, MODEL_MAX_DIM, -1);
    h.n_ctx_train = read_int(&rd, "context_length", 1, MODEL_MAX_CONTEXT, -1);
    h.rms_eps = read_float(&rd, "attention.layer_norm_rms_epsilon", 0);
    read_attention(&rd, &h);
    read_window(&rd, &h);
    if (rd.r == 0)
        read_rope(&rd, &h);
    if (rd.r == 0)
        read_experts(&rd, given->router, &h);
    read_act(&rd, given->act, &h);
    read_vocab(&rd, &h);
    read_tied(&rd, &h);
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
    if (g->is_pwri)
        gguf_writer_set_pwri(w);
    for (uint64_t i = 0; r == 0 && i < g->n_keys; i++) {
        const char *name = g->keys[i].name;
        if (!strncmp(name, "split.", 6) || !strncmp(name, "thermocline.", 12) ||
            !strcmp(name, "general.alignment") || (skip && skip(name)))
            continue;
        r = gguf_writer_kv_raw(w, &g->keys[i], e);
    }
    if (r == 0 && h->router != MODEL_ROUTER_NONE)
        r = gguf_writer_str(w, "thermocline.router", model_router_name(h->router), e);
    if (r == 0 && (r = gguf_writer_str(w, "thermocline.hidden_act", model_act_name(h->act), e)) == 0 &&
        (r = gguf_writer_bool(w, "thermocline.tied_output", h->tied_output, e)) == 0)
        r = gguf_writer_blob(w, out, len, e);
    gguf_writer_free(w);
    return r;
}

/* --- tensors ----------------------------------------------------------------------------- */

/* A layer's predictor has both matrices, of one rank. */
static int check_predictor(const struct model *m, int layer, struct err *e)
{
    const struct gguf_tensor *fc1 = m->layer[layer][MODEL_PREDICT_FC1], *fc2 = m->layer[layer][MODEL_PREDICT_FC2];
    if (!fc1 != !fc2)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is there without its other half, '%s'", gguf_name(m->gguf),
                       (fc1 ? fc1 : fc2)->name, fc1 ? "fc2.weight" : "fc1.weight");
    if (fc1 && fc1->dims[1] != fc2->dims[0])
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is of rank %" PRIu64 ", '%s' of rank %" PRIu64,
                       gguf_name(m->gguf), fc1->name, fc1->dims[1], fc2->name, fc2->dims[0]);
    return 0;
}

static int check_shape(const struct model *m, const struct gguf_tensor *t, enum model_role r, struct err *e)
{
    uint64_t want[4];
    model_tensor_shape(&m->h, r, want);
    for (int i = 0; i < 2; i++)
        if (want[i] == 0)
            want[i] = t->dims[i];
    if (memcmp(want, t->dims, sizeof want))
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is of shape %" PRIu64 " x %" PRIu64 " x %" PRIu64
                       " x %" PRIu64 ", the hyper-parameters want %" PRIu64 " x %" PRIu64 " x %" PRIu64
                       " x 1", gguf_name(m->gguf), t->name, t->dims[0], t->dims[1], t->dims[2], t->dims[3],
                       want[0], want[1], want[2]);
    const struct quant_traits *q = quant_traits(t->type);
    if (!q->dequant)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s': type %s cannot be computed by this build",
                       gguf_name(m->gguf), t->name, q->name);
    if (model_role_is_vector(r) && t->type != QUANT_F32)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s' is of type %s, only F32 is supported for it",
                       gguf_name(m->gguf), t->name, q->name);
    return 0;
}

/* 1 found, 0 absent. */
static int resolve(const struct model *m, enum model_role r, int layer, const struct gguf_tensor **out,
                   struct err *e)
{
    char name[64];
    *out = NULL;
    if (model_role_presence(&m->h, r) == MODEL_ABSENT || model_tensor_name(&m->h, r, layer, name, sizeof name) < 0)
        return 0;
    const struct gguf_tensor *t = gguf_tensor(m->gguf, name);
    if (!t && model_role_presence(&m->h, r) == MODEL_REQUIRED)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is absent", gguf_name(m->gguf), name);
    if (!t)
        return 0;
    int rc = check_shape(m, t, r, e);
    if (rc < 0)
        return rc;
    *out = t;
    return 1;
}

/* Called when fewer tensors were resolved than the file has: names one of the others. */
static int name_unknown(const struct model *m, struct err *e)
{
    const struct gguf *g = m->gguf;
    uint8_t *known = calloc(g->n_tensors, 1);
    if (!known)
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " tensors", gguf_name(g), g->n_tensors);
    for (int r = 0; r < MODEL_ROLES; r++) {
        if (m->global[r])
            known[m->global[r] - g->tensors] = 1;
        for (int l = 0; l < m->h.n_layers; l++)
            if (m->layer[l][r])
                known[m->layer[l][r] - g->tensors] = 1;
    }
    uint64_t i = 0;
    while (known[i])
        i++;
    free(known);
    return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s' is not known for the architecture '%s' with %d "
                   "layers and %d experts", gguf_name(g), g->tensors[i].name, m->h.arch, m->h.n_layers,
                   m->h.n_experts);
}

int model_open(const struct gguf *g, const struct model_given *given, struct model **out, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "'%s'", gguf_name(g));
    m->gguf = g;
    uint64_t n_found = 0;
    int r = model_hparams_read(g, given, &m->h, e);
    if (r < 0)
        goto fail;
    m->layer = calloc((size_t)m->h.n_layers, sizeof *m->layer);
    if (!m->layer) {
        r = err_set(e, ERR_NOMEM, "'%s': %d layers", gguf_name(g), m->h.n_layers);
        goto fail;
    }
    for (int role = 0; role < MODEL_ROLES; role++) {
        int per_layer = model_role_is_per_layer((enum model_role)role), n = per_layer ? m->h.n_layers : 1;
        for (int l = 0; l < n; l++) {
            const struct gguf_tensor **t = per_layer ? &m->layer[l][role] : &m->global[role];
            if ((r = resolve(m, (enum model_role)role, l, t, e)) < 0)
                goto fail;
            n_found += (uint64_t)r;
        }
    }
    for (int l = 0; l < m->h.n_layers; l++)
        if ((r = check_predictor(m, l, e)) < 0)
            goto fail;
    if (n_found != g->n_tensors) {
        r = name_unknown(m, e);
        goto fail;
    }
    *out = m;
    return 0;
fail:
    model_close(m);
    return r;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    free(m->layer);
    free(m);
}
