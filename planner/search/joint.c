/* A node also says how deep the deepest queue of any batch size is, from `flat` to `deep`, and how many threads the one with most has, from
 * `few` to `many`, for these decide the account. It is halved until both are one number, then its sets are looked at.
 *
 * Two numbers bound the work: a node is closed once it cannot beat the best plan by more than CLOSE, and MOST nodes are bounded; what is
 * open then is closed with the bound that it has. Points of a run are priced when they are first needed and kept until the next queue. */
#include "planner/search/joint.h"

#include "planner/search/account.h"
#include "planner/search/configs.h"

#include "common/base/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE  0.002
#define MOST   1500
#define PASSES 3

struct joint_item {
    int batch, whole;                   /* whole: the run that it is a part of, as it was added; itself, for that */
    struct joint_run run;
    struct price_steps steps;           /* from NULL: not priced */
};

/* Items of batch size b: item[from[b]] to item[from[b + 1]]. */
struct joint_node {
    int *item, from[SOLVE_MAX_BATCHES + 1], flat, deep, few, many;
    int64_t bound;
};

void joint_init(struct joint *j, const struct problem *p, const struct limits *lim, const int64_t *weight, int n)
{
    *j = (struct joint){ .p = p, .lim = lim, .n = n, .bound = SOLVE_NEVER };
    memcpy(j->weight, weight, (size_t)n * sizeof *weight);
}

int joint_add(struct joint *j, int batch, const struct joint_run *run, struct err *e)
{
    if (!grow_room(j->item, j->n_items, j->cap_items))
        return err_set(e, ERR_NOMEM, "out of memory for configurations");
    j->item[j->n_items] = (struct joint_item){ .batch = batch, .whole = j->n_items, .run = *run };
    j->n_items++;
    return 0;
}

/* The part of an item from one depth to another, as an item; its index. */
static int part_of(struct joint *j, int item, int least, int deep, struct err *e)
{
    struct joint_run run = j->item[item].run;
    int batch = j->item[item].batch, whole = j->item[item].whole, r;
    if (run.least_depth == least && run.deepest.depth == deep)
        return item;
    for (int i = 0; i < j->n_items; i++)
        if (j->item[i].whole == whole && j->item[i].run.least_depth == least && j->item[i].run.deepest.depth == deep)
            return i;
    run.least_depth = least;
    run.deepest.depth = deep;
    configs_set_lanes(&run.deepest);
    if ((r = joint_add(j, batch, &run, e)) < 0)
        return r;
    j->item[j->n_items - 1].whole = whole;
    return j->n_items - 1;
}

static void free_nodes(struct joint_node *node, int n)
{
    for (int i = 0; i < n; i++)
        free(node[i].item);
    free(node);
}

void joint_done(struct joint *j)
{
    for (int i = 0; i < j->n_items; i++)
        price_steps_done(&j->item[i].steps);
    free_nodes(j->closed, j->n_closed);
    free_nodes(j->open, j->n_open);
    price_steps_done(&j->like);
    free(j->item);
    *j = (struct joint){ .p = NULL };
}

/* --- nodes --- */

static int size_of(const struct joint_node *x, int batch)
{
    return x->from[batch + 1] - x->from[batch];
}

/* A node like another, but for one batch size: items[n] in place of its own. */
static int new_node(const struct joint *j, const struct joint_node *like, int batch, const int *items, int n, struct joint_node *out,
                    struct err *e)
{
    *out = (struct joint_node){ .item = malloc(((size_t)like->from[j->n] + (size_t)n + 1) * sizeof *out->item), .flat = like->flat,
                                .deep = like->deep, .few = like->few, .many = like->many };
    if (!out->item)
        return err_set(e, ERR_NOMEM, "out of memory for configurations");
    for (int b = 0; b < j->n; b++) {
        int k = b == batch ? n : size_of(like, b);
        memcpy(out->item + out->from[b], b == batch ? items : like->item + like->from[b], (size_t)k * sizeof *out->item);
        out->from[b + 1] = out->from[b] + k;
    }
    return 0;
}

static int push(struct joint_node **list, int *n, int *cap, struct joint_node *x, struct err *e)
{
    if (!grow_room(*list, *n, *cap)) {
        free(x->item);
        return err_set(e, ERR_NOMEM, "out of memory for configurations");
    }
    (*list)[(*n)++] = *x;
    return 0;
}

