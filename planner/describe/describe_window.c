/* The window is drawn block by block as tokens reach it. What a block's neurons remember changes only when a
 * strand is renewed, so the chance of each to fire at a token is kept as a 16-bit number until then and a token
 * costs one comparison per neuron. A neuron's value in a strand is a hash of where and since when, not a state:
 * blocks that are not reached cost nothing. */
#include "planner/describe/describe_window.h"

#include "common/base/splitmix.h"
#include "planner/replay/replay.h"
#include "planner/inputs/normal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STRANDS 3    /* per part of the persistence */
#define FIT_NEURONS 1024
#define NORMALS 4096 /* quantiles that stand for the normal distribution */
#define SPAN    6.0  /* of the table of its distribution function, both ways */

struct drawing {
    const struct describe *d;
    int n_strands, n_blocks, n_ff;
    double own;
    float normal[NORMALS];
    uint16_t cdf[NORMALS];
    float *theta;                                       /* [n_ff], over the deviation of the own part */
    float weight[DESCRIBE_MAX_MEMORY * STRANDS];        /* likewise */
    uint32_t epoch[DESCRIBE_MAX_MEMORY * STRANDS];
    uint32_t age, *block_age;                           /* renewals so far, and when a block's chances were made */
    uint16_t *chance;                                   /* [n_blocks][n_ff], of 65536 */
    uint64_t state;
};

static double uniform(struct drawing *w)
{
    return (double)(splitmix_at(w->state++) >> 11) / 9007199254740992.0;
}

static void drawing_done(struct drawing *w)
{
    free(w->theta);
    free(w->block_age);
    free(w->chance);
}

static int drawing_init(struct drawing *w, const struct describe *d, const double *p, struct err *e)
{
    *w = (struct drawing){ .d = d, .n_blocks = model_ffn_blocks(&d->h), .n_ff = d->h.n_ff, .own = 1, .age = 1 };
    size_t n_ff = (size_t)w->n_ff, blocks = (size_t)w->n_blocks;
    w->theta = malloc(n_ff * sizeof *w->theta);
    w->block_age = calloc(blocks, sizeof *w->block_age);
    w->chance = malloc(n_ff * blocks * sizeof *w->chance);
    if (!w->theta || !w->block_age || !w->chance) {
        drawing_done(w);
        return err_set(e, ERR_NOMEM, "out of memory for an activation window");
    }
    for (int i = 0; i < d->n_memory; i++)
        w->own -= d->memory[i].share;
    double deviation = sqrt(w->own);
    for (int i = 0; i < d->n_memory; i++)
        for (int s = 0; s < STRANDS; s++)
            w->weight[w->n_strands++] = (float)(sqrt(d->memory[i].share / STRANDS) / deviation);
    for (int i = 0; i < NORMALS; i++) {
        w->normal[i] = (float)normal_quantile((i + 0.5) / NORMALS);
        double x = SPAN * (2 * (i + 0.5) / NORMALS - 1);
        w->cdf[i] = (uint16_t)fmin(65535, 65536 * 0.5 * erfc(-x / sqrt(2)) + 0.5);
    }
    for (int i = 0; i < w->n_ff; i++) {
        double p_i = fmin(1 - 1e-9, fmax(1e-12, p[i]));
        w->theta[i] = (float)(-normal_quantile(p_i) / deviation);
    }
    return 0;
}

/* Chances of a block's neurons, given what they remember. */
static void refresh(struct drawing *w, int block)
{
    uint16_t *chance = w->chance + (size_t)block * (size_t)w->n_ff;
    uint64_t seed[DESCRIBE_MAX_MEMORY * STRANDS];
    for (int s = 0; s < w->n_strands; s++)
        seed[s] = splitmix_at(splitmix_at((uint64_t)block << 32 | (uint32_t)s) + w->epoch[s]);
    for (int i = 0; i < w->n_ff; i++) {
        float x = -w->theta[i];
        for (int s = 0; s < w->n_strands; s++)
            x += w->weight[s] * w->normal[splitmix_at(seed[s] + (uint64_t)i) % NORMALS];
        int at = (int)((x / SPAN + 1) * NORMALS / 2);
        chance[i] = w->cdf[at < 0 ? 0 : at >= NORMALS ? NORMALS - 1 : at];
    }
    w->block_age[block] = w->age;
}

/* Pass to the next token: renew strands. */
static void advance(struct drawing *w)
{
    int renewed = 0;
    for (int s = 0; s < w->n_strands; s++)
        if (uniform(w) * w->d->memory[s / STRANDS].period < 1) {
            w->epoch[s]++;
            renewed = 1;
        }
    w->age += (uint32_t)renewed;
}

/* The blocks that a token runs through, ascending; *keep is the former ones. */
static void route(struct drawing *w, int first, int *blocks)
{
    int k = w->d->h.n_experts_used, n = w->n_blocks;
    if (w->d->h.n_experts == 0) {
        blocks[0] = 0;
        return;
    }
    double even = (double)k / n, keep = even < 1 ? (w->d->expert_again - even) / (1 - even) : 0;
    if (!first && uniform(w) < keep)
        return;
    for (int b = 0, need = k; need > 0; b++) /* each of the sets of k is as likely */
        if (uniform(w) * (n - b) < need)
            blocks[k - need--] = b;
}

