/* Derivation of a layout from its few free choices, in one place, so that planner, packer and
 * runtime cannot disagree about where a neuron is or how many bytes a unit has. */
#include "common/plan/layout.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"

#include <stdlib.h>
#include <string.h>

static const char *const form_names[LAYOUT_FORMS] = { "split", "bundle", "two-phase" };

const char *layout_form_name(enum layout_form f)
{
    return form_names[f];
}

void layout_default(struct layout *l, enum layout_form form, const uint32_t type[LAYOUT_ROLES])
{
    *l = (struct layout){ .form = form, .block_bytes = 4096, .cluster_neurons = 64 };
    for (int r = 0; r < LAYOUT_ROLES; r++)
        l->type[r] = type[r];
}

static int check(const struct layout *l, int d_model, int n_ff, struct err *e)
{
    if ((unsigned)l->form >= LAYOUT_FORMS)
        return err_set(e, ERR_UNSUPPORTED, "layout form %d is not known", (int)l->form);
    if (l->packed != 0 && l->packed != 1)
        return err_set(e, ERR_UNSUPPORTED, "layout packed is %d; 0 or 1 are known", l->packed);
    if (l->block_bytes < 512 || l->block_bytes > 65536 || l->block_bytes & (l->block_bytes - 1))
        return err_set(e, ERR_UNSUPPORTED, "layout block_bytes is %u; a power of two from 512 to 65536 is needed",
                       l->block_bytes);
    if (l->cluster_neurons < 8 || l->cluster_neurons > 4096 || l->cluster_neurons % 8)
        return err_set(e, ERR_UNSUPPORTED, "layout cluster_neurons is %u; a multiple of 8 from 8 to 4096 is needed",
                       l->cluster_neurons);
    if (d_model <= 0 || d_model > MODEL_MAX_DIM || n_ff <= 0 || n_ff > MODEL_MAX_DIM)
        return err_set(e, ERR_LIMIT, "layout of %d neurons of width %d; the limit is %d", n_ff, d_model, MODEL_MAX_DIM);
    for (int r = 0; r < LAYOUT_ROLES; r++)
        if (!quant_row_bytes(l->type[r], (uint64_t)d_model))
            return err_set(e, ERR_UNSUPPORTED, "layout type %u cannot store rows of %d elements", l->type[r], d_model);
    return 0;
}

/* How many neurons share a unit. A gate part is read in sequence, by the cluster; other parts at
 * random, so the smallest group that wastes little of a block: records that fit a block fill it. */
static uint32_t group(const struct layout *l, const struct layout_part *p, int sequential)
{
    if (sequential)
        return l->cluster_neurons;
    uint32_t n = 1;
    while (n < l->cluster_neurons && l->cluster_neurons % (n * 2) == 0 &&
           (uint64_t)p->record_bytes * n * 2 <= l->block_bytes)
        n *= 2;
    return n;
}

static void add_roles(struct layout_part *p, const struct layout *l, int d_model, int first, int last)
{
    for (int r = 0; r < LAYOUT_ROLES; r++) {
        p->role_offset[r] = ~0u;
        p->role_bytes[r] = (uint32_t)quant_row_bytes(l->type[r], (uint64_t)d_model);
    }
    for (int r = first; r <= last; r++) {
        p->role[p->n_roles++] = r;
        p->role_offset[r] = p->record_bytes;
        p->record_bytes += p->role_bytes[r];
    }
}

static uint64_t round_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

