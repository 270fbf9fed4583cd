/* From a description to plain numbers: the same struct that a trace fills, with curves computed from rate and
 * skew and windows drawn instead of recorded. All layers are equivalent. */
#include "planner/inputs/inputs.h"

#include "common/kernels/quant.h"
#include "planner/describe/describe.h"
#include "planner/describe/describe_window.h"
#include "planner/describe/describe_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_TEXT 8 /* bytes of a token's text, for the tokenizer's account */

struct described {
    struct describe d;
    double *p;                  /* [n_ff], describe_rates */
    struct inputs_steps window; /* of every layer; n_steps 0 until it is first asked for */
};

static struct inputs_matrix matrix(const struct model_hparams *h, enum model_role role, uint32_t type)
{
    uint64_t dims[4];
    if (model_tensor_shape(h, role, dims) < 0)
        return (struct inputs_matrix){ .rows = 0 };
    return (struct inputs_matrix){ .type = type, .rows = (int)dims[1], .cols = (int)dims[0],
                                   .bytes = quant_row_bytes(type, dims[0]) * dims[1] };
}

static void fill_matrices(struct inputs *in, const struct describe *d)
{
    const struct model_hparams *h = &d->h;
    struct inputs_layer one = { .n = 0 };
    for (int i = 0; i < graph_n_roles; i++) {
        enum model_role role = (enum model_role)graph_roles[i].role;
        if (graph_roles[i].job && model_role_is_per_layer(role) && model_role_presence(h, role) == MODEL_REQUIRED)
            inputs_add_product(&one, &graph_roles[i], matrix(h, role, role == MODEL_FFN_ROUTER ? d->router_type : d->attn_type));
    }
    memcpy(one.ffn_type, d->ffn_type, sizeof one.ffn_type);
    for (int l = 0; l < in->n_layers; l++)
        in->layers[l] = one;
    in->head = matrix(h, MODEL_OUTPUT, h->tied_output ? d->embd_type : d->output_type);
    in->embd_row_bytes = quant_row_bytes(d->embd_type, (uint64_t)h->d_model);
}

/* What stays in memory beside neurons, as a packed model of this shape would have it. */
static void fill_account(struct inputs *in, const struct describe *d)
{
    const struct model_hparams *h = &d->h;
    struct budget_model *b = &in->budget;
    uint64_t norm = budget_dense_tensor((uint64_t)h->d_model * 4), layer = 2 * norm, layers = (uint64_t)h->n_layers;
    for (int i = 0; i < in->layers[0].n; i++)
        layer += budget_dense_tensor(in->layers[0].product[i].bytes);
    b->h = *h;
    b->dense_bytes = layers * layer + norm;
    budget_add_dense(b, MODEL_TOKEN_EMBD, in->embd_row_bytes * (uint64_t)h->n_vocab, (uint64_t)h->n_vocab, 1);
    if (!h->tied_output)
        b->dense_bytes += budget_dense_tensor(in->head.bytes);
    b->dense_bytes += budget_dense_tensor(d->resident_bytes);
    b->n_tensors = layers * ((uint64_t)in->layers[0].n + 2) + 2 + !h->tied_output;
    b->vocab_text_bytes = (uint64_t)h->n_vocab * TOKEN_TEXT;
}

/* Mean of 1 - (1 - p)^n over the neurons. */
static double mean_union(const double *p, int n_ff, double n)
{
    double sum = 0;
    for (int i = 0; i < n_ff; i++)
        sum += 1 - pow(1 - p[i], n);
    return sum / n_ff;
}

/* How many independent tokens a batch counts for, so that `rate` of the neurons fire for one of them. */
static double effective(const double *p, int n_ff, double rate, double batch)
{
    double low = 1, high = batch;
    for (int i = 0; i < 40; i++) {
        double middle = (low + high) / 2;
        *(mean_union(p, n_ff, middle) < rate ? &low : &high) = middle;
    }
    return high;
}

static void fill_curves(struct inputs *in, const struct described *o)
{
    const struct describe *d = &o->d;
    int n_ff = d->h.n_ff;
    double reach = d->h.n_experts ? (double)d->h.n_experts_used / d->h.n_experts : 1;
    for (int b = 0; b < in->n_batches; b++) {
        int batch = inputs_batch_sizes[b], published = b > 0 && d->rate[b] > 0;
        double routed = 1 - pow(1 - reach, batch), n = published ? effective(o->p, n_ff, d->rate[b], batch) : batch;
        struct inputs_curve *first = NULL;
        for (int i = 0; i < in->n_layers * in->n_blocks; i++) {
            struct inputs_curve *c = &in->curves[(size_t)b * (size_t)in->n_layers * (size_t)in->n_blocks + (size_t)i];
            c->routed = routed;
            if (first) {
                memcpy(c->cum, first->cum, ((size_t)n_ff + 1) * sizeof *c->cum);
                continue;
            }
            for (int k = 0; k < n_ff; k++)
                c->cum[k + 1] = c->cum[k] + (published ? routed * (1 - pow(1 - o->p[k], n)) :
                                                         1 - pow(1 - o->p[k] * reach, n));
            first = c;
        }
    }
    for (int l = 0; l < in->n_layers; l++)
        in->loads[l] = d->open_per_firing;
}

