/* A histogram in two dimensions is mostly empty: a step of eight experts has 45 classes at most, and the most frequent ones hold nearly
 * all steps. */
#include "planner/replay/replay_steps.h"

#include <math.h>
#include <string.h>

void replay_tally_init(struct replay_tally *t, uint64_t most, uint32_t per_expert)
{
    uint32_t width = (uint32_t)((most + REPLAY_TALLY - 2) / (REPLAY_TALLY - 1));
    memset(t, 0, sizeof *t);
    t->units = per_expert;
    t->width = width > per_expert ? width : per_expert ? per_expert : 1;
}

/* Class 0 is of nothing at all. */
static int class_of(const struct replay_tally *t, double n)
{
    double c = ceil(n / t->width - 1e-9);
    return c < REPLAY_TALLY ? (int)c : REPLAY_TALLY - 1;
}

static void add_cell(struct replay_cell *to, const struct replay_cell *c)
{
    to->steps += c->steps;
    to->late += c->late;
    to->early += c->early;
    to->foreseen += c->foreseen;
}

/* steps of so many units each. */
static void add_steps(struct replay_tally *t, double steps, double late, double early, double foreseen)
{
    add_cell(&t->cell[class_of(t, late) * REPLAY_TALLY + class_of(t, early)],
             &(struct replay_cell){ steps, steps * late, steps * early, steps * foreseen });
}

void replay_tally_add(struct replay_tally *t, uint64_t late, uint64_t early, uint64_t foreseen)
{
    add_steps(t, 1, (double)late, (double)early, (double)foreseen);
}

/* Of a binomial distribution one term follows from the one before. What is read in vain is the same in each. */
void replay_tally_smooth(struct replay_tally *t, int experts)
{
    struct replay_cell all = { 0 };
    for (int i = 0; i < REPLAY_TALLY * REPLAY_TALLY; i++)
        add_cell(&all, &t->cell[i]);
    double missed = all.late + all.foreseen, units = experts * (double)t->units, q = all.steps > 0 ? missed / all.steps / units : 0;
    double late = missed > 0 ? all.late / missed : 0, wasted = all.steps > 0 ? (all.early - all.foreseen) / all.steps : 0;
    double share = pow(1 - q, experts);
    if (experts < 1 || q <= 0 || q >= 1)
        return;
    for (int m = 0; m <= experts; m++) {
        double n = m * (double)t->units;
        add_steps(t, REPLAY_PRIOR * share, n * late, n * (1 - late) + wasted, n * (1 - late));
        share *= q / (1 - q) * (experts - m) / (m + 1);
    }
}

static double distance(const struct replay_cell *a, const struct replay_cell *b)
{
    return fabs(a->late / a->steps - b->late / b->steps) + fabs(a->early / a->steps - b->early / b->steps);
}

static int rarest_of(const struct replay_cell *c, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        at = c[i].steps < c[at].steps ? i : at;
    return at;
}

/* Counts cell i with the one nearest to it; those after it move up. */
static void merge(struct replay_cell *c, int *n, int i)
{
    int nearest = i ? 0 : 1;
    for (int k = 0; k < *n; k++)
        if (k != i && distance(&c[k], &c[i]) < distance(&c[nearest], &c[i]))
            nearest = k;
    add_cell(&c[nearest], &c[i]);
    memmove(c + i, c + i + 1, (size_t)(*n - i - 1) * sizeof *c);
    --*n;
}

void replay_tally_groups(const struct replay_tally *t, struct replay_steps *out)
{
    struct replay_cell c[REPLAY_TALLY * REPLAY_TALLY];
    double steps = 0;
    int n = 0;
    for (int i = 0; i < REPLAY_TALLY * REPLAY_TALLY; i++)
        if (t->cell[i].steps > 0) {
            c[n++] = t->cell[i];
            steps += t->cell[i].steps;
        }
    while (n > REPLAY_GROUPS)
        merge(c, &n, rarest_of(c, n));
    *out = (struct replay_steps){ .n = n };
    for (int i = 0; i < n; i++) {
        double of = c[i].steps;
        out->at[i] = (struct replay_group){ (float)(of / steps), (float)(c[i].late / of), (float)(c[i].early / of),
                                            (float)(c[i].foreseen / of) };
    }
}
