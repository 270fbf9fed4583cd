/* With AddressSanitizer the kernels that programs call are not instrumented, and the table looks at their operands (kernels_guard.c):
 * what is missing at the end, in the middle or in front of any of them ends the process, for each kind of entry and each type; whole
 * operands do not, and products are right. Without a sanitizer the latter alone. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "tests/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define GUARDED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define GUARDED 1
#endif
#endif
#ifdef GUARDED
/* Nobody reads these reports. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "symbolize=0";
}
#else
#define GUARDED 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

/* Operands of every entry: weights of any type (zeros are ones of all), sums, activations, factors. */
enum { ROWS = 3, TOKENS = 2, COLS = 256, ROW_MOST = COLS * 4 };
static struct operands {
    _Alignas(64) uint8_t rows[ROWS][ROW_MOST], acts[TOKENS][ROW_MOST];
    _Alignas(64) float out[TOKENS][COLS], h[TOKENS][8];
    _Alignas(64) struct kernels_q8_group q8[2];
    _Alignas(64) uint16_t half[COLS];
    _Alignas(64) uint8_t bits[32];
    const void *at[ROWS];
} *o;

/* Kinds of entries; of products and sums of rows, for one type at a time. */
enum { BY_ROWS, BY_ROWS_AT, AXPY, SUMS, Q8, DOT_F32, DOT_F16, AXPY_F32, AXPY_F16, TO_F16, ABOVE, KINDS };

/* 0: there is no such entry. */
static int call(int kind, enum kernels_act form, uint32_t type)
{
    const struct kernels *k = kernels;
    const float *x = (const float *)o->acts[0];
    switch (kind) {
    case BY_ROWS:
        if (!k->rows[form][type])
            return 0;
        k->rows[form][type](o->out[0], COLS, o->rows, ROW_MOST, ROWS, o->acts, ROW_MOST, TOKENS, COLS);
        break;
    case BY_ROWS_AT:
        if (!k->rows_at[form][type])
            return 0;
        k->rows_at[form][type](o->out[0], COLS, o->at, ROWS, o->acts, ROW_MOST, TOKENS, COLS);
        break;
    case AXPY:
        if (!k->axpy[type])
            return 0;
        k->axpy[type](o->out[0], COLS, o->at, o->h[0], 8, ROWS, TOKENS, 0, COLS);
        break;
    case SUMS:
        if (!k->sums[type])
            return 0;
        k->sums[type](o->out[0], COLS, o->rows, ROW_MOST, o->h[0], 8, ROWS, TOKENS, COLS);
        break;
    case Q8: k->quant_q8(o->q8, x, COLS); break;
    case DOT_F32: o->out[0][0] = k->dot_f32(x, o->out[1], COLS); break;
    case DOT_F16: o->out[0][0] = k->dot_f16(x, o->half, COLS); break;
    case AXPY_F32: k->axpy_f32(o->out[0], 2, x, COLS); break;
    case AXPY_F16: k->axpy_f16(o->out[0], 2, o->half, COLS); break;
    case TO_F16: k->to_f16(o->half, x, COLS); break;
    case ABOVE: k->above(o->bits, x, 0, COLS); break;
    }
    return 1;
}

/* The process ends, with eight bytes missing at p. */
static int ends(int kind, enum kernels_act form, uint32_t type, const void *p)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        ASAN_POISON_MEMORY_REGION(p, 8);
        call(kind, form, type);
        _exit(0);
    }
    return waitpid(pid, &status, 0) == pid && status != 0;
}

/* Each of what an entry has is missed: at its beginning, in its middle or at its end, which alternate from type to type and from one
 * operand to the next, for a report takes its time. */
