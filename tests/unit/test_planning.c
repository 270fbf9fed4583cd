/* Whole plans from synthetic models and devices: against exhaustive search, checked, repeated, infeasible and
 * advised. */
#include "planner/check/check.h"
#include "planner/heap.h"
#include "planner/planning/diagnosis.h"
#include "planner/planning/planning.h"
#include "planner/planning/planning_chunk.h"
#include "planner/solve/solve_z3.h"
#include "tests/planning_sample.h"
#include "tests/solve_exhaustive.h"
#include "tests/test.h"

#include <math.h>

/* Where a test is not of layouts: the best of all, in short runs one. */
static int any_form(void)
{
    return test_short() ? LAYOUT_SPLIT : -1;
}

static struct request request(uint64_t memory)
{
    struct request q;
    request_init(&q);
    q.memory[0] = memory;
    q.n_memory = 1;
    q.context = 64;
    return q;
}

/* The most that falling back by one hull segment can cost a layer at this batch size. */
static int64_t longest_segment(const struct solve_problem *p, int b)
{
    int64_t worst = 0;
    for (int i = 0; i < p->n_configs; i++)
        for (int l = 0; p->configs[i].curves && l < p->n_layers; l++) {
            const struct solve_curve *k = &p->configs[i].curves[b * p->n_layers + l];
            for (int h = 1; h < k->n_hull; h++) {
                int64_t d = k->point[k->hull[h - 1]].ticks - k->point[k->hull[h]].ticks;
                worst = d > worst ? d : worst;
            }
        }
    return worst;
}

/* The problem of a request as planning_make fills it, solved three ways. */
static int compare(const struct inputs *in, const struct hw *hw, const struct request *q, double *gap,
                   int *equal)
{
    struct problem p;
    struct layout l;
    struct err e = { 0 };
    struct notes notes = { 0 };
    struct space_variant mode = { .mode = PLAN_EXACT };
    struct problem_request ask = { .space.variants = &mode, .space.n_variants = 1, .policy = CACHE_LRU };
    struct limits lim = { .memory_bytes = q->memory[0], .context = 64,
                                  .max_batch = inputs_batch_sizes[in->n_batches - 1], .prefill_chunk = 1,
                                  .kv_type = KV_F16, .cores = { -1, -1 }, .model = q->cost };
    struct solve_result z, x;
    int bad = inputs_layout(in, LAYOUT_SPLIT, 64, -1, &l, &e) < 0 || problem_prepare(&p, in, hw, &l, &ask, &notes,
                                                                                     &e) < 0 ||
              problem_fill(&p, &lim, &e) < 0 || solve_z3(&p.configs.sp, 0, 1, &z, &e) < 0 || solve_exhaustive(&p.configs.sp, &x,
                                                                                                      &e) < 0;
    if (bad) {
        printf("# %s\n", e.msg);
        return -1;
    }
    /* bound <= optimum <= Z3's <= optimum + what rounding to units can cost: one hull segment per batch size */
    int64_t most = 0;
    for (int b = 0; b < in->n_batches; b++)
        most += p.configs.sp.weight[b] * (longest_segment(&p.configs.sp, b) + 1);
    int ok = z.feasible && x.feasible && z.finished && z.bound <= x.objective && x.objective <= z.objective &&
             z.objective - x.objective <= z.objective - z.bound && z.objective - z.bound <= most;
    if (ok) {
        *gap = 1 - (double)z.bound / (double)z.objective;
        *equal += z.objective == x.objective;
    } else {
        printf("# bound %lld, exhaustive %lld, Z3 %lld, rounding %lld\n", (long long)z.bound, (long long)x.objective,
               (long long)z.objective, (long long)most);
    }
    solve_result_done(&z);
    solve_result_done(&x);
    problem_done(&p);
    return ok ? 1 : 0;
}

/* Random whole instances: model shape, activation curves, device, batch sizes 1 to 8, memory from the floor to all
 * resident, both cost models. */
