#ifndef TESTS_TINY_GGUF_H
#define TESTS_TINY_GGUF_H

/* A small llama-shaped GGUF header for tests, built key by key, so that each test can leave out or
 * replace what it is about. Data need not exist: gguf_parse takes the file's size as an argument. */
#include "common/base/bytes.h"
#include "common/model/gguf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TINY_D = 64, TINY_FF = 96, TINY_HEADS = 4, TINY_KV = 2, TINY_LAYERS = 2, TINY_VOCAB = 7 };

static inline void tiny_check(int r, const struct err *e)
{
    if (r < 0) {
        printf("Bail out! %s\n", e->msg);
        exit(1);
    }
}

/* An array key from n strings, types or scores. */
static inline void tiny_strings(struct gguf_writer *w, const char *name, const char *const *s, int n)
{
    struct err e;
    static uint8_t buf[1 << 16];
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        size_t len = strlen(s[i]);
        bytes_put64(buf + at, len);
        memcpy(buf + at + 8, s[i], len);
        at += 8 + len;
    }
    struct gguf_key k = { name, GGUF_ARRAY, GGUF_STRING, (uint64_t)n, buf, at };
    tiny_check(gguf_writer_kv_raw(w, &k, &e), &e);
}

static inline void tiny_array32(struct gguf_writer *w, const char *name, enum gguf_value type, const void *v, int n)
{
    struct err e;
    static uint8_t buf[1 << 14];
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, (const uint8_t *)v + 4 * i, 4);
        bytes_put32(buf + 4 * i, u);
    }
    struct gguf_key k = { name, GGUF_ARRAY, type, (uint64_t)n, buf, 4 * (size_t)n };
    tiny_check(gguf_writer_kv_raw(w, &k, &e), &e);
}

/* One change to the tiny model: a key that is left out, or replaced by (or added with) a value. */
struct tiny_edit {
    const char *key;
    char kind;          /* '-' left out, 'u' u32, 'f' f32, 'b' bool, 's' string */
    double number;
    const char *text;
};

static inline int tiny_edited(struct gguf_writer *w, const struct tiny_edit *ed, const char *key)
{
    struct err e;
    int hit = 0;
    for (; ed && ed->key; ed++) {
        if (strcmp(ed->key, key))
            continue;
        hit = 1;
        if (ed->kind == 'u')
            tiny_check(gguf_writer_u32(w, key, (uint32_t)ed->number, &e), &e);
        else if (ed->kind == 'f')
            tiny_check(gguf_writer_f32(w, key, (float)ed->number, &e), &e);
        else if (ed->kind == 'b')
            tiny_check(gguf_writer_bool(w, key, (int)ed->number, &e), &e);
        else if (ed->kind == 's')
            tiny_check(gguf_writer_str(w, key, ed->text, &e), &e);
    }
    return hit;
}

static inline void tiny_u32(struct gguf_writer *w, const struct tiny_edit *ed, const char *key, uint32_t v)
{
    struct err e;
    if (!tiny_edited(w, ed, key))
        tiny_check(gguf_writer_u32(w, key, v, &e), &e);
}

