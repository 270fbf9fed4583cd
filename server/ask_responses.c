/* Bodies of OpenAI's responses, and of responses/input_tokens, whose fields are among them. Nothing is kept: all of a conversation is in
 * "input". What an assistant thought, said and called, item by item, becomes one turn. */
#include "server/ask_parts.h"
#include "server/talk.h"

#include <stdlib.h>
#include <string.h>

#define NONE(name) { name, FIELDS_NO_EFFECT, NULL }
#define END { NULL, FIELDS_TAKEN, NULL }
#define WHERE 64
#define ECHO_BYTES 512 /* of a field that the answer repeats */

static const char *string(const struct js *of, const char *key)
{
    return js_str(js_get(of, key));
}

/* ---- items ---- */

/* A string, or an array of parts of text. */
static int put_content(struct talk *t, const char *role, const struct js *v, const char *key, const char *where, struct err *e)
{
    static const struct fields rows[] = {
        TAKEN("type"), TAKEN("text"), NONE("annotations"), NONE("logprobs"), NONE("prompt_cache_breakpoint"), END
    };
    if (js_str(v)) {
        talk_text(t, role, js_str(v));
        return 0;
    }
    if (!js_is_array(v))
        return err_set(e, ERR_FORMAT, "%s has no \"%s\" that is a string or an array of parts", where, key);
    for (size_t i = 0; i < js_len(v); i++) {
        char at[WHERE];
        const char *type = string(js_at(v, i), "type"), *text = string(js_at(v, i), "text");
        int r;
        snprintf(at, sizeof at, "%s: \"%s\"[%zu]", where, key, i);
        if (type && !strcmp(type, "refusal"))
            continue; /* no model here has one of its own */
        if (!type || (strcmp(type, "input_text") && strcmp(type, "output_text") && strcmp(type, "text")))
            return err_set(e, type ? ERR_UNSUPPORTED : ERR_FORMAT, "%s is of type \"%.40s\": models are run on text alone", at,
                           type ? type : "");
        if ((r = fields_check(js_at(v, i), rows, sizeof *rows, at, e)) < 0)
            return r;
        if (!text)
            return err_set(e, ERR_FORMAT, "%s has no \"text\" that is a string", at);
        talk_text(t, role, text);
    }
    return 0;
}

