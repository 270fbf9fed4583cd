/* Short convolutions against their definition in double precision, channels in pieces; and that the state makes tokens one sequence. */
#include "common/ops/conv.h"
#include "common/ops/ops.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

enum { D = 20, WIDTH = 3, TOKENS = 7 };

static float value(int i)
{
    return (float)((i * 7919 + 13) % 101) / 50 - 1;
}

static double gated(int t, int c)
{
    return (double)value(t * 3 * D + c) * (double)value(t * 3 * D + 2 * D + c);
}

int main(void)
{
    const struct model_hparams h = { .n_layers = 4, .n_lead = 2, .n_ff_lead = 8, .d_model = D, .conv_width = WIDTH, .n_heads = 1,
                                     .n_kv_heads = 1, .head_dim = 4, .n_experts = 2, .n_experts_used = 1, .blocks = "acacca" };
    static float bcx[3 * D], y[D], w[D * WIDTH], state[(WIDTH - 1) * D];
    struct op_need need;
    int place[6];
    double worst = 0;
    for (int i = 0; i < D * WIDTH; i++)
        w[i] = value(3 * i + 1);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < 3 * D; i++)
            bcx[i] = value(t * 3 * D + i);
        conv_mix(y, bcx, state, w, 0, 7, &h);
        conv_mix(y, bcx, state, w, 7, D, &h);
        for (int c = 0; c < D; c++) {
            double sum = 0;
            for (int i = 0; i < WIDTH && i <= t; i++)
                sum += gated(t - i, c) * (double)w[c * WIDTH + WIDTH - 1 - i];
            worst = fmax(worst, fabs(sum * (double)value(t * 3 * D + D + c) - (double)y[c]));
        }
    }
    CHECK_MSG(worst < 1e-6, "%g", worst);
    for (int c = 0; c < D; c++)
        worst = fmax(worst, fabs(gated(TOKENS - 2, c) - (double)state[c]) + fabs(gated(TOKENS - 1, c) - (double)state[D + c]));
    CHECK_MSG(worst < 1e-6, "%g", worst);
    /* Blocks are the file's; the two before the experts' are layers 4 and 5. */
    CHECK(model_letter(&h, 4) == 'a' && model_letter(&h, 5) == 'c' && model_letter(&h, 0) == 'a' && model_letter(&h, 3) == 'a');
    CHECK(model_is_recurrent(&h, 5) && !model_is_recurrent(&h, 4) && model_is_recurrent(&h, 1) && !model_is_recurrent(&h, 3));
    ops_mixer(&h, 1, &need);
    CHECK(need.state == (WIDTH - 1) * D && need.states == 1 && need.planes == 0);
    ops_most(&h, OPS_ALL, &need);
    CHECK(need.planes == 6 && need.states == 3);
    ops_places(&h, place);
    CHECK(place[0] == 0 && place[1] == 0 && place[2] == 1 && place[3] == 1 && place[4] == 2 && place[5] == 2);
    CHECK(model_blocks_fit(&h));
    /* Blocks of one sublayer: those without a FFN are numbered after the others. */
    struct model_hparams alone = { .n_layers = 3, .n_lead = 4, .blocks = "MFAMFMF" };
    static const int order[] = { 3, 0, 4, 5, 1, 6, 2 };
    for (int i = 0; i < 7; i++)
        CHECK(model_layer_at(&alone, i) == order[i] && model_block_of(&alone, order[i]) == i);
    CHECK(model_blocks_fit(&alone) && model_is_recurrent(&alone, 3) && model_has_kv(&alone, 4) && !model_has_kv(&alone, 1));
    alone.n_layers = 4, alone.n_lead = 3;
    CHECK(!model_blocks_fit(&alone));
    struct model_hparams bad = h;
    strcpy(bad.blocks, "acacc");
    CHECK(!model_blocks_fit(&bad));
    strcpy(bad.blocks, "acaxca");
    CHECK(!model_blocks_fit(&bad));
    memset(bad.blocks, 'a', sizeof bad.blocks);
    CHECK(!model_blocks_fit(&bad));
    return test_done();
}
