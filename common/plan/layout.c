/* Derivation of a layout from its few free choices, in one place, so that planner, packer and
 * runtime cannot disagree about where a neuron is or how many bytes a unit has. */
#include "common/plan/layout.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"
#include "common/base/names.h"

#include <stdlib.h>
#include <string.h>

NAMES(layout_form_name, enum layout_form, "split", "bundle", "two-phase", "tiles")
NAMES(layout_sort_name, enum layout_sort, "heat", "together")

int layout_parts(enum layout_form f)
{
    return f == LAYOUT_BUNDLE || f == LAYOUT_TILES ? 1 : 2;
}

static const char *const role_names[LAYOUT_ROLES] = { "gate", "up", "down" };

const char *layout_role_name(int role)
{
    return role_names[role];
}

void layout_default(struct layout *l, enum layout_form form, const uint32_t type[LAYOUT_ROLES])
{
    *l = (struct layout){ .form = form, .block_bytes = 4096, .cluster_neurons = 64, .n_kinds = 1 };
    for (int r = 0; r < LAYOUT_ROLES; r++)
        l->type[0][r] = type[r];
}

static int kind_of(const struct layout *l, const uint32_t type[LAYOUT_ROLES], int n_ff)
{
    int k = 0;
    while (k < l->n_kinds && (memcmp(l->type[k], type, sizeof l->type[k]) != 0 || l->n_ff[k] != n_ff))
        k++;
    return k;
}

static int set_kinds(struct layout *l, const uint32_t (*type)[LAYOUT_ROLES], const int *widths, int n_layers, struct err *e)
{
    l->n_kinds = 0;
    memset(l->n_ff, 0, sizeof l->n_ff);
    for (int i = 0; i < n_layers; i++) {
        int n_ff = widths ? widths[i] : 0, k = kind_of(l, type[i], n_ff);
        if (k == LAYOUT_MAX_KINDS)
            return err_set(e, ERR_UNSUPPORTED, "the layers' gate, up and down have more than %d different combinations of types%s",
                           LAYOUT_MAX_KINDS, widths ? " and widths" : "");
        if (k == l->n_kinds)
            memcpy(l->type[l->n_kinds++], type[i], sizeof l->type[k]);
        l->n_ff[k] = n_ff;
        l->kind[i] = (uint8_t)k;
    }
    l->n_layers = l->n_kinds > 1 ? n_layers : 0;
    return 0;
}

int layout_set_types(struct layout *l, const uint32_t (*type)[LAYOUT_ROLES], int n_layers, struct err *e)
{
    return set_kinds(l, type, NULL, n_layers, e);
}

int layout_set_widths(struct layout *l, const int *widths, int n_layers, struct err *e)
{
    uint32_t type[MODEL_MAX_LAYERS][LAYOUT_ROLES];
    for (int i = 0; i < n_layers; i++)
        memcpy(type[i], l->type[l->kind[i]], sizeof type[i]);
    return widths[0] ? set_kinds(l, (const uint32_t(*)[LAYOUT_ROLES])type, widths, n_layers, e) : 0;
}

int layout_types_of(const struct layout *l, int kind)
{
    int k = 0;
    while (memcmp(l->type[k], l->type[kind], sizeof l->type[k]) != 0)
        k++;
    return k;
}

int layout_types_differ(const struct layout *l)
{
    int k = 0;
    while (k < l->n_kinds && layout_types_of(l, k) == 0)
        k++;
    return k < l->n_kinds;
}

int layout_usual_kind(const struct layout *l)
{
    int n[LAYOUT_MAX_KINDS] = { 0 }, usual = 0;
    for (int i = 0; i < l->n_layers; i++)
        n[layout_types_of(l, l->kind[i])]++;
    for (int k = 1; k < l->n_kinds; k++)
        usual = n[k] > n[usual] ? k : usual;
    return usual;
}

static uint32_t tile_neurons(uint32_t cluster_neurons, uint32_t down_type)
{
    uint32_t t = cluster_neurons & -cluster_neurons;
    return quant_traits(down_type)->block_elems == 1 && cluster_neurons <= LAYOUT_TILE ? 1 : t < LAYOUT_TILE ? t : LAYOUT_TILE;
}

