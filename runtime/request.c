/* Fields are a table: name, where it goes, its range, which is that of the option of that name. */
#include "runtime/request.h"

#include "common/base/fields.h"
#include "common/base/hash.h"
#include "runtime/prompt.h"
#include "runtime/report.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

size_t request_line_bytes(int context)
{
    return REQUEST_LINE + (size_t)context * REQUEST_LINE_PER_TOKEN;
}

static int context_of(const struct request *q)
{
    return q->shared->s->config.choice.context;
}

int request_init(struct request *q, const struct request_shared *shared, struct err *e)
{
    *q = (struct request){ .shared = shared };
    q->ids = malloc(((size_t)context_of(q) + 1) * sizeof *q->ids);
    return q->ids ? 0 : err_set(e, ERR_NOMEM, "out of memory for a request");
}

void request_done(struct request *q)
{
    output_done(&q->output);
    calls_free(q->calls);
    schemas_give(&q->schema);
    free(q->ids);
    *q = (struct request){ 0 };
}

void request_begin(struct request *q, const char *id)
{
    int32_t *ids = q->ids;
    const struct request_shared *s = q->shared;
    output_done(&q->output);
    calls_free(q->calls);
    schemas_give(&q->schema);
    *q = (struct request){ .ids = ids, .shared = s, .choices = 1, .thinking = s->thinking };
    q->text = (struct batch_text){ .sampling = s->sampling, .ignore_eos = s->ignore_eos, .owner = q };
    q->text.n = s->n < 0 ? context_of(q) : s->n;
    snprintf(q->id, sizeof q->id, "%s", id);
    q->stops = s->stops ? s->stops->items : NULL;
    q->n_stops = s->stops ? s->stops->n : 0;
}

/* Of ids of calls: other prompts and seeds give others. */
static uint64_t salt_of(const struct request *q)
{
    return hash_64_seeded(q->ids, (size_t)q->n_prompt * sizeof *q->ids, q->text.sampling.seed);
}

int request_sibling(struct request *q, const struct request *of, int i, struct err *e)
{
    int32_t *ids = q->ids;
    output_done(&q->output);
    calls_free(q->calls);
    schemas_give(&q->schema);
    *q = *of;
    schemas_share(&of->schema, &q->schema);
    q->output = (struct output){ 0 };
    q->calls = NULL;
    q->ids = ids;
    memcpy(ids, of->ids, (size_t)of->n_prompt * sizeof *ids);
    if (of->stops == of->own)
        q->stops = q->own;
    for (int k = 0; k < REQUEST_STOPS; k++)
        q->own[k] = q->stop_text[k];
    q->choice = i;
    q->text.owner = q;
    q->text.prompt = ids;
    q->text.made = ids + q->n_prompt;
    q->text.sampling.seed += (uint64_t)i;
    q->text.sampling.bias = q->bias;
    q->text.siblings = NULL;
    q->text.n_siblings = 0;
    return of->calls ? calls_copy(of->calls, salt_of(q), &q->calls, e) : 0;
}

/* ---- fields ---- */

enum kind { READ_LATER, INT, REAL, U64, STOP, FLAG, THINKING, BIAS, SCHEMA, JSON };

struct field {
    struct fields row;
    enum kind kind;
    size_t at;
    double min, max;
};

