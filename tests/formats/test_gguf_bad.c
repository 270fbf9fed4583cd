/* Broken GGUF headers: cut at every byte, every byte changed, and what a forger would write by hand. Whatever
 * they say, reading ends in an error that names the file or in a result that is well-formed. */
#include "common/model/model.h"
#include "common/model/tokenizer.h"
#include "tests/test.h"
#include "tests/tiny_gguf.h"

#include <unistd.h>

#define FILE_SIZE (1u << 20)

static struct err e;

static int says(const char *text)
{
    if (strstr(e.msg, text))
        return 1;
    printf("# message is: %s\n", e.msg);
    return 0;
}

static int is_format_error(int r)
{
    return (r == ERR_FORMAT || r == ERR_UNSUPPORTED || r == ERR_LIMIT) && !strncmp(e.msg, "'bad'", 5);
}

/* Every promise of gguf.h about the tables, and everything that is built on them. */
static int well_formed(const struct gguf *g, size_t len)
{
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (t->bytes == 0 || t->offset < len / 2 || t->offset % g->alignment || t->bytes > FILE_SIZE - t->offset ||
            t->row_bytes * t->n_rows != t->bytes || gguf_tensor(g, t->name) != t)
            return 0;
    }
    for (uint64_t i = 0; i < g->n_keys; i++) {
        const struct gguf_key *k = &g->keys[i];
        const char *s;
        uint64_t n, count = 0;
        size_t pos = 0;
        while (gguf_array_str(k, &pos, &s, &n))
            count++;
        if (gguf_find(g, k->name) != k || (k->type == GGUF_ARRAY && k->elem_type == GGUF_STRING && count != k->n))
            return 0;
    }
    return 1;
}

/* 0 refused with a good message, 1 accepted and well-formed, -1 neither. */
static int try_parse(const void *data, size_t len)
{
    struct gguf *g;
    struct model *m;
    struct tokenizer *t;
    uint8_t *copy = malloc(len ? len : 1); /* exactly as long, so that a sanitizer sees a read past the end */
    memcpy(copy, data, len);
    int r = gguf_parse(copy, len, FILE_SIZE, "bad", &g, &e), ok = 0;
    if (r < 0) {
        ok = is_format_error(r) ? 0 : -1;
    } else {
        ok = well_formed(g, len) ? 1 : -1;
        if ((r = model_open(g, NULL, &m, &e)) == 0)
            model_close(m);
        else if (!is_format_error(r))
            ok = -1;
        if ((r = tokenizer_open(g, &t, &e)) == 0) {
            int32_t *ids;
            int n;
            if (tokenizer_encode(t, "ab a <s>", 8, 1, 1, &ids, &n, &e) == 0)
                free(ids);
            tokenizer_close(t);
        } else if (!is_format_error(r)) {
            ok = -1;
        }
        gguf_close(g);
    }
    if (ok < 0)
        printf("# code %d, message: %s\n", r, e.msg);
    free(copy);
    return ok;
}

static void truncation(void)
{
    size_t len;
    uint8_t *h = tiny_header(NULL, QUANT_F16, NULL, 0, &len);
    CHECK(try_parse(h, len) == 1);
    int refused = 0, named = 0;
    for (size_t n = 0; n < len; n++) {
        refused += try_parse(h, n) == 0;
        named += strstr(e.msg, "truncated") != NULL;
    }
    CHECK_MSG(refused == (int)len && named == (int)len, "%d refused, %d named of %zu", refused, named, len);
    free(h);
}

/* Every byte of the header to several other values. */
static void flips(void)
{
    static const uint8_t with[] = { 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff };
    static const struct tiny_edit relu[] = { { "llama.hidden_act", 's', 0, "relu" },
                                             { "general.alignment", 'u', 64, NULL }, { 0 } };
    size_t len;
    uint8_t *h = tiny_header(relu, QUANT_Q8_0, NULL, 0, &len);
    int accepted = 0, bad = 0;
    for (size_t i = 0; i < len; i++)
        for (size_t k = 0; k < sizeof with; k++) {
            h[i] ^= with[k];
            int r = try_parse(h, len);
            accepted += r == 1;
            bad += r < 0;
            h[i] ^= with[k];
        }
    CHECK_MSG(bad == 0, "%d of %zu changes", bad, len * sizeof with);
    CHECK(accepted > 0 && accepted < (int)(len * sizeof with));
    free(h);
}

/* --- written by hand --------------------------------------------------------------------- */

struct raw {
    uint8_t d[4096];
    size_t n;
};

static struct raw raw_head(uint64_t n_tensors, uint64_t n_keys)
{
    struct raw r = { .n = 24 };
    memcpy(r.d, "GGUF\3\0\0", 8);
    bytes_put64(r.d + 8, n_tensors);
    bytes_put64(r.d + 16, n_keys);
    return r;
}

