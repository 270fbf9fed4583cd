/* The rule of reads.h on sorted numbers. A window holds enough missing units when its least-th one lies in it, so a
 * join that does not pay costs one comparison, and one that is counted out brings what was counted. */
#include "common/plan/reads.h"

#include <math.h>

uint32_t reads_units(const struct layout_shape *s, int part, uint64_t bytes)
{
    const struct layout_part *p = &s->part[part];
    uint64_t n = bytes > p->read_bytes ? 1 + (bytes - p->read_bytes) / p->stride_bytes : 1;
    return n < READS_MAX_UNITS ? (uint32_t)n : READS_MAX_UNITS;
}

void reads_rule_init(const struct layout_shape *s, int part, const struct reads_coalesce *coalesce, int n_coalesce,
                     uint64_t buffer_bytes, struct reads_rule *out)
{
    struct reads_rule r = { .near = 1 };
    int apart = s->form == LAYOUT_TWO_PHASE; /* units of a part are not neighbours in the file */
    if (!apart)
        r.near = reads_units(s, part, buffer_bytes);
    r.most = r.near;
    for (int i = 0; i < n_coalesce && i < READS_MAX_COALESCE; i++) {
        uint32_t window = reads_units(s, part, coalesce[i].bytes);
        uint32_t quarters = (uint32_t)ceil(coalesce[i].weight * READS_QUARTERS - 1e-6);
        uint32_t least = (quarters + READS_QUARTERS - 1) / READS_QUARTERS;
        if (window < 2 || least > window)
            continue;
        r.join[r.n_coalesce].window = window;
        r.join[r.n_coalesce].least = least > 2 ? least : 2;
        r.join[r.n_coalesce++].quarters = quarters;
        r.most = window > r.most ? window : r.most;
    }
    *out = r;
}

size_t reads_next(const struct reads_rule *r, const uint32_t *missing, size_t n)
{
    uint32_t first = missing[0];
    uint64_t cost = READS_QUARTERS;
    size_t best = 1, m = 0;
    for (int i = 0; i < r->n_coalesce; i++) {
        uint32_t window = r->join[i].window, least = r->join[i].least, quarters = r->join[i].quarters;
        if (n < least || missing[least - 1] - first >= window)
            continue;
        for (m = m > least ? m : least; m < n && missing[m] - first < window; m++)
            ;
        if (quarters * (uint64_t)best <= cost * m) { /* quarters / m <= cost / best */
            cost = quarters;
            best = m;
        }
    }
    while (best < n && missing[best] - first < r->near && missing[best] == missing[best - 1] + 1)
        best++;
    return best;
}
