/* The OpenCL back end against the processor: every kernel over random shapes, strides, tokens and types; whole FFNs; the same bits however
 * tokens are grouped; the cache of programs, damaged in many places; limits, faults, a device that is not there. Where there is no
 * OpenCL, or no device, it is skipped by name. THERMO_TEST_DEVICE=N takes another device than the first. */
#include "common/base/cpu.h"
#include "common/base/file.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/opencl/opencl.h"
#include "tests/test.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct accel_backend *const be = &opencl_backend;
static const uint32_t types[] = { QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0, QUANT_Q2_K,
                                  QUANT_Q3_K, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL, QUANT_IQ4_XS, QUANT_MXFP4 };
enum { N_TYPES = sizeof types / sizeof types[0], ARENA = 8 << 20, TOKENS = 80, MOST = 1024 };
static uint32_t seed = 7;
static char cache[4096];
static int device = -1;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

static float rndf(void)
{
    return (float)rnd(1 << 20) / (1 << 19) - 1;
}

/* ---- a device with memory of weights ---- */

static uint8_t *arena;            /* page-aligned, ARENA bytes */
static float *x, *got, *other, *want;
static double *bound;

static const struct accel_need need = { .tokens = TOKENS, .d_model = MOST, .neurons = MOST, .inputs = TOKENS * MOST,
                                        .outputs = TOKENS * MOST };

static struct accel *opened_for(const struct accel_config *c, const struct accel_need *need_of)
{
    struct accel *a = NULL;
    struct err e = { 0 };
    struct accel_config own = *c;
    own.device = c->device ? c->device : device;
    if (be->open(&own, &a, &e) < 0 || be->add(a, arena, ARENA, &e) < 0 || be->allocate(a, need_of, &e) < 0) {
        printf("# %s\n", e.msg);
        be->close(a);
        return NULL;
    }
    return a;
}

static struct accel *opened(const struct accel_config *c)
{
    return opened_for(c, &need);
}

static float *dequantised; /* [MOST][MOST] */

/* Rows of a matrix at random strides, from `at` on; its weights in dequantised. */
static struct accel_matrix matrix(uint32_t type, int rows, int cols, size_t at)
{
    const struct quant_traits *q = quant_traits(type);
    size_t bytes = quant_row_bytes(type, (uint64_t)cols), pad = rnd(3) * 4;
    struct accel_matrix m = { arena + at, type, rows, cols, bytes + pad, 0, 0, 0, 0 };
    float raw[MOST];
    if (rnd(3) == 0) { /* groups of rows, as tiles have them */
        m.group_rows = 1 + (int)rnd(8);
        m.group_stride = (size_t)m.group_rows * m.row_stride + 32;
    }
    for (int r = 0; r < rows; r++) {
        uint8_t *to = arena + at + (m.group_rows ? (size_t)(r / m.group_rows) * m.group_stride + (size_t)(r % m.group_rows) * m.row_stride
                                                 : (size_t)r * m.row_stride);
        for (int c = 0; c < cols; c++)
            raw[c] = rndf() * (rnd(9) ? 0.3f : 3);
        q->quant(to, raw, (size_t)cols);
        q->dequant(dequantised + (size_t)r * (size_t)cols, to, (size_t)cols);
    }
    return m;
}

static int cols_of(uint32_t type)
{
    int block = quant_traits(type)->block_elems;
    return block == 1 ? 1 + (int)rnd(300) : block * (1 + (int)rnd(block == 32 ? 9 : 3));
}

/* A sum of n terms, in any order, is within this of the exact one. */
static void exact(int i, double sum, double size, int n)
{
    want[i] = (float)sum;
    bound[i] = (n + 8) * 0x1p-23 * size + 1e-30;
}

static double worst(const float *v, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs((double)v[i] - (double)want[i]) / bound[i];
        most = isnan(d) ? INFINITY : d > most ? d : most;
    }
    return most;
}

