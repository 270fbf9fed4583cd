/* The dense pass of a small smallthinker model against the naive pass of engine_sample.h: early routers, both functions,
 * windows, layers without rotation; and routing itself against its definition. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/offline/forward.h"
#include "tests/engine_sample.h"
#include "tests/test.h"

#include <unistd.h>

struct source {
    const struct engine_sample *s;
    enum model_role role[ES_LAYERS * MODEL_ROLES];
    int layer[ES_LAYERS * MODEL_ROLES], n;
    uint64_t dims[ES_LAYERS * MODEL_ROLES][4];
};

static int fill(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *e)
{
    const struct source *x = ctx;
    const uint64_t *d = x->dims[tensor];
    (void)e;
    for (size_t k = 0; k < len / 4; k++) {
        uint64_t i = offset / 4 + k, col = i % d[0], row = i / d[0] % d[1], block = i / d[0] / d[1];
        int norm = x->role[tensor] == MODEL_ATTN_NORM || x->role[tensor] == MODEL_FFN_NORM ||
                   x->role[tensor] == MODEL_OUTPUT_NORM;
        float v = norm ? es_norm(x->layer[tensor], x->role[tensor], (int)col)
                       : es_weight(x->layer[tensor], (int)block, x->role[tensor], (int)row, (int)col);
        memcpy((char *)buf + 4 * k, &v, 4);
    }
    return 0;
}

/* The GGUF of the sample: the keys that its pack has, and F32 tensors. */
static int write_model(const char *path, const struct engine_sample *s, struct err *e)
{
    struct model_hparams h;
    struct source x = { .s = s };
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    size_t len;
    uint8_t *meta = es_meta(s, &h, &len, e);
    int r = meta ? gguf_parse(meta, len, len, "sample", &g, e) : -1;
    if (r == 0)
        r = gguf_writer_new(&w, e);
    for (uint64_t i = 0; r == 0 && i < g->n_keys; i++)
        r = gguf_writer_kv_raw(w, &g->keys[i], e);
    for (int role = 0; role < MODEL_ROLES; role++)
        for (int l = 0; r == 0 && l < (model_role_is_per_layer((enum model_role)role) ? ES_LAYERS : 1); l++) {
            char name[64];
            int layer = model_role_is_per_layer((enum model_role)role) ? l : -1;
            int n = model_tensor_shape(&h, (enum model_role)role, x.dims[x.n]);
            if (n < 0 || model_role_presence(&h, (enum model_role)role) != MODEL_REQUIRED ||
                model_tensor_name(&h, (enum model_role)role, layer, name, sizeof name) < 0)
                continue;
            x.role[x.n] = (enum model_role)role;
            x.layer[x.n] = layer;
            r = gguf_writer_tensor(w, name, QUANT_F32, n, x.dims[x.n++], e);
        }
    if (r == 0)
        r = gguf_writer_save(w, path, fill, &x, e);
    gguf_writer_free(w);
    gguf_close(g);
    free(meta);
    return r;
}

static int routed(void *ctx, const struct forward_layer *l, struct err *e)
{
    (void)e;
    for (size_t t = 0; t < l->n_tokens; t++)
        *(int *)ctx += l->blocks[2 * t] != l->blocks[2 * t + 1];
    return 0;
}

static void dense_pass(const struct engine_sample *s, const char *name)
{
    static double want[ES_SEQ * ES_VOCAB];
    static float got[ES_SEQ * ES_VOCAB];
    char path[256];
    struct err e = { 0 };
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct pool *pool = NULL;
    struct forward *f = NULL;
    int32_t ids[ES_SEQ];
    uint32_t tokens[ES_SEQ];
    uint64_t starts[2] = { 0, ES_SEQ };
    int pairs = 0;
    double worst = 0;
    for (int i = 0; i < ES_SEQ; i++)
        tokens[i] = (uint32_t)(ids[i] = 3 + i * 11 % (ES_VOCAB - 3));
    const struct forward_run run = { .tokens = tokens, .starts = starts, .n_sequences = 1, .on_layer = routed,
                                     .ctx = &pairs };
    test_path(path, sizeof path, "thermo-small-%d.gguf", (int)getpid());
    es_naive(s, NULL, ids, ES_SEQ, want);
    int r = write_model(path, s, &e) || gguf_open(path, &g, &e) || model_open(g, NULL, &m, &e) ||
            pool_new(2, NULL, &pool, &e) || forward_new(m, pool, ES_SEQ, &f, &e) || forward_run(f, &run, &e) ||
            forward_logits(f, 0, ES_SEQ, got, &e);
    CHECK_MSG(!r, "%s: %s", name, e.msg);
    for (int i = 0; i < ES_SEQ * ES_VOCAB; i++)
        worst = fmax(worst, fabs((double)got[i] - want[i]));
    printf("# %s: %.2e from the naive pass\n", name, worst);
    CHECK(worst < 2e-4 && pairs == ES_SEQ * ES_LAYERS);
    forward_free(f);
    pool_free(pool);
    model_close(m);
    gguf_close(g);
    unlink(path);
}

