/* The account of memory. One function computes it for planner and runtime; the runtime then takes
 * its arena in these sizes, so a term forgotten here shows at once as an overflow of an item there
 * (it asserts), and a term too large as memory that the tests see unused. All products are checked:
 * the numbers come from files and command lines. */
#include "common/plan/budget.h"

#include "common/accel/accel_sums.h"
#include "common/base/ckmath.h"
#include "common/base/pool.h"
#include "common/kernels/kernels.h"
#include "common/model/tokenizer.h"
#include "common/ops/ops.h"
#include "common/plan/cache.h"
#include "common/plan/reads.h"

#include <string.h>

/* Code, libraries, libc, kernel stacks and rings, the main stack, malloc of start-up. Measured on Debian 12, x86-64,
 * November 2026: VmHWM less the mapping is 2.8 MiB at most, stacks and tables of META included, and 0.25 MiB of
 * kernel memory are charged to the cgroup; see runtime/README.md, tests/e2e/memory.sh holds it. */
#define PAGE_TABLE    512 /* bytes that one byte of page table maps: 8 for every 4096 */
#define META_FIXED    (96u << 10) /* hyper-parameters, key tables, command line, plan header */

static const char *const item_names[BUDGET_ITEMS] = {
    "process", "stacks", "meta", "engine", "room", "dense", "predictor", "kv", "scratch", "staging", "checks", "index", "hot", "cold",
};

const char *budget_item_name(enum budget_item i)
{
    return (unsigned)i < BUDGET_ITEMS ? item_names[i] : "?";
}

static uint64_t up64(uint64_t v)
{
    return (v + 63) & ~(uint64_t)63;
}

uint64_t budget_table_bytes(uint64_t bytes)
{
    return up64(bytes / PAGE_TABLE + (bytes % PAGE_TABLE != 0));
}

uint64_t budget_dense_tensor(uint64_t bytes)
{
    return up64(bytes);
}

/* ---- tables of rows ---- */

int budget_add_dense(struct budget_model *m, enum model_role role, uint64_t bytes, uint64_t rows, int by_row)
{
    int looked_up = role == MODEL_LAYER_EMBD || (role == MODEL_TOKEN_EMBD && !m->h.tied_output && !m->h.mtp);
    if (m->dense_bytes + up64(bytes) < m->dense_bytes || up64(bytes) < bytes)
        return -1;
    m->dense_bytes += up64(bytes);
    m->n_tensors++;
    if (looked_up && by_row && rows && rows <= UINT32_MAX && bytes / rows <= UINT32_MAX / 4 && m->n_tables < BUDGET_TABLES)
        m->table[m->n_tables++] = (struct budget_table){ role, rows, bytes / rows };
    return 0;
}

uint64_t budget_block_bytes(const struct layout_shapes *s)
{
    return s->l.block_bytes ? s->l.block_bytes : 4096; /* no layout is known yet */
}

uint64_t budget_row_buffer(const struct layout_shapes *s, uint64_t row_bytes)
{
    uint64_t block = budget_block_bytes(s);
    return (row_bytes + block - 1) / block * block + block;
}

uint64_t budget_table_stream(const struct budget_model *m, const struct budget_table *t)
{
    return BUDGET_ROW_BUFFERS * budget_row_buffer(&m->shapes, t->row_bytes) + m->shapes.l.block_bytes + up64(t->rows * sizeof(uint32_t));
}

int budget_streams(const struct budget_model *m, const struct budget_choice *c, const struct budget_table *t)
{
    return c->stream_tables && 2 * budget_table_stream(m, t) < t->rows * t->row_bytes;
}

/* What stays of dense tensors. */
static void dense_items(struct budget *b, const struct budget_model *m, const struct budget_choice *c)
{
    uint64_t stacks = (uint64_t)(c->threads - 1) * POOL_STACK_BYTES + (uint64_t)c->io_lanes * BUDGET_IO_STACK_BYTES;
    int any = 0;
    b->item[BUDGET_DENSE] = up64(m->dense_bytes);
    for (int i = 0; i < m->n_tables; i++)
        if (budget_streams(m, c, &m->table[i])) {
            b->item[BUDGET_DENSE] -= up64(m->table[i].rows * m->table[i].row_bytes) - up64(budget_table_stream(m, &m->table[i]));
            any = 1;
        }
    b->item[BUDGET_STACKS] = stacks + (any ? BUDGET_ROW_LANES * BUDGET_IO_STACK_BYTES : 0);
}

