/* The accelerator beside the processor: which hot neurons it has, what is queued while an FFN begins, the sum of both, and what happens
 * when it fails. Its neurons are a prefix of each FFN's resident ones, so that it never waits for reads; in some large passes it has what
 * is not resident, too (engine_accel_rest.c). */
#include "runtime/engine/engine_accel.h"

#include "common/base/progress.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PRODUCTS  4
#define PATIENCE_NS    300000 /* of threads beside a device with memory of its own, which has a layer's neurons for less; others are part of
                               * the chip that these would heat */

struct piece {
    const uint8_t *data;
    size_t bytes;
};

/* ---- heights ---- */

static size_t ffns_of(const struct engine *g)
{
    return (size_t)g->h.n_layers * (size_t)g->n_blocks;
}

/* Of tiles, whose last may be a smaller one, whole clusters alone. */
uint32_t engine_accel_height(const struct layout_shapes *shapes, const struct budget_choice *c, const struct engine_height *x, int n_blocks,
                             int layer, int block)
{
    const struct layout_shape *s = layout_of(shapes, layer);
    size_t parts = (size_t)s->n_parts;
    const uint32_t *hot = c->hot ? c->hot + ((size_t)layer * (size_t)n_blocks + (size_t)block) * parts : NULL;
    return hot ? layout_height(s, hot, x->neurons ? x->neurons : (uint32_t)(x->share * s->n_ff + 0.5)) : 0;
}

static uint32_t height_of(const struct engine *g, const struct engine_height *x, int layer, int block)
{
    return engine_accel_height(g->shapes, &g->c.choice, x, g->n_blocks, layer, block);
}

static uint32_t most_of(const struct engine *g, int layer, int block)
{
    uint32_t most = 0;
    for (int i = 0; i < g->c.accel.n_heights; i++) {
        uint32_t n = height_of(g, &g->c.accel.heights[i], layer, block);
        most = n > most ? n : most;
    }
    return most;
}

static int index_of(const struct engine *g, int n)
{
    const struct engine_accel_config *c = &g->c.accel;
    int i = 0;
    while (i + 1 < c->n_heights && c->heights[i].tokens < n)
        i++;
    return i;
}

/* What each FFN gives by each height: a pass takes its own by a pointer, and waits for nothing. */
static void prepare_shares(struct engine *g)
{
    const struct engine_accel *x = g->accel;
    for (int by = 0; by < g->c.accel.n_heights; by++)
        for (size_t i = 0; i < ffns_of(g); i++) {
            int layer = (int)(i / (size_t)g->n_blocks), block = (int)(i % (size_t)g->n_blocks);
            x->shares[(size_t)by * ffns_of(g) + i] = x->takes[i] ? height_of(g, &g->c.accel.heights[by], layer, block) : 0;
        }
}

void engine_accel_use(struct engine *g, int n)
{
    struct engine_accel *x = g->accel;
    if (!x)
        return;
    x->stale = 0;
    g->stats.accel.passes += !x->lost;
    x->beside = x->shares + (size_t)index_of(g, n) * ffns_of(g);
    x->rest = x->can_rest && !x->lost && !g->predicted && g->c.accel.heights[index_of(g, n)].rest;
    pipeline_beside(g->pipe, x->beside);
    if (g->c.choice.area_bytes)
        pipeline_leave_rest(g->pipe, x->order, x->rest ? g->h.n_layers : 0);
}

uint64_t engine_accel_neurons(const struct engine *g, int n)
{
    uint64_t sum = 0;
    for (size_t i = 0; g->accel && i < ffns_of(g); i++)
        sum += g->accel->shares[(size_t)index_of(g, n) * ffns_of(g) + i];
    return sum;
}

uint64_t engine_accel_rest(const struct engine *g, int n)
{
    const struct engine_accel *x = g->accel;
    uint64_t sum = 0;
    for (int l = 0; x && x->can_rest && !x->lost && g->c.accel.heights[index_of(g, n)].rest && l < g->h.n_layers; l++) {
        const struct layout_shape *s = layout_of(g->shapes, l);
        const uint32_t none[LAYOUT_MAX_PARTS] = { 0 }, *hot = g->c.choice.hot ? g->c.choice.hot + engine_hot_index(g, l, 0, 0) : none;
        sum += (uint64_t)s->n_ff - rest_first(s, hot);
    }
    return sum;
}

