/* Every tier of this machine: values against double arithmetic within a stated error budget, and
 * the bit rules of kernels.h (the same bits for any grouping, stride, alignment, column range).
 * Rows, activations and outputs sit against inaccessible pages, so a byte read or written outside
 * ends the program.
 *
 * Error budget of a product: (n/8 + 24) * 2^-24 * sum |w x|, that of a plain sum of n/8 terms per
 * lane. Of an accumulation of R rows: (2R + 2) * 2^-24 * (|acc| + sum |h w|). */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_COLS = 1120,
       FEW_ROWS = 13, /* all sizes up to these are tried; up to the others, some */
       FEW_TOKENS = 9,
       MAX_ROWS = 40,
       QUANTISED = 2, /* rows of a matrix */
       MAX_TOKENS = 40,
       PAGE = 4096,
       ROOM = 48 * PAGE };

static const uint32_t types[] = { QUANT_F32,  QUANT_F16,  QUANT_BF16,   QUANT_Q8_0,  QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1,
                                  QUANT_Q2_K, QUANT_Q3_K, QUANT_Q4_K,   QUANT_Q5_K,  QUANT_Q6_K, QUANT_IQ4_NL, QUANT_IQ4_XS,
                                  QUANT_IQ2_XXS, QUANT_IQ2_XS, QUANT_IQ2_S, QUANT_IQ3_XXS, QUANT_IQ3_S,
                                  QUANT_Q1_0, QUANT_Q2_0, QUANT_Q2_0_128, QUANT_PTQ1_0, QUANT_IQ1_S, QUANT_IQ1_M,
                                  QUANT_MXFP4 };
enum { N_TYPES = sizeof types / sizeof *types };

/* ---- memory with guards ---- */

/* n usable bytes that end (or, with front, begin) at an inaccessible page. One mapping per slot. */
enum { SLOTS = 100,
       SLOT_ROWS = 10,
       SLOT_ACTS = 60 };
static uint8_t *slot_map[SLOTS];