static void put32(struct raw *r, uint32_t v)
{
    bytes_put32(r->d + r->n, v);
    r->n += 4;
}

static void put64(struct raw *r, uint64_t v)
{
    bytes_put64(r->d + r->n, v);
    r->n += 8;
}

static void put_text(struct raw *r, const char *s, size_t len)
{
    put64(r, len);
    memcpy(r->d + r->n, s, len);
    r->n += len;
}

/* dims: six, of which n_dims are meant (a forger's n_dims may be anything). */
static void put_tensor(struct raw *r, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset)
{
    put_text(r, name, strlen(name));
    put32(r, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 6; i++)
        put64(r, dims[i]);
    put32(r, type);
    put64(r, offset);
}

static int refused(const struct raw *r, const char *text)
{
    return try_parse(r->d, r->n) == 0 && says(text);
}

static int tensor_refused(uint32_t n_dims, uint64_t d0, uint64_t d1, uint64_t d2, uint64_t d3, uint32_t type,
                          uint64_t offset, const char *text)
{
    uint64_t dims[6] = { d0, d1, d2, d3, 1, 1 };
    struct raw r = raw_head(1, 0);
    put_tensor(&r, "t", n_dims, dims, type, offset);
    return refused(&r, text) && (says("'t'") || says("tensor 0"));
}

static void tensors(void)
{
    const uint64_t big = 1ull << 63, half = 1ull << 32;
    uint64_t dims[6] = { 32, 4 };
    CHECK(tensor_refused(5, 1, 1, 1, 1, 0, 0, "5 dimensions"));
    CHECK(tensor_refused(0, 1, 1, 1, 1, 0, 0, "0 dimensions"));
    CHECK(tensor_refused(UINT32_MAX, 1, 1, 1, 1, 0, 0, "4294967295 dimensions"));
    CHECK(tensor_refused(2, 32, 0, 1, 1, 0, 0, "dimension 1 is 0"));
    CHECK(tensor_refused(3, 1, half, half, 1, 0, 0, "product of its dimensions overflows"));
    CHECK(tensor_refused(2, half, half, 1, 1, 0, 0, "its size overflows"));
    CHECK(tensor_refused(1, big, 1, 1, 1, 0, 0, "its size overflows"));
    CHECK(tensor_refused(1, UINT64_MAX, 1, 1, 1, 0, 0, "its size overflows"));
    CHECK(tensor_refused(1, UINT64_MAX - 31, 1, 1, 1, QUANT_Q4_0, 0, "past the end"));
    CHECK(tensor_refused(1, 33, 1, 1, 1, QUANT_Q4_0, 0, "33 is not a multiple of the 32"));
    CHECK(tensor_refused(1, 32, 1, 1, 1, 4, 0, "element type 4"));
    CHECK(tensor_refused(1, 32, 1, 1, 1, UINT32_MAX, 0, "element type 4294967295"));
    CHECK(tensor_refused(1, 32, 1, 1, 1, 133, 0, "element type 133 (Q6_0 of ik_llama.cpp) is not known"));
    CHECK(tensor_refused(1, 32, 1, 1, 1, 0, 8, "multiple of the alignment 32"));
    CHECK(tensor_refused(1, 32, 1, 1, 1, 0, FILE_SIZE, "past the end"));
    CHECK(tensor_refused(1, 32, 1, 1, 1, 0, UINT64_MAX - 31, "past the end"));
    CHECK(tensor_refused(2, 1024, 1024, 1, 1, 0, 0, "past the end"));
    struct raw r = raw_head(2, 0);
    put_tensor(&r, "a", 2, dims, 0, 0);
    put_tensor(&r, "b", 2, dims, 0, 480);
    CHECK(refused(&r, "'a' and 'b' overlap"));
    r = raw_head(2, 0);
    put_tensor(&r, "b", 2, dims, 0, 512);
    put_tensor(&r, "a", 2, dims, 0, 0);
    CHECK(try_parse(r.d, r.n) == 1);
    r = raw_head(2, 0);
    put_tensor(&r, "a", 2, dims, 0, 0);
    put_tensor(&r, "a", 2, dims, 0, 512);
    CHECK(refused(&r, "tensor 'a' occurs twice"));
    char name[300];
    memset(name, 'n', sizeof name);
    name[299] = '\0';
    r = raw_head(1, 0);
    put_tensor(&r, name, 2, dims, 0, 0);
    CHECK(refused(&r, "name of tensor 0 has 299 bytes"));
}