static int multiply(struct accel *a, const struct accel_matrix *m, const float *in, float *out, int n, struct err *e)
{
    const struct accel_product p = { *m, in, out, n };
    int r = be->products(a, &p, 1, e);
    return r < 0 ? r : be->wait(a, NULL, NULL, e);
}

static double product_case(struct accel *a, uint32_t type, int *grouped)
{
    struct err e = { 0 };
    int rows = 1 + (int)rnd(90), cols = cols_of(type), n = 1 + (int)rnd(rnd(2) ? 9 : TOKENS);
    struct accel_matrix m = matrix(type, rows, cols, rnd(64) * 64);
    for (int i = 0; i < n * cols; i++)
        x[i] = rnd(6) ? rndf() * 4 : 0;
    /* The weights were written after the device may have copied them. */
    if (!be->takes(a, &m, 0) || be->changed(a, arena, ARENA, &e) < 0 || multiply(a, &m, x, got, n, &e) < 0) {
        printf("# %s: %s\n", quant_traits(type)->name, e.msg);
        return INFINITY;
    }
    for (int t = 0; t < n; t++)
        for (int r = 0; r < rows; r++) {
            double sum = 0, size = 0;
            for (int c = 0; c < cols; c++) {
                double v = (double)dequantised[(size_t)r * (size_t)cols + (size_t)c] * (double)x[t * cols + c];
                sum += v, size += fabs(v);
            }
            exact(t * rows + r, sum, size, cols);
        }
    double most = worst(got, n * rows);
    for (int t = 0; t < n; t++) /* one by one: the same bits */
        if (multiply(a, &m, x + t * cols, other, 1, &e) < 0 || memcmp(other, got + t * rows, sizeof *got * (size_t)rows))
            *grouped = 0;
    if (!m.group_rows && rnd(2) == 0) { /* the processor's kernel, which sums in another order */
        kernels->rows[KERNELS_ACT_F32][type](other, (size_t)rows, m.data, m.row_stride, rows, x, (size_t)cols * 4, n, cols);
        double cpu = worst(other, n * rows);
        most = cpu > 1 ? INFINITY : most;
    }
    return most;
}

static void products(struct accel *a, int n_types, const char *how)
{
    for (int i = 0; i < n_types; i++) {
        int grouped = 1, cases = TEST_CASES(12);
        double most = 0;
        for (int k = 0; k < cases; k++) {
            double d = product_case(a, types[i], &grouped);
            most = d > most ? d : most;
        }
        CHECK_MSG(most <= 1 && grouped, "%s, products of %s: %g of the bound; tokens one by one %s", how, quant_traits(types[i])->name,
                  most,
                  grouped ? "the same" : "other bits");
    }
}

/* ---- whole FFNs ---- */

static void naive(const struct accel_ffn *f, const float *g, const float *u, const float *d, int turned)
{
    int n = f->gate.n_rows, dm = f->gate.n_cols;
    double *h = malloc(sizeof *h * (size_t)n);
    for (int t = 0; t < f->n_tokens; t++) {
        for (int i = 0; i < n; i++) {
            double a = f->gate_bias ? (double)f->gate_bias[i] : 0, b = f->up_bias ? (double)f->up_bias[i] : 0;
            for (int c = 0; c < dm; c++) {
                a += (double)g[i * dm + c] * (double)f->in[t * dm + c];
                b += (double)u[i * dm + c] * (double)f->in[t * dm + c];
            }
            float ga = (float)a, up = (float)b, out;
            nn_ffn_act(&out, &ga, &up, 1, f->act);
            out = f->silence && f->silence[i] > 0 ? 0 : out; /* they are 0 or out of reach */
            h[i] = (double)out;
        }
        for (int c = 0; c < dm; c++) {
            double sum = 0, size = 1e-3;
            for (int i = 0; i < n; i++) {
                double v = h[i] * (double)(turned ? d[i * dm + c] : d[c * n + i]);
                sum += v, size += fabs(v);
            }
            want[t * dm + c] = (float)sum;
            bound[t * dm + c] = 4e-5 * size; /* of two sums and a function between them */
        }
    }
    free(h);
}