static void route(uint16_t *c, float *w, const float *z, const float *bias, int n, int used, enum model_router router)
{
    const struct model_hparams h = { .n_experts = n, .n_experts_used = used, .router = router };
    nn_route(c, w, z, bias, &h);
}

/* Biases choose and do not weigh; groups close experts; the scale comes last. */
static void biased_routing(void)
{
    const float z[6] = { 1, 0, -1, 3, 2.5f, -2 }, bias[6] = { 0, 0, 0.9f, -1, 0, 0 };
    struct model_hparams h = { .n_experts = 6, .n_experts_used = 2, .router = MODEL_ROUTER_SIGMOID_TOPK, .expert_scale = 2.5f };
    uint16_t c[2];
    float w[2];
    nn_route(c, w, z, bias, &h);
    double a = 1 / (1 + exp(1.0)), b = 1 / (1 + exp(-2.5));
    CHECK(c[0] == 2 && c[1] == 4 && fabs((double)w[0] - 2.5 * a / (a + b)) < 1e-6 && fabs((double)w[1] - 2.5 * b / (a + b)) < 1e-6);
    h.n_groups = 3; /* 0 1 | 2 3 | 4 5: sums of scores 1.23, 1.22, 1.04 without biases */
    h.n_groups_used = 1;
    nn_route(c, w, z, NULL, &h);
    CHECK(c[0] == 0 && c[1] == 1);
    nn_route(c, w, z, bias, &h); /* 1.23, 1.12, 1.04 */
    CHECK(c[0] == 0 && c[1] == 1);
    h.n_groups_used = 2;
    nn_route(c, w, z, NULL, &h);
    CHECK(c[0] == 3 && c[1] == 0);
}

static void routing(void)
{
    const float z[6] = { 0.5f, 2, -1, 2, 40, -40 };
    uint16_t c[6];
    float w[6];
    route(c, w, z, NULL, 6, 3, MODEL_ROUTER_SOFTMAX_TOPK);
    CHECK(c[0] == 4 && c[1] == 1 && c[2] == 3 && fabsf(w[0] - 1) < 1e-6f && fabsf(w[1] - expf(-38)) < 1e-20f);
    route(c, w, z, NULL, 4, 2, MODEL_ROUTER_SOFTMAX_TOPK);
    CHECK(c[0] == 1 && c[1] == 3 && w[0] == 0.5f && w[1] == 0.5f);
    route(c, w, z, NULL, 3, 2, MODEL_ROUTER_SOFTMAX_ALL);
    double all = exp((double)z[0]) + exp((double)z[1]) + exp((double)z[2]);
    CHECK(fabs((double)w[0] - exp((double)z[c[0]]) / all) < 1e-6 && fabs((double)w[1] - exp((double)z[c[1]]) / all) < 1e-6);
    route(c, w, z, NULL, 3, 2, MODEL_ROUTER_SIGMOID_TOPK);
    double a = 1 / (1 + exp(-2.0)), b = 1 / (1 + exp(-0.5));
    CHECK(c[0] == 1 && c[1] == 0 && fabs((double)w[0] - a / (a + b)) < 1e-6 && fabs((double)w[1] - b / (a + b)) < 1e-6);
    route(c, w, z + 5, NULL, 1, 1, MODEL_ROUTER_SIGMOID_TOPK); /* next to nothing is not blown up to 1 */
    CHECK(c[0] == 0 && w[0] < 1e-12f);
}

int main(void)
{
    struct engine_sample s = { .types = { QUANT_F32, QUANT_F32, QUANT_F32 }, .act = MODEL_ACT_RELU, .n_ff = 72,
                               .experts = 5, .used = 2, .small = 1, .router = MODEL_ROUTER_SIGMOID_TOPK, .window = 7 };
    kernels_init(cpu_detect());
    routing();
    biased_routing();
    dense_pass(&s, "sigmoid, windows");
    s.router = MODEL_ROUTER_SOFTMAX_TOPK;
    dense_pass(&s, "softmax, windows");
    s.window = 0;
    dense_pass(&s, "softmax, no window");
    s.small = 0;
    dense_pass(&s, "llama with experts");
    return test_done();
}
