#ifndef PLANNER_COST_COST_H
#define PLANNER_COST_COST_H

/* The cost model: how long a decode step takes. The equations are rows of tables (terms.h): (1)-(11) the paper's (PowerInfer-2,
 * arXiv:2406.06282), (M1)-(M36) our own, over measured curves. Here is what looks their operands up. docs/cost-model.md is the page to read
 * beside it. Times in ns, sizes in bytes, rates per second. All functions are pure and thread-safe. */
#include "common/offline/hwdb/hwdb.h"
#include "common/ops/ops.h"
#include "common/plan/layout.h"
#include "common/plan/plan.h"
#include "common/plan/schedule.h"

#include "planner/terms/terms.h"
#include "planner/inputs/inputs.h"
#include "planner/inputs/notes.h"
#include "planner/predict/predicted.h"
#include "planner/replay/replay.h"

/* (9): of n classes. */
double cost_f_cpu(const int *n_k, const double *f_k, int n);

/* (M4): n reads. Points at n = 0, 1, 2, 4 .. D (between measured depths the mean of their times), linear between; beyond D each takes
 * each_ns. The reads of a layer are a burst: the last ones have nothing behind them, fewer and fewer are in flight. */
#define COST_READ_POINTS 14
struct cost_reads {
    int n;                          /* points */
    double count[COST_READ_POINTS], ns[COST_READ_POINTS], each_ns;
};
double cost_reads_ns(const struct cost_reads *c, double reads);

/* (M21). curves[c] is that of reads of 2^c units (replay_reads.h), linear in bytes between. */
double cost_joined_ns(const struct cost_reads *curves, const struct replay_reads *how, double missed);

/* R of (M4), bytes: one unit's read in whole blocks. Packed units begin anywhere in a block: the mean over a part's
 * units. */
double cost_read_bytes(const struct layout_shape *s, int part);

/* Down's kernels take tokens by fours and leave out rows that none of the four needs: rows count that fire for any of so many tokens
 * of the step, each with tau of all. The index of that size in inputs_batch_sizes. */
#define COST_DOWN_TOKENS 4
int cost_down_index(int batch_index);

/* Jobs of (M15). attention: without its router and what stays in memory of its FFN. */
int cost_layer_jobs(const struct inputs_layer *il, int attention);

/* (M17); pieces as the runtime cuts them (SCHEDULE_PIECE_BYTES, runtime/engine/dense_cpu.c). */
double cost_attend_ns(double positions, double heads, double attend_ns, double kv_bytes, int threads, int batch);

/* sigma of (M26) is that of arithmetic from so many tokens on. */
#define COST_MANY_TOKENS 32

/* (M7), (M13) and (M10) of figures. */
double cost_layer_ns(const struct plan_layer_figures *f);
double cost_lookahead_ns(const struct plan_layer_figures *f);
double cost_step_ns(double head_ns, const struct plan_layer_figures *f, int n_layers);

int cost_kv_times(int tokens); /* that K and V are read for so many of one sequence, (M30) */

/* Positions that a layer's attention sees, in the mean over a context that fills: context / 2; where a window w < context
 * ends it, w - w^2 / (2 context) */
double cost_positions(const struct model_hparams *h, int layer, int context);

/* (M8) and (M9) of a layer whose attention, or state, needs that. */
double cost_kv_bytes(const struct op_need *n, int batch, double positions, int kv_type);
double cost_kv_flops(const struct op_need *n, int batch, double positions);

/* Heads of a token in a layer that (M16) rotates. */
int cost_rotated(const struct model_hparams *h, int layer);

#define COST_LEAST_BUFFERS 2 /* of streamed predictors: nothing is read ahead through so few */

/* --- From tables to those equations --- */

/* Tokens of a step: of as many sequences; of one, one after the other; and behind the first they are drafts, (M30). */
enum cost_tokens { COST_SEQUENCES, COST_PROMPT, COST_DRAFTS };

