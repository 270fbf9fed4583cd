#ifndef RUNTIME_REPORT_H
#define RUNTIME_REPORT_H

/* Telemetry: JSON lines on stdout for programs, a summary on stderr for people. Nothing here allocates. */
#include "runtime/engine/engine.h"
#include "runtime/session/guess.h"
#include "runtime/setup.h"

#include <stdio.h>

struct report {
    const char *stop;             /* "length" "stop" "eos" "context" "interrupted" */
    int n_prompt, n_generated;
    int n_decoded;                /* tokens that passes of decoding gave: all but the first, and one that ended the text */
    uint64_t load_ns, ttft_ns;    /* opening to loaded; prompt's first pass to the first token */
    uint64_t prompt_ns, decode_ns;
    struct engine_stats prompt, decode;
    uint64_t seed;
    int guessing, guess_most;     /* with guesses; of a pass, at most */
    struct guess_stats guesses;
    double guess_ns;              /* of a guess, for its source, by the plan; 0: not known */
};

/* A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void report_string(FILE *f, const char *text, size_t len);

/* The same without quotes: a part of one. */
void report_chars(FILE *f, const char *text, size_t len);

/* One generated token: what this step cost. before and after are the engine's totals around it. */
void report_token(FILE *f, int n, int32_t id, const char *text, size_t len, uint64_t step_ns,
                  const struct engine_stats *before, const struct engine_stats *after);

void report_summary_json(FILE *f, const struct setup *s, const struct engine *g, const struct report *r);
void report_summary_text(const struct setup *s, const struct engine *g, const struct report *r);

/* ,"batches":[{batch, threads, queue_depth, passes}, ...]: by whom passes were made, of up to `batch` tokens, 0: of more; nothing where a
 * plan has one batch size. */
void report_batches(FILE *f, const struct engine *g, const struct engine_stats *s);

/* The members of a JSON object that say what ran: model, plan, threads, memory, backend; no braces. */
void report_configuration(FILE *f, const struct setup *s, const struct engine *g);

/* Warns where a fault has ended the accelerator's work; before the engine is closed. */
void report_accel_lost(const struct engine *g);

/* What the plan expects of guesses: passes of so many tokens, and the number that is fastest for the share of guesses that came true and
 * what each took. NULL: it has none, or something differs from what was planned. */
const struct plan_guesses *report_planned_guesses(const struct setup *s);

/* Time to the first token of a prompt of so many tokens by the plan, ns; 0: it has none, or not for this chunk or what else differs. */
double report_prompt_ns(const struct setup *s, int tokens);

double report_rate(uint64_t n, uint64_t ns);    /* per second; 0 when ns is 0 */
double report_share(uint64_t part, uint64_t whole); /* 0 when whole is 0 */

/* Hit rate of the cold cache as the plan predicts it: of the units that open gates ask for. Gates that are streamed for
 * every token are looked up too and never hit; they count only where a unit holds a neuron's gate and all else. */
double report_hit_rate(const struct engine_stats *s);

#endif
