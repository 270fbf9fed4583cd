/* The canonical text of a plan. People read plans and CI compares them, so the text is made for a
 * line-wise diff: keys sorted (each function below emits its members in order, which a test
 * verifies), scalars and columns of figures on one line, hot and cold one line per layer. Text is
 * read back before it is handed out: a plan that cannot be read is never written. */
#include "common/plan/plan.h"

#include "common/base/file.h"
#include "common/base/print.h"
#include "common/base/utf8.h"
#include "common/base/version.h"
#include "common/kernels/quant.h"
#include "common/model/predict.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *data;
    size_t len, cap;
    int bad, depth;
    int first; /* nothing written yet at this depth */
};

static void put(struct text *t, const char *s, size_t n)
{
    if (t->bad)
        return;
    if (n >= t->cap - t->len) {
        size_t cap = t->cap ? t->cap : 4096;
        while (n >= cap - t->len)
            cap *= 2;
        char *grown = realloc(t->data, cap);
        if (!grown) {
            t->bad = 1;
            return;
        }
        t->data = grown;
        t->cap = cap;
    }
    memcpy(t->data + t->len, s, n);
    t->len += n;
    t->data[t->len] = '\0';
}

static void putf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void putf(struct text *t, const char *fmt, ...)
{
    char s[128];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    put(t, s, (size_t)n);
}

/* A new line within the innermost object or array, after the comma that it needs. */
static void line(struct text *t)
{
    if (!t->first)
        put(t, ",", 1);
    t->first = 0;
    put(t, "\n", 1);
    for (int i = 0; i < t->depth; i++)
        put(t, "  ", 2);
}

static void key(struct text *t, const char *name)
{
    line(t);
    putf(t, "\"%s\": ", name);
}

static void begin(struct text *t, char bracket)
{
    put(t, &bracket, 1);
    t->depth++;
    t->first = 1;
}

static void end(struct text *t, char bracket)
{
    t->depth--;
    int empty = t->first;
    t->first = 1;
    if (!empty)
        line(t);
    put(t, &bracket, 1);
    t->first = 0;
}

static void str(struct text *t, const char *s)
{
    put(t, "\"", 1);
    for (size_t n; *s; s += n) {
        char one[PRINT_PIECE];
        uint32_t c;
        n = print_json_piece(s, strlen(s), one);
        if (utf8_decode(s, strlen(s), &c))
            put(t, one, strlen(one));
        else
            put(t, s, n); /* which reading it back refuses */
    }
    put(t, "\"", 1);
}

static void put_str(struct text *t, const char *name, const char *s)
{
    key(t, name);
    str(t, s);
}

static void put_u64(struct text *t, const char *name, uint64_t v)
{
    key(t, name);
    putf(t, "%llu", (unsigned long long)v);
}

static void put_int(struct text *t, const char *name, int v)
{
    key(t, name);
    putf(t, "%d", v);
}

/* What is no finite number becomes null, which reading it back refuses by its name. */
static void number(struct text *t, int digits, double v)
{
    char s[PRINT_NUMBER];
    print_json_number(s, digits, v);
    put(t, s, strlen(s));
}

static void put_real(struct text *t, const char *name, double v)
{
    key(t, name);
    number(t, 6, v);
}

/* As few digits as give the same number back. */
static void put_exact(struct text *t, const char *name, double v)
{
    char s[40];
    int digits = 6;
    do
        snprintf(s, sizeof s, "%.*g", digits, v);
    while (strtod(s, NULL) != v && digits++ < 17);
    key(t, name);
    number(t, digits < 17 ? digits : 17, v);
}

static void put_bool(struct text *t, const char *name, int v)
{
    key(t, name);
    putf(t, "%s", v ? "true" : "false");
}

static void put_hash(struct text *t, const char *name, struct hash128 h)
{
    char s[HASH_TEXT];
    hash_text(h, s);
    put_str(t, name, s);
}

/* [a, b] */
static void put_numbers(struct text *t, const uint32_t *v, int n)
{
    put(t, "[", 1);
    for (int i = 0; i < n; i++)
        putf(t, "%s%u", i ? ", " : "", v[i]);
    put(t, "]", 1);
}

