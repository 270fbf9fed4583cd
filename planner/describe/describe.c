/* Strict reading of model descriptions. A cursor keeps the path, the first error sticks, and every figure
 * that is read goes into the description's hash under its path, so that two files that say the same are the
 * same model to a plan, whatever their order, names and sources. */
#include "common/base/print.h"
#include "planner/describe/describe.h"
#include "planner/inputs/normal.h"

#include "common/base/ckmath.h"
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/kernels/quant.h"
#include "common/model/nn.h"
#include "common/model/predict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rd {
    const char *name;
    struct err *e;
    struct hash *hash;
    int code; /* 0, or the first error's */
    size_t len;
    char path[160];
};

static void fail(struct rd *r, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct rd *r, const char *key, const char *fmt, ...)
{
    if (r->code < 0)
        return;
    char text[224];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    r->code = err_set(r->e, ERR_FORMAT, "description '%s': %s%s%.60s %s", r->name, r->path,
                      r->len && *key ? "." : "", key, text);
}

static size_t enter(struct rd *r, const char *key)
{
    size_t was = r->len;
    int n = snprintf(r->path + was, sizeof r->path - was, "%s%s", was ? "." : "", key);
    r->len = n > 0 && was + (size_t)n < sizeof r->path ? was + (size_t)n : sizeof r->path - 1;
    return was;
}

static size_t enter_at(struct rd *r, size_t i)
{
    size_t was = r->len;
    int n = snprintf(r->path + was, sizeof r->path - was, "[%zu]", i);
    r->len = n > 0 && was + (size_t)n < sizeof r->path ? was + (size_t)n : sizeof r->path - 1;
    return was;
}

static void leave(struct rd *r, size_t was)
{
    r->len = was;
    r->path[was] = '\0';
}

