#include "common/model/gguf.h"
#include "tests/test.h"
#include "tests/tiny_gguf.h"

#include <math.h>
#include <unistd.h>

#define MODEL "datasets/models/reglu-tales-10m-f16.gguf"

static struct err e;
static char dir[256];

static const char *in_dir(const char *name)
{
    static char path[2][512];
    static int turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static int says(const char *text)
{
    if (strstr(e.msg, text))
        return 1;
    printf("# message is: %s\n", e.msg);
    return 0;
}

static void embedded(void)
{
    struct gguf *g;
    CHECK(gguf_open(MODEL, &g, &e) == 0);
    CHECK(g->version == 3 && !g->is_pwri && g->alignment == 32 && g->n_shards == 1);
    CHECK(g->n_tensors == 8 * 9 + 2 && g->n_keys > 20);
    const struct gguf_tensor *t = gguf_tensor(g, "blk.7.ffn_down.weight");
    CHECK(t && t->n_dims == 2 && t->dims[0] == 1280 && t->dims[1] == 256 && t->dims[2] == 1 && t->type == QUANT_F16);
    CHECK(t && t->row_bytes == 2560 && t->n_rows == 256 && t->bytes == 2560 * 256);
    CHECK(!gguf_tensor(g, "output.weight") && !gguf_find(g, "llama"));
    uint32_t v = 0;
    CHECK(gguf_get_u32(g, "llama.block_count", &v, &e) == 1 && v == 8);
    char *s;
    CHECK(gguf_get_str(g, "llama.hidden_act", &s, &e) == 1 && !strcmp(s, "relu"));
    free(s);
    const struct gguf_key *k = gguf_find(g, "tokenizer.ggml.tokens");
    size_t pos = 0, n = 0;
    const char *text;
    uint64_t len;
    while (gguf_array_str(k, &pos, &text, &len))
        n++;
    CHECK(k && k->n == 4096 && n == 4096);
    gguf_close(g);
    CHECK(gguf_open("datasets/models/none.gguf", &g, &e) == ERR_INPUT);
    CHECK(gguf_open("datasets/models", &g, &e) == ERR_INPUT);
}

/* Every scalar type with every getter. */
static void getters(void)
{
    static const struct { const char *name; enum gguf_value type; const char *bytes; size_t n; } keys[] = {
        { "u8", GGUF_U8, "\xff", 1 },            { "i8", GGUF_I8, "\x7f", 1 },
        { "u16", GGUF_U16, "\xff\xff", 2 },      { "i16", GGUF_I16, "\xff\xff", 2 },
        { "u32", GGUF_U32, "\xff\xff\xff\xff", 4 }, { "i32", GGUF_I32, "\1\0\0\0", 4 },
        { "u64", GGUF_U64, "\0\0\0\0\1\0\0\0", 8 }, { "i64", GGUF_I64, "\2\0\0\0\0\0\0\0", 8 },
        { "min", GGUF_I64, "\0\0\0\0\0\0\0\x80", 8 },
        { "f32", GGUF_F32, "\0\0\x80\x3f", 4 },  { "f64", GGUF_F64, "\0\0\0\0\0\0\0\x40", 8 },
        { "inf", GGUF_F32, "\0\0\x80\x7f", 4 },  { "huge", GGUF_F64, "\0\0\0\0\0\0\xf0\x7e", 8 },
        { "bool", GGUF_BOOL, "\1", 1 },          { "odd", GGUF_BOOL, "\2", 1 },
        { "str", GGUF_STRING, "text", 4 },       { "nul", GGUF_STRING, "a\0b", 3 }, { "empty", GGUF_STRING, "", 0 },
    };
    struct gguf_writer *w;
    uint8_t *blob;
    size_t len;
    struct gguf *g;
    CHECK(gguf_writer_new(&w, &e) == 0);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct gguf_key k = { keys[i].name, keys[i].type, GGUF_U8, 1, keys[i].bytes, keys[i].n };
        CHECK(gguf_writer_kv_raw(w, &k, &e) == 0);
    }
    CHECK(gguf_writer_u32(w, "u8", 1, &e) == ERR_USAGE && says("u8"));
    CHECK(gguf_writer_blob(w, &blob, &len, &e) == 0);
    gguf_writer_free(w);
    CHECK(gguf_parse(blob, len, len, "keys", &g, &e) == 0);
    uint32_t v = 0;
    CHECK(gguf_get_u32(g, "u8", &v, &e) == 1 && v == 255);
    CHECK(gguf_get_u32(g, "i8", &v, &e) == 1 && v == 127);
    CHECK(gguf_get_u32(g, "u16", &v, &e) == 1 && v == 65535);
    CHECK(gguf_get_u32(g, "u32", &v, &e) == 1 && v == UINT32_MAX);
    CHECK(gguf_get_u32(g, "i32", &v, &e) == 1 && v == 1);
    CHECK(gguf_get_u32(g, "i64", &v, &e) == 1 && v == 2);
    CHECK(gguf_get_u32(g, "none", &v, &e) == 0 && v == 2);
    CHECK(gguf_get_u32(g, "i16", &v, &e) == ERR_FORMAT && says("'keys': key 'i16' is -1, outside 0 to 4294967295"));
    CHECK(gguf_get_u32(g, "u64", &v, &e) == ERR_FORMAT && says("4294967296"));
    CHECK(gguf_get_u32(g, "min", &v, &e) == ERR_FORMAT && says("-9223372036854775808"));
    CHECK(gguf_get_u32(g, "f32", &v, &e) == ERR_FORMAT && says("'f32' is of type f32"));
    float f = 0;
    CHECK(gguf_get_f32(g, "f32", &f, &e) == 1 && f == 1);
    CHECK(gguf_get_f32(g, "f64", &f, &e) == 1 && f == 2);
    CHECK(gguf_get_f32(g, "inf", &f, &e) == ERR_FORMAT && says("finite"));
    CHECK(gguf_get_f32(g, "huge", &f, &e) == ERR_FORMAT);
    CHECK(gguf_get_f32(g, "u8", &f, &e) == ERR_FORMAT && f == 2);
    int b = 0;
    CHECK(gguf_get_bool(g, "bool", &b, &e) == 1 && b == 1);
    CHECK(gguf_get_bool(g, "odd", &b, &e) == ERR_FORMAT);
    CHECK(gguf_get_bool(g, "u8", &b, &e) == ERR_FORMAT);
    char *s = NULL;
    CHECK(gguf_get_str(g, "str", &s, &e) == 1 && !strcmp(s, "text"));
    free(s);
    CHECK(gguf_get_str(g, "empty", &s, &e) == 1 && !*s);
    free(s);
    CHECK(gguf_get_str(g, "nul", &s, &e) == ERR_FORMAT && says("NUL"));
    CHECK(gguf_get_str(g, "u8", &s, &e) == ERR_FORMAT);
    gguf_close(g);
    free(blob);
}