static void test_exhaustive(void)
{
    int bad = 0, n = 0, equal = 0;
    double worst = 0;
    for (int i = 0; i < test_cases(24); i++) {
        sample_state = (uint64_t)i + 3;
        int layers = i % 6 == 5 ? 3 : 2, wide = layers == 3 ? 64 : 64 * (1 + (int)(3 * sample_uniform()));
        struct inputs in = sample_inputs(layers, 128 << (int)(2 * sample_uniform()), wide, i % 6 == 5 ? 2 : 1,
                                         1 << i % 4);
        struct hw hw = sample_hw(1 + i % 2, 1 + (int)(3 * sample_uniform()), 10000 + 90000 * sample_uniform());
        struct request q = request(0);
        uint64_t floor_bytes;
        struct err e = { 0 };
        double gap = 0;
        q.cost = i % 5 == 4 ? PLAN_COST_PAPER : PLAN_COST_MEASURED;
        q.form = LAYOUT_SPLIT;
        q.max_batch = 1 << i % 4;
        if (planning_floor(&q, &in, &hw, &floor_bytes, &e) < 0)
            printf("# %s\n", e.msg);
        double whole = (double)layers * wide * in.n_blocks * in.h.d_model * 6;
        q.memory[0] = floor_bytes + 20000 + (uint64_t)(1.1 * whole * sample_uniform());
        bad += compare(&in, &hw, &q, &gap, &equal) != 1;
        worst = gap > worst ? gap : worst;
        n++;
        inputs_done(&in);
        hw_free(&hw);
    }
    printf("# %d instances, %d equal to exhaustive search to the tick, the others within rounding; largest proven gap "
           "%.4f\n", n, equal, worst);
    CHECK(bad == 0);
    CHECK(equal >= n * 4 / 5);
}

/* A plan's text; "" and the message when there is none. */
static char *plan_for(const struct request *q, const struct inputs *in, const struct hw *hw,
                      struct plan *p, struct err *e)
{
    struct notes notes = { 0 };
    char *text = NULL;
    size_t len;
    if (planning_make(q, in, hw, &notes, p, e) < 0)
        return NULL;
    if (check_plan(p, "made", in, hw, &notes, e) < 0 || plan_text(p, &text, &len, e) < 0) {
        printf("# %s\n", e->msg);
        plan_done(p);
        return NULL;
    }
    return text;
}

