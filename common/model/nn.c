/* The network's equations on arrays. What is long (attention's two products) runs on the kernel
 * table, so that it is as fast as the weights' products and keeps their bit rules; what is short is
 * plain C, the same bits on every tier. Attention needs no pointer per position of the caller: the
 * values' rows are handed to axpy in runs of a few dozen, which its row order makes invisible. */
#include "common/base/inline.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/model/nn_exp.h"

#include <math.h>
#include <string.h>

void nn_rmsnorm(float *out, const float *x, const float *w, int n, float eps)
{
    enum { LANES = 8 }; /* sums of their own: one would wait for every addition before it */
    double part[LANES] = { 0 }, sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            part[k] += (double)x[i + k] * x[i + k];
    for (; i < n; i++)
        part[0] += (double)x[i] * x[i];
    for (int k = 0; k < LANES; k++)
        sum += part[k];
    float scale = (float)(1.0 / sqrt(sum / n + (double)eps)), some[LANES];
    for (i = 0; i + LANES <= n; i += LANES) { /* out may be x */
        for (int k = 0; k < LANES; k++)
            some[k] = x[i + k] * scale * w[i + k];
        memcpy(out + i, some, sizeof some);
    }
    for (; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

void nn_rms(float *x, int n, float eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    float scale = (float)(1.0 / sqrt(sum / n + (double)eps));
    for (int i = 0; i < n; i++)
        x[i] *= scale;
}

void nn_post_norm(float *out, const float *x, const float *w, int n, const struct model_hparams *h)
{
    nn_rmsnorm(out, x, w, n, h->post_eps > 0 ? h->post_eps : h->rms_eps);
}

void nn_norm(float *out, const float *x, const float *w, const float *b, int n, const struct model_hparams *h)
{
    double sum = 0, squares = 0;
    if (h->no_pre_norms && !w) {
        memmove(out, x, (size_t)n * sizeof *x);
        return;
    }
    if (!h->layer_norm) {
        nn_rmsnorm(out, x, w, n, h->rms_eps);
        return;
    }
    for (int i = 0; i < n; i++)
        sum += (double)x[i];
    double mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    float middle = (float)mean, scale = (float)(1.0 / sqrt(squares / n + (double)h->rms_eps));
    for (int i = 0; i < n; i++)
        out[i] = (x[i] - middle) * scale * w[i] + (b ? b[i] : 0);
}

void nn_heads(float *x, int n_heads, const float *bias, const float *w, const struct model_hparams *h)
{
    int n = n_heads * h->head_dim;
    for (int i = 0; bias && i < n; i++)
        x[i] += bias[i];
    if (w && h->qk_norm == MODEL_QK_NORM_ROW)
        nn_rmsnorm(x, x, w, n, h->rms_eps);
    for (int i = 0; w && h->qk_norm == MODEL_QK_NORM_HEAD && i < n_heads; i++)
        nn_rmsnorm(x + (size_t)i * (size_t)h->head_dim, x + (size_t)i * (size_t)h->head_dim, w, h->head_dim, h->rms_eps);
}

void nn_values(float *v, const float *bias, const struct model_hparams *h)
{
    int dim = h->head_dim, n = h->n_kv_heads * dim;
    for (int i = 0; bias && i < n; i++)
        v[i] += bias[i];
    for (int i = 0; h->value_norm && i < n; i += dim)
        nn_rms(v + i, dim, h->rms_eps);
}

void nn_router_input(float *out, const float *x, const float *w, int n, float eps)
{
    float scale = (float)(1.0 / sqrt((double)n));
    nn_rmsnorm(out, x, w, n, eps);
    for (int i = 0; i < n; i++)
        out[i] *= scale;
}

float nn_query_scale(const struct model_hparams *h, int pos)
{
    return h->temperature > 0 ? (float)(1 + (double)h->temperature * log(1 + pos / h->yarn_context)) : 1;
}

/* The pair that goes round so many times in yarn's original context. */
static double yarn_pair(const struct model_hparams *h, double times)
{
    return h->n_rot * log(h->yarn_context / (times * 2 * 3.14159265358979323846)) / (2 * log((double)h->rope_theta));
}

void nn_rope_freqs(float *freqs, const struct model_hparams *h, int windowed, const float *divisor)
{
    int apart = windowed && h->rope_theta_window > 0;
    double theta = (double)(apart ? h->rope_theta_window : h->rope_theta), scale = apart ? 1 : (double)h->rope_scale;
    double low = 0, high = 0;
    if (h->yarn_context) {
        low = fmax(0, floor(yarn_pair(h, (double)h->yarn_fast)));
        high = fmin(h->n_rot - 1, ceil(yarn_pair(h, (double)h->yarn_slow)));
    }
    for (int i = 0; i < h->n_rot / 2; i++) {
        double own = pow(theta, -2.0 * i / h->n_rot), f = own * scale;
        if (h->yarn_context && !apart) {
            double scaled = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
            f = f * scaled + own * (1 - scaled);
        }
        freqs[i] = (float)(divisor ? f / (double)divisor[i] : f);
    }
}

void nn_rope_all(float *freqs, const struct model_hparams *h, const float *divisor)
{
    struct model_hparams window = model_kind(h, 1);
    nn_rope_freqs(freqs, h, 0, divisor);
    nn_rope_freqs(freqs + h->n_rot / 2, &window, 1, h->head_dim_window ? NULL : divisor);
}

void nn_rope(float *x, int n_heads, int head_dim, int n_rot, enum model_rope style,
             const float *freqs, float mscale, int pos)
{
    for (int i = 0; i < n_rot / 2; i++) {
        float angle = (float)pos * freqs[i], c = cosf(angle) * mscale, s = sinf(angle) * mscale;
        int a = style == MODEL_ROPE_NORM ? 2 * i : i;
        int b = style == MODEL_ROPE_NORM ? 2 * i + 1 : i + n_rot / 2;
        for (int h = 0; h < n_heads; h++) {
            float *v = x + (size_t)h * (size_t)head_dim, x0 = v[a], x1 = v[b];
            v[a] = x0 * c - x1 * s;
            v[b] = x0 * s + x1 * c;
        }
    }
}

void nn_softmax(float *x, int n)
{
    nn_softmax_sink(x, n, -INFINITY);
}

/* The largest of x and first. NaN is passed over, but for first. */
static float largest(const float *x, int n, float first)
{
    nn_f4 most = nn_all(first);
    int i = 0;
    for (; i + NN_EXP_LANES <= n; i += NN_EXP_LANES) {
        const nn_f4 v = nn_load(x + i);
        most = nn_pick(v > most, v, most);
    }
    for (; i < n; i++)
        most[0] = x[i] > most[0] ? x[i] : most[0];
    for (i = 1; i < NN_EXP_LANES; i++)
        most[0] = most[i] > most[0] ? most[i] : most[0];
    return most[0];
}

/* x[i] = exp(x[i] - top); returns their sum, in an order of its own. */
static double exp_all(float *x, int n, float top)
{
    double part[NN_EXP_LANES] = { 0 };
    int i = 0;
    for (; i + NN_EXP_LANES <= n; i += NN_EXP_LANES) {
        const nn_f4 v = nn_exp(nn_load(x + i) - nn_all(top));
        memcpy(x + i, &v, sizeof v);
        for (int k = 0; k < NN_EXP_LANES; k++)
            part[k] += (double)v[k];
    }
    for (int k = 0; i < n; i++, k++) {
        x[i] = nn_exp(nn_all(x[i] - top))[0];
        part[k] += (double)x[i];
    }
    return (part[0] + part[1]) + (part[2] + part[3]);
}

void nn_softmax_sink(float *x, int n, float sink)
{
    float top = largest(x, n, sink > x[0] ? sink : x[0]);
    double sum = (double)expf(sink - top) + exp_all(x, n, top);
    float inv = (float)(1.0 / sum);
    for (int i = 0; i < n; i++)
        x[i] *= inv;
}

/* Row of position p, and how many positions from there on, up to `most`, lie in neighbouring rows. */
static int64_t rows_from(const struct nn_attn *a, int p, int most, int *run)
{
    *run = most;
    if (!a->pages)
        return p;
    int at = a->first + p, i = at / a->page, n = a->page - at % a->page;
    int64_t row = (int64_t)a->pages[i] * a->page + at % a->page;
    for (; n < most && a->pages[i + 1] == a->pages[i] + 1; i++)
        n += a->page;
    *run = n < most ? n : most;
    return row;
}

/* scores[i][p] = q_i . k_p, of n_heads queries and all positions. */
static void attention_scores(const struct nn_attn *a, const float *q, const uint8_t *k, size_t stride, int n_pos, int n_heads,
                             float *scores)
{
    const uint32_t type = a->type;
    for (int p = 0, n; p < n_pos; p += n) {
        int64_t row = rows_from(a, p, n_pos - p, &n);
        kernels->rows[KERNELS_ACT_F32][type](scores + p, a->scores_stride, k + (size_t)row * stride, stride, n, q,
                                             (size_t)a->head_dim * sizeof *q, n_heads, a->head_dim);
    }
}

static size_t value_dim(const struct nn_attn *a)
{
    return (size_t)(a->value_dim ? a->value_dim : a->head_dim);
}

/* out[i] += sum of scores[i][p] v_p over positions [p, end), in ascending order. */
static void add_values(const struct nn_attn *a, const uint8_t *v, size_t stride, int p, int end, const float *scores, size_t scores_stride,
                       int n, float *out)
{
    const size_t width = value_dim(a);
    for (int some; p < end; p += some) {
        int64_t row = rows_from(a, p, end - p, &some);
        kernels->sums[a->type](out, width, v + (size_t)row * stride, stride, scores + p, scores_stride, some, n, (int)width);
    }
}

/* out[i] = sum of scores[i][p] v_p in ascending positions. */
static void attention_values(const struct nn_attn *a, const uint8_t *v, size_t stride, int n_pos, int n_heads, const float *scores,
                             float *out)
{
    memset(out, 0, (size_t)n_heads * value_dim(a) * sizeof *out);
    add_values(a, v, stride, 0, n_pos, scores, a->scores_stride, n_heads, out);
}

/* Scores of a head become its weights. */
static void attention_weights(const struct nn_attn *a, float *s, int n_pos, int head)
{
    for (int p = 0; p < n_pos; p++)
        s[p] *= a->scale;
    for (int p = 0; a->softcap > 0 && p < n_pos; p++)
        s[p] = a->softcap * tanhf(s[p] / a->softcap);
    nn_softmax_sink(s, n_pos, a->sinks ? a->sinks[head] : -INFINITY);
}

/* How many heads from h on go together. */
static int heads_from(const struct nn_attn *a, int h, int end)
{
    const int group = a->n_heads / a->n_kv_heads, n = group - h % group < end - h ? group - h % group : end - h;
    return n < NN_ATTN_HEADS ? n : NN_ATTN_HEADS;
}

/* Where the keys, or values, of a head begin. */
static size_t kv_begins(const struct nn_attn *a, int h)
{
    const size_t head = (size_t)(h / (a->n_heads / a->n_kv_heads));
    return head * quant_row_bytes(a->type, a->kv_head ? a->kv_head : (size_t)a->head_dim);
}

void nn_attention(float *out, const float *q, const void *k, const void *v, int n_pos,
                  int head0, int head1, const struct nn_attn *a, float *scores)
{
    const size_t stride = quant_row_bytes(a->type, a->kv_stride), dim = (size_t)a->head_dim, width = value_dim(a);
    for (int h = head0, n_heads; h < head1; h += n_heads) {
        size_t kv = kv_begins(a, h);
        n_heads = heads_from(a, h, head1);
        attention_scores(a, q + (size_t)h * dim, (const uint8_t *)k + kv, stride, n_pos, n_heads, scores);
        for (int i = 0; i < n_heads; i++)
            attention_weights(a, scores + (size_t)i * a->scores_stride, n_pos, h + i);
        attention_values(a, (const uint8_t *)v + kv, stride, n_pos, n_heads, scores, out + (size_t)h * width);
    }
}

/* ---- several tokens ----
 *
 * Their queries, those of the heads that share a KV head, go through the products together: a row of K comes from the second level once
 * for all of them, and V's rows by `sums`, which makes 16 of F16 to floats once for eight queries. All see the positions from
 * the last one's first to the first one's last; what lies before and behind is each token's own, and added in its place in the order, so
 * that nothing else takes part in any sum. Scores of positions that a token does not see are made and left alone.
 *
 * To reach, AVX-512, 512 positions of head_dim 128, F16: half of what additions alone could do in V, 0.4 in scores, whose sums over
 * lanes take a third of the time. */

/* Scores of a query, on a line of their own and never the same set of the cache. */
static size_t run_stride(int n_tokens, int n_pos)
{
    return ((size_t)n_pos + (size_t)n_tokens - 1 + 15) / 16 * 16 + 16;
}

size_t nn_attention_floats(int n_tokens, int n_pos, const struct nn_attn *a)
{
    const int group = a->n_heads / a->n_kv_heads;
    const size_t queries = (size_t)n_tokens * (size_t)(group < NN_ATTN_HEADS ? group : NN_ATTN_HEADS);
    return queries * (run_stride(n_tokens, n_pos) + (size_t)a->head_dim + value_dim(a));
}

/* The heads from h on, n of them, of all tokens. Query t * n + i is that of token t and head h + i. */
static void run_heads(float *out, size_t out_step, const float *q, size_t q_step, const uint8_t *k, const uint8_t *v, int n_tokens,
                      int n_pos, const int *from, int h, int n, const struct nn_attn *a, float *work)
{
    const size_t stride = quant_row_bytes(a->type, a->kv_stride), dim = (size_t)a->head_dim, width = value_dim(a);
    struct nn_attn own = *a;
    own.scores_stride = run_stride(n_tokens, n_pos);
    const int queries = n_tokens * n, first = from[n_tokens - 1] < n_pos ? from[n_tokens - 1] : n_pos;
    float *scores = work, *qs = scores + (size_t)queries * own.scores_stride, *sums = qs + (size_t)queries * dim;
    for (int t = 0; t < n_tokens; t++)
        memcpy(qs + (size_t)(t * n) * dim, q + (size_t)t * q_step + (size_t)h * dim, (size_t)n * dim * sizeof *qs);
    attention_scores(&own, qs, k, stride, n_pos + n_tokens - 1, queries, scores);
    memset(sums, 0, (size_t)queries * width * sizeof *sums);
    for (int t = 0; t < n_tokens; t++) {
        float *s = scores + (size_t)(t * n) * own.scores_stride;
        for (int i = 0; i < n; i++)
            attention_weights(a, s + (size_t)i * own.scores_stride + from[t], n_pos + t - from[t], h + i);
        add_values(a, v, stride, from[t], first, s, own.scores_stride, n, sums + (size_t)(t * n) * width);
    }
    add_values(a, v, stride, first, n_pos, scores, own.scores_stride, queries, sums);
    for (int t = 0; t < n_tokens; t++) {
        const int begin = from[t] > n_pos ? from[t] : n_pos;
        add_values(a, v, stride, begin, n_pos + t, scores + (size_t)(t * n) * own.scores_stride, own.scores_stride, n,
                 sums + (size_t)(t * n) * width);
        memcpy(out + (size_t)t * out_step + (size_t)h * width, sums + (size_t)(t * n) * width, (size_t)n * width * sizeof *out);
    }
}

void nn_attention_run(float *out, size_t out_step, const float *q, size_t q_step, const void *k, const void *v, int n_tokens, int n_pos,
                      const int *from, int head0, int head1, const struct nn_attn *a, float *work)
{
    for (int h = head0, n; h < head1; h += n) {
        const size_t kv = kv_begins(a, h);
        n = heads_from(a, h, head1);
        run_heads(out, out_step, q, q_step, (const uint8_t *)k + kv, (const uint8_t *)v + kv, n_tokens, n_pos, from, h, n, a, work);
    }
}

void nn_latent_token(float *turned, float *q, float *kv, const float *kv_norm, const float *freqs, const struct model_hparams *h, int pos)
{
    int rot = h->n_rot, dim = h->nope_dim + rot;
    nn_rmsnorm(kv, kv, kv_norm, h->kv_rank, h->rms_eps);
    nn_rope(kv + h->kv_rank, 1, rot, rot, h->rope, freqs, h->rope_mscale, pos);
    nn_rope(q + h->nope_dim, h->n_heads, dim, rot, h->rope, freqs, h->rope_mscale, pos);
    for (int i = 0; i < h->n_heads; i++)
        memcpy(turned + (size_t)i * (size_t)h->head_dim + h->kv_rank, q + (size_t)i * (size_t)dim + h->nope_dim, (size_t)rot * sizeof *q);
}

void nn_each_head(float *out, const float *x, int n, int head0, int head1, const struct nn_each_head *m)
{
    size_t row = quant_row_bytes(m->type, (uint64_t)m->cols), one = row * (size_t)m->rows;
    for (int i = head0; i < head1; i++)
        kernels->rows[KERNELS_ACT_F32][m->type](out + (size_t)i * m->out_step, m->out_stride, (const uint8_t *)m->w + (size_t)i * one, row,
                                                m->rows, x + (size_t)i * m->x_step, m->x_stride * sizeof *x, n, m->cols);
}

static nn_f4 silu4(nn_f4 g, float slope)
{
    return g / (nn_all(1) + nn_exp(g * nn_all(-slope)));
}

/* 0.5 g (1 + tanh(y)) = g / (1 + exp(-2y)), y = sqrt(2 / pi) (g + 0.044715 g^3) */
static nn_f4 gelu4(nn_f4 g)
{
    const nn_f4 y = nn_all(0.797884560802865f) * g * (nn_all(1) + nn_all(0.044715f) * g * g);
    return g / (nn_all(1) + nn_exp(nn_all(-2) * y));
}

static nn_f4 at_most(nn_f4 v, float most)
{
    return nn_pick(v < nn_all(most), v, nn_all(most));
}

static nn_f4 at_least(nn_f4 v, float least)
{
    return nn_pick(v > nn_all(least), v, nn_all(least));
}

INLINE nn_f4 act4(nn_f4 g, nn_f4 u, enum model_act act)
{
    const nn_f4 none = nn_all(0);
    switch (act) {
    case MODEL_ACT_SILU: return silu4(g, 1) * u;
    case MODEL_ACT_RELU: return nn_pick(g > none, g * u, none);
    case MODEL_ACT_DRELU: return nn_pick((g > none) & (u > none), g * u, none);
    case MODEL_ACT_SWIGLU_OAI: return silu4(at_most(g, 7), 1.702f) * (at_least(at_most(u, 7), -7) + nn_all(1));
    case MODEL_ACT_GELU: return gelu4(g) * u;
    case MODEL_ACT_GELU_UNGATED: return gelu4(g);
    case MODEL_ACT_RELU_UNGATED: return nn_pick(g > none, g, none);
    case MODEL_ACTS: break;
    }
    return none;
}

INLINE void act_all(float *h, const float *gate, const float *up, int n, enum model_act act)
{
    const int gated = act != MODEL_ACT_GELU_UNGATED && act != MODEL_ACT_RELU_UNGATED; /* else there is no up */
    int i = 0;
    for (; i + NN_EXP_LANES <= n; i += NN_EXP_LANES) { /* h may be gate or up */
        const nn_f4 g = nn_load(gate + i), v = act4(g, gated ? nn_load(up + i) : g, act);
        memcpy(h + i, &v, sizeof v);
    }
    for (; i < n; i++)
        h[i] = act4(nn_all(gate[i]), nn_all(gated ? up[i] : 0), act)[0];
}

void nn_ffn_act(float *h, const float *gate, const float *up, int n, enum model_act act)
{
    switch (act) {
    case MODEL_ACT_SILU: act_all(h, gate, up, n, MODEL_ACT_SILU); break;
    case MODEL_ACT_RELU: act_all(h, gate, up, n, MODEL_ACT_RELU); break;
    case MODEL_ACT_DRELU: act_all(h, gate, up, n, MODEL_ACT_DRELU); break;
    case MODEL_ACT_SWIGLU_OAI: act_all(h, gate, up, n, MODEL_ACT_SWIGLU_OAI); break;
    case MODEL_ACT_GELU: act_all(h, gate, up, n, MODEL_ACT_GELU); break;
    case MODEL_ACT_GELU_UNGATED: act_all(h, gate, up, n, MODEL_ACT_GELU_UNGATED); break;
    case MODEL_ACT_RELU_UNGATED: act_all(h, gate, up, n, MODEL_ACT_RELU_UNGATED); break;
    case MODEL_ACTS: break;
    }
}

/* The largest of n values that are not taken, the lower index first among equals; those of closed groups are left out. */
static int best_of(const float *v, int n, const uint16_t *taken, int n_taken, const uint8_t *closed, int per_group)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        int no = (closed && closed[i / per_group]) || (best >= 0 && !(v[i] > v[best]));
        for (int j = 0; j < n_taken && !no; j++)
            no = taken[j] == i;
        best = no ? best : i;
    }
    return best;
}

