#ifndef COMMON_PLAN_PLAN_H
#define COMMON_PLAN_PLAN_H

/* A plan: what the planner decided and predicts, what the packer lays out, what the runtime obeys.
 * JSON on disk (schemas/plan.schema.json), canonical: the same plan gives the same bytes.
 * Readers are strict: an unknown key, a missing one or a value out of range is ERR_FORMAT naming its
 * path ("decisions.limits[1].batches[0].hot[3]"). Its keys are rows of plan_fields.c. Plain data; thread-safe as such. */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/plan/cache.h"
#include "common/plan/layout.h"
#include "common/plan/reads.h"

#include <stddef.h>
#include <stdint.h>

#define PLAN_FORMAT "thermocline-plan" /* "thermo-plan" was that of versions before 0.2.0, which are refused by name */

#define PLAN_MAX_LIMITS  64
#define PLAN_MAX_BATCHES 16
#define PLAN_LARGEST_BATCH 32 /* that thermo-plan plans for */
#define PLAN_LARGEST_WEIGHT 64 /* of a batch size */
#define PLAN_MAX_CLASSES 8
#define PLAN_MAX_CORES   1024 /* that a request may name of one class */
#define PLAN_MAX_NOTES   64
#define PLAN_MAX_BYTES   (64u << 20) /* of the JSON text: 128 experts in 48 layers, 64 limits of 6 batch sizes each have 24 MB */

enum plan_mode { PLAN_EXACT, PLAN_DENSE, PLAN_PREDICTED, PLAN_MODES };
enum plan_io { PLAN_IO_AUTO, PLAN_IO_URING, PLAN_IO_PREAD, PLAN_IOS };
enum plan_cost { PLAN_COST_MEASURED, PLAN_COST_PAPER, PLAN_COSTS };
enum plan_ahead { PLAN_AHEAD_UNSTATED, PLAN_AHEAD_OFF, PLAN_AHEAD_ON }; /* experts that are read before their router has chosen */
enum plan_stat { PLAN_TYPICAL, PLAN_SUSTAINED, PLAN_STATS }; /* of measured samples: median, or the slow tenth */

/* What an accelerator computes in a pass beside hot neurons: flags. The head; the products of attention, of shared experts and of layers
 * before the experts', but for routers, which stay with the processor. */
enum plan_work { PLAN_WORK_FFN, PLAN_WORK_HEAD, PLAN_WORK_ATTENTION, PLAN_WORK_ALL, PLAN_WORKS };

const char *plan_work_name(enum plan_work w); /* "ffn" "head" "attention" "all" */
const char *plan_mode_name(enum plan_mode m); /* "exact" "dense" "predicted" */
const char *plan_io_name(enum plan_io b);     /* "auto" "io_uring" "pread" */
const char *plan_cost_name(enum plan_cost c); /* "measured" "paper" */
const char *plan_stat_name(enum plan_stat s); /* "typical" "sustained" */

/* What the cost model expects of one decode step, whole and per layer. Times in ns, per step.
 * total = attention + predict + max(ffn_compute, ffn_memory, ffn_engine, io) + exposed. */
struct plan_layer_figures {
    double attention_ns, predict_ns, ffn_compute_ns, ffn_memory_ns, io_ns, exposed_ns, total_ns;
    double ffn_engine_ns; /* until the processor's neurons and the accelerator's are computed, beside each other; 0: it has none */
    double active;        /* mean active neurons of a step (all blocks that run) */
    double read_bytes;    /* mean bytes read from flash */
    double hit_rate;      /* of the cold cache: hits / lookups, units */
};

/* The same as named columns, for text and reports. */
#define PLAN_COLUMNS 11
struct plan_column {
    const char *key;
    size_t at; /* offset of the double in struct plan_layer_figures */
};
extern const struct plan_column plan_columns[PLAN_COLUMNS];

static inline double *plan_column_at(struct plan_layer_figures *f, int column)
{
    return (double *)(void *)((char *)f + plan_columns[column].at);
}

struct plan_figures {
    double tokens_per_s;
    double step_ns, head_ns;    /* head_ns: embedding, final norm, output head */
    double read_bytes, hit_rate;
    struct plan_layer_figures *layers; /* [n_layers] */
};

/* A decode step by what takes its time: the parts of step_ns, in the cost model's measure. Time that sampling and telemetry take is in
 * none. */