static void digest(struct rd *r, const char *key, const char *value)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%s%s%s=%s\n", r->path, r->len ? "." : "", key, value);
    hash_update(r->hash, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

/* o is an object of these keys and no others; those from `optional` on may be missing. */
static int object(struct rd *r, const struct js *o, const char *const *keys, int n, int optional)
{
    if (r->code < 0)
        return 0;
    if (!js_is_object(o)) {
        fail(r, "", "is not an object");
        return 0;
    }
    const char *key;
    for (size_t i = 0; (key = js_key(o, i)); i++) {
        int known = 0;
        for (int k = 0; k < n; k++)
            known |= !strcmp(keys[k], key);
        if (!known)
            fail(r, "", "has an unknown key '%.60s'", key);
    }
    for (int k = 0; k < optional; k++)
        if (!js_get(o, keys[k]))
            fail(r, "", "has no '%s'", keys[k]);
    return r->code == 0;
}

#define NEEDED (-1.0) /* no value is negative */

static double real(struct rd *r, const struct js *o, const char *key, double min, double max, double fallback)
{
    const struct js *j = js_get(o, key);
    char text[40];
    double v;
    if (!j && fallback >= 0)
        return fallback;
    if (!js_num(j, &v) || !(v >= min && v <= max)) {
        fail(r, key, "is not a number from %g to %g", min, max);
        return min;
    }
    snprintf(text, sizeof text, "%.17g", v);
    digest(r, key, text);
    return v;
}

static uint64_t whole(struct rd *r, const struct js *o, const char *key, int64_t min, int64_t max, double fallback)
{
    const struct js *j = js_get(o, key);
    char text[40];
    int64_t v;
    if (!j && fallback >= 0)
        return (uint64_t)fallback;
    if (!js_int(j, &v) || v < min || v > max) {
        fail(r, key, "is not a whole number from %lld to %lld", (long long)min, (long long)max);
        return (uint64_t)min;
    }
    snprintf(text, sizeof text, "%lld", (long long)v);
    digest(r, key, text);
    return (uint64_t)v;
}

static uint32_t type(struct rd *r, const struct js *o, const char *key)
{
    const char *s = js_str(js_get(o, key));
    int t = s ? quant_by_name(s) : -1;
    if (t < 0) {
        fail(r, key, "is %s%.40s%s; the name of a tensor type such as Q4_0 or F16 is needed", s ? "'" : "",
             s ? s : "not a string", s ? "'" : "");
        return 0;
    }
    digest(r, key, quant_traits((uint32_t)t)->name);
    return (uint32_t)t;
}

static void name_of(struct rd *r, const struct js *o, struct describe *d)
{
    const char *s = js_str(js_get(o, "name"));
    if (!s || !*s || strlen(s) >= sizeof d->name)
        fail(r, "name", "is not a text of 1 to %zu bytes", sizeof d->name - 1);
    else
        memcpy(d->name, s, strlen(s) + 1);
}

static void read_shape(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "activation", "context", "d_model", "head_dim", "heads", "kv_heads", "layers",
                                        "n_ff", "tied_output", "vocab", "experts", "experts_used" };
    size_t at = enter(r, "shape");
    struct model_hparams *h = &d->h;
    if (!object(r, o, keys, 12, 10))
        return;
    const char *act = js_str(js_get(o, "activation"));
    int a = act ? model_act_by_name(act) : -1;
    if (a < 0)
        fail(r, "activation", "is not silu, relu or drelu");
    else
        digest(r, "activation", act);
    int tied = js_bool(js_get(o, "tied_output"));
    if (tied < 0)
        fail(r, "tied_output", "is not true or false");
    digest(r, "tied_output", tied > 0 ? "1" : "0");
    snprintf(h->arch, sizeof h->arch, "described");
    snprintf(h->name, sizeof h->name, "%s", d->name);
    h->n_layers = (int)whole(r, o, "layers", 1, MODEL_MAX_LAYERS, NEEDED);
    h->d_model = (int)whole(r, o, "d_model", 1, MODEL_MAX_DIM, NEEDED);
    h->n_heads = (int)whole(r, o, "heads", 1, MODEL_MAX_DIM, NEEDED);
    h->n_kv_heads = (int)whole(r, o, "kv_heads", 1, MODEL_MAX_DIM, NEEDED);
    h->head_dim = (int)whole(r, o, "head_dim", 1, MODEL_MAX_DIM, NEEDED);
    h->n_ff = (int)whole(r, o, "n_ff", 1, MODEL_MAX_DIM, NEEDED);
    h->n_vocab = (int)whole(r, o, "vocab", 1, MODEL_MAX_VOCAB, NEEDED);
    h->n_ctx_train = (int)whole(r, o, "context", 1, MODEL_MAX_CONTEXT, NEEDED);
    h->n_experts = (int)whole(r, o, "experts", 2, MODEL_MAX_EXPERTS, 0);
    h->n_experts_used = (int)whole(r, o, "experts_used", 1, MODEL_MAX_EXPERTS, 0);
    h->act = a < 0 ? MODEL_ACT_SILU : (enum model_act)a;
    h->tied_output = tied > 0;
    h->router = h->n_experts ? MODEL_ROUTER_SOFTMAX_TOPK : MODEL_ROUTER_NONE;
    h->n_rot = h->head_dim;
    h->rope_theta = 10000;
    h->rope_scale = 1;
    h->rms_eps = 1e-5f;
    if (r->code == 0 && h->n_heads % h->n_kv_heads)
        fail(r, "kv_heads", "is %d, which does not divide %d heads", h->n_kv_heads, h->n_heads);
    if (r->code == 0 && !h->n_experts != !h->n_experts_used)
        fail(r, "", "has only one of 'experts' and 'experts_used'");
    if (r->code == 0 && h->n_experts_used > h->n_experts)
        fail(r, "experts_used", "is %d of %d experts", h->n_experts_used, h->n_experts);
    if (r->code == 0 && (uint64_t)h->n_heads * (uint64_t)h->head_dim > MODEL_MAX_DIM)
        fail(r, "", "has %d heads of %d: more than %d together", h->n_heads, h->head_dim, MODEL_MAX_DIM);
    if (r->code == 0 && (uint64_t)h->n_layers * (uint64_t)model_ffn_blocks(h) * (uint64_t)h->n_ff > 1u << 28)
        fail(r, "", "has more than %u neurons", 1u << 28);
    leave(r, at);
}

