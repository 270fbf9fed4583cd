#ifndef RUNTIME_IO_VERIFY_H
#define RUNTIME_IO_VERIFY_H

/* Whatever takes part in a sum was verified after it was read. What is loaded at start is held against the checksums of its
 * section or cluster there. What is read while the model runs, and what fills the cold cache, is held against a number of its
 * own (common/pack/unit_check.h) by whoever touches it next: for units that is the worker that computes their gates, or Up and
 * Down where gates lie apart, for streamed predictors the worker that multiplies their rows. Until then nobody else looks at
 * the bytes (runtime/README.md, rules 9 and 18).
 *
 * What differs is read once more, from the device and not from the page cache, to where it lies; what still differs is
 * ERR_IO, which names the place, and ends the pass before anything is made of it. Thread-safe: each call writes to the bytes
 * that it was given and to *c alone. With `off` nothing is verified. */
#include "common/model/predict.h"
#include "common/pack/pack.h"

#include <stdint.h>

/* What is held against what. Filled in while the model loads, constant after that; all that it points to outlives it. */
struct verifier {
    const struct pack *pack;          /* the file, and where in it units and predictors are */
    int n_blocks;                     /* of a layer */
    int off;                          /* 1: nothing is verified */
    const uint32_t *hot;              /* [layer][block][part] neurons of the resident prefix; NULL: none are resident */
    uint32_t *checks;                 /* numbers of the units that are not resident; NULL: units are not verified */
    uint64_t *checks_at;              /* [layer][block][part]: of its first unit that is not resident, in checks */
    uint32_t **row_checks;            /* [layer][block]: of the rows, then ranges, of a streamed predictor */
    const struct predict *predictors; /* [layer][block] */
    const signed char *predictor;     /* [layer]: enum predict_input */
    const uint32_t *always;           /* [layer] neurons that are not predicted; NULL: none */
};

struct verify_counts {
    uint64_t bytes, ns;        /* verified, and what that took; ns is left to the caller */
    uint64_t repaired;         /* places that were as they should be when read again */
};

/* records: of a unit of (layer, block, part), without padding. */
int verify_unit(const struct verifier *v, int layer, int block, int part, uint32_t unit, uint8_t *records,
                struct verify_counts *c, struct err *e);

/* Of a streamed predictor: rows [from, to) of fc1; a range of neurons, rows of fc2 and bias, which is NULL where there is none.
 * Ranges are counted from the neurons that are always computed on. */
int verify_rows(const struct verifier *v, int layer, int block, uint32_t from, uint32_t to, uint8_t *rows,
                struct verify_counts *c, struct err *e);
int verify_range(const struct verifier *v, int layer, int block, uint32_t range, uint8_t *rows, uint8_t *bias,
                 struct verify_counts *c, struct err *e);

/* A row of a dense tensor, without what lies beside it: its number, and whether that is checks[row]. */
uint32_t verify_row_sum(const struct verifier *v, const struct pack_dense *d, uint32_t row, const uint8_t *bytes);
int verify_row(const struct verifier *v, const struct pack_dense *d, uint32_t row, const uint32_t *checks, uint8_t *bytes,
               struct verify_counts *c, struct err *e);

/* How the numbers of a predictor are seeded, for the loader that makes them. */
struct verify_predictor {
    uint64_t seed;
    uint32_t always, range, rank;
};
struct verify_predictor verify_predictor_of(const struct verifier *v, int layer, int block);
uint64_t verify_row_seed(const struct verify_predictor *p, uint32_t row);
uint64_t verify_range_seed(const struct verify_predictor *p, uint32_t range, int bias);

#endif
