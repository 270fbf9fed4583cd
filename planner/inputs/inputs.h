#ifndef PLANNER_INPUTS_INPUTS_H
#define PLANNER_INPUTS_INPUTS_H

/* What the planner knows of a model, as plain numbers: shapes of the resident matrices, hotness curves in
 * pack order, activation maps for cache replay. Filled from a trace, or from a description by published figures
 * (planner/describe/describe.h), whose windows are drawn. Constant after filling; thread-safe but for steps(), routes() and
 * consecutive(), and for all of planner/predict/predicted.h where results are memoised (inputs_memoise): these are for one thread. */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/model/graph.h"
#include "common/model/model.h"
#include "common/model/predict.h"
#include "common/offline/floor/layouts.h"
#include "common/plan/budget.h"
#include "common/plan/layout.h"

#include "planner/inputs/inputs_steps.h"
#include "planner/inputs/list_cache.h"
#include "planner/inputs/notes.h"

#include <stdint.h>

#define INPUTS_MAX_BATCHES 6                    /* 1 2 4 8 16 32 */
extern const int inputs_batch_sizes[INPUTS_MAX_BATCHES];

struct inputs_matrix {          /* a resident weight matrix: rows row products of cols elements */
    uint32_t type;
    int rows, cols;
    uint64_t bytes;
    const struct graph_role *of; /* of a layer's matrices */
};

/* The matrices of a layer that every token multiplies, as the graph's table has them. */
struct inputs_layer {
    struct inputs_matrix product[GRAPH_PRODUCTS];
    int n;
    uint32_t ffn_type[LAYOUT_ROLES];            /* of the source model's gate, up and down */
};

static inline void inputs_add_product(struct inputs_layer *l, const struct graph_role *of, struct inputs_matrix m)
{
    m.of = of;
    l->product[l->n++] = m;
}

/* Is it the first of those that are one job? */
static inline int inputs_begins_job(const struct inputs_layer *l, int i)
{
    int j = 0;
    while (l->product[j].of->job != l->product[i].of->job)
        j++;
    return j == i;
}

/* Bytes of those matrices, but for the router. */
static inline double inputs_layer_bytes(const struct inputs_layer *l)
{
    double sum = 0;
    for (int i = 0; i < l->n; i++)
        sum += l->product[i].of->kind == OP_ROUTE ? 0 : (double)l->product[i].bytes;
    return sum;
}

/* Firings of the neurons of one (layer, block) at one batch size, by pack position. */
struct inputs_curve {
    double routed;              /* probability that a step reaches the block: 1 without experts */
    double *cum;                /* [n_ff + 1]: cum[i] = expected firing neurons of a step among the first i */
};

/* A predictor of one (layer, block): what it costs, and what it was measured to predict. n_points 0: there is none. */
#define INPUTS_POINTS 17
struct inputs_point {
    double recall, density;     /* shares: of active neurons predicted; of all neurons predicted */
};
struct inputs_predictor {
    int rank;
    uint32_t type1, type2;      /* of fc1: rank rows of d_model; of fc2: n_ff rows of rank */
    uint64_t bytes;             /* in memory */
    double true_density;        /* share of neurons that were active where it was measured */
    int n_points;
    struct inputs_point point[INPUTS_POINTS]; /* operating points to choose from, in any order */
};

/* What it costs in quality when all layers use predictors of one input at a target recall, against exact mode. */
#define INPUTS_QUALITY 64
struct inputs_quality {
    int input;                  /* enum predict_input */
    double target;              /* recall */
    double kl_mean, kl_max;     /* of the next token's distribution, nats */
    double top1, ppl_ratio;
    uint64_t tokens;            /* that it was measured on */
};

/* What a layer's predictors of one input lose at each of in->loss_target: energy by parts of the order, from hot to cold, and the
 * divergence of the model's output that it causes. known 0: not measured. */
#define INPUTS_PARTS 16
struct inputs_loss {
    int known;
    double kl_per_energy;
    float energy[INPUTS_POINTS][INPUTS_PARTS];
};

/* A shift that predict.c found for a predictor, and what it was found for. recall 0: none yet. */
struct inputs_shift {
    double recall, false_positives, shift;
};

