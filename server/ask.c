/* A table for each endpoint: name, what becomes of it, the library's name of it, its range. What OpenAI's clients send by default without
 * wanting anything by it is taken where it says the default (`only`). */
#include "server/ask.h"

#include "common/base/fields.h"
#include "common/base/print.h"

#include <stdlib.h>
#include <string.h>

enum kind { NONE, COPY, INT, LENGTH, REAL, SEED, STOP, FLAG, STREAM, OPTIONS, PROMPT, CHOICES, LOGPROBS, TOPS, EFFORT, TOOLS,
            CHOICE, FORMAT, ONLY };

struct field {
    struct fields row;
    enum kind kind;
    const char *to;        /* the library's name */
    double min, max;
    const char *only;      /* ONLY: JSON texts of what is taken, separated by a blank */
};

#define MOST_TOKENS (1 << 24)
#define TAKEN(name) { name, FIELDS_TAKEN, NULL }
#define NO_EFFECT(name) { { name, FIELDS_NO_EFFECT, NULL }, NONE, NULL, 0, 0, NULL }
#define IF_EMPTY(name, why) { { name, FIELDS_IF_EMPTY, why }, NONE, NULL, 0, 0, NULL }
#define REFUSED(name, why) { { name, FIELDS_REFUSED, why }, NONE, NULL, 0, 0, NULL }
#define DEFAULT(name, texts, why) { { name, FIELDS_TAKEN, why }, ONLY, NULL, 0, 0, texts }
#define LAST { { NULL, FIELDS_TAKEN, NULL }, NONE, NULL, 0, 0, NULL }

/* What both have. */
#define SAMPLING \
    { TAKEN("model"), NONE, NULL, 0, 0, NULL }, /* one is loaded: any name is its */ \
    { TAKEN("stream"), STREAM, NULL, 0, 0, NULL }, \
    { TAKEN("stream_options"), OPTIONS, NULL, 0, 0, NULL }, \
    { TAKEN("temperature"), REAL, "temp", 0, 100, NULL }, \
    { TAKEN("top_p"), REAL, "top_p", 0, 1, NULL }, \
    { TAKEN("top_k"), INT, "top_k", 0, MOST_TOKENS, NULL }, \
    { TAKEN("min_p"), REAL, "min_p", 0, 1, NULL }, \
    { TAKEN("repeat_penalty"), REAL, "repeat_penalty", 0.01, 100, NULL }, \
    { TAKEN("repeat_last_n"), INT, "repeat_last_n", -1, MOST_TOKENS, NULL }, \
    { TAKEN("seed"), SEED, "seed", -0x1p63, 0x1p63, NULL }, \
    { TAKEN("stop"), STOP, "stop", 0, 0, NULL }, \
    { TAKEN("ignore_eos"), FLAG, "ignore_eos", 0, 0, NULL }, \
    { TAKEN("n"), CHOICES, "choices", 1, 4096, NULL }, \
    { TAKEN("frequency_penalty"), REAL, "frequency_penalty", -2, 2, NULL }, \
    { TAKEN("presence_penalty"), REAL, "presence_penalty", -2, 2, NULL }, \
    { TAKEN("logit_bias"), COPY, "logit_bias", 0, 0, NULL }, \
    REFUSED("repetition_penalty", "its name here is \"repeat_penalty\""), \
    REFUSED("n_predict", "its name here is \"max_tokens\""), \
    NO_EFFECT("user"), NO_EFFECT("safety_identifier"), NO_EFFECT("prompt_cache_key"), NO_EFFECT("prompt_cache_retention"), \
    NO_EFFECT("prompt_cache_options"), \
    NO_EFFECT("metadata"), NO_EFFECT("client_metadata"), NO_EFFECT("service_tier")

