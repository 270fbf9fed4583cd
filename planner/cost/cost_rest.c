#include "planner/cost/cost_rest.h"

#include <math.h>

/* What thermo-profile copies: floats of as many rows as tokens. */
#define COPY_COLS   2048
#define COPY_TOKENS 64

static double copy_ns(const struct hw *hw, int accel, enum hw_stat stat)
{
    return hw_accel_ns(hw, accel, "copy/in", 1, COPY_COLS, COPY_TOKENS, stat) / (4.0 * COPY_COLS * COPY_TOKENS);
}

int cost_rest_known(const struct hw *hw, const struct inputs *in, const char *engine)
{
    int accel = engine ? hw_accel_of(hw, engine) : -1;
    return accel >= 0 && in->n_blocks == 1 && (hw->accels[accel].shares_memory || copy_ns(hw, accel, HW_TYPICAL) > 0);
}

double cost_rest_copy_ns(const struct hw *hw, const struct cost_choice *c)
{
    int accel = hw_accel_of(hw, c->engine);
    return accel < 0 || hw->accels[accel].shares_memory ? 0 : fmax(0, copy_ns(hw, accel, cost_stat(c->stat)));
}

/* Whole units; parts of one segment are read together. */
static double piece_bytes(const struct layout_shape *s, const struct rest_piece *x)
{
    double sum = 0;
    for (int p = 0; p < s->n_parts; p++) {
        const struct layout_part *lp = &s->part[p];
        int together = p > 0 && lp->segment == s->part[p - 1].segment && x->read[p - 1];
        sum += x->read[p] && !together ? ceil((double)x->n / lp->neurons_per_unit) * (double)lp->stride_bytes : 0;
    }
    return sum;
}

struct cost_rest cost_rest_of(const struct layout_shape *s, const uint32_t *hot, uint64_t area_bytes, const struct cost_rates *r,
                              double copied_ns)
{
    struct cost_rest o = { 0 };
    struct rest_piece x;
    uint32_t most = rest_piece_neurons(s, area_bytes);
    for (uint32_t at = rest_first(s, hot); most && rest_piece_at(s, hot, most, at, &x); at += x.n) {
        double bytes = piece_bytes(s, &x);
        o.last_ns = cost_engine_ffn_ns(r, s->n_ff, x.n) + bytes * copied_ns;
        o.engine_ns += o.last_ns;
        o.bytes += bytes;
        o.pieces++;
    }
    o.launch_ns = o.pieces * r->launch_ns;
    return o;
}

double cost_rest_bytes_per_s(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c)
{
    uint64_t slot = rest_slot_bytes(s, c->area_bytes), read = slot < REST_READ_BYTES ? slot : REST_READ_BYTES;
    uint64_t most = read ? c->area_bytes / read : 1;
    struct hw_read q = { .backend = c->backend, .pattern = HW_SEQ, .block_bytes = read,
                         .range_bytes = s->segment_bytes[s->part[0].segment], .lanes = 1, .core_class = -1,
                         .queue_depth = (uint64_t)c->depth < most ? c->depth : (int)most };
    double bw = hw_storage_bytes_per_s(hw, &q, cost_stat(c->stat));
    q.pattern = HW_RANDOM;
    return bw > 0 ? bw : hw_storage_bytes_per_s(hw, &q, cost_stat(c->stat));
}

double cost_rest_ns(const struct cost_rest *x, double verify_ns, double sigma)
{
    return cost_pieces_ns(cost_both_ns(verify_ns, 0, 1, x->engine_ns, x->launch_ns, sigma), verify_ns, x->pieces);
}

double cost_rest_wait_ns(const struct cost_rest *x, double bytes_per_s, double area_bytes, double before_ns, double rest_ns)
{
    if (x->bytes <= 0 || bytes_per_s <= 0)
        return 0;
    double read_ns = 1e9 * x->bytes / bytes_per_s, held_ns = 1e9 * fmin(area_bytes, x->bytes) / bytes_per_s;
    return cost_pieces_wait_ns(read_ns, held_ns, before_ns, x->last_ns, rest_ns);
}
