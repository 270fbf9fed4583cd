#ifndef RUNTIME_REPORT_H
#define RUNTIME_REPORT_H

/* Telemetry, as members of JSON objects. Nothing here allocates. */
#include "runtime/adapting.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/kv_store.h"
#include "runtime/session/guess.h"
#include "runtime/setup.h"

#include <stdio.h>

/* Passes of one kind. */
struct report_phase {
    uint64_t tokens, ns;
    struct engine_stats stats;
};

/* What a model has done since it was opened. */
struct report {
    uint64_t load_ns;
    struct report_phase prompt;   /* passes that read prompts, and of which texts' tokens may be a part; tokens: of prompts */
    struct report_phase decode;   /* the others; tokens: drawn, ends of texts included */
    uint64_t texts;               /* begun, */
    int most;                     /* and in one pass, at most */
    int guessing, guess_most;     /* with guesses; of a text in a pass, at most */
    struct guess_stats guesses;
    const struct adapting *adapting; /* changes under the same lock as the rest */
    double guess_ns;              /* of a guess, for its source, by the plan; 0: not known */
};

/* A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void report_string(FILE *f, const char *text, size_t len);

/* The same without quotes: a part of one. */
void report_chars(FILE *f, const char *text, size_t len);

/* ,"load_ms":..,"prompt":{..},"decode":{..},"guesses":{..},"predicted":{..},"measured":{..},"adapt":{..}: runtime/README.md. */
void report_work(FILE *f, const struct setup *s, const struct engine *g, const struct report *r);

/* ,"batches":[{batch, threads, queue_depth, passes}, ...]: by whom passes were made, of up to `batch` tokens, 0: of more; nothing where a
 * plan has one batch size. */
void report_batches(FILE *f, const struct engine *g, const struct engine_stats *s);

/* The members of a JSON object that say what ran: model, plan, threads, memory, backend; no braces. */
void report_configuration(FILE *f, const struct setup *s, const struct engine *g);

/* Warns where a fault has ended the accelerator's work; before the engine is closed. */
void report_accel_lost(const struct engine *g);

/* Time to the first token of a prompt of so many tokens by the plan, ns; 0: it has none, or not for this chunk or what else differs. */
double report_prompt_ns(const struct setup *s, int tokens);

double report_rate(uint64_t n, uint64_t ns);    /* per second; 0 when ns is 0 */
double report_share(uint64_t part, uint64_t whole); /* 0 when whole is 0 */

/* Hit rate of the cold cache as the plan predicts it: of the units that open gates ask for. Gates that are streamed for
 * every token are looked up too and never hit; they count only where a unit holds a neuron's gate and all else. */
double report_hit_rate(const struct engine_stats *s);

/* What a folder of prefixes was used for; NULL: nothing is printed. */
void report_store(FILE *f, struct kv_store *store);

#endif
