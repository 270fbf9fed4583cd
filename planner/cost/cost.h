#ifndef PLANNER_COST_COST_H
#define PLANNER_COST_COST_H

/* The cost model: how long a decode step takes. One pure function per equation, with its formula and source;
 * docs/cost-model.md is the page to read beside it. Times in ns, sizes in bytes, rates per second.
 * Numbers (1)-(11) are the paper's (PowerInfer-2, arXiv:2406.06282, algebra as DESIGN section 3 reconstructs it);
 * (M1)-(M33) are our own, over measured curves. All functions are pure and thread-safe. */
#include "common/offline/hwdb/hwdb.h"
#include "common/ops/ops.h"
#include "common/plan/layout.h"
#include "common/plan/plan.h"
#include "common/plan/schedule.h"

#include "planner/inputs/inputs.h"
#include "planner/inputs/notes.h"
#include "planner/predict/predicted.h"
#include "planner/replay/replay.h"

/* --- The paper's equations --- */

/* (1)  s = 1 / t_decode, tokens/s */
double cost_speed(double decode_ns);

/* (2)  t_decode = t_compute */
double cost_decode_ns(double compute_ns);

/* (3)  n_k <= N_k^max     (4)  m <= M_max     (5)  s >= s_min */
int cost_cores_ok(int n_k, int n_k_max);
int cost_memory_ok(uint64_t m, uint64_t m_max);
int cost_speed_ok(double s, double s_min);

/* (6)  t_compute = t_dense + t_ffn, the FFN overlapped by I/O: what t_io exceeds t_ffn by is a stall, so
 *      t_dense + max(t_ffn, t_io) */
double cost_compute_ns(double dense_ns, double ffn_ns, double io_ns);

/* (7)  t_dense = (F_attn + F_pred) / f_cpu */
double cost_dense_ns(double f_attn, double f_pred, double f_cpu);

/* (8)  t_ffn = a * F_ffn / f_cpu */
double cost_ffn_ns(double a, double f_ffn, double f_cpu);

/* (9)  f_cpu = sum n_k * f_k */
double cost_f_cpu(const int *n_k, const double *f_k, int n);

/* (10) V_io = a * mu * W_ffn, bytes;  t_io = V_io / B_io */
double cost_v_io(double a, double mu, double w_ffn);
double cost_io_ns(double v_io, double b_io);

/* (11) t_mem = (W_attn + W_pred + a * W_ffn) / B_mem; a diagnostic: (2) leaves it out */
double cost_mem_ns(double w_attn, double w_pred, double a, double w_ffn, double b_mem);

/* --- Ours, over measured curves --- */

/* (M1) t = rows * tau,  tau = time of a row of this kernel with these threads and batch: the longest of the time for `batch`
 *      tokens with rows in a core's cache, for one token with rows that come from memory, in order or scattered, and for the
 *      most tokens, up to `batch`, that were measured with rows from memory */
double cost_rows_ns(double rows, double row_ns);
double cost_row_ns(double cached_ns, double fetched_ns);

/*      Down's kernels take tokens by fours and leave out rows that none of the four needs: rows count that fire for any of so many tokens
 *      of the step, each with tau of all. The index of that size in inputs_batch_sizes. */
#define COST_DOWN_TOKENS 4
int cost_down_index(int batch_index);

/* (M2) t_mem = V_seq / B_seq + V_rand / B_rand: resident prefixes are swept, fired rows are scattered. What any kernel
 *      takes at least; the longer one of (M1) where kernels were measured on rows from memory */
double cost_memory_ns(double seq_bytes, double seq_bw, double rand_bytes, double rand_bw);

/* (M3) t_stream = V / B_io(seq, block, depth): what every step needs and memory does not hold */
double cost_stream_ns(double bytes, double bw);

/* (M4) t_reads(n) = sum over k = 1 .. n of R / B_io(random, R, min(k, D)): the reads of a layer are a burst. While more than D
 * are left the queue is full; then fewer and fewer are in flight, and each takes as long as one does at that depth. Points at
 * n = 0, 1, 2, 4 .. D (between measured depths the mean of their times), linear between; beyond D each takes each_ns. */
