/* Samples are read in runs of the trace's own order and put where training and held-out tokens belong. The
 * block's input is stored before its norm; predictors see it after, as the runtime has it at hand there. */
#include "profiler/predictors/predictor_samples.h"

#include "profiler/predictors/predictor.h"

#include "common/model/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOLD_ONE_IN = 8, RUN = PREDICTOR_SAMPLES_RUN, LEAST = 64, READ = 512 };

void predictor_samples_close(struct predictor_samples *s)
{
    free(s->at), free(s->token);
    *s = (struct predictor_samples){ 0 };
}

int predictor_samples_whole(const struct trace_info *i)
{
    return i->n_sequences >= 4 * HOLD_ONE_IN;
}

/* Held out: sequence 7, 15, ... of the corpus; in a trace of few sequences, runs of tokens. */
int predictor_samples_held(struct trace *t, uint64_t sequence, uint64_t token)
{
    const uint64_t *index = trace_sequence_index(t);
    if (predictor_samples_whole(trace_info(t)))
        return index[sequence] % HOLD_ONE_IN == HOLD_ONE_IN - 1;
    return token / RUN % HOLD_ONE_IN == HOLD_ONE_IN - 1;
}

int predictor_samples_open(struct trace *t, uint64_t most, int all_held, struct predictor_samples *out, struct err *e)
{
    const struct trace_info *i = trace_info(t);
    uint64_t all = i->n_samples, n = most && most < all ? most : all;
    struct predictor_samples s = { .trace = t };
    uint64_t *token = malloc((size_t)(all + 1) * 8);
    s.at = malloc((size_t)(n + 1) * 8), s.token = malloc((size_t)(n + 1) * 8);
    int r = token && s.at && s.token ? trace_sample_tokens(t, 0, all, token, e)
                                     : err_set(e, ERR_NOMEM, "%llu samples", (unsigned long long)all);
    const uint64_t *starts = trace_sequence_starts(t);
    for (int held = 0; held < 2 && !r; held++) {
        uint64_t sequence = 0;
        for (uint64_t k = 0; k < n; k++) {
            uint64_t at = n == all ? k : k * all / n;
            while (starts[sequence + 1] <= token[at])
                sequence++;
            if ((all_held || predictor_samples_held(t, sequence, token[at])) == held)
                s.at[s.n] = at, s.token[s.n++] = token[at];
        }
        if (!held)
            s.n_train = s.n;
    }
    free(token);
    if (!r && ((!all_held && s.n_train < LEAST) || s.n - s.n_train < LEAST / 2))
        r = err_set(
            e, ERR_INPUT,
            "'%s' holds FFN inputs of %llu tokens, which is too few: %llu for training and %llu to measure; "
            "trace more tokens, with a larger --samples",
            i->path, (unsigned long long)all, (unsigned long long)s.n_train,
            (unsigned long long)(s.n - s.n_train));
    if (r < 0)
        predictor_samples_close(&s);
    else
        *out = s;
    return r;
}

/* ---- a layer ---- */

void predictor_layer_free(struct predictor_layer *l)
{
    for (int i = 0; i < PREDICT_INPUTS; i++)
        free(l->input[i]);
    free(l->blocks);
    *l = (struct predictor_layer){ 0 };
}

struct load {
    const struct predictor_samples *s;
    struct predictor_layer *l;
    const float *attn_norm, *ffn_norm;
    size_t *place;               /* [samples of the trace] position + 1; 0: not used */
    uint16_t *block_input, *ffn_input;
    float *rms;
};

static int take(struct load *k, uint64_t first, uint64_t n, struct err *e)
{
    const struct model_hparams *h = &trace_info(k->s->trace)->h;
    size_t d = (size_t)h->d_model;
    float **in = k->l->input;
    int r = trace_samples(k->s->trace, k->l->layer, first, n, in[PREDICT_BLOCK] ? k->block_input : NULL, k->ffn_input,
                          in[PREDICT_RESIDUAL] ? k->rms : NULL, NULL, e);
    for (uint64_t i = 0; i < n && !r; i++) {
        if (!k->place[first + i])
            continue;
        size_t to = (k->place[first + i] - 1) * d;
        const uint16_t *f = k->ffn_input + i * d, *b = k->block_input + i * d;
        for (size_t j = 0; j < d; j++)
            in[PREDICT_FFN][to + j] = quant_f16_to_f32(f[j]);
        for (size_t j = 0; j < d && in[PREDICT_RESIDUAL]; j++)
            in[PREDICT_RESIDUAL][to + j] =
                k->ffn_norm[j] != 0 ? in[PREDICT_FFN][to + j] * k->rms[i] / k->ffn_norm[j] : 0;
        for (size_t j = 0; j < d && in[PREDICT_BLOCK]; j++)
            in[PREDICT_BLOCK][to + j] = quant_f16_to_f32(b[j]);
        if (in[PREDICT_BLOCK])
            nn_rmsnorm(in[PREDICT_BLOCK] + to, in[PREDICT_BLOCK] + to, k->attn_norm, h->d_model, h->rms_eps);
    }
    return r;
}

