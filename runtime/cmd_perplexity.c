/* thermo-run perplexity: exp of the mean negative log-likelihood over windows of a text. */
#include "common/base/file.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"
#include "common/model/logits.h"

#include "runtime/cmd.h"
#include "runtime/prompt.h"
#include "runtime/report.h"
#include "runtime/session/session.h"
#include "runtime/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-run perplexity", "",
    "Perplexity of a text, or of a file of 16-bit little-endian token ids. The tokens are cut into windows of "
    "--ctx, each with an empty KV cache; an incomplete window at the end is dropped. Protocol full scores positions "
    "1 to ctx-1 of each window; half replaces the first id by the model's beginning-of-text token and scores the "
    "second half, positions ctx/2+1 to ctx-1, as llama.cpp does. --against exact runs the same text in predicted mode, or by a plan "
    "that leaves cold neurons out, and exactly, side by side, and says how far the distributions of the next token are apart: "
    "Kullback-Leibler divergence from exact, how often both have the same likeliest token, both perplexities.",
    "  thermo-run perplexity --model m.thermo --plan p.json --file wiki.txt\n"
    "  thermo-run perplexity --model m.thermo --plan p.json --ids heldout.bin --ctx 256 --protocol full --json\n"
    "  thermo-run perplexity --model m.thermo --plan p.json --mode predicted --recall 0.99 --file wiki.txt --against exact\n",
    NULL
};

enum { PROTOCOL_FULL, PROTOCOL_HALF };
static const char *const protocols[] = { "full", "half", NULL };

struct args {
    struct setup_args setup;
    const char *file, *ids, *store;
    int ctx, protocol, json, max_windows, against; /* against: 0 exact, -1 nothing */
};

static const char *const againsts[] = { "exact", NULL };

struct sum {
    double nll;
    double exact_nll, kl, kl_max; /* --against exact */
    uint64_t scored, same;
    int windows;
};

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    struct opt o[SETUP_OPTIONS + 9] = { 0 };
    int k = setup_options(o, &a->setup), n_pos = 0;
    const struct opt own[] = {
        { .name = "file", .short_name = 'f', .type = OPT_STRING, .dest = &a->file, .arg = "FILE", .file = OPT_READ,
          .help = "Text; - is standard input." },
        { .name = "ids", .type = OPT_STRING, .dest = &a->ids, .arg = "FILE", .file = OPT_READ,
          .help = "Token ids, u16 little-endian, instead of a text." },
        { .name = "ctx", .type = OPT_INT, .dest = &a->ctx, .arg = "N", .min = 4, .max = MODEL_MAX_CONTEXT,
          .help = "Tokens of a window.", .def = "the context" },
        { .name = "protocol", .type = OPT_CHOICE, .dest = &a->protocol, .arg = "P", .choices = protocols,
          .help = "full or half.", .def = "full" },
        { .name = "windows", .type = OPT_INT, .dest = &a->max_windows, .arg = "N", .min = 1, .max = 1e9,
          .help = "Only the first N windows.", .def = "all" },
        { .name = "against", .type = OPT_CHOICE, .dest = &a->against, .arg = "MODE", .choices = againsts,
          .help = "Compare predicted mode, or a plan that leaves cold neurons out, with this one: exact." },
        { .name = "store", .type = OPT_STRING, .dest = &a->store, .arg = "PLAN", .file = OPT_WRITE,
          .help = "With --against exact: write the plan with divergence, perplexity and agreement in it, and the text's hash, for "
                  "'thermo-plan check' to hold against its max_kl." },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json, .help = "One JSON object on stdout." },
    };
    memcpy(o + k, own, sizeof own);
    int r = opt_parse(o, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-run perplexity --help", argv[1]);
    a->setup.sequences = a->against >= 0 ? 2 : 0;
    if (r == 0 && !a->file == !a->ids)
        return err_set(e, ERR_USAGE, "one of --file and --ids is needed");
    if (r == 0 && a->store && (a->against < 0 || a->setup.recall > 0))
        return err_set(e, ERR_USAGE, a->against < 0 ? "--store keeps what --against exact measures" :
                                     "--store keeps what the plan loses: it goes without --recall");
    return r;
}

