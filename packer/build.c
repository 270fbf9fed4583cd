/* Order of the file: metadata, types where layers differ in them, dense tensors as the forward pass meets them, neuron order,
 * predictors, segments layer by layer, checksums of clusters and of units, provenance. One FFN's matrices and one panel are in memory
 * at a time. Nothing depends on time, paths or threads: the same inputs give the same bytes. */
#include "packer/build_impl.h"

#include "common/base/bytes.h"
#include "common/base/file_behind.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/base/size.h"
#include "common/base/version.h"
#include "common/offline/linalg.h"
#include "common/pack/pack.h"
#include "common/pack/unit_check.h"
#include "packer/dense.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (1u << 20)

static const enum model_role ffn_roles[LAYOUT_ROLES] = { MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN };

static const struct gguf_tensor *ffn_tensor(const struct build *b, int layer, int role)
{
    return b->source->model->layer[layer][ffn_roles[role]];
}

/* Of an FFN without a gate Up is not read: Gate's rows are the same ones. */
static int is_packed(const struct build *b, int role)
{
    return !layout_lacks(&b->shapes.kind[0], role);
}

int build_role_changes(const struct build *b, int layer, int role)
{
    uint32_t from = ffn_tensor(b, layer, role)->type, to = layout_of(&b->shapes, layer)->type[role];
    int turned = role == LAYOUT_DOWN && !b->source->model->h.down_by_neuron && b->shapes.l.form != LAYOUT_TILES;
    return from != to || (turned && quant_traits(to)->block_elems > 1);
}

/* Gates that change type, and the inputs of a trace to correct the errors by. */
static int corrects(const struct build *b, int layer)
{
    return b->trace && build_role_changes(b, layer, LAYOUT_GATE) &&
           corrected_can(b->trace, layout_of(&b->shapes, layer)->type[LAYOUT_GATE]);
}

/* Bytes of the largest FFN's; 0: no layer's are. */
static uint64_t corrected_bytes(const struct build *b)
{
    uint64_t most = 0;
    for (int l = 0; l < b->source->model->h.n_layers; l++) {
        const struct layout_shape *s = layout_of(&b->shapes, l);
        uint64_t bytes = (uint64_t)s->n_ff * quant_row_bytes(s->type[LAYOUT_GATE], (uint64_t)b->source->model->h.d_model);
        most = corrects(b, l) && bytes > most ? bytes : most;
    }
    return most;
}

static uint64_t correction_memory(const struct build *b)
{
    uint64_t made = corrected_bytes(b);
    return made ? made + corrected_memory(b->source->model->h.d_model) : 0;
}

double build_relative_rms(const struct neurons_loss *l, int role)
{
    return l->weight2[role] > 0 ? sqrt(l->error2[role] / l->weight2[role]) : 0;
}

static int interrupted(struct err *e)
{
    return file_interrupted() ? err_set(e, ERR_INTR, "interrupted; nothing was written") : 0;
}

static int dense_written(void *ctx, const struct gguf_tensor *t, uint64_t done, struct err *e)
{
    struct work *k = ctx;
    consume_packed(k->b->consume, t, done);
    return consume_due(k->b->consume, 0) ? build_save(k, e) : 0;
}

static int put_dense(struct work *k, struct err *e)
{
    const struct dense_job j = { .source = k->b->source, .w = k->w, .pool = k->b->pool, .orders = k->b->orders, .progress = &k->progress,
                                 .written = k->b->consume ? dense_written : NULL, .ctx = k };
    return dense_put_all(&j, &k->report->dense_bytes, e);
}

/* ---- neurons ---- */

/* One block's share of a matrix: the next bytes of the source, or the same slice of the better one. */
static int read_matrix(struct work *k, int layer, int block, int role, uint32_t *type, struct err *e)
{
    const struct build *b = k->b;
    const struct gguf_tensor *t = ffn_tensor(b, layer, role);
    uint64_t n = t->bytes / (uint64_t)model_ffn_blocks(&b->source->model->h);
    int r = is_packed(b, role) ? source_read(b->source, t, k->matrix[role], n, e) : 0;
    progress_add(&k->progress, n);
    *type = t->type;
    if (r < 0 || !b->better || !is_packed(b, role) || !build_role_changes(b, layer, role))
        return r;
    const struct gguf_tensor *u = gguf_tensor(b->better, t->name); /* shapes were compared before */
    n = u->bytes / (uint64_t)model_ffn_blocks(&b->source->model->h);
    *type = u->type;
    return gguf_read(b->better, u, n * (uint64_t)block, k->matrix[role], n, e);
}

