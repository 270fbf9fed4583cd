/* The pipeline's arithmetic without an engine: against the equations in double, in whatever order and groups entries and
 * columns are computed, which may change no bit; and for predicted passes. */
#include "runtime/pipeline/compute.h"

#include "tests/pipeline_sample.h"

#define TOKENS 3

static struct pipeline_sample s;
static struct block b;
static struct entry gates[PS_FF], neurons[PS_FF];
static uint8_t active[PS_FF], bits[TOKENS * PS_ROW_BYTES], any[PS_ROW_BYTES];
static float x[TOKENS * PS_D];

/* Layer 1, block 1: every unit of each list is an entry, its bytes where the file's image has them, and clusters before `hot` are
 * resident. */
static void begin(enum layout_form form, uint32_t hot)
{
    s = (struct pipeline_sample){ .form = form, .threads = 2, .depth = 2, .tokens = TOKENS, .hot_neurons = { hot, hot } };
    ps_open(&s);
    const struct layout_shape *sh = &s.c.shapes->kind[0];
    b = (struct block){ .c = &s.c, .layer = 1, .block = 1, .shape = sh, .n_tokens = TOKENS, .fused = hot / PS_CLUSTER, .rows = s.rows,
                        .out = s.out, .active = active };
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < PS_D; c++)
            x[t * PS_D + c] = ps_input(1, t, c);
    b.x[KERNELS_ACT_F32] = x;
    b.x_stride[KERNELS_ACT_F32] = PS_D * sizeof *x;
    for (int k = 0; k < LISTS; k++) {
        struct list *l = &b.list[k];
        *l = (struct list){ .of = &b, .part = k == LIST_GATE ? 0 : sh->n_parts - 1, .e = k == LIST_GATE ? gates : neurons,
                            .cap = PS_FF, .work = k == LIST_GATE ? DO_GATE : sh->n_parts == 1 ? DO_GATE | DO_UP : DO_UP };
        const struct layout_part *lp = &sh->part[l->part];
        for (uint32_t at = 0, n; at < PS_FF && !(k == LIST_GATE && sh->n_parts == 1); at += n) {
            n = at < hot ? PS_CLUSTER : layout_unit_neurons(sh, lp, at / lp->neurons_per_unit);
            if (at < hot && k == LIST_GATE)
                continue;
            l->e[l->n++] = (struct entry){ .pos0 = at, .n = (uint16_t)n, .kind = at < hot ? KIND_HOT : KIND_CACHED,
                                           .where = n, .base = ps_record(&s, 1, 1, l->part, at) };
        }
    }
    for (int p = 0; p < sh->n_parts; p++)
        b.hot_base[p] = s.c.hot + s.hot_at[config_hot(&s.c, 1, 1, p)];
    for (uint32_t i = 0; i < b.list[LIST_NEURON].n; i++)
        if (neurons[i].kind == KIND_HOT)
            neurons[i].base = b.hot_base[sh->n_parts - 1] + neurons[i].pos0 * sh->part[sh->n_parts - 1].record_bytes;
    memset(s.rows, 0, sizeof s.rows);
    memset(s.out, 0, sizeof s.out);
    memset(active, 0, sizeof active);
}

/* Entries of a list, `step` at a time, forwards or backwards. */
static struct counts entries(enum list_id list, int step, int backwards)
{
    struct counts c = { 0 };
    int n = (int)b.list[list].n;
    for (int at = 0; at < n; at += step) {
        uint32_t idx[PS_FF];
        int k = 0;
        for (int i = at; i < n && i < at + step; i++)
            idx[k++] = (uint32_t)(backwards ? n - 1 - i : i);
        compute_entries(&b, list, idx, k, at / step % 2, &c);
    }
    return c;
}

static void down(int cols, uint32_t step)
{
    for (int col = 0; col < PS_D; col += cols)
        for (uint32_t from = 0, n = b.list[LIST_NEURON].n; from < n; from += step)
            compute_down(&b, from, from + step < n ? from + step : n, col, PS_D - col < cols ? PS_D - col : cols, col & 1);
}