int engine_accel_takes_rest(const struct engine *g)
{
    return g->accel && g->accel->can_rest;
}

const uint32_t *engine_accel_beside(const struct engine *g)
{
    return g->accel ? g->accel->beside : NULL;
}

/* ---- matrices ---- */

/* The first h neurons of an FFN, from the hot region. */
static void fill_ffn(const struct engine *g, int layer, int block, uint32_t h, struct accel_ffn *f)
{
    const struct layout_shape *s = layout_of(g->shapes, layer);
    const struct layout_part *first = &s->part[0], *last = &s->part[g->n_parts - 1];
    const uint8_t *gate = g->hot + g->hot_at[engine_hot_index(g, layer, block, 0)];
    const uint8_t *rest = g->hot + g->hot_at[engine_hot_index(g, layer, block, g->n_parts - 1)];
    int tiles = first->record_neurons > 1, t = (int)first->record_neurons, d = g->h.d_model;
    const struct pipeline_bias *b = &g->biases[layer];
    size_t at = (size_t)block * (size_t)s->n_ff;
    f->gate = (struct accel_matrix){ .data = gate + first->role_offset[LAYOUT_GATE], .type = s->type[LAYOUT_GATE], .n_rows = (int)h,
                                     .n_cols = d,
                                     .row_stride = tiles ? first->role_bytes[LAYOUT_GATE] : first->record_bytes };
    f->up = s->ungated ? f->gate : (struct accel_matrix){ .data = rest + last->role_offset[LAYOUT_UP], .type = s->type[LAYOUT_UP],
                                                          .n_rows = (int)h, .n_cols = d,
                                                          .row_stride = tiles ? last->role_bytes[LAYOUT_UP] : last->record_bytes };
    f->down = (struct accel_matrix){ .data = rest + last->role_offset[LAYOUT_DOWN], .type = s->type[LAYOUT_DOWN],
                                     .n_rows = tiles ? d : (int)h,
                                     .n_cols = tiles ? (int)h : d,
                                         .row_stride = tiles ? last->role_bytes[LAYOUT_DOWN] : last->record_bytes };
    f->turned = !tiles;
    if (tiles) {
        f->gate.group_rows = f->up.group_rows = f->down.run_elems = t;
        f->gate.group_stride = f->up.group_stride = f->down.run_stride = first->record_bytes;
    }
    f->gate_bias = b->gate ? b->gate + at : NULL;
    f->up_bias = b->up ? b->up + at : NULL;
    f->silence = b->silence ? b->silence + at : NULL;
    f->act = g->h.act;
}

static int can_take(const struct engine *g, int layer, int block, uint32_t h)
{
    const struct accel *a = g->accel->a;
    struct accel_ffn f = { 0 };
    if (!h)
        return 0;
    fill_ffn(g, layer, block, h, &f);
    return a->backend->takes(a, &f.gate, 0) && a->backend->takes(a, &f.up, 0) && a->backend->takes(a, &f.down, f.turned);
}

static void add_matrix(const struct dense_matrix *m, int times, struct piece *to, int *n)
{
    if (m->data)
        to[(*n)++] = (struct piece){ m->data, (size_t)times * (size_t)m->n_rows * m->row_bytes };
}

static int by_address(const void *a, const void *b)
{
    const struct piece *p = a, *q = b;
    return ((uintptr_t)p->data > (uintptr_t)q->data) - ((uintptr_t)p->data < (uintptr_t)q->data);
}

