#include "runtime/generate.h"
#include "runtime/report.h"

#include <stdlib.h>
#include <string.h>

struct rule {
    int given;
    const char *what, *with;
};

int generate_check(const struct generate_args *a, struct err *e)
{
    int prompts = a->prompts != NULL, best = a->best_of > 0;
    const struct rule needs[] = {
        { a->column && !prompts, "--column", "--prompts" },
        { a->output && !prompts, "--output", "--prompts" },
        { a->resume && !a->output, "--resume", "--output" },
        { a->setup.batch && !prompts, "--sequences", "--prompts" },
        { (a->draft || a->draft_plan || a->draft_memory) && a->guess != GENERATE_GUESS_DRAFT, "--draft", "--guess draft" },
        { a->mtp && a->guess != GENERATE_GUESS_MTP, "--mtp", "--guess mtp" },
        { a->guess == GENERATE_GUESS_MTP && !a->mtp, "--guess mtp", "--mtp" },
        { a->guess_most && !a->guess, "--guess-most", "--guess" },
        { a->guess == GENERATE_GUESS_DRAFT && (!a->draft || !a->draft_plan), "--guess draft", "--draft and --draft-plan" },
        { a->setup.kv_positions && !prompts && !best, "--kv-positions", "--prompts or --best-of" },
    }, excludes[] = {
        { prompts && best, "--best-of", "--prompts" },
        { prompts && a->prompt, "--prompt", "--prompts" },
        { prompts && a->prompt_file, "--prompt-file", "--prompts" },
        { prompts && a->json, "--json", "--prompts, whose results are JSON lines" },
        { prompts && a->no_echo, "--no-echo", "--prompts" },
        { prompts && a->guess, "--guess", "--prompts" },
        { best && a->guess, "--guess", "--best-of" },
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (needs[i].given)
            return err_set(e, ERR_USAGE, "%s belongs to %s", needs[i].what, needs[i].with);
    for (size_t i = 0; i < sizeof excludes / sizeof *excludes; i++)
        if (excludes[i].given)
            return err_set(e, ERR_USAGE, "%s does not go with %s", excludes[i].what, excludes[i].with);
    for (int i = 0; (prompts || best) && i < a->stops.n; i++)
        if (!*a->stops.items[i] || a->stops.n > REQUEST_STOPS || strlen(a->stops.items[i]) > REQUEST_STOP)
            return err_set(e, ERR_USAGE, "--stop: at most %d texts of 1 to %d bytes, with --prompts and --best-of", REQUEST_STOPS,
                           REQUEST_STOP);
    return 0;
}

int generate_eog(const struct setup *s, int32_t *eog)
{
    int n = 0;
    for (int32_t i = 0; i < s->pack->h.n_vocab && n < GENERATE_EOG; i++)
        if (tokenizer_is_eog(s->tokenizer, i))
            eog[n++] = i;
    return n;
}

int generate_set_open(struct generate_set *g, struct generate_args *a, int in_flight, struct err *e)
{
    int r;
    *g = (struct generate_set){ .shared = { .s = &g->setup, .system = a->system, .thinking = a->thinking, .n = a->n,
                                            .ignore_eos = a->ignore_eos, .sampling = a->sampling, .stops = &a->stops } };
    a->setup.beside_what = "what is asked for at once";
    a->setup.beside = REQUEST_READING + batch_bytes(1) + (a->chat ? CHAT_BYTES : 0);
    a->setup.beside_per_token = REQUEST_READING_PER_TOKEN + (a->chat ? CHAT_BYTES_PER_TOKEN : 0);
    a->setup.beside_per_sequence = (uint64_t)in_flight * REQUEST_FIXED + sizeof(struct batch_text) + batch_bytes(1);
    a->setup.beside_per_place = (uint64_t)in_flight * REQUEST_PER_TOKEN;
    if ((r = setup_open(&a->setup, &g->setup, e)) < 0)
        return r;
    const struct budget_choice *c = &g->setup.config.choice;
    if (a->chat && (r = chat_new(g->setup.pack->meta, g->setup.tokenizer, a->template, c->context, &g->shared.chat, e)) < 0)
        return r;
    g->n_eog = generate_eog(&g->setup, g->eog);
    int n = in_flight * c->max_batch;
    g->requests = calloc((size_t)n, sizeof *g->requests);
    if (!g->requests)
        return err_set(e, ERR_NOMEM, "out of memory for %d requests", n);
    for (g->n = 0; g->n < n && r == 0; g->n++)
        r = request_init(&g->requests[g->n], &g->shared, e);
    return r;
}

int generate_set_start(struct generate_set *g, void (*end)(void *, struct batch_text *, enum batch_end, const struct err *),
                       int (*token)(void *, struct batch_text *, int32_t), void *ctx, struct err *e)
{
    int r = setup_engine(&g->setup, &g->engine, e);
    if (r < 0)
        return r;
    const struct batch_config c = { .engine = g->engine, .eog = g->eog, .n_eog = g->n_eog, .cancel = g->setup.args.cancel,
                                    .token = token, .end = end, .ctx = ctx };
    return batch_init(&g->batch, &c, e);
}

void generate_set_close(struct generate_set *g)
{
    if (g->engine)
        batch_done(&g->batch);
    report_accel_lost(g->engine);
    engine_close(g->engine);
    for (int i = 0; g->requests && i < g->n; i++)
        request_done(&g->requests[i]);
    free(g->requests);
    chat_free(g->shared.chat);
    setup_close(&g->setup);
}

void generate_end(void *ctx, struct batch_text *t, enum batch_end end, const struct err *why)
{
    struct request *q = t->owner;
    (void)ctx;
    q->end = end;
    q->ended = 1;
    if (why)
        q->why = *why;
    if (t != &q->text) /* a twin's counts */
        q->text = *t;
}
