/* The tensors of a model: each role of the table in model_role.c is found by name, its shape is compared with the
 * hyper-parameters, and a tensor of no role is refused. */
#include "common/model/model.h"

#include "common/kernels/quant.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer's predictor has both matrices, of one rank. */
static int check_predictor(const struct model *m, int layer, struct err *e)
{
    const struct gguf_tensor *fc1 = m->layer[layer][MODEL_PREDICT_FC1], *fc2 = m->layer[layer][MODEL_PREDICT_FC2];
    if (!fc1 != !fc2)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is there without its other half, '%s'", gguf_name(m->gguf),
                       (fc1 ? fc1 : fc2)->name, fc1 ? "fc2.weight" : "fc1.weight");
    if (fc1 && fc1->dims[1] != fc2->dims[0])
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is of rank %" PRIu64 ", '%s' of rank %" PRIu64,
                       gguf_name(m->gguf), fc1->name, fc1->dims[1], fc2->name, fc2->dims[0]);
    return 0;
}

static int check_shape(const struct model *m, const struct gguf_tensor *t, enum model_role r, int layer, struct err *e)
{
    uint64_t want[4];
    model_tensor_shape_at(&m->h, r, layer, want);
    for (int i = 0; i < 2; i++)
        if (want[i] == 0)
            want[i] = t->dims[i];
    if (memcmp(want, t->dims, sizeof want))
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is of shape %" PRIu64 " x %" PRIu64 " x %" PRIu64
                       " x %" PRIu64 ", the hyper-parameters want %" PRIu64 " x %" PRIu64 " x %" PRIu64
                       " x 1", gguf_name(m->gguf), t->name, t->dims[0], t->dims[1], t->dims[2], t->dims[3],
                       want[0], want[1], want[2]);
    const struct quant_traits *q = quant_traits(t->type);
    if (!q->dequant)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s': type %s cannot be computed by this build",
                       gguf_name(m->gguf), t->name, q->name);
    if (model_role_is_vector(r) && t->type != QUANT_F32)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s' is of type %s, only F32 is supported for it",
                       gguf_name(m->gguf), t->name, q->name);
    return 0;
}

/* 1 found, 0 absent. */
static int resolve(const struct model *m, enum model_role r, int layer, const struct gguf_tensor **out,
                   struct err *e)
{
    char name[64];
    *out = NULL;
    enum model_presence presence = model_role_at(&m->h, r, layer);
    if (presence == MODEL_ABSENT || model_tensor_name(&m->h, r, layer, name, sizeof name) < 0)
        return 0;
    const struct gguf_tensor *t = gguf_tensor(m->gguf, name);
    if (!t && presence == MODEL_REQUIRED)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is absent", gguf_name(m->gguf), name);
    if (!t)
        return 0;
    int rc = check_shape(m, t, r, layer, e);
    if (rc < 0)
        return rc;
    *out = t;
    return 1;
}

/* Called when fewer tensors were resolved than the file has: names one of the others. */
static int name_unknown(const struct model *m, struct err *e)
{
    const struct gguf *g = m->gguf;
    uint8_t *known = calloc(g->n_tensors, 1);
    if (!known)
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " tensors", gguf_name(g), g->n_tensors);
    for (int r = 0; r < MODEL_ROLES; r++) {
        if (m->global[r])
            known[m->global[r] - g->tensors] = 1;
        for (int l = 0; l < model_depth(&m->h); l++)
            if (m->layer[l][r])
                known[m->layer[l][r] - g->tensors] = 1;
    }
    uint64_t i = 0;
    while (known[i] || model_leaves_out(&m->h, g->tensors[i].name))
        i++;
    free(known);
    return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s' is not known for the architecture '%s' with %d "
                   "layers and %d experts", gguf_name(g), g->tensors[i].name, m->h.arch, model_depth(&m->h),
                   m->h.n_experts);
}

/* ---- fused tensors ---- */

struct fused {
    const char *suffix, *part[GGUF_MAX_PARTS];
    uint64_t rows[GGUF_MAX_PARTS];
    int shared;              /* every part has the same rows */
};

