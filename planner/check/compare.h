#ifndef PLANNER_CHECK_COMPARE_H
#define PLANNER_CHECK_COMPARE_H

/* Figures beside figures. Pure; thread-safe. */
#include "common/plan/plan.h"

#define COMPARE_TOLERANCE 2e-5 /* figures are written with six digits */

/* Do two figures differ by more than their digits? */
int compare_differs(double a, double b);

/* The first figure of one batch size that does, by its path below "predicted". */
struct compare_difference {
    char field[48];
    double said, is;
};
int compare_figures(const struct plan *p, const struct plan_figures *said, const struct plan_figures *is, struct compare_difference *d);

#endif
