/* How much longer a pass takes where a schema says which tokens may come: passes with and without one alternate in one process.
 *
 *     bench_masks MODEL PLAN SCHEMAS [PASSES [LOOK [SCHEMA]]]
 *
 * Of each line of SCHEMAS first LOOK masks (24), to find the three whose masks take longest at p99, or SCHEMA alone; then PASSES (400) with
 * masks and as many without: of one text each of the three, and of as many as the plan has sequences the worst. Texts are drawn at
 * temperature 1; tokens that close a value are helped, so that masks are of everything in a schema and not of the inside of one string; a
 * text that ends gives its place to another, and those without a schema have the lengths of those with one. A pass is a step of the
 * library: everything between two tokens. Masks are timed by the thread's CPU clock. */
#include "runtime/mask/mask.h"
#include "runtime/thermo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SCHEMAS = 512, LINE = 1 << 16, TEXTS = 64, BLOCK = 20, LENGTHS = 256, WORST = 3 };

static char *schemas[SCHEMAS];
static int n_schemas, n_open, n_drawn, lengths[LENGTHS], n_lengths, fixed;
static uint64_t open_ids[TEXTS], n_submitted;
static double mask_us;
static char biases[4096];

struct times {
    double *pass, *mask; /* of each pass, us */
    int n;
};

static double now_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_masks: %s\n", what);
    exit(1);
}

/* The linker puts these before the library's. */
int __real_mask_allowed(struct mask_text *t, uint64_t *bits, int *may_end, struct err *e);
int __wrap_mask_allowed(struct mask_text *t, uint64_t *bits, int *may_end, struct err *e);
int __real_mask_accept(struct mask_text *t, int32_t id, struct err *e);
int __wrap_mask_accept(struct mask_text *t, int32_t id, struct err *e);

int __wrap_mask_allowed(struct mask_text *t, uint64_t *bits, int *may_end, struct err *e)
{
    double start = now_us(CLOCK_THREAD_CPUTIME_ID);
    int r = __real_mask_allowed(t, bits, may_end, e);
    mask_us += now_us(CLOCK_THREAD_CPUTIME_ID) - start;
    return r;
}

int __wrap_mask_accept(struct mask_text *t, int32_t id, struct err *e)
{
    double start = now_us(CLOCK_THREAD_CPUTIME_ID);
    int r = __real_mask_accept(t, id, e);
    mask_us += now_us(CLOCK_THREAD_CPUTIME_ID) - start;
    return r;
}

static int sink(void *ctx, const struct thermo_event *ev)
{
    int masked = ctx != NULL;
    n_drawn += ev->type == THERMO_TOKEN && ev->token >= 0;
    if (ev->type != THERMO_END)
        return 0;
    if (ev->error.code)
        fail(ev->error.message);
    for (int i = 0; i < n_open; i++)
        if (open_ids[i] == ev->id)
            open_ids[i] = open_ids[--n_open];
    if (masked && strcmp(ev->stop, "interrupted") && ev->n_tokens > 0)
        lengths[n_lengths++ % LENGTHS] = ev->n_tokens;
    return 0;
}

static void submit(struct thermo *t, const char *schema)
{
    static char fields[LINE + 8192];
    struct thermo_error e;
    uint64_t k = n_submitted++;
    int have = n_lengths < LENGTHS ? n_lengths : LENGTHS;
    int n = schema || !have ? 64 : lengths[k % (uint64_t)have];
    int len = snprintf(fields, sizeof fields,
                       "{\"tokens\":[%d],\"n\":%d,\"temp\":1,\"top_k\":0,\"top_p\":1,\"seed\":%llu,\"ignore_eos\":true%s%s%s}",
                       300 + (int)(k % 97), n, (unsigned long long)k, biases, schema ? ",\"schema\":" : "", schema ? schema : "");
    const struct thermo_request q = { .size = sizeof q, .fields = fields, .fields_bytes = (size_t)len };
    if (thermo_submit(t, &q, sink, schema ? &fixed : NULL, &open_ids[n_open], &e) < 0)
        fail(e.message);
    n_open++;
}

/* n passes with `texts` open; those in which not each of them drew a token are not counted. */
static void passes(struct thermo *t, const char *schema, int texts, int n, struct times *out)
{
    struct thermo_error e;
    for (int tries = 0; n > 0 && tries < 100000; tries++) {
        while (n_open < texts)
            submit(t, schema);
        n_drawn = 0;
        mask_us = 0;
        double start = now_us(CLOCK_MONOTONIC);
        if (thermo_step(t, -1, &e) < 0)
            fail(e.message);
        double took = now_us(CLOCK_MONOTONIC) - start;
        if (n_drawn != texts || tries == 0)
            continue;
        out->pass[out->n] = took;
        out->mask[out->n++] = mask_us;
        n--;
    }
    if (n > 0)
        fail("texts of a schema end before they have a token");
    for (int i = 0; i < n_open; i++)
        thermo_cancel(t, open_ids[i]);
    while (n_open > 0)
        if (thermo_step(t, 0, &e) < 0)
            fail(e.message);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double at(double *v, int n, double p)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n ? v[(int)((double)(n - 1) * p)] : 0;
}