static void keys(void)
{
    struct raw r = raw_head(0, 1);
    put64(&r, 1ull << 63);
    CHECK(refused(&r, "name of key 0 has 9223372036854775808 bytes"));
    r = raw_head(0, 1);
    put_text(&r, "", 0);
    CHECK(refused(&r, "name of key 0 has 0 bytes"));
    static const struct { const char *name; size_t len; } names[] = {
        { "a\0b", 3 }, { "a\nb", 3 }, { "a\xff", 2 }, { "\x1b[2J", 4 }, { "\xc2\x9b", 2 }, { "\xed\xa0\x80", 3 },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        r = raw_head(0, 1);
        put_text(&r, names[i].name, names[i].len);
        put32(&r, GGUF_BOOL);
        r.d[r.n++] = 1;
        CHECK(refused(&r, "not printable UTF-8"));
    }
    r = raw_head(0, 1);
    put_text(&r, "k", 1);
    put32(&r, 13);
    CHECK(refused(&r, "key 'k' is of unknown type 13"));
    r = raw_head(0, 1);
    put_text(&r, "k", 1);
    put32(&r, GGUF_STRING);
    put64(&r, 1ull << 63);
    CHECK(refused(&r, "key 'k' holds a string of 9223372036854775808 bytes"));
    r = raw_head(0, 1);
    put_text(&r, "k", 1);
    put32(&r, GGUF_STRING);
    put64(&r, 1 << 20);
    CHECK(refused(&r, "truncated: key 'k'"));
    r = raw_head(0, 2);
    for (int i = 0; i < 2; i++) {
        put_text(&r, "k", 1);
        put32(&r, GGUF_U32);
        put32(&r, 1);
    }
    CHECK(refused(&r, "key 'k' occurs twice"));
    static const struct { uint32_t type; uint64_t n; const char *text; } arrays[] = {
        { GGUF_ARRAY, 1, "array of arrays" }, { 99, 1, "unknown element type 99" },
        { GGUF_U64, UINT64_MAX, "18446744073709551615 elements" }, { GGUF_U8, 1ull << 40, "1099511627776 elements" },
        { GGUF_U64, 1u << 26, "truncated" }, { GGUF_STRING, 1u << 26, "truncated" },
        { GGUF_STRING, 1ull << 61, "elements, more than" },
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        r = raw_head(0, 1);
        put_text(&r, "k", 1);
        put32(&r, GGUF_ARRAY);
        put32(&r, arrays[i].type);
        put64(&r, arrays[i].n);
        CHECK(refused(&r, arrays[i].text) && says("key 'k'"));
    }
}

static int alignment(uint32_t type, uint32_t v, const char *text)
{
    struct raw r = raw_head(0, 1);
    put_text(&r, "general.alignment", 17);
    put32(&r, type);
    put32(&r, v);
    return text ? refused(&r, text) : try_parse(r.d, r.n) == 1;
}

static void heads(void)
{
    struct raw r = raw_head(0, 0);
    CHECK(try_parse(r.d, r.n) == 1); /* nothing in it, and that is allowed */
    r = raw_head(UINT64_MAX, 0);
    CHECK(refused(&r, "18446744073709551615 tensors"));
    r = raw_head(0, UINT64_MAX);
    CHECK(refused(&r, "18446744073709551615 keys"));
    r = raw_head(GGUF_MAX_TENSORS, GGUF_MAX_KEYS); /* allowed, but nothing follows */
    CHECK(refused(&r, "truncated"));
    CHECK(alignment(GGUF_U32, 0, "'general.alignment' is 0") && alignment(GGUF_U32, 3, "is 3, not a power of two"));
    CHECK(alignment(GGUF_U32, 1u << 31, "more than the limit"));
    CHECK(alignment(GGUF_I32, 32, "of type i32") && alignment(GGUF_U32, 1, NULL) && alignment(GGUF_U32, 4096, NULL));
}

/* The same through a file: its size is what counts. */
static void files(void)
{
    char path[512];
    struct gguf *g;
    size_t len;
    uint8_t *h = tiny_header(NULL, QUANT_F16, NULL, 0, &len);
    test_path(path, sizeof path, "gguf-bad-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, h, len) == (ssize_t)len);
    CHECK(gguf_open(path, &g, &e) == ERR_FORMAT && says("past the end of the file") && says(path));
    CHECK(ftruncate(fd, FILE_SIZE) == 0 && gguf_open(path, &g, &e) == 0);
    uint8_t byte = 1;
    CHECK(gguf_read(g, &g->tensors[0], 0, &byte, 1, &e) == 0 && byte == 0);
    CHECK(ftruncate(fd, (off_t)len) == 0);
    CHECK(gguf_read(g, &g->tensors[0], 0, &byte, 1, &e) < 0 && says("token_embd.weight"));
    CHECK(gguf_hash(g, &(struct hash128){ 0 }, NULL, NULL, NULL, &e) < 0 && says("token_embd.weight"));
    gguf_close(g);
    CHECK(ftruncate(fd, 0) == 0 && gguf_open(path, &g, &e) == ERR_FORMAT && says("it is empty"));
    close(fd);
    unlink(path);
    free(h);
}

int main(void)
{
    truncation();
    flips();
    tensors();
    keys();
    heads();
    files();
    return test_done();
}
