/* The dense pass against PyTorch's results for the embedded model: logits, perplexity, hotness; and that its bits
 * do not depend on threads or grouping. */
#include "common/base/cpu.h"
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/offline/forward.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "datasets/models/reglu-tales-10m-f16.gguf"
#define REF   "tests/golden/reference/"

static struct gguf *gguf;
static struct model *model;

struct seen {
    uint64_t counts[8][1280];
    uint64_t n_active;
};

static int count(void *ctx, const struct forward_layer *l, struct err *e)
{
    struct seen *s = ctx;
    (void)e;
    for (size_t t = 0; t < l->n_tokens; t++)
        for (int i = 0; i < 1280 && t % 256 != 255; i++) { /* the last of a window is not fed in the reference */
            int on = l->active[t * l->row_bytes + (size_t)i / 8] >> i % 8 & 1;
            s->counts[l->layer][i] += (uint64_t)on;
            s->n_active += (uint64_t)on;
        }
    return 0;
}

static uint32_t *prompt_ids(int n, size_t *len, struct err *e)
{
    char *text;
    size_t text_len;
    if (file_slurp(REF "reference-f16.json", 16 << 20, &text, &text_len, e) < 0)
        return NULL;
    struct js *j = js_parse(text, text_len, "reference-f16.json", e);
    const struct js *ids = NULL;
    for (size_t i = 0; i < js_len(js_get(j, "prompts")); i++) {
        int64_t v = -1;
        js_int(js_get(js_at(js_get(j, "prompts"), i), "n"), &v);
        if (v == n)
            ids = js_get(js_at(js_get(j, "prompts"), i), "ids");
    }
    uint32_t *out = malloc((js_len(ids) + 1) * 4);
    *len = js_len(ids);
    for (size_t i = 0; i < *len; i++) {
        int64_t v = 0;
        js_int(js_at(ids, i), &v);
        out[i] = (uint32_t)v;
    }
    js_free(j);
    free(text);
    return out;
}

static void logits_of(int threads, int prompt, const char *file, float **out, size_t *n)
{
    struct err e = { 0 };
    struct pool *pool = NULL;
    struct forward *f = NULL;
    char *ref = NULL;
    size_t len = 0, ref_len = 0;
    uint32_t *ids = prompt_ids(prompt, &len, &e);
    uint64_t starts[2] = { 0, len };
    const struct forward_run run = { .tokens = ids, .starts = starts, .n_sequences = 1 };
    float *z = malloc(len * 4096 * sizeof *z), worst = 0;
    CHECK_MSG(!pool_new(threads, NULL, &pool, &e) && !forward_new(model, pool, 64, &f, &e) &&
                  !forward_run(f, &run, &e) && !forward_logits(f, 0, len, z, &e),
              "%s", e.msg);
    CHECK(!file_slurp(file, 64 << 20, &ref, &ref_len, &e) && ref_len == len * 4096 * 4);
    for (size_t i = 0; ref && i < len * 4096; i++) {
        float want;
        memcpy(&want, ref + i * 4, 4);
        worst = fmaxf(worst, fabsf(z[i] - want));
    }
    printf("# %s, %d threads: largest difference %.2e\n", file, threads, (double)worst);
    CHECK(worst < 2e-3f);
    *out = z, *n = len * 4096;
    free(ref), free(ids);
    forward_free(f);
    pool_free(pool);
}

/* Negative log-likelihood in nats of every token of a sequence but the first, the tokens of the last run from `first` on. */
static int add_nll(struct forward *f, const uint32_t *ids, size_t first, size_t n, double *sum, struct err *e)
{
    size_t vocab = (size_t)model->h.n_vocab;
    float *z = malloc(n * vocab * sizeof *z);
    int r = forward_logits(f, first, n, z, e);
    for (size_t t = 0; t + 1 < n && r == 0; t++) {
        const float *row = z + t * vocab;
        double all = 0;
        for (size_t i = 0; i < vocab; i++)
            all += exp((double)row[i] - (double)row[0]);
        *sum += log(all) + (double)row[0] - (double)row[ids[first + t + 1]];
    }
    free(z);
    return r;
}

