/* Pages of the KV cache: against a plain model of what each sequence holds, over random writes, forks, rewinds and ends: every
 * position is where it was written, no sequence's writes are seen by another, all pages come back, and a full cache says so. */
#include "runtime/engine/kv_prefix.h"
#include "tests/test.h"

#include <string.h>

enum { SEQ = 5, CONTEXT = 150, P = SCHEDULE_KV_PAGE };

static uint32_t seed = 3;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static struct budget_kv shape(int positions)
{
    struct budget_model m = { .h = { .n_layers = 1, .d_model = 64, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .n_ff = 32,
                                     .n_vocab = 9 },
                              .shapes = { .n_ff = 32, .n_parts = 1 } };
    struct budget_choice c = { .context = CONTEXT, .max_batch = SEQ, .kv_positions = positions, .prefill_chunk = 1, .threads = 1,
                               .io_lanes = 1, .queue_depth = 1 };
    struct budget_kv b = { 0 };
    struct err e = { 0 };
    CHECK_MSG(budget_kv(&m, &c, &b, &e) == 0, "%s", e.msg);
    return b;
}

/* What a row holds, and what each sequence believes to have written. */
static int rows[SEQ * (CONTEXT + P)], held[SEQ][CONTEXT], n_pos[SEQ];

static int write_next(struct kv_pages *k, int seq, int value, struct err *e)
{
    int from, to, pos = n_pos[seq], need = kv_pages_need(k, seq, pos, 1), there = k->n_free, r = kv_pages_own(k, seq, pos, &from, &to, e);
    CHECK_MSG(r < 0 ? need > there : need >= there - k->n_free, "%d pages of %d", need, there);
    if (r < 0)
        return r;
    for (int i = 0; r > 0 && i < pos % P; i++)
        rows[to * P + i] = rows[from * P + i];
    rows[kv_pages_row(k, seq, pos)] = value;
    held[seq][n_pos[seq]++] = value;
    return 0;
}

static int as_held(const struct kv_pages *k)
{
    for (int s = 0; s < SEQ; s++)
        for (int p = 0; p < n_pos[s]; p++)
            if (rows[kv_pages_row(k, s, p)] != held[s][p])
                return 0;
    return 1;
}

static void test_random(int positions)
{
    static int32_t memory[1024];
    struct budget_kv b = shape(positions);
    struct kv_pages k;
    struct err e = { 0 };
    int full = 0, right = 1;
    CHECK(b.table_bytes <= sizeof memory && b.rows == (uint64_t)b.n_pages * P);
    kv_pages_init(&k, &b, SEQ, memory);
    memset(n_pos, 0, sizeof n_pos);
    for (int step = 0; step < 20000 && right; step++) {
        int s = (int)rnd(SEQ), other = (int)rnd(SEQ);
        switch (rnd(40)) {
        case 0:
            n_pos[s] = 0;
            kv_pages_keep(&k, s, 0);
            break;
        case 1:
            n_pos[s] = (int)rnd((uint32_t)n_pos[s] + 1);
            kv_pages_keep(&k, s, n_pos[s]);
            break;
        case 2:
            if (s != other) {
                n_pos[s] = (int)rnd((uint32_t)n_pos[other] + 1);
                memcpy(held[s], held[other], sizeof held[s]);
                kv_pages_share(&k, s, other, n_pos[s]);
            }
            break;
        default:
            if (n_pos[s] < CONTEXT && write_next(&k, s, step, &e) < 0) {
                full++;
                right &= e.code == ERR_LIMIT && k.n_free == 0;
            }
        }
        right &= as_held(&k);
    }
    CHECK_MSG(right, "%d positions", positions);
    CHECK_MSG(positions ? full > 0 : full == 0, "%d times full", full);
    for (int s = 0; s < SEQ; s++)
        kv_pages_keep(&k, s, 0);
    CHECK(k.n_free == b.n_pages);
}

/* What a position holds, by all tokens up to it. */
static int content(const int32_t *ids, int pos)
{
    uint32_t h = 7;
    for (int i = 0; i <= pos; i++)
        h = (h ^ (uint32_t)ids[i]) * 2654435761u + 1;
    return (int)(h >> 1);
}

/* Texts of few kinds that part in many places, over a pool with room for some: whatever is found holds what was written for these tokens,
 * after rewinds, forks and ends; and something is found, until it has to give way. */
