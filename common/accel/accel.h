#ifndef COMMON_ACCEL_ACCEL_H
#define COMMON_ACCEL_ACCEL_H

/* A dense engine beside the processor (docs/engines.md): hot clusters' FFNs and other products, queued, computed while the
 * processor does something else, and waited for. A back end is a table of these functions in a folder of its own.
 *
 * One thread calls. Functions return 0, or ERR_* with its message: ERR_INPUT where there is no such device, ERR_UNSUPPORTED and
 * ERR_LIMIT where the device cannot, ERR_IO for whatever fails later: after ERR_IO only close may be called.
 *
 * Sums: float32, in an order that depends on the device and on the matrices alone. So a token's results have the same bits however
 * tokens are grouped in calls, and a second run has those of the first. */
#include "common/base/err.h"
#include "common/kernels/quant.h"
#include "common/model/hparams.h"

#include <stddef.h>
#include <stdint.h>

#define ACCEL_NAME 128

/* A device as it describes itself. Text of drivers: printable ASCII, others as '?'. */
struct accel_device {
    char platform[ACCEL_NAME], name[ACCEL_NAME], driver[ACCEL_NAME], version[ACCEL_NAME];
    const char *kind;           /* "gpu" "cpu" "accelerator" "other" */
    int shares_memory;          /* with the processor */
    uint64_t memory_bytes, buffer_bytes; /* all of it; the largest buffer */
    int compute_units, group_items; /* group_items: of a work group, at most */
};

/* [n_rows][n_cols], anywhere in memory that was added. Rows are row_stride bytes apart. In tiles (common/plan/layout.h) rows come in
 * groups of group_rows, which begin group_stride apart (group_rows 0: one group); or elements of a row come in runs of run_elems, whole
 * quant blocks and a multiple of 32, which begin run_stride apart (run_elems 0: one run). */
struct accel_matrix {
    const uint8_t *data;
    uint32_t type;
    int n_rows, n_cols;
    size_t row_stride;
    int group_rows, run_elems;
    size_t group_stride, run_stride;
};

/* out[t] = Down . act(Gate . in[t] + gate_bias, Up . in[t] + up_bias) over n neurons: rows of Gate and Up. turned: neuron i's part of
 * Down is row i, of d_model elements; else Down is [d_model][n]. in, out: f32[n_tokens][d_model]; in is read until wait returns, which
 * writes out. */
struct accel_ffn {
    struct accel_matrix gate, up, down;
    int turned;
    const float *gate_bias, *up_bias, *silence; /* f32[n], in memory that was added; or NULL. silence: thresholds of nn_silence */
    enum model_act act;
    const float *in;
    float *out;
    int n_tokens;
};

/* out[t][r] = <row r, in[t]>; in: f32[n_tokens][n_cols], out: f32[n_tokens][n_rows]. */
struct accel_product {
    struct accel_matrix m;
    const float *in;
    float *out;
    int n_tokens;
};

/* What calls will ask for at most. */
struct accel_need {
    int tokens;                 /* of all FFNs, or products, that are queued together */
    int d_model, neurons;       /* of an FFN */
    uint64_t inputs, outputs;   /* floats of products that are queued together; an input that several have counts once; 0: none */
};

struct accel_config {
    int device;                 /* as listed; -1: the first GPU, or else the first device */
    const char *cache;          /* folder of programs; NULL: they are built at every start */
    const uint32_t *types;      /* [n_types] of matrices: what has no program is not accepted later */
    int n_types;
    int silence_ms;             /* without an answer this is ERR_IO; 0: 30 s */
    /* For tests. */
    int copies;                 /* 1: as if the device had memory of its own */
    int lanes;                  /* work items of a row, a power of two; 0: by the kind of device */
    uint64_t buffer_bytes;      /* the largest buffer, where that is less; 0: the device's */
    int (*fault)(void *ctx);    /* before each command: not 0, it fails */
    void *fault_ctx;
};

struct accel_info {
    struct accel_device device;
    int zero_copy;              /* weights are where they were */
    uint64_t host_bytes, device_bytes; /* buffers so far: in memory that the processor's account is about; in the device's own */
    int built, cached;          /* programs, made at this start and taken from the cache */
    char note[256];             /* what is to be said once, "" : nothing */
};

struct accel_backend;

/* First member of every back end's own struct. */
struct accel {
    const struct accel_backend *backend;
};

struct accel_backend {
    const char *name;           /* "opencl" */
    uint64_t least_bytes;       /* of the process's memory that any driver takes: where there are not so many, none is loaded */

    /* How many devices there are, of which out has the first `most`; 0 where there is no driver. */
    int (*list)(struct accel_device *out, int most, struct err *e);

    /* A device, with its programs built and compared with the processor's results. */
    int (*open)(const struct accel_config *c, struct accel **out, struct err *e);
    int (*close)(struct accel *a); /* accepts NULL. 1: the device has not answered, and may still read what was added: keep it */

    void (*describe)(const struct accel *a, struct accel_info *out);

    /* Bytes of its own buffers for such calls; those that count on the host, where it shares memory. */
    uint64_t (*buffers)(const struct accel *a, const struct accel_need *need);

    /* Before any work: data, which the caller keeps, constant but for `changed`; then, once, allocate. Pieces come by ascending addresses
     * and do not overlap. */
    int (*add)(struct accel *a, const void *data, size_t bytes, struct err *e);
    int (*allocate)(struct accel *a, const struct accel_need *need, struct err *e);

    /* Can it multiply this, by itself? Its data is where it was added, whole; type, shape and alignment suit. */
    int (*takes)(const struct accel *a, const struct accel_matrix *m, int turned);

    /* These bytes, within a piece that was added, are other ones now: what is queued from here on sees them. Nothing that is queued and
     * not waited for uses them; the caller keeps them as they are until that of it is waited for that does. */
    int (*changed)(struct accel *a, const void *data, size_t bytes, struct err *e);

    /* Queued: only what it takes. Returns before it is done. */
    int (*ffn)(struct accel *a, const struct accel_ffn *f, int n, struct err *e);
    int (*products)(struct accel *a, const struct accel_product *p, int n, struct err *e);

    /* All that is queued is done, and outputs are there. meanwhile: called now and then, or NULL; ends the wait with what it returns
     * below 0, after which nothing is written any more. */
    int (*wait)(struct accel *a, int (*meanwhile)(void *ctx, struct err *e), void *ctx, struct err *e);
};

#endif