static void test_whole(void)
{
    struct inputs in = sample_inputs(4, 256, 512, 1, 4);
    struct hw hw = sample_hw(2, 2, 50000);
    struct request q = request(0);
    struct plan p, p2;
    struct err e = { 0 };
    uint64_t floor_bytes;
    q.max_batch = 4;
    q.form = any_form();
    CHECK(planning_floor(&q, &in, &hw, &floor_bytes, &e) == 0);
    q.n_memory = 4;
    for (int i = 0; i < 4; i++)
        q.memory[i] = floor_bytes + (uint64_t)i * 700000;
    char *a = plan_for(&q, &in, &hw, &p, &e), *b = plan_for(&q, &in, &hw, &p2, &e);
    CHECK_MSG(a && b && !strcmp(a, b), "%s", e.msg);
    CHECK(p.limits[0].account_bytes == floor_bytes && p.limits[0].n_batches == 3 && p.limits[0].max_batch == 4);
    CHECK(p.limits[0].batches[0].hot[0] == 0 && p.layout.form == LAYOUT_SPLIT);
    int rising = 1, more = 1;
    for (int i = 1; i < 4; i++) {
        rising &= p.limits[i].batches[0].predicted.tokens_per_s > p.limits[i - 1].batches[0].predicted.tokens_per_s;
        more &= p.limits[i].batches[2].predicted.tokens_per_s > p.limits[i].batches[0].predicted.tokens_per_s;
    }
    CHECK(rising);
    CHECK(more); /* batch 4 makes more tokens a second than batch 1 */
    CHECK(p.limits[3].gap >= 0 && p.limits[3].gap < 0.1); /* four layers: a step of one of them is a twelfth of the speed */

    /* Anything changed is found. */
    struct notes notes = { 0 };
    struct plan_limit *l = &p.limits[2];
    int missed = 0;
#define TAMPER(field, value)                                         \
    do {                                                             \
        __typeof__(field) was = field;                               \
        field = (value);                                             \
        if (check_plan(&p, "tampered", &in, &hw, &notes, &e) == 0) { \
            printf("# " #field " was not noticed\n");                \
            missed++;                                                \
        }                                                            \
        field = was;                                                 \
    } while (0)
    TAMPER(l->account_bytes, l->account_bytes - 64);
    TAMPER(l->floor_bytes, l->floor_bytes - 64);
    TAMPER(l->batches[0].predicted.tokens_per_s, l->batches[0].predicted.tokens_per_s * 1.001);
    TAMPER(l->batches[1].predicted.layers[2].io_ns, l->batches[1].predicted.layers[2].io_ns * 1.001 + 1);
    TAMPER(l->batches[0].hot[0], l->batches[0].hot[0] ? 0 : 64);
    TAMPER(l->batches[0].cold[1], l->batches[0].cold[1] + 1);
    TAMPER(l->queue_depth, l->queue_depth + 1);
    TAMPER(l->context, 128);
    TAMPER(l->min_tokens_per_s, 1e6);
    TAMPER(l->classes[0].name[0], 'x');
    TAMPER(p.model_hash.lo, 1);
    TAMPER(p.order_hash.lo, 1);
    TAMPER(p.hardware_hash.lo, 1);
    CHECK(missed == 0);
    CHECK(check_plan(&p, "whole", &in, &hw, &notes, &e) == 0);
    CHECK(check_plan(&p, "no hardware", &in, NULL, &notes, &e) == 0);

    CHECK(check_against(&p, &p2, 0.001, NULL, NULL) == 0);
    p2.limits[1].batches[0].predicted.tokens_per_s *= 1.1;
    CHECK(check_against(&p, &p2, 0.001, NULL, NULL) == 1 && check_against(&p2, &p, 0.001, NULL, NULL) == 0);
    plan_done(&p);
    plan_done(&p2);
    free(a);
    free(b);
    inputs_done(&in);
    hw_free(&hw);
}

/* The chunk is the best of all by its own rule, whatever the memory and the weight; a least speed that is reached anyway changes
 * nothing, and with a heavier weight it is no smaller. */
static void test_chunk(void)
{
    struct inputs in = sample_inputs(4, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000);
    struct request q = request(0);
    struct err e = { 0 };
    uint64_t floor_bytes;
    int sizes[2] = { PLANNING_MOST_CHUNK, 0 };
    q.context = 1024;
    q.form = any_form();
    CHECK(planning_floor(&q, &in, &hw, &floor_bytes, &e) == 0);
    for (int i = 0; i < 5; i += 2)
        for (int last = 0, k = 0; k < 3; k += test_short() ? 2 : 1) {
            struct plan p, fast;
            q.memory[0] = floor_bytes + (uint64_t)i * 900000;
            q.prompt_weight = (double[]){ 0, 1, 1000 }[k];
            q.min_tokens_per_s = 0;
            char *text = plan_for(&q, &in, &hw, &p, &e), *other;
            CHECK_MSG(text != NULL, "%s", e.msg);
            if (!text)
                break;
            int chunk = p.limits[0].prefill_chunk;
            CHECK_MSG(chunk >= last && (chunk & (chunk - 1)) == 0, "%d after %d", chunk, last);
            last = chunk;
            sizes[0] = chunk < sizes[0] ? chunk : sizes[0];
            sizes[1] = chunk > sizes[1] ? chunk : sizes[1];
            q.min_tokens_per_s = 0.5 * p.limits[0].batches[0].predicted.tokens_per_s;
            other = plan_for(&q, &in, &hw, &fast, &e);
            CHECK_MSG(other && fast.limits[0].prefill_chunk == chunk &&
                          !(fast.limits[0].batches[0].predicted.tokens_per_s < p.limits[0].batches[0].predicted.tokens_per_s),
                      "%s", e.msg);
            free(text);
            free(other);
            plan_done(&p);
            plan_done(&fast);
        }
    CHECK_MSG(sizes[0] == 1 && sizes[1] >= 64, "%d to %d", sizes[0], sizes[1]);
    inputs_done(&in);
    hw_free(&hw);
}

/* The number that follows `after` in the message. */
static double number_after(const char *msg, const char *after)
{
    const char *at = strstr(msg, after);
    return at ? strtod(at + strlen(after), NULL) : -1;
}

static void test_infeasible(void)
{
    struct inputs in = sample_inputs(4, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 2, 30000);
    struct request q = request(1 << 20);
    struct plan p;
    struct err e = { 0 };
    q.form = any_form();
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_INFEASIBLE);
    CHECK_MSG(strstr(e.msg, "--memory 1.0 MiB") && strstr(e.msg, "--context 64"), "%s", e.msg);
    q.memory[0] = (uint64_t)number_after(e.msg, "floor of ");
    char *text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text != NULL && p.limits[0].account_bytes == q.memory[0], "%s", e.msg);
    free(text);
    plan_done(&p);
    uint64_t least = q.memory[0];
    q.memory[0]--;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_INFEASIBLE);

    /* Too much context for the memory: a smaller one is named, and works. */
    q.memory[0] = least + 100000;
    q.context = 5000;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_INFEASIBLE);
    double context = number_after(e.msg, "the largest --context is ");
    CHECK_MSG(context > 64 && context < 5000, "%s", e.msg);
    q.context = (int)context;
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text != NULL, "%s", e.msg);
    free(text);
    plan_done(&p);
    q.context++;
    CHECK(!plan_for(&q, &in, &hw, &p, &e));

    /* Too fast: the speed there is, and the memory it would take, both work. */
    q.context = 64;
    q.memory[0] = least + 300000;
    q.min_tokens_per_s = 1500;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_INFEASIBLE);
    double speed = number_after(e.msg, "the fastest plan makes "), memory = number_after(e.msg, "; --memory ");
    CHECK_MSG(speed > 0 && speed < 1500 && memory > (double)q.memory[0], "%s", e.msg);
    q.min_tokens_per_s = speed;
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text != NULL, "%s", e.msg);
    free(text);
    plan_done(&p);
    q.min_tokens_per_s = 1500;
    q.memory[0] = (uint64_t)memory;
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text != NULL && p.limits[0].batches[0].predicted.tokens_per_s >= 1500, "%s", e.msg);
    free(text);
    plan_done(&p);
    q.min_tokens_per_s = 1e6;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && strstr(e.msg, "no memory is enough"));
    /* Cores are part of it. */
    q.min_tokens_per_s = 0;
    q.cores[0] = 0;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_INFEASIBLE && strstr(e.msg, "--cores"));
    q.cores[0] = 1;
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK(text && p.limits[0].threads == 1);
    free(text);
    plan_done(&p);
    inputs_done(&in);
    hw_free(&hw);
}

