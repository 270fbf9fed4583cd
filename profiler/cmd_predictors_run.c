/* The run of the three predictor commands: make, measure or import, then quality, then the report. */
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/base/size.h"
#include "common/kernels/kernels.h"
#include "profiler/cmd_predictors.h"
#include "profiler/predictors/predictor_import.h"
#include "profiler/predictors/predictor_set.h"
#include "profiler/show/show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned input_masks[] = { 1u << PREDICT_FFN, 1u << PREDICT_BLOCK,
                                        1u << PREDICT_FFN | 1u << PREDICT_BLOCK };

static int parse_budget(const char *text, uint64_t ffn, uint64_t *out, struct err *e)
{
    char tail[2] = "";
    double percent;
    if (strlen(text) < 32 && sscanf(text, "%lf%1[%]", &percent, tail) == 2 && text[strlen(text) - 1] == '%') {
        if (!(percent > 0 && percent <= 1000))
            return err_set(e, ERR_USAGE, "--budget '%s': a share above 0 %% and up to 1000 %% is needed", text);
        *out = (uint64_t)((double)ffn * percent / 100);
        return 0;
    }
    int r = size_parse(text, out, e);
    return r < 0 ? err_wrap(e, "--budget") : 0;
}

/* "0,8-15": layers[n] is 1 where it names one. *count: how many. */
static int parse_layers(const char *text, uint8_t *layers, int n, int *count, struct err *e)
{
    const char *at = text;
    *count = 0;
    for (;;) {
        int first, last, used = 0;
        if (*at < '0' || *at > '9' || sscanf(at, "%6d%n", &first, &used) != 1)
            break;
        at += used, last = first;
        if (*at == '-' && (at[1] < '0' || at[1] > '9' || sscanf(at + 1, "%6d%n", &last, &used) != 1))
            break;
        at += *at == '-' ? used + 1 : 0;
        if (first > last || last >= n)
            return err_set(e, ERR_USAGE, "--layers '%s': there is no layer %d to %d: the model's are 0 to %d", text, first,
                           last, n - 1);
        for (int l = first; l <= last; l++)
            *count += !layers[l], layers[l] = 1;
        if (!*at)
            return 0;
        if (*at++ != ',')
            break;
    }
    return err_set(e, ERR_USAGE, "--layers '%s': numbers and ranges are needed, like 0,8-15", text);
}

/* layers: [n_layers], zeros. */
static int set_options(const struct cmd_predictors *o, const struct trace_info *i, uint8_t *layers,
                       struct predictor_set_options *out, struct err *e)
{
    int n = i->h.n_layers, r = o->layers ? parse_layers(o->layers, layers, n, &n, e) : 0;
    if (r < 0)
        return r;
    *out = (struct predictor_set_options){ .recall = o->recall,
                                        .inputs = input_masks[o->input == CMD_PREDICTORS_NOT_SAID ? 0 : o->input],
                                        .layers = o->layers ? layers : NULL,
                                        .seed = o->seed,
                                        .samples = o->samples,
                                        .epochs = o->method == CMD_PREDICTORS_TRAINED ? o->epochs : 0,
                                        .columns = o->method == CMD_PREDICTORS_SELECT,
                                        .loss_weighting = o->loss_weighting,
                                        .type = (uint32_t)quant_by_name(cmd_predictors_types[o->type]) };
    r = parse_budget(o->budget, predictor_set_ffn_bytes(i) / (uint64_t)i->h.n_layers * (uint64_t)n, &out->budget_bytes, e);
    char tail;
    if (!r && strcmp(o->rank, "auto") &&
        (strlen(o->rank) > 6 || sscanf(o->rank, "%d%c", &out->rank, &tail) != 1 || out->rank < 1 ||
         out->rank > PREDICT_MAX_RANK))
        return err_set(e, ERR_USAGE, "--rank '%s': auto or a number from 1 to %d is needed", o->rank, PREDICT_MAX_RANK);
    return r;
}

/* The file with the predictors, once they are made. */
static const char *result_path(const struct cmd_predictors *o)
{
    return o->out ? o->out : o->traces;
}