enum plan_term {
    PLAN_TERM_ATTENTION,
    PLAN_TERM_PREDICT,          /* the predictor */
    PLAN_TERM_FFN,              /* computing and reading memory, without waiting for storage */
    PLAN_TERM_WAIT,             /* for storage */
    PLAN_TERM_HEAD,
    PLAN_TERMS
};
extern const char *const plan_term_names[PLAN_TERMS]; /* "attention" "predict" "ffn" "io_wait" "head" */
void plan_terms(enum plan_cost cost, enum plan_mode mode, const struct plan_figures *g, int n_layers, double out[PLAN_TERMS]);

/* Another way to make passes than a limit's own, which comes close to it or may be better when the machine is no longer as it was measured:
 * for whoever looks at what passes take. Prompts' passes keep the limit's threads and depth. No bit of any result depends on it. */
#define PLAN_MAX_ALTERNATIVES 8
struct plan_alternative {
    int threads, queue_depth;
    enum plan_io io;
    int coalesced;                  /* 1: reads go through gaps by the limit's rule; 0: they do not */
    int ahead;                  /* 1: experts are read before their router has chosen, as far as the limit lets them be; 0: they are not */
    double term_ns[PLAN_TERMS]; /* of a decode step at batch 1 */
};

struct plan_batch;
int plan_has_column(const struct plan_batch *b, int column); /* the accelerator's are there where it has neurons */

struct plan_class {             /* cores of one class used for compute */
    char name[32];
    int n;
};

/* One batch size: who computes and how many reads are in flight; resident prefix and cold cache per layer, which thermo-plan makes the
 * same for every batch size of a limit, for the runtime moves none (it takes those of batches[0]). */
struct plan_batch {
    int batch;
    int threads, n_classes;     /* threads: sum over classes, the main thread included; no more than the limit's */
    struct plan_class classes[PLAN_MAX_CLASSES];
    int queue_depth;            /* likewise */
    uint32_t engine_neurons;    /* of each FFN, the hottest of those in memory that the plan's engine computes; 0: none */
    enum plan_work engine_work; /* what else it computes */
    uint32_t *hot;              /* [layer][block][part]: neurons; whole clusters, or n_ff */
    uint32_t *cold;             /* [layer][part]: slots of one unit */
    unsigned char *streamed;    /* [layer] predicted mode, 1: the layer's predictors do not stay in memory but are read
                                 * whenever they are used */
    struct plan_figures predicted;
};

/* What the cost model expects of prompts of 1, 2, 4 ... tokens, the last PLAN_PROMPT_TOKENS or the context, in passes of the limit's chunk
 * (M27). The time to the first token is attention + ffn + wait of the prompt, and head. Times in ns, of the whole prompt. */
#define PLAN_PROMPT_TOKENS 512
#define PLAN_PROMPT_POINTS 16
struct plan_prompt {
    int n;                      /* points; 0: nothing is predicted, for the device's figures do not tell */
    int tokens[PLAN_PROMPT_POINTS]; /* ascending, from 1 on */
    double attention_ns[PLAN_PROMPT_POINTS], ffn_ns[PLAN_PROMPT_POINTS], wait_ns[PLAN_PROMPT_POINTS];
    double read_bytes[PLAN_PROMPT_POINTS]; /* from flash */
    double head_ns;
    int with_engine;            /* 1: engine_neurons are stated; 0: they are 0, and plan_pass_share says what passes have */
    uint32_t engine_neurons[PLAN_PROMPT_POINTS]; /* of each FFN, the hottest of those in memory that the plan's engine computes in a pass of
                                 * so many tokens, or, of longer prompts, of the limit's chunk; 0: none */
    enum plan_work engine_work[PLAN_PROMPT_POINTS]; /* and what else; FFN where engine_neurons are not stated */
    int rest_from;              /* passes of so many tokens or more, one of `tokens`, also have it compute the neurons that are not in
                                 * memory (rest.h); 0: none have */
    uint64_t area_bytes;        /* that these are read through */
};

/* Time to the first token of a prompt of so many tokens, ns: linear between the points, beyond the last in proportion; 0 where
 * nothing is predicted. */
double plan_prompt_ns(const struct plan_prompt *p, int tokens);
double plan_prompt_tokens_per_s(const struct plan_prompt *p); /* of the longest, without the head; 0 likewise */