#define COST_READ_POINTS 14
struct cost_reads {
    int n;                          /* points */
    double count[COST_READ_POINTS], ns[COST_READ_POINTS], each_ns;
};
double cost_reads_ns(const struct cost_reads *c, double reads);

/* (M33) t_turn = (1 - D / n)+ * max(0, beta t_work - (1 - beta) t_reads): where a drive ends the share beta of the reads in flight at one
 *       moment (of a paravirtual one, all: it interrupts when its queue is empty), it has only the rest of the D buffers to go on with
 *       while their contents are worked through: computed, or copied to the cache by the coordinator. Part of t_io; the first D of n
 *       reads wait for no buffer. t_work, t_reads: of all n. beta: measured beside B_io; where it was not, 0. */
double cost_turn_ns(double reads, double buffers, double together, double work_ns, double reads_ns);

/* (M21) t_reads = sum over lengths of n_len * t_len(N) / N,  N = sum of n_len: reads that bring several units, neighbours and
 *       what is in gaps, each at the rate of its size with N reads to keep the queue full. t_len: (M4) for reads of len units;
 *       curves[c] is that of reads of 2^c units (replay_reads.h), linear in bytes between */
double cost_joined_ns(const struct cost_reads *curves, const struct replay_reads *how, double missed);

/* R of (M4), bytes: one unit's read in whole blocks. Packed units begin anywhere in a block: the mean over a part's
 * units. */
double cost_read_bytes(const struct layout_shape *s, int part);

/* (M5) I/O costs CPU time c per read. With cores to spare it only bounds the lanes: t_io >= n c / min(lanes, spare),
 *      spare = cores - threads; without, the compute threads lose it: t_compute + n c / threads. With io_uring the one who
 *      submits is a compute thread, whatever cores are spare: cores = threads then. */
double cost_io_cpu_ns(double reads, double cpu_ns, int threads, int cores);              /* added to compute */
double cost_lane_ns(double reads, double cpu_ns, int threads, int lanes, int cores);  /* lower bound of t_io */

/*      Of that, reads that are asked for before attention, SCHEDULE_READS_AHEAD at most, are one thread's alone: the others have
 *      nothing to do yet. With io_uring n_a c (1 - 1 / threads) more is added to compute; n_a: as many of the first min(D,
 *      SCHEDULE_READS_AHEAD) as (M7) or (M13) has before attention. Those that follow start between attention's products. */
double cost_submission_ns(double ahead_cpu_ns, int threads);

/* (M14) t_compute + (lookups * tau_lookup + copied * tau_admit(R)) / threads: the thread that maintains the cache finds what is there and
 *       takes in what was read and has a slot, copying it, while the others go on with its share of the computing */
double cost_cache_overhead_ns(double lookups, double lookup_ns, double copied, double admit_ns, int threads);
/*       Share of the reads that get a slot: those of a step stay to its end, so hits and new ones are no more than slots. */
double cost_copied_share(double slots, double lookups, double reads);

/* (M22) t_verify = V_read * tau_verify(R) / R / threads: whatever is read is held against its checksum by the worker that touches
 *       it next. V_read: streamed gates, units, and streamed predictors, which are counted here, too */
double cost_verify_ns(double bytes, double verify_ns_per_byte, int threads);

/* (M15) jobs * tau_start(threads): each job that all threads share is started and waited for. A layer's are those of its graph
 *       (common/model/graph.h): products with the same input are one, and one attends or moves a state on. The FFN of each block has one,
 *       and one more where a predictor runs apart from it; the head one. */
double cost_start_ns(double jobs, double start_ns);
int cost_layer_jobs(const struct inputs_layer *il, int attention); /* attention: without its router and what stays in memory of its FFN */

/* (M16) t_alone = 2 * tau_norm(d) + (heads + kv_heads) * tau_rope(head_dim), for each token: what one thread does between the
 *       products of a layer while the others wait. Two norms, each with the int8 activations made of it and the residual
 *       addition before it; with the head there is one more. */
double cost_serial_ns(int batch, double norms, double norm_ns, double heads, double rope_ns);

/* (M17) t_attend = b * p * heads * tau_attend(head_dim) / n_t: attention over K and V that are in cache. Heads that share a KV
 *       head are one item; a piece for a worker is no less than SCHEDULE_PIECE_BYTES of K and V (runtime/engine/dense_cpu.c):
 *       n_t = min(threads, V_kv / SCHEDULE_PIECE_BYTES), at least 1. In place of F_kv / f_cpu where tau_attend was
 *       measured. Of a prompt that of NN_ATTN_TOKENS at a time. */