/* closed[g] = 0 for the groups whose two best sum to most. */
static void open_groups(const float *score, const struct model_hparams *h, uint8_t *closed)
{
    float sum[MODEL_MAX_EXPERTS];
    uint16_t groups[MODEL_MAX_EXPERTS];
    int per = h->n_experts / h->n_groups;
    for (int g = 0; g < h->n_groups; g++) {
        const float *s = score + (size_t)g * (size_t)per;
        uint16_t first = (uint16_t)best_of(s, per, NULL, 0, NULL, 1);
        sum[g] = s[first] + (per > 1 ? s[best_of(s, per, &first, 1, NULL, 1)] : 0);
    }
    memset(closed, 1, (size_t)h->n_groups);
    for (int k = 0; k < h->n_groups_used; k++) {
        groups[k] = (uint16_t)best_of(sum, h->n_groups, groups, k, NULL, 1);
        closed[groups[k]] = 0;
    }
}

static void choose(uint16_t *chosen, const float *logits, const float *bias, const struct model_hparams *h)
{
    float score[MODEL_MAX_EXPERTS];
    uint8_t closed[MODEL_MAX_EXPERTS];
    const uint8_t *shut = NULL;
    int per = 1;
    for (int i = 0; (bias || h->n_groups > 1) && i < h->n_experts; i++)
        score[i] = nn_sigmoid(logits[i]) + (bias ? bias[i] : 0);
    logits = bias || h->n_groups > 1 ? score : logits;
    if (h->n_groups > 1) {
        open_groups(score, h, closed);
        shut = closed;
        per = h->n_experts / h->n_groups;
    }
    for (int s = 0; s < h->n_experts_used; s++)
        chosen[s] = (uint16_t)best_of(logits, h->n_experts, chosen, s, shut, per);
}

