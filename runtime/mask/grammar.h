#ifndef RUNTIME_MASK_GRAMMAR_H
#define RUNTIME_MASK_GRAMMAR_H

/* A language over bytes as a graph of nodes with rules that call each other: what a schema (schema.h) or a pattern is built as, and what
 * states.h runs. Built backwards: each function makes a node that goes on at `next`, which is there, and gives its number. Errors stay:
 * once one has happened, every function gives 0, and grammar_done says it. Single-threaded while it is built, constant then. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_NODES (1 << 14)
#define GRAMMAR_RULES (1 << 11)
#define GRAMMAR_SETS  (1 << 10)
#define GRAMMAR_MARK   0xff /* a byte of no text: a control token follows, by its text (mask.h) */
#define GRAMMAR_RETURN 0  /* the node that ends a rule, or one round of a count */

enum grammar_kind { GRAMMAR_END, GRAMMAR_BYTE, GRAMMAR_SET, GRAMMAR_SPLIT, GRAMMAR_CALL, GRAMMAR_COUNT };

struct grammar_node {
    uint8_t kind, byte;
    int32_t next;
    int32_t alt;          /* SPLIT: or there; CALL: the rule; COUNT: where a round begins; SET: which */
    int32_t min, max;     /* of COUNT: rounds; max -1: any number */
};

struct grammar_bytes {
    uint64_t bits[4];
};

struct grammar {
    struct grammar_node *nodes;
    struct grammar_bytes *sets;
    int32_t *rules;       /* where each begins; -1: not built yet */
    int n_nodes, n_rules, n_sets;
    int start;            /* rule */
    int plain;            /* node: a byte of a string that is text by itself; states.h knows by it that any text may follow */
    uint8_t class[256];   /* bytes that no node tells apart are of one */
    uint8_t of_class[256]; /* a byte of each */
    int n_classes;
    struct err failed;
};

struct grammar *grammar_new(void); /* NULL: out of memory */
void grammar_free(struct grammar *g); /* accepts NULL */
size_t grammar_bytes(const struct grammar *g); /* that it takes; grammar_done makes it as small as it can be */

int grammar_rule(struct grammar *g);  /* one that is to be built: g->rules[it] = its first node */
int grammar_byte(struct grammar *g, unsigned byte, int next);
int grammar_text(struct grammar *g, const char *s, size_t n, int next);
int grammar_mark(struct grammar *g, const char *control_token, int next);
int grammar_set(struct grammar *g, const struct grammar_bytes *set, int next);
int grammar_range(struct grammar *g, unsigned from, unsigned to, int next); /* bytes from..to */
int grammar_split(struct grammar *g, int a, int b);
int grammar_call(struct grammar *g, int rule, int next);
int grammar_count(struct grammar *g, int round, int min, int max, int next); /* rounds end in GRAMMAR_RETURN, and are not empty */

/* What is wrong stays the first. */
void grammar_fail(struct grammar *g, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The last step. */
int grammar_done(struct grammar *g, struct err *e);

static inline void grammar_add(struct grammar_bytes *s, unsigned from, unsigned to)
{
    for (unsigned b = from; b <= to; b++)
        s->bits[b / 64] |= (uint64_t)1 << b % 64;
}

static inline int grammar_has(const struct grammar_bytes *s, unsigned b)
{
    return (int)(s->bits[b / 64] >> b % 64 & 1);
}

#endif
