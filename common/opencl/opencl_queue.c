/* Single commands of an in-order queue. Each has an event, which says afterwards whether it was done. */
#include "common/opencl/opencl_impl.h"

#include "common/base/pool.h"
#include "common/base/progress.h"

#include <string.h>
#include <time.h>

/* kernels.cl has these numbers. */
_Static_assert(MODEL_ACT_SILU == 0 && MODEL_ACT_RELU == 1 && MODEL_ACT_DRELU == 2 && MODEL_ACT_SWIGLU_OAI == 3 && MODEL_ACT_GELU == 4 &&
               MODEL_ACT_GELU_UNGATED == 5 && MODEL_ACT_RELU_UNGATED == 6 && MODEL_ACTS == 7, "activations");

#define MANY_ITEMS  128
#define LEAST_SLICE 32
#define SILENCE_MS 30000
#define SPIN_NS    300000    /* a kernel's time: sleeping takes longer than it asks for. A device that is a processor wants the core */
#define SPIN_CPU_NS 10000
#define SLEEP_NS   40000
#define LOOK_NS    100000000 /* between two looks, as far as it counts */

int opencl_failed(struct opencl *o, int32_t code, const char *what, struct err *e)
{
    char buf[32];
    o->broken = 1;
    return err_set(e, ERR_IO, "OpenCL device '%s': %s failed: %s", o->info.device.name, what, opencl_api_error(code, buf, sizeof buf));
}

int opencl_buffer(struct opencl *o, uint64_t bytes, uint64_t flags, void *host, opencl_mem *out, struct err *e)
{
    int32_t r = OPENCL_SUCCESS;
    if (bytes > o->buffer_bytes || bytes > SIZE_MAX)
        return err_set(e, ERR_LIMIT, "OpenCL device '%s': a buffer of %llu bytes is needed; its largest is %llu", o->info.device.name,
                       (unsigned long long)bytes, (unsigned long long)o->buffer_bytes);
    *out = o->api.CreateBuffer(o->context, flags, (size_t)bytes, host, &r);
    if (*out)
        return 0;
    o->broken = 1;
    char buf[32];
    return err_set(e, ERR_LIMIT, "OpenCL device '%s': no buffer of %llu bytes: %s", o->info.device.name, (unsigned long long)bytes,
                   opencl_api_error(r, buf, sizeof buf));
}

/* Room for the event of the next command, or a fault that was asked for. */
static int ready(struct opencl *o, opencl_event **to, struct err *e)
{
    if (o->broken)
        return err_set(e, ERR_IO, "OpenCL device '%s' failed before", o->info.device.name);
    if (o->c.fault && o->c.fault(o->c.fault_ctx))
        return opencl_failed(o, OPENCL_OUT_OF_RESOURCES, "a command", e);
    if (o->n_events == OPENCL_EVENTS) {
        int r = opencl_queue_wait(o, NULL, NULL, e);
        if (r < 0)
            return r;
    }
    *to = &o->events[o->n_events];
    return 0;
}

static int queued(struct opencl *o, int32_t code, const char *what, struct err *e)
{
    if (code != OPENCL_SUCCESS)
        return opencl_failed(o, code, what, e);
    o->n_events++;
    return 0;
}

int opencl_write(struct opencl *o, opencl_mem to, uint64_t at, const float *from, uint64_t n, struct err *e)
{
    opencl_event *ev = NULL;
    int r = ready(o, &ev, e);
    return r < 0 ? r : queued(o, o->api.EnqueueWriteBuffer(o->queue, to, 0, (size_t)at * 4, (size_t)n * 4, from, 0, NULL, ev),
                              "writing to a buffer", e);
}

int opencl_rewrite(struct opencl *o, struct opencl_place to, const void *from, size_t bytes, struct err *e)
{
    opencl_event *ev = NULL;
    int r = ready(o, &ev, e);
    return r < 0 ? r : queued(o, o->api.EnqueueWriteBuffer(o->queue, to.mem, 0, (size_t)to.at, bytes, from, 0, NULL, ev),
                              "writing weights that changed", e);
}

