/* Telemetry that is not as it should be: refused with line and key. And what a good record reads as. */
#include "planner/check/telemetry.h"
#include "tests/telemetry_sample.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char bench[] =
    "{\"version\":\"0.1.0\",\"model\":\"m\",\"mode\":\"dense\",\"threads\":2,\"context\":64,\"kv\":\"f32\",\"act\":\"f32\","
    "\"memory_bytes\":4096,\"predicted_tokens_per_s\":50,\"prediction_valid\":true,\"tests\":["
    "{\"test\":\"pp32\",\"tokens\":32,\"samples\":[9]},"
    "{\"test\":\"tg16\",\"tokens\":16,\"read_bytes_per_token\":512,\"reads_per_token\":2,\"stall_share\":0.25,"
    "\"hit_rate\":0.75,\"samples\":[10,40,20,25]}]}\n";

static char *text;
static size_t len;
static struct err e;

static int parse(const char *s, size_t n, struct telemetry *t)
{
    memset(&e, 0, sizeof e);
    *t = (struct telemetry){ 0 };
    return telemetry_parse(s, n, "t.jsonl", t, &e);
}

/* The sample with one piece of text replaced. */
static int changed(const char *base, const char *from, const char *to, struct telemetry *t)
{
    const char *at = strstr(base, from);
    char *s = malloc(strlen(base) + strlen(to) + 1);
    if (!at || !s)
        abort();
    sprintf(s, "%.*s%s%s", (int)(at - base), base, to, at + strlen(from));
    int r = parse(s, strlen(s), t);
    free(s);
    return r;
}

static void test_good(void)
{
    struct telemetry t;
    CHECK_MSG(parse(text, len, &t) == 0 && t.n == 1 && t.empty == 0, "%s", e.msg);
    const struct telemetry_run *r = t.run;
    CHECK(!strcmp(r->model, "m") && r->line == 3 && !r->bench && r->threads == 2 && r->memory_bytes == 4096 && r->valid);
    CHECK(r->tokens == 4 && r->position == 10 && r->step_ns == 2e6 && r->attention_ns == 5e5 && r->ffn_ns == 1e6);
    CHECK(r->wait_ns == 2.5e5 && r->head_ns == 1e5 && isnan(r->predict_ns) && r->read_bytes == 1000 && r->reads == 2);
    CHECK(r->hit_rate == 0.25);
    telemetry_done(&t);
    CHECK(changed(text, "\"cold_lookups\":9", "\"cold_lookups\":0,\"predict_ms\":2", &t) == 0 && isnan(t.run->hit_rate) &&
          t.run->predict_ns == 5e5);
    telemetry_done(&t);
    CHECK(changed(text, "\"tokens\":4", "\"tokens\":0", &t) == 0 && t.n == 0 && t.empty == 1);
    telemetry_done(&t);
    CHECK_MSG(parse(bench, strlen(bench), &t) == 0 && t.n == 1, "%s", e.msg);
    CHECK(t.run->bench && fabs(t.run->step_ns - 53.75e6) < 1 && t.run->wait_ns == 0.25 * t.run->step_ns && isnan(t.run->ffn_ns) &&
          t.run->position == 8 && t.run->hit_rate == 0.75 && t.run->read_bytes == 512);
    telemetry_done(&t);
    static const char ms[] = "\"ms_per_token\":{\"attention\":1,\"ffn\":2,\"stall\":1,\"head\":0.5},\"samples\":[10";
    CHECK(changed(bench, "\"samples\":[10", ms, &t) == 0 && t.run->attention_ns == 1e6 && t.run->ffn_ns == 2e6 &&
          t.run->head_ns == 5e5 && isnan(t.run->predict_ns));
    telemetry_done(&t);
    CHECK(changed(bench, "\"samples\":[10", "\"ms_per_token\":{\"ffn\":2},\"samples\":[10", &t) == ERR_FORMAT &&
          strstr(e.msg, "line 1: tests.ms_per_token.attention is missing"));
    telemetry_done(&t);
}

