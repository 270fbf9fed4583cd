/* Lines are taken one by one, so that a message can name the line, and a record is read through a small cursor with a
 * sticky error: read freely, check once. */
#include "planner/check/telemetry.h"

#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/base/js.h"
#include "common/base/print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A record being read. */
struct reader {
    const char *name;
    int line;
    struct err *e;
    int failed;
};

static void bad(struct reader *r, const char *in, const char *key, const char *what)
{
    if (!r->failed)
        r->failed = err_set(r->e, ERR_FORMAT, "telemetry '%s' line %d: %s%s%s %s", r->name, r->line, in, *in ? "." : "",
                            key, what);
}

/* A finite number within [min, max]; absent is an error unless optional, which gives NAN. in: the object's name. */
static double get_num(struct reader *r, const struct js *o, const char *in, const char *key, double min, double max,
                      int optional)
{
    const struct js *j = js_get(o, key);
    double v;
    char what[96];
    if (!j && optional)
        return NAN;
    if (!j) {
        bad(r, in, key, "is missing");
    } else if (!js_num(j, &v) || !(v >= min && v <= max)) {
        print_into(what, sizeof what, "is not a number within %g..%g", min, max);
        bad(r, in, key, what);
    } else {
        return v;
    }
    return min;
}

static int64_t get_int(struct reader *r, const struct js *o, const char *in, const char *key, int64_t min, int64_t max)
{
    int64_t v;
    char what[96];
    const struct js *j = js_get(o, key);
    if (!j) {
        bad(r, in, key, "is missing");
    } else if (!js_int(j, &v) || v < min || v > max) {
        snprintf(what, sizeof what, "is not an integer within %lld..%lld", (long long)min, (long long)max);
        bad(r, in, key, what);
    } else {
        return v;
    }
    return min;
}

static int get_bool(struct reader *r, const struct js *o, const char *in, const char *key)
{
    int v = js_bool(js_get(o, key));
    if (v < 0)
        bad(r, in, key, js_get(o, key) ? "is not true or false" : "is missing");
    return v > 0;
}

/* Text of at most len - 1 bytes without control characters, so that it can be printed. */
static void get_text(struct reader *r, const struct js *o, const char *key, char *out, size_t len)
{
    const char *s = js_str(js_get(o, key));
    int fits = s && strlen(s) < len;
    for (const char *p = s; fits && *p; p++)
        fits = (unsigned char)*p >= 0x20 && *p != 0x7f;
    if (fits)
        strcpy(out, s);
    else
        bad(r, "", key, s ? "is too long, or has control characters" : "is missing, or no text");
}

static const struct js *get_object(struct reader *r, const struct js *o, const char *key)
{
    const struct js *j = js_get(o, key);
    if (!j)
        bad(r, "", key, "is missing");
    return j;
}

/* A time in ms, per token in ns. */
static double get_time(struct reader *r, const struct js *o, const char *in, const char *key, double tokens,
                       int optional)
{
    return get_num(r, o, in, key, 0, 1e15, optional) * 1e6 / tokens;
}

static int push(struct reader *r, struct telemetry *t, const struct telemetry_run *run)
{
    if (r->failed)
        return r->failed;
    if (t->n == TELEMETRY_MAX_RUNS)
        return err_set(r->e, ERR_LIMIT, "telemetry '%s' line %d: more than the limit of %d runs", r->name, r->line,
                       TELEMETRY_MAX_RUNS);
    if (!grow_room(t->run, t->n, t->cap))
        return err_set(r->e, ERR_NOMEM, "out of memory for telemetry");
    t->run[t->n++] = *run;
    return 0;
}

/* What summaries and benches share. */
static struct telemetry_run configuration(struct reader *r, const struct js *o)
{
    struct telemetry_run run = { .line = r->line };
    snprintf(run.file, sizeof run.file, "%s", r->name);
    get_text(r, o, "model", run.model, sizeof run.model);
    get_text(r, o, "mode", run.mode, sizeof run.mode);
    get_text(r, o, "kv", run.kv, sizeof run.kv);
    get_text(r, o, "act", run.act, sizeof run.act);
    run.threads = (int)get_int(r, o, "", "threads", 1, 65536);
    run.context = (int)get_int(r, o, "", "context", 1, INT32_MAX);
    run.memory_bytes = (uint64_t)get_int(r, o, "", "memory_bytes", 1, INT64_MAX);
    return run;
}

static int summary(struct reader *r, const struct js *o, struct telemetry *t)
{
    static const char in[] = "decode";
    struct telemetry_run run = configuration(r, o);
    const struct js *d = get_object(r, o, in), *p = get_object(r, o, "predicted");
    double prompt = (double)get_int(r, get_object(r, o, "prompt"), "prompt", "tokens", 0, INT32_MAX);
    double n = (double)get_int(r, d, in, "tokens", 0, INT32_MAX);
    run.valid = get_bool(r, p, "predicted", "valid");
    run.predicted_tokens_per_s = get_num(r, p, "predicted", "tokens_per_s", 0, 1e12, 0);
    if (n == 0 && !r->failed) {
        t->empty++;
        return 0;
    }
    run.tokens = n;
    run.position = prompt + n / 2;
    run.step_ns = get_time(r, d, in, "ms", n, 0);
    run.attention_ns = get_time(r, d, in, "attention_ms", n, 0);
    run.predict_ns = get_time(r, d, in, "predict_ms", n, 1);
    run.ffn_ns = get_time(r, d, in, "ffn_ms", n, 0);
    run.wait_ns = get_time(r, d, in, "stall_ms", n, 0);
    run.head_ns = get_time(r, d, in, "head_ms", n, 0);
    run.read_bytes = (double)get_int(r, d, in, "read_bytes", 0, INT64_MAX) / n;
    run.reads = (double)get_int(r, d, in, "reads", 0, INT64_MAX) / n;
    run.hit_rate = get_num(r, d, in, "cold_hit_rate", 0, 1, 0);
    if (get_int(r, d, in, "cold_lookups", 0, INT64_MAX) == 0)
        run.hit_rate = NAN;
    return push(r, t, &run);
}

