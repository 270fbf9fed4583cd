#ifndef COMMON_BASE_INLINE_H
#define COMMON_BASE_INLINE_H

/* Inlined whatever the compiler thinks of it: bodies of loops that are compiled for several tiers of a processor, and code
 * that falls away where its arguments are known. */
#define INLINE static inline __attribute__((always_inline))

/* Compiled once more for AVX2, and chosen when the program is loaded: plain loops over rows, outside the kernels' tiers. The bits
 * are the same, for nothing is contracted. Not under sanitizers, whose start comes after that choice. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define AVX2_TOO __attribute__((target_clones("avx2", "default")))
#else
#define AVX2_TOO
#endif

#endif
