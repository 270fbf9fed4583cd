#ifndef PLANNER_CHECK_AGAIN_H
#define PLANNER_CHECK_AGAIN_H

/* A plan beside the one that the same request gives now, field by field. */
#include "common/plan/plan.h"

/* ERR_MISMATCH naming the first field that differs, by its path in the JSON, and both values. */
int again_compare(const struct plan *p, const char *name, const struct plan *again, struct err *e);

#endif
