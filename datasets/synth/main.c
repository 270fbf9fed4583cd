/* gguf-synth: the command line. A shape and a setting are starting points; every number of them can be changed. */
#include "datasets/synth/synth.h"

#include "common/base/js.h"
#include "common/base/pool.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "common/kernels/quant.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Below 0 (numbers) or -1 (counts): not given. */
struct given {
    const char *shape, *setting, *type, *ffn_type, *pre, *out, *prompts, *routes;
    int splice, segment, head_dim, cycle;
    double agree, nextn_agree;
    int nextn_only;
    int arch, gating, act, layers, d_model, heads, kv_heads, ff, vocab, context, experts, experts_used;
    double rope_base, rate, skew, layer_spread, short_share, short_period, long_share, long_period, route_memory, route_skew;
    double noise, layer_share;
    uint64_t seed;
    int prompt_rows, prompt_words, threads, dry_run, json;
};

static const struct opt_usage usage = {
    "gguf-synth", "OUT.gguf",
    "Write a model of random weights whose FFN neurons fire at a stated rate, with a stated skew and persistence, "
    "decided by the network's own arithmetic, so that any engine can run the file. docs/synthetic-models.md has the "
    "mathematics. The same options give the same bytes.\n\n"
    "Shapes: mistral-7b (32 layers of 4096, FFN 14336), mixtral-47b (the same with 8 experts, 2 used), smallthinker-4b "
    "(32 layers of 1536, 32 experts of 768, 4 used, chosen by early sigmoid routers as SmallThinker-4B-A0.6B does; all of "
    "its layers rotate and none has a window), qwen3-30b (Qwen3-30B-A3B's sizes: 48 layers of 2048, 128 experts of 768, "
    "8 used), gpt-oss-20b (the sizes alone: 24 layers of 2880, 32 experts of 2880, 4 used; both with --act silu), "
    "llama-1b (TinyLlama's sizes), small (4 layers "
    "of 1024), tiny (3 layers of 256).\n\n"
    "published, dense: 10 % of neurons active (TurboSparse, arXiv 2406.05955: 90 % of Mistral-7B's inactive per "
    "layer); 80 % of firings from 41 % of a layer's neurons (PowerInfer, arXiv 2312.12456: 26, 43 and 69 % per layer "
    "of OPT, ReGLU and SwiGLU); 0.9 % of neurons above probability 1/2 at batch 1, 78 % at batch 32 (PowerInfer-2, "
    "arXiv 2406.06282: under 1 % and about 75 %, Bamboo-7B, layer 10); persistence such that an LRU cache of half of "
    "the neurons hits 95 % (PowerInfer-2: Bamboo-7B with half of the FFN offloaded).\n\n"
    "published, experts: 15 % active within a routed expert (TurboSparse: 85 % inactive); 80 % of firings from 33 % of "
    "an expert's neurons; skew and persistence such that the same cache misses 3.5 to 4.5 % (PowerInfer-2: 3.5 % for "
    "TurboSparse-Mixtral).\n\n"
    "trained, dense: rate and skew of published; persistence as measured on two trained models (datasets/models, SmolLM2-135M made "
    "sparse): correlations of 0.28, 0.1 and 0.05 after 1, 4 and 16 tokens, where published has 0.75, 0.63 and 0.37; predicting as hard "
    "as on the former: a predictor of a tenth of the FFN's bytes predicts about 1.8 times the active neurons at recall 0.99 from the "
    "FFN's input, 2.4 times with lookahead. Experts: published with these predictors. The setting for honest figures; published is the "
    "favourable end.\n\n"
    "hard: the same rates, 80 % of firings from 62 to 64 % of neurons (between PowerInfer's ReGLU and SwiGLU), every "
    "token independent of the one before.",
    "  gguf-synth --shape mistral-7b --prompts words.csv mistral-published.gguf\n"
    "  gguf-synth --shape mixtral-47b --setting hard --dry-run mixtral.gguf\n"
    "  gguf-synth --shape qwen3-30b --act silu --routes qwen.routes.csv --prompts route.csv qwen.gguf\n"
    "  gguf-synth --shape qwen3-30b --arch qwen3moe --type q4_k_m --pre qwen2 --act silu --setting hard --routes qwen.routes.csv q.gguf\n"
    "  gguf-synth --shape mistral-7b --layers 4 --rate 0.05 --long-period 200 quarter.gguf\n", "w"
};

