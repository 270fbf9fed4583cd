/* IQ2 and IQ3: groups of eight or four elements are entries of codebooks, with a sign for each element and a scale for each 16 or 32.
 * This build reads them and does not write them. A weight is rounded once: magnitude times the scale's integer has at most 11 bits
 * and the block's scale 11. */
#include "common/kernels/quant_impl.h"
#include "common/kernels/quant_iq_codebooks.h"

enum { N = 256 };

#define AT(type, p, field) ((p) + offsetof(struct quant_##type, field))

static const uint8_t quant_iq2_levels[4] = { 8, 25, 43, 0 }, quant_iq3_levels[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };

/* Seven signs are stored; the eighth makes the number of negative ones even. */
static unsigned eight_signs(uint32_t seven)
{
    seven &= 127;
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

static void put2(float *out, float d, unsigned entry, unsigned signs)
{
    for (int j = 0; j < 8; j++) {
        float w = d * (float)quant_iq2_levels[entry >> 2 * j & 3];
        out[j] = signs >> j & 1 ? -w : w;
    }
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
                put2(out + at + 32 * i + 8 * k, d, iq2_xxs_codebook[q[k]], eight_signs(more >> 7 * k));
        }
}

void quant_iq2_xs_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq2_xs))
        for (int k = 0; k < N / 8; k++) {
            unsigned q = bytes_le16(AT(iq2_xs, b, qs) + 2 * k), s = AT(iq2_xs, b, scales)[k / 4] >> k / 2 % 2 * 4 & 15;
            put2(out + at + 8 * k, scale(quant_half_at(AT(iq2_xs, b, d)), s, 0.25f), iq2_xs_codebook[q & 511], eight_signs(q >> 9));
        }
}

void quant_iq2_s_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq2_s))
        for (int k = 0; k < N / 8; k++) {
            unsigned high = AT(iq2_s, b, qh)[k / 4] >> k % 4 * 2 & 3, s = AT(iq2_s, b, scales)[k / 4] >> k / 2 % 2 * 4 & 15;
            put2(out + at + 8 * k, scale(quant_half_at(AT(iq2_s, b, d)), s, 0.25f),
                 iq2_s_codebook[AT(iq2_s, b, qs)[k] | high << 8], AT(iq2_s, b, signs)[k]);
        }
}

void quant_iq3_xxs_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq3_xxs))
        for (int i = 0; i < N; i++) {
            uint32_t more = bytes_le32(AT(iq3_xxs, b, scales) + i / 32 * 4);
            unsigned entry = iq3_xxs_codebook[AT(iq3_xxs, b, qs)[i / 4]], signs = eight_signs(more >> i / 8 % 4 * 7);
            float w = scale(quant_half_at(AT(iq3_xxs, b, d)), more >> 28, 0.5f) * (float)quant_iq3_levels[entry >> 3 * (i % 4) & 7];
            out[at + (size_t)i] = signs >> i % 8 & 1 ? -w : w;
        }
}

void quant_iq3_s_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq3_s))
        for (int i = 0; i < N; i++) {
            int k = i / 4; /* entry */
            unsigned high = AT(iq3_s, b, qh)[k / 8] >> k % 8 & 1, s = AT(iq3_s, b, scales)[i / 64] >> i / 32 % 2 * 4 & 15;
            unsigned entry = iq3_s_codebook[AT(iq3_s, b, qs)[k] | high << 8];
            float w = quant_half_at(AT(iq3_s, b, d)) * (float)(1 + 2 * s) * (float)(2 * (entry >> 3 * (i % 4) & 7) + 1);
            out[at + (size_t)i] = AT(iq3_s, b, signs)[i / 8] >> i % 8 & 1 ? -w : w;
        }
}