static void *guarded(int slot, size_t n, int front)
{
    if (!slot_map[slot]) {
        slot_map[slot] = mmap(NULL, ROOM + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (slot_map[slot] == MAP_FAILED ||
            mprotect(slot_map[slot] + PAGE, ROOM, PROT_READ | PROT_WRITE) || n > ROOM) {
            printf("Bail out! no guarded memory\n");
            exit(1);
        }
    }
    return slot_map[slot] + PAGE + (front ? 0 : ROOM - n);
}

/* ---- data ---- */

static uint64_t seed = 88172645463325252u;

static uint64_t rnd(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static float uniform(void)
{
    return (float)(int64_t)(rnd() >> 40) / (1 << 23) - 1;
}

enum { KIND_RANDOM,
       KIND_EXTREME,
       KIND_TINY,
       KINDS };

static void fill_floats(float *x, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        x[i] = uniform();
        if (kind == KIND_EXTREME)
            x[i] = rnd() % 3 ? (rnd() & 1 ? 3e4f : -3e4f) : rnd() % 2 ? 0.0f
                                                                      : x[i];
        else if (kind == KIND_TINY)
            x[i] *= ldexpf(1, -(int)(rnd() % 146));
    }
}

/* Where a block's halves are: its scale and that of its minima; -1: none. */
struct halves {
    int at[2];
};

static struct halves halves_of(uint32_t type)
{
    switch (type) {
    case QUANT_Q4_1:
    case QUANT_Q5_1:
    case QUANT_Q4_K:
    case QUANT_Q5_K: return (struct halves){ { 0, 2 } };
    case QUANT_Q2_K: return (struct halves){ { 80, 82 } };
    case QUANT_Q3_K: return (struct halves){ { 108, -1 } };
    case QUANT_Q6_K: return (struct halves){ { 208, -1 } };
    case QUANT_PTQ1_0: return (struct halves){ { 26, -1 } };
    case QUANT_IQ1_M:
    case QUANT_MXFP4: return (struct halves){ { -1, -1 } };
    default: return (struct halves){ { 0, -1 } };
    }
}

/* Any bits at all, but for the scales: those of the kind, or of numbers such as a model's. */
static void fill_blocks(uint8_t *row, uint32_t type, int n, int kind)
{
    static const uint16_t scales[] = { 0x7bff, 0xfbff, 0x0001, 0x8001, 0x0000, 0x8000, 0x3c00 };
    const struct quant_traits *q = quant_traits(type);
    const struct halves at = halves_of(type);
    for (int b = 0; b < n / q->block_elems; b++, row += q->block_bytes) {
        uint8_t same = (uint8_t[]){ 0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0 }[rnd() % 6];
        int random = kind == KIND_RANDOM || rnd() % 2;
        for (int i = 0; i < q->block_bytes; i++)
            row[i] = random ? (uint8_t)rnd() : same;
        for (int i = 0; i < 2; i++)
            if (at.at[i] >= 0) {
                const uint16_t scale = kind == KIND_RANDOM ? quant_f32_to_f16(uniform() / 64) : scales[rnd() % 7];
                memcpy(row + at.at[i], &scale, 2);
            }
        const uint16_t scale = kind == KIND_RANDOM ? quant_f32_to_f16(uniform() / 64) : scales[rnd() % 7];
        for (int i = 0; i < 4 && type == QUANT_IQ1_M; i++) /* four bits of it in each of its last halves */
            row[49 + 2 * i] = (uint8_t)((row[49 + 2 * i] & 15) | (scale >> 4 * i & 15) << 4);
        if (type == QUANT_MXFP4)
            row[0] = kind == KIND_RANDOM ? (uint8_t)(118 + rnd() % 12) : (uint8_t[]){ 0, 1, 2, 100, 128, 150 }[rnd() % 6];
    }
}

/* A row; `quantised`: one that the quantiser made, which takes longer than its products. */
static void fill_row(uint8_t *row, uint32_t type, int n, int kind, int quantised)
{
    static float tmp[MAX_COLS];
    const struct quant_traits *q = quant_traits(type);
    if (q->block_elems > 1 && !(quantised && q->quant && kind == KIND_RANDOM)) {
        fill_blocks(row, type, n, kind);
        return;
    }
    fill_floats(tmp, n, kind);
    q->quant(row, tmp, (size_t)n);
}

/* ---- products ---- */

struct batch {
    uint32_t type;
    enum kernels_act form;
    int n_cols;
    size_t row_bytes, act_bytes;
    const uint8_t *row[MAX_ROWS], *act[MAX_TOKENS]; /* each against a guard page */
    float bits[MAX_TOKENS][MAX_ROWS];               /* each product computed alone, */
    uint8_t known[MAX_TOKENS][MAX_ROWS];            /* once it is asked for */
};

static const float *alone(struct batch *b, int token, int row)
{
    if (!b->known[token][row])
        kernels->rows[b->form][b->type](&b->bits[token][row], 0, b->row[row], 0, 1, b->act[token], 0, 1, b->n_cols);
    b->known[token][row] = 1;
    return &b->bits[token][row];
}

static void act_values(double *x, const struct batch *b, const uint8_t *act)
{
    struct kernels_q8_group g;
    float f;
    for (int c = 0; c < b->n_cols; c++) {
        if (b->form == KERNELS_ACT_F32) {
            memcpy(&f, act + 4 * (size_t)c, 4);
            x[c] = (double)f;
            continue;
        }
        if (c % 128 == 0)
            memcpy(&g, act + (size_t)(c / 128) * sizeof g, sizeof g);
        x[c] = (double)g.d[c / 32 % 4] * g.qs[c % 128];
    }
}

/* With int8 activations scale and minimum of a weight are multiplied each by itself: what is rounded is |w| without the minimum
 * and the minimum, together more than |w|. */
static void magnitudes(float *m, const float *w, const struct batch *b, const uint8_t *row)
{
    static uint8_t copy[4 * MAX_COLS];
    const struct quant_traits *q = quant_traits(b->type);
    const int at = halves_of(b->type).at[1];
    for (int i = 0; i < b->n_cols; i++)
        m[i] = fabsf(w[i]);
    if (b->form != KERNELS_ACT_Q8 || at < 0)
        return;
    memcpy(copy, row, b->row_bytes);
    for (int k = 0; k < b->n_cols / q->block_elems; k++)
        memset(copy + k * q->block_bytes + at, 0, 2);
    q->dequant(m, copy, (size_t)b->n_cols);
    for (int i = 0; i < b->n_cols; i++)
        m[i] = fabsf(m[i]) + fabsf(w[i] - m[i]);
}

static int products_right(struct batch *b)
{
    static float w[MAX_COLS], size[MAX_COLS];
    static double x[FEW_TOKENS][MAX_COLS];
    int bad = 0;
    for (int t = 0; t < FEW_TOKENS; t++)
        act_values(x[t], b, b->act[t]);
    for (int r = 0; r < FEW_ROWS; r++) {
        quant_traits(b->type)->dequant(w, b->row[r], (size_t)b->n_cols);
        magnitudes(size, w, b, b->row[r]);
        for (int t = 0; t < FEW_TOKENS; t++) {
            double sum = 0, mag = 0;
            for (int c = 0; c < b->n_cols; c++) {
                sum += (double)w[c] * x[t][c];
                mag += (double)size[c] * fabs(x[t][c]);
            }
            double tol = (b->n_cols / 8 + 24) * 0x1p-24 * mag + b->n_cols * 1e-37;
            double got = (double)*alone(b, t, r);
            if (!(fabs(got - sum) <= tol)) {
                if (!bad)
                    printf("# row %d token %d: %.9g, expected %.9g +- %g\n", r, t, got, sum, tol);
                bad++;
            }
        }
    }
    return bad == 0;
}

static int same_bits(struct batch *b, const float *out, size_t stride, const int *row_of, int rows, int tokens)
{
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < rows; r++)
            if (memcmp(&out[(size_t)t * stride + (size_t)r], alone(b, t, row_of[r]), 4))
                return 0;
    return 1;
}

