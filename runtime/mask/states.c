#include "runtime/mask/states.h"

#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

struct frame {
    int32_t node, count, parent; /* CALL or COUNT; rounds that have ended; the frame below, 0: none */
    int16_t depth;
};

struct place {
    int32_t node, frame;
};

struct state {
    int32_t first, n;            /* of places */
    int32_t near;                /* -1: not known yet */
    int32_t reach;
};

struct seen {
    struct place p;
    uint32_t stamp;
};
enum { SEEN = 4 * STATES_PLACES };

struct states {
    const struct grammar *g;
    struct frame *frames;
    struct place *places;
    struct state *states;
    int32_t *next;               /* [max_states][n_classes]; STATES_FULL: not known yet */
    int32_t *frame_table, *state_table;
    int n_frames, n_places, n_states, max_frames, max_places, max_states, frame_slots, state_slots;
    int full;
    uint64_t work;
    /* a state that is being made */
    struct seen seen[SEEN];
    uint32_t stamp;
    int n_seen, n_new;
    struct place new[STATES_PLACES];
};

struct states *states_new(const struct grammar *g, size_t bytes)
{
    struct states *s = calloc(1, sizeof *s);
    size_t each = sizeof(struct state) + (size_t)g->n_classes * sizeof(int32_t) + 16 * sizeof(struct place) + 4 * sizeof(struct frame) +
                  10 * sizeof(int32_t);
    if (!s)
        return NULL;
    s->g = g;
    s->max_states = (int)((bytes > sizeof *s + 64 * each ? bytes - sizeof *s : 64 * each) / each);
    s->max_places = 16 * s->max_states;
    s->max_frames = 4 * s->max_states;
    s->frame_slots = 2 * s->max_frames;
    s->state_slots = 2 * s->max_states;
    s->frames = malloc((size_t)s->max_frames * sizeof *s->frames);
    s->places = malloc((size_t)s->max_places * sizeof *s->places);
    s->states = malloc((size_t)s->max_states * sizeof *s->states);
    s->next = malloc((size_t)s->max_states * (size_t)g->n_classes * sizeof *s->next);
    s->frame_table = calloc((size_t)s->frame_slots, sizeof *s->frame_table);
    s->state_table = calloc((size_t)s->state_slots, sizeof *s->state_table);
    if (!s->frames || !s->places || !s->states || !s->next || !s->frame_table || !s->state_table) {
        states_free(s);
        return NULL;
    }
    s->n_frames = s->n_states = 1; /* none, dead */
    s->frames[0] = (struct frame){ 0 };
    s->states[0] = (struct state){ 0 };
    return s;
}

void states_free(struct states *s)
{
    if (!s)
        return;
    free(s->frames);
    free(s->places);
    free(s->states);
    free(s->next);
    free(s->frame_table);
    free(s->state_table);
    free(s);
}

uint64_t states_work(const struct states *s)
{
    return s->work;
}

/* ---- what is kept once ---- */

static uint32_t mix(uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t h = (a * UINT64_C(0x9e3779b97f4a7c15)) ^ (b * UINT64_C(0xc2b2ae3d27d4eb4f)) ^ (c * UINT64_C(0x165667b19e3779f9));
    return (uint32_t)(h >> 32 ^ h >> 11);
}

static int frame_of(struct states *s, int node, int count, int parent)
{
    int at = (int)(mix((uint32_t)node, (uint32_t)count, (uint32_t)parent) % (uint32_t)s->frame_slots);
    for (; s->frame_table[at]; at = at + 1 == s->frame_slots ? 0 : at + 1) {
        const struct frame *f = &s->frames[s->frame_table[at]];
        if (f->node == node && f->count == count && f->parent == parent)
            return s->frame_table[at];
    }
    if (s->n_frames == s->max_frames) {
        s->full = 1;
        return 0;
    }
    s->frames[s->n_frames] = (struct frame){ node, count, parent, (int16_t)(s->frames[parent].depth + 1) };
    return s->frame_table[at] = s->n_frames++;
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->node != y->node ? (x->node < y->node ? -1 : 1) : x->frame < y->frame ? -1 : x->frame > y->frame;
}

