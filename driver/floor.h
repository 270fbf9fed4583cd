#ifndef DRIVER_FLOOR_H
#define DRIVER_FLOOR_H

/* Whether there is a plan at all, by the model's header alone, before an hour of work. 0, and zeros and experts; ERR_*; 4 where limit or
 * context are below the floor: that is said, and the command that would do, as it was typed. Scripts that type it say how in the
 * environment: THERMOCLINE_TYPED, to which options are added, and, where these go into one word of it, THERMOCLINE_FLAGS,
 * what the word has. */
#include "driver/drive.h"

int floor_ask(struct drive *d, struct err *e);

#endif
