#ifndef RUNTIME_ENGINE_ENGINE_ACCEL_H
#define RUNTIME_ENGINE_ENGINE_ACCEL_H

/* What engine_accel.c (resident neurons, other products, faults) and engine_accel_rest.c (neurons that are read) share. */
#include "runtime/engine/engine_impl.h"

struct engine_accel {
    struct accel *a;
    struct engine *g;
    struct dense_elsewhere elsewhere;
    struct accel_need need;
    uint8_t *takes;             /* [layer][block]: it can have an FFN's neurons */
    uint32_t *shares;           /* [height][layer][block]: how many, prepared once */
    const uint32_t *beside;     /* [layer][block], of shares: how many, in this pass */
    float *out;                 /* f32[scratch.rows][d_model] */
    int *order;                 /* [n_layers] in the order of passes */
    int can_rest, rest;         /* it can have the rest of every FFN; it has, in this pass */
    int lost, stale;            /* stale: the pipeline may have begun a layer without what was its share */
    struct err why;
};

/* out of an FFN += what it computed, n_tokens. */
void engine_accel_add(const struct engine_accel *x, const float *from, int n_tokens, float *out);

/* wait, and its time; meanwhile may be NULL. */
int engine_accel_wait(struct engine_accel *x, int (*meanwhile)(void *ctx, struct err *e), void *ctx, struct err *why);

/* ---- engine_accel_rest.c ---- */

/* Can it compute every piece of every FFN's rest? When weights are there. */
int engine_accel_can_rest(const struct engine *g);

/* Resident neurons of a part beyond those of another, which it multiplies beside pieces whose other parts are read: up to here; 0: there
 * are none. */
uint32_t engine_accel_rest_resident(const struct engine *g, int layer, int part);

/* The layer's rest, piece by piece, each added to f->out. pending: of resident neurons something is queued, which comes first.
 * 0; ERR_*, a read failed; 1, the accelerator did, as *why says, and f->out is nothing. */
int engine_accel_run_rest(struct engine *g, int layer, struct pipeline_ffn *f, int pending, struct err *why, struct err *e);

#endif
