/* thermo-pack verify: every checksum of a packed model, the neuron orders, the zero padding. */
#include "common/base/ckmath.h"
#include "common/base/cpu.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"
#include "common/kernels/kernels.h"
#include "common/pack/pack.h"
#include "common/pack/unit_check.h"
#include "packer/cmd.h"
#include "packer/quality.h"
#include "packer/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-pack verify", "FILE",
    "Read a packed model whole and check every checksum, that each neuron order is a permutation, and that padding is "
    "zero. Damage is reported section by section, down to the cluster; exit status 3 if there is any. With the source "
    "model and its trace, also run tokens of the traced corpus through both and print how the logits differ: not at "
    "all when no tensor changed type.",
    "  thermo-pack verify m.thermo\n  thermo-pack verify --model m.gguf --traces t.h5 m.thermo\n", "r"
};

struct verify {
    struct pack *p;
    struct progress progress;
    uint64_t clusters, units, tensors, damaged;
    struct js *list;            /* of damaged places */
};

static void damaged(struct verify *v, const char *text)
{
    log_error("%s", text);
    js_append_str(v->list, text);
    v->damaged++;
}

static int dense(struct verify *v, struct err *e)
{
    uint64_t largest = 1;
    for (int i = 0; i < v->p->n_dense; i++)
        if (v->p->dense[i].bytes > largest)
            largest = v->p->dense[i].bytes;
    void *buf = malloc(largest);
    if (!buf)
        return err_set(e, ERR_NOMEM, "a tensor of %llu bytes", (unsigned long long)largest);
    for (int i = 0; i < v->p->n_dense; i++, v->tensors++) {
        struct err one = { 0 };
        int r = file_go_on(&one);
        r = r < 0 ? r : pack_dense_read(v->p, &v->p->dense[i], buf, &one);
        if (r == ERR_NOMEM || r == ERR_INTR) {
            free(buf);
            return err_set(e, r, "%s", one.msg);
        }
        if (r < 0)
            damaged(v, one.msg);
        progress_add(&v->progress, v->p->dense[i].stored_bytes);
    }
    free(buf);
    return 0;
}

static int predictors(struct verify *v, struct err *e)
{
    for (int i = 0; i < v->p->n_predictors; i++) {
        const struct pack_predictor *x = &v->p->predictors[i];
        struct err one = { 0 };
        struct predict ignored;
        void *buf = aligned_alloc(64, x->bytes); /* a multiple of 64 */
        if (!buf)
            return err_set(e, ERR_NOMEM, "a predictor of %llu bytes", (unsigned long long)x->bytes);
        int r = file_go_on(&one);
        r = r < 0 ? r : pack_predictor_read(v->p, x, buf, &ignored, NULL, &one);
        free(buf);
        if (r == ERR_NOMEM || r == ERR_INTR)
            return err_set(e, r, "%s", one.msg);
        if (r < 0)
            damaged(v, one.msg);
        progress_add(&v->progress, x->bytes);
    }
    return 0;
}

/* Every index once; the hash of all orders is the header's. */
static int orders(struct verify *v, struct err *e)
{
    const struct pack *p = v->p;
    size_t n_ff = (size_t)p->shapes.n_ff, blocks = (size_t)model_ffn_blocks(&p->h), all;
    if (!ck_mul_size((size_t)p->h.n_layers * blocks, n_ff, &all))
        return err_set(e, ERR_LIMIT, "orders of %d layers", p->h.n_layers);
    uint32_t *order = calloc(all, sizeof *order);
    uint8_t *seen = malloc(n_ff);
    int r = order && seen ? 0 : err_set(e, ERR_NOMEM, "orders of %zu neurons", all);
    for (size_t i = 0; i < (size_t)p->h.n_layers * blocks && r == 0; i++) {
        struct err one = { 0 };
        char text[160];
        int read = pack_order(p, (int)(i / blocks), (int)(i % blocks), order + i * n_ff, &one);
        if (read == ERR_NOMEM)
            r = err_set(e, read, "%s", one.msg);
        else if (read < 0)
            damaged(v, one.msg);
        if (read < 0)
            continue;
        memset(seen, 0, n_ff);
        size_t distinct = 0, n = (size_t)layout_of(&p->shapes, (int)(i / blocks))->n_ff;
        for (size_t k = n; k < n_ff; k++) /* neurons that wider layers have: the hash is of these, too */
            order[i * n_ff + k] = (uint32_t)k;
        for (size_t k = 0; k < n; k++)
            distinct += !seen[order[i * n_ff + k]]++;
        if (distinct != n) {
            snprintf(text, sizeof text,
                     "order of layer %zu, expert %zu is not a permutation: %zu of %zu neurons occur",
                     i / blocks, i % blocks, distinct, n);
            damaged(v, text);
        }
    }
    if (r == 0 && p->shapes.l.form == LAYOUT_TILES &&
        !hash_equal(layout_order_hash(NULL, p->h.n_layers, (int)blocks, (int)n_ff), p->order_hash))
        damaged(v, "the neurons of tiles are not in the source's order");
    if (r == 0 && !hash_equal(layout_order_hash(order, p->h.n_layers, (int)blocks, (int)n_ff), p->order_hash))
        damaged(v, "the neuron orders do not have the hash in the header");
    free(order);
    free(seen);
    return r;
}

