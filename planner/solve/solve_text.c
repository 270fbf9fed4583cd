/* See solve_text.h. Times are written in ns, bytes in bytes; integers of the problem are exact decimals of both. */
#include "planner/solve/solve_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide;

/* --- which residencies are stated --- */

/* The points of a kind; where the configuration has no kinds all points are of kind 0. */
static const struct solve_curve *kind_curve(const struct solve_problem *p, const struct solve_config *c, int kind, int batch, int layer)
{
    size_t layers = (size_t)p->n_layers, at = (size_t)batch * layers + (size_t)layer;
    return c->kinds ? &c->kinds[(size_t)kind * (size_t)p->n_batches * layers + at] : &c->curves[at];
}

static int kinds_of(const struct solve_config *c)
{
    return c->kinds ? c->n_kinds : 1;
}

static int same_curve(const struct solve_curve *a, const struct solve_curve *b)
{
    if (a->n != b->n)
        return 0;
    for (int i = 0; i < a->n; i++)
        if (a->point[i].bytes != b->point[i].bytes || a->point[i].ticks != b->point[i].ticks)
            return 0;
    return 1;
}

static int same_layers(const struct solve_problem *p, const struct solve_config *c, int a, int b)
{
    for (int batch = 0; batch < p->n_batches; batch++)
        for (int k = 0; k < kinds_of(c); k++)
            if (!same_curve(kind_curve(p, c, k, batch, a), kind_curve(p, c, k, batch, b)))
                return 0;
    return 1;
}

static void group_layers(struct solve_open *o, const struct solve_problem *p, const struct solve_config *c)
{
    for (int l = 0; l < p->n_layers; l++) {
        int g = 0;
        while (g < o->n_groups && !same_layers(p, c, o->leader[g], l))
            g++;
        if (g == o->n_groups) {
            o->leader[o->n_groups++] = l;
            o->count[g] = 0;
        }
        o->group[l] = g;
        o->count[g]++;
    }
}

/* q t + p x: how high a point lies, of which the least is the layer's tangent. */
struct slope {
    int64_t p, q;
    wide room;      /* of a layer above its tangent, in these units: what does not reach the target */
};

static wide height(const struct slope *s, const struct solve_point *x)
{
    return (wide)s->q * x->ticks + (wide)s->p * x->bytes;
}

static wide lowest(const struct slope *s, const struct solve_curve *k)
{
    wide least = height(s, &k->point[0]);
    for (int i = 1; i < k->n; i++) {
        wide v = height(s, &k->point[i]);
        least = v < least ? v : least;
    }
    return least;
}

static wide tangent_sum(const struct solve_problem *p, const struct solve_config *c, int batch, const struct slope *s)
{
    wide sum = 0;
    for (int l = 0; l < p->n_layers; l++)
        sum += lowest(s, &c->curves[(size_t)batch * (size_t)p->n_layers + (size_t)l]);
    return sum;
}

static int slope_of(const struct solve_problem *p, const struct solve_config *c, int batch, struct slope *s, struct err *e)
{
    *s = (struct slope){ 0 };
    return solve_multiplier(p, c, batch, p->memory - c->fixed_bytes, &s->p, &s->q, e);
}

/* The relaxed sum may lie below the floor; the objective may rise by target - bound. Bounds are rounded down, so what is left is no
 * less than this. */
static int room_of(const struct solve_problem *p, const struct solve_config *c, int batch, int64_t target, struct slope *s,
                   struct err *e)
{
    int r = slope_of(p, c, batch, s, e);
    if (r < 0 || target == SOLVE_NEVER)
        return r;
    wide sum = tangent_sum(p, c, batch, s) - (wide)s->p * (p->memory - c->fixed_bytes), floor = (wide)s->q * c->floor_ticks[batch];
    s->room = (wide)s->q * ((target - c->bound) / p->weight[batch] + 1) + (floor > sum ? floor - sum : 0);
    return 0;
}

/* Does any layer of the group take the point in a result? */
static int is_taken(const struct solve_open *o, const struct solve_problem *p, const struct solve_result *r, int batch, int g, int kind,
                    int point)
{
    for (int l = 0; r && r->config == o->config && l < p->n_layers; l++)
        if (o->group[l] == g && r->choice[batch * p->n_layers + l] == point &&
            (kinds_of(&p->configs[r->config]) == 1 || r->kind[l] == kind))
            return 1;
    return 0;
}

