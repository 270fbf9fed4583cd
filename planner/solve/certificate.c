/* See certificate.h. The multiplier of a batch size is the slope of the hull segment at which the relaxation runs out of memory: by
 * duality the tangents of that slope meet the relaxed optimum exactly, so the refutation closes where solve_bound's value reaches
 * the claim. 128 bits hold every product: bytes and ticks are below 2^57, layers below 2^12. */
#include "planner/solve/certificate.h"

#include "common/base/grow.h"
#include "planner/solve/solve_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide;

/* A set of points that was written: define-fun dN. Its points are kept, for files are small beside their traces. */
struct set {
    struct solve_point *point;
    int n;
    uint64_t hash;
};

struct certificate {
    FILE *f;
    struct set *sets;
    int n_sets, cap_sets;
    int *table, n_table;        /* by hash, open addressing: index + 1; 0: free. n_table: a power of two */
    int checks, n_claims;
    int64_t claim;              /* the newest */
};

/* One batch size's multiplier p / q, and what follows of it. */
struct tangent {
    int64_t p, q;
    wide sum;                   /* of the layers' c */
};

struct certificate *certificate_new(FILE *f)
{
    struct certificate *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->f = f;
    fputs("(set-logic QF_NIA)\n", f);
    return c;
}

static void free_sets(struct certificate *c)
{
    for (int i = 0; i < c->n_sets; i++)
        free(c->sets[i].point);
    free(c->sets);
    free(c->table);
}

int certificate_done(struct certificate *c, struct err *e)
{
    if (!c)
        return 0;
    int bad = fflush(c->f) != 0 || ferror(c->f);
    free_sets(c);
    free(c);
    return bad ? err_set(e, ERR_IO, "the certificate could not be written: %s", strerror(errno)) : 0;
}

int certificate_checks(const struct certificate *c)
{
    return c->checks;
}

void certificate_say(struct certificate *c, const char *text)
{
    while (*text) {
        int n = (int)strcspn(text, "\n");
        fprintf(c->f, "; %.*s\n", n, text);
        text += n + (text[n] == '\n');
    }
}

#define CLAIM "(define-fun claim%d () Int %lld) ; bytes %llu context %d\n"

void certificate_claim(struct certificate *c, uint64_t memory, int context, int64_t claim)
{
    c->claim = claim;
    fprintf(c->f, CLAIM, ++c->n_claims, (long long)claim, (unsigned long long)memory, context);
}

int64_t certificate_claimed(const char *text, uint64_t memory, int context)
{
    int64_t least = 0;
    for (const char *at = text; (at = strstr(at, "(define-fun claim")); at++) {
        int index, its_context;
        long long claim;
        unsigned long long its_memory;
        if (sscanf(at, CLAIM, &index, &claim, &its_memory, &its_context) == 4 && its_memory == memory && its_context == context &&
            (least == 0 || claim < least))
            least = claim;
    }
    return least;
}

/* --- sets of points --- */

static uint64_t hash_of(const struct solve_curve *k)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ (uint64_t)k->n;
    for (int i = 0; i < k->n; i++) {
        h = (h ^ (uint64_t)k->point[i].bytes) * 0xff51afd7ed558ccdu;
        h = (h ^ (uint64_t)k->point[i].ticks ^ h >> 32) * 0xc4ceb9fe1a85ec53u;
    }
    return h ^ h >> 29;
}

static int same_points(const struct set *s, const struct solve_curve *k)
{
    if (s->n != k->n)
        return 0;
    for (int i = 0; i < k->n; i++)
        if (s->point[i].bytes != k->point[i].bytes || s->point[i].ticks != k->point[i].ticks)
            return 0;
    return 1;
}

/* The slot of a set with this hash and these points, or the free one where it belongs. */
static int *slot_of(struct certificate *c, uint64_t hash, const struct solve_curve *k)
{
    for (int i = (int)(hash & (uint64_t)(c->n_table - 1));; i = (i + 1) & (c->n_table - 1)) {
        int at = c->table[i] - 1;
        if (at < 0 || (c->sets[at].hash == hash && (!k || same_points(&c->sets[at], k))))
            return &c->table[i];
    }
}

static int grow_table(struct certificate *c, struct err *e)
{
    if (2 * (c->n_sets + 1) <= c->n_table)
        return 0;
    int n = c->n_table ? 2 * c->n_table : 256;
    int *table = calloc((size_t)n, sizeof *table);
    if (!table)
        return err_set(e, ERR_NOMEM, "out of memory for a certificate");
    free(c->table);
    c->table = table;
    c->n_table = n;
    for (int i = 0; i < c->n_sets; i++)
        for (int j = (int)(c->sets[i].hash & (uint64_t)(n - 1));; j = (j + 1) & (n - 1))
            if (!table[j]) {
                table[j] = i + 1;
                break;
            }
    return 0;
}

