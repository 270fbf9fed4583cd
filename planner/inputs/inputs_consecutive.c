/* Steps over tokens of one sequence that follow each other: a pass over guesses. A neuron that fired fires again soon, so such tokens
 * share more than those of different sequences do. */
#include "planner/inputs/inputs.h"

#include <stdlib.h>
#include <string.h>

/* The curves of one size into `to`; 0: there are no steps of it. */
static int one_size(const struct inputs *in, int batch_index, struct inputs_curve *to, struct err *e)
{
    int r = 1;
    for (int l = 0; l < in->n_layers && r == 1; l++)
        r = in->consecutive(in, batch_index, l, to + (size_t)l * (size_t)in->n_blocks, e);
    return r;
}

int inputs_consecutive(const struct inputs *in, int n, int firings, struct inputs *out, struct err *e)
{
    size_t ffns = (size_t)in->n_layers * (size_t)in->n_blocks, row = (size_t)in->h.n_ff + 1, more = (size_t)(n - 1) * ffns;
    struct inputs o = *in;
    double *cum = NULL;
    int r = 1;
    o.n_batches = 1;
    o.curves = malloc((size_t)n * ffns * sizeof *o.curves);
    if (firings)
        cum = calloc(more * row + 1, sizeof *cum);
    if (!o.curves || (firings && !cum)) {
        free(o.curves);
        free(cum);
        return err_set(e, ERR_NOMEM, "out of memory for steps of consecutive tokens");
    }
    memcpy(o.curves, in->curves, ffns * sizeof *o.curves);
    for (size_t i = 0; i < more; i++)
        o.curves[ffns + i] = (struct inputs_curve){ 1, firings ? cum + i * row : NULL };
    o.consecutive_cum = cum;
    while (in->consecutive && o.n_batches < n && (r = one_size(in, o.n_batches, o.curves + (size_t)o.n_batches * ffns, e)) == 1)
        o.n_batches++;
    *out = o;
    if (r < 0)
        inputs_consecutive_done(out);
    return r < 0 ? r : 0;
}

void inputs_consecutive_done(struct inputs *out)
{
    free(out->consecutive_cum);
    free(out->curves);
    *out = (struct inputs){ 0 };
}

int inputs_steps_pairs(const struct inputs_steps *s, struct inputs_steps *out, struct err *e)
{
    int n = s->n_steps / 2;
    struct inputs_steps o = { .n_steps = n, .start = malloc(((size_t)n + 1) * sizeof *o.start),
                              .at = malloc(((size_t)s->start[2 * n] + 1) * sizeof *o.at), .together = s->together };
    uint32_t len = 0;
    if (!o.start || !o.at) {
        inputs_steps_done(&o);
        return err_set(e, ERR_NOMEM, "out of memory for steps of consecutive tokens");
    }
    for (int t = 0; t < n; t++) {
        uint32_t i = s->start[2 * t], k = s->start[2 * t + 1], end = s->start[2 * t + 2];
        const uint32_t middle = k;
        o.start[t] = len;
        while (i < middle || k < end) {
            uint32_t a = i < middle ? s->at[i] : UINT32_MAX, b = k < end ? s->at[k] : UINT32_MAX;
            o.at[len++] = a < b ? a : b;
            i += a <= b && i < middle;
            k += b <= a && k < end;
        }
    }
    o.start[n] = len;
    *out = o;
    return 0;
}
