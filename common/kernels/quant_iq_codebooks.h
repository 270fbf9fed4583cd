#ifndef COMMON_KERNELS_QUANT_IQ_CODEBOOKS_H
#define COMMON_KERNELS_QUANT_IQ_CODEBOOKS_H

/* Codebooks of the IQ1, IQ2 and IQ3 types: the values or magnitudes that a group of elements may have. They are part of the formats, as
 * fixed by llama.cpp's GGUF files. An entry of IQ1 and IQ2: eight elements, two bits each, element 0 lowest; IQ1: the value plus 1, IQ2: an
 * index into quant_iq2_levels. Of IQ3: four elements, four bits each, an index into quant_iq3_xxs_levels or quant_iq3_s_levels. */
#include <stdint.h>

extern const uint16_t quant_iq1_codebook[2048], quant_iq2_xxs_codebook[256], quant_iq2_xs_codebook[512], quant_iq2_s_codebook[1024];
extern const uint16_t quant_iq3_xxs_codebook[256], quant_iq3_s_codebook[512];
extern const int8_t quant_iq2_levels[4], quant_iq3_xxs_levels[8], quant_iq3_s_levels[8];

/* The same as bytes, element 0 lowest, of IQ1 eighths with one added; Q2_0's four elements of a byte too, from -1 to 2. Filled by
 * quant_iq_codebooks_expand, which tiers that look entries up in memory call; it may be called again. */
extern uint64_t quant_iq1_eights[2048], quant_iq2_xxs_eights[256], quant_iq2_xs_eights[512], quant_iq2_s_eights[1024];
extern uint32_t quant_iq3_xxs_fours[256], quant_iq3_s_fours[512], quant_q2_0_fours[256];
void quant_iq_codebooks_expand(void);

#endif