/* The matrices of FFN n, counted over layers and blocks, are read by the kernel while the one before is being made. */
static void ask_next(const struct work *k, size_t n)
{
    const struct source *s = k->b->source;
    size_t blocks = (size_t)model_ffn_blocks(&s->model->h);
    if (n >= (size_t)s->model->h.n_layers * blocks)
        return;
    for (int role = 0; role < LAYOUT_ROLES; role++) {
        const struct gguf_tensor *t = ffn_tensor(k->b, (int)(n / blocks), role);
        uint64_t bytes = t->bytes / blocks;
        if (is_packed(k->b, role))
            source_ask(s, t, n % blocks * bytes, bytes);
    }
}

/* A weight of another type, back again, is a number still. */
static int check_loss(const struct work *k, int layer, struct err *e)
{
    for (int role = 0; role < LAYOUT_ROLES; role++)
        if (!isfinite(k->report->layers[layer].error2[role]))
            return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s': a weight is too large for type %s, which the layout asks for; plan "
                           "another type", k->b->source->path, ffn_tensor(k->b, layer, role)->name,
                           quant_traits(layout_of(&k->b->shapes, layer)->type[role])->name);
    return 0;
}

/* What the bytes of gates depend on beyond the model: with another trace, or another machine's arithmetic, they may differ. */
static void hash_correction(const struct build *b, struct hash *h)
{
    if (!corrected_bytes(b))
        return;
    const struct trace_info *t = trace_info(b->trace);
    hash_update_u64(h, t->content_hash.lo);
    hash_update_u64(h, t->content_hash.hi);
    hash_update_u64(h, t->n_samples);
    hash_update_str(h, linalg_kernels());
}

static int make_gates(struct work *k, int layer, struct neurons_in *in, struct err *e)
{
    in->made = k->made;
    return corrected_rows(k->corrected, layer, in->gate, in->gate_type, k->made, in->shape->type[LAYOUT_GATE], in->n_ff, e);
}

static int put_ffn(struct work *k, int layer, int block, struct err *e)
{
    const struct layout_shape *s = layout_of(&k->b->shapes, layer);
    const struct model_hparams *h = &k->b->source->model->h;
    size_t n = (size_t)layer * (size_t)model_ffn_blocks(h) + (size_t)block;
    struct neurons_in in = { k->matrix[LAYOUT_GATE], k->matrix[LAYOUT_UP], k->matrix[LAYOUT_DOWN], 0, 0, 0, s,
                             h->d_model, s->n_ff, k->b->orders + n * (size_t)h->n_ff,
                             h->down_by_neuron, NULL };
    uint32_t *types[LAYOUT_ROLES] = { &in.gate_type, &in.up_type, &in.down_type }, index[LAYOUT_MAX_PARTS];
    uint64_t base[LAYOUT_MAX_PARTS];
    struct hash *hash[LAYOUT_MAX_PARTS] = { 0 };
    int r = interrupted(e);
    for (int role = 0; role < LAYOUT_ROLES && r == 0; role++)
        r = read_matrix(k, layer, block, role, types[role], e);
    ask_next(k, n + 1);
    if (r == 0 && corrects(k->b, layer))
        r = make_gates(k, layer, &in, e);
    for (int i = 0; i < s->n_segments && r == 0; i++) {
        struct write_entry entry = { .kind = PACK_CLUSTERS, .layer = (uint32_t)layer, .block = (uint32_t)block,
                                     .segment = (uint32_t)i };
        r = write_reserve(k->w, &entry, s->segment_bytes[i], &index[i], &base[i], e);
        if (r == 0 && !(hash[i] = hash_new()))
            r = err_set(e, ERR_NOMEM, "hashing a segment");
        k->report->neuron_bytes += s->segment_bytes[i];
    }
    const struct neurons_checks checks = { .clusters = k->checks + build_checks_before(k, n),
                                           .units = k->unit_checks + unit_check_before(&k->b->shapes, model_ffn_blocks(h), layer) +
                                                    (uint64_t)block * unit_check_per_block(s),
                                           .identity = k->identity,
                                           .ffn = n };
    uint32_t panel = neurons_panel(k->neurons);
    for (uint32_t a = 0; a < (uint32_t)s->n_ff && r == 0; a += panel) {
        uint32_t end = a + panel < (uint32_t)s->n_ff ? a + panel : (uint32_t)s->n_ff;
        struct neurons_out out;
        r = neurons_build(k->neurons, &in, a, end, &out, &checks, &k->report->layers[layer], e);
        r = r < 0 ? r : check_loss(k, layer, e);
        for (int i = 0; i < s->n_segments && r == 0; i++) {
            hash_update(hash[i], out.data[i], out.len[i]);
            r = write_at(k->w, base[i] + out.offset[i], out.data[i], out.len[i], e);
        }
    }
    if (r == 0)
        log_debug("layer %d, expert %d: gate %s, up %s, down %s from %s; %u units", layer, block, quant_traits(s->type[LAYOUT_GATE])->name,
                  quant_traits(s->type[LAYOUT_UP])->name, quant_traits(s->type[LAYOUT_DOWN])->name, quant_traits(in.down_type)->name,
                  (unsigned)unit_check_per_block(s));
    for (int i = 0; i < s->n_segments; i++) {
        if (r == 0)
            write_set_checksum(k->w, index[i], hash_final64(hash[i]));
        hash_free(hash[i]);
    }
    return r;
}