/* Down by neuron has rows of d_model elements; in tiles it has the source's, of n_ff. */
static int check_type(const struct layout *l, uint32_t type, int role, int d_model, int n_ff, struct err *e)
{
    const struct quant_traits *t = quant_traits(type);
    int tiles = l->form == LAYOUT_TILES && role == LAYOUT_DOWN, elems = tiles ? n_ff : d_model;
    if (!t)
        return err_set(e, ERR_UNSUPPORTED, "layout: %s has type %u, which is not known", role_names[role], type);
    if (!quant_row_bytes(type, (uint64_t)elems))
        return err_set(e, ERR_UNSUPPORTED, "layout: %s has type %s, whose quant blocks of %d do not divide rows of %d elements",
                       role_names[role], t->name, t->block_elems, elems);
    uint32_t tile = tiles ? tile_neurons(l->cluster_neurons, type) : 0;
    if (tiles && tile % (uint32_t)t->block_elems)
        return err_set(e, ERR_UNSUPPORTED, "layout: %s has type %s, whose quant blocks of %d do not divide tiles of %u neurons; "
                       "cluster_neurons %u must be a multiple", role_names[role], t->name, t->block_elems, tile, l->cluster_neurons);
    return 0;
}

static int check_types(const struct layout *l, int d_model, int n_ff, struct err *e)
{
    int r = 0;
    if (l->n_kinds < 1 || l->n_kinds > LAYOUT_MAX_KINDS || l->n_layers < 0 || l->n_layers > MODEL_MAX_LAYERS)
        return err_set(e, ERR_UNSUPPORTED, "layout of %d kinds of layers; 1 to %d are possible", l->n_kinds, LAYOUT_MAX_KINDS);
    for (int i = 0; i < l->n_layers; i++)
        if (l->kind[i] >= l->n_kinds)
            return err_set(e, ERR_UNSUPPORTED, "layout: layer %d is of kind %d of %d", i, l->kind[i], l->n_kinds);
    for (int i = 0; i < l->n_kinds * LAYOUT_ROLES && r == 0; i++) {
        int k = i / LAYOUT_ROLES, own = l->n_ff[k] ? l->n_ff[k] : n_ff;
        if (own < 1 || own > n_ff)
            return err_set(e, ERR_LIMIT, "layout: FFNs of %d neurons, the widest has %d", own, n_ff);
        r = check_type(l, l->type[k][i % LAYOUT_ROLES], i % LAYOUT_ROLES, d_model, own, e);
    }
    return r;
}

static int check(const struct layout *l, int d_model, int n_ff, struct err *e)
{
    if ((unsigned)l->form >= LAYOUT_FORMS)
        return err_set(e, ERR_UNSUPPORTED, "layout form %d is not known", (int)l->form);
    if (l->ungated != 0 && l->ungated != 1)
        return err_set(e, ERR_UNSUPPORTED, "layout ungated is %d; 0 or 1 are known", l->ungated);
    if (l->packed != 0 && l->packed != 1)
        return err_set(e, ERR_UNSUPPORTED, "layout packed is %d; 0 or 1 are known", l->packed);
    if (l->block_bytes < 512 || l->block_bytes > 65536 || l->block_bytes & (l->block_bytes - 1))
        return err_set(e, ERR_UNSUPPORTED, "layout block_bytes is %u; a power of two from 512 to 65536 is needed",
                       l->block_bytes);
    if (l->cluster_neurons < 8 || l->cluster_neurons > 4096 || l->cluster_neurons % 8)
        return err_set(e, ERR_UNSUPPORTED, "layout cluster_neurons is %u; a multiple of 8 from 8 to 4096 is needed",
                       l->cluster_neurons);
    if (d_model <= 0 || d_model > MODEL_MAX_DIM || n_ff <= 0 || n_ff > MODEL_MAX_DIM)
        return err_set(e, ERR_LIMIT, "a layout of %d neurons of width %d, more than the limit of %d", n_ff, d_model, MODEL_MAX_DIM);
    return check_types(l, d_model, n_ff, e);
}

/* How many neurons share a unit. A gate part is read in sequence, by the cluster; other parts at
 * random, so the smallest group that wastes little of a block: records that fit a block fill it. Of tiles large clusters are read whole. */
static uint32_t group(const struct layout_shape *s, const struct layout_part *p, int sequential)
{
    if (sequential || (s->form == LAYOUT_TILES && s->cluster_neurons > LAYOUT_TILE))
        return s->cluster_neurons;
    uint32_t n = 1, t = p->record_neurons;
    while (n * t < s->cluster_neurons && s->cluster_neurons % (n * t * 2) == 0 && (uint64_t)p->record_bytes * n * 2 <= s->block_bytes)
        n *= 2;
    return n * t;
}

