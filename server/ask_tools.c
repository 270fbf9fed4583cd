/* Tools and which of them has to be called, in the three forms that clients have for both. The library gets OpenAI's form of chats. Kinds
 * of tools that are not functions (searches, shells, ...) are for their server to run: the model does not hear of them. With "none" it
 * hears of no tool, with allowed_tools of those alone. */
#include "server/ask_parts.h"

#include <stdlib.h>
#include <string.h>

struct choice {
    enum { AUTO, NONE, REQUIRED, NAMED } how;
    const struct js *name;    /* of a tool */
    const struct js *allowed; /* array of tools, or NULL: all */
};

static const struct fields chat_choice[] = { TAKEN("type"), TAKEN("function"), TAKEN("allowed_tools"), { NULL, FIELDS_TAKEN, NULL } };
static const struct fields allowed_tools[] = { TAKEN("mode"), TAKEN("tools"), { NULL, FIELDS_TAKEN, NULL } };
static const struct fields response_choice[] = {
    TAKEN("type"), TAKEN("name"), TAKEN("mode"), TAKEN("tools"), { NULL, FIELDS_TAKEN, NULL }
};
static const struct fields message_choice[] = {
    TAKEN("type"), TAKEN("name"), { "disable_parallel_tool_use", FIELDS_NO_EFFECT, NULL }, { NULL, FIELDS_TAKEN, NULL }
};

static int named(const struct js *name, struct choice *c, struct err *e)
{
    c->how = NAMED;
    c->name = name;
    return js_str(name) ? 0 : err_set(e, ERR_FORMAT, "\"tool_choice\" has no \"name\" of a tool that is a string");
}

static int word(const char *s, struct choice *c)
{
    static const struct { const char *word; int how; } words[] = {
        { "auto", AUTO }, { "none", NONE }, { "required", REQUIRED }, { "any", REQUIRED },
    };
    for (size_t i = 0; s && i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].word, s)) {
            c->how = words[i].how;
            return 1;
        }
    return 0;
}

static int read_message_choice(const struct js *v, struct choice *c, struct err *e)
{
    const char *type = js_str(js_get(v, "type"));
    int r = fields_check(v, message_choice, sizeof *message_choice, "\"tool_choice\"", e);
    if (r < 0)
        return r;
    if (type && !strcmp(type, "tool"))
        return named(js_get(v, "name"), c, e);
    if (type && strcmp(type, "required") && word(type, c))
        return 0;
    return err_set(e, ERR_FORMAT, "\"tool_choice\": \"type\" is none of \"auto\", \"any\", \"tool\" and \"none\"");
}

static int read_openai_choice(const struct js *v, int chat, struct choice *c, struct err *e)
{
    const char *type = js_str(js_get(v, "type")), *s = js_str(v);
    const struct fields *rows = chat ? chat_choice : response_choice;
    const struct js *of = chat ? js_get(v, "allowed_tools") : v;
    int r;
    if (s && strcmp(s, "any") && word(s, c))
        return 0;
    if (!type || (strcmp(type, "function") && strcmp(type, "allowed_tools")))
        return err_set(e, type ? ERR_UNSUPPORTED : ERR_FORMAT, "\"tool_choice\" is not \"none\", \"auto\", \"required\", "
                       "\"allowed_tools\" or a function");
    if ((r = fields_check(v, rows, sizeof *rows, "\"tool_choice\"", e)) < 0)
        return r;
    if (!strcmp(type, "function"))
        return named(js_get(chat ? js_get(v, "function") : v, "name"), c, e);
    if (chat && (r = fields_check(of, allowed_tools, sizeof *allowed_tools, "\"tool_choice\": \"allowed_tools\"", e)) < 0)
        return r;
    c->allowed = js_get(of, "tools");
    if (!js_is_array(c->allowed) || !(s = js_str(js_get(of, "mode"))) || (strcmp(s, "auto") && strcmp(s, "required")))
        return err_set(e, ERR_FORMAT, "\"tool_choice\": allowed tools are an array \"tools\" and a \"mode\", \"auto\" or \"required\"");
    word(s, c);
    return 0;
}

static int read_choice(enum ask_form form, const struct js *body, struct choice *c, struct err *e)
{
    const struct js *v = js_get(body, "tool_choice");
    *c = (struct choice){ AUTO, NULL, NULL };
    if (!fields_given(v))
        return 0;
    return form == ASK_MESSAGES ? read_message_choice(v, c, e) : read_openai_choice(v, form == ASK_CHAT, c, e);
}

/* The object that has a tool's name: itself, but of chats. */
static const struct js *function_of(enum ask_form form, const struct js *tool)
{
    return form == ASK_CHAT ? js_get(tool, "function") : tool;
}

static int allowed(enum ask_form form, const struct choice *c, const struct js *tool)
{
    const char *name = js_str(js_get(function_of(form, tool), "name"));
    int found = !c->allowed;
    for (size_t i = 0; !found && i < js_len(c->allowed); i++) {
        const char *other = js_str(js_get(function_of(form, js_at(c->allowed, i)), "name"));
        found = name && other && !strcmp(name, other);
    }
    return found;
}

