#ifndef PROFILER_TRACE_CORPUS_H
#define PROFILER_TRACE_CORPUS_H

/* Prompts -> sequences of token ids: each row of a CSV is one sequence (BOS, then the text); a row longer than the
 * context is cut into several, each with its own BOS. A shard takes every n-th group of TRACE_GROUP sequences. */
#include "common/base/err.h"
#include "common/model/tokenizer.h"
#include "common/offline/trace/trace.h"

#include <stdint.h>

struct corpus {
    struct trace_corpus info;  /* of the whole corpus */
    int shard, n_shards;
    /* This shard's part: */
    uint64_t n_tokens, n_sequences, window_tokens, window_sequences, n_samples;
    uint32_t *tokens;          /* [n_tokens] */
    uint64_t *starts;          /* [n_sequences + 1] */
    uint64_t *index;           /* [n_sequences]: in the whole corpus */
    uint32_t *rows;            /* [n_sequences]: row of the CSV, from 0, without the header */
    uint64_t *samples;         /* [n_samples]: tokens of this part, ascending */
};

/* max_tokens 0: all. ERR_INPUT when there is no token, or none for this shard. */
struct corpus_options {
    const char *prompts, *column;
    uint64_t n_ctx, max_tokens, window, samples;
    int shard, n_shards;
};
int corpus_read(const struct corpus_options *o, const struct tokenizer *tok, int n_vocab, struct corpus **out,
                struct err *e);
void corpus_free(struct corpus *c); /* accepts NULL */

#endif
