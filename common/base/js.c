/* jansson behind plain functions. Text that came from a model's vocabulary or a file name may be
 * any bytes; JSON may not, so strings are made valid UTF-8 on the way in. */
#include "common/base/js.h"

#include "common/base/file.h"
#include "common/base/print.h"
#include "common/base/utf8.h"

#include <jansson.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* jansson says of lacking memory that the text is no JSON, or leaves a member out. So it is watched, and what a text may take of the memory
 * is counted here, allocation by allocation, where no form of JSON escapes. */
static _Thread_local int starved;
static _Thread_local struct {
    size_t most, used; /* most 0: nothing is counted */
    int over;
} heap;

#define CHUNK 16 /* malloc's own of each allocation, at most */

/* What is too much is given all the same: jansson 2.14 reads past the end of a string for which it was given none. The text ends there
 * instead (next_piece), before more than a KiB of it has been written to that memory. */
static void *watched_malloc(size_t n)
{
    void *p = malloc(n);
    starved |= !p;
    if (p && heap.most)
        heap.used += malloc_usable_size(p) + CHUNK;
    heap.over |= heap.most && heap.used > heap.most;
    return p;
}

static void watched_free(void *p)
{
    size_t n = p && heap.most ? malloc_usable_size(p) + CHUNK : 0;
    heap.used -= n < heap.used ? n : heap.used;
    free(p);
}

void js_watch(size_t most)
{
    json_set_alloc_funcs(watched_malloc, watched_free);
    starved = heap.over = 0;
    heap.used = 0;
    heap.most = most;
}

int js_watched(const char *name, struct err *e)
{
    size_t most = heap.most;
    heap.most = 0;
    if (heap.over)
        return err_set(e, ERR_LIMIT, "'%s' takes more than %zu bytes of memory to read, which is all that there is for it", name, most);
    return starved ? err_set(e, ERR_NOMEM, "'%s': out of memory", name) : 0;
}

int js_starved(void)
{
    return starved;
}

static json_t *in(const struct js *j)
{
    return (json_t *)(uintptr_t)j;
}

static struct js *out(json_t *j)
{
    return (struct js *)j;
}

struct js *js_object(void)
{
    json_set_alloc_funcs(watched_malloc, watched_free);
    return out(json_object());
}

struct js *js_array(void)
{
    json_set_alloc_funcs(watched_malloc, watched_free);
    return out(json_array());
}

void js_free(struct js *j)
{
    json_decref(in(j));
}

/* Length of the valid UTF-8 sequence at s, or 0. */
static size_t utf8_len(const unsigned char *s, size_t left)
{
    unsigned c = s[0];
    size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f) || (c == 0xf0 && s[1] < 0x90) ||
        (c == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static json_t *text_value(const char *text, size_t len)
{
    json_t *j = json_stringn(text, len);
    if (j)
        return j;
    char *fixed = malloc(len * 3 + 1);
    if (!fixed) {
        starved = 1;
        return NULL;
    }
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        size_t k = utf8_len((const unsigned char *)text + i, len - i);
        if (k) {
            memcpy(fixed + n, text + i, k);
            n += k;
            i += k;
        } else {
            memcpy(fixed + n, "\xef\xbf\xbd", 3);
            n += 3;
            i++;
        }
    }
    j = json_stringn(fixed, n);
    free(fixed);
    return j;
}

