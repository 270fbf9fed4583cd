/* A list of a few answers, looked through from its beginning: the text of the prompt is compared by its hash, and then the answer is read
 * again as when it was made, and what comes out with the message. chat_tokens compares the prompt's tokens. */
#include "runtime/replay.h"

#include "common/base/bytes.h"
#include "common/base/log.h"

#include "runtime/output.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct answer {
    struct replay_prompt p;
    int32_t *made;
    int n;
    uint64_t used;
};

struct replay {
    pthread_mutex_t lock;
    struct answer all[REPLAY_ANSWERS];
    int n;
    size_t bytes;
    uint64_t clock;
    int changed;            /* since it was saved */
};

_Static_assert(sizeof(struct replay) + REPLAY_BYTES + 32 * REPLAY_ANSWERS <= REPLAY_FIXED, "what is counted");

int replay_new(struct replay **out, struct err *e)
{
    struct replay *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_NOMEM, "out of memory for answers");
    pthread_mutex_init(&r->lock, NULL);
    *out = r;
    return 0;
}

static void drop(struct replay *r, int i)
{
    r->bytes -= (size_t)r->all[i].n * sizeof *r->all[i].made;
    free(r->all[i].made);
    r->all[i] = r->all[--r->n];
}

void replay_free(struct replay *r)
{
    if (!r)
        return;
    while (r->n)
        drop(r, 0);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static int same_prompt(const struct replay_prompt *a, const struct replay_prompt *b)
{
    return hash_equal(a->text, b->text) && hash_equal(a->tokens, b->tokens) && a->n_messages == b->n_messages && a->salt == b->salt;
}

static int oldest(const struct replay *r)
{
    int k = 0;
    for (int i = 1; i < r->n; i++)
        k = r->all[i].used < r->all[k].used ? i : k;
    return k;
}

void replay_put(struct replay *r, const struct replay_prompt *p, const int32_t *made, int n)
{
    size_t bytes = (size_t)n * sizeof *made;
    if (n < 1 || bytes > REPLAY_BYTES / 2)
        return;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->n; i++)
        if (same_prompt(&r->all[i].p, p)) {
            drop(r, i);
            break;
        }
    while (r->n == REPLAY_ANSWERS || r->bytes + bytes > REPLAY_BYTES)
        drop(r, oldest(r));
    int32_t *copy = malloc(bytes);
    if (copy) {
        memcpy(copy, made, bytes);
        r->all[r->n++] = (struct answer){ *p, copy, n, ++r->clock };
        r->changed = 1;
        r->bytes += bytes;
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- is it what the message says? ---- */

struct reading {
    struct output output;
    const char *content, *thought;  /* what has not been read yet */
    const struct js *calls;         /* of the message, or NULL */
    size_t n_calls;
    int differs;
};

static void text(void *ctx, const char *s, size_t n)
{
    struct reading *x = ctx;
    const char **at = x->output.now == CHAT_THOUGHT ? &x->thought : &x->content;
    x->differs |= strncmp(*at, s, n) != 0 || memchr(s, 0, n) != NULL;
    *at += x->differs ? 0 : n;
}

static int same_text(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

static int same_arguments(const struct js *sent, const char *made, size_t n)
{
    const char *s = js_str(sent);
    struct err e;
    struct js *a = js_parse(made, n, "arguments", &e), *b = s ? js_parse(s, strlen(s), "arguments", &e) : NULL;
    int same = a && js_is_object(a) && (s ? b && js_equal(a, b) : js_equal(a, sent));
    js_free(a);
    js_free(b);
    return same;
}

static int call(void *ctx, const struct calls_out *out)
{
    struct reading *x = ctx;
    const struct js *c = js_at(x->calls, x->n_calls++), *f = js_get(c, "function");
    x->differs |= !same_text(js_str(js_get(c, "id")), out->id) || !same_text(js_str(js_get(f, "name")), out->name) ||
                  !same_arguments(js_get(f, "arguments"), out->text, out->n);
    return x->differs;
}

/* Its calls, looked for as they were then; *out NULL: there were none to look for. */
static int calls_of(const struct replay_find *f, const struct answer *a, struct calls **out)
{
    struct err e;
    *out = NULL;
    return f->form == CALLS_NONE || !js_len(f->tools) ? 0 : calls_new(f->form, f->tools, f->most, a->p.salt, out, &e);
}

static int says(const struct replay_find *f, const struct answer *a, const struct message *m)
{
    struct err e;
    struct js *more = m->more ? js_parse(m->more, strlen(m->more), "a message", &e) : NULL;
    struct reading x = { .content = m->content, .thought = m->thought ? m->thought : "", .calls = js_get(more, "tool_calls") };
    struct calls *calls = NULL;
    int r = m->more && !more ? -1 : output_init(&x.output, NULL, 0, text, &x, &e);
    if (r == 0 && (r = calls_of(f, a, &calls)) == 0) {
        output_begin(&x.output, f->tokenizer, 1, a->p.thinks, 0);
        x.output.parts = 1;
        x.output.calls = calls;
        x.output.call = call;
        x.output.call_ctx = &x;
        for (int i = 0; i < a->n && !x.differs; i++)
            output_token(&x.output, a->made[i]);
        if (!x.differs)
            output_end(&x.output);
    }
    r = r == 0 && !x.differs && !*x.content && !*x.thought && x.n_calls == js_len(x.calls);
    output_done(&x.output);
    calls_free(calls);
    js_free(more);
    return r;
}

static int is_of(const struct replay_find *f, struct answer *a, const struct messages *m, const char *text, size_t len, size_t from)
{
    const struct replay_prompt *p = &a->p;
    return p->bytes > from && p->bytes < len && p->n_messages < m->n && !strcmp(m->all[p->n_messages].role, "assistant") &&
           hash_equal(hash_128(text, p->bytes), p->text) && says(f, a, &m->all[p->n_messages]);
}

int replay_next(void *find, const struct messages *m, const char *text, size_t len, size_t from, struct chat_known *out)
{
    struct replay_find *f = find;
    struct replay *r = f->of;
    struct answer *best = NULL;
    *out = (struct chat_known){ 0 };
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->n; i++) {
        struct answer *a = &r->all[i];
        int first = !best || a->p.bytes < best->p.bytes || (a->p.bytes == best->p.bytes && a->used > best->used);
        if (first && is_of(f, a, m, text, len, from))
            best = a;
    }
    if (best && (out->made = malloc((size_t)best->n * sizeof *best->made))) {
        memcpy(out->made, best->made, (size_t)best->n * sizeof *best->made);
        out->at = best->p.bytes;
        out->prompt = best->p.tokens;
        out->n_prompt = best->p.n_tokens;
        out->n_made = best->n;
        best->used = ++r->clock;
    }
    pthread_mutex_unlock(&r->lock);
    return out->made != NULL;
}

/* ---- the file (schemas/prefix.md) ---- */

enum { HEAD = 40, ANSWER = 64, REVISION = 1, NAME_BYTES = HASH_TEXT + 16 };

static void head_of(const struct replay *r, struct hash128 key, uint64_t check, uint8_t h[HEAD])
{
    memcpy(h, "THRMANSW", 8);
    bytes_put32(h + 8, REVISION);
    bytes_put32(h + 12, (uint32_t)r->n);
    bytes_put64(h + 16, key.lo);
    bytes_put64(h + 24, key.hi);
    bytes_put64(h + 32, check);
}

static void answer_head(const struct answer *a, uint8_t h[ANSWER])
{
    bytes_put64(h, a->p.text.lo);
    bytes_put64(h + 8, a->p.text.hi);
    bytes_put64(h + 16, a->p.tokens.lo);
    bytes_put64(h + 24, a->p.tokens.hi);
    bytes_put64(h + 32, a->p.bytes);
    bytes_put64(h + 40, a->p.salt);
    bytes_put32(h + 48, (uint32_t)a->p.n_tokens);
    bytes_put32(h + 52, (uint32_t)a->p.n_messages);
    bytes_put32(h + 56, (uint32_t)a->p.thinks);
    bytes_put32(h + 60, (uint32_t)a->n);
}

/* All answers, to a file or to a checksum, the one used longest ago first. */
static void put_all(const struct replay *r, FILE *f, struct hash *sum)
{
    uint64_t last = 0;
    for (int i = 0, k; i < r->n; i++, last = r->all[k].used) {
        uint8_t h[ANSWER];
        for (k = 0; r->all[k].used <= last; k++)
            ;
        for (int j = k + 1; j < r->n; j++)
            k = r->all[j].used > last && r->all[j].used < r->all[k].used ? j : k;
        answer_head(&r->all[k], h);
        hash_update(sum, h, sizeof h);
        if (f)
            fwrite(h, sizeof h, 1, f);
        for (int j = 0; j < r->all[k].n; j++) {
            uint8_t id[4];
            bytes_put32(id, (uint32_t)r->all[k].made[j]);
            hash_update(sum, id, sizeof id);
            if (f)
                fwrite(id, sizeof id, 1, f);
        }
    }
}

static void name_of(struct hash128 key, const char *end, char out[NAME_BYTES])
{
    char text[HASH_TEXT];
    hash_text(key, text);
    snprintf(out, NAME_BYTES, "%s.%s", text, end);
}

void replay_write(const struct replay *r, FILE *f, struct hash128 key)
{
    struct hash_room room;
    struct hash *sum = hash_new_in(&room);
    uint8_t h[HEAD];
    put_all(r, NULL, sum);
    head_of(r, key, hash_final64(sum), h);
    fwrite(h, sizeof h, 1, f);
    put_all(r, f, sum);
}

static int write_all(const struct replay *r, int dir, struct hash128 key)
{
    char name[NAME_BYTES], tmp[NAME_BYTES];
    name_of(key, "answers", name);
    name_of(key, "answers-tmp", tmp);
    unlinkat(dir, tmp, 0);
    int fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    replay_write(r, f, key);
    int bad = ferror(f);
    if ((fclose(f) || bad) || renameat(dir, tmp, dir, name) < 0) {
        unlinkat(dir, tmp, 0);
        return -1;
    }
    return 0;
}

void replay_save(struct replay *r, const char *folder, struct hash128 key)
{
    pthread_mutex_lock(&r->lock);
    int dir = r->changed ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (r->changed && (dir < 0 || write_all(r, dir, key) < 0))
        log_warn("--prefix-cache: answers that come back are not kept in '%s' (%s)", folder, strerror(errno));
    r->changed = 0;
    pthread_mutex_unlock(&r->lock);
    if (dir >= 0)
        close(dir);
}

static int read_answer(FILE *f, struct hash *sum, int n_vocab, struct replay *r)
{
    uint8_t h[ANSWER], id[4];
    if (fread(h, sizeof h, 1, f) != 1)
        return -1;
    hash_update(sum, h, sizeof h);
    if (bytes_le64(h + 32) > INT32_MAX || bytes_le32(h + 48) > INT32_MAX || bytes_le32(h + 52) > INT32_MAX || bytes_le32(h + 56) > 15)
        return -1;
    struct answer a = { .p = { .text = { bytes_le64(h), bytes_le64(h + 8) }, .tokens = { bytes_le64(h + 16), bytes_le64(h + 24) },
                               .bytes = (size_t)bytes_le64(h + 32), .n_tokens = (int)bytes_le32(h + 48),
                               .n_messages = (int)bytes_le32(h + 52), .thinks = (int)bytes_le32(h + 56),
                               .salt = bytes_le64(h + 40) }, .used = ++r->clock };
    uint32_t n = bytes_le32(h + 60);
    if (n < 1 || n > REPLAY_BYTES / 2 / sizeof *a.made || r->bytes + n * sizeof *a.made > REPLAY_BYTES ||
        !(a.made = malloc(n * sizeof *a.made)))
        return -1;
    a.n = (int)n;
    r->all[r->n++] = a;
    r->bytes += n * sizeof *a.made;
    for (uint32_t i = 0; i < n; i++) {
        if (fread(id, sizeof id, 1, f) != 1 || bytes_le32(id) >= (uint32_t)n_vocab)
            return -1;
        hash_update(sum, id, sizeof id);
        a.made[i] = (int32_t)bytes_le32(id);
    }
    return 0;
}

static int read_all(FILE *f, struct hash128 key, int n_vocab, struct replay *r)
{
    struct hash_room room;
    struct hash *sum = hash_new_in(&room);
    uint8_t h[HEAD], want[HEAD];
    if (fread(h, sizeof h, 1, f) != 1)
        return -1;
    uint32_t n = bytes_le32(h + 12);
    for (uint32_t i = 0; n <= REPLAY_ANSWERS && i < n; i++)
        if (read_answer(f, sum, n_vocab, r) < 0)
            return -1;
    head_of(r, key, hash_final64(sum), want);
    return memcmp(h, want, sizeof h) || fgetc(f) != EOF ? -1 : 0;
}

int replay_read(struct replay *r, FILE *f, struct hash128 key, int n_vocab)
{
    const int bad = read_all(f, key, n_vocab, r);
    while (bad && r->n)
        drop(r, 0);
    return bad;
}

void replay_load(struct replay *r, const char *folder, struct hash128 key, int n_vocab)
{
    char name[NAME_BYTES];
    struct stat st;
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    name_of(key, "answers", name);
    int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int ours = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1 &&
               !(st.st_mode & (S_IWGRP | S_IWOTH));
    FILE *f = ours ? fdopen(fd, "r") : NULL;
    if (f) {
        replay_read(r, f, key, n_vocab);
        fclose(f);
    }
    if (!f && fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
}
