/* The paper's page in SMT-LIB 2: data, unknowns, one named assertion for each equation, the tables that two of them look up, and
 * claims with their answers. Z3 reads the same text that people do. Numbers are exact decimals. A variant's or batch size's own
 * symbols have a suffix where there are several. */
#include "planner/solve/paper.h"

#include "planner/terms/terms.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX 24

/* --- numbers and symbols --- */

/* v / unit, exactly; unit divides a power of ten of at most 12 digits. No needless zeros. */
static void number(FILE *out, int64_t v, int64_t unit)
{
    uint64_t a = v < 0 ? 0 - (uint64_t)v : (uint64_t)v, whole = a / (uint64_t)unit, rest = a % (uint64_t)unit;
    fprintf(out, "%s%" PRIu64 ".", v < 0 ? "(- " : "", whole);
    do {
        rest *= 10;
        fputc('0' + (int)(rest / (uint64_t)unit), out);
        rest %= (uint64_t)unit;
    } while (rest);
    if (v < 0)
        fputc(')', out);
}

static void define(FILE *out, const char *name, const char *suffix, int64_t v, int64_t unit, const char *comment)
{
    fprintf(out, "(define-fun %s%s () Real ", name, suffix);
    number(out, v, unit);
    fprintf(out, ")%s%s\n", comment ? " ; " : "", comment ? comment : "");
}

/* Can n_NAME and f_NAME be symbols of a class? f_cpu is Equation 9's, and numbers stand for classes whose name is none. */
static int is_symbol(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    return *name && !name[strspn(name, good)] && name[strspn(name, "0123456789")] && strcmp(name, "cpu");
}

const char *paper_class_name(const struct paper *p, int k, char out[PAPER_NAME])
{
    if (is_symbol(p->class[k].name))
        snprintf(out, PAPER_NAME, "%s", p->class[k].name);
    else
        snprintf(out, PAPER_NAME, "%d", k + 1);
    return out;
}

static const char *batch_suffix(const struct paper *p, int b, char out[SUFFIX])
{
    out[0] = 0;
    if (p->n_batches > 1 && b > 0)
        snprintf(out, SUFFIX, "_b%d", p->batch[b]);
    return out;
}

/* Of what belongs to a variant and a batch size. */
static const char *work_suffix(const struct paper *p, int variant, int b, char out[SUFFIX])
{
    char batch[SUFFIX];
    batch_suffix(p, b, batch);
    if (p->n_variants > 1)
        snprintf(out, SUFFIX, "_w%d%.10s", variant + 1, batch);
    else
        snprintf(out, SUFFIX, "%s", batch);
    return out;
}

/* --- data --- */

static void data_work(const struct paper *p, int variant, int b, FILE *out)
{
    const struct paper_work *w = &p->variant[variant].work[b];
    char x[SUFFIX];
    work_suffix(p, variant, b, x);
    fprintf(out, "\n; Variant %d, %s, batch size %d: a step's work in FLOP, weights in bytes.\n", variant + 1, p->variant[variant].name,
            p->batch[b]);
    define(out, "F_attn", x, w->f_attn, PAPER_BYTE, "attention and head");
    define(out, "F_pred", x, w->f_pred, PAPER_BYTE, "predictors; in exact mode the gates");
    define(out, "F_ffn", x, w->f_ffn, PAPER_BYTE, "FFN, were all neurons computed");
    define(out, "W_attn", x, w->w_attn, PAPER_BYTE, "attention and head");
    define(out, "W_pred", x, w->w_pred, PAPER_BYTE, NULL);
    define(out, "W_ffn", x, w->w_ffn, PAPER_BYTE, NULL);
    fprintf(out, "(define-fun a%s () Real (/ ", x);
    number(out, w->f_ffn > 0 ? w->f_active : 0, PAPER_BYTE);
    fprintf(out, " %s%s)) ; share of neurons that fire, by work: a * F_ffn is their sum over layers\n",
            w->f_ffn > 0 ? "F_ffn" : "1.0", w->f_ffn > 0 ? x : "");
    fprintf(out, "(define-fun a_io%s () Real (/ ", x);
    number(out, w->w_active, PAPER_BYTE);
    fprintf(out, " %s%s)) ; likewise by bytes: a * W_ffn\n", w->w_ffn > 0 ? "W_ffn" : "1.0", w->w_ffn > 0 ? x : "");
}

