/* Any bytes as a GGUF, then what reads its keys and tables: tensor roles, tokenizer. Tensor data may lie beyond the
 * bytes given, as in a real file whose beginning they are. */
#include "common/model/gguf.h"
#include "common/model/model.h"
#include "common/model/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct tokenizer *t;
    struct model *m;
    struct err e;
    if (gguf_parse(data, size, (uint64_t)size + (1 << 20), "fuzz", &g, &e) < 0)
        return 0;
    if (model_open(g, NULL, &m, &e) == 0)
        model_close(m);
    if (tokenizer_open(g, &t, &e) == 0) {
        int32_t *ids;
        int n;
        if (tokenizer_encode(t, "Once upon a time", 16, 1, 1, &ids, &n, &e) == 0)
            free(ids);
        tokenizer_close(t);
    }
    gguf_close(g);
    return 0;
}
