#ifndef PLANNER_SPACE_LOOKUPS_H
#define PLANNER_SPACE_LOOKUPS_H

/* Which neurons the steps of a variant look up in a layer's cold cache: lists, made from the trace's window, or in dense mode, where
 * the experts that run are what differs, from its routes: every unit of these experts, by its first neuron. A window is
 * shorter for larger models and for layers that look up more, so that planning stays quick; what other layers do does not
 * matter, so a plan's layers get the same figures whatever variants are beside them. One thread at a time. */
#include "planner/inputs/inputs_steps.h"
#include "planner/space/space.h"

/* Tokens of the trace's window that replay looks at. */
uint64_t lookups_window(const struct space *s, int variant, int layer);

/* The lists of one variant and layer, at most max_steps; the caller's (inputs_steps_done). */
int lookups_steps(const struct space *s, int variant, int layer, uint64_t max_steps, struct inputs_steps *out,
                  struct err *e);

/* Does replay run through lists of this variant? Of variants that are the same in a layer, the first has them. */
int lookups_has(const struct space *s, int variant, int layer);

/* Lists of all variants and layers, made on demand and dropped by whoever is done with them. */
struct lookups {
    const struct space *space;
    struct inputs_steps *made;          /* [n_variants][n_layers]; n_steps 0: not made */
};
int lookups_init(struct lookups *x, const struct space *s, struct err *e);
void lookups_done(struct lookups *x); /* accepts a zeroed one */

/* Make the lists of a layer for the variants [first, first + n), those that are not there. most: tokens, within each
 * variant's window. Firing neurons are read once for all of them. */
int lookups_make(struct lookups *x, int first, int n, int layer, uint64_t most, struct err *e);
struct inputs_steps *lookups_at(const struct lookups *x, int variant, int layer);

#endif
