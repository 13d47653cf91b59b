/* The conversion loops, left to the compiler's vectoriser, for each instruction set under the name that the engine
 * knows it by. */
#include "numbers/conversion.h"

#include <string.h>

#include "numbers/numbers.h"
#include "numbers/rounding.h"

static uint32_t decoded[3][256]; /* the float32 bits of every 8-bit code: E4M3FN, E5M2, HiFloat8 */

void prepare_conversions(void)
{
    int format, code;
    for (format = NUMBER_FLOAT8_E4M3FN; format <= NUMBER_HIFLOAT8; format++)
        for (code = 0; code < 256; code++)
            decoded[format - NUMBER_FLOAT8_E4M3FN][code] = float_bits(decode8((uint8_t)code, format));
}

#define NAME "generic"
#define SUFFIX(name) name##_generic
#include "numbers/conversion_blocks.h"

#ifdef __x86_64__
#define NAME "avx2"
#define TARGET "avx2,fma,f16c"
#define SUFFIX(name) name##_avx2
#include "simd/begin_target.h"
#include "numbers/conversion_blocks.h"
#include "simd/end_target.h"

#undef TARGET
#undef TARGET_PRAGMA
#undef TARGET_REGION
#define NAME "avx512"
#define TARGET "avx512f,avx512bw,avx512vl,avx2,fma,f16c"
#define SUFFIX(name) name##_avx512
#include "simd/begin_target.h"
#include "numbers/conversion_blocks.h"
#include "simd/end_target.h"
#endif

static const conversion_set *const best_first[] = {
#ifdef __x86_64__
    &conversion_set_avx512,
    &conversion_set_avx2,
#endif
    &conversion_set_generic,
};

const conversion_set *const *conversion_sets(int *count)
{
    *count = sizeof best_first / sizeof *best_first;
    return best_first;
}
