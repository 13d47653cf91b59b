/* Encoding a float in a narrower format under any rounding (`numbers/encode.h`): the rules, and the lanes for one number.
 *
 * Kernels round to nearest, ties to even (HiFloat8: ties away from zero), overflow to infinity (E4M3FN, which has none: to NaN)
 * and keep NaN a NaN, quiet and without payload.  The 8-bit formats get one code for every NaN, the positive one, because the
 * sign of a NaN in a float32 sum depends on the processor's instructions.
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

enum { ROUND_TO_HF32 = 7 }; /* as a format of results: float32 with 11 mantissa bits */

#define ROUNDING_INLINE static inline __attribute__((always_inline))

/* HiFloat8 by binary exponent, from -22 to 0 and from 1 to 9, beyond which all goes on as there, as _(cut, base): mantissa bits of a
 * float that it does not keep, and what turns the bits kept, the exponent field among them, into a code, modulo 256. */
#define HIFLOAT8_TO_0(_)                                                                                                 \
    _(23, 152) _(23, 152) _(23, 152) _(23, 152) _(23, 152) _(23, 152) _(23, 152) _(22, 158)                              \
    _(22, 154) _(22, 150) _(22, 146) _(22, 142) _(22, 138) _(22, 134) _(22, 130) _(21, 124)                              \
    _(21, 116) _(21, 108) _(21, 100) _(20, 88) _(20, 72) _(20, 40) _(20, 16)
#define HIFLOAT8_FROM_1(_) \
    _(20, 16) _(20, 24) _(20, 24) _(21, 52) _(21, 52) _(21, 52) _(21, 52) _(22, 82) _(22, 82)
#define HIFLOAT8_CUT(cut, base) cut,
#define HIFLOAT8_BASE(cut, base) base,

static const uint8_t HIFLOAT8_CUTS[32] = {HIFLOAT8_TO_0(HIFLOAT8_CUT) HIFLOAT8_FROM_1(HIFLOAT8_CUT)};
static const uint8_t HIFLOAT8_BASES[32] = {HIFLOAT8_TO_0(HIFLOAT8_BASE) HIFLOAT8_FROM_1(HIFLOAT8_BASE)};

#define LANE uint32_t
#define LANE_TEST int
#define LANE_INLINE ROUNDING_INLINE
#define LANES(name) name##_one
#define ALL(x) ((uint32_t)(x))
#define LEFT(a, n) left_one(a, n)
#define RIGHT(a, n) right_one(a, n)
#define LARGER(a, b) larger_one(a, b)
#define SMALLER(a, b) smaller_one(a, b)
#define ABOVE(a, b) ((a) > (b))
#define ABOVE_UNSIGNED ABOVE
#define CHOOSE(test, a, b) ((test) ? (a) : (b))
#define ADD_WHERE(test, a) ((a) + (uint32_t)(test))
#define KEEP_FROM(least, a, value) ((a) < (least) ? 0 : (value))
#define BLEND_BITS(mask, a, b) (((a) & (mask)) | ((b) & ~(mask)))
#define LOOK_UP(table, field) ((uint32_t)table[(field) - 105u])

ROUNDING_INLINE uint32_t left_one(uint32_t a, uint32_t n) { return n < 32 ? a << n : 0; }

ROUNDING_INLINE uint32_t right_one(uint32_t a, uint32_t n) { return n < 32 ? a >> n : 0; }

ROUNDING_INLINE uint32_t larger_one(uint32_t a, uint32_t b) { return a > b ? a : b; }

ROUNDING_INLINE uint32_t smaller_one(uint32_t a, uint32_t b) { return a < b ? a : b; }

#define WIDE uint64_t
#define WIDE_ALL(x) ((uint64_t)(x))
#define WIDE_LEFT(a, n) wide_left_one(a, n)
#define WIDE_RIGHT(a, n) wide_right_one(a, n)
#define WIDE_ABOVE(a, b) ((a) > (b))
#define WIDE_CHOOSE CHOOSE
#define WIDE_PRODUCT(a, factor) ((uint64_t)(uint32_t)(a) * (factor))

ROUNDING_INLINE uint64_t wide_left_one(uint64_t a, uint64_t n) { return n < 64 ? a << n : 0; }

ROUNDING_INLINE uint64_t wide_right_one(uint64_t a, uint64_t n) { return n < 64 ? a >> n : 0; }

#include "numbers/encode.h"
#include "numbers/narrow.h"
#include "numbers/end_lanes.h"

/* The rounding of the kernels, and of conversions that ask for no other. */
ROUNDING_INLINE int usual_rounding(int format)
{
    return format == NUMBER_HIFLOAT8 || format == ROUND_TO_HF32 ? HALF_AWAY : NEAREST_EVEN;
}

/* The code of a number in a format of 8 or 16 bits. */
ROUNDING_INLINE uint32_t encode_number(float value, int format)
{
    return encode_one(float_bits(value), 0, format, usual_rounding(format), 0, NUMBER_FLOAT32);
}

static inline uint16_t encode_float16(float value)
{
    return (uint16_t)encode_number(value, NUMBER_FLOAT16);
}

static inline uint8_t encode_hifloat8(float value)
{
    return (uint8_t)encode_number(value, NUMBER_HIFLOAT8);
}

/* The two storage widths that several formats share. */

static inline uint16_t encode16(float value, int format)
{
    return format == NUMBER_FLOAT16 ? encode_float16(value) : (uint16_t)encode_number(value, NUMBER_BFLOAT16);
}

static inline uint8_t encode8(float value, int format)
{
    return format == NUMBER_HIFLOAT8      ? encode_hifloat8(value)
           : format == NUMBER_FLOAT8_E5M2 ? (uint8_t)encode_number(value, NUMBER_FLOAT8_E5M2)
                                          : (uint8_t)encode_number(value, NUMBER_FLOAT8_E4M3FN);
}

#endif