static json_t *real_value(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *member_value(const struct js_member *m)
{
    char text[HASH_TEXT];
    switch (m->kind) {
    case JS_IS_STR:  return m->text ? text_value(m->text, strlen(m->text)) : json_null();
    case JS_IS_HASH: hash_text(m->hash, text); return json_string(text);
    case JS_IS_U64:
        snprintf(text, sizeof text, "%llu", (unsigned long long)m->count);
        return m->count <= INT64_MAX ? json_integer((json_int_t)m->count) : json_string(text);
    case JS_IS_INT:  return json_integer(m->whole);
    case JS_IS_NUM:  return real_value(m->real);
    case JS_IS_BOOL: return json_boolean(m->whole);
    default:         return in(m->value);
    }
}

struct js *js_put_members(struct js *obj, const struct js_member *m)
{
    for (; m->key; m++)
        json_object_set_new(in(obj), m->key, member_value(m));
    return obj;
}

void js_append(struct js *arr, struct js *value)
{
    json_array_append_new(in(arr), in(value));
}

void js_append_str(struct js *arr, const char *text)
{
    json_array_append_new(in(arr), text_value(text, strlen(text)));
}

void js_append_int(struct js *arr, int64_t v)
{
    json_array_append_new(in(arr), json_integer(v));
}

void js_append_num(struct js *arr, double v)
{
    json_array_append_new(in(arr), real_value(v));
}

/* text, or, where it has characters that act on a terminal (jansson escapes those below a blank), a copy with them escaped. */
static char *calm(char *text)
{
    size_t len = strlen(text), acting = 0, n = 0;
    uint32_t c;
    for (size_t i = 0, k; i < len; i += k ? k : 1) {
        k = utf8_decode(text + i, len - i, &c);
        acting += k && c >= 0x7f && print_acts(c);
    }
    char *out = acting ? malloc(len + 6 * acting + 1) : text;
    if (!acting || !out) {
        starved |= !out;
        if (!out)
            free(text);
        return out;
    }
    for (size_t i = 0, k; i < len; i += k) {
        char one[PRINT_PIECE];
        k = utf8_decode(text + i, len - i, &c);
        if (k && c >= 0x7f && print_acts(c)) {
            print_json_piece(text + i, k, one);
            memcpy(out + n, one, strlen(one));
            n += strlen(one);
        } else {
            k = k ? k : 1;
            memcpy(out + n, text + i, k);
            n += k;
        }
    }
    out[n] = '\0';
    free(text);
    return out;
}

char *js_text(const struct js *j, int indent, int digits)
{
    size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits > 0 ? digits : 17);
    flags |= indent > 0 ? JSON_INDENT(indent) : JSON_COMPACT;
    char *text = j && !starved ? json_dumps(in(j), flags) : NULL;
    if (starved) { /* a member may be missing */
        free(text);
        return NULL;
    }
    return text ? calm(text) : NULL;
}

int js_print(FILE *f, const struct js *j, int indent, int digits, struct err *e)
{
    char *text = js_text(j, indent, digits);
    if (!text)
        return err_set(e, ERR_NOMEM, "out of memory for a JSON document");
    int bad = fputs(text, f) < 0 || fputc('\n', f) < 0 || (f != stdout && fflush(f) != 0);
    free(text);
    if (f == stdout)
        return file_stdout(e);
    return bad ? err_sys(e, ERR_SYS, "writing JSON") : 0;
}

/* What jansson did not take, in our words where its own name its options or the rest of the text. one_line: a line of something, which name
 * says. */
static int refuse(const json_error_t *je, const char *name, int one_line, struct err *e)
{
    static const struct {
        enum json_error_code code;
        const char *what;
    } valid[] = { /* JSON, but not taken */
        { json_error_null_character, "\\u0000 in a string is not accepted" },
        { json_error_null_byte_in_key, "\\u0000 in a key is not accepted" },
        { json_error_stack_overflow, "it is nested too deeply" },
        { json_error_numeric_overflow, "a number that is too large" },
    };
    enum json_error_code code = json_error_code(je);
    const char *what = je->text, *how = "is not JSON";
    char at[40], half[sizeof je->text + 64];
    int n = one_line ? 0 : snprintf(at, sizeof at, "line %d, ", je->line);
    snprintf(at + n, sizeof at - (size_t)n, "column %d", je->column);
    for (size_t i = 0; i < sizeof valid / sizeof valid[0]; i++)
        if (valid[i].code == code) {
            what = valid[i].what;
            how = "is refused";
        }
    if (code == json_error_invalid_utf8)
        what = "bytes that are no UTF-8";
    else if (code == json_error_premature_end_of_input)
        what = "it ends in the middle of a value";
    else if (code == json_error_end_of_input_expected)
        what = "text after the end of the value";
    if (!strncmp(je->text, "invalid Unicode '", 17)) {
        snprintf(half, sizeof half, "'%.*s' is half of a pair of surrogates, which is no character", (int)strcspn(je->text + 17, "'"),
                 je->text + 17);
        what = half;
    }
    return err_set(e, ERR_FORMAT, "'%s' %s: %s: %s", name, how, at, what);
}

