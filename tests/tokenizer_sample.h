#ifndef TESTS_TOKENIZER_SAMPLE_H
#define TESTS_TOKENIZER_SAMPLE_H

/* Tokenizers of vocabularies that a test writes. */
#include "common/model/tokenizer.h"
#include "tests/test.h"
#include "tests/tiny_gguf.h"

/* The tokenizer of what was written to w, which is freed; *code: what opening it gave. One that opens is within its bound of memory. */
static inline struct tokenizer *sample_tokenizer(struct gguf_writer *w, const char *name, int *code, struct err *e)
{
    struct tokenizer *t = NULL;
    struct gguf *g;
    uint8_t *blob;
    size_t len;
    uint64_t a, b, c;
    tiny_check(gguf_writer_blob(w, &blob, &len, e), e);
    gguf_writer_free(w);
    tiny_check(gguf_parse(blob, len, len, name, &g, e), e);
    *code = tokenizer_open(g, &t, e);
    if (*code == 0 && tokenizer_measure(g, &a, &b, &c, e) == 0)
        CHECK_MSG(tokenizer_heap_bytes(t) <= tokenizer_heap_bound(a, b, c), "heap %zu", tokenizer_heap_bytes(t));
    gguf_close(g);
    free(blob);
    return t;
}

/* Does a text give these ids? Else those that it gives are printed. */
static inline int sample_ids(const struct tokenizer *t, const char *text, size_t len, int bos, int parse_special, const int32_t *want,
                             int n_want, struct err *e)
{
    int32_t *ids;
    int n;
    if (tokenizer_encode(t, text, len, bos, parse_special, &ids, &n, e) < 0)
        return 0;
    int ok = n == n_want && (n == 0 || !memcmp(ids, want, (size_t)n * sizeof *ids));
    if (!ok) {
        printf("# '%.*s' gives", (int)len, text);
        for (int i = 0; i < n; i++)
            printf(" %d", ids[i]);
        printf("\n");
    }
    free(ids);
    return ok;
}

#endif