static int close_node(struct joint *j, struct joint_node *x, struct err *e)
{
    j->bound = x->bound < j->bound ? x->bound : j->bound;
    return push(&j->closed, &j->n_closed, &j->cap_closed, x, e);
}

/* --- prices --- */

/* The points of an item; those of the first one that is priced are kept in `like`, for all of its queue. */
static int price_item(struct joint *j, struct joint_item *x, struct err *e)
{
    if (x->steps.from)
        return 0;
    int r = price_steps(&j->p->space, &j->p->residencies, &x->run.deepest, x->run.least_depth, x->batch, &x->steps, e);
    if (r < 0) {
        price_steps_done(&x->steps);
        return r;
    }
    if (!j->like.from) {
        size_t layers = (size_t)j->p->space.in->n_layers;
        j->like = x->steps;
        size_t points = 0;
        for (size_t l = 0; l < layers; l++)
            points = j->like.from[l] + (size_t)j->like.n[l] > points ? j->like.from[l] + (size_t)j->like.n[l] : points;
        x->steps = (struct price_steps){ j->like.fixed_ticks, malloc(layers * sizeof *x->steps.from), malloc(layers * sizeof *x->steps.n),
                                         malloc((points + 1) * sizeof *x->steps.ticks), NULL };
        if (!x->steps.from || !x->steps.n || !x->steps.ticks) {
            price_steps_done(&x->steps);
            return err_set(e, ERR_NOMEM, "out of memory for curves");
        }
        memcpy(x->steps.from, j->like.from, layers * sizeof *x->steps.from);
        memcpy(x->steps.n, j->like.n, layers * sizeof *x->steps.n);
        memcpy(x->steps.ticks, j->like.ticks, points * sizeof *x->steps.ticks);
    }
    free(x->steps.at);
    x->steps.at = NULL;
    return 0;
}

/* Do the layer's points stand with those of its representative, in all items? */
static int is_copy(const struct joint *j, const struct joint_node *x, int layer)
{
    int like = space_representative(&j->p->space, layer), same = like != layer && j->like.from[layer] == j->like.from[like];
    for (int i = 0; i < x->from[j->n] && same; i++) {
        const struct price_steps *s = &j->item[x->item[i]].steps;
        same = s->from[layer] == s->from[like];
    }
    return same;
}

static void sum_points(const struct joint *j, const struct joint_node *x, int layer, struct solve_point *out)
{
    int n = j->like.n[layer];
    memcpy(out, j->like.at + j->like.from[layer], (size_t)n * sizeof *out);
    for (int k = 0; k < n; k++)
        out[k].ticks = 0;
    for (int b = 0; b < j->n; b++)
        for (int k = 0; k < n; k++) {
            int64_t least = SOLVE_NEVER;
            for (int i = x->from[b]; i < x->from[b + 1]; i++) {
                const struct price_steps *s = &j->item[x->item[i]].steps;
                int64_t t = s->ticks[s->from[layer] + (size_t)k];
                least = t < least ? t : least;
            }
            out[k].ticks += j->weight[b] * least;
        }
}

static int sum_layer(const struct joint *j, const struct joint_node *x, int layer, struct solve_config *out, struct err *e)
{
    if (is_copy(j, x, layer))
        return solve_curve_copy(&out->curves[layer], &out->curves[space_representative(&j->p->space, layer)], e);
    for (int i = 0; i < x->from[j->n]; i++)
        if (j->item[x->item[i]].steps.n[layer] != j->like.n[layer])
            return err_set(e, ERR_SYS, "batch sizes have different residencies in layer %d", layer);
    struct solve_point *pts = malloc(((size_t)j->like.n[layer] + 1) * sizeof *pts);
    if (!pts)
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    sum_points(j, x, layer, pts);
    int r = solve_curve_init(&out->curves[layer], pts, j->like.n[layer], e);
    free(pts);
    return r;
}

/* The account that any choice of the node has at least: room for the most threads and the deepest queue of the batch sizes, each of
 * which takes the least of its set. */
