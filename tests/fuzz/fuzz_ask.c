/* Any bytes as a body of thermo-serve: an error that names a field of the body, or fields that the library reads, or refuses by name. The
 * first byte: 'c' a chat, 'm' messages, 'r' responses, 't' a text, 'k' a text for its tokens, 'i' tokens for their text, 'y' a limit of
 * memory, 'd'
 * headers (Host, Origin, Authorization and x-api-key, a line each) for the door. */
#include "runtime/request.h"
#include "server/ask.h"
#include "server/bodies.h"
#include "server/door.h"
#include "tests/fuzz/lines.h"

#include <string.h>

static struct pack pack = { .h = { .n_vocab = 4096 } };
static struct setup setup = { .pack = &pack, .config = { .choice = { .context = LINES_CONTEXT } } };
static struct request_shared shared = { .s = &setup, .n = 8, .sampling = { .temp = 0.8, .top_k = 40, .top_p = 0.95, .repeat_penalty = 1 } };
static struct request request;

/* ---- the door: a call that is its headers ---- */

struct call { char *headers[4]; };

const char *call_header(struct call *c, const char *name)
{
    static const char *const names[] = { "Host", "Origin", "Authorization", "x-api-key" };
    for (int i = 0; i < 4; i++)
        if (!strcmp(names[i], name))
            return c->headers[i];
    return NULL;
}

const char *call_method(const struct call *c)
{
    return c->headers[1] && *c->headers[1] == 'O' ? "OPTIONS" : "POST";
}

const char *call_path(const struct call *c)
{
    (void)c;
    return "/v1/models";
}

void call_set(struct call *c, const char *name, const char *value)
{
    (void)c;
    if (!strlen(name) || strlen(value) > 1u << 20)
        abort();
}

static void look(const char *text, size_t n)
{
    static const char *hosts[] = { "my.example" }, *origins[] = { "https://page.example" };
    const struct door d = { .hosts = { hosts, 1 }, .origins = { origins, 1 }, .keys = { "secret" }, .n_keys = 1 };
    struct call c = { { NULL } };
    char *copy = strndup(text, n), *rest = copy, *line;
    const char *message = NULL;
    for (int i = 0; i < 4 && (line = strsep(&rest, "\n")); i++)
        c.headers[i] = *line ? line : NULL;
    int status = door_look(&d, &c, &message);
    if ((status != 0 && status != 401 && status != 403) || (status && !message))
        abort();
    if (!status && strcmp(call_method(&c), "OPTIONS") && !(c.headers[2] && strstr(c.headers[2], "secret")) &&
        !(c.headers[3] && !strcmp(c.headers[3], "secret")))
        abort();
    free(copy);
}

/* ---- bodies ---- */

static void submit(const struct ask *a)
{
    struct err e = { 0 };
    struct js *j = js_parse(a->fields.at, a->fields.len, "fields", &e);
    if (!j)
        abort(); /* what is written for the library is JSON */
    request_begin(&request, "");
    if (request_read(&request, j, NULL, 0, &e) < 0 && !e.msg[0])
        abort();
    js_free(j);
}

static const char *piece(void *ctx, int32_t id, size_t *n)
{
    (void)ctx;
    return tokenizer_piece(lines_tokenizer(), id, n);
}

static void body(const char *text, size_t n, enum ask_form form)
{
    struct err e = { 0 };
    struct ask a = { 0 };
    char param[ASK_NAME];
    struct js *j = js_parse_within(text, n, 1 << 20, "the body", &e);
    int r = j ? ask_read(j, form, NULL, &a, &e) : e.code;
    if (r == 0 && (a.n < 1 || a.n > 4096 || a.n_prompts < 1))
        abort();
    if (r == 0 && a.echoes && ask_echo(&a, j, piece, NULL, &e) < 0)
        abort();
    for (int i = 0; i < a.n_prompts && r == 0; i++) {
        if (ask_turn(&a, i, &e) < 0)
            abort();
        submit(&a);
    }
    if (r < 0 && !e.msg[0])
        abort();
    ask_param(form, e.msg, 1, param);
    ask_done(&a);
    js_free(j);
}

/* What a body without an answer of the model says, or an error that names its field. */
static void small(const char *text, size_t n, char which)
{
    struct err e = { 0 };
    const struct fields *rows = which == 'k' ? bodies_text_rows : which == 'i' ? bodies_tokens_rows : bodies_memory_rows;
    struct js *j = js_parse_within(text, n, 1 << 20, "the body", &e);
    struct bodies_text t = { .content = NULL };
    uint64_t bytes = 0;
    char param[ASK_NAME];
    int r = j ? fields_check(j, rows, sizeof *rows, "the body", &e) : e.code;
    if (r == 0) {
        r = which == 'k' ? bodies_text(j, &t, &e) : which == 'i' ? bodies_tokens(j, &e) : bodies_memory(j, &bytes, &e);
        if (r == 0 && ((which == 'k' && (!t.content || strlen(t.content) > n)) || (which == 'i' && !js_is_array(js_get(j, "tokens")))))
            abort();
        if (r == 0 && which == 'y' && !bytes)
            abort();
        if (r < 0 && which != 'y' && (ask_param(ASK_CHAT, e.msg, 0, param), !js_get(j, param) && strcmp(param, rows[0].name)))
            abort();
    }
    if (r < 0 && !e.msg[0])
        abort();
    js_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e;
    if (!request.shared) {
        setup.tokenizer = (struct tokenizer *)(uintptr_t)lines_tokenizer();
        if (request_init(&request, &shared, &e) < 0)
            abort();
    }
    if (!size)
        return 0;
    const enum ask_form form = data[0] == 'c' ? ASK_CHAT : data[0] == 'm' ? ASK_MESSAGES : data[0] == 'r' ? ASK_RESPONSES : ASK_TEXT;
    shared.chat = form == ASK_TEXT ? NULL : lines_chat();
    if (data[0] == 'k' || data[0] == 'i' || data[0] == 'y')
        small((const char *)data + 1, size - 1, (char)data[0]);
    else if (data[0] == 'd')
        look((const char *)data + 1, size - 1);
    else
        body((const char *)data + 1, size - 1, form);
    return 0;
}
