/* Plans: what is written is read back the same, the text is canonical, broken structs are refused. */
#include "common/plan/plan_fields.h"
#include "tests/layout_sample.h"
#include "tests/plan_sample.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int same_alternatives(const struct plan_limit *x, const struct plan_limit *y)
{
    int ok = x->n_alternatives == y->n_alternatives && x->n_alternative_times == y->n_alternative_times;
    for (int i = 0; i < x->n_alternatives && ok; i++) {
        const struct plan_alternative *a = &x->alternatives[i], *b = &y->alternatives[i];
        ok = a->threads == b->threads && a->queue_depth == b->queue_depth && a->io == b->io && a->coalesced == b->coalesced &&
             a->ahead == b->ahead &&
             !memcmp(a->term_ns, b->term_ns, sizeof a->term_ns);
    }
    return ok;
}

static int same(const struct plan *a, const struct plan *b)
{
    int ok = !strcmp(a->tool, b->tool) && !strcmp(a->solver, b->solver) &&
             a->seed == b->seed && a->rlimit == b->rlimit && a->cost == b->cost && a->stat == b->stat &&
             !strcmp(a->model_name, b->model_name) && !strcmp(a->device, b->device) &&
             hash_equal(a->model_hash, b->model_hash) && hash_equal(a->trace_hash, b->trace_hash) &&
             hash_equal(a->order_hash, b->order_hash) && hash_equal(a->layout_hash, b->layout_hash) &&
             hash_equal(a->hardware_hash, b->hardware_hash) && a->n_layers == b->n_layers &&
             a->n_blocks == b->n_blocks && a->n_ff == b->n_ff && a->d_model == b->d_model &&
             a->n_parts == b->n_parts && a->n_limits == b->n_limits && a->n_notes == b->n_notes &&
             !strcmp(a->notes[0], b->notes[0]) && !memcmp(&a->layout, &b->layout, sizeof a->layout);
    const struct plan_request *q = &a->request, *w = &b->request;
    ok = ok && q->mode == w->mode && q->form == w->form && q->packed == w->packed && q->policy == w->policy &&
         q->predictor == w->predictor && q->context == w->context && q->recall == w->recall && q->max_kl == w->max_kl &&
         q->always_resident == w->always_resident && q->prompt_weight == w->prompt_weight &&
         q->prefill_chunk == w->prefill_chunk && q->n_weights == w->n_weights &&
         !memcmp(q->weight, w->weight, sizeof q->weight) &&
         q->n_cores == w->n_cores && q->cores[0].n == w->cores[0].n && !strcmp(q->cores[0].name, w->cores[0].name);
    for (int i = 0; ok && i < a->n_limits; i++) {
        const struct plan_limit *x = &a->limits[i], *y = &b->limits[i];
        ok = x->memory_bytes == y->memory_bytes && x->account_bytes == y->account_bytes &&
             x->floor_bytes == y->floor_bytes && x->min_tokens_per_s == y->min_tokens_per_s &&
             x->context == y->context && x->kv_type == y->kv_type && x->max_batch == y->max_batch &&
             x->prefill_chunk == y->prefill_chunk && x->mode == y->mode && x->act_q8 == y->act_q8 &&
             x->threads == y->threads && x->n_classes == y->n_classes && x->classes[1].n == y->classes[1].n &&
             !strcmp(x->classes[1].name, y->classes[1].name) && x->io == y->io && x->io_lanes == y->io_lanes &&
             x->queue_depth == y->queue_depth && x->policy == y->policy && x->gap == y->gap &&
             x->optimal == y->optimal && x->stream_tables == y->stream_tables &&
             x->recall == y->recall && x->by_layer == y->by_layer &&
             x->quality.tokens == y->quality.tokens && x->quality.window == y->quality.window &&
             x->quality.kl_mean == y->quality.kl_mean &&
             x->quality.kl_max == y->quality.kl_max && x->quality.top1 == y->quality.top1 && x->quality.ppl_ratio == y->quality.ppl_ratio &&
             hash_equal(x->quality.text, y->quality.text) && (!x->by_layer || !memcmp(x->recalls, y->recalls, 3 * sizeof *x->recalls)) &&
             !memcmp(x->predictor, y->predictor, 3) &&
             !memcmp(x->always, y->always, 3 * sizeof *x->always) && x->n_coalesce == y->n_coalesce &&
             !memcmp(x->coalesce, y->coalesce, sizeof x->coalesce) &&
             same_alternatives(x, y) && x->n_batches == y->n_batches;
        for (int k = 0; ok && k < x->n_batches; k++) {
            const struct plan_batch *u = &x->batches[k], *v = &y->batches[k];
            ok = u->batch == v->batch && u->threads == v->threads && u->queue_depth == v->queue_depth &&
                 u->n_classes == v->n_classes && u->classes[1].n == v->classes[1].n && !strcmp(u->classes[0].name, v->classes[0].name) &&
                 !memcmp(u->hot, v->hot, 12 * sizeof *u->hot) &&
                 !memcmp(u->cold, v->cold, 6 * sizeof *u->cold) &&
                 u->predicted.hit_rate == v->predicted.hit_rate && v->predicted.tokens_per_s == 12.3457 &&
                 !memcmp(u->predicted.layers, v->predicted.layers, 3 * sizeof *u->predicted.layers);
        }
    }
    return ok;
}

/* Change one thing, expect that writing refuses it and says `what`. */
static int refused(struct plan *p, const char *what)
{
    struct err e = { 0 };
    char *text = NULL;
    size_t len;
    int r = plan_text(p, &text, &len, &e);
    free(text);
    if (r != ERR_FORMAT || !strstr(e.msg, what)) {
        printf("# wanted '%s', got %d '%s'\n", what, r, e.msg);
        return 0;
    }
    return 1;
}

