/* A plan has two halves: decisions, which the runtime obeys, and predictions, which are shown and compared; arrays of both have the same
 * order. Beside them stands what was asked for. Rows with a basis say what a check needs to verify them; objects need none. */
#include "common/plan/plan_fields.h"

#include "common/model/predict.h"
#include "common/plan/budget.h"

#include <stdlib.h>
#include <string.h>

/* A row of struct s: key, kind, member, basis, text, and whatever else. */
#define AT(k, what, s, m, each, why, says, ...) \
    { .key = k, .kind = what, .basis = why, .at = offsetof(struct s, m), .size = sizeof(each), .text = says, __VA_ARGS__ }
#define ROW(k, what, s, m, why, says, ...) AT(k, what, s, m, ((struct s *)0)->m, why, says, __VA_ARGS__)
#define EACH(k, what, s, m, why, says, ...) AT(k, what, s, m, ((struct s *)0)->m[0], why, says, __VA_ARGS__)
#define WITHIN(k, table, s, m, says, ...) \
    { .key = k, .kind = PLAN_OBJECT, .at = offsetof(struct s, m), .text = says, .of = &table, __VA_ARGS__ }
#define OBJECT(k, table, says, ...) { .key = k, .kind = PLAN_OBJECT, .text = says, .of = &table, __VA_ARGS__ }
#define OBJECTS(k, table, s, m, count, says, ...) \
    { .key = k, .kind = PLAN_OBJECTS, .at = offsetof(struct s, m), .text = says, .of = &table, .fewest = 1, OFTEN(s, count), __VA_ARGS__ }
#define OWN(k, what, says, ...) { .key = k, .kind = what, .text = says, __VA_ARGS__ }
#define TABLE(name, of, size) static const struct plan_object name = { of, sizeof(of) / sizeof((of)[0]), size }
#define OFTEN(s, m) .count_at = offsetof(struct s, m)
#define OPTIONAL .when = PLAN_OPTIONAL
#define ALWAYS .when = PLAN_ALWAYS
#define HUGE_REAL 1e18

/* Names of enums by their numbers. */
#define NAMED(name, of, type) static const char *name(int v) { return of((type)v); }
NAMED(form_name, layout_form_name, enum layout_form)
NAMED(sort_name, layout_sort_name, enum layout_sort)
NAMED(mode_name, plan_mode_name, enum plan_mode)
NAMED(work_name, plan_work_name, enum plan_work)
NAMED(io_name, plan_io_name, enum plan_io)
NAMED(cost_name, plan_cost_name, enum plan_cost)
NAMED(stat_name, plan_stat_name, enum plan_stat)
NAMED(policy_name, cache_policy_name, enum cache_policy)
NAMED(purpose_name, plan_purpose_name, enum plan_purpose)
NAMED(source_name, plan_source_name, enum plan_source)

static const char *input_name(int v)
{
    return v < 0 ? "none" : predict_input_name((enum predict_input)v);
}

static const char *act_name(int v)
{
    return v ? "q8" : "f32";
}

static const char *tables_name(int v)
{
    return v ? "streamed" : "resident";
}

static const char *gap_name(int v)
{
    return v ? "layouts" : "layout";
}

#define FORM   .names = form_name, .most = LAYOUT_FORMS - 1
#define MODE   .names = mode_name, .most = PLAN_MODES - 1
#define POLICY .names = policy_name, .most = CACHE_POLICIES - 1
#define WORK   .names = work_name, .most = PLAN_WORKS - 1

/* ---- core classes: of limits, batch sizes and requests ---- */

static const struct plan_field class_fields[] = {
    ROW("n", PLAN_WHOLE, plan_class, n, PLAN_BY_FIGURES, NULL, .most = PLAN_MAX_CORES),
    ROW("name", PLAN_TEXT, plan_class, name, PLAN_BY_FIGURES, NULL, ALWAYS),
};
TABLE(class_table, class_fields, sizeof(struct plan_class));
#define CLASSES(k, s, m, n, says, ...) OBJECTS(k, class_table, s, m, n, says, .longest = PLAN_MAX_CLASSES, .on_line = 1, __VA_ARGS__)

/* ---- decisions of a batch size ---- */

static int has_configuration(const void *object, const void *outer)
{
    const struct plan_batch *b = object;
    const struct plan_limit *l = outer;
    int same = b->threads == l->threads && b->n_classes == l->n_classes && b->queue_depth == l->queue_depth;
    for (int i = 0; i < l->n_classes && same; i++)
        same = b->classes[i].n == l->classes[i].n && !strcmp(b->classes[i].name, l->classes[i].name);
    return !same;
}

static const struct plan_field configuration_fields[] = {
    CLASSES("classes", plan_batch, classes, n_classes, NULL, ALWAYS),
    ROW("queue_depth", PLAN_WHOLE, plan_batch, queue_depth, PLAN_BY_FIGURES, NULL, .least = 1, .most = BUDGET_MAX_DEPTH),
    ROW("threads", PLAN_WHOLE, plan_batch, threads, PLAN_BY_FIGURES, NULL, .least = 1, .most = BUDGET_MAX_THREADS),
};
TABLE(configuration, configuration_fields, 0);

