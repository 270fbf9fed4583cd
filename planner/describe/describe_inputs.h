#ifndef PLANNER_DESCRIBE_DESCRIBE_INPUTS_H
#define PLANNER_DESCRIBE_DESCRIBE_INPUTS_H

#include "planner/inputs/inputs.h"

/* Inputs from a description (schemas/model-description.schema.json): trace_hash is all zero, model_hash and
 * order_hash are the description's own. notes may be NULL: what the published miss figures compare with is then
 * not worked out. */
int describe_inputs(const char *path, int max_batch, struct inputs *out, struct notes *notes,
                            struct err *e);

#endif
