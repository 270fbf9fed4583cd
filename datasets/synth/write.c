/* The file: keys, the list of tensors, and rows made by a pool of threads while the writer asks for them, so memory
 * does not grow with the model. The header is read back as a model before anything is written. */
#include "datasets/synth/synth.h"

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/pool.h"
#include "common/base/progress.h"
#include "common/kernels/quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const struct synth_design *d;
    struct gguf_writer *w;
    struct pool *pool;
    struct synth_tensor *tensors;
    int n_tensors;
    struct progress progress;
    /* of the piece in hand */
    const struct synth_tensor *t;
    uint64_t first_row;
    uint8_t *out;
};

static void some_rows(void *ctx, int begin, int end, int worker)
{
    const struct job *j = ctx;
    (void)worker;
    synth_rows(j->d, j->t, j->first_row + (uint64_t)begin, (uint64_t)(end - begin),
               j->out + (uint64_t)begin * j->t->row_bytes);
}

static int fill(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *e)
{
    struct job *j = ctx;
    (void)e;
    j->t = &j->tensors[tensor];
    j->first_row = offset / j->t->row_bytes;
    j->out = buf;
    int rows = (int)(len / j->t->row_bytes), grain = (int)((64u << 10) / j->t->row_bytes) + 1;
    pool_for(j->pool, rows, grain, some_rows, j);
    progress_add(&j->progress, len);
    return 0;
}

/* --- tensors ------------------------------------------------------------------------------- */

/* Gated delta nets: the 27B's heads, fewer where the model is narrow. */
enum { CONV = 4, DELTA_DIM = 128 };
static int delta_heads(const struct synth_shape *s)
{
    return (s->d_model + 319) / 320;
}

static struct model_hparams hparams(const struct synth_design *d)
{
    const struct synth_shape *s = &d->ask.shape;
    return (struct model_hparams){ .n_layers = s->n_layers, .d_model = s->d_model, .n_heads = s->n_heads,
                                   .n_kv_heads = s->n_kv_heads, .head_dim = d->head_dim, .n_ff = s->n_ff,
                                   .n_vocab = s->n_vocab, .n_experts = s->n_experts, .qkv_bias = s->arch == SYNTH_GLM4MOE,
                                   .ffn_norm_named_post = s->arch == SYNTH_GLM4MOE || s->arch == SYNTH_QWEN35,
                                   .out_gate = s->arch == SYNTH_QWEN35, .conv_width = s->arch == SYNTH_QWEN35 ? CONV : 0,
                                   .full_period = s->arch == SYNTH_QWEN35 ? SYNTH_FULL : 0, .delta_tiled = 1, .delta_dim = DELTA_DIM,
                                   .delta_k_heads = delta_heads(s), .delta_v_heads = 3 * delta_heads(s),
                                   .qk_norm = s->arch == SYNTH_QWEN3MOE || s->arch == SYNTH_QWEN35 ? MODEL_QK_NORM_HEAD
                                                                                                   : MODEL_QK_NORM_NONE };
}

/* Of a layer or, -1, of the model; of the layer for multi-token prediction, and of the model as it sees it. It shares the model's
 * head where both are the same. */
static struct model_hparams hparams_at(const struct synth_design *d, int layer)
{
    struct model_hparams h = hparams(d);
    if (layer >= d->ask.shape.n_layers) {
        h.mtp = h.n_layers;
        h.n_layers = 1;
        h.full_period = 0;
        h.tied_output = d->ask.nextn_agree >= d->ask.agree && d->ask.nextn_agree <= d->ask.agree;
    }
    return h;
}

/* Tensor of a role into *out; 0: not in this model. */
static int tensor_of(const struct synth_design *d, enum model_role role, int layer, struct synth_tensor *out)
{
    int more;
    struct synth_tensor t = { .role = role, .layer = layer, .type = synth_type_of(&d->ask, role, layer, &more) };
    struct model_hparams h = hparams_at(d, layer);
    if (model_role_at(&h, role, layer >= 0 && h.mtp ? 0 : layer) != MODEL_REQUIRED)
        return 0;
    t.n_dims = model_tensor_shape(&h, role, t.dims);
    t.row_bytes = quant_row_bytes(t.type, t.dims[0]);
    t.bytes = t.row_bytes * t.dims[1] * t.dims[2];
    *out = t;
    return 1;
}

static int trunk_layers(const struct synth_design *d)
{
    return d->ask.nextn_only ? 0 : d->ask.shape.n_layers;
}

uint64_t synth_file_bytes(const struct synth_design *d)
{
    struct synth_tensor t;
    uint64_t sum = 0;
    for (int role = 0; role < MODEL_ROLES; role++)
        for (int l = 0, n = model_role_is_per_layer((enum model_role)role) ? trunk_layers(d) : 1; l < n; l++)
            if (tensor_of(d, (enum model_role)role, l, &t))
                sum += t.bytes;
    for (int role = 0; role < MODEL_ROLES && d->ask.nextn; role++)
        if (tensor_of(d, (enum model_role)role, d->ask.shape.n_layers, &t))
            sum += t.bytes;
    return sum;
}

