#ifndef PLANNER_SOLVE_SOLVE_Z3_H
#define PLANNER_SOLVE_SOLVE_Z3_H

/* Z3 behind solve.h: the plan, or which limits contradict each other. One owner thread. */
#include "planner/solve/solve.h"

/* Z3: which constraints contradict each other, when they do; else the plan. The incumbent is solve_greedy's; Z3 is asked for a
 * choice that beats it, over the problem's text (solve_text.h), and its answer is the next incumbent, until there is none, or until
 * Z3 stops. finished: Z3 has proven that nothing lies below the relaxation. bound: what Z3 has proven that nothing lies below; where
 * it ended, the objective itself. rlimit: of a question; 0: none. Deterministic for a seed. */
int solve_z3(const struct solve_problem *p, uint64_t rlimit, uint64_t seed, struct solve_result *out, struct err *e);

/* The problem as text with what Z3 has proven of it, each claim with the answer that any Z3 gives. ERR_SYS: Z3 stopped. */
int solve_z3_text(const struct solve_problem *p, uint64_t rlimit, uint64_t seed, FILE *out, struct err *e);

/* Z3's answer to the first question alone: SOLVE_ bits of the constraints that contradict each other, no fewer of which do; 0:
 * they do not. */
int solve_z3_core(const struct solve_problem *p, uint64_t seed, unsigned *core, struct err *e);
void solve_z3_version(char *out, size_t len); /* "z3 4.8.12" */

#endif
