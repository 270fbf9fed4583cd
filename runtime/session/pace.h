#ifndef RUNTIME_SESSION_PACE_H
#define RUNTIME_SESSION_PACE_H

/* How many tokens a pass may hold so that it takes at most so long, by what passes took. A pass of more tokens takes longer, and no more
 * than in proportion, for what it reads and looks up serves all of them: so a pass that was measured bounds those of fewer tokens by its
 * time, and those of more by its time for each token. What was measured long ago counts no longer, so that one slow pass is forgotten.
 * No allocation. One thread. */
#include <stdint.h>

enum { PACE_SIZES = 10, PACE_KEPT = 64 }; /* powers of two of tokens; passes after which one is forgotten */

struct pace {
    double most_ns;              /* of a pass; 0: any time */
    struct {
        int tokens;              /* 0: none was measured */
        double ns;
        uint64_t at;             /* which pass */
    } of[PACE_SIZES];            /* the last pass of 2^i to 2^(i+1) - 1 tokens */
    uint64_t passes;
};

void pace_took(struct pace *p, int tokens, double ns); /* tokens >= 1 */

/* 1 to most. */
int pace_tokens(const struct pace *p, int most);

#endif