#define AT(m) offsetof(struct request, text.sampling.m)
#define TAKEN(name) { name, FIELDS_TAKEN, NULL }
static const struct field fields[] = {
    { TAKEN("id"), READ_LATER, 0, 0, 0 },
    { TAKEN("prompt"), READ_LATER, 0, 0, 0 },
    { TAKEN("suffix"), READ_LATER, 0, 0, 0 },
    { TAKEN("tokens"), READ_LATER, 0, 0, 0 },
    { TAKEN("messages"), READ_LATER, 0, 0, 0 },
    { TAKEN("n"), INT, offsetof(struct request, text.n), -1, MODEL_MAX_CONTEXT },
    { TAKEN("choices"), INT, offsetof(struct request, choices), 1, BUDGET_MAX_BATCH },
    { TAKEN("temp"), REAL, AT(temp), 0, 100 },
    { TAKEN("top_k"), INT, AT(top_k), 0, MODEL_MAX_VOCAB },
    { TAKEN("top_p"), REAL, AT(top_p), 0, 1 },
    { TAKEN("min_p"), REAL, AT(min_p), 0, 1 },
    { TAKEN("repeat_penalty"), REAL, AT(repeat_penalty), 0.01, 100 },
    { TAKEN("repeat_last_n"), INT, AT(repeat_last_n), -1, MODEL_MAX_CONTEXT },
    { TAKEN("presence_penalty"), REAL, AT(presence_penalty), -2, 2 },
    { TAKEN("frequency_penalty"), REAL, AT(frequency_penalty), -2, 2 },
    { TAKEN("logit_bias"), BIAS, 0, 0, 0 },
    { TAKEN("logprobs"), INT, offsetof(struct request, text.logprobs), 0, BATCH_TOP },
    { TAKEN("prompt_logprobs"), FLAG, offsetof(struct request, text.scores), 0, 0 },
    { TAKEN("seed"), U64, AT(seed), 0, 0x1p63 },
    { TAKEN("stop"), STOP, 0, 0, 0 },
    { TAKEN("ignore_eos"), FLAG, offsetof(struct request, text.ignore_eos), 0, 0 },
    { TAKEN("parse_special"), FLAG, offsetof(struct request, special), 0, 0 },
    { TAKEN("thinking"), THINKING, 0, 0, 0 },
    { TAKEN("tools"), READ_LATER, 0, 0, 0 },
    { TAKEN("tool_choice"), READ_LATER, 0, 0, 0 },
    { TAKEN("template_args"), READ_LATER, 0, 0, 0 },
    { TAKEN("schema"), SCHEMA, 0, 0, 0 },
    { TAKEN("json"), JSON, 0, 0, 0 },
#define OTHER(name, how, why) { { name, FIELDS_##how, why }, READ_LATER, 0, 0, 0 }
    OTHER("user", NO_EFFECT, NULL),
    OTHER("metadata", NO_EFFECT, NULL),
    OTHER("store", NO_EFFECT, NULL),
    OTHER("stream", NO_EFFECT, NULL), /* there is a line for each token, and one with what is left */
    OTHER("chat_template_kwargs", REFUSED, "its name here is \"template_args\""),
    OTHER("response_format", IF_EMPTY, "\"schema\" has a JSON Schema, and \"json\": true asks for any object"),
    OTHER("top_logprobs", REFUSED, "its name here is \"logprobs\""),
    OTHER("model", REFUSED, "--model says which"),
    OTHER("max_tokens", REFUSED, "its name here is \"n\""),
    OTHER("max_completion_tokens", REFUSED, "its name here is \"n\""),
    OTHER("n_predict", REFUSED, "its name here is \"n\""),
    OTHER("temperature", REFUSED, "its name here is \"temp\""),
    OTHER("repetition_penalty", REFUSED, "its name here is \"repeat_penalty\""),
    OTHER("system", REFUSED, "--system says it, or a message"),
    { { NULL, FIELDS_TAKEN, NULL }, READ_LATER, 0, 0, 0 },
};

static int set_number(struct request *q, const struct field *f, const struct js *j, struct err *e)
{
    double v;
    int64_t whole = 0;
    char *to = (char *)q + f->at;
    if (!js_num(j, &v) || (f->kind != REAL && !js_int(j, &whole)) || !(v >= f->min && v <= f->max))
        return err_set(e, ERR_FORMAT, "\"%s\" is not %s from %g to %g", f->row.name, f->kind == REAL ? "a number" : "an integer",
                       f->min, f->max);
    if (f->kind == REAL)
        memcpy(to, &v, sizeof v);
    else if (f->kind == U64)
        memcpy(to, &(uint64_t){ (uint64_t)whole }, sizeof(uint64_t));
    else
        memcpy(to, &(int){ (int)whole }, sizeof(int));
    return 0;
}

