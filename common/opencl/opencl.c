/* Life of the back end, weights as buffers, and what a call queues. Weights of the caller's are not copied where the device has no
 * memory of its own: a window is a buffer over whole pages of them (drivers copy what does not begin at a page), as many pieces as fit
 * the largest buffer. Two windows never share a page: a piece that would is copied. */
#include "common/opencl/opencl_impl.h"

#include "common/base/ckmath.h"
#include "common/base/pages.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a driver takes of the process's memory: the smallest that we know, pocl 3.1 with its LLVM, 80 MiB with programs in its own cache and
 * 213 MiB while it builds them (Debian 12, x86-64, November 2026). */
#define LEAST_BYTES (64u << 20)

#define PAGE     pages_small_size()
#define GAP      65536u /* of bytes that nobody added, within a window */
#define CLOSE_MS 1000

static struct opencl *opencl_of(struct accel *a)
{
    return (struct opencl *)(void *)a;
}

static const struct opencl *opencl_in(const struct accel *a)
{
    return (const struct opencl *)(const void *)a;
}

/* Drivers with a compiler (LLVM) may set handlers of signals when they are loaded, and end the process by them. Those that were there
 * before stay. */
static const int ending[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2 };
enum { N_ENDING = sizeof ending / sizeof ending[0] };

static void keep_handlers(struct sigaction *was, int restore)
{
    for (int i = 0; i < N_ENDING; i++)
        sigaction(ending[i], restore ? &was[i] : NULL, restore ? NULL : &was[i]);
}

/* ---- life ---- */

static int list(struct accel_device *out, int most, struct err *e)
{
    struct opencl_api api;
    struct opencl_devices d;
    struct sigaction was[N_ENDING];
    keep_handlers(was, 0);
    int r = opencl_api_load(&api, e);
    int ok = r > 0;
    if (ok)
        r = opencl_devices(&api, &d, e);
    keep_handlers(was, 1);
    if (!ok || r < 0)
        return r;
    for (int i = 0; i < d.n && i < most; i++)
        out[i] = d.at[i].is;
    return d.n;
}

static int choose(struct opencl *o, const struct opencl_devices *d, int wanted, struct err *e)
{
    int best = wanted;
    if (wanted >= d->n)
        return err_set(e, ERR_INPUT, "OpenCL device %d: there are %d; see 'thermo-run engines'", wanted, d->n);
    for (int i = 0; i < d->n && wanted < 0; i++)
        if (d->at[i].usable && (best < 0 || (d->at[i].type & OPENCL_TYPE_GPU && !(d->at[best].type & OPENCL_TYPE_GPU))))
            best = i;
    if (best < 0)
        return err_set(e, ERR_INPUT, "there is no OpenCL device that can be used%s", d->n ? "; see 'thermo-run engines'" : "");
    if (!d->at[best].usable)
        return err_set(e, ERR_UNSUPPORTED,
                       "OpenCL device '%s' (%s) cannot be used: it has to be available, little-endian, of version 1.2 or "
                       "later, and have a compiler", d->at[best].is.name, d->at[best].is.version);
    o->device = d->at[best].id;
    o->info.device = d->at[best].is;
    o->info.zero_copy = d->at[best].is.shares_memory && !o->c.copies;
    o->buffer_bytes = d->at[best].is.buffer_bytes;
    if (o->c.buffer_bytes && o->c.buffer_bytes < o->buffer_bytes)
        o->buffer_bytes = o->c.buffer_bytes;
    o->free_bytes = d->at[best].is.memory_bytes;
    int cpu = d->at[best].type & OPENCL_TYPE_CPU && !(d->at[best].type & OPENCL_TYPE_GPU);
    int most = d->at[best].is.group_items;
    most = (size_t)most > d->at[best].item_sizes[0] ? (int)d->at[best].item_sizes[0] : most;
    most = (size_t)most * sizeof(float) > d->at[best].local_bytes ? (int)(d->at[best].local_bytes / sizeof(float)) : most;
    o->lanes = o->c.lanes ? o->c.lanes : cpu ? 1 : 32;
    o->rows = 8;
    o->slices = o->lanes == 1 ? 1 : ACCEL_SLICES;
    o->local_bytes = d->at[best].local_bytes;
    while (o->rows > 1 && o->lanes * o->rows > most)
        o->rows /= 2;
    while (o->lanes > 1 && (o->lanes * o->rows > most || opencl_queue_local(o, 4) > o->local_bytes))
        o->lanes /= 2;
    const intptr_t of[] = { OPENCL_CONTEXT_PLATFORM, (intptr_t)d->at[best].platform, 0 };
    int32_t code = 0;
    char buf[32];
    if (!(o->context = o->api.CreateContext(of, 1, &o->device, NULL, NULL, &code)) ||
        !(o->queue = o->api.CreateCommandQueue(o->context, o->device, 0, &code)))
        return err_set(e, ERR_IO, "OpenCL device '%s' cannot be opened: %s", o->info.device.name, opencl_api_error(code, buf, sizeof buf));
    return 0;
}

