/* The forward pass walks the model's graph (common/model/graph.h). Dense work is dense.h's, the FFN's neurons the pipeline's. A pass takes
 * tokens of any sequences; each token's residual stream is a row of x, and nothing but the KV cache couples rows, so how tokens are
 * grouped into passes changes no bit. */
#include "runtime/engine/engine_impl.h"

#include "common/base/progress.h"

#include <assert.h>
#include <string.h>

static int poll_reads(void *ctx, struct err *e)
{
    struct engine *g = ctx;
    return pipeline_poll(g->pipe, e);
}

int engine_add_residual(struct engine *g, const float *v, int n, struct err *e)
{
    return g->dense->backend->add(g->dense, g->x, v, n, e);
}

/* What comes after the tokens of the same sequence before token t of the pass. */
static int next_position(const struct engine *g, const struct engine_token *tokens, int t)
{
    for (int i = t - 1; i >= 0; i--)
        if (tokens[i].seq == tokens[t].seq)
            return tokens[i].pos + 1;
    return g->state_pos[tokens[t].seq];
}

int engine_check_tokens(const struct engine *g, const struct engine_token *tokens, int n, struct err *e)
{
    if (n < 1 || n > g->scratch.tokens)
        return err_set(e, ERR_LIMIT, "%d tokens in a pass; 1 to %d are possible", n, g->scratch.tokens);
    for (int t = 0; t < n; t++) {
        if (tokens[t].id < 0 || tokens[t].id >= g->h.n_vocab)
            return err_set(e, ERR_USAGE, "token id %d; the model has 0 to %d", tokens[t].id, g->h.n_vocab - 1);
        if (tokens[t].seq < 0 || tokens[t].seq >= g->c.choice.max_batch || tokens[t].pos < 0 ||
            tokens[t].pos >= g->c.choice.context)
            return err_set(e, ERR_LIMIT, "position %d of sequence %d; the context holds %d of %d sequences",
                           tokens[t].pos, tokens[t].seq, g->c.choice.context, g->c.choice.max_batch);
        if (model_has_states(&g->h) && tokens[t].pos > 0 && tokens[t].pos != next_position(g, tokens, t))
            return err_set(e, ERR_USAGE, "position %d of sequence %d, whose recurrent layers have taken in %d", tokens[t].pos,
                           tokens[t].seq, next_position(g, tokens, t));
    }
    return 0;
}

/* The states of the pass's sequences take in what they may still have given back, and are lost until the pass is over. */
static void use_states(struct engine *g, const struct engine_token *tokens, int n)
{
    for (int t = 0; t < n; t++) {
        int seq = tokens[t].seq;
        if (tokens[t].pos > 0)
            engine_move_on(g, seq, g->state_pos[seq]);
        engine_set_state(g, seq, -1);
    }
}

/* They have taken in its tokens; of few those behind the first can be given back. */
static void set_states(struct engine *g, const struct engine_token *tokens, int n)
{
    for (int t = 0; t < n; t++) {
        int seq = tokens[t].seq, first = 1, after = 0;
        for (int i = 0; i < n; i++) {
            first &= i >= t || tokens[i].seq != seq;
            after += i > t && tokens[i].seq == seq;
        }
        if (!first)
            continue;
        engine_set_state(g, seq, tokens[t].pos + 1 + after);
        if (after > 0 && after <= g->most_moves)
            g->state_sure[seq] = g->moves_pos[seq] = tokens[t].pos + 1;
    }
}

/* Every token's position has a page that is its sequence's alone. */
static int own_pages(struct engine *g, const struct engine_token *tokens, int n, struct err *e)
{
    int r = 0, from, to;
    for (int t = 0; t < n && r >= 0; t++) {
        r = kv_pages_own(&g->pages, tokens[t].seq, tokens[t].pos, &from, &to, e);
        if (r > 0)
            r = g->dense->backend->copy_page(g->dense, from, to, tokens[t].pos % SCHEDULE_KV_PAGE, e);
    }
    return r;
}