double cost_attend_ns(double positions, double heads, double attend_ns, double kv_bytes, int threads, int batch);

/* (M18) tau_down(d) = parts * tau_axpy(d / parts), parts = ceil(threads / 2) (schedule_row_parts): Down is summed by column
 *       tiles, one per thread, of which a worker takes two at a time while there is other work for the rest, all but the last
 *       rows of a layer (take_pair in runtime/pipeline/scheduler.c). whole_ns, part_ns: a row by all threads, whole and so
 *       short; where nothing as short was measured the two are equal, and a whole row counts. */
double cost_tile_row_ns(double whole_ns, double part_ns, int parts);

/* (M23) tau_down(d) = d * tau_rows(t) / t, in place of (M18) in tiles: a neuron's share of the d products of t elements that Down of
 *       a tile takes. row_ns: tau_rows(t), of Down's type, in order. */
double cost_tile_down_ns(double row_ns, double t, double d);

/* (M19) t_turns = 2 * jobs * tau_turn / threads: the FFN's work is a list of jobs behind a lock, which is taken for each to get
 *       it and to hand it in. jobs = V / SCHEDULE_JOB_BYTES of records + parts * rows / SCHEDULE_DOWN_ROWS of tiles, parts as in
 *       (M18), and a last one of both for each thread (runtime/pipeline/scheduler.c). */
double cost_jobs(double rows, double record_bytes, int threads);
double cost_contention_ns(double jobs, double turn_ns, int threads);

/* (M6) t_exposed = min(1, n) * t_reads(1): the last read of a layer has nothing left to hide behind, and is not in t_io. Of experts
 *      in dense mode all reads are asked for at once, when the router has chosen: t_io = t_reads + t_tail, for what comes last has to be
 *      computed when it is there: t_tail = t_compute * last / tiles of the experts that a step uses, last = beta * min(D, n) + (1 - beta) *
 *      min(1, n), beta: (M33), the share of the reads in flight that end at one moment. Some steps miss no expert and some several:
 *      t_exposed is what E(max(t_compute, t_io)) is more than max(t_compute, E(t_io)), over the groups of steps that replay counts
 *      (replay_steps.h) */
double cost_exposed_ns(double reads, double one_read_ns);
double cost_tail_share(double waited, double tiles, double depth, double together);

/* (M25) t_engine(h) = t_launch + sum over the FFNs of a step of (t_ffn(h, tokens) - t_launch): the accelerator's h hottest neurons of each,
 *       copies included, queued together. Of types that differ each role counts a third of its own type's FFN.
 * (M26) t_both = max(c, t_engine) + sigma * min(c, t_engine - t_launch), c = max(t_compute, t_memory) of the other neurons: while both work
 *       each is slower, for they share memory, or cores. sigma = (B_cpu + B_engine) / B_together - 1, at least 0; of FFNs of
 *       COST_MANY_TOKENS or more, which arithmetic binds, what follows from t_both of a product and an FFN that were measured
 *       together, and each alone, at most 1. */
#define COST_MANY_TOKENS 32
/* sigma of these three times */
double cost_sharing(double both_ns, double cpu_ns, double engine_ns, double launch_ns);
double cost_engine_ns(double launch_ns, double ffns, double ffn_ns);
double cost_both_ns(double cpu_ns, double engine_ns, double launch_ns, double sigma);

/* (M7) t_layer = t_attention + t_predict + max(t_compute, t_memory, t_both, t_io) + t_exposed,
 *      t_io = max(t_stream - min(t_stream(D), t_attention), t_first) + t_reads - t_exposed in exact and dense mode: what needs no
 *      activations is asked for before attention, as much as D buffers hold, t_stream(D); and which neurons are to be read is
 *      known when the first job of gates is handed in, t_first = threads * tau_gate * min(gates / threads, SCHEDULE_JOB_BYTES of
 *      them), 0 where nothing is read. */