static int take_routing(const struct predictor_samples *s, struct predictor_layer *l, struct err *e)
{
    const struct trace_info *i = trace_info(s->trace);
    size_t k = (size_t)trace_slots(&i->h);
    uint16_t *all = malloc((size_t)i->n_tokens * k * sizeof *all);
    l->blocks = malloc(s->n * k * sizeof *l->blocks);
    int r = all && l->blocks ? trace_routing(s->trace, l->layer, 0, i->n_tokens, all, e)
                             : err_set(e, ERR_NOMEM, "routing of %llu tokens", (unsigned long long)i->n_tokens);
    for (size_t t = 0; t < s->n && !r; t++)
        memcpy(l->blocks + t * k, all + s->token[t] * k, k * sizeof *all);
    free(all);
    return r;
}

int predictor_layer_load(const struct predictor_samples *s, int layer, unsigned inputs, const float *attn_norm,
                         const float *ffn_norm, struct predictor_layer *out, struct err *e)
{
    const struct trace_info *info = trace_info(s->trace);
    size_t d = (size_t)info->h.d_model, all = (size_t)info->n_samples;
    struct predictor_layer l = { .layer = layer };
    struct load k = { .s = s,
                      .l = &l,
                      .attn_norm = attn_norm,
                      .ffn_norm = ffn_norm,
                      .place = calloc(all + 1, sizeof(size_t)),
                      .block_input = malloc(READ * d * 2),
                      .ffn_input = malloc(READ * d * 2),
                      .rms = malloc(READ * 4) };
    int r = k.place && k.block_input && k.ffn_input && k.rms ? 0 : ERR_NOMEM;
    for (int i = 0; i < PREDICT_INPUTS && !r; i++)
        if ((i == PREDICT_FFN || inputs >> i & 1) && !(l.input[i] = malloc((s->n + 1) * d * sizeof(float))))
            r = ERR_NOMEM;
    if (r)
        err_set(e, r, "inputs of %zu tokens", s->n);
    for (size_t t = 0; t < s->n && !r; t++)
        k.place[s->at[t]] = t + 1;
    for (size_t at = 0; at < all && !r; at += READ)
        r = take(&k, at, all - at < READ ? all - at : READ, e);
    if (!r && info->h.n_experts)
        r = take_routing(s, &l, e);
    for (int i = 0; i < PREDICT_INPUTS && !r; i++)
        for (size_t j = 0; l.input[i] && j < s->n * d; j++)
            if (!isfinite(l.input[i][j])) {
                r = err_set(e, ERR_FORMAT, "'%s': a sampled input of layer %d is not finite", info->path, layer);
                break;
            }
    free(k.place), free(k.block_input), free(k.ffn_input), free(k.rms);
    if (r < 0)
        predictor_layer_free(&l);
    else
        *out = l;
    return r;
}

/* ---- a block ---- */

static int routed(const struct predictor_layer *l, size_t token, size_t k, int block)
{
    for (size_t j = 0; j < k; j++)
        if (l->blocks[token * k + j] == block)
            return 1;
    return 0;
}