/* A unit that does not have its number: the cluster's checksum says whether the neurons are damaged, or the number is. */
static void unit_check(struct verify *v, int layer, int block, int part, uint32_t u, const uint8_t *records, size_t bytes,
                       uint32_t want)
{
    const struct pack *p = v->p;
    uint64_t ffn = (uint64_t)layer * (uint64_t)model_ffn_blocks(&p->h) + (uint64_t)block;
    const struct layout_shape *s = layout_of(&p->shapes, layer);
    uint32_t is = unit_check_sum(records, bytes, unit_check_seed(p->identity, s->n_parts, ffn, part, u));
    uint32_t first = u * s->part[part].neurons_per_unit;
    char text[256];
    v->units++;
    if (is == want)
        return;
    snprintf(text, sizeof text, "layer %d, expert %d, part %d, unit %u (neurons %u to %u) does not have its checksum: %08x, expected %08x",
             layer, block, part, u, first, first + layout_unit_neurons(s, &s->part[part], u) - 1, is, want);
    damaged(v, text);
}

/* One cluster of one part, unit by unit. checks: of the part's units, or NULL. */
static int cluster(struct verify *v, int layer, int block, int part, uint32_t c, uint8_t *unit, const uint32_t *checks,
                   struct err *e)
{
    const struct layout_shape *s = layout_of(&v->p->shapes, layer);
    const struct layout_part *lp = &s->part[part];
    uint32_t a = c * s->cluster_neurons, b = a + s->cluster_neurons;
    if (b > (uint32_t)s->n_ff)
        b = (uint32_t)s->n_ff;
    struct hash *h = hash_new();
    int r = h ? 0 : err_set(e, ERR_NOMEM, "hashing");
    for (uint32_t u = layout_unit_of(lp, a); r == 0 && u * lp->neurons_per_unit < b; u++) {
        size_t n = layout_bytes(lp, layout_unit_neurons(s, lp, u));
        r = file_pread(&v->p->file, unit, n, pack_unit_offset(v->p, layer, block, part, u), e);
        if (r == 0)
            hash_update(h, unit, n);
        if (r == 0)
            unit_check(v, layer, block, part, u, unit, n, checks[u]);
        progress_add(&v->progress, n);
    }
    uint64_t want = 0, is = h ? hash_final64(h) : 0;
    hash_free(h);
    if (r == 0)
        r = pack_cluster_checksum(v->p, layer, block, part, c, &want, e);
    if (r < 0)
        return r;
    v->clusters++;
    if (is != want) {
        char text[256];
        snprintf(text, sizeof text,
                 "layer %d, expert %d, part %d, cluster %u (neurons %u to %u) is damaged: checksum %016llx, "
                 "expected %016llx",
                 layer, block, part, c, a, b - 1, (unsigned long long)is, (unsigned long long)want);
        damaged(v, text);
    }
    return file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : 0;
}

static int neurons(struct verify *v, struct err *e)
{
    const struct pack *p = v->p;
    uint32_t largest = layout_most_bytes(&p->shapes);
    uint8_t *unit = malloc(largest);
    uint32_t *checks = malloc((size_t)p->shapes.n_ff * sizeof *checks); /* a unit holds a neuron at least */
    int r = unit && checks ? 0 : err_set(e, ERR_NOMEM, "a unit of %u bytes", largest);
    for (int l = 0; l < p->h.n_layers; l++)
        for (int b = 0; b < model_ffn_blocks(&p->h); b++)
            for (int part = 0; part < p->shapes.n_parts && r == 0; part++) {
                r = pack_unit_checks_read(p, l, b, part, checks, e);
                for (uint32_t c = 0; c < layout_of(&p->shapes, l)->n_clusters && r == 0; c++)
                    r = cluster(v, l, b, part, c, unit, checks, e);
            }
    free(checks);
    free(unit);
    return r;
}

