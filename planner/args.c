/* Options to a request. Lists ("1GiB,2GiB", "big=1,mid=3") are taken apart here; everything else is the
 * option table's. */
#include "planner/args.h"
#include "planner/describe/describe_inputs.h"
#include "planner/inputs/inputs_model.h"

#include "common/base/log.h"
#include "common/kernels/quant.h"
#include "common/offline/trace/trace.h"
#include "common/pack/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const cost_choices[] = { "measured", "paper", NULL };
static const char *const stat_choices[] = { "typical", "sustained", NULL };
static const char *const mode_choices[] = { "auto", "exact", "dense", "predicted", NULL };
static const char *const form_choices[] = { "auto", "split", "bundle", "two-phase", "tiles", NULL };
static const char *const predictor_choices[] = { "auto", "ffn", "block", "residual", NULL };
static const char *const packed_choices[] = { "auto", "no", "yes", NULL };
static const char *const act_choices[] = { "f32", "q8", NULL };
static const char *const purpose_choices[] = { "generate", "chat", "serve", "thermo-serve", NULL };
static const char *const order_choices[] = { "auto", "heat", "together", NULL };
static const char *const policy_choices[] = { "auto", "lru", "lfu", NULL };

void args_init(struct args *a)
{
    *a = (struct args){ .kv = KV_F16, .act = 1, .max_batch = 1, .rlimit = REQUEST_RLIMIT, .max_kl = -1, .prompt_weight = -1 };
}

void args_origin_rows(struct args_origin *a, int needed, struct opt rows[ARGS_ORIGIN_ROWS])
{
    const struct opt table[ARGS_ORIGIN_ROWS] = {
        { .name = "traces", .type = OPT_STRING, .dest = &a->traces, .arg = "FILE", .file = OPT_READ,
          .help = needed ? "The trace it was made from. This or --description is needed." :
                           "The trace it was made from." },
        { .name = "description", .type = OPT_STRING, .dest = &a->description, .arg = "FILE", .file = OPT_READ,
          .help = "The description of the model that it was made from, in place of --traces." },
        { .name = "hardware", .type = OPT_STRING, .dest = &a->hardware, .arg = "FILE", .file = OPT_READ_DB, .required = needed,
          .help = "The hardware database it was made from." },
        { .name = "device", .type = OPT_STRING, .dest = &a->device, .arg = "NAME", .help = "Device in the database.",
          .def = "the plan's" },
    };
    memcpy(rows, table, sizeof table);
}

