#ifndef PLANNER_SOLVE_SOLVE_H
#define PLANNER_SOLVE_SOLVE_H

/* The optimisation problem in plain integers, and two ways to solve it: a relaxation in C that is exact for
 * the linear programme (solve.c), and Z3 (solve_z3.h). Tests compare both with exhaustive search.
 *
 *   minimise   sum over batch sizes b of  w_b * T_b
 *   T_b      = fixed_b + max(floor_b, sum over layers l of t_lb)
 *   t_lb     = curve_lb(x_lb)                  x: bytes of the layer's hot and cold regions
 *   sum over l of x_lb + fixed bytes <= memory for every b
 *   T_1     <= max_ticks                       (the user's lower bound on speed)
 *   n_k     <= cores_k,  context >= the user's
 *   kind of the point that l takes at b  =  kind_l, the same for every b
 *
 * for one configuration (global integer choices) out of a list. A curve is a set of points, of which a solution
 * takes one; the relaxation works on its lower convex hull, so its optimum bounds the best from below, and
 * rounding every x down to a point of the set stays within memory. Points have a kind where a layer may run in several
 * variants that all batch sizes must share (which predictor it has). The relaxation leaves the last line out, so its bound
 * holds; with one batch size there is nothing to agree on. Bytes are in units of 64, times in ticks of 1/16 ns, all
 * int64 and exact. */
#include "common/base/err.h"
#include "common/offline/hwdb/hwdb.h"

#include <stdint.h>
#include <stdio.h>

#define SOLVE_BYTE_UNIT    64
#define SOLVE_TICKS_PER_NS 16
#define SOLVE_MAX_BATCHES  6
#define SOLVE_NEVER        INT64_MAX

struct solve_point {
    int64_t bytes, ticks;
    uint32_t id;                /* the caller's */
    int kind;
};

/* Points ascend in bytes and strictly descend in ticks; hull[] indexes those on the lower convex hull, first and
 * last included. */
struct solve_curve {
    int n, n_hull;
    struct solve_point *point;
    int *hull;
};

struct solve_config {
    int n[HW_MAX_CLASSES], depth, id;       /* global choices; id: the caller's */
    int64_t fixed_bytes;                    /* of the account, at the problem's context and with empty regions */
    int64_t context_bytes;                  /* what one KV position of all sequences adds to it; a lower bound */
    int64_t fixed_ticks[SOLVE_MAX_BATCHES], floor_ticks[SOLVE_MAX_BATCHES];
    struct solve_curve *curves;             /* [n_batches][n_layers], of all kinds; NULL: known by its bounds alone */
    int n_kinds;                            /* more than 1: batch sizes have to agree, and */
    struct solve_curve *kinds;              /* [n_kinds][n_batches][n_layers]: the points of each kind; n 0: the layer
                                             * cannot be of it. Else NULL */
    /* Filled by solve_bound: */
    int64_t bound;                          /* relaxed objective within the memory; SOLVE_NEVER: does not fit */
    int64_t relaxed_ticks;                  /* T_1 relaxed, within the memory; SOLVE_NEVER: does not fit */
    int64_t best_ticks;                     /* T_1 with unlimited memory */
    int64_t need_bytes;                     /* least memory for T_1 <= max_ticks (relaxed); SOLVE_NEVER: none is
                                             * enough */
};

/* How the cost model's equations make the times of the points, as text for Z3 (solve_text.h): SMT-LIB terms in ns that agree with
 * the points' and fixed ticks to within a tick each. */
struct solve_equations {
    void (*functions)(void *ctx, FILE *out);    /* their definitions; of configurations: by solve_config.id */
    int (*rates)(void *ctx, int config, int batch, FILE *out, struct err *e);  /* constants of a configuration, defined */
    int (*head)(void *ctx, int config, int batch, FILE *out, struct err *e);   /* what a step takes beside its layers */
    int (*point)(void *ctx, int config, int batch, int layer, const struct solve_point *at, FILE *out, struct err *e); /* a layer */
    int (*curves)(void *ctx, int config, struct solve_config *out, struct err *e); /* of one that is known by its bound alone */
    void *ctx;
};

struct solve_problem {
    int n_layers, n_batches, n_classes, n_configs;
    int64_t weight[SOLVE_MAX_BATCHES];      /* w_b */
    struct solve_config *configs;
    int64_t memory;                         /* units of 64 bytes */
    int64_t max_ticks;                      /* of T_1; SOLVE_NEVER: no limit */
    int cores[HW_MAX_CLASSES];              /* the user's; the device's where he gave none */
    int context;
    const struct solve_equations *equations; /* borrowed; NULL: times are the points' ticks */
};