static void test_rules(void)
{
    struct plan p;
    plan_sample(&p);
    struct plan_limit *l = &p.limits[1];
#define WITH(field, value, what)     \
    do {                             \
        __typeof__(field) was = field; \
        field = (value);             \
        CHECK(refused(&p, what));    \
        field = was;                 \
    } while (0)
    WITH(l->batches[0].hot[1], 63, "hot[0][0][1] is 63");
    WITH(l->batches[0].hot[1], 256, "hot[0][0][1] is 256");
    WITH(l->batches[1].cold[0], 1u << 20, "cold[0][0]");
    WITH(l->memory_bytes, 1000000, "limits[1].memory_bytes is not above");
    WITH(l->account_bytes, 2000001, "above memory_bytes");
    WITH(l->floor_bytes, 900001, "above account_bytes");
    WITH(l->threads, 2, "sum to 3");
    WITH(l->max_batch, 3, "last batch is 2");
    WITH(l->batches[0].batch, 2, "begin with batch 1");
    WITH(l->batches[1].batch, 1, "not above");
    WITH(l->batches[1].threads, 2, "batches[1].configuration has 2 threads, whose classes sum to 3");
    WITH(l->batches[1].queue_depth, 33, "queue_depth 33; the limit has 3 and 32");
    WITH(l->queue_depth, 64, "has 3 threads and queue_depth 64; its batch sizes have 3 and 32 at most");
    WITH(p.layout.cluster_neurons, 128, "layout.hash");
    WITH(p.d_model, 65, "layout");
    WITH(l->gap, 1.5, "gap");
    WITH(l->mode, PLAN_EXACT, "recall is 0.9 in exact mode");
    WITH(l->always[1], 63, "exempt[1] is 63");
    WITH(l->recall, 0.0, "recall is 0");
    WITH(l->recall, 0.95, "recall is 0.95; the least of its recalls is 0.9");
    WITH(l->recalls[1], 0.0, "recalls[1] is 0");
    WITH(l->recalls[1], 1.5, "recalls[1]");
    WITH(l->quality.top1, 1.5, "quality.top1");
    WITH(l->coalesce[0].bytes, 65537, "io.joins[0].bytes is 65537");
    WITH(l->coalesce[0].bytes, 4096, "io.joins[0].bytes is 4096");
    WITH(l->coalesce[1].bytes, 65536, "io.joins[1] is not above");
    WITH(l->coalesce[1].weight, 4.5, "io.joins[1] is not above");
    WITH(l->coalesce[0].weight, 1, "io.joins[0].weight is 1");
    WITH(l->coalesce[1].weight, 129, "joins[1].weight");
    WITH(l->n_coalesce, 9, "joins");
    WITH(l->recall, 1.5, "recall");
    WITH(l->n_alternative_times, 1, "alternatives has 1 elements among the predictions; the decisions have 2");
    WITH(l->alternatives[1], l->alternatives[0], "limits[1].alternatives[1] says the same");
    WITH(l->alternatives[0].ahead, 0, "alternatives[0].experts_ahead is false");
    WITH(p.limits[0].alternatives[0].coalesced, 1, "limits[0].alternatives[0].joins is true");
    WITH(l->alternatives[0].threads, 0, "alternatives[0].threads");
    WITH(l->alternatives[1].term_ns[0], -1.0, "alternatives[1].attention_ns");
    struct plan_most most = plan_most(l);
    CHECK(most.threads == 4 && most.lanes == 16 && most.depth == 64);
    WITH(l->batches[0].predicted.step_ns, -1.0, "step_ns");
    WITH(l->batches[0].predicted.step_ns, 0.0 / 0.0, "step_ns is not a number from 0");
    WITH(p.device[0], (char)0xff, "not JSON");
    WITH(p.request.mode, PLAN_EXACT, "limits[1].mode is not what 'request' asks for");
    WITH(p.request.policy, CACHE_LRU, "limits[0].cold_policy is not what");
    WITH(p.request.context, 128, "limits[0].context is not what");
    WITH(p.request.predictor, PREDICT_FFN, "limits[1].predictors is not what");
    WITH(p.request.cores[0].n, 1, "limits[0].classes is not what");
    WITH(p.request.cores[0].n, PLAN_MAX_CORES + 1, "request.cores[0].n");
    WITH(p.request.form, LAYOUT_BUNDLE, "'request' asks for 'bundle'");
    WITH(p.request.max_kl, 101.0, "request.max_kl");
    WITH(p.request.prompt_weight, 2e6, "request.prompt_weight");
    WITH(p.request.prefill_chunk, 32, "limits[0].prefill_chunk is not what");
    WITH(p.request.n_weights, 1, "limits[0].batches (by batch_weights) is not what");
    WITH(p.request.weight[1], 65, "request.batch_weights[1] is 65; 1..64");
    WITH(p.request.weight[0], 0, "request.batch_weights[0]");
    WITH(p.request.recall, 1.5, "request.recall");
    p.limits[1].batches[0].hot[0] = 192; /* not the whole of 200, but whole clusters */
    struct err e = { 0 };
    CHECK(plan_check(&p, "x", &e) == 0);
    plan_done(&p);
}

static int same_layout(const struct plan *a, const struct plan *b)
{
    return !memcmp(&a->layout, &b->layout, sizeof a->layout) && hash_equal(a->layout_hash, b->layout_hash);
}

/* The text with its first `from` replaced, parsed: "" when it is accepted, else the message. */
static const char *said_of(const char *text, const char *from, const char *to, struct err *e)
{
    struct plan q;
    const char *at = strstr(text, from);
    size_t n = strlen(text), skip = (size_t)(at - text) + strlen(from);
    char *t = malloc(n + strlen(to) + 1);
    int len = sprintf(t, "%.*s%s%s", (int)(at - text), text, to, text + skip);
    int r = plan_parse(t, (size_t)len, "x", &q, e);
    free(t);
    if (r == 0)
        plan_done(&q);
    return r == 0 ? "" : e->msg;
}