static void put_predictors(struct text *t, const signed char *input, int n)
{
    put(t, "[", 1);
    for (int i = 0; i < n; i++) {
        put(t, ", ", i ? 2 : 0);
        str(t, input[i] < 0 ? "none" : predict_input_name((enum predict_input)input[i]));
    }
    put(t, "]", 1);
}

/* Layers, where there are any. */
static void put_streamed(struct text *t, const unsigned char *streamed, int n)
{
    int some = 0;
    for (int i = 0; i < n; i++) {
        if (!streamed[i])
            continue;
        if (!some)
            key(t, "streamed");
        putf(t, "%s%d", some ? ", " : "[", i);
        some = 1;
    }
    put(t, "]", some ? 1 : 0);
}

static void put_classes(struct text *t, const char *name, const struct plan_class *classes, int n)
{
    key(t, name);
    begin(t, '[');
    for (int i = 0; i < n; i++) {
        line(t);
        putf(t, "{ \"n\": %d, \"name\": ", classes[i].n);
        str(t, classes[i].name);
        put(t, " }", 2);
    }
    end(t, ']');
}

/* Where it is not the limit's. */
static void put_configuration(struct text *t, const struct plan_limit *l, const struct plan_batch *b)
{
    int same = b->threads == l->threads && b->n_classes == l->n_classes && b->queue_depth == l->queue_depth;
    for (int i = 0; i < l->n_classes && same; i++)
        same = b->classes[i].n == l->classes[i].n && !strcmp(b->classes[i].name, l->classes[i].name);
    if (same)
        return;
    key(t, "configuration");
    begin(t, '{');
    put_classes(t, "classes", b->classes, b->n_classes);
    put_int(t, "queue_depth", b->queue_depth);
    put_int(t, "threads", b->threads);
    end(t, '}');
}

static void put_batch(struct text *t, const struct plan *p, const struct plan_limit *l, const struct plan_batch *b)
{
    line(t);
    begin(t, '{');
    put_int(t, "batch", b->batch);
    key(t, "cold");
    begin(t, '[');
    for (int i = 0; i < p->n_layers; i++) {
        line(t);
        put_numbers(t, b->cold + (size_t)i * (size_t)p->n_parts, p->n_parts);
    }
    end(t, ']');
    put_configuration(t, l, b);
    if (b->engine_neurons)
        put_u64(t, "engine_neurons", b->engine_neurons);
    if (b->engine_work)
        put_str(t, "engine_work", plan_work_name(b->engine_work));
    key(t, "hot");
    begin(t, '[');
    const uint32_t *hot = b->hot;
    for (int i = 0; i < p->n_layers; i++) {
        line(t);
        for (int k = 0; k < p->n_blocks; k++, hot += p->n_parts) {
            put(t, k ? ", " : "[", k ? 2 : 1);
            put_numbers(t, hot, p->n_parts);
        }
        put(t, "]", 1);
    }
    end(t, ']');
    const struct plan_figures *f = &b->predicted;
    key(t, "predicted");
    begin(t, '{');
    put_real(t, "head_ns", f->head_ns);
    put_real(t, "hit_rate", f->hit_rate);
    key(t, "layers");
    begin(t, '{');
    for (int c = 0; c < PLAN_COLUMNS; c++) {
        if (plan_columns[c].at == offsetof(struct plan_layer_figures, ffn_engine_ns) && !b->engine_neurons)
            continue;
        key(t, plan_columns[c].key);
        for (int i = 0; i < p->n_layers; i++)
            putf(t, i ? ", " : "["), number(t, 6, *plan_column_at(&f->layers[i], c));
        put(t, "]", 1);
    }
    end(t, '}');
    put_real(t, "read_bytes", f->read_bytes);
    put_real(t, "step_ns", f->step_ns);
    put_real(t, "tokens_per_s", f->tokens_per_s);
    end(t, '}');
    put_streamed(t, b->streamed, p->n_layers);
    end(t, '}');
}

static void put_reals(struct text *t, const char *name, const double *v, int n)
{
    key(t, name);
    for (int i = 0; i < n; i++)
        putf(t, i ? ", " : "["), number(t, 6, v[i]);
    put(t, "]", 1);
}

