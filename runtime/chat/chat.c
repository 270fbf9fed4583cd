/* Templates take messages as JSON. */
#include "runtime/chat/chat.h"
#include "runtime/chat/reader.h"

#include "common/base/fields.h"
#include "common/base/file.h"
#include "common/text/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Shares of CHAT_BYTES and CHAT_BYTES_PER_TOKEN. */
enum { TEMPLATE_BYTES = 512 << 10, RENDER_BYTES = 512 << 10, RENDER_PER_TOKEN = 128, GIVEN_VALUES = 1024 };
#define CONTROL_MAX 255 /* bytes of a control token */

const char *const chat_thinking_names[] = { "show", "hide", "off", NULL };

struct chat {
    const struct tokenizer *tokenizer;
    struct template *template;
    struct messages of;
    char *tools, *args;             /* JSON, or NULL */
    enum calls_form form;
    int variant;
    int objects;                    /* the template takes arguments of calls as objects alone */
};

static int read_template(const struct gguf *meta, const char *file, struct chat *c, struct err *e)
{
    static const char key[] = "tokenizer.chat_template";
    char *text = NULL, *arch = NULL, name[80];
    size_t len = 0;
    int r = file ? file_slurp(file, TEMPLATE_MAX_SOURCE, &text, &len, e) : gguf_get_str(meta, key, &text, e);
    if (r == 0 && !text)
        return err_set(e, ERR_UNSUPPORTED, "'%s': key '%s' is absent: this model is for texts and not for chats; --chat-template FILE "
                       "gives it one", gguf_name(meta), key);
    if (r < 0)
        return r;
    snprintf(name, sizeof name, file ? "'%s'" : "key '%s'", file ? file : key);
    r = template_new(text, file ? len : strlen(text), name, TEMPLATE_BYTES, &c->template, e);
    if (r == 0 && meta)
        r = gguf_get_str(meta, "general.architecture", &arch, e);
    c->form = calls_form_of(text, arch);
    c->variant = calls_variant_of(c->form, text);
    free(arch);
    free(text);
    return r;
}

static void set_token(struct js *vars, const char *name, const struct tokenizer *t, int32_t id)
{
    char text[256];
    size_t len;
    const char *s = tokenizer_text(t, id, &len);
    snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text - 1), s);
    js_set_str(vars, name, text);
}

/* Is there an argument's name in what the template makes of a call? text: its arguments, as JSON. */
static int shows_argument(const struct chat *c, const char *arguments)
{
    char calls[256], *text = NULL;
    size_t len;
    int shown = 0;
    struct err e;
    snprintf(calls, sizeof calls, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\","
             "\"tool_calls\":[{\"type\":\"function\",\"id\":\"abcdefghi\",\"function\":{\"name\":\"f\",\"arguments\":%s}}]}]}", arguments);
    struct js *vars = js_parse(calls, strlen(calls), "a call", &e);
    set_token(vars, "bos_token", c->tokenizer, tokenizer_bos(c->tokenizer));
    set_token(vars, "eos_token", c->tokenizer, tokenizer_eos(c->tokenizer));
    if (vars && template_render(c->template, vars, 0, RENDER_BYTES, &text, &len, &e) == 0)
        shown = strstr(text, "needle\":") || strstr(text, "needle':") || strstr(text, "=needle>") || strstr(text, "<needle>");
    free(text);
    js_free(vars);
    return shown;
}

int chat_new(const struct gguf *meta, const struct tokenizer *tokenizer, const char *file, int context, struct chat **out, struct err *e)
{
    struct chat *c = calloc(1, sizeof *c);
    int r = c ? read_template(meta, file, c, e) : err_set(e, ERR_NOMEM, "out of memory for a chat");
    if (r < 0) {
        free(c);
        return r;
    }
    c->tokenizer = tokenizer;
    c->of.context = context;
    c->objects = !shows_argument(c, "\"{\\\"needle\\\":1}\"") && shows_argument(c, "{\"needle\":1}");
    *out = c;
    return 0;
}