static int least_bytes(const struct joint *j, const struct joint_node *x, int64_t *out, struct err *e)
{
    struct cost_choice most = j->item[x->item[0]].run.deepest;
    struct budget b;
    most.threads = x->few;
    most.depth = x->flat;
    most.height = 0;
    most.work = PLAN_WORK_FFN;
    most.engine = NULL;
    for (int k = 0; k < j->n; k++) {
        int threads = BUDGET_MAX_THREADS, depth = BUDGET_MAX_DEPTH, without = 0;
        for (int i = x->from[k]; i < x->from[k + 1]; i++) {
            const struct joint_run *run = &j->item[x->item[i]].run;
            threads = run->deepest.threads < threads ? run->deepest.threads : threads;
            depth = run->least_depth < depth ? run->least_depth : depth;
            without |= !cost_has_engine(&run->deepest);
        }
        if (!without) { /* each choice of this size has an accelerator */
            most.height = (uint32_t)j->p->space.in->h.n_ff; /* any at all takes the same memory, and other work more */
            most.engine = j->item[x->item[x->from[k]]].run.deepest.engine;
        }
        most.threads = threads > most.threads ? threads : most.threads;
        most.depth = depth > most.depth ? depth : most.depth;
    }
    configs_set_lanes(&most);
    int r = account_of(&j->p->space, &most, j->lim, NULL, &b, e);
    *out = r < 0 ? 0 : (int64_t)(b.total / SOLVE_BYTE_UNIT);
    return r;
}

static struct solve_problem problem_of(const struct joint *j, struct solve_config *config)
{
    const struct solve_problem *sp = &j->p->configs.sp;
    struct solve_problem one = { .n_layers = sp->n_layers, .n_batches = 1, .n_classes = sp->n_classes, .n_configs = 1, .weight = { 1 },
                                 .configs = config, .memory = sp->memory, .max_ticks = SOLVE_NEVER, .context = sp->context };
    return one;
}

/* A node as one configuration of one batch size. Free its curves. */
static int config_of(struct joint *j, const struct joint_node *x, struct solve_config *out, struct err *e)
{
    int r = 0;
    *out = (struct solve_config){ .n_kinds = 1, .curves = calloc((size_t)j->p->space.in->n_layers, sizeof *out->curves) };
    if (!out->curves)
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    for (int i = 0; i < x->from[j->n] && r == 0; i++)
        r = price_item(j, &j->item[x->item[i]], e);
    for (int l = 0; l < j->p->space.in->n_layers && r == 0; l++)
        r = sum_layer(j, x, l, out, e);
    for (int b = 0; b < j->n && r == 0; b++) {
        int64_t least = SOLVE_NEVER;
        for (int i = x->from[b]; i < x->from[b + 1]; i++) {
            int64_t t = j->item[x->item[i]].steps.fixed_ticks;
            least = t < least ? t : least;
        }
        out->fixed_ticks[0] += j->weight[b] * least;
    }
    return r < 0 ? r : least_bytes(j, x, &out->fixed_bytes, e);
}

static int bound_node(struct joint *j, struct joint_node *x, struct err *e)
{
    struct solve_config c;
    struct solve_problem sp = problem_of(j, &c);
    int r = config_of(j, x, &c, e);
    if (r == 0)
        r = solve_bound(&sp, &c, e);
    solve_config_done(&sp, &c);
    x->bound = c.bound;
    j->evaluated++;
    return r;
}

/* --- taking out --- */

static int cannot_beat(int64_t bound, int64_t objective)
{
    return objective != SOLVE_NEVER && bound >= objective - (int64_t)(CLOSE * (double)objective);
}

/* Of items[n] of a batch size, those that may be worth it beside the node's other sets are put in front; *left: how many. Parts that are
 * not are closed. */
static int take_out(struct joint *j, const struct joint_node *x, int batch, int *items, int n, int64_t objective, int *left, struct err *e)
{
    struct joint_node part;
    int first, second, r = new_node(j, x, batch, items, n, &part, e);
    if (r < 0)
        return r;
    if ((r = bound_node(j, &part, e)) < 0) {
        free(part.item);
        return r;
    }
    *left = n;
    if (cannot_beat(part.bound, objective) || part.bound == SOLVE_NEVER) {
        *left = 0;
        return close_node(j, &part, e);
    }
    free(part.item);
    if (n == 1 || j->evaluated >= MOST)
        return 0;
    if ((r = take_out(j, x, batch, items, n / 2, objective, &first, e)) < 0 ||
        (r = take_out(j, x, batch, items + n / 2, n - n / 2, objective, &second, e)) < 0)
        return r;
    memmove(items + first, items + n / 2, (size_t)second * sizeof *items);
    *left = first + second;
    return 0;
}

