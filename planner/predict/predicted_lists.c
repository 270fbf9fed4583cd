/* Lists of firing neurons become lists of what is predicted, by draws from the probabilities that predict.c sums up.
 *
 * Every neuron of a block is drawn for as if it were silent: most are. A chance has 32 bits, but a neuron gets 16 bits of
 * a draw that it shares with three others; one in 65536 is then undecided and has 16 more drawn. Those that fire have
 * draws of their own. What a block takes of the stream is the same whatever the draws say:
 *
 *   state:  quarter words for all neurons | a word for each neuron, for the undecided | a word for each, for the firing */
#include "planner/predict/predicted.h"

#include "common/base/bytes.h"
#include "common/base/cpu.h"
#include "common/base/inline.h"
#include "common/base/splitmix.h"
#include "planner/predict/false_positives.h"

#include <math.h>
#include <stdlib.h>

/* What 32 bits of a draw are below with probability p. */
static uint64_t limit_of(double p)
{
    return p >= 1 ? UINT64_C(1) << 32 : (uint64_t)(p * 4294967296.0);
}

struct list {
    uint32_t *at;
    size_t n, cap;
};

/* Room for n more. */
static int make_room(struct list *o, size_t n)
{
    if (o->cap - o->n >= n)
        return 0;
    size_t cap = 2 * o->cap + n + 4096;
    uint32_t *grown = cap < UINT32_MAX / 2 ? realloc(o->at, cap * sizeof *grown) : NULL;
    if (!grown)
        return -1;
    o->at = grown;
    o->cap = cap;
    return 0;
}

/* Where the firings of the block that position i of a step's list belongs to end. */
static uint32_t block_end(const struct inputs_steps *s, int t, uint32_t i, uint32_t n_ff)
{
    uint64_t next = (uint64_t)n_ff * (s->at[i] / n_ff + 1);
    while (i < s->start[t + 1] && s->at[i] < next)
        i++;
    return i;
}

static void runs_free(struct false_positives_runs *r, int n_blocks)
{
    for (int k = 0; r && k < n_blocks; k++) {
        free(r[k].start);
        free(r[k].at);
    }
    free(r);
}

/* The tokens that ran through each block, with positions within it. NULL: no memory. */
static struct false_positives_runs *runs_of(const struct inputs_steps *s, int n_blocks, uint32_t n_ff)
{
    struct false_positives_runs *runs = calloc((size_t)n_blocks, sizeof *runs);
    size_t *fired = calloc((size_t)n_blocks, sizeof *fired);
    int bad = !runs || !fired;
    for (int t = 0; t < s->n_steps && !bad; t++)
        for (uint32_t i = s->start[t], from = i; i < s->start[t + 1]; from = i) {
            i = block_end(s, t, i, n_ff);
            fired[s->at[from] / n_ff] += i - from;
        }
    for (int k = 0; k < n_blocks && !bad; k++) {
        runs[k].n_ff = (int)n_ff;
        runs[k].start = calloc((size_t)s->n_steps + 1, sizeof *runs[k].start);
        runs[k].at = malloc((fired[k] + 1) * sizeof *runs[k].at);
        bad = !runs[k].start || !runs[k].at;
    }
    for (int t = 0; t < s->n_steps && !bad; t++)
        for (uint32_t i = s->start[t], end; i < s->start[t + 1]; i = end) {
            uint32_t block = s->at[i] / n_ff;
            struct false_positives_runs *r = &runs[block];
            size_t n = r->start[r->n];
            for (end = block_end(s, t, i, n_ff); i < end; i++)
                r->at[n++] = s->at[i] - block * n_ff;
            r->start[++r->n] = n;
        }
    free(fired);
    if (bad) {
        runs_free(runs, n_blocks);
        return NULL;
    }
    return runs;
}

/* What the lists say before any predictor does. */
struct predicted_shared {
    int n_blocks, n_steps;
    uint32_t n_at;
    struct false_positives_runs *runs;   /* [n_blocks] */
    struct false_positives *false_positives;      /* [n_blocks]; n 0: not made */
};

void predicted_shared_free(struct predicted_shared *h)
{
    if (!h)
        return;
    for (int k = 0; h->false_positives && k < h->n_blocks; k++)
        false_positives_free(&h->false_positives[k]);
    free(h->false_positives);
    runs_free(h->runs, h->n_blocks);
    free(h);
}