void args_rows(struct args *a, struct opt *rows)
{
    const struct opt table[ARGS_ROWS] = {
        { .name = "traces", .type = OPT_STRING, .dest = &a->traces, .arg = "FILE", .file = OPT_READ,
          .help = "Activation trace of the model, from thermo-profile trace. This or --description is needed." },
        { .name = "description", .type = OPT_STRING, .dest = &a->description, .arg = "FILE", .file = OPT_READ,
          .help = "In place of --traces: the model described by published figures (JSON; "
                  "schemas/model-description.schema.json). Such a plan says how fast; no pack can be made from it." },
        { .name = "hardware", .type = OPT_STRING, .dest = &a->hardware, .arg = "FILE", .file = OPT_READ_DB, .required = 1,
          .help = "Hardware database, from thermo-profile hardware or import." },
        { .name = "device", .type = OPT_STRING, .dest = &a->device, .arg = "NAME",
          .help = "Device in the database to plan for.", .def = "the only one" },
        { .name = "memory", .type = OPT_STRING, .dest = &a->memory, .arg = "SIZES",
          .help = "Most memory the runtime may take, everything counted: 18MiB, or several limits: 1GiB,2GiB.",
          .def = "solve: of what was available when the device was measured, less what Android keeps free, seven eighths" },
        { .name = "min-speed", .type = OPT_DOUBLE, .dest = &a->min_speed, .arg = "T/S", .min = 0, .max = 1e9,
          .help = "Least tokens per second at batch 1.", .def = "none" },
        { .name = "cores", .type = OPT_STRING, .dest = &a->cores, .arg = "LIST",
          .help = "Most cores to compute with, by class: big=1,mid=3, or one number for all classes together where "
                  "there is one class.", .def = "all" },
        { .name = "context", .type = OPT_INT, .dest = &a->context, .arg = "N", .min = 1, .max = MODEL_MAX_CONTEXT,
          .help = "Positions of the KV cache, prompt and answer together.",
          .def = "the model's, at most 4096, whatever the memory" },
        { .name = "for", .type = OPT_CHOICE, .dest = &a->purpose, .arg = "COMMAND", .choices = purpose_choices,
          .help = "What runs by the plan: chat, serve and thermo-serve take memory beside the model, for the conversation or the requests "
                  "(thermo-serve also for connections, bodies and schemas, as its options are if nothing is said), and the account keeps "
                  "room for it.", .def = "generate" },
        { .name = "elastic", .type = OPT_FLAG, .dest = &a->elastic,
          .help = "The limits of --memory share what a running model cannot change, as far as there is room for it: thermo-run --elastic "
                  "moves between them. What that costs each is stated. Without an accelerator." },
        { .name = "max-batch", .type = OPT_INT, .dest = &a->max_batch, .arg = "N", .min = 1, .max = PLAN_LARGEST_BATCH,
          .help = "Plan for 1, 2, 4, 8 sequences up to this number.", .def = "1" },
        { .name = "batch-weights", .type = OPT_STRING, .dest = &a->batch_weights, .arg = "LIST",
          .help = "How many tokens are made at each of the batch sizes 1, 2, 4, 8 up to --max-batch, in proportion: "
                  "whole numbers, 8,1,1,2.",
          .def = "one sequence alone makes as many as all other batch sizes together, which make the same" },
        { .name = "chunk", .type = OPT_INT, .dest = &a->chunk, .arg = "N", .min = 1, .max = BUDGET_MAX_CHUNK,
          .help = "Tokens of a prompt that are processed at once.", .def = "chosen by --prompt-weight, at most 512" },
        { .name = "prompt-weight", .type = OPT_DOUBLE, .dest = &a->prompt_weight, .arg = "N", .min = 0, .max = 1e6,
          .help = "Tokens of prompts for each decoded token: how much the time of prompts counts where the chunk in which they are "
                  "processed, or an accelerator that computes for them, takes memory from neurons.", .def = "1" },
        { .name = "cost", .type = OPT_CHOICE, .dest = &a->cost, .arg = "MODEL", .choices = cost_choices,
          .help = "Cost model: measured curves, or the paper's Equations 1-11 (docs/cost-model.md).",
          .def = "measured" },
        { .name = "figures", .type = OPT_CHOICE, .dest = &a->stat, .arg = "KIND", .choices = stat_choices,
          .help = "Device figures to plan with: the medians, or those that last: what nine samples in ten reach, after minutes under load "
                  "where the device was measured so ('thermo-profile hardware --minutes').",
          .def = "typical" },
        { .name = "mode", .type = OPT_CHOICE, .dest = &a->mode, .arg = "MODE", .choices = mode_choices,
          .help = "exact: skip neurons whose gate is closed; dense: skip none; predicted: compute only those that the "
                  "trace's predictors predict to be active.",
          .def = "auto: exact where the activation gives zeros, of experts if dense is not faster" },
        { .name = "recall", .type = OPT_DOUBLE, .dest = &a->recall, .arg = "R", .min = 0.001, .max = 1,
          .help = "Predicted mode: recall of every predictor, the share of the firing neurons that it predicts.",
          .def = "what the predictors were made for" },
        { .name = "max-kl", .type = OPT_DOUBLE, .dest = &a->max_kl, .arg = "NATS", .min = 0, .max = 100,
          .help = "Largest loss of quality by predictors: mean divergence of the next token's distribution from exact "
                  "mode's, as measured in the trace. With --mode auto, the plan is in predicted mode where that is faster; "
                  "without --recall, the plan takes the least recall that stays below it. With --always-resident it is a budget: "
                  "each layer has a recall of its own, the lower the less of what it reads is lost by it. With --mode exact it is a "
                  "budget for leaving out cold neurons (thermo-profile trace --cold-thresholds). 0: exact mode.",
          .def = "none" },
        { .name = "always-resident", .type = OPT_FLAG, .dest = &a->always_resident,
          .help = "Predicted mode: neurons in memory, of each layer's hot prefix, are always computed, and predictors choose among the "
                  "others alone. At the same --recall less is lost, so a lower one, which reads less, loses as little; --max-kl "
                  "chooses it." },
        { .name = "predictor", .type = OPT_CHOICE, .dest = &a->predictor, .arg = "INPUT",
          .choices = predictor_choices,
          .help = "Predicted mode: predictors that see the FFN's input (ffn), the transformer block's input (block: "
                  "reads overlap attention) or the residual stream.", .def = "auto: the faster" },
        { .name = "form", .type = OPT_CHOICE, .dest = &a->form, .arg = "FORM", .choices = form_choices,
          .help = "How the pack stores neurons: gates apart (split), whole neurons (bundle), whole neurons whose gate "
                  "can be read without the rest (two-phase), or the model's own bytes in tiles of up to 256 neurons (tiles; dense "
                  "mode only).",
          .def = "auto: the faster; in dense mode tiles where Down has quant blocks and --down-type is not given" },
        { .name = "packed", .type = OPT_CHOICE, .dest = &a->packed, .arg = "CHOICE", .choices = packed_choices,
          .help = "no: each read unit begins at a block of the device; yes: units follow each other without gaps, "
                  "which gives a smaller file and slightly larger reads.", .def = "auto: the faster, of equals the smaller file" },
        { .name = "kv", .type = OPT_CHOICE, .dest = &a->kv, .arg = "TYPE", .choices = kv_type_names,
          .help = "Type of the KV cache: numbers, or blocks of 32 of a head's (docs/kv-cache.md).", .def = "f16" },
        { .name = "act", .type = OPT_CHOICE, .dest = &a->act, .arg = "FORM", .choices = act_choices,
          .help = "Activations in row products: int8 where the weights allow it, as llama.cpp computes, or float: exact, "
                  "and slower.", .def = "q8" },
        { .name = "down-type", .type = OPT_STRING, .dest = &a->down_type, .arg = "TYPE",
          .help = "Type that Down is stored in by neuron, in all layers: Q8_0, F16, ...; source: in each layer the model's.",
          .def = "the model's where it is a float type, else Q8_0" },
        { .name = "gate-type", .type = OPT_STRING, .dest = &a->gate_type, .arg = "TYPE",
          .help = "Type that Gate is stored in, in all layers: Q3_K, Q4_0, ... Gates of all neurons are needed for each token, so fewer "
                  "bits of them leave memory for more hot neurons. thermo-pack corrects the error by the inputs that the trace sampled.",
          .def = "the model's" },
        { .name = "cluster-neurons", .type = OPT_INT, .dest = &a->cluster_neurons, .arg = "N", .min = 8, .max = 4096,
          .help = "Neurons of a cluster, a multiple of 8; tiles have as many, up to 256, if it is a power of two.",
          .def = "64, in tiles 256" },
        { .name = "order", .type = OPT_CHOICE, .dest = &a->order, .arg = "ORDER", .choices = order_choices,
          .help = "How the pack orders neurons. heat: from hot to cold; together: of about equal heat, those that fire in the same tokens "
                  "beside each other, so that what misses is read in fewer, longer reads. Not for tiles, which keep the model's.",
          .def = "auto: that of --for-pack, else heat" },
        { .name = "policy", .type = OPT_CHOICE, .dest = &a->policy, .arg = "NAME", .choices = policy_choices,
          .help = "Eviction policy of the cold cache.", .def = "auto: the one that misses less in the trace" },
        { .name = "engine", .type = OPT_STRING, .dest = &a->engine, .arg = "NAME",
          .help = "Accelerator of the device that computes the hottest neurons of each FFN where that is faster, of batch sizes and of "
                  "prompts: its name in the database, or none.", .def = "auto: the first that thermo-run knows" },
        { .name = "for-pack", .type = OPT_STRING, .dest = &a->for_pack, .arg = "FILE", .file = OPT_READ,
          .help = "Plan for the layout of this pack, so that it need not be packed again.", .def = "none" },
        { .name = "corrections", .type = OPT_FLAG, .dest = &a->corrections,
          .help = "Multiply predicted times by the device's newest corrections (thermo-plan calibrate --store)." },
        { .name = "no-verify", .type = OPT_FLAG, .dest = &a->no_verify,
          .help = "Do not first compare the trace with its hashes, as thermo-profile show --verify does: that takes a second "
                  "per 100 MB of trace." },
    };
    memcpy(rows, table, sizeof table);
}