uint64_t budget_hot_bytes(const struct layout_shape *s, int part, uint32_t neurons)
{
    return up64(layout_bytes(&s->part[part], neurons));
}

uint64_t budget_slot_bytes(const struct layout_shape *s, int part)
{
    const struct layout_part *p = &s->part[part];
    return p->record_neurons > 1 && !s->packed ? p->stride_bytes : up64(p->unit_bytes);
}

int budget_reads_into_slots(const struct layout_shape *s, int part)
{
    const struct layout_part *p = &s->part[part];
    uint64_t slot = budget_slot_bytes(s, part), block = s->block_bytes;
    return slot >= p->read_bytes && slot % block == 0 && p->first_offset % block == 0 && p->stride_bytes % block == 0;
}

uint64_t budget_check_bytes(const struct layout_shape *s, int part, uint32_t neurons)
{
    const struct layout_part *p = &s->part[part];
    uint64_t hot = ((uint64_t)neurons + p->neurons_per_unit - 1) / p->neurons_per_unit;
    return up64((p->n_units - hot) * sizeof(uint32_t));
}

uint64_t budget_staging_bytes(const struct layout_shape *s)
{
    return budget_read_bytes(s, 0);
}

uint64_t budget_read_bytes(const struct layout_shape *s, uint32_t read_bytes)
{
    uint64_t need = 32u << 10, align = s->block_bytes > 4096 ? s->block_bytes : 4096;
    need = read_bytes > need ? read_bytes : need;
    need = s->largest_read > need ? s->largest_read : need;
    return (need + align - 1) / align * align;
}

void budget_add_predictor(struct budget_predictors *p, const struct layout_shape *s, int rank, uint64_t bytes, uint64_t row1,
                          uint64_t row2, int two_sided)
{
    struct predict_pieces x;
    predict_pieces_of(row1, rank, row2, two_sided, s->n_ff, 0, s->cluster_neurons, s->block_bytes, &x);
    p->rank = rank > p->rank ? rank : p->rank;
    p->bytes += budget_dense_tensor(bytes);
    p->buffer_bytes = x.buffer_bytes > p->buffer_bytes ? x.buffer_bytes : p->buffer_bytes;
    p->least = 2;
    p->most = x.n_hidden + x.n_scores > p->most ? x.n_hidden + x.n_scores : p->most;
    uint32_t ranges = ((uint32_t)s->n_ff + x.range - 1) / x.range;
    p->ranges = ranges > p->ranges ? ranges : p->ranges;
    p->n++;
}

uint64_t budget_predictor_check_bytes(const struct budget_predictors *p)
{
    return up64(((uint64_t)p->rank + p->ranges) * sizeof(uint32_t));
}

uint64_t budget_stream_bytes(const struct budget_predictors *p, uint32_t buffers)
{
    return buffers ? buffers * p->buffer_bytes + up64((uint64_t)buffers * SCHEDULE_READ_BYTES) +
                         p->n * budget_predictor_check_bytes(p)
                   : 0;
}

/* Sticky checked arithmetic, so that formulas read as formulas. */
struct sum {
    uint64_t v;
    int bad;
};

static uint64_t mul(struct sum *s, uint64_t a, uint64_t b)
{
    uint64_t r = 0;
    if (!ck_mul_u64(a, b, &r) || r > UINT64_MAX / 4)
        s->bad = 1;
    return s->bad ? 0 : r;
}

/* Arrays of n rows of floats, and of activations in int8. */
static uint64_t floats(struct sum *s, uint64_t n, uint64_t each)
{
    return up64(mul(s, mul(s, n, each), sizeof(float)));
}

static uint64_t acts(struct sum *s, uint64_t n, uint64_t each)
{
    return up64(mul(s, mul(s, n, (each + 127) / 128), sizeof(struct kernels_q8_group)));
}

static void add(struct sum *s, uint64_t a)
{
    if (!ck_add_u64(s->v, a, &s->v) || s->v > UINT64_MAX / 4)
        s->bad = 1;
    if (s->bad)
        s->v = 0;
}