/* A program that needs smaller work groups begins all anew. */
static int make_programs(struct opencl *o, struct err *e)
{
    int again, r = 0;
    do {
        again = 0;
        for (int i = -1; i < o->c.n_types && !again; i++) {
            uint32_t type = i < 0 ? QUANT_F32 : o->c.types[i];
            /* kernels.cl has the types that are written too, and the comparison with the processor writes them */
            if (!quant_traits(type) || !quant_traits(type)->quant)
                return err_set(e, ERR_UNSUPPORTED, "the accelerator has no kernels for type %u", type);
            if ((r = opencl_program_make(o, type, e)) < 0)
                return r;
            again = r;
        }
        for (int i = 0; again && i < QUANT_LIMIT; i++)
            opencl_program_drop(o, &o->kernels[i]);
    } while (again);
    return 0;
}

/* All that is in the queue has ended, well or not, within a while. */
static int comes_back(struct opencl *o)
{
    for (int i = 0, ms = 0; i < o->n_events;) {
        int32_t status = 1;
        const struct timespec pause = { 0, 1000000 };
        if (o->api.GetEventInfo(o->events[i], OPENCL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL) != OPENCL_SUCCESS ||
            status <= 0) {
            i++;
            continue;
        }
        if (i == 0 && ms == 0)
            o->api.Flush(o->queue);
        if (ms++ > CLOSE_MS)
            return 0;
        nanosleep(&pause, NULL);
    }
    return 1;
}

static int close_it(struct accel *a)
{
    struct opencl *o = opencl_of(a);
    if (!o)
        return 0;
    if (!comes_back(o))
        return 1; /* the driver may use all of it */
    opencl_queue_forget(o);
    if (o->host_mem)
        o->api.EnqueueUnmapMemObject(o->queue, o->host_mem, o->host_out, 0, NULL, NULL);
    if (o->queue)
        o->api.Finish(o->queue);
    opencl_mem all[] = { o->in, o->gate, o->up, o->out, o->part, o->host_mem };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i])
            o->api.ReleaseMemObject(all[i]);
    for (int i = 0; i < o->n_windows; i++)
        if (o->windows[i].mem)
            o->api.ReleaseMemObject(o->windows[i].mem);
    for (int i = 0; i < QUANT_LIMIT; i++)
        opencl_program_drop(o, &o->kernels[i]);
    if (o->queue)
        o->api.ReleaseCommandQueue(o->queue);
    if (o->context)
        o->api.ReleaseContext(o->context);
    free(o->pieces);
    free(o->windows);
    if (!o->host_mem)
        free(o->host_out);
    free(o);
    return 0;
}

