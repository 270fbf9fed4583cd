/* Nothing but row products around a vector of the rank's length; the work of deciding what to load for whom is the
 * caller's. */
#include "common/model/predict.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"
#include "common/model/model.h"

#include <math.h>
#include <string.h>

static const char *const input_names[PREDICT_INPUTS] = { "ffn", "block", "residual" };

const char *predict_input_name(enum predict_input i)
{
    return i < PREDICT_INPUTS ? input_names[i] : "?";
}

int predict_input_by_name(const char *name)
{
    for (int i = 0; i < PREDICT_INPUTS; i++)
        if (!strcmp(name, input_names[i]))
            return i;
    return -1;
}

uint64_t predict_row1_bytes(uint32_t type1, int d_model)
{
    return type1 == PREDICT_PICK ? PREDICT_PICK_BYTES : quant_row_bytes(type1, (uint64_t)d_model);
}

uint64_t predict_row2_bytes(uint32_t type2, int rank)
{
    return quant_row_bytes(type2, (uint64_t)rank);
}

const char *predict_type_name(uint32_t type)
{
    const struct quant_traits *t = quant_traits(type);
    return type == PREDICT_PICK ? "picked inputs" : t ? t->name : "?";
}

int predict_check_selected(uint32_t type1, const void *fc1, int n, int d_model)
{
    const uint8_t *row = fc1;
    for (int i = 0; type1 == PREDICT_PICK && i < n; i++, row += PREDICT_PICK_BYTES)
        if (bytes_le32(row) >= (uint32_t)d_model || !isfinite(bytes_lef32(row + 4)))
            return 0;
    return 1;
}

uint64_t predict_bytes(int d_model, int rank, int n_ff, uint32_t type1, uint32_t type2, int numbers)
{
    if (d_model < 1 || d_model > MODEL_MAX_DIM || n_ff < 1 || n_ff > MODEL_MAX_DIM || rank < 1 ||
        rank > PREDICT_MAX_RANK)
        return 0;
    uint64_t row1 = predict_row1_bytes(type1, d_model), row2 = predict_row2_bytes(type2, rank), a, b, sum;
    if (!row1 || !row2 || !ck_mul_u64(row1, (uint64_t)rank, &a) || !ck_mul_u64(row2, (uint64_t)n_ff, &b) ||
        !ck_add_u64(a, b, &sum))
        return 0;
    return sum + (uint64_t)n_ff * 4 * (uint64_t)numbers;
}

static int check_type(uint32_t type, const char *which, struct err *e)
{
    if (type < QUANT_LIMIT && kernels->rows[KERNELS_ACT_F32][type])
        return 0;
    const struct quant_traits *t = quant_traits(type);
    return err_set(e, ERR_UNSUPPORTED, "a predictor's %s has type %s (%u), for which there are no kernels", which,
                   t ? t->name : "unknown", type);
}

int predict_init(struct predict *p, struct err *e)
{
    int r;
    if ((p->type1 != PREDICT_PICK && (r = check_type(p->type1, "fc1", e)) < 0) || (r = check_type(p->type2, "fc2", e)) < 0)
        return r;
    if (!predict_bytes(p->d_model, p->rank, p->n_ff, p->type1, p->type2, predict_numbers(1, p->two_sided)))
        return err_set(e, ERR_UNSUPPORTED,
                       "a predictor of rank %d for %d inputs and %d neurons does not fit its types' blocks",
                       p->rank, p->d_model, p->n_ff);
    p->row1 = predict_row1_bytes(p->type1, p->d_model);
    p->row2 = predict_row2_bytes(p->type2, p->rank);
    p->form1 = kernels_act_form(p->type1, 1);
    p->form2 = kernels_act_form(p->type2, 1);
    return 0;
}

size_t predict_input_bytes(const struct predict *p)
{
    return kernels_act_bytes(p->form1, p->d_model);
}

size_t predict_hidden_bytes(const struct predict *p)
{
    return kernels_act_bytes(p->form2, p->rank);
}

static void pick(const struct predict *p, int row0, int row1, const uint8_t *x, size_t x_stride, int n_tokens, float *h,
                 size_t h_stride)
{
    const uint8_t *fc1 = p->fc1;
    for (int t = 0; t < n_tokens; t++) {
        const float *in = (const float *)(const void *)(x + (size_t)t * x_stride); /* form1 of a type without kernels */
        for (int i = row0; i < row1; i++)
            h[(size_t)t * h_stride + (size_t)i] = in[bytes_le32(fc1 + i * PREDICT_PICK_BYTES)] *
                                                  bytes_lef32(fc1 + i * PREDICT_PICK_BYTES + 4);
    }
}