/* *h for these lists: as it is, or made anew. */
static int share(const struct predicted *f, const struct inputs_steps *s, uint32_t n_ff, struct predicted_shared **h, struct err *e)
{
    if (*h && (*h)->n_steps == s->n_steps && (*h)->n_at == s->start[s->n_steps])
        return 0;
    predicted_shared_free(*h);
    if ((*h = calloc(1, sizeof **h))) {
        **h = (struct predicted_shared){ .n_blocks = f->n_blocks, .n_steps = s->n_steps, .n_at = s->start[s->n_steps] };
        (*h)->runs = runs_of(s, f->n_blocks, n_ff);
        (*h)->false_positives = calloc((size_t)f->n_blocks, sizeof *(*h)->false_positives);
        if ((*h)->runs && (*h)->false_positives)
            return 0;
    }
    predicted_shared_free(*h);
    *h = NULL;
    return err_set(e, ERR_NOMEM, "out of memory for predicted neurons");
}

/* A layer's lists while what fires is replaced by what is predicted. */
struct telling {
    const struct predicted *f;
    int layer, firing_only, avx2;
    uint32_t n_ff;               /* of the layer */
    uint32_t seed;               /* the layer; of layers that are alike, the first: their draws are the same */
    struct predicted_shared *shared;
    uint64_t (*chance)[FALSE_POSITIVES_LEVELS];  /* [n_blocks]: of false positives; not filled in with firing_only */
    struct list out;
    uint32_t *start;
    uint64_t *drawn;             /* scratch: a bit for each neuron */
};

static const struct predicted_block *block_at(const struct telling *w, int block)
{
    return &w->f->block[(size_t)w->layer * (size_t)w->f->n_blocks + (size_t)block];
}

static void telling_done(struct telling *w)
{
    free(w->chance);
    free(w->drawn);
}

static int telling_init(struct telling *w, const struct inputs *in, const struct inputs_steps *s, struct err *e)
{
    size_t n_ff = w->n_ff;
    double *rate = malloc(n_ff * sizeof *rate);
    int r = 0;
    w->avx2 = (w->f->cpus >> CPU_AVX2 & 1) != 0;
    w->start = malloc(((size_t)s->n_steps + 1) * sizeof *w->start);
    w->drawn = malloc((n_ff / 64 + 1) * sizeof *w->drawn);
    w->chance = malloc((size_t)w->f->n_blocks * sizeof *w->chance);
    if (!rate || !w->start || !w->drawn || !w->chance)
        r = err_set(e, ERR_NOMEM, "out of memory for predicted neurons");
    for (int k = 0; k < w->f->n_blocks && r == 0 && !w->firing_only; k++) {
        struct false_positives *a = &w->shared->false_positives[k];
        if (w->shared->runs[k].n == 0)
            continue;
        double wanted = predicted_rates(w->f, in, w->layer, k, rate);
        if (a->n == 0)
            r = false_positives_new(&w->shared->runs[k], rate, w->f->cpus, a, e);
        if (r == 0)
            false_positives_chances(a, block_at(w, k)->recall, wanted, w->chance[k]);
    }
    free(rate);
    return r;
}

/* Of a block's firing neurons, those that are predicted. */
static void draw_firing(struct list *out, uint32_t first, const uint32_t *fired, size_t n, uint64_t kept,
                        uint32_t always, uint64_t *state)
{
    for (size_t j = 0; j < n; j++) {
        int drawn = splitmix_next(state) >> 32 < kept;
        out->at[out->n] = first + fired[j];
        out->n += (size_t)(drawn | (fired[j] < always));
    }
}

static void mark(uint64_t *drawn, uint32_t i, int yes)
{
    uint64_t bit = UINT64_C(1) << i % 64;
    drawn[i / 64] = yes ? drawn[i / 64] | bit : drawn[i / 64] & ~bit;
}

/* A chance in its upper 16 bits; a certain one, which has no more of these, in what is left as well. */
static uint16_t upper_of(uint64_t chance)
{
    return (uint16_t)(chance >> 16 < UINT16_MAX ? chance >> 16 : UINT16_MAX);
}

/* A neuron whose upper 16 bits equal its chance's: 16 more against what is left of it. */
static int undecided(uint64_t draw, uint64_t chance)
{
    return draw >> 48 < chance - ((uint64_t)upper_of(chance) << 16);
}

