/* Traces: what is written is read back; the content hash depends on content alone; shards merge into what an
 * undivided run writes; shards that do not belong together are refused; the counting of observe.c agrees
 * with the definition of batches. */
#include "common/offline/trace/trace_fields.h"
#include "common/offline/trace/trace_merge.h"
#include "common/offline/trace/trace_write.h"

#include "common/base/file.h"
#include "common/plan/budget.h"
#include "common/plan/layout.h"
#include "profiler/trace/observe.h"
#include "tests/test.h"
#include "tests/trace_sample.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static char dir[256];
static struct err e;
static struct trace_sample s, part;

static const char *in(const char *name)
{
    static char paths[8][400];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

static int same_bytes(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 1;
    int same =
        !file_slurp(a, 64 << 20, &x, &n, &e) && !file_slurp(b, 64 << 20, &y, &m, &e) && n == m && !memcmp(x, y, n);
    free(x), free(y);
    return same;
}

static void check_counts(struct trace *t, int layer)
{
    const struct trace_info *i = trace_info(t);
    int blocks = model_ffn_blocks(&i->h), same = 1;
    for (int k = 0; k < TRACE_BATCH_KINDS; k++)
        for (int z = 0; z < TRACE_BATCH_SIZES; z++) {
            uint64_t want[4 * SAMPLE_FF] = { 0 }, routed[4] = { 0 }, n = 0;
            sample_count(&s, layer, k, trace_batch_sizes[z], 2, want, routed, &n);
            for (int b = 0; b < blocks; b++) {
                uint64_t got[SAMPLE_FF], n_batches, n_routed;
                same &= !trace_batch_counts(t, (enum trace_batch_kind)k, z, layer, b, got, &n_batches, &e) &&
                        !memcmp(got, want + b * SAMPLE_FF, sizeof got) && n_batches == n;
                same &= !trace_batch_routed(t, (enum trace_batch_kind)k, z, layer, b, &n_routed, &e) &&
                        n_routed == routed[b];
            }
        }
    CHECK_MSG(same, "batches of layer %d: %s", layer, e.msg);
    uint64_t got[SAMPLE_FF], routed, want[4 * SAMPLE_FF] = { 0 }, used[4] = { 0 }, n = 0;
    sample_count(&s, layer, TRACE_BATCH_CONSECUTIVE, 1, 2, want, used, &n);
    CHECK(!trace_counts(t, layer, blocks - 1, got, &routed, &e) &&
          !memcmp(got, want + (blocks - 1) * SAMPLE_FF, sizeof got) && routed == used[blocks - 1]);
    memset(want, 0, sizeof want);
    sample_count(&s, layer, TRACE_BATCH_CONSECUTIVE, 1, 1, want, used, &n);
    CHECK(!trace_gate_counts(t, layer, 0, got, &e) && !memcmp(got, want, sizeof got));
}

static void check_rows(struct trace *t, int layer)
{
    const struct trace_info *i = trace_info(t);
    size_t k = (size_t)trace_slots(&i->h), row = (size_t)trace_row_bytes(&i->h);
    uint8_t *maps = malloc((size_t)i->window_tokens * k * row), signs[2 * 9];
    uint16_t *blocks = malloc((size_t)i->window_tokens * k * 2), x[SAMPLE_D], y[SAMPLE_D];
    int same = 1;
    CHECK(!trace_maps(t, layer, 0, i->window_tokens, maps, blocks, &e));
    for (uint64_t w = 0; w < i->window_tokens; w++)
        for (size_t o = 0; o < k; o++) {
            same &= blocks[w * k + o] == sample_block(i, layer, w, (int)o);
            for (int j = 0; j < SAMPLE_FF; j++)
                same &= (maps[(w * k + o) * row + (size_t)j / 8] >> j % 8 & 1) ==
                        (sample_fires(layer, w, (int)o, j) == 2);
        }
    CHECK(same);
    uint64_t token;
    float rms;
    CHECK(!trace_sample_tokens(t, 7, 1, &token, &e) && !trace_samples(t, layer, 7, 1, x, y, &rms, signs, &e));
    CHECK(token == trace_sample_token(7, 50, i->corpus.n_tokens) && rms == (float)token);
    CHECK(x[3] == (sample_mix(TRACE_SET_BLOCK_INPUT, token, 3) & 0x3fff) &&
          y[3] == (sample_mix(TRACE_SET_FFN_INPUT, token, 3) & 0x3fff));
    CHECK((signs[0] >> 5 & 1) == (sample_fires(layer, token, 0, 5) >= 1));
    CHECK(trace_maps(t, layer, 0, i->window_tokens + 1, maps, blocks, &e) == ERR_LIMIT);
    CHECK(trace_counts(t, SAMPLE_LAYERS, 0, NULL, NULL, &e) == ERR_LIMIT);
    free(maps), free(blocks);
}

static void round_trip(int n_experts)
{
    struct hash128 h0, h9;
    struct trace *t = NULL;
    sample_init(&s, n_experts, 0, 1);
    CHECK_MSG(!sample_write(&s, in("a.h5"), 0, &h0, &e), "%s", e.msg);
    CHECK(!sample_write(&s, in("b.h5"), 9, &h9, &e) && hash_equal(h0, h9) && !same_bytes(in("a.h5"), in("b.h5")));
    CHECK(!sample_write(&s, in("c.h5"), 9, &h9, &e) && same_bytes(in("b.h5"), in("c.h5")));
    CHECK_MSG(!trace_open(in("b.h5"), &t, &e), "%s", e.msg);
    if (!t)
        return;
    const struct trace_info *i = trace_info(t);
    CHECK(hash_equal(i->content_hash, h0) && hash_equal(i->model_hash, s.info.model_hash));
    CHECK(!memcmp(&i->h, &s.info.h, sizeof i->h) ||
          (i->h.n_ff == SAMPLE_FF && i->h.rms_eps == 1e-5f && i->h.act == MODEL_ACT_DRELU));
    CHECK(i->n_tensors == s.info.n_tensors && !strcmp(i->tensors[3].name, "blk.0.ffn_gate.weight") &&
          i->tensors[3].role == MODEL_FFN_GATE && i->tensors[3].layer == 0 &&
          i->tensors[3].bytes == s.tensors[3].bytes && hash_equal(i->tensors[3].hash, s.tensors[3].hash) &&
          i->tensors[0].layer == -1);
    CHECK(!memcmp(trace_sequence_starts(t), s.starts, (size_t)(i->n_sequences + 1) * 8));
    CHECK_MSG(!trace_verify(t, &e), "%s", e.msg);
    for (int l = 0; l < SAMPLE_LAYERS; l++) {
        check_counts(t, l);
        check_rows(t, l);
    }
    uint32_t *orders = NULL, want[SAMPLE_FF];
    uint64_t counts[SAMPLE_FF];
    struct hash128 oh;
    CHECK(!trace_orders(t, LAYOUT_HEAT, &orders, &oh, &e) && !trace_counts(t, 1, 0, counts, NULL, &e));
    layout_order(counts, SAMPLE_FF, want);
    CHECK(orders && !memcmp(orders + (size_t)model_ffn_blocks(&i->h) * SAMPLE_FF, want, sizeof want));
    CHECK(orders && hash_equal(oh, layout_order_hash(orders, SAMPLE_LAYERS, model_ffn_blocks(&i->h), SAMPLE_FF)));
    free(orders);
    struct layout l;
    struct budget_model bm;
    layout_default(&l, LAYOUT_BUNDLE, (uint32_t[3]){ QUANT_F32, QUANT_F32, QUANT_F32 });
    CHECK(!trace_budget_model(t, &l, &bm, &e) && bm.n_tensors == 4 && bm.meta_bytes == 2000 &&
          bm.dense_bytes >= 24 * 53 * 4);
    trace_close(t);
}

/* ---- merging ---- */

static void merging(int n_experts, int n_shards)
{
    char name[8][400];
    const char *paths[8];
    struct hash128 whole, merged, one;
    sample_init(&s, n_experts, 0, 1);
    CHECK(!sample_write(&s, in("whole.h5"), 4, &whole, &e));
    for (int i = 0; i < n_shards; i++) { /* the last first */
        snprintf(name[i], sizeof name[0], "%s/shard%d.h5", dir, n_shards - 1 - i);
        paths[i] = name[i];
        sample_init(&part, n_experts, n_shards - 1 - i, n_shards);
        CHECK_MSG(!sample_write(&part, paths[i], 1, &one, &e), "%s", e.msg);
        CHECK(!hash_equal(one, whole));
    }
    CHECK_MSG(!trace_merge(paths, n_shards, in("merged.h5"), 4, 0, NULL, NULL, &merged, &e), "%s", e.msg);
    CHECK(hash_equal(whole, merged));
    struct trace *t = NULL;
    CHECK(!trace_open(in("merged.h5"), &t, &e) && !trace_verify(t, &e));
    if (t) {
        check_counts(t, 1);
        check_rows(t, 0);
    }
    trace_close(t);
    CHECK(trace_merge(paths, n_shards - 1, in("no.h5"), 4, 0, NULL, NULL, NULL, &e) == ERR_MISMATCH &&
          strstr(e.msg, "of 3"));
    const char *twice[3] = { paths[0], paths[1], paths[0] };
    CHECK(trace_merge(twice, 3, in("no.h5"), 4, 0, NULL, NULL, NULL, &e) == ERR_MISMATCH && strstr(e.msg, "both shard"));
    sample_init(&part, n_experts, 1, n_shards);
    part.info.model_hash.lo++;
    CHECK(!sample_write(&part, paths[1], 1, NULL, &e));
    CHECK(trace_merge(paths, 3, in("no.h5"), 4, 0, NULL, NULL, NULL, &e) == ERR_MISMATCH && strstr(e.msg, "model"));
    sample_init(&part, n_experts, 1, n_shards);
    part.info.corpus.hash.hi++;
    CHECK(!sample_write(&part, paths[1], 1, NULL, &e));
    CHECK(trace_merge(paths, 3, in("no.h5"), 4, 0, NULL, NULL, NULL, &e) == ERR_MISMATCH && strstr(e.msg, "corpus"));
    CHECK(access(in("no.h5"), F_OK) != 0);
}

/* ---- thresholds ---- */

static void thresholds(void)
{
    const char *paths[2];
    char name[2][400];
    struct hash128 plain, whole, merged;
    struct trace *t = NULL;
    float *at = NULL;
    sample_init(&s, 0, 0, 1);
    s.info.h.act = MODEL_ACT_SILU;
    CHECK(!sample_write(&s, in("a.h5"), 1, &plain, &e));
    CHECK(!trace_open(in("a.h5"), &t, &e) && !trace_thresholds(t, &at, &e) && !at);
    trace_close(t);
    sample_init(&s, 0, 0, 1);
    sample_add_thresholds(&s);
    CHECK_MSG(!sample_write(&s, in("a.h5"), 1, &whole, &e), "%s", e.msg);
    CHECK(!hash_equal(plain, whole));
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[0], "%s/shard%d.h5", dir, i);
        paths[i] = name[i];
        sample_init(&part, 0, i, 2);
        sample_add_thresholds(&part);
        CHECK(!sample_write(&part, paths[i], 1, NULL, &e));
    }
    CHECK_MSG(!trace_merge(paths, 2, in("merged.h5"), 1, 0, NULL, NULL, &merged, &e) && hash_equal(whole, merged), "%s", e.msg);
    CHECK(!trace_open(in("merged.h5"), &t, &e) && !trace_verify(t, &e) && !trace_thresholds(t, &at, &e));
    int bad = !at;
    for (int i = 0; i < SAMPLE_LAYERS * SAMPLE_FF && !bad; i++)
        bad = at[i] != sample_threshold(i / SAMPLE_FF, i % SAMPLE_FF);
    CHECK(!bad && trace_info(t)->h.thresholds);
    free(at);
    trace_close(t);
}

