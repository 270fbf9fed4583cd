#include "server/server.h"

#include <stdio.h>
#include <string.h>

#define JSON "application/json"

/* Anthropic's names differ where they are given. */
static const char *kind_of(int status, int anthropic)
{
    static const struct { int status; const char *openai, *anthropic; } kinds[] = {
        { 401, "authentication_error", NULL }, { 403, "permission_error", NULL }, { 404, "not_found_error", NULL },
        { 413, "invalid_request_error", "request_too_large" }, { 429, "rate_limit_error", NULL },
        { 503, "server_error", "overloaded_error" },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].status == status)
            return anthropic && kinds[i].anthropic ? kinds[i].anthropic : kinds[i].openai;
    return status < 500 ? "invalid_request_error" : anthropic ? "api_error" : "server_error";
}

void server_error_text(struct buffer *b, enum ask_form form, int status, const char *param, const char *code, const char *message)
{
    const char *kind = kind_of(status, form == ASK_MESSAGES);
    if (form == ASK_MESSAGES) {
        buffer_printf(b, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", kind);
        buffer_string(b, message);
        buffer_printf(b, "}}");
        return;
    }
    buffer_printf(b, "{\"error\":{\"message\":");
    buffer_string(b, message);
    buffer_printf(b, ",\"type\":\"%s\",\"param\":", kind);
    buffer_string(b, param);
    buffer_printf(b, ",\"code\":");
    buffer_string(b, code);
    buffer_printf(b, "}}");
}

/* Who asks at a path of Anthropic's understands its errors. */
static enum ask_form form_of(const char *path)
{
    path += strncmp(path, "/v1/", 4) ? 0 : 3;
    return !strcmp(path, "/messages") || !strncmp(path, "/messages/", 10) ? ASK_MESSAGES : ASK_CHAT;
}

/* How long until a place is likely free, from 1 to 60 s. */
static int retry_s(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    double seconds = s->sequences ? s->mean_s / s->sequences : 0;
    pthread_mutex_unlock(&s->lock);
    return seconds < 1 ? 1 : seconds > 60 ? 60 : (int)seconds;
}

void server_error(struct server *s, struct call *c, int status, const char *param, const char *code, const char *message)
{
    struct buffer b = { .pool = &s->pool };
    char text[16];
    const enum ask_form form = form_of(call_path(c));
    const char *begun = call_begun(c);
    const int events = begun && !strcmp(begun, "text/event-stream");
    if (!begun && (status == 429 || status == 503) && !call_has(c, "Retry-After")) {
        snprintf(text, sizeof text, "%d", retry_s(s));
        call_set(c, "Retry-After", text);
    }
    if (events)
        buffer_printf(&b, form == ASK_MESSAGES ? "event: error\ndata: " : "data: ");
    server_error_text(&b, form, status, param, code, message);
    buffer_put(&b, "\n\n", events ? 2 : 1, 1);
    call_reply_buffer(c, status, JSON, &b);
}

void server_http_error(void *ctx, struct call *c, int status, const char *message)
{
    server_error(ctx, c, status, NULL, NULL, message);
}