static void put_ints(struct text *t, const char *name, const int *v, int n)
{
    key(t, name);
    for (int i = 0; i < n; i++)
        putf(t, "%s%d", i ? ", " : "[", v[i]);
    put(t, "]", 1);
}

static void put_works(struct text *t, const struct plan_prompt *q)
{
    unsigned any = 0;
    for (int i = 0; i < q->n; i++)
        any |= (unsigned)q->engine_work[i];
    if (!any)
        return;
    key(t, "engine_work");
    for (int i = 0; i < q->n; i++) {
        put(t, i ? ", " : "[", i ? 2 : 1);
        str(t, plan_work_name(q->engine_work[i]));
    }
    put(t, "]", 1);
}

static void put_rest(struct text *t, const struct plan_prompt *q)
{
    if (!q->rest_from)
        return;
    key(t, "engine_rest");
    begin(t, '{');
    put_u64(t, "area_bytes", q->area_bytes);
    put_u64(t, "from_tokens", (uint64_t)q->rest_from);
    end(t, '}');
}

static void put_prompt(struct text *t, const struct plan_prompt *q)
{
    key(t, "prompt");
    begin(t, '{');
    put_reals(t, "attention_ns", q->attention_ns, q->n);
    if (q->with_engine) {
        key(t, "engine_neurons");
        put_numbers(t, q->engine_neurons, q->n);
        put_rest(t, q);
        put_works(t, q);
    }
    put_reals(t, "ffn_ns", q->ffn_ns, q->n);
    put_real(t, "head_ns", q->head_ns);
    put_reals(t, "read_bytes", q->read_bytes, q->n);
    put_ints(t, "tokens", q->tokens, q->n);
    put_reals(t, "wait_ns", q->wait_ns, q->n);
    end(t, '}');
}

static void put_guesses(struct text *t, const struct plan_guesses *g)
{
    key(t, "guesses");
    begin(t, '{');
    put_reals(t, "acceptance", g->acceptance, PLAN_ACCEPTANCES);
    put_ints(t, "best", g->best, PLAN_ACCEPTANCES);
    put_reals(t, "pass_ns", g->pass_ns, g->n);
    put_reals(t, "read_bytes", g->read_bytes, g->n);
    if (g->source) {
        key(t, "source");
        begin(t, '{');
        put_real(t, "guess_ns", g->guess_ns);
        put_str(t, "kind", plan_source_name(g->source));
        end(t, '}');
    }
    put_reals(t, "speedup", g->speedup, PLAN_ACCEPTANCES);
    put_ints(t, "tokens", g->tokens, g->n);
    end(t, '}');
}

