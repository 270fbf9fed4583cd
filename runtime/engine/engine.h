#ifndef RUNTIME_ENGINE_ENGINE_H
#define RUNTIME_ENGINE_ENGINE_H

/* A loaded model. An engine holds the weights (constant), the KV cache of max_batch sequences, and
 * the pipeline that brings cold neurons in; a forward pass takes any mix of tokens of its sequences.
 *
 * Logits are the same bytes whatever the memory, threads, chunks, backend or timing (one processor
 * tier; in predicted mode, for the same predictors, recall and always computed neurons): see README.md. One thread
 * uses an engine at a time. runtime/session/session.h is what programs use: one sequence, its position and its sampler. */
#include "common/base/cancel.h"
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/pack/pack.h"
#include "common/plan/budget.h"
#include "common/plan/cache.h"
#include "common/plan/plan.h"

#include "common/accel/accel.h"
#include "runtime/engine/dense.h"
#include "runtime/engine/token.h"
#include "runtime/io/io.h"

#include <stdint.h>

struct engine;
struct kv_store;

/* ---- an accelerator (common/accel/accel.h, docs/engines.md) ---- */

#define ENGINE_MAX_HEIGHTS 16

/* What it computes in passes of up to so many tokens: hot neurons of each FFN, whole clusters, at most what is resident; and what else. */
struct engine_height {
    int tokens;                   /* 0, of the last: all larger passes */
    uint32_t neurons;             /* or, where this is 0, */
    double share;                 /* of the FFN's, 0 to 1 */
    enum plan_work work;
    int rest;                     /* 1: and the neurons that are not resident, read through choice.area_bytes; models without experts */
};

struct engine_accel_config {
    struct accel *accel;          /* opened, nothing added; the engine closes it. NULL: there is none */
    enum plan_work work;          /* all that heights have: what is prepared */
    struct engine_height heights[ENGINE_MAX_HEIGHTS]; /* tokens ascend; a pass is by the first that holds it, or by the last */
    int n_heights;
    int fail_exit;                /* 1: a fault ends the pass with ERR_IO; 0: the processor goes on alone */
};

struct engine_accel_stats {
    uint64_t passes, neurons;     /* with its help; of FFNs, computed by it, for how many tokens whatever */
    uint64_t rest_neurons;        /* of these, read for it */
    uint64_t wait_ns;             /* for it, when the processor was done */
    uint64_t products;            /* other than FFNs' */
};

/* ---- the engine ---- */

/* Who computes a pass of up to so many tokens, and how many reads are in flight. */
struct engine_batch {
    int tokens, threads, depth;   /* no more threads and reads than the choice has */
    const int *cpus;              /* [threads] to pin workers to, or NULL */
};

/* A way to make passes: who reads and how, and, of passes that no batch size holds or, but for the first way, of those that one holds,
 * threads and reads in flight. */
struct engine_way {
    enum plan_io io;
    int threads, depth, lanes;    /* no more than the choice has */
    int no_coalesce, no_ahead;       /* 1: reads through no gaps; as no_ahead below */
};

