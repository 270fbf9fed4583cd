#ifndef TESTS_PIPELINE_SAMPLE_H
#define TESTS_PIPELINE_SAMPLE_H

/* A made-up configuration of the pipeline, without an engine: neurons of pseudo-random float32 weights in a file of their own,
 * laid out as a pack lays them out, memory, caches, checksums and a read backend. And what a block gives, computed in double. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/pack/unit_check.h"
#include "runtime/pipeline/config.h"
#include "runtime/pipeline/predictor_prefetch.h"
#include "tests/io_delay.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PS_D = 64, PS_FF = 1200, PS_ROW_BYTES = 192, PS_LAYERS = 2, PS_BLOCKS = 2, PS_CLUSTER = 16, PS_BLOCK_BYTES = 512 };

struct pipeline_sample {
    /* what is asked for */
    enum layout_form form;
    int threads, depth, tokens;     /* of a pass */
    uint32_t hot_neurons[LAYOUT_MAX_PARTS], slots;
    int padded;                     /* units are whole blocks; else they follow each other without gaps */
    int n_coalesce;
    int (*fault)(void *ctx, const struct io_request *r, int result);
    /* what is made */
    char path[256];
    struct pack pack;
    struct pack_segment segments[PS_LAYERS * PS_BLOCKS];
    struct verifier verifier;
    struct pipeline_config c;
    struct reads_coalesce coalesce[1];
    uint8_t *image, *memory;        /* of the file; of everything else */
    size_t image_bytes;
    uint32_t hot[PS_LAYERS * PS_BLOCKS * LAYOUT_MAX_PARTS];
    uint64_t hot_at[PS_LAYERS * PS_BLOCKS * LAYOUT_MAX_PARTS], cold_at[PS_LAYERS * LAYOUT_MAX_PARTS];
    uint64_t checks_at[PS_LAYERS * PS_BLOCKS * LAYOUT_MAX_PARTS];
    struct cache *caches[PS_LAYERS * LAYOUT_MAX_PARTS];
    float rows[PS_BLOCKS * 4 * PS_FF], out[PS_BLOCKS * 4 * PS_D];
    struct err e;
};

static inline float ps_weight(int layer, int block, int role, uint32_t neuron, int col)
{
    uint32_t x = (uint32_t)(layer * 2 + block + 1) * 2654435761u ^ (uint32_t)(role + 1) * 40503u ^ neuron * 2246822519u ^
                 (uint32_t)col * 3266489917u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
    return ((float)(x >> 8) / 8388608.0f - 1.0f) * 0.3f;
}

static inline float ps_input(int block, int token, int col)
{
    return ps_weight(9, block, 7, (uint32_t)token, col) * 3;
}

/* Where the pack has a neuron's record of a part. */
static inline uint8_t *ps_record(struct pipeline_sample *s, int layer, int block, int part, uint32_t neuron)
{
    const struct layout_part *lp = &s->pack.shapes.kind[0].part[part];
    uint64_t at = pack_unit_offset(&s->pack, layer, block, part, layout_unit_of(lp, neuron));
    return s->image + at + layout_record_offset(lp, neuron);
}

static inline void ps_fill_image(struct pipeline_sample *s)
{
    const struct layout_shape *sh = &s->pack.shapes.kind[0];
    for (int i = 0; i < PS_LAYERS * PS_BLOCKS; i++)
        for (int p = 0; p < sh->n_parts; p++)
            for (uint32_t n = 0; n < PS_FF; n++)
                for (int k = 0; k < sh->part[p].n_roles; k++) {
                    int role = sh->part[p].role[k];
                    uint8_t *to = ps_record(s, i / PS_BLOCKS, i % PS_BLOCKS, p, n) + sh->part[p].role_offset[role];
                    for (int col = 0; col < PS_D; col++) {
                        float w = ps_weight(i / PS_BLOCKS, i % PS_BLOCKS, role, n, col);
                        memcpy(to + col * 4, &w, 4);
                    }
                }
}