static const struct plan_field batch_fields[] = {
    ROW("batch", PLAN_WHOLE, plan_batch, batch, PLAN_BY_MODEL, NULL, .least = 1, .most = BUDGET_MAX_BATCH),
    EACH("cold", PLAN_WHOLE, plan_batch, cold, PLAN_BY_MODEL, "[layer][part]: slots of the cold cache, one read unit each.",
               .many = PLAN_COLD, .most = UINT32_MAX - 1),
    OBJECT("configuration", configuration, "Cores and reads in flight at this batch size. Absent: those of the limit, which are the most "
           "of any batch size.", OPTIONAL, .has = has_configuration),
    ROW("engine_neurons", PLAN_WHOLE, plan_batch, engine_neurons, PLAN_BY_FIGURES, "Of each FFN, the hottest neurons that the engine "
        "computes, of those in memory: whole clusters, or all. Passes have those of the first batch size that holds them; for larger "
        "ones, such as a prompt's, see prompt.engine_neurons. Absent: none.", OPTIONAL, .least = 1, .most = MODEL_MAX_DIM),
    ROW("engine_work", PLAN_NAME, plan_batch, engine_work, PLAN_BY_FIGURES, "What else the engine computes in passes of this batch size: "
        "the output head, the products of attention (and of shared experts, and of layers before the experts'), or both. Absent: "
        "nothing.", OPTIONAL, WORK, .least = 1),
    EACH("hot", PLAN_WHOLE, plan_batch, hot, PLAN_BY_MODEL, "[layer][block][part]: neurons of the resident prefix.",
               .many = PLAN_HOT, .most = UINT32_MAX - 1),
    EACH("streamed", PLAN_WHOLE, plan_batch, streamed, PLAN_BY_FIGURES, "Predicted mode: layers, ascending, whose predictors do not "
               "stay in memory but are read from the pack in every step. Absent: none.", .many = PLAN_SET, OPTIONAL),
};
TABLE(batch_table, batch_fields, sizeof(struct plan_batch));

/* ---- decisions of a limit ---- */

static int has_prompt(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_prompt *)object)->n > 0;
}

static int has_guesses(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_guesses *)object)->n > 0;
}

static int has_source(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_guesses *)object)->source != PLAN_SOURCE_FREE;
}

static int has_heights(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_prompt *)object)->with_engine;
}

static int has_works(const void *object, const void *outer)
{
    const struct plan_prompt *q = object;
    unsigned any = 0;
    (void)outer;
    for (int i = 0; i < q->n; i++)
        any |= (unsigned)q->engine_work[i];
    return any != 0;
}

static int has_rest(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_prompt *)object)->rest_from > 0;
}

static int has_own(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_own *)object)->tokens_per_s > 0;
}

static const struct plan_field source_fields[] = {
    ROW("guess_ns", PLAN_REAL, plan_guesses, guess_ns, PLAN_BY_FIGURES, "Of a guess, above 0: a token of the draft's own plan, at batch 1; "
        "of a layer (M35) of docs/cost-model.md.", .up_to = HUGE_REAL),
    ROW("kind", PLAN_NAME, plan_guesses, source, PLAN_BY_SOLVING, "A draft model; the model's own layer for multi-token prediction.",
        .names = source_name, .least = 1, .most = PLAN_SOURCES - 1),
};
TABLE(source, source_fields, 0);

static const struct plan_field guesses_fields[] = {
    EACH("pass_ns", PLAN_REAL, plan_guesses, pass_ns, PLAN_BY_FIGURES, "Of a whole pass, head included, none less than the one before; the "
         "first is that of a step of batch 1.", .many = PLAN_COUNT, OFTEN(plan_guesses, n), .up_to = HUGE_REAL, .last = 1),
    OBJECT("source", source, "Who guesses. Absent: a source that takes no time, as prompt lookup.", OPTIONAL, .has = has_source),
    EACH("tokens", PLAN_WHOLE, plan_guesses, tokens, PLAN_BY_FIGURES, "Of a pass, the last drawn one included: 1, and ascending.",
         .many = PLAN_ASCENDING, OFTEN(plan_guesses, n), .least = 1, .most = 1 << (PLAN_PASSES - 1), .fewest = 2, .longest = PLAN_PASSES),
};
TABLE(guesses, guesses_fields, 0);

static const struct plan_field rest_fields[] = {
    ROW("area_bytes", PLAN_WHOLE, plan_prompt, area_bytes, PLAN_BY_MODEL, NULL, .least = 1, .most = (uint64_t)1 << 40),
    ROW("from_tokens", PLAN_WHOLE, plan_prompt, rest_from, PLAN_BY_FIGURES, "One of tokens, above max_batch and up to prefill_chunk.",
        .least = 1, .most = MODEL_MAX_CONTEXT),
};
TABLE(rest, rest_fields, 0);

static const struct plan_field prompt_fields[] = {
    EACH("engine_neurons", PLAN_WHOLE, plan_prompt, engine_neurons, PLAN_BY_FIGURES, "One for each of tokens: of each FFN, the hottest "
         "neurons that the engine computes, of those in memory, in a pass of so many tokens, or of prefill_chunk where that is less; whole "
         "clusters, or all, 0: none. A pass that a batch size holds has that one's, and so must be stated; a larger one has that of the "
         "largest of tokens that is not above it. Absent: passes larger than any batch size have the largest one's.", OPTIONAL,
         .many = PLAN_COUNT, OFTEN(plan_prompt, n), .most = UINT32_MAX - 1, .has = has_heights,
         .flag_at = offsetof(struct plan_prompt, with_engine), .last = 1),
    OBJECT("engine_rest", rest, "In passes of from_tokens or more, above max_batch, the engine also computes the neurons that are not in "
           "memory, unless the pass predicts neurons: they are read through an area of four slots (common/plan/rest.h), which the account "
           "has. Beside engine_neurons, of models without experts. Absent: none.", OPTIONAL, .has = has_rest),
    EACH("engine_work", PLAN_NAME, plan_prompt, engine_work, PLAN_BY_FIGURES, "One for each of tokens, beside engine_neurons: what else "
         "the engine computes; ffn: nothing. Absent: nothing at any length.", OPTIONAL, WORK, .many = PLAN_COUNT, OFTEN(plan_prompt, n),
         .has = has_works, .last = 1),
    EACH("tokens", PLAN_WHOLE, plan_prompt, tokens, PLAN_BY_FIGURES, "Lengths that the rest speaks of, ascending.", .many = PLAN_ASCENDING,
         OFTEN(plan_prompt, n), .least = 1, .most = MODEL_MAX_CONTEXT, .fewest = 1, .longest = PLAN_PROMPT_POINTS),
};
TABLE(prompt, prompt_fields, 0);