static void write_set(FILE *f, int index, const struct set *s)
{
    fprintf(f, "(define-fun d%d ((q Int) (p Int) (c Int)) Bool (and", index);
    for (int i = 0; i < s->n; i++)
        fprintf(f, "%s(>= (+ (* q %lld) (* p %lld)) c)", i % 4 ? " " : "\n  ", (long long)s->point[i].ticks, (long long)s->point[i].bytes);
    fputs("))\n", f);
}

/* Index of the set with the curve's points, written if it is new; negative: an error. */
static int set_of(struct certificate *c, const struct solve_curve *k, struct err *e)
{
    uint64_t hash = hash_of(k);
    if (grow_table(c, e) < 0)
        return ERR_NOMEM;
    int *slot = slot_of(c, hash, k);
    if (*slot)
        return *slot - 1;
    if (!grow_room(c->sets, c->n_sets, c->cap_sets))
        return err_set(e, ERR_NOMEM, "out of memory for a certificate");
    struct set *s = &c->sets[c->n_sets];
    *s = (struct set){ malloc((size_t)k->n * sizeof *s->point), k->n, hash };
    if (!s->point)
        return err_set(e, ERR_NOMEM, "out of memory for a certificate");
    memcpy(s->point, k->point, (size_t)k->n * sizeof *s->point);
    write_set(c->f, c->n_sets, s);
    *slot = ++c->n_sets;
    return c->n_sets - 1;
}

/* --- multipliers --- */

/* The largest number that no point lies below: min of q t + p x. */
static wide lowest(const struct solve_curve *k, int64_t q, int64_t p)
{
    wide least = (wide)q * k->point[0].ticks + (wide)p * k->point[0].bytes;
    for (int i = 1; i < k->n; i++) {
        wide v = (wide)q * k->point[i].ticks + (wide)p * k->point[i].bytes;
        least = v < least ? v : least;
    }
    return least;
}

static const struct solve_curve *curves_of(const struct solve_problem *p, const struct solve_config *c, int batch)
{
    return &c->curves[(size_t)batch * (size_t)p->n_layers];
}

static int tangent_of(const struct solve_problem *p, const struct solve_config *c, int batch, struct tangent *out, struct err *e)
{
    int r = solve_multiplier(p, c, batch, p->memory - c->fixed_bytes, &out->p, &out->q, e);
    out->sum = 0;
    for (int l = 0; l < p->n_layers && r == 0; l++)
        out->sum += lowest(&curves_of(p, c, batch)[l], out->q, out->p);
    return r;
}

/* Least T_b that the refutation leaves, over integers; -1: none, for no points fit. */
static wide least_ticks(const struct solve_problem *p, const struct solve_config *c, const struct tangent *t)
{
    wide room = (wide)t->p * (p->memory - c->fixed_bytes), left = t->sum - room;
    if (t->q == 0)
        return left > 0 ? -1 : 0;
    return left <= 0 ? 0 : (left + t->q - 1) / t->q;
}

/* --- what is written for a configuration --- */

static void check_sat(struct certificate *c)
{
    fputs("(check-sat)\n(pop 1)\n", c->f);
    c->checks++;
}

/* Each different set once: where sets are the same, so are their tangents. sets[n_layers]. */
static void write_lemma(struct certificate *c, const struct solve_problem *p, const struct solve_config *config, int batch,
                        const int *sets, const struct tangent *t)
{
    fputs("(push 1)\n(assert (not (and", c->f);
    for (int l = 0; l < p->n_layers; l++) {
        int known = 0;
        for (int i = 0; i < l && !known; i++)
            known = sets[i] == sets[l];
        if (known)
            continue;
        fprintf(c->f, "\n  (d%d %lld %lld ", sets[l], (long long)t->q, (long long)t->p);
        solve_put_integer(c->f, lowest(&curves_of(p, config, batch)[l], t->q, t->p), 0);
        fputc(')', c->f);
    }
    fputs(")))\n", c->f);
    check_sat(c);
}

/* fixed_b + max(floor_b, T_b), weighed. */
static void write_time(FILE *f, const struct solve_problem *p, const struct solve_config *config, int batch)
{
    fprintf(f, " (* %lld (+ %lld (ite (> T%d %lld) T%d %lld)))", (long long)p->weight[batch], (long long)config->fixed_ticks[batch],
            batch + 1, (long long)config->floor_ticks[batch], batch + 1, (long long)config->floor_ticks[batch]);
}

