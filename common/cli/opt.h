#ifndef COMMON_CLI_OPT_H
#define COMMON_CLI_OPT_H

/* The command line: one row per option; parsing, range errors, --help and defaults all come from
 * the table. Subcommands are a table of name, function and one line.
 *
 *   static int cmd_trace(int argc, char **argv);      argv[0] is the subcommand's name
 *
 * Every subcommand has --help, -v/--verbose, -q/--quiet without naming them; programs have
 * --help and --version. "--name VALUE" and "--name=VALUE" both work; "--" ends options. Unknown
 * options name the nearest known one. Numbers are read whole: "12x" is an error.
 *
 * A renamed option or choice keeps its former name for one release: an alias. Aliases are in neither --help nor the
 * table below; each that is used gives one warning on stderr that names its successor.
 *
 * For programs that read what others take, --help=table prints the table, a line per row with tabs between the fields:
 * "option", name, short name, type, what --help calls the value, file (none, read, read-db, update-db, write), required
 * (1 or 0), least and greatest number, suffix of what is kept beside, option written in place, choices with commas;
 * "argument" and r or w; of a program with subcommands "command" and its name. What is empty is "-". */
#include "common/base/err.h"
#include "common/base/size.h"

#include <stddef.h>
#include <stdint.h>

enum opt_type {
    OPT_FLAG,   /* int *,          no argument; 1 when given */
    OPT_INT,    /* int *,          min..max */
    OPT_U64,    /* uint64_t *,     min..max */
    OPT_DOUBLE, /* double *,       min..max */
    OPT_STRING, /* const char **,  borrowed from argv */
    OPT_SIZE,   /* uint64_t *,     bytes: 1000000, 512KiB, 1.5GiB, 2GB, 4k; min..max */
    OPT_CHOICE, /* int *,          index into .choices (NULL-terminated names) */
    OPT_LIST,   /* struct opt_list *, repeatable; each value borrowed from argv */
};

struct opt_list {
    const char **items; /* grown with realloc; free(items) by the caller */
    int n;
};

/* A former name of a choice: the value it stands for, and what the warning says to use instead. */
struct opt_choice_alias {
    const char *name; /* NULL ends the list */
    int value;        /* stored in dest; any number, also one beyond .choices */
    const char *use;  /* "--method select", "'thermo-profile predictors-import'" */
};

/* What the value of an OPT_STRING or OPT_LIST, or an argument, names. What is written must be no file that is read, nor
 * written otherwise: opt_parse compares them all (common/cli/distinct.h) before the command opens anything. */
enum opt_file {
    OPT_NO_FILE,
    OPT_READ,       /* a file that is read; of a split GGUF all shards */
    OPT_READ_DB,    /* an SQLite database that is read */
    OPT_UPDATE_DB,  /* one that is changed in place */
    OPT_WRITE,      /* a file that is replaced */
};

struct opt {
    const char *name;           /* without dashes; NULL ends the table */
    char short_name;            /* 0: none */
    enum opt_type type;
    void *dest;                 /* holds the default before parsing */
    const char *arg;            /* what --help calls the value: "FILE" */
    const char *help;           /* one or more sentences; the default is appended from def */
    const char *def;            /* text of the default for --help; NULL: none */
    double min, max;            /* used when max > min */
    const char *const *choices; /* OPT_CHOICE */
    const struct opt_choice_alias *choice_aliases; /* OPT_CHOICE: former names, or NULL */
    const char *alias_of;       /* this row is a former name of that option of the same table; its other fields are unused */
    int required;
    enum opt_file file;
    const char *beside;         /* OPT_WRITE: suffix of what the command keeps next to the file: ".partial" */
    const char *in_place;       /* OPT_WRITE: where it is not given, the file of this option is written instead */
    const int *update_if;       /* OPT_READ_DB: where this flag is set it is OPT_UPDATE_DB */
};

/* How a subcommand describes itself in its --help. */
struct opt_usage {
    const char *program;    /* "thermo-plan solve" */
    const char *synopsis;   /* what follows the options: "FILE [--json]"; "" when none */
    const char *about;      /* paragraph */
    const char *examples;   /* lines, or NULL */
    const char *files;      /* the arguments beside the options that are files: r (read) or w (written) for each, the
                             * last for all further ones, or - at the end: the further ones are none; NULL: none */
};

/* Parse argv[1..argc). Positional arguments are moved to the front of argv+1 and counted in *n_pos.
 * Returns 0; 1 when --help was asked for and printed to stdout (exit 0 then); ERR_USAGE with a
 * message naming the option, the value and what is allowed. */
int opt_parse(const struct opt *opts, const struct opt_usage *usage, int argc, char **argv,
              int *n_pos, struct err *e);

/* Of a command line that opt_parse has taken with `opts`, and that has no arguments beside options: those that `theirs`, another table of
 * options, has too, and -v, -q, into out[argc], ended by NULL. For a command that hands them on; argv's strings may be cut. */
void opt_hand_on(const struct opt *opts, const struct opt *theirs, int argc, char **argv, const char **out);

struct opt_command {
    const char *name;
    int (*run)(int argc, char **argv); /* returns the exit status */
    const char *line;                  /* for the program's --help */
};

/* Dispatch: handles --help, --version, a missing or unknown subcommand (exit 2), and calls
 * log_init(program). version_extra: format revisions and library versions, printed by --version. */
int opt_main(const char *program, const char *about, const struct opt_command *commands,
             const char *version_extra, int argc, char **argv);

/* What opt_main does first and last, for a program without subcommands: the log and the standard descriptors; whether
 * standard output took everything. opt_end returns the exit status. */
void opt_begin(const char *program);
int opt_end(int status);

/* Print e as an error line on stderr and return its exit status: `return opt_fail(&e);` */
int opt_fail(const struct err *e);

#endif