static void fire(struct drawing *w, int block, uint64_t token, uint32_t *at, size_t *n)
{
    const uint16_t *chance = w->chance + (size_t)block * (size_t)w->n_ff;
    uint64_t seed = splitmix_at(token << 16 ^ (uint64_t)block ^ 0x5bd1e995u), r = 0;
    uint32_t base = (uint32_t)block * (uint32_t)w->n_ff;
    for (int i = 0; i < w->n_ff; i++, r >>= 16) {
        if (i % 4 == 0)
            r = splitmix_at(seed + (uint64_t)i);
        at[*n] = base + (uint32_t)i;
        *n += (uint16_t)r < chance[i];
    }
}

int describe_window(const struct describe *d, const double *p, int n_tokens, struct inputs_steps *out, struct err *e)
{
    struct drawing w;
    int used = d->h.n_experts ? d->h.n_experts_used : 1, r = drawing_init(&w, d, p, e);
    if (r < 0)
        return r;
    size_t n = 0, cap = 0, most = (size_t)used * (size_t)w.n_ff;
    struct inputs_steps s = { .n_steps = n_tokens, .start = malloc(((size_t)n_tokens + 1) * sizeof *s.start) };
    int *blocks = malloc((size_t)used * sizeof *blocks);
    for (int t = 0; t < n_tokens && s.start && blocks; t++) {
        if (cap - n < most + 1) {
            cap = n + n / 2 + 4 * most + 1;
            uint32_t *grown = cap < UINT32_MAX ? realloc(s.at, cap * sizeof *grown) : NULL;
            if (!grown) {
                r = err_set(e, ERR_NOMEM, "out of memory for an activation window of %d tokens", n_tokens);
                break;
            }
            s.at = grown;
        }
        if (t)
            advance(&w);
        route(&w, t == 0, blocks);
        s.start[t] = (uint32_t)n;
        for (int k = 0; k < used; k++) {
            if (w.block_age[blocks[k]] != w.age)
                refresh(&w, blocks[k]);
            fire(&w, blocks[k], (uint64_t)t, s.at, &n);
        }
    }
    if (r == 0 && (!s.start || !blocks))
        r = err_set(e, ERR_NOMEM, "out of memory for an activation window");
    free(blocks);
    drawing_done(&w);
    if (r < 0) {
        inputs_steps_done(&s);
        return r;
    }
    s.start[n_tokens] = (uint32_t)n;
    *out = s;
    return 0;
}

int describe_missed(const struct describe *d, const struct inputs_steps *s, double cached, double *missed,
                    struct err *e)
{
    int blocks = model_ffn_blocks(&d->h);
    struct layout_shape shape = { .n_ff = d->h.n_ff, .n_parts = 1,
                                  .part[0] = { .neurons_per_unit = 1, .n_units = (uint32_t)d->h.n_ff } };
    double lookups, misses, slots = cached * d->h.n_ff * blocks;
    int r = replay_point(s, &shape, 0, blocks, 1, CACHE_LRU, 0, (uint32_t)(slots + 0.5), &lookups, &misses, e);
    if (r == 0)
        *missed = lookups > 0 ? misses / lookups : 0;
    return r;
}

/* The first miss figure with periods that stretch with 2^log2_period. A cache's share of hits depends on shares, not on
 * how many neurons there are, so at most FIT_NEURONS stand for those of an FFN. */
static int missed_with(struct describe *d, const double *p, double log2_period, double *missed, struct err *e)
{
    double few[FIT_NEURONS], longest = exp2(log2_period);
    struct describe small = *d;
    struct inputs_steps s;
    int n = d->h.n_ff < FIT_NEURONS ? d->h.n_ff : FIT_NEURONS;
    for (int i = 0; i < n; i++)
        few[i] = p[(size_t)((i + 0.5) * d->h.n_ff / n)];
    d->n_memory = small.n_memory = 2;
    d->memory[0] = small.memory[0] = (struct describe_memory){ 0.24, fmax(1, longest / 4) };
    d->memory[1] = small.memory[1] = (struct describe_memory){ 0.56, longest };
    small.h.n_ff = n;
    int r = describe_window(&small, few, DESCRIBE_WINDOW, &s, e);
    if (r < 0)
        return r;
    r = describe_missed(&small, &s, d->miss[0].cached, missed, e);
    inputs_steps_done(&s);
    return r;
}

int describe_persistence(struct describe *d, const char *name, const double *p, struct err *e)
{
    double low = 0, high = 10, most = 0, least = 0, m, want = d->miss[0].missed;
    int r;
    if (d->n_memory > 0)
        return 0;
    if ((r = missed_with(d, p, low, &most, e)) < 0 || (r = missed_with(d, p, high, &least, e)) < 0)
        return r;
    if (want > most || want < least)
        return err_set(e, ERR_FORMAT, "description '%s': activation.misses[0].missed is %g with %g cached; with this "
                       "rate and skew, %.3g (all remembered) to %.3g (nothing remembered) is possible; correct one of "
                       "the figures or give 'persistence'", name, want, d->miss[0].cached, least, most);
    for (int i = 0; i < 8 && r == 0; i++) {
        double middle = (low + high) / 2;
        r = missed_with(d, p, middle, &m, e);
        *(m > want ? &low : &high) = middle;
    }
    return r < 0 ? r : missed_with(d, p, (low + high) / 2, &m, e); /* leaves d with it */
}
