#ifndef TESTS_ENGINE_SAMPLE_H
#define TESTS_ENGINE_SAMPLE_H

/* Small packed models of any layout, type, activation and number of experts, with pseudo-random weights, made by the
 * packer's own writer; and the logits of such a model computed naively in double from the same
 * weights, straight from the definitions in common/model/nn.h. */
#include "common/base/bytes.h"
#include "common/kernels/quant.h"
#include "common/model/gguf.h"
#include "common/model/model.h"
#include "common/pack/pack.h"
#include "common/pack/unit_check.h"
#include "packer/neurons.h"
#include "packer/write.h"
#include "tests/layout_sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <float.h>
#include <string.h>

#ifndef ES_DIM /* of a head; a test of a KV cache in blocks wants 32 */
#define ES_DIM 16
#endif
enum { ES_LAYERS = 3, ES_D = 64, ES_HEADS = ES_D / ES_DIM, ES_KV = ES_HEADS / 2, ES_VOCAB = 40, ES_CTX = 64, ES_SEQ = 24,
       ES_RANK = 256 }; /* of predictors, at most; the naive pass takes up to ES_D */

struct engine_sample {
    enum layout_form form;
    int packed;
    uint32_t types[LAYOUT_ROLES], cluster, block;
    int mixed;               /* odd layers have these types: */
    uint32_t odd_types[LAYOUT_ROLES];
    enum model_act act;
    int n_ff, experts, used;
    int small;                 /* smallthinker: early routers, half-split rotation, none in layer 0, a window in the others */
    enum model_router router;  /* its function; 0 as for llama */
    int window;                /* 0: none, and rotation everywhere */
    int rank;                  /* of predictors from every input, of every layer and block; 0: none */
    uint32_t predictor_type;
    int thresholds;            /* 1: of every neuron (silu); THRESHOLDS_BAD: the last layer has one that is no number */
    int picks;                 /* their fc1 picks inputs; PICKS_BEYOND: the last row of each picks one that is not there */
};
enum { PICKS_BEYOND = 2, THRESHOLDS_BAD = 2 };

/* What the naive pass of a predicted mode skips. */
struct es_predict {
    int input[ES_LAYERS], always[ES_LAYERS]; /* input -1: nothing */
    double threshold;
    double closest;            /* of any score to the threshold: how far rounding is from mattering */
    int predicted, neurons;
};

enum { ES_FC1 = 60, ES_FC2 = 70, ES_BIAS = 80 }; /* roles of predictors' weights, plus their input */

static uint32_t es_salt; /* other numbers, other weights */

static inline float es_weight(int layer, int block, int role, int row, int col)
{
    uint32_t x =
        (uint32_t)(layer + 2) * 2654435761u ^ (uint32_t)(role + 1) * 40503u ^ (uint32_t)(block * 977 + 5) * 69069u;
    x ^= es_salt * 747796405u ^ ((uint32_t)row * 2246822519u + (uint32_t)col * 3266489917u);
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
    float scale = role == MODEL_TOKEN_EMBD ? 1.0f : 0.22f;
    return ((float)(x >> 8) / 8388608.0f - 1.0f) * scale;
}

static inline float es_norm(int layer, int role, int i)
{
    return 1.0f + 0.3f * es_weight(layer, 9, role, 0, i);
}

static inline float es_threshold(int layer, int i)
{
    return 0.05f + fabsf(es_weight(layer, 0, MODEL_FFN_THRESHOLD, 0, i));
}

static inline uint32_t es_order(int layer, int block, int n_ff, int pos) /* a permutation */
{
    return (uint32_t)((pos * 7 + layer * 3 + block) % n_ff); /* n_ff is no multiple of 7 */
}

/* Down of tiles has quant blocks along n_ff: [layer][block][ES_D][n_ff], as es_naive needs it. */
static float *es_tiles;

static inline void es_source_row(const struct engine_sample *s, int layer, int block, int role, int row, uint8_t *out)
{
    static float raw[8192];
    const struct quant_traits *t = quant_traits(layer % 2 && s->mixed ? s->odd_types[role] : s->types[role]);
    int n = role == LAYOUT_DOWN ? s->n_ff : ES_D;
    int model_role = role == LAYOUT_GATE ? MODEL_FFN_GATE : role == LAYOUT_UP ? MODEL_FFN_UP : MODEL_FFN_DOWN;
    for (int c = 0; c < n; c++)
        raw[c] = es_weight(layer, block, model_role, row, c);
    t->quant(out, raw, (size_t)n);
}

