/* What a schema says of one instance may stand in several objects (allOf, $ref and what is beside it, alternatives): a view is a list of
 * those. Each view is a rule of the grammar, found by the list, so that recursion ends. */
#include "runtime/mask/schema.h"

#include "common/base/json_text.h"
#include "runtime/mask/pattern.h"

#include <stdlib.h>
#include <string.h>

#define MERGED 8        /* objects of a view */
#define MEMBERS 1000    /* properties, values of an enum */
#define WORK   500000   /* comparisons of values, in all: a tenth of a second or so */

struct view {
    const struct js *of[MERGED];
    unsigned char whole[MERGED]; /* 0: its anyOf or oneOf has been chosen from */
    int n;
};

struct compiler {
    const struct js *root;
    struct grammar *g;
    struct shapes s;
    struct view *views;   /* [GRAMMAR_RULES]: of rules[] */
    int *rules, n_views, depth;
    size_t work;
};

enum type { NIL = 1, BOOLEAN = 2, INTEGER = 4, NUMBER = 8, STRING = 16, ARRAY = 32, OBJECT = 64, ALL = 127 };

static int bad(struct compiler *c, int code, const char *what, const char *word)
{
    grammar_fail(c->g, code, "schema: %s\"%.80s\"", what, word);
    return 0;
}

static int failed(const struct compiler *c)
{
    return c->g->failed.code != 0;
}

/* ---- views ---- */

static const struct js *in_object(const struct view *v, int i, const char *key)
{
    return !v->whole[i] && (!strcmp(key, "anyOf") || !strcmp(key, "oneOf")) ? NULL : js_get(v->of[i], key);
}

/* 0 also once there were too many. */
static int compares(struct compiler *c, size_t work)
{
    c->work += work;
    if (c->work > WORK)
        grammar_fail(c->g, ERR_LIMIT, "schema: alternatives with too many values to compare");
    return !failed(c);
}

static int same_value(struct compiler *c, const struct js *a, const struct js *b)
{
    if (!compares(c, 1))
        return 0;
    char *x = js_text(a, 0, 0), *y = js_text(b, 0, 0);
    int same = x && y && !strcmp(x, y) && compares(c, strlen(x) / 32);
    free(x);
    free(y);
    return same;
}

/* What the view says of a key that has to be said once, or twice the same. */
static const struct js *get(struct compiler *c, const struct view *v, const char *key)
{
    const struct js *found = NULL;
    for (int i = 0; i < v->n; i++) {
        const struct js *j = in_object(v, i, key);
        if (j && found && !same_value(c, j, found))
            bad(c, ERR_UNSUPPORTED, "what is merged by allOf, anyOf or $ref says two things of ", key);
        found = j ? j : found;
    }
    return found;
}

static const struct js *resolve(struct compiler *c, const char *ref)
{
    const struct js *j = c->root;
    const char *p = ref + 1;
    if (*ref != '#' || (*p && *p != '/')) {
        bad(c, ERR_UNSUPPORTED, "$ref is within the schema alone, not ", ref);
        return NULL;
    }
    while (j && *p == '/') {
        char key[256];
        size_t n = 0;
        for (p++; *p && *p != '/' && n + 1 < sizeof key; p++) {
            if (*p == '~' && (p[1] == '0' || p[1] == '1'))
                key[n++] = *++p == '0' ? '~' : '/';
            else
                key[n++] = *p;
        }
        key[n] = 0;
        j = js_is_array(j) ? js_at(j, (size_t)strtoul(key, NULL, 10)) : js_get(j, key);
    }
    if (!j || *p) {
        bad(c, ERR_FORMAT, "$ref names nothing: ", ref);
        return NULL;
    }
    return j;
}

