/* First what becomes of each tensor, and everything that can be refused; then the writer asks for pieces of whole rows, which the
 * threads share. Rows depend on nothing but themselves, so neither do the bytes on the number of threads. */
#include "quantizer/quantize.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/pool.h"
#include "common/base/progress.h"
#include "common/model/gguf.h"
#include "common/model/model.h"
#include "quantizer/imatrix.h"

#include <inttypes.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
    regex_t regex;
    uint32_t type;
    int made, used;
};

struct work {
    const struct quantize_request *q;
    struct quantize_report *report;
    struct gguf *g;
    struct imatrix *imatrix;
    struct mix_model model;
    struct pattern *patterns;
    struct gguf_writer *w;
    struct pool *pool;
    struct progress progress;
    /* of the tensor that is written */
    float *by;              /* [experts][columns], or NULL */
    uint8_t *raw;           /* rows of the source */
    float *rows;            /* a row for each thread */
    size_t raw_cap, row_elems;
};

int quantize_type(const char *name, const char *option, uint32_t *out, struct err *e)
{
    int t = quant_by_name(name);
    if (t < 0 || !quant_traits((uint32_t)t)->quant)
        return err_set(e, ERR_USAGE, "%s %s: this build quantises to f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, "
                       "q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs and mxfp4", option, name);
    *out = (uint32_t)t;
    return 0;
}

/* ---- what becomes of each tensor ---- */

static int make_patterns(struct work *w, struct err *e)
{
    const struct opt_list *l = &w->q->tensor_types;
    w->patterns = calloc((size_t)l->n + 1, sizeof *w->patterns);
    if (!w->patterns)
        return err_set(e, ERR_NOMEM, "%d patterns", l->n);
    for (int i = 0; i < l->n; i++) {
        struct pattern *p = &w->patterns[i];
        const char *type = strrchr(l->items[i], '=');
        char why[128];
        if (!type || type == l->items[i])
            return err_set(e, ERR_USAGE, "--tensor-type %s: PATTERN=TYPE is needed, as attn_v=q8_0", l->items[i]);
        int r = quantize_type(type + 1, "--tensor-type", &p->type, e);
        if (r < 0)
            return r;
        char *text = strndup(l->items[i], (size_t)(type - l->items[i]));
        if (!text)
            return err_set(e, ERR_NOMEM, "--tensor-type %s", l->items[i]);
        int bad = regcomp(&p->regex, text, REG_EXTENDED | REG_NOSUB);
        free(text);
        if (bad) {
            regerror(bad, &p->regex, why, sizeof why);
            return err_set(e, ERR_USAGE, "--tensor-type %s: %s, in a POSIX extended regular expression", l->items[i], why);
        }
        p->made = 1;
    }
    return 0;
}

static int check_patterns(const struct work *w, struct err *e)
{
    for (int i = 0; i < w->q->tensor_types.n; i++)
        if (!w->patterns[i].used)
            return err_set(e, ERR_USAGE, "--tensor-type %s: no matrix of '%s' that is converted, and that no pattern before it takes, has "
                           "such a name", w->q->tensor_types.items[i], gguf_name(w->g));
    return 0;
}

/* -1: by the rule. */
static int asked_type(struct work *w, const struct gguf_tensor *t)
{
    const struct quantize_request *q = w->q;
    for (int i = 0; i < q->tensor_types.n; i++)
        if (regexec(&w->patterns[i].regex, t->name, 0, NULL, 0) == 0) {
            w->patterns[i].used = 1;
            return (int)w->patterns[i].type;
        }
    int embedding = !strcmp(t->name, "token_embd.weight");
    if (q->embedding_type >= 0 && (embedding || !strcmp(t->name, "per_layer_token_embd.weight")))
        return q->embedding_type;
    return !strcmp(t->name, "output.weight") || (embedding && w->model.tied && !q->pure) ? q->output_type : -1;
}

