/* One machine for all forms, a byte at a time: a table of states, each of which waits for one of a few texts, takes everything up to one,
 * or takes a JSON value, and of texts that may begin a call in each form. What is held is a candidate: white space, then the beginning of
 * a call. When it cannot be one any more, its first byte is text, and the machine begins anew behind it; when it is one, it is gone.
 *
 *     buf:   decided text | white space | the beginning of a call
 *            from          cand                             pos  n
 */
#include "runtime/chat/calls.h"

#include "common/base/hash.h"
#include "common/base/json_text.h"

#include <stdlib.h>
#include <string.h>

#define BAR   "\xef\xbd\x9c"
#define LOW   "\xe2\x96\x81"
#define SEP   "<" BAR "tool" LOW "sep" BAR ">"
#define END   "<" BAR "tool" LOW "call" LOW "end" BAR ">"
#define PIECE 1024 /* of text that is taken at a time */

const char *const calls_form_names[] = { "none", "hermes", "xml", "glm", "llama", "mistral", "deepseek", "list", "harmony", NULL };

enum state {
    S_TEXT,
    S_TAG, S_LIST, S_ITEM, S_CLOSE,
    S_FUNCTION, S_PARAMETER, S_KEY, S_VALUE,
    S_GLM, S_GLM_KEY, S_GLM_BETWEEN, S_GLM_VALUE, S_GLM_NEXT,
    S_MISTRAL, S_MISTRAL_NAME, S_MISTRAL_ID,
    S_BEGIN, S_TYPE, S_TYPED_NAME, S_FENCE, S_FENCED_END,
    S_TO, S_HEADER,
    S_ARGUMENTS, S_FENCED, S_BODY,
    S_SWALLOW, S_CALL /* what came is a call */
};
enum kind { CHOICE, UNTIL, OBJECT, ARRAY };
/* What is made of what a state took. ITEM: an object with name and arguments; ITEMS: an array of those. */
enum act { NONE, NAME, TYPE, ID, KEY, VALUE, PAIRS, ITEM, ITEMS, BODY };

/* exits: of a choice, white space before it is skipped, and one of a text "" is what is taken where it is no other; `keep`: the text is the
 * next state's. */
static const struct {
    enum kind kind;
    struct exit {
        const char *text;
        enum state to;
        enum act act;
        int keep;
    } exits[5];
} states[] = {
    [S_TAG] = { CHOICE, { { "{", S_ITEM, NONE, 1 }, { "[", S_LIST, NONE, 1 }, { "<function=", S_FUNCTION, NONE, 0 } } },
    [S_LIST] = { ARRAY, { { "", S_CALL, ITEMS, 0 } } },
    [S_ITEM] = { OBJECT, { { "", S_CLOSE, ITEM, 0 } } },
    [S_CLOSE] = { CHOICE, { { "</tool_call>", S_CALL, NONE, 0 } } },
    [S_FUNCTION] = { UNTIL, { { ">", S_PARAMETER, NAME, 0 } } },
    [S_PARAMETER] = { CHOICE, { { "<parameter=", S_KEY, NONE, 0 }, { "</function>", S_CALL, PAIRS, 0 } } },
    [S_KEY] = { UNTIL, { { ">", S_VALUE, KEY, 0 } } },
    [S_VALUE] = { UNTIL, { { "</parameter>", S_PARAMETER, VALUE, 0 } } },
    [S_GLM] = { UNTIL, { { "<arg_key>", S_GLM_KEY, NAME, 0 }, { "</tool_call>", S_CALL, NAME, 0 } } },
    [S_GLM_KEY] = { UNTIL, { { "</arg_key>", S_GLM_BETWEEN, KEY, 0 } } },
    [S_GLM_BETWEEN] = { CHOICE, { { "<arg_value>", S_GLM_VALUE, NONE, 0 } } },
    [S_GLM_VALUE] = { UNTIL, { { "</arg_value>", S_GLM_NEXT, VALUE, 0 } } },
    [S_GLM_NEXT] = { CHOICE, { { "<arg_key>", S_GLM_KEY, NONE, 0 }, { "</tool_call>", S_CALL, PAIRS, 0 } } },
    [S_MISTRAL] = { CHOICE, { { "[", S_LIST, NONE, 1 }, { "", S_MISTRAL_NAME, NONE, 1 } } },
    [S_MISTRAL_NAME] = { UNTIL, { { "[ARGS]", S_BODY, NAME, 0 }, { "[CALL_ID]", S_MISTRAL_ID, NAME, 0 }, { "{", S_BODY, NAME, 1 } } },
    [S_MISTRAL_ID] = { UNTIL, { { "[ARGS]", S_BODY, ID, 0 } } },
    [S_BEGIN] = { CHOICE, { { "<" BAR "tool" LOW "call" LOW "begin" BAR ">", S_TYPE, NONE, 0 } } },
    [S_TYPE] = { UNTIL, { { SEP, S_ARGUMENTS, TYPE, 0 } } },
    [S_TYPED_NAME] = { UNTIL, { { "\n", S_FENCE, NAME, 0 } } },
    [S_FENCE] = { CHOICE, { { "```json", S_FENCED, NONE, 0 } } },
    [S_FENCED] = { OBJECT, { { "", S_FENCED_END, BODY, 0 } } },
    [S_FENCED_END] = { CHOICE, { { "```", S_FENCED_END, NONE, 0 }, { END, S_CALL, NONE, 0 } } },
    [S_ARGUMENTS] = { OBJECT, { { "", S_FENCED_END, BODY, 0 } } },
    [S_TO] = { UNTIL, { { "<|message|>", S_BODY, NAME, 0 }, { " ", S_HEADER, NAME, 0 }, { "<|", S_HEADER, NAME, 1 } } },
    [S_HEADER] = { UNTIL, { { "<|message|>", S_BODY, NONE, 0 } } },
    [S_BODY] = { OBJECT, { { "", S_CALL, BODY, 0 } } },
};