void args_guesser_rows(struct args_guesser *a, struct opt rows[ARGS_GUESSER_ROWS])
{
    const struct opt table[ARGS_GUESSER_ROWS] = {
        { .name = "draft-plan", .type = OPT_STRING, .dest = &a->draft_plan, .arg = "FILE", .file = OPT_READ,
          .help = "Guesses of further tokens are a draft model's, whose plan this is, for the same device: the time that they take counts "
                  "in how many are the fastest. The draft's memory is no part of --memory here.",
          .def = "they take no time, as those of --guess lookup" },
        { .name = "draft-memory", .type = OPT_SIZE, .dest = &a->draft_memory, .arg = "SIZE",
          .help = "With --draft-plan: its largest limit within that.", .def = "its largest" },
        { .name = "mtp", .type = OPT_STRING, .dest = &a->mtp, .arg = "FILE", .file = OPT_READ,
          .help = "Guesses are those of the model's own layer for multi-token prediction, packed by thermo-pack mtp; likewise." },
    };
    memcpy(rows, table, sizeof table);
}

int args_guesser_of(const struct args_guesser *a, const struct args_inputs *in, struct guesser *out, struct err *e)
{
    if (a->draft_memory && !a->draft_plan)
        return err_set(e, ERR_USAGE, "--draft-memory belongs to --draft-plan");
    if (a->draft_plan && a->mtp)
        return err_set(e, ERR_USAGE, "--draft-plan does not go with --mtp: one of them guesses");
    if (a->draft_plan)
        return planning_draft(a->draft_plan, a->draft_memory, in->hw.name, out, e);
    return a->mtp ? planning_mtp(a->mtp, &in->in, out, e) : 0;
}