/* Keys of the tiny model; edits of keys it has not are added at the end. */
static inline void tiny_keys(struct gguf_writer *w, const struct tiny_edit *ed)
{
    static const char *const tokens[TINY_VOCAB] = { "<unk>", "<s>", "</s>", "\xe2\x96\x81", "a", "b", "ab" };
    static const float scores[TINY_VOCAB] = { 0, 0, 0, -2, -3, -4, -1 };
    static const int32_t types[TINY_VOCAB] = { 2, 3, 3, 1, 1, 1, 1 };
    static const char *const own[] = {
        "general.architecture", "llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model", "tokenizer.ggml.tokens",
        "tokenizer.ggml.scores", "tokenizer.ggml.token_type",
    };
    struct err e;
    if (!tiny_edited(w, ed, own[0]))
        tiny_check(gguf_writer_str(w, own[0], "llama", &e), &e);
    tiny_u32(w, ed, own[1], TINY_LAYERS);
    tiny_u32(w, ed, own[2], 32);
    tiny_u32(w, ed, own[3], TINY_D);
    tiny_u32(w, ed, own[4], TINY_FF);
    tiny_u32(w, ed, own[5], TINY_HEADS);
    tiny_u32(w, ed, own[6], TINY_KV);
    if (!tiny_edited(w, ed, own[7]))
        tiny_check(gguf_writer_f32(w, own[7], 1e-5f, &e), &e);
    if (!tiny_edited(w, ed, own[8]))
        tiny_check(gguf_writer_str(w, own[8], "llama", &e), &e);
    if (!tiny_edited(w, ed, own[9]))
        tiny_strings(w, own[9], tokens, TINY_VOCAB);
    if (!tiny_edited(w, ed, own[10]))
        tiny_array32(w, own[10], GGUF_F32, scores, TINY_VOCAB);
    if (!tiny_edited(w, ed, own[11]))
        tiny_array32(w, own[11], GGUF_I32, types, TINY_VOCAB);
    for (const struct tiny_edit *x = ed; x && x->key; x++) {
        int known = 0;
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
            known |= !strcmp(x->key, own[i]);
        if (!known)
            tiny_edited(w, x, x->key);
    }
}

/* Tensors of the tiny model, all matrices of one type; skip: a name that is left out, or NULL. */
static inline void tiny_tensor(struct gguf_writer *w, const char *skip, const char *name, uint32_t type, uint64_t d0,
                               uint64_t d1, uint64_t d2)
{
    struct err e;
    uint64_t dims[3] = { d0, d1, d2 };
    if (!skip || strcmp(skip, name))
        tiny_check(gguf_writer_tensor(w, name, type, d2 ? 3 : d1 ? 2 : 1, dims, &e), &e);
}

static inline void tiny_tensors(struct gguf_writer *w, uint32_t type, const char *skip, uint64_t experts)
{
    static const char *const ffn[] = { "ffn_gate", "ffn_up", "ffn_down" };
    uint64_t kv = TINY_D / TINY_HEADS * TINY_KV;
    char name[64];
    tiny_tensor(w, skip, "token_embd.weight", type, TINY_D, TINY_VOCAB, 0);
    tiny_tensor(w, skip, "output_norm.weight", QUANT_F32, TINY_D, 0, 0);
    for (int l = 0; l < TINY_LAYERS; l++) {
        const struct { const char *name; uint64_t d0, d1; uint32_t type; } t[] = {
            { "attn_norm.weight", TINY_D, 0, QUANT_F32 }, { "attn_q.weight", TINY_D, TINY_D, type },
            { "attn_k.weight", TINY_D, kv, type }, { "attn_v.weight", TINY_D, kv, type },
            { "attn_output.weight", TINY_D, TINY_D, type }, { "ffn_norm.weight", TINY_D, 0, QUANT_F32 },
        };
        for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
            snprintf(name, sizeof name, "blk.%d.%s", l, t[i].name);
            tiny_tensor(w, skip, name, t[i].type, t[i].d0, t[i].d1, 0);
        }
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "blk.%d.%s%s.weight", l, ffn[k], experts ? "_exps" : "");
            tiny_tensor(w, skip, name, type, k == 2 ? TINY_FF : TINY_D, k == 2 ? TINY_D : TINY_FF, experts);
        }
        if (experts) {
            snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", l);
            tiny_tensor(w, skip, name, QUANT_F32, TINY_D, experts, 0);
        }
    }
}

/* The header alone, malloc'd; type QUANT_LIMIT: no tensors. */
static inline uint8_t *tiny_header(const struct tiny_edit *ed, uint32_t type, const char *skip, uint64_t experts,
                                   size_t *len)
{
    struct err e;
    struct gguf_writer *w;
    uint8_t *out = NULL;
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_keys(w, ed);
    if (type != QUANT_LIMIT)
        tiny_tensors(w, type, skip, experts);
    tiny_check(gguf_writer_blob(w, &out, len, &e), &e);
    gguf_writer_free(w);
    return out;
}

#endif