/* Perplexity of non-overlapping windows of 256 ids (protocol "full"), the hotness counts on the way. */
static double perplexity(const char *file, int max_windows, struct seen *s, int runs)
{
    struct err e = { 0 };
    struct pool *pool = NULL;
    struct forward *f = NULL;
    char *text = NULL;
    size_t bytes = 0;
    double sum = 0;
    uint64_t n = 0;
    if (file_slurp(file, 16 << 20, &text, &bytes, &e) < 0 || pool_new(2, NULL, &pool, &e) < 0 ||
        forward_new(model, pool, 256, &f, &e) < 0)
        return -1;
    int windows = (int)(bytes / 512), r = 0;
    windows = windows > max_windows ? max_windows : windows;
    for (int w = 0; w < windows && !r;) {
        int k = windows - w < (windows + runs - 1) / runs ? windows - w : (windows + runs - 1) / runs;
        uint32_t *ids = malloc((size_t)k * 1024);
        uint64_t *starts = malloc(((size_t)k + 1) * 8);
        for (int i = 0; i < k * 256; i++)
            ids[i] = (uint8_t)text[(w * 256 + i) * 2] | (uint32_t)(uint8_t)text[(w * 256 + i) * 2 + 1] << 8;
        for (int i = 0; i <= k; i++)
            starts[i] = (uint64_t)i * 256;
        const struct forward_run run = { .tokens = ids, .starts = starts, .n_sequences = (size_t)k,
                                         .on_layer = s ? count : NULL, .ctx = s };
        r = forward_run(f, &run, &e);
        for (int i = 0; i < k && !r; i++, n += 255)
            r = add_nll(f, ids, (size_t)i * 256, 256, &sum, &e);
        w += k;
        free(ids), free(starts);
    }
    forward_free(f);
    pool_free(pool);
    free(text);
    return r < 0 || !n ? -1 : exp(sum / (double)n);
}

/* ---- experts ---- */

/* The embedded model with its FFN three times as experts and a router of our own: two are used, their weights sum to
 * one, so the network is the same function. */
enum { EXPERTS = 3 };

static const char *expert_name(const char *name)
{
    static char out[64];
    const char *dot = strstr(name, ".weight");
    int ffn = strstr(name, "ffn_gate") || strstr(name, "ffn_up") || strstr(name, "ffn_down");
    if (!ffn)
        return NULL;
    snprintf(out, sizeof out, "%.*s_exps.weight", (int)(dot - name), name);
    return out;
}

static int fill(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *e)
{
    (void)ctx;
    if (tensor >= (int)gguf->n_tensors) { /* a router: anything that differs by token */
        for (size_t i = 0; i < len / 4; i++) {
            float v = (float)((offset / 4 + i) * 2654435761u % 1000) / 1000 - 0.5f;
            memcpy((char *)buf + i * 4, &v, 4);
        }
        return 0;
    }
    const struct gguf_tensor *t = &gguf->tensors[tensor];
    for (size_t done = 0; done < len;) {
        uint64_t at = (offset + done) % t->bytes;
        size_t n = t->bytes - at < len - done ? (size_t)(t->bytes - at) : len - done;
        int r = gguf_read(gguf, t, at, (char *)buf + done, n, e);
        if (r < 0)
            return r;
        done += n;
    }
    return 0;
}

static int write_experts(const char *path, struct err *e)
{
    struct gguf_writer *w;
    int r = gguf_writer_new(&w, e);
    for (uint64_t i = 0; i < gguf->n_keys && !r; i++)
        r = gguf_writer_kv_raw(w, &gguf->keys[i], e);
    if (!r)
        r = gguf_writer_u32(w, "llama.expert_count", EXPERTS, e);
    if (!r)
        r = gguf_writer_u32(w, "llama.expert_used_count", 2, e);
    for (uint64_t i = 0; i < gguf->n_tensors && !r; i++) {
        const struct gguf_tensor *t = &gguf->tensors[i];
        const char *name = expert_name(t->name);
        const uint64_t dims[3] = { t->dims[0], t->dims[1], EXPERTS };
        if (name && !strstr(t->name, "ffn_norm"))
            r = gguf_writer_tensor(w, name, t->type, 3, dims, e);
        else
            r = gguf_writer_tensor(w, t->name, t->type, t->n_dims, t->dims, e);
    }
    for (int l = 0; l < model->h.n_layers && !r; l++) {
        char name[64];
        const uint64_t dims[2] = { (uint64_t)model->h.d_model, EXPERTS };
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", l);
        r = gguf_writer_tensor(w, name, QUANT_F32, 2, dims, e);
    }
    if (!r)
        r = gguf_writer_save(w, path, fill, NULL, e);
    gguf_writer_free(w);
    return r;
}