/* Next item of a comma-separated list, copied; 0 at the end. */
static int next_item(const char **list, char *out, size_t len)
{
    if (!*list || !**list)
        return 0;
    size_t n = strcspn(*list, ",");
    size_t copy = n < len - 1 ? n : len - 1;
    memcpy(out, *list, copy);
    out[copy] = '\0';
    *list += n + ((*list)[n] == ',');
    return 1;
}

static int by_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int parse_memory(const char *list, struct request *q, struct err *e)
{
    char item[64];
    uint64_t v;
    while (next_item(&list, item, sizeof item)) {
        int r = size_parse(item, &v, e);
        if (r < 0)
            return err_wrap(e, "--memory");
        if (v == 0 || v > INT64_MAX)
            return err_set(e, ERR_USAGE, "--memory: '%s' is out of range", item);
        if (q->n_memory == PLAN_MAX_LIMITS)
            return err_set(e, ERR_USAGE, "--memory has more than the limit of %d values", PLAN_MAX_LIMITS);
        q->memory[q->n_memory++] = v;
    }
    qsort(q->memory, (size_t)q->n_memory, sizeof *q->memory, by_u64);
    for (int i = 1; i < q->n_memory; i++)
        if (q->memory[i] == q->memory[i - 1])
            return err_set(e, ERR_USAGE, "--memory: %llu bytes are given twice", (unsigned long long)q->memory[i]);
    return 0;
}

static int class_by_name(const struct hw *hw, const char *name)
{
    for (int k = 0; k < hw->n_classes; k++)
        if (!strcmp(hw->classes[k].name, name))
            return k;
    return -1;
}

