/* The account: linear in hot and cold, monotonic in every choice, and closed against overflow. */
#include "common/plan/budget.h"
#include "common/plan/cache.h"
#include "tests/test.h"

#include <string.h>

#define LAYERS 8
static uint32_t hot[LAYERS * 2], cold[LAYERS * 2];

static struct budget_model tiny(enum layout_form form)
{
    struct budget_model m = { .dense_bytes = 5 << 20, .n_tensors = 60, .vocab_text_bytes = 30000, .meta_bytes = 90000 };
    struct model_hparams *h = &m.h;
    *h = (struct model_hparams){ .n_layers = LAYERS, .d_model = 256, .n_heads = 8, .n_kv_heads = 4, .head_dim = 32,
                                 .n_ff = 1280, .n_vocab = 4096, .n_ctx_train = 512 };
    struct layout l;
    const uint32_t types[3] = { QUANT_F16, QUANT_F16, QUANT_F16 };
    struct err e;
    layout_default(&l, form, types);
    if (layout_derive(&l, 256, 1280, &m.shapes, &e) < 0)
        printf("# %s\n", e.msg);
    return m;
}

static struct budget_choice choice(void)
{
    return (struct budget_choice){ .context = 256, .kv_type = KV_F16, .max_batch = 1, .prefill_chunk = 16, .threads = 2,
                                   .io_lanes = 1, .queue_depth = 16 };
}

/* Page tables: 8 bytes for 4096. */
static uint64_t tables(uint64_t bytes)
{
    return ((bytes + 511) / 512 + 63) / 64 * 64;
}

static void test_regions(enum layout_form form)
{
    struct budget_model m = tiny(form);
    struct budget_choice c = choice();
    struct budget a, b;
    struct err e;
    memset(hot, 0, sizeof hot);
    memset(cold, 0, sizeof cold);
    CHECK(budget_compute(&m, &c, &a, &e) == 0);
    CHECK(a.floor == a.total && a.item[BUDGET_HOT] == 0 && a.item[BUDGET_COLD] == 0);
    uint64_t sum = 0;
    int aligned = 1;
    for (int i = 0; i < BUDGET_ITEMS; i++) {
        sum += a.item[i];
        aligned &= a.item[i] % 64 == 0;
    }
    CHECK(sum == a.total && aligned);
    c.hot = hot;
    c.cold = cold;
    CHECK(budget_compute(&m, &c, &b, &e) == 0 && b.total == a.total);
    hot[3] = 128;
    cold[2] = 10;
    CHECK(budget_compute(&m, &c, &b, &e) == 0 && b.floor == a.floor);
    int n = m.shapes.kind[0].n_parts;
    CHECK(b.item[BUDGET_HOT] == budget_hot_bytes(&m.shapes.kind[0], 3 % n, 128));
    CHECK(b.item[BUDGET_COLD] == 10 * budget_slot_bytes(&m.shapes.kind[0], 2 % n));
    CHECK(b.item[BUDGET_INDEX] - a.item[BUDGET_INDEX] ==
          cache_bytes(m.shapes.kind[0].part[2 % n].n_units, 10) - cache_bytes(m.shapes.kind[0].part[2 % n].n_units, 0) +
              tables(b.item[BUDGET_HOT]) + tables(b.item[BUDGET_COLD]));
    CHECK(b.total - a.total == b.item[BUDGET_HOT] + b.item[BUDGET_COLD] + b.item[BUDGET_INDEX] - a.item[BUDGET_INDEX] -
                                   (a.item[BUDGET_CHECKS] - b.item[BUDGET_CHECKS]));
    const struct layout_part *hot_part = &m.shapes.kind[0].part[3 % n];
    CHECK(b.item[BUDGET_CHECKS] < a.item[BUDGET_CHECKS] || hot_part->neurons_per_unit > 16);
    hot[3] = 1281;
    CHECK(budget_compute(&m, &c, &b, &e) == ERR_LIMIT && strstr(e.msg, "1281"));
    hot[3] = 0;
    cold[2] = 1u << 30;
    CHECK(budget_compute(&m, &c, &b, &e) == ERR_LIMIT);
    CHECK(budget_staging_bytes(&m.shapes.kind[0]) % 4096 == 0 &&
          budget_staging_bytes(&m.shapes.kind[0]) >= m.shapes.kind[0].part[0].read_bytes);
}

static void test_monotonic(void)
{
    struct budget_model m = tiny(LAYOUT_SPLIT);
    struct budget_choice c = choice();
    struct budget a, b;
    struct err e;
    budget_compute(&m, &c, &a, &e);
    int *const fields[] = { &c.context, &c.max_batch, &c.prefill_chunk, &c.threads, &c.io_lanes, &c.queue_depth };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        int keep = *fields[i];
        *fields[i] = keep + 1;
        CHECK_MSG(budget_compute(&m, &c, &b, &e) == 0 && b.floor > a.floor, "field %zu", i);
        *fields[i] = 0;
        CHECK_MSG(budget_compute(&m, &c, &b, &e) == ERR_LIMIT, "field %zu", i);
        *fields[i] = keep;
    }
    c.kv_type = 0;
    CHECK(budget_compute(&m, &c, &b, &e) == 0 && b.item[BUDGET_KV] == 2 * a.item[BUDGET_KV]);
    CHECK(a.item[BUDGET_KV] == 8 * 2 * 256 * 128 * 2);
    c.kv_type = KV_Q8_0;
    CHECK(budget_compute(&m, &c, &b, &e) == 0 && b.item[BUDGET_KV] == 8 * 2 * 256 * 4 * 34);
    c.kv_type = KV_Q4_0;
    CHECK(budget_compute(&m, &c, &b, &e) == 0 && b.item[BUDGET_KV] == 8 * 2 * 256 * 4 * 18);
    struct budget_model odd = m;
    odd.h.head_dim = 16;
    CHECK(budget_compute(&odd, &c, &b, &e) == ERR_USAGE && strstr(e.msg, "head of 16 elements"));
    /* The embedded model's demo: gates resident, 18 MiB in all, with room for a cold cache. */
    uint32_t gates[LAYERS * 2];
    for (int i = 0; i < LAYERS * 2; i++)
        gates[i] = i % 2 ? 0 : 1280;
    c = choice();
    c.hot = gates;
    CHECK(budget_compute(&m, &c, &b, &e) == 0);
    CHECK_MSG(b.total < (18 << 20), "demo floor with gates: %llu", (unsigned long long)b.total);
    for (int i = 0; i < BUDGET_ITEMS; i++)
        printf("# %-9s %10llu\n", budget_item_name((enum budget_item)i), (unsigned long long)b.item[i]);
}

