/* Where the numbers of an explanation come from. What is computed here from others, the trace and the plan's choices is derived. The
 * tables of terms.h say which rows of the database a figure rests on. */
#include "planner/report/explain.h"

#include "common/kernels/kernels.h"

#include <stdio.h>
#include <string.h>

const char *const explain_basis_names[EXPLAIN_BASES] = { "derived", "measured", "published", "estimated", "another type's", "assumed" };

static enum explain_basis of_origin(enum hw_origin o)
{
    return o == HW_MEASURED ? EXPLAIN_MEASURED : o == HW_PUBLISHED ? EXPLAIN_PUBLISHED : EXPLAIN_ESTIMATED;
}

/* Of several rows, between which a figure may lie, the one that says least of it. */
static void add_origin(enum hw_origin o, int *found, enum explain_basis *out)
{
    enum explain_basis b = of_origin(o);
    *out = *found && *out > b ? *out : b;
    *found = 1;
}

/* Of the rows of a table for which that holds. */
#define ORIGIN_OF(rows, n, holds)                            \
    for (int i = 0; i < hw->n; i++)                          \
        if (holds)                                           \
            add_origin(hw->rows[i].origin, &found, out)

/* Rows of a kernel, of all that begin so where `whole` is 0. */
static int kernel_origin(const struct hw *hw, const char *kernel, int whole, enum explain_basis *out)
{
    int found = 0;
    ORIGIN_OF(compute, n_compute, !strncmp(hw->compute[i].kernel, kernel, strlen(kernel) + (whole != 0)));
    return found;
}

/* Is there a row of the very figure? */
static int row_of(const struct problem *pr, const struct cost_choice *c, const struct term_value *v, enum explain_basis *out)
{
    const struct hw *hw = pr->space.hw;
    char kernel[HW_NAME];
    const int down = v->source == DOWNS, role = down ? LAYOUT_DOWN : v->source == UPS ? LAYOUT_UP : LAYOUT_GATE;
    uint32_t type = pr->space.shapes.kind[0].type[role];
    int found = 0;
    switch (v->source) {
    case RATE: return kernel_origin(hw, "flops/", 0, out) || kernel_origin(hw, "rows/", 0, out);
    case SEQUENTIAL: ORIGIN_OF(memory, n_memory, hw->memory[i].pattern == HW_SEQ); return found;
    case SCATTERED: ORIGIN_OF(memory, n_memory, hw->memory[i].pattern == HW_RANDOM); return found;
    case STORAGE: ORIGIN_OF(storage_points, n_storage, 1); return found;
    case JOINT: ORIGIN_OF(joint, n_joint, hw->joint[i].backend == c->backend); return found; /* of the plan's back end */
    case WORK: return kernel_origin(hw, v->measured, 1, out);
    case ACCEL: ORIGIN_OF(accel_points, n_accel_points, 1); return found;
    default: break;
    }
    if (down && pr->space.shapes.l.form != LAYOUT_TILES)
        hw_op_name("axpy", type, NULL, kernel, sizeof kernel);
    else
        hw_op_name("rows", type, kernels_act_form(type, c->act_q8) == KERNELS_ACT_Q8 ? "q8" : "f32", kernel, sizeof kernel);
    return kernel_origin(hw, kernel, 1, out);
}

static enum explain_basis basis_of(const struct problem *pr, const struct cost_choice *c, const struct term_value *v, double value)
{
    enum explain_basis basis = EXPLAIN_DERIVED;
    if (v->source == SUMMED || v->source == CHOSEN)
        return basis;
    if (row_of(pr, c, v, &basis))
        return value > 0 ? basis : EXPLAIN_DERIVED; /* there is no such work here */
    return value > 0 && v->source != WORK && v->source != JOINT ? EXPLAIN_OTHER : EXPLAIN_ASSUMED;
}

void explain_bases(const struct problem *pr, const struct cost_choice *c, const struct terms *t, struct explain_line *lines, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < lines[i].n; k++) {
            int at = terms_value(t, lines[i].operand[k].name);
            lines[i].basis[k] = at < 0 ? EXPLAIN_DERIVED : basis_of(pr, c, &t->value[at], lines[i].operand[k].value);
        }
}

void explain_bases_text(const struct explain_line *l, char *out, size_t len)
{
    size_t at = 0;
    out[0] = '\0';
    for (int b = EXPLAIN_MEASURED; b < EXPLAIN_BASES; b++) {
        int n = 0;
        for (int k = 0; k < l->n && at < len; k++)
            if (l->basis[k] == (enum explain_basis)b)
                at += (size_t)snprintf(out + at, len - at, "%s%s", n++ ? ", " : at ? "; " : "", l->operand[k].name);
        if (n && at < len)
            at += (size_t)snprintf(out + at, len - at, " %s", explain_basis_names[b]);
    }
}
