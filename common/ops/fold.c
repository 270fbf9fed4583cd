/* Walsh-Hadamard transforms in place. */
#include "common/ops/fold.h"

#include <math.h>

static void sign(const struct model_fold *f, float *x, size_t at, size_t n)
{
    const uint8_t *top = f->signs ? f->signs + 4 * at + 3 : NULL; /* the byte with the sign */
    for (size_t i = 0; top && i < n; i++)
        x[i] = top[4 * i] & 0x80 ? -x[i] : x[i];
}

static void transform(float *x, size_t block)
{
    const float scale = 1 / sqrtf((float)block);
    for (size_t half = 1; half < block; half *= 2)
        for (size_t i = 0; i < block; i += 2 * half)
            for (size_t j = i; j < i + half; j++) {
                float a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
    for (size_t i = 0; i < block; i++)
        x[i] *= scale;
}

void fold_apply(const struct model_fold *f, float *x, size_t at, size_t n)
{
    sign(f, x, at, n);
    for (size_t i = 0; i < n; i += (size_t)f->block)
        transform(x + i, (size_t)f->block);
}

void fold_undo(const struct model_fold *f, float *x, size_t n)
{
    for (size_t i = 0; i < n; i += (size_t)f->block)
        transform(x + i, (size_t)f->block);
    sign(f, x, 0, n);
}

struct tokens {
    const struct model_fold *f;
    float *x;
    size_t n;
};

/* Item i: a block of a token. */
static void apply_some(void *ctx, int begin, int end, int worker)
{
    const struct tokens *s = ctx;
    const size_t block = (size_t)s->f->block, per = s->n / block;
    (void)worker;
    for (size_t i = (size_t)begin; i < (size_t)end; i++)
        fold_apply(s->f, s->x + i * block, i % per * block, block);
}

void fold_tokens(const struct model_fold *f, struct pool *pool, float *x, size_t n, int n_tokens)
{
    struct tokens s = { f, x, n };
    int items = (int)(n / (size_t)f->block) * n_tokens;
    pool_for(pool, items, pool_grain(pool, items, (uint64_t)n * (uint64_t)n_tokens * sizeof *x * 4), apply_some, &s);
}