void chat_free(struct chat *c)
{
    if (!c)
        return;
    messages_free(&c->of);
    free(c->tools);
    free(c->args);
    template_free(c->template);
    free(c);
}

int chat_variant(const struct chat *c)
{
    return c->variant;
}

enum calls_form chat_form(const struct chat *c)
{
    return c->form;
}

struct messages *chat_messages(struct chat *c)
{
    return &c->of;
}

/* Values of JSON, at most: what is within strings counts for nothing. */
static size_t json_values(const char *s)
{
    size_t n = 1;
    for (int string = 0; *s; s++) {
        if (string && *s == '\\' && s[1])
            s++;
        else if (*s == '"')
            string = !string;
        else if (!string)
            n += *s == ',' || *s == ':' || *s == '[' || *s == '{';
    }
    return n;
}

static size_t length(const char *s)
{
    return s ? strlen(s) : 0;
}

static int give(struct chat *c, const struct js *tools, const struct js *args, struct err *e)
{
    c->tools = tools ? js_text(tools, 0, 0) : NULL;
    c->args = args ? js_text(args, 0, 0) : NULL;
    if ((tools && !c->tools) || (args && !c->args))
        return err_set(e, ERR_NOMEM, "out of memory for a chat");
    size_t values = (c->tools ? json_values(c->tools) : 0) + (c->args ? json_values(c->args) : 0);
    if (values > GIVEN_VALUES)
        return err_set(e, ERR_LIMIT, "\"tools\" and \"template_args\" have %zu values, more than %d", values, GIVEN_VALUES);
    return messages_give(&c->of, length(c->tools) + length(c->args), e);
}

int chat_give(struct chat *c, const struct js *tools, const struct js *args, struct err *e)
{
    static const char *const ours[] = { "messages", "tools" };
    int r = 0;
    tools = fields_given(tools) ? tools : NULL;
    args = fields_given(args) ? args : NULL;
    if (tools && !js_is_array(tools))
        r = err_set(e, ERR_FORMAT, "\"tools\" is not an array");
    for (size_t i = 0; r == 0 && i < js_len(tools); i++)
        if (!js_is_object(js_at(tools, i)))
            r = err_set(e, ERR_FORMAT, "\"tools\"[%zu] is not an object", i);
    if (r == 0 && args && !js_is_object(args))
        r = err_set(e, ERR_FORMAT, "\"template_args\" is not an object");
    for (size_t i = 0; args && r == 0 && i < sizeof ours / sizeof *ours; i++)
        if (js_get(args, ours[i]))
            r = err_set(e, ERR_FORMAT, "\"template_args\": \"%s\" is a field of its own", ours[i]);
    free(c->tools);
    free(c->args);
    c->tools = c->args = NULL;
    c->of.given = 0;
    return r < 0 ? r : give(c, js_len(tools) ? tools : NULL, args, e);
}

/* ---- what messages say is no control token ----
 *
 * Within each spelling of one in a message a character is put that no message has, and that templates let through; what they render is
 * freed of it, and the tokenizer is told where it was. */

#define MARK_BYTES 3
struct mark { char text[MARK_BYTES + 1]; };

static int has(const char *s, const struct mark *m)
{
    return s && strstr(s, m->text) != NULL;
}

/* One of the 32 characters U+FDD0 to U+FDEF, which Unicode keeps for such use. */
static int pick_mark(const struct chat *c, struct mark *m, struct err *e)
{
    for (int k = 0; k < 32; k++) {
        int used = 0;
        snprintf(m->text, sizeof m->text, "\xef\xb7%c", 0x90 + k);
        for (int i = 0; i < c->of.n && !used; i++) {
            const struct message *of = &c->of.all[i];
            used = has(of->content, m) || has(of->thought, m) || has(of->more, m) || has(of->role, m);
        }
        if (!used && !has(c->tools, m) && !has(c->args, m))
            return 0;
    }
    return err_set(e, ERR_FORMAT, "the conversation has all of the characters U+FDD0 to U+FDEF, which are none");
}

