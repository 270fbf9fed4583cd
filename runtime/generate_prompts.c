/* generate --prompts: as many texts at once as there are sequences. Results leave in the order of the prompts; one that is ready before
 * those ahead of it waits, so the file is never more than a few prompts per sequence ahead of the results. */
#include "runtime/generate_prompts.h"

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/base/version.h"

#include "runtime/kept.h"
#include "runtime/records.h"
#include "runtime/report.h"
#include "runtime/results.h"
#include "runtime/summary.h"
#include "runtime/thermo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN_FLIGHT 4  /* prompts per sequence that are read and not written: as many requests as the library takes */
#define ID_BYTES  64 /* of a prompt's id, at most */

/* A prompt's result. */
struct answer {
    struct run *run;
    char id[ID_BYTES + 1];
    struct kept text;
    int part, ended, over, n_prompt, n;
    uint64_t request;           /* the library's number */
    double logprob;
    char stop[16];
    struct thermo_error error;
};

struct run {
    const struct generate_args *a;
    struct thermo *t;
    struct answer *answers;     /* [n], by prompt modulo n */
    char *line;                 /* [line_bytes + SEED_BYTES]: fields of a request */
    uint64_t n, line_bytes, json_bytes, context, seed;
    uint64_t kept, kept_most;   /* bytes of texts that wait; of all of them, at most */
    struct records records;
    struct results results;
    uint64_t next, written;     /* prompts read; results that are out */
    uint64_t prompt_tokens, tokens, shared, failed;
    int first_status, at_end;
    struct err why;             /* of the sink: no memory */
};

#define SEED_BYTES 40

/* ---- what results depend on ---- */

static int hash_piece(void *ctx, const void *data, size_t len, struct err *e)
{
    (void)e;
    hash_update(ctx, data, len);
    return 0;
}

static int hash_file(struct hash *h, const char *path, struct err *e)
{
    struct file f = { 0 };
    int r = file_open(&f, path, e);
    if (r == 0)
        r = file_each(&f, 0, f.size, hash_piece, h, e);
    file_close(&f);
    return r;
}

static int file_hash(const char *path, struct hash128 *out, struct err *e)
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    int r = hash_file(h, path, e);
    *out = hash_final128(h);
    return r;
}

static int hash_options(struct hash *h, const struct run *q, const char *run_hash, struct err *e)
{
    const struct generate_args *a = q->a;
    char text[512];
    snprintf(text, sizeof text, "%s %d %d %d %.17g %d %.17g %.17g %.17g %d %.17g %.17g %d", THERMO_VERSION, a->n, a->ignore_eos, a->chat,
             a->sampling.temp, a->sampling.top_k, a->sampling.top_p, a->sampling.min_p, a->sampling.repeat_penalty,
             a->sampling.repeat_last_n, a->sampling.presence_penalty, a->sampling.frequency_penalty, a->thinking);
    hash_update_str(h, text);
    hash_update_str(h, run_hash);
    hash_update_u64(h, q->context);
    hash_update_str(h, a->column ? a->column : "");
    hash_update_str(h, a->system ? a->system : "");
    for (int i = 0; i < a->stops.n; i++)
        hash_update_str(h, a->stops.items[i]);
    return a->template ? hash_file(h, a->template, e) : 0;
}

/* about: thermo_describe's. */
static int made_of(const struct run *q, const struct js *about, struct results_of *out, struct err *e)
{
    const char *pack = js_str(js_get(about, "pack_hash")), *how = js_str(js_get(about, "run_hash"));
    const char *plan = js_str(js_get(about, "plan_file"));
    struct hash_room room;
    if (!pack || hash_parse(pack, &out->pack) < 0 || !how || !plan)
        return err_set(e, ERR_FORMAT, "the model does not say what it is");
    struct hash *h = hash_new_in(&room);
    int r = hash_options(h, q, how, e);
    out->options = hash_final128(h);
    r = r < 0 ? r : file_hash(q->a->prompts, &out->prompts, e);
    return r < 0 ? r : file_hash(plan, &out->plan, e);
}

/* ---- results ---- */

