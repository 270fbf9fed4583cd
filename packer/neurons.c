/* Tiles are copied: rows of Gate and Up, of each row of Down some quant blocks.
 *
 * Else Down is stored by column, the source has rows, so a panel of columns is gathered at a time: sixteen
 * source rows are converted side by side and interleaved, then each column of the panel gets sixteen consecutive
 * values, a cache line of either. Several panels per FFN mean several conversions of the matrix, and bounded
 * memory. Conversion goes through float32, which is exact for every float type, so F16 stays F16 to
 * the bit; block types are quantised anew along the new rows, and what that costs is summed. A source that has Down
 * by neuron already (PowerInfer's) is taken row by row, as Gate and Up are. */
#include "packer/neurons.h"

#include "common/base/ckmath.h"
#include "common/base/inline.h"
#include "common/kernels/quant.h"
#include "common/pack/unit_check.h"

#include <stdlib.h>
#include <string.h>

#define LANES 16
#define SUMS  8

/* Elements of the largest quant block; of types without blocks so many are converted together. */
enum { MOST_BLOCK = 256 };

struct neurons {
    int d_model, n_threads;
    struct pool *pool;
    uint32_t panel;
    float *columns;                 /* [panel][d_model] */
    float *rows;                    /* [n_threads][n_ff][LANES] */
    float *weights;                 /* [n_threads][2][d_model]: a row before and after */
    uint8_t *segment[LAYOUT_MAX_PARTS];
    uint64_t segment_cap[LAYOUT_MAX_PARTS];
    struct neurons_loss *loss;      /* [clusters of a panel]: summed in order, whatever thread did it */
    uint64_t memory;
};

static void *take(struct neurons *n, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    if (!ck_mul_u64(count, size, &bytes) || bytes > SIZE_MAX)
        return NULL;
    n->memory += bytes;
    return calloc((size_t)count, (size_t)size);
}

int neurons_new(const struct layout_shapes *s, int d_model, uint64_t panel_bytes, struct pool *pool, struct neurons **out,
                struct err *e)
{
    struct neurons *n = calloc(1, sizeof *n);
    if (!n)
        return err_set(e, ERR_NOMEM, "packing neurons");
    n->d_model = d_model;
    n->pool = pool;
    n->n_threads = pool_threads(pool);
    uint64_t each = (uint64_t)d_model * 4, cluster = s->l.cluster_neurons;
    uint64_t clusters = panel_bytes / each / cluster;
    if (clusters < 1)
        clusters = 1;
    if (clusters > s->n_clusters)
        clusters = s->n_clusters;
    n->panel = (uint32_t)(clusters * cluster);
    n->columns = take(n, n->panel, each);
    n->rows = take(n, (uint64_t)n->n_threads * LANES * (uint64_t)s->n_ff, 4);
    n->weights = take(n, (uint64_t)n->n_threads * 2 * (uint64_t)d_model, 4);
    n->loss = take(n, clusters, sizeof *n->loss);
    int ok = n->columns && n->rows && n->weights && n->loss;
    for (int i = 0; i < s->n_segments; i++) {
        for (int k = 0; k < s->l.n_kinds; k++) {
            const struct layout_part *p = &s->kind[k].part[i];
            uint64_t bytes = n->panel / p->neurons_per_unit * p->stride_bytes + s->l.block_bytes;
            n->segment_cap[i] = bytes > n->segment_cap[i] ? bytes : n->segment_cap[i];
        }
        n->segment[i] = take(n, n->segment_cap[i], 1);
        ok = ok && n->segment[i];
    }
    if (!ok) {
        neurons_free(n);
        return err_set(e, ERR_NOMEM, "packing neurons: panels of %llu bytes", (unsigned long long)panel_bytes);
    }
    *out = n;
    return 0;
}

void neurons_free(struct neurons *n)
{
    if (!n)
        return;
    for (int i = 0; i < LAYOUT_MAX_PARTS; i++)
        free(n->segment[i]);
    free(n->columns);
    free(n->rows);
    free(n->weights);
    free(n->loss);
    free(n);
}

uint64_t neurons_memory(const struct neurons *n)
{
    return n->memory;
}

uint32_t neurons_panel(const struct neurons *n)
{
    return n->panel;
}

struct job {
    struct neurons *n;
    const struct neurons_in *in;
    uint32_t first, last;
    const struct neurons_checks *checks;
    const struct neurons_out *out;
};

/* ---- Down's columns into n->columns ---- */