/* Eight bytes of 0 or 1 as bits: the product has each of them once in its top byte. */
INLINE uint64_t bits_of(uint64_t bytes)
{
    return bytes * UINT64_C(0x0102040810204080) >> 56;
}

/* n <= 64 neurons against their levels' chances: bits. state, more: where their draws begin, and those of the undecided. */
INLINE uint64_t draw_word_body(const uint8_t *level, const uint64_t *chance, const uint16_t *upper, int n, uint64_t state,
                               uint64_t more)
{
    uint16_t own[64], limit[64], equal = 0;
    uint8_t below[64] = { 0 };
    uint64_t bits = 0;
    for (int i = 0; i < (n + 3) / 4; i++) {
        uint64_t draw = splitmix_at(state + (uint64_t)i * SPLITMIX_STEP);
        for (int k = 0; k < 4; k++)
            own[4 * i + k] = (uint16_t)(draw >> 16 * k);
    }
    for (int i = 0; i < n; i++)
        limit[i] = upper[level[i]];
    for (int i = 0; i < n; i++)
        equal |= (uint16_t)(own[i] == limit[i]);
    for (int i = 0; i < n; i++)
        below[i] = own[i] < limit[i];
    for (int i = 0; i < 64; i += 8)
        bits |= bits_of(bytes_le64(below + i)) << i;
    for (int i = 0; i < n && equal; i++)
        if (own[i] == limit[i])
            bits |= (uint64_t)undecided(splitmix_at(more + (uint64_t)i * SPLITMIX_STEP), chance[level[i]]) << i;
    return bits;
}

INLINE void draw_all_body(uint64_t *drawn, const uint8_t *level, const uint64_t *chance, const uint16_t *upper, uint32_t n,
                          uint64_t state)
{
    uint64_t more = state + (n + 3) / 4 * SPLITMIX_STEP;
    uint32_t i = 0;
    for (; i + 64 <= n; i += 64)
        drawn[i / 64] = draw_word_body(level + i, chance, upper, 64, state + i / 4 * SPLITMIX_STEP, more + i * SPLITMIX_STEP);
    if (i < n)
        drawn[i / 64] = draw_word_body(level + i, chance, upper, (int)(n - i), state + i / 4 * SPLITMIX_STEP,
                                      more + i * SPLITMIX_STEP);
}

#ifdef __x86_64__
__attribute__((target("avx2")))
static void draw_all_avx2(uint64_t *drawn, const uint8_t *level, const uint64_t *chance, const uint16_t *upper, uint32_t n,
                          uint64_t state)
{
    draw_all_body(drawn, level, chance, upper, n, state);
}
#else
#define draw_all_avx2 draw_all_body
#endif

/* Each neuron against its level's chance: bits of drawn. */
static void draw_all(int avx2, uint64_t *drawn, const uint8_t *level, const uint64_t *chance, uint32_t n, uint64_t state)
{
    uint16_t upper[FALSE_POSITIVES_LEVELS];
    for (int k = 0; k < FALSE_POSITIVES_LEVELS; k++)
        upper[k] = upper_of(chance[k]);
    if (avx2)
        draw_all_avx2(drawn, level, chance, upper, n, state);
    else
        draw_all_body(drawn, level, chance, upper, n, state);
}

static void take_predicted(struct list *out, uint32_t first, const uint64_t *drawn, uint32_t n)
{
    uint32_t *at = out->at + out->n;
    for (uint32_t i = 0; i < n; i += 64)
        for (uint64_t bits = drawn[i / 64]; bits; bits &= bits - 1)
            *at++ = first + i + (uint32_t)__builtin_ctzll(bits);
    out->n = (size_t)(at - out->at);
}

/* One block of one step, the block's run-th: fired[n] are its firing positions, ascending. */
static int tell_block(struct telling *w, uint32_t block, int run, const uint32_t *fired, size_t n, uint64_t *state)
{
    uint32_t n_ff = w->n_ff, always = w->f->always[w->layer];
    uint64_t kept = limit_of(block_at(w, (int)block)->recall);
    if (make_room(&w->out, w->firing_only ? n + 1 : n_ff + 1) < 0)
        return -1;
    if (w->firing_only) {
        draw_firing(&w->out, block * n_ff, fired, n, kept, always, state);
        return 0;
    }
    draw_all(w->avx2, w->drawn, false_positives_levels(&w->shared->false_positives[block], run), w->chance[block], n_ff, *state);
    *state += ((n_ff + 3) / 4 + (uint64_t)n_ff) * SPLITMIX_STEP;
    for (size_t j = 0; j < n; j++)
        mark(w->drawn, fired[j], splitmix_at(*state + fired[j] * SPLITMIX_STEP) >> 32 < kept);
    *state += n_ff * SPLITMIX_STEP;
    for (uint32_t i = 0; i < always; i++)
        mark(w->drawn, i, 1);
    take_predicted(&w->out, block * n_ff, w->drawn, n_ff);
    return 0;
}