/* The same rows elsewhere, in groups with gaps, as padded units have them. */
static struct accel_matrix regrouped(const struct accel_matrix *m)
{
    struct accel_matrix to = *m;
    uint8_t *at = arena + ARENA / 4 * 3;
    to.data = at;
    to.group_rows = 1 + (int)rnd(8);
    to.group_stride = (size_t)to.group_rows * m->row_stride + 32;
    for (int r = 0; r < m->n_rows; r++)
        memcpy(at + (size_t)(r / to.group_rows) * to.group_stride + (size_t)(r % to.group_rows) * m->row_stride,
               m->data + (size_t)r * m->row_stride, quant_row_bytes(m->type, (uint64_t)m->n_cols));
    return to;
}

static double ffn_case(struct accel *a, int dm, int n_types, int *grouped)
{
    static float g[MOST * 512], u[MOST * 512], d[MOST * 512], bias[2 * MOST];
    struct err e = { 0 };
    int turned = (int)rnd(2), tile = 64, n = 32 * (1 + (int)rnd(20)), tokens = 1 + (int)rnd(TOKENS);
    struct accel_ffn f = { .turned = turned, .act = (enum model_act)rnd(MODEL_ACTS), .in = x, .out = got, .n_tokens = tokens };
    n = n > 256 ? 256 + n : n;
    uint32_t type = types[rnd((uint32_t)n_types)], down = turned ? types[rnd((uint32_t)n_types)] : QUANT_Q4_0;
    if (!turned) {
        type = QUANT_Q4_0;
        n = tile * (1 + n / tile);
    }
    f.gate = matrix(type, n, dm, 0);
    memcpy(g, dequantised, sizeof *g * (size_t)n * (size_t)dm);
    f.up = matrix(type, n, dm, ARENA / 4);
    memcpy(u, dequantised, sizeof *u * (size_t)n * (size_t)dm);
    if (turned) {
        do
            f.down = matrix(down, n, dm, ARENA / 2);
        while (f.down.group_rows);
        memcpy(d, dequantised, sizeof *d * (size_t)n * (size_t)dm);
    } else { /* Down [dm][n] in tiles: element runs of `tile` */
        const struct quant_traits *q = quant_traits(down);
        size_t bytes = quant_row_bytes(down, (uint64_t)tile), stride = bytes * (size_t)dm + 64;
        float raw[64];
        f.down = (struct accel_matrix){ arena + ARENA / 2, down, dm, n, bytes, 0, tile, 0, stride };
        for (int k = 0; k < n / tile; k++)
            for (int c = 0; c < dm; c++) {
                uint8_t *to = arena + ARENA / 2 + (size_t)k * stride + (size_t)c * bytes;
                for (int i = 0; i < tile; i++)
                    raw[i] = rndf();
                q->quant(to, raw, (size_t)tile);
                q->dequant(raw, to, (size_t)tile);
                for (int i = 0; i < tile; i++)
                    d[c * n + k * tile + i] = raw[i];
            }
    }
    if (rnd(2)) {
        float *b = (float *)(void *)(arena + ARENA - 65536);
        for (int i = 0; i < 2 * n; i++)
            b[i] = bias[i] = rndf();
        f.gate_bias = b;
        f.up_bias = b + n;
    }
    if (rnd(3) == 0) {
        float *b = (float *)(void *)(arena + ARENA - 32768);
        for (int i = 0; i < n; i++)
            b[i] = rnd(3) ? 0 : 1e30f;
        f.silence = b;
    }
    for (int i = 0; i < tokens * dm; i++)
        x[i] = rndf();
    if (!be->takes(a, &f.gate, 0) || !be->takes(a, &f.up, 0) || !be->takes(a, &f.down, turned))
        return -1;
    if (be->changed(a, arena, ARENA, &e) < 0) {
        printf("# %s\n", e.msg);
        return INFINITY;
    }
    naive(&f, g, u, d, turned);
    /* Two at once, of the same tokens divided. */
    struct accel_ffn two[2] = { f, f };
    two[0].n_tokens = tokens / 2;
    two[1].n_tokens = tokens - tokens / 2;
    two[1].in += tokens / 2 * dm;
    two[0].out = other;
    two[1].out = other + tokens / 2 * dm;
    const struct accel_ffn *some = tokens > 1 ? two : two + 1;
    if (be->ffn(a, &f, 1, &e) < 0 || be->wait(a, NULL, NULL, &e) < 0 || be->ffn(a, some, tokens > 1 ? 2 : 1, &e) < 0 ||
        be->wait(a, NULL, NULL, &e) < 0) {
        printf("# %s\n", e.msg);
        return INFINITY;
    }
    *grouped &= !memcmp(got, other, sizeof *got * (size_t)tokens * (size_t)dm);
    struct accel_ffn one = f; /* by kernels of its own */
    one.n_tokens = 1, one.out = other;
    if (be->ffn(a, &one, 1, &e) < 0 || be->wait(a, NULL, NULL, &e) < 0) {
        printf("# one token: %s\n", e.msg);
        return INFINITY;
    }
    *grouped &= !memcmp(got, other, sizeof *got * (size_t)dm);
    if (turned) {
        f.down = regrouped(&f.down);
        f.out = other;
        if (!be->takes(a, &f.down, 1) || be->changed(a, f.down.data, ARENA / 4 - 65536, &e) < 0 || be->ffn(a, &f, 1, &e) < 0 ||
            be->wait(a, NULL, NULL, &e) < 0) {
            printf("# rows of Down in groups: %s\n", e.msg);
            return INFINITY;
        }
        *grouped &= !memcmp(got, other, sizeof *got * (size_t)tokens * (size_t)dm);
    }
    return worst(got, tokens * dm);
}