static void add_roles(const struct layout_shape *s, struct layout_part *p, int d_model, int first, int last)
{
    p->record_neurons = 1;
    for (int r = 0; r < LAYOUT_ROLES; r++) {
        p->role_offset[r] = ~0u;
        p->role_bytes[r] = layout_lacks(s, r) ? 0 : (uint32_t)quant_row_bytes(s->type[r], (uint64_t)d_model);
    }
    for (int r = first; r <= last; r++) {
        if (layout_lacks(s, r))
            continue;
        p->role[p->n_roles++] = r;
        p->role_offset[r] = p->record_bytes;
        p->record_bytes += p->role_bytes[r];
    }
}

/* Gate, Up and Down of t neurons. */
static int add_tile(const struct layout_shape *s, struct layout_part *p, uint64_t t, int d_model, struct err *e)
{
    uint64_t bytes = 0;
    if (t == 1) {
        add_roles(s, p, d_model, LAYOUT_GATE, LAYOUT_DOWN);
        return 0;
    }
    for (int r = 0; r < LAYOUT_ROLES; r++) {
        uint64_t row = quant_row_bytes(s->type[r], r == LAYOUT_DOWN ? t : (uint64_t)d_model);
        if (bytes > UINT32_MAX / 4)
            break;
        p->role_offset[r] = ~0u;
        if (layout_lacks(s, r))
            continue;
        p->role[p->n_roles++] = r;
        p->role_offset[r] = (uint32_t)bytes;
        p->role_bytes[r] = (uint32_t)row;
        bytes += row * (r == LAYOUT_DOWN ? (uint64_t)d_model : t);
    }
    p->record_neurons = (uint32_t)t;
    p->record_bytes = (uint32_t)bytes;
    return bytes <= UINT32_MAX / 4 ? 0 : err_set(e, ERR_LIMIT, "a tile of %llu bytes, more than the limit of %u", (unsigned long long)bytes,
                                                 UINT32_MAX / 4);
}

static uint64_t round_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

static int derive_groups(struct layout_shape *s, int d_model, struct err *e)
{
    int r = 0;
    if (s->form == LAYOUT_TILES) {
        r = add_tile(s, &s->part[0], tile_neurons(s->cluster_neurons, s->type[LAYOUT_DOWN]), d_model, e);
    } else if (s->form == LAYOUT_BUNDLE) {
        add_roles(s, &s->part[0], d_model, LAYOUT_GATE, LAYOUT_DOWN);
    } else {
        add_roles(s, &s->part[0], d_model, LAYOUT_GATE, LAYOUT_GATE);
        add_roles(s, &s->part[1], d_model, LAYOUT_UP, LAYOUT_DOWN);
    }
    for (int i = 0; i < s->n_parts; i++)
        s->part[i].neurons_per_unit = group(s, &s->part[i], i == 0 && s->form == LAYOUT_SPLIT);
    /* Alternating pages need the same grouping in both parts. */
    if (s->form == LAYOUT_TWO_PHASE && s->part[0].neurons_per_unit > s->part[1].neurons_per_unit)
        s->part[0].neurons_per_unit = s->part[1].neurons_per_unit;
    return r;
}

static int derive_units(struct layout_shape *s, struct err *e)
{
    for (int i = 0; i < s->n_parts; i++) {
        struct layout_part *p = &s->part[i];
        uint64_t bytes = layout_bytes(p, p->neurons_per_unit), block = s->block_bytes;
        if (bytes > UINT32_MAX / 4)
            return err_set(e, ERR_LIMIT, "a unit of %llu bytes, more than the limit of %u", (unsigned long long)bytes, UINT32_MAX / 4);
        p->unit_bytes = (uint32_t)bytes;
        p->stride_bytes = s->packed ? bytes : round_up(bytes, block);
        p->read_bytes = (uint32_t)(s->packed ? round_up(bytes + block - 1, block) : p->stride_bytes);
        p->n_units = ((uint32_t)s->n_ff + p->neurons_per_unit - 1) / p->neurons_per_unit;
        p->segment = s->n_segments == 1 ? 0 : i;
    }
    if (s->form == LAYOUT_TWO_PHASE) {
        uint64_t both = s->part[0].stride_bytes + s->part[1].stride_bytes;
        s->part[1].first_offset = s->part[0].stride_bytes;
        s->part[0].stride_bytes = s->part[1].stride_bytes = both;
    }
    for (int i = 0; i < s->n_parts; i++) {
        const struct layout_part *p = &s->part[i];
        uint64_t end = p->first_offset + (uint64_t)(p->n_units - 1) * p->stride_bytes + p->unit_bytes;
        end = round_up(end, s->block_bytes);
        if (end > s->segment_bytes[p->segment])
            s->segment_bytes[p->segment] = end;
    }
    return 0;
}