/* The table's rows of other inputs stay, if they were measured on the same text. */
static void add_rows(const struct trace_predictors *p, unsigned measured, const char *corpus,
                     struct trace_predict_quality rows[TRACE_PREDICT_QUALITY], int *n)
{
    const struct trace_predict_quality *old;
    int n_old = trace_predict_quality(p, &old), same = !strcmp(corpus, trace_predict_corpus(p));
    for (int i = 0; i < n_old && same; i++) {
        int at = *n;
        if (measured >> old[i].input & 1 || *n == TRACE_PREDICT_QUALITY)
            continue;
        for (; at && rows[at - 1].input > old[i].input; at--)
            rows[at] = rows[at - 1];
        rows[at] = old[i], ++*n;
    }
}

/* Losses of other inputs likewise. */
static int add_losses(const struct trace_predictors *p, unsigned measured, const char *corpus, struct trace_predict_losses *l,
                      struct err *e)
{
    const struct trace_predict_losses *old = trace_predict_losses(p);
    int same = !strcmp(corpus, trace_predict_corpus(p)) && old->n_targets == l->n_targets;
    for (int k = 0; k < l->n_targets && same; k++)
        same = !(old->target[k] < l->target[k]) && !(old->target[k] > l->target[k]);
    if (!same || !old->n)
        return 0;
    struct trace_predict_loss *more = realloc(l->row, (size_t)(l->n + old->n) * sizeof *more);
    if (!more)
        return err_set(e, ERR_NOMEM, "losses");
    l->row = more;
    for (int i = 0; i < old->n; i++) {
        int at = l->n;
        if (measured >> old->row[i].input & 1)
            continue;
        for (; at && l->row[at - 1].input > old->row[i].input; at--)
            l->row[at] = l->row[at - 1];
        l->row[at] = old->row[i], l->n++;
    }
    return 0;
}

/* Measure quality and store it. The predictors themselves are safe: an interruption loses this alone. */
static int quality(const struct cmd_predictors *o, const struct model *m, struct pool *pool, struct err *e)
{
    const char *from = o->command == CMD_PREDICTORS_MEASURE ? o->traces : result_path(o);
    struct trace *t = NULL, *other = NULL;
    struct trace_predictors *p = NULL;
    struct trace_predict_quality rows[TRACE_PREDICT_QUALITY];
    struct trace_predict_losses losses = { 0 };
    char corpus[TRACE_PREDICT_CORPUS];
    /* Imported ones have their own input. */
    int all = o->command == CMD_PREDICTORS_IMPORT ||
              (o->command == CMD_PREDICTORS_MEASURE && o->input == CMD_PREDICTORS_NOT_SAID);
    unsigned which = all ? ~0u : input_masks[o->input == CMD_PREDICTORS_NOT_SAID ? 0 : o->input];
    int n = 0, r = trace_open(from, &t, e);
    if (!r && (r = trace_predictors_open(t, &p, e)) == 0 && !p)
        r = err_set(e, ERR_INPUT, "'%s' holds no predictors; 'thermo-profile predictors' makes them", from);
    if (!r && o->check)
        r = trace_open(o->check, &other, e);
    if (!r)
        r = predictor_set_quality(p, t, o->check ? other : t, o->check != NULL, m, which, o->quality_tokens, pool, rows, &n, &losses, e);
    if (!r) {
        snprintf(corpus, sizeof corpus, "%.100s%s", trace_info(o->check ? other : t)->corpus.prompts,
                 o->check ? "" : ", held out");
        add_rows(p, which, corpus, rows, &n);
        r = add_losses(p, which, corpus, &losses, e);
    }
    trace_predictors_close(p);
    trace_close(other);
    trace_close(t);
    if (!r)
        r = trace_predict_save_quality(from, result_path(o), rows, n, corpus, &losses, e);
    free(losses.row);
    if ((r == ERR_INTR || r == ERR_IO) && o->command != CMD_PREDICTORS_MEASURE)
        err_wrap(e, "the predictors are in '%s'; 'thermo-profile predictors-measure' measures their quality", from);
    return r;
}

/* ---- what is said ---- */

