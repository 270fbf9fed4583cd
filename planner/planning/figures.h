#ifndef PLANNER_PLANNING_FIGURES_H
#define PLANNER_PLANNING_FIGURES_H

/* What a plan says of the device figures that it rests on. Published figures have neither age nor marks, and nothing is
 * said of them. */
#include "common/offline/hwdb/hwdb.h"
#include "common/plan/plan.h"

#include "planner/inputs/notes.h"

#define FIGURES_OLD_S      (24 * 3600)
#define FIGURES_SMALL_PAGES (1 << 20) /* huge pages have at least so many bytes */
#define FIGURES_RANGE_LESS 4 /* the cold data may be so many times the range that storage was measured in */

/* When the figures were measured. */
void figures_measured(const struct hw *hw, struct notes *notes);

/* Tables that were measured beside other programs; storage that was measured in a smaller range than p reads in (a
 * drive is faster within a part of it). */
int figures_doubts(const struct hw *hw, const struct plan *p, struct notes *notes, struct err *e);

/* Tables that were measured more than a day before now (seconds since 1970). Not for a plan, which is the same whenever
 * it is made. */
void figures_age(const struct hw *hw, int64_t now, struct notes *notes);

#endif