struct engine_config {
    const struct pack *pack;      /* outlives the engine */
    const struct engine *trunk;   /* of a layer that predicts further tokens: its model's engine, which outlives this one, and whose
                                   * embeddings and head it uses where it has none of its own. Else NULL */
    struct budget_choice choice;  /* hot and cold outlive the engine */
    enum plan_mode mode;
    /* Predicted mode, as in struct plan_limit; they outlive the engine. The choice's predictors, predictor_bytes and
     * predictor_buffers belong to them. */
    const signed char *predictor; /* [n_layers] */
    const unsigned char *streamed; /* [n_layers] 1: predictors of the layer are read whenever they are used; NULL: of none */
    const uint32_t *always;       /* [n_layers] */
    double recall;
    const double *recalls;        /* [n_layers]; NULL: recall in all */
    double cold_bound;            /* exact mode, packs with cold thresholds: neurons but for the first always[layer] are left out of passes
                                   * that may approximate where that loses at most so many nats; 0: none are */
    int act_q8;
    enum plan_io io;
    enum cache_policy policy;
    const struct reads_coalesce *coalesce; /* [n_coalesce]; outlives the engine. choice.read_bytes belongs to them */
    int n_coalesce;
    const struct cancel *cancel;  /* of engine_open, which ends with ERR_INTR when it is asked; or NULL */
    /* NULL, or what sees the residuals x, f32[n][d_model], of a pass's tokens as they enter layer dump_layer (op OP_EMBED) and after each
     * operation of its graph that changes them. */
    void (*dump)(void *ctx, enum op_kind op, const struct engine_token *tokens, int n, const float *x);
    void *dump_ctx;
    int dump_layer;
    int mlock;
    size_t reserve;               /* 0; else it is elastic, with this much address space for what the arena may have (arena.h) */
    const int *cpus;              /* [threads] to pin workers to, or NULL */
    const struct engine_batch *batches; /* [n_batches], tokens ascend: a pass is by the first that holds it. They outlive the engine */
    int n_batches;                /* at most PLAN_MAX_BATCHES */
    struct engine_batch rest;     /* a larger one, such as a prompt's; threads 0: by the choice's threads and depth, and cpus */
    const struct engine_way *variants; /* [n_variants], the first one is used until engine_use_way; they outlive the engine. NULL: the
                                   * choice, io and no_ahead are all that there is */
    int n_variants;
    int no_prefetch;              /* 1: no reads before attention (for measurements) */
    int no_ahead;                 /* 1: experts are not read before their router has chosen */
    int no_warm_start;            /* 1: the cold cache is empty at first */
    const struct dense_backend *dense; /* who does dense work; NULL: the processor */
    struct engine_accel_config accel; /* beside the processor, for FFNs of hot neurons and products */
    int no_verify;                /* 1: what is read while the model runs is not verified (for measurements) */
    int no_overlap;               /* 1: reads first, then arithmetic (for measurements) */
    /* For tests. */
    const struct io_backend *backend; /* instead of io */
    int buffered;
    int (*fault)(void *ctx, const struct io_request *r, int result);
    void *fault_ctx;
};

/* Do engine_forward's passes differ from those of engine_forward_exact? */
static inline int engine_approximates(const struct engine_config *c)
{
    return c->mode == PLAN_PREDICTED || c->cold_bound > 0;
}

/* Running totals since open (or engine_stats_reset); times in ns. */
struct engine_stats {
    uint64_t passes, tokens;
    uint64_t passes_by[PLAN_MAX_BATCHES + 1]; /* of the passes, by the configuration's batches; by the choice: the last */
    uint64_t reads, read_bytes;               /* from flash, whole blocks */
    uint64_t predictor_bytes;                 /* of those, streamed predictors */
    uint64_t lookups, hits, evictions, refused; /* of the cold cache, units */
    uint64_t gate_lookups, gate_hits;         /* of those, in parts that hold gates */
    uint64_t prefetched, prefetches_used;     /* units read ahead of their router's choice, and those needed, which are no hits */
    uint64_t experts_guessed, experts_foreseen; /* guesses what a router will choose, by token, and those that came true */
    uint64_t neurons_hot, neurons_cold, neurons_read; /* active ones, by where they were found */
    uint64_t neurons_possible;                /* passes x layers x blocks that ran x n_ff */
    uint64_t neurons_computed;                /* of those, whose gates were: all but for predicted passes */
    uint64_t attention_ns, ffn_ns, head_ns, total_ns; /* ffn_ns: with every stall, also those before attention */
    uint64_t neurons_scored;                  /* by predictors: neither always computed nor an accelerator's */
    uint64_t predict_ns;                      /* in addition to attention and FFN; where they overlap, its share */
    uint64_t verify_bytes, verify_ns;         /* read and verified; sum over threads, a part of the times above */
    uint64_t repaired;                        /* since open: reads that differed from their checksums and, made again, did not */
    uint64_t stall_ns;                        /* nobody could compute: waiting for reads */
    struct engine_accel_stats accel;
};