/* ---- experts foreseen ---- */

static int all_foreseen(struct trace *t, const struct trace_sample *of)
{
    int good = 1;
    uint16_t got[2 * SAMPLE_SEQS * SAMPLE_MAX_LEN];
    for (int l = 0; l < SAMPLE_LAYERS; l++) {
        good &= !trace_foreseen(t, l, 0, of->info.n_tokens, got, &e);
        for (uint64_t k = 0; k < 2 * of->info.n_tokens && good; k++)
            good = got[k] == sample_foreseen(&of->info, l, of->global[k / 2], (int)(k % 2));
    }
    return good;
}

/* They are no part of the content hash, a trace without them is read as before, and shards that have them are no sisters of others. */
static void foreseen(void)
{
    const char *paths[2];
    char name[2][400];
    struct hash128 without, with, merged;
    struct trace *t = NULL;
    uint16_t row[2];
    sample_init(&s, 3, 0, 1);
    CHECK(!sample_write(&s, in("a.h5"), 1, &without, &e));
    CHECK(!trace_open(in("a.h5"), &t, &e) && !trace_info(t)->foreseen && trace_foreseen(t, 1, 0, 1, row, &e) == ERR_UNSUPPORTED &&
          strstr(e.msg, "trace the model again"));
    trace_close(t);
    sample_init(&s, 3, 0, 1);
    s.info.foreseen = 1;
    CHECK(!sample_write(&s, in("a.h5"), 1, &with, &e) && hash_equal(without, with));
    CHECK(!trace_open(in("a.h5"), &t, &e) && !trace_verify(t, &e) && all_foreseen(t, &s));
    trace_close(t);
    for (int mixed = 0; mixed < 2; mixed++) {
        for (int i = 0; i < 2; i++) {
            snprintf(name[i], sizeof name[0], "%s/shard%d.h5", dir, i);
            paths[i] = name[i];
            sample_init(&part, 3, i, 2);
            part.info.foreseen = !(mixed && i);
            CHECK(!sample_write(&part, paths[i], 1, NULL, &e));
        }
        int r = trace_merge(paths, 2, in("merged.h5"), 1, 0, NULL, NULL, &merged, &e);
        CHECK_MSG(mixed ? r == ERR_MISMATCH && strstr(e.msg, "foreseen experts") : !r && hash_equal(with, merged), "%s", e.msg);
    }
    CHECK(!trace_open(in("merged.h5"), &t, &e) && all_foreseen(t, &s));
    trace_close(t);
}