static int add_candidates(struct solve_open *o, const struct solve_problem *p, const struct solve_config *c, int batch, int g,
                          const struct slope *s, const struct solve_result *also, int any, int n)
{
    int layer = o->leader[g];
    wide least = lowest(s, &c->curves[(size_t)batch * (size_t)p->n_layers + (size_t)layer]);
    for (int k = 0; k < kinds_of(c); k++) {
        const struct solve_curve *x = kind_curve(p, c, k, batch, layer);
        for (int i = 0; i < x->n; i++)
            if (any || height(s, &x->point[i]) - least <= s->room || is_taken(o, p, also, batch, g, k, i)) {
                if (n < SOLVE_MOST_CANDIDATES)
                    o->candidate[n] = (struct solve_candidate){ k, i };
                n++;
            }
    }
    return n;
}

int solve_open_init(struct solve_open *o, const struct solve_problem *p, int config, int64_t target, const struct solve_result *also,
                    struct err *e)
{
    const struct solve_config *c = &p->configs[config];
    size_t layers = (size_t)p->n_layers;
    *o = (struct solve_open){ .config = config, .group = malloc(layers * sizeof *o->group), .leader = malloc(layers * sizeof *o->leader),
                              .count = malloc(layers * sizeof *o->count),
                              .first = malloc(((size_t)p->n_batches * layers + 1) * sizeof *o->first),
                              .candidate = malloc(SOLVE_MOST_CANDIDATES * sizeof *o->candidate) };
    int n = 0, r = 0;
    if (!o->group || !o->leader || !o->count || !o->first || !o->candidate)
        r = err_set(e, ERR_NOMEM, "out of memory for the solver");
    else
        group_layers(o, p, c);
    for (int b = 0; b < p->n_batches && r == 0; b++) {
        struct slope s;
        r = room_of(p, c, b, target, &s, e);
        for (int g = 0; g < o->n_groups && r == 0; g++) {
            o->first[b * o->n_groups + g] = n;
            n = add_candidates(o, p, c, b, g, &s, also, target == SOLVE_NEVER, n);
        }
    }
    if (r == 0 && n <= SOLVE_MOST_CANDIDATES) {
        o->first[p->n_batches * o->n_groups] = n;
        return 1;
    }
    solve_open_done(o);
    return r;
}

void solve_open_done(struct solve_open *o)
{
    free(o->group);
    free(o->leader);
    free(o->count);
    free(o->first);
    free(o->candidate);
    *o = (struct solve_open){ 0 };
}

/* --- numbers --- */

void solve_put_integer(FILE *f, __int128 v, int real)
{
    char digits[48];
    int n = (int)sizeof digits - 1;
    unsigned __int128 u = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
    digits[n] = 0;
    do {
        digits[--n] = (char)('0' + (int)(u % 10));
        u /= 10;
    } while (u);
    fprintf(f, v < 0 ? "(- %s%s)" : "%s%s", digits + n, real ? ".0" : "");
}

/* Ticks as ns, exactly. */
static void put_ns(FILE *f, int64_t ticks)
{
    fprintf(f, "%" PRId64 ".%04d", ticks / SOLVE_TICKS_PER_NS, (int)(ticks % SOLVE_TICKS_PER_NS) * (10000 / SOLVE_TICKS_PER_NS));
}

static int64_t bytes_of(int64_t units)
{
    return units * SOLVE_BYTE_UNIT;
}

static const char *batch_suffix(int b, char out[16])
{
    out[0] = 0;
    if (b > 0)
        snprintf(out, 16, "_b%d", 1 << b);
    return out;
}

const char *solve_unknown(const struct solve_open *o, int batch, int g, int j, char out[SOLVE_NAME])
{
    char x[16];
    snprintf(out, SOLVE_NAME, "takes%s_c%d_layer%d_%d", batch_suffix(batch, x), o->config, o->leader[g] + 1, j);
    return out;
}

/* --- configurations --- */

static int is_open(const struct solve_question *q, int config)
{
    for (int i = 0; i < q->n_open; i++)
        if (q->open[i].config == config)
            return 1;
    return 0;
}