static inline void es_make_tiles(const struct engine_sample *s)
{
    int blocks = s->experts ? s->experts : 1;
    uint8_t *row = malloc((size_t)s->n_ff * 4);
    free(es_tiles);
    es_tiles = malloc((size_t)(ES_LAYERS * blocks * ES_D) * (size_t)s->n_ff * sizeof *es_tiles);
    for (int i = 0; i < ES_LAYERS * blocks * ES_D; i++) {
        int l = i / ES_D / blocks;
        es_source_row(s, l, i / ES_D % blocks, LAYOUT_DOWN, i % ES_D, row);
        quant_traits(l % 2 && s->mixed ? s->odd_types[LAYOUT_DOWN] : s->types[LAYOUT_DOWN])->dequant(es_tiles + (size_t)i * (size_t)s->n_ff,
                                                                                                    row, (size_t)s->n_ff);
    }
    free(row);
}

/* Row of a role as the pack stores it: Down's rows are the neuron's columns. */
static inline void es_row(const struct engine_sample *s, int layer, int block, int role, int neuron, float *out)
{
    float raw[ES_D];
    uint8_t bytes[ES_D * 4];
    const struct quant_traits *t = quant_traits(layer % 2 && s->mixed ? s->odd_types[role] : s->types[role]);
    size_t n_ff = (size_t)s->n_ff, ffn = (size_t)(layer * (s->experts ? s->experts : 1) + block);
    for (size_t c = 0; c < ES_D && s->form == LAYOUT_TILES && role == LAYOUT_DOWN; c++)
        out[c] = es_tiles[(ffn * ES_D + c) * n_ff + (size_t)neuron];
    if (s->form == LAYOUT_TILES && role == LAYOUT_DOWN)
        return;
    for (int c = 0; c < ES_D; c++)
        raw[c] = role == LAYOUT_DOWN
                     ? es_weight(layer, block, MODEL_FFN_DOWN, c, neuron)
                     : es_weight(layer, block, role == LAYOUT_GATE ? MODEL_FFN_GATE : MODEL_FFN_UP, neuron, c);
    t->quant(bytes, raw, ES_D);
    t->dequant(out, bytes, ES_D);
}

/* ---- the pack ---- */

static inline uint8_t *es_meta(const struct engine_sample *s, struct model_hparams *h, size_t *len, struct err *e)
{
    const struct { const char *key; uint32_t value; } numbers[] = {
        { "block_count", ES_LAYERS }, { "embedding_length", ES_D }, { "feed_forward_length", (uint32_t)s->n_ff },
        { "attention.head_count", ES_HEADS }, { "attention.head_count_kv", ES_KV }, { "context_length", ES_CTX },
        { "expert_count", (uint32_t)s->experts }, { "expert_used_count", (uint32_t)s->used },
        { "expert_gating_func", s->router == MODEL_ROUTER_SIGMOID_TOPK ? 2 : s->router == MODEL_ROUTER_SOFTMAX_TOPK },
        { "attention.sliding_window", (uint32_t)s->window },
    };
    const char *arch = s->small ? "smallthinker" : "llama";
    char key[64];
    static char tokens[ES_VOCAB * 16];
    static float scores[ES_VOCAB];
    static int32_t types[ES_VOCAB];
    size_t n = 0;
    for (int i = 0; i < ES_VOCAB; i++) {
        uint64_t k = i == 0 ? 5 : i == 1 ? 3 : i == 2 ? 4 : 1; /* <unk> <s> </s> a b c ..., of JSON what it needs */
        memcpy(tokens + n, &k, 8);
        memcpy(tokens + n + 8,
               i == 0   ? "<unk>"
               : i == 1 ? "<s>"
               : i == 2 ? "</s>"
                        : &"abcdefghijklmnopqrstuvwxy{}[]\":,01234"[i - 3],
               k);
        n += 8 + k;
        scores[i] = -(float)i;
        types[i] = i == 0 ? 2 : i < 3 ? 3 : 1;
    }
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    uint8_t *plain = NULL, *blob = NULL;
    const struct gguf_key t = { .name = "tokenizer.ggml.tokens",
                                .type = GGUF_ARRAY,
                                .elem_type = GGUF_STRING,
                                .n = ES_VOCAB,
                                .data = tokens,
                                .data_len = n };
    const struct gguf_key sc = { .name = "tokenizer.ggml.scores",
                                 .type = GGUF_ARRAY,
                                 .elem_type = GGUF_F32,
                                 .n = ES_VOCAB,
                                 .data = scores,
                                 .data_len = sizeof scores };
    const struct gguf_key ty = { .name = "tokenizer.ggml.token_type",
                                 .type = GGUF_ARRAY,
                                 .elem_type = GGUF_I32,
                                 .n = ES_VOCAB,
                                 .data = types,
                                 .data_len = sizeof types };
    int ok = !gguf_writer_new(&w, e) && !gguf_writer_str(w, "general.architecture", arch, e) &&
             !gguf_writer_str(w, "general.name", "sample", e) &&
             !gguf_writer_str(w, "thermocline.hidden_act", model_act_name(s->act), e) &&
             !gguf_writer_bool(w, "thermocline.tied_output", 1, e) &&
             !gguf_writer_str(w, "tokenizer.ggml.model", "llama", e) &&
             !gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1, e) &&
             !gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2, e) && !gguf_writer_kv_raw(w, &t, e) &&
             !gguf_writer_kv_raw(w, &sc, e) && !gguf_writer_kv_raw(w, &ty, e);
    ok = ok && (!s->thresholds || !gguf_writer_bool(w, "thermocline.thresholds", 1, e));
    for (size_t i = 0; ok && i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, numbers[i].key);
        ok = !numbers[i].value || !gguf_writer_u32(w, key, numbers[i].value, e);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    ok = ok && !gguf_writer_f32(w, key, 1e-5f, e);
    ok = ok && !gguf_writer_blob(w, &plain, len, e) && !gguf_parse(plain, *len, *len, "sample", &g, e) &&
         !model_hparams_read(g, NULL, h, e) && !model_meta_blob(g, h, NULL, &blob, len, e);
    gguf_close(g);
    gguf_writer_free(w);
    free(plain);
    return ok ? blob : NULL;
}