/* The user's constraints, as bits. */
enum { SOLVE_MEMORY = 1, SOLVE_SPEED = 2, SOLVE_CORES = 4, SOLVE_CONTEXT = 8 };

struct solve_result {
    int feasible, finished;                 /* finished: the solver ran to its end within its limit */
    int config;                             /* index into configs */
    int64_t objective, bound;               /* bound <= optimum <= objective */
    int64_t ticks[SOLVE_MAX_BATCHES];       /* T_b */
    int *choice;                            /* [n_batches][n_layers]: point of the curve (solve_curve_of); malloc'd */
    int *kind;                              /* [n_layers], of configs with kinds; malloc'd */
    unsigned core;                          /* when infeasible: constraints that contradict each other, least */
};

/* Keep the points that no other beats (in place, sorted), find the hull. points: n >= 1, any order; on equal
 * bytes and ticks the lower id stays. Returns a curve that owns its arrays, or ERR_NOMEM. */
int solve_curve_init(struct solve_curve *c, const struct solve_point *points, int n, struct err *e);
/* A curve of its own with the points of another; ERR_NOMEM. */
int solve_curve_copy(struct solve_curve *c, const struct solve_curve *from, struct err *e);
void solve_curve_done(struct solve_curve *c);

/* Free a configuration's curves and kinds; its bounds stay. Accepts one without. */
void solve_config_done(const struct solve_problem *p, struct solve_config *c);

/* Rounded to the nearest; at most 1e14 ns. */
static inline int64_t solve_ticks(double ns)
{
    return ns < 1e14 ? (int64_t)(ns * SOLVE_TICKS_PER_NS + 0.5) : (int64_t)1e14 * SOLVE_TICKS_PER_NS;
}

/* Fill bound, relaxed_ticks, best_ticks, need_bytes of a config that has curves. */
int solve_bound(const struct solve_problem *p, struct solve_config *c, struct err *e);

/* Exact optimum of the relaxation for one batch size with `bytes` for regions: x[n_layers] and the value (rounded
 * down to ticks) of sum t. SOLVE_NEVER when even the smallest points do not fit. */
int solve_relax(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t bytes, int64_t *x,
                int64_t *ticks, struct err *e);

/* Where the relaxation of a batch size ends: the slope *p / *q, ticks per 64 bytes, of the hull segment that the memory cuts. 0 / 1
 * where memory does not bind; 1 / 0 where even the smallest points do not fit. */
int solve_multiplier(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t bytes, int64_t *slope,
                     int64_t *width, struct err *e);

/* Points for given x (each rounded down), then what is left spent where it gains most per byte, ties to the lowest
 * layer, then at most 64 exchanges (one layer down by some points, another up) as long as they gain.
 * choice[n_layers]; returns sum t. Never above memory. */
int64_t solve_round(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t bytes,
                    const int64_t *x, int *choice);

/* Round a relaxed solution x[n_batches][n_layers] of config `index` into out's config, choice, kind, ticks and
 * objective, whose arrays are there. Where batch sizes have to agree on kinds, those that each of them would take
 * alone, one kind for all layers, the kinds of least bytes, and single changes to the best of these are tried: not
 * every combination, the bound says by how much that can miss. 1: done, 0: nothing fits or is fast enough. */
int solve_round_result(const struct solve_problem *p, int index, const int64_t *x, struct solve_result *out, struct err *e);

/* The curve that a result's choice indexes. */
static inline const struct solve_curve *solve_curve_of(const struct solve_problem *p, const struct solve_result *r,
                                                       int batch, int layer)
{
    const struct solve_config *c = &p->configs[r->config];
    size_t at = (size_t)batch * (size_t)p->n_layers + (size_t)layer;
    return c->kinds ? &c->kinds[(size_t)r->kind[layer] * (size_t)p->n_batches * (size_t)p->n_layers + at] :
                      &c->curves[at];
}

/* Arrays of a result for a problem; ERR_NOMEM. */
int solve_result_new(const struct solve_problem *p, struct solve_result *out, struct err *e);

/* T_b of a sum; the whole objective of a complete choice. */
int64_t solve_total(const struct solve_config *c, int batch, int64_t sum_ticks);

/* Do the configuration's cores fit the user's? */
int solve_cores_ok(const struct solve_problem *p, const struct solve_config *c);

/* Best rounded solution from the relaxation alone, over all configs with curves; bound over all configs.
 * feasible 0 (without a core) when nothing fits. */
int solve_greedy(const struct solve_problem *p, struct solve_result *out, struct err *e);

void solve_result_done(struct solve_result *r);

#endif
