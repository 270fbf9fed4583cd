/* Both forms become a list of entries with the place of their values. */
#include "quantizer/imatrix.h"

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/model/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAME = 4096 };

struct entry {
    char *name;
    uint64_t n;                               /* values */
    uint64_t offset;                          /* binary: of the values */
    int32_t calls;
    const struct gguf_tensor *sums, *counts;  /* GGUF */
};

struct imatrix {
    struct file file; /* binary */
    struct gguf *g;
    struct entry *entries;
    int n, cap;
    uint32_t chunks;
    char *dataset, *path;
};

void imatrix_close(struct imatrix *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n; i++)
        free(m->entries[i].name);
    free(m->entries);
    file_close(&m->file);
    gguf_close(m->g);
    free(m->dataset);
    free(m->path);
    free(m);
}

uint64_t imatrix_entries(const struct imatrix *m)
{
    return (uint64_t)m->n;
}

uint32_t imatrix_chunks(const struct imatrix *m)
{
    return m->chunks;
}

const char *imatrix_dataset(const struct imatrix *m)
{
    return m->dataset;
}

static struct entry *find(const struct imatrix *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->entries[i].name, name))
            return &m->entries[i];
    return NULL;
}

/* Takes x->name. */
static int add(struct imatrix *m, const struct entry *x, struct err *e)
{
    int r = find(m, x->name) ? err_set(e, ERR_FORMAT, "'%s': '%s' is there twice", m->path, x->name) : 0;
    if (r == 0 && !grow_room(m->entries, m->n, m->cap))
        r = err_set(e, ERR_NOMEM, "'%s': %d entries", m->path, m->n + 1);
    if (r < 0)
        free(x->name);
    else
        m->entries[m->n++] = *x;
    return r;
}

/* ---- GGUF ---- */

static int add_sums(struct imatrix *m, const struct gguf_tensor *t, size_t len, struct err *e)
{
    char counts[MOST_NAME + 16];
    struct entry x = { .sums = t };
    if (len == 0 || len > MOST_NAME)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s': no name of a matrix", m->path, t->name);
    snprintf(counts, sizeof counts, "%.*s.counts", (int)len, t->name);
    x.counts = gguf_tensor(m->g, counts);
    if (!x.counts || t->type != QUANT_F32 || x.counts->type != QUANT_F32)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' %s", m->path, x.counts && t->type == QUANT_F32 ? counts : t->name,
                       x.counts ? "is not F32" : "has no counts beside it");
    x.n = t->bytes / 4;
    if (x.n % (x.counts->bytes / 4))
        return err_set(e, ERR_FORMAT, "'%s': '%s' has %" PRIu64 " values, which its %" PRIu64 " counts do not divide", m->path, t->name,
                       x.n, x.counts->bytes / 4);
    if (!(x.name = strndup(t->name, len)))
        return err_set(e, ERR_NOMEM, "'%s': '%s'", m->path, t->name);
    return add(m, &x, e);
}

static int open_gguf(struct imatrix *m, struct err *e)
{
    static const char end[] = ".in_sum2";
    int r = gguf_open(m->path, &m->g, e);
    if (r < 0 || (r = gguf_get_u32(m->g, "imatrix.chunk_count", &m->chunks, e)) < 0)
        return r;
    for (uint64_t i = 0; i < m->g->n_tensors; i++) {
        const struct gguf_tensor *t = &m->g->tensors[i];
        size_t n = strlen(t->name);
        if (n >= sizeof end - 1 && !strcmp(t->name + n - (sizeof end - 1), end) && (r = add_sums(m, t, n - (sizeof end - 1), e)) < 0)
            return r;
    }
    const struct gguf_key *k = gguf_find(m->g, "imatrix.datasets");
    const char *text;
    uint64_t len;
    size_t pos = 0;
    if (k && k->type == GGUF_ARRAY && k->elem_type == GGUF_STRING && gguf_array_str(k, &pos, &text, &len) && len < MOST_NAME &&
        !(m->dataset = strndup(text, (size_t)len)))
        return err_set(e, ERR_NOMEM, "'%s': imatrix.datasets", m->path);
    return m->n ? 0 : err_set(e, ERR_FORMAT, "'%s': no tensor NAME.in_sum2: it is no importance matrix", m->path);
}

/* ---- binary ---- */

static int take(const struct imatrix *m, uint64_t *at, void *out, size_t n, struct err *e)
{
    int r = file_pread(&m->file, out, n, *at, e);
    *at += n;
    return r;
}

static int take_i32(const struct imatrix *m, uint64_t *at, int32_t *out, struct err *e)
{
    uint8_t b[4];
    int r = take(m, at, b, sizeof b, e);
    if (r == 0)
        *out = (int32_t)bytes_le32(b);
    return r;
}

static int take_name(const struct imatrix *m, uint64_t *at, char **out, struct err *e)
{
    int32_t len = 0;
    int r = take_i32(m, at, &len, e);
    if (r < 0)
        return r;
    if (len < 1 || len > MOST_NAME)
        return err_set(e, ERR_FORMAT, "'%s': a name of %" PRId32 " bytes at byte %" PRIu64 " (1 to %d are possible): it is no importance "
                       "matrix, or damaged", m->path, len, *at - 4, MOST_NAME);
    char *name = calloc((size_t)len + 1, 1);
    if (!name)
        return err_set(e, ERR_NOMEM, "'%s': a name of %" PRId32 " bytes", m->path, len);
    if ((r = take(m, at, name, (size_t)len, e)) == 0 && strlen(name) != (size_t)len)
        r = err_set(e, ERR_FORMAT, "'%s': a zero byte in a name at byte %" PRIu64, m->path, *at - (uint64_t)len);
    if (r < 0)
        free(name);
    else
        *out = name;
    return r;
}

