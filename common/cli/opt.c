/* The option table drives everything: parsing, range messages and --help are loops over it, so that what --help
 * says is what the parser does. Numbers are checked against the row's range here, and a message always names the
 * option, the value given and what would be accepted. */
#include "common/cli/opt_impl.h"

#include "common/base/ckmath.h"
#include "common/base/cpu.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/base/version.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

static int ignored;
static int64_t begun_ns;
static char last_said[sizeof((struct err *)0)->msg]; /* by opt_fail */

/* Rows that every subcommand has; the table's own rows come first and may take the short letters. */
const struct opt opt_common_rows[] = {
    { .name = "verbose", .short_name = 'v', .type = OPT_FLAG, .dest = &ignored,
      .help = "Say on stderr what is decided and how long it takes." },
    { .name = "quiet", .short_name = 'q', .type = OPT_FLAG, .dest = &ignored, .help = "Only errors on stderr." },
    { .name = "help", .short_name = 'h', .type = OPT_FLAG, .dest = &ignored, .help = "Print this text." },
    { 0 },
};

/* ---- ranges ---- */

int opt_has_range(const struct opt *o)
{
    return o->max > o->min;
}

/* A limit as people write it: sizes with units, whole numbers without a point. */
static void format_limit(const struct opt *o, double v, char *out, size_t len)
{
    if (o->type == OPT_SIZE && v >= 0 && v < 18e18)
        size_format((uint64_t)v, out, len);
    else
        print_into(out, len, "%.10g", v);
}

void opt_format_range(const struct opt *o, char *out, size_t len)
{
    char lo[32], hi[32];
    format_limit(o, o->min, lo, sizeof lo);
    format_limit(o, o->max, hi, sizeof hi);
    snprintf(out, len, "%s to %s", lo, hi);
}

void opt_format_choices(const struct opt *o, char *out, size_t len)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; o->choices[i] && at < len; i++)
        at += (size_t)snprintf(out + at, len - at, "%s%s", i ? ", " : "", o->choices[i]);
}

const struct opt *opt_find_short(const struct opt *opts, char c)
{
    for (const struct opt *o = opts; o->name; o++)
        if (o->short_name == c)
            return o;
    return NULL;
}

/* ---- nearest name ---- */

/* Edits (insert, delete, replace, swap neighbours) from a to b; names longer than the table count as far. */
static int distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    int d[MAX + 1][MAX + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > MAX || m > MAX)
        return INT_MAX;
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

/* A candidate replaces *best when it is nearer; a name that starts with what was typed is near. */
static void consider(const char *typed, const char *name, const char **best, int *best_d)
{
    int d = distance(typed, name);
    size_t len = strlen(typed);
    if (len >= 2 && strncmp(typed, name, len) == 0)
        d = 1;
    if (d < *best_d && d <= (len < 6 ? 2 : (int)len / 3)) {
        *best = name;
        *best_d = d;
    }
}

static int unknown_option(const struct opt *opts, const struct opt_usage *u, const char *typed, struct err *e)
{
    const char *best = NULL;
    int best_d = INT_MAX;
    for (const struct opt *o = opts; o->name; o++)
        if (!o->alias_of)
            consider(typed, o->name, &best, &best_d);
    for (const struct opt *o = opt_common_rows; o->name; o++)
        consider(typed, o->name, &best, &best_d);
    if (best)
        return err_set(e, ERR_USAGE, "unknown option --%s; did you mean --%s?", typed, best);
    return err_set(e, ERR_USAGE, "unknown option --%s; '%s --help' lists them", typed, u->program);
}

/* ---- values ---- */

static int out_of_range(const struct opt *o, const char *value, struct err *e)
{
    char range[80];
    if (!opt_has_range(o))
        return err_set(e, ERR_USAGE, "--%s %s: the number is too large", o->name, value);
    opt_format_range(o, range, sizeof range);
    return err_set(e, ERR_USAGE, "--%s %s: must be from %s", o->name, value, range);
}

static int in_range(const struct opt *o, double v)
{
    return !opt_has_range(o) || (v >= o->min && v <= o->max);
}

