/* Folded weights: the transform against its definition and a value worked by hand, and the keys of a file. */
#include "common/base/bytes.h"
#include "common/model/model.h"
#include "common/model/model_fold.h"
#include "common/ops/delta.h"
#include "common/ops/fold.h"
#include "tests/test.h"
#include "tests/tiny_gguf.h"

#include <math.h>

static struct err e;

/* Block 4, signs + - + +: x = 1 2 3 4 is signed 1 -2 3 4, whose transform is (6, 2, -8, 4) / 2. */
static void by_hand(void)
{
    uint8_t signs[16];
    const int32_t s[4] = { 1, -1, 1, 1 };
    float x[4] = { 1, 2, 3, 4 };
    for (int i = 0; i < 4; i++)
        bytes_put32(signs + 4 * i, (uint32_t)s[i]);
    const struct model_fold f = { 4, signs }, plain = { 4, NULL };
    fold_apply(&f, x, 0, 4);
    CHECK(x[0] == 3 && x[1] == 1 && x[2] == -4 && x[3] == 2);
    fold_undo(&f, x, 4);
    CHECK(x[0] == 1 && x[1] == 2 && x[2] == 3 && x[3] == 4);
    fold_apply(&plain, x, 0, 4);
    CHECK(x[0] == 5 && x[1] == -1 && x[2] == -2 && x[3] == 0);
}

/* H[i][j] = (-1)^popcount(i & j) / sqrt(block), of each block by itself, in parts and by a pool. */
static void definition(void)
{
    enum { N = 192, TOKENS = 3 };
    static float x[TOKENS * N], parts[TOKENS * N], pooled[TOKENS * N];
    static uint8_t signs[4 * N];
    struct pool *pool;
    double worst = 0;
    srand(9);
    for (int i = 0; i < N; i++)
        bytes_put32(signs + 4 * i, (uint32_t)(rand() % 2 ? 1 : -1));
    for (int i = 0; i < TOKENS * N; i++)
        x[i] = (float)(rand() % 2001 - 1000) / 500;
    memcpy(parts, x, sizeof x);
    memcpy(pooled, x, sizeof x);
    for (int block = 2; block <= 64; block *= 2) {
        const struct model_fold f = { block, signs };
        for (int t = 0; t < TOKENS; t++)
            for (int at = 0; at < N; at += 64)
                fold_apply(&f, parts + t * N + at, (size_t)at, 64);
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; i < N; i++) {
                double want = 0;
                for (int j = 0; j < block; j++) {
                    int from = i / block * block + j;
                    double s = (int32_t)bytes_le32(signs + 4 * from);
                    want += (double)x[t * N + from] * (__builtin_parity((unsigned)(i % block & j)) ? -s : s);
                }
                worst = fmax(worst, fabs((double)parts[t * N + i] - want / sqrt(block)));
            }
        CHECK(pool_new(2, NULL, &pool, &e) == 0);
        fold_tokens(&f, pool, pooled, N, TOKENS);
        pool_free(pool);
        CHECK(!memcmp(parts, pooled, sizeof parts));
        memcpy(parts, x, sizeof x);
        memcpy(pooled, x, sizeof x);
    }
    CHECK_MSG(worst < 1e-6, "%g", worst);
}

/* Six value heads of two key heads: head i is of key head i % 2, and a folded output matrix sees those of key head 0 first. */
static void places(void)
{
    static const int want[6] = { 0, 3, 1, 4, 2, 5 };
    struct model_hparams h = { .delta_k_heads = 2, .delta_v_heads = 6, .delta_tiled = 1, .fold_grouped = 1 };
    int bad = 0;
    for (int i = 0; i < 6; i++)
        bad += delta_place(i, &h) != want[i];
    CHECK(bad == 0);
    h.fold_grouped = 0;
    CHECK(delta_place(1, &h) == 1 && delta_place(4, &h) == 4);
}

/* ---- keys ---- */

/* One change of the keys of a tiny model all of whose matrices are folded in blocks of 32. */
struct change {
    const char *key;             /* after "prism.hadamard."; NULL: none */
    int absent;
    double number;
    const char *text;
    int n;                       /* of names or numbers: what is left of them */
    const char *name;            /* one more of weight_names, or one of sign_values or sign_widths is `number` */
};

static const char *const kinds[] = { "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down" };

static int is(const struct change *c, const char *key)
{
    return c->key && !strcmp(c->key, key);
}

static void put_number(struct gguf_writer *w, const struct change *c, const char *key, uint32_t v, int boolean)
{
    char name[64];
    snprintf(name, sizeof name, "prism.hadamard.%s", key);
    if (is(c, key) && c->absent)
        return;
    v = is(c, key) ? (uint32_t)c->number : v;
    tiny_check(boolean ? gguf_writer_bool(w, name, (int)v, &e) : gguf_writer_u32(w, name, v, &e), &e);
}