static int in_range(const char *what, long long v, long long min, long long max, struct err *e)
{
    if (v < min || v > max)
        return err_set(e, ERR_LIMIT, "memory account: %s is %lld; %lld to %lld is possible", what, v, min, max);
    return 0;
}

static int check_choice(const struct budget_model *m, const struct budget_choice *c, struct err *e)
{
    const struct model_hparams *h = &m->h;
    int r = 0;
#define SPARE(name, least, most) r = r < 0 ? r : in_range(#name, h->name, 0, most, e);
#include "common/model/hparams.def"
    if (r < 0 || (r = in_range("n_layers", h->n_layers, 1, MODEL_MAX_LAYERS, e)) < 0 ||
        (r = in_range("d_model", h->d_model, 1, MODEL_MAX_DIM, e)) < 0 ||
        (r = in_range("n_ff", h->n_ff, 1, MODEL_MAX_DIM, e)) < 0 ||
        (r = in_range("n_vocab", h->n_vocab, 1, MODEL_MAX_VOCAB, e)) < 0 ||
        (r = in_range("n_heads", h->n_heads, 1, MODEL_MAX_DIM, e)) < 0 ||
        (r = in_range("n_kv_heads", h->n_kv_heads, 1, h->n_heads, e)) < 0 ||
        (r = in_range("head_dim", h->head_dim, 1, MODEL_MAX_DIM, e)) < 0 ||
        (r = in_range("heads * head_dim", (long long)h->n_heads * h->head_dim, 1, MODEL_MAX_DIM, e)) < 0 ||
        (r = in_range("heads * head_dim_window", (long long)h->n_heads * h->head_dim_window, 0, MODEL_MAX_DIM, e)) < 0 ||
        (r = in_range("n_kv_window", h->n_kv_window, h->head_dim_window > 0, h->n_heads, e)) < 0 ||
        (r = in_range("kv_rank", h->kv_rank, 0, h->head_dim, e)) < 0 ||
        (r = in_range("heads * nope_dim", (long long)h->n_heads * h->nope_dim, 0, MODEL_MAX_DIM, e)) < 0 ||
        (r = in_range("heads * value_dim", (long long)h->n_heads * h->value_dim, 0, MODEL_MAX_DIM, e)) < 0 ||
        (r = in_range("n_rot", h->n_rot, 0, h->head_dim, e)) < 0 ||
        (r = in_range("conv_width", h->conv_width, h->full_period ? 2 : 0, MODEL_MAX_CONV, e)) < 0 ||
        (r = in_range("delta_dim", h->delta_dim, h->full_period > 0, MODEL_MAX_DELTA, e)) < 0 ||
        (r = in_range("delta_v_heads * delta_dim", (long long)h->delta_v_heads * h->delta_dim, h->full_period > 0, MODEL_MAX_DIM / 4,
                      e)) < 0 ||
        (r = in_range("delta_k_heads", h->delta_k_heads, h->full_period > 0, h->delta_v_heads, e)) < 0 ||
        (r = in_range("n_experts", h->n_experts, 0, MODEL_MAX_EXPERTS, e)) < 0 ||
        (r = in_range("n_experts_used", h->n_experts_used, 0, h->n_experts, e)) < 0 ||
        (r = in_range("context", c->context, 1, MODEL_MAX_CONTEXT, e)) < 0 ||
        (r = in_range("max_batch", c->max_batch, 1, BUDGET_MAX_BATCH, e)) < 0 ||
        (r = in_range("kv_positions", c->kv_positions, 0, (long long)c->max_batch * c->context, e)) < 0 ||
        (r = in_range("prefill_chunk", c->prefill_chunk, 1, BUDGET_MAX_CHUNK, e)) < 0 ||
        (r = in_range("threads", c->threads, 1, BUDGET_MAX_THREADS, e)) < 0 ||
        (r = in_range("io_lanes", c->io_lanes, 1, BUDGET_MAX_LANES, e)) < 0 ||
        (r = in_range("queue_depth", c->queue_depth, 1, BUDGET_MAX_DEPTH, e)) < 0 ||
        (r = in_range("read_bytes", c->read_bytes, 0, READS_MAX_BYTES, e)) < 0 ||
        (r = in_range("area_bytes", c->area_bytes > BUDGET_MAX_AREA ? -1 : (long long)c->area_bytes, 0, (long long)BUDGET_MAX_AREA,
                      e)) < 0 ||
        (r = in_range("predictor_rank", c->predictors.rank, 0, PREDICT_MAX_RANK, e)) < 0 ||
        (r = in_range("predictor_buffers", c->predictor_buffers, 0, BUDGET_MAX_STREAM, e)) < 0)
        return r;
    if (m->shapes.n_ff != h->n_ff || m->shapes.n_parts < 1 || m->shapes.n_parts > LAYOUT_MAX_PARTS)
        return err_set(e, ERR_LIMIT, "memory account: the layout is for n_ff %d, the model has %d", m->shapes.n_ff,
                       h->n_ff);
    if (m->shapes.l.n_layers && m->shapes.l.n_layers != h->n_layers)
        return err_set(e, ERR_LIMIT, "memory account: the layout has types for %d layers, the model has %d", m->shapes.l.n_layers,
                       h->n_layers);
    return 0;
}

