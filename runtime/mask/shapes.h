#ifndef RUNTIME_MASK_SHAPES_H
#define RUNTIME_MASK_SHAPES_H

/* What JSON texts consist of, as grammar: strings, numbers, white space, any value. Single-threaded. */
#include "runtime/mask/grammar.h"

#define SHAPES_DIGITS 15  /* of a number before its point, and behind it; integers are within +-SHAPES_MOST */
#define SHAPES_MOST   999999999999999ll

struct shapes {
    struct grammar *g;
    int chars;            /* where a round of one character begins */
    int space, any, number, integer; /* rules; -1: not built yet */
};

void shapes_init(struct shapes *s, struct grammar *g);

struct shapes_range {
    uint32_t from, to;    /* code points */
};

/* One character of a string: of those in ranges[n], ascending and apart, spelled as itself or, where it cannot be, by a short escape. */
int shapes_chars(struct shapes *s, const struct shapes_range *ranges, int n, int next);
/* One character as it is, of a text that is no JSON: no control characters but tabs and ends of lines, and not `other`. */
int shapes_raw(struct shapes *s, const char *other, int next);
/* A string with its quotes, of min to max characters (max -1: any number), each spelled as JSON may. */
int shapes_string(struct shapes *s, int min, int max, int next);
/* The same without quotes. */
int shapes_text(struct shapes *s, int min, int max, int next);
/* A string that is none of names[n], sorted and different, with its quotes. */
int shapes_other_key(struct shapes *s, const char *const *names, int n, int next);
/* Between values: nothing, a blank, or a line's end and up to 32 blanks. */
int shapes_space(struct shapes *s, int next);
/* from to to, both within SHAPES_MOST; and any number. */
int shapes_integer(struct shapes *s, int64_t from, int64_t to, int next);
int shapes_number(struct shapes *s, int negative, int next);
int shapes_any(struct shapes *s, int next);
/* Any object; any array. */
int shapes_object(struct shapes *s, int next);
int shapes_array(struct shapes *s, int next);
/* One of texts[n], sorted by bytes and different. */
int shapes_texts(struct shapes *s, const char *const *texts, int n, int next);

#endif