static int open_it(const struct accel_config *c, struct accel **out, struct err *e)
{
    struct opencl_devices *d = malloc(sizeof *d);
    struct opencl *o = calloc(1, sizeof *o);
    struct sigaction was[N_ENDING];
    int r = d && o ? 0 : err_set(e, ERR_NOMEM, "out of memory for an accelerator");
    keep_handlers(was, 0);
    if (r == 0) {
        o->accel.backend = &opencl_backend;
        o->c = *c;
        r = opencl_api_load(&o->api, e);
        r = r > 0 ? opencl_devices(&o->api, d, e) : r < 0 ? r : ERR_INPUT;
    }
    if (r == 0)
        r = choose(o, d, c->device, e);
    free(d);
    r = r < 0 ? r : make_programs(o, e);
    keep_handlers(was, 1);
    if (r < 0) {
        if (o)
            close_it(&o->accel);
        return r;
    }
    *out = &o->accel;
    return 0;
}

static void describe(const struct accel *a, struct accel_info *out)
{
    *out = opencl_in(a)->info;
}

/* ---- weights ---- */

static int add(struct accel *a, const void *data, size_t bytes, struct err *e)
{
    struct opencl *o = opencl_of(a);
    if (o->n_pieces == o->cap_pieces) {
        int cap = o->cap_pieces ? 2 * o->cap_pieces : 64;
        struct opencl_window *more = realloc(o->pieces, (size_t)cap * sizeof *more);
        if (!more)
            return err_set(e, ERR_NOMEM, "out of memory for an accelerator");
        o->pieces = more;
        o->cap_pieces = cap;
    }
    o->pieces[o->n_pieces++] = (struct opencl_window){ data, bytes, NULL };
    return 0;
}

static struct opencl_window pages_of(const struct opencl_window *p)
{
    size_t skip = (uintptr_t)p->base % PAGE;
    return (struct opencl_window){ p->base - skip, (skip + p->bytes + PAGE - 1) / PAGE * PAGE, NULL };
}

static int copy_of(struct opencl *o, struct opencl_window *w, struct err *e)
{
    if (w->bytes > o->free_bytes)
        return err_set(e, ERR_LIMIT, "OpenCL device '%s': weights need %llu bytes more than its memory of %llu holds", o->info.device.name,
                       (unsigned long long)(w->bytes - o->free_bytes), (unsigned long long)o->info.device.memory_bytes);
    int r = opencl_buffer(o, w->bytes, OPENCL_MEM_READ_ONLY, NULL, &w->mem, e);
    if (r < 0)
        return r;
    int32_t code = o->api.EnqueueWriteBuffer(o->queue, w->mem, 1, 0, w->bytes, w->base, 0, NULL, NULL);
    o->free_bytes -= w->bytes;
    *(o->info.device.shares_memory ? &o->info.host_bytes : &o->info.device_bytes) += w->bytes;
    return code == OPENCL_SUCCESS ? 0 : opencl_failed(o, code, "writing weights to a buffer", e);
}

/* Does the next piece belong into this window? Pieces that are too large for any buffer have none. */
static int belongs(const struct opencl *o, const struct opencl_window *w, const struct opencl_window *piece)
{
    struct opencl_window p = o->info.zero_copy ? pages_of(piece) : *piece;
    return w->bytes && (uintptr_t)piece->base <= (uintptr_t)w->base + w->bytes + (o->info.zero_copy ? GAP : 64) &&
           (uintptr_t)p.base + p.bytes - (uintptr_t)w->base <= o->buffer_bytes;
}