static void add_dense(const struct engine *g, struct piece *to, int *n)
{
    if (g->c.accel.work & PLAN_WORK_HEAD)
        add_matrix(dense_at(&g->weights, MODEL_OUTPUT, -1), 1, to, n);
    for (int l = 0; l < model_depth(&g->h) && (g->c.accel.work & PLAN_WORK_ATTENTION); l++)
        for (int i = 0; i < graph_n_roles; i++) {
            const struct graph_role *of = &graph_roles[i];
            if (of->job && !of->host && model_role_is_per_layer((enum model_role)of->role))
                add_matrix(dense_at(&g->weights, (enum model_role)of->role, l), of->times ? of->times : 1, to, n);
        }
    for (int i = 0; i < model_depth(&g->h); i++) {
        size_t bytes = (size_t)g->n_blocks * (size_t)model_n_ff(&g->h, i) * sizeof(float);
        const float *const all[] = { g->biases[i].gate, g->biases[i].up, g->biases[i].silence };
        for (int k = 0; k < 3; k++)
            if (all[k])
                to[(*n)++] = (struct piece){ (const uint8_t *)all[k], bytes };
    }
}

static int add_weights(struct engine *g, struct err *e)
{
    struct engine_accel *x = g->accel;
    size_t most = ffns_of(g) * (size_t)g->n_parts + (size_t)model_depth(&g->h) * (GRAPH_PRODUCTS + 3) + 1 + REST_SLOTS;
    struct piece *all = malloc(most * sizeof *all);
    int n = 0, r = 0;
    if (!all)
        return err_set(e, ERR_NOMEM, "out of memory for an accelerator");
    for (size_t i = 0; i < ffns_of(g); i++)
        for (int p = 0; p < g->n_parts; p++) {
            int layer = (int)(i / (size_t)g->n_blocks), block = (int)(i % (size_t)g->n_blocks);
            uint32_t h = most_of(g, layer, block), gates = engine_accel_rest_resident(g, layer, p);
            size_t bytes = (size_t)layout_bytes(&layout_of(g->shapes, layer)->part[p], h > gates ? h : gates);
            if (bytes)
                all[n++] = (struct piece){ g->hot + g->hot_at[engine_hot_index(g, layer, block, p)], bytes };
        }
    for (int i = 0; i < REST_SLOTS && g->c.choice.area_bytes; i++) {
        size_t slot = (size_t)rest_slot_bytes(&g->shapes->kind[0], g->c.choice.area_bytes);
        all[n++] = (struct piece){ g->area + (size_t)i * slot, slot };
    }
    add_dense(g, all, &n);
    qsort(all, (size_t)n, sizeof *all, by_address);
    for (int i = 0; i < n && r == 0; i++)
        r = x->a->backend->add(x->a, all[i].data, all[i].bytes, e);
    free(all);
    return r;
}

/* ---- life ---- */

#define FFN_BYTES(parts) (1 + 4 * ENGINE_MAX_HEIGHTS + (uint64_t)(parts) * 2 * sizeof(struct piece))
#define LAYER_BYTES      (18 * sizeof(struct piece))
_Static_assert(FFN_BYTES(LAYOUT_MAX_PARTS) <= SCHEDULE_ENGINE_FFN && LAYER_BYTES <= SCHEDULE_ENGINE_LAYER, "plans have room for tables");

void engine_accel_need(const struct pack *p, const struct budget_scratch *s, enum plan_work work, struct accel_need *out)
{
    uint64_t widest = 0, rows = 0, head = 0;
    *out = (struct accel_need){ .tokens = s->rows, .d_model = p->h.d_model, .neurons = p->h.n_ff };
    if (work == PLAN_WORK_FFN)
        return;
    for (int l = work & PLAN_WORK_HEAD ? -1 : 0; l < model_depth(&p->h); l++) {
        uint64_t sum = 0, most = 0;
        for (int i = 0; i < p->n_dense; i++) {
            const struct pack_dense *d = &p->dense[i];
            if (d->layer != l || d->dims[1] < 2)
                continue;
            sum += d->dims[1];
            most = d->dims[1] > most ? d->dims[1] : most;
            widest = d->dims[0] > widest ? d->dims[0] : widest;
        }
        head = l < 0 ? most : head;
        rows = l >= 0 && sum > rows && (work & PLAN_WORK_ATTENTION) ? sum : rows;
    }
    budget_engine_products(s->tokens, widest, rows, head, &out->inputs, &out->outputs);
}

