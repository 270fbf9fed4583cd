/* LRU at all sizes of one pass. What size C holds are the C units used last, so its state is one number: the access
 * that it has evicted up to.
 *
 *   accesses   a b c a d b e ...                    ^ size 2 holds what was used last here or later,
 *   live       . . 1 1 1 1 1                        | and was not used again: bits of `live`
 *   passed[k]      ^
 *
 * An access misses at size k where the last one to the same unit lies before passed[k]; then the next live access
 * is the victim. All sizes share `live` and the list of last uses, and look only at what they evict.
 *
 * Pinning to the end of a step changes this only where a step has more units than slots. Then the first C of the
 * step are admitted one after the other, for fewer than C are pinned, and are all that is held in the end; the others
 * find everything pinned and pass by. So a size smaller than the longest step is an LRU cache to which each step shows
 * its first C units alone; as these differ from size to size, each such size has a pass of its own. */
#include "planner/replay/replay_lru.h"

#include <stdlib.h>

#define NONE UINT32_MAX

struct lru {
    const struct replay_accesses *a;
    struct replay_sample *sample;
    size_t measured;            /* accesses from here on count */
    uint32_t *last;             /* [n_units]: last access + 1; 0: none, or evicted in a pass of one size */
    uint64_t *live;
};

/* One size that some step overflows. An access that passes by never becomes its unit's last, so it is no victim. */
static uint64_t one_size(struct lru *w, uint32_t slots)
{
    const struct replay_accesses *a = w->a;
    uint32_t *last = w->last, used = 0;
    uint64_t missed = 0;
    size_t passed = 0;
    int sampled = 0;
    for (uint32_t u = 0; u < a->n_units; u++)
        last[u] = 0;
    for (int t = 0; t < a->n_steps; t++) {
        size_t from = a->start[t], i = from, end = a->start[t + 1], shown = end - i < slots ? end : i + slots;
        uint64_t before = missed;
        uint8_t *marks = replay_sample_step(w->sample, &sampled, t);
        for (; i < shown; i++) {
            uint32_t *seen = &last[a->units[i]];
            if (!*seen) {
                missed++;
                if (marks)
                    marks[i - from]++;
                if (used < slots) {
                    used++;
                } else {
                    while (last[a->units[passed]] != passed + 1)
                        passed++;
                    last[a->units[passed++]] = 0;
                }
            }
            *seen = (uint32_t)i + 1;
        }
        missed += end - shown;
        for (; i < end && marks; i++)
            marks[i - from]++;
        if (a->start[t] < w->measured)
            missed = before;
    }
    return missed;
}

static size_t next_live(const uint64_t *live, size_t from)
{
    size_t w = from / 64;
    uint64_t bits = live[w] & ~(uint64_t)0 << from % 64;
    while (!bits)
        bits = live[++w];
    return w * 64 + (size_t)__builtin_ctzll(bits);
}

/* Sizes that no step overflows, ascending. */
static void all_sizes(struct lru *w, const uint32_t *slots, int n, uint64_t *misses)
{
    const struct replay_accesses *a = w->a;
    size_t end = a->start[a->n_steps], passed[REPLAY_MAX_SIZES] = { 0 };
    uint32_t used = 0; /* different units so far */
    int t = 0, sampled = 0;
    uint64_t depth[REPLAY_MAX_SIZES + 1] = { 0 }; /* accesses that miss at so many of the sizes */
    for (uint32_t u = 0; u < a->n_units; u++)
        w->last[u] = 0;
    for (size_t i = 0; i < end / 64 + 1; i++)
        w->live[i] = 0;
    uint8_t *marks = NULL;
    for (size_t i = 0, from = 0, to = 0; i < end; i++) {
        uint32_t *last = &w->last[a->units[i]];
        size_t seen = *last;
        int k = 0;
        while (i == to) { /* the next step; some look nothing up */
            from = to;
            to = a->start[t + 1];
            marks = replay_sample_step(w->sample, &sampled, t++);
        }
        /* Smaller sizes have passed more; while slots are free, nothing was. */
        for (; k < n && seen <= passed[k]; k++)
            if (used >= slots[k])
                passed[k] = next_live(w->live, passed[k]) + 1;
        depth[k] += i >= w->measured;
        if (marks)
            marks[i - from] += (uint8_t)k;
        used += seen == 0;
        if (seen)
            w->live[(seen - 1) / 64] &= ~((uint64_t)1 << (seen - 1) % 64);
        w->live[i / 64] |= (uint64_t)1 << i % 64;
        *last = (uint32_t)i + 1;
    }
    for (int k = n; k-- > 0;)
        misses[k] = depth[k + 1] + (k + 1 < n ? misses[k + 1] : 0);
}

int replay_lru(const struct replay_accesses *a, int first, const uint32_t *slots, int n_sizes,
               struct replay_sample *sample, uint64_t *misses, struct err *e)
{
    size_t end = a->start[a->n_steps], longest = replay_longest_step(a);
    struct lru w = { .a = a, .sample = sample, .measured = a->start[first] };
    int k = 0;
    w.last = end < NONE ? malloc(((size_t)a->n_units + 1) * sizeof *w.last) : NULL;
    w.live = malloc((end / 64 + 1) * sizeof *w.live);
    if (!w.last || !w.live) {
        free(w.last);
        free(w.live);
        return err_set(e, ERR_NOMEM, "out of memory for the replay of %u units", a->n_units);
    }
    for (; k < n_sizes && slots[k] < longest; k++)
        misses[k] = one_size(&w, slots[k]);
    if (k < n_sizes)
        all_sizes(&w, slots + k, n_sizes - k, misses + k);
    free(w.last);
    free(w.live);
    return 0;
}
