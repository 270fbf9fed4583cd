/* Paths: what each answers. All of it runs in the worker's thread. */
#include "server/paths.h"

#include "server/answer.h"
#include "server/bodies.h"
#include "server/door.h"
#include "server/form.h"
#include "server/models.h"
#include "server/page.h"

#include "common/base/fields.h"
#include "common/base/print.h"

#include <stdlib.h>
#include <string.h>

#define JSON "application/json"

/* ---- small answers ---- */

static void ok(struct call *c, struct buffer *b)
{
    buffer_put(b, "\n", 1, 1);
    call_reply_buffer(c, 200, JSON, b);
}

static void health(struct server *s, struct call *c)
{
    struct buffer b = { .pool = &s->pool };
    const char *opening, *open = models_open_name(s->models, &opening);
    buffer_printf(&b, "{\"status\":\"ok\",\"model\":");
    buffer_string(&b, open);
    buffer_printf(&b, ",\"loading\":");
    buffer_string(&b, opening);
    buffer_put(&b, "}", 1, 1);
    ok(c, &b);
}

static void models(struct server *s, struct call *c)
{
    struct buffer b = { .pool = &s->pool };
    const char *name = strstr(call_path(c), "/models/");
    name = name ? name + strlen("/models/") : NULL;
    if (name && !models_has(s->models, name)) {
        models_unknown(s->models, c);
        return;
    }
    models_put(s->models, &b, name);
    ok(c, &b);
}

static void slots(struct server *s, struct call *c)
{
    struct buffer b = { .pool = &s->pool };
    buffer_put(&b, "[", 1, 1);
    answer_slots(s, &b);
    buffer_put(&b, "]", 1, 1);
    ok(c, &b);
}

static void props(struct server *s, struct call *c)
{
    struct buffer b = { .pool = &s->pool };
    const int loaded = models_peek(s->models);
    char *text = loaded ? thermo_describe(s->t) : NULL;
    pthread_mutex_lock(&s->lock);
    int open = answer_count(s);
    pthread_mutex_unlock(&s->lock);
    if (loaded && !text) {
        models_leave(s->models, 0);
        server_error(s, c, 503, NULL, NULL, "out of memory");
        return;
    }
    buffer_printf(&b, "{\"total_slots\":%d,\"requests_open\":%d,\"model_alias\":", loaded ? s->sequences : 0, open);
    buffer_string(&b, loaded ? s->name : NULL);
    buffer_printf(&b, ",\"n_ctx\":%d,\"build_info\":\"thermocline %s\",\"engine\":", loaded ? s->context : 0, thermo_version());
    if (loaded)
        models_leave(s->models, 0);
    buffer_put(&b, text ? text : "null", text ? strlen(text) : 4, 1);
    buffer_put(&b, "}", 1, 1);
    thermo_free(text);
    ok(c, &b);
}

/* ---- figures ---- */

static void gauge(struct buffer *b, const char *name, const char *type, const char *help, double v)
{
    char text[PRINT_NUMBER];
    print_json_number(text, 15, v);
    buffer_printf(b, "# HELP thermo_%s %s\n# TYPE thermo_%s %s\nthermo_%s %s\n", name, help, name, type, name, text);
}