static int gaps_kept(const float *out, size_t stride, int rows, int tokens)
{
    for (int t = 0; t + 1 < tokens; t++)
        for (size_t r = (size_t)rows; r < stride; r++)
            if (out[(size_t)t * stride + r] != 777)
                return 0;
    return 1;
}

/* One grouping: rows x tokens, by rows (strided copies) and by rows_at (pointers in any order). */
static int grouping_same(struct batch *b, int rows, int tokens, size_t row_pad, size_t act_pad, size_t out_pad)
{
    size_t stride = (size_t)rows + out_pad, row_stride = b->row_bytes + row_pad, act_stride = b->act_bytes + act_pad;
    size_t n_out = (size_t)(tokens - 1) * stride + (size_t)rows;
    float *out = guarded(0, n_out * sizeof *out, 0);
    uint8_t *acts = guarded(1, (size_t)(tokens - 1) * act_stride + b->act_bytes, 0);
    int row_of[MAX_ROWS], ok = 1;
    const void *at[MAX_ROWS];
    for (int t = 0; t < tokens; t++)
        memcpy(acts + (size_t)t * act_stride, b->act[t], b->act_bytes);

    size_t all = (size_t)(rows - 1) * row_stride + b->row_bytes;
    if (all <= ROOM) {
        uint8_t *w = guarded(2, all, 0);
        for (int r = 0; r < rows; r++) {
            row_of[r] = r;
            memcpy(w + (size_t)r * row_stride, b->row[r], b->row_bytes);
        }
        for (size_t i = 0; i < n_out; i++)
            out[i] = 777;
        kernels->rows[b->form][b->type](out, stride, w, row_stride, rows, acts, act_stride, tokens, b->n_cols);
        ok &= same_bits(b, out, stride, row_of, rows, tokens) && gaps_kept(out, stride, rows, tokens);
    }
    for (int r = 0; r < rows; r++) {
        row_of[r] = (int)(rnd() % MAX_ROWS);
        at[r] = b->row[row_of[r]];
    }
    for (size_t i = 0; i < n_out; i++)
        out[i] = 777;
    kernels->rows_at[b->form][b->type](out, stride, at, rows, acts, act_stride, tokens, b->n_cols);
    return ok & same_bits(b, out, stride, row_of, rows, tokens) & gaps_kept(out, stride, rows, tokens);
}

static int some_grouping_same(struct batch *b, int rows, int tokens)
{
    int ok = grouping_same(b, rows, tokens, rnd() % 3 * (size_t)(1 + rnd() % 67), rnd() % 3 * 4, rnd() % 3);
    if (!ok)
        printf("# %d rows x %d tokens differ\n", rows, tokens);
    return ok;
}

/* Every grouping of a few rows and tokens, or one in `of` of them, by chance; and some of many. */
static int groupings_same(struct batch *b, unsigned of)
{
    int ok = 1;
    for (int rows = 1; rows <= FEW_ROWS && ok; rows++)
        for (int tokens = 1; tokens <= FEW_TOKENS && ok; tokens++)
            if (rnd() % of == 0)
                ok &= some_grouping_same(b, rows, tokens);
    for (unsigned i = 0; i < (of < 16 ? 16 / of : 1) && ok; i++)
        ok &= some_grouping_same(b, 1 + (int)(rnd() % MAX_ROWS), 1 + (int)(rnd() % MAX_TOKENS));
    return ok;
}

static void make_batch(struct batch *b, uint32_t type, enum kernels_act form, int n, int kind, int front)
{
    static float x[MAX_COLS];
    *b = (struct batch){ .type = type, .form = form, .n_cols = n, .row_bytes = quant_row_bytes(type, (uint64_t)n),
                         .act_bytes = kernels_act_bytes(form, n) };
    for (int r = 0; r < MAX_ROWS; r++) {
        uint8_t *p = guarded(SLOT_ROWS + r, b->row_bytes, front);
        fill_row(p, type, n, kind, r < QUANTISED);
        b->row[r] = p;
    }
    for (int t = 0; t < MAX_TOKENS; t++) {
        uint8_t *p = guarded(SLOT_ACTS + t, b->act_bytes, front);
        fill_floats(x, n, (kind + t) % KINDS);
        kernels_act_prepare(p, form, x, n);
        b->act[t] = p;
    }
}

