/* What a device's storage figures say at one choice: (M4)'s curves, streams, CPU time of reads, how reads end, (M33). */
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

/* What is not a curve of reads: streams and CPU time at the queue's depth. */
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
    out->stream_cpu_ns = hw_storage_cpu_ns_per_read(hw, &q);
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
        out->joined_cpu_ns[k] = hw_storage_cpu_ns_per_read(hw, &q);
        out->together[k] = hw_storage_together(hw, &q);
    }
    out->cold_cpu_ns = out->joined_cpu_ns[0];
    q.block_bytes = (uint64_t)out->cold_bytes;
    out->b_io = hw_storage_bytes_per_s(hw, &q, cost_stat(c->stat));
}

void cost_storage_rates(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c, struct cost_rates *out,
                        struct notes *notes)
{
    uint64_t range = s->segment_bytes[s->part[s->n_parts - 1].segment], first_range = s->segment_bytes[s->part[0].segment];
    int slots = budget_reads_into_slots(s, s->n_parts - 1);
    queue_rates(hw, s, c, out, notes);
    out->cold = reads_curve(hw, c, out->cold_bytes, range, slots);
    out->single = reads_curve(hw, c, out->single_bytes, first_range, 0);
    for (int k = 0; k < out->n_lengths; k++)
        out->joined[k] = k ? reads_curve(hw, c, out->cold_bytes + ((1 << k) - 1) * out->stride_bytes, range, 0) : out->cold;
    if (out->stream_bw <= 0 || out->b_io <= 0)
        notes_add(notes, "%s: no storage figures; only what is resident can be planned for", hw->name);
    else if (out->cold_cpu_ns <= 0)
        notes_add(notes, "%s: CPU time per read is not known and taken as 0", hw->name);
}

void cost_rates_relax(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c, struct cost_rates *r)
{
    struct cost_rates at = { 0 };
    queue_rates(hw, s, c, &at, NULL);
    r->ends = c->depth < r->ends ? c->depth : r->ends;
    r->stream_bw = larger(r->stream_bw, at.stream_bw);
    r->b_io = larger(r->b_io, at.b_io);
    r->stream_cpu_ns = smaller(r->stream_cpu_ns, at.stream_cpu_ns);
    r->cold_cpu_ns = smaller(r->cold_cpu_ns, at.cold_cpu_ns);
    for (int k = 0; k < r->n_lengths; k++)
        r->joined_cpu_ns[k] = smaller(r->joined_cpu_ns[k], at.joined_cpu_ns[k]), r->together[k] = smaller(r->together[k], at.together[k]);
}
