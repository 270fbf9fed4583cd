#include "common/plan/plan.h"

#include <math.h>

const char *const plan_term_names[PLAN_TERMS] = { "attention", "predict", "ffn", "io_wait", "head" };

void plan_terms(enum plan_cost cost, enum plan_mode mode, const struct plan_figures *g, int n_layers, double out[PLAN_TERMS])
{
    for (int t = 0; t < PLAN_TERMS; t++)
        out[t] = 0;
    for (int i = 0; i < n_layers; i++) {
        const struct plan_layer_figures *f = &g->layers[i];
        double busy = cost == PLAN_COST_PAPER ? f->ffn_compute_ns : fmax(fmax(f->ffn_compute_ns, f->ffn_memory_ns), f->ffn_engine_ns);
        out[PLAN_TERM_ATTENTION] += f->attention_ns;
        /* The paper counts gates as its predictor; the engine computes them in the FFN. */
        out[mode == PLAN_PREDICTED ? PLAN_TERM_PREDICT : PLAN_TERM_FFN] += f->predict_ns;
        out[PLAN_TERM_FFN] += busy;
        out[PLAN_TERM_WAIT] += fmax(0, f->total_ns - f->attention_ns - f->predict_ns - busy);
    }
    out[PLAN_TERM_HEAD] = g->head_ns;
    if (cost == PLAN_COST_PAPER) /* overlaps whole sums, not layers */
        out[PLAN_TERM_WAIT] = fmax(0, g->step_ns - g->head_ns - out[PLAN_TERM_ATTENTION] - out[PLAN_TERM_PREDICT] - out[PLAN_TERM_FFN]);
}
