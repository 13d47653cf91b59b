/* Number formats as C sees them: a small code for each, exact decoding to float, one rounding to encode.
 *
 * Encoding rounds to nearest, ties to even (HiFloat8: ties away from zero), overflows to infinity (E4M3FN, which has
 * none: to NaN) and keeps NaN a NaN, quiet and without payload.  The 8-bit formats get one code for every NaN, the
 * positive one, because the sign of a NaN in a float32 sum depends on the processor's instructions.  No step meets a
 * subnormal float as operand or result of arithmetic, so a processor set to flush subnormals gives the same codes.
 */
#ifndef CONVREG_NUMBERS_H
#define CONVREG_NUMBERS_H

#include <stdint.h>
#include <string.h>

enum number_format {
    NUMBER_FLOAT32 = 0,
    NUMBER_FLOAT64 = 1,
    NUMBER_FLOAT16 = 2,
    NUMBER_BFLOAT16 = 3,
    NUMBER_FLOAT8_E4M3FN = 4,
    NUMBER_FLOAT8_E5M2 = 5,
    NUMBER_HIFLOAT8 = 6,
};

/* Whether every value of a format is one of bfloat16. */
static inline int within_bfloat16(int format)
{
    return format == NUMBER_BFLOAT16 || format == NUMBER_FLOAT8_E4M3FN || format == NUMBER_FLOAT8_E5M2 ||
           format == NUMBER_HIFLOAT8;
}

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 2**exponent, for normal floats. */
static inline float power_of_two(int exponent)
{
    return bits_float((uint32_t)(127 + exponent) << 23);
}

/* Sign, E exponent bits with bias 2**(E-1) - 1, M mantissa bits, subnormals: float16 (5, 10), E5M2 (5, 2), E4M3FN (4, 3).
 * The exponent of all ones is left to the callers, where the formats differ. */

static inline float decode_ordinary(uint32_t magnitude, int E, int M)
{
    uint32_t bias = (1u << (E - 1)) - 1u;
    float subnormal = (float)(int32_t)magnitude * power_of_two(1 - (int)bias - M);
    float normal = bits_float((magnitude << (23 - M)) + ((127u - bias) << 23));
    return magnitude >> M == 0 ? subnormal : normal;
}

/* The code of |value|, from `overflow` on cut down to it. */
static inline uint32_t encode_ordinary(float value, int E, int M, uint32_t overflow)
{
    uint32_t bias = (1u << (E - 1)) - 1u;
    uint32_t magnitude = float_bits(value) & 0x7fffffffu;
    uint32_t cut = 23 - (uint32_t)M;
    /* Just under half a step is added, or half where the kept part is odd; what lies below the step falls off. */
    uint32_t rounded = magnitude + (1u << (cut - 1)) - 1u + (magnitude >> cut & 1u);
    uint32_t normal = (rounded >> cut) - ((127u - bias) << M);
    /* Subnormals are multiples of one step, which is that of floats in [rounder, 2*rounder): the addition rounds. */
    float rounder = power_of_two(1 - (int)bias - M + 23);
    uint32_t subnormal = float_bits(bits_float(magnitude) + rounder) - float_bits(rounder);
    uint32_t code = magnitude < (128u - bias) << 23 ? subnormal : normal;
    return code < overflow ? code : overflow;
}

static inline int is_nan(float value)
{
    return (float_bits(value) & 0x7fffffffu) > 0x7f800000u;
}

static inline float with_sign(float magnitude, uint32_t sign)
{
    return bits_float(float_bits(magnitude) | sign << 31);
}

static inline float decode_float16(uint16_t code)
{
    uint32_t magnitude = code & 0x7fffu;
    float special = bits_float(0x7f800000u | (magnitude & 0x3ffu) << 13);
    return with_sign(magnitude < 0x7c00u ? decode_ordinary(magnitude, 5, 10) : special, code >> 15);
}

static inline uint16_t encode_float16(float value)
{
    uint32_t sign = float_bits(value) >> 31;
    return (uint16_t)(sign << 15 | (is_nan(value) ? 0x7e00u : encode_ordinary(value, 5, 10, 0x7c00u)));
}

/* bfloat16 is the upper half of a float. */
static inline float decode_bfloat16(uint16_t code)
{
    return bits_float((uint32_t)code << 16);
}

static inline uint16_t encode_bfloat16(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)(is_nan(value) ? (bits >> 16 & 0x8000u) | 0x7fc0u : rounded);
}

/* No infinity; the magnitude 0x7f is NaN. */
static inline float decode_float8_e4m3fn(uint8_t code)
{
    uint32_t magnitude = code & 0x7fu;
    return with_sign(magnitude < 0x7fu ? decode_ordinary(magnitude, 4, 3) : bits_float(0x7fc00000u), code >> 7);
}