static void data(const struct paper *p, FILE *out)
{
    char name[PAPER_NAME];
    fprintf(out, "; ---------------------------------------------------------------- data: the device\n\n"
                 "; f_k: FLOP/s of one core of class k, with rows in cache.\n");
    for (int k = 0; k < p->n_classes; k++) {
        char symbol[80];
        snprintf(symbol, sizeof symbol, "f_%s", paper_class_name(p, k, name));
        define(out, symbol, "", p->class[k].flops_per_s, 1, NULL);
    }
    fprintf(out, "\n; Queues of reads: B_io, bytes/s of random reads of one unit, and bytes of the account.\n");
    for (int q = 0; q < p->n_queues; q++) {
        const struct paper_queue *x = &p->queue[q];
        fprintf(out, ";   queue %d: %s, depth %d%s\n", q, x->backend, x->depth, x->bytes_per_s ? "" : "; speed not known");
        snprintf(name, sizeof name, "B_io_%d", q);
        if (x->bytes_per_s)
            define(out, name, "", x->bytes_per_s, 1, NULL);
        snprintf(name, sizeof name, "m_queue_%d", q);
        define(out, name, "", x->bytes * SOLVE_BYTE_UNIT, 1, NULL);
    }
    if (p->mem_bytes_per_s)
        define(out, "B_mem", "", p->mem_bytes_per_s, 1, "bytes/s of memory");
    fprintf(out, "\n; ---------------------------------------------------------------- data: the model\n");
    for (int i = 0; i < p->n_variants; i++) {
        char x[SUFFIX] = "";
        for (int b = 0; b < p->n_batches; b++)
            data_work(p, i, b, out);
        if (p->n_variants > 1)
            snprintf(x, sizeof x, "_w%d", i + 1);
        define(out, "m_fixed", x, p->variant[i].bytes * SOLVE_BYTE_UNIT, 1, "bytes of the account, whatever the configuration");
        define(out, "m_thread", x, p->variant[i].thread_bytes * SOLVE_BYTE_UNIT, 1, "bytes of the account for each thread");
    }
    fprintf(out, "\n; ---------------------------------------------------------------- the user's limits\n\n");
    define(out, "M_max", "", p->memory * SOLVE_BYTE_UNIT, 1, "bytes");
    if (p->min_tokens_per_s > 0)
        fprintf(out, "(define-fun s_min () Real %.9f) ; tokens/s\n", p->min_tokens_per_s);
}

/* --- unknowns --- */

static void unknowns(const struct paper *p, int linear, FILE *out)
{
    static const struct {
        const char *name, *comment;
    } each[] = { { "t_decode", "ns, as all times" }, { "t_compute", "ns" }, { "t_dense", "ns: attention, head, predictors" },
                 { "t_ffn", "ns" }, { "t_io", "ns" }, { "t_mem", "ns; Eq. 2 leaves it out" },
                 { "V_io", "bytes read in a step" }, { "mu", "bytes read for each byte of neurons that fire" } };
    char name[PAPER_NAME], x[SUFFIX];
    fprintf(out, "\n; ---------------------------------------------------------------- unknowns\n\n");
    for (int k = 0; k < p->n_classes; k++)
        fprintf(out, "(declare-const n_%s Int) ; cores of class %s that compute\n", paper_class_name(p, k, name), name);
    fprintf(out, "(declare-const queue Int) ; how reads are queued: number in the table above\n");
    if (p->n_variants > 1)
        fprintf(out, "(declare-const variant Int) ; number of the variant: mode and predictors\n");
    if (!linear)
        fprintf(out, "(declare-const s Real) ; tokens/s\n");
    fprintf(out, "(declare-const m Real) ; bytes of memory, the whole account\n"
                 "(declare-const m_fix Real) ; of these, what the configuration takes\n"
                 "(declare-const m_ffn Real) ; and what holds neurons\n"
                 "(declare-const f_cpu Real) ; FLOP/s\n"
                 "(declare-const tau Real) ; ns per FLOP: 1 / f_cpu\n");
    for (int b = 0; b < p->n_batches; b++)
        for (size_t i = 0; i < sizeof each / sizeof *each; i++)
            fprintf(out, "(declare-const %s%s Real) ; %s\n", each[i].name, batch_suffix(p, b, x), each[i].comment);
}