/* A matrix with rows of cols elements can be stored in a type. */
static void fits(struct rd *r, const char *key, uint32_t t, int cols)
{
    if (r->code == 0 && !quant_row_bytes(t, (uint64_t)cols))
        fail(r, key, "is %s, in which rows of %d elements cannot be stored", quant_traits(t)->name, cols);
}

static void read_types(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "attention", "down", "embedding", "gate", "output", "up", "router" };
    size_t at = enter(r, "types");
    if (!object(r, o, keys, 7, 6))
        return;
    d->attn_type = type(r, o, "attention");
    d->embd_type = type(r, o, "embedding");
    d->output_type = type(r, o, "output");
    d->ffn_type[LAYOUT_GATE] = type(r, o, "gate");
    d->ffn_type[LAYOUT_UP] = type(r, o, "up");
    d->ffn_type[LAYOUT_DOWN] = type(r, o, "down");
    d->router_type = d->h.n_experts ? type(r, o, "router") : 0;
    if (!d->h.n_experts && js_get(o, "router"))
        fail(r, "router", "is given, but there are no experts");
    fits(r, "attention", d->attn_type, d->h.d_model);
    fits(r, "attention", d->attn_type, d->h.n_heads * d->h.head_dim);
    fits(r, "embedding", d->embd_type, d->h.d_model);
    fits(r, "output", d->output_type, d->h.d_model);
    fits(r, "gate", d->ffn_type[LAYOUT_GATE], d->h.d_model);
    fits(r, "up", d->ffn_type[LAYOUT_UP], d->h.d_model);
    fits(r, "down", d->ffn_type[LAYOUT_DOWN], d->h.d_model); /* stored by neuron */
    if (d->h.n_experts)
        fits(r, "router", d->router_type, d->h.d_model);
    leave(r, at);
}

/* Elements of an array of objects; -1 (and an error) for anything else or too many. */
static int list(struct rd *r, const struct js *o, const char *key, int min, int max)
{
    const struct js *j = js_get(o, key);
    if (js_is_array(j) && js_len(j) >= (size_t)min && js_len(j) <= (size_t)max)
        return (int)js_len(j);
    fail(r, key, "is not an array of %d to %d objects", min, max);
    return -1;
}

static void read_rates(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "batch", "share" };
    int n = list(r, o, "rate", 1, INPUTS_MAX_BATCHES);
    size_t at = enter(r, "rate");
    for (int i = 0; i < n && r->code == 0; i++) {
        const struct js *j = js_at(js_get(o, "rate"), (size_t)i);
        size_t at_i = enter_at(r, (size_t)i);
        if (object(r, j, keys, 2, 2)) {
            int batch = (int)whole(r, j, "batch", 1, inputs_batch_sizes[INPUTS_MAX_BATCHES - 1], NEEDED), b = 0;
            while (b < INPUTS_MAX_BATCHES && inputs_batch_sizes[b] != batch)
                b++;
            double share = real(r, j, "share", 1e-6, 1, NEEDED);
            if (r->code == 0 && b == INPUTS_MAX_BATCHES)
                fail(r, "batch", "is %d; 1, 2, 4, 8, 16 or 32 is needed", batch);
            else if (r->code == 0 && d->rate[b] > 0)
                fail(r, "batch", "is %d once more", batch);
            else if (r->code == 0)
                d->rate[b] = share;
        }
        leave(r, at_i);
    }
    if (r->code == 0 && d->rate[0] == 0)
        fail(r, "", "has no share for batch 1");
    double most = 0;
    for (int b = 0; b < INPUTS_MAX_BATCHES && r->code == 0; b++) {
        double limit = 1 - pow(1 - d->rate[0], inputs_batch_sizes[b]);
        if (d->rate[b] > 0 && (d->rate[b] < most || (b && d->rate[b] > limit * (1 + 1e-9) + 1e-12)))
            fail(r, "", "of batch %d is %g; from that of smaller batches to %g is possible", inputs_batch_sizes[b],
                 d->rate[b], limit);
        most = d->rate[b] > 0 ? d->rate[b] : most;
    }
    leave(r, at);
}