static int is_stated(const struct solve_question *q, int config)
{
    const struct solve_config *c = &q->p->configs[config];
    return solve_cores_ok(q->p, c) && c->bound != SOLVE_NEVER && (q->all || c->bound < q->target);
}

/* Cores and queue of each, and what it takes of memory. */
static void table(const struct solve_question *q, FILE *out)
{
    const struct solve_problem *p = q->p;
    fprintf(out, "\n; n_k, D and m_fix: cores of each class, queue depth and bytes of the account, of each configuration.\n(assert (! (or");
    for (int i = 0; i < p->n_configs; i++) {
        const struct solve_config *c = &p->configs[i];
        if (!is_stated(q, i))
            continue;
        fprintf(out, "\n    (and (= config %d)", i);
        for (int k = 0; k < p->n_classes; k++)
            fprintf(out, " (= n_%d %d)", k + 1, c->n[k]);
        fprintf(out, " (= D %d) (= m_fix %" PRId64 "))", c->depth, bytes_of(c->fixed_bytes));
    }
    fprintf(out, " false)\n    :named |configurations|))\n");
}

/* One line for each batch size, t >= (sum - p x) / q, which no residencies lie below; or the least objective. */
static int line(const struct solve_question *q, int config, FILE *out, struct err *e)
{
    const struct solve_problem *p = q->p;
    const struct solve_config *c = &p->configs[config];
    fprintf(out, "\n    (=> (= config %d) (and", config);
    for (int b = 0; b < p->n_batches && c->curves; b++) {
        struct slope s;
        char x[16];
        int r = slope_of(p, c, b, &s, e);
        if (r < 0)
            return r;
        batch_suffix(b, x);
        fprintf(out, " (>= t_step%s (+ ", x);
        put_ns(out, c->fixed_ticks[b]);
        fprintf(out, " (/ (- ");
        solve_put_integer(out, tangent_sum(p, c, b, &s), 1);
        fprintf(out, " (* %" PRId64 ".0 (/ (to_real m_ffn%s) %d.0))) %" PRId64 ".0)))", s.p, x, SOLVE_BYTE_UNIT,
                s.q * SOLVE_TICKS_PER_NS);
        if (c->floor_ticks[b]) {
            fprintf(out, " (>= t_step%s ", x);
            put_ns(out, c->fixed_ticks[b] + c->floor_ticks[b]);
            fprintf(out, ")");
        }
    }
    if (!c->curves) {
        fprintf(out, " (>= total ");
        put_ns(out, c->bound);
        fprintf(out, ")");
    }
    fprintf(out, "))");
    return 0;
}

static int lines(const struct solve_question *q, FILE *out, struct err *e)
{
    int r = 0;
    fprintf(out, "\n; Configurations whose layers are not stated: no residencies lie below these lines.\n(assert (! (and true");
    for (int i = 0; i < q->p->n_configs && r == 0; i++)
        if (is_stated(q, i) && !is_open(q, i))
            r = line(q, i, out, e);
    fprintf(out, ")\n    :named |lines|))\n");
    return r;
}

/* --- open configurations --- */

static const struct solve_point *point_of(const struct solve_problem *p, const struct solve_open *o, int batch, int g,
                                          const struct solve_candidate *x)
{
    return &kind_curve(p, &p->configs[o->config], x->kind, batch, o->leader[g])->point[x->point];
}

static int candidates(const struct solve_open *o, int batch, int g, const struct solve_candidate **first)
{
    int at = batch * o->n_groups + g;
    *first = &o->candidate[o->first[at]];
    return o->first[at + 1] - o->first[at];
}

/* The time of each candidate as a constant, by the equations or as it is. */
static int times(const struct solve_problem *p, const struct solve_open *o, int batch, int g, FILE *out, struct err *e)
{
    const struct solve_equations *eq = p->equations;
    const struct solve_candidate *x;
    char s[16];
    int n = candidates(o, batch, g, &x), r = 0;
    batch_suffix(batch, s);
    for (int j = 0; j < n && r == 0; j++) {
        const struct solve_point *at = point_of(p, o, batch, g, &x[j]);
        fprintf(out, "(define-fun t_layer%d_%d%s_c%d () Real ", o->leader[g] + 1, j, s, o->config);
        if (eq)
            r = eq->point(eq->ctx, p->configs[o->config].id, batch, o->leader[g], at, out, e);
        else
            put_ns(out, at->ticks);
        fprintf(out, ")\n");
    }
    return r;
}