/* What tensors of a model with these hyper-parameters may be made of. */
static int fused_of(const struct model_hparams *h, struct fused out[4])
{
    uint64_t q = (uint64_t)model_q_dim(h), kv = (uint64_t)h->n_kv_heads * (uint64_t)h->head_dim, ff = (uint64_t)h->n_ff;
    int n = 0;
    if (h->wkv_dim) {
        out[n++] = (struct fused){ "channel_mix_key.weight", { "ffn_gate.weight", "ffn_up.weight" }, { ff, ff }, 1 };
        return n;
    }
    if (!h->kv_rank) {
        out[n++] = (struct fused){ "attn_qkv.weight", { "attn_q.weight", "attn_k.weight", "attn_v.weight" }, { q, kv, kv }, 0 };
        out[n++] = (struct fused){ "attn_qkv.bias", { "attn_q.bias", "attn_k.bias", "attn_v.bias" }, { q, kv, kv }, 0 };
    }
    int ungated = h->ffn_up == MODEL_FFN_UP_UNGATED;
    if (h->n_experts > 0 && ungated)
        out[n++] = (struct fused){ "ffn_up_exps.weight", { "ffn_gate_exps.weight", "ffn_up_exps.weight" }, { ff, ff }, 1 };
    else if (h->n_experts > 0)
        out[n++] = (struct fused){ "ffn_gate_up_exps.weight", { "ffn_gate_exps.weight", "ffn_up_exps.weight" }, { ff, ff }, 0 };
    else if (h->ffn_up != MODEL_FFN_UP_ALONE)
        out[n++] = (struct fused){ "ffn_up.weight", { "ffn_gate.weight", "ffn_up.weight" }, { ff, ff }, ungated };
    if (h->n_experts == 0 && ungated)
        out[n++] = (struct fused){ "ffn_up.bias", { "ffn_gate.bias", "ffn_up.bias" }, { ff, ff }, 1 };
    return n;
}

static int parts_of(void *ctx, const struct gguf_tensor *t, struct gguf_part out[GGUF_MAX_PARTS], struct err *e)
{
    const struct model_hparams *h = ctx;
    struct fused f[4];
    int blk, at = 0, k = 0;
    uint64_t rows = 0;
    if (sscanf(t->name, "blk.%d.%n", &blk, &at) != 1 || !at)
        return 0;
    blk -= h->mtp;
    if (blk < 0 || blk >= model_depth(h))
        return 0;
    int layer = model_layer_at(h, blk);
    struct model_hparams own = model_of_layer(h, layer);
    if (model_is_recurrent(h, layer) && !strncmp(t->name + at, "attn_qkv.", 9))
        return 0; /* one matrix of a recurrent layer */
    int n = fused_of(&own, f);
    while (k < n && strcmp(t->name + at, f[k].suffix))
        k++;
    if (k == n)
        return 0;
    for (n = 0; n < GGUF_MAX_PARTS && f[k].part[n]; n++) {
        out[n].first = f[k].shared ? 0 : rows;
        out[n].n = f[k].rows[n];
        rows = out[n].first + out[n].n;
        if (snprintf(out[n].name, sizeof out[n].name, "%.*s%s", at, t->name, f[k].part[n]) >= (int)sizeof out[n].name)
            return err_set(e, ERR_LIMIT, "tensor '%s': the names of its parts are too long", t->name);
    }
    uint64_t has = t->dims[t->n_dims == 1 ? 0 : 1];
    if (has != rows || (t->n_dims > 1 && t->dims[0] != (uint64_t)h->d_model))
        return err_set(e, ERR_FORMAT, "tensor '%s' is of shape %" PRIu64 " x %" PRIu64 ", the hyper-parameters want %" PRIu64 " rows of %d",
                       t->name, t->dims[0], t->dims[1], rows, h->d_model);
    return n;
}

int model_split(struct gguf *g, const struct model_hparams *h, struct err *e)
{
    struct model_hparams copy = *h;
    int r = gguf_split(g, parts_of, &copy, e);
    return r < 0 ? err_wrap(e, "'%s'", gguf_name(g)) : 0;
}

/* ---- thresholds ---- */

