/* gguf-make apply-delta: a model and what another differs from it by, which is a GGUF too. Of a matrix X.weight of the base a delta may
 * have
 *
 *   X.scale    [columns]         a factor for each column
 *   X.delta_a  [rank, rows]      a change of low rank
 *   X.delta_b  [columns, rank]
 *
 * and the result is w'[r][c] = w[r][c] scale[c] + sum over k of a[r][k] b[k][c], in float, k ascending, quantised anew. Other tensors of
 * the delta come to the base's or replace those of their names. Keys likewise, but for those that begin with "delta.": delta.base is the
 * hash of the base's tensors (gguf_hash), so that a delta is applied to nothing else. */
#include "common/base/hash.h"
#include "common/cli/opt.h"
#include "common/kernels/quant.h"
#include "datasets/tools/make.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct change {
    const struct gguf *base;
    const struct gguf_tensor *of;   /* its matrix; NULL: it is not changed */
    float *scale, *a, *b;           /* [columns]; [rows][rank]; [rank][columns]; NULL where there is none */
    size_t rank;
};

struct delta {
    struct gguf *base, *delta;
    struct change *changes;         /* [base->n_tensors] */
};

/* All of a tensor as floats; the caller frees it. */
static int floats(const struct gguf *g, const struct gguf_tensor *t, float **out, struct err *e)
{
    const struct quant_traits *q = quant_traits(t->type);
    uint64_t n = t->n_rows * t->dims[0];
    if (!q->dequant)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s': type %s cannot be read by this build", gguf_name(g), t->name, q->name);
    uint8_t *raw = malloc((size_t)t->bytes);
    float *f = n <= SIZE_MAX / sizeof *f ? malloc((size_t)n * sizeof *f) : NULL;
    int r = raw && f ? gguf_read(g, t, 0, raw, (size_t)t->bytes, e)
                     : err_set(e, ERR_NOMEM, "'%s': tensor '%s' of %" PRIu64 " elements", gguf_name(g), t->name, n);
    for (uint64_t i = 0; r == 0 && i < t->n_rows; i++)
        q->dequant(f + i * t->dims[0], raw + i * t->row_bytes, (size_t)t->dims[0]);
    free(raw);
    if (r == 0)
        *out = f;
    else
        free(f);
    return r;
}

/* "X.delta_a" of "X.weight". NULL: the delta has none, or the base's tensor is no matrix. */
static const struct gguf_tensor *part(const struct delta *d, const struct gguf_tensor *t, const char *suffix)
{
    static const char weight[] = ".weight";
    char name[96];
    size_t len = strlen(t->name), cut = sizeof weight - 1;
    if (t->n_dims != 2 || len <= cut || strcmp(t->name + len - cut, weight) ||
        snprintf(name, sizeof name, "%.*s.%s", (int)(len - cut), t->name, suffix) >= (int)sizeof name)
        return NULL;
    return gguf_tensor(d->delta, name);
}

static int bad_shape(const struct delta *d, const struct gguf_tensor *p, const struct gguf_tensor *t, struct err *e)
{
    return err_set(e, ERR_FORMAT,
                   "'%s': tensor '%s' is of shape %" PRIu64 " x %" PRIu64 ", which does not fit '%s' of %" PRIu64 " x %" PRIu64,
                   gguf_name(d->delta), p->name, p->dims[0], p->dims[1], t->name, t->dims[0], t->dims[1]);
}

/* What the delta has of a tensor. Counts the delta's tensors that it takes. */
static int read_change(struct delta *d, uint64_t i, uint64_t *taken, struct err *e)
{
    const struct gguf_tensor *t = &d->base->tensors[i], *s = part(d, t, "scale"), *a = part(d, t, "delta_a"), *b = part(d, t, "delta_b");
    struct change *c = &d->changes[i];
    if (!a != !b)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is there without its other half", gguf_name(d->delta), (a ? a : b)->name);
    if (s && (s->n_dims != 1 || s->dims[0] != t->dims[0]))
        return bad_shape(d, s, t, e);
    if (a && (a->n_dims != 2 || a->dims[1] != t->dims[1] || b->n_dims != 2 || b->dims[0] != t->dims[0] || a->dims[0] != b->dims[1]))
        return bad_shape(d, a, t, e);
    *taken += (uint64_t)(s != NULL) + 2 * (uint64_t)(a != NULL);
    if (!s && !a)
        return 0;
    c->base = d->base;
    c->of = t;
    c->rank = a ? (size_t)a->dims[0] : 0;
    int r = s ? floats(d->delta, s, &c->scale, e) : 0;
    if (r == 0 && a && (r = floats(d->delta, a, &c->a, e)) == 0)
        r = floats(d->delta, b, &c->b, e);
    return r;
}