/* What the library counts, by its names; of: the object in which it is. scale: seconds of ms. */
static void engine_figures(struct server *s, struct buffer *b)
{
    static const struct { const char *of, *key; double scale; const char *name, *type, *help; } rows[] = {
        { NULL, "passes", 1, "passes_total", "counter", "Passes over the model." },
        { NULL, "reads", 1, "reads_total", "counter", "Reads from storage." },
        { NULL, "read_bytes", 1, "read_bytes_total", "counter", "Bytes read from storage." },
        { NULL, "memory_bytes", 1, "memory_limit_bytes", "gauge", "Limit of memory." },
        { NULL, "account_bytes", 1, "memory_account_bytes", "gauge", "Memory that the account has." },
        { NULL, "peak_bytes", 1, "memory_peak_bytes", "gauge", "Most memory that the process had." },
        { "prompt", "ms", 1e-3, "prompt_seconds_total", "counter", "Time of passes that read prompts." },
        { "decode", "tokens", 1, "decode_tokens_total", "counter", "Tokens made by passes that read no prompt." },
        { "decode", "ms", 1e-3, "decode_seconds_total", "counter", "Time of these passes." },
        { "decode", "stall_ms", 1e-3, "decode_stall_seconds_total", "counter", "Of it, time of waiting for reads." },
        { "decode", "cold_lookups", 1, "cache_lookups_total", "counter", "Units looked up in the cache of neurons, by these passes." },
        { "decode", "cold_hits", 1, "cache_hits_total", "counter", "Of these, found." },
        { "decode", "cold_hit_rate", 1, "cache_hit_rate", "gauge", "Share of them; of neurons where gates are looked up by themselves." },
        { "measured", "tokens_per_s", 1, "tokens_per_second", "gauge", "Tokens a second of these passes." },
        { "measured", "read_bytes", 1, "read_bytes_per_token", "gauge", "Bytes that these passes read for a token." },
        { "predicted", "tokens_per_s", 1, "predicted_tokens_per_second", "gauge", "The same by the plan, for one text." },
        { "predicted", "read_bytes", 1, "predicted_read_bytes_per_token", "gauge", "The same by the plan, for one text." },
        { "predicted", "hit_rate", 1, "predicted_cache_hit_rate", "gauge", "The same by the plan, for one text." },
    };
    struct err e;
    char *text = thermo_describe(s->t);
    struct js *j = text ? js_parse(text, strlen(text), "the model", &e) : NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double v;
        int says = !rows[i].of || strcmp(rows[i].of, "predicted") != 0 || js_bool(js_get(js_get(j, "predicted"), "valid")) == 1;
        if (says && js_num(js_get(rows[i].of ? js_get(j, rows[i].of) : j, rows[i].key), &v))
            gauge(b, rows[i].name, rows[i].type, rows[i].help, v * rows[i].scale);
    }
    js_free(j);
    thermo_free(text);
}

static void metrics(struct server *s, struct call *c)
{
    struct buffer b = { .pool = &s->pool };
    const int loaded = models_peek(s->models);
    pthread_mutex_lock(&s->lock);
    struct counts n = s->counts;
    int open = answer_count(s);
    pthread_mutex_unlock(&s->lock);
    gauge(&b, "requests_open", "gauge", "Requests that are made or wait.", open);
    gauge(&b, "sequences", "gauge", "Requests that are made at once, at most.", loaded ? s->sequences : 0);
    gauge(&b, "requests_total", "counter", "Requests that generate.", (double)n.asked);
    gauge(&b, "requests_answered_total", "counter", "Of these, answered to their end.", (double)n.answered);
    gauge(&b, "requests_refused_total", "counter", "Refused: a field is wrong, or no place was free.", (double)n.refused);
    gauge(&b, "requests_cancelled_total", "counter", "Ended by their clients.", (double)n.cancelled);
    gauge(&b, "requests_failed_total", "counter", "Failed while they were made.", (double)n.failed);
    gauge(&b, "prompt_tokens_total", "counter", "Tokens of prompts.", (double)n.prompt_tokens);
    gauge(&b, "prompt_tokens_cached_total", "counter", "Of these, found in memory.", (double)n.cached_tokens);
    gauge(&b, "tokens_total", "counter", "Tokens that were made.", (double)n.tokens);
    gauge(&b, "first_token_seconds_sum", "counter", "Time to the first token, summed.", n.first_s);
    gauge(&b, "first_token_seconds_count", "counter", "Over so many requests.", (double)n.n_first);
    gauge(&b, "request_seconds_sum", "counter", "Time of requests, summed.", n.total_s);
    gauge(&b, "buffer_bytes", "gauge", "Memory of bodies and answers on their way.", (double)atomic_load(&s->pool.used));
    models_metrics(s->models, &b);
    if (loaded) {
        engine_figures(s, &b);
        models_leave(s->models, 0);
    }
    call_reply_buffer(c, 200, "text/plain; version=0.0.4", &b);
}