static inline uint8_t encode_float8_e4m3fn(float value)
{
    uint32_t sign = float_bits(value) >> 31, magnitude = encode_ordinary(value, 4, 3, 0x7fu);
    return (uint8_t)(is_nan(value) || magnitude == 0x7fu ? 0x7fu : sign << 7 | magnitude);
}

/* E5M2 is the upper half of a float16. */
static inline float decode_float8_e5m2(uint8_t code)
{
    return decode_float16((uint16_t)(code << 8));
}

static inline uint8_t encode_float8_e5m2(float value)
{
    uint32_t sign = float_bits(value) >> 31;
    return (uint8_t)(is_nan(value) ? 0x7eu : sign << 7 | encode_ordinary(value, 5, 2, 0x7cu));
}

/* HiFloat8 (arXiv 2409.16626): the position of the first one bit, the "dot", gives the widths D of the exponent, which
 * is sign and magnitude without its leading one, and M of the mantissa. */
static inline float decode_hifloat8(uint8_t code)
{
    uint32_t sign = code >> 7, magnitude = code & 0x7fu;
    int D = magnitude >= 0x60 ? 4 : magnitude >= 0x40 ? 3 : magnitude >= 0x20 ? 2 : magnitude >= 0x10 ? 1 : 0;
    int M = D > 2 ? 5 - D : 3;
    int field = (int)(magnitude >> M) & ((1 << D) - 1);
    int negative = D > 0 && field >> (D - 1);
    int exponent = D == 0 ? 0 : (1 << (D - 1)) | (field & ((1 << (D - 1)) - 1));
    float fraction = bits_float(0x3f800000u | (magnitude & ((1u << M) - 1u)) << (23 - M));
    if (magnitude == 0)
        return bits_float(sign ? 0x7fc00000u : 0u);
    if (magnitude == 0x6f)
        return with_sign(bits_float(0x7f800000u), sign);
    if (magnitude < 8) /* powers of two only */
        return with_sign(power_of_two((int)magnitude - 23), sign);
    return with_sign(fraction * power_of_two(negative ? -exponent : exponent), sign);
}

static inline uint8_t encode_hifloat8(float value)
{
    uint32_t bits = float_bits(value), sign = bits >> 31 << 7, magnitude = bits & 0x7fffffffu;
    int exponent = (int)(magnitude >> 23) - 127, size = exponent < 0 ? -exponent : exponent;
    int M = size < 4 ? 3 : size < 8 ? 2 : size < 16 ? 1 : 0, D;
    if (is_nan(value))
        return 0x80;
    if (magnitude < 0x34000000u) /* 2**-23 */
        return 0;
    if (magnitude >= 0x47200000u) /* 1.25 * 2**15 */
        return (uint8_t)(sign | 0x6fu);
    if (exponent == -23)
        return (uint8_t)(sign | 1u);
    magnitude += 1u << (22 - M); /* half a step; a carry leaves a zero mantissa, exact in the next binade's width */
    exponent = (int)(magnitude >> 23) - 127;
    size = exponent < 0 ? -exponent : exponent;
    if (exponent < -15)
        return (uint8_t)(sign | (uint32_t)(exponent + 23));
    D = size == 0 ? 0 : size == 1 ? 1 : size < 4 ? 2 : size < 8 ? 3 : 4;
    M = D > 2 ? 5 - D : 3;
    {
        uint32_t dot = D > 1 ? (uint32_t)(D - 1) << 5 : 8u << D;
        uint32_t field = D == 0 ? 0 : (uint32_t)size ^ (exponent < 0 ? 0u : 1u << (D - 1));
        return (uint8_t)(sign | dot | field << M | (magnitude >> (23 - M) & ((1u << M) - 1u)));
    }
}

/* The two storage widths that several formats share. */

static inline float decode16(uint16_t code, int format)
{
    return format == NUMBER_FLOAT16 ? decode_float16(code) : decode_bfloat16(code);
}

static inline uint16_t encode16(float value, int format)
{
    return format == NUMBER_FLOAT16 ? encode_float16(value) : encode_bfloat16(value);
}

static inline float decode8(uint8_t code, int format)
{
    return format == NUMBER_HIFLOAT8      ? decode_hifloat8(code)
           : format == NUMBER_FLOAT8_E5M2 ? decode_float8_e5m2(code)
                                          : decode_float8_e4m3fn(code);
}

static inline uint8_t encode8(float value, int format)
{
    return format == NUMBER_HIFLOAT8      ? encode_hifloat8(value)
           : format == NUMBER_FLOAT8_E5M2 ? encode_float8_e5m2(value)
                                          : encode_float8_e4m3fn(value);
}

#endif