/* A device whose slow tenth is half as fast: the plan promises no more than that, and says what it rests on. */
static void test_sustained(void)
{
    struct inputs in = sample_inputs(3, 256, 256, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000), slow = sample_hw(1, 2, 25000);
    struct request q = request(0);
    struct plan typical, sustained, half;
    struct err e = { 0 };
    for (int i = 0; i < hw.n_compute; i++) {
        hw.compute[i].ns_per_row.p90 *= 2;
        slow.compute[i].ns_per_row.p50 *= 2;
        slow.compute[i].flops_per_s /= 2;
    }
    for (int i = 0; i < hw.n_memory; i++) {
        hw.memory[i].bytes_per_s.p10 /= 2;
        slow.memory[i].bytes_per_s.p50 /= 2;
    }
    for (int i = 0; i < hw.n_storage; i++) {
        hw.storage_points[i].bytes_per_s.p10 /= 2;
        slow.storage_points[i].bytes_per_s.p50 = hw.storage_points[i].bytes_per_s.p50 / 2;
    }
    CHECK(planning_floor(&q, &in, &hw, &q.memory[0], &e) == 0);
    q.memory[0] += 200000;
    char *a = plan_for(&q, &in, &hw, &typical, &e), *c = plan_for(&q, &in, &slow, &half, &e);
    q.stat = PLAN_SUSTAINED;
    char *b = plan_for(&q, &in, &hw, &sustained, &e);
    CHECK_MSG(a && b && c, "%s", e.msg);
    double fast = typical.limits[0].batches[0].predicted.tokens_per_s;
    double sure = sustained.limits[0].batches[0].predicted.tokens_per_s;
    CHECK_MSG(sure == half.limits[0].batches[0].predicted.tokens_per_s && sure < 0.6 * fast, "%g, %g", sure, fast);
    CHECK(strstr(b, "\"figures\": \"sustained\"") && strstr(a, "\"figures\": \"typical\""));
    struct notes notes = { 0 };
    sustained.stat = PLAN_TYPICAL;
    CHECK(check_plan(&sustained, "renamed", &in, &hw, &notes, &e) < 0);
    CHECK(check_against(&typical, &sustained, 0.001, NULL, NULL) == 0); /* faster than promised is no breach */
    free(a);
    free(b);
    free(c);
    plan_done(&typical);
    plan_done(&sustained);
    plan_done(&half);
    inputs_done(&in);
    hw_free(&hw);
    hw_free(&slow);
}

/* Lanes of pread that would read twice as fast: taken with a core to spare, not where computing takes every core. */
static void test_lanes(void)
{
    struct inputs in = sample_inputs(3, 256, 256, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000);
    struct request q = request(0);
    struct plan busy, spare;
    struct err e = { 0 };
    int n = hw.n_storage;
    for (int i = 0; i < n; i++) {
        struct hw_storage *s = &hw.storage_points[hw.n_storage++];
        *s = hw.storage_points[i];
        s->backend = HW_PREAD;
        s->bytes_per_s.p50 *= 2;
        s->bytes_per_s.p10 *= 2;
    }
    CHECK(planning_floor(&q, &in, &hw, &q.memory[0], &e) == 0);
    q.memory[0] += 200000;
    char *a = plan_for(&q, &in, &hw, &busy, &e);
    CHECK_MSG(a && (busy.limits[0].threads < 2 || busy.limits[0].io == PLAN_IO_URING), "%s", e.msg);
    q.cores[0] = 1;
    char *b = plan_for(&q, &in, &hw, &spare, &e);
    CHECK_MSG(b && spare.limits[0].threads == 1 && spare.limits[0].io == PLAN_IO_PREAD, "%s", e.msg);
    free(a);
    free(b);
    plan_done(&busy);
    plan_done(&spare);
    inputs_done(&in);
    hw_free(&hw);
}