/* Byte i of tensor `tensor` of the files written here; every four of them are a finite number. */
static uint8_t content(int tensor, uint64_t i)
{
    return (uint8_t)((i * 7 + i / 251 + (uint64_t)tensor * 31) & (i % 4 == 3 ? 0x3f : 0xff));
}

struct fill_ctx {
    const int *number;   /* of the declared tensors */
    uint64_t row_bytes, next;
    int last, fail_at, calls, whole_rows;
};

static int fill(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *err)
{
    struct fill_ctx *c = ctx;
    if (tensor != c->last)
        c->next = 0;
    c->whole_rows &= offset == c->next && len % c->row_bytes == 0;
    c->next = offset + len;
    c->last = tensor;
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = content(c->number[tensor], offset + i);
    return ++c->calls == c->fail_at ? err_set(err, ERR_IO, "no more") : 0;
}

/* Tensors "t<number>" of F32 [100, rows]; keys for shard no of count when count > 0. */
static int write_file(const char *path, const int *number, int n, uint64_t rows, uint32_t alignment, uint32_t no,
                      uint32_t count, uint32_t total, struct fill_ctx *c)
{
    struct gguf_writer *w;
    int r;
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_u32(w, "general.alignment", alignment, &e), &e);
    if (count) {
        tiny_check(gguf_writer_u32(w, "split.no", no, &e), &e);
        tiny_check(gguf_writer_u32(w, "split.count", count, &e), &e);
        tiny_check(gguf_writer_u32(w, "split.tensors.count", total, &e), &e);
    }
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", number[i]);
        uint64_t dims[2] = { 100, rows };
        tiny_check(gguf_writer_tensor(w, name, QUANT_F32, 2, dims, &e), &e);
    }
    *c = (struct fill_ctx){ .number = number, .row_bytes = 400, .last = -1, .whole_rows = 1, .fail_at = c->fail_at };
    r = gguf_writer_save(w, path, fill, c, &e);
    gguf_writer_free(w);
    return r;
}