static void all_alone(struct batch *b)
{
    for (int r = 0; r < MAX_ROWS; r++)
        for (int t = 0; t < MAX_TOKENS; t++)
            alone(b, t, r);
}

static void test_products(int tier, uint32_t type, enum kernels_act form)
{
    static const int blocked[] = { 32, 64, 96, 128, 160, 224, 512, 544, 1056, 1088, 1120 };
    static const int odd[] = { 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 100, 129, 255, 1039 };
    struct batch b;
    int right = 1, same = 1;
    int block = quant_traits(type)->block_elems, n_sizes = block == 1 ? 26 : block == 32 ? 11 : MAX_COLS / block;
    for (int s = 0; s < n_sizes; s++)
        for (int kind = 0; kind < KINDS; kind++) {
            make_batch(&b, type, form, block > 32 ? block * (s + 1) : s < 11 ? blocked[s] : odd[s - 11], kind, s & 1);
            if (right && !products_right(&b)) {
                right = 0;
                printf("# n_cols %d, kind %d\n", b.n_cols, kind);
            }
            /* How values are grouped depends on sizes alone, and the scalar tier has one loop for all groups. */
            if (same && !groupings_same(&b, (kind == 0 ? 1 : 6) * (tier == CPU_SCALAR ? 12 : 1))) {
                same = 0;
                printf("# n_cols %d, kind %d\n", b.n_cols, kind);
            }
        }
    CHECK_MSG(right, "%s %s products, activations %s", kernels->name, quant_traits(type)->name, form ? "Q8" : "F32");
    CHECK_MSG(same, "%s %s bits, activations %s", kernels->name, quant_traits(type)->name, form ? "Q8" : "F32");
}

/* ---- accumulation ---- */

enum { AX_ROWS = 150,
       AX_SLOTS = 21,
       AX_TOKENS = 6,
       AX_COLS = 768 };

struct sums {
    uint32_t type;
    int n_cols, n_rows, n_tokens;
    const void *row[AX_ROWS]; /* NULL where no token needs the row */
    float h[AX_TOKENS * AX_ROWS], start[AX_TOKENS * AX_COLS], bits[AX_TOKENS * AX_COLS];
};

static void make_sums(struct sums *s, uint32_t type, int n, int kind)
{
    *s = (struct sums){ .type = type, .n_cols = n, .n_rows = 1 + (int)(rnd() % (rnd() % 8 ? AX_SLOTS : AX_ROWS)),
                        .n_tokens = 1 + (int)(rnd() % AX_TOKENS) };
    fill_floats(s->h, s->n_tokens * s->n_rows, kind);
    fill_floats(s->start, s->n_tokens * n, KIND_RANDOM);
    if (kind != KIND_RANDOM)
        memset(s->start, 0, sizeof s->start);
    for (int r = 0; r < s->n_rows; r++) {
        uint8_t *p = guarded(10 + r % AX_SLOTS, quant_row_bytes(type, (uint64_t)n), r % AX_SLOTS & 1);
        if (r < AX_SLOTS)
            fill_row(p, type, n, kind, r < QUANTISED);
        s->row[r] = p;
        if (rnd() % 3 == 0) {
            s->row[r] = NULL;
            for (int t = 0; t < s->n_tokens; t++)
                s->h[t * s->n_rows + r] = rnd() & 1 ? 0.0f : -0.0f;
        } else {
            for (int t = 0; t < s->n_tokens; t++)
                if (rnd() % 2)
                    s->h[t * s->n_rows + r] = 0;
        }
    }
}

/* Each token alone, each row alone, all columns: the bits that every grouping must give. */
static int sums_right(struct sums *s)
{
    static float w[AX_COLS];
    static double sum[AX_COLS], mag[AX_COLS];
    int n = s->n_cols, ok = 1;
    memcpy(s->bits, s->start, sizeof s->bits);
    for (int t = 0; t < s->n_tokens; t++) {
        for (int c = 0; c < n; c++) {
            sum[c] = (double)s->start[t * n + c];
            mag[c] = fabs(sum[c]);
        }
        for (int r = 0; r < s->n_rows; r++) {
            float h = s->h[t * s->n_rows + r];
            if (h == 0)
                continue;
            kernels->axpy[s->type](s->bits + t * n, 0, &s->row[r], &h, 0, 1, 1, 0, n);
            quant_traits(s->type)->dequant(w, s->row[r], (size_t)n);
            for (int c = 0; c < n; c++) {
                sum[c] += (double)h * w[c];
                mag[c] += fabs((double)h * w[c]);
            }
        }
        for (int c = 0; c < n; c++)
            ok &= fabs(s->bits[t * n + c] - sum[c]) <= (2 * s->n_rows + 2) * (0x1p-24 * mag[c] + 2e-43);
    }
    return ok;
}