static void make_windows(struct opencl *o)
{
    const uint8_t *used = NULL; /* end of the last window of pages */
    for (int i = 0; i < o->n_pieces; i++) {
        const struct opencl_window *piece = &o->pieces[i];
        struct opencl_window p = o->info.zero_copy ? pages_of(piece) : *piece, *last = o->n_windows ? &o->windows[o->n_windows - 1] : NULL;
        int shared = o->info.zero_copy && used && (uintptr_t)p.base < (uintptr_t)used;
        if (!piece->bytes || piece->bytes > o->buffer_bytes)
            continue;
        if (last && (!o->info.zero_copy || last->base + last->bytes == used) && belongs(o, last, piece)) {
            last->bytes = (size_t)(p.base + p.bytes - last->base);
        } else if (shared || p.bytes > o->buffer_bytes) {
            o->windows[o->n_windows++] = *piece; /* does not begin or end with a page: a copy */
            continue;
        } else {
            o->windows[o->n_windows++] = p;
        }
        used = p.base + p.bytes;
    }
}

static int fill_windows(struct opencl *o, struct err *e)
{
    int r = 0;
    for (int i = 0; i < o->n_windows && r == 0; i++) {
        struct opencl_window *w = &o->windows[i];
        int pages = o->info.zero_copy && (uintptr_t)w->base % PAGE == 0 && w->bytes % PAGE == 0;
        r = pages ? opencl_buffer(o, w->bytes, OPENCL_MEM_READ_ONLY | OPENCL_MEM_USE_HOST_PTR, (void *)(uintptr_t)w->base, &w->mem, e)
                  : copy_of(o, w, e);
    }
    return r;
}

/* ---- buffers ---- */

struct sizes {
    uint64_t in, ffn, out, part, host;
};

static struct sizes sizes_of(const struct opencl *o, const struct accel_need *n)
{
    uint64_t tokens = (uint64_t)n->tokens, d = (uint64_t)n->d_model;
    struct sizes s = { .in = (n->inputs > tokens * d ? n->inputs : tokens * d) * 4, .ffn = tokens * (uint64_t)n->neurons * 4,
                       .out = (n->outputs > tokens * d ? n->outputs : tokens * d) * 4 };
    s.part = o->slices > 1 ? (uint64_t)o->slices * ACCEL_SLICE_TOKENS * d * 4 : 0;
    s.host = s.out + (o->info.zero_copy ? 0 : s.in);
    return s;
}

/* Inputs and outputs beside the device: pages that it reaches by itself, or else plain memory for what comes back. */
static int allocate_host(struct opencl *o, const struct sizes *s, struct err *e)
{
    int32_t r;
    if (!o->info.zero_copy && s->host &&
        (o->host_mem = o->api.CreateBuffer(o->context, OPENCL_MEM_READ_WRITE | OPENCL_MEM_ALLOC_HOST_PTR, (size_t)s->host, NULL, &r))) {
        o->host_out = o->api.EnqueueMapBuffer(o->queue, o->host_mem, 1, OPENCL_MAP_READ | OPENCL_MAP_WRITE, 0, (size_t)s->host, 0, NULL,
                                              NULL, &r);
        if (o->host_out) {
            o->host_in = o->host_out + s->out / 4;
            return 0;
        }
        o->api.ReleaseMemObject(o->host_mem);
        o->host_mem = NULL;
    }
    o->host_out = malloc(s->out ? (size_t)s->out : 4);
    return o->host_out ? 0 : err_set(e, ERR_NOMEM, "out of memory for an accelerator");
}

static uint64_t buffers(const struct accel *a, const struct accel_need *need)
{
    const struct opencl *o = opencl_in(a);
    struct sizes s = sizes_of(o, need);
    return s.host + (o->info.device.shares_memory ? s.in + 2 * s.ffn + s.out + s.part : 0);
}

