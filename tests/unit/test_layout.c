#include "common/plan/layout.h"
#include "tests/test.h"
#include "tests/layout_sample.h"

#include <math.h>
#include <string.h>

static struct layout_shape shape(enum layout_form form, int packed, uint32_t type, int d, int n_ff)
{
    struct layout l;
    struct layout_shape s = { .n_ff = -1 };
    struct err e;
    const uint32_t t[LAYOUT_ROLES] = { type, type, type };
    layout_default(&l, form, t);
    l.packed = packed;
    CHECK(layout_derive_one(&l, d, n_ff, &s, &e) == 0);
    return s;
}

/* The embedded model: F16 rows of 256 elements are 512 bytes. */
static void small_records_fill_blocks(void)
{
    struct layout_shape s = shape(LAYOUT_SPLIT, 0, QUANT_F16, 256, 1280);
    CHECK(s.n_parts == 2 && s.n_segments == 2 && s.n_clusters == 20);
    CHECK(s.part[0].record_bytes == 512 && s.part[0].neurons_per_unit == 64 && s.part[0].read_bytes == 32768);
    CHECK(s.part[1].record_bytes == 1024 && s.part[1].neurons_per_unit == 4 && s.part[1].stride_bytes == 4096);
    CHECK(s.part[1].n_units == 320 && s.segment_bytes[1] == 320 * 4096 && s.segment_bytes[0] == 20 * 32768);
    CHECK(s.part[1].role_offset[LAYOUT_UP] == 0 && s.part[1].role_offset[LAYOUT_DOWN] == 512);
    CHECK(s.part[1].role_offset[LAYOUT_GATE] == ~0u);
    s = shape(LAYOUT_BUNDLE, 0, QUANT_F16, 256, 1280);
    CHECK(s.n_parts == 1 && s.part[0].record_bytes == 1536 && s.part[0].neurons_per_unit == 2);
    CHECK(s.part[0].unit_bytes == 3072 && s.part[0].stride_bytes == 4096);
    s = shape(LAYOUT_TWO_PHASE, 0, QUANT_F16, 256, 1280);
    CHECK(s.n_parts == 2 && s.n_segments == 1 && s.part[0].neurons_per_unit == 4 && s.part[1].neurons_per_unit == 4);
    CHECK(s.part[0].stride_bytes == 8192 && s.part[1].stride_bytes == 8192 && s.part[1].first_offset == 4096);
    CHECK(s.segment_bytes[0] == 320 * 8192);
}

/* A 7B's Q4_0: rows of 4096 elements are 2304 bytes; a bundle of 6912 pads to 8192, or packs. */
static void large_records_pad_or_pack(void)
{
    struct layout_shape s = shape(LAYOUT_BUNDLE, 0, QUANT_Q4_0, 4096, 14336);
    CHECK(s.part[0].record_bytes == 6912 && s.part[0].neurons_per_unit == 1 && s.part[0].stride_bytes == 8192);
    CHECK(s.segment_bytes[0] == 14336ull * 8192);
    s = shape(LAYOUT_BUNDLE, 1, QUANT_Q4_0, 4096, 14336);
    CHECK(s.part[0].stride_bytes == 6912 && s.part[0].read_bytes == 12288);
    CHECK(s.segment_bytes[0] == (14336ull * 6912 + 4095) / 4096 * 4096);
    /* No position of a packed unit needs more than read_bytes once rounded out to blocks. */
    uint64_t most = 0;
    for (uint64_t u = 0; u < 14336; u++) {
        uint64_t a = u * 6912 / 4096 * 4096, b = (u * 6912 + 6912 + 4095) / 4096 * 4096;
        most = b - a > most ? b - a : most;
    }
    CHECK(most <= s.part[0].read_bytes);
}

static void odd_sizes(void)
{
    struct layout_shape s = shape(LAYOUT_SPLIT, 0, QUANT_F32, 7, 101);
    const struct layout_part *p = &s.part[1];
    CHECK(s.n_clusters == 2 && p->record_bytes == 56 && p->neurons_per_unit == 64 && p->n_units == 2);
    CHECK(layout_unit_neurons(&s, p, 0) == 64 && layout_unit_neurons(&s, p, 1) == 37);
    CHECK(layout_unit_of(p, 63) == 0 && layout_unit_of(p, 64) == 1 && layout_record_offset(p, 65) == 56);
}

