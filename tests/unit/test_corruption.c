/* No byte of a damaged pack makes a wrong token: whatever is flipped, opening, loading or running says so, or the logits are
 * those of the whole pack, bit for bit. In every layout form, exact (tiles: dense), with experts, predicted with predictors in memory, and
 * predicted with predictors that are streamed. A sample of positions by default; CORRUPT=K/N tries every byte of each
 * pack whose offset is K modulo N (make corrupt: N processes). */
#include "common/base/bytes.h"
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/pack/pack_format.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COLD 24
#else
#define COLD 180    /* flips of cold neurons for each of the fourteen settings */
#endif
#define EACH 2      /* flips of every other section, */
#define FRONT 40    /* and of header and table */
#define TOKENS 4

enum { EXACT, EXPERTS, PREDICTED, STREAMED, MODES };
static const char *const mode_names[] = { "exact", "experts", "predicted", "streamed predictors" };
static const struct es_predict inputs = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .always = { 16, 0, 16 } };

/* Reads at once, on the caller's thread: thousands of short lives spend their time on threads otherwise. The other backends have
 * their turn in test_repair. */
struct at_once {
    struct io io;
    struct io_request *done[64];
    int n;
};

static int at_once_start(struct io *io, struct err *e)
{
    (void)e;
    io->direct = 1; /* leaves the page cache alone */
    return 0;
}

static int at_once_submit(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    struct at_once *a = (struct at_once *)io;
    (void)e;
    for (int i = 0; i < n; i++) {
        while (!io_advance(io, r[i], (int)pread(io->fd, r[i]->buf + r[i]->done, r[i]->len - r[i]->done,
                                                (off_t)(r[i]->offset + r[i]->done))))
            ;
        a->done[a->n++] = r[i];
    }
    return 0;
}

static int at_once_reap(struct io *io, struct io_request **out, int max, int wait, struct err *e)
{
    struct at_once *a = (struct at_once *)io;
    (void)wait, (void)e;
    int n = a->n < max ? a->n : max;
    memcpy(out, a->done, (size_t)n * sizeof *out);
    memmove(a->done, a->done + n, (size_t)(a->n - n) * sizeof *out);
    a->n -= n;
    return n;
}

static int at_once_stop(struct io *io)
{
    (void)io;
    return 0;
}

static const struct io_backend at_once_backend = {
    .name = "at once", .bytes = sizeof(struct at_once), .start = at_once_start, .submit = at_once_submit, .reap = at_once_reap,
    .stop = at_once_stop,
};

struct setting {
    struct engine_sample s;
    struct variant v;
    float whole[TOKENS * ES_VOCAB];
    int no_verify;
};

/* What became of a flip. */
enum outcome { OPEN, LOAD, RUN, HARMLESS, WRONG, OUTCOMES };
static const char *const outcome_names[] = { "opening", "loading", "running" };
static uint64_t seen[OUTCOMES];

static struct setting setting_of(enum layout_form form, int mode)
{
    struct setting t = { .s = { .form = form, .packed = form == LAYOUT_SPLIT, .cluster = 16, .block = 512,
                                .types = { QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0 }, .act = MODEL_ACT_RELU, .n_ff = 72,
                                .rank = 32, .predictor_type = QUANT_Q8_0 },
                         .v = { .threads = 1, .chunk = 1, .depth = 4, .lanes = 1, .hot = 3, .cold = 2, .prefetch = 1,
                                .backend = &at_once_backend, .buffered = 1 } };
    if (form == LAYOUT_TILES)
        t.s.cluster = 32, t.s.n_ff = 96, t.v.hot = 4;
    if (mode == EXPERTS)
        t.s.experts = 3, t.s.used = 2;
    t.v.predict = mode < PREDICTED ? NULL : &inputs;
    t.v.streamed = mode == STREAMED ? (1 << ES_LAYERS) - 1 : 0;
    return t;
}

static int forward(struct engine *g, float *out, struct err *e)
{
    for (int i = 0; i < TOKENS; i++) {
        const struct engine_token t = { ids[i], 0, i };
        int r = engine_forward(g, &t, 1, e);
        if (r < 0)
            return r;
        memcpy(out + i * ES_VOCAB, engine_logits(g, 0, 0, e), ES_VOCAB * sizeof *out);
    }
    return 0;
}

/* A whole life of the pack at `path`. */
static enum outcome attempt(const struct setting *t, float *out, struct err *e)
{
    struct pack *p = NULL;
    struct engine *g = NULL;
    enum outcome o = OPEN;
    *e = (struct err){ 0 };
    int r = pack_open(path, &p, e);
    if (r == 0) {
        struct engine_config c = config(p, &t->v);
        c.no_verify = t->no_verify;
        o = LOAD;
        if ((r = engine_open(&c, &g, e)) == 0) {
            o = RUN;
            r = forward(g, out, e);
        }
    }
    engine_close(g);
    pack_close(p);
    if (r < 0)
        return o;
    return memcmp(out, t->whole, sizeof t->whole) ? WRONG : HARMLESS;
}

