/* A line that was cut off is removed before anything is appended: what follows the last newline is not a result. */
#include "runtime/results.h"

#include "common/base/file.h"
#include "common/base/js.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static int failed(const struct results *r, struct err *e)
{
    return err_sys(e, ERR_SYS, "writing '%s'", r->partial ? r->partial : r->path);
}

static void pick_seed(uint64_t *seed)
{
    if (*seed == UINT64_MAX && getrandom(seed, 4, 0) == 4)
        *seed &= UINT32_MAX; /* short enough to type again */
}

static int write_head(struct results *r, struct hash128 settings, uint64_t *seed, struct err *e)
{
    char text[HASH_TEXT];
    hash_text(settings, text);
    pick_seed(seed);
    fprintf(r->file, "{\"type\":\"run\",\"settings\":\"%s\",\"seed\":%llu}\n", text, (unsigned long long)*seed);
    return results_flush(r, e);
}

/* The first line, of n bytes, against what is asked for now. */
static int check_head(const struct results *r, const char *head, size_t n, struct hash128 settings, uint64_t *seed, struct err *e)
{
    char text[HASH_TEXT];
    int64_t was = -1;
    hash_text(settings, text);
    struct js *j = js_parse(head, n, r->partial, e);
    const char *of = js_str(js_get(j, "settings"));
    int run = of && js_int(js_get(j, "seed"), &was) && was >= 0, same = run && !strcmp(of, text);
    js_free(j);
    if (!run)
        return err_set(e, ERR_FORMAT, "'%s' does not begin with the line of a run", r->partial);
    if (!same)
        return err_set(e, ERR_MISMATCH, "'%s' is of a run with other prompts, another model or other options: --resume needs the same",
                       r->partial);
    if (*seed != UINT64_MAX && *seed != (uint64_t)was)
        return err_set(e, ERR_MISMATCH, "'%s' is of a run with --seed %lld", r->partial, (long long)was);
    *seed = (uint64_t)was;
    return 0;
}

static int take_up(struct results *r, struct hash128 settings, uint64_t *seed, struct err *e)
{
    char some[4096], head[256];
    size_t n, n_head = 0;
    uint64_t lines = 0;
    long at = 0, end = 0;
    r->file = fopen(r->partial, "r+b");
    if (!r->file)
        return err_sys(e, ERR_INPUT, "--resume: '%s'", r->partial);
    while ((n = fread(some, 1, sizeof some, r->file)) > 0)
        for (size_t i = 0; i < n; i++, at++) {
            if (lines == 0 && n_head < sizeof head)
                head[n_head++] = some[i];
            if (some[i] != '\n')
                continue;
            lines++;
            end = at + 1;
        }
    if (ferror(r->file))
        return err_sys(e, ERR_INPUT, "reading '%s'", r->partial);
    if (lines == 0) { /* not even the first line was written */
        rewind(r->file);
        return ftruncate(fileno(r->file), 0) < 0 ? failed(r, e) : write_head(r, settings, seed, e);
    }
    int code = check_head(r, head, n_head, settings, seed, e);
    if (code < 0)
        return code;
    r->n = lines - 1;
    return ftruncate(fileno(r->file), end) < 0 || fseek(r->file, end, SEEK_SET) < 0 ? failed(r, e) : 0;
}

static int begin(struct results *r, struct hash128 settings, uint64_t *seed, struct err *e)
{
    r->file = fopen(r->partial, "wbx");
    if (!r->file && errno == EEXIST)
        return err_set(e, ERR_USAGE, "'%s' is of a run that was interrupted: --resume continues it; remove it to begin anew", r->partial);
    return r->file ? write_head(r, settings, seed, e) : failed(r, e);
}

int results_open(struct results *r, const char *path, int resume, struct hash128 settings, uint64_t *seed, struct err *e)
{
    *r = (struct results){ .file = stdout };
    if (!path)
        return write_head(r, settings, seed, e);
    size_t n = strlen(path) + sizeof ".partial";
    r->file = NULL;
    r->path = strdup(path);
    if (!r->path)
        return err_set(e, ERR_NOMEM, "out of memory for a name");
    if (file_in_place(path)) {
        if (resume)
            return err_set(e, ERR_USAGE, "--resume: '%s' is a device or a pipe, which holds no interrupted run", path);
        r->file = fopen(path, "wb");
        return r->file ? write_head(r, settings, seed, e) : failed(r, e);
    }
    r->partial = malloc(n);
    if (!r->partial)
        return err_set(e, ERR_NOMEM, "out of memory for a name");
    snprintf(r->partial, n, "%s.partial", path);
    return resume ? take_up(r, settings, seed, e) : begin(r, settings, seed, e);
}

int results_flush(struct results *r, struct err *e)
{
    if (!r->path)
        return file_stdout(e);
    return fflush(r->file) != 0 || ferror(r->file) ? failed(r, e) : 0;
}

int results_commit(struct results *r, struct err *e)
{
    int code = results_flush(r, e);
    if (code < 0 || !r->partial)
        return code;
    if (fsync(fileno(r->file)) < 0 || rename(r->partial, r->path) < 0)
        return failed(r, e);
    return 0;
}

void results_close(struct results *r)
{
    if (r->path && r->file)
        fclose(r->file);
    free(r->path);
    free(r->partial);
    *r = (struct results){ 0 };
}
