/* A file whose bytes change between two readings of it: whatever is read again is what came before, or the error names the place. And
 * weights that are no finite numbers, wherever a tensor is read for the first time. */
#include "common/base/splitmix.h"
#include "common/model/gguf.h"
#include "tests/test.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct err e;
static char path[512];

static const struct { const char *name; uint32_t type; uint64_t dims[3]; } made[] = {
    { "small", QUANT_F32, { 5, 1, 1 } },
    { "rows", QUANT_F16, { 704, 61, 1 } },       /* 85 kB: the last piece is not whole */
    { "blocks", QUANT_Q8_0, { 96, 1000, 1 } },   /* a piece ends within a block */
    { "supers", QUANT_Q6_K, { 512, 700, 1 } },
    { "experts", QUANT_F32, { 96, 120, 8 } },    /* gate and up, fused */
};
enum { MADE = sizeof made / sizeof *made };

/* Values that no type makes infinite. */
static int fill(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *err)
{
    (void)ctx, (void)err;
    const struct quant_traits *q = quant_traits(made[tensor].type);
    uint64_t state = (uint64_t)tensor << 32 | offset;
    float v[256];
    for (size_t at = 0, n = q->block_elems > 1 ? (size_t)q->block_elems : 1; at < len; at += (size_t)q->block_bytes) {
        for (size_t i = 0; i < n; i++)
            v[i] = (float)(splitmix_next(&state) >> 40) * 0x1p-23f - 1;
        q->quant((uint8_t *)buf + at, v, n);
    }
    return 0;
}

static void make(void)
{
    struct gguf_writer *w;
    CHECK(gguf_writer_new(&w, &e) == 0);
    for (int i = 0; i < MADE; i++)
        CHECK(gguf_writer_tensor(w, made[i].name, made[i].type, made[i].dims[2] > 1 ? 3 : 2, made[i].dims, &e) == 0);
    CHECK_MSG(gguf_writer_save(w, path, fill, NULL, &e) == 0, "%s", e.msg);
    gguf_writer_free(w);
}

static int parts(void *ctx, const struct gguf_tensor *t, struct gguf_part out[GGUF_MAX_PARTS], struct err *err)
{
    (void)ctx, (void)err;
    if (strcmp(t->name, "experts"))
        return 0;
    out[0] = (struct gguf_part){ "gates", 0, 60 };
    out[1] = (struct gguf_part){ "ups", 60, 60 };
    return 2;
}

static struct gguf *opened(void)
{
    struct gguf *g = NULL;
    CHECK_MSG(gguf_open(path, &g, &e) == 0 && gguf_split(g, parts, NULL, &e) == 0, "%s", e.msg);
    return g;
}

/* Where a byte of a tensor is in the file. */
static uint64_t place(const struct gguf_tensor *t, uint64_t at)
{
    uint64_t piece = t->piece_bytes ? at / t->piece_bytes : 0;
    return t->offset + piece * t->stride_bytes + at - piece * t->piece_bytes;
}

static void put(uint64_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, bytes, n, (off_t)at) == (ssize_t)n);
    close(fd);
}

static void flip(uint64_t at)
{
    uint8_t b = 0;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && pread(fd, &b, 1, (off_t)at) == 1);
    close(fd);
    b ^= 0x10;
    put(at, &b, 1);
}

static int says(const char *text)
{
    if (strstr(e.msg, text))
        return 1;
    printf("# looking for '%s' in: %s\n", text, e.msg);
    return 0;
}

/* Ranges of every tensor while one byte of it is another: what comes is right, or it is an error; an error there is where the byte is among
 * those that were asked for, and it names file, tensor and a place before which nothing differs. */
static void other_byte(const struct gguf *g, int rounds)
{
    uint64_t state = 7;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        uint8_t *right = malloc(t->bytes), *got = malloc(t->bytes);
        int found = 0, passed = 0;
        CHECK_MSG(gguf_read(g, t, 0, right, t->bytes, &e) == 0, "%s", e.msg);
        for (int k = 0; k < rounds; k++) {
            uint64_t at = splitmix_next(&state) % t->bytes, from = splitmix_next(&state) % t->bytes;
            uint64_t n = 1 + splitmix_next(&state) % (t->bytes - from);
            if (k % 4 == 1)
                from = at, n = t->bytes - at < 50 ? t->bytes - at : 50;
            if (k % 4 == 0)
                n = n < 100 ? n : 100; /* a row */
            flip(place(t, at));
            int r = gguf_read(g, t, from, got, n, &e);
            flip(place(t, at));
            CHECK_MSG(r == ERR_IO || (r == 0 && (at < from || at >= from + n) && !memcmp(got, right + from, n)), "%s: %d", t->name, r);
            CHECK(r == 0 || (says(path) && says(t->name) && says("at offset ")));
            found += r < 0, passed += r == 0;
            CHECK(gguf_read(g, t, from, got, n, &e) == 0 && !memcmp(got, right + from, n));
        }
        CHECK_MSG(found > 0 && (passed > 0 || t->bytes <= 16384), "%s: %d found, %d passed", t->name, found, passed);
        free(right), free(got);
    }
}

