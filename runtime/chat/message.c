#include "runtime/chat/message.h"

#include "common/base/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fields fields[] = {
    { "role", FIELDS_TAKEN, NULL },
    { "content", FIELDS_TAKEN, NULL },
    { "reasoning_content", FIELDS_TAKEN, NULL },
    { "thinking", FIELDS_TAKEN, NULL },
    { "reasoning", FIELDS_TAKEN, NULL },
    { "name", FIELDS_TAKEN, NULL },
    { "tool_calls", FIELDS_TAKEN, NULL },
    { "tool_call_id", FIELDS_TAKEN, NULL },
    { "cache_control", FIELDS_NO_EFFECT, NULL },
    { "refusal", FIELDS_IF_EMPTY, "put it into \"content\"" },
    { "annotations", FIELDS_IF_EMPTY, "put what the model shall read into \"content\"" },
    { "audio", FIELDS_IF_EMPTY, "models are run on text alone" },
    { "images", FIELDS_IF_EMPTY, "models are run on text alone" },
    { "function_call", FIELDS_IF_EMPTY, "\"tool_calls\" has calls" },
    { NULL, FIELDS_TAKEN, NULL },
}, part_fields[] = {
    { "type", FIELDS_TAKEN, NULL },
    { "text", FIELDS_TAKEN, NULL },
    { "cache_control", FIELDS_NO_EFFECT, NULL },
    { "annotations", FIELDS_IF_EMPTY, "put what the model shall read into \"text\"" },
    { NULL, FIELDS_TAKEN, NULL },
};

/* Those that go into `more`. */
static const char *const others[] = { "name", "tool_calls", "tool_call_id" };
enum { OTHERS = sizeof others / sizeof others[0] };

void message_free(struct message *m)
{
    free(m->role);
    free(m->content);
    free(m->thought);
    free(m->more);
    *m = (struct message){ 0 };
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory for a message");
}

/* A field that is a string; *out is NULL where it is absent or null. */
static int string(const struct js *j, const char *where, const char *key, const char **out, struct err *e)
{
    const struct js *v = js_get(j, key);
    *out = js_str(v);
    return *out || !fields_given(v) ? 0 : err_set(e, ERR_FORMAT, "%s: field \"%s\" is not a string", where, key);
}

/* The texts of an array of parts, put together. */
static int parts(const struct js *all, const char *where, char **out, struct err *e)
{
    size_t n = 0;
    char *s = calloc(1, 1);
    for (size_t i = 0; s && i < js_len(all); i++) {
        char part[160];
        const struct js *p = js_at(all, i);
        const char *type = js_str(js_get(p, "type")), *text = js_str(js_get(p, "text"));
        snprintf(part, sizeof part, "%s: \"content\"[%zu]", where, i);
        int r = !js_is_object(p) || !type ? err_set(e, ERR_FORMAT, "%s is not an object with a \"type\"", part)
              : strcmp(type, "text") ? err_set(e, ERR_UNSUPPORTED, "%s is of type \"%.40s\": models are run on text alone", part, type)
              : (r = fields_check(p, part_fields, sizeof *part_fields, part, e)) < 0 ? r
              : !text ? err_set(e, ERR_FORMAT, "%s has no \"text\" that is a string", part) : 0;
        size_t len = text ? strlen(text) : 0;
        char *grown = r < 0 ? NULL : realloc(s, n + len + 2);
        if (!grown) {
            free(s);
            return r < 0 ? r : no_memory(e);
        }
        s = grown;
        if (i)
            s[n++] = '\n';
        memcpy(s + n, text, len);
        s[n += len] = '\0';
    }
    *out = s;
    return s ? 0 : no_memory(e);
}

static int content(const struct js *j, const char *where, struct message *m, struct err *e)
{
    const struct js *v = js_get(j, "content");
    const char *s = js_str(v);
    if (js_is_array(v))
        return parts(v, where, &m->content, e);
    if (!s && fields_given(v))
        return err_set(e, ERR_FORMAT, "%s: field \"content\" is neither a string nor an array of parts", where);
    if (!s && js_len(js_get(j, "tool_calls")) == 0)
        return err_set(e, ERR_FORMAT, "%s has no field \"content\", and no \"tool_calls\" in its place", where);
    m->content = strdup(s ? s : "");
    return m->content ? 0 : no_memory(e);
}

