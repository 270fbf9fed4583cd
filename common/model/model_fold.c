/* The keys of folded weights. What a reader does not know of them would make a model talk nonsense, so every value is held against what
 * this build computes. */
#include "common/model/model_fold.h"

#include "common/base/bytes.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "prism.hadamard."
#define MAX_BLOCK 4096 /* a cluster's neurons, at most */

static const char version_key[] = PREFIX "version", weights_key[] = PREFIX "weight_names", tables_key[] = PREFIX "inverse_weight_names",
                  widths_key[] = PREFIX "sign_widths", values_key[] = PREFIX "sign_values", mode_key[] = PREFIX "sign_mode",
                  block_key[] = PREFIX "block_size", tied_key[] = PREFIX "tied_output", grouped_key[] = PREFIX "gdn_v_grouped",
                  transform_key[] = PREFIX "transform", axis_key[] = PREFIX "axis";

int model_fold_is_key(const char *name)
{
    return !strncmp(name, "prism.", 6) || strstr(name, "hadamard");
}

int model_fold_knows(const char *name)
{
    static const char *const known[] = { version_key, weights_key, tables_key, widths_key, values_key, mode_key,
                                         block_key,   tied_key,    grouped_key, transform_key, axis_key };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i]))
            return 1;
    return 0;
}

/* ---- values ---- */

/* One of two, and which. */
static int read_choice(const struct gguf *g, const char *key, const char *a, const char *b, struct err *e)
{
    char *s = NULL;
    int r = gguf_get_str(g, key, &s, e);
    if (r == 0)
        r = err_set(e, ERR_FORMAT, "'%s': key '%s' is absent", gguf_name(g), key);
    else if (r > 0 && strcmp(s, a) && (!b || strcmp(s, b)))
        r = err_set(e, ERR_UNSUPPORTED, "'%s': key '%s' is '%.48s': only %s%s%s is supported", gguf_name(g), key, s, a, b ? " or " : "",
                    b ? b : "");
    else if (r > 0)
        r = strcmp(s, a) != 0;
    free(s);
    return r;
}

static int read_bool(const struct gguf *g, const char *key, int *out, struct err *e)
{
    *out = 0;
    int r = gguf_get_bool(g, key, out, e);
    return r < 0 ? r : 0;
}

static int array_of(const struct gguf *g, const char *key, enum gguf_value type, const struct gguf_key **out, struct err *e)
{
    *out = gguf_find(g, key);
    if (!*out || ((*out)->type == GGUF_ARRAY && (*out)->elem_type == type))
        return 0;
    return err_set(e, ERR_FORMAT, "'%s': key '%s' is no array of %s", gguf_name(g), key, type == GGUF_STRING ? "strings" : "i32");
}

static int32_t element(const struct gguf_key *k, uint64_t i)
{
    return (int32_t)bytes_le32((const uint8_t *)k->data + 4 * i);
}

static int has_name(const struct gguf *g, const char *key, const char *name)
{
    const struct gguf_key *k = gguf_find(g, key);
    const char *s;
    uint64_t len;
    for (size_t at = 0; k && k->type == GGUF_ARRAY && k->elem_type == GGUF_STRING && gguf_array_str(k, &at, &s, &len);)
        if (len == strlen(name) && !memcmp(s, name, len))
            return 1;
    return 0;
}

/* ---- signs ---- */

