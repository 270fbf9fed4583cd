/* Predictors at start: those that stay in memory are read there, of the others only their figures and checksums remain. */
#include "runtime/engine/load_ahead.h"
#include "runtime/pipeline/predictor_prefetch.h"

#include "common/base/bytes.h"
#include "common/base/progress.h"
#include "common/pack/pack_format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float threshold_of(const struct engine *g, const struct pack_predictor *x, const struct pack_predictor_figures *f)
{
    return pack_predictor_choose(f, g->c.recalls ? g->c.recalls[x->layer] : g->c.recall).threshold;
}

static int read_predictor(struct engine *g, const struct pack_predictor *x, struct predict *out, struct err *e)
{
    struct pack_predictor_figures f;
    struct ahead a;
    uint8_t *to = arena_take(&g->arena, BUDGET_PREDICTOR, budget_dense_tensor(x->bytes));
    ahead_init(&a, g, x->offset, x->bytes);
    int r = ahead_read(&a, to, (size_t)x->bytes, e);
    if (r < 0)
        load_drain(g);
    if (r < 0 || (r = pack_predictor_use(g->c.pack, x, to, out, &f, e)) < 0)
        return r;
    out->threshold = threshold_of(g, x, &f);
    return 0;
}

/* ---- streamed ones ---- */

/* A streamed predictor is read once here, so that damage is found before the first token, and what its rows and ranges will
 * be verified by when they are read again is taken from bytes that its checksum is held against. Only that and what it was
 * measured to do is kept. */
struct look {
    struct engine *g;
    const struct pack_predictor *x;
    struct ahead a;
    struct hash *whole, *part;
    uint64_t at;               /* of the section */
    int finite, picked;        /* so far */
};

/* Bytes up to `end` of the section, whatever they are; of one row or range, its number is put into *sum. */
static int look_on(struct look *k, uint64_t end, uint64_t seed, uint32_t *sum, struct err *e)
{
    const struct pack_predictor *x = k->x;
    uint8_t some[4096];
    int is_row = sum && k->at < x->fc2_offset && x->type1 == PREDICT_PICK;
    hash_seed(k->part, seed);
    while (k->at < end) {
        size_t n = end - k->at < sizeof some ? (size_t)(end - k->at) : sizeof some;
        int r = ahead_read(&k->a, some, n, e);
        if (r < 0)
            return r;
        hash_update(k->whole, some, n);
        hash_update(k->part, some, n);
        for (size_t i = 0; k->at >= x->bias_offset && i < n; i += 4)
            k->finite = k->finite && isfinite(bytes_lef32(some + i));
        if (is_row) /* PREDICT_PICK_BYTES */
            k->picked = k->picked && predict_check_selected(x->type1, some, 1, k->g->h.d_model);
        k->at += n;
    }
    if (sum)
        *sum ^= (uint32_t)hash_final64(k->part);
    return 0;
}

/* Rows of fc2, or elements of the bias, of ranges from `always computed` on. */
static int look_at_ranges(struct look *k, const struct predict *q, uint64_t from, uint64_t row, uint32_t *sums, int bias,
                          struct err *e)
{
    const struct verify_predictor v = verify_predictor_of(&k->g->verifier, k->x->layer, k->x->block);
    int r = look_on(k, from + v.always * row, 0, NULL, e);
    for (uint32_t i = 0; r == 0 && v.always + i * v.range < (uint32_t)q->n_ff; i++) {
        uint32_t end = v.always + (i + 1) * v.range;
        end = end < (uint32_t)q->n_ff ? end : (uint32_t)q->n_ff;
        r = look_on(k, from + end * row, verify_range_seed(&v, i, bias), &sums[i], e);
    }
    return r;
}

static int look_through(struct look *k, const struct predict *q, uint32_t *sums, struct err *e)
{
    const struct pack_predictor *x = k->x;
    const struct verify_predictor v = verify_predictor_of(&k->g->verifier, x->layer, x->block);
    int r = 0;
    for (uint32_t i = 0; i < (uint32_t)x->rank && r == 0; i++)
        r = look_on(k, x->fc1_offset + (i + 1) * (uint64_t)q->row1, verify_row_seed(&v, i), &sums[i], e);
    if (r < 0 || (r = look_on(k, x->fc2_offset, 0, NULL, e)) < 0 ||
        (r = look_at_ranges(k, q, x->fc2_offset, q->row2, sums + x->rank, 0, e)) < 0 ||
        (r = look_on(k, x->bias_offset, 0, NULL, e)) < 0)
        return r;
    if (x->has_bias && (r = look_at_ranges(k, q, x->bias_offset,
                                           sizeof(float) * (uint64_t)predict_numbers(1, x->two_sided), sums + x->rank, 1, e)) < 0)
        return r;
    return look_on(k, x->bytes, 0, NULL, e);
}