/* A layer that predicts further tokens: inputs of twice the width, and no tokenizer. */
static void test_mtp(void)
{
    struct budget_model m = tiny(LAYOUT_TILES);
    struct budget_choice c = choice();
    struct budget_scratch a, b;
    struct budget x, y;
    struct err e;
    CHECK(budget_scratch(&m, &c, &a, &e) == 0 && a.joined == 0 && budget_compute(&m, &c, &x, &e) == 0);
    m.h.mtp = 3;
    CHECK(budget_scratch(&m, &c, &b, &e) == 0 && b.joined == (uint64_t)c.prefill_chunk * 256 * 8 && b.act == 2 * a.act);
    CHECK(b.total - a.total == b.joined + b.act - a.act);
    CHECK(budget_compute(&m, &c, &y, &e) == 0 && y.item[BUDGET_SCRATCH] - x.item[BUDGET_SCRATCH] == b.total - a.total);
    CHECK(y.item[BUDGET_META] + (1 << 16) < x.item[BUDGET_META]);
}

static void test_overflow(void)
{
    struct budget_model m = tiny(LAYOUT_BUNDLE);
    struct budget_choice c = choice();
    struct budget b = { .total = 42 };
    struct err e;
    m.dense_bytes = UINT64_MAX - 3;
    CHECK(budget_compute(&m, &c, &b, &e) == ERR_LIMIT && b.total == 42);
    m = tiny(LAYOUT_BUNDLE);
    m.vocab_text_bytes = UINT64_MAX / 3;
    CHECK(budget_compute(&m, &c, &b, &e) == ERR_LIMIT);
    m = tiny(LAYOUT_BUNDLE);
    m.h.n_layers = MODEL_MAX_LAYERS;
    m.h.head_dim = MODEL_MAX_DIM;
    m.h.n_heads = m.h.n_kv_heads = MODEL_MAX_DIM;
    c.context = MODEL_MAX_CONTEXT;
    c.max_batch = BUDGET_MAX_BATCH;
    CHECK(budget_compute(&m, &c, &b, &e) == ERR_LIMIT && b.total == 42);
}

/* A table of rows: in memory, or 32 buffers of its blocks and one more, a block to align them, 4 bytes a row, and stacks of 4 threads. */
static void test_tables(void)
{
    struct budget_model m = tiny(LAYOUT_BUNDLE);
    struct budget_choice c = choice();
    struct budget in, out;
    struct err e;
    m.dense_bytes = 0;
    m.n_tensors = 0;
    m.h.tied_output = 1;
    CHECK(budget_add_dense(&m, MODEL_TOKEN_EMBD, 100000 * 300, 100000, 1) == 0 && m.n_tables == 0);
    CHECK(budget_add_dense(&m, MODEL_LAYER_EMBD, 100000 * 5000, 100000, 0) == 0 && m.n_tables == 0);
    m.h.tied_output = 0;
    m.h.mtp = 1;
    CHECK(budget_add_dense(&m, MODEL_TOKEN_EMBD, 100000 * 300, 100000, 1) == 0 && m.n_tables == 0);
    m.h.mtp = 0;
    m.dense_bytes = 64;
    CHECK(budget_add_dense(&m, MODEL_LAYER_EMBD, 100000 * 5000, 100000, 1) == 0 && m.n_tables == 1);
    CHECK(budget_add_dense(&m, MODEL_TOKEN_EMBD, 100 * 300, 100, 1) == 0 && m.n_tables == 2); /* too small to be streamed */
    CHECK(budget_add_dense(&m, MODEL_OUTPUT, UINT64_MAX - 64, 100, 1) == -1 && m.n_tensors == 5);
    CHECK(budget_compute(&m, &c, &in, &e) == 0 && in.item[BUDGET_DENSE] == 64 + 500000000 + 30016);
    c.stream_tables = 1;
    CHECK(budget_compute(&m, &c, &out, &e) == 0 && out.floor == in.floor && out.floor == out.total);
    CHECK(out.item[BUDGET_DENSE] == 64 + 30016 + 32 * 3 * 4096 + 4096 + 400000);
    CHECK(out.item[BUDGET_STACKS] == in.item[BUDGET_STACKS] + 4 * 65536);
    CHECK(budget_streams(&m, &c, &m.table[0]) && !budget_streams(&m, &c, &m.table[1]));
}

int main(void)
{
    test_tables();
    for (int f = 0; f < LAYOUT_FORMS; f++)
        test_regions((enum layout_form)f);
    test_monotonic();
    test_mtp();
    test_overflow();
    return test_done();
}
