#ifndef COMMON_OFFLINE_TRACE_TRACE_SPEC_H
#define COMMON_OFFLINE_TRACE_TRACE_SPEC_H

/* The datasets of a trace as one table, from which reader, writer, merge and verification work; it
 * says what the table in schemas/trace.md says. Internal to trace*.c and their tests. */
#include "common/base/hash.h"
#include "common/offline/trace/trace_info.h"

#include <stdint.h>

enum trace_type { TRACE_U8, TRACE_U16, TRACE_U32, TRACE_U64, TRACE_F16, TRACE_F32, TRACE_TEXT, TRACE_TYPES };

enum trace_part { TRACE_PART_CORPUS, TRACE_PART_BATCHES, TRACE_PART_LAYER };

enum trace_set {
    TRACE_SET_TOKENS, TRACE_SET_STARTS, TRACE_SET_INDEX, TRACE_SET_ROWS, TRACE_SET_SAMPLE_TOKENS,
    TRACE_SET_SIZES, TRACE_SET_N_BATCHES,
    TRACE_SET_COUNTS, TRACE_SET_GATE_COUNTS, TRACE_SET_BATCH_SEQ, TRACE_SET_BATCH_CONS,
    TRACE_SET_ROUTED, TRACE_SET_ROUTED_SEQ, TRACE_SET_ROUTED_CONS, TRACE_SET_MAPS, TRACE_SET_ROUTING,
    TRACE_SET_BLOCK_INPUT, TRACE_SET_FFN_INPUT, TRACE_SET_FFN_RMS, TRACE_SET_GATE_SIGNS,
    TRACE_SET_THRESHOLDS, TRACE_SET_COLD, TRACE_SET_FORESEEN,
    TRACE_SETS
};

struct trace_set_spec {
    const char *name;
    enum trace_part part;
    enum trace_type type;
    int hashed; /* belongs to the content hash */
};

extern const struct trace_set_spec trace_set_specs[TRACE_SETS];

size_t trace_type_bytes(enum trace_type t);

/* "/corpus", "/batches", "/layers/0003". out of at least 32 bytes. */
void trace_part_path(enum trace_part part, int layer, char out[32]);

/* Shape of a dataset for this trace; 0 dimensions: the dataset is absent (no experts, no samples, no window).
 * Returns the number of dimensions, at most 3. *row_bytes: of one index of the first one. */
int trace_set_dims(const struct trace_info *info, enum trace_set s, uint64_t dims[3], uint64_t *row_bytes);

/* Hash of a part from the hashes of its datasets, and of the trace from those of its parts
 * (schemas/trace.md, "Content hash"). set_hash is indexed by enum trace_set. */
struct hash128 trace_part_hash(const struct trace_info *info, enum trace_part part, const struct hash128 *set_hash);
struct hash128 trace_content_hash(const struct trace_info *info, struct hash128 corpus, struct hash128 batches,
                                  const struct hash128 *layers);

#define TRACE_FORMAT "thermo-trace"

const char *trace_rope_name(enum model_rope r);

#endif
