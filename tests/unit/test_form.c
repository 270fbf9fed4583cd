/* Answers of messages and responses, whole and streamed, from events that are made up: thoughts, texts and calls in turn. */
#include "server/form.h"

#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static const struct thermo_event made[] = {
    { .type = THERMO_TOKEN, .part = THERMO_THOUGHT, .text = "h", .text_bytes = 1, .prompt_tokens = 9, .shared_tokens = 4 },
    { .type = THERMO_TOKEN, .part = THERMO_THOUGHT, .text = "\"m", .text_bytes = 2 },
    { .type = THERMO_TOKEN, .part = THERMO_TEXT, .text = "", .text_bytes = 0 },
    { .type = THERMO_TOKEN, .part = THERMO_TEXT, .text = "So", .text_bytes = 2 },
    { .type = THERMO_TOKEN, .part = THERMO_CALL, .text = "{\"x\":\"\\\"\"}", .text_bytes = 10, .call_id = "c1", .call_name = "f" },
    { .type = THERMO_TOKEN, .part = THERMO_CALL, .text = "{}", .text_bytes = 2, .call_id = "c2", .call_name = "g", .call_index = 1 },
    { .type = THERMO_END, .part = THERMO_TEXT, .text = "end", .text_bytes = 3, .stop = "eos", .prompt_tokens = 9, .shared_tokens = 4 },
};
enum { MADE = sizeof made / sizeof *made };
static const struct form_usage counts = { .prompt = 9, .cached = 4, .made = 6, .thought = 2 };

static struct form form_of(enum ask_form kind, int stream, int opaque)
{
    struct form f = { .ops = form_ops(kind), .kind = kind, .stream = stream, .opaque = opaque, .created = 5, .model = "m" };
    snprintf(f.id, sizeof f.id, "%sab", f.ops->id);
    return f;
}

/* The answer to `made`, ended by `stop`, as bytes; of a stream all events. */
static char *answer(enum ask_form kind, int stream, int opaque, const char *stop)
{
    struct form f = form_of(kind, stream, opaque);
    struct form_choice c;
    struct buffer b = { 0 };
    form_choice_init(&c, NULL);
    if (stream && f.ops->first)
        f.ops->first(&f, &b, 0);
    for (int i = 0; i < MADE; i++) {
        if (made[i].type == THERMO_END)
            c.stop = stop;
        if (stream) {
            f.ops->token(&f, &c, &b, &made[i]);
            f.ops->take(&f, &c, &made[i]);
        } else {
            CHECK(f.ops->gather(&f, &c, &made[i]) == 0);
        }
    }
    f.ops->last(&f, &c, stream ? &b : NULL, &made[MADE - 1]);
    if (stream)
        f.ops->end(&f, &c, &b, &counts, 1);
    else
        f.ops->whole(&f, &c, 1, &b, &counts);
    CHECK(!b.failed && c.n_calls == 2);
    form_choice_done(&c);
    buffer_put(&b, "", 1, 1);
    char *text = strdup(b.at);
    buffer_drop(&b);
    return text;
}

#define ITEMS(thought, status) \
    "{\"type\":\"reasoning\",\"summary\":[],\"id\":\"rs_ab_0\",\"content\":[{\"type\":\"reasoning_text\",\"text\":\"h\\\"m\"}]" thought \
    ",\"status\":\"completed\"}," \
    "{\"type\":\"message\",\"role\":\"assistant\",\"id\":\"msg_ab_1\",\"content\":[{\"type\":\"output_text\",\"annotations\":[]," \
    "\"text\":\"So\",\"logprobs\":[]}],\"status\":\"completed\"}," \
    "{\"type\":\"function_call\",\"id\":\"fc_ab_2\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"x\\\":\\\"\\\\\\\"\\\"}\"," \
    "\"status\":\"completed\"}," \
    "{\"type\":\"function_call\",\"id\":\"fc_ab_3\",\"call_id\":\"c2\",\"name\":\"g\",\"arguments\":\"{}\",\"status\":\"completed\"}," \
    "{\"type\":\"message\",\"role\":\"assistant\",\"id\":\"msg_ab_4\",\"content\":[{\"type\":\"output_text\",\"annotations\":[]," \
    "\"text\":\"end\",\"logprobs\":[]}],\"status\":\"" status "\"}"

