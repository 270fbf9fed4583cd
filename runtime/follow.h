#ifndef RUNTIME_FOLLOW_H
#define RUNTIME_FOLLOW_H

/* Who changes the memory limit without being asked by a request: a thread that rereads a file when SIGUSR1 comes, and watches how long the
 * system's programs, or those of a control group, wait for memory (PSI, Linux, Documentation/accounting/psi.rst). */
#include "common/base/err.h"

#include <stdint.h>

#define FOLLOW_BYTES (64u << 10) /* of the process: the thread's stack */

struct follow_config {
    const char *file;             /* with a size as --memory has it, or NULL */
    const char *pressure;         /* as /proc/pressure/memory, or NULL */
    uint64_t least;               /* limit that pressure takes it down to, at least */
    uint64_t (*now)(void *ctx);   /* the limit that holds */
    int (*resize)(void *ctx, uint64_t bytes, struct err *e);
    void *ctx;
};

struct follow;

/* From here on SIGUSR1 is counted, where there is a file. ERR_INPUT, ERR_FORMAT: the pressure is not to be read. */
int follow_new(const struct follow_config *c, struct follow **out, struct err *e);
/* What was counted is done, and what comes. most: the limit that pressure lets it go up to. */
int follow_start(struct follow *f, uint64_t most, struct err *e);
void follow_free(struct follow *f); /* waits for a change under way; accepts NULL */

/* ---- the rule, without clock and files ---- */

/* Four steps between the most and the least; one down where somebody waited for a tenth of the time or more, one up after a while in which
 * nobody waited for a hundredth, and twice as long a while where waiting began again within one after that. */
struct follow_rule {
    uint64_t least, most;
    double quiet_s, wait_s;       /* nobody waited for so long; and has to, before it goes up */
    double since_up_s;
};
void follow_rule_init(struct follow_rule *r, uint64_t least, uint64_t most);

/* The limit from here on: `seconds` have passed, in a share of which somebody waited. */
uint64_t follow_rule_step(struct follow_rule *r, uint64_t now, double seconds, double share);

#endif
