/* Round trip of a packed model through writer and reader: every neuron in every form is where the layout says. */
#include "common/base/version.h"
#include "common/kernels/kernels.h"
#include "common/pack/pack.h"
#include "tests/pack_sample.h"

#include <math.h>
#include <unistd.h>

static char path[256];

static float stored(const struct pack *p, int layer, int role, uint32_t pos, int col)
{
    int part = p->shapes.n_parts == 2 && role != LAYOUT_GATE;
    const struct layout_part *lp = &layout_of(&p->shapes, layer)->part[part];
    uint8_t row[SAMPLE_D * 4];
    float out[SAMPLE_D];
    struct err e;
    uint64_t at = pack_unit_offset(p, layer, 0, part, layout_unit_of(lp, pos)) +
                  layout_record_offset(lp, pos) + lp->role_offset[role];
    if (file_pread(&p->file, row, lp->role_bytes[role], at, &e) < 0)
        return NAN;
    quant_traits(layout_of(&p->shapes, layer)->type[role])->dequant(out, row, SAMPLE_D);
    return out[col];
}

static void check_neurons(const struct pack *p, double tolerance)
{
    int wrong = 0;
    for (int l = 0; l < SAMPLE_LAYERS; l++)
        for (uint32_t pos = 0; pos < SAMPLE_FF; pos++)
            for (int c = 0; c < SAMPLE_D; c++) {
                int i = SAMPLE_FF - 1 - (int)pos;
                wrong += stored(p, l, LAYOUT_GATE, pos, c) != sample_weight(l, MODEL_FFN_GATE, i, c);
                wrong += stored(p, l, LAYOUT_UP, pos, c) != sample_weight(l, MODEL_FFN_UP, i, c);
                wrong += !(fabs((double)stored(p, l, LAYOUT_DOWN, pos, c) -
                                (double)sample_weight(l, MODEL_FFN_DOWN, c, i)) <= tolerance);
            }
    CHECK_MSG(wrong == 0, "%d values differ", wrong);
}

static void check_clusters(const struct pack *p)
{
    int wrong = 0;
    for (int l = 0; l < SAMPLE_LAYERS; l++)
        for (int part = 0; part < p->shapes.n_parts; part++)
            for (uint32_t c = 0; c < p->shapes.n_clusters; c++) {
                const struct layout_part *lp = &layout_of(&p->shapes, l)->part[part];
                struct hash *h = hash_new();
                struct err e;
                uint64_t want = 0;
                for (uint32_t u = layout_unit_of(lp, c * 16);
                     u * lp->neurons_per_unit < SAMPLE_FF && u * lp->neurons_per_unit < (c + 1) * 16; u++) {
                    uint8_t unit[16384];
                    size_t n = (size_t)layout_unit_neurons(layout_of(&p->shapes, l), lp, u) * lp->record_bytes; /* records of one neuron */
                    wrong += n > sizeof unit ||
                             file_pread(&p->file, unit, n, pack_unit_offset(p, l, 0, part, u), &e) < 0;
                    hash_update(h, unit, n);
                }
                wrong += pack_cluster_checksum(p, l, 0, part, c, &want, &e) < 0 || want != hash_final64(h);
                hash_free(h);
            }
    CHECK_MSG(wrong == 0, "%d clusters differ", wrong);
}

/* Neurons are in pack order, numbers as written. */
static void check_predictor(const struct pack *p)
{
    struct err e = { 0 };
    struct predict q = { 0 };
    struct pack_predictor_figures f = { 0 };
    const struct pack_predictor *x = pack_predictor_find(p, PREDICT_FFN, 1, 0);
    CHECK(p->n_predictors == 1 && x && x->rank == SAMPLE_RANK && x->bytes % 64 == 0);
    CHECK(!pack_predictor_find(p, PREDICT_FFN, 0, 0) && !pack_predictor_find(p, PREDICT_BLOCK, 1, 0));
    if (!x)
        return;
    void *mem = aligned_alloc(64, x->bytes);
    CHECK_MSG(pack_predictor_read(p, x, mem, &q, &f, &e) == 0, "%s", e.msg);
    CHECK(q.threshold == -0.5f && f.at.recall == 0.99f && f.true_density == 0.125f && f.n_points == 2);
    CHECK(f.curve[0].threshold == 1 && f.curve[1].density == 0.25f);
    const float *fc1 = q.fc1, *fc2 = q.fc2;
    CHECK(fc1 && fc1[SAMPLE_D + 3] == sample_weight(1, 40, 1, 3));
    CHECK(fc2 && fc2[2 * SAMPLE_RANK + 5] == sample_weight(1, 41, SAMPLE_FF - 3, 5));
    CHECK(q.bias && q.bias[1] == sample_weight(1, 42, SAMPLE_FF - 2, 0));
    free(mem);
}

