/* --help, and the same table for programs (--help=table). */
#include "common/base/print.h"
#include "common/cli/opt_impl.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, HELP_COLUMN = 26 };

/* Words of text from column `at` on, continued at column `indent`; a newline in text is kept. */
void opt_print_wrapped(FILE *f, const char *text, int at, int indent)
{
    int first = 1;
    while (*text) {
        if (*text == '\n') {
            print_to(f, "\n%*s", indent, "");
            at = indent;
            first = 1;
            text++;
            continue;
        }
        size_t len = strcspn(text, " \n");
        int columns = 0;
        for (size_t i = 0; i < len; i++)
            columns += ((unsigned char)text[i] & 0xc0) != 0x80; /* UTF-8 continuation bytes take no column */
        if (len > 0) {
            if (!first && at + 1 + columns > WIDTH) {
                print_to(f, "\n%*s", indent, "");
                at = indent;
            } else if (!first) {
                fputc(' ', f);
                at++;
            }
            print_to(f, "%.*s", (int)len, text);
            at += columns;
            first = 0;
        }
        text += len;
        if (*text == ' ')
            text++;
    }
    fputc('\n', f);
}

static void print_row(FILE *f, const struct opt *o, int short_ok)
{
    char head[128], note[OPT_CHOICES + 256] = "", text[2048], range[80], names[OPT_CHOICES];
    int n = snprintf(head, sizeof head, "  %c%c%s --%s", o->short_name && short_ok ? '-' : ' ',
                     o->short_name && short_ok ? o->short_name : ' ',
                     o->short_name && short_ok ? "," : " ", o->name);
    if (o->type != OPT_FLAG)
        snprintf(head + n, sizeof head - (size_t)n, " %s", o->arg ? o->arg : "VALUE");
    if (o->type == OPT_CHOICE) {
        opt_format_choices(o, names, sizeof names);
        snprintf(note + strlen(note), sizeof note - strlen(note), " One of %s.", names);
    } else if (opt_has_range(o) && o->type != OPT_FLAG && o->type != OPT_STRING && o->type != OPT_LIST) {
        opt_format_range(o, range, sizeof range);
        snprintf(note + strlen(note), sizeof note - strlen(note), " From %s.", range);
    }
    if (o->type == OPT_LIST)
        snprintf(note + strlen(note), sizeof note - strlen(note), " May be given more than once.");
    if (o->required)
        snprintf(note + strlen(note), sizeof note - strlen(note), " Required.");
    else if (o->def)
        snprintf(note + strlen(note), sizeof note - strlen(note), " Default: %s.", o->def);
    snprintf(text, sizeof text, "%s%s", o->help ? o->help : "", note);
    int at = (int)strlen(head);
    if (at + 2 > HELP_COLUMN) {
        print_to(f, "%s\n%*s", head, HELP_COLUMN, "");
    } else {
        print_to(f, "%s%*s", head, HELP_COLUMN - at, "");
    }
    opt_print_wrapped(f, text, HELP_COLUMN, HELP_COLUMN);
}

void opt_print_help(const struct opt *opts, const struct opt_usage *u)
{
    FILE *f = stdout;
    print_to(f, "usage: %s [options]%s%s\n", u->program, u->synopsis && *u->synopsis ? " " : "",
            u->synopsis ? u->synopsis : "");
    if (u->about) {
        fputc('\n', f);
        opt_print_wrapped(f, u->about, 0, 0);
    }
    print_to(f, "\noptions:\n");
    for (const struct opt *o = opts; o->name; o++)
        if (!o->alias_of)
            print_row(f, o, 1);
    for (const struct opt *o = opt_common_rows; o->name; o++)
        print_row(f, o, !opt_find_short(opts, o->short_name));
    if (u->examples)
        print_to(f, "\nexamples:\n");
    for (const char *s = u->examples; s && *s;) {
        size_t len = strcspn(s, "\n"), indent = strspn(s, " ");
        print_to(f, "%s%.*s\n", indent ? "" : "  ", (int)len, s);
        s += len + (s[len] == '\n');
    }
}

/* ---- for programs ---- */

static const char *or_dash(const char *text)
{
    return text && *text ? text : "-";
}

void opt_print_table(const struct opt *opts, const struct opt_usage *u)
{
    static const char *const types[] = { "flag", "int", "u64", "double", "string", "size", "choice", "list" };
    static const char *const files[] = { "none", "read", "read-db", "update-db", "write" };
    for (const struct opt *o = opts; o->name; o++) {
        if (o->alias_of)
            continue;
        char short_name[2] = { o->short_name, '\0' };
        print("option\t%s\t%s\t%s\t%s\t%s\t%d", o->name, or_dash(short_name), types[o->type], or_dash(o->arg),
               files[o->file == OPT_READ_DB && o->update_if ? OPT_UPDATE_DB : o->file], o->required);
        if (opt_has_range(o))
            print("\t%.17g\t%.17g", o->min, o->max);
        else
            print("\t-\t-");
        print("\t%s\t%s\t", or_dash(o->beside), or_dash(o->in_place));
        for (int i = 0; o->type == OPT_CHOICE && o->choices[i]; i++)
            print("%s%s", i ? "," : "", o->choices[i]);
        print("%s\n", o->type == OPT_CHOICE ? "" : "-");
    }
    for (const char *k = u->files; k && *k && *k != '-'; k++)
        print("argument\t%c\n", *k);
}