/* Maps the memory of the account, loads dense tensors, predictors and hot neurons and fills the cold cache (progress on
 * stderr), opens the read backend, starts the workers. ERR_UNSUPPORTED, ERR_FORMAT (damage), ERR_IO, ERR_NOMEM. */
int engine_open(const struct engine_config *c, struct engine **out, struct err *e);
void engine_close(struct engine *g); /* accepts NULL */

/* An elastic engine, between passes: other neurons stay in memory, with room for others; the arrays are as in choice.hot and choice.cold,
 * which they replace, and outlive the engine. how: NULL, or whose batches, rest, coalesce, io and no_ahead hold from then on, within the
 * engine's choice. Sequences, logits and hidden states stay what they are. When it is back no more memory is
 * taken than the account of the new choice has, and a page; until then no more than the larger of both.
 * ERR_NOMEM, ERR_LIMIT, and ERR_SYS: nothing has changed. ERR_IO, ERR_FORMAT, ERR_INTR: the memory is the new choice's, and what could
 * not be read is read again by the next pass, which fails where that does. */
int engine_resize(struct engine *g, const uint32_t *hot, const uint32_t *cold, const struct engine_config *how, struct err *e);

/* Between passes: the next ones are made this way. Caches, sequences and what resides stay as they are. ERR_UNSUPPORTED: its back end is
 * not to be had here, and all is as it was. Another error: as of a pass that failed. */
int engine_use_way(struct engine *g, int way, struct err *e);
int engine_way(const struct engine *g);

/* Bytes to reserve for what an account has, of which the regions of neurons are the largest. */
size_t engine_reserve_bytes(const struct budget *b);

/* 1 <= n <= max(prefill_chunk, max_batch). In predicted mode a neuron counts for the tokens for which it is predicted, so
 * that how tokens are grouped changes no bit here either.
 *
 * ERR_USAGE, ERR_LIMIT: a token that there is not, or a KV cache that is full, and no position has changed. Any other error ends
 * the pass: the positions of its tokens hold nothing, those before them what they held, and the next pass first makes reading
 * anew: reads in flight are waited for, and the cold cache begins empty. Where they do not come back, that pass and all later ones
 * are ERR_IO. Of a model with recurrent layers a sequence's tokens are its next positions, in order, or begin at 0 (else ERR_USAGE), and
 * a sequence whose pass failed begins at 0 again. */
int engine_forward(struct engine *g, const struct engine_token *tokens, int n, struct err *e);

/* Whether engine_forward would take such tokens: 0, ERR_USAGE, ERR_LIMIT. */
int engine_check_tokens(const struct engine *g, const struct engine_token *tokens, int n, struct err *e);

/* The same with every gate computed, in predicted mode too. */
int engine_forward_exact(struct engine *g, const struct engine_token *tokens, int n, struct err *e);

/* Of a layer that predicts further tokens: tokens[n], each after one of which hidden[i], f32[d_model], is known: with `trunk`, the model's
 * (engine_hidden of its engine); else this layer's own. What comes out, engine_hidden, predicts what follows tokens[i]. hidden is not
 * this engine's memory. Else as engine_forward. */
int engine_forward_mtp(struct engine *g, const struct engine_token *tokens, const float *hidden, int trunk, int n, struct err *e);

/* Logits f32[n_vocab] after token i of the last pass, computed now into row `row` (0..max_batch-1) and valid until
 * that row is computed again. NULL: an error. */
float *engine_logits(struct engine *g, int i, int row, struct err *e);
float *engine_logits_row(struct engine *g, int row); /* that row */

/* The same after tokens[n] of the last pass, into rows[n], which ascend; the head's weights are read once for neighbouring rows.
 * Rows in a gap between two of them count as neighbours, and are written over, where nobody has taken their sequence. */
int engine_logits_of(struct engine *g, const int *tokens, const int *rows, int n, struct err *e);

