/* See the header for the order of things. Freeing is fallocate's hole punching: the size stays, blocks go, what is left reads as zeros. */
#include "packer/consume.h"

#include "common/base/file.h"
#include "common/base/journal.h"
#include "common/model/gguf_consumed.h"
#include "packer/write.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEPS      200         /* of a source between checkpoints */
#define LEAST_STEP (1u << 20)  /* or so much: a checkpoint has a few KiB of its own */
#define NEAR       65536       /* padding between tensors, and blocks that two of them share */

struct shard {
    int fd;
    char *path;
    uint64_t size;              /* without the mark */
    int marked;
    char pack[GGUF_CONSUMED_PATH];
};

struct consume {
    struct shard *shards;
    int n_shards;
    const struct gguf *gguf;
    struct journal *journal;
    char pack[PATH_MAX];        /* the name that the mark gives */
    uint64_t *packed, *freed;   /* [n_tensors] bytes of each from its beginning */
    const struct gguf_tensor **order; /* [n_tensors], as they lie in files */
    uint8_t *late;              /* [n_tensors] 1: shares bytes with another; 2: stays */
    uint64_t pending, step;     /* bytes packed since the last checkpoint */
};

/* ---- the files ---- */

static int take(struct shard *s, struct err *e)
{
    struct stat st;
    int r = gguf_consumed_open(s->path, &s->fd, e);
    if (r < 0)
        return r;
    if (fstat(s->fd, &st) < 0)
        return err_sys(e, ERR_INPUT, "cannot read '%s'", s->path);
    const struct file f = { .fd = s->fd, .size = (uint64_t)st.st_size, .path = s->path };
    s->marked = gguf_consumed_by(&f, s->pack);
    s->size = f.size - (s->marked ? GGUF_CONSUMED_BYTES : 0);
    return 0;
}

int consume_new(const char *model, struct consume **out, struct err *e)
{
    struct gguf *g;
    struct consume *c = calloc(1, sizeof *c);
    int r = c ? gguf_open_consumed(model, NULL, &g, e) : err_set(e, ERR_NOMEM, "--consume");
    if (r < 0) {
        free(c);
        return r;
    }
    if (!(c->shards = calloc((size_t)g->n_shards, sizeof *c->shards)))
        r = err_set(e, ERR_NOMEM, "--consume");
    for (int i = 0; i < g->n_shards && r == 0; i++, c->n_shards++) {
        c->shards[i].fd = -1;
        if (!(c->shards[i].path = strdup(g->shards[i].path)))
            r = err_set(e, ERR_NOMEM, "--consume");
    }
    gguf_close(g); /* its descriptors are not those of others */
    for (int i = 0; i < c->n_shards && r == 0; i++)
        r = take(&c->shards[i], e);
    if (r == 0)
        *out = c;
    else
        consume_free(c);
    return r;
}

void consume_free(struct consume *c)
{
    char path[PATH_MAX + 16];
    int begun = 0;
    if (!c)
        return;
    for (int i = 0; i < c->n_shards; i++) {
        if (c->shards[i].fd >= 0)
            close(c->shards[i].fd);
        free(c->shards[i].path);
        begun |= c->shards[i].marked;
    }
    if (c->journal && !begun && snprintf(path, sizeof path, "%s" WRITE_SUFFIX, c->pack) < (int)sizeof path)
        unlink(path);
    journal_close(c->journal, !begun);
    free(c->shards);
    free(c->packed);
    free(c->freed);
    free(c->late);
    free(c->order);
    free(c);
}

static int name_of(const char *path, char out[PATH_MAX], struct err *e)
{
    char cwd[PATH_MAX];
    if (realpath(path, out))
        return 0;
    if (*path != '/' && !getcwd(cwd, sizeof cwd))
        return err_sys(e, ERR_SYS, "the current folder");
    if (snprintf(out, PATH_MAX, "%s%s%s", *path == '/' ? "" : cwd, *path == '/' ? "" : "/", path) >= PATH_MAX)
        return err_set(e, ERR_LIMIT, "'%s': the path is too long", path);
    return 0;
}

int consume_begun(const struct consume *c, const char *pack, struct err *e)
{
    char name[PATH_MAX], other[PATH_MAX];
    int r = name_of(pack, name, e), begun = 0;
    for (int i = 0; i < c->n_shards && r == 0; i++) {
        const struct shard *s = &c->shards[i];
        if (!s->marked)
            continue;
        begun = 1;
        if (name_of(s->pack, other, e) < 0 || strcmp(other, name))
            return err_set(e, ERR_MISMATCH, "'%s' was consumed by pack '%s', or is being: give --out that name", s->path, s->pack);
    }
    return r < 0 ? r : begun;
}

