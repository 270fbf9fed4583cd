/* The paper's problem in Z3 against every choice of random small instances; which of Eq. 3, 4 and 5 contradict each other; lines
 * of mu(m) below all that layers can reach together; the text of numbers. */
#include "planner/heap.h"
#include "planner/solve/paper_z3.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 4

static uint64_t rng_state;
static int64_t rng(int64_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(rng_state >> 16) % n;
}

static struct solve_curve curves[2][SOLVE_MAX_BATCHES][LAYERS];

static void make_curve(struct solve_curve *c)
{
    struct solve_point pt[8];
    struct err e;
    int n = 1 + (int)rng(8);
    int64_t bytes = rng(50), volume = 16 * (1000000 + rng(9000000));
    for (int i = 0; i < n; i++) {
        pt[i] = (struct solve_point){ bytes, volume, (uint32_t)i, 0 };
        bytes += 1 + rng(20000);
        volume -= rng(volume / (1 + rng(4)) + 1);
    }
    if (solve_curve_init(c, pt, n, &e) < 0)
        abort();
}

static void make(struct paper *p, uint64_t seed)
{
    static const char *const names[] = { "big", "cpu", "other class" };
    rng_state = seed * 977 + 5;
    *p = (struct paper){ .n_classes = 1 + (int)rng(3), .n_queues = 1 + (int)rng(4), .n_variants = 1 + (int)rng(2),
                         .n_batches = 1 + (int)rng(2), .n_layers = 1 + (int)rng(LAYERS), .batch = { 1, 2 },
                         .weight = { 8, 4 }, .mem_bytes_per_s = rng(2) * 7000000001 };
    int cores[3] = { 0 };
    p->cores = calloc(64, sizeof *p->cores);
    p->queue = calloc((size_t)p->n_queues, sizeof *p->queue);
    p->variant = calloc((size_t)p->n_variants, sizeof *p->variant);
    for (int k = 0; k < p->n_classes; k++) {
        cores[k] = 1 + (int)rng(3);
        p->class[k] = (struct paper_class){ .most = (int)rng(cores[k] + 1), .flops_per_s = 1000000000 + rng(20000000000) };
        p->class[0].most += p->class[0].most == 0;
        snprintf(p->class[k].name, sizeof p->class[k].name, "%s", names[k]);
    }
    for (int i = 1; i < (cores[0] + 1) * (cores[1] + 1) * (cores[2] + 1); i++) {
        struct paper_cores *c = &p->cores[p->n_cores++];
        c->n[0] = i % (cores[0] + 1);
        c->n[1] = i / (cores[0] + 1) % (cores[1] + 1);
        c->n[2] = i / (cores[0] + 1) / (cores[1] + 1);
        c->threads = c->n[0] + c->n[1] + c->n[2];
    }
    for (int q = 0; q < p->n_queues; q++)
        p->queue[q] = (struct paper_queue){ "pread", 1 << q, 1 + (int)rng(9), 10000000 + rng(2000000000), rng(5000) };
    p->queue[0].most_threads = 9;
    int64_t room = 0;
    for (int w = 0; w < p->n_variants; w++) {
        p->variant[w].bytes = rng(10000);
        p->variant[w].thread_bytes = rng(300);
        snprintf(p->variant[w].name, sizeof p->variant[w].name, "exact mode");
        for (int b = 0; b < p->n_batches; b++) {
            struct paper_work *x = &p->variant[w].work[b];
            int64_t f = 16 * (1000000 + rng(100000000)), bytes = 16 * (1 + rng(9000000));
            *x = (struct paper_work){ .f_attn = f / 3 + rng(16), .f_pred = f / 9, .f_ffn = f, .f_active = f / 7, .w_attn = bytes,
                                      .w_pred = bytes / 5, .w_ffn = bytes * 4, .w_active = rng(9) ? bytes / 3 : 0, .layer = curves[w][b] };
            for (int l = 0; l < p->n_layers; l++) {
                make_curve(&curves[w][b][l]);
                room += curves[w][b][l].point[curves[w][b][l].n - 1].bytes;
            }
        }
    }
    p->memory = 5000 + rng(2 * room + 10000) / (p->n_variants * p->n_batches);
}

static void unmake(struct paper *p)
{
    for (int w = 0; w < p->n_variants; w++)
        for (int b = 0; b < p->n_batches; b++)
            for (int l = 0; l < p->n_layers; l++)
                solve_curve_done(&curves[w][b][l]);
    paper_done(p);
}

