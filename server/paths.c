/* Paths: what each answers. All of it runs in the worker's thread. */
#include "server/paths.h"

#include "server/answer.h"

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
    (void)s;
    call_reply(c, 200, JSON, "{\"status\":\"ok\"}\n", 16);
}

static void put_model(struct server *s, struct buffer *b)
{
    buffer_printf(b, "{\"id\":");
    buffer_string(b, s->name);
    buffer_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"thermocline\",\"meta\":{\"n_ctx\":%d}}",
                  (long long)s->since, s->context);
}

static void models(struct server *s, struct call *c)
{
    struct buffer b = { .pool = &s->pool };
    buffer_printf(&b, "{\"object\":\"list\",\"data\":[");
    put_model(s, &b);
    buffer_printf(&b, "],\"models\":[{\"name\":");
    buffer_string(&b, s->name);
    buffer_printf(&b, ",\"model\":");
    buffer_string(&b, s->name);
    buffer_printf(&b, "}]}");
    ok(c, &b);
}

/* ---- generating ---- */

static void generate(struct server *s, struct call *c, enum ask_form form)
{
    struct err e = { 0 };
    struct ask a = { 0 };
    char param[ASK_NAME];
    size_t n;
    const char *text = call_body(c, &n);
    struct js *j = js_parse_within(text, n, s->json_max, "the body", &e);
    call_drop_body(c);
    int r = j ? ask_read(j, form, &a, &e) : e.code;
    js_free(j);
    if (r < 0) {
        ask_param(form, e.msg, 0, param);
        server_error(s, c, r == ERR_NOMEM ? 503 : 400, *param ? param : NULL, NULL, e.msg);
        return;
    }
    answer_begin(s, c, &a);
    ask_done(&a);
}

static void chat(struct server *s, struct call *c)
{
    generate(s, c, ASK_CHAT);
}

static const struct route {
    const char *method, *path;
    void (*answer)(struct server *s, struct call *c);
} routes[] = {
    { "GET", "/health", health },
    { "GET", "/models", models },
    { "POST", "/chat/completions", chat },
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
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(routes[i].path, path)) {
            found = &routes[i];
            if (!strcmp(found->method, method)) {
                found->answer(s, c);
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