static void gather_rows(void *ctx, int begin, int end, int worker)
{
    const struct job *j = ctx;
    const struct neurons_in *in = j->in;
    const struct quant_traits *t = quant_traits(in->down_type);
    size_t row_bytes = quant_row_bytes(in->down_type, (uint64_t)in->n_ff), n_ff = (size_t)in->n_ff;
    float *rows = j->n->rows + (size_t)worker * LANES * n_ff, tmp[LANES][MOST_BLOCK] = { { 0 } }; /* rows: [n_ff][LANES] */
    const size_t piece = t->block_elems > 1 ? (size_t)t->block_elems : MOST_BLOCK;
    for (int r0 = begin * LANES; r0 < end * LANES && r0 < in->d_model; r0 += LANES) {
        int lanes = in->d_model - r0 < LANES ? in->d_model - r0 : LANES;
        for (size_t i = 0; i < n_ff; i += piece) {
            size_t n = n_ff - i < piece ? n_ff - i : piece;
            for (int k = 0; k < lanes; k++)
                t->dequant(tmp[k], in->down + (size_t)(r0 + k) * row_bytes + i / (size_t)t->block_elems * (size_t)t->block_bytes, n);
            for (size_t c = 0; c < n; c++)
                for (int k = 0; k < LANES; k++)
                    rows[(i + c) * LANES + (size_t)k] = tmp[k][c];
        }
        for (uint32_t p = j->first; p < j->last; p++) {
            float *col = j->n->columns + (size_t)(p - j->first) * (size_t)in->d_model + r0;
            memcpy(col, rows + (size_t)in->order[p] * LANES, (size_t)lanes * sizeof *col);
        }
    }
}

/* ---- records ---- */

/* Sums in lanes, which end in one order: the same on every machine. */
AVX2_TOO static void add_loss(struct neurons_loss *loss, int role, const float *values, const float *back, size_t n)
{
    double error2[SUMS] = { 0 }, weight2[SUMS] = { 0 };
    size_t whole = n - n % SUMS;
    for (size_t i = 0; i < whole; i += SUMS)
        for (size_t k = 0; k < SUMS; k++) {
            double v = (double)values[i + k], err = (double)back[i + k] - v;
            error2[k] += err * err;
            weight2[k] += v * v;
        }
    for (size_t i = whole; i < n; i++) {
        error2[0] += ((double)back[i] - (double)values[i]) * ((double)back[i] - (double)values[i]);
        weight2[0] += (double)values[i] * (double)values[i];
    }
    for (int k = 0; k < SUMS; k++) {
        loss->error2[role] += error2[k];
        loss->weight2[role] += weight2[k];
    }
}

/* One row of a role into its place; what the change of type lost is added up. */
static void put_row(const struct job *j, int role, uint32_t pos, uint8_t *dst, float *tmp, struct neurons_loss *loss)
{
    const struct neurons_in *in = j->in;
    size_t d = (size_t)in->d_model;
    uint32_t to = in->shape->type[role], from = role == LAYOUT_GATE ? in->gate_type : role == LAYOUT_UP ? in->up_type : in->down_type;
    const float *values;
    if (role == LAYOUT_DOWN && !in->down_by_neuron) {
        values = j->n->columns + (size_t)(pos - j->first) * d;
    } else {
        const uint8_t *base = role == LAYOUT_GATE ? in->gate : role == LAYOUT_UP ? in->up : in->down;
        const uint8_t *row = base + (size_t)in->order[pos] * quant_row_bytes(from, d);
        if (from == to) {
            memcpy(dst, row, quant_row_bytes(to, d));
            return;
        }
        quant_traits(from)->dequant(tmp, row, d);
        values = tmp;
    }
    if (role == LAYOUT_GATE && in->made)
        memcpy(dst, in->made + (size_t)in->order[pos] * quant_row_bytes(to, d), quant_row_bytes(to, d));
    else
        quant_traits(to)->quant(dst, values, d);
    float *back = tmp + d;
    quant_traits(to)->dequant(back, dst, d);
    add_loss(loss, role, values, back, d);
}

/* The tile of the n neurons from pos on. */
static void put_tile(const struct neurons_in *in, const struct layout_part *p, uint32_t pos, uint32_t n, uint8_t *tile)
{
    size_t row = quant_row_bytes(in->down_type, (uint64_t)in->n_ff), piece = layout_tile_down_bytes(p, n);
    const size_t gates = p->role_bytes[LAYOUT_GATE], ups = p->role_bytes[LAYOUT_UP];
    const uint8_t *from = in->down + layout_tile_down_bytes(p, pos);
    uint8_t *down = tile + layout_tile_offset(p, LAYOUT_DOWN, n);
    memcpy(tile, in->gate + pos * gates, n * gates);
    if (ups)
        memcpy(tile + layout_tile_offset(p, LAYOUT_UP, n), in->up + pos * ups, n * ups);
    for (size_t c = 0; c < (size_t)in->d_model; c++)
        memcpy(down + c * piece, from + c * row, piece);
}

