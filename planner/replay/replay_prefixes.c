/* A step is looked up against the state before it, which changes only when it is over, but for what it has used so far:
 *
 *   accesses  | step s: . u . v . | ... | step t: ... u
 *   live            . 1 . 1       bits: the last use of its unit before t
 *   d_0 of u  = live accesses after its last one, from popcounts
 *             + units that step t has used so far and that were last used in step s or before: a binary indexed tree
 *
 * Steps ascend, so a step passes the prefixes one by one: band b is what prefix b looks up and prefix b + 1 does not. */
#include "planner/replay/replay_prefixes.h"

#include "common/base/cpu.h"
#include "common/base/inline.h"

#include <stdlib.h>
#include <string.h>

#define NONE   UINT32_MAX

struct use {
    uint32_t at, step;          /* access and step; step NONE: none yet */
};

/* The sizes of a prefix side by side, so that one access is compared with all of them at once. Those that some step
 * overflows come first; of the others no step is the last that did. Places beyond the sizes hold everything. */
#define LANES REPLAY_PREFIX_SIZES
struct sizes {
    uint32_t slots[LANES];      /* C */
    int32_t full[LANES];        /* T; -1: none yet */
    uint32_t hidden[LANES];     /* X */
    uint32_t end[LANES];        /* the access that the first C of T end before */
};

/* A prefix during the pass. */
struct row {
    uint32_t skip;              /* of this step */
    uint8_t *marks;             /* of this step's sample; NULL: none */
    int n_sizes, n_truncated;
    struct sizes sizes;
    uint64_t depth[LANES + 1]; /* accesses that miss at so many of the sizes */
    int sampled;
};

struct pass {
    const struct replay_accesses *a;
    const struct replay_prefix *prefix;
    int n;
    struct use *last;           /* [n_units] */
    uint64_t *live;
    uint32_t *after;            /* live accesses in later words */
    uint32_t *tree;             /* [n_steps + 1]: of this step's units so far, by age of their last use */
    uint32_t fresh;             /* those that were never used */
    uint32_t *used;             /* [n][n_steps]: units of a band by the step of their last use */
    uint32_t *below;            /* [n_steps][REPLAY_MAX_PREFIXES]: units below a prefix used after a step */
    struct row row[REPLAY_MAX_PREFIXES];
    int any_marks;
};

static uint32_t step_len(const struct replay_accesses *a, int t)
{
    return (uint32_t)(a->start[t + 1] - a->start[t]);
}

/* --- counting --- */

INLINE void recount(struct pass *w, size_t end)
{
    uint32_t sum = 0;
    for (size_t i = end / 64 + 1; i-- > 0;) {
        w->after[i] = sum;
        sum += (uint32_t)__builtin_popcountll(w->live[i]);
    }
}

/* Live accesses after this one. */
INLINE uint32_t live_after(const struct pass *w, size_t at)
{
    return w->after[at / 64] + (uint32_t)__builtin_popcountll(w->live[at / 64] >> at % 64 >> 1);
}

/* age: of a step before this one, from 1 on. */
INLINE void tree_add(uint32_t *tree, uint32_t age)
{
    for (; age; age &= age - 1)
        tree[age]++;
}

INLINE uint32_t tree_from(const uint32_t *tree, uint32_t age, uint32_t oldest)
{
    uint32_t sum = 0;
    for (; age <= oldest; age += age & -age)
        sum += tree[age];
    return sum;
}

/* --- sizes --- */

static void rows_init(struct pass *w)
{
    const struct replay_accesses *a = w->a;
    for (int h = 0; h < w->n; h++) {
        const struct replay_prefix *p = &w->prefix[h];
        struct row *row = &w->row[h];
        uint32_t longest = 0;
        row->n_sizes = p->n_sizes;
        for (int t = 0; t < a->n_steps; t++)
            if (step_len(a, t) - p->skip[t] > longest)
                longest = step_len(a, t) - p->skip[t];
        for (int k = 0; k < LANES; k++) {
            row->sizes.slots[k] = k < p->n_sizes ? p->slots[k] : UINT32_MAX;
            row->sizes.full[k] = -1;
            row->n_truncated += k < p->n_sizes && p->slots[k] < longest;
        }
    }
}