static void read_points(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "firings", "neurons" };
    int n = list(r, o, "points", 1, DESCRIBE_MAX_POINTS);
    struct describe_point last = { 0, 0 };
    double slope = INFINITY;
    size_t at = enter(r, "points");
    for (int i = 0; i < n && r->code == 0; i++) {
        const struct js *j = js_at(js_get(o, "points"), (size_t)i);
        size_t at_i = enter_at(r, (size_t)i);
        if (object(r, j, keys, 2, 2)) {
            struct describe_point p = { real(r, j, "neurons", 1e-6, 1, NEEDED), real(r, j, "firings", 1e-6, 1, NEEDED) };
            double s = (p.firings - last.firings) / (p.neurons - last.neurons);
            if (r->code == 0 && (p.neurons <= last.neurons || p.firings < last.firings))
                fail(r, "", "does not ascend");
            else if (r->code == 0 && s > slope * (1 + 1e-9))
                fail(r, "", "says that later neurons are hotter than earlier ones");
            slope = s;
            last = d->point[i] = p;
        }
        leave(r, at_i);
    }
    if (r->code == 0 && (1 - last.firings > slope * (1 - last.neurons) * (1 + 1e-9) + 1e-12 ||
                         (last.neurons >= 1 && last.firings < 1)))
        fail(r, "", "leave more firings to the neurons beyond the last than those can have");
    d->n_points = n;
    leave(r, at);
}

static void read_skew(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "points", "spread" };
    size_t at = enter(r, "skew");
    d->spread = -1;
    if (!object(r, o, keys, 2, 0))
        return;
    if (!js_get(o, "points") == !js_get(o, "spread"))
        fail(r, "", "needs one of 'points' and 'spread'");
    else if (js_get(o, "spread"))
        d->spread = real(r, o, "spread", 0, 5, NEEDED);
    else
        read_points(r, o, d);
    leave(r, at);
}

static void read_persistence(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "period", "share" };
    int n = list(r, o, "persistence", 1, DESCRIBE_MAX_MEMORY);
    double sum = 0;
    size_t at = enter(r, "persistence");
    for (int i = 0; i < n && r->code == 0; i++) {
        const struct js *j = js_at(js_get(o, "persistence"), (size_t)i);
        size_t at_i = enter_at(r, (size_t)i);
        if (object(r, j, keys, 2, 2)) {
            d->memory[i].share = real(r, j, "share", 0, 1, NEEDED);
            d->memory[i].period = real(r, j, "period", 1, 1e6, NEEDED);
            sum += d->memory[i].share;
        }
        leave(r, at_i);
    }
    if (r->code == 0 && sum > 0.99)
        fail(r, "", "has shares of %g together; at least 0.01 has to be new with each token", sum);
    d->n_memory = n;
    leave(r, at);
}