static const struct plan_field join_fields[] = {
    ROW("bytes", PLAN_WHOLE, reads_coalesce, bytes, PLAN_BY_FIGURES, NULL, .least = 1, .most = READS_MAX_BYTES),
    ROW("weight", PLAN_REAL, reads_coalesce, weight, PLAN_BY_FIGURES, NULL, .up_to = READS_MAX_UNITS),
};
TABLE(join_table, join_fields, sizeof(struct reads_coalesce));

static const struct plan_field io_fields[] = {
    ROW("backend", PLAN_NAME, plan_limit, io, PLAN_BY_FIGURES, NULL, .names = io_name, .most = PLAN_IOS - 1),
    ROW("experts_ahead", PLAN_BOOL, plan_limit, ahead, PLAN_BY_FIGURES, "Whether the runtime reads experts that a layer will probably use "
        "before its router has chosen, in passes of up to 4 tokens: (M32) of docs/cost-model.md, which the predictions rest on. Only with "
        "experts and the mode dense. Absent: not stated (the trace does not hold what is foreseen); the runtime then reads ahead, and "
        "leaves layers alone that are not foreseen well.", OPTIONAL, .least = PLAN_AHEAD_OFF, .none = PLAN_AHEAD_UNSTATED),
    OBJECTS("joins", join_table, plan_limit, coalesce, n_coalesce, "Coalesced reads (common/plan/reads.h), absent where "
      "there are none: a read of up to `bytes` takes as long as `weight` reads of one unit of the last part. From the next missing unit "
      "on, of the windows of `bytes` that hold at least `weight` missing units the one with the least weight per missing unit is one read, "
      "gaps included. Read buffers are as large as the last one. bytes and weight ascend; bytes are whole blocks of the layout and hold at "
      "least two units; a weight is above 1.", OPTIONAL, .longest = READS_MAX_COALESCE, .on_line = 1),
    ROW("lanes", PLAN_WHOLE, plan_limit, io_lanes, PLAN_BY_FIGURES, NULL, .least = 1, .most = BUDGET_MAX_LANES),
    ROW("queue_depth", PLAN_WHOLE, plan_limit, queue_depth, PLAN_BY_MODEL, "Reads in flight over all lanes, of the batch size with most.",
        .least = 1, .most = BUDGET_MAX_DEPTH),
};
TABLE(io, io_fields, 0);

static const struct plan_field alternative_fields[] = {
    ROW("backend", PLAN_NAME, plan_alternative, io, PLAN_BY_FIGURES, NULL, .names = io_name, .most = PLAN_IOS - 1),
    ROW("experts_ahead", PLAN_BOOL, plan_alternative, ahead, PLAN_BY_FIGURES, "As io.experts_ahead; true where that is not stated.",
        ALWAYS),
    ROW("joins", PLAN_BOOL, plan_alternative, coalesced, PLAN_BY_FIGURES, "Reads go through gaps by io.joins; false: they do not.", ALWAYS),
    ROW("queue_depth", PLAN_WHOLE, plan_alternative, queue_depth, PLAN_BY_FIGURES, NULL, .least = 1, .most = BUDGET_MAX_DEPTH),
    ROW("threads", PLAN_WHOLE, plan_alternative, threads, PLAN_BY_FIGURES, NULL, .least = 1, .most = BUDGET_MAX_THREADS),
};
TABLE(alternative_table, alternative_fields, sizeof(struct plan_alternative));

/* Room for the batch sizes of a limit, each with the limit's cores and reads in flight for the time being. */
static int start_batches(struct plan *p, void *object, int n, struct err *e)
{
    struct plan_limit *l = object;
    int r = plan_limit_init(p, l, n, e);
    for (int i = 0; i < n && r == 0; i++) {
        struct plan_batch *b = &l->batches[i];
        b->threads = l->threads;
        b->n_classes = l->n_classes;
        b->queue_depth = l->queue_depth;
        memcpy(b->classes, l->classes, sizeof b->classes);
    }
    return r;
}

static int has_group(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_elastic *)object)->group > 0;
}

static int has_quality(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_quality *)object)->tokens > 0;
}

static const struct plan_field quality_fields[] = {
    ROW("kl_max", PLAN_REAL, plan_quality, kl_max, PLAN_BY_RUNNING, "Of any token.", .up_to = HUGE_REAL),
    ROW("kl_mean", PLAN_REAL, plan_quality, kl_mean, PLAN_BY_RUNNING, "KL(exact, predicted) of the next token's distribution, nats.",
        .up_to = HUGE_REAL),
    ROW("ppl_ratio", PLAN_REAL, plan_quality, ppl_ratio, PLAN_BY_RUNNING, "Perplexity over exact mode's.", .up_to = HUGE_REAL),
    ROW("text", PLAN_HASH, plan_quality, text, PLAN_BY_RUNNING, "XXH3-128 of the text's token ids, 32 bits each, little-endian."),
    ROW("tokens", PLAN_WHOLE, plan_quality, tokens, PLAN_BY_RUNNING, "That were scored.", .least = 1, .most = INT64_MAX),
    ROW("top1", PLAN_REAL, plan_quality, top1, PLAN_BY_RUNNING, "Share of tokens with the same likeliest successor.", .up_to = 1),
    ROW("window", PLAN_WHOLE, plan_quality, window, PLAN_BY_RUNNING, "Tokens of a window, each with an empty KV cache.", .least = 1,
        .most = MODEL_MAX_CONTEXT),
};
TABLE(quality, quality_fields, 0);