/* As schemas/pack.md defines them, from the bytes of the file. */
static void check_units(const struct pack *p)
{
    int wrong = 0;
    for (int l = 0; l < SAMPLE_LAYERS; l++)
        for (int part = 0; part < p->shapes.n_parts; part++) {
            const struct layout_part *lp = &layout_of(&p->shapes, l)->part[part];
            uint32_t want[SAMPLE_FF];
            struct err e;
            wrong += pack_unit_checks_read(p, l, 0, part, want, &e) < 0;
            for (uint32_t u = 0; u < lp->n_units; u++) {
                uint8_t unit[16384];
                size_t n = (size_t)layout_unit_neurons(layout_of(&p->shapes, l), lp, u) * lp->record_bytes;
                uint64_t place = (uint64_t)(l * p->shapes.n_parts + part) << 32 | u;
                wrong += n > sizeof unit || file_pread(&p->file, unit, n, pack_unit_offset(p, l, 0, part, u), &e) < 0 ||
                         want[u] != (uint32_t)hash_64_seeded(unit, n, p->identity ^ place);
            }
        }
    CHECK_MSG(wrong == 0, "%d units differ", wrong);
}

static void check_file(const char *file, double tolerance)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    CHECK_MSG(pack_open(file, &p, &e) == 0, "%s", e.msg);
    if (!p)
        return;
    CHECK(p->identity);
    check_units(p);
    CHECK(p->h.n_layers == SAMPLE_LAYERS && p->h.act == MODEL_ACT_RELU && p->h.tied_output && p->n_dense == 14);
    check_neurons(p, tolerance);
    check_clusters(p);
    float q[SAMPLE_D * SAMPLE_D];
    const struct pack_dense *d = pack_dense_find(p, MODEL_ATTN_Q, 1);
    CHECK(d && d->zstd && d->bytes == sizeof q && pack_dense_read(p, d, q, &e) == 0);
    CHECK(q[33] == sample_weight(1, MODEL_ATTN_Q, 1, 1));
    CHECK(!pack_dense_find(p, MODEL_OUTPUT, -1));
    uint32_t order[SAMPLE_FF];
    CHECK(pack_order(p, 1, 0, order, &e) == 0 && order[0] == SAMPLE_FF - 1 && order[SAMPLE_FF - 1] == 0);
    check_predictor(p);
    int bad = 1;
    char text[200];
    CHECK(pack_verify_segments(p, &bad, text, sizeof text, &e) == 0 && bad == 0);
    CHECK(p->provenance && !strcmp(p->provenance, "{\"tool\":\"test\"}"));
    pack_close(p);
}

static void round_trip(enum layout_form form, int packed, uint32_t down, double tolerance)
{
    struct err e = { 0 };
    CHECK_MSG(sample_pack(path, form, packed, down, &e) == 0, "%s", e.msg);
    check_file(path, tolerance);
}

/* Layers that differ in Down's type: each has records, units and checksums of its own sizes. */
static void round_trip_mixed(enum layout_form form, int packed)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    CHECK_MSG(sample_pack_mixed(path, form, packed, QUANT_F32, QUANT_Q8_0, &e) == 0, "%s", e.msg);
    check_file(path, 0.5 / 127);
    CHECK(pack_open(path, &p, &e) == 0 && p->shapes.l.n_kinds == 2 && layout_of(&p->shapes, 1)->type[LAYOUT_DOWN] == QUANT_Q8_0);
    CHECK(layout_of(&p->shapes, 0)->part[p->shapes.n_parts - 1].record_bytes ==
          layout_of(&p->shapes, 1)->part[p->shapes.n_parts - 1].record_bytes + SAMPLE_D * 4 - 34);
    pack_close(p);
}

/* Row `row` of a role of the tile that holds a neuron, in the units that neurons_build made of a panel. */
static const uint8_t *tile_row(const struct layout_shape *s, const struct neurons_out *o, uint32_t neuron, int role, uint32_t row)
{
    const struct layout_part *lp = &s->part[0];
    uint32_t t = lp->record_neurons, left = (uint32_t)s->n_ff - neuron / t * t, n = left < t ? left : t;
    uint32_t bytes = role == LAYOUT_DOWN ? layout_tile_down_bytes(lp, n) : lp->role_bytes[role];
    uint64_t at = lp->first_offset + layout_unit_of(lp, neuron) * lp->stride_bytes + layout_record_offset(lp, neuron) - o->offset[0];
    return o->data[0] + at + layout_tile_offset(lp, role, n) + row * bytes;
}

