#ifndef PLANNER_SOLVE_REFUTE_H
#define PLANNER_SOLVE_REFUTE_H

/* Z3's own reader of SMT-LIB 2, as the program z3 has it. */
#include "common/base/err.h"

/* Runs the text. *checks: how many answers it gave, *unsat: how many of them are `unsat`. ERR_FORMAT where the text is no SMT-LIB;
 * ERR_NOMEM. */
int refute_text(const char *text, int *checks, int *unsat, struct err *e);

#endif