static int parse_cores(const char *list, const struct hw *hw, struct request *q, struct err *e)
{
    char item[96], known[200] = "";
    for (int k = 0; k < hw->n_classes; k++) {
        strncat(known, k ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, hw->classes[k].name, sizeof known - strlen(known) - 1);
    }
    while (next_item(&list, item, sizeof item)) {
        char *eq = strchr(item, '='), *end;
        int k = hw->n_classes == 1 ? 0 : -1;
        if (eq) {
            *eq = '\0';
            k = class_by_name(hw, item);
        }
        const char *number = eq ? eq + 1 : item;
        long n = strtol(number, &end, 10);
        if (k < 0)
            return err_set(e, ERR_USAGE, "--cores: '%s' names no core class of device '%s'; it has: %s", item,
                           hw->name, known);
        if (end == number || *end || n < 0 || n > PLAN_MAX_CORES)
            return err_set(e, ERR_USAGE, "--cores: '%s' is not a number of cores from 0 to %d", number, PLAN_MAX_CORES);
        q->cores[k] = (int)n;
    }
    return 0;
}

/* One number for each batch size that is planned for. */
static int parse_weights(const char *list, int n, struct request *q, struct err *e)
{
    char item[64], *end;
    int given = 0;
    while (next_item(&list, item, sizeof item)) {
        long w = strtol(item, &end, 10);
        if (end == item || *end || w < 1 || w > PLAN_LARGEST_WEIGHT)
            return err_set(e, ERR_USAGE, "--batch-weights: '%s' is not a whole number from 1 to %d", item, PLAN_LARGEST_WEIGHT);
        if (given < n)
            q->weight[given] = (int)w;
        given++;
    }
    return given == n ? 0 : err_set(e, ERR_USAGE, "--batch-weights: %d numbers for %d batch sizes (--max-batch %d)", given, n,
                                    q->max_batch);
}

/* A name must be that of an accelerator with figures. */
static int parse_engine(const char *name, const struct hw *hw, struct request *q, struct err *e)
{
    char known[200] = "";
    if (!name || !strcmp(name, "auto"))
        return 0;
    snprintf(q->engine, sizeof q->engine, "%.63s", name);
    if (!strcmp(name, "none"))
        return 0;
    if (q->cost == PLAN_COST_PAPER)
        return err_set(e, ERR_USAGE, "--engine '%s': the paper's equations (--cost paper) know of no accelerator", name);
    if (request_engine(q, hw))
        return 0;
    for (int i = 0; i < hw->n_accels; i++) {
        strncat(known, known[0] ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, hw->accels[i].engine, sizeof known - strlen(known) - 1);
    }
    return err_set(e, ERR_USAGE, "--engine: device '%s' has no figures of products by '%s'; accelerators that it has: %s", hw->name, name,
                   known[0] ? known : "none");
}

static int parse_down_type(const char *text, const struct inputs *in, int *type, struct err *e)
{
    *type = -1;
    if (!text)
        return 0;
    int ok = 1;
    *type = !strcmp(text, "source") ? LAYOUTS_DOWN_SOURCE : quant_by_name(text);
    if (*type != LAYOUTS_DOWN_SOURCE)
        ok = *type >= 0 && quant_traits((uint32_t)*type)->quant;
    for (int l = 0; l < in->n_layers && *type == LAYOUTS_DOWN_SOURCE && !in->h.down_by_neuron; l++)
        ok = ok && quant_traits(in->layers[l].ffn_type[LAYOUT_DOWN])->quant;
    return ok ? 0 : err_set(e, ERR_USAGE, "--down-type: '%s' is not a type that rows can be stored in here", text);
}

int args_load_model_of(const char *traces, const char *description, const struct plan *p, struct inputs *out, struct err *e)
{
    int r = args_load_model(traces, description, plan_max_batch(p), p->sort, out, NULL, e);
    return r < 0 ? r : inputs_use_cold(out, p->limits[0].cold_bound, e);
}

static int parse_gate_type(const char *text, int *type, struct err *e)
{
    *type = text ? quant_by_name(text) : -1;
    if (text && (*type < 0 || !quant_traits((uint32_t)*type)->quant))
        return err_set(e, ERR_USAGE, "--gate-type: '%s' is not a type that rows can be stored in", text);
    return 0;
}