/* Where the source is consumed: what is not saved yet is, where this FFN comes with more than a step; then it is there. */
static int put_consumed(struct work *k, int layer, int block, struct err *e)
{
    uint64_t bytes[LAYOUT_ROLES], sum = 0, blocks = (uint64_t)model_ffn_blocks(&k->b->source->model->h);
    for (int role = 0; role < LAYOUT_ROLES; role++)
        sum += bytes[role] = ffn_tensor(k->b, layer, role)->bytes / blocks;
    int r = consume_due(k->b->consume, sum) ? build_save(k, e) : 0;
    if (r < 0 || (r = put_ffn(k, layer, block, e)) < 0)
        return r;
    for (int role = 0; role < LAYOUT_ROLES; role++)
        consume_packed(k->b->consume, ffn_tensor(k->b, layer, role), ((uint64_t)block + 1) * bytes[role]);
    k->ffns++;
    return consume_due(k->b->consume, 0) ? build_save(k, e) : 0;
}

static int put_all_neurons(struct work *k, struct err *e)
{
    const struct model_hparams *h = &k->b->source->model->h;
    uint64_t blocks = (uint64_t)model_ffn_blocks(h);
    int r = 0;
    for (uint64_t n = k->ffns; n < (uint64_t)h->n_layers * blocks && r == 0; n++)
        r = (k->b->consume ? put_consumed : put_ffn)(k, (int)(n / blocks), (int)(n % blocks), e);
    for (int l = 0; l < h->n_layers && r == 0; l++)
        for (int role = 0; role < LAYOUT_ROLES; role++) {
            k->report->total.error2[role] += k->report->layers[l].error2[role];
            k->report->total.weight2[role] += k->report->layers[l].weight2[role];
        }
    return r;
}

/* ---- predictors ---- */

static void put_point(uint8_t *b, const struct trace_predict_point *p)
{
    bytes_putf32(b, p->recall), bytes_putf32(b + 4, p->threshold), bytes_putf32(b + 8, p->density), bytes_putf32(b + 12, p->precision);
}

/* Its section in memory: head, curve, fc1, and fc2 and bias with neurons in pack order. */
static void lay_out(const struct build *b, const struct trace_predictor *t, const struct pack_predictor *x,
                    const uint8_t *fc1, const uint8_t *fc2, const float *bias, uint8_t *out)
{
    const struct model_hparams *h = &b->source->model->h;
    const uint32_t *order =
        b->orders + ((size_t)t->layer * (size_t)model_ffn_blocks(h) + (size_t)t->block) * (size_t)h->n_ff;
    size_t row2 = predict_row2_bytes(t->type2, t->rank), numbers = (size_t)predict_numbers(x->has_bias, x->two_sided);
    memset(out, 0, x->bytes);
    put_point(out, &t->at);
    bytes_putf32(out + 16, (float)t->true_density);
    for (int i = 0; i < t->n_points; i++)
        put_point(out + x->curve_offset + (size_t)i * PACK_PREDICTOR_POINT_BYTES, &t->curve[i]);
    memcpy(out + x->fc1_offset, fc1, (size_t)t->rank * predict_row1_bytes(t->type1, h->d_model));
    for (size_t i = 0; i < (size_t)model_n_ff(h, t->layer); i++) {
        memcpy(out + x->fc2_offset + i * row2, fc2 + order[i] * row2, row2);
        for (size_t k = 0; k < numbers; k++)
            bytes_putf32(out + x->bias_offset + (i * numbers + k) * 4, bias[order[i] * numbers + k]);
    }
}

