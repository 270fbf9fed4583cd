#ifndef DATASETS_TOOLS_MAKE_H
#define DATASETS_TOOLS_MAKE_H

/* gguf-make: a model is a list of tensors, each with a function that gives its rows as floats; how they are
 * quantised, streamed, counted and written is common to all. A new kind of model is a new file that fills
 * such a list. */
#include "common/base/err.h"
#include "common/model/gguf.h"

#include <stdint.h>

struct make_tensor;

/* Row `row` of t as t->dims[0] floats. Must depend on nothing but t and row. */
typedef int make_row_fn(const struct make_tensor *t, uint64_t row, float *out, struct err *e);

struct make_tensor {
    char name[96];
    uint32_t type;              /* as it is written */
    int n_dims;
    uint64_t dims[4];
    make_row_fn *row;
    const struct gguf *source;  /* of copied and re-quantised tensors, else NULL */
    const struct gguf_tensor *source_tensor;
    void *ctx;                  /* of `row` */
    float mean, deviation;      /* of random tensors */
    uint64_t stream;            /* their random stream */
    const uint8_t *pool;        /* MAKE_POOL blocks of the type, of which rows are made in place of `row`; or NULL */
};

#define MAKE_POOL  4096
#define MAKE_POOLS 32

struct make {
    struct gguf_writer *w;
    struct make_tensor *tensors;
    int n_tensors, cap_tensors;
    uint64_t bytes;             /* of all tensors */
    uint8_t *pools[MAKE_POOLS]; /* owned */
    int n_pools;
    int router_unstated;        /* the source does not say how its routers weigh experts */
    int nextn_only;      /* 1: the file has no layers but those that predict further tokens */
};

int make_new(struct make *m, struct err *e);
void make_free(struct make *m); /* accepts a zeroed one */

/* Declare a tensor, after all keys. When its rows do not divide into blocks of its type: ERR_UNSUPPORTED. */
int make_add(struct make *m, const struct make_tensor *t, struct err *e);

/* An array key of n elements in len bytes, as GGUF holds them. */
int make_array(struct make *m, const char *name, enum gguf_value type, int n, const void *data, size_t len, struct err *e);

/* Keys of a made-up vocabulary of n >= 260 tokens. */
enum make_tokenizer { MAKE_LLAMA, MAKE_RWKV, MAKE_UNIGRAM };
int make_vocabulary(struct make *m, enum make_tokenizer kind, int n, struct err *e);

/* Check that the header is a model this project reads, and that there is room; write the file. */
int make_save(struct make *m, const char *path, struct err *e);

/* --type: a name quant_by_name knows and this build can quantise to. */
int make_type(const char *name, uint32_t *out, struct err *e);

int cmd_random(int argc, char **argv);
int cmd_powerinfer(int argc, char **argv);
int cmd_apply_delta(int argc, char **argv);

#endif
