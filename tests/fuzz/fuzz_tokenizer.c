/* Any bytes as a prompt for the embedded model: byte fallback must bring every byte back. (All but U+2581, which
 * SentencePiece uses for the blank and cannot tell from one.) */
#include "common/model/gguf.h"
#include "common/model/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tokenizer *tokenizer;

static void open_once(void)
{
    static struct gguf *g;
    struct err e;
    if (!tokenizer && (gguf_open("datasets/models/reglu-tales-10m-f16.gguf", &g, &e) < 0 ||
                       tokenizer_open(g, &tokenizer, &e) < 0)) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
}

/* The text of ids is the input behind the one blank that the tokenizer puts before it. */
static void compare(const uint8_t *data, size_t size, const int32_t *ids, int n)
{
    size_t at = 0, skip = size && tokenizer_adds_space(tokenizer) ? 1 : 0;
    for (int i = 0; i < n; i++) {
        size_t len;
        const char *piece = tokenizer_piece(tokenizer, ids[i], &len);
        for (size_t k = 0; k < len; k++) {
            if (skip) {
                skip--;
                continue;
            }
            if (at >= size || (uint8_t)piece[k] != data[at++])
                abort();
        }
    }
    if (at != size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e;
    int32_t *ids;
    int n;
    open_once();
    if (tokenizer_encode(tokenizer, (const char *)data, size, 0, 0, &ids, &n, &e) < 0)
        return 0;
    if (!memmem(data, size, "\xe2\x96\x81", 3))
        compare(data, size, ids, n);
    free(ids);
    return 0;
}