static int changed_row(const struct make_tensor *t, uint64_t row, float *out, struct err *e)
{
    const struct change *c = t->ctx;
    const struct gguf_tensor *s = c->of;
    size_t n = (size_t)s->dims[0];
    uint8_t *raw = malloc((size_t)s->row_bytes);
    int r = raw ? gguf_read(c->base, s, row * s->row_bytes, raw, (size_t)s->row_bytes, e)
                : err_set(e, ERR_NOMEM, "a row of %" PRIu64 " bytes", s->row_bytes);
    if (r == 0)
        quant_traits(s->type)->dequant(out, raw, n);
    free(raw);
    for (size_t i = 0; r == 0 && c->scale && i < n; i++)
        out[i] *= c->scale[i];
    for (size_t k = 0; r == 0 && k < c->rank; k++)
        for (size_t i = 0; i < n; i++)
            out[i] += c->a[row * c->rank + k] * c->b[k * n + i];
    for (size_t i = 0; r == 0 && i < n; i++)
        if (!isfinite(out[i]))
            r = err_set(e, ERR_FORMAT, "tensor '%s': row %" PRIu64 ", column %zu is not finite after the change", s->name, row, i);
    return r;
}

static int is_part(const struct gguf_tensor *t)
{
    const char *dot = strrchr(t->name, '.');
    return dot && (!strcmp(dot, ".scale") || !strcmp(dot, ".delta_a") || !strcmp(dot, ".delta_b"));
}

static int add(struct make *m, const struct gguf *from, const struct gguf_tensor *s, struct change *c, uint32_t type, struct err *e)
{
    /* What has a source of its type is copied bit for bit. */
    struct make_tensor t = { .type = c ? type : s->type, .n_dims = s->n_dims, .row = changed_row, .source = c ? NULL : from,
                             .source_tensor = c ? NULL : s, .ctx = c };
    if (strlen(s->name) >= sizeof t.name)
        return err_set(e, ERR_LIMIT, "'%s': tensor '%s': the name is longer than the limit of %zu bytes", gguf_name(from),
                       s->name, sizeof t.name - 1);
    memcpy(t.name, s->name, strlen(s->name) + 1);
    memcpy(t.dims, s->dims, sizeof t.dims);
    return make_add(m, &t, e);
}

static int put_keys(struct make *m, const struct delta *d, struct err *e)
{
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < d->base->n_keys; i++)
        if (!gguf_find(d->delta, d->base->keys[i].name) && strncmp(d->base->keys[i].name, "split.", 6) &&
            strcmp(d->base->keys[i].name, "general.alignment"))
            r = gguf_writer_kv_raw(m->w, &d->base->keys[i], e);
    for (uint64_t i = 0; r == 0 && i < d->delta->n_keys; i++)
        if (strncmp(d->delta->keys[i].name, "delta.", 6) && strcmp(d->delta->keys[i].name, "general.alignment"))
            r = gguf_writer_kv_raw(m->w, &d->delta->keys[i], e);
    return r;
}

