#ifndef QUANTIZER_QUANTIZE_H
#define QUANTIZER_QUANTIZE_H

/* A model's matrices in another type, into a new file. Keys are copied but for those that speak of types (general.file_type,
 * general.quantization_version, quantize.imatrix.*) and of shards; what mix_leaves says of stays bit for bit. Memory: pieces of a few MiB,
 * and the importance matrix of one tensor. The file appears whole or not at all. */
#include "common/base/err.h"
#include "common/cli/opt.h"
#include "common/kernels/quant.h"
#include "common/model/mix.h"

#include <stdint.h>

struct quantize_request {
    const char *in, *out, *imatrix;        /* imatrix: NULL for none */
    const struct mix *mix;
    int output_type, embedding_type;       /* quant_type, or -1: by the rule */
    struct opt_list tensor_types;          /* "PATTERN=TYPE": a POSIX extended regular expression; the first found in a name counts */
    int pure, leave_output, allow_requantize;
    int threads;                           /* 0: one for each processor */
};

struct quantize_tensor {
    const char *name;                      /* owned by the report's `names` */
    uint32_t from, to;
    uint64_t elems, bytes;                 /* as written */
    int by_imatrix;
};

struct quantize_report {
    struct quantize_tensor *tensors;
    uint64_t n, bytes_in, bytes_out, elems;
    uint64_t imatrix_entries;
    uint32_t imatrix_chunks;
    char *imatrix_dataset, *names;
};

int quantize(const struct quantize_request *q, struct quantize_report *out, struct err *e);
void quantize_report_done(struct quantize_report *r);

/* A type by its name that this build can write ("q4_k"); option: whose value it is, for the message. */
int quantize_type(const char *name, const char *option, uint32_t *out, struct err *e);

#endif
