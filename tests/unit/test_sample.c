/* Sampling against its definition: filters on small cases by hand, frequencies against softmax, the seed. */
#include "runtime/session/sample.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 8
static uint64_t mem[4096];
static const float logits[N] = { 1.0f, 3.0f, -2.0f, 2.0f, 3.0f, 0.0f, 2.5f, -1.0f };

static struct sample_params neutral(void)
{
    return (struct sample_params){ .temp = 1, .top_p = 1, .repeat_penalty = 1, .seed = 42 };
}

/* Which ids ever come, as a bit set, and how often each. */
static unsigned seen(const struct sample_params *p, const int32_t *history, int n_history, int *count)
{
    struct sampler s;
    unsigned bits = 0;
    int local[N] = { 0 };
    sampler_init(&s, p);
    for (int i = 0; i < 40000; i++) {
        int32_t id = sampler_pick(&s, logits, N, history, n_history, mem);
        bits |= 1u << id;
        local[id]++;
    }
    if (count)
        memcpy(count, local, sizeof local);
    return bits;
}

static void test_filters(void)
{
    struct sample_params p = neutral();
    CHECK(seen(&p, NULL, 0, NULL) == 0xff);
    p.top_k = 1;
    CHECK(seen(&p, NULL, 0, NULL) == 1u << 1); /* equal logits: the lower id */
    p.top_k = 3;
    CHECK(seen(&p, NULL, 0, NULL) == (1u << 1 | 1u << 4 | 1u << 6));
    p = neutral();
    p.top_p = 0.5; /* 1 and 4 hold 0.295 each of the whole */
    CHECK(seen(&p, NULL, 0, NULL) == (1u << 1 | 1u << 4));
    p.top_p = 1e-9;
    CHECK(seen(&p, NULL, 0, NULL) == 1u << 1);
    p = neutral();
    p.min_p = 0.35; /* exp(-1) = 0.368 keeps 3 (2.0), drops 0 (exp(-2)) */
    CHECK(seen(&p, NULL, 0, NULL) == (1u << 1 | 1u << 4 | 1u << 6 | 1u << 3));
    p.temp = 100; /* filters come before temperature */
    CHECK(seen(&p, NULL, 0, NULL) == (1u << 1 | 1u << 4 | 1u << 6 | 1u << 3));
    p = neutral();
    p.temp = 0;
    CHECK(seen(&p, NULL, 0, NULL) == 1u << 1);
}

static void test_frequencies(double temp)
{
    struct sample_params p = neutral();
    int count[N];
    double sum = 0, worst = 0;
    p.temp = temp;
    seen(&p, NULL, 0, count);
    for (int i = 0; i < N; i++)
        sum += exp((double)logits[i] / temp);
    for (int i = 0; i < N; i++)
        worst = fmax(worst, fabs(count[i] / 40000.0 - exp((double)logits[i] / temp) / sum));
    CHECK_MSG(worst < 0.012, "temperature %g: %g", temp, worst);
}

static void test_penalty(void)
{
    struct sample_params p = neutral();
    const int32_t history[] = { 4, 4, 1, 2 };
    p.temp = 0;
    p.repeat_penalty = 1.4; /* 3.0 / 1.4 < 2.5, and only once although 4 comes twice */
    p.repeat_last_n = -1;
    CHECK(seen(&p, history, 4, NULL) == 1u << 6);
    p.repeat_last_n = 2; /* 4 is out of the window */
    CHECK(seen(&p, history, 4, NULL) == 1u << 4);
    p.repeat_last_n = 0;
    CHECK(seen(&p, history, 4, NULL) == 1u << 1);
    p.repeat_last_n = 100;
    p.repeat_penalty = 1.1; /* 3.0 / 1.1 = 2.73 > 2.5; squared would be 2.48 */
    CHECK(seen(&p, history, 4, NULL) == 1u << 1);
    const float negative[2] = { -1.0f, -1.2f };
    const int32_t zero[] = { 0 };
    struct sampler s;
    p.repeat_penalty = 1.5;
    sampler_init(&s, &p);
    CHECK(sampler_pick(&s, negative, 2, zero, 1, mem) == 1);
}