static int tensor_is(const struct gguf *g, int number, uint64_t rows)
{
    char name[16];
    snprintf(name, sizeof name, "t%d", number);
    const struct gguf_tensor *t = gguf_tensor(g, name);
    uint8_t buf[1000];
    if (!t || t->bytes != rows * 400)
        return 0;
    for (uint64_t at = 0; at < t->bytes; at += sizeof buf) {
        size_t n = t->bytes - at < sizeof buf ? (size_t)(t->bytes - at) : sizeof buf;
        if (gguf_read(g, t, at, buf, n, &e) < 0)
            return 0;
        for (size_t i = 0; i < n; i++)
            if (buf[i] != content(number, at + i))
                return 0;
    }
    return 1;
}

static void count_bytes(void *ctx, uint64_t done)
{
    *(uint64_t *)ctx = done;
}

/* What gguf.h says the identity is, from scratch. */
static struct hash128 identity(const int *sorted, int n, uint64_t rows)
{
    struct hash *h = hash_new();
    uint8_t *data = malloc(rows * 400);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", sorted[i]);
        for (uint64_t k = 0; k < rows * 400; k++)
            data[k] = content(sorted[i], k);
        struct hash128 v = hash_128(data, rows * 400);
        hash_update_str(h, name);
        hash_update_u32(h, QUANT_F32);
        hash_update_u32(h, 2);
        hash_update_u64(h, 100);
        hash_update_u64(h, rows);
        hash_update_u64(h, v.lo);
        hash_update_u64(h, v.hi);
    }
    struct hash128 out = hash_final128(h);
    hash_free(h);
    free(data);
    return out;
}

static void files_and_hash(void)
{
    static const int a[] = { 2, 10, 1 }, b[] = { 1, 2, 10 }, sorted[] = { 1, 10, 2 };
    const uint64_t rows = 6001; /* 2.4 MB: several pieces, the last one short */
    struct fill_ctx c = { 0 };
    struct gguf *g;
    struct hash128 h1, h2, each[3];
    uint64_t seen = 0;
    CHECK(write_file(in_dir("a.gguf"), a, 3, rows, 32, 0, 0, 0, &c) == 0 && c.whole_rows && c.calls > 6);
    CHECK(gguf_open(in_dir("a.gguf"), &g, &e) == 0);
    CHECK(tensor_is(g, 1, rows) && tensor_is(g, 2, rows) && tensor_is(g, 10, rows));
    CHECK(gguf_hash(g, &h1, each, count_bytes, &seen, &e) == 0 && seen == 3 * rows * 400);
    CHECK(hash_equal(h1, identity(sorted, 3, rows)));
    uint8_t *data = malloc(rows * 400);
    for (uint64_t k = 0; k < rows * 400; k++)
        data[k] = content(10, k);
    CHECK(hash_equal(each[1], hash_128(data, rows * 400)));
    free(data);
    gguf_close(g);
    CHECK(write_file(in_dir("b.gguf"), b, 3, rows, 4096, 0, 0, 0, &c) == 0);
    CHECK(gguf_open(in_dir("b.gguf"), &g, &e) == 0 && g->alignment == 4096 && g->tensors[1].offset % 4096 == 0);
    CHECK(gguf_hash(g, &h2, NULL, NULL, NULL, &e) == 0 && hash_equal(h1, h2));
    gguf_close(g);
    c.fail_at = 3;
    CHECK(write_file(in_dir("c.gguf"), a, 3, rows, 32, 0, 0, 0, &c) == ERR_IO && access(in_dir("c.gguf"), F_OK) < 0);
    unlink(in_dir("a.gguf"));
    unlink(in_dir("b.gguf"));
}