static void put_text(struct gguf_writer *w, const struct change *c, const char *key, const char *v)
{
    char name[64];
    snprintf(name, sizeof name, "prism.hadamard.%s", key);
    if (!is(c, key) || !c->absent)
        tiny_check(gguf_writer_str(w, name, is(c, key) ? c->text : v, &e), &e);
}

static int read_with(const struct change *c, const struct model_given *given, int tensors, struct model_hparams *h, struct gguf **out)
{
    enum { NAMES = 7 * TINY_LAYERS };
    static char text[NAMES + 1][64];
    const char *names[NAMES + 1], *table = "token_embd.weight";
    int32_t widths[2] = { TINY_D, TINY_FF }, signs[TINY_D + TINY_FF];
    struct gguf_writer *w;
    struct gguf *g;
    size_t len;
    uint8_t *blob;
    int n = 0, n_signs = TINY_D + TINY_FF;
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_keys(w, NULL);
    put_number(w, c, "version", 2, 0);
    put_number(w, c, "block_size", 32, 0);
    put_number(w, c, "tied_output", 1, 1);
    put_number(w, c, "gdn_v_grouped", 1, 1);
    put_text(w, c, "transform", "normalized-sylvester-walsh-hadamard");
    put_text(w, c, "axis", "input-last-dimension");
    put_text(w, c, "sign_mode", "explicit");
    for (int i = 0; i < NAMES; i++, n++)
        snprintf(text[n], sizeof text[n], "blk.%d.%s.weight", i / 7, kinds[i % 7]), names[n] = text[n];
    n = is(c, "weight_names") && !c->name ? c->n : n;
    if (is(c, "weight_names") && c->name)
        names[n++] = c->name;
    tiny_strings(w, "prism.hadamard.weight_names", names, n);
    table = is(c, "inverse_weight_names") ? c->name : table;
    tiny_strings(w, "prism.hadamard.inverse_weight_names", &table, 1);
    for (int i = 0; i < n_signs; i++)
        signs[i] = i % 3 ? 1 : -1;
    if (is(c, "sign_widths"))
        widths[1] = (int32_t)c->number;
    if (is(c, "sign_values") && !c->n)
        signs[70] = (int32_t)c->number;
    if (!is(c, "sign_widths") || !c->absent)
        tiny_array32(w, "prism.hadamard.sign_widths", GGUF_I32, widths, 2);
    tiny_array32(w, "prism.hadamard.sign_values", is(c, "sign_values") && c->absent ? GGUF_F32 : GGUF_I32, signs,
                 is(c, "sign_values") && c->n ? c->n : n_signs);
    if (c->key && !strncmp(c->key, "new", 3))
        put_number(w, c, c->key, 1, 0);
    if (tensors)
        tiny_tensors(w, QUANT_F16, NULL, 0);
    if (is(c, "output"))
        tiny_tensor(w, NULL, "output.weight", QUANT_F16, TINY_D, TINY_VOCAB, 0);
    tiny_check(gguf_writer_blob(w, &blob, &len, &e), &e);
    gguf_writer_free(w);
    static uint8_t kept[1 << 16];
    memcpy(kept, blob, len);
    free(blob);
    tiny_check(gguf_parse(kept, len, 1 << 20, "tiny", &g, &e), &e);
    int r = model_hparams_read(g, given, h, &e);
    if (out)
        *out = g;
    else
        gguf_close(g);
    return r;
}

static void good(void)
{
    const struct change none = { 0 }, identity = { .key = "sign_mode", .text = "identity" };
    struct model_hparams h;
    struct model_fold f;
    struct gguf *g;
    CHECK(read_with(&none, NULL, 1, &h, &g) == 0 && h.fold == 32 && h.fold_grouped == 1);
    CHECK(model_fold_of(g, "blk.1.ffn_down.weight", TINY_FF, &f, &e) == 0 && f.block == 32 && (int32_t)bytes_le32(f.signs) == 1 &&
          (int32_t)bytes_le32(f.signs + 8) == -1); /* sign 64 of all is the first of the second width; 66 is negative */
    CHECK(model_fold_of(g, "token_embd.weight", TINY_D, &f, &e) == 0 && f.block == 32 && (int32_t)bytes_le32(f.signs) == -1);
    CHECK(model_fold_of(g, "output_norm.weight", TINY_D, &f, &e) == 0 && f.block == 0);
    CHECK(model_fold_of(g, "blk.0.ffn_up.weight", 128, &f, &e) == ERR_FORMAT && strstr(e.msg, "no width 128"));
    CHECK(model_fold_of(g, "blk.0.ffn_up.weight", 80, &f, &e) == ERR_FORMAT && strstr(e.msg, "does not divide"));
    gguf_close(g);
    CHECK(read_with(&identity, NULL, 1, &h, &g) == 0 && model_fold_of(g, "blk.1.ffn_down.weight", TINY_FF, &f, &e) == 0 && f.block == 32 &&
          !f.signs);
    gguf_close(g);
    for (int act = MODEL_ACT_RELU; act <= MODEL_ACT_DRELU; act++) {
        const struct model_given given = { act, MODEL_ROUTER_NONE, NULL, 0 };
        CHECK(read_with(&none, &given, 1, &h, NULL) == ERR_UNSUPPORTED && strstr(e.msg, "every neuron counts"));
    }
    tiny_check(read_with(&none, NULL, 1, &h, &g), &e);
    struct model *m;
    CHECK(model_open(g, NULL, &m, &e) == 0);
    model_close(m);
    gguf_close(g);
}