/* What a candidate begins with. FIRST: before any text of the answer; AFTER: behind a call. */
enum where { ANYWHERE, HEADER, FIRST, AFTER };
static const struct opener {
    unsigned forms;
    const char *text;
    enum state to;
    enum where where;
    int keep;
} openers[] = {
#define IN(form) (1u << CALLS_##form)
    { IN(HERMES) | IN(XML) | IN(LIST), "<tool_call>", S_TAG, ANYWHERE, 0 },
    { IN(HERMES) | IN(XML) | IN(LIST), "</tool_call>", S_SWALLOW, AFTER, 0 },
    { IN(GLM), "<tool_call>", S_GLM, ANYWHERE, 0 },
    { IN(XML), "<function=", S_FUNCTION, ANYWHERE, 0 },
    { IN(LIST), "<|tool_call|>", S_LIST, ANYWHERE, 0 },
    { IN(LIST), "functools", S_LIST, FIRST, 0 },
    { IN(LIST), "<|/tool_call|>", S_SWALLOW, AFTER, 0 },
    { IN(LLAMA), "{", S_ITEM, FIRST, 1 },
    { IN(LLAMA), "<|python_tag|>", S_ITEM, FIRST, 0 },
    { IN(LLAMA), ";", S_SWALLOW, AFTER, 0 },
    { IN(MISTRAL), "[TOOL_CALLS]", S_MISTRAL, ANYWHERE, 0 },
    { IN(DEEPSEEK), "<" BAR "tool" LOW "calls" LOW "begin" BAR ">", S_BEGIN, ANYWHERE, 0 },
    { IN(DEEPSEEK), "<" BAR "tool" LOW "call" LOW "begin" BAR ">", S_TYPE, ANYWHERE, 0 },
    { IN(DEEPSEEK), "<" BAR "tool" LOW "calls" LOW "end" BAR ">", S_SWALLOW, AFTER, 0 },
    { IN(HARMONY), "to=functions.", S_TO, HEADER, 0 },
};
enum { OPENERS = sizeof openers / sizeof openers[0] };

struct span {
    size_t at, n;
};

struct calls {
    enum calls_form form;
    uint64_t salt;
    size_t most, cap, tools_bytes;
    char *buf;              /* [cap] */
    unsigned char *parts;   /* [cap]: of each byte, twice enum chat_part, and 1 where it is silent */
    char *args;             /* [most]: of pairs */
    char *tools;            /* each: name NUL, (types key NUL)..., NUL; at the end NUL; NULL: any */
    size_t from, cand, pos, n;
    /* the candidate */
    enum state state;
    size_t blanks;          /* white space that it begins with */
    size_t field;           /* where the state began */
    size_t n_args;
    int depth, quoted, escaped;
    struct span name, id, key, body;
    enum act result;        /* PAIRS, ITEM, ITEMS, BODY */
    /* the answer */
    int count, after, blank; /* after: a call, and white space since; blank: no text but white space */
};

