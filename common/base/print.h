#ifndef COMMON_BASE_PRINT_H
#define COMMON_BASE_PRINT_H

/* What people read on standard output. Text from a file, a name or a device may steer a terminal or forge a line of ours, so it is
 * escaped where it is printed, not where it comes from: print's %s and %c show what print_acts names as \xNN (bytes) or \u{NN}
 * (characters); line ends and tabs are those of the format. tests/check-print.sh finds who prints otherwise. The log does the
 * same on standard error (log.h), the HTML report by page_text, JSON by escapes of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* printf with escaped text, to standard output or f. Widths are those of the escaped text, precisions of the bytes that are
 * given; %g has all digits of what is less than 10^18, never a power of ten for want of precision. %s, %c, integers and reals with flags,
 * width, precision and h, hh, l, ll, z, j or t; neither %n nor %1$s. Returns how many bytes were printed. */
int print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int print_to(FILE *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Lines of JSON, and pieces of them, to any file: as print_to, but a real that is infinite or no number is null, for JSON has no other word
 * for it. %s and %c are constants and names of ours: what is foreign goes by print_json_piece. tests/check-print.sh finds reals of JSON
 * that are printed otherwise. */
int print_json_to(FILE *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same of one real with so many digits, "%.*g". */
#define PRINT_NUMBER 40
void print_json_number(char out[PRINT_NUMBER], int digits, double v);

/* n of them with nine digits, which restore every float32: "[1,0.5]". */
void print_json_reals(FILE *f, const float *x, size_t n);

/* print_to into out, cut at cap, as snprintf and vsnprintf: for messages, whose text is escaped later, when they are printed. */
int print_into(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int print_into_va(char *out, size_t cap, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* Escape text[0..len), line ends and tabs too, into out, which is cut at a whole escape and ends with NUL; the length in out. */
size_t print_escape(char *out, size_t cap, const char *text, size_t len);

/* Bytes that are data, to standard output: a model's text, CSV. As they are, but for a terminal, which gets them by
 * print_terminal_piece: line ends and tabs as they are, no carriage return, other control characters and bytes that are no UTF-8
 * escaped. */
void print_data(const char *text, size_t len);

/* The next character of text[0..len), len > 0, as it goes out, NUL-terminated; how many bytes of text it takes. The second is the
 * inside of a JSON string: what is no UTF-8 is U+FFFD, and what print_acts names is escaped as JSON has it. */
#define PRINT_PIECE 12
size_t print_terminal_piece(const char *text, size_t len, char out[PRINT_PIECE]);
size_t print_json_piece(const char *text, size_t len, char out[PRINT_PIECE]);

/* For the log: where standard error goes where standard output does, what was printed goes out now; 1 when its last line has no end,
 * so that a message begins one. */
int print_yields(void);

/* Characters that do something to a terminal or to the order of a line instead of being shown: C0, DEL, C1, line and paragraph
 * separators, embeddings, overrides and isolates of direction. */
static inline int print_acts(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

#endif
