#ifndef PLANNER_INPUTS_INPUTS_MODEL_H
#define PLANNER_INPUTS_INPUTS_MODEL_H

/* What is known of a model before it is traced: the account's facts and the types of its FFNs, from the file's header. Enough for
 * planning_floor and planning_ask; there are no curves, no matrices and no activation maps. */
#include "planner/inputs/inputs.h"

/* What thermo-profile trace will be stated of the model (--act, --expert-gating, --silence); zeroed but for act: nothing. */
struct inputs_stated {
    int act;                    /* a model_act, or -1 */
    enum model_router router;
    int silenced;               /* neurons will have thresholds */
};

/* max_batch: as of inputs_from_trace. Errors of gguf_open and model_open. */
int inputs_from_model(const char *path, const struct inputs_stated *stated, int max_batch, struct inputs *out, struct err *e);

#endif
