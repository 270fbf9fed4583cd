#ifndef PACKER_DENSE_H
#define PACKER_DENSE_H

/* The pack's dense tensors: the model's own, then layer by layer, as the forward pass meets them. Those that shrink by compression are
 * compressed side by side, one tensor a worker, and written in order; so the bytes depend on no thread. */
#include "common/base/pool.h"
#include "common/base/progress.h"
#include "packer/source.h"
#include "packer/write.h"

struct dense_job {
    struct source *source;
    struct writer *w;
    struct pool *pool;
    const uint32_t *orders;      /* of neurons, [layer][block][n_ff]: biases and thresholds go with them */
    struct progress *progress;   /* of bytes */
    /* NULL, or called when a piece has been given to the writer, and the whole of a tensor that is compressed: `done` of its bytes. Where
     * s->at says that a tensor was read before, wholly or in part, it was written as far, and is not read again. */
    int (*written)(void *ctx, const struct gguf_tensor *t, uint64_t done, struct err *e);
    void *ctx;
};

/* Adds the tensors' sizes to *bytes. Memory: what workers have compressed, at most DENSE_AHEAD_BYTES of tensors at a time. */
int dense_put_all(const struct dense_job *j, uint64_t *bytes, struct err *e);

#define DENSE_AHEAD_BYTES (512ull << 20)

#endif