/* Time that the pipeline itself has booked: prediction's, and as the FFN's what predictions waited for. */
static uint64_t booked(const struct engine *g)
{
    struct pipeline_stats s = pipeline_stats(g->pipe);
    return s.predict_ns + s.predict_stall_ns;
}

/* Adds the time since *from, less what was booked of it, and moves *from on. */
static void add_time(struct engine *g, uint64_t *to, int64_t *from, uint64_t *before)
{
    int64_t now = progress_now_ns();
    uint64_t took = (uint64_t)(now - *from), of_it = booked(g) - *before;
    *to += took > of_it ? took - of_it : 0;
    *from = now;
    *before = booked(g);
}

static int attention(struct engine *g, int layer, const struct engine_token *tokens, int n, struct err *e)
{
    const struct dense_reads reads = { poll_reads, g };
    struct acts in = { .f32 = g->xn, .n_cols = g->h.d_model, .n_tokens = n, .q8 = g->act_q8 };
    int r = model_is_lead(&g->h, layer) ? 0 : engine_look_ahead(g, layer, &in, e);
    return r < 0 ? r : g->dense->backend->attention(g->dense, layer, &in, tokens, &reads, g->acc, e);
}

static int scale(struct engine *g, int layer, int n)
{
    const float *factor = dense_vector(&g->weights, MODEL_OUT_SCALE, layer);
    for (size_t i = 0; factor && i < (size_t)n * (size_t)g->h.d_model; i++)
        g->x[i] *= *factor;
    for (size_t i = 0; model_halves(&g->h, layer) && i < (size_t)n * (size_t)g->h.d_model; i++)
        g->x[i] *= 0.5f;
    return 0;
}

/* Whose neurons mixing tokens may hide the reads of: the layer's own, or of one that stays in memory those of the block after it where that
 * is a FFN alone. -1: nobody's. */
static int hidden_reads(const struct engine *g, int layer)
{
    int next = model_is_lead(&g->h, layer) ? engine_layer_after(g, layer, 0) : layer;
    return next == layer || (next >= 0 && graph_mixer(&g->h, next) == OP_KINDS) ? next : -1;
}

/* An operation of the graph. n and f are in xn, a is in acc, and so is f before it is shifted. */
static int run_op(struct engine *g, int layer, const struct op *o, const struct engine_token *tokens, int n, struct err *e)
{
    const struct dense_backend *b = g->dense->backend;
    int r = 0, reads = hidden_reads(g, layer);
    switch (o->kind) {
    case OP_ROUTE:
        return engine_route(g, layer, o->in[0] == OP_X, n, e);
    case OP_ATTN_NORM: case OP_ATTN_NORM_2: case OP_FFN_NORM:
        if (o->out == OP_N && !g->c.no_prefetch && reads >= 0)
            r = engine_prefetch(g, reads, n, e);
        return r < 0 ? r : b->norm(g->dense, layer, o->out == OP_N ? DENSE_NORM_ATTENTION : DENSE_NORM_FFN, g->x, n,
                                   o->out == OP_F && g->h.wkv_dim ? g->acc : g->xn, e);
    case OP_ADD:
        return (r = engine_add_residual(g, g->acc, n, e)) < 0 ? r : engine_predict_residual(g, layer, n, e);
    case OP_SHIFT:
        return b->shift(g->dense, layer, tokens, g->acc, n, g->xn, e);
    case OP_FFN:
        return engine_ffn(g, layer, n, e);
    case OP_LAYER_EMBD:
        return (r = b->layer_embd(g->dense, layer, g->x, n, g->acc, e)) < 0 ? r : engine_add_residual(g, g->acc, n, e);
    case OP_SCALE:
        return scale(g, layer, n);
    default:
        return attention(g, layer, tokens, n, e);
    }
}

