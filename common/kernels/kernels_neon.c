/* NEON, the baseline of aarch64: four float lanes, thirty-two registers. */
#include "common/kernels/kernels_neon_impl.h"

#include "common/kernels/kernels_simd_impl.h"

/* ---- vectors ---- */

/* max(a, m) with m where a is NaN, as the scalar comparison has it. */
PRIM VF larger(VF a, VF m)
{
    return vbslq_f32(vcgtq_f32(a, m), a, m);
}

PRIM VF smaller(VF a, VF m)
{
    return vbslq_f32(vcltq_f32(a, m), a, m);
}

static void quant_q8(struct kernels_q8_group *out, const float *x, int n)
{
    if (n % 128)
        out[n / 128] = (struct kernels_q8_group){ 0 };
    for (int i = 0; i < n / 32; i++, x += 32) {
        struct kernels_q8_group *g = &out[i / 4];
        VF m = vf_zero();
        for (int k = 0; k < 8; k++)
            m = larger(vabsq_f32(vf_load(x + 4 * k)), m);
        float top = vmaxvq_f32(m);
        int zero = top < KERNELS_Q8_TINY;
        VF inv = vf_set1(zero ? 0 : 127.0f / top);
        for (int k = 0; k < 2; k++) {
            int16x8_t q[2];
            for (int j = 0; j < 2; j++) {
                const float *p = x + 16 * k + 8 * j;
                VF a = smaller(larger(vmulq_f32(vf_load(p), inv), vf_set1(-127)), vf_set1(127));
                VF b = smaller(larger(vmulq_f32(vf_load(p + 4), inv), vf_set1(-127)), vf_set1(127));
                q[j] = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a)), vmovn_s32(vcvtnq_s32_f32(b)));
            }
            vst1q_s8(g->qs + i % 4 * 32 + 16 * k, vcombine_s8(vmovn_s16(q[0]), vmovn_s16(q[1])));
        }
        g->d[i % 4] = zero ? 0 : top / 127.0f;
        kernels_q8_sums(g, i % 4);
    }
}

static void to_f16(uint16_t *out, const float *x, int n)
{
    int i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vf_load(x + i))));
    for (; i < n; i++)
        out[i] = quant_f32_to_f16(x[i]);
}

void kernels_fill_neon(struct kernels *k)
{
    k->name = "neon";
    fill_f32(k);
    kernels_fill_k_neon(k);
    k->quant_q8 = quant_q8;
    k->to_f16 = to_f16;
}
