/* Fuzz entry: any bytes as a packed model. What opens can be read. */
#include "common/pack/pack.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pack *p;
    struct err e;
    if (pack_parse(data, size, "fuzz", &p, &e) < 0)
        return 0;
    for (int i = 0; i < p->n_dense; i++) {
        if (p->dense[i].bytes > 1 << 24)
            continue;
        void *out = malloc(p->dense[i].bytes ? p->dense[i].bytes : 1);
        if (out)
            pack_dense_read(p, &p->dense[i], out, &e);
        free(out);
    }
    pack_close(p);
    return 0;
}
