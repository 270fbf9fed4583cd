/* Bodies of Anthropic's messages, and of messages/count_tokens, whose fields are among them. */
#include "server/ask_parts.h"
#include "server/talk.h"

#include <stdlib.h>
#include <string.h>

#define NONE(name) { name, FIELDS_NO_EFFECT, NULL }
#define END { NULL, FIELDS_TAKEN, NULL }
#define WHERE 80

static const struct fields message_fields[] = { TAKEN("role"), TAKEN("content"), NONE("cache_control"), END };

/* ---- blocks ---- */

/* Of a text, or of a result, which have their texts in `key`: a string, or an array of blocks of text. */
static int put_texts(struct talk *t, const char *role, const struct js *of, const char *key, const char *where, struct err *e);

struct block {
    const char *type;
    struct fields fields[8];
    int (*put)(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e); /* NULL: without effect */
};

static int bad(const char *where, const char *key, const char *what, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s has no \"%s\" that is %s", where, key, what);
}

/* What a client changes in its system text at every call, as Claude Code's "cch=1a2b3;", would have each turn read all that follows. */
static void put_masked(struct talk *t, const char *role, const char *text)
{
    const char *at = strncmp(text, "x-anthropic-billing-header:", 27) ? NULL : strstr(text, "cch=");
    char *copy = at ? strdup(text) : NULL;
    if (at && !copy)
        t->to->failed = 1;
    for (char *p = copy ? copy + (at + 4 - text) : NULL; p && *p && strchr("0123456789abcdef", *p); p++)
        *p = '0';
    talk_text(t, role, copy ? copy : text);
    free(copy);
}

static int put_text(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e)
{
    const char *text = js_str(js_get(block, "text"));
    if (!text)
        return bad(where, "text", "a string", e);
    if (!strcmp(role, "system"))
        put_masked(t, role, text);
    else
        talk_text(t, role, text);
    return 0;
}

/* Plain text, as a file that is read to the model. */
static int put_document(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e)
{
    const struct js *source = js_get(block, "source");
    const char *type = js_str(js_get(source, "type")), *data = js_str(js_get(source, "data"));
    if (type && !strcmp(type, "content"))
        return put_texts(t, role, source, "content", where, e);
    if (!type || strcmp(type, "text") || !data)
        return err_set(e, ERR_UNSUPPORTED, "%s: a document whose \"source\" is no text: models are run on text alone", where);
    talk_text(t, role, data);
    return 0;
}

/* What was found somewhere: its title, where it is, its text. */
static int put_found(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e)
{
    const char *title = js_str(js_get(block, "title")), *source = js_str(js_get(block, "source"));
    if (!title || !source)
        return bad(where, title ? "source" : "title", "a string", e);
    talk_text(t, role, title);
    talk_text(t, role, source);
    return put_texts(t, role, block, "content", where, e);
}

/* A tool that a search for tools has found, of those that the model hears of: its name. */
static int put_reference(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e)
{
    const char *name = js_str(js_get(block, "tool_name"));
    if (!name)
        return bad(where, "tool_name", "a string", e);
    talk_text(t, role, name);
    return 0;
}

static int put_thinking(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e)
{
    const char *text = js_str(js_get(block, "thinking"));
    (void)role;
    if (!text)
        return bad(where, "thinking", "a string", e);
    talk_thought(t, text);
    return 0;
}

static int put_use(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e)
{
    const char *id = js_str(js_get(block, "id")), *name = js_str(js_get(block, "name"));
    const struct js *input = js_get(block, "input");
    (void)role;
    if (!id || !name)
        return bad(where, id ? "name" : "id", "a string", e);
    if (!js_is_object(input))
        return bad(where, "input", "an object", e);
    char *text = js_text(input, 0, 0);
    if (!text)
        return ask_no_memory(e);
    talk_call(t, id, name, text);
    free(text);
    return 0;
}

static int put_result(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e)
{
    const char *id = js_str(js_get(block, "tool_use_id"));
    (void)role;
    if (!id)
        return bad(where, "tool_use_id", "a string", e);
    talk_result(t, id);
    return fields_given(js_get(block, "content")) ? put_texts(t, "tool", block, "content", where, e) : 0;
}