/* ---- the journal ---- */

static int put_pieces(struct consume *c, struct source *s, struct err *e)
{
    const struct gguf *g = s->gguf;
    uint64_t n, piece, all = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++)
        all += gguf_pieces(g, &g->tensors[i], &n, &piece) ? n * sizeof n : 0;
    int r = journal_begin(c->journal, 0, 1, all, e);
    for (uint64_t i = 0; i < g->n_tensors && r == 0; i++) {
        const uint64_t *p = gguf_pieces(g, &g->tensors[i], &n, &piece);
        r = p ? journal_write(c->journal, p, n * sizeof *p, e) : 0;
    }
    return r < 0 ? r : journal_end(c->journal, e);
}

static int take_pieces(struct consume *c, struct source *s, const struct journal_record *rec, struct err *e)
{
    struct gguf *g = s->gguf;
    uint64_t n, piece, at = 0;
    int r = 0;
    for (uint64_t i = 0; i < g->n_tensors && r == 0; i++) {
        if (g->tensors[i].memory)
            continue;
        gguf_pieces(g, &g->tensors[i], &n, &piece);
        uint64_t *p = malloc((n + 1) * sizeof *p);
        r = p ? journal_read(c->journal, rec, at, p, n * sizeof *p, e) : err_set(e, ERR_NOMEM, "checksums of '%s'", s->path);
        r = r < 0 ? r : gguf_take_pieces(g, &g->tensors[i], p, e);
        free(p);
        at += n * sizeof *p;
    }
    return r == 0 && at != rec->bytes ? err_set(e, ERR_MISMATCH, "the journal of '%s' is of another model", c->pack) : r;
}

