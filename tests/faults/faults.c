/* faults: runs the programs on a tiny model with one fault at a time and holds what comes of it against what must hold:
 * the exit status is a documented one, a failure is explained, nothing crashes or hangs, inputs stay, an output is as before
 * or complete, nothing else is left (but after SIGKILL, where the next run must still do its work), and success means the
 * output of a run without faults. TAP: one point per command and kind of fault. */
#include "tests/faults/cases.h"
#include "tests/faults/scene.h"
#include "tests/faults/trial.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CALLS = 1 << 16, SHOWN = 12 };

enum kind { ALLOC, ALLOC_ON, ERROR, ERROR_ON, SHORT, KILL, POWER, KINDS };
static const char *const kind_names[] = { "allocation", "allocations from then on", "system call", "system calls from then on",
                                          "short read or write", "SIGKILL", "power lost" };
static const char *const kind_keys[] = { "alloc", "alloc-on", "call", "call-on", "short", "kill", "power" };

struct fault {
    int64_t at;
    int nr, error; /* of a system call */
};

static struct {
    const char *only, *kinds, *json;
    int most;      /* faults per command and kind; 0: all */
    uint64_t seed;
    int part, parts;
    bool sanitized;
} opts = { .parts = 1, .seed = 1 };

static int points, bad_points;
static bool any_known;
static FILE *json;
static struct trial_call calls[CALLS];
static size_t n_calls;

static uint64_t next_random(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* ---- which faults ---- */

struct faults {
    struct fault *v;
    size_t n, room, calls; /* calls: of how many the faults are chosen */
};

static void add(struct faults *f, int64_t at, int nr, int error)
{
    if (f->n == f->room) {
        f->room = f->room ? 2 * f->room : 256;
        f->v = realloc(f->v, f->room * sizeof *f->v);
        if (!f->v)
            exit(1);
    }
    f->v[f->n++] = (struct fault){ at, nr, error };
}

static int by_stack(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Every way to an allocation (the twelve innermost callers): the first time it is taken, and the last. */
static void choose_allocations(struct faults *f, const struct shim_shared *s)
{
    size_t n = (size_t)s->calls < SHIM_CALLS ? (size_t)s->calls : SHIM_CALLS;
    uint64_t *key = malloc((n + 1) * sizeof *key);
    if (!key)
        exit(1);
    f->calls = (size_t)s->calls;
    for (size_t i = 0; i < n; i++)
        key[i] = (uint64_t)s->stacks[i] << 32 | i;
    qsort(key, n, sizeof *key, by_stack);
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 || key[i] >> 32 != key[i - 1] >> 32;
        bool last = i + 1 == n || key[i] >> 32 != key[i + 1] >> 32;
        if (first || last)
            add(f, (int64_t)(key[i] & 0xffffffff), 0, 0);
    }
    free(key);
}

/* A sanitizer's own memory is not the program's. */
static bool always(const struct trial_call *c)
{
    return opts.sanitized && (c->nr == SYS_mmap || c->nr == SYS_mprotect || c->nr == SYS_madvise || c->nr == SYS_mremap ||
                              c->nr == SYS_prctl || c->nr == SYS_clone || c->nr == SYS_clone3);
}

static void choose_calls(struct faults *f, enum kind k)
{
    f->calls = n_calls;
    for (size_t i = 0; i < n_calls; i++) {
        const struct trial_call *c = &calls[i];
        if (always(c))
            continue;
        if (k == SHORT && (trial_is_read(c->nr) || trial_is_write(c->nr)) && c->len > 1 && c->fd != 2)
            add(f, c->at, c->nr, 0);
        else if ((k == KILL || k == POWER) && c->changes)
            add(f, c->at, c->nr, 0);
        else if (k == ERROR || k == ERROR_ON)
            for (const int *e = trial_errors(c); *e; e++)
                if (k == ERROR || (*e != 4 && *e != 11)) /* EINTR and EAGAIN do not last */
                    add(f, c->at, c->nr, *e);
    }
}

/* opts.most of them, by the seed; they stay in order. */
static void sample(struct faults *f, uint64_t seed)
{
    size_t want = opts.most > 0 ? (size_t)opts.most : f->n, kept = 0;
    for (size_t i = 0; i < f->n; i++)
        if (next_random(&seed) % (f->n - i) < want - kept)
            f->v[kept++] = f->v[i];
    f->n = kept;
}

/* ---- one fault ---- */

static const enum trial_kind trial_kinds[] = { TRIAL_ALLOC, TRIAL_ALLOC, TRIAL_CALL, TRIAL_CALL, TRIAL_SHORT, TRIAL_KILL, TRIAL_POWER };

static void explain(const struct fault_case *c, enum kind k, const struct fault *f, const struct trial *t, const char *why)
{
    printf("# %s, %s %" PRId64 ": %s\n", c->name, kind_names[k], f->at, why);
    if (t->what[0])
        printf("#   %s%s%s\n", t->what, f->error ? ": " : "", f->error ? strerror(f->error) : "");
    if (k <= ALLOC_ON)
        for (int i = 0; i < scene_shared()->n_frames && i < SHIM_FRAMES; i++)
            printf("#   %s+0x%" PRIx64 "\n", scene_shared()->frames[i].module, scene_shared()->frames[i].offset);
    scene_show_errors();
}

enum verdict { GOOD, BAD, MISSED, KNOWN };

static enum verdict try(const struct fault_case *c, enum kind k, const struct fault *f, int *shown)
{
    struct trial t = { .kind = trial_kinds[k], .at = f->at, .want = f->nr, .error = f->error, .on = k == ALLOC_ON || k == ERROR_ON };
    char why[512];
    scene_prepare(c, f->at % 2 == 0);
    if (scene_run(c, &t) < 0) {
        printf("Bail out! %s\n", t.what);
        exit(1);
    }
    if (k <= ALLOC_ON ? scene_shared()->n_frames == 0 : !t.fired)
        return MISSED;
    int r = scene_judge(c, &t, why, sizeof why);
    if (r == 0)
        return GOOD;
    if (r == -1 && k <= ALLOC_ON && scene_known(scene_shared(), &t))
        return KNOWN;
    if ((*shown)++ < SHOWN)
        explain(c, k, f, &t, why);
    return BAD;
}

static void report(const struct fault_case *c, enum kind k, const struct faults *f, const size_t got[4])
{
    points++;
    bad_points += got[BAD] > 0;
    any_known |= got[KNOWN] > 0;
    printf("%sok %d - %s, %s: %zu faults in %zu calls, %zu not reached%s%s\n", got[BAD] ? "not " : "", points, c->name, kind_names[k],
           f->n, f->calls, got[MISSED], got[KNOWN] ? ", some end in a library's known abort" : "", "");
    if (got[BAD])
        printf("# %zu of %zu did not hold\n", got[BAD], f->n);
    fflush(stdout);
    if (json)
        fprintf(json, "{\"program\":\"%s\",\"case\":\"%s\",\"kind\":\"%s\",\"calls\":%zu,\"faults\":%zu,\"held\":%zu,\"failed\":%zu,"
                "\"not_reached\":%zu,\"known\":%zu}\n", c->argv[0], c->name, kind_keys[k], f->calls, f->n, got[GOOD], got[BAD],
                got[MISSED], got[KNOWN]);
}

static void run_kind(const struct fault_case *c, enum kind k, uint64_t seed)
{
    struct faults f = { 0 };
    size_t got[4] = { 0 };
    int shown = 0;
    if (k <= ALLOC_ON)
        choose_allocations(&f, scene_shared());
    else
        choose_calls(&f, k);
    sample(&f, seed * KINDS + k);
    for (size_t i = 0; i < f.n; i++)
        got[try(c, k, &f.v[i], &shown)]++;
    if (f.n)
        report(c, k, &f, got);
    free(f.v);
}

static bool listed(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = list; p && (p = strstr(p, name)); p += len)
        if ((p == list || p[-1] == ',') && (p[len] == '\0' || p[len] == ','))
            return true;
    return !list;
}

