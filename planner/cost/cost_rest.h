#ifndef PLANNER_COST_COST_REST_H
#define PLANNER_COST_COST_REST_H

/* What it takes that an accelerator computes the rest of an FFN, too, in a pass of a prompt (common/plan/rest.h, docs/engines.md): the
 * neurons that are not resident are read into an area, piece by piece, verified by the processor, and computed.
 * (M36): what the area holds is read before the pieces are asked for, during attention and what comes before them, (M26) of the processor's
 * neurons and of the height. A device of its own memory has pieces copied, at the rate of copy/in. */
#include "common/plan/rest.h"
#include "planner/cost/cost.h"

struct cost_rest {
    double bytes, pieces;
    double engine_ns, launch_ns;    /* of all pieces; of that, launches */
    double last_ns;                 /* of the last piece */
};

/* Can passes leave their rest to this accelerator, by what is known of it? One FFN a layer; of a device of its own memory copies were
 * measured. */
int cost_rest_known(const struct hw *hw, const struct inputs *in, const char *engine);

/* ns of a byte that is copied to it; 0: none is. */
double cost_rest_copy_ns(const struct hw *hw, const struct cost_choice *c);

struct cost_rest cost_rest_of(const struct layout_shape *s, const uint32_t *hot, uint64_t area_bytes, const struct cost_rates *r,
                              double copy_ns);

/* Of requests for such a layer's pieces, through such an area, bytes per second; 0: not known. */
double cost_rest_bytes_per_s(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c);

/* t_rest, and t_wait. verify_ns: of all bytes, by all threads. */
double cost_rest_ns(const struct cost_rest *x, double verify_ns, double sigma);
double cost_rest_wait_ns(const struct cost_rest *x, double bytes_per_s, double area_bytes, double before_ns, double rest_ns);

#endif
