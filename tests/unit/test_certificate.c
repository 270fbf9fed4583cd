/* Certificates of random problems: Z3's own reader refutes every part of a true claim, not all parts of a false one or of a file
 * whose numbers were changed. */
#include "planner/solve/certificate.h"
#include "planner/solve/refute.h"
#include "tests/solve_exhaustive.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static uint64_t rng_state;
static int64_t rng(int64_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(rng_state >> 16) % n;
}

/* Falling, not convex. scale: of ticks, so that products need more than 64 bits. */
static struct solve_curve make_curve(int n, int64_t scale)
{
    struct solve_point pt[64];
    struct solve_curve c;
    struct err e;
    int64_t bytes = rng(50), ticks = (100000 + rng(900000)) * scale;
    for (int i = 0; i < n; i++) {
        pt[i] = (struct solve_point){ bytes, ticks, (uint32_t)i, 0 };
        bytes += 1 + rng(200 * scale);
        ticks -= rng(3) ? rng(ticks / 8 + 1) : rng(ticks / 2 + 1);
    }
    if (solve_curve_init(&c, pt, n, &e) < 0)
        abort();
    return c;
}

static struct solve_problem make(uint64_t seed)
{
    rng_state = seed * 977 + 5;
    int64_t scale = seed % 4 == 3 ? 1000000 : 1;
    int layers = 1 + (int)rng(4), points = 1 + (int)rng(9);
    struct solve_problem p = { .n_layers = layers, .n_batches = 1 + (int)rng(2), .n_classes = 1, .n_configs = 1 + (int)rng(4),
                               .weight = { 8, 4 }, .max_ticks = SOLVE_NEVER, .cores = { 4 }, .context = 64 };
    struct err e;
    p.configs = calloc((size_t)p.n_configs, sizeof *p.configs);
    p.memory = 100 + layers * rng(100 * points) * scale;
    for (int i = 0; i < p.n_configs; i++) {
        struct solve_config *c = &p.configs[i];
        int n = layers * p.n_batches;
        *c = (struct solve_config){ .n = { 1 + i % 4 }, .depth = 1, .id = i, .fixed_bytes = 50 + rng(200), .context_bytes = 1 };
        c->curves = calloc((size_t)n, sizeof *c->curves);
        for (int k = 0; k < n; k++) {
            if (k && rng(3) == 0)
                solve_curve_copy(&c->curves[k], &c->curves[k - 1], &e);
            else
                c->curves[k] = make_curve(points, scale);
        }
        for (int b = 0; b < p.n_batches; b++) {
            c->fixed_ticks[b] = rng(200000);
            c->floor_ticks[b] = rng(3) ? 0 : rng(1000000 * layers);
        }
        if (solve_bound(&p, c, &e) < 0)
            abort();
    }
    return p;
}

static void unmake(struct solve_problem *p)
{
    for (int i = 0; i < p->n_configs; i++)
        solve_config_done(p, &p->configs[i]);
    free(p->configs);
}

/* The certificate of a claim about all configurations, malloc'd; *open: how many the writer says are not refuted. */
static char *write_text(const struct solve_problem *p, const struct solve_result *r, int64_t claim, int *checks, int *open)
{
    char *text = NULL;
    size_t len;
    struct err e;
    FILE *f = open_memstream(&text, &len);
    struct certificate *c = certificate_new(f);
    certificate_say(c, "two\nlines");
    certificate_claim(c, 77, 5, claim);
    *open = 0;
    for (int i = 0; i < p->n_configs; i++)
        *open += certificate_config(c, p, &p->configs[i], "a configuration", &e) == 0;
    if (r && r->feasible)
        certificate_result(c, p, r);
    *checks = certificate_checks(c);
    CHECK(certificate_done(c, &e) == 0);
    fclose(f);
    return text;
}

/* 1: every answer is unsat. */
static int refuted(const char *text, int want)
{
    int checks, unsat;
    struct err e = { 0 };
    int r = refute_text(text, &checks, &unsat, &e);
    if (r < 0 || checks != want)
        printf("# %d of %d answers: %s\n", checks, want, e.msg);
    CHECK(r == 0 && checks == want);
    return unsat == checks;
}

/* The first point that a set has, with its ticks made 0: below any tangent that needs ticks. */
static char *tampered(const char *text)
{
    const char *at = strstr(text, "(* q ");
    char *out = malloc(strlen(text) + 1);
    size_t head = (size_t)(at + 5 - text), number = strcspn(at + 5, ")");
    memcpy(out, text, head);
    out[head] = '0';
    strcpy(out + head + 1, at + 5 + number);
    return out;
}

static void try_problem(uint64_t seed, int *feasible, int *caught)
{
    struct solve_problem p = make(seed);
    struct solve_result best = { 0 }, greedy = { 0 };
    struct err e;
    int checks, open;
    int64_t bound = SOLVE_NEVER;
    CHECK(solve_exhaustive(&p, &best, &e) == 0);
    CHECK(solve_greedy(&p, &greedy, &e) == 0);
    for (int i = 0; i < p.n_configs; i++)
        bound = p.configs[i].bound < bound ? p.configs[i].bound : bound;
    int64_t claim = bound == SOLVE_NEVER ? 1 : bound;
    char *text = write_text(&p, &greedy, claim, &checks, &open);
    CHECK(open == 0);
    CHECK(certificate_claimed(text, 77, 5) == claim && certificate_claimed(text, 77, 6) == 0 && certificate_claimed(text, 78, 5) == 0);
    CHECK(refuted(text, checks));
    CHECK(!best.feasible || claim <= best.objective);
    if (best.feasible) {
        ++*feasible;
        char *other = tampered(text); /* of configuration 0, which may have room for it */
        *caught += !refuted(other, checks);
        free(other);
        free(text);
        text = write_text(&p, &greedy, best.objective + 1, &checks, &open);
        CHECK(open > 0);
        CHECK(!refuted(text, checks));
        greedy.objective++;
        free(text);
        text = write_text(&p, &greedy, claim, &checks, &open);
        CHECK(!refuted(text, checks));
    }
    free(text);
    solve_result_done(&best);
    solve_result_done(&greedy);
    unmake(&p);
}

static void is_no_smt(void)
{
    int checks, unsat;
    struct err e = { 0 };
    CHECK(refute_text("(assert (", &checks, &unsat, &e) == ERR_FORMAT);
    CHECK(refute_text("", &checks, &unsat, &e) == 0 && checks == 0);
    CHECK(refute_text("(declare-const a Int)\n(assert (> a 1))\n(check-sat)\n", &checks, &unsat, &e) == 0 && checks == 1 && unsat == 0);
}

/* Of several claims about the same, the least. */
static void test_claims(void)
{
    const char *text = "(define-fun claim1 () Int 100) ; bytes 7 context 5\n"
                       "(define-fun claim2 () Int 60) ; bytes 7 context 6\n"
                       "(define-fun claim3 () Int 90) ; bytes 7 context 5\n";
    CHECK(certificate_claimed(text, 7, 5) == 90 && certificate_claimed(text, 7, 6) == 60 && certificate_claimed(text, 8, 5) == 0);
}

int main(void)
{
    test_claims();
    int feasible = 0, caught = 0;
    for (uint64_t seed = 0; seed < 60; seed++)
        try_problem(seed, &feasible, &caught);
    printf("# %d of 60 feasible, %d of their tampered files noticed\n", feasible, caught);
    CHECK(feasible > 20);
    CHECK(caught > feasible / 2);
    is_no_smt();
    return test_done();
}
