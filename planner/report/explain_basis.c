/* Where the numbers of an explanation come from. What is computed here from others, the trace and the plan's choices is derived. The
 * device's figures go by their names in the lines: one table says which rows of the database each rests on. */
#include "planner/report/explain.h"

#include "common/kernels/kernels.h"

#include <stdio.h>
#include <string.h>

const char *const explain_basis_names[EXPLAIN_BASES] = { "derived", "measured", "published", "estimated", "another type's", "assumed" };

enum rows { PRODUCT, DOWN, RATE, SEQUENTIAL, SCATTERED, STORAGE, WORK };

static const struct {
    const char *name;
    enum rows of;
    const char *what;           /* of WORK: its row */
    int role;                   /* of PRODUCT */
} figures[] = {
    { "f_cpu", RATE, NULL, 0 }, { "B_seq", SEQUENTIAL, NULL, 0 }, { "B_mem", SEQUENTIAL, NULL, 0 }, { "B_rand", SCATTERED, NULL, 0 },
    { "B_io", STORAGE, NULL, 0 }, { "t_reads(1)", STORAGE, NULL, 0 }, { "beta of single units", STORAGE, NULL, 0 },
    { "of the longest", STORAGE, NULL, 0 }, { "cpu_ns", STORAGE, NULL, 0 }, { "tau_gate", PRODUCT, NULL, LAYOUT_GATE },
    { "tau_up", PRODUCT, NULL, LAYOUT_UP }, { "tau_scattered", PRODUCT, NULL, LAYOUT_GATE }, { "tau_down", DOWN, NULL, LAYOUT_DOWN },
    { "tau_attend", WORK, "work/attend", 0 }, { "tau_norm", WORK, "work/norm", 0 }, { "tau_rope", WORK, "work/rope", 0 },
    { "tau_start", WORK, "work/start", 0 }, { "tau_lookup", WORK, "work/lookup", 0 }, { "tau_admit", WORK, "work/admit", 0 },
    { "ns_per_byte", WORK, "work/verify", 0 }, { "tau_turn", WORK, "work/turn", 0 },
};

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

/* Rows of a kernel, of all that begin so where `whole` is 0. */
static int kernel_origin(const struct hw *hw, const char *kernel, int whole, enum explain_basis *out)
{
    size_t n = strlen(kernel);
    int found = 0;
    for (int i = 0; i < hw->n_compute; i++)
        if (whole ? !strcmp(hw->compute[i].kernel, kernel) : !strncmp(hw->compute[i].kernel, kernel, n))
            add_origin(hw->compute[i].origin, &found, out);
    return found;
}

static int memory_origin(const struct hw *hw, enum hw_pattern pattern, enum explain_basis *out)
{
    int found = 0;
    for (int i = 0; i < hw->n_memory; i++)
        if (hw->memory[i].pattern == pattern)
            add_origin(hw->memory[i].origin, &found, out);
    return found;
}

static int storage_origin(const struct hw *hw, enum explain_basis *out)
{
    int found = 0;
    for (int i = 0; i < hw->n_storage; i++)
        add_origin(hw->storage_points[i].origin, &found, out);
    return found;
}

/* Is there a row of the very figure? */
static int row_of(const struct problem *pr, const struct cost_choice *c, enum rows of, const char *what, int role, enum explain_basis *out)
{
    const struct hw *hw = pr->space.hw;
    char kernel[HW_NAME];
    uint32_t type = pr->space.shapes.kind[0].type[role];
    int tiles = pr->space.shapes.l.form == LAYOUT_TILES;
    switch (of) {
    case PRODUCT:
    case DOWN:
        if (of == DOWN && !tiles)
            hw_op_name("axpy", type, NULL, kernel, sizeof kernel);
        else
            hw_op_name("rows", type, kernels_act_form(type, c->act_q8) == KERNELS_ACT_Q8 ? "q8" : "f32", kernel, sizeof kernel);
        return kernel_origin(hw, kernel, 1, out);
    case RATE: return kernel_origin(hw, "flops/", 0, out) || kernel_origin(hw, "rows/", 0, out);
    case SEQUENTIAL: return memory_origin(hw, HW_SEQ, out);
    case SCATTERED: return memory_origin(hw, HW_RANDOM, out);
    case STORAGE: return storage_origin(hw, out);
    case WORK: return kernel_origin(hw, what, 1, out);
    }
    return 0;
}

static enum explain_basis basis_of(const struct problem *pr, const struct cost_choice *c, const char *name, double value)
{
    enum explain_basis basis = EXPLAIN_DERIVED;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (strcmp(figures[i].name, name))
            continue;
        if (row_of(pr, c, figures[i].of, figures[i].what, figures[i].role, &basis))
            return value > 0 ? basis : EXPLAIN_DERIVED; /* there is no such work here */
        return value > 0 && figures[i].of != WORK ? EXPLAIN_OTHER : EXPLAIN_ASSUMED;
    }
    return basis;
}

void explain_bases(const struct problem *pr, const struct cost_choice *c, struct explain_line *lines, int n)
{
    for (int i = 0; i < n; i++) {
        char own[24];
        snprintf(own, sizeof own, "%.*s", (int)strcspn(lines[i].formula, ": ="), lines[i].formula);
        lines[i].value_basis = strchr(lines[i].formula, '=') ? EXPLAIN_DERIVED : basis_of(pr, c, own, lines[i].value);
        for (int k = 0; k < lines[i].n; k++)
            lines[i].basis[k] = basis_of(pr, c, lines[i].operand[k].name, lines[i].operand[k].value);
    }
}

void explain_bases_text(const struct explain_line *l, char *out, size_t len)
{
    size_t at = 0;
    out[0] = '\0';
    for (int b = EXPLAIN_MEASURED; b < EXPLAIN_BASES; b++) {
        int n = 0;
        if (l->value_basis == (enum explain_basis)b && at < len)
            at += (size_t)snprintf(out + at, len - at, "%sthis", n++ ? ", " : at ? "; " : "");
        for (int k = 0; k < l->n && at < len; k++)
            if (l->basis[k] == (enum explain_basis)b)
                at += (size_t)snprintf(out + at, len - at, "%s%s", n++ ? ", " : at ? "; " : "", l->operand[k].name);
        if (n && at < len)
            at += (size_t)snprintf(out + at, len - at, " %s", explain_basis_names[b]);
    }
}
