/* Results of thermo-run bench. The forms of rows are printers of one list of columns. */
#include "common/base/cpu.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/model/model_role.h"

#include "runtime/bench.h"
#include "common/base/machine.h"
#include "runtime/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double tokens_each(const struct bench_test *t)
{
    return (double)(t->pp + t->tg) * t->sequences;
}

/* Of all repetitions. */
static double tokens_of(const struct bench_test *t)
{
    return tokens_each(t) * t->done;
}

/* Of a repetition: its ns, or its tokens a second. */
static double sample(const struct bench_test *t, int i, int rate)
{
    return !rate ? (double)t->took[i] : t->took[i] ? 1e9 * tokens_each(t) / (double)t->took[i] : 0;
}

static double mean(const struct bench_test *t, int rate)
{
    double sum = 0;
    for (int i = 0; i < t->done; i++)
        sum += sample(t, i, rate);
    return sum / t->done;
}

static double deviation(const struct bench_test *t, int rate)
{
    double m = mean(t, rate), sum = 0;
    for (int i = 0; i < t->done; i++)
        sum += (sample(t, i, rate) - m) * (sample(t, i, rate) - m);
    return t->done > 1 ? sqrt(sum / (t->done - 1)) : 0;
}

static double ttft_ms(const struct bench_test *t)
{
    return (double)t->ttft_ns / 1e6 / t->done;
}

/* Speed of a generation test by the plan; 0: it is not for so many sequences, or its predictions do not hold. */
static double predicted_rate(const struct bench_results *b, const struct bench_test *t)
{
    if (t->pp || t->depth || setup_differs(b->s))
        return 0;
    for (int i = 0; i < b->s->n_planned; i++)
        if (b->s->planned[i].batch == t->sequences)
            return b->s->planned[i].predicted.tokens_per_s;
    return 0;
}

/* Time to the first token of a prompt test by the plan; 0: not predicted. */
static double predicted_ms(const struct bench_results *b, const struct bench_test *t)
{
    return t->pp && !t->depth ? report_prompt_ns(b->s, t->pp) / 1e6 : 0;
}

/* Elements of the tensors that a model of these hyper-parameters must have, predictors left out. */
static double n_params(const struct model_hparams *h)
{
    double all = 0;
    for (int r = 0; r < MODEL_ROLES; r++)
        for (int l = 0; l < (model_role_is_per_layer((enum model_role)r) ? model_depth(h) : 1); l++) {
            uint64_t d[4];
            int layer = model_role_is_per_layer((enum model_role)r) ? l : -1;
            if (model_role_is_predictor((enum model_role)r) || model_role_at(h, (enum model_role)r, layer) != MODEL_REQUIRED ||
                (layer < 0 ? model_tensor_shape(h, (enum model_role)r, d) : model_tensor_shape_at(h, (enum model_role)r, l, d)) < 0)
                continue;
            all += (double)d[0] * (double)d[1] * (double)d[2] * (double)d[3];
        }
    return all;
}

static const char *params_text(const struct bench_results *b, char *out, size_t cap)
{
    double n = n_params(&b->s->pack->h);
    print_into(out, cap, n >= 1e9 ? "%.2f B" : "%.2f M", n >= 1e9 ? n / 1e9 : n / 1e6);
    return out;
}

