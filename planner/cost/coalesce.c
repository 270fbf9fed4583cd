/* A coalesced read pays where its window is nearly full at the latest, so those that would cost more per unit than a shorter one does
 * are left out. Windows double: between them, common/plan/reads takes what is missing in a window and not its whole length. */
#include "planner/cost/coalesce.h"

#include "common/plan/budget.h"
#include "planner/cost/cost.h"

#include <math.h>

#define SHORT_UNITS 8
#define LONG_UNITS  64
#define MAX_DEPTH   128

static double read_ns(const struct hw *hw, struct hw_read q, double bytes)
{
    q.block_bytes = (uint64_t)bytes;
    double bw = hw_storage_bytes_per_s(hw, &q, HW_TYPICAL);
    return bw > 0 ? 1e9 * bytes / bw : 0;
}

/* All coalesced reads of up to `most` units; one_ns: of a single unit. */
static void find(const struct hw *hw, const struct hw_read *q, const struct layout_shape *s, uint32_t most, double one_ns,
                 struct coalesce *out)
{
    const struct layout_part *p = &s->part[s->n_parts - 1];
    struct coalesce j = { 0 };
    uint64_t block = s->block_bytes;
    double per_unit = 1;
    for (uint32_t units = 2; units <= most && j.n < READS_MAX_COALESCE; units *= 2) {
        uint64_t bytes = (p->read_bytes + (units - 1) * p->stride_bytes + block - 1) / block * block;
        if (bytes > READS_MAX_BYTES)
            break;
        double weight = ceil(READS_QUARTERS * read_ns(hw, *q, (double)bytes) / one_ns) / READS_QUARTERS;
        weight = fmax(weight, 1 + 1.0 / READS_QUARTERS);
        if (weight / units >= per_unit)
            continue;
        while (j.n > 0 && j.at[j.n - 1].weight >= weight) /* a longer one takes no longer */
            j.n--;
        j.at[j.n++] = (struct reads_coalesce){ (uint32_t)bytes, weight };
        per_unit = weight / units;
    }
    *out = j;
}

int coalesce_of(const struct hw *hw, const struct layout_shape *s, uint64_t range_bytes, struct coalesce out[REPLAY_RULES])
{
    struct hw_read q = { .backend = HW_ANY_BACKEND, .pattern = HW_RANDOM, .range_bytes = range_bytes, .lanes = 1,
                         .core_class = -1 };
    double one = cost_read_bytes(s, s->n_parts - 1), best = 0;
    int n = 1;
    out[0] = (struct coalesce){ 0 };
    for (int depth = 1; depth <= MAX_DEPTH; depth *= 2) {
        struct hw_read now = q;
        now.queue_depth = depth;
        double ns = read_ns(hw, now, one);
        if (ns > 0 && (best == 0 || ns < best)) {
            best = ns;
            q.queue_depth = depth;
        }
    }
    if (best == 0)
        return 1;
    find(hw, &q, s, SHORT_UNITS, best, &out[n]);
    n += out[n].n > 0;
    find(hw, &q, s, LONG_UNITS, best, &out[n]);
    n += out[n].n > out[n - 1].n;
    return n;
}

uint32_t coalesce_read_bytes(const struct coalesce *j)
{
    return j->n > 0 ? j->at[j->n - 1].bytes : 0;
}

void coalesce_rule(const struct coalesce *j, const struct layout_shape *s, struct reads_rule *out)
{
    reads_rule_init(s, s->n_parts - 1, j->at, j->n, budget_read_bytes(s, coalesce_read_bytes(j)), out);
}