static void put_limit(struct text *t, const struct plan *p, const struct plan_limit *l)
{
    line(t);
    begin(t, '{');
    put_u64(t, "account_bytes", l->account_bytes);
    put_str(t, "act", l->act_q8 ? "q8" : "f32");
    key(t, "batches");
    begin(t, '[');
    for (int i = 0; i < l->n_batches; i++)
        put_batch(t, p, l, &l->batches[i]);
    end(t, ']');
    put_classes(t, "classes", l->classes, l->n_classes);
    put_str(t, "cold_policy", cache_policy_name(l->policy));
    put_int(t, "context", l->context);
    key(t, "exempt");
    put_numbers(t, l->always, l->mode == PLAN_PREDICTED ? p->n_layers : 0);
    put_u64(t, "floor_bytes", l->floor_bytes);
    if (l->purpose)
        put_str(t, "for", plan_purpose_name(l->purpose));
    put_real(t, "gap", l->gap);
    if (l->gap_of_layouts)
        put_str(t, "gap_of", "layouts");
    if (l->guesses.n)
        put_guesses(t, &l->guesses);
    key(t, "io");
    begin(t, '{');
    put_str(t, "backend", plan_io_name(l->io));
    if (l->ahead != PLAN_AHEAD_UNSTATED)
        put_bool(t, "experts_ahead", l->ahead == PLAN_AHEAD_ON);
    if (l->n_coalesce) {
        key(t, "joins");
        begin(t, '[');
        for (int i = 0; i < l->n_coalesce; i++) {
            line(t);
            putf(t, "{ \"bytes\": %u, \"weight\": ", l->coalesce[i].bytes);
            number(t, 6, l->coalesce[i].weight);
            put(t, " }", 2);
        }
        end(t, ']');
    }
    put_int(t, "lanes", l->io_lanes);
    if (l->load_bytes_per_s > 0)
        put_real(t, "load_bytes_per_s", l->load_bytes_per_s);
    put_int(t, "queue_depth", l->queue_depth);
    end(t, '}');
    put_str(t, "kv", l->kv_f16 ? "f16" : "f32");
    put_int(t, "max_batch", l->max_batch);
    put_u64(t, "memory_bytes", l->memory_bytes);
    put_real(t, "min_tokens_per_s", l->min_tokens_per_s);
    put_str(t, "mode", plan_mode_name(l->mode));
    put_bool(t, "optimal", l->optimal);
    if (l->own.tokens_per_s > 0) {
        key(t, "own_layout");
        begin(t, '{');
        put_real(t, "cost", l->own.cost);
        put_str(t, "form", layout_form_name(l->own.form));
        put_bool(t, "packed", l->own.packed);
        put_real(t, "tokens_per_s", l->own.tokens_per_s);
        end(t, '}');
    }
    if (l->predictor_buffers)
        put_int(t, "predictor_buffers", l->predictor_buffers);
    key(t, "predictors");
    put_predictors(t, l->predictor, l->mode == PLAN_PREDICTED ? p->n_layers : 0);
    put_int(t, "prefill_chunk", l->prefill_chunk);
    if (l->prompt.n)
        put_prompt(t, &l->prompt);
    put_real(t, "recall", l->recall);
    put_int(t, "threads", l->threads);
    end(t, '}');
}

/* Layers of a kind, on one line, with the types in which they differ from most. */
static void put_exception(struct text *t, const struct layout *l, int kind)
{
    const uint32_t *usual = l->type[layout_usual_kind(l)], *own = l->type[kind];
    line(t);
    put(t, "{ ", 2);
    if (own[LAYOUT_DOWN] != usual[LAYOUT_DOWN])
        putf(t, "\"down\": \"%s\", ", quant_traits(own[LAYOUT_DOWN])->name);
    if (own[LAYOUT_GATE] != usual[LAYOUT_GATE])
        putf(t, "\"gate\": \"%s\", ", quant_traits(own[LAYOUT_GATE])->name);
    put(t, "\"layers\": ", 10);
    for (int i = 0, n = 0; i < l->n_layers; i++)
        if (l->kind[i] == kind)
            putf(t, "%s%d", n++ ? ", " : "[", i);
    put(t, "]", 1);
    if (own[LAYOUT_UP] != usual[LAYOUT_UP])
        putf(t, ", \"up\": \"%s\"", quant_traits(own[LAYOUT_UP])->name);
    put(t, " }", 2);
}

static void put_types(struct text *t, const struct layout *l)
{
    int kind = layout_usual_kind(l);
    const uint32_t *usual = l->type[kind];
    begin(t, '{');
    put_str(t, "down", quant_traits(usual[LAYOUT_DOWN])->name);
    if (l->n_kinds > 1) {
        key(t, "exceptions");
        begin(t, '[');
        for (int k = 0; k < l->n_kinds; k++)
            if (k != kind)
                put_exception(t, l, k);
        end(t, ']');
    }
    put_str(t, "gate", quant_traits(usual[LAYOUT_GATE])->name);
    put_str(t, "up", quant_traits(usual[LAYOUT_UP])->name);
    end(t, '}');
}

static void put_layout(struct text *t, const struct plan *p)
{
    key(t, "layout");
    begin(t, '{');
    put_u64(t, "block_bytes", p->layout.block_bytes);
    put_u64(t, "cluster_neurons", p->layout.cluster_neurons);
    put_str(t, "form", layout_form_name(p->layout.form));
    put_hash(t, "hash", p->layout_hash);
    put_bool(t, "packed", p->layout.packed);
    key(t, "types");
    put_types(t, &p->layout);
    end(t, '}');
}

