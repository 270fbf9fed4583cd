/* Where prompts come from. Standard input is read to its end with a growing buffer; files through
 * file_slurp. All of it is given back before the engine's memory is mapped. */
#include "runtime/prompt.h"

#include "common/base/bytes.h"
#include "common/base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_MAX (64u << 20)
#define IDS_MAX    (1ull << 30)

static int read_stdin(char **out, size_t *out_len, struct err *e)
{
    size_t cap = 4096, n = 0;
    char *buf = malloc(cap);
    while (buf) {
        if (file_wait_readable(STDIN_FILENO, e) < 0) {
            free(buf);
            return e->code;
        }
        ssize_t k = read(STDIN_FILENO, buf + n, cap - n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            free(buf);
            return err_sys(e, ERR_INPUT, "reading standard input");
        }
        if (k == 0) {
            *out = buf;
            *out_len = n;
            return 0;
        }
        n += (size_t)k;
        if (n == cap) {
            if (cap >= PROMPT_MAX) {
                free(buf);
                return err_set(e, ERR_LIMIT, "standard input is longer than the limit of %u bytes", PROMPT_MAX);
            }
            char *grown = realloc(buf, cap *= 2);
            if (!grown)
                free(buf);
            buf = grown;
        }
    }
    return err_set(e, ERR_NOMEM, "out of memory reading standard input");
}

int prompt_text(const char *text_arg, const char *file_arg, char **text, size_t *len, struct err *e)
{
    if (!text_arg == !file_arg)
        return err_set(e, ERR_USAGE,
                       text_arg ? "--prompt and --prompt-file exclude each other"
                                : "--prompt or --prompt-file is needed");
    if (file_arg)
        return strcmp(file_arg, "-") ? file_slurp(file_arg, PROMPT_MAX, text, len, e) : read_stdin(text, len, e);
    *text = strdup(text_arg);
    *len = strlen(text_arg);
    return *text ? 0 : err_set(e, ERR_NOMEM, "out of memory for the prompt");
}

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

int prompt_ids_file(const char *path, int n_vocab, int32_t **ids, int *n, struct err *e)
{
    char *raw;
    size_t len;
    int r = file_slurp(path, IDS_MAX, &raw, &len, e);
    if (r < 0)
        return r;
    int32_t *out = len % 2 || !len ? NULL : malloc(len / 2 * sizeof *out);
    if (len % 2 || !len)
        r = err_set(e, ERR_FORMAT, "'%s' has %zu bytes; 16-bit token ids are expected", path, len);
    else if (!out)
        r = err_set(e, ERR_NOMEM, "out of memory for %zu tokens", len / 2);
    for (size_t i = 0; i < len / 2 && r == 0; i++) {
        out[i] = bytes_le16(raw + 2 * i);
        if ((r = file_go_on_at(i, e)) == 0 && out[i] >= n_vocab)
            r = err_set(e, ERR_FORMAT, "'%s': token %zu is %d; the model has 0 to %d", path, i, out[i], n_vocab - 1);
    }
    free(raw);
    if (r < 0) {
        free(out);
        return r;
    }
    *ids = out;
    *n = (int)(len / 2);
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