int predictor_block_gather(const struct predictor_samples *s, const struct predictor_layer *l, int block, size_t least,
                           struct predictor_block *out, struct err *e)
{
    const struct model_hparams *h = &trace_info(s->trace)->h;
    size_t d = (size_t)h->d_model, k = (size_t)trace_slots(h), n = 0, n_train = 0;
    struct predictor_block b = { .n = s->n, .n_train = s->n_train };
    for (size_t t = 0; l->blocks && t < s->n; t++)
        if (routed(l, t, k, block))
            n++, n_train += t < s->n_train;
    b.stand_in = l->blocks && (n_train < (s->n_train ? least : 0) || n - n_train < 8);
    for (int i = 0; i < PREDICT_INPUTS; i++)
        b.input[i] = l->input[i];
    if (l->blocks && !b.stand_in) {
        b.n = n, b.n_train = n_train;
        for (int i = 0; i < PREDICT_INPUTS; i++) {
            if (!l->input[i])
                continue;
            if (!(b.owned[i] = malloc((n + 1) * d * sizeof(float)))) {
                predictor_block_free(&b);
                return err_set(e, ERR_NOMEM, "inputs of %zu tokens", n);
            }
            size_t to = 0;
            for (size_t t = 0; t < s->n; t++)
                if (routed(l, t, k, block))
                    memcpy(b.owned[i] + to++ * d, l->input[i] + t * d, d * sizeof(float));
            b.input[i] = b.owned[i];
        }
    }
    *out = b;
    return 0;
}

void predictor_block_free(struct predictor_block *b)
{
    for (int i = 0; i < PREDICT_INPUTS; i++)
        free(b->owned[i]);
    *b = (struct predictor_block){ 0 };
}

/* ---- matrices ---- */

int predictor_biases(const struct model *m, int layer, int block, float *out[2], struct err *e)
{
    static const enum model_role roles[2] = { MODEL_FFN_GATE_BIAS, MODEL_FFN_UP_BIAS };
    size_t bytes = (size_t)model_n_ff(&m->h, layer) * sizeof(float);
    int r = 0;
    for (int i = 0; i < (m->h.act == MODEL_ACT_DRELU ? 2 : 1) && r == 0; i++) {
        const struct gguf_tensor *t = m->layer[layer][roles[i]]; /* F32 of n_ff elements a block: model_open saw to it */
        if (!t)
            continue;
        out[i] = malloc(bytes);
        r = out[i] ? gguf_read(m->gguf, t, (uint64_t)block * bytes, out[i], bytes, e)
                   : err_set(e, ERR_NOMEM, "biases of %d neurons", model_n_ff(&m->h, layer));
    }
    return r;
}

int predictor_layer_edges(const struct model *m, int layer, float **out, struct err *e)
{
    const struct gguf_tensor *t = m->layer[layer][MODEL_FFN_THRESHOLD]; /* F32 of n_ff elements: model_open saw to it */
    size_t n = (size_t)model_n_ff(&m->h, layer);
    *out = NULL;
    if (!t || !m->h.thresholds)
        return 0;
    float *own = malloc(n * sizeof *own);
    *out = malloc(n * PREDICTOR_EDGES * sizeof **out);
    int r = own && *out ? gguf_read(m->gguf, t, 0, own, n * sizeof *own, e) : err_set(e, ERR_NOMEM, "thresholds of %zu neurons", n);
    for (size_t i = 0; i < n && r == 0; i++)
        predictor_edges(own[i], m->h.act, *out + i * PREDICTOR_EDGES);
    free(own);
    return r;
}

int predictor_tensor_open(const struct gguf *g, const struct gguf_tensor *t, struct predictor_tensor *out, struct err *e)
{
    const struct quant_traits *q = quant_traits(t->type);
    if (!q || !q->dequant)
        return err_set(e, ERR_UNSUPPORTED, "tensor '%s' has type %s, which cannot be read", t->name,
                       q ? q->name : "unknown");
    *out = (struct predictor_tensor){ .gguf = g, .tensor = t };
    return 0;
}

int predictor_tensor_next(struct predictor_tensor *t, int n_blocks, float *out, struct err *e)
{
    enum { PIECE = 1 << 20 };
    const struct gguf_tensor *x = t->tensor;
    const struct quant_traits *q = quant_traits(x->type);
    uint64_t bytes = x->bytes / (uint64_t)n_blocks;
    size_t step = PIECE / x->row_bytes ? (size_t)(PIECE / x->row_bytes * x->row_bytes) : (size_t)x->row_bytes;
    uint8_t *buf = malloc(step);
    int r = buf ? 0 : err_set(e, ERR_NOMEM, "reading '%s'", x->name);
    for (uint64_t at = 0; at < bytes && !r; at += step) {
        size_t n = bytes - at < step ? (size_t)(bytes - at) : step;
        if ((r = gguf_read(t->gguf, x, t->done + at, buf, n, e)) < 0)
            break;
        size_t elems = n / (size_t)q->block_bytes * (size_t)q->block_elems;
        q->dequant(out, buf, elems);
        out += elems;
    }
    free(buf);
    t->done += bytes;
    return r;
}
