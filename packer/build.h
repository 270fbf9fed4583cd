#ifndef PACKER_BUILD_H
#define PACKER_BUILD_H

/* The making of a packed model: model + trace + plan -> file; or a layer that predicts further tokens, of which there is neither. */
#include "common/base/pool.h"
#include "common/offline/trace/trace.h"
#include "common/offline/trace/trace_predict.h"
#include "common/plan/plan.h"
#include "packer/consume.h"
#include "packer/neurons.h"
#include "packer/source.h"

struct build {
    const char *out_path;
    const struct plan *plan;        /* NULL, or whose predictors are packed (planned_predictors) */
    struct trace *trace;            /* NULL: the model has none */
    struct hash128 model_hash, order_hash;
    uint64_t vocab_text_bytes, n_merges;
    struct source *source;
    struct gguf *better;            /* --requant-from: best source of tensors that change type, or NULL */
    struct hash128 better_hash;
    const uint32_t *orders;         /* [layer][block][n_ff] */
    struct trace_predictors *predictors; /* NULL: none */
    unsigned predictor_inputs;      /* 1 << enum predict_input: which of them to pack */
    int planned_predictors;         /* and those that a limit of the plan uses */
    struct layout_shapes shapes;
    struct pool *pool;
    uint64_t panel_bytes;
    struct consume *consume;        /* NULL: the source stays */
};

struct build_report {
    uint64_t file_bytes, predictor_bytes, neuron_bytes, dense_bytes, dense_stored_bytes, memory_bytes;
    double seconds;                 /* from the first byte read to the rename */
    struct neurons_loss total;
    struct neurons_loss *layers;    /* [n_layers], owned */
};

/* Sizes before anything is written: an upper bound of the file and of working memory. */
void build_estimate(const struct build *b, uint64_t *file_bytes, uint64_t *memory_bytes);

uint64_t build_largest_ffn(const struct build *b); /* of one block, in the source */

/* Prints these, and the space that is free for the file, as text or as JSON. */
int build_dry_run(const struct build *b, int json, struct err *e);

/* Of all that the pack's bytes depend on. */
struct hash128 build_config(const struct build *b);

int build_run(const struct build *b, struct build_report *report, struct err *e);

/* Whether a role's rows are stored in another type than the source's or quantised along new rows: in a layer. */
int build_role_changes(const struct build *b, int layer, int role);

/* The changes of a role, one for each pair of types, in the order of their first layers: what i-th is like. 0: there is none. */
struct build_change {
    uint32_t from, to;
    int n_layers;
    double relative_rms;        /* over these layers */
    uint64_t inputs;            /* errors are corrected by so many of the trace's (corrected.h); 0: rounded */
    uint8_t layer[MODEL_MAX_LAYERS]; /* 1: of them */
};
int build_change(const struct build *b, const struct build_report *r, int role, int i, struct build_change *out);

/* Root of squared error over squared weights; 0 when nothing changed. */
double build_relative_rms(const struct neurons_loss *l, int role);

#endif