/* Types that differ from layer to layer: three layers, of which the middle one has others. */
static void mixed_types(void)
{
    const uint32_t odd[LAYOUT_ROLES] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_F16 };
    struct plan p, q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    plan_sample(&p);
    CHECK(layout_alternate(&p.layout, odd, p.n_layers, &e) == 0);
    p.layout_hash = layout_hash(&p.layout);
    for (int i = 0; i < p.n_limits; i++)
        p.limits[i].alternatives[1].coalesced = p.limits[i].n_coalesce = 0; /* sized for units of the other types */
    CHECK_MSG(plan_text(&p, &text, &len, &e) == 0, "%s", e.msg);
    CHECK(strstr(text, "\n          { \"down\": \"F16\", \"layers\": [1], \"up\": \"Q8_0\" }\n        ],\n        \"gate\": \"Q4_0\",\n"));
    CHECK_MSG(plan_parse(text, len, "x", &q, &e) == 0 && same_layout(&p, &q), "%s", e.msg);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    CHECK(!strcmp(said_of(text, "\"solver\"", "\"solver\"", &e), ""));
    CHECK(strstr(said_of(text, "\"layers\": [1]", "\"layers\": [3]", &e), "exceptions[0].layers[0] is 3; 0..2 is allowed"));
    CHECK(strstr(said_of(text, "\"layers\": [1]", "\"layers\": []", &e), "layers is not an array of 1 to 3"));
    CHECK(strstr(said_of(text, "\"layers\": [1]", "\"layers\": [1, 1]", &e), "layers[1] is 1; 2..2 is allowed"));
    CHECK(strstr(said_of(text, "\"layers\": [1]", "\"layers\": [2]", &e), "layout.hash does not belong"));
    CHECK(strstr(said_of(text, "\"up\": \"Q8_0\" }", "\"up\": \"Q8_0\" }, { \"up\": \"F16\", \"layers\": [1] }", &e), "another exception"));
    CHECK(strstr(said_of(text, "{ \"down\": \"F16\", \"layers\": [1], \"up\": \"Q8_0\" }", "{ \"layers\": [1] }", &e), "names no type"));
    CHECK(strstr(said_of(text, "\"up\": \"Q8_0\" }", "\"up\": \"Q9\" }", &e), "exceptions[0].up is 'Q9'"));
    CHECK(strstr(said_of(text, "\"up\": \"Q8_0\" }", "\"side\": \"Q8_0\" }", &e), "exceptions[0] has an unknown key"));
    CHECK(strstr(said_of(text, "\"up\": \"Q8_0\" }", "\"up\": \"Q6_K\" }", &e),
                 "Q6_K, whose quant blocks of 256 do not divide rows of 64"));
    free(text);
    free(again);
    plan_done(&p);
    plan_done(&q);
}

/* FFNs of several widths: three layers, of which the middle one is narrower. */
static void widths(void)
{
    struct plan p, q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    plan_sample(&p);
    p.widths[0] = p.widths[2] = 200, p.widths[1] = 128;
    CHECK(layout_set_widths(&p.layout, p.widths, p.n_layers, &e) == 0 && p.layout.n_kinds == 2 &&
          hash_equal(p.layout_hash, layout_hash(&p.layout)));
    CHECK(plan_text(&p, &text, &len, &e) == ERR_FORMAT && strstr(e.msg, "hot[1][0][1] is 200; whole clusters of 64, or all 128"));
    for (int i = 0; i < p.n_limits * 2; i++) {
        struct plan_batch *b = &p.limits[i / 2].batches[i % 2];
        for (int k = 4; k < 8; k++)
            b->hot[k] = b->hot[k] > 128 ? 128 : b->hot[k];
    }
    CHECK_MSG(plan_text(&p, &text, &len, &e) == 0, "%s", e.msg);
    CHECK(strstr(text, "\"widths\": [200, 128, 200]\n") && !strstr(text, "exceptions"));
    CHECK_MSG(plan_parse(text, len, "x", &q, &e) == 0 && same_layout(&p, &q) && plan_n_ff(&q, 1) == 128, "%s", e.msg);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    CHECK(strstr(said_of(text, "[200, 128, 200]", "[200, 64, 200]", &e), "or all 64 neurons"));
    CHECK(strstr(said_of(text, "[200, 128, 200]", "[128, 128, 128]", &e), "n_ff, 200, is the greatest"));
    CHECK(strstr(said_of(text, "[200, 128, 200]", "[200, 200, 200]", &e), "they differ"));
    CHECK(strstr(said_of(text, "[200, 128, 200]", "[200, 128, 300]", &e), "n_ff, 200, is the greatest"));
    CHECK(strstr(said_of(text, "[200, 128, 200]", "[200, 128]", &e), "widths has 2 elements; 3 are needed"));
    CHECK(strstr(said_of(text, "[200, 128, 200]", "[200, 0, 200]", &e), "widths[1] is 0; 1.."));
    free(text);
    free(again);
    plan_done(&p);
    plan_done(&q);
}

/* Tiles: with dense mode alone. */
static void tiles(void)
{
    struct plan p;
    struct err e = { 0 };
    plan_sample(&p);
    p.layout.form = LAYOUT_TILES;
    p.layout.type[0][LAYOUT_DOWN] = QUANT_F16;
    p.layout_hash = layout_hash(&p.layout);
    CHECK(plan_check(&p, "x", &e) < 0 && strstr(e.msg, "limits[0].mode is 'exact'; with layout.form 'tiles' it must be 'dense'"));
    plan_done(&p);
}

/* A batch size that gives neurons to an accelerator: written, read, and the rules that it obeys. */
static void check_engine(struct plan *p)
{
    struct plan_batch *b = &p->limits[0].batches[0];
    struct plan q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    b->engine_neurons = 64;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "names no engine"));
    snprintf(p->engine, sizeof p->engine, "opencl:0");
    snprintf(p->request.engine, sizeof p->request.engine, "opencl:0");
    b->predicted.layers[1].ffn_engine_ns = 125;
    CHECK_MSG(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "x", &q, &e) == 0, "%s", e.msg);
    CHECK(!strcmp(q.engine, "opencl:0") && !strcmp(q.request.engine, "opencl:0") && q.limits[0].batches[0].engine_neurons == 64);
    CHECK(q.limits[0].batches[0].predicted.layers[1].ffn_engine_ns == 125 && q.limits[0].batches[1].engine_neurons == 0);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    plan_done(&q);
    free(again);
    CHECK(strstr(said_of(text, "\"engine_neurons\": 64", "\"engine_neurons\": 65", &e), "whole clusters of 64"));
    CHECK(strstr(said_of(text, "\"engine_neurons\": 64", "\"engine_neurons\": 99999999", &e), "engine_neurons"));
    CHECK(strstr(said_of(text, "\"ffn_engine_ns\"", "\"ffn_engine_us\"", &e), "has no 'ffn_engine_ns'"));
    CHECK(strstr(said_of(text, "\"engine\": \"opencl:0\"", "\"engine\": \"open cl\"", &e), "printable"));
    free(text);
    b->engine_neurons = 0;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "no batch size gives work to it"));
    p->engine[0] = p->request.engine[0] = 0;
    b->predicted.layers[1].ffn_engine_ns = 0;
}

