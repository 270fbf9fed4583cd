/* The kernel table. Tiers are installed from the lowest up, each overwriting what it improves, so a
 * tier implements only what it is better at. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/kernels/kernels_impl.h"

#include <string.h>

static struct kernels table;
const struct kernels *kernels = &table;

void kernels_init(unsigned cpu_mask)
{
    memset(&table, 0, sizeof table);
    kernels_fill_scalar(&table);
#if defined(KERNELS_SCALAR_ALONE)
    (void)cpu_mask;
#elif defined(__x86_64__)
    if (cpu_mask & 1u << CPU_AVX2)
        kernels_fill_avx2(&table);
    if (cpu_mask & 1u << CPU_AVXVNNI)
        kernels_fill_avxvnni(&table);
    if (cpu_mask & 1u << CPU_AVX512)
        kernels_fill_avx512(&table);
    if (cpu_mask & 1u << CPU_AVX512 && __builtin_cpu_supports("avx512vbmi"))
        kernels_fill_avx512_vbmi(&table);
    if (cpu_mask & 1u << CPU_AMX)
        kernels_fill_amx(&table);
#elif defined(__aarch64__)
    if (cpu_mask & 1u << CPU_NEON)
        kernels_fill_neon(&table);
    if (cpu_mask & 1u << CPU_DOTPROD)
        kernels_fill_dotprod(&table);
    if (cpu_mask & 1u << CPU_I8MM)
        kernels_fill_i8mm(&table);
#else
    (void)cpu_mask;
#endif
#ifdef KERNELS_GUARDED
    kernels_guard(&table);
#endif
}

size_t kernels_act_bytes(enum kernels_act form, int n)
{
    if (form == KERNELS_ACT_Q8)
        return ((size_t)n + 127) / 128 * sizeof(struct kernels_q8_group);
    return (size_t)n * sizeof(float);
}

void kernels_act_prepare(void *out, enum kernels_act form, const float *x, int n)
{
    if (form == KERNELS_ACT_Q8)
        table.quant_q8(out, x, n);
    else
        memcpy(out, x, (size_t)n * sizeof *x);
}

enum kernels_act kernels_act_form(uint32_t type, int want_q8)
{
    if (want_q8 && type < QUANT_LIMIT && table.rows[KERNELS_ACT_Q8][type])
        return KERNELS_ACT_Q8;
    return KERNELS_ACT_F32;
}