static int set_id(struct request *q, const struct js *j, struct err *e)
{
    int64_t n;
    const char *s = js_str(j);
    if (js_int(j, &n)) {
        snprintf(q->id, sizeof q->id, "%lld", (long long)n);
        return 0;
    }
    if (!s || !*s || strlen(s) > REQUEST_ID)
        return err_set(e, ERR_FORMAT, "\"id\" is not a string of 1 to %d bytes, or an integer", REQUEST_ID);
    snprintf(q->id, sizeof q->id, "%s", s);
    return 0;
}

static int set_stops(struct request *q, const struct js *j, struct err *e)
{
    size_t n = js_is_array(j) ? js_len(j) : 1;
    q->n_stops = 0;
    q->stops = q->own;
    for (size_t i = 0; i < n; i++) {
        const char *s = js_str(js_is_array(j) ? js_at(j, i) : j);
        if (n > REQUEST_STOPS || !s || !*s || strlen(s) > REQUEST_STOP)
            return err_set(e, ERR_FORMAT, "\"stop\" is not a string of 1 to %d bytes, or an array of at most %d of them", REQUEST_STOP,
                           REQUEST_STOPS);
        q->own[q->n_stops++] = strcpy(q->stop_text[i], s);
    }
    return 0;
}

static int set_bias(struct request *q, const struct js *j, struct err *e)
{
    int n_vocab = q->shared->s->pack->h.n_vocab;
    if (!js_is_object(j) || js_key(j, REQUEST_BIASES))
        return err_set(e, ERR_FORMAT, "\"logit_bias\" is not an object of at most %d tokens", REQUEST_BIASES);
    q->text.sampling.bias = q->bias;
    q->text.sampling.n_bias = 0;
    const char *key;
    for (size_t i = 0; (key = js_key(j, i)); i++) {
        size_t digits = strspn(key, "0123456789");
        long id = digits && digits < 10 && !key[digits] ? strtol(key, NULL, 10) : -1;
        double v;
        if (id < 0 || id >= n_vocab)
            return err_set(e, ERR_FORMAT, "\"logit_bias\": \"%.40s\" is not a token id from 0 to %d", key, n_vocab - 1);
        if (!js_num(js_get(j, key), &v) || !(v >= -100 && v <= 100))
            return err_set(e, ERR_FORMAT, "\"logit_bias\" of token %ld is not a number from -100 to 100", id);
        q->bias[q->text.sampling.n_bias++] = (struct sample_bias){ (int32_t)id, (float)v };
    }
    return 0;
}

static int set_tokens(struct request *q, const struct js *j, struct err *e)
{
    int n_vocab = q->shared->s->pack->h.n_vocab, context = context_of(q);
    size_t n = js_len(j);
    if (!js_is_array(j))
        return err_set(e, ERR_FORMAT, "\"tokens\" is not an array of token ids");
    if (n > (size_t)context)
        return prompt_check(n < INT_MAX ? (int)n : INT_MAX, context, q->text.n != 0, e);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!js_int(js_at(j, i), &id) || id < 0 || id >= n_vocab)
            return err_set(e, ERR_FORMAT, "\"tokens\"[%zu] is not a token id from 0 to %d", i, n_vocab - 1);
        q->ids[i] = (int32_t)id;
    }
    q->n_prompt = (int)n;
    return 0;
}

/* ---- prompts ---- */

/* Takes ids, which are malloc'd. */
static int keep(struct request *q, int32_t *ids, int n, struct err *e)
{
    int r = prompt_check(n, context_of(q), q->text.n != 0, e);
    if (r == 0)
        memcpy(q->ids, ids, (size_t)n * sizeof *ids);
    q->n_prompt = r == 0 ? n : 0;
    free(ids);
    return r;
}

static int no_schemas(const char *field, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "\"%s\": no memory is kept for schemas; serve --schemas 4 keeps it for four of them at once", field);
}

enum choice { AUTO, NONE, REQUIRED, NAMED };