uint64_t engine_accel_bytes(const struct pack *p, const struct budget_scratch *s, enum plan_work work, const struct accel *a)
{
    struct accel_need need;
    engine_accel_need(p, s, work, &need);
    uint64_t ffns = (uint64_t)p->h.n_layers * (uint64_t)model_ffn_blocks(&p->h);
    return a->backend->buffers(a, &need) + (uint64_t)s->rows * (uint64_t)p->h.d_model * 4 +
           ffns * FFN_BYTES(p->shapes.n_parts) + (uint64_t)model_depth(&p->h) * LAYER_BYTES + SCHEDULE_ENGINE_TABLES;
}

int engine_accel_open(struct engine *g, struct err *e)
{
    struct accel *a = g->c.accel.accel;
    int r, n_heights = g->c.accel.n_heights > 0 ? g->c.accel.n_heights : 1;
    if (!a)
        return 0;
    struct engine_accel *x = g->accel = calloc(1, sizeof *x);
    if (!x)
        return err_set(e, ERR_NOMEM, "out of memory for an accelerator");
    *x = (struct engine_accel){ .a = a, .g = g, .takes = calloc(ffns_of(g), 1),
                                .shares = calloc((size_t)n_heights * ffns_of(g), sizeof *x->shares),
                                .out = calloc((size_t)g->scratch.rows * (size_t)g->h.d_model, sizeof *x->out),
                                .order = calloc((size_t)g->h.n_layers, sizeof *x->order) };
    if (!x->takes || !x->shares || !x->out || !x->order)
        return err_set(e, ERR_NOMEM, "out of memory for an accelerator");
    x->beside = x->shares;
    engine_accel_need(g->c.pack, &g->scratch, g->c.accel.work, &x->need);
    if ((r = add_weights(g, e)) < 0 || (r = a->backend->allocate(a, &x->need, e)) < 0) {
        if (g->c.accel.fail_exit)
            return e->code = r == ERR_NOMEM ? r : ERR_IO;
        x->lost = 1;
        x->why = *e;
        return 0;
    }
    for (size_t i = 0; i < ffns_of(g); i++) {
        int layer = (int)(i / (size_t)g->n_blocks), block = (int)(i % (size_t)g->n_blocks);
        x->takes[i] = (uint8_t)can_take(g, layer, block, most_of(g, layer, block));
    }
    prepare_shares(g);
    struct accel_info info;
    a->backend->describe(a, &info);
    pool_patience(g->pool, info.device.shares_memory ? 0 : PATIENCE_NS);
    x->can_rest = engine_accel_can_rest(g);
    for (int i = 0, n = 0; i < model_depth(&g->h); i++)
        if (!model_is_lead(&g->h, model_layer_at(&g->h, i)))
            x->order[n++] = model_layer_at(&g->h, i);
    return 0;
}

int engine_accel_close(struct engine *g)
{
    struct engine_accel *x = g->accel;
    struct accel *a = g->c.accel.accel;
    int used = a ? a->backend->close(a) : 0;
    if (x) {
        free(x->takes);
        free(x->shares);
        free(x->out);
        free(x->order);
    }
    free(x);
    g->accel = NULL;
    return used;
}

int engine_accel_info(const struct engine *g, struct accel_info *out, const char **lost)
{
    const struct engine_accel *x = g->accel;
    if (!x)
        return 0;
    x->a->backend->describe(x->a, out);
    *lost = x->lost ? x->why.msg : NULL;
    return 1;
}

/* ---- faults ---- */

/* From here on the processor works alone; or that is not wanted: ERR_IO. */
static int fault(struct engine *g, const struct err *why, struct err *e)
{
    struct engine_accel *x = g->accel;
    if (!x->lost) {
        x->lost = x->stale = 1;
        x->why = *why;
        memset(x->shares, 0, (size_t)g->c.accel.n_heights * ffns_of(g) * sizeof *x->shares);
        x->rest = 0;
        if (g->c.choice.area_bytes)
            pipeline_leave_rest(g->pipe, NULL, 0);
    }
    return g->c.accel.fail_exit ? err_set(e, ERR_IO, "%s", why->msg) : 0;
}