static inline int es_dense(struct writer *w, enum model_role role, int layer, uint64_t d0, uint64_t d1, struct err *e)
{
    static float data[ES_D * ES_D * 2];
    struct write_entry t = { .kind = PACK_DENSE,
                             .codec = d1 > 1 && layer % 2 ? PACK_ZSTD : PACK_RAW,
                             .role = role,
                             .type = QUANT_F32,
                             .layer = layer < 0 ? PACK_NONE : (uint32_t)layer,
                             .block = PACK_NONE,
                             .segment = PACK_NONE,
                             .n_dims = d1 > 1 ? 2 : 1,
                             .dims = { d0, d1, 1, 1 } };
    for (uint64_t i = 0; i < d0 * d1; i++)
        data[i] =
            d1 > 1 ? es_weight(layer, 0, (int)role, (int)(i / d0), (int)(i % d0)) : es_norm(layer, (int)role, (int)i);
    return write_section(w, &t, data, (size_t)(d0 * d1) * 4, e);
}

static inline int es_thresholds(struct writer *w, const struct engine_sample *s, int layer, const uint32_t *order, struct err *e)
{
    const struct write_entry t = { .kind = PACK_DENSE, .role = MODEL_FFN_THRESHOLD, .type = QUANT_F32, .layer = (uint32_t)layer,
                                   .block = PACK_NONE, .segment = PACK_NONE, .n_dims = 1, .dims = { (uint64_t)s->n_ff, 1, 1, 1 } };
    float *data = malloc((size_t)s->n_ff * sizeof *data);
    for (int i = 0; i < s->n_ff; i++)
        data[i] = es_threshold(layer, (int)order[i]);
    if (s->thresholds == THRESHOLDS_BAD && layer == ES_LAYERS - 1)
        data[3] = NAN;
    int r = write_section(w, &t, data, (size_t)s->n_ff * sizeof *data, e);
    free(data);
    return r;
}

/* Tiles are made of a source that has the pack's types. */
static inline void es_source(const struct engine_sample *s, const struct layout_shape *sh, int l, int b, struct neurons_in *in)
{
    uint8_t *of[LAYOUT_ROLES];
    memcpy(of, (const void *[]){ in->gate, in->up, in->down }, sizeof of);
    for (int role = 0; role < LAYOUT_ROLES; role++) {
        int rows = role == LAYOUT_DOWN ? ES_D : s->n_ff, n = role == LAYOUT_DOWN ? s->n_ff : ES_D;
        for (int i = 0; i < rows; i++)
            es_source_row(s, l, b, role, i, of[role] + (size_t)i * quant_row_bytes(sh->type[role], (uint64_t)n));
    }
    in->gate_type = sh->type[LAYOUT_GATE];
    in->up_type = sh->type[LAYOUT_UP];
    in->down_type = sh->type[LAYOUT_DOWN];
}

