#ifndef PLANNER_REPORT_EXPLAIN_H
#define PLANNER_REPORT_EXPLAIN_H

/* What stands behind one memory limit of a plan: its account, every equation with its numbers, what binds. Plain data for
 * cmd_explain and the page. */
#include "common/plan/plan.h"

#include "planner/terms/terms.h"
#include "planner/search/problem.h"

#define EXPLAIN_OPERANDS 9
#define EXPLAIN_TERMS    9
struct explain_number {
    char name[FORMULA_NAME + 1];        /* of a term that is taken away, "-t_hidden" */
    double value;
};
/* Where a number comes from: from others, the trace and the plan; the device's figures, as they came into the database; those of another
 * type or pattern, which stand for one that it has not; or nothing, and it is taken as 0. */
enum explain_basis {
    EXPLAIN_DERIVED, EXPLAIN_MEASURED, EXPLAIN_PUBLISHED, EXPLAIN_ESTIMATED, EXPLAIN_OTHER, EXPLAIN_ASSUMED,
    EXPLAIN_BASES
};
extern const char *const explain_basis_names[EXPLAIN_BASES];

struct explain_line {
    char id[8], formula[TERM_TEXT];     /* "(8)", "t_ffn = a * F_ffn / f_cpu" */
    const char *unit;                   /* "ns" */
    int n, n_terms;
    struct explain_number operand[EXPLAIN_OPERANDS];
    struct explain_number term[EXPLAIN_TERMS]; /* of the same unit, which add up to value: each may have a line of its own,
                                                * whose formula begins with its name, "t_io = ..." */
    double value;
    enum explain_basis basis[EXPLAIN_OPERANDS]; /* of each operand; value and terms are derived */
};

/* Why a layer's predictors see what they see. Others are given the bytes that the layer has in the plan, its predictors'
 * included, to spend as suits them best. */
struct explain_rival {
    int known;                          /* there are predictors that see this input, and they fit */
    uint64_t predictor_bytes;
    double read_bytes, total_ns;
};
struct explain_input {
    int input;                          /* enum predict_input; -1: the layer runs exactly */
    uint64_t predictor_bytes;
    int streamed;                       /* they are read whenever they are used, and count as no memory */
    double density;                     /* share of its neurons that a step computes */
    double hidden_ns;                   /* that reads overlapping attention save: (M7) - (M13) */
    struct explain_rival rival[PREDICT_INPUTS]; /* other inputs than the plan's */
};

/* What the accelerator brings at a batch size: the speed with the plan's height, without it, and at the best height beside none, of those
 * that the planner tries; all at the plan's residencies, cores and queue. */
#define EXPLAIN_HEIGHTS 16

struct explain_height {
    int batch, n_tried;
    uint32_t neurons, best, tried[EXPLAIN_HEIGHTS]; /* tried: sixteenths of an FFN's neurons, in whole clusters, ascending */
    enum plan_work work, best_work; /* the plan's; that of best and tried: the plan's where it uses the accelerator, else the fastest */
    double tokens_per_s, without, at_best, at[EXPLAIN_HEIGHTS]; /* at: tokens/s at each that was tried */
};

/* The same of prompts that are one pass, until their first token. */
struct explain_prompt_height {
    int tokens, n_tried;
    uint32_t neurons, best, tried[EXPLAIN_HEIGHTS];
    enum plan_work work, best_work;
    int rest, best_rest;                /* 1: and all neurons that are not in memory */
    double first_ns, without_ns, best_ns, at_ns[EXPLAIN_HEIGHTS]; /* best_ns, at_ns: of best and tried, none not among them */
};

#define EXPLAIN_LINES 56

struct explain {
    struct budget account;
    uint64_t exact_floor;               /* of a predicted plan: its floor without predictors */
    int n_paper, n_measured;
    struct explain_line paper[EXPLAIN_LINES], measured[EXPLAIN_LINES];
    struct explain_input *inputs;       /* [n_layers]: of a predicted plan by measured curves, batch 1; malloc'd, or NULL */
    const char *engine;                 /* of the device, that the plan may use; NULL: none. Borrowed */
    int n_heights;
    struct explain_height height[PLAN_MAX_BATCHES]; /* of each batch size */
    int n_prompt_heights;
    struct explain_prompt_height prompt[PLAN_PROMPT_POINTS]; /* of lengths above them, up to the chunk, where figures tell */
    double *best_hit_rate;              /* [n_layers]: Belady's bound at the plan's sizes, batch 1; malloc'd */
};

/* pr is prepared for the plan's layout, the limit's mode and policy. */
int explain_limit(struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain *out,
                  struct err *e);
void explain_done(struct explain *x);

/* ", attention's products and the head": what an accelerator computes beside neurons; "": nothing. */
const char *explain_work(enum plan_work w);
/* ", those that are not in memory": likewise. */
const char *explain_rest(int rest);

/* Fills inputs. pr as above. */
int explain_inputs(const struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain_input **out,
                   struct err *e);

/* Fills engine, height and prompt: planner/report/explain_engine.c. pr as above. */
int explain_engine(const struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain *x, struct err *e);

/* What the plan's input saves a layer against the best other one, ns; NAN: there is no other. */
double explain_saved_ns(const struct explain_input *x, double total_ns);

/* The equations with their numbers, into paper and measured: planner/report/explain_lines.c. explain_row: one of them, in
 * place of a line of the same equation; v: by places in the table, NAN what is not known. */
void explain_row(const struct terms *t, const struct term_equation *q, const double *v, struct explain_line *lines, int *n);
int explain_paper(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *choice,
                  const struct cost_residency *residencies, struct explain *x, struct err *e);
int explain_measured(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *choice,
                     const struct cost_residency *residencies, struct explain *x, struct err *e);

/* What of a layer goes on while something else does: attention + prediction + FFN + I/O + exposed - total, the FFN's the longer
 * of compute and memory (the paper's: compute). */
double explain_overlap_ns(enum plan_cost cost, const struct plan_layer_figures *f);

/* Which of a layer's three FFN terms binds, the longest. */
enum explain_bound { EXPLAIN_COMPUTE, EXPLAIN_MEMORY, EXPLAIN_IO, EXPLAIN_BOUNDS };
extern const char *const explain_bound_names[EXPLAIN_BOUNDS]; /* "compute" "memory" "io" */
enum explain_bound explain_binds(const struct plan_layer_figures *f);

/* Layers that each binds, at batch 1. */
void explain_count(const struct plan *p, const struct plan_limit *l, int count[EXPLAIN_BOUNDS]);

/* Fills the bases of lines: planner/report/explain_basis.c. */
void explain_bases(const struct problem *pr, const struct cost_choice *c, const struct terms *t, struct explain_line *lines, int n);

/* "B_io measured; tau_norm, tau_rope assumed": of a line, what is not derived; "": nothing. */
#define EXPLAIN_BASES_TEXT 240
void explain_bases_text(const struct explain_line *l, char *out, size_t len);

/* What a limit's gap holds for: "under this layout". */
const char *explain_gap_of(const struct plan_limit *l);

/* What the layout that all limits have costs this one; "": it is not stated. */
#define EXPLAIN_OWN 160
void explain_own(const struct plan_limit *l, char *out, size_t len);

#endif