static int parse(int argc, char **argv, struct given *g, struct err *e)
{
    static const char *const acts[] = { "silu", "relu", "drelu", NULL }; /* in the order of enum model_act */
    static const char *const gatings[] = { "softmax", "sigmoid", NULL };
    const struct opt opts[] = {
        { .name = "shape", .type = OPT_STRING, .dest = &g->shape, .arg = "NAME", .def = "mistral-7b",
          .help = "Sizes to start from." },
        { .name = "setting", .type = OPT_STRING, .dest = &g->setting, .arg = "NAME", .def = "published",
          .help = "Activation pattern to start from: published, trained or hard." },
        { .name = "type", .short_name = 't', .type = OPT_STRING, .dest = &g->type, .arg = "TYPE", .def = "q4_0",
          .help = "Type of the matrices: q4_0, q8_0 or f16; q4_k_m, with --act silu --setting hard: Q4_K and Q6_K as llama-quantize mixes "
                  "them. Norms and routers are f32." },
        { .name = "ffn-type", .type = OPT_STRING, .dest = &g->ffn_type, .arg = "TYPE", .def = "--type's",
          .help = "Type of Gate, Up and Down, with --act silu: any that can be written (q4_k, q6_k, mxfp4, ...)." },
        { .name = "act", .type = OPT_CHOICE, .dest = &g->act, .choices = acts, .arg = "NAME", .def = "relu",
          .help = "Activation (ARCH.hidden_act); with drelu, Up closes a fifth of the open gates." },
        { .name = "arch", .type = OPT_CHOICE, .dest = &g->arch, .choices = synth_archs, .arg = "NAME", .def = "the shape's",
          .help = "Architecture; with llama, experts are routed as mixtral's: by softmax, after attention. qwen3moe and qwen35 (dense, "
                  "gated delta nets in three of four layers): with --act silu --setting hard." },
        { .name = "pre", .type = OPT_STRING, .dest = &g->pre, .arg = "NAME", .def = "a SentencePiece vocabulary",
          .help = "A BPE vocabulary of this pre-tokenizer: llama-bpe, qwen2, gpt-4o, gemma4, ..." },
        { .name = "gating", .type = OPT_CHOICE, .dest = &g->gating, .choices = gatings, .arg = "NAME",
          .def = "sigmoid", .help = "How smallthinker's routers weight experts." },
        { .name = "seed", .type = OPT_U64, .dest = &g->seed, .arg = "N", .def = "1", .help = "Seed of everything." },
        { .name = "rate", .type = OPT_DOUBLE, .dest = &g->rate, .min = 0.0005, .max = 0.95, .arg = "P",
          .def = "the setting's",
          .help = "Mean probability that a neuron (of a routed expert) fires." },
        { .name = "skew", .type = OPT_DOUBLE, .dest = &g->skew, .min = 0, .max = 3, .arg = "S",
          .def = "the setting's",
          .help = "Spread of thresholds within a layer: 0.3 mild, 0.65 a ReGLU layer, 1.05 an OPT layer." },
        { .name = "layer-spread", .type = OPT_DOUBLE, .dest = &g->layer_spread, .min = 0, .max = 3, .arg = "S",
          .def = "the setting's",
          .help = "Spread of mean thresholds over layers; 0.82 makes PowerInfer's model-wide skew." },
        { .name = "short-share", .type = OPT_DOUBLE, .dest = &g->short_share, .min = 0, .max = 1, .arg = "X",
          .def = "the setting's", .help = "Part of the gates' variance that changes every short period." },
        { .name = "short-period", .type = OPT_DOUBLE, .dest = &g->short_period, .min = 1.5, .max = 1000,
          .arg = "TOKENS",
          .def = "8", .help = "Mean tokens between changes of the short part." },
        { .name = "long-share", .type = OPT_DOUBLE, .dest = &g->long_share, .min = 0, .max = 1, .arg = "X",
          .def = "the setting's",
          .help = "Part that changes every long period; what both leave is new at every token." },
        { .name = "long-period", .type = OPT_DOUBLE, .dest = &g->long_period, .min = 1.5, .max = 1000,
          .arg = "TOKENS",
          .def = "32", .help = "Mean tokens between changes of the long part." },
        { .name = "route-memory", .alias_of = "route-persistence" },
        { .name = "route-persistence", .type = OPT_DOUBLE, .dest = &g->route_memory, .min = 0, .max = 1, .arg = "X",
          .def = "the setting's", .help = "Part of the routers' variance that persists as the gates' does." },
        { .name = "route-skew", .type = OPT_DOUBLE, .dest = &g->route_skew, .min = 0, .max = 5, .arg = "S", .def = "0",
          .help = "Spread of experts' popularity: deviation of what a logit always has, in deviations of the rest of it." },
        { .name = "noise", .type = OPT_DOUBLE, .dest = &g->noise, .min = 0, .max = 0.5, .arg = "X", .def = "the setting's",
          .help = "Part of the gates' variance outside of the low-rank part that predictors can find." },
        { .name = "layer-share", .type = OPT_DOUBLE, .dest = &g->layer_share, .min = 0, .max = 0.5, .arg = "X", .def = "the setting's",
          .help = "Part that each layer's own attention brings: what predictors that look ahead cannot see." },
        { .name = "layers", .type = OPT_INT, .dest = &g->layers, .min = 1, .max = MODEL_MAX_LAYERS, .arg = "N",
          .def = "the shape's", .help = "Layers." },
        { .name = "d-model", .type = OPT_INT, .dest = &g->d_model, .min = 128, .max = 1 << 16, .arg = "N",
          .def = "the shape's", .help = "Embedding length." },
        { .name = "head-dim", .type = OPT_INT, .dest = &g->head_dim, .min = 0, .max = 1024, .arg = "N",
          .def = "the shape's", .help = "Channels of a head; 0: --d-model / --heads." },
        { .name = "heads", .type = OPT_INT, .dest = &g->heads, .min = 1, .max = 2048, .arg = "N",
          .def = "the shape's",
          .help = "Attention heads." },
        { .name = "kv-heads", .type = OPT_INT, .dest = &g->kv_heads, .min = 1, .max = 2048, .arg = "N",
          .def = "the shape's",
          .help = "Key and value heads." },
        { .name = "ff", .type = OPT_INT, .dest = &g->ff, .min = 32, .max = 1 << 18, .arg = "N", .def = "the shape's",
          .help = "Neurons of an FFN, or of one expert." },
        { .name = "vocab", .type = OPT_INT, .dest = &g->vocab, .min = SYNTH_MIN_VOCAB, .max = 1 << 20, .arg = "N",
          .def = "the shape's", .help = "Tokens." },
        { .name = "context", .type = OPT_INT, .dest = &g->context, .min = 1, .max = MODEL_MAX_CONTEXT, .arg = "N",
          .def = "the shape's", .help = "Context length that the file states." },
        { .name = "experts", .type = OPT_INT, .dest = &g->experts, .min = 0, .max = MODEL_MAX_EXPERTS, .arg = "N",
          .def = "the shape's", .help = "Experts per layer; 0: one dense FFN." },
        { .name = "experts-used", .type = OPT_INT, .dest = &g->experts_used, .min = 0, .max = MODEL_MAX_EXPERTS,
          .arg = "N", .def = "the shape's", .help = "Experts that each token uses." },
        { .name = "routes", .type = OPT_STRING, .dest = &g->routes, .arg = "FILE.csv", .file = OPT_READ,
          .help = "Routers that choose the experts of a recorded route: phase,step,layer,e0,e1,... Its layers and experts per "
                  "token are the model's; greedy generation from BOS goes through its steps." },
        { .name = "route-splice", .type = OPT_INT, .dest = &g->splice, .min = 2, .max = SYNTH_MAX_PLACES, .arg = "N",
          .def = "as recorded", .help = "A route of N steps, pieces of the recorded one in random order." },
        { .name = "route-segment", .type = OPT_INT, .dest = &g->segment, .min = 1, .max = SYNTH_MAX_RECORDED, .arg = "N",
          .def = "16", .help = "With --route-splice: steps of a piece." },
        { .name = "cycle", .type = OPT_INT, .dest = &g->cycle, .min = 4, .max = SYNTH_MAX_PLACES, .arg = "N",
          .def = "a random head", .help = "A head under which greedy generation from BOS goes round a text of N tokens." },
        { .name = "cycle-agree", .type = OPT_DOUBLE, .dest = &g->agree, .min = 0, .max = 1, .arg = "A",
          .def = "1", .help = "With --cycle: the share of tokens after which the head goes on with the text; with the same seed and "
                              "cycle a draft model, of which that share of guesses is right." },
        { .name = "nextn-agree", .type = OPT_DOUBLE, .dest = &g->nextn_agree, .min = 0, .max = 1, .arg = "A",
          .def = "no such layer", .help = "With --cycle and --arch glm4moe or qwen35: a layer for multi-token prediction, of which "
                                          "that share of guesses is right." },
        { .name = "nextn-only", .type = OPT_FLAG, .dest = &g->nextn_only,
          .help = "With --nextn-agree: that layer alone, for 'thermo-pack mtp --layer'; its model is of the same options but for these." },
        { .name = "rope-base", .type = OPT_DOUBLE, .dest = &g->rope_base, .min = 1000, .max = 1e9, .arg = "X",
          .def = "the shape's", .help = "Base of the rotary embedding." },
        { .name = "prompts", .type = OPT_STRING, .dest = &g->prompts, .arg = "FILE.csv", .file = OPT_WRITE,
          .help = "Also write prompts for a trace: random words, one token each (English measures more skewed); with "
                  "--routes one text, the route's." },
        { .name = "prompt-rows", .type = OPT_INT, .dest = &g->prompt_rows, .min = 1, .max = 1000000,
          .arg = "N", .def = "64",
          .help = "Number of prompts; not with --routes." },
        { .name = "prompt-words", .type = OPT_INT, .dest = &g->prompt_words, .min = 1, .max = 100000, .arg = "N",
          .def = "127", .help = "Words of each; not with --routes." },
        { .name = "threads", .type = OPT_INT, .dest = &g->threads, .min = 1, .max = POOL_MAX_THREADS, .arg = "N",
          .def = "one per CPU", .help = "Threads that make weights." },
        { .name = "dry-run", .type = OPT_FLAG, .dest = &g->dry_run,
          .help = "Say what would be written, and what to expect." },
        { .name = "json", .type = OPT_FLAG, .dest = &g->json, .help = "The report as JSON." },
        { 0 }
    };
    int n, r = opt_parse(opts, &usage, argc, argv, &n, e);
    if (r == 0 && n != 1)
        return err_set(e, ERR_USAGE, "one file is needed, OUT.gguf (%d given)", n);
    g->out = argv[1];
    return r;
}