static int set_int(const struct opt *o, const char *value, struct err *e)
{
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (end == value || *end || isspace((unsigned char)*value))
        return err_set(e, ERR_USAGE, "--%s '%s': not a whole number", o->name, value);
    if (errno == ERANGE || v < INT_MIN || v > INT_MAX || !in_range(o, (double)v))
        return out_of_range(o, value, e);
    *(int *)o->dest = (int)v;
    return 0;
}

static int set_u64(const struct opt *o, const char *value, struct err *e)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end)
        return err_set(e, ERR_USAGE, "--%s '%s': not a whole number from 0 up", o->name, value);
    if (errno == ERANGE || !in_range(o, (double)v))
        return out_of_range(o, value, e);
    *(uint64_t *)o->dest = v;
    return 0;
}

static int set_double(const struct opt *o, const char *value, struct err *e)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || isspace((unsigned char)*value) || !isfinite(v))
        return err_set(e, ERR_USAGE, "--%s '%s': not a number", o->name, value);
    if (!in_range(o, v))
        return out_of_range(o, value, e);
    *(double *)o->dest = v;
    return 0;
}

static int set_size(const struct opt *o, const char *value, struct err *e)
{
    uint64_t v;
    int r = size_parse(value, &v, e);
    if (r < 0) {
        err_wrap(e, "--%s", o->name);
        return r;
    }
    if (!in_range(o, (double)v))
        return out_of_range(o, value, e);
    *(uint64_t *)o->dest = v;
    return 0;
}

/* NULL where value is no former name of a choice of o. */
static const struct opt_choice_alias *choice_alias(const struct opt *o, const char *value)
{
    const struct opt_choice_alias *a = o->choice_aliases;
    while (a && a->name && strcmp(a->name, value))
        a++;
    return a && a->name ? a : NULL;
}

static int set_choice(const struct opt *o, const char *value, struct err *e)
{
    char names[OPT_CHOICES];
    for (int i = 0; o->choices[i]; i++)
        if (strcmp(o->choices[i], value) == 0) {
            *(int *)o->dest = i;
            return 0;
        }
    const struct opt_choice_alias *a = choice_alias(o, value);
    if (a) {
        *(int *)o->dest = a->value;
        return 0;
    }
    opt_format_choices(o, names, sizeof names);
    if (strlen(names) > 300)
        return err_set(e, ERR_USAGE, "--%s '%s': must be one of those that --help lists", o->name, value);
    return err_set(e, ERR_USAGE, "--%s '%s': must be one of %s", o->name, value, names);
}

static int add_to_list(const struct opt *o, const char *value, struct err *e)
{
    struct opt_list *l = o->dest;
    const char **items = realloc(l->items, (size_t)(l->n + 1) * sizeof *items);
    if (!items)
        return err_set(e, ERR_NOMEM, "out of memory at --%s", o->name);
    l->items = items;
    l->items[l->n++] = value;
    return 0;
}

static int set_value(const struct opt *o, const char *value, struct err *e)
{
    switch (o->type) {
    case OPT_FLAG:   *(int *)o->dest = 1; return 0;
    case OPT_INT:    return set_int(o, value, e);
    case OPT_U64:    return set_u64(o, value, e);
    case OPT_DOUBLE: return set_double(o, value, e);
    case OPT_STRING: *(const char **)o->dest = value; return 0;
    case OPT_SIZE:   return set_size(o, value, e);
    case OPT_CHOICE: return set_choice(o, value, e);
    case OPT_LIST:   return add_to_list(o, value, e);
    }
    return err_set(e, ERR_USAGE, "--%s: no such type", o->name);
}

/* ---- parsing ---- */

enum { MAX_ALIASES = 8 }; /* warned of by one command */

struct parser {
    const struct opt *opts;
    const struct opt_usage *usage;
    int argc, i, help;
    char **argv;
    unsigned char *seen; /* by row of opts */
    const void *aliases[MAX_ALIASES]; /* rows used that are former names, each once; also choices' */
    char warnings[MAX_ALIASES][160];
    int n_aliases;
};