/* Global choices, one value per plan limit. */
struct cost_choice {
    enum plan_mode mode;
    int variant, group;                 /* of the problem; 0 where there is one. In a group of several variants each layer
                                     * has its own (struct cost_residency), variant is the first */
    const struct predicted *predicted; /* predicted mode; else NULL. Borrowed */
    enum plan_cost model;
    enum plan_stat stat;
    int n_classes, n[HW_MAX_CLASSES], threads; /* threads = sum of n */
    enum hw_backend backend;
    int depth, lanes;
    int buffers;                    /* of streamed predictors; 0: there are none */
    int act_q8, kv_type, context;
    int stream_tables;              /* 1: rows of embeddings are read, (M37) */
    int only_batch;                 /* as in struct limits */
    enum cost_tokens tokens;        /* whose a step's are */
    const char *engine;             /* an accelerator of the device, by its name there; NULL: none. Borrowed */
    uint32_t height;                /* of each FFN, the hottest neurons in memory that it computes, at most; 0 without it */
    enum plan_work work;            /* what else it computes; nothing without it */
    uint64_t area_bytes;            /* through which prompts may read what is not in memory for it, (M36); 0: there is none */
    int ahead;                      /* 1: experts are read before their router has chosen, (M32) */
    int rule;                       /* how missing units are read: of the problem's; 0: neighbours only */
    uint32_t read_bytes;            /* of the longest read through gaps; 0: there is none */
};

/* Does the choice's accelerator do anything? */
static inline int cost_has_engine(const struct cost_choice *c)
{
    return c->engine && (c->height || c->work);
}

/* Figures of a device that a plan goes by. */
static inline enum hw_stat cost_stat(enum plan_stat s)
{
    return s == PLAN_SUSTAINED ? HW_SUSTAINED : HW_TYPICAL;
}

/* Which neurons of a layer stay in memory: the same for each of its blocks. */
struct cost_residency {
    uint32_t hot[LAYOUT_MAX_PARTS]; /* neurons per block */
    uint32_t slots;                 /* of the last part, per layer */
    int variant;                        /* of the problem: the layer's own, where the choice's group has several */
    int streamed;                   /* its predictors are read whenever they are used */
};

/* What a step then moves. Depends on residency and trace only, not on the device. */
struct cost_flow {
    double stream_bytes;            /* read in sequence: part 0 beyond its prefix (dense mode: every part) */
    double single_reads;            /* of part 0, one unit each (two-phase layouts) */
    double predictor_bytes;         /* read in sequence: of streamed predictors */
    double reads, lookups;          /* of the last part: cold misses, units looked up */
    double copied;                  /* share of those misses that are copied to a slot; without one, they are used from their buffers */
    const struct replay_reads *how; /* how these are read, by rule; NULL: one by one. Of the table, borrowed */
    double beyond;                  /* gates that are not computed together with their resident Up and Down */
    int at_once;                    /* all reads are asked for before anything is computed, as of experts that a router has chosen; */
    double tiles;                   /* then: units of the experts of a step, with those of the prefix */
    const struct replay_point_steps *steps; /* what steps miss, step by step; NULL: it is known in the mean alone. Of the table, borrowed */
    double early[REPLAY_AHEAD];     /* reads, of them foreseen, and reads in vain, where the choice reads ahead; steps with guesses */
    int foresees;                   /* 1: that is known, and possible in this layer */
    int ahead;                      /* streams and single reads need no activations: they begin before attention */
    double mu;                      /* (10): misses per firing neuron, hot ones counted as hits; dense mode: the
                                     * share of the FFN that is not resident */
};

/* (M14)-(M19), (M22): the engine's own work at a choice, into *out. 0 where it was not measured. planner/cost/cost_work.c */
struct cost_rates;
void cost_work_rates(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                     const struct cost_choice *c, struct cost_rates *out);

#define COST_HEIGHTS 16

