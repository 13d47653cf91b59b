/* AVX-512 (F, BW, VL): 8 x 48 outputs in 24 of 32 registers. */
#include "core/isa.h"
#include "numbers/numbers.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#define NAME "avx512"
#define TARGET "avx512f,avx512bw,avx512vl,avx2,fma,f16c,prfchw"
#define SUFFIX(name) name##_avx512

static int SUFFIX(usable)(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

#include "simd/begin_target.h"
#include "simd/avx512.h"
#include "simd/tile.h"
#include "simd/end_target.h"
#endif