static void test_messages(void)
{
    char *whole = answer(ASK_MESSAGES, 0, 0, "eos"), *events = answer(ASK_MESSAGES, 1, 0, "eos");
    CHECK_MSG(!strcmp(whole, "{\"id\":\"msg_ab\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":["
              "{\"type\":\"thinking\",\"thinking\":\"h\\\"m\",\"signature\":\"msg_ab\"},{\"type\":\"text\",\"text\":\"So\"},"
              "{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"f\",\"input\":{\"x\":\"\\\"\"}},"
              "{\"type\":\"tool_use\",\"id\":\"c2\",\"name\":\"g\",\"input\":{}},{\"type\":\"text\",\"text\":\"end\"}],"
              "\"stop_reason\":\"tool_use\",\"stop_sequence\":null,\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":0,"
              "\"cache_read_input_tokens\":4,\"output_tokens\":6}}\n"), "%s", whole);
    static const char *const order[] = {
        "event: message_start\ndata: {\"type\":\"message_start\"", "\"input_tokens\":5", "\"output_tokens\":0}}}\n\n",
        "\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
        "\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"h\"}}\n\n", "\"thinking\":\"\\\"m\"}}\n\n",
        "\"delta\":{\"type\":\"signature_delta\",\"signature\":\"msg_ab\"}}\n\nevent: content_block_stop\n",
        "data: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: content_block_start\n",
        "\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"So\"}}\n\n",
        "{\"type\":\"content_block_stop\",\"index\":1}\n\n",
        "\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"input\":{},\"id\":\"c1\",\"name\":\"f\"}}\n\n",
        "\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"x\\\":\\\"\\\\\\\"\\\"}\"}}\n\n",
        "{\"type\":\"content_block_stop\",\"index\":2}\n\n", "\"index\":3,\"content_block\":{\"type\":\"tool_use\"",
        "{\"type\":\"content_block_stop\",\"index\":3}\n\n", "\"index\":4,\"content_block\":{\"type\":\"text\"",
        "{\"type\":\"content_block_stop\",\"index\":4}\n\nevent: message_delta\n", "\"stop_reason\":\"tool_use\"",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    };
    const char *at = events;
    for (size_t i = 0; i < sizeof order / sizeof *order && at; i++) {
        at = strstr(at, order[i]);
        CHECK_MSG(at, "event %zu: %s\n%s", i, order[i], events);
        at = at ? at + strlen(order[i]) : NULL;
    }
    CHECK(at && !*at);
    free(whole);
    free(events);
}

static void test_reasons(void)
{
    static const struct { const char *stop, *reason, *status; } rows[] = {
        { "eos", "tool_use", "completed" }, { "length", "max_tokens", "incomplete" },
        { "context", "model_context_window_exceeded", "incomplete" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *m = answer(ASK_MESSAGES, 0, 0, rows[i].stop), *r = answer(ASK_RESPONSES, 0, 0, rows[i].stop), want[64];
        snprintf(want, sizeof want, "\"stop_reason\":\"%s\"", rows[i].reason);
        CHECK_MSG(strstr(m, want), "%s", m);
        snprintf(want, sizeof want, "\"object\":\"response\",\"created_at\":5,\"status\":\"%s\"", rows[i].status);
        CHECK_MSG(strstr(r, want), "%s", r);
        free(m);
        free(r);
    }
}

static void test_responses(void)
{
    char *whole = answer(ASK_RESPONSES, 0, 0, "length"), *events = answer(ASK_RESPONSES, 1, 1, "eos");
    CHECK_MSG(strstr(whole, "\"output\":[" ITEMS("", "incomplete") "],\"error\":null,"
                     "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"), "%s", whole);
    const char *last = strstr(events, "event: response.completed\n");
    CHECK_MSG(last && strstr(last, "\"output\":[" ITEMS(",\"encrypted_content\":\"thought:h\\\"m\"", "completed") "],\"error\":null"),
              "%s", events);
    int n = 0;
    for (const char *p = events; (p = strstr(p, "\"sequence_number\":")); n++) {
        p += strlen("\"sequence_number\":");
        CHECK_MSG(atoi(p) == n, "event %d: %.40s", n, p);
    }
    CHECK(n == 2 + (2 + 2 + 3) + (2 + 1 + 3) + 4 + 4 + (2 + 1 + 3) + 1);
    free(whole);
    free(events);
}

/* A failure is an event of the form, and nothing follows it. */
static void test_failures(void)
{
    static const struct { enum ask_form kind; const char *says; } rows[] = {
        { ASK_CHAT, "data: {\"error\":{\"message\":\"bad\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\ndata: [DONE]\n\n" },
        { ASK_MESSAGES, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"bad\"}}\n\n" },
        { ASK_RESPONSES, "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":2,\"response\":"
          "{\"id\":\"resp_ab\","
          "\"object\":\"response\",\"created_at\":5,\"status\":\"failed\",\"model\":\"m\",\"output\":[],"
          "\"error\":{\"code\":\"server_error\",\"message\":\"bad\"},\"incomplete_details\":null,\"usage\":null}}\n\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct form f = form_of(rows[i].kind, 1, 0);
        struct form_choice c;
        struct buffer b = { 0 };
        form_choice_init(&c, NULL);
        f.ops->fail(&f, &c, &b, "bad");
        f.ops->end(&f, &c, &b, &counts, 0);
        CHECK_MSG(b.len == strlen(rows[i].says) && !memcmp(b.at, rows[i].says, b.len), "%.*s", (int)b.len, b.at);
        buffer_drop(&b);
        form_choice_done(&c);
    }
}

/* Where the pool is used up nothing is added, and what was there stays. */
static void test_pool(void)
{
    for (int k = 0; k < 2; k++) {
        struct pool pool = { .most = 4096 };
        struct form f = form_of(k ? ASK_RESPONSES : ASK_MESSAGES, 0, 0);
        struct form_choice c;
        form_choice_init(&c, &pool);
        int n = 0, full = 0;
        while (n < 10000 && !(full = f.ops->gather(&f, &c, &made[0]) < 0))
            n++;
        const size_t len = c.text.len;
        CHECK(full && n > 10 && len > (size_t)n && pool.used <= pool.most);
        CHECK(f.ops->gather(&f, &c, &made[4]) < 0 && c.text.len == len && c.n_calls == 0 && c.open);
        form_choice_done(&c);
        CHECK(pool.used == 0);
    }
}

int main(void)
{
    test_messages();
    test_reasons();
    test_responses();
    test_failures();
    test_pool();
    return test_done();
}