/* What the cost model expects of passes over tokens of one sequence that follow each other, as those that guesses are held against are
 * (M30), at batch 1; and what guesses then bring at two shares of them that come true, from the source that was planned for. */
#define PLAN_PASSES      5      /* 1 2 4 8 16 tokens */
#define PLAN_GUESSES     8      /* of a pass, at most, among which the best number is */
#define PLAN_ACCEPTANCES 2
enum plan_source {
    PLAN_SOURCE_FREE,           /* it takes no time, as prompt lookup */
    PLAN_SOURCE_DRAFT,          /* a draft model */
    PLAN_SOURCE_MTP,            /* the model's own layer for multi-token prediction */
    PLAN_SOURCES
};
const char *plan_source_name(enum plan_source s); /* "lookup" "draft" "mtp" */

struct plan_guesses {
    int n;                      /* lengths; 0: nothing is predicted, else at least 2 */
    int tokens[PLAN_PASSES];    /* 1, and ascending */
    double pass_ns[PLAN_PASSES]; /* of a pass; the first is batches[0]'s step_ns, and none is less than the one before */
    double read_bytes[PLAN_PASSES]; /* from flash */
    double acceptance[PLAN_ACCEPTANCES]; /* shares of guesses that come true, ascending, above 0 and below 1 */
    int best[PLAN_ACCEPTANCES]; /* guesses of a pass that bring most; 0: none do */
    double speedup[PLAN_ACCEPTANCES]; /* with so many, against none */
    enum plan_source source;
    double guess_ns;            /* of a guess, for its source; 0: PLAN_SOURCE_FREE */
};

/* A pass over so many tokens, ns: linear between lengths, beyond the last as between the last two; 0: not predicted. */
double plan_pass_ns(const struct plan_guesses *g, int tokens);

/* Times the speed of no guesses, with so many in each pass, each of which takes guess_ns: expected tokens of a pass, 1 + a + ... + a^k
 * (Leviathan et al. 2023, arXiv:2211.17192, section 3.1), by its time, t(k + 1) + k guess_ns. n >= 2. */
double plan_guesses_speedup(const struct plan_guesses *g, double acceptance, double guess_ns, int guesses);

/* Of 0 to `most` guesses, as far as lengths go, the number that is fastest, of equals the least, and its *speedup. */
int plan_best_guesses(const struct plan_guesses *g, double acceptance, double guess_ns, int most, double *speedup);

/* Fills acceptance, best and speedup in, by its source's time. */
void plan_choose_guesses(struct plan_guesses *g);

/* A plan of several limits has one layout for all. What a plan for this limit alone would have, and make. */
struct plan_own {
    enum layout_form form;
    int packed;
    double tokens_per_s;        /* 0: not stated. Of several batch sizes the mean, as they were weighted */
    double cost;                /* share of it that the plan's layout loses, in [0, 1] */
};

/* How a packed model is loaded, where its buffers have the room: reads of so many bytes, so many in flight. */
#define PLAN_LOAD_PIECE (1u << 20)
#define PLAN_LOAD_DEPTH 8

/* What runs by a plan, and has memory of its own beside the model (room.h). */
enum plan_purpose { PLAN_FOR_GENERATE, PLAN_FOR_CHAT, PLAN_FOR_SERVE, PLAN_FOR_SERVER, PLAN_PURPOSES };
const char *plan_purpose_name(enum plan_purpose p); /* "generate" "chat" "serve" "thermo-serve" */

/* Limits between which a running model moves (thermo-run --elastic): their texts are the same, and their accounts have the same fixed part,
 * with room for what any of them needs. */
struct plan_elastic {
    int group;                  /* from 1 on; 0: in none, and the rest is 0 */
    int threads, io_lanes, queue_depth; /* the most of any limit of the group */
    uint32_t read_bytes;        /* likewise, plan_read_bytes */
    double token_cost, prompt_cost; /* shares of the speed of decoding and of prompts that being in it costs the limit, in [0, 1] */
};

/* What a limit in predicted mode was measured to lose against exact mode (thermo-run perplexity --against exact --store). */
struct plan_quality {
    uint64_t tokens;            /* that were scored; 0: not measured, and the rest is 0 */
    int window;
    double kl_mean, kl_max;     /* of the next token's distribution, nats */
    double top1, ppl_ratio;
    struct hash128 text;        /* of its token ids, i32 little-endian */
};
#define PLAN_QUALITY_FACTOR 1.5 /* of a request's max_kl that another text may show */