static void ffns(const struct accel_config *c, const char *how)
{
    double most = 0;
    int grouped = 1, refused = 0, n = TEST_CASES(24);
    for (int dm = 256; dm <= 512; dm *= 2) {
        const struct accel_need own = { .tokens = TOKENS, .d_model = dm, .neurons = MOST };
        struct accel *a = opened_for(c, &own);
        CHECK(a != NULL);
        for (int k = 0; a && k < n / 2; k++) {
            double d = ffn_case(a, dm, c->n_types, &grouped);
            refused += d < 0;
            most = d > most ? d : most;
        }
        be->close(a);
    }
    CHECK_MSG(most <= 1 && grouped, "%s, FFNs: %g of the bound, %d not taken; tokens divided %s", how, most, refused,
              grouped ? "the same" : "other bits");
    CHECK_MSG(refused < n / 2, "%d of %d", refused, n);
}

/* ---- the cache ---- */

static int files(char first[], size_t size)
{
    DIR *d = opendir(cache);
    int n = 0;
    for (struct dirent *f; d && (f = readdir(d));)
        if (strstr(f->d_name, ".bin")) {
            snprintf(first, size, "%s/%s", cache, f->d_name);
            n++;
        }
    if (d)
        closedir(d);
    return n;
}

static struct accel_info start(const struct accel_config *c)
{
    struct accel_info i = { .built = -1 };
    struct accel *a = opened(c);
    if (a)
        be->describe(a, &i);
    be->close(a);
    return i;
}

static void remove_cache(void)
{
    char path[8192];
    while (files(path, sizeof path))
        unlink(path);
}

