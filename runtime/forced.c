/* A table has the text of each form around a name and arguments. Grammars are built backwards: from the end of the answer to its
 * beginning. */
#include "runtime/forced.h"

#include "common/base/fields.h"
#include "common/base/print.h"
#include "runtime/mask/schema.h"

#include <stdlib.h>
#include <string.h>

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DEEP(words) "\1<" BAR "tool" LOW words BAR ">\2"

/* \1 and \2 are around a mark; \3: the id of a call, or nothing; \4: a blank, or nothing; \5: a mark that closes a list, where the
 * vocabulary has it; \6: a thought, or nothing. pairs: arguments are pairs of a key and a value, and no JSON. */
static const struct around {
    enum calls_form form;
    int variant;
    const char *before, *between, *behind;
    int pairs;
} forms[] = {
    { CALLS_HERMES, 0, "\1<tool_call>\2\n{\"name\":\4\"", "\",\4\"arguments\":\4", "}\n\1</tool_call>\2", 0 },
    { CALLS_LLAMA, 0, "{\"name\":\4\"", "\",\4\"parameters\":\4", "}", 0 },
    { CALLS_MISTRAL, 0, "\1[TOOL_CALLS]\2\4[{\"name\":\4\"", "\",\4\"arguments\":\4", "}]", 0 },
    { CALLS_MISTRAL, 1, "\1[TOOL_CALLS]\2", "\3\1[ARGS]\2", "", 0 },
    { CALLS_DEEPSEEK, 0, DEEP("calls" LOW "begin") DEEP("call" LOW "begin"), DEEP("sep"), DEEP("call" LOW "end") DEEP("calls" LOW "end"),
      0 },
    { CALLS_DEEPSEEK, 1, DEEP("calls" LOW "begin") DEEP("call" LOW "begin") "function" DEEP("sep"), "\n```json\n",
      "\n```" DEEP("call" LOW "end") DEEP("calls" LOW "end"), 0 },
    { CALLS_LIST, 0, "\1<|tool_call|>\2[{\"name\":\4\"", "\",\4\"arguments\":\4", "}]\5", 0 },
    { CALLS_LIST, 1, "functools[{\"name\":\4\"", "\",\4\"arguments\":\4", "}]", 0 },
    { CALLS_HARMONY, 0, "\6\1<|channel|>\2commentary to=functions.", " \1<|constrain|>\2json\1<|message|>\2", "", 0 },
    { CALLS_XML, 0, "\1<tool_call>\2\n<function=", ">\n", "</function>\n\1</tool_call>\2", 1 },
    { CALLS_GLM, 0, "\1<tool_call>\2", "\n", "\1</tool_call>\2", 1 },
};

struct maker {
    const struct forced *f;
    const struct around *form;
    struct grammar *g;
    struct shapes s;
    int text;                /* rule: any text of a parameter and what closes it; -1: not built yet */
};

static int put(struct maker *m, const char *text, int next)
{
    return grammar_text(m->g, text, strlen(text), next);
}

static int has(const struct maker *m, const char *mark)
{
    return m->f->is_control && m->f->is_control(m->f->ctx, mark);
}

static int mark(struct maker *m, const char *text, int next)
{
    return has(m, text) ? grammar_mark(m->g, text, next) : put(m, text, next);
}

static int call_id(struct maker *m, int next)
{
    struct grammar_bytes letters = { 0 };
    int id = next;
    grammar_add(&letters, '0', '9');
    grammar_add(&letters, 'A', 'Z');
    grammar_add(&letters, 'a', 'z');
    for (int i = 0; i < 9; i++)
        id = grammar_set(m->g, &letters, id);
    return has(m, "[CALL_ID]") ? grammar_split(m->g, next, mark(m, "[CALL_ID]", id)) : next;
}

static int thought(struct maker *m, int next)
{
    int end = mark(m, "<|end|>", mark(m, "<|start|>", put(m, "assistant", next)));
    int text = grammar_count(m->g, shapes_raw(&m->s, "", GRAMMAR_RETURN), 0, -1, end);
    return grammar_split(m->g, next, mark(m, "<|channel|>", put(m, "analysis", mark(m, "<|message|>", text))));
}