static const struct plan_field elastic_fields[] = {
    ROW("group", PLAN_WHOLE, plan_elastic, group, PLAN_BY_SOLVING, "Limits of one number are a group.", .least = 1,
        .most = PLAN_MAX_LIMITS),
    ROW("lanes", PLAN_WHOLE, plan_elastic, io_lanes, PLAN_BY_ITSELF, NULL, .least = 1, .most = BUDGET_MAX_LANES),
    ROW("queue_depth", PLAN_WHOLE, plan_elastic, queue_depth, PLAN_BY_ITSELF, NULL, .least = 1, .most = BUDGET_MAX_DEPTH),
    ROW("read_bytes", PLAN_WHOLE, plan_elastic, read_bytes, PLAN_BY_ITSELF, "Of the longest read through gaps; 0: there are none.",
        .most = READS_MAX_BYTES),
    ROW("threads", PLAN_WHOLE, plan_elastic, threads, PLAN_BY_ITSELF, NULL, .least = 1, .most = BUDGET_MAX_THREADS),
};
TABLE(elastic, elastic_fields, 0);

static int has_recalls(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan_limit *)object)->by_layer;
}

static const struct plan_field limit_fields[] = {
    ROW("act", PLAN_NAME, plan_limit, act_q8, PLAN_BY_FIGURES, "Form of activations in row products, where the weight type allows q8.",
        .names = act_name, .most = 1),
    OBJECTS("alternatives", alternative_table, plan_limit, alternatives, n_alternatives, "Other ways to make passes that a batch size "
            "holds, which come close to the limit's or may be better when the machine is no longer as it was measured: the runtime looks "
            "at what passes take and may use one (docs/adapt.md). The account has room for them: io_lanes, queue_depth and threads of "
            "whichever has most; pread has a lane for each read in flight, up to 64. No bit of any result depends on it. Absent: none.",
            OPTIONAL, .longest = PLAN_MAX_ALTERNATIVES, .on_line = 1),
    OBJECTS("batches", batch_table, plan_limit, batches, n_batches, "Ascending by batch.", .longest = PLAN_MAX_BATCHES,
            .start = start_batches, .last = 1),
    CLASSES("classes", plan_limit, classes, n_classes, "Compute threads by core class, fastest class first.", ALWAYS),
    ROW("cold_bound", PLAN_EXACT_REAL, plan_limit, cold_bound, PLAN_BY_SOLVING, "Exact mode, models with cold thresholds t: neurons beyond "
        "exempt count as silent where their gate is below sqrt(cold_bound) t, which loses at most so many nats for a neuron and token. "
        "Prompts are computed without. Absent: 0, none.", OPTIONAL, .up_to = 1),
    ROW("cold_policy", PLAN_NAME, plan_limit, policy, PLAN_BY_FIGURES, NULL, POLICY),
    ROW("context", PLAN_WHOLE, plan_limit, context, PLAN_BY_MODEL, "KV positions per sequence.", .least = 1, .most = MODEL_MAX_CONTEXT),
    WITHIN("elastic", elastic, plan_limit, elastic, "Limits between which a running model moves (thermo-run --elastic), in plans of solve "
           "--elastic: they have the same mode, exempt, predictors, recall, act, context, kv, for, max_batch and prefill_chunk, and their "
           "accounts have the most threads, lanes, reads in flight and the longest reads of any of them, which are these. Absent: such a "
           "limit is left for none.", OPTIONAL, .has = has_group),
    EACH("exempt", PLAN_WHOLE, plan_limit, always, PLAN_BY_FIGURES, "Predicted mode: per layer, how many of the first neurons of its "
               "FFN, or of each expert, are always computed. Whole clusters or n_ff. Exact mode with a cold_bound: those that it "
               "does not bear on. Else empty.", .many = PLAN_BY_ALWAYS_LAYER, .most = UINT32_MAX - 1, .last = 1),
    ROW("for", PLAN_NAME, plan_limit, purpose, PLAN_BY_MODEL, "What runs by it. For others than generate account_bytes and floor_bytes "
        "have what a conversation, or requests, or a server take beside the model. Absent: generate.", OPTIONAL, .names = purpose_name,
        .most = PLAN_PURPOSES - 1),
    WITHIN("guesses", guesses, plan_limit, guesses, "Passes over tokens of one sequence that follow each other, as guesses of further "
           "tokens are held against (docs/speculation.md), at batch 1: (M30) of docs/cost-model.md. The runtime makes as many guesses as "
           "are fastest by these times. Linear between two of tokens. Absent: not predicted (of a description instead of a trace; of a "
           "device that was not measured with many tokens; of recurrent layers that take no token back), or not stated.", OPTIONAL,
           .has = has_guesses),
    OBJECT("io", io, NULL, ALWAYS),
    ROW("kv", PLAN_NAME, plan_limit, kv_type, PLAN_BY_MODEL, NULL, .names = kv_type_name, .most = KV_TYPES - 1),
    ROW("max_batch", PLAN_WHOLE, plan_limit, max_batch, PLAN_BY_MODEL, NULL, .least = 1, .most = BUDGET_MAX_BATCH),
    ROW("memory_bytes", PLAN_WHOLE, plan_limit, memory_bytes, PLAN_BY_SOLVING, "The user's limit.", .least = 1, .most = INT64_MAX),
    ROW("min_tokens_per_s", PLAN_REAL, plan_limit, min_tokens_per_s, PLAN_BY_SOLVING, "The user's lower bound on speed at batch 1; 0: "
        "none.", .up_to = 1e9),
    ROW("mode", PLAN_NAME, plan_limit, mode, PLAN_BY_FIGURES, NULL, MODE),
    ROW("predictor_buffers", PLAN_WHOLE, plan_limit, predictor_buffers, PLAN_BY_MODEL, "Predicted mode: read buffers, each of one piece "
        "(runtime/README.md), that the predictors of streamed layers share. Absent: all predictors stay in memory.", OPTIONAL, .least = 1,
        .most = BUDGET_MAX_STREAM),
    EACH("predictors", PLAN_NAME, plan_limit, predictor, PLAN_BY_FIGURES, "Predicted mode: what the predictor of each layer sees "
               "(schemas/pack.md section 7), each layer its own, for all batch sizes; none: the layer runs exactly. Other modes: empty.",
               .many = PLAN_BY_PREDICTED_LAYER, .names = input_name, .least = (uint64_t)-1, .most = PREDICT_INPUTS - 1, .last = 1),
    ROW("prefill_chunk", PLAN_WHOLE, plan_limit, prefill_chunk, PLAN_BY_MODEL, NULL, .least = 1, .most = BUDGET_MAX_CHUNK),
    WITHIN("prompt", prompt, plan_limit, prompt, "Lengths of prompts that are predicted, and what the engine computes in passes of them. "
           "Absent: the device was not measured with many tokens, or not predicted (notes).", OPTIONAL, .has = has_prompt),
    ROW("recall", PLAN_REAL, plan_limit, recall, PLAN_BY_SOLVING, "Predicted mode: of each predictor the operating point of least density "
        "that reaches this recall is used, or else its greatest recall. Other modes: 0.", .up_to = 1),
    EACH("recalls", PLAN_REAL, plan_limit, recalls, PLAN_BY_SOLVING, "Predicted mode: the recall of each layer's predictors, where layers "
         "differ, as a budget of quality spends it; recall is the least of them. 1 of layers that run exactly. Absent: recall in all.",
         OPTIONAL, .many = PLAN_BY_PREDICTED_LAYER, .up_to = 1, .last = 1, .has = has_recalls,
         .flag_at = offsetof(struct plan_limit, by_layer)),
    ROW("tables", PLAN_NAME, plan_limit, stream_tables, PLAN_BY_MODEL, "Embeddings of which a token needs a row, token_embd where the head "
        "is another tensor and layer_embd: resident, or streamed, where rows are read when tokens are known and that takes less than half "
        "the memory. Absent: resident.", OPTIONAL, .names = tables_name, .most = 1),
    ROW("threads", PLAN_WHOLE, plan_limit, threads, PLAN_BY_FIGURES, "Compute threads, the main thread included, of the batch size with "
        "most; prompts run with these.", .least = 1, .most = BUDGET_MAX_THREADS),
};
TABLE(limit_table, limit_fields, sizeof(struct plan_limit));

