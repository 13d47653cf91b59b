/* AVX2 with FMA and F16C: 4 x 24 outputs in 12 of 16 registers. */
#include "core/isa.h"
#include "numbers/numbers.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#define NAME "avx2"
#define TARGET "avx2,fma,f16c,prfchw"
#define SUFFIX(name) name##_avx2
#define WIDTH 8
#define ROWS 4
#define VECTORS 3

static int SUFFIX(usable)(void)
{
    unsigned a, b, c = 0, d; /* GCC 10 has no name for F16C */
    int float16 = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    return float16 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static const int32_t part_mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

#include "simd/begin_target.h"
#define BROADCAST(x) ((vector)_mm256_set1_ps(x))
#define MULTIPLY_ADD(a, b, c) ((vector)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define BROADCAST_DOUBLE(x) ((vector_double)_mm256_set1_pd(x))
#define MULTIPLY_ADD_DOUBLE(a, b, c) ((vector_double)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define LOAD_PART(p, n) ((vector)_mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(part_mask + 8 - (n)))))
/* A masked step takes zeros for both numbers of a product: adding +0 to a sum changes no bit of the result. */
typedef __m256i lane_mask;
#define LANE_MASK(bits) lane_mask_of(bits)
#define KEEP_MASK(mask) __asm__("" : "+x"(mask))
#define LOAD_MASKED(p, m) ((vector)_mm256_maskload_ps(p, m))
#define MASKED_FACTOR(a, m) ((vector)_mm256_and_ps((__m256)(a), _mm256_castsi256_ps(m)))
#define MULTIPLY_ADD_MASKED(a, b, c, m) MULTIPLY_ADD(a, b, c)
#define STORE_KEPT(p, bits, v) STORE_PART(p, __builtin_popcount((bits) & 0xff), v) /* masked stores take a hundred cycles on some processors */

static inline __attribute__((always_inline)) __m256i lane_mask_of(unsigned bits)
{
    const __m256i own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), own), own);
}

#include "simd/tile.h"
#include "simd/end_target.h"
#endif