/* A copy with marks; NULL: no memory. */
static char *marked(const struct chat *c, const struct mark *m, const char *s)
{
    size_t len = strlen(s), bytes, n = 0;
    for (size_t at = 0; (at = tokenizer_next_control(c->tokenizer, s, len, at, &bytes)) < len; at++)
        n++;
    char *out = malloc(len + n * MARK_BYTES + 1), *to = out;
    size_t from = 0;
    for (size_t at = 0; out && (at = tokenizer_next_control(c->tokenizer, s, len, at, &bytes)) < len; at++) {
        size_t first = at + 1;
        while (((unsigned char)s[first] & 0xc0) == 0x80)
            first++;
        memcpy(to, s + from, first - from);
        to += first - from;
        memcpy(to, m->text, MARK_BYTES);
        to += MARK_BYTES;
        from = first;
    }
    if (out)
        strcpy(to, s + from);
    return out;
}

/* Frees the text of marks; *at, malloc'd: where they were. */
static int unmark(const struct mark *m, char *text, size_t *len, uint32_t **at, size_t *n, struct err *e)
{
    size_t count = 0, kept = 0;
    for (const char *s = text; (s = strstr(s, m->text)); s += MARK_BYTES)
        count++;
    if (!(*at = malloc((count + 1) * sizeof **at)))
        return err_set(e, ERR_NOMEM, "out of memory for a chat");
    *n = 0;
    for (size_t i = 0; i < *len;) {
        if (*n < count && !strncmp(text + i, m->text, MARK_BYTES)) {
            (*at)[(*n)++] = (uint32_t)kept;
            i += MARK_BYTES;
        } else {
            text[kept++] = text[i++];
        }
    }
    text[*len = kept] = 0;
    return 0;
}

static struct js *message_marked(const struct chat *c, const struct message *of, const struct mark *m)
{
    struct message own = { .role = marked(c, m, of->role), .content = marked(c, m, of->content),
                           .thought = of->thought ? marked(c, m, of->thought) : NULL, .more = of->more ? marked(c, m, of->more) : NULL };
    int whole = own.role && own.content && !of->thought == !own.thought && !of->more == !own.more;
    struct js *j = whole ? message_for_template(&own, c->objects) : NULL;
    message_free(&own);
    return j;
}

static struct js *messages(const struct chat *c, const struct mark *m)
{
    struct js *all = js_array();
    for (int i = 0; i < c->of.n; i++) {
        struct js *j = message_marked(c, &c->of.all[i], m);
        if (!j) {
            js_free(all);
            return NULL;
        }
        js_append(all, j);
    }
    return all;
}

/* ---- tokens ---- */

static int begins_with_token(const struct tokenizer *t, int32_t id, const char *text, size_t len)
{
    size_t n;
    const char *s = tokenizer_text(t, id, &n);
    return n > 0 && len >= n && !memcmp(s, text, n);
}

/* Ours, where the caller has no other. */
static void set_ours(const struct chat *c, struct js *vars, int off)
{
    if (!js_get(vars, "add_generation_prompt"))
        js_set_bool(vars, "add_generation_prompt", 1);
    if (!js_get(vars, "bos_token"))
        set_token(vars, "bos_token", c->tokenizer, tokenizer_bos(c->tokenizer));
    if (!js_get(vars, "eos_token"))
        set_token(vars, "eos_token", c->tokenizer, tokenizer_eos(c->tokenizer));
    if (off && !js_get(vars, "enable_thinking"))
        js_set_bool(vars, "enable_thinking", 0);
}