/* What several blocks of a layer at a time need. */
static void blocks_of(const struct model_hparams *h, const struct budget_choice *c, struct budget_scratch *b)
{
    int used = h->n_experts_used > 1 ? h->n_experts_used : 1, batch = c->max_batch * used;
    b->blocks = used < SCHEDULE_MAX_BLOCKS ? used : SCHEDULE_MAX_BLOCKS;
    b->rows = c->prefill_chunk > batch ? c->prefill_chunk : batch;
}

int budget_scratch(const struct budget_model *m, const struct budget_choice *c, struct budget_scratch *out,
                   struct err *e)
{
    const struct model_hparams *h = &m->h;
    int r = check_choice(m, c, e);
    if (r < 0)
        return r;
    struct budget_scratch b = { .tokens = c->prefill_chunk > c->max_batch ? c->prefill_chunk : c->max_batch };
    struct sum s = { 0 };
    blocks_of(h, c, &b);
    uint64_t tokens = (uint64_t)b.tokens, rows = (uint64_t)b.rows, d = (uint64_t)h->d_model, threads = (uint64_t)c->threads;
    struct op_need need;
    ops_most(h, OPS_ALL, &need);
    b.hidden = floats(&s, tokens, d);
    b.act = acts(&s, tokens, graph_widest(h));
    b.qkv = floats(&s, tokens, need.q + need.kv);
    b.attn = floats(&s, tokens, need.attn);
    b.latent = floats(&s, tokens, need.latent);
    b.made = floats(&s, tokens, need.made);
    b.layered = floats(&s, tokens, need.layered);
    b.joined = floats(&s, tokens, need.joined);
    b.shared = floats(&s, tokens, need.shared);
    b.scores = mul(&s, threads * need.score_rows, floats(&s, 1, (uint64_t)c->context));
    b.logits = floats(&s, (uint64_t)c->max_batch, (uint64_t)h->n_vocab);
    b.ffn = floats(&s, rows, (uint64_t)h->n_ff);
    uint64_t units = m->shapes.n_clusters;
    for (int p = 0; p < m->shapes.n_parts; p++)
        units += layout_most_units(&m->shapes, p);
    b.entries = up64(mul(&s, units, SCHEDULE_ENTRY_BYTES) + mul(&s, (uint64_t)h->n_ff, 16) + 4096);
    b.gather = mul(&s, threads, up64(schedule_gather_bytes(tokens)));
    b.sampler = up64(mul(&s, (uint64_t)h->n_vocab, 16));
    b.tokens_in = floats(&s, (uint64_t)c->max_batch, (uint64_t)c->context);
    b.reads = mul(&s, (uint64_t)c->queue_depth, SCHEDULE_READ_BYTES);
    if (c->predictors.rank) {
        uint64_t rank = (uint64_t)c->predictors.rank;
        b.predict = floats(&s, tokens, rank);
        b.predict += up64(mul(&s, mul(&s, tokens, (rank + 127) / 128), sizeof(struct kernels_q8_group) + 128 * 4));
        b.predict += mul(&s, threads, up64(mul(&s, tokens, SCHEDULE_SCORE_ROWS * 4)));
        b.predict += up64(mul(&s, rows, schedule_bits_bytes((uint64_t)h->n_ff)));
    }
    const uint64_t parts[] = { b.hidden, b.hidden, b.hidden, b.act, b.qkv, b.attn, b.latent, b.made, b.layered, b.joined, b.shared,
                               b.scores, b.logits, b.ffn, b.gather, b.sampler, b.tokens_in, b.reads, b.predict };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        add(&s, parts[i]);
    add(&s, mul(&s, (uint64_t)b.blocks, b.entries));
    if (h->n_experts > 0) {
        uint64_t inputs = c->predictors.rank ? 2 : 1; /* the sum over experts, routing; what lookahead predictors see */
        b.picked = floats(&s, rows, d);
        b.picked_act = acts(&s, rows, d);
        add(&s, inputs * b.hidden + up64(mul(&s, mul(&s, tokens, (uint64_t)h->n_experts), 16)));
        add(&s, mul(&s, inputs + 1, b.picked));
        add(&s, mul(&s, inputs, b.picked_act));
    }
    if (s.bad)
        return err_set(e, ERR_LIMIT, "memory account: scratch for %d tokens and %d threads overflows 64 bits",
                       b.tokens, c->threads);
    b.total = s.v;
    *out = b;
    return 0;
}

