/* What a missed neuron may cost. It takes h |down| from the layer's output, h = gate * up, and a squared error of the output is
 * what moves the logits, to first order. With a gate known as a normal variable of mean m and deviation s, and t = m / s, the
 * expected square is s^2 E[up^2] |down|^2 G(t), G(t) = (t^2 + 1) Phi(t) + t phi(t). Where thresholds lie, t from -2 to -1.5,
 * log G rises by STEEPNESS per unit of t. To predict those of largest expected loss rather than those that are likeliest
 * active is therefore to add 2 / STEEPNESS log(s rms(up) |down|) to t; s is proportional enough to the gate's own deviation. */
#include "profiler/predictors/predictor.h"

#include "common/offline/linalg.h"

#include <math.h>
#include <stdlib.h>

enum { PANEL = 128, TOKENS = 512 };
#define STEEPNESS 2.75 /* (log G(-1.5) - log G(-2)) / 0.5 */
#define LOGISTIC  1.7  /* scores are 1.7 t: predictor_base.c */

struct value {
    const struct predictor_data *data;
    const float *gate, *up, *down;
    int by_neuron, m;
    float *tmp;                  /* of each worker: [TOKENS][PANEL] */
    double *out;
};

/* Square means of a panel's products with the inputs, less the means' squares when centred: times into out. */
static void squares(const struct value *v, const float *rows, int n, int centred, float *tmp, double *out)
{
    int d = v->data->d;
    linalg_gemm(0, 1, v->m, n, d, 1, v->data->f, d, rows, d, 0, tmp, PANEL);
    for (int i = 0; i < n; i++) {
        double sum = 0, square = 0;
        for (int t = 0; t < v->m; t++)
            sum += (double)tmp[t * PANEL + i], square += (double)tmp[t * PANEL + i] * (double)tmp[t * PANEL + i];
        sum /= v->m, square /= v->m;
        out[i] *= fmax(centred ? square - sum * sum : square, 1e-20);
    }
}

static void panel(void *ctx, int begin, int end, int worker)
{
    const struct value *v = ctx;
    size_t d = (size_t)v->data->d, n_ff = (size_t)v->data->n_ff, first = (size_t)begin;
    float *tmp = v->tmp + (size_t)worker * TOKENS * PANEL;
    for (size_t i = first; i < (size_t)end; i++) {
        double s = 0;
        for (size_t k = 0; k < d; k++) {
            double x = (double)(v->by_neuron ? v->down[i * d + k] : v->down[k * n_ff + i]);
            s += x * x;
        }
        v->out[i] = fmax(s, 1e-20);
    }
    squares(v, v->gate + first * d, end - begin, 1, tmp, v->out + first);
    squares(v, v->up + first * d, end - begin, 0, tmp, v->out + first);
}

int predictor_shift(const struct predictor_data *data, const float *gate, const float *up, const float *down, int by_neuron,
                    double loss_weighting, struct pool *pool, float *shift, struct err *e)
{
    size_t n = (size_t)data->n_ff;
    struct value v = { .data = data, .gate = gate, .up = up, .down = down, .by_neuron = by_neuron,
                       .m = data->n_train < TOKENS ? (int)data->n_train : TOKENS,
                       .tmp = malloc((size_t)pool_threads(pool) * TOKENS * PANEL * sizeof *v.tmp),
                       .out = malloc(n * sizeof *v.out) };
    int r = v.tmp && v.out ? 0 : err_set(e, ERR_NOMEM, "what %d neurons contribute", data->n_ff);
    if (!r) {
        double mean = 0;
        pool_for(pool, data->n_ff, PANEL, panel, &v);
        for (size_t i = 0; i < n; i++)
            mean += log(v.out[i]) / 2 / (double)n;
        for (size_t i = 0; i < n; i++)
            shift[i] = (float)(loss_weighting * LOGISTIC * 2 / STEEPNESS * (log(v.out[i]) / 2 - mean));
    }
    free(v.tmp), free(v.out);
    return r;
}
