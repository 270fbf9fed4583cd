#include "common/base/hash.h"
#include "tests/test.h"

#include <string.h>

int main(void)
{
    /* Published test values of XXH3 with seed 0. */
    char text[HASH_TEXT];
    CHECK(hash_64("", 0) == 0x2d06800538d394c2ull);
    struct hash128 empty = hash_128("", 0), back;
    CHECK(empty.lo == 0x6001c324468d497full && empty.hi == 0x99aa06d3014798d8ull);
    hash_text(empty, text);
    CHECK(strcmp(text, "99aa06d3014798d86001c324468d497f") == 0);
    CHECK(hash_parse(text, &back) == 0 && hash_equal(back, empty));

    /* Streaming in pieces equals one call; integers go in little-endian, strings with their length. */
    unsigned char data[1000], plain[15] = { 0x04, 0x03, 0x02, 0x01, 8, 7, 6, 5, 4, 3, 2, 1 };
    for (int i = 0; i < 1000; i++)
        data[i] = (unsigned char)(i * 7);
    struct hash *h = hash_new();
    for (size_t at = 0, step = 1; at < sizeof data; at += step, step = step * 2 < sizeof data - at ? step * 2 : 1)
        hash_update(h, data + at, step < sizeof data - at ? step : sizeof data - at);
    CHECK(hash_equal(hash_final128(h), hash_128(data, sizeof data)));
    CHECK(hash_final64(h) == hash_64(data, sizeof data));
    hash_free(h);
    h = hash_new();
    hash_update_u32(h, 0x01020304);
    hash_update_u64(h, 0x0102030405060708ull);
    CHECK(hash_equal(hash_final128(h), hash_128(plain, 12)));
    hash_free(h);
    h = hash_new();
    hash_update_str(h, "ab");
    CHECK(hash_equal(hash_final128(h), hash_128("\2\0\0\0ab", 6)));
    hash_free(h);
    hash_free(NULL);

    struct hash128 keep = { 1, 2 };
    CHECK(hash_parse(NULL, &keep) < 0 && hash_parse("", &keep) < 0);
    CHECK(hash_parse("99aa06d3014798d86001c324468d497", &keep) < 0);
    CHECK(hash_parse("99aa06d3014798d86001c324468d497ff", &keep) < 0);
    CHECK(hash_parse("99AA06d3014798d86001c324468d497f", &keep) < 0);
    CHECK(keep.lo == 1 && keep.hi == 2);
    return test_done();
}
