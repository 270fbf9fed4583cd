#ifndef COMMON_OFFLINE_TRACE_TRACE_FIELDS_H
#define COMMON_OFFLINE_TRACE_TRACE_FIELDS_H

/* Attributes of a trace and where they live in struct trace_info, for writer and reader alike.
 * Internal to trace.c and trace_write.c. */
#include "common/offline/trace/trace_info.h"

#include <stddef.h>

#define TRACE_BY_LAYER_TEXT (8 * MODEL_MAX_BLOCKS) /* numbers up to MODEL_MAX_DIM */

/* OPT_INT: written when it is not 0, and 0 when it is not there; OPT_TEXT likewise, of an empty one; BY_LAYER: int[n_layers] as text with
 * blanks between them, likewise where the first is 0. */
enum trace_field_kind {
    TRACE_FIELD_INT, TRACE_FIELD_OPT_INT, TRACE_FIELD_U64, TRACE_FIELD_F32, TRACE_FIELD_TEXT, TRACE_FIELD_OPT_TEXT,
    TRACE_FIELD_HASH, TRACE_FIELD_BY_LAYER
};

struct trace_field {
    const char *group, *name;
    enum trace_field_kind kind;
    size_t offset, len;  /* len: of a text */
    uint64_t min, max;   /* of a number */
};

extern const struct trace_field trace_fields[];
extern const int trace_n_fields;

/* What "active" means for a model, in words; stored with the counts. */
const char *trace_active_text(const struct model_hparams *h);

#endif