/* ---- tokens and templates ---- */

static void bad(struct server *s, struct call *c, int code, const char *message)
{
    char param[ASK_NAME];
    ask_param(ASK_CHAT, message, 0, param);
    server_error(s, c, code == THERMO_E_MEMORY ? 503 : 400, *param ? param : NULL, NULL, message);
}

/* The body, as an object with these fields; NULL: an error was answered. */
static struct js *body_of(struct server *s, struct call *c, const struct fields *rows)
{
    struct err e = { 0 };
    size_t n;
    const char *text = call_body(c, &n);
    struct js *j = js_parse_within(text, n, s->json_max, "the body", &e);
    if (!j || (rows && fields_check(j, rows, sizeof *rows, "the body", &e) < 0)) {
        bad(s, c, e.code, e.msg);
        js_free(j);
        return NULL;
    }
    return j;
}

/* The model that a body names is lent to the call until it was handled: 1. 0: the call waits for it, or was answered. One that has waited
 * comes with it. */
static int enter(struct server *s, struct call *c, const struct js *j, int stream, const char *alive)
{
    const struct js *model = js_get(j, "model");
    if (fields_given(model) && !js_str(model))
        bad(s, c, THERMO_E_FORMAT, "\"model\" is not a string");
    else if (!s->entered)
        s->entered = models_enter(s->models, c, js_str(model), stream, alive);
    return s->entered;
}

static void put_tokens(struct server *s, struct buffer *b, const int32_t *ids, size_t n, int pieces)
{
    buffer_printf(b, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        buffer_printf(b, pieces ? "%s{\"id\":%d,\"piece\":" : "%s%d", i ? "," : "", ids[i]);
        if (pieces) {
            size_t bytes;
            const char *piece = thermo_piece(s->t, ids[i], &bytes);
            buffer_put(b, "\"", 1, 1);
            buffer_escape(b, piece, bytes, 1);
            buffer_put(b, "\"}", 2, 1);
        }
    }
    buffer_printf(b, "]}");
}

/* add_special false: without what a prompt begins with, which is what no text at all has. */
static void tokenize(struct server *s, struct call *c)
{
    struct js *j = body_of(s, c, bodies_text_rows);
    struct bodies_text text;
    struct thermo_error e = { 0 };
    struct err why = { 0 };
    struct buffer b = { .pool = &s->pool };
    int32_t *ids = NULL, *none = NULL;
    size_t n = 0, begin = 0;
    if (!j)
        return;
    int r = bodies_text(j, &text, &why);
    if (r < 0)
        bad(s, c, r, why.msg);
    if (r < 0 || !enter(s, c, j, 0, " ")) {
        js_free(j);
        return;
    }
    r = thermo_tokenize(s->t, text.content, strlen(text.content), text.parse_special, &ids, &n, &e);
    if (r == 0 && !text.add_special)
        r = thermo_tokenize(s->t, "", 0, 0, &none, &begin, &e);
    if (r < 0) {
        bad(s, c, r, e.message);
    } else {
        begin = begin && begin <= n && !memcmp(ids, none, begin * sizeof *ids) ? begin : 0;
        put_tokens(s, &b, ids + begin, n - begin, text.with_pieces);
        ok(c, &b);
    }
    thermo_free(ids);
    thermo_free(none);
    js_free(j);
}

