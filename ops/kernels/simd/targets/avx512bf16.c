/* What AVX-512 with BF16 dot products adds to AVX-512: two bfloat16 steps of the reduction in one instruction.  simd/targets/dispatch.c joins
 * these functions with those of simd/targets/avx512.c; nothing of that file is compiled again. */
#include "core/isa.h"
#include "numbers/numbers.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <time.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma,f16c,prfchw"
#define SUFFIX(name) name##_avx512bf16

static int has_dot_products(void)
{
    unsigned a = 0, b, c, d;
    int bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
    return bf16 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

int usable_avx512bf16(void)
{
    static int usable = -1; /* asked once: a virtual machine takes tens of microseconds to answer, and estimates of costs ask often */
    if (usable < 0)
        usable = has_dot_products();
    return usable;
}

#include "simd/begin_target.h"
#include "simd/avx512.h"
#define MULTIPLY_ADD_PAIRS(a, b, c) ((vector)_mm512_dpbf16_ps((__m512)(c), (__m512bh)(a), (__m512bh)(b)))
/* c plus the products of `lanes` pairs b with the pair at p.  GCC 12 would load and broadcast that by an instruction of its own. */
#define MULTIPLY_ADD_PAIR(lanes, p, b, c) __asm__("vdpbf16ps %1%{1to" lanes "%}, %2, %0" : "+v"(c) : "m"(*(p)), "v"(b))

/* Normal numbers to bfloat16, those of the first vector in the lower halves of the lanes: the instruction flushes subnormal ones. */
static inline __attribute__((always_inline)) __m512i normal_halves(__m512 low, __m512 high)
{
    const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order = _mm512_or_si512(numbers, _mm512_slli_epi32(_mm512_add_epi32(numbers, _mm512_set1_epi32(16)), 16));
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
#define NORMAL_HALVES(low, high) normal_halves((__m512)(low), (__m512)(high))
#define TEMPLATES_ONLY
#pragma GCC diagnostic ignored "-Wunused-function" /* those of simd/tile.h that TEMPLATES_ONLY leaves out */
#include "simd/tile.h"
#include "simd/pairs.h"
#include "simd/rates.h"
#include "simd/end_target.h"

const product_rates *rates_avx512bf16(void)
{
    static product_rates rates;
    if (rates.dot_products == 0)
        measure_rates(&rates);
    return &rates;
}

int preferred_avx512bf16(void)
{
    const product_rates *rates = rates_avx512bf16();
    return rates->dot_products >= DOT_PRODUCTS_PAY * rates->multiply_adds;
}
#endif