static void caching(void)
{
    const uint32_t some[] = { QUANT_Q8_0 };
    const struct accel_config c = { .device = device, .cache = cache, .types = some, .n_types = 1 };
    char path[8192], *whole = NULL;
    size_t len = 0;
    struct err e = { 0 };
    remove_cache();
    struct accel_info i = start(&c);
    CHECK_MSG(i.built == 2 && i.cached == 0 && !i.note[0], "built %d, cached %d: %s", i.built, i.cached, i.note);
    CHECK(files(path, sizeof path) == 2);
    i = start(&c);
    CHECK_MSG(i.built == 0 && i.cached == 2 && !i.note[0], "built %d, cached %d: %s", i.built, i.cached, i.note);
    CHECK(file_slurp(path, 64 << 20, &whole, &len, &e) == 0);
    int bad = 0, n = 8;
    for (int k = 0; whole && k < n; k++) { /* damaged, cut, grown: noticed, and written anew */
        char *copy = malloc(len + 64);
        size_t size = k % 4 == 1 ? rnd((uint32_t)len) : k % 4 == 2 ? len + 64 : len, at = k < 6 ? (size_t)k * 11 : rnd((uint32_t)len);
        memset(copy, 0, len + 64);
        memcpy(copy, whole, len);
        copy[k % 4 == 1 || k % 4 == 2 ? 0 : at] ^= k % 4 == 1 || k % 4 == 2 ? 0 : 1 << k % 8;
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(copy, 1, size, f) != size || fclose(f))
            bad++;
        i = start(&c);
        bad += i.built != 1 || i.cached != 1 || !strstr(i.note, "not used");
        free(copy);
    }
    CHECK_MSG(bad == 0, "%d of %d damaged files", bad, n);
    chmod(path, 0666);
    i = start(&c);
    CHECK_MSG(i.built == 1 && strstr(i.note, "others can write"), "%s", i.note);
    i = start(&c);
    CHECK_MSG(i.built == 0 && i.cached == 2 && !i.note[0], "what was written anew is not used: %s", i.note);
    unlink(path);
    CHECK(symlink("/dev/zero", path) == 0);
    i = start(&c);
    CHECK_MSG(i.built == 1 && strstr(i.note, "not used"), "%s", i.note);
    unlink(path);
    const struct accel_config nowhere = { .device = device, .cache = "/nonexistent/folder", .types = some, .n_types = 1 };
    i = start(&nowhere);
    CHECK_MSG(i.built == 2 && strstr(i.note, "not kept"), "%s", i.note);
    free(whole);
}

/* ---- limits and faults ---- */

static int fail_at, commands;

static int fault(void *ctx)
{
    (void)ctx;
    return ++commands == fail_at;
}

/* Each command costs the caller microseconds: an FFN of one token is its input, Gate with Up and activation, Down, in slices where several
 * items have a row, and its output. */
static void few_commands(void)
{
    static const uint32_t some[] = { QUANT_Q4_0 };
    const struct accel_need own = { .tokens = 8, .d_model = 256, .neurons = 512 };
    for (int lanes = 1; lanes <= 16; lanes *= 16) {
        const struct accel_config c = { .device = device, .cache = cache, .types = some, .n_types = 1, .lanes = lanes, .fault = fault };
        struct accel *a = opened_for(&c, &own);
        struct err e = { 0 };
        struct accel_ffn f = { .gate = matrix(QUANT_Q4_0, 512, 256, 0), .up = matrix(QUANT_Q4_0, 512, 256, ARENA / 4),
                               .down = matrix(QUANT_Q4_0, 512, 256, ARENA / 2), .turned = 1, .in = x, .out = got };
        int n[2] = { 0, 0 };
        for (int k = 0; a && k < 2; k++) {
            f.n_tokens = k ? 8 : 1;
            commands = fail_at = 0;
            n[k] = be->ffn(a, &f, 1, &e) < 0 || be->wait(a, NULL, NULL, &e) < 0 ? 0 : commands;
        }
        CHECK_MSG(n[0] == (lanes > 1 ? 5 : 4) && n[1] == n[0] + 2, "%d lanes: %d commands, of several tokens %d: %s", lanes, n[0], n[1],
                  e.msg);
        be->close(a);
    }
}