static void shards(void)
{
    static const int first[] = { 5, 3 }, second[] = { 4 }, third[] = { 1, 2 }, all[] = { 1, 2, 3, 4, 5 };
    const char *stem = "m-%05d-of-00003.gguf";
    char name[3][64];
    struct fill_ctx c = { 0 };
    struct gguf *g;
    struct hash128 h;
    for (int i = 0; i < 3; i++)
        snprintf(name[i], sizeof name[i], stem, i + 1);
    CHECK(write_file(in_dir(name[0]), first, 2, 3, 32, 0, 3, 5, &c) == 0);
    CHECK(write_file(in_dir(name[1]), second, 1, 3, 64, 1, 3, 5, &c) == 0);
    CHECK(gguf_open(in_dir(name[0]), &g, &e) == ERR_INPUT && says("m-00003-of-00003.gguf"));
    CHECK(write_file(in_dir(name[2]), third, 2, 3, 32, 2, 3, 5, &c) == 0);
    CHECK(gguf_open(in_dir(name[0]), &g, &e) == 0);
    CHECK(g->n_shards == 3 && g->n_tensors == 5 && tensor_is(g, 5, 3) && tensor_is(g, 4, 3) && tensor_is(g, 2, 3));
    CHECK(gguf_hash(g, &h, NULL, NULL, NULL, &e) == 0 && hash_equal(h, identity(all, 5, 3)));
    gguf_close(g);
    for (int i = 1; i < 3; i++) { /* any of them finds the others */
        CHECK(gguf_open(in_dir(name[i]), &g, &e) == 0);
        CHECK(g->n_shards == 3 && g->n_tensors == 5 && gguf_hash(g, &h, NULL, NULL, NULL, &e) == 0 && hash_equal(h, identity(all, 5, 3)));
        gguf_close(g);
    }
    CHECK(rename(in_dir(name[2]), in_dir("x.gguf")) == 0);
    CHECK(gguf_open(in_dir("x.gguf"), &g, &e) == ERR_FORMAT && says("shard 2 of 3"));
    CHECK(rename(in_dir("x.gguf"), in_dir(name[2])) == 0);
    CHECK(write_file(in_dir(name[1]), second, 1, 3, 32, 1, 4, 5, &c) == 0);
    CHECK(gguf_open(in_dir(name[0]), &g, &e) == ERR_FORMAT && says("shard 1 of 4"));
    CHECK(write_file(in_dir(name[1]), third, 1, 3, 32, 1, 3, 5, &c) == 0);
    CHECK(gguf_open(in_dir(name[0]), &g, &e) == ERR_FORMAT && says("'t1' occurs twice"));
    CHECK(write_file(in_dir(name[1]), second, 0, 3, 32, 1, 3, 5, &c) == 0);
    CHECK(gguf_open(in_dir(name[0]), &g, &e) == ERR_FORMAT && says("'split.tensors.count' is 5"));
    CHECK(rename(in_dir(name[0]), in_dir("x.gguf")) == 0);
    CHECK(gguf_open(in_dir("x.gguf"), &g, &e) == ERR_FORMAT && says("-00001-of-00003.gguf"));
    unlink(in_dir("x.gguf"));
    unlink(in_dir(name[1]));
    unlink(in_dir(name[2]));
}