double cost_layer_ns(const struct plan_layer_figures *f);
double cost_ahead_ns(double stream_ns, double buffers_ns, double attention_ns); /* t_stream less what attention hides */
double cost_first_ns(double gates, double gate_ns, double record_bytes, int threads);

/* (M32) of experts that are read before their router has chosen (the plan says whether), for as many as the next layer's router names on
 *       the residual stream before this layer's FFN: of n experts that a step misses it foresees f, and w that it names are read in
 *       vain, by replay of the trace's guesses. These reads follow what the layer before lacks, and go on during its FFN and attention.
 *           t_io = max(0, t_reads(f + w) - t_window) + t_reads(n - f) + t_tail
 *           t_window = t_attention + (1 - rho) max(0, c - E(t_reads(n - f))),  rho = min(1, E(t_reads(f + w) + t_reads(n - f)) / (c +
 *           t_attention)), c: the longer of (M1)'s rows and t_memory
 *       for the layer before is one like the mean: the storage is idle while it computes, the less the more of all time reads take. Where
 *       they take all of it t_window is t_attention, and the period of such layers, t_attention + max(t_compute, t_io), the longest of all
 *       reads, of computing and attention, and of t_attention + t_reads(n - f). t_compute has the router once more and a norm, and reads in
 *       vain cost CPU time (M5). In the first layer, whose experts are guessed when tokens are embedded, t_window is t_attention, or, after
 *       layers without experts, the mean of theirs and its own. In t_tail count what was not foreseen and, where t_window leaves some
 *       over, of what was the share that it leaves, or, of reads that end together, all. */
double cost_window_ns(double attention_ns, double work_ns, double early_ns, double late_ns);
double cost_left_ns(double early_ns, double window_ns);
double cost_late_reads(double reads, double foreseen, double left_ns, double early_ns, double together); /* that t_tail waits for */

/* (M29) of streams in dense mode (M7) is t_io = t_stream - min(t_stream(D), t_attention) + t_full + t_drain, and t_exposed 0. Neurons that
 *       are streamed are computed after those in memory, t_h, in order, t_c. D buffers at most are read before: t_full = max(0, t_h - what
 *       of t_stream(D) attention does not hide). Then each buffer is one thread's work, and is read again when its neurons are summed:
 *       t_drain = t_c * max(1 / reads, threads / D); with fewer buffers than threads max(1, (threads (1 - w) + w) / D) in place of
 *       threads / D, w: share of Down, which all threads sum. */
double cost_full_ns(double hot_ns, double first_ns);
double cost_drain_ns(double cold_ns, double reads, int threads, int depth, double down_share);

/* (M30) t_pass(n) = max(t_step(n), t_pass(n / 2)): a pass over n tokens of one sequence that follow each other, as guesses are held
 *       against. t_step(n) is (M10) of a batch of n, where neurons count that fire for any of them, by the trace's counts of such
 *       tokens, misses are those of replay in steps of n such tokens, K and V are read once for NN_ATTN_TOKENS tokens, and Down
 *       is that of (M1). Who counts: planner/search/passes.h. */
double cost_pass_ns(double step_ns, double shorter_ns);
int cost_kv_times(int tokens); /* that K and V are read for so many */

/* (M35) t_guess = t_layer + t_head * (1 + 2 d_model / n_vocab): a guess of the model's own layer for multi-token prediction: one token
 *       through a layer like the model's last, in dense mode, all of it in memory; the head; and the product of 2 d_model columns before
 *       the layer, by the head's time for a weight. */
double cost_mtp_ns(double layer_ns, double head_ns, int d_model, int n_vocab);

/* Positions that a layer's attention sees, in the mean over a context that fills: context / 2; where a window w < context
 * ends it, w - w^2 / (2 context) */
double cost_positions(const struct model_hparams *h, int layer, int context);

/* (M8) bytes of K and V that one step reads in a layer whose attention needs that (common/ops/ops.h): batch * positions * planes * row *
 * width; of a state, which is read and written. */
double cost_kv_bytes(const struct op_need *n, int batch, double positions, int kv_f16);

/* (M9) flops of attention over them: batch * 4 * positions * heads * head_dim; of a state what the operation says. */
double cost_kv_flops(const struct op_need *n, int batch, double positions);

/* Heads of a token in a layer that (M16) rotates. */
int cost_rotated(const struct model_hparams *h, int layer);

