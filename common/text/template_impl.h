#ifndef COMMON_TEXT_TEMPLATE_IMPL_H
#define COMMON_TEXT_TEMPLATE_IMPL_H

/* Shared by template*.c only. Everything of a template, and everything of one rendering, lies in a heap that is freed as a whole.
 * Errors stick: after the first, functions return at once with a value that is harmless, and whoever loops looks at
 * `failed`. */
#include "common/text/template.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- memory ---- */

struct block;
struct heap {
    struct block *blocks;
    size_t used, most;
};
void *template_alloc(struct heap *h, size_t n); /* zeroed; NULL: no memory, or past most */
int template_no_room(const struct heap *h, size_t n); /* why template_alloc gave nothing: ERR_LIMIT or ERR_NOMEM */
void template_heap_free(struct heap *h);

struct text {
    const char *s;
    size_t n;
};

/* ---- the parsed template ---- */

enum node_kind {
    /* expressions */
    N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NOT, N_NEG, N_POS, N_BINARY, N_AND,
    N_OR, N_COMPARE, N_IF_ELSE, N_NAMED, /* a keyword argument */
    /* statements */
    N_TEXT, N_OUT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_FILTER_BLOCK, N_BREAK, N_CONTINUE, N_SCOPE
};
enum op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOOR, OP_MOD, OP_POW, OP_JOIN, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN };

struct node {
    enum node_kind kind;
    enum op op;
    int line;
    bool negated;               /* of a test */
    struct text name;           /* name, attribute, filter, test, text */
    const struct value *value;  /* N_CONST */
    struct node *a, *b, *c;     /* operands; condition, body and rest of an if; target, list and filter of a for */
    struct node *body, *other;  /* statements */
    struct node *args;          /* first of a list: elements, arguments, parameters */
    struct node *next;          /* of the list that it is in */
};

struct template {
    struct heap heap;
    struct node *body;
    char name[80];
};

/* ---- values ---- */

enum kind { V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_FLOAT, V_STR, V_LIST, V_DICT, V_NAMESPACE, V_MACRO, V_FUNCTION, V_METHOD };

struct list {
    const struct value **v;
    size_t n, cap;
};

struct value {
    enum kind kind;
    bool tuple;                 /* of a list: printed with parentheses */
    bool safe;                  /* of a str: what is added to it has its HTML escaped (filter safe, jinja2's Markup) */
    union {
        int64_t i;              /* bool, int */
        double d;
        struct text s;          /* str; name of what is undefined; name of a function */
        struct list *l;         /* list; dict and namespace: key, value, key, value ... */
        struct {
            const struct node *node;
            struct frame *frame;
        } macro;
        struct {
            const struct value *self;
            struct text name;
        } method;
    } u;
};

/* ---- a rendering ---- */

struct binding {
    struct text name;
    const struct value *value;
    struct binding *next;
};
struct frame {
    struct binding *first;
    struct frame *parent;
};

struct sink {
    char *s;
    size_t n, cap;
};

struct run {
    const struct template *t;
    struct heap heap;
    struct frame *frame;
    struct sink *out;
    struct err *e;
    time_t now;
    uint64_t steps;
    int depth, line;
    bool failed, breaking, continuing;
};

struct call {                   /* evaluated arguments */
    const struct value *arg[16];
    size_t n;
    struct text name[16];       /* of keyword arguments, which follow the others */
    const struct value *named[16];
    size_t n_named;
};

extern const struct value template_undefined, template_none, template_true, template_false;