static void write_sums(FILE *f, int n_batches)
{
    fputs("(push 1)\n", f);
    for (int b = 1; b <= n_batches; b++)
        fprintf(f, "(declare-const T%d Int) (declare-const X%d Int)\n", b, b);
}

static void write_memory(FILE *f, const struct solve_problem *p, const struct solve_config *config, int batch)
{
    fprintf(f, "(assert (<= (+ %lld X%d) %lld))\n", (long long)config->fixed_bytes, batch + 1, (long long)p->memory);
}

static void write_refutation(struct certificate *c, const struct solve_problem *p, const struct solve_config *config,
                             const struct tangent *t)
{
    write_sums(c->f, p->n_batches);
    for (int b = 0; b < p->n_batches; b++) {
        fprintf(c->f, "(assert (>= (+ (* %lld T%d) (* %lld X%d)) ", (long long)t[b].q, b + 1, (long long)t[b].p, b + 1);
        solve_put_integer(c->f, t[b].sum, 0);
        fputs("))\n", c->f);
        write_memory(c->f, p, config, b);
    }
    fputs("(assert (< (+ 0", c->f);
    for (int b = 0; b < p->n_batches; b++)
        write_time(c->f, p, config, b);
    fprintf(c->f, ") claim%d))\n", c->n_claims);
    check_sat(c);
}

/* Does the refutation close? As its reader will find. */
static int closes(const struct solve_problem *p, const struct solve_config *config, const struct tangent *t, int64_t claim)
{
    wide sum = 0;
    for (int b = 0; b < p->n_batches; b++) {
        wide least = least_ticks(p, config, &t[b]);
        if (least < 0)
            return 1;
        least = least > config->floor_ticks[b] ? least : config->floor_ticks[b];
        sum += (wide)p->weight[b] * (config->fixed_ticks[b] + least);
    }
    return sum >= claim;
}

int certificate_config(struct certificate *c, const struct solve_problem *p, const struct solve_config *config, const char *name,
                       struct err *e)
{
    struct tangent t[SOLVE_MAX_BATCHES];
    int *sets = malloc((size_t)p->n_batches * (size_t)p->n_layers * sizeof *sets);
    int r = sets ? 0 : err_set(e, ERR_NOMEM, "out of memory for a certificate");
    certificate_say(c, name);
    for (int b = 0; b < p->n_batches && r == 0; b++) {
        r = tangent_of(p, config, b, &t[b], e);
        for (int l = 0; l < p->n_layers && r == 0; l++) {
            int at = set_of(c, &curves_of(p, config, b)[l], e);
            sets[b * p->n_layers + l] = at;
            r = at < 0 ? at : 0;
        }
    }
    for (int b = 0; b < p->n_batches && r == 0; b++)
        write_lemma(c, p, config, b, sets + b * p->n_layers, &t[b]);
    if (r == 0) {
        write_refutation(c, p, config, t);
        r = closes(p, config, t, c->claim);
    }
    free(sets);
    return r;
}

void certificate_result(struct certificate *c, const struct solve_problem *p, const struct solve_result *r)
{
    const struct solve_config *config = &p->configs[r->config];
    fputs("(push 1)\n(assert (not (and", c->f);
    for (int b = 0; b < p->n_batches; b++) {
        fprintf(c->f, "\n  (<= (+ %lld", (long long)config->fixed_bytes);
        for (int l = 0; l < p->n_layers; l++)
            fprintf(c->f, " %lld", (long long)solve_curve_of(p, r, b, l)->point[r->choice[b * p->n_layers + l]].bytes);
        fprintf(c->f, ") %lld)", (long long)p->memory);
    }
    fputs("\n  (= (+ 0", c->f);
    for (int b = 0; b < p->n_batches; b++) {
        fprintf(c->f, "\n    (* %lld (+ %lld (let ((T (+ 0", (long long)p->weight[b], (long long)config->fixed_ticks[b]);
        for (int l = 0; l < p->n_layers; l++)
            fprintf(c->f, " %lld", (long long)solve_curve_of(p, r, b, l)->point[r->choice[b * p->n_layers + l]].ticks);
        fprintf(c->f, "))) (ite (> T %lld) T %lld))))", (long long)config->floor_ticks[b], (long long)config->floor_ticks[b]);
    }
    fprintf(c->f, ") %lld))))\n", (long long)r->objective);
    check_sat(c);
}