static int prepare(struct setting *t)
{
    struct err e = { 0 };
    float out[TOKENS * ES_VOCAB];
    int r = es_pack(path, &t->s, &e);
    CHECK_MSG(r == 0, "%s", e.msg);
    if (r < 0)
        return 0;
    attempt(t, t->whole, &e);
    int same = attempt(t, out, &e) == HARMLESS;
    CHECK_MSG(same, "%s", e.msg);
    return same;
}

/* Flips a byte, sees what happens, and puts it back. */
static enum outcome flip(const struct setting *t, int fd, uint64_t at, struct err *e)
{
    float out[TOKENS * ES_VOCAB];
    uint8_t is, was;
    if (pread(fd, &was, 1, (off_t)at) != 1)
        return WRONG;
    is = was ^ (uint8_t)(1 + rnd(255));
    if (pwrite(fd, &is, 1, (off_t)at) != 1)
        return WRONG;
    enum outcome o = attempt(t, out, e);
    if (pwrite(fd, &was, 1, (off_t)at) != 1)
        return WRONG;
    seen[o]++;
    if (o == WRONG && !t->no_verify)
        printf("# byte %llu: other logits, and nothing was said\n", (unsigned long long)at);
    if (o < HARMLESS && !e->msg[0])
        printf("# byte %llu: no story\n", (unsigned long long)at);
    return o;
}

/* A byte of a neuron that is not resident. */
static uint64_t cold_byte(const struct pack *p)
{
    int which = (int)rnd((uint32_t)p->shapes.kind[0].n_parts), layer = (int)rnd(ES_LAYERS);
    int block = (int)rnd((uint32_t)model_ffn_blocks(&p->h));
    const struct layout_part *lp = &layout_of(&p->shapes, layer)->part[which];
    uint32_t first = p->shapes.l.cluster_neurons / lp->neurons_per_unit; /* 3 tenths of 72, 4 tenths of 96: one cluster */
    uint32_t unit = first + rnd(lp->n_units - first);
    uint32_t bytes = (uint32_t)layout_bytes(lp, layout_unit_neurons(layout_of(&p->shapes, layer), lp, unit));
    return pack_unit_offset(p, layer, block, which, unit) + rnd(bytes);
}

static void flip_sections(const struct setting *t, int fd)
{
    struct err e;
    uint8_t head[PACK_HEADER_BYTES], entry[PACK_ENTRY_BYTES];
    if (pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head)
        return;
    uint64_t toc = bytes_le64(head + 40);
    uint32_t n = bytes_le32(head + 48);
    for (int i = 0; i < FRONT; i++)
        flip(t, fd, i % 2 ? rnd(PACK_HEADER_BYTES) : toc + rnd(n * PACK_ENTRY_BYTES), &e);
    for (uint32_t i = 0; i < n; i++) {
        if (pread(fd, entry, sizeof entry, (off_t)(toc + i * PACK_ENTRY_BYTES)) != (ssize_t)sizeof entry)
            return;
        for (int k = 0; k < EACH && bytes_le64(entry + 72); k++)
            flip(t, fd, bytes_le64(entry + 64) + rnd((uint32_t)bytes_le64(entry + 72)), &e);
    }
}

static uint64_t part, parts; /* of the bytes; parts 0: a sample */

static void flip_all(const struct setting *t, int fd)
{
    struct stat st;
    struct err e;
    if (fstat(fd, &st) < 0)
        return;
    for (uint64_t at = part; at < (uint64_t)st.st_size; at += parts)
        flip(t, fd, at, &e);
}

static void test_setting(enum layout_form form, int mode)
{
    struct setting t = setting_of(form, mode);
    struct err e = { 0 };
    struct pack *p = NULL;
    int found = 0, named = 0;
    if (!prepare(&t) || pack_open(path, &p, &e) < 0)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    memset(seen, 0, sizeof seen);
    if (parts) {
        flip_all(&t, fd);
    } else {
        flip_sections(&t, fd);
        for (int i = 0; i < COLD; i++)
            if (flip(&t, fd, cold_byte(p), &e) <= RUN) {
                found++;
                named += !strstr(e.msg, "expert ") == (mode != EXPERTS) && strstr(e.msg, "layer ") &&
                         strstr(e.msg, "unit ") && strstr(e.msg, "bytes ") && e.code == ERR_IO;
            }
        CHECK_MSG(found > COLD / 4 && named == found, "%d of %d found, %d named: %s", found, COLD, named, e.msg);
    }
    printf("# %s, %s: %llu flips,", layout_form_name(form), mode_names[mode],
           (unsigned long long)(seen[OPEN] + seen[LOAD] + seen[RUN] + seen[HARMLESS] + seen[WRONG]));
    for (int i = OPEN; i <= RUN; i++)
        printf(" %llu found when %s,", (unsigned long long)seen[i], outcome_names[i]);
    printf(" %llu without effect, %llu wrong\n", (unsigned long long)seen[HARMLESS], (unsigned long long)seen[WRONG]);
    CHECK(seen[WRONG] == 0);
    /* The same flips matter: without verification they change what comes out. */
    memset(seen, 0, sizeof seen);
    t.no_verify = 1;
    for (int i = 0; i < COLD / 4; i++)
        flip(&t, fd, cold_byte(p), &e);
    CHECK_MSG(seen[WRONG] > 0, "nothing changed in %d flips", COLD / 4);
    close(fd);
    pack_close(p);
    unlink(path);
}