/* In the file. */
static int by_place(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a, *y = *(const struct gguf_tensor *const *)b;
    if (!x->memory != !y->memory)
        return x->memory ? 1 : -1; /* behind all that is in files */
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint64_t end_of(const struct gguf_tensor *t)
{
    uint64_t last = t->piece_bytes ? (t->bytes - 1) / t->piece_bytes : 0;
    return t->piece_bytes ? t->offset + last * t->stride_bytes + t->piece_bytes : t->offset + t->bytes;
}

static const struct gguf_tensor **in_place(const struct gguf *g, struct err *e)
{
    const struct gguf_tensor **all = calloc(g->n_tensors + 1, sizeof *all);
    for (uint64_t i = 0; all && i < g->n_tensors; i++)
        all[i] = &g->tensors[i];
    if (all)
        qsort(all, g->n_tensors, sizeof *all, by_place);
    else
        err_set(e, ERR_NOMEM, "--consume");
    return all;
}

static int find_late(struct consume *c, const struct source *s, struct err *e)
{
    const struct gguf *g = c->gguf;
    const struct gguf_tensor **all = c->order = in_place(g, e);
    if (!all)
        return e->code;
    for (uint64_t i = 0, widest = 0; i + 1 < g->n_tensors && !all[i + 1]->memory; i++) {
        if (end_of(all[i]) > end_of(all[widest]) || all[i]->shard != all[widest]->shard)
            widest = i;
        if (all[widest]->shard == all[i + 1]->shard && end_of(all[widest]) > all[i + 1]->offset)
            c->late[all[widest] - g->tensors] = c->late[all[i + 1] - g->tensors] = 1;
    }
    for (int l = 0; l < model_depth(&s->model->h); l++)
        if (s->model->layer[l][MODEL_FFN_THRESHOLD])
            c->late[s->model->layer[l][MODEL_FFN_THRESHOLD] - g->tensors] = 2;
    return 0;
}

int consume_begin(struct consume *c, struct source *s, const char *out, struct hash128 config, struct err *e)
{
    char path[PATH_MAX];
    size_t n;
    int r = name_of(out, c->pack, e);
    c->gguf = s->gguf;
    c->packed = calloc(s->gguf->n_tensors + 1, sizeof *c->packed);
    c->freed = calloc(s->gguf->n_tensors + 1, sizeof *c->freed);
    c->late = calloc(s->gguf->n_tensors + 1, 1);
    if (r == 0 && (!c->packed || !c->freed || !c->late))
        r = err_set(e, ERR_NOMEM, "--consume");
    for (uint64_t i = 0; i < s->gguf->n_tensors; i++)
        c->step += s->gguf->tensors[i].bytes / STEPS;
    c->step = c->step > LEAST_STEP ? c->step : LEAST_STEP;
    if (r == 0 && snprintf(path, sizeof path, "%s.partial", c->pack) >= (int)sizeof path)
        r = err_set(e, ERR_LIMIT, "'%s': the path is too long", out);
    if (r < 0 || (r = find_late(c, s, e)) < 0 ||
        (r = journal_open(path, config, "model, trace, plan, --requant-from, --predictors and version", 1, &c->journal, e)) < 0)
        return r;
    const struct journal_record *rec = journal_records(c->journal, &n);
    if (n == 0) {
        for (int i = 0; i < c->n_shards; i++)
            if (c->shards[i].marked)
                return err_set(e, ERR_MISMATCH, "'%s' was begun to be consumed by '%s', whose journal '%s' is gone or damaged: what was "
                               "freed of it cannot be got back; bring the model's file again", c->shards[i].path, c->pack, path);
        return (r = source_verify(s, e)) < 0 ? r : put_pieces(c, s, e);
    }
    return take_pieces(c, s, rec, e);
}

size_t consume_records(const struct consume *c)
{
    size_t n;
    journal_records(c->journal, &n);
    return n - 1;
}

int consume_record(struct consume *c, size_t i, uint8_t **record, size_t *len, struct err *e)
{
    size_t n;
    const struct journal_record *r = journal_records(c->journal, &n) + i + 1;
    if (!(*record = malloc(r->bytes + 1)))
        return err_set(e, ERR_NOMEM, "a checkpoint of '%s'", c->pack);
    *len = r->bytes;
    return journal_read(c->journal, r, 0, *record, *len, e);
}

/* ---- freeing ---- */

static int mark_all(struct consume *c, struct err *e)
{
    int r = 0;
    for (int i = 0; i < c->n_shards && r == 0; i++) {
        struct shard *s = &c->shards[i];
        if (s->marked)
            continue;
        r = gguf_consumed_mark(s->fd, s->size, s->path, c->pack, e);
        s->marked = r == 0;
    }
    return r;
}

static int punch(const struct shard *s, uint64_t from, uint64_t to, struct err *e)
{
    if (to > s->size)
        to = s->size;
    if (from < to && fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) < 0)
        return err_sys(e, ERR_SYS, "freeing bytes %llu to %llu of '%s'", (unsigned long long)from, (unsigned long long)to, s->path);
    return 0;
}

/* Bytes [from, to) of a tensor. */
static int punch_tensor(const struct consume *c, const struct gguf_tensor *t, uint64_t from, uint64_t to, struct err *e)
{
    const struct shard *s = &c->shards[t->shard];
    int r = 0;
    if (!t->piece_bytes)
        return punch(s, t->offset + from, t->offset + to, e);
    for (uint64_t n; from < to && r == 0; from += n) {
        uint64_t piece = from / t->piece_bytes, in = from % t->piece_bytes, at = t->offset + piece * t->stride_bytes + in;
        n = t->piece_bytes - in < to - from ? t->piece_bytes - in : to - from;
        r = punch(s, at, at + n, e);
    }
    return r;
}

/* Nothing of it is needed, nor of what lies between it and its neighbour, which is near. */
static int gone(const struct consume *c, const struct gguf_tensor *t, const struct gguf_tensor *neighbour)
{
    uint64_t i = (uint64_t)(t - c->gguf->tensors);
    int after = t->shard == neighbour->shard && t->offset > neighbour->offset, before = t->shard == neighbour->shard && !after;
    return !t->memory && !t->piece_bytes && !c->late[i] && c->packed[i] == t->bytes &&
           ((after && t->offset < end_of(neighbour) + NEAR) || (before && neighbour->offset < end_of(t) + NEAR));
}