/* (M10) t_step = t_head + sum of t_layer */
double cost_step_ns(double head_ns, const struct plan_layer_figures *f, int n_layers);

/* --- Predicted mode --- */

/* (M11) t_predict = max(rank * tau_1 + (n_ff - always computed) * tau_2, V_pred / B_seq): the hidden layer, then a score for each
 *       neuron that is not always computed; all of the predictor's bytes are swept. Summed over the blocks a step reaches. */
double cost_predict_ns(double hidden_rows, double tau_1, double scores, double tau_2, double bytes, double seq_bw);

/* (M12) t_compute = always computed * tau_gate + predicted * tau_scattered + open * tau_up + active * tau_down: gates of always computed
 *       neurons are swept, those of predicted ones are where they are; open and active count only what is computed */
double cost_predicted_ns(double always, double tau_gate, double predicted, double tau_scattered, double open,
                        double tau_up, double active, double tau_down);

/* (M13) a predictor that sees the block's input (lookahead): cold reads begin before attention,
 *       t_layer = t_predict + max(t_attention + max(t_compute, t_memory), t_io) + t_exposed */
double cost_lookahead_ns(const struct plan_layer_figures *f);

/* (M20) predictors that are streamed, V_pred bytes, through buffers that hold the largest of them: the disk reads them after
 *       this layer's neurons, or before, while other work goes on,
 *       t_layer = max(t_layer, t_predict + t_io + V_pred / B_io(seq) + t_exposed)
 *       through few buffers, or where a router says late whose they are, or where that is faster, only prediction goes on
 *       while they are read: t_predict = max(t_predict, V_pred / B_io(seq)) in (M7) or (M13) */
double cost_streamed_ns(const struct plan_layer_figures *f, double layer_ns, double stream_ns);
#define COST_LEAST_BUFFERS 2 /* nothing is read ahead through so few */

/* --- From tables to those equations --- */

/* Global choices, one value per plan limit. */
struct cost_choice {
    enum plan_mode mode;
    int variant, group;                 /* of the problem; 0 where there is one. In a group of several variants each layer
                                     * has its own (struct cost_residency), variant is the first */
    const struct predicted *predicted; /* predicted mode; else NULL. Borrowed */
    enum plan_cost model;
    enum plan_stat stat;
    int n_classes, n[HW_MAX_CLASSES], threads; /* threads = sum of n */
    enum hw_backend backend;
    int depth, lanes;
    int buffers;                    /* of streamed predictors; 0: there are none */
    int act_q8, kv_f16, context;
    int only_batch;                 /* as in struct limits */
    int consecutive;                /* 1: a step's tokens are one sequence's, one after the other, (M30) */
    const char *engine;             /* an accelerator of the device, by its name there; NULL: none. Borrowed */
    uint32_t height;                /* of each FFN, the hottest neurons in memory that it computes, at most; 0 without it */
    enum plan_work work;            /* what else it computes; nothing without it */
    uint64_t area_bytes;            /* through which prompts may read what is not in memory for it, (M36); 0: there is none */
    int ahead;                      /* 1: experts are read before their router has chosen, (M32) */
    int rule;                       /* how missing units are read: of the problem's; 0: neighbours only */
    uint32_t read_bytes;            /* of the longest read through gaps; 0: there is none */
};

/* Does the choice's accelerator do anything? */
static inline int cost_has_engine(const struct cost_choice *c)
{
    return c->engine && (c->height || c->work);
}

/* Figures of a device that a plan goes by. */
static inline enum hw_stat cost_stat(enum plan_stat s)
{
    return s == PLAN_SUSTAINED ? HW_SUSTAINED : HW_TYPICAL;
}

/* Which neurons of a layer stay in memory: the same for each of its blocks. */
struct cost_residency {
    uint32_t hot[LAYOUT_MAX_PARTS]; /* neurons per block */
    uint32_t slots;                 /* of the last part, per layer */
    int variant;                        /* of the problem: the layer's own, where the choice's group has several */
    int streamed;                   /* its predictors are read whenever they are used */
};

