/* The graph of a model: over families of all kinds every tensor belongs to one operation, and every operation has what it reads. */
#include "common/ops/ops.h"
#include "common/plan/budget.h"

#include "tests/test.h"

#include <string.h>

#define BASE .n_layers = 4, .d_model = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .n_ff = 96, .n_vocab = 260, .n_rot = 16
#define EXPERTS .n_experts = 6, .n_experts_used = 2

static const struct family {
    const char *name;
    unsigned widest;        /* input of a product */
    const char *ops;        /* of the last layer */
    struct model_hparams h;
} families[] = {
    { "llama", 64, "attn_norm attention add ffn_norm ffn", { BASE } },
    { "mixtral", 64, "attn_norm attention add ffn_norm route ffn", { BASE, EXPERTS } },
    { "smallthinker", 64, "route attn_norm attention add ffn_norm ffn",
      { BASE, EXPERTS, .early_router = 1, .window = 8, .window_period = 4 } },
    { "qwen2moe", 96, "attn_norm attention add ffn_norm route ffn",
      { BASE, EXPERTS, .n_ff_shared = 96, .shared_gated = 1, .qkv_bias = 1 } },
    { "gpt-oss", 64, "attn_norm attention add ffn_norm route ffn",
      { BASE, EXPERTS, .expert_bias = 1, .sinks = 1, .qkv_bias = 1, .output_bias = 1 } },
    { "glm4moe", 128, "attn_norm attention add ffn_norm ffn",
      { BASE, EXPERTS, .n_lead = 1, .n_ff_lead = 128, .select_bias = 1, .n_ff_shared = 96, .qk_norm = MODEL_QK_NORM_HEAD } },
    { "deepseek2", 128, "attn_norm attention add ffn_norm ffn",
      { BASE, EXPERTS, .n_lead = 1, .n_ff_lead = 128, .n_ff_shared = 96, .kv_rank = 12, .q_rank = 8, .nope_dim = 8,
        .value_dim = 8 } },
    { "gemma4", 96, "attn_norm attention add ffn_norm route ffn scale",
      { BASE, EXPERTS, .n_ff_shared = 96, .expert_norms = 1, .post_norms = 1, .out_scale = 1, .values_optional = 1 } },
    { "gemma4-e", 64, "attn_norm attention add ffn_norm ffn layer_embd scale",
      { BASE, .widths = { 48, 48, 96, 96 }, .shared_kv = 3, .layer_embd = 8, .window = 8, .window_period = 3, .period_offset = 1,
        .post_norms = 1, .out_scale = 1, .qk_norm = MODEL_QK_NORM_HEAD } },
    { "falcon", 64, "attn_norm_2 attention attn_norm add ffn", { BASE, .parallel = 1, .layer_norm = 1, .ffn_up = MODEL_FFN_UP_UNGATED } },
    { "opt", 64, "attn_norm attention add ffn_norm ffn", { BASE, .layer_norm = 1, .n_positions = 258, .thresholds = 1 } },
    { "qwen35", 64, "attn_norm attention add ffn_norm ffn",
      { BASE, .full_period = 4, .conv_width = 4, .delta_dim = 16, .delta_k_heads = 2, .delta_v_heads = 4, .out_gate = 1 } },
    { "muse-glimmer", 64, "attn_norm attention add ffn_norm ffn",
      { BASE, .out_gate = 2, .post_norms = 1, .qk_norm = MODEL_QK_NORM_HEAD, .long_context = 64 } },
    { "qwen3next", 64, "attn_norm delta add ffn_norm route ffn",
      { BASE, EXPERTS, .full_period = 3, .conv_width = 4, .delta_dim = 16, .delta_k_heads = 2, .delta_v_heads = 4, .delta_joined = 1 } },
    { "lfm2", 64, "attn_norm conv add ffn_norm ffn", { BASE, .blocks = "caac", .conv_width = 3 } },
    { "lfm2moe", 128, "attn_norm attention add ffn_norm ffn",
      { BASE, EXPERTS, .blocks = "caccac", .conv_width = 3, .n_lead = 2, .n_ff_lead = 128 } },
    { "granitehybrid", 128, "attn_norm ssm add ffn_norm ffn",
      { BASE, .blocks = "mamm", .conv_width = 4, .ssm_inner = 128, .ssm_state = 16, .ssm_heads = 8, .ssm_groups = 2 } },
    { "nemotron_h", 128, "attn_norm attention add",
      { BASE, .blocks = "MFMAFFF", .conv_width = 4, .ssm_inner = 128, .ssm_state = 16, .ssm_heads = 8, .ssm_groups = 2,
        .n_lead = 3,
        .ffn_up = MODEL_FFN_UP_UNGATED } },
    { "nemotron_h_moe", 128, "attn_norm ssm add",
      { BASE, EXPERTS, .blocks = "FFAFMF", .conv_width = 4, .ssm_inner = 128, .ssm_state = 16, .ssm_heads = 8,
        .ssm_groups = 2, .n_lead = 2,
        .n_ff_shared = 96, .ffn_up = MODEL_FFN_UP_UNGATED } },
    { "rwkv7", 64, "attn_norm wkv add ffn_norm shift ffn",
      { BASE, .wkv_dim = 16, .decay_rank = 8, .rate_rank = 8, .value_rank = 8, .gate_rank = 8, .layer_norm = 1 } },
    { "rwkv6", 64, "attn_norm wkv add ffn_norm shift ffn scale", { BASE, .wkv_dim = 16, .decay_rank = 8, .mix_rank = 4, .halve_period = 2,
                                                              .layer_norm = 1 } },
    { "mtp", 128, "attn_norm attention add ffn_norm ffn", { BASE, .mtp = 4 } },
};