static int look_at(struct look *k, struct predict *out, uint32_t *sums, struct err *e)
{
    uint8_t head[PACK_PREDICTOR_HEAD_BYTES + PACK_PREDICTOR_POINTS * PACK_PREDICTOR_POINT_BYTES + 64];
    const struct pack_predictor *x = k->x;
    struct pack_predictor_figures f;
    struct predict q;
    int r = ahead_read(&k->a, head, (size_t)x->fc1_offset, e);
    if (r < 0 || (r = pack_predictor_head(k->g->c.pack, x, head, &q, &f, e)) < 0)
        return r;
    hash_update(k->whole, head, (size_t)x->fc1_offset);
    k->at = x->fc1_offset;
    if ((r = look_through(k, &q, sums, e)) < 0)
        return r;
    uint64_t sum = hash_final64(k->whole);
    if (sum != x->checksum)
        return pack_predictor_damaged(k->g->c.pack, x, sum, e);
    if (!k->finite)
        return pack_predictor_infinite(k->g->c.pack, x, e);
    if (!k->picked)
        return pack_predictor_mispicks(k->g->c.pack, x, e);
    q.threshold = threshold_of(k->g, x, &f);
    *out = q;
    return 0;
}

static int look_at_predictor(struct engine *g, const struct pack_predictor *x, struct predict *out, uint32_t *sums,
                             struct err *e)
{
    memset(sums, 0, (size_t)budget_predictor_check_bytes(&g->c.choice.predictors));
    struct look k = { .g = g, .x = x, .whole = hash_new(), .part = hash_new(), .finite = 1, .picked = 1 };
    int r;
    if (!k.whole || !k.part) {
        r = err_set(e, ERR_NOMEM, "out of memory for a checksum");
    } else {
        ahead_init(&k.a, g, x->offset, x->bytes);
        if ((r = look_at(&k, out, sums, e)) < 0)
            load_drain(g);
    }
    hash_free(k.whole);
    hash_free(k.part);
    return r;
}

static int load_predictor(struct engine *g, int layer, int block, struct err *e)
{
    size_t at = (size_t)layer * (size_t)g->n_blocks + (size_t)block;
    enum predict_input input = (enum predict_input)g->c.predictor[layer];
    const struct pack_predictor *x = pack_predictor_find(g->c.pack, input, layer, block);
    if (!x)
        return err_set(e, ERR_MISMATCH, "'%s' has no predictor '%s' of layer %d, expert %d", g->c.pack->file.path,
                       predict_input_name(input), layer, block);
    struct predict *q = &g->predictors[at];
    if (!engine_streams(g, layer))
        return read_predictor(g, x, q, e);
    uint32_t *sums = predictor_prefetch_checks(g->staging, &g->shapes->kind[0], &g->c.choice, g->n_row_checks++);
    int r = look_at_predictor(g, x, q, sums, e);
    g->verifier.row_checks[at] = sums;
    if (r == 0)
        predict_pieces_of(q->row1, q->rank, q->row2, q->two_sided, q->n_ff, g->c.always ? g->c.always[layer] : 0,
                          g->shapes->l.cluster_neurons, g->shapes->l.block_bytes, &g->pieces[at]);
    return r;
}

int load_predictors(struct engine *g, struct err *e)
{
    struct progress bar;
    size_t n = (size_t)g->h.n_layers * (size_t)g->n_blocks;
    int r = 0;
    if (g->c.mode != PLAN_PREDICTED)
        return 0;
    g->predictors = calloc(n, sizeof *g->predictors);
    g->pieces = calloc(n, sizeof *g->pieces);
    g->verifier.row_checks = calloc(n, sizeof *g->verifier.row_checks);
    g->verifier.predictors = g->predictors;
    if (!g->predictors || !g->pieces || !g->verifier.row_checks)
        return err_set(e, ERR_NOMEM, "out of memory for the tables of predictors");
    progress_init(&bar, "loading predictors", "B", g->c.choice.predictors.bytes);
    for (int l = 0; l < g->h.n_layers && r == 0; l++)
        for (int b = 0; b < g->n_blocks && g->c.predictor[l] >= 0 && r == 0; b++)
            if ((r = load_predictor(g, l, b, e)) == 0)
                progress_add(&bar, g->c.choice.predictors.bytes / n);
    progress_done(&bar);
    return r;
}
