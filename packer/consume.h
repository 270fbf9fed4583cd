#ifndef PACKER_CONSUME_H
#define PACKER_CONSUME_H

/* thermo-pack pack --consume: the blocks of the GGUF are freed while it is packed, so that a model that fills the disk can be
 * packed.
 *
 * What is promised. Interrupted at any moment, SIGKILL and power failure included, the same command goes on and comes to the bytes
 * of an undisturbed run (which are those of a run without --consume), or the GGUF is as it was. Nothing is freed that was not
 * compared with the trace, and whose packed form is not on disk.
 *
 * Files. OUT.packing is the pack as far as it is written, OUT.partial the journal (common/base/journal.h): checksums of the
 * source's pieces, then checkpoints. Both go when the pack gets its name. The GGUF keeps its header; its data become a hole of the
 * same size, and it is marked (common/model/gguf_consumed.h), so every program says which pack consumed it in place of reading
 * zeros.
 *
 * Order. (1) The source may be consumed: consume_new, which refuses what is not the user's own to lose. (2) The source is read
 * whole and compared with the trace; the checksums of its pieces are the journal's first record, so what a later process reads is
 * compared with what was verified, though the tensor's hash can no longer be computed. (3) Packing as ever, front to back: dense
 * tensors in pieces of 1 MiB, then FFNs in order. Each source tensor is read from its first to its last byte, once (a block of
 * experts: its share), so what was packed of it is a prefix, `packed`. (4) After each step (1/200 of the source, a MiB at least),
 * and before and after what is larger: OUT.packing is synced; a record says how far it is (its size, the table's new entries,
 * checksums of clusters and units, sums of what changes of types cost, every tensor's prefix) and is synced; at the first time the
 * source is marked; then the prefixes are freed, by whole pieces, for a read within a piece compares all of it. A process that goes
 * on frees the prefixes of the last record again, which costs nothing. (5) When all is packed, what lies between neighbours goes
 * too.
 *
 * Space beyond the source's own: a step and one unit of work: a MiB of a dense tensor, a whole one where it is compressed, an FFN
 * (of a dense model its layer's Gate, Up and Down: their rows are reordered and Down transposed, so none can go before all are
 * written), and what a pack has that a GGUF has not: predictors, order, checksums.
 *
 * Kept in the file: tensors that the pack has not (layers that predict further tokens), thresholds of neurons, which are read when
 * a model is opened; until the end those that share bytes with others (parts of fused tensors). */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "packer/source.h"

#include <stdint.h>

struct consume;

/* Looks whether the model, with all its shards, may be consumed: ERR_USAGE says why not, and nothing was touched. They are open and
 * locked from here on. */
int consume_new(const char *model, struct consume **out, struct err *e);
void consume_free(struct consume *c); /* accepts NULL; what is not finished can be gone on with, or where nothing was freed yet, goes */

/* 1 where the model was consumed, or begun to be, by a pack of that name; 0: it is whole; ERR_MISMATCH: by another pack. */
int consume_begun(const struct consume *c, const char *pack, struct err *e);

/* Opens the journal of `out` and compares the source with its trace, or takes what an interrupted run has verified. config: all
 * that the pack's bytes depend on. source was opened by source_open_consumed, and is compared with its trace only where there is no
 * journal yet. */
int consume_begin(struct consume *c, struct source *s, const char *out, struct hash128 config, struct err *e);

/* Checkpoints of the interrupted run, 0: there was none; and the i-th, malloc'd. */
size_t consume_records(const struct consume *c);
int consume_record(struct consume *c, size_t i, uint8_t **record, size_t *len, struct err *e);

/* `done` bytes of a tensor are in the pack, if not on disk yet. */
void consume_packed(struct consume *c, const struct gguf_tensor *t, uint64_t done);
uint64_t *consume_prefixes(struct consume *c); /* [n_tensors], what that is of each: for the record, and from it */

/* Is it time for a checkpoint, when so many bytes of the source come next? */
int consume_due(const struct consume *c, uint64_t next);

/* The record is on disk, then what was packed is freed. What it speaks of must be on disk already. record NULL: as the last one
 * says. */
int consume_checkpoint(struct consume *c, const void *record, size_t len, struct err *e);

/* The last of it. After the pack has its name, `finished`, the journal goes. */
int consume_rest(struct consume *c, struct err *e);
void consume_finished(struct consume *c);

/* Bytes that are needed beside the source, of a pack of so many; unit: the largest FFN. */
uint64_t consume_space(const struct consume *c, const char *out, uint64_t pack_bytes, uint64_t unit);

/* 1 where `out` has its name already, and only the journal may still be there, which goes. */
int consume_done(const struct consume *c, const char *out);

#endif