static void limits(void)
{
    static const uint32_t some[] = { QUANT_Q4_0 };
    struct err e = { 0 };
    struct accel *a = NULL;
    struct accel_config c = { .device = 63, .types = some, .n_types = 1, .cache = cache };
    CHECK(be->open(&c, &a, &e) == ERR_INPUT && strstr(e.msg, "device 63"));
    c.device = device;
    const uint32_t unknown[] = { QUANT_TQ1_0 };
    struct accel_config u = c;
    u.types = unknown;
    CHECK(be->open(&u, &a, &e) == ERR_UNSUPPORTED);
    CHECK(be->list(NULL, 0, &e) > 0);

    /* What lies elsewhere, has another type, or an odd address: not taken. */
    a = opened(&c);
    CHECK(a != NULL);
    struct accel_matrix m = matrix(QUANT_Q4_0, 8, 64, 0), odd = m, far = m, k = m, wide = m;
    odd.data++;
    far.data = (const uint8_t *)x;
    k.type = QUANT_Q6_K;
    wide.n_rows = ARENA;
    CHECK(a && be->takes(a, &m, 0) && !be->takes(a, &odd, 0) && !be->takes(a, &far, 0) && !be->takes(a, &k, 0) && !be->takes(a, &wide, 0));
    wide.row_stride = SIZE_MAX / 2;
    CHECK(a && !be->takes(a, &wide, 0));
    m.n_cols *= 2, m.n_rows = 4;
    CHECK(a && multiply(a, &m, x, got, TOKENS * MOST / 128 + 1, &e) == ERR_LIMIT);
    m.n_cols /= 2, m.n_rows = 8;
    be->close(a);

    /* Buffers that hold a part: pieces in several windows; one that fits none is not taken. */
    for (int copies = 0; copies < 2; copies++) {
        struct accel_config small = c;
        small.buffer_bytes = 512 << 10;
        small.copies = copies;
        const struct accel_need few = { .tokens = 4, .d_model = 64, .neurons = 64, .inputs = 256, .outputs = 512 };
        int ok = be->open(&small, &a, &e) == 0, right = 1;
        size_t at[] = { 64, 300 << 10, 600 << 10, (900 << 10) + 128, 1300 << 10, 2 << 20 };
        size_t bytes[] = { 200 << 10, 299 << 10, (300 << 10) + 100, 300 << 10, 500 << 10, 1 << 20 };
        struct accel_matrix q[6];
        for (int i = 0; i < 6; i++) { /* the last rows of each piece; copies are made when it is allocated */
            float raw[64];
            q[i] = (struct accel_matrix){ arena + (at[i] + bytes[i] - 8 * 36) / 2 * 2, QUANT_Q4_0, 8, 64, 36, 0, 0, 0, 0 };
            for (int row = 0; row < 8; row++) {
                for (int col = 0; col < 64; col++)
                    raw[col] = rndf();
                quant_traits(QUANT_Q4_0)->quant(arena + (q[i].data - arena) + row * 36, raw, 64);
            }
        }
        for (int i = 0; i < 6 && ok; i++)
            ok = be->add(a, arena + at[i], bytes[i], &e) == 0;
        ok = ok && be->allocate(a, &few, &e) == 0;
        struct accel_matrix between = q[0]; /* in the same pages, perhaps, but nobody added it */
        between.data = arena + (280 << 10);
        right = right && (!ok || !be->takes(a, &between, 0));
        for (int i = 0; i < 6 && ok; i++) {
            right = right && be->takes(a, &q[i], 0) == (bytes[i] <= small.buffer_bytes);
            if (bytes[i] > small.buffer_bytes)
                continue;
            ok = multiply(a, &q[i], x, got, 4, &e) == 0;
            kernels->rows[KERNELS_ACT_F32][QUANT_Q4_0](other, (size_t)q[i].n_rows, q[i].data, 36, q[i].n_rows, x, 64 * 4, 4, 64);
            for (int j = 0; j < 4 * q[i].n_rows; j++)
                right = right && fabs((double)(got[j] - other[j])) < 1e-4;
        }
        CHECK_MSG(ok && right, "%s", e.msg);
        be->close(a);
        a = NULL;
    }

    /* Each command fails once: an error, and from there on nothing but errors. */
    int bad = 0, tried = 0;
    c.fault = fault;
    for (fail_at = 1; fail_at < 200; fail_at++, tried++) {
        commands = 0;
        struct accel_config own = c;
        int r = be->open(&own, &a, &e);
        if (r == 0 && ((r = be->add(a, arena, ARENA, &e)) < 0 || (r = be->allocate(a, &need, &e)) < 0 ||
                       (r = multiply(a, &m, x, got, 1, &e)) < 0 || (r = multiply(a, &m, x, got, 5, &e)) < 0))
            bad += multiply(a, &m, x, got, 1, &e) != ERR_IO;
        else if (r == 0 && commands < fail_at)
            fail_at = 1000;
        bad += r != 0 && r != ERR_IO;
        be->close(r == 0 || a ? a : NULL);
        a = NULL;
    }
    CHECK_MSG(bad == 0 && tried > 3, "%d of %d", bad, tried);
}