static int add(struct job *j, enum model_role role, int layer, struct err *e)
{
    struct model_hparams h = hparams_at(j->d, layer);
    struct synth_tensor *t = &j->tensors[j->n_tensors];
    char name[64];
    if (!tensor_of(j->d, role, layer, t))
        return 0;
    if (model_tensor_name(&h, role, h.mtp ? 0 : layer, name, sizeof name) < 0)
        return err_set(e, ERR_UNSUPPORTED, "%s has no name", model_role_name(role));
    j->n_tensors++;
    return gguf_writer_tensor(j->w, name, t->type, t->n_dims, t->dims, e);
}

/* In the order in which a forward pass reads them. */
static int add_tensors(struct job *j, struct err *e)
{
    int layers = j->d->ask.shape.n_layers, r;
    if (!(j->tensors = malloc((size_t)(layers + 2) * MODEL_ROLES * sizeof *j->tensors)))
        return err_set(e, ERR_NOMEM, "%d layers", layers);
    r = add(j, MODEL_TOKEN_EMBD, -1, e);
    for (int l = 0; l < trunk_layers(j->d); l++)
        for (int role = 0; r == 0 && role < MODEL_ROLES; role++)
            if (model_role_is_per_layer((enum model_role)role))
                r = add(j, (enum model_role)role, l, e);
    if (r == 0 && (r = add(j, MODEL_OUTPUT_NORM, -1, e)) == 0)
        r = add(j, MODEL_OUTPUT, -1, e);
    for (int role = 0; r == 0 && role < MODEL_ROLES && j->d->ask.nextn; role++)
        r = add(j, (enum model_role)role, layers, e);
    return r;
}

/* --- keys ---------------------------------------------------------------------------------- */

static const char *arch_of(const struct synth_design *d)
{
    return synth_archs[d->ask.shape.arch];
}

static const char *arch_key(const struct synth_design *d, const char *name, char key[96])
{
    snprintf(key, 96, "%s.%s", arch_of(d), name);
    return key;
}

/* Of the pairs that rotate: height, width and time of a picture, which text does not tell apart. */
static int put_sections(struct gguf_writer *w, const struct synth_design *d, struct err *e)
{
    uint8_t sections[16] = { 0 };
    char key[96];
    for (int i = 0, left = d->head_dim / 8; i < 3; left -= left / (3 - i), i++)
        bytes_put32(sections + 4 * i, (uint32_t)(left / (3 - i)));
    const char *name = arch_key(d, "rope.dimension_sections", key);
    const struct gguf_key k = { name, GGUF_ARRAY, GGUF_I32, 4, sections, sizeof sections };
    return gguf_writer_kv_raw(w, &k, e);
}

static int put_numbers(struct gguf_writer *w, const struct synth_design *d, struct err *e)
{
    const struct synth_shape *s = &d->ask.shape;
    int small = s->arch == SYNTH_SMALLTHINKER, qwen = s->arch == SYNTH_QWEN3MOE, glm = s->arch == SYNTH_GLM4MOE;
    int delta = s->arch == SYNTH_QWEN35, k_heads = delta_heads(s);
    const struct { const char *key; int value, there; } numbers[] = {
        { "block_count", s->n_layers + d->ask.nextn, 1 },
        { "nextn_predict_layers", d->ask.nextn, d->ask.nextn },
        { "context_length", s->n_ctx, 1 },
        { "embedding_length", s->d_model, 1 },
        { "feed_forward_length", qwen ? 8 * s->n_ff : s->n_ff, 1 }, /* qwen's is of a FFN that no layer has */
        { "attention.head_count", s->n_heads, 1 },
        { "attention.head_count_kv", s->n_kv_heads, 1 },
        { "attention.key_length", d->head_dim, s->head_dim > 0 },
        { "attention.value_length", d->head_dim, s->head_dim > 0 },
        { "rope.dimension_count", delta ? d->head_dim / 4 : d->head_dim, !qwen },
        { "ssm.conv_kernel", CONV, delta },
        { "ssm.state_size", DELTA_DIM, delta },
        { "ssm.group_count", k_heads, delta },
        { "ssm.time_step_rank", 3 * k_heads, delta },
        { "ssm.inner_size", 3 * k_heads * DELTA_DIM, delta },
        { "full_attention_interval", SYNTH_FULL, delta },
        { "vocab_size", s->n_vocab, !qwen },
        { "expert_count", s->n_experts, s->n_experts > 0 },
        { "expert_used_count", s->n_experts_used, s->n_experts > 0 },
        { "expert_feed_forward_length", s->n_ff, small || qwen || glm },
        { "expert_gating_func", d->ask.router == MODEL_ROUTER_SIGMOID_TOPK && !glm ? 2 : 1, small || glm },
        { "expert_shared_count", 0, glm },
        { "leading_dense_block_count", 0, glm },
    };
    char key[96];
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].there)
            r = gguf_writer_u32(w, arch_key(d, numbers[i].key, key), (uint32_t)numbers[i].value, e);
    if (r == 0 && delta)
        r = put_sections(w, d, e);
    if (r == 0 && glm)
        r = gguf_writer_bool(w, arch_key(d, "expert_weights_norm", key), 1, e);
    if (r < 0 || (r = gguf_writer_f32(w, arch_key(d, "rope.freq_base", key), (float)s->rope_base, e)) < 0)
        return r;
    return gguf_writer_f32(w, arch_key(d, "attention.layer_norm_rms_epsilon", key), qwen || delta ? 1e-6f : 1e-5f, e);
}

