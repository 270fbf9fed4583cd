#include "common/tokenizer.h"
#include "tests/test.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "datasets/models/reglu-tales-10m-f16.gguf"

static struct err e;

static int same_ids(const struct tokenizer *t, const char *text, size_t len, int parse_special,
                    const int32_t *want, int n_want)
{
    int32_t *ids;
    int n, ok;
    if (tokenizer_encode(t, text, len, 0, parse_special, &ids, &n, &e) < 0)
        return 0;
    ok = n == n_want && (n == 0 || !memcmp(ids, want, (size_t)n * sizeof *ids));
    if (!ok) {
        printf("# '%.*s' gives", (int)len, text);
        for (int i = 0; i < n; i++)
            printf(" %d", ids[i]);
        printf("\n");
    }
    free(ids);
    return ok;
}

/* The pieces of the ids of a text, less the space put before it, are the text. */
static int round_trip(const struct tokenizer *t, const char *text, size_t len)
{
    int32_t *ids;
    int n;
    size_t at = 0, skip = (size_t)(tokenizer_adds_space(t) && len > 0);
    if (tokenizer_encode(t, text, len, 1, 0, &ids, &n, &e) < 0)
        return 0;
    int ok = 1;
    for (int i = 0; ok && i < n; i++) {
        size_t k;
        const char *p = tokenizer_piece(t, ids[i], &k);
        if (skip && k) {
            ok = *p == ' ';
            p++;
            k--;
            skip = 0;
        }
        ok = ok && k <= len - at && !memcmp(p, text + at, k);
        at += k;
    }
    free(ids);
    return ok && at == len;
}

static void golden(const struct tokenizer *t)
{
    json_error_t je;
    json_t *doc = json_load_file("tests/golden/tokenizer-reglu-tales.json", 0, &je);
    json_t *cases = json_object_get(doc, "cases"), *c;
    size_t i;
    CHECK(json_array_size(cases) == 24);
    json_array_foreach(cases, i, c) {
        json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
        int32_t want[256];
        for (size_t k = 0; k < json_array_size(ids); k++)
            want[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        CHECK(same_ids(t, json_string_value(text), json_string_length(text), 0, want, (int)json_array_size(ids)));
        CHECK(round_trip(t, json_string_value(text), json_string_length(text)));
    }
    json_decref(doc);
}

int main(void)
{
    struct gguf *g;
    struct tokenizer *t;
    CHECK(gguf_open(MODEL, &g, &e) == 0);
    CHECK(tokenizer_open(g, &t, &e) == 0);
    golden(t);
    printf("# heap %zu\n", tokenizer_heap_bytes(t));
    tokenizer_close(t);
    gguf_close(g);
    return test_done();
}