/* One vector for each width, one after another. */
static int check_signs(const struct gguf *g, int block, struct err *e)
{
    const struct gguf_key *widths, *values;
    int r = array_of(g, widths_key, GGUF_I32, &widths, e);
    uint64_t sum = 0;
    if (r < 0 || (r = array_of(g, values_key, GGUF_I32, &values, e)) < 0)
        return r;
    if (!widths || !values || !widths->n)
        return err_set(e, ERR_FORMAT, "'%s': key '%s' is 'explicit', but '%s' or '%s' is absent or empty", gguf_name(g), mode_key,
                       widths_key, values_key);
    for (uint64_t i = 0; i < widths->n; i++) {
        int32_t width = element(widths, i);
        if (width < 1 || width > MODEL_MAX_DIM || width % block)
            return err_set(e, ERR_FORMAT, "'%s': key '%s' has a width of %" PRId32 ": multiples of %d up to %d are possible", gguf_name(g),
                           widths_key, width, block, MODEL_MAX_DIM);
        for (uint64_t k = 0; k < i; k++)
            if (element(widths, k) == width)
                return err_set(e, ERR_FORMAT, "'%s': key '%s' has the width %" PRId32 " twice", gguf_name(g), widths_key, width);
        sum += (uint64_t)width;
    }
    if (sum != values->n)
        return err_set(e, ERR_FORMAT, "'%s': key '%s' has %" PRIu64 " signs, the widths of '%s' want %" PRIu64, gguf_name(g), values_key,
                       values->n, widths_key, sum);
    for (uint64_t i = 0; i < values->n; i++)
        if (element(values, i) != 1 && element(values, i) != -1)
            return err_set(e, ERR_FORMAT, "'%s': key '%s': sign %" PRIu64 " is %" PRId32 ", neither 1 nor -1", gguf_name(g), values_key, i,
                           element(values, i));
    return 0;
}

int model_fold_of(const struct gguf *g, const char *tensor, uint64_t inputs, struct model_fold *out, struct err *e)
{
    uint32_t block = 0;
    *out = (struct model_fold){ 0 };
    if (!gguf_find(g, version_key) || (!has_name(g, weights_key, tensor) && !has_name(g, tables_key, tensor)))
        return 0;
    int r = gguf_get_u32(g, block_key, &block, e), identity = r < 0 ? r : read_choice(g, mode_key, "explicit", "identity", e);
    if (r < 0 || identity < 0)
        return r < 0 ? r : identity;
    if (!block || block > MAX_BLOCK || inputs % block)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' has rows of %" PRIu64 " elements, which '%s' %" PRIu32 " does not divide",
                       gguf_name(g), tensor, inputs, block_key, block);
    const struct gguf_key *widths = gguf_find(g, widths_key), *values = gguf_find(g, values_key);
    uint64_t at = 0, i = 0;
    for (; !identity && i < widths->n && (uint64_t)element(widths, i) != inputs; i++)
        at += (uint64_t)element(widths, i);
    if (!identity && i == widths->n)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is folded, and key '%s' has no width %" PRIu64, gguf_name(g), tensor, widths_key,
                       inputs);
    out->block = (int)block;
    out->signs = identity ? NULL : (const uint8_t *)values->data + 4 * at;
    return 0;
}

/* ---- which ---- */

/* A matrix whose every product is of a job of its input, or of the neurons. */
static int can_fold(const char *name, int layers, const struct model_hparams *h)
{
    static const char *const kinds[] = { "attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_qkv.weight", "attn_gate.weight",
                                         "attn_output.weight", "ssm_out.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight" };
    int layer, at = 0;
    if (!strcmp(name, "output.weight"))
        return 1;
    if (strncmp(name, "blk.", 4) || !isdigit((unsigned char)name[4]) || sscanf(name, "blk.%5d.%n", &layer, &at) != 1 || !at ||
        layer >= layers)
        return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(name + at, kinds[i]))
            return strncmp(kinds[i], "attn_qkv", 8) || h->mtp || model_is_recurrent(h, layer); /* elsewhere it is made of three */
    return 0;
}

static int check_name(const struct gguf *g, const char *name, const char *key, int yes, struct err *e)
{
    const struct gguf_tensor *t = yes ? gguf_tensor(g, name) : NULL;
    struct model_fold fold;
    if (!yes)
        return err_set(e, ERR_UNSUPPORTED, "'%s': key '%s' names '%.64s', which this version does not know as folded", gguf_name(g), key,
                       name);
    if (!t && g->n_tensors > 0)
        return err_set(e, ERR_FORMAT, "'%s': key '%s' names '%.64s', which is no tensor of the file", gguf_name(g), key, name);
    return t ? model_fold_of(g, name, t->dims[0], &fold, e) : 0;
}