/* --- advice --- */

struct advised {
    int n, kind[4], followed, bad;
};

/* A request that was refused becomes one that a plan is found for when the value that follows `after` is taken; one
 * `beyond` that is refused again, where the value is said to be the nearest (beyond is not 0). */
static void follow(struct advised *a, struct request q, const struct inputs *in, const struct hw *hw,
                   const struct err *why, const char *after, void (*take)(struct request *q, double v),
                   int beyond)
{
    struct plan p;
    struct err e = { 0 };
    double v = number_after(why->msg, after);
    if (v <= 0)
        return;
    take(&q, v);
    char *text = plan_for(&q, in, hw, &p, &e);
    a->followed++;
    if (!text) {
        printf("# %s\n#   %s %g: %s\n", why->msg, after, v, e.msg);
        a->bad++;
        return;
    }
    free(text);
    plan_done(&p);
    take(&q, v + beyond);
    if (beyond && (text = plan_for(&q, in, hw, &p, &e))) {
        printf("# %s\n#   %s %g is not the nearest\n", why->msg, after, v);
        a->bad++;
        free(text);
        plan_done(&p);
    }
}

static void take_memory(struct request *q, double v)
{
    q->memory[0] = (uint64_t)v;
}

static void take_context(struct request *q, double v)
{
    q->context = (int)v;
}

static void take_batch(struct request *q, double v)
{
    q->memory[0] = (uint64_t)v;
    q->max_batch = 1;
}

static void take_speed(struct request *q, double v)
{
    q->min_tokens_per_s = v;
}

static void take_all_memory(struct request *q, double v)
{
    q->min_tokens_per_s = v;
    q->memory[0] = UINT64_C(1) << 40;
}

static void take_all_cores(struct request *q, double v)
{
    q->min_tokens_per_s = v;
    for (int k = 0; k < HW_MAX_CLASSES; k++)
        q->cores[k] = -1;
}

/* What the refusal says after `after`, or that it does not, is what its numbers say. */
static void same_number(struct advised *a, const struct err *why, const char *after, double v)
{
    double said = number_after(why->msg, after);
    if ((said > 0) == (v > 0) && (said <= 0 || fabs(said / v - 1) < 1e-5)) /* "%g" */
        return;
    printf("# %s\n#   %s in numbers: %.17g\n", why->msg, after, v);
    a->bad++;
}

/* One random request that contradicts itself, and everything that its refusal advises. */
static void refuse(struct advised *a, int i)
{
    sample_state = (uint64_t)i + 1000;
    int layers = 2 + i % 2, max_batch = 1 << (int)(3 * sample_uniform()), n_ff = 64 * (1 + (int)(3 * sample_uniform()));
    int blocks = i % 6 == 5 ? 2 : 1, kind = i % 4;
    struct inputs in = sample_inputs(layers, 128, n_ff, blocks, max_batch);
    struct inputs single = sample_inputs(layers, 128, n_ff, blocks, 1);
    struct hw hw = sample_hw(1 + i % 2, 2, 10000 + 90000 * sample_uniform());
    struct request q = request(0);
    struct plan p;
    struct err e = { 0 };
    struct diagnosis diagnosis = { 0 };
    uint64_t least;
    q.diagnosis = &diagnosis;
    q.form = i % 3 ? LAYOUT_SPLIT : LAYOUT_BUNDLE;
    q.max_batch = max_batch;
    if (planning_floor(&q, &in, &hw, &least, &e) < 0)
        abort();
    q.memory[0] = least + 20000 + (uint64_t)(200000 * sample_uniform());
    if (kind == 0)
        q.memory[0] = (uint64_t)((double)least * (0.3 + 0.69 * sample_uniform()));
    else if (kind == 1)
        q.context = 1000 + (int)(20000 * sample_uniform());
    else /* faster than this memory, or any, allows; with fewer cores than there are */
        q.min_tokens_per_s = 50 + 100 * sample_uniform();
    if (kind == 3)
        q.cores[0] = 1;
    char *text = NULL;
    do {
        if (text)
            plan_done(&p);
        free(text);
        q.min_tokens_per_s *= 1.5;
    } while ((text = plan_for(&q, &in, &hw, &p, &e)) && q.min_tokens_per_s > 0 && q.min_tokens_per_s < 1e9);
    if (text || e.code != ERR_INFEASIBLE) {
        printf("# instance %d is no contradiction: %s\n", i, text ? "there is a plan" : e.msg);
        a->bad++;
        if (text)
            plan_done(&p);
        free(text);
    } else {
        struct err why = e;
        char batch[32];
        int before = a->followed;
        a->n++;
        a->kind[kind]++;
        snprintf(batch, sizeof batch, "and --max-batch %d (", inputs_batch_sizes[in.n_batches - 1]);
        int slow = (diagnosis.core & SOLVE_SPEED) != 0;
        same_number(a, &why, "below the floor of ", slow ? 0 : (double)diagnosis.near_memory_bytes);
        same_number(a, &why, "; --memory ", slow ? (double)diagnosis.near_memory_bytes : 0);
        same_number(a, &why, "the largest --context is ", diagnosis.near_context);
        same_number(a, &why, batch, (double)diagnosis.near_memory_bytes_at_batch_1);
        same_number(a, &why, "the fastest plan makes ", diagnosis.near_speed);
        same_number(a, &why, "with everything resident it is ", diagnosis.near_speed_resident);
        same_number(a, &why, "with all cores of the device it would be ", diagnosis.near_speed_all_cores);
        if (!diagnosis.filled || diagnosis.memory_bytes != q.memory[0] || diagnosis.min_tokens_per_s < q.min_tokens_per_s ||
            diagnosis.min_tokens_per_s > q.min_tokens_per_s || diagnosis.max_batch != inputs_batch_sizes[in.n_batches - 1])
            a->bad++;
        q.diagnosis = NULL;
        follow(a, q, &in, &hw, &why, "below the floor of ", take_memory, -1);
        follow(a, q, &in, &hw, &why, "the largest --context is ", take_context, 1);
        follow(a, q, &single, &hw, &why, batch, take_batch, -1);
        follow(a, q, &in, &hw, &why, "the fastest plan makes ", take_speed, 0);
        follow(a, q, &in, &hw, &why, "; --memory ", take_memory, 0);
        follow(a, q, &in, &hw, &why, "with everything resident it is ", take_all_memory, 0);
        follow(a, q, &in, &hw, &why, "with all cores of the device it would be ", take_all_cores, 0);
        if (a->followed == before) {
            printf("# no advice: %s\n", why.msg);
            a->bad++;
        }
    }
    inputs_done(&in);
    inputs_done(&single);
    hw_free(&hw);
}