int args_load_model(const char *traces, const char *description, int max_batch, enum layout_sort sort, struct inputs *out,
                    struct notes *notes, struct err *e)
{
    if (!traces == !description)
        return err_set(e, ERR_USAGE, traces ? "--traces and --description do not go together: the model is described "
                                              "by one of them" :
                                              "--traces or --description is needed: where is the model described?");
    if (description && sort == LAYOUT_TOGETHER)
        return err_set(e, ERR_USAGE, "--order together needs --traces: a description does not say which neurons fire in the same tokens");
    return traces ? inputs_from_trace(traces, max_batch, sort, out, e) :
                    describe_inputs(description, max_batch, out, notes, e);
}

int args_load_hw(const char *path, const char *name, struct hw *out, struct err *e)
{
    return hwdb_load(path, name, out, e);
}

int args_load_hw_of(const char *path, const char *name, const struct plan *p, struct hw *out, struct err *e)
{
    int r = args_load_hw(path, name ? name : p->device, out, e);
    if (r == 0 && !hash_equal(out->hash, p->hardware_hash) && (r = hwdb_correct(path, &p->hardware_hash, out, e)) < 0)
        hw_free(out);
    return r < 0 ? r : 0;
}

void args_corrections_text(const struct hw *hw, char *out, size_t len)
{
    int n = snprintf(out, len, "calibration %lld:", (long long)hw->calibration);
    for (int t = 0; t < HW_TERMS && n > 0 && (size_t)n < len; t++)
        if (hw->correction[t] > 0)
            n += snprintf(out + n, len - (size_t)n, "%s %s %.4g", out[n - 1] == ':' ? "" : ",",
                          hw_term_name((enum hw_term)t), hw->correction[t]);
}

static int load_corrections(const struct args *a, struct args_inputs *o, struct err *e)
{
    char text[160];
    if (a->cost == PLAN_COST_PAPER)
        return err_set(e, ERR_USAGE, "--corrections belong to --cost measured; the paper's equations have other terms");
    if (a->stat == PLAN_SUSTAINED)
        return err_set(e, ERR_USAGE, "--corrections are over typical figures; they do not go with --figures sustained");
    int r = hwdb_correct(a->hardware, NULL, &o->hw, e);
    if (r < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_USAGE, "--corrections: '%s' holds none for device '%s' as it is measured now; "
                                     "thermo-plan calibrate --store makes them", a->hardware, o->hw.name);
    args_corrections_text(&o->hw, text, sizeof text);
    notes_add(&o->notes, "times corrected by %s", text);
    return 0;
}

/* The trace with the other order, where that may be the pack's. */
static int load_sorted(const struct args *asked, const struct pack *p, struct args_inputs *o, struct err *e)
{
    if (asked->order || !asked->traces || !hash_equal(p->model_hash, o->in.model_hash) ||
        hash_equal(p->order_hash, inputs_order_hash(&o->in, p->shapes.l.form)))
        return 0;
    inputs_done(&o->in);
    return args_load_model(asked->traces, NULL, asked->max_batch, LAYOUT_TOGETHER, &o->in, NULL, e);
}

static int load_pack(const struct args *asked, struct args_inputs *o, struct err *e)
{
    const char *path = asked->for_pack;
    struct pack *p;
    int r = pack_open(path, &p, e);
    if (r < 0)
        return r;
    if ((r = load_sorted(asked, p, o, e)) < 0) {
        pack_close(p);
        return r;
    }
    struct hash128 order = inputs_order_hash(&o->in, p->shapes.l.form);
    if (!hash_equal(p->model_hash, o->in.model_hash) || !hash_equal(p->order_hash, order)) {
        char a[HASH_TEXT], b[HASH_TEXT];
        int model = !hash_equal(p->model_hash, o->in.model_hash);
        hash_text(model ? p->model_hash : p->order_hash, a);
        hash_text(model ? o->in.model_hash : order, b);
        r = err_set(e, ERR_MISMATCH, "pack '%s' and the trace have different %s: %s and %s", path,
                    model ? "models" : "neuron orders", a, b);
    } else {
        o->pack_layout = p->shapes.l;
        o->request.for_pack = &o->pack_layout;
    }
    pack_close(p);
    return r;
}