/* Times of prompts: absent, or points that ascend; between them times are linear. */
static void check_prompt(struct plan *p)
{
    const struct plan_prompt of = { .n = 2, .tokens = { 1, 4 }, .attention_ns = { 10, 40 }, .ffn_ns = { 20, 50 }, .wait_ns = { 5, 0 },
                                    .read_bytes = { 4096, 8192 }, .head_ns = 7 };
    struct plan q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    p->limits[1].prompt = of;
    CHECK_MSG(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "x", &q, &e) == 0, "%s", e.msg);
    CHECK(q.limits[0].prompt.n == 0 && !memcmp(&q.limits[1].prompt, &of, offsetof(struct plan_prompt, with_engine)));
    CHECK(!q.limits[1].prompt.with_engine);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    plan_done(&q);
    free(again);
    CHECK(plan_prompt_ns(&of, 1) == 42 && plan_prompt_ns(&of, 4) == 97 && plan_prompt_ns(&of, 0) == 0);
    CHECK(fabs(plan_prompt_ns(&of, 2) - (35 + 55 / 3.0 + 7)) < 1e-9 && plan_prompt_ns(&of, 8) == 187);
    CHECK(fabs(plan_prompt_tokens_per_s(&of) - 4e9 / 90) < 1e-3);
    CHECK(strstr(said_of(text, "\"tokens\": [1, 4]", "\"tokens\": [4, 4]", &e), "limits[1].prompt.tokens[1] is 4; 5.."));
    CHECK(strstr(said_of(text, "\"tokens\": [1, 4]", "\"tokens\": [0, 4]", &e), "prompt.tokens[0]"));
    CHECK(strstr(said_of(text, "\"wait_ns\": [5, 0]", "\"wait_ns\": [5, -1]", &e), "prompt.wait_ns[1]"));
    CHECK(strstr(said_of(text, "\"wait_ns\": [5, 0]", "\"wait_ns\": [0]", &e), "2 are needed"));
    CHECK(strstr(said_of(text, "\"prompt\"", "\"prompts\"", &e), "unknown key"));
    free(text);
    p->limits[1].prompt = (struct plan_prompt){ 0 };
}

static int same_heights(const struct plan_limit *l, int most, int n, const struct plan_height *want)
{
    struct plan_height got[2 * PLAN_MAX_BATCHES];
    int same = plan_heights(l, got, most) == n;
    for (int i = 0; i < n && same; i++)
        same = got[i].tokens == want[i].tokens && got[i].share.neurons == want[i].share.neurons && got[i].share.work == want[i].share.work;
    return same;
}

/* Heights of passes: of batch sizes, then of prompts' lengths; as a table, also one that is too small for all. */
static void check_pass_heights(void)
{
    struct plan_batch b[] = { { .batch = 1, .engine_neurons = 0 }, { .batch = 4, .engine_neurons = 64 } };
    struct plan_limit l = { .n_batches = 2, .batches = b };
    l.prompt = (struct plan_prompt){ .n = 5, .tokens = { 1, 4, 8, 16, 32 }, .engine_neurons = { 0, 64, 128, 64, 256 } };
    const struct plan_height decoding[] = { { 1, { 0 } }, { 0, { 64, PLAN_WORK_FFN, 0 } } };
    CHECK(same_heights(&l, 16, 2, decoding) && plan_pass_share(&l, 1).neurons == 0 && plan_pass_share(&l, 3).neurons == 64);
    CHECK(plan_pass_share(&l, 5).neurons == 64 && plan_pass_share(&l, 1000).neurons == 64); /* as the largest batch */
    CHECK(plan_any_engine(&l) == 64);
    l.prompt.with_engine = 1;
    const struct plan_height all[] = { { 1, { 0 } }, { 7, { 64, 0, 0 } }, { 15, { 128, 0, 0 } },
                                       { 31, { 64, 0, 0 } }, { 0, { 256, 0, 0 } } };
    CHECK(same_heights(&l, 16, 5, all) && same_heights(&l, 5, 5, all) && plan_any_engine(&l) == 256);
    for (int n = 1, i = 0; n < 100; n++) {
        i += i < 4 && n > all[i].tokens;
        CHECK(plan_pass_share(&l, n).neurons == all[i].share.neurons);
    }
    const struct plan_height few[] = { { 1, { 0 } }, { 7, { 64, 0, 0 } }, { 0, { 64, 0, 0 } } }, one[] = { { 0, { 0 } } };
    CHECK(same_heights(&l, 3, 3, few) && same_heights(&l, 1, 1, one));
    l.prompt.tokens[1] = 3; /* passes of 5 to 7 tokens have what is stated of 3, were it not what 4 have */
    l.prompt.engine_neurons[1] = 192;
    const struct plan_height gap[] = { { 1, { 0 } }, { 4, { 64, 0, 0 } }, { 7, { 192, 0, 0 } }, { 15, { 128, 0, 0 } }, { 31, { 64, 0, 0 } },
                                       { 0, { 256, 0, 0 } } };
    const struct plan_height given[] = { { 1, { 0 } }, { 4, { 64, 0, 0 } }, { 7, { 192, PLAN_WORK_HEAD, 0 } }, { 15, { 128, 0, 0 } },
                                         { 31, { 64, 0, 0 } }, { 0, { 256, PLAN_WORK_ATTENTION, 0 } } };
    const struct plan_height least[] = { { 1, { 0 } }, { 4, { 64, 0, 0 } }, { 0, { 64, 0, 0 } } };
    CHECK(same_heights(&l, 16, 6, gap) && plan_pass_share(&l, 4).neurons == 64 && plan_pass_share(&l, 6).neurons == 192);
    l.prompt.engine_work[1] = PLAN_WORK_HEAD;
    l.prompt.engine_work[4] = PLAN_WORK_ATTENTION;
    CHECK(same_heights(&l, 16, 6, given) && same_heights(&l, 3, 3, least) && plan_any_work(&l) == PLAN_WORK_ALL);
}

