#ifndef TESTS_PACK_SAMPLE_H
#define TESTS_PACK_SAMPLE_H

/* A tiny packed model made through the packer's own writer: 2 layers, width 32, 24 neurons, ReLU. */
#include "common/kernels/quant.h"
#include "common/model/gguf.h"
#include "common/model/model.h"
#include "common/pack/pack.h"
#include "common/pack/unit_check.h"
#include "packer/neurons.h"
#include "packer/write.h"
#include "tests/test.h"
#include "tests/layout_sample.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLE_LAYERS = 2, SAMPLE_D = 32, SAMPLE_FF = 24, SAMPLE_VOCAB = 3 };

static inline float sample_weight(int layer, int role, int row, int col)
{
    return (float)(((layer * 7 + role * 5 + row * 3 + col) % 31) - 15) / 16.0f;
}

static inline uint8_t *sample_meta(struct model_hparams *h, size_t *len, struct err *e)
{
    static const char tokens[] = "\5\0\0\0\0\0\0\0<unk>\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b";
    static const float scores[3] = { 0, -1, -2 };
    static const int32_t types[3] = { 2, 1, 1 };
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    uint8_t *plain = NULL, *blob = NULL;
    const struct gguf_key t = { .name = "tokenizer.ggml.tokens", .type = GGUF_ARRAY, .elem_type = GGUF_STRING, .n = 3,
                                .data = tokens, .data_len = sizeof tokens - 1 };
    const struct gguf_key s = { .name = "tokenizer.ggml.scores", .type = GGUF_ARRAY, .elem_type = GGUF_F32, .n = 3,
                                .data = scores, .data_len = sizeof scores };
    const struct gguf_key y = { .name = "tokenizer.ggml.token_type", .type = GGUF_ARRAY, .elem_type = GGUF_I32, .n = 3,
                                .data = types, .data_len = sizeof types };
    int ok = !gguf_writer_new(&w, e) && !gguf_writer_str(w, "general.architecture", "llama", e) &&
             !gguf_writer_str(w, "general.name", "sample", e) &&
             !gguf_writer_u32(w, "llama.block_count", SAMPLE_LAYERS, e) &&
             !gguf_writer_u32(w, "llama.embedding_length", SAMPLE_D, e) &&
             !gguf_writer_u32(w, "llama.feed_forward_length", SAMPLE_FF, e) &&
             !gguf_writer_u32(w, "llama.attention.head_count", 2, e) &&
             !gguf_writer_u32(w, "llama.attention.head_count_kv", 1, e) &&
             !gguf_writer_u32(w, "llama.context_length", 64, e) &&
             !gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f, e) &&
             !gguf_writer_str(w, "llama.hidden_act", "relu", e) &&
             !gguf_writer_bool(w, "thermocline.tied_output", 1, e) &&
             !gguf_writer_str(w, "tokenizer.ggml.model", "llama", e) && !gguf_writer_kv_raw(w, &t, e) &&
             !gguf_writer_kv_raw(w, &s, e) && !gguf_writer_kv_raw(w, &y, e) &&
             !gguf_writer_blob(w, &plain, len, e) && !gguf_parse(plain, *len, *len, "sample", &g, e) &&
             !model_hparams_read(g, NULL, h, e) && !model_meta_blob(g, h, NULL, &blob, len, e);
    CHECK_MSG(ok, "%s", e->msg);
    gguf_close(g);
    gguf_writer_free(w);
    free(plain);
    return blob;
}

static inline int sample_dense(struct writer *w, enum model_role role, int layer, uint64_t d0, uint64_t d1,
                               int zstd, struct err *e)
{
    float data[SAMPLE_D * SAMPLE_D * 2];
    struct write_entry t = { .kind = PACK_DENSE, .codec = zstd ? PACK_ZSTD : PACK_RAW, .role = role, .type = QUANT_F32,
                             .layer = layer < 0 ? PACK_NONE : (uint32_t)layer, .block = PACK_NONE, .segment = PACK_NONE,
                             .n_dims = d1 > 1 ? 2 : 1, .dims = { d0, d1, 1, 1 } };
    for (uint64_t i = 0; i < d0 * d1; i++)
        data[i] = sample_weight(layer, (int)role, (int)(i / d0), (int)(i % d0));
    return write_section(w, &t, data, (size_t)(d0 * d1) * 4, e);
}

static inline int sample_all_dense(struct writer *w, struct err *e)
{
    int r = sample_dense(w, MODEL_TOKEN_EMBD, -1, SAMPLE_D, SAMPLE_VOCAB, 1, e) |
            sample_dense(w, MODEL_OUTPUT_NORM, -1, SAMPLE_D, 1, 0, e);
    for (int l = 0; l < SAMPLE_LAYERS; l++)
        r |= sample_dense(w, MODEL_ATTN_NORM, l, SAMPLE_D, 1, 0, e) |
             sample_dense(w, MODEL_ATTN_Q, l, SAMPLE_D, SAMPLE_D, 1, e) |
             sample_dense(w, MODEL_ATTN_K, l, SAMPLE_D, SAMPLE_D / 2, 0, e) |
             sample_dense(w, MODEL_ATTN_V, l, SAMPLE_D, SAMPLE_D / 2, 0, e) |
             sample_dense(w, MODEL_ATTN_OUTPUT, l, SAMPLE_D, SAMPLE_D, 0, e) |
             sample_dense(w, MODEL_FFN_NORM, l, SAMPLE_D, 1, 0, e);
    return r;
}