static void set_weights(float *weight, const uint16_t *chosen, const float *logits, const struct model_hparams *h)
{
    int n = h->n_experts, used = h->n_experts_used;
    double sum = 0;
    for (int s = 0; s < used; s++)
        weight[s] = logits[chosen[s]];
    if (h->router == MODEL_ROUTER_SOFTMAX_TOPK) {
        nn_softmax(weight, used);
        return;
    }
    if (h->router == MODEL_ROUTER_SOFTMAX_ALL) {
        float top = logits[best_of(logits, n, NULL, 0, NULL, 1)];
        for (int i = 0; i < n; i++)
            sum += (double)expf(logits[i] - top);
        for (int s = 0; s < used; s++)
            weight[s] = (float)((double)expf(weight[s] - top) / sum);
        return;
    }
    for (int s = 0; s < used; s++) {
        weight[s] = nn_sigmoid(weight[s]);
        sum += (double)weight[s];
    }
    float inv = (float)(1.0 / fmax(sum, 0x1p-14));
    for (int s = 0; s < used; s++)
        weight[s] *= inv;
}

void nn_route(uint16_t *chosen, float *weight, const float *logits, const float *bias, const struct model_hparams *h)
{
    choose(chosen, logits, bias, h);
    set_weights(weight, chosen, logits, h);
    for (int s = 0; h->expert_scale > 0 && s < h->n_experts_used; s++)
        weight[s] *= h->expert_scale;
}

