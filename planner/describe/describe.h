#ifndef PLANNER_DESCRIBE_DESCRIBE_H
#define PLANNER_DESCRIBE_DESCRIBE_H

/* A model described by published figures, for planning where no trace exists: sizes, how many neurons fire, how
 * firings spread over neurons, how they persist from token to token, predictors. JSON,
 * schemas/model-description.schema.json. The reader is strict: an unknown key, a missing one or a value out of range
 * is ERR_FORMAT naming its path ("activation.rate[1].share"). Plain data. */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/model/model.h"
#include "common/plan/layout.h"

#include "planner/inputs/inputs.h"

#include <stddef.h>
#include <stdint.h>

#define DESCRIBE_MAX_BYTES  (1u << 20)  /* of the JSON text */
#define DESCRIBE_MAX_POINTS 64
#define DESCRIBE_MAX_MEMORY 8

/* A point of the hotness curve: this share of the neurons, hottest first, makes this share of the firings. */
struct describe_point {
    double neurons, firings;
};

/* Part of what decides whether a neuron fires: it changes once in `period` tokens on average. */
struct describe_memory {
    double share, period;
};

/* A published figure of a cache: with this share of the neurons cached (LRU), this share of lookups misses. */
struct describe_miss {
    double cached, missed;
};

struct describe {
    char name[96];
    struct hash128 hash;            /* of every figure, not of name and sources */
    struct model_hparams h;
    uint32_t embd_type, output_type, attn_type, router_type, ffn_type[LAYOUT_ROLES];
    /* Of the neurons of the FFNs that a token runs through; all 0 when the activation gives no zeros. */
    double rate[INPUTS_MAX_BATCHES]; /* share that fires in a step of 1, 2, 4, 8, 16, 32 sequences; 0: from that of 1 */
    double open_per_firing;         /* gates open per firing neuron, >= 1 */
    double spread;                  /* skew: p = Phi(-m + spread * xi), xi normal over neurons; < 0: points instead */
    int n_points;
    struct describe_point point[DESCRIBE_MAX_POINTS]; /* ascending; (0, 0) and (1, 1) are implied */
    int n_memory;                   /* 0: derived from the first miss figure */
    struct describe_memory memory[DESCRIBE_MAX_MEMORY]; /* the rest of the variance is new with each token */
    double expert_again;            /* an expert that a token uses is used by the next; 0: no experts */
    int n_misses;
    struct describe_miss miss[DESCRIBE_MAX_POINTS];
    uint64_t predictor_bytes;       /* of all layers and experts; 0: none */
    int predictor_rank, predictor_input; /* enum predict_input */
    uint32_t predictor_type;
    double predicted_per_firing, recall; /* neurons predicted per neuron that fires; firing neurons predicted */
    uint64_t resident_bytes;        /* whatever else stays in memory */
};

/* name stands for the file in messages. */
int describe_parse(const char *json, size_t len, const char *name, struct describe *out, struct err *e);
int describe_read(const char *path, struct describe *out, struct err *e);

/* p[n_ff], descending: probability that the neuron at a pack position fires at a token that runs through its FFN.
 * ERR_FORMAT when the curve asks a neuron to fire more than always. */
int describe_rates(const struct describe *d, const char *name, double *p, struct err *e);

#endif
