/* The rows of the format (common/plan/plan_fields.h) say what a check needs to verify each. What a check could not bear on in this plan
 * was collected before, and stands beside it. */
#include "planner/check/check_fields.h"

#include "common/base/grow.h"
#include "common/base/print.h"
#include "common/plan/plan_fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned needs_of[] = {
    [PLAN_BY_ITSELF] = 0,
    [PLAN_BY_MODEL] = CHECK_MODEL,
    [PLAN_BY_FIGURES] = CHECK_MODEL | CHECK_HARDWARE,
    [PLAN_BY_SOLVING] = CHECK_MODEL | CHECK_HARDWARE | CHECK_SOLVED,
    [PLAN_BY_RUNNING] = CHECK_RUN,
};

/* Fields that a request decides, so that solving again with the plan's own value says nothing. `doubt`: only of those in doubt. */
static const struct {
    const char *name;
    unsigned asked;
    int doubt;
} taken_over[] = {
    { "act", CHECK_ASKED_ACT, 1 },
    { "figures", CHECK_ASKED_STAT, 1 },
    { "guess_ns", CHECK_ASKED_GUESSER, 0 },
    { "kind", CHECK_ASKED_GUESSER, 0 },
    { "memory_bytes", CHECK_ASKED_MEMORY, 0 },
    { "min_tokens_per_s", CHECK_ASKED_SPEED, 0 },
    { "rlimit", CHECK_ASKED_RLIMIT, 0 },
};

static unsigned asked_of(const char *name, int doubt)
{
    const char *last = strrchr(name, '.');
    last = last ? last + 1 : name;
    for (size_t i = 0; i < sizeof taken_over / sizeof *taken_over; i++)
        if (!strcmp(last, taken_over[i].name) && taken_over[i].doubt == doubt)
            return taken_over[i].asked;
    return 0;
}

int check_fields_add(struct check_fields *f, const char *why, struct err *e, const char *fmt, ...)
{
    if (!f)
        return 0;
    if (!grow_room(f->at, f->n, f->cap))
        return err_set(e, ERR_NOMEM, "out of memory for a check");
    struct check_field *to = &f->at[f->n++];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(to->name, sizeof to->name, fmt, ap);
    va_end(ap);
    to->why = why;
    return 0;
}

void check_fields_done(struct check_fields *f)
{
    free(f->at);
    *f = (struct check_fields){ 0 };
}

/* Has solving again resolved a doubt? */
static int is_resolved(const struct check_field *d, unsigned basis, unsigned asked)
{
    unsigned of = asked_of(d->name, 1);
    return basis & CHECK_SOLVED && (!of || asked & of);
}

static int is_doubted(const struct check_fields *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->at[i].name, name))
            return 1;
    return 0;
}

static const char *why_not(const struct plan_field *w, const char *name, unsigned basis, unsigned asked)
{
    unsigned lacks = needs_of[w->basis] & ~basis, of = asked_of(name, 0);
    if (!strcmp(w->key, "gap") && basis & CHECK_PROOF)
        return NULL;
    if (lacks & CHECK_RUN)
        return "only running the text again tells";
    if (lacks & CHECK_MODEL)
        return "needs the trace or description";
    if (lacks & CHECK_HARDWARE)
        return "needs the hardware database";
    if (of && (lacks || !(asked & of)))
        return "as the request asked, which is not in the plan";
    return lacks ? "only solving again tells" : NULL;
}

/* All below an object, whose path is `name`. */
static int list_object(struct check_fields *f, const struct plan_object *of, const char *name, unsigned basis, unsigned asked,
                       struct err *e)
{
    char path[sizeof f->at->name];
    int r = 0;
    for (int i = 0; i < of->n && r == 0; i++) {
        const struct plan_field *w = &of->field[i];
        snprintf(path, sizeof path, "%s%s%s%s", name, name[0] ? "." : "", w->key, w->kind == PLAN_OBJECTS ? "[]" : "");
        if (w->of)
            r = list_object(f, w->of, path, basis, asked, e);
        else if (!is_doubted(f, path))
            r = check_fields_add(f, why_not(w, path, basis, asked), e, "%s", path);
    }
    return r;
}

int check_fields_list(struct check_fields *f, unsigned basis, unsigned asked, struct err *e)
{
    int kept = 0;
    for (int i = 0; i < f->n; i++)
        if (!is_resolved(&f->at[i], basis, asked))
            f->at[kept++] = f->at[i];
    f->n = kept;
    return list_object(f, &plan_root, "", basis, asked, e);
}