static struct answer *answer_at(struct run *q, uint64_t index)
{
    return &q->answers[index % q->n];
}

static void fail(struct answer *x, int code, const char *message)
{
    x->ended = 1;
    x->error.code = code;
    snprintf(x->error.message, sizeof x->error.message, "%s", message);
}

static void keep(struct answer *x, const char *text, size_t len)
{
    struct run *q = x->run;
    if (x->over || len == 0)
        return;
    q->kept += len;
    x->over = q->kept > q->kept_most;
    if (x->over)
        thermo_cancel(q->t, x->request);
    else
        kept_add(&x->text, text, len, &q->why);
}

static int take(void *ctx, const struct thermo_event *ev)
{
    struct answer *x = ctx;
    if (ev->text_bytes && ev->part != x->part) {
        const char *mark = ev->part == THERMO_THOUGHT ? "<think>\n" : "\n</think>\n\n";
        keep(x, mark, strlen(mark));
        x->part = ev->part;
    }
    keep(x, ev->text, ev->text_bytes);
    if (ev->type != THERMO_END)
        return 0;
    x->ended = 1;
    x->n_prompt = ev->prompt_tokens;
    x->n = ev->n_tokens;
    x->logprob = ev->logprob;
    x->error = ev->error;
    snprintf(x->stop, sizeof x->stop, "%s", ev->stop);
    x->run->shared += (uint64_t)ev->shared_tokens;
    if (x->over)
        fail(x, THERMO_E_LIMIT, "its text takes more memory than there is for texts that wait: see --memory and --sequences");
    return 0;
}

static int write_result(struct run *q, struct answer *x, struct err *e)
{
    FILE *f = q->results.file;
    print_json_to(f, "{\"type\":\"result\",\"index\":%llu,\"id\":", (unsigned long long)q->written);
    if (*x->id)
        report_string(f, x->id, strlen(x->id));
    else
        fputs("null", f);
    if (x->error.code) {
        fputs(",\"error\":", f);
        report_string(f, x->error.message, strlen(x->error.message));
        print_json_to(f, ",\"status\":%d", thermo_exit_status(x->error.code));
        q->failed++;
        q->first_status = q->first_status ? q->first_status : x->error.code;
    } else {
        print_json_to(f, ",\"stop\":\"%s\",\"prompt_tokens\":%d,\"tokens\":%d,\"logprob\":%.9g,\"text\":", x->stop, x->n_prompt, x->n,
                      x->logprob);
        report_string(f, x->text.s ? x->text.s : "", x->text.len);
    }
    fputs("}\n", f);
    q->prompt_tokens += (uint64_t)x->n_prompt;
    q->tokens += (uint64_t)x->n;
    q->kept -= x->text.len;
    kept_free(&x->text);
    return results_flush(&q->results, e);
}

/* Those that are ready, up to the first that is not. */
static int write_ready(struct run *q, struct err *e)
{
    int r = 0;
    while (r == 0 && q->written < q->next && answer_at(q, q->written)->ended) {
        r = write_result(q, answer_at(q, q->written), e);
        q->written++;
    }
    return r;
}

/* ---- prompts ---- */

static int id_of(struct answer *x, const struct js *j)
{
    int64_t n;
    const char *s = js_str(j);
    if (js_int(j, &n))
        snprintf(x->id, sizeof x->id, "%" PRId64, n);
    else if (s && strlen(s) <= ID_BYTES)
        snprintf(x->id, sizeof x->id, "%s", s);
    return 0;
}

/* A line is a request; one that has no seed gets its own. */
static int read_json(struct run *q, struct answer *x, struct thermo_request *out, struct err *e)
{
    const struct records *c = &q->records;
    char name[64];
    snprintf(name, sizeof name, "prompt %" PRIu64, q->next);
    struct js *j = js_parse_within(c->text, c->text_len, q->json_bytes, name, e);
    if (!j)
        return e->code;
    id_of(x, js_get(j, "id"));
    out->fields = c->text;
    out->fields_bytes = c->text_len;
    if (js_is_object(j) && !js_get(j, "seed") && js_len(j) > 0) {
        size_t at = strspn(c->text, " \t\r\n") + 1; /* behind { */
        int n = snprintf(q->line, SEED_BYTES, "{\"seed\":%" PRIu64 ",", q->seed + q->next);
        memcpy(q->line + n, c->text + at, c->text_len - at);
        out->fields = q->line;
        out->fields_bytes = (size_t)n + c->text_len - at;
    }
    js_free(j);
    return 0;
}

