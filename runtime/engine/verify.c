/* Reading again goes through the descriptor that the pack was opened with, whose pages are dropped before and after: it needs
 * no alignment, so it can write to a cache slot, and it disturbs no other read. */
#include "runtime/engine/verify.h"

#include "common/pack/unit_check.h"

#include <fcntl.h>
#include <stdio.h>

#define PAGE 65536u /* any kernel's */

static int read_again(const struct engine *g, uint8_t *to, size_t bytes, uint64_t offset, struct err *e)
{
    const struct file *f = &g->c.pack->file;
    off_t first = (off_t)(offset / PAGE * PAGE), len = (off_t)((offset + bytes + PAGE - 1) / PAGE * PAGE) - first;
    posix_fadvise(f->fd, first, len, POSIX_FADV_DONTNEED);
    int r = file_pread(f, to, bytes, offset, e);
    posix_fadvise(f->fd, first, len, POSIX_FADV_DONTNEED);
    if (r < 0)
        e->code = r = ERR_IO;
    return r;
}

/* A place of the file and what it should be. */
struct place {
    uint8_t *data;
    size_t bytes;
    uint64_t offset, seed;
};

static uint32_t sum_of(const struct place *p)
{
    return p->bytes ? unit_check_sum(p->data, p->bytes, p->seed) : 0;
}

static int damaged(const struct engine *g, const struct place *p, const char *what, uint32_t is, uint32_t want,
                   struct err *e)
{
    return err_set(e, ERR_IO,
                   "'%s': %s (bytes %llu to %llu) is damaged, also when read again: checksum %08x, expected %08x; "
                   "'thermo-pack verify' looks through the whole file",
                   g->c.pack->file.path, what, (unsigned long long)p->offset,
                   (unsigned long long)(p->offset + p->bytes - 1), is, want);
}

/* Two places may share a number; the second may be empty. */
static int verify(const struct engine *g, const struct place p[2], uint32_t want, struct verify_counts *c, struct err *e,
                  void (*name)(const void *ctx, char *text, size_t len), const void *ctx)
{
    char what[96];
    uint32_t sum = sum_of(&p[0]) ^ sum_of(&p[1]);
    int r = 0;
    if (sum != want) {
        for (int i = 0; i < 2 && r == 0; i++)
            r = p[i].bytes ? read_again(g, p[i].data, p[i].bytes, p[i].offset, e) : 0;
        if (r < 0)
            return r;
        if ((sum = sum_of(&p[0]) ^ sum_of(&p[1])) != want) {
            name(ctx, what, sizeof what);
            return damaged(g, &p[0], what, sum, want, e);
        }
        c->repaired++;
    }
    c->bytes += p[0].bytes + p[1].bytes;
    return 0;
}

struct subject {
    const struct engine *g;
    int layer, block, part;
    uint32_t from, to;
};

static int name_block(const struct subject *s, char *text, size_t len)
{
    int n = snprintf(text, len, "layer %d, ", s->layer);
    return n + (s->g->n_blocks > 1 ? snprintf(text + n, len - (size_t)n, "expert %d, ", s->block) : 0);
}

static void name_unit(const void *ctx, char *text, size_t len)
{
    const struct subject *s = ctx;
    int n = name_block(s, text, len);
    snprintf(text + n, len - (size_t)n, "part %d, unit %u", s->part, s->from);
}

static void name_rows(const void *ctx, char *text, size_t len)
{
    const struct subject *s = ctx;
    int n = name_block(s, text, len);
    snprintf(text + n, len - (size_t)n, "row %u of fc1 of its predictor", s->from);
}

static void name_range(const void *ctx, char *text, size_t len)
{
    const struct subject *s = ctx;
    int n = name_block(s, text, len);
    snprintf(text + n, len - (size_t)n, "neurons %u to %u of its predictor", s->from, s->to - 1);
}