/* The same predictor for each FFN. */
static int fill_predictors(struct inputs *in, const struct describe *d, struct err *e)
{
    uint64_t ffns = (uint64_t)in->n_layers * (uint64_t)in->n_blocks;
    struct inputs_predictor x = { .rank = d->predictor_rank, .type1 = d->predictor_type, .type2 = d->predictor_type,
                                  .bytes = (d->predictor_bytes + ffns - 1) / ffns, .true_density = d->rate[0],
                                  .n_points = 1, .point[0] = { d->recall, d->rate[0] * d->predicted_per_firing } };
    int r = d->predictor_bytes ? inputs_alloc_predictors(in, e) : 0;
    if (r < 0 || !d->predictor_bytes)
        return r;
    for (int l = 0; l < in->n_layers; l++)
        for (int k = 0; k < in->n_blocks; k++)
            *inputs_predictor_at(in, d->predictor_input, l, k) = x;
    in->recall = d->recall;
    return 0;
}

static int steps(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e)
{
    struct described *o = in->trace;
    int n = max_steps < DESCRIBE_WINDOW ? (int)max_steps : DESCRIBE_WINDOW, r;
    (void)layer;
    if (o->window.n_steps == 0 && (r = describe_window(&o->d, o->p, DESCRIBE_WINDOW, &o->window, e)) < 0)
        return r;
    size_t starts = (size_t)n + 1, at = o->window.start[n];
    struct inputs_steps s = { .n_steps = n, .start = malloc(starts * sizeof *s.start), .at = malloc((at + 1) * sizeof *s.at) };
    if (!s.start || !s.at) {
        inputs_steps_done(&s);
        return err_set(e, ERR_NOMEM, "out of memory for an activation window");
    }
    memcpy(s.start, o->window.start, starts * sizeof *s.start);
    memcpy(s.at, o->window.at, at * sizeof *s.at);
    *out = s;
    return 0;
}

static void close_described(struct inputs *in)
{
    struct described *o = in->trace;
    if (o) {
        free(o->p);
        inputs_steps_done(&o->window);
    }
    free(o);
}

/* What the windows make of the published miss figures. */
static int note_misses(const struct inputs *in, struct notes *notes, struct err *e)
{
    const struct described *o = in->trace;
    struct inputs_steps s;
    int r = 0;
    if (o->d.n_misses == 0 || !notes)
        return 0;
    if ((r = in->steps(in, 0, DESCRIBE_WINDOW, &s, e)) < 0)
        return r;
    for (int i = 0; i < o->d.n_misses && r == 0; i++) {
        double missed;
        const struct describe_miss *m = &o->d.miss[i];
        if ((r = describe_missed(&o->d, &s, m->cached, &missed, e)) == 0)
            notes_add(notes, "with %.3g %% of the neurons cached (LRU) %.3g %% of lookups miss as published, %.3g %% in "
                      "the window drawn for this plan", 100 * m->cached, 100 * m->missed, 100 * missed);
    }
    inputs_steps_done(&s);
    return r;
}

static int fill(struct inputs *in, const char *path, struct notes *notes, struct err *e)
{
    struct described *o = in->trace;
    struct describe *d = &o->d;
    int r = describe_read(path, d, e);
    if (r < 0)
        return r;
    memcpy(in->name, d->name, sizeof in->name);
    in->h = d->h;
    in->n_layers = d->h.n_layers;
    in->n_blocks = model_ffn_blocks(&d->h);
    in->n_used = d->h.n_experts ? d->h.n_experts_used : 1;
    in->model_hash = in->order_hash = d->hash;
    if ((r = inputs_alloc(in, e)) < 0)
        return r;
    fill_matrices(in, d);
    fill_account(in, d);
    o->p = malloc((size_t)d->h.n_ff * sizeof *o->p);
    if (!o->p)
        return err_set(e, ERR_NOMEM, "out of memory for description '%s'", path);
    if (d->rate[0] == 0) { /* nothing is ever zero */
        for (int i = 0; i < d->h.n_ff; i++)
            o->p[i] = 1;
        fill_curves(in, o);
        return 0;
    }
    if ((r = describe_rates(d, path, o->p, e)) < 0 || (r = describe_persistence(d, path, o->p, e)) < 0)
        return r;
    fill_curves(in, o);
    if ((r = fill_predictors(in, d, e)) < 0 || (r = inputs_memoise(in, e)) < 0)
        return r;
    in->equivalent = 1;
    in->window_tokens = DESCRIBE_WINDOW;
    in->steps = steps;
    notes_add(notes, "made from a description, without a trace: the order of neurons is not known, so no pack can be "
              "made from this plan");
    return note_misses(in, notes, e);
}

int describe_inputs(const char *path, int max_batch, struct inputs *out, struct notes *notes, struct err *e)
{
    struct inputs in = { .n_batches = inputs_count_batches(max_batch), .close = close_described };
    int r;
    in.trace = calloc(1, sizeof(struct described));
    if (!in.trace)
        return err_set(e, ERR_NOMEM, "out of memory for description '%s'", path);
    if ((r = fill(&in, path, notes, e)) < 0) {
        inputs_done(&in);
        return r;
    }
    *out = in;
    return 0;
}