static int check_elastic(const struct args *a, struct request *q, struct err *e)
{
    if (q->n_memory == 1)
        return err_set(e, ERR_USAGE, "--elastic is of several limits that share something: --memory names one");
    if (q->cost == PLAN_COST_PAPER)
        return err_set(e, ERR_USAGE, "--elastic does not go with --cost paper, whose equations know of no room that limits share");
    if (a->engine && strcmp(a->engine, "none") != 0)
        return err_set(e, ERR_USAGE, "--elastic does not go with --engine %s: an accelerator has the neurons that are in memory",
                       a->engine);
    snprintf(q->engine, sizeof q->engine, "none");
    return 0;
}

static int fill_request(const struct args *a, struct args_inputs *o, struct err *e)
{
    struct request *q = &o->request;
    int r;
    q->min_tokens_per_s = a->min_speed;
    q->context = a->context;
    q->max_batch = a->max_batch;
    q->purpose = (enum plan_purpose)a->purpose;
    q->chunk = a->chunk;
    q->cost = (enum plan_cost)a->cost;
    q->stat = (enum plan_stat)a->stat;
    q->mode = a->mode - 1;
    q->form = a->form - 1;
    q->packed = a->packed - 1;
    q->max_kl = a->max_kl;
    q->prompt_weight = a->prompt_weight >= 0 ? a->prompt_weight : PLAN_PROMPT_WEIGHT;
    q->recall = a->recall;
    q->always_resident = a->always_resident;
    q->predictor = a->predictor - 1;
    q->kv_type = a->kv;
    q->act_q8 = a->act;
    if ((r = parse_engine(a->engine, &o->hw, q, e)) < 0)
        return r;
    q->cluster_neurons = (uint32_t)a->cluster_neurons;
    q->policy = a->policy - 1;
    q->rlimit = a->rlimit;
    if ((r = parse_memory(a->memory, q, e)) < 0 || (r = parse_cores(a->cores, &o->hw, q, e)) < 0 ||
        (r = parse_down_type(a->down_type, &o->in, &q->down_type, e)) < 0 ||
        (r = parse_gate_type(a->gate_type, &q->gate_type, e)) < 0 ||
        (a->batch_weights && (r = parse_weights(a->batch_weights, o->in.n_batches, q, e)) < 0))
        return r;
    if ((q->elastic = a->elastic) && (r = check_elastic(a, q, e)) < 0)
        return r;
    if (q->chunk > planning_context(q, &o->in))
        return err_set(e, ERR_USAGE, "--chunk %d is more than the context of %d", q->chunk, planning_context(q, &o->in));
    if (q->chunk && a->prompt_weight >= 0)
        return err_set(e, ERR_USAGE, "--prompt-weight chooses the chunk, which --chunk gives");
    if (a->always_resident && (q->elastic || q->cost == PLAN_COST_PAPER || q->min_tokens_per_s > 0))
        return err_set(e, ERR_USAGE, "--always-resident does not go with %s", q->elastic ? "--elastic: what is in memory differs, and the "
                       "text with it" : q->cost == PLAN_COST_PAPER ? "--cost paper" : "--min-speed: it computes more than what is solved");
    if (q->mode >= 0 && q->mode != PLAN_PREDICTED && (a->recall > 0 || a->predictor || a->always_resident))
        return err_set(e, ERR_USAGE, "--recall, --predictor and --always-resident belong to predicted mode, not to --mode %s",
                       plan_mode_name((enum plan_mode)q->mode));
    if (q->mode == PLAN_DENSE && a->max_kl >= 0)
        return err_set(e, ERR_USAGE, "--max-kl belongs to predicted and exact mode, not to --mode dense");
    if (q->mode < 0 && a->max_kl < 0 && (a->recall > 0 || a->predictor || a->always_resident))
        return err_set(e, ERR_USAGE, "--recall, --predictor and --always-resident belong to predicted mode: --mode predicted asks for it, "
                                     "and so does --max-kl, where it is faster");
    if (a->for_pack && (a->form || a->packed || a->down_type || a->gate_type || a->cluster_neurons))
        return err_set(e, ERR_USAGE, "--for-pack takes the layout of the pack: --form, --packed, --down-type, --gate-type and "
                                     "--cluster-neurons do not go with it");
    return a->for_pack ? load_pack(a, o, e) : 0;
}

