/* Names of what a device's figures are told apart by, percentiles of samples, and what a struct hw holds given back. */
#include "common/hwdb/hwdb_parts.h"

#include "common/base/names.h"
#include "common/kernels/quant.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

NAMES(hw_pattern_name, enum hw_pattern, "seq", "random")
NAMES(hw_origin_name, enum hw_origin, "measured", "published", "estimated")
NAMES(hw_term_name, enum hw_term, "attention", "predict", "ffn", "io", "head")
NAMES(hw_table_name, enum hw_table, "compute", "memory", "storage", "joint", "accelerator")

const char *hw_backend_name(enum hw_backend b)
{
    return b == HW_ANY_BACKEND ? "any" : b == HW_URING ? "io_uring" : "pread";
}

void hw_op_name(const char *op, uint32_t type, const char *act, char *out, size_t len)
{
    const struct quant_traits *t = quant_traits(type);
    snprintf(out, len, "%s/%s%s%s", op, t ? t->name : "?", act ? "/" : "", act ? act : "");
    for (char *p = out; *p; p++)
        *p = (char)tolower((unsigned char)*p);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, int n, double q)
{
    double at = q * (n - 1);
    int i = (int)at;
    return i + 1 < n ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

struct hw_dist hw_dist_of(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return (struct hw_dist){ percentile(values, n, 0.1), percentile(values, n, 0.5),
                             percentile(values, n, 0.9) };
}

void hw_free(struct hw *h)
{
    int *n;
    for (int k = 0; k < HWDB_KINDS; k++) {
        void **a = hwdb_array(h, (enum hwdb_kind)k, &n);
        free(a ? *a : NULL);
    }
    memset(h, 0, sizeof *h);
}

void hw_sources_done(struct hw_sources *s)
{
    for (int k = 0; k < HWDB_KINDS; k++) {
        for (int i = 0; s->samples[k] && i < s->n_samples[k]; i++)
            free(s->samples[k][i].s);
        free(s->samples[k]);
        free(s->of[k]);
    }
    memset(s, 0, sizeof *s);
}