int layout_derive(const struct layout *l, int d_model, int n_ff, struct layout_shape *out, struct err *e)
{
    int r = check(l, d_model, n_ff, e);
    if (r < 0)
        return r;
    struct layout_shape s = { .l = *l, .n_ff = n_ff };
    s.n_clusters = ((uint32_t)n_ff + l->cluster_neurons - 1) / l->cluster_neurons;
    s.n_parts = l->form == LAYOUT_BUNDLE ? 1 : 2;
    s.n_segments = l->form == LAYOUT_SPLIT ? 2 : 1;
    if (l->form == LAYOUT_BUNDLE) {
        add_roles(&s.part[0], l, d_model, LAYOUT_GATE, LAYOUT_DOWN);
    } else {
        add_roles(&s.part[0], l, d_model, LAYOUT_GATE, LAYOUT_GATE);
        add_roles(&s.part[1], l, d_model, LAYOUT_UP, LAYOUT_DOWN);
    }
    uint64_t block = l->block_bytes;
    for (int i = 0; i < s.n_parts; i++) {
        struct layout_part *p = &s.part[i];
        p->neurons_per_unit = group(l, p, i == 0 && l->form == LAYOUT_SPLIT);
    }
    /* Alternating pages need the same grouping in both parts. */
    if (l->form == LAYOUT_TWO_PHASE && s.part[0].neurons_per_unit > s.part[1].neurons_per_unit)
        s.part[0].neurons_per_unit = s.part[1].neurons_per_unit;
    for (int i = 0; i < s.n_parts; i++) {
        struct layout_part *p = &s.part[i];
        uint64_t bytes = (uint64_t)p->record_bytes * p->neurons_per_unit;
        if (bytes > UINT32_MAX / 4)
            return err_set(e, ERR_LIMIT, "a unit of %llu bytes; the limit is %u", (unsigned long long)bytes, UINT32_MAX / 4);
        p->unit_bytes = (uint32_t)bytes;
        p->stride_bytes = l->packed ? bytes : round_up(bytes, block);
        p->read_bytes = (uint32_t)(l->packed ? round_up(bytes + block - 1, block) : p->stride_bytes);
        p->n_units = ((uint32_t)n_ff + p->neurons_per_unit - 1) / p->neurons_per_unit;
        p->segment = s.n_segments == 1 ? 0 : i;
    }
    if (l->form == LAYOUT_TWO_PHASE) {
        uint64_t both = s.part[0].stride_bytes + s.part[1].stride_bytes;
        s.part[1].first_offset = s.part[0].stride_bytes;
        s.part[0].stride_bytes = s.part[1].stride_bytes = both;
    }
    for (int i = 0; i < s.n_parts; i++) {
        struct layout_part *p = &s.part[i];
        uint64_t end = p->first_offset + (uint64_t)(p->n_units - 1) * p->stride_bytes + p->unit_bytes;
        end = round_up(end, block);
        if (end > s.segment_bytes[p->segment])
            s.segment_bytes[p->segment] = end;
    }
    *out = s;
    return 0;
}

struct hash128 layout_hash(const struct layout *l)
{
    uint8_t b[8 * 4];
    const uint32_t v[8] = { 1, (uint32_t)l->form, (uint32_t)l->packed, l->block_bytes, l->cluster_neurons,
                            l->type[0], l->type[1], l->type[2] };
    for (int i = 0; i < 8; i++)
        bytes_put32(b + 4 * i, v[i]);
    return hash_128(b, sizeof b);
}

#define ORDER_BITS   11
#define ORDER_DIGITS (1 << ORDER_BITS)

/* The order by a digit of what counts are below the greatest, in which those that are the same stay as they were. */
static void by_digit(const uint64_t *counts, uint64_t most, int shift, int n, const uint32_t *from, uint32_t *to)
{
    uint32_t begin[ORDER_DIGITS] = { 0 };
    for (int i = 0; i < n; i++)
        begin[(most - counts[i]) >> shift & (ORDER_DIGITS - 1)]++;
    for (uint32_t d = 0, sum = 0, m; d < ORDER_DIGITS; d++, sum += m) {
        m = begin[d];
        begin[d] = sum;
    }
    for (int i = 0; i < n; i++)
        to[begin[(most - counts[from[i]]) >> shift & (ORDER_DIGITS - 1)]++] = from[i];
}

static int hotter(const void *a, const void *b, void *counts)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const uint64_t *c = counts;
    return c[x] != c[y] ? (c[x] < c[y] ? 1 : -1) : (x > y) - (x < y);
}

void layout_order(const uint64_t *counts, int n_ff, uint32_t *order)
{
    uint64_t most = 0, least = UINT64_MAX;
    uint32_t *spare = malloc((size_t)n_ff * sizeof *spare), *from = order, *to = spare;
    for (int i = 0; i < n_ff; i++) {
        most = counts[i] > most ? counts[i] : most;
        least = counts[i] < least ? counts[i] : least;
        order[i] = (uint32_t)i;
    }
    if (!spare && n_ff > 0)
        qsort_r(order, (size_t)n_ff, sizeof *order, hotter, (void *)(uintptr_t)counts); /* slower, and in place */
    for (int shift = 0; spare && shift < 64 && n_ff > 0 && (most - least) >> shift; shift += ORDER_BITS) {
        by_digit(counts, most, shift, n_ff, from, to);
        uint32_t *now = to;
        to = from;
        from = now;
    }
    if (from != order)
        memcpy(order, from, (size_t)n_ff * sizeof *order);
    free(spare);
}

struct hash128 layout_order_hash(const uint32_t *orders, int n_layers, int n_blocks, int n_ff)
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    hash_update_u32(h, (uint32_t)n_layers);
    hash_update_u32(h, (uint32_t)n_blocks);
    hash_update_u32(h, (uint32_t)n_ff);
    size_t n = (size_t)n_layers * (size_t)n_blocks * (size_t)n_ff;
    uint8_t buf[4096];
    for (size_t i = 0; i < n;) {
        size_t k = 0;
        for (; k < sizeof buf / 4 && i < n; k++, i++)
            bytes_put32(buf + 4 * k, orders[i]);
        hash_update(h, buf, k * 4);
    }
    return hash_final128(h);
}
