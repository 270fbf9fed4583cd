#ifndef COMMON_CLI_OPT_IMPL_H
#define COMMON_CLI_OPT_IMPL_H

/* What the files of common/cli/opt share; nobody else includes this. */
#include "common/cli/opt.h"

#include <stdio.h>

extern const struct opt opt_common_rows[]; /* --verbose, --quiet, --help */

int opt_has_range(const struct opt *o);
void opt_format_range(const struct opt *o, char *out, size_t len);
#define OPT_CHOICES 1024 /* bytes of all choices of an option */
void opt_format_choices(const struct opt *o, char *out, size_t len);
const struct opt *opt_find_short(const struct opt *opts, char c);

/* Words of text from column `at` on, continued at column `indent`; a newline in text is kept. */
void opt_print_wrapped(FILE *f, const char *text, int at, int indent);
void opt_print_help(const struct opt *opts, const struct opt_usage *u);

/* --help=table: see opt.h. */
void opt_print_table(const struct opt *opts, const struct opt_usage *u);

/* The files that options and arguments name: 0, or ERR_USAGE where one that is written is another one too. */
int opt_compare_files(const struct opt *opts, const struct opt_usage *u, char **args, int n_args, struct err *e);

#endif
