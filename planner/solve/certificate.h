#ifndef PLANNER_SOLVE_CERTIFICATE_H
#define PLANNER_SOLVE_CERTIFICATE_H

/* A proof that anyone can check: a solver's problem as SMT-LIB 2 with its claim negated, refuted configuration by configuration.
 *
 * The claim: no choice of cores, queue and points has an objective below `claim` (solve.h: sum of w_b T_b, ticks). For each
 * configuration and batch size the writer picks one multiplier p / q (ticks per 64 bytes, q > 0) and for each layer a number c, and
 * writes two things to refute:
 *
 *   lemma       some priced point (x, t) of a layer lies below the layer's tangent:  q t + p x < c
 *   refutation  some T_b, X_b with  q T_b + p X_b >= sum of c,  X_b <= memory - fixed bytes,  and
 *               sum of w_b (fixed_b + max(floor_b, T_b)) < claim
 *
 * By the lemma the first line of the refutation holds for every choice of points, whose sums are T_b and X_b. Where not even the
 * smallest points fit, q = 0 and p = 1. All numbers are integers; a stock z3 answers `unsat` to every (check-sat). Curves are
 * written once for each distinct set of points. Prices are the file's data, not its claim: `thermo-plan check` derives them again.
 *
 * Which p, q and c are picked decides whether the file is refuted, never whether an `unsat` is true. One owner thread. */
#include "planner/solve/solve.h"

#include <stdio.h>

struct certificate;

/* Writes to f, which stays the caller's. NULL: out of memory. */
struct certificate *certificate_new(FILE *f);

/* A comment of one or more lines. */
void certificate_say(struct certificate *c, const char *text);

/* The claim about all configurations that follow, until the next: no plan with this memory (bytes) and context has an objective below
 * it. Written as a constant that refutations name, so that who changes it changes them. */
void certificate_claim(struct certificate *c, uint64_t memory, int context, int64_t claim);

/* One configuration of p, which has curves, under the claim. name: what it is, for the comment. 1: written; 0: written, but with
 * the multipliers picked the claim is not refuted (the configuration's bound lies below it); ERR_NOMEM. */
int certificate_config(struct certificate *c, const struct solve_problem *p, const struct solve_config *config, const char *name,
                       struct err *e);

/* The solution itself: its points fit the memory and their sums are its objective; refuted is that they are not. */
void certificate_result(struct certificate *c, const struct solve_problem *p, const struct solve_result *r);

/* How many (check-sat) the file has so far. */
int certificate_checks(const struct certificate *c);

/* Frees it, flushes f. ERR_IO where anything was not written; accepts NULL. */
int certificate_done(struct certificate *c, struct err *e);

/* The least claim of a file about this memory and context; 0: there is none. */
int64_t certificate_claimed(const char *text, uint64_t memory, int context);

#endif
