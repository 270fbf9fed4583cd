/* Checkpoints of a build that consumes its source (consume.h). Every record has the whole state but what only grows, of which it has the
 * part since the record before; a run that goes on reads all of them. Native byte order: the journal is this machine's. */
#include "packer/build_impl.h"

#include "common/base/ckmath.h"
#include "common/base/log.h"
#include "common/pack/unit_check.h"

#include <stdlib.h>
#include <string.h>

/* In a record first; then prefixes [n_tensors], losses [n_layers], entries [n_entries, that which has begun too], and of FFNs
 * [first_ffn, ffns) cluster checks, then unit checks. */
struct head {
    struct write_state at;          /* its entries are below */
    uint64_t ffns, first_ffn, first_entry, n_entries;
    uint64_t neuron_bytes, predictor_bytes;
};

struct part {
    void *data;
    size_t len;
};

enum { HEAD, PREFIXES, LOSSES, ENTRIES, CLUSTERS, UNITS, PARTS };

/* Unit checks before the n-th FFN. */
static uint64_t units_before(const struct work *k, uint64_t n)
{
    const struct model_hparams *h = &k->b->source->model->h;
    uint64_t blocks = (uint64_t)model_ffn_blocks(h);
    int layer = (int)(n / blocks);
    uint64_t before = unit_check_before(&k->b->shapes, (int)blocks, layer);
    return n % blocks ? before + n % blocks * unit_check_per_block(layout_of(&k->b->shapes, layer)) : before;
}

uint64_t build_checks_before(const struct work *k, uint64_t n)
{
    const struct layout_shapes *s = &k->b->shapes;
    uint64_t blocks = (uint64_t)model_ffn_blocks(&k->b->source->model->h);
    int layer = (int)(n / blocks);
    uint64_t clusters = layout_clusters_before(s, layer) * blocks + (n % blocks ? n % blocks * layout_of(s, layer)->n_clusters : 0);
    return clusters * (uint64_t)s->n_parts;
}

static void parts_of(struct work *k, struct head *head, struct write_entry *entries, struct part p[PARTS])
{
    const struct build *b = k->b;
    uint64_t checks = build_checks_before(k, head->first_ffn), units = units_before(k, head->first_ffn);
    p[HEAD] = (struct part){ head, sizeof *head };
    p[PREFIXES] = (struct part){ consume_prefixes(b->consume), b->source->gguf->n_tensors * sizeof(uint64_t) };
    p[LOSSES] = (struct part){ k->report->layers, (size_t)b->source->model->h.n_layers * sizeof *k->report->layers };
    p[ENTRIES] = (struct part){ entries + head->first_entry, head->n_entries * sizeof *entries };
    p[CLUSTERS] = (struct part){ k->checks + checks, (build_checks_before(k, head->ffns) - checks) * sizeof *k->checks };
    p[UNITS] = (struct part){ k->unit_checks + units, (units_before(k, head->ffns) - units) * sizeof *k->unit_checks };
}

int build_save(struct work *k, struct err *e)
{
    struct head head = { .ffns = k->ffns, .first_ffn = k->saved_ffns, .first_entry = k->saved_entries,
                         .neuron_bytes = k->report->neuron_bytes, .predictor_bytes = k->report->predictor_bytes };
    struct part p[PARTS];
    struct write_state state;
    size_t len = 0, at = 0;
    int r = write_sync(k->w, &state, e);
    if (r < 0)
        return r;
    head.at = state;
    head.at.entries = NULL;
    head.n_entries = state.n + state.open - head.first_entry;
    parts_of(k, &head, (struct write_entry *)state.entries, p);
    for (int i = 0; i < PARTS; i++)
        len += p[i].len;
    uint8_t *record = malloc(len);
    if (!record)
        return err_set(e, ERR_NOMEM, "a checkpoint of %zu bytes", len);
    for (int i = 0; i < PARTS; at += p[i++].len)
        memcpy(record + at, p[i].data, p[i].len);
    if ((r = consume_checkpoint(k->b->consume, record, len, e)) == 0) {
        k->saved_ffns = k->ffns;
        k->saved_entries = state.n;
        log_debug("%llu bytes of the pack are on disk; their source was freed", (unsigned long long)state.pos);
    }
    free(record);
    return r;
}

/* Takes one record; they come in order. */
static int take(struct work *k, const uint8_t *record, size_t len, struct write_entry *entries, uint32_t max_entries,
                struct write_state *state, struct err *e)
{
    struct head head;
    struct part p[PARTS];
    size_t need = 0, at = 0;
    const uint64_t all = (uint64_t)k->b->source->model->h.n_layers * (uint64_t)model_ffn_blocks(&k->b->source->model->h);
    int ok = len >= sizeof head;
    if (ok) {
        memcpy(&head, record, sizeof head);
        ok = head.ffns <= all && head.first_ffn == k->ffns && head.ffns >= head.first_ffn && head.first_entry <= max_entries &&
             head.n_entries <= max_entries - head.first_entry && head.at.open <= 1 &&
             head.first_entry + head.n_entries == (uint64_t)head.at.n + head.at.open;
    }
    if (ok) {
        parts_of(k, &head, entries, p);
        for (int i = 0; i < PARTS; i++)
            need += p[i].len;
        ok = need == len;
    }
    if (!ok)
        return err_set(e, ERR_MISMATCH, "the journal of '%s' is of another run", k->b->out_path);
    for (int i = 0; i < PARTS; at += p[i++].len)
        memcpy(p[i].data, record + at, p[i].len);
    k->ffns = k->saved_ffns = head.ffns;
    k->saved_entries = head.at.n;
    k->report->neuron_bytes = head.neuron_bytes;
    k->report->predictor_bytes = head.predictor_bytes;
    *state = head.at;
    return 0;
}

int build_load(struct work *k, const struct write_facts *f, uint32_t max_entries, struct err *e)
{
    const struct build *b = k->b;
    struct write_state state = { 0 };
    struct write_entry *entries = calloc((size_t)max_entries + 1, sizeof *entries);
    uint8_t *record = NULL;
    size_t len, n = consume_records(b->consume);
    int r = entries ? 0 : err_set(e, ERR_NOMEM, "going on with '%s'", b->out_path);
    for (size_t i = 0; i < n && r == 0; i++) {
        if ((r = consume_record(b->consume, i, &record, &len, e)) == 0)
            r = take(k, record, len, entries, max_entries, &state, e);
        free(record);
        record = NULL;
    }
    state.entries = entries;
    if (r == 0 && n)
        memcpy(b->source->at, consume_prefixes(b->consume), b->source->gguf->n_tensors * sizeof *b->source->at);
    if (r == 0)
        r = write_resume(b->out_path, f, max_entries, n ? &state : NULL, &k->w, e);
    if (r == 0 && n && (r = consume_checkpoint(b->consume, NULL, 0, e)) == 0)
        log_info("going on at byte %llu of '%s'", (unsigned long long)state.pos, b->out_path);
    if (r == 0)
        for (uint64_t i = 0; i < b->source->gguf->n_tensors; i++)
            progress_add(&k->progress, consume_prefixes(b->consume)[i]);
    k->loaded = n > 0;
    free(entries);
    return r;
}