struct routed {
    uint64_t fired, used[EXPERTS];
    int fine;
    /* What a probe saw: the stream before this layer's FFN, and before the one's before, of the first what is embedded; experts foreseen
     * otherwise than from that. */
    float *stream, *before;
    int differ, compared;
};

static void keep_stream(void *ctx, enum predict_input which, size_t first, int n, const float *x)
{
    const struct routed *s = ctx;
    size_t d = (size_t)model->h.d_model;
    if (which == PREDICT_RESIDUAL)
        memcpy(s->stream + first * d, x, (size_t)n * d * sizeof *x);
}

static int next_stream(void *ctx, int layer, struct err *e)
{
    struct routed *s = ctx;
    float *was = s->before;
    (void)layer;
    (void)e;
    s->before = s->stream, s->stream = was;
    return 0;
}

/* The layer's norm and router on the stream before the FFN of the layer before. */
static void count_foreseen(struct routed *s, const struct forward_layer *l, const float *norm)
{
    size_t d = (size_t)model->h.d_model;
    for (size_t t = 0; t < l->n_tokens; t++) {
        const float *x = s->before + t * d;
        double square = 0, logit[EXPERTS] = { 0 };
        int best = 0, second = -1;
        for (size_t i = 0; i < d; i++)
            square += (double)x[i] * x[i];
        for (size_t i = 0; i < d * EXPERTS; i++) {
            float w = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
            logit[i / d] += (double)w * x[i % d] * norm[i % d] / sqrt(square / (double)d + (double)model->h.rms_eps);
        }
        for (int k = 1; k < EXPERTS; k++)
            best = logit[k] > logit[best] ? k : best;
        for (int k = 0; k < EXPERTS; k++)
            if (k != best && (second < 0 || logit[k] > logit[second]))
                second = k;
        s->differ += l->foreseen[2 * t] != best || l->foreseen[2 * t + 1] != second;
        s->compared++;
    }
}

static int count_routed(void *ctx, const struct forward_layer *l, struct err *e)
{
    struct routed *s = ctx;
    const struct gguf_tensor *t_norm = model->layer[l->layer][MODEL_FFN_NORM];
    float *norm = malloc((size_t)t_norm->bytes);
    int r = gguf_read(gguf, t_norm, 0, norm, (size_t)t_norm->bytes, e);
    s->fine &= l->n_slots == 2 && t_norm->type == QUANT_F32 && r == 0;
    if (s->fine)
        count_foreseen(s, l, norm);
    free(norm);
    for (size_t t = 0; t < l->n_tokens * 2; t++) {
        s->fine &= l->blocks[t] < EXPERTS && (t % 2 == 0 || l->blocks[t] != l->blocks[t - 1]);
        s->used[l->blocks[t]]++;
        /* Both experts are the same network, so both slots fire the same neurons. */
        s->fine &= !memcmp(l->active + t * l->row_bytes, l->active + (t & ~(size_t)1) * l->row_bytes, l->row_bytes);
        for (size_t i = 0; i < l->row_bytes; i++)
            s->fired += (uint64_t)__builtin_popcount(l->active[t * l->row_bytes + i]);
    }
    return 0;
}

static int count_fired(void *ctx, const struct forward_layer *l, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < l->n_tokens * l->row_bytes; i++)
        *(uint64_t *)ctx += (uint64_t)__builtin_popcount(l->active[i]);
    return 0;
}

/* stream[t]: the row of each token, in F16, as the embedded model has it. */
static int embedded(const uint32_t *ids, size_t n, float *stream, struct err *e)
{
    const struct gguf_tensor *t = model->global[MODEL_TOKEN_EMBD];
    size_t d = (size_t)model->h.d_model;
    uint16_t *row = malloc(d * sizeof *row);
    int r = t->type == QUANT_F16 ? 0 : -1;
    for (size_t i = 0; i < n && r == 0; i++) {
        r = gguf_read(gguf, t, ids[i] * d * sizeof *row, row, d * sizeof *row, e);
        for (size_t k = 0; k < d; k++)
            stream[i * d + k] = quant_f16_to_f32(row[k]);
    }
    free(row);
    return r;
}

