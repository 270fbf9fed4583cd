#include "planner/check/compare.h"

#include <math.h>
#include <stdio.h>

int compare_differs(double a, double b)
{
    return fabs(a - b) > COMPARE_TOLERANCE * fmax(fabs(a), fabs(b)) + 1e-9;
}

int compare_figures(const struct plan *p, const struct plan_figures *said, const struct plan_figures *is, struct compare_difference *d)
{
    const struct {
        const char *key;
        double said, is;
    } whole[] = {
        { "tokens_per_s", said->tokens_per_s, is->tokens_per_s }, { "step_ns", said->step_ns, is->step_ns },
        { "head_ns", said->head_ns, is->head_ns }, { "read_bytes", said->read_bytes, is->read_bytes },
        { "hit_rate", said->hit_rate, is->hit_rate },
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (compare_differs(whole[i].said, whole[i].is)) {
            *d = (struct compare_difference){ .said = whole[i].said, .is = whole[i].is };
            snprintf(d->field, sizeof d->field, "%s", whole[i].key);
            return 1;
        }
    for (int c = 0; c < PLAN_COLUMNS; c++)
        for (int l = 0; l < p->n_layers; l++) {
            double a = *plan_column_at(&said->layers[l], c), b = *plan_column_at(&is->layers[l], c);
            if (compare_differs(a, b)) {
                *d = (struct compare_difference){ .said = a, .is = b };
                snprintf(d->field, sizeof d->field, "layers.%s[%d]", plan_columns[c].key, l);
                return 1;
            }
        }
    return 0;
}
