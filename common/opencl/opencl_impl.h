#ifndef COMMON_OPENCL_OPENCL_IMPL_H
#define COMMON_OPENCL_OPENCL_IMPL_H

/* What the files of the back end share: opencl.c (life, weights, what is queued and waited for), opencl_device.c (which devices there
 * are), opencl_program.c (building and the cache), opencl_queue.c (single commands), opencl_test.c (comparison with the processor). */
#include "common/accel/accel_sums.h"
#include "common/base/hash.h"

#include "common/opencl/opencl.h"
#include "common/opencl/opencl_api.h"

#define OPENCL_EVENTS 512       /* commands that are in the queue together */
#define OPENCL_MOST_DEVICES 64
#define OPENCL_OUTS   128       /* results that one wait brings */

struct opencl_devices {
    int n;
    struct {
        opencl_platform_id platform;
        opencl_device_id id;
        struct accel_device is;
        uint64_t type;
        size_t local_bytes, item_sizes[3];
        int usable;             /* available, with a compiler, little-endian, OpenCL 1.2 or later */
    } at[OPENCL_MOST_DEVICES];
};

/* Kernels of an element type. */
struct opencl_kernels {
    opencl_program_id program;  /* NULL: there are none */
    opencl_kernel product[3], turned[3]; /* of one token, of four, of many */
    opencl_kernel sum, activate, hidden;
};

struct opencl_window {          /* memory of the caller's, as a buffer */
    const uint8_t *base;
    size_t bytes;
    opencl_mem mem;
};

struct opencl {
    struct accel accel;         /* first */
    struct opencl_api api;
    struct accel_config c;
    struct accel_info info;
    opencl_device_id device;
    opencl_context context;
    opencl_queue queue;
    int lanes, rows;            /* of a work group */
    int slices;                 /* of Down's sum, at most; 1: it is not divided */
    size_t local_bytes;         /* that a work group may have */
    struct opencl_kernels kernels[QUANT_LIMIT];
    uint64_t buffer_bytes, free_bytes; /* the largest buffer; of the device's own memory */

    struct opencl_window *pieces, *windows; /* as added, with mem NULL; [n_windows], by address */
    int n_pieces, cap_pieces, n_windows;
    struct accel_need need;
    opencl_mem in, gate, up, out, part;
    float *host_out;            /* what was read from out: the caller's memory is written by wait alone */
    float *host_in;             /* inputs on their way, where copies go through memory that the device can reach; NULL: from the caller's */
    opencl_mem host_mem;        /* both of them, then */
    struct opencl_out { float *to; uint64_t at, n; } outs[OPENCL_OUTS];
    int n_outs;

    opencl_event events[OPENCL_EVENTS];
    int n_events, broken;
};

/* A matrix on the device: a buffer, and where in it the data begins. */
struct opencl_place {
    opencl_mem mem;
    uint64_t at;
};

/* ---- opencl_device.c ---- */
int opencl_devices(const struct opencl_api *api, struct opencl_devices *out, struct err *e);

/* ---- opencl_program.c ---- */
/* Kernels of a type, from the cache, or built and compared; note in o->info. */
int opencl_program_make(struct opencl *o, uint32_t type, struct err *e);
void opencl_program_drop(struct opencl *o, struct opencl_kernels *k);

/* ---- opencl_test.c ---- */
/* ERR_UNSUPPORTED: the kernels of this type give other results than the processor. */
int opencl_test_kernels(struct opencl *o, uint32_t type, struct err *e);

/* ---- opencl_queue.c: ERR_IO for what fails. at: in floats; data beside: bytes ---- */
int opencl_failed(struct opencl *o, int32_t code, const char *what, struct err *e);
int opencl_buffer(struct opencl *o, uint64_t bytes, uint64_t flags, void *host, opencl_mem *out, struct err *e);
int opencl_write(struct opencl *o, opencl_mem to, uint64_t at, const float *from, uint64_t n, struct err *e);
int opencl_rewrite(struct opencl *o, struct opencl_place to, const void *from, size_t bytes, struct err *e);
int opencl_read(struct opencl *o, opencl_mem from, uint64_t at, float *to, uint64_t n, struct err *e);
int opencl_queue_product(struct opencl *o, const struct accel_matrix *m, struct opencl_place w, opencl_mem x, uint64_t x_at,
                         opencl_mem out, uint64_t out_at, int n_tokens, struct err *e);
/* part: f32[slices][ACCEL_SLICE_TOKENS][n_cols], where opencl_queue_slices is more than 1. */
int opencl_queue_turned(struct opencl *o, const struct accel_matrix *m, struct opencl_place w, opencl_mem h, uint64_t h_at,
                        opencl_mem part, opencl_mem out, uint64_t out_at, int n_tokens, struct err *e);
/* Tokens of an item or a group in the kernels for many: MANY_TOKENS. */
int opencl_queue_many(const struct opencl *o);
/* Items of a group in these kernels, where a row has several; 0: groups or local memory are too small for them. */
int opencl_queue_items(const struct opencl *o);
/* Bytes of local memory of the kernels for one token or four, where a row has several items. */
size_t opencl_queue_local(const struct opencl *o, int tokens);
int opencl_queue_slices(const struct opencl *o, int n_rows);
struct opencl_biases {
    struct opencl_place gate, up, silence; /* mem NULL: none */
};
int opencl_queue_activate(struct opencl *o, opencl_mem gate, opencl_mem up, uint64_t at, int n, int n_tokens, enum model_act act,
                          const struct opencl_biases *b, struct err *e);
/* Both products and that, of one token, in one command: out[i], i < gate->n_rows. Of matrices that opencl_queue_hides. */
int opencl_queue_hides(const struct accel_matrix *gate, const struct accel_matrix *up);
int opencl_queue_hidden(struct opencl *o, const struct accel_matrix *gate, struct opencl_place g, const struct accel_matrix *up,
                        struct opencl_place u, opencl_mem x, uint64_t x_at, opencl_mem out, uint64_t out_at, enum model_act act,
                        const struct opencl_biases *b, struct err *e);
int opencl_queue_wait(struct opencl *o, int (*meanwhile)(void *ctx, struct err *e), void *ctx, struct err *e);
void opencl_queue_forget(struct opencl *o); /* events */

#endif