/* What "tool_choice" says; *name: of a tool. */
static int read_choice(const struct js *j, enum choice *out, const char **name, struct err *e)
{
    static const char *const words[] = { "auto", "none", "required" };
    static const struct fields rows[] = { { "name", FIELDS_TAKEN, NULL }, { NULL, FIELDS_TAKEN, NULL } };
    const struct js *v = js_get(j, "tool_choice");
    const char *s = js_str(v);
    int r;
    *out = AUTO;
    *name = NULL;
    if (js_is_object(v)) {
        if ((r = fields_check(v, rows, sizeof *rows, "\"tool_choice\"", e)) < 0)
            return r;
        *out = NAMED;
        *name = js_str(js_get(v, "name"));
        return *name ? 0 : err_set(e, ERR_FORMAT, "\"tool_choice\" has no \"name\" that is a string");
    }
    if (!fields_given(v))
        return 0;
    for (int i = 0; s && i < 3; i++)
        if (!strcmp(s, words[i])) {
            *out = (enum choice)i;
            return 0;
        }
    return err_set(e, ERR_FORMAT, "\"tool_choice\" is not \"none\", \"auto\", \"required\" or an object with a \"name\"");
}

/* Tools that the model hears of; NULL: none. */
static const struct js *tools_of(const struct js *j)
{
    const char *s = js_str(js_get(j, "tool_choice"));
    return s && !strcmp(s, "none") ? NULL : js_get(j, "tools");
}

/* The answer has to be a call, where that is asked for. */
static int force(struct request *q, const struct js *j, struct err *e)
{
    struct forced f = { .form = chat_form(q->shared->chat), .variant = chat_variant(q->shared->chat), .tools = js_get(j, "tools") };
    enum choice choice;
    int r = read_choice(j, &choice, &f.name, e);
    if (r < 0 || choice == AUTO || choice == NONE)
        return r;
    if (q->schema.of)
        return err_set(e, ERR_FORMAT, "\"tool_choice\": an answer is a call, or what \"schema\" or \"json\" says");
    if (!q->shared->schemas)
        return no_schemas("tool_choice", e);
    if (!q->shared->calls)
        return err_set(e, ERR_UNSUPPORTED, "\"tool_choice\": answers are not looked through for calls here");
    q->text.masked = 1;
    q->schema_whole = f.form == CALLS_HARMONY;
    return schemas_take_call(q->shared->schemas, &f, &q->schema, e);
}

static int tokens_of(const struct request_shared *s, const struct js *j, int off, int32_t **ids, int *n, struct chat_begins *begins,
                     struct err *e)
{
    struct replay_find f = { s->replay, s->s->tokenizer, s->calls ? chat_form(s->chat) : CALLS_NONE, tools_of(j),
                             request_call_bytes(s->s->config.choice.context) };
    return chat_tokens(s->chat, off, s->replay ? &(struct chat_answers){ replay_next, &f } : NULL, ids, n, begins, e);
}

void request_keep_answer(const struct request *q, enum batch_end end)
{
    struct replay_prompt p = q->replay;
    p.tokens = hash_128(q->ids, (size_t)q->n_prompt * sizeof *q->ids);
    p.n_tokens = q->n_prompt;
    p.salt = salt_of(q);
    if (end == BATCH_EOS && q->shared->replay && q->is_chat && !q->text.sampling.n_bias)
        replay_put(q->shared->replay, &p, q->ids + q->n_prompt, q->n_made);
}

static int keep_chat(struct request *q, const struct js *j, struct err *e)
{
    const struct js *tools = tools_of(j);
    int32_t *ids = NULL;
    struct chat_begins begins = { 0 };
    int n = 0, r = tokens_of(q->shared, j, q->thinking == CHAT_THINKING_OFF, &ids, &n, &begins, e);
    q->thinks = begins.thinks;
    q->replay = (struct replay_prompt){ .text = begins.text, .bytes = begins.bytes, .n_messages = chat_messages(q->shared->chat)->n,
                                        .thinks = begins.thinks };
    q->text.n_before = begins.before;
    enum calls_form form = chat_form(q->shared->chat);
    q->is_chat = 1;
    int most = context_of(q) - (q->text.n != 0);
    if (r == 0 && n > most) {
        free(ids);
        return err_set(e, ERR_USAGE, "the conversation has %d tokens, and a context of %d holds %d: begin anew (/reset in chat), or give "
                       "more room with --context N", n, context_of(q), most);
    }
    r = r < 0 ? r : keep(q, ids, n, e);
    if (r == 0 && q->shared->calls && form != CALLS_NONE && js_len(tools) > 0)
        r = calls_new(form, tools, request_call_bytes(context_of(q)), salt_of(q), &q->calls, e);
    return r < 0 ? r : force(q, j, e);
}