/* A source that takes time. */
static void check_source_of(struct plan *p, struct plan_guesses *g)
{
    const struct plan_guesses free_of = *g;
    struct plan q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    g->source = PLAN_SOURCE_DRAFT;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "limits[1].guesses.source.guess_ns is 0; guesses of a draft"));
    g->guess_ns = 1e7;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "limits[1].guesses."));
    plan_choose_guesses(g);
    CHECK(g->speedup[1] < free_of.speedup[1] && g->best[1] < free_of.best[1] && g->best[1] > 0);
    CHECK_MSG(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "x", &q, &e) == 0, "%s", e.msg);
    CHECK(q.limits[1].guesses.source == PLAN_SOURCE_DRAFT && q.limits[1].guesses.guess_ns > 9.99e6);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    plan_done(&q);
    free(again);
    CHECK(strstr(said_of(text, "\"kind\": \"draft\"", "\"kind\": \"lookup\"", &e), "guesses.source.kind"));
    CHECK(strstr(said_of(text, "\"guess_ns\": 1e+07", "\"guess_ns\": 0", &e), "guesses of a draft and of a layer take time"));
    CHECK(strstr(said_of(text, "\"guess_ns\": 1e+07", "\"guess_ns\": -1", &e), "guesses.source.guess_ns"));
    CHECK(strstr(said_of(text, "\"guess_ns\": 1e+07", "\"guess_ns\": 2e+07", &e), "limits[1].guesses."));
    free(text);
    *g = free_of;
    CHECK(plan_check(p, "x", &e) == 0);
}

/* Times of guesses in a plan: and their rules. */
static void check_guesses_of(struct plan *p)
{
    struct plan_guesses *g = &p->limits[1].guesses;
    double step = p->limits[1].batches[0].predicted.step_ns;
    struct plan q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    *g = (struct plan_guesses){ .n = 4, .tokens = { 1, 2, 4, 8 }, .pass_ns = { step, 9e7, 1e8, 1.25e8 },
                                .read_bytes = { 4096, 5e3, 6e3, 7e3 } };
    plan_choose_guesses(g);
    CHECK(g->best[0] > 0 && g->best[1] == 7 && g->speedup[1] > g->speedup[0]);
    CHECK_MSG(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "x", &q, &e) == 0, "%s", e.msg);
    CHECK(strstr(text, "\"pass_ns\": [8.1e+07, 9e+07, 1e+08, 1.25e+08]"));
    CHECK(q.limits[1].guesses.n == 4 && !q.limits[0].guesses.n && q.limits[1].guesses.best[1] == 7);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    plan_done(&q);
    free(again);
    const char *pass = "\"pass_ns\": [8.1e+07, 9e+07, 1e+08, 1.25e+08]", *best = "\"best\": [", *tokens = "\"tokens\": [1, 2, 4, 8]";
    const char *acceptance = "\"acceptance\": [0.6, 0.8]", *speedup = "\"speedup\": [";
    CHECK(strstr(said_of(text, pass, "\"pass_ns\": [8.2e+07, 9e+07, 1e+08, 1.25e+08]", &e),
                 "pass_ns[0] is 82000000; a step of batch 1 takes 81000000"));
    CHECK(strstr(said_of(text, pass, "\"pass_ns\": [8.1e+07, 8e+07, 1e+08, 1.25e+08]", &e),
                 "pass_ns[1] is 80000000, less than of 1 tokens"));
    CHECK(strstr(said_of(text, pass, "\"pass_ns\": [8.1e+07, 9e+07, 1e+08]", &e), "guesses.pass_ns has 3 elements; 4 are needed"));
    CHECK(strstr(said_of(text, pass, "\"pass_ns\": [8.1e+07, 9e+07, 1e+08, -1]", &e), "guesses.pass_ns[3]"));
    CHECK(strstr(said_of(text, pass, "\"pass_ns\": [8.1e+07, 9e+07, 1e+08, 9e+99]", &e), "guesses.pass_ns[3]"));
    CHECK(strstr(said_of(text, pass, "\"pass_ns\": [8.1e+07, 9e+07, 1e+08, 1.26e+08]", &e), "limits[1].guesses."));
    CHECK(strstr(said_of(text, best, "\"best\": [1, ", &e), "guesses.best has 3 elements; 2 are needed"));
    CHECK(strstr(said_of(text, best, "\"best\": [8], \"b\": [", &e), "unknown key 'b'"));
    CHECK(strstr(said_of(text, tokens, "\"tokens\": [2, 3, 4, 8]", &e), "guesses.tokens[0] is 2; 1 is needed"));
    CHECK(strstr(said_of(text, tokens, "\"tokens\": [1, 2, 2, 8]", &e), "guesses.tokens[2] is 2; 3..16"));
    CHECK(strstr(said_of(text, tokens, "\"tokens\": [1, 2, 4, 17]", &e), "guesses.tokens[3] is 17; 5..16"));
    CHECK(strstr(said_of(text, tokens, "\"tokens\": [1]", &e), "guesses.tokens is not an array of 2 to 5 numbers"));
    CHECK(strstr(said_of(text, tokens, "\"tokens\": [1, 2, 4, 9]", &e), "limits[1].guesses."));
    CHECK(strstr(said_of(text, acceptance, "\"acceptance\": [0.6, 1]", &e), "acceptance[1] is 1; shares are above 0 and below 1"));
    CHECK(strstr(said_of(text, acceptance, "\"acceptance\": [0.6, 0.6]", &e), "acceptance[1] is 0.6; shares"));
    CHECK(strstr(said_of(text, acceptance, "\"acceptance\": [0, 0.8]", &e), "acceptance[0] is 0; shares"));
    CHECK(strstr(said_of(text, acceptance, "\"acceptance\": [0.61, 0.8]", &e), "limits[1].guesses."));
    CHECK(strstr(said_of(text, speedup, "\"speedup\": [1, ", &e), "guesses.speedup has 3 elements"));
    CHECK(strstr(said_of(text, "\"guesses\": {", "\"guesses\": 7, \"x\": {", &e), "limits[1]"));
    free(text);
    g->best[0]--;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "limits[1].guesses.best[0] is ") && strstr(e.msg, "times as fast, not"));
    g->best[0] = 8;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "limits[1].guesses.best[0] is 8; 7 guesses of a pass are the most"));
    g->best[0] = 0;
    plan_choose_guesses(g);
    check_source_of(p, g);
    g->speedup[1] *= 1.001;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "limits[1].guesses.speedup[1] is ") && strstr(e.msg, "; its passes give "));
    *g = (struct plan_guesses){ 0 };
}

