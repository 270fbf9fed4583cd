#include "runtime/sampling.h"

#include "common/model/hparams.h"

#include <string.h>

void sampling_init(struct sample_params *p)
{
    *p = (struct sample_params){ .temp = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1, .repeat_last_n = 64 };
}

int sampling_options(struct opt *rows, struct sample_params *p)
{
    const struct opt all[SAMPLING_OPTIONS] = {
        { .name = "temp", .type = OPT_DOUBLE, .dest = &p->temp, .arg = "T", .min = 0, .max = 100,
          .help = "Temperature; 0 takes the likeliest token.", .def = "0.8" },
        { .name = "top-k", .type = OPT_INT, .dest = &p->top_k, .arg = "K", .min = 0, .max = MODEL_MAX_VOCAB,
          .help = "Keep the K likeliest; 0: all.", .def = "40" },
        { .name = "top-p", .type = OPT_DOUBLE, .dest = &p->top_p, .arg = "P", .min = 0, .max = 1,
          .help = "Keep the likeliest that together reach P; 1: all.", .def = "0.95" },
        { .name = "min-p", .type = OPT_DOUBLE, .dest = &p->min_p, .arg = "P", .min = 0, .max = 1,
          .help = "Keep those at least P times as likely as the likeliest; 0: all.", .def = "0.05" },
        { .name = "repeat-penalty", .type = OPT_DOUBLE, .dest = &p->repeat_penalty, .arg = "X",
          .min = 0.01, .max = 100, .help = "Divide the logits of recent tokens by X; 1: none.", .def = "1" },
        { .name = "repeat-last-n", .type = OPT_INT, .dest = &p->repeat_last_n, .arg = "N",
          .min = -1, .max = MODEL_MAX_CONTEXT, .help = "How many tokens are recent; -1: all.", .def = "64" },
        { .name = "presence-penalty", .type = OPT_DOUBLE, .dest = &p->presence_penalty, .arg = "X", .min = -2, .max = 2,
          .help = "Take X from the logits of tokens that have been made; 0: nothing.", .def = "0" },
        { .name = "frequency-penalty", .type = OPT_DOUBLE, .dest = &p->frequency_penalty, .arg = "X", .min = -2, .max = 2,
          .help = "Take X from the logit of a token for each time that it has been made; 0: nothing.", .def = "0" },
    };
    memcpy(rows, all, sizeof all);
    return SAMPLING_OPTIONS;
}
