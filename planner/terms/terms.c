#include "planner/terms/terms.h"

#include <string.h>

#define NO(...)
#define ROWS(table) table ## _terms, table ## _equations, table ## _values
#define COUNT(a) (int)(sizeof (a) / sizeof *(a))

#define TERM(id, title, validated) { #id, title, validated },
#define IN NO
#define EQ NO
#define TEXT NO
static const struct term measured_terms[] = {
#include "planner/terms/terms.def"
};
#define TERM(id, title, validated) { #id, title, validated },
#define IN NO
#define EQ NO
#define TEXT NO
static const struct term paper_terms[] = {
#include "planner/terms/paper.def"
};

#define TERM NO
#define IN NO
#define EQ(id, value, function, parameters, ...) { #id, #value, #function, #__VA_ARGS__, "" },
#define TEXT(id, value, function, formula, inputs) { #id, #value, function, formula, inputs },
static const struct term_equation measured_equations[] = {
#include "planner/terms/terms.def"
};
#define TERM NO
#define IN NO
#define EQ(id, value, function, parameters, ...) { #id, #value, #function, #__VA_ARGS__, "" },
#define TEXT(id, value, function, formula, inputs) { #id, #value, function, formula, inputs },
static const struct term_equation paper_equations[] = {
#include "planner/terms/paper.def"
};

#define TERM NO
#define IN(name, unit, source, measured, meaning) { #name, unit, source, measured, meaning },
#define EQ NO
#define TEXT NO
static const struct term_value measured_values[] = {
#include "planner/terms/terms.def"
};
#define TERM NO
#define IN(name, unit, source, measured, meaning) { #name, unit, source, measured, meaning },
#define EQ NO
#define TEXT NO
static const struct term_value paper_values[] = {
#include "planner/terms/paper.def"
};

const struct terms terms_measured = { COUNT(measured_terms), COUNT(measured_equations), COUNT(measured_values), ROWS(measured) };
const struct terms terms_paper = { COUNT(paper_terms), COUNT(paper_equations), COUNT(paper_values), ROWS(paper) };

int terms_value(const struct terms *t, const char *name)
{
    for (int i = 0; i < t->n_values; i++)
        if (!strcmp(t->value[i].name, name))
            return i;
    return -1;
}

const struct term_equation *terms_equation(const struct terms *t, const char *value)
{
    for (int i = 0; i < t->n_equations; i++)
        if (!strcmp(t->equation[i].value, value))
            return &t->equation[i];
    return NULL;
}

int terms_text(const struct term_equation *q, struct formula *f, char out[TERM_TEXT])
{
    char text[FORMULA_TEXT];
    int is = formula_read(f, q->formula), limit = is && strchr("<>lg", f->node[f->root].op);
    snprintf(out, TERM_TEXT, "%s%s%s", limit ? "" : q->value, limit ? "" : " = ", is ? formula_text(f, text) : q->formula);
    return is;
}

const char *terms_input(const struct term_equation *q, const struct formula *f, int i, char out[FORMULA_NAME])
{
    const char *name, *at = q->inputs;
    for (int k = 0; f && (name = formula_input(f, k)); k++)
        if (strcmp(name, q->value) && i-- == 0) {
            snprintf(out, FORMULA_NAME, "%s", name);
            return out;
        }
    for (; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (i-- == 0) {
            snprintf(out, FORMULA_NAME, "%.*s", (int)n, at);
            return out;
        }
        at += n;
    }
    return NULL;
}

const char *terms_figure(const char *field, char out[TERM_TEXT])
{
    static const char *const figures[][2] = {
        { "attention_ns", "t_attention" }, { "predict_ns", "t_predict" }, { "ffn_compute_ns", "t_compute" },
        { "ffn_memory_ns", "t_memory" }, { "ffn_engine_ns", "t_both" }, { "io_ns", "t_io" }, { "exposed_ns", "t_exposed" },
        { "total_ns", "t_layer" }, { "step_ns", "t_step" }, { "tokens_per_s", "s" }
    };
    const char *dot = strrchr(field, '.'), *last = dot ? dot + 1 : field;
    size_t n = strcspn(last, "[");
    struct formula f;
    char text[TERM_TEXT];
    out[0] = 0;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const struct term_equation *q = terms_equation(&terms_measured, figures[i][1]);
        if (strlen(figures[i][0]) != n || strncmp(figures[i][0], last, n) != 0 || !q)
            continue;
        terms_text(q, &f, text);
        snprintf(out, TERM_TEXT, "(%.8s) %.400s", q->id, text);
    }
    return out;
}
