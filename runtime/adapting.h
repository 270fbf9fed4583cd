#ifndef RUNTIME_ADAPTING_H
#define RUNTIME_ADAPTING_H

/* The online choice of a model that answers requests: hands what passes took to the state machine (session/adapt.h), and what it says to
 * the engine. Passes that read prompts are not looked at. One thread, that of the engine. */
#include "runtime/engine/engine.h"
#include "runtime/session/adapt.h"
#include "runtime/setup.h"

#include <stdio.h>

enum adapting_how {
    ADAPTING_ON,
    ADAPTING_OFF,           /* passes are made as the plan says */
    ADAPTING_CYCLE,         /* the next way at every pass: for tests, and to measure what a change takes */
    ADAPTING_FIXED          /* the first alternative, and nothing else; + 1: the second, ... */
};
extern const char *const adapting_names[]; /* "on" "off" "cycle" "1" "2" ... "8", NULL */

struct adapting {
    int how;                /* enum adapting_how */
    const struct setup *s;
    struct adapt a;
    uint64_t cycled;        /* changes of ADAPTING_CYCLE */
};

/* s outlives it. compares: whether the plan's times are those of what runs. ERR_USAGE: there are not so many alternatives; and errors of
 * engine_use_way. */
int adapting_init(struct adapting *a, const struct setup *s, struct engine *g, int how, int compares, struct err *e);

/* A step is over, which read no prompt, and took so much; its texts are at that position in the mean. The engine may be another way from
 * here on. What goes wrong with reading is the next pass's to say. */
void adapting_passed(struct adapting *a, struct engine *g, const struct engine_stats *took, int position);

/* ,"adapt":{...}: runtime/README.md. */
void adapting_json(FILE *f, const struct adapting *a);

#endif