/* ---- decisions ---- */

static const struct plan_field layout_fields[] = {
    ROW("block_bytes", PLAN_WHOLE, plan, layout.block_bytes, PLAN_BY_FIGURES, "A power of two.", .least = 512, .most = 65536),
    ROW("cluster_neurons", PLAN_WHOLE, plan, layout.cluster_neurons, PLAN_BY_FIGURES, "A multiple of 8.", .least = 8, .most = 4096),
    ROW("form", PLAN_NAME, plan, layout.form, PLAN_BY_FIGURES, NULL, FORM),
    ROW("hash", PLAN_HASH, plan, layout_hash, PLAN_BY_ITSELF, NULL, ALWAYS),
    ROW("packed", PLAN_BOOL, plan, layout.packed, PLAN_BY_FIGURES, "Units are not padded to device blocks.", ALWAYS),
    ROW("types", PLAN_TYPES, plan, layout, PLAN_BY_MODEL, "Rows of Down are stored by neuron; in tiles they are the source's.", ALWAYS),
    ROW("ungated", PLAN_BOOL, plan, layout.ungated, PLAN_BY_MODEL, "FFNs have no gate: Up's rows are in Gate's place, once. Absent: false.",
        OPTIONAL),
};
TABLE(layout_table, layout_fields, 0);

static int start_limits(struct plan *p, void *object, int n, struct err *e)
{
    (void)object;
    p->n_parts = layout_parts(p->layout.form);
    p->limits = calloc((size_t)n, sizeof *p->limits);
    return p->limits ? 0 : err_set(e, ERR_NOMEM, "out of memory for a plan");
}

static const struct plan_field decisions_fields[] = {
    ROW("engine", PLAN_TEXT, plan, engine, PLAN_BY_FIGURES, "Accelerator that computes neurons or other products beside the processor, as "
        "--engine of thermo-run names it (opencl:0), or, of a device that is described, as the hardware database does. Absent: none.",
        OPTIONAL),
    OBJECT("layout", layout_table, "All that a plan fixes about a pack.", ALWAYS),
    OBJECTS("limits", limit_table, plan, limits, n_limits, "The configuration for each memory limit, ascending.",
            .longest = PLAN_MAX_LIMITS, .start = start_limits, .last = 1),
};
TABLE(decisions, decisions_fields, 0);

/* ---- predictions ---- */

#define PREDICTED(key, s, m, text) ROW(key, PLAN_REAL, s, m, PLAN_BY_FIGURES, text, .up_to = HUGE_REAL)
#define PREDICTED_EACH(key, s, m, n, text) \
    EACH(key, PLAN_REAL, s, m, PLAN_BY_FIGURES, text, .many = PLAN_COUNT, OFTEN(s, n), .up_to = HUGE_REAL)

static const struct plan_field step_fields[] = {
    PREDICTED("head_ns", plan_batch, predicted.head_ns, "Embedding, final norm and output head."),
    ROW("hit_rate", PLAN_REAL, plan_batch, predicted.hit_rate, PLAN_BY_FIGURES, "Of the cold cache: hits / lookups, units.", .up_to = 1),
    ROW("layers", PLAN_LAYER_COLUMNS, plan_batch, predicted.layers, PLAN_BY_FIGURES, "One value per layer. total = attention + predict + "
        "max(ffn_compute, ffn_memory, ffn_engine, io) + exposed; ffn_engine_ns is there where the batch size has engine_neurons.", ALWAYS),
    PREDICTED("read_bytes", plan_batch, predicted.read_bytes, "From flash, per step."),
    PREDICTED("step_ns", plan_batch, predicted.step_ns, NULL),
    PREDICTED("tokens_per_s", plan_batch, predicted.tokens_per_s, NULL),
};
TABLE(step_table, step_fields, sizeof(struct plan_batch));