static void refusals(void)
{
    const uint32_t q[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q4_0, QUANT_Q8_0 };
    struct layout l;
    struct layout_shape s;
    struct err e;
    layout_default(&l, LAYOUT_SPLIT, q);
    CHECK(layout_derive_one(&l, 100, 64, &s, &e) == ERR_UNSUPPORTED && strstr(e.msg, "100"));
    l.block_bytes = 5000;
    CHECK(layout_derive_one(&l, 256, 64, &s, &e) == ERR_UNSUPPORTED && strstr(e.msg, "block_bytes is 5000"));
    l.block_bytes = 4096;
    l.cluster_neurons = 12;
    CHECK(layout_derive_one(&l, 256, 64, &s, &e) == ERR_UNSUPPORTED && strstr(e.msg, "cluster_neurons is 12"));
    l.cluster_neurons = 64;
    l.type[0][1] = 38;
    CHECK(layout_derive_one(&l, 256, 64, &s, &e) == ERR_UNSUPPORTED && strstr(e.msg, "type 38"));
    CHECK(layout_derive_one(&l, 256, 0, &s, &e) == ERR_LIMIT);
}

/* Descending counts, of the same ascending indices, all there: whatever the counts' range. */
static void order_of_many(uint64_t below, uint64_t least)
{
    enum { N = 5000 };
    static uint64_t counts[N];
    static uint32_t got[N];
    static uint8_t seen[N];
    uint64_t state = below;
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        counts[i] = least + (below ? (state >> 8) % below : 0);
        seen[i] = 0;
    }
    layout_order(counts, N, got);
    for (int p = 0; p < N; p++) {
        uint32_t i = got[p] < N ? got[p] : 0, last = p && got[p - 1] < N ? got[p - 1] : 0;
        wrong += got[p] >= N || seen[i]++;
        wrong += p && (counts[i] > counts[last] || (counts[i] == counts[last] && i <= last));
    }
    CHECK_MSG(wrong == 0, "%d places of counts from %llu, below %llu more", wrong, (unsigned long long)least,
              (unsigned long long)below);
}

static void order(void)
{
    const uint64_t counts[6] = { 5, 0, 9, 5, 9, 1 };
    const uint32_t want[6] = { 2, 4, 0, 3, 5, 1 };
    uint32_t got[6];
    layout_order(counts, 6, got);
    CHECK(!memcmp(got, want, sizeof got));
    order_of_many(0, 7);
    order_of_many(40, 0);
    order_of_many(2048, 1000000);
    order_of_many(5000000, 0);
    order_of_many(UINT64_C(1) << 50, 3);
    order_of_many(UINT64_MAX >> 8, UINT64_MAX - (UINT64_MAX >> 8));
    struct hash128 a = layout_order_hash(got, 1, 1, 6), b = layout_order_hash(got, 1, 2, 3);
    CHECK(!hash_equal(a, b));
    got[0] = 4;
    got[1] = 2;
    CHECK(!hash_equal(a, layout_order_hash(got, 1, 1, 6)));
}

static void identity(void)
{
    const uint32_t t[LAYOUT_ROLES] = { QUANT_F16, QUANT_F16, QUANT_F16 };
    struct layout a, b;
    layout_default(&a, LAYOUT_SPLIT, t);
    layout_default(&b, LAYOUT_SPLIT, t);
    CHECK(hash_equal(layout_hash(&a), layout_hash(&b)));
    b.packed = 1;
    CHECK(!hash_equal(layout_hash(&a), layout_hash(&b)));
}