struct inputs {
    char name[96];
    struct hash128 model_hash, trace_hash, order_hash;
    enum layout_sort sort;                      /* of the neurons */
    struct model_hparams h;
    int n_layers, n_blocks, n_used;             /* n_used: blocks that a token runs through */
    struct inputs_layer *layers;                /* [model_depth] */
    struct inputs_matrix head;                  /* output head (the embedding where tied) */
    uint64_t embd_row_bytes;
    int n_batches;                              /* of inputs_batch_sizes */
    struct inputs_curve *curves;                /* [n_batches][n_layers][n_blocks] */
    double *loads;                              /* [n_layers]: open gates per firing neuron, >= 1: where Up decides
                                                 * too
                                                 * (DRELU), exact mode loads more neurons than fire */
    uint32_t *position;                         /* [n_layers][n_blocks][n_ff]: pack position of a neuron; NULL
                                                 * without trace */
    uint64_t n_tokens, window_tokens;
    int equivalent;                                  /* layers do not differ: what holds for the first holds for all */
    struct inputs_predictor *predictors;        /* [PREDICT_INPUTS][n_layers][n_blocks]; NULL: none of any input */
    double recall;                              /* that the predictors were made for; 0: not known */
    int n_quality;                              /* 0: not measured */
    struct inputs_quality quality[INPUTS_QUALITY]; /* by input, target ascending */
    int n_loss_targets;                         /* 0: not measured */
    double loss_target[INPUTS_POINTS];          /* recalls, ascending */
    struct inputs_loss *loss;                   /* [PREDICT_INPUTS][n_layers], or NULL */
    /* Neurons that may be left out where they are not in memory, of traces with cold thresholds; else NULL. By pack position: */
    float *cold;                                /* [n_layers][n_ff][2][levels], as trace_cold gives them */
    double cold_bound;                          /* which lists are made with (inputs_use_cold); 0: none */
    struct budget_model budget;                 /* the account's facts; its shape is filled per layout */
    /* Where activation lists come from, and what it needs; NULL: there is no window (window_tokens is 0). */
    int (*steps)(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e);
    /* Which experts tokens are routed to, of the whole trace: at most so many tokens from its beginning, in lists of block * n_ff.
     * NULL: that is not known, or there are no experts. */
    int (*routes)(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e);
    /* Experts that are read ahead of their router's choice for them: the guesses of out, whose other lists stay as they are; of the tokens
     * that routes gives. Of layer 0, before which there is none, nothing. NULL: not known. */
    int (*foreseen)(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e);
    /* Firings of steps of inputs_batch_sizes[batch_index] tokens of one sequence that follow each other, in each block of a layer: of
     * out[n_blocks] routed, and cum where it is not NULL. 1; 0: there are no such steps. NULL: that is not known. */
    int (*consecutive)(const struct inputs *in, int batch_index, int layer, struct inputs_curve *out, struct err *e);
    /* What is worked out again and again, stored the first time (inputs_memoise); NULL: not stored. */
    struct list_cache *lists;                          /* lists that fire or are predicted */
    double *quantiles;                          /* [n_layers][n_blocks][n_ff]: as of predict.c; 0: not yet */
    struct inputs_shift *shifts;                /* [PREDICT_INPUTS][n_layers][n_blocks] */
    double *consecutive_cum;                    /* of inputs_consecutive; else NULL */
    void (*close)(struct inputs *in);           /* frees trace; may be NULL */
    void *trace;                                /* where they come from, owned: struct trace *, or a description */
};

/* Allocate curves, loads (1) and layers for the shape and batches already set. */
int inputs_alloc(struct inputs *in, struct err *e);

/* Keep what is worked out, from now on; curves and lists must not change any more. */
int inputs_memoise(struct inputs *in, struct err *e);

/* Allocate predictors, none of them there, for the shape already set; fill those of a trace, where it has any. */
int inputs_alloc_predictors(struct inputs *in, struct err *e);
struct trace;
int inputs_predictors_from_trace(struct inputs *in, const struct trace *t, struct err *e);

/* Fill in->cold, where the trace has it; positions are known. Leave in lists of a layer's firing neurons what is kept at in->cold_bound. */
int inputs_cold_from_trace(struct inputs *in, struct trace *t, struct err *e);
int inputs_cold_thin(const struct inputs *in, int layer, struct inputs_steps *s, struct err *e);

/* Prefix sums, in pack order, of counts[n_ff] of neurons over n_steps steps: expected firings of a step. position[n_ff]: where they are. */
void inputs_fill_curve(struct inputs_curve *c, const uint64_t *counts, const uint32_t *position, int n_ff, double n_steps);