static inline int es_ffn(struct writer *w, const struct engine_sample *s, const struct layout_shape *sh,
                         struct neurons *n, int l, int b, const uint32_t *order,
                         const struct neurons_checks *checks, struct err *e)
{
    struct neurons_loss loss = { 0 };
    size_t n_ff = (size_t)s->n_ff;
    float *gate = malloc(n_ff * ES_D * 4), *up = malloc(n_ff * ES_D * 4), *down = malloc(n_ff * ES_D * 4);
    for (int i = 0; i < s->n_ff; i++)
        for (int c = 0; c < ES_D; c++) {
            gate[i * ES_D + c] = es_weight(l, b, MODEL_FFN_GATE, i, c);
            up[i * ES_D + c] = es_weight(l, b, MODEL_FFN_UP, i, c);
            down[c * s->n_ff + i] = es_weight(l, b, MODEL_FFN_DOWN, c, i);
        }
    struct neurons_in in = { (uint8_t *)gate, (uint8_t *)up, (uint8_t *)down, QUANT_F32, QUANT_F32,
                             QUANT_F32, sh, ES_D, s->n_ff, order, 0, NULL };
    if (s->form == LAYOUT_TILES)
        es_source(s, sh, l, b, &in);
    uint64_t base[LAYOUT_MAX_PARTS];
    uint32_t index[LAYOUT_MAX_PARTS];
    struct hash *h[LAYOUT_MAX_PARTS] = { 0 };
    int r = 0;
    for (int i = 0; i < sh->n_segments; i++) {
        struct write_entry t = {
            .kind = PACK_CLUSTERS, .layer = (uint32_t)l, .block = (uint32_t)b, .segment = (uint32_t)i
        };
        r |= write_reserve(w, &t, sh->segment_bytes[i], &index[i], &base[i], e);
        h[i] = hash_new();
    }
    for (uint32_t a = 0; a < (uint32_t)s->n_ff && r == 0; a += neurons_panel(n)) {
        uint32_t to = a + neurons_panel(n) < (uint32_t)s->n_ff ? a + neurons_panel(n) : (uint32_t)s->n_ff;
        struct neurons_out out;
        r = neurons_build(n, &in, a, to, &out, checks, &loss, e);
        for (int i = 0; i < sh->n_segments && r == 0; i++) {
            r = write_at(w, base[i] + out.offset[i], out.data[i], out.len[i], e);
            hash_update(h[i], out.data[i], out.len[i]);
        }
    }
    for (int i = 0; i < sh->n_segments; i++) {
        write_set_checksum(w, index[i], hash_final64(h[i]));
        hash_free(h[i]);
    }
    free(gate);
    free(up);
    free(down);
    return r;
}

/* The predictor of neuron `row` of fc2 or bias, in the model's order. Three operating points: recall 0.95 at 0, chosen;
 * 0.8 and 0.99 at 0.1 and -0.1. */
static inline void es_predictor_row(const struct engine_sample *s, int layer, int block, int role, int row, int n,
                                    float *out)
{
    float raw[ES_RANK];
    uint8_t bytes[ES_RANK * 4];
    const struct quant_traits *t = quant_traits(s->predictor_type);
    if (s->picks && role < ES_FC2) {
        memset(out, 0, (size_t)n * sizeof *out);
        out[(row * 5 + role) % n] = 8 * es_weight(layer, block, role, row, 0);
        return;
    }
    for (int c = 0; c < n; c++)
        raw[c] = es_weight(layer, block, role, row, c);
    t->quant(bytes, raw, (size_t)n);
    t->dequant(out, bytes, (size_t)n);
}

static inline float es_predictor_bias(int layer, int block, int input, int neuron)
{
    return es_weight(layer, block, ES_BIAS + input, neuron, 0) - 0.2f;
}

