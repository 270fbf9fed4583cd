/* Lines below what the layers reach together. A slope comes from the segment of some layer's hull that the relaxation would take
 * last; the height then follows from all points of all layers, so that a line holds whatever slope it has. */
#include "planner/solve/paper.h"

#include <stdlib.h>

#define MOST_AT (2000000000000 * PAPER_AT) /* so that thousands of layers add up */

struct step {
    int64_t width, drop;
};

static int steeper(const void *pa, const void *pb)
{
    const struct step *a = pa, *b = pb;
    __int128 x = (__int128)a->drop * b->width, y = (__int128)b->drop * a->width;
    return x == y ? 0 : x > y ? -1 : 1;
}

/* Segments of all layers' hulls, steepest first, malloc'd; *bytes: of the smallest points. Returns how many. */
static int steps_of(const struct paper *p, const struct paper_work *w, struct step **out, int64_t *bytes, struct err *e)
{
    int n = 0;
    *bytes = 0;
    for (int l = 0; l < p->n_layers; l++)
        n += w->layer[l].n_hull;
    struct step *s = malloc(((size_t)n + 1) * sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "out of memory for a curve");
    n = 0;
    for (int l = 0; l < p->n_layers; l++) {
        const struct solve_curve *k = &w->layer[l];
        *bytes += k->point[0].bytes;
        for (int i = 1; i < k->n_hull; i++) {
            const struct solve_point *a = &k->point[k->hull[i - 1]], *b = &k->point[k->hull[i]];
            s[n++] = (struct step){ b->bytes - a->bytes, a->ticks - b->ticks };
        }
    }
    qsort(s, (size_t)n, sizeof *s, steeper);
    *out = s;
    return n;
}

/* In units of 1 / PAPER_SLOPE; of a level line where there is no segment. */
static int64_t slope_of(const struct step *s)
{
    __int128 read = (__int128)s->drop * PAPER_SLOPE, memory = (__int128)s->width * SOLVE_BYTE_UNIT * PAPER_BYTE;
    __int128 slope = (read + memory / 2) / memory;
    return slope > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)slope;
}

int64_t paper_layer_at(const struct solve_curve *k, int64_t slope)
{
    __int128 least = 0;
    for (int i = 0; i < k->n_hull; i++) {
        const struct solve_point *x = &k->point[k->hull[i]];
        __int128 at = (__int128)x->ticks * (PAPER_SLOPE / PAPER_BYTE) + (__int128)slope * x->bytes * SOLVE_BYTE_UNIT;
        least = i == 0 || at < least ? at : least;
    }
    least /= PAPER_SLOPE / PAPER_AT;
    return least < MOST_AT ? (int64_t)least : MOST_AT; /* a lower line holds, too */
}

static int add_slope(const struct paper *p, struct paper_work *w, int64_t slope)
{
    struct paper_piece x = { slope, 0 };
    for (int i = 0; i < w->n_pieces; i++)
        if (w->piece[i].slope == slope)
            return 0;
    if (w->n_pieces == PAPER_MAX_PIECES)
        return 0;
    for (int l = 0; l < p->n_layers; l++)
        x.at += paper_layer_at(&w->layer[l], slope);
    int at = w->n_pieces++;
    for (; at > 0 && w->piece[at - 1].slope < slope; at--)
        w->piece[at] = w->piece[at - 1];
    w->piece[at] = x;
    return 1;
}

int paper_add_piece(const struct paper *p, struct paper_work *w, int64_t bytes, struct err *e)
{
    struct step *s = NULL;
    int64_t used;
    int n = steps_of(p, w, &s, &used, e), i = 0;
    if (n < 0)
        return n;
    while (i < n && used + s[i].width < bytes)
        used += s[i++].width;
    int r = add_slope(p, w, i < n ? slope_of(&s[i]) : 0);
    free(s);
    return r;
}

int paper_spread_pieces(const struct paper *p, struct paper_work *w, int n, struct err *e)
{
    struct step *s = NULL;
    int64_t used;
    int all = steps_of(p, w, &s, &used, e);
    if (all < 0)
        return all;
    add_slope(p, w, 0);
    for (int i = 0; i < n && all > 0; i++)
        add_slope(p, w, slope_of(&s[n > 1 ? (int)((int64_t)i * (all - 1) / (n - 1)) : 0]));
    free(s);
    return 0;
}

int64_t paper_ffn_bytes(const struct paper *p, const struct paper_choice *c)
{
    const struct paper_variant *w = &p->variant[c->variant];
    return p->memory - w->bytes - p->cores[c->cores].threads * w->thread_bytes - p->queue[c->queue].bytes;
}

void paper_done(struct paper *p)
{
    free(p->cores);
    free(p->queue);
    free(p->variant);
    *p = (struct paper){ 0 };
}