/* Whether, or how often, a layer of the group takes each candidate but the first. */
static void unknowns_of(const struct solve_open *o, int batch, int g, FILE *out)
{
    const struct solve_candidate *x;
    char name[SOLVE_NAME], other[SOLVE_NAME];
    int n = candidates(o, batch, g, &x);
    for (int j = 1; j < n; j++) {
        solve_unknown(o, batch, g, j, name);
        fprintf(out, "(declare-const %s %s)\n", name, o->count[g] > 1 ? "Int" : "Bool");
        for (int i = 1; i < j && o->count[g] == 1; i++)
            fprintf(out, "(assert (not (and %s %s)))\n", name, solve_unknown(o, batch, g, i, other));
        if (o->count[g] > 1)
            fprintf(out, "(assert (>= %s 0))\n", name);
    }
    if (n > 1 && o->count[g] > 1) {
        fprintf(out, "(assert (<= (+ 0");
        for (int j = 1; j < n; j++)
            fprintf(out, " %s", solve_unknown(o, batch, g, j, name));
        fprintf(out, ") %d))\n", o->count[g]);
    }
}

/* A number as often as an unknown says. */
static void times_taken(const struct solve_open *o, int g, const char *number, const char *name, FILE *out)
{
    if (o->count[g] > 1)
        fprintf(out, " (* %s %s)", number, name);
    else
        fprintf(out, " (ite %s %s 0)", name, number);
}

/* How many layers of the group take one of the kind, but for the first candidate's. */
static void count_of_kind(const struct solve_open *o, int batch, int g, int kind, FILE *out)
{
    const struct solve_candidate *x;
    char name[SOLVE_NAME];
    int n = candidates(o, batch, g, &x), base = n && x[0].kind == kind;
    fprintf(out, "(+ %d", base ? o->count[g] : 0);
    for (int j = 1; j < n; j++) {
        int sign = (x[j].kind == kind) - base;
        if (sign == 0)
            continue;
        solve_unknown(o, batch, g, j, name);
        times_taken(o, g, sign > 0 ? "1" : "(- 1)", name, out);
    }
    fprintf(out, ")");
}

/* Batch sizes agree on the kind of each layer. */
static void agreement(const struct solve_problem *p, const struct solve_open *o, FILE *out)
{
    const struct solve_config *c = &p->configs[o->config];
    for (int b = 1; b < p->n_batches && c->kinds; b++)
        for (int g = 0; g < o->n_groups; g++)
            for (int k = 0; k < c->n_kinds; k++) {
                fprintf(out, "(assert (= ");
                count_of_kind(o, 0, g, k, out);
                fputc(' ', out);
                count_of_kind(o, b, g, k, out);
                fprintf(out, "))\n");
            }
}

/* What the groups take in sum: bytes. */
static void sum_bytes(const struct solve_problem *p, const struct solve_open *o, int batch, FILE *out)
{
    const struct solve_candidate *x;
    char name[SOLVE_NAME];
    int64_t base = 0;
    fprintf(out, "(+");
    for (int g = 0; g < o->n_groups; g++) {
        int n = candidates(o, batch, g, &x);
        int64_t first = bytes_of(point_of(p, o, batch, g, &x[0])->bytes);
        base += first * o->count[g];
        for (int j = 1; j < n; j++) {
            int64_t more = bytes_of(point_of(p, o, batch, g, &x[j])->bytes) - first;
            char number[32];
            snprintf(number, sizeof number, more < 0 ? "(- %" PRId64 ")" : "%" PRId64, more < 0 ? -more : more);
            solve_unknown(o, batch, g, j, name);
            times_taken(o, g, number, name, out);
        }
    }
    fprintf(out, " %" PRId64 ")", base);
}

/* And time. */
static void sum_times(const struct solve_open *o, int batch, FILE *out)
{
    const struct solve_candidate *x;
    char name[SOLVE_NAME], s[16];
    batch_suffix(batch, s);
    fprintf(out, "(+ 0.0");
    for (int g = 0; g < o->n_groups; g++) {
        int n = candidates(o, batch, g, &x), l = o->leader[g] + 1;
        char first[SOLVE_NAME];
        snprintf(first, sizeof first, "t_layer%d_0%s_c%d", l, s, o->config);
        fprintf(out, " (* %d.0 %s)", o->count[g], first);
        for (int j = 1; j < n; j++) {
            solve_unknown(o, batch, g, j, name);
            fprintf(out, o->count[g] > 1 ? " (* (to_real %s) (- t_layer%d_%d%s_c%d %s))" : " (ite %s (- t_layer%d_%d%s_c%d %s) 0.0)",
                    name, l, j, s, o->config, first);
        }
    }
    fprintf(out, ")");
}