static void print_checks(const struct trace_predictor *list, int n, const struct predictor_set_check *c, const char *path)
{
    double predicted = 0, active = 0, hit = 0;
    print("\non '%s', at the same thresholds\n%-6s %5s %9s %9s %9s %9s %7s\n", path, "input", "layer",
           "recall", "precision", "density", "oracle", "ratio");
    for (int i = 0; i < n; i++) {
        if (list[i].block == 0)
            print("%-6s %5d %8.2f%% %8.1f%% %8.1f%% %8.1f%% %7.2f\n", predict_input_name(list[i].input), list[i].layer,
                   100 * c[i].recall, 100 * c[i].precision, 100 * c[i].density, 100 * c[i].true_density,
                   c[i].true_density > 0 ? c[i].density / c[i].true_density : 0);
        predicted += c[i].density, active += c[i].true_density;
        hit += c[i].recall * c[i].true_density;
        if (i + 1 == n || list[i + 1].input != list[i].input) {
            print("%-6s %5s %8.2f%% %8.1f%%  %27.2f\n", predict_input_name(list[i].input), "all",
                   active > 0 ? 100 * hit / active : 0, predicted > 0 ? 100 * hit / predicted : 0,
                   active > 0 ? predicted / active : 0);
            predicted = active = hit = 0;
        }
    }
}

static struct js *checks_json(const struct trace_predictor *list, int n, const struct predictor_set_check *c,
                              const char *path)
{
    struct js *o = js_object(), *a = js_array();
    js_set_str(o, "trace", path);
    for (int i = 0; i < n; i++)
        js_append(a, js_made(JS_STR("input", predict_input_name(list[i].input)), JS_INT("layer", list[i].layer),
                             JS_INT("block", list[i].block), JS_NUM("recall", c[i].recall), JS_NUM("precision", c[i].precision),
                             JS_NUM("density", c[i].density), JS_NUM("true_density", c[i].true_density),
                             JS_NUM("density_at_recall", c[i].density_at_recall)));
    js_set(o, "predictors", a);
    return o;
}

static int report(const struct cmd_predictors *o, const char *file, const struct model *m, struct pool *pool,
                  double seconds, uint64_t resumed, struct err *e)
{
    struct trace *t = NULL, *other = NULL;
    struct trace_predictors *p = NULL;
    struct predictor_set_check *checks = NULL;
    const struct trace_predictor *list = NULL;
    int n = 0, r = trace_open(file, &t, e);
    if (!r)
        r = trace_predictors_open(t, &p, e);
    if (!r && !p)
        r = err_set(e, ERR_INPUT, "'%s' holds no predictors; 'thermo-profile predictors' makes them", file);
    if (!r) {
        list = trace_predictors_list(p, &n);
        if (o->check && !(checks = calloc((size_t)n, sizeof *checks)))
            r = err_set(e, ERR_NOMEM, "%d results", n);
    }
    if (!r && o->check && (r = trace_open(o->check, &other, e)) == 0)
        r = predictor_set_check(p, other, m, 0, pool, checks, e);
    if (!r && o->json) {
        struct js *j = show_predictors_json(t, p);
        js_put(j, JS_STR("trace", file), JS_NUM("seconds", seconds), JS_U64("resumed_layers", resumed));
        if (o->check)
            js_set(j, "check", checks_json(list, n, checks, o->check));
        r = js_print(stdout, j, 2, 6, e);
        js_free(j);
    } else if (!r) {
        show_predictors(t, p);
        if (o->check)
            print_checks(list, n, checks, o->check);
        if (o->command != CMD_PREDICTORS_MEASURE || o->quality_tokens)
            print("wrote %s in %.1f s\n", file, seconds);
    }
    trace_predictors_close(p);
    trace_close(t);
    trace_close(other);
    free(checks);
    return r;
}

/* ---- the command ---- */

static int dry_run(const struct cmd_predictors *o, const struct predictor_set *p, const struct predictor_set_options *po,
                   const struct trace_info *i, struct err *e)
{
    char a[24], b[24], c[24];
    uint64_t ffn = predictor_set_ffn_bytes(i), memory = predictor_set_memory(p);
    if (o->json) {
        struct js *j = js_object();
        js_put(j, JS_U64("memory_bytes", memory), JS_U64("ffn_bytes", ffn), JS_U64("budget_bytes", po->budget_bytes),
               JS_U64("samples", i->n_samples));
        int r = js_print(stdout, j, 2, 6, e);
        js_free(j);
        return r;
    }
    print("memory   %s at most\nbudget   %s per kind of predictor, of %s that the FFNs take\nsamples  %llu "
           "in the trace\n",
           size_format(memory, a, sizeof a), size_format(po->budget_bytes, b, sizeof b),
           size_format(ffn, c, sizeof c), (unsigned long long)i->n_samples);
    return 0;
}