static void choose_int(int *to, int given)
{
    *to = given >= 0 ? given : *to;
}

static void choose(double *to, double given)
{
    *to = given >= 0 ? given : *to;
}

/* What a route says of the model where the command line does not, and what it leaves nothing to say about. */
static int routed(const struct given *g, const struct synth_route *route, struct synth_request *q, struct err *e)
{
    struct synth_shape *s = &q->shape;
    if (!route && (g->splice >= 0 || g->segment >= 0))
        return err_set(e, ERR_USAGE, "--route-splice and --route-segment need --routes");
    if (g->agree >= 0 && g->cycle < 0)
        return err_set(e, ERR_USAGE, "--cycle-agree needs --cycle");
    if (route && g->cycle >= 0)
        return err_set(e, ERR_USAGE, "--cycle: with --routes the head goes round the route's text");
    q->cycle = g->cycle >= 0 ? g->cycle : 0;
    q->agree = g->agree >= 0 ? g->agree : 1;
    q->nextn = g->nextn_agree >= 0;
    q->nextn_agree = g->nextn_agree;
    q->nextn_only = g->nextn_only;
    if (!route)
        return 0;
    if (g->segment >= 0 && g->splice < 0)
        return err_set(e, ERR_USAGE, "--route-segment needs --route-splice");
    if (s->n_experts == 0)
        return err_set(e, ERR_USAGE, "--routes needs experts: --shape %s has none, and --experts is not given", s->name);
    if (g->route_memory >= 0 || g->route_skew >= 0)
        return err_set(e, ERR_USAGE, "--route-persistence and --route-skew: with --routes the route says which experts follow");
    if (g->prompt_rows >= 0 || g->prompt_words >= 0)
        return err_set(e, ERR_USAGE, "--prompt-rows and --prompt-words: with --routes the prompt is the route's text");
    q->route = route;
    q->splice = g->splice >= 0 ? g->splice : 0;
    q->segment = g->segment >= 0 ? g->segment : 16;
    s->n_layers = g->layers >= 0 ? g->layers : route->n_layers;
    s->n_experts_used = g->experts_used >= 0 ? g->experts_used : route->n_used;
    return 0;
}