static int render(const struct chat *c, int off, const struct mark *m, char **text, size_t *len, struct err *e)
{
    char *given = c->tools ? marked(c, m, c->tools) : NULL;
    struct js *vars = c->args ? js_parse(c->args, strlen(c->args), "template_args", e) : js_object();
    struct js *all = messages(c, m), *tools = given ? js_parse(given, strlen(given), "tools", e) : NULL;
    free(given);
    if (!vars || !all || (c->tools && !tools)) {
        js_free(vars);
        js_free(all);
        js_free(tools);
        return err_set(e, ERR_NOMEM, "out of memory for a chat");
    }
    js_set(vars, "messages", all);
    if (tools)
        js_set(vars, "tools", tools);
    set_ours(c, vars, off);
    int r = template_render(c->template, vars, time(NULL), RENDER_BYTES + (size_t)RENDER_PER_TOKEN * (size_t)c->of.context, text, len, e);
    js_free(vars);
    return r;
}

/* Without marks; *at, malloc'd: where they were. */
static int render_plain(const struct chat *c, int off, char **text, size_t *len, uint32_t **at, size_t *n, struct err *e)
{
    struct mark m;
    int r = pick_mark(c, &m, e);
    if (r < 0 || (r = render(c, off, &m, text, len, e)) < 0)
        return r;
    if ((r = unmark(&m, *text, len, at, n, e)) < 0)
        free(*text);
    return r;
}

int chat_render(const struct chat *c, int off, char **text, size_t *len, struct err *e)
{
    uint32_t *plain = NULL;
    size_t n;
    int r = render_plain(c, off, text, len, &plain, &n, e);
    free(plain);
    return r;
}

/* Tokens whose text ends before that place, behind `first` that the text has not; a text and its tokens' may differ in white space. */
static int tokens_before(const struct chat *c, const int32_t *ids, int first, int n, size_t place)
{
    size_t at = 0, bytes;
    int i = first;
    for (; i < n; i++, at += bytes) {
        tokenizer_text(c->tokenizer, ids[i], &bytes);
        if (at + bytes > place)
            break;
    }
    return i;
}

/* Where the last user message is in a text, or 0. */
static size_t last_message(const struct chat *c, const char *text)
{
    const char *found = NULL, *says = NULL;
    for (int i = 0; i < c->of.n; i++)
        says = strcmp(c->of.all[i].role, "user") ? says : c->of.all[i].content;
    for (const char *at = text; says && *says && (at = strstr(at, says)); at += strlen(says))
        found = at;
    return found ? (size_t)(found - text) : 0;
}

/* ---- answers as they were sampled ---- */

struct rendered {
    const char *text;
    size_t len;
    const uint32_t *plain;
    size_t n_plain;
    int bos;
};

/* A text's control token in text[from..to) that no message says, and its bytes; `to`: there is none. */
static size_t next_control(const struct chat *c, const struct rendered *r, size_t from, size_t *bytes)
{
    for (size_t at = from; (at = tokenizer_next_control(c->tokenizer, r->text, r->len, at, bytes)) < r->len; at++) {
        size_t k = 0;
        while (k < r->n_plain && r->plain[k] <= at)
            k++;
        if (k == r->n_plain || r->plain[k] >= at + *bytes)
            return at;
    }
    return r->len;
}

static int is_control(const struct chat *c, int32_t id)
{
    size_t n, bytes;
    const char *text = tokenizer_text(c->tokenizer, id, &n);
    return n && tokenizer_next_control(c->tokenizer, text, n, 0, &bytes) == 0 && bytes == n;
}

/* Where the turn ends that the template begins there, if its control tokens are those that were sampled; 0: it is another. */
static size_t turn_end(const struct chat *c, const struct rendered *r, const struct chat_known *k)
{
    size_t bytes, at = k->at;
    int i = 0;
    for (;; at += bytes, i++) {
        while (i < k->n_made && !is_control(c, k->made[i]))
            i++;
        at = next_control(c, r, at, &bytes);
        if (at == r->len)
            return 0;
        char name[CONTROL_MAX + 1];
        snprintf(name, sizeof name, "%.*s", (int)bytes, r->text + at);
        int32_t id = tokenizer_find(c->tokenizer, name);
        if (i == k->n_made)
            return tokenizer_is_eog(c->tokenizer, id) ? at : 0;
        if (id != k->made[i])
            return 0;
    }
}