/* Warnings wait for the end of the command line: --quiet may follow. */
static void note_alias(struct parser *p, const void *alias, const char *was, const char *value, const char *use)
{
    int i = 0;
    while (i < p->n_aliases && p->aliases[i] != alias)
        i++;
    if (i < p->n_aliases || i == MAX_ALIASES)
        return;
    p->aliases[p->n_aliases++] = alias;
    snprintf(p->warnings[i], sizeof p->warnings[i], "--%s%s%s is deprecated and will be removed in the next release: use %s", was,
             value ? " " : "", value ? value : "", use);
}

/* The option that a row stands for: itself, or of a former name its successor. */
static const struct opt *successor(struct parser *p, const struct opt *alias)
{
    char use[80];
    const struct opt *o = p->opts;
    if (!alias->alias_of)
        return alias;
    while (o->name && strcmp(o->name, alias->alias_of))
        o++;
    assert(o->name && !o->alias_of);
    snprintf(use, sizeof use, "--%s", o->name);
    note_alias(p, alias, alias->name, NULL, use);
    return o;
}

static const struct opt *find_long(const struct parser *p, const char *name, size_t len)
{
    for (const struct opt *o = p->opts; o->name; o++)
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    for (const struct opt *o = opt_common_rows; o->name; o++)
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

/* One option with its value (NULL: take the next argument if the type wants one). */
static int apply(struct parser *p, const struct opt *o, const char *value, struct err *e)
{
    if (o >= opt_common_rows && o < opt_common_rows + sizeof opt_common_rows / sizeof *opt_common_rows) {
        if (*o->name == 'h')
            p->help = 1;
        else
            log_set_level(*o->name == 'v' ? LOG_DEBUG : LOG_ERROR);
        return 0;
    }
    p->seen[o - p->opts] = 1;
    if (o->type != OPT_FLAG && !value) {
        if (p->i + 1 >= p->argc)
            return err_set(e, ERR_USAGE, "--%s needs a value (%s)", o->name, o->arg ? o->arg : "VALUE");
        value = p->argv[++p->i];
    }
    const struct opt_choice_alias *a = o->type == OPT_CHOICE ? choice_alias(o, value) : NULL;
    if (a)
        note_alias(p, a, o->name, value, a->use);
    return set_value(o, value, e);
}

static int parse_long(struct parser *p, const char *text, struct err *e)
{
    size_t len = strcspn(text, "=");
    const char *value = text[len] == '=' ? text + len + 1 : NULL;
    const struct opt *o = find_long(p, text, len);
    if (!o) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)(len < 100 ? len : 100), text);
        return unknown_option(p->opts, p->usage, name, e);
    }
    o = successor(p, o);
    if (o->type == OPT_FLAG && value && !strcmp(text, "help=table")) {
        p->help = 2;
        return 0;
    }
    if (o->type == OPT_FLAG && value)
        return err_set(e, ERR_USAGE, "--%s takes no value, and was given '%s'", o->name, value);
    return apply(p, o, value, e);
}

