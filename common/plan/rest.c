#include "common/plan/rest.h"

uint32_t rest_first(const struct layout_shape *s, const uint32_t *hot)
{
    uint32_t n = (uint32_t)s->n_ff;
    for (int p = 0; p < s->n_parts; p++)
        n = hot[p] < n ? hot[p] : n;
    return n == (uint32_t)s->n_ff ? n : n / s->cluster_neurons * s->cluster_neurons;
}

/* Parts of one segment alternate, and have the same stride. */
uint64_t rest_piece_bytes(const struct layout_shape *s, uint32_t n)
{
    uint64_t sum = 0;
    for (int p = 0; p < s->n_parts; p++) {
        const struct layout_part *lp = &s->part[p];
        uint64_t units = ((uint64_t)n + lp->neurons_per_unit - 1) / lp->neurons_per_unit;
        if (p == 0 || lp->segment != s->part[p - 1].segment)
            sum += units * lp->stride_bytes + 2 * (uint64_t)s->block_bytes;
    }
    return sum;
}

uint32_t rest_piece_neurons(const struct layout_shape *s, uint64_t area_bytes)
{
    uint64_t slot = rest_slot_bytes(s, area_bytes);
    uint32_t lo = 0, hi = s->n_clusters; /* clusters */
    while (lo < hi) {
        uint32_t mid = (lo + hi + 1) / 2;
        if (rest_piece_bytes(s, mid * s->cluster_neurons) <= slot)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo * s->cluster_neurons < (uint32_t)s->n_ff ? lo * s->cluster_neurons : (uint32_t)s->n_ff;
}

int rest_piece_at(const struct layout_shape *s, const uint32_t *hot, uint32_t most, uint32_t at, struct rest_piece *out)
{
    uint32_t n_ff = (uint32_t)s->n_ff, end = n_ff - at > most ? at + most : n_ff, tile = s->part[0].record_neurons;
    if (at >= n_ff)
        return 0;
    *out = (struct rest_piece){ .first = at };
    for (int p = 0; p < s->n_parts; p++) {
        out->read[p] = hot[p] <= at;
        if (!out->read[p] && hot[p] < end)
            end = hot[p];
    }
    if (end == n_ff && n_ff % tile && at < n_ff / tile * tile)
        end = n_ff / tile * tile;
    out->n = end - at;
    return 1;
}

static uint64_t slots(const struct layout_shape *s, uint64_t bytes)
{
    uint64_t grain = s->block_bytes > REST_PAGE ? s->block_bytes : REST_PAGE;
    return (bytes + grain - 1) / grain * grain * REST_SLOTS;
}

/* Of the slots that pieces of so many parts of an FFN need, the largest. */
static uint64_t area_of(const struct layout_shapes *s, uint32_t pieces)
{
    uint64_t most = 0;
    for (int k = 0; k < s->l.n_kinds; k++) {
        const struct layout_shape *one = &s->kind[k];
        uint64_t bytes = slots(one, rest_piece_bytes(one, (one->n_clusters + pieces - 1) / pieces * one->cluster_neurons));
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t rest_least_area(const struct layout_shapes *s)
{
    return area_of(s, s->n_clusters);
}

uint64_t rest_most_area(const struct layout_shapes *s)
{
    return area_of(s, REST_SLOTS / 2);
}