/* Curves of several sequences from a trace's window of maps, in the steps that replay makes of it: of those sizes for which the window has
 * steps enough. Of others the trace's own counts are taken, of tokens at the same position. ERR_NOMEM, ERR_FORMAT, ERR_SYS. */
int inputs_counts_in_window(const struct inputs *in, int batch_index);
int inputs_curves_from_window(struct inputs *in, struct trace *t, struct err *e);

/* Batch sizes planned for: those of inputs_batch_sizes up to max_batch, at least one. */
int inputs_count_batches(int max_batch);

/* The same model where the tokens of a step are one sequence's, one after the other: `out` has curves of 1, 2, 4 ... tokens, as many sizes
 * as there are such steps of, at most n (n_batches; 1 where nothing is known of them), and borrows all else from `in`. firings: curves
 * of neurons too, else of routes alone. inputs_consecutive_done frees what is its own. */
int inputs_consecutive(const struct inputs *in, int n, int firings, struct inputs *out, struct err *e);
void inputs_consecutive_done(struct inputs *out); /* accepts a zeroed one */

/* Everything but the maps is read here. max_batch: curves for all sizes up to it. sort: how packs of this trace order neurons. */
int inputs_from_trace(const char *path, int max_batch, enum layout_sort sort, struct inputs *out, struct err *e);

/* From now on what steps gives has of each neuron only those firings that are kept at a bound of so many nats (a plan's cold_bound); which,
 * is drawn, the same every time. 0: all. ERR_MISMATCH where nothing is known of that, ERR_NOMEM. */
int inputs_use_cold(struct inputs *in, double bound, struct err *e);

/* Share of a neuron's firings that are kept at a bound; nats of a token that all neurons of a layer from position `from` on lose. */
double inputs_cold_kept(const struct inputs *in, int layer, uint32_t position, double bound);
double inputs_cold_loss(const struct inputs *in, int layer, uint32_t from, double bound);

void inputs_done(struct inputs *in); /* accepts a zeroed one */

static inline const struct inputs_curve *inputs_curve_at(const struct inputs *in, int batch_index, int layer,
                                                         int block)
{
    return &in->curves[((size_t)batch_index * (size_t)in->n_layers + (size_t)layer) * (size_t)in->n_blocks +
                       (size_t)block];
}

static inline struct inputs_predictor *inputs_predictor_at(const struct inputs *in, int input, int layer, int block)
{
    return &in->predictors[((size_t)input * (size_t)in->n_layers + (size_t)layer) * (size_t)in->n_blocks +
                           (size_t)block];
}

static inline const struct inputs_loss *inputs_loss_at(const struct inputs *in, int input, int layer)
{
    return &in->loss[(size_t)input * (size_t)in->n_layers + (size_t)layer];
}

/* Bytes of the matrices of a layer that every token multiplies; layer 0 has those of the layers before the experts' too. */
static inline double inputs_resident_bytes(const struct inputs *in, int layer)
{
    double sum = inputs_layer_bytes(&in->layers[layer]);
    for (int l = in->h.n_layers; layer == 0 && l < model_depth(&in->h); l++)
        sum += inputs_layer_bytes(&in->layers[l]);
    return sum;
}

/* FFNs that a step reaches in a layer are inputs_gates / inputs_n_ff: neurons of each. Arrays of neurons have n_ff of the widest; those
 * that a narrower layer lacks are its last, and never fire. */
static inline int inputs_n_ff(const struct inputs *in, int layer)
{
    return model_n_ff(&in->h, layer);
}

/* Expected firing neurons of a step in the layer, beyond the first `hot` positions of each block. */
double inputs_active(const struct inputs *in, int batch_index, int layer, uint32_t hot);

/* Gate rows that exact mode computes in a step: all neurons of every block that is reached. */
double inputs_gates(const struct inputs *in, int batch_index, int layer);

/* The account's view of the model under a layout. */
int inputs_budget_model(const struct inputs *in, const struct layout *l, struct budget_model *out, struct err *e);

/* The hash of the neuron order that a pack of this form has: hot to cold, but in tiles the source's. */
struct hash128 inputs_order_hash(const struct inputs *in, enum layout_form form);

/* The model as far as its layouts ask; it borrows from `in`. */
void inputs_source(const struct inputs *in, struct layouts_source *out);

#endif