static int check_names(const struct gguf *g, const char *key, int layers, const struct model_hparams *h, struct err *e)
{
    const struct gguf_key *k;
    char name[96];
    const char *s;
    uint64_t len;
    int r = array_of(g, key, GGUF_STRING, &k, e), tables = key == tables_key;
    for (size_t at = 0; r == 0 && k && gguf_array_str(k, &at, &s, &len);) {
        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), s);
        r = check_name(g, name, key, len < sizeof name && (tables ? !strcmp(name, "token_embd.weight") : can_fold(name, layers, h)), e);
    }
    return r;
}

/* A FFN's matrices are folded together, and so are all layers'; a layer that predicts further tokens is not. */
static int check_ffns(const struct gguf *g, struct model_hparams *h, int block, struct err *e)
{
    static const char *const kinds[] = { "ffn_gate", "ffn_up", "ffn_down" };
    char name[64];
    int n = 0;
    for (int l = 0; l < h->n_layers; l++)
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", l + h->mtp, kinds[i]);
            n += has_name(g, weights_key, name);
        }
    if (n != (h->mtp ? 0 : 3 * h->n_layers))
        return err_set(e, ERR_UNSUPPORTED, "'%s': key '%s' names %d of %d matrices of FFNs: only all are supported", gguf_name(g),
                       weights_key, n, 3 * h->n_layers);
    h->fold = n ? block : 0;
    if (n && (h->n_ff % block || h->d_model % block))
        return err_set(e, ERR_FORMAT, "'%s': FFNs of %d neurons and %d inputs, which '%s' %d does not divide", gguf_name(g), h->n_ff,
                       h->d_model, block_key, block);
    return 0;
}

int model_fold_read(const struct gguf *g, int layers, struct model_hparams *h, struct err *e)
{
    uint32_t version, block = 0;
    int tied, r = gguf_get_u32(g, version_key, &version, e), plain = !strcmp(h->arch, "llama") || !strcmp(h->arch, "qwen3") ||
                                                                      !strcmp(h->arch, "qwen35");
    if (r == 0)
        return err_set(e, ERR_FORMAT, "'%s': there are keys '%s*', but '%s' is absent", gguf_name(g), PREFIX, version_key);
    if (r < 0 || (r = gguf_get_u32(g, block_key, &block, e)) < 0 || (r = read_bool(g, tied_key, &tied, e)) < 0 ||
        (r = read_bool(g, grouped_key, &h->fold_grouped, e)) < 0)
        return r;
    if (version < 1 || version > 2 || tied != (version == 2))
        return err_set(e, ERR_UNSUPPORTED, "'%s': key '%s' is %" PRIu32 " and '%s' %s: only 1 and false, and 2 and true, are supported",
                       gguf_name(g), version_key, version, tied_key, tied ? "true" : "false");
    if (block < 2 || block > MAX_BLOCK || block & (block - 1))
        return err_set(e, ERR_UNSUPPORTED, "'%s': key '%s' is %" PRIu32 ": a power of two from 2 to %d is supported", gguf_name(g),
                       block_key, block, MAX_BLOCK);
    if (!plain || h->n_experts > 0)
        return err_set(e, ERR_UNSUPPORTED, "'%s': keys '%s*': folded weights are supported for llama, qwen3 and qwen35 without experts",
                       gguf_name(g), PREFIX);
    if ((r = read_choice(g, transform_key, "normalized-sylvester-walsh-hadamard", NULL, e)) < 0 ||
        (r = read_choice(g, axis_key, "input-last-dimension", NULL, e)) < 0 ||
        (r = read_choice(g, mode_key, "explicit", "identity", e)) < 0 || (r == 0 && (r = check_signs(g, (int)block, e)) < 0))
        return r;
    if ((r = check_names(g, weights_key, layers, h, e)) < 0 || (r = check_names(g, tables_key, layers, h, e)) < 0)
        return r;
    if (!h->mtp && h->tied_output != tied && has_name(g, tables_key, "token_embd.weight"))
        return err_set(e, ERR_UNSUPPORTED, "'%s': key '%s' is %s, but there is %s tensor 'output.weight'", gguf_name(g), tied_key,
                       tied ? "true" : "false", tied ? "a" : "no");
    return check_ffns(g, h, (int)block, e);
}
