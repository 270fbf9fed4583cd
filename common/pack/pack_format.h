#ifndef COMMON_PACK_PACK_FORMAT_H
#define COMMON_PACK_PACK_FORMAT_H

/* On-disk structs of a packed model. schemas/pack.md is the specification; this is its C form. All integers are little-endian; loads go
 * through bytes.h (pack.c, packer/write.c). */
#include <stdint.h>

#define PACK_MAGIC     "THCLPACK"
#define PACK_MAGIC_OLD "THRMPACK"     /* of versions before 0.2.0 */
#define PACK_HEADER_BYTES 256
#define PACK_ENTRY_BYTES  96
#define PACK_NONE UINT32_MAX          /* layer or block of a section that belongs to the whole model */

#define PACK_MAX_ENTRIES (1u << 20)
#define PACK_MAX_META    (512ull << 20)
#define PACK_MAX_TEXT    (16ull << 20)
#define PACK_ZSTD_WINDOW_LOG 17       /* readers need no more than 128 KiB of history */

/* A reader ignores unknown bits of compat, refuses those of incompat. */
#define PACK_INCOMPAT_MTP   1ull      /* one layer that predicts further tokens, which runs beside its model alone */
#define PACK_COMPAT_KNOWN   0ull
#define PACK_INCOMPAT_UNGATED 2ull    /* FFNs without a gate: no record has a row of Up */
#define PACK_INCOMPAT_KNOWN (PACK_INCOMPAT_MTP | PACK_INCOMPAT_UNGATED)

enum pack_kind {
    PACK_META = 1,        /* GGUF header without tensors: the source's keys */
    PACK_PROVENANCE = 2,  /* JSON text */
    PACK_DENSE = 3,       /* one tensor; role, layer, type, dims */
    PACK_ORDER = 4,       /* u32[n_layers][n_blocks][n_ff of the layer] */
    PACK_CLUSTERS = 5,    /* one segment of one (layer, block) */
    PACK_CHECKS = 6,      /* u64[n_layers][n_blocks][n_parts][n_clusters of the layer] */
    PACK_PREDICTOR = 7,   /* of one (layer, block), seeing one input; optional */
    PACK_UNIT_CHECKS = 8, /* u32[n_layers][n_blocks][units of all parts] (unit_check.h) */
    PACK_TYPES = 9,       /* u32[n_layers][3]: where layers differ in types */
};

enum pack_codec { PACK_RAW = 0, PACK_ZSTD = 1 };

struct pack_disk_header {
    uint8_t  magic[8];
    uint32_t revision, header_bytes;
    uint64_t feature_compat, feature_incompat;
    uint64_t file_bytes;
    uint64_t toc_offset;
    uint32_t toc_entries, toc_entry_bytes;
    uint64_t toc_checksum;            /* xxh3-64 of the table */
    uint64_t model_hash[2], order_hash[2], layout_hash[2]; /* lo, hi */
    uint32_t form, packed, block_bytes, cluster_neurons, type[3]; /* type: of most layers */
    uint32_t act;                     /* enum model_act the trace and the pack agree on */
    uint32_t n_layers, n_blocks, n_ff, d_model;
    uint64_t vocab_text_bytes, n_merges;
    uint64_t identity;                /* seeds the checksums of units */
    uint8_t  reserved[64];            /* zero */
    uint64_t checksum;                /* xxh3-64 of the 248 bytes before */
};
_Static_assert(sizeof(struct pack_disk_header) == PACK_HEADER_BYTES, "pack header");

struct pack_disk_entry {
    uint32_t kind, codec;
    uint32_t role;                    /* PACK_DENSE: enum model_role; PACK_PREDICTOR: enum predict_input */
    uint32_t type;                    /* PACK_DENSE: quant_type; PACK_PREDICTOR: of fc1 */
    uint32_t layer, block, segment;   /* PACK_NONE where they do not apply; PACK_PREDICTOR: segment is fc2's type */
    uint32_t n_dims;
    uint64_t dims[4];                 /* PACK_PREDICTOR: d_model, rank, n_ff, flags */
    uint64_t offset;                  /* multiple of block_bytes */
    uint64_t stored_bytes, bytes;     /* in the file; in memory */
    uint64_t checksum;                /* xxh3-64 of the bytes in memory (a segment: of the stored bytes, padding included) */
};
_Static_assert(sizeof(struct pack_disk_entry) == PACK_ENTRY_BYTES, "pack entry");

/* PACK_PREDICTOR: flags in dims[3], and what the section begins with. Behind it, each on a multiple of 64 bytes:
 * the curve's points, fc1, fc2 (rows in pack order), bias (pack order; two-sided: three numbers a neuron). */
#define PACK_PREDICTOR_RELU  1u
#define PACK_PREDICTOR_BIAS  2u
#define PACK_PREDICTOR_TWO_SIDED 4u   /* with a bias; exactly where neurons have thresholds */
#define PACK_PREDICTOR_POINTS_SHIFT 8  /* bits 8 to 15: points of the curve, at most 16 */
#define PACK_PREDICTOR_POINTS 16
#define PACK_PREDICTOR_HEAD_BYTES 64
#define PACK_PREDICTOR_POINT_BYTES 16

struct pack_disk_point {
    float recall, threshold, density, precision;
};
_Static_assert(sizeof(struct pack_disk_point) == PACK_PREDICTOR_POINT_BYTES, "predictor point");

struct pack_disk_predictor {
    struct pack_disk_point at;        /* the chosen operating point */
    float true_density;
    uint8_t reserved[44];             /* zero */
};
_Static_assert(sizeof(struct pack_disk_predictor) == PACK_PREDICTOR_HEAD_BYTES, "predictor head");

#endif