/* How many operations of a layer have a tensor. */
static int times(const struct graph_layer *g, int role)
{
    int n = 0;
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->op[i].n_roles; k++)
            n += graph_roles[g->op[i].role_first + k].role == role;
    return n;
}

static int owned(const struct model_hparams *h, int layer, const struct graph_layer *g)
{
    for (int r = 0; r < MODEL_ROLES; r++) {
        enum model_role role = (enum model_role)r;
        int here = model_role_is_per_layer(role) == (layer >= 0) && model_role_at(h, role, layer) != MODEL_ABSENT;
        if (here && !model_role_is_predictor(role) && times(g, r) != 1) {
            printf("# layer %d: %s is in %d operations\n", layer, model_role_name(role), times(g, r));
            return 0;
        }
    }
    return 1;
}

/* Has an operation a tensor of the model's, and were its inputs made? */
static int fed(const struct model_hparams *h, int layer, const struct graph_layer *g)
{
    unsigned made = 1u << OP_NOTHING | (layer >= 0 ? 1u << OP_X : 0);
    for (int i = 0; i < g->n; i++) {
        const struct op *o = &g->op[i];
        int n = 0;
        for (int k = 0; k < o->n_roles; k++)
            n += model_role_at(h, (enum model_role)graph_roles[o->role_first + k].role, layer) != MODEL_ABSENT;
        for (int k = 0; k < 3; k++)
            if (!(made >> o->in[k] & 1))
                return 0;
        made |= 1u << o->out;
        if (!n && o->kind != OP_ADD && o->kind != OP_SCALE)
            return 0;
    }
    return g->op[g->n - 1].out == (layer < 0 ? OP_LOGITS : OP_X);
}

static void text_of(const struct graph_layer *g, char *out, size_t len)
{
    size_t at = 0;
    for (int i = 0; i < g->n; i++)
        at += (size_t)snprintf(out + at, len - at, "%s%s", i ? " " : "", graph_op_name((enum op_kind)g->op[i].kind));
}