static void print_md(const struct bench_results *b)
{
    char memory[24], peak[24], size[24], params[24];
    print("| model | size | params | backend | threads | memory | test | t/s | plan's t/s | ttft ms | plan's ttft ms | io MiB/token "
          "| stall | hit | rss peak |\n"
          "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int i = 0; i < b->n_tests; i++) {
        const struct bench_test *t = &b->tests[i];
        char ttft[32] = "", plans[32] = "", rate[32] = "";
        if (predicted_rate(b, t) > 0)
            snprintf(rate, sizeof rate, "%.2f", predicted_rate(b, t));
        if (t->ttft_ns)
            snprintf(ttft, sizeof ttft, "%.1f", ttft_ms(t));
        if (predicted_ms(b, t) > 0)
            snprintf(plans, sizeof plans, "%.1f", predicted_ms(b, t));
        print("| %s | %s | %s | %s%s | %d | %s | %s | %.2f ± %.2f | %s | %s | %s | %.3f | %.1f %% | %.1f %% | %s |\n",
               b->s->pack->h.name, size_format(b->s->pack->file.size, size, sizeof size), params_text(b, params, sizeof params),
               engine_io(b->g)->backend->name, engine_io(b->g)->direct ? "" : " (page cache)",
               setup_threads(b->s), size_format(b->s->memory_bytes, memory, sizeof memory), t->name,
               mean(t, 1), deviation(t, 1), rate, ttft, plans, (double)t->s.read_bytes / 1048576 / tokens_of(t),
               100 * report_share(t->s.stall_ns, t->ns), 100 * report_hit_rate(&t->s),
               size_format(machine_peak_bytes(), peak, sizeof peak));
    }
}

/* ---- rows ---- */

enum kind { TEXT, WHOLE, REAL };
struct column {
    const char *name;
    enum kind kind;
    const char *text; /* borrowed until the next row */
    double number;
};
#define COLUMNS 48

struct row {
    struct column c[COLUMNS];
    int n;
    char began[32], type[64], cpu[128];
};

static void text(struct row *r, const char *name, const char *value)
{
    r->c[r->n++] = (struct column){ name, TEXT, value, 0 };
}

static void whole(struct row *r, const char *name, double value)
{
    r->c[r->n++] = (struct column){ name, WHOLE, NULL, value };
}

static void real(struct row *r, const char *name, double value)
{
    r->c[r->n++] = (struct column){ name, REAL, NULL, value };
}

/* llama-bench's columns first, where there is something to say of them. */
static void make_row(const struct bench_results *b, const struct bench_test *t, struct row *r)
{
    const struct setup *s = b->s;
    const struct budget_choice *c = &s->config.choice;
    const struct io *io = engine_io(b->g);
    char params[24];
    struct tm tm;
    r->n = 0;
    gmtime_r(&t->began, &tm);
    strftime(r->began, sizeof r->began, "%Y-%m-%dT%H:%M:%SZ", &tm);
    print_into(r->type, sizeof r->type, "%s %s", s->pack->h.arch, params_text(b, params, sizeof params));
    cpu_model_name(r->cpu, sizeof r->cpu);
    text(r, "build_commit", THERMO_VERSION);
    whole(r, "build_number", 0);
    text(r, "cpu_info", r->cpu);
    text(r, "backends", engine_configuration(b->g)->accel.accel ? "CPU,OpenCL" : "CPU");
    text(r, "model_filename", s->args.model);
    text(r, "model_type", r->type);
    whole(r, "model_size", (double)s->pack->file.size);
    whole(r, "model_n_params", n_params(&s->pack->h));
    whole(r, "n_batch", c->prefill_chunk);
    whole(r, "n_ubatch", c->prefill_chunk);
    whole(r, "n_threads", setup_threads(s));
    text(r, "type_k", kv_type_name(c->kv_type));
    text(r, "type_v", kv_type_name(c->kv_type));
    whole(r, "n_prompt", t->pp);
    whole(r, "n_gen", t->tg);
    whole(r, "n_depth", t->depth);
    text(r, "test_time", r->began);
    whole(r, "avg_ns", round(mean(t, 0)));
    whole(r, "stddev_ns", round(deviation(t, 0)));
    real(r, "avg_ts", mean(t, 1));
    real(r, "stddev_ts", deviation(t, 1));
    text(r, "test", t->name);
    text(r, "model", s->pack->h.name);
    text(r, "plan_file", s->args.plan);
    text(r, "mode", plan_mode_name(s->config.mode));
    text(r, "io", io ? io->backend->name : "none");
    whole(r, "direct", io && io->direct);
    whole(r, "queue_depth", setup_depth(s));
    whole(r, "memory_bytes", (double)s->memory_bytes);
    whole(r, "peak_bytes", (double)machine_peak_bytes());
    whole(r, "sequences", t->sequences);
    real(r, "predicted_ts", predicted_rate(b, t));
    real(r, "ttft_ms", ttft_ms(t));
    real(r, "predicted_ttft_ms", predicted_ms(b, t));
    real(r, "read_bytes_per_token", (double)t->s.read_bytes / tokens_of(t));
    real(r, "reads_per_token", (double)t->s.reads / tokens_of(t));
    real(r, "stall_share", report_share(t->s.stall_ns, t->ns));
    real(r, "hit_rate", report_hit_rate(&t->s));
    whole(r, "interrupted", b->interrupted);
}

