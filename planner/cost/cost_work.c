/* What the engine does beside the products of weights and reading: starting jobs, maintaining the cache, the work of one thread
 * between products. Each is a count that follows from how the runtime divides its work, times a measured time of one. */
#include "planner/cost/cost.h"

#include "common/model/nn.h"
#include "common/plan/budget.h"
#include "common/plan/reads.h"

#include <math.h>

int cost_down_index(int batch_index)
{
    int i = 0;
    while (i < batch_index && inputs_batch_sizes[i] < COST_DOWN_TOKENS)
        i++;
    return i;
}

double cost_attend_ns(double positions, double heads, double attend_ns, double kv_bytes, int threads, int batch)
{
    return cost_attend_pieces_ns(batch, positions, heads, attend_ns, threads, floor(kv_bytes / SCHEDULE_PIECE_BYTES));
}

double cost_positions(const struct model_hparams *h, int layer, int context)
{
    double all = context, w = h->window;
    int bounded = context > 0 && model_attends_from(h, layer, context - 1) > 0;
    return bounded ? w - w * w / (2 * all) : all / 2;
}

int cost_kv_times(int tokens)
{
    return (tokens + NN_ATTN_TOKENS - 1) / NN_ATTN_TOKENS;
}

double cost_kv_bytes(const struct op_need *n, int batch, double positions, int kv_type)
{
    return cost_attention_bytes(batch, positions, (double)(n->planes * n->row), kv_type_width(kv_type), (double)n->state);
}

double cost_kv_flops(const struct op_need *n, int batch, double positions)
{
    return cost_attention_flops(batch, positions, n->heads, n->head_dim, (double)n->state_flops);
}

int cost_rotated(const struct model_hparams *h, int layer)
{
    struct op_need need;
    ops_mixer(h, layer, &need);
    return need.rotates ? h->n_heads + h->n_kv_heads : 0;
}

/* Bytes that the first n units of a part bring, each read by itself. */
static uint64_t units_read_bytes(const struct layout_part *p, uint64_t block, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < n; u++) {
        uint64_t from = p->first_offset + u * p->stride_bytes, to = from + p->unit_bytes;
        bytes += (to + block - 1) / block * block - from / block * block;
    }
    return bytes;
}

double cost_read_bytes(const struct layout_shape *s, int part)
{
    const struct layout_part *p = &s->part[part];
    uint64_t block = s->block_bytes, a = block, b = p->stride_bytes % block;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    uint32_t period = (uint32_t)(block / a), n = p->n_units, left = n % period; /* offsets within a block repeat */
    uint64_t bytes = units_read_bytes(p, block, left);
    if (n > left)
        bytes += units_read_bytes(p, block, period) * (n / period);
    return (double)bytes / n;
}

/* The thread that maintains the cache, or works while others wait, runs on the fastest class in use. */
void cost_work_rates(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                     const struct cost_choice *c, struct cost_rates *out)
{
    const struct layout_part *part = &s->part[s->n_parts - 1];
    const struct model_hparams *h = &in->h;
    enum hw_stat stat = cost_stat(c->stat);
    int first = 0, classes = 0;
    for (int k = c->n_classes - 1; k >= 0; k--)
        if (c->n[k] > 0) {
            first = k;
            classes++;
        }
    int together = classes > 1 ? -1 : first, unit_bytes = (int)part->unit_bytes;
    out->start_ns = c->threads > 1 ? hw_work_ns(hw, "work/start", together, c->threads, 1, stat) : 0;
    out->turn_ns = c->threads > 1 ? hw_work_ns(hw, "work/turn", together, c->threads, 1, stat) : 0;
    out->lookup_ns = hw_work_ns(hw, "work/lookup", first, 1, (int)part->n_units * in->n_blocks, stat);
    /* Units so large that each is a read are read into their slots where that can be, and entering them takes next to nothing. */
    int alone = reads_units(s, s->n_parts - 1, budget_staging_bytes(s)) == 1;
    out->admit_ns = alone && budget_reads_into_slots(s, s->n_parts - 1) ? 0 : hw_work_ns(hw, "work/admit", first, 1, unit_bytes, stat);
    out->unit_bytes = unit_bytes;
    out->verify_ns_per_byte = hw_work_ns(hw, "work/verify", first, 1, unit_bytes, stat) / unit_bytes;
    out->norm_ns = hw_work_ns(hw, "work/norm", first, 1, h->d_model, stat);
    out->rope_ns = hw_work_ns(hw, "work/rope", first, 1, h->head_dim, stat);
    out->attend_ns = hw_work_ns(hw, "work/attend", first, 1, h->head_dim, stat);
    out->attend_many_ns = hw_work_ns(hw, "work/attend_many", first, 1, h->head_dim, stat);
    out->act_ns = hw_work_ns(hw, "work/act", first, 1, h->n_ff, stat);
    out->sift_ns = hw_work_ns(hw, "work/sift", first, 1, h->n_ff, stat);
}
