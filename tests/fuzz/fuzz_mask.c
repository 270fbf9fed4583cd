/* Any line as a schema, or, where it is an array, as tools of which one has to be called: it is refused with a word, or it is a grammar, in
 * which a walk of 300 bytes, drawn by what the line says, never gets stuck where it is alive, with as little memory for states as there
 * may be. */
#include "common/base/hash.h"
#include "runtime/forced.h"
#include "runtime/mask/schema.h"
#include "runtime/mask/states.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void walk(const struct grammar *g, uint64_t seed)
{
    struct states *s = states_new(g, STATES_LEAST);
    int at = s ? states_first(s) : STATES_DEAD, *keep[] = { &at };
    if (at <= STATES_DEAD)
        abort();
    for (int i = 0; i < 300; i++) {
        int to[256], n = 0;
        for (int c = 0; c < g->n_classes; c++) {
            int next = states_next(s, at, c);
            if (next == STATES_FULL) {
                if (states_forget(s, keep, 1) < 0 || (next = states_next(s, at, c)) == STATES_FULL)
                    goto done; /* more places than there is memory for */
                n = 0;
                c = -1;
                continue;
            }
            if (next > STATES_DEAD)
                to[n++] = next;
        }
        if (n == 0 && !states_may_end(s, at))
            abort();
        if (n == 0)
            break;
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        at = to[(seed >> 33) % (uint64_t)n];
        if (states_near(s, at, 32) == STATES_DEAD)
            abort();
    }
done:
    states_free(s);
}

static int is_control(const void *ctx, const char *name)
{
    return ctx && *name == '<';
}

/* In every form, with marks that are control tokens, and text. */
static void call(const struct js *tools, uint64_t seed)
{
    for (int form = CALLS_NONE; form <= CALLS_HARMONY; form++)
        for (int variant = 0; variant < 2; variant++) {
            struct err e = { 0 };
            struct grammar *g;
            const struct forced f = { .form = (enum calls_form)form, .variant = variant, .tools = tools, .is_control = is_control,
                                      .ctx = (seed + (uint64_t)form) % 2 ? &e : NULL };
            int r = forced_grammar(&f, &g, &e);
            if (r < 0 && !e.msg[0])
                abort();
            if (r == 0) {
                walk(g, seed + (uint64_t)form);
                grammar_free(g);
            }
        }
}

static void take(const char *line, size_t n)
{
    struct err e = { 0 };
    struct grammar *g;
    struct js *j = js_parse_within(line, n, 1 << 20, "a schema", &e);
    if (js_is_array(j)) {
        call(j, hash_64(line, n));
        js_free(j);
        return;
    }
    int r = j ? schema_grammar(j, &g, &e) : 0;
    if (r < 0 && !e.msg[0])
        abort();
    if (j && r == 0) {
        walk(g, hash_64(line, n));
        grammar_free(g);
    }
    js_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data, *end = s + size;
    while (s < end) {
        const char *line = memchr(s, '\n', (size_t)(end - s));
        line = line ? line : end;
        take(s, (size_t)(line - s));
        s = line + 1;
    }
    return 0;
}
