#ifndef RUNTIME_ENGINE_DENSE_IMPL_H
#define RUNTIME_ENGINE_DENSE_IMPL_H

/* What the files of the processor's dense work share: dense_cpu.c has products, norms, attention and the rest, dense_recurrent.c what has a
 * state in place of keys and values. */
#include "runtime/engine/dense.h"
#include "runtime/engine/row_reads.h"

#include "common/ops/ops.h"

struct cpu {
    struct dense dense;
    struct dense_config c;
    float attn_scale;
    size_t n_states;    /* layers with a state */
    struct dense_moves moves; /* most 0: none are kept */
    int places[];       /* [model_depth]: ops_places */
};

static inline struct cpu *cpu_of(struct dense *d)
{
    return (struct cpu *)d;
}

/* A layer's tensor of a role, or the model's own where layer is -1; without data where there is none. */
static inline const struct dense_matrix *cpu_matrix(const struct cpu *c, int layer, enum model_role r)
{
    return dense_at(c->c.w, r, layer);
}

static inline const float *cpu_vector(const struct cpu *c, int layer, enum model_role r)
{
    return dense_vector(c->c.w, r, layer);
}

/* ---- products ---- */

struct product {
    const struct dense_matrix *m;
    float *out;         /* f32[n_tokens][n_rows] */
    const void *x;
    size_t x_stride;
};

struct products {
    struct product p[4];
    int n, n_tokens;
    struct acts *in;    /* written to where matrices are folded: nobody uses it after its job */
    const struct dense_reads *reads; /* or NULL */
    struct err *e;
    int failed;         /* of reads; worker 0 */
};

/* One more product of a job, of the job's input; the job; a job of one. */
void cpu_add_product(const struct cpu *c, struct products *s, const struct dense_matrix *m, struct acts *a, float *out);
int cpu_run_products(const struct cpu *c, struct products *s);
int cpu_one_product(const struct cpu *c, const struct dense_matrix *m, struct acts *a, float *out, struct err *e);

/* A grain for n items of all of which `bytes` are read or so. */
int cpu_piece_of(const struct cpu *c, int n, uint64_t bytes);

void cpu_norms(const struct cpu *c, const float *w, const float *bias, const float *x, int n, float *out);

/* Attention of a layer and what layers have in its place: dense_backend.attention. */
#define MIXER(kind, name, here) \
    int dense_##name(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens, const struct dense_reads *reads, \
                     float *out, struct err *e);
#include "common/model/operations.def"

void cpu_keep_moves(struct dense *d, const struct dense_moves *m);
void cpu_move_on(struct dense *d, int seq, int from, int to);

/* What layers see of the tokens' embeddings, from x as embedded; dense_backend.layer_embd. */
int cpu_layer_inputs(const struct cpu *c, const struct engine_token *tokens, int n, const float *x, struct err *e);
int cpu_layer_embd(struct dense *d, int layer, const float *x, int n, float *out, struct err *e);

int cpu_shift(struct dense *d, int layer, const struct engine_token *tokens, const float *x, int n, float *out, struct err *e);
int cpu_receive(struct dense *d, int n, float *out, struct err *e);

#endif