/* Layers alternate between F16 and Q4_0 in Down: records, units and segments follow each layer's own types. */
static void kinds(void)
{
    const uint32_t even[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q4_0, QUANT_F16 }, odd[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0 };
    struct layout l, one;
    struct layout_shapes s, alone;
    struct err e;
    layout_default(&l, LAYOUT_BUNDLE, even);
    layout_default(&one, LAYOUT_BUNDLE, odd);
    CHECK(layout_alternate(&l, odd, 5, &e) == 0 && l.n_kinds == 2 && l.n_layers == 5 && layout_usual_kind(&l) == 0);
    CHECK(layout_derive(&l, 1024, 640, &s, &e) == 0 && layout_derive(&one, 1024, 640, &alone, &e) == 0);
    const struct layout_shape *a = layout_of(&s, 0), *b = layout_of(&s, 1);
    CHECK(a == layout_of(&s, 4) && b == layout_of(&s, 3) && a != b);
    CHECK(a->part[0].record_bytes == 2 * 576 + 2048 && b->part[0].record_bytes == 3 * 576);
    CHECK(a->part[0].neurons_per_unit == 1 && b->part[0].neurons_per_unit == 2);
    CHECK(b->part[0].n_units == 320 && layout_most_units(&s, 0) == 640);
    CHECK(!memcmp(&b->part[0], &alone.kind[0].part[0], sizeof b->part[0]) && b->segment_bytes[0] == alone.kind[0].segment_bytes[0]);
    CHECK(layout_most_bytes(&s) == b->part[0].unit_bytes && a->largest_read == b->largest_read);
    CHECK(layout_largest(&s)->part[0].read_bytes == a->largest_read);
    struct hash128 mixed = layout_hash(&l), was = layout_hash(&one);
    CHECK(!hash_equal(mixed, was));
    CHECK(layout_alternate(&l, odd, 4, &e) == 0 && !hash_equal(mixed, layout_hash(&l)));
    /* what differs in no layer is the layout of one kind, whatever it was set from */
    CHECK(layout_alternate(&one, odd, 5, &e) == 0 && one.n_kinds == 1 && one.n_layers == 0 && hash_equal(was, layout_hash(&one)));
    l.kind[3] = 2;
    CHECK(layout_derive(&l, 1024, 640, &s, &e) == ERR_UNSUPPORTED && strstr(e.msg, "layer 3"));
}

/* Layers of several widths, with types that differ or not: each has the shape of a model of its width. */
static void widths(void)
{
    const uint32_t t[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q4_0, QUANT_Q8_0 }, odd[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q4_0, QUANT_F16 };
    const int wide[5] = { 640, 640, 96, 640, 96 }, none[5] = { 0 }, wrong[5] = { 640, 641, 640, 640, 640 };
    struct layout l, uniform;
    struct layout_shapes s;
    struct layout_shape one;
    struct err e;
    layout_default(&l, LAYOUT_SPLIT, t);
    layout_default(&uniform, LAYOUT_SPLIT, t);
    CHECK(layout_set_widths(&l, none, 5, &e) == 0 && l.n_kinds == 1);
    CHECK(layout_set_widths(&l, wide, 5, &e) == 0 && l.n_kinds == 2 && l.n_layers == 5 && l.kind[1] == 0 && l.kind[4] == 1);
    CHECK(hash_equal(layout_hash(&l), layout_hash(&uniform)) && !layout_types_differ(&l) && layout_usual_kind(&l) == 0);
    CHECK(layout_derive(&l, 256, 640, &s, &e) == 0 && s.n_ff == 640 && s.n_clusters == 10);
    CHECK(layout_derive_one(&uniform, 256, 96, &one, &e) == 0 && layout_of(&s, 2)->n_ff == 96 && layout_of(&s, 2)->n_clusters == 2);
    CHECK(!memcmp(layout_of(&s, 4)->part, one.part, sizeof one.part));
    CHECK(!memcmp(layout_of(&s, 4)->segment_bytes, one.segment_bytes, sizeof one.segment_bytes));
    CHECK(layout_neurons_before(&s, 3) == 2 * 640 + 96 && layout_clusters_before(&s, 5) == 3 * 10 + 2 * 2);
    CHECK(layout_most_units(&s, 0) == 10 && layout_largest(&s) == layout_of(&s, 0));
    CHECK(layout_alternate(&l, odd, 5, &e) == 0 && l.n_ff[0] == 0 && layout_usual_kind(&l) == 0);
    const struct hash128 alternate = layout_hash(&l);
    CHECK(layout_set_widths(&l, wide, 5, &e) == 0 && l.n_kinds == 3 && hash_equal(layout_hash(&l), alternate));
    CHECK(layout_types_differ(&l) && layout_types_of(&l, 2) == 0 && layout_usual_kind(&l) == 0);
    CHECK(layout_set_widths(&uniform, wrong, 5, &e) == 0 && layout_derive(&uniform, 256, 640, &s, &e) == ERR_LIMIT &&
          strstr(e.msg, "FFNs of 641 neurons, the widest has 640"));
}