/* V_io of `bytes` (64-byte units) by duality: the best of all slopes between two points of a layer. -1: does not fit. */
static long double volume(const struct paper *p, const struct paper_work *w, int64_t bytes)
{
    long double best = 0;
    int64_t least = 0;
    for (int l = 0; l < p->n_layers; l++) {
        least += w->layer[l].point[0].bytes;
        best += (long double)w->layer[l].point[w->layer[l].n - 1].ticks;
    }
    if (bytes < least)
        return -1;
    for (int l = 0; l < p->n_layers; l++)
        for (int i = 0; i < w->layer[l].n; i++)
            for (int j = 0; j < i; j++) {
                const struct solve_point *a = &w->layer[l].point[j], *c = &w->layer[l].point[i];
                long double slope = (long double)(a->ticks - c->ticks) / (long double)(c->bytes - a->bytes), sum = 0;
                for (int m = 0; m < p->n_layers; m++) {
                    long double low = INFINITY;
                    for (int k = 0; k < w->layer[m].n; k++)
                        low = fminl(low, (long double)w->layer[m].point[k].ticks + slope * (long double)w->layer[m].point[k].bytes);
                    sum += low;
                }
                best = fmaxl(best, sum - slope * (long double)bytes);
            }
    return best / PAPER_BYTE;
}

/* Ticks of a choice; INFINITY: not one that the limits allow. */
static long double ticks_of(const struct paper *p, const struct paper_choice *c)
{
    const struct paper_cores *n = &p->cores[c->cores];
    const struct paper_queue *q = &p->queue[c->queue];
    long double f = 0, sum = 0;
    for (int k = 0; k < p->n_classes; k++) {
        f += (long double)n->n[k] * (long double)p->class[k].flops_per_s;
        if (n->n[k] > p->class[k].most)
            return INFINITY;
    }
    if (n->threads > q->most_threads)
        return INFINITY;
    for (int b = 0; b < p->n_batches; b++) {
        const struct paper_work *w = &p->variant[c->variant].work[b];
        long double v = volume(p, w, paper_ffn_bytes(p, c));
        if (v < 0)
            return INFINITY;
        long double dense = 1e9L * (long double)(w->f_attn + w->f_pred) / PAPER_BYTE / f;
        long double ffn = 1e9L * (long double)w->f_active / PAPER_BYTE / f;
        long double t = dense + fmaxl(ffn, 1e9L * v / (long double)q->bytes_per_s);
        if (b == 0 && p->min_tokens_per_s > 0 && t > 1e9L / p->min_tokens_per_s)
            return INFINITY;
        sum += (long double)p->weight[b] * t;
    }
    return sum * SOLVE_TICKS_PER_NS;
}

static long double exhaustive(const struct paper *p)
{
    long double best = INFINITY;
    for (int i = 0; i < p->n_cores; i++)
        for (int q = 0; q < p->n_queues; q++)
            for (int w = 0; w < p->n_variants; w++)
                best = fminl(best, ticks_of(p, &(struct paper_choice){ i, q, w, 0 }));
    return best;
}

/* To a tick, and to what a thousandth of a byte for each layer takes to read through the slowest queue. */
static int equal(const struct paper *p, int64_t ticks, long double exact)
{
    int64_t slowest = INT64_MAX;
    for (int q = 0; q < p->n_queues; q++)
        slowest = p->queue[q].bytes_per_s < slowest ? p->queue[q].bytes_per_s : slowest;
    long double byte = 1e9L * (8 + 4) * SOLVE_TICKS_PER_NS / (long double)slowest;
    return fabsl((long double)ticks + 0.5L - exact) <= 1 + 0.001L * p->n_layers * byte;
}

/* Is the core what exhaustive search says, with each limit of it and without? */
static int core_holds(const struct paper *p, unsigned core)
{
    for (int i = 2; i <= 5; i++) { /* 2: all of the core; else all but one */
        struct paper x = *p;
        if (i > 2 && !(core & PAPER_EQ(i)))
            continue;
        for (int k = 0; k < p->n_classes; k++)
            x.class[k].most = (core & PAPER_EQ(3)) && i != 3 ? p->class[k].most : 99;
        x.memory = (core & PAPER_EQ(4)) && i != 4 ? p->memory : INT64_MAX / 1024;
        x.min_tokens_per_s = (core & PAPER_EQ(5)) && i != 5 ? p->min_tokens_per_s : 0;
        if ((exhaustive(&x) < INFINITY) != (i > 2))
            return 0;
    }
    return core != 0;
}