/* Text of the table. */
static int spell(struct maker *m, const char *s, int next)
{
    char name[64];
    if (!*s)
        return next;
    size_t n = *s == '\1' ? strcspn(s, "\2") + 1 : strcspn(s, "\1\3\4\5\6");
    next = spell(m, s + (n ? n : 1), next);
    switch (*s) {
    case '\1':
        snprintf(name, sizeof name, "%.*s", (int)n - 2, s + 1);
        return mark(m, name, next);
    case '\3': return call_id(m, next);
    case '\4': return grammar_split(m->g, next, put(m, " ", next));
    case '\5': return has(m, "<|/tool_call|>") ? grammar_split(m->g, next, mark(m, "<|/tool_call|>", next)) : next;
    case '\6': return thought(m, next);
    default: return grammar_text(m->g, s, n, next);
    }
}

static int refuse(struct maker *m, const char *key, const char *why)
{
    grammar_fail(m->g, ERR_UNSUPPORTED, "\"%.80s\" %s; in this model's form of calls, %s, parameters that can be forced are strings of any "
                 "text, numbers, booleans, and enums of strings", key, why, calls_form_names[m->form->form]);
    return 0;
}

/* ---- arguments that are pairs ---- */

static const char *closing(const struct maker *m)
{
    return m->form->form == CALLS_GLM ? "</arg_value>" : "</parameter>";
}

/* Any text up to the first of what closes it. Where a beginning of that has been read, in which its first byte comes no second time, what
 * comes is its next byte, that first one again, or something else: a node for each beginning. */