/* Adds an object, and what it refers to. 0: `false`, or an error. */
static int add(struct compiler *c, struct view *v, const struct js *j, int depth)
{
    const struct js *all = js_get(j, "allOf"), *ref = js_get(j, "$ref");
    if (js_bool(j) == 1)
        return 1;
    if (!js_is_object(j) || depth > 32)
        return bad(c, depth > 32 ? ERR_UNSUPPORTED : ERR_FORMAT,
                   depth > 32 ? "it refers to itself: " : "it is no schema, or nothing is allowed: ", js_bool(j) == 0 ? "false" : "$ref");
    for (int i = 0; i < v->n; i++)
        if (v->of[i] == j)
            return v->whole[i] ? 1 : bad(c, ERR_UNSUPPORTED, "it refers to itself before it says anything: ", "$ref");
    if (v->n == MERGED)
        return bad(c, ERR_LIMIT, "more than eight schemas are merged into one by ", all ? "allOf" : "$ref");
    v->of[v->n] = j;
    v->whole[v->n++] = 1;
    if (ref) {
        const struct js *to = js_str(ref) ? resolve(c, js_str(ref)) : NULL;
        if (!to)
            return failed(c) ? 0 : bad(c, ERR_FORMAT, "no string: ", "$ref");
        if (!add(c, v, to, depth + 1))
            return 0;
    }
    if (all && !js_is_array(all))
        return bad(c, ERR_FORMAT, "no array: ", "allOf");
    for (size_t i = 0; i < js_len(all); i++)
        if (!add(c, v, js_at(all, i), depth + 1))
            return 0;
    return 1;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every key is known. */
static void check_keys(struct compiler *c, const struct view *v)
{
    static const char *const known[] = {
        "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "enum", "const", "anyOf",
        "oneOf", "allOf", "$ref", "$defs", "definitions", "minLength", "maxLength", "pattern", "format", "minimum", "maximum",
        "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
    };
    const char *key;
    for (int i = 0; i < v->n; i++)
        for (size_t k = 0; (key = js_key(v->of[i], k)) && !failed(c); k++) {
            size_t n = 0;
            while (n < sizeof known / sizeof known[0] && strcmp(key, known[n]))
                n++;
            if (n == sizeof known / sizeof known[0])
                bad(c, ERR_UNSUPPORTED, "not supported: ", key);
        }
}

static const struct {
    const char *name;
    int type;
} type_names[] = {
    { "null", NIL }, { "boolean", BOOLEAN }, { "integer", INTEGER }, { "number", NUMBER | INTEGER }, { "string", STRING },
    { "array", ARRAY }, { "object", OBJECT },
};

static int types_in(struct compiler *c, const struct js *j)
{
    int types = 0;
    for (size_t i = 0; i < (js_str(j) ? 1 : js_len(j)); i++) {
        const char *s = js_str(j) ? js_str(j) : js_str(js_at(j, i));
        size_t k = 0;
        while (s && k < sizeof type_names / sizeof type_names[0] && strcmp(s, type_names[k].name))
            k++;
        if (!s || k == sizeof type_names / sizeof type_names[0])
            return bad(c, ERR_FORMAT, "no type: ", s ? s : "type");
        types |= type_names[k].type;
    }
    return types;
}

/* Types that an instance may have: as "type" says, or as the other keywords are about. */
static int types_of(struct compiler *c, const struct view *v)
{
    static const struct {
        const char *key;
        int type;
    } about[] = {
        { "properties", OBJECT }, { "required", OBJECT }, { "additionalProperties", OBJECT }, { "items", ARRAY }, { "prefixItems", ARRAY },
        { "minItems", ARRAY }, { "maxItems", ARRAY }, { "minLength", STRING }, { "maxLength", STRING }, { "pattern", STRING },
        { "format", STRING }, { "minimum", NUMBER | INTEGER }, { "maximum", NUMBER | INTEGER }, { "exclusiveMinimum", NUMBER | INTEGER },
        { "exclusiveMaximum", NUMBER | INTEGER }, { "multipleOf", NUMBER | INTEGER },
    };
    int types = ALL, said = 0, others = 0;
    for (int i = 0; i < v->n; i++) {
        const struct js *j = js_get(v->of[i], "type");
        types &= j ? types_in(c, j) : ALL;
        said |= j != NULL;
        for (size_t k = 0; k < sizeof about / sizeof about[0]; k++)
            others |= js_get(v->of[i], about[k].key) ? about[k].type : 0;
    }
    if (types == 0 && !failed(c))
        return bad(c, ERR_FORMAT, "nothing is of every type that it asks for: ", "type");
    return said || !others ? types : others;
}

static int type_of(const struct js *j)
{
    double n;
    int64_t i;
    if (js_is_object(j) || js_is_array(j))
        return js_is_object(j) ? OBJECT : ARRAY;
    if (js_str(j) || js_bool(j) >= 0)
        return js_str(j) ? STRING : BOOLEAN;
    return js_int(j, &i) ? INTEGER : js_num(j, &n) ? NUMBER : NIL;
}

static int rule_of(struct compiler *c, const struct view *v);

/* A value of a schema of its own. */
static int value(struct compiler *c, const struct js *const *of, int n, int next)
{
    struct view v = { .n = 0 };
    for (int i = 0; i < n; i++)
        if (!add(c, &v, of[i], 0))
            return 0;
    return v.n ? grammar_call(c->g, rule_of(c, &v), next) : shapes_any(&c->s, next);
}

static int number_of(struct compiler *c, const struct view *v, const char *key, int missing)
{
    int64_t n;
    const struct js *j = get(c, v, key);
    if (!j)
        return missing;
    if (!js_int(j, &n) || n < 0 || n > 1000000)
        return bad(c, ERR_FORMAT, "no integer from 0 to 1000000: ", key);
    return (int)n;
}

/* ---- kinds of values ---- */

static int texts(struct compiler *c, const char **t, int n, int next)
{
    qsort(t, (size_t)n, sizeof *t, by_text);
    int k = 0;
    for (int i = 0; i < n; i++)
        if (k == 0 || strcmp(t[k - 1], t[i])) { /* each stays in the list, which its owner frees */
            const char *other = t[k];
            t[k++] = t[i];
            t[i] = other;
        }
    return failed(c) ? 0 : shapes_texts(&c->s, t, k, next);
}

/* enum and const: those values that are of a type that is asked for. */
static int values(struct compiler *c, const struct view *v, const struct js *list, const struct js *one, int next)
{
    static const char *const other[] = { "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
                                         "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
                                         "exclusiveMaximum", "multipleOf" };
    size_t n = one ? 1 : js_len(list);
    int types = types_of(c, v), k = 0, r = 0;
    for (int i = 0; i < v->n && !failed(c); i++)
        for (size_t m = 0; js_key(v->of[i], m); m++) {
            const char *key = js_key(v->of[i], m);
            for (size_t w = 0; w < sizeof other / sizeof other[0]; w++)
                if (!strcmp(key, other[w]))
                    bad(c, ERR_UNSUPPORTED, "beside enum or const: ", key);
        }
    if (!one && (!js_is_array(list) || n == 0 || n > MEMBERS))
        return bad(c, n > MEMBERS ? ERR_LIMIT : ERR_FORMAT, "not 1 to 1000 values: ", "enum");
    char **t = calloc(n, sizeof *t);
    for (size_t i = 0; i < n && t && !failed(c); i++) {
        const struct js *j = one ? one : js_at(list, i);
        if (!(types & type_of(j)))
            continue;
        if (!(t[k] = js_text(j, 0, 0)))
            grammar_fail(c->g, ERR_NOMEM, "out of memory for a schema");
        else if (strlen(t[k]) > 4096)
            grammar_fail(c->g, ERR_LIMIT, "schema: a value of an enum of more than 4096 bytes");
        k += t[k] != NULL;
    }
    if (!t)
        grammar_fail(c->g, ERR_NOMEM, "out of memory for a schema");
    else if (k == 0)
        bad(c, ERR_FORMAT, "no value is of the type: ", one ? "const" : "enum");
    else
        r = texts(c, (const char **)t, k, next);
    for (size_t i = 0; t && i < n; i++)
        free(t[i]);
    free(t);
    return r;
}

static int string(struct compiler *c, const struct view *v, int next)
{
#define MONTHS "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define DATE   "[12][0-9]{3}-" MONTHS
#define TIME   "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE   "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    static const struct {
        const char *name, *pattern;
    } formats[] = {
        { "date", "^" DATE "$" }, { "time", "^" TIME "$" }, { "date-time", "^" DATE "T" TIME "$" },
        { "uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$" }, { "ipv4", "^(" BYTE "\\.){3}" BYTE "$" },
    };
    int min = number_of(c, v, "minLength", 0), max = number_of(c, v, "maxLength", -1);
    const struct js *pattern = get(c, v, "pattern"), *format = get(c, v, "format");
    if (max >= 0 && min > max)
        return bad(c, ERR_FORMAT, "it is more than maxLength: ", "minLength");
    if (!pattern && !format)
        return shapes_string(&c->s, min, max, next);
    if ((pattern && format) || min > 0 || max >= 0)
        return bad(c, ERR_UNSUPPORTED, "beside another keyword about its characters: ", pattern ? "pattern" : "format");
    if (!js_str(pattern ? pattern : format))
        return bad(c, ERR_FORMAT, "no string: ", pattern ? "pattern" : "format");
    if (pattern)
        return pattern_string(&c->s, js_str(pattern), next);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (!strcmp(js_str(format), formats[i].name))
            return pattern_string(&c->s, formats[i].pattern, next);
    return bad(c, ERR_UNSUPPORTED, "format is date, time, date-time, uuid or ipv4, not ", js_str(format));
}