/* --- equations --- */

/* Named assertions: "(assert (! (and" and its end. */
static void begin(FILE *out, const char *comment, const char *op)
{
    fprintf(out, "\n; %s\n(assert (! (%s", comment, op);
}

static void end(FILE *out, const char *name)
{
    fprintf(out, ")\n    :named |%s|))\n", name);
}

static void end_eq(FILE *out, int n)
{
    char name[16];
    snprintf(name, sizeof name, "Eq. %d", n);
    end(out, name);
}

/* "(=> (= variant 2) ", or nothing where there is one variant. Returns what closes it. */
static const char *of_variant(const struct paper *p, int variant, FILE *out)
{
    fprintf(out, "\n    ");
    if (p->n_variants == 1)
        return "";
    fprintf(out, "(=> (= variant %d) ", variant + 1);
    return ")";
}

static void sum_of_cores(const struct paper *p, int rates, FILE *out)
{
    char name[PAPER_NAME];
    fprintf(out, "(+ 0");
    for (int k = 0; k < p->n_classes; k++) {
        paper_class_name(p, k, name);
        if (rates)
            fprintf(out, " (* n_%s f_%s)", name, name);
        else
            fprintf(out, " n_%s", name);
    }
    fprintf(out, ")");
}

static void cores_are(const struct paper *p, const struct paper_cores *c, FILE *out)
{
    char name[PAPER_NAME];
    fprintf(out, "(and true");
    for (int k = 0; k < p->n_classes; k++)
        fprintf(out, " (= n_%s %d)", paper_class_name(p, k, name), c->n[k]);
    fprintf(out, ")");
}

/* Where names of the table stand: at a variant and batch size. */
struct place {
    const struct paper *p;
    int variant, batch;
};

static void put_name(void *ctx, const char *name, FILE *out)
{
    static const char work[] = " F_attn F_pred F_ffn W_attn W_pred W_ffn a a_io ", whole[] = " s s_min m M_max f_cpu B_mem ";
    const struct place *at = ctx;
    char word[FORMULA_NAME + 2], x[SUFFIX] = "";
    snprintf(word, sizeof word, " %.30s ", name);
    if (strstr(work, word))
        work_suffix(at->p, at->variant, at->batch, x);
    else if (!strstr(whole, word))
        batch_suffix(at->p, at->batch, x);
    fprintf(out, "%s%s", strcmp(name, "V_units") ? name : "V_io", x); /* mu has the gates that are read in it */
}

/* "(= t_ffn (* a F_ffn tau))", or a limit. */
static void put_equation(const struct term_equation *q, struct place at, FILE *out)
{
    const struct formula_smt how = { .name = put_name, .ctx = &at, .per = "f_cpu" };
    struct formula f;
    char text[TERM_TEXT];
    int is = terms_text(q, &f, text), limit = is && strchr("<>lg", f.node[f.root].op);
    fprintf(out, limit ? "" : "(= ");
    if (!limit) {
        put_name(&at, q->value, out);
        fputc(' ', out);
    }
    formula_smt(&f, &how, out);
    fprintf(out, limit ? "" : ")");
}

static const struct term_equation *equation_of(int id, const char *value)
{
    for (int i = 0; i < terms_paper.n_equations; i++)
        if (atoi(terms_paper.equation[i].id) == id && (!value || !strcmp(terms_paper.equation[i].value, value)))
            return &terms_paper.equation[i];
    return NULL;
}

