/* A part's neurons are counted in pairs, then put on a path: the nearest of those left, from the one before, again and again; then pieces
 * of the path are turned around or moved where that brings more neurons that fire together side by side. Ties go to the hotter. Counts
 * are of at most TOGETHER_TOKENS tokens, and 16 bits hold them. */
#include "common/offline/trace/together.h"

#include <stdlib.h>
#include <string.h>

#define NEAREST 12   /* of each neuron, that moves try as its neighbours */
#define ROUNDS  16   /* over a part, at most */
#define LONGEST 3    /* neurons that move as one */

struct part {
    int n;
    uint16_t *both;      /* [n][n]: tokens in which two fire */
    uint16_t *near;      /* [n][NEAREST]: with which each fires most often, most often first */
    int n_near;
    uint16_t *path, *at; /* [n]: neurons on the path; where each is */
};

static uint16_t both(const struct part *p, int i, int j)
{
    return p->both[(size_t)i * (size_t)p->n + (size_t)j];
}

/* Of neighbours on the path, by their places; what is beyond an end fires with nothing. */
static int joint(const struct part *p, int a, int b)
{
    return a < 0 || b >= p->n ? 0 : both(p, p->path[a], p->path[b]);
}

static int pair(const struct part *p, int place, int neuron)
{
    return place < 0 || place >= p->n ? 0 : both(p, p->path[place], neuron);
}

/* Those of the part that fire in a token, ascending. */
static int list_of(const uint64_t *fired, int first, int n, uint16_t *list)
{
    int m = 0;
    for (int w = first / 64; w <= (first + n - 1) / 64; w++)
        for (uint64_t bits = fired[w]; bits; bits &= bits - 1) {
            int i = w * 64 + __builtin_ctzll(bits) - first;
            if (i >= 0 && i < n)
                list[m++] = (uint16_t)i;
        }
    return m;
}

/* Of so many tokens that pairs stay within the limit, from all over the window. */
static void count_pairs(struct part *p, const uint64_t *const *fired, int n_tokens, int first)
{
    uint16_t *list = p->path; /* there is no path yet */
    uint64_t pairs = 0;
    memset(p->both, 0, (size_t)p->n * (size_t)p->n * sizeof *p->both);
    for (int t = 0; t < n_tokens; t++) {
        uint64_t m = (uint64_t)list_of(fired[t], first, p->n, list);
        pairs += m * m / 2;
    }
    int step = (int)(1 + pairs / TOGETHER_PAIRS);
    for (int t = 0; t < n_tokens; t += step) {
        int m = list_of(fired[t], first, p->n, list);
        for (int i = 0; i < m; i++) {
            uint16_t *row = p->both + (size_t)list[i] * (size_t)p->n;
            for (int j = i + 1; j < m; j++)
                row[list[j]]++;
        }
    }
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < i; j++)
            p->both[(size_t)i * (size_t)p->n + (size_t)j] = both(p, j, i);
}

static void find_nearest(struct part *p)
{
    p->n_near = p->n - 1 < NEAREST ? p->n - 1 : NEAREST;
    for (int i = 0; i < p->n; i++) {
        uint16_t *near = p->near + (size_t)i * NEAREST;
        int m = 0;
        for (int j = 0; j < p->n; j++) {
            int at = m;
            if (j == i || (m == p->n_near && both(p, i, j) <= both(p, i, near[m - 1])))
                continue;
            for (at = m < p->n_near ? m++ : m - 1; at > 0 && both(p, i, near[at - 1]) < both(p, i, j); at--)
                near[at] = near[at - 1];
            near[at] = (uint16_t)j;
        }
    }
}

static void greedy_path(struct part *p)
{
    for (int i = 0; i < p->n; i++)
        p->path[i] = (uint16_t)i;
    for (int i = 1; i < p->n; i++) {
        int best = i, last = p->path[i - 1];
        for (int j = i + 1; j < p->n; j++) {
            int a = both(p, last, p->path[j]), b = both(p, last, p->path[best]);
            best = a > b || (a == b && p->path[j] < p->path[best]) ? j : best;
        }
        uint16_t next = p->path[best];
        p->path[best] = p->path[i];
        p->path[i] = next;
    }
    for (int i = 0; i < p->n; i++)
        p->at[p->path[i]] = (uint16_t)i;
}

static void turn(struct part *p, int a, int b)
{
    for (; a < b; a++, b--) {
        uint16_t x = p->path[a];
        p->path[a] = p->path[b];
        p->path[b] = x;
        p->at[p->path[a]] = (uint16_t)a;
        p->at[x] = (uint16_t)b;
    }
}

