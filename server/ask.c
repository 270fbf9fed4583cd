/* What bodies of all forms have in common; their tables are in ask_chat.c, ask_messages.c and ask_responses.c, tools in ask_tools.c. What
 * clients send by default without wanting anything by it is taken where it says the default (`only`). */
#include "server/ask_parts.h"

#include "common/base/print.h"

#include <stdlib.h>
#include <string.h>

/* What the library takes of these, at most. Of a request that is too long for its context the prompt is to blame then. */
enum { STOPS = 8, STOP_BYTES = 64, BIASES = 300 };

static const struct { const struct field *fields; const char *must, *length; } forms[] = {
    [ASK_CHAT] = { ask_chat_fields, "messages", "-1" },
    [ASK_TEXT] = { ask_text_fields, "prompt", "16" }, /* what OpenAI's reference says */
    [ASK_MESSAGES] = { ask_messages_fields, "messages", "-1" },
    [ASK_RESPONSES] = { ask_responses_fields, "input", "-1" },
};

int ask_no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory for a request");
}

int ask_add(struct ask *a, const char *to, const char *text, struct err *e)
{
    const char *between = a->fields.len > 1 ? "," : "";
    int bad = buffer_printf(&a->fields, "%s\"%s\":", between, to) < 0 || buffer_put(&a->fields, text, strlen(text), 1) < 0;
    return bad ? ask_no_memory(e) : 0;
}

int ask_add_json(struct ask *a, const char *to, const struct js *v, struct err *e)
{
    char *text = js_text(v, 0, 0);
    int r = text ? ask_add(a, to, text, e) : ask_no_memory(e);
    free(text);
    return r;
}

/* ---- readers ---- */

static int number(const struct field *f, const struct js *v, int64_t *whole, double *x, struct err *e)
{
    if (!js_num(v, x) || (whole && !js_int(v, whole)) || !(*x >= f->min && *x <= f->max))
        return err_set(e, ERR_FORMAT, "\"%s\" is not %s from %g to %g", f->row.name, whole ? "an integer" : "a number", f->min, f->max);
    return 0;
}

static int add_whole(struct ask *a, const char *to, int64_t v, struct err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)v);
    return ask_add(a, to, text, e);
}

int ask_real(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    double x;
    char text[PRINT_NUMBER];
    int r = number(f, v, NULL, &x, e);
    (void)body;
    if (r < 0)
        return r;
    print_json_number(text, 17, x);
    return ask_add(a, f->to, text, e);
}

int ask_int(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int64_t n;
    double x;
    int r = number(f, v, &n, &x, e);
    (void)body;
    return r < 0 ? r : add_whole(a, f->to, n, e);
}

/* -1: any. */
int ask_seed(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int64_t n;
    double x;
    int r = number(f, v, &n, &x, e);
    (void)body;
    return r < 0 || n == -1 ? r : add_whole(a, f->to, n & INT64_MAX, e);
}

/* More than a context has: the context ends it. */
int ask_length(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int64_t n;
    double x;
    int r = number(f, v, &n, &x, e);
    (void)body;
    return r < 0 ? r : add_whole(a, f->to, n > ASK_TOKENS ? ASK_TOKENS : n, e);
}

int ask_bool(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    (void)a;
    (void)body;
    return js_bool(v) < 0 ? err_set(e, ERR_FORMAT, "\"%s\" is not true or false", f->row.name) : 0;
}

int ask_flag(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int r = ask_bool(a, f, body, v, e);
    return r < 0 ? r : ask_add_json(a, f->to, v, e);
}

int ask_stream(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int r = ask_bool(a, f, body, v, e);
    a->stream = js_bool(v) == 1;
    return r;
}

int ask_copy(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    (void)body;
    return ask_add_json(a, f->to, v, e);
}

int ask_bias(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    if (js_is_object(v) && js_key(v, BIASES))
        return err_set(e, ERR_LIMIT, "\"%s\" has more than %d tokens", f->row.name, BIASES);
    return ask_copy(a, f, body, v, e);
}

int ask_stop(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    int fits = js_str(v) || js_is_array(v);
    (void)body;
    size_t longest = js_str(v) ? strlen(js_str(v)) : 0;
    for (size_t i = 0; js_is_array(v) && i < js_len(v); i++) {
        const char *s = js_str(js_at(v, i));
        fits &= s != NULL;
        longest = s && strlen(s) > longest ? strlen(s) : longest;
    }
    if (!fits)
        return err_set(e, ERR_FORMAT, "\"%s\" is neither a string nor an array of strings", f->row.name);
    if (js_len(v) > STOPS || longest > STOP_BYTES)
        return err_set(e, ERR_LIMIT, "\"%s\" has more than %d strings, or one of more than %d bytes", f->row.name, STOPS, STOP_BYTES);
    return js_is_array(v) && js_len(v) == 0 ? 0 : ask_add_json(a, f->to, v, e);
}