static int each_is_missed(int kind, enum kernels_act form, uint32_t type)
{
    const size_t row = kind < Q8 ? quant_row_bytes(type, COLS) : 0, act = kernels_act_bytes(form, COLS), f32 = COLS * 4;
    const struct { const void *at; size_t bytes; } parts[][4] = {
        [BY_ROWS] = { { o->rows[0], row }, { o->rows[ROWS - 1], row }, { o->acts[1], act }, { o->out[1], ROWS * 4 } },
        [BY_ROWS_AT] = { { o->rows[0], row }, { o->rows[ROWS - 1], row }, { o->acts[0], act }, { o->out[0], ROWS * 4 } },
        [AXPY] = { { o->rows[0], row }, { o->rows[ROWS - 1], row }, { o->out[TOKENS - 1], f32 }, { o->h[TOKENS - 1], ROWS * 4 } },
        [SUMS] = { { o->rows[0], row }, { o->rows[ROWS - 1], row }, { o->out[TOKENS - 1], f32 }, { o->h[TOKENS - 1], ROWS * 4 } },
        [Q8] = { { o->q8, sizeof o->q8 }, { o->acts, f32 } },
        [DOT_F32] = { { o->acts, f32 }, { o->out[1], f32 } },
        [DOT_F16] = { { o->acts, f32 }, { o->half, COLS * 2 } },
        [AXPY_F32] = { { o->out, f32 }, { o->acts, f32 } },
        [AXPY_F16] = { { o->out, f32 }, { o->half, COLS * 2 } },
        [TO_F16] = { { o->half, COLS * 2 }, { o->acts, f32 } },
        [ABOVE] = { { o->bits, COLS / 8 }, { o->acts, f32 } },
    };
    int ok = 1;
    for (int i = 0; i < 4 && parts[kind][i].at; i++) {
        const char *p = parts[kind][i].at;
        size_t n = parts[kind][i].bytes;
        const size_t spots[] = { 0, n / 16 * 8, (n - 1) / 8 * 8 };
        ok &= ends(kind, form, type, p + spots[((int)type + kind + i) % 3]);
    }
    return ok;
}

/* Rows of F32 with ones and activations with ones: each product is the number of columns. */
static int right(void)
{
    for (int i = 0; i < COLS; i++)
        for (int r = 0; r < ROWS; r++) {
            ((float *)(void *)o->rows[r])[i] = 1;
            ((float *)(void *)o->acts[r % TOKENS])[i] = 1;
        }
    call(BY_ROWS, KERNELS_ACT_F32, QUANT_F32);
    int ok = o->out[0][0] == COLS && o->out[TOKENS - 1][ROWS - 1] == COLS;
    memset(o->rows, 0, sizeof o->rows);
    return ok;
}

/* Every type's entries go through, and to their own type: what is missing behind a row of this type is none of theirs. */
static int whole(uint32_t type)
{
    const size_t row = (quant_row_bytes(type, COLS) + 7) / 8 * 8;
    int n = 0;
    if (row < ROW_MOST)
        for (int r = 0; r < ROWS; r++)
            ASAN_POISON_MEMORY_REGION(o->rows[r] + row, ROW_MOST - row);
    for (int kind = BY_ROWS; kind <= SUMS; kind++)
        for (int form = 0; form < (kind < AXPY ? KERNELS_ACT_FORMS : 1); form++)
            n += call(kind, (enum kernels_act)form, type);
    ASAN_UNPOISON_MEMORY_REGION(o->rows, sizeof o->rows);
    return n;
}

int main(void)
{
    o = aligned_alloc(64, sizeof *o);
    if (!o)
        return 1;
    memset(o, 0, sizeof *o);
    for (int r = 0; r < ROWS; r++)
        o->at[r] = o->rows[r];
    kernels_init(cpu_detect());
    CHECK(right());
    int types = 0;
    for (uint32_t type = 0; type < QUANT_LIMIT; type++)
        if (kernels->rows[KERNELS_ACT_F32][type]) {
            CHECK_MSG(whole(type) >= 2, "type %u", type);
            types++;
            for (int form = 0; form < KERNELS_ACT_FORMS && GUARDED; form++)
                if (kernels->rows[form][type]) {
                    CHECK_MSG(each_is_missed(BY_ROWS, (enum kernels_act)form, type), "type %u", type);
                    CHECK_MSG(each_is_missed(BY_ROWS_AT, (enum kernels_act)form, type), "type %u", type);
                }
            if (GUARDED && kernels->axpy[type])
                CHECK_MSG(each_is_missed(AXPY, KERNELS_ACT_F32, type), "type %u", type);
            if (GUARDED && kernels->sums[type])
                CHECK_MSG(each_is_missed(SUMS, KERNELS_ACT_F32, type), "type %u", type);
        }
    CHECK(types >= 20);
    for (int kind = Q8; kind < KINDS; kind++) {
        CHECK(call(kind, KERNELS_ACT_F32, QUANT_F32));
        if (GUARDED)
            CHECK_MSG(each_is_missed(kind, KERNELS_ACT_F32, QUANT_F32), "entry %d", kind);
    }
    free(o);
    return test_done();
}