/* ---- what a model's form is ---- */

enum calls_form calls_form_of(const char *template, const char *architecture)
{
    static const struct {
        const char *has, *also;
        enum calls_form form;
    } texts[] = {
        { "<|channel|>", "functions.", CALLS_HARMONY },
        { "<arg_key>", "", CALLS_GLM },
        { "<function=", "<parameter=", CALLS_XML },
        { "[TOOL_CALLS]", "", CALLS_MISTRAL },
        { "<" BAR "tool" LOW "call" LOW "begin" BAR ">", "", CALLS_DEEPSEEK },
        { "<|tool_call|>", "", CALLS_LIST },
        { "<|tool|>", "", CALLS_LIST },
        { "functools", "", CALLS_LIST },
        { "<tool_call>", "", CALLS_HERMES },
        { "xml_tools", "", CALLS_HERMES },
        { "ipython", "\"parameters\":", CALLS_LLAMA },
    };
    static const struct {
        const char *name;
        enum calls_form form;
    } archs[] = {
        { "gpt-oss", CALLS_HARMONY }, { "glm4moe", CALLS_GLM }, { "qwen2", CALLS_HERMES }, { "qwen2moe", CALLS_HERMES },
        { "qwen3", CALLS_HERMES }, { "qwen3moe", CALLS_HERMES }, { "qwen3next", CALLS_HERMES }, { "qwen35", CALLS_XML },
        { "qwen35moe", CALLS_XML }, { "deepseek2", CALLS_DEEPSEEK }, { "granitehybrid", CALLS_HERMES }, { "granite", CALLS_LIST },
        { "granitemoe", CALLS_LIST }, { "smollm3", CALLS_HERMES }, { "mistral3", CALLS_MISTRAL },
    };
    for (size_t i = 0; template && i < sizeof texts / sizeof texts[0]; i++)
        if (strstr(template, texts[i].has) && strstr(template, texts[i].also))
            return texts[i].form;
    for (size_t i = 0; architecture && i < sizeof archs / sizeof archs[0]; i++)
        if (!strcmp(architecture, archs[i].name))
            return archs[i].form;
    return CALLS_NONE;
}

int calls_variant_of(enum calls_form form, const char *template)
{
    static const struct {
        enum calls_form form;
        const char *has, *without;
    } seconds[] = {
        { CALLS_MISTRAL, "[ARGS]", NULL }, { CALLS_DEEPSEEK, "```json", NULL }, { CALLS_LIST, "functools", "<|tool_call|>" },
    };
    for (size_t i = 0; template && i < sizeof seconds / sizeof seconds[0]; i++)
        if (seconds[i].form == form && strstr(template, seconds[i].has))
            return !seconds[i].without || !strstr(template, seconds[i].without);
    return 0;
}

/* ---- tools ---- */

static int types_of(const struct js *schema, int depth)
{
    static const struct {
        const char *name;
        int type;
    } names[] = {
        { "string", CALLS_STRING }, { "integer", CALLS_NUMBER }, { "number", CALLS_NUMBER }, { "boolean", CALLS_BOOLEAN },
        { "null", CALLS_NULL }, { "object", CALLS_OBJECT }, { "array", CALLS_ARRAY },
    };
    const struct js *type = js_get(schema, "type"), *any = js_get(schema, "anyOf"), *one = js_get(schema, "enum");
    int types = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t k = 0; k < (js_str(type) ? 1 : js_len(type)); k++) {
            const char *s = js_str(type) ? js_str(type) : js_str(js_at(type, k));
            types |= s && !strcmp(s, names[i].name) ? names[i].type : 0;
        }
    for (size_t i = 0; depth > 0 && i < js_len(any); i++) {
        int of = types_of(js_at(any, i), depth - 1);
        if (!of)
            return 0;
        types |= of;
    }
    int strings = types == 0 && js_len(one) > 0;
    for (size_t i = 0; strings && i < js_len(one); i++)
        strings = js_str(js_at(one, i)) != NULL;
    return strings ? CALLS_STRING : types;
}

int calls_types(const struct js *schema)
{
    return types_of(schema, 4);
}