/* The hidden state f32[d_model] after token i of the last pass, those of the tokens after it behind it; until the next pass. */
const float *engine_hidden(const struct engine *g, int i);

/* Logits f32[n][n_vocab] from hidden states f32[n][d_model]; 1 <= n <= max(prefill_chunk, max_batch). The head's weights are
 * read once for all of them; each row has the bits that engine_logits gives. */
int engine_head(struct engine *g, const float *hidden, int n, float *logits, struct err *e);

/* Room for such logits in memory that the account lists: f32[*rows][n_vocab]; *rows may be 0. The next pass writes over it. */
float *engine_logits_memory(struct engine *g, int *rows);

/* Passes begun since open: what belongs to the last pass is gone when this has changed. */
uint64_t engine_pass(const struct engine *g);

/* From here on passes that wait for reads give up, with ERR_INTR, IO_HURRY_MS after this token was asked; NULL: they do not. Only the
 * calling thread looks at it. */
void engine_watch(struct engine *g, const struct cancel *cancel);

/* And before each layer they give up, with ERR_INTR, where that token is asked, or stop(ctx) is not 0; NULL: by the token alone. */
void engine_stop_when(struct engine *g, int (*stop)(const void *ctx), const void *ctx);

/* A sequence of the KV cache for whoever asks, 0 to max_batch - 1; ERR_LIMIT when all are taken. Whoever gives tokens of their
 * own choice to sequences need not take them. */
int engine_take_sequence(struct engine *g, struct err *e);
void engine_give_sequence(struct engine *g, int seq); /* what it held is gone */

/* The first n positions of a sequence are those of another, too, which loses its own: a prompt that several go on from is held
 * once (kv_pages.h), and a position that one of them writes later is its own. */
int engine_share_sequence(struct engine *g, int to, int from, int n, struct err *e);

/* Whether the KV cache holds what the sequence's first n positions made: ERR_LIMIT where a key or value was beyond what F16 has, ERR_FORMAT
 * where one was no finite number by itself. What the sequence makes from there on is worth nothing. */
int engine_check_kv(const struct engine *g, int seq, int n, struct err *e);

/* The sequence needs no position from n on; what they took is free for others. */
void engine_keep_positions(struct engine *g, int seq, int n);

/* How many of the first n positions of a sequence can be shared or kept without those after them: n, but of a model with recurrent layers
 * all that there are or 0, for a state has taken in every position; or those that are left where some can be taken back. */
int engine_can_keep(const struct engine *g, int seq, int n);

/* From here on pages of the KV cache stay when their sequences go, and are found by their tokens (kv_prefix.h); before the first pass. It
 * takes KV_PREFIX_PER_TOKEN bytes for each position of each sequence. Of models with recurrent layers states are kept, too, so many
 * (engine_state_bytes each), and without any no pages are; nor are they of one sequence whose context is no multiple of a page. 1: it is
 * so. */
int engine_keep_prefixes(struct engine *g, int states, struct err *e);

/* And a folder has them, too (kv_store.h), which outlives the engine or is taken away by NULL. Where pages are kept. */
void engine_use_store(struct engine *g, struct kv_store *s, struct hash128 root);
int engine_has_store(const struct engine *g);

/* Bytes of a record of that folder, at most, of a packed model that runs so. ERR_LIMIT. */
int engine_store_payload(const struct pack *p, const struct budget_choice *c, size_t *bytes, struct err *e);

/* Of models with recurrent layers: once, before the first pass: what a pass of 2 to most + 1 tokens of a sequence adds behind the first can
 * be taken back (engine_keep_positions), and so can what is left of it later, until the sequence's next pass. It takes
 * engine_take_back_bytes; of other models nothing, and nothing is done. ERR_UNSUPPORTED: states of another kind (ops_take_back). */
int engine_take_back(struct engine *g, int most, struct err *e);
int engine_take_back_bytes(const struct pack *p, const struct budget_choice *c, int most, uint64_t *bytes, struct err *e);

