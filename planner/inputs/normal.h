#ifndef PLANNER_INPUTS_NORMAL_H
#define PLANNER_INPUTS_NORMAL_H

/* The normal distribution function Phi, and its inverse for 0 < p < 1. Pure; thread-safe. */
double normal_cdf(double x);
double normal_quantile(double p);

#endif