static int begin_chat(const struct request_shared *s, struct err *e)
{
    if (!s->chat)
        return s->no_chat.code ? err_set(e, s->no_chat.code, "\"messages\" need a template: %s", s->no_chat.msg)
                               : err_set(e, ERR_USAGE, "\"messages\" need --chat");
    messages_drop(chat_messages(s->chat), 0);
    return s->system ? messages_add(chat_messages(s->chat), "system", s->system, NULL, e) : 0;
}

static int take_prompt(struct request *q, const char *text, size_t len, const struct js *j, struct err *e)
{
    int32_t *ids = NULL;
    int n = 0, r;
    if (q->shared->prompt_is_message) {
        if ((r = begin_chat(q->shared, e)) < 0 || (r = messages_add(chat_messages(q->shared->chat), "user", text, NULL, e)) < 0)
            return r;
        return keep_chat(q, j, e);
    }
    r = tokenizer_encode(q->shared->s->tokenizer, text, len, 1, q->special, &ids, &n, e);
    return r < 0 ? r : keep(q, ids, n, e);
}

/* What a text has between its beginning and its end, for a model that was taught to fill gaps. */
static int take_gap(struct request *q, const char *text, const char *suffix, struct err *e)
{
    const struct tokenizer *t = q->shared->s->tokenizer;
    int32_t marks[3], *a = NULL, *b = NULL, *none = NULL, *ids = NULL;
    int n = 0, m = 0, begin = 0, at = 0, r;
    if (tokenizer_infill(t, marks) < 0)
        return err_set(e, ERR_UNSUPPORTED, "\"suffix\": the model '%s' was not taught to fill gaps: its vocabulary has no tokens for what "
                       "is before and behind one", q->shared->s->pack->file.path);
    if ((r = tokenizer_encode(t, text, strlen(text), 1, q->special, &a, &n, e)) == 0 &&
        (r = tokenizer_encode(t, "", 0, 1, 0, &none, &begin, e)) == 0 &&
        (r = tokenizer_encode_more(t, suffix, strlen(suffix), q->special, &b, &m, e)) == 0 &&
        !(ids = malloc(((size_t)n + (size_t)m + 3) * sizeof *ids)))
        r = err_set(e, ERR_NOMEM, "out of memory for a prompt");
    begin = r == 0 && begin <= n && !memcmp(a, none, (size_t)begin * sizeof *a) ? begin : 0;
    for (int i = 0; r == 0 && i <= n; i++) {
        if (i == begin)
            ids[at++] = marks[0];
        if (i < n)
            ids[at++] = a[i];
    }
    if (r == 0) {
        ids[at++] = marks[1];
        memcpy(ids + at, b, (size_t)m * sizeof *b);
        ids[at + m] = marks[2];
        r = keep(q, ids, at + m + 1, e);
    }
    free(a);
    free(b);
    free(none);
    return r;
}

/* Fields of a conversation beside its messages. has: there is one. */
static int take_given(const struct request_shared *s, const struct js *j, int has, struct err *e)
{
    static const char *const names[] = { "thinking", "tools", "tool_choice", "template_args" };
    enum choice choice;
    const char *name;
    for (size_t i = 0; !has && i < sizeof names / sizeof *names; i++)
        if (fields_given(js_get(j, names[i])) && !(js_is_array(js_get(j, names[i])) && js_len(js_get(j, names[i])) == 0))
            return err_set(e, ERR_FORMAT, "\"%s\" is of \"messages\"", names[i]);
    int r = read_choice(j, &choice, &name, e);
    return r == 0 && has && s->chat ? chat_give(s->chat, tools_of(j), js_get(j, "template_args"), e) : r;
}

static int take_messages(const struct request_shared *s, const struct js *j, struct err *e)
{
    int r = begin_chat(s, e);
    if (r == 0 && (!js_is_array(j) || js_len(j) == 0))
        r = err_set(e, ERR_FORMAT, "\"messages\" is not an array of messages");
    for (size_t i = 0; r == 0 && i < js_len(j); i++) {
        char where[40];
        snprintf(where, sizeof where, "\"messages\"[%zu]", i);
        r = messages_add_object(chat_messages(s->chat), js_at(j, i), where, NULL, e);
    }
    return r;
}