/* Configuration for one memory limit. */
struct plan_limit {
    uint64_t memory_bytes;      /* the user's limit */
    uint64_t account_bytes;     /* budget_compute().total of the largest batch, <= memory_bytes */
    uint64_t floor_bytes;
    double min_tokens_per_s;    /* the user's lower bound on speed at batch 1; 0: none */
    int context, kv_type, max_batch, prefill_chunk;
    enum plan_purpose purpose;  /* the account has its room */
    enum plan_mode mode;
    signed char *predictor;     /* [n_layers], predicted mode: enum predict_input (common/model/predict.h), or -1: this layer
                                 * runs exactly */
    double cold_bound;          /* exact mode, models with cold thresholds: where leaving a neuron beyond the first `always` out loses at
                                 * most so many nats for a token, it is left out; 0: none is */
    uint32_t *always;           /* [n_layers], predicted mode, and with a cold_bound: the first so many neurons of each block are always
                                 * computed, whole clusters or n_ff: so hot that predicting costs more than it saves */
    double recall;              /* predicted mode: of each predictor the operating point of least density that reaches
                                 * this recall is used, or its greatest recall; else 0 */
    int by_layer;               /* 1: those of each layer have their own recall, of which that is the least: */
    double *recalls;            /* [n_layers], 1 of layers that run exactly; see plan_recalls */
    int predictor_buffers;      /* predicted mode: read buffers for streamed predictors; 0: all stay in memory */
    int act_q8;                 /* int8 activations where weights allow; else float32 */
    int threads, n_classes;     /* of the batch size with most threads: which the account has, and prompts run with */
    struct plan_class classes[PLAN_MAX_CLASSES];
    enum plan_io io;
    int io_lanes, queue_depth;  /* queue_depth: the deepest of any batch size */
    double load_bytes_per_s;    /* what the device's figures say of large reads, as loading makes them (PLAN_LOAD_*); 0: nothing */
    int stream_tables;          /* 1: rows of embeddings that tokens look up are read, the tables are not in memory (struct budget_table) */
    int n_coalesce;                /* 0: neighbours share a read, units with a gap between them do not */
    struct reads_coalesce coalesce[READS_MAX_COALESCE]; /* ascending: where one read through gaps pays (common/plan/reads.h) */
    enum plan_ahead ahead;      /* in dense mode with experts; unstated, the runtime reads ahead as it sees fit */
    enum cache_policy policy;
    double gap;                 /* proven bound on (optimum - this) / optimum, in [0, 1]; the optimum is */
    int gap_of_layouts;         /* 1: of any layout that the request allows; 0: of the plan's layout */
    struct plan_own own;
    struct plan_elastic elastic;
    int optimal;                /* 1: solved to the end; 0: best verified within rlimit */
    struct plan_prompt prompt;
    struct plan_guesses guesses;
    struct plan_quality quality;
    int n_alternatives, n_alternative_times; /* the same */
    struct plan_alternative alternatives[PLAN_MAX_ALTERNATIVES];
    int n_batches;
    struct plan_batch *batches; /* ascending; batches[0].batch == 1, the last one's == max_batch */
};

#define PLAN_PROMPT_WEIGHT 1.0 /* where nothing was asked for */

/* What was asked for, as far as the limits do not say it. */
struct plan_request {
    int mode, form, packed, policy, predictor; /* the planner's enums; packed: 0, 1; each -1: left to the planner */
    int context;                /* 0: left to the planner */
    double recall;              /* 0: that of the predictors */
    double max_kl;              /* < 0: none */
    double prompt_weight;       /* tokens of prompts for each decoded token */
    int prefill_chunk;          /* 0: left to the planner */
    char engine[64];            /* the accelerator that was asked for, or "none"; "": left to the planner */
    int elastic;                /* 1: limits share what they can, in groups */
    int always_resident;        /* 1: predicted mode computes hot prefixes without a prediction */
    int n_weights;              /* 0: tokens of all batch sizes count the same; else as many as each limit has batch sizes */
    int weight[PLAN_MAX_BATCHES]; /* how many tokens are made at each batch size, in proportion: 1 to PLAN_LARGEST_WEIGHT */
    int n_cores;
    struct plan_class cores[PLAN_MAX_CLASSES]; /* most cores of these classes; of others all */
};

