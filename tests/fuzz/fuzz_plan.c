/* Fuzz entry: any bytes as a plan. What parses must print, and print the same when parsed again; the table of heights says of every
 * pass what the plan does, or less where it is too small. */
#include "common/plan/plan.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void check_heights(const struct plan_limit *l, int most)
{
    struct plan_height h[2 * PLAN_MAX_BATCHES + 2];
    int n = plan_heights(l, h, most), from = 1;
    if (n < 1 || n > most || h[n - 1].tokens)
        abort();
    for (int i = 0; i < n; i++) {
        int to = h[i].tokens ? h[i].tokens : from < MODEL_MAX_CONTEXT ? MODEL_MAX_CONTEXT : from + 1;
        struct plan_share s = h[i].share, first = plan_pass_share(l, from), last = plan_pass_share(l, to);
        unsigned both = (unsigned)first.work & (unsigned)last.work;
        if (to < from || s.neurons > first.neurons || s.neurons > last.neurons || (s.work & ~both) ||
            (n < most && (s.neurons != first.neurons || s.neurons != last.neurons || s.work != first.work || s.work != last.work)))
            abort();
        from = to + 1;
    }
}

/* Times of passes are there for all lengths and do not fall; no number of guesses beats the best by more than digits. */
static void check_guesses(const struct plan_guesses *g)
{
    for (int n = 2; n <= 2 << (PLAN_PASSES - 1) && g->n; n++)
        if (!(plan_pass_ns(g, n) >= plan_pass_ns(g, n - 1) * (1 - 1e-5)))
            abort();
    for (int i = 0; i < PLAN_ACCEPTANCES && g->n; i++)
        for (int k = 0; k <= PLAN_GUESSES && k < g->tokens[g->n - 1]; k++)
            if (!(plan_guesses_speedup(g, g->acceptance[i], g->guess_ns, k) <= g->speedup[i] * (1 + 1e-4)))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan p, q;
    struct err e;
    char *a, *b;
    size_t na, nb;
    if (plan_parse((const char *)data, size, "fuzz", &p, &e) < 0)
        return 0;
    if (plan_text(&p, &a, &na, &e) < 0 || plan_parse(a, na, "again", &q, &e) < 0 || plan_text(&q, &b, &nb, &e) < 0 ||
        na != nb || memcmp(a, b, na) != 0)
        abort();
    for (int i = 0; i < p.n_limits; i++) {
        check_heights(&p.limits[i], 2 * PLAN_MAX_BATCHES + 2);
        check_heights(&p.limits[i], 3);
        check_guesses(&p.limits[i].guesses);
    }
    free(a);
    free(b);
    plan_done(&p);
    plan_done(&q);
    return 0;
}
