#ifndef PLANNER_TERMS_TERMS_H
#define PLANNER_TERMS_TERMS_H

/* The cost model's terms as tables. A row of terms.def or paper.def is the C function of an equation and, by the same tokens, its text:
 * explain, solve --smt2, check and docs/cost-model.md are printed from there (formula.h). Pure; thread-safe. */
#include "common/plan/schedule.h"
#include "planner/terms/formula.h"

/* Without the calls that NaNs, of which there are none, would need: a plan has millions of these. */
static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* The equations' functions. */
#define TERM(id, title, validated)
#define IN(name, unit, source, measured, meaning)
#define EQ(id, value, function, parameters, ...) static inline double function parameters { return __VA_ARGS__; }
#define TEXT(id, value, function, formula, inputs)
#include "planner/terms/paper.def"
#define TERM(id, title, validated)
#define IN(name, unit, source, measured, meaning)
#define EQ(id, value, function, parameters, ...) static inline double function parameters { return __VA_ARGS__; }
#define TEXT(id, value, function, formula, inputs)
#include "planner/terms/terms.def"

/* Places of values: V_t_step, P_t_decode. */
#define TERM(id, title, validated)
#define IN(name, unit, source, measured, meaning) V_##name,
#define EQ(id, value, function, parameters, ...)
#define TEXT(id, value, function, formula, inputs)
enum {
#include "planner/terms/terms.def"
    TERM_VALUES
};
#define TERM(id, title, validated)
#define IN(name, unit, source, measured, meaning) P_##name,
#define EQ(id, value, function, parameters, ...)
#define TEXT(id, value, function, formula, inputs)
enum {
#include "planner/terms/paper.def"
    TERM_PAPER_VALUES
};

/* Where a value comes from: sums of layers and steps; what the plan or the model has; or rows of the hardware database. */
enum term_source { SUMMED, CHOSEN, GATES, UPS, DOWNS, RATE, SEQUENTIAL, SCATTERED, STORAGE, JOINT, WORK, ACCEL };

struct term_value {
    const char *name, *unit;
    enum term_source source;
    const char *measured, *meaning;     /* measured: of WORK the very row */
};

struct term_equation {
    const char *id, *value, *function, *formula, *inputs;
};

struct term {
    const char *id, *title, *validated;
};

struct terms {
    int n, n_equations, n_values;
    const struct term *term;
    const struct term_equation *equation; /* those of a term follow each other */
    const struct term_value *value;
};
extern const struct terms terms_measured, terms_paper;

/* The place of a value; -1: there is none. */
int terms_value(const struct terms *t, const char *name);

/* The first equation of a value; NULL: there is none. */
const struct term_equation *terms_equation(const struct terms *t, const char *value);

/* "t_cache = (lookups * tau_lookup + ...) / threads"; of a limit without what is limited. *f: the formula, where it is one; 1 then. */
#define TERM_TEXT (FORMULA_TEXT + FORMULA_NAME)
int terms_text(const struct term_equation *q, struct formula *f, char out[TERM_TEXT]);

/* The i-th value that an equation names, but for its own; NULL: there are no more. f: its formula; NULL: prose. */
const char *terms_input(const struct term_equation *q, const struct formula *f, int i, char out[FORMULA_NAME]);

/* What makes a figure of a plan's layers ("layers.io_ns[3]"), for people: "(M7) t_io = ..."; "": none. */
const char *terms_figure(const char *field, char out[TERM_TEXT]);

#endif