static void test_seed(void)
{
    struct sample_params p = neutral();
    struct sampler a, b, c;
    int same = 1, differ = 0;
    sampler_init(&a, &p);
    sampler_init(&b, &p);
    p.seed = 43;
    sampler_init(&c, &p);
    for (int i = 0; i < 1000; i++) {
        int32_t x = sampler_pick(&a, logits, N, NULL, 0, mem);
        same &= x == sampler_pick(&b, logits, N, NULL, 0, mem);
        differ |= x != sampler_pick(&c, logits, N, NULL, 0, mem);
    }
    CHECK(same && differ);
    const float bad[3] = { NAN, 1.0f, NAN };
    p.temp = 0;
    sampler_init(&a, &p);
    CHECK(sampler_pick(&a, bad, 3, NULL, 0, mem) == 1);
}

/* A large vocabulary: the heap gives the same order as looking for the largest again and again. */
static void test_large(void)
{
    static float big[2000];
    struct sample_params p = neutral();
    struct sampler s;
    uint32_t x = 9;
    for (int i = 0; i < 2000; i++) {
        x = x * 1664525u + 1013904223u;
        big[i] = (float)(x >> 20) / 512.0f; /* many equal */
    }
    int ok = 1;
    for (int k = 1; k < 60; k += 7) {
        int rank_ok = 0;
        p.top_k = k;
        p.temp = 50;
        sampler_init(&s, &p);
        for (int i = 0; i < 200; i++) {
            int32_t id = sampler_pick(&s, big, 2000, NULL, 0, mem);
            int before = 0;
            for (int j = 0; j < 2000; j++)
                before += big[j] > big[id] || (big[j] == big[id] && j < id);
            ok &= before < k;
            rank_ok |= before == k - 1;
        }
        ok &= rank_ok;
    }
    CHECK(ok);
}

struct ranked {
    double logit;
    int id;
};

static int best_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : x->id - y->id;
}

/* By the definition: all sorted, cut by top-k, top-p and min-p, and drawn from. */
static int reference(struct sampler *s, const float *l, int n)
{
    static struct ranked c[2000];
    const struct sample_params *p = &s->p;
    for (int i = 0; i < n; i++)
        c[i] = (struct ranked){ (double)l[i], i };
    qsort(c, (size_t)n, sizeof *c, best_first);
    n = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    double all = 0, cum = 0, sum = 0;
    int keep = 0;
    for (int i = 0; i < n; i++)
        all += exp(c[i].logit - c[0].logit);
    for (; keep < n && (keep == 0 || ((p->top_p >= 1 || cum < p->top_p) && exp(c[keep].logit - c[0].logit) >= p->min_p)); keep++)
        cum += exp(c[keep].logit - c[0].logit) / all;
    for (int i = 0; i < keep; i++)
        sum += exp((c[i].logit - c[0].logit) / p->temp);
    double at = sampler_uniform(s) * sum;
    for (int i = 0; i < keep; i++)
        if ((at -= exp((c[i].logit - c[0].logit) / p->temp)) < 0)
            return c[i].id;
    return c[keep - 1].id;
}

static void test_definition(void)
{
    static float l[2000];
    static const int top_k[] = { 0, 1, 40, 1999, 3000 };
    static const double top_p[] = { 1, 0.95, 0.3, 0 }, min_p[] = { 0, 0.05, 1 }, temp[] = { 0.3, 1, 8 };
    uint32_t x = 77;
    int same = 0;
    for (int i = 0; i < 2000; i++) {
        x = x * 1664525u + 1013904223u;
        l[i] = (float)(x >> 22) / 64.0f; /* 1024 values: some equal */
    }
    for (int i = 0; i < 5 * 4 * 3 * 3; i++) {
        struct sample_params p = neutral();
        p.top_k = top_k[i % 5];
        p.top_p = top_p[i / 5 % 4];
        p.min_p = min_p[i / 20 % 3];
        p.temp = temp[i / 60];
        struct sampler a, b;
        sampler_init(&a, &p);
        sampler_init(&b, &p);
        for (int n = 0; n < 40; n++)
            same += sampler_pick(&a, l, 2000, NULL, 0, mem) == reference(&b, l, 2000);
    }
    CHECK_MSG(same == 180 * 40, "%d of %d draws are the definition's", same, 180 * 40);
}