static size_t put_text(char *out, size_t at, const char *s)
{
    size_t n = strlen(s) + 1;
    if (out)
        memcpy(out + at, s, n);
    return at + n;
}

/* The table of tools, written to out where that is not NULL; its bytes, or 0: a tool has no name. */
static size_t list_tools(const struct js *tools, char *out)
{
    size_t at = 0;
    for (size_t i = 0; i < js_len(tools); i++) {
        const struct js *tool = js_at(tools, i), *f = js_get(tool, "function");
        f = f ? f : tool;
        const char *name = js_str(js_get(f, "name")), *key;
        const struct js *properties = js_get(js_get(f, "parameters"), "properties");
        if (!name || !*name)
            return 0;
        at = put_text(out, at, name);
        for (size_t k = 0; (key = js_key(properties, k)); k++) {
            if (out)
                out[at] = (char)(64 + calls_types(js_get(properties, key)));
            at = put_text(out, at + 1, key);
        }
        at = put_text(out, at, "");
    }
    return put_text(out, at, "");
}

/* What follows a tool's name in the table; NULL: there is no such tool. */
static const char *find_tool(const struct calls *c, const char *name, size_t n)
{
    for (const char *t = c->tools; t && *t; t++) {
        size_t k = strlen(t);
        int is = k == n && !memcmp(t, name, n);
        t += k + 1;
        if (is)
            return t;
        while (*t)
            t += strlen(t) + 1;
    }
    return NULL;
}

static int types_in(const char *tool, const char *key, size_t n)
{
    for (; tool && *tool; tool += strlen(tool) + 1)
        if (strlen(tool + 1) == n && !memcmp(tool + 1, key, n))
            return *tool - 64;
    return 0;
}

static int is_called(const struct calls *c, const char *name, size_t n)
{
    if (n == 0 || n > CALLS_NAME || c->tools)
        return n > 0 && n <= CALLS_NAME && find_tool(c, name, n) != NULL;
    for (size_t i = 0; i < n; i++)
        if ((name[i] | 32) < 'a' || (name[i] | 32) > 'z')
            if ((name[i] < '0' || name[i] > '9') && !memchr("_-.:/", name[i], 5))
                return 0;
    return 1;
}

/* ---- life ---- */

size_t calls_bytes(size_t most)
{
    return sizeof(struct calls) + 3 * most + 2 * PIECE;
}

/* tools_bytes: of the table, which is still empty; 0: there is none. */
static struct calls *make(enum calls_form form, size_t tools_bytes, size_t most, uint64_t salt, struct err *e)
{
    struct calls *c = calloc(1, sizeof *c);
    if (!c || !(c->buf = malloc(most + PIECE)) || !(c->parts = malloc(most + PIECE)) || !(c->args = malloc(most)) ||
        (tools_bytes && !(c->tools = malloc(tools_bytes)))) {
        calls_free(c);
        err_set(e, ERR_NOMEM, "out of memory for calls of tools");
        return NULL;
    }
    c->form = form;
    c->salt = salt;
    c->most = most;
    c->cap = most + PIECE;
    c->tools_bytes = tools_bytes;
    c->blank = 1;
    return c;
}

int calls_new(enum calls_form form, const struct js *tools, size_t most, uint64_t salt, struct calls **out, struct err *e)
{
    size_t n = tools ? list_tools(tools, NULL) : 0;
    if (tools && n == 0)
        return err_set(e, ERR_FORMAT, "\"tools\": each is {\"type\": \"function\", \"function\": {\"name\": ...}}");
    struct calls *c = make(form, n, most, salt, e);
    if (c && tools)
        list_tools(tools, c->tools);
    *out = c ? c : *out;
    return c ? 0 : e->code;
}

int calls_copy(const struct calls *of, uint64_t salt, struct calls **out, struct err *e)
{
    struct calls *c = make(of->form, of->tools_bytes, of->most, salt, e);
    if (c && c->tools)
        memcpy(c->tools, of->tools, of->tools_bytes);
    *out = c ? c : *out;
    return c ? 0 : e->code;
}

void calls_free(struct calls *c)
{
    if (!c)
        return;
    free(c->buf);
    free(c->parts);
    free(c->args);
    free(c->tools);
    free(c);
}

int calls_count(const struct calls *c)
{
    return c->count;
}

/* ---- a call ---- */