/* *to stays what it is where there is none. */
static int read_thinking(const struct js *v, int *to, struct err *e)
{
    const char *s = js_str(v);
    int i = 0;
    if (!fields_given(v))
        return 0;
    while (s && chat_thinking_names[i] && strcmp(s, chat_thinking_names[i]))
        i++;
    if (!s || !chat_thinking_names[i])
        return err_set(e, ERR_FORMAT, "\"thinking\" is not \"show\", \"hide\" or \"off\"");
    *to = i;
    return 0;
}

/* The conversation of a request that is not made; *off: it has no thought. */
static int take_conversation(const struct request_shared *s, const struct js *j, int *off, struct err *e)
{
    int thinking = s->thinking, r = fields_check(j, &fields->row, sizeof *fields, "a request", e);
    if (r < 0 || (r = read_thinking(js_get(j, "thinking"), &thinking, e)) < 0 || (r = take_given(s, j, 1, e)) < 0 ||
        (r = take_messages(s, js_get(j, "messages"), e)) < 0)
        return r;
    *off = thinking == CHAT_THINKING_OFF;
    return 0;
}

int request_render(const struct request_shared *s, const struct js *j, char **text, size_t *len, struct err *e)
{
    int off = 0, r = take_conversation(s, j, &off, e);
    return r < 0 ? r : chat_render(s->chat, off, text, len, e);
}

int request_count(const struct request_shared *s, const struct js *j, size_t *n, struct err *e)
{
    int32_t *ids = NULL;
    struct chat_begins begins;
    int off = 0, count = 0, r = take_conversation(s, j, &off, e);
    r = r < 0 ? r : tokens_of(s, j, off, &ids, &count, &begins, e);
    free(ids);
    *n = (size_t)count;
    return r;
}

static int set_flag(struct request *q, const struct field *f, const struct js *v, struct err *e)
{
    const int on = js_bool(v);
    memcpy((char *)q + f->at, &(int){ on == 1 }, sizeof on);
    return on < 0 ? err_set(e, ERR_FORMAT, "\"%s\" is not true or false", f->row.name) : 0;
}

static int set_schema(struct request *q, const struct js *v, enum kind kind, struct err *e)
{
    struct schemas *of = q->shared->schemas;
    if (kind == SCHEMA && !js_is_object(v))
        return err_set(e, ERR_FORMAT, "\"schema\" is not an object");
    if (kind == JSON && js_bool(v) < 0)
        return err_set(e, ERR_FORMAT, "\"json\" is not true or false");
    if (kind == JSON && !js_bool(v))
        return 0;
    if (q->schema.of)
        return err_set(e, ERR_FORMAT, "a request has one of \"schema\" and \"json\"");
    if (!of)
        return no_schemas(kind == JSON ? "json" : "schema", e);
    q->text.masked = 1;
    return schemas_take(of, kind == JSON ? NULL : v, &q->schema, e);
}

static int read_field(struct request *q, const struct field *f, const struct js *v, struct err *e)
{
    switch (f->kind) {
    case INT:
    case REAL:
    case U64: return set_number(q, f, v, e);
    case STOP: return set_stops(q, v, e);
    case FLAG: return set_flag(q, f, v, e);
    case BIAS: return fields_given(v) ? set_bias(q, v, e) : 0;
    case THINKING: return read_thinking(v, &q->thinking, e);
    case SCHEMA:
    case JSON: return fields_given(v) ? set_schema(q, v, f->kind, e) : 0;
    default: return 0;
    }
}

