/* Fuzz entry: any bytes as a model description. What parses gives probabilities, descending, or says why not. */
#include "planner/describe/describe.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct describe d;
    struct err e;
    if (describe_parse((const char *)data, size, "fuzz", &d, &e) < 0 || d.rate[0] == 0 || d.h.n_ff > 1 << 16)
        return 0;
    double *p = malloc((size_t)d.h.n_ff * sizeof *p);
    if (p && describe_rates(&d, "fuzz", p, &e) == 0)
        for (int i = 0; i < d.h.n_ff; i++)
            if (!(p[i] >= 0 && p[i] <= 1) || (i && p[i] > p[i - 1] + 1e-9))
                abort();
    free(p);
    return 0;
}