static int request(const struct given *g, const struct synth_route *route, struct synth_request *q, struct err *e)
{
    int shape = 0, setting = 0, mixture = !strcmp(g->type, "q4_k_m");
    int type = mixture ? (int)SYNTH_Q4_K_M : quant_by_name(g->type);
    while (synth_shapes[shape].name && strcmp(synth_shapes[shape].name, g->shape))
        shape++;
    if (!synth_shapes[shape].name)
        return err_set(e, ERR_USAGE, "--shape %s is not known (see --help)", g->shape);
    while (synth_settings[setting].name && strcmp(synth_settings[setting].name, g->setting))
        setting++;
    if (!synth_settings[setting].name)
        return err_set(e, ERR_USAGE, "--setting %s: published, trained and hard are known", g->setting);
    if (!mixture && (type < 0 || !synth_type_ok((uint32_t)type)))
        return err_set(e, ERR_USAGE, "--type %s: q4_0, q8_0, f16 and q4_k_m are known", g->type);
    int ffn = g->ffn_type ? quant_by_name(g->ffn_type) : type, own = g->ffn_type != NULL;
    if (own && (ffn < 0 || ffn == QUANT_F32 || !quant_traits((uint32_t)ffn)->quant ||
                quant_traits((uint32_t)ffn)->block_elems < SYNTH_BLOCK))
        return err_set(e, ERR_USAGE, "--ffn-type %s: no type with quant blocks that can be written", g->ffn_type);
    *q = (struct synth_request){ .shape = synth_shapes[shape], .act = (enum model_act)g->act, .type = (uint32_t)type,
                                 .ffn_type = (uint32_t)ffn, .pre = g->pre, .seed = g->seed };
    struct synth_shape *s = &q->shape;
    choose_int(&s->arch, g->arch);
    if (s->arch != SYNTH_SMALLTHINKER && g->gating >= 0)
        return err_set(e, ERR_USAGE, "--gating is only known for --arch smallthinker");
    q->router = g->gating == 0 ? MODEL_ROUTER_SOFTMAX_TOPK : MODEL_ROUTER_SIGMOID_TOPK;
    choose_int(&s->n_layers, g->layers);
    choose_int(&s->d_model, g->d_model);
    choose_int(&s->n_heads, g->heads);
    choose_int(&s->n_kv_heads, g->kv_heads);
    choose_int(&s->n_ff, g->ff);
    choose_int(&s->n_vocab, g->vocab);
    choose_int(&s->n_ctx, g->context);
    choose_int(&s->n_experts, g->experts);
    choose_int(&s->n_experts_used, g->experts_used >= 0 ? g->experts_used : g->experts == 0 ? 0 : -1);
    choose(&s->rope_base, g->rope_base);
    choose_int(&s->head_dim, g->head_dim);
    if (s->n_experts == 0 && g->route_skew > 0)
        return err_set(e, ERR_USAGE, "--route-skew needs --experts");
    setting += s->n_experts > 0; /* each is there twice: dense, experts */
    q->setting = synth_settings[setting];
    struct synth_setting *p = &q->setting;
    choose(&p->rate, g->rate);
    choose(&p->skew, g->skew);
    choose(&p->layer_spread, g->layer_spread);
    choose(&p->memory[0].share, g->short_share);
    choose(&p->memory[0].period, g->short_period);
    choose(&p->memory[1].share, g->long_share);
    choose(&p->memory[1].period, g->long_period);
    choose(&p->route_memory, g->route_memory);
    choose(&p->route_skew, g->route_skew);
    choose(&p->noise, g->noise);
    choose(&p->layer_share, g->layer_share);
    return routed(g, route, q, e);
}