static int put_message(struct talk *t, const struct js *item, const char *where, struct err *e)
{
    const char *role = string(item, "role");
    if (!role || (strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system") && strcmp(role, "developer")))
        return err_set(e, ERR_FORMAT, "%s: \"role\" is none of \"user\", \"assistant\", \"system\" and \"developer\"", where);
    return put_content(t, strcmp(role, "developer") ? role : "system", js_get(item, "content"), "content", where, e);
}

static int put_call(struct talk *t, const struct js *item, const char *where, struct err *e)
{
    const char *id = string(item, "call_id"), *name = string(item, "name"), *arguments = string(item, "arguments");
    if (!id || !name || !arguments)
        return err_set(e, ERR_FORMAT, "%s has no \"%s\" that is a string", where, !id ? "call_id" : !name ? "name" : "arguments");
    talk_call(t, id, name, arguments);
    return 0;
}

static int put_output(struct talk *t, const struct js *item, const char *where, struct err *e)
{
    const char *id = string(item, "call_id");
    if (!id)
        return err_set(e, ERR_FORMAT, "%s has no \"call_id\" that is a string", where);
    talk_result(t, id);
    return put_content(t, "tool", js_get(item, "output"), "output", where, e);
}

/* A thought as we sent it: in "content", or as what a client sees as encrypted. */
static int put_reasoning(struct talk *t, const struct js *item, const char *where, struct err *e)
{
    const struct js *content = js_get(item, "content");
    const char *opaque = string(item, "encrypted_content");
    if (fields_given(content) && !js_is_array(content))
        return err_set(e, ERR_FORMAT, "%s: \"content\" is not an array", where);
    for (size_t i = 0; i < js_len(content); i++) {
        const char *text = string(js_at(content, i), "text");
        if (!text)
            return err_set(e, ERR_FORMAT, "%s: \"content\"[%zu] has no \"text\" that is a string", where, i);
        talk_thought(t, text);
    }
    if (!js_len(content) && opaque && !strncmp(opaque, ASK_OPAQUE, strlen(ASK_OPAQUE)))
        talk_thought(t, opaque + strlen(ASK_OPAQUE));
    return 0;
}

static const struct item {
    const char *type;
    struct fields fields[9];
    int (*put)(struct talk *t, const struct js *item, const char *where, struct err *e);
} items[] = {
    { "message", { TAKEN("type"), TAKEN("role"), TAKEN("content"), NONE("id"), NONE("status"), NONE("phase"), END }, put_message },
    { "function_call", { TAKEN("type"), TAKEN("call_id"), TAKEN("name"), TAKEN("arguments"), NONE("id"), NONE("status"),
                         NONE("caller"), END }, put_call },
    { "function_call_output", { TAKEN("type"), TAKEN("call_id"), TAKEN("output"), NONE("id"), NONE("status"), NONE("caller"), END },
      put_output },
    { "reasoning", { TAKEN("type"), TAKEN("content"), TAKEN("encrypted_content"), NONE("summary"), NONE("id"), NONE("status"), END },
      put_reasoning },
};

static int put_item(struct talk *t, const struct js *item, size_t i, struct err *e)
{
    const char *type = string(item, "type");
    char where[WHERE];
    snprintf(where, sizeof where, "\"input\"[%zu]", i);
    if (!js_is_object(item) || (!type && fields_given(js_get(item, "type"))))
        return err_set(e, ERR_FORMAT, "%s is not an object with a \"type\"", where);
    for (size_t k = 0; k < sizeof items / sizeof *items; k++)
        if (!strcmp(items[k].type, type ? type : "message")) {
            int r = fields_check(item, items[k].fields, sizeof items[k].fields[0], where, e);
            return r < 0 ? r : items[k].put(t, item, where, e);
        }
    return err_set(e, ERR_UNSUPPORTED, "%s is of type \"%.40s\"; there are \"message\", \"function_call\", \"function_call_output\" and "
                   "\"reasoning\"", where, type);
}

/* ---- what the answer says of the request ---- */

static void echo(struct ask *a, const struct js *body)
{
    static const char *const names[][2] = {
        { "instructions", "null" }, { "max_output_tokens", "null" }, { "metadata", "{}" }, { "parallel_tool_calls", "true" },
        { "previous_response_id", "null" }, { "reasoning", "{\"effort\":null,\"summary\":null}" }, { "temperature", "null" },
        { "text", "{\"format\":{\"type\":\"text\"}}" }, { "tool_choice", "\"auto\"" }, { "tools", "[]" }, { "top_p", "null" },
        { "truncation", "\"disabled\"" }, { "store", NULL },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct js *v = names[i][1] ? js_get(body, names[i][0]) : NULL;
        char *text = fields_given(v) ? js_text(v, 0, 0) : NULL;
        int fits = text && strlen(text) <= ECHO_BYTES;
        buffer_printf(&a->echo, ",\"%s\":%s", names[i][0], fits ? text : names[i][1] ? names[i][1] : "false");
        free(text);
    }
}

static int read_input(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    const char *instructions = string(body, "instructions");
    struct talk t;
    int r = 0;
    if (fields_given(js_get(body, "instructions")) && !instructions)
        return err_set(e, ERR_FORMAT, "\"instructions\" is not a string");
    if (!js_str(v) && !(js_is_array(v) && js_len(v)))
        return err_set(e, ERR_FORMAT, "\"input\" is neither a string nor an array of items");
    echo(a, body);
    buffer_printf(&a->fields, "%s\"%s\":", a->fields.len > 1 ? "," : "", f->to);
    talk_begin(&t, &a->fields);
    if (instructions && *instructions)
        talk_text(&t, "system", instructions);
    if (js_str(v))
        talk_text(&t, "user", js_str(v));
    for (size_t i = 0; r == 0 && i < js_len(v); i++)
        r = put_item(&t, js_at(v, i), i, e);
    return talk_end(&t) < 0 && r == 0 ? ask_no_memory(e) : r;
}

/* ---- other fields ---- */

static int read_reasoning(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    static const struct fields rows[] = { TAKEN("effort"), NONE("summary"), NONE("generate_summary"), NONE("context"), NONE("mode"), END };
    const struct js *effort = js_get(v, "effort");
    const char *how = js_str(effort);
    int r = fields_check(v, rows, sizeof *rows, "\"reasoning\"", e);
    (void)f;
    (void)body;
    if (r == 0 && fields_given(effort) && (!how || strspn(how, "abcdefghijklmnopqrstuvwxyz") != strlen(how) || strlen(how) > 16))
        r = err_set(e, ERR_FORMAT, "\"reasoning\": \"effort\" is not a word, as \"none\", \"low\", \"medium\" or \"high\"");
    return r < 0 || !how ? r : ask_effort(a, NULL, how, e);
}

static int read_text(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    static const struct fields rows[] = { TAKEN("format"), NONE("verbosity"), END };
    static const struct fields format_rows[] = { TAKEN("type"), TAKEN("schema"), NONE("name"), NONE("description"), NONE("strict"), END };
    const struct js *format = js_get(v, "format");
    int r = fields_check(v, rows, sizeof *rows, "\"text\"", e);
    (void)body;
    if (r == 0 && fields_given(format))
        r = fields_check(format, format_rows, sizeof *format_rows, "\"text\": \"format\"", e);
    return r < 0 || !fields_given(format) ? r : ask_add_format(a, f->row.name, format, format, e);
}

#define LOGPROBS "message.output_text.logprobs"
static int read_include(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    (void)f;
    (void)body;
    if (!js_is_array(v))
        return err_set(e, ERR_FORMAT, "\"include\" is not an array of strings");
    for (size_t i = 0; i < js_len(v); i++) {
        const char *s = js_str(js_at(v, i));
        if (!s)
            return err_set(e, ERR_FORMAT, "\"include\" is not an array of strings");
        a->logprobs |= !strcmp(s, LOGPROBS);
        a->opaque |= !strcmp(s, "reasoning.encrypted_content");
    }
    return 0;
}

static int read_tops(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int64_t n;
    if (!a->logprobs && js_int(v, &n) && n > 0)
        return err_set(e, ERR_FORMAT, "\"top_logprobs\" needs \"include\": [\"" LOGPROBS "\"]");
    return ask_int(a, f, body, v, e);
}

static int read_stream_options(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    static const struct fields rows[] = { NONE("include_obfuscation"), END };
    (void)a;
    (void)f;
    (void)body;
    return fields_check(v, rows, sizeof *rows, "\"stream_options\"", e);
}

#define KEPT "nothing is kept here: \"input\" has all of a conversation"
const struct field ask_responses_fields[] = {
    SAMPLING,
    READ("input", read_input, "messages"),
    READ("instructions", NULL, NULL), /* read_input has it */
    RANGE("max_output_tokens", ask_length, "n", 1, 0x1p53),
    READ("tools", ask_tools, "tools"),
    READ("tool_choice", ask_tool_choice, "tool_choice"),
    READ("parallel_tool_calls", ask_bool, NULL),
    READ("reasoning", read_reasoning, NULL),
    READ("text", read_text, NULL),
    READ("include", read_include, NULL),
    RANGE("top_logprobs", read_tops, "logprobs", 0, 20),
    READ("stream_options", read_stream_options, NULL),
    NO_EFFECT("store"), NO_EFFECT("context_management"), NO_EFFECT("max_tool_calls"), NO_EFFECT("background_options"), NO_EFFECT("image"),
    NO_EFFECT("access_programs"), NO_EFFECT("personality"),
    DEFAULT("truncation", "\"disabled\"", "a conversation that is longer than the context is refused"),
    IF_EMPTY("background", "an answer is that of its request"),
    IF_EMPTY("previous_response_id", KEPT),
    IF_EMPTY("conversation", KEPT),
    IF_EMPTY("prompt", KEPT),
    IF_EMPTY("moderation", "answers are what the model writes"),
    LAST
};
