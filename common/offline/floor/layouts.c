/* Forms, padded or packed, with types that each layer keeps. */
#include "common/offline/floor/layouts.h"

#include "common/kernels/quant.h"
#include "common/model/model_arch.h"
#include "common/model/nn.h"
#include "common/plan/plan.h"

#include <string.h>

int layouts_requantises(const struct layouts_source *m)
{
    int yes = 0;
    for (int l = 0; l < m->n_layers && !m->h->down_by_neuron; l++)
        yes |= quant_traits(m->type[l][LAYOUT_DOWN])->block_elems > 1;
    return yes;
}

/* What Down is stored in without a choice of type. */
static uint32_t down_type_of(const struct layouts_source *m, uint32_t source, int down_type)
{
    if (down_type == LAYOUTS_DOWN_SOURCE || m->h->down_by_neuron || quant_traits(source)->block_elems == 1)
        return source;
    return quant_row_bytes(QUANT_Q8_0, (uint64_t)m->h->d_model) ? QUANT_Q8_0 : QUANT_F16;
}

int layouts_one(const struct layouts_source *m, enum layout_form form, uint32_t cluster_neurons, int down_type, struct layout *out,
                struct err *e)
{
    struct layouts_source to = *m;
    struct layout l;
    struct layout_shapes s;
    if (form == LAYOUT_TILES && (down_type >= 0 || m->h->down_by_neuron))
        return err_set(e, ERR_USAGE, m->h->down_by_neuron ? "--form tiles: the model has Down by neuron, which every other form keeps" :
                       "--form tiles keeps the source's Down; --down-type does not go with it");
    if (m->h->fold && (form != LAYOUT_TILES || down_type >= 0 || (cluster_neurons && (cluster_neurons % (uint32_t)m->h->fold ||
        cluster_neurons <= LAYOUT_TILE))))
        return err_set(e, ERR_USAGE, "the model's FFNs are folded in blocks of %d neurons: only --form tiles without --down-type keeps "
                       "that, with --cluster-neurons a multiple of it above %d", m->h->fold, LAYOUT_TILE);
    layout_default(&l, form, m->type[0]);
    l.ungated = model_arch_is_ungated(m->h->arch);
    for (int i = 0; i < m->n_layers && form != LAYOUT_TILES; i++)
        to.type[i][LAYOUT_DOWN] = down_type >= 0 ? (uint32_t)down_type : down_type_of(m, m->type[i][LAYOUT_DOWN], down_type);
    int r = layout_set_types(&l, (const uint32_t(*)[LAYOUT_ROLES])to.type, m->n_layers, e);
    r = r < 0 ? r : layout_set_widths(&l, m->h->widths, m->n_layers, e);
    if (r == 0 && form == LAYOUT_TILES && layouts_requantises(m))
        l.cluster_neurons = LAYOUT_TILE;
    if (m->h->fold)
        l.cluster_neurons = m->h->fold > 2 * LAYOUT_TILE ? (uint32_t)m->h->fold : 2 * LAYOUT_TILE;
    if (cluster_neurons)
        l.cluster_neurons = cluster_neurons;
    if (r == 0)
        r = layout_derive(&l, m->h->d_model, m->h->n_ff, &s, e);
    if (r == 0)
        *out = l;
    return r;
}

uint64_t layouts_file_bytes(const struct layouts_source *m, const struct layout *l)
{
    struct layout_shapes s;
    struct err e;
    uint64_t sum = 0;
    if (layout_derive(l, m->h->d_model, m->h->n_ff, &s, &e) < 0)
        return 0;
    for (int k = 0; k < m->n_layers; k++)
        for (int i = 0; i < s.n_segments; i++)
            sum += layout_of(&s, k)->segment_bytes[i];
    return sum * (uint64_t)m->n_blocks;
}

/* The layout padded, packed or both, as the options have it; packed only where that makes the file smaller. */
static int add(const struct layouts_source *m, const struct layouts_options *w, enum layout_form form, struct layout *out, int *n,
               struct err *e)
{
    struct layout l, packed;
    int r = layouts_one(m, form, w->cluster_neurons, w->down_type, &l, e);
    if (r < 0)
        return r;
    packed = l;
    packed.packed = 1;
    int smaller = layouts_file_bytes(m, &packed) < layouts_file_bytes(m, &l);
    if (w->packed != 1 || !smaller)
        out[(*n)++] = l;
    if (w->packed != 0 && smaller)
        out[(*n)++] = packed;
    return 0;
}

int layouts_is_dense(const struct layouts_source *m, const struct layouts_options *w)
{
    return w->mode == PLAN_DENSE || (w->mode < 0 && !nn_is_sparse(m->h));
}

/* The source with Gate's rows in a type of their own, which an FFN without a gate has for those in Gate's place. */
static void with_gates(const struct layouts_source *m, int type, struct layouts_source *out)
{
    *out = *m;
    for (int i = 0; i < m->n_layers && type >= 0; i++) {
        out->type[i][LAYOUT_GATE] = (uint32_t)type;
        if (model_arch_is_ungated(m->h->arch))
            out->type[i][LAYOUT_UP] = (uint32_t)type;
    }
}

/* Tiles are what loses nothing in dense mode: other forms are planned there when they, or a type of Down, are asked for. */
int layouts_all(const struct layouts_source *source, const struct layouts_options *w, struct layout out[LAYOUTS_MOST], int *n,
                struct err *e)
{
    struct layouts_source own, *m = &own;
    int r = 0;
    with_gates(source, w->gate_type, m);
    /* What mostly wins comes first, so that the others may be left out by its bound: of neurons that are needed whole one segment is
     * one stream. */
    int whole = w->mode == PLAN_DENSE || w->mode == PLAN_PREDICTED || !nn_is_sparse(m->h);
    const enum layout_form forms[] = { whole ? LAYOUT_BUNDLE : LAYOUT_SPLIT, whole ? LAYOUT_TWO_PHASE : LAYOUT_BUNDLE,
                                       whole ? LAYOUT_SPLIT : LAYOUT_TWO_PHASE };
    int free_form = w->form < 0 && w->down_type == -1 && w->gate_type < 0 && (layouts_requantises(m) || m->h->fold);
    *n = 0;
    if (w->form == LAYOUT_TILES && w->gate_type >= 0)
        return err_set(e, ERR_USAGE, "--form tiles keeps the source's Gate; --gate-type does not go with it");
    if (w->form == LAYOUT_TILES || (free_form && layouts_is_dense(m, w)))
        return add(m, w, LAYOUT_TILES, out, n, e);
    for (size_t i = 0; i < sizeof forms / sizeof *forms && r == 0; i++)
        if (w->form < 0 || w->form == (int)forms[i])
            r = add(m, w, forms[i], out, n, e);
    /* What thresholds save of narrow models may be less than what Down by neuron adds: then every neuron is read, as from tiles. And
     * experts of which many neurons fire are better kept whole, for the next token's are often the same. */
    if (r == 0 && w->mode < 0 && free_form && (m->h->thresholds || m->h->n_experts))
        r = add(m, w, LAYOUT_TILES, out, n, e);
    return r;
}
