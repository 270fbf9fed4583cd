/* Types of one bit and of two: a scale and the bits of its weights in order, the lowest of a byte first; and of digits of base 3. Read, not
 * written. */
#include "common/kernels/quant_impl.h"

void quant_q1_0_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += 128, b += sizeof(struct quant_q1_0)) {
        const float d = quant_half_at(b);
        for (size_t j = 0; j < 128; j++)
            out[at + j] = b[2 + j / 8] >> j % 8 & 1 ? d : -d;
    }
}

static void read_two(float *out, const uint8_t *b, size_t n, size_t elems)
{
    for (size_t at = 0; at < n; at += elems, b += 2 + elems / 4) {
        const float d = quant_half_at(b);
        for (size_t j = 0; j < elems; j++)
            out[at + j] = (float)((b[2 + j / 4] >> 2 * (j % 4) & 3) - 1) * d;
    }
}

void quant_q2_0_read(float *out, const void *in, size_t n)
{
    read_two(out, in, n, 64);
}

void quant_q2_0_128_read(float *out, const void *in, size_t n)
{
    read_two(out, in, n, 128);
}

/* n bytes of so many digits each: those of digit 0 of every byte, then those of digit 1. */
static float *put_digits(float *out, const uint8_t *b, int n, int digits, float d)
{
    unsigned power = 1;
    for (int i = 0; i < digits; i++, power *= 3)
        for (int j = 0; j < n; j++)
            *out++ = (float)((int)((b[j] * power & 255) * 3 >> 8) - 1) * d;
    return out;
}

void quant_ptq1_0_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += 128, b += sizeof(struct quant_ptq1_0)) {
        const float d = quant_half_at(b + offsetof(struct quant_ptq1_0, d));
        float *next = put_digits(out + at, b, 16, 5, d);
        next = put_digits(next, b + 16, 8, 5, d);
        put_digits(next, b + offsetof(struct quant_ptq1_0, qh), 2, 4, d);
    }
}
