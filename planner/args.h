#ifndef PLANNER_ARGS_H
#define PLANNER_ARGS_H

/* The command line that solve, explain and sweep share: where the inputs are, and what the user asks for. */
#include "common/cli/opt.h"

#include "planner/planning/planning.h"
#include "planner/planning/planning_guesses.h"

struct args {
    const char *traces, *description, *hardware, *device, *memory, *cores, *for_pack, *down_type, *gate_type, *batch_weights, *engine;
    /* choices as in the tables of args.c */
    int cost, stat, mode, form, packed, predictor, kv, act, policy, order, context, max_batch, chunk, cluster_neurons, purpose, elastic;
    int always_resident;
    int corrections, no_verify;
    double min_speed, recall, max_kl, prompt_weight;
    uint64_t rlimit;
};

/* Defaults, and rows for the option table (ARGS_ROWS of them are written to rows; add yours and the end). */
#define ARGS_LEFT_PART 8 /* of available memory, which others take from, that a limit made of it leaves */
#define ARGS_ROWS 34
void args_init(struct args *a);
void args_rows(struct args *a, struct opt *rows);

/* What is loaded for a request. Free with args_done. */
struct args_inputs {
    struct inputs in;
    struct hw hw;
    struct layout pack_layout;
    struct notes notes;
    struct request request;
};

/* Load trace, hardware and (--for-pack) pack, and translate the request; --memory may be absent when need_memory is
 * 0. ERR_USAGE names the option. */
int args_load(const struct args *a, int need_memory, struct args_inputs *out, struct err *e);
void args_done(struct args_inputs *in); /* accepts a zeroed one */

/* Before there is a trace: the model's own file, and of the flags that the trace will be given those that say what the model is (--act,
 * --expert-gating, --silence); NULL: none. What of a request names the device's cores or accelerator is left to the plan. */
int args_load_untraced(const struct args *a, const char *model, const char *trace_flags, struct args_inputs *out, struct err *e);

/* Who guesses further tokens, of solve and check; nobody is said: a source that takes no time. */
struct args_guesser {
    const char *draft_plan, *mtp;
    uint64_t draft_memory;
};
#define ARGS_GUESSER_ROWS 3
void args_guesser_rows(struct args_guesser *a, struct opt rows[ARGS_GUESSER_ROWS]);
int args_guesser_of(const struct args_guesser *a, const struct args_inputs *in, struct guesser *out, struct err *e);

/* The model, from exactly one of a trace and a description, which knows no order; notes as for describe_inputs. */
int args_load_model(const char *traces, const char *description, int max_batch, enum layout_sort sort, struct inputs *out,
                    struct notes *notes, struct err *e);

/* That of a plan, with its cold_bound (inputs_use_cold). */
int args_load_model_of(const char *traces, const char *description, const struct plan *p, struct inputs *out, struct err *e);

/* What explain, report and check ask for beside a plan: where it came from. Rows for the option table; needed: they are no
 * choice. */
struct args_origin {
    const char *traces, *description, *hardware, *device;
};
#define ARGS_ORIGIN_ROWS 4
void args_origin_rows(struct args_origin *a, int needed, struct opt rows[ARGS_ORIGIN_ROWS]);

/* A device's hardware, with the only device when name is NULL. */
int args_load_hw(const char *path, const char *name, struct hw *out, struct err *e);

/* The hardware that a plan was made for (name NULL: on the plan's device), under the corrections that it was made
 * with, if any. Whether it is that hardware is for check_plan to say. */
int args_load_hw_of(const char *path, const char *name, const struct plan *p, struct hw *out, struct err *e);

/* "calibration 3: attention 1.05, ffn 1.2": the corrections that are applied. */
void args_corrections_text(const struct hw *hw, char *out, size_t len);

#endif
