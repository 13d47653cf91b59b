/* The one statement of how a float becomes a number of a narrower format, under any rounding: integer arithmetic on lanes,
 * without branches.  Kernels, conversions and the plain loops include it with lanes of their own (`numbers/rounding.h` for one
 * number, `simd/lanes.h` for vectors), which define
 *
 *     LANE, LANE_TEST          32 unsigned bits in each lane; the result of a comparison
 *     LANES(name)              the name of a function for these lanes
 *     ALL(x)                   x in every lane
 *     LEFT(a, n), RIGHT(a, n)  shifts by the count of each lane: 0 from 32 on
 *     LARGER(a, b), SMALLER(a, b)  of unsigned numbers
 *     ABOVE(a, b)              a > b, of numbers below 2**31
 *     ABOVE_UNSIGNED(a, b)     a > b
 *     CHOOSE(test, a, b)       test ? a : b
 *     ADD_WHERE(test, a)       test ? a + 1 : a
 *     KEEP_FROM(least, a, value)  a < least ? 0 : value, of numbers below 2**31
 *     BLEND_BITS(mask, a, b)   bits of a where the constant has ones, of b elsewhere
 *     LOOK_UP(name, field)     the entry for exponent field 105 <= field < 137 of HIFLOAT8_CUTS or HIFLOAT8_BASES
 *     TO_HALF(bits)            optional: float16 codes of floats, to nearest even, NaN without payload
 *     TO_BFLOAT16(bits)        optional: bfloat16 codes likewise
 *
 * A magnitude is cut: `number` consists of steps of the format and, in the lowest `cut` bits, of what the rounding decides on.
 */

/* number >> cut, rounded.  Zero from some cut above 24 on, for numbers below 2**24. */
LANE_INLINE LANE LANES(rounded)(LANE number, LANE cut, LANE random, int rounding)
{
    LANE kept = RIGHT(number, cut), half;
    if (rounding == TOWARD_ZERO)
        return kept;
    if (rounding == STOCHASTIC)
        return ADD_WHERE(ABOVE_UNSIGNED(LEFT(number, 32u - cut) | RIGHT(number, cut - 32u), random), kept);
    half = LEFT(ALL(1u), cut) >> 1;
    if (rounding == NEAREST_EVEN)
        half += (kept & 1u) - 1u;
    return RIGHT(number + half, cut);
}

/* The code for E exponent and M < 23 mantissa bits with bias 2**(E-1) - 1 and subnormals; `top` is the first magnitude above the
 * largest finite one, which stands for infinity, or for NaN where there is none.  8-bit formats have one NaN. */
LANE_INLINE LANE LANES(encode_ordinary)(LANE bits, LANE random, int E, int M, uint32_t top, uint32_t nan, int rounding, int saturate)
{
    const uint32_t lowest = 129u - (1u << (E - 1)); /* float exponent field of the smallest normal number */
    const uint32_t infinity = 0x7f800000u;
    int passes = !saturate && rounding != TOWARD_ZERO; /* finite numbers may pass the largest one */
    LANE magnitude = bits & 0x7fffffffu, sign = (bits & 0x80000000u) >> (31 - E - M), number = magnitude;
    LANE cut = ALL(23u - (uint32_t)M), code, finite;
    LANE_TEST is_nan = ABOVE(magnitude, ALL(infinity));
    if (E < 8) { /* what is subnormal as a float is far below half a step */
        LANE grid = SMALLER(magnitude & infinity, ALL(lowest << 23));
        number = magnitude + (1u << 23) - grid;
        cut = (23u - (uint32_t)M + lowest) - (grid >> 23);
    }
    code = LANES(rounded)(number, cut, random, rounding);
    finite = SMALLER(code, ALL(passes && top != nan ? top : top - 1u));
    if (top == nan && passes)
        is_nan = ABOVE(code, ALL(top - 1u));
    else if (top == nan && !saturate)
        is_nan = ABOVE(magnitude, ALL(infinity - 1u));
    else if (!passes && !saturate)
        finite = CHOOSE(ABOVE(magnitude, ALL(infinity - 1u)), ALL(top), finite);
    if (E + M == 7)
        return CHOOSE(is_nan, ALL(nan), finite | sign);
    return CHOOSE(is_nan, ALL(nan), finite) | sign;
}

/* HiFloat8's rule for |exponent| >= 4 (arXiv 2409.16626): up where the top discarded bits reach a threshold made of the
 * source's own last bits: 14 of a float32, one and a constant 1 of the 16-bit formats.  A number with zeros there steps
 * up even when it is exact. */
LANE_INLINE LANE_TEST LANES(hybrid_rounds_up)(LANE magnitude, LANE fraction, int source)
{
    LANE field = magnitude >> 23, last;
    if (source == NUMBER_FLOAT32)
        return ABOVE((fraction >> 18) + 1u, magnitude & 0x3fffu);
    last = ALL(16u);
    if (source != NUMBER_BFLOAT16) /* below 2**-14 a float16 is subnormal */
        last = CHOOSE(ABOVE(ALL(113u), field), SMALLER(126u - field, ALL(31u)), ALL(13u));
    return ABOVE(fraction >> 30, (RIGHT(magnitude, last) & 1u) << 1);
}

