/* One table names every field. What a check could not bear on in this plan was collected before, and stands beside it. */
#include "planner/check/check_fields.h"

#include "common/base/print.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL   CHECK_MODEL
#define FIGURES (CHECK_MODEL | CHECK_HARDWARE)
#define SOLVED  (CHECK_MODEL | CHECK_HARDWARE | CHECK_SOLVED)

/* Verified where the check rests on all of `needs` and, of what a plan takes over from the request, the user has repeated it. */
static const struct row {
    const char *name;
    unsigned needs, asked;
} rows[] = {
    { "cost", FIGURES, 0 },
    { "device.hash", FIGURES, 0 },
    { "device.name", FIGURES, 0 },
    { "engine", FIGURES, 0 },
    { "figures", FIGURES, 0 },
    { "format", 0, 0 },
    { "layout.block_bytes", FIGURES, 0 },
    { "layout.cluster_neurons", FIGURES, 0 },
    { "layout.form", FIGURES, 0 },
    { "layout.hash", 0, 0 },
    { "layout.packed", FIGURES, 0 },
    { "layout.types.down", MODEL, 0 },
    { "layout.types.exceptions", MODEL, 0 },
    { "layout.types.gate", MODEL, 0 },
    { "layout.types.up", MODEL, 0 },
    { "limits[].account_bytes", MODEL, 0 },
    { "limits[].act", FIGURES, 0 },
    { "limits[].batches[].batch", MODEL, 0 },
    { "limits[].batches[].cold", MODEL, 0 },
    { "limits[].batches[].configuration", FIGURES, 0 },
    { "limits[].batches[].configuration.classes[].n", FIGURES, 0 },
    { "limits[].batches[].configuration.classes[].name", FIGURES, 0 },
    { "limits[].batches[].configuration.queue_depth", FIGURES, 0 },
    { "limits[].batches[].configuration.threads", FIGURES, 0 },
    { "limits[].batches[].engine_neurons", FIGURES, 0 },
    { "limits[].batches[].engine_work", FIGURES, 0 },
    { "limits[].batches[].hot", MODEL, 0 },
    { "limits[].batches[].predicted.head_ns", FIGURES, 0 },
    { "limits[].batches[].predicted.hit_rate", FIGURES, 0 },
    { "limits[].batches[].predicted.layers", FIGURES, 0 },
    { "limits[].batches[].predicted.read_bytes", FIGURES, 0 },
    { "limits[].batches[].predicted.step_ns", FIGURES, 0 },
    { "limits[].batches[].predicted.tokens_per_s", FIGURES, 0 },
    { "limits[].batches[].streamed", FIGURES, 0 },
    { "limits[].classes[].n", FIGURES, 0 },
    { "limits[].classes[].name", FIGURES, 0 },
    { "limits[].cold_policy", FIGURES, 0 },
    { "limits[].context", MODEL, 0 },
    { "limits[].exempt", FIGURES, 0 },
    { "limits[].floor_bytes", MODEL, 0 },
    { "limits[].for", MODEL, 0 },
    { "limits[].gap", SOLVED, 0 },
    { "limits[].gap_of", SOLVED, 0 },
    { "limits[].guesses.acceptance", FIGURES, 0 },
    { "limits[].guesses.best", 0, 0 },
    { "limits[].guesses.pass_ns", FIGURES, 0 },
    { "limits[].guesses.read_bytes", FIGURES, 0 },
    { "limits[].guesses.source.guess_ns", FIGURES, CHECK_ASKED_GUESSER },
    { "limits[].guesses.source.kind", SOLVED, CHECK_ASKED_GUESSER },
    { "limits[].guesses.speedup", 0, 0 },
    { "limits[].guesses.tokens", FIGURES, 0 },
    { "limits[].io.backend", FIGURES, 0 },
    { "limits[].io.experts_ahead", FIGURES, 0 },
    { "limits[].io.joins[].bytes", FIGURES, 0 },
    { "limits[].io.joins[].weight", FIGURES, 0 },
    { "limits[].io.lanes", FIGURES, 0 },
    { "limits[].io.load_bytes_per_s", FIGURES, 0 },
    { "limits[].io.queue_depth", MODEL, 0 },
    { "limits[].kv", MODEL, 0 },
    { "limits[].max_batch", MODEL, 0 },
    { "limits[].memory_bytes", SOLVED, CHECK_ASKED_MEMORY },
    { "limits[].min_tokens_per_s", SOLVED, CHECK_ASKED_SPEED },
    { "limits[].mode", FIGURES, 0 },
    { "limits[].optimal", SOLVED, 0 },
    { "limits[].own_layout.cost", SOLVED, 0 },
    { "limits[].own_layout.form", SOLVED, 0 },
    { "limits[].own_layout.packed", SOLVED, 0 },
    { "limits[].own_layout.tokens_per_s", SOLVED, 0 },
    { "limits[].predictor_buffers", MODEL, 0 },
    { "limits[].predictors", FIGURES, 0 },
    { "limits[].prefill_chunk", MODEL, 0 },
    { "limits[].prompt.attention_ns", FIGURES, 0 },
    { "limits[].prompt.engine_neurons", FIGURES, 0 },
    { "limits[].prompt.engine_rest.area_bytes", MODEL, 0 },
    { "limits[].prompt.engine_rest.from_tokens", FIGURES, 0 },
    { "limits[].prompt.engine_work", FIGURES, 0 },
    { "limits[].prompt.ffn_ns", FIGURES, 0 },
    { "limits[].prompt.head_ns", FIGURES, 0 },
    { "limits[].prompt.read_bytes", FIGURES, 0 },
    { "limits[].prompt.tokens", FIGURES, 0 },
    { "limits[].prompt.wait_ns", FIGURES, 0 },
    { "limits[].recall", SOLVED, 0 },
    { "limits[].threads", FIGURES, 0 },
    { "model.blocks", MODEL, 0 },
    { "model.d_model", MODEL, 0 },
    { "model.hash", MODEL, 0 },
    { "model.layers", MODEL, 0 },
    { "model.n_ff", MODEL, 0 },
    { "model.name", MODEL, 0 },
    { "model.order_hash", MODEL, 0 },
    { "model.trace_hash", MODEL, 0 },
    { "notes", SOLVED, 0 },
    { "request", SOLVED, 0 },
    { "request.batch_weights", SOLVED, 0 },
    { "request.cold_policy", SOLVED, 0 },
    { "request.context", SOLVED, 0 },
    { "request.cores[].n", SOLVED, 0 },
    { "request.cores[].name", SOLVED, 0 },
    { "request.engine", SOLVED, 0 },
    { "request.form", SOLVED, 0 },
    { "request.max_kl", SOLVED, 0 },
    { "request.mode", SOLVED, 0 },
    { "request.packed", SOLVED, 0 },
    { "request.predictor", SOLVED, 0 },
    { "request.prefill_chunk", SOLVED, 0 },
    { "request.prompt_weight", SOLVED, 0 },
    { "request.recall", SOLVED, 0 },
    { "revision", 0, 0 },
    { "rlimit", SOLVED, CHECK_ASKED_RLIMIT },
    { "seed", SOLVED, 0 },
    { "solver", SOLVED, 0 },
    { "tool", SOLVED, 0 },
};