static int put_keys(struct gguf_writer *w, const struct synth_design *d, struct err *e)
{
    static const char *const acts[MODEL_ACTS] = { "silu", "relu", "drelu" };
    const struct synth_setting *s = &d->ask.setting;
    char text[400], key[96];
    int r;
    snprintf(text, sizeof text, "synthetic %s, %s", d->ask.shape.name, s->name);
    if ((r = gguf_writer_str(w, "general.architecture", arch_of(d), e)) < 0 ||
        (r = gguf_writer_str(w, "general.name", text, e)) < 0)
        return r;
    snprintf(text, sizeof text, "gguf-synth: rate %g, skew %g, layer spread %g, memory %g at %g and %g at %g tokens, "
             "route memory %g, route skew %g, noise %g, layer share %g, seed %" PRIu64, s->rate, s->skew, s->layer_spread,
             s->memory[0].share, s->memory[0].period, s->memory[1].share, s->memory[1].period, s->route_memory, s->route_skew, s->noise,
             s->layer_share, d->ask.seed);
    if ((r = gguf_writer_str(w, "general.description", text, e)) < 0 ||
        (r = gguf_writer_u32(w, "general.file_type",
                             d->ask.type == SYNTH_Q4_K_M ? 15 : d->ask.type == QUANT_Q4_0 ? 2 : d->ask.type == QUANT_Q8_0 ? 7 : 1,
                             e)) < 0 ||
        (r = gguf_writer_u32(w, "general.quantization_version", 2, e)) < 0 || (r = put_numbers(w, d, e)) < 0 ||
        (d->ask.shape.arch != SYNTH_QWEN3MOE && d->ask.shape.arch != SYNTH_QWEN35 &&
         (r = gguf_writer_str(w, arch_key(d, "hidden_act", key), acts[d->ask.act], e)) < 0))
        return r;
    return synth_vocab(w, d->ask.shape.n_vocab, d->ask.pre, e);
}

/* --- the file ------------------------------------------------------------------------------ */

/* The header must be read back as a model; where its data would end does not matter here. */
static int check_header(const struct job *j, const char *path, size_t *header_bytes, struct err *e)
{
    uint8_t *head;
    struct gguf *g = NULL;
    struct model *model;
    int r = gguf_writer_blob(j->w, &head, header_bytes, e);
    if (r < 0)
        return r;
    const struct model_given given = { .act = -1, .mtp = j->d->ask.nextn_only };
    if ((r = gguf_parse(head, *header_bytes, UINT64_MAX, path, &g, e)) == 0 && (r = model_open(g, &given, &model, e)) == 0)
        model_close(model);
    gguf_close(g);
    free(head);
    return r;
}

int synth_write(const struct synth_design *d, const char *path, int threads, struct synth_result *out, struct err *e)
{
    struct job j = { .d = d };
    size_t header;
    int64_t start = progress_now_ns();
    uint64_t bytes = synth_file_bytes(d);
    int r = gguf_writer_new(&j.w, e);
    if (r < 0)
        return r;
    if ((r = put_keys(j.w, d, e)) == 0 && (r = add_tensors(&j, e)) == 0 &&
        (r = check_header(&j, path, &header, e)) == 0 &&
        (r = file_enough_space(path, bytes + header + 32 * (uint64_t)j.n_tensors, e)) == 0 &&
        (r = pool_new(threads, NULL, &j.pool, e)) == 0) {
        file_catch_interrupt();
        progress_init(&j.progress, "writing", "B", bytes);
        r = gguf_writer_save(j.w, path, fill, &j, e);
        progress_done(&j.progress);
    }
    pool_free(j.pool);
    gguf_writer_free(j.w);
    free(j.tensors);
    if (r == 0)
        *out = (struct synth_result){ bytes, (double)(progress_now_ns() - start) / 1e9 };
    return r;
}