/* Tokens of text[from..to) go behind ids[*n]. */
static int put_tokens(const struct chat *c, const struct rendered *r, size_t from, size_t to, int32_t **ids, int *n, struct err *e)
{
    int32_t *more = NULL;
    int n_more = 0, s;
    size_t first = 0, last;
    while (first < r->n_plain && r->plain[first] <= from)
        first++;
    for (last = first; last < r->n_plain && r->plain[last] < to; last++)
        ;
    uint32_t *plain = malloc((last - first + 1) * sizeof *plain);
    if (!plain)
        return err_set(e, ERR_NOMEM, "out of memory for a chat");
    for (size_t i = first; i < last; i++)
        plain[i - first] = r->plain[i] - (uint32_t)from;
    s = tokenizer_encode_but(c->tokenizer, r->text + from, to - from, from ? -1 : r->bos, plain, last - first, &more, &n_more, e);
    free(plain);
    if (s < 0)
        return s;
    int32_t *grown = realloc(*ids, ((size_t)*n + (size_t)n_more + 1) * sizeof **ids);
    if (grown) {
        memcpy(grown + *n, more, (size_t)n_more * sizeof *more);
        *ids = grown;
        *n += n_more;
    }
    free(more);
    return grown ? 0 : err_set(e, ERR_NOMEM, "out of memory for a chat");
}

static int put_made(const struct chat_known *k, int32_t **ids, int *n, struct err *e)
{
    int32_t *grown = realloc(*ids, ((size_t)*n + (size_t)k->n_made + 1) * sizeof **ids);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory for a chat");
    memcpy(grown + *n, k->made, (size_t)k->n_made * sizeof *grown);
    *ids = grown;
    *n += k->n_made;
    return 0;
}

static int encode(const struct chat *c, const struct rendered *r, const struct chat_answers *known, int32_t **ids, int *n, struct err *e)
{
    struct chat_known k = { 0 };
    size_t done = 0, from = 0, end;
    int s = 0;
    *ids = NULL;
    *n = 0;
    for (; s == 0 && known && known->next(known->ctx, &c->of, r->text, r->len, from, &k); free(k.made)) {
        int before = *n;
        from = k.at;
        if (!(end = turn_end(c, r, &k)) || (s = put_tokens(c, r, done, k.at, ids, n, e)) < 0)
            continue;
        if (*n != k.n_prompt || !hash_equal(hash_128(*ids, (size_t)*n * sizeof **ids), k.prompt)) {
            *n = before;
            continue;
        }
        s = put_made(&k, ids, n, e);
        done = from = end;
    }
    if (s == 0)
        s = put_tokens(c, r, done, r->len, ids, n, e);
    if (s < 0)
        free(*ids);
    return s;
}

int chat_tokens(const struct chat *c, int off, const struct chat_answers *known, int32_t **ids, int *n, struct chat_begins *begins,
                struct err *e)
{
    char *text = NULL;
    uint32_t *plain = NULL;
    size_t len, n_plain;
    int r = render_plain(c, off, &text, &len, &plain, &n_plain, e);
    if (r < 0)
        return r;
    int bos = !begins_with_token(c->tokenizer, tokenizer_bos(c->tokenizer), text, len);
    r = encode(c, &(struct rendered){ text, len, plain, n_plain, bos }, known, ids, n, e);
    begins->thinks = chat_reader_thinks(text, len);
    begins->before = r < 0 ? 0 : tokens_before(c, *ids, bos && *n && **ids == tokenizer_bos(c->tokenizer), *n, last_message(c, text));
    begins->text = hash_128(text, len);
    begins->bytes = len;
    free(plain);
    free(text);
    return r;
}