/* All tokens at once, rows split in two runs, over the columns [col0, col0 + n_cols). */
static int sums_same(const struct sums *s, int split, int col0, int n_cols)
{
    int n = s->n_cols;
    size_t stride = (size_t)n_cols + rnd() % 3;
    size_t n_acc = (size_t)(s->n_tokens - 1) * stride + (size_t)n_cols;
    float *acc = guarded(0, n_acc * sizeof *acc, 0);
    for (size_t i = 0; i < n_acc; i++)
        acc[i] = 777;
    for (int t = 0; t < s->n_tokens; t++)
        memcpy(acc + (size_t)t * stride, s->start + t * n + col0, (size_t)n_cols * sizeof *acc);
    kernels->axpy[s->type](acc, stride, s->row, s->h, (size_t)s->n_rows, split, s->n_tokens, col0, n_cols);
    kernels->axpy[s->type](acc, stride, s->row + split, s->h + split, (size_t)s->n_rows, s->n_rows - split,
                           s->n_tokens, col0, n_cols);
    for (int t = 0; t < s->n_tokens; t++)
        if (memcmp(acc + (size_t)t * stride, s->bits + t * n + col0, (size_t)n_cols * sizeof *acc))
            return 0;
    return gaps_kept(acc, stride, n_cols, s->n_tokens);
}

/* Rows at a fixed stride, all of them added, in two runs: the bits of axpy token by token and row by row. */
static void test_sums(uint32_t type)
{
    static float want[MAX_TOKENS * 100], acc[MAX_TOKENS * 103], h[MAX_TOKENS * 301];
    static uint8_t rows[300 * 420];
    const int block = quant_traits(type)->block_elems;
    const size_t stride = block > 1 ? quant_row_bytes(type, 96) + 3 : quant_row_bytes(type, 103);
    int same = 1;
    for (int rep = 0; rep < 120; rep++) {
        int n = 1 + (int)(rnd() % (rep % 4 ? 40 : 300)), tokens = 1 + (int)(rnd() % 20), split = (int)(rnd() % (unsigned)(n + 1)),
            cols = block > 1 ? block + block * (int)(rnd() % 3) : 1 + (int)(rnd() % 100);
        fill_floats(h, MAX_TOKENS * 301, rep % KINDS);
        for (int r = 0; r < n; r++) {
            fill_row(rows + (size_t)r * stride, type, cols, rep % KINDS, 0);
            for (int t = 0; t < tokens; t++)
                if (rnd() % 4 == 0)
                    h[t * 301 + r] = rnd() % 2 ? 0.0f : -0.0f;
        }
        memset(want, 0, sizeof want);
        for (int i = 0; i < MAX_TOKENS * 103; i++)
            acc[i] = i % 103 < cols ? 0 : 777;
        for (int t = 0; t < tokens; t++)
            for (int r = 0; r < n; r++) {
                const void *row = rows + (size_t)r * stride;
                kernels->axpy[type](want + t * cols, 0, &row, &h[t * 301 + r], 0, 1, 1, 0, cols);
            }
        kernels->sums[type](acc, 103, rows, stride, h, 301, split, tokens, cols);
        kernels->sums[type](acc, 103, rows + (size_t)split * stride, stride, h + split, 301, n - split, tokens, cols);
        for (int t = 0; t < tokens; t++)
            same &= !memcmp(acc + t * 103, want + t * cols, (size_t)cols * sizeof *acc);
        same &= gaps_kept(acc, 103, cols, tokens);
    }
    CHECK_MSG(same, "%s %s sums of rows in order", kernels->name, quant_traits(type)->name);
}

static void test_axpy(uint32_t type)
{
    static const int sizes[] = { 32, 64, 96, 160, 288, 416, 1, 5, 17, 47, 100, 333 }, wide[] = { 256, 512, AX_COLS };
    struct sums s;
    int right = 1, same = 1, block = quant_traits(type)->block_elems;
    for (int i = 0; i < (block == 1 ? 12 : block == 32 ? 6 : 3); i++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int rep = 0; rep < 6; rep++) {
                make_sums(&s, type, block > 32 ? wide[i] : sizes[i], kind);
                right &= sums_right(&s);
                same &= sums_same(&s, 0, 0, s.n_cols);
                for (int k = 0; k < 4; k++) {
                    int blocks = s.n_cols / block, b0 = (int)(rnd() % (unsigned)blocks);
                    int len = 1 + (int)(rnd() % (unsigned)(blocks - b0));
                    same &= sums_same(&s, (int)(rnd() % (unsigned)(s.n_rows + 1)), b0 * block, len * block);
                }
            }
    CHECK_MSG(right, "%s %s sums", kernels->name, quant_traits(type)->name);
    CHECK_MSG(same, "%s %s bits of sums", kernels->name, quant_traits(type)->name);
}