static void test_prefix(int sequences, int positions)
{
    static int32_t memory[1024], ids[SEQ][CONTEXT];
    static uint64_t kept[4096];
    struct budget_kv b = shape(positions);
    struct kv_pages k;
    struct err e = { 0 };
    int right = 1, found = 0, gone = 0;
    if (sequences == 1) {
        b.table_bytes = 0;
        b.n_pages = b.per_sequence;
    }
    memset(kept, 0, sizeof kept);
    CHECK(kv_prefix_bytes(&b) <= sizeof kept);
    kv_pages_init(&k, &b, sequences, memory);
    kv_prefix_init(&k, &b, kept);
    memset(n_pos, 0, sizeof n_pos);
    for (int step = 0; step < 20000 && right; step++) {
        int s = (int)rnd((uint32_t)sequences), other = (int)rnd((uint32_t)sequences);
        switch (rnd(60)) {
        case 0: /* one ends, and another begins */
            kv_prefix_keep(&k, s, ids[s], n_pos[s]);
            kv_pages_keep(&k, s, 0);
            for (int i = 0, kind = (int)rnd(3), part = (int)rnd(CONTEXT); i < CONTEXT; i++)
                ids[s][i] = i < part ? kind : kind + 3 * (int)rnd(2);
            n_pos[s] = kv_prefix_take(&k, s, 0, ids[s], (int)rnd(CONTEXT));
            found += n_pos[s] > 0;
            gone += n_pos[s] == 0;
            for (int p = 0; p < n_pos[s]; p++)
                right &= rows[kv_pages_row(&k, s, p)] == content(ids[s], p);
            memset(held[s], 0, sizeof held[s]);
            for (int p = 0; p < n_pos[s]; p++)
                held[s][p] = content(ids[s], p);
            break;
        case 1: /* goes on otherwise from somewhere */
            n_pos[s] = (int)rnd((uint32_t)n_pos[s] + 1);
            kv_pages_keep(&k, s, n_pos[s]);
            for (int i = n_pos[s]; i < CONTEXT; i++)
                ids[s][i] = (int)rnd(9);
            break;
        case 2:
            if (s != other) {
                n_pos[s] = (int)rnd((uint32_t)n_pos[other] + 1);
                memcpy(held[s], held[other], sizeof held[s]);
                memcpy(ids[s], ids[other], sizeof ids[s]);
                kv_pages_share(&k, s, other, n_pos[s]);
            }
            break;
        case 3:
            kv_prefix_keep(&k, s, ids[s], n_pos[s]);
            break;
        default:
            for (int i = 0; i < 8 && n_pos[s] < CONTEXT; i++)
                if (write_next(&k, s, content(ids[s], n_pos[s]), &e) < 0)
                    right &= e.code == ERR_LIMIT && k.n_free == 0;
        }
        right &= as_held(&k);
    }
    CHECK_MSG(right && found > 20 && gone > 20, "%d sequences, %d positions: %d found, %d not", sequences, positions, found, gone);
    for (int s = 0; s < sequences; s++)
        kv_pages_keep(&k, s, 0);
    CHECK(k.n_free == b.n_pages);
}

/* Sequences that grow in turn lie in order, each in its part; one alone needs no table. */
static void test_order(void)
{
    static int32_t memory[1024];
    struct budget_kv b = shape(0);
    struct kv_pages k;
    struct err e = { 0 };
    kv_pages_init(&k, &b, SEQ, memory);
    memset(n_pos, 0, sizeof n_pos);
    for (int p = 0; p < CONTEXT; p++)
        for (int s = 0; s < SEQ; s++)
            CHECK(write_next(&k, s, p, &e) == 0);
    for (int s = 0; s < SEQ; s++)
        for (int i = 1; i < b.per_sequence; i++)
            CHECK(kv_pages_of(&k, s)[i] == kv_pages_of(&k, s)[i - 1] + 1);
    b.table_bytes = 0;
    kv_pages_init(&k, &b, 1, NULL);
    int from, to;
    CHECK(!kv_pages_of(&k, 0) && kv_pages_own(&k, 0, 77, &from, &to, &e) == 0 && kv_pages_row(&k, 0, 77) == 77);
    kv_pages_keep(&k, 0, 3);
}

int main(void)
{
    test_random(0);
    test_random(8 * P);
    test_order();
    test_prefix(SEQ, 0);
    test_prefix(SEQ, 8 * P);
    test_prefix(1, 0);
    return test_done();
}