/* (M10), or fixed + max(floor, sum). */
static int step(const struct solve_problem *p, const struct solve_open *o, int batch, FILE *out, struct err *e)
{
    const struct solve_config *c = &p->configs[o->config];
    int r = 0;
    char s[16];
    fprintf(out, "\n    (=> (= config %d) (and (= m_ffn%s ", o->config, batch_suffix(batch, s));
    sum_bytes(p, o, batch, out);
    fprintf(out, ")\n        (>= t_step%s (+ ", s);
    if (p->equations)
        r = p->equations->head(p->equations->ctx, c->id, batch, out, e);
    else
        put_ns(out, c->fixed_ticks[batch]);
    fputc(' ', out);
    sum_times(o, batch, out);
    fprintf(out, "))");
    if (c->floor_ticks[batch]) {
        fprintf(out, " (>= t_step%s ", s);
        put_ns(out, c->fixed_ticks[batch] + c->floor_ticks[batch]);
        fputc(')', out);
    }
    fprintf(out, "))");
    return r;
}

/* --- the text --- */

static void unknowns(const struct solve_question *q, FILE *out)
{
    char x[16];
    fprintf(out, "\n; ---------------------------------------------------------------- unknowns\n\n"
                 "(declare-const config Int) ; number of the configuration in the table below\n");
    for (int k = 0; k < q->p->n_classes; k++)
        fprintf(out, "(declare-const n_%d Int) ; cores of class %d that compute\n", k + 1, k + 1);
    fprintf(out, "(declare-const D Int) ; queue depth\n"
                 "(declare-const m_fix Int) ; bytes of the account that the configuration takes\n"
                 "(declare-const total Real) ; what is minimised: the sum of steps by their weights\n");
    for (int b = 0; b < q->p->n_batches; b++)
        fprintf(out, "(declare-const m_ffn%1$s Int) ; bytes that hold neurons\n"
                     "(declare-const t_step%1$s Real) ; ns\n", batch_suffix(b, x));
}

static int residencies(const struct solve_question *q, FILE *out, struct err *e)
{
    int r = 0;
    fprintf(out, "\n; ---------------------------------------------------------------- residencies\n");
    for (int i = 0; i < q->n_open && r == 0; i++) {
        const struct solve_open *o = &q->open[i];
        if (!is_stated(q, o->config))
            continue;
        for (int b = 0; b < q->p->n_batches && r == 0; b++) {
            const struct solve_equations *eq = q->p->equations;
            r = eq ? eq->rates(eq->ctx, q->p->configs[o->config].id, b, out, e) : 0;
            for (int g = 0; g < o->n_groups && r == 0; g++) {
                fprintf(out, "\n; configuration %d, batch %d, layer %d, %d in all like it\n", o->config, 1 << b, o->leader[g] + 1,
                        o->count[g]);
                r = times(q->p, o, b, g, out, e);
                unknowns_of(o, b, g, out);
            }
        }
        agreement(q->p, o, out);
    }
    return r;
}

static int steps(const struct solve_question *q, FILE *out, struct err *e)
{
    int r = 0;
    fprintf(out, "\n; (M10) t_step = t_head + sum of t_layer\n(assert (! (and true");
    for (int i = 0; i < q->n_open && r == 0; i++)
        for (int b = 0; b < q->p->n_batches && r == 0; b++)
            r = is_stated(q, q->open[i].config) ? step(q->p, &q->open[i], b, out, e) : 0;
    fprintf(out, ")\n    :named |M10|))\n");
    return r;
}