/* Tiles hold the source's bytes, whatever they are: every row of Gate and Up, every quant block of Down. */
static void test_tiles(uint32_t down, int packed, int d, int n_ff)
{
    struct layout l;
    struct layout_shapes s;
    struct err e;
    struct neurons *n = NULL;
    struct pool *pool = NULL;
    struct neurons_loss loss = { 0 };
    const uint32_t types[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q8_0, down };
    layout_default(&l, LAYOUT_TILES, types);
    l.packed = packed;
    l.cluster_neurons = 256;
    CHECK(layout_derive(&l, d, n_ff, &s, &e) == 0);
    const struct layout_shape *sh = &s.kind[0];
    uint32_t t = sh->part[0].record_neurons, order[1024], units[1024];
    size_t row[LAYOUT_ROLES], len[LAYOUT_ROLES];
    uint8_t *m[LAYOUT_ROLES];
    uint64_t clusters[8];
    int wrong = 0;
    for (int r = 0; r < LAYOUT_ROLES; r++) {
        row[r] = quant_row_bytes(types[r], (uint64_t)(r == LAYOUT_DOWN ? n_ff : d));
        m[r] = malloc(len[r] = row[r] * (size_t)(r == LAYOUT_DOWN ? d : n_ff));
        for (size_t i = 0; i < len[r]; i++)
            m[r][i] = (uint8_t)(i * 2654435761u >> 13 ^ (uint32_t)r);
    }
    for (int i = 0; i < n_ff; i++)
        order[i] = (uint32_t)i;
    CHECK(pool_new(2, NULL, &pool, &e) == 0 && neurons_new(&s, d, 300u * (unsigned)d * 4, pool, &n, &e) == 0 && neurons_panel(n) == 256);
    struct neurons_in in = { m[0], m[1], m[2], types[0], types[1], down, sh, d, n_ff, order, 0, NULL };
    const struct neurons_checks k = { clusters, units, 3, 0 };
    for (uint32_t a = 0; a < (uint32_t)n_ff; a += 256) {
        struct neurons_out out;
        uint32_t b = a + 256 < (uint32_t)n_ff ? a + 256 : (uint32_t)n_ff;
        CHECK(neurons_build(n, &in, a, b, &out, &k, &loss, &e) == 0);
        for (uint32_t i = a; i < b; i++) {
            wrong += memcmp(tile_row(sh, &out, i, LAYOUT_GATE, i % t), m[0] + i * row[0], row[0]) != 0;
            wrong += memcmp(tile_row(sh, &out, i, LAYOUT_UP, i % t), m[1] + i * row[1], row[1]) != 0;
            uint32_t bytes = layout_tile_down_bytes(&sh->part[0], (uint32_t)n_ff - i < t ? (uint32_t)n_ff - i : t);
            for (int c = 0; c < d && i % t == 0; c++)
                wrong += memcmp(tile_row(sh, &out, i, LAYOUT_DOWN, (uint32_t)c),
                                m[2] + (size_t)c * row[2] + layout_tile_down_bytes(&sh->part[0], i), bytes) != 0;
        }
        for (uint32_t u = a / sh->part[0].neurons_per_unit; u * sh->part[0].neurons_per_unit < b; u++) {
            uint32_t bytes = (uint32_t)layout_bytes(&sh->part[0], layout_unit_neurons(sh, &sh->part[0], u));
            wrong += units[u] != unit_check_sum(tile_row(sh, &out, u * sh->part[0].neurons_per_unit, LAYOUT_GATE, 0), bytes,
                                                unit_check_seed(3, 1, 0, 0, u));
        }
    }
    CHECK_MSG(wrong == 0 && loss.weight2[LAYOUT_DOWN] <= 0, "%s: %d rows differ", quant_traits(down)->name, wrong);
    neurons_free(n);
    pool_free(pool);
    for (int r = 0; r < LAYOUT_ROLES; r++)
        free(m[r]);
}

int main(void)
{
    kernels_init(0);
    test_path(path, sizeof path, "thermo-pack-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    round_trip(LAYOUT_SPLIT, 0, QUANT_F32, 0);
    round_trip(LAYOUT_BUNDLE, 0, QUANT_F32, 0);
    round_trip(LAYOUT_TWO_PHASE, 0, QUANT_F32, 0);
    round_trip(LAYOUT_BUNDLE, 1, QUANT_Q8_0, 0.5 / 127);
    round_trip(LAYOUT_SPLIT, 1, QUANT_F16, 0);
    for (int form = 0; form < LAYOUT_TILES; form++)
        round_trip_mixed((enum layout_form)form, form == LAYOUT_BUNDLE);
    unlink(path);
    test_tiles(QUANT_Q4_K, 1, 96, 768);
    test_tiles(QUANT_Q6_K, 0, 64, 512);
    test_tiles(QUANT_Q4_0, 1, 96, 928);
    test_tiles(QUANT_Q8_0, 0, 32, 352);
    return test_done();
}
