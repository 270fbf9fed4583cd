#ifndef QUANTIZER_IMATRIX_H
#define QUANTIZER_IMATRIX_H

/* Importance matrices, as llama.cpp's llama-imatrix writes them: of each column of a matrix the mean of the squares of what it was
 * multiplied with in some text. An error of a weight in that column costs so much.
 *
 * GGUF: of each matrix NAME the tensors NAME.in_sum2, F32 [columns, experts], and NAME.counts, F32 [1, experts]; the mean is their
 * quotient, 1 for an expert with a count of 0. Keys imatrix.datasets and imatrix.chunk_count.
 * Before August 2025 binary, little-endian: i32 entries; of each i32 length of the name, name, i32 calls, i32 values, F32 values; the mean
 * is the quotient of values and calls; then, perhaps, i32 chunks, i32 length, name of the text.
 *
 * What is kept in memory is a list of the entries; values are read when they are asked for. A file that is damaged, or that has values
 * that are negative or not finite, is ERR_FORMAT and names the entry. */
#include "common/base/err.h"

#include <stdint.h>

struct imatrix;

int imatrix_open(const char *path, struct imatrix **out, struct err *e);
void imatrix_close(struct imatrix *m); /* accepts NULL */

uint64_t imatrix_entries(const struct imatrix *m);
uint32_t imatrix_chunks(const struct imatrix *m);     /* 0: not stated */
const char *imatrix_dataset(const struct imatrix *m); /* NULL: not stated */

/* 1: there is an entry of the matrix; 0: none. ERR_MISMATCH where it has not n_cols values for each of n_experts matrices. */
int imatrix_has(const struct imatrix *m, const char *name, uint64_t n_cols, uint64_t n_experts, struct err *e);

/* What imatrix_has has said 1 of: out[n_experts][n_cols]. */
int imatrix_read(const struct imatrix *m, const char *name, uint64_t n_cols, uint64_t n_experts, float *out, struct err *e);

#endif