static int allocate(struct accel *a, const struct accel_need *need, struct err *e)
{
    struct opencl *o = opencl_of(a);
    struct sizes s = sizes_of(o, need);
    int r;
    if (s.in / 4 > UINT32_MAX || s.ffn / 4 > UINT32_MAX || s.out / 4 > UINT32_MAX)
        return err_set(e, ERR_LIMIT, "the accelerator takes fewer tokens at a time than %d: see --prefill-chunk", need->tokens);
    o->need = *need;
    o->windows = calloc((size_t)o->n_pieces + 1, sizeof *o->windows);
    if (!o->windows)
        return err_set(e, ERR_NOMEM, "out of memory for an accelerator");
    if ((r = allocate_host(o, &s, e)) < 0)
        return r;
    make_windows(o);
    const struct { opencl_mem *mem; uint64_t bytes; } all[] = {
        { &o->in, s.in }, { &o->gate, s.ffn }, { &o->up, s.ffn }, { &o->out, s.out }, { &o->part, s.part }
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].bytes && (r = opencl_buffer(o, all[i].bytes, OPENCL_MEM_READ_WRITE, NULL, all[i].mem, e)) < 0)
            return r;
    o->info.host_bytes += buffers(a, need);
    uint64_t own = o->info.device.shares_memory ? 0 : s.in + 2 * s.ffn + s.out + s.part;
    o->info.device_bytes += own;
    o->free_bytes -= own < o->free_bytes ? own : o->free_bytes;
    return fill_windows(o, e);
}

/* ---- what it can multiply ---- */

/* The window that holds these bytes, or NULL. */
static const struct opencl_window *window_of(const struct opencl *o, const uint8_t *data, uint64_t bytes)
{
    int lo = 0, hi = o->n_windows;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        *((uintptr_t)o->windows[mid].base <= (uintptr_t)data ? &lo : &hi) = mid;
    }
    for (int i = lo; i >= 0 && i >= lo - 1; i--) { /* a copy may lie behind the page that it shares */
        const struct opencl_window *w = &o->windows[i];
        if (o->n_windows && (uintptr_t)data >= (uintptr_t)w->base && (uintptr_t)data - (uintptr_t)w->base <= w->bytes &&
            bytes <= w->bytes - ((uintptr_t)data - (uintptr_t)w->base))
            return w;
    }
    return NULL;
}

/* Do these bytes lie in one piece that was added? What else a window's pages hold is nothing to multiply: it would depend on addresses. */
static int was_added(const struct opencl *o, const uint8_t *data, uint64_t bytes)
{
    int lo = 0, hi = o->n_pieces;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        *((uintptr_t)o->pieces[mid].base <= (uintptr_t)data ? &lo : &hi) = mid;
    }
    const struct opencl_window *p = &o->pieces[lo];
    return o->n_pieces && (uintptr_t)data >= (uintptr_t)p->base && (uintptr_t)data - (uintptr_t)p->base <= p->bytes &&
           bytes <= p->bytes - ((uintptr_t)data - (uintptr_t)p->base);
}

/* From the first byte to the last of a matrix; 0: it has no such shape, or more than 64 bits. */
static uint64_t span_of(const struct accel_matrix *m)
{
    uint64_t rows = (uint64_t)m->n_rows, groups = m->group_rows ? (rows + (uint64_t)m->group_rows - 1) / (uint64_t)m->group_rows : 1;
    uint64_t runs = m->run_elems ? ((uint64_t)m->n_cols + (uint64_t)m->run_elems - 1) / (uint64_t)m->run_elems : 1, a, b, c;
    uint64_t in_group = m->group_rows && rows > (uint64_t)m->group_rows ? (uint64_t)m->group_rows : rows;
    uint64_t elems = m->run_elems && m->run_elems < m->n_cols ? (uint64_t)m->run_elems : (uint64_t)m->n_cols;
    size_t last = quant_row_bytes(m->type, elems);
    if (!last || !ck_mul_u64(in_group - 1, m->row_stride, &a) || !ck_mul_u64(groups - 1, m->group_stride, &b) ||
        !ck_mul_u64(runs - 1, m->run_stride, &c) || !ck_add_u64(a, b, &a) || !ck_add_u64(a, c, &a) || !ck_add_u64(a, last, &a))
        return 0;
    return a;
}

