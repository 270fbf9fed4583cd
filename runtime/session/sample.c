/* The best k of all candidates are kept at the beginning of one array, as a heap with the worst of them on top: most others
 * are turned away by one comparison, so the usual top-k 40 costs little more than a look at each. Popping the worst
 * again and again sorts them, best first. */
#include "runtime/session/sample.h"

#include "common/base/splitmix.h"

#include <math.h>

struct candidate {
    float logit;
    int32_t id;
};

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t next(struct sampler *s)
{
    uint64_t *x = s->state, out = rotl(x[1] * 5, 7) * 9, t = x[1] << 17;
    x[2] ^= x[0];
    x[3] ^= x[1];
    x[1] ^= x[2];
    x[0] ^= x[3];
    x[2] ^= t;
    x[3] = rotl(x[3], 45);
    return out;
}

void sampler_init(struct sampler *s, const struct sample_params *p)
{
    uint64_t z = p->seed;
    s->p = *p;
    for (int i = 0; i < 4; i++)
        s->state[i] = splitmix_next(&z);
}

double sampler_uniform(struct sampler *s)
{
    return (double)(next(s) >> 11) * 0x1p-53;
}

static int better(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift(struct candidate *c, int n, int i)
{
    struct candidate v = c[i];
    for (int k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && better(c[k], c[k + 1]))
            k++;
        if (!better(v, c[k]))
            break;
        c[i] = c[k];
    }
    c[i] = v;
}

/* The k best of n to c[0..k), best first. */
static void sort_best(struct candidate *c, int n, int k)
{
    for (int i = k / 2; i-- > 0;)
        sift(c, k, i);
    for (int i = k; i < n; i++)
        if (better(c[i], c[0])) {
            c[0] = c[i];
            sift(c, k, 0);
        }
    for (int left = k; left > 1; left--) {
        struct candidate t = c[0];
        c[0] = c[left - 1];
        c[left - 1] = t;
        sift(c, left - 1, 0);
    }
}

static void penalise(const struct sampler *s, struct candidate *c, int n_vocab, const float *logits,
                     const int32_t *history, int n)
{
    int window = s->p.repeat_last_n < 0 || s->p.repeat_last_n > n ? n : s->p.repeat_last_n;
    float by = (float)s->p.repeat_penalty;
    if (by == 1.0f)
        return;
    for (int i = n - window; i < n; i++) {
        int32_t id = history[i];
        if (id >= 0 && id < n_vocab && c[id].logit == logits[id]) /* once per token */
            c[id].logit = logits[id] > 0 ? logits[id] / by : logits[id] * by;
    }
}

/* Draw from n sorted candidates. */
static int32_t draw(struct sampler *s, const struct candidate *best, int n)
{
    double sum = 0, at, top = (double)best[0].logit, inv = 1.0 / s->p.temp;
    for (int i = 0; i < n; i++)
        sum += exp(((double)best[i].logit - top) * inv);
    at = sampler_uniform(s) * sum;
    for (int i = 0; i < n; i++) {
        at -= exp(((double)best[i].logit - top) * inv);
        if (at < 0)
            return best[i].id;
    }
    return best[n - 1].id;
}

/* How many of the n sorted candidates top-p and min-p keep, of those that top-k left; at least one. */
static int filter(const struct sampler *s, const struct candidate *best, int n)
{
    double top = (double)best[0].logit, sum = 0, cum = 0;
    int keep = n;
    for (int i = 0; i < n; i++)
        sum += exp((double)best[i].logit - top);
    for (int i = 0; i < keep && s->p.top_p < 1; i++) {
        cum += exp((double)best[i].logit - top) / sum;
        if (cum >= s->p.top_p)
            keep = i + 1;
    }
    for (int i = 1; i < keep && s->p.min_p > 0; i++)
        if (exp((double)best[i].logit - top) < s->p.min_p)
            keep = i;
    return keep;
}

int32_t sampler_pick(struct sampler *s, const float *logits, int n_vocab, const int32_t *history, int n_history,
                     void *mem)
{
    struct candidate *c = mem;
    for (int i = 0; i < n_vocab; i++)
        c[i] = (struct candidate){ isnan(logits[i]) ? -INFINITY : logits[i], i };
    penalise(s, c, n_vocab, logits, history, n_history);
    if (s->p.temp <= 0) {
        int best = 0;
        for (int i = 1; i < n_vocab; i++)
            if (better(c[i], c[best]))
                best = i;
        return c[best].id;
    }
    int k = s->p.top_k > 0 && s->p.top_k < n_vocab ? s->p.top_k : n_vocab;
    sort_best(c, n_vocab, k);
    return draw(s, c, filter(s, c, k));
}
