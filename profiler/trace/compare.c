#include "profiler/trace/compare.h"

#include "common/model/logits.h"

#include <math.h>
#include <stdlib.h>

struct compare_token {
    double kl, nll;
    int same;
};

int compare_init(struct compare *c, struct pool *pool, int n_variants, int n_vocab, struct err *e)
{
    const size_t tokens = (size_t)n_variants * COMPARE_TOKENS;
    *c = (struct compare){ .pool = pool, .n_variants = n_variants, .n_vocab = n_vocab, .v = calloc((size_t)n_variants, sizeof *c->v),
                           .logits = malloc(tokens * (size_t)n_vocab * sizeof *c->logits), .token = calloc(tokens, sizeof *c->token) };
    return c->v && c->logits && c->token ? 0 : err_set(e, ERR_NOMEM, "logits");
}

void compare_done(struct compare *c)
{
    free(c->v), free(c->logits), free(c->token);
    *c = (struct compare){ 0 };
}

static void one_token(void *ctx, int begin, int end, int worker)
{
    const struct compare *c = ctx;
    const size_t vocab = (size_t)c->n_vocab;
    (void)worker;
    for (int i = begin; i < end; i++) {
        int v = i / c->n, t = i % c->n;
        const float *a = c->logits + (size_t)t * vocab, *b = c->logits + ((size_t)v * COMPARE_TOKENS + (size_t)t) * vocab;
        const struct logits_difference d = logits_compare(a, b, c->n_vocab);
        const double nll = c->next[t] != UINT32_MAX ? d.log_sum_b - (double)b[c->next[t]] : 0;
        c->token[v * COMPARE_TOKENS + t] = (struct compare_token){ d.kl > 0 ? d.kl : 0, nll, d.same }; /* rounding of equal ones */
    }
}

int compare_score(struct compare *c, struct forward *f, size_t run_tokens, size_t at, int n, const uint32_t *next, struct err *e)
{
    for (int v = 0; v < c->n_variants; v++) {
        int r = forward_logits(f, (size_t)v * run_tokens + at, (size_t)n,
                               c->logits + (size_t)v * COMPARE_TOKENS * (size_t)c->n_vocab, e);
        if (r < 0)
            return r;
    }
    c->n = n;
    c->next = next;
    pool_for(c->pool, n * c->n_variants, 1, one_token, c);
    c->tokens += (uint64_t)n;
    for (int t = 0; t < n; t++) {
        c->with_next += next[t] != UINT32_MAX;
        for (int v = 0; v < c->n_variants; v++) {
            const struct compare_token *k = &c->token[v * COMPARE_TOKENS + t];
            c->v[v].kl += k->kl;
            c->v[v].kl_max = fmax(c->v[v].kl_max, k->kl);
            c->v[v].nll += k->nll;
            c->v[v].same += (uint64_t)k->same;
        }
    }
    return 0;
}