/* Sets the error, with the template's name and line. */
const struct value *template_fail(struct run *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool template_step(struct run *r, size_t bytes); /* false: failed, now or before */
void *template_take(struct run *r, size_t n);    /* of the run's heap; NULL: failed */
void template_put(struct run *r, struct sink *s, const char *text, size_t n); /* grows in malloc'd memory */

/* template_number.c. Without white space around it, which the caller takes off. */
enum number { NUMBER_FOUND, NUMBER_NONE, NUMBER_TOO_LARGE, NUMBER_OTHER_DIGITS };
enum number template_read_int(struct text s, int64_t base, int64_t *out); /* base: 2 to 36, or 0: by its prefix */
enum number template_read_float(struct text s, double *out);
const struct value *template_real(struct run *r, enum op op, double a, double b);

/* template_value.c */
const struct value *template_bool(bool b);
const struct value *template_int(struct run *r, int64_t i);
const struct value *template_float(struct run *r, double d);
const struct value *template_str(struct run *r, const char *s, size_t n); /* copies */
const struct value *template_list(struct run *r, bool tuple);
const struct value *template_dict(struct run *r, bool is_namespace);
void template_append(struct run *r, const struct value *list, const struct value *v);
void template_set(struct run *r, const struct value *dict, const struct value *key, const struct value *v);
const struct value *template_get(const struct value *dict, const char *key, size_t n); /* NULL: it has none */
const struct value *template_from_js(struct run *r, const struct js *j, int depth);
bool template_truth(const struct value *v);
bool template_equal(struct run *r, const struct value *a, const struct value *b);
int template_order(struct run *r, const struct value *a, const struct value *b); /* fails where there is none */
bool template_contains(struct run *r, const struct value *in, const struct value *v);
size_t template_length(struct run *r, const struct value *v);
/* Elements: of a list, keys of a dict, characters of a string; a new list where it was none. */
const struct value *template_elements(struct run *r, const struct value *v);
bool template_hashable(const struct value *v);                             /* may it be a key? */
const char *template_kind_name(const struct value *v);
size_t template_chars(struct text s);                                      /* characters of a string */
struct text template_sub(struct text s, size_t from, size_t to);           /* by characters */

/* template_print.c */
void template_print(struct run *r, struct sink *s, const struct value *v); /* as str() */
void template_repr(struct run *r, struct sink *s, const struct value *v, int depth);
const struct value *template_string(struct run *r, const struct value *v);
const struct value *template_safe(struct run *r, const struct value *s); /* a str as it is, and safe */
const struct value *template_json(struct run *r, const struct value *v, const struct call *c);
const struct value *template_taken(struct run *r, struct sink *s);         /* what the sink holds, which is emptied */

/* template_eval.c */
const struct value *template_eval(struct run *r, const struct node *n);
const struct value *template_item(struct run *r, const struct value *v, const struct value *key);
const struct value *template_attr(struct run *r, const struct value *v, struct text name);
const struct value *template_call(struct run *r, const struct value *f, const struct call *c);
void template_exec(struct run *r, const struct node *n); /* a list of statements */
void template_bind(struct run *r, struct frame *f, struct text name, const struct value *v);

/* template_filter.c, template_method.c */
const struct value *template_filter(struct run *r, struct text name, const struct value *v, const struct call *c);
bool template_test(struct run *r, struct text name, const struct value *v, const struct call *c);
const struct value *template_method(struct run *r, const struct value *self, struct text name, const struct call *c);
struct text template_stripped(struct text s); /* of white space, as Python's strip() */
const struct value *template_lines(struct run *r, struct text s, bool keep_ends); /* as splitlines() */
const struct value *template_titled(struct run *r, const struct value *v); /* as the filter: behind blanks, - ( { [ < */
bool template_method_known(const struct value *self, struct text name);
const struct value *template_function(struct run *r, struct text name, const struct call *c);
bool template_function_known(struct text name);

/* The argument at a place or of a name; NULL where it was not given. */
const struct value *template_arg(const struct call *c, size_t at, const char *name);

static inline bool text_is(struct text a, const char *b)
{
    return a.n == __builtin_strlen(b) && !__builtin_memcmp(a.s, b, a.n);
}

static inline bool text_equal(struct text a, struct text b)
{
    return a.n == b.n && (a.n == 0 || !__builtin_memcmp(a.s, b.s, a.n));
}

#endif