static void test_table(void)
{
    int n[MODEL_ROLES] = { 0 }, jobs = 0, ok = 1;
    for (int i = 0; i < graph_n_roles; i++) {
        enum model_role r = (enum model_role)graph_roles[i].role;
        n[r]++;
        jobs += graph_roles[i].job && model_role_is_per_layer(r);
        ok &= !graph_roles[i].job || (!model_role_is_vector(r) && !model_role_is_ffn(r));
        ok &= (i == 0 || graph_roles[i].kind >= graph_roles[i - 1].kind);
    }
    CHECK(ok);
    CHECK(jobs <= GRAPH_PRODUCTS);
    for (int r = 0; r < MODEL_ROLES; r++)
        ok &= n[r] == !model_role_is_predictor((enum model_role)r);
    CHECK(ok);
}

/* What all operations need together is no less than what any does; each layer keeps keys and values or a state, in a place of its own; and
 * the account holds just that of every position and sequence. */
static int needs(const struct model_hparams *h)
{
    struct op_need all, one;
    int place[8], seen[2] = { 0 }, ok = 1, n = model_depth(h);
    uint64_t planes = 0, states = 0;
    ops_most(h, OPS_ALL, &all);
    ops_places(h, place);
    for (int l = 0; l < n; l++) {
        ops_mixer(h, l, &one);
        int kept = (one.planes > 0) + (one.states > 0);
        int own = kept && !one.shares;
        ok &= one.shares == (h->shared_kv && model_block_of(h, l) >= n - h->shared_kv);
        ok &= kept == (model_letter(h, l) != 'F') && (one.row > 0) == (one.planes > 0) && (one.state > 0) == (one.states > 0);
        ok &= place[l] == (own || !kept ? seen[one.states > 0] : place[model_kv_layer(h, l)]);
        ok &= one.q <= all.q && one.row <= all.row && one.made <= all.made && one.state <= all.state;
        ok &= (one.score_rows > 0) == (one.heads > 0) && (one.heads > 0) == (one.planes > 0);
        seen[one.states > 0] += own;
        planes += own ? one.planes : 0, states += one.states;
    }
    const struct budget_model m = { .h = *h, .shapes = { .n_ff = h->n_ff, .n_parts = 1 } };
    const struct budget_choice c = { .context = 512, .max_batch = 3, .kv_type = KV_F16, .prefill_chunk = 64, .threads = 2, .io_lanes = 1,
                                     .queue_depth = 1 }, longer = { .context = 512, .max_batch = 3, .kv_type = KV_F16, .prefill_chunk = 128,
                                                                    .threads = 2, .io_lanes = 1, .queue_depth = 1 };
    struct budget_kv kv;
    struct budget_scratch few, many;
    struct err e;
    ok &= all.planes == planes && all.states == states && budget_kv(&m, &c, &kv, &e) == 0;
    ok &= kv.total == planes * kv.plane_bytes + 3 * states * kv.state_bytes + kv.table_bytes;
    ok &= kv.plane_bytes == 3 * 512 * 2 * all.row && kv.state_bytes == (all.state * 4 + 63) / 64 * 64;
    ok &= budget_scratch(&m, &c, &few, &e) == 0 && budget_scratch(&m, &longer, &many, &e) == 0;
    ok &= few.qkv == 64 * 4 * (all.q + all.kv) && few.made == 64 * 4 * all.made && many.qkv == 2 * few.qkv && many.total > few.total;
    return ok;
}

int main(void)
{
    test_table();
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct model_hparams *h = &families[i].h;
        struct graph_layer g;
        char text[200] = "";
        int ok = 1;
        for (int l = -1; l < model_depth(h); l++) {
            graph_layer(h, l, &g);
            ok &= g.n <= GRAPH_LAYER_OPS && owned(h, l, &g) && fed(h, l, &g);
        }
        text_of(&g, text, sizeof text);
        if (strcmp(text, families[i].ops))
            printf("# %s: %s\n", families[i].name, text);
        CHECK(ok && !strcmp(text, families[i].ops));
        CHECK(graph_widest(h) == families[i].widest);
        CHECK(needs(h));
    }
    return test_done();
}
