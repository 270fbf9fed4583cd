/* The one user of OpenBLAS and LAPACK. OpenBLAS's own threads are switched off: where they divide a product depends
 * on how many there are, and with it the last bits of the result. LAPACK wants columns; a symmetric matrix is
 * its own transpose, and a row-major lower triangle is a column-major upper one, so nothing is copied. */
#include "common/offline/linalg.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* OpenBLAS picks its kernels by the processor's model number, and a release that is older than the processor falls back to
 * those of 2004: ten times slower. It can be told better by name, and these two make it choose again; builds for
 * one processor alone have not got them. */
extern void gotoblas_dynamic_init(void) __attribute__((weak));
extern void gotoblas_dynamic_quit(void) __attribute__((weak));

static void choose_kernels(void)
{
#if defined(__x86_64__)
    static const char *const old[] = { "Prescott", "Core2", "Penryn", "Nehalem", "Generic" };
    const char *have = openblas_get_corename(), *better = NULL;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        better = "SkylakeX";
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        better = "Haswell";
    for (size_t i = 0; better && i < sizeof old / sizeof *old; i++)
        if (!strcmp(have, old[i]) && gotoblas_dynamic_init && gotoblas_dynamic_quit &&
            !setenv("OPENBLAS_CORETYPE", better, 0)) {
            gotoblas_dynamic_quit();
            gotoblas_dynamic_init();
            return;
        }
#endif
}

void linalg_init(void)
{
    choose_kernels();
    openblas_set_num_threads(1);
}

const char *linalg_kernels(void)
{
    return openblas_get_corename();
}

void linalg_gemm(int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc)
{
    if (m > 0 && n > 0)
        cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k,
                    alpha, a, lda, b, ldb, beta, c, ldc);
}

int linalg_cholesky(double *a, int n, struct err *e)
{
    lapack_int r = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', n, a, n);
    if (r > 0)
        return err_set(e, ERR_LIMIT, "a matrix of %d is not positive definite at %d", n, (int)r);
    if (r < 0)
        return err_set(e, ERR_NOMEM, "factoring a matrix of %d", n);
    for (int i = 0; i < n; i++)
        memset(a + (size_t)i * (size_t)n + i + 1, 0, (size_t)(n - i - 1) * sizeof *a);
    return 0;
}

void linalg_over_lower(double *x, int k, const double *l, int n)
{
    cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, k, n, 1, l, n, x, n);
}

void linalg_over_lower_transposed(double *x, int k, const double *l, int n)
{
    cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, k, n, 1, l, n, x, n);
}

static void fix_sign(double *v, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (fabs(v[i]) > fabs(v[best]))
            best = i;
    if (v[best] < 0)
        for (int i = 0; i < n; i++)
            v[i] = -v[i];
}

int linalg_eigen(double *a, int n, int k, double *values, double *vectors, struct err *e)
{
    double *w = malloc((size_t)n * sizeof *w), *z = malloc((size_t)n * (size_t)k * sizeof *z);
    lapack_int *support = malloc(2 * (size_t)k * sizeof *support), found = 0;
    int r = 0;
    if (!w || !z || !support) {
        r = err_set(e, ERR_NOMEM, "%d eigenvectors of %d", k, n);
        goto out;
    }
    lapack_int info = LAPACKE_dsyevr(LAPACK_COL_MAJOR, 'V', 'I', 'L', n, a, n, 0, 0, n - k + 1, n, 0, &found,
                                     w, z, n, support);
    if (info != 0 || found != k) {
        r = err_set(e, info < 0 ? ERR_NOMEM : ERR_LIMIT,
                    "%d of %d eigenvectors of a matrix of %d were found (%d)", (int)found, k, n, (int)info);
        goto out;
    }
    for (int i = 0; i < k; i++) { /* ascending, one vector after another */
        values[i] = w[k - 1 - i];
        memcpy(vectors + (size_t)i * (size_t)n, z + (size_t)(k - 1 - i) * (size_t)n, (size_t)n * sizeof *z);
        fix_sign(vectors + (size_t)i * (size_t)n, n);
    }
out:
    free(w);
    free(z);
    free(support);
    return r;
}

/* Rows are columns to LAPACK. */
int linalg_orthonormalise(double *x, int k, int n, struct err *e)
{
    double *tau = malloc((size_t)k * sizeof *tau);
    if (!tau)
        return err_set(e, ERR_NOMEM, "a basis of %d vectors", k);
    lapack_int info = LAPACKE_dgeqrf(LAPACK_COL_MAJOR, n, k, x, n, tau);
    if (!info)
        info = LAPACKE_dorgqr(LAPACK_COL_MAJOR, n, k, k, x, n, tau);
    free(tau);
    return info ? err_set(e, ERR_NOMEM, "a basis of %d vectors of %d (%d)", k, n, (int)info) : 0;
}