static void experts(void)
{
    char path[256];
    struct err e = { 0 };
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct pool *pool = NULL;
    struct forward *f = NULL, *dense = NULL;
    size_t len = 0;
    uint32_t *ids = prompt_ids(0, &len, &e);
    uint64_t starts[3] = { 0, 5, len }, fired = 0;
    struct routed s = { .fine = 1 };
    struct forward_run run = {
        .tokens = ids, .starts = starts, .n_sequences = 2, .on_layer = count_fired, .ctx = &fired
    };
    float *a = malloc(len * 4096 * sizeof *a), *b = malloc(len * 4096 * sizeof *b), worst = 0;
    test_path(path, sizeof path, "thermo-experts-%d.gguf", (int)getpid());
    CHECK_MSG(!write_experts(path, &e) && !gguf_open(path, &g, &e) && !model_open(g, NULL, &m, &e), "%s", e.msg);
    if (m && !pool_new(2, NULL, &pool, &e) && !forward_new(model, pool, 64, &dense, &e) &&
        !forward_run(dense, &run, &e) && !forward_logits(dense, 0, len, a, &e)) {
        const struct forward_probe probe = { .ctx = &s, .layer = next_stream, .input = keep_stream };
        run.on_layer = count_routed, run.ctx = &s, run.probe = &probe;
        s.stream = malloc(len * (size_t)model->h.d_model * sizeof *s.stream);
        s.before = malloc(len * (size_t)model->h.d_model * sizeof *s.before);
        CHECK(embedded(ids, len, s.stream, &e) == 0);
        CHECK_MSG(!forward_new(m, pool, 64, &f, &e) && !forward_run(f, &run, &e) && !forward_logits(f, 0, len, b, &e),
                  "%s", e.msg);
        for (size_t i = 0; i < len * 4096; i++)
            worst = fmaxf(worst, fabsf(a[i] - b[i]));
        printf("# experts against dense: largest difference %.2e; tokens by expert %llu %llu %llu\n", (double)worst,
               (unsigned long long)s.used[0], (unsigned long long)s.used[1], (unsigned long long)s.used[2]);
        CHECK(worst < 1e-3f);
        CHECK(s.fine && s.used[0] && s.used[1] && s.used[2] && s.used[0] + s.used[1] + s.used[2] == 16 * len);
        printf("# experts foreseen: %d of %d tokens otherwise than by definition\n", s.differ, s.compared);
        CHECK(s.compared == 8 * (int)len && s.differ <= s.compared / 50); /* near ties, which rounding decides */
        CHECK(s.fired > 2 * fired - fired / 100 && s.fired < 2 * fired + fired / 100); /* rounding may turn a few */
    } else {
        CHECK_MSG(0, "%s", e.msg);
    }
    forward_free(f), forward_free(dense);
    pool_free(pool);
    model_close(m);
    gguf_close(g);
    unlink(path);
    free(ids), free(a), free(b), free(s.stream), free(s.before);
}

/* A probe takes every third neuron away, and keeps what it was shown. */
struct probed {
    float *in[PREDICT_INPUTS];
    size_t n, seen[PREDICT_INPUTS];
    int layers, late;
};

static int probe_layer(void *ctx, int layer, struct err *e)
{
    struct probed *p = ctx;
    (void)e;
    p->layers += layer == p->layers;
    return 0;
}

static void probe_input(void *ctx, enum predict_input which, size_t first, int n, const float *x)
{
    struct probed *p = ctx;
    p->seen[which] += (size_t)n;
    memcpy(p->in[which] + first * 256, x, (size_t)n * 256 * sizeof *x);
}

static void probe_neurons(void *ctx, int worker, int block, const size_t *tokens, int n, float *h)
{
    struct probed *p = ctx;
    p->late += worker != 0 || block != 0;
    for (int t = 0; t < n; t++) {
        p->late += t && tokens[t] <= tokens[t - 1];
        for (int i = 0; i < 1280; i += 3)
            h[t * 1280 + i] = 0;
    }
}

static float other_gates[1280 * 256], norm[256];

static int no_third(void *ctx, int layer, enum model_role role, const float **rows, struct err *e)
{
    const struct gguf_tensor *t = model->layer[layer][MODEL_FFN_GATE];
    uint16_t half[256];
    (void)ctx;
    for (size_t i = 0; i < 1280 && role == MODEL_FFN_GATE; i++) {
        int r = gguf_read(gguf, t, i * t->row_bytes, half, sizeof half, e);
        if (r < 0)
            return r;
        for (size_t k = 0; k < 256; k++)
            other_gates[i * 256 + k] = i % 3 ? quant_f16_to_f32(half[k]) : 0;
        *rows = other_gates;
    }
    return 0;
}