/* -v, -n 5, -n5, and flags together: -vq. */
static int parse_short(struct parser *p, const char *text, struct err *e)
{
    for (; *text; text++) {
        const struct opt *o = opt_find_short(p->opts, *text);
        if (!o)
            o = opt_find_short(opt_common_rows, *text);
        if (!o)
            return err_set(e, ERR_USAGE, "unknown option -%c; '%s --help' lists them", *text, p->usage->program);
        if (o->type != OPT_FLAG)
            return apply(p, o, text[1] ? text + 1 : NULL, e);
        int r = apply(p, o, NULL, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int parse_all(struct parser *p, int *n_pos, struct err *e)
{
    int r = 0;
    for (p->i = 1; p->i < p->argc && r == 0 && !p->help; p->i++) {
        char *a = p->argv[p->i];
        if (strcmp(a, "--") == 0) {
            while (++p->i < p->argc)
                p->argv[1 + (*n_pos)++] = p->argv[p->i];
        } else if (a[0] == '-' && a[1] == '-') {
            r = parse_long(p, a + 2, e);
        } else if (a[0] == '-' && a[1]) {
            r = parse_short(p, a + 1, e);
        } else {
            p->argv[1 + (*n_pos)++] = a; /* at or before i: nothing unread is overwritten */
        }
    }
    for (const struct opt *o = p->opts; r == 0 && !p->help && o->name; o++)
        if (o->required && !p->seen[o - p->opts])
            r = err_set(e, ERR_USAGE, "--%s %s is required; see '%s --help'", o->name, o->arg ? o->arg : "VALUE",
                        p->usage->program);
    return r;
}

static void say_machine(const struct opt_usage *usage)
{
    int best = CPU_SCALAR, cpus[1024];
    for (int t = CPU_SCALAR; t < CPU_TIERS; t++)
        best = cpu_has((enum cpu_tier)t) ? t : best;
    log_debug("%s of version %s on %d processors, with kernels up to %s", usage->program, THERMO_VERSION,
              cpu_allowed(cpus, 1024), cpu_tier_name((enum cpu_tier)best));
}

int opt_parse(const struct opt *opts, const struct opt_usage *usage, int argc, char **argv, int *n_pos,
              struct err *e)
{
    size_t rows = 0;
    while (opts[rows].name)
        rows++;
    struct parser p = { .opts = opts, .usage = usage, .argc = argc, .argv = argv };
    p.seen = calloc(rows + 1, 1);
    if (!p.seen)
        return err_set(e, ERR_NOMEM, "out of memory reading the command line");
    *n_pos = 0;
    int r = parse_all(&p, n_pos, e);
    free(p.seen);
    for (int i = 0; i < p.n_aliases; i++)
        log_warn("%s", p.warnings[i]);
    if (r == 0 && p.help) {
        (p.help == 2 ? opt_print_table : opt_print_help)(opts, usage);
        return 1;
    }
    if (r == 0 && log_get_level() == LOG_DEBUG)
        say_machine(usage);
    return r < 0 ? r : opt_compare_files(opts, usage, argv + 1, *n_pos, e);
}

static int has(const struct opt *rows, const struct opt *o)
{
    while (rows->name && strcmp(rows->name, o->name))
        rows++;
    return rows->name != NULL;
}

/* Of an argument what is theirs, cut behind it: 0, nothing. *takes: the next argument is the value of its last option, *kept: which is
 * theirs. */
static int keep_theirs(struct parser *p, const struct opt *theirs, char *a, int *takes, int *kept)
{
    const struct opt *o;
    *takes = *kept = 0;
    if (a[1] == '-') {
        size_t len = strcspn(a + 2, "=");
        o = successor(p, find_long(p, a + 2, len));
        *takes = o->type != OPT_FLAG && !a[2 + len];
        return *kept = has(theirs, o) || has(opt_common_rows, o);
    }
    for (char *at = a + 1; *at && !*takes; at++) {
        o = opt_find_short(p->opts, *at);
        o = o ? o : opt_find_short(opt_common_rows, *at);
        *takes = o->type != OPT_FLAG && !at[1];
        *kept = has(theirs, o) || has(opt_common_rows, o);
        if (!*kept)
            *at = '\0';
        if (!*kept || o->type != OPT_FLAG)
            return *kept || at > a + 1;
    }
    return 1;
}

void opt_hand_on(const struct opt *opts, const struct opt *theirs, int argc, char **argv, const char **out)
{
    struct parser p = { .opts = opts };
    int n = 0, takes, kept;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (keep_theirs(&p, theirs, argv[i], &takes, &kept))
            out[n++] = argv[i];
        i += takes;
        if (takes && kept)
            out[n++] = argv[i];
    }
    out[n] = NULL;
}

/* ---- dispatch ---- */

static void print_program_help(FILE *f, const char *program, const char *about, const struct opt_command *commands)
{
    int width = 12;
    for (const struct opt_command *c = commands; c->name; c++)
        width = (int)strlen(c->name) + 2 > width ? (int)strlen(c->name) + 2 : width;
    print_to(f, "usage: %s COMMAND [options]\n\n", program);
    opt_print_wrapped(f, about, 0, 0);
    print_to(f, "\ncommands:\n");
    for (const struct opt_command *c = commands; c->name; c++) {
        int at = print_to(f, "  %-*s", width, c->name);
        opt_print_wrapped(f, c->line, at, width + 2);
    }
    print_to(f, "\n'%s COMMAND --help' describes a command; --version prints versions.\n", program);
}

static int print_version(const char *program, const char *extra)
{
    print("%s %s\n", program, THERMO_VERSION);
    if (extra && *extra)
        print("%s\n", extra);
    return 0;
}

static int unknown_command(const char *program, const struct opt_command *commands, const char *typed)
{
    const char *best = NULL;
    int best_d = INT_MAX;
    for (const struct opt_command *c = commands; c->name; c++)
        consider(typed, c->name, &best, &best_d);
    if (best)
        log_error("unknown command '%s'; did you mean '%s'?", typed, best);
    else
        log_error("unknown command '%s'; '%s --help' lists them", typed, program);
    return err_exit_status(ERR_USAGE);
}

static int run_command(const char *program, const struct opt_command *commands, const char *version_extra, int argc,
                       char **argv)
{
    for (const struct opt_command *c = commands; c->name; c++)
        if (strcmp(c->name, argv[0]) == 0) {
            if (argc > 1 && strcmp(argv[1], "--version") == 0)
                return print_version(program, version_extra);
            return c->run(argc, argv);
        }
    return unknown_command(program, commands, argv[0]);
}

static int dispatch(const char *program, const char *about, const struct opt_command *commands,
                    const char *version_extra, int argc, char **argv)
{
    static char help_flag[] = "--help";
    if (argc < 2) {
        print_program_help(stderr, program, about, commands);
        return err_exit_status(ERR_USAGE);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return print_version(program, version_extra);
    if (strcmp(argv[1], "help") == 0 && argc > 2) {
        char *args[] = { argv[2], help_flag, NULL };
        return run_command(program, commands, version_extra, 2, args);
    }
    for (const struct opt_command *c = commands; strcmp(argv[1], "--help=table") == 0 && c->name; c++)
        print("command\t%s\n", c->name);
    if (strcmp(argv[1], "--help=table") == 0)
        return 0;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_program_help(stdout, program, about, commands);
        return 0;
    }
    if (argv[1][0] == '-') {
        log_error("unknown option %s before the command; '%s --help' explains", argv[1], program);
        return err_exit_status(ERR_USAGE);
    }
    return run_command(program, commands, version_extra, argc - 1, argv + 1);
}

int opt_main(const char *program, const char *about, const struct opt_command *commands, const char *version_extra,
             int argc, char **argv)
{
    opt_begin(program);
    return opt_end(dispatch(program, about, commands, version_extra, argc, argv));
}

void opt_begin(const char *program)
{
    file_standard();
    log_init(program, LOG_INFO);
    begun_ns = progress_now_ns();
}

static double seconds_of(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

static void say_usage(void)
{
    struct rusage u;
    char peak[24];
    if (getrusage(RUSAGE_SELF, &u) == 0)
        log_debug("took %.3f s, %.3f s of processor time and %.3f s of the system's; peak memory %s",
                  (double)(progress_now_ns() - begun_ns) / 1e9, seconds_of(&u.ru_utime), seconds_of(&u.ru_stime),
                  size_format((uint64_t)u.ru_maxrss << 10, peak, sizeof peak));
}

/* Data that did not reach stdout (a full disk) is a failure, however well the command went; it is said once. */
int opt_end(int status)
{
    struct err e;
    say_usage();
    if (file_stdout(&e) == 0)
        return status;
    int own = strcmp(e.msg, last_said) ? opt_fail(&e) : err_exit_status(e.code);
    return status ? status : own;
}

int opt_fail(const struct err *e)
{
    snprintf(last_said, sizeof last_said, "%s", e->msg);
    log_error("%s", e->msg);
    return e->code ? err_exit_status(e->code) : 1;
}