static int tell(struct telling *w, const struct inputs_steps *s)
{
    uint32_t n_ff = w->n_ff;
    for (int k = 0; k < w->f->n_blocks; k++)
        w->shared->runs[k].n = 0; /* now: how many have passed */
    for (int t = 0; t < s->n_steps; t++) {
        uint64_t state = (uint64_t)w->seed << 32 | (uint32_t)t;
        w->start[t] = (uint32_t)w->out.n;
        for (uint32_t i = s->start[t]; i < s->start[t + 1]; i = block_end(s, t, i, n_ff)) {
            uint32_t block = s->at[i] / n_ff;
            struct false_positives_runs *r = &w->shared->runs[block];
            size_t from = r->start[r->n];
            if (tell_block(w, block, r->n, r->at + from, r->start[r->n + 1] - from, &state) < 0)
                return -1;
            r->n++;
        }
    }
    w->start[s->n_steps] = (uint32_t)w->out.n;
    return 0;
}

/* All that fires is predicted, and nothing else: lists stay as they are. */
static int perfect(const struct telling *w)
{
    int yes = w->f->always[w->layer] == 0;
    for (int k = 0; k < w->f->n_blocks && yes; k++)
        yes = block_at(w, k)->recall >= 1 && isinf(block_at(w, k)->shift);
    return yes;
}

/* All that the lists of a layer with these firings follow from. 0: no memory for it. */
static int key_of(const struct telling *w, const struct inputs_steps *s, struct hash128 *out)
{
    const uint32_t made_from[6] = { 1, w->seed, (uint32_t)w->firing_only, (uint32_t)s->n_steps, s->start[s->n_steps],
                               w->f->always[w->layer] };
    struct hash *h = hash_new();
    if (!h)
        return 0;
    hash_update(h, made_from, sizeof made_from);
    for (int k = 0; k < w->f->n_blocks; k++) {
        const double block[2] = { block_at(w, k)->recall, block_at(w, k)->shift };
        hash_update(h, block, sizeof block);
    }
    *out = hash_final128(h);
    hash_free(h);
    return 1;
}

/* Lists of what fires are replaced by what is made of them. */
static void take_lists(struct inputs_steps *s, uint32_t *start, uint32_t *at)
{
    free(s->start);
    free(s->at);
    s->start = start;
    s->at = at;
}

int predicted_steps(const struct predicted *f, const struct inputs *in, int layer, int firing_only,
                   struct predicted_shared **shared, struct inputs_steps *s, struct err *e)
{
    struct telling w = { .f = f, .layer = layer, .firing_only = firing_only, .n_ff = (uint32_t)inputs_n_ff(in, layer),
                         .seed = in->equivalent ? 0 : (uint32_t)layer };
    struct predicted_shared *own = NULL, **used = shared ? shared : &own;
    struct inputs_steps known;
    struct hash128 key;
    int r, keyed;
    if (perfect(&w))
        return 0;
    keyed = in->lists && key_of(&w, s, &key);
    if (keyed && (r = list_cache_get(in->lists, key, (uint64_t)s->n_steps, &known, e)) != 0) {
        if (r < 0)
            return r;
        take_lists(s, known.start, known.at);
        return 0;
    }
    r = share(f, s, w.n_ff, used, e);
    w.shared = *used;
    if (r == 0)
        r = telling_init(&w, in, s, e);
    if (r == 0 && tell(&w, s) < 0)
        r = err_set(e, ERR_NOMEM, "out of memory for predicted neurons");
    telling_done(&w);
    predicted_shared_free(own);
    if (r < 0) {
        free(w.start);
        free(w.out.at);
        return r;
    }
    take_lists(s, w.start, w.out.at);
    if (keyed)
        list_cache_add(in->lists, key, s);
    return 0;
}