int opencl_read(struct opencl *o, opencl_mem from, uint64_t at, float *to, uint64_t n, struct err *e)
{
    opencl_event *ev = NULL;
    int r = ready(o, &ev, e);
    return r < 0 ? r : queued(o, o->api.EnqueueReadBuffer(o->queue, from, 0, (size_t)at * 4, (size_t)n * 4, to, 0, NULL, ev),
                              "reading a buffer", e);
}

/* ---- kernels ---- */

struct args {                   /* of a kernel, in order */
    struct opencl *o;
    opencl_kernel k;
    uint32_t n;
    int32_t bad;
};

static void arg(struct args *a, size_t size, const void *v)
{
    int32_t r = a->o->api.SetKernelArg(a->k, a->n++, size, v);
    a->bad = a->bad ? a->bad : r;
}

static void arg_mem(struct args *a, opencl_mem m)
{
    arg(a, sizeof m, &m);
}

static void arg_u32(struct args *a, uint64_t v)
{
    uint32_t x = (uint32_t)v;
    arg(a, sizeof x, &x);
}

static void arg_u64(struct args *a, uint64_t v)
{
    arg(a, sizeof v, &v);
}

static int run(struct args *a, const size_t global[3], const size_t local[3], const char *what, struct err *e)
{
    opencl_event *ev = NULL;
    int r = ready(a->o, &ev, e);
    if (r < 0)
        return r;
    if (a->bad)
        return opencl_failed(a->o, a->bad, what, e);
    return queued(a->o, a->o->api.EnqueueNDRangeKernel(a->o->queue, a->k, 3, NULL, global, local, 0, NULL, ev), what, e);
}

static size_t up_to(size_t n, size_t of)
{
    return (n + of - 1) / of * of;
}

int opencl_queue_many(const struct opencl *o)
{
    return o->lanes == 1 ? 8 : 32;
}

int opencl_queue_items(const struct opencl *o)
{
    int items = o->lanes * o->rows < MANY_ITEMS ? o->lanes * o->rows / 32 * 32 : MANY_ITEMS;
    size_t neurons = 32 * ((size_t)items / 32 * 36 + 4), inputs = 32 * ((size_t)opencl_queue_many(o) + 4); /* kernels.cl: ws4, hs4 */
    return (neurons + inputs) * sizeof(float) <= o->local_bytes ? items : 0;
}

/* How many of the tokens, from the first on, the kernels for many take. Those of one item a row take whole tiles; elsewhere local memory
 * has to hold a block of rows and of inputs, or of neurons and their activations. */
static int many_of(const struct opencl *o, int n_cols, int n_tokens)
{
    int items = opencl_queue_items(o), tile = opencl_queue_many(o);
    if (n_cols % 32)
        return 0;
    if (o->lanes == 1)
        return n_tokens / tile * tile;
    return items && n_tokens > tile / 4 ? n_tokens : 0;
}

size_t opencl_queue_local(const struct opencl *o, int tokens)
{
    size_t items = (size_t)o->lanes * (size_t)o->rows, inputs = (size_t)tokens * (size_t)o->lanes * 33; /* kernels.cl: APART */
    return (items > inputs ? items : inputs) * sizeof(float);
}

static void rows_args(struct args *a, const struct accel_matrix *m, struct opencl_place w)
{
    arg_mem(a, w.mem);
    arg_u64(a, w.at);
    arg_u64(a, m->row_stride);
    arg_u32(a, m->group_rows ? (uint64_t)m->group_rows : (uint64_t)m->n_rows);
    arg_u64(a, m->group_stride);
}

static void matrix_args(struct args *a, const struct accel_matrix *m, struct opencl_place w)
{
    rows_args(a, m, w);
    arg_u32(a, m->run_elems ? (uint64_t)m->run_elems / 32 : UINT32_MAX);
    arg_u64(a, m->run_stride);
}