/* The time of layers before the experts' is attention's: nothing of them is read. */
static int one_layer(struct engine *g, int layer, const struct engine_token *tokens, int n, struct err *e)
{
    const struct graph_layer *ops = &g->graph[layer];
    int r = 0, lead = model_is_lead(&g->h, layer), dumps = g->c.dump && layer == g->c.dump_layer;
    int64_t start = progress_now_ns();
    uint64_t before = booked(g);
    if (dumps)
        g->c.dump(g->c.dump_ctx, OP_EMBED, tokens, n, g->x);
    for (int i = 0; i < ops->n && r == 0; i++) {
        r = run_op(g, layer, &ops->op[i], tokens, n, e);
        if (ops->op[i].kind == OP_ADD)
            add_time(g, &g->stats.attention_ns, &start, &before);
        if (dumps && r == 0 && ops->op[i].out == OP_X)
            g->c.dump(g->c.dump_ctx, (enum op_kind)ops->op[i].kind, tokens, n, g->x);
    }
    add_time(g, lead ? &g->stats.attention_ns : &g->stats.ffn_ns, &start, &before);
    return r;
}

/* The threads and the queue of a pass of n tokens. */
static int use_batch(struct engine *g, int n, struct err *e)
{
    const struct engine_config *c = &g->c;
    int by = 0;
    while (by < c->n_batches && c->batches[by].tokens < n)
        by++;
    if (by == g->by)
        return 0;
    const struct engine_way way = engine_way_of(g, g->way);
    const struct engine_batch all = { n, c->choice.threads, c->choice.queue_depth, c->cpus };
    const struct engine_batch other = { n, way.threads, way.depth, c->rest.cpus };
    const struct engine_batch *b = g->way && n <= c->choice.max_batch ? &other : by < c->n_batches ? &c->batches[by] :
                                   c->rest.threads ? &c->rest : &all;
    int r = pool_use(g->pool, b->threads, b->cpus, e);
    if (r == 0) {
        pipeline_use(g->pipe, b->threads, b->depth);
        g->by = by;
    }
    return r;
}

/* Has somebody asked that this pass ends before its next layer? Where nothing is on its way, what reads is as it was before the pass. */
static int go_on(struct engine *g, struct err *e)
{
    if (!cancel_asked(g->watched) && !(g->stop && g->stop(g->stop_ctx)))
        return 0;
    g->broken = g->accel || g->n_blocks > 1 || g->c.choice.predictor_buffers || !pipeline_quiet(g->pipe);
    return err_set(e, ERR_INTR, "interrupted");
}

static int forward(struct engine *g, const struct engine_token *tokens, int n, int predicted, struct err *e)
{
    int r = engine_check_tokens(g, tokens, n, e);
    int64_t start = progress_now_ns();
    if (r < 0 || (r = own_pages(g, tokens, n, e)) < 0 || (g->broken && (r = engine_renew(g, e)) < 0) ||
        (r = use_batch(g, n, e)) < 0)
        return r;
    g->pass++;
    g->broken = 1; /* until it is through */
    use_states(g, tokens, n);
    g->predicted = predicted;
    engine_accel_use(g, n);
    pipeline_begin(g->pipe, predicted);
    r = g->dense->backend->embed(g->dense, tokens, n, g->x, e);
    if (r == 0 && g->h.mtp)
        r = g->dense->backend->join(g->dense, g->after, g->after_norm, n, g->x, e);
    int64_t expecting = progress_now_ns();
    uint64_t before = booked(g);
    r = r < 0 ? r : engine_expect(g, -1, n, e);
    add_time(g, &g->stats.ffn_ns, &expecting, &before);
    for (int i = 0; i < model_depth(&g->h) && r == 0 && (r = go_on(g, e)) == 0; i++)
        r = one_layer(g, model_layer_at(&g->h, i), tokens, n, e);
    if (r < 0)
        return r;
    for (int i = 0; i < g->h.n_layers * g->n_parts; i++)
        cache_tick(g->caches[i]);
    g->broken = 0;
    set_states(g, tokens, n);
    g->stats.passes++;
    g->stats.passes_by[g->by < g->c.n_batches ? g->by : PLAN_MAX_BATCHES]++;
    g->stats.tokens += (uint64_t)n;
    g->stats.total_ns += (uint64_t)(progress_now_ns() - start);
    return 0;
}

