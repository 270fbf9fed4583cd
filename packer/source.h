#ifndef PACKER_SOURCE_H
#define PACKER_SOURCE_H

/* The source model while it is packed: GGUF tensors checked against the trace's tensor table, and hashed
 * as they pass, so that a model is read once and still proven to be the one that was traced. */
#include "common/model/gguf.h"
#include "common/model/model.h"
#include "common/offline/trace/trace.h"

struct source {
    struct gguf *gguf;
    struct model *model;
    const struct trace_info *trace; /* NULL: source_open_mtp's */
    const char *path;
    uint64_t *at;                   /* [n_tensors]: what of each was read, where the source is consumed; else NULL */
};

/* Opens the model, with the trace's thresholds if it has some and what was stated of how words are cut, and compares every name, type and
 * shape with the trace: ERR_MISMATCH names file, tensor and both values. trace must outlive the source. */
int source_open(struct source *s, const char *path, struct trace *trace, struct err *e);

/* The same of a model that a pack may have begun to consume: source_read then compares with what is known of the tensors by
 * gguf_take_pieces, or by source_verify, and begins where s->at says. */
int source_open_consumed(struct source *s, const char *path, struct trace *trace, struct err *e);

/* Reads the model whole and compares it with the trace, before anything of it is consumed. */
int source_verify(struct source *s, struct err *e);

/* Opens the model's first layer that predicts further tokens instead (struct model_hparams.mtp), whose tensors no trace has. The whole
 * model is read for its hash, *model: what a trace of it and its pack have. Embeddings and head of the layer's own that equal the
 * model's, or with share all, are left out. layer: NULL, or another file that the layer is in, with the model's other layers or without.
 * ERR_UNSUPPORTED where there is no such layer; ERR_MISMATCH: it is another model's. */
int source_open_mtp(struct source *s, const char *path, const char *layer, int share, struct hash128 *model, struct err *e);
void source_close(struct source *s);

/* The next len bytes of a tensor; pieces must be asked for in order and once. At a tensor's last byte
 * its hash is compared with the trace's: ERR_MISMATCH; a weight that is no finite number is ERR_FORMAT. What gguf_read reads of it later
 * is compared with what came here. Several threads may read, each tensors of its own. */
int source_read(struct source *s, const struct gguf_tensor *t, void *buf, size_t len, struct err *e);

/* The order of tiles: the source's, whatever fires. [n_layers][n_blocks][n_ff] and its hash; the caller frees it. */
int source_orders(const struct model_hparams *h, uint32_t **orders, struct hash128 *hash, struct err *e);

/* Bytes of a tensor will be read soon: the kernel may begin. */
void source_ask(const struct source *s, const struct gguf_tensor *t, uint64_t offset, uint64_t bytes);

#endif
