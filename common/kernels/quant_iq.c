/* IQ1, IQ2 and IQ3: groups of eight or four elements are entries of codebooks, with a sign for each element and a scale for each 16 or 32.
 * This build reads them and does not write them. A weight is rounded once: magnitude times the scale's integer has at most 11 bits
 * and the block's scale 11. */
#include "common/kernels/quant_impl.h"
#include "common/kernels/quant_iq_codebooks.h"

#include <string.h>

enum { N = 256 };

#define AT(type, p, field) ((p) + offsetof(struct quant_##type, field))

/* Seven signs are stored; the eighth makes the number of negative ones even. */
static unsigned eight_signs(uint32_t seven)
{
    seven &= 127;
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

/* w or, with sign 1, -w. */
static inline float signed_by(float w, unsigned sign)
{
    uint32_t bits;
    memcpy(&bits, &w, sizeof bits);
    bits ^= sign << 31;
    memcpy(&w, &bits, sizeof w);
    return w;
}

static inline void put2(float *out, float d, unsigned entry, unsigned signs)
{
    float w[4];
    for (int i = 0; i < 4; i++)
        w[i] = d * (float)quant_iq2_levels[i];
    for (int j = 0; j < 8; j++)
        out[j] = signed_by(w[entry >> 2 * j & 3], signs >> j & 1);
}

static inline void put3(float *out, float d, const int8_t levels[8], unsigned entry, unsigned signs)
{
    for (int j = 0; j < 4; j++)
        out[j] = signed_by(d * (float)levels[entry >> 4 * j & 7], signs >> j & 1);
}

/* Scales are (s + 1/2) / 4 of d in IQ2 and (s + 1/2) / 2 in IQ3_XXS. */
static float scale(float d, unsigned s, float unit)
{
    return d * (0.5f + (float)s) * unit;
}

void quant_iq2_xxs_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq2_xxs))
        for (int i = 0; i < N / 32; i++) {
            const uint8_t *q = AT(iq2_xxs, b, qs) + 8 * i;
            uint32_t more = bytes_le32(q + 4);
            float d = scale(quant_half_at(AT(iq2_xxs, b, d)), more >> 28, 0.25f);
            for (int k = 0; k < 4; k++)
                put2(out + at + 32 * i + 8 * k, d, quant_iq2_xxs_codebook[q[k]], eight_signs(more >> 7 * k));
        }
}

void quant_iq2_xs_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq2_xs))
        for (int k = 0; k < N / 8; k++) {
            unsigned q = bytes_le16(AT(iq2_xs, b, qs) + 2 * k), s = AT(iq2_xs, b, scales)[k / 4] >> k / 2 % 2 * 4 & 15;
            put2(out + at + 8 * k, scale(quant_half_at(AT(iq2_xs, b, d)), s, 0.25f), quant_iq2_xs_codebook[q & 511], eight_signs(q >> 9));
        }
}

void quant_iq2_s_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq2_s))
        for (int k = 0; k < N / 8; k++) {
            unsigned high = AT(iq2_s, b, qh)[k / 4] >> k % 4 * 2 & 3, s = AT(iq2_s, b, scales)[k / 4] >> k / 2 % 2 * 4 & 15;
            put2(out + at + 8 * k, scale(quant_half_at(AT(iq2_s, b, d)), s, 0.25f),
                 quant_iq2_s_codebook[AT(iq2_s, b, qs)[k] | high << 8], AT(iq2_s, b, signs)[k]);
        }
}

void quant_iq3_xxs_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq3_xxs))
        for (int i = 0; i < N / 32; i++) {
            uint32_t more = bytes_le32(AT(iq3_xxs, b, scales) + 4 * i);
            float d = scale(quant_half_at(AT(iq3_xxs, b, d)), more >> 28, 0.5f);
            for (int k = 0; k < 8; k++)
                put3(out + at + 32 * i + 4 * k, d, quant_iq3_xxs_levels, quant_iq3_xxs_codebook[AT(iq3_xxs, b, qs)[8 * i + k]],
                     eight_signs(more >> k / 2 * 7) >> k % 2 * 4);
        }
}

void quant_iq3_s_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq3_s))
        for (int i = 0; i < N / 32; i++) {
            unsigned s = AT(iq3_s, b, scales)[i / 2] >> i % 2 * 4 & 15, high = AT(iq3_s, b, qh)[i];
            float d = quant_half_at(AT(iq3_s, b, d)) * (float)(1 + 2 * s);
            for (int k = 0; k < 8; k++)
                put3(out + at + 32 * i + 4 * k, d, quant_iq3_s_levels,
                     quant_iq3_s_codebook[AT(iq3_s, b, qs)[8 * i + k] | (high >> k & 1) << 8],
                     (unsigned)AT(iq3_s, b, signs)[4 * i + k / 2] >> k % 2 * 4);
        }
}

/* ---- IQ1 ---- */

/* Eight elements of -1, 0 and 1, each plus an eighth or, with minus, less one; d times that is rounded once. */
static inline void put1(float *out, float d, unsigned entry, int minus)
{
    const float eighth = minus ? -0.125f : 0.125f;
    for (int j = 0; j < 8; j++)
        out[j] = d * ((float)(int)(entry >> 2 * j & 3) - 1 + eighth);
}

void quant_iq1_s_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq1_s))
        for (int k = 0; k < N / 8; k++) {
            unsigned h = bytes_le16(AT(iq1_s, b, qh) + k / 4 * 2);
            put1(out + at + 8 * k, quant_half_at(AT(iq1_s, b, d)) * (float)(2 * (h >> 12 & 7) + 1),
                 quant_iq1_codebook[AT(iq1_s, b, qs)[k] | (h >> k % 4 * 3 & 7) << 8], h >> 15);
        }
}

uint16_t quant_iq1_m_d(const uint8_t *b)
{
    unsigned d = 0;
    for (int i = 0; i < 4; i++)
        d |= (unsigned)(bytes_le16(AT(iq1_m, b, scales) + 2 * i) >> 12) << 4 * i;
    return (uint16_t)d;
}

void quant_iq1_m_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq1_m)) {
        const float d = quant_f16_to_f32(quant_iq1_m_d(b));
        for (int k = 0; k < N / 8; k++) {
            unsigned h = AT(iq1_m, b, qh)[k / 2] >> k % 2 * 4, s = bytes_le16(AT(iq1_m, b, scales) + k / 8 * 2) >> k % 8 / 2 * 3;
            put1(out + at + 8 * k, d * (float)(2 * (s & 7) + 1), quant_iq1_codebook[AT(iq1_m, b, qs)[k] | (h & 7) << 8], h >> 3 & 1);
        }
    }
}