/* xxh3-64 of the records of cluster [first, end) of one part, in order, without padding; and the number of each of its units. */
static void check_cluster(const struct job *j, int part, uint32_t first, uint32_t end)
{
    const struct layout_shape *s = j->in->shape;
    const struct layout_part *p = &s->part[part];
    const struct neurons_checks *k = j->checks;
    uint32_t *units = k->units + unit_check_first(s, part);
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    for (uint32_t u = layout_unit_of(p, first); u * p->neurons_per_unit < end; u++) {
        uint64_t at = p->first_offset + (uint64_t)u * p->stride_bytes - j->out->offset[p->segment];
        const uint8_t *records = j->n->segment[p->segment] + at;
        size_t bytes = layout_bytes(p, layout_unit_neurons(s, p, u));
        hash_update(h, records, bytes);
        units[u] = unit_check_sum(records, bytes, unit_check_seed(k->identity, s->n_parts, k->ffn, part, u));
    }
    k->clusters[(size_t)part * s->n_clusters + first / s->cluster_neurons] = hash_final64(h);
}

static void build_cluster(void *ctx, int begin, int end, int worker)
{
    const struct job *j = ctx;
    const struct layout_shape *s = j->in->shape;
    float *tmp = j->n->weights + (size_t)worker * 2 * (size_t)j->n->d_model;
    for (int c = begin; c < end; c++) {
        uint32_t a = j->first + (uint32_t)c * s->cluster_neurons, b = a + s->cluster_neurons;
        if (b > j->last)
            b = j->last;
        struct neurons_loss *loss = &j->n->loss[c];
        *loss = (struct neurons_loss){ 0 };
        for (int part = 0; part < s->n_parts; part++) {
            const struct layout_part *p = &s->part[part];
            uint8_t *seg = j->n->segment[p->segment];
            for (uint32_t pos = a; pos < b; pos += p->record_neurons) {
                uint32_t unit = layout_unit_of(p, pos);
                uint64_t at = p->first_offset + (uint64_t)unit * p->stride_bytes + layout_record_offset(p, pos);
                uint8_t *rec = seg + (at - j->out->offset[p->segment]);
                if (p->record_neurons > 1)
                    put_tile(j->in, p, pos, b - pos < p->record_neurons ? b - pos : p->record_neurons, rec);
                for (int r = 0; r < p->n_roles && p->record_neurons == 1; r++)
                    put_row(j, p->role[r], pos, rec + p->role_offset[p->role[r]], tmp, loss);
            }
            check_cluster(j, part, a, b);
        }
    }
}

int neurons_build(struct neurons *n, const struct neurons_in *in, uint32_t first, uint32_t last, struct neurons_out *out,
                  const struct neurons_checks *checks, struct neurons_loss *loss, struct err *e)
{
    const struct layout_shape *s = in->shape;
    for (int i = 0; i < s->n_segments; i++) {
        const struct layout_part *p = &s->part[i];
        out->offset[i] = (uint64_t)(first / p->neurons_per_unit) * p->stride_bytes;
        uint64_t end = last == (uint32_t)s->n_ff ? s->segment_bytes[i]
                                                 : (uint64_t)(last / p->neurons_per_unit) * p->stride_bytes;
        out->len[i] = end - out->offset[i];
        if (out->len[i] > n->segment_cap[i])
            return err_set(e, ERR_LIMIT, "panel of %llu bytes", (unsigned long long)out->len[i]);
        memset(n->segment[i], 0, out->len[i]);
        out->data[i] = n->segment[i];
    }
    struct job j = { n, in, first, last, checks, out };
    if (!in->down_by_neuron && s->part[0].record_neurons == 1)
        pool_for(n->pool, (in->d_model + LANES - 1) / LANES, 4, gather_rows, &j);
    int clusters = (int)((last - first + s->cluster_neurons - 1) / s->cluster_neurons);
    pool_for(n->pool, clusters, 1, build_cluster, &j);
    for (int c = 0; c < clusters; c++)
        for (int r = 0; r < LAYOUT_ROLES; r++) {
            loss->error2[r] += n->loss[c].error2[r];
            loss->weight2[r] += n->loss[c].weight2[r];
        }
    return 0;
}