/* by: 0 one token, 1 four at a time, 2 many. */
static int some_product(struct opencl *o, const struct accel_matrix *m, struct opencl_place w, opencl_mem x, uint64_t x_at,
                        opencl_mem out, uint64_t out_at, int n_tokens, int by, struct err *e)
{
    size_t items = (size_t)o->lanes * (size_t)o->rows, rows = (size_t)m->n_rows, tokens = (size_t)n_tokens;
    struct args a = { .o = o, .k = o->kernels[m->type].product[by] };
    matrix_args(&a, m, w);
    arg_mem(&a, x);
    arg_u32(&a, x_at);
    arg_mem(&a, out);
    arg_u32(&a, out_at);
    arg_u32(&a, rows);
    arg_u32(&a, (uint64_t)m->n_cols);
    arg_u32(&a, tokens);
    size_t tiles = (tokens + (size_t)opencl_queue_many(o) - 1) / (size_t)opencl_queue_many(o), many = (size_t)opencl_queue_items(o);
    if (by == 2 && o->lanes == 1) {
        const size_t global[3] = { tiles, up_to(rows, items), 1 }, local[3] = { 1, items, 1 };
        return run(&a, global, local, "a product", e);
    }
    if (by == 2) {
        const size_t global[3] = { tiles * many, (rows + many - 1) / many, 1 }, local[3] = { many, 1, 1 };
        return run(&a, global, local, "a product", e);
    }
    arg(&a, o->lanes == 1 ? sizeof(float) : opencl_queue_local(o, by ? 4 : 1), NULL);
    const size_t global[3] = { up_to(rows, (size_t)o->rows) * (size_t)o->lanes, by ? (tokens + 3) / 4 : 1, 1 };
    const size_t local[3] = { items, 1, 1 };
    return run(&a, global, local, "a product", e);
}

int opencl_queue_product(struct opencl *o, const struct accel_matrix *m, struct opencl_place w, opencl_mem x, uint64_t x_at,
                         opencl_mem out, uint64_t out_at, int n_tokens, struct err *e)
{
    int many = many_of(o, m->n_cols, n_tokens), rest = n_tokens - many, r = 0;
    if (many)
        r = some_product(o, m, w, x, x_at, out, out_at, many, 2, e);
    if (r == 0 && rest)
        r = some_product(o, m, w, x, x_at + (uint64_t)many * (uint64_t)m->n_cols, out, out_at + (uint64_t)many * (uint64_t)m->n_rows, rest,
                         rest > 1, e);
    return r;
}

/* A slice is no shorter than LEAST_SLICE neurons, and a multiple of 32. The number of tokens has no say. */
static int slice_of(const struct opencl *o, int n_rows)
{
    int slice = (n_rows + o->slices - 1) / o->slices;
    slice = o->slices == 1 ? n_rows : slice < LEAST_SLICE ? LEAST_SLICE : (slice + 31) / 32 * 32;
    return slice < 1 ? 1 : slice;
}

int opencl_queue_slices(const struct opencl *o, int n_rows)
{
    int slice = slice_of(o, n_rows);
    return (n_rows + slice - 1) / slice;
}

static int some_turned(struct opencl *o, const struct accel_matrix *m, struct opencl_place w, opencl_mem h, uint64_t h_at, opencl_mem part,
                       uint64_t part_at, int n_tokens, int by, struct err *e)
{
    size_t group = (size_t)opencl_queue_items(o), tokens = (size_t)n_tokens, tile = (size_t)opencl_queue_many(o);
    size_t columns = ((size_t)m->n_cols + 31) / 32, items = o->lanes > 1 ? (size_t)(o->lanes * o->rows < 32 ? o->lanes * o->rows : 32) : 1;
    struct args a = { .o = o, .k = o->kernels[m->type].turned[by] };
    rows_args(&a, m, w);
    arg_mem(&a, h);
    arg_u32(&a, h_at);
    arg_mem(&a, part);
    arg_u32(&a, part_at);
    arg_u32(&a, (uint64_t)slice_of(o, m->n_rows));
    arg_u32(&a, (uint64_t)m->n_rows);
    arg_u32(&a, (uint64_t)m->n_cols);
    arg_u32(&a, (uint64_t)n_tokens);
    if (by == 2) { /* groups of the same columns one after another */
        const size_t local[3] = { o->lanes == 1 ? 1 : group, 1, 1 };
        const size_t tiles = (tokens + tile - 1) / tile;
        const size_t global[3] = { tiles * local[0], o->lanes == 1 ? columns : (columns * 32 + group - 1) / group, 1 };
        return run(&a, global, local, "a sum of rows", e);
    }
    const size_t global[3] = { up_to(columns, items), by ? (tokens + 3) / 4 : 1, (size_t)opencl_queue_slices(o, m->n_rows) };
    const size_t local[3] = { items, 1, 1 };
    return run(&a, global, local, "a sum of rows", e);
}

