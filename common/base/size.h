#ifndef COMMON_BASE_SIZE_H
#define COMMON_BASE_SIZE_H

/* Sizes in bytes as people write and read them. Pure functions; thread-safe. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* "1.5GiB" -> bytes; KiB/MiB/GiB/TiB are powers of 1024, k/K, M, G, T alone likewise, kB/KB/MB/GB/TB powers
 * of 1000. Exact (no floating point rounding above 2^53 for whole numbers). A number without a unit is bytes; below
 * SIZE_LEAST_PLAIN nobody means bytes, so it is refused and the unit asked for, and "18B" says that they are meant. 0 is 0.
 * 0 or ERR_USAGE. */
#define SIZE_LEAST_PLAIN 65536
int size_parse(const char *text, uint64_t *out, struct err *e);

/* "18.0 MiB" style text for people; out of at least 24 bytes. Returns out. */
char *size_format(uint64_t bytes, char *out, size_t out_len);

/* "18MiB": the same bytes for size_parse, in the largest unit of which they are a whole number; out of at least 24 bytes. Returns out. */
char *size_exact(uint64_t bytes, char *out, size_t out_len);

#endif
