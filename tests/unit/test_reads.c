/* The rule of reads through gaps against its definition, on random and on extreme lists. */
#include "common/plan/reads.h"
#include "tests/test.h"
#include "tests/layout_sample.h"

#include <string.h>

static uint32_t seed = 77;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static struct layout_shape shape_of(enum layout_form form, int packed, uint32_t block, int d_model)
{
    struct layout l = { .form = form, .packed = packed, .block_bytes = block, .cluster_neurons = 64, .n_kinds = 1,
                        .type = { { 2, 2, 2 } } };
    struct layout_shape s;
    struct err e;
    CHECK(layout_derive_one(&l, d_model, 4096, &s, &e) == 0);
    return s;
}

/* Bytes of a read of n units from unit u on, whole blocks. */
static uint64_t bytes_of(const struct layout_shape *s, int part, uint32_t u, uint32_t n)
{
    const struct layout_part *p = &s->part[part];
    uint64_t block = s->block_bytes, from = p->first_offset + u * p->stride_bytes;
    uint64_t to = p->first_offset + (u + n - 1) * p->stride_bytes + p->unit_bytes;
    return (to + block - 1) / block * block - from / block * block;
}

static void test_units(void)
{
    for (int form = 0; form < LAYOUT_FORMS; form++)
        for (int packed = 0; packed < 2; packed++) {
            struct layout_shape s = shape_of((enum layout_form)form, packed, 4096, 320 << form);
            for (int part = 0; part < s.n_parts; part++) {
                int fits = 1, tight = 1;
                for (uint64_t bytes = s.part[part].read_bytes; bytes < 2000000; bytes += 61440) {
                    uint32_t n = reads_units(&s, part, bytes);
                    for (uint32_t u = 0; u < 300; u++)
                        fits &= bytes_of(&s, part, u, n) <= bytes;
                    uint64_t more = bytes_of(&s, part, 0, n + 1) + (packed ? 2 * 4096 : 0);
                    tight &= n == READS_MAX_UNITS || more > bytes;
                }
                CHECK_MSG(fits && tight, "%s, packed %d, part %d", layout_form_name((enum layout_form)form), packed, part);
                CHECK(reads_units(&s, part, 1) == 1 && reads_units(&s, part, UINT64_MAX) == READS_MAX_UNITS);
            }
        }
}

/* By definition: of all joins whose window holds at least their weight of missing units, the least weight per unit; then
 * neighbours. */
static size_t naive(const struct reads_coalesce *j, const uint32_t *windows, int n_coalesce, uint32_t near, const uint32_t *missing,
                    size_t n)
{
    double best = 1;
    size_t take = 1;
    for (int i = 0; i < n_coalesce; i++) {
        size_t inside = 0;
        for (size_t k = 0; k < n; k++)
            inside += missing[k] < missing[0] + windows[i];
        if ((double)inside >= j[i].weight && inside > 1 && j[i].weight / (double)inside <= best) {
            best = j[i].weight / (double)inside;
            take = inside;
        }
    }
    while (take < n && missing[take] == missing[take - 1] + 1 && missing[take] < missing[0] + near)
        take++;
    return take;
}

static void test_rule(void)
{
    struct layout_shape s = shape_of(LAYOUT_BUNDLE, 0, 4096, 4096); /* units of 8 KiB */
    const struct layout_part *p = &s.part[0];
    int differ = 0, through = 0, singles = 0, near = 0;
    CHECK(p->stride_bytes == 8192 && p->neurons_per_unit == 1);
    for (int round = 0; round < 20000; round++) {
        struct reads_coalesce coalesce[READS_MAX_COALESCE];
        uint32_t windows[READS_MAX_COALESCE], missing[READS_MAX_UNITS], window = 1, most = 4;
        double weight = 1;
        int n_coalesce = (int)rnd(5);
        for (int i = 0; i < n_coalesce; i++) {
            window += 1 + rnd(20);
            weight += (double)rnd(16) / 4 + 0.25;
            windows[i] = window;
            coalesce[i] = (struct reads_coalesce){ window * 8192, weight };
            most = window > most ? window : most;
        }
        struct reads_rule r;
        reads_rule_init(&s, 0, coalesce, n_coalesce, most * 8192, &r);
        size_t n = 0;
        uint32_t density = 1 + rnd(100), first = rnd(1000);
        for (uint32_t u = first; u < first + r.most; u++)
            if (u == first || rnd(100) < density)
                missing[n++] = u;
        size_t is = reads_next(&r, missing, n), want = naive(coalesce, windows, n_coalesce, r.near, missing, n);
        differ += is != want;
        singles += is == 1;
        near += is > 1 && missing[is - 1] - first == is - 1;
        through += missing[is - 1] - first > is - 1;
    }
    CHECK_MSG(differ == 0, "%d of 20000 differ", differ);
    CHECK_MSG(singles > 1000 && near > 1000 && through > 1000, "%d single units, %d neighbours, %d through gaps", singles, near,
              through);
}

static void test_edges(void)
{
    struct layout_shape s = shape_of(LAYOUT_TWO_PHASE, 0, 4096, 4096);
    struct reads_rule r;
    const uint32_t all[3] = { 7, 8, 9 };
    reads_rule_init(&s, 1, NULL, 0, 1u << 20, &r);
    CHECK(r.n_coalesce == 0 && r.near == 1 && reads_next(&r, all, 3) == 1); /* the gates' pages are between them */
    const struct reads_coalesce join = { 65536, 2 };
    reads_rule_init(&s, 1, &join, 1, 65536, &r);
    CHECK(r.n_coalesce == 1 && r.near == 1 && r.most == r.join[0].window && reads_next(&r, all, 3) == 3);
    CHECK(reads_next(&r, all, 1) == 1);
    const struct reads_coalesce never[2] = { { 16384, 2.25 }, { 24576, 3.25 } }; /* cost more than all of their units */
    s = shape_of(LAYOUT_BUNDLE, 0, 4096, 4096);
    reads_rule_init(&s, 0, never, 2, 32768, &r);
    CHECK(r.n_coalesce == 0 && r.near == 4 && r.most == 4);
}

int main(void)
{
    test_units();
    test_rule();
    test_edges();
    return test_done();
}
