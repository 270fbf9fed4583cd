/* Embeddings of each layer in the dense pass: the table is read row by row, and what layers see is kept for all tokens of a run. */
#include "common/offline/forward_impl.h"

#include "common/ops/layer_embd.h"

#include <stdlib.h>

enum { BATCH = FORWARD_BATCH, ITEM = 8 };

int forward_layer_inputs(struct forward *f, struct err *e)
{
    const struct gguf_tensor *table = f->m->global[MODEL_LAYER_EMBD], *mix = f->m->global[MODEL_LAYER_MIX];
    const size_t all = layer_embd_all(f->h);
    if (!f->h->layer_embd)
        return 0;
    uint8_t *row = malloc((size_t)table->row_bytes);
    int r = row ? forward_load(f, mix, &f->mix, e) : err_set(e, ERR_NOMEM, "an embedding");
    for (size_t t = 0; r == 0 && t < f->n_tokens; t += BATCH) {
        const struct forward_product p = { mix, f->mix, 0, f->layered + t * all, all };
        forward_products(f, &p, 1, f->x + t * f->d, f->d, (int)(f->n_tokens - t < BATCH ? f->n_tokens - t : BATCH));
    }
    for (size_t t = 0; r == 0 && t < f->n_tokens; t++)
        if ((r = gguf_read(f->m->gguf, table, f->run->tokens[t] * table->row_bytes, row, (size_t)table->row_bytes, e)) == 0)
            layer_embd_inputs(f->layered + t * all, row, table->type, f->global[MODEL_LAYER_MIX_NORM], f->h);
    free(row);
    return r;
}

/* A batch of tokens. */
struct part {
    struct forward *f;
    size_t first;
};

static void gate_some(void *ctx, int begin, int end, int worker)
{
    const struct part *p = ctx;
    const struct forward *f = p->f;
    (void)worker;
    for (size_t i = (size_t)begin; i < (size_t)end; i++)
        layer_embd_gate(f->b.made + i * (size_t)f->h->layer_embd, f->layered + (p->first + i) * layer_embd_all(f->h), f->layer, f->h);
}

static void add_some(void *ctx, int begin, int end, int worker)
{
    const struct part *p = ctx;
    const struct forward *f = p->f;
    (void)worker;
    forward_add_residual(f, f->x + (p->first + (size_t)begin) * f->d, f->b.out + (size_t)begin * f->d, f->w[MODEL_LAYER_POST_NORM],
                         end - begin);
}

void forward_layer_embd(struct forward *f)
{
    for (size_t t = 0; t < f->n_tokens; t += BATCH) {
        struct part p = { f, t };
        int n = (int)(f->n_tokens - t < BATCH ? f->n_tokens - t : BATCH);
        forward_batch_matrix(f, MODEL_LAYER_GATE, f->b.made, f->x + t * f->d, n);
        pool_for(f->pool, n, ITEM, gate_some, &p);
        forward_batch_matrix(f, MODEL_LAYER_OUT, f->b.out, f->b.made, n);
        pool_for(f->pool, n, ITEM, add_some, &p);
    }
}