/* Bytes of a state that is kept; 0: there are none. ERR_LIMIT. */
int engine_state_bytes(const struct pack *p, const struct budget_choice *c, uint64_t *bytes, struct err *e);

/* A sequence whose first `from` positions, whole pages, were found goes on with what there is of ids[n] in memory: how many it has. */
int engine_find_prefix(struct engine *g, int seq, int from, const int32_t *ids, int n);

/* With a page more, which the folder has: ids[from + SCHEDULE_KV_PAGE]. 1: it is there. */
int engine_load_prefix(struct engine *g, int seq, int from, const int32_t *ids);

/* That was all of it: how many of the n positions it goes on from; of models with recurrent layers those that a state is kept of. */
int engine_begin_from(struct engine *g, int seq, const int32_t *ids, int n);

/* Keeps the state after a sequence's first n positions, all that it has taken in, whole pages, which were published. Of other models, and
 * where it has taken in something else, nothing is done. */
void engine_keep_state(struct engine *g, int seq, int n);

/* What was found of it, n positions, is used: the folder keeps it longer. */
void engine_touch_prefix(struct engine *g, int seq, int n);

/* A sequence's first n positions hold ids[n], and what a prompt's pass makes of them: others may begin with them. */
void engine_publish_prefix(struct engine *g, int seq, const int32_t *ids, int n);

/* Gives the folder what it has not, as much as it takes now. 1: there is more. */
int engine_store_prefixes(struct engine *g);

/* Pages of the KV cache that a pass takes for a sequence's positions [from, from + n), at most. */
int engine_pages_needed(const struct engine *g, int seq, int from, int n);

/* Positions in pages that no sequence has, where several share the KV cache. */
int engine_free_positions(const struct engine *g);

/* What the accelerator is; 0: there is none. lost: a fault has ended its work, and why; else NULL. */
int engine_accel_info(const struct engine *g, struct accel_info *out, const char **lost);

/* Hot neurons that it computes for a pass of n tokens, in all FFNs together. */
uint64_t engine_accel_neurons(const struct engine *g, int n);

/* Neurons that are not resident, and that it computes, too, in such a pass where no neuron is predicted; 0: none, or it cannot. */
uint64_t engine_accel_rest(const struct engine *g, int n);

/* Can it, whatever the pass? */
int engine_accel_takes_rest(const struct engine *g);

/* Those of one FFN where this height is asked for: whole clusters of what is resident in every part, or all. */
uint32_t engine_accel_height(const struct layout_shapes *shapes, const struct budget_choice *c, const struct engine_height *x, int n_blocks,
                             int layer, int block);

/* What the engine will ask of an accelerator, with scratch of its choice; and the memory for that, which is in no item of the account. */
void engine_accel_need(const struct pack *p, const struct budget_scratch *s, enum plan_work work, struct accel_need *out);
uint64_t engine_accel_bytes(const struct pack *p, const struct budget_scratch *s, enum plan_work work, const struct accel *a);

const struct engine_config *engine_configuration(const struct engine *g);
struct engine_stats engine_stats(const struct engine *g);
void engine_stats_reset(struct engine *g);
const struct budget *engine_budget(const struct engine *g);
const struct io *engine_io(const struct engine *g); /* NULL: it could not be opened again after an error */
int engine_locked(const struct engine *g, int *why); /* memory is mlocked; *why: errno when not */
int engine_unpinned(const struct engine *g);         /* 0, or why workers are not where the plan has them: pool_refused */
/* What loading read of the packed model, how long it took, and how long of that for reads alone. */
struct engine_loading {
    uint64_t bytes, ns, wait_ns;
};
struct engine_loading engine_loading(const struct engine *g);
size_t engine_page_bytes(const struct engine *g);    /* of most of the memory, in which reads arrive; 0: not known */

/* Scratch that the account lists for callers. */
float *engine_sampler_memory(struct engine *g, size_t *bytes);
int32_t *engine_token_memory(struct engine *g, int seq); /* i32[context] */

#endif
