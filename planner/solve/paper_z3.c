/* The text of paper_text.c, given to Z3 as it is: what is solved is what can be read.
 *
 * Maximising s is minimising t_decode, and that is what Z3 is asked, for then every term is linear (products are of a number and
 * an unknown). mu(m) begins with a few lines. Where Z3's optimum lies between two of them it is a bound only: the line that is
 * exact for the configuration that Z3 took, with all the memory that it leaves, is added, and Z3 asked again. So each round makes
 * one configuration exact, and the first answer that is exact already is the optimum over all. That nothing takes less is then
 * asked as a question of its own, without anything to minimise: the optimiser of Z3 4.8.12 has been seen to stop early. */
#include "planner/solve/paper_z3.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <z3.h>

#define MEMORY_SEEDS 12 /* lines to begin with, beside those where the memory limit leads each queue */

struct z {
    Z3_context c;
    Z3_optimize o;
};

static void set_params(struct z *z, uint64_t rlimit)
{
    Z3_params params = Z3_mk_params(z->c);
    Z3_params_inc_ref(z->c, params);
    if (rlimit)
        Z3_params_set_uint(z->c, params, Z3_mk_string_symbol(z->c, "rlimit"), rlimit < UINT32_MAX ? (unsigned)rlimit : UINT32_MAX);
    Z3_optimize_set_params(z->c, z->o, params);
    Z3_params_dec_ref(z->c, params);
}

static int z_new(struct z *z, uint64_t rlimit, uint64_t seed, struct err *e)
{
    Z3_config cfg = Z3_mk_config();
    char text[32];
    snprintf(text, sizeof text, "%u", (unsigned)(seed & 0x7fffffff));
    Z3_global_param_set("smt.random_seed", text);
    Z3_global_param_set("sat.random_seed", text);
    Z3_global_param_set("parallel.enable", "false");
    *z = (struct z){ .c = Z3_mk_context(cfg) };
    Z3_del_config(cfg);
    if (!z->c)
        return err_set(e, ERR_NOMEM, "Z3 did not start");
    Z3_set_error_handler(z->c, NULL);
    z->o = Z3_mk_optimize(z->c);
    Z3_optimize_inc_ref(z->c, z->o);
    set_params(z, rlimit);
    return 0;
}

static void z_done(struct z *z)
{
    Z3_optimize_dec_ref(z->c, z->o);
    Z3_del_context(z->c);
}

/* What Z3 is to minimise: the weighted sum, ticks. below: it has to be less than this; 0: any. */
static void objective(const struct paper *p, int64_t below, int minimise, FILE *f)
{
    fprintf(f, "(declare-const total Real)\n(assert (= total (* %d.0 (+ 0.0", SOLVE_TICKS_PER_NS);
    for (int b = 0; b < p->n_batches; b++) {
        char suffix[24] = "";
        if (b > 0)
            snprintf(suffix, sizeof suffix, "_b%d", p->batch[b]);
        fprintf(f, " (* %" PRId64 ".0 t_decode%s)", p->weight[b], suffix);
    }
    fprintf(f, "))))\n");
    if (below)
        fprintf(f, "(assert (< total %" PRId64 ".0))\n", below);
    if (minimise)
        fprintf(f, "(minimize total)\n");
}

/* An integer of the model, or a real's floor. */
static int64_t value(struct z *z, Z3_model m, const char *name, int real, int *bad)
{
    Z3_sort sort = real ? Z3_mk_real_sort(z->c) : Z3_mk_int_sort(z->c);
    Z3_ast v = Z3_mk_const(z->c, Z3_mk_string_symbol(z->c, name), sort), out;
    int64_t n = 0;
    if (!Z3_model_eval(z->c, m, real ? Z3_mk_real2int(z->c, v) : v, true, &out) || !Z3_get_numeral_int64(z->c, out, &n))
        *bad = 1;
    return n;
}

/* Which entry of the table has these cores; -1: none. */
static int cores_at(const struct paper *p, const int *n)
{
    for (int i = 0; i < p->n_cores; i++)
        if (!memcmp(p->cores[i].n, n, (size_t)p->n_classes * sizeof *n))
            return i;
    return -1;
}

/* 1: read; -1: not a number that fits. */
static int read_model(const struct paper *p, struct z *z, struct paper_choice *out)
{
    Z3_model m = Z3_optimize_get_model(z->c, z->o);
    int n[HW_MAX_CLASSES], bad = 0;
    Z3_model_inc_ref(z->c, m);
    struct paper_choice o = { .ticks = value(z, m, "total", 1, &bad), .queue = (int)value(z, m, "queue", 0, &bad) };
    o.variant = p->n_variants > 1 ? (int)value(z, m, "variant", 0, &bad) - 1 : 0;
    for (int k = 0; k < p->n_classes; k++) {
        char name[PAPER_NAME], symbol[PAPER_NAME + 2];
        snprintf(symbol, sizeof symbol, "n_%s", paper_class_name(p, k, name));
        n[k] = (int)value(z, m, symbol, 0, &bad);
    }
    Z3_model_dec_ref(z->c, m);
    o.cores = cores_at(p, n);
    *out = o;
    return !bad && o.cores >= 0 && o.queue >= 0 && o.queue < p->n_queues && o.variant >= 0 && o.variant < p->n_variants ? 1 : -1;
}