/* Device curves at one choice, batch size and layout, looked up once. */
struct cost_rates {
    double gate_ns, up_ns, down_ns;         /* per row */
    double scattered_ns;                    /* of gates here and there */
    double seq_bw, rand_bw;                 /* memory */
    double stream_bw, stream_block;
    struct cost_reads cold, single;
    double cold_bytes, single_bytes;        /* a read of each */
    double stride_bytes;                    /* of cold units: what each further one adds to a read */
    int n_lengths;                          /* classes of reads that hold several of them: */
    struct cost_reads joined[REPLAY_LENGTHS];
    double together;                        /* (M6) */
    struct hw_beside stream_beside, beside[REPLAY_LENGTHS]; /* (M5), of a read of each */
    double start_ns, turn_ns, lookup_ns, admit_ns; /* 0: not measured */
    double verify_ns_per_byte;              /* likewise */
    double unit_bytes;                      /* of the last part, without padding */
    double norm_ns, rope_ns, attend_ns;
    double attend_many_ns, act_ns, sift_ns; /* of passes of many tokens; 0: not measured */
    int threads, depth;
    int ends;                               /* reads that end together at most, (M6): the depth */
    double launch_ns, sigma;                /* (M25), (M26); 0 without an accelerator */
    double engine_ns[COST_HEIGHTS + 1];     /* of an FFN, by sixteenths of its neurons; the first, of none, a call */
    double f_cpu;                           /* flops/s of the chosen cores, for attention over KV and the paper */
    double b_io, b_mem;                     /* the paper's */
    double ffn_factor, io_factor;           /* corrections of a calibration; 1: none */
};

/* A layer's constants at one choice and batch. */
struct cost_layer {
    double attention_ns, predict_ns, compute_ns, memory_ns, active;
    double products_ns, jobs_ns, serial_ns;  /* of attention_ns: (M9), (M15), (M16) */
    double start_ns, contention_ns;              /* of compute_ns: (M15), (M19) */
    int lookahead, feeds_ahead;             /* (M13) instead of (M7); (M20) through many buffers */
    double engine_ns, queue_ns, launch_ns;  /* (M25), of which calls, of which a launch; 0: all neurons are the processor's */
    double jobs;                            /* (M19) */
    double first_ns;                        /* of the first layer: between guessing its experts and their router, (M32); else 0 */
    double guess_ns;                        /* of guessing a layer's experts: router and norm once more, (M32) */
    double gate_bytes;                      /* of a record of gates, in exact mode; else 0 */
    double ffn_bytes, density;              /* (10): W_ffn of the blocks a step reaches; a */
};

/* Missing figures are replaced in the order that docs/cost-model.md gives, and noted. ERR_UNSUPPORTED when
 * neither compute nor memory figures are known, or storage figures are needed and there are none. */
int cost_rates_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                  const struct cost_choice *c, int batch, struct cost_rates *out, struct notes *notes, struct err *e);

/* Of the layers of each kind: *out [l.n_kinds], malloc'd, NULL on failure. The paper's f_cpu and B_io are one for all: those of the
 * first. ERR_NOMEM, or an error of cost_rates_of. */
int cost_rates_new(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *c, int batch,
                   struct cost_rates **out, struct notes *notes, struct err *e);

/* As good, besides, as at the depth of c, a choice that differs in nothing else and is no deeper: of two curves of reads, (M4), the
 * deeper queue's is no slower in any point or step. */
void cost_rates_relax(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c, struct cost_rates *r);

void cost_layer_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                   const struct cost_choice *c, const struct cost_rates *r, int batch_index, int layer,
                   struct cost_layer *out, struct notes *notes);

/* launch_ns, sigma and engine_ns of *r, for the choice's accelerator and FFNs of so many tokens, (M25). ERR_UNSUPPORTED: the device has no
 * figures that tell. */
int cost_engine_rates_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                         double tokens, struct cost_rates *r, struct notes *notes, struct err *e);

/* The same of a step of `batch` tokens: of experts those that the router gives each in the mean. */
int cost_engine_rates(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c, int batch,
                      struct cost_rates *r, struct notes *notes, struct err *e);

/* Do the device's figures of an accelerator tell the time of FFNs of this layout, of a type or one that stands for it? */
int cost_engine_known(const struct hw *hw, const char *engine, const struct layout_shape *s, int d_model);

/* Was that measured with so many tokens, or more? */
int cost_engine_measured(const struct hw *hw, const char *engine, const struct layout_shape *s, int d_model, int tokens);

/* (M34): n products with `tokens` tokens. */
double cost_engine_products_ns(const struct hw *hw, const struct cost_choice *c, const struct inputs_matrix *const m[], int n, int tokens);

/* Of which of these the device's figures tell the time, of so many tokens or more; of recurrent layers' none do. */
enum plan_work cost_work_known(const struct hw *hw, const struct inputs *in, const char *engine, int tokens);

/* What of that the accelerator does faster than the choice's processors in a step of `batch` tokens; the choice's own height and work do
 * not count. ERR_NOMEM, or an error of cost_rates_of. */