static const struct block text_blocks[] = {
    { "text", { TAKEN("type"), TAKEN("text"), NONE("cache_control"), { "citations", FIELDS_IF_EMPTY, "write them into the text" }, END },
      put_text },
    { "document", { TAKEN("type"), TAKEN("source"), NONE("title"), NONE("context"), NONE("citations"), NONE("cache_control"), END },
      put_document },
    { "search_result", { TAKEN("type"), TAKEN("title"), TAKEN("source"), TAKEN("content"), NONE("citations"), NONE("cache_control"), END },
      put_found },
    { "tool_reference", { TAKEN("type"), TAKEN("tool_name"), NONE("cache_control"), END }, put_reference },
    { NULL, { END }, NULL }
}, user_blocks[] = {
    { "tool_result", { TAKEN("type"), TAKEN("tool_use_id"), TAKEN("content"), NONE("is_error"), NONE("toolset_name"),
                       NONE("cache_control"), END }, put_result },
    { NULL, { END }, NULL }
}, assistant_blocks[] = {
    { "thinking", { TAKEN("type"), TAKEN("thinking"), NONE("signature"), END }, put_thinking },
    { "redacted_thinking", { TAKEN("type"), NONE("data"), END }, NULL },
    { "tool_use", { TAKEN("type"), TAKEN("id"), TAKEN("name"), TAKEN("input"), NONE("caller"), NONE("toolset_name"),
                    NONE("cache_control"), END }, put_use },
    { NULL, { END }, NULL }
};

static const struct block *find(const struct block *of, const char *type)
{
    while (of->type && strcmp(of->type, type))
        of++;
    return of->type ? of : NULL;
}

static int put_block(struct talk *t, const char *role, const struct js *block, const char *where, struct err *e)
{
    const char *type = js_str(js_get(block, "type"));
    if (!js_is_object(block) || !type)
        return err_set(e, ERR_FORMAT, "%s is not an object with a \"type\"", where);
    const struct block *b = find(text_blocks, type);
    if (!b && !strcmp(role, "user"))
        b = find(user_blocks, type);
    if (!b && !strcmp(role, "assistant"))
        b = find(assistant_blocks, type);
    if (!b)
        return err_set(e, ERR_UNSUPPORTED, "%s is of type \"%.40s\", which no message of role \"%s\" has here", where, type, role);
    int r = fields_check(block, b->fields, sizeof b->fields[0], where, e);
    return r < 0 || !b->put ? r : b->put(t, role, block, where, e);
}

static int put_texts(struct talk *t, const char *role, const struct js *of, const char *key, const char *where, struct err *e)
{
    const struct js *v = js_get(of, key);
    char at[WHERE];
    int r = 0;
    if (js_str(v)) {
        talk_text(t, role, js_str(v));
        return 0;
    }
    if (!js_is_array(v))
        return bad(where, key, "a string or an array of blocks", e);
    for (size_t i = 0; r == 0 && i < js_len(v); i++) {
        snprintf(at, sizeof at, "%s: \"%s\"[%zu]", where, key, i);
        r = put_block(t, role, js_at(v, i), at, e);
    }
    return r;
}

/* ---- messages ---- */