/* Of the text as many tokens as are scored, which stay in memory: for setup_args.beside_of. */
struct text {
    const struct args *a;
    const struct setup *s;
    int32_t *ids;
    int n;
};

static int get_ids(void *ctx, const struct engine_config *model, uint64_t *bytes, struct err *e)
{
    struct text *t = ctx;
    const struct args *a = t->a;
    size_t ctx_tokens = (size_t)(a->ctx ? a->ctx : model->choice.context), room = setup_room(t->s);
    size_t most = a->max_windows ? ctx_tokens * (size_t)a->max_windows : SIZE_MAX / sizeof *t->ids;
    int r = !t->s->tokenizer ? 0 : a->ids ? prompt_ids_file(a->ids, t->s->pack->h.n_vocab, most, room, &t->ids, &t->n, e) :
            prompt_tokens(t->s->tokenizer, a->file, 1, most, room, &t->ids, &t->n, e);
    *bytes = (uint64_t)t->n * sizeof *t->ids;
    return r;
}

/* Logits of the text's token `target`, and of exact mode, or NULL. */
static void add_scores(const float *v, const float *exact, int n, int32_t target, struct sum *sum)
{
    sum->scored++;
    if (!exact) {
        sum->nll += logits_log_sum(v, n, NULL) - (double)v[target];
        return;
    }
    const struct logits_difference d = logits_compare(exact, v, n);
    sum->nll += d.log_sum_b - (double)v[target];
    sum->exact_nll += d.log_sum_a - (double)exact[target];
    sum->kl += d.kl;
    sum->kl_max = d.kl > sum->kl_max ? d.kl : sum->kl_max;
    sum->same += d.same;
}

struct run {
    const struct args *a;
    const struct setup *s;
    struct engine *g;
    struct session session, exact;  /* exact: of --against */
    struct sum sum;
};

/* One piece of a window through both modes, each in its session; what exact mode makes of each token waits in `keep` for the
 * other. */
static int piece(struct run *q, const int32_t *ids, int n, float *keep, struct err *e)
{
    int done, r = 0;
    if (keep && (r = session_feed(&q->exact, ids, n, SESSION_EXACT, &done, e)) == 0)
        memcpy(keep, session_hidden(&q->exact), (size_t)n * (size_t)q->s->pack->h.d_model * sizeof *keep);
    return r < 0 ? r : session_feed(&q->session, ids, n, SESSION_PREDICTED, &done, e);
}

/* Tokens [from, to) of the last piece, of `passed` tokens, each with the text's next one, next[i]; as many at a time as there is room for.
 * keep: what exact mode made of them, or NULL. */
static int score_tokens(struct run *q, const int32_t *next, int passed, int from, int to, const float *keep, struct err *e)
{
    size_t d = (size_t)q->s->pack->h.d_model, vocab = (size_t)q->s->pack->h.n_vocab;
    int rows, one, r;
    float *v = session_logits_memory(&q->session, &rows), *exact = NULL;
    if (keep && rows > 1)
        exact = v + (size_t)(rows /= 2) * vocab;
    else if (keep)
        exact = session_logits_memory(&q->exact, &one);
    for (int i = from; i < to; i += rows) {
        int n = to - i < rows ? to - i : rows;
        if ((r = session_head(&q->session, session_hidden(&q->session) + (size_t)i * d, n, v, e)) < 0 ||
            (keep && (r = session_head(&q->exact, keep + (size_t)i * d, n, exact, e)) < 0))
            return r;
        for (int k = 0, at = session_n_pos(&q->session) - passed + i + 1; k < n; k++, at++) {
            const float *own = v + (size_t)k * vocab, *other = keep ? exact + (size_t)k * vocab : NULL;
            if ((r = session_check_logits(&q->session, own, at, e)) < 0 ||
                (other && (r = session_check_logits(&q->exact, other, at, e)) < 0))
                return r;
            add_scores(own, other, (int)vocab, next[i + k], &q->sum);
        }
    }
    return 0;
}

/* Tokens of a piece: of a pass, and with --against as many as the sampler's memory keeps the hidden states of. */
static int piece_tokens(const struct run *q, size_t keep_bytes, struct err *e)
{
    size_t one = (size_t)q->s->pack->h.d_model * sizeof(float), most = (size_t)session_most(&q->session);
    if (q->a->against < 0)
        return (int)most;
    if (keep_bytes < one)
        return err_set(e, ERR_LIMIT, "--against needs %zu bytes beside the logits; this model's sampler has %zu", one, keep_bytes);
    return (int)(most < keep_bytes / one ? most : keep_bytes / one);
}

