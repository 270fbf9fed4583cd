/* generate --prompts: as many texts at once as there are sequences. Results leave in the order of the prompts; one that is ready before
 * those ahead of it waits, as tokens, so the file is never more than a few prompts per sequence ahead of the results. */
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/base/version.h"
#include "common/pack/pack_format.h"

#include "runtime/generate.h"
#include "runtime/records.h"
#include "runtime/report.h"
#include "runtime/results.h"

#include <stdio.h>
#include <string.h>

#define IN_FLIGHT 4 /* prompts per sequence that are read and not written */

struct run {
    struct generate_args *a;
    struct generate_set set;
    struct records records;
    struct results results;
    uint64_t next, written;     /* prompts read; results that are out */
    uint64_t prompt_tokens, tokens, shared, failed;
    int first_status, at_end;
};

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

/* An accelerator's sums have an order of their own, and it computes what is hot: so the limit counts too, by what it leaves in memory. */
static void hash_engine(struct hash *h, const struct setup *s)
{
    const struct engine_accel_config *c = &s->config.accel;
    const struct layout_shapes *l = &s->pack->shapes;
    struct accel_info i = { 0 };
    c->accel->backend->describe(c->accel, &i);
    const char *const names[] = { c->accel->backend->name, i.device.platform, i.device.name, i.device.driver, i.device.version };
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        hash_update_str(h, names[k]);
    for (int k = 0; k < c->n_heights; k++) {
        char text[128];
        snprintf(text, sizeof text, "%d %u %.17g %d %d", c->heights[k].tokens, (unsigned)c->heights[k].neurons, c->heights[k].share,
                 (int)c->heights[k].work, c->heights[k].rest);
        hash_update_str(h, text);
    }
    hash_update_u64(h, s->config.choice.area_bytes);
    hash_update(h, s->config.choice.hot, (size_t)s->pack->h.n_layers * (size_t)model_ffn_blocks(&s->pack->h) * (size_t)l->n_parts *
                sizeof s->config.choice.hot[0]);
}

static int hash_options(struct hash *h, const struct run *q, struct err *e)
{
    const struct generate_args *a = q->a;
    const struct setup *s = &q->set.setup;
    const struct engine_config *c = &s->config;
    char text[512];
    snprintf(text, sizeof text, "%s %d %d %d %.17g %d %.17g %.17g %.17g %d %.17g %.17g %d %d %d %d %.17g %s", THERMO_VERSION, a->n,
             a->ignore_eos, a->chat, a->sampling.temp, a->sampling.top_k, a->sampling.top_p, a->sampling.min_p, a->sampling.repeat_penalty,
             a->sampling.repeat_last_n, a->sampling.presence_penalty, a->sampling.frequency_penalty, a->thinking,
             (int)c->mode, c->choice.kv_f16, c->act_q8, c->recall, kernels->name);
    hash_update_str(h, text);
    hash_update_u32(h, (uint32_t)c->choice.context);
    hash_update_str(h, a->column ? a->column : "");
    hash_update_str(h, a->system ? a->system : "");
    for (int i = 0; i < a->stops.n; i++)
        hash_update_str(h, a->stops.items[i]);
    if (c->mode == PLAN_PREDICTED) { /* which neurons are computed depends on the plan's limit that fits */
        hash_update(h, c->predictor, (size_t)s->pack->h.n_layers);
        hash_update(h, c->always, (size_t)s->pack->h.n_layers * sizeof c->always[0]);
    }
    if (c->accel.accel)
        hash_engine(h, s);
    return a->template ? hash_file(h, a->template, e) : 0;
}

static int made_of(const struct run *q, struct results_of *out, struct err *e)
{
    const struct pack *p = q->set.setup.pack;
    uint8_t head[PACK_HEADER_BYTES];
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    int r = file_pread(&p->file, head, sizeof head, 0, e); /* it has the checksums of all that follows */
    out->pack = hash_128(head, r < 0 ? 0 : sizeof head);
    r = r < 0 ? r : hash_options(h, q, e);
    out->options = hash_final128(h);
    r = r < 0 ? r : file_hash(q->a->prompts, &out->prompts, e);
    return r < 0 ? r : file_hash(q->a->setup.plan, &out->plan, e);
}

/* ---- results ---- */

static void to_file(void *ctx, const char *text, size_t len)
{
    report_chars(ctx, text, len);
}

static int write_result(struct run *q, struct request *t, struct err *e)
{
    FILE *f = q->results.file;
    int r = 0;
    print_json_to(f, "{\"type\":\"result\",\"index\":%llu,", (unsigned long long)q->written);
    request_print_id(f, t->id);
    if (t->end == BATCH_FAILED) {
        request_print_error(f, &t->why);
        q->failed++;
        q->first_status = q->first_status ? q->first_status : t->why.code;
    } else {
        print_json_to(f, ",\"stop\":\"%s\",\"prompt_tokens\":%d,\"tokens\":%d,\"logprob\":%.9g,\"text\":\"", batch_end_names[t->end],
                      t->n_prompt,
                      t->n_made, request_logprob(&t->text));
        r = request_text(t, to_file, f, e);
        output_end(&t->output);
        putc('"', f);
    }
    fputs("}\n", f);
    q->prompt_tokens += (uint64_t)t->n_prompt;
    q->tokens += (uint64_t)t->n_made;
    q->shared += (uint64_t)t->text.n_shared;
    return r < 0 ? r : results_flush(&q->results, e);
}

