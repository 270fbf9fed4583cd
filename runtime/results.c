/* The first record of the journal is a struct head, each further one whole lines. The output is made of them at the end. */
#include "runtime/results.h"

#include "common/base/file.h"
#include "common/base/journal.h"
#include "common/base/log.h"
#include "common/base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PARTIAL    ".partial"
#define SYNC_BYTES (64 << 10)
#define SYNC_NS    1000000000

struct head {
    struct results_of of;
    uint64_t seed;
};

static int failed(const struct results *r, struct err *e)
{
    return err_sys(e, ERR_SYS, "writing '%s%s'", r->path, r->journal ? PARTIAL : "");
}

static void pick_seed(uint64_t *seed)
{
    if (*seed == UINT64_MAX && getrandom(seed, 4, 0) == 4)
        *seed &= UINT32_MAX; /* short enough to type again */
}

/* The line of what made them; how long it is. */
static int head_line(const struct results *r, char *out, size_t size)
{
    char all[HASH_TEXT], pack[HASH_TEXT], plan[HASH_TEXT], prompts[HASH_TEXT], options[HASH_TEXT];
    hash_text(hash_128(&r->of, sizeof r->of), all);
    hash_text(r->of.pack, pack);
    hash_text(r->of.plan, plan);
    hash_text(r->of.prompts, prompts);
    hash_text(r->of.options, options);
    return snprintf(out, size, "{\"type\":\"run\",\"settings\":\"%s\",\"pack\":\"%s\",\"plan\":\"%s\",\"prompts\":\"%s\","
                    "\"options\":\"%s\",\"seed\":%llu}\n", all, pack, plan, prompts, options, (unsigned long long)r->seed);
}

/* ---- what an interrupted run has left ---- */

static int check_head(const struct results *r, const struct head *was, uint64_t seed, struct err *e)
{
    const struct { const char *what; struct hash128 a, b; } parts[] = {
        { "pack", was->of.pack, r->of.pack }, { "plan", was->of.plan, r->of.plan }, { "prompts", was->of.prompts, r->of.prompts },
        { "options, template or engine", was->of.options, r->of.options },
    };
    char what[80] = "";
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!hash_equal(parts[i].a, parts[i].b)) {
            strcat(what, *what ? ", " : "");
            strcat(what, parts[i].what);
        }
    if (*what)
        return err_set(e, ERR_MISMATCH, "'%s" PARTIAL "' is of a run with other %s: --resume needs the same", r->path, what);
    if (seed != UINT64_MAX && seed != was->seed)
        return err_set(e, ERR_MISMATCH, "'%s" PARTIAL "' is of a run with --seed %llu", r->path, (unsigned long long)was->seed);
    return 0;
}

/* A record's lines are the results that it says. Checksums say so too; this holds for a file that was made up. */
static int check_lines(const struct results *r, const struct journal_record *k, struct err *e)
{
    char some[4096], begin[64];
    uint64_t line = 0;
    int at = 0, ok = 1, len = 0;
    for (uint64_t done = 0; ok && done < k->bytes;) {
        size_t n = k->bytes - done < sizeof some ? (size_t)(k->bytes - done) : sizeof some;
        int code = journal_read(r->journal, k, done, some, n, e);
        if (code < 0)
            return code;
        for (size_t i = 0; i < n && ok; i++, at++) {
            if (at == 0)
                len = snprintf(begin, sizeof begin, "{\"type\":\"result\",\"index\":%llu,", (unsigned long long)(k->first - 1 + line));
            ok = at >= len ? some[i] != '\0' : some[i] == begin[at];
            if (some[i] == '\n') {
                line++;
                at = -1;
            }
        }
        done += n;
    }
    return ok && line == k->n && at == 0 ? 0 : err_set(e, ERR_FORMAT, "'%s" PARTIAL "': the results from number %llu on are not what they "
                                                       "should be; remove the file to begin anew", r->path,
                                                       (unsigned long long)(k->first - 1));
}

static int take_up(struct results *r, uint64_t *seed, struct err *e)
{
    size_t n = 0;
    const struct journal_record *k = journal_records(r->journal, &n);
    struct head was;
    if (k[0].n != 1 || k[0].bytes != sizeof was)
        return err_set(e, ERR_FORMAT, "'%s" PARTIAL "' does not begin with what made it; remove it to begin anew", r->path);
    int code = journal_read(r->journal, &k[0], 0, &was, sizeof was, e);
    code = code < 0 ? code : check_head(r, &was, *seed, e);
    for (size_t i = 1; i < n && code == 0; i++)
        code = check_lines(r, &k[i], e);
    if (code < 0)
        return code;
    if (journal_cut(r->journal))
        log_info("'%s" PARTIAL "': %llu bytes behind its last whole record are made again", r->path,
                 (unsigned long long)journal_cut(r->journal));
    *seed = was.seed;
    r->n = r->made = journal_next(r->journal) - 1;
    return 0;
}

static int begin(struct results *r, uint64_t *seed, struct err *e)
{
    struct head h;
    pick_seed(seed);
    memset(&h, 0, sizeof h);
    h.of = r->of;
    h.seed = *seed;
    int code = journal_begin(r->journal, 0, 1, sizeof h, e);
    code = code < 0 ? code : journal_write(r->journal, &h, sizeof h, e);
    return code < 0 ? code : journal_end(r->journal, e);
}