static const struct fields message_tool[] = {
    TAKEN("type"), TAKEN("name"), TAKEN("description"), TAKEN("input_schema"), TAKEN("strict"),
    { "cache_control", FIELDS_NO_EFFECT, NULL }, { "allowed_callers", FIELDS_NO_EFFECT, NULL },
    { "defer_loading", FIELDS_NO_EFFECT, NULL }, { "eager_input_streaming", FIELDS_NO_EFFECT, NULL },
    { "input_examples", FIELDS_NO_EFFECT, NULL }, { NULL, FIELDS_TAKEN, NULL },
};
static const struct fields response_tool[] = {
    TAKEN("type"), TAKEN("name"), TAKEN("description"), TAKEN("parameters"), TAKEN("strict"),
    { "defer_loading", FIELDS_NO_EFFECT, NULL }, { "allowed_callers", FIELDS_NO_EFFECT, NULL },
    { "output_schema", FIELDS_NO_EFFECT, NULL }, { NULL, FIELDS_TAKEN, NULL },
};

/* 1: a function; 0: of a kind that has no effect here. */
static int check_tool(enum ask_form form, const struct js *tool, size_t i, struct err *e)
{
    const char *type = js_str(js_get(tool, "type")), *ours = form == ASK_MESSAGES ? "custom" : "function";
    const struct fields *rows = form == ASK_MESSAGES ? message_tool : response_tool;
    char of[32];
    if (!js_is_object(tool) || (fields_given(js_get(tool, "type")) ? !type : form != ASK_MESSAGES))
        return err_set(e, ERR_FORMAT, "\"tools\"[%zu] has no \"type\"; functions are what there is", i);
    if (type && strcmp(type, ours))
        return 0;
    snprintf(of, sizeof of, "\"tools\"[%zu]", i);
    int r = form == ASK_CHAT ? 0 : fields_check(tool, rows, sizeof *rows, of, e);
    if (r == 0 && !js_str(js_get(function_of(form, tool), "name")))
        r = err_set(e, ERR_FORMAT, "%s has no \"name\" that is a string", of);
    return r < 0 ? r : 1;
}

/* {"type":"function","function":{...}} */
static int put_tool(struct ask *a, const struct js *tool)
{
    static const char *const names[][2] = { { "name", "name" }, { "description", "description" }, { "parameters", "parameters" },
                                            { "input_schema", "parameters" }, { "strict", "strict" } };
    char *whole = a->form == ASK_CHAT ? js_text(tool, 0, 0) : NULL;
    int bad = a->form == ASK_CHAT && !whole, n = 0;
    if (whole)
        bad = buffer_put(&a->fields, whole, strlen(whole), 1);
    free(whole);
    if (a->form == ASK_CHAT)
        return bad;
    buffer_printf(&a->fields, "{\"type\":\"function\",\"function\":{");
    for (size_t i = 0; i < sizeof names / sizeof *names && !bad; i++) {
        const struct js *v = js_get(tool, names[i][0]);
        char *text = fields_given(v) ? js_text(v, 0, 0) : NULL;
        bad = fields_given(v) && !text;
        if (text)
            bad = buffer_printf(&a->fields, "%s\"%s\":", n++ ? "," : "", names[i][1]) < 0 ||
                  buffer_put(&a->fields, text, strlen(text), 1) < 0;
        free(text);
    }
    return bad || buffer_printf(&a->fields, "}}") < 0;
}

int ask_tools(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    struct choice c;
    int n = 0, r = read_choice(a->form, body, &c, e);
    if (r == 0 && !js_is_array(v))
        r = err_set(e, ERR_FORMAT, "\"tools\" is not an array");
    for (size_t i = 0; r >= 0 && i < js_len(v); i++) {
        r = check_tool(a->form, js_at(v, i), i, e);
        if (r <= 0 || c.how == NONE || !allowed(a->form, &c, js_at(v, i)))
            continue;
        const char *between = a->fields.len > 1 ? "," : "";
        int bad = n++ ? buffer_put(&a->fields, ",", 1, 1) : buffer_printf(&a->fields, "%s\"%s\":[", between, f->to);
        if (bad < 0 || put_tool(a, js_at(v, i)))
            r = ask_no_memory(e);
    }
    if (r >= 0 && n)
        buffer_put(&a->fields, "]", 1, 1);
    return r < 0 ? r : 0;
}

int ask_tool_choice(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    struct choice c;
    int r = read_choice(a->form, body, &c, e);
    (void)v;
    if (r < 0 || c.how == AUTO || c.how == NONE) /* ask_tools knows */
        return r;
    if (js_len(js_get(body, "tools")) == 0)
        return err_set(e, ERR_FORMAT, "\"tool_choice\": there are no \"tools\" to call");
    if (c.how == REQUIRED)
        return ask_add(a, f->to, "\"required\"", e);
    buffer_printf(&a->fields, "%s\"%s\":{\"name\":", a->fields.len > 1 ? "," : "", f->to);
    buffer_string(&a->fields, js_str(c.name));
    return buffer_printf(&a->fields, "}") < 0 ? ask_no_memory(e) : 0;
}