/* X of all sizes as of the step that begins. */
INLINE void find_hidden(struct pass *w)
{
    for (int h = 0; h < w->n; h++) {
        struct sizes *c = &w->row[h].sizes;
        for (int k = 0; k < w->row[h].n_truncated; k++)
            if (c->full[k] >= 0)
                c->hidden[k] = live_after(w, c->end[k] - 1) - live_after(w, w->a->start[c->full[k] + 1] - 1);
    }
}

/* Inline: gcc 12 leaves wide registers in use where it ends a step by a jump to this, and code outside is slow then. */
INLINE void find_full(struct pass *w, int t)
{
    for (int h = 0; h < w->n; h++) {
        struct sizes *c = &w->row[h].sizes;
        uint32_t skip = w->prefix[h].skip[t], n = step_len(w->a, t) - skip;
        for (int k = 0; k < w->row[h].n_truncated && c->slots[k] <= n; k++) {
            c->full[k] = t;
            c->end[k] = (uint32_t)w->a->start[t] + skip + c->slots[k];
        }
    }
}

/* How many sizes do not hold what was last used at `last`, d others ago, and is the rank-th that this step looks up? Without
 * branches: the compiler compares several at once. */
INLINE int missing_at(const struct sizes *c, struct use last, uint32_t d, uint32_t rank)
{
    int32_t step = (int32_t)last.step, held = 0;
    for (int k = 0; k < LANES; k++) {
        int32_t same = -(int32_t)(c->full[k] == step);
        int32_t since = -(int32_t)(c->full[k] < step), first = same & -(int32_t)(last.at < c->end[k]);
        int32_t near = -(int32_t)(d - (c->hidden[k] & (uint32_t)same) < c->slots[k]);
        held -= (since | first) & near & -(int32_t)(rank < c->slots[k]);
    }
    return LANES - held;
}

/* --- steps --- */

/* The units that prefix h has in hand beyond those of prefix h - 1 are past. */
INLINE void pass_prefix(struct pass *w, int h, int t)
{
    const uint32_t *used = w->used + (size_t)(h - 1) * (size_t)w->a->n_steps;
    uint32_t sum = 0;
    for (int s = t; s >= 0; s--) {
        uint32_t *below = w->below + (size_t)s * REPLAY_MAX_PREFIXES;
        below[h] = below[h - 1] + sum;
        sum += used[s];
    }
}

/* One access, the i-th of all, under the prefixes up to h: by how many sizes of each it is missed. */
INLINE void look_up(struct pass *w, int h, int t, size_t i)
{
    struct use last = w->last[w->a->units[i]];
    uint32_t rank = (uint32_t)(i - w->a->start[t]), age = (uint32_t)t - last.step;
    int any_marks = w->any_marks;
    if (last.step == NONE) {
        w->fresh++;
        for (int p = 0; p <= h; p++) {
            struct row *row = &w->row[p];
            row->depth[row->n_sizes]++;
            if (row->marks)
                row->marks[rank - row->skip] += (uint8_t)row->n_sizes;
        }
        return;
    }
    uint32_t all = live_after(w, last.at) + w->fresh + tree_from(w->tree, age, (uint32_t)t);
    tree_add(w->tree, age);
    const uint32_t *below = w->below + (size_t)last.step * REPLAY_MAX_PREFIXES;
    for (int p = 0; p <= h; p++) {
        struct row *row = &w->row[p];
        uint32_t d = all - below[p];
        int n = missing_at(&row->sizes, last, d, rank - row->skip);
        row->depth[n]++;
        if (any_marks && row->marks)
            row->marks[rank - row->skip] += (uint8_t)n;
    }
}

INLINE void use_unit(struct pass *w, uint32_t *used, int t, size_t i)
{
    struct use *last = &w->last[w->a->units[i]];
    if (last->step != NONE)
        used[last->step]--;
    used[t]++;
}

