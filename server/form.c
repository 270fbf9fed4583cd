#include "server/form.h"

#include "common/base/print.h"

#include "server/server.h"

#include <string.h>

#define ESCAPED 6 /* bytes that one becomes in a JSON string, at most */

/* OpenAI's word for how a text ended; calls: how many there are in it. */
static const char *reason_of(const char *stop, int calls)
{
    if (calls && (!strcmp(stop, "eos") || !strcmp(stop, "stop")))
        return "tool_calls";
    return !strcmp(stop, "length") || !strcmp(stop, "context") ? "length" : "stop";
}

static const char *object_of(const struct form *f)
{
    return f->kind == ASK_TEXT ? "text_completion" : f->stream ? "chat.completion.chunk" : "chat.completion";
}

static void put_head(const struct form *f, struct buffer *b)
{
    buffer_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", f->id, object_of(f), (long long)f->created);
    buffer_string(b, f->model);
    buffer_printf(b, ",\"choices\":[");
}

static void put_usage(struct buffer *b, const struct form_usage *u)
{
    buffer_printf(b, "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,",
                  u->prompt, u->made, u->prompt + u->made);
    buffer_printf(b, "\"prompt_tokens_details\":{\"cached_tokens\":%d},\"completion_tokens_details\":{\"reasoning_tokens\":%d}}", u->cached,
                  u->thought);
}

/* ---- log-probabilities ---- */

static void put_number(struct buffer *b, double v)
{
    char text[PRINT_NUMBER];
    print_json_number(text, 9, v);
    buffer_put(b, text, strlen(text), 1);
}

static void put_piece(const struct form *f, struct buffer *b, int32_t id)
{
    size_t n;
    const char *text = thermo_piece(f->t, id, &n);
    buffer_put(b, "\"", 1, 1);
    buffer_escape(b, text, n, 1);
    buffer_put(b, "\"", 1, 1);
}

