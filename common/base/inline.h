#ifndef COMMON_BASE_INLINE_H
#define COMMON_BASE_INLINE_H

/* Inlined whatever the compiler thinks of it: bodies of loops that are compiled for several tiers of a processor, and code
 * that falls away where its arguments are known. */
#define INLINE static inline __attribute__((always_inline))

#endif
