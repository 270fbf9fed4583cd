#ifndef OFFLINE_LINALG_H
#define OFFLINE_LINALG_H

/* Dense linear algebra for the offline programs, by OpenBLAS and LAPACK (linalg.c is their only user).
 * Matrices are row-major. Every call computes on the calling thread alone, so a caller that divides its
 * work into pieces of fixed size gets the same bits whatever number of threads share the pieces; bits
 * may differ between kinds of processor. Thread-safe after linalg_init. */
#include "common/base/err.h"

/* Before the first call below, before threads start; may be repeated. Sees to it that the library uses the
 * processor's wide instructions; OPENBLAS_CORETYPE in the environment overrules. */
void linalg_init(void);
const char *linalg_kernels(void); /* the library's name for what it uses: "SkylakeX" */

/* c[m][n] = alpha * op(a) op(b) + beta * c, where op(a) is m x k and op(b) k x n. ta, tb: the array holds the
 * transpose. lda, ldb, ldc: elements from row to row of the arrays. c overlaps nothing. */
void linalg_gemm(int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc);

/* Cholesky factor: the lower triangle of a[n][n] (symmetric, positive definite) becomes L with a = L L^T; the upper
 * one becomes 0. ERR_LIMIT when a is not positive definite. */
int linalg_cholesky(double *a, int n, struct err *e);

/* x[k][n] = x L^-1, and x = x L^-T. l: lower triangular [n][n]. */
void linalg_over_lower(double *x, int k, const double *l, int n);
void linalg_over_lower_transposed(double *x, int k, const double *l, int n);

/* The k largest eigenvalues, descending, of symmetric a[n][n] and their vectors, as rows: vectors[k][n]. a is destroyed.
 * Each vector's sign is such that its largest element is positive. */
int linalg_eigen(double *a, int n, int k, double *values, double *vectors, struct err *e);

/* The k rows of x[k][n], k <= n, become an orthonormal basis of what they span, by Householder's QR. */
int linalg_orthonormalise(double *x, int k, int n, struct err *e);

#endif