void predict_hidden(const struct predict *p, int row0, int row1, const void *x, size_t x_stride, int n_tokens, float *h,
                    size_t h_stride)
{
    if (p->type1 == PREDICT_PICK) {
        pick(p, row0, row1, x, x_stride, n_tokens, h, h_stride);
        return;
    }
    kernels->rows[p->form1][p->type1](h + row0, h_stride, (const uint8_t *)p->fc1 + (size_t)row0 * p->row1, p->row1,
                                      row1 - row0, x, x_stride, n_tokens, p->d_model);
}

void predict_prepare(const struct predict *p, float *h, size_t h_stride, int n_tokens, void *out, size_t out_stride)
{
    for (int t = 0; t < n_tokens; t++) {
        float *row = h + (size_t)t * h_stride;
        for (int i = 0; p->relu && i < p->rank; i++)
            row[i] = row[i] > 0 ? row[i] : 0;
        kernels_act_prepare((uint8_t *)out + (size_t)t * out_stride, p->form2, row, p->rank);
    }
}

/* s becomes the score, s + bias on the way; b: bias, width, reach of each neuron. */
static void fold(float *s, const float *b, int n)
{
    for (int i = 0; i < n; i++, b += PREDICT_TWO_SIDED) {
        float above = s[i] + b[0], below = -(above + b[1]), end = above + b[2];
        below = below < end ? below : end;
        s[i] = above > below ? above : below;
    }
}

void predict_scores(const struct predict *p, int first, int n, const void *hidden, size_t hidden_stride, int n_tokens,
                    float *score, size_t stride)
{
    kernels->rows[p->form2][p->type2](score, stride, (const uint8_t *)p->fc2 + (size_t)first * p->row2,
                                      p->row2, n, hidden, hidden_stride, n_tokens, p->rank);
    for (int t = 0; p->two_sided && t < n_tokens; t++)
        fold(score + (size_t)t * stride, p->bias + (size_t)first * PREDICT_TWO_SIDED, n);
    for (int t = 0; p->bias && !p->two_sided && t < n_tokens; t++)
        kernels->axpy_f32(score + (size_t)t * stride, 1, p->bias + first, n);
}

void predict_decide(const struct predict *p, const float *score, int n, uint8_t *bits)
{
    kernels->above(bits, score, p->threshold, n);
}

uint32_t predict_range(uint32_t cluster_neurons)
{
    return cluster_neurons < PREDICT_RANGE ? PREDICT_RANGE / cluster_neurons * cluster_neurons : cluster_neurons;
}

static uint32_t pieces(uint32_t n, uint32_t per)
{
    return n / per + (n % per != 0);
}

/* `bytes` that begin anywhere, as whole blocks. */
static uint64_t whole_blocks(uint64_t bytes, uint64_t block)
{
    return (bytes + block - 1) / block * block + block;
}

void predict_pieces_of(uint64_t row1, int rank, uint64_t row2, int two_sided, int n_ff, uint32_t always, uint32_t cluster_neurons,
                       uint32_t block_bytes, struct predict_pieces *out)
{
    uint64_t align = block_bytes > 4096 ? block_bytes : 4096;
    uint32_t range = predict_range(cluster_neurons), n = (uint32_t)n_ff > always ? (uint32_t)n_ff - always : 0;
    uint64_t want = (row1 * (uint64_t)rank + row2 * (uint64_t)n_ff) / 16;
    want = want < PREDICT_PIECE_LEAST ? PREDICT_PIECE_LEAST : want < PREDICT_PIECE_MOST ? want : PREDICT_PIECE_MOST;
    uint32_t n_ranges = pieces(n, range), rows = (uint32_t)(want / row1), ranges = (uint32_t)(want / (row2 * range));
    struct predict_pieces p = { .range = range };
    p.rows = rows < 1 ? 1 : rows < (uint32_t)rank ? rows : (uint32_t)rank;
    p.ranges = ranges < 1 ? 1 : ranges < n_ranges || !n_ranges ? ranges : n_ranges;
    p.n_hidden = n_ranges ? pieces((uint32_t)rank, p.rows) : 0;
    p.n_scores = pieces(n_ranges, p.ranges);
    uint64_t neurons = (uint64_t)p.ranges * range, hidden = whole_blocks(p.rows * row1, align), scores;
    neurons = neurons < n ? neurons : n;
    scores = whole_blocks(neurons * row2, align) + whole_blocks(neurons * (uint64_t)predict_numbers(1, two_sided) * sizeof(float), align);
    p.buffer_bytes = hidden > scores ? hidden : scores;
    *out = p;
}
