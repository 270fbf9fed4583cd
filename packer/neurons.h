#ifndef PACKER_NEURONS_H
#define PACKER_NEURONS_H

/* From the matrices of one FFN to the neuron segments of a pack: rows of Gate and Up and columns of Down,
 * gathered in pack order into records, records into units. */
#include "common/base/pool.h"
#include "common/plan/layout.h"

/* One FFN's source matrices, as in the GGUF: gate, up: n_ff rows of d_model; down: d_model rows of n_ff, or
 * n_ff rows of d_model when down_by_neuron is not 0. */
struct neurons_in {
    const uint8_t *gate, *up, *down;
    uint32_t gate_type, up_type, down_type;
    const struct layout_shape *shape; /* of the layer; of those that neurons_new was given */
    int d_model, n_ff;
    const uint32_t *order;      /* [n_ff] */
    int down_by_neuron;
    const uint8_t *made;        /* NULL, or Gate in the layout's type already, by the source's order */
};

/* What a change of type cost, by role: squared error and squared weights, for a relative RMS. */
struct neurons_loss {
    double error2[LAYOUT_ROLES], weight2[LAYOUT_ROLES];
};

/* Checksums of one FFN, from its layer and block on (schemas/pack.md). */
struct neurons_checks {
    uint64_t *clusters;         /* [n_parts][n_clusters] */
    uint32_t *units;            /* [unit_check_per_block()] */
    uint64_t identity, ffn;     /* of the pack; layer * n_blocks + block */
};

struct neurons;

/* Working memory for panels of neurons: at most about panel_bytes (at least one cluster). */
int neurons_new(const struct layout_shapes *s, int d_model, uint64_t panel_bytes, struct pool *pool, struct neurons **out,
                struct err *e);
void neurons_free(struct neurons *n);
uint64_t neurons_memory(const struct neurons *n);

/* Neurons per panel: a multiple of the cluster. */
uint32_t neurons_panel(const struct neurons *n);

/* Build pack positions [first, last) - a panel: first is a multiple of neurons_panel(), last the next or n_ff - of
 * every segment. out[segment]: the bytes from *offset[segment] of that segment, *len[segment] of them, borrowed until
 * the next call; the panel that ends at n_ff runs to the segment's end. checks are set for
 * each cluster and unit of the panel. loss is added to. */
struct neurons_out {
    const uint8_t *data[LAYOUT_MAX_PARTS];
    uint64_t offset[LAYOUT_MAX_PARTS], len[LAYOUT_MAX_PARTS];
};
int neurons_build(struct neurons *n, const struct neurons_in *in, uint32_t first, uint32_t last, struct neurons_out *out,
                  const struct neurons_checks *checks, struct neurons_loss *loss, struct err *e);

#endif