static void put_weights(struct text *t, const struct plan_request *q)
{
    key(t, "batch_weights");
    for (int i = 0; i < q->n_weights; i++)
        putf(t, "%s%d", i ? ", " : "[", q->weight[i]);
    put(t, "]", 1);
}

/* What was left to the planner is absent. */
static void put_request(struct text *t, const struct plan_request *q)
{
    key(t, "request");
    begin(t, '{');
    if (q->n_weights)
        put_weights(t, q);
    if (q->policy >= 0)
        put_str(t, "cold_policy", cache_policy_name((enum cache_policy)q->policy));
    if (q->context > 0)
        put_int(t, "context", q->context);
    if (q->n_cores)
        put_classes(t, "cores", q->cores, q->n_cores);
    if (q->engine[0])
        put_str(t, "engine", q->engine);
    if (q->form >= 0)
        put_str(t, "form", layout_form_name((enum layout_form)q->form));
    if (q->max_kl >= 0)
        put_exact(t, "max_kl", q->max_kl);
    if (q->mode >= 0)
        put_str(t, "mode", plan_mode_name((enum plan_mode)q->mode));
    if (q->packed >= 0)
        put_bool(t, "packed", q->packed);
    if (q->predictor >= 0)
        put_str(t, "predictor", predict_input_name((enum predict_input)q->predictor));
    if (q->prefill_chunk > 0)
        put_int(t, "prefill_chunk", q->prefill_chunk);
    if (q->prompt_weight < PLAN_PROMPT_WEIGHT || q->prompt_weight > PLAN_PROMPT_WEIGHT)
        put_exact(t, "prompt_weight", q->prompt_weight);
    if (q->recall > 0)
        put_exact(t, "recall", q->recall);
    end(t, '}');
}

static void put_plan(struct text *t, const struct plan *p)
{
    begin(t, '{');
    put_str(t, "cost", plan_cost_name(p->cost));
    key(t, "device");
    begin(t, '{');
    put_hash(t, "hash", p->hardware_hash);
    put_str(t, "name", p->device);
    end(t, '}');
    if (p->engine[0])
        put_str(t, "engine", p->engine);
    put_str(t, "figures", plan_stat_name(p->stat));
    put_str(t, "format", PLAN_FORMAT);
    put_layout(t, p);
    key(t, "limits");
    begin(t, '[');
    for (int i = 0; i < p->n_limits; i++)
        put_limit(t, p, &p->limits[i]);
    end(t, ']');
    key(t, "model");
    begin(t, '{');
    put_int(t, "blocks", p->n_blocks);
    put_int(t, "d_model", p->d_model);
    put_hash(t, "hash", p->model_hash);
    put_int(t, "layers", p->n_layers);
    put_int(t, "n_ff", p->n_ff);
    put_str(t, "name", p->model_name);
    put_hash(t, "order_hash", p->order_hash);
    put_hash(t, "trace_hash", p->trace_hash);
    end(t, '}');
    key(t, "notes");
    begin(t, '[');
    for (int i = 0; i < p->n_notes; i++) {
        line(t);
        str(t, p->notes[i]);
    }
    end(t, ']');
    put_request(t, &p->request);
    put_int(t, "revision", PLAN_REVISION);
    put_u64(t, "rlimit", p->rlimit);
    put_u64(t, "seed", p->seed);
    put_str(t, "solver", p->solver);
    put_str(t, "tool", p->tool);
    end(t, '}');
    put(t, "\n", 1);
}

int plan_text(const struct plan *p, char **out, size_t *len, struct err *e)
{
    int r = plan_check(p, "(being written)", e);
    if (r < 0)
        return r;
    struct text t = { 0 };
    put_plan(&t, p);
    struct plan back;
    r = t.bad ? err_set(e, ERR_NOMEM, "out of memory for a plan") :
                plan_parse(t.data, t.len, "(being written)", &back, e);
    if (r < 0) {
        free(t.data);
        return r;
    }
    plan_done(&back);
    *out = t.data;
    *len = t.len;
    return 0;
}

int plan_write(const struct plan *p, const char *path, struct err *e)
{
    char *text;
    size_t len;
    int r = plan_text(p, &text, &len, e);
    if (r < 0)
        return r;
    r = file_replace(path, text, len, e);
    free(text);
    return r;
}
