/* Phi from erfc; its inverse by Newton's method, to 1e-12. */
#include "planner/inputs/normal.h"

#include <math.h>

double normal_cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

/* Newton's method on log cdf of the lower tail, which is concave and so converges from anywhere. */
double normal_quantile(double p)
{
    double q = p > 0.5 ? 1 - p : p, x = -sqrt(fmax(0, -2 * log(2 * q)));
    for (int i = 0; i < 60; i++) {
        double c = normal_cdf(x), density = exp(-x * x / 2) / sqrt(2 * acos(-1)), step = c / density * log(c / q);
        x -= step;
        if (fabs(step) < 1e-12 * (1 + fabs(x)))
            break;
    }
    return p > 0.5 ? -x : x;
}