/* Against a pass with a gate matrix of which every third row is zero. */
static void probe(void)
{
    struct err e = { 0 };
    struct pool *pool = NULL;
    struct forward *f = NULL;
    size_t len = 0;
    uint32_t *ids = prompt_ids(2, &len, &e);
    uint64_t starts[2] = { 0, len };
    struct probed p = { .n = len };
    float *a = malloc(len * 4096 * sizeof *a), *b = malloc(len * 4096 * sizeof *b), worst = 0, off = 0, row[256];
    for (int i = 0; i < PREDICT_INPUTS; i++)
        p.in[i] = calloc(len, 256 * sizeof(float));
    const struct forward_probe look = { .ctx = &p, .layer = probe_layer, .input = probe_input, .neurons = probe_neurons };
    struct forward_run run = { .tokens = ids, .starts = starts, .n_sequences = 1, .probe = &look };
    CHECK_MSG(!pool_new(1, NULL, &pool, &e) && !forward_new(model, pool, 64, &f, &e) && !forward_run(f, &run, &e) &&
                  !forward_logits(f, 0, len, a, &e), "%s", e.msg);
    run.probe = NULL;
    forward_set_substitute(f, no_third, NULL);
    CHECK(!forward_run(f, &run, &e) && !forward_logits(f, 0, len, b, &e));
    for (size_t i = 0; i < len * 4096; i++)
        worst = fmaxf(worst, fabsf(a[i] - b[i]));
    CHECK_MSG(worst < 1e-3f, "%g", (double)worst);
    CHECK(p.layers == 8 && !p.late && p.seen[PREDICT_BLOCK] == 8 * len && p.seen[PREDICT_FFN] == 8 * len &&
          p.seen[PREDICT_RESIDUAL] == 8 * len);
    const struct gguf_tensor *w = model->layer[7][MODEL_FFN_NORM]; /* the last layer's inputs are what is left */
    CHECK(!gguf_read(gguf, w, 0, norm, sizeof norm, &e));
    for (size_t t = 0; t < len; t++) {
        nn_rmsnorm(row, p.in[PREDICT_RESIDUAL] + t * 256, norm, 256, model->h.rms_eps);
        for (size_t k = 0; k < 256; k++)
            off = fmaxf(off, fabsf(row[k] - p.in[PREDICT_FFN][t * 256 + k]));
    }
    CHECK_MSG(off == 0, "%g", (double)off);
    CHECK(memcmp(p.in[PREDICT_BLOCK], p.in[PREDICT_FFN], len * 256 * sizeof(float)));
    for (int i = 0; i < PREDICT_INPUTS; i++)
        free(p.in[i]);
    forward_free(f);
    pool_free(pool);
    free(ids), free(a), free(b);
}

/* A probe silences by the definition what thresholds silence. */
struct silenced {
    int layer, wrong;
    float thresholds[8 * 1280];
    uint64_t fired;
};

static int silenced_layer(void *ctx, int layer, struct err *e)
{
    (void)e;
    ((struct silenced *)ctx)->layer = layer;
    return 0;
}

static void silenced_gates(void *ctx, int block, size_t token, float *gate, float *up)
{
    struct silenced *s = ctx;
    (void)block, (void)token, (void)up;
    for (int i = 0; i < 1280; i++)
        if (fabsf(gate[i] / (1 + expf(-gate[i]))) < s->thresholds[s->layer * 1280 + i])
            gate[i] = 0;
}

static int silenced_count(void *ctx, const struct forward_layer *l, struct err *e)
{
    struct silenced *s = ctx;
    (void)e;
    s->wrong += l->open != l->active;
    for (size_t i = 0; i < l->n_tokens * 1280; i++)
        s->fired += l->active[i / 1280 * l->row_bytes + i % 1280 / 8] >> i % 8 & 1;
    return 0;
}

