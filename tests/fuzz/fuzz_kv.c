/* Fuzz entry: any bytes as a file of a folder of prefixes. The first two bytes say what is asked for: how many tokens, and how large a
 * payload is; with the highest bit of the first the header and its checksums are made right, so that what follows is reached. What is taken
 * lies within the file, and has these tokens. */
#include "runtime/engine/kv_store.h"
#include "tests/fuzz/fuzz.h"

#include "common/base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kv_store_key key = { { 1, 2 }, { 3, 4 } };
    int32_t ids[TOKENS];
    if (size < 2)
        return 0;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = 0x01010101 * i;
    const struct kv_store_want w = { .kind = data[0] & 16 ? KV_STORE_STATE : KV_STORE_PAGE, .key = key, .ids = ids,
                                     .n = data[0] % (TOKENS + 1), .bytes = data[1] == 255 ? SIZE_MAX - 90 : data[1] };
    size_t len = size - 2;
    uint8_t *file = malloc(len + 1);
    if (!file)
        return 0;
    memcpy(file, data + 2, len);
    if (data[0] & 128 && len >= KV_STORE_HEADER) {
        memcpy(file, "THRMKVPG\1\0\0\0", 12);
        bytes_put32(file + 12, (uint32_t)w.kind);
        for (uint64_t i = 0; i < 4; i++)
            bytes_put64(file + 16 + 8 * i, i + 1);
        bytes_put32(file + 48, (uint32_t)w.n);
        bytes_put32(file + 52, 0);
        bytes_put64(file + 56, w.bytes);
        bytes_put64(file + 64, hash_64(file + KV_STORE_HEADER, len - KV_STORE_HEADER));
        bytes_put64(file + 72, hash_64(file, 72));
    }
    const uint8_t *payload = kv_store_parse(&w, file, len);
    size_t of_ids = (size_t)w.n * sizeof *ids;
    if (payload && (w.n < 1 || payload != file + KV_STORE_HEADER + of_ids || len - (KV_STORE_HEADER + of_ids) != w.bytes ||
                    memcmp(file + KV_STORE_HEADER, ids, of_ids)))
        abort();
    free(file);
    return 0;
}