struct pieces {
    const char *text; /* or NULL: of the file */
    struct file file;
    uint64_t size, at;
    struct err *e;    /* of a read that failed; its code, */
    int code;         /* 0 so far */
};

static size_t next_piece(void *buf, size_t n, void *ctx)
{
    struct pieces *f = ctx;
    size_t some = f->size - f->at < n ? (size_t)(f->size - f->at) : n;
    if (heap.over || starved)
        return (size_t)-1;
    if (f->text)
        memcpy(buf, f->text + f->at, some);
    else if (some && ((f->code = file_go_on(f->e)) < 0 || (f->code = file_pread(&f->file, buf, some, f->at, f->e)) < 0))
        return (size_t)-1;
    f->at += some;
    return some;
}

static struct js *parse(struct pieces *f, size_t most, const char *name)
{
    json_error_t je;
    js_watch(most);
    json_t *j = json_load_callback(next_piece, f, JSON_REJECT_DUPLICATES, &je);
    if (js_watched(name, f->e) < 0) {
        json_decref(j);
        return NULL;
    }
    if (!j && f->code == 0)
        refuse(&je, name, f->text && !memchr(f->text, '\n', f->size), f->e);
    return out(j);
}

struct js *js_parse_within(const char *text, size_t len, size_t most, const char *name, struct err *e)
{
    return parse(&(struct pieces){ .text = text, .size = len, .e = e }, most, name);
}

struct js *js_parse(const char *text, size_t len, const char *name, struct err *e)
{
    return js_parse_within(text, len, JS_MAX_BYTES, name, e);
}

struct js *js_read(const char *path, uint64_t most_bytes, size_t most, struct err *e)
{
    struct pieces f = { .file = { .fd = -1 }, .e = e };
    struct js *j = NULL;
    if (file_open(&f.file, path, e) < 0)
        return NULL;
    f.size = f.file.size;
    if (f.size > most_bytes)
        err_set(e, ERR_LIMIT, "'%s' has %llu bytes, more than the limit of %llu", path, (unsigned long long)f.size,
                (unsigned long long)most_bytes);
    else
        j = parse(&f, most, path);
    file_close(&f.file);
    return j;
}

const struct js *js_get(const struct js *obj, const char *key)
{
    return out(json_object_get(in(obj), key));
}

struct js *js_own(struct js *obj, const char *key)
{
    return out(json_object_get(in(obj), key));
}

struct js *js_own_at(struct js *arr, size_t i)
{
    return out(json_array_get(in(arr), i));
}

const struct js *js_at(const struct js *arr, size_t i)
{
    return out(json_array_get(in(arr), i));
}

size_t js_len(const struct js *arr)
{
    return json_array_size(in(arr));
}

const char *js_key(const struct js *obj, size_t i)
{
    void *at = json_object_iter(in(obj));
    while (at && i--)
        at = json_object_iter_next(in(obj), at);
    return at ? json_object_iter_key(at) : NULL;
}

int js_equal(const struct js *a, const struct js *b)
{
    return json_equal(in(a), in(b));
}

int js_bool(const struct js *j)
{
    return json_is_boolean(in(j)) ? json_is_true(in(j)) : -1;
}

int js_is_object(const struct js *j)
{
    return json_is_object(in(j));
}

int js_is_array(const struct js *j)
{
    return json_is_array(in(j));
}

const char *js_str(const struct js *j)
{
    return json_string_value(in(j));
}

int js_num(const struct js *j, double *v)
{
    if (!json_is_number(in(j)))
        return 0;
    *v = json_number_value(in(j));
    return 1;
}

int js_int(const struct js *j, int64_t *v)
{
    if (!json_is_integer(in(j)))
        return 0;
    *v = json_integer_value(in(j));
    return 1;
}