int verify_unit(const struct engine *g, int layer, int block, int part, uint32_t unit, uint8_t *records,
                struct verify_counts *c, struct err *e)
{
    if (!g->checks)
        return 0;
    const struct layout_part *lp = &g->shape.part[part];
    const struct subject s = { .g = g, .layer = layer, .block = block, .part = part, .from = unit };
    uint64_t ffn = (uint64_t)layer * (uint64_t)g->n_blocks + (uint64_t)block;
    const struct place p[2] = { { .data = records,
                                  .bytes = (size_t)layout_unit_neurons(&g->shape, lp, unit) * lp->record_bytes,
                                  .offset = pack_unit_offset(g->c.pack, layer, block, part, unit),
                                  .seed = unit_check_seed(g->c.pack->identity, &g->shape, ffn, part, unit) } };
    uint32_t want = g->checks[g->checks_at[engine_hot_index(g, layer, block, part)] + unit -
                              engine_first_cold(g, layer, block, part)];
    return verify(g, p, want, c, e, name_unit, &s);
}

struct verify_predictor verify_predictor_of(const struct engine *g, int layer, int block)
{
    uint64_t ffn = (uint64_t)layer * (uint64_t)g->n_blocks + (uint64_t)block;
    const struct pack_predictor *x = pack_predictor_find(g->c.pack, (enum predict_input)g->c.predictor[layer], layer, block);
    return (struct verify_predictor){ .seed = g->c.pack->identity ^ ~(ffn << 32),
                                      .always = g->c.always ? g->c.always[layer] : 0,
                                      .range = predict_range(g->shape.l.cluster_neurons),
                                      .rank = (uint32_t)x->rank };
}

uint64_t verify_row_seed(const struct verify_predictor *v, uint32_t row)
{
    return v->seed ^ 2 * (uint64_t)row;
}

uint64_t verify_range_seed(const struct verify_predictor *v, uint32_t range, int bias)
{
    return v->seed ^ (2 * ((uint64_t)v->rank + range) + (uint64_t)bias);
}

static const struct pack_predictor *section_of(const struct engine *g, int layer, int block)
{
    return pack_predictor_find(g->c.pack, (enum predict_input)g->c.predictor[layer], layer, block);
}

int verify_rows(const struct engine *g, int layer, int block, uint32_t from, uint32_t to, uint8_t *rows,
                struct verify_counts *c, struct err *e)
{
    size_t at = (size_t)layer * (size_t)g->n_blocks + (size_t)block, row = g->predictors[at].row1;
    const struct verify_predictor v = verify_predictor_of(g, layer, block);
    const struct pack_predictor *x = section_of(g, layer, block);
    struct subject s = { .g = g, .layer = layer, .block = block };
    for (uint32_t i = from; i < to && !g->c.no_verify; i++) {
        const struct place p[2] = { { .data = rows + (i - from) * row,
                                      .bytes = row,
                                      .offset = x->offset + x->fc1_offset + i * (uint64_t)row,
                                      .seed = verify_row_seed(&v, i) } };
        s.from = i;
        int r = verify(g, p, g->row_checks[at][i], c, e, name_rows, &s);
        if (r < 0)
            return r;
    }
    return 0;
}

int verify_range(const struct engine *g, int layer, int block, uint32_t range, uint8_t *rows, uint8_t *bias,
                 struct verify_counts *c, struct err *e)
{
    if (g->c.no_verify)
        return 0;
    size_t at = (size_t)layer * (size_t)g->n_blocks + (size_t)block, row = g->predictors[at].row2;
    const struct verify_predictor v = verify_predictor_of(g, layer, block);
    const struct pack_predictor *x = section_of(g, layer, block);
    uint32_t first = v.always + range * v.range, n_ff = (uint32_t)g->h.n_ff;
    const struct subject s = { .g = g, .layer = layer, .block = block, .from = first,
                               .to = n_ff - first < v.range ? n_ff : first + v.range };
    const struct place p[2] = { { .data = rows,
                                  .bytes = (s.to - first) * row,
                                  .offset = x->offset + x->fc2_offset + first * (uint64_t)row,
                                  .seed = verify_range_seed(&v, range, 0) },
                                { .data = bias,
                                  .bytes = bias ? (s.to - first) * sizeof(float) : 0,
                                  .offset = x->offset + x->bias_offset + first * 4ull,
                                  .seed = verify_range_seed(&v, range, 1) } };
    return verify(g, p, g->row_checks[at][v.rank + range], c, e, name_range, &s);
}