/* The bound of an integer: `up` is 1 of a minimum. */
static int64_t bound(struct compiler *c, const struct view *v, const char *key, const char *exclusive, int up, int64_t missing)
{
    int64_t best = missing;
    for (int i = 0; i < 2; i++) {
        const struct js *j = get(c, v, i ? exclusive : key);
        double d;
        int64_t n;
        if (!j)
            continue;
        if (!js_num(j, &d))
            return bad(c, ERR_UNSUPPORTED, "no number: ", i ? exclusive : key);
        n = d >= (double)SHAPES_MOST ? SHAPES_MOST : d <= -(double)SHAPES_MOST ? -SHAPES_MOST : (int64_t)d;
        if (up && (double)n < d)
            n++; /* the next integer */
        if (!up && (double)n > d)
            n--;
        if (i && (double)n == d)
            n += up ? 1 : -1;
        best = up ? (n > best ? n : best) : (n < best ? n : best);
    }
    return best;
}

static int integer(struct compiler *c, const struct view *v, int next)
{
    int64_t from = bound(c, v, "minimum", "exclusiveMinimum", 1, -SHAPES_MOST);
    int64_t to = bound(c, v, "maximum", "exclusiveMaximum", 0, SHAPES_MOST);
    if (from > to)
        return bad(c, ERR_FORMAT, "no integer is left by ", get(c, v, "minimum") ? "minimum" : "maximum");
    return shapes_integer(&c->s, from, to, next);
}

