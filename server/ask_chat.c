/* Bodies of chat/completions and completions. */
#include "server/ask_parts.h"

#include <stdlib.h>
#include <string.h>

static int read_options(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    static const struct fields rows[] = {
        TAKEN("include_usage"), { "include_obfuscation", FIELDS_NO_EFFECT, NULL }, { NULL, FIELDS_TAKEN, NULL },
    };
    int r = fields_check(v, rows, sizeof *rows, "\"stream_options\"", e);
    const struct js *usage = js_get(v, "include_usage");
    (void)f;
    (void)body;
    if (r == 0 && fields_given(usage) && js_bool(usage) < 0)
        r = err_set(e, ERR_FORMAT, "\"stream_options\": \"include_usage\" is not true or false");
    a->usage = js_bool(usage) == 1;
    return r;
}

/* The i-th of what "prompt" says: a string, or token ids, or an array of either. NULL: behind the last. */
static const struct js *prompt_of(const struct js *v, size_t i)
{
    int64_t id;
    int several = js_is_array(v) && js_len(v) > 0 && !js_int(js_at(v, 0), &id);
    return several ? js_at(v, i) : i ? NULL : v;
}

static int read_prompt(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    const struct js *p;
    (void)body;
    for (a->n_prompts = 0; (p = prompt_of(v, (size_t)a->n_prompts)); a->n_prompts++) {
        if (!js_str(p) && !(js_is_array(p) && js_len(p)))
            return err_set(e, ERR_FORMAT, "\"prompt\" is not a string or an array of token ids, or an array of such");
        char *text = js_text(p, 0, 0);
        int bad = !text || buffer_printf(&a->prompts, "\"%s\":", js_str(p) ? f->to : "tokens") < 0 ||
                  buffer_put(&a->prompts, text, strlen(text) + 1, 1) < 0;
        free(text);
        if (bad)
            return ask_no_memory(e);
    }
    return 0;
}

/* The prompt stands before each of its answers, and its tokens before theirs. */
static int read_echo(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int r = ask_bool(a, f, body, v, e);
    a->echoes = js_bool(v) == 1;
    return r == 0 && a->echoes && fields_given(js_get(body, "logprobs")) ? ask_add(a, "prompt_logprobs", "true", e) : r;
}

static int echo_tokens(struct buffer *raw, const struct js *p, const char *(*piece)(void *ctx, int32_t id, size_t *n), void *ctx)
{
    int64_t id;
    size_t n;
    for (size_t i = 0; i < js_len(p); i++)
        if (js_int(js_at(p, i), &id) && id >= 0 && id <= INT32_MAX) { /* others are refused by the library */
            const char *text = piece(ctx, (int32_t)id, &n);
            if (buffer_put(raw, text, n, 0) < 0)
                return -1;
        }
    return 0;
}

int ask_echo(struct ask *a, const struct js *body, const char *(*piece)(void *ctx, int32_t id, size_t *n), void *ctx, struct err *e)
{
    const struct js *p;
    int bad = 0;
    for (size_t i = 0; !bad && (p = prompt_of(js_get(body, "prompt"), i)); i++) {
        struct buffer raw = { .pool = a->echo.pool };
        const char *text = js_str(p);
        bad = !text && echo_tokens(&raw, p, piece, ctx) < 0;
        text = text ? text : raw.len ? raw.at : "";
        bad |= buffer_escape(&a->echo, text, js_str(p) ? strlen(text) : raw.len, 0) < 0 || buffer_put(&a->echo, "", 1, 0) < 0;
        buffer_drop(&raw);
    }
    return bad ? ask_no_memory(e) : 0;
}

/* chat_template_kwargs, and reasoning_effort as a variable of that name. */
static int read_args(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    const struct js *args = js_get(body, "chat_template_kwargs"), *effort = js_get(body, "reasoning_effort");
    const char *how = js_str(effort);
    (void)f;
    (void)v;
    if (fields_given(args) && !js_is_object(args))
        return err_set(e, ERR_FORMAT, "\"chat_template_kwargs\" is not an object");
    if (fields_given(effort) && (!how || strspn(how, "abcdefghijklmnopqrstuvwxyz") != strlen(how) || strlen(how) > 16))
        return err_set(e, ERR_FORMAT, "\"reasoning_effort\" is not a word, as \"none\", \"low\", \"medium\" or \"high\"");
    if (how && js_get(args, "reasoning_effort"))
        return err_set(e, ERR_FORMAT, "\"reasoning_effort\" is a field, and in \"chat_template_kwargs\", too");
    return ask_effort(a, args, how, e);
}