static uint64_t meta_bytes(struct sum *s, const struct budget_model *m, const struct budget_choice *c)
{
    const struct model_hparams *h = &m->h;
    struct sum t = { 0 };
    uint64_t segments = (uint64_t)h->n_layers * (uint64_t)model_ffn_blocks(h);
    add(&t, META_FIXED);
    add(&t, m->meta_bytes);
    add(&t, mul(&t, m->n_tensors, 192));
    /* Bounds of vocabulary and merges keep the tokenizer's sum from overflowing. A layer that predicts further tokens has none. */
    if (!h->mtp && (m->vocab_text_bytes > UINT32_MAX || m->n_merges > UINT32_MAX))
        t.bad = 1;
    else if (!h->mtp)
        add(&t, tokenizer_heap_bound((uint64_t)h->n_vocab, m->vocab_text_bytes, m->n_merges));
    /* Segment offsets; hot and cold of one plan limit; its predictions, and the tables of a layer. */
    add(&t, mul(&t, segments, 64 + (uint64_t)m->shapes.n_parts * 16));
    add(&t, mul(&t, (uint64_t)model_depth(h), h->wkv_dim ? 1792 : 768));
    if (c->predictors.rank)
        add(&t, mul(&t, segments, sizeof(struct predict) + sizeof(struct predict_pieces) + sizeof(void *)));
    s->bad |= t.bad;
    return up64(t.v);
}

int budget_kv(const struct budget_model *m, const struct budget_choice *c, struct budget_kv *out, struct err *e)
{
    const struct model_hparams *h = &m->h;
    struct sum s = { 0 };
    int r = check_choice(m, c, e);
    if (r < 0)
        return r;
    uint64_t per_sequence = ((uint64_t)c->context + SCHEDULE_KV_PAGE - 1) / SCHEDULE_KV_PAGE, sequences = (uint64_t)c->max_batch;
    uint64_t pages = c->kv_positions ? ((uint64_t)c->kv_positions + SCHEDULE_KV_PAGE - 1) / SCHEDULE_KV_PAGE : sequences * per_sequence;
    struct budget_kv k = { .per_sequence = (int)per_sequence, .rows = (uint64_t)c->context };
    if (sequences > 1) {
        k.rows = pages * SCHEDULE_KV_PAGE;
        k.table_bytes = up64(sequences * per_sequence * sizeof(int32_t) + pages * sizeof(uint16_t));
    }
    struct op_need need;
    ops_most(h, OPS_ALL, &need);
    if (need.row && (r = kv_type_check(c->kv_type, h, e)) < 0)
        return r;
    k.row_bytes = kv_type_bytes(c->kv_type, need.row); /* the same in every layer */
    k.plane_bytes = up64(mul(&s, k.row_bytes, k.rows));
    k.total = mul(&s, k.plane_bytes, need.planes);
    k.state_bytes = floats(&s, 1, need.state);
    uint64_t states = mul(&s, mul(&s, k.state_bytes, sequences), need.states);
    k.states = k.total;
    add(&s, k.total);
    add(&s, states);
    if (s.bad || pages > INT32_MAX / SCHEDULE_KV_PAGE)
        return err_set(e, ERR_LIMIT, "memory account: a KV cache of %d sequences of %d positions is too large", c->max_batch, c->context);
    k.n_pages = (int)pages;
    k.total += states + k.table_bytes;
    *out = k;
    return 0;
}