static int takes(const struct accel *a, const struct accel_matrix *m, int turned)
{
    const struct opencl *o = opencl_in(a);
    if (m->type >= QUANT_LIMIT || !o->kernels[m->type].program || m->n_rows < 1 || m->n_cols < 1)
        return 0;
    /* Halves lie at even addresses, floats at multiples of four. */
    size_t align = m->type == QUANT_F32 ? 4 : m->type == QUANT_MXFP4 ? 1 : 2;
    if (((uintptr_t)m->data | m->row_stride | m->group_stride | m->run_stride) % align)
        return 0;
    if (m->run_elems % 32 || (turned && m->run_elems))
        return 0;
    uint64_t span = span_of(m);
    return span && was_added(o, m->data, span) && window_of(o, m->data, span) != NULL;
}

static struct opencl_place place_of(const struct opencl *o, const void *data, uint64_t bytes)
{
    const struct opencl_window *w = data ? window_of(o, data, bytes) : NULL;
    return w ? (struct opencl_place){ w->mem, (uint64_t)((uintptr_t)data - (uintptr_t)w->base) } : (struct opencl_place){ NULL, 0 };
}

/* ---- work ---- */

/* Where weights are the host's memory this is how a driver hears of it: writing a buffer from the very place that it was made of brings
 * it the latest bytes, and copies nothing where there is nothing to copy to. */
static int changed(struct accel *a, const void *data, size_t bytes, struct err *e)
{
    struct opencl *o = opencl_of(a);
    struct opencl_place at = place_of(o, data, bytes);
    if (!at.mem || !was_added(o, data, bytes))
        return err_set(e, ERR_LIMIT, "bytes that changed are not in the accelerator's memory");
    return opencl_rewrite(o, at, data, bytes, e);
}

/* What wait copies: from the device's outputs to where they were asked for. */
static int promise(struct opencl *o, float *to, uint64_t at, uint64_t n, struct err *e)
{
    if (o->n_outs == OPENCL_OUTS)
        return err_set(e, ERR_LIMIT, "more than %d outputs in the accelerator's queue", OPENCL_OUTS);
    int r = opencl_read(o, o->out, at, o->host_out + at, n, e);
    if (r == 0)
        o->outs[o->n_outs++] = (struct opencl_out){ to, at, n };
    return r;
}

/* Inputs, to the device's from `at` on. One call is queued at a time: where they wait is free when it ends. */
static int bring(struct opencl *o, uint64_t at, const float *from, uint64_t n, struct err *e)
{
    if (o->host_in)
        from = memcpy(o->host_in + at, from, (size_t)n * sizeof *from);
    return opencl_write(o, o->in, at, from, n, e);
}

static int too_much(const struct opencl *o, int tokens, struct err *e)
{
    return err_set(e, ERR_LIMIT, "%d tokens for the accelerator; it was opened for %d", tokens, o->need.tokens);
}

/* Activations, where gates are, of inputs from `in` on. */
static int hide(struct opencl *o, const struct accel_ffn *x, uint64_t in, uint64_t at, const struct opencl_biases *b, struct err *e)
{
    const struct opencl_place gate = place_of(o, x->gate.data, 1), up = place_of(o, x->up.data, 1);
    int r;
    if (x->n_tokens == 1 && opencl_queue_hides(&x->gate, &x->up))
        return opencl_queue_hidden(o, &x->gate, gate, &x->up, up, o->in, in, o->gate, at, x->act, b, e);
    if ((r = opencl_queue_product(o, &x->gate, gate, o->in, in, o->gate, at, x->n_tokens, e)) < 0 ||
        (r = opencl_queue_product(o, &x->up, up, o->in, in, o->up, at, x->n_tokens, e)) < 0)
        return r;
    return opencl_queue_activate(o, o->gate, o->up, at, x->gate.n_rows, x->n_tokens, x->act, b, e);
}

