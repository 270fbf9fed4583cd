#include "server/server.h"

#define JSON "application/json"

static const char *kind_of(int status)
{
    return status == 401 ? "authentication_error" : status == 403 ? "permission_error" : status == 404 ? "not_found_error"
         : status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
}

void server_error_text(struct buffer *b, int status, const char *param, const char *code, const char *message)
{
    buffer_printf(b, "{\"error\":{\"message\":");
    buffer_string(b, message);
    buffer_printf(b, ",\"type\":\"%s\",\"param\":", kind_of(status));
    buffer_string(b, param);
    buffer_printf(b, ",\"code\":");
    buffer_string(b, code);
    buffer_printf(b, "}}");
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
    if ((status == 429 || status == 503) && !call_has(c, "Retry-After")) {
        snprintf(text, sizeof text, "%d", retry_s(s));
        call_set(c, "Retry-After", text);
    }
    server_error_text(&b, status, param, code, message);
    buffer_put(&b, "\n", 1, 1);
    call_reply_buffer(c, status, JSON, &b);
}

void server_http_error(void *ctx, struct call *c, int status, const char *message)
{
    server_error(ctx, c, status, NULL, NULL, message);
}