/* One thought, under any of its names. */
static int thought(const struct js *j, const char *where, struct message *m, struct err *e)
{
    static const char *const names[] = { "reasoning_content", "thinking", "reasoning" };
    const char *found = NULL, *of = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *s;
        int r = string(j, where, names[i], &s, e);
        if (r < 0)
            return r;
        if (s && found && strcmp(s, found))
            return err_set(e, ERR_FORMAT, "%s: fields \"%s\" and \"%s\" differ, and a message has one thought", where, of, names[i]);
        if (s && !found) {
            found = s;
            of = names[i];
        }
    }
    m->thought = found && *found ? strdup(found) : NULL;
    return m->thought || !found || !*found ? 0 : no_memory(e);
}

static int check_calls(const struct js *calls, const char *where, struct err *e)
{
    if (fields_given(calls) && !js_is_array(calls))
        return err_set(e, ERR_FORMAT, "%s: field \"tool_calls\" is not an array", where);
    for (size_t i = 0; i < js_len(calls); i++)
        if (!js_is_object(js_at(calls, i)))
            return err_set(e, ERR_FORMAT, "%s: \"tool_calls\"[%zu] is not an object", where, i);
    return 0;
}

static int more(const struct js *j, const char *where, struct message *m, struct err *e)
{
    const char *s;
    char *text[OTHERS] = { NULL };
    int r = check_calls(js_get(j, "tool_calls"), where, e);
    size_t n = 128;
    if (r < 0 || (r = string(j, where, "name", &s, e)) < 0 || (r = string(j, where, "tool_call_id", &s, e)) < 0)
        return r;
    for (int i = 0; r == 0 && i < OTHERS; i++) {
        const struct js *v = js_get(j, others[i]);
        if (!fields_given(v))
            continue;
        text[i] = js_text(v, 0, 0);
        r = text[i] ? 0 : no_memory(e);
        n += text[i] ? strlen(text[i]) + strlen(others[i]) + 8 : 0;
    }
    char *out = r == 0 && n > 128 ? malloc(n) : NULL;
    if (r == 0 && n > 128 && !out)
        r = no_memory(e);
    const char *places = m->thought ? ",\"reasoning_content\":0,\"thinking\":0" : "";
    size_t at = out ? (size_t)snprintf(out, n, "{\"role\":0,\"content\":0%s", places) : 0;
    for (int i = 0; i < OTHERS; i++) {
        if (out && text[i])
            at += (size_t)snprintf(out + at, n - at, ",\"%s\":%s", others[i], text[i]);
        free(text[i]);
    }
    if (out)
        memcpy(out + at, "}", 2);
    m->more = out;
    return r;
}

int message_read(const struct js *j, const char *where, const char *role, struct message *out, struct err *e)
{
    struct message m = { 0 };
    const char *s;
    int r = fields_check(j, fields, sizeof *fields, where, e);
    if (r == 0 && (r = string(j, where, "role", &s, e)) == 0) {
        s = s ? s : role;
        r = !s ? err_set(e, ERR_FORMAT, "%s has no field \"role\"", where) : (m.role = strdup(s)) ? 0 : no_memory(e);
    }
    if (r < 0 || (r = content(j, where, &m, e)) < 0 || (r = thought(j, where, &m, e)) < 0 || (r = more(j, where, &m, e)) < 0)
        message_free(&m);
    else
        *out = m;
    return r;
}

static void parse_arguments(struct js *function)
{
    struct err e;
    const char *text = js_str(js_get(function, "arguments"));
    struct js *j = text ? js_parse(text, strlen(text), "arguments", &e) : NULL;
    if (js_is_object(j))
        js_set(function, "arguments", j);
    else
        js_free(j);
}

struct js *message_object(const struct message *m)
{
    struct err e;
    struct js *j = m->more ? js_parse(m->more, strlen(m->more), "a message", &e) : js_object();
    if (!j)
        return NULL;
    js_put(j, JS_STR("role", m->role), JS_STR("content", m->content));
    if (m->thought)
        js_set_str(j, "reasoning_content", m->thought);
    if (js_get(j, "thinking"))
        js_set_str(j, "thinking", NULL);
    return j;
}

struct js *message_for_template(const struct message *m, int objects)
{
    struct js *j = message_object(m), *calls = j ? js_own(j, "tool_calls") : NULL;
    for (size_t i = 0; objects && i < js_len(calls); i++)
        if (js_own(js_own_at(calls, i), "function"))
            parse_arguments(js_own(js_own_at(calls, i), "function"));
    if (j && m->thought) /* reasoning_content is Qwen's name, and this gpt-oss's */
        js_set_str(j, "thinking", m->thought);
    return j;
}

size_t message_values(const struct message *m)
{
    size_t n = 0;
    for (const char *s = m->more; s && *s; s++)
        n += *s == ',' || *s == ':' || *s == '[' || *s == '{';
    return n;
}