int model_bad_threshold(const float *t, int n)
{
    for (int i = 0; i < n; i++)
        if (!(t[i] >= 0 && t[i] <= FLT_MAX))
            return i;
    return -1;
}

static int check_threshold(const struct gguf *g, const char *name, const float *t, int n, struct err *e)
{
    int i = model_bad_threshold(t, n);
    return i < 0 ? 0 : err_set(e, ERR_FORMAT, "'%s': tensor '%s': the threshold of neuron %d is %g; a number from 0 on is needed",
                               gguf_name(g), name, i, (double)t[i]);
}

/* Those that are given, as tensors of the file; or those of the file, looked at. */
static int take_thresholds(struct gguf *g, const struct model_hparams *h, const float *given, struct err *e)
{
    size_t n_ff = (size_t)h->n_ff;
    char (*names)[64] = calloc((size_t)h->n_layers, sizeof *names);
    float *row = malloc(n_ff * sizeof *row);
    int r = names && row ? 0 : err_set(e, ERR_NOMEM, "thresholds of %d layers", h->n_layers), there = 0;
    for (int l = 0; l < h->n_layers && r == 0; l++) {
        model_tensor_name(h, MODEL_FFN_THRESHOLD, l, names[l], sizeof names[l]);
        int same = 0;
        const float *t = given ? given + (size_t)l * n_ff : row;
        const struct gguf_tensor *x = gguf_tensor(g, names[l]);
        size_t bytes = (size_t)model_n_ff(h, l) * sizeof *row;
        if (x && (x->memory || g->n_shards > 0) && x->type == QUANT_F32 && x->bytes == bytes) {
            r = gguf_read(g, x, 0, row, bytes, e);
            same = r == 0 && !memcmp(row, t, bytes);
        } else if (!given) {
            continue; /* it is refused as any other of that shape, or has no values */
        }
        there += same;
        if (r == 0 && x && !same)
            r = err_set(e, ERR_MISMATCH, "'%s': tensor '%s': the model has other thresholds already", gguf_name(g), names[l]);
        r = r ? r : check_threshold(g, names[l], t, model_n_ff(h, l), e);
    }
    if (r == 0 && given && !there)
        r = gguf_add_vectors(g, h->n_layers, (const char(*)[64])names, n_ff, h->widths[0] ? h->widths : NULL, given, e);
    free(names);
    free(row);
    return r;
}

int model_open(struct gguf *g, const struct model_given *given, struct model **out, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "'%s'", gguf_name(g));
    m->gguf = g;
    uint64_t n_found = 0;
    int r = model_hparams_read(g, given, &m->h, e);
    if (r < 0)
        goto fail;
    if ((r = model_split(g, &m->h, e)) < 0 ||
        ((m->h.thresholds || m->h.cold_thresholds) && (r = take_thresholds(g, &m->h, given ? given->thresholds : NULL, e)) < 0))
        goto fail;
    m->layer = calloc((size_t)model_depth(&m->h), sizeof *m->layer);
    if (!m->layer) {
        r = err_set(e, ERR_NOMEM, "'%s': %d layers", gguf_name(g), model_depth(&m->h));
        goto fail;
    }
    for (int role = 0; role < MODEL_ROLES; role++) {
        int per_layer = model_role_is_per_layer((enum model_role)role), n = per_layer ? model_depth(&m->h) : 1;
        for (int l = 0; l < n; l++) {
            const struct gguf_tensor **t = per_layer ? &m->layer[l][role] : &m->global[role];
            if ((r = resolve(m, (enum model_role)role, l, t, e)) < 0)
                goto fail;
            n_found += (uint64_t)r;
        }
    }
    for (int l = 0; l < m->h.n_layers; l++)
        if ((r = check_predictor(m, l, e)) < 0)
            goto fail;
    for (uint64_t i = 0; i < g->n_tensors; i++)
        n_found += (uint64_t)model_leaves_out(&m->h, g->tensors[i].name);
    if (n_found != g->n_tensors) {
        r = name_unknown(m, e);
        goto fail;
    }
    *out = m;
    return 0;
fail:
    r = model_foreign(g, r, e);
    model_close(m);
    return r;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    free(m->layer);
    free(m);
}