static void detokenize(struct server *s, struct call *c)
{
    struct js *j = body_of(s, c, bodies_tokens_rows);
    struct buffer b = { .pool = &s->pool }, text = { .pool = &s->pool };
    struct err e = { 0 };
    if (!j)
        return;
    int r = bodies_tokens(j, &e);
    if (r < 0)
        bad(s, c, r, e.msg);
    if (r < 0 || !enter(s, c, j, 0, " ")) {
        js_free(j);
        return;
    }
    const struct js *tokens = js_get(j, "tokens");
    for (size_t i = 0; i < js_len(tokens) && r == 0; i++) {
        int64_t id = 0;
        size_t n;
        js_int(js_at(tokens, i), &id);
        const char *piece = thermo_piece(s->t, (int32_t)id, &n);
        r = buffer_put(&text, piece, n, 0);
    }
    buffer_printf(&b, "{\"content\":\"");
    buffer_escape(&b, text.len ? text.at : "", text.len, 1);
    buffer_printf(&b, "\"}");
    buffer_drop(&text);
    js_free(j);
    if (r == 0) {
        ok(c, &b);
    } else {
        buffer_drop(&b);
        bad(s, c, THERMO_E_MEMORY, "out of memory for the text of these tokens: --buffers");
    }
}

/* ---- generating ---- */

static const char *piece_of(void *ctx, int32_t id, size_t *n)
{
    struct server *s = ctx;
    return thermo_piece(s->t, id, n);
}

static int read_ask(struct server *s, struct call *c, enum ask_form form, struct ask *a)
{
    struct err e = { 0 };
    struct js *j = body_of(s, c, NULL);
    if (!j)
        return -1;
    int r = ask_read(j, form, &s->pool, a, &e);
    if (r == 0 && !enter(s, c, j, a->stream, a->stream ? form_ops(form)->alive : " ")) {
        js_free(j);
        ask_done(a);
        return -1;
    }
    r = r == 0 && a->echoes ? ask_echo(a, j, piece_of, s, &e) : r;
    js_free(j);
    call_drop_body(c);
    if (r == 0 && a->n > s->sequences)
        r = err_set(&e, ERR_LIMIT, "\"n\" is %d; there are %d sequences (--sequences, and thermo-plan's --max-batch)", a->n, s->sequences);
    else if (r == 0 && a->n_prompts > s->places / a->n)
        r = err_set(&e, ERR_LIMIT, "\"prompt\" has %d prompts, with %d answers each; there are %d places for answers (four times "
                    "--sequences)", a->n_prompts, a->n, s->places);
    if (r < 0) {
        ask_done(a);
        bad(s, c, r, e.msg);
    }
    return r;
}

static void generate(struct server *s, struct call *c, enum ask_form form)
{
    struct ask a = { 0 };
    if (read_ask(s, c, form, &a) < 0)
        return;
    answer_begin(s, c, &a);
    ask_done(&a);
}

static void chat(struct server *s, struct call *c)
{
    generate(s, c, ASK_CHAT);
}

static void complete(struct server *s, struct call *c)
{
    generate(s, c, ASK_TEXT);
}

static void messages(struct server *s, struct call *c)
{
    generate(s, c, ASK_MESSAGES);
}

static void responses(struct server *s, struct call *c)
{
    generate(s, c, ASK_RESPONSES);
}

static void count(struct server *s, struct call *c, enum ask_form form, const char *begin)
{
    struct ask a = { 0 };
    struct thermo_error e = { 0 };
    struct buffer b = { .pool = &s->pool };
    size_t n;
    if (read_ask(s, c, form, &a) < 0)
        return;
    int r = thermo_count(s->t, a.fields.at, a.fields.len, &n, &e);
    ask_done(&a);
    if (r < 0) {
        bad(s, c, r, e.message);
        return;
    }
    buffer_printf(&b, "{%s\"input_tokens\":%zu}", begin, n);
    ok(c, &b);
}

static void count_messages(struct server *s, struct call *c)
{
    count(s, c, ASK_MESSAGES, "");
}

static void count_responses(struct server *s, struct call *c)
{
    count(s, c, ASK_RESPONSES, "\"object\":\"response.input_tokens\",");
}