static void test_refused(void)
{
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        { "\"attention_ms\":2", "\"attention_ms\":-1", "line 3: decode.attention_ms is not a number within" },
        { "\"attention_ms\":2", "\"attention_ms\":\"2\"", "line 3: decode.attention_ms" },
        { "\"attention_ms\":2,", "", "line 3: decode.attention_ms is missing" },
        { "\"attention_ms\":2", "\"attention_ms\":1e400", "line 3" },
        { "\"attention_ms\":2", "\"attention_ms\":1e300", "line 3: decode.attention_ms" },
        { "\"decode\":", "\"coded\":", "line 3: decode is missing" },
        { "\"tokens\":4", "\"tokens\":4.5", "line 3: decode.tokens is not an integer" },
        { "\"tokens\":4", "\"tokens\":99999999999", "line 3: decode.tokens is not an integer within 0..2147483647" },
        { "\"tokens\":8", "\"tokens\":-8", "line 3: prompt.tokens" },
        { "\"threads\":2", "\"threads\":0", "line 3: threads is not an integer within 1..65536" },
        { "\"memory_bytes\":4096", "\"memory_bytes\":-4096", "line 3: memory_bytes" },
        { "\"valid\":true", "\"valid\":1", "line 3: predicted.valid is not true or false" },
        { "\"model\":\"m\"", "\"model\":\"a\\u001b[2J\"", "line 3: model" },
        { "\"model\":\"m\"", "\"model\":7", "line 3: model is missing, or no text" },
        { "\"model\":\"m\"", "\"model\":\"m\",\"model\":\"m\"", "line 3" },
        { "\"cold_hit_rate\":0.25", "\"cold_hit_rate\":1.5", "line 3: decode.cold_hit_rate" },
        { "\"type\":\"summary\"", "\"type\":\"other\"", "line 3: type" },
        { "\"type\":\"token\"", "\"type\":3", "line 1: type" },
        { "\"n\":1", "\"n\":", "line 1' is not JSON" },
    };
    struct telemetry t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int r = changed(text, cases[i].from, cases[i].to, &t);
        CHECK_MSG(r == ERR_FORMAT && strstr(e.msg, cases[i].words), "case %zu: %d %s", i, r, e.msg);
        telemetry_done(&t);
    }
    CHECK(changed(bench, "\"samples\":[10,40,20,25]", "\"samples\":[]", &t) == ERR_FORMAT && strstr(e.msg, "samples"));
    telemetry_done(&t);
    CHECK(changed(bench, "[10,40", "[10,0", &t) == ERR_FORMAT && strstr(e.msg, "line 1: tests.samples"));
    telemetry_done(&t);
    CHECK(changed(bench, "\"stall_share\":0.25", "\"stall_share\":2", &t) == ERR_FORMAT && strstr(e.msg, "stall_share"));
    telemetry_done(&t);
    CHECK(parse("", 0, &t) == ERR_FORMAT && strstr(e.msg, "has neither"));
    CHECK(parse("\n \n{\"type\":\"token\"}\n", 20, &t) == ERR_FORMAT && strstr(e.msg, "has neither"));
}

static void test_limits(void)
{
    struct telemetry t;
    size_t n = TELEMETRY_MAX_LINE + 2;
    char *s = malloc(n);
    memset(s, 'a', n);
    CHECK(parse(s, n, &t) == ERR_LIMIT && strstr(e.msg, "line 1"));
    free(s);
    /* Cut anywhere: an error or the record that is whole. */
    for (size_t i = 0; i < len; i++) {
        char *cut = malloc(i + 1);
        memcpy(cut, text, i);
        int r = parse(cut, i, &t);
        if (r != ERR_FORMAT && !(r == 0 && i >= len - 1))
            CHECK_MSG(0, "cut at %zu: %d", i, r);
        telemetry_done(&t);
        free(cut);
    }
}

int main(void)
{
    const struct sample_summary s = { .model = "m", .memory_bytes = 4096, .threads = 2, .tokens = 4, .prompt = 8,
                                      .valid = 1, .predicted_tokens_per_s = 10, .ms = 8, .attention_ms = 2, .ffn_ms = 4,
                                      .stall_ms = 1, .head_ms = 0.4, .read_bytes = 4000, .reads = 8, .lookups = 9,
                                      .hit_rate = 0.25 };
    FILE *f = open_memstream(&text, &len);
    sample_summary_print(f, &s);
    fclose(f);
    test_good();
    test_refused();
    test_limits();
    free(text);
    return test_done();
}
