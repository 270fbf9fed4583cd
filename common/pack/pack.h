#ifndef COMMON_PACK_PACK_H
#define COMMON_PACK_PACK_H

/* Reader of packed models (model.thermo; schemas/pack.md, on-disk structs in pack_format.h). The
 * header, table and every small section are validated once, at open; afterwards the in-memory
 * structs are trusted. Clusters are read by the runtime's own I/O at the offsets given here. */
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/model/model.h"
#include "common/model/predict.h"
#include "common/plan/budget.h"
#include "common/plan/layout.h"

#include <stdint.h>

struct pack_dense {            /* one dense tensor */
    enum model_role role;
    int layer;                 /* -1: per model */
    uint32_t type;
    int n_dims;
    uint64_t dims[4];
    uint64_t bytes;            /* in memory */
    uint64_t offset, stored_bytes; /* in the file; offset is a multiple of block_bytes */
    int zstd;                  /* stored compressed */
    uint64_t checksum;         /* xxh3-64 of the bytes in memory */
};

struct pack_segment {          /* the neurons of one (layer, block); parts by shape */
    uint64_t offset[LAYOUT_MAX_PARTS]; /* of each segment; multiples of block_bytes */
};

/* A predictor of one (layer, block). In memory it is `bytes` long as in the file. */
struct pack_predictor {
    enum predict_input input;
    int layer, block, rank, relu, has_bias, two_sided, n_points;
    uint32_t type1, type2;
    uint64_t bytes, offset, checksum;                            /* of the section */
    uint64_t curve_offset, fc1_offset, fc2_offset, bias_offset;  /* within it; multiples of 64 */
};

/* What it was measured to do (schemas/trace.md). */
struct pack_predictor_point {
    float recall, threshold, density, precision;
};
struct pack_predictor_figures {
    struct pack_predictor_point at;    /* chosen */
    float true_density;
    int n_points;
    struct pack_predictor_point curve[16]; /* ascending recall: other thresholds to choose from */
};

/* The table of unit checks in the file: u32 little-endian, as unit_check.h orders them. */
struct pack_unit_checks {
    uint64_t offset, bytes, checksum;
};

struct pack {
    struct file file;
    uint64_t identity;             /* seeds the unit checks */
    struct pack_unit_checks unit_checks;
    struct gguf *meta;             /* GGUF keys of the source model */
    struct model_hparams h;
    struct hash128 model_hash, order_hash, layout_hash;
    struct layout_shapes shapes;
    uint64_t vocab_text_bytes, n_merges, meta_bytes;
    int n_dense;
    struct pack_dense *dense;
    struct pack_segment *segments; /* [n_layers][n_blocks] */
    int n_predictors;              /* may be 0 */
    struct pack_predictor *predictors; /* by input, layer, block ascending */
    const char *provenance;        /* JSON text: tool, source, requantisation and what it cost; NUL-terminated */
    void *priv;
};

int pack_open(const char *path, struct pack **out, struct err *e);
/* The same where what the tables and metadata say may take at most so many bytes of memory, else ERR_INFEASIBLE; without provenance. */
int pack_open_within(const char *path, uint64_t most, struct pack **out, struct err *e);
uint64_t pack_held_bytes(const struct pack *p); /* of it, by what was counted */
/* The same from memory, for fuzzing: validates header, table and small sections. data must outlive the pack. */
int pack_parse(const void *data, size_t len, const char *name, struct pack **out, struct err *e);
void pack_close(struct pack *p);

/* NULL when the model has no such tensor. */
const struct pack_dense *pack_dense_find(const struct pack *p, enum model_role role, int layer);

/* Read (and decompress, and verify the checksum of) one dense tensor into out[bytes]. scratch for decompression comes
 * from malloc and is bounded by 256 KiB: streaming. ERR_FORMAT names the section when the checksum differs. */
int pack_dense_read(const struct pack *p, const struct pack_dense *d, void *out, struct err *e);

/* NULL when the pack has none for that input, layer and block. */
const struct pack_predictor *pack_predictor_find(const struct pack *p, enum predict_input input, int layer, int block);

/* Fill the derived offsets and bytes from rank, types, has_bias, two_sided and n_points. ERR_UNSUPPORTED when they do not fit. */
int pack_predictor_derive(struct pack_predictor *x, int d_model, int n_ff, struct err *e);

/* mem[x->bytes], aligned to 64, holds the section's bytes: verify them, and point *out into them (neurons in pack order,
 * threshold as chosen); after kernels_init. figures may be NULL. */
int pack_predictor_use(const struct pack *p, const struct pack_predictor *x, void *mem, struct predict *out,
                       struct pack_predictor_figures *figures, struct err *e);

/* The same of the section's first fc1_offset bytes alone: figures, and *out without weights. Nothing is verified but them. */
int pack_predictor_head(const struct pack *p, const struct pack_predictor *x, const void *mem, struct predict *out,
                        struct pack_predictor_figures *figures, struct err *e);
int pack_predictor_damaged(const struct pack *p, const struct pack_predictor *x, uint64_t sum, struct err *e);
int pack_predictor_infinite(const struct pack *p, const struct pack_predictor *x, struct err *e);
int pack_predictor_mispicks(const struct pack *p, const struct pack_predictor *x, struct err *e);

/* The operating point for a recall: the least density that reaches it, of the chosen point and the curve; where none
 * does, the greatest recall. */
struct pack_predictor_point pack_predictor_choose(const struct pack_predictor_figures *f, double recall);

/* pack_predictor_use with the bytes read from the file first. */
int pack_predictor_read(const struct pack *p, const struct pack_predictor *x, void *mem, struct predict *out,
                        struct pack_predictor_figures *figures, struct err *e);

/* File offset of unit u of a part of (layer, block). */
static inline uint64_t pack_unit_offset(const struct pack *p, int layer, int block, int part, uint32_t u)
{
    const struct layout_part *lp = &layout_of(&p->shapes, layer)->part[part];
    const struct pack_segment *s = &p->segments[(size_t)layer * (size_t)model_ffn_blocks(&p->h) + (size_t)block];
    return s->offset[lp->segment] + lp->first_offset + (uint64_t)u * lp->stride_bytes;
}

/* Neuron order of (layer, block): order[p] = original index. Read from the file on demand into order[n_ff], the layer's. */
int pack_order(const struct pack *p, int layer, int block, uint32_t *order, struct err *e);

/* Checksum (xxh3-64) of cluster c of a part: the payload bytes of its units, in order, without padding. */
int pack_cluster_checksum(const struct pack *p, int layer, int block, int part, uint32_t c, uint64_t *out,
                          struct err *e);

/* The unit checks of a part of (layer, block), out[n_units]. */
int pack_unit_checks_read(const struct pack *p, int layer, int block, int part, uint32_t *out, struct err *e);

/* Read every raw section whole (neuron segments with their padding, order, checksums table) and compare checksums.
 * *bad counts damaged ones; text names the first. Reads the entire file: for verification. */
int pack_verify_segments(const struct pack *p, int *bad, char *text, size_t text_len, struct err *e);

/* What budget.h needs. */
void pack_budget_model(const struct pack *p, struct budget_model *out);

#endif