/* Takes out of the node's sets what can be; 1: something is left in each. The node is changed. */
static int reduce(struct joint *j, struct joint_node *x, int64_t objective, struct err *e)
{
    for (int pass = 0, changed = 1; pass < PASSES && changed; pass++) {
        changed = 0;
        for (int b = 0; b < j->n; b++) {
            int n = size_of(x, b), left = n, r;
            struct joint_node next;
            int *items = malloc(((size_t)n + 1) * sizeof *items);
            if (!items)
                return err_set(e, ERR_NOMEM, "out of memory for configurations");
            memcpy(items, x->item + x->from[b], (size_t)n * sizeof *items);
            r = n > 1 ? take_out(j, x, b, items, n, objective, &left, e) : 0;
            if (r == 0 && left > 0 && left < n && (r = new_node(j, x, b, items, left, &next, e)) == 0) {
                next.bound = x->bound;
                free(x->item);
                *x = next;
                changed = 1;
            }
            free(items);
            if (r < 0 || left == 0)
                return r;
        }
    }
    return 1;
}

/* --- splitting --- */

/* Where a node is split: the batch size with most items; none has more than one: -1. */
static int largest_set(const struct joint *j, const struct joint_node *x)
{
    int best = 0;
    for (int b = 1; b < j->n; b++)
        if (size_of(x, b) > size_of(x, best))
            best = b;
    return size_of(x, best) > 1 ? best : -1;
}

static int depths_of(const struct joint_run *run)
{
    int n = 1;
    for (int d = run->least_depth; d < run->deepest.depth; d *= 2)
        n++;
    return n;
}

/* The batch size whose one run has most depths; -1: all have one. */
static int longest_run(const struct joint *j, const struct joint_node *x)
{
    int best = 0;
    for (int b = 1; b < j->n; b++)
        if (depths_of(&j->item[x->item[x->from[b]]].run) > depths_of(&j->item[x->item[x->from[best]]].run))
            best = b;
    return depths_of(&j->item[x->item[x->from[best]]].run) > 1 ? best : -1;
}

/* Has the node a choice that is as deep and has as many threads as it says? */
static int is_reached(const struct joint *j, const struct joint_node *x)
{
    int deep = 0, many = 0;
    for (int i = 0; i < x->from[j->n]; i++) {
        const struct cost_choice *c = &j->item[x->item[i]].run.deepest;
        deep |= c->depth >= x->flat;
        many |= c->threads >= x->few;
    }
    return deep && many;
}

/* A part of a node is closed, or open. */
static int add_part(struct joint *j, const struct joint_node *x, int batch, const int *items, int n, int64_t objective, struct err *e)
{
    struct joint_node part;
    int r = new_node(j, x, batch, items, n, &part, e);
    if (r < 0)
        return r;
    if (!is_reached(j, &part) || (r = bound_node(j, &part, e)) < 0) { /* where it is not reached, another node has it */
        free(part.item);
        return r;
    }
    return part.bound == SOLVE_NEVER || cannot_beat(part.bound, objective) ? close_node(j, &part, e) :
                                                                            push(&j->open, &j->n_open, &j->cap_open, &part, e);
}

/* 1: it is one choice for each batch size. */
static int split(struct joint *j, const struct joint_node *x, int64_t objective, struct err *e)
{
    int b = largest_set(j, x), r;
    if (b >= 0) {
        const int *items = x->item + x->from[b];
        int n = size_of(x, b);
        r = add_part(j, x, b, items, n / 2, objective, e);
        return r < 0 ? r : add_part(j, x, b, items + n / 2, n - n / 2, objective, e);
    }
    if ((b = longest_run(j, x)) < 0)
        return 1;
    int item = x->item[x->from[b]], least = j->item[item].run.least_depth, deep = j->item[item].run.deepest.depth, middle = least;
    for (int i = 0; i < depths_of(&j->item[item].run) / 2; i++)
        middle *= 2;
    int first = part_of(j, item, least, middle / 2, e), second = first < 0 ? first : part_of(j, item, middle, deep, e);
    if (second < 0 || (r = add_part(j, x, b, &first, 1, objective, e)) < 0)
        return second < 0 ? second : r;
    return add_part(j, x, b, &second, 1, objective, e);
}

static int try_leaf(struct joint *j, const struct joint_node *x, int64_t *objective, joint_leaf_fn *leaf, void *ctx, struct err *e)
{
    struct cost_choice choice[SOLVE_MAX_BATCHES];
    for (int b = 0; b < j->n; b++)
        choice[b] = j->item[x->item[x->from[b]]].run.deepest;
    return leaf(ctx, choice, objective, e);
}