/* CHECKS, INDEX, HOT and COLD. */
static int regions(struct budget *b, struct sum *s, const struct budget_model *m, const struct budget_choice *c,
                   int empty, struct err *e)
{
    const struct model_hparams *h = &m->h;
    size_t layers = (size_t)h->n_layers, blocks = (size_t)model_ffn_blocks(h), parts = (size_t)m->shapes.n_parts;
    struct sum checks = { 0 }, index = { 0 }, tables = { 0 }, hot = { 0 }, cold = { 0 };
    add(&index, up64(layers * blocks * parts * 8)); /* where each hot prefix begins, */
    add(&index, up64(layers * blocks * parts * 8)); /* the checksums of each part, */
    add(&index, up64(layers * parts * 8));          /* each cold segment, */
    add(&index, up64(layers * parts * 8));          /* and its cache */
    for (size_t l = 0; l < layers; l++)
        for (size_t p = 0; p < parts; p++) {
            const struct layout_shape *shape = layout_of(&m->shapes, (int)l);
            uint32_t slots = empty || !c->cold ? 0 : c->cold[l * parts + p];
            uint64_t units = mul(s, blocks, shape->part[p].n_units);
            if (units > UINT32_MAX / 2 || slots > units)
                return err_set(e, ERR_LIMIT, "memory account: layer %zu part %zu has %u cold slots for %llu units", l,
                               p, slots, (unsigned long long)units);
            add(&index, up64(cache_bytes((uint32_t)units, slots)));
            uint64_t slot_bytes = mul(s, slots, budget_slot_bytes(shape, (int)p));
            add(&cold, slot_bytes);
            add(&tables, budget_table_bytes(slot_bytes));
            for (size_t k = 0; k < blocks; k++) {
                uint32_t n = empty || !c->hot ? 0 : c->hot[(l * blocks + k) * parts + p];
                if (n > (uint32_t)shape->n_ff)
                    return err_set(e, ERR_LIMIT,
                                   "memory account: layer %zu expert %zu part %zu has %u hot neurons of %d", l, k, p,
                                   n, shape->n_ff);
                add(&hot, budget_hot_bytes(shape, (int)p, n));
                add(&tables, budget_table_bytes(budget_hot_bytes(shape, (int)p, n)));
                uint64_t check_bytes = budget_check_bytes(shape, (int)p, n);
                add(&checks, check_bytes);
                add(&tables, budget_table_bytes(check_bytes));
            }
        }
    add(&index, tables.v);
    s->bad |= checks.bad | index.bad | hot.bad | cold.bad;
    b->tables = tables.v;
    b->item[BUDGET_CHECKS] = checks.v;
    b->item[BUDGET_INDEX] = index.v;
    b->item[BUDGET_HOT] = hot.v;
    b->item[BUDGET_COLD] = cold.v;
    return 0;
}

static uint64_t total(struct sum *s, const struct budget *b)
{
    struct sum t = { 0 };
    for (int i = 0; i < BUDGET_ITEMS; i++)
        add(&t, b->item[i]);
    s->bad |= t.bad;
    return t.v;
}

/* All items but the regions', with these predictors in memory and so many buffers for the others. */
static void fixed_items(struct budget *b, struct sum *s, const struct budget_model *m, const struct budget_choice *c,
                        uint64_t predictor_bytes, uint32_t buffers)
{
    uint64_t stream = budget_stream_bytes(&c->predictors, buffers);
    b->item[BUDGET_PREDICTOR] = up64(predictor_bytes);
    b->item[BUDGET_STAGING] = mul(s, (uint64_t)c->queue_depth, budget_read_bytes(&m->shapes.kind[0], c->read_bytes)) + stream +
                              c->area_bytes;
    struct sum fixed = { 0 };
    for (int i = BUDGET_DENSE; i <= BUDGET_STAGING; i++)
        add(&fixed, b->item[i]);
    s->bad |= fixed.bad;
    b->item[BUDGET_PROCESS] = BUDGET_PROCESS_BYTES + budget_table_bytes(fixed.v);
}

