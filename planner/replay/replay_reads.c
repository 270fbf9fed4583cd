/* The rule is run on the missing units of each sampled step as the runtime runs it on its list. */
#include "planner/replay/replay_reads.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLED_UNITS 8192
#define LEAST_STEPS   4

/* Where the units that step t looks up begin. */
static size_t first_of(const struct replay_accesses *a, const uint32_t *skip, int t)
{
    return a->start[t] + (skip ? skip[t] : 0);
}

int replay_sample_init(const struct replay_accesses *a, int first, const uint32_t *skip, struct replay_sample *out,
                       struct err *e)
{
    struct replay_sample s = { 0 };
    size_t measured = (size_t)(a->n_steps - first), looked_up = a->start[a->n_steps] - a->start[first], n = 0;
    for (int t = first; t < a->n_steps && skip; t++)
        looked_up -= skip[t];
    size_t steps = looked_up ? SAMPLED_UNITS * measured / looked_up : REPLAY_SAMPLED;
    steps = steps < LEAST_STEPS ? LEAST_STEPS : steps > REPLAY_SAMPLED ? REPLAY_SAMPLED : steps;
    steps = steps < measured ? steps : measured;
    for (size_t i = 0; i < steps; i++) {
        int t = first + (int)((2 * i + 1) * measured / (2 * steps));
        s.step[i] = t;
        n += a->start[t + 1] - first_of(a, skip, t);
    }
    s.n_steps = (int)steps;
    s.unit = n < UINT32_MAX ? malloc((n + 1) * sizeof *s.unit) : NULL;
    s.missing = calloc(n + 1, 1);
    if (!s.unit || !s.missing) {
        replay_sample_done(&s);
        return err_set(e, ERR_NOMEM, "out of memory for the replay of %u units", a->n_units);
    }
    for (int i = 0; i < s.n_steps; i++) {
        size_t from = first_of(a, skip, s.step[i]), len = a->start[s.step[i] + 1] - from;
        memcpy(s.unit + s.start[i], a->units + from, len * sizeof *s.unit);
        s.start[i + 1] = s.start[i] + (uint32_t)len;
    }
    *out = s;
    return 0;
}

void replay_sample_done(struct replay_sample *s)
{
    free(s->unit);
    free(s->missing);
    s->unit = NULL;
    s->missing = NULL;
    s->n_steps = 0;
}

int replay_sample_copy(const struct replay_sample *s, struct replay_sample *out, struct err *e)
{
    struct replay_sample o = *s;
    size_t n = s->start[s->n_steps];
    if (!s->unit) {
        *out = o;
        return 0;
    }
    o.unit = malloc((n + 1) * sizeof *o.unit);
    o.missing = malloc(n + 1);
    if (!o.unit || !o.missing) {
        replay_sample_done(&o);
        return err_set(e, ERR_NOMEM, "out of memory for a copy of %zu accesses", n);
    }
    memcpy(o.unit, s->unit, n * sizeof *o.unit);
    memcpy(o.missing, s->missing, n);
    *out = o;
    return 0;
}

uint8_t *replay_sample_step(const struct replay_sample *s, int *next, int t)
{
    if (!s || *next == s->n_steps || s->step[*next] != t)
        return NULL;
    return s->missing + s->start[(*next)++];
}

int replay_length_class(uint32_t units)
{
    return units > 1 ? 32 - __builtin_clz(units - 1) : 0;
}

_Static_assert(READS_MAX_UNITS == 1 << (REPLAY_LENGTHS - 1), "the longest read has a class");

/* reads[l] reads of l units, for `missed` of them. */
static void spread(const uint32_t reads[READS_MAX_UNITS + 1], uint32_t missed, struct replay_reads *out)
{
    double n = 0, units = 0, at[REPLAY_LENGTHS] = { 0 };
    for (uint32_t l = 1; l <= READS_MAX_UNITS; l++) {
        int c = replay_length_class(l);
        double most = (double)(1u << c), longer = c ? 2 * (l - most / 2) / most : 1;
        n += reads[l];
        units += (double)l * reads[l];
        at[c] += longer * reads[l];
        if (longer < 1)
            at[c - 1] += (1 - longer) * reads[l];
    }
    *out = (struct replay_reads){ 1, 1, { 1 } };
    if (missed == 0)
        return;
    out->reads = (float)(n / missed);
    out->units = (float)(units / missed);
    for (int c = 0; c < REPLAY_LENGTHS; c++)
        out->at[c] = (float)(at[c] / missed);
}

/* Reads for missing[n] of one block, by length. */
static void read_all(const struct reads_rule *rule, const uint32_t *missing, size_t n, uint32_t *reads)
{
    for (size_t i = 0, k; i < n; i += k) {
        k = reads_next(rule, missing + i, n - i);
        reads[missing[i + k - 1] - missing[i] + 1]++;
    }
}

void replay_reads_of(const struct replay_sample *s, uint32_t per_block, const struct reads_rule *rules, int n, int size,
                     struct replay_reads *out)
{
    enum { MOST = 4096 };       /* units at a time; where the list is cut, one read may be two */
    uint32_t reads[REPLAY_RULES][READS_MAX_UNITS + 1], missing[MOST], missed = 0;
    memset(reads, 0, sizeof reads);
    for (int i = 0; i < s->n_steps; i++) {
        for (uint32_t k = s->start[i], stop = s->start[i + 1]; k < stop;) {
            uint32_t end = (s->unit[k] / per_block + 1) * per_block, m = 0; /* end: of the block */
            for (; k < stop && s->unit[k] < end && m < MOST; k++) {
                missing[m] = s->unit[k];
                m += s->missing[k] > size; /* no branch: half of them miss */
            }
            for (int r = 0; r < n; r++)
                read_all(&rules[r], missing, m, reads[r]);
            missed += m;
        }
    }
    for (int r = 0; r < n; r++)
        spread(reads[r], missed, &out[r]);
}
