/* Prompts into sequences: cutting at the context and at max_tokens, groups of a shard, window and samples. */
#include "profiler/trace/corpus.h"

#include "common/offline/trace/trace_write.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 200 };

static char csv[256];
static struct err e;
static struct gguf *g;
static struct tokenizer *tok;

static struct corpus *read_with(uint64_t n_ctx, uint64_t max_tokens, uint64_t window, uint64_t samples, int shard,
                                int n)
{
    const struct corpus_options o = { .prompts = csv, .column = "text", .n_ctx = n_ctx, .max_tokens = max_tokens,
                                      .window = window, .samples = samples, .shard = shard, .n_shards = n };
    struct corpus *c = NULL;
    return corpus_read(&o, tok, 4096, &c, &e) < 0 ? NULL : c;
}

/* Sequences against the tokenizer, row by row: BOS, then the next n_ctx - 1 ids. */
static int follows(const struct corpus *c, uint64_t n_ctx)
{
    uint64_t seq = 0, at = 0;
    for (int row = 0; row < ROWS; row++) {
        char text[1024];
        int32_t *ids;
        int n, done = 0;
        snprintf(text, sizeof text, "Once upon a time there was a fox number %d.", row);
        for (int i = 0; i < row % 7; i++)
            strcat(text, " It ran and ran through the dark wood.");
        if (tokenizer_encode(tok, text, strlen(text), 0, 0, &ids, &n, &e) < 0)
            return 0;
        while (done < n) {
            if (c->rows[seq] != (uint32_t)row || c->starts[seq] != at || c->index[seq] != seq || c->tokens[at++] != 1)
                return 0;
            for (uint64_t k = 1; k < n_ctx && done < n; k++)
                if (c->tokens[at++] != (uint32_t)ids[done++])
                    return 0;
            seq++;
        }
        free(ids);
    }
    return seq == c->n_sequences && at == c->n_tokens && c->starts[seq] == at;
}

static void whole(void)
{
    struct corpus *a = read_with(512, 0, 300, 64, 0, 1), *b = read_with(20, 0, 0, 1000000, 0, 1);
    CHECK_MSG(a && b, "%s", e.msg);
    if (!a || !b)
        return;
    CHECK(follows(a, 512) && a->n_sequences == ROWS);
    CHECK(follows(b, 20) && b->n_sequences > ROWS && !hash_equal(a->info.hash, b->info.hash));
    CHECK(a->window_tokens <= 300 && a->starts[a->window_sequences] == a->window_tokens &&
          a->starts[a->window_sequences + 1] > 300);
    CHECK(b->window_tokens == 0 && b->window_sequences == 0);
    CHECK(a->n_samples == 64 && b->n_samples == b->n_tokens && b->samples[5] == 5);
    int even = 1;
    for (uint64_t i = 0; i < 64; i++)
        even &= a->samples[i] == (2 * i + 1) * a->n_tokens / 128;
    CHECK(even);
    corpus_free(a), corpus_free(b);
}

static void limited(void)
{
    struct corpus *all = read_with(512, 0, 1, 10, 0, 1);
    int exact = 1, prefix = 1;
    for (uint64_t n = 1; all && n < 60; n++) {
        struct corpus *c = read_with(512, n, 1, 10, 0, 1);
        /* Exactly n, or one fewer where only a BOS would have been left. */
        uint64_t got = c ? c->n_tokens : 0;
        exact &= got == n || (got == n - 1 && (n == 1 || all->starts[c->n_sequences] == got));
        prefix &= !c || !memcmp(c->tokens, all->tokens, (size_t)got * 4);
        prefix &= !c || c->window_sequences == 1; /* at least one sequence */
        corpus_free(c);
    }
    CHECK(exact);
    CHECK(prefix);
    CHECK(!read_with(512, 1, 0, 0, 0, 1) && e.code == ERR_INPUT);
    corpus_free(all);
}

static void shards(void)
{
    struct corpus *all = read_with(20, 0, 2000, 200, 0, 1), *part[3];
    uint64_t next[3] = { 0 }, samples[3] = { 0 }, window = 0, n_samples = 0, s = 0;
    int fine = all != NULL;
    for (int i = 0; i < 3; i++) {
        part[i] = read_with(20, 0, 2000, 200, i, 3);
        fine = fine && part[i] && hash_equal(part[i]->info.hash, all->info.hash);
        window += fine ? part[i]->window_tokens : 0;
        n_samples += fine ? part[i]->n_samples : 0;
    }
    CHECK(fine && window == all->window_tokens && n_samples == 200);
    for (uint64_t q = 0; fine && q < all->n_sequences; q++) {
        int i = (int)(q / TRACE_GROUP % 3);
        const struct corpus *p = part[i];
        uint64_t k = next[i]++, len = all->starts[q + 1] - all->starts[q];
        fine &= p->index[k] == q && p->starts[k + 1] - p->starts[k] == len &&
                !memcmp(p->tokens + p->starts[k], all->tokens + all->starts[q], (size_t)len * 4);
        for (; s < 200 && all->samples[s] < all->starts[q + 1]; s++)
            fine &= p->samples[samples[i]++] - p->starts[k] == all->samples[s] - all->starts[q];
    }
    CHECK(fine && s == 200);
    CHECK(!read_with(20, 0, 0, 0, 99, 100) && e.code == ERR_INPUT && strstr(e.msg, "nothing to do"));
    corpus_free(all);
    for (int i = 0; i < 3; i++)
        corpus_free(part[i]);
}

int main(void)
{
    test_path(csv, sizeof csv, "thermo-corpus-%d.csv", (int)getpid());
    FILE *f = fopen(csv, "w");
    if (!f)
        return 1;
    fprintf(f, "id,text\n");
    for (int row = 0; row < ROWS; row++) {
        fprintf(f, "%d,Once upon a time there was a fox number %d.", row, row);
        for (int i = 0; i < row % 7; i++)
            fprintf(f, " It ran and ran through the dark wood.");
        fprintf(f, "\n");
    }
    fclose(f);
    CHECK_MSG(!gguf_open("datasets/models/reglu-tales-10m-f16.gguf", &g, &e) && !tokenizer_open(g, &tok, &e), "%s",
              e.msg);
    if (tok) {
        whole();
        limited();
        shards();
    }
    tokenizer_close(tok);
    gguf_close(g);
    unlink(csv);
    return test_done();
}