static int put_message(struct talk *t, const struct js *m, const char *where, struct err *e)
{
    const char *role = js_str(js_get(m, "role"));
    int r = fields_check(m, message_fields, sizeof *message_fields, where, e);
    if (r < 0)
        return r;
    if (!role || (strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system")))
        return err_set(e, ERR_FORMAT, "%s: \"role\" is none of \"user\", \"assistant\" and \"system\"", where);
    return put_texts(t, role, m, "content", where, e);
}

static int put_system(struct talk *t, const struct js *v, struct err *e)
{
    int r = 0;
    if (!fields_given(v))
        return 0;
    if (js_str(v))
        put_masked(t, "system", js_str(v));
    else if (!js_is_array(v))
        return err_set(e, ERR_FORMAT, "\"system\" is neither a string nor an array of blocks");
    for (size_t i = 0; r == 0 && i < js_len(v); i++) {
        char where[WHERE];
        snprintf(where, sizeof where, "\"system\"[%zu]", i);
        r = put_block(t, "system", js_at(v, i), where, e);
    }
    return r;
}

static int read_messages(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    struct talk t;
    if (!js_is_array(v) || js_len(v) == 0)
        return err_set(e, ERR_FORMAT, "\"messages\" is not an array of messages");
    const char *last = js_str(js_get(js_at(v, js_len(v) - 1), "role"));
    if (last && !strcmp(last, "assistant"))
        return err_set(e, ERR_UNSUPPORTED, "\"messages\": the last one is the assistant's; an answer begins anew here");
    buffer_printf(&a->fields, "%s\"%s\":", a->fields.len > 1 ? "," : "", f->to);
    talk_begin(&t, &a->fields);
    int r = put_system(&t, js_get(body, "system"), e);
    for (size_t i = 0; r == 0 && i < js_len(v); i++) {
        char where[WHERE];
        snprintf(where, sizeof where, "\"messages\"[%zu]", i);
        r = put_message(&t, js_at(v, i), where, e);
    }
    return talk_end(&t) < 0 && r == 0 ? ask_no_memory(e) : r;
}

/* ---- other fields ---- */

static int read_thinking(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    static const struct fields rows[] = { TAKEN("type"), NONE("budget_tokens"), TAKEN("display"), END };
    const char *type = js_str(js_get(v, "type")), *display = js_str(js_get(v, "display"));
    int r = fields_check(v, rows, sizeof *rows, "\"thinking\"", e);
    (void)body;
    if (r < 0)
        return r;
    if (type && !strcmp(type, "disabled"))
        return ask_add(a, f->to, "\"off\"", e);
    if (!type || (strcmp(type, "enabled") && strcmp(type, "adaptive") && strcmp(type, "between_tools")))
        return err_set(e, ERR_FORMAT, "\"thinking\": \"type\" is none of \"enabled\", \"adaptive\", \"between_tools\" and \"disabled\"");
    return ask_add(a, f->to, display && !strcmp(display, "omitted") ? "\"hide\"" : "\"show\"", e);
}

/* Effort beyond what templates know is high. */
static int read_output(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    static const struct fields rows[] = { TAKEN("effort"), TAKEN("format"), NONE("task_budget"), END };
    static const char *const words[][2] = {
        { "low", "low" }, { "medium", "medium" }, { "high", "high" }, { "xhigh", "high" }, { "max", "high" }
    };
    const struct js *effort = js_get(v, "effort"), *format = js_get(v, "format");
    const char *how = js_str(effort);
    size_t i = 0;
    int r = fields_check(v, rows, sizeof *rows, "\"output_config\"", e);
    (void)body;
    while (how && i < 5 && strcmp(how, words[i][0]))
        i++;
    if (r == 0 && fields_given(effort))
        r = how && i < 5 ? ask_effort(a, NULL, words[i][1], e)
                         : err_set(e, ERR_FORMAT, "\"output_config\": \"effort\" is none of "
                                   " \"low\", \"medium\", \"high\", \"xhigh\" and \"max\"");
    return r < 0 || !fields_given(format) ? r : ask_add_format(a, f->row.name, format, format, e);
}

static int read_output_format(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    if (fields_given(js_get(js_get(body, "output_config"), "format")))
        return err_set(e, ERR_FORMAT, "\"output_format\" is a field, and in \"output_config\", too");
    return ask_add_format(a, f->row.name, v, v, e);
}

const struct field ask_messages_fields[] = {
    SAMPLING,
    READ("messages", read_messages, "messages"),
    READ("system", NULL, NULL), /* read_messages has it */
    RANGE("max_tokens", ask_length, "n", 1, 0x1p53),
    READ("stop_sequences", ask_stop, "stop"),
    READ("tools", ask_tools, "tools"),
    READ("tool_choice", ask_tool_choice, "tool_choice"),
    READ("thinking", read_thinking, "thinking"),
    READ("output_config", read_output, NULL),
    READ("output_format", read_output_format, NULL),
    NO_EFFECT("cache_control"), NO_EFFECT("context_management"), NO_EFFECT("compaction"), NO_EFFECT("diagnostics"),
    NO_EFFECT("inference_geo"), NO_EFFECT("speed"), NO_EFFECT("billing_policy"), NO_EFFECT("fallbacks"), NO_EFFECT("fallback_credit_token"),
    NO_EFFECT("user_profile_id"), NO_EFFECT("workspace_id"), NO_EFFECT("betas"), NO_EFFECT("anthropic_beta"),
    NO_EFFECT("anthropic_version"),
    IF_EMPTY("container", "nothing is run here"),
    IF_EMPTY("mcp_servers", "no program here opens a connection"),
    IF_EMPTY("thread", "nothing is kept of a conversation: \"messages\" has all of it"),
    LAST
};