static const struct field chat_fields[] = {
    SAMPLING,
    { TAKEN("messages"), COPY, "messages", 0, 0, NULL },
    { TAKEN("max_completion_tokens"), LENGTH, "n", 0, 0x1p53, NULL },
    { TAKEN("max_tokens"), LENGTH, "n", -1, 0x1p53, NULL },
    { TAKEN("logprobs"), LOGPROBS, NULL, 0, 0, NULL },
    { TAKEN("top_logprobs"), TOPS, "logprobs", 0, 20, NULL },
    { TAKEN("chat_template_kwargs"), EFFORT, "template_args", 0, 0, NULL },
    { TAKEN("reasoning_effort"), EFFORT, "template_args", 0, 0, NULL },
    NO_EFFECT("store"),
    { TAKEN("tools"), TOOLS, "tools", 0, 0, NULL },
    { TAKEN("tool_choice"), CHOICE, "tool_choice", 0, 0, NULL },
    { TAKEN("parallel_tool_calls"), CHOICE, NULL, 0, 0, NULL },
    IF_EMPTY("functions", "\"tools\" has them"),
    DEFAULT("function_call", "\"none\" \"auto\"", "\"tools\" has functions"),
    { TAKEN("response_format"), FORMAT, NULL, 0, 0, NULL },
    DEFAULT("modalities", "[\"text\"]", "models write text alone"),
    DEFAULT("verbosity", "\"medium\"", "say it in a message"),
    IF_EMPTY("audio", "models write text alone"),
    IF_EMPTY("prediction", "the server guesses by itself where --guess is given"),
    IF_EMPTY("web_search_options", "no program here opens a connection"),
    IF_EMPTY("moderation", "answers are what the model writes"),
    LAST
}, text_fields[] = {
    SAMPLING,
    { TAKEN("prompt"), PROMPT, "prompt", 0, 0, NULL },
    { TAKEN("max_tokens"), LENGTH, "n", -1, 0x1p53, NULL },
    DEFAULT("best_of", "1", "\"n\" says how many there are, and each is sent"),
    IF_EMPTY("echo", "put the prompt before the answer"),
    IF_EMPTY("suffix", "models continue a text"),
    { TAKEN("logprobs"), TOPS, "logprobs", 0, 20, NULL },
    LAST
};

static const struct field *table_of(enum ask_form form)
{
    return form == ASK_CHAT ? chat_fields : text_fields;
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory for a request");
}

/* "name":text, of the library's fields. */
static int add(struct ask *a, const char *to, const char *text, struct err *e)
{
    const char *between = a->fields.len > 1 ? "," : "";
    int bad = buffer_printf(&a->fields, "%s\"%s\":", between, to) < 0 || buffer_put(&a->fields, text, strlen(text), 1) < 0;
    return bad ? no_memory(e) : 0;
}

static int add_json(struct ask *a, const char *to, const struct js *v, struct err *e)
{
    char *text = js_text(v, 0, 0);
    int r = text ? add(a, to, text, e) : no_memory(e);
    free(text);
    return r;
}

static int add_number(struct ask *a, const struct field *f, const struct js *v, struct err *e)
{
    double x;
    int64_t whole = 0;
    char text[PRINT_NUMBER];
    if (!js_num(v, &x) || (f->kind != REAL && !js_int(v, &whole)) || !(x >= f->min && x <= f->max))
        return err_set(e, ERR_FORMAT, "\"%s\" is not %s from %g to %g", f->row.name,
                       f->kind == REAL ? "a number" : "an integer", f->min, f->max);
    if (f->kind == SEED && whole == -1)
        return 0; /* any */
    if (f->kind == SEED)
        whole &= INT64_MAX;
    if (f->kind == LENGTH && whole > MOST_TOKENS)
        whole = MOST_TOKENS; /* the context ends it */
    print_json_number(text, 17, x);
    if (f->kind != REAL)
        snprintf(text, sizeof text, "%lld", (long long)whole);
    return add(a, f->to, text, e);
}

static int add_stop(struct ask *a, const struct field *f, const struct js *v, struct err *e)
{
    int fits = js_str(v) || js_is_array(v);
    for (size_t i = 0; js_is_array(v) && i < js_len(v); i++)
        fits &= js_str(js_at(v, i)) != NULL;
    if (!fits)
        return err_set(e, ERR_FORMAT, "\"stop\" is neither a string nor an array of strings");
    return js_is_array(v) && js_len(v) == 0 ? 0 : add_json(a, f->to, v, e);
}

