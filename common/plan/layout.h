#ifndef COMMON_PLAN_LAYOUT_H
#define COMMON_PLAN_LAYOUT_H

/* The layout: how a packed model stores the neurons of its FFNs. It is what a plan fixes about a
 * pack, and all that it fixes: a pack carries the hashes of model, neuron order and layout, never
 * of a plan.
 *
 * Neuron i of an FFN is row i of Gate, row i of Up and column i of Down (stored as a row). In each
 * (layer, block) - a block is an expert, or the layer's only FFN - neurons are sorted hot to cold,
 * so every hot set is a prefix. Storage is divided into parts:
 *
 *   SPLIT      part 0 = gate                     part 1 = up, down        each its own segment
 *   BUNDLE     part 0 = gate, up, down                                    one segment
 *   TWO_PHASE  part 0 = gate, part 1 = up, down, alternating unit by unit in one segment, so that
 *              the second page is read only if the gate opens
 *   TILES      part 0 = gate, up, down                                    one segment
 *
 * An FFN without a gate has one matrix where others have Gate and Up: its rows stand in Gate's place, and no part has Up (ungated).
 *
 * TILES keeps the source's bytes and order, for dense mode alone: Down is not turned. A record is a tile of t neurons: t rows of
 * Gate, t rows of Up, then of each of the d_model rows of Down the t elements of these neurons, whole quant blocks. t is the largest
 * power of two that divides cluster_neurons, at most LAYOUT_TILE; the last tile may hold fewer neurons, whole quant blocks of Down.
 * Where Down has a float type and clusters are of at most LAYOUT_TILE neurons t is 1, and a record as in BUNDLE. Where clusters are of
 * more a unit is a whole cluster: what is to be computed together can be (model_hparams.fold).
 *
 * A part's neurons are grouped in units, the unit of a read and of the cold cache. The payload of a
 * unit is whole records without gaps; in the file it occupies stride_bytes. A padded
 * unit starts and ends on a block boundary of the device; a packed one (packed = 1) does not, and a
 * read of it is rounded out to blocks. Small records are grouped to fill a block. Clusters are runs
 * of cluster_neurons neurons: the granularity of the hot region, of checksums and of work. */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/model/model.h"

#include <stdint.h>

#define LAYOUT_MAX_PARTS 2

enum layout_form { LAYOUT_SPLIT, LAYOUT_BUNDLE, LAYOUT_TWO_PHASE, LAYOUT_TILES, LAYOUT_FORMS };

/* From hot to cold; or, of neurons about as hot, those that fire in the same tokens beside each other (common/offline/trace/together.h). */
enum layout_sort { LAYOUT_HEAT, LAYOUT_TOGETHER, LAYOUT_SORTS };

enum { LAYOUT_GATE, LAYOUT_UP, LAYOUT_DOWN, LAYOUT_ROLES };

#define LAYOUT_TILE 256 /* neurons of a tile: a multiple of any quant block */
#define LAYOUT_MAX_KINDS 32 /* combinations of types and widths among the layers of a model */

/* What a plan says. Everything else below is derived from it and the model's shape. Layers may differ in types, and in neurons; those that
 * have the same are of one kind. */
struct layout {
    enum layout_form form;
    int packed;                    /* 1: units are not padded to blocks */
    int ungated;                   /* 1: no rows of Up; its type is Gate's */
    uint32_t block_bytes;          /* device block: a power of two, 512..65536; 4096 by default */
    uint32_t cluster_neurons;      /* a multiple of 8, 8..4096 */
    int n_kinds;                   /* numbered in the order of their first layers */
    uint32_t type[LAYOUT_MAX_KINDS][LAYOUT_ROLES]; /* quant_type of the stored gate, up and down rows */
    int n_ff[LAYOUT_MAX_KINDS];    /* neurons of a layer's FFN where the model's differ; 0: all have as many */
    int n_layers;                  /* that kind[] speaks of; 0 where there is one kind, which any layer is of */
    uint8_t kind[MODEL_MAX_LAYERS];
};