/* Tiles are clusters of at most 256 neurons, or neurons where Down has a float type; the last one is what is left. Larger clusters are
 * units of several tiles, of float types too. */
static void tiles(void)
{
    const uint32_t k[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_Q6_K }, q[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_Q4_0 };
    struct layout l, small;
    struct layout_shapes s;
    struct layout_shape one;
    struct err e;
    layout_default(&l, LAYOUT_TILES, k);
    layout_default(&small, LAYOUT_TILES, q);
    l.cluster_neurons = 512;
    CHECK(layout_alternate(&l, q, 2, &e) == 0);
    CHECK(layout_derive(&l, 96, 1280, &s, &e) == 0 && s.n_parts == 1 && s.n_segments == 1 && s.n_clusters == 3);
    const struct layout_part *a = &layout_of(&s, 0)->part[0], *b = &layout_of(&s, 1)->part[0];
    CHECK(a->record_neurons == 256 && a->record_bytes == 256 * (54 + 102) + 96 * 210 && a->neurons_per_unit == 512 && a->n_units == 3);
    CHECK(a->role_offset[LAYOUT_UP] == 256 * 54 && a->role_offset[LAYOUT_DOWN] == 256 * (54 + 102) && a->role_bytes[LAYOUT_DOWN] == 210);
    CHECK(b->record_neurons == 256 && b->record_bytes == 256 * (54 + 102) + 96 * 144 && b->role_bytes[LAYOUT_DOWN] == 144);
    CHECK(layout_bytes(b, 768) == 3 * b->record_bytes && layout_unit_of(b, 511) == 0 && layout_record_offset(b, 511) == b->record_bytes);
    CHECK(fabs(layout_role_bytes(a, LAYOUT_DOWN, 96) - 96 * 210 / 256.0) < 1e-9 && fabs(layout_role_bytes(a, LAYOUT_UP, 96) - 102) < 1e-9);
    CHECK(layout_derive(&l, 96, 1248, &s, &e) == ERR_UNSUPPORTED && strstr(e.msg, "rows of 1248"));
    l.cluster_neurons = 64 * 3;
    CHECK(layout_derive(&l, 96, 1280, &s, &e) == ERR_UNSUPPORTED &&
          strstr(e.msg, "down has type Q6_K, whose quant blocks of 256 do not divide tiles of 64 neurons; cluster_neurons 192"));
    /* gpt-oss's width: eleven tiles and a quarter */
    small.cluster_neurons = 256;
    CHECK(layout_derive_one(&small, 2880, 2880, &one, &e) == 0 && one.part[0].n_units == 12);
    CHECK(layout_unit_neurons(&one, one.part, 11) == 64 && layout_bytes(one.part, 64) == 64 * (1620 + 3060) + 2880 * 36);
    CHECK(layout_tile_offset(one.part, LAYOUT_DOWN, 64) == 64 * (1620 + 3060) && layout_tile_down_bytes(one.part, 64) == 36);
    /* small tiles fill a block; of a float type they are neurons, as in a bundle */
    struct layout_shape fill = shape(LAYOUT_TILES, 0, QUANT_Q4_0, 32, 256), f = shape(LAYOUT_TILES, 0, QUANT_F16, 256, 1280);
    CHECK(fill.part[0].record_neurons == 64 && fill.part[0].record_bytes == 3 * 64 * 18 && fill.part[0].n_units == 4);
    small.cluster_neurons = 96;
    CHECK(layout_derive_one(&small, 32, 256, &one, &e) == 0 && one.part[0].record_neurons == 32 && one.part[0].neurons_per_unit == 32);
    struct layout_shape bundle = shape(LAYOUT_BUNDLE, 0, QUANT_F16, 256, 1280);
    CHECK(f.part[0].record_neurons == 1 && !memcmp(f.part, bundle.part, sizeof f.part));
    const uint32_t floats[LAYOUT_ROLES] = { QUANT_F16, QUANT_F16, QUANT_F32 };
    layout_default(&small, LAYOUT_TILES, floats);
    small.cluster_neurons = 1024;
    CHECK(layout_derive_one(&small, 64, 2560, &one, &e) == 0 && one.part[0].record_neurons == 256 && one.part[0].neurons_per_unit == 1024);
    CHECK(one.part[0].n_units == 3 && one.part[0].record_bytes == 256 * (2 * 128 + 256) && layout_unit_neurons(&one, one.part, 2) == 512);
    const uint32_t source[6] = { 0, 1, 2, 0, 1, 2 };
    CHECK(hash_equal(layout_order_hash(NULL, 1, 2, 3), layout_order_hash(source, 1, 2, 3)));
}

