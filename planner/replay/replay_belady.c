/* A unit that stays from one access to the next is an interval that ends in a hit; a cache of C slots holds at most C at a
 * time. Most intervals are kept by giving up, whenever one is too many, that which ends last. Intervals that end before the
 * first measured step are not begun: their hits are not counted.
 *
 *   accesses   a b a c b a        size 1: a..a is kept, b..b is given up for it, then c has no next use, a..a is kept
 *   next       2 4 5 - - -        held = { the next accesses of what is held }, so access i hits where i is held
 *
 * What is held is a set of access numbers: 64-ary bit sets, each of which says which words of the one below are not empty. */
#include "planner/replay/replay_belady.h"

#include <stdlib.h>
#include <string.h>

#define LEVELS 6 /* 64^6 accesses */
#define NEVER  SIZE_MAX

struct set {
    int levels;
    size_t words, n;            /* n: numbers in it */
    uint64_t *bits, *level[LEVELS];
};

static int set_init(struct set *s, size_t end)
{
    size_t at[LEVELS];
    *s = (struct set){ 0 };
    for (size_t n = end; s->levels < LEVELS && (s->levels == 0 || n > 1); s->levels++) {
        at[s->levels] = s->words;
        n = n / 64 + 1;
        s->words += n;
    }
    s->bits = malloc(s->words * sizeof *s->bits);
    for (int k = 0; s->bits && k < s->levels; k++)
        s->level[k] = s->bits + at[k];
    return s->bits != NULL;
}

static void set_clear(struct set *s)
{
    memset(s->bits, 0, s->words * sizeof *s->bits);
    s->n = 0;
}

static int set_has(const struct set *s, size_t i)
{
    return (int)(s->level[0][i / 64] >> i % 64 & 1);
}

static void set_add(struct set *s, size_t i)
{
    for (int k = 0; k < s->levels; k++, i /= 64)
        s->level[k][i / 64] |= (uint64_t)1 << i % 64;
    s->n++;
}

static void set_remove(struct set *s, size_t i)
{
    int empty = 1;
    for (int k = 0; k < s->levels && empty; k++, i /= 64) {
        s->level[k][i / 64] &= ~((uint64_t)1 << i % 64);
        empty = s->level[k][i / 64] == 0;
    }
    s->n--;
}

/* Of a set that is not empty. */
static size_t set_last(const struct set *s)
{
    size_t word = 0;
    for (int k = s->levels; k-- > 0;)
        word = word * 64 + 63 - (size_t)__builtin_clzll(s->level[k][word]);
    return word;
}

static int next_uses(const struct replay_accesses *a, size_t *next)
{
    size_t *last = malloc(((size_t)a->n_units + 1) * sizeof *last);
    for (uint32_t u = 0; last && u < a->n_units; u++)
        last[u] = NEVER;
    for (size_t i = a->start[a->n_steps]; last && i-- > 0;) {
        next[i] = last[a->units[i]];
        last[a->units[i]] = i;
    }
    free(last);
    return last != NULL;
}

static uint64_t one_size(const size_t *next, size_t from, size_t end, uint32_t slots, struct set *held)
{
    uint64_t missed = 0;
    set_clear(held);
    for (size_t i = 0; i < end; i++) {
        if (set_has(held, i))
            set_remove(held, i);
        else
            missed += i >= from;
        if (next[i] == NEVER || next[i] < from || slots == 0)
            continue;
        set_add(held, next[i]);
        if (held->n > slots)
            set_remove(held, set_last(held));
    }
    return missed;
}

int replay_belady_sizes(const struct replay_accesses *a, int first, const uint32_t *slots, int n, uint64_t *misses, struct err *e)
{
    size_t end = a->start[a->n_steps], *next = malloc((end + 1) * sizeof *next);
    struct set held = { 0 };
    int ok = next && set_init(&held, end) && next_uses(a, next);
    for (int k = 0; k < n && ok; k++)
        misses[k] = one_size(next, a->start[first], end, slots[k], &held);
    free(held.bits);
    free(next);
    return ok ? 0 : err_set(e, ERR_NOMEM, "out of memory for Belady's bound");
}
