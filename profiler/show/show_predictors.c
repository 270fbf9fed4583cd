/* Printing the predictors of a trace: per layer what they cost and what they do on held-out tokens, beside an oracle, a
 * fixed hot set and the training-free predictor of the same bytes. */
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/kernels/quant.h"
#include "profiler/predictors/predictor_set.h"
#include "profiler/show/show.h"

#include <stdio.h>

/* Of the blocks of one layer, or of all layers, together. */
struct sum {
    int n;
    uint64_t bytes;
    double hit, predicted, active, start, hot; /* neurons per token: of the blocks a mean */
};

static void add(struct sum *s, const struct trace_predictor *x)
{
    s->n++;
    s->bytes += x->bytes;
    s->hit += (double)x->at.recall * x->true_density;
    s->predicted += (double)x->at.density;
    s->active += x->true_density;
    s->start += x->start_density;
    s->hot += x->hot_density;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void print_row(const char *layer, const char *rank, const struct sum *s, uint64_t ffn)
{
    char size[24];
    print("%5s %6s %10s %6.2f%% %8.2f%% %8.1f%% %8.1f%% %8.1f%% %6.2f ", layer, rank,
           size_format(s->bytes, size, sizeof size), 100 * ratio((double)s->bytes, (double)ffn),
           100 * ratio(s->hit, s->active), 100 * ratio(s->hit, s->predicted), 100 * s->predicted / s->n,
           100 * s->active / s->n, ratio(s->predicted, s->active));
    if (s->start > 0)
        print("%9.1f%% ", 100 * s->start / s->n);
    else
        print("%10s ", "-");
    print("%8.1f%%\n", 100 * s->hot / s->n);
}

static void print_input(const struct trace_info *i, const struct trace_predictor *list, int n)
{
    uint64_t ffn = predictor_set_ffn_bytes(i);
    struct sum all = { 0 };
    print("\npredictors that see the %s, %s%s\n%5s %6s %10s %7s %9s %9s %9s %9s %6s %10s %9s\n",
           list->input == PREDICT_FFN     ? "FFN's input"
           : list->input == PREDICT_BLOCK ? "layer's input before attention (lookahead)"
                                          : "residual before the FFN's norm",
           predict_type_name(list->type2),
           list->two_sided ? ", for gates on either side of zero" : list->relu ? ", ReLU between" : "", "layer", "rank", "bytes",
           "of FFN", "recall", "precision", "density", "oracle", "ratio", "no train.", "hot only");
    for (int k = 0; k < n;) {
        struct sum s = { 0 };
        char layer[16], rank[16];
        int l = list[k].layer;
        snprintf(layer, sizeof layer, "%d", l);
        snprintf(rank, sizeof rank, "%d", list[k].rank);
        for (; k < n && list[k].layer == l; k++)
            add(&s, &list[k]), add(&all, &list[k]);
        print_row(layer, rank, &s, ffn / (uint64_t)i->h.n_layers);
    }
    print_row("all", "", &all, ffn);
}

static void print_quality(const struct trace_predictors *p)
{
    const struct trace_predict_quality *q;
    int n = trace_predict_quality(p, &q);
    if (!n)
        return;
    print("\nloss of quality: the whole model on %llu tokens of %s, no neuron is always computed\n"
           "%-8s %7s %9s %9s %9s %10s %10s %9s %11s\n",
           (unsigned long long)q->tokens, trace_predict_corpus(p), "input", "target", "recall", "density", "oracle",
           "KL mean", "KL max", "same top", "perplexity");
    for (int i = 0; i < n; i++)
        print("%-8s %7.4g %8.2f%% %8.1f%% %8.1f%% %10.3g %10.3g %8.2f%% %+10.2f%%\n", predict_input_name(q[i].input),
               q[i].target, 100 * q[i].recall, 100 * q[i].density, 100 * q[i].true_density, q[i].kl_mean, q[i].kl_max,
               100 * q[i].top1, 100 * (q[i].ppl_ratio - 1));
}

/* What each layer's predictors alone cost the model, by the energy that they lose. */
static double loss_of(const struct trace_predict_loss *l, int k)
{
    double sum = 0;
    for (int i = 0; i < TRACE_PREDICT_PARTS; i++)
        sum += (double)l->energy[k][i];
    return sum * l->kl_per_energy;
}

static void print_losses(const struct trace_predictors *p)
{
    const struct trace_predict_losses *l = trace_predict_losses(p);
    for (int i = 0; i < l->n; i++) {
        if (!i || l->row[i].input != l->row[i - 1].input) {
            print("\nKL by layer, %s, none always computed, at recall\n%5s", predict_input_name(l->row[i].input), "layer");
            for (int k = 0; k < l->n_targets; k++)
                print(" %8.4g", (double)l->target[k]);
            print("\n");
        }
        print("%5d", l->row[i].layer);
        for (int k = 0; k < l->n_targets; k++)
            print(" %8.2g", loss_of(&l->row[i], k));
        print("\n");
    }
}

void show_predictors(const struct trace *t, const struct trace_predictors *p)
{
    const struct trace_predict_info *i = trace_predictors_info(p);
    int n, at = 0;
    const struct trace_predictor *list = trace_predictors_list(p, &n);
    print("predictors by %s, %s, for recall %g", i->tool, i->method, i->recall);
    if (i->loss_weighting > 0)
        print(", loss weighting %g", i->loss_weighting);
    print("; measured on %llu held-out tokens, made from %llu\n", (unsigned long long)list->n_held,
           (unsigned long long)list->n_train);
    while (at < n) {
        int k = at;
        while (k < n && list[k].input == list[at].input)
            k++;
        print_input(trace_info(t), list + at, k - at);
        at = k;
    }
    print_quality(p);
    print_losses(p);
}

static struct js *points(const struct trace_predictor *x)
{
    struct js *a = js_array();
    for (int i = 0; i < x->n_points; i++)
        js_append(a, js_made(JS_NUM("recall", (double)x->curve[i].recall), JS_NUM("threshold", (double)x->curve[i].threshold),
                             JS_NUM("density", (double)x->curve[i].density), JS_NUM("precision", (double)x->curve[i].precision)));
    return a;
}

static struct js *numbers(const float *v, int n)
{
    struct js *a = js_array();
    for (int i = 0; i < n; i++)
        js_append_num(a, (double)v[i]);
    return a;
}

static struct js *quality_json(const struct trace_predictors *p)
{
    const struct trace_predict_quality *q;
    int n = trace_predict_quality(p, &q);
    const struct trace_predict_losses *l = trace_predict_losses(p);
    struct js *j = js_object(), *a = js_array(), *losses = l->n ? js_array() : NULL;
    js_set_str(j, "corpus", trace_predict_corpus(p));
    for (int i = 0; i < l->n; i++) {
        struct js *energy = js_array();
        for (int k = 0; k < l->n_targets; k++)
            js_append(energy, numbers(l->row[i].energy[k], TRACE_PREDICT_PARTS));
        js_append(losses, js_made(JS_STR("input", predict_input_name(l->row[i].input)), JS_INT("layer", l->row[i].layer),
                                  JS_NUM("kl_per_energy", l->row[i].kl_per_energy), JS_VALUE("energy", energy)));
    }
    for (int i = 0; i < n; i++)
        js_append(a, js_made(JS_STR("input", predict_input_name(q[i].input)), JS_NUM("target_recall", q[i].target),
                             JS_NUM("recall", q[i].recall), JS_NUM("density", q[i].density),
                             JS_NUM("true_density", q[i].true_density), JS_NUM("kl_mean_nats", q[i].kl_mean),
                             JS_NUM("kl_max_nats", q[i].kl_max), JS_NUM("top1_agreement", q[i].top1),
                             JS_NUM("perplexity_ratio", q[i].ppl_ratio), JS_U64("tokens", q[i].tokens)));
    js_set(j, "rows", a);
    if (l->n)
        js_put(j, JS_VALUE("loss_targets", numbers(l->target, l->n_targets)), JS_VALUE("losses", losses));
    return j;
}

struct js *show_predictors_json(const struct trace *t, const struct trace_predictors *p)
{
    const struct trace_predict_info *i = trace_predictors_info(p);
    struct js *j = js_object(), *a = js_array();
    int n;
    const struct trace_predictor *list = trace_predictors_list(p, &n);
    js_put(j, JS_STR("tool", i->tool), JS_STR("cpu", i->tier), JS_STR("method", i->method), JS_NUM("recall", i->recall),
           JS_NUM("weigh", i->loss_weighting), JS_U64("seed", i->seed), JS_U64("epochs", i->epochs),
           JS_U64("ffn_bytes", predictor_set_ffn_bytes(trace_info(t))));
    for (int k = 0; k < n; k++) {
        const struct trace_predictor *x = &list[k];
        struct js *o = js_object();
        js_put(o, JS_STR("input", predict_input_name(x->input)), JS_INT("layer", x->layer), JS_INT("block", x->block),
               JS_INT("rank", x->rank), JS_BOOL("relu", x->relu));
        if (x->two_sided)
            js_set_bool(o, "two_sided", 1);
        js_put(o, JS_STR("fc1_type", predict_type_name(x->type1)), JS_STR("fc2_type", predict_type_name(x->type2)),
               JS_U64("bytes", x->bytes), JS_U64("tokens_trained", x->n_train), JS_U64("tokens_held_out", x->n_held),
               JS_NUM("recall", (double)x->at.recall), JS_NUM("precision", (double)x->at.precision),
               JS_NUM("density", (double)x->at.density), JS_NUM("threshold", (double)x->at.threshold),
               JS_NUM("true_density", x->true_density));
        if (x->start_density > 0)
            js_set_num(o, "training_free_density", x->start_density);
        js_put(o, JS_NUM("hot_only_density", x->hot_density), JS_VALUE("curve", points(x)));
        js_append(a, o);
    }
    js_put(j, JS_VALUE("predictors", a), JS_VALUE("quality", quality_json(p)));
    return j;
}