static int window(struct run *q, const int32_t *ids, int32_t first_id, struct err *e)
{
    const struct args *a = q->a;
    int first = a->protocol == PROTOCOL_HALF ? a->ctx / 2 + 1 : 1, r;
    int32_t tokens[SESSION_MOST];
    size_t bytes;
    float *memory = engine_sampler_memory(q->g, &bytes), *keep = a->against < 0 ? NULL : memory;
    int chunk = piece_tokens(q, bytes, e);
    if (chunk < 0)
        return chunk;
    session_reset(&q->session);
    if (a->against >= 0)
        session_reset(&q->exact);
    for (int at = 0; at < a->ctx; at += chunk) {
        int n = a->ctx - at < chunk ? a->ctx - at : chunk;
        memcpy(tokens, ids + at, (size_t)n * sizeof *tokens);
        if (at == 0)
            tokens[0] = first_id;
        if ((r = piece(q, tokens, n, keep, e)) < 0)
            return r;
        int from = first > at + 1 ? first - at - 1 : 0, to = n < a->ctx - at - 1 ? n : a->ctx - at - 1;
        if ((r = score_tokens(q, ids + at + 1, n, from, to, keep, e)) < 0)
            return r;
    }
    q->sum.windows++;
    return cancel_asked(a->setup.cancel) ? err_set(e, ERR_INTR, "interrupted") : 0;
}

static void print_against(const struct args *a, const struct sum *t)
{
    double n = (double)t->scored, exact = exp(t->exact_nll / n), ratio = exp((t->nll - t->exact_nll) / n);
    if (a->json)
        print_json_to(stdout, "\"against\":{\"mode\":\"exact\",\"ppl\":%.9g,\"nll\":%.9g,\"ppl_ratio\":%.9g,\"kl_mean\":%.9g,"
               "\"kl_max\":%.9g,\"top1_agreement\":%.9g},",
               exact, t->exact_nll / n, ratio, t->kl / n, t->kl_max, (double)t->same / n);
    else
        print("exact mode %.5f (ratio %.5f); KL divergence %.6f in the mean, %.6f at most; the same likeliest token "
               "in %.2f %%\n",
               exact, ratio, t->kl / n, t->kl_max, 100 * (double)t->same / n);
}

static void print_outcome(const struct args *a, const struct setup *s, const struct engine *g, const struct sum *t, uint64_t ns)
{
    double nll = t->nll / (double)t->scored;
    struct engine_stats st = engine_stats(g);
    if (!a->json) {
        print("perplexity %.5f over %llu tokens in %d windows of %d (protocol %s)\n", exp(nll),
               (unsigned long long)t->scored, t->windows, a->ctx, protocols[a->protocol]);
        if (a->against >= 0)
            print_against(a, t);
        return;
    }
    print_json_to(stdout, "{\"ppl\":%.9g,\"nll\":%.9g,\"scored\":%llu,\"windows\":%d,\"ctx\":%d,\"protocol\":\"%s\",", exp(nll), nll,
           (unsigned long long)t->scored, t->windows, a->ctx, protocols[a->protocol]);
    if (a->against >= 0)
        print_against(a, t);
    report_configuration(stdout, s, g);
    print_json_to(stdout, ",\"seconds\":%.3f,\"reads\":%llu,\"read_bytes\":%llu,\"cold_hit_rate\":%.6f}\n", (double)ns / 1e9,
           (unsigned long long)st.reads, (unsigned long long)st.read_bytes, report_hit_rate(&st));
}