/* Random contradictions: each is refused, and each nearest value that the refusal names gives a plan. */
static void test_advice(void)
{
    struct advised a = { 0 };
    for (int i = 0; i < test_cases(16); i++)
        refuse(&a, i);
    printf("# %d contradictions (memory %d, context %d, speed %d, speed and cores %d), %d values followed\n", a.n,
           a.kind[0], a.kind[1], a.kind[2], a.kind[3], a.followed);
    CHECK(a.bad == 0);
    CHECK(a.n >= test_cases(16) * 5 / 6 && a.followed > a.n);
}

static void test_variants(void)
{
    struct err e = { 0 };
    struct plan p;
    char *text;
    struct request q = request(0);
    uint64_t floor_bytes;
    /* Experts: one prefix for all blocks of a layer, one cold segment. */
    struct inputs in = sample_inputs(3, 256, 128, 4, 2);
    struct hw hw = sample_hw(1, 2, 50000);
    q.max_batch = 2;
    CHECK(planning_floor(&q, &in, &hw, &floor_bytes, &e) == 0);
    q.memory[0] = floor_bytes + 900000;
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text && p.n_blocks == 4 && p.limits[0].account_bytes > floor_bytes + 600000, "%s", e.msg);
    free(text);
    plan_done(&p);
    inputs_done(&in);

    /* An activation without zeros: dense mode, no cold cache; not tiles, for Down has no quant blocks, but the form
     * of the longest reads; exact is refused. */
    in = sample_inputs(3, 256, 256, 1, 1);
    in.h.act = MODEL_ACT_SILU;
    q = request(floor_bytes + 500000);
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text && p.limits[0].mode == PLAN_DENSE && p.layout.form == LAYOUT_TWO_PHASE &&
              p.limits[0].batches[0].cold[0] == 0, "%s", e.msg);
    free(text);
    plan_done(&p);
    q.mode = PLAN_EXACT;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_USAGE && strstr(e.msg, "silu"));
    q.mode = PLAN_PREDICTED;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_UNSUPPORTED);

    /* Where Down has quant blocks, tiles: its types, the source's order; other modes do not have them. */
    in.layers[1].ffn_type[LAYOUT_DOWN] = QUANT_Q4_0;
    in.layers[2].ffn_type[LAYOUT_DOWN] = QUANT_Q6_K;
    q = request(floor_bytes + 500000);
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text && p.layout.form == LAYOUT_TILES && p.layout.cluster_neurons == 256 && p.layout.n_kinds == 3 && !strstr(text, "anew") &&
              hash_equal(p.order_hash, layout_order_hash(NULL, 3, 1, 256)) && p.layout.type[p.layout.kind[2]][LAYOUT_DOWN] == QUANT_Q6_K,
              "%s", e.msg);
    free(text);
    plan_done(&p);
    q.down_type = QUANT_Q8_0;
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text && p.layout.form != LAYOUT_TILES && strstr(text, "anew") && hash_equal(p.order_hash, in.order_hash), "%s",
              text ? text : e.msg);
    free(text);
    plan_done(&p);
    q.form = LAYOUT_TILES;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_USAGE && strstr(e.msg, "--down-type"));
    q.down_type = -1;
    q.cluster_neurons = 64;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && strstr(e.msg, "cluster_neurons 64"));
    q.cluster_neurons = 0;
    in.h.act = MODEL_ACT_RELU;
    CHECK(!plan_for(&q, &in, &hw, &p, &e) && e.code == ERR_USAGE && strstr(e.msg, "--mode dense"));
    q.mode = PLAN_DENSE;
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text && p.layout.form == LAYOUT_TILES, "%s", e.msg);
    free(text);
    plan_done(&p);
    in.layers[1].ffn_type[LAYOUT_DOWN] = in.layers[2].ffn_type[LAYOUT_DOWN] = QUANT_F16;

    /* The paper's equations, both forms, every policy, a layout that is given. */
    static const int forms[] = { LAYOUT_SPLIT, LAYOUT_BUNDLE, LAYOUT_TWO_PHASE };
    int bad = 0;
    for (int i = 0; i < 3 * 2 * 3; i += test_short() ? 4 : 1) {
        struct layout given;
        q = request(floor_bytes + 500000);
        q.form = forms[i % 3];
        q.cost = i / 3 % 2 ? PLAN_COST_PAPER : PLAN_COST_MEASURED;
        q.policy = i / 6 - 1;
        if (i % 5 == 4) {
            bad += inputs_layout(&in, (enum layout_form)q.form, 32, QUANT_Q8_0, &given, &e) < 0;
            q.for_pack = &given;
        }
        text = plan_for(&q, &in, &hw, &p, &e);
        if (!text || (int)p.layout.form != q.form || p.cost != q.cost ||
            (q.for_pack && p.layout.type[0][LAYOUT_DOWN] != QUANT_Q8_0)) {
            printf("# form %d cost %d policy %d: %s\n", q.form, (int)q.cost, q.policy, text ? "wrong" : e.msg);
            bad++;
        }
        free(text);
        if (text)
            plan_done(&p);
    }
    CHECK(bad == 0);

    /* No storage figures: only what is wholly resident. */
    hw.n_storage = 0;
    q = request(64 << 20);
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text && p.limits[0].batches[0].predicted.read_bytes == 0 && p.n_notes > 0 &&
              p.limits[0].io == PLAN_IO_AUTO, "%s", e.msg);
    free(text);
    plan_done(&p);
    inputs_done(&in);
    hw_free(&hw);
}