/* ---- vectors ---- */

static void test_quant_q8(const struct kernels *scalar)
{
    int bad = 0, bound = 0;
    for (int rep = 0; rep < 400; rep++) {
        int n = 32 * (1 + rep % 8), groups = (n + 127) / 128;
        float *x = guarded(1, (size_t)n * sizeof *x, rep & 1);
        struct kernels_q8_group *got = guarded(0, (size_t)groups * sizeof *got, 0), want[2];
        fill_floats(x, n, rep % KINDS);
        if (rep % 5 == 0)
            for (int i = 0; i < n; i++) /* many ties: max 127, halves */
                x[i] = i % 32 == 3 ? 127 : (float)(rnd() % 254) - 126.5f;
        if (rep % 7 == 0)
            x[rnd() % (unsigned)n] = (float[]){ NAN, INFINITY, -INFINITY, 3e38f, 1e-45f }[rnd() % 5];
        memset(want, 2, sizeof want);
        memset(got, 1, (size_t)groups * sizeof *got);
        scalar->quant_q8(want, x, n);
        kernels->quant_q8(got, x, n);
        bad += memcmp(want, got, (size_t)groups * sizeof *got) != 0;
        for (int b = 0; b < 4 * groups; b++) {
            const struct kernels_q8_group *g = &got[b / 4];
            float top = 0;
            int finite = 1;
            for (int j = 0; j < 32; j++) {
                float v = 32 * b < n ? x[32 * b + j] : 0;
                int q = g->qs[b % 4 * 32 + j];
                top = fmaxf(top, fabsf(v));
                finite &= isfinite(v) != 0;
                bound += q < -127 || (32 * b >= n && q);
            }
            bound += 32 * b >= n && g->d[b % 4] != 0;
            for (int j = 0; j < 32 && finite && top > 1e-30f; j++)
                bound += fabs((double)g->d[b % 4] * g->qs[b % 4 * 32 + j] -
                              (double)x[32 * b + j]) > (double)top / 253.99;
        }
    }
    CHECK_MSG(bad == 0, "%s quant_q8 equals scalar", kernels->name);
    CHECK_MSG(bound == 0, "%s quant_q8 error", kernels->name);
}

static void test_above(void)
{
    int bad = 0, spill = 0;
    for (int n = 0; n <= 300; n += n < 70 ? 1 : 23)
        for (int rep = 0; rep < 6; rep++) {
            float *x = guarded(1, (size_t)n * sizeof *x, rep & 1), least = rep < 3 ? 0.25f : uniform();
            uint8_t *bits = guarded(0, (size_t)(n + 7) / 8 + 1, 0);
            for (int i = 0; i < n; i++) {
                x[i] = rnd() % 3 ? uniform() : least;
                if (rnd() % 9 == 0)
                    x[i] = (float[]){ NAN, INFINITY, -INFINITY, nextafterf(least, 9), nextafterf(least, -9) }[rnd() % 5];
            }
            bits[(n + 7) / 8] = 0x5a;
            kernels->above(bits, x, least, n);
            for (int i = 0; i < (n + 7) / 8 * 8; i++)
                bad += (bits[i / 8] >> i % 8 & 1) != (i < n && x[i] > least);
            spill += bits[(n + 7) / 8] != 0x5a;
        }
    CHECK_MSG(bad == 0 && spill == 0, "%s above: %d", kernels->name, bad);
}