int engine_forward_mtp(struct engine *g, const struct engine_token *tokens, const float *hidden, int trunk, int n, struct err *e)
{
    assert(g->h.mtp);
    g->after = hidden;
    g->after_norm = dense_vector(trunk ? &g->c.trunk->weights : &g->weights, MODEL_OUTPUT_NORM, -1);
    return forward(g, tokens, n, 0, e);
}

int engine_forward(struct engine *g, const struct engine_token *tokens, int n, struct err *e)
{
    assert(!g->h.mtp);
    return forward(g, tokens, n, engine_approximates(&g->c), e);
}

int engine_forward_exact(struct engine *g, const struct engine_token *tokens, int n, struct err *e)
{
    return forward(g, tokens, n, 0, e);
}

/* ---- logits ---- */

uint64_t engine_pass(const struct engine *g)
{
    return g->pass;
}

void engine_watch(struct engine *g, const struct cancel *cancel)
{
    g->watched = cancel;
    if (g->io)
        io_watch(g->io, cancel);
    row_reads_watch(g->rows, cancel);
}

void engine_stop_when(struct engine *g, int (*stop)(const void *ctx), const void *ctx)
{
    g->stop = stop;
    g->stop_ctx = ctx;
}

const float *engine_hidden(const struct engine *g, int i)
{
    return g->x + (size_t)i * (size_t)g->h.d_model;
}

int engine_head(struct engine *g, const float *hidden, int n, float *logits, struct err *e)
{
    if (n < 1 || n > g->scratch.tokens)
        return err_set(e, ERR_LIMIT, "logits of %d tokens; 1 to %d are possible", n, g->scratch.tokens);
    int64_t start = progress_now_ns();
    int r = g->dense->backend->head(g->dense, hidden, n, logits, e);
    uint64_t took = (uint64_t)(progress_now_ns() - start);
    g->stats.head_ns += took;
    g->stats.total_ns += took;
    return r;
}

float *engine_logits_row(struct engine *g, int row)
{
    return g->logits + (size_t)row * (size_t)g->h.n_vocab;
}

float *engine_logits(struct engine *g, int i, int row, struct err *e)
{
    float *out = engine_logits_row(g, row);
    return engine_head(g, engine_hidden(g, i), 1, out, e) < 0 ? NULL : out;
}

/* Does any sequence from `from` on, before `to`, belong to somebody? */
static int any_taken(const struct engine *g, int from, int to)
{
    for (int i = from; i < to; i++)
        if (g->taken[i])
            return 1;
    return 0;
}

int engine_logits_of(struct engine *g, const int *tokens, const int *rows, int n, struct err *e)
{
    size_t d = (size_t)g->h.d_model;
    int r = 0;
    for (int i = 0, from; i < n && r == 0;) {
        int k = 0;
        for (from = i; i < n && (i == from || !any_taken(g, rows[i - 1] + 1, rows[i])); i++)
            for (; k <= rows[i] - rows[from]; k++) /* what the gap holds is of no interest */
                memcpy(g->acc + (size_t)k * d, engine_hidden(g, tokens[i]), d * sizeof *g->acc);
        r = engine_head(g, g->acc, k, engine_logits_row(g, rows[from]), e);
    }
    return r;
}

float *engine_logits_memory(struct engine *g, int *rows)
{
    uint64_t one = (uint64_t)g->h.n_vocab * sizeof(float), n = g->scratch.ffn / one, most = (uint64_t)g->scratch.tokens;
    *rows = (int)(n < most ? n : most);
    return g->ffn;
}