/* ---- the writer refuses what is not whole ---- */

static void unfinished(void)
{
    struct trace_writer *w = NULL;
    sample_init(&s, 0, 0, 1);
    uint32_t tokens[SAMPLE_SEQS * SAMPLE_MAX_LEN] = { 0 };
    CHECK(!trace_writer_open(in("u.h5"), &s.info, 1, &w, &e));
    CHECK(!trace_writer_append(w, TRACE_SET_TOKENS, 0, s.info.n_tokens, tokens, &e));
    CHECK(trace_writer_commit(w, NULL, &e) == ERR_LIMIT && strstr(e.msg, "was not written"));
    trace_writer_abort(w);
    CHECK(access(in("u.h5"), F_OK) != 0);
    CHECK(!trace_writer_open(in("u.h5"), &s.info, 1, &w, &e));
    CHECK(!trace_writer_append(w, TRACE_SET_TOKENS, 0, 3, tokens, &e));
    CHECK(trace_writer_append(w, TRACE_SET_INDEX, 0, 1, s.index, &e) == ERR_LIMIT && strstr(e.msg, "3 of"));
    trace_writer_abort(w);
    FILE *f = fopen(in("p.h5.partial"), "w");
    if (f) {
        fputs("THRMPART and the state", f);
        fclose(f);
    }
    struct trace *t;
    CHECK(trace_open(in("p.h5"), &t, &e) == ERR_INPUT && strstr(e.msg, "--resume"));
    CHECK(trace_open(in("p.h5.partial"), &t, &e) == ERR_INPUT && strstr(e.msg, "--resume"));
    CHECK(trace_open(in("nothing.h5"), &t, &e) == ERR_INPUT && strstr(e.msg, "nothing.h5"));
}