static inline void ps_write_file(struct pipeline_sample *s)
{
    test_path(s->path, sizeof s->path, "thermo-pipeline-XXXXXX");
    int fd = mkstemp(s->path);
    if (fd < 0 || write(fd, s->image, s->image_bytes) != (ssize_t)s->image_bytes)
        exit(1);
    close(fd);
    if (file_open(&s->pack.file, s->path, &s->e) < 0)
        exit(1);
}

static inline uint8_t *ps_take(uint8_t **m, uint64_t bytes)
{
    uint8_t *at = *m;
    *m += (bytes + 511) / 512 * 512;
    return at;
}

/* Resident prefixes, cold slots and the checksums of units that are not resident. */
static inline void ps_regions(struct pipeline_sample *s, uint8_t **m)
{
    const struct layout_shape *sh = &s->pack.shapes.kind[0];
    uint64_t hot = 0, cold = 0, checks = 0;
    s->c.hot = *m;
    for (int i = 0; i < PS_LAYERS * PS_BLOCKS * sh->n_parts; i++) {
        int part = i % sh->n_parts, block = i / sh->n_parts;
        const struct layout_part *lp = &sh->part[part];
        s->hot[i] = s->hot_neurons[part];
        s->hot_at[i] = hot;
        for (uint32_t n = 0; n < s->hot[i]; n++)
            memcpy(s->c.hot + hot + (size_t)n * lp->record_bytes,
                   ps_record(s, block / PS_BLOCKS, block % PS_BLOCKS, part, n), lp->record_bytes);
        hot += budget_hot_bytes(sh, part, s->hot[i]);
    }
    ps_take(m, hot);
    s->verifier.checks = (uint32_t *)(void *)*m;
    for (int i = 0; i < PS_LAYERS * PS_BLOCKS * sh->n_parts; i++) {
        int part = i % sh->n_parts, block = i / sh->n_parts;
        const struct layout_part *lp = &sh->part[part];
        s->checks_at[i] = checks;
        for (uint32_t u = (s->hot[i] + lp->neurons_per_unit - 1) / lp->neurons_per_unit; u < lp->n_units; u++)
            s->verifier.checks[checks++] =
                unit_check_sum(ps_record(s, block / PS_BLOCKS, block % PS_BLOCKS, part, u * lp->neurons_per_unit),
                               (size_t)layout_unit_neurons(sh, lp, u) * lp->record_bytes,
                               unit_check_seed(s->pack.identity, sh->n_parts, (uint64_t)block, part, u));
    }
    ps_take(m, checks * sizeof(uint32_t));
    s->c.cold = *m;
    for (int i = 0; i < PS_LAYERS * sh->n_parts; i++) {
        s->cold_at[i] = cold;
        cold += s->slots * budget_slot_bytes(sh, i % sh->n_parts);
    }
    ps_take(m, cold);
    for (int i = 0; i < PS_LAYERS * sh->n_parts; i++) {
        uint32_t units = sh->part[i % sh->n_parts].n_units * PS_BLOCKS;
        s->caches[i] = cache_init(ps_take(m, cache_bytes(units, s->slots)), units, s->slots, CACHE_LRU);
    }
}