/* One question: the least sum of times, or, with best NULL, whether there is any. *answer: 1, 0 for no, -1 for no end. */
static int question(const struct paper *p, unsigned leave, int64_t below, uint64_t rlimit, uint64_t seed, struct paper_choice *best,
                    int *answer, struct err *e)
{
    char *text = NULL;
    size_t len;
    struct z z;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return err_set(e, ERR_NOMEM, "out of memory for the solver");
    paper_text(p, leave, 1, f);
    objective(p, below, best != NULL, f);
    int bad = ferror(f), r = fclose(f) || bad ? err_set(e, ERR_NOMEM, "out of memory for the solver") : z_new(&z, rlimit, seed, e);
    if (r < 0) {
        free(text);
        return r;
    }
    Z3_optimize_from_string(z.c, z.o, text);
    free(text);
    Z3_error_code code = Z3_get_error_code(z.c);
    if (code != Z3_OK)
        r = code == Z3_MEMOUT_FAIL ? err_set(e, ERR_NOMEM, "out of memory in the solver") :
            err_set(e, ERR_FORMAT, "Z3 does not take the paper's problem: %.200s", Z3_get_error_msg(z.c, code));
    Z3_lbool found = r == 0 ? Z3_optimize_check(z.c, z.o, 0, NULL) : Z3_L_UNDEF;
    if (r == 0 && (Z3_get_error_code(z.c) == Z3_MEMOUT_FAIL ||
                   (found == Z3_L_UNDEF && strstr(Z3_optimize_get_reason_unknown(z.c, z.o), "mem"))))
        r = err_set(e, ERR_NOMEM, "out of memory in the solver"); /* what it stopped at is no plan that another run would make */
    if (r == 0)
        *answer = found == Z3_L_FALSE ? 0 : found == Z3_L_UNDEF ? -1 : best ? read_model(p, &z, best) : 1;
    z_done(&z);
    return r;
}

/* Lines for a choice's memory. 1: there was one to add. */
static int refine(struct paper *p, const struct paper_choice *c, struct err *e)
{
    int added = 0;
    for (int b = 0; b < p->n_batches; b++) {
        int r = paper_add_piece(p, &p->variant[c->variant].work[b], paper_ffn_bytes(p, c), e);
        if (r < 0)
            return r;
        added |= r;
    }
    return added;
}

static int first_lines(struct paper *p, struct err *e)
{
    int r = 0;
    for (int i = 0; i < p->n_variants && r >= 0; i++) {
        for (int b = 0; b < p->n_batches && r >= 0; b++)
            r = paper_spread_pieces(p, &p->variant[i].work[b], MEMORY_SEEDS, e);
        for (int q = 0; q < p->n_queues && q < MEMORY_SEEDS && r >= 0 && p->n_cores > 0; q++)
            r = refine(p, &(struct paper_choice){ .cores = p->n_cores - 1, .queue = q, .variant = i }, e);
    }
    return r < 0 ? r : 0;
}

/* Of Eq. 3, 4 and 5 those without which there is an answer, dropped in this order as long as there is none. */
static int find_core(const struct paper *p, uint64_t rlimit, uint64_t seed, struct paper_answer *out, struct err *e)
{
    unsigned leave = 0;
    int r = 0, answer;
    for (int i = 3; i <= 5 && r == 0; i++) {
        r = question(p, leave | PAPER_EQ(i), 0, rlimit, seed, NULL, &answer, e);
        if (r == 0 && answer == 0)
            leave |= PAPER_EQ(i);
        out->finished &= r == 0 && answer >= 0;
    }
    out->core = PAPER_LIMITS & ~leave;
    return r;
}

int paper_z3(struct paper *p, uint64_t rlimit, uint64_t seed, struct paper_answer *out, struct err *e)
{
    struct paper_answer o = { .finished = 1 };
    int answer = 1, r = first_lines(p, e), less = 0;
    if (r == 0)
        r = question(p, 0, 0, rlimit, seed, &o.best, &answer, e);
    while (r == 0 && answer == 1) {
        if ((r = refine(p, &o.best, e)) == 1) {
            r = question(p, 0, 0, rlimit, seed, &o.best, &answer, e);
            continue;
        }
        if (r < 0 || (r = question(p, 0, o.best.ticks, rlimit, seed, NULL, &less, e)) < 0 || less == 0)
            break;
        if (less > 0)
            r = question(p, 0, o.best.ticks, rlimit, seed, &o.best, &less, e);
        answer = less > 0 ? 1 : -1;
    }
    if (r < 0)
        return r;
    o.feasible = answer == 1;
    o.finished = answer >= 0;
    if (answer == 0 && (r = find_core(p, rlimit, seed, &o, e)) < 0)
        return r;
    *out = o;
    return 0;
}