static void read_misses(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "cached", "missed" };
    int n = list(r, o, "misses", 1, DESCRIBE_MAX_POINTS);
    size_t at = enter(r, "misses");
    for (int i = 0; i < n && r->code == 0; i++) {
        const struct js *j = js_at(js_get(o, "misses"), (size_t)i);
        size_t at_i = enter_at(r, (size_t)i);
        if (object(r, j, keys, 2, 2)) {
            d->miss[i].cached = real(r, j, "cached", 0.001, 1, NEEDED);
            d->miss[i].missed = real(r, j, "missed", 0, 1, NEEDED);
        }
        leave(r, at_i);
    }
    d->n_misses = n;
    leave(r, at);
}

static void read_activation(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "rate", "skew", "expert_again", "misses", "open_per_firing", "persistence" };
    size_t at = enter(r, "activation");
    int sparse = nn_act_is_sparse(d->h.act);
    double even = d->h.n_experts ? (double)d->h.n_experts_used / d->h.n_experts : 0;
    if (!sparse && o)
        fail(r, "", "is given, but %s gives no zeros: all neurons fire", model_act_name(d->h.act));
    if (!sparse) {
        leave(r, at);
        return;
    }
    if (!object(r, o, keys, 6, 2))
        return;
    read_rates(r, o, d);
    read_skew(r, js_get(o, "skew"), d);
    d->open_per_firing = real(r, o, "open_per_firing", 1, 1e3, 1);
    if (!d->h.n_experts && js_get(o, "expert_again"))
        fail(r, "expert_again", "is given, but there are no experts");
    if (d->h.n_experts)
        d->expert_again = real(r, o, "expert_again", even, 1, even);
    if (!js_get(o, "persistence") && !js_get(o, "misses"))
        fail(r, "", "has neither 'persistence' nor 'misses': one of them is needed for a miss curve");
    if (js_get(o, "persistence"))
        read_persistence(r, o, d);
    if (js_get(o, "misses"))
        read_misses(r, o, d);
    leave(r, at);
}

static void read_predictors(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "bytes", "input", "rank", "type", "predicted_per_firing", "recall" };
    size_t at = enter(r, "predictors");
    if (!object(r, o, keys, 6, 4))
        return;
    if (!nn_act_is_sparse(d->h.act))
        fail(r, "", "are given, but %s gives no zeros to predict", model_act_name(d->h.act));
    const char *input = js_str(js_get(o, "input"));
    d->predictor_input = input ? predict_input_by_name(input) : -1;
    if (d->predictor_input < 0)
        fail(r, "input", "is not ffn, block or residual");
    else
        digest(r, "input", input);
    d->predictor_bytes = whole(r, o, "bytes", 1, (int64_t)1 << 48, NEEDED);
    d->predictor_rank = (int)whole(r, o, "rank", 1, PREDICT_MAX_RANK, NEEDED);
    d->predictor_type = type(r, o, "type");
    d->recall = real(r, o, "recall", 0.01, 1, 1);
    d->predicted_per_firing = real(r, o, "predicted_per_firing", d->recall, 1 / d->rate[0], 1);
    fits(r, "type", d->predictor_type, d->h.d_model);
    fits(r, "type", d->predictor_type, d->predictor_rank);
    leave(r, at);
}

/* Does a path such as "activation.rate" name something in the document? */
static int has_path(const struct js *o, const char *path)
{
    char key[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        if (n == 0 || n >= sizeof key)
            return 0;
        memcpy(key, path, n);
        key[n] = '\0';
        if (!(o = js_is_object(o) ? js_get(o, key) : NULL))
            return 0;
        path += n + (path[n] == '.');
    }
    return 1;
}

static void read_sources(struct rd *r, const struct js *doc)
{
    const struct js *o = js_get(doc, "sources");
    size_t at = enter(r, "sources");
    const char *key;
    if (!js_is_object(o))
        fail(r, "", "is not an object of texts by path");
    for (size_t i = 0; r->code == 0 && (key = js_key(o, i)); i++) {
        const char *text = js_str(js_get(o, key));
        if (!text || !*text)
            fail(r, key, "is not a text that says where the figure comes from");
        else if (!has_path(doc, key))
            fail(r, key, "names no part of this description");
    }
    leave(r, at);
}