/* Bias, width and reach of a two-sided score; every fourth neuron has one side. */
static inline void es_predictor_sides(int layer, int block, int input, int neuron, float out[PREDICT_TWO_SIDED])
{
    out[0] = es_predictor_bias(layer, block, input, neuron);
    out[1] = neuron % 4 ? 0.1f + fabsf(es_weight(layer, block, ES_BIAS + input, neuron, 1)) : FLT_MAX;
    out[2] = neuron % 4 > 1 ? out[1] + 0.5f * fabsf(es_weight(layer, block, ES_BIAS + input, neuron, 2)) : FLT_MAX;
}

static inline int es_predictor(struct writer *w, const struct engine_sample *s, int layer, int block, int input,
                               const uint32_t *order, struct err *e)
{
    struct pack_predictor x = { .input = (enum predict_input)input, .layer = layer, .block = block, .rank = s->rank,
                                .relu = input == PREDICT_RESIDUAL, .has_bias = 1,
                                .two_sided = s->thresholds != 0, .n_points = 3,
                                .type1 = s->picks ? PREDICT_PICK : s->predictor_type, .type2 = s->predictor_type };
    int r = pack_predictor_derive(&x, ES_D, s->n_ff, e);
    if (r < 0)
        return r;
    const struct write_entry t = { .kind = PACK_PREDICTOR, .role = (uint32_t)input, .type = x.type1,
                                   .layer = (uint32_t)layer, .block = (uint32_t)block, .segment = x.type2, .n_dims = 3,
                                   .dims = { ES_D, (uint64_t)s->rank, (uint64_t)s->n_ff,
                                             (x.relu ? PACK_PREDICTOR_RELU : 0) | PACK_PREDICTOR_BIAS |
                                                 (x.two_sided ? PACK_PREDICTOR_TWO_SIDED : 0) | 3u << 8 } };
    const float points[3][4] = { { 0.8f, 0.1f, 0.1f, 0.5f }, { 0.95f, 0, 0.2f, 0.5f }, { 0.99f, -0.1f, 0.3f, 0.5f } };
    const struct quant_traits *q = quant_traits(s->predictor_type);
    uint8_t *m = calloc(1, x.bytes);
    float v[ES_RANK];
    memcpy(m, points[1], sizeof points[1]);
    memcpy(m + x.curve_offset, points, sizeof points);
    for (int i = 0; i < s->rank; i++) {
        uint8_t *row = m + x.fc1_offset + (size_t)i * PREDICT_PICK_BYTES;
        int at = (i * 5 + ES_FC1 + input) % ES_D;
        es_predictor_row(s, layer, block, ES_FC1 + input, i, ES_D, v);
        if (s->picks) {
            bytes_put32(row, s->picks == PICKS_BEYOND && i == s->rank - 1 ? ES_D : (uint32_t)at);
            bytes_putf32(row + 4, v[at]);
            continue;
        }
        q->quant(m + x.fc1_offset + (size_t)i * quant_row_bytes(x.type1, ES_D), v, ES_D);
    }
    for (int i = 0; i < s->n_ff; i++) {
        float sides[PREDICT_TWO_SIDED];
        size_t numbers = (size_t)predict_numbers(1, x.two_sided);
        es_predictor_sides(layer, block, input, (int)order[i], sides);
        es_predictor_row(s, layer, block, ES_FC2 + input, (int)order[i], s->rank, v);
        q->quant(m + x.fc2_offset + (size_t)i * quant_row_bytes(x.type2, (uint64_t)s->rank), v, (size_t)s->rank);
        memcpy(m + x.bias_offset + (size_t)i * numbers * 4, sides, numbers * 4);
    }
    r = write_section(w, &t, m, x.bytes, e);
    free(m);
    return r;
}

static inline int es_types(struct writer *w, const struct write_entry *t, const struct layout *l, struct err *e)
{
    uint32_t type[ES_LAYERS][LAYOUT_ROLES];
    for (int i = 0; i < ES_LAYERS; i++)
        memcpy(type[i], l->type[l->kind[i]], sizeof type[i]);
    return write_section(w, t, type, sizeof type, e);
}