static uint32_t type_of(struct work *w, const struct gguf_tensor *t)
{
    if (mix_leaves(t) || (w->q->leave_output && !strcmp(t->name, "output.weight")))
        return t->type;
    int asked = asked_type(w, t);
    uint32_t type = asked < 0 ? mix_type_of(w->q->mix, &w->model, w->g, t, w->q->pure) : mix_fallback((uint32_t)asked, t->dims[0]);
    uint32_t wanted = asked < 0 ? w->q->mix->type : (uint32_t)asked;
    if (!quant_row_bytes(wanted, t->dims[0]))
        log_warn("tensor '%s': rows of %" PRIu64 " elements do not divide into blocks of %s: it becomes %s", t->name, t->dims[0],
                 quant_traits(wanted)->name, quant_traits(type)->name);
    return type;
}

static int check_source(const struct work *w, const struct gguf_tensor *t, uint32_t to, struct err *e)
{
    const struct quant_traits *from = quant_traits(t->type), *into = quant_traits(to);
    if (t->type == to)
        return 0;
    if (!from->dequant)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s': type %s cannot be read by this build", gguf_name(w->g), t->name, from->name);
    if (from->block_elems > 1 && into->block_elems > 1 && !w->q->allow_requantize)
        return err_set(e, ERR_USAGE, "'%s': tensor '%s' is quantised already, as %s, and would lose more as %s than the original does: "
                       "give the file in F16, BF16 or F32, or say --allow-requantize", gguf_name(w->g), t->name, from->name, into->name);
    return 0;
}

/* Matrices that no text is multiplied with, or that llama-imatrix leaves out unless it is asked. */
static int may_be_absent(const char *name)
{
    return !strcmp(name, "token_embd.weight") || !strcmp(name, "per_layer_token_embd.weight") || !strcmp(name, "output.weight");
}

static int use_imatrix(const struct work *w, const struct gguf_tensor *t, struct quantize_tensor *x, struct err *e)
{
    if (!w->imatrix || x->to == t->type || !quant_traits(x->to)->quant_by)
        return 0;
    int r = imatrix_has(w->imatrix, t->name, t->dims[0], t->dims[2] * t->dims[3], e);
    if (r < 0)
        return r;
    x->by_imatrix = r;
    if (r == 0 && !may_be_absent(t->name))
        return err_set(e, ERR_MISMATCH, "'%s' has no entry of the matrix '%s': it is another model's, or of too short a text; "
                       "--tensor-type NAME=q8_0 makes a type of it that needs none", w->q->imatrix, t->name);
    if (r == 0)
        log_debug("'%s': not in the importance matrix: quantised without", t->name);
    return 0;
}

static int choose(struct work *w, struct err *e)
{
    struct quantize_report *rep = w->report;
    size_t names = 0, at = 0;
    for (uint64_t i = 0; i < w->g->n_tensors; i++)
        names += strlen(w->g->tensors[i].name) + 1;
    rep->tensors = calloc(w->g->n_tensors + 1, sizeof *rep->tensors);
    rep->names = malloc(names + 1);
    if (!rep->tensors || !rep->names)
        return err_set(e, ERR_NOMEM, "%" PRIu64 " tensors", w->g->n_tensors);
    for (uint64_t i = 0; i < w->g->n_tensors; i++) {
        const struct gguf_tensor *t = &w->g->tensors[i];
        struct quantize_tensor *x = &rep->tensors[rep->n++];
        size_t len = strlen(t->name) + 1;
        x->name = memcpy(rep->names + at, t->name, len);
        at += len;
        x->from = t->type;
        x->to = type_of(w, t);
        x->elems = t->n_rows * t->dims[0];
        int r = check_source(w, t, x->to, e);
        if (r < 0 || (r = use_imatrix(w, t, x, e)) < 0)
            return r;
        x->bytes = quant_row_bytes(x->to, t->dims[0]) * t->n_rows;
        rep->bytes_in += t->bytes;
        rep->bytes_out += x->bytes;
        rep->elems += x->elems;
        log_debug("%s: %s -> %s%s", x->name, quant_traits(x->from)->name, quant_traits(x->to)->name, x->by_imatrix ? ", by imatrix" : "");
    }
    return check_patterns(w, e);
}

/* ---- the header ---- */

static int copied(const struct work *w, const char *name)
{
    return strcmp(name, "general.file_type") && strcmp(name, "general.quantization_version") && strcmp(name, "general.alignment") &&
           strncmp(name, "split.", 6) && (!w->imatrix || strncmp(name, "quantize.imatrix.", 17));
}