static void begin_eq(FILE *out, int id)
{
    struct formula f;
    char text[TERM_TEXT], comment[TERM_TEXT + 8];
    terms_text(equation_of(id, NULL), &f, text);
    snprintf(comment, sizeof comment, "(%d) %s", id, text);
    begin(out, comment, "and");
}

/* Equation `id` of the table, as it is there; at each variant where their numbers are in it, and each batch size. */
static void eq(const struct paper *p, int id, int variants, int batches, FILE *out)
{
    begin_eq(out, id);
    for (int i = 0; i < (variants ? p->n_variants : 1); i++)
        for (int b = 0; b < (batches ? p->n_batches : 1); b++) {
            const char *close = variants ? of_variant(p, i, out) : " ";
            fputs(variants ? "" : close, out);
            put_equation(equation_of(id, NULL), (struct place){ p, i, b }, out);
            fputs(variants ? close : "", out);
        }
    end_eq(out, id);
}

static void eq_speed(const struct paper *p, unsigned leave, int linear, FILE *out)
{
    if (!linear && !(leave & PAPER_EQ(1))) { /* as a product, for which Z3 is better */
        begin_eq(out, 1);
        fprintf(out, " (= (* s t_decode) 1000000000.0) (> s 0.0) (> t_decode 0.0)");
        end_eq(out, 1);
    }
    if (!(leave & PAPER_EQ(2)))
        eq(p, 2, 0, 1, out);
}

static void eq_limits(const struct paper *p, unsigned leave, int linear, FILE *out)
{
    char name[PAPER_NAME];
    if (!(leave & PAPER_EQ(3))) {
        begin_eq(out, 3);
        for (int k = 0; k < p->n_classes; k++)
            fprintf(out, " (<= n_%s %d)", paper_class_name(p, k, name), p->class[k].most);
        end_eq(out, 3);
    }
    if (!(leave & PAPER_EQ(4)))
        eq(p, 4, 0, 0, out);
    if (!(leave & PAPER_EQ(5)) && p->min_tokens_per_s > 0) {
        if (linear) {
            begin_eq(out, 5);
            fprintf(out, " (<= t_decode (/ 1000000000.0 s_min))");
            end_eq(out, 5);
        } else {
            eq(p, 5, 0, 0, out);
        }
    }
}

static void eq_compute(const struct paper *p, FILE *out)
{
    eq(p, 6, 0, 1, out);
    eq(p, 7, 1, 1, out);
    eq(p, 8, 1, 1, out);
}

static void eq_cores(const struct paper *p, FILE *out)
{
    begin_eq(out, 9);
    fprintf(out, " (= f_cpu ");
    sum_of_cores(p, 1, out);
    fputc(')', out);
    end_eq(out, 9);
    begin(out, "1 / f_cpu, as a table of the cores that are tried: so no term is a product of two unknowns", "and (or");
    for (int i = 0; i < p->n_cores; i++) {
        fprintf(out, "\n        ");
        cores_are(p, &p->cores[i], out);
    }
    fprintf(out, ")");
    for (int i = 0; i < p->n_cores; i++) {
        int64_t f = 0;
        for (int k = 0; k < p->n_classes; k++)
            f += p->cores[i].n[k] * p->class[k].flops_per_s;
        fprintf(out, "\n    (=> ");
        cores_are(p, &p->cores[i], out);
        fprintf(out, " (= tau (/ 1000000000.0 %" PRId64 ".0)))", f);
    }
    end(out, "1 / f_cpu");
}