INLINE void one_step_body(struct pass *w, int t)
{
    size_t from = w->a->start[t], end = w->a->start[t + 1];
    recount(w, from);
    find_hidden(w);
    memset(w->tree, 0, ((size_t)t + 1) * sizeof *w->tree);
    w->fresh = 0;
    for (int h = 0; h < w->n; h++) {
        size_t begin = from + w->prefix[h].skip[t], stop = h + 1 < w->n ? from + w->prefix[h + 1].skip[t] : end;
        uint32_t *used = w->used + (size_t)h * (size_t)w->a->n_steps;
        if (h > 0)
            pass_prefix(w, h, t);
        for (size_t i = begin; i < stop; i++) {
            look_up(w, h, t, i);
            use_unit(w, used, t, i);
        }
    }
    for (size_t i = from; i < end; i++) {
        struct use *last = &w->last[w->a->units[i]];
        if (last->step != NONE)
            w->live[last->at / 64] &= ~((uint64_t)1 << last->at % 64);
        w->live[i / 64] |= (uint64_t)1 << i % 64;
        *last = (struct use){ (uint32_t)i, (uint32_t)t };
    }
    find_full(w, t);
}

/* Counting bits is one instruction where the processor has it. */
#ifdef __x86_64__
__attribute__((target("avx2,popcnt")))
static void one_step_popcnt(struct pass *w, int t)
{
    one_step_body(w, t);
}
#else
#define one_step_popcnt one_step_body
#endif

static void free_pass(struct pass *w)
{
    free(w->last);
    free(w->live);
    free(w->after);
    free(w->tree);
    free(w->used);
    free(w->below);
    free(w);
}

static struct pass *new_pass(const struct replay_accesses *a, const struct replay_prefix *prefix, int n)
{
    size_t words = a->start[a->n_steps] / 64 + 1, steps = (size_t)a->n_steps, units = (size_t)a->n_units;
    struct pass *w = a->start[a->n_steps] < NONE ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return NULL;
    w->a = a;
    w->prefix = prefix;
    w->n = n;
    w->last = malloc((units + 1) * sizeof *w->last);
    w->live = calloc(words, sizeof *w->live);
    w->after = malloc(words * sizeof *w->after);
    w->tree = malloc((steps + 1) * sizeof *w->tree);
    w->used = calloc((size_t)n * steps, sizeof *w->used);
    w->below = calloc(steps * REPLAY_MAX_PREFIXES, sizeof *w->below);
    if (!w->last || !w->live || !w->after || !w->tree || !w->used || !w->below) {
        free_pass(w);
        return NULL;
    }
    for (size_t u = 0; u < units; u++)
        w->last[u] = (struct use){ 0, NONE };
    rows_init(w);
    return w;
}

/* A step's place in every row. */
static void begin_step(struct pass *w, int t)
{
    w->any_marks = 0;
    for (int h = 0; h < w->n; h++) {
        struct row *row = &w->row[h];
        row->skip = w->prefix[h].skip[t];
        row->marks = replay_sample_step(w->prefix[h].sample, &row->sampled, t);
        w->any_marks |= row->marks != NULL;
    }
}

int replay_prefixes(const struct replay_accesses *a, int first, const struct replay_prefix *prefixes, int n, struct err *e)
{
    struct pass *w = new_pass(a, prefixes, n);
    int popcnt = cpu_has(CPU_AVX2);
    if (!w)
        return err_set(e, ERR_NOMEM, "out of memory for the replay of %u units", a->n_units);
    for (int t = 0; t < a->n_steps; t++) {
        for (int h = 0; h < n && t == first; h++)
            memset(w->row[h].depth, 0, sizeof w->row[h].depth);
        begin_step(w, t);
        if (popcnt)
            one_step_popcnt(w, t);
        else
            one_step_body(w, t);
    }
    for (int h = 0; h < n; h++) {
        uint64_t sum = 0;
        for (int k = prefixes[h].n_sizes; k-- > 0;)
            prefixes[h].misses[k] = sum += w->row[h].depth[k + 1];
    }
    free_pass(w);
    return 0;
}