static inline int sample_types(struct writer *w, const struct write_entry *t, const struct layout *l, struct err *e)
{
    uint32_t type[MODEL_MAX_LAYERS][LAYOUT_ROLES];
    for (int i = 0; i < l->n_layers; i++)
        memcpy(type[i], l->type[l->kind[i]], sizeof type[i]);
    return write_section(w, t, type, (size_t)l->n_layers * sizeof *type, e); /* the tests run on little-endian hosts */
}

/* order reverses the neurons. */
static inline int sample_neurons(struct writer *w, const struct layout_shapes *shapes, const uint32_t *order,
                                 uint64_t *checks, uint32_t *unit_checks, uint64_t identity, struct err *e)
{
    static float gate[SAMPLE_FF * SAMPLE_D], up[SAMPLE_FF * SAMPLE_D], down[SAMPLE_D * SAMPLE_FF];
    struct neurons_loss loss = { 0 };
    struct neurons *n = NULL;
    struct pool *pool = NULL;
    int r = pool_new(1, NULL, &pool, e);
    if (r == 0)
        r = neurons_new(shapes, SAMPLE_D, 1, pool, &n, e);
    for (int l = 0; l < SAMPLE_LAYERS && r == 0; l++) {
        const struct layout_shape *s = layout_of(shapes, l);
        for (int i = 0; i < SAMPLE_FF; i++)
            for (int c = 0; c < SAMPLE_D; c++) {
                gate[i * SAMPLE_D + c] = sample_weight(l, MODEL_FFN_GATE, i, c);
                up[i * SAMPLE_D + c] = sample_weight(l, MODEL_FFN_UP, i, c);
                down[c * SAMPLE_FF + i] = sample_weight(l, MODEL_FFN_DOWN, c, i);
            }
        struct neurons_in in = { (uint8_t *)gate, (uint8_t *)up, (uint8_t *)down, QUANT_F32, QUANT_F32, QUANT_F32, s,
                                 SAMPLE_D, SAMPLE_FF, order, 0, NULL };
        uint64_t base[LAYOUT_MAX_PARTS];
        uint32_t index[LAYOUT_MAX_PARTS];
        struct hash *h[LAYOUT_MAX_PARTS] = { 0 };
        for (int i = 0; i < s->n_segments; i++) {
            struct write_entry t = { .kind = PACK_CLUSTERS, .layer = (uint32_t)l, .segment = (uint32_t)i };
            r |= write_reserve(w, &t, s->segment_bytes[i], &index[i], &base[i], e);
            h[i] = hash_new();
        }
        for (uint32_t a = 0; a < SAMPLE_FF && r == 0; a += neurons_panel(n)) {
            uint32_t b = a + neurons_panel(n) < SAMPLE_FF ? a + neurons_panel(n) : SAMPLE_FF;
            struct neurons_out out;
            const struct neurons_checks k = { checks + (size_t)l * (size_t)s->n_parts * s->n_clusters,
                                              unit_checks + unit_check_before(shapes, 1, l), identity, (uint64_t)l };
            r = neurons_build(n, &in, a, b, &out, &k, &loss, e);
            for (int i = 0; i < s->n_segments && r == 0; i++) {
                r = write_at(w, base[i] + out.offset[i], out.data[i], out.len[i], e);
                hash_update(h[i], out.data[i], out.len[i]);
            }
        }
        for (int i = 0; i < s->n_segments; i++) {
            write_set_checksum(w, index[i], hash_final64(h[i]));
            hash_free(h[i]);
        }
    }
    neurons_free(n);
    pool_free(pool);
    return r;
}

/* A predictor of layer 1, block 0, input ffn, in F32; what it weighs is sample_weight of roles 40 to 42. */
enum { SAMPLE_RANK = 8, SAMPLE_POINTS = 2 };