static int put_predictor(struct work *k, const struct trace_predictor *t, struct err *e)
{
    const struct model_hparams *h = &k->b->source->model->h;
    struct pack_predictor x = { .input = t->input,
                                .layer = t->layer,
                                .block = t->block,
                                .rank = t->rank,
                                .relu = t->relu,
                                .has_bias = t->has_bias,
                                .two_sided = t->two_sided,
                                .n_points = t->n_points,
                                .type1 = t->type1,
                                .type2 = t->type2 };
    const int n_ff = model_n_ff(h, t->layer);
    int r = pack_predictor_derive(&x, h->d_model, n_ff, e);
    if (r < 0)
        return r;
    const struct write_entry entry = { .kind = PACK_PREDICTOR,
                                       .role = t->input,
                                       .type = t->type1,
                                       .layer = (uint32_t)t->layer,
                                       .block = (uint32_t)t->block,
                                       .segment = t->type2,
                                       .n_dims = 3,
                                       .dims = { (uint64_t)h->d_model, (uint64_t)t->rank, (uint64_t)n_ff,
                                                 (t->relu ? PACK_PREDICTOR_RELU : 0) |
                                                     (t->has_bias ? PACK_PREDICTOR_BIAS : 0) |
                                                     (t->two_sided ? PACK_PREDICTOR_TWO_SIDED : 0) |
                                                     (uint64_t)t->n_points << PACK_PREDICTOR_POINTS_SHIFT } };
    uint8_t *section = malloc(x.bytes), *fc1 = malloc(t->bytes), *fc2 = malloc(t->bytes);
    float *bias = malloc((size_t)n_ff * (size_t)predict_numbers(1, t->two_sided) * sizeof *bias);
    if (!section || !fc1 || !fc2 || !bias)
        r = err_set(e, ERR_NOMEM, "a predictor of %llu bytes", (unsigned long long)x.bytes);
    else if ((r = trace_predictors_read(k->b->predictors, t, fc1, fc2, bias, e)) == 0) {
        lay_out(k->b, t, &x, fc1, fc2, bias, section);
        r = write_section(k->w, &entry, section, x.bytes, e);
        k->report->predictor_bytes += x.bytes;
    }
    free(section), free(fc1), free(fc2), free(bias);
    return r;
}

/* Tiles are for dense mode, which predicts nothing. */
static int wanted(const struct build *b, const struct trace_predictor *t)
{
    if (b->shapes.l.form == LAYOUT_TILES)
        return 0;
    for (int i = 0; b->planned_predictors && i < b->plan->n_limits; i++)
        if (b->plan->limits[i].mode == PLAN_PREDICTED && t->layer < b->plan->n_layers &&
            b->plan->limits[i].predictor[t->layer] == (int)t->input)
            return 1;
    return b->predictor_inputs >> t->input & 1;
}

static uint64_t count_predictors(const struct build *b, uint64_t *bytes)
{
    uint64_t n_wanted = 0;
    int n = 0;
    const struct trace_predictor *list = b->predictors ? trace_predictors_list(b->predictors, &n) : NULL;
    *bytes = 0;
    for (int i = 0; i < n; i++)
        if (wanted(b, &list[i]))
            n_wanted++, *bytes += list[i].bytes + 1024; /* head, curve and rounding */
    return n_wanted;
}

struct hash128 build_config(const struct build *b)
{
    const struct hash128 all[] = { b->model_hash, b->order_hash, layout_hash(&b->shapes.l), b->better_hash,
                                   b->trace ? trace_info(b->trace)->content_hash : b->model_hash };
    int n = 0;
    const struct trace_predictor *list = b->predictors ? trace_predictors_list(b->predictors, &n) : NULL;
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    hash_update_str(h, THERMO_VERSION);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hash_update_u64(h, all[i].lo);
        hash_update_u64(h, all[i].hi);
    }
    for (int i = 0; i < n; i++)
        hash_update_u32(h, (uint32_t)wanted(b, &list[i]));
    hash_correction(b, h);
    return hash_final128(h);
}