/* {"type": "text"}, or JSON of a schema, or any object of JSON. */
static int read_format(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    static const struct fields rows[] = { TAKEN("type"), TAKEN("json_schema"), { NULL, FIELDS_TAKEN, NULL } };
    static const struct fields schema_rows[] = {
        { "name", FIELDS_NO_EFFECT, NULL }, { "description", FIELDS_NO_EFFECT, NULL }, { "strict", FIELDS_NO_EFFECT, NULL }, /* always */
        TAKEN("schema"), { NULL, FIELDS_TAKEN, NULL },
    };
    const struct js *of = js_get(v, "json_schema");
    int r = fields_check(v, rows, sizeof *rows, "\"response_format\"", e);
    (void)body;
    if (r == 0 && fields_given(of))
        r = fields_check(of, schema_rows, sizeof *schema_rows, "\"response_format\": \"json_schema\"", e);
    return r < 0 ? r : ask_add_format(a, f->row.name, v, of, e);
}

static int read_choices(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    double x = 0;
    int r = ask_int(a, f, body, v, e);
    js_num(v, &x);
    a->n = r < 0 ? 1 : (int)x;
    return r;
}

static int read_logprobs(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int r = ask_bool(a, f, body, v, e);
    a->logprobs = js_bool(v) == 1;
    return r;
}

static int read_tops(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    if (a->form == ASK_CHAT && !a->logprobs)
        return err_set(e, ERR_FORMAT, "\"top_logprobs\" needs \"logprobs\": true");
    a->logprobs = 1;
    return ask_int(a, f, body, v, e);
}

#define OPENAI \
    SAMPLING, \
    READ("stream_options", read_options, NULL), \
    READ("stop", ask_stop, "stop"), \
    RANGE("n", read_choices, "choices", 1, 4096), \
    REFUSED("n_predict", "its name here is \"max_tokens\"")

const struct field ask_chat_fields[] = {
    OPENAI,
    READ("messages", ask_copy, "messages"),
    RANGE("max_completion_tokens", ask_length, "n", 0, 0x1p53),
    RANGE("max_tokens", ask_length, "n", -1, 0x1p53),
    READ("logprobs", read_logprobs, NULL),
    RANGE("top_logprobs", read_tops, "logprobs", 0, 20),
    READ("chat_template_kwargs", read_args, "template_args"),
    READ("reasoning_effort", read_args, "template_args"),
    NO_EFFECT("store"),
    READ("tools", ask_tools, "tools"),
    READ("tool_choice", ask_tool_choice, "tool_choice"),
    READ("parallel_tool_calls", ask_bool, NULL), /* a forced call is one; others are as many as the model makes */
    IF_EMPTY("functions", "\"tools\" has them"),
    DEFAULT("function_call", "\"none\" \"auto\"", "\"tools\" has functions"),
    READ("response_format", read_format, NULL),
    DEFAULT("modalities", "[\"text\"]", "models write text alone"),
    DEFAULT("verbosity", "\"medium\"", "say it in a message"),
    IF_EMPTY("audio", "models write text alone"),
    IF_EMPTY("prediction", "the server guesses by itself where --guess is given"),
    IF_EMPTY("web_search_options", "no program here opens a connection"),
    IF_EMPTY("moderation", "answers are what the model writes"),
    LAST
}, ask_text_fields[] = {
    OPENAI,
    READ("prompt", read_prompt, "prompt"),
    READ("parse_special", ask_flag, "parse_special"),
    RANGE("max_tokens", ask_length, "n", -1, 0x1p53),
    DEFAULT("best_of", "1", "\"n\" says how many there are, and each is sent"),
    READ("echo", read_echo, NULL),
    READ("suffix", ask_copy, "suffix"),
    RANGE("logprobs", read_tops, "logprobs", 0, 20),
    LAST
};