int cost_best_work(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *c,
                   const char *engine, int batch, enum plan_work *out, struct err *e);

/* An FFN of so many neurons on the accelerator, linear between the sixteenths of r->engine_ns. */
double cost_engine_ffn_ns(const struct cost_rates *r, int n_ff, uint32_t height);

/* How many neurons of each FFN the choice's accelerator computes where so many stay in memory. */
uint32_t cost_height(const struct layout_shape *s, const struct cost_choice *c, const struct cost_residency *k);

/* What of a layer changes where the accelerator has the first `height` neurons of each FFN: those of the processor are the others. l: of
 * cost_layer_of. Predictors (M11) score the others alone; those that are streamed are read whole. */
void cost_layer_beside(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                       const struct cost_rates *r, int batch_index, int layer, uint32_t height, struct cost_layer *l);

/* Adds (M9), (M15) and (M16) of what a layer keeps in memory, for `batch` tokens, to products_ns, jobs_ns and serial_ns. Layers before the
 * experts' count with layer 0. */
void cost_resident_of(const struct hw *hw, const struct inputs *in, const struct cost_choice *c, const struct cost_rates *r, int batch,
                      int layer, struct cost_layer *l, struct notes *notes);

/* (M37) of `batch` tokens: reads of rows, their bytes and time. All 0: tables are in memory. */
struct cost_lookups {
    double reads, bytes, ns;
};
struct cost_lookups cost_lookups_of(const struct hw *hw, const struct inputs *in, const struct cost_choice *c, int batch);

/* With (M37), by the measured cost model. */
double cost_head_ns(const struct hw *hw, const struct inputs *in, const struct cost_choice *c,
                    const struct cost_rates *r, int batch, struct notes *notes);

/* What a layer runs in: the choice's mode, but exact where predicted mode has no predictor for it. */
enum plan_mode cost_mode_at(const struct cost_choice *c, int layer);

/* Bytes of a layer's predictors that a step reads where they are streamed. */
double cost_predictor_bytes(const struct inputs *in, const struct predicted *f, int batch_index, int layer);

/* t: the layer's replay table at this batch (of the lists that the choice's mode makes); NULL: nothing hits. */
struct cost_flow cost_flow_of(const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                              int batch_index, int layer, const struct replay_table *t, const struct cost_residency *k);

/* All figures of a layer. In the paper's model and exact mode the gates are the predictor (F_pred, W_pred:
 * computed in full, before the FFN is known), W_ffn is Up and Down, and gates that memory does not hold add their
 * bytes to V_io; in dense mode a = 1 and there is no predictor. */
struct plan_layer_figures cost_figures(const struct cost_choice *c, const struct cost_rates *r,
                                       const struct cost_layer *l, const struct cost_flow *f);

/* cost_figures with the terms that they are sums of, over measured curves, and what these are made of: v[TERM_VALUES], by places in the
 * table (terms.h), NAN what is not known here. A calibration's factors are in the times. v may be NULL. */
struct plan_layer_figures cost_figures_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l,
                                          const struct cost_flow *f, double *v);

/* Reads of the last part in a step, units and bytes that they hold, what computing loses to them and, by (M4) or (M21), how long
 * they take; the last of them, (M6). */
struct cost_cold {
    double reads, units, bytes, lost_ns, ns, last_ns;
    double kept;     /* (M5), in the mean over those reads */
    double early_ns; /* (M32): until all that is read ahead is there; its bytes and what it costs are in the others, its reads are not */
};
void cost_cold_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_flow *f,
                  struct cost_cold *out);

/* ns of max(compute, memory, io) + exposed (measured), or of t_io alone (paper): what residency changes. cold: of
 * cost_cold_of, for this flow or one with the same reads of the last part. */
double cost_ffn_part_ns(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l,
                        const struct cost_flow *f, const struct cost_cold *cold);

/* Paper model, (2) and (6) over whole sums; measured model, (M10). head_ns: with the lookups' time. flows: [n_layers]. Fills everything of
 * `out` but layers, which it reads. */
void cost_totals(const struct cost_choice *c, int batch, double head_ns, const struct cost_lookups *rows, const struct cost_flow *flows,
                 int n_layers, struct plan_figures *out);

#endif
