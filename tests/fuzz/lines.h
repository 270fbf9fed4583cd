#ifndef TESTS_FUZZ_LINES_H
#define TESTS_FUZZ_LINES_H

/* Lines of standard input, as chat --json and serve read them, with the embedded model's tokenizer and a context of LINES_CONTEXT. */
#include "common/model/gguf.h"
#include "runtime/chat/chat.h"
#include "runtime/lines.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

#define LINES_CONTEXT 64

static inline const struct tokenizer *lines_tokenizer(void)
{
    static struct tokenizer *t;
    struct gguf *g;
    struct err e;
    if (t)
        return t;
    if (gguf_open("datasets/models/reglu-tales-10m-f16.gguf", &g, &e) < 0 || tokenizer_open(g, &t, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
    gguf_close(g);
    return t;
}

static inline struct chat *lines_chat(void)
{
    static struct chat *c;
    struct err e;
    if (!c && chat_new(NULL, lines_tokenizer(), "tests/fuzz/corpus/template/turns.jinja", LINES_CONTEXT, &c, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
    return c;
}

/* Calls take for each line; what is longer than a line's bound is passed over, as there. */
static inline void lines_each(const uint8_t *data, size_t size, void (*take)(const char *line, size_t len))
{
    struct lines l;
    struct err e;
    FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
    if (!f)
        return;
    if (lines_open(&l, f, messages_line_bytes(LINES_CONTEXT), &e) < 0)
        abort();
    for (int r; (r = lines_next(&l, &e)) != 0;)
        if (r > 0)
            take(l.text, l.len);
    lines_close(&l);
    fclose(f);
}

#endif
