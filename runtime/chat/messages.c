/* Messages are kept as what JSON of them holds, which templates take, and files hold. */
#include "runtime/chat/messages.h"

#include "common/base/fields.h"
#include "common/base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Shares of what a conversation may take: a token has 4 bytes of text or so, a message a dozen tokens. */
enum { TEXT_PER_TOKEN = 8, TEXT_BYTES = 4096, MESSAGES = 16, TOKENS_PER_MESSAGE = 12, VALUES = 256, TOKENS_PER_VALUE = 8 };
#define MESSAGES_MAX_FILE (64u << 20)

static size_t length(const char *s)
{
    return s ? strlen(s) : 0;
}

static size_t bytes_of(const struct message *m)
{
    return length(m->role) + length(m->content) + length(m->thought) + length(m->more);
}

void messages_drop(struct messages *c, int n)
{
    while (c->n > n) {
        struct message *m = &c->all[--c->n];
        c->text -= bytes_of(m);
        c->values -= message_values(m);
        message_free(m);
    }
}

static int is_of(const struct messages *c, int i, const char *role)
{
    return !strcmp(c->all[i].role, role);
}

int messages_forget(struct messages *c)
{
    int from = 0, to;
    while (from < c->n && is_of(c, from, "system"))
        from++;
    for (to = from + 1; to < c->n && !is_of(c, to, "user"); to++)
        ;
    if (to >= c->n)
        return 0;
    for (int i = from; i < to; i++) {
        c->text -= bytes_of(&c->all[i]);
        c->values -= message_values(&c->all[i]);
        message_free(&c->all[i]);
    }
    memmove(c->all + from, c->all + to, (size_t)(c->n - to) * sizeof *c->all);
    c->n -= to - from;
    return to - from;
}

void messages_free(struct messages *c)
{
    messages_drop(c, 0);
    free(c->all);
    *c = (struct messages){ 0 };
}

/* Bytes of text, and of what is given with it. */
static int check_text(const struct messages *c, size_t text, struct err *e)
{
    size_t most = TEXT_BYTES + (size_t)TEXT_PER_TOKEN * (size_t)c->context, all = text + c->given;
    if (all <= most)
        return 0;
    return err_set(e, ERR_LIMIT, "a conversation of %zu bytes, more than the %zu for which a context of %d tokens has room", all, most,
                   c->context);
}

int messages_give(struct messages *c, size_t bytes, struct err *e)
{
    c->given = bytes;
    return check_text(c, c->text, e);
}

/* Takes *m, on an error too. */
static int add(struct messages *c, struct message *m, struct err *e)
{
    size_t text = c->text + bytes_of(m);
    size_t values = c->values + message_values(m), most_values = VALUES + (size_t)c->context / TOKENS_PER_VALUE;
    int r = 0;
    if (c->n >= MESSAGES + c->context / TOKENS_PER_MESSAGE)
        r = err_set(e, ERR_LIMIT, "a conversation of more than %d messages, for which a context of %d tokens has no room", c->n,
                    c->context);
    else if ((r = check_text(c, text, e)) == 0 && values > most_values)
        r = err_set(e, ERR_LIMIT, "a conversation with %zu values in \"tool_calls\", more than the %zu for which a context of %d tokens "
                    "has room", values, most_values, c->context);
    if (r == 0 && c->n == c->cap) {
        int cap = c->cap ? 2 * c->cap : 16;
        struct message *grown = realloc(c->all, (size_t)cap * sizeof *grown);
        if (grown) {
            c->all = grown;
            c->cap = cap;
        } else {
            r = err_set(e, ERR_NOMEM, "out of memory for a chat");
        }
    }
    if (r < 0) {
        message_free(m);
        return r;
    }
    c->all[c->n++] = *m;
    c->text = text;
    c->values = values;
    return 0;
}

int messages_add(struct messages *c, const char *role, const char *content, const char *thought, struct err *e)
{
    int thinks = thought && *thought;
    struct message m = { .role = strdup(role), .content = strdup(content), .thought = thinks ? strdup(thought) : NULL };
    if (m.role && m.content && (m.thought || !thinks))
        return add(c, &m, e);
    message_free(&m);
    return err_set(e, ERR_NOMEM, "out of memory for a chat");
}

int messages_add_object(struct messages *c, const struct js *j, const char *where, const char *role, struct err *e)
{
    struct message m;
    int r = message_read(j, where, role, &m, e);
    return r < 0 ? r : add(c, &m, e);
}

struct js *messages_json(const struct messages *c)
{
    struct js *all = js_array();
    for (int i = 0; i < c->n; i++) {
        struct js *j = message_object(&c->all[i]);
        if (!j) {
            js_free(all);
            return NULL;
        }
        js_append(all, j);
    }
    return all;
}

/* ---- files ---- */

/* How every file of messages_save begins. */
static const char saved_begins[] = "{\n  \"messages\": [";

/* 0: nothing is lost there. */
static int check_place(const char *path, struct err *e)
{
    char head[sizeof saved_begins - 1];
    struct file f = { 0 };
    if (file_in_place(path) || access(path, F_OK) < 0)
        return 0; /* or its name, which whoever makes it says */
    int r = file_open(&f, path, e), none = r == 0 && f.size == 0;
    if (r < 0)
        return r;
    int ours = f.size >= sizeof head && file_pread(&f, head, sizeof head, 0, e) == 0 && !memcmp(head, saved_begins, sizeof head);
    file_close(&f);
    return ours || none ? 0 : err_set(e, ERR_USAGE, "'%s' is there and is no conversation that was saved; nothing was written: give "
                                      "another name, or /save! FILE to replace it", path);
}

int messages_save(const struct messages *c, const char *path, int any, struct err *e)
{
    int place = any ? 0 : check_place(path, e);
    if (place < 0)
        return place;
    struct js *j = js_object(), *all = messages_json(c);
    js_set(j, "messages", all);
    char *text = all ? js_text(j, 2, 0) : NULL;
    js_free(j);
    int r = text ? file_replace(path, text, strlen(text), e) : err_set(e, ERR_NOMEM, "out of memory for '%s'", path);
    free(text);
    return r;
}

static int add_all(struct messages *c, const struct js *all, const char *path, struct err *e)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < js_len(all); i++) {
        char where[160];
        snprintf(where, sizeof where, "'%.100s': message %zu", path, i);
        r = messages_add_object(c, js_at(all, i), where, NULL, e);
    }
    return r;
}

int messages_load(struct messages *c, const char *path, struct err *e)
{
    int r = 0;
    struct js *j = js_read(path, MESSAGES_MAX_FILE, messages_json_bytes(c->context), e);
    if (!j)
        return e->code;
    const struct js *all = js_get(j, "messages");
    struct messages fresh = { .context = c->context };
    static const struct fields fields[] = { { "messages", FIELDS_TAKEN, NULL }, { NULL, FIELDS_TAKEN, NULL } };
    char file[120];
    snprintf(file, sizeof file, "'%.100s'", path);
    if (!js_is_array(all))
        r = err_set(e, ERR_FORMAT, "'%s' has no array \"messages\"", path);
    else if ((r = fields_check(j, fields, sizeof *fields, file, e)) == 0)
        r = add_all(&fresh, all, path, e);
    js_free(j);
    if (r == 0) {
        struct messages old = *c;
        fresh.given = c->given;
        *c = fresh;
        fresh = old;
    }
    messages_free(&fresh);
    return r;
}
