#ifndef COMMON_OFFLINE_FLOOR_LAYOUTS_H
#define COMMON_OFFLINE_FLOOR_LAYOUTS_H

/* Which layouts a model may have, before any number is known of how fast they are: the planner compares them, and the least memory of any
 * is the floor. Pure; thread-safe. */
#include "common/plan/layout.h"

/* A model as far as layouts ask: of its source, types of gate, up and down, layer by layer. */
struct layouts_source {
    const struct model_hparams *h;      /* borrowed */
    int n_layers, n_blocks;
    uint32_t type[MODEL_MAX_LAYERS][LAYOUT_ROLES];
};

/* Has Down quant blocks in any layer, and are rows of it not stored by neuron? Then any form but tiles quantises it anew. */
int layouts_requantises(const struct layouts_source *m);

/* A layout for this model: form, cluster size (0: 64, or what tiles need), and types layer by layer. Gate and Up keep the source's,
 * in tiles Down does too, and ERR_USAGE where down_type says another or the file has Down by neuron. Else Down is stored by neuron:
 * in down_type; with -1 in the source's where it is a float type (rows can be turned into columns without loss) or the file has
 * Down by neuron already, else in Q8_0, or F16 where rows are not whole quant blocks of it; with LAYOUTS_DOWN_SOURCE in the source's
 * whatever it is. */
#define LAYOUTS_DOWN_SOURCE (-2)
int layouts_one(const struct layouts_source *m, enum layout_form form, uint32_t cluster_neurons, int down_type, struct layout *out,
                struct err *e);

/* What the FFNs take in a pack with this layout. */
uint64_t layouts_file_bytes(const struct layouts_source *m, const struct layout *l);

/* What is asked for; LAYOUTS_ANY in each of the first five, and 0 in the last: nothing. */
#define LAYOUTS_ANY (-1)
struct layouts_options {
    int mode;                   /* a plan_mode, or -1 */
    int form;                   /* a layout_form, or -1 */
    int packed;                 /* 0, 1, or -1 */
    int down_type;              /* as of layouts_one */
    int gate_type;              /* a quant_type for Gate in all layers, in any form but tiles; or -1: the source's */
    uint32_t cluster_neurons;
};

/* Layouts worth comparing; at most LAYOUTS_MOST. */
#define LAYOUTS_MOST 8
int layouts_all(const struct layouts_source *m, const struct layouts_options *w, struct layout out[LAYOUTS_MOST], int *n, struct err *e);

/* Do the options, or else the model's activation, mean dense mode? */
int layouts_is_dense(const struct layouts_source *m, const struct layouts_options *w);

#endif
