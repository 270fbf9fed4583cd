/* Anthropic's messages: blocks of text, of thinking and of calls, one after another. A stream says of each when it begins and ends; a whole
 * answer has them in c->text. A thought's signature is the answer's id: nothing is checked by it. */
#include "server/form.h"
#include "server/server.h"

#include <string.h>

static const char *reason_of(const struct form_choice *c)
{
    if (!strcmp(c->stop, "length"))
        return "max_tokens";
    if (!strcmp(c->stop, "context"))
        return "model_context_window_exceeded";
    return c->n_calls ? "tool_use" : !strcmp(c->stop, "stop") ? "stop_sequence" : "end_turn";
}

static void put_usage(struct buffer *b, const struct form_usage *u)
{
    buffer_printf(b, "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,"
                  "\"output_tokens\":%d}", u->prompt - u->cached, u->cached, u->made);
}

static void put_head(const struct form *f, struct buffer *b)
{
    buffer_printf(b, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", f->id);
    buffer_string(b, f->model);
    buffer_printf(b, ",\"content\":[");
}

static void put_reason(struct buffer *b, const struct form_choice *c)
{
    const char *reason = reason_of(c);
    buffer_printf(b, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    buffer_string(b, strcmp(reason, "stop_sequence") ? NULL : c->stop_text);
}

/* "name":"text", */
static void put_string(struct buffer *b, const char *name, const char *text)
{
    buffer_printf(b, "\"%s\":", name);
    buffer_string(b, text);
}

/* ---- events ---- */

static void put_start(const struct form *f, struct buffer *b, const struct thermo_event *ev)
{
    const struct form_usage u = { .prompt = ev->prompt_tokens, .cached = ev->shared_tokens };
    buffer_printf(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    put_head(f, b);
    buffer_printf(b, "],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(b, &u);
    buffer_printf(b, "}}\n\n");
}

static void begin_delta(struct buffer *b, int index, const char *type)
{
    buffer_printf(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"%s\",",
                  index, type);
}

static void put_stop(const struct form *f, const struct form_choice *c, struct buffer *b, int index)
{
    if (c->open == THERMO_THOUGHT + 1) {
        begin_delta(b, index, "signature_delta");
        buffer_printf(b, "\"signature\":\"%s\"}}\n\n", f->id);
    }
    buffer_printf(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%d}\n\n", index);
}

static void put_block_start(struct buffer *b, const struct thermo_event *ev, int index)
{
    static const char *const blocks[] = {
        [THERMO_TEXT] = "\"text\",\"text\":\"\"", [THERMO_THOUGHT] = "\"thinking\",\"thinking\":\"\",\"signature\":\"\"",
        [THERMO_CALL] = "\"tool_use\",\"input\":{}",
    };
    buffer_printf(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":%d,"
                  "\"content_block\":{\"type\":%s", index, blocks[ev->part]);
    if (ev->part == THERMO_CALL) {
        buffer_put(b, ",", 1, 1);
        put_string(b, "id", ev->call_id);
        buffer_put(b, ",", 1, 1);
        put_string(b, "name", ev->call_name);
    }
    buffer_printf(b, "}}\n\n");
}

/* A new block begins with this text. */
static int is_new(const struct form_choice *c, const struct thermo_event *ev)
{
    return ev->part == THERMO_CALL || c->open != ev->part + 1;
}

static void put_events(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *ev)
{
    static const char *const deltas[][2] = { [THERMO_TEXT] = { "text_delta", "text" }, [THERMO_THOUGHT] = { "thinking_delta", "thinking" },
                                             [THERMO_CALL] = { "input_json_delta", "partial_json" } };
    int index = c->n_blocks;
    if (!c->begun)
        put_start(f, b, ev);
    if (!ev->text_bytes)
        return;
    if (is_new(c, ev)) {
        if (c->open)
            put_stop(f, c, b, index++);
        put_block_start(b, ev, index);
    }
    begin_delta(b, index, deltas[ev->part][0]);
    buffer_printf(b, "\"%s\":\"", deltas[ev->part][1]);
    buffer_escape(b, ev->text, ev->text_bytes, 1);
    buffer_printf(b, "\"}}\n\n");
    if (ev->part == THERMO_CALL)
        buffer_printf(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%d}\n\n", index);
}

static void take(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    (void)f;
    c->begun = 1;
    if (!ev->text_bytes)
        return;
    c->n_blocks += is_new(c, ev) && c->open;
    c->open = ev->part == THERMO_CALL ? 0 : ev->part + 1;
    c->n_blocks += ev->part == THERMO_CALL;
    c->n_calls += ev->part == THERMO_CALL;
}

static void end_block(const struct form *f, const struct form_choice *c, struct buffer *b)
{
    if (c->open == THERMO_THOUGHT + 1)
        buffer_printf(b, "\",\"signature\":\"%s", f->id);
    buffer_printf(b, c->open ? "\"}" : "");
}

static int gather(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    struct buffer *b = &c->text;
    if (form_room(c, ev, 0) < 0)
        return -1;
    if (ev->text_bytes && is_new(c, ev)) {
        end_block(f, c, b);
        buffer_printf(b, b->len ? ",{" : "{");
    }
    if (ev->text_bytes && ev->part == THERMO_CALL) {
        buffer_printf(b, "\"type\":\"tool_use\",");
        put_string(b, "id", ev->call_id);
        buffer_put(b, ",", 1, 1);
        put_string(b, "name", ev->call_name);
        buffer_printf(b, ",\"input\":");
        buffer_put(b, ev->text, ev->text_bytes, 1);
        buffer_put(b, "}", 1, 1);
    } else if (ev->text_bytes) {
        if (is_new(c, ev))
            buffer_printf(b, ev->part == THERMO_TEXT ? "\"type\":\"text\",\"text\":\"" : "\"type\":\"thinking\",\"thinking\":\"");
        buffer_escape(b, ev->text, ev->text_bytes, 1);
    }
    take(f, c, ev);
    return 0;
}

static void put_last(const struct form *f, struct form_choice *c, struct buffer *b, const struct thermo_event *ev)
{
    (void)ev;
    if (!b)
        end_block(f, c, &c->text);
    else if (c->open)
        put_stop(f, c, b, c->n_blocks);
    c->open = 0;
}

static void put_end(const struct form *f, const struct form_choice *c, struct buffer *b, const struct form_usage *u, int ok)
{
    (void)f;
    if (!ok)
        return;
    buffer_printf(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    put_reason(b, c);
    buffer_printf(b, "},");
    put_usage(b, u);
    buffer_printf(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void put_failure(const struct form *f, const struct form_choice *c, struct buffer *b, const char *message)
{
    (void)c;
    buffer_printf(b, "event: error\ndata: ");
    server_error_text(b, f->kind, 500, NULL, NULL, message);
    buffer_printf(b, "\n\n");
}

static void put_whole(const struct form *f, const struct form_choice *c, int n, struct buffer *b, const struct form_usage *u)
{
    (void)n;
    put_head(f, b);
    form_append(b, &c->text);
    buffer_printf(b, "],");
    put_reason(b, c);
    buffer_put(b, ",", 1, 1);
    put_usage(b, u);
    buffer_printf(b, "}\n");
}

const struct form_ops form_messages_ops = {
    "msg_", "event: ping\ndata: {\"type\":\"ping\"}\n\n", 0, NULL, put_events, take, gather, put_last, put_end, put_failure, put_whole
};