static void run_case(const struct fault_case *c, uint64_t seed)
{
    char why[512];
    struct trial t = { .record = calls, .record_max = CALLS };
    scene_prepare(c, false);
    if (scene_run(c, &t) < 0) {
        printf("1..0 # SKIP %s\n", t.what);
        exit(77);
    }
    n_calls = t.record_n;
    if (scene_expect(c, &t, why, sizeof why) < 0) {
        printf("Bail out! %s without faults: %s\n", c->name, why);
        scene_show_errors();
        exit(1);
    }
    for (enum kind k = ALLOC; k < KINDS; k++) {
        if (!listed(opts.kinds, kind_keys[k]) || (opts.sanitized && k <= ALLOC_ON))
            continue;
        if (k <= ALLOC_ON) { /* fills scene_shared with the stacks */
            struct trial count = { .kind = TRIAL_ALLOC, .at = -1 };
            scene_prepare(c, false);
            if (scene_run(c, &count) < 0)
                exit(1);
        }
        run_kind(c, k, seed);
    }
}

static void options(int argc, char **argv)
{
    int o;
    while ((o = getopt(argc, argv, "c:k:j:m:s:p:S")) >= 0)
        switch (o) {
        case 'c': opts.only = optarg; break;
        case 'k': opts.kinds = optarg; break;
        case 'j': opts.json = optarg; break;
        case 'm': opts.most = atoi(optarg); break;
        case 's': opts.seed = strtoull(optarg, NULL, 0); break;
        case 'S': opts.sanitized = true; break;
        case 'p':
            if (sscanf(optarg, "%d/%d", &opts.part, &opts.parts) == 2 && opts.parts > 0)
                break;
            /* fall through */
        default:
            fprintf(stderr, "usage: faults [-c CASE,...] [-k KIND,...] [-m MOST] [-s SEED] [-p PART/PARTS] [-j JSON] [-S] BIN SHIM\n");
            exit(2);
        }
}

int main(int argc, char **argv)
{
    options(argc, argv);
    if (argc - optind != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (opts.json && !(json = fopen(opts.json, "w")))
        return perror(opts.json), 1;
    scene_open(argv[optind], opts.sanitized ? NULL : argv[optind + 1]);
    for (size_t i = 0; i < n_fault_cases; i++)
        if ((int)(i % (size_t)opts.parts) == opts.part && listed(opts.only, fault_cases[i].name))
            run_case(&fault_cases[i], opts.seed + i);
    if (opts.sanitized)
        printf("# allocations: left out, a sanitizer brings its own\n");
    if (any_known)
        scene_list_known();
    printf("1..%d\n", points);
    if (json)
        fclose(json);
    return bad_points > 0;
}