static inline int es_sections(struct writer *w, const struct engine_sample *s, const struct write_facts *f,
                              const uint8_t *meta, size_t len, const uint32_t *orders, struct err *e)
{
    const struct write_entry none = { .layer = PACK_NONE, .block = PACK_NONE, .segment = PACK_NONE };
    int blocks = s->experts ? s->experts : 1, r;
    size_t n_checks = (size_t)f->shapes.n_parts * f->shapes.n_clusters;
    struct write_entry t = none;
    struct pool *pool = NULL;
    struct neurons *n = NULL;
    uint64_t *checks = calloc((size_t)(ES_LAYERS * blocks) * n_checks, 8), n_units = unit_check_before(&f->shapes, blocks, ES_LAYERS);
    uint32_t *units = calloc((size_t)n_units, sizeof *units);
    t.kind = PACK_META;
    t.codec = PACK_ZSTD;
    r = write_section(w, &t, meta, len, e) | es_dense(w, MODEL_TOKEN_EMBD, -1, ES_D, ES_VOCAB, e) |
        es_dense(w, MODEL_OUTPUT_NORM, -1, ES_D, 1, e);
    t = none;
    t.kind = PACK_TYPES;
    r |= f->shapes.l.n_kinds > 1 ? es_types(w, &t, &f->shapes.l, e) : 0;
    for (int l = 0; l < ES_LAYERS; l++) {
        r |= es_dense(w, MODEL_ATTN_NORM, l, ES_D, 1, e) | es_dense(w, MODEL_ATTN_Q, l, ES_D, ES_HEADS * ES_DIM, e) |
             es_dense(w, MODEL_ATTN_K, l, ES_D, ES_KV * ES_DIM, e) |
             es_dense(w, MODEL_ATTN_V, l, ES_D, ES_KV * ES_DIM, e) |
             es_dense(w, MODEL_ATTN_OUTPUT, l, ES_HEADS * ES_DIM, ES_D, e) |
             es_dense(w, MODEL_FFN_NORM, l, ES_D, 1, e);
        if (s->thresholds)
            r |= es_thresholds(w, s, l, orders + l * s->n_ff, e);
        if (s->experts)
            r |= es_dense(w, MODEL_FFN_ROUTER, l, ES_D, (uint64_t)s->experts, e);
    }
    t = none;
    t.kind = PACK_ORDER;
    r |= write_section(w, &t, orders, (size_t)(ES_LAYERS * blocks * s->n_ff) * 4, e);
    r |= pool_new(1, NULL, &pool, e) || neurons_new(&f->shapes, ES_D, 1, pool, &n, e);
    for (int i = 0; i < ES_LAYERS * blocks && r == 0; i++) {
        const struct layout_shape *sh = layout_of(&f->shapes, i / blocks);
        uint64_t before = unit_check_before(&f->shapes, blocks, i / blocks) + (uint64_t)(i % blocks) * unit_check_per_block(sh);
        const struct neurons_checks k = { checks + (size_t)i * n_checks, units + before, f->identity, (uint64_t)i };
        r = es_ffn(w, s, sh, n, i / blocks, i % blocks, orders + i * s->n_ff, &k, e);
    }
    for (int i = 0; i < ES_LAYERS * blocks * PREDICT_INPUTS && s->rank && r == 0; i++) {
        int k = i / PREDICT_INPUTS;
        r = es_predictor(w, s, k / blocks, k % blocks, i % PREDICT_INPUTS, orders + k * s->n_ff, e);
    }
    t.kind = PACK_CHECKS;
    r |= write_section(w, &t, checks, (size_t)(ES_LAYERS * blocks) * n_checks * 8, e);
    t.kind = PACK_UNIT_CHECKS;
    r |= write_section(w, &t, units, (size_t)n_units * sizeof *units, e);
    t.kind = PACK_PROVENANCE;
    r |= write_section(w, &t, "{\"tool\":\"test\"}", 15, e);
    neurons_free(n);
    pool_free(pool);
    free(checks);
    free(units);
    return r;
}

static inline int es_pack(const char *path, const struct engine_sample *s, struct err *e)
{
    struct write_facts f = { .model_hash = { 1, 2 }, .vocab_text_bytes = 50, .identity = 0xfedcba0987654321 };
    struct layout l = { .form = s->form, .packed = s->packed, .block_bytes = s->block, .cluster_neurons = s->cluster,
                        .n_kinds = 1, .type = { { s->types[0], s->types[1], s->types[2] } } };
    int blocks = s->experts ? s->experts : 1;
    uint32_t *orders = malloc((size_t)(ES_LAYERS * blocks * s->n_ff) * 4);
    size_t len = 0;
    uint8_t *meta = es_meta(s, &f.h, &len, e);
    struct writer *w = NULL;
    for (int i = 0; i < ES_LAYERS * blocks * s->n_ff; i++)
        orders[i] = s->form == LAYOUT_TILES ? (uint32_t)(i % s->n_ff) :
                    es_order(i / s->n_ff / blocks, i / s->n_ff % blocks, s->n_ff, i % s->n_ff);
    int r = meta && (!s->mixed || layout_alternate(&l, s->odd_types, ES_LAYERS, e) == 0) ?
                layout_derive(&l, ES_D, s->n_ff, &f.shapes, e) : -1;
    f.order_hash = layout_order_hash(orders, ES_LAYERS, blocks, s->n_ff);
    f.layout_hash = layout_hash(&l);
    if (r == 0 && (r = write_open(path, &f, 200, &w, e)) == 0) {
        r = es_sections(w, s, &f, meta, len, orders, e);
        if (r)
            write_abort(w);
        else
            r = write_commit(w, NULL, e);
    }
    free(orders);
    free(meta);
    return r;
}