static int counted(int t, uint32_t i)
{
    return !b.pred.on || bits[t * PS_ROW_BYTES + i / 8] >> i % 8 & 1;
}

static double worst(void)
{
    double far = 0;
    for (int t = 0; t < TOKENS; t++) {
        double want[PS_D] = { 0 };
        for (uint32_t i = 0; i < PS_FF; i++)
            if (counted(t, i))
                ps_add_neuron(1, 1, i, t, want);
        for (int c = 0; c < PS_D; c++)
            far = fmax(far, fabs(want[c] - (double)s.out[t * PS_D + c]));
    }
    return far;
}

static void test_exact(enum layout_form form, uint32_t hot)
{
    static float first[TOKENS * PS_D];
    begin(form, hot);
    struct counts c = entries(LIST_GATE, PS_FF, 0), more = entries(LIST_NEURON, PS_FF, 0);
    uint64_t n_active = 0, n_hot = 0;
    for (uint32_t i = 0; i < PS_FF; i++) {
        int on = 0;
        for (int t = 0; t < TOKENS; t++)
            on |= ps_gate(1, 1, i, t) > 0;
        n_active += (uint64_t)on;
        n_hot += (uint64_t)(on && i < hot);
        if (on != active[i])
            CHECK_MSG(0, "neuron %u", i);
    }
    CHECK(c.computed + more.computed == PS_FF && more.active_hot == n_hot && more.active_cold == n_active - n_hot);
    down(PS_D, PS_FF);
    CHECK_MSG(worst() < 1e-4, "%g", worst());
    memcpy(first, s.out, sizeof first);
    ps_close(&s);
    for (int step = 1; step < 8; step += 3) {
        begin(form, hot);
        entries(LIST_GATE, step, step & 1);
        entries(LIST_NEURON, step + 1, !(step & 1));
        down(step == 1 ? 32 : PS_D, (uint32_t)step);
        CHECK(!memcmp(first, s.out, sizeof first));
        ps_close(&s);
    }
}

/* Nothing is skipped: a shut gate's neuron is active too, and adds a zero. */
static void test_dense(void)
{
    begin(LAYOUT_SPLIT, 0);
    s.c.dense_mode = 1;
    entries(LIST_GATE, 5, 0);
    CHECK(entries(LIST_NEURON, 5, 0).active_cold == PS_FF && active[0] == 1 && active[PS_FF - 1] == 1);
    down(32, 9);
    CHECK(worst() < 1e-4);
    ps_close(&s);
}

/* Each token has its own bits: a neuron adds nothing to a token that did not ask for it, also where another did. */
static void test_bits(enum layout_form form, uint32_t hot)
{
    begin(form, hot);
    b.pred = (struct predicted){ .on = 1, .bits = bits, .any = any, .want = any, .row_bytes = PS_ROW_BYTES, .always = 24 };
    memset(any, 0, sizeof any);
    uint64_t asked = 0;
    for (uint32_t i = 0; i < PS_FF; i++)
        for (int t = 0; t < TOKENS; t++) {
            int on = i < 24 || (i * 7 + (uint32_t)t * 13) % 5 == 0;
            uint8_t *at = &bits[t * PS_ROW_BYTES + i / 8], bit = (uint8_t)(1 << i % 8);
            *at = on ? *at | bit : (uint8_t)(*at & ~bit);
            any[i / 8] |= on ? bit : 0;
        }
    for (uint32_t i = 0; i < PS_FF; i++)
        asked += any[i / 8] >> i % 8 & 1;
    uint64_t gates_done = entries(LIST_GATE, 3, 0).computed;
    CHECK(gates_done + entries(LIST_NEURON, 4, 1).computed == asked && asked < PS_FF);
    down(32, 7);
    CHECK_MSG(worst() < 1e-4, "%g", worst());
    ps_close(&s);
}