/* "token":...,"logprob":...,"bytes":[...] */
static void put_token(const struct form *f, struct buffer *b, int32_t id, double logprob)
{
    size_t n;
    const char *text = thermo_piece(f->t, id, &n);
    buffer_printf(b, "\"token\":");
    put_piece(f, b, id);
    buffer_printf(b, ",\"logprob\":");
    put_number(b, logprob);
    buffer_printf(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        buffer_printf(b, "%s%d", i ? "," : "", (unsigned char)text[i]);
    buffer_put(b, "]", 1, 1);
}

void form_put_logprob(const struct form *f, struct buffer *b, const struct thermo_event *ev)
{
    buffer_put(b, "{", 1, 1);
    put_token(f, b, ev->token, ev->token_logprob);
    buffer_printf(b, ",\"top_logprobs\":[");
    for (int i = 0; i < ev->n_top; i++) {
        buffer_printf(b, i ? ",{" : "{");
        put_token(f, b, ev->top[i].id, ev->top[i].logprob);
        buffer_put(b, "}", 1, 1);
    }
    buffer_printf(b, "]}");
}

/* An object of completions' logprobs.top_logprobs. Tokens whose texts are the same share a key: the likeliest has it. */
static void put_tops(const struct form *f, struct buffer *b, const struct thermo_event *ev)
{
    buffer_put(b, "{", 1, 1);
    for (int i = 0, some = 0; i < ev->n_top; i++) {
        size_t n, m;
        const char *text = thermo_piece(f->t, ev->top[i].id, &n);
        int again = 0;
        for (int k = 0; k < i && !again; k++) {
            const char *other = thermo_piece(f->t, ev->top[k].id, &m);
            again = n == m && (!n || !memcmp(text, other, n));
        }
        if (again)
            continue;
        buffer_printf(b, some++ ? "," : "");
        put_piece(f, b, ev->top[i].id);
        buffer_put(b, ":", 1, 1);
        put_number(b, ev->top[i].logprob);
    }
    buffer_put(b, "}", 1, 1);
}

int form_has_logprob(const struct form *f, const struct thermo_event *ev)
{
    return f->logprobs && ev->type != THERMO_END && ev->token >= 0;
}

/* ---- events ---- */

static void begin_event(const struct form *f, struct buffer *b, int choice)
{
    buffer_printf(b, "data: ");
    put_head(f, b);
    buffer_printf(b, f->kind == ASK_TEXT ? "{\"index\":%d,\"text\":\"" : "{\"index\":%d,\"delta\":{", choice);
}

static void put_logprobs(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *ev)
{
    if (!ev || !form_has_logprob(f, ev)) {
        buffer_printf(b, "\"logprobs\":null");
    } else if (f->kind == ASK_CHAT) {
        buffer_printf(b, "\"logprobs\":{\"content\":[");
        form_put_logprob(f, b, ev);
        buffer_printf(b, "],\"refusal\":null}");
    } else {
        buffer_printf(b, "\"logprobs\":{\"tokens\":[");
        put_piece(f, b, ev->token);
        buffer_printf(b, "],\"token_logprobs\":[");
        put_number(b, ev->token_logprob);
        buffer_printf(b, "],\"top_logprobs\":[");
        put_tops(f, b, ev);
        buffer_printf(b, "],\"text_offset\":[%zu]}", c->n_text);
    }
}

/* ev, c: of a token, or NULL. */
static void end_event(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *ev,
                      const char *reason)
{
    buffer_printf(b, f->kind == ASK_TEXT ? "\"," : "},");
    put_logprobs(f, c, b, ev);
    buffer_printf(b, reason ? ",\"finish_reason\":\"%s\"" : ",\"finish_reason\":null", reason);
    buffer_printf(b, "}]%s}\n\n", f->usage ? ",\"usage\":null" : "");
}

/* The prompt that a choice goes on from, where the answer begins with it. */
static void put_echo(const struct form *f, struct buffer *b, int choice)
{
    const char *text = f->echo.len ? f->echo.at : "";
    for (int i = choice / f->each; i > 0 && f->echo.len; i--)
        text += strlen(text) + 1;
    b->failed |= f->echo.failed;
    buffer_put(b, text, strlen(text), 1);
}

static void put_first(const struct form *f, struct buffer *b, int choice)
{
    if (f->kind == ASK_TEXT && (!f->echo.len || f->logprobs))
        return;
    begin_event(f, b, choice);
    if (f->kind == ASK_TEXT)
        put_echo(f, b, choice);
    else
        buffer_printf(b, "\"role\":\"assistant\",\"content\":\"\"");
    end_event(f, NULL, b, NULL, NULL);
}

/* A call, whole: models write theirs to its end before it is known to be one. */
static void put_call(struct buffer *b, const struct thermo_event *ev, int indexed)
{
    buffer_put(b, "{", 1, 1);
    if (indexed)
        buffer_printf(b, "\"index\":%d,", ev->call_index);
    buffer_printf(b, "\"id\":");
    buffer_string(b, ev->call_id);
    buffer_printf(b, ",\"type\":\"function\",\"function\":{\"name\":");
    buffer_string(b, ev->call_name);
    buffer_printf(b, ",\"arguments\":\"");
    buffer_escape(b, ev->text, ev->text_bytes, 1);
    buffer_printf(b, "\"}}");
}

static void put_arrays(const struct form_choice *c, struct buffer *b)
{
    const struct buffer *of[] = { &c->tokens, &c->numbers, &c->tops, &c->offsets };
    static const char *const names[] = { "{\"tokens\":[", "],\"token_logprobs\":[", "],\"top_logprobs\":[", "],\"text_offset\":[" };
    for (int i = 0; i < 4; i++) {
        buffer_printf(b, "%s", names[i]);
        form_append(b, of[i]);
    }
    buffer_printf(b, "]}");
}

/* The prompt, where its tokens have log-probabilities. */
static void put_prompt(const struct form *f, const struct form_choice *c, struct buffer *b, int choice)
{
    begin_event(f, b, choice);
    put_echo(f, b, choice);
    buffer_printf(b, "\",\"logprobs\":");
    put_arrays(c, b);
    buffer_printf(b, ",\"finish_reason\":null}]%s}\n\n", f->usage ? ",\"usage\":null" : "");
}

static void take(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    size_t n;
    if (c->prompts && f->stream) { /* it has been sent */
        c->prompts = 0;
        buffer_drop(&c->tokens);
        buffer_drop(&c->numbers);
        buffer_drop(&c->tops);
        buffer_drop(&c->offsets);
    }
    c->n_calls += ev->part == THERMO_CALL;
    if (!form_has_logprob(f, ev))
        return;
    const char *text = thermo_piece(f->t, ev->token, &n);
    for (size_t i = 0; i < n; i++)
        c->n_text += ((unsigned char)text[i] & 0xc0) != 0x80; /* a character where its first byte is */
}

static void put_events(const struct form *f, const struct form_choice *c, struct buffer *b, const struct thermo_event *ev)
{
    if (c->prompts)
        put_prompt(f, c, b, ev->choice);
    if (!ev->text_bytes && !form_has_logprob(f, ev))
        return;
    begin_event(f, b, ev->choice);
    if (ev->part == THERMO_CALL) {
        buffer_printf(b, "\"tool_calls\":[");
        put_call(b, ev, 1);
        buffer_put(b, "]", 1, 1);
    } else {
        if (f->kind == ASK_CHAT)
            buffer_printf(b, ev->part == THERMO_THOUGHT ? "\"reasoning_content\":\"" : "\"content\":\"");
        buffer_escape(b, ev->text, ev->text_bytes, 1);
        if (f->kind == ASK_CHAT)
            buffer_put(b, "\"", 1, 1);
    }
    end_event(f, c, b, ev, NULL);
}

static void put_last(const struct form *f, struct form_choice *c, struct buffer *b, const struct thermo_event *ev)
{
    if (!b)
        return;
    begin_event(f, b, ev->choice);
    end_event(f, NULL, b, NULL, reason_of(c->stop, c->n_calls));
}

static void put_end(const struct form *f, const struct form_choice *c, struct buffer *b, const struct form_usage *u, int ok)
{
    (void)c;
    if (f->usage && ok) {
        buffer_printf(b, "data: ");
        put_head(f, b);
        buffer_printf(b, "],");
        put_usage(b, u);
        buffer_printf(b, "}\n\n");
    }
    buffer_printf(b, "data: [DONE]\n\n");
}

static void put_failure(const struct form *f, const struct form_choice *c, struct buffer *b, const char *message)
{
    (void)f;
    (void)c;
    buffer_printf(b, "data: ");
    server_error_text(b, f->kind, 500, NULL, NULL, message);
    buffer_printf(b, "\n\n");
}

/* ---- whole ---- */

#define BUFFERS(c) { &(c)->text, &(c)->thought, &(c)->calls, &(c)->tokens, &(c)->numbers, &(c)->tops, &(c)->offsets }

void form_choice_init(struct form_choice *c, struct pool *pool)
{
    *c = (struct form_choice){ 0 };
    struct buffer *all[] = BUFFERS(c);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->pool = pool;
}

void form_choice_done(struct form_choice *c)
{
    struct buffer *all[] = BUFFERS(c);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer_drop(all[i]);
}

size_t form_choice_bytes(const struct form_choice *c)
{
    return c->text.len + c->thought.len + c->calls.len + c->tokens.len + c->numbers.len + c->tops.len + c->offsets.len;
}

void form_append(struct buffer *b, const struct buffer *from)
{
    b->failed |= from->failed;
    buffer_put(b, from->at ? from->at + from->from : "", from->len, 1);
}

int form_room(struct form_choice *c, const struct thermo_event *ev, size_t more)
{
    const size_t named = ev->part == THERMO_CALL ? strlen(ev->call_id) + strlen(ev->call_name) : 0;
    return buffer_reserve(&c->text, ESCAPED * (ev->text_bytes + named) + more + 1024, 0);
}

static void gather_logprobs(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    const char *between = c->tokens.len ? "," : "";
    buffer_printf(&c->tokens, "%s", between);
    if (f->kind == ASK_CHAT) {
        form_put_logprob(f, &c->tokens, ev);
        return;
    }
    put_piece(f, &c->tokens, ev->token);
    buffer_printf(&c->numbers, "%s", between);
    put_number(&c->numbers, ev->token_logprob);
    buffer_printf(&c->tops, "%s", between);
    if (ev->type == THERMO_PROMPT && !ev->n_tokens)
        buffer_printf(&c->tops, "null"); /* nothing is before it */
    else
        put_tops(f, &c->tops, ev);
    buffer_printf(&c->offsets, "%s%zu", between, c->n_text);
}

/* A text does not begin with the space that a tokenizer puts before it. */
void form_prompt(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    struct buffer text = { 0 };
    size_t n;
    const char *piece = thermo_piece(f->t, ev->token, &n);
    int first = c->n_text == 0 && n && *piece == ' ';
    c->prompts = 0;
    gather_logprobs(f, c, ev);
    take(f, c, ev);
    c->prompts = 1;
    if (first)
        put_echo(f, &text, ev->choice);
    c->n_text -= first && !(text.len && *text.at == ' ');
    buffer_drop(&text);
}

static int gather(const struct form *f, struct form_choice *c, const struct thermo_event *ev)
{
    struct buffer *to = f->kind == ASK_CHAT && ev->part == THERMO_THOUGHT ? &c->thought : &c->text;
    if (ev->part == THERMO_CALL) {
        buffer_printf(&c->calls, c->n_calls ? "," : "");
        put_call(&c->calls, ev, 0);
    } else if (buffer_escape(to, ev->text, ev->text_bytes, ev->type == THERMO_END) < 0) {
        return -1;
    }
    if (form_has_logprob(f, ev))
        gather_logprobs(f, c, ev);
    take(f, c, ev);
    return 0;
}

static void put_choice(const struct form *f, struct buffer *b, const struct form_choice *c, int index)
{
    buffer_printf(b, "%s{\"index\":%d,\"%s\":", index ? "," : "", index,
                  f->kind == ASK_TEXT ? "text" : "message\":{\"role\":\"assistant\",\"content");
    if (c->n_calls && !c->text.len) {
        buffer_printf(b, "null");
    } else {
        buffer_put(b, "\"", 1, 1);
        put_echo(f, b, index);
        form_append(b, &c->text);
        buffer_put(b, "\"", 1, 1);
    }
    if (c->n_calls) {
        buffer_printf(b, ",\"tool_calls\":[");
        form_append(b, &c->calls);
        buffer_put(b, "]", 1, 1);
    }
    if (f->kind == ASK_CHAT && c->thought.len) {
        buffer_printf(b, ",\"reasoning_content\":\"");
        form_append(b, &c->thought);
        buffer_printf(b, "\"");
    }
    buffer_printf(b, f->kind == ASK_TEXT ? ",\"logprobs\":" : ",\"refusal\":null},\"logprobs\":");
    if (f->logprobs) {
        if (f->kind == ASK_TEXT) {
            put_arrays(c, b);
        } else {
            buffer_printf(b, "{\"content\":[");
            form_append(b, &c->tokens);
            buffer_printf(b, "],\"refusal\":null}");
        }
    } else {
        buffer_printf(b, "null");
    }
    buffer_printf(b, ",\"finish_reason\":\"%s\"}", reason_of(c->stop, c->n_calls));
}

static void put_whole(const struct form *f, const struct form_choice *c, int n, struct buffer *b, const struct form_usage *u)
{
    put_head(f, b);
    for (int i = 0; i < n; i++)
        put_choice(f, b, &c[i], i);
    buffer_printf(b, "],");
    put_usage(b, u);
    buffer_printf(b, "}\n");
}

const struct form_ops *form_ops(enum ask_form kind)
{
#define OPENAI ": \n\n", 0, put_first, put_events, take, gather, put_last, put_end, put_failure, put_whole
    static const struct form_ops chat = { "chatcmpl-", OPENAI }, text = { "cmpl-", OPENAI };
    return kind == ASK_MESSAGES ? &form_messages_ops : kind == ASK_RESPONSES ? &form_responses_ops : kind == ASK_CHAT ? &chat : &text;
}