/* What a step then moves. Depends on residency and trace only, not on the device. */
struct cost_flow {
    double stream_bytes;            /* read in sequence: part 0 beyond its prefix (dense mode: every part) */
    double single_reads;            /* of part 0, one unit each (two-phase layouts) */
    double predictor_bytes;         /* read in sequence: of streamed predictors */
    double reads, lookups;          /* of the last part: cold misses, units looked up */
    double copied;                  /* share of those misses that are copied to a slot; without one, they are used from their buffers */
    const struct replay_reads *how; /* how these are read, by rule; NULL: one by one. Of the table, borrowed */
    double beyond;                  /* gates that are not computed together with their resident Up and Down */
    int at_once;                    /* all reads are asked for before anything is computed, as of experts that a router has chosen; */
    double tiles;                   /* then: units of the experts of a step, with those of the prefix */
    const struct replay_point_steps *steps; /* what steps miss, step by step; NULL: it is known in the mean alone. Of the table, borrowed */
    double early[REPLAY_AHEAD];     /* reads, of them foreseen, and reads in vain, where the choice reads ahead; steps with guesses */
    int foresees;                   /* 1: that is known, and possible in this layer */
    int ahead;                      /* streams and single reads need no activations: they begin before attention */
    double mu;                      /* (10): misses per firing neuron, hot ones counted as hits; dense mode: the
                                     * share of the FFN that is not resident */
};

/* (M14)-(M19), (M22): the engine's own work at a choice, into *out. 0 where it was not measured. planner/cost/cost_work.c */
struct cost_rates;
void cost_work_rates(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                     const struct cost_choice *c, struct cost_rates *out);

#define COST_HEIGHTS 16

/* Device curves at one choice, batch size and layout, looked up once. */
struct cost_rates {
    double gate_ns, up_ns, down_ns;         /* per row */
    double scattered_ns;                    /* of gates here and there */
    double seq_bw, rand_bw;                 /* memory */
    double stream_bw, stream_block, stream_cpu_ns;
    struct cost_reads cold, single;
    double cold_cpu_ns, cold_bytes, single_bytes; /* a read of each, bytes */
    double stride_bytes;                    /* of cold units: what each further one adds to a read */
    int n_lengths;                          /* classes of reads that hold several of them: */
    struct cost_reads joined[REPLAY_LENGTHS];
    double together[REPLAY_LENGTHS];        /* (M33) */
    double joined_cpu_ns[REPLAY_LENGTHS];
    double start_ns, turn_ns, lookup_ns, admit_ns; /* 0: not measured */
    double verify_ns_per_byte;              /* likewise */
    double unit_bytes;                      /* of the last part, without padding */
    double norm_ns, rope_ns, attend_ns;
    double attend_many_ns, act_ns, sift_ns; /* of passes of many tokens; 0: not measured */
    int threads, lanes, cores, depth;       /* cores: among which I/O finds its own, (M5) */
    int ends;                               /* reads that end together at most, (M6): the depth */
    double launch_ns, sigma;                /* (M25), (M26); 0 without an accelerator */
    double engine_ns[COST_HEIGHTS + 1];     /* of an FFN, by sixteenths of its neurons */
    double f_cpu;                           /* flops/s of the chosen cores, for attention over KV and the paper */
    double b_io, b_mem;                     /* the paper's */
    double ffn_factor, io_factor;           /* corrections of a calibration; 1: none */
};

/* A layer's constants at one choice and batch. */
struct cost_layer {
    double attention_ns, predict_ns, compute_ns, memory_ns, active;
    double products_ns, jobs_ns, serial_ns;  /* of attention_ns: (M9), (M15), (M16) */
    double start_ns, contention_ns;              /* of compute_ns: (M15), (M19) */
    int lookahead, feeds_ahead;             /* (M13) instead of (M7); (M20) through many buffers */
    double engine_ns, launch_ns;            /* (M25), of which launch; 0: all neurons are the processor's */
    double jobs;                            /* (M19) */
    double first_ns;                        /* of the first layer: between guessing its experts and their router, (M32); else 0 */
    double guess_ns;                        /* of guessing a layer's experts: router and norm once more, (M32) */
    double gate_bytes;                      /* of a record of gates, in exact mode; else 0 */
    double unit_ns;                         /* (M33) of a neuron that is read, what all threads compute once it is there */
    double ffn_bytes, density;              /* (10): W_ffn of the blocks a step reaches; a */
};