/* Versions and magics; a header longer than the first read. */
static void heads(void)
{
    size_t len;
    uint8_t *h = tiny_header(NULL, QUANT_F16, NULL, 0, &len);
    struct gguf *g;
    CHECK(gguf_parse(h, len, 1 << 20, "tiny", &g, &e) == 0 && !strcmp(gguf_name(g), "tiny"));
    gguf_close(g);
    h[4] = 2;
    CHECK(gguf_parse("tjgg\3\0\0\0", 8, 8, "tiny", &g, &e) == ERR_FORMAT && says("before August 2023; convert the model again"));
    CHECK(gguf_parse(h, len, 1 << 20, "tiny", &g, &e) == 0 && g->version == 2);
    gguf_close(g);
    memcpy(h, "PWRI", 4);
    CHECK(gguf_parse(h, len, 1 << 20, "tiny", &g, &e) == 0 && g->is_pwri);
    CHECK(gguf_read(g, &g->tensors[0], 0, h, 4, &e) == ERR_UNSUPPORTED);
    gguf_close(g);
    h[4] = 1;
    CHECK(gguf_parse(h, len, 1 << 20, "tiny", &g, &e) == ERR_UNSUPPORTED && says("version 1") && says("convert the model again"));
    memcpy(h + 4, "\0\0\0\3", 4);
    CHECK(gguf_parse(h, len, 1 << 20, "tiny", &g, &e) == ERR_UNSUPPORTED && says("big-endian"));
    h[0] = 'X';
    CHECK(gguf_parse(h, len, 1 << 20, "tiny", &g, &e) == ERR_FORMAT && says("not a GGUF file"));
    free(h);

    enum { N = 300000 };
    uint8_t *many = calloc(N, 9);
    for (int i = 0; i < N; i++) {
        many[9 * i] = 1;
        many[9 * i + 8] = (uint8_t)('a' + i % 26);
    }
    struct gguf_writer *w;
    struct gguf_key k = { "many", GGUF_ARRAY, GGUF_STRING, N, many, (size_t)9 * N };
    CHECK(gguf_writer_new(&w, &e) == 0 && gguf_writer_kv_raw(w, &k, &e) == 0);
    CHECK(gguf_writer_u32(w, "after", 7, &e) == 0);
    CHECK(gguf_writer_save(w, in_dir("many.gguf"), NULL, NULL, &e) == 0);
    gguf_writer_free(w);
    free(many);
    CHECK(gguf_open(in_dir("many.gguf"), &g, &e) == 0);
    uint32_t v = 0;
    const struct gguf_key *found = gguf_find(g, "many");
    const char *s = NULL;
    uint64_t n, total = 0;
    size_t pos = 0;
    while (gguf_array_str(found, &pos, &s, &n))
        total += n == 1 && *s == (char)('a' + total % 26);
    CHECK(total == N && gguf_get_u32(g, "after", &v, &e) == 1 && v == 7);
    gguf_close(g);
    unlink(in_dir("many.gguf"));
}

static int two_parts(void *ctx, const struct gguf_tensor *t, struct gguf_part out[GGUF_MAX_PARTS], struct err *err)
{
    (void)ctx, (void)err;
    if (strcmp(t->name, "fused") && strcmp(t->name, "vector"))
        return 0;
    int vector = t->n_dims == 1;
    out[0] = (struct gguf_part){ .first = 0, .n = vector ? 5 : 3 };
    out[1] = (struct gguf_part){ .first = vector ? 5 : 1, .n = vector ? 7 : 3 }; /* matrices: rows 1 and 2 are in both */
    snprintf(out[0].name, sizeof out[0].name, "%s", vector ? "v1" : "a");
    snprintf(out[1].name, sizeof out[1].name, "%s", vector ? "v2" : "z");
    return 2;
}

/* Rows [first, first + n) of each of the experts of "fused", read in pieces of a length that divides nothing. */
static int is_part(const struct gguf *g, const char *name, uint64_t first, uint64_t n)
{
    const struct gguf_tensor *t = gguf_tensor(g, name);
    uint8_t all[3 * 3 * 400];
    if (!t || t->bytes != 3 * n * 400 || t->dims[1] != n || t->n_rows != 3 * n)
        return 0;
    for (uint64_t at = 0, k; at < t->bytes; at += k) {
        k = t->bytes - at < 999 ? t->bytes - at : 999;
        if (gguf_read(g, t, at, all + at, (size_t)k, &e) < 0)
            return 0;
    }
    for (uint64_t i = 0; i < t->bytes; i++)
        if (all[i] != content(0, (i / (n * 400) * 4 + first) * 400 + i % (n * 400)))
            return 0;
    return 1;
}

