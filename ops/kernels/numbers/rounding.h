/* Encoding a float in a narrower format under any rounding: what numbers/numbers.h does for the kernels' own stores, with the
 * rule as an argument.  Integer arithmetic alone, without branches, so loops over these functions become vector code.
 *
 * A magnitude is cut into what the format keeps and the part below, `fraction`, scaled to 32 bits: 0x80000000 is half a
 * step.  The rule decides from these whether to step away from zero; a carry runs on into the exponent by itself.
 */
#ifndef CONVREG_ROUNDING_H
#define CONVREG_ROUNDING_H

#include <stdint.h>

#include "numbers/numbers.h"

enum rounding {
    NEAREST_EVEN = 0, /* ties go to the even code */
    HALF_AWAY = 1,    /* ties go away from zero */
    TOWARD_ZERO = 2,
    STOCHASTIC = 3,   /* away from zero with probability `fraction`, rounded down to a multiple of 2**-32 */
    HYBRID = 4,       /* of HiFloat8: see hybrid_rounds_up */
    TO_ODD = 5,       /* inexact results become odd, so that a second rounding sees what the first one dropped */
};

#define ROUNDING_INLINE static inline __attribute__((always_inline))

ROUNDING_INLINE uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

ROUNDING_INLINE uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* condition ? a : b, in a way that compilers do not turn into a branch. */
ROUNDING_INLINE uint32_t choose(uint32_t condition, uint32_t a, uint32_t b) { return b ^ ((a ^ b) & (0u - condition)); }

/* 1 where the result is the step above `kept`. */
ROUNDING_INLINE uint32_t rounds_up(int rounding, uint32_t kept, uint32_t fraction, uint32_t random)
{
    return rounding == NEAREST_EVEN ? fraction > 0x80000000u - (kept & 1u)
           : rounding == HALF_AWAY  ? fraction >> 31
           : rounding == STOCHASTIC ? random < fraction
                                    : 0;
}

/* The code of |value| for E exponent and M < 23 mantissa bits with bias 2**(E-1) - 1 and subnormals; `top` is the first
 * magnitude above the largest finite one, which stands for infinity (E4M3FN: for NaN). */
ROUNDING_INLINE uint32_t encode_ordinary_as(uint32_t bits, uint32_t random, int E, int M, uint32_t top, uint32_t nan,
                                            int rounding, int saturate)
{
    const uint32_t lowest = 129u - (1u << (E - 1)); /* float exponent field of the smallest normal number */
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t own = larger(magnitude >> 23, 1), grid = larger(own, lowest);
    uint32_t significand = magnitude - ((own - 1) << 23);
    uint32_t cut = 23u - (uint32_t)M + grid - own; /* so many bits lie below the last one kept */
    uint32_t below = cut > 32 ? cut - 32 : 0;      /* of which so many do not count */
    uint32_t kept = significand >> smaller(cut, 31);
    uint32_t fraction = cut > 32 ? significand >> smaller(below, 31) : significand << ((32 - cut) & 31);
    uint32_t code = ((grid - lowest) << M) + kept + rounds_up(rounding, kept, fraction, random);
    uint32_t overflow = saturate || rounding == TOWARD_ZERO ? top - 1 : top;
    uint32_t infinite = saturate ? top - 1 : top;
    code = code < top ? code : overflow;
    code = magnitude == 0x7f800000u ? infinite : code;
    return magnitude > 0x7f800000u ? nan : code;
}

/* HiFloat8's rule for |exponent| >= 4 (arXiv 2409.16626): up where the top discarded bits reach a threshold made of the
 * source's own last bits: 14 of a float32, one and a constant 1 of the 16-bit formats.  A number with zeros there steps
 * up even when it is exact. */
ROUNDING_INLINE uint32_t hybrid_rounds_up(uint32_t magnitude, uint32_t fraction, int source)
{
    uint32_t field = magnitude >> 23;
    uint32_t in_float16 = field < 113 ? smaller(126 - field, 31) : 13; /* below 2**-14 it is subnormal */
    uint32_t last = source == NUMBER_BFLOAT16 ? 16 : in_float16;
    uint32_t threshold = (magnitude >> last & 1u) << 1 | 1u;
    return source == NUMBER_FLOAT32 ? fraction >> 18 >= (magnitude & 0x3fffu) : fraction >> 30 >= threshold;
}