struct layout_part {
    int n_roles;
    int role[LAYOUT_ROLES];                /* in storage order within a record */
    uint32_t role_offset[LAYOUT_ROLES];    /* by role number: byte offset within a record; ~0u: not in this part */
    uint32_t role_bytes[LAYOUT_ROLES];     /* by role number: of a row, those of a role follow each other; in a tile Down has
                                            * d_model of them, of record_neurons elements; ungated Up: 0 */
    uint32_t record_neurons;               /* 1, or of a whole tile */
    uint32_t record_bytes;
    uint32_t neurons_per_unit;             /* a multiple of record_neurons */
    uint32_t unit_bytes;                   /* payload: layout_bytes of neurons_per_unit */
    uint32_t read_bytes;                   /* largest block-aligned read that one unit needs */
    uint32_t n_units;                      /* the last may hold fewer neurons */
    int segment;                           /* which of the block's segments */
    uint64_t stride_bytes, first_offset;   /* unit u is at first_offset + u * stride_bytes in the segment */
};

/* Of the layers of one kind. What stands above the types is the same for all kinds, but for n_ff and n_clusters. */
struct layout_shape {
    enum layout_form form;
    int packed, ungated;
    uint32_t block_bytes, cluster_neurons;
    int n_ff, n_parts, n_segments;
    uint32_t n_clusters;
    uint32_t largest_read;                    /* read_bytes of any part of any kind */
    uint32_t type[LAYOUT_ROLES];
    uint64_t segment_bytes[LAYOUT_MAX_PARTS]; /* multiples of block_bytes */
    struct layout_part part[LAYOUT_MAX_PARTS];
};

struct layout_shapes {
    struct layout l;
    int n_ff, n_parts, n_segments; /* of every kind; n_ff and n_clusters: of the widest */
    uint32_t n_clusters;
    struct layout_shape kind[LAYOUT_MAX_KINDS]; /* [l.n_kinds] */
};

static inline const struct layout_shape *layout_of(const struct layout_shapes *s, int layer)
{
    return &s->kind[s->l.kind[layer]];
}

/* Has no part rows of a role? */
static inline int layout_lacks(const struct layout_shape *s, int role)
{
    return s->ungated && role == LAYOUT_UP;
}

const char *layout_form_name(enum layout_form f); /* "split" "bundle" "two-phase" "tiles" */
const char *layout_sort_name(enum layout_sort s);    /* "heat" "together" */
const char *layout_role_name(int role);              /* "gate" "up" "down" */
int layout_parts(enum layout_form f);

/* Sensible values for a model: the form given, 4 KiB blocks, clusters of 64 neurons, these types in all layers. */
void layout_default(struct layout *l, enum layout_form form, const uint32_t type[LAYOUT_ROLES]);

/* Other types than one for all: type[n_layers], n_layers 1..MODEL_MAX_LAYERS. ERR_UNSUPPORTED when they are more than
 * LAYOUT_MAX_KINDS different ones. */
int layout_set_types(struct layout *l, const uint32_t (*type)[LAYOUT_ROLES], int n_layers, struct err *e);

/* Other widths than one for all, after types: widths[n_layers]; widths[0] 0: none. ERR_UNSUPPORTED as above. */
int layout_set_widths(struct layout *l, const int *widths, int n_layers, struct err *e);

/* The first kind that has the types of this one, whatever its width; do any differ in types? */
int layout_types_of(const struct layout *l, int kind);
int layout_types_differ(const struct layout *l);

/* The first kind that has the types that most layers have, of equals the first: what a plan states once. */
int layout_usual_kind(const struct layout *l);

/* Check and derive. d_model is the length of each stored row, n_ff the neurons of the widest FFN. ERR_UNSUPPORTED names the field, or role,
 * type and row. */
int layout_derive(const struct layout *l, int d_model, int n_ff, struct layout_shapes *out, struct err *e);