static int put_tensors(struct make *m, struct delta *d, uint32_t type, struct err *e)
{
    uint64_t taken = 0;
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < d->base->n_tensors; i++) {
        const struct gguf_tensor *t = &d->base->tensors[i], *other = gguf_tensor(d->delta, t->name);
        if ((r = read_change(d, i, &taken, e)) < 0)
            break;
        struct change *c = d->changes[i].of ? &d->changes[i] : NULL;
        if (c && other)
            return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is there, and changes of it too", gguf_name(d->delta), t->name);
        r = other ? 0 : add(m, d->base, t, c, type, e);
    }
    for (uint64_t i = 0; r == 0 && i < d->delta->n_tensors; i++) {
        const struct gguf_tensor *t = &d->delta->tensors[i];
        if (!is_part(t))
            r = add(m, d->delta, t, NULL, type, e);
        taken += !is_part(t);
    }
    if (r == 0 && taken != d->delta->n_tensors)
        r = err_set(e, ERR_FORMAT, "'%s': it changes matrices that '%s' has not", gguf_name(d->delta), gguf_name(d->base));
    return r;
}

static int check_base(const struct delta *d, struct err *e)
{
    char *text = NULL, have[HASH_TEXT];
    struct hash128 want, h;
    int r = gguf_get_str(d->delta, "delta.base", &text, e);
    if (r == 0 || (r > 0 && hash_parse(text, &want) < 0))
        r = err_set(e, ERR_FORMAT, "'%s': key 'delta.base' is %s", gguf_name(d->delta), r ? "no hash" : "absent: it is no delta");
    free(text);
    if (r < 0 || (r = gguf_hash(d->base, &h, NULL, NULL, NULL, e)) < 0)
        return r;
    hash_text(h, have);
    return hash_equal(h, want) ? 0 : err_set(e, ERR_MISMATCH, "'%s' was made for another model than '%s', whose tensors have the hash %s",
                                             gguf_name(d->delta), gguf_name(d->base), have);
}

static int apply(const char *base, const char *delta, const char *out, uint32_t type, struct err *e)
{
    struct delta d = { 0 };
    struct make m = { 0 };
    int r = gguf_open(base, &d.base, e);
    if (r == 0 && (r = gguf_open(delta, &d.delta, e)) == 0 && (r = check_base(&d, e)) == 0) {
        d.changes = calloc((size_t)d.base->n_tensors + 1, sizeof *d.changes);
        r = d.changes ? make_new(&m, e) : err_set(e, ERR_NOMEM, "%" PRIu64 " tensors", d.base->n_tensors);
    }
    if (r == 0 && d.base->is_pwri)
        gguf_writer_set_pwri(m.w);
    if (r == 0 && (r = put_keys(&m, &d, e)) == 0 && (r = put_tensors(&m, &d, type, e)) == 0)
        r = make_save(&m, out, e);
    make_free(&m);
    for (uint64_t i = 0; d.changes && i < d.base->n_tensors; i++)
        free(d.changes[i].scale), free(d.changes[i].a), free(d.changes[i].b);
    free(d.changes);
    gguf_close(d.base);
    gguf_close(d.delta);
    return r;
}

int cmd_apply_delta(int argc, char **argv)
{
    static const struct opt_usage usage = {
        "gguf-make apply-delta", "BASE.gguf DELTA.gguf OUT.gguf",
        "Write the model that differs from BASE by DELTA, a GGUF with factors of columns and changes of low rank for some matrices, with "
        "further tensors and with keys (datasets/README.md). Changed matrices are quantised anew, everything else is copied bit for bit. "
        "A delta says by hash which model it is for.",
        "  gguf-make apply-delta base.gguf delta.gguf out.gguf\n", "rrw"
    };
    const char *type_name = "q8_0";
    const struct opt opts[] = {
        { .name = "type", .short_name = 't', .type = OPT_STRING, .dest = &type_name, .arg = "TYPE", .def = "q8_0",
          .help = "Type of changed matrices; types of four bits would lose small changes." },
        { 0 }
    };
    struct err e = { 0 };
    int n;
    uint32_t type;
    int r = opt_parse(opts, &usage, argc, argv, &n, &e);
    if (r != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n != 3) {
        err_set(&e, ERR_USAGE, "three files are needed, BASE.gguf, DELTA.gguf and OUT.gguf (%d given)", n);
        return opt_fail(&e);
    }
    if (make_type(type_name, &type, &e) < 0 || apply(argv[1], argv[2], argv[3], type, &e) < 0)
        return opt_fail(&e);
    return 0;
}