static int put_all_predictors(struct work *k, struct err *e)
{
    int n = 0, r = 0;
    const struct trace_predictor *list = k->b->predictors ? trace_predictors_list(k->b->predictors, &n) : NULL;
    for (int i = 0; i < n && !r; i++)
        if (wanted(k->b, &list[i]) && (r = interrupted(e)) == 0)
            r = put_predictor(k, &list[i], e);
    return r;
}

/* ---- tables and texts ---- */

static const struct write_entry plain = { .layer = PACK_NONE, .block = PACK_NONE, .segment = PACK_NONE };

static int put_meta(struct work *k, struct err *e)
{
    uint8_t *blob;
    size_t len;
    int r = model_meta_blob(k->b->source->gguf, &k->b->source->model->h, NULL, &blob, &len, e);
    if (r < 0)
        return r;
    struct write_entry entry = plain;
    entry.kind = PACK_META;
    entry.codec = PACK_ZSTD;
    r = write_section(k->w, &entry, blob, len, e);
    free(blob);
    return r;
}

/* u32 or u64 arrays in little-endian, through the piece buffer. */
static int put_numbers(struct work *k, enum pack_kind kind, const void *data, uint64_t count, int size, struct err *e)
{
    struct write_entry entry = plain;
    entry.kind = kind;
    int r = write_begin(k->w, &entry, e);
    for (uint64_t i = 0; i < count && r == 0;) {
        size_t n = 0;
        for (; i < count && n + (size_t)size <= PIECE; i++, n += (size_t)size) {
            if (size == 4)
                bytes_put32(k->piece + n, ((const uint32_t *)data)[i]);
            else
                bytes_put64(k->piece + n, ((const uint64_t *)data)[i]);
        }
        r = write_data(k->w, k->piece, n, e);
    }
    return r < 0 ? r : write_end(k->w, e);
}

/* Where layers differ in types; else the header says it all. */
static int put_types(struct work *k, struct err *e)
{
    uint32_t type[MODEL_MAX_LAYERS * LAYOUT_ROLES];
    const struct layout *l = &k->b->shapes.l;
    for (int i = 0; i < l->n_layers; i++)
        memcpy(type + i * LAYOUT_ROLES, l->type[l->kind[i]], sizeof l->type[0]);
    return layout_types_differ(l) ? put_numbers(k, PACK_TYPES, type, (uint64_t)(l->n_layers * LAYOUT_ROLES), 4, e) : 0;
}

static void set_hash(struct js *o, const char *key, struct hash128 h)
{
    char text[HASH_TEXT];
    hash_text(h, text);
    js_set_str(o, key, text);
}

static const struct gguf_tensor *requantised_tensor(const struct build *b, int layer, int role)
{
    const struct gguf_tensor *t = ffn_tensor(b, layer, role);
    return b->better ? gguf_tensor(b->better, t->name) : t;
}

int build_change(const struct build *b, const struct build_report *r, int role, int i, struct build_change *out)
{
    int n_layers = b->source->model->h.n_layers;
    uint8_t seen[MODEL_MAX_LAYERS] = { 0 };
    for (int first = 0; first < n_layers; first++) {
        if (seen[first] || !build_role_changes(b, first, role))
            continue;
        struct build_change c = { requantised_tensor(b, first, role)->type, layout_of(&b->shapes, first)->type[role], 0, 0, 0, { 0 } };
        c.inputs = role == LAYOUT_GATE && corrects(b, first) ? trace_info(b->trace)->n_samples : 0;
        struct neurons_loss sum = { 0 };
        for (int l = first; l < n_layers; l++) {
            if (!build_role_changes(b, l, role) || requantised_tensor(b, l, role)->type != c.from ||
                layout_of(&b->shapes, l)->type[role] != c.to)
                continue;
            seen[l] = c.layer[l] = 1;
            c.n_layers++;
            sum.error2[role] += r->layers[l].error2[role];
            sum.weight2[role] += r->layers[l].weight2[role];
        }
        c.relative_rms = build_relative_rms(&sum, role);
        if (i-- == 0) {
            *out = c;
            return 1;
        }
    }
    return 0;
}