/* Whether experts are read ahead, in dense mode with experts alone; unstated where nothing is said. */
static void check_ahead(void)
{
    struct plan sample, *p = &sample, q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    plan_sample(p);
    for (int i = 0; i < p->n_limits; i++) {
        p->limits[i].mode = PLAN_DENSE;
        p->limits[i].ahead = i ? PLAN_AHEAD_ON : PLAN_AHEAD_OFF;
        p->limits[i].recall = 0;
        p->limits[i].by_layer = 0;
        p->limits[i].n_alternatives = p->limits[i].n_alternative_times = 0;
        for (int k = 0; k < p->n_layers; k++)
            p->limits[i].predictor[k] = -1, p->limits[i].always[k] = 0;
    }
    CHECK_MSG(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "x", &q, &e) == 0, "%s", e.msg);
    CHECK(strstr(text, "\"experts_ahead\": true") && strstr(text, "\"experts_ahead\": false"));
    CHECK(q.limits[0].ahead == PLAN_AHEAD_OFF && q.limits[1].ahead == PLAN_AHEAD_ON);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    plan_done(&q);
    free(again);
    CHECK(strstr(said_of(text, "\"experts_ahead\": true", "\"experts_ahead\": 1", &e), "limits[1].io.experts_ahead"));
    free(text);
    p->limits[0].mode = PLAN_EXACT;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT);
    p->limits[0].mode = PLAN_DENSE;
    p->limits[0].ahead = p->limits[1].ahead = PLAN_AHEAD_UNSTATED;
    CHECK(plan_text(p, &text, &len, &e) == 0 && !strstr(text, "experts_ahead") && plan_parse(text, len, "x", &q, &e) == 0 &&
          q.limits[1].ahead == PLAN_AHEAD_UNSTATED);
    plan_done(&q);
    free(text);
    plan_done(p);
}

/* The share of prompts in a plan: and its rules. */
static void check_prompt_engine(struct plan *p)
{
    struct plan_limit *l = &p->limits[1];
    struct plan q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    l->prompt = (struct plan_prompt){ .n = 4, .tokens = { 1, 32, 64, 512 }, .with_engine = 1, .engine_neurons = { 0, 64, 128, 128 } };
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "limits[1].prompt has engine_neurons; the plan names no engine"));
    snprintf(p->engine, sizeof p->engine, "opencl:0");
    CHECK_MSG(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "x", &q, &e) == 0, "%s", e.msg);
    CHECK(strstr(text, "\"engine_neurons\": [0, 64, 128, 128]"));
    CHECK(q.limits[1].prompt.with_engine && !q.limits[0].prompt.with_engine && plan_any_engine(&q.limits[1]) == 128);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    plan_done(&q);
    free(again);
    const char *was = "\"engine_neurons\": [0, 64, 128, 128]";
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": [0, 65, 128, 128]", &e), "limits[1].prompt.engine_neurons[1] is 65; whole"));
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": [0, 64, 128, 64]", &e), "engine_neurons[3] is 64; passes of 64 tokens have 128"));
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": [64, 64, 128, 128]", &e), "engine_neurons[0] is 64; passes of 1 tokens have 0"));
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": [0, 64, 128]", &e), "prompt.engine_neurons has 3 elements; 4 are needed"));
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": [0, 64, 128, 99999999999]", &e), "prompt.engine_neurons[3]"));
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": [0, 64, 128, 99999936]", &e), "limits[1].prompt.engine_neurons[3] is 99999936"));
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": [0, 64, null, 128]", &e), "prompt.engine_neurons[2]"));
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": 64", &e), "prompt.engine_neurons is not an array"));
    CHECK(strstr(said_of(text, was, "\"engine_neurons\": [0, 0, 0, 0]", &e), "nor a prompt"));
    free(text);
    l->prompt = (struct plan_prompt){ 0 };
    p->engine[0] = 0;
}

/* Neurons that are not in memory: and its rules. */
static void check_rest(struct plan *p)
{
    struct plan_limit *l = &p->limits[1];
    struct plan q;
    struct plan_height h[8];
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    int blocks = p->n_blocks;
    snprintf(p->engine, sizeof p->engine, "opencl:0");
    l->prompt = (struct plan_prompt){ .n = 4, .tokens = { 1, 32, 64, 512 }, .with_engine = 1, .engine_neurons = { 0, 64, 64, 64 },
                                      .rest_from = 64, .area_bytes = 64 << 20 };
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "limits[1].prompt.engine_rest: the model has 2 experts"));
    p->n_blocks = 1; /* the first experts of each layer */
    CHECK(plan_uses_engine(l) && plan_pass_share(l, 64).rest && plan_pass_share(l, 5000).rest &&
          !plan_pass_share(l, 63).rest && !plan_pass_share(l, 1).rest);
    int n = plan_heights(l, h, 8);
    CHECK(n >= 2 && h[n - 1].share.rest && !h[n - 2].share.rest && h[n - 2].tokens == 63);
    CHECK(plan_heights(l, h, 1) == 1 && !h[0].share.rest);
    CHECK_MSG(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "x", &q, &e) == 0, "%s", e.msg);
    CHECK(q.limits[1].prompt.rest_from == 64 && q.limits[1].prompt.area_bytes == 64 << 20);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    plan_done(&q);
    free(again);
    const char *from = "\"from_tokens\": 64", *area = "\"area_bytes\": 67108864";
    CHECK(strstr(said_of(text, from, "\"from_tokens\": 48", &e), "engine_rest.from_tokens is 48; one of prompt.tokens"));
    CHECK(strstr(said_of(text, from, "\"from_tokens\": 1", &e), "engine_rest.from_tokens is 1; one of"));
    CHECK(strstr(said_of(text, from, "\"from_tokens\": 512", &e), "engine_rest.from_tokens is 512; one of"));
    CHECK(strstr(said_of(text, from, "\"from_tokens\": 0", &e), "from_tokens"));
    CHECK(strstr(said_of(text, area, "\"area_bytes\": 67108865", &e), "engine_rest.area_bytes is 67108865; a multiple of 16384"));
    CHECK(strstr(said_of(text, area, "\"area_bytes\": 16384", &e), "engine_rest.area_bytes is 16384; a multiple"));
    free(text);
    p->n_blocks = blocks;
    l->prompt = (struct plan_prompt){ 0 };
    p->engine[0] = 0;
}

