#ifndef PLANNER_SOLVE_PAPER_H
#define PLANNER_SOLVE_PAPER_H

/* The problem of --cost paper as the paper states it: PowerInfer-2 (arXiv:2406.06282 v1), section 5, Equations 1-11, in plain
 * integers, and its text in SMT-LIB 2. Z3 is asked about that very text (paper_z3.h), and `thermo-plan solve --smt2` writes it.
 *
 * What does not depend on the device's configuration are numbers: work and weights of a variant (a mode and its predictors),
 * and V_io over memory, one curve of priced points for each layer. What does depend on it are rates: f_k of a core, B_io of a
 * queue. mu(m) is stated for all layers at once, as the largest of a few straight lines: a line of slope -lambda lies on or
 * below what the layers reach together (their inf-convolution) where each layer's points lie on or above a line of that slope
 * and the lines add up to it. That is a lemma of constants, which the text states for each line.
 *
 *     V_io ^ \                      V_io >= c - lambda m_ffn,   c = sum over layers of c_l,
 *          |\ \_                    c_l = min over the layer's points of (V + lambda bytes)
 *          | \._`-.__
 *          |  `-.__`-.___`--..      upper: what the layers reach; lower: the lines
 *          +----------------------> m_ffn
 *
 * Pure data; functions are thread-safe. */
#include "planner/solve/solve.h"

#include <stdio.h>

#define PAPER_MAX_PIECES 40
#define PAPER_BYTE       16       /* work and volumes are in sixteenths of a FLOP or a byte */
#define PAPER_SLOPE      1000000000000 /* slopes: in 1e-12 bytes read per byte of memory */
#define PAPER_AT         1000     /* a line's height: in 1e-3 bytes */

struct paper_class {
    char name[32];
    int most;                       /* N_k^max */
    int64_t flops_per_s;            /* f_k */
};

struct paper_cores {                /* cores of each class to compute with, together */
    int n[HW_MAX_CLASSES], threads;
};

struct paper_queue {                /* how reads are queued */
    char backend[16];
    int depth, most_threads;        /* that it goes with */
    int64_t bytes_per_s;            /* B_io; 0: not known, nothing can be read */
    int64_t bytes;                  /* of the account, units of SOLVE_BYTE_UNIT */
};

struct paper_piece {                /* V_io >= at - slope * m_ffn */
    int64_t slope, at;              /* units of 1 / PAPER_SLOPE and 1 / PAPER_AT */
};

/* A variant at one batch size. Sixteenths of a FLOP or byte; active: a * F_ffn, a * W_ffn. */
struct paper_work {
    int64_t f_attn, f_pred, f_ffn, f_active, w_attn, w_pred, w_ffn, w_active;
    const struct solve_curve *layer; /* [n_layers], borrowed: bytes as there, ticks are V_io in sixteenths of a byte */
    int n_pieces;
    struct paper_piece piece[PAPER_MAX_PIECES];
};

struct paper_variant {
    char name[32];
    int64_t bytes, thread_bytes;    /* of the account, without threads' and queues' share; of a thread. SOLVE_BYTE_UNIT */
    struct paper_work work[SOLVE_MAX_BATCHES];
};

struct paper {
    int n_classes, n_cores, n_queues, n_variants, n_batches, n_layers;
    int batch[SOLVE_MAX_BATCHES];
    int64_t weight[SOLVE_MAX_BATCHES];  /* of a batch size's time in what is minimised */
    struct paper_class class[HW_MAX_CLASSES];
    struct paper_cores *cores;
    struct paper_queue *queue;
    struct paper_variant *variant;
    int64_t memory;                     /* M_max, units of SOLVE_BYTE_UNIT */
    double min_tokens_per_s;            /* s_min; 0: none */
    int64_t mem_bytes_per_s;            /* B_mem; 0: not known */
};

/* What a solver found. */
struct paper_choice {
    int cores, queue, variant;              /* indices */
    int64_t ticks;                      /* sum of weight * t_decode, rounded down */
};

/* The line that touches V_io of a work's layers where they have `bytes` together; what there is less or more than the curves'
 * ends takes the first or the last segment. Returns 1 where it is new, 0 where it is there already or there is no room.
 * ERR_NOMEM. */
int paper_add_piece(const struct paper *p, struct paper_work *w, int64_t bytes, struct err *e);

/* n lines, evenly over the segments of the layers' hulls. ERR_NOMEM. */
int paper_spread_pieces(const struct paper *p, struct paper_work *w, int n, struct err *e);

/* How high a line of this slope below a layer's points may begin, units of 1 / PAPER_AT, rounded down; no more than 2e12 bytes. */
int64_t paper_layer_at(const struct solve_curve *k, int64_t slope);

/* Memory of the FFN that a choice leaves, units of SOLVE_BYTE_UNIT; may be negative. */
int64_t paper_ffn_bytes(const struct paper *p, const struct paper_choice *c);

/* A class as part of a symbol: its name, or its number where that is none. Returns out. */
#define PAPER_NAME 64
const char *paper_class_name(const struct paper *p, int k, char out[PAPER_NAME]);

/* Equations as a set. */
#define PAPER_EQ(n) (1u << (n))
#define PAPER_LIMITS (PAPER_EQ(3) | PAPER_EQ(4) | PAPER_EQ(5))

/* Data, unknowns and equations. leave: equations that are left out. linear: Eq. 1 is left out, and Eq. 5 stands for both:
 * t_decode <= 1 / s_min; only linear terms are left then. */
void paper_text(const struct paper *p, unsigned leave, int linear, FILE *out);

/* After them: that no s beats the optimum, that the optimum can be had, and the lemmas of mu(m) and of 1 / f_cpu, each with its
 * answer in a comment. One batch size. Or, where there is no optimum, which equations contradict each other. */
void paper_text_claims(const struct paper *p, const struct paper_choice *best, FILE *out);
void paper_text_contradiction(unsigned core, FILE *out);

void paper_done(struct paper *p); /* accepts a zeroed one */

#endif