/* ---- FFNs ---- */

struct queueing {
    struct engine *g;
    int layer, n;
    const struct pipeline_ffn *f;
    int queued;                 /* FFNs; or ERR_*, and why */
    struct err why;
};

/* A driver takes tens of microseconds for it: the other threads compute meanwhile. */
static void queue(void *ctx)
{
    struct queueing *q = ctx;
    struct engine *g = q->g;
    struct engine_accel *x = g->accel;
    struct accel_ffn all[SCHEDULE_MAX_BLOCKS];
    const struct pipeline_ffn *f = q->f;
    float *out = x->out;
    int k = 0, layer = q->layer;
    assert(q->n <= SCHEDULE_MAX_BLOCKS);
    for (int i = 0; i < q->n; i++) {
        uint32_t h = x->beside[(size_t)layer * (size_t)g->n_blocks + (size_t)f[i].block];
        if (!h)
            continue;
        all[k] = (struct accel_ffn){ .in = f[i].in.f32, .out = out, .n_tokens = f[i].in.n_tokens };
        fill_ffn(g, layer, f[i].block, h, &all[k++]);
        out += (size_t)f[i].in.n_tokens * (size_t)g->h.d_model;
        g->stats.accel.neurons += h;
    }
    int r = k ? x->a->backend->ffn(x->a, all, k, &q->why) : 0;
    q->queued = r < 0 ? r : k;
}

void engine_accel_add(const struct engine_accel *x, const float *from, int n_tokens, float *out)
{
    size_t all = (size_t)n_tokens * (size_t)x->g->h.d_model;
    for (size_t k = 0; k < all; k++)
        out[k] += from[k];
}

int engine_accel_wait(struct engine_accel *x, int (*meanwhile)(void *ctx, struct err *e), void *ctx, struct err *why)
{
    int64_t start = progress_now_ns();
    int r = x->a->backend->wait(x->a, meanwhile, ctx, why);
    x->g->stats.accel.wait_ns += (uint64_t)(progress_now_ns() - start);
    return r;
}

/* The processor's sum first: for each element there are two terms, whatever was done first. */
static void add_sums(const struct engine *g, int layer, struct pipeline_ffn *f, int n)
{
    const struct engine_accel *x = g->accel;
    const float *from = x->out;
    for (int i = 0; i < n; i++) {
        size_t all = (size_t)f[i].in.n_tokens * (size_t)g->h.d_model;
        if (!x->beside[(size_t)layer * (size_t)g->n_blocks + (size_t)f[i].block])
            continue;
        engine_accel_add(x, from, f[i].in.n_tokens, f[i].out);
        from += all;
    }
}

/* What the accelerator had is gone: all of these FFNs again, every gate of them, for what predictors see may be gone, too. */
static int run_alone(struct engine *g, int layer, struct pipeline_ffn *f, int n, struct err *e)
{
    pipeline_begin(g->pipe, 0);
    int r = pipeline_run(g->pipe, layer, f, n, e);
    pipeline_begin(g->pipe, g->predicted);
    return r;
}

int engine_accel_run(struct engine *g, int layer, struct pipeline_ffn *f, int n, struct err *e)
{
    struct engine_accel *x = g->accel;
    struct queueing q = { .g = g, .layer = layer, .n = n, .f = f };
    if (!x || x->lost) {
        int done = pipeline_run(g->pipe, layer, f, n, e), again = done == 0 && x && x->stale;
        if (again)
            x->stale = 0;
        return again ? run_alone(g, layer, f, n, e) : done;
    }
    pipeline_at_start(g->pipe, queue, &q);
    int r = pipeline_run(g->pipe, layer, f, n, e), waited = 0;
    int rest = x->rest && q.queued >= 0 && r == 0;
    if (rest && (r = engine_accel_run_rest(g, layer, &f[0], q.queued > 0, &q.why, e)) > 0)
        r = 0, waited = -1;
    if (q.queued > 0 && !rest)
        waited = engine_accel_wait(x, NULL, NULL, &q.why);
    if (r < 0)
        return r;
    if (q.queued < 0 || waited < 0) {
        r = fault(g, &q.why, e);
        x->stale = 0;
        return r < 0 ? r : run_alone(g, layer, f, n, e);
    }
    if (!rest)
        add_sums(g, layer, f, n);
    return 0;
}