int request_read(struct request *q, const struct js *j, const char *text, size_t len, struct err *e)
{
    const struct js *prompt = js_get(j, "prompt"), *tokens = js_get(j, "tokens"), *messages = js_get(j, "messages");
    int r = 0;
    if (js_get(j, "id") && (r = set_id(q, js_get(j, "id"), e)) < 0)
        return r;
    if (j && (r = fields_check(j, &fields->row, sizeof *fields, "a request", e)) < 0)
        return r;
    for (const struct field *f = fields; f->row.name && r == 0; f++)
        if (js_get(j, f->row.name))
            r = read_field(q, f, js_get(j, f->row.name), e);
    if (r < 0)
        return r;
    q->text.n = q->text.n < 0 ? context_of(q) : q->text.n;
    if (!!text + !!prompt + !!tokens + !!messages != 1)
        return err_set(e, ERR_FORMAT, "a request has one of \"prompt\", \"tokens\" and \"messages\"");
    const char *suffix = js_str(js_get(j, "suffix"));
    if (fields_given(js_get(j, "suffix")) && (!suffix || (*suffix && (!js_str(prompt) || q->shared->prompt_is_message))))
        return err_set(e, ERR_FORMAT, "\"suffix\" is a string that stands behind what is made, of a \"prompt\" that is a text");
    if (q->special && (messages || q->shared->prompt_is_message))
        return err_set(e, ERR_FORMAT, "\"parse_special\" is of a prompt that is text; what messages say is text in any case");
    if ((r = take_given(q->shared, j, messages || (q->shared->prompt_is_message && !tokens), e)) < 0)
        return r;
    if (messages)
        return (r = take_messages(q->shared, messages, e)) < 0 ? r : keep_chat(q, j, e);
    if (tokens)
        return (r = set_tokens(q, tokens, e)) < 0 ? r : prompt_check(q->n_prompt, context_of(q), q->text.n != 0, e);
    if (text)
        return take_prompt(q, text, len, j, e);
    text = js_str(prompt);
    if (text && suffix && *suffix)
        return take_gap(q, text, suffix, e);
    return text ? take_prompt(q, text, strlen(text), j, e) : err_set(e, ERR_FORMAT, "\"prompt\" is not a string");
}

size_t request_json_bytes(int context)
{
    return 6 * request_line_bytes(context) + (REQUEST_VALUES + (size_t)context) * REQUEST_JSON_BYTES;
}

/* ---- what is made ---- */

int request_put(struct request *q, int32_t id)
{
    return output_token(&q->output, id);
}

static void discard(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    (void)text;
    (void)len;
}

int request_text(struct request *q, stream_sink *sink, void *ctx, struct err *e)
{
    output_done(&q->output);
    int r = output_init(&q->output, q->stops, q->n_stops, sink ? sink : discard, ctx, e);
    output_begin(&q->output, q->shared->s->tokenizer, q->is_chat || q->shared->prompt_is_message, q->thinks,
                 q->thinking == CHAT_THINKING_HIDE);
    q->output.calls = q->calls;
    for (int i = 0; i < q->n_made && r == 0; i++)
        request_put(q, q->ids[q->n_prompt + i]);
    return r;
}

int request_token(void *ctx, struct batch_text *t, int32_t id)
{
    struct request *q = t->owner;
    (void)ctx;
    int thought = q->output.chat && q->output.reader.part == CHAT_THOUGHT;
    q->ids[q->n_prompt + q->n_made++] = id;
    if (q->schema.on && q->bad.code == 0)
        schemas_accept(&q->schema, id, &q->bad);
    int stopped = request_put(q, id);
    q->n_thought += thought || (q->output.chat && q->output.reader.part == CHAT_THOUGHT);
    return stopped;
}

const uint64_t *request_allowed(void *ctx, struct batch_text *t, struct err *why)
{
    struct request *q = t->owner;
    const struct output *o = &q->output;
    int32_t thinks = -1;
    (void)ctx;
    if (q->bad.code) {
        *why = q->bad;
        return NULL;
    }
    if (o->chat && o->reader.part != CHAT_ANSWER && !q->schema_whole)
        return schemas_any(&q->schema);
    if (o->chat && q->n_made == 0 && !q->schema_whole && q->thinking != CHAT_THINKING_OFF)
        thinks = tokenizer_find(q->shared->s->tokenizer, "<think>");
    return schemas_allowed(&q->schema, !t->ignore_eos, thinks, why);
}

void request_drawn(struct request *q)
{
    schemas_give(&q->schema);
}

double request_logprob(const struct batch_text *t)
{
    return t->n_drawn ? t->logprob / t->n_drawn : 0;
}
