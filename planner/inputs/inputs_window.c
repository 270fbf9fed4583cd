/* What fires in steps of several sequences, counted in the window of maps as replay counts what they miss: a step takes one token of
 * each of as many equal pieces. Sequences that are decoded together stand at different positions; tokens at the same position of
 * different sequences, which a trace counts, share what sequences begin with, and end with the shortest one. */
#include "planner/inputs/inputs.h"

#include "common/offline/trace/trace.h"

#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 2048        /* what fires in a step is a mean over neurons, and needs no more */
#define LEAST_STEPS 8

struct window {
    int n_blocks, n_ff, n_used;
    size_t row, words;          /* bytes of a map; of 64 neurons */
    uint8_t *maps;              /* [tokens][n_used][row] */
    uint16_t *blocks;           /* [tokens][n_used] */
    uint64_t *any;              /* [n_blocks][words] of a step */
    int *reached;               /* blocks of a step */
    uint8_t *is_reached;        /* [n_blocks] */
    uint64_t *counts, *routed;  /* [n_blocks][n_ff], [n_blocks]: steps */
};

static int window_tokens(const struct inputs *in)
{
    return in->window_tokens < MOST_TOKENS ? (int)in->window_tokens : MOST_TOKENS;
}

int inputs_counts_in_window(const struct inputs *in, int batch_index)
{
    int size = inputs_batch_sizes[batch_index];
    return size > 1 && window_tokens(in) / size >= LEAST_STEPS;
}

static void window_done(struct window *w)
{
    free(w->maps);
    free(w->blocks);
    free(w->any);
    free(w->reached);
    free(w->is_reached);
    free(w->counts);
    free(w->routed);
}

static int window_new(const struct inputs *in, struct window *out, struct err *e)
{
    size_t tokens = (size_t)window_tokens(in), k = (size_t)in->n_used, blocks = (size_t)in->n_blocks, n_ff = (size_t)in->h.n_ff;
    struct window w = { .n_blocks = in->n_blocks, .n_ff = in->h.n_ff, .n_used = in->n_used, .row = (n_ff + 7) / 8, .words = n_ff / 64 + 1 };
    w.maps = malloc(tokens * k * w.row);
    w.blocks = calloc(tokens * k, sizeof *w.blocks);
    w.any = calloc(blocks * w.words, sizeof *w.any);
    w.reached = malloc(blocks * sizeof *w.reached);
    w.is_reached = calloc(blocks, 1);
    w.counts = malloc(blocks * n_ff * sizeof *w.counts);
    w.routed = malloc(blocks * sizeof *w.routed);
    *out = w;
    if (w.maps && w.blocks && w.any && w.reached && w.is_reached && w.counts && w.routed)
        return 0;
    window_done(&w);
    return err_set(e, ERR_NOMEM, "out of memory for the window's activation maps");
}

/* A token into the step. Returns how many blocks are reached by now, of which n were before it. */
static int add_token(struct window *w, int token, int n)
{
    for (int j = 0; j < w->n_used; j++) {
        size_t at = (size_t)token * (size_t)w->n_used + (size_t)j;
        int block = w->blocks[at];
        uint8_t *any = (uint8_t *)(w->any + (size_t)block * w->words);
        const uint8_t *map = w->maps + at * w->row;
        for (size_t i = 0; i < w->row; i++)
            any[i] |= map[i];
        if (!w->is_reached[block])
            w->is_reached[w->reached[n++] = block] = 1;
    }
    return n;
}

/* Counts the step of n blocks, and makes room for the next. */
static void count_step(struct window *w, int n)
{
    for (int r = 0; r < n; r++) {
        size_t block = (size_t)w->reached[r];
        const uint8_t *any = (const uint8_t *)(w->any + block * w->words);
        uint64_t *counts = w->counts + block * (size_t)w->n_ff;
        for (int i = 0; i < w->n_ff; i++)
            counts[i] += any[i / 8] >> i % 8 & 1;
        memset(w->any + block * w->words, 0, w->words * sizeof *w->any);
        w->is_reached[block] = 0;
        w->routed[block]++;
    }
}

static void count_batches(struct window *w, int tokens, int size)
{
    int piece = tokens / size;
    memset(w->counts, 0, (size_t)w->n_blocks * (size_t)w->n_ff * sizeof *w->counts);
    memset(w->routed, 0, (size_t)w->n_blocks * sizeof *w->routed);
    for (int t = 0; t < piece; t++) {
        int n = 0;
        for (int i = 0; i < size; i++)
            n = add_token(w, i * piece + t, n);
        count_step(w, n);
    }
}

static int count_layer(struct inputs *in, struct trace *t, struct window *w, int layer, struct err *e)
{
    int tokens = window_tokens(in), r = trace_maps(t, layer, 0, (uint64_t)tokens, w->maps, w->blocks, e);
    size_t n_ff = (size_t)in->h.n_ff;
    for (int i = 0; i < tokens * in->n_used && r == 0; i++)
        if (w->blocks[i] >= in->n_blocks)
            r = err_set(e, ERR_FORMAT, "trace: token %d of layer %d was routed to expert %d of %d", i / in->n_used, layer, w->blocks[i],
                        in->n_blocks);
    for (int b = 0; b < in->n_batches && r == 0; b++) {
        if (!inputs_counts_in_window(in, b))
            continue;
        int steps = tokens / inputs_batch_sizes[b];
        count_batches(w, tokens, inputs_batch_sizes[b]);
        for (int k = 0; k < in->n_blocks; k++) {
            size_t ffn = (size_t)layer * (size_t)in->n_blocks + (size_t)k;
            struct inputs_curve *c = &in->curves[(size_t)b * (size_t)in->n_layers * (size_t)in->n_blocks + ffn];
            inputs_fill_curve(c, w->counts + (size_t)k * n_ff, in->position + ffn * n_ff, in->h.n_ff, steps);
            c->routed = (double)w->routed[k] / steps;
        }
    }
    return r;
}

int inputs_curves_from_window(struct inputs *in, struct trace *t, struct err *e)
{
    struct window w;
    int any = 0, r;
    for (int b = 0; b < in->n_batches; b++)
        any |= inputs_counts_in_window(in, b);
    if (!any)
        return 0;
    if ((r = window_new(in, &w, e)) < 0)
        return r;
    for (int l = 0; l < in->n_layers && r == 0; l++)
        r = count_layer(in, t, &w, l, e);
    window_done(&w);
    return r;
}
