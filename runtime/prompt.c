/* Where prompts come from. Files and standard input are read alike: their length is known when they have been read. A text is given back
 * before the engine's memory is mapped; one that is scored or decoded is never whole, only its tokens are. */
#include "runtime/prompt.h"

#include "common/base/bytes.h"
#include "common/base/file.h"

#include "runtime/inputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (64u << 10) /* of a text that is read as tokens, where it can be cut */

/* ---- reading ---- */

struct source {
    struct file file;      /* fd: standard input's, or the file's */
    const char *name;
    char *buf;             /* [cap] */
    size_t cap, n;         /* n: read and not used */
    int at_end;
};

static int source_open(struct source *s, const char *path, size_t cap, struct err *e)
{
    int is_stdin = !strcmp(path, "-"), r;
    *s = (struct source){ .file = { .fd = STDIN_FILENO }, .name = is_stdin ? "standard input" : path, .cap = cap };
    if (!is_stdin && (r = file_open(&s->file, path, e)) < 0)
        return r;
    s->buf = malloc(cap);
    return s->buf ? 0 : err_set(e, ERR_NOMEM, "out of memory reading '%s'", s->name);
}

static void source_close(struct source *s)
{
    if (s->file.path)
        file_close(&s->file);
    free(s->buf);
}

static int source_grow(struct source *s, size_t cap, struct err *e)
{
    char *grown = realloc(s->buf, cap);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory reading '%s'", s->name);
    s->buf = grown;
    s->cap = cap;
    return 0;
}

/* As much as there is room for. */
static int source_fill(struct source *s, struct err *e)
{
    while (s->n < s->cap && !s->at_end) {
        if ((s->file.path ? file_go_on(e) : file_wait_readable(STDIN_FILENO, e)) < 0)
            return e->code;
        ssize_t k = read(s->file.fd, s->buf + s->n, s->cap - s->n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(e, ERR_INPUT, "reading '%s'", s->name);
        s->at_end = k == 0;
        s->n += (size_t)k;
    }
    return 0;
}

static int too_long(const struct source *s, size_t most, struct err *e)
{
    return err_set(e, ERR_LIMIT, "'%s' is longer than %zu bytes, the most of a text for which there is memory: see --memory", s->name,
                   most);
}

/* All of it, with a zero behind it; grown as it comes, for nobody knows how much there is. */
static int source_all(struct source *s, size_t most, struct err *e)
{
    int r;
    while ((r = source_fill(s, e)) == 0 && !s->at_end) {
        if (s->n > most)
            return too_long(s, most, e);
        if ((r = source_grow(s, s->cap < most / 2 ? 2 * s->cap : most + 1, e)) < 0)
            return r;
    }
    return r < 0 || s->n < s->cap ? r : source_grow(s, s->cap + 1, e);
}

int prompt_text(const char *text_arg, const char *file_arg, size_t room, char **text, size_t *len, struct err *e)
{
    struct source s;
    if (!text_arg == !file_arg)
        return err_set(e, ERR_USAGE,
                       text_arg ? "--prompt and --prompt-file exclude each other"
                                : "--prompt or --prompt-file is needed");
    if (text_arg) {
        *text = strdup(text_arg);
        *len = strlen(text_arg);
        return *text ? 0 : err_set(e, ERR_NOMEM, "out of memory for the prompt");
    }
    int r = source_open(&s, file_arg, 4096, e);
    if (r == 0 && (r = source_all(&s, inputs_text_bytes(room), e)) == 0) {
        s.buf[s.n] = '\0';
        *text = s.buf;
        *len = s.n;
        s.buf = NULL;
    }
    source_close(&s);
    return r;
}

/* ---- tokens of texts ---- */

struct tokens {
    int32_t *ids;
    size_t n, cap, most;
};

/* Takes more, which is malloc'd. */
static int append(struct tokens *t, int32_t *more, int n, size_t room, const char *name, struct err *e)
{
    size_t take = (size_t)n < t->most - t->n ? (size_t)n : t->most - t->n, need = t->n + take, cap = t->cap;
    int r = 0;
    if (need > cap) {
        cap = need + need / 2 < t->most ? need + need / 2 : t->most;
        int32_t *grown = cap * sizeof *grown > room ? NULL : realloc(t->ids, cap * sizeof *grown);
        if (!grown)
            r = err_set(e, cap * sizeof *grown > room ? ERR_LIMIT : ERR_NOMEM, "'%s': %zu tokens take more memory than there is: see "
                        "--memory, or take less of the text", name, need);
        else
            t->ids = grown, t->cap = cap;
    }
    if (r == 0 && take)
        memcpy(t->ids + t->n, more, take * sizeof *more);
    t->n += r == 0 ? take : 0;
    free(more);
    return r;
}

int prompt_tokens(const struct tokenizer *t, const char *path, int bos, size_t most, size_t room, int32_t **ids, int *n, struct err *e)
{
    struct source s;
    struct tokens out = { .most = most < INT32_MAX ? most : INT32_MAX };
    size_t longest = inputs_text_bytes(room / 2), piece = PIECE < longest ? PIECE : longest;
    int r = source_open(&s, path, piece, e);
    for (int first = 1; r == 0 && out.n < out.most && (r = source_fill(&s, e)) == 0 && (s.n || first);) {
        int32_t *more = NULL;
        int n_more = 0;
        size_t k = s.at_end ? s.n : tokenizer_cut(t, s.buf, s.n);
        if (!k && !s.at_end) {
            r = s.cap <= longest / 2 ? source_grow(&s, 2 * s.cap, e) :
                err_set(e, ERR_LIMIT, "'%s': %zu bytes without a place where this tokenizer's texts can be cut take more memory than there "
                        "is: see --memory", s.name, s.cap);
            continue;
        }
        r = first ? tokenizer_encode(t, s.buf, k, bos, 0, &more, &n_more, e) : tokenizer_encode_more(t, s.buf, k, 0, &more, &n_more, e);
        r = r < 0 ? r : append(&out, more, n_more, room / 2, s.name, e);
        memmove(s.buf, s.buf + k, s.n - k);
        s.n -= k;
        first = 0;
    }
    source_close(&s);
    int32_t *exact = r < 0 ? NULL : realloc(out.ids, (out.n ? out.n : 1) * sizeof *exact);
    if (r < 0 || !exact) {
        free(out.ids);
        return r < 0 ? r : err_set(e, ERR_NOMEM, "out of memory for %zu tokens", out.n);
    }
    *ids = exact;
    *n = (int)out.n;
    return 0;
}

/* ---- ids ---- */

int prompt_ids(const char *list, int n_vocab, int32_t **ids, int *n, struct err *e)
{
    size_t cap = 1;
    for (const char *p = list; *p; p++)
        cap += *p == ',';
    int32_t *out = malloc(cap * sizeof *out);
    int count = 0;
    if (!out)
        return err_set(e, ERR_NOMEM, "out of memory for %zu tokens", cap);
    for (const char *p = list;;) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || errno || v >= n_vocab || (*end && *end != ',')) {
            free(out);
            return err_set(e, ERR_USAGE, "--tokens: '%.40s' is not a token id from 0 to %d", p, n_vocab - 1);
        }
        out[count++] = (int32_t)v;
        if (!*end)
            break;
        p = end + 1;
    }
    *ids = out;
    *n = count;
    return 0;
}