static int number(struct compiler *c, const struct view *v, int next)
{
    static const char *const keys[] = { "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf" };
    const struct js *min = get(c, v, "minimum");
    double d;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (get(c, v, keys[i]))
            return bad(c, ERR_UNSUPPORTED, "of integers alone (of numbers \"minimum\": 0): ", keys[i]);
    if (min && (!js_num(min, &d) || d < 0 || d > 0))
        return bad(c, ERR_UNSUPPORTED, "of numbers it is 0, else of integers alone: ", "minimum");
    return shapes_number(&c->s, !min, next);
}

static int array(struct compiler *c, const struct view *v, int next)
{
    struct grammar *g = c->g;
    const struct js *prefix = get(c, v, "prefixItems"), *items = get(c, v, "items");
    int min = number_of(c, v, "minItems", 0), max = number_of(c, v, "maxItems", -1), k = (int)js_len(prefix);
    if ((prefix && (!js_is_array(prefix) || k == 0 || k > MEMBERS)) || js_is_array(items))
        return bad(c, ERR_FORMAT, "items is a schema, and prefixItems an array of them: ", prefix ? "prefixItems" : "items");
    int most = js_bool(items) == 0 ? k : -1;
    max = most < 0 ? max : max < 0 || max > most ? most : max;
    if (max >= 0 && min > max)
        return bad(c, ERR_FORMAT, "more than there may be: ", "minItems");
    if (!prefix && !items && min == 0 && max < 0)
        return shapes_array(&c->s, next);
    int close = grammar_byte(g, ']', next), from = k ? k : 1, end = shapes_space(&c->s, close), rest = end;
    const struct js *any = items && js_bool(items) < 0 ? items : NULL;
    if (max < 0 || max > from) { /* behind the first ones */
        int item = any ? value(c, &any, 1, GRAMMAR_RETURN) : shapes_any(&c->s, GRAMMAR_RETURN);
        int round = grammar_byte(g, ',', shapes_space(&c->s, item));
        rest = grammar_count(g, round, min > from ? min - from : 0, max < 0 ? -1 : max - from, end);
    }
    for (int i = from - 1; i >= 0 && !failed(c); i--) {
        const struct js *one = k ? js_at(prefix, (size_t)i) : any;
        if (max >= 0 && i >= max) {
            rest = i ? end : close;
            continue;
        }
        int item = one ? value(c, &one, 1, rest) : shapes_any(&c->s, rest);
        item = i ? grammar_byte(g, ',', shapes_space(&c->s, item)) : item;
        rest = i >= min ? grammar_split(g, item, i ? end : close) : item;
    }
    return grammar_byte(g, '[', shapes_space(&c->s, rest));
}

