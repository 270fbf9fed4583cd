#ifndef COMMON_OFFLINE_TRACE_TOGETHER_H
#define COMMON_OFFLINE_TRACE_TOGETHER_H

/* An FFN's order from hot to cold, in which neurons that fire in the same tokens stand beside each other. What misses in a token then lies
 * in fewer, longer runs, which are fewer reads (common/plan/reads.h); units of several neurons hold more that is asked for.
 *
 * The order by heat is cut into equal parts, TOGETHER_PARTS of them or as many as have TOGETHER_MOST neurons each, and neurons keep to
 * theirs: hot sets that end with a part are those of the order by heat. In a part it is a path on which neighbours fire together as often
 * as greedy choice, and then turning and moving of pieces, find; the runs of a token are what fires less what fires with the neighbour
 * before it. The same lists give the same order. */
#include "common/base/err.h"

#include <stdint.h>

#define TOGETHER_PARTS  4
#define TOGETHER_MOST   1024          /* neurons of a part */
#define TOGETHER_TOKENS 4096          /* that are looked at, at most, */
#define TOGETHER_PAIRS  (1 << 26)     /* and pairs of neurons that fire in a part; there may be as many again of the last token */

/* order[n]: by heat, and in the end by firing together. fired[n_tokens]: of each token bits of the neurons that fire, numbered by their
 * place in `order` as it is given, in n / 64 + 1 words. n_tokens <= TOGETHER_TOKENS. ERR_NOMEM. */
int together_order(const uint64_t *const *fired, int n_tokens, int n, uint32_t *order, struct err *e);

#endif