static int is_blank(char b)
{
    return b == ' ' || (b >= '\t' && b <= '\r');
}

static struct span trimmed(const struct calls *c, size_t at, size_t end)
{
    while (at < end && is_blank(c->buf[at]))
        at++;
    while (end > at && is_blank(c->buf[end - 1]))
        end--;
    return (struct span){ at, end - at };
}

static int is(const char *s, size_t n, const char *text)
{
    return n == strlen(text) && !memcmp(s, text, n);
}

/* An object with a name and arguments, and nothing else but an id and a type. */
static int item_of(const struct calls *c, const char *s, size_t n, struct json_text_member *name, struct json_text_member *args,
                   struct json_text_member *id)
{
    struct json_text_member m;
    size_t at = 0;
    *name = *args = *id = (struct json_text_member){ 0 };
    while (json_text_next(s, n, &at, &m)) {
        int named = is(m.key, m.n_key, "name"), given = is(m.key, m.n_key, "arguments") || is(m.key, m.n_key, "parameters");
        if (named && !name->value && *m.value == '"')
            *name = (struct json_text_member){ .value = m.value + 1, .n_value = m.n_value - 2 };
        else if (given && !args->value && *m.value == '{')
            *args = m;
        else if (is(m.key, m.n_key, "id") && !id->value && *m.value == '"')
            *id = (struct json_text_member){ .value = m.value + 1, .n_value = m.n_value - 2 };
        else if (!is(m.key, m.n_key, "type") || !is(m.value, m.n_value, "\"function\""))
            return 0;
    }
    return name->value && args->value && is_called(c, name->value, name->n_value);
}

/* Ids that clients and templates take: the model's where it gave one of that kind. */
static void id_of(const struct calls *c, const char *id, size_t n_id, const char *name, size_t n_name, const char *args, size_t n,
                  char out[41])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    size_t k = 0;
    while (k < n_id && k < 40 && ((id[k] >= '0' && id[k] <= '9') || ((id[k] | 32) >= 'a' && (id[k] | 32) <= 'z')))
        k++;
    if (n_id > 0 && k == n_id) {
        memcpy(out, id, n_id);
        out[n_id] = 0;
        return;
    }
    uint64_t h = hash_64_seeded(args, n, hash_64_seeded(name, n_name, c->salt + (uint64_t)c->count));
    for (k = 0; k < 9; k++, h /= 62)
        out[k] = letters[h % 62];
    out[9] = 0;
}

static int give_call(struct calls *c, const char *name, size_t n_name, const char *id, size_t n_id, const char *args, size_t n,
                     calls_sink *sink, void *ctx)
{
    char name_text[CALLS_NAME + 1], id_text[41];
    id_of(c, id, n_id, name, n_name, args, n, id_text);
    memcpy(name_text, name, n_name);
    name_text[n_name] = 0;
    const struct calls_out out = { .part = CHAT_ANSWER, .text = args, .n = n, .name = name_text, .id = id_text, .index = c->count++ };
    return sink(ctx, &out);
}

/* Text that was decided goes out, in runs of one part. */
static int give_text(struct calls *c, calls_sink *sink, void *ctx)
{
    int stop = 0;
    while (c->from < c->cand && !stop) {
        size_t k = c->from;
        while (k < c->cand && c->parts[k] == c->parts[c->from])
            k++;
        const struct calls_out out = { .part = (enum chat_part)(c->parts[c->from] >> 1), .silent = c->parts[c->from] & 1,
                                       .text = c->buf + c->from, .n = k - c->from };
        c->from = k;
        stop = sink(ctx, &out);
    }
    return stop;
}

/* The candidate is a call, or several. */
static int give_calls(struct calls *c, calls_sink *sink, void *ctx)
{
    struct json_text_member name, args, id, item;
    const char *body = c->buf + c->body.at;
    size_t at = 0;
    int stop = give_text(c, sink, ctx);
    if (!stop && (c->result == PAIRS || c->result == BODY))
        stop = give_call(c, c->buf + c->name.at, c->name.n, c->buf + c->id.at, c->id.n, c->result == PAIRS ? c->args : body,
                         c->result == PAIRS ? c->n_args : c->body.n, sink, ctx);
    else if (!stop && c->result == ITEM && item_of(c, body, c->body.n, &name, &args, &id))
        stop = give_call(c, name.value, name.n_value, id.value, id.n_value, args.value, args.n_value, sink, ctx);
    while (!stop && c->result == ITEMS && json_text_next(body, c->body.n, &at, &item))
        if (item_of(c, item.value, item.n_value, &name, &args, &id))
            stop = give_call(c, name.value, name.n_value, id.value, id.n_value, args.value, args.n_value, sink, ctx);
    c->from = c->cand = c->pos;
    c->state = S_TEXT;
    c->blanks = 0;
    c->after = 1;
    return stop;
}