static void test_vectors(void)
{
    int bad_dot = 0, bad_axpy = 0, bad_half = 0, spill = 0;
    for (int n = 0; n <= 300; n += n < 70 ? 1 : 23)
        for (int kind = 0; kind < KINDS; kind++) {
            size_t un = (size_t)n;
            float *a = guarded(1, un * 4, 0), *b = guarded(2, un * 4, 0), *y = guarded(3, un * 4, 0);
            uint16_t *h = guarded(4, un * 2, 0);
            float y0[301], k = uniform();
            fill_floats(a, n, kind);
            fill_floats(b, n, kind);
            fill_floats(y0, n, KIND_RANDOM);
            double s32 = 0, s16 = 0, mag = 0;
            kernels->to_f16(h, b, n);
            for (int i = 0; i < n; i++) {
                bad_half += h[i] != quant_f32_to_f16(b[i]);
                s32 += (double)a[i] * b[i];
                s16 += (double)a[i] * quant_f16_to_f32(h[i]);
                mag += fabs((double)a[i] * b[i]) * 1.001 + fabs((double)a[i]) * 0x1p-24;
            }
            double tol = (n / 8 + 24) * 0x1p-24 * mag + n * 1e-37;
            bad_dot += !(fabs(kernels->dot_f32(a, b, n) - s32) <= tol);
            bad_dot += !(fabs(kernels->dot_f16(a, h, n) - s16) <= tol);
            memcpy(y, y0, un * 4);
            kernels->axpy_f32(y, k, b, n);
            for (int i = 0; i < n; i++)
                bad_axpy += fabs(y[i] - (y0[i] + (double)k * b[i])) > 0x1p-22 * (1 + fabs((double)k * b[i]));
            memcpy(y, y0, un * 4);
            kernels->axpy_f16(y, k, h, n);
            for (int i = 0; i < n; i++) {
                double w = (double)quant_f16_to_f32(h[i]);
                bad_axpy += fabs(y[i] - (y0[i] + (double)k * w)) > 0x1p-22 * (1 + fabs(k * w));
            }
        }
    for (uint32_t u = 0; u < 0xffffff00u - 4096; u += 4091) { /* all exponents, rounding cases, NaN */
        float f[3];
        uint16_t h[4] = { 0, 0, 0, 0x1234 };
        uint32_t bits[3] = { u, u & 0xffffe000u, (u & 0xffffe000u) | 0x1000 };
        memcpy(f, bits, sizeof f);
        kernels->to_f16(h, f, 3);
        for (int i = 0; i < 3; i++)
            bad_half += h[i] != quant_f32_to_f16(f[i]);
        spill += h[3] != 0x1234;
    }
    CHECK_MSG(bad_dot == 0, "%s dots", kernels->name);
    CHECK_MSG(bad_axpy == 0, "%s vector axpy", kernels->name);
    CHECK_MSG(bad_half == 0 && spill == 0, "%s to_f16: %d", kernels->name, bad_half);
}

static void test_forms(void)
{
    CHECK(kernels_act_bytes(KERNELS_ACT_F32, 96) == 384 && kernels_act_bytes(KERNELS_ACT_Q8, 96) == 160 &&
          kernels_act_bytes(KERNELS_ACT_Q8, 256) == 320);
    CHECK(kernels_act_form(QUANT_Q4_0, 1) == KERNELS_ACT_Q8 && kernels_act_form(QUANT_Q8_0, 1) == KERNELS_ACT_Q8);
    CHECK(kernels_act_form(QUANT_F16, 1) == KERNELS_ACT_F32 && kernels_act_form(QUANT_Q4_0, 0) == KERNELS_ACT_F32);
    CHECK(kernels_act_form(12345, 1) == KERNELS_ACT_F32);
    CHECK(!kernels->rows[KERNELS_ACT_Q8][QUANT_F16] && !kernels->rows[KERNELS_ACT_F32][QUANT_TQ1_0]);
}

/* Where two tiers add in the order of kernels.h, products of int8 have the same bits on both. */
static void test_tiers_same(unsigned have, int a, int b)
{
    static struct batch one, other;
    for (int i = 0; i < N_TYPES; i++) {
        const uint64_t start = seed;
        int n = quant_traits(types[i])->block_elems > 32 ? 768 : 544;
        kernels_init(have & ((2u << a) - 1));
        if (!kernels->rows[KERNELS_ACT_Q8][types[i]])
            continue;
        make_batch(&one, types[i], KERNELS_ACT_Q8, n, KIND_RANDOM, 0);
        all_alone(&one);
        seed = start;
        kernels_init(have & ((2u << b) - 1));
        make_batch(&other, types[i], KERNELS_ACT_Q8, n, KIND_RANDOM, 0);
        all_alone(&other);
        CHECK_MSG(!memcmp(one.bits, other.bits, sizeof one.bits), "%s: the same bits as with %s", quant_traits(types[i])->name,
                  cpu_tier_name(a));
    }
}