/* ---- objects ---- */

struct member {
    const char *name;
    const struct js *of[MERGED]; /* its schemas, of the objects of a view */
    int n, required;
};

static struct member *find_member(struct member *m, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(m[i].name, name))
            return &m[i];
    return NULL;
}

/* Properties of all objects of a view, in their order; -1: something is wrong. */
static int list_members(struct compiler *c, const struct view *v, struct member *m)
{
    int n = 0;
    for (int i = 0; i < v->n; i++) {
        const struct js *p = js_get(v->of[i], "properties"), *required = js_get(v->of[i], "required");
        const char *key;
        if ((p && !js_is_object(p)) || (required && !js_is_array(required)))
            return bad(c, ERR_FORMAT, "properties are an object, required an array: ", p ? "properties" : "required"), -1;
        if (js_len(required) > MEMBERS)
            return bad(c, ERR_LIMIT, "more than the limit of 1000: ", "required"), -1;
        for (size_t k = 0; (key = js_key(p, k)); k++) {
            struct member *at = find_member(m, n, key);
            if (!at && n == MEMBERS)
                return bad(c, ERR_LIMIT, "more than the limit of 1000: ", "properties"), -1;
            if (!at)
                *(at = &m[n++]) = (struct member){ .name = key };
            at->of[at->n++] = js_get(p, key);
        }
    }
    for (int i = 0; i < v->n; i++)
        for (size_t k = 0; k < js_len(js_get(v->of[i], "required")); k++) {
            const char *key = js_str(js_at(js_get(v->of[i], "required"), k));
            struct member *at = key ? find_member(m, n, key) : NULL;
            if (!at && (!key || n == MEMBERS))
                return bad(c, key ? ERR_LIMIT : ERR_FORMAT, "no names, or too many: ", "required"), -1;
            if (!at)
                *(at = &m[n++]) = (struct member){ .name = key };
            at->required = 1;
        }
    return n;
}

static int key_text(struct compiler *c, const char *name, int next)
{
    size_t n = json_text_string(name, strlen(name), NULL);
    char *text = malloc(n + 1);
    if (!text) {
        grammar_fail(c->g, ERR_NOMEM, "out of memory for a schema");
        return 0;
    }
    json_text_string(name, strlen(name), text);
    next = grammar_text(c->g, text, n, next);
    free(text);
    return next;
}

