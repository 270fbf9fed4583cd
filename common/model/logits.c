#include "common/model/logits.h"

#include <math.h>

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
