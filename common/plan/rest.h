#ifndef COMMON_PLAN_REST_H
#define COMMON_PLAN_REST_H

/* The rest of an FFN: its neurons that are not resident in every part, as far as an accelerator computes them in large passes
 * (docs/engines.md). They are read piece by piece, in order, into an area of REST_SLOTS equal slots: one piece is computed while the next
 * ones are read, of this layer and of those after it. Runtime, account and cost model cut by these functions. Models without experts. */
#include "common/plan/layout.h"

#define REST_SLOTS      4
#define REST_READ_BYTES (1u << 20) /* of one read, at most */
#define REST_PAGE       4096u      /* a slot is so many bytes, or a multiple, and whole device blocks */

/* A piece: neurons [first, first + n) of a layer. */
struct rest_piece {
    uint32_t first, n;
    int read[LAYOUT_MAX_PARTS]; /* is the part read? Else its neurons are resident: all or none */
};

static inline uint64_t rest_slot_bytes(const struct layout_shape *s, uint64_t area_bytes)
{
    uint64_t grain = s->block_bytes > REST_PAGE ? s->block_bytes : REST_PAGE;
    return area_bytes / REST_SLOTS / grain * grain;
}

/* The first neuron of the rest; n_ff: there is none. hot: [n_parts]. */
uint32_t rest_first(const struct layout_shape *s, const uint32_t *hot);

/* Bytes of a slot that any n neurons, whole clusters or an FFN's last, need at most. */
uint64_t rest_piece_bytes(const struct layout_shape *s, uint32_t n);

/* Neurons of a piece, at most: whole clusters, 0 where a slot does not hold one; all of them where it does. */
uint32_t rest_piece_neurons(const struct layout_shape *s, uint64_t area_bytes);

/* The piece that begins at neuron `at`, rest_first or the end of another; most: rest_piece_neurons > 0. 0: `at` is n_ff. A tile that is
 * smaller than others is a piece of its own, for its parts lie elsewhere in it. */
int rest_piece_at(const struct layout_shape *s, const uint32_t *hot, uint32_t most, uint32_t at, struct rest_piece *out);

/* The least area that holds pieces of every kind of layer, and the most that is of use: all pieces of the largest FFN, twice. */
uint64_t rest_least_area(const struct layout_shapes *s);
uint64_t rest_most_area(const struct layout_shapes *s);

#endif
