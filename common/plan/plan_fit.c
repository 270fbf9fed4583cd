/* The account (budget.h) is asked again for every step down. It grows with the share of neurons that stay, so the largest share
 * that fits is found by halving. */
#include "common/plan/plan_fit.h"

#include "common/base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCALE 4096u             /* shares of the plan's neurons are in steps of 1 / SCALE */

static int below_floor(const struct plan_fit *f, struct err *e)
{
    const struct budget_choice *c = &f->choice;
    char floor[24], memory[24], predictors[80] = "";
    if (c->predictors.rank)
        snprintf(predictors, sizeof predictors, ", %llu bytes of predictors",
                 (unsigned long long)(c->predictor_bytes + budget_stream_bytes(&c->predictors, c->predictor_buffers)));
    size_format(f->budget.floor, floor, sizeof floor);
    size_format(f->memory_bytes, memory, sizeof memory);
    return err_set(
        e, ERR_INFEASIBLE,
        "memory of %llu bytes (%s) is below the floor of %llu bytes (%s) for this model with context %d, kv %s, "
        "%d threads, prefill chunk %d, %d sequences%s and %d reads in flight; a smaller --context, --prefill-chunk "
        "or --threads, --kv f16, or a plan with a smaller queue depth or batch lowers it",
        (unsigned long long)f->memory_bytes, memory, (unsigned long long)f->budget.floor, floor, c->context,
        kv_type_name(c->kv_type), c->threads, c->prefill_chunk, c->max_batch, predictors, c->queue_depth);
}

static int fits(struct plan_fit *f, struct err *e)
{
    int r = budget_compute(f->model, &f->choice, &f->budget, e);
    return r < 0 ? r : f->budget.total <= f->memory_bytes;
}

/* ---- neurons ---- */

/* The plan's own hot and cold, and how many elements each has. */
struct planned {
    const uint32_t *hot, *cold;
    size_t n_hot, n_cold;
};

static uint32_t scaled(uint32_t n, uint32_t by)
{
    return (uint32_t)((uint64_t)n * by / SCALE);
}

/* Hot and cold of the plan: gates (the first part) by gates/SCALE, the rest by others/SCALE. Hot sets are whole
 * clusters, often one or two of an expert: what rounding takes from one goes to the next, so that of all together no more
 * is left out than a cluster. */
static void scale(struct plan_fit *f, const struct planned *p, uint32_t gates, uint32_t others)
{
    const struct layout_shapes *l = &f->model->shapes;
    size_t parts = (size_t)l->n_parts;
    uint32_t cluster = l->l.cluster_neurons, all[LAYOUT_MAX_PARTS] = { 0 }, stay[LAYOUT_MAX_PARTS] = { 0 };
    for (size_t i = 0; i < p->n_hot; i++) {
        uint32_t *sum = &all[i % parts], before = stay[i % parts];
        *sum += (p->hot[i] + cluster - 1) / cluster; /* at most all clusters of the model: 32 bits */
        stay[i % parts] = scaled(*sum, i % parts == 0 ? gates : others);
        uint32_t neurons = (stay[i % parts] - before) * cluster;
        f->hot[i] = neurons < p->hot[i] ? neurons : p->hot[i]; /* the last cluster of a block may be short */
    }
    for (size_t i = 0; i < p->n_cold; i++)
        f->cold[i] = scaled(p->cold[i], i % parts == 0 ? gates : others);
}

/* The largest step (in 1/SCALE) that fits. */
static int search(struct plan_fit *f, const struct planned *p, int gates, struct err *e)
{
    uint32_t lo = 0, hi = SCALE; /* lo fits */
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        scale(f, p, gates ? mid : SCALE, gates ? 0 : mid);
        int r = fits(f, e);
        if (r < 0)
            return r;
        *(r ? &lo : &hi) = mid;
    }
    scale(f, p, gates ? lo : SCALE, gates ? 0 : lo);
    return fits(f, e);
}