static int few_turned(struct opencl *o, const struct accel_matrix *m, struct opencl_place w, opencl_mem h, uint64_t h_at,
                      opencl_mem part, opencl_mem out, uint64_t out_at, int n_tokens, struct err *e)
{
    int slices = opencl_queue_slices(o, m->n_rows), r = 0;
    if (slices == 1)
        return some_turned(o, m, w, h, h_at, out, out_at, n_tokens, n_tokens > 1, e);
    for (int t = 0, n; t < n_tokens && r == 0; t += n) {
        n = n_tokens - t < ACCEL_SLICE_TOKENS ? n_tokens - t : ACCEL_SLICE_TOKENS;
        uint64_t sums = (uint64_t)n * (uint64_t)m->n_cols;
        struct args a = { .o = o, .k = o->kernels[m->type].sum };
        if ((r = some_turned(o, m, w, h, h_at + (uint64_t)t * (uint64_t)m->n_rows, part, 0, n, n > 1, e)) < 0)
            return r;
        arg_mem(&a, part);
        arg_u32(&a, 0);
        arg_u32(&a, (uint64_t)slices);
        arg_u32(&a, sums);
        arg_mem(&a, out);
        arg_u32(&a, out_at + (uint64_t)t * (uint64_t)m->n_cols);
        const size_t local[3] = { (size_t)(o->lanes * o->rows), 1, 1 }, global[3] = { up_to((size_t)sums, local[0]), 1, 1 };
        r = run(&a, global, local, "a sum of slices", e);
    }
    return r;
}

int opencl_queue_turned(struct opencl *o, const struct accel_matrix *m, struct opencl_place w, opencl_mem h, uint64_t h_at,
                        opencl_mem part, opencl_mem out, uint64_t out_at, int n_tokens, struct err *e)
{
    int many = many_of(o, m->n_cols, n_tokens), rest = n_tokens - many, r = 0;
    if (many)
        r = some_turned(o, m, w, h, h_at, out, out_at, many, 2, e);
    if (r == 0 && rest)
        r = few_turned(o, m, w, h, h_at + (uint64_t)many * (uint64_t)m->n_rows, part, out, out_at + (uint64_t)many * (uint64_t)m->n_cols,
                       rest, e);
    return r;
}

static void hidden_args(struct args *a, enum model_act act, const struct opencl_biases *b, opencl_mem none)
{
    arg_u32(a, (uint64_t)act);
    arg_u32(a, (b->gate.mem ? 1 : 0) | (b->up.mem ? 2 : 0) | (b->silence.mem ? 4 : 0));
    arg_mem(a, b->gate.mem ? b->gate.mem : none);
    arg_u64(a, b->gate.at);
    arg_mem(a, b->up.mem ? b->up.mem : none);
    arg_u64(a, b->up.at);
    arg_mem(a, b->silence.mem ? b->silence.mem : none);
    arg_u64(a, b->silence.at);
}

int opencl_queue_hides(const struct accel_matrix *gate, const struct accel_matrix *up)
{
    return gate->type == up->type && !gate->run_elems && !up->run_elems;
}