static void refusals(void)
{
    static const struct { struct change c; int r; const char *says; } cases[] = {
        { { .key = "version", .number = 3 }, ERR_UNSUPPORTED, "is 3" },
        { { .key = "version", .number = 1 }, ERR_UNSUPPORTED, "is 1 and 'prism.hadamard.tied_output' true" },
        { { .key = "version", .absent = 1 }, ERR_FORMAT, "'prism.hadamard.version' is absent" },
        { { .key = "tied_output", .number = 0 }, ERR_UNSUPPORTED, "false" },
        { { .key = "block_size", .number = 48 }, ERR_UNSUPPORTED, "is 48" },
        { { .key = "block_size", .number = 0 }, ERR_UNSUPPORTED, "is 0" },
        { { .key = "block_size", .number = 8192 }, ERR_UNSUPPORTED, "is 8192" },
        { { .key = "block_size", .number = 64 }, ERR_FORMAT, "a width of 96" },
        { { .key = "block_size", .absent = 1 }, ERR_UNSUPPORTED, "block_size" },
        { { .key = "transform", .text = "dct" }, ERR_UNSUPPORTED, "'dct'" },
        { { .key = "transform", .absent = 1 }, ERR_FORMAT, "is absent" },
        { { .key = "axis", .text = "output" }, ERR_UNSUPPORTED, "'output'" },
        { { .key = "sign_mode", .text = "seeded" }, ERR_UNSUPPORTED, "'seeded'" },
        { { .key = "sign_widths", .number = 64 }, ERR_FORMAT, "64 twice" },
        { { .key = "sign_widths", .number = -96 }, ERR_FORMAT, "-96" },
        { { .key = "sign_widths", .number = 128 }, ERR_FORMAT, "want 192" },
        { { .key = "sign_widths", .absent = 1 }, ERR_FORMAT, "is absent" },
        { { .key = "sign_values", .number = 0 }, ERR_FORMAT, "sign 70 is 0" },
        { { .key = "sign_values", .n = 100 }, ERR_FORMAT, "100 signs" },
        { { .key = "sign_values", .absent = 1 }, ERR_FORMAT, "no array of i32" },
        { { .key = "weight_names", .n = 13 }, ERR_UNSUPPORTED, "5 of 6 matrices" },
        { { .key = "weight_names", .n = 0 }, ERR_UNSUPPORTED, "0 of 6 matrices" },
        { { .key = "weight_names", .name = "blk.0.attn_norm.weight" }, ERR_UNSUPPORTED, "'blk.0.attn_norm.weight'" },
        { { .key = "weight_names", .name = "blk.0.ffn_up_exps.weight" }, ERR_UNSUPPORTED, "'blk.0.ffn_up_exps.weight'" },
        { { .key = "weight_names", .name = "blk.0.attn_qkv.weight" }, ERR_UNSUPPORTED, "'blk.0.attn_qkv.weight'" },
        { { .key = "weight_names", .name = "blk.2.ffn_up.weight" }, ERR_UNSUPPORTED, "'blk.2.ffn_up.weight'" },
        { { .key = "weight_names", .name = "blk.0.attn_gate.weight" }, ERR_FORMAT, "which is no tensor" },
        { { .key = "inverse_weight_names", .name = "position_embd.weight" }, ERR_UNSUPPORTED, "'position_embd.weight'" },
        { { .key = "output" }, ERR_UNSUPPORTED, "a tensor 'output.weight'" },
        { { .key = "new_key", .number = 1 }, ERR_UNSUPPORTED, "'prism.hadamard.new_key'" },
    };
    struct model_hparams h;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int r = read_with(&cases[i].c, NULL, 1, &h, NULL);
        CHECK_MSG(r == cases[i].r && strstr(e.msg, cases[i].says), "%s: %d %s", cases[i].c.key, r, r < 0 ? e.msg : "");
    }
}

int main(void)
{
    by_hand();
    definition();
    places();
    good();
    refusals();
    return test_done();
}
