/* Damaged packed models: every truncation, every byte of header and table changed, and fields changed with the
 * checksums made right again, as somebody who means harm would. Nothing may crash; what opens must
 * be readable from end to end. */
#include "common/base/bytes.h"
#include "common/kernels/kernels.h"
#include "common/pack/pack.h"
#include "tests/pack_sample.h"

#include <unistd.h>

static uint8_t *good;
static size_t good_len;

static int try_open(const uint8_t *data, size_t len, struct err *e)
{
    struct pack *p = NULL;
    int r = pack_parse(data, len, "bad", &p, e);
    if (r < 0)
        return r;
    uint32_t order[SAMPLE_FF];
    uint64_t sum;
    struct err e2;
    for (int i = 0; i < p->n_dense; i++) {
        uint8_t *out = malloc(p->dense[i].bytes);
        if (out)
            pack_dense_read(p, &p->dense[i], out, &e2);
        free(out);
    }
    for (int i = 0; i < p->n_predictors; i++) {
        struct predict q;
        struct pack_predictor_figures f;
        uint8_t *out = aligned_alloc(64, p->predictors[i].bytes);
        if (out)
            pack_predictor_read(p, &p->predictors[i], out, &q, &f, &e2);
        free(out);
    }
    if (p->shapes.n_ff == SAMPLE_FF)
        pack_order(p, p->h.n_layers - 1, 0, order, &e2);
    pack_cluster_checksum(p, p->h.n_layers - 1, 0, p->shapes.n_parts - 1, p->shapes.n_clusters - 1, &sum, &e2);
    pack_close(p);
    return 0;
}

static void truncations(void)
{
    struct err e;
    int opened = 0;
    for (size_t n = 0; n < good_len; n += n < 8192 ? 1 : 97) {
        uint8_t *cut = malloc(n ? n : 1); /* exact size, so that a sanitizer sees any read beyond */
        memcpy(cut, good, n);
        opened += try_open(cut, n, &e) == 0;
        free(cut);
    }
    CHECK_MSG(opened == 0, "%d truncated files opened", opened);
}

static size_t toc_begin(void)
{
    return (size_t)bytes_le64(good + 40);
}

static size_t toc_end(void)
{
    return toc_begin() + (size_t)bytes_le32(good + 48) * PACK_ENTRY_BYTES;
}

static void flips(void)
{
    struct err e;
    uint8_t *copy = malloc(good_len);
    int opened = 0;
    for (size_t i = 0; i < toc_end(); i++) {
        if (i >= PACK_HEADER_BYTES && i < toc_begin())
            continue;
        memcpy(copy, good, good_len);
        copy[i] ^= (uint8_t)(1u << i % 8);
        opened += try_open(copy, good_len, &e) == 0;
    }
    CHECK_MSG(opened == 0, "%d files with a changed header or table opened", opened);
    free(copy);
}

static void mend(uint8_t *b)
{
    size_t toc = (size_t)bytes_le64(b + 40), len = (size_t)bytes_le32(b + 48) * PACK_ENTRY_BYTES;
    if (toc <= good_len && len <= good_len - toc)
        bytes_put64(b + 56, hash_64(b + toc, len));
    bytes_put64(b + 248, hash_64(b, 248));
}

/* Every 32-bit word of header and table set to interesting values, checksums mended. */
static void forgeries(void)
{
    static const uint32_t values[] = { 0, 1, 2, 3, 15, 16, 0x7fffffff, 0x80000000u, 0xffffffffu, 4096, 1u << 20 };
    struct err e;
    uint8_t *copy = malloc(good_len);
    int refused = 0;
    for (size_t i = 8; i < toc_end(); i += 4) {
        if (i >= PACK_HEADER_BYTES - 8 && i < toc_begin())
            continue;
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            memcpy(copy, good, good_len);
            bytes_put32(copy + i, values[v]);
            mend(copy);
            refused += try_open(copy, good_len, &e) < 0;
        }
    }
    CHECK(refused > 1000);
    memcpy(copy, good, good_len);
    bytes_put64(copy + 24, 1ull << 63);
    mend(copy);
    CHECK(try_open(copy, good_len, &e) == ERR_UNSUPPORTED && strstr(e.msg, "8000000000000000"));
    memcpy(copy, good, good_len);
    bytes_put64(copy + 24, PACK_INCOMPAT_MTP); /* no layer that predicts further tokens, by its metadata */
    mend(copy);
    CHECK(try_open(copy, good_len, &e) == ERR_FORMAT && strstr(e.msg, "feature_incompat is 1"));
    memcpy(copy, good, good_len);
    bytes_put64(copy + 24, PACK_INCOMPAT_UNGATED); /* its FFNs have gates */
    mend(copy);
    CHECK(try_open(copy, good_len, &e) == ERR_FORMAT);
    memcpy(copy, good, good_len);
    bytes_put32(copy + 8, 2);
    mend(copy);
    CHECK(try_open(copy, good_len, &e) == ERR_UNSUPPORTED && strstr(e.msg, "revision 2"));
    memcpy(copy, good, good_len);
    bytes_put64(copy + 16, 1ull << 63); /* a feature that may be ignored */
    mend(copy);
    CHECK_MSG(try_open(copy, good_len, &e) == 0, "%s", e.msg);
    memcpy(copy, good, good_len);
    memcpy(copy, "THRMPACK", 8);
    CHECK(try_open(copy, good_len, &e) == ERR_UNSUPPORTED && strstr(e.msg, "before 0.2.0; make it again with 'thermo-pack pack'"));
    memcpy(copy, good, good_len);
    memcpy(copy, "GGUF", 4);
    CHECK(try_open(copy, good_len, &e) == ERR_FORMAT && strstr(e.msg, "thermo-pack pack"));
    free(copy);
}