static int free_packed(struct consume *c, struct err *e)
{
    const struct gguf *g = c->gguf;
    int r = 0;
    for (uint64_t k = 0; k < g->n_tensors && r == 0; k++) {
        const struct gguf_tensor *t = c->order[k];
        uint64_t n, piece, i = (uint64_t)(t - g->tensors), to = c->packed[i];
        gguf_pieces(g, t, &n, &piece);
        to = to == t->bytes ? to : to / piece * piece; /* who reads on compares the whole of a piece */
        if (to <= c->freed[i] || t->memory || c->late[i])
            continue;
        if (t->piece_bytes) {
            r = punch_tensor(c, t, c->freed[i], to, e);
        } else { /* with a block that it has in common with a neighbour that is gone */
            uint64_t a = t->offset + c->freed[i], z = t->offset + to;
            if (!c->freed[i] && k > 0 && gone(c, c->order[k - 1], t))
                a = a - c->order[k - 1]->offset < NEAR ? c->order[k - 1]->offset : a - NEAR;
            if (to == t->bytes && k + 1 < g->n_tensors && gone(c, c->order[k + 1], t))
                z = end_of(c->order[k + 1]) < z + NEAR ? end_of(c->order[k + 1]) : z + NEAR;
            r = punch(&c->shards[t->shard], a, z, e);
        }
        c->freed[i] = to;
    }
    return r;
}

void consume_packed(struct consume *c, const struct gguf_tensor *t, uint64_t done)
{
    uint64_t *p = &c->packed[t - c->gguf->tensors];
    c->pending += done - *p;
    *p = done;
}

uint64_t *consume_prefixes(struct consume *c)
{
    return c->packed;
}

int consume_due(const struct consume *c, uint64_t next)
{
    return c->pending && c->pending + next > c->step;
}

int consume_checkpoint(struct consume *c, const void *record, size_t len, struct err *e)
{
    int r = 0;
    if (record && ((r = journal_begin(c->journal, journal_next(c->journal), 1, len, e)) < 0 ||
                   (r = journal_write(c->journal, record, len, e)) < 0 || (r = journal_end(c->journal, e)) < 0))
        return r;
    c->pending = 0;
    return (r = mark_all(c, e)) < 0 ? r : free_packed(c, e);
}

/* Neighbours together, with what lies between them: blocks that two share. */
int consume_rest(struct consume *c, struct err *e)
{
    const struct gguf *g = c->gguf;
    const struct gguf_tensor **all = c->order;
    int r = 0, shard = -1;
    uint64_t from = 0, to = 0;
    for (uint64_t i = 0; i < g->n_tensors && r == 0; i++) {
        const struct gguf_tensor *t = all[i];
        uint64_t k = (uint64_t)(t - g->tensors);
        if (t->memory || c->late[k] == 2 || c->packed[k] != t->bytes)
            continue;
        if (t->piece_bytes) { /* it is not known here what lies between its pieces */
            r = punch_tensor(c, t, 0, t->bytes, e);
            continue;
        }
        if (t->shard != shard || t->offset > to + 4096) {
            r = shard < 0 ? 0 : punch(&c->shards[shard], from, to, e);
            from = t->offset, shard = t->shard, to = 0;
        }
        to = end_of(t) > to ? end_of(t) : to;
    }
    if (r == 0 && shard >= 0)
        r = punch(&c->shards[shard], from, to, e);
    return r;
}

void consume_finished(struct consume *c)
{
    journal_close(c->journal, 1);
    c->journal = NULL;
}

uint64_t consume_space(const struct consume *c, const char *out, uint64_t pack_bytes, uint64_t unit)
{
    struct stat there, here;
    char path[PATH_MAX];
    uint64_t source = 0, freed = 0;
    for (int i = 0; i < c->n_shards; i++) {
        if (fstat(c->shards[i].fd, &here) < 0)
            return pack_bytes;
        source += c->shards[i].size;
        freed += c->shards[i].marked ? c->shards[i].size : 0;
    }
    const char *slash = strrchr(out, '/');
    snprintf(path, sizeof path, "%.*s", slash ? (int)(slash - out) + 1 : 1, slash ? out : ".");
    if (stat(path, &there) < 0 || there.st_dev != here.st_dev || freed)
        return freed ? unit : pack_bytes; /* what a run that goes on has written is there */
    return (pack_bytes > source ? pack_bytes - source : 0) + unit + 2 * c->step;
}

int consume_done(const struct consume *c, const char *out)
{
    char path[PATH_MAX + 16];
    struct stat st;
    struct err ignored = { 0 };
    snprintf(path, sizeof path, "%s" WRITE_SUFFIX, out);
    if (consume_begun(c, out, &ignored) <= 0 || lstat(path, &st) == 0 || lstat(out, &st) < 0)
        return 0;
    snprintf(path, sizeof path, "%s.partial", out);
    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode))
        unlink(path);
    return 1;
}
