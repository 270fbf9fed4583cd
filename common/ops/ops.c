/* The graph is walked, and each operation says what it needs. */
#include "common/ops/ops.h"

static void (*const needs[OP_KINDS])(const struct model_hparams *h, int layer, struct op_need *out) = {
    [OP_EMBED] = embed_need, [OP_JOIN] = join_need, [OP_FFN] = ffn_need, [OP_LAYER_EMBD] = layer_embd_need,
#define MIXER(kind, name, here) [OP_##kind] = name##_need,
#include "common/model/operations.def"
};

void ops_need(const struct model_hparams *h, int layer, enum op_kind kind, struct op_need *out)
{
    *out = (struct op_need){ 0 };
    if (kind < OP_KINDS && needs[kind]) {
        const struct model_hparams own = model_of_layer(h, layer);
        needs[kind](&own, layer, out);
    }
}

static void most(uint64_t *a, uint64_t b)
{
    *a = *a > b ? *a : b;
}

static void add(struct op_need *m, const struct op_need *n)
{
    most(&m->q, n->q), most(&m->kv, n->kv), most(&m->attn, n->attn), most(&m->latent, n->latent), most(&m->made, n->made);
    most(&m->layered, n->layered), most(&m->joined, n->joined), most(&m->shared, n->shared), most(&m->score_rows, n->score_rows);
    most(&m->row, n->row), most(&m->state, n->state), most(&m->state_flops, n->state_flops);
    most(&m->moves, n->moves), most(&m->held, n->held);
    m->planes += n->shares ? 0 : n->planes, m->states += n->states;
    m->heads = m->heads > n->heads ? m->heads : n->heads;
    m->head_dim = m->head_dim > n->head_dim ? m->head_dim : n->head_dim;
    m->rotates |= n->rotates;
}

void ops_most(const struct model_hparams *h, unsigned kinds, struct op_need *out)
{
    struct op_need all = { 0 }, one;
    for (int l = -1; l < model_depth(h); l++) {
        struct graph_layer g;
        graph_layer(h, l, &g);
        for (int i = 0; i < g.n; i++)
            if (kinds >> g.op[i].kind & 1 && needs[g.op[i].kind]) {
                ops_need(h, l, (enum op_kind)g.op[i].kind, &one);
                add(&all, &one);
            }
    }
    *out = all;
}

void ops_mixer(const struct model_hparams *h, int layer, struct op_need *out)
{
    ops_need(h, layer, graph_mixer(h, layer), out);
}

int ops_take_back(const struct model_hparams *h)
{
    int all = 1;
    for (int l = 0; l < model_depth(h); l++) {
        struct op_need own;
        ops_mixer(h, l, &own);
        all &= own.states == 0 || own.moves > 0;
    }
    return all;
}

void ops_places(const struct model_hparams *h, int *out)
{
    int n[2] = { 0 };
    for (int l = 0; l < model_depth(h); l++) {
        struct op_need own;
        ops_mixer(h, l, &own);
        out[l] = n[own.states > 0];
        n[own.states > 0] += own.states > 0 || (own.planes > 0 && !own.shares);
    }
    for (int l = 0; l < model_depth(h); l++)
        out[l] = out[model_kv_layer(h, l)];
}