static int ffn(struct accel *a, const struct accel_ffn *f, int n, struct err *e)
{
    struct opencl *o = opencl_of(a);
    uint64_t row = 0, d = (uint64_t)o->need.d_model, most = (uint64_t)o->need.neurons;
    for (int i = 0; i < n; i++) {
        const struct accel_ffn *x = &f[i];
        uint64_t tokens = (uint64_t)x->n_tokens, neurons = (uint64_t)x->gate.n_rows, at = row * most;
        const struct opencl_biases b = { place_of(o, x->gate_bias, neurons * 4), place_of(o, x->up_bias, neurons * 4),
                                         place_of(o, x->silence, neurons * 4) };
        int r;
        if (row + tokens > (uint64_t)o->need.tokens || neurons > most)
            return too_much(o, (int)(row + tokens), e);
        if ((x->gate_bias && !b.gate.mem) || (x->up_bias && !b.up.mem) || (x->silence && !b.silence.mem))
            return err_set(e, ERR_LIMIT, "biases of an FFN are not in the accelerator's memory");
        if ((r = bring(o, row * d, x->in, tokens * d, e)) < 0 || (r = hide(o, x, row * d, at, &b, e)) < 0)
            return r;
        r = x->turned ? opencl_queue_turned(o, &x->down, place_of(o, x->down.data, 1), o->gate, at, o->part, o->out, row * d,
                                            x->n_tokens, e)
                      : opencl_queue_product(o, &x->down, place_of(o, x->down.data, 1), o->gate, at, o->out, row * d, x->n_tokens, e);
        if (r < 0 || (r = promise(o, x->out, row * d, tokens * d, e)) < 0)
            return r;
        row += tokens;
    }
    int32_t code = o->api.Flush(o->queue);
    return code == OPENCL_SUCCESS ? 0 : opencl_failed(o, code, "starting what was queued", e);
}

static int products(struct accel *a, const struct accel_product *p, int n, struct err *e)
{
    struct opencl *o = opencl_of(a);
    uint64_t in = 0, next = 0, out = 0;
    for (int i = 0; i < n; i++) {
        uint64_t tokens = (uint64_t)p[i].n_tokens, size = tokens * (uint64_t)p[i].m.n_cols, sums = tokens * (uint64_t)p[i].m.n_rows;
        int again = i && p[i].in == p[i - 1].in && p[i].m.n_cols == p[i - 1].m.n_cols, r = 0;
        in = again ? in : next;
        next = in + size;
        if (next > o->need.inputs || out + sums > o->need.outputs)
            return too_much(o, p[i].n_tokens, e);
        if (!again)
            r = bring(o, in, p[i].in, size, e);
        if (r < 0 || (r = opencl_queue_product(o, &p[i].m, place_of(o, p[i].m.data, 1), o->in, in, o->out, out, p[i].n_tokens, e)) < 0 ||
            (r = promise(o, p[i].out, out, sums, e)) < 0)
            return r;
        out += sums;
    }
    int32_t code = o->api.Flush(o->queue);
    return code == OPENCL_SUCCESS ? 0 : opencl_failed(o, code, "starting what was queued", e);
}

static int wait_for(struct accel *a, int (*meanwhile)(void *ctx, struct err *e), void *ctx, struct err *e)
{
    struct opencl *o = opencl_of(a);
    int n = o->n_outs, r = opencl_queue_wait(o, meanwhile, ctx, e);
    o->n_outs = 0;
    for (int i = 0; i < n && r == 0; i++)
        memcpy(o->outs[i].to, o->host_out + o->outs[i].at, (size_t)o->outs[i].n * sizeof *o->host_out);
    return r;
}

const struct accel_backend opencl_backend = {
    .name = "opencl", .least_bytes = LEAST_BYTES,
    .list = list, .open = open_it, .close = close_it, .describe = describe, .buffers = buffers, .add = add,
    .allocate = allocate, .takes = takes, .changed = changed, .ffn = ffn, .products = products, .wait = wait_for,
};
