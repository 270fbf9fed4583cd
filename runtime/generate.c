#include "runtime/generate.h"
#include "runtime/adapting.h"
#include "runtime/engine/kv_prefix.h"
#include "runtime/identity.h"
#include "runtime/report.h"

#include "common/plan/room.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

struct rule {
    int given;
    const char *what, *with;
};

int generate_guess_options(struct opt *o, struct generate_args *a)
{
    static const char *const names[] = { "none", "lookup", "draft", "mtp", NULL };
    const struct opt own[] = {
        { .name = "guess", .type = OPT_CHOICE, .dest = &a->guess, .choices = names,
          .help = "Guess tokens of each text and have one pass say how many are right: lookup takes what followed the same tokens before, "
                  "draft asks a smaller model, mtp the model's own layer for multi-token prediction. Texts stay what they are without; "
                  "guesses are made as long as they make it faster.",
          .def = "none" },
        { .name = "draft", .type = OPT_STRING, .dest = &a->draft, .arg = "FILE", .file = OPT_READ,
          .help = "With --guess draft: a smaller packed model with the same tokens." },
        { .name = "draft-plan", .type = OPT_STRING, .dest = &a->draft_plan, .arg = "FILE", .file = OPT_READ,
          .help = "With --guess draft: its plan." },
        { .name = "draft-memory", .type = OPT_SIZE, .dest = &a->draft_memory, .arg = "SIZE",
          .help = "With --guess draft: its memory limit, a part of --memory.", .def = "its plan's" },
        { .name = "guess-most", .type = OPT_INT, .dest = &a->guess_most, .arg = "N", .min = 1, .max = GUESS_MOST,
          .help = "With --guess: guesses of a pass, at most, for each text.", .def = "8" },
        { .name = "mtp", .type = OPT_STRING, .dest = &a->mtp, .arg = "FILE", .file = OPT_READ,
          .help = "With --guess mtp: the packed layer, from thermo-pack mtp. It stays in memory; what it takes is a part of --memory." },
    };
    memcpy(o, own, sizeof own);
    return GENERATE_GUESS_OPTIONS;
}

int generate_prefix_options(struct opt *o, struct generate_args *a)
{
    const struct opt own[] = {
        { .name = "prefix-cache", .type = OPT_STRING, .dest = &a->prefix_cache, .arg = "DIR",
          .help = "Keep what prompts begin with in this folder, too, as pages of the KV cache, so that later runs do not read it again. "
                  "Who can read the folder can read prompts: use one of your own." },
        { .name = "prefix-cache-size", .type = OPT_SIZE, .dest = &a->prefix_bytes, .arg = "SIZE", .min = 1 << 16, .max = 0x1p50,
          .help = "With --prefix-cache: bytes of all files there, at most; what was used longest ago goes.", .def = "4GiB" },
        { .name = "states", .type = OPT_INT, .dest = &a->states, .arg = "N", .min = 1, .max = 4096,
          .help = "Of a model with recurrent layers: keep so many states of theirs in memory, at every 512th token, before the last "
                  "message and where prompts end; later prompts go on from them. With --prefix-cache they are written there.",
          .def = "none; with --prefix-cache 2" },
    };
    memcpy(o, own, sizeof own);
    return GENERATE_PREFIX_OPTIONS;
}

int generate_elastic_options(struct opt *o, struct generate_args *a)
{
    const struct opt own[] = {
        { .name = "elastic", .type = OPT_SIZE, .dest = &a->setup.elastic, .arg = "SIZE", .min = 1,
          .help = "The memory limit may change while it runs, down to SIZE: all but the neurons in memory is what the plan has for SIZE.",
          .def = "it does not change" },
        { .name = "memory-file", .type = OPT_STRING, .dest = &a->memory_file, .arg = "FILE", .file = OPT_READ,
          .help = "With --elastic: at each SIGUSR1 the memory limit is the one in FILE, as --memory has it." },
        { .name = "follow-pressure", .type = OPT_STRING, .dest = &a->pressure, .arg = "FILE", .file = OPT_READ,
          .help = "With --elastic: where programs wait for memory by FILE, /proc/pressure/memory or a control group's memory.pressure, the "
                  "limit goes down towards SIZE, by a quarter of the way, and up again when none has waited for a while." },
    };
    _Static_assert(sizeof own / sizeof own[0] == GENERATE_ELASTIC_OPTIONS, "counted");
    memcpy(o, own, sizeof own);
    return GENERATE_ELASTIC_OPTIONS;
}