static int make(const struct cmd_predictors *o, struct trace *t, const struct model *m, struct pool *pool,
                uint64_t *resumed, struct err *e)
{
    const char *out = o->out ? o->out : o->traces;
    char state[4096];
    struct predictor_set_options po;
    struct predictor_set *p = NULL;
    struct file f;
    if (snprintf(state, sizeof state, "%s.predictors.partial", out) >= (int)sizeof state)
        return err_set(e, ERR_USAGE, "--out: the path is too long");
    uint8_t *layers = calloc((size_t)trace_info(t)->h.n_layers, 1);
    int r = layers ? set_options(o, trace_info(t), layers, &po, e) : err_set(e, ERR_NOMEM, "layers");
    if (!r)
        r = predictor_set_new(t, m, &po, pool, &p, e);
    free(layers);
    if (r < 0)
        return r;
    if (o->dry_run) {
        r = dry_run(o, p, &po, trace_info(t), e);
        goto out;
    }
    if ((r = file_open(&f, o->traces, e)) < 0)
        goto out;
    uint64_t need = f.size + 3 * po.budget_bytes + (1 << 20);
    file_close(&f);
    if ((r = file_enough_space(out, need, e)) < 0)
        goto out;
    r = predictor_set_run(p, state, o->resume, e);
    if (r == ERR_INTR)
        err_wrap(e, "the same command with --resume goes on from '%s'", state);
    if (!r && (r = predictor_set_save(p, o->traces, out, kernels->name, e)) == 0)
        predictor_set_finish(p);
    *resumed = predictor_set_resumed_layers(p);
out:
    predictor_set_free(p);
    return r;
}

int cmd_predictors_run(const struct cmd_predictors *o, struct err *e)
{
    int r;
    struct trace *t = NULL;
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct pool *pool = NULL;
    float *thresholds = NULL;
    uint64_t resumed = 0;
    int64_t start = progress_now_ns();
    if ((r = trace_open(o->traces, &t, e)) < 0 || (r = gguf_open(o->model, &g, e)) < 0)
        goto out;
    struct model_given given = model_as(&trace_info(t)->h);
    if ((r = trace_thresholds(t, &thresholds, e)) < 0)
        goto out;
    given.thresholds = thresholds;
    if ((r = model_open(g, &given, &m, e)) < 0 || (r = trace_expect(t, &m->h, g, e)) < 0 ||
        (r = pool_new_any(o->threads, &pool, e)) < 0)
        goto out;
    const struct model_hparams *a = &m->h, *b = &trace_info(t)->h;
    if (a->n_layers != b->n_layers || a->d_model != b->d_model || a->n_ff != b->n_ff || a->n_experts != b->n_experts) {
        r = err_set(e, ERR_MISMATCH,
                    "'%s' is a trace of another model than '%s': %d layers of %d x %d, not %d of %d x %d",
                    o->traces, o->model, b->n_layers, b->d_model, b->n_ff, a->n_layers, a->d_model, a->n_ff);
        goto out;
    }
    if (o->command == CMD_PREDICTORS_MAKE && o->method == CMD_PREDICTORS_TRAINED && predictor_import_there(m))
        log_info("'%s' has predictors of its own; 'thermo-profile predictors-import' imports them", o->model);
    if (o->command == CMD_PREDICTORS_IMPORT)
        r = predictor_import(o->traces, result_path(o), t, m, o->recall, o->samples, kernels->name, pool, e);
    else if (o->command != CMD_PREDICTORS_MEASURE)
        r = make(o, t, m, pool, &resumed, e);
    if (!r && !o->dry_run && o->quality_tokens)
        r = quality(o, m, pool, e);
    if (!r && !o->dry_run)
        r = report(o, o->command != CMD_PREDICTORS_MEASURE || o->quality_tokens ? result_path(o) : o->traces, m, pool,
                   (double)(progress_now_ns() - start) / 1e9, resumed, e);
out:
    pool_free(pool);
    model_close(m);
    gguf_close(g);
    free(thresholds);
    trace_close(t);
    return r;
}