/* Members that are not named: *more is their schema, or NULL of any. 0: there are none. */
static int others_of(struct compiler *c, const struct view *v, int named, const struct js **more)
{
    const struct js *said = NULL;
    int without = 0;
    *more = NULL;
    for (int i = 0; i < v->n; i++) { /* it is about the properties beside it, and so are we where these are all */
        const struct js *j = js_get(v->of[i], "additionalProperties");
        if (j && said && !same_value(c, j, said))
            return bad(c, ERR_UNSUPPORTED, "what is merged by allOf, anyOf or $ref says two things of ", "additionalProperties");
        said = j ? j : said;
        without |= !j && js_get(v->of[i], "properties");
    }
    if (said && without && js_bool(said) != 1)
        return bad(c, ERR_UNSUPPORTED, "merged with properties that it does not know: ", "additionalProperties");
    *more = said && js_bool(said) < 0 ? said : NULL;
    return said ? js_bool(said) != 0 : named == 0;
}

static int says_none(const struct view *v)
{
    int none = 0;
    for (int i = 0; i < v->n; i++)
        none |= js_bool(js_get(v->of[i], "additionalProperties")) == 0;
    return none;
}

static int object(struct compiler *c, const struct view *v, int next)
{
    struct grammar *g = c->g;
    const struct js *more = NULL;
    size_t most = 1;
    for (int i = 0; i < v->n; i++) {
        const struct js *p = js_get(v->of[i], "properties");
        for (size_t k = 0; k < MEMBERS && js_key(p, k); k++)
            most++;
        most += js_len(js_get(v->of[i], "required"));
    }
    most = most < MEMBERS ? most : MEMBERS;
    struct member *m = malloc(most * sizeof *m);
    const char **names = malloc(most * sizeof *names);
    int n = m && names ? list_members(c, v, m) : -1, r = 0;
    if (!m || !names)
        grammar_fail(g, ERR_NOMEM, "out of memory for a schema");
    int others = n < 0 ? 0 : others_of(c, v, n, &more);
    if (n == 0 && others && !more && !failed(c)) {
        r = shapes_object(&c->s, next);
    } else if (n >= 0 && !failed(c)) {
        int close = grammar_byte(g, '}', next), end = shapes_space(&c->s, close), first = close, rest = end;
        if (others) {
            for (int i = 0; i < n; i++)
                names[i] = m[i].name;
            qsort(names, (size_t)n, sizeof *names, by_text);
            int of = more ? value(c, &more, 1, GRAMMAR_RETURN) : shapes_any(&c->s, GRAMMAR_RETURN);
            int member = shapes_other_key(&c->s, names, n, grammar_byte(g, ':', shapes_space(&c->s, of)));
            rest = grammar_count(g, grammar_byte(g, ',', shapes_space(&c->s, member)), 0, -1, end);
            first = grammar_split(g, grammar_count(g, member, 1, 1, rest), close);
        }
        for (int i = n - 1; i >= 0 && !failed(c); i--) {
            if (m[i].n == 0 && says_none(v))
                bad(c, ERR_FORMAT, "required, but additionalProperties is false: ", m[i].name);
            if (m[i].n == 0 && more)
                m[i].of[m[i].n++] = more;
            int of = m[i].n ? value(c, m[i].of, m[i].n, rest) : shapes_any(&c->s, rest);
            int member = key_text(c, m[i].name, grammar_byte(g, ':', shapes_space(&c->s, of)));
            int behind = grammar_byte(g, ',', shapes_space(&c->s, member));
            first = m[i].required ? member : grammar_split(g, member, first);
            rest = m[i].required ? behind : grammar_split(g, behind, rest);
        }
        r = grammar_byte(g, '{', shapes_space(&c->s, first));
    }
    free(m);
    free(names);
    return r;
}

/* ---- alternatives ---- */