static void after_hashing(void)
{
    struct hash128 a, b, each[MADE + 1];
    struct gguf *g = opened();
    CHECK(gguf_hash(g, &a, each, NULL, NULL, &e) == 0);
    other_byte(g, 60);
    CHECK(gguf_hash(g, &b, NULL, NULL, NULL, &e) == 0 && hash_equal(a, b));
    const struct gguf_tensor *t = gguf_tensor(g, "supers");
    flip(place(t, 40000));
    CHECK(gguf_hash(g, &b, NULL, NULL, NULL, &e) == ERR_IO && says("'supers'") && says("bytes 32768 to 49151"));
    flip(place(t, 40000));
    gguf_close(g);
}

/* Nothing was hashed: the first reading, of a row or of all, is what later ones are compared with; and with hashes that are known. */
static void first_readings(void)
{
    struct hash128 each[MADE + 1];
    struct gguf *g = opened();
    CHECK(gguf_hash(g, NULL, each, NULL, NULL, &e) == 0);
    gguf_close(g);
    g = opened();
    CHECK(gguf_expect(g, NULL, NULL, &e) == 0);
    other_byte(g, 20);
    gguf_close(g);
    g = opened();
    CHECK(gguf_expect(g, each, "t.h5", &e) == 0);
    other_byte(g, 20);
    gguf_close(g);
    for (int whose = 0; whose < 2; whose++) {
        uint8_t row[96];
        g = opened();
        const struct gguf_tensor *t = gguf_tensor(g, "ups");
        each[t - g->tensors].lo ^= 1;
        CHECK(gguf_expect(g, each, whose ? "t.h5" : NULL, &e) == 0);
        CHECK(gguf_read(g, t, 500, row, sizeof row, &e) == (whose ? ERR_MISMATCH : ERR_IO) && says("'ups'") && says(path));
        CHECK(!whose || says("traced in 't.h5'"));
        CHECK(gguf_read(g, gguf_tensor(g, "rows"), 500, row, sizeof row, &e) == 0);
        each[t - g->tensors].lo ^= 1;
        gguf_close(g);
    }
}

/* As a packer reads: pieces of any length, in order. */
static void in_order(void)
{
    struct hash128 each[MADE + 1];
    struct gguf *g = opened();
    CHECK(gguf_hash(g, NULL, each, NULL, NULL, &e) == 0);
    gguf_close(g);
    for (int wrong = 0; wrong < 2; wrong++) {
        g = opened();
        const struct gguf_tensor *bad = gguf_tensor(g, "gates");
        each[bad - g->tensors].hi ^= (uint64_t)wrong;
        CHECK(gguf_expect(g, each, "t.h5", &e) == 0);
        uint64_t state = 3;
        for (uint64_t i = 0; i < g->n_tensors; i++) {
            const struct gguf_tensor *t = &g->tensors[i];
            uint8_t *buf = malloc(t->bytes);
            int r = gguf_read_ahead(g, t, buf, t->bytes < 10 ? 1 : 10, &e);
            for (uint64_t at = 0, n; at < t->bytes && r == 0; at += n) {
                n = 1 + splitmix_next(&state) % 40000;
                n = n < t->bytes - at ? n : t->bytes - at;
                r = gguf_read_next(g, t, buf + at, n, &e);
            }
            CHECK_MSG(r == (wrong && t == bad ? ERR_MISMATCH : 0), "%s: %s", t->name, e.msg);
            free(buf);
        }
        if (!wrong)
            other_byte(g, 20);
        gguf_close(g);
    }
}

/* An element or a scale of each tensor that is no finite number, in all the ways of a first reading. */
static void not_finite(void)
{
    static const struct { const char *name; uint64_t at; const char *bytes; size_t n; const char *what; } bad[] = {
        { "small", 8, "\0\0\xc0\x7f", 4, "element 2 is nan" },
        { "rows", 80002, "\0\xfc", 2, "element 40001 is -inf" },
        { "blocks", 34 * 482, "\1\x7c", 2, "the Q8_0 block of elements 15424 to 15455 has a scale that is not a finite number" },
        { "supers", 210 * 1399 + 208, "\0\x7c", 2, "elements 358144 to 358399" },
        { "gates", 4 * (96 * 60 * 7 + 1), "\0\0\x80\x7f", 4, "element 40321 is inf" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int way = 0; way < 3; way++) {
            struct gguf *g = opened();
            const struct gguf_tensor *t = gguf_tensor(g, bad[i].name);
            uint8_t *buf = malloc(t->bytes);
            put(place(t, bad[i].at), bad[i].bytes, bad[i].n);
            int r = way == 0 ? gguf_hash(g, NULL, NULL, NULL, NULL, &e) : gguf_expect(g, NULL, NULL, &e);
            r = way == 1 ? gguf_read(g, t, 0, buf, 1, &e) : r;
            for (uint64_t at = 0; way == 2 && at < t->bytes && r == 0; at += 7)
                r = gguf_read_next(g, t, buf, t->bytes - at < 7 ? t->bytes - at : 7, &e);
            CHECK_MSG(r == ERR_FORMAT && says(path) && says(bad[i].name) && says(bad[i].what), "%s, %d: %d", bad[i].name, way, r);
            free(buf);
            gguf_close(g);
            make();
        }
}

int main(void)
{
    static char dir[256];
    test_path(dir, sizeof dir, "test-content-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    make();
    after_hashing();
    first_readings();
    in_order();
    not_finite();
    unlink(path);
    CHECK(rmdir(dir) == 0);
    return test_done();
}