static void read_document(struct rd *r, const struct js *o, struct describe *d)
{
    static const char *const keys[] = { "format", "name", "revision", "shape", "sources", "types", "activation",
                                        "predictors", "resident_bytes" };
    int64_t revision;
    if (!object(r, o, keys, 9, 6))
        return;
    const char *format = js_str(js_get(o, "format"));
    if (!format || strcmp(format, "thermo-model-description"))
        fail(r, "format", "is not 'thermo-model-description'");
    else if (!js_int(js_get(o, "revision"), &revision) || revision != 1)
        fail(r, "revision", "is not 1, the revision that this program reads");
    name_of(r, o, d);
    read_shape(r, js_get(o, "shape"), d);
    if (r->code == 0)
        read_types(r, js_get(o, "types"), d);
    if (r->code == 0)
        read_activation(r, js_get(o, "activation"), d);
    if (r->code == 0 && js_get(o, "predictors"))
        read_predictors(r, js_get(o, "predictors"), d);
    d->resident_bytes = whole(r, o, "resident_bytes", 0, (int64_t)1 << 48, 0);
    read_sources(r, o);
}

int describe_parse(const char *json, size_t len, const char *name, struct describe *out, struct err *e)
{
    struct describe d = { .n_points = 0 };
    struct rd r = { .name = name, .e = e, .hash = hash_new() };
    if (!r.hash)
        return err_set(e, ERR_NOMEM, "out of memory for description '%s'", name);
    if (len > DESCRIBE_MAX_BYTES) {
        hash_free(r.hash);
        return err_set(e, ERR_LIMIT, "description '%s' has %zu bytes, more than the limit of %u", name, len,
                       DESCRIBE_MAX_BYTES);
    }
    struct js *o = js_parse(json, len, name, e);
    if (o)
        read_document(&r, o, &d);
    js_free(o);
    d.hash = hash_final128(r.hash);
    hash_free(r.hash);
    if (!o)
        return e->code;
    if (r.code == 0)
        *out = d;
    return r.code;
}

int describe_read(const char *path, struct describe *out, struct err *e)
{
    char *text;
    size_t len;
    int r = file_slurp(path, DESCRIBE_MAX_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    r = describe_parse(text, len, path, out, e);
    free(text);
    return r;
}

/* --- the hotness curve --- */

/* Firings among the first `share` of the neurons, as a share. */
static double at_share(const struct describe *d, double share)
{
    struct describe_point a = { 0, 0 };
    for (int i = 0; i <= d->n_points; i++) {
        struct describe_point b = i < d->n_points ? d->point[i] : (struct describe_point){ 1, 1 };
        if (share <= b.neurons && b.neurons > a.neurons)
            return a.firings + (share - a.neurons) / (b.neurons - a.neurons) * (b.firings - a.firings);
        a = b;
    }
    return 1;
}

int describe_rates(const struct describe *d, const char *name, double *p, struct err *e)
{
    int n = d->h.n_ff;
    double rate = d->rate[0];
    if (d->spread >= 0) {
        double m = -normal_quantile(fmin(rate, 1 - 1e-9)) * sqrt(1 + d->spread * d->spread);
        for (int i = 0; i < n; i++)
            p[i] = normal_cdf(-m - d->spread * normal_quantile((i + 0.5) / n));
        return 0;
    }
    for (int i = 0; i < n; i++) {
        double p_i = rate * n * (at_share(d, (i + 1.0) / n) - at_share(d, (double)i / n));
        if (p_i > 1 + 1e-6)
            return err_set(e, ERR_FORMAT, "description '%s': activation.skew.points ask neuron %d of %d to fire %.3g "
                           "times a token at a rate of %g; no neuron can fire more than once", name, i, n, p_i, rate);
        p[i] = fmin(1, fmax(0, p_i));
    }
    return 0;
}