static int any_text(struct maker *m)
{
    const char *close = closing(m);
    const char first[] = { close[0], 0 };
    struct grammar *g = m->g;
    int n = (int)strlen(close), at[32], control = has(m, close);
    if (m->text >= 0)
        return m->text;
    m->text = grammar_rule(g);
    int end = control ? mark(m, close, GRAMMAR_RETURN) : GRAMMAR_RETURN;
    for (int i = 0; i < n; i++)
        at[i] = grammar_split(g, GRAMMAR_RETURN, GRAMMAR_RETURN);
    for (int i = 0; i < n && !g->failed.code; i++) {
        const char others[] = { close[0], i ? close[i] : 0, 0 };
        int other = shapes_raw(&m->s, others, at[0]);
        int again = i ? grammar_split(g, grammar_byte(g, (unsigned char)*first, at[1]), other) : other;
        int more = i + 1 < n ? grammar_byte(g, (unsigned char)close[i], at[i + 1])
                 : control ? again : grammar_byte(g, (unsigned char)close[i], end);
        g->nodes[at[i]].next = control ? grammar_split(g, end, more) : more;
        g->nodes[at[i]].alt = again;
    }
    if (!g->failed.code)
        g->rules[m->text] = at[0];
    return m->text;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* One of the strings of an enum, as it is. */
static int one_of(struct maker *m, const char *key, const struct js *list, int next)
{
    const char *texts[256];
    int n = 0;
    if (js_len(list) == 0 || js_len(list) > 256)
        return refuse(m, key, "has no enum of 1 to 256 values");
    for (size_t i = 0; i < js_len(list); i++) {
        const char *s = js_str(js_at(list, i));
        if (!s || strstr(s, closing(m)) || strlen(s) > 4096)
            return refuse(m, key, "has a value in its enum that is no string, or one that cannot be written");
        texts[n++] = s;
    }
    qsort(texts, (size_t)n, sizeof texts[0], by_text);
    int k = 0;
    for (int i = 0; i < n; i++)
        if (k == 0 || strcmp(texts[k - 1], texts[i]))
            texts[k++] = texts[i];
    return shapes_texts(&m->s, texts, k, next);
}

/* A value and what closes it. */
static int pair_value(struct maker *m, const char *key, const struct js *schema, int next)
{
    static const char *const notes[] = { "type", "enum", "title", "description", "default", "examples", "deprecated", "$comment" };
    const char *word;
    const int types = calls_types(schema), strings = types == CALLS_STRING, xml = m->form->form == CALLS_XML;
    for (size_t i = 0; strings && (word = js_key(schema, i)); i++) {
        size_t k = 0;
        while (k < sizeof notes / sizeof notes[0] && strcmp(word, notes[k]))
            k++;
        if (k == sizeof notes / sizeof notes[0])
            return refuse(m, key, "is a string that more is said of than its type");
    }
    if (strings && !js_get(schema, "enum"))
        return grammar_call(m->g, any_text(m), next);
    if (!strings && types != CALLS_NUMBER && types != CALLS_BOOLEAN)
        return refuse(m, key, "is none of them");
    next = mark(m, closing(m), next);
    next = xml ? put(m, "\n", next) : next;
    return strings ? one_of(m, key, js_get(schema, "enum"), next) : schema_value(&m->s, schema, 0, next);
}

static int pair(struct maker *m, const char *key, const struct js *schema, int next)
{
    int xml = m->form->form == CALLS_XML;
    for (const char *c = key; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == '<' || *c == '>' || *c == 0x7f)
            return refuse(m, key, "is a name that cannot be written");
    if (!*key || strlen(key) >= CALLS_NAME)
        return refuse(m, key, "is a name that cannot be written");
    next = pair_value(m, key, schema, put(m, "\n", next));
    if (xml)
        return put(m, "<parameter=", put(m, key, put(m, ">\n", next)));
    return mark(m, "<arg_key>", put(m, key, mark(m, "</arg_key>", put(m, "\n", mark(m, "<arg_value>", next)))));
}

static int is_in(const struct js *list, const char *text)
{
    for (size_t i = 0; i < js_len(list); i++)
        if (js_str(js_at(list, i)) && !strcmp(js_str(js_at(list, i)), text))
            return 1;
    return 0;
}

static int pairs(struct maker *m, const struct js *schema, int next)
{
    static const char *const known[] = { "type", "properties", "required", "additionalProperties", "title", "description", "$schema",
                                         "$comment", "$id" };
    const struct js *properties = js_get(schema, "properties"), *required = js_get(schema, "required");
    const char *key;
    size_t n = 0, types = js_get(schema, "type") ? (size_t)calls_types(schema) : CALLS_OBJECT;
    for (size_t i = 0; (key = js_key(schema, i)); i++) {
        size_t k = 0;
        while (k < sizeof known / sizeof known[0] && strcmp(key, known[k]))
            k++;
        if (k == sizeof known / sizeof known[0])
            return refuse(m, key, "stands in the schema");
    }
    if (types != CALLS_OBJECT)
        return refuse(m, "type", "is not \"object\"");
    for (size_t i = 0; i < js_len(required); i++)
        if (!js_get(properties, js_str(js_at(required, i)) ? js_str(js_at(required, i)) : ""))
            return refuse(m, "required", "names a parameter that there is not");
    while (js_key(properties, n))
        n++;
    for (; n > 0 && !m->g->failed.code; n--) {
        key = js_key(properties, n - 1);
        int with = pair(m, key, js_get(properties, key), next);
        next = is_in(required, key) ? with : grammar_split(m->g, with, next);
    }
    return next;
}

/* ---- tools ---- */

/* Can a mask hold the schema? Others are of tools that are not strict. */
static int holds(const struct js *schema)
{
    struct grammar *g;
    struct err e = { 0 };
    int r = schema_grammar(schema, &g, &e);
    if (r == 0)
        grammar_free(g);
    return r != ERR_UNSUPPORTED;
}

/* An object without parameters is what people write who mean none; what a schema without more than that accepts is any object. */
static int is_none(const struct js *schema)
{
    static const char *const notes[] = { "type", "properties", "required", "title", "description", "$schema" };
    const struct js *properties = js_get(schema, "properties");
    const char *key;
    int none = js_is_object(properties) && !js_key(properties, 0) && !js_len(js_get(schema, "required"));
    for (size_t i = 0; (key = js_key(schema, i)) && none; i++) {
        size_t k = 0;
        while (k < sizeof notes / sizeof notes[0] && strcmp(key, notes[k]))
            k++;
        none = k < sizeof notes / sizeof notes[0];
    }
    return none;
}

static int arguments(struct maker *m, const struct js *function, const struct js *none, int any, int next)
{
    const struct js *schema = js_get(function, "parameters");
    if (!js_is_object(schema) && fields_given(schema))
        grammar_fail(m->g, ERR_FORMAT, "\"parameters\" is not an object");
    schema = js_is_object(schema) && !is_none(schema) ? schema : none;
    if (m->form->pairs)
        return pairs(m, schema, next);
    return any ? shapes_object(&m->s, next) : schema_value(&m->s, schema, 1, next);
}

static int is_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
    return n > 0 && n < CALLS_NAME && !s[n];
}