static struct js *requantised(const struct work *k)
{
    int n_layers = k->b->source->model->h.n_layers;
    struct js *list = js_array();
    struct build_change c;
    for (int role = 0; role < LAYOUT_ROLES; role++)
        for (int i = 0; build_change(k->b, k->report, role, i, &c); i++) {
            struct js *o = js_object(), *rms = js_array(), *layers = js_array();
            js_put(o, JS_STR("tensor", layout_role_name(role)), JS_STR("from", quant_traits(c.from)->name),
                   JS_STR("to", quant_traits(c.to)->name), JS_NUM("relative_rms", c.relative_rms));
            if (c.inputs)
                js_set_u64(o, "corrected_by_inputs", c.inputs);
            for (int l = 0; l < n_layers; l++)
                if (c.layer[l]) {
                    js_append_num(rms, build_relative_rms(&k->report->layers[l], role));
                    js_append_num(layers, l);
                }
            js_set(o, "relative_rms_by_layer", rms);
            if (c.n_layers < n_layers)
                js_set(o, "layers", layers);
            else
                js_free(layers);
            js_append(list, o);
        }
    return list;
}

static int put_provenance(struct work *k, struct err *e)
{
    const struct build *b = k->b;
    const struct trace_info *t = b->trace ? trace_info(b->trace) : NULL;
    struct js *o = js_object();
    js_put(o, JS_STR("tool", "thermo-pack " THERMO_VERSION), JS_STR("model_name", b->source->model->h.name));
    set_hash(o, "model_hash", b->model_hash);
    if (t) {
        struct js *trace = js_object();
        set_hash(trace, "content_hash", t->content_hash);
        js_set_u64(trace, "tokens", t->n_tokens);
        js_set(o, "trace", trace);
    }
    if (k->report->predictor_bytes) {
        const struct trace_predict_info *i = trace_predictors_info(b->predictors);
        js_set(o, "predictors", js_made(JS_STR("tool", i->tool), JS_STR("method", i->method), JS_NUM("recall", i->recall),
                                        JS_NUM("weigh", i->loss_weighting), JS_U64("seed", i->seed), JS_U64("epochs", i->epochs)));
    }
    js_set(o, "requantised", requantised(k));
    if (b->better)
        set_hash(o, "requantised_from_model_hash", b->better_hash);
    char *text = js_text(o, 2, 6);
    js_free(o);
    if (!text)
        return err_set(e, ERR_NOMEM, "provenance");
    struct write_entry entry = plain;
    entry.kind = PACK_PROVENANCE;
    int r = write_section(k->w, &entry, text, strlen(text), e);
    free(text);
    return r;
}

/* ---- the whole ---- */

static uint64_t n_ffn(const struct build *b)
{
    const struct model_hparams *h = &b->source->model->h;
    return (uint64_t)h->n_layers * (uint64_t)model_ffn_blocks(h);
}

static uint64_t n_neurons(const struct build *b)
{
    const struct model_hparams *h = &b->source->model->h;
    return layout_neurons_before(&b->shapes, h->n_layers) * (uint64_t)model_ffn_blocks(h);
}

static uint64_t n_checks(const struct build *b)
{
    const struct model_hparams *h = &b->source->model->h;
    return layout_clusters_before(&b->shapes, h->n_layers) * (uint64_t)model_ffn_blocks(h) * (uint64_t)b->shapes.n_parts;
}

static uint64_t n_units(const struct build *b)
{
    const struct model_hparams *h = &b->source->model->h;
    return unit_check_before(&b->shapes, model_ffn_blocks(h), h->n_layers);
}

static uint64_t source_bytes(const struct build *b, uint64_t *largest_ffn)
{
    const struct model *m = b->source->model;
    uint64_t sum = 0;
    for (int r = 0; r < MODEL_ROLES; r++)
        for (int l = -1; l < model_depth(&m->h); l++) {
            const struct gguf_tensor *t = l < 0 ? m->global[r] : m->layer[l][r];
            sum += t ? t->bytes : 0;
        }
    *largest_ffn = 0;
    for (int l = 0; l < b->source->model->h.n_layers; l++) {
        uint64_t ffn = 0;
        for (int role = 0; role < LAYOUT_ROLES; role++)
            ffn += ffn_tensor(b, l, role)->bytes / (uint64_t)model_ffn_blocks(&b->source->model->h);
        *largest_ffn = ffn > *largest_ffn ? ffn : *largest_ffn;
    }
    return sum;
}

uint64_t build_largest_ffn(const struct build *b)
{
    uint64_t ffn;
    source_bytes(b, &ffn);
    return ffn;
}