/* Inputs, gates, ups, outputs and partial sums of the tokens of a pass, f32; outputs twice more in the host's memory, and inputs once where
 * the device has its own. */
static uint64_t engine_bytes(struct sum *s, const struct budget_model *m, const struct budget_engine *e, const struct budget_scratch *c)
{
    uint64_t rows = (uint64_t)c->rows, d = (uint64_t)m->h.d_model, layers = (uint64_t)model_depth(&m->h);
    struct sum all = { 0 };
    if (!e->on)
        return 0;
    if (e->driver_bytes > UINT64_MAX / 4)
        s->bad = 1;
    add(&all, (e->driver_bytes + (1 << 20) - 1) >> 20 << 20);
    add(&all, mul(s, rows, 8 * d));
    if (e->shares_memory) {
        add(&all, mul(s, rows, 8 * d));
        add(&all, mul(s, rows, 8 * (uint64_t)m->h.n_ff));
        add(&all, (uint64_t)ACCEL_SLICES * ACCEL_SLICE_TOKENS * 4 * d);
    } else {
        add(&all, mul(s, rows, 4 * d));
    }
    uint64_t in, out;
    budget_engine_products(c->tokens, e->widest, e->rows, e->head, &in, &out); /* count where FFNs' have less */
    add(&all, in > rows * d ? mul(s, 4, in - rows * d) : 0);
    add(&all, out > rows * d ? mul(s, e->shares_memory ? 8 : 4, out - rows * d) : 0);
    add(&all, mul(s, layers, (uint64_t)model_ffn_blocks(&m->h) * SCHEDULE_ENGINE_FFN + SCHEDULE_ENGINE_LAYER));
    add(&all, SCHEDULE_ENGINE_TABLES);
    s->bad |= all.bad;
    return up64(all.v);
}

int budget_compute(const struct budget_model *m, const struct budget_choice *c, struct budget *out, struct err *e)
{
    const struct budget_predictors *p = &c->predictors;
    struct budget b = { { 0 }, 0, 0, 0 };
    struct budget_scratch scratch;
    struct budget_kv kv;
    struct sum s = { 0 };
    int r = budget_scratch(m, c, &scratch, e);
    r = r < 0 ? r : budget_kv(m, c, &kv, e);
    if (r < 0)
        return r;
    struct budget_choice least = *c;
    least.stream_tables = 1;
    dense_items(&b, m, &least);
    b.item[BUDGET_META] = meta_bytes(&s, m, c);
    b.item[BUDGET_ENGINE] = engine_bytes(&s, m, &c->engine, &scratch);
    b.item[BUDGET_ROOM] = c->room_bytes;
    b.item[BUDGET_KV] = kv.total;
    b.item[BUDGET_SCRATCH] = scratch.total;
    if (p->buffer_bytes > UINT64_MAX / 4 / BUDGET_MAX_STREAM)
        s.bad = 1;
    int resident = p->bytes <= budget_stream_bytes(p, p->least); /* so small that buffers would be larger */
    fixed_items(&b, &s, m, c, resident ? p->bytes : 0, resident ? 0 : p->least);
    if ((r = regions(&b, &s, m, c, 1, e)) < 0)
        return r;
    b.floor = total(&s, &b);
    dense_items(&b, m, c);
    fixed_items(&b, &s, m, c, c->predictor_bytes, c->predictor_buffers);
    if ((r = regions(&b, &s, m, c, 0, e)) < 0)
        return r;
    b.total = total(&s, &b);
    if (s.bad || m->dense_bytes > UINT64_MAX / 4 || c->predictor_bytes > UINT64_MAX / 4 || p->bytes > UINT64_MAX / 4 ||
        c->room_bytes > UINT64_MAX / 4)
        return err_set(e, ERR_LIMIT, "memory account: a sum overflows 64 bits");
    *out = b;
    return 0;
}