int opencl_queue_hidden(struct opencl *o, const struct accel_matrix *gate, struct opencl_place g, const struct accel_matrix *up,
                        struct opencl_place u, opencl_mem x, uint64_t x_at, opencl_mem out, uint64_t out_at, enum model_act act,
                        const struct opencl_biases *b, struct err *e)
{
    const size_t items = (size_t)o->lanes * (size_t)o->rows, rows = up_to((size_t)gate->n_rows, (size_t)o->rows);
    struct args a = { .o = o, .k = o->kernels[gate->type].hidden };
    rows_args(&a, gate, g);
    rows_args(&a, up, u);
    arg_mem(&a, x);
    arg_u32(&a, x_at);
    arg_mem(&a, out);
    arg_u32(&a, out_at);
    arg_u32(&a, (uint64_t)gate->n_rows);
    arg_u32(&a, (uint64_t)gate->n_cols);
    hidden_args(&a, act, b, x); /* x: an argument that is not looked at */
    arg(&a, o->lanes == 1 ? sizeof(float) : opencl_queue_local(o, 1), NULL);
    const size_t global[3] = { rows * (size_t)o->lanes, 1, 1 }, local[3] = { items, 1, 1 };
    return run(&a, global, local, "Gate, Up and an activation", e);
}

int opencl_queue_activate(struct opencl *o, opencl_mem gate, opencl_mem up, uint64_t at, int n, int n_tokens, enum model_act act,
                          const struct opencl_biases *b, struct err *e)
{
    struct args a = { .o = o, .k = o->kernels[QUANT_F32].activate };
    arg_mem(&a, gate);
    arg_mem(&a, up);
    arg_u32(&a, at);
    arg_u32(&a, (uint64_t)n);
    arg_u32(&a, (uint64_t)n_tokens);
    hidden_args(&a, act, b, up); /* up: an argument that is not looked at */
    const size_t local[3] = { (size_t)(o->lanes * o->rows), 1, 1 }, global[3] = { up_to((size_t)n * (size_t)n_tokens, local[0]), 1, 1 };
    return run(&a, global, local, "an activation", e);
}

/* ---- waiting ---- */

void opencl_queue_forget(struct opencl *o)
{
    for (int i = 0; i < o->n_events; i++)
        o->api.ReleaseEvent(o->events[i]);
    o->n_events = 0;
}

/* Events from `from` on that are done, one after another; ERR_IO: one was not. */
static int done_from(struct opencl *o, int from, struct err *e)
{
    for (; from < o->n_events; from++) {
        int32_t status = 1, r = o->api.GetEventInfo(o->events[from], OPENCL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        if (r != OPENCL_SUCCESS || status < 0)
            return opencl_failed(o, r != OPENCL_SUCCESS ? r : status, "a command that was queued", e);
        if (status != 0)
            break;
    }
    return from;
}

int opencl_queue_wait(struct opencl *o, int (*meanwhile)(void *ctx, struct err *e), void *ctx, struct err *e)
{
    int done = 0, r = 0;
    int64_t began = progress_now_ns(), spin = o->lanes == 1 ? SPIN_CPU_NS : SPIN_NS;
    int64_t silence = (int64_t)(o->c.silence_ms ? o->c.silence_ms : SILENCE_MS) * 1000000, waited = 0, last = began;
    if (o->broken)
        return err_set(e, ERR_IO, "OpenCL device '%s' failed before", o->info.device.name);
    if (!o->n_events)
        return 0;
    int32_t code = o->api.Flush(o->queue);
    if (code != OPENCL_SUCCESS)
        return opencl_failed(o, code, "starting what was queued", e);
    while (done < o->n_events) {
        int now = done_from(o, done, e);
        if (now < 0)
            return now;
        waited = now > done ? 0 : waited;
        done = now;
        if (done == o->n_events)
            break;
        int64_t at = progress_now_ns();
        waited += at - last < LOOK_NS ? at - last : LOOK_NS; /* a process that was stopped does not know of the device */
        last = at;
        if (waited > silence) {
            o->broken = 1;
            return err_set(e, ERR_IO, "OpenCL device '%s' has not answered for %lld ms", o->info.device.name,
                           (long long)(silence / 1000000));
        }
        if (meanwhile && r == 0)
            r = meanwhile(ctx, e);
        const struct timespec pause = { 0, SLEEP_NS };
        if (at - began < spin)
            pool_relax();
        else
            nanosleep(&pause, NULL);
    }
    opencl_queue_forget(o);
    code = o->api.Finish(o->queue); /* at once: it lets drivers clear up */
    return code != OPENCL_SUCCESS ? opencl_failed(o, code, "what was queued", e) : r < 0 ? r : 0;
}