static int report_json(const struct synth_design *d, const struct synth_expect *x, uint64_t bytes,
                       const struct synth_result *done, struct err *e)
{
    struct js *o = js_object(), *p = js_object();
    js_set_u64(o, "bytes", bytes);
    if (done) {
        js_set_num(o, "seconds", done->seconds);
        js_set_num(o, "bytes_per_s", (double)bytes / done->seconds);
    }
    js_set_num(p, "rate", x->rate);
    js_set_num(p, "neurons_for_80", x->neurons_for_80);
    js_set_num(p, "layer_neurons_for_80", x->layer_neurons_for_80);
    js_set_num(p, "top10", x->top10);
    js_set_num(p, "top20", x->top20);
    js_set_num(p, "top50", x->top50);
    js_set_num(p, "correlation", x->correlation);
    js_set_num(p, "repeat", x->repeat);
    js_set_num(p, "batch1_above_half", x->hot_1);
    js_set_num(p, "batch32_above_half", x->hot_32);
    js_set_u64(p, "rank", (uint64_t)x->rank);
    js_set_u64(p, "strands", (uint64_t)d->n_strands);
    js_set(o, "expected", p);
    if (d->n_route) {
        struct js *w = js_object();
        js_set_int(w, "steps", d->n_places);
        js_set_int(w, "recorded", d->ask.route->n_steps);
        js_set_int(w, "recorded_prompt", d->ask.route->n_prompt);
        js_set_int(w, "channels", d->n_route + SYNTH_PLACE);
        js_set(o, "route", w);
    }
    int r = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return r;
}

