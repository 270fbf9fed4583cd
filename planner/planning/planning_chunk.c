/* Chunks are tried from the largest down. T is at least that of chunk 1, and P needs no filled problem, so a chunk that could not win
 * even with the time of chunk 1 is left out unfilled: where everything fits, two problems are filled. */
#include "planner/planning/planning_chunk.h"

#include <math.h>

#define ROUNDING   1e-6 /* of a time to ticks, layer by layer, and more */
#define READ_BYTES (1u << 20)
#define READ_DEPTH 8
#define EQUAL_TIME 1e-9 /* of a sum of times */

double planning_speed_bound(const struct problem *p, int any_memory)
{
    int64_t least = SOLVE_NEVER;
    for (int i = 0; i < p->configs.sp.n_configs; i++) {
        const struct solve_config *c = &p->configs.sp.configs[i];
        int64_t t = any_memory ? c->best_ticks : c->relaxed_ticks;
        if (solve_cores_ok(&p->configs.sp, c) && c->bound != SOLVE_NEVER && t < least)
            least = t;
    }
    return least <= p->configs.sp.max_ticks && least != SOLVE_NEVER ? (1 + ROUNDING) * 1e9 * SOLVE_TICKS_PER_NS / (double)least :
                                                             INFINITY;
}

struct prompts {
    double neuron_bytes, dense_bytes, io_bw, memory_bw; /* bandwidths: 0 where unknown */
};

static struct prompts prompts_of(const struct problem *p, const struct limits *lim, const struct cost_choice *c)
{
    const struct space *s = &p->space;
    enum hw_stat stat = cost_stat(lim->stat);
    struct hw_read q = { .backend = c->backend, .pattern = HW_SEQ, .block_bytes = READ_BYTES, .queue_depth = READ_DEPTH, .lanes = 1,
                         .core_class = -1 };
    struct prompts o = { .dense_bytes = (double)s->budget.dense_bytes, .memory_bw = hw_mem_bytes_per_s(s->hw, stat) };
    for (int l = 0; l < s->in->n_layers; l++)
        for (int i = 0; i < s->shapes.n_parts; i++)
            o.neuron_bytes += (double)budget_hot_bytes(layout_of(&s->shapes, l), i, (uint32_t)inputs_n_ff(s->in, l)) * s->in->n_blocks;
    o.io_bw = hw_storage_bytes_per_s(s->hw, &q, stat);
    q.pattern = HW_RANDOM;
    o.io_bw = o.io_bw > 0 ? o.io_bw : hw_storage_bytes_per_s(s->hw, &q, stat);
    return o;
}

/* (M24), in ns; fixed: the account without neurons. */
static double prompt_ns(const struct prompts *p, uint64_t memory, uint64_t fixed, int chunk)
{
    double room = memory > fixed ? (double)(memory - fixed) : 0;
    double missing = p->neuron_bytes > room ? p->neuron_bytes - room : 0;
    return cost_chunk_ns(missing, p->io_bw, p->neuron_bytes + p->dense_bytes, p->memory_bw, chunk);
}

/* A decoded token's time, INFINITY where no plan is feasible. */
static int token_ns(struct problem *p, struct limits *lim, int chunk, double *ns, struct err *e)
{
    lim->prefill_chunk = chunk;
    int r = problem_fill(p, lim, e);
    if (r == 0) {
        double speed = planning_speed_bound(p, 0);
        *ns = isfinite(speed) && speed > 0 ? 1e9 / speed : INFINITY;
    }
    return r;
}

int planning_chunk(struct problem *p, struct limits *lim, const struct cost_choice *least, double weight, struct err *e)
{
    const struct prompts prompts = prompts_of(p, lim, least);
    double least_ns = 0, best = INFINITY;
    int found = 0, fits = 0, r = token_ns(p, lim, 1, &least_ns, e);
    for (int chunk = lim->context < PLANNING_MOST_CHUNK ? lim->context : PLANNING_MOST_CHUNK; chunk >= 1 && r == 0; chunk /= 2) {
        struct budget b;
        double ns = least_ns;
        lim->prefill_chunk = chunk;
        if ((r = account_of(&p->space, least, lim, NULL, &b, e)) < 0 || (b.total > lim->memory_bytes && chunk > 1))
            continue;
        fits = fits ? fits : chunk;
        double prompt = weight * prompt_ns(&prompts, lim->memory_bytes, b.total, chunk);
        if (least_ns + prompt >= best * (1 - EQUAL_TIME))
            continue;
        if (chunk > 1 && isfinite(least_ns))
            r = token_ns(p, lim, chunk, &ns, e);
        if (r == 0 && ns + prompt < best * (1 - EQUAL_TIME)) {
            best = ns + prompt;
            found = chunk;
        }
    }
    lim->prefill_chunk = found ? found : fits ? fits : 1;
    return r;
}