void build_estimate(const struct build *b, uint64_t *file_bytes, uint64_t *memory_bytes)
{
    const struct layout_shapes *s = &b->shapes;
    uint64_t ffn, dense = source_bytes(b, &ffn), blocks = n_ffn(b), segments = 0;
    for (int l = 0; l < b->source->model->h.n_layers; l++) {
        for (int i = 0; i < s->n_segments; i++)
            segments += layout_of(s, l)->segment_bytes[i] * (uint64_t)model_ffn_blocks(&b->source->model->h);
        for (int role = 0; role < LAYOUT_ROLES; role++)
            dense -= ffn_tensor(b, l, role)->bytes;
    }
    uint64_t tables = n_neurons(b) * 4 + n_checks(b) * 8 + n_units(b) * 4;
    uint64_t predictors, n_predictors = count_predictors(b, &predictors);
    *file_bytes = predictors + dense + segments + tables + b->source->gguf->kv_len +
                  (b->source->gguf->n_tensors + blocks * 2 + n_predictors + 16) *
                      (s->l.block_bytes + PACK_ENTRY_BYTES);
    *memory_bytes = ffn + 2 * b->panel_bytes + tables + FILE_BEHIND_BYTES + correction_memory(b) +
                    (uint64_t)pool_threads(b->pool) * 16 * (uint64_t)s->n_ff * 4;
}

/* Every matrix can be read into its buffer, from either source. */
static int take_buffers(struct work *k, struct err *e)
{
    const struct build *b = k->b;
    uint64_t blocks = (uint64_t)model_ffn_blocks(&b->source->model->h), largest[LAYOUT_ROLES] = { 0 };
    for (int l = 0; l < b->source->model->h.n_layers; l++)
        for (int role = 0; role < LAYOUT_ROLES; role++) {
            const struct gguf_tensor *t = ffn_tensor(b, l, role),
                                     *u = b->better ? gguf_tensor(b->better, t->name) : NULL;
            if (b->better && (!u || memcmp(u->dims, t->dims, sizeof t->dims)))
                return err_set(
                    e, ERR_MISMATCH,
                    "the model given to --requant-from lacks tensor '%s' or has it in another shape",
                    t->name);
            if (t->bytes / blocks > largest[role])
                largest[role] = t->bytes / blocks;
            if (u && u->bytes / blocks > largest[role])
                largest[role] = u->bytes / blocks;
        }
    for (int role = 0; role < LAYOUT_ROLES; role++)
        if (!(k->matrix[role] = malloc(largest[role])))
            return err_set(e, ERR_NOMEM, "a matrix of %llu bytes", (unsigned long long)largest[role]);
    uint64_t made = corrected_bytes(b);
    int r = made ? corrected_new(b->trace, b->pool, &k->corrected, e) : 0;
    if (r < 0 || (made && !(k->made = malloc(made))))
        return r < 0 ? r : err_set(e, ERR_NOMEM, "gates of %llu bytes", (unsigned long long)made);
    k->piece = malloc(PIECE);
    k->checks = calloc(n_checks(b), sizeof *k->checks);
    k->unit_checks = calloc(n_units(b), sizeof *k->unit_checks);
    k->report->layers = calloc((size_t)b->source->model->h.n_layers, sizeof *k->report->layers);
    if (!k->piece || !k->checks || !k->unit_checks || !k->report->layers)
        return err_set(e, ERR_NOMEM, "tables of the pack");
    return neurons_new(&b->shapes, b->source->model->h.d_model, b->panel_bytes, b->pool, &k->neurons, e);
}

/* Of all that decides on the bytes of the neurons, so that packs whose neurons differ have identities that differ. */
static int pack_identity(const struct build *b, const struct write_facts *f, uint64_t *out, struct err *e)
{
    const struct hash128 all[] = { f->model_hash, f->order_hash, f->layout_hash, b->better ? b->better_hash : f->model_hash };
    struct hash *h = hash_new();
    if (!h)
        return err_set(e, ERR_NOMEM, "hashing the pack's identity");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hash_update_u64(h, all[i].lo);
        hash_update_u64(h, all[i].hi);
    }
    hash_correction(b, h);
    *out = hash_final64(h);
    hash_free(h);
    return 0;
}

static int open_writer(struct work *k, struct err *e)
{
    const struct build *b = k->b;
    struct write_facts f = { .h = b->source->model->h, .shapes = b->shapes, .model_hash = b->model_hash,
                             .order_hash = b->order_hash, .layout_hash = layout_hash(&b->shapes.l),
                             .vocab_text_bytes = b->vocab_text_bytes, .n_merges = b->n_merges };
    int r = pack_identity(b, &f, &f.identity, e);
    uint64_t bytes, n = count_predictors(b, &bytes);
    uint32_t entries = (uint32_t)(b->source->gguf->n_tensors + n_ffn(b) * (uint64_t)b->shapes.n_segments + n + 8);
    k->identity = f.identity;
    if (r == 0 && b->consume)
        return build_load(k, &f, entries, e);
    return r < 0 ? r : write_open(b->out_path, &f, entries, &k->w, e);
}