/* The state of the new places. */
static int state_of(struct states *s)
{
    if (s->full)
        return STATES_FULL;
    if (s->n_new == 0)
        return STATES_DEAD;
    qsort(s->new, (size_t)s->n_new, sizeof s->new[0], by_place);
    size_t bytes = (size_t)s->n_new * sizeof s->new[0];
    int at = (int)(hash_64(s->new, bytes) % (uint64_t)s->state_slots);
    for (; s->state_table[at]; at = at + 1 == s->state_slots ? 0 : at + 1) {
        const struct state *t = &s->states[s->state_table[at]];
        if (t->n == s->n_new && !memcmp(s->places + t->first, s->new, bytes))
            return s->state_table[at];
    }
    if (s->n_states == s->max_states || s->max_places - s->n_places < s->n_new)
        return STATES_FULL;
    int k = s->n_states++;
    s->states[k] = (struct state){ .first = s->n_places, .n = s->n_new, .near = -1 };
    memcpy(s->places + s->n_places, s->new, bytes);
    s->n_places += s->n_new;
    memset(s->next + (size_t)k * (size_t)s->g->n_classes, 0xff, (size_t)s->g->n_classes * sizeof *s->next);
    return s->state_table[at] = k;
}

/* ---- places ---- */

static void begin(struct states *s)
{
    s->stamp++;
    s->n_seen = s->n_new = s->full = 0;
}

/* 1: it has not been seen since begin(). */
static int is_new(struct states *s, int node, int frame)
{
    uint32_t at = mix((uint32_t)node, (uint32_t)frame, 1) % SEEN;
    for (; s->seen[at].stamp == s->stamp; at = (at + 1) % SEEN)
        if (s->seen[at].p.node == node && s->seen[at].p.frame == frame)
            return 0;
    if (s->n_seen == SEEN / 2)
        return 0;
    s->n_seen++;
    s->seen[at] = (struct seen){ { node, frame }, s->stamp };
    return 1;
}

static void reach(struct states *s, int node, int frame);

/* A count's frame: another round, or what follows. */
static void count(struct states *s, int frame)
{
    const struct frame f = s->frames[frame];
    const struct grammar_node *k = &s->g->nodes[f.node];
    if (k->max < 0 || f.count < k->max)
        reach(s, k->alt, frame);
    if (f.count >= k->min)
        reach(s, k->next, f.parent);
}

static int push(struct states *s, int node, int rounds, int parent)
{
    return s->frames[parent].depth >= STATES_DEPTH ? 0 : frame_of(s, node, rounds, parent);
}

static void leave(struct states *s, int frame)
{
    const struct frame f = s->frames[frame];
    const struct grammar_node *k = &s->g->nodes[f.node];
    if (k->kind == GRAMMAR_CALL) {
        reach(s, k->next, f.parent);
        return;
    }
    int rounds = f.count + 1, to = push(s, f.node, k->max < 0 && rounds > k->min ? k->min : rounds, f.parent);
    if (to)
        count(s, to);
}

/* All places that are reached from one without a byte. */
static void reach(struct states *s, int node, int frame)
{
    while (is_new(s, node, frame)) {
        const struct grammar_node *k = &s->g->nodes[node];
        int to;
        switch (k->kind) {
        case GRAMMAR_SPLIT:
            reach(s, k->alt, frame);
            node = k->next;
            continue;
        case GRAMMAR_CALL:
            node = s->g->rules[k->alt];
            frame = k->next == GRAMMAR_RETURN ? frame : push(s, (int)(k - s->g->nodes), 0, frame);
            if (frame || k->next == GRAMMAR_RETURN)
                continue;
            return;
        case GRAMMAR_COUNT:
            if ((to = push(s, node, 0, frame)))
                count(s, to);
            return;
        case GRAMMAR_END:
            if (frame) {
                leave(s, frame);
                return;
            }
            break;
        default: break;
        }
        if (s->n_new < STATES_PLACES)
            s->new[s->n_new++] = (struct place){ node, frame };
        return;
    }
}

int states_first(struct states *s)
{
    begin(s);
    reach(s, s->g->rules[s->g->start], 0);
    return state_of(s);
}

int states_next(struct states *s, int state, int class)
{
    const struct grammar *g = s->g;
    int32_t *known = &s->next[(size_t)state * (size_t)g->n_classes + (size_t)class];
    unsigned byte = g->of_class[class];
    if (state == STATES_DEAD || *known != STATES_FULL)
        return state == STATES_DEAD ? STATES_DEAD : *known;
    begin(s);
    s->work += (uint64_t)s->states[state].n + (uint64_t)g->n_classes / 8;
    for (int i = 0; i < s->states[state].n; i++) {
        const struct place p = s->places[s->states[state].first + i];
        const struct grammar_node *k = &g->nodes[p.node];
        if (k->kind == GRAMMAR_BYTE ? k->byte == byte : k->kind == GRAMMAR_SET && grammar_has(&g->sets[k->alt], byte))
            reach(s, k->next, p.frame);
    }
    s->work += (uint64_t)s->n_seen;
    return *known = state_of(s);
}