/* ---- observe against the definition ---- */

static void observing(int n_experts, int threads)
{
    struct pool *pool = NULL;
    struct observe *o = NULL;
    sample_init(&s, n_experts, 0, 1);
    const struct trace_info *i = &s.info;
    size_t k = (size_t)trace_slots(&i->h), row = (SAMPLE_FF + 63) / 64 * 8, blocks = (size_t)model_ffn_blocks(&i->h);
    uint8_t *active = calloc((size_t)i->n_tokens * k, row), *open = calloc((size_t)i->n_tokens * k, row);
    uint16_t *route = calloc((size_t)i->n_tokens * k, 2);
    for (uint64_t t = 0; t < i->n_tokens; t++)
        for (size_t q = 0; q < k; q++) {
            route[t * k + q] = sample_block(i, 1, t, (int)q);
            for (int j = 0; j < SAMPLE_FF; j++) {
                int v = sample_fires(1, t, (int)q, j);
                active[(t * k + q) * row + (size_t)j / 8] |= (uint8_t)((v == 2) << j % 8);
                open[(t * k + q) * row + (size_t)j / 8] |= (uint8_t)((v >= 1) << j % 8);
            }
        }
    const struct forward_layer l = { .layer = 1, .n_tokens = (size_t)i->n_tokens, .n_slots = (int)k, .row_bytes = row,
                                     .active = active, .open = open, .blocks = route };
    CHECK(!pool_new(threads, NULL, &pool, &e) && !observe_new(&i->h, &o, &e));
    CHECK(!observe_layer(o, pool, &l, s.starts, (size_t)i->n_sequences, &e));
    uint64_t n_batches[TRACE_BATCH_KINDS][TRACE_BATCH_SIZES] = { 0 };
    observe_batches(s.starts, (size_t)i->n_sequences, n_batches);
    int same = 1;
    for (int kind = 0; kind < TRACE_BATCH_KINDS; kind++)
        for (int z = 0; z < TRACE_BATCH_SIZES; z++) {
            uint64_t want[4 * SAMPLE_FF] = { 0 }, routed[4] = { 0 }, n = 0;
            sample_count(&s, 1, kind, trace_batch_sizes[z], 2, want, routed, &n);
            same &= n == n_batches[kind][z];
            for (size_t x = 0; x < blocks * SAMPLE_FF; x++)
                same &= o->batch[kind][(size_t)z * blocks * SAMPLE_FF + x] == want[x];
            for (size_t b = 0; b < blocks; b++)
                same &= o->routed_batch[kind][(size_t)z * blocks + b] == routed[b];
        }
    CHECK(same);
    uint64_t gates[4 * SAMPLE_FF] = { 0 }, used[4] = { 0 }, n = 0;
    sample_count(&s, 1, TRACE_BATCH_CONSECUTIVE, 1, 1, gates, used, &n);
    same = 1;
    for (size_t x = 0; x < blocks * SAMPLE_FF; x++)
        same &= o->gate_counts[x] == gates[x];
    CHECK(same);
    observe_free(o);
    pool_free(pool);
    free(active), free(open), free(route);
}

