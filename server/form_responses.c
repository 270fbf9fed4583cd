/* OpenAI's responses: items (a thought, a message, a call), one after another. Streams say each again at its end, and all of them at
 * theirs, so c->text has them in any case; the content of the one that is open is its end, from c->open_at on. */
#include "server/form.h"
#include "server/server.h"

#include <string.h>

#define BEGUN 2 /* events that a stream begins with */

struct slice { const char *at; size_t n; };

/* Of each part: what its item's id begins with, its item to its content, the type of its content, its events. */
static const struct { const char *id, *head, *content, *event; } parts[] = {
    [THERMO_TEXT] = { "msg", "\"message\",\"role\":\"assistant\"", "\"output_text\",\"annotations\":[]", "output_text" },
    [THERMO_THOUGHT] = { "rs", "\"reasoning\",\"summary\":[]", "\"reasoning_text\"", "reasoning_text" },
    [THERMO_CALL] = { "fc", "\"function_call\"", "", "function_call_arguments" },
};

static struct slice content_of(const struct form_choice *c)
{
    return (struct slice){ c->text.at + c->open_at, c->text.len - c->open_at };
}

static const char *status_of(const char *stop)
{
    return !strcmp(stop, "length") || !strcmp(stop, "context") ? "incomplete" : "completed";
}

/* ---- items ---- */

static void put_id(const struct form *f, struct buffer *b, const char *name, int part, int index)
{
    buffer_printf(b, "\"%s\":\"%s_%s_%d\"", name, parts[part].id, f->id + strlen(f->ops->id), index);
}

static void put_head(const struct form *f, struct buffer *b, int part, int index)
{
    buffer_printf(b, "{\"type\":%s,", parts[part].head);
    put_id(f, b, "id", part, index);
    buffer_printf(b, ",\"content\":[");
}

/* Of the text that is open, and of a token more; c: NULL: of none. */
static void put_logprobs(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *more)
{
    const struct buffer *all[] = { more || !c ? NULL : &c->tokens, c ? &c->numbers : NULL };
    int any = 0;
    buffer_printf(b, "\"logprobs\":[");
    for (int i = 0; i < 2; i++)
        if (all[i] && all[i]->len) {
            buffer_printf(b, any++ ? "," : "");
            form_append(b, all[i]);
        }
    if (more && form_has_logprob(f, more)) {
        buffer_printf(b, any ? "," : "");
        form_put_logprob(f, b, more);
    }
    buffer_put(b, "]", 1, 1);
}

/* c: whose text it is; NULL: none yet. */
static void put_content(const struct form *f, const struct form_choice *c, struct buffer *b, int part, struct slice text)
{
    buffer_printf(b, "{\"type\":%s,\"text\":\"", parts[part].content);
    buffer_put(b, text.at, text.n, 1);
    buffer_put(b, "\"", 1, 1);
    if (part == THERMO_TEXT) {
        buffer_put(b, ",", 1, 1);
        put_logprobs(f, c, b, NULL);
    }
    buffer_put(b, "}", 1, 1);
}

static void put_tail(const struct form *f, struct buffer *b, int part, struct slice text, const char *status)
{
    buffer_put(b, "]", 1, 1);
    if (part == THERMO_THOUGHT && f->opaque) {
        buffer_printf(b, ",\"encrypted_content\":\"" ASK_OPAQUE);
        buffer_put(b, text.at, text.n, 1);
        buffer_put(b, "\"", 1, 1);
    }
    buffer_printf(b, ",\"status\":\"%s\"}", status);
}

static void put_call(const struct form *f, struct buffer *b, const struct thermo_event *ev, int index, int whole)
{
    buffer_printf(b, "{\"type\":\"function_call\",");
    put_id(f, b, "id", THERMO_CALL, index);
    buffer_printf(b, ",\"call_id\":");
    buffer_string(b, ev->call_id);
    buffer_printf(b, ",\"name\":");
    buffer_string(b, ev->call_name);
    buffer_printf(b, ",\"arguments\":\"");
    if (whole)
        buffer_escape(b, ev->text, ev->text_bytes, 1);
    buffer_printf(b, "\",\"status\":\"%s\"}", whole ? "completed" : "in_progress");
}