/* ---- opening ---- */

static int open_journal(struct results *r, int resume, uint64_t *seed, struct err *e)
{
    static const char kind[] = "results of thermo-run generate --prompts";
    size_t len = strlen(r->path) + sizeof PARTIAL, n = 0;
    char *name = malloc(len);
    if (!name)
        return err_set(e, ERR_NOMEM, "out of memory for a name");
    snprintf(name, len, "%s" PARTIAL, r->path);
    int code = resume && access(name, F_OK) < 0 && errno == ENOENT ? err_sys(e, ERR_INPUT, "--resume: '%s'", name) : 0;
    code = code < 0 ? code : journal_open(name, hash_128(kind, sizeof kind), "the command", resume, &r->journal, e);
    free(name);
    if (code < 0)
        return code;
    journal_records(r->journal, &n);
    if ((code = n ? take_up(r, seed, e) : begin(r, seed, e)) < 0)
        return code;
    int fd = journal_descriptor(r->journal, e);
    r->file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (fd >= 0 && !r->file)
        close(fd);
    return fd < 0 ? fd : !r->file || fseeko(r->file, (off_t)journal_place(r->journal), SEEK_SET) < 0 ? failed(r, e) : 0;
}

/* Standard output, a device or a pipe: line by line. */
static int open_as_is(struct results *r, uint64_t *seed, struct err *e)
{
    char line[512];
    int fd = r->path ? file_open_in_place(r->path, e) : -1;
    if (r->path && fd < 0)
        return fd;
    r->file = r->path ? fdopen(fd, "wb") : stdout;
    if (!r->file) {
        close(fd);
        return failed(r, e);
    }
    pick_seed(seed);
    r->seed = *seed;
    head_line(r, line, sizeof line);
    fputs(line, r->file);
    return results_flush(r, e);
}

int results_open(struct results *r, const char *path, int resume, const struct results_of *of, uint64_t *seed, struct err *e)
{
    *r = (struct results){ .of = *of };
    r->path = path ? strdup(path) : NULL;
    if (path && !r->path)
        return err_set(e, ERR_NOMEM, "out of memory for a name");
    if (path && resume && file_in_place(path))
        return err_set(e, ERR_USAGE, "--resume: '%s' is a device or a pipe, which holds no interrupted run", path);
    int code = !path || file_in_place(path) ? open_as_is(r, seed, e) : open_journal(r, resume, seed, e);
    r->seed = *seed;
    return code;
}

/* ---- lines ---- */

int results_flush(struct results *r, struct err *e)
{
    if (!r->path)
        return file_stdout(e);
    if (!r->journal)
        return fflush(r->file) != 0 || ferror(r->file) ? failed(r, e) : 0;
    int64_t now = progress_now_ns();
    if (!r->waiting++)
        r->waiting_since = now;
    off_t at = ftello(r->file);
    return now - r->waiting_since >= SYNC_NS || at < 0 || (uint64_t)at - journal_place(r->journal) >= SYNC_BYTES ? results_sync(r, e) : 0;
}

int results_sync(struct results *r, struct err *e)
{
    if (!r->journal || !r->waiting)
        return 0;
    off_t at = fflush(r->file) != 0 || ferror(r->file) ? -1 : ftello(r->file);
    if (at < 0)
        return failed(r, e);
    int code = journal_take(r->journal, 1 + r->made, r->waiting, (uint64_t)at - journal_place(r->journal), e);
    if (code < 0)
        return code;
    r->made += r->waiting;
    r->waiting = 0;
    return fseeko(r->file, (off_t)journal_place(r->journal), SEEK_SET) < 0 ? failed(r, e) : 0;
}

static int copy_record(const struct results *r, const struct journal_record *k, struct file_out *o, struct err *e)
{
    char some[16384];
    int code = 0;
    for (uint64_t at = 0; at < k->bytes && code == 0; at += sizeof some) {
        size_t n = k->bytes - at < sizeof some ? (size_t)(k->bytes - at) : sizeof some;
        code = journal_read(r->journal, k, at, some, n, e);
        code = code < 0 ? code : file_out_write(o, some, n, e);
    }
    return code;
}

int results_commit(struct results *r, struct err *e)
{
    struct file_out o;
    char line[512];
    size_t n = 0;
    if (!r->journal)
        return results_flush(r, e);
    int code = results_sync(r, e);
    code = code < 0 ? code : file_out_open(&o, r->path, e);
    if (code < 0)
        return code;
    const struct journal_record *k = journal_records(r->journal, &n);
    code = file_out_write(&o, line, (size_t)head_line(r, line, sizeof line), e);
    for (size_t i = 1; i < n && code == 0; i++)
        code = copy_record(r, &k[i], &o, e);
    if (code < 0) {
        file_out_abort(&o);
        return code;
    }
    if ((code = file_out_commit(&o, e)) < 0)
        return code;
    journal_close(r->journal, 1);
    r->journal = NULL;
    return 0;
}

void results_close(struct results *r)
{
    if (r->path && r->file)
        fclose(r->file);
    journal_close(r->journal, 0);
    free(r->path);
    *r = (struct results){ 0 };
}
