#ifndef RUNTIME_PIPELINE_EXPERT_PREFETCH_H
#define RUNTIME_PIPELINE_EXPERT_PREFETCH_H

/* Experts that the next layer will probably use, read before its router has chosen: while a layer's experts are computed, and during
 * the attention that follows, the storage would otherwise wait. Which they are says whoever calls: the next layer's router on this
 * layer's residual stream; of the first layer with experts, its router on what it begins with. A unit is read into a slot of the cold
 * cache that nothing verified yet may be taken from:
 *
 *      wanted ── issue ──► READING ── came ──► ARRIVED ── taken by a list ──► an entry like any other that was read, verified
 *                             │                   └─────── not taken ───────► its slot is free again: it is not in the cache
 *                             └── taken by a list ──► the list's entry becomes ready when it has come
 *
 * A layer of which fewer than EXPERT_AHEAD_LEAST of EXPERT_AHEAD_TRIES units were taken rests for a while (common/plan/expert_ahead.h), so
 * that a model whose routers cannot be foreseen pays for few such reads. No bit of any result depends on what is read ahead.
 *
 * Only where slots and units are whole device blocks, in layouts of one part (tiles, bundles): what is read alone goes into its slot.
 * Threads: the coordinator calls everything. Rules 7 and 18 of runtime/README.md. */
#include "common/base/err.h"
#include "common/plan/expert_ahead.h"

#include "runtime/pipeline/block.h"

struct expert_prefetch;

/* c outlives it. Tags of its requests begin at `tag`. By malloc. NULL: ERR_NOMEM. */
struct expert_prefetch *expert_prefetch_new(const struct pipeline_config *c, uint32_t tag, struct err *e);
void expert_prefetch_free(struct expert_prefetch *f); /* after the backend is closed; accepts NULL */

/* Can units of the layer be read ahead, and does it not rest? To be asked once a pass. */
int expert_prefetch_wants(struct expert_prefetch *f, int layer);

/* The layer's blocks[n], likeliest first, are wanted next; what was wanted before and has not been taken goes. Nothing is wanted where the
 * cache has less room than for twice as many blocks. */
void expert_prefetch_begin(struct expert_prefetch *f, int layer, const uint16_t *blocks, int n);

/* Units of the layer are looked up from here on: of what is wanted of it, nothing more is begun. */
void expert_prefetch_close(struct expert_prefetch *f, int layer);

/* Starts reads until `most` are in flight. */
int expert_prefetch_issue(struct expert_prefetch *f, uint32_t most, struct err *e);

/* Is there anything to issue or to take in? f may be NULL. */
int expert_prefetch_busy(const struct expert_prefetch *f);

int expert_prefetch_in_flight(const struct expert_prefetch *f);

/* After a lookup that found the unit in `slot`, pinned: 0, it was cached; else it was read ahead, and the entry is ADMITTED (1) or, not
 * there yet, READING (2). */
int expert_prefetch_take(struct expert_prefetch *f, struct list *l, struct entry *x, uint32_t slot);

/* A request came back: 1, an entry of a list has its bytes now, and *out names it; 0, none waits for it. ERR_IO. */
int expert_prefetch_came(struct expert_prefetch *f, const struct io_request *r, struct read_arrival *out, struct err *e);

struct expert_prefetch_stats {
    uint64_t reads, taken; /* units */
};
struct expert_prefetch_stats expert_prefetch_stats(const struct expert_prefetch *f); /* f may be NULL: zeros */

#endif
