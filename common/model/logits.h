#ifndef COMMON_MODEL_LOGITS_H
#define COMMON_MODEL_LOGITS_H

/* Distributions of the next token, as logits give them. Sums in double, in the order of the tokens. Thread-safe; cannot fail. */
#include <stdint.h>

/* ln of the sum of exp(x[i]), f32[n], n > 0; ln p(i) is x[i] less that. *top, unless NULL: the likeliest, the first among equals. */
double logits_log_sum(const float *x, int n, int *top);

/* The same within 1e-6, for each token that is drawn: a tenth of the time. */
double logits_log_sum_near(const float *x, int n);

/* The k largest of x[n], the largest first, among equals the first first; without minus infinity and NaN. ids[k]; how many there are. */
int logits_best(const float *x, int n, int k, int32_t *ids);

/* Can a token be drawn by them? The first that is NaN or infinite; 0 where all are minus infinity; -1: they can. Some may be minus
 * infinity. */
int logits_bad(const float *x, int n);

struct logits_difference {
    double kl;                   /* KL(a, b) in nats; where they are equal, rounding may leave it below 0 */
    double log_sum_a, log_sum_b;
    int same;                    /* the likeliest token is the same */
};

struct logits_difference logits_compare(const float *a, const float *b, int n);

#endif