static const struct js *function_of(const struct js *tool)
{
    const struct js *f = js_get(tool, "function");
    return f ? f : tool;
}

/* A call of each tool that may be called, or 0. any[i]: its schema is not held. */
static int calls_of(struct maker *m, const char *any, const struct js *none, int next)
{
    const struct forced *f = m->f;
    int r = -1, end = spell(m, m->form->behind, next);
    for (size_t i = 0; i < js_len(f->tools) && !m->g->failed.code; i++) {
        const struct js *function = function_of(js_at(f->tools, i));
        const char *name = js_str(js_get(function, "name"));
        if (!name || (f->name && strcmp(f->name, name)))
            continue;
        if (!is_name(name)) {
            grammar_fail(m->g, ERR_UNSUPPORTED, "\"tools\": \"%.80s\": a tool that is forced has a name of letters, digits, \"_\", \"-\" "
                         "and \".\" alone, of less than %d bytes", name, CALLS_NAME);
            return 0;
        }
        int call = arguments(m, function, none, any[i], end);
        if (m->g->failed.code) {
            struct err was = m->g->failed;
            print_into(m->g->failed.msg, sizeof m->g->failed.msg, "\"tools\": \"%.80s\": %s", name, was.msg);
            return 0;
        }
        call = put(m, name, spell(m, m->form->between, call));
        r = r < 0 ? call : grammar_split(m->g, r, call);
    }
    return r < 0 ? 0 : r;
}

static int is_there(const struct forced *f)
{
    int there = 0;
    for (size_t i = 0; i < js_len(f->tools); i++) {
        const char *name = js_str(js_get(function_of(js_at(f->tools, i)), "name"));
        there |= name && (!f->name || !strcmp(f->name, name));
    }
    return there;
}

int forced_grammar(const struct forced *f, struct grammar **out, struct err *e)
{
    static const char no_parameters[] = "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}";
    struct maker m = { .f = f, .text = -1 };
    char any[FORCED_TOOLS] = { 0 };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0] && !m.form; i++)
        if (forms[i].form == f->form && forms[i].variant == f->variant)
            m.form = &forms[i];
    if (!m.form)
        return err_set(e, ERR_UNSUPPORTED, "\"tool_choice\": this model's form of calls is not known, so that it cannot be made to call"
                       "; \"auto\" leaves it to the model");
    if (js_len(f->tools) > FORCED_TOOLS)
        return err_set(e, ERR_LIMIT, "\"tool_choice\": a call that is forced is chosen from at most %d \"tools\"", FORCED_TOOLS);
    if (!is_there(f))
        return f->name ? err_set(e, ERR_FORMAT, "\"tool_choice\": \"tools\" has no \"%.80s\"", f->name)
                       : err_set(e, ERR_FORMAT, "\"tool_choice\": there are no \"tools\" to call");
    for (size_t i = 0; i < js_len(f->tools) && !m.form->pairs; i++) {
        const struct js *function = function_of(js_at(f->tools, i));
        any[i] = js_bool(js_get(function, "strict")) != 1 && js_is_object(js_get(function, "parameters")) &&
                 !holds(js_get(function, "parameters"));
    }
    struct js *none = js_parse(no_parameters, strlen(no_parameters), "parameters", e);
    if (!none || !(m.g = grammar_new())) {
        js_free(none);
        return err_set(e, ERR_NOMEM, "out of memory for tools");
    }
    shapes_init(&m.s, m.g);
    m.g->start = grammar_rule(m.g);
    int first = spell(&m, m.form->before, calls_of(&m, any, none, GRAMMAR_RETURN));
    if (f->form != CALLS_HARMONY)
        first = grammar_split(m.g, first, put(&m, "\n", grammar_split(m.g, first, put(&m, "\n", first))));
    m.g->rules[m.g->start] = first;
    int r = grammar_done(m.g, e);
    js_free(none);
    if (r < 0)
        grammar_free(m.g);
    else
        *out = m.g;
    return r;
}