static inline int sample_predictor(struct writer *w, const uint32_t *order, struct err *e)
{
    static uint8_t mem[16384];
    struct pack_predictor x = { .layer = 1,
                                .rank = SAMPLE_RANK,
                                .has_bias = 1,
                                .n_points = SAMPLE_POINTS,
                                .type1 = QUANT_F32,
                                .type2 = QUANT_F32 };
    int r = pack_predictor_derive(&x, SAMPLE_D, SAMPLE_FF, e);
    if (r < 0 || x.bytes > sizeof mem)
        return ERR_LIMIT;
    memset(mem, 0, sizeof mem);
    const float head[5] = { 0.99f, -0.5f, 0.25f, 0.5f, 0.125f }, point[4] = { 0.5f, 1, 0.0625f, 1 };
    memcpy(mem, head, sizeof head);
    memcpy(mem + x.curve_offset, point, sizeof point);
    memcpy(mem + x.curve_offset + 16, head, 16);
    float *fc1 = (float *)(void *)(mem + x.fc1_offset), *fc2 = (float *)(void *)(mem + x.fc2_offset);
    float *bias = (float *)(void *)(mem + x.bias_offset);
    for (int i = 0; i < SAMPLE_RANK * SAMPLE_D; i++)
        fc1[i] = sample_weight(1, 40, i / SAMPLE_D, i % SAMPLE_D);
    for (int p = 0; p < SAMPLE_FF; p++) {
        for (int k = 0; k < SAMPLE_RANK; k++)
            fc2[p * SAMPLE_RANK + k] = sample_weight(1, 41, (int)order[p], k);
        bias[p] = sample_weight(1, 42, (int)order[p], 0);
    }
    const struct write_entry t = { .kind = PACK_PREDICTOR,
                                   .role = PREDICT_FFN,
                                   .type = QUANT_F32,
                                   .layer = 1,
                                   .block = 0,
                                   .segment = QUANT_F32,
                                   .n_dims = 3,
                                   .dims = { SAMPLE_D, SAMPLE_RANK, SAMPLE_FF,
                                             PACK_PREDICTOR_BIAS | SAMPLE_POINTS
                                                                       << PACK_PREDICTOR_POINTS_SHIFT } };
    return write_section(w, &t, mem, x.bytes, e);
}

/* Odd layers have another type of Down. */
static inline int sample_pack_mixed(const char *path, enum layout_form form, int packed, uint32_t down_type, uint32_t odd_type,
                                    struct err *e)
{
    struct write_facts f = { 0 };
    struct writer *w = NULL;
    struct layout l = { .form = form, .packed = packed, .block_bytes = 512, .cluster_neurons = 16,
                        .n_kinds = 1, .type = { { QUANT_F32, QUANT_F32, down_type } } };
    size_t len = 0;
    uint8_t *meta = sample_meta(&f.h, &len, e);
    uint32_t orders[SAMPLE_LAYERS * SAMPLE_FF];
    uint64_t checks[SAMPLE_LAYERS * LAYOUT_MAX_PARTS * 2] = { 0 };
    uint32_t unit_checks[SAMPLE_LAYERS * LAYOUT_MAX_PARTS * SAMPLE_FF] = { 0 };
    const struct write_entry none = { .layer = PACK_NONE, .block = PACK_NONE, .segment = PACK_NONE };
    struct write_entry t = none;
    for (uint32_t i = 0; i < SAMPLE_LAYERS * SAMPLE_FF; i++)
        orders[i] = SAMPLE_FF - 1 - i % SAMPLE_FF;
    const uint32_t odd[LAYOUT_ROLES] = { QUANT_F32, QUANT_F32, odd_type };
    int r = layout_alternate(&l, odd, SAMPLE_LAYERS, e);
    if (r == 0)
        r = layout_derive(&l, SAMPLE_D, SAMPLE_FF, &f.shapes, e);
    f.model_hash = (struct hash128){ 1, 2 };
    f.order_hash = layout_order_hash(orders, SAMPLE_LAYERS, 1, SAMPLE_FF);
    f.layout_hash = layout_hash(&l);
    f.vocab_text_bytes = 7;
    f.identity = 0x1234567890abcdef;
    if (r == 0)
        r = write_open(path, &f, 40, &w, e);
    t.kind = PACK_META;
    t.codec = PACK_ZSTD;
    if (r == 0)
        r = write_section(w, &t, meta, len, e);
    t = none;
    t.kind = PACK_TYPES;
    if (r == 0 && l.n_kinds > 1)
        r = sample_types(w, &t, &l, e);
    if (r == 0)
        r = sample_all_dense(w, e);
    t = none;
    t.kind = PACK_ORDER;
    if (r == 0)
        r = write_section(w, &t, orders, sizeof orders, e); /* the tests run on little-endian hosts */
    if (r == 0)
        r = sample_predictor(w, orders, e);
    if (r == 0)
        r = sample_neurons(w, &f.shapes, orders, checks, unit_checks, f.identity, e);
    t.kind = PACK_CHECKS;
    if (r == 0)
        r = write_section(w, &t, checks, (size_t)SAMPLE_LAYERS * (size_t)f.shapes.n_parts * f.shapes.n_clusters * 8, e);
    t.kind = PACK_UNIT_CHECKS;
    if (r == 0)
        r = write_section(w, &t, unit_checks, unit_check_before(&f.shapes, 1, SAMPLE_LAYERS) * 4, e);
    t.kind = PACK_PROVENANCE;
    if (r == 0)
        r = write_section(w, &t, "{\"tool\":\"test\"}", 15, e);
    free(meta);
    if (r < 0) {
        write_abort(w);
        return r;
    }
    return write_commit(w, NULL, e);
}

static inline int sample_pack(const char *path, enum layout_form form, int packed, uint32_t down_type, struct err *e)
{
    return sample_pack_mixed(path, form, packed, down_type, down_type, e);
}

#endif