static struct request *request_at(struct run *q, uint64_t index)
{
    return &q->set.requests[index % (uint64_t)q->set.n];
}

/* Those that are ready, up to the first that is not. */
static int write_ready(struct run *q, struct err *e)
{
    int r = 0;
    while (r == 0 && q->written < q->next && request_at(q, q->written)->ended) {
        r = write_result(q, request_at(q, q->written), e);
        q->written++;
    }
    return r;
}

/* ---- prompts ---- */

static int read_json(const struct run *q, struct request *t, struct err *e)
{
    char name[64];
    snprintf(name, sizeof name, "prompt %llu", (unsigned long long)q->next);
    struct js *j = js_parse_within(q->records.text, q->records.text_len, request_json_bytes(q->set.setup.config.choice.context), name, e);
    if (!j)
        return e->code;
    int r = request_read(t, j, NULL, 0, e);
    js_free(j);
    return r;
}

static int read_row(const struct run *q, struct request *t, struct err *e)
{
    if (strlen(q->records.id) > REQUEST_ID)
        return err_set(e, ERR_LIMIT, "the id is longer than the limit of %d bytes", REQUEST_ID);
    snprintf(t->id, sizeof t->id, "%s", q->records.id);
    if (strlen(q->records.text) != q->records.text_len)
        return err_set(e, ERR_FORMAT, "the prompt holds a NUL byte");
    return request_prompt(t, q->records.text, q->records.text_len, e);
}

/* The next prompt begins, or has an error for its result. */
static int read_prompt(struct run *q, struct err *e)
{
    struct request *t = request_at(q, q->next);
    int r = records_next(&q->records, e);
    if (r == 0)
        q->at_end = 1;
    if (r == 0 || (r < 0 && r != ERR_LIMIT))
        return r;
    request_begin(t, "");
    t->busy = 1;
    t->text.sampling.seed = q->a->seed + q->next;
    r = r < 0 ? r : q->records.table ? read_row(q, t, e) : read_json(q, t, e);
    r = r < 0 ? r : request_text(t, NULL, NULL, e);
    t->text.prompt = t->ids;
    t->text.n_prompt = t->n_prompt;
    r = r < 0 ? r : batch_add(&q->set.batch, &t->text, e);
    if (r == ERR_INTR) /* no result: --resume goes on with it */
        return r;
    q->next++;
    if (r == ERR_NOMEM || r == ERR_SYS)
        return r; /* no fault of the prompt, whose result another run may make */
    if (r < 0) {
        t->ended = 1;
        t->end = BATCH_FAILED;
        t->why = *e;
    }
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

static int make_all(struct run *q, struct err *e)
{
    int r = 0;
    while (r >= 0 && (!q->at_end || batch_open(&q->set.batch))) {
        while (r >= 0 && !q->at_end && q->next - q->written < (uint64_t)q->set.n) {
            r = read_prompt(q, e);
            r = r < 0 ? r : write_ready(q, e);
        }
        r = r < 0 ? r : batch_step(&q->set.batch, e);
        if (r >= 0)
            r = write_ready(q, e);
    }
    return r < 0 ? r : write_ready(q, e);
}

static int run(struct run *q, struct err *e)
{
    const struct generate_args *a = q->a;
    struct results_of of;
    struct err late;
    int64_t start;
    int r = made_of(q, &of, e);
    if (r < 0 ||
        (r = records_open(&q->records, a->prompts, a->column ? a->column : "text", request_line_bytes(q->set.setup.config.choice.context),
                          e)) < 0 ||
        (r = results_open(&q->results, a->output, a->resume, &of, &q->a->seed, e)) < 0 || (r = skip(q, q->results.n, e)) < 0 ||
        (r = generate_set_start(&q->set, generate_end, request_token, NULL, e)) < 0)
        return r;
    start = progress_now_ns();
    if ((r = make_all(q, e)) < 0) {
        if (q->results.journal && results_sync(&q->results, &late) == 0)
            log_info("%llu results are in '%s.partial'; --resume continues", (unsigned long long)q->results.made, a->output);
        return r;
    }
    double s = (double)(progress_now_ns() - start) / 1e9;
    log_info("%llu prompts with %llu tokens (%llu of them read once with others), %llu tokens made, %.1f tokens/s, in %.1f s; seed %llu",
             (unsigned long long)(q->written - q->results.n), (unsigned long long)q->prompt_tokens, (unsigned long long)q->shared,
             (unsigned long long)q->tokens, s > 0 ? (double)q->tokens / s : 0, s, (unsigned long long)a->seed);
    generate_set_guesses_text(&q->set);
    if ((r = results_commit(&q->results, e)) < 0 || !q->failed)
        return r;
    return err_set(e, q->first_status, "%llu of %llu prompts could not be continued; their results say why", (unsigned long long)q->failed,
                   (unsigned long long)(q->written - q->results.n));
}

int generate_prompts(struct generate_args *a, struct err *e)
{
    struct run q = { .a = a };
    int r = generate_set_open(&q.set, a, IN_FLIGHT, e);
    r = r < 0 ? r : run(&q, e);
    results_close(&q.results);
    records_close(&q.records);
    generate_set_close(&q.set);
    return r;
}