/* What an engine computes beside neurons, also where it has none of these. */
static void check_work(struct plan *p)
{
    struct plan_limit *l = &p->limits[1];
    struct plan q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    l->batches[0].engine_work = PLAN_WORK_ALL;
    CHECK(plan_check(p, "x", &e) == ERR_FORMAT && strstr(e.msg, "limits[1].batches[0].engine_work is 'all'; the plan names no engine"));
    snprintf(p->engine, sizeof p->engine, "opencl:0");
    CHECK(plan_uses_engine(l) && !plan_uses_engine(&p->limits[0]) && !plan_any_engine(l));
    l->prompt = (struct plan_prompt){ .n = 3, .tokens = { 1, 32, 64 }, .with_engine = 1,
                                      .engine_work = { PLAN_WORK_ALL, PLAN_WORK_FFN, PLAN_WORK_ATTENTION } };
    for (int i = 1; i < l->n_batches; i++)
        CHECK(l->batches[i].batch < 32);
    CHECK_MSG(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "x", &q, &e) == 0, "%s", e.msg);
    CHECK(strstr(text, "\"engine_work\": \"all\"") &&
          strstr(text, "\"engine_work\": [\"all\", \"ffn\", \"attention\"]"));
    CHECK(q.limits[1].batches[0].engine_work == PLAN_WORK_ALL && plan_any_work(&q.limits[1]) == PLAN_WORK_ALL &&
          plan_pass_share(&q.limits[1], 64).work == PLAN_WORK_ATTENTION && plan_pass_share(&q.limits[1], 32).work == PLAN_WORK_FFN);
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    plan_done(&q);
    free(again);
    const char *was = "\"engine_work\": [\"all\", \"ffn\", \"attention\"]";
    CHECK(strstr(said_of(text, was, "\"engine_work\": [\"ffn\", \"ffn\", \"attention\"]", &e),
                 "engine_work[0] is 'ffn'; passes of 1 tokens have 'all'"));
    CHECK(strstr(said_of(text, was, "\"engine_work\": [\"all\", \"ffn\"]", &e), "engine_work has 2 elements; 3 are needed"));
    CHECK(strstr(said_of(text, was, "\"engine_work\": [\"all\", \"ffn\", 2]", &e), "prompt.engine_work[2] is not a string"));
    CHECK(strstr(said_of(text, was, "\"engine_work\": \"all\"", &e), "prompt.engine_work is not an array"));
    CHECK(strstr(said_of(text, "\"engine_work\": \"all\"", "\"engine_work\": \"ffn\"", &e), "is 'ffn'; known: head, attention, all"));
    free(text);
    l->batches[0].engine_work = PLAN_WORK_FFN;
    l->prompt = (struct plan_prompt){ 0 };
    p->engine[0] = 0;
}

/* What a limit would have alone, and whether its gap holds for all layouts. */
static void check_own(struct plan *p)
{
    struct plan_limit *l = &p->limits[1];
    struct plan q;
    struct err e = { 0 };
    char *text = NULL;
    size_t len = 0;
    l->own = (struct plan_own){ LAYOUT_TWO_PHASE, 1, 157.5, 0.25 };
    l->gap_of_layouts = 1;
    CHECK(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "text", &q, &e) == 0 && same(p, &q));
    CHECK(q.limits[1].own.form == LAYOUT_TWO_PHASE && q.limits[1].own.packed && q.limits[1].gap_of_layouts);
    plan_done(&q);
    memcpy(strstr(text, "\"cost\": 0.25"), "\"cost\": 2.25", 12);
    CHECK(plan_parse(text, len, "text", &q, &e) == ERR_FORMAT && strstr(e.msg, "limits[1].own_layout.cost"));
    free(text);
    l->own = (struct plan_own){ LAYOUT_SPLIT, 0, 0, 0 };
    l->gap_of_layouts = 0;
}

/* Limits of a group share what texts depend on, and say what room their accounts have. */
static void check_elastic(struct plan *p)
{
    struct plan_limit *l = p->limits;
    struct plan q;
    struct err e = { 0 };
    char *text = NULL;
    size_t len = 0;
    l[1].elastic = (struct plan_elastic){ 1, 3, 1, 32, 524288, 0.25, 0.125 };
    p->request.elastic = 1;
    CHECK(plan_text(p, &text, &len, &e) == 0 && plan_parse(text, len, "text", &q, &e) == 0 && same(p, &q));
    CHECK(q.request.elastic && q.limits[1].elastic.group == 1 && q.limits[1].elastic.read_bytes == 524288 && !q.limits[0].elastic.group &&
          q.limits[1].elastic.token_cost > 0.24 && q.limits[1].elastic.prompt_cost > 0.12 && q.limits[1].elastic.prompt_cost < 0.13);
    plan_done(&q);
    CHECK(strstr(said_of(text, "\"read_bytes\": 524288", "\"read_bytes\": 524287", &e), "the most of its group are 3, 1, 32 and 524288"));
    free(text);
    l[0].elastic = l[1].elastic;
    CHECK(plan_check(p, "p", &e) == ERR_FORMAT && strstr(e.msg, "limits[1] and limits[0] are in elastic.group 1; mode is not the same"));
    l[0].elastic.group = 2;
    CHECK(plan_check(p, "p", &e) == ERR_FORMAT && strstr(e.msg, "limits[0].elastic has"));
    l[0].elastic = l[1].elastic = (struct plan_elastic){ 0 };
    p->request.elastic = 0;
}