/* The answer; c: NULL at its beginning; why: it failed. */
static void put_response(const struct form *f, const struct form_choice *c, struct buffer *b, const char *status,
                         const struct form_usage *u, const char *why)
{
    buffer_printf(b, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":", f->id,
                  (long long)f->created, status);
    buffer_string(b, f->model);
    buffer_printf(b, ",\"output\":[");
    if (c)
        form_append(b, &c->text);
    buffer_printf(b, "],\"error\":");
    if (why) {
        buffer_printf(b, "{\"code\":\"server_error\",\"message\":");
        buffer_string(b, why);
        buffer_put(b, "}", 1, 1);
    } else {
        buffer_printf(b, "null");
    }
    buffer_printf(b, ",\"incomplete_details\":%s", strcmp(status, "incomplete") ? "null" : "{\"reason\":\"max_output_tokens\"}");
    form_append(b, &f->echo);
    if (u)
        buffer_printf(b, ",\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0},"
                      "\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d}}",
                      u->prompt, u->cached, u->made, u->thought, u->prompt + u->made);
    else
        buffer_printf(b, ",\"usage\":null}");
}

/* ---- events ---- */

static void begin_event(struct buffer *b, const char *type, const char *more, int *number)
{
    buffer_printf(b, "event: response.%s%s\ndata: {\"type\":\"response.%s%s\",\"sequence_number\":%d,", type, more, type, more,
                  (*number)++);
}

static void end_event(struct buffer *b)
{
    buffer_printf(b, "}\n\n");
}

static void put_place(const struct form *f, struct buffer *b, int part, int index)
{
    put_id(f, b, "item_id", part, index);
    buffer_printf(b, ",\"output_index\":%d,%s", index, part == THERMO_CALL ? "" : "\"content_index\":0,");
}

static void put_lifecycle(const struct form *f, const struct form_choice *c, struct buffer *b, const char *type, const char *status,
                          const struct form_usage *u, const char *why, int number)
{
    begin_event(b, type, "", &number);
    buffer_printf(b, "\"response\":");
    put_response(f, c, b, status, u, why);
    end_event(b);
}

static void put_first(const struct form *f, struct buffer *b, int choice)
{
    (void)choice;
    put_lifecycle(f, NULL, b, "created", "in_progress", NULL, NULL, 0);
    put_lifecycle(f, NULL, b, "in_progress", "in_progress", NULL, NULL, 1);
}

static void put_open(const struct form *f, struct buffer *b, int part, int index, int *number)
{
    const struct slice none = { "", 0 };
    begin_event(b, "output_item", ".added", number);
    buffer_printf(b, "\"output_index\":%d,\"item\":", index);
    put_head(f, b, part, index);
    buffer_printf(b, "],\"status\":\"in_progress\"}");
    end_event(b);
    begin_event(b, "content_part", ".added", number);
    put_place(f, b, part, index);
    buffer_printf(b, "\"part\":");
    put_content(f, NULL, b, part, none);
    end_event(b);
}

static void put_close(const struct form *f, const struct form_choice *c, struct buffer *b, const char *status, int *number)
{
    const struct slice text = content_of(c);
    const int part = c->open - 1;
    begin_event(b, parts[part].event, ".done", number);
    put_place(f, b, part, c->n_blocks);
    if (part == THERMO_TEXT) {
        put_logprobs(f, c, b, NULL);
        buffer_put(b, ",", 1, 1);
    }
    buffer_printf(b, "\"text\":\"");
    buffer_put(b, text.at, text.n, 1);
    buffer_put(b, "\"", 1, 1);
    end_event(b);
    begin_event(b, "content_part", ".done", number);
    put_place(f, b, part, c->n_blocks);
    buffer_printf(b, "\"part\":");
    put_content(f, c, b, part, text);
    end_event(b);
    begin_event(b, "output_item", ".done", number);
    buffer_printf(b, "\"output_index\":%d,\"item\":", c->n_blocks);
    put_head(f, b, part, c->n_blocks);
    put_content(f, c, b, part, text);
    put_tail(f, b, part, text, status);
    end_event(b);
}

static void put_delta(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *ev, int index,
                      int *number)
{
    begin_event(b, parts[ev->part].event, ".delta", number);
    put_place(f, b, ev->part, index);
    if (ev->part == THERMO_TEXT) {
        put_logprobs(f, c, b, ev);
        buffer_put(b, ",", 1, 1);
    }
    buffer_printf(b, "\"delta\":\"");
    buffer_escape(b, ev->text, ev->text_bytes, 1);
    buffer_put(b, "\"", 1, 1);
    end_event(b);
}

static void put_whole_call(const struct form *f, struct buffer *b, const struct thermo_event *ev, int index, int *number)
{
    begin_event(b, "output_item", ".added", number);
    buffer_printf(b, "\"output_index\":%d,\"item\":", index);
    put_call(f, b, ev, index, 0);
    end_event(b);
    put_delta(f, NULL, b, ev, index, number);
    begin_event(b, parts[THERMO_CALL].event, ".done", number);
    put_place(f, b, THERMO_CALL, index);
    buffer_printf(b, "\"name\":");
    buffer_string(b, ev->call_name);
    buffer_printf(b, ",\"arguments\":\"");
    buffer_escape(b, ev->text, ev->text_bytes, 1);
    buffer_put(b, "\"", 1, 1);
    end_event(b);
    begin_event(b, "output_item", ".done", number);
    buffer_printf(b, "\"output_index\":%d,\"item\":", index);
    put_call(f, b, ev, index, 1);
    end_event(b);
}