static int set_options(struct ask *a, const struct js *v, struct err *e)
{
    static const struct fields rows[] = {
        { "include_usage", FIELDS_TAKEN, NULL }, { "include_obfuscation", FIELDS_NO_EFFECT, NULL }, { NULL, FIELDS_TAKEN, NULL },
    };
    int r = fields_check(v, rows, sizeof *rows, "\"stream_options\"", e);
    const struct js *usage = js_get(v, "include_usage");
    if (r == 0 && fields_given(usage) && js_bool(usage) < 0)
        r = err_set(e, ERR_FORMAT, "\"stream_options\": \"include_usage\" is not true or false");
    a->usage = js_bool(usage) == 1;
    return r;
}

/* A string, or an array of one, or token ids. */
static int add_prompt(struct ask *a, const struct field *f, const struct js *v, struct err *e)
{
    int64_t id;
    if (js_str(v))
        return add_json(a, f->to, v, e);
    if (js_is_array(v) && js_len(v) == 1 && js_str(js_at(v, 0)))
        return add_json(a, f->to, js_at(v, 0), e);
    if (js_is_array(v) && js_len(v) > 0 && js_int(js_at(v, 0), &id))
        return add_json(a, "tokens", v, e);
    if (js_is_array(v) && js_len(v) == 1 && js_is_array(js_at(v, 0)))
        return add_json(a, "tokens", js_at(v, 0), e);
    return err_set(e, ERR_FORMAT, "\"prompt\" is not a string or an array of token ids; one prompt a request");
}

/* chat_template_kwargs, and reasoning_effort as a variable of that name: an object for the template. "none": it is told not to think. */
static int add_args(struct ask *a, const struct js *body, struct err *e)
{
    const struct js *args = js_get(body, "chat_template_kwargs"), *effort = js_get(body, "reasoning_effort");
    const char *how = js_str(effort);
    if (fields_given(args) && !js_is_object(args))
        return err_set(e, ERR_FORMAT, "\"chat_template_kwargs\" is not an object");
    if (fields_given(effort) && (!how || strspn(how, "abcdefghijklmnopqrstuvwxyz") != strlen(how) || strlen(how) > 16))
        return err_set(e, ERR_FORMAT, "\"reasoning_effort\" is not a word, as \"none\", \"low\", \"medium\" or \"high\"");
    if (how && js_get(args, "reasoning_effort"))
        return err_set(e, ERR_FORMAT, "\"reasoning_effort\" is a field, and in \"chat_template_kwargs\", too");
    if (how && !strcmp(how, "none")) {
        int r = add(a, "thinking", "\"off\"", e);
        return r < 0 || !fields_given(args) ? r : add_json(a, "template_args", args, e);
    }
    char *text = fields_given(args) ? js_text(args, 0, 0) : strdup("{}");
    struct buffer b = { 0 };
    int bad = !text;
    if (!bad && how)
        bad = buffer_printf(&b, "{\"reasoning_effort\":\"%s\"%s", how, text[1] == '}' ? "" : ",") < 0 ||
              buffer_put(&b, text + 1, strlen(text + 1), 1) < 0;
    else if (!bad)
        bad = buffer_put(&b, text, strlen(text), 1) < 0;
    bad |= buffer_put(&b, "", 1, 1) < 0;
    int r = bad ? no_memory(e) : add(a, "template_args", b.at, e);
    buffer_drop(&b);
    free(text);
    return r;
}

/* Functions, for the template; with "tool_choice": "none" it does not hear of them. */
static int add_tools(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    const char *choice = js_str(js_get(body, "tool_choice"));
    if (!js_is_array(v))
        return err_set(e, ERR_FORMAT, "\"tools\" is not an array");
    for (size_t i = 0; i < js_len(v); i++) {
        const char *type = js_str(js_get(js_at(v, i), "type"));
        if (!type || strcmp(type, "function") != 0)
            return err_set(e, ERR_UNSUPPORTED, "\"tools\"[%zu] is of type \"%.40s\"; functions are what there is", i, type ? type : "");
        if (!js_str(js_get(js_get(js_at(v, i), "function"), "name")))
            return err_set(e, ERR_FORMAT, "\"tools\"[%zu]: \"function\" has no \"name\" that is a string", i);
    }
    return js_len(v) == 0 || (choice && !strcmp(choice, "none")) ? 0 : add_json(a, f->to, v, e);
}