/* --- the search --- */

/* The node of all items with a queue like this one's, slowest first; item NULL: a batch size has none. */
static int node_of(const struct joint *j, const struct cost_choice *like, struct joint_node *out, struct err *e)
{
    *out = (struct joint_node){ .item = malloc(((size_t)j->n_items + 1) * sizeof *out->item), .flat = BUDGET_MAX_DEPTH,
                                .few = BUDGET_MAX_THREADS };
    if (!out->item)
        return err_set(e, ERR_NOMEM, "out of memory for configurations");
    int n = 0, any = 1;
    for (int b = 0; b < j->n && any; b++) {
        out->from[b] = n;
        for (int i = 0; i < j->n_items; i++) {
            const struct joint_run *run = &j->item[i].run;
            if (j->item[i].batch != b || j->item[i].whole != i || !configs_same_queue(&run->deepest, like))
                continue;
            out->flat = run->least_depth < out->flat ? run->least_depth : out->flat;
            out->deep = run->deepest.depth > out->deep ? run->deepest.depth : out->deep;
            out->few = run->deepest.threads < out->few ? run->deepest.threads : out->few;
            out->many = run->deepest.threads > out->many ? run->deepest.threads : out->many;
            int at = n++;
            for (; at > out->from[b] && j->item[out->item[at - 1]].run.bound < j->item[i].run.bound; at--)
                out->item[at] = out->item[at - 1];
            out->item[at] = i;
        }
        out->from[b + 1] = n;
        any = n > out->from[b];
    }
    if (!any) {
        free(out->item);
        out->item = NULL;
    }
    return 0;
}

/* The part of a node whose deepest queue and most threads are within these; item NULL: there is none. */
static int within(struct joint *j, const struct joint_node *x, const int depth[2], const int threads[2], struct joint_node *out,
                  struct err *e)
{
    int n = 0, any = 1, part = 0;
    *out = (struct joint_node){ .item = malloc(((size_t)x->from[j->n] + 1) * sizeof *out->item), .flat = depth[0], .deep = depth[1],
                                .few = threads[0], .many = threads[1] };
    if (!out->item)
        return err_set(e, ERR_NOMEM, "out of memory for configurations");
    for (int b = 0; b < j->n && any && part >= 0; b++) {
        out->from[b] = n;
        for (int i = x->from[b]; i < x->from[b + 1] && part >= 0; i++) {
            const struct joint_run *run = &j->item[x->item[i]].run;
            if (run->least_depth > depth[1] || run->deepest.threads > threads[1])
                continue;
            part = part_of(j, x->item[i], run->least_depth, run->deepest.depth < depth[1] ? run->deepest.depth : depth[1], e);
            out->item[n++] = part;
        }
        out->from[b + 1] = n;
        any = n > out->from[b];
    }
    if (part < 0 || !any || !is_reached(j, out)) {
        free(out->item);
        out->item = NULL;
    }
    return part < 0 ? part : 0;
}

static int begin(struct joint *j, struct joint_node *x, int64_t objective, struct err *e);

static int begin_within(struct joint *j, const struct joint_node *x, int flat, int deep, int few, int many, int64_t objective,
                        struct err *e)
{
    struct joint_node part;
    int r = within(j, x, (int[]){ flat, deep }, (int[]){ few, many }, &part, e);
    return r == 0 && part.item ? begin(j, &part, objective, e) : r;
}

/* The depth at which a range of powers of two is halved: the last of the first half. */
static int middle_depth(int flat, int deep)
{
    int middle = flat;
    while (middle * 2 * middle * 2 <= flat * deep)
        middle *= 2;
    return middle;
}

/* Halves a node, which is taken over, until its account is known; then takes out of its sets what can be, and opens the rest. */
static int begin(struct joint *j, struct joint_node *x, int64_t objective, struct err *e)
{
    int depth = middle_depth(x->flat, x->deep), threads = x->few + (x->many - x->few) / 2, r = bound_node(j, x, e);
    if (r == 0 && (x->bound == SOLVE_NEVER || cannot_beat(x->bound, objective)))
        return close_node(j, x, e);
    if (r == 0 && x->few < x->many) {
        if ((r = begin_within(j, x, x->flat, x->deep, x->few, threads, objective, e)) == 0)
            r = begin_within(j, x, x->flat, x->deep, threads + 1, x->many, objective, e);
    } else if (r == 0 && x->flat < x->deep) {
        if ((r = begin_within(j, x, x->flat, depth, x->few, x->many, objective, e)) == 0)
            r = begin_within(j, x, depth * 2, x->deep, x->few, x->many, objective, e);
    } else if (r == 0 && (r = reduce(j, x, objective, e)) == 1 && (r = bound_node(j, x, e)) == 0) {
        return push(&j->open, &j->n_open, &j->cap_open, x, e);
    }
    free(x->item);
    return r;
}