/* Fields are those of a chat: what it would read. */
static void apply(struct server *s, struct call *c)
{
    struct ask a = { 0 };
    struct thermo_error e = { 0 };
    struct buffer b = { .pool = &s->pool };
    char *text = NULL;
    size_t n;
    if (read_ask(s, c, ASK_CHAT, &a) < 0)
        return;
    int r = thermo_render(s->t, a.fields.at, a.fields.len, &text, &n, &e);
    ask_done(&a);
    if (r < 0) {
        bad(s, c, r, e.message);
        return;
    }
    buffer_printf(&b, "{\"prompt\":");
    buffer_string(&b, text);
    buffer_put(&b, "}", 1, 1);
    thermo_free(text);
    ok(c, &b);
}

/* ---- memory ---- */

/* {"memory": SIZE}, as --memory or in bytes. It is answered when the limit holds; it takes a key, for everybody's speed depends on it. */
static void memory(struct server *s, struct call *c)
{
    struct buffer b = { .pool = &s->pool };
    struct thermo_error why = { 0 };
    struct err e = { 0 };
    uint64_t bytes = 0;
    if (!s->door->n_keys) {
        server_error(s, c, 403, NULL, NULL, "the memory limit is changed with a key alone: --api-key-file, or THERMO_API_KEY");
        return;
    }
    struct js *j = body_of(s, c, bodies_memory_rows);
    if (!j)
        return;
    int r = bodies_memory(j, &bytes, &e), status = 400;
    js_free(j);
    if (r == 0 && !models_peek(s->models)) {
        server_error(s, c, 503, NULL, NULL, "no model is loaded: there is no memory limit to change before the next request");
        return;
    }
    const int open = r == 0;
    if (r == 0 && (r = thermo_resize(s->t, bytes, &why)) == 0)
        models_limit(s->models, bytes);
    if (open)
        models_leave(s->models, 0);
    if (open && r < 0) {
        err_set(&e, r, "\"memory\": %s", why.message);
        status = r == THERMO_E_IO || r == THERMO_E_FORMAT ? 500 : 400;
    }
    if (r < 0) {
        server_error(s, c, status, "memory", NULL, e.msg);
        return;
    }
    buffer_printf(&b, "{\"memory_bytes\":%llu}", (unsigned long long)bytes);
    ok(c, &b);
}

static const struct route {
    const char *method, *path;
    void (*answer)(struct server *s, struct call *c);
} routes[] = {
    { "GET", "/", page_answer },
    { "GET", "/health", health },
    { "GET", "/models", models },
    { "GET", "/metrics", metrics },
    { "GET", "/slots", slots },
    { "GET", "/props", props },
    { "POST", "/chat/completions", chat },
    { "POST", "/completions", complete },
    { "POST", "/messages", messages },
    { "POST", "/messages/count_tokens", count_messages },
    { "POST", "/responses", responses },
    { "POST", "/responses/input_tokens", count_responses },
    { "POST", "/memory", memory },
    { "POST", "/tokenize", tokenize },
    { "POST", "/detokenize", detokenize },
    { "POST", "/apply-template", apply },
};

void paths_handle(void *ctx, struct call *c)
{
    struct server *s = ctx;
    const char *path = call_path(c), *method = call_method(c);
    const struct route *found = NULL;
    if (!strncmp(path, "/v1/", 4))
        path += 3;
    if (!strcmp(method, "HEAD"))
        method = "GET";
    if (!strcmp(method, "OPTIONS")) { /* what a browser asks before a page may; the door has said it */
        call_set(c, "Allow", "GET, POST, OPTIONS");
        call_reply(c, 204, JSON, "", 0);
        return;
    }
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(routes[i].path, path) || (routes[i].answer == models && !strncmp(path, "/models/", 8))) {
            found = &routes[i];
            if (!strcmp(found->method, method)) {
                s->entered = models_granted(s->models, c);
                found->answer(s, c);
                if (s->entered)
                    models_leave(s->models, 1);
                return;
            }
        }
    if (!found) {
        server_error(s, c, 404, NULL, NULL, "there is no such path here");
        return;
    }
    call_set(c, "Allow", found->method);
    server_error(s, c, 405, NULL, NULL, "the path has another method");
}
