/* Number formats as C sees them: a small code for each, and exact decoding to float.  `numbers/rounding.h` encodes.
 *
 * No step of decoding or encoding codes of 8 or 16 bits meets a subnormal float as operand or result of arithmetic, so a
 * processor that is set to flush subnormals gives the same numbers.
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

/* bfloat16 is the upper half of a float. */
static inline float decode_bfloat16(uint16_t code)
{
    return bits_float((uint32_t)code << 16);
}

/* No infinity; the magnitude 0x7f is NaN. */
static inline float decode_float8_e4m3fn(uint8_t code)
{
    uint32_t magnitude = code & 0x7fu;
    return with_sign(magnitude < 0x7fu ? decode_ordinary(magnitude, 4, 3) : bits_float(0x7fc00000u), code >> 7);
}

/* E5M2 is the upper half of a float16. */
static inline float decode_float8_e5m2(uint8_t code)
{
    return decode_float16((uint16_t)(code << 8));
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

/* The two storage widths that several formats share. */

static inline float decode16(uint16_t code, int format)
{
    return format == NUMBER_FLOAT16 ? decode_float16(code) : decode_bfloat16(code);
}

static inline float decode8(uint8_t code, int format)
{
    return format == NUMBER_HIFLOAT8      ? decode_hifloat8(code)
           : format == NUMBER_FLOAT8_E5M2 ? decode_float8_e5m2(code)
                                          : decode_float8_e4m3fn(code);
}

#endif
