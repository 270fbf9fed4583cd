/* Quantised blocks made directly, not by quantising floats: random levels with a scale of random sign (so that
 * the levels' mean of -1/2 cancels), and exact small patterns. The generator is counter-based, splitmix64's
 * finaliser over key and counter, so any block can be made alone and the file is the same everywhere. */
#include "datasets/synth/synth.h"

#include "common/base/bytes.h"
#include "common/base/splitmix.h"
#include "common/kernels/quant.h"

#include <math.h>
#include <stdlib.h>

uint64_t synth_mix(uint64_t a, uint64_t b)
{
    return splitmix_finalise(splitmix_finalise(a + SPLITMIX_STEP) + b * SPLITMIX_STEP);
}

/* A Feistel network on the smallest even number of bits that holds n, repeated until the result is below n. */
uint32_t synth_permute(uint64_t key, uint32_t i, uint32_t n)
{
    int half = 1;
    while (half < 16 && (1ull << (2 * half)) < n)
        half++;
    uint32_t mask = (1u << half) - 1;
    do {
        uint32_t left = i >> half, right = i & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t t = left ^ ((uint32_t)synth_mix(key + round, right) & mask);
            left = right;
            right = t;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

int synth_type_ok(uint32_t type)
{
    return type == QUANT_Q4_0 || type == QUANT_Q8_0 || type == QUANT_F16;
}

/* Deviations of the levels: -8..7 about 0; -127..127, where -128 became -127; 256 even steps. */
struct synth_noise synth_noise(uint32_t type, double rms)
{
    struct synth_noise s = { .type = type };
    s.d = quant_f32_to_f16((float)(rms / (type == QUANT_Q4_0 ? sqrt(21.5) : 73.9)));
    if (type == QUANT_F16)
        for (int i = 0; i < 256; i++)
            s.levels[i] = quant_f32_to_f16((float)(rms * (i - 127.5) / 73.9));
    return s;
}

void synth_noise_fill(const struct synth_noise *s, uint64_t key, uint64_t first, int n, uint8_t *out)
{
    for (uint64_t b = first; b < first + (uint64_t)n; b++) {
        uint64_t at = key + b * 8 * SPLITMIX_STEP, sign = splitmix_finalise(at) & 0x8000;
        if (s->type == QUANT_Q4_0) {
            bytes_put16(out, (uint16_t)(s->d ^ sign));
            bytes_put64(out + 2, splitmix_finalise(at + SPLITMIX_STEP));
            bytes_put64(out + 10, splitmix_finalise(at + 2 * SPLITMIX_STEP));
            out += sizeof(struct quant_q4_0);
            continue;
        }
        uint8_t raw[SYNTH_BLOCK];
        for (uint64_t k = 0; k < 4; k++)
            bytes_put64(raw + 8 * k, splitmix_finalise(at + (k + 1) * SPLITMIX_STEP));
        if (s->type == QUANT_Q8_0) {
            bytes_put16(out, (uint16_t)(s->d ^ sign));
            for (int j = 0; j < SYNTH_BLOCK; j++)
                out[2 + j] = raw[j] == 0x80 ? 0x81 : raw[j]; /* -128 is not a level of Q8_0 */
            out += sizeof(struct quant_q8_0);
        } else {
            for (int j = 0; j < SYNTH_BLOCK; j++)
                bytes_put16(out + 2 * j, s->levels[raw[j]]);
            out += 2 * SYNTH_BLOCK;
        }
    }
}

/* Sums of twelve uniform numbers, which are the same on every machine. */
uint8_t *synth_pool(uint32_t type, double rms, uint64_t key)
{
    enum { MOST = 256 };
    const struct quant_traits *t = quant_traits(type);
    uint8_t *pool = malloc((size_t)SYNTH_POOL * (size_t)t->block_bytes);
    float x[MOST];
    for (uint64_t b = 0; pool && b < SYNTH_POOL; b++) {
        for (uint64_t i = 0; i < (uint64_t)t->block_elems; i++) {
            uint64_t sum = 0;
            for (uint64_t k = 0; k < 3; k++) {
                uint64_t h = synth_mix(key + k, b * MOST + i);
                sum += (h & 0xffff) + (h >> 16 & 0xffff) + (h >> 32 & 0xffff) + (h >> 48);
            }
            x[i] = (float)(rms * ((double)sum / 65536 - 6));
        }
        t->quant(pool + b * (uint64_t)t->block_bytes, x, (size_t)t->block_elems);
    }
    return pool;
}

void synth_exact(uint32_t type, double unit, const int8_t level[SYNTH_BLOCK], uint8_t *out)
{
    if (type == QUANT_Q4_0) {
        bytes_put16(out, quant_f32_to_f16((float)unit));
        for (int j = 0; j < SYNTH_BLOCK / 2; j++)
            out[2 + j] = (uint8_t)((level[j] + 8) | (level[j + 16] + 8) << 4);
    } else if (type == QUANT_Q8_0) {
        bytes_put16(out, quant_f32_to_f16((float)(unit / 18)));
        for (int j = 0; j < SYNTH_BLOCK; j++)
            out[2 + j] = (uint8_t)(18 * level[j]);
    } else {
        for (int j = 0; j < SYNTH_BLOCK; j++)
            bytes_put16(out + 2 * j, quant_f32_to_f16((float)(unit * level[j])));
    }
}
