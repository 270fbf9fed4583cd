/* What the rows say about files, handed to common/cli/distinct: one group per option or argument, so that a file is not
 * compared with what comes along with itself. */
#include "common/cli/opt_impl.h"

#include "common/cli/distinct.h"

#include <string.h>

static const struct opt *row(const struct opt *opts, const char *name)
{
    while (opts->name && strcmp(opts->name, name))
        opts++;
    return opts->name ? opts : NULL;
}

static int add(struct distinct *d, const struct opt *o, const char *path, int *group, struct err *e)
{
    char label[80], in_place[80];
    enum opt_file f = o->file;
    if (f == OPT_READ_DB && o->update_if && *o->update_if)
        f = OPT_UPDATE_DB;
    snprintf(label, sizeof label, "--%s", o->name);
    snprintf(in_place, sizeof in_place, "--%s", o->in_place ? o->in_place : "");
    const struct distinct_name n = { label, path, ++*group, o->in_place ? in_place : NULL };
    switch (f) {
    case OPT_NO_FILE:   return 0;
    case OPT_READ:      return distinct_add(d, &n, DISTINCT_READ, e);
    case OPT_READ_DB:   return distinct_add_database(d, &n, DISTINCT_READ, e);
    case OPT_UPDATE_DB: return distinct_add_database(d, &n, DISTINCT_WRITTEN, e);
    case OPT_WRITE:     break;
    }
    int r = distinct_add(d, &n, DISTINCT_WRITTEN, e);
    return r < 0 || !o->beside ? r : distinct_add_beside(d, &n, o->beside, DISTINCT_WRITTEN, e);
}

static int add_option(struct distinct *d, const struct opt *opts, const struct opt *o, int *group, struct err *e)
{
    int r = 0;
    if (o->type == OPT_LIST) {
        const struct opt_list *l = o->dest;
        for (int i = 0; i < l->n && r == 0; i++)
            r = add(d, o, l->items[i], group, e);
        return r;
    }
    const char *path = *(const char *const *)o->dest;
    if (path || !o->in_place)
        return path ? add(d, o, path, group, e) : 0;
    /* Not given: the file of another option is written in place. It is both at once. */
    const struct opt *in = row(opts, o->in_place);
    const char *own = in ? *(const char *const *)in->dest : NULL;
    if (!own)
        return 0;
    char label[80];
    snprintf(label, sizeof label, "--%s", in->name);
    const struct distinct_name n = { label, own, ++*group, NULL };
    r = distinct_add(d, &n, DISTINCT_WRITTEN, e);
    return r < 0 || !o->beside ? r : distinct_add_beside(d, &n, o->beside, DISTINCT_WRITTEN, e);
}

/* 1 where the file of o is added with the option that writes it in place. */
static int written_elsewhere(const struct opt *opts, const struct opt *o)
{
    for (const struct opt *w = opts; w->name; w++)
        if (w->in_place && !strcmp(w->in_place, o->name) && !*(const char *const *)w->dest)
            return 1;
    return 0;
}

static int add_arguments(struct distinct *d, const char *kinds, char **args, int n, int *group, struct err *e)
{
    int r = 0;
    for (int i = 0; i < n && r == 0 && kinds && *kinds; i++) {
        const struct distinct_name a = { "the argument", args[i], ++*group, NULL };
        if (*kinds != '-')
            r = distinct_add(d, &a, *kinds == 'w' ? DISTINCT_WRITTEN : DISTINCT_READ, e);
        kinds += kinds[1] != '\0';
    }
    return r;
}

int opt_compare_files(const struct opt *opts, const struct opt_usage *u, char **args, int n_args, struct err *e)
{
    struct distinct d = { 0 };
    int group = 0, r = 0;
    for (const struct opt *o = opts; o->name && r == 0; o++)
        if (o->file != OPT_NO_FILE && !written_elsewhere(opts, o))
            r = add_option(&d, opts, o, &group, e);
    if (r == 0 && (r = add_arguments(&d, u->files, args, n_args, &group, e)) == 0 &&
        (r = distinct_add_stdout(&d, ++group, e)) == 0)
        r = distinct_check(&d, e);
    r = r < 0 ? r : distinct_keep(&d, e);
    distinct_done(&d);
    return r;
}