/* Each as long as its layer has neurons; of layers of one width they lie so already. */
static int put_orders(struct work *k, struct err *e)
{
    const struct model_hparams *h = &k->b->source->model->h;
    if (!h->widths[0])
        return put_numbers(k, PACK_ORDER, k->b->orders, n_neurons(k->b), 4, e);
    uint32_t *all = malloc(n_neurons(k->b) * sizeof *all), *to = all;
    for (uint64_t i = 0, blocks = (uint64_t)model_ffn_blocks(h); all && i < n_ffn(k->b); i++) {
        size_t n = (size_t)model_n_ff(h, (int)(i / blocks));
        memcpy(to, k->b->orders + i * (uint64_t)h->n_ff, n * sizeof *to);
        to += n;
    }
    int r = all ? put_numbers(k, PACK_ORDER, all, n_neurons(k->b), 4, e) : err_set(e, ERR_NOMEM, "orders of neurons");
    free(all);
    return r;
}

/* What comes before the neurons, of which an interrupted run may have written some or all. */
static int put_before_neurons(struct work *k, struct err *e)
{
    int r = 0;
    if (k->ffns)
        return 0;
    if (!k->loaded && ((r = put_meta(k, e)) < 0 || (r = put_types(k, e)) < 0))
        return r;
    if ((r = put_dense(k, e)) < 0 || (k->b->consume && (r = build_save(k, e)) < 0))
        return r;
    r = put_orders(k, e);
    return r < 0 ? r : put_all_predictors(k, e);
}

int build_run(const struct build *b, struct build_report *report, struct err *e)
{
    uint64_t ffn;
    struct work k = { .b = b, .report = report };
    *report = (struct build_report){ 0 };
    int64_t start = progress_now_ns();
    progress_init(&k.progress, "packing", "B", source_bytes(b, &ffn));
    int r = take_buffers(&k, e);
    if (r == 0 && (r = open_writer(&k, e)) == 0 && (r = put_before_neurons(&k, e)) == 0 && (r = put_all_neurons(&k, e)) == 0 &&
        (!b->consume || ((r = build_save(&k, e)) == 0 && (r = consume_rest(b->consume, e)) == 0)) &&
        (r = put_numbers(&k, PACK_CHECKS, k.checks, n_checks(b), 8, e)) == 0 &&
        (r = put_numbers(&k, PACK_UNIT_CHECKS, k.unit_checks, n_units(b), 4, e)) == 0)
        r = put_provenance(&k, e);
    if (r == 0) {
        report->memory_bytes = ffn + neurons_memory(k.neurons) + correction_memory(b) + FILE_BEHIND_BYTES;
        r = write_commit(k.w, &report->file_bytes, e);
        if (r == 0 && b->consume)
            consume_finished(b->consume);
        report->dense_stored_bytes = report->file_bytes - report->neuron_bytes;
    } else {
        write_abort(k.w);
    }
    report->seconds = (double)(progress_now_ns() - start) / 1e9;
    progress_done(&k.progress);
    for (int role = 0; role < LAYOUT_ROLES; role++)
        free(k.matrix[role]);
    corrected_free(k.corrected);
    free(k.made);
    free(k.piece);
    free(k.checks);
    free(k.unit_checks);
    neurons_free(k.neurons);
    return r;
}

int build_dry_run(const struct build *b, int json, struct err *e)
{
    uint64_t file, memory, space;
    build_estimate(b, &file, &memory);
    int r = file_free_bytes(b->out_path, &space, e);
    if (r < 0)
        return r;
    if (json) {
        struct js *o = js_object();
        js_put(o, JS_U64("file_bytes_at_most", file), JS_U64("working_memory_bytes", memory), JS_U64("free_bytes", space));
        r = js_print(stdout, o, 2, 6, e);
        js_free(o);
        return r;
    }
    char f[24], m[24], s[24];
    print("would write %s: at most %s (%s free), using about %s of memory\n", b->out_path,
           size_format(file, f, sizeof f), size_format(space, s, sizeof s),
           size_format(memory, m, sizeof m));
    return 0;
}
