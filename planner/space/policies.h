#ifndef PLANNER_SPACE_POLICIES_H
#define PLANNER_SPACE_POLICIES_H

/* Which cache policy each variant runs with: the one that misses less in replay of a sample of layers. */
#include "common/plan/cache.h"

#include "planner/space/lookups.h"

/* Variants of one mix get the same policy; on equal misses, the first. Those that name a policy keep what out has.
 * lists stay in x where replay needs no more of them. */
int policies_choose(const struct space *s, struct lookups *x, enum cache_policy out[SPACE_MAX_VARIANTS], struct err *e);

#endif