/* No form has rows of Up, the others' lie as they would in a gated FFN, and the layout is another one. */
static void without_gate(void)
{
    const uint32_t q[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0 };
    struct layout_shape s = { .n_parts = 1 }, t = s;
    struct err e;
    for (enum layout_form form = LAYOUT_SPLIT; form < LAYOUT_FORMS; form++) {
        struct layout l;
        layout_default(&l, form, q);
        struct hash128 gated = layout_hash(&l);
        CHECK(layout_derive_one(&l, 1024, 640, &t, &e) == 0 && !t.ungated);
        l.ungated = 1;
        CHECK(layout_derive_one(&l, 1024, 640, &s, &e) == 0 && s.ungated && s.n_parts == t.n_parts && !hash_equal(gated, layout_hash(&l)));
        const struct layout_part *first = &s.part[0], *last = &s.part[s.n_parts - 1], *was = &t.part[t.n_parts - 1];
        uint32_t up = was->record_neurons * 576;
        CHECK(last->role_bytes[LAYOUT_UP] == 0 && last->role_bytes[LAYOUT_DOWN] == was->role_bytes[LAYOUT_DOWN]);
        CHECK(first->role[0] == LAYOUT_GATE && last->n_roles == was->n_roles - 1 && last->record_bytes == was->record_bytes - up);
        CHECK(last->role_offset[LAYOUT_DOWN] == was->role_offset[LAYOUT_DOWN] - up && last->role_offset[LAYOUT_UP] == ~0u);
    }
    struct layout l;
    layout_default(&l, LAYOUT_SPLIT, q);
    l.ungated = 2;
    CHECK(layout_derive_one(&l, 1024, 640, &s, &e) == ERR_UNSUPPORTED && strstr(e.msg, "ungated is 2"));
}

static void many_kinds(void)
{
    static const uint32_t any[] = { QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q4_0, QUANT_Q8_0 };
    const uint32_t t[LAYOUT_ROLES] = { QUANT_F32, QUANT_F32, QUANT_F32 };
    uint32_t type[LAYOUT_MAX_KINDS + 1][LAYOUT_ROLES];
    struct layout l;
    struct layout_shapes s;
    struct err e;
    layout_default(&l, LAYOUT_SPLIT, t);
    for (int i = 0; i <= LAYOUT_MAX_KINDS; i++)
        for (int r = 0, k = i; r < LAYOUT_ROLES; r++, k /= 5)
            type[i][r] = any[k % 5];
    CHECK(layout_set_types(&l, (const uint32_t(*)[LAYOUT_ROLES])type, LAYOUT_MAX_KINDS, &e) == 0 && l.n_kinds == LAYOUT_MAX_KINDS);
    CHECK(layout_derive(&l, 64, 96, &s, &e) == 0);
    CHECK(layout_set_types(&l, (const uint32_t(*)[LAYOUT_ROLES])type, LAYOUT_MAX_KINDS + 1, &e) == ERR_UNSUPPORTED &&
          strstr(e.msg, "more than 32"));
}

int main(void)
{
    kinds();
    widths();
    many_kinds();
    without_gate();
    tiles();
    small_records_fill_blocks();
    large_records_pad_or_pack();
    odd_sizes();
    refusals();
    order();
    identity();
    return test_done();
}