static void number(const struct column *c)
{
    print(c->kind == WHOLE ? "%.0f" : "%.6f", c->number);
}

static void between(int lines)
{
    if (lines)
        fputs(",\n    ", stdout);
    else
        fputs(", ", stdout);
}

/* On one line, or with a line for each column. */
static void json_row(const struct bench_test *t, const struct row *r, int lines)
{
    if (lines)
        fputs("{\n    ", stdout);
    else
        fputs("{", stdout);
    for (int i = 0; i < r->n; i++) {
        print("\"%s\": ", r->c[i].name);
        if (r->c[i].kind == TEXT)
            report_string(stdout, r->c[i].text, strlen(r->c[i].text));
        else
            number(&r->c[i]);
        between(lines);
    }
    for (int rate = 0; rate < 2; rate++) {
        if (rate)
            between(lines);
        print("\"%s\": [", rate ? "samples_ts" : "samples_ns");
        for (int k = 0; k < t->done; k++)
            print(rate ? "%s%.6f" : "%s%.0f", k ? ", " : "", sample(t, k, rate));
        fputs("]", stdout);
    }
    if (lines)
        fputs("\n  ", stdout);
    fputs("}", stdout);
}

/* As text between quotation marks, which are doubled within it. */
static void quoted(const char *s, char mark)
{
    print("%c", mark);
    for (const char *q; *s; s = q + (*q == mark)) {
        q = strchr(s, mark);
        q = q ? q : s + strlen(s);
        print("%.*s", (int)(q - s), s);
        if (*q)
            print("%c%c", mark, mark);
    }
    print("%c", mark);
}

static void csv_row(const struct row *r, int head)
{
    for (int i = 0; i < r->n; i++) {
        print("%s", i ? "," : "");
        if (head)
            print("%s", r->c[i].name);
        else if (r->c[i].kind == TEXT)
            quoted(r->c[i].text, '"');
        else
            number(&r->c[i]);
    }
    fputs("\n", stdout);
}

/* SQL that sqlite3 reads; the table's name is llama-bench's. */
static void sql_row(const struct row *r, int head)
{
    static const char *const types[] = { "TEXT", "INTEGER", "REAL" };
    if (head) {
        puts("CREATE TABLE IF NOT EXISTS llama_bench (");
        for (int i = 0; i < r->n; i++)
            print("  %s %s%s\n", r->c[i].name, types[r->c[i].kind], i + 1 < r->n ? "," : "");
        puts(");");
        return;
    }
    fputs("INSERT INTO llama_bench (", stdout);
    for (int i = 0; i < r->n; i++)
        print("%s%s", i ? ", " : "", r->c[i].name);
    fputs(") VALUES (", stdout);
    for (int i = 0; i < r->n; i++) {
        print("%s", i ? ", " : "");
        if (r->c[i].kind == TEXT)
            quoted(r->c[i].text, '\'');
        else
            number(&r->c[i]);
    }
    puts(");");
}

void bench_print(const struct bench_results *b, enum bench_form form)
{
    struct row r;
    if (form == BENCH_MD) {
        print_md(b);
        return;
    }
    if (form == BENCH_JSON)
        fputs("[", stdout);
    for (int i = 0; i < b->n_tests; i++) {
        const struct bench_test *t = &b->tests[i];
        make_row(b, t, &r);
        if (form == BENCH_JSON) {
            print("%s", i ? "," : "");
            fputs("\n  ", stdout);
            json_row(t, &r, 1);
        } else if (form == BENCH_JSONL) {
            json_row(t, &r, 0);
            fputs("\n", stdout);
        }
        for (int head = !i; head >= 0 && (form == BENCH_CSV || form == BENCH_SQL); head--)
            (form == BENCH_CSV ? csv_row : sql_row)(&r, head);
    }
    if (form == BENCH_JSON)
        fputs("\n]\n", stdout);
}