const int32_t *states_known(const struct states *s)
{
    return s->next;
}

int states_may_end(const struct states *s, int state)
{
    for (int i = 0; i < s->states[state].n; i++)
        if (s->places[s->states[state].first + i].node == GRAMMAR_RETURN)
            return 1;
    return 0;
}

int states_text_left(const struct states *s, int state, int most, int *alone)
{
    const struct place *p = s->places + s->states[state].first;
    int n = s->states[state].n, best = 0, at = 0;
    for (int i = 0; i < n; i++) {
        const struct frame *f = &s->frames[p[i].frame];
        const struct grammar_node *k = &s->g->nodes[f->node];
        int left = k->max < 0 || k->max - f->count > most ? most : k->max - f->count;
        if (p[i].node == s->g->plain && k->kind == GRAMMAR_COUNT && left > best) {
            best = left;
            at = p[i].frame;
        }
    }
    *alone = 1;
    for (int i = 0; i < n; i++)
        *alone &= p[i].frame == at || (s->g->nodes[p[i].node].kind == GRAMMAR_BYTE && s->g->nodes[p[i].node].byte == '"');
    return best;
}

/* ---- counts that are far from their bounds ---- */

static int near_frame(struct states *s, int frame, int of)
{
    if (!frame)
        return 0;
    const struct frame f = s->frames[frame];
    const struct grammar_node *k = &s->g->nodes[f.node];
    int parent = near_frame(s, f.parent, of), rounds = f.count;
    if (k->kind == GRAMMAR_COUNT && rounds < k->min - of)
        rounds = 0;
    else if (k->kind == GRAMMAR_COUNT && rounds >= k->min && k->max >= 0 && k->max - rounds > of)
        rounds = k->min;
    return parent == f.parent && rounds == f.count ? frame : frame_of(s, f.node, rounds, parent);
}

int states_near(struct states *s, int state, int of)
{
    if (state == STATES_DEAD)
        return state;
    if (s->states[state].near >= 0 && s->states[state].reach == of)
        return s->states[state].near;
    begin(s);
    for (int i = 0; i < s->states[state].n && !s->full; i++) {
        const struct place p = s->places[s->states[state].first + i];
        int frame = near_frame(s, p.frame, of);
        if (is_new(s, p.node, frame))
            s->new[s->n_new++] = (struct place){ p.node, frame };
    }
    int r = state_of(s);
    if (r > 0) {
        s->states[state].near = r;
        s->states[state].reach = of;
    }
    return r;
}

/* ---- memory ---- */

struct copy {
    struct frame *frames;
    struct place *places;
    struct state *states;
};

static int copy_frame(struct states *s, const struct frame *of, int frame)
{
    if (!frame)
        return 0;
    return frame_of(s, of[frame].node, of[frame].count, copy_frame(s, of, of[frame].parent));
}

int states_forget(struct states *s, int **keep, int n)
{
    struct copy c = { malloc((size_t)s->n_frames * sizeof *c.frames), malloc((size_t)(s->n_places + 1) * sizeof *c.places),
                      malloc((size_t)s->n_states * sizeof *c.states) };
    int r = c.frames && c.places && c.states ? 0 : ERR_NOMEM;
    if (r == 0) {
        memcpy(c.frames, s->frames, (size_t)s->n_frames * sizeof *c.frames);
        memcpy(c.places, s->places, (size_t)s->n_places * sizeof *c.places);
        memcpy(c.states, s->states, (size_t)s->n_states * sizeof *c.states);
        s->n_frames = s->n_states = 1;
        s->n_places = 0;
        memset(s->frame_table, 0, (size_t)s->frame_slots * sizeof *s->frame_table);
        memset(s->state_table, 0, (size_t)s->state_slots * sizeof *s->state_table);
    }
    for (int i = 0; i < n && r == 0; i++) {
        begin(s);
        const struct state *t = &c.states[*keep[i]];
        for (int k = 0; k < t->n; k++)
            s->new[s->n_new++] = (struct place){ c.places[t->first + k].node, copy_frame(s, c.frames, c.places[t->first + k].frame) };
        int to = state_of(s);
        *keep[i] = to;
        r = to == STATES_FULL ? ERR_LIMIT : 0;
    }
    free(c.frames);
    free(c.places);
    free(c.states);
    return r;
}