static void silenced(void)
{
    static struct silenced s;
    struct err e = { 0 };
    struct gguf *g[2] = { NULL, NULL };
    struct model *m[2] = { NULL, NULL };
    struct pool *pool = NULL;
    size_t len = 0;
    uint32_t *ids = prompt_ids(0, &len, &e);
    uint64_t starts[2] = { 0, len };
    float *z[2] = { malloc(len * 4096 * sizeof(float)), malloc(len * 4096 * sizeof(float)) };
    for (int i = 0; i < 8 * 1280; i++)
        s.thresholds[i] = 0.02f + 0.2f * (float)(i % 97) / 97;
    CHECK(!pool_new(2, NULL, &pool, &e));
    for (int i = 0; i < 2; i++) {
        const struct model_given given = { MODEL_ACT_SILU, MODEL_ROUTER_NONE, i ? s.thresholds : NULL, 0 };
        const struct forward_probe look = { .ctx = &s, .layer = silenced_layer, .gates = silenced_gates };
        struct forward_run run = { .tokens = ids, .starts = starts, .n_sequences = 1, .probe = i ? NULL : &look,
                                   .on_layer = i ? silenced_count : NULL, .ctx = &s };
        struct forward *f = NULL;
        CHECK_MSG(!gguf_open(MODEL, &g[i], &e) && !model_open(g[i], &given, &m[i], &e) && !forward_new(m[i], pool, 64, &f, &e) &&
                      !forward_run(f, &run, &e) && !forward_logits(f, 0, len, z[i], &e), "%s", e.msg);
        forward_free(f);
        model_close(m[i]);
        gguf_close(g[i]);
    }
    double share = (double)s.fired / (double)(len * 8 * 1280);
    printf("# with thresholds %.3f fire\n", share);
    CHECK(!memcmp(z[0], z[1], len * 4096 * sizeof(float)) && !s.wrong && share > 0.1 && share < 0.9);
    pool_free(pool);
    free(ids), free(z[0]), free(z[1]);
}

int main(void)
{
    struct err e = { 0 };
    kernels_init(cpu_detect());
    if (gguf_open(MODEL, &gguf, &e) < 0 || model_open(gguf, NULL, &model, &e) < 0) {
        CHECK_MSG(0, "%s", e.msg);
        return test_done();
    }
    float *a, *b;
    size_t n, m;
    logits_of(1, 0, REF "logits_00.f32", &a, &n);
    logits_of(2, 0, REF "logits_00.f32", &b, &m);
    CHECK(n == m && !memcmp(a, b, n * sizeof *a));
    free(a), free(b);
    logits_of(2, 2, REF "logits_02.f32", &a, &n);
    free(a);
    /* The first windows, in one run and in several: the same bits. */
    struct seen *s1 = calloc(1, sizeof *s1), *s2 = calloc(1, sizeof *s2);
    double p1 = perplexity("datasets/heldout/held_tiny.bin", 4, s1, 1);
    double p2 = perplexity("datasets/heldout/held_tiny.bin", 4, s2, 3);
    CHECK(p1 > 0 && fabs(p1 / p2 - 1) < 1e-12);
    CHECK(!memcmp(s1, s2, sizeof *s1));
    printf("# perplexity of 4 windows %.4f, density %.4f\n", p1, (double)s1->n_active / (4 * 255 * 8 * 1280));
    if (getenv("TEST_FULL")) { /* half a minute: everything the reference has */
        char *ref = NULL;
        size_t len = 0, differ = 0, at = 0;
        uint64_t total = 0;
        memset(s1, 0, sizeof *s1);
        double tiny = perplexity("datasets/heldout/held_tiny.bin", 1 << 20, s1, 8);
        double fairy = perplexity("datasets/heldout/held_fairy.bin", 1 << 20, s1, 8);
        printf("# perplexity: tiny %.3f fairy %.3f\n", tiny, fairy);
        CHECK(fabs(tiny / 10.168 - 1) < 1e-3);
        CHECK(fabs(fairy / 46.669 - 1) < 1e-3);
        CHECK(!file_slurp(REF "hotness_counts.u32", 1 << 20, &ref, &len, &e) && len == 8 * 1280 * 4);
        for (int l = 0; ref && l < 8; l++)
            for (int i = 0; i < 1280; i++, at += 4) {
                uint32_t want;
                memcpy(&want, ref + at, 4);
                total += s1->counts[l][i] > want ? s1->counts[l][i] - want : want - s1->counts[l][i];
                differ += s1->counts[l][i] != want;
            }
        printf("# hotness: %zu of 10240 counts differ, by %llu in all\n", differ, (unsigned long long)total);
        free(ref);
    }
    free(s1), free(s2);
    experts();
    silenced();
    probe();
    model_close(model);
    gguf_close(gguf);
    return test_done();
}