/* ---- values of pairs ---- */

static int append(struct calls *c, const char *s, size_t n)
{
    if (c->n_args + n > c->most)
        return 0;
    memcpy(c->args + c->n_args, s, n);
    c->n_args += n;
    return 1;
}

static int append_string(struct calls *c, const char *s, size_t n)
{
    size_t k = json_text_string(s, n, NULL);
    if (k == 0 || c->n_args + k > c->most)
        return 0;
    c->n_args += json_text_string(s, n, c->args + c->n_args);
    return 1;
}

static int type_of(const char *s, size_t n)
{
    if (!json_text_is(s, n))
        return 0;
    if (*s == '"' || *s == '{' || *s == '[')
        return *s == '"' ? CALLS_STRING : *s == '{' ? CALLS_OBJECT : CALLS_ARRAY;
    return *s == 't' || *s == 'f' ? CALLS_BOOLEAN : *s == 'n' ? CALLS_NULL : CALLS_NUMBER;
}

/* A value is written as it is where that is JSON of a type that its parameter has, or may have; else it is a string. */
static int append_value(struct calls *c, const char *s, size_t n, int types)
{
    const char *t = s;
    size_t k = n;
    while (k > 0 && is_blank(*t))
        t++, k--;
    while (k > 0 && is_blank(t[k - 1]))
        k--;
    int type = types == CALLS_STRING ? 0 : type_of(t, k);
    if (type && (types == 0 || (types & type)) && type != CALLS_STRING)
        return append(c, t, k);
    if (types != CALLS_STRING && (types & CALLS_BOOLEAN) && is(t, k, "True"))
        return append(c, "true", 4);
    if (types != CALLS_STRING && (types & CALLS_BOOLEAN) && is(t, k, "False"))
        return append(c, "false", 5);
    if (types != CALLS_STRING && (types & CALLS_NULL) && is(t, k, "None"))
        return append(c, "null", 4);
    return append_string(c, s, n);
}

static int add_pair(struct calls *c, size_t at, size_t end)
{
    const char *key = c->buf + c->key.at, *tool = find_tool(c, c->buf + c->name.at, c->name.n);
    if (c->state == S_VALUE && at < end && c->buf[at] == '\n')
        at++;
    if (c->state == S_VALUE && at < end && c->buf[end - 1] == '\n')
        end--;
    return append(c, c->n_args > 0 ? ", " : "{", c->n_args > 0 ? 2 : 1) && append_string(c, key, c->key.n) && append(c, ": ", 2) &&
           append_value(c, c->buf + at, end - at, types_in(tool, key, c->key.n));
}

/* No key twice. */
static int end_pairs(struct calls *c)
{
    struct json_text_member a, b;
    size_t i = 0;
    if (!append(c, c->n_args > 0 ? "}" : "{}", c->n_args > 0 ? 1 : 2))
        return 0;
    while (json_text_next(c->args, c->n_args, &i, &a))
        for (size_t k = i; json_text_next(c->args, c->n_args, &k, &b);)
            if (a.n_key == b.n_key && !memcmp(a.key, b.key, a.n_key))
                return 0;
    return 1;
}

/* ---- steps ---- */

static int items_of(const struct calls *c, const char *s, size_t n)
{
    struct json_text_member item, name, args, id;
    size_t at = 0;
    int any = 0;
    while (json_text_next(s, n, &at, &item)) {
        if (*item.value != '{' || !item_of(c, item.value, item.n_value, &name, &args, &id))
            return 0;
        any = 1;
    }
    return any;
}

