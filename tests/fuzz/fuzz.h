#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

/* A fuzz target: parse data[0..size) as a hostile file. Returns 0; must neither crash nor leak, whatever the
 * bytes. Called by libFuzzer (make fuzz) and by replay.c (make check). */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