int prompt_ids_file(const char *path, int n_vocab, size_t most, size_t room, int32_t **ids, int *n, struct err *e)
{
    struct file f = { .fd = -1 };
    enum { SOME = 8192 };
    uint8_t some[2 * SOME];
    int32_t *out = NULL;
    int r = file_open(&f, path, e);
    uint64_t len = r < 0 ? 0 : f.size, all = len / 2 < most ? len / 2 : most;
    if (r == 0 && (len % 2 || !len))
        r = err_set(e, ERR_FORMAT, "'%s' has %llu bytes; 16-bit token ids are expected", path, (unsigned long long)len);
    else if (r == 0 && all > (room / sizeof *out < INT32_MAX ? room / sizeof *out : INT32_MAX))
        r = err_set(e, ERR_LIMIT, "'%s': %llu tokens take more memory than there is: see --memory, or take fewer of them", path,
                    (unsigned long long)all);
    else if (r == 0 && !(out = malloc((size_t)all * sizeof *out)))
        r = err_set(e, ERR_NOMEM, "out of memory for %llu tokens", (unsigned long long)all);
    for (uint64_t i = 0, at; i < all && r == 0; i++) {
        if ((at = i % SOME) == 0 &&
            ((r = file_go_on(e)) < 0 || (r = file_pread(&f, some, 2 * (size_t)(all - i < SOME ? all - i : SOME), 2 * i, e)) < 0))
            break;
        out[i] = bytes_le16(some + 2 * at);
        if (out[i] >= n_vocab)
            r = err_set(e, ERR_FORMAT, "'%s': token %llu is %d; the model has 0 to %d", path, (unsigned long long)i, out[i], n_vocab - 1);
    }
    file_close(&f);
    if (r < 0) {
        free(out);
        return r;
    }
    *ids = out;
    *n = (int)all;
    return 0;
}

int prompt_check(int n, int context, int room, struct err *e)
{
    if (n < 1)
        return err_set(e, ERR_USAGE, "the prompt is empty, and this model has no token to begin a text with");
    if (n > context - room)
        return err_set(e, ERR_USAGE, "the prompt has %d tokens; a context of %d holds %d%s; see --context", n,
                       context, context - room, room ? " and what comes after" : "");
    return 0;
}