static int put_keys(struct work *w, struct err *e)
{
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < w->g->n_keys; i++)
        if (copied(w, w->g->keys[i].name))
            r = gguf_writer_kv_raw(w->w, &w->g->keys[i], e);
    if (r < 0 || (r = gguf_writer_u32(w->w, "general.quantization_version", 2, e)) < 0 ||
        (r = gguf_writer_u32(w->w, "general.file_type", w->q->mix->file_type, e)) < 0 || !w->imatrix)
        return r;
    const char *dataset = imatrix_dataset(w->imatrix);
    if ((r = gguf_writer_str(w->w, "quantize.imatrix.file", w->q->imatrix, e)) < 0 ||
        (dataset && (r = gguf_writer_str(w->w, "quantize.imatrix.dataset", dataset, e)) < 0) ||
        (r = gguf_writer_u32(w->w, "quantize.imatrix.entries_count", (uint32_t)imatrix_entries(w->imatrix), e)) < 0)
        return r;
    return imatrix_chunks(w->imatrix) ? gguf_writer_u32(w->w, "quantize.imatrix.chunks_count", imatrix_chunks(w->imatrix), e) : 0;
}

static int put_table(struct work *w, struct err *e)
{
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < w->g->n_tensors; i++) {
        const struct gguf_tensor *t = &w->g->tensors[i];
        r = gguf_writer_tensor(w->w, t->name, w->report->tensors[i].to, t->n_dims, t->dims, e);
    }
    return r;
}

/* ---- the tensors ---- */

struct piece {
    struct work *w;
    const struct gguf_tensor *t;
    const struct quantize_tensor *x;
    uint64_t first; /* row */
    uint8_t *out;
};

static void do_rows(void *ctx, int begin, int end, int worker)
{
    const struct piece *p = ctx;
    struct work *w = p->w;
    size_t n = (size_t)p->t->dims[0], row_bytes = quant_row_bytes(p->x->to, n);
    float *row = w->rows + (size_t)worker * w->row_elems;
    const struct quant_traits *from = quant_traits(p->t->type), *to = quant_traits(p->x->to);
    for (int i = begin; i < end; i++) {
        uint8_t *out = p->out + (size_t)i * row_bytes;
        uint64_t expert = (p->first + (uint64_t)i) / p->t->dims[1];
        from->dequant(row, w->raw + (size_t)i * p->t->row_bytes, n);
        if (w->by)
            to->quant_by(out, row, w->by + expert * n, n);
        else
            to->quant(out, row, n);
    }
}

static int begin_tensor(struct work *w, const struct gguf_tensor *t, const struct quantize_tensor *x, struct err *e)
{
    free(w->by);
    w->by = NULL;
    if (!x->by_imatrix)
        return 0;
    uint64_t experts = t->dims[2] * t->dims[3];
    w->by = malloc((size_t)(t->dims[0] * experts) * sizeof *w->by);
    return w->by ? imatrix_read(w->imatrix, t->name, t->dims[0], experts, w->by, e) :
        err_set(e, ERR_NOMEM, "the importance matrix of '%s'", t->name);
}

/* Values that the type has no room for: F32 weights beyond F16. */
static int check_piece(const struct piece *p, size_t len, struct err *e)
{
    size_t block = (size_t)quant_traits(p->x->to)->block_bytes, n = len / block;
    size_t bad = quant_first_not_finite(p->x->to, p->out, n);
    if (bad == n)
        return 0;
    uint64_t per_row = p->t->dims[0] / (uint64_t)quant_traits(p->x->to)->block_elems;
    return err_set(e, ERR_FORMAT, "'%s': tensor '%s' has weights in row %" PRIu64 " that are too large for %s", gguf_name(p->w->g),
                   p->t->name, p->first + bad / per_row, quant_traits(p->x->to)->name);
}

