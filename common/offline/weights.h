#ifndef OFFLINE_WEIGHTS_H
#define OFFLINE_WEIGHTS_H

/* The weights of one layer at a time, read sequentially into memory while the layer before is being
 * computed. Two buffers of the largest layer's size and one thread. */
#include "common/base/err.h"
#include "common/model/model.h"

#include <stdint.h>

struct weights;

int weights_new(const struct model *m, struct weights **out, struct err *e);
void weights_free(struct weights *w); /* accepts NULL */

/* Memory of both buffers; bytes of all layers. */
uint64_t weights_bytes(const struct model *m);
uint64_t weights_total(const struct model *m);

/* Data of the layer's tensors by role (NULL: the model has none), aligned to 64. Valid until the next
 * call. Starts reading layer (l + 1) % model_depth. */
int weights_layer(struct weights *w, int layer, const void *const **data, struct err *e);

#endif