static int read_row(struct run *q, struct answer *x, struct thermo_request *out, struct err *e)
{
    const struct records *c = &q->records;
    if (strlen(c->id) > ID_BYTES)
        return err_set(e, ERR_LIMIT, "the id is longer than the limit of %d bytes", ID_BYTES);
    snprintf(x->id, sizeof x->id, "%s", c->id);
    if (strlen(c->text) != c->text_len)
        return err_set(e, ERR_FORMAT, "the prompt holds a NUL byte");
    out->fields_bytes = (size_t)snprintf(q->line, SEED_BYTES, "{\"seed\":%" PRIu64 "}", q->seed + q->next);
    out->fields = q->line;
    out->prompt = c->text;
    out->prompt_bytes = c->text_len;
    return 0;
}

/* The next prompt begins, or has an error for its result. */
static int read_prompt(struct run *q, struct err *e)
{
    struct answer *x = answer_at(q, q->next);
    struct thermo_request ask = { .size = sizeof ask };
    struct thermo_error why = { 0 };
    int r = records_next(&q->records, e);
    if (r == 0)
        q->at_end = 1;
    if (r == 0 || (r < 0 && r != ERR_LIMIT))
        return r;
    *x = (struct answer){ .run = q };
    r = r < 0 ? r : q->records.table ? read_row(q, x, &ask, e) : read_json(q, x, &ask, e);
    if (r == 0 && (r = thermo_submit(q->t, &ask, take, x, &x->request, &why)) < 0)
        err_set(e, r, "%s", why.message);
    if (r == ERR_INTR) /* no result: --resume goes on with it */
        return r;
    q->next++;
    if (r == ERR_NOMEM || r == ERR_SYS)
        return r; /* no fault of the prompt, whose result another run may make */
    if (r < 0)
        fail(x, r, e->msg);
    return 0;
}

/* Prompts whose results are there. */
static int skip(struct run *q, uint64_t n, struct err *e)
{
    for (q->next = 0; q->next < n; q->next++) {
        int r = records_next(&q->records, e);
        if (r == 0)
            return err_set(e, ERR_MISMATCH, "'%s.partial' has %llu results of %llu prompts", q->results.path, (unsigned long long)n,
                           (unsigned long long)q->next);
        if (r < 0 && r != ERR_LIMIT)
            return r;
    }
    q->written = n;
    if (n)
        log_info("%llu results are there already", (unsigned long long)n);
    return 0;
}

static int step(struct run *q, struct err *e)
{
    struct thermo_error why = { 0 };
    int r = thermo_step(q->t, 0, &why);
    if (r < 0)
        return err_set(e, r, "%s", why.message);
    if (q->why.code)
        *e = q->why;
    return q->why.code;
}

static int make_all(struct run *q, struct err *e)
{
    int r = 0;
    while (r >= 0 && (!q->at_end || q->written < q->next)) {
        while (r >= 0 && !q->at_end && q->next - q->written < q->n) {
            r = read_prompt(q, e);
            r = r < 0 ? r : write_ready(q, e);
        }
        r = r < 0 ? r : step(q, e);
        if (r >= 0)
            r = write_ready(q, e);
    }
    return r;
}