/* What the state took is buf[at..end). 0: this is no call. */
static int act(struct calls *c, enum act what, size_t at, size_t end, enum state *to)
{
    struct json_text_member name, args, id;
    struct span s = trimmed(c, at, end);
    const char *text = c->buf + s.at;
    switch (what) {
    case NONE: return 1;
    case TYPE:
        if (is(text, s.n, "function")) {
            *to = S_TYPED_NAME;
            return 1;
        }
        /* fall through */
    case NAME:
        c->name = s;
        c->n_args = 0;
        c->id = (struct span){ 0 };
        if (*to == S_CALL) { /* of GLM, without a parameter */
            c->result = PAIRS;
            return is_called(c, text, s.n) && end_pairs(c);
        }
        return is_called(c, text, s.n);
    case ID:
        c->id = s;
        return 1;
    case KEY:
        c->key = s;
        return s.n > 0;
    case VALUE: return add_pair(c, at, end);
    case PAIRS:
        c->result = PAIRS;
        return end_pairs(c);
    default: /* JSON, from its first bracket to its last */
        c->result = what;
        c->body = (struct span){ at, end - at };
        if (json_text_value(c->buf + at, end - at) != end - at)
            return 0;
        return what == BODY || (what == ITEM ? item_of(c, c->buf + at, end - at, &name, &args, &id) : items_of(c, c->buf + at, end - at));
    }
}

static void enter(struct calls *c, enum state to, size_t at)
{
    c->state = to;
    c->pos = c->field = at;
    c->depth = c->quoted = c->escaped = 0;
}

/* The candidate is none: its first byte, or the white space before it, is text. */
static void fail(struct calls *c)
{
    size_t n = c->blanks ? c->blanks : 1;
    for (size_t i = c->cand; i < c->cand + n; i++)
        if (c->parts[i] == CHAT_ANSWER << 1 && !is_blank(c->buf[i]))
            c->blank = 0;
    if (!c->blanks && !(c->parts[c->cand] & 1))
        c->after = 0;
    c->cand += n;
    c->blanks = 0;
    enter(c, S_TEXT, c->cand);
}

static int may_open(const struct calls *c, const struct opener *o, unsigned part)
{
    if (!(o->forms >> c->form & 1) || (o->where == FIRST && !c->blank) || (o->where == AFTER && !c->after))
        return 0;
    return part >> 1 == (o->where == HEADER ? CHAT_HEADER : CHAT_ANSWER);
}

/* 1: a byte more of the candidate; 0: it is none. */
static int step_text(struct calls *c)
{
    size_t at = c->cand + c->blanks, k = c->pos + 1 - at;
    int partial = 0;
    if (k == 1 && c->parts[c->pos] == CHAT_ANSWER << 1 && is_blank(c->buf[c->pos])) {
        c->blanks++;
        c->pos++;
        return 1;
    }
    for (int i = 0; i < OPENERS; i++) {
        const struct opener *o = &openers[i];
        size_t n = strlen(o->text);
        if (k > n || memcmp(o->text, c->buf + at, k) || !may_open(c, o, c->parts[c->pos]))
            continue;
        if (k == n) {
            enter(c, o->to, o->keep ? c->pos : c->pos + 1);
            return 1;
        }
        partial = 1;
    }
    c->pos++;
    return partial;
}

/* The exit that ends in the byte at pos, or NULL; *partial: one may. */
static const struct exit *exit_of(const struct calls *c, size_t from, int anchored, int *partial)
{
    size_t k = c->pos + 1 - from;
    const struct exit *exits = states[c->state].exits, *other = NULL;
    *partial = 0;
    for (int i = 0; exits[i].text; i++) {
        size_t n = strlen(exits[i].text);
        if (n == 0)
            other = &exits[i];
        else if (k >= n ? (!anchored || k == n) && !memcmp(exits[i].text, c->buf + c->pos + 1 - n, n) : 0)
            return &exits[i];
        else if (k < n && !memcmp(exits[i].text, c->buf + from, k))
            *partial = 1;
    }
    return *partial ? NULL : other;
}

static int take(struct calls *c, const struct exit *w, size_t at, size_t end)
{
    enum state to = w->to;
    if (!act(c, w->act, at, end, &to))
        return 0;
    enter(c, to, w->keep ? c->pos + 1 - strlen(w->text) : c->pos + 1);
    return 1;
}

static int step_choice(struct calls *c)
{
    int partial;
    if (c->pos == c->field && is_blank(c->buf[c->pos])) {
        c->field = ++c->pos;
        return 1;
    }
    const struct exit *w = exit_of(c, c->field, 1, &partial);
    if (w && !*w->text) { /* another text: from its beginning */
        enter(c, w->to, c->field);
        return 1;
    }
    if (w)
        return take(c, w, c->field, c->field);
    c->pos++;
    return partial;
}