/* ---- other products ---- */

/* Is it the accelerator's in a pass of so many tokens? The head is that of as many tokens as logits are asked for. */
static int is_given(const struct engine *g, const struct dense_matrix *m, int n_tokens)
{
    const struct engine_accel_config *c = &g->c.accel;
    enum plan_work work = c->n_heights ? c->heights[index_of(g, n_tokens)].work : PLAN_WORK_FFN;
    return (work & (m == dense_at(&g->weights, MODEL_OUTPUT, -1) ? PLAN_WORK_HEAD : PLAN_WORK_ATTENTION)) != 0;
}

struct polled {
    const struct dense_reads *reads;
    int failed;
};

static int poll(void *ctx, struct err *e)
{
    struct polled *p = ctx;
    return p->failed = p->reads->poll(p->reads->ctx, e);
}

static int some_products(struct engine_accel *x, const struct dense_matrix *const m[], float *const out[], int n, const struct acts *in,
                         int t0,
                         int n_tokens, struct polled *polled, struct err *e)
{
    struct accel_product p[MOST_PRODUCTS];
    for (int i = 0; i < n; i++)
        p[i] = (struct accel_product){ { .data = m[i]->data, .type = m[i]->type, .n_rows = m[i]->n_rows, .n_cols = m[i]->n_cols,
                                         .row_stride = m[i]->row_bytes },
                                       in->f32 + (size_t)t0 * (size_t)in->n_cols, out[i] + (size_t)t0 * (size_t)m[i]->n_rows, n_tokens };
    int r = x->a->backend->products(x->a, p, n, e);
    return r < 0 ? r : x->a->backend->wait(x->a, polled->reads ? poll : NULL, polled, e);
}

static int products(void *ctx, const struct dense_matrix *const m[], float *const out[], int n, const struct acts *in,
                    const struct dense_reads *reads, struct err *e)
{
    struct engine_accel *x = ctx;
    struct polled polled = { reads, 0 };
    struct err why = { 0 };
    uint64_t rows = 0, tokens = SCHEDULE_ENGINE_TOKENS;
    int r = 0;
    if (x->lost || n > MOST_PRODUCTS || !is_given(x->g, m[0], in->n_tokens))
        return 0;
    for (int i = 0; i < n; i++) {
        const struct accel_matrix one = { .data = m[i]->data, .type = m[i]->type, .n_rows = m[i]->n_rows, .n_cols = m[i]->n_cols,
                                          .row_stride = m[i]->row_bytes };
        if (!x->a->backend->takes(x->a, &one, 0))
            return 0;
        rows += (uint64_t)m[i]->n_rows;
    }
    tokens = tokens * (uint64_t)in->n_cols > x->need.inputs ? x->need.inputs / (uint64_t)in->n_cols : tokens;
    tokens = tokens * rows > x->need.outputs ? x->need.outputs / rows : tokens;
    if (!tokens)
        return 0;
    for (int t = 0; t < in->n_tokens && r == 0; t += (int)tokens) {
        int some = in->n_tokens - t < (int)tokens ? in->n_tokens - t : (int)tokens;
        r = some_products(x, m, out, n, in, t, some, &polled, &why);
    }
    if (polled.failed < 0) {
        *e = why;
        return r;
    }
    if (r < 0)
        return fault(x->g, &why, e);
    x->g->stats.accel.products += (uint64_t)n;
    return 1;
}

const struct dense_elsewhere *engine_accel_products(struct engine *g)
{
    struct engine_accel *x = g->accel;
    if (!x || g->c.accel.work == PLAN_WORK_FFN)
        return NULL;
    x->elsewhere = (struct dense_elsewhere){ products, x };
    return &x->elsewhere;
}