/* Parts of fused tensors: of experts, of vectors, with rows in common. */
static void parts(void)
{
    static const int number[] = { 0, 1, 2 };
    const uint64_t dims[4] = { 100, 4, 3, 1 }, vector[4] = { 12, 1, 1, 1 };
    struct fill_ctx c = { .number = number, .row_bytes = 1, .last = -1 };
    struct gguf_writer *w;
    struct gguf *g;
    struct hash128 one, again;
    CHECK(gguf_writer_new(&w, &e) == 0);
    CHECK(gguf_writer_tensor(w, "fused", QUANT_F32, 3, dims, &e) == 0 && gguf_writer_tensor(w, "other", QUANT_F32, 1, vector, &e) == 0 &&
          gguf_writer_tensor(w, "vector", QUANT_F32, 1, vector, &e) == 0);
    CHECK(gguf_writer_save(w, in_dir("fused.gguf"), fill, &c, &e) == 0);
    gguf_writer_free(w);
    CHECK(gguf_open(in_dir("fused.gguf"), &g, &e) == 0);
    CHECK(gguf_split(g, two_parts, NULL, &e) == 0 && g->n_tensors == 5 && !gguf_tensor(g, "fused") && gguf_tensor(g, "other"));
    CHECK(is_part(g, "a", 0, 3) && is_part(g, "z", 1, 3));
    const struct gguf_tensor *v = gguf_tensor(g, "v2");
    uint8_t bytes[28];
    CHECK(v && v->dims[0] == 7 && v->bytes == 28 && gguf_read(g, v, 0, bytes, 28, &e) == 0 && bytes[0] == content(2, 20));
    CHECK(gguf_hash(g, &one, NULL, NULL, NULL, &e) == 0);
    CHECK(gguf_split(g, two_parts, NULL, &e) == 0 && g->n_tensors == 5); /* nothing is left to split */
    CHECK(gguf_hash(g, &again, NULL, NULL, NULL, &e) == 0 && hash_equal(one, again));
    gguf_close(g);
    unlink(in_dir("fused.gguf"));
}

/* Added vectors are read and hashed as if they were in the file. */
static void added(void)
{
    static const int number[] = { 0, 1, 2 };
    const char names[2][64] = { "n", "z" };
    const uint64_t len[4] = { 12, 1, 1, 1 };
    struct fill_ctx c = { .number = number, .row_bytes = 1, .last = -1 };
    struct hash128 in_file, in_memory;
    float values[2][12], got[12];
    for (int n = 3; n >= 1; n -= 2) { /* all three in the file, then the first alone */
        struct gguf_writer *w;
        struct gguf *g;
        CHECK(gguf_writer_new(&w, &e) == 0 && gguf_writer_tensor(w, "o", QUANT_F32, 1, len, &e) == 0);
        for (int i = 0; i < n - 1; i++)
            CHECK(gguf_writer_tensor(w, names[i], QUANT_F32, 1, len, &e) == 0);
        CHECK(gguf_writer_save(w, in_dir("added.gguf"), fill, &c, &e) == 0);
        gguf_writer_free(w);
        CHECK(gguf_open(in_dir("added.gguf"), &g, &e) == 0 && g->n_tensors == (uint64_t)n);
        for (int i = 0; i < 2 && n == 3; i++)
            CHECK(gguf_read(g, gguf_tensor(g, names[i]), 0, values[i], sizeof got, &e) == 0);
        if (n == 1) {
            CHECK(gguf_add_vectors(g, 2, names, 12, NULL, values[0], &e) == 0 && g->n_tensors == 3);
            const struct gguf_tensor *t = gguf_tensor(g, "z");
            CHECK(t && t == &g->tensors[2] && gguf_read(g, t, 0, got, sizeof got, &e) == 0 && !memcmp(got, values[1], sizeof got));
            CHECK(t && gguf_read(g, t, 40, got, 8, &e) == 0 && !memcmp(got, &values[1][10], 8));
        }
        CHECK(gguf_hash(g, n == 1 ? &in_memory : &in_file, NULL, NULL, NULL, &e) == 0);
        gguf_close(g);
    }
    CHECK(hash_equal(in_file, in_memory));
    struct gguf *g;
    const char there[1][64] = { "o" };
    CHECK(gguf_open(in_dir("added.gguf"), &g, &e) == 0 && gguf_add_vectors(g, 1, there, 12, NULL, values[0], &e) == ERR_FORMAT &&
          strstr(e.msg, "'o' occurs twice"));
    gguf_close(g);
    unlink(in_dir("added.gguf"));
}

static void renumber(uint8_t *blob, size_t len, uint8_t from, uint8_t to, int n)
{
    const uint8_t number[4] = { from };
    for (uint8_t *p = blob; p < blob + len - 4 && n > 0; p++)
        if (!memcmp(p, number, 4))
            *p = to, n--;
}

/* Two tensors of Q2_0 and one of F32, blocks of 64 or of 128: files may number both 42, the sizes tell. Where neither has room the message
 * is that of 64, and our own numbers are none. */