int main(void)
{
    struct err e = { 0 };
    const char *dev = getenv("THERMO_TEST_DEVICE");
    struct accel_device devices[8];
    int n = be->list(devices, 8, &e);
    device = dev ? atoi(dev) : -1;
    if (n <= 0) {
        printf("1..0 # SKIP no OpenCL device: %s\n", n < 0 || e.msg[0] ? e.msg : "no driver has one");
        return 77;
    }
    printf("# %s: %s, %s\n", devices[device < 0 ? 0 : device].platform, devices[device < 0 ? 0 : device].name,
           devices[device < 0 ? 0 : device].version);
    kernels_init(cpu_detect());
    test_path(cache, sizeof cache, "test_opencl.XXXXXX");
    if (!mkdtemp(cache) || posix_memalign((void **)&arena, 4096, ARENA))
        return 1;
    memset(arena, 0, ARENA);
    x = calloc(TOKENS * 2 * MOST, 4), got = calloc(TOKENS * 2 * MOST, 4), other = calloc(TOKENS * 2 * MOST, 4),
        want = calloc(TOKENS * 2 * MOST, 4);
    bound = calloc(TOKENS * 2 * MOST, 8);
    dequantised = calloc((size_t)MOST * MOST, 4);
    const struct accel_config plain = { .device = device, .types = types, .n_types = N_TYPES, .cache = cache };
    struct accel_config lanes = plain;
    lanes.lanes = 16;
    lanes.n_types = 4; /* which share a row does not depend on the type */
    const struct { const struct accel_config *c; const char *how; } ways[] = { { &plain, "as for this device" }, { &lanes,
                                                                                                                   "16 items a row" } };
    for (int i = 0; i < 2; i++) {
        struct accel *a = opened(ways[i].c);
        CHECK_MSG(a != NULL, "%s", ways[i].how);
        if (a)
            products(a, ways[i].c->n_types, ways[i].how);
        be->close(a);
        ffns(ways[i].c, ways[i].how);
    }
    struct accel_config copies = lanes; /* what changes has to be said */
    copies.copies = 1;
    struct accel *a = opened(&copies);
    CHECK(a != NULL);
    if (a)
        products(a, 1, "copies");
    be->close(a);
    ffns(&copies, "copies");
    few_commands();
    limits();
    caching();
    remove_cache();
    rmdir(cache);
    free(arena), free(x), free(got), free(other), free(want), free(bound), free(dequantised);
    return test_done();
}
