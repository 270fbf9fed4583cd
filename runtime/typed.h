#ifndef RUNTIME_TYPED_H
#define RUNTIME_TYPED_H

/* Lines that somebody types at a terminal: edited and with a history by libedit where the program was built with it, else erased and
 * typed anew. From typed_open to typed_close the terminal gives every byte as it comes and shows none, so a line may be of any length. A
 * text that is pasted (bracketed paste) is a part of the line, whatever it holds: short ones as if typed, others as a mark that stands for
 * them. One at a time, single-threaded. */
#include "runtime/kept.h"

#include "common/base/cancel.h"
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct typed;

/* cap: bytes of a line, at most, with a zero behind it. history: of earlier runs too, in a file of the user's. asked: of
 * the end, as by a signal. Standard input is a terminal.
 * What cannot be had of the history is said, and no error. */
int typed_open(struct typed **out, size_t cap, int history, const struct cancel *asked, struct err *e);
void typed_close(struct typed *t); /* the terminal is as it was; accepts NULL */

/* 1: a line in *line, without its newline; *pasted: it holds a pasted text that may have lines of its own. 0: the end. ERR_INTR: a signal
 * came, and what was typed is gone. ERR_LIMIT: longer than cap - 1 bytes, more typed than an editor has room for, or a NUL
 * among what was pasted. */
int typed_next(struct typed *t, const char *prompt, struct kept *line, int *pasted, struct err *e);

/* ---- for typed_edit.c, libedit's wrapper ---- */

struct edit;

/* The next character, as it was typed: 1; 0: the end; -1: a signal came. *resized: the terminal has another size than before. */
int typed_char(struct typed *t, uint32_t *c, int *resized);

/* NULL: this build has none, or it cannot serve this terminal. */
struct edit *edit_open(struct typed *t, FILE *screen, int entries);
void edit_close(struct edit *d); /* accepts NULL */
void edit_redraw(struct edit *d); /* behind what others have written */
void edit_remember(struct edit *d, const char *line);
/* As typed_next, of what was typed alone. */
int edit_line(struct edit *d, const char *prompt, struct kept *line, struct err *e);

#endif