/* ---- reads that go wrong, of a file that is whole ---- */

enum trick { FLIPPED, MISDIRECTED };
struct trouble {
    enum trick how;
    int fd, every, n, done;
};

/* Every so many reads: one bit is another, or the bytes are those of the next block. */
static int disturb(void *ctx, const struct io_request *r, int result)
{
    struct trouble *t = ctx;
    if (result <= 0 || ++t->n % t->every)
        return result;
    t->done++;
    if (t->how == FLIPPED)
        r->buf[(uint32_t)t->n * 7919u % r->len] ^= 4;
    else if (pread(t->fd, r->buf, r->len, (off_t)(r->offset + 512)) <= 0)
        t->done--;
    return result;
}

static void test_repair(enum layout_form form, int mode, enum trick how, const struct io_backend *backend)
{
    struct setting t = setting_of(form, mode);
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine *g = NULL;
    float out[TOKENS * ES_VOCAB];
    if (!prepare(&t) || pack_open(path, &p, &e) < 0)
        return;
    struct trouble x = { .how = how, .fd = open(path, O_RDONLY | O_CLOEXEC), .every = 1 << 30 };
    t.v.backend = backend;
    struct engine_config c = config(p, &t.v);
    c.fault = disturb;
    c.fault_ctx = &x;
    int r = engine_open(&c, &g, &e);
    if (r == ERR_UNSUPPORTED && backend == &io_uring_backend) {
        printf("# %s\n", e.msg);
        goto done;
    }
    x.every = 3;
    x.n = 0;
    if (r == 0)
        r = forward(g, out, &e);
    CHECK_MSG(r == 0 && !memcmp(out, t.whole, sizeof out), "%s, %s: %s", layout_form_name(form), mode_names[mode], e.msg);
    struct engine_stats st = r == 0 ? engine_stats(g) : (struct engine_stats){ 0 };
    CHECK_MSG(x.done > 0 && st.repaired > 0 && st.verify_bytes > 0, "%d disturbed, %llu repaired", x.done,
              (unsigned long long)st.repaired);
done:
    engine_close(g);
    close(x.fd);
    pack_close(p);
    unlink(path);
}

/* Another pack of the same model, order and layout is written over this one while it runs: what is read from it is not taken for
 * this one's, whether or not its neurons are the same. */
static void test_replaced(enum layout_form form, int mode)
{
    struct setting t = setting_of(form, mode);
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine *g = NULL;
    float out[TOKENS * ES_VOCAB];
    if (!prepare(&t) || pack_open(path, &p, &e) < 0)
        return;
    struct engine_config c = config(p, &t.v);
    CHECK_MSG(engine_open(&c, &g, &e) == 0, "%s", e.msg);
    char other_path[300];
    snprintf(other_path, sizeof other_path, "%s.other", path);
    es_salt = 1;
    CHECK_MSG(es_pack(other_path, &t.s, &e) == 0, "%s", e.msg);
    es_salt = 0;
    int from = open(other_path, O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CLOEXEC);
    uint8_t b[4096];
    ssize_t n;
    while ((n = read(from, b, sizeof b)) > 0 && write(to, b, (size_t)n) == n)
        ;
    close(from);
    close(to);
    int r = g ? forward(g, out, &e) : 0;
    CHECK_MSG(r == ERR_IO && strstr(e.msg, "damaged"), "%s, %s: %d %s", layout_form_name(form), mode_names[mode], r, e.msg);
    engine_close(g);
    pack_close(p);
    unlink(path);
    unlink(other_path);
}

int main(void)
{
    static const struct io_backend *const backends[] = { &io_pread_backend, &io_uring_backend, &io_delay_backend };
    const char *which = getenv("CORRUPT");
    if (which && (sscanf(which, "%" SCNu64 "/%" SCNu64, &part, &parts) != 2 || part >= parts)) {
        fprintf(stderr, "CORRUPT=%s: K/N is needed, 0 <= K < N\n", which);
        return 2;
    }
    test_path(path, sizeof path, "corruption-%d.thermo", (int)getpid());
    kernels_init(cpu_detect());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = 3 + (i * 11 + 5) % (ES_VOCAB - 3);
    for (int form = 0; form < LAYOUT_FORMS; form++)
        for (int mode = 0; mode < (form == LAYOUT_TILES ? PREDICTED : MODES); mode++) {
            test_setting((enum layout_form)form, mode);
            test_replaced((enum layout_form)form, mode);
            for (int how = FLIPPED; how <= MISDIRECTED; how++)
                for (size_t b = 0; b < sizeof backends / sizeof *backends; b++)
                    test_repair((enum layout_form)form, mode, (enum trick)how, backends[b]);
        }
    return test_done();
}