static int is_new(const struct form_choice *c, const struct thermo_event *ev)
{
    return ev->part == THERMO_CALL || c->open != ev->part + 1;
}

static void put_events(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *ev)
{
    int number = BEGUN + c->n_events, index = c->n_blocks;
    if (!ev->text_bytes)
        return;
    if (is_new(c, ev) && c->open) {
        put_close(f, c, b, "completed", &number);
        index++;
    }
    if (ev->part == THERMO_CALL) {
        put_whole_call(f, b, ev, index, &number);
        return;
    }
    if (is_new(c, ev))
        put_open(f, b, ev->part, index, &number);
    put_delta(f, c, b, ev, index, &number);
}

/* ---- what is gathered ---- */

static void close_item(const struct form *f, struct form_choice *c, const char *status)
{
    if (!c->open)
        return;
    const size_t n = c->text.len - c->open_at;
    buffer_reserve(&c->text, n + c->tokens.len + c->numbers.len + 1024, 1); /* it may say its text once more, which must not move then */
    buffer_put(&c->text, "\"", 1, 1);
    if (c->open - 1 == THERMO_TEXT) {
        buffer_put(&c->text, ",", 1, 1);
        put_logprobs(f, c, &c->text, NULL);
        c->tokens.len = c->numbers.len = 0;
    }
    buffer_put(&c->text, "}", 1, 1);
    put_tail(f, &c->text, c->open - 1, (struct slice){ c->text.at + c->open_at, n }, status);
    c->open = 0;
    c->n_blocks++;
}

/* Those of a text wait for it. */
static void take_logprob(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    if (ev->part == THERMO_TEXT && form_has_logprob(f, ev)) {
        buffer_printf(&c->numbers, c->numbers.len ? "," : "");
        form_put_logprob(f, &c->numbers, ev);
    }
    if (ev->part == THERMO_TEXT && ev->text_bytes && c->numbers.len) {
        buffer_printf(&c->tokens, c->tokens.len ? "," : "");
        form_append(&c->tokens, &c->numbers);
        c->numbers.len = 0;
    }
}

static void take(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    struct buffer *b = &c->text;
    const int new = is_new(c, ev);
    if (!ev->text_bytes) {
        take_logprob(f, c, ev);
        return;
    }
    c->n_events += (new && c->open ? 3 : 0) + (ev->part == THERMO_CALL ? 4 : new ? 3 : 1);
    if (new) {
        close_item(f, c, "completed");
        buffer_printf(b, b->len ? "," : "");
    }
    if (ev->part == THERMO_CALL) {
        put_call(f, b, ev, c->n_blocks++, 1);
        c->n_calls++;
        return;
    }
    if (new) {
        put_head(f, b, ev->part, c->n_blocks);
        buffer_printf(b, "{\"type\":%s,\"text\":\"", parts[ev->part].content);
        c->open = ev->part + 1;
        c->open_at = b->len;
    }
    buffer_escape(b, ev->text, ev->text_bytes, 1);
    take_logprob(f, c, ev);
}

static int gather(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    if (form_room(c, ev, c->text.len - c->open_at) < 0)
        return -1;
    take(f, c, ev);
    return 0;
}

static void put_last(const struct form *f, struct form_choice *c, struct buffer *b, const struct thermo_event *ev)
{
    int number = BEGUN + c->n_events;
    (void)ev;
    if (b && c->open) {
        put_close(f, c, b, status_of(c->stop), &number);
        c->n_events += 3;
    }
    close_item(f, c, status_of(c->stop));
}

static void put_end(const struct form *f, const struct form_choice *c, struct buffer *b, const struct form_usage *u, int ok)
{
    if (ok)
        put_lifecycle(f, c, b, status_of(c->stop), status_of(c->stop), u, NULL, BEGUN + c->n_events);
}

static void put_failure(const struct form *f, const struct form_choice *c, struct buffer *b, const char *message)
{
    put_lifecycle(f, NULL, b, "failed", "failed", NULL, message, BEGUN + c->n_events);
}

static void put_whole(const struct form *f, const struct form_choice *c, int n, struct buffer *b, const struct form_usage *u)
{
    (void)n;
    put_response(f, c, b, status_of(c->stop), u, NULL);
    buffer_put(b, "\n", 1, 1);
}

const struct form_ops form_responses_ops = {
    "resp_", ": \n\n", 1, put_first, put_events, take, gather, put_last, put_end, put_failure, put_whole
};