int args_load(const struct args *a, int need_memory, struct args_inputs *out, struct err *e)
{
    struct args with = *a;
    char memory[32];
    int r = args_load_hw(a->hardware, a->device, &out->hw, e);
    if (r < 0)
        return r;
    if (need_memory && !a->memory) {
        uint64_t there = out->hw.available_bytes, limit = there - there / ARGS_LEFT_PART;
        if (!there) {
            args_done(out);
            return err_set(e, ERR_USAGE, "--memory is needed: how many bytes may the runtime take? The figures tell of none available");
        }
        snprintf(memory, sizeof memory, "%llu", (unsigned long long)limit);
        log_info("--memory %s: what was available on the device when it was measured, less an eighth", memory);
        with.memory = memory;
        a = &with;
    }
    request_init(&out->request);
    if (a->corrections && (r = load_corrections(a, out, e)) < 0) {
        args_done(out);
        return r;
    }
    enum layout_sort sort = a->order ? (enum layout_sort)(a->order - 1) : LAYOUT_HEAT;
    if ((r = args_load_model(a->traces, a->description, a->max_batch, sort, &out->in, &out->notes, e)) < 0 ||
        (r = a->traces && !a->no_verify ? trace_verify(out->in.trace, e) : 0) < 0 || (r = fill_request(a, out, e)) < 0)
        args_done(out);
    return r;
}

/* The value of a flag of thermo-profile trace, "--act relu" or "--act=relu", among words; 0: it is not there. */
static int flag_of(const char *words, const char *name, char *out, size_t len)
{
    size_t n = strlen(name);
    for (const char *w = words; w && *w; w += strcspn(w, " \t\n")) {
        w += strspn(w, " \t\n");
        if (strncmp(w, name, n) || !strchr("= \t\n", w[n]) || !w[n])
            continue;
        const char *value = w + n + 1 + strspn(w + n + 1, " \t\n");
        snprintf(out, len, "%.*s", (int)strcspn(value, " \t\n"), value);
        return 1;
    }
    return 0;
}

static int parse_stated(const char *flags, struct inputs_stated *out, struct err *e)
{
    char value[64];
    *out = (struct inputs_stated){ .act = -1 };
    if (flag_of(flags, "--act", value, sizeof value) && (out->act = model_act_by_name(value)) < 0)
        return err_set(e, ERR_USAGE, "--trace-flags: --act '%s' is no activation; silu, relu and drelu are", value);
    if (flag_of(flags, "--expert-gating", value, sizeof value)) {
        out->router = !strcmp(value, "softmax") ? MODEL_ROUTER_SOFTMAX_TOPK : !strcmp(value, "sigmoid") ? MODEL_ROUTER_SIGMOID_TOPK :
                                                                                                          MODEL_ROUTER_NONE;
        if (out->router == MODEL_ROUTER_NONE)
            return err_set(e, ERR_USAGE, "--trace-flags: --expert-gating '%s' is neither softmax nor sigmoid", value);
    }
    out->silenced = flag_of(flags, "--silence", value, sizeof value) || (flags && strstr(flags, "--cold-thresholds"));
    return 0;
}

int args_load_untraced(const struct args *a, const char *model, const char *trace_flags, struct args_inputs *out, struct err *e)
{
    struct args plain = *a;
    struct inputs_stated stated;
    if (a->traces || a->description || a->for_pack)
        return err_set(e, ERR_USAGE, "--model asks before there is a trace: --traces, --description and --for-pack do not go with it");
    if (!a->memory)
        return err_set(e, ERR_USAGE, "--memory is needed: how many bytes may the runtime take?");
    plain.cores = NULL;
    plain.engine = NULL;
    request_init(&out->request);
    int r = parse_stated(trace_flags, &stated, e);
    if (r == 0 && (r = inputs_from_model(model, &stated, a->max_batch, &out->in, e)) == 0 && (r = fill_request(&plain, out, e)) < 0)
        args_done(out);
    return r;
}

void args_done(struct args_inputs *in)
{
    inputs_done(&in->in);
    hw_free(&in->hw);
}