int generate_adapt_options(struct opt *o, struct generate_args *a)
{
    o[0] = (struct opt){ .name = "adapt", .type = OPT_CHOICE, .dest = &a->adapt, .choices = adapting_names,
                         .help = "on: look at what passes take, and go over to an alternative that the plan has (threads, read backend, "
                                 "reads in flight, reads through gaps, experts ahead) where it is clearly faster, as on a machine that "
                                 "became busy; and back. off: stay with the plan. 1 to 8: stay with that alternative. cycle: the next one "
                                 "at every pass, for tests. Texts are the same.",
                         .def = "on" };
    return GENERATE_ADAPT_OPTIONS;
}

void generate_args_init(struct generate_args *a)
{
    *a = (struct generate_args){ .n = 128, .seed = UINT64_MAX };
    setup_args_init(&a->setup);
    sampling_init(&a->sampling);
}

void generate_args_done(struct generate_args *a)
{
    free(a->stops.items);
    a->stops = (struct opt_list){ 0 };
}

int generate_serve_options(struct opt *o, struct generate_args *a)
{
    int k = setup_options(o, &a->setup);
    const struct opt own[] = {
        { .name = "sequences", .type = OPT_INT, .dest = &a->setup.batch, .arg = "N", .min = 1, .max = GENERATE_MAX_BATCH,
          .help = "How many requests are made at once; no more than the plan is for.", .def = "the plan's" },
        { .name = "kv-positions", .type = OPT_INT, .dest = &a->setup.kv_positions, .arg = "N", .min = 1, .max = 1 << 30,
          .help = "Positions of the KV cache for all sequences together; requests wait until there is room.",
          .def = "the context for each" },
        { .name = "chat", .type = OPT_FLAG, .dest = &a->chat,
          .help = "Prompts are messages, and the model's own template is put around them." },
        { .name = "system", .type = OPT_STRING, .dest = &a->system, .arg = "TEXT", .help = "With --chat: a system message before them." },
        { .name = "chat-template", .type = OPT_STRING, .dest = &a->template, .arg = "FILE", .file = OPT_READ,
          .help = "With --chat: a template instead of the model's own." },
        { .name = "thinking", .type = OPT_CHOICE, .dest = &a->thinking, .choices = chat_thinking_names,
          .help = "With --chat: show, hide, or off, which tells the template that the model shall not think.", .def = "show" },
        { .name = "predict", .short_name = 'n', .type = OPT_INT, .dest = &a->n, .arg = "N", .min = -1, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens to make for a request that does not say; -1: until the model ends the text or the context is full.",
          .def = "128" },
        { .name = "stop", .type = OPT_LIST, .dest = &a->stops, .arg = "TEXT",
          .help = "End before this text, for a request that does not say; repeatable." },
        { .name = "ignore-eos", .type = OPT_FLAG, .dest = &a->ignore_eos,
          .help = "Never end a text by itself, for a request that does not say." },
        { .name = "max-pass-ms", .type = OPT_INT, .dest = &a->max_pass_ms, .arg = "MS", .min = 1, .max = 3600000,
          .help = "While other requests are open, read as few tokens of a prompt at a time as a pass of so many milliseconds has room "
                  "for, by what passes took; one at least.",
          .def = "any time" },
        { .name = "schemas", .type = OPT_INT, .dest = &a->setup.schemas, .arg = "N", .min = 0, .max = 4096,
          .help = "Keep memory for so many different schemas at once (\"schema\", \"json\" and \"tool_choice\" of requests).",
          .def = "0: none" },
        { .name = "seed", .short_name = 's', .type = OPT_U64, .dest = &a->seed, .arg = "N",
          .help = "Seed of the first request that has none; the next one's is greater by one.", .def = "random, reported" },
    };
    _Static_assert(sizeof own / sizeof own[0] == 12, "GENERATE_SERVE_OPTIONS counts them");
    memcpy(o + k, own, sizeof own);
    k += (int)(sizeof own / sizeof own[0]);
    k += generate_guess_options(o + k, a);
    k += generate_prefix_options(o + k, a);
    k += generate_elastic_options(o + k, a);
    k += generate_adapt_options(o + k, a);
    return k + sampling_options(o + k, &a->sampling);
}