/* The same for more tokens and rows than a kernel takes at a time. */
static void test_many_same(unsigned have, int a, int b)
{
    enum { ROWS = 83, TOKENS = 273 };
    static float one[TOKENS * ROWS], other[TOKENS * ROWS];
    static const int tokens[] = { 16, 17, 256, 257, 271, 272, TOKENS };
    for (int i = 0; i < N_TYPES; i++) {
        const struct quant_traits *q = quant_traits(types[i]);
        const int n = q->block_elems > 32 ? 1024 : 1120;
        const size_t row = quant_row_bytes(types[i], (uint64_t)n), act = kernels_act_bytes(KERNELS_ACT_Q8, n);
        kernels_init(have & ((2u << a) - 1));
        if (!kernels->rows[KERNELS_ACT_Q8][types[i]])
            continue;
        uint8_t *w = malloc(ROWS * row), *x = malloc(TOKENS * act);
        float *f = malloc((size_t)n * sizeof *f);
        for (int r = 0; r < ROWS; r++)
            fill_row(w + (size_t)r * row, types[i], n, KIND_RANDOM, 0);
        for (int t = 0; t < TOKENS; t++) {
            fill_floats(f, n, t % KINDS);
            kernels_act_prepare(x + (size_t)t * act, KERNELS_ACT_Q8, f, n);
        }
        int same = 1;
        for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++) {
            const int rows = k % 2 ? ROWS : 8 + (int)(rnd() % (ROWS - 8));
            kernels_init(have & ((2u << a) - 1));
            kernels->rows[KERNELS_ACT_Q8][types[i]](one, ROWS, w, row, rows, x, act, tokens[k], n);
            kernels_init(have & ((2u << b) - 1));
            kernels->rows[KERNELS_ACT_Q8][types[i]](other, ROWS, w, row, rows, x, act, tokens[k], n);
            for (int t = 0; t < tokens[k]; t++)
                same &= !memcmp(one + t * ROWS, other + t * ROWS, (size_t)rows * sizeof *one);
        }
        CHECK_MSG(same, "%s: the same bits as with %s for many tokens", q->name, cpu_tier_name(a));
        free(w);
        free(x);
        free(f);
    }
}

static void test_both(unsigned have, int a, int b)
{
    test_tiers_same(have, a, b);
    test_many_same(have, a, b);
}

/* What the tier has in common with the one below, down to the function's address, was tried there. */
static int own_products(const struct kernels *below, uint32_t type, enum kernels_act form)
{
    return kernels->rows[form][type] != below->rows[form][type] || kernels->rows_at[form][type] != below->rows_at[form][type];
}

static int own_vectors(const struct kernels *below)
{
    return kernels->dot_f32 != below->dot_f32 || kernels->dot_f16 != below->dot_f16 || kernels->axpy_f32 != below->axpy_f32 ||
           kernels->axpy_f16 != below->axpy_f16 || kernels->to_f16 != below->to_f16;
}

static void test_tier(int tier, const struct kernels *below, const struct kernels *scalar)
{
    for (int i = 0; i < N_TYPES; i++) {
        const uint32_t type = types[i];
        for (int form = 0; form < KERNELS_ACT_FORMS; form++)
            if (kernels->rows[form][type] && own_products(below, type, form))
                test_products(tier, type, form);
        if (kernels->axpy[type] != below->axpy[type])
            test_axpy(type);
        if (kernels->sums[type] != below->sums[type])
            test_sums(type);
    }
    if (kernels->quant_q8 != below->quant_q8)
        test_quant_q8(scalar);
    if (own_vectors(below))
        test_vectors();
    if (kernels->above != below->above)
        test_above();
}

static int complete(void)
{
    int ok = kernels->quant_q8 && kernels->dot_f32 && kernels->dot_f16 && kernels->axpy_f32 && kernels->axpy_f16 && kernels->to_f16 &&
             kernels->above;
    for (int i = 0; i < N_TYPES; i++)
        ok &= kernels->rows[KERNELS_ACT_F32][types[i]] && kernels->rows_at[KERNELS_ACT_F32][types[i]] && kernels->axpy[types[i]] &&
              (quant_traits(types[i])->block_elems > 1 || kernels->sums[types[i]]);
    return ok;
}

int main(void)
{
    unsigned have = cpu_detect();
    struct kernels scalar, below = { 0 };
    kernels_init(1u << CPU_SCALAR);
    scalar = *kernels;
    for (int tier = 0; tier < CPU_TIERS; tier++) {
        if (!(have & 1u << tier))
            continue;
        kernels_init(have & ((2u << tier) - 1));
        printf("# tier %s\n", kernels->name);
        CHECK(!strcmp(kernels->name, cpu_tier_name(tier)));
        CHECK(complete());
        test_forms();
        test_tier(tier, &below, &scalar);
        below = *kernels;
    }
    if (have & 1u << CPU_AVXVNNI)
        test_both(have, CPU_AVX2, CPU_AVXVNNI);
    if (have & 1u << CPU_AVX2 && have & 1u << CPU_AVX512)
        test_both(have, CPU_AVX2, CPU_AVX512);
    if (have & 1u << CPU_AMX)
        test_both(have, CPU_AVX512, CPU_AMX);
    else
        printf("# no AMX here: not compared with AVX-512\n");
    return test_done();
}
