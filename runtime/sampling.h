#ifndef RUNTIME_SAMPLING_H
#define RUNTIME_SAMPLING_H

/* The samplers' options, which generate and chat share. */
#include "common/cli/opt.h"

#include "runtime/session/sample.h"

#define SAMPLING_OPTIONS 8

void sampling_init(struct sample_params *p); /* the defaults */
int sampling_options(struct opt *rows, struct sample_params *p); /* how many were filled */

#endif