/* Missing figures are replaced in the order that docs/cost-model.md gives, and noted. ERR_UNSUPPORTED when
 * neither compute nor memory figures are known, or storage figures are needed and there are none. */
int cost_rates_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                  const struct cost_choice *c, int batch, struct cost_rates *out, struct notes *notes, struct err *e);

/* Of the layers of each kind: *out [l.n_kinds], malloc'd, NULL on failure. The paper's f_cpu and B_io are one for all: those of the
 * first. ERR_NOMEM, or an error of cost_rates_of. */
int cost_rates_new(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *c, int batch,
                   struct cost_rates **out, struct notes *notes, struct err *e);

/* As good, besides, as at the depth of c, a choice that differs in nothing else and is no deeper: of two curves of reads, (M4), the
 * deeper queue's is no slower in any point or step. */
void cost_rates_relax(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c, struct cost_rates *r);

void cost_layer_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s,
                   const struct cost_choice *c, const struct cost_rates *r, int batch_index, int layer,
                   struct cost_layer *out, struct notes *notes);

/* launch_ns, sigma and engine_ns of *r, for the choice's accelerator and FFNs of so many tokens, (M25). ERR_UNSUPPORTED: the device has no
 * figures that tell. */
int cost_engine_rates_of(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                         double tokens, struct cost_rates *r, struct notes *notes, struct err *e);

/* The same of a step of `batch` tokens: of experts those that the router gives each in the mean. */
int cost_engine_rates(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c, int batch,
                      struct cost_rates *r, struct notes *notes, struct err *e);

/* Do the device's figures of an accelerator tell the time of FFNs of this layout, of a type or one that stands for it? */
int cost_engine_known(const struct hw *hw, const char *engine, const struct layout_shape *s, int d_model);

/* Was that measured with so many tokens, or more? */
int cost_engine_measured(const struct hw *hw, const char *engine, const struct layout_shape *s, int d_model, int tokens);

/* (M34) t_products = sum over calls of t_launch + sum of max(0, t_matmul(rows, cols, n) - t_launch): products of matrices with the same
 *       input are one call, of at most SCHEDULE_ENGINE_TOKENS tokens: more make several. Attention's are Q, K and V (latent attention: what
 *       makes low-rank queries and the cache's rows; then queries), and output; gate and up of a shared expert or a layer before the
 *       experts', and its down; the head is one. They take the place of their rows in (M9), and of as many jobs (M15); the processor
 *       waits, but for reads, and adds nothing. n products with `tokens` tokens: */
double cost_engine_products_ns(const struct hw *hw, const struct cost_choice *c, const struct inputs_matrix *const m[], int n, int tokens);

/* Of which of these the device's figures tell the time, of so many tokens or more; of recurrent layers' none do. */
enum plan_work cost_work_known(const struct hw *hw, const struct inputs *in, const char *engine, int tokens);

/* What of that the accelerator does faster than the choice's processors in a step of `batch` tokens; the choice's own height and work do
 * not count. ERR_NOMEM, or an error of cost_rates_of. */
int cost_best_work(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s, const struct cost_choice *c,
                   const char *engine, int batch, enum plan_work *out, struct err *e);

/* An FFN of so many neurons on the accelerator, linear between the sixteenths of r->engine_ns. */
double cost_engine_ffn_ns(const struct cost_rates *r, int n_ff, uint32_t height);

/* How many neurons of each FFN the choice's accelerator computes where so many stay in memory. */
uint32_t cost_height(const struct layout_shape *s, const struct cost_choice *c, const struct cost_residency *k);

/* What of a layer changes where the accelerator has the first `height` neurons of each FFN: those of the processor are the others. l: of
 * cost_layer_of. Predictors (M11) score the others alone; those that are streamed are read whole. */
void cost_layer_beside(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                       const struct cost_rates *r, int batch_index, int layer, uint32_t height, struct cost_layer *l);

/* Adds (M9), (M15) and (M16) of what a layer keeps in memory, for `batch` tokens, to products_ns, jobs_ns and serial_ns. Layers before the
 * experts' count with layer 0. */
void cost_resident_of(const struct hw *hw, const struct inputs *in, const struct cost_choice *c, const struct cost_rates *r, int batch,
                      int layer, struct cost_layer *l, struct notes *notes);

