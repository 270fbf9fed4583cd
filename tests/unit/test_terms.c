/* The cost model's tables: what they name exists, the text of an equation is its function, and docs/cost-model.md has every term as the
 * table has it. Where it has not, the text is printed to be put there; TERMS_PRINT=1 prints all. */
#include "planner/cost/cost.h"
#include "planner/terms/terms.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static char *file_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t len = 0, n;
    char piece[4096];
    FILE *to = open_memstream(&text, &len);
    CHECK_MSG(f && to, "%s", path);
    while (f && (n = fread(piece, 1, sizeof piece, f)) > 0)
        fwrite(piece, 1, n, to);
    if (f)
        fclose(f);
    fclose(to);
    return text;
}

/* Lines of at most 140 columns: what of a longer one is left follows below it, indented by two columns more. */
static void put_lines(const char *text, FILE *out)
{
    size_t indent = 0, n;
    for (const char *line = text; *line; line += n + 1) {
        const size_t first = indent ? 0 : strspn(line, " ");
        n = strcspn(line, "\n");
        if (indent + n > 140) {
            n = 140 - indent;
            while (line[n] != ' ')
                n--;
        }
        fprintf(out, "%*s%.*s\n", (int)indent, "", (int)n, line);
        indent = line[n] == '\n' ? 0 : indent ? indent : first + 2;
    }
}

/* " (rows)"; "": the name has it, of t_..., tau..., V_... and B_.... */
static const char *unit_of(const struct term_value *v, char out[FORMULA_NAME])
{
    static const char *const known[][2] = { { "t_", "ns" }, { "tau", "ns" }, { "V_", "bytes" }, { "B_", "bytes/s" } };
    snprintf(out, FORMULA_NAME, " (%s)", v->unit);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(v->name, known[i][0], strlen(known[i][0])) && !strcmp(v->unit, known[i][1]))
            *out = 0;
    return out;
}

/* Its part of the document. */
static void put_term(const struct terms *t, const struct term *own, char *known, FILE *out)
{
    char seen[4096] = " ", name[FORMULA_NAME], unit[FORMULA_NAME], text[TERM_TEXT], word[FORMULA_NAME + 2];
    struct formula f;
    int n = 0;
    fprintf(out, "### %s: %s\n\n", own->id, own->title);
    for (int i = 0; i < t->n_equations; i++)
        if (!strcmp(t->equation[i].id, own->id)) {
            terms_text(&t->equation[i], &f, text);
            fprintf(out, "    %s\n", text);
        }
    fprintf(out, "\n");
    for (int i = 0; i < t->n_equations; i++)
        if (!strcmp(t->equation[i].id, own->id)) {
            const struct term_value *v = &t->value[terms_value(t, t->equation[i].value)];
            fprintf(out, "- `%s`%s: %s; `%s`.\n", v->name, unit_of(v, unit), v->meaning, t->equation[i].function);
        }
    for (int i = 0; i < t->n_equations; i++) {
        int is = formula_read(&f, t->equation[i].formula);
        for (int k = 0; !strcmp(t->equation[i].id, own->id) && terms_input(&t->equation[i], is ? &f : NULL, k, name); k++) {
            snprintf(word, sizeof word, " %s ", name);
            if (strstr(seen, word))
                continue;
            strncat(seen, word + 1, sizeof seen - strlen(seen) - 1);
            const int at = terms_value(t, name);
            if (known[at] || terms_equation(t, name)) /* described where it first occurs, or where it is made */
                continue;
            known[at] = 1;
            fprintf(out, "%s`%s`%s: %s", n++ ? "; " : "- Inputs: ", name, unit_of(&t->value[at], unit), t->value[at].meaning);
        }
    }
    fputs(n ? ".\n" : "", out);
    n = 0;
    for (int i = 0; i < t->n_values; i++) {
        snprintf(word, sizeof word, " %s ", t->value[i].name);
        if (t->value[i].measured[0] && strstr(seen, word)) { /* every time: what a term rests on is told in one place */
            fprintf(out, "%s`%s` %s", n ? "; " : "- Measured by: ", t->value[i].name, t->value[i].measured);
            n++;
        }
    }
    fprintf(out, "%s- Validated by: %s.\n", n ? ".\n" : "", own->validated);
}