int ask_only(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e)
{
    char *text = js_text(v, 0, 0);
    (void)a;
    (void)body;
    if (!text)
        return ask_no_memory(e);
    int found = 0;
    for (const char *s = f->only; *s && !found; s += strcspn(s, " "), s += strspn(s, " "))
        found = strlen(text) == strcspn(s, " ") && !strncmp(s, text, strlen(text));
    free(text);
    return found ? 0 : err_set(e, ERR_UNSUPPORTED, "\"%s\" is taken as %s alone: %s", f->row.name, f->only, f->row.why);
}

int ask_effort(struct ask *a, const struct js *args, const char *how, struct err *e)
{
    if (how && !strcmp(how, "none")) {
        int r = ask_add(a, "thinking", "\"off\"", e);
        return r < 0 || !fields_given(args) ? r : ask_add_json(a, "template_args", args, e);
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
    int r = bad ? ask_no_memory(e) : ask_add(a, "template_args", b.at, e);
    buffer_drop(&b);
    free(text);
    return r;
}

int ask_add_format(struct ask *a, const char *name, const struct js *format, const struct js *of, struct err *e)
{
    const char *type = js_str(js_get(format, "type"));
    const struct js *schema = js_get(of, "schema");
    if (type && !strcmp(type, "text"))
        return 0;
    if (type && !strcmp(type, "json_object"))
        return ask_add(a, "json", "true", e);
    if (!type || strcmp(type, "json_schema") != 0)
        return err_set(e, ERR_FORMAT, "\"%s\": \"type\" is none of \"text\", \"json_object\" and \"json_schema\"", name);
    return js_is_object(schema) ? ask_add_json(a, "schema", schema, e)
                                : err_set(e, ERR_FORMAT, "\"%s\": \"json_schema\" has no \"schema\" that is an object", name);
}

/* ---- a body ---- */

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
    const char *must = forms[a->form].must;
    for (const struct field *f = forms[a->form].fields; f->row.name && r == 0; f++) {
        const struct js *v = js_get(j, f->row.name);
        int again = 0;
        for (int i = 0; i < n && f->to; i++)
            again |= !strcmp(taken[i], f->to);
        if (!fields_given(v) || again)
            continue;
        r = f->read ? f->read(a, f, j, v, e) : 0;
        if (f->to && n < 32)
            taken[n++] = f->to;
        limited |= f->to && !strcmp(f->to, "n");
    }
    if (r == 0 && !fields_given(js_get(j, must)))
        r = err_set(e, ERR_FORMAT, "\"%s\" is missing", must);
    return r == 0 && !limited ? ask_add(a, "n", forms[a->form].length, e) : r;
}

int ask_read(const struct js *j, enum ask_form form, struct pool *pool, struct ask *out, struct err *e)
{
    *out = (struct ask){ .form = form, .n = 1, .n_prompts = 1, .echo.pool = pool };
    int r = fields_check(j, &forms[form].fields->row, sizeof(struct field), "the body", e);
    if (r == 0)
        r = buffer_put(&out->fields, "{", 1, 1) < 0 ? ask_no_memory(e) : check_twice(j, e);
    if (r == 0)
        r = read_all(j, out, e);
    out->common = out->fields.len;
    r = r < 0 ? r : ask_turn(out, 0, e);
    if (r < 0)
        ask_done(out);
    return r;
}

int ask_turn(struct ask *a, int i, struct err *e)
{
    const char *prompt = a->prompts.len ? a->prompts.at : "";
    for (a->fields.len = a->common; i > 0; i--)
        prompt += strlen(prompt) + 1;
    if (*prompt && a->fields.len > 1)
        buffer_put(&a->fields, ",", 1, 1);
    buffer_put(&a->fields, prompt, strlen(prompt), 1);
    return buffer_put(&a->fields, "}", 1, 1) < 0 || a->fields.failed || a->prompts.failed ? ask_no_memory(e) : 0;
}

void ask_done(struct ask *a)
{
    buffer_drop(&a->prompts);
    buffer_drop(&a->fields);
    buffer_drop(&a->echo);
}

void ask_param(enum ask_form form, const char *message, int theirs, char name[ASK_NAME])
{
    const char *from = strchr(message, '"'), *to = from ? strchr(from + 1, '"') : NULL;
    name[0] = 0;
    if (to && to - from <= ASK_NAME - 1)
        snprintf(name, ASK_NAME, "%.*s", (int)(to - from - 1), from + 1);
    if (theirs && (!strncmp(message, "schema", 6) || !strcmp(name, "schema") || !strcmp(name, "json")))
        snprintf(name, ASK_NAME, form == ASK_MESSAGES ? "output_config" : form == ASK_RESPONSES ? "text" : "response_format");
    if (theirs && form == ASK_TEXT && !strcmp(name, "tokens"))
        snprintf(name, ASK_NAME, "prompt");
    for (const struct field *f = forms[form].fields; theirs && f->row.name; f++)
        if (f->to && !strcmp(f->to, name)) {
            snprintf(name, ASK_NAME, "%s", f->row.name);
            return;
        }
}