double cost_head_ns(const struct hw *hw, const struct inputs *in, const struct cost_choice *c,
                    const struct cost_rates *r, int batch, struct notes *notes);

/* What a layer runs in: the choice's mode, but exact where predicted mode has no predictor for it. */
enum plan_mode cost_mode_at(const struct cost_choice *c, int layer);

/* Bytes of a layer's predictors that a step reads where they are streamed. */
double cost_predictor_bytes(const struct inputs *in, const struct predicted *f, int batch_index, int layer);

/* t: the layer's replay table at this batch (of the lists that the choice's mode makes); NULL: nothing hits. */
struct cost_flow cost_flow_of(const struct inputs *in, const struct layout_shape *s, const struct cost_choice *c,
                              int batch_index, int layer, const struct replay_table *t, const struct cost_residency *k);

/* All figures of a layer. In the paper's model and exact mode the gates are the predictor (F_pred, W_pred:
 * computed in full, before the FFN is known), W_ffn is Up and Down, and gates that memory does not hold add their
 * bytes to V_io; in dense mode a = 1 and there is no predictor. */
struct plan_layer_figures cost_figures(const struct cost_choice *c, const struct cost_rates *r,
                                       const struct cost_layer *l, const struct cost_flow *f);

/* What those figures are sums of, over measured curves, ns, a calibration's factors in them; so that
 *   ffn_compute_ns = rows + start + contention + io_cpu + submission + cache_overhead + verify + guess,
 *   io_ns = stream + single + early - hidden + first + cold + turn - last + lane,
 *   predict_ns = scores + feed,  total_ns = attention_ns + predict_ns + max(ffn_compute_ns, ffn_memory_ns, ffn_engine_ns) + io_ns +
 *   exposed_ns -
 *   overlap, each >= 0. */
struct cost_terms {
    double rows, start, contention, io_cpu, submission, cache_overhead, verify; /* (M1) or (M12), (M15), (M19), (M5) twice, (M14), (M22) */
    double guess, early;                    /* (M32): guessing experts; reading them ahead */
    double stream, single;                  /* (M3); (M4) for reads of part 0 */
    double hidden, first;                   /* (M7): what attention hides of these; until reads are known, beyond them */
    double cold, last;                      /* (M4) or (M21) for neurons; their last read, which is in exposed_ns */
    double turn;                            /* (M33), in io_ns */
    double lane;                            /* (M5): what CPU time bounds lanes to beyond that */
    double scores, feed;                    /* (M11); what reading streamed predictors takes longer, (M20) */
    double predictor;                       /* (M20): reading them */
    double overlap;                         /* what goes on while something else does */
};
/* cost_figures with them; 0 in the paper's model. terms may be NULL. */
struct plan_layer_figures cost_figures_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l,
                                          const struct cost_flow *f, struct cost_terms *terms);

/* Units that a step does not find in the cache, those among them that were read ahead: other than f->reads where the choice reads ahead. */
double cost_misses(const struct cost_choice *c, const struct cost_flow *f);

/* Reads of the last part in a step, units and bytes that they hold, CPU time that they cost and, by (M4) or (M21), how long
 * they take; the last of them, (M6). */
struct cost_cold {
    double reads, units, bytes, cpu_ns, ns, last_ns;
    double together; /* (M33), in the mean over those reads */
    double early_ns; /* (M32): until all that is read ahead is there; its bytes and CPU time are in the others, its reads are not */
};
void cost_cold_of(const struct cost_choice *c, const struct cost_rates *r, const struct cost_flow *f,
                  struct cost_cold *out);

/* ns of max(compute, memory, io) + exposed (measured), or of t_io alone (paper): what residency changes. cold: of
 * cost_cold_of, for this flow or one with the same reads of the last part. */
double cost_ffn_part_ns(const struct cost_choice *c, const struct cost_rates *r, const struct cost_layer *l,
                        const struct cost_flow *f, const struct cost_cold *cold);

/* Paper model, (2) and (6) over whole sums; measured model, (M10). flows: [n_layers]. Fills everything of `out`
 * but layers, which it reads. */
void cost_totals(const struct cost_choice *c, int batch, double head_ns, const struct cost_flow *flows, int n_layers,
                 struct plan_figures *out);

#endif