/* A prediction by pieces, from memory and from rows that lie elsewhere: the bits of one call for everything. */
static void test_predictor(void)
{
    enum { RANK = 32 };
    static float fc1[RANK * PS_D], fc2[PS_FF * RANK], bias[PS_FF], hidden[TOKENS * RANK], scores[2 * TOKENS * SCHEDULE_SCORE_ROWS],
        all[TOKENS * PS_FF], whole[TOKENS * RANK];
    static uint8_t prepared[TOKENS * RANK * 4];
    struct predict q = { .relu = 1, .d_model = PS_D, .rank = RANK, .n_ff = PS_FF, .type1 = QUANT_F32, .type2 = QUANT_F32,
                         .fc1 = fc1, .fc2 = fc2, .bias = bias, .threshold = 0.05f };
    begin(LAYOUT_BUNDLE, 0);
    for (uint32_t i = 0; i < RANK * PS_D; i++)
        fc1[i] = ps_weight(3, 0, 5, i, 0);
    for (uint32_t i = 0; i < PS_FF * RANK; i++)
        fc2[i] = ps_weight(3, 0, 6, i, 0);
    for (uint32_t i = 0; i < PS_FF; i++)
        bias[i] = ps_weight(3, 0, 7, i, 0);
    CHECK(predict_init(&q, &s.e) == 0);
    predict_hidden(&q, 0, RANK, x, PS_D * 4, TOKENS, whole, RANK);
    predict_prepare(&q, whole, RANK, TOKENS, prepared, predict_hidden_bytes(&q));
    predict_scores(&q, 0, PS_FF, prepared, predict_hidden_bytes(&q), TOKENS, all, PS_FF);
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        struct predict without = q;
        if (elsewhere)
            without.fc1 = without.fc2 = without.bias = NULL;
        b.pred = (struct predicted){ .on = 1, .q = elsewhere ? &without : &q, .bits = bits, .any = any, .want = any,
                                     .row_bytes = PS_ROW_BYTES, .always = 16, .range = 304, .n_ranges = 4 };
        const struct compute_prediction d = { .hidden = hidden, .scores = scores, .prepared = prepared, .of = &b, .x = x,
                                              .score_floats = TOKENS * SCHEDULE_SCORE_ROWS, .x_stride = PS_D * 4,
                                              .prepared_stride = predict_hidden_bytes(&q) };
        memset(bits, 0, sizeof bits), memset(any, 0, sizeof any), memset(hidden, 0, sizeof hidden);
        memset(prepared, 0, sizeof prepared);
        for (uint32_t r = 0; r < RANK; r += 8)
            compute_hidden(&d, RANK - 8 - r, RANK - r, elsewhere ? (const uint8_t *)&fc1[(RANK - 8 - r) * PS_D] : NULL);
        compute_prepare(&d);
        for (uint32_t r = 0; r < 4; r++)
            compute_scores(&d, 3 - r, elsewhere ? (const uint8_t *)&fc2[(16 + (3 - r) * 304) * RANK] : NULL,
                           elsewhere ? &bias[16 + (3 - r) * 304] : NULL, (int)r % 2);
        int differ = 0, on = 0;
        for (uint32_t i = 16; i < PS_FF; i++) {
            int some = 0;
            for (int t = 0; t < TOKENS; t++) {
                int is = counted(t, i);
                differ += is != (all[(uint32_t)t * PS_FF + i] > q.threshold);
                some |= is;
            }
            differ += some != (any[i / 8] >> i % 8 & 1);
            on += some;
        }
        CHECK_MSG(differ == 0 && on > 100 && on < PS_FF - 36, "%d differ, %d on", differ, on);
    }
    ps_close(&s);
}

int main(void)
{
    for (int f = 0; f < LAYOUT_FORMS; f++) {
        test_exact((enum layout_form)f, 0);
        test_exact((enum layout_form)f, 3 * PS_CLUSTER);
        test_bits((enum layout_form)f, 0);
        test_bits((enum layout_form)f, 2 * PS_CLUSTER);
    }
    test_dense();
    test_predictor();
    return test_done();
}