/* Damage anywhere else - padding, tables, the order of sections - shows in the checksum of each whole section. */
static int sections(struct verify *v, struct err *e)
{
    char text[256];
    int bad = 0, r = pack_verify_segments(v->p, &bad, text, sizeof text, e);
    if (r == 0 && bad)
        damaged(v, text);
    return r;
}

struct args {
    const char *path, *model, *traces;
    uint64_t quality_tokens;
    int json;
};

static int against_source(const struct verify *v, const struct args *a, struct quality *q, struct err *e)
{
    struct trace *t = NULL;
    struct source s = { 0 };
    struct pool *pool = NULL;
    int r = trace_open(a->traces, &t, e);
    if (r == 0 && !hash_equal(trace_info(t)->model_hash, v->p->model_hash))
        r = err_set(e, ERR_MISMATCH, "'%s' is a trace of another model than '%s' was packed from", a->traces, a->path);
    if (r == 0 && (r = source_open(&s, a->model, t, e)) == 0) {
        if ((r = pool_new_any(0, &pool, e)) == 0)
            r = quality_measure(s.model, t, v->p, pool, a->quality_tokens, q, e);
        pool_free(pool);
        source_close(&s);
    }
    trace_close(t);
    return r;
}

static int report(struct verify *v, const struct args *a, const struct quality *q, struct err *e)
{
    if (!a->json) {
        if (!v->damaged)
            print("%s: whole; %llu tensors, %llu clusters and %llu units checked\n", a->path, (unsigned long long)v->tensors,
                   (unsigned long long)v->clusters, (unsigned long long)v->units);
        if (q)
            quality_print(q);
        return 0;
    }
    struct js *o = js_object();
    js_put(o, JS_STR("file", a->path), JS_BOOL("whole", v->damaged == 0), JS_U64("tensors", v->tensors),
           JS_U64("clusters", v->clusters), JS_U64("units", v->units), JS_VALUE("damaged", v->list));
    v->list = NULL;
    if (q)
        js_set(o, "against_source", quality_json(q));
    int r = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return r;
}

static int run(const struct args *a, struct err *e)
{
    struct verify v = { .list = js_array() };
    struct quality q;
    int r = pack_open(a->path, &v.p, e), compare = a->model && a->traces;
    if (r == 0) {
        progress_init(&v.progress, "verifying", "B", v.p->file.size);
        if ((r = dense(&v, e)) == 0 && (r = predictors(&v, e)) == 0 && (r = orders(&v, e)) == 0 &&
            (r = neurons(&v, e)) == 0)
            r = sections(&v, e);
        progress_done(&v.progress);
    }
    if (v.damaged)
        compare = 0;
    if (r == 0 && compare)
        r = against_source(&v, a, &q, e);
    if (r == 0)
        r = report(&v, a, compare ? &q : NULL, e);
    if (v.list)
        js_free(v.list);
    pack_close(v.p);
    if (r == 0 && v.damaged)
        r = err_set(e, ERR_FORMAT, "'%s' is damaged in %llu places", a->path, (unsigned long long)v.damaged);
    return r;
}

int cmd_verify(int argc, char **argv)
{
    struct args a = { .quality_tokens = 128 };
    int n_pos = 0;
    const struct opt opts[] = {
        { .name = "model", .type = OPT_STRING, .dest = &a.model, .arg = "FILE", .file = OPT_READ,
          .help = "The GGUF it was packed from." },
        { .name = "traces", .type = OPT_STRING, .dest = &a.traces, .arg = "FILE", .file = OPT_READ,
          .help = "The trace it was packed with." },
        { .name = "quality-tokens", .type = OPT_U64, .dest = &a.quality_tokens, .arg = "N", .min = 1, .max = 1e6, .def = "128",
          .help = "How many tokens to compare." },
        { .name = "json", .type = OPT_FLAG, .dest = &a.json, .help = "JSON on stdout." },
        { 0 },
    };
    struct err e = { 0 };
    int r = opt_parse(opts, &usage, argc, argv, &n_pos, &e);
    if (r > 0)
        return 0;
    if (r == 0 && n_pos != 1)
        r = err_set(&e, ERR_USAGE, "give one packed model; see thermo-pack verify --help");
    if (r == 0 && !a.model != !a.traces)
        r = err_set(&e, ERR_USAGE, "--model and --traces go together");
    if (r == 0) {
        a.path = argv[1];
        file_catch_interrupt();
        kernels_init(cpu_detect());
        r = run(&a, &e);
    }
    return r < 0 ? opt_fail(&e) : 0;
}