/* "none", "auto" and "required", or the name of a function; parallel_tool_calls: of a call that is forced there is one in any case. */
static int add_choice(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    static const struct fields rows[] = {
        { "type", FIELDS_TAKEN, NULL }, { "function", FIELDS_TAKEN, NULL }, { NULL, FIELDS_TAKEN, NULL },
    };
    const char *type = js_str(js_get(v, "type")), *s = js_str(v);
    const struct js *tools = js_get(body, "tools");
    if (!f->to)
        return js_bool(v) < 0 ? err_set(e, ERR_FORMAT, "\"%s\" is not true or false", f->row.name) : 0;
    if (s && (!strcmp(s, "auto") || !strcmp(s, "none"))) /* add_tools knows */
        return 0;
    if (!js_is_array(tools) || js_len(tools) == 0)
        return err_set(e, ERR_FORMAT, "\"tool_choice\": there are no \"tools\" to call");
    if (s && !strcmp(s, "required"))
        return add_json(a, f->to, v, e);
    if (!type || strcmp(type, "function") != 0)
        return err_set(e, type ? ERR_UNSUPPORTED : ERR_FORMAT, "\"tool_choice\" is not \"none\", \"auto\", \"required\" or a function");
    int r = fields_check(v, rows, sizeof *rows, "\"tool_choice\"", e);
    if (r == 0 && !js_str(js_get(js_get(v, "function"), "name")))
        r = err_set(e, ERR_FORMAT, "\"tool_choice\": \"function\" has no \"name\" that is a string");
    return r < 0 ? r : add_json(a, f->to, js_get(v, "function"), e);
}

/* {"type": "text"}, or JSON of a schema, or any object of JSON. */
static int add_format(struct ask *a, const struct js *v, struct err *e)
{
    static const struct fields rows[] = {
        { "type", FIELDS_TAKEN, NULL }, { "json_schema", FIELDS_TAKEN, NULL }, { NULL, FIELDS_TAKEN, NULL },
    };
    static const struct fields schema_rows[] = {
        { "name", FIELDS_NO_EFFECT, NULL }, { "description", FIELDS_NO_EFFECT, NULL }, { "strict", FIELDS_NO_EFFECT, NULL }, /* always */
        { "schema", FIELDS_TAKEN, NULL }, { NULL, FIELDS_TAKEN, NULL },
    };
    const char *type = js_str(js_get(v, "type"));
    const struct js *of = js_get(v, "json_schema"), *schema = js_get(of, "schema");
    int r = fields_check(v, rows, sizeof *rows, "\"response_format\"", e);
    if (r < 0)
        return r;
    if (type && !strcmp(type, "text"))
        return 0;
    if (type && !strcmp(type, "json_object"))
        return add(a, "json", "true", e);
    if (!type || strcmp(type, "json_schema") != 0)
        return err_set(e, ERR_FORMAT, "\"response_format\": \"type\" is none of \"text\", \"json_object\" and \"json_schema\"");
    if ((r = fields_check(of, schema_rows, sizeof *schema_rows, "\"response_format\": \"json_schema\"", e)) < 0)
        return r;
    return js_is_object(schema) ? add_json(a, "schema", schema, e)
                                : err_set(e, ERR_FORMAT, "\"response_format\": \"json_schema\" has no \"schema\" that is an object");
}

static int check_only(const struct field *f, const struct js *v, struct err *e)
{
    char *text = js_text(v, 0, 0);
    if (!text)
        return no_memory(e);
    int found = 0;
    for (const char *s = f->only; *s && !found; s += strcspn(s, " "), s += strspn(s, " "))
        found = strlen(text) == strcspn(s, " ") && !strncmp(s, text, strlen(text));
    free(text);
    return found ? 0 : err_set(e, ERR_UNSUPPORTED, "\"%s\" is taken as %s alone: %s", f->row.name, f->only, f->row.why);
}