static const struct plan_field speedup_fields[] = {
    EACH("acceptance", PLAN_REAL, plan_guesses, acceptance, PLAN_BY_FIGURES, "Shares a of guesses that come true, above 0 and below 1, "
         "ascending.", .many = PLAN_ACCEPTANCE, .up_to = 1),
    EACH("best", PLAN_WHOLE, plan_guesses, best, PLAN_BY_ITSELF, "For each, the guesses k of a pass where (1 + a + ... + a^k) / "
         "(pass_ns(k + 1) + k guess_ns) is largest; guess_ns is 0 without a source.", .many = PLAN_ACCEPTANCE, .most = PLAN_GUESSES),
    PREDICTED_EACH("read_bytes", plan_guesses, read_bytes, n, "From flash, of a pass."),
    EACH("speedup", PLAN_REAL, plan_guesses, speedup, PLAN_BY_ITSELF, "With so many, times the speed of no guesses.",
         .many = PLAN_ACCEPTANCE, .up_to = HUGE_REAL),
};
TABLE(speedup, speedup_fields, 0);

static const struct plan_field own_fields[] = {
    ROW("cost", PLAN_REAL, plan_own, cost, PLAN_BY_SOLVING, "Share of own_layout.tokens_per_s that the common layout loses.", .up_to = 1),
    ROW("form", PLAN_NAME, plan_own, form, PLAN_BY_SOLVING, NULL, FORM),
    ROW("packed", PLAN_BOOL, plan_own, packed, PLAN_BY_SOLVING, NULL, ALWAYS),
    ROW("tokens_per_s", PLAN_REAL, plan_own, tokens_per_s, PLAN_BY_SOLVING, "At batch 1; with several batch sizes the mean over them, by "
        "request.batch_weights.", .up_to = HUGE_REAL),
};
TABLE(own, own_fields, 0);

static const struct plan_field elastic_cost_fields[] = {
    ROW("prompt_cost", PLAN_REAL, plan_elastic, prompt_cost, PLAN_BY_SOLVING, "Share of the speed of prompts.", .up_to = 1),
    ROW("token_cost", PLAN_REAL, plan_elastic, token_cost, PLAN_BY_SOLVING, "Share of the speed of decoding, of several batch sizes the "
        "mean over them, by request.batch_weights.", .up_to = 1),
};
TABLE(elastic_cost, elastic_cost_fields, 0);

static const struct plan_field prompt_times_fields[] = {
    PREDICTED_EACH("attention_ns", plan_prompt, attention_ns, n, NULL),
    PREDICTED_EACH("ffn_ns", plan_prompt, ffn_ns, n, NULL),
    PREDICTED("head_ns", plan_prompt, head_ns, "Output head, once."),
    PREDICTED_EACH("read_bytes", plan_prompt, read_bytes, n, NULL),
    PREDICTED_EACH("wait_ns", plan_prompt, wait_ns, n, "For storage."),
};
TABLE(prompt_times, prompt_times_fields, 0);

#define TERM(key, t) PREDICTED(key, plan_alternative, term_ns[t], NULL)
static const struct plan_field alternative_times_fields[] = {
    TERM("attention_ns", PLAN_TERM_ATTENTION),
    TERM("ffn_ns", PLAN_TERM_FFN),
    TERM("head_ns", PLAN_TERM_HEAD),
    TERM("io_wait_ns", PLAN_TERM_WAIT),
    TERM("predict_ns", PLAN_TERM_PREDICT),
};
TABLE(alternative_times, alternative_times_fields, sizeof(struct plan_alternative));

static const struct plan_field promises_fields[] = {
    ROW("account_bytes", PLAN_WHOLE, plan_limit, account_bytes, PLAN_BY_MODEL, "What the runtime will take, at the largest batch.",
        .most = INT64_MAX),
    OBJECTS("alternatives", alternative_times, plan_limit, alternatives, n_alternative_times, "A decode step of each of the decisions' "
            "alternatives, at batch 1, by what takes its time; the sum is step_ns.", OPTIONAL, .longest = PLAN_MAX_ALTERNATIVES,
            .on_line = 1),
    OBJECTS("batches", step_table, plan_limit, batches, n_batches, "Of one decode step of each batch size.", .longest = PLAN_MAX_BATCHES),
    WITHIN("elastic", elastic_cost, plan_limit, elastic, "What being in its group costs the limit, against the same plan without groups.",
           .when = PLAN_AS_DECIDED, .has = has_group),
    ROW("floor_bytes", PLAN_WHOLE, plan_limit, floor_bytes, PLAN_BY_MODEL, "The least that runs: the same with no hot and no cold region, "
        "and all predictors streamed through the fewest buffers (resident where that is less).", .most = INT64_MAX),
    ROW("gap", PLAN_REAL, plan_limit, gap, PLAN_BY_SOLVING, "Proven: no plan of this model on this device and limit, under the plan's "
        "layout, is faster by more than this share, by the plan's own cost model; with gap_of layouts, under any layout that was "
        "allowed.", .up_to = 1),
    ROW("gap_of", PLAN_NAME, plan_limit, gap_of_layouts, PLAN_BY_SOLVING, "What the gap holds for: the plan's layout, which is meant where "
        "this is absent, or all layouts that the request allows (--prove).", OPTIONAL, .names = gap_name, .most = 1),
    WITHIN("guesses", speedup, plan_limit, guesses, "What guesses bring by the times of passes.", .when = PLAN_AS_DECIDED,
           .has = has_guesses),
    ROW("load_bytes_per_s", PLAN_REAL, plan_limit, load_bytes_per_s, PLAN_BY_FIGURES, "What the device's figures say of reads of 1 MiB, 8 "
        "in flight, by the back end: thermo-run, which loads so, says where it is far from what the packed model gives. Absent: there are "
        "no figures.", OPTIONAL, .up_to = HUGE_REAL),
    ROW("optimal", PLAN_BOOL, plan_limit, optimal, PLAN_BY_SOLVING, "The solver finished; false: best verified plan within rlimit.",
        ALWAYS),
    WITHIN("own_layout", own, plan_limit, own, "In a plan of several limits, which has one layout "
      "for all: what a plan for this limit alone would have. Absent where there was no other layout to choose.", OPTIONAL,
      .has = has_own),
    WITHIN("prompt", prompt_times, plan_limit, prompt, "Of whole prompts of so many tokens, in passes of prefill_chunk: (M27) of "
           "docs/cost-model.md. Time to the first token: attention_ns + ffn_ns + wait_ns + head_ns, linear between two lengths.",
           .when = PLAN_AS_DECIDED, .has = has_prompt),
    WITHIN("quality", quality, plan_limit, quality, "Predicted mode: what the runtime measured of a text against exact mode (thermo-run "
           "perplexity --against exact --store). Absent: not measured.", OPTIONAL, .has = has_quality),
};
TABLE(promises, promises_fields, sizeof(struct plan_limit));