static void report(const struct synth_design *d, const struct synth_expect *x, uint64_t bytes,
                   const struct synth_result *done, const char *path)
{
    char size[24];
    size_format(bytes, size, sizeof size);
    if (done)
        print("wrote %s: %s in %.1f s, %.0f MB/s\n", path, size, done->seconds, (double)bytes / done->seconds / 1e6);
    else
        print("would write %s: %s\n", path, size);
    print("gates open: %.2f %% on average, layers from", 100 * x->rate);
    double low = 1, high = 0;
    for (int l = 0; l < d->ask.shape.n_layers; l++) {
        low = d->layer[l].rate < low ? d->layer[l].rate : low;
        high = d->layer[l].rate > high ? d->layer[l].rate : high;
    }
    print(" %.2f to %.2f %%\n", 100 * low, 100 * high);
    print("80 %% of firings from %.1f %% of all neurons, %.1f %% within a layer\n", 100 * x->neurons_for_80,
           100 * x->layer_neurons_for_80);
    print("the hottest 10, 20, 50 %% of neurons give %.1f, %.1f, %.1f %%\n", 100 * x->top10, 100 * x->top20,
           100 * x->top50);
    print("neurons with probability above 1/2: %.2f %% at batch 1, %.1f %% at batch 32\n", 100 * x->hot_1,
           100 * x->hot_32);
    print("consecutive tokens: correlation %.3f, a neuron that fired fires again with %.1f %%\n", x->correlation,
           100 * x->repeat);
    print("rank of the gates' signal: %d (%d channels of code, %d strands of memory)\n", x->rank, d->n_code,
           d->n_strands);
    if (d->n_places > 0 && !d->n_route)
        print("text: goes round %d tokens, %.0f %% of them followed rightly\n", d->n_places, 100 * d->ask.agree);
    if (d->ask.nextn)
        print("layer for multi-token prediction: %.0f %% of its guesses are right\n", 100 * d->ask.nextn_agree);
    if (d->n_route)
        print("route: %d steps (recorded: %d, of which %d are the prompt's), %d channels\n", d->n_places, d->ask.route->n_steps,
               d->ask.route->n_prompt, d->n_route + SYNTH_PLACE);
}