static int fill(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *e)
{
    struct work *w = ctx;
    const struct gguf_tensor *t = &w->g->tensors[tensor];
    const struct quantize_tensor *x = &w->report->tensors[tensor];
    size_t row_bytes = quant_row_bytes(x->to, t->dims[0]);
    struct piece p = { w, t, x, offset / row_bytes, buf };
    int r = offset == 0 ? begin_tensor(w, t, x, e) : 0;
    if (r == 0 && x->to == t->type) {
        r = gguf_read_next(w->g, t, buf, len, e);
    } else if (r == 0) {
        size_t n = len / row_bytes, need = n * (size_t)t->row_bytes;
        if (need > w->raw_cap) {
            free(w->raw);
            w->raw = malloc(need);
            w->raw_cap = w->raw ? need : 0;
            if (!w->raw)
                return err_set(e, ERR_NOMEM, "rows of '%s'", t->name);
        }
        if ((r = gguf_read_next(w->g, t, w->raw, need, e)) == 0) {
            pool_for(w->pool, (int)n, 1, do_rows, &p);
            r = check_piece(&p, len, e);
        }
    }
    progress_add(&w->progress, len);
    return r;
}

static int put_tensors(struct work *w, struct err *e)
{
    for (uint64_t i = 0; i < w->g->n_tensors; i++)
        w->row_elems = w->g->tensors[i].dims[0] > w->row_elems ? (size_t)w->g->tensors[i].dims[0] : w->row_elems;
    int r = file_enough_space(w->q->out, w->report->bytes_out, e);
    if (r < 0 || (r = pool_new_any(w->q->threads, &w->pool, e)) < 0 || (r = gguf_expect(w->g, NULL, NULL, e)) < 0)
        return r;
    w->rows = calloc((size_t)pool_threads(w->pool), w->row_elems * sizeof *w->rows);
    if (!w->rows)
        return err_set(e, ERR_NOMEM, "rows of %zu elements", w->row_elems);
    progress_init(&w->progress, "quantising", "B", w->report->bytes_out);
    r = gguf_writer_save(w->w, w->q->out, fill, w, e);
    progress_done(&w->progress);
    return r;
}

static int open_imatrix(struct work *w, struct err *e)
{
    int r = w->q->imatrix ? imatrix_open(w->q->imatrix, &w->imatrix, e) : 0;
    if (r < 0 || !w->imatrix)
        return r;
    const char *dataset = imatrix_dataset(w->imatrix);
    w->model.imatrix = 1;
    w->report->imatrix_entries = imatrix_entries(w->imatrix);
    w->report->imatrix_chunks = imatrix_chunks(w->imatrix);
    if (dataset && !(w->report->imatrix_dataset = strdup(dataset)))
        return err_set(e, ERR_NOMEM, "'%s'", w->q->imatrix);
    return 0;
}

/* What is no model at all is named; one that this software does not run is quantised like others. */
static int is_model(struct work *w, struct err *e)
{
    const struct gguf_key *k = gguf_find(w->g, "general.type");
    int model = !k || (k->type == GGUF_STRING && k->data_len == 5 && !memcmp(k->data, "model", 5));
    int r = mix_model(w->g, &w->model, e);
    if (r == 0 && (!model || !w->g->n_tensors))
        r = err_set(e, ERR_UNSUPPORTED, "'%s' holds no model", gguf_name(w->g));
    return model_foreign(w->g, r, e);
}

int quantize(const struct quantize_request *q, struct quantize_report *out, struct err *e)
{
    struct work w = { .q = q, .report = out };
    memset(out, 0, sizeof *out);
    int r = gguf_open(q->in, &w.g, e);
    if (r == 0 && (r = is_model(&w, e)) == 0 && (r = open_imatrix(&w, e)) == 0 && (r = make_patterns(&w, e)) == 0 &&
        (r = choose(&w, e)) == 0 && (r = gguf_writer_new(&w.w, e)) == 0) {
        if (w.g->is_pwri)
            gguf_writer_set_pwri(w.w);
        if ((r = put_keys(&w, e)) == 0 && (r = put_table(&w, e)) == 0)
            r = put_tensors(&w, e);
    }
    for (int i = 0; w.patterns && i < q->tensor_types.n; i++)
        if (w.patterns[i].made)
            regfree(&w.patterns[i].regex);
    free(w.patterns);
    pool_free(w.pool);
    gguf_writer_free(w.w);
    gguf_close(w.g);
    imatrix_close(w.imatrix);
    free(w.by);
    free(w.raw);
    free(w.rows);
    if (r < 0)
        quantize_report_done(out);
    return r;
}

void quantize_report_done(struct quantize_report *r)
{
    free(r->tensors);
    free(r->names);
    free(r->imatrix_dataset);
    memset(r, 0, sizeof *r);
}