static const struct plan_field predictions_fields[] = {
    ROW("cost", PLAN_NAME, plan, cost, PLAN_BY_FIGURES, "Cost model: docs/cost-model.md.", .names = cost_name, .most = PLAN_COSTS - 1),
    ROW("figures", PLAN_NAME, plan, stat, PLAN_BY_FIGURES, "Statistic of the device's samples: medians, or what nine samples in ten reach "
        "(p10 of a rate, p90 of a time).", .names = stat_name, .most = PLAN_STATS - 1),
    OBJECTS("limits", promises, plan, limits, n_limits, "One for each of decisions.limits.", .longest = PLAN_MAX_LIMITS),
};
TABLE(predictions, predictions_fields, 0);

/* ---- what was asked for ---- */

#define ASKED(key, kind, m, text, ...) ROW(key, kind, plan, request.m, PLAN_BY_SOLVING, text, OPTIONAL, __VA_ARGS__)
#define LEFT_OPEN .none = (-1)

static const struct plan_field request_fields[] = {
    ASKED("always_resident", PLAN_BOOL, always_resident, "Predicted mode: neurons of hot prefixes are always computed.", .most = 1),
    EACH("batch_weights", PLAN_WHOLE, plan, request.weight, PLAN_BY_SOLVING, "One for each of a limit's batches, in their order: how many "
         "tokens are made at that batch size, in proportion. What is minimised, and what gap is about, is the sum over batches of weight / "
         "tokens_per_s. Written where there are several; absent: each 1.", OPTIONAL, .many = PLAN_COUNTED, OFTEN(plan, request.n_weights),
         .least = 1, .most = PLAN_LARGEST_WEIGHT, .fewest = 1, .longest = PLAN_MAX_BATCHES),
    ASKED("cold_policy", PLAN_NAME, policy, NULL, POLICY, LEFT_OPEN),
    ASKED("context", PLAN_WHOLE, context, NULL, .least = 1, .most = MODEL_MAX_CONTEXT),
    CLASSES("cores", plan, request.cores, request.n_cores, "Most cores to compute with, of these classes.", OPTIONAL),
    ASKED("elastic", PLAN_BOOL, elastic, "Limits are in elastic groups where that is possible.", .most = 1),
    ROW("engine", PLAN_TEXT, plan, request.engine, PLAN_BY_SOLVING, "The accelerator that was asked for, or none. Absent: the first of the "
        "device that thermo-run knows.", OPTIONAL),
    ASKED("form", PLAN_NAME, form, NULL, FORM, LEFT_OPEN),
    ASKED("max_kl", PLAN_EXACT_REAL, max_kl, "Most mean divergence from exact mode, nats.", .up_to = 100, LEFT_OPEN),
    ASKED("mode", PLAN_NAME, mode, NULL, MODE, LEFT_OPEN),
    ASKED("packed", PLAN_BOOL, packed, NULL, LEFT_OPEN),
    ASKED("predictor", PLAN_NAME, predictor, "Predicted mode: what predictors see.", .names = input_name, .most = PREDICT_INPUTS - 1,
          LEFT_OPEN),
    ASKED("prefill_chunk", PLAN_WHOLE, prefill_chunk, "That of every limit.", .least = 1, .most = BUDGET_MAX_CHUNK),
    ASKED("prompt_weight", PLAN_EXACT_REAL, prompt_weight, "Tokens of prompts for each decoded token, which decide prefill_chunk; "
          "absent: 1.",
          .up_to = 1e6, .none = 1),
    ASKED("recall", PLAN_EXACT_REAL, recall, "Predicted mode: of every predictor.", .up_to = 1),
    ROW("rlimit", PLAN_WHOLE, plan, rlimit, PLAN_BY_SOLVING, "Solver's resource limit; 0: none.", .most = INT64_MAX),
};
TABLE(request, request_fields, 0);

/* ---- the whole ---- */

static const struct plan_field device_fields[] = {
    ROW("hash", PLAN_HASH, plan, hardware_hash, PLAN_BY_FIGURES, NULL, ALWAYS),
    ROW("name", PLAN_TEXT, plan, device, PLAN_BY_FIGURES, NULL, ALWAYS),
};
TABLE(device, device_fields, 0);

static int has_widths(const void *object, const void *outer)
{
    (void)outer;
    return ((const struct plan *)object)->widths[0] > 0;
}

