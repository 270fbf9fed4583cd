#ifndef PACKER_QUALITY_H
#define PACKER_QUALITY_H

/* What a pack costs in quality: logits of the source model and of the packed one, by the same dense pass, over tokens
 * of the trace's corpus. The packed one's gate, up and down come from the packed file itself, so
 * neuron order, layout and types are all put to the test: a pack that changes no type gives the very
 * same logits. */
#include "common/base/js.h"
#include "common/base/pool.h"
#include "common/model/model.h"
#include "common/offline/trace/trace.h"
#include "common/pack/pack.h"

struct quality {
    uint64_t n_tokens;
    double kl_mean, kl_max;    /* KL(source || packed) of the next-token distributions, nats */
    double top1_agreement;     /* share of tokens with the same most likely next token */
    double max_logit_diff;
    double seconds;            /* that it took */
    double nll_source, nll_packed; /* mean negative log-likelihood of the corpus's next token, nats */
};

/* At most n_tokens of the trace's first sequences, each cut at the context. Memory: one layer's matrices in F32, one FFN as it
 * is packed, and two rows of logits per token. ERR_INTR after file_interrupted(). */
int quality_measure(const struct model *m, struct trace *t, const struct pack *p, struct pool *pool, uint64_t n_tokens,
                    struct quality *out, struct err *e);

/* For people, a line on stdout; for machines, an object. */
void quality_print(const struct quality *q);
struct js *quality_json(const struct quality *q);

#endif