struct plan {
    char tool[64];              /* "thermo-plan 0.1.0" */
    char solver[64];            /* "z3 4.8.12", "exhaustive" */
    uint64_t seed, rlimit;
    enum plan_cost cost;
    enum plan_stat stat;        /* which figures of the device the predictions rest on */
    /* The model, and what of its shape the arrays below are indexed by. */
    char model_name[96];
    struct hash128 model_hash, trace_hash, order_hash, layout_hash, hardware_hash;
    char device[64];
    char engine[64];            /* the accelerator that batch sizes give neurons to, as --engine of thermo-run names it; "": none */
    int n_layers, n_blocks, n_ff, d_model;
    int widths[MODEL_MAX_LAYERS]; /* neurons of each layer's FFN where they differ, n_ff is the most; widths[0] 0: they do not */
    struct layout layout;       /* types of n_layers layers */
    enum layout_sort sort;      /* of the neurons, whose order order_hash identifies; tiles: 0 */
    int n_parts;                /* follows from layout.form */
    int n_notes;
    char **notes;               /* what the planner had to assume: figures the device lacks, limits it hit */
    struct plan_request request;
    int n_limits;
    struct plan_limit *limits;  /* ascending memory_bytes */
};

/* Neurons of a layer's FFN. */
static inline int plan_n_ff(const struct plan *p, int layer)
{
    return p->widths[0] ? p->widths[layer] : p->n_ff;
}

/* Do both limits read through gaps by the same rule? */
static inline int plan_same_coalesce(const struct plan_limit *a, const struct plan_limit *b)
{
    int n = a->n_coalesce, same = b->n_coalesce == n;
    for (int i = 0; i < n && same; i++)
        same = a->coalesce[i].bytes == b->coalesce[i].bytes && !(a->coalesce[i].weight < b->coalesce[i].weight) &&
               !(a->coalesce[i].weight > b->coalesce[i].weight);
    return same;
}

/* Bytes of the longest read that a limit asks for through gaps; 0: it has no joins. */
static inline uint32_t plan_read_bytes(const struct plan_limit *l)
{
    return l->n_coalesce ? l->coalesce[l->n_coalesce - 1].bytes : 0;
}

/* Threads of I/O that a back end has for so many reads in flight. */
int plan_lanes(enum plan_io io, int depth);

/* What a limit's account has room for: its own, and its alternatives'. */
struct plan_most {
    int threads, lanes, depth;
};
struct plan_most plan_most(const struct plan_limit *l);

static inline uint32_t plan_hot(const struct plan *p, const struct plan_batch *b, int layer, int block, int part)
{
    return b->hot[((size_t)layer * (size_t)p->n_blocks + (size_t)block) * (size_t)p->n_parts + (size_t)part];
}

static inline uint32_t plan_cold(const struct plan *p, const struct plan_batch *b, int layer, int part)
{
    return b->cold[(size_t)layer * (size_t)p->n_parts + (size_t)part];
}

/* What of a batch size is plain: its size, cores, queue depth and the engine's neurons. */
static inline void plan_batch_choice(struct plan_batch *to, const struct plan_batch *from)
{
    to->batch = from->batch;
    to->threads = from->threads;
    to->n_classes = from->n_classes;
    to->queue_depth = from->queue_depth;
    to->engine_neurons = from->engine_neurons;
    to->engine_work = from->engine_work;
    for (int i = 0; i < from->n_classes; i++)
        to->classes[i] = from->classes[i];
}

/* Neurons of each FFN that the plan's engine computes at any batch size of a limit, or in prompts, at most. */
static inline uint32_t plan_any_engine(const struct plan_limit *l)
{
    uint32_t most = 0;
    for (int i = 0; i < l->n_batches; i++)
        most = l->batches[i].engine_neurons > most ? l->batches[i].engine_neurons : most;
    for (int i = 0; i < l->prompt.n && l->prompt.with_engine; i++)
        most = l->prompt.engine_neurons[i] > most ? l->prompt.engine_neurons[i] : most;
    return most;
}

/* What else it computes at any of these, all of it. */
static inline enum plan_work plan_any_work(const struct plan_limit *l)
{
    unsigned all = 0;
    for (int i = 0; i < l->n_batches; i++)
        all |= (unsigned)l->batches[i].engine_work;
    for (int i = 0; i < l->prompt.n && l->prompt.with_engine; i++)
        all |= (unsigned)l->prompt.engine_work[i];
    return (enum plan_work)all;
}