static int take_entry(struct imatrix *m, uint64_t *at, struct err *e)
{
    struct entry x = { 0 };
    int32_t n = 0;
    int r = take_name(m, at, &x.name, e);
    if (r < 0)
        return r;
    if ((r = take_i32(m, at, &x.calls, e)) == 0 && (r = take_i32(m, at, &n, e)) == 0 &&
        (n < 1 || x.calls < 0 || (uint64_t)n > (m->file.size - *at) / 4))
        r = err_set(e, ERR_FORMAT, "'%s': '%s' has %" PRId32 " values of %" PRId32 " calls; %" PRIu64 " bytes follow", m->path, x.name, n,
                    x.calls, m->file.size - *at);
    if (r < 0) {
        free(x.name);
        return r;
    }
    x.n = (uint64_t)n;
    x.offset = *at;
    *at += 4 * x.n;
    return add(m, &x, e);
}

static int open_binary(struct imatrix *m, struct err *e)
{
    int32_t n = 0, chunks = 0;
    uint64_t at = 0;
    int r = take_i32(m, &at, &n, e);
    if (r == 0 && (n < 1 || (uint32_t)n > GGUF_MAX_TENSORS))
        r = err_set(e, ERR_FORMAT, "'%s': %" PRId32 " entries: it is no importance matrix", m->path, n);
    for (int32_t i = 0; r == 0 && i < n; i++)
        r = take_entry(m, &at, e);
    if (r < 0 || at == m->file.size)
        return r;
    if ((r = take_i32(m, &at, &chunks, e)) < 0)
        return r;
    m->chunks = chunks > 0 ? (uint32_t)chunks : 0;
    return at == m->file.size ? 0 : take_name(m, &at, &m->dataset, e);
}

int imatrix_open(const char *path, struct imatrix **out, struct err *e)
{
    struct imatrix *m = calloc(1, sizeof *m);
    char magic[4];
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return err_set(e, ERR_NOMEM, "'%s'", path);
    }
    m->file.fd = -1;
    int r = file_open(&m->file, path, e);
    if (r == 0 && (r = file_pread(&m->file, magic, sizeof magic, 0, e)) == 0)
        r = memcmp(magic, "GGUF", 4) ? open_binary(m, e) : open_gguf(m, e);
    if (r < 0) {
        imatrix_close(m);
        return err_wrap(e, "--imatrix");
    }
    *out = m;
    return 0;
}

/* ---- values ---- */

int imatrix_has(const struct imatrix *m, const char *name, uint64_t n_cols, uint64_t n_experts, struct err *e)
{
    const struct entry *x = find(m, name);
    uint64_t counts = x && x->counts ? x->counts->bytes / 4 : 1;
    if (!x)
        return 0;
    if (x->n % n_cols || x->n / n_cols != n_experts || (counts != 1 && counts != n_experts))
        return err_set(e, ERR_MISMATCH, "'%s': '%s' has %" PRIu64 " values with %" PRIu64 " counts; the model's has %" PRIu64
                       " columns in %" PRIu64 " matrices: it is another model's", m->path, name, x->n, counts, n_cols, n_experts);
    return 1;
}

/* The mean of each column, from sums and the count of their matrix. */
static int divide(const struct imatrix *m, const struct entry *x, float *out, uint64_t n, float count, struct err *e)
{
    for (uint64_t i = 0; i < n; i++) {
        float v = bytes_lef32(out + i);
        if (!(v >= 0 && v < INFINITY))
            return err_set(e, ERR_FORMAT, "'%s': '%s' has a value that is negative or not finite", m->path, x->name);
        out[i] = count > 0 ? v / count : x->counts ? 1 : v;
    }
    return 0;
}

int imatrix_read(const struct imatrix *m, const char *name, uint64_t n_cols, uint64_t n_experts, float *out, struct err *e)
{
    const struct entry *x = find(m, name);
    size_t bytes = (size_t)x->n * sizeof *out;
    int r = x->sums ? gguf_read(m->g, x->sums, 0, out, bytes, e) : file_pread(&m->file, out, bytes, x->offset, e);
    if (r < 0 || !x->counts)
        return r < 0 ? r : divide(m, x, out, x->n, (float)x->calls, e);
    uint64_t n_counts = x->counts->bytes / 4;
    for (uint64_t i = 0; r == 0 && i < n_experts; i++) {
        float count;
        uint8_t raw[4];
        if (i < n_counts && (r = gguf_read(m->g, x->counts, 4 * i, raw, sizeof raw, e)) < 0)
            return r;
        count = bytes_lef32(raw); /* of a single one for all: the same again */
        if (!(count >= 0 && count < INFINITY))
            return err_set(e, ERR_FORMAT, "'%s': '%s' has a count that is negative or not finite", m->path, x->name);
        r = divide(m, x, out + i * n_cols, n_cols, count, e);
    }
    return r;
}