/* Bias, repeat penalty and OpenAI's penalties, in this order, by their definitions; then draws are those of such logits. */
static void test_penalties(void)
{
    enum { V = 200, HISTORY = 60 };
    float l[V], want[V];
    int32_t history[HISTORY];
    struct sample_bias bias[30];
    uint32_t x = 5;
    int same = 0, all = 0, moved = 0;
    for (int round = 0; round < 300; round++) {
        struct sample_params p = neutral();
        p.seed = (uint64_t)round;
        p.temp = round % 3 ? 0.8 : 0;
        p.top_k = round % 2 ? 10 : 0;
        p.repeat_penalty = round % 5 ? 1 : 1.3;
        p.repeat_last_n = round % 10 ? -1 : 20;
        p.frequency_penalty = (double)(round % 9) / 2 - 2;
        p.presence_penalty = (double)(round % 7) / 3 - 1;
        p.n_prompt = round % 4 ? 25 : 100;
        p.n_bias = round % 6 * 5;
        p.bias = bias;
        for (int i = 0; i < V; i++)
            want[i] = l[i] = (float)((x = x * 1664525u + 1013904223u) >> 20) / 256.0f - 8;
        for (int i = 0; i < HISTORY; i++)
            history[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 24) % 24 * 8 - (i % 20 == 0) * 1000; /* some are none */
        for (int i = 0; i < 30; i++)
            bias[i] = (struct sample_bias){ i * 7, (float)((x = x * 1664525u + 1013904223u) >> 25) - 64 };
        for (int i = 0; i < p.n_bias; i++)
            if (bias[i].id < V)
                want[bias[i].id] += bias[i].bias;
        for (int id = 0; id < V; id++) {
            int recent = 0, made = 0;
            for (int i = 0; i < HISTORY; i++) {
                recent += history[i] == id && (p.repeat_last_n < 0 || i >= HISTORY - p.repeat_last_n);
                made += history[i] == id && i >= p.n_prompt;
            }
            if (recent && p.repeat_penalty > 1)
                want[id] = want[id] > 0 ? want[id] / (float)p.repeat_penalty : want[id] * (float)p.repeat_penalty;
            if (made)
                want[id] = (float)((double)want[id] - made * p.frequency_penalty - p.presence_penalty);
            moved += made > 1;
        }
        struct sampler a, b;
        struct sample_params plain = p;
        plain.repeat_penalty = 1;
        plain.frequency_penalty = plain.presence_penalty = 0;
        plain.n_bias = 0;
        sampler_init(&a, &p);
        sampler_init(&b, &plain);
        for (int i = 0; i < 10; i++, all++)
            same += sampler_pick(&a, l, V, history, HISTORY, mem) == sampler_pick(&b, want, V, NULL, 0, mem);
    }
    CHECK_MSG(same == all && moved > 500, "%d of %d draws, %d tokens several times", same, all, moved);
}

/* No logit is a number, or one is infinite: some token, whatever is cut. */
static void test_not_finite(void)
{
    struct sample_params p = neutral();
    p.min_p = 0.5;
    for (int i = 0; i < 4; i++) {
        const float none[3] = { NAN, NAN, NAN }, one[3] = { 0, INFINITY, 0 };
        struct sampler s;
        p.top_p = i & 1 ? 0.5 : 1;
        p.top_k = i & 2;
        sampler_init(&s, &p);
        int32_t a = sampler_pick(&s, none, 3, NULL, 0, mem), b = sampler_pick(&s, one, 3, NULL, 0, mem);
        CHECK(a >= 0 && a < 3 && b >= 0 && b < 3);
    }
}

/* Of tokens that a mask leaves, and no others, whatever their logits are. */
static void test_allowed(void)
{
    static const float worst[N] = { 1.0f, 3.0f, -INFINITY, 2.0f, 3.0f, 0.0f, NAN, -1.0f };
    struct sample_params p = neutral();
    for (int k = 0; k < 6; k++) {
        const uint64_t allowed = 1u << 2 | 1u << 6;
        struct sampler s;
        int other = 0;
        p.temp = k % 2 ? 0 : 1;
        p.top_k = k / 2 * 3; /* 0, 3, 6: more than there are */
        sampler_init(&s, &p);
        s.allowed = &allowed;
        for (int i = 0; i < 200; i++)
            other |= ~allowed >> sampler_pick(&s, i % 2 ? worst : logits, N, NULL, 0, mem) & 1;
        CHECK(!other);
    }
}

int main(void)
{
    test_allowed();
    test_filters();
    test_definition();
    test_not_finite();
    test_frequencies(1);
    test_frequencies(0.5);
    test_frequencies(3);
    test_penalty();
    test_penalties();
    test_seed();
    test_large();
    return test_done();
}