static int check_guess(const struct generate_args *a, struct err *e)
{
    const struct rule needs[] = {
        { (a->draft || a->draft_plan || a->draft_memory) && a->guess != GENERATE_GUESS_DRAFT, "--draft", "--guess draft" },
        { a->mtp && a->guess != GENERATE_GUESS_MTP, "--mtp", "--guess mtp" },
        { a->guess == GENERATE_GUESS_MTP && !a->mtp, "--guess mtp", "--mtp" },
        { a->guess_most && !a->guess, "--guess-most", "--guess" },
        { a->memory_file && !a->setup.elastic, "--memory-file", "--elastic" },
        { a->pressure && !a->setup.elastic, "--follow-pressure", "--elastic" },
        { a->prefix_bytes && !a->prefix_cache, "--prefix-cache-size", "--prefix-cache" },
        { a->states && a->known && !a->prefix_cache, "--states", "--prefix-cache" },
        { a->guess == GENERATE_GUESS_DRAFT && (!a->draft || !a->draft_plan), "--guess draft", "--draft and --draft-plan" },
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (needs[i].given)
            return err_set(e, ERR_USAGE, "%s belongs to %s", needs[i].what, needs[i].with);
    return 0;
}

int generate_check_serve(const struct generate_args *a, struct err *e)
{
    if (!a->chat && !a->messages && (a->system || a->template || a->thinking))
        return err_set(e, ERR_USAGE, "%s belongs to --chat", a->system ? "--system" : a->template ? "--chat-template" : "--thinking");
    for (int i = 0; i < a->stops.n; i++)
        if (!*a->stops.items[i])
            return err_set(e, ERR_USAGE, "an empty --stop string would stop at once");
        else if (strlen(a->stops.items[i]) > GENERATE_STOP)
            return err_set(e, ERR_USAGE, "a --stop string is longer than %d bytes", GENERATE_STOP);
    return check_guess(a, e);
}

double generate_guess_ns(const struct generate_args *a, const struct setup *s)
{
    return setup_guess_ns(s, a->guess == GENERATE_GUESS_DRAFT ? PLAN_SOURCE_DRAFT :
                             a->guess == GENERATE_GUESS_MTP ? PLAN_SOURCE_MTP : PLAN_SOURCE_FREE);
}

int generate_eog(const struct setup *s, int32_t *eog)
{
    int n = 0;
    for (int32_t i = 0; i < s->pack->h.n_vocab && n < GENERATE_EOG; i++)
        if (tokenizer_is_eog(s->tokenizer, i))
            eog[n++] = i;
    return n;
}

/* What a draft model takes, opened for as many sequences as there are. */
static int draft_beside(void *ctx, const struct engine_config *model, uint64_t *bytes, struct err *e)
{
    struct generate_set *g = ctx;
    const struct generate_args *a = g->args;
    struct setup_args main = a->setup;
    main.memory = main.memory ? main.memory : g->setup.memory_bytes;
    main.held += pack_held_bytes(g->setup.pack);
    int r = draft_open(&g->draft, &main, a->draft, a->draft_plan, a->draft_memory, model->choice.max_batch, e);
    *bytes = r < 0 ? 0 : draft_bytes(&g->draft);
    return r;
}

static int states_of(const struct generate_args *a)
{
    return a->states ? a->states : a->prefix_cache ? GENERATE_STATES : 0;
}

static int most_guesses(const struct generate_args *a)
{
    return a->guess_most ? a->guess_most : GUESS_USUAL;
}

/* And what keeps prefixes, and takes guesses back. */
static int beside_of(void *ctx, const struct engine_config *model, uint64_t *bytes, struct err *e)
{
    struct generate_set *g = ctx;
    const struct generate_args *a = g->args;
    size_t payload;
    int r = 0;
    *bytes = 0;
    if (a->guess == GENERATE_GUESS_DRAFT)
        r = draft_beside(g, model, bytes, e);
    else if (a->guess == GENERATE_GUESS_MTP)
        r = mtp_beside(&g->mtp, model, bytes, e);
    uint64_t state = 0;
    if (r == 0 && a->guess && (r = engine_take_back_bytes(model->pack, &model->choice, most_guesses(a), &state, e)) == 0)
        *bytes += state;
    if (r == 0 && states_of(a) && (r = engine_state_bytes(model->pack, &model->choice, &state, e)) == 0)
        *bytes += (uint64_t)states_of(a) * state;
    if (r == 0 && a->prefix_cache && (r = engine_store_payload(model->pack, &model->choice, &payload, e)) == 0)
        *bytes += kv_store_bytes(payload, model->choice.context);
    return r;
}

/* Who guesses, and its memory, which is kept out of the ceiling for the model's own. */
static int open_guesser(struct generate_set *g, struct generate_args *a, struct err *e)
{
    a->setup.beside_of = beside_of;
    a->setup.beside_ctx = g;
    return a->guess == GENERATE_GUESS_MTP ? mtp_open(&g->mtp, a->mtp, &a->setup, e) : 0;
}

static int check_guesser(const struct generate_set *g, struct err *e)
{
    int guess = g->args->guess, r = 0;
    if (guess == GENERATE_GUESS_DRAFT)
        r = draft_check(&g->draft, &g->setup, e);
    if (r == 0 && guess == GENERATE_GUESS_MTP)
        r = mtp_check(&g->mtp, &g->setup, e);
    return r;
}

/* The template. Without --chat a model may have none, or one that is not understood. */
static int open_chat(struct generate_set *g, const struct generate_args *a, struct err *e)
{
    if (!a->chat && !a->messages)
        return 0;
    int context = g->setup.config.choice.context;
    int r = chat_new(g->setup.pack->meta, g->setup.tokenizer, a->template, context, &g->shared.chat, e);
    if (r == 0 || a->chat || a->template || (r != ERR_FORMAT && r != ERR_UNSUPPORTED && r != ERR_LIMIT))
        return r;
    g->shared.no_chat = *e;
    return 0;
}

/* What a conversation takes, and the one request that its turn is: all that reading takes, whose messages a caller has, too. */
static void count_conversation(struct generate_args *a)
{
    struct setup_args *s = &a->setup;
    s->beside_what = a->guess == GENERATE_GUESS_MTP ? "the layer for multi-token prediction, and the conversation," : "the conversation";
    s->beside = a->reserved + ROOM_CHAT;
    s->beside_per_token = ROOM_CHAT_PER_TOKEN;
    s->beside_per_place = a->reserved_per_token;
    s->purpose = PLAN_FOR_CHAT;
}

/* What requests take beside the model. One that is known beforehand has room in what every process takes. */
static void count_beside(struct generate_args *a, int in_flight)
{
    struct setup_args *s = &a->setup;
    int chat = a->chat || a->messages, per_sequence = a->requests ? 0 : in_flight;
    uint64_t each = REQUEST_FIXED + a->per_request, longest = 0;
    for (int i = 0; i < a->stops.n; i++)
        longest = strlen(a->stops.items[i]) > longest ? strlen(a->stops.items[i]) : longest;
    each += 2 * longest; /* of text that may become one is held back */
    s->beside_what = a->known && a->guess == GENERATE_GUESS_DRAFT ? "the draft model" :
                     a->known && a->guess == GENERATE_GUESS_MTP ? "the layer for multi-token prediction" : "what is asked for at once";
    s->beside = a->reserved;
    s->beside_per_place = a->reserved_per_token + (uint64_t)per_sequence * REQUEST_PER_TOKEN;
    s->purpose = a->known ? PLAN_FOR_GENERATE : a->reserved ? PLAN_FOR_SERVER : PLAN_FOR_SERVE;
    s->beside_per_place += !a->known || a->prefix_cache ? KV_PREFIX_PER_TOKEN : 0;
    if (!a->known) {
        s->beside += REQUEST_READING + (chat ? CHAT_BYTES : 0);
        s->beside_per_token = REQUEST_READING_PER_TOKEN + (chat ? CHAT_BYTES_PER_TOKEN : 0);
    }
    if (a->known && a->requests == 1)
        return;
    if (a->calls) { /* three times a call's bytes in each request, four times in what becomes text of a token (thermo.c) */
        each += calls_bytes(request_call_bytes(0));
        s->beside += REPLAY_FIXED;
        s->beside_per_place += (3u * (uint64_t)per_sequence + 4) * REQUEST_CALL_PER_TOKEN;
        s->beside_per_token += ((uint64_t)a->requests * 3 + 4) * REQUEST_CALL_PER_TOKEN;
    }
    s->beside += batch_bytes(1, a->guess) + (uint64_t)a->requests * each;
    s->beside_per_token += (uint64_t)a->requests * REQUEST_PER_TOKEN;
    s->beside_per_sequence = (uint64_t)per_sequence * each + a->per_sequence + sizeof(struct batch_text) + batch_bytes(1, a->guess);
}

void generate_set_read(struct generate_set *g)
{
    chat_free(g->shared.chat);
    g->shared.chat = NULL;
}

/* The folder of prefixes. */
static int open_store(struct generate_set *g, struct err *e)
{
    const struct generate_args *a = g->args;
    struct kv_store_config c = { .dir = a->prefix_cache, .most = a->prefix_bytes ? a->prefix_bytes : UINT64_C(4) << 30,
                                 .context = g->setup.config.choice.context, .wake = a->wake, .wake_ctx = a->wake_ctx };
    int r = a->prefix_cache ? identity_of(&g->setup, &c.key.pack, &c.key.how, e) : 0;
    if (r < 0 || !a->prefix_cache ||
        (r = engine_store_payload(g->setup.pack, &g->setup.config.choice, &c.payload, e)) < 0)
        return r;
    g->root = kv_store_root(&c.key);
    r = kv_store_open(&c, &g->store, e);
    if (r == 0 && g->shared.replay)
        replay_load(g->shared.replay, a->prefix_cache, g->root, g->setup.pack->h.n_vocab);
    return r;
}

int generate_set_open(struct generate_set *g, struct generate_args *a, int in_flight, struct err *e)
{
    int r;
    *g = (struct generate_set){ .shared = { .s = &g->setup, .system = a->system, .thinking = a->thinking, .n = a->n,
                                            .ignore_eos = a->ignore_eos, .sampling = a->sampling, .stops = &a->stops,
                                            .prompt_is_message = a->chat, .calls = a->calls },
                                .args = a };
    if (a->conversation)
        count_conversation(a);
    else
        count_beside(a, in_flight);
    if ((r = open_guesser(g, a, e)) < 0 || (r = setup_open(&a->setup, &g->setup, e)) < 0 || (r = check_guesser(g, e)) < 0)
        return r;
    const struct budget_choice *c = &g->setup.config.choice;
    if (a->states && !model_has_states(&g->setup.pack->h))
        return err_set(e, ERR_USAGE, "--states is for models with recurrent layers; '%s' has none", a->setup.model);
    if ((r = open_chat(g, a, e)) < 0)
        return r;
    g->n_eog = generate_eog(&g->setup, g->eog);
    if (a->setup.schemas && (r = schemas_new(g->setup.tokenizer, g->setup.pack->h.n_vocab, g->eog, g->n_eog, a->setup.schemas,
                                             &g->schemas, e)) < 0)
        return r;
    g->shared.schemas = g->schemas;
    if (a->calls && (r = replay_new(&g->shared.replay, e)) < 0)
        return r;
    int n = a->requests ? a->requests : in_flight * c->max_batch;
    g->requests = calloc((size_t)n, sizeof *g->requests);
    if (!g->requests)
        return err_set(e, ERR_NOMEM, "out of memory for %d requests", n);
    for (g->n = 0; g->n < n && r == 0; g->n++)
        r = request_init(&g->requests[g->n], &g->shared, e);
    return r < 0 ? r : open_store(g, e);
}

int generate_set_start(struct generate_set *g, void (*scored)(void *, struct batch_text *, int),
                       void (*end)(void *, struct batch_text *, enum batch_end, const struct err *),
                       int (*token)(void *, struct batch_text *, int32_t), void *ctx, struct err *e)
{
    const struct generate_args *a = g->args;
    int drafts = a->guess == GENERATE_GUESS_DRAFT, mtp = a->guess == GENERATE_GUESS_MTP, r = setup_engine(&g->setup, &g->engine, e);
    if (r < 0 || (a->guess && (r = engine_take_back(g->engine, most_guesses(a), e)) < 0) ||
        (drafts && (r = draft_start(&g->draft, e)) < 0) || (mtp && (r = mtp_start(&g->mtp, &g->setup, g->engine, e)) < 0))
        return r;
    const struct guess_many_config guesses = { .most = most_guesses(a), .costly = drafts || mtp,
                                               .source = drafts ? draft_guess_many : mtp ? mtp_guess_many : guess_lookup_many,
                                               .ready = mtp ? mtp_ready_many : NULL, .watcher = mtp ? &mtp_watcher : NULL,
                                               .ctx = mtp ? (void *)&g->mtp : &g->draft, .guess_ns = generate_guess_ns(a, &g->setup),
                                               .batches = g->setup.planned, .plan = setup_guesses(&g->setup),
                                               .n_batches = g->setup.config.mode == g->setup.limit.mode ? g->setup.n_planned : 0 };
    const struct batch_config c = { .engine = g->engine, .eog = g->eog, .n_eog = g->n_eog, .cancel = g->setup.args.cancel,
                                    .guesses = a->guess ? &guesses : NULL, .most_ns = a->max_pass_ms * 1e6,
                                    .prefixes = !a->known || a->prefix_cache, .states = states_of(a), .token = token,
                                    .scored = scored, .end = end,
                                    .allowed = request_allowed, .ctx = ctx };
    r = batch_init(&g->batch, &c, e);
    if (r == 0 && a->prefix_cache && !g->batch.finds)
        return err_set(e, ERR_UNSUPPORTED, "--prefix-cache: '%s' keeps no pages that others can begin with: %s", a->setup.model,
                       g->batch.guess.watcher ? "--guess mtp goes by what is computed" : "--context has to be a multiple of 32");
    engine_use_store(g->engine, g->store, g->root);
    return r;
}

/* What the folder lacks, as far as it is written within some seconds. */
static void end_store(struct generate_set *g)
{
    enum { END_MS = 5000 };
    for (int i = 0; g->store && g->engine && i < END_MS && engine_store_prefixes(g->engine); i++)
        poll(NULL, 0, 1);
    if (g->engine && g->store)
        engine_use_store(g->engine, NULL, (struct hash128){ 0 });
    kv_store_close(g->store);
    g->store = NULL;
}

void generate_set_idle(struct generate_set *g)
{
    if (g->store && g->shared.replay)
        replay_save(g->shared.replay, g->args->prefix_cache, g->root);
}

void generate_set_close(struct generate_set *g)
{
    generate_set_idle(g);
    if (g->engine)
        batch_done(&g->batch);
    end_store(g);
    mtp_close(&g->mtp);
    report_accel_lost(g->engine);
    engine_close(g->engine);
    for (int i = 0; g->requests && i < g->n; i++)
        request_done(&g->requests[i]);
    free(g->requests);
    schemas_free(g->schemas);
    replay_free(g->shared.replay);
    chat_free(g->shared.chat);
    draft_close(&g->draft);
    setup_close(&g->setup);
}