static inline int plan_uses_engine(const struct plan_limit *l)
{
    return plan_any_engine(l) || plan_any_work(l) || (l->prompt.with_engine && l->prompt.rest_from);
}

/* What the plan's engine computes in a pass of so many tokens: neurons of each FFN, and what else. Those of the first batch size that holds
 * it; of larger passes those of the largest length of prompts that is not above it, or, where prompts have no heights, of the largest
 * batch size. */
struct plan_share {
    uint32_t neurons;
    enum plan_work work;
    int rest;                   /* 1: and all neurons that are not in memory */
};
struct plan_share plan_pass_share(const struct plan_limit *l, int tokens);

/* The same as a table: passes of up to so many tokens, ascending; the last one's 0 stands for all larger ones. Neighbours that are
 * equal are one. Where there are more than `most` (> 0), those beyond are one with the last of them, with what all of them have.
 * Returns how many. */
struct plan_height {
    int tokens;
    struct plan_share share;
};
int plan_heights(const struct plan_limit *l, struct plan_height *out, int most);

/* Recalls by layer; NULL: all layers have the limit's. Do two limits say the same? */
static inline const double *plan_recalls(const struct plan_limit *l)
{
    return l->by_layer ? l->recalls : NULL;
}
int plan_same_recall(const struct plan *p, const struct plan_limit *a, const struct plan_limit *b);

/* The largest batch of any limit, at least 1. */
static inline int plan_max_batch(const struct plan *p)
{
    int batch = 1;
    for (int i = 0; i < p->n_limits; i++)
        batch = p->limits[i].max_batch > batch ? p->limits[i].max_batch : batch;
    return batch;
}

/* Allocate the arrays of a limit with n_batches batches, zeroed, for p's shape (n_layers etc. are set). The
 * array of limits itself is the caller's malloc; plan_done frees it. */
int plan_limit_init(const struct plan *p, struct plan_limit *l, int n_batches, struct err *e);
void plan_limit_done(struct plan_limit *l); /* its arrays; accepts a zeroed one */
void plan_done(struct plan *p);             /* frees everything inside; accepts a zeroed one */

/* Append a note, cut to 400 bytes; a note that is already there is not repeated. */
int plan_note(struct plan *p, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* What two limits of a group have otherwise, for a message; NULL: nothing. Texts are the same then, and so is the account's fixed part but
 * for which predictors stay in memory. */
const char *plan_elastic_differs(const struct plan *p, const struct plan_limit *a, const struct plan_limit *b);

/* All checks that need no other file: the layout derives for this model, hot is whole clusters or n_ff,
 * cold <= units of the part, batches, joins and limits ascend, classes sum to threads, threads and queue depth of a limit are the
 * most of its batches', heights of prompts are those of the passes that they have, what guesses bring follows
 * from their passes, floor <= account <= memory, layout_hash equal to
 * layout_hash(layout). name stands for the file in messages. */
int plan_check(const struct plan *p, const char *name, struct err *e);

/* Are its layers' FFNs as wide as the model's? */
int plan_widths_are(const struct plan *p, const struct model_hparams *h);

/* Strict parse (types, ranges, array lengths, no unknown or missing key), then plan_check. While it runs
 * it needs memory of about ten times the text; afterwards only what the struct shows. plan_read reads the text in pieces;
 * plan_read_within takes at most so many bytes of memory for what the text says, or is ERR_LIMIT. */
int plan_parse(const char *json, size_t len, const char *name, struct plan *out, struct err *e);
int plan_read(const char *path, struct plan *out, struct err *e);
int plan_read_within(const char *path, size_t most, struct plan *out, struct err *e);

/* Canonical text, malloc'd: sorted keys, two-space indent, reals rounded to 6 significant digits (predictions
 * are not better than that), arrays of scalars on one line, newline at the end. ERR_FORMAT when the struct breaks
 * a rule that plan_parse checks: what is written can be read. plan_text(plan_parse(t)) == t for t so made. */
int plan_text(const struct plan *p, char **out, size_t *len, struct err *e);
int plan_write(const struct plan *p, const char *path, struct err *e); /* atomic */

/* The limit to run under: exactly `memory` when given and present; else the largest whose memory_bytes <=
 * memory; memory 0: the largest of the plan. NULL when none fits. */
const struct plan_limit *plan_pick(const struct plan *p, uint64_t memory);

#endif
