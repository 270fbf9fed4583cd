#ifndef PLANNER_TERMS_FORMULA_H
#define PLANNER_TERMS_FORMULA_H

/* The right side of an equation, read from its text: numbers, names, + - * /, larger(a, b), smaller(a, b), a < b (> <= >=), a < b ? c : d.
 * The text is that of the C function itself (terms.h); from here it is printed for people and as SMT-LIB 2, and computed. Pure functions;
 * thread-safe. */
#include <stdio.h>

#define FORMULA_NODES 96
#define FORMULA_NAME  32
#define FORMULA_TEXT  400

struct formula_node {
    char op;                        /* '#' number, 'n' name, + - * /, 'M' larger, 'm' smaller, < > 'l' <=, 'g' >=, '?' */
    int a, b, c;                    /* operands: nodes */
    double number;
    char name[FORMULA_NAME];
};

struct formula {
    int n, root;
    struct formula_node node[FORMULA_NODES];
};

/* 1; 0: the text is no formula, but prose. */
int formula_read(struct formula *f, const char *text);

/* The i-th name, each once, in order of first use; NULL: there are no more. */
const char *formula_input(const struct formula *f, int i);

/* Of a sum of names: the i-th of its terms, its sign in *minus. NULL: it is no such sum, or there are no more. */
const char *formula_term(const struct formula *f, int i, int *minus);

/* For people. What only guards against figures that are not known, x > 0 ? y : 0, is y; a factor of 1e9, the ns of a second, is left
 * out. */
const char *formula_text(const struct formula *f, char out[FORMULA_TEXT]);

/* As SMT-LIB 2; `name` prints a name. With `per` other than NULL guards are left out, and a quotient by `per` times 1e9 is a product with
 * tau: of two unknowns there is none. */
struct formula_smt {
    void (*name)(void *ctx, const char *name, FILE *out);
    void *ctx;
    const char *per;
    int in_seconds;                 /* formula_smt's own; 0 */
};
void formula_smt(const struct formula *f, const struct formula_smt *how, FILE *out);

double formula_value(const struct formula *f, double (*of)(void *ctx, const char *name), void *ctx);

#endif