static void two_bits(void)
{
    static const struct {
        uint32_t type;
        int number, older;         /* as written; 1: but numbered 42 */
        uint64_t less;             /* bytes that the file lacks */
        int r;
    } cases[] = { { QUANT_Q2_0, 42, 0, 0, 0 }, { QUANT_Q2_0_128, 142, 0, 0, 0 }, { QUANT_Q2_0_128, 142, 1, 0, 0 },
                  { QUANT_PTQ1_0, 143, 0, 0, 0 }, { QUANT_Q2_0, 42, 0, 6000, ERR_FORMAT }, { QUANT_Q2_0_128, 142, 0, 6000, ERR_FORMAT },
                  { QUANT_Q2_0_128, 142, 1, 6000, ERR_FORMAT } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t dims[2] = { 256, 64 }, vector[1] = { 16 };
        const uint64_t bytes = 64 * quant_row_bytes(cases[i].type, 256);
        struct gguf_writer *w;
        struct gguf *g = NULL;
        uint8_t *blob;
        size_t len;
        tiny_check(gguf_writer_new(&w, &e), &e);
        tiny_check(gguf_writer_tensor(w, "a", cases[i].type, 2, dims, &e), &e);
        tiny_check(gguf_writer_tensor(w, "b", QUANT_F32, 1, vector, &e), &e);
        tiny_check(gguf_writer_tensor(w, "c", cases[i].type, 2, dims, &e), &e);
        tiny_check(gguf_writer_blob(w, &blob, &len, &e), &e);
        gguf_writer_free(w);
        uint8_t number = cases[i].older ? 42 : (uint8_t)cases[i].number;
        renumber(blob, len, (uint8_t)cases[i].number, number, 2);
        int r = gguf_parse(blob, len, (len + 31) / 32 * 32 + 2 * bytes + 64 - cases[i].less, "two bits", &g, &e);
        CHECK_MSG(r == cases[i].r, "%zu: %d", i, r);
        if (r == 0)
            CHECK(gguf_tensor(g, "a")->type == cases[i].type && gguf_tensor(g, "c")->type == cases[i].type &&
                  gguf_tensor(g, "c")->bytes == bytes && gguf_tensor(g, "b")->type == QUANT_F32);
        else
            CHECK(says("run past the end"));
        gguf_close(g);
        g = NULL;
        for (int own = QUANT_PTQ1_0; own <= QUANT_Q2_0_128; own++, number = (uint8_t)(own - 1)) {
            renumber(blob, len, number, (uint8_t)own, 1);
            CHECK(gguf_parse(blob, len, 1 << 20, "two bits", &g, &e) == ERR_UNSUPPORTED && says(own == 62 ? "type 62 is" : "type 63 is"));
            gguf_close(g);
        }
        free(blob);
    }
}

static void writer_refuses(void)
{
    struct gguf_writer *w;
    uint64_t dims[4] = { 33, 1, 1, 1 }, huge[4] = { 1u << 31, 1u << 31, 1u << 31, 2 };
    CHECK(gguf_writer_new(&w, &e) == 0);
    CHECK(gguf_writer_tensor(w, "t", QUANT_Q4_0, 1, dims, &e) == ERR_USAGE && says("33"));
    CHECK(gguf_writer_tensor(w, "t", 999, 1, dims, &e) == ERR_USAGE);
    CHECK(gguf_writer_tensor(w, "t", QUANT_F32, 5, dims, &e) == ERR_USAGE);
    CHECK(gguf_writer_tensor(w, "t", QUANT_F32, 4, huge, &e) == ERR_LIMIT);
    CHECK(gguf_writer_tensor(w, "t", QUANT_F32, 1, dims, &e) == 0);
    CHECK(gguf_writer_tensor(w, "t", QUANT_F32, 1, dims, &e) == ERR_USAGE && says("twice"));
    CHECK(gguf_writer_u32(w, "late", 1, &e) == ERR_USAGE && says("after a tensor"));
    gguf_writer_free(w);
}

int main(void)
{
    test_path(dir, sizeof dir, "test-gguf-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    embedded();
    getters();
    files_and_hash();
    shards();
    heads();
    parts();
    added();
    writer_refuses();
    two_bits();
    CHECK(rmdir(dir) == 0);
    return test_done();
}