/* The plan with what was measured of the limit that was run. It is read anew, when the engine's memory is free again. */
static int store(const struct run *q, const int32_t *ids, struct err *e)
{
    const struct sum *t = &q->sum;
    const char *path = q->s->args.plan;
    struct plan p;
    double n = (double)t->scored;
    int r = plan_read(path, &p, e);
    if (r < 0)
        return r;
    r = err_set(e, ERR_MISMATCH, "plan '%s' has changed meanwhile: nothing is stored in it", path);
    for (int i = 0; i < p.n_limits; i++)
        if (p.limits[i].memory_bytes == q->s->limit.memory_bytes && p.limits[i].mode == q->s->limit.mode) {
            p.limits[i].quality = (struct plan_quality){ .tokens = t->scored, .window = q->a->ctx, .kl_mean = t->kl / n,
                .kl_max = t->kl_max, .top1 = (double)t->same / n, .ppl_ratio = exp((t->nll - t->exact_nll) / n),
                .text = hash_128(ids, (size_t)t->windows * (size_t)q->a->ctx * sizeof *ids) };
            r = plan_write(&p, q->a->store, e);
        }
    plan_done(&p);
    return r;
}

static int open_sessions(struct run *q, struct err *e)
{
    const struct session_config c = { .cancel = q->a->setup.cancel };
    int r = q->a->against < 0 ? 0 : session_init(&q->exact, q->g, &c, e);
    return r < 0 ? r : session_init(&q->session, q->g, &c, e);
}

static int score(const struct args *a, struct setup *s, const int32_t *ids, int n, struct err *e)
{
    struct run q = { .a = a, .s = s };
    struct progress bar;
    int windows = n / a->ctx, r = setup_engine(s, &q.g, e);
    if (r < 0)
        return r;
    r = open_sessions(&q, e);
    windows = a->max_windows && a->max_windows < windows ? a->max_windows : windows;
    int64_t start = progress_now_ns();
    progress_init(&bar, "scoring", "windows", (uint64_t)windows);
    int32_t bos = tokenizer_bos(s->tokenizer);
    for (int w = 0; w < windows && r == 0; w++) {
        const int32_t *at = ids + (size_t)w * (size_t)a->ctx;
        r = window(&q, at, a->protocol == PROTOCOL_HALF && bos >= 0 ? bos : at[0], e);
        progress_set(&bar, (uint64_t)w + 1);
    }
    progress_done(&bar);
    if ((r == 0 || r == ERR_INTR) && q.sum.scored)
        print_outcome(a, s, q.g, &q.sum, (uint64_t)(progress_now_ns() - start));
    session_done(&q.session);
    session_done(&q.exact);
    report_accel_lost(q.g);
    engine_close(q.g);
    return r == 0 && a->store && q.sum.scored ? store(&q, ids, e) : r;
}

int cmd_perplexity(int argc, char **argv)
{
    struct args a = { .against = -1 };
    struct setup s = { 0 };
    struct err e = { 0 };
    struct text text = { .a = &a, .s = &s };
    setup_args_init(&a.setup);
    int r = parse(&a, argc, argv, &e);
    if (r > 0)
        return 0;
    if (a.ctx && !a.setup.context)
        a.setup.context = a.ctx;
    a.setup.cancel = file_catch_interrupt();
    a.setup.beside_of = get_ids;
    a.setup.beside_ctx = &text;
    a.setup.beside_what = "the text";
    if (r == 0 && (r = setup_open(&a.setup, &s, &e)) == 0) {
        a.ctx = a.ctx ? a.ctx : s.config.choice.context;
        if (a.against >= 0 && !engine_approximates(&s.config))
            r = err_set(&e, ERR_USAGE, "--against exact compares predicted mode, or a plan whose cold neurons may be left out; this is %s "
                        "mode: pass --mode predicted", plan_mode_name(s.config.mode));
        else if (a.store && (s.other || s.config.act_q8 != s.limit.act_q8 || s.config.choice.kv_type != s.limit.kv_type))
            r = err_set(&e, ERR_USAGE, "--store keeps what the plan loses: it goes without another --mode, --kv or --act than the "
                        "plan's and without another accelerator");
        else if (a.ctx > s.config.choice.context)
            r = err_set(&e, ERR_USAGE, "--ctx %d is larger than the context of %d", a.ctx, s.config.choice.context);
        else if (text.n < a.ctx)
            r = err_set(&e, ERR_USAGE, "the text has %d tokens, less than one window of %d; see --ctx", text.n, a.ctx);
        else
            r = score(&a, &s, text.ids, text.n, &e);
    }
    free(text.ids);
    setup_close(&s);
    return r < 0 ? opt_fail(&e) : 0;
}