static void limits(const struct solve_question *q, FILE *out)
{
    const struct solve_problem *p = q->p;
    char x[16];
    fprintf(out, "\n; The user's limits\n(assert (! (and");
    for (int b = 0; b < p->n_batches; b++)
        fprintf(out, " (<= (+ m_fix m_ffn%s) %" PRId64 ")", batch_suffix(b, x), bytes_of(p->memory));
    fprintf(out, ")\n    :named |memory|))\n(assert (! (and");
    for (int k = 0; k < p->n_classes; k++)
        fprintf(out, " (<= n_%d %d)", k + 1, p->cores[k]);
    fprintf(out, ")\n    :named |cores|))\n");
    if (p->max_ticks != SOLVE_NEVER) {
        fprintf(out, "(assert (! (<= t_step ");
        put_ns(out, p->max_ticks);
        fprintf(out, ")\n    :named |speed|))\n");
    }
    fprintf(out, "\n(assert (! (= total (+ 0.0");
    for (int b = 0; b < p->n_batches; b++)
        fprintf(out, " (* %" PRId64 ".0 t_step%s)", p->weight[b], batch_suffix(b, x));
    fprintf(out, "))\n    :named |objective|))\n");
    if (q->target != SOLVE_NEVER && !q->states) {
        fprintf(out, "(assert (! (< total ");
        put_ns(out, q->target);
        fprintf(out, ")\n    :named |faster|))\n");
    }
}

int solve_text(const struct solve_question *q, FILE *out, struct err *e)
{
    int r = 0;
    if (q->p->equations)
        q->p->equations->functions(q->p->equations->ctx, out);
    unknowns(q, out);
    if ((r = residencies(q, out, e)) < 0 || (r = steps(q, out, e)) < 0)
        return r;
    table(q, out);
    if ((r = lines(q, out, e)) < 0)
        return r;
    limits(q, out);
    return 0;
}

/* The solution's residencies: for each group how many of its layers take each candidate. */
static void the_choice(const struct solve_question *q, const struct solve_open *o, const struct solve_result *r, FILE *out)
{
    const struct solve_problem *p = q->p;
    char name[SOLVE_NAME];
    fprintf(out, "(assert (and (= config %d)", o->config);
    for (int b = 0; b < p->n_batches; b++)
        for (int g = 0; g < o->n_groups; g++) {
            const struct solve_candidate *x;
            int n = candidates(o, b, g, &x);
            for (int j = 1; j < n; j++) {
                int taken = 0;
                for (int l = 0; l < p->n_layers; l++)
                    taken += o->group[l] == g && r->choice[b * p->n_layers + l] == x[j].point &&
                             (!p->configs[o->config].kinds || r->kind[l] == x[j].kind);
                solve_unknown(o, b, g, j, name);
                if (o->count[g] > 1)
                    fprintf(out, " (= %s %d)", name, taken);
                else
                    fprintf(out, taken ? " %s" : " (not %s)", name);
            }
        }
    fprintf(out, "))\n");
}

void solve_text_claims(const struct solve_question *q, const struct solve_result *r, FILE *out)
{
    char x[16];
    fprintf(out, "\n; ---------------------------------------------------------------- claims\n\n"
                 "; Nothing takes less, to within rounding:\n(push) (assert (< total ");
    put_ns(out, r->bound - solve_text_slack(q->p));
    fprintf(out, ")) (check-sat) (pop) ; unsat\n");
    for (int i = 0; i < q->n_open; i++) {
        if (q->open[i].config != r->config)
            continue;
        fprintf(out, "; These residencies take no less than they are priced at, to within rounding,\n(push) (assert (< total ");
        put_ns(out, r->objective - solve_text_slack(q->p));
        fprintf(out, "))\n");
        the_choice(q, &q->open[i], r, out);
        fprintf(out, "(check-sat) (pop) ; unsat\n; and no more:\n(set-option :pp.decimal true)\n(push) (assert (<= total ");
        put_ns(out, r->objective + solve_text_slack(q->p));
        fprintf(out, "))\n");
        the_choice(q, &q->open[i], r, out);
        fprintf(out, "(check-sat) ; sat\n(get-value (config D m_fix");
        for (int b = 0; b < q->p->n_batches; b++) {
            batch_suffix(b, x);
            fprintf(out, " m_ffn%s t_step%s", x, x);
        }
        fprintf(out, " total))\n(pop)\n");
    }
}

int64_t solve_text_slack(const struct solve_problem *p)
{
    int64_t sum = 0;
    for (int b = 0; b < p->n_batches; b++)
        sum += p->weight[b] * (p->n_layers + 2);
    return p->equations ? sum : 0;
}