static void test_random(void)
{
    int solved = 0, refused = 0, cores = 0, wrong = 0;
    for (uint64_t seed = 0; seed < 220; seed++) {
        struct paper p;
        struct paper_answer a;
        struct err e = { 0 };
        make(&p, seed);
        long double free_best = exhaustive(&p);
        if (rng(3) == 0 && p.n_batches == 1 && free_best < INFINITY) /* near what can be had, on either side */
            p.min_tokens_per_s = (double)(1e9L * 128 / free_best * (rng(2) ? 1.2L : 0.8L));
        long double best = exhaustive(&p);
        if (paper_z3(&p, 0, 1, &a, &e) < 0) {
            printf("# seed %llu: %s\n", (unsigned long long)seed, e.msg);
            wrong++;
        } else if (best < INFINITY) {
            solved++;
            int ok = a.finished && a.feasible && equal(&p, a.best.ticks, best) && equal(&p, a.best.ticks, ticks_of(&p, &a.best));
            if (!ok)
                printf("# seed %llu: Z3 %lld, exhaustive %.2Lf\n", (unsigned long long)seed, (long long)a.best.ticks, best);
            wrong += !ok;
        } else {
            refused++;
            cores += a.finished && !a.feasible && core_holds(&p, a.core);
        }
        unmake(&p);
    }
    printf("# %d solved, %d refused\n", solved, refused);
    CHECK(wrong == 0);
    CHECK(solved >= 150 && refused >= 10);
    CHECK(cores == refused);
}

/* Every line lies on or below V_io at any memory, and one of them touches it where it was added. */
static void test_lines(void)
{
    int below = 1, touches = 1, sorted = 1;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct paper p;
        struct err e;
        make(&p, 1000 + seed);
        struct paper_work *w = &p.variant[0].work[0];
        int64_t least = 0;
        for (int l = 0; l < p.n_layers; l++)
            least += w->layer[l].point[0].bytes;
        for (int n = 0; n < 60; n++) {
            int64_t bytes = least + rng(100000);
            int room = w->n_pieces < PAPER_MAX_PIECES, added = paper_add_piece(&p, w, bytes, &e);
            long double v = volume(&p, w, bytes), high = -INFINITY;
            for (int i = 0; i < w->n_pieces; i++) {
                high = fmaxl(high, (long double)w->piece[i].at / PAPER_AT -
                                       (long double)w->piece[i].slope / PAPER_SLOPE * (long double)bytes * 64);
                sorted &= i == 0 || w->piece[i].slope < w->piece[i - 1].slope;
            }
            below &= added >= 0 && high <= v + 0.001L;
            touches &= !room || high >= v - 0.01L;
        }
        unmake(&p);
    }
    CHECK(below);
    CHECK(touches);
    CHECK(sorted);
}

/* Z3 that stops says so, and the same question has the same answer. */
static void test_limits(void)
{
    struct paper p;
    struct paper_answer a = { 0 }, b = { 0 };
    struct err e;
    make(&p, 3);
    CHECK(paper_z3(&p, 1, 1, &a, &e) == 0 && !a.finished && !a.feasible && a.core == 0);
    CHECK(paper_z3(&p, 0, 1, &a, &e) == 0 && a.finished && paper_z3(&p, 0, 1, &b, &e) == 0 && a.best.ticks == b.best.ticks);
    unmake(&p);
}

static void test_text(void)
{
    struct paper p;
    struct paper_answer a;
    struct err e;
    char *text = NULL, name[32];
    size_t len = 0;
    make(&p, 0);
    while (p.n_batches > 1 || p.n_classes < 3 || exhaustive(&p) >= INFINITY) {
        uint64_t seed = (uint64_t)rng(1 << 20);
        unmake(&p);
        make(&p, seed);
    }
    p.mem_bytes_per_s = 5;
    p.min_tokens_per_s = 1e-6;
    p.variant[0].work[0].f_attn = 16 * 12345 + 1; /* a sixteenth is 0.0625 */
    FILE *f = open_memstream(&text, &len);
    if (!f || paper_z3(&p, 0, 1, &a, &e) < 0)
        abort();
    paper_text(&p, 0, 0, f);
    paper_text_claims(&p, &a.best, f);
    fclose(f);
    for (int i = 1; i <= 11; i++) {
        snprintf(name, sizeof name, ":named |Eq. %d|", i);
        char *at = strstr(text, name);
        CHECK(at && !strstr(at + 1, name));
    }
    CHECK(strstr(text, " () Real 12345.0625)") && strstr(text, "n_big") && strstr(text, "n_3") && !strstr(text, "other class\n"));
    CHECK(strstr(text, "; unsat") && strstr(text, "; sat"));
    free(text);
    unmake(&p);
}

int main(void)
{
    heap_keep();
    test_random();
    test_lines();
    test_limits();
    test_text();
    return test_done();
}
