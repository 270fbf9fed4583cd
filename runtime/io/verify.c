/* Reading again goes through the descriptor that the pack was opened with, whose pages are dropped before and after: it needs
 * no alignment, so it can write to a cache slot, and it disturbs no other read. */
#include "runtime/io/verify.h"

#include "common/pack/unit_check.h"

#include <fcntl.h>
#include <stdio.h>

#define PAGE 65536u /* any kernel's */

static int read_again(const struct verifier *v, uint8_t *to, size_t bytes, uint64_t offset, struct err *e)
{
    const struct file *f = &v->pack->file;
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

static int damaged(const struct verifier *v, const struct place *p, const char *what, uint32_t is, uint32_t want,
                   struct err *e)
{
    return err_set(e, ERR_IO,
                   "'%s': %s (bytes %llu to %llu) is damaged, also when read again: checksum %08x, expected %08x; "
                   "'thermo-pack verify' looks through the whole file",
                   v->pack->file.path, what, (unsigned long long)p->offset,
                   (unsigned long long)(p->offset + p->bytes - 1), is, want);
}

/* Two places may share a number; the second may be empty. */
static int verify(const struct verifier *v, const struct place p[2], uint32_t want, struct verify_counts *c, struct err *e,
                  void (*name)(const void *ctx, char *text, size_t len), const void *ctx)
{
    char what[96];
    uint32_t sum = sum_of(&p[0]) ^ sum_of(&p[1]);
    int r = 0;
    if (sum != want) {
        for (int i = 0; i < 2 && r == 0; i++)
            r = p[i].bytes ? read_again(v, p[i].data, p[i].bytes, p[i].offset, e) : 0;
        if (r < 0)
            return r;
        if ((sum = sum_of(&p[0]) ^ sum_of(&p[1])) != want) {
            name(ctx, what, sizeof what);
            return damaged(v, &p[0], what, sum, want, e);
        }
        c->repaired++;
    }
    c->bytes += p[0].bytes + p[1].bytes;
    return 0;
}

struct subject {
    const struct verifier *v;
    int layer, block, part;
    uint32_t from, to;
};

static int name_block(const struct subject *s, char *text, size_t len)
{
    int n = snprintf(text, len, "layer %d, ", s->layer);
    return n + (s->v->n_blocks > 1 ? snprintf(text + n, len - (size_t)n, "expert %d, ", s->block) : 0);
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

int verify_unit(const struct verifier *v, int layer, int block, int part, uint32_t unit, uint8_t *records,
                struct verify_counts *c, struct err *e)
{
    if (!v->checks)
        return 0;
    const struct layout_shape *shape = layout_of(&v->pack->shapes, layer);
    const struct layout_part *lp = &shape->part[part];
    const struct subject s = { .v = v, .layer = layer, .block = block, .part = part, .from = unit };
    uint64_t ffn = (uint64_t)layer * (uint64_t)v->n_blocks + (uint64_t)block;
    const struct place p[2] = { { .data = records,
                                  .bytes = layout_bytes(lp, layout_unit_neurons(shape, lp, unit)),
                                  .offset = pack_unit_offset(v->pack, layer, block, part, unit),
                                  .seed = unit_check_seed(v->pack->identity, v->pack->shapes.n_parts, ffn, part, unit) } };
    size_t at = (size_t)ffn * (size_t)v->pack->shapes.n_parts + (size_t)part;
    uint32_t first = v->hot ? (v->hot[at] + lp->neurons_per_unit - 1) / lp->neurons_per_unit : 0;
    uint32_t want = v->checks[v->checks_at[at] + unit - first];
    return verify(v, p, want, c, e, name_unit, &s);
}

struct verify_predictor verify_predictor_of(const struct verifier *v, int layer, int block)
{
    uint64_t ffn = (uint64_t)layer * (uint64_t)v->n_blocks + (uint64_t)block;
    const struct pack_predictor *x = pack_predictor_find(v->pack, (enum predict_input)v->predictor[layer], layer, block);
    return (struct verify_predictor){ .seed = v->pack->identity ^ ~(ffn << 32),
                                      .always = v->always ? v->always[layer] : 0,
                                      .range = predict_range(v->pack->shapes.l.cluster_neurons),
                                      .rank = (uint32_t)x->rank };
}

uint64_t verify_row_seed(const struct verify_predictor *p, uint32_t row)
{
    return p->seed ^ 2 * (uint64_t)row;
}

uint64_t verify_range_seed(const struct verify_predictor *p, uint32_t range, int bias)
{
    return p->seed ^ (2 * ((uint64_t)p->rank + range) + (uint64_t)bias);
}

static const struct pack_predictor *section_of(const struct verifier *v, int layer, int block)
{
    return pack_predictor_find(v->pack, (enum predict_input)v->predictor[layer], layer, block);
}

int verify_rows(const struct verifier *v, int layer, int block, uint32_t from, uint32_t to, uint8_t *rows,
                struct verify_counts *c, struct err *e)
{
    size_t at = (size_t)layer * (size_t)v->n_blocks + (size_t)block, row = v->predictors[at].row1;
    const struct verify_predictor q = verify_predictor_of(v, layer, block);
    const struct pack_predictor *x = section_of(v, layer, block);
    struct subject s = { .v = v, .layer = layer, .block = block };
    for (uint32_t i = from; i < to && !v->off; i++) {
        const struct place p[2] = { { .data = rows + (i - from) * row,
                                      .bytes = row,
                                      .offset = x->offset + x->fc1_offset + i * (uint64_t)row,
                                      .seed = verify_row_seed(&q, i) } };
        s.from = i;
        int r = verify(v, p, v->row_checks[at][i], c, e, name_rows, &s);
        if (r < 0)
            return r;
    }
    return 0;
}

int verify_range(const struct verifier *v, int layer, int block, uint32_t range, uint8_t *rows, uint8_t *bias,
                 struct verify_counts *c, struct err *e)
{
    if (v->off)
        return 0;
    size_t at = (size_t)layer * (size_t)v->n_blocks + (size_t)block, row = v->predictors[at].row2;
    const struct verify_predictor q = verify_predictor_of(v, layer, block);
    const struct pack_predictor *x = section_of(v, layer, block);
    uint32_t first = q.always + range * q.range, n_ff = (uint32_t)layout_of(&v->pack->shapes, layer)->n_ff;
    const struct subject s = { .v = v, .layer = layer, .block = block, .from = first,
                               .to = n_ff - first < q.range ? n_ff : first + q.range };
    uint64_t numbers = sizeof(float) * (uint64_t)predict_numbers(x->has_bias, x->two_sided);
    const struct place p[2] = { { .data = rows,
                                  .bytes = (s.to - first) * row,
                                  .offset = x->offset + x->fc2_offset + first * (uint64_t)row,
                                  .seed = verify_range_seed(&q, range, 0) },
                                { .data = bias,
                                  .bytes = bias ? (s.to - first) * numbers : 0,
                                  .offset = x->offset + x->bias_offset + first * numbers,
                                  .seed = verify_range_seed(&q, range, 1) } };
    return verify(v, p, v->row_checks[at][q.rank + range], c, e, name_range, &s);
}

/* ---- rows of dense tensors ---- */

static struct place row_place(const struct verifier *v, const struct pack_dense *d, uint32_t row, uint8_t *bytes)
{
    uint64_t len = d->bytes / d->dims[1], at = d->offset + row * len;
    return (struct place){ .data = bytes, .bytes = (size_t)len, .offset = at, .seed = v->pack->identity ^ at };
}

struct row_subject {
    enum model_role role;
    uint32_t row;
};

static void name_row(const void *ctx, char *text, size_t len)
{
    const struct row_subject *s = ctx;
    snprintf(text, len, "row %u of tensor %s", s->row, model_role_name(s->role));
}

uint32_t verify_row_sum(const struct verifier *v, const struct pack_dense *d, uint32_t row, const uint8_t *bytes)
{
    const struct place p = row_place(v, d, row, (uint8_t *)bytes);
    return sum_of(&p);
}

int verify_row(const struct verifier *v, const struct pack_dense *d, uint32_t row, const uint32_t *checks, uint8_t *bytes,
               struct verify_counts *c, struct err *e)
{
    const struct place p[2] = { row_place(v, d, row, bytes), { .bytes = 0 } };
    const struct row_subject s = { d->role, row };
    return v->off ? 0 : verify(v, p, checks[row], c, e, name_row, &s);
}
