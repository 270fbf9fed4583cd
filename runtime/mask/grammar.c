#include "runtime/mask/grammar.h"

#include "common/base/print.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct grammar *grammar_new(void)
{
    struct grammar *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->nodes = malloc(GRAMMAR_NODES * sizeof *g->nodes);
    g->sets = malloc(GRAMMAR_SETS * sizeof *g->sets);
    g->rules = malloc(GRAMMAR_RULES * sizeof *g->rules);
    if (!g->nodes || !g->sets || !g->rules) {
        grammar_free(g);
        return NULL;
    }
    g->nodes[0] = (struct grammar_node){ .kind = GRAMMAR_END };
    g->n_nodes = 1;
    g->plain = -1;
    g->n_classes = 1;
    return g;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    free(g->nodes);
    free(g->sets);
    free(g->rules);
    free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    return sizeof *g + (size_t)g->n_nodes * sizeof *g->nodes + (size_t)g->n_sets * sizeof *g->sets + (size_t)g->n_rules * sizeof *g->rules;
}

void grammar_fail(struct grammar *g, int code, const char *format, ...)
{
    va_list args;
    if (g->failed.code)
        return;
    va_start(args, format);
    g->failed.code = code;
    print_into_va(g->failed.msg, sizeof g->failed.msg, format, args);
    va_end(args);
}

static int add(struct grammar *g, struct grammar_node n)
{
    if (g->n_nodes == GRAMMAR_NODES)
        grammar_fail(g, ERR_LIMIT, "a schema of more than the limit of %d steps", GRAMMAR_NODES);
    if (g->failed.code)
        return 0;
    g->nodes[g->n_nodes] = n;
    return g->n_nodes++;
}

int grammar_rule(struct grammar *g)
{
    if (g->n_rules == GRAMMAR_RULES)
        grammar_fail(g, ERR_LIMIT, "a schema of more than the limit of %d rules", GRAMMAR_RULES);
    if (g->failed.code)
        return 0;
    g->rules[g->n_rules] = -1;
    return g->n_rules++;
}

int grammar_byte(struct grammar *g, unsigned byte, int next)
{
    return add(g, (struct grammar_node){ .kind = GRAMMAR_BYTE, .byte = (uint8_t)byte, .next = next });
}

int grammar_text(struct grammar *g, const char *s, size_t n, int next)
{
    while (n-- > 0)
        next = grammar_byte(g, (unsigned char)s[n], next);
    return next;
}

int grammar_mark(struct grammar *g, const char *control_token, int next)
{
    return grammar_byte(g, GRAMMAR_MARK, grammar_text(g, control_token, strlen(control_token), next));
}

int grammar_set(struct grammar *g, const struct grammar_bytes *set, int next)
{
    int i = 0;
    while (i < g->n_sets && memcmp(&g->sets[i], set, sizeof *set))
        i++;
    if (i == GRAMMAR_SETS)
        grammar_fail(g, ERR_LIMIT, "a schema of more than the limit of %d sets of characters", GRAMMAR_SETS);
    if (g->failed.code)
        return 0;
    if (i == g->n_sets)
        g->sets[g->n_sets++] = *set;
    return add(g, (struct grammar_node){ .kind = GRAMMAR_SET, .alt = i, .next = next });
}

int grammar_range(struct grammar *g, unsigned from, unsigned to, int next)
{
    struct grammar_bytes s = { 0 };
    grammar_add(&s, from, to);
    return from == to ? grammar_byte(g, from, next) : grammar_set(g, &s, next);
}

int grammar_split(struct grammar *g, int a, int b)
{
    return add(g, (struct grammar_node){ .kind = GRAMMAR_SPLIT, .next = a, .alt = b });
}

int grammar_call(struct grammar *g, int rule, int next)
{
    return add(g, (struct grammar_node){ .kind = GRAMMAR_CALL, .alt = rule, .next = next });
}

int grammar_count(struct grammar *g, int round, int min, int max, int next)
{
    return max == 0 ? next : add(g, (struct grammar_node){ .kind = GRAMMAR_COUNT, .alt = round, .next = next, .min = min, .max = max });
}

/* Bytes of one class, of which some are in the set, become two. */
static void refine(struct grammar *g, const struct grammar_bytes *s)
{
    int inside[256], outside[256], n = 0;
    memset(inside, -1, sizeof inside);
    memset(outside, -1, sizeof outside);
    for (unsigned b = 0; b < 256; b++) {
        int *to = grammar_has(s, b) ? inside : outside, c = g->class[b];
        if (to[c] < 0)
            to[c] = n++;
        g->class[b] = (uint8_t)to[c];
    }
    g->n_classes = n;
}

int grammar_done(struct grammar *g, struct err *e)
{
    struct grammar_bytes seen = { 0 };
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].kind == GRAMMAR_BYTE)
            grammar_add(&seen, g->nodes[i].byte, g->nodes[i].byte);
    for (int i = 0; i < g->n_sets; i++)
        refine(g, &g->sets[i]);
    for (unsigned b = 0; b < 256; b++)
        if (grammar_has(&seen, b)) {
            struct grammar_bytes one = { 0 };
            grammar_add(&one, b, b);
            refine(g, &one);
        }
    for (int b = 255; b >= 0; b--)
        g->of_class[g->class[b]] = (uint8_t)b;
    if (g->failed.code)
        return err_set(e, g->failed.code, "%s", g->failed.msg);
    struct grammar_node *nodes = realloc(g->nodes, (size_t)g->n_nodes * sizeof *nodes);
    struct grammar_bytes *sets = realloc(g->sets, (size_t)(g->n_sets + 1) * sizeof *sets);
    int32_t *rules = realloc(g->rules, (size_t)g->n_rules * sizeof *rules);
    g->nodes = nodes ? nodes : g->nodes;
    g->sets = sets ? sets : g->sets;
    g->rules = rules ? rules : g->rules;
    return 0;
}