/* Last: the process stays asked to stop. */
static void interrupted(void)
{
    struct trace *t;
    uint32_t id;
    CHECK(!trace_open(in("a.h5"), &t, &e) && !trace_tokens(t, 0, 1, &id, &e));
    file_catch_interrupt();
    raise(SIGINT);
    CHECK(trace_tokens(t, 0, 1, &id, &e) == ERR_INTR && trace_verify(t, &e) == ERR_INTR);
    trace_close(t);
}

/* Every attribute of the table is one of schemas/trace.md, by name and group: renaming a member renames a key of the format. */
static void documented(void)
{
    char *doc, row[160];
    size_t len;
    CHECK(file_slurp("schemas/trace.md", 1 << 20, &doc, &len, &e) == 0);
    for (int i = 0; i < trace_n_fields; i++) {
        snprintf(row, sizeof row, "\n| %s | %s | ", trace_fields[i].group, trace_fields[i].name);
        CHECK_MSG(strstr(doc, row), "schemas/trace.md has no row%s", row);
    }
    free(doc);
}

int main(void)
{
    documented();
    test_path(dir, sizeof dir, "thermo-trace-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    round_trip(0);
    round_trip(3);
    merging(0, 3);
    merging(4, 3);
    thresholds();
    foreseen();
    unfinished();
    observing(0, 1);
    observing(4, 2);
    interrupted();
    static const char *const left[] = { "a.h5",      "b.h5",      "c.h5",      "whole.h5",    "merged.h5",
                                        "shard0.h5", "shard1.h5", "shard2.h5", "p.h5.partial" };
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        unlink(in(left[i]));
    CHECK(rmdir(dir) == 0); /* nothing else was left behind */
    return test_done();
}