/* Does no instance satisfy both? By type, by values, or by those of a property that both require. */
static int apart(struct compiler *c, const struct view *a, const struct view *b, int depth)
{
    int x = types_of(c, a), y = types_of(c, b);
    const struct js *values_of[2][2] = { { get(c, a, "const"), get(c, a, "enum") }, { get(c, b, "const"), get(c, b, "enum") } };
    if (failed(c) || !(x & y))
        return 1;
    if ((values_of[0][0] || values_of[0][1]) && (values_of[1][0] || values_of[1][1])) {
        size_t n[2] = { 1, 1 };
        for (int i = 0; i < 2; i++)
            n[i] = values_of[i][0] ? 1 : js_len(values_of[i][1]);
        if (n[0] * n[1] > 4096)
            return 0; /* too many to compare */
        for (size_t i = 0; i < n[0]; i++)
            for (size_t k = 0; k < n[1]; k++)
                if (same_value(c, values_of[0][0] ? values_of[0][0] : js_at(values_of[0][1], i),
                               values_of[1][0] ? values_of[1][0] : js_at(values_of[1][1], k)))
                    return 0;
        return 1;
    }
    if ((x & y) != OBJECT || depth > 2)
        return 0;
    for (int i = 0; i < a->n; i++)
        for (size_t k = 0; k < js_len(js_get(a->of[i], "required")); k++)
            for (int l = 0; l < b->n; l++)
                for (size_t o = 0; o < js_len(js_get(b->of[l], "required")); o++) {
                    const char *p = js_str(js_at(js_get(a->of[i], "required"), k)), *q = js_str(js_at(js_get(b->of[l], "required"), o));
                    const struct js *s = p ? js_get(js_get(a->of[i], "properties"), p) : NULL;
                    const struct js *t = q ? js_get(js_get(b->of[l], "properties"), q) : NULL;
                    struct view u = { .n = 0 }, w = { .n = 0 };
                    if (!compares(c, 1))
                        return 0;
                    if (s && t && !strcmp(p, q) && add(c, &u, s, 0) && add(c, &w, t, 0) && apart(c, &u, &w, depth + 1))
                        return 1;
                }
    return 0;
}

static int alternatives(struct compiler *c, const struct view *v, int i, const char *key, int next)
{
    const struct js *list = js_get(v->of[i], key);
    int r = -1;
    if (!js_is_array(list) || js_len(list) == 0 || js_len(list) > MEMBERS)
        return bad(c, ERR_FORMAT, "no array of 1 to 1000 schemas: ", key);
    if (js_get(v->of[i], "anyOf") && js_get(v->of[i], "oneOf"))
        return bad(c, ERR_UNSUPPORTED, "beside anyOf: ", "oneOf");
    for (size_t k = 0; k < js_len(list) && !failed(c); k++) {
        struct view one = *v;
        one.whole[i] = 0;
        if (!add(c, &one, js_at(list, k), 0))
            return 0;
        if (!strcmp(key, "oneOf") && js_len(list) > 64)
            return bad(c, ERR_LIMIT, "more than the limit of 64 alternatives: ", key);
        for (size_t o = 0; !strcmp(key, "oneOf") && o < k; o++) {
            struct view other = *v;
            other.whole[i] = 0;
            if (!add(c, &other, js_at(list, o), 0) || !apart(c, &one, &other, 0))
                return failed(c) ? 0 : bad(c, ERR_UNSUPPORTED, "two of its alternatives may hold at once; anyOf may be meant: ", "oneOf");
        }
        int call = grammar_call(c->g, rule_of(c, &one), next);
        r = r < 0 ? call : grammar_split(c->g, r, call);
    }
    return r;
}

/* ---- rules ---- */

static int build(struct compiler *c, const struct view *v, int next)
{
    check_keys(c, v);
    if (failed(c))
        return 0;
    for (int i = 0; i < v->n; i++)
        for (int k = 0; k < 2; k++)
            if (in_object(v, i, k ? "oneOf" : "anyOf"))
                return alternatives(c, v, i, k ? "oneOf" : "anyOf", next);
    const struct js *list = get(c, v, "enum"), *one = get(c, v, "const"), *multiple = get(c, v, "multipleOf");
    int64_t n = 1;
    if (multiple && (!js_int(multiple, &n) || n != 1))
        return bad(c, ERR_UNSUPPORTED, "other than 1: ", "multipleOf");
    if (list || one)
        return values(c, v, list, one, next);
    static const char *const words[] = { "false", "true" };
    int types = types_of(c, v), r = -1;
    for (int t = NIL; t <= OBJECT && !failed(c); t <<= 1) {
        int made = 0;
        if (!(types & t) || (t == INTEGER && types & NUMBER))
            continue;
        switch (t) {
        case NIL: made = grammar_text(c->g, "null", 4, next); break;
        case BOOLEAN: made = shapes_texts(&c->s, words, 2, next); break;
        case INTEGER: made = integer(c, v, next); break;
        case NUMBER: made = multiple ? integer(c, v, next) : number(c, v, next); break;
        case STRING: made = string(c, v, next); break;
        case ARRAY: made = array(c, v, next); break;
        default: made = object(c, v, next);
        }
        r = r < 0 ? made : grammar_split(c->g, r, made);
    }
    return r < 0 ? 0 : r;
}

