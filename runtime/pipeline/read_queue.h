#ifndef RUNTIME_PIPELINE_READ_QUEUE_H
#define RUNTIME_PIPELINE_READ_QUEUE_H

/* Where the bytes of neurons that are not resident come from: the cold cache, or a read (the paper's "In-Memory Neuron
 * Cache" and "Flexible Neuron Loading"). It decides which missing units of a list one read brings (common/plan/reads.h), keeps
 * as many reads in flight as it has buffers, takes in what has arrived, and verifies it. Short reads, EINTR and
 * EAGAIN are continued below (runtime/io/io.h); what differs from its checksum is read once more (runtime/io/verify.h).
 *
 *      look up ──► CACHED, pinned
 *         └──────► MISSING ── issue ──► READING ── collect ──► ADMITTED, pinned (copied to a slot; the buffer is free. Where slots are
 *                                                  │           whole blocks, a unit that is read alone is admitted at issue, read there)
 *                                                  └─────────► STAGED (used from its buffer)
 *      release: unpin, or free the buffer with its last entry                      verify: before anybody else looks
 *
 * Ownership: the queue has the read buffers, the caches' state and, of lists, kind, base, where and issue. Entries belong to the
 * caller, who appends them in pack order and releases each exactly once when nobody needs its bytes any more.
 *
 * Threads: the coordinator calls everything, but for read_queue_verify, which workers call for entries that they have taken,
 * and read_queue_reads, which anybody may. No lock is taken. Rules 1 to 7, 9, 18 and 19 of runtime/README.md. */
#include "common/base/err.h"

#include "runtime/pipeline/block.h"

struct read_queue;
struct predictor_prefetch;
struct expert_prefetch;
struct rest_reads;

/* Arrivals of one call, at most so many, or until they have so many bytes: a drive that ends all of its reads at once has new ones, and
 * workers have work, before all of them are copied. */
#define READ_QUEUE_BATCH       16
#define READ_QUEUE_BATCH_BYTES (64u << 10)

/* c outlives it. Takes memory.reads and the buffers at the beginning of staging; behind those and config.area, streamed predictors
 * (predictor_prefetch.h).
 * NULL: ERR_NOMEM. */
struct read_queue *read_queue_new(const struct pipeline_config *c, struct err *e);
void read_queue_free(struct read_queue *q); /* after the backend is closed; accepts NULL */

/* At most so many reads of neurons are in flight from now on, of those that there are buffers for. Between passes. */
void read_queue_use(struct read_queue *q, uint32_t depth);

/* Lists of a layer are made next, for all units of it that this pass needs now. */
void read_queue_begin(struct read_queue *q, int layer);

/* A list's rule for reading: neighbouring units in one read, and for neurons units through gaps where the plan has joins. */
void read_queue_rule(const struct read_queue *q, struct list *l);

/* What the lookup of a unit will touch, ahead of it, in stages (cache_prefetch). */
void read_queue_prefetch(const struct read_queue *q, const struct list *l, uint32_t unit, int stage);

/* The bytes of the entry's unit: 1, CACHED, or ADMITTED where it was read ahead, and pinned; 0, MISSING, or READING where it is on its
 * way. */
int read_queue_lookup(struct read_queue *q, struct list *l, struct entry *e);

/* Starts reads of the lists in their order, and of each in list order, until `most` are in flight or no buffer is free; then of experts
 * that are read ahead, and of FFNs' rest. A read whose window reaches known_to waits. *pressure: reads wait for buffers. ERR_IO,
 * ERR_INTR. */
int read_queue_issue(struct read_queue *q, struct list *const *lists, int n, uint32_t most, int *pressure, struct err *e);

/* Takes in what has arrived; waits for a read when `wait` is set and one is in flight. Reads of streamed predictors are theirs,
 * and no arrivals. Returns how many arrivals there are; *more: there may be others. ERR_IO, ERR_INTR. */
int read_queue_collect(struct read_queue *q, int wait, struct read_arrival out[READ_QUEUE_BATCH], int *more, struct err *e);

/* Nobody needs the bytes of an entry any more. */
void read_queue_release(struct read_queue *q, const struct list *l, const struct entry *e);

/* Reads in flight, those of streamed predictors too; and the same as it was when reads were last issued, for any thread. */
int read_queue_in_flight(const struct read_queue *q);
uint32_t read_queue_reads(struct read_queue *q);

/* A worker: verifies those of entries idx[n] of a list that were read in this pass. ERR_IO names the unit. */
int read_queue_verify(const struct list *l, const uint32_t *idx, int n, struct verify_counts *c, struct err *e);

/* These blocks of a layer, at most SCHEDULE_MAX_BLOCKS, come after the lists that are read now: their units are read early, in order, into
 * buffers that no list needs, all but one, when everything that lists lack is on its way. The lists that are made next take them, or
 * they go. Replaces what followed before. Only units of one part, in dense mode, of several blocks: else it does nothing. */
void read_queue_follow(struct read_queue *q, int layer, const uint16_t *blocks, int n);
int read_queue_can_follow(const struct read_queue *q);
int read_queue_follows(const struct read_queue *q); /* there may be something to start or to take in */

/* Experts that are read ahead. */
struct expert_prefetch *read_queue_experts(struct read_queue *q);

/* The rest of FFNs. */
struct rest_reads *read_queue_rest(struct read_queue *q);

/* Streamed predictors, or NULL. */
struct predictor_prefetch *read_queue_predictors(struct read_queue *q);

/* Lookups in parts that hold gates, and of those, units that were cached; since new. */
void read_queue_gates(const struct read_queue *q, uint64_t *lookups, uint64_t *hits);

#endif