float nn_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

void nn_logits(float *z, size_t n, const struct model_hparams *h)
{
    for (size_t i = 0; h->logit_scale > 0 && i < n; i++)
        z[i] *= h->logit_scale;
    for (size_t i = 0; h->final_softcap > 0 && i < n; i++)
        z[i] = h->final_softcap * tanhf(z[i] / h->final_softcap);
}

float nn_shared_weight(const float *w, const float *x, int n)
{
    if (!w)
        return 1;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)w[i] * (double)x[i];
    return nn_sigmoid((float)sum);
}

/* |act(g)| lies between g / 2 and g for g >= 0, and is at most |g| / 2 below; rounded as nn_ffn_act does too, for rounding is
 * monotone and halves are exact. */
void nn_silence(float *gate, const float *threshold, int n, enum model_act act)
{
    for (int i = 0; i < n; i++) {
        float g = gate[i], t = threshold[i];
        if (g >= 0 ? g < t : -0.5f * g < t) {
            gate[i] = 0;
        } else if (!(0.5f * g >= t)) {
            float one = 1, a;
            nn_ffn_act(&a, &g, &one, 1, act);
            if (fabsf(a) < t)
                gate[i] = 0;
        }
    }
}

int nn_act_is_sparse(enum model_act act)
{
    return act == MODEL_ACT_RELU || act == MODEL_ACT_DRELU || act == MODEL_ACT_RELU_UNGATED;
}

void nn_gate_heads(float *x, const float *gates, int stride, int n_heads, int dim)
{
    for (int head = 0; head < n_heads; head++)
        for (int i = 0; i < dim; i++)
            x[head * dim + i] *= nn_sigmoid(gates[(head + 1) * stride - dim + i]);
}