/* Mean time of a token in ns, from a test's rates. */
static double mean_step(struct reader *r, const struct js *samples)
{
    size_t n = js_len(samples);
    double sum = 0, v;
    if (n == 0 || n > 65536)
        bad(r, "tests", "samples", "is missing, or not an array of 1 to 65536 numbers");
    for (size_t i = 0; i < n && !r->failed; i++)
        if (!js_num(js_at(samples, i), &v) || !(v >= 1e-12 && v <= 1e12))
            bad(r, "tests", "samples", "has an element that is not a number within 1e-12..1e+12");
        else
            sum += 1e9 / v;
    return n ? sum / (double)n : 0;
}

static int bench(struct reader *r, const struct js *o, struct telemetry *t)
{
    static const char in[] = "tests";
    struct telemetry_run run = configuration(r, o);
    const struct js *tests = js_get(o, in);
    int ok = 0;
    run.bench = 1;
    run.valid = get_bool(r, o, "", "prediction_valid");
    run.predicted_tokens_per_s = get_num(r, o, "", "predicted_tokens_per_s", 0, 1e12, 0);
    for (size_t i = 0; i < js_len(tests) && !r->failed && ok == 0; i++) {
        const struct js *j = js_at(tests, i);
        const char *name = js_str(js_get(j, "test"));
        if (!name)
            bad(r, in, "test", "is missing, or no text");
        if (r->failed || strncmp(name, "tg", 2) != 0)
            continue;
        run.tokens = (double)get_int(r, j, in, "tokens", 1, INT32_MAX);
        run.position = get_num(r, j, in, "position", 0, INT32_MAX, 1);
        if (isnan(run.position))
            run.position = run.tokens / 2;
        run.step_ns = mean_step(r, js_get(j, "samples"));
        const struct js *ms = js_get(j, "ms_per_token"); /* where times are told */
        run.attention_ns = get_time(r, ms, "tests.ms_per_token", "attention", 1, !ms);
        run.predict_ns = get_time(r, ms, "tests.ms_per_token", "predict", 1, 1);
        run.ffn_ns = get_time(r, ms, "tests.ms_per_token", "ffn", 1, !ms);
        run.head_ns = get_time(r, ms, "tests.ms_per_token", "head", 1, !ms);
        run.wait_ns = get_num(r, j, in, "stall_share", 0, 1, 0) * run.step_ns;
        run.read_bytes = get_num(r, j, in, "read_bytes_per_token", 0, 1e18, 0);
        run.reads = get_num(r, j, in, "reads_per_token", 0, 1e18, 0);
        run.hit_rate = get_num(r, j, in, "hit_rate", 0, 1, 0);
        if (run.reads == 0 && run.hit_rate == 0)
            run.hit_rate = NAN; /* nothing was looked up */
        ok = push(r, t, &run);
    }
    return r->failed ? r->failed : ok;
}

static int line(const char *text, size_t len, struct reader *r, struct telemetry *t, int *known)
{
    char where[160];
    snprintf(where, sizeof where, "%.96s line %d", r->name, r->line);
    struct js *o = js_parse(text, len, where, r->e);
    if (!o)
        return r->e->code;
    const char *type = js_str(js_get(o, "type"));
    int ok = 0;
    if (type && !strcmp(type, "summary")) {
        ok = summary(r, o, t);
    } else if (!type && js_get(o, "tests")) {
        ok = bench(r, o, t);
    } else if (!type || (strcmp(type, "token") != 0 && strcmp(type, "text") != 0)) {
        bad(r, "", "type", "is not one of token, text, summary, and there is no tests: no telemetry of thermo-run");
    } else {
        js_free(o);
        return 0;
    }
    *known += 1;
    js_free(o);
    return r->failed ? r->failed : ok;
}

static int blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return 0;
    return 1;
}

int telemetry_parse(const char *text, size_t len, const char *name, struct telemetry *t, struct err *e)
{
    struct reader r = { .name = name, .e = e };
    int known = 0, ok = 0;
    for (size_t at = 0; at < len && ok == 0;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        r.line++;
        if (n > TELEMETRY_MAX_LINE)
            ok = err_set(e, ERR_LIMIT, "telemetry '%s' line %d has %zu bytes, more than the limit of %u", name, r.line, n,
                         TELEMETRY_MAX_LINE);
        else if (!blank(text + at, n))
            ok = line(text + at, n, &r, t, &known);
        at += n + 1;
    }
    if (ok == 0 && known == 0)
        ok = err_set(e, ERR_FORMAT, "telemetry '%s' has neither a summary of thermo-run generate --json nor a result "
                                    "of thermo-run bench --json", name);
    return ok;
}

int telemetry_read(const char *path, struct telemetry *t, struct err *e)
{
    char *text;
    size_t len;
    int r = file_slurp(path, TELEMETRY_MAX_BYTES, &text, &len, e);
    if (r == 0) {
        r = telemetry_parse(text, len, path, t, e);
        free(text);
    }
    return r;
}

void telemetry_done(struct telemetry *t)
{
    free(t->run);
    *t = (struct telemetry){ 0 };
}
