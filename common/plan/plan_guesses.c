/* What guesses of further tokens bring by a plan's times of passes. The same few lines say it to the planner, which states it, to whoever
 * reads a plan, and to the runtime, which knows how many guesses have come true. */
#include "common/plan/plan.h"

#include "common/base/names.h"

#include <assert.h>

NAMES(plan_source_name, enum plan_source, "lookup", "draft", "mtp")

double plan_pass_ns(const struct plan_guesses *g, int tokens)
{
    int i = 1;
    if (g->n < 2 || tokens < 1)
        return 0;
    while (i + 1 < g->n && g->tokens[i] < tokens)
        i++;
    double a = g->pass_ns[i - 1], b = g->pass_ns[i];
    return a + (b - a) * (tokens - g->tokens[i - 1]) / (g->tokens[i] - g->tokens[i - 1]);
}

double plan_guesses_speedup(const struct plan_guesses *g, double acceptance, double guess_ns, int guesses)
{
    double tokens = 1, term = 1;
    assert(g->n >= 2 && guesses >= 0);
    for (int k = 0; k < guesses; k++)
        tokens += term *= acceptance;
    return tokens * g->pass_ns[0] / (plan_pass_ns(g, guesses + 1) + guesses * guess_ns);
}

int plan_best_guesses(const struct plan_guesses *g, double acceptance, double guess_ns, int most, double *speedup)
{
    int best = 0;
    *speedup = 1;
    for (int k = 1; g->n >= 2 && k <= most && k < g->tokens[g->n - 1]; k++) {
        double s = plan_guesses_speedup(g, acceptance, guess_ns, k);
        if (s > *speedup) {
            *speedup = s;
            best = k;
        }
    }
    return best;
}

void plan_choose_guesses(struct plan_guesses *g)
{
    static const double acceptance[PLAN_ACCEPTANCES] = { 0.6, 0.8 };
    for (int i = 0; i < PLAN_ACCEPTANCES && g->n; i++) {
        g->acceptance[i] = acceptance[i];
        g->best[i] = plan_best_guesses(g, acceptance[i], g->guess_ns, PLAN_GUESSES, &g->speedup[i]);
    }
}