static int run(const struct given *g, struct err *e)
{
    struct synth_request q;
    struct synth_design d = { 0 };
    struct synth_expect x;
    struct synth_result done;
    struct synth_route route = { 0 };
    int r;
    if ((g->routes && (r = synth_route_read(g->routes, &route, e)) < 0) ||
        (r = request(g, g->routes ? &route : NULL, &q, e)) < 0 || (r = synth_design(&q, &d, e)) < 0) {
        synth_route_done(&route);
        return r;
    }
    uint64_t bytes = synth_file_bytes(&d);
    if ((r = synth_expect(&d, &x, e)) == 0 && !g->dry_run)
        r = synth_write(&d, g->out, g->threads, &done, e);
    if (r == 0 && !g->dry_run && g->prompts)
        r = synth_prompts(&d, g->prompts, g->prompt_rows >= 0 ? g->prompt_rows : 64, g->prompt_words >= 0 ? g->prompt_words : 127, e);
    if (r == 0 && g->json)
        r = report_json(&d, &x, bytes, g->dry_run ? NULL : &done, e);
    else if (r == 0)
        report(&d, &x, bytes, g->dry_run ? NULL : &done, g->out);
    synth_design_done(&d);
    synth_route_done(&route);
    return r;
}

int main(int argc, char **argv)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct given g = {
        .shape = "mistral-7b", .setting = "published", .type = "q4_0", .act = MODEL_ACT_RELU, .arch = -1, .gating = -1,
        .layers = -1,
        .d_model = -1,
        .heads = -1, .kv_heads = -1, .ff = -1, .vocab = -1, .context = -1, .experts = -1, .experts_used = -1,
        .rope_base = -1, .rate = -1, .skew = -1, .layer_spread = -1, .short_share = -1, .short_period = -1,
        .long_share = -1, .long_period = -1, .route_memory = -1, .route_skew = -1, .noise = -1, .layer_share = -1, .seed = 1,
        .prompt_rows = -1, .prompt_words = -1, .splice = -1, .segment = -1, .head_dim = -1,
        .cycle = -1, .agree = -1, .nextn_agree = -1,
        .threads = cpus < 1 ? 1 : cpus > POOL_MAX_THREADS ? POOL_MAX_THREADS : (int)cpus,
    };
    struct err e = { 0 };
    opt_begin("gguf-synth");
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        print("gguf-synth %s (GGUF 3)\n", THERMO_VERSION);
        return opt_end(0);
    }
    int r = parse(argc, argv, &g, &e);
    if (r == 0)
        r = run(&g, &e);
    return opt_end(r < 0 ? opt_fail(&e) : 0);
}