static uint32_t clusters_of(const struct layout *l, int n_ff)
{
    return ((uint32_t)n_ff + l->cluster_neurons - 1) / l->cluster_neurons;
}

static int derive_kind(const struct layout_shapes *of, int kind, int d_model, struct layout_shape *out, struct err *e)
{
    const struct layout *l = &of->l;
    int n_ff = l->n_ff[kind] ? l->n_ff[kind] : of->n_ff;
    struct layout_shape s = { .form = l->form, .packed = l->packed, .ungated = l->ungated, .block_bytes = l->block_bytes,
                              .cluster_neurons = l->cluster_neurons, .n_ff = n_ff, .n_parts = of->n_parts,
                              .n_segments = of->n_segments, .n_clusters = clusters_of(l, n_ff) };
    memcpy(s.type, l->type[kind], sizeof s.type);
    int r = derive_groups(&s, d_model, e);
    if (r == 0)
        r = derive_units(&s, e);
    *out = s;
    return r;
}

int layout_derive(const struct layout *l, int d_model, int n_ff, struct layout_shapes *out, struct err *e)
{
    int r = check(l, d_model, n_ff, e);
    uint32_t largest = 0;
    if (r < 0)
        return r;
    *out = (struct layout_shapes){ .l = *l, .n_ff = n_ff, .n_parts = layout_parts(l->form),
                                   .n_segments = l->form == LAYOUT_SPLIT ? 2 : 1, .n_clusters = clusters_of(l, n_ff) };
    for (int k = 0; k < l->n_kinds; k++) {
        if ((r = derive_kind(out, k, d_model, &out->kind[k], e)) < 0)
            return r;
        for (int i = 0; i < out->n_parts; i++)
            largest = out->kind[k].part[i].read_bytes > largest ? out->kind[k].part[i].read_bytes : largest;
    }
    for (int k = 0; k < l->n_kinds; k++)
        out->kind[k].largest_read = largest;
    return 0;
}

uint32_t layout_most_units(const struct layout_shapes *s, int part)
{
    uint32_t most = 0;
    for (int k = 0; k < s->l.n_kinds; k++)
        most = s->kind[k].part[part].n_units > most ? s->kind[k].part[part].n_units : most;
    return most;
}

uint32_t layout_most_bytes(const struct layout_shapes *s)
{
    uint32_t most = 0;
    for (int i = 0; i < s->l.n_kinds * s->n_parts; i++) {
        uint32_t bytes = s->kind[i / s->n_parts].part[i % s->n_parts].unit_bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

const struct layout_shape *layout_largest(const struct layout_shapes *s)
{
    const struct layout_shape *most = &s->kind[0];
    for (int k = 1; k < s->l.n_kinds; k++) {
        uint32_t bytes = s->kind[k].part[s->n_parts - 1].read_bytes, longest = most->part[s->n_parts - 1].read_bytes;
        if (bytes > longest || (bytes == longest && s->kind[k].n_ff > most->n_ff))
            most = &s->kind[k];
    }
    return most;
}

uint64_t layout_neurons_before(const struct layout_shapes *s, int layer)
{
    uint64_t n = 0;
    for (int l = 0; l < layer; l++)
        n += (uint64_t)layout_of(s, l)->n_ff;
    return n;
}

uint64_t layout_clusters_before(const struct layout_shapes *s, int layer)
{
    uint64_t n = 0;
    for (int l = 0; l < layer; l++)
        n += layout_of(s, l)->n_clusters;
    return n;
}

static void hash_types(struct hash *h, const uint32_t type[LAYOUT_ROLES])
{
    for (int r = 0; r < LAYOUT_ROLES; r++)
        hash_update_u32(h, type[r]);
}

struct hash128 layout_hash(const struct layout *l)
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    const int differ = layout_types_differ(l);
    const uint32_t revision = (differ ? 2 : 1) + (l->ungated ? 2 : 0);
    const uint32_t v[5] = { revision, (uint32_t)l->form, (uint32_t)l->packed, l->block_bytes, l->cluster_neurons };
    for (int i = 0; i < 5; i++)
        hash_update_u32(h, v[i]);
    if (differ)
        hash_update_u32(h, (uint32_t)l->n_layers);
    else
        hash_types(h, l->type[0]);
    for (int i = 0; i < l->n_layers && differ; i++)
        hash_types(h, l->type[l->kind[i]]);
    return hash_final128(h);
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
            bytes_put32(buf + 4 * k, orders ? orders[i] : (uint32_t)(i % (size_t)n_ff));
        hash_update(h, buf, k * 4);
    }
    return hash_final128(h);
}
