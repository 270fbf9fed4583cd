#ifndef DRIVER_STAGES_H
#define DRIVER_STAGES_H

/* Everything that has to be made before the model runs: figures of the machine, a trace, a plan, a pack. What is there already and was made
 * from the same is used again; what is done, and why, is said. */
#include "driver/drive.h"

/* 0; ERR_*; a positive number is the exit status of the program that failed, which is said. */
int stages_make(struct drive *d, struct err *e);

/* The options of thermo-plan solve that follow from what was asked for: --memory, --for, --plan-flags, --context. */
void stages_words_plan(const struct drive *d, struct words *w);

#endif
