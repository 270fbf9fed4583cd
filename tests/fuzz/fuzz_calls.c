/* Any text as an answer, in the form that its first byte names: the same comes out whole and in pieces, of what is no call every byte, and
 * a call is of a tool that there is, with an object of arguments. \1 and \2 are around a control token; \3 begins a thought, \4 the
 * answer, \5 a header. */
#include "common/base/hash.h"
#include "runtime/chat/calls.h"
#include "common/base/json_text.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 600 };

struct seen {
    struct hash *hash;
    size_t n, calls;
};

static int look(void *ctx, const struct calls_out *o)
{
    struct seen *s = ctx;
    if (o->name && ((strcmp(o->name, "f") && strcmp(o->name, "get_time")) || !*o->id || o->index != (int)s->calls++ ||
                    !json_text_is(o->text, o->n) || *o->text != '{'))
        abort();
    for (size_t i = 0; i < o->n; i++) { /* pieces may be cut elsewhere */
        hash_update_u32(s->hash, (uint32_t)(o->name ? 99 : o->part) << 16 | (uint32_t)o->silent << 8 | (unsigned char)o->text[i]);
        s->n += !o->name;
    }
    if (o->name)
        hash_update_str(s->hash, o->id);
    return 0;
}

static uint64_t put(const uint8_t *data, size_t size, size_t by, size_t *n, size_t *n_out, size_t *calls)
{
    static const char tools[] = "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
                                "\"n\":{\"type\":\"integer\"}}}},{\"name\":\"get_time\"}]";
    struct err e;
    struct calls *c;
    struct js *j = js_parse(tools, strlen(tools), "tools", &e);
    struct seen s = { .hash = hash_new() };
    enum chat_part part = CHAT_ANSWER;
    int silent = 0;
    if (!j || !s.hash || calls_new((enum calls_form)(*data % (CALLS_HARMONY + 1)), j, MOST, 1, &c, &e) < 0)
        abort();
    js_free(j);
    *n = 0;
    for (size_t i = 1, k; i < size; i += k) {
        k = 1;
        if (data[i] >= 1 && data[i] <= 5) {
            silent = data[i] <= 2 ? data[i] == 1 : silent;
            part = data[i] == 3 ? CHAT_THOUGHT : data[i] == 4 ? CHAT_ANSWER : data[i] == 5 ? CHAT_HEADER : part;
            continue;
        }
        while (i + k < size && k < by && (data[i + k] == 0 || data[i + k] > 5))
            k++;
        calls_put(c, part, silent, (const char *)data + i, k, look, &s);
        *n += k;
    }
    calls_end(c, look, &s);
    calls_free(c);
    uint64_t h = hash_final128(s.hash).lo;
    hash_free(s.hash);
    *n_out = s.n;
    *calls = s.calls;
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n, out, calls, again, calls_again;
    if (size < 2)
        return 0;
    uint64_t h = put(data, size, size, &n, &out, &calls);
    if (put(data, size, 1, &n, &again, &calls_again) != h || again != out || calls_again != calls || (calls == 0 && out != n))
        abort();
    return 0;
}