/* Damage in a tensor is found when it is read and named; in a cluster, by its section's checksum. */
static void payload(void)
{
    struct err e;
    struct pack *p = NULL;
    uint8_t *copy = malloc(good_len);
    memcpy(copy, good, good_len);
    CHECK(pack_parse(copy, good_len, "bad", &p, &e) == 0);
    if (!p)
        return;
    const struct pack_dense *d = pack_dense_find(p, MODEL_ATTN_K, 1);
    float out[SAMPLE_D * SAMPLE_D];
    copy[d->offset + 5] ^= 4;
    CHECK(pack_dense_read(p, d, out, &e) == ERR_FORMAT && strstr(e.msg, "attn_k of layer 1"));
    d = pack_dense_find(p, MODEL_ATTN_Q, 0);
    copy[d->offset + d->stored_bytes / 2] ^= 4;
    CHECK(pack_dense_read(p, d, out, &e) == ERR_FORMAT && strstr(e.msg, "attn_q of layer 0"));
    copy[pack_unit_offset(p, 1, 0, 0, 0) + 3] ^= 1;
    int bad = 0;
    char text[200];
    CHECK(pack_verify_segments(p, &bad, text, sizeof text, &e) == 0 && bad == 1 && strstr(text, "layer 1"));
    pack_close(p);
    free(copy);
}

static uint8_t *types_entry(uint8_t *b)
{
    for (size_t at = toc_begin(); at < toc_end(); at += PACK_ENTRY_BYTES)
        if (bytes_le32(b + at) == PACK_TYPES)
            return b + at;
    return NULL;
}

/* Types of layers other than those that were written, with every checksum made right: sizes or the layout's hash tell. */
static void types(void)
{
    static const uint32_t values[] = { QUANT_F32, QUANT_F16, QUANT_Q4_0, QUANT_Q8_0, QUANT_Q6_K, 3, 39, 255, 256, 0x80000000u, UINT32_MAX };
    struct err e;
    int opened = 0;
    uint8_t *copy = malloc(good_len);
    memcpy(copy, good, good_len);
    uint8_t *entry = types_entry(copy), *own = copy + bytes_le64(entry + 64);
    CHECK(bytes_le64(entry + 72) == SAMPLE_LAYERS * LAYOUT_ROLES * 4);
    for (int i = 0; i < SAMPLE_LAYERS * LAYOUT_ROLES; i++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            uint32_t was = bytes_le32(own + 4 * i);
            bytes_put32(own + 4 * i, values[v]);
            bytes_put64(entry + 88, hash_64(own, SAMPLE_LAYERS * LAYOUT_ROLES * 4));
            mend(copy);
            opened += values[v] != was && try_open(copy, good_len, &e) == 0;
            bytes_put32(own + 4 * i, was);
        }
    CHECK_MSG(opened == 0, "%d packs with other types opened", opened);
    memcpy(copy, good, good_len);
    own[4] ^= 1;
    CHECK(try_open(copy, good_len, &e) == ERR_FORMAT && strstr(e.msg, "table of types is damaged"));
    memcpy(copy, good, good_len);
    bytes_put32(copy + 136, QUANT_Q8_0); /* most layers, of equals the first, have F32 */
    mend(copy);
    CHECK(try_open(copy, good_len, &e) == ERR_FORMAT && strstr(e.msg, "not those of the header"));
    memcpy(copy, good, good_len);
    bytes_put32(entry, PACK_TYPES + 1); /* without the section the hash is another */
    mend(copy);
    CHECK(try_open(copy, good_len, &e) == ERR_FORMAT && strstr(e.msg, "layout_hash"));
    free(copy);
}

static void all_of(uint32_t odd_type)
{
    char path[256];
    struct err e = { 0 };
    test_path(path, sizeof path, "thermo-bad-XXXXXX");
    int fd = mkstemp(path);
    close(fd);
    CHECK_MSG(sample_pack_mixed(path, LAYOUT_SPLIT, 0, QUANT_F32, odd_type, &e) == 0, "%s", e.msg);
    CHECK(file_slurp(path, 1 << 24, (char **)&good, &good_len, &e) == 0);
    unlink(path);
    truncations();
    flips();
    forgeries();
    payload();
    if (odd_type != QUANT_F32)
        types();
    free(good);
}

int main(void)
{
    kernels_init(0);
    all_of(QUANT_F32);
    all_of(QUANT_Q8_0);
    return test_done();
}