/* The open node with the least bound, taken off the list. */
static struct joint_node pop(struct joint *j)
{
    int best = 0;
    for (int i = 1; i < j->n_open; i++)
        if (j->open[i].bound < j->open[best].bound)
            best = i;
    struct joint_node x = j->open[best];
    j->open[best] = j->open[--j->n_open];
    return x;
}

/* Every queue's nodes to the end. */
static int search_open(struct joint *j, int64_t *objective, joint_leaf_fn *leaf, void *ctx, struct err *e)
{
    int r = 0;
    while (j->n_open > 0 && r >= 0) {
        struct joint_node x = pop(j);
        int end = cannot_beat(x.bound, *objective) || j->evaluated >= MOST;
        if (!cannot_beat(x.bound, *objective) && end)
            j->finished = 0;
        r = end ? 1 : split(j, &x, *objective, e);
        if (r == 1 && !end)
            r = try_leaf(j, &x, objective, leaf, ctx, e) < 0 ? e->code : 1;
        if (r == 1)
            r = close_node(j, &x, e);
        else
            free(x.item);
    }
    return r;
}

static void forget_prices(struct joint *j)
{
    for (int i = 0; i < j->n_items; i++)
        price_steps_done(&j->item[i].steps);
    price_steps_done(&j->like);
}

int joint_search(struct joint *j, int64_t objective, joint_leaf_fn *leaf, void *ctx, struct err *e)
{
    int r = 0, n = j->n_items;
    j->finished = 1;
    for (int i = 0; i < n && r == 0; i++) {
        const struct cost_choice like = j->item[i].run.deepest;
        struct joint_node x;
        int seen = j->item[i].batch != 0;
        for (int k = 0; k < i && !seen; k++)
            seen = j->item[k].batch == 0 && configs_same_queue(&j->item[k].run.deepest, &like);
        if (seen || (r = node_of(j, &like, &x, e)) < 0 || !x.item)
            continue;
        if ((r = begin(j, &x, objective, e)) == 0)
            r = search_open(j, &objective, leaf, ctx, e);
        forget_prices(j);
    }
    return r;
}

/* --- certificates --- */

/* What each batch size may choose from. */
static char *name_of(const struct joint *j, const struct joint_node *x)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    fprintf(f, "the deepest queue of any: %d to %d; most threads of any: %d to %d\n", x->flat, x->deep, x->few, x->many);
    for (int b = 0; b < j->n; b++) {
        fprintf(f, "batch size %d:", inputs_batch_sizes[b]);
        for (int i = x->from[b]; i < x->from[b + 1]; i++) {
            char one[256];
            configs_name(&j->p->space, &j->item[x->item[i]].run.deepest, j->item[x->item[i]].run.least_depth, one, sizeof one);
            fprintf(f, "%s %s", i > x->from[b] ? " |" : "", one);
        }
        fputs(size_of(x, b) > 1 ? " (the best of each)\n" : "\n", f);
    }
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

int joint_certify(struct joint *j, struct certificate *out, struct err *e)
{
    int open = 0, r = 0;
    for (int i = 0; i < j->n_closed && r >= 0; i++) {
        struct solve_config one;
        struct solve_problem sp = problem_of(j, &one);
        char *name = name_of(j, &j->closed[i]);
        const struct cost_choice *now = &j->item[j->closed[i].item[0]].run.deepest;
        const struct cost_choice *was = i ? &j->item[j->closed[i - 1].item[0]].run.deepest : now;
        if (!name)
            return err_set(e, ERR_NOMEM, "out of memory for a certificate");
        if (!configs_same_queue(now, was))
            forget_prices(j);
        if ((r = config_of(j, &j->closed[i], &one, e)) == 0)
            r = certificate_config(out, &sp, &one, name, e);
        open += r == 0;
        solve_config_done(&sp, &one);
        free(name);
    }
    forget_prices(j);
    return r < 0 ? r : open;
}