LANE_INLINE LANE LANES(encode_hifloat8)(LANE bits, LANE random, int rounding, int saturate, int source)
{
    const uint32_t smallest = 0x34800000u, largest = 0x47000000u, infinite = 0x47400000u; /* 2**-22, 2**15, 1.5 * 2**15 */
    LANE magnitude = bits & 0x7fffffffu;
    LANE within = SMALLER(LARGER(magnitude, ALL(smallest)), ALL(rounding == TOWARD_ZERO ? infinite - 1u : infinite));
    LANE cut = LOOK_UP(HIFLOAT8_CUTS, SMALLER(within >> 23, ALL(136u)));
    LANE kept = LANES(rounded)(within, cut, random, rounding == HYBRID ? HALF_AWAY : rounding), code, field;
    LANE least = ALL(rounding == NEAREST_EVEN ? 0x34000001u : 0x34000000u); /* numbers below it become zero; 2**-23 is a tie */
    if (rounding == TOWARD_ZERO)
        least = ALL(smallest);
    if (rounding == STOCHASTIC) {
        LANE fraction = RIGHT((magnitude | 0x800000u) << 8, 104u - (magnitude >> 23));
        least = CHOOSE(ABOVE_UNSIGNED(fraction, random), ALL(0u), ALL(smallest));
    }
    if (rounding == HYBRID) {
        LANE up = ADD_WHERE(LANES(hybrid_rounds_up)(magnitude, LEFT(within, 32u - cut), source), RIGHT(within, cut));
        up = CHOOSE(ABOVE(magnitude, ALL(0x471fffffu)), kept, up); /* from 1.25 * 2**15 on */
        up = CHOOSE(ABOVE(ALL(smallest), magnitude), kept, up);
        up = CHOOSE(ABOVE(magnitude, ALL(0x41800000u - 1u)), up, CHOOSE(ABOVE(ALL(0x3e000000u), magnitude), up, kept));
        kept = up;
        least = CHOOSE(LANES(hybrid_rounds_up)(magnitude, (magnitude | 0x800000u) << 8, source), least, ALL(smallest));
    }
    code = LEFT(kept, cut);
    if (saturate)
        code = SMALLER(code, ALL(largest));
    else if (rounding == TOWARD_ZERO)
        code = CHOOSE(ABOVE(magnitude, ALL(0x7f7fffffu)), ALL(infinite), code);
    field = SMALLER(code >> 23, ALL(136u));
    code = RIGHT(code, LOOK_UP(HIFLOAT8_CUTS, field)) + LOOK_UP(HIFLOAT8_BASES, field);
    code = KEEP_FROM(least, magnitude, BLEND_BITS(0x7fu, code, bits >> 24));
    return CHOOSE(ABOVE(magnitude, ALL(0x7f800000u)), ALL(saturate ? 0u : 0x80u), code);
}

/* Codes of floats, given as bits that were decoded from format `source`. */
LANE_INLINE LANE LANES(encode)(LANE bits, LANE random, int format, int rounding, int saturate, int source)
{
    switch (format) {
    case NUMBER_FLOAT16:
#ifdef TO_HALF
        if (rounding == NEAREST_EVEN && !saturate)
            return TO_HALF(bits);
#endif
        return LANES(encode_ordinary)(bits, random, 5, 10, 0x7c00u, 0x7e00u, rounding, saturate);
    case NUMBER_BFLOAT16:
#ifdef TO_BFLOAT16
        if (rounding == NEAREST_EVEN && !saturate)
            return TO_BFLOAT16(bits);
#endif
        return LANES(encode_ordinary)(bits, random, 8, 7, 0x7f80u, 0x7fc0u, rounding, saturate);
    case NUMBER_FLOAT8_E4M3FN: return LANES(encode_ordinary)(bits, random, 4, 3, 0x7fu, 0x7fu, rounding, saturate);
    case NUMBER_FLOAT8_E5M2: return LANES(encode_ordinary)(bits, random, 5, 2, 0x7cu, 0x7eu, rounding, saturate);
    case NUMBER_HIFLOAT8: return LANES(encode_hifloat8)(bits, random, rounding, saturate, source);
    case ROUND_TO_HF32: return LANES(encode_ordinary)(bits, random, 8, 11, 0x7f800u, 0x7fc00u, rounding, saturate) << 12;
    default: return saturate ? CHOOSE(ABOVE(bits & 0x7fffffffu, ALL(0x7f7fffffu)), CHOOSE(ABOVE(bits & 0x7fffffffu, ALL(0x7f800000u)), bits, bits - 1u), bits) : bits;
    }
}