static int step_until(struct calls *c)
{
    int partial, value = states[c->state].exits[0].act == VALUE;
    const struct exit *w = exit_of(c, c->field, 0, &partial);
    if (w)
        return take(c, w, c->field, c->pos + 1 - strlen(w->text));
    c->pos++;
    return value || c->pos - c->field < CALLS_NAME;
}

/* Brackets are counted; whether they are the right ones is seen at the end. */
static int step_json(struct calls *c, char open)
{
    char b = c->buf[c->pos];
    if (c->depth == 0) {
        if (is_blank(b)) {
            c->field = ++c->pos;
            return 1;
        }
        if (b != open)
            return 0;
    }
    if (c->quoted) {
        c->quoted = c->escaped || b != '"';
        c->escaped = !c->escaped && b == '\\';
    } else if (b == '"') {
        c->quoted = 1;
    } else if (b == '{' || b == '[') {
        c->depth++;
    } else if ((b == '}' || b == ']') && --c->depth == 0) {
        return take(c, &states[c->state].exits[0], c->field, c->pos + 1);
    }
    c->pos++;
    return c->depth <= JSON_TEXT_DEPTH;
}

static int step(struct calls *c)
{
    if (c->state == S_TEXT)
        return step_text(c);
    if (c->form != CALLS_HARMONY && c->parts[c->pos] >> 1 != CHAT_ANSWER)
        return 0;
    switch (states[c->state].kind) {
    case CHOICE: return step_choice(c);
    case UNTIL: return step_until(c);
    case OBJECT: return step_json(c, '{');
    default: return step_json(c, '[');
    }
}

/* It is longer than may be held: all of it is text. */
static void give_up(struct calls *c)
{
    c->cand = c->pos;
    c->blank = c->after = 0;
    c->blanks = 0;
    enter(c, S_TEXT, c->pos);
}

static int run(struct calls *c, calls_sink *sink, void *ctx)
{
    int stop = 0;
    while (c->pos < c->n && !stop) {
        if (!step(c))
            fail(c);
        else if (c->state != S_CALL && c->pos - c->cand >= c->most)
            give_up(c);
        if (c->form == CALLS_LLAMA && c->state == S_CLOSE)
            c->state = S_CALL;
        if (c->state == S_CALL)
            stop = give_calls(c, sink, ctx);
        if (c->state == S_SWALLOW) { /* what closes a list of calls */
            stop = give_text(c, sink, ctx);
            c->from = c->cand = c->pos;
            c->blanks = 0;
            c->state = S_TEXT;
        }
    }
    return stop || give_text(c, sink, ctx);
}

/* Room for more, where what was decided is gone. */
static void make_room(struct calls *c)
{
    size_t by = c->from;
    memmove(c->buf, c->buf + by, c->n - by);
    memmove(c->parts, c->parts + by, c->n - by);
    c->from -= by;
    c->cand -= by;
    c->pos -= by;
    c->n -= by;
    c->field -= c->field >= by ? by : c->field;
    c->name.at -= c->name.at >= by ? by : c->name.at;
    c->id.at -= c->id.at >= by ? by : c->id.at;
    c->key.at -= c->key.at >= by ? by : c->key.at;
    c->body.at -= c->body.at >= by ? by : c->body.at;
}

int calls_put(struct calls *c, enum chat_part part, int silent, const char *s, size_t n, calls_sink *sink, void *ctx)
{
    int stop = 0;
    while (n > 0 && !stop) {
        make_room(c);
        size_t k = c->cap - c->n < n ? c->cap - c->n : n;
        memcpy(c->buf + c->n, s, k);
        memset(c->parts + c->n, (int)part << 1 | (silent != 0), k);
        c->n += k;
        s += k;
        n -= k;
        stop = run(c, sink, ctx);
    }
    return stop;
}

int calls_end(struct calls *c, calls_sink *sink, void *ctx)
{
    int stop = 0;
    if (c->state == S_CLOSE || c->state == S_FENCED_END) {
        c->pos = c->n;
        stop = give_calls(c, sink, ctx);
    }
    if (c->state == S_TEXT && c->after && c->cand + c->blanks == c->n)
        c->n = c->cand;
    c->cand = c->n;
    return stop || give_text(c, sink, ctx);
}
