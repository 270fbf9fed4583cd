/* What a device's storage figures say at one choice: (M4)'s curves, streams, how reads end, and what they and computing cost each other,
 * (M5). */
#include "planner/cost/cost_impl.h"

#include "common/plan/budget.h"

/* (M4)'s curve for one read size; into slots of the cold cache, not into buffers. */
static struct cost_reads reads_curve(const struct hw *hw, const struct cost_choice *c, double read_bytes, uint64_t range, int slots)
{
    struct cost_reads out = { .n = 1 }; /* no reads, no time */
    struct hw_read q = { .backend = c->backend, .pattern = HW_RANDOM, .block_bytes = (uint64_t)read_bytes,
                         .range_bytes = range, .lanes = 1, .core_class = -1 };
    double bw = 0;
    for (int n = 1; out.n < COST_READ_POINTS; n *= 2) {
        q.queue_depth = n < c->depth ? n : c->depth;
        double share = slots ? hw_storage_slots(hw, &q) : 1;
        bw = larger(bw, share * hw_storage_bytes_per_s(hw, &q, cost_stat(c->stat))); /* a deeper queue is not slower: noise */
        if (bw <= 0)
            return (struct cost_reads){ 0 };
        double each_ns = 1e9 * read_bytes / bw, more = q.queue_depth - out.count[out.n - 1];
        out.count[out.n] = q.queue_depth;
        out.ns[out.n] = out.ns[out.n - 1] + more * (n > 1 ? (out.each_ns + each_ns) / 2 : each_ns);
        out.each_ns = each_ns;
        out.n++;
        if (n >= c->depth)
            break;
    }
    return out;
}

/* (M5): as it was measured with reads and rows at once. Where it was not, a simple formula is assumed: the CPU time of reads is taken from
 * the threads that compute where no core is spare (with io_uring they submit), and nothing else. */
static void beside_of(const struct hw *hw, const struct hw_read *q, const struct cost_choice *c, struct hw_beside *out)
{
    const int cores = c->backend == HW_URING ? c->threads : hw_cores(hw, -1);
    if (!hw_beside_of(hw, q, c->threads, hw_storage_bytes_per_s(hw, q, cost_stat(c->stat)), out) && cores && c->threads >= cores)
        out->lost_ns = hw_storage_cpu_ns_per_read(hw, q) / c->threads;
}

/* What is not a curve of reads: streams, and what reads cost at the queue's depth. */
static void queue_rates(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c, struct cost_rates *out,
                        struct notes *notes)
{
    /* FFNs are run one after the other, so reads that follow each other lie in one part of one of them. */
    const struct layout_part *cold = &s->part[s->n_parts - 1];
    struct hw_read q = { .backend = c->backend, .pattern = HW_SEQ, .block_bytes = budget_read_bytes(s, c->read_bytes),
                         .range_bytes = s->segment_bytes[s->part[0].segment], .queue_depth = c->depth, .lanes = 1,
                         .core_class = -1 };
    out->stream_block = (double)q.block_bytes;
    out->stream_bw = hw_storage_bytes_per_s(hw, &q, cost_stat(c->stat));
    beside_of(hw, &q, c, &out->stream_beside);
    q.pattern = HW_RANDOM;
    if (out->stream_bw <= 0) {
        out->stream_bw = hw_storage_bytes_per_s(hw, &q, cost_stat(c->stat));
        if (out->stream_bw > 0)
            notes_add(notes, "%s: no sequential read figures; random ones of the same block taken instead", hw->name);
    }
    out->cold_bytes = cost_read_bytes(s, s->n_parts - 1);
    out->single_bytes = cost_read_bytes(s, 0);
    out->stride_bytes = (double)cold->stride_bytes;
    out->n_lengths = 1 + replay_length_class(reads_units(s, s->n_parts - 1, budget_read_bytes(s, c->read_bytes)));
    for (int k = 0; k < out->n_lengths; k++) {
        q.block_bytes = (uint64_t)(out->cold_bytes + ((1 << k) - 1) * out->stride_bytes);
        beside_of(hw, &q, c, &out->beside[k]);
    }
    q.block_bytes = (uint64_t)out->cold_bytes;
    out->together = hw_storage_together(hw, &q);
    out->b_io = hw_storage_bytes_per_s(hw, &q, cost_stat(c->stat));
}

void cost_storage_rates(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c, struct cost_rates *out,
                        struct notes *notes)
{
    uint64_t range = s->segment_bytes[s->part[s->n_parts - 1].segment], first_range = s->segment_bytes[s->part[0].segment];
    int slots = budget_reads_into_slots(s, s->n_parts - 1);
    const struct hw_read q = { .backend = c->backend, .pattern = HW_RANDOM, .block_bytes = (uint64_t)cost_read_bytes(s, s->n_parts - 1),
                               .queue_depth = c->depth, .lanes = 1, .core_class = -1 };
    queue_rates(hw, s, c, out, notes);
    out->cold = reads_curve(hw, c, out->cold_bytes, range, slots);
    out->single = reads_curve(hw, c, out->single_bytes, first_range, 0);
    for (int k = 0; k < out->n_lengths; k++)
        out->joined[k] = k ? reads_curve(hw, c, out->cold_bytes + ((1 << k) - 1) * out->stride_bytes, range, 0) : out->cold;
    if (out->stream_bw <= 0 || out->b_io <= 0)
        notes_add(notes, "%s: no storage figures; only what is resident can be planned for", hw->name);
    else if (!hw->n_joint && hw_storage_cpu_ns_per_read(hw, &q) <= 0)
        notes_add(notes, "%s: CPU time per read is not known and taken as 0", hw->name);
}

static void beside_relax(struct hw_beside *b, const struct hw_beside *at)
{
    b->lost_ns = smaller(b->lost_ns, at->lost_ns);
    b->kept = larger(b->kept, at->kept);
}

void cost_rates_relax(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c, struct cost_rates *r)
{
    struct cost_rates at = { 0 };
    queue_rates(hw, s, c, &at, NULL);
    r->ends = c->depth < r->ends ? c->depth : r->ends;
    r->stream_bw = larger(r->stream_bw, at.stream_bw);
    r->b_io = larger(r->b_io, at.b_io);
    r->together = smaller(r->together, at.together);
    beside_relax(&r->stream_beside, &at.stream_beside);
    for (int k = 0; k < r->n_lengths; k++)
        beside_relax(&r->beside[k], &at.beside[k]);
}
