#include "driver/floor.h"

#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/size.h"
#include "driver/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BELOW_FLOOR 4
#define LINE 8192

static uint64_t whole(const struct js *j, const char *key)
{
    int64_t v = 0;
    return js_int(js_get(j, key), &v) && v > 0 ? (uint64_t)v : 0;
}

/* The limits, of which those below so much are so much, rounded up. */
static void at_least(const char *limits, uint64_t least, char *out, size_t cap)
{
    uint64_t unit = least >= 64u << 20 ? 1u << 20 : 65536, bytes = 0;
    struct err ignored;
    char up[24], one[64];
    size_t n = 0;
    int raised = 0;
    size_exact((least + unit - 1) / unit * unit, up, sizeof up);
    out[0] = '\0';
    for (const char *at = limits; *at && n < cap; at += strcspn(at, ","), at += *at == ',') {
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ","), at);
        int below = size_parse(one, &bytes, &ignored) == 0 && bytes < least;
        if (!below || !raised)
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? "," : "", below ? up : one);
        raised |= below;
    }
}

/* The command as it was typed, with this in place of what the option had. */
static void instead(const struct drive *d, const char *option, const char *value)
{
    const char *typed = getenv("THERMOCLINE_TYPED"), *flags = getenv("THERMOCLINE_FLAGS");
    char line[LINE], quoted[LINE];
    struct words w = { 0 };
    size_t n = strlen(option);
    int put = 0, own = typed && *typed;
    if (own)
        words_add_split(&w, flags);
    const struct words *from = own ? &w : &d->typed;
    struct words to = { 0 };
    for (int i = 0; i < from->n; i++) {
        const char *word = from->w[i];
        if (!strcmp(word, option) && i + 1 < from->n)
            i++;
        else if (!strncmp(word, option, n) && word[n] == '=')
            continue;
        else if (!strcmp(word, "--") && !put++) {
            words_add2(&to, option, value);
            words_add(&to, word);
        } else
            words_add(&to, word);
    }
    if (!put)
        words_add2(&to, option, value);
    if (own && !flags) {
        drive_say((struct drive *)d, "   %s%s", typed, words_quoted(&to, line, sizeof line));
    } else if (own) { /* flags that have quotes are not taken apart */
        if (flags && strpbrk(flags, "'\"\\"))
            snprintf(line, sizeof line, "%s %s %s", flags, option, value);
        else
            words_quoted(&to, line, sizeof line);
        drive_say((struct drive *)d, "   %s%s", typed, words_quoted_one(line, quoted, sizeof quoted));
    } else {
        drive_say((struct drive *)d, "   %s", words_quoted(&to, line, sizeof line));
    }
    words_done(&w);
    words_done(&to);
}

static void advise(const struct drive *d, const struct js *answer)
{
    const struct js *nearest = js_get(answer, "nearest");
    uint64_t bytes = whole(nearest, "memory_bytes"), context = whole(nearest, "context_tokens");
    char text[512];
    if (!bytes && !context)
        return;
    log_error("nothing was done; what would do:");
    if (bytes) {
        at_least(d->memory_text, bytes, text, sizeof text);
        instead(d, "--memory", text);
    }
    if (context) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)context);
        instead(d, "--context", text);
    }
}

int floor_ask(struct drive *d, struct err *e)
{
    struct words w = { 0 };
    char *text = NULL, says[500];
    size_t len;
    int status = 0;
    drive_program(d, &w, "thermo-plan");
    words_add(&w, "solve");
    words_add(&w, "-q");
    words_add2(&w, "--model", d->model);
    words_add2(&w, "--trace-flags", d->trace_flags);
    stages_words_plan(d, &w);
    words_add(&w, "--json");
    int r = child_read(&w, &text, &len, says, sizeof says, &status, e);
    words_done(&w);
    if (r < 0)
        return r;
    struct err ignored;
    struct js *j = js_parse(text, len, "thermo-plan", &ignored);
    static const char prefix[] = "thermo-plan: error: ";
    const char *why = strncmp(says, prefix, sizeof prefix - 1) ? says : says + sizeof prefix - 1;
    if (status == 2)
        r = err_set(e, ERR_USAGE, "thermo-plan: %s", why);
    else if (status == BELOW_FLOOR) {
        log_error("%s", why);
        advise(d, j);
        r = BELOW_FLOOR;
    } else if (status == 0) {
        d->zeros = js_bool(js_get(j, "zeros")) != 0; /* unknown: as one that has them */
        d->experts = whole(j, "experts") > 0;
    } else {
        r = err_set(e, status == 3 ? ERR_INPUT : ERR_SYS, "thermo-plan: %s", why);
    }
    js_free(j);
    free(text);
    return r;
}