/* ---- the naive model ---- */

static inline void es_matvec(double *out, const double *x, int layer, int role, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        out[r] = 0;
        for (int c = 0; c < cols; c++)
            out[r] += (double)es_weight(layer, 0, role, r, c) * x[c];
    }
}

static inline void es_rms(double *out, const double *x, int layer, int role)
{
    double ss = 0;
    for (int i = 0; i < ES_D; i++)
        ss += x[i] * x[i];
    for (int i = 0; i < ES_D; i++)
        out[i] = x[i] / sqrt(ss / ES_D + 1e-5) * (double)es_norm(layer, role, i);
}

static inline void es_rope(double *v, int heads, int pos, int halves)
{
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < ES_DIM / 2; i++) {
            double a = pos * pow(10000.0, -2.0 * i / ES_DIM), *p = v + h * ES_DIM + (halves ? i : 2 * i);
            double *q = p + (halves ? ES_DIM / 2 : 1), x = *p, y = *q;
            *p = x * cos(a) - y * sin(a);
            *q = x * sin(a) + y * cos(a);
        }
}

/* counts[i]: neuron i of a block is predicted or always computed. in: what each kind of predictor sees. */
static inline void es_naive_predict(const struct engine_sample *s, struct es_predict *p, int layer, int block,
                                     const double *const in[PREDICT_INPUTS], uint8_t *counts)
{
    int input = p ? p->input[layer] : -1;
    double h[ES_D];
    float w[ES_D];
    memset(counts, 1, (size_t)s->n_ff);
    for (int r = 0; r < s->rank && input >= 0; r++) {
        h[r] = 0;
        es_predictor_row(s, layer, block, ES_FC1 + input, r, ES_D, w);
        for (int c = 0; c < ES_D; c++)
            h[r] += (double)w[c] * in[input][c];
        if (input == PREDICT_RESIDUAL && h[r] < 0)
            h[r] = 0;
    }
    for (int pos = input >= 0 ? p->always[layer] : s->n_ff; pos < s->n_ff; pos++) {
        int i = (int)es_order(layer, block, s->n_ff, pos);
        float sides[PREDICT_TWO_SIDED];
        es_predictor_sides(layer, block, input, i, sides);
        double score = (double)sides[0];
        es_predictor_row(s, layer, block, ES_FC2 + input, i, s->rank, w);
        for (int r = 0; r < s->rank; r++)
            score += (double)w[r] * h[r];
        if (s->thresholds)
            score = fmax(score, fmin(-score - (double)sides[1], score + (double)sides[2]));
        score -= p->threshold;
        counts[i] = score > 0;
        p->closest = fmin(p->closest, fabs(score));
        p->predicted += counts[i];
        p->neurons++;
    }
}

static inline void es_naive_ffn(const struct engine_sample *s, int layer, int block, const double *x,
                                const uint8_t *counts, double weight, double *out)
{
    for (int i = 0; i < s->n_ff; i++) {
        float g[ES_D], u[ES_D], d[ES_D];
        double gx = 0, ux = 0, h;
        if (!counts[i])
            continue;
        es_row(s, layer, block, LAYOUT_GATE, i, g);
        es_row(s, layer, block, LAYOUT_UP, i, u);
        es_row(s, layer, block, LAYOUT_DOWN, i, d);
        for (int c = 0; c < ES_D; c++)
            gx += (double)g[c] * x[c], ux += (double)u[c] * x[c];
        if (s->thresholds && fabs(gx / (1 + exp(-gx))) < (double)es_threshold(layer, i))
            continue;
        h = s->act == MODEL_ACT_SILU                         ? gx / (1 + exp(-gx)) * ux
            : gx > 0 && (s->act == MODEL_ACT_RELU || ux > 0) ? gx * ux
                                                             : 0;
        for (int c = 0; c < ES_D; c++)
            out[c] += weight * h * (double)d[c];
    }
}