#define LAYERS 8

/* The time of a prompt that is one pass, of the limit as planned, but for one height. */
static double first_ns(const struct problem *pr, const struct plan *p, const struct plan_limit *l, int i, uint32_t height)
{
    struct plan_limit as = *l;
    struct plan_prompt q;
    struct cost_choice c;
    struct cost_residency residencies[LAYERS];
    struct err e = { 0 };
    planning_choice(p, l, NULL, &c);
    c.engine = p->engine;
    planning_residencies(p, &l->batches[0], residencies);
    as.prompt.engine_neurons[i] = height;
    return problem_prompt(pr, &c, residencies, &as, &q, &e) < 0 ? -1 : q.attention_ns[i] + q.ffn_ns[i] + q.wait_ns[i];
}

/* Heights of prompts: each is the best of all clusters, within what the planner's sixteenths leave; passes that a batch size holds have
 * its height. Where figures of many tokens or memory are missing there are none. */
static void test_prompt_heights(void)
{
    struct inputs in = sample_inputs(LAYERS, 256, 1024, 1, 4);
    struct hw hw = sample_hw(1, 2, 1e6), few = sample_hw(1, 2, 1e6), disk = sample_hw(1, 2, 50000);
    struct request q = request(64 << 20);
    struct plan p;
    struct err e = { 0 };
    struct notes notes = { 0 };
    q.max_batch = 4;
    q.form = LAYOUT_SPLIT;
    q.context = 256;
    sample_many_tokens(&hw), sample_many_tokens(&few), sample_many_tokens(&disk);
    sample_accel(&hw, 20000, 1e5, 200), sample_accel(&few, 20000, 1e5, 0), sample_accel(&disk, 20000, 1e5, 200);
    for (int i = 0; i < hw.n_storage; i++) { /* so fast that a cluster less in memory is a small matter */
        struct hw_storage *s = &hw.storage_points[i];
        s->bytes_per_s = (struct hw_dist){ 20 * s->bytes_per_s.p10, 20 * s->bytes_per_s.p50, 20 * s->bytes_per_s.p90 };
        s->cpu_ns_per_read = 100;
    }
    char *text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text && !strcmp(p.engine, "opencl:0") && p.limits[0].prompt.with_engine, "%s", e.msg);
    const struct plan_limit *l = &p.limits[0];
    struct problem pr;
    CHECK(planning_problem(&p, l, &in, &hw, &notes, &pr, &e) == 0 && l->prefill_chunk == 256);
    int some = 0, bad = 0;
    for (int i = 0; i < l->prompt.n; i++) {
        uint32_t own = l->prompt.engine_neurons[i];
        double ns = first_ns(&pr, &p, l, i, own);
        for (uint32_t h = 0; h <= 1024 && l->prompt.tokens[i] > 4; h += 64)
            bad += first_ns(&pr, &p, l, i, h) < ns || ns <= 0; /* clusters are sixteenths here */
        bad += l->prompt.tokens[i] <= 4 && own;
        some += own > 0 && own < 1024;
    }
    CHECK(bad == 0 && some > 0 && plan_pass_share(l, 1).neurons == 0 && plan_pass_share(l, 256).neurons > 0);
    problem_done(&pr);
    struct plan_limit *t = &p.limits[0];
    uint32_t was = t->prompt.engine_neurons[t->prompt.n - 1];
    t->prompt.engine_neurons[t->prompt.n - 1] = was > 64 ? was - 64 : was + 64;
    CHECK(check_plan(&p, "tampered", &in, &hw, &notes, &e) == ERR_FORMAT && strstr(e.msg, "limits[0].prompt.ffn_ns[8]"));
    t->prompt.engine_neurons[t->prompt.n - 1] = was;
    CHECK(check_plan(&p, "whole", &in, &few, &notes, &e) < 0); /* another device's figures */
    CHECK(check_plan(&p, "whole", &in, &hw, &notes, &e) == 0);
    uint64_t with = l->account_bytes;
    plan_done(&p);
    free(text);

    /* A byte less, and neurons give way to it, as prompts are worth it: decoding is a little slower, and the gap says so. */
    double whole_ns = 0, less_ns = 0;
    q.memory[0] = with - 1;
    for (int without = 1; without >= 0; without--) {
        q.prompt_weight = without ? 0 : 1;
        q.chunk = 256;
        text = plan_for(&q, &in, &hw, &p, &e);
        CHECK_MSG(text && p.limits[0].prompt.n, "%s", e.msg);
        double ns = 0;
        for (int b = 0; b < 3; b++)
            ns += (b ? 1 : 2) * 1e9 / p.limits[0].batches[b].predicted.tokens_per_s;
        *(without ? &whole_ns : &less_ns) = ns;
        CHECK(p.limits[0].prompt.with_engine != without && (p.engine[0] == 0) == without);
        CHECK(text && (strstr(text, "do not fit beside the plan") != NULL) == without);
        CHECK(p.limits[0].account_bytes <= with - 1 && plan_pass_share(&p.limits[0], 4).neurons == 0);
        CHECK(without || (less_ns > whole_ns && less_ns < 1.03 * whole_ns && p.limits[0].gap > 1 - whole_ns / less_ns - 1e-9));
        plan_done(&p);
        free(text);
    }
    /* Where they are read from a slow disk prompts are not worth it. */
    q.chunk = 0;
    text = plan_for(&q, &in, &disk, &p, &e);
    CHECK_MSG(text && !p.engine[0] && strstr(text, "do not fit beside the plan"), "%s", e.msg);
    plan_done(&p);
    free(text);
    q.memory[0] = with;
    text = plan_for(&q, &in, &hw, &p, &e);
    CHECK_MSG(text && p.limits[0].account_bytes == with, "%s", e.msg);
    plan_done(&p);
    free(text);
    text = plan_for(&q, &in, &few, &p, &e);
    CHECK_MSG(text && !p.engine[0] && p.limits[0].prompt.n, "%s", e.msg);
    plan_done(&p);
    free(text);
    inputs_done(&in);
    hw_free(&hw), hw_free(&few), hw_free(&disk);
}

int main(void)
{
    heap_keep();
    test_prompt_heights();
    test_exhaustive();
    test_whole();
    test_chunk();
    test_infeasible();
    test_advice();
    test_sustained();
    test_lanes();
    test_variants();
    return test_done();
}
