/* The k best candidates are selected by a heap with the worst of them on top: most others are turned away by one comparison. Then they
 * make a heap with the best on top, which is taken apart only as far as a draw needs it: with all of a large vocabulary allowed
 * (top-k 0), sorting takes longer than the model. */
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
    s->allowed = NULL;
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

static int worse(struct candidate a, struct candidate b)
{
    return better(b, a);
}

/* before(a, b): a belongs above b. */
static void sift(struct candidate *c, int n, int i, int (*before)(struct candidate, struct candidate))
{
    struct candidate v = c[i];
    for (int k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && before(c[k + 1], c[k]))
            k++;
        if (!before(c[k], v))
            break;
        c[i] = c[k];
    }
    c[i] = v;
}

static void make_heap(struct candidate *c, int n, int (*before)(struct candidate, struct candidate))
{
    for (int i = n / 2; i-- > 0;)
        sift(c, n, i, before);
}

/* The k best of n to c[0..k), in any order. */
static void select_best(struct candidate *c, int n, int k)
{
    if (k == n)
        return;
    make_heap(c, k, worse);
    for (int i = k; i < n; i++)
        if (better(c[i], c[0])) {
            c[0] = c[i];
            sift(c, k, 0, worse);
        }
}

/* Candidates, the i-th best of which is asked for: those before `taken` are at the end, the best last, and the others are a heap. */
struct ranked {
    struct candidate *c;
    int n, taken;
};

static struct candidate ranked_at(struct ranked *r, int i)
{
    for (; r->taken <= i; r->taken++) {
        int last = r->n - r->taken - 1;
        struct candidate t = r->c[0];
        r->c[0] = r->c[last];
        r->c[last] = t;
        sift(r->c, last, 0, better);
    }
    return r->c[r->n - 1 - i];
}

/* Counts the tokens of a history, where their ids are: a token that is there n times has -n for its id, until it is restored. */
static void count(struct candidate *c, int n_vocab, const int32_t *history, int n)
{
    for (int i = 0; i < n; i++)
        if (history[i] >= 0 && history[i] < n_vocab)
            c[history[i]].id = c[history[i]].id < 0 ? c[history[i]].id - 1 : -1;
}

/* The first time a token of a counted history is looked for: how often it is there; later 0. */
static int counted(struct candidate *c, int n_vocab, int32_t id)
{
    int n = id >= 0 && id < n_vocab && c[id].id < 0 ? -c[id].id : 0;
    if (n)
        c[id].id = id;
    return n;
}

static void penalise(const struct sample_params *p, struct candidate *c, int n_vocab, const int32_t *history, int n)
{
    int window = p->repeat_last_n < 0 || p->repeat_last_n > n ? n : p->repeat_last_n, k;
    float by = (float)p->repeat_penalty;
    if (by != 1.0f) {
        count(c, n_vocab, history + n - window, window);
        for (int i = n - window; i < n; i++)
            if (counted(c, n_vocab, history[i]))
                c[history[i]].logit = c[history[i]].logit > 0 ? c[history[i]].logit / by : c[history[i]].logit * by;
    }
    if (!(fabs(p->frequency_penalty) > 0) && !(fabs(p->presence_penalty) > 0))
        return;
    int first = p->n_prompt < n ? p->n_prompt : n;
    count(c, n_vocab, history + first, n - first);
    for (int i = first; i < n; i++)
        if ((k = counted(c, n_vocab, history[i])))
            c[history[i]].logit = (float)((double)c[history[i]].logit - k * p->frequency_penalty - p->presence_penalty);
}

static double weight(struct candidate c, double top, double temp)
{
    return exp(((double)c.logit - top) / temp);
}

/* Those of n candidates that min-p keeps to the front: how many. */
static int keep_likely(struct candidate *c, int n, double top, double min_p)
{
    int keep = 0;
    for (int i = 0; i < n; i++)
        if (!(weight(c[i], top, 1) < min_p)) /* not a number: no logit is finite */
            c[keep++] = c[i];
    return keep;
}

/* How many of the best top-p keeps, of candidates that sum to `sum` before min-p; at least one. */
static int keep_nucleus(struct ranked *r, double top, double sum, double top_p)
{
    double cum = 0;
    int keep = 0;
    do
        cum += weight(ranked_at(r, keep++), top, 1) / sum;
    while (keep < r->n && cum < top_p);
    return keep;
}

/* Those that may be drawn, to the front: how many. */
static int keep_allowed(struct candidate *c, int n, const uint64_t *allowed)
{
    int keep = 0;
    for (int i = 0; i < n; i++)
        if (allowed[i / 64] >> i % 64 & 1)
            c[keep++] = c[i];
    return keep;
}

/* Draw from k candidates. */
static int32_t draw(struct sampler *s, struct candidate *c, int k)
{
    const struct sample_params *p = &s->p;
    struct ranked r = { c, k, 0 };
    double top = (double)c[0].logit, all = 0, sum = 0;
    for (int i = 1; i < k; i++)
        top = (double)c[i].logit > top ? (double)c[i].logit : top;
    for (int i = 0; i < k && p->top_p < 1; i++)
        all += weight(c[i], top, 1);
    if (p->min_p > 0)
        r.n = keep_likely(c, k, top, p->min_p);
    make_heap(c, r.n, better);
    int keep = p->top_p < 1 ? keep_nucleus(&r, top, all, p->top_p) : r.n;
    for (int i = 0; i < keep; i++)
        sum += weight(c[keep < r.n ? r.n - 1 - i : i], top, p->temp);
    double at = sampler_uniform(s) * sum;
    for (int i = 0; i < keep; i++)
        if ((at -= weight(ranked_at(&r, i), top, p->temp)) < 0)
            return ranked_at(&r, i).id;
    return ranked_at(&r, keep - 1).id;
}

int32_t sampler_pick(struct sampler *s, const float *logits, int n_vocab, const int32_t *history, int n_history,
                     void *mem)
{
    struct candidate *c = mem;
    for (int i = 0; i < n_vocab; i++)
        c[i] = (struct candidate){ isnan(logits[i]) ? -INFINITY : logits[i], i };
    for (int i = 0; i < s->p.n_bias; i++)
        if (s->p.bias[i].id >= 0 && s->p.bias[i].id < n_vocab)
            c[s->p.bias[i].id].logit += s->p.bias[i].bias;
    penalise(&s->p, c, n_vocab, history, n_history);
    if (s->allowed)
        n_vocab = keep_allowed(c, n_vocab, s->allowed);
    if (s->p.temp <= 0) {
        int best = 0;
        for (int i = 1; i < n_vocab; i++)
            if (better(c[i], c[best]))
                best = i;
        return c[best].id;
    }
    int k = s->p.top_k > 0 && s->p.top_k < n_vocab ? s->p.top_k : n_vocab;
    select_best(c, n_vocab, k);
    return draw(s, c, k);
}