static void eq_io(const struct paper *p, FILE *out)
{
    char x[SUFFIX];
    begin_eq(out, 10);
    for (int i = 0; i < p->n_variants; i++)
        for (int b = 0; b < p->n_batches; b++) {
            const char *close = of_variant(p, i, out);
            batch_suffix(p, b, x);
            if (p->variant[i].work[b].w_active > 0)
                put_equation(equation_of(10, "V_units"), (struct place){ p, i, b }, out);
            else
                fprintf(out, "(= V_io%s mu%s)", x, x); /* nothing fires */
            fputs(close, out);
        }
    for (int q = 0; q < p->n_queues; q++)
        for (int b = 0; b < p->n_batches; b++) {
            batch_suffix(p, b, x);
            if (p->queue[q].bytes_per_s)
                fprintf(out, "\n    (=> (= queue %d) (= t_io%s (* V_io%s (/ 1000000000.0 B_io_%d))))", q, x, x, q);
            else
                fprintf(out, "\n    (=> (= queue %d) (and (= V_io%s 0.0) (= t_io%s 0.0)))", q, x, x);
        }
    end_eq(out, 10);
    begin(out, "mu(m): V_io lies on or above each of these lines (the lemmas below)", "and");
    for (int i = 0; i < p->n_variants; i++)
        for (int b = 0; b < p->n_batches; b++) {
            const struct paper_work *w = &p->variant[i].work[b];
            for (int j = 0; j < w->n_pieces; j++) {
                const char *close = of_variant(p, i, out);
                fprintf(out, "(>= V_io%s (- ", batch_suffix(p, b, x));
                number(out, w->piece[j].at, PAPER_AT);
                fprintf(out, " (* ");
                number(out, w->piece[j].slope, PAPER_SLOPE);
                fprintf(out, " m_ffn)))%s", close);
            }
        }
    end(out, "mu(m)");
}

/* The least bytes that all layers can have. */
static int64_t least_bytes(const struct paper *p, const struct paper_work *w)
{
    int64_t sum = 0;
    for (int l = 0; l < p->n_layers; l++)
        sum += w->layer[l].point[0].bytes;
    return sum;
}

static void account(const struct paper *p, FILE *out)
{
    begin(out, "The account: m = m_fix + m_ffn, where m_fix is what threads, buffers and all else take", "and");
    fprintf(out, " (= m (+ m_fix m_ffn)) (<= 0 queue %d)", p->n_queues - 1);
    if (p->n_variants > 1)
        fprintf(out, " (<= 1 variant %d)", p->n_variants);
    for (int i = 0; i < p->n_variants; i++)
        for (int q = 0; q < p->n_queues; q++) {
            char x[SUFFIX] = "";
            const char *close = of_variant(p, i, out);
            if (p->n_variants > 1)
                snprintf(x, sizeof x, "_w%d", i + 1);
            fprintf(out, "(=> (= queue %d) (= m_fix (+ m_fixed%s (* m_thread%s (to_real ", q, x, x);
            sum_of_cores(p, 0, out);
            fprintf(out, ")) m_queue_%d)))%s", q, close);
        }
    for (int i = 0; i < p->n_variants; i++)
        for (int b = 0; b < p->n_batches; b++) {
            const char *close = of_variant(p, i, out);
            fprintf(out, "(>= m_ffn ");
            number(out, least_bytes(p, &p->variant[i].work[b]) * SOLVE_BYTE_UNIT, 1);
            fprintf(out, ")%s", close);
        }
    for (int q = 0; q < p->n_queues; q++) {
        fprintf(out, "\n    (=> (= queue %d) (<= ", q);
        sum_of_cores(p, 0, out);
        fprintf(out, " %d))", p->queue[q].most_threads);
    }
    end(out, "account");
}

void paper_text(const struct paper *p, unsigned leave, int linear, FILE *out)
{
    data(p, out);
    unknowns(p, linear, out);
    fprintf(out, "\n; ---------------------------------------------------------------- Equations 1-11\n\n"
                 "(define-fun largest ((a Real) (b Real)) Real (ite (>= a b) a b))\n");
    eq_speed(p, leave, linear, out);
    eq_limits(p, leave, linear, out);
    eq_compute(p, out);
    eq_cores(p, out);
    eq_io(p, out);
    if (p->mem_bytes_per_s)
        eq(p, 11, 1, 1, out);
    account(p, out);
}

/* --- claims --- */

