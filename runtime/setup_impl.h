#ifndef RUNTIME_SETUP_IMPL_H
#define RUNTIME_SETUP_IMPL_H

/* What setup.c and setup_accel.c share. */
#include "runtime/setup.h"

/* Opens what --engine names, with programs for the pack's types, before the account is made: fills config.accel and accel_driver_bytes. A
 * failure is ERR_IO where --engine-fail exit is given, and otherwise a warning. ERR_USAGE: options that cannot be. */
int setup_accel_open(struct setup *s, struct err *e);

/* Without it from here on: there is not the memory for it, which is why. As above. */
int setup_accel_drop(struct setup *s, const struct err *why, struct err *e);

/* Memory that the account has no item for: the driver's, and buffers for the choice's passes. */
uint64_t setup_accel_bytes(const struct setup *s);

/* When it fits: in predicted mode what it has in every pass of decoding is not predicted. */
void setup_accel_always(struct setup *s);

/* ---- setup_elastic.c ---- */

/* Keeps the limits of the plan's elastic group that has the one for --elastic. *l is chosen for the limit that it begins with; it becomes
 * that one, and s->memory_bytes what --elastic says. */
int setup_elastic_open(struct setup *s, const struct plan *p, const struct plan_limit **l, struct err *e);

/* When all that stays is chosen, for --elastic: the limit that it begins with. */
int setup_elastic_begin(struct setup *s, struct err *e);

void setup_elastic_close(struct setup *s);

/* ---- setup.c ---- */

/* What of a limit of the plan is kept but for neurons and predictors, and what its step takes; by that, what passes need no other memory
 * for: threads, reads in flight, rules of reading, within config.choice. */
void setup_take_limit(struct setup *s, const struct plan_limit *l, const double terms[PLAN_TERMS]);
void setup_take_passes(struct setup *s);

uint64_t setup_taken_beside(const struct setup *s);

#endif