static int read_field(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    double x = 0;
    int r;
    switch (f->kind) {
    case COPY: return add_json(a, f->to, v, e);
    case INT:
    case REAL:
    case LENGTH:
    case SEED: return add_number(a, f, v, e);
    case STOP: return add_stop(a, f, v, e);
    case OPTIONS: return set_options(a, v, e);
    case PROMPT: return add_prompt(a, f, v, e);
    case ONLY: return check_only(f, v, e);
    case EFFORT: return add_args(a, body, e);
    case TOOLS: return add_tools(a, f, body, v, e);
    case CHOICE: return add_choice(a, f, body, v, e);
    case FORMAT: return add_format(a, v, e);
    case CHOICES:
        if ((r = add_number(a, f, v, e)) < 0)
            return r;
        js_num(v, &x);
        a->n = (int)x;
        return 0;
    case TOPS:
        if (a->form == ASK_CHAT && !a->logprobs)
            return err_set(e, ERR_FORMAT, "\"top_logprobs\" needs \"logprobs\": true");
        a->logprobs = 1;
        return add_number(a, f, v, e);
    case FLAG:
    case LOGPROBS:
    case STREAM:
        if (js_bool(v) < 0)
            return err_set(e, ERR_FORMAT, "\"%s\" is not true or false", f->row.name);
        if (f->kind == STREAM)
            a->stream = js_bool(v);
        if (f->kind == LOGPROBS)
            a->logprobs = js_bool(v);
        return f->kind == FLAG ? add_json(a, f->to, v, e) : 0;
    default: return 0;
    }
}

/* Two names of one field say the same, or one is given. */
static int check_twice(const struct js *j, struct err *e)
{
    int64_t a, b;
    if (js_int(js_get(j, "max_tokens"), &a) && js_int(js_get(j, "max_completion_tokens"), &b) && a != b)
        return err_set(e, ERR_FORMAT, "\"max_tokens\" and \"max_completion_tokens\" differ, and are the same");
    return 0;
}

static int read_all(const struct js *j, struct ask *a, struct err *e)
{
    const char *taken[32];
    int n = 0, r = 0, limited = 0;
    const char *must = a->form == ASK_CHAT ? "messages" : "prompt";
    for (const struct field *f = table_of(a->form); f->row.name && r == 0; f++) {
        const struct js *v = js_get(j, f->row.name);
        int again = 0;
        for (int i = 0; i < n && f->to; i++)
            again |= !strcmp(taken[i], f->to);
        if (!fields_given(v) || again)
            continue;
        r = read_field(a, f, j, v, e);
        if (f->to && n < 32)
            taken[n++] = f->to;
        limited |= f->to && !strcmp(f->to, "n");
    }
    if (r == 0 && !fields_given(js_get(j, must)))
        r = err_set(e, ERR_FORMAT, "\"%s\" is missing", must);
    if (r == 0 && !limited) /* what OpenAI's reference says */
        r = add(a, "n", a->form == ASK_CHAT ? "-1" : "16", e);
    return r;
}

int ask_read(const struct js *j, enum ask_form form, struct ask *out, struct err *e)
{
    *out = (struct ask){ .form = form, .n = 1 };
    int r = fields_check(j, &table_of(form)->row, sizeof *chat_fields, "the body", e);
    if (r == 0)
        r = buffer_put(&out->fields, "{", 1, 1) < 0 ? no_memory(e) : check_twice(j, e);
    if (r == 0)
        r = read_all(j, out, e);
    if (r == 0 && buffer_put(&out->fields, "}", 1, 1) < 0)
        r = no_memory(e);
    if (r < 0)
        ask_done(out);
    return r;
}

void ask_done(struct ask *a)
{
    buffer_drop(&a->fields);
}

void ask_param(enum ask_form form, const char *message, int theirs, char name[ASK_NAME])
{
    const char *from = strchr(message, '"'), *to = from ? strchr(from + 1, '"') : NULL;
    name[0] = 0;
    if (to && to - from <= ASK_NAME - 1)
        snprintf(name, ASK_NAME, "%.*s", (int)(to - from - 1), from + 1);
    if (theirs && (!strncmp(message, "schema", 6) || !strcmp(name, "schema") || !strcmp(name, "json")))
        snprintf(name, ASK_NAME, "response_format");
    if (theirs && form == ASK_TEXT && !strcmp(name, "tokens"))
        snprintf(name, ASK_NAME, "prompt");
    for (const struct field *f = table_of(form); theirs && f->row.name; f++)
        if (f->to && !strcmp(f->to, name)) {
            snprintf(name, ASK_NAME, "%s", f->row.name);
            return;
        }
}