static int rule_of(struct compiler *c, const struct view *v)
{
    for (int i = 0; i < c->n_views; i++) {
        const struct view *w = &c->views[i];
        if (w->n == v->n && !memcmp(w->of, v->of, (size_t)v->n * sizeof *v->of) && !memcmp(w->whole, v->whole, (size_t)v->n))
            return c->rules[i];
    }
    int r = grammar_rule(c->g);
    if (++c->depth > 200)
        grammar_fail(c->g, ERR_LIMIT, "schema: schemas more than 200 deep");
    if (failed(c))
        return 0;
    c->views[c->n_views] = *v;
    c->rules[c->n_views++] = r;
    int start = build(c, v, GRAMMAR_RETURN);
    c->depth--;
    if (!failed(c))
        c->g->rules[r] = start;
    return r;
}

/* An alternative that is itself again, before anything of a text, never ends. */
static int loops(const struct grammar *g, int rule, unsigned char *seen)
{
    int stack[64], n = 0, at = g->rules[rule];
    if (seen[rule])
        return seen[rule] == 1;
    seen[rule] = 1;
    for (;;) {
        const struct grammar_node *k = &g->nodes[at];
        if (k->kind == GRAMMAR_CALL && loops(g, k->alt, seen))
            return 1;
        if (k->kind == GRAMMAR_SPLIT && n < 64)
            stack[n++] = k->alt;
        if (k->kind == GRAMMAR_SPLIT)
            at = k->next;
        else if (n > 0)
            at = stack[--n];
        else
            break;
    }
    seen[rule] = 2;
    return 0;
}

int schema_value(struct shapes *s, const struct js *schema, int object, int next)
{
    struct grammar *g = s->g;
    struct compiler c = { .root = schema, .g = g, .s = *s };
    struct js *only = object ? js_object() : NULL;
    int from = g->n_rules, r = 0;
    c.views = malloc(GRAMMAR_RULES * sizeof *c.views);
    c.rules = malloc(GRAMMAR_RULES * sizeof *c.rules);
    unsigned char *seen = calloc(GRAMMAR_RULES, 1);
    js_set_str(only, "type", "object");
    if (!c.views || !c.rules || !seen || (object && !js_get(only, "type")))
        grammar_fail(g, ERR_NOMEM, "out of memory for a schema");
    else
        r = value(&c, (const struct js *const[]){ schema, only }, only ? 2 : 1, next);
    for (int i = from; i < g->n_rules && !failed(&c); i++)
        if (loops(g, i, seen))
            bad(&c, ERR_UNSUPPORTED, "it refers to itself before it says anything: ", "$ref");
    *s = c.s;
    js_free(only);
    free(c.views);
    free(c.rules);
    free(seen);
    return failed(&c) ? 0 : r;
}

int schema_grammar(const struct js *schema, struct grammar **out, struct err *e)
{
    struct grammar *g = grammar_new();
    struct shapes s;
    if (!g)
        return err_set(e, ERR_NOMEM, "out of memory for a schema");
    shapes_init(&s, g);
    g->start = grammar_rule(g);
    int first = schema ? schema_value(&s, schema, 0, GRAMMAR_RETURN) : shapes_object(&s, GRAMMAR_RETURN);
    g->rules[g->start] = first;
    int r = grammar_done(g, e);
    if (r < 0)
        grammar_free(g);
    else
        *out = g;
    return r;
}