/* Of the paper's: a row of the table of equations, and rows of the table of symbols. */
static void put_paper(const struct terms *t, const struct term *own, FILE *out, char *known, FILE *symbols)
{
    char text[TERM_TEXT], name[FORMULA_NAME];
    struct formula f;
    int n = 0;
    fprintf(out, "| (%s) | ", own->id);
    for (int i = 0; i < t->n_equations; i++) {
        if (strcmp(t->equation[i].id, own->id) != 0)
            continue;
        const int is = terms_text(&t->equation[i], &f, text);
        fprintf(out, "%s`%s`", n++ ? ", " : "", text);
        for (int k = -1; k < 0 || terms_input(&t->equation[i], is ? &f : NULL, k, name); k++) {
            const int at = terms_value(t, k < 0 ? t->equation[i].value : name);
            if (!known[at])
                fprintf(symbols, "| `%s` | %s | %s |\n", t->value[at].name, t->value[at].unit, t->value[at].meaning);
            known[at] = 1;
        }
    }
    fprintf(out, " |\n");
}

/* Of the table, the document has this text. Frees it. */
static void has(const char *doc, char *text)
{
    if (getenv("TERMS_PRINT"))
        printf("%s\n", text);
    else
        CHECK_MSG(strstr(doc, text), "docs/cost-model.md has not, of the table:\n%s", text);
    free(text);
}

static void document(const char *doc)
{
    char *rows = NULL, *symbols = NULL, known[TERM_VALUES] = { 0 }, known_paper[TERM_PAPER_VALUES] = { 0 };
    size_t len, symbols_len;
    FILE *out = open_memstream(&rows, &len), *to = open_memstream(&symbols, &symbols_len);
    for (int i = 0; i < terms_paper.n; i++)
        put_paper(&terms_paper, &terms_paper.term[i], out, known_paper, to);
    fclose(out);
    fclose(to);
    has(doc, rows);
    has(doc, symbols);
    for (int i = 0; i < terms_measured.n; i++) {
        char *text = NULL, *lines = NULL;
        out = open_memstream(&text, &len);
        put_term(&terms_measured, &terms_measured.term[i], known, out);
        fclose(out);
        to = open_memstream(&lines, &len);
        put_lines(text, to);
        fclose(to);
        free(text);
        has(doc, lines);
    }
    int headings = 0;
    for (const char *at = doc; (at = strstr(at, "\n### M")); at++)
        headings += at[6] >= '0' && at[6] <= '9';
    CHECK(headings == terms_measured.n);
}

/* Every word of a list is a file. */
static void files(const char *list)
{
    char path[128];
    for (; *list; list += strspn(list, " ")) {
        size_t n = strcspn(list, " ");
        snprintf(path, sizeof path, "%.*s", (int)n, list);
        CHECK_MSG(access(path, R_OK) == 0, "%s", path);
        list += n;
    }
}

static void names(const struct terms *t, const char *sources)
{
    char name[FORMULA_NAME];
    struct formula f;
    for (int i = 0; i < t->n; i++)
        files(t->term[i].validated);
    for (int i = 0; i < t->n_equations; i++) {
        const struct term_equation *q = &t->equation[i];
        int is = formula_read(&f, q->formula), known = terms_value(t, q->value) >= 0, term = 0;
        for (int k = 0; terms_input(q, is ? &f : NULL, k, name); k++)
            if (terms_value(t, name) < 0) {
                printf("# (%s): %s\n", q->id, name);
                known = 0;
            }
        for (int k = 0; k < t->n; k++)
            term += !strcmp(t->term[k].id, q->id);
        CHECK_MSG(known && term == 1, "(%s) %s", q->id, q->value);
        CHECK_MSG(strstr(sources, q->function), "(%s): no function %s", q->id, q->function);
        CHECK_MSG(is || q->inputs[0], "(%s) %s: prose names its inputs", q->id, q->value);
    }
    for (int i = 0; i < t->n_values; i++)
        CHECK_MSG(terms_value(t, t->value[i].name) == i, "%s twice", t->value[i].name);
}

/* Values of names: random, and the same for the same name. */
static double value_of(void *ctx, const char *name)
{
    unsigned h = *(unsigned *)ctx;
    for (; *name; name++)
        h = h * 31 + (unsigned char)*name;
    return 1 + (h >> 8) % 1000 / 7.0;
}

#define V(name) value_of(&seed, #name)
#define SAME(table, row, ...) same(table, #row, &seed, __VA_ARGS__)