/* Each priced point of each layer, as "lies on or above the line of slope lambda from c". */
static void layer_functions(const struct paper *p, const struct paper_work *w, const char *suffix, FILE *out)
{
    for (int l = 0; l < p->n_layers; l++) {
        const struct solve_curve *k = &w->layer[l];
        fprintf(out, "(define-fun above_%d%s ((lambda Real) (c Real)) Bool (and", l, suffix);
        for (int i = 0; i < k->n; i++) {
            fprintf(out, "\n    (>= (+ ");
            number(out, k->point[i].ticks, PAPER_BYTE);
            fprintf(out, " (* lambda ");
            number(out, k->point[i].bytes * SOLVE_BYTE_UNIT, 1);
            fprintf(out, ")) c)");
        }
        fprintf(out, "))\n");
    }
}

static void lemma(const struct paper *p, const struct paper_work *w, const struct paper_piece *x, const char *suffix, FILE *out)
{
    fprintf(out, "(push) (assert (not (and");
    for (int l = 0; l < p->n_layers; l++) {
        fprintf(out, " (above_%d%s ", l, suffix);
        number(out, x->slope, PAPER_SLOPE);
        fputc(' ', out);
        number(out, paper_layer_at(&w->layer[l], x->slope), PAPER_AT);
        fputc(')', out);
    }
    fprintf(out, "\n    (= ");
    number(out, x->at, PAPER_AT);
    fprintf(out, " (+ 0.0");
    for (int l = 0; l < p->n_layers; l++) {
        fputc(' ', out);
        number(out, paper_layer_at(&w->layer[l], x->slope), PAPER_AT);
    }
    fprintf(out, "))))) (check-sat) (pop) ; unsat\n");
}

static void lemmas(const struct paper *p, FILE *out)
{
    fprintf(out, "\n; ---------------------------------------------------------------- lemmas\n\n"
                 "; tau is 1 / f_cpu wherever the tables allow cores: the contrary is unsat.\n"
                 "(push) (assert (not (= (* tau f_cpu) 1000000000.0))) (check-sat) (pop) ; unsat\n\n"
                 "; mu(m) is what the layers add up to, or less: of each line V >= c - lambda m, every priced point (V, bytes) of\n"
                 "; every layer l lies on or above V >= c_l - lambda bytes, and the c_l add up to c. The contrary is unsat.\n");
    for (int i = 0; i < p->n_variants; i++)
        for (int b = 0; b < p->n_batches; b++) {
            const struct paper_work *w = &p->variant[i].work[b];
            char x[SUFFIX];
            work_suffix(p, i, b, x);
            layer_functions(p, w, x, out);
            for (int j = 0; j < w->n_pieces; j++)
                lemma(p, w, &w->piece[j], x, out);
        }
}

void paper_text_claims(const struct paper *p, const struct paper_choice *best, FILE *out)
{
    double s = 1e9 * SOLVE_TICKS_PER_NS * (double)p->weight[0] / ((double)best->ticks + 0.5);
    char name[PAPER_NAME];
    fprintf(out, "\n; ---------------------------------------------------------------- the optimum\n\n"
                 "(define-fun s_opt () Real %.*f) ; tokens/s\n"
                 "(define-fun eps () Real 0.000001)\n"
                 "; Nothing is faster:\n"
                 "(push) (assert (> s (* s_opt (+ 1.0 eps)))) (check-sat) (pop) ; unsat\n"
                 "; and with all of the memory this is as fast:\n"
                 "(set-option :pp.decimal true)\n"
                 "(push) (assert (>= s (* s_opt (- 1.0 eps)))) (assert (= m M_max)) (check-sat) ; sat\n"
                 "(get-value (s m m_ffn f_cpu queue%s", s < 1e6 ? 9 : 3, s, p->n_variants > 1 ? " variant" : "");
    for (int k = 0; k < p->n_classes; k++)
        fprintf(out, " n_%s", paper_class_name(p, k, name));
    fprintf(out, " t_decode t_dense t_ffn t_io t_mem mu))\n(pop)\n");
    lemmas(p, out);
}

void paper_text_contradiction(unsigned core, FILE *out)
{
    fprintf(out, "\n; ---------------------------------------------------------------- no optimum\n\n; These contradict the rest:");
    for (int i = 3; i <= 5; i++)
        if (core & PAPER_EQ(i))
            fprintf(out, " Eq. %d", i);
    fprintf(out, "\n(check-sat) ; unsat\n");
}