/* Fields that a request decides, so that solving again with the plan's own value says nothing. */
static const struct {
    const char *last;
    unsigned asked;
} taken_over[] = { { "act", CHECK_ASKED_ACT }, { "figures", CHECK_ASKED_STAT } };

int check_fields_add(struct check_fields *f, const char *why, struct err *e, const char *fmt, ...)
{
    if (!f)
        return 0;
    if (f->n == f->cap) {
        int cap = 2 * f->cap + 64;
        struct check_field *grown = realloc(f->at, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "out of memory for a check");
        f->at = grown;
        f->cap = cap;
    }
    struct check_field *to = &f->at[f->n++];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(to->name, sizeof to->name, fmt, ap);
    va_end(ap);
    to->why = why;
    return 0;
}

void check_fields_done(struct check_fields *f)
{
    free(f->at);
    *f = (struct check_fields){ 0 };
}

/* Has solving again resolved a doubt? */
static int is_resolved(const struct check_field *d, unsigned basis, unsigned asked)
{
    const char *last = strrchr(d->name, '.');
    last = last ? last + 1 : d->name;
    for (size_t i = 0; i < sizeof taken_over / sizeof *taken_over; i++)
        if (!strcmp(last, taken_over[i].last))
            return basis & CHECK_SOLVED && asked & taken_over[i].asked;
    return (basis & CHECK_SOLVED) != 0;
}

static int is_doubted(const struct check_fields *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->at[i].name, name))
            return 1;
    return 0;
}

static const char *why_not(const struct row *w, unsigned basis, unsigned asked)
{
    unsigned lacks = w->needs & ~basis;
    if (!strcmp(w->name, "limits[].gap") && basis & CHECK_PROOF)
        return NULL;
    if (lacks & CHECK_MODEL)
        return "needs the trace or description";
    if (lacks & CHECK_HARDWARE)
        return "needs the hardware database";
    if (w->asked && (lacks || !(asked & w->asked)))
        return "as the request asked, which is not in the plan";
    return lacks ? "only solving again tells" : NULL;
}

int check_fields_list(struct check_fields *f, unsigned basis, unsigned asked, struct err *e)
{
    int r = 0, kept = 0;
    for (int i = 0; i < f->n; i++)
        if (!is_resolved(&f->at[i], basis, asked))
            f->at[kept++] = f->at[i];
    f->n = kept;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && r == 0; i++)
        if (!is_doubted(f, rows[i].name))
            r = check_fields_add(f, why_not(&rows[i], basis, asked), e, "%s", rows[i].name);
    return r;
}
