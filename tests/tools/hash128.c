/* hash128 FILE...: XXH3-128 of each file as this project writes hashes, a line each. */
#include "common/base/file.h"
#include "common/base/hash.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct err e = { 0 };
        char *data, text[HASH_TEXT];
        size_t len;
        if (file_slurp(argv[i], 1u << 30, &data, &len, &e) < 0) {
            fprintf(stderr, "hash128: %s\n", e.msg);
            return err_exit_status(e.code);
        }
        hash_text(hash_128(data, len), text);
        puts(text);
        free(data);
    }
    return 0;
}