static const struct plan_field model_fields[] = {
    ROW("blocks", PLAN_WHOLE, plan, n_blocks, PLAN_BY_MODEL, "FFNs per layer: experts, or 1.", .least = 1, .most = MODEL_MAX_EXPERTS),
    ROW("d_model", PLAN_WHOLE, plan, d_model, PLAN_BY_MODEL, NULL, .least = 1, .most = MODEL_MAX_DIM),
    ROW("hash", PLAN_HASH, plan, model_hash, PLAN_BY_MODEL, "Logical content of the model.", ALWAYS),
    ROW("layers", PLAN_WHOLE, plan, n_layers, PLAN_BY_MODEL, NULL, .least = 1, .most = MODEL_MAX_LAYERS),
    ROW("n_ff", PLAN_WHOLE, plan, n_ff, PLAN_BY_MODEL, "Neurons of one FFN, of the widest.", .least = 1, .most = MODEL_MAX_DIM),
    ROW("name", PLAN_TEXT, plan, model_name, PLAN_BY_MODEL, NULL, ALWAYS),
    ROW("order", PLAN_NAME, plan, sort, PLAN_BY_MODEL, "heat: neurons from hot to cold; together: of about equal heat, those that fire in "
        "the same tokens beside each other. Absent: heat.", OPTIONAL, .names = sort_name, .most = LAYOUT_SORTS - 1),
    ROW("order_hash", PLAN_HASH, plan, order_hash, PLAN_BY_MODEL, "Neuron order that the prefixes speak of: hot to cold, or in tiles the "
        "source's.", ALWAYS),
    ROW("trace_hash", PLAN_HASH, plan, trace_hash, PLAN_BY_MODEL, "Content of the activation trace the plan rests on; all zero when there "
        "was none.", ALWAYS),
    EACH("widths", PLAN_WHOLE, plan, widths, PLAN_BY_MODEL, "Neurons of each layer's FFN. Absent: n_ff.", .many = PLAN_COUNT,
         OFTEN(plan, n_layers), OPTIONAL, .has = has_widths, .least = 1, .most = MODEL_MAX_DIM, .longest = MODEL_MAX_LAYERS,
         .last = 1),
};
TABLE(model, model_fields, 0);

static const struct plan_field root_fields[] = {
    OBJECT("decisions", decisions, "All that the runtime and the packer obey.", .last = 1),
    OBJECT("device", device, NULL, ALWAYS),
    OWN("features", PLAN_FEATURES, "What a later revision added: keys that a reader that does not know them may ignore, "
      "by their paths, and features that it must refuse.", OPTIONAL),
    OWN("format", PLAN_FORMAT_NAME, NULL, ALWAYS),
    OBJECT("model", model, NULL, ALWAYS),
    ROW("notes", PLAN_NOTES, plan, notes, PLAN_BY_SOLVING, "What the planner had to assume: figures the device lacks, limits it hit.",
        ALWAYS),
    OBJECT("predictions", predictions, "What the cost model expects: shown and compared, and obeyed by nobody. Arrays have the order of "
           "the decisions.", .last = 1),
    OBJECT("request", request, "What was asked for beside what the limits say; what is absent was left to the planner. A limit has the "
           "mode, cold_policy, context and predictors that are named here, no class more cores than `cores` gives it, and the layout has "
           "the form; `packed` may be true where packing makes the file no smaller, and the layout is then not packed.", ALWAYS),
    OWN("revision", PLAN_FORMAT_REVISION, NULL, ALWAYS),
    ROW("seed", PLAN_WHOLE, plan, seed, PLAN_BY_SOLVING, NULL, .most = INT64_MAX),
    ROW("solver", PLAN_TEXT, plan, solver, PLAN_BY_SOLVING, "Solver and version.", ALWAYS),
    ROW("tool", PLAN_TEXT, plan, tool, PLAN_BY_SOLVING, "Program and version that wrote the plan.", ALWAYS),
};
const struct plan_object plan_root = { root_fields, sizeof root_fields / sizeof *root_fields, 0 };

/* ---- what the rows mean ---- */

int64_t plan_whole(const struct plan_field *f, const void *value)
{
    int32_t of_4;
    uint32_t unsigned_4;
    uint64_t of_8;
    if (f->size == 1)
        return *(const signed char *)value;
    if (f->size == 4 && f->most > INT32_MAX)
        return memcpy(&unsigned_4, value, 4), unsigned_4;
    if (f->size == 4)
        return memcpy(&of_4, value, 4), of_4;
    return memcpy(&of_8, value, 8), (int64_t)of_8;
}

void *plan_place(const struct plan_field *f, void *object)
{
    char *at = (char *)object + f->at;
    int by_pointer = f->many >= PLAN_BY_LAYER || (f->kind == PLAN_OBJECTS && f->of->size && (f->start || !f->on_line));
    return by_pointer ? *(void **)(void *)at : at;
}

int plan_dims(const struct plan_field *f, const struct plan *p, const void *object, int dims[3])
{
    const struct plan_limit *l = object;
    switch (f->many) {
    case PLAN_ONE: return 0;
    case PLAN_ACCEPTANCE: return dims[0] = PLAN_ACCEPTANCES, 1;
    case PLAN_BY_PREDICTED_LAYER: return dims[0] = l->mode == PLAN_PREDICTED ? p->n_layers : 0, 1;
    case PLAN_BY_ALWAYS_LAYER: return dims[0] = l->mode == PLAN_PREDICTED || l->cold_bound > 0 ? p->n_layers : 0, 1;
    case PLAN_BY_LAYER:
    case PLAN_SET: return dims[0] = p->n_layers, 1;
    case PLAN_COLD: return dims[0] = p->n_layers, dims[1] = p->n_parts, 2;
    case PLAN_HOT: return dims[0] = p->n_layers, dims[1] = p->n_blocks, dims[2] = p->n_parts, 3;
    default: return dims[0] = *(const int *)(const void *)((const char *)object + f->count_at), 1;
    }
}