/* Bring two places' neurons beside each other by turning what is between them: from a + 1 to b, or from a to b - 1, a < b. */
static int try_turn(struct part *p, int a, int b)
{
    int with = both(p, p->path[a], p->path[b]);
    if (with + joint(p, a + 1, b + 1) > joint(p, a, a + 1) + joint(p, b, b + 1)) {
        turn(p, a + 1, b);
        return 1;
    }
    if (joint(p, a - 1, b - 1) + with > joint(p, a - 1, a) + joint(p, b - 1, b)) {
        turn(p, a, b - 1);
        return 1;
    }
    return 0;
}

/* n neurons from place a on to between c and c + 1, which are not among them. Three turns are a move. */
static void move(struct part *p, int a, int n, int c, int turned)
{
    int low = c < a ? c + 1 : a, high = c < a ? a + n - 1 : c, to = c < a ? low : high - n + 1;
    turn(p, low, high);
    if (c < a)
        turn(p, low + n, high);
    else
        turn(p, low, high - n);
    if (!turned)
        turn(p, to, to + n - 1);
}

/* The piece of n neurons from place a on beside another's neuron at place c: before it or behind it, as it is or turned around. */
static int try_move(struct part *p, int a, int n, int c)
{
    int first = p->path[a], last = p->path[a + n - 1];
    if (c >= a - 1 && c <= a + n)
        return 0;
    int now = joint(p, a - 1, a) + joint(p, a + n - 1, a + n) - joint(p, a - 1, a + n);
    for (int side = -1; side <= 0; side++) {
        int l = c + side, gone = joint(p, l, l + 1); /* between l and l + 1 */
        int as_is = pair(p, l, first) + pair(p, l + 1, last), turned = pair(p, l, last) + pair(p, l + 1, first);
        if ((as_is > turned ? as_is : turned) > now + gone) {
            move(p, a, n, l, turned > as_is);
            return 1;
        }
    }
    return 0;
}

static int improve(struct part *p, int i)
{
    const uint16_t *near = p->near + (size_t)i * NEAREST;
    for (int k = 0; k < p->n_near; k++) {
        int a = p->at[i], b = p->at[near[k]];
        if (a - b == 1 || b - a == 1)
            continue;
        if (a < b ? try_turn(p, a, b) : try_turn(p, b, a))
            return 1;
        for (int n = 1; n <= LONGEST; n++)
            if ((a + n <= p->n && try_move(p, a, n, b)) || (a - n + 1 >= 0 && try_move(p, a - n + 1, n, b)))
                return 1;
    }
    return 0;
}

static void improve_path(struct part *p)
{
    int better = 1;
    for (int round = 0; round < ROUNDS && better; round++) {
        better = 0;
        for (int i = 0; i < p->n; i++)
            better |= improve(p, i);
    }
}

static void part_done(struct part *p)
{
    free(p->both);
    free(p->near);
    free(p->path);
    free(p->at);
}

int together_order(const uint64_t *const *fired, int n_tokens, int n, uint32_t *order, struct err *e)
{
    int parts = (n + TOGETHER_MOST - 1) / TOGETHER_MOST, from = 0, to;
    parts = parts > TOGETHER_PARTS ? parts : TOGETHER_PARTS;
    size_t m = (size_t)(n / parts + 1);
    struct part p = { .both = malloc(m * m * sizeof *p.both), .near = malloc(m * NEAREST * sizeof *p.near),
                      .path = malloc(m * sizeof *p.path), .at = malloc(m * sizeof *p.at) };
    uint32_t *was = malloc(((size_t)n + 1) * sizeof *was);
    int r = p.both && p.near && p.path && p.at && was ? 0 : err_set(e, ERR_NOMEM, "out of memory for an order of %d neurons", n);
    if (r == 0)
        memcpy(was, order, (size_t)n * sizeof *was);
    for (int k = 0; k < parts && r == 0; k++, from = to) {
        to = (int)((int64_t)(k + 1) * n / parts);
        p.n = to - from;
        if (p.n < 3)
            continue;
        count_pairs(&p, fired, n_tokens, from);
        find_nearest(&p);
        greedy_path(&p);
        improve_path(&p);
        for (int i = 0; i < p.n; i++)
            order[from + i] = was[from + p.path[i]];
    }
    free(was);
    part_done(&p);
    return r;
}