static struct times times_new(int n)
{
    struct times x = { malloc((size_t)n * sizeof(double)), malloc((size_t)n * sizeof(double)), 0 };
    if (!x.pass || !x.mask)
        fail("out of memory");
    return x;
}

static void compare(struct thermo *t, int schema, int texts, int n)
{
    struct times with = times_new(n + BLOCK), without = times_new(n + BLOCK);
    n_lengths = 0;
    while (with.n < n) {
        passes(t, schemas[schema], texts, BLOCK, &with);
        passes(t, NULL, texts, BLOCK, &without);
    }
    double p50 = at(without.pass, without.n, 0.5), p99 = at(without.pass, without.n, 0.99);
    double q50 = at(with.pass, with.n, 0.5), q99 = at(with.pass, with.n, 0.99);
    double m50 = at(with.mask, with.n, 0.5), m99 = at(with.mask, with.n, 0.99);
    printf("| %d | %d | %d | %.2f | %.2f | %.2f | %.2f | %.3f | %.3f | %.1f | %.1f | %.2f %% |\n", schema, texts, with.n, p50 / 1e3,
           q50 / 1e3, p99 / 1e3, q99 / 1e3, q50 / p50, q99 / p99, m50, m99, 100 * m99 / p50);
    fflush(stdout);
    free(with.pass);
    free(with.mask);
    free(without.pass);
    free(without.mask);
}

/* Tokens that close a string, an array or an object, go on to the next item, or end a number. */
static void help(struct thermo *t)
{
    int n = 0, len = 0;
    for (int id = 0; id < 1 << 22 && n < 8; id++) {
        size_t k;
        const char *s = thermo_piece(t, id, &k);
        if (s && k == 1 && strchr("\"}],", *s)) {
            len += snprintf(biases + len, sizeof biases - (size_t)len, "%s\"%d\":%d", n ? "," : ",\"logit_bias\":{", id,
                            *s == ',' ? 6 : 10);
            n++;
        }
    }
    snprintf(biases + len, sizeof biases - (size_t)len, "%s", n ? "}" : "");
}

int main(int argc, char **argv)
{
    static char line[LINE];
    static const char *const more[] = { "-q", NULL };
    struct thermo_error e = { 0 };
    struct thermo *t;
    int n = argc > 4 ? atoi(argv[4]) : 400, look = argc > 5 ? atoi(argv[5]) : 24, one = argc > 6 ? atoi(argv[6]) : -1;
    FILE *f = argc > 3 ? fopen(argv[3], "r") : NULL;
    if (!f || n < BLOCK || look < 1) {
        fprintf(stderr, "usage: bench_masks MODEL PLAN SCHEMAS [PASSES [LOOK [SCHEMA]]]\n");
        return 2;
    }
    while (n_schemas < SCHEMAS && fgets(line, sizeof line, f))
        if (!(schemas[n_schemas++] = strdup(line)))
            fail("out of memory");
    fclose(f);
    const struct thermo_options o = { .size = sizeof o, .model = argv[1], .plan = argv[2], .more = more, .schemas = 2 };
    if (thermo_open(&o, &t, &e) < 0)
        fail(e.message);
    help(t);
    char *about = thermo_describe(t);
    const char *sequences = about ? strstr(about, "\"sequences\":") : NULL;
    int texts = sequences ? atoi(sequences + 12) : 1, worst[WORST] = { -1, -1, -1 };
    double most[WORST] = { 0 };
    thermo_free(about);
    texts = texts < 1 ? 1 : texts > TEXTS ? TEXTS : texts;
    for (int i = 0; i < n_schemas && one < 0; i++) {
        struct times x = times_new(look);
        passes(t, schemas[i], 1, look, &x);
        double p99 = at(x.mask, x.n, 0.99);
        for (int k = 0; k < WORST; k++)
            if (p99 > most[k]) {
                for (int j = WORST - 1; j > k; j--) {
                    most[j] = most[j - 1];
                    worst[j] = worst[j - 1];
                }
                most[k] = p99;
                worst[k] = i;
                break;
            }
        free(x.pass);
        free(x.mask);
    }
    printf("| schema | texts | passes | p50 without, ms | with | p99 without, ms | with | p50, with over without | p99 | "
           "masks of a pass, us: p50 | p99 | of the pass |\n"
           "|--|--|--|--|--|--|--|--|--|--|--|--|\n");
    for (int k = 0; k < (one < 0 ? WORST : 1); k++)
        if (one >= 0 || worst[k] >= 0)
            compare(t, one < 0 ? worst[k] : one, 1, n);
    if (texts > 1)
        compare(t, one < 0 ? worst[0] : one, texts, n);
    thermo_close(t);
    for (int i = 0; i < n_schemas; i++)
        free(schemas[i]);
    return 0;
}
