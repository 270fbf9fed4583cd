#include "server/talk.h"

#include <stdio.h>
#include <string.h>

#define ASSISTANT "assistant"

void talk_begin(struct talk *t, struct buffer *to)
{
    *t = (struct talk){ .to = to };
    buffer_put(to, "[", 1, 1);
}

static void put(struct buffer *b, const struct buffer *from)
{
    b->failed |= from->failed;
    buffer_put(b, from->len ? from->at : "", from->len, 1);
}

static void close_turn(struct talk *t)
{
    buffer_printf(t->to, "{\"role\":\"assistant\",\"content\":\"");
    put(t->to, &t->text);
    if (t->thought.len) {
        buffer_printf(t->to, "\",\"reasoning_content\":\"");
        put(t->to, &t->thought);
    }
    buffer_printf(t->to, t->calls.len ? "\",\"tool_calls\":[" : "\"}");
    if (t->calls.len) {
        put(t->to, &t->calls);
        buffer_printf(t->to, "]}");
    }
    buffer_drop(&t->text);
    buffer_drop(&t->thought);
    buffer_drop(&t->calls);
}

static void close_message(struct talk *t)
{
    if (!strcmp(t->role, ASSISTANT))
        close_turn(t);
    else if (t->role[0])
        buffer_printf(t->to, "]}");
    t->role[0] = 0;
}

static void open_message(struct talk *t, const char *role, const char *id)
{
    if (!id && !strcmp(t->role, role))
        return;
    close_message(t);
    buffer_printf(t->to, t->n++ ? "," : "");
    snprintf(t->role, sizeof t->role, "%s", role);
    t->n_parts = 0;
    if (!strcmp(role, ASSISTANT))
        return;
    buffer_printf(t->to, "{\"role\":\"%s\",", role);
    if (id) {
        buffer_printf(t->to, "\"tool_call_id\":");
        buffer_string(t->to, id);
        buffer_put(t->to, ",", 1, 1);
    }
    buffer_printf(t->to, "\"content\":[");
}

void talk_text(struct talk *t, const char *role, const char *text)
{
    open_message(t, role, NULL);
    if (!strcmp(role, ASSISTANT)) {
        buffer_escape(&t->text, text, strlen(text), 1);
        return;
    }
    buffer_printf(t->to, "%s{\"type\":\"text\",\"text\":", t->n_parts++ ? "," : "");
    buffer_string(t->to, text);
    buffer_put(t->to, "}", 1, 1);
}

void talk_thought(struct talk *t, const char *text)
{
    open_message(t, ASSISTANT, NULL);
    buffer_escape(&t->thought, text, strlen(text), 1);
}

void talk_call(struct talk *t, const char *id, const char *name, const char *arguments)
{
    open_message(t, ASSISTANT, NULL);
    buffer_printf(&t->calls, "%s{\"id\":", t->calls.len ? "," : "");
    buffer_string(&t->calls, id);
    buffer_printf(&t->calls, ",\"type\":\"function\",\"function\":{\"name\":");
    buffer_string(&t->calls, name);
    buffer_printf(&t->calls, ",\"arguments\":");
    buffer_string(&t->calls, arguments);
    buffer_printf(&t->calls, "}}");
}

void talk_result(struct talk *t, const char *id)
{
    open_message(t, "tool", id);
}

int talk_end(struct talk *t)
{
    close_message(t);
    buffer_put(t->to, "]", 1, 1);
    return t->to->failed ? -1 : 0;
}
