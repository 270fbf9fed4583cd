/* What several sequences fire together, from a trace: in the steps that replay makes of its window, against counts by definition, and by
 * the trace's own batches where the window is too short. */
#include "planner/inputs/inputs.h"

#include "common/offline/trace/trace.h"

#include "tests/test.h"
#include "tests/trace_sample.h"

#include <math.h>
#include <unistd.h>

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-12;
}

/* Steps of one token of each of `size` equal pieces of the window. */
static uint64_t count_pieces(const struct trace_sample *s, uint64_t window, int layer, int size, uint64_t *counts, uint64_t *routed)
{
    int blocks = model_ffn_blocks(&s->info.h), slots = trace_slots(&s->info.h);
    uint64_t piece = window / (uint64_t)size;
    for (uint64_t t = 0; t < piece; t++)
        for (int e = 0; e < blocks; e++)
            for (int j = -1; j < SAMPLE_FF; j++) {
                int any = 0;
                for (int i = 0; i < size; i++)
                    for (int o = 0; o < slots; o++) {
                        uint64_t token = s->global[(uint64_t)i * piece + t];
                        any |= sample_block(&s->info, layer, token, o) == e && (j < 0 || sample_fires(layer, token, o, j) == 2);
                    }
                *(j < 0 ? &routed[e] : &counts[e * SAMPLE_FF + j]) += (uint64_t)any;
            }
    return piece;
}

static void test_curves(int n_experts)
{
    static struct trace_sample s;
    char path[64];
    struct inputs in;
    struct err e = { 0 };
    test_path(path, sizeof path, "thermo-inputs-%ld.h5", (long)getpid());
    sample_init(&s, n_experts, 0, 1);
    CHECK_MSG(sample_write(&s, path, 0, NULL, &e) == 0 && inputs_from_trace(path, 32, &in, &e) == 0, "%s", e.msg);
    int blocks = in.n_blocks, bad = 0, in_window = 0;
    for (int b = 1; b < in.n_batches; b++)
        for (int l = 0; l < SAMPLE_LAYERS; l++) {
            uint64_t counts[4 * SAMPLE_FF] = { 0 }, routed[4] = { 0 }, n = 0;
            int size = inputs_batch_sizes[b], own = inputs_counts_in_window(&in, b);
            in_window += own;
            if (own)
                n = count_pieces(&s, in.window_tokens, l, size, counts, routed);
            else
                sample_count(&s, l, TRACE_BATCH_SEQUENCES, size, 2, counts, routed, &n);
            for (int k = 0; k < blocks; k++) {
                const struct inputs_curve *v = inputs_curve_at(&in, b, l, k);
                bad += !near(v->routed, (double)routed[k] / (double)n);
                for (int i = 0; i < SAMPLE_FF; i++) {
                    uint32_t at = in.position[((size_t)l * (size_t)blocks + (size_t)k) * SAMPLE_FF + (size_t)i];
                    bad += !near(v->cum[at + 1] - v->cum[at], (double)counts[k * SAMPLE_FF + i] / (double)n);
                }
            }
        }
    CHECK_MSG(bad == 0, "%d curves differ", bad);
    CHECK_MSG(in_window == 4 * SAMPLE_LAYERS, "%d", in_window); /* some 200 tokens: 2, 4, 8 and 16 sequences, not 32 */
    CHECK(!inputs_counts_in_window(&in, 0));
    inputs_done(&in);
    unlink(path);
}

int main(void)
{
    test_curves(0);
    test_curves(4);
    return test_done();
}