static void same(const struct terms *t, const char *value, unsigned *seed, double is)
{
    struct formula f;
    int read = formula_read(&f, terms_equation(t, value)->formula);
    double by_text = read ? formula_value(&f, value_of, seed) : NAN;
    CHECK_MSG(by_text >= is && by_text <= is, "%s: %.17g by its function, %.17g by its text", value, is, by_text);
}

/* Bit by bit. */
static void equal(void)
{
    for (unsigned seed = 1; seed < 40; seed++) {
        SAME(&terms_measured, t_cache, cost_cache_overhead_ns(V(lookups), V(tau_lookup), V(copied), V(tau_admit), V(threads)));
        SAME(&terms_measured, t_lost, cost_lost_ns(V(io_reads), V(tau_lost)));
        SAME(&terms_measured, t_drain, cost_drain_ns(V(t_cold), V(reads), V(threads), V(D), V(down_share)));
        SAME(&terms_measured, t_slowed, cost_slowed_ns(V(t_work), V(t_waited), V(kappa)));
        SAME(&terms_measured, t_window, cost_window_ns(V(t_attention), V(t_work), V(t_early), V(t_late)));
        SAME(&terms_measured, t_both, cost_both_ns(V(t_cpu), V(t_queue), V(threads), V(t_engine), V(t_launch), V(sigma)));
        SAME(&terms_measured, t_memory, cost_memory_ns(V(V_seq), V(B_seq), V(V_rand), V(B_rand)));
        SAME(&terms_measured, t_layer, cost_in_turn_ns(V(t_attention), V(t_predict), V(t_ffn), V(t_io), V(t_exposed)));
        SAME(&terms_paper, t_mem, cost_mem_ns(V(W_attn), V(W_pred), V(a_io), V(W_ffn), V(B_mem)));
        SAME(&terms_paper, n_k, cost_cores_ok(V(n_k), V(N_k_max)));
    }
}

static void put(void *ctx, const char *name, FILE *file)
{
    (void)ctx;
    fputs(name, file);
}

static void text_is(const char *formula, const char *text, const char *smt)
{
    struct formula f;
    char said[FORMULA_TEXT], *out = NULL;
    size_t len;
    CHECK_MSG(formula_read(&f, formula), "%s", formula);
    CHECK_MSG(!strcmp(formula_text(&f, said), text), "%s", said);
    FILE *to = open_memstream(&out, &len);
    formula_smt(&f, &(struct formula_smt){ .name = put, .per = "f" }, to);
    fclose(to);
    CHECK_MSG(!strcmp(out, smt), "%s", out);
    free(out);
}

static void texts(void)
{
    struct formula f;
    int minus = 0;
    text_is("a - (b - c) * larger(1, d)", "a - (b - c) * max(1, d)", "(- a (* (- b c) (largest 1.0 d)))");
    text_is("f > 0 ? 1e9 * a * b / f : 0", "a * b / f", "(* a b tau)");
    text_is("a / (b / c)", "a / (b / c)", "(/ a (/ b c))");
    text_is("a + b + (c - d) - 1e9 * e", "a + b + c - d - e", "(- (+ a b (- c d)) (* 1000000000.0 e))");
    text_is("a >= b ? a : c", "a where a >= b, else c", "(ite (>= a b) a c)");
    CHECK(!formula_read(&f, "sum over k of n_k * f_k") && !formula_read(&f, "a +") && !formula_read(&f, "(a") && !formula_read(&f, ""));
    CHECK(formula_read(&f, "a + b - c") && !strcmp(formula_term(&f, 0, &minus), "a") && !strcmp(formula_term(&f, 2, &minus), "c") &&
          minus && !formula_term(&f, 3, &minus));
    CHECK(formula_read(&f, "a + b * c") && !formula_term(&f, 0, &minus) && !strcmp(formula_input(&f, 2), "c") && !formula_input(&f, 3));
}

int main(void)
{
    static const char *const headers[] = { "planner/cost/cost.h", "planner/cost/cost_prompt.h", "planner/cost/cost_rest.h",
                                           "planner/terms/terms.def", "planner/terms/paper.def", "planner/search/passes.h",
                                           "planner/predict/predicted.h" };
    char *sources = NULL, *doc = file_text("docs/cost-model.md");
    size_t len;
    FILE *all = open_memstream(&sources, &len);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char *one = file_text(headers[i]);
        fputs(one, all);
        free(one);
    }
    fclose(all);
    names(&terms_measured, sources);
    names(&terms_paper, sources);
    texts();
    equal();
    document(doc);
    free(sources);
    free(doc);
    return test_done();
}
