/* Embeddings of each layer on the processor. */
#include "runtime/engine/dense_impl.h"

#include "common/model/nn.h"
#include "common/ops/layer_embd.h"

struct each_token {
    const struct cpu *cpu;
    const struct engine_token *tokens;
    int layer;
    const uint8_t **rows;   /* of the table, of tokens from `first` on; NULL: it is in memory */
    int first;
};

static void some_inputs(void *ctx, int begin, int end, int worker)
{
    const struct each_token *a = ctx;
    const struct cpu *c = a->cpu;
    const struct dense_matrix *table = cpu_matrix(c, -1, MODEL_LAYER_EMBD);
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        layer_embd_inputs(c->c.memory.layered + ((size_t)a->first + t) * layer_embd_all(c->c.h),
                          a->rows ? a->rows[t] : table->data + (size_t)a->tokens[t].id * table->row_bytes, table->type,
                          cpu_vector(c, -1, MODEL_LAYER_MIX_NORM), c->c.h);
}

static void make_inputs(const struct cpu *c, struct each_token *a, int n)
{
    pool_for(c->c.pool, n, cpu_piece_of(c, n, (uint64_t)n * layer_embd_all(c->c.h) * sizeof(float)), some_inputs, a);
}

int cpu_layer_inputs(const struct cpu *c, const struct engine_token *tokens, int n, const float *x, struct err *e)
{
    struct each_token a = { .cpu = c, .tokens = tokens };
    struct acts in = { .f32 = x, .n_cols = c->c.h->d_model, .n_tokens = n, .q8 = c->c.memory.act };
    int r = cpu_one_product(c, cpu_matrix(c, -1, MODEL_LAYER_MIX), &in, c->c.memory.layered, e);
    if (r == 0 && cpu_matrix(c, -1, MODEL_LAYER_EMBD)->data) /* else cpu_layer_embd does it, while rows are on their way */
        make_inputs(c, &a, n);
    return r;
}

/* Where the first layer needs them and they were read. */
static int take_inputs(const struct cpu *c, struct err *e)
{
    const uint8_t *rows[ROW_READS_GROUP];
    struct each_token a = { .cpu = c, .rows = rows };
    int n, r = 0;
    while (r == 0 && (n = r = row_reads_take(c->c.rows, MODEL_LAYER_EMBD, rows, e)) > 0) {
        make_inputs(c, &a, n);
        a.first += n;
        r = row_reads_give(c->c.rows, MODEL_LAYER_EMBD, e);
    }
    return r;
}

static void some_gates(void *ctx, int begin, int end, int worker)
{
    const struct each_token *a = ctx;
    const struct dense_memory *m = &a->cpu->c.memory;
    const struct model_hparams *h = a->cpu->c.h;
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        layer_embd_gate(m->made + t * (size_t)h->layer_embd, m->layered + t * layer_embd_all(h), a->layer, h);
}

int cpu_layer_embd(struct dense *d, int layer, const float *x, int n, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    struct each_token a = { .cpu = c, .layer = layer };
    struct acts in = { .f32 = x, .n_cols = c->c.h->d_model, .n_tokens = n, .q8 = c->c.memory.act };
    struct acts gated = { .f32 = c->c.memory.made, .n_cols = c->c.h->layer_embd, .n_tokens = n, .q8 = c->c.memory.act };
    int r = cpu_matrix(c, -1, MODEL_LAYER_EMBD)->data ? 0 : take_inputs(c, e);
    if (r < 0 || (r = cpu_one_product(c, cpu_matrix(c, layer, MODEL_LAYER_GATE), &in, c->c.memory.made, e)) < 0)
        return r;
    pool_for(c->c.pool, n, cpu_piece_of(c, n, (uint64_t)n * (uint64_t)c->c.h->layer_embd * sizeof *x), some_gates, &a);
    if ((r = cpu_one_product(c, cpu_matrix(c, layer, MODEL_LAYER_OUT), &gated, out, e)) < 0)
        return r;
    cpu_norms(c, cpu_vector(c, layer, MODEL_LAYER_POST_NORM), NULL, out, n, out);
    return 0;
}