/* Weights of all experts from what the router sees. */
static inline void es_naive_route(const struct engine_sample *s, int layer, const double *x, double *w)
{
    double z[16], sum = 0;
    es_matvec(z, x, layer, MODEL_FFN_ROUTER, s->experts, ES_D);
    for (int i = 0; i < s->experts; i++) {
        int above = 0;
        for (int j = 0; j < s->experts; j++)
            above += z[j] > z[i];
        w[i] = above >= s->used ? 0 : s->router == MODEL_ROUTER_SIGMOID_TOPK ? 1 / (1 + exp(-z[i])) : exp(z[i]);
        sum += w[i];
    }
    for (int i = 0; i < s->experts; i++)
        w[i] /= sum;
}

/* Logits after each of n tokens, double[n][ES_VOCAB]. p: the predicted mode, or NULL. */
static inline void es_naive(const struct engine_sample *s, struct es_predict *p, const int32_t *ids, int n,
                            double *logits)
{
    static double K[ES_LAYERS][ES_SEQ][ES_KV * ES_DIM], V[ES_LAYERS][ES_SEQ][ES_KV * ES_DIM];
    if (s->form == LAYOUT_TILES)
        es_make_tiles(s);
    for (int t = 0; t < n; t++) {
        double x[ES_D], y[ES_D], q[ES_HEADS * ES_DIM], a[ES_HEADS * ES_DIM], w[16] = { 1 };
        for (int c = 0; c < ES_D; c++)
            x[c] = (double)es_weight(-1, 0, MODEL_TOKEN_EMBD, ids[t], c);
        for (int l = 0; l < ES_LAYERS; l++) {
            int first = s->window && l % 4 && t >= s->window ? t - s->window + 1 : 0;
            if (s->small)
                es_naive_route(s, l, x, w);
            double block_in[ES_D], residual[ES_D];
            const double *const in[PREDICT_INPUTS] = { y, block_in, residual };
            uint8_t counts[512];
            es_rms(y, x, l, MODEL_ATTN_NORM);
            memcpy(block_in, y, sizeof y);
            es_matvec(q, y, l, MODEL_ATTN_Q, ES_HEADS * ES_DIM, ES_D);
            es_matvec(K[l][t], y, l, MODEL_ATTN_K, ES_KV * ES_DIM, ES_D);
            es_matvec(V[l][t], y, l, MODEL_ATTN_V, ES_KV * ES_DIM, ES_D);
            if (!s->window || l % 4) {
                es_rope(q, ES_HEADS, t, s->small);
                es_rope(K[l][t], ES_KV, t, s->small);
            }
            for (int h = 0; h < ES_HEADS; h++) {
                int kv = h / (ES_HEADS / ES_KV) * ES_DIM;
                double z[ES_SEQ], sum = 0;
                for (int i = first; i <= t; i++) {
                    z[i] = 0;
                    for (int c = 0; c < ES_DIM; c++)
                        z[i] += q[h * ES_DIM + c] * K[l][i][kv + c] / sqrt(ES_DIM);
                    sum += z[i] = exp(z[i]);
                }
                for (int c = 0; c < ES_DIM; c++) {
                    a[h * ES_DIM + c] = 0;
                    for (int i = first; i <= t; i++)
                        a[h * ES_DIM + c] += z[i] / sum * V[l][i][kv + c];
                }
            }
            es_matvec(y, a, l, MODEL_ATTN_OUTPUT, ES_D, ES_HEADS * ES_DIM);
            for (int c = 0; c < ES_D; c++)
                x[c] += y[c];
            memcpy(residual, x, sizeof x);
            es_rms(y, x, l, MODEL_FFN_NORM);
            if (s->experts && !s->small)
                es_naive_route(s, l, y, w);
            for (int i = 0; i < (s->experts ? s->experts : 1); i++)
                if (w[i] > 0) {
                    es_naive_predict(s, p, l, i, in, counts);
                    es_naive_ffn(s, l, i, y, counts, w[i], x); /* adds to the residual */
                }
        }
        es_rms(y, x, -1, MODEL_OUTPUT_NORM);
        es_matvec(logits + t * ES_VOCAB, y, -1, MODEL_TOKEN_EMBD, ES_VOCAB, ES_D);
    }
}

#endif