/* What later revisions may add: keys that may be ignored, by their paths, and features that must be refused. */
static void check_growth(const char *text)
{
    struct err e = { 0 };
    const char *format = "\"format\":", *kv = "\"kv\": \"f16\",";
    char with[256];
    CHECK(!strcmp(said_of(text, format, "\"features\": {}, \"format\":", &e), ""));
    CHECK(strstr(said_of(text, format, "\"steam\": [1], \"format\":", &e), "has an unknown key 'steam'"));
    CHECK(!strcmp(said_of(text, format, "\"features\": { \"ignore\": [\"steam\"] }, \"steam\": [1], \"format\":", &e), ""));
    CHECK(strstr(said_of(text, format, "\"features\": { \"refuse\": [\"steam\"] }, \"format\":", &e), "needs the feature 'steam'") &&
          e.code == ERR_UNSUPPORTED);
    CHECK(strstr(said_of(text, format, "\"features\": { \"Refuse\": [] }, \"format\":", &e), "features is not an object"));
    CHECK(strstr(said_of(text, format, "\"features\": [], \"format\":", &e), "features"));
    snprintf(with, sizeof with, "%s", "\"kv\": \"f16\", \"steam\": 1,");
    CHECK(strstr(said_of(text, kv, with, &e), "decisions.limits[0] has an unknown key 'steam'"));
    char *both = malloc(strlen(text) + 256), *at = strstr(text, kv);
    sprintf(both, "%.*s%s%s", (int)(at - text), text, with, at + strlen(kv));
    CHECK(!strcmp(said_of(both, format, "\"features\": { \"ignore\": [\"decisions.limits[].steam\"] }, \"format\":", &e), ""));
    CHECK(strstr(said_of(both, format, "\"features\": { \"ignore\": [\"limits[].steam\"] }, \"format\":", &e), "unknown key 'steam'"));
    free(both);
}

/* Rows stand in the order of the text, which is sorted; what is left out may be absent. */
static void check_order(const struct plan_object *of)
{
    for (int i = 0; i < of->n; i++) {
        const struct plan_field *f = &of->field[i];
        CHECK_MSG(!i || strcmp(of->field[i - 1].key, f->key) < 0, "%s", f->key);
        CHECK_MSG((f->kind == PLAN_OBJECT || f->kind == PLAN_OBJECTS) == (f->of != NULL), "%s", f->key);
        CHECK_MSG(f->kind != PLAN_NAME || (f->names && f->most < 16), "%s", f->key);
        if (f->of)
            check_order(f->of);
    }
}

int main(void)
{
    mixed_types();
    widths();
    tiles();
    check_ahead();
    struct plan p, q;
    struct err e = { 0 };
    char *text, *again;
    size_t len, len_again;
    plan_sample(&p);
    CHECK_MSG(plan_text(&p, &text, &len, &e) == 0, "%s", e.msg);
    CHECK(len == strlen(text) && text[len - 1] == '\n');
    CHECK_MSG(plan_parse(text, len, "text", &q, &e) == 0, "%s", e.msg);
    CHECK(same(&p, &q));
    CHECK(plan_text(&q, &again, &len_again, &e) == 0 && len == len_again && !memcmp(text, again, len));
    check_own(&p);
    check_elastic(&p);
    CHECK(plan_hot(&p, &p.limits[0].batches[0], 1, 1, 0) == p.limits[0].batches[0].hot[6]);
    CHECK(plan_cold(&p, &p.limits[0].batches[0], 2, 1) == 5);
    CHECK(strstr(text, "\"predictors\": []") && strstr(text, "\"none\""));
    CHECK(strstr(text, "\n              [[0, 64], [200, 0]],\n") != NULL); /* one line per layer */
    free(again);
    plan_done(&q);

    /* A request that left all open says so. */
    struct plan_request asked = p.request;
    p.request = (struct plan_request){ .mode = -1, .form = -1, .packed = -1, .policy = -1, .predictor = -1, .max_kl = -1,
                                       .prompt_weight = PLAN_PROMPT_WEIGHT };
    CHECK(plan_text(&p, &again, &len_again, &e) == 0 && strstr(again, "\"request\": {\n    \"rlimit\": 1000000\n  },\n"));
    CHECK(plan_parse(again, len_again, "text", &q, &e) == 0 && same(&p, &q));
    free(again);
    plan_done(&q);
    p.request = asked;

    CHECK(plan_pick(&p, 0) == &p.limits[1]);
    CHECK(plan_pick(&p, 1000000) == &p.limits[0] && plan_pick(&p, 1999999) == &p.limits[0]);
    CHECK(plan_pick(&p, 3000000) == &p.limits[1] && plan_pick(&p, 999999) == NULL);

    CHECK(plan_note(&p, &e, "flash has no figure for depth 32") == 0 && p.n_notes == 1);
    char *full = malloc(len + 1);
    memcpy(full, text, len);
    full[len] = 0;
    memcpy(strstr(full, "\"revision\": 1"), "\"revision\": 2", 13);
    CHECK(plan_parse(full, len, "x", &q, &e) == ERR_UNSUPPORTED && strstr(e.msg, "has revision 2; this build reads revision 1"));
    free(full);
    CHECK(strstr(said_of(text, "\"thermocline-plan\"", "\"thermo-plan\"", &e), "was made by a version before 0.2.0; make it again with"));
    CHECK(e.code == ERR_UNSUPPORTED);
    CHECK(strstr(said_of(text, "\"thermocline-plan\"", "\"thermo-plans\"", &e), "is not a plan"));
    check_growth(text);
    check_order(&plan_root);
    check_engine(&p);
    check_prompt(&p);
    check_guesses_of(&p);
    check_work(&p);
    check_prompt_engine(&p);
    check_rest(&p);
    check_pass_heights();

    char path[256];
    test_path(path, sizeof path, "test_plan_XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_MSG(plan_write(&p, path, &e) == 0, "%s", e.msg);
    CHECK_MSG(plan_read(path, &q, &e) == 0, "%s", e.msg);
    CHECK(same(&p, &q));
    plan_done(&q);
    unlink(path);
    CHECK(plan_read(path, &q, &e) == ERR_INPUT);
    free(text);
    plan_done(&p);
    test_rules();
    return test_done();
}
