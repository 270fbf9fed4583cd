#ifndef RUNTIME_SUMMARY_H
#define RUNTIME_SUMMARY_H

/* A summary of a text for people, on standard error, from the JSON object that --json prints (runtime/README.md). */
#include "common/base/js.h"

/* Where the environment names a file by this, a line about a plan whose speed is off by more than a fifth goes there, too. */
#define SUMMARY_DIFFERS "THERMO_DIFFERS"

void summary_print(const struct js *j);

/* That line alone, from the object's text. */
void summary_note(const char *text);

/* A line about guesses of several texts, where there were any. */
void summary_guesses(const struct js *j);

#endif