/* Gates stay whole as long as they fit without the rest. */
static int lower_neurons(struct plan_fit *f, struct err *e)
{
    size_t cold = (size_t)f->model->h.n_layers * (size_t)f->model->shapes.n_parts;
    size_t hot = cold * (size_t)model_ffn_blocks(&f->model->h);
    uint32_t *copy = malloc((hot + cold) * sizeof *copy);
    if (!copy)
        return err_set(e, ERR_NOMEM, "out of memory for a plan");
    const struct planned p = { copy, copy + hot, hot, cold };
    memcpy(copy, f->hot, hot * sizeof *copy);
    memcpy(copy + hot, f->cold, cold * sizeof *copy);
    scale(f, &p, SCALE, 0);
    int r = fits(f, e);
    if (r >= 0)
        r = search(f, &p, f->model->shapes.n_parts == 1 || r == 0, e);
    free(copy);
    return r;
}

static int lower_only_neurons(struct plan_fit *f, struct err *e)
{
    int r = lower_neurons(f, e);
    f->scaled = 1;
    if (r == 0) { /* too much without any: the floor, with what is fixed */
        f->budget.floor = f->budget.total;
        return below_floor(f, e);
    }
    return r < 0 ? r : 0;
}

/* ---- predictors ---- */

uint64_t plan_fit_predictor_bytes(const struct plan_fit *f)
{
    uint64_t sum = 0;
    for (int l = 0; l < f->model->h.n_layers && f->predictors; l++)
        sum += f->streamed[l] ? 0 : f->predictors[l];
    return sum;
}

/* More predictors are streamed until the memory suffices without neurons: the last layers first, with as many buffers as
 * there is room for, few if need be. */
static int stream_more(struct plan_fit *f, struct err *e)
{
    struct budget_choice *c = &f->choice;
    int r = 0, layer = f->model->h.n_layers;
    if (c->predictors.bytes <= budget_stream_bytes(&c->predictors, c->predictors.least)) {
        memset(f->streamed, 0, (size_t)layer); /* so small that buffers would be larger */
        c->predictor_buffers = 0;
        c->predictor_bytes = plan_fit_predictor_bytes(f);
        return 0;
    }
    c->hot = c->cold = NULL;
    while ((r = fits(f, e)) == 0 && layer-- > 0)
        if (f->predictors[layer] && !f->streamed[layer]) {
            f->streamed[layer] = 1;
            c->predictor_buffers = c->predictors.most;
            c->predictor_bytes = plan_fit_predictor_bytes(f);
        }
    while (r == 0 && c->predictor_buffers > c->predictors.least) {
        c->predictor_buffers--;
        r = fits(f, e);
    }
    c->hot = f->hot;
    c->cold = f->cold;
    return r;
}

int plan_fit(struct plan_fit *f, struct err *e)
{
    f->choice.hot = f->hot;
    f->choice.cold = f->cold;
    f->scaled = f->uncoalesced = 0;
    int r = fits(f, e);
    if (r == 0 && f->fixed)
        return lower_only_neurons(f, e);
    if (r == 0 && !f->choice.stream_tables) {
        f->choice.stream_tables = 1;
        r = fits(f, e);
    }
    while (r == 0 && f->lower_chunk && f->choice.prefill_chunk > 1 && f->budget.floor > f->memory_bytes) {
        f->choice.prefill_chunk /= 2;
        r = fits(f, e);
    }
    if (r == 0 && f->choice.read_bytes && f->budget.floor > f->memory_bytes) {
        f->choice.read_bytes = 0;
        f->uncoalesced = 1;
        r = fits(f, e);
    }
    if (r != 0)
        return r < 0 ? r : 0;
    if (f->budget.floor > f->memory_bytes) {
        if (f->choice.predictors.rank) /* say what they take at the floor */
            stream_more(f, e);
        return below_floor(f, e);
    }
    if (f->choice.predictors.rank && (r = stream_more(f, e)) < 0)
        return r;
    if ((r = lower_neurons(f, e)) < 0)
        return r;
    f->scaled = 1;
    return 0;
}