ROUNDING_INLINE uint8_t encode_hifloat8_as(uint32_t bits, uint32_t random, int rounding, int saturate, int source)
{
    uint32_t magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    int32_t exponent = (int32_t)(magnitude >> 23) - 127, size = exponent < 0 ? -exponent : exponent;
    uint32_t width = (uint32_t)(size < 4) + (size < 8) + (size < 16);
    uint32_t tiny = exponent < -22; /* between zero and the smallest code, 2**-22 */
    uint32_t distance = (uint32_t)(-23 - exponent);
    uint32_t below = choose(distance < 32, ((magnitude & 0x7fffffu) | 0x800000u) << 8 >> (distance & 31), 0);
    uint32_t kept = choose(tiny, 0, magnitude >> (23 - width));
    uint32_t fraction = choose(tiny, below, magnitude << (9 + width));
    uint32_t up = rounds_up(rounding == HYBRID ? HALF_AWAY : rounding, kept, fraction, random);
    uint32_t rounded, code, overflow, is_nan = magnitude > 0x7f800000u;
    if (rounding == HYBRID) {
        uint32_t plain = (uint32_t)(size < 4) | (exponent < -23) | (magnitude >= 0x47200000u); /* 1.25 * 2**15 */
        up = choose(plain, up, hybrid_rounds_up(magnitude, fraction, source));
    }
    rounded = choose(tiny, up * 0x34800000u, (kept + up) << (23 - width));
    exponent = (int32_t)(rounded >> 23) - 127;
    size = exponent < 0 ? -exponent : exponent;
    /* The size of the exponent, then the mantissa; then the dot, less the leading one of the size; then its sign. */
    code = ((uint32_t)size << 3 | (rounded >> 20 & 7u)) >> ((size > 3) + (size > 7));
    code += 8u + choose(size > 1, 8, 0) + choose(size > 3, 32, 0) + choose(size > 7, 32, 0);
    code += choose(exponent < 0, 8u + choose(size > 1, 8, 0), 0);
    code = choose(exponent < -15, (uint32_t)(exponent + 23), code);
    overflow = rounding == TOWARD_ZERO ? choose(magnitude < 0x7f800000u, 0x6e, 0x6f) : 0x6f;
    code = choose(rounded >= 0x47400000u, saturate ? 0x6e : overflow, code);
    code = choose(rounded == 0, 0, sign | code);
    return (uint8_t)choose(is_nan, saturate ? 0 : 0x80, code);
}

/* The float32 bits of a float64: finite numbers beyond the range become infinite, or the largest finite float where the
 * rounding never passes it.  NaN stays one. */
ROUNDING_INLINE uint32_t narrow_as(uint64_t bits, uint32_t random, int rounding, int saturate)
{
    uint64_t magnitude = bits & 0x7fffffffffffffffu, field = magnitude >> 52;
    uint64_t own = field > 1 ? field : 1, grid = own > 897 ? own : 897; /* 2**-126 */
    uint64_t significand = magnitude - ((own - 1) << 52);
    uint64_t cut = 29 + grid - own, below = cut > 64 ? cut - 64 : 0;
    uint64_t kept = cut > 63 ? 0 : significand >> (cut & 63);
    uint64_t fraction = cut > 63 ? significand >> (below < 63 ? below : 63) : significand << ((64 - cut) & 63);
    uint64_t half = 0x8000000000000000u, code = (grid - 897) << 23, inexact = fraction != 0;
    uint32_t finite, overflow = saturate || rounding == TOWARD_ZERO || rounding == TO_ODD ? 0x7f7fffffu : 0x7f800000u;
    code += rounding == TO_ODD ? kept | inexact
            : kept + (rounding == NEAREST_EVEN ? fraction > half - (kept & 1)
                      : rounding == HALF_AWAY  ? fraction >> 63
                      : rounding == STOCHASTIC ? random < fraction >> 32
                                               : 0);
    finite = code < 0x7f800000u ? (uint32_t)code : overflow;
    finite = magnitude == 0x7ff0000000000000u ? (saturate ? 0x7f7fffffu : 0x7f800000u) : finite;
    return (uint32_t)(bits >> 32 & 0x80000000u) | (magnitude > 0x7ff0000000000000u ? 0x7fc00000u : finite);
}

#endif