/* Units of a part of a block in the layer that has most of them; unit_bytes of any part of any layer, at most. */
uint32_t layout_most_units(const struct layout_shapes *s, int part);
uint32_t layout_most_bytes(const struct layout_shapes *s);

/* The kind whose units of the last part take the longest reads: rules for all layers are made for it. */
const struct layout_shape *layout_largest(const struct layout_shapes *s);

/* Neurons and clusters of one block in each of the layers before this one (n_layers: of all). */
uint64_t layout_neurons_before(const struct layout_shapes *s, int layer);
uint64_t layout_clusters_before(const struct layout_shapes *s, int layer);

/* Identity of a layout: XXH3-128 over u32 revision, form, packed, block_bytes, cluster_neurons, then with one kind (revision 1)
 * type[3], else (revision 2) n_layers and type[n_layers][3]; ungated the revision is greater by 2. Widths are the model's, and in its
 * hash. */
struct hash128 layout_hash(const struct layout *l);

/* Neuron order of one FFN: order[p] = original index of the neuron at pack position p; descending
 * counts, ties by ascending index. Tiles have the source's order instead. */
void layout_order(const uint64_t *counts, int n_ff, uint32_t *order);

/* Identity of the whole order: XXH3-128 over u32 n_layers, n_blocks, n_ff, then every order array,
 * layer by layer, block by block, as u32 little-endian; those of narrower layers go on with the neurons that only wider ones have.
 * orders NULL: each is the source's, 0 to n_ff - 1. */
struct hash128 layout_order_hash(const uint32_t *orders, int n_layers, int n_blocks, int n_ff);

/* Bytes of n neurons: whole records, or the FFN's last tile among them. */
static inline uint64_t layout_bytes(const struct layout_part *p, uint32_t n)
{
    return (uint64_t)n * p->record_bytes / p->record_neurons;
}

/* In a tile of n neurons: where a role begins, and how long a row of Down is. */
static inline uint32_t layout_tile_offset(const struct layout_part *p, int role, uint32_t n)
{
    return p->role_offset[role] / p->record_neurons * n;
}

static inline uint32_t layout_tile_down_bytes(const struct layout_part *p, uint32_t n)
{
    return (uint32_t)((uint64_t)p->role_bytes[LAYOUT_DOWN] * n / p->record_neurons);
}

/* Bytes of a role in one neuron, on the average of its record. */
static inline double layout_role_bytes(const struct layout_part *p, int role, int d_model)
{
    return role == LAYOUT_DOWN && p->record_neurons > 1 ? (double)p->role_bytes[role] * d_model / p->record_neurons : p->role_bytes[role];
}

/* Of the first n neurons of an FFN, those that an accelerator can have beside the pipeline: within the prefix of every part, hot[n_parts],
 * and whole clusters; or all. */
static inline uint32_t layout_height(const struct layout_shape *s, const uint32_t *hot, uint32_t n)
{
    uint32_t n_ff = (uint32_t)s->n_ff;
    for (int p = 0; p < s->n_parts; p++)
        n = hot[p] < n ? hot[p] : n;
    return n >= n_ff && s->part[0].record_neurons == 1 ? n_ff : n / s->cluster_neurons * s->cluster_neurons;
}

/* Unit that holds the neuron at pack position p, and the offset of the record that holds it in the unit's payload. */
static inline uint32_t layout_unit_of(const struct layout_part *p, uint32_t pos)
{
    return pos / p->neurons_per_unit;
}

static inline uint32_t layout_record_offset(const struct layout_part *p, uint32_t pos)
{
    return pos % p->neurons_per_unit / p->record_neurons * p->record_bytes;
}

/* Neurons in unit u. */
static inline uint32_t layout_unit_neurons(const struct layout_shape *s, const struct layout_part *p, uint32_t u)
{
    uint32_t left = (uint32_t)s->n_ff - u * p->neurons_per_unit;
    return left < p->neurons_per_unit ? left : p->neurons_per_unit;
}

#endif