/* ---- telemetry ---- */

/* Where the time of a token went, and which neurons it took. */
static void print_shares(const struct bench_test *t)
{
    double tokens = tokens_of(t);
    print_json_to(stdout, ",\"ms_per_token\":{\"attention\":%.6g,\"predict\":%.6g,\"ffn\":%.6g,\"stall\":%.6g,\"head\":%.6g}",
           (double)t->s.attention_ns / 1e6 / tokens, (double)t->s.predict_ns / 1e6 / tokens, (double)t->s.ffn_ns / 1e6 / tokens,
           (double)t->s.stall_ns / 1e6 / tokens, (double)t->s.head_ns / 1e6 / tokens);
    print_json_to(stdout, ",\"verified_bytes_per_token\":%.6g,\"verify_thread_ms_per_token\":%.6g", (double)t->s.verify_bytes / tokens,
           (double)t->s.verify_ns / 1e6 / tokens);
    print_json_to(stdout, ",\"neurons_per_token\":{\"hot\":%.6g,\"cold\":%.6g,\"read\":%.6g,\"computed\":%.6g,\"possible\":%.6g}",
           (double)t->s.neurons_hot / tokens, (double)t->s.neurons_cold / tokens, (double)t->s.neurons_read / tokens,
           (double)t->s.neurons_computed / tokens, (double)t->s.neurons_possible / tokens);
    print_json_to(stdout, ",\"gate_units_read_per_token\":%.6g", (double)(t->s.gate_lookups - t->s.gate_hits) / tokens);
}

void bench_telemetry(const struct bench_results *b)
{
    fputs("{", stdout);
    report_configuration(stdout, b->s, b->g);
    print_json_to(stdout, ",\"model_bytes\":%llu,\"predicted_tokens_per_s\":%.6g,\"prediction_valid\":%s,\"interrupted\":%s,\"tests\":[",
           (unsigned long long)b->s->pack->file.size, b->s->predicted.tokens_per_s, setup_differs(b->s) ? "false" : "true",
           b->interrupted ? "true" : "false");
    for (int i = 0; i < b->n_tests; i++) {
        const struct bench_test *t = &b->tests[i];
        int n = t->done;
        print_json_to(stdout, "%s{\"test\":\"%s\",\"tokens\":%d,\"tokens_per_s\":%.6g,\"stddev\":%.6g,\"ttft_ms\":%.6g,\"read_bytes_"
               "per_token\":%.6g"
               ",\"reads_per_token\":%.6g,\"stall_share\":%.6g,\"hit_rate\":%.6g",
               i ? "," : "", t->name, t->pp + t->tg, mean(t, 1), deviation(t, 1), ttft_ms(t),
               (double)t->s.read_bytes / tokens_of(t), (double)t->s.reads / tokens_of(t),
               report_share(t->s.stall_ns, t->ns), report_hit_rate(&t->s));
        print(",\"sequences\":%d,\"depth\":%d", t->sequences, t->depth);
        if (predicted_rate(b, t) > 0)
            print_json_to(stdout, ",\"tokens_per_s_predicted\":%.6g", predicted_rate(b, t));
        if (predicted_ms(b, t) > 0)
            print_json_to(stdout, ",\"ttft_predicted_ms\":%.6g", predicted_ms(b, t));
        print_json_to(stdout, ",\"position\":%.6g", (double)t->at / n + (t->pp + t->tg) / 2.0);
        print_shares(t);
        for (int k = 0; k < n; k++)
            print_json_to(stdout, "%s%.6g", k ? "," : ",\"samples\":[", sample(t, k, 1));
        fputs("]}", stdout);
    }
    fputs("]}\n", stdout);
}
