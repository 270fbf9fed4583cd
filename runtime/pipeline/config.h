#ifndef RUNTIME_PIPELINE_CONFIG_H
#define RUNTIME_PIPELINE_CONFIG_H

/* What the pipeline is given: the model's shapes, the plan's choices, where neurons lie in memory and in the file, workers and
 * a read backend. Nothing of it is the pipeline's own: whoever fills it in keeps all that it points to until pipeline_free.
 * Constant from then on, but for the caches' state, the bytes of regions and the backend, which are the pipeline's to
 * change. The pipeline knows no engine: a test makes one up. */
#include "common/base/pool.h"
#include "common/model/model_fold.h"
#include "common/model/predict.h"
#include "common/pack/pack.h"
#include "common/plan/budget.h"
#include "common/plan/cache.h"
#include "common/plan/reads.h"

#include "runtime/io/io.h"
#include "runtime/io/verify.h"

#include <stddef.h>
#include <stdint.h>

/* Scratch of the sizes that budget_scratch lists, each aligned to 64 and zeroed. */
struct pipeline_memory {
    uint8_t *reads;                /* scratch.reads */
    uint8_t *gather;               /* scratch.gather */
    uint8_t *entries;              /* scratch.blocks times scratch.entries */
    uint8_t *predict;              /* scratch.predict; NULL without predictors */
};

/* Biases of a layer's gates and ups, of every block, in pack order: f32[n_blocks][n_ff]; either may be NULL: none. A gate's is added
 * before it is asked whether the gate is open. silence: thresholds below which a gate counts as 0 (nn_silence), or NULL. cold: those of
 * neurons that are not always computed, which count in predicted passes, times cold_scale. */
struct pipeline_bias {
    const float *gate, *up, *silence, *cold;
};

struct pipeline_config {
    /* the model */
    const struct pack *pack;       /* where units and predictors are in the file */
    const struct layout_shapes *shapes; /* &pack->shapes */
    int d_model, n_layers, n_blocks;
    enum model_act act;
    int dense_mode;                /* no gate shuts: every neuron is active */
    int act_q8;                    /* int8 activations where a type has such products */
    const struct model_fold *fold; /* of Down; units are whole blocks of it, and in.f32 of a FFN is Gate's and Up's folded input. NULL or a
                                    * block of 0: they are not folded */

    /* who, and through what */
    struct pool *pool;             /* the caller of the pipeline is its worker 0 */
    struct io *io;                 /* queue_depth reads, and predictor_prefetch_depth of streamed predictors */
    const struct verifier *verifier;

    /* the plan; threads and queue_depth: the most that pipeline_use may ask for */
    struct budget_choice choice;   /* threads, queue_depth, read_bytes, predictors, predictor_buffers, hot */
    struct budget_scratch scratch; /* of that choice */
    const struct reads_coalesce *coalesce; /* [n_coalesce]; needed by pipeline_new only */
    int n_coalesce;
    int no_prefetch;               /* 1: no reads before attention (for measurements) */
    int no_ahead;                  /* 1: experts are not read before their router has chosen */
    int no_overlap;                /* 1: reads first, then arithmetic (for measurements) */

    /* where neurons lie; units of the cold region belong to the cache's slots */
    uint8_t *hot, *cold, *staging;
    const uint64_t *hot_at;        /* [layer][block][part]: offset in the hot region */
    const uint64_t *cold_at;       /* [layer][part]: offset in the cold region */
    struct cache *const *caches;   /* [layer][part] */
    struct pipeline_memory memory;

    const struct pipeline_bias *biases; /* [layer], or NULL */

    /* [layer][block] neurons, the first ones, that something else computes: not listed, not looked up, no part of the output. Whole
     * clusters, or all, that are resident in every part. The owner changes it between passes. NULL: none. */
    const uint32_t *beside;

    /* Where the rest of FFNs, what is not resident of them, is read to in passes that leave it to something else, too (rest_reads.h): in
     * whole pages behind the read buffers, as many as choice.area_bytes; NULL: there is no such pass. */
    uint8_t *area;
    uint64_t area_bytes;

    /* predictors; all NULL in a model that has none in use */
    const signed char *predictor;  /* [layer]: enum predict_input, or -1: every gate is computed */
    const unsigned char *streamed; /* [layer] 1: its predictors are read whenever they are used; NULL: of none */
    const uint32_t *always;        /* [layer] neurons that are not predicted, nor left out by cold_scale; whole clusters or all; NULL: 0 */
    float cold_scale;              /* in predicted passes gates below so many times their `cold` threshold count as 0; 0: none */
    const struct predict *predictors;      /* [layer][block]; without weights where they are streamed */
    const struct predict_pieces *pieces;   /* [layer][block], of those */
};

static inline size_t config_part(const struct pipeline_config *c, int layer, int part)
{
    return (size_t)layer * (size_t)c->shapes->n_parts + (size_t)part;
}

static inline size_t config_block(const struct pipeline_config *c, int layer, int block)
{
    return (size_t)layer * (size_t)c->n_blocks + (size_t)block;
}

static inline size_t config_hot(const struct pipeline_config *c, int layer, int block, int part)
{
    return config_block(c, layer, block) * (size_t)c->shapes->n_parts + (size_t)part;
}

/* Neurons of the resident prefix. */
static inline uint32_t config_hot_neurons(const struct pipeline_config *c, int layer, int block, int part)
{
    return c->choice.hot ? c->choice.hot[config_hot(c, layer, block, part)] : 0;
}

static inline struct cache *config_cache(const struct pipeline_config *c, int layer, int part)
{
    return c->caches[config_part(c, layer, part)];
}

/* Where a slot of the layer's part is in the cold region. */
static inline uint8_t *config_slot(const struct pipeline_config *c, int layer, int part, uint32_t slot)
{
    return c->cold + c->cold_at[config_part(c, layer, part)] + (size_t)slot * budget_slot_bytes(layout_of(c->shapes, layer), part);
}

/* Are slots and units whole device blocks, so that a unit can be read into its slot? */
static inline int config_reads_into_slots(const struct pipeline_config *c, int layer, int part)
{
    const struct layout_shape *s = layout_of(c->shapes, layer);
    return budget_reads_into_slots(s, part) && (uintptr_t)config_slot(c, layer, part, 0) % s->block_bytes == 0;
}

static inline int config_streams(const struct pipeline_config *c, int layer)
{
    return c->streamed && c->streamed[layer] && c->predictor[layer] >= 0;
}

#endif