/* What the model that is open is and takes. */
static int look(struct run *q, struct js **about, struct err *e)
{
    char *text = thermo_describe(q->t);
    int64_t requests = 0, line = 0, json = 0, context = 0, sequences = 0;
    *about = text ? js_parse(text, strlen(text), "the model", e) : NULL;
    thermo_free(text);
    js_int(js_get(*about, "requests"), &requests);
    js_int(js_get(*about, "sequences"), &sequences);
    js_int(js_get(*about, "line_bytes"), &line);
    js_int(js_get(*about, "json_bytes"), &json);
    js_int(js_get(*about, "context"), &context);
    q->n = (uint64_t)requests;
    q->line_bytes = (uint64_t)line;
    q->json_bytes = (uint64_t)json;
    q->context = (uint64_t)context;
    q->kept_most = (uint64_t)context * (uint64_t)sequences * IN_FLIGHT * KEPT_PER_TOKEN;
    q->answers = calloc(q->n, sizeof *q->answers);
    q->line = malloc(q->line_bytes + SEED_BYTES + 1);
    return *about && q->n && q->answers && q->line ? 0 : err_set(e, ERR_NOMEM, "out of memory for %llu prompts", (unsigned long long)q->n);
}

static void conclude(const struct run *q, double s)
{
    char *text = thermo_describe(q->t);
    struct err e;
    log_info("%llu prompts with %llu tokens (%llu of them read once with others), %llu tokens made, %.1f tokens/s, in %.1f s; seed %llu",
             (unsigned long long)(q->written - q->results.n), (unsigned long long)q->prompt_tokens, (unsigned long long)q->shared,
             (unsigned long long)q->tokens, s > 0 ? (double)q->tokens / s : 0, s, (unsigned long long)q->seed);
    struct js *j = text ? js_parse(text, strlen(text), "the model", &e) : NULL;
    summary_guesses(j);
    js_free(j);
    thermo_free(text);
}

static int run(struct run *q, const struct js *about, struct err *e)
{
    const struct generate_args *a = q->a;
    struct results_of of;
    struct err late;
    int r = made_of(q, about, &of, e);
    if (r < 0 || (r = records_open(&q->records, a->prompts, a->column ? a->column : "text", q->line_bytes + 1, e)) < 0 ||
        (r = results_open(&q->results, a->output, a->resume, &of, &q->seed, e)) < 0 || (r = skip(q, q->results.n, e)) < 0)
        return r;
    int64_t start = progress_now_ns();
    if ((r = make_all(q, e)) < 0) {
        if (q->results.journal && results_sync(&q->results, &late) == 0)
            log_info("%llu results are in '%s.partial'; --resume continues", (unsigned long long)q->results.made, a->output);
        return r;
    }
    conclude(q, (double)(progress_now_ns() - start) / 1e9);
    if ((r = results_commit(&q->results, e)) < 0 || !q->failed)
        return r;
    return err_set(e, q->first_status, "%llu of %llu prompts could not be continued; their results say why", (unsigned long long)q->failed,
                   (unsigned long long)(q->written - q->results.n));
}

int generate_prompts(const struct generate_args *a, const char *const *more, struct cancel *asked, struct err *e)
{
    struct run q = { .a = a, .seed = a->seed };
    struct js *about = NULL;
    struct thermo_error why = { 0 };
    int sequences = a->setup.batch ? a->setup.batch : PLAN_LARGEST_BATCH;
    const struct thermo_options o = { .size = sizeof o, .more = more, .cancel = (int *)(void *)asked,
                                      .reserved_bytes = 2 * REQUEST_LINE + (uint64_t)sequences * IN_FLIGHT * sizeof(struct answer),
                                      .reserved_per_token = IN_FLIGHT * KEPT_PER_TOKEN + 2 * REQUEST_LINE_PER_TOKEN };
    if (a->seed != UINT64_MAX && a->seed > INT64_MAX)
        return err_set(e, ERR_USAGE, "--seed %llu: with --prompts at most %lld", (unsigned long long)a->seed, (long long)INT64_MAX);
    int r = thermo_open(&o, &q.t, &why);
    if (r < 0)
        return err_set(e, r, "%s", why.message);
    if ((r = look(&q, &about, e)) == 0)
        r = run(&q, about, e);
    js_free(about);
    results_close(&q.results);
    records_close(&q.records);
    thermo_close(q.t);
    for (uint64_t i = 0; q.answers && i < q.n; i++)
        kept_free(&q.answers[i].text);
    free(q.answers);
    free(q.line);
    return r;
}
