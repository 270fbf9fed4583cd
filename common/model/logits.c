#include "common/model/logits.h"

#include "common/model/nn_exp.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16 };

double logits_log_sum(const float *x, int n, int *top)
{
    int best = 0;
    double sum = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)x[best]);
    if (top)
        *top = best;
    return (double)x[best] + log(sum);
}

int logits_best(const float *x, int n, int k, int32_t *ids)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        int at = found;
        if (!(x[i] > -INFINITY) || (found == k && !(k > 0 && x[i] > x[ids[k - 1]]))) /* nearly all */
            continue;
        found += found < k;
        at = at < k ? at : k - 1;
        for (; at > 0 && x[i] > x[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return found;
}

static float largest(const float *x, int n)
{
    float lanes[LANES], best = x[0];
    int i = 0;
    for (int k = 0; k < LANES; k++)
        lanes[k] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
    for (int k = 0; k < LANES; k++)
        best = lanes[k] > best ? lanes[k] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

double logits_log_sum_near(const float *x, int n)
{
    float best = largest(x, n), terms[NN_EXP_LANES];
    double sums[NN_EXP_LANES] = { 0 };
    int i = 0;
    for (; i + NN_EXP_LANES <= n; i += NN_EXP_LANES) {
        nn_f4 v = nn_exp(nn_load(x + i) - nn_all(best));
        memcpy(terms, &v, sizeof terms);
        for (int k = 0; k < NN_EXP_LANES; k++)
            sums[k] += (double)terms[k];
    }
    for (; i < n; i++)
        sums[0] += exp((double)x[i] - (double)best);
    return (double)best + log(sums[0] + sums[1] + (sums[2] + sums[3]));
}

/* Once for each row of logits: nothing but additions where all are finite. */
static int all_finite(const float *x, int n)
{
    uint32_t bits[LANES], bad[LANES] = { 0 }, any = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        memcpy(bits, x + i, sizeof bits);
        for (int k = 0; k < LANES; k++)
            bad[k] |= (bits[k] & 0x7fffffff) + 0x00800000; /* an exponent of ones carries into the sign */
    }
    for (int k = 0; k < LANES; k++)
        any |= bad[k] & 0x80000000;
    for (; i < n; i++)
        any |= !isfinite(x[i]);
    return !any;
}

int logits_bad(const float *x, int n)
{
    int finite = 0;
    if (all_finite(x, n))
        return -1;
    for (int i = 0; i < n; i++) {
        if (isnan(x[i]) || x[i] > FLT_MAX)
            return i;
        finite += x[i] >= -FLT_MAX;
    }
    return finite ? -1 : 0;
}

struct logits_difference logits_compare(const float *a, const float *b, int n)
{
    int top_a, top_b;
    struct logits_difference d = { .log_sum_a = logits_log_sum(a, n, &top_a), .log_sum_b = logits_log_sum(b, n, &top_b) };
    for (int i = 0; i < n; i++) {
        double p = (double)a[i] - d.log_sum_a;
        d.kl += exp(p) * (p - ((double)b[i] - d.log_sum_b));
    }
    d.same = top_a == top_b;
    return d;
}