/* Fills in what is made from what is asked for; ends the test where it cannot. */
static inline void ps_open(struct pipeline_sample *s)
{
    const struct layout l = { .form = s->form, .packed = !s->padded, .block_bytes = PS_BLOCK_BYTES, .cluster_neurons = PS_CLUSTER,
                              .n_kinds = 1, .type = { { QUANT_F32, QUANT_F32, QUANT_F32 } } };
    struct pack *p = &s->pack;
    struct pipeline_config *c = &s->c;
    kernels_init(cpu_detect());
    p->h = (struct model_hparams){ .n_layers = PS_LAYERS, .d_model = PS_D, .n_ff = PS_FF, .n_vocab = 16, .n_heads = 4,
                                   .n_kv_heads = 2, .head_dim = 16, .n_experts = PS_BLOCKS, .n_experts_used = PS_BLOCKS };
    p->identity = 77;
    p->segments = s->segments;
    if (layout_derive(&l, PS_D, PS_FF, &p->shapes, &s->e) < 0)
        exit(1);
    s->image_bytes = 4096;
    for (int i = 0; i < PS_LAYERS * PS_BLOCKS; i++)
        for (int k = 0; k < p->shapes.kind[0].n_segments; k++) {
            s->segments[i].offset[k] = s->image_bytes;
            s->image_bytes += p->shapes.kind[0].segment_bytes[k];
        }
    s->image = calloc(1, s->image_bytes);
    s->memory = aligned_alloc(4096, 24u << 20);
    uint8_t *m = memset(s->memory, 0, 24u << 20);
    ps_fill_image(s);
    ps_write_file(s);
    s->coalesce[0] = (struct reads_coalesce){ 8 * PS_BLOCK_BYTES, 2 };
    c->pack = p;
    c->shapes = &p->shapes;
    c->d_model = PS_D, c->n_layers = PS_LAYERS, c->n_blocks = PS_BLOCKS, c->act = MODEL_ACT_RELU;
    c->verifier = &s->verifier;
    c->coalesce = s->coalesce, c->n_coalesce = s->n_coalesce;
    c->choice = (struct budget_choice){ .context = 16, .max_batch = 1, .prefill_chunk = s->tokens, .threads = s->threads,
                                        .io_lanes = 2, .queue_depth = s->depth, .hot = s->hot,
                                        .read_bytes = s->n_coalesce ? s->coalesce[0].bytes : 0 };
    const struct budget_model b = { .h = p->h, .shapes = p->shapes };
    if (budget_scratch(&b, &c->choice, &c->scratch, &s->e) < 0)
        exit(1);
    uint64_t staging = (uint64_t)s->depth * budget_read_bytes(&p->shapes.kind[0], c->choice.read_bytes);
    c->staging = ps_take(&m, (staging + 4095) / 4096 * 4096);
    s->verifier = (struct verifier){ .pack = p, .n_blocks = PS_BLOCKS, .hot = s->hot, .checks_at = s->checks_at };
    ps_regions(s, &m);
    c->hot_at = s->hot_at, c->cold_at = s->cold_at, c->caches = s->caches;
    c->memory.reads = ps_take(&m, c->scratch.reads);
    c->memory.gather = ps_take(&m, c->scratch.gather);
    c->memory.entries = ps_take(&m, (uint64_t)c->scratch.blocks * c->scratch.entries);
    const struct io_config io = { .path = s->path, .region = c->staging, .region_bytes = staging, .align = PS_BLOCK_BYTES,
                                  .queue_depth = s->depth, .lanes = 2, .fault = s->fault, .fault_ctx = s };
    io_delay_max_us = 20, io_delay_seed = 5;
    if (pool_new(s->threads, NULL, &c->pool, &s->e) < 0 || io_open_backend(&io_delay_backend, &io, &c->io, &s->e) < 0)
        exit(1);
}

static inline void ps_close(struct pipeline_sample *s)
{
    pool_free(s->c.pool);
    io_close(s->c.io);
    file_close(&s->pack.file);
    unlink(s->path);
    free(s->image);
    free(s->memory);
}

/* Gate of a neuron, and what it adds to out, for one token; in double. */
static inline double ps_gate(int layer, int block, uint32_t neuron, int token)
{
    double g = 0;
    for (int c = 0; c < PS_D; c++)
        g += (double)ps_weight(layer, block, LAYOUT_GATE, neuron, c) * (double)ps_input(block, token, c);
    return g;
}

static inline void ps_add_neuron(int layer, int block, uint32_t neuron, int token, double *out)
{
    double g = ps_gate(layer, block, neuron, token), u = 0;
    for (int c = 0; c < PS_D; c++)
        u += (double)ps_weight(layer, block, LAYOUT_UP, neuron, c) * (double)ps_input(block, token, c);
    for (int c = 0; c < PS_D && g > 0; c++)
        out[c] += g * u * (double)ps_weight(layer, block, LAYOUT_DOWN, neuron, c);
}

#endif
